/* SPDX-License-Identifier: MIT */
/* Channels: order, credit, wrap-around of the counters, and how much memory they take. */
#include "tests/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/host/channel.h"

static const struct channel_id ID = {.region = 1, .source = 2, .destination = 0};
static const struct channel_id SELF = {.region = 1, .source = 1, .destination = 1};
#define N_RANKS 3u

static void set_new(struct channel_set *set, uint32_t n_ranks, uint32_t part_bytes, uint32_t slots) {
        struct plan_geometry geometry = {.part_bytes = part_bytes, .slots = slots};

        assert_int_equal(channel_set_init(set, n_ranks, &geometry), 0);
}

/* Odd values lie beside their flag. */
static void push_value(const struct channel_set *set, struct channel_id id, struct channel_end *end, uint32_t value) {
        memcpy(channel_data(set, id, end, value % 2), &value, sizeof(value));
        channel_push(set, id, end);
}

static void take_value(const struct channel_set *set, struct channel_id id, struct channel_end *end, uint32_t want) {
        uint32_t value;

        memcpy(&value, channel_data(set, id, end, want % 2), sizeof(value));
        channel_release(set, id, end);
        assert_int_equal(value, want);
}

/* All fills between empty and full, through several laps, from a given start. */
static void run_from(uint32_t start, uint32_t slots, struct channel_id id) {
        struct channel_set set;
        struct channel_end source = {.count = start, .seen = start}, destination = {.count = start};
        uint32_t pushed = 0, taken = 0, n_slots = id.source == id.destination && slots < N_RANKS ? N_RANKS : slots;

        set_new(&set, N_RANKS, 64, slots);
        channel_set_restart(&set, start);
        assert_int_equal(channel_slots(&set, id), n_slots);
        for (uint32_t fill = 1; fill <= n_slots; fill++)
                for (uint32_t lap = 0; lap < 3; lap++) {
                        assert_false(channel_has_chunk(&set, id, &destination));
                        for (uint32_t i = 0; i < fill; i++) {
                                assert_true(channel_may_push(&set, id, &source));
                                push_value(&set, id, &source, pushed++);
                        }
                        assert_int_equal(channel_may_push(&set, id, &source), fill < n_slots);
                        for (uint32_t i = 0; i < fill; i++) {
                                assert_true(channel_has_chunk(&set, id, &destination));
                                take_value(&set, id, &destination, taken++);
                        }
                }
        assert_int_equal(source.count, start + pushed);
        channel_set_deinit(&set);
}

static void test_order_and_credit(void **state) {
        (void)state;
        for (uint32_t slots = 1; slots <= 7; slots++) {
                run_from(0, slots, ID);
                run_from(0, slots, SELF);
        }
}

static void test_wrap(void **state) {
        (void)state;
        for (uint32_t slots = 1; slots <= 7; slots++)
                for (uint32_t before = 0; before < 20; before++) {
                        run_from(0u - before, slots, ID);
                        run_from(0u - before, slots, SELF);
                }
}

static void check_slot(const struct channel_set *set, struct channel_id id, const struct channel_end *end) {
        uint32_t size = id.region < PLAN_REGIONS_DATA ? 128 : PLAN_SIGNAL_BYTES;
        unsigned char *data = channel_data(set, id, end, false), *small = channel_data(set, id, end, true);

        assert_int_equal((uintptr_t)data % CHANNEL_LINE, 0);
        assert_int_equal((uintptr_t)small % 8, 0);
        for (uint32_t i = 0; i < size; i++)
                assert_int_equal(data[i], 0);
        for (uint32_t i = 0; i < CHANNEL_SMALL_BYTES; i++)
                assert_int_equal(small[i], 0);
        assert_int_equal(channel_slot(set, id, end->slot)->flag, 0);
        assert_int_equal(channel_credit(set, id)->released, 0);
        memset(data, 0xff, size);
        memset(small, 0xff, CHANNEL_SMALL_BYTES);
        channel_slot(set, id, end->slot)->flag = 1;
        assert_true(data >= set->memory && data + size <= set->memory + set->size);
}

/* Every channel has its own slots and words. */
static void test_disjoint(void **state) {
        static const uint32_t slots[] = {3, 7};
        uint32_t n = 5;

        (void)state;
        for (uint32_t s = 0; s < 2; s++) {
                struct channel_set set;
                struct channel_end end = {0};

                set_new(&set, n, 128, slots[s]);
                for (uint32_t i = 0; i < PLAN_REGIONS_MAX * n * n; i++) {
                        struct channel_id id = {i / n / n, i / n % n, i % n};

                        for (end.slot = 0; end.slot < channel_slots(&set, id); end.slot++)
                                check_slot(&set, id, &end);
                        /* Only now: the slots of a channel share it. */
                        assert_int_equal(channel_credit(&set, id)->released, 0);
                        channel_credit(&set, id)->released = 1;
                }
                channel_set_deinit(&set);
        }
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

static void run_small(const struct channel_set *set) {
        struct channel_end source = {0}, destination = {0};

        for (uint32_t i = 1; i < 16; i += 2) {
                assert_true(channel_may_push(set, ID, &source));
                push_value(set, ID, &source, i);
                assert_true(channel_has_chunk(set, ID, &destination));
                take_value(set, ID, &destination, i);
        }
}

static void test_memory_is_lazy(void **state) {
        struct channel_set set;
        struct channel_end source = {0}, destination = {0};

        (void)state;
        set_new(&set, 64, 65536, 4);
        assert_true(set.size > (size_t)64 * 64 * 4 * 65536);
        assert_int_equal(resident_pages(&set), 0);
        run_small(&set);
        /* Small chunks: a page of credits, and one or two with the channel's slots. */
        assert_true(resident_pages(&set) <= 3);
        source = destination = (struct channel_end){.count = 8, .seen = 8};
        for (uint32_t i = 0; i < 16; i += 2) {
                assert_true(channel_may_push(&set, ID, &source));
                push_value(&set, ID, &source, i);
                take_value(&set, ID, &destination, i);
        }
        /* Four slots' data, each a page or two. */
        assert_true(resident_pages(&set) <= 11);
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
