/* SPDX-License-Identifier: MIT */
/*
 * Exchange kernels (client/hip/exchange_run.h, exchange_bulk.h), as coroutines: every operation, type, reduction and
 * number of ranks, odd counts, addresses that are not aligned, in place; request after request without anybody waiting
 * for the others; ranks that call different things, and ranks that are ended.
 */
#include <sched.h>
#include <string.h>

#include "tests/device/fiber.h"

static void others(void) {
        fiber_yield();
}
#define sched_yield()   others() /* poll_pause() */
#define EXCHANGE_STEP() others()
#include "client/hip/exchange_bulk.h"

#include "ring/line.h"
#include "tests/device/collective_cases.h"
#include "util/type.h"

#define RANKS     EXCHANGE_RANKS
#define SLOT      3u
#define BYTES_MAX 4096u
#define CALLS     4u /* one after the other, in memory of their own */

struct call {
        struct exchange_arguments a;
        uint32_t kind;
        struct emulator_request request;
        uint64_t scalar;
};

/* A rank's kernels, one after the other as on a stream. */
struct rank {
        char *area, *bell;
        struct bell_host host;
        uint32_t stop;
        unsigned char *in[CALLS], *out[CALLS], *copy[CALLS];
        struct call call[CALLS];
        uint32_t n_calls, next, under_way; /* threads of the present kernel */
        uint32_t left[2 * EXCHANGE_BLOCKS];
};

struct thread {
        struct rank *rank;
        const struct call *call;
        uint32_t block, thread;
};

static struct rank ranks[RANKS];
static struct thread threads[RANKS * 2 * EXCHANGE_BLOCKS * EXCHANGE_THREADS];
static uint32_t n_ranks;

/* ---- kernels ----------------------------------------------------------------------------------------------------- */
template <uint32_t N, uint32_t KIND>
static uint32_t run_way(const struct exchange_arguments *a, uint32_t b, uint32_t t) {
        switch (exchange_way_of(a)) {
        case EXCHANGE_SHALLOW:
                return exchange_run<N, KIND, 1>(a, b, t);
        case EXCHANGE_DEEP:
                return exchange_run<N, KIND, EXCHANGE_DEPTH(N)>(a, b, t);
        default:
                return chunk_run<N, KIND>(a, b, t);
        }
}

template <uint32_t N>
static uint32_t run_kind(const struct exchange_arguments *a, uint32_t kind, uint32_t b, uint32_t t) {
        switch (kind) {
        case EXCHANGE_COPY:
                return run_way<N, EXCHANGE_COPY>(a, b, t);
        case EXCHANGE_FLOAT32:
                return run_way<N, EXCHANGE_FLOAT32>(a, b, t);
        case EXCHANGE_FLOAT16:
                return run_way<N, EXCHANGE_FLOAT16>(a, b, t);
        case EXCHANGE_BFLOAT16:
                return run_way<N, EXCHANGE_BFLOAT16>(a, b, t);
        default:
                return run_way<N, EXCHANGE_OTHER>(a, b, t);
        }
}

static uint32_t run(const struct exchange_arguments *a, uint32_t kind, uint32_t b, uint32_t t) {
        switch (a->n_ranks) {
        case 2:
                return run_kind<2>(a, kind, b, t);
        case 3:
                return run_kind<3>(a, kind, b, t);
        case 4:
                return run_kind<4>(a, kind, b, t);
        case 5:
                return run_kind<5>(a, kind, b, t);
        case 6:
                return run_kind<6>(a, kind, b, t);
        case 7:
                return run_kind<7>(a, kind, b, t);
        default:
                return run_kind<8>(a, kind, b, t);
        }
}

/* The kernel of exchange.hip. */
static void thread_main(void *data) {
        const struct thread *t = (const struct thread *)data;
        uint32_t flag = run(&t->call->a, t->call->kind, t->block, t->thread);

        if (--t->rank->left[t->block] == 0) /* the block's threads have met */
                exchange_end(&t->call->a, t->block, flag);
        t->rank->under_way--;
}

static void launch(struct rank *rank) {
        const struct call *call = &rank->call[rank->next++];

        for (uint32_t b = 0; b < call->a.blocks; b++) {
                rank->left[b] = EXCHANGE_THREADS;
                for (uint32_t t = 0; t < EXCHANGE_THREADS; t++) {
                        struct thread *thread =
                                &threads[((size_t)(rank - ranks) * 2 * EXCHANGE_BLOCKS + b) * EXCHANGE_THREADS + t];

                        *thread = {rank, call, b, t};
                        rank->under_way++;
                        (void)fiber_new(thread_main, thread);
                }
        }
}

/* Each rank's calls, one after the other, whatever the others do. */
static void run_calls(const char *what) {
        uint64_t turns = 0;

        for (bool busy = true; busy;) {
                busy = false;
                for (uint32_t r = 0; r < n_ranks; r++) {
                        if (!ranks[r].under_way && ranks[r].next < ranks[r].n_calls)
                                launch(&ranks[r]);
                        busy |= ranks[r].under_way != 0;
                }
                fiber_yield();
                CHECK(++turns < 20000000, "%s: the kernels do not end", what);
        }
}

/* ---- the world --------------------------------------------------------------------------------------------------- */
static void *zeroed(size_t bytes) {
        void *address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

        CHECK(address, "no memory");
        return memset(address, 0, (bytes + 4095) / 4096 * 4096);
}

static void world_new(uint32_t n, uint64_t seed) {
        n_ranks = n;
        fiber_init(seed);
        for (uint32_t r = 0; r < n; r++) {
                struct rank *rank = &ranks[r];

                *rank = {};
                rank->area = (char *)zeroed(EXCHANGE_AREA_BYTES(n));
                rank->bell = (char *)zeroed(BELL_OFFSET_RELEASED);
                for (uint32_t k = 0; k < CALLS; k++) {
                        rank->in[k] = (unsigned char *)zeroed(BYTES_MAX * 2);
                        rank->out[k] = (unsigned char *)zeroed(BYTES_MAX * 2);
                        rank->copy[k] = (unsigned char *)zeroed(BYTES_MAX * 2);
                }
        }
}

static void world_free(void) {
        for (uint32_t r = 0; r < n_ranks; r++) {
                struct rank *rank = &ranks[r];

                free(rank->area);
                free(rank->bell);
                for (uint32_t k = 0; k < CALLS; k++) {
                        free(rank->in[k]);
                        free(rank->out[k]);
                        free(rank->copy[k]);
                }
        }
        fiber_deinit();
}

/* Call k of rank r. */
static void ask(const struct collective_case *c, uint32_t r, uint32_t k, uint64_t seed, uint32_t number) {
        struct rank *rank = &ranks[r];
        struct call *call = &rank->call[k];
        const struct case_buffers b = {rank->in[k], rank->out[k], rank->copy[k], 1, 2, 0, 0, BYTES_MAX * 2};
        struct client_gpu_bell bell = {};

        case_request(c, r, seed, &b, &call->request);
        call->scalar = call->request.scalar;
        bell.word[RING_W_HEAD] = RING_ABI << 24 | c->operation << 16 | c->type << 8 | c->redop;
        bell.word[RING_W_COUNT_LO] = (uint32_t)c->count;
        bell.word[RING_W_PEER] = operation_has_root(c->operation) ? c->root : 0;
        bell.in = call->request.in;
        bell.out = call->request.out;
        bell.in_bytes = call->request.in_bytes;
        bell.out_bytes = call->request.out_bytes;
        bell.n_arguments = c->redop == RMX_PREMUL_SUM;
        bell.argument = &call->scalar;
        bell.number = number;
        CHECK(exchange_cut(&call->a, &bell, n_ranks, r, &call->kind), "operation %u is not exchanged", c->operation);
        for (uint32_t i = 0; i < n_ranks; i++)
                call->a.area[i] = ranks[i].area;
        call->a.bell_area = rank->bell;
        call->a.host = &rank->host;
        call->a.stop = &rank->stop;
        call->a.slot = SLOT;
}

static bool right(const struct collective_case *c, uint32_t k) {
        static unsigned char want[BYTES_MAX * 2];
        unsigned char *copies[RANKS];
        bool good = true;

        for (uint32_t r = 0; r < n_ranks; r++)
                copies[r] = ranks[r].copy[k];
        for (uint32_t r = 0; r < n_ranks && good; r++) {
                const struct case_buffers b = {ranks[r].in[k], ranks[r].out[k], ranks[r].copy[k], 1, 2, 0, 0,
                                               BYTES_MAX * 2};

                good = case_right(c, r, copies, &b, &ranks[r].call[k].request, want);
        }
        return good;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER,
                                      RING_OP_ALL_TO_ALL, RING_OP_BROADCAST,      RING_OP_REDUCE};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* Has it a part for each rank? */
static bool parts(uint32_t operation) {
        return operation == RING_OP_REDUCE_SCATTER || operation == RING_OP_ALL_GATHER ||
               operation == RING_OP_ALL_TO_ALL;
}

/* A case of an operation; how many elements fit depends on it. */
static struct collective_case draw_of(uint32_t operation, uint32_t n, uint64_t random) {
        struct collective_case c = case_random(n, random, n * (BYTES_MAX - 64));

        c.operation = operation;
        c.inlined = false;
        c.shift = random >> 44 & 1 ? (uint32_t)(random >> 45 & 3) : 0;
        if (!operation_has_redop(c.operation))
                c.redop = RMX_SUM;
        else if (c.operation == RING_OP_ALL_REDUCE || c.redop == RMX_SUM) /* what has code of its own, more often */
                c.type = random >> 50 & 1
                                 ? c.type
                                 : (uint32_t[]){RMX_FLOAT32, RMX_FLOAT16, RMX_BFLOAT16}[(random >> 51 & 0xff) % 3];
        while (c.count * type_size(c.type) * (parts(c.operation) ? n : 1) > BYTES_MAX - 64)
                c.count /= 2;
        return c;
}

static struct collective_case draw(uint32_t n, uint64_t random) {
        return draw_of(operations[(random >> 40 & 0xffff) % N_OPERATIONS], n, random);
}

/* The last one that has begun, as the host sees it. */
static bool told(const struct rank *rank, uint32_t calls, uint32_t operation) {
        return rank->host.exchanged[SLOT].begun == ((uint64_t)calls << 32 | operation);
}

static void test_right(uint64_t seed) {
        const uint32_t rounds = test_full() ? 2000 : 200;

        for (uint32_t n = 2; n <= RANKS; n++) {
                uint32_t number = 0;

                world_new(n, mix(seed + n) | 1);
                for (uint32_t i = 0; i < rounds; i++) {
                        struct collective_case c[CALLS];

                        for (uint32_t r = 0; r < n; r++)
                                ranks[r].n_calls = CALLS, ranks[r].next = 0;
                        for (uint32_t k = 0; k < CALLS; k++) {
                                c[k] = draw(n, mix(mix(seed ^ (uint64_t)n << 32) + i * CALLS + k));
                                number++;
                                for (uint32_t r = 0; r < n; r++)
                                        ask(&c[k], r, k, seed + i + k, number);
                        }
                        run_calls("right");
                        for (uint32_t k = 0; k < CALLS; k++)
                                CHECK(right(&c[k], k),
                                      "%u ranks, operation %u, type %u, reduction %u, count %lu, shift %u%s", n,
                                      c[k].operation, c[k].type, c[k].redop, (unsigned long)c[k].count, c[k].shift,
                                      c[k].in_place ? ", in place" : "");
                        for (uint32_t r = 0; r < n; r++) {
                                CHECK(ranks[r].host.finished[SLOT] == number, "call %u has not told its end", number);
                                CHECK(!ranks[r].host.status[SLOT], "status %u", ranks[r].host.status[SLOT]);
                                CHECK(told(&ranks[r], number, c[CALLS - 1].operation), "call %u is not told", number);
                        }
                }
                world_free();
        }
}

/* Numbers leave out 0, and come round: those of packets, and of chunks. */
static void test_wrap(uint64_t seed, uint32_t n, uint32_t count) {
        struct collective_case c = draw(n, mix(seed));

        world_new(n, mix(seed) | 1);
        c.operation = RING_OP_ALL_REDUCE;
        c.count = count;
        c.type = RMX_FLOAT32;
        c.redop = RMX_SUM;
        for (uint32_t r = 0; r < n; r++) {
                struct exchange_header *h = (struct exchange_header *)(void *)ranks[r].area;

                h->calls = UINT32_MAX - 2;
                for (uint32_t b = 0; b < EXCHANGE_BLOCKS; b++)
                        h->sequence[b] = UINT32_MAX - 5 + b;
                for (uint32_t b = 0; b < 2 * EXCHANGE_BLOCKS; b++)
                        h->chunks[b] = UINT32_MAX - 5 + b;
                ranks[r].n_calls = CALLS;
                for (uint32_t k = 0; k < CALLS; k++)
                        ask(&c, r, k, seed + k, k + 1);
        }
        run_calls("wrap");
        for (uint32_t k = 0; k < CALLS; k++)
                CHECK(right(&c, k), "call %u beyond the last number", k);
        world_free();
}

/* One rank calls something else: all that meet it say so, and all kernels end. */
static void test_mismatch(uint64_t seed) {
        for (uint32_t i = 0; i < 48; i++) {
                const uint32_t n = 2 + i % 3, odd = i / 3 % n;
                struct collective_case c = {};

                world_new(n, mix(seed + i) | 1);
                for (uint32_t r = 0; r < n; r++) {
                        c.n = n;
                        c.operation = RING_OP_ALL_REDUCE;
                        c.type = RMX_FLOAT32;
                        c.redop = RMX_SUM;
                        c.count = i < 24 ? 150 : 400; /* in packets, in chunks */
                        if (r == odd && i % 4 == 0)
                                c.count = 3;
                        else if (r == odd && i % 4 == 1)
                                c.operation = RING_OP_ALL_TO_ALL, c.count = 20;
                        else if (r == odd && i % 4 == 2)
                                c.redop = RMX_MAX;
                        else if (r == odd)
                                c.type = RMX_INT32;
                        ranks[r].n_calls = 1;
                        ranks[r].host.status[SLOT] = r == odd ? RMX_E_LOST : 0; /* of a request before, and unread */
                        ask(&c, r, 0, seed, 1);
                }
                run_calls("mismatch");
                for (uint32_t r = 0; r < n; r++) {
                        const uint32_t status = ranks[r].host.status[SLOT];

                        CHECK(ring_status_code(status) == RMX_E_MISMATCH, "rank %u of %u: status %u", r, n, status);
                        CHECK(r == odd || ring_status_rank(status) == (int32_t)odd, "rank %u blames %d", r,
                              ring_status_rank(status));
                }
                /* The rank never exchanges again, and says so. */
                for (uint32_t r = 0; r < n; r++) {
                        ranks[r].host.status[SLOT] = 0;
                        ranks[r].next = 0;
                }
                run_calls("after a mismatch");
                for (uint32_t r = 0; r < n; r++)
                        CHECK(ring_status_code(ranks[r].host.status[SLOT]) == RMX_E_MISMATCH, "later: status %u",
                              ranks[r].host.status[SLOT]);
                world_free();
        }
}

/* A rank waits for one that never comes, until it is stopped, its area is closed, or the rank is ended. */
static void test_ended(uint64_t seed) {
        for (uint32_t i = 0; i < 3 * N_OPERATIONS; i++) {
                const struct collective_case c = draw_of(operations[i / 3], 3, mix(seed + i));

                world_new(3, mix(seed + i) | 1);
                for (uint32_t r = 0; r < 2; r++) {
                        ranks[r].n_calls = 1;
                        ask(&c, r, 0, seed, 1);
                        launch(&ranks[r]);
                }
                for (uint32_t turn = 0; turn < 3000; turn++)
                        fiber_yield();
                CHECK(ranks[0].under_way && ranks[1].under_way, "a kernel has ended without rank 2");
                CHECK(told(&ranks[0], 1, c.operation) && told(&ranks[1], 1, c.operation) && told(&ranks[2], 0, 0),
                      "nobody can tell who waits");
                for (uint32_t r = 0; r < 2; r++) {
                        if (i % 3 == 0)
                                ranks[r].stop = 1;
                        else if (i % 3 == 1)
                                ((struct bell_header *)(void *)ranks[r].bell)->closed = 1;
                        else
                                ((uint32_t *)(void *)(ranks[r].bell + BELL_OFFSET_ENDED))[SLOT] = 1;
                }
                run_calls("ended");
                for (uint32_t r = 0; r < 2; r++)
                        CHECK(ring_status_code(ranks[r].host.status[SLOT]) == RMX_E_DEVICE_LOST, "status %u",
                              ranks[r].host.status[SLOT]);
                world_free();
        }
}

/* Scatters and the like are not cut. */
static void test_cut(void) {
        struct client_gpu_bell bell = {};
        struct exchange_arguments a;
        uint32_t kind;

        bell.word[RING_W_HEAD] = RING_ABI << 24 | RING_OP_SCATTER << 16;
        CHECK(!exchange_cut(&a, &bell, 2, 0, &kind), "a scatter was cut");
}

int main(void) {
        const uint64_t seed = test_seed();

        test_cut();
        test_right(seed);
        for (uint32_t n = 2; n <= RANKS; n += 2) {
                test_wrap(seed, n, 50);
                test_wrap(seed, n, 500);
        }
        test_mismatch(seed);
        test_ended(seed);
        return 0;
}
