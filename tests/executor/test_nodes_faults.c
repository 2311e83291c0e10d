/* SPDX-License-Identifier: MIT */
/* Communicators over several nodes: what ranks of different nodes call differently, who is missing, leaves or dies, and
 * what an executor does not attach. */
#include "tests/cmocka_all.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"
#include "executor/comm_private.h"
#include "executor/dispatch.h"
#include "executor/session.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/memfd.h"

static struct cluster cluster;

static struct cluster *start(const struct cluster_placement *placement) {
        cluster_start(&cluster, placement);
        return &cluster;
}

static uint32_t comm_status(struct comm *comm) {
        return atomic_load(&comm->error);
}

/* A rank of node 1 gives another count, type, operation: a node that gets its chunks ends the comm and names a rank of
 * the other node. Then railmuxd would tell the others. */
static void mismatch(void **state) {
        (void)state;
        for (uint32_t k = 0; k < 12; k++) {
                struct cluster *c = start(&cluster_placements[0]);
                struct fixture *f = &c->f;
                struct ring_request request[2];
                uint32_t q[2], status = 0, found = 0;

                for (uint32_t r = 0; r < 2; r++)
                        request[r] = fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 100 + k, 0);
                if (k % 3 == 0)
                        ring_request_set_u64(&request[1], RING_W_COUNT_LO, 99 + k);
                else if (k % 3 == 1)
                        ring_request_set_head(&request[1], RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_SUM);
                else
                        ring_request_set_head(&request[1], RING_OP_ALL_GATHER, RMX_INT32, 0);
                cluster_fill(f, k);
                for (uint32_t r = 0; r < 2; r++)
                        q[r] = fixture_ring(f, r, &request[r]);
                while (!status) {
                        for (uint32_t i = 0; i < 2; i++)
                                if (comm_status(c->nodes[i].comm))
                                        status = comm_status(c->nodes[found = i].comm);
                        sched_yield();
                }
                assert_int_equal(status, ring_status(RMX_E_MISMATCH, (int32_t)!found));
                assert_non_null(strstr(c->nodes[found].comm->error_text, "on another node"));
                cluster_abort(c, !found, status);
                for (uint32_t r = 0; r < 2; r++)
                        assert_int_equal(ring_status_code(fixture_wait(f, r, q[r])), RMX_E_MISMATCH);
                /* and so it stays */
                cluster_ring(f, RING_OP_BARRIER, 0, 0, q);
                for (uint32_t r = 0; r < 2; r++)
                        assert_int_equal(ring_status_code(fixture_wait(f, r, q[r])), RMX_E_MISMATCH);
                cluster_deinit(c);
        }
}

/* A rank that is one call behind has called just what another node's chunks are of, but later. */
static void one_behind(void **state) {
        struct cluster *c = start(&cluster_placements[0]);
        struct fixture *f = &c->f;
        struct ring_request request;
        uint32_t q[2][2], status;

        (void)state;
        cluster_fill(f, 1);
        for (uint32_t k = 0; k < 2; k++) {
                request = fixture_request(f, 0, RING_OP_BROADCAST, RMX_INT32, 0, 1000, 0);
                q[0][k] = fixture_ring(f, 0, &request);
        }
        request = fixture_request(f, 1, RING_OP_ALL_GATHER, RMX_INT32, 0, 0, 0);
        q[1][0] = fixture_ring(f, 1, &request);
        assert_int_equal(fixture_wait(f, 1, q[1][0]), CLUSTER_OK); /* nothing passes, so nothing is noticed */
        request = fixture_request(f, 1, RING_OP_BROADCAST, RMX_INT32, 0, 1000, 0);
        q[1][1] = fixture_ring(f, 1, &request);
        status = fixture_wait(f, 1, q[1][1]);
        assert_int_equal(status, ring_status(RMX_E_MISMATCH, 0));
        assert_int_equal(comm_status(c->nodes[1].comm), status); /* the text is published with it */
        assert_non_null(strstr(c->nodes[1].comm->error_text, "whose call 2 is broadcast"));
        assert_int_equal(cluster_out(f, 1)[0], (int32_t)0xa5a5a5a5);
        cluster_abort(c, 0, status);
        cluster_deinit(c);
}

/* Ranks of one node are compared there, with both values, before anything is sent. */
static void local_mismatch(void **state) {
        struct cluster *c = start(&cluster_placements[1]);
        struct fixture *f = &c->f;
        uint32_t q[4];

        (void)state;
        for (uint32_t r = 1; r < 4; r++) {
                struct ring_request request =
                        fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, 10 + (r == 2), 0);

                q[r] = fixture_ring(f, r, &request);
        }
        for (uint32_t r = 1; r < 4; r++)
                assert_int_equal(fixture_wait(f, r, q[r]), ring_status_mismatch(RMX_E_MISMATCH, RING_DETAIL_COUNT, 2));
        assert_int_equal(comm_status(c->nodes[0].comm), 0); /* nobody has told it */
        cluster_deinit(c);
}

/* Missing ranks are those of this node. */
static void who_is_missing(void **state) {
        struct cluster *c = start(&cluster_placements[2]);
        struct fixture *f = &c->f;
        struct comm_wait wait = {0};
        uint32_t q[4];

        (void)state;
        for (uint32_t r = 0; r < 3; r++) { /* of 0 and 2 here, 1 and 3 there, all but 3 */
                struct ring_request request = fixture_request(f, r, RING_OP_BARRIER, RMX_INT32, 0, 0, 0);

                q[r] = fixture_ring(f, r, &request);
        }
        while (!cluster_oldest_wait(c->nodes[0].comm, &wait) || wait.missing)
                sched_yield();
        assert_int_equal(wait.operation, RING_OP_BARRIER);
        while (!cluster_oldest_wait(c->nodes[1].comm, &wait) || wait.missing != 1u << 3)
                sched_yield();
        {
                struct ring_request request = fixture_request(f, 3, RING_OP_BARRIER, RMX_INT32, 0, 0, 0);

                q[3] = fixture_ring(f, 3, &request);
        }
        cluster_wait(f, q, CLUSTER_OK);
        assert_false(cluster_oldest_wait(c->nodes[0].comm, &wait));
        cluster_deinit(c);
}

static void leave(struct cluster *c, uint32_t node, uint32_t rank, uint32_t last) {
        pthread_rwlock_wrlock(&c->nodes[node].executor.tables);
        comm_rank_leave(&c->nodes[node].comm->ranks[rank], last);
        pthread_rwlock_unlock(&c->nodes[node].executor.tables);
}

/* What a process says of its rank's last call is believed no further than it has rung. */
static void leave_with(uint32_t last) {
        struct cluster *c = start(&cluster_placements[1]);
        struct fixture *f = &c->f;
        struct ring_request request;
        uint32_t q[4];

        cluster_ring(f, RING_OP_BARRIER, 0, 0, q);
        cluster_wait(f, q, CLUSTER_OK);
        leave(c, 1, 1, last);
        assert_int_equal(comm_status(c->nodes[1].comm), 0);
        for (uint32_t r = 2; r < 4; r++) {
                request = fixture_request(f, r, RING_OP_BARRIER, RMX_INT32, 0, 0, 0);
                q[r] = fixture_ring(f, r, &request);
        }
        for (uint32_t r = 2; r < 4; r++)
                assert_int_equal(fixture_wait(f, r, q[r]), ring_status(RMX_E_PEER_LOST, 1));
        cluster_deinit(c);
}

static void leaves_with_a_lie(void **state) {
        (void)state;
        leave_with(1000000);
        leave_with(UINT32_C(1) << 31 | 2); /* further than one that comes after it can be */
}

static void leaving(void **state) {
        struct cluster *c = start(&cluster_placements[0]);
        struct ring_group_entry send = cluster_entry(RING_OP_SEND, 1, 1, 5, 0);
        struct fixture *f = &c->f;
        struct ring_request request;
        struct comm_wait wait = {0};
        uint64_t before_ns;
        uint32_t q[2];

        (void)state;
        cluster_ring(f, RING_OP_BARRIER, 0, 0, q);
        cluster_wait(f, q, CLUSTER_OK);
        leave(c, 0, 1, 1);
        assert_int_equal(comm_status(c->nodes[0].comm), 0);
        request = fixture_request(f, 0, RING_OP_BARRIER, RMX_INT32, 0, 0, 0);
        q[0] = fixture_ring(f, 0, &request);
        assert_int_equal(fixture_wait(f, 0, q[0]), ring_status(RMX_E_PEER_LOST, 1));
        cluster_deinit(c);

        /* A send that is open when its receiver leaves may still be answered; after a while it is not believed to. */
        c = start(&cluster_placements[0]);
        q[0] = fixture_ring_single(f, 0, &send);
        while (!cluster_oldest_wait(c->nodes[0].comm, &wait))
                sched_yield();
        assert_int_equal(wait.operation, RING_OP_SEND);
        assert_int_equal(wait.missing, 1u << 1); /* named, whatever it has done */
        before_ns = clock_now_ns();              /* it waits already, but not for one that has left */
        leave(c, 0, 1, 0);
        assert_int_equal(comm_status(c->nodes[0].comm), 0);
        assert_false(comm_nodes_deserted(c->nodes[0].comm, before_ns - 1));
        assert_true(comm_nodes_deserted(c->nodes[0].comm, clock_now_ns()));
        pthread_rwlock_wrlock(&c->nodes[0].executor.tables);
        comm_nodes_desert(c->nodes[0].comm, clock_now_ns());
        pthread_rwlock_unlock(&c->nodes[0].executor.tables);
        assert_int_equal(fixture_wait(f, 0, q[0]), ring_status(RMX_E_PEER_LOST, 1));
        cluster_deinit(c);

        /* One that is made afterwards has no hope. */
        c = start(&cluster_placements[0]);
        leave(c, 0, 1, 0);
        q[0] = fixture_ring_single(f, 0, &send);
        assert_int_equal(fixture_wait(f, 0, q[0]), ring_status(RMX_E_PEER_LOST, 1));
        cluster_deinit(c);
}

static void end_session(struct cluster *c, uint32_t node, uint32_t rank) {
        struct executor *executor = &c->nodes[node].executor;

        pthread_rwlock_wrlock(&executor->tables);
        session_detach(session_find(executor, rank + 1));
        pthread_rwlock_unlock(&executor->tables);
}

static uint32_t ring_one(struct fixture *f, uint32_t rank, uint32_t op, uint64_t count) {
        struct ring_request request = fixture_request(f, rank, op, RMX_INT32, 0, count, 0);

        return fixture_ring(f, rank, &request);
}

/* A program exits when its call has returned: others may still be at it, and the comm ends only then. Who is waited
 * for, or waits, ends it at once. */
static void exits(void **state) {
        struct cluster *c = start(&cluster_placements[0]);
        struct ring_group_entry receive = cluster_entry(RING_OP_RECV, 1, 1, 5, 0);
        struct fixture *f = &c->f;
        uint64_t before_ns = clock_now_ns();
        struct comm_wait wait;
        uint32_t q;

        (void)state;
        cluster_fill(f, 3);
        assert_int_equal(fixture_wait(f, 0, ring_one(f, 0, RING_OP_BROADCAST, 100)), CLUSTER_OK);
        end_session(c, 0, 0);
        assert_int_equal(comm_status(c->nodes[0].comm), 0);
        assert_false(comm_nodes_ended(c->nodes[0].comm, before_ns));
        assert_int_equal(fixture_wait(f, 1, ring_one(f, 1, RING_OP_BROADCAST, 100)), CLUSTER_OK);
        cluster_check(f, RING_OP_BROADCAST, 100, 0, 3);
        assert_true(comm_nodes_ended(c->nodes[0].comm, clock_now_ns()));
        pthread_rwlock_wrlock(&c->nodes[0].executor.tables);
        comm_nodes_end(c->nodes[0].comm, clock_now_ns());
        pthread_rwlock_unlock(&c->nodes[0].executor.tables);
        assert_int_equal(comm_status(c->nodes[0].comm), ring_status(RMX_E_PEER_LOST, 0));
        assert_false(comm_nodes_ended(c->nodes[0].comm, clock_now_ns()));
        cluster_deinit(c);

        /* It waits for somebody itself. */
        c = start(&cluster_placements[0]);
        (void)fixture_ring_single(f, 0, &receive);
        while (!cluster_oldest_wait(c->nodes[0].comm, &wait))
                sched_yield();
        end_session(c, 0, 0);
        assert_int_equal(comm_status(c->nodes[0].comm), ring_status(RMX_E_PEER_LOST, 0));
        cluster_deinit(c);

        /* Another rank of its node waits for it, in a collective or for what it should send; or calls afterwards. */
        for (uint32_t k = 0; k < 3; k++) {
                c = start(&cluster_placements[2]);
                receive.peer = 0;
                if (k < 2) {
                        q = k ? fixture_ring_single(f, 2, &receive) : ring_one(f, 2, RING_OP_BARRIER, 0);
                        while (!cluster_oldest_wait(c->nodes[0].comm, &wait))
                                sched_yield();
                }
                end_session(c, 0, 0);
                assert_int_equal(comm_status(c->nodes[0].comm), k < 2 ? ring_status(RMX_E_PEER_LOST, 0) : 0);
                if (k == 2)
                        q = ring_one(f, 2, RING_OP_BARRIER, 0);
                assert_int_equal(fixture_wait(f, 2, q), ring_status(RMX_E_PEER_LOST, 0));
                cluster_deinit(c);
        }
}

/* The executor of node 1 is killed with requests under way. Its successor answers what was final, and all else with
 * RMX_E_LOST; so does the other node when it is told. No wrong data anywhere. */
static void executor_dies(void **state) {
        (void)state;
        for (uint32_t k = 0; k < 20; k++) {
                struct cluster *c = &cluster;
                struct fixture *f = &c->f;
                uint32_t q[FIXTURE_RANKS_MAX], code[FIXTURE_RANKS_MAX], n = cluster_placements[1].n_ranks, s;

                cluster_init(c, n, cluster_placements[1].node, CLUSTER_BYTES);
                cluster_spawn(c, 1);
                cluster_attach(c, 0);
                cluster_carry(c);
                for (s = 0; s < k; s++) {
                        cluster_fill(f, s);
                        cluster_ring(f, RING_OP_ALL_REDUCE, 1000, 0, q);
                        cluster_wait(f, q, CLUSTER_OK);
                        cluster_check(f, RING_OP_ALL_REDUCE, 1000, 0, s);
                }
                cluster_fill(f, s);
                cluster_ring(f, RING_OP_ALL_REDUCE, 30000, 0, q);
                for (uint32_t spin = 0; spin < k * 200; spin++)
                        sched_yield();
                cluster_kill(c, 1);
                cluster_attach(c, 1); /* in its place */
                assert_int_equal(ring_status_code(comm_status(c->nodes[1].comm)), RMX_E_LOST);
                assert_false(c->nodes[1].comm->reported_error);
                cluster_abort(c, 0, comm_status(c->nodes[1].comm));
                for (uint32_t r = 0; r < n; r++) {
                        code[r] = ring_status_code(fixture_wait(f, r, q[r]));
                        assert_true(code[r] == RMX_OK || code[r] == RMX_E_LOST);
                        /* on one node all are told the same */
                        if (r > 1)
                                assert_int_equal(code[r], code[1]);
                }
                if (code[0] == RMX_OK && code[1] == RMX_OK)
                        cluster_check(f, RING_OP_ALL_REDUCE, 30000, 0, s);
                cluster_ring(f, RING_OP_BARRIER, 0, 0, q);
                cluster_wait(f, q, ring_status(RMX_E_LOST, -1));
                cluster_deinit(c);
        }
}

/* ---- attaching --------------------------------------------------------------------------------------------------- */
static void refused(struct cluster *c, const struct comm_parameters *p, const struct comm_member *members, int code,
                    const char *word) {
        struct executor *executor = &c->nodes[0].executor;
        struct comm *comm;
        char error[256] = "";
        uint32_t lost;
        int marks_fd;

        assert_int_equal(memfd_new("marks", marks_bytes(p->n_ranks), &marks_fd), 0);
        assert_int_equal(comm_attach(executor, p, members, marks_fd, &comm, &lost, error, sizeof(error)), code);
        close(marks_fd);
        if (!strstr(error, word))
                fail_msg("'%s' does not speak of %s", error, word);
        assert_null(comm_find(executor, p->id));
}

static void refusals(void **state) {
        static const struct plan_choice in_place[] = {{RING_OP_ALL_REDUCE, PLAN_ZERO_COPY, UINT64_MAX, 0}};
        struct cluster *c = &cluster;
        struct comm_member members[FIXTURE_RANKS_MAX];
        struct comm_parameters good, p;

        (void)state;
        cluster_init(c, 4, cluster_placements[2].node, CLUSTER_BYTES);
        cluster_attach(c, 0);
        pthread_rwlock_wrlock(&c->nodes[0].executor.tables);
        cluster_parameters(c, 0, &good, members);
        good.id = 99;

        p = good;
        p.choices = in_place;
        p.n_choices = 1;
        refused(c, &p, members, COMM_E_PLAN, "zero_copy");
        p = good;
        p.geometry.slots++;
        refused(c, &p, members, COMM_E_INVALID, "geometry");
        p = good;
        p.area_fd = c->f.ranks[0].buffer_fd;
        refused(c, &p, members, COMM_E_INVALID, "net area");
        p = good;
        p.node = 2;
        refused(c, &p, members, COMM_E_INVALID, "node");
        p = good;
        p.n_nodes = 3; /* of which one has no rank */
        refused(c, &p, members, COMM_E_INVALID, "node without ranks");
        p = good;
        members[1].node = 7;
        refused(c, &p, members, COMM_E_INVALID, "node");
        members[1].node = 1;
        members[1].session = members[0].session;
        refused(c, &p, members, COMM_E_INVALID, "session");
        members[1].session = NULL;
        atomic_store(&c->carrier.nodes[0].area->tail, 1);
        refused(c, &p, members, COMM_E_INVALID, "has been used");
        atomic_store(&c->carrier.nodes[0].area->tail, 0);
        pthread_rwlock_unlock(&c->nodes[0].executor.tables);
        cluster_deinit(c);
}

/* Of all plans for one node those are refused that touch another rank's memory. */
static void plans_in_place(void **state) {
        static const uint32_t ops[] = {RING_OP_ALL_REDUCE,     RING_OP_REDUCE,     RING_OP_BROADCAST,
                                       RING_OP_ALL_GATHER,     RING_OP_ALL_TO_ALL, RING_OP_ALL_TO_ALL_V,
                                       RING_OP_REDUCE_SCATTER, RING_OP_GATHER,     RING_OP_SCATTER,
                                       RING_OP_BARRIER,        RING_OP_SEND};
        struct cluster *c = start(&cluster_placements[4]);
        uint32_t n = cluster_placements[4].n_ranks, n_refused = 0, algorithm;

        (void)state;
        for (uint32_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++)
                for (uint32_t k = 0; (algorithm = plan_algorithm_at(ops[o], n, k)) != PLAN_ALGORITHM_NONE; k++) {
                        bool in_place = algorithm == PLAN_ZERO_COPY && ops[o] != RING_OP_SEND;
                        char error[256] = "";
                        struct plan plan;

                        assert_int_equal(plan_build(ops[o], algorithm, n, &plan), PLAN_OK);
                        for (uint32_t i = 0; i < c->n_nodes; i++)
                                assert_int_equal(comm_nodes_check_plan(c->nodes[i].comm, &plan, error, sizeof(error)),
                                                 in_place ? COMM_E_PLAN : 0);
                        assert_true(!in_place || strstr(error, "on another node"));
                        n_refused += in_place;
                }
        assert_true(n_refused > 5);
        cluster_deinit(c);
}

/* Plans are kept by how the ranks lie on nodes. */
static void plans_by_nodes(void **state) {
        static const uint8_t node[3][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 2}};
        struct plans_shape shape = {.operation = RING_OP_ALL_REDUCE,
                                    .algorithm = PLAN_HIERARCHICAL,
                                    .n_ranks = 4,
                                    .geometry = {.part_bytes = 4096, .slots = 4}};
        const struct plan *plan[3] = {NULL}, *again;
        struct plan_verdict verdict;
        struct plans plans;

        (void)state;
        plans_init(&plans);
        for (uint32_t round = 0; round < 2; round++)
                for (uint32_t i = 0; i < 3; i++) {
                        struct plan_nodes nodes;

                        assert_int_equal(plan_nodes_init(&nodes, 4, node[i]), PLAN_OK);
                        shape.nodes = &nodes;
                        assert_int_equal(plans_get(&plans, &shape, &again, &verdict), PLANS_OK);
                        assert_ptr_not_equal(again->nodes, &nodes);
                        assert_true(plan_nodes_equal(again->nodes, &nodes, 4));
                        if (round == 0)
                                plan[i] = again;
                        assert_ptr_equal(again, plan[i]);
                }
        shape.nodes = NULL;
        assert_int_equal(plans_get(&plans, &shape, &again, &verdict), PLANS_E_REFUSED);
        shape.algorithm = PLAN_RING;
        assert_int_equal(plans_get(&plans, &shape, &again, &verdict), PLANS_OK);
        assert_int_equal(plans.n_entries, 4);
        plans_deinit(&plans);
}

/* Attaching through the message that railmuxd sends. */
static void by_message(void **state) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommAttach attach = RAILMUX__EXECUTOR__COMM_ATTACH__INIT;
        Railmux__Executor__Member member[4], *members[4] = {&member[0], &member[1], &member[2], &member[3]};
        Railmux__Executor__Choice choice = RAILMUX__EXECUTOR__CHOICE__INIT, *choices[] = {&choice};
        struct cluster *c = &cluster;
        struct dispatch_result result;
        struct executor *executor = &c->nodes[1].executor;
        struct comm *comm;
        int fds[4], marks_fd;

        (void)state;
        cluster_init(c, 4, cluster_placements[2].node, CLUSTER_BYTES);
        cluster_attach(c, 1);
        assert_int_equal(memfd_new("marks", marks_bytes(4), &marks_fd), 0);
        for (uint32_t r = 0; r < 4; r++) {
                railmux__executor__member__init(&member[r]);
                member[r].session = c->node[r] == 1 ? r + 1 : 0;
                member[r].handle = 100 + r;
                member[r].gpu = r;
                member[r].node = c->node[r];
        }
        choice.operation = RING_OP_BARRIER;
        choice.algorithm = PLAN_DIRECT;
        choice.max_bytes = UINT64_MAX;
        choice.widening = 4;
        attach.comm = 44;
        attach.n_ranks = 4;
        attach.n_members = 4;
        attach.members = members;
        attach.n_choices = 1;
        attach.choices = choices;
        attach.part_bytes = c->geometry.part_bytes;
        attach.slots = c->geometry.slots;
        attach.ring_depth = FIXTURE_DEPTH;
        attach.failed_rank = -1;
        attach.n_nodes = 2;
        attach.node = 1;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH;
        message.comm_attach = &attach;
        fds[0] = marks_fd;
        fds[1] = c->carrier.nodes[1].fd;
        fds[2] = c->doorbell_fd;
        fds[3] = c->nodes[1].wake_fd;

        dispatch_call(executor, &message, fds, 1, &result);
        assert_int_equal(result.code, RMX_E_INVALID);
        assert_non_null(strstr(result.message, "4 file descriptors"));
        dispatch_call(executor, &message, fds, 4, &result);
        assert_int_equal(result.code, RMX_OK);
        comm = comm_find(executor, 44);
        assert_non_null(comm);
        assert_int_equal(comm->n_here, 2);
        assert_int_equal(comm->choices[0].widening, 4);
        assert_int_equal(comm_status(comm), 0); /* ranks elsewhere are neither lost nor left */
        for (uint32_t r = 0; r < 4; r++) {
                assert_int_equal(comm->ranks[r].here, c->node[r] == 1);
                assert_false(comm->ranks[r].left);
        }
        dispatch_call(executor, &message, fds, 4, &result); /* idempotent */
        assert_int_equal(result.code, RMX_OK);
        close(marks_fd);
        cluster_deinit(c);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(mismatch),       cmocka_unit_test(one_behind),     cmocka_unit_test(leaves_with_a_lie),
                cmocka_unit_test(local_mismatch), cmocka_unit_test(who_is_missing), cmocka_unit_test(exits),
                cmocka_unit_test(leaving),        cmocka_unit_test(executor_dies),  cmocka_unit_test(refusals),
                cmocka_unit_test(plans_in_place), cmocka_unit_test(plans_by_nodes), cmocka_unit_test(by_message),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
