/* SPDX-License-Identifier: MIT */
/*
 * The node under test.
 *
 * The test process makes itself the reaper of orphans, so that a keeper or railmuxd that ends without its children
 * leaves them to us, where node_stop sees them. Pids come from railmuxctl, as an operator would find them.
 */
#include "tests/e2e/node.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/proc.h"
#include "tests/scratch.h"

#define READY_MS           20000u
#define STOP_MS            10000u
#define SETTLE_MS          10000u
#define NODE_ARGUMENTS_MAX 40u
#define RSS_TOLERANCE      8192 /* KiB: allocators keep some pages; a leak per kill or per session is more */

const char *node_program(const char *name) {
        static char paths[8][512];
        const char *dir = getenv("RAILMUX_BIN");
        unsigned int i;

        if (!dir)
                dir = RAILMUX_BIN_DIR;
        for (i = 0; i < 7 && paths[i][0]; i++)
                if (strcmp(strrchr(paths[i], '/') + 1, name) == 0)
                        return paths[i];
        snprintf(paths[i], sizeof(paths[i]), "%s/%s", dir, name);
        return paths[i];
}

static void show_log(const struct node *node) {
        char line[1024];
        FILE *file = fopen(node->log, "re");

        fprintf(stderr, "---- %s\n", node->log);
        while (file && fgets(line, sizeof(line), file))
                fputs(line, stderr);
        fprintf(stderr, "----\n");
        if (file)
                fclose(file);
}

void node_start(struct node *node, const char *test, bool keep) {
        char gpus[16];
        const char *argv[NODE_ARGUMENTS_MAX + 1] = {
                node_program("railmuxd"), "--gpu", gpus, "--socket", node->socket, "--control", node->control};
        const char *kept_dir = node->dir[0] ? node->dir : NULL;
        size_t n = 7;

        snprintf(gpus, sizeof(gpus), "host:%u", node->gpus ? node->gpus : 8);
        if (node->listens) {
                argv[n++] = "--listen";
                argv[n++] = "127.0.0.1:0";
        }
        if (keep)
                argv[n++] = "--keep";
        for (const char *const *more = node->more; more && *more; more++) {
                assert_true(n < NODE_ARGUMENTS_MAX);
                argv[n++] = *more;
        }
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (!kept_dir) {
                snprintf(node->dir, sizeof(node->dir), "%s", "/tmp/railmux-e2e-XXXXXX");
                assert_non_null(mkdtemp(node->dir));
                snprintf(node->socket, sizeof(node->socket), "%s/client.sock", node->dir);
                snprintf(node->control, sizeof(node->control), "%s/control.sock", node->dir);
                mkdir(RAILMUX_LOG_DIR, 0700);
                snprintf(node->log, sizeof(node->log), "%s/%s.log", RAILMUX_LOG_DIR, test);
                unlink(node->log);
        }
        node->keep = keep;
        node->pid = proc_start(argv, node->log);
        assert_true(node->pid > 0);
        node_await_ready(node, 0, 0, READY_MS);
}

/* A sanitizer's report about any process of the node. Its status alone would not do: the keeper ends well even if a
 * child did not. */
static bool log_has_report(const struct node *node) {
        char line[1024];
        FILE *file = fopen(node->log, "re");
        bool found = false;

        while (file && !found && fgets(line, sizeof(line), file))
                found = strstr(line, "Sanitizer: ") || strstr(line, "runtime error: ");
        if (file)
                fclose(file);
        return found;
}

static void end_well(struct node *node) {
        int status;

        if (proc_wait(node->pid, STOP_MS, &status) != 0) {
                show_log(node);
                fail_msg("railmuxd does not end after SIGTERM");
        }
        node->pid = 0;
        if (status != 0) {
                show_log(node);
                fail_msg("railmuxd ended with status 0x%x after SIGTERM", (unsigned int)status);
        }
}

void nodes_start(struct node *nodes, uint32_t n, const char *test, uint32_t keep) {
        char name[64];

        for (uint32_t i = 0; i < n; i++) {
                nodes[i].gpus = 4;
                nodes[i].listens = true;
                snprintf(name, sizeof(name), "%s-%c", test, (int)('a' + i));
                node_start(&nodes[i], name, keep >> i & 1);
        }
}

void nodes_stop(struct node *nodes, uint32_t n) {
        char left[512];

        for (uint32_t i = 0; i < n; i++)
                if (nodes[i].pid > 0)
                        kill(nodes[i].pid, SIGTERM);
        for (uint32_t i = 0; i < n; i++)
                if (nodes[i].pid > 0)
                        end_well(&nodes[i]);
        if (proc_children(left, sizeof(left)) > 0) {
                for (uint32_t i = 0; i < n; i++)
                        show_log(&nodes[i]);
                fail_msg("processes left behind: %s", left);
        }
        for (uint32_t i = 0; i < n; i++) {
                if (!log_has_report(&nodes[i]))
                        continue;
                show_log(&nodes[i]);
                fail_msg("a sanitizer has something to say");
        }
}

void node_stop(struct node *node) {
        assert_true(node->pid > 0);
        nodes_stop(node, 1);
}

void node_await_end(struct node *node, pid_t executor) {
        int status;

        assert_true(node->pid > 0);
        if (proc_wait(node->pid, STOP_MS, &status) != 0 || (executor && proc_wait_dead(executor, STOP_MS) != 0)) {
                show_log(node);
                fail_msg("the node does not end");
        }
        node->pid = 0;
        if (executor)
                waitpid(executor, &status, WNOHANG); /* an orphan comes to us */
}

static void kill_node(struct node *node) {
        int status;

        if (node->pid <= 0)
                return;
        kill(node->pid, SIGCONT);
        kill(node->pid, SIGTERM);
        if (proc_wait(node->pid, STOP_MS, &status) != 0) {
                kill(node->pid, SIGKILL);
                waitpid(node->pid, &status, 0);
        }
        node->pid = 0;
}

void nodes_cleanup(struct node *nodes, uint32_t n) {
        char left[512];
        int status;

        for (uint32_t i = 0; i < n; i++)
                kill_node(&nodes[i]);
        while (proc_children(left, sizeof(left)) > 0) { /* ours by fork, or orphans of the nodes */
                int pid = (int)strtol(left, NULL, 10);

                kill(pid, SIGKILL);
                if (proc_wait(pid, STOP_MS, &status) != 0)
                        break;
        }
        while (waitpid(-1, &status, WNOHANG) > 0)
                ;
        for (uint32_t i = 0; i < n; i++) {
                if (nodes[i].dir[0] && scratch_remove(nodes[i].dir))
                        fprintf(stderr, "%s is left\n", nodes[i].dir);
                nodes[i] = (struct node){0};
        }
}

void node_cleanup(struct node *node) {
        nodes_cleanup(node, 1);
}

json_t *node_query(const struct node *node, const char *what) {
        const char *argv[] = {node_program("railmuxctl"), "--control", node->control, "--json", what, NULL};
        char *output = malloc(PROC_OUTPUT_MAX);
        json_t *root = NULL;

        assert_non_null(output);
        if (proc_run_quiet(argv, 5000, output) == 0)
                root = json_loads(output, 0, NULL);
        free(output);
        return root;
}

/* The innermost object that has `key`: documents may wrap their body. */
static json_t *find_with_key(json_t *value, const char *key) {
        json_t *child, *found;
        const char *name;
        size_t i;

        if (json_is_object(value)) {
                if (json_object_get(value, key))
                        return value;
                json_object_foreach(value, name, child) {
                        found = find_with_key(child, key);
                        if (found)
                                return found;
                }
        }
        json_array_foreach(value, i, child) {
                found = find_with_key(child, key);
                if (found)
                        return found;
        }
        return NULL;
}

static pid_t json_pid(const json_t *object) {
        return (pid_t)json_integer_value(json_object_get(object, "pid"));
}

static const char *json_text(const json_t *object, const char *key) {
        const char *text = json_string_value(json_object_get(object, key));

        return text ? text : "";
}

struct node_pids node_pids(const struct node *node) {
        json_t *root = node_query(node, "status"), *status, *executors, *executor;
        struct node_pids pids = {0};
        size_t i;

        status = root ? find_with_key(root, "executors") : NULL;
        if (status) {
                executors = json_object_get(status, "executors");
                pids.daemon = json_pid(status);
                pids.sessions = (uint32_t)json_integer_value(json_object_get(status, "sessions"));
                pids.comms = (uint32_t)json_integer_value(json_object_get(status, "comms"));
                pids.ready = strcmp(json_text(status, "state"), "running") == 0 && json_array_size(executors) > 0;
                json_array_foreach(executors, i, executor) {
                        pids.executor = json_pid(executor);
                        pids.ready = pids.ready && strcmp(json_text(executor, "state"), "ready") == 0;
                }
        }
        json_decref(root);
        return pids;
}

struct ready_wait {
        const struct node *node;
        pid_t not_daemon, not_executor;
        struct node_pids pids;
};

static bool is_ready(void *argument) {
        struct ready_wait *w = argument;

        if (proc_wait_dead(w->node->pid, 0) == 0) {
                show_log(w->node);
                fail_msg("what was started has ended");
        }
        w->pids = node_pids(w->node);
        return w->pids.ready && w->pids.daemon > 0 && w->pids.executor > 0 && w->pids.daemon != w->not_daemon &&
               w->pids.executor != w->not_executor;
}

struct node_pids node_await_ready(const struct node *node, pid_t not_daemon, pid_t not_executor, uint32_t timeout_ms) {
        struct ready_wait w = {.node = node, .not_daemon = not_daemon, .not_executor = not_executor};

        if (!proc_await(is_ready, &w, timeout_ms)) {
                show_log(node);
                fail_msg("not ready in time: railmuxd %d (not %d), executor %d (not %d), ready %d", (int)w.pids.daemon,
                         (int)not_daemon, (int)w.pids.executor, (int)not_executor, w.pids.ready);
        }
        return w.pids;
}

static struct node_snapshot look_once(const struct node *node, const struct node_pids *pids) {
        return (struct node_snapshot){
                .keeper_fds = node->keep ? proc_fd_count(node->pid) : 0,
                .daemon_fds = proc_fd_count(pids->daemon),
                .daemon_memfds = proc_memfd_count(pids->daemon),
                .executor_fds = proc_fd_count(pids->executor),
                .executor_memfds = proc_memfd_count(pids->executor),
                .daemon_rss_kib = proc_rss_kib(pids->daemon),
                .executor_rss_kib = proc_rss_kib(pids->executor),
        };
}

static bool same_fds(const struct node_snapshot *a, const struct node_snapshot *b) {
        return a->keeper_fds == b->keeper_fds && a->daemon_fds == b->daemon_fds &&
               a->daemon_memfds == b->daemon_memfds && a->executor_fds == b->executor_fds &&
               a->executor_memfds == b->executor_memfds;
}

/* The question for the pids is itself a connection, which the daemon closes a moment after the answer: looks until
 * nothing changes any more. */
static struct node_snapshot look(const struct node *node, const struct node_pids *pids) {
        struct node_snapshot last = look_once(node, pids), now;

        for (unsigned int quiet = 0, looks = 0; quiet < 10 && looks < 500; looks++) {
                proc_measure_for(2);
                now = look_once(node, pids);
                quiet = same_fds(&now, &last) ? quiet + 1 : 0;
                last = now;
        }
        return last;
}

static bool is_empty(void *argument) {
        struct ready_wait *w = argument;

        return is_ready(w) && w->pids.sessions == 0 && w->pids.comms == 0;
}

struct node_snapshot node_snapshot(const struct node *node) {
        struct ready_wait w = {.node = node};

        if (!proc_await(is_empty, &w, SETTLE_MS))
                fail_msg("%u sessions and %u communicators are left", w.pids.sessions, w.pids.comms);
        return look(node, &w.pids);
}

struct equal_wait {
        const struct node *node;
        const struct node_snapshot *before;
        struct node_snapshot now;
        struct node_pids pids;
};

static bool is_equal(void *argument) {
        struct equal_wait *w = argument;
        const struct node_snapshot *b = w->before;
        struct node_snapshot now;

        w->pids = node_pids(w->node);
        w->now = look(w->node, &w->pids);
        if (!w->pids.ready || w->pids.sessions != 0 || w->pids.comms != 0)
                return false;
        if (proc_time_scale() <= 1 && (w->now.daemon_rss_kib > b->daemon_rss_kib + RSS_TOLERANCE ||
                                       w->now.executor_rss_kib > b->executor_rss_kib + RSS_TOLERANCE))
                return false; /* sanitizers keep freed memory on purpose: there only fds are compared */
        /* A connection to another node that was silent for too long, as on a machine with too much to do, is made again
         * when something is to be sent. */
        now = w->now;
        if (w->node->listens && now.daemon_fds < b->daemon_fds)
                now.daemon_fds = b->daemon_fds;
        return same_fds(&now, b);
}

void node_assert_as_before(const struct node *node, const struct node_snapshot *before) {
        struct equal_wait w = {.node = node, .before = before};
        bool equal = proc_await(is_equal, &w, SETTLE_MS);

        printf("fds (of which memfds) before -> after: keeper %d -> %d, railmuxd %d (%d) -> %d (%d), executor %d (%d) "
               "-> "
               "%d (%d); resident KiB: railmuxd %ld -> %ld, executor %ld -> %ld\n",
               before->keeper_fds, w.now.keeper_fds, before->daemon_fds, before->daemon_memfds, w.now.daemon_fds,
               w.now.daemon_memfds, before->executor_fds, before->executor_memfds, w.now.executor_fds,
               w.now.executor_memfds, before->daemon_rss_kib, w.now.daemon_rss_kib, before->executor_rss_kib,
               w.now.executor_rss_kib);
        if (!equal) {
                show_log(node);
                proc_show_fds(node->pid, node->keep ? "keeper" : "railmuxd");
                proc_show_fds(w.pids.daemon, "railmuxd");
                proc_show_fds(w.pids.executor, "executor");
                fail_msg("the node does not look as before (%u sessions, %u communicators)", w.pids.sessions,
                         w.pids.comms);
        }
}

void nodes_snapshot(const struct node *nodes, uint32_t n, struct node_snapshot *before) {
        for (uint32_t i = 0; i < n; i++)
                before[i] = node_snapshot(&nodes[i]);
}

void nodes_assert_as_before(const struct node *nodes, uint32_t n, const struct node_snapshot *before) {
        for (uint32_t i = 0; i < n; i++)
                node_assert_as_before(&nodes[i], &before[i]);
}
