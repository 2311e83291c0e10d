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
 * Chunks of other nodes come over the bus, a microsecond or two for each trip. So they are fetched once (pass_fetch),
 * into the place in the own staging that a rank of this node would push them to, and steps read all chunks there.
 *
 * Sums that go to other nodes, and a rank's own until those of the others have come, are accumulators: a payload of
 * eight bytes becomes one, two or four (reduce.h).
 *
 * All of it is apart from what communicators of one node run: functions of their own, that nothing is inlined from.
 */
#include "gpu/device/phase.h"

static_assert(PROGRAM_PHASES == TASK_PHASES && PROGRAM_SOURCES == STAGING_RANKS_MAX, "what a program has room for");

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
        before = bit_count(word_load(&row->here) & ((1u << s->rank.rank) - 1));
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
DEVICE uint32_t pass_source(const struct run *r, uint32_t k, uint32_t *left) {
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

DEVICE uint32_t pass_sources(const struct run *r) {
        return r->s->pass.step.chunks | (uint32_t)(r->s->pass.step.flags & PROGRAM_INPUT ? 1u << r->me : 0u);
}

/* ---- channels ------------------------------------------------------------------------------------------------------
 */
/* Have all ranks of the mask room for a chunk? Also prepares view.to. */
DEVICE bool pass_room(const struct run *r, uint32_t region, uint32_t mask) {
        bool room = true;

        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS)
                if (mask >> p & 1)
                        room = run_to(r, region, p) && room;
        room = warp_all(room);
        warp_sync();
        return room;
}

/* Prepares view.from: also chunks of other nodes are read from the own staging, which has places for all ranks'. */
DEVICE void pass_from(const struct run *r, uint32_t region, uint32_t mask) {
        struct worker_shared *s = r->s;

        ROLLED
        for (uint32_t p = r->thread; p < r->n; p += WARP_THREADS) {
                const uint32_t taken = r->counter->taken[region][p];

                if (!(mask >> p & 1))
                        continue;
                s->view.from[p] = s->rank.peer[r->me] +
                                  staging_chunk(&s->layout, STAGING_PACKET, region, r->lane, taken % STAGING_SLOTS, p);
                s->view.from_flag[p] = taken + 1;
        }
        warp_sync();
}

/* From number `base` on, as many as a thread has under way, of `n`. */
DEVICE void pass_packets(const struct quad *from, uint32_t base, uint32_t n, struct quad (&ret_packet)[PHASE_PACKETS]) {
        UNROLL
        for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                if (base + k * WARP_THREADS < n)
                        ret_packet[k] = quad_load(from + base + k * WARP_THREADS);
}

/* Have the first `n` packets of p's chunk come, as far as this thread reads them? */
DEVICE bool pass_come(const struct run *r, uint32_t p, uint32_t n) {
        const struct quad *from = (const struct quad *)r->s->view.from[p];
        const uint32_t flag = r->s->view.from_flag[p];
        bool come = true;

        ROLLED
        for (uint32_t base = r->thread; base < n; base += PHASE_PACKETS * WARP_THREADS) {
                struct quad packet[PHASE_PACKETS];

                pass_packets(from, base, n, packet);
                UNROLL
                for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                        if (base + k * WARP_THREADS < n)
                                come = come && packet_is(packet[k], flag);
        }
        return come;
}

/* ---- chunks of other nodes -----------------------------------------------------------------------------------------
 * A wire is read once, all of a thread's packets in one trip over the bus, when its word says that the chunk is there:
 * what has come is put down in the own staging, where the step reads it, each packet perhaps several times, and where
 * it is found when the step is tried again. Words are asked for in any case, all together, while the packets that may
 * be there already are looked at. A thread has those of ranks `thread`, `thread` + WARP_THREADS and so on.
 */
#define PASS_WORDS ((STAGING_RANKS_MAX + WARP_THREADS - 1) / WARP_THREADS)

DEVICE void pass_ask(const struct run *r, uint32_t region, uint32_t mask, uint32_t (&ret_word)[PASS_WORDS]) {
        UNROLL
        for (uint32_t k = 0; k < PASS_WORDS; k++) {
                const uint32_t p = r->thread + k * WARP_THREADS;

                if (p < r->n && (mask >> p & 1))
                        ret_word[k] = word_load(
                                channel_come(r->s, STAGING_PACKET, region, r->lane, r->s->view.from_flag[p] - 1, p));
        }
}

/* Whose chunks are there, by these words. */
DEVICE uint32_t pass_told(const struct run *r, uint32_t mask, const uint32_t (&word)[PASS_WORDS]) {
        uint32_t told = 0;

        UNROLL
        for (uint32_t k = 0; k < PASS_WORDS; k++) {
                const uint32_t p = r->thread + k * WARP_THREADS;
                const bool is = p < r->n && (mask >> p & 1) && word[k] == r->s->view.from_flag[p];

                told |= (uint32_t)(warp_ballot(is) << k * WARP_THREADS);
        }
        return told;
}

/* Has p's chunk been put down before? (Of no packets there is nothing to see, and 0 is the flag of what was never
 * written, too.) */
DEVICE bool pass_fetched(const struct run *r, uint32_t p, uint32_t n) {
        return warp_all(n && r->s->view.from_flag[p] && pass_come(r, p, n));
}

/* Puts p's chunk down, which is there. False: not all of it was. */
DEVICE bool pass_fetch(const struct run *r, uint32_t region, uint32_t p, uint32_t n) {
        struct worker_shared *s = r->s;
        const uint32_t flag = s->view.from_flag[p];
        const struct quad *from = (const struct quad *)channel_from(s, STAGING_PACKET, region, r->lane, flag - 1, p);
        struct quad *to = (struct quad *)s->view.from[p];
        bool come = true;

        ROLLED
        for (uint32_t base = r->thread; base < n; base += PHASE_PACKETS * WARP_THREADS) {
                struct quad packet[PHASE_PACKETS];

                pass_packets(from, base, n, packet);
                UNROLL
                for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                        if (base + k * WARP_THREADS < n) {
                                if (packet_is(packet[k], flag))
                                        packet_store(to + base + k * WARP_THREADS, packet_payload(packet[k]), flag);
                                else
                                        come = false;
                        }
        }
        return come;
}

/* One look at them: have they come, as far as this thread reads them? */
DEVICE bool pass_bring(const struct run *r, uint32_t region, uint32_t mask, uint32_t n) {
        uint32_t word[PASS_WORDS] = {0}, missing = 0, told;
        bool come = true;

        pass_ask(r, region, mask, word);
        ROLLED
        for (uint64_t left = mask; left; left &= left - 1)
                if (!pass_fetched(r, first_bit(left), n))
                        missing |= 1u << first_bit(left);
        told = pass_told(r, missing, word);
        ROLLED
        for (uint64_t left = told; left; left &= left - 1)
                come = pass_fetch(r, region, first_bit(left), n) && come;
        return come && told == missing;
}

/* Is all there that the cached step reads, of a part of so many bytes? Of other nodes one look: it goes over the bus,
 * and another phase may have what it waits for. */
DEVICE_OUTLINE bool pass_ready(struct run run, uint32_t region, uint64_t in, uint32_t bytes) {
        const struct run *r = &run;
        const struct program_work *x = &r->s->pass.step;
        const uint32_t units = (bytes + 7) / 8;
        const uint32_t widens = x->flags & PROGRAM_PARTIAL_IN ? reduce_widens(r->task->type, r->task->redop) : 0;
        const uint32_t far = x->chunks & (uint32_t)channel_far(r->s), most = far ? 1 : r->spins;
        bool ready = true;

        ROLLED
        for (uint32_t spins = 0; spins < most; spins++) {
                uint64_t ignored;

                ready = !far || pass_bring(r, region, far, units << widens);
                ROLLED
                for (uint64_t left = x->chunks & ~far; left; left &= left - 1)
                        ready = pass_come(r, first_bit(left), units << widens) && ready;
                if ((x->flags & PROGRAM_INPUT) && r->task->inlined)
                        for (uint32_t u = r->thread; u < units; u += WARP_THREADS)
                                ready = unit_fetch<ACCESS_ANY>(r, in, u, bytes, &ignored) && ready;
                ready = warp_all(ready);
                if (ready)
                        break;
        }
        warp_sync(); /* what a thread has put down others read */
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
/* Units that a thread loads before it looks at the first, and so waits for memory once. */
#define PASS_MOVES 4u
#define PASS_FOLDS 2u

/* Nothing is combined: the only source. */
DEVICE_OUTLINE void pass_move(struct run run, uint64_t in, uint64_t out, uint32_t bytes) {
        const struct run *r = &run;
        const struct program_work *x = &r->s->pass.step;
        const bool own = x->flags & PROGRAM_INPUT, stays = own && in == out && !r->task->inlined;
        const uint32_t units = (bytes + 7) / 8;

        ROLLED
        for (uint32_t base = r->thread; base < units; base += PASS_MOVES * WARP_THREADS) {
                uint64_t value[PASS_MOVES] = {0};

                UNROLL
                for (uint32_t k = 0; k < PASS_MOVES; k++) {
                        const uint32_t u = base + k * WARP_THREADS;

                        if (u < units && own)
                                (void)unit_fetch<ACCESS_ANY>(r, in, u, bytes, &value[k]);
                        else if (u < units)
                                value[k] = pass_packet(r, first_bit(x->chunks), u);
                }
                UNROLL
                for (uint32_t k = 0; k < PASS_MOVES; k++) {
                        const uint32_t u = base + k * WARP_THREADS;

                        if (u >= units)
                                continue;
                        if ((x->flags & PROGRAM_OUTPUT) && !stays)
                                unit_deliver<ACCESS_ANY>(r, out, u, bytes, value[k]);
                        pass_push(r, u, own ? unit_scale<ACCESS_ANY>(r, value[k]) : value[k]);
                }
        }
}

/* Are these chunks of the step accumulators as they are? Others are elements: no accumulators, or as good as one. */
template <uint32_t TYPE> DEVICE bool pass_whole(const struct run *r, uint32_t flag) {
        return (r->s->pass.step.flags & flag) &&
               (reduce_accumulator<TYPE>::words == 1 || reduce_widens(TYPE, r->task->redop));
}

/* What one source has for units u, u + WARP_THREADS and so on; of the own input, and of elements, the first word. */
template <uint32_t TYPE>
DEVICE void pass_load(const struct run *r, uint32_t source, uint32_t u, uint64_t in, uint32_t bytes,
                      uint64_t (&ret_x)[PASS_FOLDS][reduce_accumulator<TYPE>::words]) {
        constexpr uint32_t words = reduce_accumulator<TYPE>::words;
        const uint32_t units = (bytes + 7) / 8;
        const bool whole = pass_whole<TYPE>(r, PROGRAM_PARTIAL_IN);

        UNROLL
        for (uint32_t k = 0; k < PASS_FOLDS; k++, u += WARP_THREADS) {
                if (u >= units)
                        continue;
                if (source == PROGRAM_OWN) {
                        ret_x[k][0] = 0;
                        (void)unit_fetch<ACCESS_ANY>(r, in, u, bytes, &ret_x[k][0]);
                } else if (!whole) {
                        ret_x[k][0] = pass_packet(r, source, u);
                } else {
                        UNROLL
                        for (uint32_t i = 0; i < words; i++)
                                ret_x[k][i] = pass_packet(r, source, u * words + i);
                }
        }
}

/* One unit of that as a contribution. */
template <uint32_t TYPE>
DEVICE void pass_contribution(const struct run *r, uint32_t source,
                              const uint64_t (&x)[reduce_accumulator<TYPE>::words], reduce_accumulator<TYPE> *ret_a) {
        if (source == PROGRAM_OWN) {
                reduce_begin<TYPE>(*ret_a, r->task->redop, unit_scale<ACCESS_ANY>(r, x[0]));
        } else if (!pass_whole<TYPE>(r, PROGRAM_PARTIAL_IN)) {
                reduce_begin<TYPE>(*ret_a, r->task->redop, x[0]);
        } else {
                UNROLL
                for (uint32_t i = 0; i < ret_a->words; i++)
                        reduce_partial_in<TYPE>(*ret_a, i, x[i]);
        }
}

/* A unit's result goes where the step says. */
template <uint32_t TYPE>
DEVICE void pass_result(const struct run *r, uint32_t u, uint64_t out, uint32_t bytes,
                        const reduce_accumulator<TYPE> &a) {
        if (pass_whole<TYPE>(r, PROGRAM_PARTIAL_OUT)) {
                UNROLL
                for (uint32_t i = 0; i < a.words; i++)
                        pass_push(r, u * a.words + i, reduce_partial_out<TYPE>(a, i));
        } else {
                /* averages come here at their end only */
                const uint64_t value = reduce_finish<TYPE>(a, r->task->redop, r->n);

                if (r->s->pass.step.flags & PROGRAM_OUTPUT)
                        unit_deliver<ACCESS_ANY>(r, out, u, bytes, value);
                pass_push(r, u, value);
        }
}

template <uint32_t TYPE> DEVICE_OUTLINE void pass_fold(struct run run, uint64_t in, uint64_t out, uint32_t bytes) {
        const struct run *r = &run;
        const uint32_t sources = pass_sources(r), n = bit_count(sources), units = (bytes + 7) / 8;

        ROLLED
        for (uint32_t base = r->thread; base < units; base += PASS_FOLDS * WARP_THREADS) {
                uint64_t x[PASS_FOLDS][reduce_accumulator<TYPE>::words] = {};
                reduce_accumulator<TYPE> a[PASS_FOLDS], b;
                uint32_t left = sources;

                ROLLED
                for (uint32_t k = 0; k < n; k++) {
                        const uint32_t source = pass_source(r, k, &left);

                        pass_load<TYPE>(r, source, base, in, bytes, x);
                        UNROLL
                        for (uint32_t i = 0; i < PASS_FOLDS; i++) { /* beyond the end, too: nobody gets that */
                                pass_contribution<TYPE>(r, source, x[i], &b);
                                if (k)
                                        reduce_merge<TYPE>(a[i], r->task->redop, b);
                                else
                                        a[i] = b;
                        }
                }
                UNROLL
                for (uint32_t i = 0; i < PASS_FOLDS; i++)
                        if (base + i * WARP_THREADS < units)
                                pass_result<TYPE>(r, base + i * WARP_THREADS, out, bytes, a[i]);
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
        const uint32_t targets = x->targets, chunks = x->chunks;
        struct plan_span from, to;
        uint64_t in, out;
        uint32_t bytes;

        if (!pass_room(r, phase->region_out, targets))
                return false;
        pass_from(r, phase->region_in, chunks);
        from = run_span<ACCESS_ANY>(r, phase->in_range, x->index, part);
        to = run_span<ACCESS_ANY>(r, range, x->index, part);
        in = run_address<ACCESS_ANY>(r, t->in, from.offset);
        out = run_address<ACCESS_ANY>(r, t->out, to.offset);
        bytes = (uint32_t)to.length * t->element_bytes;
        if (!pass_ready(*r, phase->region_in, in, bytes))
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

/* So many looks at one phase before the next has its turn: it may be the one that others wait for. (Of what comes from
 * other nodes one, see pass_ready.) */
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
