/* SPDX-License-Identifier: MIT */
/* Channels: order, credit, wrap-around of the counters, and how much memory they take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/host/channel.h"

static const struct channel_id ID = {.region = 1, .source = 2, .destination = 0};

static void set_new(struct channel_set *set, uint32_t n_ranks, uint32_t part_bytes, uint32_t slots) {
        struct plan_geometry geometry = {.part_bytes = part_bytes, .slots = slots};

        assert_int_equal(channel_set_init(set, n_ranks, &geometry), 0);
}

static void push_value(const struct channel_set *set, struct channel_end *end, uint32_t value) {
        memcpy(channel_push_data(set, ID, end), &value, sizeof(value));
        channel_push(set, ID, end);
}

static uint32_t take_value(const struct channel_set *set, struct channel_end *end) {
        uint32_t value;

        memcpy(&value, channel_chunk_data(set, ID, end), sizeof(value));
        channel_release(set, ID, end);
        return value;
}

/* All fills between empty and full, through several laps, from a given start. */
static void run_from(uint32_t start, uint32_t slots) {
        struct channel_set set;
        struct channel_end source = {.count = start, .seen = start}, destination = {.count = start};
        uint32_t pushed = 0, taken = 0;

        set_new(&set, 3, 64, slots);
        channel_set_restart(&set, start);
        for (uint32_t fill = 1; fill <= slots; fill++)
                for (uint32_t lap = 0; lap < 3; lap++) {
                        assert_false(channel_has_chunk(&set, ID, &destination));
                        for (uint32_t i = 0; i < fill; i++) {
                                assert_true(channel_may_push(&set, ID, &source));
                                push_value(&set, &source, pushed++);
                        }
                        assert_int_equal(channel_may_push(&set, ID, &source), fill < slots);
                        for (uint32_t i = 0; i < fill; i++) {
                                assert_true(channel_has_chunk(&set, ID, &destination));
                                assert_int_equal(take_value(&set, &destination), taken++);
                        }
                }
        assert_int_equal(source.count, start + pushed);
        channel_set_deinit(&set);
}

static void test_order_and_credit(void **state) {
        (void)state;
        for (uint32_t slots = 1; slots <= 7; slots++)
                run_from(0, slots);
}

static void test_wrap(void **state) {
        (void)state;
        for (uint32_t slots = 1; slots <= 7; slots++)
                for (uint32_t before = 0; before < 20; before++)
                        run_from(0u - before, slots);
}

/* Every channel has its own slots and words. */
static void test_disjoint(void **state) {
        struct channel_set set;
        struct channel_end end = {0};
        uint32_t n = 5;

        (void)state;
        set_new(&set, n, 128, 3);
        for (uint32_t region = 0; region < PLAN_REGIONS_MAX; region++)
                for (uint32_t source = 0; source < n; source++)
                        for (uint32_t destination = 0; destination < n; destination++)
                                for (end.slot = 0; end.slot < 3; end.slot++) {
                                        struct channel_id id = {region, source, destination};
                                        unsigned char *data = channel_push_data(&set, id, &end);

                                        for (uint32_t i = 0; i < 128; i++)
                                                assert_int_equal(data[i], 0);
                                        assert_int_equal(channel_slot(&set, id, end.slot)->flag, 0);
                                        assert_int_equal(channel_credit(&set, id)->released, 0);
                                        memset(data, 0xff, 128);
                                        assert_true(data + 128 <= set.memory + set.size);
                                        assert_true(data >= set.memory + set.slot_offset);
                                }
        channel_set_deinit(&set);
}

static size_t resident_pages(const struct channel_set *set) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE), n_pages = (set->size + page - 1) / page, n = 0;
        unsigned char *map = malloc(n_pages);

        assert_non_null(map);
        assert_int_equal(mincore(set->memory, set->size, map), 0);
        for (size_t i = 0; i < n_pages; i++)
                n += map[i] & 1;
        free(map);
        return n;
}

static void test_memory_is_lazy(void **state) {
        struct channel_set set;
        struct channel_end source = {0}, destination = {0};

        (void)state;
        set_new(&set, 64, 65536, 4);
        assert_true(set.size > (size_t)64 * 64 * 4 * 65536);
        assert_int_equal(resident_pages(&set), 0);
        for (uint32_t i = 0; i < 8; i++) {
                assert_true(channel_may_push(&set, ID, &source));
                push_value(&set, &source, i);
                assert_true(channel_has_chunk(&set, ID, &destination));
                assert_int_equal(take_value(&set, &destination), i);
        }
        /* Four slots, each a page or two, and a page of credits. */
        assert_true(resident_pages(&set) <= 9);
        channel_set_deinit(&set);
}

static void test_refusals(void **state) {
        struct channel_set set = CHANNEL_SET_NULL;
        struct plan_geometry good = {.part_bytes = 64, .slots = 1}, g;

        (void)state;
        assert_true(channel_set_init(&set, 0, &good) < 0);
        assert_true(channel_set_init(&set, PLAN_RANKS_MAX + 1, &good) < 0);
        g = (struct plan_geometry){.part_bytes = 0, .slots = 1};
        assert_true(channel_set_init(&set, 2, &g) < 0);
        g = (struct plan_geometry){.part_bytes = 96, .slots = 1};
        assert_true(channel_set_init(&set, 2, &g) < 0);
        g = (struct plan_geometry){.part_bytes = 64, .slots = 0};
        assert_true(channel_set_init(&set, 2, &g) < 0);
        g = (struct plan_geometry){.part_bytes = 0xffffffc0u, .slots = 0xffffffffu};
        assert_true(channel_set_init(&set, 64, &g) < 0);
        assert_null(set.memory);
        channel_set_deinit(&set);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_order_and_credit), cmocka_unit_test(test_wrap),
                cmocka_unit_test(test_disjoint),         cmocka_unit_test(test_memory_is_lazy),
                cmocka_unit_test(test_refusals),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
