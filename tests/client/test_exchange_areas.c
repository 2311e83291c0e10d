/* SPDX-License-Identifier: MIT */
/* Exchange areas (client/hip/exchange.c, exchange_area.c) against a runtime of the test's own, without a GPU. */
#include "tests/client/exchange_areas_rig.h"

/* ---- tests ------------------------------------------------------------------------------------------------------- */
/* Two ranks of one process on two devices: no handle is opened. */
static void test_here(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];

        (void)state;
        for (uint32_t r = 0; r < 2; r++)
                x[r] = open_rank(gpu[r], 5 + r, 2, r, offers);
        for (uint32_t r = 0; r < 2; r++)
                assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
        assert_int_equal(fake.opens, 0);
        assert_int_equal(fake.peers, 4); /* each: for the area, and for its head */
        launch(x[1], 4096);
        assert_ptr_equal(fake.launched.area[0], gpu[0]->areas->memory.address);
        assert_ptr_equal(fake.launched.area[1], gpu[1]->areas->memory.address);
        assert_ptr_equal(fake.launched.head[0], gpu[0]->areas->head);
        assert_ptr_equal(fake.launched.head[1], gpu[1]->areas->head);
        assert_ptr_equal(fake.launched.bell_area, gpu[1]->area);
        assert_ptr_equal(fake.launched.host, gpu[1]->host_there);
        assert_ptr_equal(fake.launched.stop, &gpu[1]->pinned->stop[6]);
        assert_int_equal(fake.launched.slot, 6);
        assert_int_equal(fake.launched.rank, 1);
        assert_ptr_equal(fake.kernel, exchange_kernel(2, EXCHANGE_BFLOAT16, EXCHANGE_SHALLOW));
        assert_int_equal(fake.launched.units, 0);
        launch(x[1], 512 << 10);
        assert_ptr_equal(fake.kernel, exchange_kernel(2, EXCHANGE_BFLOAT16, EXCHANGE_LINED));
        assert_true(fake.launched.lines && fake.launched.blocks <= EXCHANGE_LINE_BLOCKS(2));
        launch(x[1], 10 << 20);
        assert_ptr_equal(fake.kernel, exchange_kernel(2, EXCHANGE_BFLOAT16, EXCHANGE_BULK));
        assert_true(fake.launched.blocks <= EXCHANGE_CHUNK_BLOCKS(2));
        assert_true(fake.launched.units && fake.launched.units <= EXCHANGE_UNITS(2));
        assert_true((uint64_t)fake.launched.blocks * EXCHANGE_THREADS * fake.launched.units * fake.launched.tiles *
                            16 >=
                    10 << 20);

        gpu_exchange_stop(x[0]);
        assert_int_equal(gpu[0]->pinned->stop[5], 1);
        assert_int_equal(gpu[1]->pinned->stop[6], 0);
        for (uint32_t r = 0; r < 2; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
}

/* Areas are zeroes but for their first numbers, which are the same on all ranks and others in the next communicator. */
static void test_numbers(void **state) {
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(0), gpu_new(0)};
        uint32_t first[2];

        (void)state;
        for (uint32_t round = 0; round < 2; round++) {
                struct client_gpu_exchange *x[3];

                for (uint32_t r = 0; r < 3; r++)
                        x[r] = open_rank(gpu[r], 0, 3, r, offers);
                for (uint32_t r = 0; r < 3; r++) {
                        const char *area = gpu[r]->areas->memory.address, *head = gpu[r]->areas->head;
                        const struct exchange_header *header = (const struct exchange_header *)(const void *)head;

                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                        if (r == 0)
                                first[round] = header->first;
                        assert_int_equal(header->first, first[round]);
                        assert_int_equal(header->first % 2, 0);
                        assert_int_equal(header->calls, header->first);
                        for (uint32_t b = 0; b < EXCHANGE_BLOCKS; b++)
                                assert_int_equal(header->sequence[b], first[round]);
                        for (size_t b = 0; b < 2 * EXCHANGE_BLOCKS; b++)
                                assert_int_equal(header->chunks[b], first[round]);
                        for (size_t w = 0; w < EXCHANGE_LINE_BLOCKS(3) * EXCHANGE_LANES; w++)
                                assert_int_equal(((const uint32_t *)(const void *)(head + EXCHANGE_OFFSET_WARPS))[w],
                                                 first[round]);
                        for (size_t i = sizeof(*header); i < EXCHANGE_OFFSET_WARPS; i++)
                                if (head[i])
                                        fail_msg("byte %zu of a head is not 0", i);
                        transfers_begin(head, first[round]);
                        for (size_t i = 0; i < EXCHANGE_AREA_BYTES(3); i++)
                                if (area[i])
                                        fail_msg("byte %zu of an area is not 0", i);
                        memset(gpu[r]->areas->memory.address, 0x77, EXCHANGE_AREA_BYTES(3)); /* used */
                        memset(gpu[r]->areas->head, 0x77, EXCHANGE_HEAD_BYTES);
                        assert_null(gpu[r]->areas->next);
                        gpu_exchange_close(x[r], true);
                }
        }
        assert_int_not_equal(first[0], first[1]);
        for (uint32_t r = 0; r < 3; r++)
                gpu_end(gpu[r]);
}

/* Another process's area is mapped once, however many communicators it serves in turn. */
static void test_there(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0), *other = gpu_new(0);
        struct client_gpu_exchange *x, *y;

        (void)state;
        for (uint32_t i = 0; i < 3; i++) {
                x = open_rank(gpu, 0, 2, 0, offers);
                y = open_rank(other, 0, 2, 1, offers);
                far(offers, 1);
                assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_OK);
                assert_int_equal(fake.opens, 2); /* the area, and what its head is in */
                launch(x, 4096);
                assert_ptr_equal(fake.launched.area[1], other->areas->memory.address);
                assert_ptr_equal(fake.launched.head[1], other->areas->head);
                gpu_exchange_close(x, true);
                gpu_exchange_close(y, true);
        }
        /* The same handle of another area: memory was given back, and came again at its place. */
        x = open_rank(gpu, 0, 2, 0, offers);
        y = open_rank(other, 0, 2, 1, offers);
        far(offers, 1);
        offers[CLIENT_GPU_OFFER_BYTES + OFFER_NUMBER] ^= 1;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_OK);
        assert_int_equal(fake.opens, 3);
        gpu_exchange_close(x, true);
        gpu_exchange_close(y, true);
        assert_int_equal(fake.closes, 0);
        gpu_end(gpu);
        gpu_end(other);
}

/* One whose kernels were given up is not used again before the end. */
static void test_kept(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x = open_rank(gpu, 0, 2, 0, offers);
        const char *first = gpu->areas->memory.address;

        (void)state;
        gpu_exchange_close(x, false);
        x = open_rank(gpu, 0, 2, 0, offers);
        assert_int_equal(fake.allocations, 3); /* and their heads */
        assert_ptr_not_equal(gpu->areas->memory.address, first);
        gpu_exchange_close(x, true);
        x = open_rank(gpu, 0, 2, 0, offers);
        assert_int_equal(fake.allocations, 3);
        gpu_exchange_stop(x);
        gpu_exchange_close(x, true);
        gpu_exchange_close(NULL, true);
        x = open_rank(gpu, 0, 2, 0, offers); /* the word of the one before does not stop it */
        assert_int_equal(gpu->pinned->stop[0], 0);
        gpu_exchange_close(x, true);
        gpu_end(gpu);
}

/* Heads of many areas share memory, and no two are the same. */
static void test_heads(void **state) {
        const uint32_t n = (uint32_t)(EXCHANGE_HEADS_BYTES / EXCHANGE_HEAD_BYTES) + 2;
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x[128];

        (void)state;
        assert_true(n < 128 && n <= CLIENT_GPU_SLOTS);
        for (uint32_t i = 0; i < n; i++) {
                x[i] = open_rank(gpu, i, 8, 0, offers);
                memset(gpu->areas->head, (int)i + 1, EXCHANGE_HEAD_BYTES);
        }
        assert_int_equal(fake.allocations, n + 2);
        for (struct exchange_area *area = gpu->areas; area; area = area->next)
                for (size_t i = 1; i < EXCHANGE_HEAD_BYTES; i++)
                        assert_int_equal(area->head[i], area->head[0]);
        for (struct exchange_area *a = gpu->areas; a; a = a->next)
                for (struct exchange_area *b = a->next; b; b = b->next)
                        assert_int_not_equal(a->head[0], b->head[0]);
        for (uint32_t i = 0; i < n; i++)
                gpu_exchange_close(x[i], true);
        gpu_end(gpu);
}

/* Offers are the other ranks' words. */
static void test_wrong(void **state) {
        static const struct {
                uint32_t at, rank;
        } spoilt[] = {
                {0, 1},
                {4, 1},
                {OFFER_NUMBER, 1},
                {OFFER_ADDRESS, 1},
                {OFFER_BYTES, 1},
                {OFFER_HEADS + OFFER_NUMBER, 1},
                {OFFER_HEADS + OFFER_ADDRESS, 1},
                {OFFER_HEADS + OFFER_BYTES, 1},
                {OFFER_HEAD, 1},     /* between two heads, */
                {OFFER_HEAD + 7, 1}, /* and far behind the last one */
        };
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];

        (void)state;
        for (uint32_t r = 0; r < 2; r++)
                x[r] = open_rank(gpu[r], 0, 2, r, offers);
        for (uint32_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
                unsigned char *byte = offers + spoilt[i].rank * CLIENT_GPU_OFFER_BYTES + spoilt[i].at;

                *byte ^= 0x10;
                assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
                *byte ^= 0x10;
        }
        for (uint64_t last = EXCHANGE_HEADS_BYTES / EXCHANGE_HEAD_BYTES, i = last - 1; i <= last; i++) {
                const uint64_t at = i * EXCHANGE_HEAD_BYTES;

                memcpy(offers + CLIENT_GPU_OFFER_BYTES + OFFER_HEAD, &at, sizeof(at));
                assert_int_equal(gpu_exchange_connect(x[0], offers, error), i < last ? RMX_OK : RMX_E_UNSUPPORTED);
        }
        memset(offers + CLIENT_GPU_OFFER_BYTES, 0, CLIENT_GPU_OFFER_BYTES); /* a rank that has none */
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
        assert_int_equal(fake.opens, 0);
        for (uint32_t r = 0; r < 2; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
}

/* An offer with number, address and handle of another one's. */
static void forge(unsigned char *offers, uint32_t rank, const unsigned char *of) {
        unsigned char *to = offers + (size_t)rank * CLIENT_GPU_OFFER_BYTES;

        memcpy(to + OFFER_NUMBER, of + OFFER_NUMBER, 8);
        memcpy(to + OFFER_ADDRESS, of + OFFER_ADDRESS, 8);
        memcpy(to + OFFER_HANDLE, of + OFFER_HANDLE, sizeof(hipIpcMemHandle_t));
}

/* An area of two ranks is shorter than one of three, and is not taken for one of three, whatever is said of it. */
static void test_forged(void **state) {
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES], two[2 * CLIENT_GPU_OFFER_BYTES], bytes[8];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[3], *y[2];

        (void)state;
        assert_true(EXCHANGE_AREA_BYTES(2) < EXCHANGE_AREA_BYTES(3));
        for (uint32_t r = 0; r < 2; r++)
                y[r] = open_rank(gpu[r], 0, 2, r, two);
        for (uint32_t r = 0; r < 3; r++)
                x[r] = open_rank(gpu[r % 2], 4 + r, 3, r, offers);
        forge(offers, 1, two + CLIENT_GPU_OFFER_BYTES);
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
        far(two, 1);
        for (uint32_t r = 1; r < 3; r++)
                far(offers, r);
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED); /* mapped, and measured */
        assert_int_equal(gpu_exchange_connect(y[0], two, error), RMX_OK);
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED); /* mapped already */
        memcpy(bytes, offers + CLIENT_GPU_OFFER_BYTES + OFFER_BYTES, sizeof(bytes));
        memcpy(offers + CLIENT_GPU_OFFER_BYTES + OFFER_BYTES, two + CLIENT_GPU_OFFER_BYTES + OFFER_BYTES,
               sizeof(bytes));
        assert_int_equal(gpu_exchange_connect(x[0], offers, error),
                         RMX_E_UNSUPPORTED); /* as long as it says, and short */
        assert_true(memcmp(bytes, offers + CLIENT_GPU_OFFER_BYTES + OFFER_BYTES, sizeof(bytes)) != 0);
        for (uint32_t r = 0; r < 2; r++)
                gpu_exchange_close(y[r], true);
        for (uint32_t r = 0; r < 3; r++)
                gpu_exchange_close(x[r], true);
        for (uint32_t r = 0; r < 2; r++)
                gpu_end(gpu[r]);
}

/* Mapped memory that is not all of it: nothing stays open. */
static void test_short(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0), *other = gpu_new(0);
        struct client_gpu_exchange *x = open_rank(gpu, 0, 2, 0, offers), *y = open_rank(other, 0, 2, 1, offers);

        (void)state;
        far(offers, 1);
        fake.short_by = 1;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        fake.short_by = 0;
        fake.inside = 4096;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        fake.inside = 0;
        assert_int_equal(fake.opens, 2);
        assert_int_equal(fake.closes, 2);
        fake.short_head = true;
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        fake.short_head = false;
        assert_int_equal(fake.opens, 4); /* the area stays */
        assert_int_equal(fake.closes, 3);
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_OK);
        gpu_exchange_close(x, true);
        gpu_exchange_close(y, true);
        gpu_end(gpu);
        gpu_end(other);
}

static void test_peer(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];

        (void)state;
        for (uint32_t r = 0; r < 2; r++)
                x[r] = open_rank(gpu[r], 0, 2, r, offers);
        fake.no_peer = true;
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_E_UNSUPPORTED);
        fake.no_peer = false;
        fake.peer_enabled = true;
        assert_int_equal(gpu_exchange_connect(x[0], offers, error), RMX_OK);
        for (uint32_t r = 0; r < 2; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
}

/* Kernels of every number of ranks are loaded with a process's first communicator, and with no other. */
static void test_loaded(void **state) {
        unsigned char offer[CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x[2];
        const uint32_t all = (EXCHANGE_RANKS - 1) * EXCHANGE_WAYS * EXCHANGE_KINDS + 2, before = fake.loaded;

        (void)state;
        assert_int_equal(gpu_exchange_open(gpu, 0, HANDLE, 3, 0, 0, &x[0], offer, error), RMX_OK);
        assert_int_equal(fake.loaded - before, all);
        assert_int_equal(gpu_exchange_open(gpu, 1, HANDLE, 8, 0, 0, &x[1], offer, error), RMX_OK);
        assert_int_equal(fake.loaded - before, all);
        for (uint32_t i = 0; i < 2; i++)
                gpu_exchange_close(x[i], true);
        gpu_end(gpu);
}

/* Whichever call of the runtime fails, nothing is lost, and the next one goes. */
static void test_failures(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0), *other = gpu_new(0);
        bool failed = true;
        uint32_t n = 0;

        (void)state;
        for (uint32_t at = 1; failed; at++) {
                struct client_gpu_exchange *x = NULL, *y = open_rank(other, 0, 2, 1, offers);
                int r;

                fake.calls = 0;
                fake.fail_at = at;
                r = gpu_exchange_open(gpu, 0, HANDLE, 2, 0, 0, &x, offers, error);
                far(offers, 1);
                offers[CLIENT_GPU_OFFER_BYTES + OFFER_NUMBER] = (unsigned char)at; /* another one each time */
                if (!r)
                        r = gpu_exchange_connect(x, offers, error);
                fake.fail_at = 0;
                failed = r != RMX_OK;
                n += failed;
                gpu_exchange_close(x, true);
                gpu_exchange_close(y, true);
                assert_true(at < MAX_CALLS);
        }
        assert_true(n > 2 * EXCHANGE_KINDS); /* kernels, and more */
        assert_true(fake.allocations <= 5);  /* two each, and one that could not be cleared */
        gpu_end(gpu);
        gpu_end(other);
}

static struct client_gpu_bell transfer(uint32_t operation, uint32_t peer, void *memory, size_t bytes) {
        struct client_gpu_bell bell = {.in = operation == RING_OP_SEND ? memory : NULL,
                                       .out = operation == RING_OP_RECV ? memory : NULL};

        bell.word[RING_W_HEAD] = RING_ABI << 24 | operation << 16 | RMX_BFLOAT16 << 8;
        bell.word[RING_W_COUNT_LO] = (uint32_t)(bytes / 2);
        bell.word[RING_W_PEER] = peer;
        bell.in_bytes = bell.in ? bytes : 0;
        bell.out_bytes = bell.out ? bytes : 0;
        return bell;
}

/* Transfers: a channel for each rank and direction with blocks by the largest, whose two ends agree. */
static void test_transfers(void **state) {
        static char a[32] __attribute__((aligned(16)));
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(1), gpu_new(2)};
        struct client_gpu_exchange *x[3];
        const struct client_gpu_bell bells[] = {
                transfer(RING_OP_SEND, 1, a, 100), transfer(RING_OP_SEND, 2, a + 2, 4 << 20),
                transfer(RING_OP_SEND, 1, a, 70000), transfer(RING_OP_RECV, 2, a + 1, 0)};
        const struct pair_arguments *p = &fake.pairs;

        (void)state;
        max_blocks = 40;
        for (uint32_t r = 0; r < 3; r++)
                x[r] = open_rank(gpu[r], 0, 3, r, offers);
        for (uint32_t r = 0; r < 3; r++)
                assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
        assert_int_equal(gpu_exchange_pairs(x[0], bells, 4, NULL, error), RMX_OK);
        assert_ptr_equal(fake.kernel, pair_kernel());
        assert_ptr_equal(p->all.area[2], gpu[2]->areas->memory.address);
        assert_ptr_equal(p->all.stop, &gpu[0]->pinned->stop[0]);
        assert_int_equal(p->n_channels, 3);
        assert_int_equal(p->channel[0].peer, 1);
        assert_int_equal(p->channel[0].sends, 1);
        assert_int_equal(p->channel[0].op, 0);
        assert_int_equal(p->op[0].next, 2); /* in their order */
        assert_int_equal(p->op[2].next, PAIR_OPS);
        assert_int_equal(p->op[0].blocks, 1);
        assert_int_equal(p->op[2].blocks, 9); /* of 8 KiB, and as there are enough */
        assert_int_equal(p->op[2].units, 1);
        assert_int_equal(p->channel[0].blocks, 9);
        assert_int_equal(p->channel[1].blocks, 10); /* 40 for four channels */
        assert_int_equal(p->op[1].units, PAIR_UNITS);
        assert_int_equal(p->channel[2].sends, 0);
        assert_int_equal(p->channel[2].blocks, 1); /* of nothing, too */
        assert_int_equal(p->channel[2].begin, 19);
        assert_int_equal(p->all.blocks, 20);
        assert_int_equal(p->op[0].aligned, 1);
        assert_int_equal(p->op[1].aligned, 0);
        assert_int_equal(p->op[1].element_bytes, 2);
        assert_int_equal(p->op[3].element_bytes, 1);
        assert_int_equal(p->op[1].count, 2 << 20);
        assert_int_equal(p->ahead, 0);
        for (uint32_t i = 0; i < 4; i++) { /* receives are waited for ahead if all are large, and nothing is sent */
                const struct client_gpu_bell large[] = {
                        transfer(RING_OP_RECV, 2, a, PAIR_AHEAD_BYTES),
                        transfer(i == 2 ? RING_OP_SEND : RING_OP_RECV, 1, a, PAIR_AHEAD_BYTES - (i == 1 ? 2 : 0)),
                        transfer(RING_OP_RECV, 2, a, 100)};
                const uint32_t before = fake.aheads;

                assert_int_equal(gpu_exchange_pairs(x[0], large, i == 3 ? 1 : 3, NULL, error), RMX_OK);
                assert_int_equal(p->ahead, i == 0 || i == 3);
                assert_int_equal(fake.aheads - before, p->ahead);
        }
        for (uint32_t r = 0; r < 3; r++) {
                gpu_exchange_close(x[r], true);
                gpu_end(gpu[r]);
        }
        max_blocks = 0;
}

/* Nothing goes in lines if one rank says that they may not arrive whole. */
static void test_lines(void **state) {
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(1), gpu_new(2)};

        (void)state;
        for (uint32_t odd = 0; odd < 4; odd++) {
                struct client_gpu_exchange *x[3];

                for (uint32_t r = 0; r < 3; r++)
                        x[r] = open_rank(gpu[r], 0, 3, r, offers);
                if (odd < 3)
                        memset(offers + odd * CLIENT_GPU_OFFER_BYTES + OFFER_LINES, 0, sizeof(uint32_t));
                for (uint32_t r = 0; r < 3; r++) {
                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                        launch(x[r], 600 << 10);
                        if (r != odd) /* which knows what it has said */
                                assert_int_equal(fake.launched.lines, odd == 3);
                }
                for (uint32_t r = 0; r < 3; r++)
                        gpu_exchange_close(x[r], true);
        }
        for (uint32_t r = 0; r < 3; r++)
                gpu_end(gpu[r]);
}

/* The smallest number that a rank says is all ranks', wherever they are. */
static void test_blocks(void **state) {
        static const struct {
                uint32_t said[3], all;
        } cases[] = {{{0, 0, 0}, EXCHANGE_CHUNK_BLOCKS(3)},
                     {{7, 0, 0}, 7},
                     {{0, 0, 7}, 7},
                     {{9, 1, 3}, 1},
                     {{500, 200, 300}, EXCHANGE_CHUNK_BLOCKS(3)}};
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(1), gpu_new(2)};

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct client_gpu_exchange *x[3];

                for (uint32_t r = 0; r < 3; r++) {
                        max_blocks = cases[i].said[r];
                        x[r] = open_rank(gpu[r], 0, 3, r, offers);
                }
                for (uint32_t r = 0; r < 3; r++) {
                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                        launch(x[r], 10 << 20);
                        assert_int_equal(fake.launched.blocks, cases[i].all);
                }
                for (uint32_t r = 0; r < 3; r++)
                        gpu_exchange_close(x[r], true);
        }
        max_blocks = 0;
        for (uint32_t r = 0; r < 3; r++)
                gpu_end(gpu[r]);
}

/* In tiles of a unit for each thread, or of two where it has four in all: 128 blocks of 512 threads with up to four
 * ranks, of a MiB for each of them. */
static void test_tiles(void **state) {
        static const struct {
                uint32_t n_ranks, mib, tiles, units;
        } cases[] = {{3, 9, 3, 1}, {3, 12, 2, 2}, {4, 12, 3, 1}, {4, 16, 2, 2}, {4, 64, 8, 2}, {8, 64, 16, 1}};
        struct client_gpu_bell bell = {.word[RING_W_HEAD] =
                                               RING_ABI << 24 | RING_OP_ALL_REDUCE << 16 | RMX_FLOAT32 << 8 | RMX_SUM};
        struct exchange_arguments a;
        uint32_t kind;

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                bell.in_bytes = bell.out_bytes = (uint64_t)cases[i].mib << 20;
                assert_true(exchange_cut(&a, &bell, cases[i].n_ranks, 0, UINT32_MAX, false, &kind));
                assert_int_equal(a.blocks, EXCHANGE_CHUNK_BLOCKS(cases[i].n_ranks));
                assert_int_equal(a.tiles, cases[i].tiles);
                assert_int_equal(a.units, cases[i].units);
        }
}

/* Few blocks have long chunks, side by side, in places that are the same ones whatever the call; and two ranks have two
 * stages of those from a size on. */
static void test_few_blocks(void **state) {
        static const struct {
                uint32_t n_ranks, max_blocks, together, room;
                uint64_t lined; /* the largest that goes in lines */
        } cases[] = {{2, 0, 1, 0, 1536 << 10},
                     {2, 1, 1, EXCHANGE_ROOM, 12 << 10},
                     {2, 4, 4, EXCHANGE_ROOM, 192 << 10},
                     {2, 6, 2, EXCHANGE_ROOM, 432 << 10},
                     {2, 7, 1, EXCHANGE_ROOM, 588 << 10},
                     {2, 8, 4, EXCHANGE_ROOM, 768 << 10},
                     {2, 16, 4, 19, 1536 << 10},
                     {2, 51, 1, 6, 1536 << 10},
                     {2, 60, 4, 5, 1536 << 10},
                     {2, 64, 1, 0, 1536 << 10},
                     {3, 4, 4, EXCHANGE_ROOM, 288 << 10},
                     {3, 64, 4, 2, 2304 << 10},
                     {3, 65, 1, 0, 2304 << 10}};
        unsigned char offers[3 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[3] = {gpu_new(0), gpu_new(1), gpu_new(2)};
        const struct exchange_arguments *a = &fake.launched;

        (void)state;
        assert_int_equal(setenv("RAILMUX_GPU_CLUSTERS", "1", 1), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const uint32_t n = cases[i].n_ranks;
                struct client_gpu_exchange *x[3];

                max_blocks = cases[i].max_blocks;
                for (uint32_t r = 0; r < n; r++)
                        x[r] = open_rank(gpu[r], 0, n, r, offers);
                for (uint32_t r = 0; r < n; r++) {
                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                        for (uint64_t bytes = 20 << 20; bytes <= 320 << 20; bytes *= 4) {
                                launch(x[r], bytes);
                                assert_int_equal(fake.together, cases[i].together);
                                assert_int_equal(a->room, cases[i].room);
                                assert_true(a->units <= (a->room ? a->room : EXCHANGE_UNITS(n)));
                                assert_true((size_t)a->blocks * EXCHANGE_LONG_TURNS * (n - 1) * EXCHANGE_THREADS *
                                                    a->room <=
                                            EXCHANGE_CHUNKS(n));
                                assert_int_equal(a->back, n > 2 || a->room);
                                assert_ptr_equal(fake.kernel, exchange_kernel(n, EXCHANGE_BFLOAT16,
                                                                              a->room ? EXCHANGE_LONG : EXCHANGE_BULK));
                        }
                        launch(x[r], cases[i].lined);
                        assert_true(a->lines && !a->room && (n > 2 || !a->back));
                        assert_int_equal(fake.together, 1);
                        launch(x[r], cases[i].lined + 48);
                        assert_true(!a->lines && a->units);
                        assert_int_equal(a->room, cases[i].room);
                        launch(x[r], (uint64_t)max_blocks * (256 << 10)); /* a block's, in one stage */
                        assert_int_equal(a->back, n > 2);
                        launch(x[r], (uint64_t)max_blocks * (256 << 10) + 16);
                        assert_int_equal(a->back, n > 2 || cases[i].room);
                }
                for (uint32_t r = 0; r < n; r++)
                        gpu_exchange_close(x[r], true);
        }
        unsetenv("RAILMUX_GPU_CLUSTERS"); /* they may lie anywhere */
        max_blocks = 4;
        {
                struct client_gpu_exchange *x[2] = {open_rank(gpu[0], 0, 2, 0, offers),
                                                    open_rank(gpu[1], 0, 2, 1, offers)};

                for (uint32_t r = 0; r < 2; r++) {
                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                        launch(x[r], 20 << 20);
                        assert_true(a->room && fake.together == 1);
                }
                for (uint32_t r = 0; r < 2; r++)
                        gpu_exchange_close(x[r], true);
        }
        max_blocks = 0;
        for (uint32_t r = 0; r < 3; r++)
                gpu_end(gpu[r]);
}

/* A rank that allows no block has another version, or is wrong. */
static void test_no_blocks(void **state) {
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x = open_rank(gpu[0], 0, 2, 0, offers), *y = open_rank(gpu[1], 0, 2, 1, offers);

        (void)state;
        memset(offers + CLIENT_GPU_OFFER_BYTES + OFFER_BLOCKS, 0, 8);
        assert_int_equal(gpu_exchange_connect(x, offers, error), RMX_E_UNSUPPORTED);
        gpu_exchange_close(x, true);
        gpu_exchange_close(y, true);
        gpu_end(gpu[0]);
        gpu_end(gpu[1]);
}

/* What was sent and not taken keeps the area from others until it is. */
static void test_owed(void **state) {
        static char a[64];
        const struct client_gpu_bell bell = transfer(RING_OP_SEND, 1, a, 8);
        unsigned char offers[2 * CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu[2] = {gpu_new(0), gpu_new(1)};
        struct client_gpu_exchange *x[2];
        const char *first;
        uint32_t *words;

        (void)state;
        for (uint32_t round = 0; round < 3; round++) { /* nothing sent, sent and taken, sent */
                for (uint32_t r = 0; r < 2; r++)
                        x[r] = open_rank(gpu[r], 0, 2, r, offers);
                for (uint32_t r = 0; r < 2; r++)
                        assert_int_equal(gpu_exchange_connect(x[r], offers, error), RMX_OK);
                assert_null(gpu[0]->areas->next);
                words = (uint32_t *)(void *)(gpu[0]->areas->head + EXCHANGE_OFFSET_LANES);
                if (round)
                        assert_int_equal(gpu_exchange_pairs(x[0], &bell, 1, NULL, error), RMX_OK);
                words[(PAIR_SENT * 2 + 1) * PAIR_LANES(2) + 3] += round > 0; /* lane 3 to rank 1 */
                words[(PAIR_CREDIT * 2 + 1) * PAIR_LANES(2) + 3] += round == 1;
                for (uint32_t r = 0; r < 2; r++)
                        gpu_exchange_close(x[r], true);
        }
        first = gpu[0]->areas->head;
        x[0] = open_rank(gpu[0], 0, 2, 0, offers);
        assert_ptr_not_equal(gpu[0]->areas->head, first); /* a second one, since the first is owed something */
        gpu_exchange_close(x[0], true);
        words[(PAIR_CREDIT * 2 + 1) * PAIR_LANES(2) + 3]++; /* now it is taken */
        x[0] = open_rank(gpu[0], 0, 2, 0, offers);
        x[1] = open_rank(gpu[0], 1, 2, 0, offers);
        assert_null(gpu[0]->areas->next->next); /* both are used again */
        gpu_exchange_close(x[0], true);
        gpu_exchange_close(x[1], true);
        gpu_end(gpu[0]);
        gpu_end(gpu[1]);
}

static void test_limits(void **state) {
        unsigned char offer[CLIENT_GPU_OFFER_BYTES];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x;

        (void)state;
        assert_int_equal(gpu_exchange_open(gpu, 0, HANDLE, 1, 0, 0, &x, offer, error), RMX_E_UNSUPPORTED);
        assert_int_equal(gpu_exchange_open(gpu, 0, HANDLE, EXCHANGE_RANKS + 1, 0, 0, &x, offer, error),
                         RMX_E_UNSUPPORTED);
        assert_int_equal(gpu_exchange_open(gpu, 0, HANDLE, 4, 4, 0, &x, offer, error), RMX_E_UNSUPPORTED);
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(EXCHANGE_AREA_BYTES(n) <= (45u << 20));
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(EXCHANGE_OFFSET_FLAGS + EXCHANGE_CHUNK_BLOCKS(n) * n * 4 <= EXCHANGE_OFFSET_PAIR);
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(EXCHANGE_OFFSET_WARPS + EXCHANGE_LINE_BLOCKS(n) * EXCHANGE_LANES * 4 <=
                            EXCHANGE_OFFSET_PAIR);
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(EXCHANGE_OFFSET_LANES + PAIR_LANE_WORDS(n) * 4 <= EXCHANGE_HEAD_BYTES);
        for (uint32_t n = 2; n <= EXCHANGE_RANKS; n++)
                assert_true(PAIR_BLOCKS(n) * 2 * (n - 1) <= 2 * EXCHANGE_BLOCKS); /* have room on a GPU at once */
        assert_true(sizeof(struct pair_arguments) <= 4096); /* of parameters that a kernel may have */
        assert_true(sizeof(struct exchange_header) <= EXCHANGE_OFFSET_PROGRESS);
        gpu_end(gpu);
}

/* What the executor reads of a slot says whose it is: of the one that has it, or had it last. */
static void test_named(void **state) {
        unsigned char offers[CLIENT_GPU_OFFER_BYTES * 2];
        struct client_gpu *gpu = gpu_new(0);
        struct client_gpu_exchange *x = open_rank(gpu, 5, 2, 0, offers);

        (void)state;
        assert_int_equal(gpu->host->exchanged[5].handle, HANDLE + 5);
        assert_int_equal(gpu->host->exchanged[4].handle, 0);
        gpu->host->exchanged[5].begun = 9; /* a kernel's */
        gpu_exchange_close(x, true);
        assert_int_equal(gpu->host->exchanged[5].handle, HANDLE + 5);
        assert_int_equal(gpu->host->exchanged[5].begun, 9);
        assert_int_equal(gpu_exchange_open(gpu, 5, HANDLE, 2, 0, 0, &x, offers, error), RMX_OK);
        assert_int_equal(gpu->host->exchanged[5].handle, HANDLE);
        assert_int_equal(gpu->host->exchanged[5].begun, 0);
        gpu_exchange_close(x, true);
        gpu_end(gpu);
}

/* For setting up: each slot has a stream and memory of its own, the same each time. */
static void test_own(void **state) {
        struct client_gpu *gpu = gpu_new(0);
        void *stream = gpu_own_stream(gpu, 3), *memory = gpu_own_memory(gpu, 3);

        (void)state;
        assert_non_null(stream);
        assert_non_null(memory);
        for (uint32_t i = 0; i < CLIENT_GPU_OWN_BYTES; i++)
                assert_int_equal(((char *)memory)[i], 0);
        assert_ptr_equal(gpu_own_stream(gpu, 3), stream);
        assert_ptr_equal(gpu_own_memory(gpu, 3), memory);
        assert_ptr_not_equal(gpu_own_stream(gpu, 4), stream);
        assert_int_equal((char *)gpu_own_memory(gpu, 4) - (char *)memory, CLIENT_GPU_OWN_BYTES);
        gpu_end(gpu);

        gpu = gpu_new(0);
        fake.elsewhere = true; /* the device knows it by another address */
        assert_null(gpu_own_memory(gpu, 0));
        fake.elsewhere = false;
        fake.calls = 0;
        fake.fail_at = 1;
        assert_null(gpu_own_memory(gpu, 0));
        fake.calls = 0;
        assert_null(gpu_own_stream(gpu, 0));
        fake.fail_at = 0;
        assert_non_null(gpu_own_stream(gpu, 0));
        assert_non_null(gpu_own_memory(gpu, 0));
        gpu_end(gpu);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_here, setup, teardown),
                cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_there, setup, teardown),
                cmocka_unit_test_setup_teardown(test_kept, setup, teardown),
                cmocka_unit_test_setup_teardown(test_heads, setup, teardown),
                cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
                cmocka_unit_test_setup_teardown(test_forged, setup, teardown),
                cmocka_unit_test_setup_teardown(test_short, setup, teardown),
                cmocka_unit_test_setup_teardown(test_peer, setup, teardown),
                cmocka_unit_test_setup_teardown(test_loaded, setup, teardown),
                cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
                cmocka_unit_test_setup_teardown(test_transfers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_owed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_blocks, setup, teardown),
                cmocka_unit_test(test_tiles),
                cmocka_unit_test_setup_teardown(test_few_blocks, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_blocks, setup, teardown),
                cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
                cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_named, setup, teardown),
                cmocka_unit_test_setup_teardown(test_own, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
