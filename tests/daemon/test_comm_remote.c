/* SPDX-License-Identifier: MIT */
/* Communicators over several nodes are found by their keys, however many there are, and without a look at any other;
 * and go when nobody is left whom they are of use to. */
#include "tests/cmocka_all.h"

#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_heard.h"
#include "daemon/comm_remote.h"
#include "daemon/manager.h"
#include "daemon/peer.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include <event2/event.h>
#include <stdlib.h>

#define COMMS 3000u /* the table grows several times */
#define RANKS 2u

/* That the manager knows of no communicators makes sure that nobody goes through them. */
static struct manager manager;
static struct cluster cluster = {.manager = &manager};

static struct comm *new_comm(uint64_t number) {
        struct comm *comm = calloc(1, sizeof(*comm) + RANKS * sizeof(comm->members[0]));

        assert_non_null(comm);
        comm->manager = &manager;
        comm->number = number;
        comm->n_ranks = 1;
        return comm;
}

/* Of a split; all have their rank on the same node. */
static void assign(struct comm *comm, uint64_t key) {
        struct comm_remote parent_remote = {.cluster = &cluster, .n_nodes = 2};
        struct comm parent = {.manager = &manager, .remote = &parent_remote};
        const uint32_t rank = 0;

        assert_int_equal(comm_remote_inherit(comm, &parent, &rank, key), 0);
}

static struct comm *free_comm(struct comm *comm) {
        comm_remote_free(comm);
        assert_null(comm->remote);
        free(comm);
        return NULL;
}

/* Spread over all bits, and never 0. */
static uint64_t key_of(uint32_t i) {
        return (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void test_many(void **unused) {
        struct comm **comms = calloc(COMMS, sizeof(*comms));

        (void)unused;
        assert_non_null(comms);
        assert_null(comm_remote_of_key(&cluster, key_of(0)));
        for (uint32_t i = 0; i < COMMS; i++) {
                comms[i] = new_comm(i + 1);
                assert_null(comm_remote_of_key(&cluster, key_of(i)));
                assign(comms[i], key_of(i));
                assert_ptr_equal(comm_remote_of_key(&cluster, key_of(i)), comms[i]);
        }
        for (uint32_t i = 0; i < COMMS; i += 2)
                comms[i] = free_comm(comms[i]);
        for (uint32_t i = 0; i < COMMS; i++)
                assert_ptr_equal(comm_remote_of_key(&cluster, key_of(i)), comms[i]);
        assert_null(comm_remote_of_key(&cluster, 0));
        for (uint32_t i = 1; i < COMMS; i += 2)
                comms[i] = free_comm(comms[i]);
        assert_null(cluster.comms_by_key);
        free(comms);
}

/* Several with one key: the oldest is meant while it is there, in whichever order they were assigned, and also where
 * the table has been made anew in between. */
static void test_same_key(void **unused) {
        static const uint32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        struct comm *others[100];

        (void)unused;
        for (size_t k = 0; k < sizeof(orders) / sizeof(orders[0]); k++) {
                struct comm *same[3];

                for (uint32_t i = 0; i < 3; i++)
                        same[i] = new_comm(i + 1);
                for (uint32_t i = 0; i < 3; i++)
                        assign(same[orders[k][i]], 7);
                for (uint32_t i = 0; i < 100; i++) {
                        others[i] = new_comm(i + 4);
                        assign(others[i], key_of(i));
                }
                assert_ptr_equal(comm_remote_of_key(&cluster, 7), same[0]);
                same[1] = free_comm(same[1]);
                assert_ptr_equal(comm_remote_of_key(&cluster, 7), same[0]);
                same[0] = free_comm(same[0]);
                assert_ptr_equal(comm_remote_of_key(&cluster, 7), same[2]);
                free_comm(same[2]);
                assert_null(comm_remote_of_key(&cluster, 7));
                for (uint32_t i = 0; i < 100; i++) {
                        assert_ptr_equal(comm_remote_of_key(&cluster, key_of(i)), others[i]);
                        free_comm(others[i]);
                }
        }
}

struct far {
        struct peers *peers;
        struct peer *peer, *other;
        struct event_base *base;
};

static void far_start(struct far *far) {
        struct peers_options options = {.base = event_base_new(), .cluster = "test", .listen = "127.0.0.1:0"};
        char error[PEER_TEXT_MAX];

        far->base = options.base;
        assert_int_equal(peers_new(&options, error, &far->peers), 0);
        assert_int_equal(peers_dial(far->peers, "127.0.0.1:9", &far->peer), 0);
        assert_int_equal(peers_dial(far->peers, "127.0.0.2:9", &far->other), 0);
}

static void far_end(struct far *far) {
        peers_free(far->peers);
        event_base_free(far->base);
}

/* With a rank here and one at the peer. Its number is its key. */
static struct comm *new_far_comm(const struct far *far, uint64_t number) {
        static struct tenant tenant = {.name = "t"};
        struct comm_remote parent_remote = {.cluster = &cluster, .node = {0, 1}, .n_nodes = 2};
        struct comm parent = {.manager = &manager, .remote = &parent_remote}, *comm = new_comm(number);
        const uint32_t ranks[RANKS] = {0, 1};

        parent_remote.nodes[1].peer = far->peer;
        comm->tenant = &tenant;
        comm->state = COMM_READY;
        comm->n_ranks = RANKS;
        comm->marks_fd = -1;
        comm->state_slot = STATE_SLOT_NONE;
        for (uint32_t r = 0; r < RANKS; r++)
                comm->members[r].state_slot = STATE_SLOT_NONE;
        HASH_ADD(hh, manager.comms, number, sizeof(comm->number), comm);
        assert_int_equal(comm_remote_inherit(comm, &parent, ranks, number), 0);
        return comm;
}

/* All ranks of this node have left, and what they had sent does not arrive, for their tenant's rail does not reach the
 * other node. Nobody will say any more of it. */
static void test_cut_off(void **unused) {
        struct comm *comm;
        struct far far;

        (void)unused;
        far_start(&far);
        comm = new_far_comm(&far, 7);
        comm->remote->ended = true;
        assert_false(comm_heard_cut_off(&cluster, far.other, 7));
        assert_false(comm_heard_cut_off(&cluster, far.peer, 8));
        assert_ptr_equal(comm_remote_of_key(&cluster, 7), comm);
        assert_true(comm_heard_cut_off(&cluster, far.peer, 7));
        assert_null(comm_remote_of_key(&cluster, 7));
        assert_null(manager.comms);
        assert_false(comm_heard_cut_off(&cluster, far.peer, 7));
        far_end(&far);
}

/* Nobody is left where the rail does not reach, so those elsewhere go on without what was for there, as credits;
 * whether somebody is left here or not. */
static void test_cut_off_from_ended(void **unused) {
        struct comm *comm;
        struct far far;

        (void)unused;
        far_start(&far);
        comm = new_far_comm(&far, 7);
        comm->remote->nodes[1].ended = true;
        for (unsigned int i = 0; i < 2; i++) {
                comm->remote->ended = i == 1;
                assert_false(comm_heard_cut_off(&cluster, far.peer, 7));
                assert_ptr_equal(comm_remote_of_key(&cluster, 7), comm);
                assert_false(comm->aborting || comm->code || comm->remote->over);
        }
        comm->remote->nodes[1].ended = false;
        assert_true(comm_heard_cut_off(&cluster, far.peer, 7));
        assert_null(manager.comms);
        far_end(&far);
}

/* Of one that is only being made nothing can be lost, while the other node is there. */
static void test_messages_lost(void **unused) {
        struct comm *comm;
        struct far far;

        (void)unused;
        far_start(&far);
        comm = new_far_comm(&far, 7);
        comm->state = COMM_JOINING;
        comm_heard_messages_lost(&cluster, far.peer, "for the test");
        assert_ptr_equal(manager.comms, comm);
        assert_false(comm->aborting || comm->code || comm->remote->over);
        /* One that executors and the fabric have may lack something. */
        comm->state = COMM_ATTACHING;
        comm_heard_messages_lost(&cluster, far.other, "for the test");
        assert_ptr_equal(manager.comms, comm);
        comm_heard_messages_lost(&cluster, far.peer, "for the test");
        assert_null(manager.comms);
        /* A node that is lost itself does not join. */
        comm = new_far_comm(&far, 7);
        comm->state = COMM_JOINING;
        comm_heard_lost(&cluster, far.peer, "for the test");
        assert_null(manager.comms);
        far_end(&far);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_many),          cmocka_unit_test(test_same_key),
                cmocka_unit_test(test_cut_off),       cmocka_unit_test(test_cut_off_from_ended),
                cmocka_unit_test(test_messages_lost),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
