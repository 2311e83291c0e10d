/* SPDX-License-Identifier: MIT */
/*
 * Ranks that do not call the same, and ranks that do not call: within a second there is an error on every rank that
 * names the culprit, or a line of `railmuxctl status` that names rank and operation.
 */
#include <errno.h>
#include <pthread.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define RANKS    4u
#define CULPRIT  2u
#define COUNT    64u
#define BOUND_MS 1000.0
#define TRIES    3u

enum wrong {
        WRONG_OPERATION,
        WRONG_TYPE,
        WRONG_REDOP,
        WRONG_COUNT,
        WRONG_ROOT,
        WRONG_VECTOR,
        WRONG_SEND_COUNT,
        MISSING_COLLECTIVE,
        MISSING_RECV,
        MISSING_SEND,
        WRONG_KINDS,
};

struct fixture {
        struct node node;
        struct rmx_session *session[RANKS];
        struct rmx_comm *comm[RANKS];
        float *memory[RANKS];
        pthread_t thread[RANKS];
        struct rmx_id id;
        enum wrong wrong;
        uint32_t n_calling; /* ranks that make a call */
        int code[RANKS];
        int32_t failed_rank[RANKS];
        char text[RANKS][256];
        double ms[RANKS];
        _Atomic uint64_t called_ns[RANKS]; /* when it made its call */
};

struct caller {
        struct fixture *f;
        uint32_t rank;
};

static int call_vector(struct fixture *f, uint32_t rank) {
        size_t send[RANKS], recv[RANKS], offset[RANKS];

        for (uint32_t i = 0; i < RANKS; i++) {
                send[i] = recv[i] = 3;
                offset[i] = 4 * i;
        }
        if (rank == CULPRIT)
                send[1] = 4;
        return rmx_all_to_all_v(f->comm[rank], f->memory[rank], send, offset, f->memory[rank] + COUNT, recv, offset,
                                RMX_FLOAT32, NULL);
}

static int call(struct fixture *f, uint32_t rank) {
        struct rmx_comm *comm = f->comm[rank];
        float *in = f->memory[rank], *out = in + 4 * COUNT;
        bool culprit = rank == CULPRIT;

        switch (f->wrong) {
        case WRONG_OPERATION:
                return culprit ? rmx_barrier(comm, NULL)
                               : rmx_all_reduce(comm, in, out, COUNT, RMX_FLOAT32, RMX_SUM, NULL);
        case WRONG_TYPE:
                return rmx_all_reduce(comm, in, out, COUNT, culprit ? RMX_INT32 : RMX_FLOAT32, RMX_SUM, NULL);
        case WRONG_REDOP:
                return rmx_all_reduce(comm, in, out, COUNT, RMX_FLOAT32, culprit ? RMX_MAX : RMX_SUM, NULL);
        case WRONG_COUNT:
                return rmx_all_reduce(comm, in, out, COUNT + culprit, RMX_FLOAT32, RMX_SUM, NULL);
        case WRONG_ROOT:
                return rmx_broadcast(comm, in, out, COUNT, RMX_FLOAT32, culprit, NULL);
        case WRONG_VECTOR:
                return call_vector(f, rank);
        case WRONG_SEND_COUNT:
                return culprit     ? rmx_send(comm, in, COUNT + 1, RMX_FLOAT32, 0, NULL)
                       : rank == 0 ? rmx_recv(comm, out, COUNT, RMX_FLOAT32, CULPRIT, NULL)
                                   : rmx_barrier(comm, NULL);
        case MISSING_RECV:
                return rmx_send(comm, in, COUNT, RMX_FLOAT32, CULPRIT, NULL);
        case MISSING_SEND:
                return rmx_recv(comm, in, COUNT, RMX_FLOAT32, CULPRIT, NULL);
        default:
                return rmx_all_reduce(comm, in, out, COUNT, RMX_FLOAT32, RMX_SUM, NULL);
        }
}

static void *run_rank(void *userdata) {
        struct caller *c = userdata;
        struct fixture *f = c->f;
        uint64_t begin;

        f->code[c->rank] = rmx_comm_create(f->session[c->rank], &f->id, RANKS, c->rank, NULL, &f->comm[c->rank]);
        if (f->code[c->rank] != RMX_OK)
                return NULL;
        f->called_ns[c->rank] = begin = clock_now_ns();
        f->code[c->rank] = call(f, c->rank);
        f->ms[c->rank] = (double)(clock_now_ns() - begin) / 1e6;
        f->failed_rank[c->rank] = rmx_comm_failed_rank(f->comm[c->rank]);
        snprintf(f->text[c->rank], sizeof(f->text[c->rank]), "%.200s", rmx_last_error());
        return NULL;
}

static void *join_only(void *userdata) {
        struct caller *c = userdata;
        struct fixture *f = c->f;

        f->code[c->rank] = rmx_comm_create(f->session[c->rank], &f->id, RANKS, c->rank, NULL, &f->comm[c->rank]);
        return NULL;
}

static bool makes_call(const struct fixture *f, uint32_t rank) {
        if (f->wrong == MISSING_COLLECTIVE)
                return rank != CULPRIT;
        if (f->wrong == MISSING_RECV || f->wrong == MISSING_SEND)
                return rank == 0;
        return true;
}

static void begin(struct fixture *f, enum wrong wrong) {
        static struct caller callers[RANKS];

        f->wrong = wrong;
        assert_int_equal(rmx_get_id(f->session[0], &f->id), RMX_OK);
        for (uint32_t r = 0; r < RANKS; r++) {
                callers[r] = (struct caller){f, r};
                assert_int_equal(
                        pthread_create(&f->thread[r], NULL, makes_call(f, r) ? run_rank : join_only, &callers[r]), 0);
        }
}

static void end(struct fixture *f) {
        for (uint32_t r = 0; r < RANKS; r++)
                pthread_join(f->thread[r], NULL);
}

static void destroy(struct fixture *f) {
        for (uint32_t r = 0; r < RANKS; r++)
                rmx_comm_destroy(f->comm[r]);
}

/* Does a note of `railmuxctl status` contain all words? */
struct look {
        const struct node *node;
        const char *words[3];
};

static bool note_is_there(void *userdata) {
        const struct look *look = userdata;
        json_t *root = node_query(look->node, "status"), *status = json_object_get(root, "status");
        bool found = false;
        size_t i;
        json_t *note;

        json_array_foreach(json_object_get(status, "notes"), i, note) {
                bool all = true;

                for (uint32_t w = 0; w < 3 && look->words[w]; w++)
                        all = all && strstr(json_string_value(note), look->words[w]);
                found = found || all;
        }
        json_decref(root);
        return found;
}

static void mismatches(void **state) {
        static const struct {
                enum wrong wrong;
                const char *word;
        } cases[] = {
                {WRONG_OPERATION, "barrier"}, {WRONG_TYPE, "type"}, {WRONG_REDOP, "reduction"},
                {WRONG_COUNT, "count"},       {WRONG_ROOT, "root"}, {WRONG_VECTOR, "elements"},
                {WRONG_SEND_COUNT, "count"},
        };
        struct fixture *f = *state;

        for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                double worst = 0;

                begin(f, cases[i].wrong);
                end(f);
                for (uint32_t r = 0; r < RANKS; r++) {
                        assert_int_equal(f->code[r], RMX_E_MISMATCH);
                        /* between two there is no majority: it is one of them, the same on all ranks */
                        if (cases[i].wrong == WRONG_VECTOR || cases[i].wrong == WRONG_SEND_COUNT)
                                assert_int_equal(f->failed_rank[r], f->failed_rank[0]);
                        else
                                assert_int_equal(f->failed_rank[r], CULPRIT);
                        assert_true(f->failed_rank[r] >= 0 && strstr(f->text[r], "rank "));
                        worst = f->ms[r] > worst ? f->ms[r] : worst;
                }
                assert_true(worst < BOUND_MS * proc_time_scale());
                assert_true(
                        proc_await(note_is_there, &(struct look){&f->node, {"failed", "rank 2", cases[i].word}}, 1000));
                print_message("%-10s error on all ranks within %.1f ms: %s\n", cases[i].word, worst, f->text[0]);
                destroy(f);
        }
}

static bool note_is_gone(void *userdata) {
        return !note_is_there(userdata);
}

/* How long after the last call a line of the status names it. */
static double miss(struct fixture *f, enum wrong wrong, const char *word) {
        struct look look = {&f->node, {word, "for rank 2"}};
        uint64_t called_ns = 0;
        double ms;

        begin(f, wrong);
        assert_true(proc_await(note_is_there, &look, 10000));
        for (uint32_t r = 0; r < RANKS; r++)
                if (makes_call(f, r) && f->called_ns[r] > called_ns)
                        called_ns = f->called_ns[r];
        ms = (double)(clock_now_ns() - called_ns) / 1e6;
        pthread_join(f->thread[CULPRIT], NULL); /* it has joined and calls nothing */
        assert_int_equal(rmx_comm_abort(f->comm[CULPRIT]), RMX_OK);
        for (uint32_t r = 0; r < RANKS; r++)
                if (r != CULPRIT)
                        pthread_join(f->thread[r], NULL);
        destroy(f);
        assert_true(proc_await(note_is_gone, &look, 10000));
        return ms;
}

static void missing(void **state) {
        static const struct {
                enum wrong wrong;
                const char *word;
        } cases[] = {{MISSING_COLLECTIVE, "all_reduce 1"}, {MISSING_RECV, "send 1"}, {MISSING_SEND, "recv 1"}};
        struct fixture *f = *state;

        for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const double bound_ms = BOUND_MS * proc_time_scale();
                double ms = 2 * bound_ms;

                /* Half of it is the time after which a call counts as one that waits. Other programs may have the
                 * processors in the other half, but not each time. */
                for (uint32_t k = 0; k < TRIES && ms >= bound_ms; k++)
                        ms = miss(f, cases[i].wrong, cases[i].word);
                assert_true(ms < bound_ms);
                print_message("%-12s named in railmuxctl status after %.0f ms\n", cases[i].word, ms);
        }
}

static int setup(void **state) {
        static struct fixture f;

        f = (struct fixture){0};
        node_start(&f.node, "mismatch", false);
        for (uint32_t r = 0; r < RANKS; r++) {
                struct rmx_session_options options = {.size = sizeof(options), .socket = f.node.socket};
                void *memory;

                assert_int_equal(rmx_session_open(&options, &f.session[r]), RMX_OK);
                assert_int_equal(rmx_mem_alloc(f.session[r], 8 * COUNT * sizeof(float), &memory), RMX_OK);
                f.memory[r] = memory;
        }
        *state = &f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        for (uint32_t r = 0; r < RANKS; r++)
                rmx_session_close(f->session[r]);
        node_cleanup(&f->node);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(mismatches, setup, teardown),
                cmocka_unit_test_setup_teardown(missing, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
