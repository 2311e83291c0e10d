/* SPDX-License-Identifier: MIT */
/* Communicators over several nodes are found by their keys, however many there are, and without a look at any other. */
#include "tests/cmocka_all.h"

#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/manager.h"
#include <stdlib.h>

#define COMMS 3000u /* the table grows several times */

/* That the manager knows of no communicators makes sure that nobody goes through them. */
static struct manager manager;
static struct cluster cluster = {.manager = &manager};

static struct comm *new_comm(uint64_t number) {
        struct comm *comm = calloc(1, sizeof(*comm));

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

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_same_key),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
