/* SPDX-License-Identifier: MIT */
/*
 * Communicators of up to 64 ranks, which is more than a warp of NVIDIA's has threads: the interpreter with one thread a
 * warp goes over the ranks in rounds, as such a warp does. All operations on one node, over eight nodes and over 33, by
 * plans of channels alone and by staged ones, compared bit for bit; sends and receives and all_to_all_v; calls that
 * differ, where the rank that is named lies beyond the first 32.
 */
#include "tests/device/node_world.h"

extern "C" {
#include "plan/plan.h"
#include "util/type.h"
}
#include <string.h>

#include "ring/line.h"
#include "tests/device/traffic.h"

#define BYTES 6000u

static uint64_t seed;

static const uint32_t staged[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE, RING_OP_BROADCAST, RING_OP_ALL_GATHER,
                                  RING_OP_REDUCE_SCATTER};

static struct placement place(uint32_t n, uint32_t on_each, uint32_t crowd) {
        struct placement p = {};

        p.n = n;
        p.crowd = crowd;
        for (uint32_t r = 0; r < n; r++)
                p.node[r] = (uint8_t)(r / on_each);
        return p;
}

static const struct placement *where; /* of the traffic that is under way */

static struct collective_case in_node_order(uint32_t n, uint64_t random, uint64_t max_bytes) {
        struct collective_case c = case_random(n, random, max_bytes);

        c.node = where->node;
        return c;
}

static void sweep(const struct placement *p, uint32_t transport, uint32_t all_reduce, uint32_t chunks) {
        static struct traffic t;
        struct world w;

        where = p;
        world_init(&w, p, 1, transport, chunks, EMULATOR_JITTER, mix(seed + p->n * 64 + all_reduce));
        if (all_reduce >= PLAN_HIERARCHICAL_STAGED) {
                for (uint32_t operation : staged)
                        emulator_choose_nodes(w.e, w.comm, operation,
                                              operation == RING_OP_ALL_REDUCE ? all_reduce
                                                                              : (uint32_t)PLAN_HIERARCHICAL_STAGED,
                                              p->node);
        } else {
                emulator_choose(w.e, w.comm, RING_OP_ALL_REDUCE, all_reduce, transport);
        }
        traffic_init(&t, w.e, w.comm, p->n, w.session, 2, BYTES, mix(seed + p->n + transport));
        if (all_reduce >= PLAN_HIERARCHICAL_STAGED)
                t.choose = in_node_order;
        world_sweep(&w, &t, test_full() ? 6 : 1, 4, seed);
}

/* Each rank sends to the next one beyond 32, and receives from the one before, all at once. */
static void transfers(const struct placement *p, uint64_t bytes) {
        static struct emulator_request q[EMULATOR_RANKS_MAX][2];
        static uint32_t sequence[EMULATOR_RANKS_MAX][2];
        unsigned char *memory[EMULATOR_RANKS_MAX][2];
        const uint32_t n = p->n, step = 33;
        struct world w;

        world_init(&w, p, 1, STAGING_PACKET, 0u - 3, EMULATOR_JITTER, mix(seed + bytes));
        for (uint32_t r = 0; r < n; r++)
                for (uint32_t k = 0; k < 2; k++) {
                        struct emulator_request *x = &q[r][k];

                        memory[r][k] = (unsigned char *)emulator_memory(w.e, bytes);
                        for (uint64_t i = 0; i < bytes; i++)
                                memory[r][k][i] = k ? 0xa5 : (unsigned char)mix(i * 9 + r + seed);
                        *x = {};
                        x->operation = k ? RING_OP_RECV : RING_OP_SEND;
                        x->root = (r + (k ? n - step : step)) % n;
                        x->count = bytes;
                        x->type = RMX_UINT8;
                        (k ? x->out_bytes : x->in_bytes) = bytes;
                        (k ? x->out_buffer : x->in_buffer) = emulator_buffer(w.e, w.session[r], memory[r][k], bytes);
                        sequence[r][k] = emulator_ring(w.e, w.comm, r, x);
                        CHECK(sequence[r][k], "a slot is not free");
                }
        for (uint32_t r = 0; r < n; r++) {
                for (uint32_t k = 0; k < 2; k++)
                        CHECK(!emulator_wait(w.e, w.comm, r, sequence[r][k], &q[r][k]), "a transfer failed");
                CHECK(!memcmp(memory[r][1], memory[(r + n - step) % n][0], bytes), "what rank %u received is wrong", r);
                n_compared++;
        }
        world_deinit(&w);
}

/* An all_to_all_v in which each rank sends to few others, of which some lie beyond the first 32. */
static void vectors(const struct placement *p) {
        static uint64_t vector[EMULATOR_RANKS_MAX][4 * EMULATOR_RANKS_MAX];
        static struct emulator_request q[EMULATOR_RANKS_MAX];
        unsigned char *memory[EMULATOR_RANKS_MAX][2];
        uint32_t sequence[EMULATOR_RANKS_MAX];
        const uint32_t n = p->n;
        struct world w;

        world_init(&w, p, 1, STAGING_PACKET, 0, EMULATOR_JITTER, mix(seed + n));
        for (uint32_t r = 0; r < n; r++) {
                uint64_t *v = vector[r], at[2] = {0, 0};

                for (uint32_t x = 0; x < n; x++)
                        for (uint32_t k = 0; k < 2; k++) {
                                const uint64_t words = k ? mix(seed + x * 64 + r) : mix(seed + r * 64 + x);

                                v[2 * k * n + x] = words % 8 ? 0 : 1 + words % 500;
                                v[(2 * k + 1) * n + x] = at[k];
                                at[k] += v[2 * k * n + x] + 1;
                        }
                q[r] = {};
                q[r].operation = RING_OP_ALL_TO_ALL_V;
                q[r].type = RMX_UINT8;
                q[r].vector = v;
                q[r].in_bytes = at[0], q[r].out_bytes = at[1];
                for (uint32_t k = 0; k < 2; k++) {
                        memory[r][k] = (unsigned char *)emulator_memory(w.e, at[k] + 8);
                        for (uint64_t i = 0; i < at[k]; i++)
                                memory[r][k][i] = k ? 0xa5 : (unsigned char)mix(i + r * 100000 + seed);
                }
                q[r].in_buffer = emulator_buffer(w.e, w.session[r], memory[r][0], at[0]);
                q[r].out_buffer = emulator_buffer(w.e, w.session[r], memory[r][1], at[1]);
                sequence[r] = emulator_ring(w.e, w.comm, r, &q[r]);
        }
        for (uint32_t r = 0; r < n; r++)
                CHECK(!emulator_wait(w.e, w.comm, r, sequence[r], &q[r]), "an all_to_all_v failed");
        for (uint32_t r = 0; r < n; r++)
                for (uint32_t x = 0; x < n; x++) {
                        const unsigned char *got = memory[r][1] + vector[r][3 * n + x];

                        CHECK(!memcmp(got, memory[x][0] + vector[x][n + r], vector[x][r]) && got[vector[x][r]] == 0xa5,
                              "all_to_all_v: %u to %u is wrong", x, r);
                        n_compared++;
                }
        world_deinit(&w);
}

/* One rank calls something else: who hears of it is told which one it is. */
static void mismatch(const struct placement *p, uint32_t algorithm, uint32_t who) {
        static struct emulator_request q[EMULATOR_RANKS_MAX];
        static uint32_t sequence[EMULATOR_RANKS_MAX];
        static uint64_t in = 5, out[EMULATOR_RANKS_MAX][2];
        struct world w;

        world_init(&w, p, 1, STAGING_PACKET, 0, 0, mix(seed + who));
        if (algorithm >= PLAN_HIERARCHICAL_STAGED)
                emulator_choose_nodes(w.e, w.comm, RING_OP_ALL_REDUCE, algorithm, p->node);
        for (uint32_t r = 0; r < p->n; r++) {
                q[r] = {};
                q[r].operation = RING_OP_ALL_REDUCE;
                q[r].type = RMX_INT32;
                q[r].redop = r == who ? RMX_MAX : RMX_SUM;
                q[r].in_bytes = q[r].out_bytes = 8;
                q[r].count = 2;
                q[r].inlined = true;
                q[r].in = &in;
                q[r].out = &out[r];
                sequence[r] = emulator_ring(w.e, w.comm, r, &q[r]);
        }
        for (uint32_t r = 0; r < p->n; r++) {
                const uint32_t status = emulator_wait(w.e, w.comm, r, sequence[r], &q[r]);

                if (r == who)
                        continue;
                CHECK(status == (RMX_E_MISMATCH | (who + 1) << 16), "rank %u got status %x, not that rank %u differs",
                      r, status, who);
        }
        world_deinit(&w);
}

int main(void) {
        const struct placement one = place(40, 40, 8), eight = place(64, 8, 8), each = place(33, 1, 8),
                               uneven = place(41, 7, 8);

        seed = test_seed();
        sweep(&one, STAGING_PACKET, PLAN_TWO_SHOT, 0);
        sweep(&one, STAGING_BULK, PLAN_ONE_SHOT, 0u - 4);
        sweep(&eight, STAGING_PACKET, PLAN_HIERARCHICAL_STAGED_SCATTER, 0);
        sweep(&uneven, STAGING_PACKET, PLAN_HIERARCHICAL_STAGED, 0);
        sweep(&each, STAGING_BULK, PLAN_ONE_SHOT, 0);
        transfers(&uneven, 3001);
        transfers(&one, 17);
        vectors(&uneven);
        vectors(&one);
        mismatch(&one, PLAN_ONE_SHOT, 37);
        mismatch(&uneven, PLAN_HIERARCHICAL_STAGED, 38);
        printf("%llu requests compared, %llu messages between nodes\n", (unsigned long long)n_compared,
               (unsigned long long)n_carried);
        return n_compared < 100 || n_carried < 5000;
}
