/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * One task: its counters are fetched, its plan's phases are run as far as they go, or lane 0's words are compared; then
 * the bell is told, or the task waits for another turn.
 */
#include "gpu/device/direct.h"
#include "gpu/device/pairs.h"
#include "gpu/device/quick_check.h"

/* ---- counters ------------------------------------------------------------------------------------------------------
 */
/* Where the counters of a lane's channels of a region are; NULL: there are no such channels. at: the lane's state. */
DEVICE struct channel_state *counter_home(uint64_t at, uint32_t transport, uint32_t region, uint32_t lane) {
        struct lane_states *state = (struct lane_states *)(at - lane * sizeof(struct lane_state));

        return staging_has(transport, region, lane) ? &state->channel[staging_channel(transport, region, lane)] : NULL;
}

/* Writes cached counters back. */
DEVICE void counter_flush(struct counter_cache *c) {
        if (!c->home)
                return;
        ROLLED
        for (uint32_t region = 0; region < STAGING_REGIONS; region++) {
                struct channel_state *home = counter_home(c->home, c->transport, region, c->lane);

                for (uint32_t p = warp_thread(); home && p < c->n_ranks; p += WARP_THREADS) {
                        home->pushed[p] = c->pushed[region][p];
                        home->taken[p] = c->taken[region][p];
                }
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
        const uint32_t n = shared_of(w)->rank.n_ranks;
        const uint32_t lane = (uint32_t)((at - shared_of(w)->rank.states) / sizeof(struct lane_state));

        counter_flush(c);
        ROLLED
        for (uint32_t region = 0; region < STAGING_REGIONS; region++) {
                const struct channel_state *home = counter_home(at, transport, region, lane);

                for (uint32_t p = warp_thread(); home && p < n; p += WARP_THREADS) {
                        c->pushed[region][p] = home->pushed[p];
                        c->taken[region][p] = home->taken[p];
                        c->room[region][p] = c->pushed[region][p] - WIRE_SLOTS; /* the most: look when needed */
                }
        }
        warp_sync();
        if (warp_thread() == 0) {
                c->home = at;
                c->transport = transport;
                c->lane = (uint16_t)lane;
                c->n_ranks = (uint16_t)n;
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
/*
 * Works on a task until it is finished (true) or waits for somebody. What is exchanged with other nodes may come about
 * as fast as it is taken, for seconds: then a worker that stayed with it would look neither at the tables nor at the
 * word that stops it, and whoever waits for that would take the kernel for broken, to the harm of all. So it looks up
 * now and then (TASK_PARTS_FAR). On one node the largest request takes milliseconds.
 */
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
                                        t->part[f] = part + t->spread;
                                warp_sync();
                                if (run_looks_up(&r, part, t->spread))
                                        break;
                        }
                        left = left || t->part[f] < t->parts[f];
                }
                if (!left)
                        return true;
                if (!moved || channel_far(s))
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

/* Also what has programs (task_fill). */
DEVICE_OUTLINE bool task_run_any(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        if (!pass_has(s))
                return task_run_n<0, ACCESS_ANY>(s, c, t, spins);
        pass_program(s, t->root);
        return pass_run(s, c, t, spins);
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

        if (pass_has(s)) {
                pass_program(s, t->root);
                return pass_check(s, c, t, spins, ret_status);
        }
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

/* The same of the usual requests. */
DEVICE_OUTLINE bool task_check_quick(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins,
                                     uint32_t *ret_status) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        struct lane_state *state = (struct lane_state *)s->rank.states;
        const uint32_t broken = state->broken;
        bool sent = t->part[0] != 0, done;

        done = quick_checks(s, c, t, broken ? ~UINT64_C(0) : t->call, &sent, spins, ret_status);
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

/* A send or receive has been begun, or has ended, for whoever asks what waits. */
DEVICE void pair_report(const struct worker *w, const struct task *t, uint32_t sequence, bool finished) {
        struct table_pair *pair = &table_pairs(w->report)->pair[t->rank][t->role == PLAN_ROLE_SENDER][t->peer];

        if (warp_thread() == 0)
                word_store(finished ? &pair->finished : &pair->rung, sequence);
}

DEVICE bool task_finish(const struct worker *w, const struct task *t) {
        if (!t->inlined)
                fence_release_device();
        warp_sync();
        lane_done(t->area, t->ring_sequence, t->lane, RMX_OK);
        if (t->lane == 1 && warp_thread() == 0) /* host memory: last, since a fence would wait for it */
                word_store(&w->report->rank[t->rank].finished, t->sequence);
        return true;
}

DEVICE bool task_run(struct worker *w, struct task *t) {
        /* Who has something else to do does not stand and wait: another task, or, of a long one, another phase. */
        const uint32_t spins = w->n_tasks > 1 || (!t->quick && t->parts[0] > t->spread) ? 2u : w->spins;
        struct worker_shared *s = shared_of(w);
        struct counter_cache *c;
        uint32_t status = RMX_OK;
        bool finished;

        if (s->rank.index != t->rank)
                take_cache_rank(w, t->rank);
        if (s->rank.abort && (!s->rank.has_last || (!t->role && (int32_t)(t->sequence - s->rank.last) > 0))) {
                reach_take_back(w, t);
                if (reach_keeps(w, t, s->rank.abort, !s->rank.has_last, s->rank.freeze))
                        return false;
                lane_done(t->area, t->ring_sequence, t->lane, s->rank.abort);
                if (t->role && t->lane == 0)
                        pair_report(w, t, t->sequence, true);
                return true;
        }
        take_cache_plan(w, t->plan);
        c = t->reach && t->burst && t->lane > 1 ? s->counter : counter_of(w, t); /* those push nothing yet */
        if (t->lane == 0 || t->role) {
                if (!(t->role    ? p2p_work(s, c, t, spins, &status)
                      : t->quick ? task_check_quick(s, c, t, spins, &status)
                                 : task_check(s, c, t, spins, &status)))
                        return false;
                if (status)
                        report_status(w, t->rank, status);
                lane_done(t->area, t->ring_sequence, t->lane, status);
                if (t->role && t->lane == 0)
                        pair_report(w, t, t->sequence, true);
                return true;
        }
        if (t->reach) {
                const uint32_t end = reach_run(s, c, t, spins, &status);

                if (status)
                        report_status(w, t->rank, status);
                if (end == REACH_WAITS)
                        return false;
                if (end == REACH_SPARED) {
                        lane_done(t->area, t->ring_sequence, t->lane, RMX_OK);
                        return true;
                }
                if (end == REACH_DONE) {
                        (void)task_finish(w, t);
                        reach_over(s, c, t);
                        return true;
                }
                c = counter_of(w, t);
        }
        if (t->quick)
                finished = direct_resume(s, t, spins);
        else if (t->access == ACCESS_INLINE)
                finished = task_run_access<ACCESS_INLINE>(s, c, t, spins);
        else if (t->access == ACCESS_WHOLE)
                finished = task_run_access<ACCESS_WHOLE>(s, c, t, spins);
        else
                finished = task_run_any(s, c, t, spins);
        return finished && task_finish(w, t);
}
