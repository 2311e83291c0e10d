/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Plans over nodes: the steps of a program (program.h), by packets.
 *
 * A phase goes through its steps one after another, part by part; where it is stands in the task. A step begins when it
 * has room and all packets of all its chunks have come, and then is done at once. (What it sends is seen packet by
 * packet, so if it were done packet by packet a result could come back, and in place take the place of an input, while
 * the step is still to be tried again.)
 *
 * Sums that go to other nodes, and a rank's own until those of the others have come, are accumulators: a payload of
 * eight bytes becomes one, two or four (reduce.h).
 *
 * Lane 0. In a plan of one exchange everybody compares what was called with all of whom it has data. Here data passes
 * through the hands of others, and so does what is told. One phase after another a rank hears those whose chunks it
 * takes there, and then tells those to whom it sends some what it has called itself, or, once it has heard of a rank
 * that has called something else, who that is. So whatever a result is made of has been compared, nobody waits for more
 * than its data does, and other nodes are told once for each node and not once for each rank. There is one word for
 * each phase and pair, however many chunks there are, and phases come in the same order at both ends. Those that a rank
 * both takes from and sends to in one phase it tells first and hears last, or all would wait for each other: what comes
 * from there others have told it, or tell whom it concerns, by themselves.
 *
 * All of it is apart from what communicators of one node run: functions of their own, that nothing is inlined from.
 */
#include "gpu/device/phase.h"

static_assert(PROGRAM_PHASES == TASK_PHASES && PROGRAM_SOURCES == STAGING_RANKS_MAX, "what a program has room for");

/* What is told of a rank that has called something else; no call is like it (take_call). */
#define PASS_DIFFERS(rank) (~UINT64_C(0xff) | (rank))

DEVICE bool pass_has(const struct worker_shared *s) {
        return s->pass.row != 0;
}

DEVICE const union program_entry *pass_entry(const struct worker_shared *s, uint32_t at) {
        return &s->w.table->programs[at % TABLE_PROGRAMS];
}

/* The program of the cached rank for a root; the plan is cached. */
DEVICE_OUTLINE void pass_program(struct worker_shared *s, uint32_t root) {
        SHARED_POINTER(s);
        const uint32_t name = s->rank.rank << 16 | (root + 1);
        const struct program_row *row;
        const uint32_t *from;
        uint32_t before, roots, at;

        if (s->pass.name == name)
                return;
        row = &s->w.table->rows[s->cached_plan % TABLE_PLANS];
        before = bit_count(cell_load(&row->here) & ((UINT64_C(1) << s->rank.rank) - 1));
        roots = word_load(&row->roots);
        at = s->pass.row + before * roots + (roots > 1 ? root : 0);
        from = (const uint32_t *)(const void *)pass_entry(s, at);
        warp_sync();
        for (uint32_t i = warp_thread(); i < sizeof(s->pass.phases) / 4; i += WARP_THREADS)
                ((uint32_t *)(void *)&s->pass.phases)[i] = word_load(from + i);
        if (warp_thread() == 0) {
                s->pass.name = name;
                s->pass.program = at;
        }
        warp_sync();
}

DEVICE void pass_cache_step(struct worker_shared *s, uint32_t step) {
        const uint32_t at = s->pass.row + step;
        const uint32_t *from = (const uint32_t *)(const void *)pass_entry(s, at);

        if (s->pass.at == at)
                return;
        warp_sync();
        for (uint32_t i = warp_thread(); i < sizeof(s->pass.step) / 4; i += WARP_THREADS)
                ((uint32_t *)(void *)&s->pass.step)[i] = word_load(from + i);
        if (warp_thread() == 0)
                s->pass.at = at;
        warp_sync();
}

/* The k-th source of the cached step, PROGRAM_OWN or a rank. left: those that come in the order of ranks; at first all.
 * Lists are read where they are: few communicators have nodes whose carriers are not in that order. */
DEVICE uint32_t pass_source(const struct run *r, uint32_t k, uint64_t *left) {
        const struct program_work *x = &r->s->pass.step;
        uint32_t p;

        if (x->flags & PROGRAM_LISTED) {
                const uint32_t *list = (const uint32_t *)(const void *)pass_entry(r->s, r->s->pass.at)->step.source;

                return word_load(list + k / 4) >> 8 * (k % 4) & 0xff;
        }
        p = first_bit(*left);
        *left &= *left - 1;
        return (x->flags & PROGRAM_INPUT) && p == r->me ? PROGRAM_OWN : p;
}

DEVICE uint64_t pass_sources(const struct run *r) {
        return r->s->pass.step.chunks | (uint64_t)((r->s->pass.step.flags & PROGRAM_INPUT) != 0) << r->me;
}

/* ---- channels ------------------------------------------------------------------------------------------------------
 */
/* Have all ranks of the mask room for a chunk? Also prepares view.to. */
DEVICE bool pass_room(const struct run *r, uint32_t region, uint64_t mask) {
        bool room = true;

        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        room = run_to(r, region, p) && room;
        room = warp_all(room);
        warp_sync();
        return room;
}

/* Prepares view.from. Have the chunks of other nodes come, as far as a word says so? */
DEVICE bool pass_arrived(const struct run *r, uint32_t region, uint64_t mask) {
        const uint64_t told = region == STAGING_REGION_CHECK ? 0 : channel_far(r->s);
        bool arrived = true;

        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        arrived = run_from(r, region, p, told >> p & 1) && arrived;
        arrived = warp_all(arrived);
        warp_sync();
        return arrived;
}

/* Have the first `n` packets of p's chunk come, as far as this thread reads them? */
DEVICE bool pass_come(const struct run *r, uint32_t p, uint32_t n) {
        const struct quad *from = (const struct quad *)r->s->view.from[p];
        const uint32_t flag = r->s->view.from_flag[p];
        bool come = true;

        ROLLED
        for (uint32_t base = r->thread; base < n; base += PHASE_PACKETS * WARP_THREADS) {
                struct quad packet[PHASE_PACKETS];

                UNROLL
                for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                        if (base + k * WARP_THREADS < n)
                                packet[k] = quad_load(from + base + k * WARP_THREADS);
                UNROLL
                for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                        if (base + k * WARP_THREADS < n)
                                come = come && packet_is(packet[k], flag);
        }
        return come;
}

/* Chunks of other nodes, which their words say are there: brought over the bus once, all of a thread's packets of a
 * batch in one trip (where there is a condition AMD's GPUs wait for one before they ask for the next), into the place
 * in the own staging that a rank of this node would push them to. The step reads them there, each packet perhaps
 * several times, and finds them when it is tried again. */
DEVICE_OUTLINE void pass_bring(struct run run, uint32_t region, uint64_t mask, uint32_t n) {
        const struct run *r = &run;
        struct worker_shared *s = r->s;

        ROLLED
        for (uint64_t left = mask; left; left &= left - 1) {
                const uint32_t p = first_bit(left), flag = s->view.from_flag[p];
                const struct quad *from = (const struct quad *)s->view.from[p];
                const uint64_t place = s->rank.peer[r->me] + staging_chunk(&s->layout, STAGING_PACKET, region, r->lane,
                                                                           (flag - 1) % STAGING_SLOTS, p);

                warp_sync();
                if (r->thread == 0)
                        s->view.from[p] = place;
                warp_sync();
                if (flag && pass_come(r, p, n)) /* 0 is the flag of what was never written, too */
                        continue;
                ROLLED
                for (uint32_t base = r->thread; base < n; base += PHASE_PACKETS * WARP_THREADS) {
                        struct quad packet[PHASE_PACKETS];

                        UNROLL
                        for (uint32_t k = 0; k < PHASE_PACKETS; k++) {
                                const uint32_t i = base + k * WARP_THREADS;

                                packet[k] = quad_load(from + (i < n ? i : base));
                        }
#if TARGET_AMD /* by here all have been asked for */
                        UNROLL
                        for (uint32_t k = 0; k < PHASE_PACKETS; k++) {
                                VALUE_FORGET(packet[k].y);
                                VALUE_FORGET(packet[k].w);
                        }
#endif
                        UNROLL
                        for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                                if (base + k * WARP_THREADS < n && packet_is(packet[k], flag))
                                        packet_store((struct quad *)place + base + k * WARP_THREADS,
                                                     packet_payload(packet[k]), flag);
                }
        }
        warp_sync(); /* what a thread has put down others read */
}

/* Is all there that the cached step reads, of a part of so many bytes? Of other nodes' chunks what pass_bring() has put
 * down: what it did not find although their word said so is there when the step is tried again. */
DEVICE_OUTLINE bool pass_ready(struct run run, uint64_t in, uint32_t bytes) {
        const struct run *r = &run;
        const struct program_work *x = &r->s->pass.step;
        const uint32_t units = (bytes + 7) / 8;
        const uint32_t widens = x->flags & PROGRAM_PARTIAL_IN ? reduce_widens(r->task->type, r->task->redop) : 0;
        bool ready = true;

        ROLLED
        for (uint32_t spins = 0; spins < r->spins; spins++) {
                uint64_t ignored;

                ready = true;
                ROLLED
                for (uint64_t left = x->chunks; left; left &= left - 1)
                        ready = pass_come(r, first_bit(left), units << widens) && ready;
                if ((x->flags & PROGRAM_INPUT) && r->task->inlined)
                        for (uint32_t u = r->thread; u < units; u += WARP_THREADS)
                                ready = unit_fetch<ACCESS_ANY>(r, in, u, bytes, &ignored) && ready;
                ready = warp_all(ready);
                if (ready)
                        break;
        }
        return ready;
}

/* Packet i of p's chunk, which has come. */
DEVICE uint64_t pass_packet(const struct run *r, uint32_t p, uint32_t i) {
        return packet_payload(quad_load((const struct quad *)r->s->view.from[p] + i));
}

DEVICE void pass_push(const struct run *r, uint32_t i, uint64_t payload) {
        const struct peer_view *v = &r->s->view;

        ROLLED
        for (uint64_t left = r->s->pass.step.targets; left; left &= left - 1) {
                const uint32_t p = first_bit(left);

                packet_store((struct quad *)v->to[p] + i, payload, v->to_flag[p]);
        }
}

/* ---- one step ------------------------------------------------------------------------------------------------------
 */
/* Nothing is combined: the only source, unit by unit. */
DEVICE_OUTLINE void pass_move(struct run run, uint64_t in, uint64_t out, uint32_t bytes) {
        const struct run *r = &run;
        const struct program_work *x = &r->s->pass.step;
        const bool own = x->flags & PROGRAM_INPUT, stays = own && in == out && !r->task->inlined;

        ROLLED
        for (uint32_t u = r->thread; u < (bytes + 7) / 8; u += WARP_THREADS) {
                uint64_t value = 0;

                if (own)
                        (void)unit_fetch<ACCESS_ANY>(r, in, u, bytes, &value);
                else
                        value = pass_packet(r, first_bit(x->chunks), u);
                if ((x->flags & PROGRAM_OUTPUT) && !stays)
                        unit_deliver<ACCESS_ANY>(r, out, u, bytes, value);
                pass_push(r, u, own ? unit_scale<ACCESS_ANY>(r, value) : value);
        }
}

/* Are these chunks of the step accumulators as they are? Others are elements: no accumulators, or as good as one. */
template <uint32_t TYPE> DEVICE bool pass_whole(const struct run *r, uint32_t flag) {
        return (r->s->pass.step.flags & flag) &&
               (reduce_accumulator<TYPE>::words == 1 || reduce_widens(TYPE, r->task->redop));
}

/* One source's contribution to unit u. */
template <uint32_t TYPE>
DEVICE void pass_contribution(const struct run *r, uint32_t source, uint32_t u, uint64_t in, uint32_t bytes,
                              reduce_accumulator<TYPE> *ret_a) {
        uint64_t payload = 0;

        if (source == PROGRAM_OWN) {
                (void)unit_fetch<ACCESS_ANY>(r, in, u, bytes, &payload);
                reduce_begin<TYPE>(*ret_a, r->task->redop, unit_scale<ACCESS_ANY>(r, payload));
        } else if (!pass_whole<TYPE>(r, PROGRAM_PARTIAL_IN)) {
                reduce_begin<TYPE>(*ret_a, r->task->redop, pass_packet(r, source, u));
        } else {
                UNROLL
                for (uint32_t i = 0; i < ret_a->words; i++)
                        reduce_partial_in<TYPE>(*ret_a, i, pass_packet(r, source, u * ret_a->words + i));
        }
}

template <uint32_t TYPE> DEVICE_OUTLINE void pass_fold(struct run run, uint64_t in, uint64_t out, uint32_t bytes) {
        const struct run *r = &run;
        const uint64_t sources = pass_sources(r);
        const uint32_t n = bit_count(sources), flags = r->s->pass.step.flags;
        const uint32_t redop = r->task->redop;

        ROLLED
        for (uint32_t u = r->thread; u < (bytes + 7) / 8; u += WARP_THREADS) {
                reduce_accumulator<TYPE> a, b;
                uint64_t left = sources;

                pass_contribution<TYPE>(r, pass_source(r, 0, &left), u, in, bytes, &a);
                ROLLED
                for (uint32_t k = 1; k < n; k++) {
                        pass_contribution<TYPE>(r, pass_source(r, k, &left), u, in, bytes, &b);
                        reduce_merge<TYPE>(a, redop, b);
                }
                if (pass_whole<TYPE>(r, PROGRAM_PARTIAL_OUT)) {
                        UNROLL
                        for (uint32_t i = 0; i < a.words; i++)
                                pass_push(r, u * a.words + i, reduce_partial_out<TYPE>(a, i));
                } else {
                        const uint64_t value =
                                reduce_finish<TYPE>(a, redop, r->n); /* averages come here at their end only */

                        if (flags & PROGRAM_OUTPUT)
                                unit_deliver<ACCESS_ANY>(r, out, u, bytes, value);
                        pass_push(r, u, value);
                }
        }
}

DEVICE void pass_fold_any(const struct run *r, uint64_t in, uint64_t out, uint32_t bytes) {
        switch (r->task->type) {
        case RMX_INT8:
                pass_fold<RMX_INT8>(*r, in, out, bytes);
                break;
        case RMX_UINT8:
                pass_fold<RMX_UINT8>(*r, in, out, bytes);
                break;
        case RMX_INT32:
                pass_fold<RMX_INT32>(*r, in, out, bytes);
                break;
        case RMX_UINT32:
                pass_fold<RMX_UINT32>(*r, in, out, bytes);
                break;
        case RMX_INT64:
                pass_fold<RMX_INT64>(*r, in, out, bytes);
                break;
        case RMX_UINT64:
                pass_fold<RMX_UINT64>(*r, in, out, bytes);
                break;
        case RMX_FLOAT16:
                pass_fold<RMX_FLOAT16>(*r, in, out, bytes);
                break;
        case RMX_FLOAT32:
                pass_fold<RMX_FLOAT32>(*r, in, out, bytes);
                break;
        case RMX_FLOAT64:
                pass_fold<RMX_FLOAT64>(*r, in, out, bytes);
                break;
        case RMX_BFLOAT16:
                pass_fold<RMX_BFLOAT16>(*r, in, out, bytes);
                break;
        case RMX_FLOAT8_E4M3:
                pass_fold<RMX_FLOAT8_E4M3>(*r, in, out, bytes);
                break;
        default:
                pass_fold<RMX_FLOAT8_E5M2>(*r, in, out, bytes);
                break;
        }
}

/* The cached step, for a part. False: it is not ready. */
DEVICE bool pass_step(struct run *r, const struct plan_phase *phase, uint32_t part) {
        const struct program_work *x = &r->s->pass.step;
        const struct task *t = r->task;
        const uint32_t range = phase->out_range != PLAN_RANGE_NONE ? phase->out_range : phase->in_range;
        const uint64_t targets = x->targets, chunks = x->chunks;
        struct plan_span from, to;
        uint64_t in, out;
        uint32_t bytes;

        if (!pass_room(r, phase->region_out, targets) || !pass_arrived(r, phase->region_in, chunks))
                return false;
        from = run_span<ACCESS_ANY>(r, phase->in_range, x->index, part);
        to = run_span<ACCESS_ANY>(r, range, x->index, part);
        in = run_address<ACCESS_ANY>(r, t->in, from.offset);
        out = run_address<ACCESS_ANY>(r, t->out, to.offset);
        bytes = (uint32_t)to.length * t->element_bytes;
        if (chunks & channel_far(r->s))
                pass_bring(*r, phase->region_in, chunks & channel_far(r->s),
                           (bytes + 7) / 8 << (x->flags & PROGRAM_PARTIAL_IN ? reduce_widens(t->type, t->redop) : 0));
        if (!pass_ready(*r, in, bytes))
                return false;
        if (x->flags & (PROGRAM_PARTIAL_IN | PROGRAM_PARTIAL_OUT | PROGRAM_FINISH))
                pass_fold_any(r, in, out, bytes);
        else
                pass_move(*r, in, out, bytes);
        if (targets)
                run_pushed(r, phase->region_out, targets);
        if (chunks)
                run_taken(r, phase->region_in, chunks);
        return true;
}

/* Works on phase f as far as it goes. */
DEVICE void pass_phase(struct run *r, uint32_t f) {
        struct task *t = r->task;

        while (t->part[f] < t->parts[f]) {
                const uint32_t part = t->part[f], k = t->step[f], n = r->s->pass.phases.n[f];

                pass_cache_step(r->s, r->s->pass.phases.first[f] + k);
                if (!pass_step(r, &r->s->plan.phases[f], part))
                        break;
                warp_sync();
                if (r->thread == 0) {
                        t->step[f] = (uint8_t)(k + 1 < n ? k + 1 : 0);
                        t->part[f] = k + 1 < n ? part : part + STAGING_DATA_LANES;
                }
                warp_sync();
                if (k + 1 == n && run_looks_up(r, part, STAGING_DATA_LANES))
                        break;
        }
}

/* So many looks at one phase before the next has its turn: it may be the one that others wait for. */
#define PASS_SPINS 4u

/* As task_run_n. The program is cached. */
DEVICE_OUTLINE bool pass_run(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        struct run r = {t,
                        s,
                        c,
                        s->rank.n_ranks,
                        s->rank.rank,
                        t->lane,
                        warp_thread(),
                        spins < PASS_SPINS ? spins : PASS_SPINS};
        bool left = false;

        for (uint32_t f = 0; f < s->plan.n_phases; f++) {
                pass_phase(&r, f);
                left = left || t->part[f] < t->parts[f];
        }
        return !left; /* or looks up, and then goes on */
}

/* ---- lane 0 --------------------------------------------------------------------------------------------------------
 */
DEVICE bool pass_tell(struct run *r, uint64_t mask, uint64_t word) {
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
DEVICE bool pass_hear(struct run *r, uint64_t mask, uint32_t *ret_differs) {
        const struct peer_view *v = &r->s->view;
        uint32_t differs = 0;

        if (!pass_arrived(r, STAGING_REGION_CHECK, mask) || !wait_packets(r, mask))
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
                const uint64_t hear = cell_load(&program->hear[at / 3]), tell = cell_load(&program->tell[at / 3]);
                const uint64_t mask = at % 3 == 0 ? hear & ~tell : at % 3 == 1 ? tell : hear & tell;
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
