/* SPDX-License-Identifier: MIT */
/* What the executor of a GPU makes of a communicator over several nodes, before the plane (here: a notebook) has it. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "executor/held.h"
#include "executor/plane_call.h"
#include "executor/plane_executor.h"
#include "railmux/railmux.h"
#include "ring/line.h"
#include "ring/net.h"
#include "util/clock.h"
#include "util/memfd.h"

#define N 3u

static struct {
        uint32_t n;
        struct plane_comm_member members[N];
        bool has_net;
        struct plane_net net;
        int result;
        uint32_t left[N]; /* by rank: the last sequence, as rank_leave said */
        uint32_t n_left;
        struct plane_rank_report report[N]; /* to be told; comm 0: no more */
        struct plane_pair_report pair;      /* the same */
        uint32_t aborted;                   /* status */
        uint64_t left_ns;
        int told_fd;
        uint32_t n_asked, n_rounds; /* of comm_ready, comm_round */
        bool making;                /* what comm_ready answers */
        struct plan_choice choice;  /* the first that it was asked for */
} noted;

static int note_attach(struct plane *plane, const struct plane_comm *comm, char *error) {
        (void)plane;
        noted.n++;
        assert_int_equal(comm->n_ranks, N);
        memcpy(noted.members, comm->members, sizeof(noted.members));
        noted.has_net = comm->net != NULL;
        if (comm->net)
                noted.net = *comm->net;
        if (noted.result)
                snprintf(error, PLANE_TEXT, "the plane does not like it");
        return noted.result;
}

static bool note_ready(struct plane *plane, const struct plane_comm *comm) {
        (void)plane;
        noted.n_asked++;
        assert_int_equal(comm->n_ranks, N);
        assert_int_equal(comm->n_choices, 1);
        memcpy(noted.members, comm->members, sizeof(noted.members));
        noted.has_net = comm->net != NULL;
        noted.choice = comm->choices[0];
        return !noted.making;
}

static void note_round(struct plane *plane) {
        (void)plane;
        noted.n_rounds++;
}

/* The area is there until the plane has let go of it. */
static void note_detach(struct plane *plane, uint64_t comm) {
        (void)plane;
        (void)comm;
        if (noted.has_net)
                assert_int_equal(noted.net.area->magic, NET_MAGIC);
}

static void note_close(struct plane *plane) {
        note_detach(plane, 0);
}

static void note_leave(struct plane *plane, uint64_t comm, uint32_t rank, uint32_t last) {
        (void)plane;
        (void)comm;
        assert_in_range(rank, 0, N - 1);
        noted.left[rank] = last;
        noted.n_left++;
}

static int note_move(struct plane *plane, const struct plane_comm *comm, char *error) {
        (void)plane;
        (void)error;
        assert_int_equal(comm->id, 9);
        return 0;
}

static void note_abort(struct plane *plane, uint64_t comm, uint32_t status) {
        (void)plane;
        assert_int_equal(comm, 9);
        noted.aborted = status;
}

static uint32_t tell_report(struct plane *plane, struct plane_rank_report *reports, uint32_t max) {
        uint32_t n = 0;

        (void)plane;
        for (; n < N && n < max && noted.report[n].comm; n++)
                reports[n] = noted.report[n];
        return n;
}

static uint32_t tell_pairs(struct plane *plane, struct plane_pair_report *reports, uint32_t max) {
        (void)plane;
        if (!noted.pair.comm || !max)
                return 0;
        reports[0] = noted.pair;
        return 1;
}

static int note_open(const struct plane_options *options, struct plane **ret_plane, char *error) {
        (void)ret_plane;
        (void)error;
        noted.left_ns = options->left_ns;
        noted.told_fd = options->told_fd;
        return -ENODEV;
}

static const struct plane_ops ops = {.open = note_open,
                                     .comm_ready = note_ready,
                                     .comm_round = note_round,
                                     .comm_attach = note_attach,
                                     .comm_detach = note_detach,
                                     .comm_move = note_move,
                                     .comm_abort = note_abort,
                                     .rank_leave = note_leave,
                                     .report = tell_report,
                                     .pairs = tell_pairs,
                                     .close = note_close};

struct world {
        struct plane_executor executor;
        int fds[4]; /* marks, area, doorbell, wake */
        struct net_area *area;
        size_t bytes;
        Railmux__Executor__CommAttach attach;
        Railmux__Executor__Member member[N], *members[N];
};

static int setup(void **state) {
        struct world *w = calloc(1, sizeof(*w));
        uint8_t node[N];
        struct plan_nodes nodes;
        uint64_t memory_bytes;
        uint32_t capacity;
        void *area;

        assert_non_null(w);
        memset(&noted, 0, sizeof(noted));
        w->executor.ops = &ops;
        w->executor.gpu = 4;
        w->executor.attention_fd = -1;
        for (uint32_t i = 0; i < N; i++)
                node[i] = i == 1 ? 0 : 1;
        assert_int_equal(plan_nodes_init(&nodes, N, node), 0);
        assert_int_equal(plane_net_size(N, &nodes, &capacity, &memory_bytes), 0);
        w->bytes = (net_area_bytes(capacity, memory_bytes) + 4095) / 4096 * 4096;
        assert_int_equal(memfd_new("test-net", w->bytes, &w->fds[1]), 0);
        assert_int_equal(memfd_map(w->fds[1], w->bytes, 1, 1, &area), 0);
        w->area = area;
        net_area_init(w->area, capacity, memory_bytes);
        w->fds[0] = w->fds[3] = -1;
        w->fds[2] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        railmux__executor__comm_attach__init(&w->attach);
        w->attach.comm = 9;
        w->attach.n_ranks = (uint32_t)(w->attach.n_members = N);
        w->attach.members = w->members;
        w->attach.n_nodes = 2;
        w->attach.node = 1;
        for (uint32_t i = 0; i < N; i++) {
                railmux__executor__member__init(&w->member[i]);
                w->members[i] = &w->member[i];
                w->member[i].gpu = 4;
                w->member[i].handle = 7 + i;
                w->member[i].node = i == 1 ? 0 : 1;
        }
        w->member[2].gpu = 3;
        *state = w;
        return 0;
}

static int teardown(void **state) {
        struct world *w = *state;

        plane_executor_deinit(&w->executor);
        memfd_unmap(w->area, w->bytes);
        close(w->fds[1]);
        close(w->fds[2]);
        free(w);
        return 0;
}

static struct dispatch_result call(struct world *w, unsigned int n_fds) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        struct dispatch_result result;

        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        message.comm_attach = &w->attach;
        plane_call(&w->executor, &message, w->fds, n_fds, &result);
        return result;
}

static void detach(struct world *w) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommDetach detached = RAILMUX__EXECUTOR__COMM_DETACH__INIT;
        struct dispatch_result result;

        detached.comm = 9;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH;
        message.comm_detach = &detached;
        plane_call(&w->executor, &message, NULL, 0, &result);
        assert_int_equal(result.code, 0);
}

static void the_plane_gets_area_and_doorbell(void **state) {
        struct world *w = *state;
        int doorbell;

        for (uint32_t use = 0; use < 2; use++) {
                uint64_t one = 1, got;

                assert_int_equal(call(w, 4).code, 0);
                assert_int_equal(noted.n, use + 1);
                assert_true(noted.has_net);
                assert_ptr_not_equal(noted.net.area, w->area);
                assert_int_equal(noted.net.bytes, w->bytes);
                w->area->arrivals = 55 + use;
                assert_int_equal(noted.net.area->arrivals, 55 + use);
                doorbell = noted.net.doorbell_fd;
                assert_int_not_equal(doorbell, w->fds[2]);
                assert_int_equal(write(doorbell, &one, sizeof(one)), sizeof(one));
                assert_int_equal(read(w->fds[2], &got, sizeof(got)), sizeof(got));
                assert_true(noted.members[0].here);
                assert_false(noted.members[0].far);
                assert_true(noted.members[1].far);
                assert_false(noted.members[1].here); /* though its GPU has the same number */
                assert_false(noted.members[2].here || noted.members[2].far);
                detach(w);
                assert_int_equal(fcntl(doorbell, F_GETFD), -1);
                assert_int_equal(errno, EBADF);
        }
        assert_int_equal(call(w, 4).code, 0); /* is closed with the executor */
}

static void one_node_needs_none(void **state) {
        struct world *w = *state;

        w->attach.n_nodes = 1;
        assert_int_equal(call(w, 1).code, 0);
        assert_false(noted.has_net);
        for (uint32_t i = 0; i < N; i++)
                assert_false(noted.members[i].far);
}

static void what_is_no_net_is_refused(void **state) {
        struct world *w = *state;
        struct dispatch_result result;
        int before = dup(0), after;

        close(before);
#define REFUSED(n_fds, code_, word)                                                                                    \
        do {                                                                                                           \
                result = call(w, n_fds);                                                                               \
                assert_int_equal(result.code, code_);                                                                  \
                assert_non_null(strstr(result.message, word));                                                         \
                assert_null(w->executor.comms);                                                                        \
        } while (0)
        REFUSED(2, RMX_E_INVALID, "doorbell");
        w->attach.node = 2;
        REFUSED(4, RMX_E_INVALID, "node");
        w->attach.node = 1;
        w->member[1].session = 5; /* of another node's numbers */
        REFUSED(4, RMX_E_INVALID, "session");
        w->member[1].session = 0;
        w->member[0].node = 2;
        REFUSED(4, RMX_E_INVALID, "rank 0");
        w->member[0].node = 1;
        w->area->version++;
        REFUSED(4, RMX_E_INVALID, "net area is none");
        w->area->version--;
        assert_int_equal(noted.n, 0);
        noted.result = -EINVAL;
        REFUSED(4, RMX_E_INVALID, "does not like");
        noted.result = -EBUSY;
        REFUSED(4, RMX_E_BUSY, "does not like");
        noted.result = 0;
        after = dup(0);
        close(after);
        assert_int_equal(after, before); /* nothing is open that was not */
        assert_int_equal(call(w, 4).code, 0);
}

static struct dispatch_result leave(struct world *w, uint32_t rank, uint32_t last) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__RankLeave left = RAILMUX__EXECUTOR__RANK_LEAVE__INIT;
        struct dispatch_result result;

        left.comm = 9;
        left.rank = rank;
        left.last_sequence = last;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE;
        message.rank_leave = &left;
        plane_call(&w->executor, &message, NULL, 0, &result);
        assert_int_equal(result.code, 0);
        return result;
}

/* Nobody but railmuxd knows of them. */
static void the_plane_hears_who_left_elsewhere(void **state) {
        struct world *w = *state;

        assert_int_equal(call(w, 4).code, 0);
        assert_int_equal(noted.n_left, 0);
        leave(w, 2, 30); /* on another GPU of the node: sends to it and receives from it would wait for ever */
        assert_int_equal(noted.n_left, 1);
        assert_int_equal(noted.left[2], 30);
        leave(w, 1, 40);
        leave(w, 0, 50);
        leave(w, 1, 60); /* said before */
        assert_int_equal(noted.n_left, 3);
        assert_int_equal(noted.left[1], 40);
        assert_int_equal(noted.left[0], 50);
        detach(w);
        /* The same for one that had left before the executor was there. */
        w->member[1].left = true;
        w->member[1].last_sequence = 70;
        w->member[2].left = true;
        w->member[2].last_sequence = 80;
        assert_int_equal(call(w, 4).code, 0);
        assert_int_equal(noted.n_left, 5);
        assert_int_equal(noted.left[1], 70);
        assert_int_equal(noted.left[2], 80);
}

/* CommMove is filled in as it is sent: it may say already what RankLeave behind it says. */
static void who_leaves_beside_a_move_is_heard(void **state) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        struct world *w = *state;
        struct dispatch_result result;

        assert_int_equal(call(w, 4).code, 0);
        w->member[2].left = true;
        w->member[2].last_sequence = 30;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_MOVE;
        message.comm_move = &w->attach;
        plane_call(&w->executor, &message, NULL, 0, &result);
        assert_int_equal(result.code, 0);
        leave(w, 2, 30);
        assert_int_equal(noted.n_left, 1);
        assert_int_equal(noted.left[2], 30);
}

/* What a process says of its rank's last call is believed no further than it has rung. */
static void what_a_rank_here_has_rung_counts(void **state) {
        const uint32_t said[] = {3, 1000000, (UINT32_C(1) << 31) + 7, 0};
        struct world *w = *state;
        struct dispatch_result result;

        for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(call(w, 4).code, 0);
                noted.report[0] = (struct plane_rank_report){.comm = 9, .rank = 0, .rung = 3, .finished = 3};
                result = leave(w, 0, said[i]);
                assert_int_equal(noted.left[0], 3);
                assert_int_equal(w->executor.comms->ranks[0].last, 3);
                for (uint32_t again = 0; again < 2; again++) {
                        assert_true(result.has_rung);
                        assert_int_equal(result.rung, 3);
                        result = leave(w, 0, said[i]);
                }
                /* Of one on another GPU its own executor knows, and railmuxd says so later. */
                result = leave(w, 2, 1000000);
                assert_false(result.has_rung);
                assert_int_equal(noted.left[2], 1000000);
                leave(w, 2, 4);
                assert_int_equal(noted.left[2], 4);
                assert_int_equal(w->executor.comms->ranks[2].last, 4);
                detach(w);
        }
        /* Nothing is known of one that is not in the tables. */
        w->member[0].session = 0;
        noted.report[0].comm = 0;
        assert_int_equal(call(w, 4).code, 0);
        assert_false(leave(w, 0, 5).has_rung);
        assert_int_equal(noted.left[0], 5);
}

/* What the proxy cannot make sense of ends the communicator, with the rank and a sentence. */
static void a_broken_wire_ends_the_communicator(void **state) {
        struct world *w = *state;

        assert_int_equal(call(w, 4).code, 0);
        noted.report[0] = (struct plane_rank_report){.comm = 9, .rank = 0, .rung = 3, .finished = 2};
        plane_executor_look(&w->executor);
        assert_int_equal(w->executor.comms->code, 0);
        noted.report[0].status = ring_status(RMX_E_LOST, 1);
        noted.report[0].why = "what came from it is nothing";
        plane_executor_look(&w->executor);
        assert_int_equal(noted.aborted, ring_status(RMX_E_LOST, 1));
        assert_int_equal(w->executor.comms->code, RMX_E_LOST);
        assert_int_equal(w->executor.comms->failed_rank, 1);
        assert_true(w->executor.comms->unreported);
        assert_string_equal(w->executor.comms->text, "what came from it is nothing");
        assert_int_equal(w->executor.invalid + w->executor.mismatches, 0);
}

static void session_call(struct world *w, uint64_t session, bool attach) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__SessionAttach attached = RAILMUX__EXECUTOR__SESSION_ATTACH__INIT;
        Railmux__Executor__SessionDetach detached = RAILMUX__EXECUTOR__SESSION_DETACH__INIT;
        struct dispatch_result result;

        attached.session = detached.session = session;
        message.body_case = attach ? RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_ATTACH
                                   : RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH;
        if (attach)
                message.session_attach = &attached;
        else
                message.session_detach = &detached;
        plane_call(&w->executor, &message, NULL, 0, &result);
        assert_int_equal(result.code, 0);
}

/* Sessions 20 and 22 have ranks 0 and 2, which have called and finished so much, as far as they are here. 20 ends. */
static struct plane_attached *ended_session(struct world *w, uint32_t rung0, uint32_t finished0, uint32_t rung2) {
        w->member[0].session = 20;
        w->member[2].session = 22;
        session_call(w, 20, true);
        session_call(w, 22, true);
        noted.n_left = noted.aborted = 0;
        assert_int_equal(call(w, 4).code, 0);
        noted.report[0] = (struct plane_rank_report){.comm = 9, .rank = 0, .rung = rung0, .finished = finished0};
        if (w->member[2].gpu == 4)
                noted.report[1] =
                        (struct plane_rank_report){.comm = 9, .rank = 2, .rung = rung2, .finished = rung2 - 1};
        session_call(w, 20, false);
        return w->executor.comms;
}

/* What it has pushed may not be over there yet. */
static void a_process_that_ends_with_its_last_call_done_gives_others_time(void **state) {
        uint64_t before_ns = clock_now_ns();
        struct plane_attached *comm;
        struct world *w = *state;

        w->member[2].gpu = 4; /* it is at the same call still */
        comm = ended_session(w, 3, 3, 3);
        assert_int_equal(comm->code, 0);
        assert_int_equal(noted.aborted, 0);
        assert_int_equal(noted.n_left, 1); /* no later one is waited for */
        assert_int_equal(noted.left[0], 3);
        plane_comms_ended(&w->executor, before_ns);
        assert_int_equal(comm->code, 0);
        plane_comms_ended(&w->executor, clock_now_ns());
        assert_int_equal(comm->code, RMX_E_PEER_LOST);
        assert_int_equal(comm->failed_rank, 0);
        assert_true(comm->unreported);
        assert_int_equal(noted.aborted, ring_status(RMX_E_PEER_LOST, 0));
        noted.aborted = 0;
        plane_comms_ended(&w->executor, clock_now_ns());
        session_call(w, 22, false);
        assert_int_equal(noted.aborted, 0); /* once */
}

static void assert_ends_at_once(struct world *w, struct plane_attached *comm) {
        assert_int_equal(comm->code, RMX_E_PEER_LOST);
        assert_int_equal(comm->failed_rank, 0);
        assert_int_equal(noted.aborted, ring_status(RMX_E_PEER_LOST, 0));
        assert_int_equal(noted.n_left, 0);
        session_call(w, 22, false);
        detach(w);
        memset(&noted, 0, sizeof(noted));
}

static void a_process_that_others_need_ends_it_at_once(void **state) {
        struct world *w = *state;

        assert_ends_at_once(w, ended_session(w, 3, 2, 0)); /* in a call */
        w->member[2].gpu = 4;
        assert_ends_at_once(w, ended_session(w, 3, 3, 4)); /* behind the others */
        noted.pair = (struct plane_pair_report){.comm = 9, .rank = 2, .peer = 0, .rung = 1};
        assert_ends_at_once(w, ended_session(w, 3, 3, 3)); /* somebody receives from it */
        noted.pair = (struct plane_pair_report){.comm = 9, .rank = 0, .peer = 1, .sends = true, .rung = 1};
        assert_ends_at_once(w, ended_session(w, 3, 3, 3)); /* it sends */
        w->attach.n_nodes = 1;
        w->member[1].node = 1;
        assert_ends_at_once(w, ended_session(w, 3, 3, 3)); /* one node: all ranks are done when one is */
}

/* What it had under way its own executor knows. This one only sees to it that the communicator ends at all. */
static void a_process_on_another_gpu_is_given_the_same_time(void **state) {
        struct plane_attached *comm;
        struct world *w = *state;

        w->member[0].gpu = 3;
        w->member[2].gpu = 4;
        comm = ended_session(w, 3, 2, 4);
        assert_int_equal(comm->code, 0);
        assert_int_equal(noted.n_left, 0);
        plane_comms_ended(&w->executor, clock_now_ns());
        assert_int_equal(comm->failed_rank, 0);
        assert_int_equal(noted.aborted, ring_status(RMX_E_PEER_LOST, 0));
}

/* A process is killed when its next call has been rung and nobody has seen it: what kernels say of that call, that its
 * memory is unknown, is no error of the rank's. */
static void a_killed_process_is_lost_and_not_at_fault(void **state) {
        struct plane_attached *comm;
        struct world *w = *state;

        w->member[2].gpu = 4;
        comm = ended_session(w, 3, 3, 3);
        assert_int_equal(comm->code, 0);
        noted.report[0] = (struct plane_rank_report){.comm = 9,
                                                     .rank = 0,
                                                     .rung = 4,
                                                     .finished = 3,
                                                     .operation = RING_OP_ALL_REDUCE,
                                                     .status = ring_status(RMX_E_INVALID, 0)};
        plane_executor_look(&w->executor);
        assert_int_equal(comm->code, RMX_E_PEER_LOST);
        assert_int_equal(comm->failed_rank, 0);
        assert_true(comm->unreported);
        assert_string_equal(comm->text, "all_reduce 4: the process of rank 0 ended");
        assert_int_equal(noted.aborted, ring_status(RMX_E_PEER_LOST, 0));
        assert_int_equal(w->executor.invalid, 0);
}

/* Others that make a mistake meanwhile hear of it. */
static void a_rank_that_lives_is_at_fault_as_ever(void **state) {
        struct plane_attached *comm;
        struct world *w = *state;

        w->member[2].gpu = 4;
        comm = ended_session(w, 3, 3, 3);
        noted.report[1] = (struct plane_rank_report){.comm = 9,
                                                     .rank = 2,
                                                     .rung = 4,
                                                     .finished = 3,
                                                     .operation = RING_OP_ALL_REDUCE,
                                                     .status = ring_status(RMX_E_INVALID, 2)};
        plane_executor_look(&w->executor);
        assert_int_equal(comm->code, RMX_E_INVALID);
        assert_int_equal(comm->failed_rank, 2);
        assert_int_equal(noted.aborted, ring_status(RMX_E_INVALID, 2));
        assert_int_equal(w->executor.invalid, 1);
}

/* ---- what the plane makes beforehand ----------------------------------------------------------------------------- */
static bool ready(struct world *w) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;

        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        message.comm_attach = &w->attach;
        return w->executor.service.ops->ready(&w->executor, &message);
}

static void the_plane_is_asked_before_a_communicator_comes(void **state) {
        const struct plane_options options = {.device = 1};
        Railmux__Executor__Choice choice = RAILMUX__EXECUTOR__CHOICE__INIT, *choices[] = {&choice};
        struct world *w = *state;
        struct plane_executor *executor = &w->executor;
        char error[PLANE_TEXT] = "";
        uint64_t one = 1, got;

        assert_int_equal(plane_executor_init(executor, &ops, 4, &options, 123456789, error), -ENODEV);
        assert_int_equal(noted.told_fd, executor->service.attention_fd);
        assert_int_equal(write(noted.told_fd, &one, sizeof(one)), sizeof(one));
        assert_int_equal(read(noted.told_fd, &got, sizeof(got)), sizeof(got));
        assert_int_equal(read(noted.told_fd, &got, sizeof(got)), -1); /* it does not wait */

        choice.operation = RING_OP_GATHER;
        choice.algorithm = PLAN_HIERARCHICAL_STAGED;
        choice.max_bytes = 77;
        w->attach.choices = choices;
        w->attach.n_choices = 1;
        noted.making = true;
        assert_false(ready(w));
        assert_int_equal(noted.n_asked, 1);
        assert_true(noted.has_net);
        assert_int_equal(noted.choice.operation, RING_OP_GATHER);
        assert_int_equal(noted.choice.algorithm, PLAN_HIERARCHICAL_STAGED);
        assert_int_equal(noted.choice.max_bytes, 77);
        for (uint32_t i = 0; i < N; i++) {
                assert_int_equal(noted.members[i].here, i == 0); /* 1 is on another node, 2 on another GPU */
                assert_int_equal(noted.members[i].far, i == 1);
                assert_int_equal(noted.members[i].node, i != 1);
        }
        noted.making = false;
        executor->service.ops->round(executor);
        assert_int_equal(noted.n_rounds, 1);
        assert_true(ready(w));
        w->attach.n_nodes = 1;
        assert_true(ready(w));
        assert_false(noted.has_net);
        assert_int_equal(noted.n_asked, 3);

        noted.making = true; /* what is refused, or there already, waits for nothing */
        w->attach.n_members = N - 1;
        assert_true(ready(w));
        w->attach.n_members = N;
        w->attach.n_ranks = PLAN_RANKS_MAX + 1;
        assert_true(ready(w));
        w->attach.n_ranks = N;
        w->attach.n_choices = PLAN_CHOICES_MAX + 1;
        assert_true(ready(w));
        w->attach.n_choices = 1;
        assert_int_equal(call(w, 1).code, 0);
        assert_true(ready(w));
        assert_int_equal(noted.n_asked, 3);
}

static bool waits(const struct held *held, uint32_t body, uint64_t comm) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommHold hold = RAILMUX__EXECUTOR__COMM_HOLD__INIT;
        Railmux__Executor__CommAttach move = RAILMUX__EXECUTOR__COMM_ATTACH__INIT;
        Railmux__Executor__CommRelease release = RAILMUX__EXECUTOR__COMM_RELEASE__INIT;

        hold.comm = move.comm = release.comm = comm;
        message.body_case = body;
        if (body == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_HOLD)
                message.comm_hold = &hold;
        else if (body == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_MOVE)
                message.comm_move = &move;
        else
                message.comm_release = &release;
        return held_before(held, NULL, &message);
}

static void what_a_waiting_communicator_is_told_waits_with_it(void **state) {
        const uint32_t bodies[] = {RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_HOLD,
                                   RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_MOVE,
                                   RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_RELEASE};
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        struct world *w = *state;
        struct held_call waiting = {.message = &message};
        struct held held = {0};

        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        message.comm_attach = &w->attach;
        for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
                assert_false(waits(&held, bodies[i], 9));
        held_add(&held, &waiting);
        for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
                assert_true(waits(&held, bodies[i], 9));
                assert_false(waits(&held, bodies[i], 8));
        }
}

static void far_ranks_are_believed_as_on_the_host(void **state) {
        const struct plane_options options = {.device = 1}, other = {.left_ns = 7};
        struct plane_executor executor;
        char error[PLANE_TEXT] = "";

        (void)state;
        assert_int_equal(plane_executor_init(&executor, &ops, 4, &options, 123456789, error), -ENODEV);
        assert_int_equal(noted.left_ns, 123456789);
        plane_executor_deinit(&executor);
        assert_int_equal(plane_executor_init(&executor, &ops, 4, &other, 123456789, error), -ENODEV);
        assert_int_equal(noted.left_ns, 7);
        plane_executor_deinit(&executor);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(the_plane_gets_area_and_doorbell, setup, teardown),
                cmocka_unit_test_setup_teardown(one_node_needs_none, setup, teardown),
                cmocka_unit_test_setup_teardown(what_is_no_net_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(the_plane_hears_who_left_elsewhere, setup, teardown),
                cmocka_unit_test_setup_teardown(who_leaves_beside_a_move_is_heard, setup, teardown),
                cmocka_unit_test_setup_teardown(what_a_rank_here_has_rung_counts, setup, teardown),
                cmocka_unit_test_setup_teardown(a_broken_wire_ends_the_communicator, setup, teardown),
                cmocka_unit_test_setup_teardown(a_process_that_ends_with_its_last_call_done_gives_others_time, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_process_that_others_need_ends_it_at_once, setup, teardown),
                cmocka_unit_test_setup_teardown(a_process_on_another_gpu_is_given_the_same_time, setup, teardown),
                cmocka_unit_test_setup_teardown(a_killed_process_is_lost_and_not_at_fault, setup, teardown),
                cmocka_unit_test_setup_teardown(a_rank_that_lives_is_at_fault_as_ever, setup, teardown),
                cmocka_unit_test_setup_teardown(the_plane_is_asked_before_a_communicator_comes, setup, teardown),
                cmocka_unit_test_setup_teardown(what_a_waiting_communicator_is_told_waits_with_it, setup, teardown),
                cmocka_unit_test(far_ranks_are_believed_as_on_the_host),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
