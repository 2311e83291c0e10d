/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a line asks for: the worker's own copy of it is checked, and buffers become addresses. Nothing of the line, nor
 * of its argument block, is read again.
 *
 * Everything looked up is cached in shared memory until the tables change, so that in a running model a line costs no
 * further load. Caches are filled by the whole warp. Of what is looked up all words behind the key are asked for before
 * any is looked at: a load takes half a microsecond, and what one line waits for, those of other sessions wait for,
 * too.
 */
#include "gpu/device/p2p.h"
#include "gpu/device/reach.h"

struct take { /* what a valid line asks for; the same in all threads */
        uint64_t count;
        uint64_t in_bytes, out_bytes;
        uint64_t bytes; /* by which the plan is chosen */
        uint32_t operation, type, redop, root, element_bytes;
        uint32_t lanes;
        uint32_t inlined;
        uint32_t status; /* ring_status, 0: fine */
        uint32_t plan, transport;
        uint64_t in, out;
        uint64_t scalar;
        uint64_t shard;
        uint64_t vector;   /* the worker's copy; 0: none */
        uint32_t elements; /* of a part */
        uint32_t parts[TASK_PHASES];
};

#define TAKE_LATER 0x100u /* no status: the line has to stay where it is for now */

DEVICE uint32_t type_bytes(uint32_t type) {
        switch (type) {
        case RMX_INT8:
        case RMX_UINT8:
        case RMX_FLOAT8_E4M3:
        case RMX_FLOAT8_E5M2:
                return 1;
        case RMX_FLOAT16:
        case RMX_BFLOAT16:
                return 2;
        case RMX_INT32:
        case RMX_UINT32:
        case RMX_FLOAT32:
                return 4;
        case RMX_INT64:
        case RMX_UINT64:
        case RMX_FLOAT64:
                return 8;
        default:
                return 0;
        }
}

DEVICE bool operation_reduces(uint32_t operation) {
        return operation == RING_OP_ALL_REDUCE || operation == RING_OP_REDUCE || operation == RING_OP_REDUCE_SCATTER;
}

DEVICE bool operation_rooted(uint32_t operation) {
        return operation == RING_OP_REDUCE || operation == RING_OP_BROADCAST || operation == RING_OP_GATHER ||
               operation == RING_OP_SCATTER;
}

DEVICE bool operation_p2p(uint32_t operation) {
        return operation == RING_OP_SEND || operation == RING_OP_RECV;
}

/* ---- tables --------------------------------------------------------------------------------------------------------
 */
/* The rank that a handle of a ring stands for; TABLE_RANKS if none. */
DEVICE uint32_t take_find_rank(const struct worker *w, uint32_t ring, uint32_t handle) {
        const uint32_t start = table_hash(ring, handle);
        uint32_t found = TABLE_RANKS;

        for (uint32_t i = warp_thread(); warp_any(i < TABLE_PROBES); i += WARP_THREADS) {
                const struct table_handle *h = &w->table->handles[(start + i) % TABLE_HANDLES];
                uint32_t mine = TABLE_RANKS;
                uint64_t who;

                if (i < TABLE_PROBES && word_load(&h->key) == 2) {
                        const uint32_t of = word_load(&h->ring), is = word_load(&h->handle), rank = word_load(&h->rank);

                        mine = of == ring && is == handle ? rank : TABLE_RANKS;
                }
                who = warp_ballot(mine < TABLE_RANKS);
                if (who)
                        found = warp_read(mine, first_bit(who));
        }
        return found;
}

DEVICE void take_cache_rank(const struct worker *w, uint32_t index) {
        /* The words that are one behind the other in both, and then three. */
        constexpr uint32_t own = offsetof(struct rank_cache, states) / 4, its = offsetof(struct table_rank, states) / 4,
                           run = offsetof(struct rank_cache, far) / 4 - own, words = run + 3, cells = WORKER_RANKS,
                           each = (cells + WARP_THREADS - 1) / WARP_THREADS,
                           more = (words + WARP_THREADS - 1) / WARP_THREADS;
        struct rank_cache *c = &shared_of(w)->rank;
        const struct table_rank *from = &w->table->ranks[index];
        const uint32_t t = warp_thread();
        uint64_t cell[each];
        uint32_t word[more];

        static_assert(offsetof(struct table_rank, key) / 4 - its == run - 1 &&
                              offsetof(struct rank_cache, key) / 4 - own == run - 1 &&
                              offsetof(struct rank_cache, freeze) == offsetof(struct rank_cache, far) + 8 &&
                              offsetof(struct table_rank, freeze) == offsetof(struct table_rank, far) + 8,
                      "the same order");
        warp_sync();
        UNROLL
        for (uint32_t k = 0; k < each; k++)
                cell[k] = k * WARP_THREADS + t < cells ? cell_load(&from->peer[k * WARP_THREADS + t]) : 0;
        UNROLL
        for (uint32_t k = 0; k < more; k++) {
                const uint32_t i = k * WARP_THREADS + t;

                word[k] = i < words ? word_load(i < run ? (const uint32_t *)(const void *)from + its + i
                                                        : (const uint32_t *)(const void *)&from->far + (i - run))
                                    : 0;
        }
        UNROLL
        for (uint32_t k = 0; k < each; k++)
                if (k * WARP_THREADS + t < cells)
                        c->peer[k * WARP_THREADS + t] = cell[k];
        UNROLL
        for (uint32_t k = 0; k < more; k++)
                if (k * WARP_THREADS + t < words)
                        ((uint32_t *)(void *)c)[own + k * WARP_THREADS + t] = word[k];
        warp_sync();
        if (t == 0) {
                c->index = index;
                if (c->abort) { /* what it goes with was written before it */
                        c->last = word_load(&from->last);
                        c->has_last = word_load(&from->has_last);
                }
        }
        warp_sync();
        if (shared_of(w)->layout.n_ranks != c->n_ranks) {
                warp_sync();
                if (warp_thread() == 0)
                        staging_layout_init(&shared_of(w)->layout, c->n_ranks);
                warp_sync();
        }
}

DEVICE void take_cache_plan(const struct worker *w, uint32_t index) {
        const uint32_t *from = (const uint32_t *)(const void *)&w->table->plans[index % TABLE_PLANS];
        uint32_t *to = (uint32_t *)(void *)&shared_of(w)->plan, row;

        if (shared_of(w)->cached_plan == index || !index)
                return;
        warp_sync();
        row = word_load(&w->table->rows[index % TABLE_PLANS].first);
        for (uint32_t i = warp_thread(); i < sizeof(struct plan) / 4; i += WARP_THREADS)
                to[i] = word_load(from + i);
        if (warp_thread() == 0) {
                shared_of(w)->cached_plan = index;
                shared_of(w)->pass.row = row;
                shared_of(w)->pass.name = shared_of(w)->pass.at = 0;
        }
        warp_sync();
}

DEVICE void take_cache_choices(const struct worker *w, uint32_t choices, uint32_t operation) {
        const uint32_t name = choices << 8 | operation;
        const uint64_t *from =
                (const uint64_t *)(const void *)w->table->choices[choices % TABLE_SETS].choice[operation];
        uint64_t *to = (uint64_t *)(void *)shared_of(w)->choice;

        if (shared_of(w)->cached_choices == name)
                return;
        warp_sync();
        for (uint32_t i = warp_thread(); i < sizeof(shared_of(w)->choice) / 8; i += WARP_THREADS)
                to[i] = cell_load(from + i);
        if (warp_thread() == 0)
                shared_of(w)->cached_choices = name;
        warp_sync();
}

/* The address of [offset, offset + bytes) in a buffer of the ring; 0 if it is not there. */
DEVICE uint64_t take_address(const struct worker *w, uint32_t ring, uint32_t id, uint64_t offset, uint64_t bytes) {
        struct buffer_cache *cache = &shared_of(w)->buffer[(id + 2 * ring) % WORKER_BUFFERS];

        if (!id)
                return 0;
        if (cache->id != id || cache->ring != ring) {
                const uint32_t start = table_hash(ring, id);
                bool found = false;

                warp_sync();
                for (uint32_t i = warp_thread(); warp_any(i < TABLE_PROBES); i += WARP_THREADS) {
                        const struct table_buffer *b = &w->table->buffers[(start + i) % TABLE_BUFFERS];
                        bool hit = i < TABLE_PROBES && word_load(&b->key) == 2;

                        if (hit) {
                                const uint32_t of = word_load(&b->ring), is = word_load(&b->id);
                                const uint64_t at = cell_load(&b->address), size = cell_load(&b->bytes);

                                hit = of == ring && is == id;
                                if (hit) {
                                        cache->address = at;
                                        cache->bytes = size;
                                        cache->ring = ring;
                                        cache->id = id;
                                }
                        }
                        found = found || warp_any(hit);
                }
                warp_sync();
                if (!found)
                        return 0;
        }
        if (offset > cache->bytes || bytes > cache->bytes - offset)
                return 0;
        return cache->address + offset;
}

/* Has the buffer been taken out of the table? Or is its number that of other memory by now, where [offset, offset +
 * bytes) is not what lies at `at`? */
DEVICE bool take_buffer_gone(const struct worker *w, uint32_t ring, uint32_t id, uint64_t offset, uint64_t bytes,
                             uint64_t at) {
        const uint32_t start = table_hash(ring, id);
        bool found = !id;

        for (uint32_t i = warp_thread(); i < TABLE_PROBES; i += WARP_THREADS) {
                const struct table_buffer *b = &w->table->buffers[(start + i) % TABLE_BUFFERS];

                if (word_load(&b->key) == 2) {
                        const uint32_t of = word_load(&b->ring), is = word_load(&b->id);
                        const uint64_t address = cell_load(&b->address), size = cell_load(&b->bytes);

                        found = found || (of == ring && is == id && address + offset == at && offset + bytes <= size);
                }
        }
        return !warp_any(found);
}

/* ---- checks --------------------------------------------------------------------------------------------------------
 */
DEVICE uint64_t line_u64(const uint32_t *line, uint32_t low) {
        return (uint64_t)line[low + 1] << 32 | line[low];
}

/* How many bytes a request reads and writes on this rank. */
DEVICE bool take_sizes(struct take *k, uint32_t n, bool root) {
        uint64_t one, all;

        if (k->count >> 44) /* with 64 ranks of 8 bytes far from any overflow, and far from any memory */
                return false;
        one = k->count * k->element_bytes;
        all = one * n;
        k->bytes = one;
        k->in_bytes = k->out_bytes = one;
        switch (k->operation) {
        case RING_OP_REDUCE:
                k->out_bytes = root ? one : 0;
                break;
        case RING_OP_BROADCAST:
                k->in_bytes = root ? one : 0;
                break;
        case RING_OP_SEND:
                k->out_bytes = 0;
                break;
        case RING_OP_RECV:
                k->in_bytes = 0;
                break;
        case RING_OP_ALL_GATHER:
                k->out_bytes = all;
                break;
        case RING_OP_REDUCE_SCATTER:
                k->in_bytes = all;
                break;
        case RING_OP_ALL_TO_ALL:
                k->in_bytes = k->out_bytes = all;
                break;
        case RING_OP_GATHER:
                k->out_bytes = root ? all : 0;
                break;
        case RING_OP_SCATTER:
                k->in_bytes = root ? all : 0;
                break;
        default:
                break;
        }
        return true;
}

DEVICE bool take_inline_fits(const struct take *k) {
        if (k->in_bytes > BELL_INLINE_BYTES || k->out_bytes > BELL_INLINE_BYTES)
                return false;
        return k->operation == RING_OP_ALL_REDUCE || k->operation == RING_OP_REDUCE ||
               k->operation == RING_OP_BROADCAST || operation_p2p(k->operation) || k->bytes % 8 == 0;
}

/* Is there an argument block of so many bytes? */
DEVICE bool take_argument(uint32_t argument, uint32_t bytes) {
        return argument && argument % 8 == 0 && argument / BELL_ARGUMENT_BYTES < BELL_DEPTH &&
               argument % BELL_ARGUMENT_BYTES <= BELL_ARGUMENT_BYTES - bytes;
}

/* The vector of an all_to_all_v. */
DEVICE uint32_t take_vector(const struct worker *w, uint32_t ring, struct take *k) {
        const uint32_t argument = shared_of(w)->line[RING_W_ARGUMENT];
        uint64_t in, out;

        if (k->count || !take_argument(argument, 32 * shared_of(w)->rank.n_ranks))
                return RMX_E_INVALID;
        k->vector = vector_place(w, ring);
        if (!k->vector)
                return TAKE_LATER;
        if (!vector_take(w, k->vector, shared_of(w)->area[ring] + BELL_OFFSET_ARGUMENT + argument, &in, &out))
                return RMX_E_INVALID;
        k->in_bytes = in * k->element_bytes;
        k->out_bytes = out * k->element_bytes;
        k->bytes = UINT64_MAX; /* what the others exchange is not known */
        return RMX_OK;
}

/* RMX_OK, or what is wrong with the line. The rank is cached. */
DEVICE uint32_t take_check(const struct worker *w, uint32_t ring, struct take *k) {
        const struct rank_cache *c = &shared_of(w)->rank;
        const uint32_t *line = shared_of(w)->line;
        uint32_t flags = line[RING_W_FLAGS], argument = line[RING_W_ARGUMENT], status;
        uint64_t in_offset = line_u64(line, RING_W_IN_LO), out_offset = line_u64(line, RING_W_OUT_LO);
        bool premul;

        if (line[RING_W_ZERO] || (flags & 0xffffu & ~BELL_FLAGS) || (int32_t)(c->epoch - line[RING_W_EPOCH]) < 0)
                return RMX_E_INVALID;
        if (k->operation == RING_OP_NONE || k->operation > RING_OP_BARRIER)
                return k->operation == RING_OP_GROUP ? RMX_E_UNSUPPORTED : RMX_E_INVALID;
        k->element_bytes = type_bytes(k->type);
        if (!k->element_bytes)
                return RMX_E_INVALID;
        if (operation_rooted(k->operation) || operation_p2p(k->operation) ? k->root >= c->n_ranks : k->root != 0)
                return RMX_E_INVALID;
        if (operation_reduces(k->operation) ? k->redop >= RMX_REDOP_COUNT : k->redop != 0)
                return RMX_E_INVALID;
        if (k->operation == RING_OP_BARRIER && k->count)
                return RMX_E_INVALID;
        if (!take_sizes(k, c->n_ranks, operation_rooted(k->operation) && k->root == c->rank))
                return RMX_E_INVALID;
        premul = operation_reduces(k->operation) && k->redop == RMX_PREMUL_SUM;
        if (k->operation == RING_OP_ALL_TO_ALL_V) {
                status = flags & BELL_FLAG_INLINE ? (uint32_t)RMX_E_INVALID : take_vector(w, ring, k);
                if (status)
                        return status;
        } else if (premul) {
                if (!take_argument(argument, 8))
                        return RMX_E_INVALID;
                k->scalar = cell_load((const uint64_t *)(shared_of(w)->area[ring] + BELL_OFFSET_ARGUMENT + argument));
        } else if (argument) {
                return RMX_E_INVALID;
        }
        k->inlined = flags & BELL_FLAG_INLINE;
        if (k->inlined)
                return take_inline_fits(k) ? RMX_OK : RMX_E_INVALID;
        if (k->in_bytes) {
                k->in = take_address(w, ring, line[RING_W_IN_BUFFER], in_offset, k->in_bytes);
                if (!k->in || (in_offset & (k->element_bytes - 1)))
                        return RMX_E_INVALID;
        }
        if (k->out_bytes) {
                k->out = take_address(w, ring, line[RING_W_OUT_BUFFER], out_offset, k->out_bytes);
                if (!k->out || (out_offset & (k->element_bytes - 1)))
                        return RMX_E_INVALID;
        }
        return RMX_OK;
}

/* All ranks compute the same from what they must agree on; what they disagree on differs here, but for counts beyond
 * 32 bits. */
DEVICE uint64_t take_call(const struct take *k) {
        uint32_t count = (uint32_t)k->count ^ (uint32_t)(k->count >> 32) * 0x9e3779b1u;

        if (operation_p2p(k->operation)) /* the low 16 bits are the sequence's: p2p_meet */
                return (uint64_t)count << 32 | RING_OP_SEND << 24 | k->type << 16;
        return (uint64_t)count << 32 | k->operation << 24 | k->type << 16 | k->redop << 8 | k->root;
}

/* What is told of it, besides, is its sequence: what a rank told that nobody here has heard (roots differed) must not
 * pass for a later call. */
DEVICE uint64_t take_told(uint64_t call, uint32_t sequence) {
        return call + ((uint64_t)(sequence * 0x9e3779b1u) << 32);
}
