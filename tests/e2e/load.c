/* SPDX-License-Identifier: MIT */
#include "tests/e2e/load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/load_rank.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define STOP_MS 20000u

static void assert_running(pid_t pid, const char *error, const char *what, uint32_t number) {
        int status;

        if (waitpid(pid, &status, WNOHANG) != 0)
                fail_msg("%s %u has ended with status 0x%x: %s", what, number, (unsigned int)status, error);
}

void load_assert_alive(const struct load *load) {
        for (uint32_t i = 0; i < load->n_ranks; i++)
                assert_running(load->rank_pid[i], load->shared->rank[i].error, "rank", i);
        for (uint32_t i = 0; i < LOAD_CREATORS; i++)
                assert_running(load->creator_pid[i], load->shared->creation.error[i], "creator", i);
}

/* A byte of a creator, or -1 after the time. */
static int take_answer(const struct load *load, uint32_t i, int timeout_ms) {
        struct pollfd poller = {.fd = load->answer[i], .events = POLLIN};
        unsigned char byte;
        int r;

        do
                r = poll(&poller, 1, (int)(timeout_ms * proc_time_scale()));
        while (r < 0 && errno == EINTR);
        if (r <= 0)
                return -1;
        if (read(load->answer[i], &byte, 1) != 1)
                fail_msg("creator %u has ended: %s", i, load->shared->creation.error[i]);
        return byte;
}

static pid_t fork_child(void) {
        pid_t parent = getpid(), pid;

        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent)
                        _exit(1);
        }
        return pid;
}

static void start_creators(struct load *load, const char *socket) {
        for (uint32_t i = 0; i < LOAD_CREATORS; i++) {
                int command[2], answer[2];

                assert_int_equal(pipe2(command, O_CLOEXEC), 0);
                assert_int_equal(pipe2(answer, O_CLOEXEC), 0);
                load->creator_pid[i] = fork_child();
                if (load->creator_pid[i] == 0) {
                        close(command[1]);
                        close(answer[0]);
                        for (uint32_t k = 0; k < i; k++) /* else the end of file would never come to the other */
                                close(load->command[k]);
                        load_creator_run(load->shared, socket, i, command[0], answer[1]);
                }
                close(command[0]);
                close(answer[1]);
                load->command[i] = command[1];
                load->answer[i] = answer[0];
        }
        for (uint32_t i = 0; i < LOAD_CREATORS; i++)
                if (take_answer(load, i, 10000) != 0)
                        fail_msg("creator %u is not ready: %s", i, load->shared->creation.error[i]);
}

/* Creator 0 makes the ranks' id too: this process must not open a session, its children would inherit it. */
void load_start(struct load *load, const char *socket, uint32_t n_ranks) {
        void *memory = mmap(NULL, sizeof(struct load_shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        assert_true(memory != MAP_FAILED);
        *load = (struct load){.n_ranks = n_ranks, .shared = memory, .command = {-1, -1}, .answer = {-1, -1}};
        start_creators(load, socket);
        for (uint32_t i = 0; i < n_ranks; i++) {
                load->rank_pid[i] = fork_child();
                if (load->rank_pid[i] == 0) {
                        for (uint32_t k = 0; k < LOAD_CREATORS; k++)
                                close(load->command[k]);
                        load_rank_run(load->shared, socket, n_ranks, i);
                }
        }
        load_await_progress(load, 20, 20000);
}

uint32_t load_completed_max(const struct load *load) {
        uint32_t max = 0;

        for (uint32_t i = 0; i < load->n_ranks; i++) {
                /* acquire: partner batch_run */
                uint32_t c = atomic_load_explicit(&load->shared->rank[i].completed, memory_order_acquire);

                max = c > max ? c : max;
        }
        return max;
}

uint32_t load_issued_max(const struct load *load) {
        uint32_t max = 0;

        for (uint32_t i = 0; i < load->n_ranks; i++) {
                uint32_t c = atomic_load(&load->shared->rank[i].issued); /* partner request_start */

                max = c > max ? c : max;
        }
        return max;
}

struct progress_wait {
        struct load *load;
        uint32_t goal;
};

static bool has_progressed(void *argument) {
        struct progress_wait *w = argument;

        load_assert_alive(w->load);
        for (uint32_t i = 0; i < w->load->n_ranks; i++) /* acquire: partner batch_run */
                if (atomic_load_explicit(&w->load->shared->rank[i].completed, memory_order_acquire) < w->goal)
                        return false;
        return true;
}

void load_await_progress(struct load *load, uint32_t more, uint32_t timeout_ms) {
        struct progress_wait w = {.load = load, .goal = load_completed_max(load) + more};

        if (!proc_await(has_progressed, &w, timeout_ms)) {
                for (uint32_t i = 0; i < load->n_ranks; i++)
                        fprintf(stderr, "rank %u: issued %u, completed %u\n", i,
                                atomic_load(&load->shared->rank[i].issued), /* partners as above */
                                atomic_load(&load->shared->rank[i].completed));
                fail_msg("the ranks do not get on: sequence %u not reached", w.goal);
        }
}

void load_reset_gap(struct load *load) {
        for (uint32_t i = 0; i < load->n_ranks; i++) /* relaxed: partner note_completion */
                atomic_store_explicit(&load->shared->rank[i].longest_gap_ns, 0, memory_order_relaxed);
}

uint64_t load_longest_gap_ns(const struct load *load) {
        uint64_t max = 0;

        for (uint32_t i = 0; i < load->n_ranks; i++) { /* relaxed: partner note_completion */
                uint64_t gap = atomic_load_explicit(&load->shared->rank[i].longest_gap_ns, memory_order_relaxed);

                max = gap > max ? gap : max;
        }
        return max;
}

struct create_wait {
        struct load *load;
        uint32_t goal[LOAD_CREATORS];
};

static bool has_called(void *argument) {
        struct create_wait *w = argument;

        for (uint32_t i = 0; i < LOAD_CREATORS; i++) /* acquire: partner create_once */
                if (atomic_load_explicit(&w->load->shared->creation.issued[i], memory_order_acquire) < w->goal[i])
                        return false;
        return true;
}

void load_create_begin(struct load *load) {
        struct create_wait w = {.load = load};

        for (uint32_t i = 0; i < LOAD_CREATORS; i++) {
                w.goal[i] = 1 + atomic_load(&load->shared->creation.issued[i]); /* partner create_once */
                assert_int_equal(write(load->command[i], "c", 1), 1);
        }
        if (!proc_await(has_called, &w, 10000))
                fail_msg("the creators do not start");
}

bool load_create_done(struct load *load) {
        struct pollfd poller[LOAD_CREATORS];

        for (uint32_t i = 0; i < LOAD_CREATORS; i++)
                poller[i] = (struct pollfd){.fd = load->answer[i], .events = POLLIN};
        return poll(poller, LOAD_CREATORS, 0) > 0;
}

void load_create_end(struct load *load, uint32_t timeout_ms) {
        for (uint32_t i = 0; i < LOAD_CREATORS; i++) {
                int code = take_answer(load, i, (int)timeout_ms);

                if (code < 0)
                        fail_msg("creator %u: no communicator in time", i);
                if (code != RMX_OK)
                        fail_msg("creator %u: %s", i, load->shared->creation.error[i]);
        }
}

static void close_pipes(struct load *load) {
        for (uint32_t i = 0; i < LOAD_CREATORS; i++) {
                if (load->command[i] >= 0)
                        close(load->command[i]);
                if (load->answer[i] >= 0)
                        close(load->answer[i]);
                load->command[i] = load->answer[i] = -1;
        }
}

static void reap(pid_t *pid, const char *error, const char *what, uint32_t number) {
        int status, r = proc_wait(*pid, STOP_MS, &status);

        if (r)
                fail_msg("%s %u does not end", what, number);
        *pid = 0;
        if (status != 0)
                fail_msg("%s %u ended with status 0x%x: %s", what, number, (unsigned int)status, error);
}

void load_stop(struct load *load) {
        atomic_store_explicit(&load->shared->stop, 1, memory_order_relaxed); /* partner load_rank_run */
        for (uint32_t i = 0; i < load->n_ranks; i++)
                reap(&load->rank_pid[i], load->shared->rank[i].error, "rank", i);
        close_pipes(load);
        for (uint32_t i = 0; i < LOAD_CREATORS; i++)
                reap(&load->creator_pid[i], load->shared->creation.error[i], "creator", i);
        for (uint32_t i = 0; i < load->n_ranks; i++)
                if (atomic_load(&load->shared->rank[i].wrong) > 0) /* partner request_finish */
                        fail_msg("rank %u: wrong data: %s", i, load->shared->rank[i].error);
}

void load_cleanup(struct load *load) {
        int status;

        for (uint32_t i = 0; i < LOAD_RANKS_MAX + LOAD_CREATORS; i++) {
                pid_t pid = i < LOAD_RANKS_MAX ? load->rank_pid[i] : load->creator_pid[i - LOAD_RANKS_MAX];

                if (pid > 0) {
                        kill(pid, SIGKILL);
                        waitpid(pid, &status, 0);
                }
        }
        if (load->shared) {
                close_pipes(load);
                munmap(load->shared, sizeof(*load->shared));
        }
        *load = (struct load){0};
}
