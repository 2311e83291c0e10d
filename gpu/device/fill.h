/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * From what a line asks for to tasks: the plan is chosen, the request is cut into parts, and it is said which of the
 * ways it can go; what comes of it is a task of no lane, and from that one for each lane.
 */
#include "gpu/device/pass.h"
#include "gpu/device/take.h"

#define TAKE_PART_PACKET 256u /* smallest part, bytes: a packet for each thread of a small warp */
#define TAKE_PART_BULK   512u

DEVICE bool task_phase_mine(uint32_t root, const struct plan_phase *phase, uint32_t me, uint32_t n) {
        if (n == 1 && phase->peers == PLAN_PEERS_OTHERS && phase->kind != PLAN_REDUCE)
                return false;
        switch (phase->who) {
        case PLAN_WHO_ROOT:
                return me == root;
        case PLAN_WHO_OTHERS:
                return me != root;
        case PLAN_WHO_PEER:
                return false;
        default:
                return true;
        }
}

/* The longest piece that any rank has of a range. */
DEVICE uint64_t task_longest(const struct take *k, uint32_t range) {
        switch (range) {
        case PLAN_RANGE_NONE:
                return 0;
        case PLAN_RANGE_SHARD_ME:
        case PLAN_RANGE_SHARD_PEER:
                return k->count < k->shard ? k->count : k->shard;
        default:
                return k->count;
        }
}

/* Bytes of a part: what makes use of so many lanes (0: all), between one access of a warp and what fits a chunk. Of
 * packets a power of two, which has a way of its own (hot.h), and half a chunk at most where the piece may be one of
 * several that lie in boxes (quick.h). widens: a chunk may hold something longer, as reduce_widens() has it. */
DEVICE uint32_t task_part_bytes(uint32_t transport, uint64_t bytes, uint32_t lanes, uint32_t widens) {
        uint32_t granule = transport == STAGING_PACKET ? TAKE_PART_PACKET : TAKE_PART_BULK;
        uint32_t most = (transport == STAGING_BULK                   ? STAGING_BULK_CHUNK
                         : bytes <= BELL_INLINE_BYTES / 2 && !widens ? STAGING_PACKET_CHUNK / 2
                                                                     : STAGING_PACKET_CHUNK) >>
                        widens;
        uint64_t part = (divide_up(bytes, lanes ? lanes : STAGING_DATA_LANES) + granule - 1) & ~(uint64_t)(granule - 1);

        while (transport == STAGING_PACKET && granule < part && granule < most)
                granule *= 2;
        return part < granule || transport == STAGING_PACKET ? granule : part > most ? most : (uint32_t)part;
}

/* How the request is cut into parts; the same on all ranks. The plan is cached. */
DEVICE void take_cut(const struct worker *w, struct take *k) {
        const struct plan *plan = &shared_of(w)->plan;
        const uint32_t me = shared_of(w)->rank.rank, n = shared_of(w)->rank.n_ranks;
        uint32_t granule =
                k->element_bytes < SPAN_SHARD_ALIGN_BYTES ? SPAN_SHARD_ALIGN_BYTES >> first_bit(k->element_bytes) : 1;
        uint64_t longest[TASK_PHASES], most = 0;

        k->shard = (divide_up(k->count, plan->n_shards) + granule - 1) & ~(uint64_t)(granule - 1);
        UNROLL
        for (uint32_t f = 0; f < TASK_PHASES; f++) {
                const struct plan_phase *phase = &plan->phases[f];
                uint64_t in = task_longest(k, phase->in_range), out = task_longest(k, phase->out_range);

                longest[f] = f < plan->n_phases ? in > out ? in : out : 0;
                most = longest[f] > most ? longest[f] : most;
        }
        k->elements = task_part_bytes(k->transport, most * k->element_bytes, shared_of(w)->rank.lanes,
                                      plan->partials ? reduce_widens(k->type, k->redop) : 0) >>
                      first_bit(k->element_bytes);
        UNROLL
        for (uint32_t f = 0; f < TASK_PHASES; f++) {
                const struct plan_phase *phase = &plan->phases[f];
                bool signal = phase->in_range == PLAN_RANGE_NONE && phase->out_range == PLAN_RANGE_NONE;

                k->parts[f] = f >= plan->n_phases || !task_phase_mine(k->root, phase, me, n) ? 0
                              : signal                                                       ? 1
                                       : (uint32_t)divide_up(longest[f], k->elements);
        }
        if (pass_has(shared_of(w))) {
                pass_program(shared_of(w), k->root);
                UNROLL
                for (uint32_t f = 0; f < TASK_PHASES; f++)
                        k->parts[f] = shared_of(w)->pass.phases.n[f] ? k->parts[f] : 0;
        }
}

/* The parts of a vector's phases: pieces of others, or the own one. The plan is cached. */
DEVICE void take_cut_vector(const struct worker *w, struct take *k) {
        const struct plan *plan = &shared_of(w)->plan;
        const uint32_t n = shared_of(w)->rank.n_ranks, me = shared_of(w)->rank.rank,
                       shift = first_bit(k->element_bytes);
        const uint64_t *words = (const uint64_t *)k->vector;

        vector_cut(shared_of(w), warp_thread(), k->vector, k->transport, shift);
        UNROLL
        for (uint32_t f = 0; f < TASK_PHASES; f++) {
                const struct plan_phase *phase = &plan->phases[f];
                const bool self = phase->peers == PLAN_PEERS_SELF, sends = phase->in_range == PLAN_RANGE_VECTOR_SEND;

                k->parts[f] =
                        f >= plan->n_phases || !task_phase_mine(0, phase, me, n)
                                ? 0
                                : vector_parts(words + (sends ? 0 : 2 * n), words + (sends ? 4 : 5) * n, n, me, self);
        }
}

/* Sends and receives have no plan. */
DEVICE void take_cut_p2p(struct take *k) {
        k->transport = p2p_transport(k->bytes);
        k->elements = p2p_part_bytes(k->bytes) >> first_bit(k->element_bytes);
        UNROLL
        for (uint32_t f = 0; f < TASK_PHASES; f++)
                k->parts[f] = f ? 0 : (uint32_t)divide_up(k->count, k->elements);
}

/* The plan of a request, from the cached choices. */
DEVICE uint32_t take_plan(const struct worker *w, struct take *k) {
        const struct worker_shared *s = shared_of(w);

        k->plan = 0;
        if (operation_p2p(k->operation)) {
                take_cut_p2p(k);
                return RMX_OK;
        }
        take_cache_choices(w, s->rank.choices, k->operation);
        for (uint32_t i = 0; i < TABLE_CHOICES && !k->plan; i++)
                if (s->choice[i].plan && k->bytes <= s->choice[i].max_bytes) {
                        k->plan = s->choice[i].plan;
                        k->transport = s->choice[i].transport;
                }
        if (!k->plan)
                return RMX_E_UNSUPPORTED;
        if (k->inlined)
                k->transport = STAGING_PACKET;
        take_cache_plan(w, k->plan);
        if (s->plan.n_ranks != s->rank.n_ranks) /* the communicator is being made, and its client could not wait */
                return RMX_E_UNSUPPORTED;
        if (k->vector)
                take_cut_vector(w, k);
        else
                take_cut(w, k);
        return RMX_OK;
}

/* The phases of lane 0: tell, and compare with whoever sends data. False: there is nobody. */
DEVICE bool task_fill_check(const struct worker *w, struct task *t) {
        const struct plan *plan = &shared_of(w)->plan;
        uint32_t n = shared_of(w)->rank.n_ranks, me = shared_of(w)->rank.rank, compares = TASK_PHASES;
        bool sends = n > 1 && task_phase_mine(t->root, &plan->phases[0], me, n);

        for (uint32_t f = 1; n > 1 && f < plan->n_phases; f++)
                if (task_phase_mine(t->root, &plan->phases[f], me, n) &&
                    (plan->phases[f].peers != PLAN_PEERS_SELF || plan->phases[f].kind == PLAN_REDUCE))
                        compares = f;
        if (t->quick ? !quick_rooted(t->quick) : pass_has(shared_of(w)))
                sends = true;
        if (t->count == 0 && !t->vector && t->operation != RING_OP_BARRIER)
                return false;
        if (warp_thread() == 0) {
                t->transport = STAGING_PACKET;
                t->part[0] = t->part[1] = t->part[2] = t->part[3] = 0;
                t->parts[0] = sends;
                t->parts[1] = compares < TASK_PHASES;
                t->parts[2] = compares; /* the phase that says whom with */
                t->parts[3] = 0;
                t->call = take_told(t->call, t->sequence);
        }
        warp_sync();
        return sends || compares < TASK_PHASES;
}

/* Is it a sum of the types that matter most, or nothing is reduced? */
DEVICE bool take_usual(const struct take *k) {
        return !operation_reduces(k->operation) ||
               (k->redop == RMX_SUM && (k->type == RMX_BFLOAT16 || k->type == RMX_FLOAT16 || k->type == RMX_FLOAT32));
}

/* Are all pieces of whole units? Offsets are multiples of shards, which are, and of counts. Premultiplied sums and what
 * does not fit take the general path. */
DEVICE uint32_t take_access(const struct take *k) {
        const uint64_t unit = k->transport == STAGING_PACKET ? 8 : 16;

        if (!take_usual(k))
                return ACCESS_ANY;
        if (k->inlined)
                return ACCESS_INLINE;
        return (k->in | k->out | k->bytes) & (unit - 1) ? ACCESS_ANY : ACCESS_WHOLE;
}

/* ---- reach.h ----------------------------------------------------------------------------------------------------- */
/* Do the ranks ask each other whether they can reach? All of them come to the same. */
DEVICE bool take_reach(const struct worker *w, const struct take *k, uint32_t mode) {
        const uint64_t least = cell_load(&w->table->ranks[shared_of(w)->rank.index].reach_bytes);
        const uint64_t most = k->in_bytes > k->out_bytes ? k->in_bytes : k->out_bytes;
        const uint32_t part = k->elements * k->element_bytes;

        return least && most >= least && most > BELL_INLINE_BYTES && mode != QUICK_ONE_SHOT && k->bytes % 16 == 0 &&
               !(part & (part - 1));
}

/* Of those that ask: is it a burst if all can, and by what? */
DEVICE uint8_t take_burst(const struct worker *w, const struct take *k, uint32_t mode) {
        const uint64_t least = cell_load(&w->table->ranks[shared_of(w)->rank.index].burst_bytes);
        const uint64_t most = k->in_bytes > k->out_bytes ? k->in_bytes : k->out_bytes;
        uint64_t copies;

        if (!least || most < least || !w->table->bursts)
                return BURST_BY_LANES;
        copies = w->table->copies; /* never changes */
        return copies && most >= copies && copies_can(mode) ? BURST_BY_COPIES : BURST_BY_KERNEL;
}

/* Is the buffer mapped on all of these GPUs? */
DEVICE bool take_covers(const struct worker *w, uint32_t ring, uint32_t id, uint64_t gpus) {
        const uint32_t start = table_hash(ring, id);

        for (uint32_t i = 0; i < TABLE_PROBES; i++) {
                const struct table_buffer *b = &w->table->buffers[(start + i) % TABLE_BUFFERS];
                const uint32_t key = word_load(&b->key);

                if (!key)
                        break;
                if (key == 2 && word_load(&b->ring) == ring && word_load(&b->id) == id)
                        return (cell_load(&b->gpus) & gpus) == gpus;
        }
        return false;
}

/* May peers read this rank's input and write its output where they are? What one writes must be nothing that another
 * still wants to read, so input and output are apart, or lie on each other so that only this rank, or the one that
 * writes it, reads what is overwritten. */
DEVICE bool take_reaches(const struct worker *w, const struct take *k, const struct task *t) {
        const uint64_t gpus = cell_load(&w->table->ranks[shared_of(w)->rank.index].gpus);
        const uint64_t block = (uint64_t)shared_of(w)->rank.rank * t->stride;
        const bool root = t->root == shared_of(w)->rank.rank;
        const bool apart = k->in + k->in_bytes <= k->out || k->out + k->out_bytes <= k->in;
        bool placed = apart;

        if ((k->in | k->out) & 15)
                return false;
        if (t->reach == REACH_TWO_SHOT || t->reach == REACH_BROADCAST || t->reach == REACH_REDUCE)
                placed = apart || k->in == k->out;
        if (t->reach == REACH_REDUCE_SCATTER)
                placed = apart || k->out == k->in + block;
        if (t->reach == REACH_ALL_GATHER)
                placed = apart || k->in == k->out + block;
        return placed && (!reach_reads(t->reach, root) || take_covers(w, t->ring, t->in_buffer, gpus)) &&
               (!reach_writes(t->reach, root) || take_covers(w, t->ring, t->out_buffer, gpus));
}

/* May the request go the quick way? Then says what its pieces are. The plan is cached. */
DEVICE uint32_t take_quick(const struct worker *w, const struct take *k, uint32_t access, struct task *t) {
        const uint32_t n = shared_of(w)->rank.n_ranks, common = quick_plan(&shared_of(w)->plan);
        const uint32_t mode = common ? common : quick_root_plan(k->operation, &shared_of(w)->plan);

        if (operation_p2p(k->operation) || k->vector || !mode || !take_usual(k) || !k->count ||
            (n != 2 && n != 4 && n != 8) || k->bytes > QUICK_BYTES_MAX / 8 || shared_of(w)->rank.far)
                return QUICK_NONE;
        t->stride = (uint32_t)(mode == QUICK_TWO_SHOT ? k->shard * k->element_bytes : k->bytes);
        t->total = (uint32_t)(quick_blocks(mode) ? n * k->bytes : k->bytes);
        t->part_bytes = k->elements * k->element_bytes;
        if (take_reach(w, k, mode)) {
                t->reach = mode;
                t->reaches = take_reaches(w, k, t);
                t->burst = take_burst(w, k, mode);
                if (shared_of(w)->rank.lanes) /* meetings are what costs: one for each worker */
                        t->spread = (uint16_t)shared_of(w)->rank.lanes;
                t->transport = STAGING_PACKET; /* of what they ask */
        }
        return access == ACCESS_ANY || k->transport != STAGING_PACKET ? (uint32_t)QUICK_NONE : mode;
}

/* Parts of the phase that has most. */
DEVICE uint32_t take_parts(const struct take *k) {
        uint32_t most = 0;

        UNROLL
        for (uint32_t f = 0; f < TASK_PHASES; f++)
                most = k->parts[f] > most ? k->parts[f] : most;
        return most;
}

/* Fills a task of no lane yet. The plan is cached. */
DEVICE void task_fill(const struct worker *w, const struct take *k, uint32_t ring, struct task *t) {
        const struct worker_shared *s = shared_of(w);

        if (warp_thread() == 0) {
                t->area = s->area[ring];
                t->in = k->in;
                t->out = k->out;
                t->count = k->count;
                t->shard = k->shard;
                t->scalar = k->scalar;
                t->call = take_call(k);
                t->vector = k->vector;
                t->ring = ring;
                t->rank = s->rank.index;
                t->key = s->rank.key;
                t->plan = k->plan;
                t->transport = k->transport;
                t->elements = k->elements;
                t->operation = k->operation;
                t->type = k->type;
                t->redop = operation_reduces(k->operation) ? k->redop : RMX_SUM;
                t->root = operation_p2p(k->operation) ? 0 : k->root;
                t->peer = operation_p2p(k->operation) ? k->root : 0;
                t->role = k->operation == RING_OP_SEND   ? PLAN_ROLE_SENDER
                          : k->operation == RING_OP_RECV ? PLAN_ROLE_RECEIVER
                                                         : PLAN_ROLE_ANY;
                t->element_bytes = k->element_bytes;
                t->inlined = k->inlined;
                t->in_buffer = k->in ? s->line[RING_W_IN_BUFFER] : 0;
                t->out_buffer = k->out ? s->line[RING_W_OUT_BUFFER] : 0;
                t->in_offset = line_u64(s->line, RING_W_IN_LO);
                t->out_offset = line_u64(s->line, RING_W_OUT_LO);
                t->access = k->plan && pass_has(s) ? (uint32_t)ACCESS_ANY : take_access(k);
                t->reach = REACH_NONE;
                t->through = (uint8_t)k->transport;
                t->reaches = t->reached = 0;
                t->burst = 0;
                t->spread = STAGING_DATA_LANES;
                t->stage = REACH_BEGIN;
                t->quick = take_quick(w, k, t->access, t);
                t->begun = 0;
                UNROLL
                for (uint32_t f = 0; f < TASK_PHASES; f++)
                        t->parts[f] =
                                quick_rooted(t->quick) && t->spread == STAGING_DATA_LANES ? take_parts(k) : k->parts[f];
        }
        warp_sync();
}

/* Has a lane something to do? */
DEVICE bool task_wants(const struct task *from, uint32_t lane) {
        bool any = lane == 0;

        UNROLL
        for (uint32_t f = 0; f < TASK_PHASES; f++)
                any = any || lane - 1 < from->parts[f];
        return any && (!from->role || lane <= P2P_DATA_LANES);
}

/* The same for one lane of one request, which has something to do. False: lane 0 has nobody to tell or ask. */
DEVICE bool task_assign(const struct worker *w, const struct task *from, uint32_t ring_sequence, uint32_t sequence,
                        uint32_t lane, uint32_t cache, struct task *t) {
        ROLLED
        for (uint32_t i = warp_thread(); i < offsetof(struct task, progress) / 4; i += WARP_THREADS)
                ((uint32_t *)(void *)t)[i] = ((const uint32_t *)(const void *)from)[i];
        warp_sync();
        if (warp_thread() == 0) {
                t->ring_sequence = ring_sequence;
                t->sequence = sequence;
                t->lane = lane;
                t->cache = (uint8_t)cache;
                if (lane == 0 && t->role) /* what both sides tell each other */
                        t->transport = STAGING_PACKET;
                if (t->inlined) {
                        uint64_t box = t->area + (uint64_t)(ring_sequence % BELL_DEPTH) * BELL_INLINE_PACKETS * 16;

                        t->in = box + BELL_OFFSET_INBOX;
                        t->out = box + BELL_OFFSET_OUTBOX;
                }
                UNROLL
                for (uint32_t f = 0; f < TASK_PHASES; f++)
                        t->part[f] = lane || !t->role ? lane - 1 : 0;
                UNROLL
                for (uint32_t f = 0; f < TASK_PHASES; f++)
                        t->step[f] = 0; /* or progress */
        }
        warp_sync();
        return lane != 0 || t->role || task_fill_check(w, t);
}
