/* SPDX-License-Identifier: MIT */
/* Ranks that meet by an id which somebody has failed with before: what is late, out of date, or of a node that was
 * started anew. */
#include "tests/daemon/comm_nodes_fixture.h"

#include "plan/cost.h"
#include "railmux/railmux.h"
#include <stdio.h>
#include <string.h>

static void give_up(struct both *b, uint32_t client, uint64_t call) {
        assert_int_equal(take_ack(b->clients[client], send_join_cancel(b->clients[client], b->id, client), NULL, 0), 0);
        assert_int_equal(take_split(b, client, call).code, RMX_E_ABORTED);
}

/* Of a part that has failed something arrives when others have begun anew: it is not taken for a part of that. */
static void test_ghost(void **unused) {
        uint64_t calls[2];
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        calls[0] = send_comm_create(b.clients[0], b.id, RANKS, 0);
        settle(&b);
        say_join(&b, 2, 7);
        settle(&b);
        give_up(&b, 0, calls[0]);
        assert_int_equal(take(&b, SAYS(JOIN_FAILED))->join_failed->attempt, 7);
        for (uint32_t i = 0; i < 2; i++) /* the first one knows, and so all begins anew */
                calls[i] = send_comm_create(b.clients[i], b.id, RANKS, i);
        settle(&b);
        say_join(&b, 3, 7); /* had been on its way */
        settle(&b);
        say_join(&b, 2, 8);
        say_join(&b, 3, 8);
        assert_int_equal(take(&b, SAYS(ASSIGN))->assign->attempt, 8);
        assert_false(has_heard(&b.n, SAYS(JOIN_FAILED)));
        finish(&b);
}

/* The neighbour is lost while ranks gather. If it is started anew its ranks know nothing of that, and are told. If it
 * was the connection alone, they know. */
static void test_restarted(void **unused) {
        for (uint64_t boot = 1; boot <= 2; boot++) {
                struct both b;
                uint64_t call;

                (void)unused;
                begin(&b, 0xee, 1);
                call = send_comm_create(b.clients[0], b.id, RANKS, 0);
                settle(&b);
                say_join(&b, 2, 7);
                settle(&b);
                neighbour_stop(&b);
                assert_int_equal(take_comm(b.clients[0], call).code, RMX_E_PEER_LOST);
                neighbour_start(&b, 0xee, boot);
                say_join(&b, 2, 9);
                settle(&b);
                assert_int_equal(has_heard(&b.n, SAYS(JOIN_FAILED)), boot == 2);
                if (boot == 2)
                        assert_int_equal(take(&b, SAYS(JOIN_FAILED))->join_failed->code, RMX_E_PEER_LOST);
                say_join(&b, 2, 10); /* now it knows, too */
                settle(&b);
                if (boot == 2)
                        assert_false(has_heard(&b.n, SAYS(JOIN_FAILED)));
                finish(&b);
        }
}

/* Late, and with another number of ranks than those who have failed: nobody would come to another gathering. */
static void test_late_misfit(void **unused) {
        struct both b;
        uint64_t call;

        (void)unused;
        begin(&b, 0xee, 1);
        call = send_comm_create(b.clients[0], b.id, 2, 0);
        give_up(&b, 0, call);
        assert_int_equal(take_comm(b.clients[1], send_comm_create(b.clients[1], b.id, 3, 1)).code, RMX_E_ABORTED);
        /* All have been told: whoever comes now begins anew. */
        call = send_comm_create(b.clients[0], b.id, 2, 0);
        assert_int_equal(take_comm(b.clients[1], send_comm_create(b.clients[1], b.id, 2, 1)).code, 0);
        assert_int_equal(take_comm(b.clients[0], call).code, 0);
        finish(&b);
}

/* Whoever puts the parts together decides on staging for long ways. */
static void test_staging(void **unused) {
        const Railmux__Peer__Assign *assign;
        struct plan_geometry geometry;
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        for (uint32_t i = 0; i < 2; i++)
                (void)send_comm_create(b.clients[i], b.id, RANKS, i);
        settle(&b);
        say_join(&b, 2, 7);
        say_join(&b, 3, 7);
        plan_geometry_choose_nodes(RANKS, &geometry);
        assign = take(&b, SAYS(ASSIGN))->assign;
        assert_int_equal(assign->slots, geometry.slots);
        assert_int_equal(assign->part_bytes, geometry.part_bytes);
        finish(&b);
}

/* All ranks are this node's. */
static void say_assign_here(struct both *b, uint64_t attempt, const struct plan_geometry *geometry) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Assign body = RAILMUX__PEER__ASSIGN__INIT;
        Railmux__Peer__Member members[RANKS], *member_list[RANKS];
        Railmux__Peer__Node node = RAILMUX__PEER__NODE__INIT, *nodes[] = {&node};
        Railmux__Peer__Choice choice = RAILMUX__PEER__CHOICE__INIT, *choices[] = {&choice};

        for (uint32_t r = 0; r < RANKS; r++) {
                railmux__peer__member__init(&members[r]);
                members[r].rank = r;
                member_list[r] = &members[r];
        }
        node.node.len = PEER_NODE_BYTES;
        node.node.data = (uint8_t *)peer_node_id(b->n.peer);
        node.address = (char *)peer_address(b->n.peer);
        choice.operation = 1;
        choice.max_bytes = UINT64_MAX;
        body.key = KEY;
        body.comm_id.data = b->id;
        body.comm_id.len = COMM_ID_BYTES;
        body.name = "";
        body.tenant = "default";
        body.n_ranks = RANKS;
        body.n_members = RANKS;
        body.members = member_list;
        body.n_nodes = 1;
        body.nodes = nodes;
        body.n_choices = 1;
        body.choices = choices;
        body.part_bytes = geometry->part_bytes;
        body.slots = geometry->slots;
        body.attempt = attempt;
        message.body_case = SAYS(ASSIGN);
        message.assign = &body;
        say(b, &message);
}

/* Ranks that are all here, with the neighbour's id: there are no long ways, and nobody has been charged for them. */
static void test_staging_of_one_node(void **unused) {
        (void)unused;
        for (unsigned int round = 0; round < 2; round++) {
                struct plan_geometry geometry;
                uint64_t calls[RANKS], attempt;
                struct both b;

                begin(&b, 0x11, 1);
                memset(b.id, 0, sizeof(b.id));
                b.id[0] = COMM_ID_VERSION;
                memcpy(b.id + 8, peers_node(b.n.peers), PEER_NODE_BYTES);
                snprintf((char *)b.id + 56, COMM_ID_ADDRESS_BYTES, "%s", peers_address(b.n.peers));
                for (uint32_t r = 0; r < RANKS; r++)
                        calls[r] = send_comm_create(b.clients[r / 2], b.id, RANKS, r);
                attempt = take(&b, SAYS(JOIN))->join->attempt;
                for (uint32_t r = 1; r < RANKS; r++)
                        (void)take(&b, SAYS(JOIN));
                if (round == 0)
                        plan_geometry_choose_nodes(RANKS, &geometry);
                else
                        plan_geometry_choose(RANKS, &geometry);
                say_assign_here(&b, attempt, &geometry);
                if (round == 1) {
                        (void)take(&b, SAYS(READY));
                        finish(&b);
                        continue;
                }
                assert_non_null(strstr(take(&b, SAYS(JOIN_FAILED))->join_failed->text, "more than its ranks"));
                for (uint32_t r = 0; r < RANKS; r++)
                        assert_int_equal(take_split(&b, r / 2, calls[r]).code, RMX_E_INTERNAL);
                finish(&b);
        }
}

/* Nothing could be carried between the two: that is said when the communicator is made, to all. */
static void test_no_rail_in_common(void **unused) {
        const Railmux__Peer__JoinFailed *failed;
        uint64_t calls[2];
        struct both b;

        (void)unused;
        both_rails = "other0=127.0.0.1 other1=127.0.0.1";
        begin(&b, 0xee, 1); /* which has tcp0 */
        for (uint32_t i = 0; i < 2; i++)
                calls[i] = send_comm_create(b.clients[i], b.id, RANKS, i);
        settle(&b);
        say_join(&b, 2, 7);
        say_join(&b, 3, 7);
        (void)take(&b, SAYS(ASSIGN));
        assert_split_fails(&b, calls, RMX_E_UNSUPPORTED, "have no rail in common; see peer.rails");
        failed = take(&b, SAYS(JOIN_FAILED))->join_failed;
        assert_int_equal(failed->code, RMX_E_UNSUPPORTED);
        assert_non_null(strstr(failed->text, "have no rail in common; see peer.rails"));
        finish(&b);
        both_rails = NULL;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ghost),
                cmocka_unit_test(test_restarted),
                cmocka_unit_test(test_late_misfit),
                cmocka_unit_test(test_staging),
                cmocka_unit_test(test_staging_of_one_node),
                cmocka_unit_test(test_no_rail_in_common),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
