/* SPDX-License-Identifier: MIT */
/*
 * When to look
 *
 * Nobody tells the proxy that there is something to carry: kernels cannot wake a thread. So it looks, as long as things
 * move and for SPIN_NS after that; a request that waits for other nodes for longer does not keep a processor busy. Then
 * it sleeps between looks: NAP_NS, and after IDLE_NS without anything DOZE_NS. So the first request after a silence
 * finds it late by that much at most, about as late as a parked kernel. (The fabric could wake it, by the area's
 * eventfd; but that is one for all executors of the node, and what a rank here pushes would still wait.) Without wires
 * the thread waits for the control thread. The system is told that naps are meant as they are: by itself it adds up to
 * 50 us to each, as much again as the nap.
 *
 * Each look begins with another communicator, so none is always the last.
 *
 * The lock is held for each look. So that a thread which always wants it does not always get it, the control thread
 * says beforehand that it comes.
 */
#include "gpu/hip/proxy.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "gpu/hip/error.h"
#include "gpu/hip/wires.h"
#include "util/clock.h"
#include "util/thread.h"
#include "util/yield.h"

#define SPIN_NS UINT64_C(500000)
#define IDLE_NS UINT64_C(100000000)
#define NAP_NS  50000
#define DOZE_NS 1000000
#define LATE_NS 1000ul /* that a nap may be longer */

void proxy_init(struct proxy *proxy) {
        memset(proxy, 0, sizeof(*proxy));
        pthread_mutex_init(&proxy->lock, NULL);
        pthread_cond_init(&proxy->some, NULL);
}

static void proxy_lock(struct proxy *proxy) {
        atomic_fetch_add_explicit(&proxy->waiting, 1, memory_order_relaxed); /* a hint */
        pthread_mutex_lock(&proxy->lock);
        atomic_fetch_sub_explicit(&proxy->waiting, 1, memory_order_relaxed);
}

static void proxy_rest(struct yielder *yielder, uint64_t silence_ns) {
        const struct timespec nap = {.tv_nsec = silence_ns < IDLE_NS ? NAP_NS : DOZE_NS};

        if (silence_ns >= SPIN_NS || !yielder_yield(yielder))
                nanosleep(&nap, NULL);
}

/* One look at everything. False: the thread is to end. */
static bool proxy_look(struct proxy *proxy, uint64_t *ret_now_ns, bool *ret_moved) {
        bool stop;

        while (atomic_load_explicit(&proxy->waiting, memory_order_relaxed))
                sched_yield();
        *ret_moved = false;
        pthread_mutex_lock(&proxy->lock);
        while (!proxy->stop && !proxy->n_wires)
                pthread_cond_wait(&proxy->some, &proxy->lock);
        stop = proxy->stop;
        *ret_now_ns = clock_now_ns();
        for (uint32_t i = 0; !stop && i < proxy->n_wires; i++)
                *ret_moved = wires_step_at(proxy->wires[(proxy->turn + i) % proxy->n_wires], *ret_now_ns) || *ret_moved;
        proxy->turn++;
        pthread_mutex_unlock(&proxy->lock);
        return !stop;
}

static void *proxy_main(void *data) {
        struct proxy *proxy = data;
        uint64_t last_ns = clock_now_ns(), now_ns;
        struct yielder yielder = {0};
        bool moved;

        (void)prctl(PR_SET_NAME, "rmx-proxy");
        (void)prctl(PR_SET_TIMERSLACK, LATE_NS); /* else naps are longer, and all is right */
        while (proxy_look(proxy, &now_ns, &moved)) {
                if (moved)
                        last_ns = now_ns;
                else
                        proxy_rest(&yielder, now_ns - last_ns);
        }
        return NULL;
}

static int proxy_start(struct proxy *proxy, char *error) {
        int r;

        if (proxy->running)
                return 0;
        r = -thread_start(&proxy->thread, NULL, proxy_main, proxy);
        proxy->running = !r;
        return r ? error_set(r, error, "making a thread for other nodes: %s", strerror(-r)) : 0;
}

int proxy_add(struct proxy *proxy, struct wires *wires, char *error) {
        int r = proxy_start(proxy, error);

        if (r)
                return r;
        proxy_lock(proxy);
        if (proxy->n_wires == proxy->max_wires) {
                const uint32_t max = proxy->max_wires ? 2 * proxy->max_wires : 8;
                struct wires **more = realloc(proxy->wires, max * sizeof(struct wires *));

                if (!more) {
                        pthread_mutex_unlock(&proxy->lock);
                        return error_set(-ENOMEM, error, "out of memory");
                }
                proxy->wires = more;
                proxy->max_wires = max;
        }
        proxy->wires[proxy->n_wires++] = wires;
        pthread_cond_signal(&proxy->some);
        pthread_mutex_unlock(&proxy->lock);
        return 0;
}

bool proxy_remove(struct proxy *proxy, const struct wires *wires) {
        bool found = false;

        proxy_lock(proxy);
        for (uint32_t i = 0; i < proxy->n_wires && !found; i++)
                if (proxy->wires[i] == wires) {
                        proxy->wires[i] = proxy->wires[--proxy->n_wires];
                        found = true;
                }
        pthread_mutex_unlock(&proxy->lock);
        return found;
}

void proxy_deinit(struct proxy *proxy) {
        if (proxy->running) {
                proxy_lock(proxy);
                proxy->stop = true;
                pthread_cond_signal(&proxy->some);
                pthread_mutex_unlock(&proxy->lock);
                pthread_join(proxy->thread, NULL);
        }
        pthread_cond_destroy(&proxy->some);
        pthread_mutex_destroy(&proxy->lock);
        free(proxy->wires);
        memset(proxy, 0, sizeof(*proxy));
}
