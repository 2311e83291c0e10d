/* SPDX-License-Identifier: MIT */
/*
 * Kernels of transfers (client/hip/exchange_pair.h), as coroutines: random transfers between ranks, of any size, at any
 * address, in groups that are cut differently on each rank, kernel after kernel; sends that end before their receives
 * have come, and such that do not; ranks that call different things, that are ended, that wait for long.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/fiber.h"

static void others(void) {
        fiber_yield();
}
#define sched_yield()      others() /* poll_pause() */
#define EXCHANGE_STEP()    others()
#define EXCHANGE_LEAVING() others()
#define EXCHANGE_SHARED
#define EXCHANGE_KEEPERS keepers
#define EXCHANGE_WHILE   12u
#define PAIR_LONG        40u

static uint32_t keepers = 4, patience = UINT32_MAX;

struct exchange_shared {
        uint32_t calls, block, next, number;
        uint32_t here, turn; /* threads that have met, and how often all have */
        uint32_t gone;       /* and those that have ended */
        uint32_t heard;
        bool any, all_any;
        uint8_t late[EXCHANGE_LANES];
};

#include "client/hip/exchange_pair.h"

#include "tests/device/collective_cases.h"
#include "util/type.h"

#define SLOT      5u
#define TRANSFERS 24u
#define BYTES_MAX 6000u
#define PLACES    (2u * PAIR_BLOCKS_OF_TWO + PAIR_CHANNELS)

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
        exchange_meet(shared);
        return shared->all_any;
}
DEVICE uint32_t exchange_block(const struct exchange_shared *shared) {
        return shared->block;
}
DEVICE uint32_t exchange_thread(uint32_t thread) {
        return thread;
}

/* ---- the world --------------------------------------------------------------------------------------------------- */
struct transfer {
        uint32_t from, to, type;
        uint64_t count;
        unsigned char *in, *out, *in_memory, *out_memory;
};

/* A rank's kernels, one after the other. */
struct rank {
        char *area, *head, *bell;
        struct bell_host host;
        uint32_t stop;
        struct pair_arguments kernel[TRANSFERS];
        uint32_t n_kernels, next;
        uint32_t under_way; /* threads of the present one */
        bool ahead;         /* the kernel ahead of the next one has been launched */
        uint32_t room;      /* blocks that run at the same time, 0: all do */
        bool backwards;     /* the last blocks begin first */
        const struct pair_arguments *present;
        uint32_t n_blocks, begun, running; /* blocks of it */
};

struct thread {
        struct rank *rank;
        const struct pair_arguments *p;
        struct exchange_shared *shared;
        uint32_t thread;
};

static struct rank ranks[EXCHANGE_RANKS];
static struct exchange_shared shareds[EXCHANGE_RANKS][PLACES];
static struct thread threads[EXCHANGE_RANKS][PLACES][EXCHANGE_THREADS];
static uint32_t n_ranks, first_number; /* such that numbers come round, sooner or later */

static void *zeroed(size_t bytes) {
        void *address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

        CHECK(address, "no memory");
        return memset(address, 0, (bytes + 4095) / 4096 * 4096);
}

static void world_new(uint32_t n, uint64_t seed) {
        n_ranks = n;
        first_number = 0xfffffff0u + (uint32_t)(mix(seed) % 8) * 2;
        fiber_init(seed);
        for (uint32_t r = 0; r < n; r++) {
                struct rank *rank = &ranks[r];

                *rank = {};
                rank->area = (char *)zeroed(EXCHANGE_AREA_BYTES(n));
                rank->head = (char *)zeroed(EXCHANGE_HEAD_BYTES);
                rank->bell = (char *)zeroed(BELL_OFFSET_RELEASED);
                for (uint32_t i = 0; i < n; i++) {
                        struct pair_words *words = (struct pair_words *)(void *)(rank->head + EXCHANGE_OFFSET_PAIR) + i;

                        words->sends = words->receives = first_number;
                        for (uint32_t k = 0; k < PAIR_CELLS; k++)
                                words->told[k] = (uint64_t)first_number << 32;
                }
                ((struct exchange_header *)(void *)rank->head)->first = first_number;
                for (size_t i = 0; i < PAIR_LANE_WORDS(n); i++)
                        ((uint32_t *)(void *)(rank->head + EXCHANGE_OFFSET_LANES))[i] = first_number;
        }
}

static void world_free(void) {
        for (uint32_t r = 0; r < n_ranks; r++) {
                free(ranks[r].area);
                free(ranks[r].head);
                free(ranks[r].bell);
        }
        fiber_deinit();
}

static void thread_main(void *data) {
        const struct thread *t = (const struct thread *)data;

        pair_all(t->p, t->thread, t->shared);
        t->rank->under_way--;
        if (++t->shared->gone == EXCHANGE_THREADS)
                t->rank->running--;
}

static void ahead_main(void *data) {
        const struct thread *t = (const struct thread *)data;

        pair_ahead(t->p, 0);
        t->rank->under_way--;
}

/* As many blocks as there is room for. */
static void launch_blocks(uint32_t r) {
        struct rank *rank = &ranks[r];
        const struct pair_arguments *p = rank->present;

        while (rank->begun < rank->n_blocks && (!rank->room || rank->running < rank->room)) {
                const uint32_t b = rank->backwards ? rank->n_blocks - 1 - rank->begun : rank->begun;

                rank->begun++;
                rank->running++;
                shareds[r][b] = {};
                shareds[r][b].block = b;
                memset(shareds[r][b].late, 0x5a, sizeof(shareds[r][b].late)); /* as shared memory is */
                shareds[r][b].next = 0x5a5a;
                for (uint32_t t = 0; t < EXCHANGE_THREADS; t++) {
                        threads[r][b][t] = {rank, p, &shareds[r][b], t};
                        rank->under_way++;
                        (void)fiber_new(thread_main, &threads[r][b][t]);
                }
        }
}

static void launch(uint32_t r) {
        struct rank *rank = &ranks[r];
        const struct pair_arguments *p = &rank->kernel[rank->next];

        if (p->ahead && !rank->ahead) {
                threads[r][0][0] = {rank, p, NULL, 0};
                rank->ahead = true;
                rank->under_way++;
                (void)fiber_new(ahead_main, &threads[r][0][0]);
                return;
        }
        rank->ahead = false;
        rank->next++;
        rank->present = p;
        rank->begun = rank->running = 0;
        rank->n_blocks = p->all.blocks;
        CHECK(p->all.blocks <= PLACES, "%u blocks", p->all.blocks);
        launch_blocks(r);
}

/* Each rank's kernels, one after the other. */
static void run_all(const char *what) {
        uint64_t turns = 0;

        for (bool busy = true; busy;) {
                busy = false;
                for (uint32_t r = 0; r < n_ranks; r++) {
                        launch_blocks(r);
                        if (!ranks[r].under_way && ranks[r].next < ranks[r].n_kernels)
                                launch(r);
                        busy |= ranks[r].under_way != 0;
                }
                fiber_yield();
                CHECK(++turns < 20000000, "%s: the kernels do not end", what);
        }
}

static struct client_gpu_bell bell_of(const struct transfer *t, bool sends, uint32_t number) {
        struct client_gpu_bell bell = {};

        bell.word[RING_W_HEAD] = RING_ABI << 24 | (sends ? RING_OP_SEND : RING_OP_RECV) << 16 | t->type << 8;
        bell.word[RING_W_COUNT_LO] = (uint32_t)t->count;
        bell.word[RING_W_PEER] = sends ? t->to : t->from;
        bell.in = sends ? t->in : NULL;
        bell.out = sends ? NULL : t->out;
        bell.in_bytes = sends ? t->count * type_size(t->type) : 0;
        bell.out_bytes = sends ? 0 : t->count * type_size(t->type);
        bell.number = number;
        return bell;
}

static void kernel_place(uint32_t r, struct pair_arguments *p) {
        struct rank *rank = &ranks[r];

        for (uint32_t i = 0; i < n_ranks; i++) {
                p->all.area[i] = ranks[i].area;
                p->all.head[i] = ranks[i].head;
        }
        p->all.bell_area = rank->bell;
        p->all.host = &rank->host;
        p->all.stop = &rank->stop;
        p->all.slot = SLOT;
        p->all.patience = p->all.blocks > keepers ? patience : UINT32_MAX;
}

static void kernel_add(uint32_t r, const struct client_gpu_bell *bells, uint32_t n, uint32_t max_blocks) {
        struct pair_arguments *p = &ranks[r].kernel[ranks[r].n_kernels++];

        pair_cut(p, bells, n, n_ranks, r, max_blocks);
        kernel_place(r, p);
}

static unsigned char byte_of(uint32_t transfer, uint64_t i) {
        return (unsigned char)(mix(transfer * UINT64_C(7919) + i / 8) >> (8 * (i % 8)));
}

static struct transfer transfer_new(uint32_t i, uint32_t from, uint32_t to, uint64_t random) {
        struct transfer t = {from, to, (uint32_t)(random % RMX_TYPE_COUNT), 0, NULL, NULL, NULL, NULL};
        const uint64_t size = type_size(t.type), most = random >> 8 & 3 ? 300 : BYTES_MAX;

        t.count = (random >> 10 & 7) == 0 ? 0 : mix(random) % (most / size);
        t.in_memory = (unsigned char *)zeroed(BYTES_MAX + 128);
        t.out_memory = (unsigned char *)zeroed(BYTES_MAX + 128);
        t.in = t.in_memory + (random >> 16 & 1 ? 0 : (random >> 17 & 3) * size);
        t.out = t.out_memory + 64 + (random >> 20 & 1 ? 0 : (random >> 21 & 3) * size);
        if (t.count * size < 100 && random >> 24 & 1)
                t.out++; /* what is small may lie anywhere */
        memset(t.out_memory, 0xa5, BYTES_MAX + 128);
        for (uint64_t k = 0; k < t.count * size; k++)
                t.in[k] = byte_of(i, k);
        return t;
}

static void transfer_free(struct transfer *t) {
        free(t->in_memory);
        free(t->out_memory);
}

static bool right(const struct transfer *t, uint32_t i) {
        const uint64_t bytes = t->count * type_size(t->type);

        for (unsigned char *at = t->out_memory; at < t->out_memory + BYTES_MAX + 128; at++) {
                const bool inside = at >= t->out && at < t->out + bytes;

                if (*at != (inside ? byte_of(i, (uint64_t)(at - t->out)) : 0xa5))
                        return false;
        }
        return true;
}

/* How soon blocks leave, and how many do not. */
static void patience_choose(uint64_t random) {
        static const uint32_t some[] = {12, 50, 400, UINT32_MAX};

        patience = some[random % 4];
        keepers = 1 + (uint32_t)(random >> 8) % 4;
}

/* Nothing of what blocks tell each other about leaving is left behind. */
static void check_nothing_left(void) {
        for (uint32_t r = 0; r < n_ranks; r++) {
                const struct exchange_header *own = (const struct exchange_header *)(const void *)ranks[r].head;

                CHECK(own->late % EXCHANGE_LATE_TIME == 0, "rank %u: %u are late", r, own->late % EXCHANGE_LATE_TIME);
                for (uint32_t i = 0; i < EXCHANGE_MARKS; i++)
                        CHECK(!own->is_late[i] && !own->left[i], "rank %u: block %u is %u late, %u left", r, i,
                              own->is_late[i], own->left[i]);
        }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_right(uint64_t seed) {
        const uint32_t rounds = test_rounds(60, 600);

        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n += n < 4 ? 1 : 2) { /* blocks that leave, too */
                uint32_t number = 0;

                world_new(n, mix(seed + n) | 1);
                for (uint32_t round = 0; round < rounds; round++) {
                        const uint32_t max_blocks = round % 3 ? UINT32_MAX : 1 + (uint32_t)mix(seed + round) % 40;
                        struct transfer t[TRANSFERS];

                        patience_choose(mix(seed * 3 + round));
                        for (uint32_t i = 0; i < TRANSFERS; i++) {
                                const uint64_t random = mix(mix(seed ^ n) + round * TRANSFERS + i);
                                const uint32_t from = (uint32_t)(random >> 32) % n;

                                t[i] = transfer_new(i, from, (from + 1 + (uint32_t)(random >> 40) % (n - 1)) % n,
                                                    mix(random));
                        }
                        number++;
                        for (uint32_t r = 0; r < n; r++) {
                                struct client_gpu_bell bells[TRANSFERS];
                                uint32_t n_bells = 0;

                                ranks[r].n_kernels = ranks[r].next = 0;
                                for (uint32_t i = 0; i < TRANSFERS; i++) {
                                        if (t[i].from != r && t[i].to != r)
                                                continue;
                                        bells[n_bells++] = bell_of(&t[i], t[i].from == r, number);
                                        if (mix(seed + round * 100 + r * 31 + i) % 3)
                                                continue;
                                        kernel_add(r, bells, n_bells, max_blocks);
                                        n_bells = 0;
                                }
                                if (n_bells)
                                        kernel_add(r, bells, n_bells, max_blocks);
                        }
                        run_all("right");
                        for (uint32_t i = 0; i < TRANSFERS; i++) {
                                CHECK(right(&t[i], i), "%u ranks, %lu elements of type %u, rank %u to %u", n,
                                      (unsigned long)t[i].count, t[i].type, t[i].from, t[i].to);
                                transfer_free(&t[i]);
                        }
                        for (uint32_t r = 0; r < n; r++) {
                                CHECK(!ranks[r].host.status[SLOT], "status %u", ranks[r].host.status[SLOT]);
                                CHECK(!ranks[r].n_kernels || ranks[r].host.finished[SLOT] == number, "no end is told");
                                CHECK(!ranks[r].host.exchanged[SLOT].pair, "rank %u is said to wait", r);
                        }
                        check_nothing_left();
                }
                world_free();
        }
}

/* GPUs that have room for fewer blocks than kernels have, which begin with others on each: only as blocks leave are the
 * two ends of a lane there sooner or later. Small things are among it, too, and kernels behind. */
static void test_room(uint64_t seed) {
        const uint32_t rounds = test_rounds(40, 400);
        uint32_t times = 0;

        for (uint32_t round = 0; round < rounds; round++) {
                const uint32_t n = 2 + round % 3;
                struct transfer t[TRANSFERS * 2];
                uint32_t n_transfers = 0;

                world_new(n, mix(seed + round) | 1);
                patience_choose(round & 1 ? 0 : 1);
                keepers = 1 + round % 3;
                for (uint32_t from = 0; from < n; from++)
                        for (uint32_t to = 0; to < n; to++)
                                for (uint32_t i = 0; i < (from != to ? 3 : 0); i++) {
                                        const uint64_t random = mix(seed ^ (round * 100 + n_transfers));

                                        t[n_transfers] = transfer_new(n_transfers, from, to,
                                                                      (random & ~UINT64_C(0x1f00)) | 0x400);
                                        n_transfers++;
                                }
                for (uint32_t r = 0; r < n; r++) {
                        for (uint32_t kernel = 0; kernel < 2; kernel++) {
                                struct client_gpu_bell bells[TRANSFERS * 2];
                                uint32_t n_bells = 0;

                                for (uint32_t i = 0; i < n_transfers; i++)
                                        if ((t[i].from == r || t[i].to == r) && (i % 3 == 2) == (kernel == 1))
                                                bells[n_bells++] = bell_of(&t[i], t[i].from == r, round + 1);
                                kernel_add(r, bells, n_bells, UINT32_MAX);
                        }
                        ranks[r].room = keepers + 1;
                        ranks[r].backwards = r % 2;
                }
                run_all("room");
                for (uint32_t i = 0; i < n_transfers; i++) {
                        CHECK(right(&t[i], i), "%u ranks, %lu elements, rank %u to %u", n, (unsigned long)t[i].count,
                              t[i].from, t[i].to);
                        transfer_free(&t[i]);
                }
                for (uint32_t r = 0; r < n; r++) {
                        times += ((const struct exchange_header *)(const void *)ranks[r].head)->late /
                                 EXCHANGE_LATE_TIME;
                        CHECK(!ranks[r].host.status[SLOT], "status %u", ranks[r].host.status[SLOT]);
                        CHECK(ranks[r].host.finished[SLOT] == round + 1, "no end is told");
                        CHECK(!ranks[r].host.exchanged[SLOT].pair, "rank %u is said to wait", r);
                }
                check_nothing_left();
                world_free();
        }
        CHECK(times > rounds, "only %u parts were left", times);
        patience = UINT32_MAX;
        keepers = 4;
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */
#define PIECE_MAX 500u
#define GAP       3u /* elements between pieces */

struct collective {
        uint32_t operation, type, root;
        uint64_t count[EXCHANGE_RANKS][EXCHANGE_RANKS]; /* from, to */
        unsigned char *in[EXCHANGE_RANKS], *out[EXCHANGE_RANKS];
        uint64_t vector[EXCHANGE_RANKS][4 * EXCHANGE_RANKS];
};

static bool has_piece(const struct collective *c, uint32_t from, uint32_t to) {
        return c->operation == RING_OP_ALL_TO_ALL_V || c->root == (c->operation == RING_OP_GATHER ? to : from);
}

/* In elements: where the piece lies that goes from one to the other. */
static uint64_t place_in(const struct collective *c, uint32_t from, uint32_t to) {
        uint64_t at = 0;

        if (c->operation == RING_OP_GATHER)
                return 0;
        for (uint32_t r = 0; r < to; r++)
                at += c->count[from][r] + (c->operation == RING_OP_ALL_TO_ALL_V ? GAP : 0);
        return at;
}

static uint64_t place_out(const struct collective *c, uint32_t from, uint32_t to) {
        uint64_t at = 0;

        if (c->operation == RING_OP_SCATTER)
                return 0;
        for (uint32_t r = 0; r < from; r++)
                at += c->count[r][to] + (c->operation == RING_OP_ALL_TO_ALL_V ? GAP : 0);
        return at;
}

static void collective_new(struct collective *c, uint64_t random) {
        const uint32_t n = n_ranks;
        const uint64_t same = mix(random) % PIECE_MAX;

        *c = {};
        c->operation = (uint32_t[]){RING_OP_ALL_TO_ALL_V, RING_OP_GATHER, RING_OP_SCATTER}[random % 3];
        c->type = (uint32_t)(random >> 8) % RMX_TYPE_COUNT;
        c->root = (uint32_t)(random >> 16) % n;
        for (uint32_t from = 0; from < n; from++)
                for (uint32_t to = 0; to < n; to++)
                        c->count[from][to] = c->operation != RING_OP_ALL_TO_ALL_V ? same
                                             : mix(random + from * n + to) % 3
                                                     ? mix(random ^ (from * n + to)) % PIECE_MAX
                                                     : 0;
        for (uint32_t r = 0; r < n; r++) {
                const size_t bytes = (PIECE_MAX + GAP) * EXCHANGE_RANKS * 8, size = type_size(c->type);

                c->in[r] = (unsigned char *)zeroed(bytes);
                c->out[r] = (unsigned char *)zeroed(bytes);
                memset(c->out[r], 0x5a, bytes);
                for (uint32_t i = 0; i < n; i++) {
                        c->vector[r][i] = c->count[r][i];
                        c->vector[r][n + i] = place_in(c, r, i);
                        c->vector[r][2 * n + i] = c->count[i][r];
                        c->vector[r][3 * n + i] = place_out(c, i, r);
                        if (has_piece(c, r, i))
                                for (uint64_t k = 0; k < c->count[r][i] * size; k++)
                                        c->in[r][place_in(c, r, i) * size + k] =
                                                byte_of(c->operation == RING_OP_GATHER ? r : r * n + i, k);
                }
        }
}

static void collective_add(const struct collective *c, uint32_t r, uint32_t number, uint32_t max_blocks) {
        struct pair_arguments *p = &ranks[r].kernel[ranks[r].n_kernels++];
        struct client_gpu_bell bell = {};

        bell.word[RING_W_HEAD] = RING_ABI << 24 | c->operation << 16 | c->type << 8;
        bell.word[RING_W_COUNT_LO] = (uint32_t)c->count[0][0];
        bell.word[RING_W_PEER] = c->root;
        bell.in = c->in[r];
        bell.out = c->out[r];
        bell.argument = c->operation == RING_OP_ALL_TO_ALL_V ? c->vector[r] : NULL;
        bell.number = number;
        CHECK(pair_cut_collective(p, &bell, n_ranks, r, max_blocks), "operation %u is not cut", c->operation);
        kernel_place(r, p);
}

/* All that is to be in a rank's output, and nothing else. */
static bool collective_right(const struct collective *c, uint32_t r) {
        const size_t bytes = (PIECE_MAX + GAP) * EXCHANGE_RANKS * 8, size = type_size(c->type);
        unsigned char *want = (unsigned char *)zeroed(bytes);
        bool good;

        memset(want, 0x5a, bytes);
        for (uint32_t from = 0; from < n_ranks; from++)
                for (uint64_t k = 0; has_piece(c, from, r) && k < c->count[from][r] * size; k++)
                        want[place_out(c, from, r) * size + k] =
                                byte_of(c->operation == RING_OP_GATHER ? from : from * n_ranks + r, k);
        good = !memcmp(want, c->out[r], bytes);
        free(want);
        return good;
}

/* Several, one after the other, with transfers of the same ranks between them. */
static void test_collectives(uint64_t seed) {
        static struct collective c[3];

        for (uint32_t i = 0; i < test_rounds(40, 400); i++) {
                const uint32_t n = 2 + i % (EXCHANGE_RANKS - 1), max_blocks = i % 3 ? UINT32_MAX : 1 + i;

                world_new(n, mix(seed + i) | 1);
                patience_choose(mix(seed * 7 + i));
                for (uint32_t k = 0; i % 4 == 0 && k < n; k++) {
                        ranks[k].room = keepers + 1;
                        ranks[k].backwards = k % 2;
                        patience = 20;
                }
                for (uint32_t k = 0; k < 3; k++)
                        collective_new(&c[k], mix(seed * 5 + i * 3 + k));
                for (uint32_t k = 0; k < 3; k++) {
                        struct transfer t = transfer_new(k, k % n, (k + 1) % n, mix(seed + k));

                        for (uint32_t r = 0; r < n; r++) {
                                struct client_gpu_bell bell = bell_of(&t, t.from == r, 2 * k + 1);

                                ranks[r].n_kernels = ranks[r].next = 0;
                                if (t.from == r || t.to == r)
                                        kernel_add(r, &bell, 1, max_blocks);
                                collective_add(&c[k], r, 2 * k + 2, max_blocks);
                        }
                        run_all("collectives");
                        CHECK(right(&t, k), "a transfer between collectives");
                        transfer_free(&t);
                        for (uint32_t r = 0; r < n; r++) {
                                CHECK(collective_right(&c[k], r), "operation %u of type %u, root %u, rank %u of %u",
                                      c[k].operation, c[k].type, c[k].root, r, n);
                                CHECK(ranks[r].host.finished[SLOT] == 2 * k + 2, "no end is told");
                                CHECK(!ranks[r].host.status[SLOT], "status %u", ranks[r].host.status[SLOT]);
                        }
                        check_nothing_left();
                }
                for (uint32_t k = 0; k < 3; k++)
                        for (uint32_t r = 0; r < n; r++) {
                                free(c[k].in[r]);
                                free(c[k].out[r]);
                        }
                world_free();
        }
        patience = UINT32_MAX;
        keepers = 4;
}

/* Ranks that name different roots find out when one takes what an earlier call has sent. */
static void test_roots(uint64_t seed) {
        static struct collective c[2];

        for (uint32_t i = 0; i < 12; i++) {
                const uint32_t n = 2 + i % 3, operation = i % 2 ? RING_OP_GATHER : RING_OP_SCATTER;
                bool found = false;

                world_new(n, mix(seed + i) | 1);
                for (uint32_t k = 0; k < 2; k++) {
                        collective_new(&c[k],
                                       mix(seed * 7 + i * 2 + k) / 3 * 3 + (operation == RING_OP_GATHER ? 1 : 2));
                        CHECK(c[k].operation == operation, "another operation");
                        c[k].type = RMX_FLOAT32;
                        for (uint32_t from = 0; from < n; from++)
                                for (uint32_t to = 0; to < n; to++)
                                        c[k].count[from][to] = 9;
                }
                for (uint32_t r = 0; r < n; r++) {
                        /* At first nobody is told to receive: each scatters itself, or sends to the next one. */
                        c[0].root = operation == RING_OP_SCATTER ? r : (r + 1) % n;
                        c[1].root = 0;
                        ranks[r].n_kernels = ranks[r].next = 0;
                        collective_add(&c[0], r, 1, UINT32_MAX);
                        collective_add(&c[1], r, 2, UINT32_MAX);
                }
                run_all("roots");
                for (uint32_t r = 0; r < n; r++)
                        found |= ring_status_code(ranks[r].host.status[SLOT]) == RMX_E_MISMATCH;
                CHECK(found, "operation %u: different roots are not found out", operation);
                for (uint32_t k = 0; k < 2; k++)
                        for (uint32_t r = 0; r < n; r++) {
                                free(c[k].in[r]);
                                free(c[k].out[r]);
                        }
                world_free();
        }
}

/* A little is sent before anybody receives; much waits, and that is said; what comes then is right. */
static void test_early(uint64_t seed) {
        for (uint32_t i = 0; i < 12; i++) {
                const uint32_t n = 2 + i % 3;
                struct transfer t = transfer_new(1, 1, 0, 0x30000 | RMX_INT8);
                struct client_gpu_bell bell;
                bool much = i % 2, said = false;

                world_new(n, mix(seed + i) | 1);
                t.type = RMX_INT8;
                t.count = much ? BYTES_MAX : 60;
                for (uint64_t k = 0; k < t.count; k++)
                        t.in[k] = byte_of(1, k);
                bell = bell_of(&t, true, 1);
                kernel_add(1, &bell, 1, much ? 1 : UINT32_MAX);
                launch(1);
                for (uint32_t turn = 0; turn < 20000 && ranks[1].under_way; turn++) {
                        const uint64_t pair = ranks[1].host.exchanged[SLOT].pair;

                        said |= pair == (UINT64_C(1) << 32 | 0 << 8 | 1 << 1 | 1);
                        CHECK(!pair || said, "it says that it waits for 0x%lx", (unsigned long)pair);
                        fiber_yield();
                }
                CHECK(much == (ranks[1].under_way != 0), "%lu bytes", (unsigned long)t.count);
                CHECK(said == much, "nobody can tell who waits");
                bell = bell_of(&t, false, 1);
                kernel_add(0, &bell, 1, much ? 1 : UINT32_MAX);
                run_all("early");
                CHECK(right(&t, 1), "%lu bytes", (unsigned long)t.count);
                CHECK(!ranks[1].host.exchanged[SLOT].pair, "it is still said to wait");
                transfer_free(&t);
                world_free();
        }
}

/* Who receives before anybody sends says whom it waits for, in packets and in chunks, until it has come. */
static void test_late(uint64_t seed) {
        for (uint32_t i = 0; i < 8; i++) { /* blocks that leave, too */
                struct transfer t = transfer_new(1, 1, 0, 0x30000 | RMX_INT8);
                struct client_gpu_bell bell;
                bool said = false;

                world_new(2, mix(seed + i) | 1);
                patience = i < 4 ? UINT32_MAX : 20;
                keepers = i < 4 ? 4 : 1;
                t.type = RMX_INT8;
                t.count = i % 2 ? 300 : 60;
                for (uint64_t k = 0; k < t.count; k++)
                        t.in[k] = byte_of(1, k);
                bell = bell_of(&t, false, 1);
                kernel_add(0, &bell, 1, UINT32_MAX);
                launch(0);
                for (uint32_t turn = 0; turn < 20000 && !said; turn++) {
                        said = ranks[0].host.exchanged[SLOT].pair == (UINT64_C(1) << 32 | 1 << 8 | 0 << 1 | 1);
                        fiber_yield();
                }
                CHECK(said, "nobody can tell who waits for %lu bytes", (unsigned long)t.count);
                bell = bell_of(&t, true, 1);
                kernel_add(1, &bell, 1, UINT32_MAX);
                run_all("late");
                CHECK(right(&t, 1), "%lu bytes", (unsigned long)t.count);
                CHECK(!ranks[0].host.exchanged[SLOT].pair, "it is still said to wait");
                transfer_free(&t);
                world_free();
        }
        patience = UINT32_MAX;
        keepers = 4;
}

/* A kernel that receives large things is held back until one of them comes, and goes on with that one then. */
static void test_ahead(uint64_t seed) {
        for (uint32_t i = 0; i < 8; i++) {
                const uint32_t first = 1 + i % 2; /* who sends, */
                const bool small = i / 2 % 2;     /* beside something that is not waited for ahead */
                struct transfer t[3];
                struct client_gpu_bell bells[2], bell;

                world_new(3, mix(seed + i) | 1);
                for (uint32_t r = 1; r < 3; r++) {
                        t[r] = transfer_new(r, r, 0, 0x30000 | RMX_INT8);
                        t[r].type = RMX_INT8;
                        t[r].count =
                                small && r != first ? PAIR_AHEAD_BYTES - 1 : PAIR_AHEAD_BYTES + mix(seed + r) % 2000;
                        for (uint64_t k = 0; k < t[r].count; k++)
                                t[r].in[k] = byte_of(r, k);
                        bells[r - 1] = bell_of(&t[r], false, 1);
                }
                kernel_add(0, bells, 2, UINT32_MAX);
                CHECK(ranks[0].kernel[0].ahead == !small, "of %lu and %lu bytes", (unsigned long)t[1].count,
                      (unsigned long)t[2].count);
                launch(0);
                for (uint32_t turn = 0; turn < 2000; turn++)
                        fiber_yield();
                CHECK(small || ranks[0].under_way == 1, "%u threads wait", ranks[0].under_way);
                bell = bell_of(&t[first], true, 1);
                kernel_add(first, &bell, 1, UINT32_MAX);
                for (uint32_t turn = 0; turn < 2000000 && !right(&t[first], first); turn += 100) {
                        for (uint32_t r = 0; r < 2; r++) {
                                const uint32_t rank = r ? first : 0;

                                if (!ranks[rank].under_way && ranks[rank].next < ranks[rank].n_kernels)
                                        launch(rank);
                        }
                        for (uint32_t k = 0; k < 100; k++)
                                fiber_yield();
                }
                CHECK(right(&t[first], first), "it waits for both");
                CHECK(ranks[0].under_way, "it does not wait for the other one");
                bell = bell_of(&t[3 - first], true, 1);
                kernel_add(3 - first, &bell, 1, UINT32_MAX);
                run_all("ahead");
                CHECK(right(&t[3 - first], 3 - first), "the second one");
                CHECK(!ranks[0].host.exchanged[SLOT].pair, "it is still said to wait");
                for (uint32_t r = 1; r < 3; r++)
                        transfer_free(&t[r]);
                world_free();
        }
}

/* Whose block has left a lane before says later, too, who is waited for. */
static void test_late_again(uint64_t seed) {
        for (uint32_t i = 0; i < 6; i++) {
                struct transfer t[2];
                struct client_gpu_bell bells[2];
                uint64_t turn = 0;

                world_new(2, mix(seed + i) | 1);
                patience = 20;
                keepers = 1;
                for (uint32_t k = 0; k < 2; k++) {
                        t[k] = transfer_new(k, 1, 0, 0x30000 | RMX_INT8);
                        t[k].type = RMX_INT8;
                        t[k].count = k && i % 2 ? 60 : 500;
                        for (uint64_t n = 0; n < t[k].count; n++)
                                t[k].in[n] = byte_of(k, n);
                        bells[k] = bell_of(&t[k], false, 1);
                }
                kernel_add(0, bells, 2, UINT32_MAX);
                for (uint32_t k = 0; k < 2; k++) {
                        const struct client_gpu_bell bell = bell_of(&t[k], true, 1);

                        for (uint32_t step = 0; step < 200000 && turn != k + 1; step++) {
                                if (!ranks[0].under_way && ranks[0].next < ranks[0].n_kernels)
                                        launch(0);
                                launch_blocks(0);
                                turn = ranks[0].host.exchanged[SLOT].pair >> 32;
                                fiber_yield();
                        }
                        CHECK(turn == k + 1, "nobody can tell who waits for transfer %u", k);
                        kernel_add(1, &bell, 1, UINT32_MAX);
                        for (uint32_t step = 0; step < 2000000 && !(right(&t[k], k) && !ranks[1].under_way); step++) {
                                if (!ranks[1].under_way && ranks[1].next < ranks[1].n_kernels)
                                        launch(1);
                                launch_blocks(0);
                                for (uint32_t n = 0; n < 50; n++)
                                        fiber_yield();
                        }
                }
                run_all("late again");
                for (uint32_t k = 0; k < 2; k++) {
                        CHECK(right(&t[k], k), "transfer %u", k);
                        transfer_free(&t[k]);
                }
                CHECK(!ranks[0].host.exchanged[SLOT].pair, "it is still said to wait");
                check_nothing_left();
                world_free();
        }
        patience = UINT32_MAX;
        keepers = 4;
}

/* Of two channels that wait one is named, and stays named; when that one goes on, the other. */
static void test_both_wait(uint64_t seed) {
        for (uint32_t i = 0; i < 12; i++) {
                struct transfer out = transfer_new(1, 0, 1, 0x30000 | RMX_INT8), in = transfer_new(2, 1, 0, 0x30000);
                struct client_gpu_bell bells[2];
                uint64_t named = 0;

                world_new(2, mix(seed + i) | 1);
                patience = i < 6 ? UINT32_MAX : 20;
                keepers = i < 6 ? 4 : 1;
                out.count = BYTES_MAX / type_size(out.type);
                in.count = 20;
                for (uint64_t k = 0; k < 2 * BYTES_MAX; k++) {
                        out.in[k % BYTES_MAX] = byte_of(1, k % BYTES_MAX);
                        if (k < in.count * type_size(in.type))
                                in.in[k] = byte_of(2, k);
                }
                bells[0] = bell_of(&out, true, 1);
                bells[1] = bell_of(&in, false, 1);
                kernel_add(0, bells, 2, 4);
                launch(0);
                for (uint32_t turn = 0; turn < 20000; turn++) {
                        const uint64_t pair = ranks[0].host.exchanged[SLOT].pair;

                        CHECK(!named || pair == named, "0x%lx is named, and then 0x%lx", (unsigned long)named,
                              (unsigned long)pair);
                        named = pair;
                        fiber_yield();
                }
                CHECK(named, "nobody is named");
                bells[0] = bell_of(&out, false, 1);
                bells[1] = bell_of(&in, true, 1);
                kernel_add(1, named >> 1 & 1 ? &bells[0] : &bells[1], 1, 4); /* who was waited for */
                kernel_add(1, named >> 1 & 1 ? &bells[1] : &bells[0], 1, 4);
                run_all("both");
                CHECK(right(&out, 1) && right(&in, 2), "they are not right");
                CHECK(!ranks[0].host.exchanged[SLOT].pair, "somebody is still named");
                transfer_free(&out);
                transfer_free(&in);
                world_free();
        }
        patience = UINT32_MAX;
        keepers = 4;
}

/* After a failure nothing is sent any more, and every kernel says so. */
static void test_failed(uint64_t seed) {
        struct transfer t = transfer_new(1, 0, 1, 0x30000 | RMX_INT8);
        struct client_gpu_bell bell;

        world_new(2, mix(seed) | 1);
        ((struct exchange_header *)(void *)ranks[0].head)->failed = ring_status(RMX_E_MISMATCH, 1);
        t.count = 10;
        bell = bell_of(&t, true, 1);
        kernel_add(0, &bell, 1, UINT32_MAX);
        run_all("failed");
        CHECK(ring_status_code(ranks[0].host.status[SLOT]) == RMX_E_MISMATCH, "status %u", ranks[0].host.status[SLOT]);
        CHECK(*pair_word_of(&ranks[0].kernel[0].all, PAIR_FLAG, 1, 0, 0) == first_number, "something was sent");
        transfer_free(&t);
        world_free();
}

/* The receiver finds what does not match, and leaves what it called; also where one of both goes in packets and the
 * other one does not. */
static void test_mismatch(uint64_t seed) {
        for (uint32_t i = 0; i < 16; i++) {
                struct transfer t = transfer_new(1, 0, 1, 0x30000 | RMX_INT8), other;
                struct client_gpu_bell bell;

                world_new(2, mix(seed + i) | 1);
                t.type = RMX_INT8;
                t.count = i % 4 ? 40 : 0;
                other = t;
                if (i % 3 == 0)
                        other.type = RMX_UINT8;
                else if (i % 3 == 1)
                        other.count += 8;
                else
                        other.count = other.count ? 0 : 3;
                if (i >= 12) {
                        other = t;
                        t.count = i % 2 ? 250 : 300;
                        other.count = i % 2 ? 300 : 250;
                }
                bell = bell_of(&t, true, 1);
                kernel_add(0, &bell, 1, UINT32_MAX);
                bell = bell_of(&other, false, 1);
                kernel_add(1, &bell, 1, UINT32_MAX);
                run_all("mismatch");
                CHECK(ring_status_code(ranks[1].host.status[SLOT]) == RMX_E_MISMATCH &&
                              ring_status_rank(ranks[1].host.status[SLOT]) == 0,
                      "status %u", ranks[1].host.status[SLOT]);
                CHECK(ranks[1].host.exchanged[SLOT].differs == 1 &&
                              ranks[1].host.exchanged[SLOT].head == ((uint32_t)RING_OP_RECV << 16 | other.type << 8) &&
                              ranks[1].host.exchanged[SLOT].count == other.count,
                      "it says 0x%x, %lu", ranks[1].host.exchanged[SLOT].head,
                      (unsigned long)ranks[1].host.exchanged[SLOT].count);
                transfer_free(&t);
                world_free();
        }
}

/* Kernels whose peer never comes end when they are told. */
static void test_ended(uint64_t seed) {
        for (uint32_t i = 0; i < 12; i++) { /* blocks that leave, too */
                struct transfer t = transfer_new(1, 1, 0, 0x30000 | RMX_INT8);
                struct client_gpu_bell bell;

                world_new(2, mix(seed + i) | 1);
                patience = i < 6 ? UINT32_MAX : 20;
                keepers = i < 6 ? 4 : 1;
                t.type = RMX_INT8;
                t.count = BYTES_MAX;
                bell = bell_of(&t, i % 2, 1);
                kernel_add(i % 2, &bell, 1, i < 6 ? 1 : 10);
                launch(i % 2);
                for (uint32_t turn = 0; turn < 3000; turn++)
                        fiber_yield();
                CHECK(ranks[i % 2].under_way, "it has ended without its peer");
                if (i / 2 % 3 == 0)
                        ranks[i % 2].stop = 1;
                else if (i / 2 % 3 == 1)
                        ((struct bell_header *)(void *)ranks[i % 2].bell)->closed = 1;
                else
                        ((uint32_t *)(void *)(ranks[i % 2].bell + BELL_OFFSET_ENDED))[SLOT] = 1;
                run_all("ended");
                CHECK(ring_status_code(ranks[i % 2].host.status[SLOT]) == RMX_E_DEVICE_LOST, "status %u",
                      ranks[i % 2].host.status[SLOT]);
                transfer_free(&t);
                world_free();
        }
        patience = UINT32_MAX;
        keepers = 4;
}

int main(void) {
        const uint64_t seed = test_seed();

        test_right(seed);
        test_room(seed);
        test_collectives(seed);
        test_roots(seed);
        test_early(seed);
        test_late(seed);
        test_late_again(seed);
        test_ahead(seed);
        test_both_wait(seed);
        test_failed(seed);
        test_mismatch(seed);
        test_ended(seed);
        return 0;
}
