/* SPDX-License-Identifier: MIT */
/*
 * Exchange kernels (client/hip/exchange_run.h, exchange_bulk.h), as coroutines: every operation, type, reduction and
 * number of ranks, odd counts, addresses that are not aligned, in place; request after request without anybody waiting
 * for the others; ranks that call different things, and ranks that are ended; blocks that leave and whose parts others
 * take up, and communicators that begin in different orders on GPUs that have no room for all.
 */
#include <sched.h>
#include <string.h>

#include "tests/device/fiber.h"

static void others(void) {
        fiber_yield();
}
#define sched_yield()   others() /* poll_pause() */
#define EXCHANGE_STEP() others()

/* One of four that leave takes its time. */
static void leaving(void) {
        static uint32_t times;

        for (uint32_t i = ++times % 4 ? 400 : 0; i < 400; i++)
                fiber_yield();
}
#define EXCHANGE_LEAVING() leaving()

static uint32_t patience, keepers;
#define EXCHANGE_WHILE   (patience / 4 + 1)
#define EXCHANGE_KEEPERS keepers
#define EXCHANGE_SHARED

/* A block that is on its GPU. */
struct exchange_shared {
        struct rank *rank;
        const struct call *asked;
        uint32_t calls, block, next, number;
        uint32_t here, turn; /* threads that have met, and how often all have */
        uint32_t gone;
        bool any, all_any;
        uint8_t late[EXCHANGE_LANES];
        bool used;
};

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
        uint32_t n_calls, next;
        uint32_t placed;    /* blocks of the present kernel that have got a place, all of them first to last */
        uint32_t under_way; /* that have not ended */
};

struct thread {
        struct exchange_shared *shared;
        uint32_t thread;
};

static struct rank ranks[RANKS];
static struct exchange_shared blocks[RANKS * 2 * EXCHANGE_BLOCKS];
static struct thread threads[RANKS * 2 * EXCHANGE_BLOCKS][EXCHANGE_THREADS];
static uint32_t n_ranks; /* of each communicator */
static uint32_t n_left;  /* warps, so far */

/* ---- kernels ----------------------------------------------------------------------------------------------------- */
DEVICE void exchange_meet(struct exchange_shared *shared) {
        const uint32_t turn = shared->turn;

        if (++shared->here == EXCHANGE_THREADS) {
                shared->all_any = shared->any;
                shared->any = false;
                shared->here = 0;
                shared->turn++;
        }
        while (shared->turn == turn)
                others();
}

DEVICE bool exchange_any(struct exchange_shared *shared, bool predicate) {
        shared->any |= predicate;
        n_left += predicate;
        exchange_meet(shared);
        return shared->all_any;
}

DEVICE uint32_t exchange_block(const struct exchange_shared *shared) {
        return shared->block;
}

DEVICE uint32_t exchange_thread(uint32_t thread) {
        return thread;
}

template <uint32_t N, uint32_t KIND>
static void run_way(const struct exchange_arguments *a, uint32_t t, struct exchange_shared *shared) {
        switch (exchange_way_of(a)) {
        case EXCHANGE_SHALLOW:
                exchange_all<N, KIND, 1>(a, shared->block, t, shared);
                break;
        case EXCHANGE_DEEP:
                exchange_all<N, KIND, EXCHANGE_DEPTH(N)>(a, shared->block, t, shared);
                break;
        default:
                exchange_all<N, KIND, 0>(a, shared->block, t, shared);
        }
}

template <uint32_t N>
static void run_kind(const struct exchange_arguments *a, uint32_t kind, uint32_t t, struct exchange_shared *shared) {
        switch (kind) {
        case EXCHANGE_COPY:
                run_way<N, EXCHANGE_COPY>(a, t, shared);
                break;
        case EXCHANGE_FLOAT32:
                run_way<N, EXCHANGE_FLOAT32>(a, t, shared);
                break;
        case EXCHANGE_FLOAT16:
                run_way<N, EXCHANGE_FLOAT16>(a, t, shared);
                break;
        case EXCHANGE_BFLOAT16:
                run_way<N, EXCHANGE_BFLOAT16>(a, t, shared);
                break;
        default:
                run_way<N, EXCHANGE_OTHER>(a, t, shared);
        }
}

/* The kernel of exchange.hip. */
static void thread_main(void *data) {
        const struct thread *t = (const struct thread *)data;
        struct exchange_shared *shared = t->shared;
        const struct exchange_arguments *a = &shared->asked->a;
        const uint32_t kind = shared->asked->kind;
        static void (*const run[])(const struct exchange_arguments *, uint32_t, uint32_t, struct exchange_shared *) = {
                run_kind<2>, run_kind<3>, run_kind<4>, run_kind<5>, run_kind<6>, run_kind<7>, run_kind<8>};

        run[a->n_ranks - 2](a, kind, t->thread, shared);
        if (++shared->gone == EXCHANGE_THREADS) {
                shared->rank->under_way--;
                shared->used = false;
        }
}

static void place(struct rank *rank) {
        size_t i = 0;

        while (blocks[i].used)
                i++;
        blocks[i] = {};
        blocks[i].rank = rank;
        blocks[i].asked = &rank->call[rank->next - 1];
        blocks[i].block = rank->placed++;
        blocks[i].used = true;
        rank->under_way++;
        for (uint32_t t = 0; t < EXCHANGE_THREADS; t++) {
                threads[i][t] = {&blocks[i], t};
                (void)fiber_new(thread_main, &threads[i][t]);
        }
}

static void launch(struct rank *rank) {
        rank->next++;
        rank->placed = 0;
        while (rank->placed < rank->call[rank->next - 1].a.blocks)
                place(rank);
}

/* A call that is said to be over has left nothing to do or to look at: the next one, on another stream, may begin. */
static void nothing_left(const struct rank *rank, const char *what) {
        const struct exchange_header *h = (const struct exchange_header *)(const void *)rank->area;
        uint32_t left = 0, is_late = 0;

        for (uint32_t b = 0; b < 2 * EXCHANGE_BLOCKS; b++) {
                left |= h->left[b];
                is_late |= h->is_late[b];
        }
        CHECK(!left && !is_late && !h->ended && h->late % EXCHANGE_LATE_TIME == 0,
              "%s: a call is over with %u blocks that are late, %u of them marked, parts left %u, %u ended", what,
              h->late % EXCHANGE_LATE_TIME, is_late, left, h->ended);
}

static void counted(const struct rank *rank, const char *what) {
        const struct call *call = rank->next ? &rank->call[rank->next - 1] : NULL;

        if (call && (!rank->under_way || (call->a.number && rank->host.finished[SLOT] == call->a.number)))
                nothing_left(rank, what);
}

/* Each rank's calls, one after the other, whatever the others do. */
static void run_calls(const char *what) {
        uint64_t turns = 0;

        for (bool busy = true; busy;) {
                busy = false;
                for (uint32_t r = 0; r < n_ranks; r++) {
                        counted(&ranks[r], what);
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
        patience = UINT32_MAX;
        keepers = 1;
        fiber_init(seed);
        for (uint32_t r = 0; r < RANKS / n * n; r++) {
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
        for (uint32_t r = 0; r < RANKS / n_ranks * n_ranks; r++) {
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

/* Call k of rank r, counted through all communicators. */
static void ask(const struct collective_case *c, uint32_t r, uint32_t k, uint64_t seed, uint32_t number) {
        const uint32_t first = r / n_ranks * n_ranks;
        struct rank *rank = &ranks[r];
        struct call *call = &rank->call[k];
        const struct case_buffers b = {rank->in[k], rank->out[k], rank->copy[k], 1, 2, 0, 0, BYTES_MAX * 2};
        struct client_gpu_bell bell = {};

        case_request(c, r - first, seed, &b, &call->request);
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
        CHECK(exchange_cut(&call->a, &bell, n_ranks, r - first, &call->kind), "operation %u is not exchanged",
              c->operation);
        call->a.patience = call->a.blocks > keepers ? patience : UINT32_MAX;
        for (uint32_t i = 0; i < n_ranks; i++)
                call->a.area[i] = ranks[first + i].area;
        call->a.bell_area = rank->bell;
        call->a.host = &rank->host;
        call->a.stop = &rank->stop;
        call->a.slot = SLOT;
}

/* first: rank 0 of the communicator. */
static bool right(const struct collective_case *c, uint32_t first, uint32_t k) {
        static unsigned char want[BYTES_MAX * 2];
        unsigned char *copies[RANKS];
        bool good = true;

        for (uint32_t r = 0; r < n_ranks; r++)
                copies[r] = ranks[first + r].copy[k];
        for (uint32_t r = 0; r < n_ranks && good; r++) {
                struct rank *rank = &ranks[first + r];
                const struct case_buffers b = {rank->in[k], rank->out[k], rank->copy[k], 1, 2, 0, 0, BYTES_MAX * 2};

                good = case_right(c, r, copies, &b, &rank->call[k].request, want);
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

/* leaving: warps lose their patience at once, or after a while. */
static void test_right(uint64_t seed, bool leaving) {
        const uint32_t rounds = test_full() ? 2000 : 200, before = n_left;

        for (uint32_t n = 2; n <= RANKS; n++) {
                uint32_t number = 0;

                world_new(n, mix(seed + n) | 1);
                for (uint32_t i = 0; i < rounds; i++) {
                        struct collective_case c[CALLS];
                        bool told_end[CALLS];

                        if (leaving) {
                                patience = (uint32_t[]){1, 3, 10, 40}[mix(seed + i) % 4];
                                keepers = 1 + i % 3;
                        }
                        for (uint32_t r = 0; r < n; r++)
                                ranks[r].n_calls = CALLS, ranks[r].next = 0;
                        for (uint32_t k = 0; k < CALLS; k++) {
                                c[k] = draw(n, mix(mix(seed ^ (uint64_t)n << 32) + i * CALLS + k));
                                number++;
                                told_end[k] =
                                        mix(seed + number) % 2; /* the others need not say when they are through */
                                for (uint32_t r = 0; r < n; r++)
                                        ask(&c[k], r, k, seed + i + k, told_end[k] ? number : 0);
                        }
                        run_calls("right");
                        for (uint32_t k = 0; k < CALLS; k++)
                                CHECK(right(&c[k], 0, k),
                                      "%u ranks, operation %u, type %u, reduction %u, count %lu, shift %u%s", n,
                                      c[k].operation, c[k].type, c[k].redop, (unsigned long)c[k].count, c[k].shift,
                                      c[k].in_place ? ", in place" : "");
                        for (uint32_t r = 0; r < n; r++) {
                                CHECK(!told_end[CALLS - 1] || ranks[r].host.finished[SLOT] == number,
                                      "call %u has not told its end", number);
                                CHECK(!ranks[r].host.status[SLOT], "status %u", ranks[r].host.status[SLOT]);
                                CHECK(told(&ranks[r], number, c[CALLS - 1].operation), "call %u is not told", number);
                        }
                }
                world_free();
        }
        CHECK(leaving ? n_left - before > rounds * 20 : n_left == before, "%u warps have left", n_left - before);
}

/* Numbers leave out 0, and come round: those of packets, and of chunks. */
static void test_wrap(uint64_t seed, uint32_t n, uint32_t count) {
        struct collective_case c = draw(n, mix(seed));

        world_new(n, mix(seed) | 1);
        patience = 5 + (uint32_t)mix(seed ^ n) % 200;
        c.operation = RING_OP_ALL_REDUCE;
        c.count = count;
        c.type = RMX_FLOAT32;
        c.redop = RMX_SUM;
        for (uint32_t r = 0; r < n; r++) {
                struct exchange_header *h = (struct exchange_header *)(void *)ranks[r].area;

                h->calls = h->first = UINT32_MAX - 2;
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
                CHECK(right(&c, 0, k), "call %u beyond the last number", k);
        for (uint32_t r = 0; r < n; r++) { /* the third call has had the number behind the last one */
                const struct exchange_header *h = (const struct exchange_header *)(const void *)ranks[r].area;

                CHECK(h->signature[0][(r + 1) % n] >> 32 == EXCHANGE_FIRST, "rank %u has not compared a call", r);
        }
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
                        ranks[r].host.status[SLOT] = ranks[r].host.finished[SLOT] = 0;
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
static void test_ended(uint64_t seed, bool leaving) {
        for (uint32_t i = 0; i < 3 * N_OPERATIONS; i++) {
                const struct collective_case c = draw_of(operations[i / 3], 3, mix(seed + i));

                world_new(3, mix(seed + i) | 1);
                patience = leaving ? 5 : UINT32_MAX; /* what has been taken up must end, too */
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

/* ---- GPUs without room for all ----------------------------------------------------------------------------------- */
/* One call of each communicator, all of them launched, on streams of their own, by each GPU in an order of its own. */
struct gpu {
        uint32_t order[RANKS]; /* communicators */
};

/* Of a GPU's kernels, the first one that is not all there gets the next place. */
static void gpu_place(const struct gpu *gpu, uint32_t number, uint32_t n_comms, uint32_t places) {
        uint32_t taken = 0;

        for (uint32_t i = 0; i < n_comms; i++)
                taken += ranks[gpu->order[i] * n_ranks + number].under_way;
        for (uint32_t i = 0; i < n_comms && taken < places; i++) {
                struct rank *rank = &ranks[gpu->order[i] * n_ranks + number];

                while (rank->placed < rank->call[0].a.blocks && taken < places) {
                        place(rank);
                        taken++;
                }
        }
}

/* Do all calls end? */
static bool gpus_run(const struct gpu *gpus, uint32_t n_comms, uint32_t places, uint64_t turns) {
        for (uint64_t turn = 0; turn < turns; turn++) {
                bool busy = false;

                for (uint32_t g = 0; g < n_ranks; g++)
                        gpu_place(&gpus[g], g, n_comms, places);
                for (uint32_t r = 0; r < n_comms * n_ranks; r++)
                        busy |= ranks[r].under_way || ranks[r].placed < ranks[r].call[0].a.blocks;
                if (!busy)
                        return true;
                fiber_yield();
        }
        return false;
}

/* Calls of at least so many blocks. patient: nobody leaves. */
static bool rooms(uint64_t seed, uint32_t n, uint32_t n_comms, uint32_t places, uint32_t least, bool patient) {
        struct collective_case c[RANKS];
        struct gpu gpus[RANKS];
        bool ended;

        world_new(n, mix(seed) | 1);
        patience = patient ? UINT32_MAX : 30;
        for (uint32_t i = 0; i < n_comms; i++) {
                for (uint64_t next = mix(seed + i);; next = mix(next)) {
                        c[i] = draw(n, next);
                        for (uint32_t r = 0; r < n; r++)
                                ask(&c[i], i * n + r, 0, seed + i, 1);
                        if (ranks[i * n].call[0].a.blocks >= least)
                                break;
                }
                for (uint32_t r = 0; r < n; r++)
                        ranks[i * n + r].next = 1;
        }
        for (uint32_t g = 0; g < n; g++)
                for (uint32_t i = 0; i < n_comms; i++)
                        gpus[g].order[i] = (i + g) % n_comms;
        ended = gpus_run(gpus, n_comms, places, patient ? 100000 : 20000000);
        for (uint32_t i = 0; i < n_comms && ended; i++)
                CHECK(right(&c[i], i * n, 0), "communicator %u of %u, operation %u", i, n_comms, c[i].operation);
        for (uint32_t r = 0; r < n_comms * n && !ended; r++)
                ranks[r].stop = 1;
        if (!ended)
                CHECK(gpus_run(gpus, n_comms, 4 * EXCHANGE_BLOCKS, 20000000), "the kernels do not end");
        world_free();
        return ended;
}

static void test_rooms(uint64_t seed) {
        const uint32_t rounds = test_full() ? 1000 : 100;

        for (uint32_t i = 0; i < rounds; i++) {
                const uint32_t n = 2 + i % 3, n_comms = RANKS / n;

                keepers = 1 + i % 2;
                CHECK(rooms(mix(seed + i), n, n_comms, keepers * n_comms + 1 + i / 2 % 2, 1, false),
                      "round %u: all wait for each other", i);
        }
        keepers = 1; /* with the least room, and calls that fill it, somebody has to leave */
        for (uint32_t i = 0; i < rounds; i++) {
                const uint32_t n_comms = 2 + i % 2, places = n_comms + 1, least = EXCHANGE_CHUNK_BLOCKS(2);

                CHECK(rooms(mix(seed + i), 2, n_comms, places, least, false), "round %u: all wait for all", i);
                if (i < 6)
                        CHECK(!rooms(mix(seed + i), 2, n_comms, places, least, true), "round %u: nobody leaves", i);
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
        test_right(seed, false);
        test_right(seed, true);
        for (uint32_t n = 2; n <= RANKS; n += 2) {
                test_wrap(seed, n, 50);
                test_wrap(seed, n, 500);
        }
        test_mismatch(seed);
        test_ended(seed, false);
        test_ended(seed, true);
        test_rooms(seed);
        return 0;
}
