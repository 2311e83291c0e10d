/* SPDX-License-Identifier: MIT */
/* A communicator over nodes that is not made: every rank of it is told, whoever was away or at a limit just then. */
#include "tests/daemon/comm_nodes_fixture.h"

#include "railmux/railmux.h"
#include "util/clock.h"
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* As a node would make it that listens there; the n-th of them. */
static void make_id(uint8_t id[COMM_ID_BYTES], const uint8_t node[PEER_NODE_BYTES], const char *address, uint32_t n) {
        memset(id, 0, COMM_ID_BYTES);
        id[0] = COMM_ID_VERSION;
        memcpy(id + 8, node, PEER_NODE_BYTES);
        memcpy(id + 24, &n, sizeof(n));
        snprintf((char *)id + 56, COMM_ID_ADDRESS_BYTES, "%s", address);
}

static void neighbours_id(const struct both *b, uint8_t id[COMM_ID_BYTES]) {
        make_id(id, peers_node(b->n.peers), peers_address(b->n.peers), 0);
}

static void say_failed(struct both *b, const uint8_t *id, uint32_t rank, uint64_t attempt) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__JoinFailed body = RAILMUX__PEER__JOIN_FAILED__INIT;

        body.comm_id.data = (uint8_t *)id;
        body.comm_id.len = COMM_ID_BYTES;
        body.rank = rank;
        body.code = RMX_E_PEER_LOST;
        body.text = "it went";
        body.attempt = attempt;
        message.body_case = SAYS(JOIN_FAILED);
        message.join_failed = &body;
        say(b, &message);
}

/* A rank, of many ranks that never come. */
static void say_rank(struct neighbour *n, const uint8_t *id, const char *tenant, uint64_t attempt) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Join join = RAILMUX__PEER__JOIN__INIT;

        join.comm_id.data = (uint8_t *)id;
        join.comm_id.len = COMM_ID_BYTES;
        join.tenant = (char *)tenant;
        join.rank = (uint32_t)attempt;
        join.n_ranks = 64;
        join.attempt = attempt;
        message.body_case = SAYS(JOIN);
        message.join = &join;
        say_of(n, &message);
}

static void ask_id(struct both *b, const char *tenant, uint64_t number) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__IdAsk ask = RAILMUX__PEER__ID_ASK__INIT;

        ask.key = ~KEY;
        ask.number = number;
        ask.tenant = (char *)tenant;
        message.body_case = SAYS(ID_ASK);
        message.id_ask = &ask;
        say(b, &message);
}

/* Ids that railmuxd makes. It makes only so many in a second, and the others are asked for when that has passed. */
#define IDS 1024u
static void ask_ids(struct both *b, const char *tenant, uint32_t n, uint8_t (*ret_ids)[COMM_ID_BYTES]) {
        static uint64_t before;
        bool made[IDS] = {false};
        uint32_t n_made = 0;

        assert_true(n <= IDS);
        while (n_made < n) {
                const uint64_t end_ns = clock_now_ns() + UINT64_C(1000000000);
                uint32_t n_asked = n - n_made;

                for (uint32_t i = 0; i < n; i++)
                        if (!made[i])
                                ask_id(b, tenant, before + i);
                while (n_asked > 0) {
                        const Railmux__Peer__IdTold *told = take(b, SAYS(ID_TOLD))->id_told;

                        if (told->key != ~KEY || told->number < before)
                                continue; /* of settle() */
                        n_asked--;
                        if (told->code == RMX_E_LIMIT)
                                continue;
                        assert_int_equal(told->code, 0);
                        assert_int_equal(told->comm_id.len, COMM_ID_BYTES);
                        memcpy(ret_ids[told->number - before], told->comm_id.data, COMM_ID_BYTES);
                        made[told->number - before] = true;
                        n_made++;
                }
                both_wait(b, n_made == n || clock_now_ns() > end_ns);
        }
        before += n;
}

/* So many have failed of a tenant. */
static void fail_many(struct both *b, const char *tenant, uint32_t n) {
        static uint8_t ids[IDS][COMM_ID_BYTES];

        ask_ids(b, tenant, n, ids);
        for (uint32_t i = 0; i < n; i++) {
                say_rank(&b->n, ids[i], tenant, 1);
                say_failed(b, ids[i], 1, 1);
        }
        settle(b);
}

/* A limit refuses the first rank of a node: whoever gathers it hears of it, and so do the others. */
static void test_refused(void **unused) {
        (void)unused;
        for (unsigned int here = 0; here < 2; here++) {
                const Railmux__Peer__JoinFailed *failed;
                uint8_t id[COMM_ID_BYTES];
                uint32_t handle;
                uint64_t attempt;
                struct both b;

                both_more = "limits: {comms: 1}\n";
                begin(&b, 0xee, 1);
                make_comm(b.clients, 1, &handle);
                if (here) { /* railmuxd gathers it */
                        say_join(&b, 2, 7);
                        settle(&b);
                        memcpy(id, b.id, sizeof(id));
                        attempt = 7;
                } else {
                        neighbours_id(&b, id);
                        attempt = 0;
                }
                assert_int_equal(take_comm(b.clients[1], send_comm_create(b.clients[1], id, RANKS, 1)).code,
                                 RMX_E_LIMIT);
                if (!here) {
                        const Railmux__Peer__Join *join = take(&b, SAYS(JOIN))->join;

                        assert_int_equal(join->rank, 1);
                        attempt = join->attempt;
                }
                failed = take(&b, SAYS(JOIN_FAILED))->join_failed;
                assert_int_equal(failed->code, RMX_E_LIMIT);
                assert_int_equal(failed->attempt, attempt);
                assert_memory_equal(failed->comm_id.data, id, COMM_ID_BYTES);
                finish(&b);
        }
        both_more = NULL;
}

/* The daemon that gathers it is lost. The one that comes then may be another, whose ranks would wait. */
static void test_root_lost(void **unused) {
        for (uint64_t boot = 1; boot <= 2; boot++) {
                const Railmux__Peer__JoinFailed *failed;
                uint8_t id[COMM_ID_BYTES];
                const Railmux__Peer__Join *join;
                uint64_t call, attempt;
                struct both b;

                (void)unused;
                begin(&b, 0x11, 1);
                neighbours_id(&b, id);
                call = send_comm_create(b.clients[1], id, RANKS, 2);
                attempt = take(&b, SAYS(JOIN))->join->attempt;
                neighbour_stop(&b);
                assert_int_equal(take_comm(b.clients[1], call).code, RMX_E_PEER_LOST);
                neighbour_start(&b, 0x11, boot);
                join = take(&b, SAYS(JOIN))->join; /* or it would not listen */
                assert_int_equal(join->attempt, attempt);
                assert_int_equal(join->rank, 2);
                failed = take(&b, SAYS(JOIN_FAILED))->join_failed;
                assert_int_equal(failed->code, RMX_E_PEER_LOST);
                assert_int_equal(failed->attempt, attempt);
                settle(&b);
                assert_false(has_heard(&b.n, SAYS(JOIN)) || has_heard(&b.n, SAYS(JOIN_FAILED)));
                finish(&b);
        }
}

/* The other way round: what railmuxd hears when it is the one that came, before its own ranks are back, or after. */
static void test_root_new(void **unused) {
        for (unsigned int back = 0; back < 2; back++) {
                struct both b;
                uint64_t call;

                (void)unused;
                begin(&b, 0xee, 1);
                call = back ? send_comm_create(b.clients[0], b.id, RANKS, 0) : 0;
                settle(&b);
                say_join(&b, 2, 7);
                say_failed(&b, b.id, 2, 7);
                settle(&b);
                if (!back)
                        call = send_comm_create(b.clients[0], b.id, RANKS, 0);
                both_wait(&b, client_find(b.clients[0], call));
                assert_int_equal(take_comm(b.clients[0], call).code, RMX_E_PEER_LOST);
                /* Both know, and so it can be made. */
                call = send_comm_create(b.clients[0], b.id, RANKS, 0);
                (void)take_ack(b.clients[0], send_buffer_destroy(b.clients[0], 77), NULL, 0); /* it has been heard */
                (void)send_comm_create(b.clients[1], b.id, RANKS, 1);
                settle(&b);
                say_join(&b, 2, 8);
                say_join(&b, 3, 8);
                assert_int_equal(take(&b, SAYS(ASSIGN))->assign->attempt, 8);
                finish(&b);
        }
}

/* Somewhere where nobody answers. */
static int deaf_open(char address[COMM_ID_ADDRESS_BYTES]) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t size = sizeof(in);

        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
        assert_int_equal(listen(fd, 8), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &size), 0);
        snprintf(address, COMM_ID_ADDRESS_BYTES, "127.0.0.1:%u", ntohs(in.sin_port));
        return fd;
}

/* A tenant may wait for so many nodes that nobody knows, with any number of communicators; those of nodes that are
 * known, and of this one, are not concerned. */
static void test_unreached(void **unused) {
        uint8_t node[PEER_NODE_BYTES], id[COMM_ID_BYTES];
        char address[COMM_ID_ADDRESS_BYTES];
        struct comm_answer answer;
        int deaf[17];
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        memset(node, 0x55, sizeof(node));
        for (uint32_t i = 0; i < 16; i++) {
                deaf[i] = deaf_open(address);
                for (uint32_t n = 0; n < 3; n++) {
                        make_id(id, node, address, n);
                        (void)send_comm_create(b.clients[0], id, RANKS, 0);
                }
        }
        deaf[16] = deaf_open(address);
        make_id(id, node, address, 0);
        answer = take_comm(b.clients[0], send_comm_create(b.clients[0], id, RANKS, 0));
        assert_int_equal(answer.code, RMX_E_LIMIT);
        make_id(id, node, "", 0);
        assert_int_equal(take_comm(b.clients[0], send_comm_create(b.clients[0], id, RANKS, 0)).code, RMX_E_INVALID);
        neighbours_id(&b, id);
        (void)send_comm_create(b.clients[0], id, RANKS, 0);
        (void)take(&b, SAYS(JOIN));
        for (uint32_t i = 0; i < 2; i++) {
                (void)send_comm_create(b.clients[i], b.id, RANKS, i);
                say_join(&b, 2 + i, 7);
        }
        (void)take(&b, SAYS(ASSIGN));
        for (uint32_t i = 0; i < 17; i++)
                close(deaf[i]);
        finish(&b);
}

/* What is kept for one tenant's late ranks does not go for another tenant's failures. */
static void test_late(void **unused) {
        uint8_t late[1][COMM_ID_BYTES];
        const Railmux__Peer__JoinFailed *failed;
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        ask_ids(&b, "one", 1, late);
        say_rank(&b.n, late[0], "one", 1);
        say_failed(&b, late[0], 1, 1);
        fail_many(&b, "two", 300);
        third_start(&b, 0xdd, 1);
        say_rank(&b.third, late[0], "one", 5);
        failed = take_of(&b, &b.third, SAYS(JOIN_FAILED))->join_failed;
        assert_int_equal(failed->attempt, 5);
        assert_int_equal(failed->code, RMX_E_PEER_LOST);
        /* Its own do, the oldest ones first. */
        fail_many(&b, "one", 255);
        third_stop(&b);
        third_start(&b, 0xdd, 2);
        say_rank(&b.third, late[0], "one", 6);
        assert_int_equal(take_of(&b, &b.third, SAYS(JOIN_FAILED))->join_failed->attempt, 6);
        fail_many(&b, "one", 1);
        third_stop(&b);
        third_start(&b, 0xdd, 3);
        say_rank(&b.third, late[0], "one", 7);
        settle_of(&b, &b.third);
        assert_false(has_heard(&b.third, SAYS(JOIN_FAILED))); /* nobody knows of it, and it begins anew */
        finish(&b);
}

/* A tenant's gatherings leave room for others on its node, and one node's for those of others. Where there is no room
 * all ranks hear of it, those here and late ones too. */
static void test_crowd(void **unused) {
        static uint8_t ids[2][IDS][COMM_ID_BYTES];
        const Railmux__Peer__JoinFailed *failed;
        uint8_t more[2][COMM_ID_BYTES];
        uint64_t call;
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        ask_ids(&b, "one", IDS, ids[0]);
        ask_ids(&b, "two", IDS - 1, ids[1]);
        for (uint32_t i = 0; i < IDS; i++)
                say_rank(&b.n, ids[0][i], "one", 1);
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(JOIN_FAILED)));
        ask_ids(&b, "one", 1, more);
        say_rank(&b.n, more[0], "one", 1);
        failed = take(&b, SAYS(JOIN_FAILED))->join_failed;
        assert_int_equal(failed->code, RMX_E_LIMIT);
        assert_memory_equal(failed->comm_id.data, more[0], COMM_ID_BYTES);
        third_start(&b, 0xdd, 1);
        say_rank(&b.third, more[0], "one", 2);
        assert_int_equal(take_of(&b, &b.third, SAYS(JOIN_FAILED))->join_failed->code, RMX_E_LIMIT);

        for (uint32_t i = 0; i < IDS - 1; i++)
                say_rank(&b.n, ids[1][i], "two", 1);
        ask_ids(&b, "three", 2, more);
        say_rank(&b.n, more[0], "three", 1);
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(JOIN_FAILED)));
        say_rank(&b.n, more[1], "three", 1);
        assert_int_equal(take(&b, SAYS(JOIN_FAILED))->join_failed->code, RMX_E_LIMIT);
        call = send_comm_create(b.clients[0], b.id, 64, 0);
        settle(&b);
        say_rank(&b.n, b.id, "default", 1);
        both_wait(&b, client_find(b.clients[0], call));
        assert_int_equal(take_comm(b.clients[0], call).code, RMX_E_LIMIT);
        ask_ids(&b, "three", 1, more);
        say_rank(&b.third, more[0], "three", 2);
        settle_of(&b, &b.third);
        assert_false(has_heard(&b.third, SAYS(JOIN_FAILED)));
        finish(&b);
}

/* Calls that are taken back, with ids of nodes that nobody has reached, count like those that wait. */
static void test_taken_back(void **unused) {
        uint8_t node[PEER_NODE_BYTES], id[COMM_ID_BYTES];
        char address[COMM_ID_ADDRESS_BYTES];
        int deaf[17];
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        memset(node, 0x55, sizeof(node));
        for (uint32_t i = 0; i < 17; i++) {
                uint32_t code;

                deaf[i] = deaf_open(address);
                for (uint32_t n = 0; n < 2; n++) {
                        uint64_t call;

                        make_id(id, node, address, n);
                        call = send_comm_create(b.clients[0], id, RANKS, 0);
                        (void)take_ack(b.clients[0], send_join_cancel(b.clients[0], id, 0), NULL, 0);
                        code = take_comm(b.clients[0], call).code;
                        assert_int_equal(code, i < 16 ? RMX_E_ABORTED : RMX_E_LIMIT);
                }
        }
        for (uint32_t i = 0; i < 17; i++)
                close(deaf[i]);
        finish(&b);
}

/* Of what a tenant's calls leave for a node that is away the oldest goes first. */
static void test_last_words(void **unused) {
        static uint8_t ids[70][COMM_ID_BYTES];
        uint64_t call;
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        for (uint32_t i = 0; i < 70; i++)
                make_id(ids[i], peers_node(b.n.peers), peers_address(b.n.peers), i);
        call = send_comm_create(b.clients[0], ids[0], RANKS, 0);
        (void)take(&b, SAYS(JOIN));
        neighbour_stop(&b);
        assert_int_equal(take_comm(b.clients[0], call).code, RMX_E_PEER_LOST); /* since then it is waited for */
        for (uint32_t i = 1; i < 70; i++) {
                call = send_comm_create(b.clients[0], ids[i], RANKS, 0);
                (void)take_ack(b.clients[0], send_join_cancel(b.clients[0], ids[i], 0), NULL, 0);
                assert_int_not_equal(take_comm(b.clients[0], call).code, 0);
        }
        neighbour_start(&b, 0xee, 2);
        for (uint32_t i = 6; i < 70; i++) {
                assert_memory_equal(take(&b, SAYS(JOIN))->join->comm_id.data, ids[i], COMM_ID_BYTES);
                assert_memory_equal(take(&b, SAYS(JOIN_FAILED))->join_failed->comm_id.data, ids[i], COMM_ID_BYTES);
        }
        settle(&b);
        assert_false(has_heard(&b.n, SAYS(JOIN)));
        finish(&b);
}

/* A root that is dialled by another address turns out to be connected already. */
static void test_other_address(void **unused) {
        uint8_t id[COMM_ID_BYTES], other[COMM_ID_BYTES];
        char address[COMM_ID_ADDRESS_BYTES];
        uint64_t call;
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        snprintf(address, sizeof(address), "[::ffff:127.0.0.1]:%s", strrchr(peers_address(b.n.peers), ':') + 1);
        make_id(id, peers_node(b.n.peers), address, 0);
        make_id(other, peers_node(b.n.peers), address, 1);
        call = send_comm_create(b.clients[1], other, RANKS, 2);
        (void)send_comm_create(b.clients[0], id, RANKS, 1);
        (void)take_ack(b.clients[1], send_join_cancel(b.clients[1], other, 2), NULL, 0);
        assert_int_equal(take_comm(b.clients[1], call).code, RMX_E_ABORTED);
        assert_memory_equal(take(&b, SAYS(JOIN_FAILED))->join_failed->comm_id.data, other, COMM_ID_BYTES);
        b.n.n_taken = 0;
        while (memcmp(take(&b, SAYS(JOIN))->join->comm_id.data, id, COMM_ID_BYTES) != 0)
                continue;
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_refused),       cmocka_unit_test(test_root_lost),
                cmocka_unit_test(test_root_new),      cmocka_unit_test(test_unreached),
                cmocka_unit_test(test_taken_back),    cmocka_unit_test(test_late),
                cmocka_unit_test(test_crowd),         cmocka_unit_test(test_last_words),
                cmocka_unit_test(test_other_address),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
