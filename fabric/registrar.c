/* SPDX-License-Identifier: MIT */
/*
 * The thread that makes areas known to adapters, and takes them back.
 *
 * Registering pins every page of an area, and makes those that were never touched: a tenth of a microsecond for each at
 * best, tens of milliseconds for the staging of a large communicator, far more on a machine that is busy. Taking it
 * back and unmapping it take as long. The owner's loop would hear none of its peers meanwhile, and a rail would carry
 * nothing for anybody. So an area is in the table at once, and adapters know it later: what is posted meanwhile waits
 * among the parked of its connection, as it does for the other end's offer.
 *
 * What comes and what goes are one queue. Who makes and ends areas without a pause waits for his own leavings, and no
 * more of them pile up than were asked for.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/private.h"
#include "fabric/transport.h"
#include "util/clock.h"

static void regions_free(struct fabric *fabric, void *regions[FABRIC_RAILS_MAX]) {
        for (size_t i = 0; i < FABRIC_RAILS_MAX; i++) {
                if (regions[i])
                        fabric->rails[i]->transport->area_free(fabric->rails[i], regions[i]);
                regions[i] = NULL;
        }
}

void area_free(struct fabric_area *area) {
        regions_free(area->fabric, area->regions);
        if (area->mapping)
                munmap(area->mapping, area->size);
        close(area->wake_fd);
        free(area->wanted);
        free(area);
}

void registrar_take(struct fabric *fabric, struct fabric_area *area) {
        DL_APPEND(fabric->jobs, area);
        pthread_cond_signal(&fabric->jobs_wait);
}

void registrar_tell(struct fabric *fabric, struct fabric_area *area, int condition) {
        area->condition = condition;
        if (!fabric->told)
                fabric_ring(fabric->event_fd);
        DL_APPEND(fabric->told, area);
}

/* Gives the lock away meanwhile. The rails that are there now: no area knows of later ones. */
static void registrar_add(struct fabric *fabric, struct fabric_area *area) {
        void *regions[FABRIC_RAILS_MAX] = {0};
        size_t n_rails = fabric->n_rails;
        int r = 0;

        if (!area->gone) {
                void *staging = (uint8_t *)area->memory + area->memory_offset; /* removal takes area->memory away */

                area->registering = true;
                pthread_mutex_unlock(&fabric->lock);
                for (size_t i = 0; i < n_rails && r == 0; i++)
                        if (fabric->rails[i]->transport->area_add)
                                r = fabric->rails[i]->transport->area_add(fabric->rails[i], area, staging, &regions[i],
                                                                          area->text);
                if (r)
                        regions_free(fabric, regions);
                pthread_mutex_lock(&fabric->lock);
                area->registering = false;
                memcpy(area->regions, regions, sizeof(regions));
        }
        if (area->gone) {
                pthread_cond_broadcast(&fabric->quiet); /* fabric_area_remove() may wait */
                area_unref(area);
                return;
        }
        area_changed(area);
        registrar_tell(fabric, area, r);
}

void *registrar_run(void *data) {
        struct fabric *fabric = data;

        pthread_mutex_lock(&fabric->lock);
        while (!fabric->stop) {
                struct fabric_area *area = fabric->jobs;

                if (!area) {
                        pthread_cond_wait(&fabric->jobs_wait, &fabric->lock);
                        continue;
                }
                DL_DELETE(fabric->jobs, area);
                fabric->job_ns = clock_now_ns();
                if (area->n_refs > 0) {
                        registrar_add(fabric, area);
                } else {
                        pthread_mutex_unlock(&fabric->lock);
                        area_free(area);
                        pthread_mutex_lock(&fabric->lock);
                }
                fabric->job_ns = 0;
        }
        pthread_mutex_unlock(&fabric->lock);
        return NULL;
}

void fabric_registrations(struct fabric *fabric, struct fabric_registrations *ret_registrations) {
        struct fabric_registrations now = {0};
        const struct fabric_area *area;

        pthread_mutex_lock(&fabric->lock);
        DL_FOREACH(fabric->jobs, area) {
                now.queued++;
        }
        now.running = fabric->job_ns != 0;
        now.running_ns = now.running ? clock_now_ns() - fabric->job_ns : 0;
        pthread_mutex_unlock(&fabric->lock);
        *ret_registrations = now;
}

static struct fabric_area *fabric_failed_area(struct fabric *fabric) {
        struct fabric_area *area;

        for (area = fabric->areas; area; area = area->hh.next)
                if (area->failed && !area->failed_told)
                        return area;
        return NULL;
}

/* The owner may remove any area when it is told of one. */
static void areas_tell_failed(struct fabric *fabric) {
        const struct fabric_callbacks *callbacks = &fabric->options.callbacks;
        struct fabric_area *area;

        pthread_mutex_lock(&fabric->lock);
        while (fabric->areas_failed) {
                area = area_ref(fabric_failed_area(fabric));
                if (!area) {
                        fabric->areas_failed = false;
                        break;
                }
                area->failed_told = true;
                pthread_mutex_unlock(&fabric->lock);
                if (callbacks->area)
                        callbacks->area(fabric->options.data, area->key, FABRIC_E_REFUSED, area->failed);
                pthread_mutex_lock(&fabric->lock);
                area_unref(area);
        }
        pthread_mutex_unlock(&fabric->lock);
}

void registrar_dispatch(struct fabric *fabric, struct fabric_area *told) {
        const struct fabric_callbacks *callbacks = &fabric->options.callbacks;
        struct fabric_area *area, *tmp;

        DL_FOREACH_SAFE(told, area, tmp) {
                DL_DELETE(told, area);
                /* Only the owner, whose thread this is, removes areas. */
                if (callbacks->area && !area->gone)
                        callbacks->area(fabric->options.data, area->key, area->condition, area->text);
                pthread_mutex_lock(&fabric->lock);
                area_unref(area);
                pthread_mutex_unlock(&fabric->lock);
        }
        areas_tell_failed(fabric);
}

void registrar_free(struct fabric *fabric) {
        struct fabric_area *area, *tmp;

        DL_FOREACH_SAFE(fabric->told, area, tmp) {
                DL_DELETE(fabric->told, area);
                area_unref(area);
        }
        while ((area = fabric->jobs)) {
                DL_DELETE(fabric->jobs, area);
                if (area->n_refs == 0)
                        area_free(area);
                else
                        area_unref(area);
        }
}
