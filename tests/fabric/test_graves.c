/* SPDX-License-Identifier: MIT */
/* What nodes say of dead connections that the other one does not know. */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "fabric/private.h"
#include "tests/fabric/stranger.h"
#include "tests/time_scale.h"
#include "util/clock.h"

static const struct rig_options usual = {.n_nodes = 2,
                                         .n_rails = 1,
                                         .ranks = {1, 1},
                                         .slot_bytes = 512,
                                         .key = 9,
                                         .chunks = 300,
                                         .times = {.handshake = 300}};

/* What a node says of a dead connection that is not known here: it is heard, and from then on neither that number nor
 * one before it may begin. */
static void test_forgotten(void **state) {
        static struct rig rig;
        struct frame frame = {.kind = FRAME_FORGET, .key = 1000005, .value = FORGET_TELL, .connection = 1000000};
        uint8_t head[FRAME_HEAD_MAX];
        struct fabric_counters counters;
        struct hello hello;
        int fd, other;

        (void)state;
        rig_start(&rig, &usual);
        rig_peer(&rig, 1, 0, NULL);
        rig_area(&rig, 1);
        hello = stranger_hello_of(&rig);
        assert_int_equal(stranger_ask(&rig, &hello, 1, &fd), HELLO_OK);
        stranger_say(fd, head, frame_pack(&frame, NULL, head));
        do { /* others may come before it */
                assert_true(stranger_hear(fd, head, frame_head_bytes(FRAME_FORGET)));
                assert_int_equal(frame_decode(head, frame_head_bytes(FRAME_FORGET), &frame), 0);
        } while (frame.kind != FRAME_FORGET);
        assert_int_equal(frame.key, 1000005);
        assert_int_equal(frame.value, FORGET_STRANGE);
        /* Of itself, or in answer to nobody: no harm. */
        frame = (struct frame){.kind = FRAME_FORGET, .key = 1000000, .value = FORGET_TELL, .connection = 1000000};
        stranger_say(fd, head, frame_pack(&frame, NULL, head));
        frame.value = FORGET_HEARD;
        stranger_say(fd, head, frame_pack(&frame, NULL, head));
        for (uint32_t i = 1; i <= 5; i++) {
                hello.number = 1000000 + i;
                assert_int_equal(stranger_ask(&rig, &hello, 1, NULL), HELLO_E_NUMBER);
        }
        hello.number = 1000006;
        hello.class = FABRIC_BULK;
        assert_int_equal(stranger_ask(&rig, &hello, 1, &other), HELLO_OK);
        fabric_counters(rig.nodes[1].fabric, &counters);
        assert_int_equal(counters.malformed, 0);
        close(other);
        frame.value = FORGET_STRANGE + 1;
        stranger_say(fd, head, frame_pack(&frame, NULL, head));
        stranger_hear_end(fd);
        fabric_counters(rig.nodes[1].fabric, &counters);
        assert_int_equal(counters.malformed, 1);
        rig_free(&rig);
}

/* More of them at once than there is room for answers: each is heard. */
static void test_all_forgotten(void **state) {
        enum { N = 120 };
        static struct rig rig;
        static uint8_t bytes[N * FRAME_HEAD_MAX];
        bool heard[N] = {false};
        struct hello hello;
        size_t size = 0;
        int fd;

        (void)state;
        rig_start(&rig, &usual);
        rig_peer(&rig, 1, 0, NULL);
        rig_area(&rig, 1);
        hello = stranger_hello_of(&rig);
        assert_int_equal(stranger_ask(&rig, &hello, 1, &fd), HELLO_OK);
        for (uint32_t i = 0; i < N; i++) {
                struct frame frame = {
                        .kind = FRAME_FORGET, .key = 1000 + i, .value = FORGET_TELL, .connection = 1000000};

                size += frame_pack(&frame, NULL, bytes + size);
        }
        stranger_say(fd, bytes, size);
        for (uint32_t n = 0; n < N;) {
                struct frame frame;

                assert_true(stranger_hear(fd, bytes, frame_head_bytes(FRAME_FORGET)));
                assert_int_equal(frame_decode(bytes, frame_head_bytes(FRAME_FORGET), &frame), 0);
                if (frame.kind != FRAME_FORGET)
                        continue;
                assert_int_equal(frame.value, FORGET_STRANGE);
                assert_true(frame.key >= 1000 && frame.key < 1000 + N && !heard[frame.key - 1000]);
                heard[frame.key - 1000] = true;
                n++;
        }
        close(fd);
        rig_free(&rig);
}
static uint64_t errors_of(struct rig *rig, uint32_t node) {
        struct fabric_route_row *rows;
        uint64_t errors = 0;
        size_t n;

        assert_int_equal(fabric_routes(rig->nodes[node].fabric, &rows, &n), 0);
        for (size_t i = 0; i < n; i++)
                errors += rows[i].errors;
        free(rows);
        return errors;
}

/* A connection that just begins, when the peer has heard of the end of a later one that it does not know: another is
 * made at once, and the rail is none the worse for it. If it is the last that there was, something is wrong. */
static void test_overtaken(void **state) {
        struct rig_options options = usual;
        struct hello first, second, third;
        uint16_t ports[RIG_RAILS];
        static struct rig rig;
        int listens[2], fds[2], fd;
        uint32_t low;

        (void)state;
        options.n_rails = 2;
        options.stripe_bytes = 64;
        options.times.handshake = 20000;
        options.class = FABRIC_NORMAL; /* or there are connections of both */
        rig_start(&rig, &options);
        for (uint32_t i = 0; i < 2; i++)
                listens[i] = stranger_listen_for(i, &ports[i]);
        rig_peer(&rig, 0, 1, ports);
        rig_area(&rig, 0);
        while (rig_step(&rig)) {
        }
        fds[0] = stranger_hear_hello(listens[0], &first);
        fds[1] = stranger_hear_hello(listens[1], &second);
        low = first.number < second.number ? 0 : 1;
        stranger_refuse(fds[low], low ? &second : &first, HELLO_E_NUMBER);
        fd = stranger_hear_hello(listens[low], &third);
        assert_true(third.number > first.number && third.number > second.number);
        assert_int_equal(errors_of(&rig, 0), 0);
        stranger_refuse(fd, &third, HELLO_E_NUMBER);
        fd = stranger_hear_hello(listens[low], &third);
        assert_int_equal(errors_of(&rig, 0), 1);
        close(fd);
        close(fds[!low]);
        close(listens[0]);
        close(listens[1]);
        rig_free(&rig);
}

/* One that has never heard of our numbers, on two rails, each of which has dialled later than the other in turn: that
 * is a failure, and rests as others do. */
static void test_overtaken_for_ever(void **state) {
        struct rig_options options = usual;
        uint16_t ports[RIG_RAILS];
        struct hello hellos[2];
        static struct rig rig;
        int listens[2], fds[2];

        (void)state;
        options.n_rails = 2;
        options.stripe_bytes = 64;
        options.times.handshake = 20000;
        options.times.hold_down = options.times.hold_max = 600000;
        options.class = FABRIC_NORMAL;
        rig_start(&rig, &options);
        for (uint32_t i = 0; i < 2; i++)
                listens[i] = stranger_listen_for(i, &ports[i]);
        rig_peer(&rig, 0, 1, ports);
        rig_area(&rig, 0);
        while (rig_step(&rig)) {
        }
        for (uint32_t i = 0; i < 2; i++)
                fds[i] = stranger_hear_hello(listens[i], &hellos[i]);
        for (uint32_t n = 0;; n++) {
                const uint32_t low = hellos[0].number < hellos[1].number ? 0 : 1;

                stranger_refuse(fds[low], &hellos[low], HELLO_E_NUMBER);
                if (errors_of(&rig, 0) > 0) {
                        close(fds[!low]);
                        break;
                }
                assert_true(n < 100);
                fds[low] = stranger_hear_hello(listens[low], &hellos[low]);
        }
        for (uint32_t i = 0; i < 2; i++)
                close(listens[i]);
        rig_free(&rig);
}

static uint64_t dropped_by(struct rig *rig, uint32_t node) {
        struct fabric_counters counters;

        fabric_counters(rig->nodes[node].fabric, &counters);
        return counters.dropped;
}

/* What the peer has forgotten is given up, and the owner is told of it, if not at once. */
static void test_lost(void **state) {
        struct rig_options options = usual;
        uint16_t ports[RIG_RAILS];
        uint8_t head[FRAME_HEAD_MAX];
        struct hello first, second;
        static struct rig rig;
        struct fabric *fabric;
        struct frame frame;
        int listen, fd;
        uint64_t end_ns;

        (void)state;
        options.chunks = 1;
        options.class = FABRIC_NORMAL;
        options.times.handshake = options.times.deadline = 20000;
        rig_start(&rig, &options);
        fabric = rig.nodes[0].fabric;
        listen = stranger_listen_for(0, &ports[0]);
        rig_peer(&rig, 0, 1, ports);
        rig_area(&rig, 0);
        while (rig_step(&rig)) {
        }
        fd = stranger_hear_hello(listen, &first);
        stranger_answer(fd, &first, HELLO_OK);
        assert_true(stranger_hear(fd, head, 1)); /* of the chunk */
        close(fd);
        fd = stranger_hear_hello(listen, &second);
        stranger_answer(fd, &second, HELLO_OK);
        do {
                assert_true(stranger_hear(fd, head, FRAME_HEAD));
                assert_int_equal(frame_decode(head, FRAME_HEAD, &frame), 0);
        } while (frame.kind != FRAME_QUESTION);
        assert_int_equal(frame.key, first.number);
        pthread_mutex_lock(&fabric->lock);
        fabric->n_events = UINT32_MAX; /* there is no room for another one until they are fetched */
        pthread_mutex_unlock(&fabric->lock);
        frame = (struct frame){.kind = FRAME_ANSWER, .key = first.number, .value = 1, .connection = second.number};
        stranger_say(fd, head, frame_pack(&frame, NULL, head));
        end_ns = clock_now_ns() + UINT64_C(20000000000) * time_scale();
        while (dropped_by(&rig, 0) == 0) {
                assert_true(clock_now_ns() < end_ns);
                sched_yield();
        }
        rig_dispatch(&rig);
        assert_int_equal(rig.nodes[0].lost, 0);
        while (rig.nodes[0].lost == 0) {
                assert_true(clock_now_ns() < end_ns);
                rig_dispatch(&rig);
                sched_yield();
        }
        assert_int_equal(dropped_by(&rig, 0), 1);
        close(fd);
        close(listen);
        rig_free(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_forgotten), cmocka_unit_test(test_all_forgotten),
                cmocka_unit_test(test_overtaken), cmocka_unit_test(test_overtaken_for_ever),
                cmocka_unit_test(test_lost),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
