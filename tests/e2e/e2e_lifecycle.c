/* SPDX-License-Identifier: MIT */
/* Start, stop, absence and idleness of a node. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <jansson.h>
#include <net/if.h>
#include <netinet/in.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/idlers.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define RANKS      8u
#define MEASURE_MS 3000u
#define IDLE_SHARE 0.01

struct fixture {
        struct node node;
        struct idlers idlers;
};

static void assert_works(const struct node *node) {
        const char *argv[] = {node_program("railmux-perf"),
                              "all_reduce",
                              "--ranks",
                              "4",
                              "-e",
                              "64K",
                              "-f",
                              "16",
                              "-n",
                              "3",
                              "--socket",
                              node->socket,
                              NULL};

        assert_int_equal(proc_run(argv, 30000, NULL), 0);
}

/* Starts, serves, stops, and does it again in the same place. */
static void stop_and_start(struct fixture *f, const char *name, bool keep) {
        for (int i = 0; i < 2; i++) {
                node_start(&f->node, name, keep);
                assert_works(&f->node);
                node_stop(&f->node);
        }
}

static void test_stop_kept(void **state) {
        stop_and_start(*state, "stop-kept", true);
}
static void test_stop_plain(void **state) {
        stop_and_start(*state, "stop-plain", false);
}

/* A stop with ranks connected is as orderly, and the ranks are told. */
static void test_stop_connected(void **state) {
        struct fixture *f = *state;
        int code;

        node_start(&f->node, "stop-connected", false);
        idlers_start(&f->idlers, f->node.socket, 2);
        idlers_call(&f->idlers, 0); /* waits for rank 1, which never calls */
        kill(f->node.pid, SIGTERM);
        assert_int_equal(proc_wait(f->node.pid, 10000, &code), 0);
        f->node.pid = 0;
        assert_int_equal(code, 0);
        code = idlers_answer(&f->idlers, 0, 40000);
        if (code < 0)
                fail_msg("a rank waits for ever for a node that has stopped");
        printf("the waiting rank got %s\n", rmx_error_name(code));
        assert_int_not_equal(code, RMX_OK);
        idlers_call(&f->idlers, 1);
        code = idlers_answer(&f->idlers, 1, 40000);
        if (code < 0)
                fail_msg("a call after the node's stop does not return");
        assert_int_not_equal(code, RMX_OK);
        idlers_stop(&f->idlers);
}

/* Without a keeper the executor has no life of its own. */
static void test_killed_plain(void **state) {
        struct fixture *f = *state;
        struct node_pids pids;
        char left[256];
        int status;

        node_start(&f->node, "killed-plain", false);
        pids = node_pids(&f->node);
        kill(f->node.pid, SIGKILL);
        waitpid(f->node.pid, &status, 0);
        f->node.pid = 0;
        if (proc_wait_dead(pids.executor, 10000) != 0)
                fail_msg("the executor outlives railmuxd");
        assert_int_equal(proc_children(left, sizeof(left)), 0);
}

/* Runs in a child: a session must not be inherited by later ones. */
static int open_code(const char *socket) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = socket, .timeout_ms = 200};
        struct rmx_session *session = NULL;
        int status;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                int code = rmx_session_open(&options, &session);

                if (code == RMX_OK)
                        rmx_session_close(session);
                else if (!rmx_last_error()[0])
                        code = 100; /* no message */
                _exit(code);
        }
        assert_int_equal(proc_wait(pid, 10000, &status), 0);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void test_absent(void **state) {
        struct fixture *f = *state;
        const char *argv[] = {
                node_program("railmux-perf"), "barrier", "--ranks", "2", "--socket", f->node.socket, NULL};

        assert_int_equal(open_code("/nonexistent/railmux.sock"), RMX_E_NO_DAEMON);
        node_start(&f->node, "absent", false);
        assert_int_equal(open_code(f->node.socket), RMX_OK);
        node_stop(&f->node);
        assert_int_equal(open_code(f->node.socket), RMX_E_NO_DAEMON);
        assert_int_equal(proc_run(argv, 20000, NULL), 3);
}

static double share(pid_t pid, uint64_t cpu_before, uint64_t time_before) {
        return (double)(proc_cpu_ns(pid) - cpu_before) / (double)(clock_now_ns() - time_before);
}

static void measure_idle(struct fixture *f, const char *what) {
        struct node_pids pids = node_pids(&f->node);
        uint64_t executor = proc_cpu_ns(pids.executor), daemon = proc_cpu_ns(pids.daemon), now = clock_now_ns(),
                 ranks = 0;
        double executor_share, daemon_share, rank_share;
        double limit = IDLE_SHARE * proc_time_scale();

        for (uint32_t i = 0; i < RANKS; i++)
                ranks += proc_cpu_ns(f->idlers.pid[i]);
        proc_measure_for(MEASURE_MS);
        executor_share = share(pids.executor, executor, now);
        daemon_share = share(pids.daemon, daemon, now);
        rank_share = 0;
        for (uint32_t i = 0; i < RANKS; i++)
                rank_share += (double)proc_cpu_ns(f->idlers.pid[i]);
        rank_share = (rank_share - (double)ranks) / (double)(clock_now_ns() - now);
        printf("%s: executor %.3f %%, railmuxd %.3f %%, all ranks %.3f %% of a CPU\n", what, 100 * executor_share,
               100 * daemon_share, 100 * rank_share);
        if (executor_share > limit || daemon_share > limit || rank_share > limit)
                fail_msg("above %.1f %%", 100 * limit);
}

static void test_idle(void **state) {
        struct fixture *f = *state;

        node_start(&f->node, "idle", true);
        idlers_start(&f->idlers, f->node.socket, RANKS);
        measure_idle(f, "8 ranks connected");
        for (uint32_t i = 1; i < RANKS; i++)
                idlers_call(&f->idlers, i);
        assert_int_equal(idlers_answer(&f->idlers, 1, 100), -1); /* rank 0 has not called */
        measure_idle(f, "7 ranks waiting for one");
        idlers_call(&f->idlers, 0);
        for (uint32_t i = 0; i < RANKS; i++)
                assert_int_equal(idlers_answer(&f->idlers, i, 10000), RMX_OK);
        idlers_stop(&f->idlers);
        node_stop(&f->node);
}

/* ---- refused starts, and what a restart changes ------------------------------------------------------------------ */
static void write_config(const struct node *node, const char *text, char path[128]) {
        FILE *file;

        snprintf(path, 128, "%s/railmuxd.yaml", node->dir);
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static unsigned int mode_of(const char *path) {
        struct stat st;

        assert_int_equal(stat(path, &st), 0);
        return st.st_mode & 07777;
}

/* Sockets outlive railmuxd, and what is configured of them is in force after its restart. */
static void test_modes(void **state) {
        struct fixture *f = *state;
        struct node_pids pids;
        char path[128];

        node_start(&f->node, "modes", true);
        node_stop(&f->node); /* now there is a place for the file */
        write_config(&f->node, "client:\n  mode: \"0666\"\ncontrol:\n  mode: \"0660\"\n", path);
        f->node.more = (const char *const[]){"--config", path, NULL};
        node_start(&f->node, "modes", true);
        assert_int_equal(mode_of(f->node.socket), 0666);
        assert_int_equal(mode_of(f->node.control), 0660);
        write_config(&f->node, "client:\n  mode: \"0600\"\ncontrol:\n  mode: \"0620\"\n", path);
        pids = node_pids(&f->node);
        kill(pids.daemon, SIGKILL);
        node_await_ready(&f->node, pids.daemon, 0, 20000);
        assert_int_equal(mode_of(f->node.socket), 0600);
        assert_int_equal(mode_of(f->node.control), 0620);
        node_stop(&f->node);
        /* Whoever ends in order leaves nothing for others to connect to. */
        assert_int_equal(access(f->node.socket, F_OK), -1);
        assert_int_equal(access(f->node.control, F_OK), -1);
}

static bool executor_has(const struct node *node, const char *option, const char *value) {
        char path[64], text[2048];
        size_t length, n = strlen(option) + 1;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)node_pids(node).executor);
        file = fopen(path, "re");
        assert_non_null(file);
        length = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        text[length] = '\0';
        for (const char *word = text; word < text + length; word += strlen(word) + 1)
                if (strcmp(word, option) == 0 && word + n < text + length)
                        return strcmp(word + n, value) == 0;
        return false;
}

static void ctl(const struct node *node, const char *command, const char *argument) {
        const char *argv[] = {node_program("railmuxctl"), "--control", node->control, command, argument, NULL};

        assert_int_equal(proc_run(argv, 30000, NULL), 0);
}

/* What is told to an executor counts from its next start on, after railmuxd has read it. */
static void test_executor_arguments(void **state) {
        struct fixture *f = *state;
        struct node_pids pids;
        char path[128];

        node_start(&f->node, "arguments", true);
        node_stop(&f->node);
        write_config(&f->node, "executor:\n  stall_ms: 600\n  workers: 1\n", path);
        f->node.more = (const char *const[]){"--config", path, NULL};
        node_start(&f->node, "arguments", true);
        write_config(&f->node, "executor:\n  stall_ms: 777\n  workers: 2\n", path);
        ctl(&f->node, "reload", NULL);
        assert_true(executor_has(&f->node, "--stall-ms", "600"));
        ctl(&f->node, "drain", "host");
        assert_true(executor_has(&f->node, "--stall-ms", "777"));
        assert_true(executor_has(&f->node, "--workers", "1"));
        pids = node_pids(&f->node);
        kill(pids.daemon, SIGKILL);
        node_await_ready(&f->node, pids.daemon, 0, 20000);
        assert_true(executor_has(&f->node, "--workers", "1"));
        ctl(&f->node, "drain", "host");
        assert_true(executor_has(&f->node, "--workers", "2"));
        node_stop(&f->node);
}

/* With these arguments after those of the sockets: the exit status, and what was said. */
static void expect_refusal(const struct node *node, const char *const more[], int status, const char *text) {
        const char *argv[16] = {
                node_program("railmuxd"), "--gpu", "host:1", "--socket", node->socket, "--control", node->control};
        char *output = malloc(PROC_OUTPUT_MAX);
        size_t n = 7;

        assert_non_null(output);
        while (*more)
                argv[n++] = *more++;
        if (proc_run_quiet(argv, 20000, output) != status || !strstr(output, text))
                fail_msg("status %d and '%s' are expected: %s", status, text, output);
        free(output);
}
#define REFUSED(node, status, text, ...) expect_refusal(node, (const char *const[]){__VA_ARGS__, NULL}, status, text)

static void test_refused(void **state) {
        struct fixture *f = *state;
        struct node *node = &f->node;
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(address);
        char path[128], listen_at[32], rail[32];
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        node_start(node, "refused", false);
        node_stop(node);
        REFUSED(node, 2, "/nonexistent.yaml: cannot be read: No such file or directory", "--config",
                "/nonexistent.yaml");
        REFUSED(node, 2, "/tmp: cannot be read: Is a directory", "--config", "/tmp", "--keep");
        write_config(node, "peer:\n  ca: /a.crt\n", path);
        REFUSED(node, 2, ":2:7: peer.ca: ", "--config", path);

        /* A port that is taken is no mistake of the configuration, whichever key names it. */
        assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0 &&
                    getsockname(fd, (struct sockaddr *)&address, &size) == 0);
        snprintf(listen_at, sizeof(listen_at), "127.0.0.1:%u", ntohs(address.sin_port));
        snprintf(rail, sizeof(rail), "a=127.0.0.1,port=%u", ntohs(address.sin_port));
        REFUSED(node, 1, "cannot start: Address already in use", "--listen", listen_at);
        REFUSED(node, 1, "cannot start: Address already in use", "--listen", "127.0.0.1:0", "--rail", rail);
        close(fd);
}

/* Has this machine an address beyond loopback? */
static bool own_address(void) {
        struct ifaddrs *all = NULL;
        bool found = false;

        if (getifaddrs(&all) < 0)
                return false;
        for (const struct ifaddrs *one = all; one && !found; one = one->ifa_next)
                found = one->ifa_addr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) &&
                        !(one->ifa_flags & IFF_LOOPBACK);
        freeifaddrs(all);
        return found;
}

/* The rail that nobody has named is where the daemon listens, not where it is said to be. */
static void test_advertised(void **state) {
        static const char *const texts[] = {
                "peer:\n  listen: 127.0.0.1:0\n  advertise: localhost:7600\n",
                "peer:\n  listen: 0.0.0.0:0\n  advertise: 203.0.113.9:7600\n  plain: yes\n",
        };
        struct fixture *f = *state;
        char path[128];

        node_start(&f->node, "advertised", false);
        node_stop(&f->node);
        f->node.more = (const char *const[]){"--config", path, NULL};
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                const json_t *rail;
                json_t *rails;

                write_config(&f->node, texts[i], path);
                node_start(&f->node, "advertised", false);
                rails = node_query(&f->node, "rails");
                rail = json_array_get(json_object_get(rails, "rails"), 0);
                assert_string_equal(json_string_value(json_object_get(rail, "name")), "tcp0");
                if (i == 0)
                        assert_ptr_equal(strstr(json_string_value(json_object_get(rail, "address")), "127.0.0.1:"),
                                         json_string_value(json_object_get(rail, "address")));
                json_decref(rails);
                node_stop(&f->node);
        }
        write_config(&f->node, "peer:\n  listen: 0.0.0.0:0\n  advertise: localhost:7600\n", path);
        if (own_address())
                REFUSED(&f->node, 2, "; peer.rails can name another address", "--config", path);
}

static int setup(void **state) {
        *state = calloc(1, sizeof(struct fixture));
        return *state ? 0 : -1;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        idlers_cleanup(&f->idlers);
        node_cleanup(&f->node);
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_stop_kept, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stop_plain, setup, teardown),
                cmocka_unit_test_setup_teardown(test_stop_connected, setup, teardown),
                cmocka_unit_test_setup_teardown(test_killed_plain, setup, teardown),
                cmocka_unit_test_setup_teardown(test_absent, setup, teardown),
                cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
                cmocka_unit_test_setup_teardown(test_modes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_executor_arguments, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_advertised, setup, teardown),
        };

        return cmocka_run_group_tests_name("lifecycle", tests, NULL, NULL);
}
