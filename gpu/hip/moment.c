/* SPDX-License-Identifier: MIT */
/*
 * A kernel that does not end in time is no reason to give up the GPU, with all that others do on it, for the sake of a
 * new communicator: only that one is refused, for now. But those of its workers that have seen the word are gone, so
 * there is no way back: the stop stands, and tick does what was wanted when the kernel has ended, and launches the next
 * one.
 */
#include "gpu/hip/moment.h"

#include <errno.h>

#include "gpu/hip/comms.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "util/clock.h"

#define STOP_MS 500u

int moment_begin(struct plane *plane, const char *what, char *error) {
        struct moment *moment = &plane->moment;
        /* Or is to be, again. (What is parked may be about to end, if it was queued.) */
        const bool running = !plane->parked && (plane->park.running || moment->asked);
        bool ended = true;
        char text[PLANE_TEXT];
        int r = 0;

        if (moment->asked && plane->park.asked == PARK_AT_ONCE) /* it has been waited for before */
                r = park_ended(&plane->park, &ended, text);
        if (!r && !ended)
                return error_set(-EBUSY, error, "the resident kernel has not ended yet, for %s; try again", what);
        if (!r)
                r = park_stop(&plane->park, &plane->tables, PARK_AT_ONCE, STOP_MS, text);
        if (r == -ETIMEDOUT && plane->park.asked == PARK_AT_ONCE) {
                if (!moment->asked)
                        moment->since_ns = clock_now_ns();
                moment->asked = true;
                return error_set(-EBUSY, error, "%s, for %s; try again", text, what);
        }
        if (r)
                return error_set(plane_fault(plane, r, text), error, "%s", text);
        *moment = (struct moment){.resumes = running};
        return 0;
}

int moment_end(struct plane *plane, char *error) {
        char text[PLANE_TEXT];
        int r = plane->moment.resumes ? park_launch(&plane->park, &plane->tables, text) : 0;

        plane->moment.resumes = false;
        return r ? error_set(plane_fault(plane, r, text), error, "%s", text) : 0;
}

int moment_tick(struct plane *plane, bool *ret_busy, char *error) {
        struct moment *moment = &plane->moment;

        *ret_busy = false;
        if (!moment->asked)
                return 0;
        if (plane->park.running && plane->park.asked != PARK_RUN) { /* looked at just now */
                *ret_busy = true;
                if (!park_has_room(&plane->park)) /* it has not been told yet, for clients' kernels fill the GPU */
                        moment->since_ns = clock_now_ns();
                return clock_now_ns() - moment->since_ns < RUNTIME_LOST_MS * UINT64_C(1000000)
                               ? 0
                               : error_set(-ETIMEDOUT, error, "the resident kernel did not end");
        }
        moment->asked = false;
        if (plane->park.running) /* somebody else has waited for the end, and has launched the next one */
                return 0;
        slabs_moment(plane);
        comms_moment(plane);
        return plane->parked || plane->draining ? 0 : park_launch(&plane->park, &plane->tables, error);
}
