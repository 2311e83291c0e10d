/* SPDX-License-Identifier: MIT */
/*
 * An area's memory is touched under the lock, or without it by a thread that is counted in n_users. Such a thread is in
 * one call that does not wait (sendmsg, readv, SSL_write, SSL_read, a checksum), so fabric_area_remove() waits for as
 * long as that takes. The taker touches all queues all the time, without being counted; it goes by a version of the
 * table, and removal waits until it has seen the version without the area. Adapters, too, must not be told of memory
 * that has gone: removal waits for a registration under way (registrar.c), unless the memory is the fabric's own to
 * unmap, for then it stays until that has ended.
 *
 * Messages that are not sent yet hold their area, and its mapping. Those of an area that goes are dropped with it: for
 * a route that is down they would wait for half a minute, on a connection that died until its peer answers, if ever,
 * while nobody is charged for the memory. What is on a connection that lives is acknowledged soon, or dies with it
 * (conn_is_stuck()).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/transport.h"

struct fabric_area *area_ref(struct fabric_area *area) {
        if (area)
                area->n_refs++;
        return area;
}

void area_unref(struct fabric_area *area) {
        bool takes_long;

        if (!area || --area->n_refs > 0)
                return;
        if (area->changed)
                DL_DELETE2(area->fabric->changed, area, changed_prev, changed_next);
        takes_long = area->mapping != NULL;
        for (size_t i = 0; i < FABRIC_RAILS_MAX; i++)
                takes_long |= area->regions[i] != NULL;
        if (takes_long)
                registrar_take(area->fabric, area);
        else
                area_free(area);
}

void area_leave(struct fabric *fabric, struct fabric_area *area) {
        if (--area->n_users == 0 && area->gone)
                pthread_cond_broadcast(&fabric->quiet);
}

/* A copy of the header: executors may write to it while it is looked at, and at any time after. */
static bool area_head(const struct fabric_area_options *options, struct net_area *ret_head) {
        const struct net_area *memory = options->memory;

        if (!memory || options->size < NET_QUEUE)
                return false;
        *ret_head = (struct net_area){.magic = memory->magic,
                                      .version = memory->version,
                                      .capacity = memory->capacity,
                                      .memory_offset = memory->memory_offset,
                                      .memory_bytes = memory->memory_bytes};
        return net_area_valid(ret_head, options->size);
}

static int area_check(struct fabric *fabric, const struct fabric_area_options *options, struct net_area *ret_head) {
        if (!area_head(options, ret_head))
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT,
                                     "area %llx: not a net area of version %u in these %llu bytes",
                                     (unsigned long long)options->key, NET_VERSION, (unsigned long long)options->size);
        if (options->n_ranks == 0 || options->n_ranks > FABRIC_RANKS_MAX || !options->nodes)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT, "area %llx: %u ranks; from 1 to %u can be",
                                     (unsigned long long)options->key, options->n_ranks, FABRIC_RANKS_MAX);
        if (options->class >= FABRIC_N_CLASSES || options->weight == 0 || options->weight > SCHEDULE_WEIGHT_MAX)
                return fabric_refuse(fabric, FABRIC_E_ARGUMENT,
                                     "area %llx: class %u, weight %u; classes are 0 to %u, weights 1 to %u",
                                     (unsigned long long)options->key, options->class, options->weight,
                                     FABRIC_N_CLASSES - 1, SCHEDULE_WEIGHT_MAX);
        return 0;
}

static void area_take_rail(struct fabric_area *area, const struct fabric_rail *rail) {
        for (uint32_t r = 0; area->wanted && r < area->n_ranks; r++)
                if (strcmp(area->wanted[r], rail->name) == 0)
                        area->rails[r] = rail->index;
}

void areas_take_rail(struct fabric *fabric, const struct fabric_rail *rail) {
        struct fabric_area *area;

        for (area = fabric->areas; area; area = area->hh.next)
                area_take_rail(area, rail);
}

/* The nth one in turn of those that it may take. */
static uint8_t area_rail_in_turn(const struct fabric *fabric, const struct fabric_area *area, uint32_t nth) {
        uint8_t may[FABRIC_RAILS_MAX];
        uint32_t n = 0;

        for (size_t i = 0; i < fabric->n_rails; i++)
                if (rail_is_among(fabric->rails[i], area->only))
                        may[n++] = (uint8_t)i;
        return n ? may[nth % n] : 0;
}

static int area_set_rails(struct fabric *fabric, struct fabric_area *area, const char *const *rails) {
        for (uint32_t r = 0; r < area->n_ranks; r++) {
                uint32_t local = 0;

                for (uint32_t k = 0; k < r; k++)
                        local += memcmp(&area->nodes[k], &area->nodes[r], sizeof(area->nodes[r])) == 0;
                area->rails[r] = area_rail_in_turn(fabric, area, local);
        }
        if (!rails)
                return 0;
        area->wanted = calloc(area->n_ranks, sizeof(area->wanted[0]));
        if (!area->wanted)
                return -ENOMEM;
        for (uint32_t r = 0; r < area->n_ranks; r++)
                if (rails[r])
                        snprintf(area->wanted[r], sizeof(area->wanted[r]), "%s", rails[r]);
        for (size_t i = 0; i < fabric->n_rails; i++)
                area_take_rail(area, fabric->rails[i]);
        return 0;
}

void area_changed(struct fabric_area *area) {
        struct fabric *fabric = area->fabric;

        if (area->changed)
                DL_DELETE2(fabric->changed, area, changed_prev, changed_next);
        DL_APPEND2(fabric->changed, area, changed_prev, changed_next);
        /* relaxed: the lock orders it, the taker only wants to see it soon */
        area->changed = 1 + atomic_fetch_add_explicit(&fabric->areas_version, 1, memory_order_relaxed);
        fabric_ring(fabric->taker_fd);
        for (size_t i = 0; i < fabric->n_rails; i++)
                if (fabric->rails[i]->transport->conn_work)
                        rail_wake(fabric->rails[i]);
}

void area_fail(struct fabric_area *area, const char *why) {
        if (area->gone || area->failed)
                return;
        area->failed = why;
        area->fabric->areas_failed = true;
        fabric_ring(area->fabric->event_fd);
}

static bool fabric_registers(const struct fabric *fabric) {
        bool registers = false;

        for (size_t i = 0; i < fabric->n_rails; i++)
                registers |= fabric->rails[i]->transport->area_add != NULL;
        return registers;
}

int fabric_area_add(struct fabric *fabric, const struct fabric_area_options *options) {
        struct fabric_area *area, *old;
        struct net_area head;
        int r;

        r = area_check(fabric, options, &head);
        if (r)
                return r;
        area = calloc(1, sizeof(*area));
        if (!area)
                return -ENOMEM;
        area->wake_fd = fcntl(options->wake_fd, F_DUPFD_CLOEXEC, 0);
        if (area->wake_fd < 0) {
                r = -errno;
                free(area);
                return r;
        }
        area->key = options->key;
        area->memory = options->memory;
        area->size = options->size;
        area->capacity = head.capacity;
        area->memory_offset = head.memory_offset;
        area->memory_bytes = head.memory_bytes;
        memcpy(area->nodes, options->nodes, options->n_ranks * sizeof(area->nodes[0]));
        area->n_ranks = options->n_ranks;
        area->class = options->class;
        area->tenant = options->tenant;
        area->weight = options->weight;
        area->stripe_bytes = options->stripe_bytes ? options->stripe_bytes : fabric->options.stripe_bytes;
        area->only = options->only;
        area->n_refs = 1;
        /* What is unacknowledged on dying connections comes on top of what can be posted at all. */
        area->max_items = 8 * head.capacity;
        area->fabric = fabric;
        r = area_set_rails(fabric, area, options->rails);
        if (r) {
                area_free(area);
                return r;
        }

        pthread_mutex_lock(&fabric->lock);
        HASH_FIND(hh, fabric->areas, &area->key, sizeof(area->key), old);
        if (!old) {
                HASH_ADD(hh, fabric->areas, key, sizeof(area->key), area);
                if (!area->hh.tbl)
                        r = -ENOMEM;
        }
        if (!old && !r) {
                area->mapping = options->unmap ? options->memory : NULL;
                area->nth = HASH_COUNT(fabric->areas);
                area_changed(area);
                area_ref(area);
                if (fabric_registers(fabric))
                        registrar_take(fabric, area);
                else
                        registrar_tell(fabric, area, 0);
        }
        pthread_mutex_unlock(&fabric->lock);
        if (!old && !r)
                return 0;
        area_free(area);
        return old ? fabric_refuse(fabric, FABRIC_E_EXISTS, "area %llx is there already",
                                   (unsigned long long)options->key)
                   : r;
}

int fabric_area_remove(struct fabric *fabric, uint64_t key) {
        struct fabric_area *area;
        uint64_t version;

        pthread_mutex_lock(&fabric->lock);
        HASH_FIND(hh, fabric->areas, &key, sizeof(key), area);
        if (!area) {
                pthread_mutex_unlock(&fabric->lock);
                return fabric_refuse(fabric, FABRIC_E_UNKNOWN, "there is no area %llx", (unsigned long long)key);
        }
        HASH_DEL(fabric->areas, area);
        area->gone = true;
        area_changed(area);
        area_drop(fabric, area);
        version = atomic_load_explicit(&fabric->areas_version, memory_order_relaxed); /* under the lock */
        while (area->n_users > 0 || (area->registering && !area->mapping) ||
               (fabric->taker_running && fabric->taker_version < version))
                pthread_cond_wait(&fabric->quiet, &fabric->lock);
        area->memory = NULL;
        area_unref(area);
        pthread_mutex_unlock(&fabric->lock);
        return 0;
}

/* Nobody dials where nothing is sent, so only where something is it means anything that there is no connection. */
static void area_check_way(struct fabric *fabric, struct fabric_area *area, uint32_t rank, uint64_t now_ns) {
        struct fabric_peer *peer = area->n_to[rank] ? peer_of_node(fabric, &area->nodes[rank]) : NULL;
        uint64_t *cut_ns = &area->cut_ns[rank];

        if (peer && peer_watch_ends(fabric, peer, area->only, &area->watches[rank], now_ns) &&
            fabric_tell_cut_off(fabric, peer, area->key, "what it sends there does not arrive"))
                area->watches[rank].watched_ns = 0;
        if (peer && !peer_has_way(peer, area->only))
                peer->cut_off |= area->only;
        if (!peer || peer_count_up(fabric, peer, area->only, now_ns) > 0) {
                *cut_ns = 0;
                return;
        }
        if (*cut_ns == 0)
                *cut_ns = now_ns;
        if (time_passed(now_ns, *cut_ns) >= fabric->unreachable_ns &&
            !peer_shakes_hands(fabric, peer, area->only, *cut_ns, fabric->handshake_ns, now_ns) &&
            fabric_tell_cut_off(fabric, peer, area->key, "no rail that it may take has a connection"))
                *cut_ns = now_ns;
}

void areas_check_ways(struct fabric *fabric, uint64_t now_ns) {
        struct fabric_area *area;

        for (area = fabric->areas; area; area = area->hh.next)
                for (uint32_t r = 0; area->only != 0 && r < area->n_ranks; r++)
                        area_check_way(fabric, area, r, now_ns);
}

void areas_free(struct fabric *fabric) {
        struct fabric_area *area, *tmp;

        HASH_ITER(hh, fabric->areas, area, tmp) {
                HASH_DEL(fabric->areas, area);
                area->gone = true;
                area_unref(area);
        }
        registrar_free(fabric);
}
