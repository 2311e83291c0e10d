/* SPDX-License-Identifier: MIT */
/*
 * On GPUs the ring is device memory of this process, the bell area, and requests are rung by kernels. The library sets
 * up the area, hands it to the daemon and launches; it takes part in no request.
 *
 * So it also hears of nothing by itself. Errors that kernels met stand in host memory (device_status) and are looked at
 * in every call on the comm. When an executor has died, railmuxd says which comms have failed with it, and a new one
 * answers their kernels; but it may be long in coming, or never come. So as soon as a call of ours reads the event, it
 * ends the kernels of that comm itself (device_end): a word in the area, that nobody else writes, tells them to give
 * up. The area is not closed by that, since other comms go on there, and new ones may. When daemon and executor are
 * both gone, whichever call finds that out closes the area (devices_lose), and all comms there are over. A program that
 * waits for streams only, in a call of the GPU's runtime, should call rmx_comm_error in another thread now and then.
 *
 * Once the daemon has been told of an area, an executor may have it mapped and look at it all the time, whatever
 * becomes of the answer: its descriptors may be cut off, or the join is given up meanwhile. No message takes an area
 * back, and the daemon takes no other one for that GPU. So a device that was opened stays until the session ends, and
 * as long as it is not announced each join says the same once more, which the daemon answers alike. It may not answer
 * at all; so nobody holds a mutex meanwhile, and several threads may ask at once.
 *
 * A stream belongs to the program, which may destroy it when its work is over, also while the comm that used it lives
 * on; the runtime then crashes on the handle. So no stream of an earlier call is ever asked how far it is: kernels tell
 * (see device_call.c).
 *
 * A comm has a slot in the area for its counters. When it is gone and its kernels are not known to have ended, the slot
 * and what else it had on the device are not used again.
 */
#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_bounce.h"
#include "client/device_chunks.h"
#include "client/device_exchange.h"
#include "client/device_nodes.h"
#include "client/device_request.h"
#include "client/device_streams.h"
#include "client/error.h"
#include "client/session.h"
#include "ring/line.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/memfd.h"

#define PLUGIN_VARIABLE "RAILMUX_CLIENT_PLUGIN" /* a path, for tests and unusual installations */
#define YIELD_NS        100000u                 /* how long a waiting thread spins before it sleeps */
#define SLEEP_NS        50000
#define SPARE_SLOTS     (CLIENT_GPU_SLOTS / 2) /* that what can be done without has at most */
#define STICKY_WAIT_NS  2000000000u            /* for the kernels of a comm that has failed */

/* ---- the plug-in ------------------------------------------------------------------------------------------------- */
/* Beside this library, in the folder of plug-ins beside it, or wherever the loader looks. */
static void *plugin_open(const char *backend) {
        const char *path = secure_getenv(PLUGIN_VARIABLE);
        char name[64], beside[PATH_MAX];
        void *plugin = NULL;
        Dl_info info;

        if (path && *path)
                return dlopen(path, RTLD_NOW | RTLD_LOCAL);
        snprintf(name, sizeof(name), "librailmux-%s.so", backend);
        if (dladdr(&plugin_open, &info) && info.dli_fname) {
                const char *slash = strrchr(info.dli_fname, '/');
                int folder = slash ? (int)(slash - info.dli_fname) : 0;

                if (slash && snprintf(beside, sizeof(beside), "%.*s/railmux/%s", folder, info.dli_fname, name) <
                                     (int)sizeof(beside))
                        plugin = dlopen(beside, RTLD_NOW | RTLD_LOCAL);
                if (!plugin && slash &&
                    snprintf(beside, sizeof(beside), "%.*s/%s", folder, info.dli_fname, name) < (int)sizeof(beside))
                        plugin = dlopen(beside, RTLD_NOW | RTLD_LOCAL);
        }
        return plugin ? plugin : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* It stays loaded: the runtime behind it has threads of its own. */
static int plugin_load(const char *what, const char *backend, const struct client_gpu_ops **ret_ops) {
        const struct client_gpu_ops *ops;
        void *plugin;

        if (strspn(backend, "abcdefghijklmnopqrstuvwxyz") != strlen(backend))
                return error_set(RMX_E_INTERNAL, "%s: the daemon names a backend that cannot be", what);
        plugin = plugin_open(backend);
        if (!plugin)
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: the daemon serves GPUs, for which librailmux-%s.so is needed: %s", what, backend,
                                 dlerror());
        ops = dlsym(plugin, CLIENT_GPU_SYMBOL);
        if (!ops || ops->version != CLIENT_GPU_VERSION) {
                const uint32_t version = ops ? ops->version : 0;

                dlclose(plugin);
                return error_set(RMX_E_VERSION, "%s: librailmux-%s.so has version %u, this library needs %u", what,
                                 backend, version, CLIENT_GPU_VERSION);
        }
        *ret_ops = ops;
        return RMX_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */
struct device *device_free(struct device *device) {
        if (!device)
                return NULL;
        /* In a child of fork() the runtime must not be touched: only memory is given back. */
        if (session_is_ours(device->session)) {
                if (device->regions) { /* freeing waits for the kernels */
                        device->ops->release(device->handle);
                        device_bounces_free(device);
                }
                if (device->handle)
                        device->ops->close(device->handle);
                pthread_mutex_destroy(&device->registering);
                pthread_mutex_destroy(&device->regions_mutex);
                pthread_mutex_destroy(&device->mutex);
        }
        memfd_unmap(device->host, device->host_bytes);
        memfd_unmap(device->latch, device->latch_bytes);
        cleanup_close(&device->soon_fd);
        device_memory_deinit(&device->memory);
        free(device->requests);
        free(device);
        return NULL;
}

static bool device_announced(const struct device *device) {
        /* acquire; partner: the release in device_announce. */
        return atomic_load_explicit(&device->announced, memory_order_acquire);
}

static int device_map(int fd, void **ret_memory, size_t *ret_bytes) {
        struct stat status;
        int r = fstat(fd, &status) < 0 ? -errno : status.st_size <= 0 ? -EINVAL : 0;

        if (!r)
                r = memfd_map(fd, (size_t)status.st_size, 1, 1, ret_memory);
        if (!r)
                *ret_bytes = (size_t)status.st_size;
        return r;
}

/* What the daemon gave for the area: host memory, the latch of this GPU, eventfd. With devices_mutex. What there is
 * stays when there is an error: the device may have it pinned. */
static int device_take(struct device *device, const char *what, struct rpc_answer *answer) {
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        if (!device->host) {
                r = device_map(answer->fds[0], &device->host, &device->host_bytes);
                if (r)
                        return error_set(RMX_E_INTERNAL, "%s: the ring's host memory cannot be mapped (errno %d)", what,
                                         -r);
                /* an older daemon has none, and sends what cannot be written */
                (void)device_map(answer->fds[1], &device->latch, &device->latch_bytes);
                device->soon_fd = answer->fds[2];
                answer->fds[2] = -1;
        }
        r = device->ops->attach(device->handle, device->host, device->host_bytes, device->latch, device->latch_bytes,
                                error);
        return r ? error_set(r, "%s: %s", what, error) : RMX_OK;
}

/* Hands the area to the daemon. */
static int device_announce(struct device *device, const char *what, struct rmx_cancel *cancel, uint64_t deadline_ns) {
        Railmux__Session__DeviceMemory memory = RAILMUX__SESSION__DEVICE_MEMORY__INIT;
        Railmux__Session__RingOpen body = RAILMUX__SESSION__RING_OPEN__INIT;
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        struct rpc_call call = {.message = &message, .n_fds = 3};
        struct rmx_session *session = device->session;
        int r = RMX_OK;

        device_memory_describe(&device->area, &memory);
        body.gpu = device->gpu;
        body.area = &memory;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_RING_OPEN;
        message.ring_open = &body;
        r = session_call_until(session, what, &call, RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY, cancel, deadline_ns);
        if (r)
                return r;
        pthread_mutex_lock(&session->devices_mutex);
        if (call.answer.ring.gpu != device->gpu)
                r = error_set(RMX_E_INTERNAL, "%s: the daemon answered with another ring", what);
        else if (!device_announced(device)) /* else another thread was told as well */
                r = device_take(device, what, &call.answer);
        if (!r) /* release; partner: the acquire in device_announced. */
                atomic_store_explicit(&device->announced, true, memory_order_release);
        pthread_mutex_unlock(&session->devices_mutex);
        frame_close_fds(call.answer.fds, call.answer.n_fds);
        return r;
}

static int device_new(struct rmx_session *session, const char *what, uint32_t gpu, struct device **ret_device) {
        const char *pci = session->gpu_pci[gpu];
        char error[CLIENT_GPU_TEXT] = "";
        struct device *device;
        int r;

        device = calloc(1, sizeof(*device));
        if (!device)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        device->session = session;
        device->gpu = gpu;
        device->soon_fd = -1;
        pthread_mutex_init(&device->mutex, NULL);
        pthread_mutex_init(&device->regions_mutex, NULL);
        pthread_mutex_init(&device->registering, NULL);
        device_memory_init(&device->memory);
        device->requests = calloc(CLIENT_GPU_CELLS, sizeof(*device->requests));
        r = device->requests ? plugin_load(what, session->backend, &device->ops)
                             : error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
        if (!r) {
                r = device->ops->find(pci, &device->number, error);
                if (!r)
                        r = device->ops->open(device->number, &device->handle, &device->area, error);
                if (r)
                        r = error_set(r, "%s: GPU %u: %s", what, gpu, error);
        }
        if (r) {
                device_free(device);
                return r;
        }
        *ret_device = device;
        return RMX_OK;
}

static int device_get(struct rmx_session *session, const char *what, uint32_t gpu, struct rmx_cancel *cancel,
                      uint64_t deadline_ns, struct device **ret_device) {
        struct device *device;
        int r = RMX_OK;

        if (gpu >= session->n_gpus)
                return error_set(RMX_E_INTERNAL, "%s: the daemon placed this rank on GPU %u of %u", what, gpu,
                                 session->n_gpus);
        pthread_mutex_lock(&session->devices_mutex);
        /* relaxed; partner: the store below, under the same mutex. */
        device = atomic_load_explicit(&session->devices[gpu], memory_order_relaxed);
        if (!device) {
                r = device_new(session, what, gpu, &device);
                if (!r) /* release; partner: the acquire in devices_lose. */
                        atomic_store_explicit(&session->devices[gpu], device, memory_order_release);
        }
        pthread_mutex_unlock(&session->devices_mutex);
        if (!r && !device_announced(device))
                r = device_announce(device, what, cancel, deadline_ns);
        if (!r)
                *ret_device = device;
        return r;
}

/* The session's device that is this one of the runtime. */
static int device_of_number(struct rmx_session *session, const char *what, const struct client_gpu_ops *ops,
                            int32_t number, struct device **ret_device) {
        for (uint32_t gpu = 0; gpu < session->n_gpus; gpu++) {
                char error[CLIENT_GPU_TEXT];
                int32_t found;

                if (!ops->find(session->gpu_pci[gpu], &found, error) && found == number)
                        return device_get(session, what, gpu, NULL, RPC_NO_DEADLINE, ret_device);
        }
        return error_set(RMX_E_INVALID, "%s: this memory is on a GPU that the daemon does not serve", what);
}

int device_locate(struct rmx_session *session, const char *what, const void *address, size_t bytes,
                  struct device **ret_device, struct client_gpu_memory *ret_memory) {
        const struct client_gpu_ops *ops;
        struct client_gpu_memory memory;
        char error[CLIENT_GPU_TEXT] = "";
        struct device *device;
        int r;

        *ret_device = NULL;
        if (!session_on_gpus(session))
                return RMX_OK;
        r = plugin_load(what, session->backend, &ops);
        if (r)
                return r;
        r = ops->locate(address, &memory, error);
        if (r)
                return error_set(r, "%s: %s", what, error);
        if (memory.residence != CLIENT_GPU_DEVICE)
                return RMX_OK;
        if (memory.chunk)
                r = device_chunks_check(ops, what, "address", &memory, address, bytes);
        else if (bytes > memory.bytes - ((uintptr_t)address - memory.base))
                r = error_set(RMX_E_INVALID, "%s: %zu bytes at %p run over the end of their allocation", what, bytes,
                              address);
        if (!r)
                r = device_of_number(session, what, ops, memory.device, &device);
        if (r)
                return r;
        *ret_device = device;
        *ret_memory = memory;
        return RMX_OK;
}

/* ---- comms ------------------------------------------------------------------------------------------------------- */
int device_join(struct rmx_comm *comm, const char *what, struct rmx_cancel *cancel, uint64_t deadline_ns) {
        char error[CLIENT_GPU_TEXT] = "";
        struct device *device;
        uint32_t slot = CLIENT_GPU_SLOTS;
        int r;

        r = device_get(comm->session, what, comm->gpu, cancel, deadline_ns, &device);
        if (r)
                return r;
        pthread_mutex_lock(&device->mutex);
        for (uint32_t i = 0; i < CLIENT_GPU_SLOTS && slot == CLIENT_GPU_SLOTS; i++) {
                if (!(device->slots[i / 64] >> (i % 64) & 1))
                        slot = i;
        }
        if (comm->spare && device->n_spare >= SPARE_SLOTS)
                slot = CLIENT_GPU_SLOTS;
        if (slot < CLIENT_GPU_SLOTS) {
                device->slots[slot / 64] |= UINT64_C(1) << (slot % 64);
                device->n_spare += comm->spare;
        }
        pthread_mutex_unlock(&device->mutex);
        if (slot == CLIENT_GPU_SLOTS)
                return error_set(RMX_E_LIMIT, "%s: this session has %u communicators on GPU %u already", what,
                                 CLIENT_GPU_SLOTS, comm->gpu);
        comm->device = device;
        comm->slot = slot;
        r = device->ops->comm_reset(device->handle, slot, error);
        return r ? error_set(r, "%s: GPU %u: %s", what, comm->gpu, error) : RMX_OK;
}

uint32_t device_ranks(struct device *device) {
        uint32_t n = 0;

        pthread_mutex_lock(&device->mutex);
        for (uint32_t i = 0; i < CLIENT_GPU_SLOTS / 64; i++)
                n += (uint32_t)__builtin_popcountll(device->slots[i]);
        n -= device->n_spare;
        pthread_mutex_unlock(&device->mutex);
        return n;
}

void device_part(struct rmx_comm *comm) {
        struct device *device = comm->device;
        bool over;

        if (!device)
                return;
        device_streams_forget(comm);
        pthread_mutex_lock(&device->mutex);
        over = !device_requests_any(device, comm) && !comm->adrift && (!comm->number || comm->finished);
        device_requests_orphan(device, comm, over);
        pthread_mutex_unlock(&device->mutex);
        /* Looks at the slot's status, so before anybody else has the slot. */
        device_exchange_part(comm, over && !comm->spoilt);
        if (!over) {
                device_bounce_keep(comm);
                return;
        }
        pthread_mutex_lock(&device->mutex);
        device->slots[comm->slot / 64] &= ~(UINT64_C(1) << (comm->slot % 64));
        device->n_spare -= comm->spare;
        pthread_mutex_unlock(&device->mutex);
        device_bounce_give(comm);
}

void device_pause(struct device *device, uint64_t started_ns) {
        static const struct timespec moment = {.tv_nsec = SLEEP_NS};

        session_look_seldom(device->session);
        if (clock_now_ns() - started_ns >= YIELD_NS || !yielder_yield(&device->yielder))
                (void)nanosleep(&moment, NULL);
}

bool device_over(const struct rmx_comm *comm) {
        return comm->device->ops->comm_finished(comm->device->handle, comm->slot) == comm->number;
}

/* All launches have ended, and there is no request of the comm without its end. */
static bool device_quiet(struct device *device, struct rmx_comm *comm) {
        bool quiet;

        pthread_mutex_lock(&device->mutex);
        quiet = device_over(comm) && !device_requests_any(device, comm);
        pthread_mutex_unlock(&device->mutex);
        return quiet;
}

bool device_alive(struct device *device) {
        const uint64_t now = clock_now_ns();

        /* relaxed, both; partners: each other. Two threads that look at once do no harm. */
        if (now - atomic_load_explicit(&device->looked_ns, memory_order_relaxed) < SESSION_LOOK_NS)
                return true;
        if (!device->ops->alive(device->handle)) /* whoever asks next looks, too */
                return false;
        atomic_store_explicit(&device->looked_ns, now, memory_order_relaxed);
        return true;
}

bool device_is_lost(const struct device *device, int r) {
        return r == RMX_E_DEVICE_LOST && !device->ops->alive(device->handle);
}

int device_judge(struct rmx_comm *comm, int r) {
        if (device_is_lost(comm->device, r))
                comm_fail(comm, ring_status(RMX_E_DEVICE_LOST, (int32_t)comm->rank));
        return r;
}

bool device_finish(struct rmx_comm *comm, uint64_t deadline_ns) {
        struct device *device = comm->device;
        uint64_t started_ns = clock_now_ns();
        char error[CLIENT_GPU_TEXT];

        device_requests_wait(device, comm);
        while (!device_quiet(device, comm)) {
                uint64_t now = clock_now_ns();

                /* Before the deadline: who asks again and again, and gives no time, hears of all this as well. */
                session_look_seldom(device->session);
                device_end(comm);
                device_lost(comm);
                if (!device_alive(device)) {
                        comm_fail(comm, ring_status(RMX_E_DEVICE_LOST, (int32_t)comm->rank));
                        return false;
                }
                if (now >= deadline_ns || (comm_status(comm) && now - started_ns >= STICKY_WAIT_NS))
                        return false;
                (void)device_status(comm, false);
                device_pause(device, started_ns);
        }
        comm->finished = !comm->adrift;
        return !device->ops->comm_sequence(device->handle, comm->slot, &comm->last_sequence, error);
}

void device_may_end(struct rmx_comm *comm) {
        uint32_t none = 0;

        /* relaxed, both; partner: device_end. Nothing else goes with it. */
        (void)atomic_compare_exchange_strong_explicit(&comm->end, &none, 1, memory_order_relaxed, memory_order_relaxed);
}

void device_end(struct rmx_comm *comm) {
        uint32_t may = 1;

        /* relaxed; partner: device_may_end, and itself in other threads. Once is enough. */
        if (comm->device &&
            atomic_compare_exchange_strong_explicit(&comm->end, &may, 2, memory_order_relaxed, memory_order_relaxed))
                comm->device->ops->comm_end(comm->device->handle, comm->slot);
        device_nodes_end(comm);
}

void device_lost(struct rmx_comm *comm) {
        /* relaxed; partner: the exchange in devices_lose. Kernels are told by the area. */
        if (atomic_load_explicit(&comm->device->lost, memory_order_relaxed))
                comm_fail(comm, ring_status(RMX_E_DAEMON_LOST, -1));
}

uint32_t device_status(struct rmx_comm *comm, bool take) {
        struct device *device = comm->device;
        uint32_t status;

        device_end(comm);
        device_lost(comm);
        status = device->ops->comm_status(device->handle, comm->slot, false);
        if (!status)
                return device_nodes_status(comm);
        /* A kernel that was told to give up knows less than the comm does. */
        if (ring_status_code(status) == RMX_E_DEVICE_LOST && comm_status(comm))
                return comm_status(comm);
        if (ring_status_is_kept(status))
                comm_fail(comm, status);
        else if (!take)
                return device_nodes_status(comm);
        else
                (void)device->ops->comm_status(device->handle, comm->slot, true);
        return status;
}

void devices_lose(struct rmx_session *session) {
        if (clock_now_ns() < rpc_lost_ns(&session->rpc) + SESSION_LOOK_NS)
                return;
        for (uint32_t i = 0; i < session->n_gpus; i++) {
                /* acquire; partner: the release in device_get. */
                struct device *device = atomic_load_explicit(&session->devices[i], memory_order_acquire);

                /* Nothing waits on one that is not announced. relaxed; partners: itself, in other threads, and
                 * device_lost. Once is enough. */
                if (device && device_announced(device) &&
                    !atomic_exchange_explicit(&device->lost, true, memory_order_relaxed))
                        device->ops->release(device->handle);
        }
}
