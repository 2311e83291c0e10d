/* SPDX-License-Identifier: MIT */
/*
 * What each message of railmuxd does to a plane. Every call is idempotent: railmuxd says again what it does not know to
 * be done.
 *
 * A session is attached to every executor of the node, also to those whose GPU it never uses. That costs next to
 * nothing, and its end is then heard of everywhere at once: each executor ends the comms of a dead process by itself,
 * whichever GPU the dead rank was on.
 */
#include "executor/plane_call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "executor/plane_executor.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/log.h"
#include "util/memfd.h"

void plane_result_set(struct dispatch_result *result, uint32_t code, const char *text) {
        result->code = code;
        snprintf(result->message, sizeof(result->message), "%s", text);
}

/* Its memory and handles come from clients, so what is invalid is their mistake. */
void plane_result_of(struct dispatch_result *result, int r, const char *what, const char *error) {
        uint32_t code = RMX_E_INTERNAL;

        if (!r)
                return;
        if (r == -ENOMEM || r == -EMFILE)
                code = RMX_E_NO_MEMORY;
        else if (r == -EINVAL)
                code = RMX_E_INVALID;
        else if (r == -ENOSPC)
                code = RMX_E_LIMIT;
        else if (r == -EOPNOTSUPP)
                code = RMX_E_UNSUPPORTED;
        result->code = code;
        snprintf(result->message, sizeof(result->message), "%s: %.200s", what, error[0] ? error : strerror(-r));
}

struct plane_session *plane_session_of(struct plane_executor *executor, uint64_t id, struct dispatch_result *result) {
        struct plane_session *session = plane_session_find(executor, id);

        if (!session)
                plane_result_set(result, RMX_E_INVALID, "unknown session");
        return session;
}

bool plane_memory_take(const Railmux__Executor__DeviceMemory *from, int fd, struct plane_memory *ret_memory) {
        if (!from || from->handle.len > PLANE_HANDLE_BYTES ||
            (from->kind != PLANE_MEMORY_IPC && from->kind != PLANE_MEMORY_BUNDLE) ||
            (from->kind == PLANE_MEMORY_BUNDLE && fd < 0))
                return false;
        *ret_memory = (struct plane_memory){
                .kind = from->kind,
                .n_handle = (uint32_t)from->handle.len,
                .allocation_bytes = from->allocation_bytes,
                .offset = from->offset,
                .bytes = from->bytes,
                .fd = from->kind == PLANE_MEMORY_BUNDLE ? fd : -1,
        };
        if (from->handle.len)
                memcpy(ret_memory->handle, from->handle.data, from->handle.len);
        return true;
}

static void call_session(struct plane_executor *executor, const Railmux__Executor__SessionAttach *m,
                         struct dispatch_result *result) {
        struct plane_session *session;

        if (plane_session_find(executor, m->session))
                return;
        session = calloc(1, sizeof(*session));
        if (session) {
                session->id = m->session;
                session->pid = m->pid;
                HASH_ADD(hh, executor->sessions, id, sizeof(session->id), session);
        }
        if (!session || !session->hh.tbl) {
                free(session);
                plane_result_set(result, RMX_E_NO_MEMORY, "attaching a session: out of memory");
        }
}

static void call_session_detach(struct plane_executor *executor, uint64_t id) {
        struct plane_session *session = plane_session_find(executor, id);
        struct plane_attached *comm, *next_comm;

        if (!session)
                return;
        plane_executor_look(executor); /* what it had under way is what counts */
        HASH_ITER(hh, executor->comms, comm, next_comm) {
                plane_comm_lost(executor, comm, id);
        }
        if (session->reached)
                executor->ops->reach_retire(executor->plane, id, 0);
        /* All at once: the kernel has to acknowledge each change, which takes its time while clients fill the GPU. */
        if (session->ring || session->buffers)
                executor->ops->ring_detach(executor->plane, id);
        plane_session_free(executor, session);
}

/* It comes with each ring, and is the same page each time. Without it all is right, but the GPU wakes later. */
static void take_latch(struct plane_executor *executor, int fd) {
        char error[PLANE_TEXT] = "";
        struct stat status;
        void *page;
        int r;

        if (!executor->ops->latch)
                return;
        r = fstat(fd, &status) < 0 ? -errno : 0;
        if (!r && executor->latch) {
                if (status.st_ino != executor->latch_file)
                        log_warning("GPU %u: a ring comes with another latch; it wakes by a thread only",
                                    executor->gpu);
                return;
        }
        if (!r)
                r = memfd_map(fd, plane_latch_bytes(), 1, 1, &page);
        if (!r) {
                r = executor->ops->latch(executor->plane, page, error);
                if (r)
                        memfd_unmap(page, plane_latch_bytes());
        }
        if (r) {
                log_warning("GPU %u wakes by a thread only: %s", executor->gpu, *error ? error : strerror(-r));
                return;
        }
        executor->latch = page;
        executor->latch_file = status.st_ino;
}

static void call_ring(struct plane_executor *executor, const Railmux__Executor__RingAttach *m, const int *fds,
                      unsigned int n_fds, struct dispatch_result *result) {
        struct plane_session *session = plane_session_of(executor, m->session, result);
        char error[PLANE_TEXT] = "";
        struct plane_memory area;
        int r;

        if (!session || session->ring)
                return;
        if (m->gpu != executor->gpu || n_fds < 3 || !plane_memory_take(m->area, n_fds > 3 ? fds[3] : -1, &area) ||
            area.bytes < plane_bell_bytes()) {
                plane_result_set(result, RMX_E_INVALID,
                                 "ring_attach needs a bell area on this GPU and 3 file descriptors");
                return;
        }
        take_latch(executor, fds[1]);
        session->host_bytes = plane_bell_host_bytes();
        r = memfd_map(fds[0], session->host_bytes, 0, 1, &session->host);
        if (r < 0) {
                session->host = NULL;
                plane_result_of(result, r == -EINVAL ? -EIO : r, "mapping a ring", "");
                return;
        }
        r = executor->ops->ring_attach(executor->plane, m->session, &area, session->host, fds[2], error);
        plane_result_of(result, r, "attaching a ring", error);
        session->ring = !r;
        if (r) {
                memfd_unmap(session->host, session->host_bytes);
                session->host = NULL;
        }
}

static void call_peer(struct plane_executor *executor, const Railmux__Executor__PeerAttach *m, const int *fds,
                      unsigned int n_fds, struct dispatch_result *result) {
        char error[PLANE_TEXT] = "";
        struct plane_memory pool;
        int r;

        if (m->gpu >= PLANE_GPUS_MAX || !plane_memory_take(m->pool, n_fds ? fds[0] : -1, &pool)) {
                plane_result_set(result, RMX_E_INVALID, "peer_attach out of bounds");
                return;
        }
        if (m->gpu == executor->gpu || executor->peers[m->gpu] == m->instance)
                return;
        r = executor->ops->peer_add(executor->plane, m->gpu, m->instance, &pool, error);
        plane_result_of(result, r, "mapping the staging of another GPU", error);
        if (r && executor->peers[m->gpu])
                executor->ops->peer_remove(executor->plane, m->gpu); /* nobody may be moved to a pool that is gone */
        executor->peers[m->gpu] = r ? 0 : m->instance;
}

static void call_peer_detach(struct plane_executor *executor, uint32_t gpu) {
        if (gpu >= PLANE_GPUS_MAX || !executor->peers[gpu])
                return;
        executor->ops->peer_remove(executor->plane, gpu);
        executor->peers[gpu] = 0;
}

void plane_call(struct plane_executor *executor, const Railmux__Executor__Message *message, int *fds,
                unsigned int n_fds, struct dispatch_result *ret_result) {
        struct dispatch_result *result = ret_result;

        *result = (struct dispatch_result){0};
        switch (message->body_case) {
        case RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_ATTACH:
                call_session(executor, message->session_attach, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH:
                call_session_detach(executor, message->session_detach->session);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH:
                call_ring(executor, message->ring_attach, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_IMPORT:
                plane_call_buffer(executor, message->buffer_import, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RETIRE:
                plane_call_buffer_retire(executor, message->buffer_retire);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_REACH:
                plane_call_buffer_reach(executor, message->buffer_reach, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_REACH_IMPORT:
                plane_call_reach(executor, message->reach_import, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_REACH_RETIRE:
                plane_call_reach_retire(executor, message->reach_retire);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH:
                plane_call_comm(executor, message->comm_attach, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT:
                plane_call_abort(executor, message->comm_abort);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH:
                plane_call_detach(executor, message->comm_detach);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_HOLD:
                plane_call_hold(executor, message->comm_hold, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_MOVE:
                plane_call_move(executor, message->comm_move, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_RELEASE:
                plane_call_release(executor, message->comm_release);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE:
                plane_call_leave(executor, message->rank_leave, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_PEER_ATTACH:
                call_peer(executor, message->peer_attach, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_PEER_DETACH:
                call_peer_detach(executor, message->peer_detach->gpu);
                break;
        default:
                plane_result_set(result, RMX_E_UNSUPPORTED, "unknown call");
                break;
        }
}
