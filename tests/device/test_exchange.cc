/* SPDX-License-Identifier: MIT */
/*
 * Exchange kernels (client/hip/exchange_run.h, exchange_bulk.h), as coroutines: every operation, type, reduction and
 * number of ranks, odd counts, addresses that are not aligned, in place; request after request without anybody waiting
 * for the others; ranks that call different things, and ranks that are ended; blocks that leave and whose parts others
 * take up, and communicators that begin in different orders on GPUs that have no room for all.
 */
#include "tests/device/exchange_world.h"

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static const uint32_t operations[] = {RING_OP_ALL_REDUCE, RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER,
                                      RING_OP_ALL_TO_ALL, RING_OP_BROADCAST,      RING_OP_REDUCE,
                                      RING_OP_BARRIER};
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
        if (c.operation == RING_OP_BARRIER) {
                c.count = 0;
                c.shift = 0;
                c.in_place = true;
        }
        return c;
}

static struct collective_case draw(uint32_t n, uint64_t random) {
        return draw_of(operations[(random >> 40 & 0xffff) % N_OPERATIONS], n, random);
}

/* As long as there may be. */
static struct collective_case draw_longest(uint32_t n, uint64_t random) {
        struct collective_case c = draw_of(RING_OP_ALL_REDUCE, n, random);

        c.count = (BYTES_MAX - 64) / type_size(c.type) - (random >> 20 & 15);
        return c;
}

/* The last one that has begun, as the host sees it. */
static bool told(const struct rank *rank, uint32_t calls, uint32_t operation) {
        return rank->host.exchanged[SLOT].begun == ((uint64_t)calls << 32 | operation);
}

/* Is it a call of two stages in chunks that are not long, of which a step sends a tile, adds up the one before, and
 * stores the one before that? So many units of each thread are in a tile of it; 0: it is another one. */
static uint32_t all_stages(const struct exchange_arguments *a) {
        return a->n_ranks > 2 && a->back && !a->room && !a->lines && a->tiles > 2 ? a->units : 0;
}

/* leaving: warps lose their patience at once, or after a while. */
static void test_right(uint64_t seed, bool leaving) {
        const uint32_t rounds = test_rounds(200, 2000), before = n_left;
        uint32_t staged[3] = {0, 0, 0};

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
                        lined = i % 8 != 0;
                        max_blocks = i % 2 ? UINT32_MAX : 1 + (uint32_t)mix(seed * 3 + i) % (2 * EXCHANGE_BLOCKS);
                        for (uint32_t r = 0; r < n; r++)
                                ranks[r].n_calls = CALLS, ranks[r].next = 0;
                        for (uint32_t k = 0; k < CALLS; k++) {
                                const uint64_t random = mix(mix(seed ^ (uint64_t)n << 32) + i * CALLS + k);

                                /* three ranks' tiles are then of two units, in all stages */
                                c[k] = n == 3 && i % 8 == 1 && k == 0 ? draw_longest(n, random) : draw(n, random);
                                number++;
                                told_end[k] =
                                        mix(seed + number) % 2; /* the others need not say when they are through */
                                for (uint32_t r = 0; r < n; r++)
                                        ask(&c[k], r, k, seed + i + k, told_end[k] ? number : 0);
                                staged[all_stages(&ranks[0].call[k].a)]++;
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
        max_blocks = UINT32_MAX;
        lined = true;
        CHECK(leaving ? n_left - before > rounds * 20 : n_left == before, "%u warps have left", n_left - before);
        CHECK(staged[1] > rounds / 40 && staged[2] > rounds / 40, "%u and %u calls with all stages in a step",
              staged[1], staged[2]);
}

/* Sums in lines, of which warps leave either half. */
static void test_lines(uint64_t seed) {
        for (uint32_t i = 0; i < test_rounds(60, 600); i++) {
                const uint32_t n = 3 + i % (RANKS - 2);
                struct collective_case c = draw_of(RING_OP_ALL_REDUCE, n, mix(seed + i));

                world_new(n, mix(seed + i) | 1);
                patience = 1 + (uint32_t)mix(seed ^ i) % 12;
                c.type = RMX_FLOAT32;
                c.redop = RMX_SUM;
                c.count = 160 + i % 100;
                for (uint32_t r = 0; r < n; r++) {
                        ranks[r].n_calls = CALLS;
                        for (uint32_t k = 0; k < CALLS; k++)
                                ask(&c, r, k, seed + k, 0);
                        CHECK(ranks[r].call[0].a.lines && ranks[r].call[0].a.back, "%u ranks: not in lines", n);
                }
                run_calls("lines");
                for (uint32_t k = 0; k < CALLS; k++)
                        CHECK(right(&c, 0, k), "%u ranks, %lu elements in lines", n, (unsigned long)c.count);
                world_free();
        }
}

/* Two ranks with few blocks: long chunks in two stages, of which blocks leave either. */
static void test_long(uint64_t seed) {
        const uint32_t before = n_left;

        for (uint32_t i = 0; i < test_rounds(60, 600); i++) {
                struct collective_case c[CALLS];

                world_new(2, mix(seed + i) | 1);
                patience = 1 + (uint32_t)mix(seed ^ i) % 12;
                max_blocks = 2;
                for (uint32_t k = 0; k < CALLS; k++) {
                        c[k] = draw_of(RING_OP_ALL_REDUCE, 2, mix(seed + i * CALLS + k));
                        c[k].type = k % 2 ? RMX_FLOAT32 : RMX_BFLOAT16;
                        c[k].count = (k % 2 ? 260 : 520) + (uint32_t)mix(seed - i * CALLS - k) % 500;
                }
                for (uint32_t r = 0; r < 2; r++) {
                        ranks[r].n_calls = CALLS;
                        for (uint32_t k = 0; k < CALLS; k++) {
                                ask(&c[k], r, k, seed + k, 0);
                                CHECK(ranks[r].call[k].a.room && ranks[r].call[k].a.back &&
                                              ranks[r].call[k].a.blocks == 2,
                                      "%lu elements: not long chunks in two stages", (unsigned long)c[k].count);
                        }
                }
                run_calls("long");
                for (uint32_t k = 0; k < CALLS; k++)
                        CHECK(right(&c[k], 0, k), "%lu elements in long chunks", (unsigned long)c[k].count);
                world_free();
        }
        max_blocks = UINT32_MAX;
        CHECK(n_left > before, "nobody has left");
}

/* Numbers leave out 0, and come round: those of packets, of lines, and of chunks. */
static void test_wrap(uint64_t seed, uint32_t n, uint32_t count) {
        struct collective_case c = draw(n, mix(seed));

        world_new(n, mix(seed) | 1);
        patience = 5 + (uint32_t)mix(seed ^ n) % 200;
        c.operation = RING_OP_ALL_REDUCE;
        c.count = count;
        c.type = RMX_FLOAT32;
        c.redop = RMX_SUM;
        for (uint32_t r = 0; r < n; r++) {
                struct exchange_header *h = (struct exchange_header *)(void *)ranks[r].head;

                h->calls = h->first = UINT32_MAX - 2;
                for (uint32_t b = 0; b < EXCHANGE_BLOCKS; b++)
                        h->sequence[b] = UINT32_MAX - 5 + b;
                for (uint32_t b = 0; b < 2 * EXCHANGE_BLOCKS; b++)
                        h->chunks[b] = UINT32_MAX - 5 + b;
                for (uint32_t w = 0; w < EXCHANGE_LINE_BLOCKS(n) * EXCHANGE_LANES; w++)
                        ((uint32_t *)(void *)(ranks[r].head + EXCHANGE_OFFSET_WARPS))[w] = UINT32_MAX - 5 + w % 8;
                ranks[r].n_calls = CALLS;
                for (uint32_t k = 0; k < CALLS; k++)
                        ask(&c, r, k, seed + k, k + 1);
        }
        run_calls("wrap");
        for (uint32_t k = 0; k < CALLS; k++)
                CHECK(right(&c, 0, k), "call %u beyond the last number", k);
        for (uint32_t r = 0; r < n; r++) { /* the third call has had the number behind the last one */
                const struct exchange_header *h = (const struct exchange_header *)(const void *)ranks[r].head;

                CHECK(h->signature[0][(r + 1) % n] >> 32 == EXCHANGE_FIRST, "rank %u has not compared a call", r);
        }
        world_free();
}

/* Rank r has left for railmuxd what it called, and who called something else. */
static void differs(const struct rank *rank, uint32_t r, uint32_t odd, const struct exchange_arguments *a) {
        const struct bell_exchanged *told = &rank->host.exchanged[SLOT];

        CHECK(r == odd ? told->differs && told->differs != 1 + odd && told->differs <= n_ranks
                       : told->differs == 1 + odd,
              "rank %u says %u of odd rank %u", r, told->differs, odd);
        CHECK(told->head == (a->operation << 16 | a->type << 8 | a->redop) && told->root == a->root &&
                      told->count == a->count,
              "rank %u says 0x%x, %lu, %u", r, told->head, (unsigned long)told->count, told->root);
}

/* One rank calls something else: all that meet it say so, and all kernels end. */
static void test_mismatch(uint64_t seed) {
        for (uint32_t i = 0; i < 84; i++) {
                const uint32_t n = 2 + i % 7, odd = i / 3 % n;
                struct collective_case c = {};

                world_new(n, mix(seed + i) | 1);
                for (uint32_t r = 0; r < n; r++) {
                        c.n = n;
                        c.operation = RING_OP_ALL_REDUCE;
                        c.type = RMX_FLOAT32;
                        c.redop = RMX_SUM;
                        c.count = i < 28 ? 80 : i < 56 ? 150 : 600; /* in packets, in lines, in chunks */
                        if (r == odd && i % 16 == 12)
                                c.operation = RING_OP_BARRIER, c.count = 0;
                        else if (r == odd && i % 4 == 0)
                                c.count = i % 8 ? 3 : 0;
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

                        differs(&ranks[r], r, odd, &ranks[r].call[0].a);
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

static bool is_zero(const char *memory, size_t bytes) {
        return memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0;
}

/* A part of a request: once something of it has failed on a rank, that one sends nothing, tells nothing and ends; the
 * others wait for it. Else it is a call as any. */
static void test_gated(uint64_t seed) {
        static const uint32_t parts[] = {RING_OP_REDUCE_SCATTER, RING_OP_ALL_GATHER};

        for (uint32_t i = 0; i < 24; i++) {
                const struct collective_case c = draw_of(parts[i % 2], 3, mix(seed + i));
                const bool failed = i / 2 % 2;

                world_new(3, mix(seed + i) | 1);
                lined = i / 4 % 2;
                for (uint32_t r = 0; r < 3; r++) {
                        ranks[r].n_calls = 1;
                        ask(&c, r, 0, seed, 0);
                        ranks[r].call[0].a.gated = 1;
                }
                if (!failed) {
                        run_calls("gated");
                        CHECK(right(&c, 0, 0), "operation %u: a part is not right", c.operation);
                        world_free();
                        continue;
                }
                ((struct exchange_header *)(void *)ranks[2].head)->failed = RMX_E_PEER_LOST;
                launch(&ranks[2]);
                for (uint32_t turn = 0; ranks[2].under_way; turn++) {
                        CHECK(turn < 1000000, "a part does not end though one before has failed");
                        fiber_yield();
                }
                for (uint32_t r = 0; r < 2; r++)
                        CHECK(is_zero(ranks[r].area, EXCHANGE_AREA_BYTES(3)) &&
                                      is_zero(ranks[r].head, EXCHANGE_HEAD_BYTES),
                              "operation %u: a part is sent though one before has failed", c.operation);
                CHECK(!ranks[2].host.status[SLOT], "it says so once more");
                for (uint32_t r = 0; r < 2; r++)
                        launch(&ranks[r]);
                for (uint32_t turn = 0; turn < 3000; turn++)
                        fiber_yield();
                CHECK(ranks[0].under_way && ranks[1].under_way, "a part has ended without rank 2");
                ranks[0].stop = ranks[1].stop = 1;
                run_calls("gated, stopped");
                world_free();
        }
        lined = true;
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
        const uint32_t rounds = test_rounds(100, 1000);

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

/* There are no more blocks than are allowed, whatever the size; what belongs to them is all there is; and those that
 * are allowed are made use of. */
static void test_blocks(void) {
        static char memory[16];
        struct client_gpu_bell bell = {};
        struct exchange_arguments a;
        uint32_t kind, wide = 0;

        bell.word[RING_W_HEAD] = RING_ABI << 24 | RING_OP_ALL_REDUCE << 16 | RMX_FLOAT32 << 8 | RMX_SUM;
        bell.in = bell.out = memory;
        for (uint32_t n = 2; n <= RANKS; n++)
                for (uint32_t most = 1; most <= 2 * EXCHANGE_BLOCKS + 1; most++)
                        for (uint64_t bytes = 4; bytes < 100000; bytes += bytes / 3 * 4 + 4) {
                                const uint32_t all = EXCHANGE_BLOCKS_OF(n);
                                uint64_t unit;

                                bell.in_bytes = bell.out_bytes = bytes;
                                CHECK(exchange_cut(&a, &bell, n, 0, most, true, &kind), "%lu bytes",
                                      (unsigned long)bytes);
                                unit = (uint64_t)EXCHANGE_THREADS * (a.units ? a.units * 16 : PACKET_BYTES);
                                CHECK(a.blocks >= 1 && a.blocks <= most, "%u blocks of %u", a.blocks, most);
                                CHECK(a.lines || unit * a.tiles * a.blocks >= a.piece_bytes,
                                      "%u blocks, %u tiles, %lu bytes", a.blocks, a.tiles, (unsigned long)bytes);
                                if (n > 2 && a.units && !a.room && !a.lines) {
                                        const uint64_t each = (uint64_t)a.blocks * EXCHANGE_THREADS * 16;
                                        const uint64_t units = (a.piece_bytes + each - 1) / each;

                                        CHECK(a.units == (units < EXCHANGE_UNITS_FROM ? 1 : EXCHANGE_UNITS(n)),
                                              "%u units of %lu", a.units, (unsigned long)units);
                                        wide |= 1u << (a.units > 1);
                                }
                                CHECK(a.blocks == most || a.blocks >= all || a.tiles == 1,
                                      "%u blocks where %u are allowed, and %u tiles", a.blocks, most, a.tiles);
                        }
        CHECK(wide == 3, "tiles of one unit and of two");
}

/* Scatters and the like are not cut. */
static void test_cut(void) {
        struct client_gpu_bell bell = {};
        struct exchange_arguments a;
        uint32_t kind;

        bell.word[RING_W_HEAD] = RING_ABI << 24 | RING_OP_SCATTER << 16;
        CHECK(!exchange_cut(&a, &bell, 2, 0, UINT32_MAX, true, &kind), "a scatter was cut");
        bell.word[RING_W_COUNT_LO] = 5;
        bell.word[RING_W_COUNT_HI] = 7;
        bell.word[RING_W_HEAD] = RING_ABI << 24 | RING_OP_ALL_GATHER << 16;
        CHECK(exchange_cut(&a, &bell, 2, 0, UINT32_MAX, true, &kind) && a.count == (UINT64_C(7) << 32 | 5),
              "the count is lost");
}

int main(void) {
        const uint64_t seed = test_seed();

        test_cut();
        test_blocks();
        test_right(seed, false);
        test_right(seed, true);
        for (uint32_t n = 2; n <= RANKS; n += 2) {
                test_wrap(seed, n, 50);
                test_wrap(seed, n, 300);
                test_wrap(seed, n, 700);
        }
        max_blocks = 2; /* long chunks */
        test_wrap(seed, 2, 700);
        test_wrap(seed, 4, 700);
        max_blocks = UINT32_MAX;
        test_lines(seed);
        test_long(seed);
        test_mismatch(seed);
        test_gated(seed);
        test_ended(seed, false);
        test_ended(seed, true);
        test_rooms(seed);
        return 0;
}
