/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Plans over nodes: what ranks tell each other of what they have called, on lane 0.
 *
 * In a plan of one exchange everybody compares what was called with all of whom it has data. Here data passes through
 * the hands of others, and so does what is told. One phase after another a rank hears those whose chunks it takes
 * there, and then tells those to whom it sends some what it has called itself, or, once it has heard of a rank that has
 * called something else, who that is. So whatever a result is made of has been compared, nobody waits for more than its
 * data does, and other nodes are told once for each node and not once for each rank. There is one word for each phase
 * and pair, however many chunks there are, and phases come in the same order at both ends. Those that a rank both takes
 * from and sends to in one phase it tells first and hears last, or all would wait for each other: what comes from there
 * others have told it, or tell whom it concerns, by themselves.
 */
#include "gpu/device/pass.h"

/* What is told of a rank that has called something else; no call is like it (take_call). */
#define PASS_DIFFERS(rank) (~UINT64_C(0xff) | (rank))

DEVICE bool pass_tell(struct run *r, uint32_t mask, uint64_t word) {
        if (!pass_room(r, STAGING_REGION_CHECK, mask))
                return false;
        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        packet_store((struct quad *)r->s->view.to[p], word, r->s->view.to_flag[p]);
        run_pushed(r, STAGING_REGION_CHECK, mask);
        return true;
}

/* False: not all have told. *ret_differs: 1 + a rank that has called something else; else as it is. */
DEVICE bool pass_hear(struct run *r, uint32_t mask, uint32_t *ret_differs) {
        const struct peer_view *v = &r->s->view;
        uint32_t differs = 0;

        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        (void)run_from(r, STAGING_REGION_CHECK, p, false);
        warp_sync();
        if (!wait_packets(r, mask))
                return false;
        ROLLED
        for (uint32_t p = r->thread; warp_any(p < r->n); p += WARP_THREADS) {
                const uint64_t word = p < r->n && (mask >> p & 1)
                                              ? packet_payload(quad_load((const struct quad *)v->from[p]))
                                              : r->task->call;
                const uint32_t told = word >> 8 == PASS_DIFFERS(0) >> 8 && (word & 0xff) < r->n ? word & 0xff : p;
                const uint64_t who = warp_ballot(word != r->task->call);

                if (who && !differs)
                        differs = 1 + warp_read(told, first_bit(who));
        }
        run_taken(r, STAGING_REGION_CHECK, mask);
        if (differs)
                *ret_differs = differs;
        return true;
}

/* As task_check. part[0]: three for each phase that is done, and what is of the next; part[1]: 1 + who differs. The
 * program is cached. */
DEVICE_OUTLINE bool pass_check(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins,
                               uint32_t *ret_status) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        struct run r = {t, s, c, s->rank.n_ranks, s->rank.rank, 0, warp_thread(), spins};
        struct lane_state *state = (struct lane_state *)s->rank.states;
        const uint32_t broken = state->broken, end = 3 * s->plan.n_phases;
        uint32_t at = t->part[0], differs = t->part[1];

        for (; at < end; at++) {
                const struct program *program = &pass_entry(s, s->pass.program)->program;
                const uint32_t hear = word_load(&program->hear[at / 3]), tell = word_load(&program->tell[at / 3]);
                const uint32_t mask = at % 3 == 0 ? hear & ~tell : at % 3 == 1 ? tell : hear & tell;
                /* After a mismatch chunks may be out of step (task_check). */
                const uint64_t word = broken    ? PASS_DIFFERS(((broken >> 16) - 1) & 0xff)
                                      : differs ? PASS_DIFFERS(differs - 1)
                                                : t->call;

                if (mask && !(at % 3 == 1 ? pass_tell(&r, mask, word) : pass_hear(&r, mask, &differs)))
                        break;
        }
        warp_sync();
        if (r.thread == 0) {
                t->part[0] = at;
                t->part[1] = differs;
        }
        warp_sync();
        if (at < end)
                return false;
        *ret_status = broken ? broken : differs ? status_of(RMX_E_MISMATCH, (int32_t)differs - 1) : (uint32_t)RMX_OK;
        if (r.thread == 0)
                state->broken = *ret_status;
        warp_sync();
        return true;
}
