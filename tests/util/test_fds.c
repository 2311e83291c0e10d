/* SPDX-License-Identifier: MIT */
/* The size of a process's table of descriptors is in /proc. Each test is a process of its own, as tables never shrink.
 */
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "util/fds.h"

#define MANY 5000u

static unsigned int table_size(void) {
        FILE *file = fopen("/proc/self/status", "re");
        unsigned int n = 0;
        char line[256];

        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "FDSize: %u", &n) == 1)
                        break;
        if (file)
                fclose(file);
        return n;
}

static unsigned int n_open(void) {
        DIR *folder = opendir("/proc/self/fd");
        unsigned int n = 0;

        while (folder && readdir(folder))
                n++;
        if (folder)
                closedir(folder);
        return n;
}

static void set_limit(rlim_t soft, rlim_t hard) {
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = soft, .rlim_max = hard}))
                _exit(90);
}

static void in_child(int (*body)(void)) {
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (!pid)
                _exit(body());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

static int room(void) {
        const unsigned int before = n_open();

        if (table_size() >= 1000)
                return 1;
        fds_reserve(1000);
        if (table_size() < 1000)
                return 2;
        fds_reserve(10); /* there is */
        return table_size() < 1000 ? 3 : n_open() != before ? 4 : 0;
}

/* As far as it goes. */
static int limited(void) {
        const unsigned int before = n_open();

        set_limit(600, 600);
        fds_reserve(MANY);
        if (table_size() < 600 || table_size() >= MANY)
                return 1;
        set_limit(3, 600); /* not even one more */
        fds_reserve(MANY);
        set_limit(0, 600);
        fds_reserve(MANY);
        set_limit(600, 600);
        return n_open() != before ? 2 : 0;
}

static int raised(void) {
        struct rlimit limit;

        set_limit(100, 700);
        fds_raise();
        if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur != 700)
                return 1;
        fds_raise();
        fds_reserve(MANY);
        return table_size() < 700 ? 2 : 0;
}

static void test_room(void **state) {
        (void)state;
        in_child(room);
}

static void test_limited(void **state) {
        (void)state;
        in_child(limited);
}

static void test_raised(void **state) {
        (void)state;
        in_child(raised);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_room),
                cmocka_unit_test(test_limited),
                cmocka_unit_test(test_raised),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
