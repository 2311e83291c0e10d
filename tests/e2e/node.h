/* SPDX-License-Identifier: MIT */
#pragma once
/* A node under test: railmuxd with its executor, sockets in a directory of its own. Calls fail the running cmocka test.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct node {
        char dir[64];
        char socket[96];
        char control[96];
        char log[512];
        pid_t pid; /* what we started: keeper or railmuxd; 0: nothing runs */
        bool keep;
        uint32_t gpus;           /* emulated ones; 0: 8 */
        bool listens;            /* for other nodes, on loopback */
        const char *const *more; /* further arguments, up to a NULL; NULL: none */
};

/* What must be the same before and after a test. */
struct node_snapshot {
        int keeper_fds, daemon_fds, daemon_memfds, executor_fds, executor_memfds;
        long daemon_rss_kib, executor_rss_kib;
};

struct node_pids {
        pid_t daemon, executor; /* 0: not there */
        bool ready;             /* running, with every executor ready */
        uint32_t sessions, comms;
};

/* Path of a program of this build, in a static buffer per name. */
const char *node_program(const char *name);
/* Starts `railmuxd --gpu host:8` (with --keep) and returns when it serves. test: name of the log file. gpus, listens
 * and more are the caller's to set before. A node that has run before starts again at the same place. */
void node_start(struct node *node, const char *test, bool keep);
/* SIGTERM; everything must end with status 0 and leave no process behind. */
void node_stop(struct node *node);
/* Several beside each other, with 4 GPUs each, that listen for each other. keep: of which of them (a bit for each) the
 * first process is a keeper. Their logs are named by letters. */
void nodes_start(struct node *nodes, uint32_t n, const char *test, uint32_t keep);
/* node_stop for these; those that do not run (pid 0) are passed over. */
void nodes_stop(struct node *nodes, uint32_t n);
/* What was started has ended otherwise, by a signal of ours say: takes its status, and waits for its executor's end. */
void node_await_end(struct node *node, pid_t executor);
/* After a failed test: kills what is left. For teardown. */
void node_cleanup(struct node *node);
void nodes_cleanup(struct node *nodes, uint32_t n);
/* `railmuxctl --json WHAT`, NULL if it fails. The caller decrefs. */
json_t *node_query(const struct node *node, const char *what);
/* All zero if nobody answers. */
struct node_pids node_pids(const struct node *node);
/* Waits until everything is ready and, if not 0, the pids differ from those given. */
struct node_pids node_await_ready(const struct node *node, pid_t not_daemon, pid_t not_executor, uint32_t timeout_ms);
/* Waits until no session is left, and takes it. */
struct node_snapshot node_snapshot(const struct node *node);
/* Waits until the node looks as it did; fails with the difference if it does not. */
void node_assert_as_before(const struct node *node, const struct node_snapshot *before);
/* The same for several. */
void nodes_snapshot(const struct node *nodes, uint32_t n, struct node_snapshot *before);
void nodes_assert_as_before(const struct node *nodes, uint32_t n, const struct node_snapshot *before);
