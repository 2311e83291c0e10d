/* SPDX-License-Identifier: MIT */
/*
 * One lock guards everything, and nothing that may take long is done under it: sockets, TLS, checksums of data and
 * copies of more than some kilobytes of data (CONN_IN) are done without it, by the one thread that owns the connection.
 * What such a thread uses meanwhile cannot go away: connections are ended by their own thread only (others mark them),
 * frames in the ring belong to it, and areas count their users. So whatever a function finds under the lock is as it
 * says, and there is one order of things. For each message the lock is taken a few times for less than a microsecond,
 * which is a tenth of what a sendmsg() costs.
 *
 * The ways of a message: taker.c takes it out of an area, place.c chooses a rail, schedule.c says when, tcp/ or verbs/
 * carry it, recover.c sees to it when a connection dies. What takes long about areas is registrar.c's.
 *
 * The owner's callbacks are not called by the fabric's threads: what they have to say waits in a list until
 * fabric_dispatch(). The list has a bound; when the owner does not come, what is new is left out, as the rows and
 * counters have the truth.
 */
#include <assert.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "util/clock.h"
#include "util/processors.h"
#include "util/thread.h"

#define EVENTS_MAX   1024u
#define VIOLATION_NS UINT64_C(1000000000)

#define SPIN_PROCESSORS 8
#define SPIN_NS         UINT64_C(1000000) /* longer than a request between nodes takes: a rail may be left out of one */
#define SPIN_FEW_NS     UINT64_C(20000)
#define LOCK_LOOKS      40u

struct fabric_event {
        struct fabric_event *next;
        enum { EVENT_ROUTE, EVENT_UNREACHABLE, EVENT_LOST, EVENT_CUT_OFF, EVENT_VIOLATION } kind;
        struct fabric_node peer;
        char rail[FABRIC_NAME_MAX + 1];
        enum fabric_route_state state;
        uint64_t key;
        char text[FABRIC_TEXT];
};

int fabric_refuse(struct fabric *fabric, int condition, const char *format, ...) {
        va_list args;

        va_start(args, format);
        vsnprintf(fabric->error, sizeof(fabric->error), format, args);
        va_end(args);
        fabric->error_number = 0;
        return condition;
}

const char *fabric_error(const struct fabric *fabric) {
        return fabric->error;
}

int fabric_errno(const struct fabric *fabric) {
        return fabric->error_number;
}

void fabric_ring(int fd) {
        const uint64_t one = 1;
        ssize_t n;

        do
                n = write(fd, &one, sizeof(one));
        while (n < 0 && errno == EINTR);
        /* Full means rung. */
}

void fabric_unring(int fd) {
        uint64_t count;
        ssize_t n;

        do
                n = read(fd, &count, sizeof(count));
        while (n < 0 && errno == EINTR);
}

static struct fabric_event *fabric_tell(struct fabric *fabric, int kind, const struct fabric_node *peer,
                                        const char *text) {
        struct fabric_event *event;

        if (fabric->n_events >= EVENTS_MAX)
                return NULL;
        event = calloc(1, sizeof(*event));
        if (!event)
                return NULL;
        event->kind = kind;
        if (peer)
                event->peer = *peer;
        snprintf(event->text, sizeof(event->text), "%s", text);
        LL_APPEND(fabric->events, event);
        if (fabric->n_events++ == 0)
                fabric_ring(fabric->event_fd);
        return event;
}

void fabric_tell_route(struct fabric *fabric, const struct fabric_route *route, const char *why) {
        struct fabric_event *event = fabric_tell(fabric, EVENT_ROUTE, &route->peer->node, why);

        if (!event)
                return;
        event->state = route->health.state;
        memcpy(event->rail, route->rail->name, sizeof(event->rail));
}

bool fabric_tell_unreachable(struct fabric *fabric, const struct fabric_peer *peer, const char *why) {
        return fabric_tell(fabric, EVENT_UNREACHABLE, &peer->node, why) != NULL;
}

bool fabric_tell_lost(struct fabric *fabric, const struct fabric_peer *peer) {
        return fabric_tell(fabric, EVENT_LOST, &peer->node, peer->lost) != NULL;
}

bool fabric_tell_cut_off(struct fabric *fabric, const struct fabric_peer *peer, uint64_t key, const char *why) {
        struct fabric_event *event = fabric_tell(fabric, EVENT_CUT_OFF, &peer->node, why);

        if (event)
                event->key = key;
        return event != NULL;
}

void fabric_tell_violation(struct fabric *fabric, struct fabric_peer *peer, uint64_t key, const char *text) {
        uint64_t *last_ns = peer ? &peer->violation_ns : &fabric->violation_ns, now_ns = clock_now_ns();
        struct fabric_event *event;

        if (*last_ns && now_ns - *last_ns < VIOLATION_NS)
                return;
        event = fabric_tell(fabric, EVENT_VIOLATION, peer ? &peer->node : NULL, text);
        if (!event)
                return;
        *last_ns = now_ns;
        event->key = key;
}

void fabric_dispatch(struct fabric *fabric) {
        const struct fabric_callbacks *callbacks = &fabric->options.callbacks;
        void *data = fabric->options.data;
        struct fabric_event *events, *event, *tmp;
        struct fabric_area *told;

        pthread_mutex_lock(&fabric->lock);
        events = fabric->events;
        fabric->events = NULL;
        fabric->n_events = 0;
        told = fabric->told;
        fabric->told = NULL;
        fabric_unring(fabric->event_fd);
        pthread_mutex_unlock(&fabric->lock);
        registrar_dispatch(fabric, told);
        LL_FOREACH_SAFE(events, event, tmp) {
                switch (event->kind) {
                case EVENT_ROUTE:
                        if (callbacks->route)
                                callbacks->route(data, &event->peer, event->rail, event->state, event->text);
                        break;
                case EVENT_UNREACHABLE:
                        if (callbacks->unreachable)
                                callbacks->unreachable(data, &event->peer, event->text);
                        break;
                case EVENT_LOST:
                        if (callbacks->lost)
                                callbacks->lost(data, &event->peer, event->text);
                        break;
                case EVENT_CUT_OFF:
                        if (callbacks->cut_off)
                                callbacks->cut_off(data, &event->peer, event->key, event->text);
                        break;
                case EVENT_VIOLATION:
                        if (callbacks->violation)
                                callbacks->violation(data, &event->peer, event->key, event->text);
                        break;
                }
                free(event);
        }
}

int fabric_event_fd(const struct fabric *fabric) {
        return fabric->event_fd;
}

int fabric_doorbell_fd(const struct fabric *fabric) {
        return fabric->doorbell_fd;
}

int fabric_thread(pthread_t *thread, void *(*run)(void *), void *data, const char *name) {
        int r = thread_start(thread, NULL, run, data);

        if (r == 0)
                (void)pthread_setname_np(*thread, name);
        return -r;
}

static uint64_t ms_or(uint32_t value, uint32_t otherwise) {
        return (uint64_t)(value ? value : otherwise) * 1000000u;
}

int fabric_new(const struct fabric_options *options, struct fabric **ret_fabric) {
        const struct fabric_times *times = &options->times;
        const uint32_t processors = processors_usable();
        pthread_mutexattr_t attributes;
        struct fabric *fabric;
        int r;

        if (!options->cluster || strlen(options->cluster) > FABRIC_NAME_MAX)
                return FABRIC_E_ARGUMENT;
        fabric = calloc(1, sizeof(*fabric));
        if (!fabric)
                return -ENOMEM;
        fabric->options = *options;
        if (fabric->options.tls)
                SSL_CTX_up_ref(fabric->options.tls);
        memcpy(fabric->cluster, options->cluster, strlen(options->cluster));
        fabric->options.cluster = fabric->cluster;
        if (!fabric->options.stripe_bytes)
                fabric->options.stripe_bytes = 65536;
        fabric->heartbeat_ns = ms_or(times->heartbeat, 200);
        fabric->deadline_ns = ms_or(times->deadline, 800);
        fabric->handshake_ns = ms_or(times->handshake, 5000);
        fabric->unreachable_ns = ms_or(times->unreachable, 1000);
        fabric->spin_ns = fabric->rail_spin_ns = (uint64_t)times->spin_us * 1000u;
        if (!times->spin_us) {
                fabric->spin_ns = processors >= SPIN_PROCESSORS ? SPIN_NS : SPIN_FEW_NS;
                fabric->rail_spin_ns = processors >= SPIN_PROCESSORS ? SPIN_NS : 0;
        }
        fabric->limits = (struct route_limits){.hold_ns = ms_or(times->hold_down, 250),
                                               .hold_max_ns = ms_or(times->hold_max, 30000),
                                               .suspect_ns = 2 * fabric->deadline_ns};
        /* Held for a microsecond at a time, and by threads that look on: sleeping for it would take fifty
         * (fabric_lock). */
        fabric->lock_looks = processors >= SPIN_PROCESSORS ? LOCK_LOOKS : 0;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
        pthread_mutex_init(&fabric->lock, &attributes);
        pthread_mutexattr_destroy(&attributes);
        pthread_cond_init(&fabric->quiet, NULL);
        pthread_cond_init(&fabric->jobs_wait, NULL);
        fabric->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        fabric->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        fabric->taker_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fabric->event_fd < 0 || fabric->doorbell_fd < 0 || fabric->taker_fd < 0) {
                r = -errno;
                goto fail;
        }
        fabric->taker_running = true;
        r = fabric_thread(&fabric->taker, taker_run, fabric, "fabric-taker");
        if (r) {
                fabric->taker_running = false;
                goto fail;
        }
        fabric->taker_joinable = true;
        r = fabric_thread(&fabric->registrar, registrar_run, fabric, "fabric-areas");
        if (r)
                goto fail;
        fabric->registrar_joinable = true;
        *ret_fabric = fabric;
        return 0;
fail:
        fabric_free(fabric);
        return r;
}

struct fabric *fabric_free(struct fabric *fabric) {
        struct schedule_item *item, *item_tmp;
        struct fabric_event *event, *tmp;

        if (!fabric)
                return NULL;
        pthread_mutex_lock(&fabric->lock);
        fabric->stop = true;
        /* relaxed: the lock orders it */
        atomic_fetch_add_explicit(&fabric->areas_version, 1, memory_order_relaxed);
        if (fabric->taker_fd >= 0)
                fabric_ring(fabric->taker_fd);
        for (size_t i = 0; i < fabric->n_rails; i++)
                rail_wake(fabric->rails[i]);
        pthread_cond_signal(&fabric->jobs_wait);
        pthread_mutex_unlock(&fabric->lock);
        if (fabric->registrar_joinable)
                pthread_join(fabric->registrar, NULL);
        if (fabric->taker_joinable)
                pthread_join(fabric->taker, NULL);
        for (size_t i = 0; i < fabric->n_rails; i++)
                if (fabric->rails[i]->running)
                        pthread_join(fabric->rails[i]->thread, NULL);
        peers_drop(fabric); /* what is said of them now, nobody hears */
        pthread_mutex_lock(&fabric->lock);
        for (size_t i = 0; i < fabric->n_rails; i++)
                while (fabric->rails[i]->conns)
                        conn_bury(fabric->rails[i]->conns, 0);
        pthread_mutex_unlock(&fabric->lock);
        areas_free(fabric);
        rails_free(fabric);
        LL_FOREACH_SAFE(fabric->spare, item, item_tmp)
                free(item);
        LL_FOREACH_SAFE(fabric->events, event, tmp)
                free(event);
        if (fabric->event_fd >= 0)
                close(fabric->event_fd);
        if (fabric->doorbell_fd >= 0)
                close(fabric->doorbell_fd);
        if (fabric->taker_fd >= 0)
                close(fabric->taker_fd);
        pthread_cond_destroy(&fabric->jobs_wait);
        pthread_cond_destroy(&fabric->quiet);
        pthread_mutex_destroy(&fabric->lock);
        SSL_CTX_free(fabric->options.tls);
        free(fabric);
        return NULL;
}

void fabric_set_tls(struct fabric *fabric, SSL_CTX *tls) {
        SSL_CTX *old;

        assert(tls && fabric->options.tls);
        SSL_CTX_up_ref(tls);
        pthread_mutex_lock(&fabric->lock);
        old = fabric->options.tls;
        fabric->options.tls = tls;
        pthread_mutex_unlock(&fabric->lock);
        SSL_CTX_free(old); /* connections have references of their own */
}
