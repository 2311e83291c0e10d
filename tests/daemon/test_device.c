/* SPDX-License-Identifier: MIT */
/* What railmuxd knows of GPUs without an executor: pools, exported memory, the probe's document, plans. */
#include "tests/cmocka_all.h"

#include "daemon/comm.h"
#include "daemon/device_memory.h"
#include "daemon/gpu_probe.h"
#include "daemon/options.h"
#include "daemon/pool.h"
#include "gpu/plane.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "ring/line.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void test_pool(void **unused) {
        struct pool pool = {.bytes = 100};
        uint64_t a = 77, b = 77, c = 77;

        (void)unused;
        assert_int_equal(pool_take(&pool, 40, 1, &a), 0);
        assert_int_equal(pool_take(&pool, 40, 2, &b), 0);
        assert_int_equal(pool_take(&pool, 21, 3, &c), POOL_E_FULL);
        assert_int_equal(c, 77);
        assert_int_equal(pool_take(&pool, 20, 3, &c), 0);
        assert_true(a == 0 && b == 40 && c == 80);
        assert_int_equal(pool.used, 100);
        pool_give(&pool, 2);
        assert_int_equal(pool_take(&pool, 41, 4, &b), POOL_E_FULL);
        assert_int_equal(pool_take(&pool, 10, 4, &b), 0);
        assert_int_equal(b, 40);
        assert_int_equal(pool_take(&pool, 30, 4, &b), 0);
        assert_int_equal(b, 50);
        pool_give(&pool, 4); /* both of its ranges */
        pool_give(&pool, 9);
        assert_int_equal(pool.used, 60);
        /* as a successor does, in any order and before it knows how large the pool is */
        pool_deinit(&pool);
        assert_int_equal(pool_take_at(&pool, 40, 20, 1), 0);
        assert_int_equal(pool_take_at(&pool, 0, 41, 2), POOL_E_TAKEN);
        assert_int_equal(pool_take_at(&pool, 59, 10, 2), POOL_E_TAKEN);
        assert_int_equal(pool_take_at(&pool, 45, 5, 2), POOL_E_TAKEN);
        assert_int_equal(pool_take_at(&pool, UINT64_MAX, 10, 2), POOL_E_TAKEN);
        assert_int_equal(pool_take_at(&pool, 60, 10, 2), 0);
        assert_int_equal(pool_take_at(&pool, 0, 40, 3), 0);
        assert_int_equal(pool_take(&pool, 1, 4, &a), POOL_E_FULL);
        pool.bytes = 71;
        assert_int_equal(pool_take(&pool, 1, 4, &a), 0);
        assert_int_equal(a, 70);
        pool_deinit(&pool);
}

/* Against a map of bytes. */
static void test_pool_random(void **unused) {
        enum { BYTES = 500, COMMS = 40 };
        const char *given = getenv("RAILMUX_SEED");
        unsigned int seed = given ? (unsigned int)strtoul(given, NULL, 0) : (unsigned int)time(NULL);
        struct pool pool = {.bytes = BYTES};
        uint8_t owner[BYTES] = {0};

        (void)unused;
        print_message("seed %u\n", seed);
        for (unsigned int i = 0; i < 20000; i++) {
                uint64_t comm = 1 + (unsigned int)rand_r(&seed) % COMMS, offset;
                uint64_t bytes = 1 + (unsigned int)rand_r(&seed) % 60;

                if (rand_r(&seed) % 3 == 0) {
                        pool_give(&pool, comm);
                        for (unsigned int k = 0; k < BYTES; k++)
                                owner[k] = owner[k] == comm ? 0 : owner[k];
                } else {
                        unsigned int gap = 0, at = 0;
                        int r = pool_take(&pool, bytes, comm, &offset);

                        for (; at < BYTES && gap < bytes; at++)
                                gap = owner[at] ? 0 : gap + 1;
                        assert_int_equal(r, gap == bytes ? 0 : POOL_E_FULL);
                        if (r)
                                continue;
                        assert_int_equal(offset, at - bytes); /* first fit */
                        memset(owner + offset, (int)comm, bytes);
                }
                offset = 0;
                for (unsigned int k = 0; k < BYTES; k++)
                        offset += owner[k] != 0;
                assert_int_equal(pool.used, offset);
        }
        pool_deinit(&pool);
}

static void test_memory(void **unused) {
        struct device_memory memory, other;
        uint8_t handle[64];
        char text[160];

        (void)unused;
        for (unsigned int i = 0; i < sizeof(handle); i++)
                handle[i] = (uint8_t)(i * 7);
        assert_int_equal(device_memory_take(0, NULL, 0, 0, 0, 0, &memory, text, sizeof(text)), 0);
        assert_int_equal(memory.kind, 0);
        assert_int_equal(device_memory_take(1, handle, 64, 108, 48, 60, &memory, text, sizeof(text)), 0);
        assert_memory_equal(memory.handle, handle, 64);
        assert_true(memory.offset == 48 && memory.bytes == 60 && memory.allocation_bytes == 108);
        assert_int_equal(device_memory_take(1, handle, 64, 0, UINT64_MAX - 63, 63, &other, text, sizeof(text)), 0);
        assert_false(device_memory_equal(&memory, &other));
        assert_int_equal(device_memory_take(1, handle, 64, 100, 48, 60, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_int_equal(device_memory_take(1, handle, 64, 0, UINT64_MAX - 63, 64, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_int_equal(device_memory_take(1, handle, 64, 100, 8, 9, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_non_null(strstr(text, "multiple of 16"));
        assert_int_equal(device_memory_take(1, handle, 64, 100, 0, 0, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_int_equal(device_memory_take(2, handle, 64, 100, 0, 9, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_int_equal(device_memory_take(2, handle, 64, 109, 100, 9, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_int_equal(device_memory_take(2, handle, 64, 9, 0, 9, &other, text, sizeof(text)), 0);
        assert_int_equal(device_memory_take(3, handle, 64, 9, 0, 9, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_int_equal(device_memory_take(1, handle, 65, 100, 0, 9, &other, text, sizeof(text)),
                         DEVICE_MEMORY_E_INVALID);
        assert_non_null(strstr(text, "65 bytes"));
}

static int parse(const char *document, struct gpu_probe *probe, char text[GPU_PROBE_TEXT]) {
        return gpu_probe_parse(document, strlen(document), probe, text);
}

static void test_probe(void **unused) {
        struct gpu_probe probe = {0};
        char text[GPU_PROBE_TEXT], document[20000];
        static const char *const bad[] = {
                "",
                "[]",
                "{\"version\":2,\"gpus\":[]}",
                "{\"version\":1}",
                "{\"version\":1,\"gpus\":{}}",
                "{\"version\":1,\"gpus\":[7]}",
                "{\"version\":1,\"gpus\":[{\"index\":1,\"name\":\"a\",\"pci\":\"b\"}]}",
                "{\"version\":1,\"gpus\":[{\"index\":0,\"name\":\"a\"}]}",
                "{\"version\":1,\"gpus\":[{\"index\":0,\"name\":\"a\",\"pci\":5}]}",
                "{\"version\":1,\"gpus\":[]",
        };
        size_t used;

        (void)unused;
        assert_int_equal(parse("{\"version\":1,\"backend\":\"hip\",\"runtime\":\"R 1\",\"problem\":\"\",\"gpus\":["
                               "{\"index\":0,\"name\":\"A\\u0007B\",\"pci\":\"0000:1a:00.0\",\"memory_bytes\":1},"
                               "{\"index\":1,\"name\":\"C\",\"pci\":\"0000:1b:00.0\"}]}",
                               &probe, text),
                         0);
        assert_int_equal(probe.n_gpus, 2);
        assert_string_equal(probe.runtime, "R 1");
        assert_string_equal(probe.gpu[0].name, "A?B");
        assert_string_equal(probe.gpu[1].pci, "0000:1b:00.0");
        assert_int_equal(parse("{\"version\":1,\"problem\":\"no runtime\",\"gpus\":[]}", &probe, text),
                         GPU_PROBE_E_NONE);
        assert_string_equal(text, "no runtime");
        assert_int_equal(parse("{\"version\":1,\"gpus\":[]}", &probe, text), GPU_PROBE_E_NONE);
        assert_int_equal(
                parse("{\"version\":1,\"problem\":\"start MPS\",\"gpus\":[{\"index\":0,\"name\":\"A\",\"pci\":\"\"}]}",
                      &probe, text),
                GPU_PROBE_E_PROBLEM);
        assert_string_equal(text, "start MPS");
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(parse(bad[i], &probe, text), GPU_PROBE_E_PROBLEM);
        assert_int_equal(probe.n_gpus, 2); /* written on success only */
        used = (size_t)snprintf(document, sizeof(document), "{\"version\":1,\"gpus\":[");
        for (unsigned int i = 0; i < 65; i++)
                used += (size_t)snprintf(document + used, sizeof(document) - used,
                                         "%s{\"index\":%u,\"name\":\"\",\"pci\":\"\"}", i ? "," : "", i);
        snprintf(document + used, sizeof(document) - used, "]}");
        assert_int_equal(parse(document, &probe, text), GPU_PROBE_E_PROBLEM);
}

/* Every plan of the table exists and does nothing that kernels cannot. */
static void test_choices(void **unused) {
        struct plan_choice choices[PLAN_CHOICES_MAX];

        (void)unused;
        for (uint32_t n_ranks = 1; n_ranks <= 32; n_ranks++) {
                uint32_t n = plan_choose_device(n_ranks, choices);

                assert_true(n >= 10);
                for (uint32_t i = 0; i < n; i++) {
                        struct plan plan;

                        assert_int_equal(plan_build(choices[i].operation, choices[i].algorithm, n_ranks, &plan),
                                         PLAN_OK);
                        assert_true(plan.tree <= PLAN_TREE_RANK_ORDER);
                        for (uint32_t p = 0; p < plan.n_phases; p++)
                                assert_true(plan.phases[p].kind >= PLAN_PUSH && plan.phases[p].kind <= PLAN_WAIT);
                }
                assert_int_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 2, 16384)->algorithm, PLAN_ONE_SHOT);
                assert_int_equal(plan_choice_find(choices, n, RING_OP_ALL_REDUCE, 2, 16385)->algorithm, PLAN_TWO_SHOT);
                assert_int_equal(plan_choice_find(choices, n, RING_OP_ALL_GATHER, 2, 1)->algorithm, PLAN_DIRECT);
                assert_int_equal(plan_choice_find(choices, n, RING_OP_BARRIER, 2, 0)->algorithm, PLAN_DIRECT);
        }
        assert_int_equal(plan_choose_device(0, choices), 0);
        assert_int_equal(plan_choose_device(PLAN_RANKS_MAX + 1, choices), 0);
        assert_int_equal(plane_staging_bytes(0), 0);
        assert_int_equal(plane_staging_bytes(COMM_RANKS_MAX + 1), 0); /* so GPUs serve all ranks that there can be */
        assert_true(plane_staging_bytes(1) > 0 && plane_staging_bytes(64) > plane_staging_bytes(63));
        assert_int_equal(plane_staging_bytes(8) % 65536, 0);
}

/* One worker has lane 0; who has no other has all. */
static void test_lanes(void **unused) {
        static const uint32_t lanes[][2] = {{0, 0},     {1, 1},     {2, 1},     {32, 31},
                                            {135, 134}, {136, 135}, {137, 135}, {UINT32_MAX, 135}};

        (void)unused;
        for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
                assert_int_equal(plane_lanes(lanes[i][0]), lanes[i][1]);
}

static void test_options(void **unused) {
        static const char *const bad[] = {"hip:0", "hip:65", "hip:", "hip:x", "hipp", "cuda", "auto:2"};
        char error[CONFIG_ERROR_MAX];
        struct options options = {0};
        struct config config;

        (void)unused;
        config_init(&config);
        assert_string_equal(config.backend, "auto");
        assert_int_equal(config.hip_gpus, 0);
        options.gpu = "hip:3";
        assert_int_equal(options_apply(&options, &config, error), 0);
        assert_string_equal(config.backend, "hip");
        assert_int_equal(config.hip_gpus, 3);
        options.gpu = "host:9";
        assert_int_equal(options_apply(&options, &config, error), 0);
        assert_string_equal(config.backend, "host");
        assert_int_equal(config.gpus, 9);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                options.gpu = bad[i];
                assert_int_equal(options_apply(&options, &config, error), -EINVAL);
                assert_non_null(strstr(error, "auto, hip, hip:N, host, host:N"));
        }
        config_deinit(&config);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_pool),  cmocka_unit_test(test_pool_random), cmocka_unit_test(test_memory),
                cmocka_unit_test(test_probe), cmocka_unit_test(test_choices),     cmocka_unit_test(test_options),
                cmocka_unit_test(test_lanes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
