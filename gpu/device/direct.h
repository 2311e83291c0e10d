/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * From a line that was valid before straight to the steps of quick.h, without a task: nothing is copied or looked up
 * that is known already. Only if somebody makes this worker wait longer than it likes, what is left becomes tasks, and
 * those go on where this stopped.
 *
 * All own lanes are done together. A step may wait for what peers do in an earlier step of theirs, and all take the
 * same steps in the same order (push, then reduce one round later, then copy one round later), so nobody waits in a
 * circle.
 */
#include "gpu/device/fill.h"
#include "gpu/device/quick_root.h"

/* What one worker has of a request: lanes first, first + step, .. last. */
struct direct {
        uint32_t first, last;
        uint32_t lanes;
        uint32_t step;
        uint32_t parts;
        uint32_t cache; /* counter cache of the first lane, the others have those behind it */
};

/* Where one of the three steps is. */
struct direct_cursor {
        uint32_t lane;
        uint32_t round; /* parts of this lane before this one, times STAGING_DATA_LANES */
        uint32_t cache;
        uint32_t n; /* parts done, of all lanes */
};

DEVICE void direct_begin(const struct direct *d, uint32_t part, struct direct_cursor *c) {
        c->lane = d->first;
        c->round = part - (d->first - 1);
        c->cache = d->cache;
        c->n = c->round / STAGING_DATA_LANES; /* only where there is one lane can it be other than 0 */
}

DEVICE void direct_next(const struct direct *d, struct direct_cursor *c) {
        c->n++;
        if (c->lane == d->last) {
                c->lane = d->first;
                c->cache = d->cache;
                c->round += STAGING_DATA_LANES;
        } else {
                c->lane += d->step;
                c->cache++;
        }
}

DEVICE uint32_t direct_part(const struct direct_cursor *c) {
        return c->round + c->lane - 1;
}

DEVICE void direct_aim(struct quick *q, const struct direct_cursor *c) {
        q->lane = c->lane;
        q->c = &q->s->counter[c->cache];
}

/* Lanes of a request of so many parts that a worker has, beginning with `first`; there is one at least. */
DEVICE void direct_lanes(uint32_t parts, uint32_t first, uint32_t step, struct direct *d) {
        const uint32_t all = parts < STAGING_DATA_LANES ? parts : STAGING_DATA_LANES;

        d->first = first;
        d->step = step;
        d->parts = parts;
        d->lanes = 1;
        for (d->last = first; d->last + step <= all; d->last += step)
                d->lanes++;
}

/* A step of a part that is not full, or of a part of another size than the usual ones. */
template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE_OUTLINE bool direct_push_any(struct quick q, uint32_t part, uint32_t spins) {
        SHARED_POINTER(q.s);
        SHARED_POINTER(q.c);
        return quick_push<N, MODE, INLINE, 0>(&q, part, spins);
}

template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE_OUTLINE bool direct_reduce_any(struct quick q, uint32_t part, uint32_t spins) {
        SHARED_POINTER(q.s);
        SHARED_POINTER(q.c);
        return quick_reduce<N, MODE, INLINE, 0>(&q, part, spins);
}

template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE_OUTLINE bool direct_copy_any(struct quick q, uint32_t part, uint32_t spins) {
        SHARED_POINTER(q.s);
        SHARED_POINTER(q.c);
        return quick_copy<N, MODE, INLINE, 0>(&q, part, spins);
}

/* Units of each thread in a full part: as many as there can be, or half of them; of what is inline half or a quarter.
 */
#define DIRECT_MOST    QUICK_UNITS
#define DIRECT_HALF    (QUICK_UNITS / 2u)
#define DIRECT_QUARTER (QUICK_UNITS / 4u)

DEVICE bool direct_has(const struct quick *q, uint32_t units) {
        return units && q->part_bytes == units * QUICK_UNIT_STEP;
}

template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE bool direct_push(const struct quick *q, uint32_t part, uint32_t spins) {
        if (quick_full<N, MODE>(q, part)) {
                if constexpr (INLINE) {
                        if constexpr (DIRECT_MOST == quick_inline(quick_each(MODE) ? N : 1))
                                if (direct_has(q, DIRECT_MOST))
                                        return quick_push<N, MODE, INLINE, DIRECT_MOST>(q, part, spins);
                        if (direct_has(q, DIRECT_HALF))
                                return quick_push<N, MODE, INLINE, DIRECT_HALF>(q, part, spins);
                        if constexpr (DIRECT_QUARTER)
                                if (direct_has(q, DIRECT_QUARTER))
                                        return quick_push<N, MODE, INLINE, DIRECT_QUARTER>(q, part, spins);
                }
                if constexpr (!INLINE) {
                        if (direct_has(q, DIRECT_MOST))
                                return quick_push<N, MODE, INLINE, DIRECT_MOST>(q, part, spins);
                        if (direct_has(q, DIRECT_HALF))
                                return quick_push<N, MODE, INLINE, DIRECT_HALF>(q, part, spins);
                }
        }
        return direct_push_any<N, MODE, INLINE>(*q, part, spins);
}

template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE bool direct_reduce(const struct quick *q, uint32_t part, uint32_t spins) {
        if (quick_full<N, MODE>(q, part)) {
                if constexpr (INLINE) {
                        if constexpr (DIRECT_MOST == quick_inline(quick_each(MODE) ? N : 1))
                                if (direct_has(q, DIRECT_MOST))
                                        return quick_reduce<N, MODE, INLINE, DIRECT_MOST>(q, part, spins);
                        if (direct_has(q, DIRECT_HALF))
                                return quick_reduce<N, MODE, INLINE, DIRECT_HALF>(q, part, spins);
                        if constexpr (DIRECT_QUARTER)
                                if (direct_has(q, DIRECT_QUARTER))
                                        return quick_reduce<N, MODE, INLINE, DIRECT_QUARTER>(q, part, spins);
                }
                if constexpr (!INLINE) {
                        if (direct_has(q, DIRECT_MOST))
                                return quick_reduce<N, MODE, INLINE, DIRECT_MOST>(q, part, spins);
                        if (direct_has(q, DIRECT_HALF))
                                return quick_reduce<N, MODE, INLINE, DIRECT_HALF>(q, part, spins);
                }
        }
        return direct_reduce_any<N, MODE, INLINE>(*q, part, spins);
}

template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE bool direct_copy(const struct quick *q, uint32_t part, uint32_t spins) {
        if (quick_full<N, MODE>(q, part)) {
                if constexpr (INLINE) {
                        if constexpr (DIRECT_MOST == quick_inline(quick_each(MODE) ? N : 1))
                                if (direct_has(q, DIRECT_MOST))
                                        return quick_copy<N, MODE, INLINE, DIRECT_MOST>(q, part, spins);
                        if (direct_has(q, DIRECT_HALF))
                                return quick_copy<N, MODE, INLINE, DIRECT_HALF>(q, part, spins);
                        if constexpr (DIRECT_QUARTER)
                                if (direct_has(q, DIRECT_QUARTER))
                                        return quick_copy<N, MODE, INLINE, DIRECT_QUARTER>(q, part, spins);
                }
                if constexpr (!INLINE) {
                        if (direct_has(q, DIRECT_MOST))
                                return quick_copy<N, MODE, INLINE, DIRECT_MOST>(q, part, spins);
                        if (direct_has(q, DIRECT_HALF))
                                return quick_copy<N, MODE, INLINE, DIRECT_HALF>(q, part, spins);
                }
        }
        return direct_copy_any<N, MODE, INLINE>(*q, part, spins);
}

/* Which lanes, and what of. */
template <bool INLINE>
DEVICE void direct_init(struct worker_shared *s, const struct task *task, uint32_t ring_sequence, uint32_t first,
                        uint32_t step, uint32_t cache, bool resumed, struct direct *d, struct quick *q) {
        const uint64_t box = task->area + (uint64_t)(ring_sequence % BELL_DEPTH) * BELL_INLINE_PACKETS * 16;

        if (resumed) {
                d->first = d->last = first;
                d->lanes = 1;
                d->step = step;
                d->parts = task->parts[0];
        } else {
                direct_lanes(task->parts[0], first, step, d);
        }
        d->cache = cache;
        q->s = s;
        q->type = task->type;
        q->me = s->rank.rank;
        q->mine = s->rank.peer[q->me];
        q->in = INLINE ? box + BELL_OFFSET_INBOX : task->in;
        q->out = INLINE ? box + BELL_OFFSET_OUTBOX : task->out;
        q->thread = warp_thread();
        q->stride = task->stride;
        q->total = task->total;
        q->part_bytes = task->part_bytes;
        q->flag = ring_sequence;
}

/* What has been done of a request that waits, by step. */
DEVICE bool direct_left(struct worker_shared *s, uint32_t pushed, uint32_t reduced, uint32_t copied) {
        warp_sync();
        if (warp_thread() == 0) {
                s->left.n[0] = pushed;
                s->left.n[1] = reduced;
                s->left.n[2] = copied;
        }
        warp_sync();
        return false;
}

/*
 * Takes steps until all are done (true), or one has not become ready in time: then shared->left says what is left.
 * `task` is what a memo keeps (then all own lanes are done from the beginning), or a task (`resumed`; its lane is done
 * from where it is).
 */
template <uint32_t N, uint32_t MODE, bool INLINE>
DEVICE_OUTLINE bool direct_run_mode(struct worker_shared *s, const struct task *task, uint32_t ring_sequence,
                                    uint32_t first, uint32_t step, uint32_t cache, uint32_t spins, bool resumed) {
        SHARED_POINTER(s);
        struct direct_cursor pushed, reduced, copied;
        bool more, ready = true;
        struct direct d;
        struct quick q;

        direct_init<INLINE>(s, task, ring_sequence, first, step, cache, resumed, &d, &q);
        direct_begin(&d, resumed ? task->part[0] : first - 1, &pushed);
        direct_begin(&d, resumed ? task->part[1] : first - 1, &reduced);
        direct_begin(&d, resumed ? task->part[2] : first - 1, &copied);
        do {
                const struct direct_cursor *behind = quick_reduces(MODE) ? &reduced : &copied;
                const bool pushes = direct_part(&pushed) < d.parts;

                more = pushes;
                if (pushes && pushed.n <= behind->n + d.lanes) {
                        direct_aim(&q, &pushed);
                        ready = direct_push<N, MODE, INLINE>(&q, direct_part(&pushed), spins);
                        if (!ready)
                                break;
                        direct_next(&d, &pushed);
                }
                if constexpr (quick_reduces(MODE)) {
                        const bool reduces = direct_part(&reduced) < d.parts;

                        more = more || reduces;
                        if (reduces && (!pushes || pushed.n > reduced.n + d.lanes) &&
                            (!quick_copies(MODE) || reduced.n <= copied.n + d.lanes)) {
                                direct_aim(&q, &reduced);
                                ready = direct_reduce<N, MODE, INLINE>(&q, direct_part(&reduced), spins);
                                if (!ready)
                                        break;
                                quick_taken<N>(&q, 0);
                                direct_next(&d, &reduced);
                        }
                }
                if constexpr (quick_copies(MODE)) {
                        const struct direct_cursor *before = quick_reduces(MODE) ? &reduced : &pushed;
                        const bool copies = direct_part(&copied) < d.parts;

                        more = more || copies;
                        if (copies && (direct_part(before) >= d.parts || before->n > copied.n + d.lanes)) {
                                direct_aim(&q, &copied);
                                ready = direct_copy<N, MODE, INLINE>(&q, direct_part(&copied), spins);
                                if (!ready)
                                        break;
                                quick_taken<N>(&q, quick_last(MODE));
                                direct_next(&d, &copied);
                        }
                }
        } while (more);
        return ready || direct_left(s, pushed.n, reduced.n, copied.n);
}

/* The same of a request with a root. The step that a rank does not take has been taken from the beginning. */
template <uint32_t N, bool INLINE>
DEVICE_OUTLINE bool direct_run_root(struct worker_shared *s, const struct task *task, uint32_t ring_sequence,
                                    uint32_t first, uint32_t step, uint32_t cache, uint32_t spins, bool resumed) {
        SHARED_POINTER(s);
        const uint32_t mode = task->quick, root = task->root;
        struct direct_cursor pushed, ended;
        bool more, ready = true;
        struct direct d;
        struct quick q;

        direct_init<INLINE>(s, task, ring_sequence, first, step, cache, resumed, &d, &q);
        direct_begin(&d, resumed ? task->part[0] : first - 1, &pushed);
        direct_begin(&d, resumed ? task->part[1] : first - 1, &ended);
        if (!quick_root_pushes(mode, q.me == root))
                pushed.round = d.parts;
        if (!quick_root_ends(mode, q.me == root))
                ended.round = ended.n = d.parts;
        do {
                const bool pushes = direct_part(&pushed) < d.parts, ends = direct_part(&ended) < d.parts;

                more = pushes || ends;
                if (pushes && pushed.n <= ended.n + d.lanes) {
                        direct_aim(&q, &pushed);
                        ready = mode == QUICK_BROADCAST
                                        ? direct_push_any<N, QUICK_BROADCAST, INLINE>(q, direct_part(&pushed), spins)
                                        : quick_root_push<N, INLINE>(&q, root, direct_part(&pushed), spins);
                        if (!ready)
                                break;
                        direct_next(&d, &pushed);
                }
                if (ends && (!pushes || pushed.n > ended.n + d.lanes)) {
                        direct_aim(&q, &ended);
                        ready = mode == QUICK_BROADCAST
                                        ? quick_root_copy<N, INLINE>(&q, root, direct_part(&ended), spins)
                                        : direct_reduce<N, QUICK_REDUCE, INLINE>(&q, direct_part(&ended), spins);
                        if (!ready)
                                break;
                        quick_root_taken<N>(&q, mode, root);
                        direct_next(&d, &ended);
                }
        } while (more);
        return ready || direct_left(s, pushed.n, ended.n, ended.n);
}

template <bool INLINE>
DEVICE bool direct_run_roots(struct worker_shared *s, const struct task *task, uint32_t ring_sequence, uint32_t first,
                             uint32_t step, uint32_t cache, uint32_t spins, bool resumed) {
        const uint32_t n = s->rank.n_ranks;

        if (n == 8)
                return direct_run_root<8, INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
        if (n == 4)
                return direct_run_root<4, INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
        return direct_run_root<2, INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
}

template <uint32_t MODE, bool INLINE>
DEVICE bool direct_run_ranks(struct worker_shared *s, const struct task *task, uint32_t ring_sequence, uint32_t first,
                             uint32_t step, uint32_t cache, uint32_t spins, bool resumed) {
        const uint32_t n = s->rank.n_ranks;

        if (n == 8)
                return direct_run_mode<8, MODE, INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
        if (n == 4)
                return direct_run_mode<4, MODE, INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
        return direct_run_mode<2, MODE, INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
}

template <bool INLINE>
DEVICE bool direct_run_inline(struct worker_shared *s, const struct task *task, uint32_t ring_sequence, uint32_t first,
                              uint32_t step, uint32_t cache, uint32_t spins, bool resumed) {
        const uint32_t mode = task->quick;

        if (mode == QUICK_ONE_SHOT)
                return direct_run_ranks<QUICK_ONE_SHOT, INLINE>(s, task, ring_sequence, first, step, cache, spins,
                                                                resumed);
        if (mode == QUICK_TWO_SHOT)
                return direct_run_ranks<QUICK_TWO_SHOT, INLINE>(s, task, ring_sequence, first, step, cache, spins,
                                                                resumed);
        if (mode == QUICK_REDUCE_SCATTER)
                return direct_run_ranks<QUICK_REDUCE_SCATTER, INLINE>(s, task, ring_sequence, first, step, cache, spins,
                                                                      resumed);
        if (mode == QUICK_ALL_GATHER)
                return direct_run_ranks<QUICK_ALL_GATHER, INLINE>(s, task, ring_sequence, first, step, cache, spins,
                                                                  resumed);
        if (quick_rooted(mode))
                return direct_run_roots<INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
        return direct_run_ranks<QUICK_ALL_TO_ALL, INLINE>(s, task, ring_sequence, first, step, cache, spins, resumed);
}

DEVICE bool direct_run(struct worker_shared *s, const struct task *task, uint32_t ring_sequence, uint32_t first,
                       uint32_t step, uint32_t cache, uint32_t spins, bool resumed) {
        return task->inlined ? direct_run_inline<true>(s, task, ring_sequence, first, step, cache, spins, resumed)
                             : direct_run_inline<false>(s, task, ring_sequence, first, step, cache, spins, resumed);
}

/* A task goes on. */
DEVICE bool direct_resume(struct worker_shared *s, struct task *t, uint32_t spins) {
        if (direct_run(s, t, t->ring_sequence, t->lane, 1, t->cache, spins, true))
                return true;
        if (warp_thread() == 0) {
                for (uint32_t f = 0; f < 3; f++)
                        t->part[f] = t->lane - 1 + STAGING_DATA_LANES * s->left.n[f];
        }
        warp_sync();
        return false;
}

/* Parts that lane number i of a direct run has done, of n in all. */
DEVICE uint32_t direct_done(const struct direct *d, uint32_t n, uint32_t i) {
        return n > i ? 1 + (n - 1 - i) / d->lanes : 0;
}
