/* SPDX-License-Identifier: MIT */
/*
 * For how long threads look on before they sleep: by the processors that are theirs, and not while others compute on
 * them. The clock is the test's and stands still, so nobody sleeps because it is late, and a time between two looks is
 * one that the test has made.
 */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "fabric/private.h"
#include "tests/fabric/rig.h"
#include "util/processors.h"

#define END_S    60
#define JUMPS_NS UINT64_C(20000000) /* of real time, in which all threads have their turn */

/* ThreadSanitizer's own code, which is linked in, calls these before it is ready to be told of anything. */
#if defined(__has_attribute)
#if __has_attribute(disable_sanitizer_instrumentation)
#define EARLY __attribute__((disable_sanitizer_instrumentation))
#endif
#endif
#ifndef EARLY
#define EARLY
#endif

static _Atomic uint64_t clock_ns;
static uint32_t n_affine;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret_set);
long __wrap_sysconf(int name);
long __real_sysconf(int name);

EARLY int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time) {
        uint64_t now_ns = atomic_load(&clock_ns);

        if (clock != CLOCK_MONOTONIC)
                return __real_clock_gettime(clock, ret_time);
        ret_time->tv_sec = (time_t)(now_ns / 1000000000u);
        ret_time->tv_nsec = (long)(now_ns % 1000000000u);
        return 0;
}

EARLY int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret_set) {
        (void)pid;
        CPU_ZERO_S(size, ret_set);
        for (uint32_t i = 0; i < n_affine; i++)
                CPU_SET_S(i, size, ret_set);
        return 0;
}

EARLY long __wrap_sysconf(int name) {
        return name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF ? 64 : __real_sysconf(name);
}

static struct fabric *fabric_on(uint32_t n, uint32_t spin_us) {
        const struct fabric_options options = {.cluster = "test", .times = {.spin_us = spin_us}};
        struct fabric *fabric;

        n_affine = n;
        assert_int_equal(fabric_new(&options, &fabric), 0);
        return fabric;
}

/* A process on few processors of a large machine. */
static void test_processors(void **state) {
        struct fabric *fabric;

        (void)state;
        for (uint32_t n = 1; n < 8; n++) {
                fabric = fabric_on(n, 0);
                assert_int_equal(fabric->spin_ns, 20000);
                assert_int_equal(fabric->rail_spin_ns, 0);
                assert_int_equal(fabric->lock_looks, 0);
                fabric_free(fabric);
        }
        fabric = fabric_on(8, 0);
        if (processors_quota("/proc/self/cgroup", "/sys/fs/cgroup") >= 8) {
                assert_int_equal(fabric->spin_ns, 1000000);
                assert_int_equal(fabric->rail_spin_ns, 1000000);
                assert_int_not_equal(fabric->lock_looks, 0);
        }
        fabric_free(fabric);
        fabric = fabric_on(1, 300);
        assert_int_equal(fabric->spin_ns, 300000);
        assert_int_equal(fabric->rail_spin_ns, 300000);
        fabric_free(fabric);
}

static uint64_t real_ns(void) {
        struct timespec now;

        __real_clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t sleeps(const struct rig *rig) {
        uint64_t n = 0;

        for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                struct fabric_counters counters;

                fabric_counters(rig->nodes[i].fabric, &counters);
                n += counters.sleeps;
        }
        return n;
}

/* All that was posted has been taken. */
static void wait_for_takers(const struct rig *rig) {
        const uint64_t end_ns = real_ns() + UINT64_C(1000000000) * END_S;
        uint64_t posted = 0, taken;

        for (uint32_t i = 0; i < rig->n_channels; i++)
                posted += rig->channels[i].pushed + rig->channels[i].received;
        do {
                taken = 0;
                for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                        struct fabric_counters counters;

                        fabric_counters(rig->nodes[i].fabric, &counters);
                        taken += counters.taken;
                }
                assert_true(real_ns() < end_ns);
                sched_yield();
        } while (taken < posted);
}

/*
 * Takers and rails, because time goes by between two looks: once more now and then for who was not between two looks
 * when it did. Who sleeps does not see it.
 */
static void wait_for_sleep(const struct rig *rig) {
        const uint64_t end_ns = real_ns() + UINT64_C(1000000000) * END_S;
        uint64_t jump_ns = 0;

        wait_for_takers(rig);
        for (uint32_t i = 0; i < rig->options.n_nodes; i++) {
                struct fabric *fabric = rig->nodes[i].fabric;
                bool asleep;

                do {
                        asleep = atomic_load(&rig->nodes[i].area->fabric_asleep);
                        pthread_mutex_lock(&fabric->lock);
                        for (size_t k = 0; k < fabric->n_rails; k++)
                                asleep = asleep && fabric->rails[k]->asleep;
                        pthread_mutex_unlock(&fabric->lock);
                        if (!asleep && real_ns() >= jump_ns) {
                                atomic_fetch_add(&clock_ns, 2 * YIELDER_LONG_NS);
                                jump_ns = real_ns() + JUMPS_NS;
                        }
                        assert_true(real_ns() < end_ns);
                        sched_yield();
                } while (!asleep);
        }
}

/* A few: with two processors each of them waits for the time slices of all that look on. */
static void carry_more(struct rig *rig) {
        rig->options.chunks += 4;
        rig_run(rig, END_S);
        wait_for_takers(rig);
}

static void test_others_compute(void **state) {
        const struct rig_options options = {.n_nodes = 2,
                                            .n_rails = 1,
                                            .ranks = {1, 1},
                                            .slot_bytes = 512,
                                            .key = 5,
                                            .times = {.heartbeat = 10000, .deadline = 60000, .spin_us = 60000000}};
        static struct rig rig;
        uint64_t n;

        (void)state;
        n_affine = 8;
        atomic_store(&clock_ns, UINT64_C(5000000000));
        rig_new(&rig, &options);
        carry_more(&rig);
        assert_int_equal(sleeps(&rig), 0);

        /* As long as looks may take. */
        atomic_fetch_add(&clock_ns, YIELDER_LONG_NS / 2);
        carry_more(&rig);
        assert_int_equal(sleeps(&rig), 0);

        /* They were not running for a while. */
        wait_for_sleep(&rig);
        n = sleeps(&rig);
        carry_more(&rig); /* nothing is lost by that */
        wait_for_sleep(&rig);
        assert_true(sleeps(&rig) > n);

        /* Long enough ago. */
        atomic_fetch_add(&clock_ns, YIELDER_LOOKS_REST_NS);
        n = sleeps(&rig);
        carry_more(&rig);
        carry_more(&rig);
        assert_int_equal(sleeps(&rig), n);
        rig_free(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_processors),
                cmocka_unit_test(test_others_compute),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
