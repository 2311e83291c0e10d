/* SPDX-License-Identifier: MIT */
/*
 * Parking
 *
 * Resident blocks cost the clients' own kernels a little, so under the adaptive policy they go when nobody needs them.
 *
 * Parking. After LOOK_NS of silence the counters of all rings are noted. After PARK_NS they are read again: one that
 * moved belongs to somebody who rang without a rank having begun anything, so the silence begins anew. Lines older than
 * the first reading have been in front of the kernel's eyes for tens of milliseconds, so what is in the rings has been
 * served. Then `parked` is set in each area, and the kernel is told to end. While a rank waits for another one, in a
 * collective, a send or a receive, it stays: it would be launched again at once.
 *
 * Nobody is forgotten: a client that rings before it can see `parked` has raised its counter, which is read once more
 * after the kernel's end; a client that rings later sees `parked` while it waits, and raises its wake word, which tick
 * and watch.c look at. (The bell kernel looks at `parked` now and then for as long as it waits.) If workers ended with
 * tasks in hand, the kernel is launched again at once: those wait for other ranks, whose bells are not ours.
 *
 * Windows. Memory that clients have given back can be unmapped only while no kernel is resident. When it is parked
 * after a silence this costs nothing. (If the next one is queued, park.c, that has to end first.) Otherwise the kernel
 * is stopped for a moment: in a short silence, or when the oldest has waited for long, or at once for somebody who
 * needs the place (buffers.c). What the sessions with tasks in hand have used stays (memory.c); since a request may
 * wait for ever for a rank that never rings, the next try is a while later when there was nothing else to close.
 */
#include "gpu/hip/adaptive.h"

#include <stdatomic.h>

#include "gpu/hip/comms.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/hold.h"
#include "gpu/hip/rings.h"
#include "ring/ring.h"
#include "util/clock.h"

#define MS        UINT64_C(1000000)
#define LOOK_NS   (150 * MS)
#define PARK_NS   (200 * MS)
#define QUIET_NS  (20 * MS)   /* a window disturbs nobody */
#define OLD_NS    (2000 * MS) /* a window is worth disturbing somebody */
#define MANY      64u         /* so are these */
#define AGAIN_NS  (1000 * MS) /* after a window that was of no use, or disturbed somebody */
#define BUDGET_NS (5 * MS)    /* of a window */
#define ROOM_NS   (20 * MS)   /* for a kernel that has been launched to begin, if it has room */

uint64_t adaptive_silence(struct adaptive *adaptive, uint64_t now_ns, uint64_t fingerprint, bool busy) {
        if (busy || !adaptive->since_ns || fingerprint != adaptive->fingerprint) {
                *adaptive = (struct adaptive){.since_ns = now_ns, .fingerprint = fingerprint};
                return 0;
        }
        return now_ns - adaptive->since_ns;
}

/* Is its last request one that is only answered, which finishes none? */
static bool rank_answered(const struct plane *plane, uint32_t index, uint32_t rung) {
        const struct table_rank *entry = &plane->tables.shadow.table->ranks[index];

        return entry->abort && (!entry->has_last || ring_sequence_before(entry->last, rung));
}

uint64_t adaptive_fingerprint(const struct plane *plane, bool *ret_busy, uint64_t *ret_finished) {
        uint64_t value = 1469598103934665603u, sum = 0;
        bool busy = false;

        for (uint32_t i = 0; i < plane->ranks_end; i++) {
                uint32_t rung, finished;

                if (!plane->ranks[i].comm)
                        continue;
                rung = __atomic_load_n(&plane->tables.report->rank[i].rung, __ATOMIC_RELAXED);
                finished = __atomic_load_n(&plane->tables.report->rank[i].finished, __ATOMIC_RELAXED);
                busy = busy || (rung != finished && !rank_answered(plane, i, rung));
                value = (value ^ rung) * 1099511628211u;
                value = (value ^ finished) * 1099511628211u;
                sum += finished;
        }
        *ret_busy = busy;
        *ret_finished = sum;
        return value;
}

static void begin_anew(struct plane *plane) {
        plane->adaptive = (struct adaptive){0};
}

/* ---- parking ----------------------------------------------------------------------------------------------------- */
int adaptive_launch(struct plane *plane, char *error) {
        int r;

        begin_anew(plane);
        if (!plane->parked || plane->draining || (plane->park.running && plane->park.asked != PARK_RUN))
                return 0; /* what was queued is about to end; who rings raises his wake word */
        r = park_launch(&plane->park, &plane->tables, error);
        if (r)
                return r;
        plane->parked = false;
        plane->leave.left = false;
        plane->wakes++;
        return 0;
}

int adaptive_wake(struct plane *plane, char *error) {
        const bool parked = plane->parked;
        int r = adaptive_launch(plane, error);

        return r || plane->parked == parked ? r : rings_tell_parked(plane, error);
}

static int park_now(struct plane *plane, char *error) {
        bool rang;
        int r = rings_counters(plane, &rang, error);

        if (r || rang) {
                begin_anew(plane);
                return r;
        }
        latch_judge(&plane->park.latch);
        plane->parked = true;
        plane->parks++;
        rings_wakes(plane); /* words that count from here on mean that somebody saw `parked` */
        latch_arm(&plane->park.latch);
        r = rings_tell_parked(plane, error);
        if (!r)
                r = park_stop(&plane->park, &plane->tables, PARK_WHEN_IDLE, RUNTIME_LOST_MS, error);
        if (!r)
                r = rings_counters(plane, &rang, error);
        if (!r && (rang || park_kept(&plane->park, &plane->tables)))
                return adaptive_wake(plane, error);
        return r ? r : adaptive_rest(plane, error);
}

int adaptive_rest(struct plane *plane, char *error) {
        return plane->memory.n_retired ? park_ready(&plane->park, &plane->tables, error)
                                       : park_queue(&plane->park, &plane->tables, error);
}

/* Also after a window, before which what was queued has ended. (Wake words stay until that has.) Runs a kernel that is
 * not about to end, then it has been let go: by somebody who rang, or for a change in the tables. */
static int parked_tick(struct plane *plane, char *error) {
        struct park *park = &plane->park;
        bool begun, told;

        if (park->running && park->asked != PARK_RUN)
                return 0;
        if (!park->running && !park->queued) {
                latch_judge(&park->latch); /* (a window has ended what was queued) */
                latch_arm(&park->latch);   /* before wake words are read: who is not in time for these lifts it later */
        }
        begun = park->queued && park_begun(park);
        atomic_thread_fence(memory_order_acquire); /* partner: rmx_bell_look, which raises its wake word before that */
        told = rings_wakes(plane) || park->running || hold_any(plane);
        if (begun && !told)
                park->latch.alone = true;
        return begun || told || (!park->queued && park_kept(park, &plane->tables)) ? adaptive_wake(plane, error)
                                                                                   : adaptive_rest(plane, error);
}

static int policy_tick(struct plane *plane, uint64_t silence, char *error) {
        bool rang, waits;
        int r;

        if (plane->parked)
                return parked_tick(plane, error);
        if (plane->policy != PLANE_ADAPTIVE || silence < LOOK_NS || hold_any(plane))
                return 0;
        if (!plane->adaptive.looked) {
                r = rings_counters(plane, &rang, error);
                plane->adaptive.looked = true;
                return r;
        }
        if (silence < PARK_NS)
                return 0;
        (void)comms_pairs_finished(plane, &waits);
        if (!waits)
                return park_now(plane, error);
        begin_anew(plane); /* the kernel would be back at once, with the task in hand, and need room again */
        return 0;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */
/* What has not begun is not waited for to end: the clients' kernels may leave it no room for any time. */
static bool room_comes(struct park *park) {
        const uint64_t end = clock_now_ns() + ROOM_NS;

        while (!park_has_room(park)) {
                if (clock_now_ns() > end)
                        return false;
                park_insist(park);
                runtime_pause();
        }
        return true;
}

int adaptive_window(struct plane *plane, bool *ret_closed, char *error) {
        const uint32_t n_retired = plane->memory.n_retired;
        const bool running = plane->park.running;
        int r, r2 = 0;

        *ret_closed = false;
        park_let_go(&plane->park);
        if (!room_comes(&plane->park))
                return 0;
        r = park_stop(&plane->park, &plane->tables, PARK_AT_ONCE, RUNTIME_LOST_MS, error);
        if (r)
                return r;
        r = memory_close(&plane->memory, park_kept_rings(&plane->park, &plane->tables), BUDGET_NS, error);
        if (running)
                r2 = park_launch(&plane->park, &plane->tables, r ? NULL : error);
        *ret_closed = plane->memory.n_retired != n_retired;
        return r ? r : r2;
}

static int window_tick(struct plane *plane, uint64_t now, uint64_t silence, char *error) {
        const bool running = plane->park.running;
        bool closed;
        int r;

        if (!plane->memory.n_retired)
                return 0;
        if (plane->parked && running) /* until it has ended, what was queued */
                return 0;
        if ((running || plane->leave.left) &&
            (now < plane->window_ns ||
             (silence < QUIET_NS && memory_oldest(&plane->memory, now) < OLD_NS && plane->memory.n_retired < MANY)))
                return 0;
        if (plane->park.queued)
                return park_ask(&plane->park, &plane->tables, PARK_AT_ONCE, error);
        r = adaptive_window(plane, &closed, error);
        if (!r && running && (!closed || silence < QUIET_NS))
                plane->window_ns = clock_now_ns() + AGAIN_NS;
        return r;
}

int adaptive_tick(struct plane *plane, char *error) {
        uint64_t now = clock_now_ns(), silence, print, finished;
        bool busy;
        int r;

        if (plane->leave.asked_ns) /* watch.c sees to it */
                return 0;
        if (plane->leave.untold) {
                plane->leave.untold = false;
                r = rings_tell_parked(plane, error);
                if (r)
                        return r;
        }
        print = adaptive_fingerprint(plane, &busy, &finished);
        silence = adaptive_silence(&plane->adaptive, now, print, busy || !park_has_room(&plane->park));
        r = policy_tick(plane, silence, error);
        return r ? r : window_tick(plane, now, silence, error);
}
