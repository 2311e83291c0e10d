/* SPDX-License-Identifier: MIT */
/*
 * Communicators of the same ranks, used by each rank in an order of its own. Nothing may hang, whatever the orders are,
 * and every result is checked.
 *
 *   opposite  two comms; even ranks start first on one, odd ranks first on the other, and wait for both
 *   random    eight comms; in each round every rank starts one operation on each, in random order, and waits for those
 * of the round before, in random order threads   eight comms, and in each rank a thread for each that makes blocking
 * calls
 */
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define RANKS      4u
#define COMMS_MAX  8u
#define COUNT_MAX  3000u
#define LAPS       2u /* rounds in flight */
#define OPERATIONS 100000u

struct shared {
        pthread_barrier_t barrier;
        struct rmx_id id[COMMS_MAX];
        _Atomic uint64_t progress; /* rounds of all ranks, to see who hangs */
        char error[RANKS][200];
};

struct member {
        struct shared *shared;
        uint32_t rank;
        uint32_t n_comms;
        uint32_t n_rounds;
        uint64_t random;
        struct rmx_comm *comm[COMMS_MAX];
        int32_t *memory; /* [comm][lap][in, out][COUNT_MAX] */
};

struct fixture {
        struct node node;
        struct shared *shared;
        pid_t pid[RANKS];
};

static void fail_rank(struct member *m, const char *what, int code) {
        snprintf(m->shared->error[m->rank], sizeof(m->shared->error[m->rank]), "%s: %s: %.150s", what,
                 rmx_error_name(code), rmx_last_error());
        _exit(1);
}

static void must(struct member *m, int code, const char *what) {
        if (code != RMX_OK)
                fail_rank(m, what, code);
}

static int32_t *place(const struct member *m, uint32_t comm, uint32_t round, bool out) {
        return m->memory + ((comm * LAPS + round % LAPS) * 2 + out) * COUNT_MAX;
}

static uint32_t count_of(uint32_t comm, uint32_t round) {
        uint32_t x = (round * 2654435761u) ^ (comm * 40503u);

        return x % 16 == 0 ? x / 16 % COUNT_MAX : x % 67;
}

static void fill(const struct member *m, uint32_t comm, uint32_t round) {
        int32_t *in = place(m, comm, round, false);

        for (uint32_t i = 0; i < count_of(comm, round); i++)
                in[i] = (int32_t)(round * 31 + comm * 1009 + i * 7 + m->rank * 100003);
}

static void check(struct member *m, uint32_t comm, uint32_t round) {
        const int32_t *out = place(m, comm, round, true);

        for (uint32_t i = 0; i < count_of(comm, round); i++)
                if (out[i] !=
                    (int32_t)(RANKS * (round * 31 + comm * 1009 + i * 7) + 100003 * (RANKS * (RANKS - 1) / 2)))
                        fail_rank(m, "a wrong element", RMX_E_INTERNAL);
}

static void start(struct member *m, uint32_t comm, uint32_t round, struct rmx_request *request) {
        fill(m, comm, round);
        must(m,
             rmx_all_reduce_start(m->comm[comm], place(m, comm, round, false), place(m, comm, round, true),
                                  count_of(comm, round), RMX_INT32, RMX_SUM, NULL, request),
             "start");
}

static void finish(struct member *m, uint32_t comm, uint32_t round, struct rmx_request *request) {
        must(m, rmx_wait(request, NULL), "wait");
        check(m, comm, round);
        atomic_fetch_add(&m->shared->progress, 1); /* partner: await_all */
}

static void shuffle(struct member *m, uint32_t order[COMMS_MAX]) {
        for (uint32_t i = 0; i < m->n_comms; i++)
                order[i] = i;
        for (uint32_t i = m->n_comms - 1; i > 0; i--) {
                uint32_t k = (uint32_t)(proc_random(&m->random) % (i + 1)), t = order[i];

                order[i] = order[k];
                order[k] = t;
        }
}

static void run_opposite(struct member *m) {
        struct rmx_request request[2];

        for (uint32_t round = 0; round < m->n_rounds; round++) {
                uint32_t first = m->rank % 2;

                start(m, first, round, &request[first]);
                start(m, !first, round, &request[!first]);
                finish(m, !first, round, &request[!first]);
                finish(m, first, round, &request[first]);
        }
}

static void run_random(struct member *m) {
        struct rmx_request request[LAPS][COMMS_MAX];
        uint32_t order[COMMS_MAX];

        for (uint32_t round = 0; round <= m->n_rounds; round++) {
                if (round < m->n_rounds) {
                        shuffle(m, order);
                        for (uint32_t i = 0; i < m->n_comms; i++)
                                start(m, order[i], round, &request[round % LAPS][order[i]]);
                }
                if (round > 0) {
                        shuffle(m, order);
                        for (uint32_t i = 0; i < m->n_comms; i++)
                                finish(m, order[i], round - 1, &request[(round - 1) % LAPS][order[i]]);
                }
        }
}

struct caller {
        struct member *member;
        uint32_t comm;
};

static void *run_caller(void *userdata) {
        struct caller *c = userdata;
        struct member *m = c->member;

        for (uint32_t round = 0; round < m->n_rounds; round++) {
                fill(m, c->comm, round);
                must(m,
                     rmx_all_reduce(m->comm[c->comm], place(m, c->comm, round, false), place(m, c->comm, round, true),
                                    count_of(c->comm, round), RMX_INT32, RMX_SUM, NULL),
                     "all_reduce");
                check(m, c->comm, round);
                atomic_fetch_add(&m->shared->progress, 1); /* partner: await_all */
        }
        return NULL;
}

static void run_threads(struct member *m) {
        struct caller caller[COMMS_MAX];
        pthread_t thread[COMMS_MAX];

        for (uint32_t i = 0; i < m->n_comms; i++) {
                caller[i] = (struct caller){m, i};
                must(m, pthread_create(&thread[i], NULL, run_caller, &caller[i]) ? RMX_E_INTERNAL : RMX_OK, "a thread");
        }
        for (uint32_t i = 0; i < m->n_comms; i++)
                pthread_join(thread[i], NULL);
}

static void run_rank(struct member *m, const char *socket, void (*run)(struct member *m)) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = socket, .name = "order"};
        struct rmx_session *session;
        void *memory;

        must(m, rmx_session_open(&options, &session), "rmx_session_open");
        must(m, rmx_mem_alloc(session, sizeof(int32_t) * COMMS_MAX * LAPS * 2 * COUNT_MAX, &memory), "rmx_mem_alloc");
        m->memory = memory;
        for (uint32_t i = 0; m->rank == 0 && i < m->n_comms; i++)
                must(m, rmx_get_id(session, &m->shared->id[i]), "rmx_get_id");
        pthread_barrier_wait(&m->shared->barrier);
        for (uint32_t i = 0; i < m->n_comms; i++)
                must(m, rmx_comm_create(session, &m->shared->id[i], RANKS, m->rank, NULL, &m->comm[i]),
                     "rmx_comm_create");
        run(m);
        rmx_session_close(session);
        _exit(0);
}

static bool moved_on(void *argument) {
        struct {
                struct fixture *f;
                uint64_t progress;
        } *look = argument;

        for (uint32_t r = 0; r < RANKS; r++) {
                int status;

                if (look->f->pid[r] && waitpid(look->f->pid[r], &status, WNOHANG) == look->f->pid[r]) {
                        look->f->pid[r] = 0;
                        if (status)
                                fail_msg("rank %u: %s", r, look->f->shared->error[r]);
                        return true;
                }
        }
        return atomic_load(&look->f->shared->progress) != look->progress; /* partner: finish */
}

/* A hang is: nothing moved for a long time. */
static void await_all(struct fixture *f) {
        for (;;) {
                struct {
                        struct fixture *f;
                        uint64_t progress;
                } look = {f, atomic_load(&f->shared->progress)}; /* partner: finish */
                bool running = false;

                for (uint32_t r = 0; r < RANKS; r++)
                        running = running || f->pid[r];
                if (!running)
                        return;
                if (!proc_await(moved_on, &look, 20000))
                        fail_msg("nothing moves after %" PRIu64 " operations of all ranks", look.progress);
        }
}

static void orders(struct fixture *f, void (*run)(struct member *m), uint32_t n_comms, uint32_t operations) {
        pthread_barrierattr_t attributes;
        uint64_t seed = proc_seed(), begin_ns;

        f->shared = mmap(NULL, sizeof(*f->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(f->shared != MAP_FAILED);
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&f->shared->barrier, &attributes, RANKS);
        begin_ns = clock_now_ns();
        for (uint32_t r = 0; r < RANKS; r++) {
                f->pid[r] = fork();
                assert_true(f->pid[r] >= 0);
                if (!f->pid[r]) {
                        struct member m = {.shared = f->shared,
                                           .rank = r,
                                           .n_comms = n_comms,
                                           .n_rounds = operations / n_comms,
                                           .random = seed * 64 + r};

                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        run_rank(&m, f->node.socket, run);
                }
        }
        await_all(f);
        assert_int_equal(atomic_load(&f->shared->progress), (uint64_t)operations / n_comms * n_comms * RANKS);
        print_message("%u operations on %u communicators of %u ranks, no hang, none wrong, %.1f s\n", operations,
                      n_comms, RANKS, (double)(clock_now_ns() - begin_ns) / 1e9);
        munmap(f->shared, sizeof(*f->shared));
}

static uint32_t operations(void) {
        return proc_time_scale() > 1 && !proc_full() ? OPERATIONS / 20 : OPERATIONS;
}

static void opposite_orders(void **state) {
        orders(*state, run_opposite, 2, operations());
}

static void random_orders(void **state) {
        orders(*state, run_random, COMMS_MAX, operations());
}

static void threads_of_blocking_calls(void **state) {
        orders(*state, run_threads, COMMS_MAX, operations() / 2);
}

static int setup(void **state) {
        static struct fixture f;

        f = (struct fixture){0};
        node_start(&f.node, "order", false);
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        for (uint32_t r = 0; r < RANKS; r++)
                if (f->pid[r]) {
                        kill(f->pid[r], SIGKILL);
                        waitpid(f->pid[r], NULL, 0);
                }
        node_cleanup(&f->node);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(opposite_orders, setup, teardown),
                cmocka_unit_test_setup_teardown(random_orders, setup, teardown),
                cmocka_unit_test_setup_teardown(threads_of_blocking_calls, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
