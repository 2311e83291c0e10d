/* SPDX-License-Identifier: MIT */
/* kill -9 of one rank inside a collective: the others get the typed error in time, and the daemon serves on. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tools/perf/stats.h"
#include "util/clock.h"

#define RANKS      8u
#define BIG        (1u << 20) /* elements: 4 MiB */
#define BOUND_MS   100.0
#define TRIALS_MAX 100u
#define ROUNDS     3u

enum kind {
        KIND_WAITING,     /* the others wait in a small all_reduce that the victim has not called */
        KIND_BARRIER,     /* the same in a barrier */
        KIND_BIG,         /* everybody is inside large all_reduces */
        KIND_OUTSTANDING, /* everybody has several requests started */
        KIND_COUNT,
};
static const char *const kind_names[] = {"waiting in all_reduce", "waiting in a barrier", "inside large ones",
                                         "several outstanding"};

struct survivor {
        _Atomic uint32_t entered; /* 1 + calls made, so that the parent sees who is inside */
        uint32_t code, next_code, sticky;
        int32_t failed_rank;
        uint64_t error_ns;
};

struct trial {
        pthread_barrier_t barrier; /* ranks, before anybody is killed */
        struct rmx_id id;
        uint32_t kind, victim;
        char error[RANKS][200];
        struct survivor rank[RANKS];
};

struct fixture {
        struct node node;
        struct trial *trial;
        pid_t pid[RANKS];
        uint64_t random;
};

static void must(struct trial *trial, uint32_t rank, int code, const char *what) {
        if (code == RMX_OK)
                return;
        snprintf(trial->error[rank], sizeof(trial->error[rank]), "%s: %s: %.150s", what, rmx_error_name(code),
                 rmx_last_error());
        _exit(1);
}

static int call_once(struct trial *trial, struct rmx_comm *comm, void *memory, bool victim) {
        struct rmx_request request[3];
        int code = RMX_OK;

        switch (trial->kind) {
        case KIND_WAITING:
                return victim ? pause() : rmx_all_reduce(comm, memory, memory, 16, RMX_FLOAT32, RMX_SUM, NULL);
        case KIND_BARRIER:
                return victim ? pause() : rmx_barrier(comm, NULL);
        case KIND_BIG:
                return rmx_all_reduce(comm, memory, memory, BIG, RMX_FLOAT32, RMX_MAX, NULL);
        default:
                for (uint32_t i = 0; i < 3 && code == RMX_OK; i++) {
                        code = rmx_all_reduce_start(comm, memory, memory, BIG / 16, RMX_FLOAT32, RMX_MAX, NULL,
                                                    &request[i]);
                        if (code !=
                            RMX_OK) /* the error is known already: what was started still has to be waited for */
                                for (uint32_t k = 0; k < i; k++)
                                        rmx_wait(&request[k], NULL);
                }
                for (uint32_t i = 0; i < 3 && code == RMX_OK; i++) {
                        code = rmx_wait(&request[i], NULL);
                        for (uint32_t k = i + 1; k < 3 && code != RMX_OK; k++)
                                rmx_wait(&request[k], NULL);
                }
                return code;
        }
}

static void run_rank(struct trial *trial, const char *socket, uint32_t rank) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = socket, .name = "mortal"};
        struct survivor *me = &trial->rank[rank];
        struct rmx_session *session;
        struct rmx_comm *comm;
        void *memory;
        int code;

        must(trial, rank, rmx_session_open(&options, &session), "rmx_session_open");
        must(trial, rank, rmx_mem_alloc(session, BIG * sizeof(float), &memory), "rmx_mem_alloc");
        if (rank == 0)
                must(trial, rank, rmx_get_id(session, &trial->id), "rmx_get_id");
        pthread_barrier_wait(&trial->barrier);
        must(trial, rank, rmx_comm_create(session, &trial->id, RANKS, rank, NULL, &comm), "rmx_comm_create");
        must(trial, rank, rmx_barrier(comm, NULL), "rmx_barrier");
        do {
                atomic_fetch_add(&me->entered, 1); /* partner is_inside */
                code = call_once(trial, comm, memory, rank == trial->victim);
        } while (code == RMX_OK);
        me->error_ns = clock_now_ns();
        me->code = (uint32_t)code;
        me->failed_rank = rmx_comm_failed_rank(comm);
        me->sticky = (uint32_t)rmx_comm_error(comm);
        me->next_code = (uint32_t)rmx_barrier(comm, NULL);
        rmx_comm_destroy(comm);
        rmx_session_close(session);
        exit(0);
}

static bool is_inside(void *argument) {
        struct trial *trial = argument;
        uint32_t goal = trial->kind == KIND_BIG || trial->kind == KIND_OUTSTANDING ? 3 : 1;

        for (uint32_t i = 0; i < RANKS; i++)
                if (atomic_load(&trial->rank[i].entered) < goal) /* partner run_rank */
                        return false;
        return true;
}

static void start_ranks(struct fixture *f) {
        pid_t parent = getpid();

        fflush(NULL);
        for (uint32_t i = 0; i < RANKS; i++) {
                f->pid[i] = fork();
                assert_true(f->pid[i] >= 0);
                if (f->pid[i] == 0) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (getppid() == parent)
                                run_rank(f->trial, f->node.socket, i);
                        _exit(1);
                }
        }
}

static void trial_init(struct fixture *f, uint32_t number) {
        pthread_barrierattr_t attributes;
        struct trial *trial = f->trial;

        memset(trial, 0, sizeof(*trial));
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&trial->barrier, &attributes, RANKS);
        pthread_barrierattr_destroy(&attributes);
        trial->kind = number % KIND_COUNT;
        trial->victim = (uint32_t)(proc_random(&f->random) % RANKS);
}

static void check_survivor(struct fixture *f, uint32_t number, uint32_t i) {
        const struct trial *trial = f->trial;
        const struct survivor *s = &trial->rank[i];
        int status;

        if (proc_wait(f->pid[i], 20000, &status) != 0)
                fail_msg("trial %u (%s): rank %u hangs", number, kind_names[trial->kind], i);
        f->pid[i] = 0;
        if (status != 0)
                fail_msg("trial %u (%s): rank %u ended with status 0x%x: %s", number, kind_names[trial->kind], i,
                         (unsigned int)status, trial->error[i]);
        if (s->code != RMX_E_PEER_LOST || s->next_code != RMX_E_PEER_LOST || s->sticky != RMX_E_PEER_LOST ||
            s->failed_rank != (int32_t)trial->victim)
                fail_msg("trial %u (%s): rank %u got %s, then %s, sticky %s, failed rank %d; killed was rank %u",
                         number, kind_names[trial->kind], i, rmx_error_name((int)s->code),
                         rmx_error_name((int)s->next_code), rmx_error_name((int)s->sticky), s->failed_rank,
                         trial->victim);
}

/* Adds one latency per survivor. */
static void run_trial(struct fixture *f, uint32_t number, uint64_t *latencies) {
        struct trial *trial = f->trial;
        uint64_t killed_ns;
        uint32_t n = 0;
        int status;

        trial_init(f, number);
        start_ranks(f);
        if (!proc_await(is_inside, trial, 20000)) {
                for (uint32_t i = 0; i < RANKS; i++)
                        if (trial->error[i][0])
                                fail_msg("trial %u: rank %u: %s", number, i, trial->error[i]);
                fail_msg("trial %u (%s): the ranks do not get inside", number, kind_names[trial->kind]);
        }
        killed_ns = clock_now_ns();
        kill(f->pid[trial->victim], SIGKILL);
        waitpid(f->pid[trial->victim], &status, 0);
        f->pid[trial->victim] = 0;
        for (uint32_t i = 0; i < RANKS; i++) {
                if (i == trial->victim)
                        continue;
                check_survivor(f, number, i);
                latencies[n++] = trial->rank[i].error_ns - killed_ns;
        }
}

/* The victim is killed, and held where its threads have stopped and neither memory nor descriptors are given back yet:
 * that takes long for processes with much of it. The others are told all the same. */
static void run_held_trial(struct fixture *f, uint32_t number) {
        struct trial *trial = f->trial;
        pid_t victim;
        int status;

        trial_init(f, number);
        start_ranks(f);
        if (!proc_await(is_inside, trial, 20000))
                fail_msg("trial %u (%s): the ranks do not get inside", number, kind_names[trial->kind]);
        victim = f->pid[trial->victim];
        assert_int_equal(ptrace(PTRACE_SEIZE, victim, NULL, PTRACE_O_TRACEEXIT), 0);
        kill(victim, SIGKILL);
        assert_int_equal(waitpid(victim, &status, __WALL), victim);
        assert_int_equal(status >> 8, SIGTRAP | PTRACE_EVENT_EXIT << 8);
        for (uint32_t i = 0; i < RANKS; i++)
                if (i != trial->victim)
                        check_survivor(f, number, i);
        assert_int_equal(waitpid(victim, &status, __WALL | WNOHANG), 0); /* there still */
        assert_int_equal(ptrace(PTRACE_CONT, victim, NULL, NULL), 0);
        assert_int_equal(proc_wait(victim, 20000, &status), 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        f->pid[trial->victim] = 0;
}

static void test_slow_death(void **state) {
        struct fixture *f = *state;
        struct node_snapshot before;

        run_held_trial(f, KIND_WAITING);
        before = node_snapshot(&f->node);
        for (uint32_t kind = 0; kind < KIND_COUNT; kind++)
                run_held_trial(f, kind);
        node_assert_as_before(&f->node, &before);
        node_stop(&f->node);
}

static void assert_serves(const struct node *node) {
        const char *argv[] = {node_program("railmux-perf"),
                              "all_reduce",
                              "--ranks",
                              "8",
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

/* Milliseconds after which 99 of 100 survivors had their error. */
static double run_round(struct fixture *f, uint64_t *latencies) {
        const uint32_t trials = proc_full() ? TRIALS_MAX : 20;
        double p50, p99;
        uint32_t n = 0;

        for (uint32_t i = 0; i < trials; i++, n += RANKS - 1)
                run_trial(f, i, latencies + n);
        stats_sort(latencies, n);
        p50 = (double)stats_percentile(latencies, n, 50) / 1e6;
        p99 = (double)stats_percentile(latencies, n, 99) / 1e6;
        printf("%u trials, %u survivors: error after p50 %.2f ms, p99 %.2f ms, longest %.2f ms\n", trials, n, p50, p99,
               (double)latencies[n - 1] / 1e6);
        return p99;
}

static void test_rank_death(void **state) {
        struct fixture *f = *state;
        uint64_t *latencies = calloc(TRIALS_MAX * (RANKS - 1), sizeof(*latencies));
        struct node_snapshot before;
        struct node_pids pids;
        double p99 = 0;

        assert_non_null(latencies);
        run_trial(f, 0, latencies); /* what processes keep for later use is there now */
        before = node_snapshot(&f->node);
        pids = node_pids(&f->node);
        /* One pause of the machine makes two of a trial's survivors late, which is enough; it does not do so thrice. */
        for (uint32_t i = 0; i < ROUNDS && (i == 0 || p99 > BOUND_MS * proc_time_scale()); i++)
                p99 = run_round(f, latencies);
        free(latencies);
        if (p99 > BOUND_MS * proc_time_scale())
                fail_msg("p99 %.2f ms is above %.0f ms, %u times", p99, BOUND_MS * proc_time_scale(), ROUNDS);
        assert_serves(&f->node);
        assert_int_equal(node_pids(&f->node).daemon, pids.daemon);
        assert_int_equal(node_pids(&f->node).executor, pids.executor);
        node_assert_as_before(&f->node, &before);
        node_stop(&f->node);
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->random = proc_seed();
        f->trial = mmap(NULL, sizeof(*f->trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(f->trial != MAP_FAILED);
        node_start(&f->node, "rank-death", true);
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;
        int status;

        for (uint32_t i = 0; i < RANKS; i++)
                if (f->pid[i] > 0) {
                        kill(f->pid[i], SIGKILL);
                        waitpid(f->pid[i], &status, 0);
                }
        node_cleanup(&f->node);
        munmap(f->trial, sizeof(*f->trial));
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_rank_death, setup, teardown),
                                           cmocka_unit_test_setup_teardown(test_slow_death, setup, teardown)};

        return cmocka_run_group_tests_name("rank_death", tests, NULL, NULL);
}
