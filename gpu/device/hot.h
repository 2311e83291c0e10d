/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Waiting for another request like the last one.
 *
 * A model's step rings the same few requests over and over. Between one and the next a worker has time, and between a
 * line and its answer it has none. So whoever has served a usual request (quick.h) of which it has one part stays
 * here: while it waits, it works out where the next chunks go and looks whether there is room for them, and watches the
 * line with everything at hand that a worker's loop would have to look up. When the line comes, the input goes out at
 * once; where the chunks of others are to be expected is worked out while they are on their way; and what only peers
 * want to know (credit) or the host (reports) is written after the completion word. The fence before that word waits
 * for all that the thread has stored, so nothing that travels far may stand right before it.
 *
 * Another line of the same form may come from another memo, with memory of its own (two buffers in turn, say). A peer
 * that is late is waited for as long as nothing else comes. Whatever else happens, a version of the tables, a line of
 * another ring or of another form, is left to the worker's loop, as if this were not here: the line is not taken yet,
 * or what is left of it has become tasks.
 *
 * The number of ranks, whether the request is inline, and a thread's units are known to the compiler. A part that is
 * not full (8 bytes, or the last part of a piece) has a variant that looks at each unit, so that those for full parts
 * stay as short as they are. The plan is not known: there are two ways of pushing, and three of what follows, and a
 * branch costs less than code for all pairs of them.
 */
#include "gpu/device/hot_root.h"

template <uint32_t N, bool INLINE, uint32_t UNITS>
DEVICE bool hot_push(const struct quick *q, uint32_t mode, uint32_t part, const struct quick_way<N> *to) {
        if constexpr (!INLINE || UNITS <= quick_inline(N))
                if (quick_each(mode))
                        return quick_push<N, QUICK_REDUCE_SCATTER, INLINE, UNITS>(q, part, PHASE_SPINS, to);
        return quick_push<N, QUICK_ONE_SHOT, INLINE, UNITS>(q, part, PHASE_SPINS, to);
}

/* What follows the push, from where it was: `done` says which steps have been. False: a peer has to be waited for. */
template <uint32_t N, bool INLINE, uint32_t UNITS>
DEVICE bool hot_finish(const struct quick *q, uint32_t mode, uint32_t part, uint32_t (&done)[3]) {
        if (mode == QUICK_TWO_SHOT) {
                if (!done[1]) {
                        if (!quick_reduce<N, QUICK_TWO_SHOT, INLINE, UNITS>(q, part, PHASE_SPINS))
                                return false;
                        quick_taken<N>(q, 0);
                        done[1] = 1;
                }
                return quick_copy<N, QUICK_TWO_SHOT, INLINE, UNITS>(q, part, PHASE_SPINS);
        }
        if (quick_reduces(mode))
                return quick_reduce<N, QUICK_ONE_SHOT, INLINE, UNITS>(q, part, PHASE_SPINS);
        return quick_copy<N, QUICK_ALL_GATHER, INLINE, UNITS>(q, part, PHASE_SPINS);
}

/* One lane with one part, all units of which every thread has (UNITS 0: that has to be looked at). w->memo is a request
 * of this kind, and served. */
template <uint32_t N, bool INLINE, uint32_t UNITS> DEVICE_OUTLINE void hot_stay(struct worker *w) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        const uint32_t lane = w->index, part = lane - 1;
        const struct memo *m = w->memo;
        const uint32_t mode = m->task.quick, ring = m->ring;
        const struct hot_form form = hot_form_of(m);
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
                struct quick_way<N> to;
                uint32_t sequence, done[3] = {1, 0, 0};
                bool room;

                hot_aim(w, next, &g);
                quick_to<N>(&q, 0, &to);
                room = quick_room<N>(&q, 0);
                if (mode == QUICK_TWO_SHOT)
                        (void)quick_room<N>(&q, 1);
                seen = hot_wait(w, ring, &form, &g, &m, &sequence);
                if (seen == HOT_ELSE || (!room && !quick_room<N>(&q, 0)))
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
                if (!hot_push<N, INLINE, UNITS>(&q, mode, part, &to))
                        return;
                hot_aim(w, bell_sequence_next(next), &g);
                while (!hot_finish<N, INLINE, UNITS>(&q, mode, part, done)) {
                        if (!hot_news(w, &g))
                                continue; /* there is nothing else to do */
                        if (q.thread == 0) {
                                for (uint32_t f = 0; f < 3; f++)
                                        s->left.n[f] = done[f];
                        }
                        (void)hot_next(w, ring, m, next);
                        direct_defer(w, m, lane, 0, next, sequence);
                        return;
                }
                if (!INLINE)
                        fence_release_device();
                warp_sync();
                hot_done(w, m, next, lane);
                quick_taken<N>(&q, quick_last(mode));
                if (lane == 1 && q.thread == 0)
                        word_store(&w->report->rank[m->task.rank].finished, sequence);
                next = hot_next(w, ring, m, next);
        } while (seen == HOT_LINE);
}

/* The host hears of a request that this rank has begun: at once if it has to wait, or ends badly, and else when whoever
 * waits for it has been told. */
DEVICE void hot_rung(const struct worker *w, const struct memo *m, uint32_t sequence) {
        if (warp_thread() == 0) {
                word_store(&w->report->rank[m->task.rank].operation, m->task.operation);
                word_store(&w->report->rank[m->task.rank].rung, sequence);
        }
}

/* Lane 0, by a worker that has no other with a share. */
DEVICE_OUTLINE void hot_check(struct worker *w) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        struct lane_state *state = (struct lane_state *)s->rank.states;
        const struct memo *m = w->memo;
        const uint32_t ring = m->ring;
        const struct hot_form form = hot_form_of(m);
        uint32_t next = s->next[ring], last = state->sequence;
        enum hot_seen seen;
        struct gaze g;
        bool over;

        if (state->broken)
                return;
        gaze_aim(w, 0, &g);
        do {
                const uint32_t ring_sequence = next;
                uint32_t sequence, status = RMX_OK;
                bool sent = false, told = false;

                hot_aim(w, next, &g);
                seen = hot_wait(w, ring, &form, &g, &m, &sequence);
                if (seen == HOT_ELSE || sequence != last + 1)
                        return; /* it is refused elsewhere */
                last = sequence;
                next = hot_next(w, ring, m, next);
                hot_aim(w, next, &g);
                while (!(over = quick_checks(s, &s->counter[0], &m->task, take_told(m->task.call, sequence), &sent,
                                             PHASE_SPINS, &status))) {
                        if (!told) /* who waits wants to be seen waiting */
                                hot_rung(w, m, sequence);
                        told = true;
                        if (hot_news(w, &g))
                                break;
                }
                if (!told && status)
                        hot_rung(w, m, sequence);
                told = told || status;
                if (over)
                        over = direct_checked(w, m, ring_sequence, status);
                else
                        direct_check_later(w, m, ring_sequence, sequence, sent);
                hot_done(w, m, ring_sequence, w->n_workers);
                if (!told)
                        hot_rung(w, m, sequence);
                if (warp_thread() == 0)
                        state->sequence = sequence;
                warp_sync();
        } while (seen == HOT_LINE && over);
}

/* ---- which way --------------------------------------------------------------------------------------------------- */
/* Can this worker stay with w->memo's request? */
DEVICE bool hot_may(const struct worker *w) {
        const struct worker_shared *s = shared_of(w);
        const struct memo *m = w->memo;
        const struct task *k = &m->task;
        const struct counter_cache *c = &s->counter[0];
        const uint32_t parts = k->parts[0];

        /* The counters are those of the lane, if the line was not refused or left to tasks. */
        if (c->home != s->rank.states + w->index * sizeof(struct lane_state) || c->transport != STAGING_PACKET)
                return false;
        if (m->ring != s->hot || !poll_wants(w, s->hot) || s->rank.index != k->rank || !k->quick || !direct_may(w, m))
                return false;
#if !TARGET_HOST
        if (w->n_rings > POLL_OTHERS) /* more than can be watched at once; the own one leaves a place unused */
                return false;
#endif
        if (parts > STAGING_DATA_LANES || parts >= w->n_workers + w->index) /* some worker has more than one part */
                return false;
        return w->index <= parts;
}

/* Units of a thread in this worker's part of w->memo's request, if all threads have all of theirs, of all pieces; else
 * 0. */
DEVICE uint32_t hot_units(const struct worker *w) {
        const struct task *k = &w->memo->task;
        const uint32_t end = w->index * k->part_bytes;

        if (end > k->stride ||
            (k->quick != QUICK_ONE_SHOT && (shared_of(w)->rank.n_ranks - 1) * k->stride + end > k->total) ||
            k->part_bytes % QUICK_UNIT_STEP)
                return 0;
        return k->part_bytes / QUICK_UNIT_STEP;
}

template <bool INLINE, uint32_t UNITS> DEVICE void hot_ranks(struct worker *w) {
        const uint32_t n = shared_of(w)->rank.n_ranks;

        if (n == 8)
                hot_stay<8, INLINE, UNITS>(w);
        else if (n == 4)
                hot_stay<4, INLINE, UNITS>(w);
        else
                hot_stay<2, INLINE, UNITS>(w);
}

template <bool INLINE> DEVICE void hot_units_run(struct worker *w, uint32_t units) {
        if (units == DIRECT_MOST)
                hot_ranks<INLINE, DIRECT_MOST>(w);
        else if (units == DIRECT_HALF)
                hot_ranks<INLINE, DIRECT_HALF>(w);
        else if (DIRECT_QUARTER && units == DIRECT_QUARTER)
                hot_ranks<INLINE, DIRECT_QUARTER>(w);
        else
                hot_ranks<INLINE, 0>(w);
}

/* A line has been served. Returns when there is something else to do. */
DEVICE_OUTLINE void hot_run(struct worker *w) {
        SHARED_POINTER(w);
        const bool inlined = w->memo->task.inlined;

        if (!hot_may(w))
                return;
        if (w->index == 0)
                hot_check(w);
        else if (quick_rooted(w->memo->task.quick))
                inlined ? hot_roots<true>(w) : hot_roots<false>(w);
        else
                inlined ? hot_units_run<true>(w, hot_units(w)) : hot_units_run<false>(w, hot_units(w));
}
