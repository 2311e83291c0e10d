/* SPDX-License-Identifier: MIT */
/*
 * Leaving
 *
 * A kernel of the clients' that fills all processors once waits for those that have a resident block: with two of 132
 * blocked, matrix products of a prefill took up to 25 % longer on an H200 (2,048 rows: 16 % of a whole layer). With
 * large requests (bursts, of LARGE_KIB and more) and pauses of PAUSE_NS between them, what is lost there is more than
 * the launch of a kernel for each request, some 25 us. So when two such requests had such a pause between them and
 * hardly anything else came, the kernel is told to end as soon as the second has been served, with PARK_WHEN_SERVED:
 * within microseconds its workers find nothing to do and end, one by one. Only then is `parked` set. The next request
 * finds it and raises its wake word, which watch.c looks at all the time.
 *
 * Lines that came meanwhile are not forgotten: workers say how far they have looked in each ring, and the counters are
 * read after `parked` has been set. If one is beyond, the kernel is launched again.
 *
 * While some workers have ended and others have not, these may wait for those, by way of other GPUs. So a kernel that
 * has not ended after LEAVE_NS is ended as for a window, with its tasks kept, and launched again; and so is one whose
 * tables change meanwhile, since those that have ended do not acknowledge (tables_commit).
 *
 * A burst may be launched more than once for one request (gpu/device/burst.h): as long as no request has finished it is
 * the same one.
 */
#include "gpu/hip/leave.h"

#include <errno.h>
#include <stdlib.h>

#include "gpu/hip/comms.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/hold.h"
#include "gpu/hip/rings.h"
#include "util/clock.h"

#define MS        UINT64_C(1000000)
#define LARGE_KIB 16384u           /* products of so many rows keep all processors busy; 8 MB lost */
#define PAUSE_NS  UINT64_C(300000) /* worth it: a tenth of it is lost otherwise */
#define PAUSES_NS (100 * MS)       /* no pause, but something new */
#define OTHERS    2u               /* requests between two large ones */
#define LEAVE_NS  UINT64_C(300000) /* for a kernel that has nothing to do */
#define LATER_NS  (200 * MS)       /* after leaving in vain */
#define BEGUN_NS  MS               /* from a burst's launch to the report that its request has begun */

void leave_init(struct leave *leave) {
        *leave = (struct leave){0};
        if (getenv("RAILMUX_GPU_STAY")) /* for measurements */
                leave->later_ns = UINT64_MAX;
}

/* Of all kinds, sends and receives too; *ret_busy: some are under way. */
static uint64_t finished_of(const struct plane *plane, bool *ret_busy) {
        uint64_t sum;
        bool waits;

        (void)adaptive_fingerprint(plane, ret_busy, &sum);
        sum += comms_pairs_finished(plane, &waits);
        *ret_busy |= waits;
        return sum;
}

/* ---- a large request --------------------------------------------------------------------------------------------- */
/* A burst of one has been launched. */
static void request_begin(struct plane *plane, uint64_t now) {
        struct leave *leave = &plane->leave;
        const uint64_t pause = now - leave->served_ns;
        uint64_t finished;
        bool busy;

        finished = finished_of(plane, &busy);
        if (!leave->open || finished != leave->opened)
                leave->wanted = !leave->open && !leave->asked_ns && leave->served_ns && pause >= PAUSE_NS &&
                                pause < PAUSES_NS && finished - leave->served <= OTHERS;
        leave->open = true;
        leave->opened_ns = now;
        leave->opened = finished;
}

/* Has the one that is open been served? */
static int request_watch(struct plane *plane, uint64_t now, char *error) {
        struct leave *leave = &plane->leave;
        uint64_t finished;
        bool busy;

        (void)adaptive_fingerprint(plane, &busy, &finished); /* looks at less */
        if (!busy)
                finished = finished_of(plane, &busy);
        /* (What a burst belongs to may not have been reported as begun yet, or have ended before this was called.) */
        if (busy || (finished == leave->opened && now - leave->opened_ns < BEGUN_NS))
                return 0;
        leave->open = false;
        leave->served_ns = now;
        leave->served = finished;
        if (!leave->wanted || !plane->park.running || plane->park.asked != PARK_RUN || plane->draining ||
            !park_has_room(&plane->park) || plane->moment.asked || hold_any(plane) || now < leave->later_ns)
                return 0;
        leave->asked_ns = now;
        return park_ask(&plane->park, &plane->tables, PARK_WHEN_SERVED, error);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */
/* Areas hear of it later: before that there may be a burst to be launched. */
static int wake(struct plane *plane, char *error) {
        int r = adaptive_launch(plane, error);

        plane->leave.untold = !r && !plane->parked;
        return r;
}

/* It has ended by itself. */
static int left(struct plane *plane, uint64_t now, char *error) {
        bool rang, missed;
        int r;

        plane->leave.asked_ns = 0;
        plane->leave.left = true;
        plane->parked = true;
        plane->parks++;
        rings_wakes(plane);              /* words that count from here on mean that somebody saw `parked` */
        latch_judge(&plane->park.latch); /* how the one that has left began */
        latch_arm(&plane->park.latch);
        r = rings_tell_parked(plane, error);
        if (!r)
                r = rings_counters(plane, &rang, error);
        if (r)
                return r;
        missed = park_kept(&plane->park, &plane->tables) || !rings_seen(plane) || hold_any(plane);
        if (missed)
                plane->leave.later_ns = plane->leave.later_ns > now + LATER_NS ? plane->leave.later_ns : now + LATER_NS;
        return missed ? wake(plane, error) : adaptive_rest(plane, error);
}

/* It has been told to end when it has nothing to do. */
static int leaving(struct plane *plane, uint64_t now, char *error) {
        const uint64_t since = now - plane->leave.asked_ns;
        bool ended;
        int r;

        if (plane->parked || plane->draining || plane->moment.asked || plane->park.asked == PARK_RUN ||
            plane->park.asked == PARK_WHEN_IDLE) { /* somebody else has gone on from here */
                plane->leave.asked_ns = 0;
                return 0;
        }
        r = park_ended(&plane->park, &ended, error);
        if (r || ended)
                return r ? r : left(plane, now, error);
        if (since > RUNTIME_LOST_MS * MS)
                return error_set(-ETIMEDOUT, error, "the resident kernel did not end");
        return since > LEAVE_NS ? park_ask(&plane->park, &plane->tables, PARK_AT_ONCE, error) : 0;
}

bool leave_watch(struct plane *plane, uint32_t kib, bool soon) {
        const struct leave before = plane->leave;
        const uint64_t now = clock_now_ns();
        char text[PLANE_TEXT];
        int r = 0;

        if (plane->fault || (plane->policy != PLANE_ADAPTIVE && !plane->parked))
                return false;
        park_insist(&plane->park);
        if (kib >= LARGE_KIB)
                request_begin(plane, now);
        if (plane->leave.untold) {
                plane->leave.untold = false;
                r = rings_tell_parked(plane, text);
        } else if (plane->leave.asked_ns) {
                r = leaving(plane, now, text);
        } else if (plane->parked && !plane->park.running) {
                r = soon || rings_wakes(plane) ? wake(plane, text) : 0;
        } else if (plane->leave.open && kib < LARGE_KIB) {
                r = request_watch(plane, now, text);
        }
        plane_fault(plane, r, text);
        return plane->leave.asked_ns || plane->leave.untold || plane->leave.left != before.left;
}
