/* SPDX-License-Identifier: MIT */
/* Sleeping and waking with the real kernel: futex on a read-only mapping, edge-triggered eventfds that nobody reads. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "areas.h"
#include "ring/futex.h"
#include "tests/cmocka_all.h"

#define LONG_NS INT64_C(30000000000) /* a test that needs it has failed */

static struct areas areas;
static struct ring_producer producer;
static struct ring_consumer consumer;

static int setup(void **state) {
        (void)state;
        areas_init(&areas, 8);
        ring_producer_init(&producer, &areas.layout, areas.client_rw, areas.executor_ro, RING_FIRST_SEQUENCE);
        ring_consumer_init(&consumer, &areas.layout, areas.client_ro, areas.executor_rw, RING_FIRST_SEQUENCE);
        return 0;
}

static int teardown(void **state) {
        (void)state;
        areas_deinit(&areas);
        return 0;
}

static uint32_t request_begin(void) {
        struct ring_request request = areas_request(0), got;
        uint32_t sequence, latched;

        assert_int_equal(ring_producer_publish(&producer, &request, &sequence), RING_OK);
        assert_int_equal(ring_consumer_latch(&consumer, &got, &latched), RING_OK);
        assert_int_equal(latched, sequence);
        return sequence;
}

static int64_t now_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

struct waiter {
        pthread_t thread;
        _Atomic int tid;
        uint32_t sequence, status;
        int64_t timeout_ns;
        int result;
};

static void *waiter_main(void *argument) {
        struct waiter *w = argument;

        atomic_store(&w->tid, gettid()); /* with the load in waiter_start */
        w->result = ring_producer_wait(&producer, w->sequence, w->timeout_ns, &w->status);
        return NULL;
}

static void waiter_start(struct waiter *w, uint32_t sequence, int64_t timeout_ns, bool until_asleep) {
        *w = (struct waiter){.sequence = sequence, .timeout_ns = timeout_ns, .result = -1};
        assert_int_equal(pthread_create(&w->thread, NULL, waiter_main, w), 0);
        while (!atomic_load(&w->tid)) /* with the store in waiter_main */
                sched_yield();
        if (until_asleep)
                areas_await_sleeper(&areas, sequence, w->tid);
}

static void waiter_end(struct waiter *w, int result, uint32_t status) {
        pthread_join(w->thread, NULL);
        assert_int_equal(w->result, result);
        if (result == RING_OK)
                assert_int_equal(w->status, status);
}

static void test_timeout(void **state) {
        uint32_t sequence = request_begin(), status;
        int64_t start = now_ns();

        (void)state;
        assert_int_equal(ring_producer_wait(&producer, sequence, 0, &status), RING_E_AGAIN);
        assert_int_equal(ring_producer_wait(&producer, sequence, 20000000, &status), RING_E_AGAIN);
        assert_true(now_ns() - start >= 20000000);
        assert_true(now_ns() - start < LONG_NS);
        assert_int_equal(*areas_waiting(&areas, sequence), 0);
        ring_consumer_complete(&consumer, sequence, 5);
        assert_int_equal(ring_producer_wait(&producer, sequence, 0, &status), RING_OK);
        assert_int_equal(status, 5);
        assert_int_equal(ring_producer_wait(&producer, sequence, -1, &status), RING_OK);
}

static void test_wake(void **state) {
        static const int64_t timeouts[] = {-1, INT64_MAX, LONG_NS};
        struct waiter w;

        (void)state;
        for (size_t i = 0; i < sizeof(timeouts) / sizeof(timeouts[0]); i++) {
                uint32_t sequence = request_begin();

                waiter_start(&w, sequence, timeouts[i], true);
                ring_consumer_complete(&consumer, sequence, 7);
                waiter_end(&w, RING_OK, 7);
                assert_int_equal(*areas_waiting(&areas, sequence), 0);
        }
}

/* The client's mapping cannot be written and cannot be made so: the futex really works on a read-only one. */
static void test_read_only(void **state) {
        (void)state;
        assert_int_equal(mprotect((void *)areas.executor_ro, areas.layout.executor_bytes, PROT_READ | PROT_WRITE), -1);
        assert_int_equal(errno, EACCES);
        assert_int_equal(fcntl(areas.executor_readonly_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
}

static void test_other_process(void **state) {
        uint32_t sequence = request_begin(), status;
        int result;
        pid_t child;

        (void)state;
        child = fork();
        assert_true(child >= 0);
        if (!child) {
                result = ring_producer_wait(&producer, sequence, LONG_NS, &status);
                _exit(result == RING_OK && status == 0x30005 ? 0 : 1);
        }
        while (!atomic_load(areas_waiting(&areas, sequence))) /* with the addition in ring_producer_wait */
                sched_yield();
        ring_consumer_complete(&consumer, sequence, 0x30005);
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_int_equal(result, 0);
}

static void test_slots(void **state) {
        struct waiter w[6];

        (void)state;
        for (int i = 0; i < 6; i++)
                waiter_start(&w[i], request_begin(), LONG_NS, true);
        for (int i = 5; i >= 0; i--) {
                for (int k = 0; k < i; k++) /* the others sleep on */
                        assert_int_equal(*areas_waiting(&areas, w[k].sequence), 1);
                ring_consumer_complete(&consumer, w[i].sequence, (uint32_t)i);
                waiter_end(&w[i], RING_OK, (uint32_t)i);
        }
}

/* One that gives up does not take the other's announcement along. */
static void test_same_slot(void **state) {
        uint32_t sequence = request_begin();
        struct waiter patient, other;

        (void)state;
        waiter_start(&patient, sequence, LONG_NS, true);
        waiter_start(&other, sequence, 1000000, false);
        waiter_end(&other, RING_E_AGAIN, 0);
        assert_int_equal(*areas_waiting(&areas, sequence), 1);
        ring_consumer_complete(&consumer, sequence, 3);
        waiter_end(&patient, RING_OK, 3);
        assert_int_equal(*areas_waiting(&areas, sequence), 0);
}

/* However many sleep on one word, the executor wakes some and goes on. */
static void test_crowd(void **state) {
        enum { CROWD = RING_FUTEX_WAKES + 9 };
        uint32_t sequence = request_begin();
        struct waiter w[CROWD];
        long n;

        (void)state;
        for (int i = 0; i < CROWD; i++)
                waiter_start(&w[i], sequence, LONG_NS, true);
        ring_consumer_complete(&consumer, sequence, 4);
        n = syscall(SYS_futex, areas_completion(&areas, sequence), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        assert_int_equal(n, CROWD - RING_FUTEX_WAKES); /* those that it left */
        for (int i = 0; i < CROWD; i++)
                waiter_end(&w[i], RING_OK, 4);
}

static void on_signal(int number) {
        (void)number;
}

static void test_signals(void **state) {
        const struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
        uint32_t sequence = request_begin();
        struct waiter w;

        (void)state;
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        waiter_start(&w, sequence, LONG_NS, true);
        for (int i = 0; i < 20; i++) {
                pthread_kill(w.thread, SIGUSR1);
                areas_await_sleeper(&areas, sequence, w.tid);
        }
        ring_consumer_complete(&consumer, sequence, 1);
        waiter_end(&w, RING_OK, 1);
}

/* The executor was killed between the completion and the wake-up. */
static void test_dead_before_wake(void **state) {
        static struct ring_consumer successor;
        uint32_t sequence = request_begin();
        struct waiter w;

        (void)state;
        waiter_start(&w, sequence, LONG_NS, true);
        atomic_store(areas_completion(&areas, sequence),
                     UINT64_C(6) << 32 | sequence); /* with the load in the waiter */
        ring_consumer_init(&successor, &areas.layout, areas.client_ro, areas.executor_rw, RING_FIRST_SEQUENCE);
        waiter_end(&w, RING_OK, 6);
}

/* ---- the executor's side -------------------------------------------------------------------------------------------
 */

static int watch(int event_fd) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};
        int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

        assert_true(epoll_fd >= 0);
        assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &event), 0);
        return epoll_fd;
}

static int edges(int epoll_fd, int timeout_ms) {
        struct epoll_event event;

        return epoll_wait(epoll_fd, &event, 1, timeout_ms);
}

static void test_edges(void **state) {
        int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), epoll_fd = watch(event_fd), other_fd, other_epoll_fd;
        uint64_t value = 1;

        (void)state;
        assert_int_equal(edges(epoll_fd, 0), 0);
        for (int i = 0; i < 1000; i++) {
                assert_int_equal(write(event_fd, &value, sizeof(value)), sizeof(value));
                assert_int_equal(edges(epoll_fd, 0), 1);
                assert_int_equal(edges(epoll_fd, 0), 0);
        }
        /* the client changes the flags of the shared file description: nothing changes, nobody reads it */
        assert_int_equal(fcntl(event_fd, F_SETFL, 0), 0);
        for (int i = 0; i < 1000; i++) {
                assert_int_equal(write(event_fd, &value, sizeof(value)), sizeof(value));
                assert_int_equal(edges(epoll_fd, 0), 1);
                assert_int_equal(edges(epoll_fd, 0), 0);
        }
        assert_int_equal(fcntl(event_fd, F_SETFL, O_NONBLOCK), 0);
        /* the client fills its counter: its own writes fail from now on; epoll and other eventfds are well */
        value = UINT64_MAX - 1 - 2000;
        assert_int_equal(write(event_fd, &value, sizeof(value)), sizeof(value));
        assert_int_equal(edges(epoll_fd, 0), 1);
        value = 1;
        assert_int_equal(write(event_fd, &value, sizeof(value)), -1);
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(edges(epoll_fd, 0), 0);
        other_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_int_equal(
                epoll_ctl(epoll_fd, EPOLL_CTL_ADD, other_fd, &(struct epoll_event){.events = EPOLLIN | EPOLLET}), 0);
        assert_int_equal(write(other_fd, &value, sizeof(value)), sizeof(value));
        assert_int_equal(edges(epoll_fd, 0), 1);
        assert_int_equal(edges(epoll_fd, 0), 0);
        /* a successor's epoll set: what was written before it came is an edge */
        other_epoll_fd = watch(other_fd);
        assert_int_equal(edges(other_epoll_fd, 0), 1);
        assert_int_equal(edges(other_epoll_fd, 0), 0);
        close(other_epoll_fd);
        close(other_fd);
        close(epoll_fd);
        close(event_fd);
}

struct sleeper {
        int epoll_fd;
        uint32_t n;
        uint32_t sleeps;
};

static void *sleeper_main(void *argument) {
        struct sleeper *s = argument;
        struct ring_request got;
        uint32_t sequence;

        while (s->n) {
                if (ring_consumer_latch(&consumer, &got, &sequence) == RING_OK) {
                        ring_consumer_complete(&consumer, sequence, got.word[3]);
                        s->n--;
                        continue;
                }
                if (!ring_consumer_sleep(&consumer)) {
                        s->sleeps++;
                        if (edges(s->epoll_fd, 30000) != 1)
                                return "asleep with a line in the ring";
                }
                ring_consumer_awake(&consumer);
        }
        return NULL;
}

/* The whole handshake, both ways, with an eventfd whose flags a client has spoilt. */
static void test_ping_pong(void **state) {
        int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        struct sleeper s = {.epoll_fd = watch(event_fd), .n = 5000};
        const uint64_t one = 1;
        pthread_t thread;
        void *complaint;

        (void)state;
        assert_int_equal(fcntl(event_fd, F_SETFL, 0), 0);
        assert_int_equal(pthread_create(&thread, NULL, sleeper_main, &s), 0);
        for (uint32_t i = 0; i < 5000; i++) {
                struct ring_request request = areas_request(i);
                uint32_t sequence, status;

                assert_int_equal(ring_producer_publish(&producer, &request, &sequence), RING_OK);
                if (ring_producer_must_wake(&producer))
                        assert_int_equal(write(event_fd, &one, sizeof(one)), sizeof(one));
                assert_int_equal(ring_producer_wait(&producer, sequence, LONG_NS, &status), RING_OK);
                assert_int_equal(status, request.word[3]);
                ring_producer_release(&producer, sequence);
        }
        pthread_join(thread, &complaint);
        if (complaint)
                fail_msg("%s", (char *)complaint);
        close(s.epoll_fd);
        close(event_fd);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_timeout, setup, teardown),
                cmocka_unit_test_setup_teardown(test_wake, setup, teardown),
                cmocka_unit_test_setup_teardown(test_read_only, setup, teardown),
                cmocka_unit_test_setup_teardown(test_other_process, setup, teardown),
                cmocka_unit_test_setup_teardown(test_slots, setup, teardown),
                cmocka_unit_test_setup_teardown(test_same_slot, setup, teardown),
                cmocka_unit_test_setup_teardown(test_crowd, setup, teardown),
                cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
                cmocka_unit_test_setup_teardown(test_dead_before_wake, setup, teardown),
                cmocka_unit_test(test_edges),
                cmocka_unit_test_setup_teardown(test_ping_pong, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
