/* SPDX-License-Identifier: MIT */
/*
 * The thread that takes descriptors out of all areas and gives them to rails.
 *
 * It looks at the queues without the lock, in a list of its own. When it has found nothing for a while it sleeps as
 * ring/net.h says: it stores 1 in each area's fabric_asleep, fences and looks once more. An executor that posts after
 * that look sees the 1 and writes the doorbell, which is level-triggered here, so nothing is overlooked. An area that
 * came while it was asleep was announced by the other eventfd, and is looked at before the next sleep.
 *
 * It does not look on while others compute on its processors: when much time has gone by between two looks, it sleeps
 * at once for a while (util/yield.h).
 *
 * An executor that posts more than can be under way by the rules is not taken from until something has arrived: its own
 * queue then holds it back.
 */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "fabric/private.h"
#include "util/clock.h"

#define TAKER_BATCH    64u
#define TAKER_AGAIN_MS 10

struct taker {
        struct fabric *fabric;
        struct fabric_area **areas; /* references */
        size_t n_areas, n_room;
        size_t turn;
        uint64_t again_ns; /* when the table is to be looked at again, for there was no memory; 0: not */
};

struct taken {
        struct fabric_area *area;
        struct net_descriptor descriptor;
};

/* Under the lock. Keeps the old list if there is no memory, without those that went, and comes again. */
static void taker_look_at_table(struct taker *taker) {
        struct fabric *fabric = taker->fabric;
        size_t n = HASH_COUNT(fabric->areas), kept = 0;
        struct fabric_area *area, *tmp;

        taker->again_ns = 0;
        if (n > taker->n_room) {
                struct fabric_area **areas = reallocarray(taker->areas, n, sizeof(struct fabric_area *));

                if (areas) {
                        taker->areas = areas;
                        taker->n_room = n;
                }
        }
        if (n > taker->n_room) {
                for (size_t i = 0; i < taker->n_areas; i++) {
                        if (taker->areas[i]->gone)
                                area_unref(taker->areas[i]);
                        else
                                taker->areas[kept++] = taker->areas[i];
                }
                taker->n_areas = kept;
                /* Something else has to free memory first. */
                taker->again_ns = clock_now_ns() + TAKER_AGAIN_MS * UINT64_C(1000000);
        } else {
                for (size_t i = 0; i < taker->n_areas; i++)
                        area_unref(taker->areas[i]);
                taker->n_areas = 0;
                HASH_ITER(hh, fabric->areas, area, tmp)
                        taker->areas[taker->n_areas++] = area_ref(area);
        }
        /* relaxed: changed under the lock only, which we have */
        fabric->taker_version = atomic_load_explicit(&fabric->areas_version, memory_order_relaxed);
        pthread_cond_broadcast(&fabric->quiet);
}

/* Under the lock: what was taken goes its way. */
static void taker_give(struct fabric *fabric, const struct taken *taken) {
        const struct net_descriptor *d = &taken->descriptor;
        struct fabric_area *area = taken->area;
        struct fabric_peer *peer;
        struct fabric_item *item;

        fabric->counters.taken++;
        if (area->gone) {
                fabric->counters.dropped++;
                return;
        }
        if (!net_descriptor_valid(d, area->memory_offset, area->memory_bytes) || d->data_bytes > FRAME_DATA_MAX) {
                fabric->counters.out_of_bounds++;
                fabric_tell_violation(fabric, NULL, area->key, "an executor posted offsets outside of its area");
                return;
        }
        if (d->source >= area->n_ranks || d->destination >= area->n_ranks ||
            memcmp(&area->nodes[d->source], &fabric->options.self, sizeof(struct fabric_node)) != 0 ||
            memcmp(&area->nodes[d->destination], &fabric->options.self, sizeof(struct fabric_node)) == 0) {
                fabric->counters.wrong_rank++;
                fabric_tell_violation(fabric, NULL, area->key,
                                      "an executor posted something that does not go from here to another node");
                return;
        }
        peer = peer_of_node(fabric, &area->nodes[d->destination]);
        if (!peer) {
                fabric->counters.unknown_peer++;
                fabric_tell_violation(fabric, NULL, area->key, "an executor posted something for an unknown node");
                return;
        }
        item = item_new(fabric, area, peer, d->destination);
        if (!item) {
                fabric->counters.dropped++;
                peer->lost = "messages to it are lost: no memory";
                return;
        }
        item->kind = d->kind;
        item->source = d->source;
        item->value = d->value;
        item->data_bytes = d->data_bytes;
        item->line_offset = d->line_offset;
        item->data_offset = d->data_offset;
        item->schedule.bytes = (uint32_t)frame_bytes(d->kind, d->data_bytes);
        item_place(fabric, item);
}

/* May so much be taken from it as one batch has? */
static bool taker_may(const struct fabric_area *area) {
        /* relaxed: the taker alone makes it more, and who makes it less wakes a taker that was held back */
        uint32_t n_items = atomic_load_explicit(&area->n_items, memory_order_relaxed);

        return n_items == 0 || n_items + TAKER_BATCH <= area->max_items;
}

static size_t taker_take(struct taker *taker) {
        struct fabric *fabric = taker->fabric;
        struct taken taken[TAKER_BATCH];
        bool throttled = false;
        size_t n = 0;

        for (size_t i = 0; i < taker->n_areas && n < TAKER_BATCH; i++) {
                struct fabric_area *area = taker->areas[(taker->turn + i) % taker->n_areas];

                if (!taker_may(area)) {
                        throttled = true;
                        continue;
                }
                while (n < TAKER_BATCH &&
                       net_area_take(area->memory, area->capacity, &area->position, &taken[n].descriptor))
                        taken[n++].area = area;
        }
        taker->turn++;
        if (n == 0 && !throttled)
                return 0;
        fabric_lock(fabric);
        fabric->throttled = throttled;
        for (size_t i = 0; i < n; i++)
                taker_give(fabric, &taken[i]);
        pthread_mutex_unlock(&fabric->lock);
        return n;
}

static bool taker_sees_work(const struct taker *taker) {
        for (size_t i = 0; i < taker->n_areas; i++) {
                struct fabric_area *area = taker->areas[i];
                struct net_descriptor *d = net_area_descriptor(area->memory, area->capacity, area->position);

                /* Acquire as in net_area_take, which follows. */
                if (taker_may(area) && atomic_load_explicit(&d->turn, memory_order_acquire) == area->position + 1)
                        return true;
        }
        return false;
}

static void taker_sleep(struct taker *taker, int wait_ms) {
        struct fabric *fabric = taker->fabric;
        struct pollfd fds[] = {{.fd = fabric->doorbell_fd, .events = POLLIN},
                               {.fd = fabric->taker_fd, .events = POLLIN}};

        /* relaxed: the fence is what counts; partner: net_area_wake_fabric */
        for (size_t i = 0; i < taker->n_areas; i++)
                atomic_store_explicit(&taker->areas[i]->memory->fabric_asleep, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        if (!taker_sees_work(taker)) {
                (void)poll(fds, 2, taker->again_ns ? TAKER_AGAIN_MS : wait_ms);
                if (fds[0].revents)
                        fabric_unring(fabric->doorbell_fd);
                if (fds[1].revents)
                        fabric_unring(fabric->taker_fd);
        }
}

static void taker_wake_up(struct taker *taker) {
        for (size_t i = 0; i < taker->n_areas; i++)
                /* relaxed: who still sees 1 rings once too often */
                atomic_store_explicit(&taker->areas[i]->memory->fabric_asleep, 0, memory_order_relaxed);
}

void *taker_run(void *data) {
        struct taker taker = {.fabric = data};
        struct fabric *fabric = data;
        uint64_t busy_ns = clock_now_ns(), looked_ns = busy_ns, version = 0;

        for (;;) {
                uint64_t now_ns;

                /* relaxed: see areas_version */
                if (atomic_load_explicit(&fabric->areas_version, memory_order_relaxed) != version ||
                    (taker.again_ns && clock_now_ns() >= taker.again_ns)) {
                        fabric_lock(fabric);
                        taker_look_at_table(&taker);
                        version = fabric->taker_version;
                        if (fabric->stop)
                                break;
                        pthread_mutex_unlock(&fabric->lock);
                        busy_ns = looked_ns = clock_now_ns();
                }
                if (taker_take(&taker) > 0) {
                        busy_ns = looked_ns = clock_now_ns();
                        continue;
                }
                now_ns = clock_now_ns();
                yielder_note(&fabric->looks, looked_ns, now_ns, YIELDER_LOOKS_REST_NS);
                looked_ns = now_ns;
                if (now_ns - busy_ns >= fabric->spin_ns || yielder_rests(&fabric->looks, now_ns)) {
                        int wait_ms;

                        fabric_lock(fabric);
                        fabric->counters.sleeps++;
                        wait_ms = rails_watch(fabric, now_ns);
                        pthread_mutex_unlock(&fabric->lock);
                        taker_sleep(&taker, wait_ms);
                        /* An area that has gone must not be touched: those that go wait for us to look at the table. */
                        taker_wake_up(&taker);
                        busy_ns = looked_ns = clock_now_ns();
                }
        }
        for (size_t i = 0; i < taker.n_areas; i++)
                area_unref(taker.areas[i]);
        fabric->taker_running = false;
        pthread_mutex_unlock(&fabric->lock);
        free(taker.areas);
        return NULL;
}
