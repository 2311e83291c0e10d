/* SPDX-License-Identifier: MIT */
/*
 * Who is at the other end of a connection: HELLO, and the process behind it.
 *
 * Whether a process is the one that was there before, a successor or a stranger is told by its name and its random
 * instance. That it has ended is told by its pidfd, for executors of GPUs only: their comms span several executors, and
 * the others would wait for it.
 */
#include "daemon/comm_device.h"
#include "daemon/executor_link.h"
#include "daemon/handover.h"
#include "daemon/manager.h"
#include "daemon/state.h"
#include "proto/frame.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/parse.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

static const struct timeval executor_dismissal_time = {.tv_sec = 40}; /* it may wait for a GPU that stands still */

void executor_link_unwatch(struct executor_link *link) {
        if (link->pidfd_event)
                event_free(link->pidfd_event);
        link->pidfd_event = NULL;
        if (link->pidfd >= 0)
                close(link->pidfd);
        link->pidfd = -1;
}

static void executor_link_process_ended(evutil_socket_t socket_fd, short what, void *data) {
        struct executor_link *link = data;
        char reason[64];

        (void)socket_fd;
        (void)what;
        executor_link_unwatch(link);
        if (link->dismissed) {
                executor_link_dismissed(link);
                return;
        }
        executor_link_disconnect(link, "its process has ended");
        snprintf(reason, sizeof(reason), "the executor of GPU %u %s", link->first_gpu,
                 link->draining ? "was stopped" : "has died");
        comm_device_lost(link, reason);
}

/* Ranks wait on other GPUs for what this one will never send: its end must be known at once, and not only when a new
 * process comes. Without a descriptor of the process it is known then. */
static void executor_link_watch(struct executor_link *link) {
        executor_link_unwatch(link);
        link->pidfd = (int)syscall(SYS_pidfd_open, link->pid, 0);
        if (link->pidfd < 0)
                return;
        link->pidfd_event =
                event_new(link->manager->base, link->pidfd, EV_READ | EV_PERSIST, executor_link_process_ended, link);
        if (!link->pidfd_event || event_add(link->pidfd_event, NULL) < 0)
                executor_link_unwatch(link);
}

/* Keeps instance and losses over a restart of this daemon, so that it can tell a survivor from a successor. */
void executor_link_record(struct executor_link *link) {
        struct state *state = link->manager->state;
        struct state_record *at = state_at(state, link->state_slot);

        if (!at) {
                struct state_record record = {.kind = STATE_EXECUTOR};

                memcpy(record.executor.name, link->name, sizeof(record.executor.name));
                if (state_add(state, &record, &link->state_slot))
                        return;
                at = state_at(state, link->state_slot);
        }
        /* Partner of the three: the loads in adopt_executor() of a successor. */
        atomic_store_explicit(&at->executor.instance, link->instance, memory_order_relaxed);
        atomic_store_explicit(&at->executor.losses, link->losses, memory_order_relaxed);
        memcpy(at->executor.pci, link->pci, sizeof(at->executor.pci));
        /* Release: after the stands that it commits. */
        atomic_store_explicit(&at->executor.leaving, link->leaving, memory_order_release);
}

static bool executor_link_hung_up(const struct executor_link *link) {
        struct pollfd p = {.fd = link->fd, .events = POLLRDHUP};

        return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
}

static void executor_link_gpus(struct executor_link *link, const Railmux__Executor__Hello *hello) {
        link->n_gpu_infos = 0;
        for (size_t i = 0; i < hello->n_gpus && link->n_gpu_infos < EXECUTOR_GPUS_MAX; i++) {
                struct executor_gpu *gpu = &link->gpus[link->n_gpu_infos++];

                gpu->index = hello->gpus[i]->index;
                gpu->memory_bytes = hello->gpus[i]->memory_bytes;
                gpu->policy = hello->gpus[i]->policy;
                gpu->resident_blocks = hello->gpus[i]->resident_blocks;
                gpu->parked = hello->gpus[i]->parked;
                gpu->workers = hello->gpus[i]->workers;
                gpu->reaches = hello->gpus[i]->reaches;
                gpu->bursts = hello->gpus[i]->bursts;
                snprintf(gpu->name, sizeof(gpu->name), "%s", hello->gpus[i]->name);
                snprintf(gpu->pci, sizeof(gpu->pci), "%s", hello->gpus[i]->pci);
        }
        if (link->manager->on_device && link->n_gpu_infos == 1)
                snprintf(link->pci, sizeof(link->pci), "%s", link->gpus[0].pci);
        if (link->n_gpu_infos != link->n_gpus) {
                log_warning("executor %s serves %u GPUs where %u were expected; going on with what it has", link->name,
                            link->n_gpu_infos, link->n_gpus);
                if (link->n_gpu_infos > 0) {
                        link->n_gpus = link->n_gpu_infos;
                        if (link->first_gpu == 0 && !link->next)
                                link->manager->n_gpus = link->n_gpus;
                }
        }
}

/* 0, or why it cannot serve. */
static const char *executor_link_pool(const Railmux__Executor__Hello *hello, struct device_memory *ret_pool) {
        const Railmux__Executor__DeviceMemory *pool = hello->pool;
        char text[160];

        if (!pool || pool->kind == 0)
                return "it has no staging for other GPUs";
        if (pool->kind == DEVICE_MEMORY_CHUNKS ||
            device_memory_take(pool->kind, pool->handle.data, pool->handle.len, pool->allocation_bytes, pool->offset,
                               pool->bytes, ret_pool, text, sizeof(text)))
                return "its staging cannot be shared";
        return NULL;
}

/* Its GPU is served no more: it ends what it was doing and then itself, and others wait for that (comm_unserved.c). Its
 * place is with the strangers until then. false: it is none of those. */
static bool executor_link_dismiss(struct executor_link *stranger, const char *name) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Drain drain = RAILMUX__EXECUTOR__DRAIN__INIT;
        struct manager *manager = stranger->manager;
        uint32_t gpu;

        if (parse_u32(name, &gpu) < 0 || gpu >= MANAGER_LINKS_MAX || !(manager->unserved >> gpu & 1))
                return false;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_DRAIN;
        message.drain = &drain;
        for (message.id = 1; message.id <= 2; message.id++) {
                drain.go = message.id == 2;
                if (frame_send(stranger->fd, &message.base, NULL, 0) != FRAME_OK)
                        return false; /* it comes again */
        }
        stranger->dismissed = true;
        stranger->first_gpu = gpu;
        executor_link_watch(stranger);
        (void)evtimer_add(stranger->retry_event, &executor_dismissal_time);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"EXECUTOR", name, NULL},
                   "executor %s (pid %d) is told to end: GPU %u is served no more", name, (int)stranger->pid, gpu);
        return true;
}

/* A stranger has said who it is: the connection goes over to the executor's place, the stranger goes away. */
void executor_link_hello(struct executor_link *stranger, const Railmux__Executor__Hello *hello) {
        struct manager *manager = stranger->manager;
        uint32_t version = hello->version_max < EXECUTOR_PROTOCOL_MAX ? hello->version_max : EXECUTOR_PROTOCOL_MAX;
        struct executor_link *link, *found = NULL;
        struct device_memory pool = {0};
        const char *trouble = NULL;
        int fd;

        DL_FOREACH(manager->links, link) {
                if (strcmp(link->name, hello->name) == 0)
                        found = link;
        }
        if (version < hello->version_min || version < EXECUTOR_PROTOCOL_MIN)
                trouble = "no common protocol version";
        else if (!found && executor_link_dismiss(stranger, hello->name))
                return;
        else if (!found)
                trouble = "no executor of that name is expected";
        else if (hello->instance == 0)
                trouble = "instance 0";
        else if (found->fd >= 0 && !executor_link_hung_up(found))
                trouble = "an executor of that name is connected already";
        else if (manager->on_device)
                trouble = executor_link_pool(hello, &pool);
        if (trouble) {
                log_warning("executor socket: pid %d calling itself '%.63s' refused: %s", (int)stranger->pid,
                            hello->name, trouble);
                executor_link_free(stranger);
                return;
        }
        link = found;
        if (link->fd >= 0)
                executor_link_disconnect(link, "it has reconnected");
        if (link->instance != 0 && link->instance != hello->instance && !link->draining &&
            link->leaving != link->instance) {
                link->losses++;
                manager->counters.executor_losses++;
                log_fields(LOG_LEVEL_WARNING, (const char *const[]){"EXECUTOR", link->name, NULL},
                           "executor %s: pid %d has taken the place of pid %d, which died", link->name,
                           (int)stranger->pid, (int)link->pid);
        }
        link->fresh = link->instance != hello->instance;
        if (manager->on_device && link->instance != 0 && link->fresh)
                comm_device_lost(link, "an executor was replaced");
        fd = stranger->fd;
        stranger->fd = -1;
        link->pid = stranger->pid;
        executor_link_free(stranger);

        link->instance = hello->instance;
        link->dead = false;
        link->pool_memory = pool;
        link->pool.bytes = pool.bytes;
        if (manager->on_device)
                executor_link_watch(link);
        link->version = version;
        link->workers = hello->workers;
        plan_known_all(&link->known);
        plan_known_meet(&link->known, hello->widenings, hello->algorithms);
        link->draining = link->told_go = false;
        snprintf(link->backend, sizeof(link->backend), "%s", hello->backend);
        executor_link_gpus(link, hello);
        link->state = EXECUTOR_INVENTORY;
        link->connected_ns = link->progress_ns = clock_now_ns();
        link->counters = (struct executor_counters){0};
        manager->counters.executor_connects++;
        executor_link_record(link);
        handover_arrived(link);
        if (executor_link_open(link, fd) < 0)
                executor_link_disconnect(link, "out of memory");
}
