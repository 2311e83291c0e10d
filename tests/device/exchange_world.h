/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Exchange kernels as coroutines: ranks of one communicator or of several, whose calls are launched one after the other
 * or by the test itself, and what came of them. One file includes it.
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

static uint32_t patience, keepers, max_blocks = UINT32_MAX;
static bool lined = true; /* requests may go in lines */
#define EXCHANGE_WHILE   (patience / 4 + 1)
#define EXCHANGE_KEEPERS keepers
#define EXCHANGE_SHARED

/* A block that is on its GPU. */
struct exchange_shared {
        struct rank *rank;
        const struct call *asked;
        uint32_t calls, block, next, number;
        uint32_t here, turn; /* threads that have met, and how often all have */
        uint32_t gone, heard;
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
#define BYTES_MAX 12288u
#define CALLS     4u /* one after the other, in memory of their own */

struct call {
        struct exchange_arguments a;
        uint32_t kind;
        struct emulator_request request;
        uint64_t scalar;
};

/* A rank's kernels, one after the other as on a stream. */
struct rank {
        char *area, *head, *bell;
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
        case EXCHANGE_LINED:
                exchange_all<N, KIND, EXCHANGE_IN_LINES>(a, shared->block, t, shared);
                break;
        case EXCHANGE_LONG:
                exchange_all<N, KIND, EXCHANGE_IN_LONG>(a, shared->block, t, shared);
                break;
        default:
                exchange_all<N, KIND, EXCHANGE_IN_CHUNKS>(a, shared->block, t, shared);
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
        const struct exchange_header *h = (const struct exchange_header *)(const void *)rank->head;
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
                rank->head = (char *)zeroed(EXCHANGE_HEAD_BYTES);
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
                free(rank->head);
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
        CHECK(exchange_cut(&call->a, &bell, n_ranks, r - first, max_blocks, lined, &call->kind),
              "operation %u is not exchanged", c->operation);
        call->a.patience = call->a.blocks > keepers ? patience : UINT32_MAX;
        for (uint32_t i = 0; i < n_ranks; i++) {
                call->a.area[i] = ranks[first + i].area;
                call->a.head[i] = ranks[first + i].head;
        }
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
