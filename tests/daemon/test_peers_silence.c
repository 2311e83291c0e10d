/* SPDX-License-Identifier: MIT */
/* Daemons that fall silent, stand still or do not take what they are sent. */
#include "tests/daemon/peers_fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/log.h"

/* A process with one daemon's control channel, which dials `address` and does as told by signals. */
static pid_t child_start(struct world *world, const char *address) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                struct peers_options options = node_options(world, 1);
                struct event_base *base = event_base_new();
                char error[PEER_TEXT_MAX];
                struct peers *peers;
                struct peer *peer;

                prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if the test fails */
                options.base = base;
                options.events = (struct peer_events){0};
                options.deadline_ms = 600000;
                if (peers_new(&options, error, &peers) == 0 && peers_dial(peers, address, &peer) == 0)
                        event_base_dispatch(base);
                _exit(1);
        }
        return pid;
}

/* With the default times, a node that is gone or stands still is known to be lost within a second. On a machine that is
 * busy with other things one of several tries must do it. */
static void notices_within_a_second(void **state) {
        static const int signals[] = {SIGKILL, SIGSTOP};
        struct world *world = *state;
        struct node *a = &world->node[0];

        for (unsigned int i = 0; i < 2; i++) {
                uint64_t best_ns = UINT64_MAX;

                for (unsigned int attempt = 0; attempt < 5 && best_ns > 1000000000; attempt++) {
                        struct peers_options options = node_options(world, 0);
                        uint64_t start_ns;
                        pid_t pid;

                        options.heartbeat_ms = options.deadline_ms = 0;
                        node_start(world, 0, &options);
                        pid = child_start(world, peers_address(a->peers));
                        world_until(world, a->ups > 0);
                        start_ns = clock_now_ns();
                        kill(pid, signals[i]);
                        world_until(world, a->losts > 0);
                        if (a->lost_ns - start_ns < best_ns)
                                best_ns = a->lost_ns - start_ns;
                        if (signals[i] == SIGSTOP)
                                assert_string_equal(a->lost_text, "nothing was heard for 800 ms");
                        kill(pid, SIGKILL);
                        assert_int_equal(waitpid(pid, NULL, 0), pid);
                        node_stop(world, 0);
                }
                print_message("signal %d: lost after %.3f s\n", signals[i], (double)best_ns / 1e9);
                assert_true(best_ns <= 1000000000);
        }
}

static void notices_silence_at_both_ends(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        struct peers_options options;
        struct proxy *proxy;
        struct peer *to_b;
        uint64_t start_ns;

        for (unsigned int i = 0; i < 2; i++) {
                options = node_options(world, i);
                options.heartbeat_ms = 50;
                options.deadline_ms = 300;
                node_start(world, i, &options);
        }
        proxy = proxy_new(world, peers_address(b->peers));
        assert_int_equal(peers_dial(a->peers, proxy_address(proxy), &to_b), 0);
        world_until(world, a->ups && b->ups);
        /* Heartbeats alone keep it, for many times the deadline. */
        world_turn_for(world, 1500);
        assert_int_equal(a->losts + b->losts, 0);
        assert_true(rows_of(a->peers, "up", NULL).round_trip_ns > 0);
        start_ns = clock_now_ns();
        proxy_silence(proxy);
        world_until(world, a->losts && b->losts);
        assert_true(a->lost_ns - start_ns >= 200000000); /* the last sign of life may be a period old */
        assert_int_equal(a->losts, 1);
        assert_int_equal(b->losts, 1);
        assert_string_equal(a->lost_text, "nothing was heard for 300 ms");
        proxy_free(proxy);
}

/* The loop was busy with something else for longer than the deadline: the others have not been silent. */
static void forgives_own_delay(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0];
        struct peers_options options = node_options(world, 0);
        pid_t pid;

        options.heartbeat_ms = 40;
        options.deadline_ms = 600;
        node_start(world, 0, &options);
        pid = child_start(world, peers_address(a->peers));
        world_until(world, a->ups > 0);
        for (unsigned int i = 0; i < 2; i++) {
                uint64_t end_ns = clock_now_ns() + 1500000000;

                while (clock_now_ns() < end_ns)
                        ;
                world_turn_for(world, 100);
        }
        assert_int_equal(a->losts, 0);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        world_until(world, a->losts > 0);
}

/* ---- bounds ---- */

static void bounds_the_queue(void **state) {
        struct world *world = *state;
        struct node *a = &world->node[0], *b = &world->node[1];
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Assign assign = RAILMUX__PEER__ASSIGN__INIT;
        static Railmux__Peer__Member member[4096], *members[4096];
        Railmux__Peer__Node node = RAILMUX__PEER__NODE__INIT, *nodes[] = {&node};
        static Railmux__Peer__Choice choice[4096], *choices[4096];
        uint8_t id[128] = {0};
        struct proxy *proxy;
        struct peer *peer;
        uint64_t sent = 0;
        size_t size;
        int r;

        for (unsigned int i = 0; i < 4096; i++) {
                member[i] = (Railmux__Peer__Member)RAILMUX__PEER__MEMBER__INIT;
                member[i].rank = i;
                members[i] = &member[i];
                choice[i] = (Railmux__Peer__Choice)RAILMUX__PEER__CHOICE__INIT;
                choice[i].max_bytes = UINT64_MAX;
                choices[i] = &choice[i];
        }
        node.node = (ProtobufCBinaryData){.len = 16, .data = id};
        assign.comm_id = (ProtobufCBinaryData){.len = 128, .data = id};
        assign.n_ranks = 4096;
        assign.n_members = 4096;
        assign.members = members;
        assign.n_nodes = 1;
        assign.nodes = nodes;
        assign.n_choices = 4096;
        assign.choices = choices;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_ASSIGN;
        message.assign = &assign;
        size = railmux__peer__message__get_packed_size(&message);
        assert_true(size > 65536 && size < PEER_MESSAGE_MAX);

        nodes_start_two(world);
        proxy = proxy_new(world, peers_address(b->peers));
        /* Nobody is connected yet. */
        assert_int_equal(peers_dial(a->peers, proxy_address(proxy), &peer), 0);
        while ((r = peer_send(peer, &message)) == 0)
                sent += size + 4;
        assert_int_equal(r, PEER_E_FULL);
        assert_true(sent <= PEER_QUEUE_MAX && sent > PEER_QUEUE_MAX - size - 4);
        assert_int_equal(rows_of(a->peers, "waiting", NULL).queued_bytes, sent);
        world_until(world, b->n_messages == sent / (size + 4));
        assert_int_equal(b->last->assign->n_members, 4096);
        assert_int_equal(b->last->assign->members[4095]->rank, 4095);
        /* A connection that takes nothing. */
        proxy_silence(proxy);
        for (sent = 0; (r = peer_send(peer, &message)) == 0; sent += size + 4)
                if (sent % (64 * (size + 4)) == 0)
                        world_turn(world);
        assert_int_equal(r, PEER_E_FULL);
        assert_true(sent < 4 * PEER_QUEUE_MAX); /* what the kernel takes comes on top */
        /* What could not be sent is gone with the connection: the next one begins with something else. */
        world_turn_for(world, 50);
        b->n_messages = 0;
        peer_drop(peer, "for the test");
        world_until(world, a->losts == 1);
        assert_int_equal(rows_of(a->peers, "waiting", NULL).queued_bytes, 0);
        assert_int_equal(send_go(peer, 4711), 0);
        world_until(world, a->ups == 2 && b->ups == 2 && b->n_messages);
        world_turn_for(world, 50);
        assert_int_equal(b->n_messages, 1);
        assert_int_equal(b->keys[0], 4711);
        /* Messages that nobody would take. */
        assign.n_ranks = 4097;
        assert_int_equal(peer_send(peer, &message), PEER_E_LARGE);
        assign.n_ranks = 4096;
        assign.comm_id.len = 127;
        assert_int_equal(peer_send(peer, &message), PEER_E_LARGE);
        proxy_free(proxy);
}

int main(void) {
        const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
                T(notices_within_a_second),
                T(notices_silence_at_both_ends),
                T(forgives_own_delay),
                T(bounds_the_queue),
        };

        log_init("test", LOG_LEVEL_ERROR);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
