/* SPDX-License-Identifier: MIT */
/*
 * What planned restarts ask of workers: limited rings are brought level, channels are empty when all ranks stand, and
 * go on after they began anew. And buffers that are retired under a request are not touched any more.
 */
#include "tests/device/collective_cases.h"

extern "C" {
#include "railmux/railmux.h"
#include "ring/line.h"
}
#include <stdlib.h>
#include <string.h>

#define N     4u
#define COUNT 24u
#define WORDS (COUNT * N)

struct rig {
        struct emulator *e;
        uint32_t session[N], comm;
        float in[N][WORDS], out[N][WORDS];
        struct emulator_request q[N];
        uint32_t sequence[N];
};

static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE,     RING_OP_BROADCAST,
                                      RING_OP_ALL_GATHER, RING_OP_ALL_TO_ALL, RING_OP_REDUCE_SCATTER};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static void rig_init(struct rig *rig, uint32_t workers, uint64_t seed) {
        memset(rig, 0, sizeof(*rig));
        rig->e = emulator_new(N, workers, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        for (uint32_t i = 0; i < N; i++)
                rig->session[i] = emulator_session(rig->e, i, 1);
        rig->comm = emulator_comm(rig->e, N, rig->session, STAGING_PACKET, 0, 0);
}

static void ring(struct rig *rig, uint32_t rank, uint32_t operation, uint32_t step) {
        struct emulator_request *q = &rig->q[rank];
        uint64_t one = COUNT * 4, all = one * N;
        bool root = rank == step % N;

        for (uint32_t i = 0; i < WORDS; i++) {
                rig->in[rank][i] = (float)(1000 * step + 100 * rank + i);
                rig->out[rank][i] = -1;
        }
        memset(q, 0, sizeof(*q));
        q->operation = operation;
        q->type = RMX_FLOAT32;
        q->redop = operation == RING_OP_ALL_REDUCE || operation == RING_OP_REDUCE || operation == RING_OP_REDUCE_SCATTER
                           ? RMX_SUM
                           : 0;
        q->root = operation == RING_OP_REDUCE || operation == RING_OP_BROADCAST ? step % N : 0;
        q->count = COUNT;
        q->in = rig->in[rank];
        q->out = rig->out[rank];
        q->inlined = true;
        q->in_bytes = operation == RING_OP_ALL_TO_ALL || operation == RING_OP_REDUCE_SCATTER ? all
                      : operation == RING_OP_BROADCAST && !root                              ? 0
                                                                                             : one;
        q->out_bytes = operation == RING_OP_ALL_TO_ALL || operation == RING_OP_ALL_GATHER ? all
                       : operation == RING_OP_REDUCE && !root                             ? 0
                                                                                          : one;
        rig->sequence[rank] = emulator_ring(rig->e, rig->comm, rank, q);
        CHECK(rig->sequence[rank], "a slot is free");
}

static void wait(struct rig *rig, uint32_t rank, uint32_t want) {
        uint32_t status = emulator_wait(rig->e, rig->comm, rank, rig->sequence[rank], &rig->q[rank]);

        CHECK(status == want, "rank %u: status %x instead of %x", rank, status, want);
}

static void run(struct rig *rig, uint32_t operation, uint32_t step) {
        for (uint32_t r = 0; r < N; r++)
                ring(rig, r, operation, step);
        for (uint32_t r = 0; r < N; r++)
                wait(rig, r, RMX_OK);
        for (uint32_t r = 0; operation == RING_OP_ALL_REDUCE && r < N; r++)
                for (uint32_t i = 0; i < COUNT; i++)
                        CHECK(rig->out[r][i] == (float)(4000 * step + 600 + 4 * i), "element %u of rank %u", i, r);
}

/* Ranks stand at different requests, are brought level, begin anew, and go on. */
static void restart(uint32_t workers, uint64_t seed) {
        static struct rig rig;
        uint32_t step = 0, first;

        rig_init(&rig, workers, seed);
        for (uint32_t round = 0; round < 3; round++) {
                for (uint32_t i = 0; i < OPERATIONS; i++)
                        run(&rig, operations[(i + round) % OPERATIONS], ++step);
                first = emulator_next(rig.e, rig.session[0]);
                emulator_limit(rig.e, rig.comm, rig.session[0], true,
                               first); /* rank 0 comes to a stand, others go on */
                step++;
                for (uint32_t r = 0; r < N; r++)
                        ring(&rig, r, RING_OP_ALL_REDUCE, step);
                for (uint32_t r = 1; r < N; r++)
                        emulator_limit(rig.e, rig.comm, rig.session[r], true, rig.sequence[r] + 1);
                for (uint32_t turn = 0; turn < 200; turn++)
                        for (uint32_t r = 0; r < N; r++) {
                                uint32_t status;

                                CHECK(!emulator_poll(rig.e, rig.comm, r, rig.sequence[r], &rig.q[r], &status),
                                      "rank %u is finished without rank 0", r);
                                CHECK(!emulator_settled(rig.e, rig.session[r], rig.sequence[r] + 1), "rank %u", r);
                        }
                CHECK(!emulator_empty(rig.e, rig.comm), "others have pushed");
                emulator_limit(rig.e, rig.comm, rig.session[0], true, rig.sequence[0] + 1);
                for (uint32_t r = 0; r < N; r++)
                        wait(&rig, r, RMX_OK);
                for (uint32_t r = 0; r < N; r++)
                        while (!emulator_settled(rig.e, rig.session[r], rig.sequence[r] + 1))
                                emulator_turn(rig.e, "a ring is not settled");
                CHECK(emulator_empty(rig.e, rig.comm), "something stands in staging");
                step++;
                for (uint32_t r = 0; r < N; r++) /* these wait for the release */
                        ring(&rig, r, RING_OP_ALL_REDUCE, step);
                for (uint32_t r = 0; r < N; r++)
                        CHECK(emulator_settled(rig.e, rig.session[r], rig.sequence[r]), "rank %u began something", r);
                emulator_renew(rig.e, rig.comm);
                for (uint32_t r = 0; r < N; r++)
                        emulator_limit(rig.e, rig.comm, rig.session[r], false, 0);
                for (uint32_t r = 0; r < N; r++)
                        wait(&rig, r, RMX_OK);
                CHECK(rig.out[2][5] == (float)(4000 * step + 600 + 20), "after the release");
        }
        emulator_free(rig.e);
}

/* Of four sessions on each of two GPUs every other one has a request under way when the kernels end. */
static void keep(uint32_t workers, uint64_t seed) {
        static struct rig rig;
        static float in[4][2][COUNT], out[4][2][COUNT];
        struct emulator_request q = {};
        uint32_t session[4][2], comm[4], sequence[4][2];

        memset(&rig, 0, sizeof(rig));
        rig.e = emulator_new(2, workers, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        for (uint32_t i = 0; i < 4; i++) {
                for (uint32_t r = 0; r < 2; r++)
                        session[i][r] = emulator_session(rig.e, r, 1);
                comm[i] = emulator_comm(rig.e, 2, session[i], STAGING_PACKET, 0, 0);
        }
        q.operation = RING_OP_ALL_REDUCE;
        q.type = RMX_FLOAT32;
        q.redop = RMX_SUM;
        q.count = COUNT;
        q.inlined = true;
        q.in_bytes = q.out_bytes = sizeof(in[0][0]);
        for (uint32_t round = 0; round < 3; round++) {
                for (uint32_t i = 0; i < 4; i++) /* all of rank 0, and of rank 1 those that do not wait */
                        for (uint32_t r = 0; r < 1 + (i + round) % 2; r++) {
                                q.in = in[i][r];
                                q.out = out[i][r];
                                sequence[i][r] = emulator_ring(rig.e, comm[i], r, &q);
                        }
                while (!emulator_rests(rig.e)) {
                }
                emulator_restart(rig.e, 0);
                emulator_restart(rig.e, 1);
                for (uint32_t i = 0; i < 4; i++) {
                        CHECK(emulator_kept(rig.e, session[i][0]) == ((i + round) % 2 == 0), "session %u", i);
                        CHECK(!emulator_kept(rig.e, session[i][1]), "session %u of the other GPU", i);
                }
                for (uint32_t i = 0; i < 4; i++)
                        for (uint32_t r = 2; r-- > 0;) {
                                q.in = in[i][r];
                                q.out = out[i][r];
                                if (r > (i + round) % 2)
                                        sequence[i][r] = emulator_ring(rig.e, comm[i], r, &q);
                                CHECK(emulator_wait(rig.e, comm[i], r, sequence[i][r], &q) == RMX_OK, "session %u", i);
                        }
                emulator_restart(rig.e, 0);
                for (uint32_t i = 0; i < 4; i++)
                        CHECK(!emulator_kept(rig.e, session[i][0]), "session %u has nothing under way", i);
        }
        emulator_free(rig.e);
}

/* Rank 1 never rings; rank 0's memory goes under its request. */
static void retire(uint32_t workers, uint64_t seed, bool output) {
        static struct rig rig;
        uint32_t session[2], in, out, sequence;
        struct emulator_request q = {};
        unsigned char *memory;

        rig_init(&rig, workers, seed);
        session[0] = emulator_session(rig.e, 0, 1);
        session[1] = emulator_session(rig.e, 1, 1);
        rig.comm = emulator_comm(rig.e, 2, session, STAGING_PACKET, 0, 0);
        memory = (unsigned char *)emulator_memory(rig.e, 65536);
        in = emulator_buffer(rig.e, session[0], memory, 32768);
        out = emulator_buffer(rig.e, session[0], memory + 32768, 32768);
        q.operation = RING_OP_ALL_REDUCE;
        q.type = RMX_FLOAT32;
        q.redop = RMX_SUM;
        q.count = 32768 / 4;
        q.in_buffer = in;
        q.out_buffer = out;
        q.in_bytes = q.out_bytes = 32768;
        sequence = emulator_ring(rig.e, rig.comm, 0, &q);
        while (!emulator_rests(rig.e)) { /* what can be done without rank 1 is done */
        }
        emulator_retire(rig.e, session[0], output ? out : in);
        CHECK(ring_status_code(emulator_wait(rig.e, rig.comm, 0, sequence, &q)) == RMX_E_INVALID, "it is answered");
        CHECK(ring_status_code(emulator_reported(rig.e, rig.comm, 0)) == RMX_E_INVALID, "it is reported");
        emulator_free(rig.e);
}

int main(void) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
                restart(1 + seed % 3 * 2, seed);
                keep(1 + seed % 3 * 2, seed);
                retire(1 + seed % 3 * 2, seed, seed & 1);
        }
        return 0;
}
