/* SPDX-License-Identifier: MIT */
#include "tests/fabric/fake_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "tests/fabric/fake_device.h"
#include "tests/fabric/fake_queue.h"
#include "tests/fabric/fake_wire.h"
#include "util/clock.h"

/* libibverbs has no handle for all of it either. */
struct fake_world world = {.turnstile = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t fake_random(uint64_t *state) {
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        return z ^ z >> 31;
}

void world_lock(void) {
        pthread_mutex_lock(&world.turnstile);
        pthread_mutex_lock(&world.lock);
        pthread_mutex_unlock(&world.turnstile);
}

void world_unlock(void) {
        pthread_mutex_unlock(&world.lock);
}

void world_problem(const char *format, ...) {
        char *text;
        va_list arguments;

        if (world.n_problems == FAKE_PROBLEMS)
                return;
        va_start(arguments, format);
        if (vasprintf(&text, format, arguments) >= 0)
                world.problems[world.n_problems++] = text;
        va_end(arguments);
}

bool world_fails(enum fake_call call, int *ret_error) {
        struct fake_failure *failure = &world.failures[call];

        if (!failure->armed || failure->after-- > 0)
                return false;
        failure->armed = false;
        world.counters.calls_failed[call]++;
        *ret_error = failure->error;
        return true;
}

void world_quiet(void) {
        world.n_waiting++;
        while (world.copying)
                pthread_cond_wait(&world.calm, &world.lock);
        if (--world.n_waiting == 0)
                pthread_cond_signal(&world.wire);
}

void world_kick(void) {
        struct fake_qp *qp;

        LIST_FOREACH(qp, &world.qps, link) {
                if (qp->done < qp->posted)
                        qp->due_ns = 0;
        }
        pthread_cond_signal(&world.wire);
}

void world_acked(const struct fake_acks *acks, const char *what) {
        uint64_t end_ns = clock_now_ns() + (uint64_t)world.options.hang_ms * 1000000u;
        struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000u), .tv_nsec = (long)(end_ns % 1000000000u)};

        while (acks->acked < acks->read) {
                if (pthread_cond_timedwait(&world.calm, &world.lock, &end) == ETIMEDOUT) {
                        world_problem("%s: %llu events were read and not acknowledged: an adapter would hang", what,
                                      (unsigned long long)(acks->read - acks->acked));
                        return;
                }
        }
}

/* ------------------------------------------------------------------------------------------------------------ bells */

bool fake_bell_new(struct fake_bell *bell) {
        return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bell->fds) == 0;
}

void fake_bell_free(struct fake_bell *bell) {
        close(bell->fds[0]);
        close(bell->fds[1]);
}

bool fake_bell_ring(struct fake_bell *bell) {
        return bell->over || send(bell->fds[1], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

int fake_bell_take(const struct fake_bell *bell) {
        char token;
        ssize_t n;

        do
                n = read(bell->fds[0], &token, 1);
        while (n < 0 && errno == EINTR);
        if (n == 0)
                errno = EIO;
        return n == 1 ? 0 : -1;
}

void fake_bell_undo(struct fake_bell *bell) {
        char token;

        (void)!recv(bell->fds[0], &token, 1, MSG_DONTWAIT);
}

void fake_bell_end(struct fake_bell *bell) {
        bell->over = true;
        (void)shutdown(bell->fds[1], SHUT_RDWR);
}

/* ----------------------------------------------------------------------------------------------------------- events */

void fake_context_event(struct fake_context *context, enum ibv_event_type type, void *object) {
        struct fake_event *event = calloc(1, sizeof(*event));

        if (!event)
                abort();
        event->event.event_type = type;
        if (object)
                event->event.element.qp = object; /* a union of pointers, and of a number */
        else
                event->event.element.port_num = 1;
        STAILQ_INSERT_TAIL(&context->events, event, link);
        if (!fake_bell_ring(&context->bell))
                world_problem("nobody reads the events of %s", context->device->ibv.name);
}

void fake_device_event(struct fake_device *device, enum ibv_event_type type) {
        struct fake_context *context;

        LIST_FOREACH(context, &world.contexts, link) {
                if (context->device == device && !context->dead)
                        fake_context_event(context, type, NULL);
        }
}

static bool event_is_of(const struct ibv_async_event *event, const void *object) {
        switch (event->event_type) {
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_PORT_ERR:
        case IBV_EVENT_GID_CHANGE:
        case IBV_EVENT_DEVICE_FATAL:
                return false;
        default:
                return event->element.qp == object;
        }
}

void fake_context_forget(struct fake_context *context, const void *object) {
        struct fake_event *event = STAILQ_FIRST(&context->events), *next;

        for (; event; event = next) {
                next = STAILQ_NEXT(event, link);
                if (!event_is_of(&event->event, object))
                        continue;
                STAILQ_REMOVE(&context->events, event, fake_event, link);
                free(event);
                fake_bell_undo(&context->bell);
        }
}

void fake_context_free(struct fake_context *context) {
        struct fake_event *event;

        while ((event = STAILQ_FIRST(&context->events))) {
                STAILQ_REMOVE_HEAD(&context->events, link);
                free(event);
        }
        LIST_REMOVE(context, link);
        fake_bell_free(&context->bell);
        free(context);
}

/* -------------------------------------------------------------------------------------------------- begin and end */

#define WORLD_OPEN(type, list, what)                                                                                   \
        do {                                                                                                           \
                const struct type *object_;                                                                            \
                size_t count_ = 0;                                                                                     \
                LIST_FOREACH(object_, &world.list, link) {                                                             \
                        count_++;                                                                                      \
                }                                                                                                      \
                if (count_ > 0 && report)                                                                              \
                        world_problem("%zu %s left open", count_, what);                                               \
                n += count_;                                                                                           \
        } while (0)

static size_t world_open(bool report) {
        size_t n = world.n_lists;

        if (n > 0 && report)
                world_problem("%zu device lists not freed", n);
        WORLD_OPEN(fake_qp, qps, "queue pairs");
        WORLD_OPEN(fake_srq, srqs, "shared receive queues");
        WORLD_OPEN(fake_cq, cqs, "completion queues");
        WORLD_OPEN(fake_channel, channels, "completion channels");
        WORLD_OPEN(fake_mr, mrs, "memory regions");
        WORLD_OPEN(fake_pd, pds, "protection domains");
        WORLD_OPEN(fake_context, contexts, "contexts");
        return n;
}

void fake_begin(const struct fake_options *options) {
        pthread_condattr_t monotonic;
        bool was_running;

        world_lock();
        was_running = world.running;
        world.running = true;
        world_unlock();
        if (was_running)
                fail_msg("a test before left its fake adapters running");
        world_lock();
        world.options = options ? *options : (struct fake_options){0};
        if (!world.options.timeout_ms)
                world.options.timeout_ms = 50;
        if (!world.options.piece_bytes)
                world.options.piece_bytes = 16384;
        if (!world.options.hang_ms)
                world.options.hang_ms = 2000;
        world.random = world.options.seed;
        world.next_qp_num = 0x100 + (uint32_t)(fake_random(&world.random) & 0xfff);
        world.next_key = (uint32_t)(fake_random(&world.random) & 0xffffff) + 1;
        world.n_lists = world.n_problems = world.n_waiting = 0;
        world.stopping = world.copying = false;
        memset(&world.counters, 0, sizeof(world.counters));
        memset(&world.acks, 0, sizeof(world.acks));
        memset(world.failures, 0, sizeof(world.failures));
        STAILQ_INIT(&world.packets);
        assert_int_equal(pthread_condattr_init(&monotonic), 0);
        assert_int_equal(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC), 0);
        assert_int_equal(pthread_cond_init(&world.wire, &monotonic), 0);
        assert_int_equal(pthread_cond_init(&world.calm, &monotonic), 0);
        pthread_condattr_destroy(&monotonic);
        assert_int_equal(pthread_create(&world.thread, NULL, fake_wire_run, NULL), 0);
        world_unlock();
}

#define WORLD_FREE(list, function)                                                                                     \
        do {                                                                                                           \
                while (!LIST_EMPTY(&world.list))                                                                       \
                        function(LIST_FIRST(&world.list));                                                             \
        } while (0)

static void world_free(void) {
        struct fake_device *device;
        struct fake_pd *pd;

        fake_wire_drop_packets(NULL);
        WORLD_FREE(qps, fake_qp_free);
        WORLD_FREE(srqs, fake_srq_free);
        WORLD_FREE(cqs, fake_cq_free);
        WORLD_FREE(channels, fake_channel_free);
        WORLD_FREE(mrs, fake_mr_free);
        while ((pd = LIST_FIRST(&world.pds))) {
                LIST_REMOVE(pd, link);
                free(pd);
        }
        WORLD_FREE(contexts, fake_context_free);
        while ((device = LIST_FIRST(&world.devices))) {
                LIST_REMOVE(device, link);
                free(device);
        }
}

/* Who still uses them does so under the same lock, and reaches nobody. */
static void world_forget(void) {
        fake_wire_drop_packets(NULL);
        LIST_INIT(&world.qps);
        LIST_INIT(&world.srqs);
        LIST_INIT(&world.cqs);
        LIST_INIT(&world.channels);
        LIST_INIT(&world.mrs);
        LIST_INIT(&world.pds);
        LIST_INIT(&world.contexts);
        LIST_INIT(&world.devices);
}

uint32_t fake_finish(bool used) {
        uint32_t n;

        world_lock();
        world.stopping = true;
        pthread_cond_signal(&world.wire);
        world_unlock();
        pthread_join(world.thread, NULL);

        world_lock();
        used &= world_open(true) > 0;
        if (world.acks.acked != world.acks.read)
                world_problem("%llu events of ports and devices were not acknowledged",
                              (unsigned long long)(world.acks.read - world.acks.acked));
        if (world.counters.ghosts > 0)
                world_problem("%llu writes to destroyed queue pairs", (unsigned long long)world.counters.ghosts);
        if (used)
                world_forget();
        else
                world_free();
        n = world.n_problems;
        for (uint32_t i = 0; i < n; i++) {
                print_error("fake adapters: %s\n", world.problems[i]);
                free(world.problems[i]);
        }
        world.n_problems = 0;
        if (!used) {
                pthread_cond_destroy(&world.wire);
                pthread_cond_destroy(&world.calm);
        }
        world.running = false;
        world_unlock();
        return n;
}

void fake_end(void) {
        uint32_t n = fake_finish(true);

        if (n > 0)
                fail_msg("%u problems with adapters", n);
}

bool fake_take_problem(const char *text) {
        bool found = false;

        world_lock();
        for (uint32_t i = 0; i < world.n_problems && !found; i++) {
                if (!strstr(world.problems[i], text))
                        continue;
                found = true;
                free(world.problems[i]);
                world.problems[i] = world.problems[--world.n_problems];
        }
        world_unlock();
        return found;
}

size_t fake_open(void) {
        size_t n;

        world_lock();
        n = world_open(false);
        world_unlock();
        return n;
}

void fake_counters(struct fake_counters *ret_counters) {
        world_lock();
        *ret_counters = world.counters;
        world_unlock();
}
