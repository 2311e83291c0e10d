/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Waiting for another request like the last one, where that has a root (quick_root.h). As hot.h, but for two things:
 * a rank that waits for nobody's data comes back for the next request before its peers have taken this one, so it has
 * to wait for room, and does so here; and who has written nothing but packets needs no fence before it says so.
 */
#include "gpu/device/hot_wait.h"

template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE bool hot_root_push(const struct quick *q, uint32_t root, uint32_t part) {
        if constexpr (MODE == QUICK_BROADCAST)
                return quick_push<N, MODE, INLINE, 0>(q, part, PHASE_SPINS);
        else
                return quick_root_push<N, INLINE>(q, root, part, PHASE_SPINS);
}

template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE bool hot_root_end(const struct quick *q, uint32_t root, uint32_t part) {
        if constexpr (MODE == QUICK_BROADCAST)
                return quick_root_copy<N, INLINE>(q, root, part, PHASE_SPINS);
        else
                return direct_reduce<N, MODE, INLINE>(q, part, PHASE_SPINS);
}

/* One lane with one part. w->memo is a request of this kind, and served. */
template <uint32_t N, uint32_t MODE, bool INLINE> DEVICE_OUTLINE void hot_stay_root(struct worker *w) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        const uint32_t lane = w->index, part = lane - 1;
        const struct memo *m = w->memo;
        const uint32_t root = m->task.root, ring = m->ring;
        const struct hot_form form = hot_form_of(m);
        const bool pushes = quick_root_pushes(MODE, s->rank.rank == root);
        const bool ends = quick_root_ends(MODE, s->rank.rank == root);
        uint32_t next = s->next[ring];
        enum hot_seen seen;
        struct gaze g;
        struct quick q;

        q.s = s;
        q.c = &s->counter[0];
        q.me = s->rank.rank;
        q.mine = s->rank.peer[q.me];
        q.thread = warp_thread();
        q.lane = lane;
        q.stride = m->task.stride;
        q.total = m->task.total;
        q.part_bytes = m->task.part_bytes;
        gaze_aim(w, 0, &g);
        do {
                uint32_t sequence;

                hot_aim(w, next, &g);
                if (pushes)
                        (void)quick_root_room<N>(&q, MODE, root);
                seen = hot_wait(w, ring, &form, &g, &m, &sequence);
                if (seen == HOT_ELSE || m->task.root != root)
                        return;
                if (INLINE) {
                        const uint64_t box = m->task.area + next % BELL_DEPTH * (uint64_t)(BELL_INLINE_PACKETS * 16);

                        q.in = box + BELL_OFFSET_INBOX;
                        q.out = box + BELL_OFFSET_OUTBOX;
                } else {
                        q.in = m->task.in;
                        q.out = m->task.out;
                }
                q.type = m->task.type;
                q.flag = next;
                hot_aim(w, bell_sequence_next(next), &g);
                while (pushes && !hot_root_push<N, MODE, INLINE>(&q, root, part))
                        if (seen == HOT_LAST || hot_news(w, &g))
                                return; /* the line has not been taken */
                while (ends && !hot_root_end<N, MODE, INLINE>(&q, root, part)) {
                        if (!hot_news(w, &g))
                                continue; /* there is nothing else to do */
                        (void)direct_left(s, 1, 0, 0);
                        (void)hot_next(w, ring, m, next);
                        direct_defer(w, m, lane, 0, next, sequence);
                        return;
                }
                if (!INLINE && quick_root_writes(&q, MODE, root))
                        fence_release_device();
                warp_sync();
                hot_done(w, m, next, lane);
                if (ends)
                        quick_root_taken<N>(&q, MODE, root);
                if (lane == 1 && q.thread == 0)
                        word_store(&w->report->rank[m->task.rank].finished, sequence);
                next = hot_next(w, ring, m, next);
        } while (seen == HOT_LINE);
}

template <uint32_t MODE, bool INLINE> DEVICE void hot_root_ranks(struct worker *w) {
        const uint32_t n = shared_of(w)->rank.n_ranks;

        if (n == 8)
                hot_stay_root<8, MODE, INLINE>(w);
        else if (n == 4)
                hot_stay_root<4, MODE, INLINE>(w);
        else
                hot_stay_root<2, MODE, INLINE>(w);
}

template <bool INLINE> DEVICE void hot_roots(struct worker *w) {
        if (w->memo->task.quick == QUICK_BROADCAST)
                hot_root_ranks<QUICK_BROADCAST, INLINE>(w);
        else
                hot_root_ranks<QUICK_REDUCE, INLINE>(w);
}
