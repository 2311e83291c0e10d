/* SPDX-License-Identifier: MIT */
/* Tables that change between requests: workers keep what they have looked up, and have to look again. */
#include "tests/device/collective_cases.h"

#include <string.h>

#include "ring/line.h"

#define BYTES 65536u

struct rig {
        struct emulator *e;
        uint32_t session[2], comm;
        struct case_buffers b[2];
        unsigned char *memory[2][2], *copy[2];
        struct emulator_request q[2];
};

static unsigned char want[BYTES];

static void rig_init(struct rig *g, uint32_t workers, uint64_t seed) {
        *g = {};
        g->e = emulator_new(2, workers, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        for (uint32_t r = 0; r < 2; r++)
                g->session[r] = emulator_session(g->e, r, 1);
        g->comm = emulator_comm(g->e, 2, g->session, STAGING_PACKET, 0, 0);
        for (uint32_t r = 0; r < 2; r++) {
                struct case_buffers *b = &g->b[r];

                for (uint32_t i = 0; i < 2; i++)
                        g->memory[r][i] = (unsigned char *)emulator_memory(g->e, BYTES);
                b->in = (unsigned char *)emulator_memory(g->e, BYTES);
                b->out = g->memory[r][0];
                b->copy = g->copy[r] = (unsigned char *)emulator_memory(g->e, BYTES);
                b->in_id = emulator_buffer(g->e, g->session[r], b->in, BYTES);
                b->out_id = emulator_buffer(g->e, g->session[r], b->out, BYTES);
                b->bytes = BYTES;
        }
}

static struct collective_case sum(uint64_t count) {
        struct collective_case c = {};

        c.n = 2;
        c.operation = RING_OP_ALL_REDUCE;
        c.type = RMX_FLOAT32;
        c.count = count;
        return c;
}

static void all_reduce_of(struct rig *g, uint64_t count, uint64_t seed) {
        const struct collective_case c = sum(count);
        uint32_t sequence[2];

        for (uint32_t r = 0; r < 2; r++) {
                case_request(&c, r, seed, &g->b[r], &g->q[r]);
                sequence[r] = emulator_ring(g->e, g->comm, r, &g->q[r]);
        }
        for (uint32_t r = 0; r < 2; r++) {
                uint32_t status = emulator_wait(g->e, g->comm, r, sequence[r], &g->q[r]);

                CHECK(status == RMX_OK, "status %x", status);
        }
        for (uint32_t r = 0; r < 2; r++)
                CHECK(case_right(&c, r, g->copy, &g->b[r], &g->q[r], want), "rank %u", r);
}

/* The same line again and again, but for its sequence. */
static void all_reduce(struct rig *g, uint64_t seed) {
        all_reduce_of(g, 3000, seed);
}

/* Chunks that a request of so many bytes takes in one hop between two ranks. */
static uint64_t chunks_of(uint32_t transport, uint64_t bytes, uint32_t lanes) {
        const uint64_t share = (bytes + lanes - 1) / lanes;
        const uint64_t most = transport == STAGING_BULK        ? STAGING_BULK_CHUNK
                              : bytes <= BELL_INLINE_BYTES / 2 ? STAGING_PACKET_CHUNK / 2
                                                               : STAGING_PACKET_CHUNK;
        uint64_t part = transport == STAGING_PACKET ? 256 : 512;

        while (part < share && part < most)
                part += transport == STAGING_PACKET ? part : 512;
        return 2 * ((bytes + part - 1) / part);
}

/* The same line with every number of lanes: the parts are as large as that asks for. */
static void test_lanes(uint32_t workers, uint64_t seed) {
        static const uint64_t counts[] = {64, 750, 1024, 3000}; /* of 4 bytes */
        struct rig g;

        rig_init(&g, workers, seed);
        for (uint32_t transport = 0; transport < 2; transport++) {
                emulator_choose(g.e, g.comm, RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, transport);
                for (uint32_t i = 0; i < 4; i++)
                        for (uint32_t k = 0; k <= STAGING_DATA_LANES; k++) {
                                const uint32_t lanes = 7 * k % (STAGING_DATA_LANES + 1); /* up and down */
                                uint64_t before, moved;

                                emulator_spread(g.e, g.comm, lanes);
                                before = emulator_chunks(g.e, g.comm, transport, 0);
                                all_reduce_of(&g, counts[i], seed + k);
                                while (!emulator_rests(g.e)) { /* credit comes after the answer */
                                }
                                moved = emulator_chunks(g.e, g.comm, transport, 0) - before;
                                CHECK(moved == chunks_of(transport, 4 * counts[i], lanes ? lanes : STAGING_DATA_LANES),
                                      "transport %u, %u floats, %u lanes: %u chunks", transport, (uint32_t)counts[i],
                                      lanes, (uint32_t)moved);
                        }
        }
        emulator_free(g.e);
}

static void test_choices(uint32_t workers, uint64_t seed) {
        struct rig g;

        rig_init(&g, workers, seed);
        for (uint32_t i = 0; i < 8; i++) {
                uint64_t before[2][2];

                emulator_choose(g.e, g.comm, RING_OP_ALL_REDUCE, i & 2 ? PLAN_TWO_SHOT : PLAN_ONE_SHOT, i & 1);
                for (uint32_t k = 0; k < 4; k++)
                        before[k / 2][k % 2] = emulator_chunks(g.e, g.comm, k / 2, k % 2);
                all_reduce(&g, seed + i);
                all_reduce(&g, seed + i + 100);
                /* Which chunks have moved: of the transport that was chosen; two-shot has packets in both regions. */
                for (uint32_t k = 0; k < 4; k++)
                        CHECK((before[k / 2][k % 2] != emulator_chunks(g.e, g.comm, k / 2, k % 2)) ==
                                      (i & 2 ? k / 2 == STAGING_PACKET : k / 2 == (i & 1) && k % 2 == 0),
                              "round %u: transport %u, region %u", i, k / 2, k % 2);
        }
        emulator_free(g.e);
}

static void test_buffers(uint32_t workers, uint64_t seed) {
        struct rig g;
        uint32_t rung, status;

        rig_init(&g, workers, seed);
        for (uint32_t i = 1; i < 8; i++) {
                all_reduce(&g, seed + i);
                for (uint32_t r = 0; r < 2; r++) {
                        g.b[r].out = g.memory[r][i & 1];
                        emulator_buffer_move(g.e, g.session[r], g.b[r].out_id, g.b[r].out, BYTES);
                }
        }
        all_reduce(&g, seed);
        emulator_buffer_move(g.e, g.session[0], g.b[0].out_id, g.b[0].out + BYTES - 11999,
                             11999); /* a byte too short */
        rung = emulator_ring(g.e, g.comm, 0, &g.q[0]);
        status = emulator_wait(g.e, g.comm, 0, rung, &g.q[0]);
        CHECK(ring_status_code(status) == RMX_E_INVALID, "a buffer that is shorter now: status %x", status);
        emulator_buffer_move(g.e, g.session[0], g.b[0].out_id, NULL, 0);
        rung = emulator_ring(g.e, g.comm, 0, &g.q[0]);
        status = emulator_wait(g.e, g.comm, 0, rung, &g.q[0]);
        CHECK(ring_status_code(status) == RMX_E_INVALID, "a buffer that has gone: status %x", status);
        emulator_free(g.e);
}

/* A kernel that finds the tables as the one before it left them goes on with what that remembers of lines, but not if
 * they have changed while none ran, nor with what it has not seen itself. */
static void test_kernels(uint32_t workers, uint64_t seed) {
        struct rig g;

        rig_init(&g, workers, seed);
        for (uint32_t i = 1; i < 12; i++) {
                const bool changes = i % 3 == 0;
                uint32_t epoch[2][EMULATOR_WORKERS_MAX];

                all_reduce(&g, seed + i);
                if (i % 4 == 1) /* of two versions, the second in the midst */
                        emulator_restart(g.e, 0);
                for (uint32_t r = 0; r < 2; r++) {
                        emulator_stop(g.e, r);
                        for (uint32_t k = 0; k < workers; k++)
                                epoch[r][k] = emulator_epoch(g.e, r, k);
                        if (changes) {
                                g.b[r].out = g.memory[r][i & 1];
                                emulator_buffer_move(g.e, g.session[r], g.b[r].out_id, g.b[r].out, BYTES);
                        }
                }
                for (uint32_t r = 0; r < 2; r++)
                        emulator_start(g.e, r);
                all_reduce(&g, seed + i + 50);
                for (uint32_t r = 0; r < 2; r++)
                        for (uint32_t k = 0; k < workers; k++) {
                                while (changes && emulator_epoch(g.e, r, k) == epoch[r][k])
                                        emulator_turn(g.e, "a worker has not begun, or still remembers");
                                CHECK(changes || emulator_epoch(g.e, r, k) == epoch[r][k],
                                      "round %u, GPU %u, worker %u has forgotten", i, r, k);
                        }
        }
        emulator_free(g.e);
}

/* Aborted between two lines that are the same, and with a request under way. */
static void test_abort(uint32_t workers, uint64_t seed) {
        struct rig g;
        uint32_t rung, status;

        for (uint32_t under_way = 0; under_way < 2; under_way++) {
                rig_init(&g, workers, seed);
                all_reduce(&g, seed);
                rung = under_way ? emulator_ring(g.e, g.comm, 0, &g.q[0]) : 0;
                emulator_abort(g.e, g.comm, 0, RMX_E_ABORTED);
                if (!under_way)
                        rung = emulator_ring(g.e, g.comm, 0, &g.q[0]);
                status = emulator_wait(g.e, g.comm, 0, rung, &g.q[0]);
                CHECK(status == RMX_E_ABORTED, "status %x", status);
                emulator_free(g.e);
        }
}

int main(void) {
        const uint64_t seed = test_seed();

        for (uint32_t i = 0; i < (test_full() ? 300 : 20); i++) {
                test_choices(1 + i % 4, mix(seed + i) | 1);
                test_buffers(1 + i % 4, mix(seed + i + 1000) | 1);
                test_abort(1 + i % 4, mix(seed + i + 2000) | 1);
                test_kernels(1 + i % 4, mix(seed + i + 4000) | 1);
                if (i % 10 == 0)
                        test_lanes(1 + i / 10 % 4, mix(seed + i + 3000) | 1);
        }
        return 0;
}
