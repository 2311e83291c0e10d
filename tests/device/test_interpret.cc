/* SPDX-License-Identifier: MIT */
/*
 * The device's interpreter, compiled for the host, runs every operation, type and reduction, through packets and bulk
 * chunks, from buffers and inline, with 1 .. 8 ranks, odd counts, unaligned buffers and in place; compared bit for bit
 * with the host backend's reductions in rank order. Staging is watched (watch.h). A sample is taken ($RAILMUX_SEED);
 * RAILMUX_FULL=1 takes all.
 */
extern "C" {
#include "plan/plan.h"
#include "util/type.h"
}
#include <string.h>

#include "ring/line.h"
#include "tests/device/collective_cases.h"

#define MEMORY (1u << 20)

struct rig {
        struct emulator *e;
        uint32_t n, comm;
        struct case_buffers b[EMULATOR_RANKS_MAX];
        unsigned char *copy[EMULATOR_RANKS_MAX], *want;
        uint64_t seed;
};

static uint64_t seed;
static unsigned int n_checked;

/* One in `one_in`, chosen by the seed. */
static bool sampled(uint32_t one_in) {
        static uint64_t drawn;

        return test_full() || mix(seed * 77 + drawn++) % one_in == 0;
}

static void run(struct rig *rig, const struct collective_case *c) {
        struct emulator_request q[EMULATOR_RANKS_MAX];
        uint32_t sequence[EMULATOR_RANKS_MAX];
        uint64_t whole = (c->count * c->n + c->shift + 8) * type_size(c->type);

        rig->seed++;
        for (uint32_t r = 0; r < c->n; r++) {
                rig->b[r].bytes = whole + 64;
                case_request(c, r, rig->seed, &rig->b[r], &q[r]);
        }
        for (uint32_t r = 0; r < c->n; r++)
                sequence[r] = emulator_ring(rig->e, rig->comm, r, &q[r]);
        for (uint32_t r = 0; r < c->n; r++) {
                uint32_t status = emulator_wait(rig->e, rig->comm, r, sequence[r], &q[r]);

                CHECK(status == RMX_OK, "operation %u: rank %u got status %x", c->operation, r, status);
        }
        for (uint32_t r = 0; r < c->n; r++)
                CHECK(case_right(c, r, rig->copy, &rig->b[r], &q[r], rig->want), "wrong");
        n_checked++;
}

static void rig_init(struct rig *rig, uint32_t n, uint32_t workers, uint32_t transport, uint32_t flags) {
        uint32_t session[EMULATOR_RANKS_MAX];

        *rig = {};
        rig->n = n;
        rig->e = emulator_new(n, workers, flags | EMULATOR_WATCH, seed);
        rig->want = (unsigned char *)malloc(MEMORY);
        for (uint32_t r = 0; r < n; r++)
                session[r] = emulator_session(rig->e, r, 1);
        rig->comm = emulator_comm(rig->e, n, session, transport, 0, 0);
        for (uint32_t r = 0; r < n; r++) {
                struct case_buffers *b = &rig->b[r];

                b->in = (unsigned char *)emulator_memory(rig->e, MEMORY);
                b->out = (unsigned char *)emulator_memory(rig->e, MEMORY);
                b->copy = rig->copy[r] = (unsigned char *)malloc(MEMORY);
                b->in_id = emulator_buffer(rig->e, session[r], b->in, MEMORY);
                b->out_id = emulator_buffer(rig->e, session[r], b->out, MEMORY);
        }
}

static void rig_deinit(struct rig *rig) {
        emulator_free(rig->e);
        free(rig->want);
        for (uint32_t r = 0; r < rig->n; r++)
                free(rig->copy[r]);
}

static void sweep_operation(struct rig *rig, uint32_t operation, uint64_t count) {
        uint32_t n = rig->n, type = (uint32_t)(mix(operation * 131 + count + n) % RMX_TYPE_COUNT);
        bool any = operation == RING_OP_ALL_REDUCE || operation == RING_OP_REDUCE || operation == RING_OP_BROADCAST ||
                   operation == RING_OP_BARRIER;
        struct collective_case c = {};

        c.n = n;
        c.operation = operation;
        c.type = type;
        c.root = operation_has_root(operation) ? (uint32_t)count % n : 0;
        c.count = operation == RING_OP_BARRIER ? 0 : count;
        c.redop = operation_has_redop(operation) ? (uint32_t)count % RMX_REDOP_COUNT : 0;
        if (sampled(4))
                run(rig, &c);
        c.shift = 1;
        if (sampled(4))
                run(rig, &c);
        c.shift = 0;
        c.in_place = true;
        if (operation != RING_OP_ALL_TO_ALL && sampled(4))
                run(rig, &c);
        c.in_place = false;
        c.inlined = true;
        if (count * n * 8 <= BELL_INLINE_BYTES && (any || count * type_size(type) % 8 == 0) && sampled(4))
                run(rig, &c);
}

static void sweep_types(struct rig *rig) {
        for (uint32_t type = 0; type < RMX_TYPE_COUNT; type++)
                for (uint32_t redop = 0; redop < RMX_REDOP_COUNT; redop++) {
                        struct collective_case c = {};

                        c.n = rig->n;
                        c.operation = RING_OP_ALL_REDUCE;
                        c.type = type;
                        c.redop = redop;
                        c.count = 257;
                        if (sampled(4))
                                run(rig, &c);
                        c.inlined = true;
                        if (sampled(4))
                                run(rig, &c);
                }
}

/* The sums that have code of their own. */
static void sweep_sums(struct rig *rig) {
        static const uint32_t types[] = {RMX_FLOAT32, RMX_FLOAT16, RMX_BFLOAT16};

        for (uint32_t type : types)
                for (uint32_t way = 0; way < 3; way++) {
                        struct collective_case c = {};

                        c.n = rig->n;
                        c.operation = RING_OP_ALL_REDUCE;
                        c.type = type;
                        c.count = 776;
                        c.inlined = way == 1;
                        c.in_place = way == 2;
                        run(rig, &c);
                }
}

static void sweep(uint32_t n, uint32_t workers, uint32_t transport, uint32_t all_reduce, uint32_t flags) {
        static const uint64_t counts[] = {0, 1, 3, 8, 33, 129, 1000, 4097, 9001};
        struct collective_case last = {};
        struct rig rig;

        rig_init(&rig, n, workers, transport, flags);
        emulator_choose(rig.e, rig.comm, RING_OP_ALL_REDUCE, all_reduce, transport);
        for (uint32_t operation : collective_operations)
                for (uint64_t count : counts)
                        sweep_operation(&rig, operation, count);
        sweep_types(&rig);
        sweep_sums(&rig);
        for (uint32_t g = 0; g < n; g++)
                emulator_restart(rig.e, g);
        last.n = n;
        last.operation = RING_OP_ALL_REDUCE;
        last.type = RMX_FLOAT32;
        last.count = 777;
        run(&rig, &last);
        rig_deinit(&rig);
}

int main(void) {
        seed = test_seed();
        for (uint32_t n = 1; n <= 8; n++) {
                sweep(n, 2, STAGING_PACKET, PLAN_ONE_SHOT, n % 2 ? 0 : EMULATOR_JITTER);
                sweep(n, 1, STAGING_BULK, PLAN_TWO_SHOT, n % 2 ? EMULATOR_JITTER : 0);
                if (n <= 3 || n == 8) {
                        sweep(n, 3, STAGING_PACKET, PLAN_TWO_SHOT, EMULATOR_JITTER);
                        sweep(n, 2, STAGING_BULK, PLAN_ONE_SHOT, EMULATOR_JITTER);
                }
        }
        printf("%u requests compared\n", n_checked);
        return n_checked < 500;
}
