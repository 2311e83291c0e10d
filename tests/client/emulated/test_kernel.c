/* SPDX-License-Identifier: MIT */
/*
 * The functions of railmux_device.h, which our own bell kernels are made of, on threads of the host and against a
 * stand-in for the executor, which knows the area by gpu/device/bell.h.
 */
#include "tests/client/emulated/kernel_rig.h"

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_payload(void **state) {
        static const uint32_t sizes[] = {0, 1, 3, 8, 9, 250, 256, 1000, 1024, 4099, 8192, 8193, 16383, 16384};
        uint32_t n = sizeof(sizes) / sizeof(sizes[0]);
        struct server server;

        (void)state;
        server_start(&server, 1, 0);
        for (uint32_t i = 0; i < 3 * n; i++) {
                uint32_t in_bytes = sizes[i % n], out_bytes = i < n ? in_bytes : sizes[(i * 5 + 3) % n];
                uint32_t in_shift = i < 2 * n ? 0 : i % 9, out_shift = i < 2 * n ? 0 : i * 3 % 13;
                bool aligned = (in_bytes | out_bytes | in_shift | out_shift) % 8 == 0;
                struct rmx_device_handle h =
                        handle_of(in_bytes, out_bytes, aligned ? RMX_BELL_ALIGNED : RMX_BELL_BYTES);

                fill(i);
                h.in = in + in_shift;
                h.out = out + out_shift;
                assert_int_equal(call(&h, i % 3 == 2 ? 64 : 32), RMX_OK);
                check_result(in_shift, out_shift, in_bytes, out_bytes);
        }
        server_stop(&server);
        assert_int_equal(server.served, 3 * n);
        assert_int_equal(*number_word(SLOT), 3 * n);
        assert_int_equal(host.wake, 0);
}

/* More lanes than threads and fewer; all places again and again; what the line says. */
static void test_line(void **state) {
        struct server server;

        (void)state;
        server_start(&server, 1, 0);
        for (uint32_t i = 0; i < 150; i++) {
                struct rmx_device_handle h = handle_of(i * 400, i * 300, RMX_BELL_NONE);

                assert_int_equal(call(&h, i % 50 ? 32 : 160), RMX_OK);
                assert_int_equal(*header(offsetof(struct bell_header, counter)), i + 1);
        }
        server_stop(&server);
        for (uint32_t w = 0; w < RING_WORDS; w++) {
                const char *line = area + BELL_OFFSET_LINES + (size_t)(150 % BELL_LINES) * RING_WORDS * 8;
                struct rmx_device_handle h = handle_of(149 * 400, 149 * 300, RMX_BELL_NONE);

                assert_int_equal(cell(line + w * 8) >> 32, 150);
                assert_int_equal((uint32_t)cell(line + w * 8), w == RING_W_SEQUENCE ? 150 : h.word[w]);
        }
        for (uint32_t i = 0; i < BELL_DEPTH; i++)
                assert_true(150 - ((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED))[i] < BELL_DEPTH);
}

/* What the block has written is released before the line stands, and the result is acquired; packets need neither. */
static void test_fences(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        server_start(&server, 1, 0);
        k->n = 1;
        k->handle[0] = handle_of(100000, 100000, RMX_BELL_NONE);
        block_launch(&block, 64, kernel_call, k);
        block_join(&block);
        assert_int_equal(block.counts[BLOCK_RELEASES], 32); /* the warp that rings */
        assert_int_equal(block.counts[BLOCK_ACQUIRES], 64);
        assert_int_equal(block.counts[BLOCK_FENCES], 0);
        k->handle[0] = handle_of(64, 64, RMX_BELL_ALIGNED);
        block_launch(&block, 64, kernel_call, k);
        block_join(&block);
        assert_int_equal(block.counts[BLOCK_RELEASES] + block.counts[BLOCK_ACQUIRES], 0);
        block_launch(&block, 64, kernel_start, k);
        block_join(&block);
        assert_int_equal(block.counts[BLOCK_FENCES], 1);
        server_stop(&server);
        free(k);
}

static void test_start_wait(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;

        (void)state;
        must(k);
        k->n = 3;
        fill(9);
        for (uint32_t i = 0; i < 3; i++) {
                k->handle[i] = handle_of(256u << i, 256u << i, RMX_BELL_ALIGNED);
                k->handle[i].out = out + 4096 * i;
        }
        run(k, 64, kernel_start);
        for (uint32_t i = 0; i < 3; i++)
                for (uint32_t t = 0; t < 64; t++)
                        assert_int_equal(k->ticket[i][t], i + 1);
        assert_int_equal(*number_word(SLOT), 3);
        assert_int_equal(host.wake, 0);
        server_start(&server, 1, 0);
        run(k, 64, kernel_wait); /* another kernel */
        server_stop(&server);
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(k->result[i][0], RMX_OK);
                assert_int_equal(k->result[i][63], RMX_OK);
                assert_int_equal(out[4096 * i], (unsigned char)~in[0]);
                assert_true(out[4096 * i + (256 << i) - 1] != 0x5a || i == 3);
                assert_int_equal(out[4096 * i + (256 << i)], 0x5a);
        }
        free(k);
}

/* Several calls of one block, one after the other. */
static void test_many(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;

        (void)state;
        must(k);
        server_start(&server, 1, 0);
        k->n = 100;
        k->handle[0] = handle_of(512, 512, RMX_BELL_ALIGNED);
        k->handle[1] = handle_of(50000, 50000, RMX_BELL_NONE);
        k->handle[2] = handle_of(13, 13, RMX_BELL_BYTES);
        fill(1);
        run(k, 32, kernel_call);
        server_stop(&server);
        assert_int_equal(server.served, 100);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(k->result[i][31], RMX_OK);
        free(k);
}

static void test_failed(void **state) {
        struct server server;

        (void)state;
        for (uint32_t payload = 0; payload < 3; payload++) {
                struct rmx_device_handle h = handle_of(4096, 4096, payload);

                (void)setup(NULL);
                fill(payload);
                server_start(&server, 1, ring_status(RMX_E_PEER_LOST, 3));
                assert_int_equal(call(&h, 32), RMX_E_PEER_LOST);
                server_stop(&server);
                server_start(&server, 2, ring_status(RMX_E_ABORTED, 1));
                assert_int_equal(call(&h, 32), RMX_E_ABORTED);
                server_stop(&server);
                assert_int_equal(host.status[SLOT], ring_status(RMX_E_PEER_LOST, 3)); /* the first stays */
                assert_int_equal(host.status[OTHER], 0);
                check_result(0, 0, 4096, 0);
                server_start(&server, 3, 0);
                assert_int_equal(call(&h, 32), RMX_OK); /* the places are free again, and the next one is right */
                server_stop(&server);
        }
}

/* Nobody serves. */
static void test_over(void **state) {
        struct rmx_device_handle h = handle_of(256, 256, RMX_BELL_ALIGNED);
        struct kernel *k = calloc(1, sizeof(*k));
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        k->handle[0] = h;
        block_launch(&block, 64, kernel_call, k); /* waits */
        while (__atomic_load_n(number_word(SLOT), __ATOMIC_SEQ_CST) != 1)
                sched_yield();
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_ENDED) + OTHER, 1, __ATOMIC_SEQ_CST);
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_ENDED) + SLOT, 1, __ATOMIC_SEQ_CST);
        block_join(&block);
        for (uint32_t i = 0; i < 64; i++)
                assert_int_equal(k->result[0][i], RMX_E_DEVICE_LOST);
        assert_int_equal(host.status[SLOT], RMX_E_DEVICE_LOST);
        assert_int_equal(call(&h, 32), RMX_E_DEVICE_LOST);

        ((uint32_t *)(void *)(area + BELL_OFFSET_ENDED))[SLOT] = 0;
        *header(offsetof(struct bell_header, closed)) = 1;
        assert_int_equal(call(&h, 32), RMX_E_DEVICE_LOST);
        /* The place is taken for ever: nothing is rung. */
        memset(area + BELL_OFFSET_RELEASED, 0x77, BELL_DEPTH * 4);
        run(k, 32, kernel_start);
        assert_int_equal(k->ticket[0][31], 0);
        assert_int_equal(*number_word(SLOT), 3);
        run(k, 32, kernel_wait);
        assert_int_equal(k->result[0][31], RMX_E_DEVICE_LOST);
        free(k);
}

/* A start wakes, a call does after a while, and again. */
static void test_parked(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        k->handle[0] = handle_of(256, 256, RMX_BELL_ALIGNED);
        *header(offsetof(struct bell_header, parked)) = 1;
        run(k, 64, kernel_start);
        assert_int_equal(host.wake, 1);
        block_launch(&block, 64, kernel_call, k);
        while (__atomic_load_n(&host.wake, __ATOMIC_SEQ_CST) != 2)
                sched_yield();
        while (__atomic_load_n(&host.wake, __ATOMIC_SEQ_CST) < 4) /* now and then again */
                sched_yield();
        __atomic_store_n(header(offsetof(struct bell_header, parked)), 0, __ATOMIC_SEQ_CST);
        server_start(&server, 1, 0);
        block_join(&block);
        assert_int_equal(k->result[0][63], RMX_OK);
        run(k, 64, kernel_wait);
        assert_int_equal(k->result[0][63], RMX_OK);
        server_stop(&server);
        assert_in_range(host.wake, 4, 1000);
        free(k);
}

/* A place that the request before has not given back yet. */
static void test_taken(void **state) {
        uint32_t *released = (uint32_t *)(void *)(area + BELL_OFFSET_RELEASED);
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        k->handle[0] = handle_of(64, 64, RMX_BELL_ALIGNED);
        for (uint32_t place = 1; place < BELL_DEPTH; place += 31) {
                uint32_t free_again = released[place];

                released[place] = free_again - BELL_DEPTH;
                *header(offsetof(struct bell_header, counter)) = place - 1;
                server_start(&server, place, 0);
                block_launch(&block, 32, kernel_call, k);
                while (__atomic_load_n(header(offsetof(struct bell_header, counter)), __ATOMIC_SEQ_CST) != place)
                        sched_yield();
                for (uint32_t i = 0; i < 100; i++) {
                        sched_yield();
                        assert_int_equal(cell(area + BELL_OFFSET_LINES + place * RING_WORDS * 8), 0);
                }
                __atomic_store_n(&released[place], free_again, __ATOMIC_SEQ_CST);
                block_join(&block);
                assert_int_equal(k->result[0][0], RMX_OK);
                server_stop(&server);
                assert_int_equal(released[place], place);
        }
        free(k);
}

/* Numbers go through 0, which the ring leaves out. */
static void test_wrap(void **state) {
        struct rmx_device_handle h = handle_of(64, 64, RMX_BELL_ALIGNED);
        uint32_t counter = UINT32_MAX - 70;
        struct server server;

        (void)state;
        area_used(counter);
        *number_word(SLOT) = UINT32_MAX - 20;
        server_start(&server, counter + 1, 0);
        for (uint32_t i = 0; i < 140; i++) {
                fill(i);
                assert_int_equal(call(&h, 32), RMX_OK);
                check_result(0, 0, 64, 64);
        }
        server_stop(&server);
        assert_int_equal(server.served, 140);
        assert_int_equal(*header(offsetof(struct bell_header, counter)), 70);
        assert_int_equal(*number_word(SLOT), 140 - 21);
}

/* Two blocks at once, of two communicators, as two streams; with argument blocks, as our own kernels have. */
struct ringer {
        struct rmx_device_handle handle;
        struct rmx_bell_shared shared;
        uint64_t argument[40];
};

static void kernel_ring(void *userdata) {
        struct ringer *r = userdata;

        for (uint32_t i = 0; i < 40; i++) {
                uint32_t sequence = rmx_bell_ring(&r->handle, RMX_BELL_NONE, r->argument, 40, block_thread(),
                                                  block_threads(), &r->shared);

                rmx_bell_await(&r->handle, RMX_BELL_NONE, sequence, block_thread(), block_threads(), &r->shared);
                if (block_thread() == 0)
                        rmx_bell_finish(&r->handle, sequence, r->shared.status);
                rmx_bell_sync();
        }
}

static void test_two(void **state) {
        struct ringer ringer[2];
        struct block block[2];
        struct server server;

        (void)state;
        for (uint32_t i = 0; i < 2; i++) {
                ringer[i] = (struct ringer){.handle = handle_of(300, 300, RMX_BELL_NONE)};
                ringer[i].handle.slot = i ? OTHER : SLOT;
                ringer[i].handle.counter = number_word(ringer[i].handle.slot);
                for (uint32_t w = 0; w < 40; w++)
                        ringer[i].argument[w] = UINT64_C(0x100000001) * (w + 1);
        }
        server_start(&server, 1, 0);
        for (uint32_t i = 0; i < 2; i++)
                block_launch(&block[i], 32 + 32 * i, kernel_ring, &ringer[i]);
        for (uint32_t i = 0; i < 2; i++)
                block_join(&block[i]);
        server_stop(&server);
        assert_int_equal(server.served, 80);
        assert_int_equal(*number_word(SLOT), 40);
        assert_int_equal(*number_word(OTHER), 40);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(server.argument[i], UINT64_C(0x100000001) * (i + 1));
        assert_int_equal(host.status[SLOT] | host.status[OTHER], 0);
}

static void test_version(void **state) {
        struct rmx_device_handle h = handle_of(64, 64, RMX_BELL_ALIGNED);
        struct kernel *k = calloc(1, sizeof(*k));

        (void)state;
        must(k);
        h.version++;
        assert_int_equal(call(&h, 32), RMX_E_VERSION);
        k->n = 1;
        k->handle[0] = h;
        run(k, 32, kernel_start);
        assert_int_equal(k->ticket[0][0], 0);
        run(k, 32, kernel_wait);
        assert_int_equal(k->result[0][0], RMX_E_VERSION);
        assert_int_equal(*header(offsetof(struct bell_header, counter)), 0);
        free(k);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_payload, setup), cmocka_unit_test_setup(test_line, setup),
                cmocka_unit_test_setup(test_fences, setup),  cmocka_unit_test_setup(test_start_wait, setup),
                cmocka_unit_test_setup(test_many, setup),    cmocka_unit_test_setup(test_failed, setup),
                cmocka_unit_test_setup(test_over, setup),    cmocka_unit_test_setup(test_parked, setup),
                cmocka_unit_test_setup(test_taken, setup),   cmocka_unit_test_setup(test_wrap, setup),
                cmocka_unit_test_setup(test_two, setup),     cmocka_unit_test_setup(test_version, setup),
        };
        int r = cmocka_run_group_tests(tests, NULL, NULL);

        free(area);
        return r;
}
