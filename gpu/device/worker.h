/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A worker's loop: look for lines, take them, work on tasks; until told to stop.
 *
 * Polling. The warp looks at the next line of the ring that spoke last, at the first cell of other rings' next lines,
 * and at the table's version and stop word, all with one load per thread, so a poll costs one access to memory.
 *
 * Order. Tasks of one rank and lane run in the order of their lines. Tasks of different ranks do not wait for each
 * other: one that is not ready is put aside. So ranks may ring two communicators in different orders.
 *
 * A worker may miss lines: a lane with no share in a request is not waited for, and the line may be overwritten before
 * it looks. It then goes on with what is there.
 */
#include "gpu/device/direct.h"

/* ---- counters ------------------------------------------------------------------------------------------------------
 */
/* Writes cached counters back. */
DEVICE void counter_flush(struct counter_cache *c) {
        struct lane_state *home = (struct lane_state *)c->home;

        if (!home)
                return;
        ROLLED
        for (uint32_t region = 0; region < STAGING_REGIONS; region++)
                for (uint32_t p = warp_thread(); p < c->n_ranks; p += WARP_THREADS) {
                        home->pushed[c->transport][region][p] = c->pushed[region][p];
                        home->taken[c->transport][region][p] = c->taken[region][p];
                }
        warp_sync();
        if (warp_thread() == 0)
                c->home = 0;
        warp_sync();
}

DEVICE void counter_flush_all(const struct worker *w) {
        for (uint32_t i = 0; i < WORKER_COUNTERS; i++)
                counter_flush(&shared_of(w)->counter[i]);
}

/* Another task is about to use this cache. */
DEVICE_OUTLINE void counter_fetch(const struct worker *w, struct counter_cache *c, uint64_t at, uint32_t transport) {
        SHARED_POINTER(w);
        SHARED_POINTER(c);
        const struct lane_state *home = (const struct lane_state *)at;
        const uint32_t n = shared_of(w)->rank.n_ranks;

        counter_flush(c);
        ROLLED
        for (uint32_t region = 0; region < STAGING_REGIONS; region++)
                for (uint32_t p = warp_thread(); p < n; p += WARP_THREADS) {
                        c->pushed[region][p] = home->pushed[transport][region][p];
                        c->taken[region][p] = home->taken[transport][region][p];
                        c->room[region][p] = c->pushed[region][p] - STAGING_SLOTS; /* look when needed */
                }
        warp_sync();
        if (warp_thread() == 0) {
                c->home = at;
                c->transport = transport;
                c->n_ranks = n;
        }
        warp_sync();
}

/* The task's counters. The cached rank is the task's. Counters of one lane are never in two caches: a worker has a lane
 * in the same one always, and one transport of it at a time. */
DEVICE struct counter_cache *counter_of(const struct worker *w, const struct task *t) {
        struct counter_cache *c = &shared_of(w)->counter[t->cache];
        uint64_t at = (uint64_t)((struct lane_state *)shared_of(w)->rank.states + t->lane);

        if (c->home != at || c->transport != t->transport)
                counter_fetch(w, c, at, t->transport);
        return c;
}

/* ---- running
 * --------------------------------------------------------------------------------------------------------- */
/* Works on a task until it is finished (true) or waits for somebody. */
template <uint32_t N, uint32_t ACCESS>
DEVICE_OUTLINE bool task_run_n(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        struct run r = {t, s, c, N ? N : s->rank.n_ranks, s->rank.rank, t->lane, warp_thread(), spins};
        const uint32_t n_phases = s->plan.n_phases;

        for (;;) {
                bool moved = false, left = false;

                for (uint32_t f = 0; f < n_phases; f++) {
                        const struct plan_phase *phase = &s->plan.phases[f];

                        while (t->part[f] < t->parts[f]) {
                                uint32_t part = t->part[f];

                                if (phase->after >= 0 && t->parts[phase->after] && t->part[phase->after] <= part)
                                        break;
                                if (!phase_run<N, ACCESS>(&r, f, part))
                                        break;
                                moved = true;
                                warp_sync();
                                if (r.thread == 0)
                                        t->part[f] = part + STAGING_DATA_LANES;
                                warp_sync();
                        }
                        left = left || t->part[f] < t->parts[f];
                }
                if (!left)
                        return true;
                if (!moved)
                        return false;
        }
}

template <uint32_t ACCESS>
DEVICE bool task_run_access(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins) {
        switch (s->rank.n_ranks) {
        case 2:
                return task_run_n<2, ACCESS>(s, c, t, spins);
        case 4:
                return task_run_n<4, ACCESS>(s, c, t, spins);
        case 8:
                return task_run_n<8, ACCESS>(s, c, t, spins);
        default:
                return task_run_n<0, ACCESS_ANY>(s, c, t, spins);
        }
}

/* Lane 0. False: not all have told yet. *ret_status: RMX_OK, or the mismatch. */
DEVICE_OUTLINE bool task_check(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins,
                               uint32_t *ret_status) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        struct run r = {t, s, c, s->rank.n_ranks, s->rank.rank, 0, warp_thread(), spins};
        struct lane_state *state = (struct lane_state *)s->rank.states;
        const uint32_t broken = state->broken;
        uint32_t differs = r.n;

        /* After a mismatch chunks may be out of step. Until the control thread aborts the rank, its peers must not take
         * what it makes of them for results: it tells what nobody calls. */
        warp_sync();
        if (broken && r.thread == 0)
                t->call = ~UINT64_C(0);
        warp_sync();
        if (!t->part[0] && t->parts[0]) {
                if (!check_send(&r))
                        return false;
                warp_sync();
                if (r.thread == 0)
                        t->part[0] = 1;
                warp_sync();
        }
        if (t->parts[1] && !check_compare(&r, &s->plan.phases[t->parts[2]], &differs))
                return false;
        *ret_status = broken ? broken : differs == r.n ? (uint32_t)RMX_OK : status_of(RMX_E_MISMATCH, (int32_t)differs);
        if (r.thread == 0)
                state->broken = *ret_status;
        warp_sync();
        return true;
}

/* The same where everybody sends to everybody. */
DEVICE_OUTLINE bool task_check_quick(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins,
                                     uint32_t *ret_status) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        struct lane_state *state = (struct lane_state *)s->rank.states;
        const uint32_t broken = state->broken;
        bool sent = t->part[0] != 0, done;

        done = quick_check(s, c, broken ? ~UINT64_C(0) : t->call, &sent, spins, ret_status);
        if (done && broken)
                *ret_status = broken;
        warp_sync();
        if (warp_thread() == 0) {
                t->part[0] = sent;
                if (done && *ret_status)
                        state->broken = *ret_status;
        }
        warp_sync();
        return done;
}

DEVICE bool task_run(struct worker *w, struct task *t) {
        /* Who has something else to do does not stand and wait: another task, or, of a long one, another phase. */
        const uint32_t spins = w->n_tasks > 1 || (!t->quick && t->parts[0] > STAGING_DATA_LANES) ? 2u : PHASE_SPINS;
        struct worker_shared *s = shared_of(w);
        struct counter_cache *c;
        uint32_t status = RMX_OK;
        bool finished;

        if (s->rank.index != t->rank)
                take_cache_rank(w, t->rank);
        take_cache_plan(w, t->plan);
        c = counter_of(w, t);
        if (s->rank.abort && (!s->rank.has_last || (!t->role && (int32_t)(t->sequence - s->rank.last) > 0))) {
                lane_done(t->area, t->ring_sequence, t->lane, s->rank.abort);
                return true;
        }
        if (t->lane == 0 || t->role) {
                if (!(t->role    ? p2p_work(s, c, t, spins, &status)
                      : t->quick ? task_check_quick(s, c, t, spins, &status)
                                 : task_check(s, c, t, spins, &status)))
                        return false;
                if (status)
                        report_status(w, t->rank, status);
                lane_done(t->area, t->ring_sequence, t->lane, status);
                return true;
        }
        if (t->quick)
                finished = direct_resume(s, t, spins);
        else if (t->access == ACCESS_INLINE)
                finished = task_run_access<ACCESS_INLINE>(s, c, t, spins);
        else if (t->access == ACCESS_WHOLE)
                finished = task_run_access<ACCESS_WHOLE>(s, c, t, spins);
        else
                finished = task_run_n<0, ACCESS_ANY>(s, c, t, spins);
        if (!finished)
                return false;
        if (!t->inlined)
                fence_release_device();
        warp_sync();
        lane_done(t->area, t->ring_sequence, t->lane, RMX_OK);
        if (t->lane == 1 && warp_thread() == 0) /* host memory: last, since a fence would wait for it */
                word_store(&w->report->rank[t->rank].finished, t->sequence);
        return true;
}

/* ---- the list of tasks
 * ------------------------------------------------------------------------------------------------- */
/* Puts a task that has been filled into `place` at the end of the list. */
DEVICE void list_append(struct worker *w, uint32_t place, const struct task *t) {
        warp_sync();
        if (warp_thread() == 0) {
                shared_of(w)->order[w->n_tasks] = (uint8_t)place;
                shared_of(w)->waiting[w->n_tasks] = task_name(t);
                w->taken |= UINT64_C(1) << place;
                w->n_tasks++;
        }
        warp_sync();
}

DEVICE void list_remove(struct worker *w, uint32_t i) {
        struct worker_shared *s = shared_of(w);

        warp_sync();
        if (warp_thread() == 0) {
                w->taken &= ~(UINT64_C(1) << s->order[i]);
                w->n_tasks--;
                for (uint32_t k = i; k < w->n_tasks; k++) {
                        s->order[k] = s->order[k + 1];
                        s->waiting[k] = s->waiting[k + 1];
                }
        }
        warp_sync();
}

/* Is an earlier task of the same name in the list? */
DEVICE bool list_behind(const struct worker *w, uint32_t i) {
        const uint32_t *waiting = shared_of(w)->waiting;
        bool behind = false;

        for (uint32_t k = warp_thread(); k < i; k += WARP_THREADS)
                behind = behind || waiting[k] == waiting[i];
        return warp_any(behind);
}

DEVICE void list_run(struct worker *w) {
        for (uint32_t i = 0; i < w->n_tasks;) {
                if (!list_behind(w, i) && task_run(w, worker_task(w, shared_of(w)->order[i])))
                        list_remove(w, i);
                else
                        i++;
        }
}

/* ---- lines
 * ------------------------------------------------------------------------------------------------------------- */
/* Every own lane that the client waits for gets the status. */
DEVICE void take_refuse(const struct worker *w, uint32_t ring, uint32_t ring_sequence, uint32_t lanes,
                        uint32_t status) {
        for (uint32_t lane = w->index; lane < lanes; lane += w->n_workers)
                lane_done(shared_of(w)->area[ring], ring_sequence, lane, status);
}

/* What a word of a line has to do with the memo that the line may be in. */
DEVICE uint32_t memo_mix(uint32_t i, uint32_t word) {
        return i < RING_W_SEQUENCE ? word >> 16 ^ word >> 8 ^ word : 0;
}

/* The memo that the line in shared memory may be in; *ret_fits: it is that line, but for its sequence. (The tables are
 * as they were.) */
DEVICE struct memo *memo_of(const struct worker *w, uint32_t ring, bool *ret_fits) {
        struct worker_shared *s = shared_of(w);
        uint32_t mix = ring;
        struct memo *m;
        bool same;

#if TARGET_HOST
        for (uint32_t i = 0; i < RING_WORDS; i++)
                mix ^= memo_mix(i, s->line[i]);
        m = &s->memo[(mix ^ mix >> 4) % WORKER_MEMOS];
        same = true;
        for (uint32_t i = 0; i < RING_WORDS; i++)
                same = same && (i == RING_W_SEQUENCE || m->line[i] == s->line[i]);
#else
        const uint32_t i = warp_thread() < RING_WORDS ? warp_thread() : RING_WORDS - 1, word = s->line[i];

        mix = warp_xor(memo_mix(warp_thread(), word)) ^ ring;
        m = &s->memo[(mix ^ mix >> 4) % WORKER_MEMOS];
        same = i == RING_W_SEQUENCE || m->line[i] == word;
#endif
        *ret_fits = warp_all(same && m->ring == ring);
        return m;
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
                if (warp_thread() == 0)
                        s->next[ring] = ring_sequence;
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
                m->parts = 0;
                for (uint32_t f = 0; f < TASK_PHASES; f++)
                        if (m->parts < k.parts[f])
                                m->parts = k.parts[f];
                m->ring = ring;
                m->lanes = k.lanes;
                /* Whose answer depends on more than the line is not kept. */
                if (line[RING_W_ARGUMENT] || s->rank.has_last)
                        m->line[RING_W_HEAD] = 0;
        }
        warp_sync();
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

/* The memo of the line in shared memory; NULL: it was answered. The rank is cached. */
DEVICE struct memo *take_memo(const struct worker *w, uint32_t ring, uint32_t ring_sequence) {
        struct memo *m;
        bool fits;

        m = memo_of(w, ring, &fits);
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
        for (uint32_t lane = first; lane < STAGING_LANES && (lane <= most || lane < m->lanes);
             lane += w->n_workers, cache++) {
                if (lane <= most && task_wants(&m->task, lane)) {
                        uint32_t place = first_bit(~w->taken);
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
                const uint32_t place = first_bit(~w->taken);
                struct task *t = worker_task(w, place);

                (void)task_assign(w, &m->task, ring_sequence, sequence, lane, cache + i, t);
                if (warp_thread() == 0) {
                        for (uint32_t f = 0; f < 3; f++)
                                t->part[f] = lane - 1 + STAGING_DATA_LANES * direct_done(&d, s->left.n[f], i);
                        t->progress[0] = lane == s->left.lane ? (uint8_t)s->left.done : 0;
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
                if (!direct_run(s, k, ring_sequence, first, w->n_workers, cache, PHASE_SPINS, false)) {
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

/* Lane 0 of such a request. With more lanes to serve it only tells, and compares later. */
DEVICE void direct_check(struct worker *w, const struct memo *m, uint32_t ring_sequence, uint32_t sequence) {
        struct worker_shared *s = shared_of(w);
        const uint64_t at = (uint64_t)(struct lane_state *)s->rank.states;
        struct lane_state *state = (struct lane_state *)s->rank.states;
        const uint64_t call = state->broken ? ~UINT64_C(0) : take_told(m->task.call, sequence);
        struct counter_cache *c = &s->counter[0];
        uint32_t status = RMX_OK;
        bool sent = false;

        if (c->home != at || c->transport != STAGING_PACKET)
                counter_fetch(w, c, at, STAGING_PACKET);
        if (quick_check(s, c, call, &sent, w->n_workers < m->parts ? 1 : PHASE_SPINS, &status)) {
                if (state->broken)
                        status = state->broken;
                warp_sync();
                if (status) {
                        if (warp_thread() == 0)
                                state->broken = status;
                        report_status(w, m->task.rank, status);
                }
                lane_done(m->task.area, ring_sequence, 0, status);
        } else {
                const uint32_t place = first_bit(~w->taken);
                struct task *t = worker_task(w, place);

                (void)task_assign(w, &m->task, ring_sequence, sequence, 0, 0, t);
                if (warp_thread() == 0)
                        t->part[0] = sent;
                list_append(w, place, t);
        }
}

/* May the own lanes be done without tasks? */
DEVICE bool direct_may(const struct worker *w, const struct memo *m) {
        return m->task.quick && !w->n_tasks && w->n_workers * WORKER_COUNTERS >= STAGING_LANES;
}

/* The rank is cached. */
DEVICE void take(struct worker *w, const struct memo *m, uint32_t ring, uint32_t ring_sequence, uint32_t sequence) {
        if (w->index == 0 && !m->task.role && !take_sequence(w, m, ring, ring_sequence, sequence))
                return;
        if (direct_may(w, m)) {
                if (w->index == 0)
                        direct_check(w, m, ring_sequence, sequence);
                direct_take(w, m, ring_sequence, sequence);
        } else {
                take_tasks(w, m, ring_sequence, sequence, w->index, 0);
        }
}

/* Lanes that one worker may have to take at once. */
DEVICE uint32_t worker_lanes(const struct worker *w) {
        return (STAGING_LANES + w->n_workers - 1) / w->n_workers;
}

/* ---- polling
 * ------------------------------------------------------------------------------------------------------------ */
DEVICE_OUTLINE void worker_refresh(struct worker *w, uint32_t version) {
        struct worker_shared *s = shared_of(w);

        uint32_t n_rings;

        SHARED_POINTER(w);
        counter_flush_all(w);
        n_rings = word_load(&w->table->n_rings);
        warp_sync();
        if (warp_thread() == 0) {
                w->memo = NULL;
                w->version = version;
                w->n_rings = n_rings < TABLE_RINGS ? n_rings : TABLE_RINGS;
                s->limited = 0;
        }
        warp_sync();
        for (uint32_t i = warp_thread(); i < TABLE_RINGS; i += WARP_THREADS) {
                const struct table_ring *ring = &w->table->rings[i];
                uint32_t key = i < w->n_rings ? word_load(&ring->key) : 0;

                if (key != s->key[i]) {
                        s->key[i] = key;
                        s->next[i] = word_load(&ring->first);
                }
                s->area[i] = key ? cell_load(&ring->area) : 0;
                if (key && word_load(&ring->limited))
                        s->limited = 1; /* whoever stores, stores the same */
        }
        if (warp_thread() == 0) {
                s->rank.index = TABLE_RANKS;
                s->cached_plan = 0;
                s->cached_choices = ~0u;
                for (uint32_t i = 0; i < WORKER_BUFFERS; i++)
                        s->buffer[i].id = 0;
                for (uint32_t i = 0; i < WORKER_MEMOS; i++)
                        s->memo[i].line[RING_W_HEAD] = 0;
        }
        warp_sync();
}

/* How far this worker has come in rings that are limited. */
DEVICE void worker_level(const struct worker *w) {
        for (uint32_t i = warp_thread(); i < w->n_rings; i += WARP_THREADS) {
                uint32_t n = 0;

                if (!word_load(&w->table->rings[i].limited))
                        continue;
                for (uint32_t k = 0; k < w->n_tasks; k++) {
                        const struct task *t = worker_task(w, shared_of(w)->order[k]);

                        n += t->ring == i && word_load(&w->table->ranks[t->rank].held);
                }
                cell_store(&w->report->level[w->index][i], (uint64_t)n << 32 | shared_of(w)->next[i]);
        }
}

/* Is the ring's next line one that is to stay? Then it is not looked at either, until the tables change: other rings
 * have their turn. */
DEVICE bool worker_limit(struct worker *w, uint32_t ring) {
        const struct table_ring *from = &w->table->rings[ring];

        if (!word_load(&from->limited) || (int32_t)(shared_of(w)->next[ring] - word_load(&from->limit)) < 0)
                return false;
        warp_sync();
        if (warp_thread() == 0)
                shared_of(w)->area[ring] = 0;
        warp_sync();
        return true;
}

/* Tasks whose rank has been aborted or taken out, or whose memory has been, are answered; then nothing of what the old
 * tables named is touched. */
DEVICE_OUTLINE void worker_acknowledge(struct worker *w) {
        SHARED_POINTER(w);
        for (uint32_t i = 0; i < w->n_tasks;) {
                const struct task *t = worker_task(w, shared_of(w)->order[i]);
                const struct table_rank *rank = &w->table->ranks[t->rank];
                uint32_t abort = word_load(&rank->abort);

                if (word_load(&rank->has_last) && (t->role || (int32_t)(t->sequence - word_load(&rank->last)) <= 0))
                        abort = 0;

                if (!abort && shared_of(w)->area[t->ring] == t->area &&
                    (take_buffer_gone(w, t->ring, t->in_buffer) || take_buffer_gone(w, t->ring, t->out_buffer))) {
                        abort = status_of(RMX_E_INVALID, -1);
                        report_status(w, t->rank, abort); /* the ranks are out of step from here on */
                }
                if (shared_of(w)->area[t->ring] != t->area) { /* nobody is left to be told */
                        list_remove(w, i);
                } else if (abort) {
                        lane_done(t->area, t->ring_sequence, t->lane, abort);
                        list_remove(w, i);
                } else {
                        i++;
                }
        }
        if (shared_of(w)->limited)
                worker_level(w);
        fence_release_system();
        warp_sync();
        if (warp_thread() == 0)
                word_store(&w->report->acknowledged[w->index], w->version);
}

DEVICE void worker_update(struct worker *w, uint32_t version) {
        worker_refresh(w, version);
        worker_acknowledge(w);
}

/* What can be seen of other rings is looked at in turns, by the threads that the line and the control words leave. */
#define POLL_OTHERS (WARP_THREADS - RING_WORDS - 1)

#if TARGET_HOST
/* One look. True: shared->line holds the next line of *ret_ring. */
DEVICE bool worker_poll(struct worker *w, uint32_t *ret_ring, uint32_t round) {
        struct worker_shared *s = shared_of(w);
        uint32_t ring = s->hot;
        uint64_t control = cell_load((const uint64_t *)(const void *)&w->table->version);
        bool whole = true, newer = true;
        const uint64_t *cells;
        uint32_t next;

        if (ring >= w->n_rings || !s->area[ring])
                ring = TABLE_RINGS;
        next = ring < TABLE_RINGS ? s->next[ring] : 0;
        cells = ring < TABLE_RINGS
                        ? (const uint64_t *)(s->area[ring] + BELL_OFFSET_LINES) + (next % BELL_DEPTH) * RING_WORDS
                        : NULL;
        for (uint32_t i = 0; cells && i < RING_WORDS; i++) {
                uint64_t cell = cell_load(cells + i);

                whole = whole && (uint32_t)(cell >> 32) == next;
                newer = newer && (int32_t)((uint32_t)(cell >> 32) - next) > 0;
                s->line[i] = (uint32_t)cell;
        }
        if (w->n_rings && (!whole || !cells)) {
                const uint32_t i = round % w->n_rings;

                if (s->area[i] && (uint32_t)(cell_load((const uint64_t *)(s->area[i] + BELL_OFFSET_LINES) +
                                                       (s->next[i] % BELL_DEPTH) * RING_WORDS) >>
                                             32) == s->next[i])
                        s->hot = i;
        }
        w->stop = (uint32_t)(control >> 32);
        if ((uint32_t)control != w->version) {
                worker_update(w, (uint32_t)control);
                return false; /* what was read may be of a ring that has gone */
        }
        if (!cells)
                return false;
        *ret_ring = ring;
        if (!whole && newer) /* overwritten: it was not for this worker, or its client does not mind */
                s->next[ring] = bell_sequence_next(next);
        return whole;
}
#else
/* What a thread looks at: a cell of the next line of the ring that spoke last, the table's control words, or the first
 * cell of the next line of another ring. */
struct gaze {
        const uint64_t *at;
        uint32_t ring;   /* TABLE_RINGS: the control words */
        uint32_t expect; /* the sequence to come; control words: the version */
        uint32_t word;   /* of the line that is probably next */
};

DEVICE void gaze_aim(const struct worker *w, uint32_t round, struct gaze *g) {
        const struct worker_shared *s = shared_of(w);
        const uint32_t t = warp_thread(), hot = s->hot;
        const bool aimed = hot < w->n_rings && s->area[hot];

        g->ring = t < RING_WORDS && aimed ? hot : TABLE_RINGS;
        g->word = t < RING_WORDS && w->memo ? w->memo->line[t] : 0;
        if (t > RING_WORDS && (w->n_rings > 1 || !aimed)) {
                const uint32_t turns = (w->n_rings + POLL_OTHERS - 1) / POLL_OTHERS;
                const uint32_t i = (turns > 1 ? round % turns * POLL_OTHERS : 0) + t - RING_WORDS - 1;

                if (i < w->n_rings && (i != hot || !aimed) && s->area[i])
                        g->ring = i;
        }
        if (g->ring < TABLE_RINGS) {
                g->expect = s->next[g->ring];
                g->at = (const uint64_t *)(s->area[g->ring] + BELL_OFFSET_LINES) +
                        (g->expect % BELL_DEPTH) * RING_WORDS + (t < RING_WORDS ? t : 0);
        } else {
                g->expect = w->version;
                g->at = (const uint64_t *)(const void *)&w->table->version;
        }
}

/* Something has happened: what? True: there is a line of *ret_ring. It is w->memo's (*ret_known), or else lies in
 * shared memory. */
DEVICE bool worker_poll(struct worker *w, const struct gaze *g, uint64_t cell, uint32_t *ret_ring,
                        uint32_t *ret_sequence, bool *ret_known) {
        struct worker_shared *s = shared_of(w);
        const uint32_t t = warp_thread(), low = (uint32_t)cell, high = (uint32_t)(cell >> 32);
        const bool looks = g->ring < TABLE_RINGS, same = looks || (low == g->expect && high == 0);
        uint64_t others, late;
        bool whole, newer;

        *ret_ring = s->hot;
        *ret_sequence = warp_read(low, RING_W_SEQUENCE);
        *ret_known = warp_all(t < RING_WORDS ? looks && high == g->expect && (low == g->word || t == RING_W_SEQUENCE)
                                             : same) &&
                     w->memo && w->memo->ring == s->hot;
        if (*ret_known)
                return true;
        if (!warp_all(same)) {
                const uint32_t stop = warp_read(high, RING_WORDS), version = warp_read(low, RING_WORDS);

                warp_sync();
                if (t == 0)
                        w->stop = stop;
                warp_sync();
                if (version != w->version) {
                        worker_update(w, version);
                        return false; /* what was read may be of a ring that has gone */
                }
        }
        whole = warp_all(t >= RING_WORDS || (looks && high == g->expect));
        newer = warp_all(t >= RING_WORDS || (looks && (int32_t)(high - g->expect) > 0));
        others = warp_ballot(t > RING_WORDS && looks && high == g->expect);
        late = warp_ballot(t > RING_WORDS && looks && (int32_t)(high - g->expect) > 0);
        warp_sync();
        if (whole) {
                if (t < RING_WORDS)
                        s->line[t] = low;
        } else if (newer) { /* overwritten: it was not for this worker, or its client does not mind */
                if (t == 0)
                        s->next[g->ring] = bell_sequence_next(g->expect);
        } else if (others || late) { /* of another ring; what is late is skipped by looking at it as a whole */
                const uint32_t found = warp_read(g->ring, first_bit(others ? others : late));

                if (t == 0)
                        s->hot = found;
        }
        warp_sync();
        return whole;
}
#endif

/* ---- the loop
 * ----------------------------------------------------------------------------------------------------------- */
DEVICE_OUTLINE void worker_restore(struct worker *w) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        struct worker_scratch *from = w->scratch;
        bool saved = from->saved;

        for (uint32_t i = warp_thread(); i < TABLE_RINGS; i += WARP_THREADS) {
                s->next[i] = saved ? from->next[i] : 0;
                s->key[i] = saved ? from->key[i] : 0;
                s->area[i] = 0;
        }
        for (uint32_t i = warp_thread(); i < TASK_MAX; i += WARP_THREADS) {
                s->waiting[i] = from->waiting[i];
                s->order[i] = from->order[i];
        }
        for (uint32_t place = 0; place < TASK_NEAR; place++)
                for (uint32_t i = warp_thread(); i < sizeof(struct task) / 4; i += WARP_THREADS)
                        ((uint32_t *)(void *)&s->near[place])[i] =
                                ((const uint32_t *)(const void *)&from->tasks[place])[i];
        if (warp_thread() == 0) {
                w->n_tasks = saved ? from->n_tasks : 0;
                w->taken = saved ? from->taken : 0;
                for (uint32_t i = 0; i < WORKER_COUNTERS; i++)
                        s->counter[i].home = 0;
                for (uint32_t i = 0; i < WORKER_MEMOS; i++)
                        s->memo[i].line[RING_W_HEAD] = 0;
                s->rank.index = TABLE_RANKS;
                s->rank.n_ranks = 0;
                s->layout.n_ranks = 0;
                s->cached_plan = 0;
                s->cached_choices = ~0u;
                s->hot = 0;
                for (uint32_t i = 0; i < WORKER_BUFFERS; i++)
                        s->buffer[i].id = 0;
        }
        warp_sync();
}

DEVICE_OUTLINE void worker_save(struct worker *w) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        struct worker_scratch *to = w->scratch;

        counter_flush_all(w);
        for (uint32_t i = warp_thread(); i < TABLE_RINGS; i += WARP_THREADS) {
                to->next[i] = s->next[i];
                to->key[i] = s->key[i];
        }
        for (uint32_t i = warp_thread(); i < TASK_MAX; i += WARP_THREADS) {
                to->waiting[i] = s->waiting[i];
                to->order[i] = s->order[i];
        }
        for (uint32_t place = 0; place < TASK_NEAR; place++)
                for (uint32_t i = warp_thread(); i < sizeof(struct task) / 4; i += WARP_THREADS)
                        ((uint32_t *)(void *)&to->tasks[place])[i] =
                                ((const uint32_t *)(const void *)&s->near[place])[i];
        if (warp_thread() == 0) {
                to->n_tasks = w->n_tasks;
                to->taken = w->taken;
                to->saved = 1;
                word_store(&w->report->kept[w->index], w->n_tasks);
        }
        warp_sync();
}

/* A line of the ring has come. */
DEVICE_OUTLINE void worker_serve(struct worker *w, uint32_t ring, uint32_t sequence, bool known) {
        SHARED_POINTER(w);
        struct worker_shared *s = shared_of(w);
        const uint32_t ring_sequence = s->next[ring];
        struct memo *m = w->memo;

        warp_sync();
        if (warp_thread() == 0)
                s->next[ring] = bell_sequence_next(ring_sequence);
        warp_sync();
        if (!known) {
                m = take_memo(w, ring, ring_sequence);
                warp_sync();
                if (warp_thread() == 0)
                        w->memo = m;
                warp_sync();
        } else if (s->rank.index != m->task.rank) {
                take_cache_rank(w, m->task.rank);
        }
        if (m)
                take(w, m, ring, ring_sequence, sequence);
}

DEVICE_OUTLINE void worker_tasks(struct worker *w) {
        SHARED_POINTER(w);
        list_run(w);
}

DEVICE void worker_main(struct worker_shared *shared, struct worker_scratch *scratch, struct table *table,
                        struct table_report *report, uint32_t index, uint32_t n_workers) {
        struct worker *w = &shared->w;
        uint32_t lanes;

        if (warp_thread() == 0) {
                w->scratch = scratch;
                w->table = table;
                w->report = report;
                w->index = index;
                w->n_workers = n_workers;
                w->stop = 0;
                w->memo = NULL;
        }
        warp_sync();
        worker_restore(w);
        worker_update(w, word_load(&table->version));
        lanes = worker_lanes(w);
        for (uint32_t round = 0;; round++) {
                uint32_t ring, sequence = 0;
                bool known = false, found;

#if TARGET_HOST
                found = worker_poll(w, &ring, round);
                sequence = shared->line[RING_W_SEQUENCE];
#else
                struct gaze g;
                uint64_t cell;

                gaze_aim(w, round, &g);
                for (;;) { /* nothing happens most of the time */
                        cell = cell_load(g.at);
                        if (!warp_all(g.ring < TABLE_RINGS ? (int32_t)((uint32_t)(cell >> 32) - g.expect) < 0
                                                           : cell == g.expect) ||
                            w->n_tasks || ++round % 1024 == 0)
                                break;
#if TARGET_AMD /* 64 cycles; NVIDIA's shortest pause is longer than a look */
                        poll_pause();
#endif
                }
                found = worker_poll(w, &g, cell, &ring, &sequence, &known);
#endif
                if (w->stop)
                        break; /* tasks that wait are kept; the next kernel goes on with them */
                /* Without places for all its lanes the line stays where it is. */
                if (found && !(shared->limited && worker_limit(w, ring)) && w->n_tasks + lanes <= TASK_MAX)
                        worker_serve(w, ring, sequence, known);
                if (w->n_tasks)
                        worker_tasks(w);
#if TARGET_HOST
                else if (!found)
                        poll_pause();
#endif
        }
        worker_save(w);
}
