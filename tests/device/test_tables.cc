/* SPDX-License-Identifier: MIT */
/* Tables that change between requests: workers keep what they have looked up, and have to look again. */
#include "tests/device/collective_cases.h"

#include <string.h>
#include <sys/mman.h>

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

/* ---- what a kernel has kept for the next one --------------------------------------------------------------------- */
/* The request waits for the other rank. */
static uint32_t kept(struct rig *g, const struct emulator_request *q) {
        const uint32_t rung = emulator_ring(g->e, g->comm, 0, q);

        while (!emulator_rests(g->e)) {
        }
        emulator_stop(g->e, 0);
        CHECK(emulator_kept(g->e, g->session[0]), "nothing waits");
        return rung;
}

static uint32_t goes_on(struct rig *g, uint32_t rung, const struct emulator_request *q) {
        emulator_start(g->e, 0);
        return emulator_wait(g->e, g->comm, 0, rung, q);
}

/* While no worker looks, the communicator comes to its end, and another one (`again`) has its ranks' places. */
static void test_place(uint32_t workers, uint64_t seed, bool sends, uint32_t abort, bool again) {
        const struct collective_case c = sum(3000);
        struct emulator_request q = {};
        struct rig g;
        uint32_t rung, status, pair[2];

        rig_init(&g, workers, seed);
        case_request(&c, 0, seed, &g.b[0], &q);
        if (sends) {
                q.operation = RING_OP_SEND;
                q.redop = 0;
                q.root = 1;
                q.out_buffer = 0;
                q.out_offset = q.out_bytes = 0;
        }
        rung = kept(&g, &q);
        for (uint32_t r = 0; abort && r < 2; r++)
                emulator_abort(g.e, g.comm, r, abort);
        emulator_detach(g.e, g.comm);
        if (again)
                g.comm = emulator_comm(g.e, 2, g.session, STAGING_PACKET, 0, 0);
        status = goes_on(&g, rung, &q);
        CHECK(status == (abort && !again ? abort : (uint32_t)RMX_E_ABORTED), "status %x", status);
        if (again) {
                while (!emulator_rests(g.e)) {
                }
                CHECK(emulator_empty(g.e, g.comm), "it went on as another's");
                emulator_pair(g.e, g.comm, 0, 1, true, &pair[0], &pair[1]);
                CHECK(!pair[0] && !pair[1] && !emulator_reported(g.e, g.comm, 0), "reported as another's");
                all_reduce(&g, seed + 1);
        }
        emulator_free(g.e);
}

enum other {
        OTHER_IN,    /* the input's number is that of other memory by now */
        OTHER_OUT,   /* the output's */
        OTHER_SHORT, /* of the last one of these that there is, which lies where it did, a byte is missing */
        OTHER_NOT,   /* nothing is */
        N_OTHERS
};

/* What both ranks ask for; rank 0 waits. */
static void number_request(struct rig *g, uint32_t operation, uint32_t rank, uint64_t seed,
                           struct emulator_request *q) {
        /* Sent, at, received, at; in the end 400 and 600 elements on rank 0, 350 and 500 on rank 1. */
        static const uint64_t vector[2][8] = {{100, 400, 200, 0, 100, 300, 500, 100},
                                              {300, 50, 0, 300, 400, 50, 100, 0}};
        struct collective_case c = sum(600);

        c.operation = operation;
        c.root = operation == RING_OP_BROADCAST || operation == RING_OP_SCATTER;
        case_request(&c, rank, seed, &g->b[rank], q);
        if (operation == RING_OP_ALL_TO_ALL_V) {
                q->count = 0;
                q->vector = vector[rank];
                q->in_bytes = rank ? 350 * 4 : 400 * 4;
                q->out_bytes = rank ? 500 * 4 : 600 * 4;
        }
        if (operation == RING_OP_SEND || operation == RING_OP_RECV) {
                q->operation = rank ? RING_OP_SEND + RING_OP_RECV - operation : operation;
                q->root = !rank;
                if (q->operation == RING_OP_SEND)
                        q->out_bytes = q->out_buffer = 0;
                else
                        q->in_bytes = q->in_buffer = 0;
        }
}

/* The same of memory: what lay there before may not be there any more. */
static void test_number(uint32_t workers, uint64_t seed, uint32_t operation, enum other other) {
        struct emulator_request q[2];
        uint32_t rung[2], status, id;
        unsigned char *from, *to;
        uint64_t bytes = BYTES;
        struct rig g;
        bool in;

        rig_init(&g, workers, seed);
        for (uint32_t r = 0; r < 2; r++)
                number_request(&g, operation, r, seed, &q[r]);
        in = other == OTHER_IN || (other != OTHER_OUT && !q[0].out_bytes);
        id = in ? g.b[0].in_id : g.b[0].out_id;
        from = to = in ? g.b[0].in : g.b[0].out;
        if ((in ? q[0].in_bytes : q[0].out_bytes) == 0) { /* it has none */
                emulator_free(g.e);
                return;
        }
        rung[0] = kept(&g, &q[0]);
        if (other == OTHER_SHORT || other == OTHER_NOT) {
                bytes = (in ? q[0].in_offset + q[0].in_bytes : q[0].out_offset + q[0].out_bytes) -
                        (other == OTHER_SHORT);
        } else {
                to = (unsigned char *)emulator_memory(g.e, BYTES);
                CHECK(!mprotect(from, BYTES, PROT_NONE), "mprotect");
        }
        emulator_retire(g.e, g.session[0], id);
        emulator_buffer_move(g.e, g.session[0], id, to, bytes);
        if (other == OTHER_NOT)
                rung[1] = emulator_ring(g.e, g.comm, 1, &q[1]);
        status = goes_on(&g, rung[0], &q[0]);
        CHECK(ring_status_code(status) == (other == OTHER_NOT ? RMX_OK : RMX_E_INVALID),
              "operation %u, other %u: status %x", operation, other, status);
        CHECK(emulator_reported(g.e, g.comm, 0) == status, "operation %u, other %u: reported %x", operation, other,
              emulator_reported(g.e, g.comm, 0));
        if (other == OTHER_NOT)
                CHECK(emulator_wait(g.e, g.comm, 1, rung[1], &q[1]) == RMX_OK, "operation %u: the other rank",
                      operation);
        emulator_free(g.e);
}

static void test_kept(uint32_t workers, uint64_t seed) {
        static const uint32_t operations[] = {
                RING_OP_ALL_REDUCE,     RING_OP_REDUCE,     RING_OP_BROADCAST, RING_OP_ALL_GATHER,
                RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL, RING_OP_GATHER,    RING_OP_SCATTER,
                RING_OP_ALL_TO_ALL_V,   RING_OP_SEND,       RING_OP_RECV};

        for (uint32_t i = 0; i < 8; i++)
                test_place(workers, mix(seed + i) | 1, i & 1, i & 2 ? (uint32_t)RMX_E_PEER_LOST : 0, i & 4);
        for (uint32_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
                for (uint32_t other = 0; other < N_OTHERS; other++)
                        test_number(workers, mix(seed + N_OTHERS * i + other) | 1, operations[i], (enum other)other);
}

int main(void) {
        const uint64_t seed = test_seed();

        for (uint32_t i = 0; i < (test_full() ? 300 : 20); i++) {
                test_choices(1 + i % 4, mix(seed + i) | 1);
                test_buffers(1 + i % 4, mix(seed + i + 1000) | 1);
                test_abort(1 + i % 4, mix(seed + i + 2000) | 1);
                test_kernels(1 + i % 4, mix(seed + i + 4000) | 1);
                if (i % 5 == 0)
                        test_kept(1 + i / 5 % 4, mix(seed + i + 5000) | 1);
                if (i % 10 == 0)
                        test_lanes(1 + i / 10 % 4, mix(seed + i + 3000) | 1);
        }
        return 0;
}
