/* SPDX-License-Identifier: MIT */
/*
 * Whatever needs plans over several nodes has its turn, and the loop looks at all else in between. What is over before
 * that leaves the queue, whatever it is that has ended it.
 *
 * A neighbour says all of a burst before railmuxd has read any of it, so there is a queue when its end is heard: an ask
 * for an id, which is answered at once.
 */
#include "tests/daemon/comm_nodes_fixture.h"

#include "daemon/comm_turn.h"
#include "daemon/loop_watch.h"
#include "railmux/railmux.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define BURST 12u

/* ---- the queue --------------------------------------------------------------------------------------------------- */
#define WAITERS 6u

struct waiter {
        struct comm_turn turn;
        struct queue *queue;
        struct waiter *other; /* leaves when this one has its turn */
        bool again;           /* it waits once more */
        unsigned int n_taken;
        unsigned int reads, ticks; /* of the queue, when it had its turn */
};

struct queue {
        struct comm_turns turns;
        struct event_base *base;
        struct event *readable, *tick;
        int fds[2];
        unsigned int reads, ticks; /* of a socket that is always readable, and of a timer that is always over */
        struct waiter waiters[WAITERS];
        struct waiter *order[WAITERS + 1];
        unsigned int n_taken;
};

static void on_readable(evutil_socket_t fd, short what, void *data) {
        struct queue *queue = data;

        (void)fd;
        (void)what;
        queue->reads++;
}

static void on_tick(evutil_socket_t fd, short what, void *data) {
        static const struct timeval none = {0};
        struct queue *queue = data;

        (void)fd;
        (void)what;
        queue->ticks++;
        assert_int_equal(event_add(queue->tick, &none), 0);
}

static void take_turn(void *data) {
        struct waiter *waiter = data;
        struct queue *queue = waiter->queue;

        assert_true(queue->n_taken < WAITERS + 1);
        queue->order[queue->n_taken++] = waiter;
        waiter->n_taken++;
        waiter->reads = queue->reads;
        waiter->ticks = queue->ticks;
        if (waiter->other)
                comm_turn_leave(&waiter->other->turn);
        if (waiter->again)
                comm_turn_wait(&waiter->turn, &queue->turns, "a", take_turn, waiter);
        waiter->again = false;
}

/* tenants: a letter for each of those that wait. */
static void queue_begin(struct queue *queue, struct loop_watch *watch, const char tenants[WAITERS + 1]) {
        *queue = (struct queue){.base = event_base_new()};
        loop_watch_init(watch, 30000, true);
        assert_non_null(queue->base);
        assert_int_equal(comm_turns_init(&queue->turns, queue->base, watch), 0);
        assert_int_equal(pipe(queue->fds), 0);
        assert_int_equal(write(queue->fds[1], "x", 1), 1);
        queue->readable = event_new(queue->base, queue->fds[0], EV_READ | EV_PERSIST, on_readable, queue);
        queue->tick = evtimer_new(queue->base, on_tick, queue);
        assert_true(queue->readable && queue->tick);
        assert_int_equal(event_add(queue->readable, NULL), 0);
        on_tick(-1, 0, queue);
        for (uint32_t i = 0; i < WAITERS; i++) {
                const char tenant[2] = {tenants[i], '\0'};

                queue->waiters[i].queue = queue;
                comm_turn_wait(&queue->waiters[i].turn, &queue->turns, tenant, take_turn, &queue->waiters[i]);
        }
}

static void queue_end(struct queue *queue) {
        event_free(queue->tick);
        event_free(queue->readable);
        comm_turns_deinit(&queue->turns);
        event_base_free(queue->base);
        close(queue->fds[0]);
        close(queue->fds[1]);
}

static void queue_run(struct queue *queue) {
        while (queue->turns.first)
                assert_int_equal(event_base_loop(queue->base, EVLOOP_ONCE), 0);
}

/* In the order in which they came, and between any two sockets and timers have theirs. */
static void test_others_between(void **unused) {
        struct loop_watch watch;
        struct queue queue;

        (void)unused;
        queue_begin(&queue, &watch, "aaaaaa");
        queue.waiters[2].again = true;
        queue_run(&queue);
        assert_int_equal(queue.n_taken, WAITERS + 1);
        for (uint32_t i = 0; i < WAITERS; i++)
                assert_ptr_equal(queue.order[i], &queue.waiters[i]);
        assert_ptr_equal(queue.order[WAITERS], &queue.waiters[2]);
        for (uint32_t i = 1; i < WAITERS; i++) {
                if (i == 2 || i == 3) /* it has been there again */
                        continue;
                assert_true(queue.waiters[i].reads > queue.waiters[i - 1].reads);
                assert_true(queue.waiters[i].ticks > queue.waiters[i - 1].ticks);
        }
        queue_end(&queue);
}

/* No tenant waits for all that another one has begun. */
static void test_tenants(void **unused) {
        static const uint32_t expected[WAITERS] = {0, 3, 5, 1, 2, 4};
        struct loop_watch watch;
        struct queue queue;

        (void)unused;
        queue_begin(&queue, &watch, "aaabac");
        queue_run(&queue);
        for (uint32_t i = 0; i < WAITERS; i++)
                assert_ptr_equal(queue.order[i], &queue.waiters[expected[i]]);
        /* Whose last turn was longest ago is first, also later. */
        queue.n_taken = 0;
        comm_turn_wait(&queue.waiters[0].turn, &queue.turns, "a", take_turn, &queue.waiters[0]);
        comm_turn_wait(&queue.waiters[1].turn, &queue.turns, "c", take_turn, &queue.waiters[1]);
        comm_turn_wait(&queue.waiters[2].turn, &queue.turns, "b", take_turn, &queue.waiters[2]);
        queue_run(&queue);
        for (uint32_t i = 0; i < 3; i++)
                assert_ptr_equal(queue.order[i], &queue.waiters[2 - i]);
        queue_end(&queue);
}

/* Who leaves has no turn, be it the first one, one in between, the last one, or while another has its. The queue goes
 * on when it was empty. */
static void test_leave(void **unused) {
        struct loop_watch watch;
        struct queue queue;

        (void)unused;
        queue_begin(&queue, &watch, "aaaaaa");
        queue.waiters[1].other = &queue.waiters[2];
        comm_turn_leave(&queue.waiters[0].turn);
        comm_turn_leave(&queue.waiters[3].turn);
        comm_turn_leave(&queue.waiters[5].turn);
        comm_turn_leave(&queue.waiters[5].turn);
        queue_run(&queue);
        for (uint32_t i = 0; i < WAITERS; i++)
                assert_int_equal(queue.waiters[i].n_taken, i == 1 || i == 4);
        for (uint32_t i = 0; i < 2; i++) { /* all leave, and then one comes */
                comm_turn_wait(&queue.waiters[i].turn, &queue.turns, "a", take_turn, &queue.waiters[i]);
                comm_turn_leave(&queue.waiters[i].turn);
        }
        comm_turn_wait(&queue.waiters[5].turn, &queue.turns, "a", take_turn, &queue.waiters[5]);
        queue_run(&queue);
        assert_int_equal(queue.waiters[5].n_taken, 1);
        assert_int_equal(queue.n_taken, 3);
        queue_end(&queue);
}

/* ---- splits ------------------------------------------------------------------------------------------------------ */
/* Messages of a kind that the neighbour heard before the answer to its last ask. */
static unsigned int heard_before_told(const struct both *b, unsigned int what) {
        unsigned int n = 0, before = 0;

        for (unsigned int i = 0; i < b->n.n_heard; i++) {
                n += b->n.heard[i]->body_case == what;
                if (b->n.heard[i]->body_case == SAYS(ID_TOLD))
                        before = n;
        }
        return before;
}

static unsigned int heard_in_all(const struct both *b, unsigned int what) {
        unsigned int n = 0;

        for (unsigned int i = 0; i < b->n.n_heard; i++)
                n += b->n.heard[i]->body_case == what;
        return n;
}

/* The ranks here have said what they want, of BURST splits. */
static void begin_splits(struct both *b, uint64_t calls[BURST][2]) {
        setup_first(b);
        for (uint32_t i = 0; i < BURST; i++)
                client_splits(b, i + 1, 0, calls[i]);
        assert_unanswered(b, calls[BURST - 1]);
}

static void say_splits(struct both *b) {
        for (uint32_t i = 0; i < BURST; i++)
                for (uint32_t r = 2; r < RANKS; r++) {
                        Railmux__Peer__SplitJoin body = wish(b, i + 1, r, 0);

                        split_join(b, &body);
                }
}

static void test_splits(void **unused) {
        uint64_t calls[BURST][2];
        struct both b;

        (void)unused;
        begin_splits(&b, calls);
        say_splits(&b);
        say_splits(&b); /* changes nothing */
        settle(&b);
        assert_true(heard_before_told(&b, SAYS(SPLIT_FORM)) < BURST);
        for (uint32_t i = 0; i < BURST; i++)
                assert_int_equal(take(&b, SAYS(SPLIT_FORM))->split_form->number, i + 1);
        for (uint32_t i = 0; i < BURST; i++)
                say_split_ready(&b, i + 1);
        for (uint32_t i = 0; i < BURST; i++)
                for (uint32_t k = 0; k < 2; k++)
                        assert_int_equal(take_split(&b, k, calls[i][k]).code, 0);
        settle(&b);
        assert_int_equal(heard_in_all(&b, SAYS(SPLIT_FORM)), BURST);
        finish(&b);
}

/* A node says that one of those that wait cannot be. */
static void test_split_fails(void **unused) {
        uint64_t calls[BURST][2];
        struct both b;

        (void)unused;
        begin_splits(&b, calls);
        say_splits(&b);
        say_split_failed(&b, BURST - 1, RMX_E_ABORTED, "it gave up", false);
        say_split_ready(&b, BURST - 1); /* of what there is not */
        settle(&b);
        assert_split_fails(&b, calls[BURST - 2], RMX_E_ABORTED, "it gave up");
        while (take(&b, SAYS(SPLIT_FORM))->split_form->number != BURST)
                ;
        assert_int_equal(heard_in_all(&b, SAYS(SPLIT_FORM)), BURST - 1);
        say_split_ready(&b, BURST);
        for (uint32_t k = 0; k < 2; k++)
                assert_int_equal(take_split(&b, k, calls[BURST - 1][k]).code, 0);
        finish(&b);
}

/* A rank leaves the communicator. */
static void test_split_left(void **unused) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Left body = RAILMUX__PEER__LEFT__INIT;
        uint64_t calls[BURST][2];
        struct both b;

        (void)unused;
        begin_splits(&b, calls);
        body.key = b.key;
        body.rank = 3;
        message.body_case = SAYS(LEFT);
        message.left = &body;
        say_splits(&b);
        say(&b, &message);
        for (uint32_t i = 0; i < BURST; i++)
                assert_split_fails(&b, calls[i], RMX_E_PEER_LOST, "left");
        settle(&b);
        assert_true(heard_in_all(&b, SAYS(SPLIT_FORM)) < BURST);
        finish(&b);
}

/* Whatever railmuxd says to the executor meanwhile is not read. */
static void settle_without_executor(struct both *b) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__IdAsk ask = RAILMUX__PEER__ID_ASK__INIT;
        unsigned int n_told = heard_in_all(b, SAYS(ID_TOLD));

        ask.key = b->key;
        ask.number = 1;
        ask.tenant = "nobody";
        message.body_case = SAYS(ID_ASK);
        message.id_ask = &ask;
        say(b, &message);
        while (heard_in_all(b, SAYS(ID_TOLD)) == n_told)
                assert_int_equal(event_base_loop(b->n.base, EVLOOP_ONCE), 0);
}

/* The communicator is about to fail, for which its executor takes its time: nothing is formed any more. */
static void test_parent_fails(void **unused) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Failed body = RAILMUX__PEER__FAILED__INIT;
        uint64_t calls[BURST][2];
        struct both b;

        (void)unused;
        begin_splits(&b, calls);
        body.key = b.key;
        body.code = RMX_E_MISMATCH;
        body.rank = -1;
        body.text = "said by the test";
        message.body_case = SAYS(FAILED);
        message.failed = &body;
        say_splits(&b);
        say(&b, &message);
        for (uint32_t i = 0; i < 2 * BURST; i++) /* long enough to form all */
                settle_without_executor(&b);
        assert_true(heard_in_all(&b, SAYS(SPLIT_FORM)) < BURST);
        for (uint32_t i = 0; i < BURST; i++)
                assert_split_fails(&b, calls[i], RMX_E_MISMATCH, "failed");
        finish(&b);
}

/* What was said is out, whoever may have read it. */
static void flush(struct both *b) {
        assert_true(event_base_loop(b->n.base, EVLOOP_NONBLOCK) >= 0);
}

/* The node is lost. */
static void test_split_node_lost(void **unused) {
        uint64_t calls[BURST][2];
        struct both b;

        (void)unused;
        begin_splits(&b, calls);
        say_splits(&b);
        flush(&b);
        neighbour_stop(&b);
        for (uint32_t i = 0; i < BURST; i++)
                for (uint32_t k = 0; k < 2; k++)
                        assert_int_equal(take_comm(b.clients[k], calls[i][k]).code, RMX_E_PEER_LOST);
        neighbour_start(&b, 0xee, 2);
        finish(&b);
}

/* railmuxd ends: it is told so before it has read any of it. */
static void test_end(void **unused) {
        uint64_t calls[BURST][2];
        struct both b;

        (void)unused;
        begin_splits(&b, calls);
        call_id_create(b.clients[0], b.id);
        fixture_signal(&b.f, SIGSTOP);
        say_splits(&b);
        for (uint32_t r = 0; r < RANKS; r++)
                say_join(&b, r, 7);
        flush(&b);
        fixture_signal(&b.f, SIGTERM);
        fixture_signal(&b.f, SIGCONT);
        fixture_teardown(&b.f);
        neighbour_stop(&b);
}

/* ---- gatherings -------------------------------------------------------------------------------------------------- */
static void say_join_failed(struct both *b, uint64_t attempt) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__JoinFailed body = RAILMUX__PEER__JOIN_FAILED__INIT;

        body.comm_id.data = b->id;
        body.comm_id.len = COMM_ID_BYTES;
        body.rank = 1;
        body.code = RMX_E_ABORTED;
        body.text = "it gave up";
        body.attempt = attempt;
        message.body_case = SAYS(JOIN_FAILED);
        message.join_failed = &body;
        say(b, &message);
}

static void say_gathering(struct both *b, const uint8_t id[COMM_ID_BYTES], uint64_t attempt) {
        memcpy(b->id, id, COMM_ID_BYTES);
        for (uint32_t r = 0; r < RANKS; r++)
                say_join(b, r, attempt);
}

static void take_assign(struct both *b, const uint8_t id[COMM_ID_BYTES], uint64_t attempt) {
        const Railmux__Peer__Assign *assign = take(b, SAYS(ASSIGN))->assign;

        assert_memory_equal(assign->comm_id.data, id, COMM_ID_BYTES);
        assert_int_equal(assign->attempt, attempt);
}

/* All ranks of each are the neighbour's. Of those that are complete one is given up, one is begun anew, and one has a
 * rank that does not fit: none of these is assigned as it was. */
static void test_gatherings(void **unused) {
        uint8_t ids[BURST][COMM_ID_BYTES];
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        for (uint32_t i = 0; i < BURST; i++)
                call_id_create(b.clients[0], ids[i]);
        for (uint32_t i = 0; i < BURST; i++) {
                say_gathering(&b, ids[i], 7);
                say_join(&b, 0, 7); /* it is there */
        }
        memcpy(b.id, ids[BURST - 2], COMM_ID_BYTES);
        say_join_failed(&b, 7);
        say_gathering(&b, ids[BURST - 3], 8);
        settle(&b);
        assert_true(heard_before_told(&b, SAYS(ASSIGN)) < BURST - 3);
        for (uint32_t i = 0; i < BURST; i++)
                if (i < BURST - 3 || i == BURST - 1)
                        take_assign(&b, ids[i], 7);
        take_assign(&b, ids[BURST - 3], 8); /* came later */
        say_gathering(&b, ids[BURST - 2], 9);
        take_assign(&b, ids[BURST - 2], 9);
        assert_int_equal(heard_in_all(&b, SAYS(ASSIGN)), BURST);
        finish(&b);
}

/* The node whose ranks they are is lost, and comes again. */
static void test_gathering_node_lost(void **unused) {
        uint8_t ids[BURST][COMM_ID_BYTES];
        struct both b;

        (void)unused;
        begin(&b, 0xee, 1);
        for (uint32_t i = 0; i < BURST; i++)
                call_id_create(b.clients[0], ids[i]);
        for (uint32_t i = 0; i < BURST; i++)
                say_gathering(&b, ids[i], 7);
        flush(&b);
        neighbour_stop(&b);
        neighbour_start(&b, 0xee, 1);
        say_gathering(&b, ids[BURST - 1], 8);
        take_assign(&b, ids[BURST - 1], 8);
        finish(&b);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_others_between),
                cmocka_unit_test(test_leave),
                cmocka_unit_test(test_tenants),
                cmocka_unit_test(test_splits),
                cmocka_unit_test(test_split_fails),
                cmocka_unit_test(test_split_left),
                cmocka_unit_test(test_parent_fails),
                cmocka_unit_test(test_split_node_lost),
                cmocka_unit_test(test_end),
                cmocka_unit_test(test_gatherings),
                cmocka_unit_test(test_gathering_node_lost),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
