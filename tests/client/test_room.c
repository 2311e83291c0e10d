/* SPDX-License-Identifier: MIT */
/* Several threads at one socket that is full: whoever sleeps sees what somebody else could not send. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/rpc.h"
#include "proto/frame.h"
#include "proto/session.pb-c.h"

struct world {
        struct rpc rpc;
        int fds[2]; /* the library's, the daemon's */
};

struct caller {
        struct world *world;
        struct rpc_call call;
        Railmux__Session__Message message;
        Railmux__Session__IdCreate body;
        pthread_t thread;
        int result;
};

static void *caller_main(void *userdata) {
        struct caller *caller = userdata;

        caller->result = rpc_call(&caller->world->rpc, &caller->call, RPC_NO_DEADLINE);
        return NULL;
}

static void caller_start(struct caller *caller, struct world *world) {
        *caller = (struct caller){.world = world,
                                  .message = RAILMUX__SESSION__MESSAGE__INIT,
                                  .body = RAILMUX__SESSION__ID_CREATE__INIT,
                                  .result = -1};
        caller->message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ID_CREATE;
        caller->message.id_create = &caller->body;
        caller->call.message = &caller->message;
        assert_int_equal(pthread_create(&caller->thread, NULL, caller_main, caller), 0);
}

/* Until it sleeps at the socket, having sent its call or not. */
static void caller_await(struct caller *caller, bool sent) {
        struct rpc *rpc = &caller->world->rpc;

        for (bool there = false; !there; sched_yield()) {
                pthread_mutex_lock(&rpc->mutex);
                there = caller->call.polling && caller->call.sent == sent;
                pthread_mutex_unlock(&rpc->mutex);
        }
}

static void caller_end(struct caller *caller) {
        pthread_join(caller->thread, NULL);
        assert_int_equal(caller->result, 0);
}

static void answer(struct world *world, uint64_t call) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Ack ack = RAILMUX__SESSION__ACK__INIT;

        message.id = call;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ACK;
        message.ack = &ack;
        assert_int_equal(frame_send(world->fds[1], &message.base, NULL, 0), FRAME_OK);
}

static void fill(struct world *world) {
        while (send(world->fds[0], "junk", 4, MSG_DONTWAIT) == 4)
                ;
        assert_int_equal(errno, EAGAIN);
}

/* *ret_message: it is no junk. */
static bool take(struct world *world, bool *ret_message) {
        char packet[4096];
        ssize_t n = recv(world->fds[1], packet, sizeof(packet), MSG_DONTWAIT);

        *ret_message = n > 0 && (n != 4 || memcmp(packet, "junk", 4) != 0);
        return n > 0;
}

/* One thread waits for room and has been answered that there is some; the one that reads came later, when there was
 * nothing to send, and looks for answers only. */
static void post_beside_two(void) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommAbort abort = RAILMUX__SESSION__COMM_ABORT__INIT;
        struct world world = {.rpc = RPC_INIT};
        struct caller first, waiting, reader;
        struct pollfd readable = {.events = POLLIN};
        uint32_t n_messages = 0;
        bool is_message;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, world.fds), 0);
        readable.fd = world.fds[1];
        assert_int_equal(rpc_init(&world.rpc, world.fds[0]), 0);
        caller_start(&first, &world);
        caller_await(&first, true);
        assert_true(take(&world, &is_message) && is_message);
        fill(&world);
        caller_start(&waiting, &world);
        caller_await(&waiting, false);
        answer(&world, first.call.id);
        caller_end(&first);
        assert_true(take(&world, &is_message) &&
                    take(&world, &is_message)); /* less than what sockets call room, but a send finds it */
        caller_start(&reader, &world);
        caller_await(&reader, true);
        caller_await(&waiting, true);
        fill(&world);
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT;
        message.comm_abort = &abort;
        pthread_mutex_lock(&world.rpc.mutex);
        rpc_post_locked(&world.rpc, &message);
        assert_non_null(world.rpc.posts);
        pthread_mutex_unlock(&world.rpc.mutex);
        for (bool waits = true; waits; sched_yield()) { /* who was called and found no room sleeps again */
                pthread_mutex_lock(&world.rpc.mutex);
                waits = waiting.call.polling;
                pthread_mutex_unlock(&world.rpc.mutex);
        }
        while (n_messages < 3) { /* two calls, and the post */
                if (!take(&world, &is_message))
                        assert_int_equal(poll(&readable, 1, 20000), 1);
                else
                        n_messages += is_message;
        }
        answer(&world, reader.call.id);
        answer(&world, waiting.call.id);
        caller_end(&reader);
        caller_end(&waiting);
        rpc_deinit(&world.rpc);
        close(world.fds[1]);
}

/* Whether the reader wakes with the other one is a matter of chance. */
static void test_post_beside_two(void **state) {
        (void)state;
        for (uint32_t i = 0; i < 200; i++)
                post_beside_two();
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_post_beside_two),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
