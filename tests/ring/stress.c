/* SPDX-License-Identifier: MIT */
/*
 * Many threads on one ring, starting just before the wrap.
 *
 * Client side: threads that publish under a lock, and each waits for its own request, with long and very short
 * timeouts, so that they come and go as sleepers of slots. Executor side: one thread that latches and sleeps on its
 * eventfd, and two that complete in mixed order. Inputs and outputs are plain memory.
 *
 *   one mapping    both sides use the same addresses, so ThreadSanitizer sees every pair of accesses
 *   two mappings   as in real life: each side has its own, the client's of the executor area read-only
 *   kill           the executor is a process that is killed at random moments while clients go on
 *
 * usage: stress [REQUESTS_PER_THREAD]
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "areas.h"
#include "tests/cmocka_all.h"

#define N_CLIENTS     4
#define DEPTH         8
#define FIRST         0xffffff00u
#define LONG_NS       INT64_C(60000000000)
#define KILLS         150
#define OUTPUT_OFFSET 1024 /* of the executor area; the ring does not use what is there */

static uint32_t n_requests = 20000; /* of each client thread */

static struct {
        struct areas areas;
        struct ring_producer producer;
        struct ring_consumer consumer;
        int event_fd, epoll_fd;
        pthread_mutex_t lock; /* producer.publish and release */
        pthread_cond_t released;
        /* plain words of the slots: inputs in the argument space, outputs behind the completion words; each side's
         * addresses */
        uint32_t (*client_input)[16];
        const uint32_t (*client_output)[16], (*executor_input)[16];
        uint32_t (*executor_output)[16];
        /* executor: latched, to be completed */
        pthread_mutex_t queue_lock;
        pthread_cond_t queued;
        uint32_t queue[DEPTH], n_queue;
        struct ring_request request[DEPTH]; /* of the slot, as the executor keeps it */
        bool stop;
        const char *complaint;
} stress;

static void complain(const char *text) {
        __atomic_store_n(&stress.complaint, text, __ATOMIC_RELAXED); /* any one of them will do; read after all joins */
}

static uint32_t slot_of(uint32_t sequence) {
        return sequence & (DEPTH - 1);
}

static uint32_t client_publish(const struct ring_request *request) {
        const uint64_t one = 1;
        uint32_t sequence;
        bool wake;

        pthread_mutex_lock(&stress.lock);
        for (;;) {
                uint32_t slot = slot_of(stress.producer.next);

                if (stress.producer.in_flight[0] >> slot & 1) {
                        pthread_cond_wait(&stress.released, &stress.lock);
                        continue;
                }
                for (uint32_t i = 0; i < 16; i++)
                        stress.client_input[slot][i] = request->word[i];
                if (ring_producer_publish(&stress.producer, request, &sequence) != RING_OK)
                        complain("publish failed on a free slot");
                break;
        }
        wake = ring_producer_must_wake(&stress.producer);
        pthread_mutex_unlock(&stress.lock);
        if (wake && write(stress.event_fd, &one, sizeof(one)) != sizeof(one))
                complain("eventfd");
        return sequence;
}

static void client_release(uint32_t sequence) {
        pthread_mutex_lock(&stress.lock);
        ring_producer_release(&stress.producer, sequence);
        pthread_cond_broadcast(&stress.released);
        pthread_mutex_unlock(&stress.lock);
}

static void *client_main(void *argument) {
        unsigned int seed = (unsigned int)(uintptr_t)argument;

        for (uint32_t n = 0; n < n_requests; n++) {
                struct ring_request request = areas_request((uint32_t)rand_r(&seed));
                uint32_t sequence = client_publish(&request), slot = slot_of(sequence), status = 0;
                int r = RING_E_AGAIN;

                while (r == RING_E_AGAIN && rand_r(&seed) % 4)
                        r = ring_producer_wait(&stress.producer, sequence, rand_r(&seed) % 40000, &status);
                if (r == RING_E_AGAIN)
                        r = ring_producer_wait(&stress.producer, sequence, LONG_NS, &status);
                if (r != RING_OK)
                        complain("a wake-up was lost");
                if (status != request.word[5])
                        complain("status of another request");
                for (uint32_t i = 0; i < 16; i++)
                        if (stress.client_output[slot][i] != request.word[i] + 1)
                                complain("output not final");
                client_release(sequence);
        }
        return NULL;
}

static void *latcher_main(void *argument) {
        struct ring_request request;
        struct epoll_event event;
        uint32_t sequence;

        (void)argument;
        for (uint32_t left = N_CLIENTS * n_requests; left;) {
                if (ring_consumer_latch(&stress.consumer, &request, &sequence) == RING_OK) {
                        pthread_mutex_lock(&stress.queue_lock);
                        stress.request[slot_of(sequence)] = request;
                        stress.queue[stress.n_queue++] = sequence;
                        pthread_cond_signal(&stress.queued);
                        pthread_mutex_unlock(&stress.queue_lock);
                        left--;
                        continue;
                }
                if (!ring_consumer_sleep(&stress.consumer) && epoll_wait(stress.epoll_fd, &event, 1, 60000) != 1)
                        complain("asleep with a line in the ring");
                ring_consumer_awake(&stress.consumer);
        }
        pthread_mutex_lock(&stress.queue_lock);
        stress.stop = true;
        pthread_cond_broadcast(&stress.queued);
        pthread_mutex_unlock(&stress.queue_lock);
        return NULL;
}

static void *completer_main(void *argument) {
        unsigned int seed = (unsigned int)(uintptr_t)argument;

        for (;;) {
                uint32_t sequence, slot, i;

                pthread_mutex_lock(&stress.queue_lock);
                while (!stress.n_queue && !stress.stop)
                        pthread_cond_wait(&stress.queued, &stress.queue_lock);
                if (!stress.n_queue) {
                        pthread_mutex_unlock(&stress.queue_lock);
                        return NULL;
                }
                i = (uint32_t)rand_r(&seed) % stress.n_queue;
                sequence = stress.queue[i];
                stress.queue[i] = stress.queue[--stress.n_queue];
                pthread_mutex_unlock(&stress.queue_lock);
                slot = slot_of(sequence);
                for (i = 0; i < 16; i++) {
                        if (stress.executor_input[slot][i] != stress.request[slot].word[i])
                                complain("input not there");
                        stress.executor_output[slot][i] = stress.request[slot].word[i] + 1;
                }
                ring_consumer_complete(&stress.consumer, sequence, stress.request[slot].word[5]);
        }
}

static void stress_init(bool one_mapping) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};
        struct areas *a = &stress.areas;
        const void *client_ro, *executor_ro;

        memset(&stress, 0, sizeof(stress));
        areas_init(a, DEPTH);
        client_ro = one_mapping ? a->client_rw : a->client_ro;
        executor_ro = one_mapping ? a->executor_rw : a->executor_ro;
        ring_producer_init(&stress.producer, &a->layout, a->client_rw, executor_ro, FIRST);
        ring_consumer_init(&stress.consumer, &a->layout, client_ro, a->executor_rw, FIRST);
        stress.client_input = (void *)((char *)a->client_rw + a->layout.argument_offset);
        stress.executor_input = (const void *)((const char *)client_ro + a->layout.argument_offset);
        stress.executor_output = (void *)((char *)a->executor_rw + OUTPUT_OFFSET);
        stress.client_output = (const void *)((const char *)executor_ro + OUTPUT_OFFSET);
        pthread_mutex_init(&stress.lock, NULL);
        pthread_mutex_init(&stress.queue_lock, NULL);
        pthread_cond_init(&stress.released, NULL);
        pthread_cond_init(&stress.queued, NULL);
        stress.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        stress.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        assert_int_equal(epoll_ctl(stress.epoll_fd, EPOLL_CTL_ADD, stress.event_fd, &event), 0);
}

static void stress_deinit(void) {
        close(stress.epoll_fd);
        close(stress.event_fd);
        areas_deinit(&stress.areas);
        if (stress.complaint)
                fail_msg("%s", stress.complaint);
}

static void run_threads(bool one_mapping) {
        void *(*const mains[])(void *) = {latcher_main, completer_main, completer_main};
        pthread_t thread[3 + N_CLIENTS];

        stress_init(one_mapping);
        for (uintptr_t i = 0; i < 3 + N_CLIENTS; i++)
                assert_int_equal(pthread_create(&thread[i], NULL, i < 3 ? mains[i] : client_main, (void *)(i + 1)), 0);
        for (int i = 0; i < 3 + N_CLIENTS; i++)
                pthread_join(thread[i], NULL);
        stress_deinit();
}

static void test_one_mapping(void **state) {
        (void)state;
        run_threads(true);
}

static void test_two_mappings(void **state) {
        (void)state;
        run_threads(false);
}

/* ---- kill ----------------------------------------------------------------------------------------------------------
 */

/* Shared with the executor processes. */
struct ghost {
        _Atomic uint32_t begun[1u << 16]; /* by request number: latched as new. relaxed: read for comparison only */
        _Atomic uint32_t n_begun_twice, n_relatched, n_completed;
        _Atomic uint32_t kill_at; /* n_completed at which the killer is to be woken; 0: it is awake */
        _Atomic uint32_t n_clients;
        sem_t kill;
};

/* more: another request has been latched. */
static void executor_complete(struct ghost *ghost, const struct ring_request *request, uint32_t sequence, bool more) {
        uint32_t n, at;

        ring_consumer_complete(&stress.consumer, sequence, request->word[5]);
        n = atomic_fetch_add(&ghost->n_completed, 1) + 1; /* a count, with the load in test_kill */
        at = atomic_load(&ghost->kill_at);                /* with the store in test_kill */
        if (at && n >= at) {
                atomic_store(&ghost->kill_at, 0); /* the killer does not arm it before it has been woken */
                sem_post(&ghost->kill);
                /* Kills at any moment often find nothing in flight, so every other one finds something for certain. */
                while (more && at % 2)
                        pause();
        }
}

static void executor_main(struct ghost *ghost) {
        struct areas *a = &stress.areas;
        struct ring_request request, held = {0};
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};
        uint32_t cursor = 0, sequence, held_sequence = 0;
        int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, stress.event_fd, &event) < 0)
                _exit(1);
        ring_consumer_init(&stress.consumer, &a->layout, a->client_ro, a->executor_rw, FIRST);
        while (ring_consumer_relatch(&stress.consumer, &cursor, &request, &sequence) == RING_OK) {
                atomic_fetch_add(&ghost->n_relatched, 1); /* a count, with the load in test_kill */
                executor_complete(ghost, &request, sequence, false);
        }
        for (;;) {
                if (ring_consumer_latch(&stress.consumer, &request, &sequence) == RING_OK) {
                        if (atomic_fetch_add(&ghost->begun[request.word[0] & 0xffff],
                                             1))                            /* with itself in another life */
                                atomic_fetch_add(&ghost->n_begun_twice, 1); /* with the load in test_kill */
                        /* one request is always left over for the next round, so that order is mixed and kills find
                         * something */
                        if (held_sequence)
                                executor_complete(ghost, &held, held_sequence, true);
                        held = request;
                        held_sequence = sequence;
                        continue;
                }
                if (held_sequence) {
                        executor_complete(ghost, &held, held_sequence, false);
                        held_sequence = 0;
                        continue;
                }
                if (!ring_consumer_sleep(&stress.consumer))
                        epoll_wait(epoll_fd, &event, 1, -1);
                ring_consumer_awake(&stress.consumer);
        }
}

static pid_t executor_spawn(struct ghost *ghost) {
        pid_t child = fork();

        assert_true(child >= 0);
        if (!child) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                executor_main(ghost);
        }
        return child;
}

struct killed_client {
        struct ghost *ghost;
        uint32_t number;
};

static void *killed_client_main(void *argument) {
        const struct killed_client *client = argument;

        for (uint32_t i = 0; !__atomic_load_n(&stress.stop, __ATOMIC_RELAXED) && i < 16384; i++) { /* with test_kill */
                struct ring_request request = areas_request(i);
                uint32_t sequence, status = 0;

                request.word[0] = client->number * 16384 + i;
                sequence = client_publish(&request);
                if (ring_producer_wait(&stress.producer, sequence, LONG_NS, &status) != RING_OK)
                        complain("not answered");
                if (status != request.word[5])
                        complain("status of another request");
                client_release(sequence);
        }
        /* The last one out: nothing is completed any more that the killer could wait for. */
        if (atomic_fetch_sub(&client->ghost->n_clients, 1) == 1) /* with the others here */
                for (int i = 0; i < KILLS; i++)
                        sem_post(&client->ghost->kill);
        return NULL;
}

static void test_kill(void **state) {
        struct ghost *ghost = mmap(NULL, sizeof(*ghost), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct killed_client client[N_CLIENTS];
        pthread_t thread[N_CLIENTS];
        unsigned int seed = 1;
        pid_t child;

        (void)state;
        assert_true(ghost != MAP_FAILED);
        assert_int_equal(sem_init(&ghost->kill, 1, 0), 0);
        ghost->n_clients = N_CLIENTS;
        stress_init(false);
        /* forking while other threads run: the child uses nothing but the ring */
        child = executor_spawn(ghost);
        for (uint32_t i = 0; i < N_CLIENTS; i++) {
                client[i] = (struct killed_client){.ghost = ghost, .number = i};
                assert_int_equal(pthread_create(&thread[i], NULL, killed_client_main, &client[i]), 0);
        }
        for (int i = 0; i < KILLS; i++) {
                /* After a random number of completions of this life, or when the clients are through. The killer sleeps
                 * until then: one that looks and yields leaves a loaded machine for a time slice at each look. */
                atomic_store(&ghost->kill_at, /* with the load in executor_complete */
                             atomic_load(&ghost->n_completed) + 1 + (uint32_t)rand_r(&seed) % 200);
                while (sem_wait(&ghost->kill) < 0)
                        continue; /* a signal */
                for (volatile uint32_t spin = (uint32_t)rand_r(&seed) % 4096; spin; spin--)
                        continue; /* not always at the same instruction */
                kill(child, SIGKILL);
                waitpid(child, NULL, 0);
                child = executor_spawn(ghost);
        }
        __atomic_store_n(&stress.stop, true, __ATOMIC_RELAXED); /* with killed_client_main */
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                pthread_join(thread[i], NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        print_message("%u completed, %u relatched after %u kills\n", ghost->n_completed, ghost->n_relatched, KILLS);
        assert_int_equal(ghost->n_begun_twice, 0);
        assert_true(ghost->n_relatched > 0);
        munmap(ghost, sizeof(*ghost));
        stress_deinit();
}

int main(int argc, char **argv) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_one_mapping),
                cmocka_unit_test(test_two_mappings),
                cmocka_unit_test(test_kill),
        };

        if (argc > 1)
                n_requests = (uint32_t)strtoul(argv[1], NULL, 10);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
