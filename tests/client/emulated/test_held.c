/* SPDX-License-Identifier: MIT */
/*
 * Of the functions of railmux_device.h: numbers whose places are held by requests that wait, and that are passed on.
 */
#include "tests/client/emulated/kernel_rig.h"

/* A request waits for another rank, and all others go on: where they come round to its place, they pass on the number,
 * also when that is 0. */
static void test_held(void **state) {
        static const uint32_t before[] = {0, 63, UINT32_MAX - 1, UINT32_MAX - 128};
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));

        (void)state;
        must(k && held);
        held->n = 1;
        k->n = 4 * BELL_DEPTH;
        for (uint32_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
                uint32_t number, passed, *released;
                struct server server;

                (void)setup(NULL);
                if (before[i])
                        area_used(before[i]);
                held->handle[0] = handle_of(100000, 100000, RMX_BELL_NONE);
                run(held, 32, kernel_start);
                number = held->ticket[0][0];
                assert_int_equal(number, before[i] + 1);
                released = (uint32_t *)(void *)(area + BELL_OFFSET_RELEASED) + number % BELL_DEPTH;
                server_start_held(&server, number, number);
                for (uint32_t c = 0; c < 3; c++)
                        k->handle[c] = handle_of(64 << c, 64 << c, c ? RMX_BELL_ALIGNED : RMX_BELL_NONE);
                run(k, 32, kernel_call);
                assert_int_equal(k->result[0][0], RMX_OK);
                assert_int_equal(*number_word(SLOT), 4 * BELL_DEPTH + 1);
                assert_int_equal(server.passed, number % BELL_DEPTH ? 4 : before[i] > UINT32_MAX / 2 ? 3 : 4);
                assert_int_not_equal(*released, number);
                /* It is answered, and its place serves again at once. */
                passed = server.passed;
                server_release(&server);
                run(held, 32, kernel_wait);
                assert_int_equal(held->result[0][31], RMX_OK);
                assert_int_equal(*released, number);
                run(k, 32, kernel_call);
                server_stop(&server);
                assert_int_equal(server.served, 8 * BELL_DEPTH);
                assert_int_equal(server.passed, passed);
        }
        free(held);
        free(k);
}

/* As if all numbers after `held` up to that one had been drawn, by requests that are over, or passed on where that is
 * not. */
static void area_goes_on(uint32_t held, uint32_t counter) {
        for (uint32_t number = held + 1; number != counter + 1; number++) {
                const bool passed = number % BELL_DEPTH == held % BELL_DEPTH;

                if (!number)
                        continue;
                if (!passed)
                        ((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED))[number % BELL_DEPTH] = number;
                for (uint32_t w = 0; w < RING_WORDS; w++)
                        cell_put(area + BELL_OFFSET_LINES + ((size_t)(number % BELL_LINES) * RING_WORDS + w) * 8,
                                 (uint64_t)number << 32 | (!passed             ? 0
                                                           : w == RING_W_FLAGS ? BELL_FLAG_PASSED
                                                           : w == BELL_W_LAST  ? held
                                                                               : 0));
        }
        *header(offsetof(struct bell_header, counter)) = counter;
}

/* The line of what is held is not overwritten: one round of all lines later, who comes to the place waits. If that
 * number is 0, which has no line, it is another round later. */
static void test_held_for_long(void **state) {
        static const struct {
                uint32_t before; /* the number that is held */
                uint32_t next;   /* the first other one whose line has that place */
        } cases[] = {
                {1, 2 + BELL_LINES},
                {UINT32_MAX - BELL_LINES, BELL_LINES}, /* not 0 */
                {UINT32_MAX - BELL_LINES + 1, 1},
        };
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));

        (void)state;
        must(k && held);
        for (uint32_t i = 0; i < 3; i++)
                k->handle[i] = held->handle[i] = handle_of(64, 64, RMX_BELL_NONE);
        for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const uint32_t number = cases[i].before + 1, next = cases[i].next;
                const char *line = area + BELL_OFFSET_LINES + (size_t)(number % BELL_LINES) * RING_WORDS * 8;
                uint32_t passed, from = next - 2 * BELL_DEPTH - 5;
                struct server server;
                struct block block;

                (void)setup(NULL);
                area_used(cases[i].before);
                held->n = 1;
                run(held, 32, kernel_start);
                assert_int_equal(held->ticket[0][0], number);
                area_goes_on(number, from);
                server_start_held(&server, from + 1, number);
                k->n = 0;
                for (uint32_t between = from + 1; between != next; between++)
                        k->n += between && between % BELL_DEPTH != number % BELL_DEPTH;
                run(k, 32, kernel_call);
                assert_int_equal(k->result[0][0], RMX_OK);
                assert_int_equal(*header(offsetof(struct bell_header, counter)), next - (next == 1 ? 2 : 1)); /* (0) */
                assert_int_equal(cell(line) >> 32, number);
                k->n = 1;
                block_launch(&block, 32, kernel_call, k);
                while (__atomic_load_n(header(offsetof(struct bell_header, counter)), __ATOMIC_SEQ_CST) != next)
                        sched_yield();
                for (uint32_t turn = 0; turn < 3000; turn++) {
                        sched_yield();
                        assert_int_equal(cell(line) >> 32, number);
                }
                passed = __atomic_load_n(&server.passed, __ATOMIC_SEQ_CST);
                assert_int_equal(passed, 2);
                if (i == 2) { /* its answers are enough */
                        server_release(&server);
                        block_join(&block);
                        assert_int_equal(__atomic_load_n(&server.passed, __ATOMIC_SEQ_CST), passed + 1);
                        run(held, 32, kernel_wait);
                        assert_int_equal(held->result[0][31], RMX_OK);
                } else { /* As its wait does, which would be a second block here, with the shared memory of the first.
                          */
                        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED) + number % BELL_DEPTH,
                                         number, __ATOMIC_SEQ_CST);
                        block_join(&block);
                        assert_int_equal(__atomic_load_n(&server.passed, __ATOMIC_SEQ_CST), passed);
                }
                assert_int_equal(k->result[0][31], RMX_OK);
                assert_int_equal(cell(line) >> 32, next);
                run(k, 32, kernel_call);
                assert_int_equal(k->result[0][31], RMX_OK);
                server_stop(&server);
        }
        free(held);
        free(k);
}

/* A request that has been answered and not been waited for keeps its place, and nobody needs its line. */
static void test_not_waited_for(void **state) {
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));
        struct server server;

        (void)state;
        must(k && held);
        held->n = 1;
        held->handle[0] = handle_of(100000, 100000, RMX_BELL_NONE);
        run(held, 32, kernel_start);
        assert_int_equal(held->ticket[0][0], 1);
        server_start_held(&server, 1, 1);
        server_release(&server);
        while (__atomic_load_n(&server.release, __ATOMIC_SEQ_CST) == 1)
                sched_yield();
        server_stop(&server);
        area_goes_on(1, BELL_LINES - BELL_DEPTH);
        server_start(&server, BELL_LINES - BELL_DEPTH + 1, RMX_OK);
        for (uint32_t i = 0; i < 3; i++)
                k->handle[i] = handle_of(64, 64, RMX_BELL_NONE);
        k->n = 4 * BELL_DEPTH;
        run(k, 32, kernel_call);
        assert_int_equal(k->result[0][31], RMX_OK);
        run(held, 32, kernel_wait);
        assert_int_equal(held->result[0][31], RMX_OK);
        server_stop(&server);
        assert_int_equal(server.passed, 5);
        free(held);
        free(k);
}

/* Of a communicator that has ended, a kernel that comes to a held place gives up, but the ring goes on. */
static void test_held_and_ended(void **state) {
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));
        struct rmx_device_handle h = handle_of(64, 64, RMX_BELL_NONE);
        struct server server;

        (void)state;
        must(k && held);
        server_start_held(&server, 1, 1);
        held->n = 1;
        held->handle[0] = h;
        run(held, 32, kernel_start);
        k->handle[0] = k->handle[1] = k->handle[2] = h;
        k->n = BELL_DEPTH - 1;
        run(k, 32, kernel_call);
        h.slot = OTHER;
        h.counter = number_word(OTHER);
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_ENDED) + OTHER, 1, __ATOMIC_SEQ_CST);
        assert_int_equal(call(&h, 32), RMX_E_DEVICE_LOST);
        assert_int_equal(*header(offsetof(struct bell_header, counter)), 1 + BELL_DEPTH);
        assert_int_equal(*number_word(OTHER), 0);
        k->n = 2 * BELL_DEPTH;
        run(k, 32, kernel_call);
        assert_int_equal(k->result[0][31], RMX_OK);
        server_release(&server);
        run(held, 32, kernel_wait);
        assert_int_equal(held->result[0][31], RMX_OK);
        server_stop(&server);
        assert_int_equal(server.served, BELL_DEPTH - 1 + 2 * BELL_DEPTH);
        free(held);
        free(k);
}

/* All places are held: who comes waits, without using up the numbers, for whichever is given back. */
static void test_all_held(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        for (uint32_t i = 0; i < BELL_DEPTH; i++) { /* whose waits never come */
                k->handle[0] = handle_of(64, 64, RMX_BELL_NONE);
                run(k, 32, kernel_start);
        }
        server_start(&server, 1, RMX_OK);
        block_launch(&block, 32, kernel_call, k);
        while (__atomic_load_n(header(offsetof(struct bell_header, counter)), __ATOMIC_SEQ_CST) < 6 * BELL_DEPTH)
                sched_yield();
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED) + 40, 40, __ATOMIC_SEQ_CST);
        block_join(&block);
        assert_int_equal(k->result[0][31], RMX_OK);
        server_stop(&server);
        assert_int_equal(*header(offsetof(struct bell_header, counter)) % BELL_DEPTH, 40);
        assert_in_range(*header(offsetof(struct bell_header, counter)), 6 * BELL_DEPTH, 12 * BELL_DEPTH);
        free(k);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_held, setup),           cmocka_unit_test_setup(test_held_for_long, setup),
                cmocka_unit_test_setup(test_not_waited_for, setup), cmocka_unit_test_setup(test_held_and_ended, setup),
                cmocka_unit_test_setup(test_all_held, setup),
        };
        int r = cmocka_run_group_tests(tests, NULL, NULL);

        free(area);
        return r;
}
