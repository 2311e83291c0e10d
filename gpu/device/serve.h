/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A line has come: it is known, or checked and remembered, and then goes straight to the steps of the usual requests,
 * or becomes tasks, one for each own lane that has a share in it.
 */
#include "gpu/device/list.h"
#include "gpu/device/memo.h"

/* Every own lane that the client waits for gets the status. */
DEVICE void take_refuse(const struct worker *w, uint32_t ring, uint32_t ring_sequence, uint32_t lanes,
                        uint32_t status) {
        for (uint32_t lane = w->index; lane < lanes; lane += w->n_workers)
                lane_done(shared_of(w)->area[ring], ring_sequence, lane, status);
}

/* shared->line holds a whole line of the ring. Checks it and fills the memo. False: it was answered. */
DEVICE_OUTLINE bool take_line(const struct worker *w, uint32_t ring, uint32_t ring_sequence, struct memo *m) {
        SHARED_POINTER(w);
        SHARED_POINTER(m);
        struct worker_shared *s = shared_of(w);
        const uint32_t *line = s->line;
        struct take k;
        uint32_t status;

        k.operation = line[RING_W_HEAD] >> 16 & 0xff;
        k.type = line[RING_W_HEAD] >> 8 & 0xff;
        k.redop = line[RING_W_HEAD] & 0xff;
        k.count = line_u64(line, RING_W_COUNT_LO);
        k.root = line[RING_W_PEER];
        k.lanes = line[RING_W_FLAGS] >> BELL_LANES_SHIFT;
        k.in = k.out = k.scalar = k.shard = k.vector = 0;
        k.elements = 0;
        k.inlined = 0;
        k.bytes = k.in_bytes = k.out_bytes = 0;
        k.plan = k.transport = k.element_bytes = k.status = 0;
        if (!k.lanes || k.lanes > BELL_LANES)
                k.lanes = BELL_LANES;
        if (s->rank.index == TABLE_RANKS || s->rank.ring != ring || s->rank.handle != line[RING_W_COMM]) {
                uint32_t index = take_find_rank(w, ring, line[RING_W_COMM]);

                if (index == TABLE_RANKS) {
                        take_refuse(w, ring, ring_sequence, k.lanes, status_of(RMX_E_INVALID, -1));
                        return false;
                }
                take_cache_rank(w, index);
        }
        if (s->rank.abort && (!s->rank.has_last ||
                              (!operation_p2p(k.operation) && (int32_t)(line[RING_W_SEQUENCE] - s->rank.last) > 0))) {
                take_refuse(w, ring, ring_sequence, k.lanes, s->rank.abort);
                return false;
        }
        status = line[RING_W_HEAD] >> 24 != RING_ABI ? (uint32_t)RMX_E_INVALID : take_check(w, ring, &k);
        if (!status)
                status = take_plan(w, &k);
        if (status == TAKE_LATER) {
                warp_sync();
                if (warp_thread() == 0) {
                        s->next[ring] = ring_sequence; /* as worker_full() */
                        s->full |= 1u << ring;
                }
                warp_sync();
                return false;
        }
        if (status) {
                status = status_of(status, (int32_t)s->rank.rank);
                report_status(w, s->rank.index, status);
                take_refuse(w, ring, ring_sequence, k.lanes, status);
                return false;
        }
        warp_sync();
        task_fill(w, &k, ring, &m->task);
        for (uint32_t i = warp_thread(); i < RING_WORDS; i += WARP_THREADS)
                m->line[i] = line[i];
        if (warp_thread() == 0) {
                m->parts = take_parts(&k);
                if (m->task.reach && m->parts > m->task.spread)
                        m->parts = m->task.spread;
                m->ring = ring;
                m->lanes = k.lanes;
                /* Whose answer depends on more than the line is not kept. */
                if (line[RING_W_ARGUMENT] || s->rank.has_last)
                        m->ring = TABLE_RINGS;
        }
        warp_sync();
        memo_keep(w, m);
        return true;
}

/* Lane 0 sees every request of a rank, so there its sequence is checked. False: it was answered. */
DEVICE bool take_sequence(const struct worker *w, const struct memo *m, uint32_t ring, uint32_t ring_sequence,
                          uint32_t sequence) {
        struct worker_shared *s = shared_of(w);
        struct lane_state *state = (struct lane_state *)s->rank.states;
        const bool right = sequence == state->sequence + 1;

        warp_sync();
        if (!right) {
                uint32_t status = status_of(RMX_E_INVALID, (int32_t)s->rank.rank);

                report_status(w, s->rank.index, status);
                take_refuse(w, ring, ring_sequence, m->lanes, status);
                return false;
        }
        if (warp_thread() == 0) {
                state->sequence = sequence;
                word_store(&w->report->rank[s->rank.index].operation, m->task.operation);
                word_store(&w->report->rank[s->rank.index].rung, sequence);
        }
        warp_sync();
        return true;
}

/* The memo of the line in shared memory; NULL: it was answered, or needs no answer. The rank is cached. */
DEVICE struct memo *take_memo(const struct worker *w, uint32_t ring, uint32_t ring_sequence) {
        const uint32_t i = warp_thread();
        struct memo *m;
        bool fits;

        if (shared_of(w)->line[RING_W_FLAGS] == BELL_FLAG_PASSED)
                return NULL;
        m = memo_of(w, ring, i < RING_WORDS ? shared_of(w)->line[i] : 0, &fits);
        if (!fits && !take_line(w, ring, ring_sequence, m))
                return NULL;
        if (shared_of(w)->rank.index != m->task.rank)
                take_cache_rank(w, m->task.rank);
        return m;
}

/* From the line to tasks, for lanes first, first + n_workers, .. */
DEVICE void take_tasks(struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t sequence,
                       uint32_t first, uint32_t cache) {
        const uint32_t most = m->parts;

        if (shared_of(w)->cached_plan != m->task.plan)
                take_cache_plan(w, m->task.plan);
        if (m->task.role && first == 0)
                pair_report(w, &m->task, sequence, false);
        for (uint32_t lane = first; lane < STAGING_LANES && (lane <= most || lane < m->lanes);
             lane += w->n_workers, cache++) {
                if (lane <= most && task_wants(&m->task, lane)) {
                        uint32_t place = list_place(w);
                        struct task *t = worker_task(w, place);

                        if (task_assign(w, &m->task, ring_sequence, sequence, lane, cache % WORKER_COUNTERS, t)) {
                                list_append(w, place, t);
                                continue;
                        }
                }
                if (lane < m->lanes)
                        lane_done(m->task.area, ring_sequence, lane, RMX_OK);
                if (lane == 1 && !m->task.role && warp_thread() == 0)
                        word_store(&w->report->rank[m->task.rank].finished, sequence);
        }
}

/* What a direct run left becomes tasks. */
DEVICE_OUTLINE void direct_defer(struct worker *w, const struct memo *m, uint32_t first, uint32_t cache,
                                 uint32_t ring_sequence, uint32_t sequence) {
        const struct worker_shared *s = shared_of(w);
        uint32_t lane = first;
        struct direct d;

        SHARED_POINTER(w);
        SHARED_POINTER(m);

        direct_lanes(m->task.parts[0], first, w->n_workers, &d);
        for (uint32_t i = 0; i < d.lanes; i++, lane += d.step) {
                const uint32_t place = list_place(w);
                struct task *t = worker_task(w, place);

                (void)task_assign(w, &m->task, ring_sequence, sequence, lane, cache + i, t);
                if (warp_thread() == 0) {
                        for (uint32_t f = 0; f < 3; f++)
                                t->part[f] = lane - 1 + STAGING_DATA_LANES * direct_done(&d, s->left.n[f], i);
                }
                list_append(w, place, t);
        }
        /* Lanes without work are further up. */
        for (lane += warp_thread() * d.step; lane < m->lanes; lane += WARP_THREADS * d.step)
                cell_store((uint64_t *)(m->task.area + BELL_OFFSET_DONE) + (ring_sequence % BELL_DEPTH) * BELL_LANES +
                                   lane,
                           ring_sequence);
}

/* All own lanes but 0 of a request that goes the quick way. There are no tasks. */
DEVICE void direct_take(struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t sequence) {
        struct worker_shared *s = shared_of(w);
        const struct task *k = &m->task;
        const uint32_t first = w->index ? w->index : w->n_workers, cache = w->index ? 0 : 1;
        const uint32_t all = k->parts[0] < STAGING_DATA_LANES ? k->parts[0] : STAGING_DATA_LANES;
        const uint64_t states = s->rank.states;

        if (first <= all) {
                for (uint32_t lane = first, i = cache; lane <= all; lane += w->n_workers, i++) {
                        uint64_t at = states + lane * sizeof(struct lane_state);
                        struct counter_cache *c = &s->counter[i];

                        if (c->home != at || c->transport != STAGING_PACKET)
                                counter_fetch(w, c, at, STAGING_PACKET);
                }
                if (!direct_run(s, k, ring_sequence, first, w->n_workers, cache, w->spins, false)) {
                        direct_defer(w, m, first, cache, ring_sequence, sequence);
                        return;
                }
                if (!k->inlined)
                        fence_release_device();
                warp_sync();
        }
        for (uint32_t lane = first + warp_thread() * w->n_workers; lane < m->lanes; lane += WARP_THREADS * w->n_workers)
                cell_store((uint64_t *)(k->area + BELL_OFFSET_DONE) + (ring_sequence % BELL_DEPTH) * BELL_LANES + lane,
                           ring_sequence);
        if (first == 1 && warp_thread() == 0)
                word_store(&w->report->rank[k->rank].finished, sequence);
}

/* The ranks have compared what they called. True: it was right. */
DEVICE bool direct_checked(struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t status) {
        struct lane_state *state = (struct lane_state *)shared_of(w)->rank.states;

        warp_sync();
        if (status) {
                if (warp_thread() == 0)
                        state->broken = status;
                report_status(w, m->task.rank, status);
        }
        lane_done(m->task.area, ring_sequence, 0, status);
        return !status;
}

/* Some have not told what they called. `sent`: this one has. */
DEVICE void direct_check_later(struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t sequence,
                               bool sent) {
        const uint32_t place = list_place(w);
        struct task *t = worker_task(w, place);

        (void)task_assign(w, &m->task, ring_sequence, sequence, 0, 0, t);
        if (warp_thread() == 0)
                t->part[0] = sent;
        list_append(w, place, t);
}

/* Lane 0 of such a request. With more lanes to serve it only tells, and compares later. */
DEVICE void direct_check(struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t sequence) {
        struct worker_shared *s = shared_of(w);
        const struct lane_state *state = (const struct lane_state *)s->rank.states;
        const uint32_t broken = state->broken;
        const uint64_t call = broken ? ~UINT64_C(0) : take_told(m->task.call, sequence);
        struct counter_cache *c = &s->counter[0];
        uint32_t status = RMX_OK;
        bool sent = false;

        if (c->home != s->rank.states || c->transport != STAGING_PACKET)
                counter_fetch(w, c, s->rank.states, STAGING_PACKET);
        if (quick_checks(s, c, &m->task, call, &sent, w->n_workers < m->parts ? 1 : w->spins, &status))
                (void)direct_checked(w, m, ring_sequence, broken ? broken : status);
        else
                direct_check_later(w, m, ring_sequence, sequence, sent);
}

/* May the own lanes be done without tasks? */
DEVICE bool direct_may(const struct worker *w, const struct memo *m) {
        return m->task.quick && !m->task.reach && w->n_workers * WORKER_COUNTERS >= STAGING_LANES &&
               (!w->n_tasks || !list_has(w, m->task.rank));
}

/* A request whose ranks ask each other whether they can reach, and of which this worker has one lane: what can be done
 * at once is, and only the rest becomes a task. */
DEVICE void reach_take(struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t sequence) {
        const uint32_t place = list_place(w);
        struct task *t = worker_task(w, place);
        uint32_t status = RMX_OK, end;

        (void)task_assign(w, &m->task, ring_sequence, sequence, w->index, 0, t);
        end = reach_run(shared_of(w), counter_of(w, t), t, w->spins, &status);
        if (status)
                report_status(w, t->rank, status);
        if (end == REACH_DONE) {
                (void)task_finish(w, t);
                reach_over(shared_of(w), counter_of(w, t), t);
        } else if (end == REACH_SPARED) {
                lane_done(t->area, t->ring_sequence, t->lane, RMX_OK);
        } else {
                list_append(w, place, t);
        }
}

DEVICE bool reach_may(const struct worker *w, const struct memo *m) {
        return m->task.reach && w->index && w->index <= m->parts && w->index < STAGING_LANES &&
               w->n_workers >= STAGING_LANES && !w->n_tasks;
}

/* The rank is cached. */
DEVICE void take(struct worker *w, const struct memo *m, uint32_t ring, uint32_t ring_sequence, uint32_t sequence) {
        if (w->index == 0 && !m->task.role && !take_sequence(w, m, ring, ring_sequence, sequence))
                return;
        if (direct_may(w, m)) {
                if (w->index == 0)
                        direct_check(w, m, ring_sequence, sequence);
                direct_take(w, m, ring_sequence, sequence);
        } else if (reach_may(w, m)) {
                reach_take(w, m, ring_sequence, sequence);
        } else {
                take_tasks(w, m, ring_sequence, sequence, w->index, 0);
        }
}

/* Lanes that one worker may have to take at once. */
DEVICE uint32_t worker_lanes(const struct worker *w) {
        return (STAGING_LANES + w->n_workers - 1) / w->n_workers;
}
