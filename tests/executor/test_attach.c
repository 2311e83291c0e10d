/* SPDX-License-Identifier: MIT */
/*
 * Comms whose plans take long to verify, and everybody else meanwhile. Here is railmuxd's side of the socket; the
 * executor's loop is turned by hand. What is looked at is which answer comes before which, not when.
 */
#include "tests/cmocka_all.h"

#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "executor/comm.h"
#include "executor/comm_private.h"
#include "executor/executor.h"
#include "executor/host_service.h"
#include "executor/session.h"
#include "gpu/gpu.h"
#include "plan/cost.h"
#include "proto/frame.h"
#include "railmux/railmux.h"
#include "ring/marks.h"
#include "ring/ring.h"
#include "util/memfd.h"

#define BIG_RANKS   64u
#define SMALL_RANKS 2u
#define ANSWERS_MAX 256u

struct rig {
        struct executor executor;
        struct host_service host;
        struct event_base *base;
        struct link *link;
        char path[96];
        int listener, fd;

        uint64_t next_id;
        uint64_t answers[ANSWERS_MAX]; /* ids, as they come */
        uint32_t codes[ANSWERS_MAX];
        uint64_t failed[ANSWERS_MAX]; /* comms */
        uint32_t n_answers, n_failed;
};

static void rig_init(struct rig *rig) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct link_options options = {.socket = rig->path, .name = "host"};

        memset(rig, 0, sizeof(*rig));
        assert_int_equal(executor_init(&rig->executor, &gpu_host_ops, 8, 1, UINT64_C(1000000000)), 0);
        host_service_init(&rig->host, &rig->executor);
        snprintf(rig->path, sizeof(rig->path), "/tmp/railmux-attach-%d", (int)getpid());
        rig->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        memcpy(address.sun_path, rig->path, strlen(rig->path) + 1);
        unlink(rig->path); /* one with this number may have left it */
        assert_int_equal(bind(rig->listener, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(rig->listener, 4), 0);
        assert_int_equal(fcntl(rig->listener, F_SETFL, O_NONBLOCK), 0);
        rig->base = event_base_new();
        assert_non_null(rig->base);
        assert_int_equal(link_new(rig->base, &rig->host.service, &options, &rig->link), 0);
        rig->fd = accept4(rig->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert_true(rig->fd >= 0);
}

static void rig_deinit(struct rig *rig) {
        link_free(rig->link);
        event_base_free(rig->base);
        executor_deinit(&rig->executor);
        close(rig->fd);
        close(rig->listener);
        unlink(rig->path);
}

/* ---- railmuxd ---------------------------------------------------------------------------------------------------- */
static uint64_t say(struct rig *rig, Railmux__Executor__Message *message, const int *fds, unsigned int n_fds) {
        message->id = ++rig->next_id;
        assert_int_equal(frame_send(rig->fd, &message->base, fds, n_fds), FRAME_OK);
        return message->id;
}

static uint64_t say_session(struct rig *rig, uint64_t session) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__SessionAttach attach = RAILMUX__EXECUTOR__SESSION_ATTACH__INIT;

        attach.session = session;
        attach.pid = (uint32_t)getpid();
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_ATTACH;
        message.session_attach = &attach;
        return say(rig, &message, NULL, 0);
}

static uint64_t say_leave(struct rig *rig, uint64_t comm, uint32_t rank, uint32_t last) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__RankLeave leave = RAILMUX__EXECUTOR__RANK_LEAVE__INIT;

        leave.comm = comm;
        leave.rank = rank;
        leave.last_sequence = last;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE;
        message.rank_leave = &leave;
        return say(rig, &message, NULL, 0);
}

static uint64_t say_session_end(struct rig *rig, uint64_t session) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__SessionDetach detach = RAILMUX__EXECUTOR__SESSION_DETACH__INIT;

        detach.session = session;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH;
        message.session_detach = &detach;
        return say(rig, &message, NULL, 0);
}

static uint64_t say_ring(struct rig *rig, uint64_t session) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__RingAttach attach = RAILMUX__EXECUTOR__RING_ATTACH__INIT;
        struct ring_layout layout;
        uint64_t id;
        int fds[3];

        assert_int_equal(ring_layout_init(&layout, 16, 4096), RING_OK);
        assert_int_equal(memfd_new("client", layout.client_bytes, &fds[0]), 0);
        assert_int_equal(memfd_new("executor", layout.executor_bytes, &fds[1]), 0);
        fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_true(fds[2] >= 0);
        attach.session = session;
        attach.depth = 16;
        attach.argument_bytes = 4096;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH;
        message.ring_attach = &attach;
        id = say(rig, &message, fds, 3);
        frame_close_fds(fds, 3);
        return id;
}

/* Rank 0 is of `first`, all others of `session`, with the same plans that railmuxd would have chosen. */
static uint64_t say_comm_of_two(struct rig *rig, uint64_t comm, uint64_t first, uint64_t session, uint32_t n_ranks) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommAttach attach = RAILMUX__EXECUTOR__COMM_ATTACH__INIT;
        Railmux__Executor__Member member[BIG_RANKS], *members[BIG_RANKS];
        Railmux__Executor__Choice choice[PLAN_CHOICES_MAX], *choices[PLAN_CHOICES_MAX];
        struct plan_choice chosen[PLAN_CHOICES_MAX];
        struct plan_constants constants;
        struct plan_geometry geometry;
        uint64_t id;
        int marks_fd;

        plan_constants_host(&constants, 2);
        plan_geometry_choose(n_ranks, &geometry);
        attach.n_choices = plan_choose(&constants, n_ranks, chosen);
        for (size_t i = 0; i < attach.n_choices; i++) {
                railmux__executor__choice__init(choices[i] = &choice[i]);
                choice[i].operation = chosen[i].operation;
                choice[i].algorithm = chosen[i].algorithm;
                choice[i].max_bytes = chosen[i].max_bytes;
        }
        for (uint32_t r = 0; r < n_ranks; r++) {
                railmux__executor__member__init(members[r] = &member[r]);
                member[r].session = r ? session : first;
                member[r].handle = (uint32_t)comm * 100 + r;
        }
        attach.comm = comm;
        attach.n_ranks = n_ranks;
        attach.n_members = n_ranks;
        attach.members = members;
        attach.choices = choices;
        attach.part_bytes = geometry.part_bytes;
        attach.slots = geometry.slots;
        attach.ring_depth = 16;
        attach.failed_rank = -1;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        message.comm_attach = &attach;
        assert_int_equal(memfd_new("marks", marks_bytes(n_ranks), &marks_fd), 0);
        id = say(rig, &message, &marks_fd, 1);
        close(marks_fd);
        return id;
}

static uint64_t say_comm(struct rig *rig, uint64_t comm, uint64_t session, uint32_t n_ranks) {
        return say_comm_of_two(rig, comm, session, session, n_ranks);
}

static uint64_t say_comm_end(struct rig *rig, uint64_t comm) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommDetach detach = RAILMUX__EXECUTOR__COMM_DETACH__INIT;

        detach.comm = comm;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH;
        message.comm_detach = &detach;
        return say(rig, &message, NULL, 0);
}

static uint64_t say_abort(struct rig *rig, uint64_t comm) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommAbort abort = RAILMUX__EXECUTOR__COMM_ABORT__INIT;

        abort.comm = comm;
        abort.code = RMX_E_ABORTED;
        abort.rank = -1;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &abort;
        return say(rig, &message, NULL, 0);
}

static void hear(struct rig *rig) {
        for (;;) {
                const Railmux__Executor__Message *message;
                ProtobufCMessage *received;
                struct frame_arena arena;
                int fds[FRAME_FDS_MAX], r;
                unsigned int n_fds = 0;

                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive(rig->fd, &railmux__executor__message__descriptor, &arena, &received, fds, &n_fds);
                if (r == FRAME_E_AGAIN)
                        return;
                assert_int_equal(r, FRAME_OK);
                message = (const Railmux__Executor__Message *)received;
                if (message->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_DONE) {
                        assert_true(rig->n_answers < ANSWERS_MAX);
                        rig->codes[rig->n_answers] = message->done->code;
                        rig->answers[rig->n_answers++] = message->id;
                } else if (message->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_FAILED) {
                        assert_true(rig->n_failed < ANSWERS_MAX);
                        rig->failed[rig->n_failed++] = message->comm_failed->comm;
                }
                protobuf_c_message_free_unpacked(received, &arena.allocator);
        }
}

/* Which answer it was, of all; -1: there is none yet. */
static int place(const struct rig *rig, uint64_t id) {
        for (uint32_t i = 0; i < rig->n_answers; i++)
                if (rig->answers[i] == id)
                        return (int)i;
        return -1;
}

static uint32_t wait_answer(struct rig *rig, uint64_t id) {
        while (place(rig, id) < 0) {
                assert_int_equal(event_base_loop(rig->base, EVLOOP_ONCE), 0);
                hear(rig);
        }
        return rig->codes[place(rig, id)];
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
/* Everything was said at once, the large comm first; all is answered before it. */
static void others_go_ahead(void **state) {
        static struct rig rig;
        uint64_t big, small, session, end, before;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        say_session(&rig, 2);
        wait_answer(&rig, say_comm(&rig, 9, 2, SMALL_RANKS)); /* one that is there */
        before = plans_verified(&rig.executor.plans);
        big = say_comm(&rig, 7, 1, BIG_RANKS);
        small = say_comm(&rig, 8, 2, SMALL_RANKS + 1);
        session = say_session(&rig, 3);
        end = say_session_end(&rig, 2);
        assert_int_equal(wait_answer(&rig, end), RMX_OK);
        assert_true(place(&rig, session) >= 0);
        assert_int_equal(place(&rig, big), -1);
        assert_int_equal(rig.n_failed, 1); /* the comm that was there */
        assert_int_equal(rig.failed[0], 9);
        assert_int_equal(wait_answer(&rig, small), RMX_OK);
        assert_int_equal(place(&rig, big), -1);
        assert_int_equal(rig.n_failed, 2); /* its session had gone by then */
        assert_int_equal(rig.failed[1], 8);

        /* Nothing ran that was not verified. */
        assert_int_equal(wait_answer(&rig, big), RMX_OK);
        assert_true(plans_verified(&rig.executor.plans) - before > 20);
        assert_non_null(comm_find(&rig.executor, 7));
        rig_deinit(&rig);
}

/* What speaks of the comm, and rings of its sessions, come after it; not rings of others. */
static void order_is_kept(void **state) {
        static struct rig rig;
        uint64_t big, ring, other, again, abort, end;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        say_session(&rig, 2);
        big = say_comm(&rig, 7, 1, BIG_RANKS);
        ring = say_ring(&rig, 1);
        again = say_comm(&rig, 7, 1, BIG_RANKS);
        abort = say_abort(&rig, 7);
        other = say_ring(&rig, 2);
        end = say_comm_end(&rig, 7);
        assert_int_equal(wait_answer(&rig, other), RMX_OK);
        assert_int_equal(place(&rig, big), -1);
        assert_int_equal(wait_answer(&rig, end), RMX_OK);
        assert_true(place(&rig, other) < place(&rig, big));
        assert_true(place(&rig, big) < place(&rig, ring) && place(&rig, big) < place(&rig, again));
        assert_true(place(&rig, again) < place(&rig, abort) && place(&rig, abort) < place(&rig, end));
        for (uint32_t i = 0; i < rig.n_answers; i++)
                assert_int_equal(rig.codes[i], RMX_OK);
        assert_int_equal(rig.n_failed, 0); /* that it is aborted is known */
        assert_null(comm_find(&rig.executor, 7));
        rig_deinit(&rig);
}

/* A rank leaves, then its session ends, which overtakes both: the others hear of no end. Of another one they do. */
static void leave_is_heard(void **state) {
        static struct rig rig;
        const uint32_t rank[] = {0, 1};

        (void)state;
        for (uint32_t i = 0; i < 2; i++) {
                uint64_t comm, leave, end;

                rig_init(&rig);
                say_session(&rig, 1);
                say_session(&rig, 2);
                comm = say_comm_of_two(&rig, 7, 2, 1, 16);
                leave = say_leave(&rig, 7, rank[i], 5);
                end = say_session_end(&rig, 2);
                assert_int_equal(wait_answer(&rig, end), RMX_OK);
                assert_int_equal(place(&rig, comm), -1);
                assert_int_equal(wait_answer(&rig, comm), RMX_OK);
                assert_int_equal(wait_answer(&rig, leave), RMX_OK);
                assert_true(place(&rig, comm) < place(&rig, leave));
                wait_answer(&rig, say_session(&rig, 3)); /* what has failed is told by then */
                assert_int_equal(comm_failed(comm_find(&rig.executor, 7)), i == 1);
                assert_int_equal(rig.n_failed, i);
                rig_deinit(&rig);
        }
}

/* A comm is aborted, then a session of it ends, which overtakes that: it is aborted. */
static void abort_is_heard(void **state) {
        static struct rig rig;
        uint64_t comm, abort, end;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        say_session(&rig, 2);
        comm = say_comm_of_two(&rig, 7, 2, 1, 16);
        abort = say_abort(&rig, 7);
        end = say_session_end(&rig, 2);
        assert_int_equal(wait_answer(&rig, end), RMX_OK);
        assert_int_equal(place(&rig, comm), -1);
        assert_int_equal(wait_answer(&rig, abort), RMX_OK);
        assert_true(place(&rig, comm) < place(&rig, abort));
        assert_int_equal(comm_error(comm_find(&rig.executor, 7)), ring_status(RMX_E_ABORTED, -1));
        rig_deinit(&rig);
}

/* One of a rank that there is not is nobody's. */
static void leave_of_nobody(void **state) {
        static struct rig rig;
        uint64_t comm, leave;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        say_session(&rig, 2);
        comm = say_comm_of_two(&rig, 7, 2, 1, 16);
        say_comm(&rig, 8, 1, 17);
        leave = say_leave(&rig, 7, 16, 5);
        say_leave(&rig, 8, 0, 5);
        say_session_end(&rig, 2);
        assert_int_equal(wait_answer(&rig, leave), RMX_OK);
        assert_true(place(&rig, comm) >= 0);
        assert_true(comm_failed(comm_find(&rig.executor, 7)));
        rig_deinit(&rig);
}

/* With the connection goes what was held; what has been verified so far need not be again. */
static void connection_ends(void **state) {
        static struct rig rig;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        say_comm(&rig, 7, 1, BIG_RANKS);
        wait_answer(&rig, say_session(&rig, 2)); /* so it has been read */
        close(rig.fd);
        do { /* until it has come again */
                assert_int_equal(event_base_loop(rig.base, EVLOOP_ONCE), 0);
                rig.fd = accept4(rig.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        } while (rig.fd < 0);
        rig.n_answers = 0;
        assert_int_equal(wait_answer(&rig, say_session(&rig, 3)), RMX_OK);
        assert_null(comm_find(&rig.executor, 7));
        assert_int_equal(wait_answer(&rig, say_comm(&rig, 7, 1, BIG_RANKS)), RMX_OK);
        assert_int_equal(rig.n_answers, 2); /* nothing of what was asked before */
        rig_deinit(&rig);
}

/* As many calls as may be unanswered wait; all are answered. */
static void many_wait(void **state) {
        static struct rig rig;
        uint64_t last = 0;

        (void)state;
        rig_init(&rig);
        wait_answer(&rig, say_session(&rig, 1));
        for (uint32_t i = 0; i < 70; i++)
                last = say_comm(&rig, 7, 1, 33);
        wait_answer(&rig, last);
        assert_int_equal(rig.n_answers, 71);
        rig_deinit(&rig);
}

/* ---- the table of plans ------------------------------------------------------------------------------------------ */
/* Shapes that differ in the geometry only: as many as one likes. */
static const struct plan *get(struct plans *plans, uint32_t i) {
        const struct plans_shape shape = {.operation = RING_OP_BARRIER,
                                          .algorithm = PLAN_DIRECT,
                                          .n_ranks = 2,
                                          .geometry = {.part_bytes = 64 * (1 + i / 4), .slots = 2 + i % 4}};
        struct plan_verdict verdict;
        const struct plan *plan;

        assert_int_equal(plans_get(plans, &shape, &plan, &verdict), PLANS_OK);
        return plan;
}

static void table_is_bounded(void **state) {
        const uint32_t n_shapes = PLANS_IDLE_MAX + 100;
        const struct plan *kept, *again;
        struct plans plans;

        (void)state;
        plans_init(&plans);
        kept = get(&plans, 0); /* its user stays */
        for (uint32_t i = 1; i < n_shapes; i++)
                plans_put(&plans, get(&plans, i));
        assert_true(plans.n_entries <= PLANS_IDLE_MAX + 1);
        assert_int_equal(plans_verified(&plans), n_shapes);

        /* What has a user is there, and so is what was used last; what was used first is not. */
        again = get(&plans, 0);
        assert_ptr_equal(again, kept);
        plans_put(&plans, get(&plans, n_shapes - 1));
        assert_int_equal(plans_verified(&plans), n_shapes);
        plans_put(&plans, get(&plans, 1));
        assert_int_equal(plans_verified(&plans), n_shapes + 1);

        /* Used again, it is the last to go. */
        plans_put(&plans, get(&plans, 1));
        for (uint32_t i = 0; i < PLANS_IDLE_MAX - 1; i++)
                plans_put(&plans, get(&plans, n_shapes + i));
        plans_put(&plans, get(&plans, 1));
        assert_int_equal(plans_verified(&plans), n_shapes + 1 + PLANS_IDLE_MAX - 1);
        plans_put(&plans, again);
        plans_put(&plans, kept);
        assert_true(plans.n_entries <= PLANS_IDLE_MAX);
        plans_deinit(&plans);
}

static bool busy(struct plans *plans) {
        bool is;

        pthread_mutex_lock(&plans->mutex);
        is = plans->queue || plans->busy;
        pthread_mutex_unlock(&plans->mutex);
        return is;
}

/* Also while one comm waits, of which nothing is verified twice. */
static void waiting_keeps_no_other(void **state) {
        const uint32_t n_shapes = PLANS_IDLE_MAX + 100;
        static struct rig rig;
        struct plans *plans = &rig.executor.plans;
        uint64_t comm, n_plans;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        comm = say_comm(&rig, 7, 1, BIG_RANKS);
        while (plans_verified(plans) < 4)
                assert_int_equal(event_base_loop(rig.base, EVLOOP_ONCE), 0);
        n_plans = plans->n_entries;
        for (uint32_t i = 0; i < n_shapes; i++) {
                plans_put(plans, get(plans, i));
                assert_true(plans->n_idle <= PLANS_IDLE_MAX + 1);
        }
        assert_true(busy(plans));
        hear(&rig);
        assert_int_equal(place(&rig, comm), -1);
        assert_int_equal(wait_answer(&rig, comm), RMX_OK);
        assert_int_equal(plans_verified(plans), n_plans + n_shapes);
        rig_deinit(&rig);
}

/* Who waited is gone: his go like all others. */
static void nobody_waits(void **state) {
        static struct rig rig;
        struct plans *plans = &rig.executor.plans;
        uint64_t n;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        say_comm(&rig, 7, 1, 16);
        wait_answer(&rig, say_session(&rig, 2)); /* so it has been read */
        close(rig.fd);
        do {
                assert_int_equal(event_base_loop(rig.base, EVLOOP_ONCE), 0);
                rig.fd = accept4(rig.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        } while (rig.fd < 0);
        for (uint64_t round = plans->round; busy(plans) || plans->round < round + 2;) {
                executor_attention(&rig.executor); /* as by whatever happens */
                assert_int_equal(event_base_loop(rig.base, EVLOOP_ONCE), 0);
        }
        assert_true(plans->n_entries > 10);
        for (uint32_t i = 0; i < PLANS_IDLE_MAX; i++)
                plans_put(plans, get(plans, i));
        n = plans_verified(plans);
        for (uint32_t i = 0; i < PLANS_IDLE_MAX; i++)
                plans_put(plans, get(plans, i));
        assert_int_equal(plans_verified(plans), n);
        assert_true(plans->n_entries <= PLANS_IDLE_MAX + 1);
        rig_deinit(&rig);
}

/* Comms give their plans back. */
static void comms_let_go(void **state) {
        static struct rig rig;
        uint32_t n_idle;

        (void)state;
        rig_init(&rig);
        say_session(&rig, 1);
        assert_int_equal(wait_answer(&rig, say_comm(&rig, 7, 1, 4)), RMX_OK);
        assert_int_equal(rig.executor.plans.n_idle, 0);
        wait_answer(&rig, say_comm(&rig, 8, 1, 4));
        wait_answer(&rig, say_comm_end(&rig, 7));
        assert_int_equal(rig.executor.plans.n_idle, 0);
        wait_answer(&rig, say_comm_end(&rig, 8));
        n_idle = rig.executor.plans.n_idle;
        assert_true(n_idle > 0);
        assert_int_equal(n_idle, rig.executor.plans.n_entries);
        rig_deinit(&rig);
}

static struct plans_shape all_reduce_of(uint32_t algorithm, uint32_t n_ranks, uint32_t slots) {
        return (struct plans_shape){.operation = RING_OP_ALL_REDUCE,
                                    .algorithm = algorithm,
                                    .n_ranks = n_ranks,
                                    .geometry = {.part_bytes = 4096, .slots = slots}};
}

/* Whoever does not wait for the thread gets the same. */
static void without_waiting(void **state) {
        const struct plans_shape one_shot = all_reduce_of(PLAN_ONE_SHOT, 33, 2),
                                 zero_copy = all_reduce_of(PLAN_ZERO_COPY, 33, 2),
                                 ring = all_reduce_of(PLAN_RING, 4, 1); /* needs two slots */
        struct plan_verdict verdict;
        const struct plan *plan;
        struct plans plans;

        (void)state;
        plans_init(&plans);
        assert_int_equal(plans_want(&plans, &one_shot), PLANS_E_LATER);
        assert_int_equal(plans_want(&plans, &zero_copy), PLANS_E_LATER);
        assert_int_equal(plans_get(&plans, &zero_copy, &plan, &verdict), PLANS_OK);
        assert_int_equal(plans_get(&plans, &one_shot, &plan, &verdict), PLANS_OK);
        assert_int_equal(plans_verified(&plans), 2);
        for (uint32_t i = 0; i < 2; i++) { /* what is refused is refused each time */
                while (plans_want(&plans, &ring) == PLANS_E_LATER)
                        sched_yield();
                assert_int_equal(plans_get(&plans, &ring, &plan, &verdict), PLANS_E_REFUSED);
                assert_int_equal(verdict.condition, PLAN_FAULT_DEADLOCK);
        }
        assert_int_equal(plans.n_entries, 2);
        plans_deinit(&plans);
}

/* Somebody brings small ones without end, and a large one has its turn all the same. */
static void large_has_its_turn(void **state) {
        const struct plans_shape large = all_reduce_of(PLAN_ONE_SHOT, 24, 2);
        struct plans_shape small = all_reduce_of(PLAN_ONE_SHOT, 2, 2);
        struct plans plans;

        (void)state;
        plans_init(&plans);
        for (uint32_t n = 0; n < PLANS_OLDEST_EVERY || plans_want(&plans, &large) == PLANS_E_LATER; n++) {
                assert_true(n < 20 * PLANS_OLDEST_EVERY);
                small.geometry.part_bytes += 4096;
                assert_int_equal(plans_want(&plans, &small), PLANS_E_LATER);
                pthread_mutex_lock(&plans.mutex);
                while (plans.n_queued - plans.n_taken > 2 * PLANS_OLDEST_EVERY)
                        pthread_cond_wait(&plans.changed, &plans.mutex);
                pthread_mutex_unlock(&plans.mutex);
        }
        plans_deinit(&plans);
}

/* Of calls that are alike less is known than of all: the one does not stand for the other. */
static void alike_is_another_shape(void **state) {
        struct plans_shape shape = all_reduce_of(PLAN_ONE_SHOT, 4, 2);
        const struct plan *all, *alike;
        struct plan_verdict verdict;
        struct plans plans;

        (void)state;
        plans_init(&plans);
        assert_int_equal(plans_get(&plans, &shape, &all, &verdict), PLANS_OK);
        shape.alike = true;
        assert_int_equal(plans_get(&plans, &shape, &alike, &verdict), PLANS_OK);
        assert_ptr_not_equal(all, alike);
        assert_int_equal(plans_verified(&plans), 2);
        plans_put(&plans, all);
        plans_put(&plans, alike);
        plans_deinit(&plans);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(others_go_ahead),        cmocka_unit_test(order_is_kept),
                cmocka_unit_test(connection_ends),        cmocka_unit_test(many_wait),
                cmocka_unit_test(table_is_bounded),       cmocka_unit_test(comms_let_go),
                cmocka_unit_test(without_waiting),        cmocka_unit_test(leave_is_heard),
                cmocka_unit_test(leave_of_nobody),        cmocka_unit_test(waiting_keeps_no_other),
                cmocka_unit_test(nobody_waits),           cmocka_unit_test(abort_is_heard),
                cmocka_unit_test(alike_is_another_shape), cmocka_unit_test(large_has_its_turn),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
