/* SPDX-License-Identifier: MIT */
/* The scheduler with a rail and a clock that are numbers: shares, bounds, turns, and the rate limit. RAILMUX_SEED. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/bucket.h"
#include "fabric/schedule.h"
#include "tests/fabric/rig.h"
#include "util/clock.h"

#define QUANTUM 4096u
#define LARGEST 65536u
#define URGENT  (8u * LARGEST)

static uint64_t seed;

struct source {
        struct schedule_lane *lane;
        struct schedule_item items[4];
        uint64_t sent, n_sent;
        uint32_t largest;
};

static void source_fill(struct schedule *schedule, struct source *source) {
        for (size_t i = 0; i < 4; i++) {
                if (source->items[i].lane)
                        continue;
                source->items[i].bytes = 1 + (uint32_t)(rig_random(&seed) % source->largest);
                schedule_push(schedule, source->lane, &source->items[i], false);
        }
}

static struct source *source_of(struct source *sources, size_t n, const struct schedule_item *item) {
        for (size_t i = 0; i < n; i++)
                if (item >= sources[i].items && item < sources[i].items + 4)
                        return &sources[i];
        fail_msg("an item of nobody");
        return NULL;
}

/* One item goes out; its source has the next one ready at once. */
static struct source *turn(struct schedule *schedule, struct source *sources, size_t n) {
        struct schedule_item *item = schedule_pop(schedule);
        struct source *source;

        if (!item)
                return NULL;
        assert_null(item->lane);
        source = source_of(sources, n, item);
        source->sent += item->bytes;
        source->n_sent++;
        source_fill(schedule, source);
        return source;
}

static void drop_all(struct schedule *schedule, struct source *sources, size_t n, struct schedule_port *port) {
        for (size_t s = 0; s < n; s++)
                for (size_t i = 0; i < 4; i++)
                        if (sources[s].items[i].lane)
                                schedule_remove(schedule, &sources[s].items[i]);
        schedule_port_deinit(schedule, port);
        schedule_deinit(schedule);
}

/* At any time: what two flows got, by weight, differs by less than a quantum each and an item each. Nor does it matter
 * if the port is shut for a moment after each so many items, as it is while a window is full. */
static void shares(uint64_t quantum, unsigned int window) {
        static const uint32_t weights[] = {1, 3, 10, 1};
        struct schedule schedule;
        struct schedule_port port = {0};
        struct source sources[4] = {0};

        schedule_init(&schedule, quantum, URGENT);
        for (size_t i = 0; i < 4; i++) {
                sources[i].largest = i == 3 ? 200 : LARGEST; /* small items get no less */
                assert_int_equal(schedule_lane(&schedule, &port, 1, i, weights[i], &sources[i].lane), 0);
                source_fill(&schedule, &sources[i]);
        }
        for (unsigned int n = 0; n < 200000; n++) {
                assert_non_null(turn(&schedule, sources, 4));
                if (window > 0 && n % window == 0) {
                        schedule_shut(&schedule, &port, true);
                        assert_null(schedule_pop(&schedule));
                        schedule_shut(&schedule, &port, false);
                }
                for (size_t a = 0; a < 4; a++) {
                        for (size_t b = a + 1; b < 4; b++) {
                                double share_a = (double)sources[a].sent / weights[a];
                                double share_b = (double)sources[b].sent / weights[b];
                                double bound =
                                        (double)quantum + (double)LARGEST / weights[a] + (double)LARGEST / weights[b];

                                assert_true(share_a - share_b <= bound && share_b - share_a <= bound);
                        }
                }
        }
        drop_all(&schedule, sources, 4, &port);
}

static void test_shares(void **state) {
        (void)state;
        for (unsigned int window = 0; window < 4; window++) {
                shares(QUANTUM, window);
                shares(4 * LARGEST, window);
                shares(7, window); /* thousands of turns for one item */
        }
}

static void test_weight_changes(void **state) {
        struct schedule schedule;
        struct schedule_port port = {0};
        struct source sources[2] = {0};
        struct schedule_lane *lane;

        (void)state;
        schedule_init(&schedule, QUANTUM, URGENT);
        for (size_t i = 0; i < 2; i++) {
                sources[i].largest = LARGEST;
                assert_int_equal(schedule_lane(&schedule, &port, 2, i, 1, &sources[i].lane), 0);
                source_fill(&schedule, &sources[i]);
        }
        for (unsigned int n = 0; n < 1000; n++)
                turn(&schedule, sources, 2);
        assert_int_equal(schedule_lane(&schedule, &port, 2, 1, 5, &lane), 0);
        assert_ptr_equal(lane, sources[1].lane);
        sources[0].sent = sources[1].sent = 0;
        for (unsigned int n = 0; n < 20000; n++)
                turn(&schedule, sources, 2);
        assert_true(sources[1].sent * 100 > sources[0].sent * 490 && sources[1].sent * 100 < sources[0].sent * 510);
        drop_all(&schedule, sources, 2, &port);
}

/* Whatever comes and goes: while an open port has something, something goes; and in order within a lane. */
static void test_work_conservation(void **state) {
        enum { PORTS = 3, TENANTS = 3, ITEMS = 64 };
        struct schedule schedule;
        struct schedule_port ports[PORTS] = {0};
        struct schedule_item items[ITEMS] = {0};
        uint64_t orders[ITEMS] = {0}, last[PORTS][FABRIC_N_CLASSES * TENANTS] = {0}, order = 0, queued = 0;
        uint32_t place[ITEMS] = {0}, waiting[PORTS] = {0};

        (void)state;
        schedule_init(&schedule, QUANTUM, URGENT);
        for (unsigned int n = 0; n < 300000; n++) {
                size_t i = rig_random(&seed) % ITEMS, p = rig_random(&seed) % PORTS;
                struct schedule_item *item;
                uint32_t open = 0;

                switch (rig_random(&seed) % 8) {
                case 0:
                        schedule_shut(&schedule, &ports[p], !ports[p].shut);
                        break;
                case 1:
                        if (items[i].lane) {
                                schedule_remove(&schedule, &items[i]);
                                waiting[place[i] >> 16]--;
                                queued -= items[i].bytes;
                        }
                        break;
                case 2:
                case 3:
                case 4:
                        if (!items[i].lane) {
                                uint32_t class = rig_random(&seed) % FABRIC_N_CLASSES;
                                uint64_t tenant = rig_random(&seed) % TENANTS;
                                struct schedule_lane *lane;

                                assert_int_equal(
                                        schedule_lane(&schedule, &ports[p], class, tenant, 1 + (uint32_t)tenant, &lane),
                                        0);
                                items[i].bytes = 1 + (uint32_t)(rig_random(&seed) % LARGEST);
                                schedule_push(&schedule, lane, &items[i], false);
                                orders[i] = ++order;
                                place[i] = (uint32_t)(p << 16 | (class * TENANTS + tenant));
                                waiting[p]++;
                                queued += items[i].bytes;
                        }
                        break;
                default:
                        for (size_t q = 0; q < PORTS; q++)
                                open += ports[q].shut ? 0 : waiting[q];
                        item = schedule_pop(&schedule);
                        assert_int_equal(item != NULL, open > 0);
                        if (!item)
                                break;
                        i = (size_t)(item - items);
                        assert_false(ports[place[i] >> 16].shut);
                        assert_true(orders[i] > last[place[i] >> 16][place[i] & 0xffff]);
                        last[place[i] >> 16][place[i] & 0xffff] = orders[i];
                        waiting[place[i] >> 16]--;
                        queued -= item->bytes;
                        break;
                }
                assert_int_equal(schedule.queued_bytes, queued);
        }
        for (size_t i = 0; i < ITEMS; i++)
                if (items[i].lane)
                        schedule_remove(&schedule, &items[i]);
        for (size_t p = 0; p < PORTS; p++)
                schedule_port_deinit(&schedule, &ports[p]);
        schedule_deinit(&schedule);
}

/* Latency goes first, but not alone. */
static void urgent(bool shuts) {
        struct schedule schedule;
        struct schedule_port port = {0};
        struct source sources[3] = {0};
        uint64_t run = 0;

        schedule_init(&schedule, QUANTUM, URGENT);
        for (uint32_t i = 0; i < 3; i++) {
                sources[i].largest = LARGEST;
                assert_int_equal(schedule_lane(&schedule, &port, i, 0, 1, &sources[i].lane), 0);
        }
        source_fill(&schedule, &sources[1]);
        source_fill(&schedule, &sources[2]);
        for (unsigned int n = 0; n < 10; n++)
                turn(&schedule, sources, 3);
        source_fill(&schedule, &sources[0]);
        for (unsigned int n = 0; n < 50000; n++) {
                uint64_t before = sources[0].sent;
                struct source *source = turn(&schedule, sources, 3);

                if (n == 0)
                        assert_ptr_equal(source, &sources[0]);
                run = source == &sources[0] ? run + sources[0].sent - before : 0;
                assert_true(run <= URGENT + LARGEST);
                if (shuts) {
                        schedule_shut(&schedule, &port, true);
                        assert_null(schedule_pop(&schedule));
                        schedule_shut(&schedule, &port, false);
                }
        }
        assert_true(sources[1].n_sent > 1000 && sources[2].n_sent > 1000);
        assert_true(sources[0].sent > 8 * sources[1].sent);
        drop_all(&schedule, sources, 3, &port);
}

/* Also where its port, which is the others' as well, is shut for a moment after each item. */
static void test_urgent(void **state) {
        (void)state;
        urgent(false);
        urgent(true);
}

/* Over any time not more than rate * time + burst + one message, and not much less if there is enough to send. */
static void test_bucket(void **state) {
        const uint64_t rate = 123456789;
        uint64_t now_ns = UINT64_C(123456789012345), start_ns = now_ns, sent = 0;
        struct bucket bucket;

        (void)state;
        bucket_init(&bucket, rate, now_ns);
        while (now_ns - start_ns < UINT64_C(5000000000)) {
                uint64_t bytes = 1 + rig_random(&seed) % LARGEST, wait_ns = bucket_wait(&bucket, now_ns);

                if (wait_ns) {
                        assert_true(wait_ns > now_ns);
                        now_ns = wait_ns;
                        assert_int_equal(bucket_wait(&bucket, now_ns), 0);
                }
                bucket_spend(&bucket, bytes);
                sent += bytes;
                assert_true((double)sent <=
                            (double)(now_ns - start_ns) / 1e9 * (double)rate + (double)bucket.burst + LARGEST);
                now_ns += rig_random(&seed) % 1000;
        }
        assert_true((double)sent >= 0.999 * 5 * (double)rate);
        bucket_init(&bucket, 0, now_ns);
        bucket_spend(&bucket, UINT64_C(1) << 60);
        assert_int_equal(bucket_wait(&bucket, now_ns), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_shares),
                cmocka_unit_test(test_weight_changes),
                cmocka_unit_test(test_work_conservation),
                cmocka_unit_test(test_urgent),
                cmocka_unit_test(test_bucket),
        };
        const char *text = getenv("RAILMUX_SEED");

        seed = text ? strtoull(text, NULL, 0) : clock_now_ns();
        print_message("RAILMUX_SEED=%llu\n", (unsigned long long)seed);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
