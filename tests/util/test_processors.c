/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/cmocka_all.h"
#include "tests/scratch.h"
#include "util/processors.h"

static uint32_t n_affine; /* 0: the machine has more than such a set can say */
static char dir[64];

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret_set);

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret_set) {
        assert_int_equal(pid, 0);
        assert_int_equal(size, sizeof(cpu_set_t));
        if (n_affine == 0) {
                errno = EINVAL;
                return -1;
        }
        CPU_ZERO(ret_set);
        for (uint32_t i = 0; i < n_affine; i++)
                CPU_SET(3 * i, ret_set);
        return 0;
}

static void put(const char *name, const char *text) {
        char path[PATH_MAX];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static void make(const char *name) {
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        assert_int_equal(mkdir(path, 0700), 0);
}

static uint32_t quota(const char *own) {
        char path[PATH_MAX];

        put("own", own);
        snprintf(path, sizeof(path), "%s/own", dir);
        return processors_quota(path, dir);
}

static int set_up(void **state) {
        const char *tmp = getenv("TMPDIR");

        (void)state;
        snprintf(dir, sizeof(dir), "%.40s/processors-XXXXXX", tmp ? tmp : "/tmp");
        return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state) {
        (void)state;
        return scratch_remove(dir);
}

static void test_quota(void **state) {
        (void)state;
        assert_int_equal(processors_quota("/nothing/there", dir), UINT32_MAX);
        assert_int_equal(quota(""), UINT32_MAX);
        assert_int_equal(quota("0::/\n"), UINT32_MAX); /* no limit to be read */
        make("a");
        make("a/b");
        assert_int_equal(quota("0::/a/b\n"), UINT32_MAX);
        put("a/b/cpu.max", "max 100000\n");
        assert_int_equal(quota("0::/a/b\n"), UINT32_MAX);
        put("a/b/cpu.max", "250000 100000\n");
        assert_int_equal(quota("0::/a/b\n"), 3);
        assert_int_equal(quota("7:cpu:/\n0::/a/b\n"), 3);
        assert_int_equal(quota("7:cpu:/a/b\n"), UINT32_MAX); /* none of v2 */
        assert_int_equal(quota("0::/a\n"), UINT32_MAX);
        /* The least of all that one is in. */
        put("a/cpu.max", "200000 100000\n");
        assert_int_equal(quota("0::/a/b\n"), 2);
        put("cpu.max", "1000 100000\n");
        assert_int_equal(quota("0::/a/b\n"), 1);
        assert_int_equal(quota("0::/\n"), 1);
        put("cpu.max", "800000 100000\n");
        assert_int_equal(quota("0::/a/b\n"), 2);
        /* Nonsense limits nothing. */
        put("cpu.max", "5 0\n");
        assert_int_equal(quota("0::/\n"), UINT32_MAX);
        put("cpu.max", "18446744073709551615 1\n");
        assert_int_equal(quota("0::/\n"), UINT32_MAX);
        put("cpu.max", "0 100000\n");
        assert_int_equal(quota("0::/\n"), 1);
}

static void test_usable(void **state) {
        uint32_t limit = processors_quota("/proc/self/cgroup", "/sys/fs/cgroup");

        (void)state;
        for (n_affine = 1; n_affine <= 300; n_affine++)
                assert_int_equal(processors_usable(), n_affine < limit ? n_affine : limit);
        n_affine = 0;
        assert_int_equal(processors_usable(), CPU_SETSIZE < limit ? CPU_SETSIZE : limit);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_quota, set_up, tear_down),
                cmocka_unit_test(test_usable),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
