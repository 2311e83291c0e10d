/* SPDX-License-Identifier: MIT */
/*
 * all_to_all_v in the device's interpreter: random counts and offsets with gaps between the pieces, ranks that exchange
 * nothing, more requests at once than a worker has places for argument blocks; counts that differ between two ranks,
 * blocks that say nonsense, and a client that rewrites its block all the time.
 */
#include "tests/device/collective_cases.h"

extern "C" {
#include "plan/plan.h"
#include "util/type.h"
}
#include <string.h>

#include "ring/line.h"

#define WINDOW (TASK_VECTORS + 4u)
#define PLACE  (96u << 10)
#define STEPS  40u

static uint64_t seed;
static unsigned int n_compared;

struct rig {
        struct emulator *e;
        uint32_t n, comm, session[EMULATOR_RANKS_MAX];
        uint32_t in_id[EMULATOR_RANKS_MAX], out_id[EMULATOR_RANKS_MAX];
        unsigned char *in[EMULATOR_RANKS_MAX], *out[EMULATOR_RANKS_MAX];
};

/* One request of all ranks. */
struct exchange {
        uint32_t type, step;
        uint64_t count[EMULATOR_RANKS_MAX][EMULATOR_RANKS_MAX]; /* from, to */
        uint64_t vector[EMULATOR_RANKS_MAX][4 * EMULATOR_RANKS_MAX];
        struct emulator_request q[EMULATOR_RANKS_MAX];
        uint32_t sequence[EMULATOR_RANKS_MAX], place;
};

static void rig_init(struct rig *rig, uint32_t n, uint32_t workers, uint32_t transport, uint32_t flags) {
        *rig = {};
        rig->n = n;
        rig->e = emulator_new(n, workers, flags | EMULATOR_WATCH, seed);
        for (uint32_t r = 0; r < n; r++)
                rig->session[r] = emulator_session(rig->e, r, 1);
        rig->comm = emulator_comm(rig->e, n, rig->session, transport, 0, 0);
        for (uint32_t r = 0; r < n; r++) {
                rig->in[r] = (unsigned char *)emulator_memory(rig->e, WINDOW * PLACE);
                rig->out[r] = (unsigned char *)emulator_memory(rig->e, WINDOW * PLACE);
                rig->in_id[r] = emulator_buffer(rig->e, rig->session[r], rig->in[r], WINDOW * PLACE);
                rig->out_id[r] = emulator_buffer(rig->e, rig->session[r], rig->out[r], WINDOW * PLACE);
        }
}

/* Pieces one behind another, with a gap before some, in an order that depends on the rank. Returns the end. */
static uint64_t lay_out(uint32_t n, uint64_t random, const uint64_t *counts, uint64_t *offsets) {
        uint64_t at = 0;

        for (uint32_t k = 0; k < n; k++) {
                uint32_t p = (uint32_t)(k + random) % n;

                at += mix(random + k) % 4;
                offsets[p] = counts[p] || random % 2 ? at : UINT64_C(1) << 60; /* of nothing: anywhere */
                at += counts[p];
        }
        return at;
}

static void exchange_make(struct rig *rig, struct exchange *x, uint32_t step, uint32_t place) {
        const uint32_t n = rig->n;
        const uint64_t random = mix(seed * 31 + step * 1024 + n);
        uint32_t size;

        *x = {};
        x->step = step;
        x->place = place;
        x->type = (uint32_t)(random % RMX_TYPE_COUNT);
        size = (uint32_t)type_size(x->type);
        for (uint32_t from = 0; from < n; from++)
                for (uint32_t to = 0; to < n; to++) {
                        uint64_t draw = mix(random + 8 * from + to), most = (PLACE - 1024) / size / n;

                        x->count[from][to] = draw % 3 ? mix(draw) % ((most >> mix(draw + 1) % 10) + 1) : 0;
                }
        for (uint32_t r = 0; r < n; r++) {
                uint64_t *v = x->vector[r];
                struct emulator_request *q = &x->q[r];

                for (uint32_t p = 0; p < n; p++) {
                        v[p] = x->count[r][p];
                        v[2 * n + p] = x->count[p][r];
                }
                q->operation = RING_OP_ALL_TO_ALL_V;
                q->type = x->type;
                q->vector = v;
                q->in_bytes = lay_out(n, random + r, v, v + n) * size;
                q->out_bytes = lay_out(n, random + 3 * r, v + 2 * n, v + 3 * n) * size;
                q->in_buffer = rig->in_id[r];
                q->out_buffer = rig->out_id[r];
                q->in_offset = q->out_offset = place * PLACE + 64 + size * (step % 3);
                memset(rig->in[r] + place * PLACE, 0x77, PLACE);
                memset(rig->out[r] + place * PLACE, 0xa5, PLACE);
                for (uint32_t p = 0; p < n; p++)
                        for (uint64_t i = 0; i < v[p]; i++)
                                case_put(x->type, rig->in[r] + q->in_offset + v[n + p] * size, i,
                                         step * 64 + r * n + p);
        }
}

static void exchange_check(struct rig *rig, const struct exchange *x, uint32_t rank) {
        static unsigned char want[PLACE];
        const uint32_t n = rig->n, size = (uint32_t)type_size(x->type);
        const uint64_t *v = x->vector[rank];

        memset(want, 0xa5, PLACE);
        for (uint32_t p = 0; p < n; p++)
                for (uint64_t i = 0; i < v[2 * n + p]; i++)
                        case_put(x->type, want + x->q[rank].out_offset % PLACE + v[3 * n + p] * size, i,
                                 x->step * 64 + p * n + rank);
        CHECK(!memcmp(want, rig->out[rank] + x->place * PLACE, PLACE), "step %u: rank %u of %u has something else",
              x->step, rank, n);
        n_compared++;
}

static void sweep(uint32_t n, uint32_t workers, uint32_t transport, uint32_t flags) {
        static struct exchange x[WINDOW];
        struct rig rig;

        rig_init(&rig, n, workers, transport, flags);
        for (uint32_t step = 0; step < STEPS; step += WINDOW) {
                for (uint32_t i = 0; i < WINDOW; i++) {
                        exchange_make(&rig, &x[i], step + i, i);
                        for (uint32_t r = 0; r + 1 < n || (n == 1 && !r); r++)
                                x[i].sequence[r] = emulator_ring(rig.e, rig.comm, r, &x[i].q[r]);
                }
                emulator_turn(rig.e, "");
                if (step % 2)
                        emulator_restart(rig.e, step % n);
                for (uint32_t i = 0; i < WINDOW && n > 1; i++) /* the last one is late */
                        x[i].sequence[n - 1] = emulator_ring(rig.e, rig.comm, n - 1, &x[i].q[n - 1]);
                for (uint32_t i = 0; i < WINDOW; i++)
                        for (uint32_t r = 0; r < n; r++) {
                                uint32_t status = emulator_wait(rig.e, rig.comm, r, x[i].sequence[r], &x[i].q[r]);

                                CHECK(status == RMX_OK, "step %u: rank %u got status %x", step + i, r, status);
                                exchange_check(&rig, &x[i], r);
                        }
        }
        emulator_free(rig.e);
}

/* Rank 1 expects another count of rank 0 than is sent: both find out by themselves, or are told. */
static void mismatch(uint64_t sent, uint64_t expected) {
        static struct exchange x;
        uint32_t status[3], reported = 0;
        struct rig rig;

        rig_init(&rig, 3, 2, STAGING_BULK, EMULATOR_JITTER);
        exchange_make(&rig, &x, 1, 0);
        for (uint32_t r = 0; r < 3; r++)
                for (uint32_t i = 0; i < 12; i++)
                        x.vector[r][i] = i / 3 % 2 ? i % 3 * 9000 : 10;
        x.vector[0][1] = sent;
        x.vector[1][6 + 0] = expected;
        for (uint32_t r = 0; r < 3; r++) {
                x.q[r].type = RMX_UINT8;
                x.sequence[r] = emulator_ring(rig.e, rig.comm, r, &x.q[r]);
        }
        for (bool done[3] = {}; !done[0] || !done[1] || !done[2];) {
                for (uint32_t r = 0; r < 3; r++) {
                        done[r] = done[r] || emulator_poll(rig.e, rig.comm, r, x.sequence[r], &x.q[r], &status[r]);
                        if (!reported && (reported = emulator_reported(rig.e, rig.comm, r)))
                                for (uint32_t k = 0; k < 3; k++)
                                        emulator_abort(rig.e, rig.comm, k, reported);
                }
                emulator_turn(rig.e, "a mismatch is not found");
        }
        CHECK(reported == ring_status(RMX_E_MISMATCH, 0), "reported: %x", reported);
        CHECK(status[1] == reported, "rank 1 got status %x", status[1]);
        emulator_free(rig.e);
}

static void nonsense(void) {
        static struct exchange x;
        struct rig rig;

        rig_init(&rig, 2, 2, STAGING_BULK, 0);
        for (uint32_t kind = 0; kind < 7; kind++) {
                uint64_t *v = x.vector[0], good[8] = {4, 4, 0, 4, 4, 4, 0, 4};
                uint32_t status;

                exchange_make(&rig, &x, 1, 0);
                memcpy(v, good, sizeof(good));
                x.q[0].type = RMX_INT32;
                x.q[0].in_offset = x.q[0].out_offset = 0;
                x.q[0].in_bytes = x.q[0].out_bytes = 32;
                switch (kind) {
                case 0:
                        v[4] = 5; /* sends itself another count */
                        break;
                case 1:
                        v[1] = WINDOW * PLACE / 4;
                        break;
                case 2:
                        v[2] = UINT64_MAX - 3;
                        break;
                case 3:
                        v[7] = WINDOW * PLACE / 4 - 3;
                        break;
                case 4:
                        x.q[0].count = 1;
                        break;
                case 5:
                        x.q[0].vector = NULL; /* no block */
                        break;
                default:
                        v[0] = v[4] = UINT64_C(1) << 63;
                }
                x.sequence[0] = emulator_ring(rig.e, rig.comm, 0, &x.q[0]);
                status = emulator_wait(rig.e, rig.comm, 0, x.sequence[0], &x.q[0]);
                CHECK(status == ring_status(RMX_E_INVALID, 0), "kind %u got status %x", kind, status);
        }
        emulator_free(rig.e);
}

/* The own request may go wrong in any way, but nothing outside of the own buffers is touched (guard pages, watch). */
static void hostile(void) {
        static struct exchange x;
        uint64_t random = seed;
        struct rig rig;

        rig_init(&rig, 3, 3, STAGING_BULK, EMULATOR_JITTER);
        for (uint32_t step = 0; step < 20; step++) {
                exchange_make(&rig, &x, step, 0);
                for (uint32_t r = 0; r < 3; r++)
                        x.sequence[r] = emulator_ring(rig.e, rig.comm, r, &x.q[r]);
                for (uint32_t turn = 0; turn < 60; turn++) {
                        uint64_t *block = (uint64_t *)(emulator_area(rig.e, rig.session[0]) + BELL_OFFSET_ARGUMENT +
                                                       x.sequence[0] % BELL_DEPTH * BELL_ARGUMENT_BYTES + 64);

                        random = mix(random + turn);
                        __atomic_store_n(&block[random % 12], random % 5 ? mix(random) % (WINDOW * PLACE) : mix(random),
                                         __ATOMIC_RELAXED);
                        emulator_turn(rig.e, "a client may do that");
                }
                for (uint32_t r = 0; r < 3; r++)
                        emulator_abort(rig.e, rig.comm, r, ring_status(RMX_E_ABORTED, -1));
                for (uint32_t r = 0; r < 3; r++)
                        (void)emulator_wait(rig.e, rig.comm, r, x.sequence[r], &x.q[r]);
                rig.comm = emulator_comm(rig.e, 3, rig.session, STAGING_BULK, 0, 0);
                if (step % 8 == 7) { /* no more than so many communicators */
                        emulator_free(rig.e);
                        rig_init(&rig, 3, 3, STAGING_BULK, EMULATOR_JITTER);
                }
        }
        emulator_free(rig.e);
}

int main(void) {
        seed = test_seed();
        for (uint32_t n = 1; n <= 8; n++) {
                sweep(n, 1 + n % 3, STAGING_BULK, n % 2 ? EMULATOR_JITTER : 0);
                sweep(n, 1 + (n + 1) % 3, STAGING_PACKET, n % 2 ? 0 : EMULATOR_JITTER);
        }
        mismatch(5, 6);
        mismatch(8000, 5);
        mismatch(0, 9000);
        mismatch(9000, 0);
        nonsense();
        hostile();
        printf("%u requests compared\n", n_compared);
        return n_compared < 500;
}
