/* SPDX-License-Identifier: MIT */
/*
 * What each message of railmuxd does to a plane. Every call is idempotent: railmuxd says again what it does not know to
 * be done.
 *
 * A session is attached to every executor of the node, also to those whose GPU it never uses. That costs next to
 * nothing, and its end is then heard of everywhere at once: each executor ends the comms of a dead process by itself,
 * whichever GPU the dead rank was on.
 */
#include "executor/plane_executor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/memfd.h"

static void result_set(struct dispatch_result *result, uint32_t code, const char *text) {
        result->code = code;
        snprintf(result->message, sizeof(result->message), "%s", text);
}

/* What the plane said. Its memory and handles come from clients, so what is invalid is their mistake. */
static void result_plane(struct dispatch_result *result, int r, const char *what, const char *error) {
        uint32_t code = RMX_E_INTERNAL;

        if (!r || r == -EEXIST)
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

static struct plane_session *find(struct plane_executor *executor, uint64_t id, struct dispatch_result *result) {
        struct plane_session *session = plane_session_find(executor, id);

        if (!session)
                result_set(result, RMX_E_INVALID, "unknown session");
        return session;
}

/* false: it is none that a plane takes. */
static bool memory_take(const Railmux__Executor__DeviceMemory *from, int fd, struct plane_memory *ret_memory) {
        if (!from || from->handle.len > PLANE_HANDLE_BYTES ||
            (from->kind != PLANE_MEMORY_IPC && from->kind != PLANE_MEMORY_FD) ||
            (from->kind == PLANE_MEMORY_FD && fd < 0))
                return false;
        *ret_memory = (struct plane_memory){
                .kind = from->kind,
                .n_handle = (uint32_t)from->handle.len,
                .allocation_bytes = from->allocation_bytes,
                .offset = from->offset,
                .bytes = from->bytes,
                .fd = from->kind == PLANE_MEMORY_FD ? fd : -1,
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
                result_set(result, RMX_E_NO_MEMORY, "attaching a session: out of memory");
        }
}

static void call_session_detach(struct plane_executor *executor, uint64_t id) {
        struct plane_session *session = plane_session_find(executor, id);
        struct plane_attached *comm, *next_comm;
        struct plane_buffer *buffer, *next;

        if (!session)
                return;
        HASH_ITER(hh, executor->comms, comm, next_comm) {
                for (uint32_t r = 0; r < comm->n_ranks; r++) {
                        if (comm->ranks[r].session != id || comm->ranks[r].left)
                                continue;
                        plane_comm_fail(executor, comm, RMX_E_PEER_LOST, (int32_t)r, "its process has ended");
                        break;
                }
        }
        HASH_ITER(hh, session->buffers, buffer, next) {
                executor->ops->buffer_retire(executor->plane, id, buffer->id);
        }
        if (session->reached)
                executor->ops->reach_retire(executor->plane, id, 0);
        if (session->ring)
                executor->ops->ring_detach(executor->plane, id);
        plane_session_free(executor, session);
}

static void call_ring(struct plane_executor *executor, const Railmux__Executor__RingAttach *m, const int *fds,
                      unsigned int n_fds, struct dispatch_result *result) {
        struct plane_session *session = find(executor, m->session, result);
        char error[PLANE_TEXT] = "";
        struct plane_memory area;
        int r;

        if (!session || session->ring)
                return;
        if (m->gpu != executor->gpu || n_fds < 3 || !memory_take(m->area, n_fds > 3 ? fds[3] : -1, &area) ||
            area.bytes < plane_bell_bytes()) {
                result_set(result, RMX_E_INVALID, "ring_attach needs a bell area on this GPU and 3 file descriptors");
                return;
        }
        session->host_bytes = plane_bell_host_bytes();
        r = memfd_map(fds[0], session->host_bytes, 0, 1, &session->host);
        if (r < 0) {
                session->host = NULL;
                result_plane(result, r == -EINVAL ? -EIO : r, "mapping a ring", "");
                return;
        }
        r = executor->ops->ring_attach(executor->plane, m->session, &area, session->host, error);
        result_plane(result, r, "attaching a ring", error);
        session->ring = !r;
        if (r) {
                memfd_unmap(session->host, session->host_bytes);
                session->host = NULL;
        }
}

static void call_buffer(struct plane_executor *executor, const Railmux__Executor__BufferImport *m, const int *fds,
                        unsigned int n_fds, struct dispatch_result *result) {
        struct plane_session *session = find(executor, m->session, result);
        char error[PLANE_TEXT] = "";
        struct plane_buffer *buffer;
        struct plane_memory memory;
        int r;

        if (!session)
                return;
        HASH_FIND(hh, session->buffers, &m->buffer, sizeof(m->buffer), buffer);
        if (buffer)
                return;
        if (!memory_take(m->memory, n_fds ? fds[0] : -1, &memory)) {
                result_set(result, RMX_E_UNSUPPORTED, "a GPU serves memory of its own only");
                return;
        }
        buffer = calloc(1, sizeof(*buffer));
        if (buffer) {
                buffer->id = m->buffer;
                HASH_ADD(hh, session->buffers, id, sizeof(buffer->id), buffer);
        }
        if (!buffer || !buffer->hh.tbl) {
                free(buffer);
                result_set(result, RMX_E_NO_MEMORY, "importing a buffer: out of memory");
                return;
        }
        r = executor->ops->buffer_import(executor->plane, m->session, m->buffer, &memory, error);
        result_plane(result, r, "importing a buffer", error);
        if (r) {
                HASH_DEL(session->buffers, buffer);
                free(buffer);
        }
}

static void call_buffer_retire(struct plane_executor *executor, const Railmux__Executor__BufferRetire *m) {
        struct plane_session *session = plane_session_find(executor, m->session);
        struct plane_buffer *buffer = NULL;

        if (session)
                HASH_FIND(hh, session->buffers, &m->buffer, sizeof(m->buffer), buffer);
        if (!buffer)
                return;
        executor->ops->buffer_retire(executor->plane, m->session, m->buffer);
        HASH_DEL(session->buffers, buffer);
        free(buffer);
}

/* ---- buffers of other GPUs --------------------------------------------------------------------------------------- */

static void call_buffer_reach(struct plane_executor *executor, const Railmux__Executor__BufferReach *m,
                              struct dispatch_result *result) {
        struct plane_session *session = plane_session_find(executor, m->session);
        struct plane_buffer *buffer = NULL;
        char error[PLANE_TEXT] = "";

        if (session)
                HASH_FIND(hh, session->buffers, &m->buffer, sizeof(m->buffer), buffer);
        if (buffer && executor->ops->buffer_reach)
                result_plane(result,
                             executor->ops->buffer_reach(executor->plane, m->session, m->buffer, m->gpus, error),
                             "telling who reaches a buffer", error);
}

static void call_reach(struct plane_executor *executor, const Railmux__Executor__ReachImport *m, const int *fds,
                       unsigned int n_fds, struct dispatch_result *result) {
        struct plane_session *session = find(executor, m->session, result);
        struct plane_buffer *buffer = NULL;
        char error[PLANE_TEXT] = "";
        struct plane_memory memory;
        int r;

        if (session)
                HASH_FIND(hh, session->reached, &m->buffer, sizeof(m->buffer), buffer);
        if (!session)
                return;
        if (buffer) {
                if (buffer->identity != m->identity)
                        result_set(result, RMX_E_INVALID, "the buffer is there, in other memory");
                return;
        }
        if (!executor->ops->reach_import || !memory_take(m->memory, n_fds ? fds[0] : -1, &memory)) {
                result_set(result, RMX_E_UNSUPPORTED, "this executor does not reach such memory");
                return;
        }
        buffer = calloc(1, sizeof(*buffer));
        if (buffer) {
                buffer->id = m->buffer;
                buffer->identity = m->identity;
                HASH_ADD(hh, session->reached, id, sizeof(buffer->id), buffer);
        }
        if (!buffer || !buffer->hh.tbl) {
                free(buffer);
                result_set(result, RMX_E_NO_MEMORY, "reaching a buffer: out of memory");
                return;
        }
        r = executor->ops->reach_import(executor->plane, m->session, m->buffer, &memory, error);
        result_plane(result, r, "reaching a buffer", error);
        if (r == -EBUSY)
                result->code = RMX_E_BUSY;
        if (r) {
                HASH_DEL(session->reached, buffer);
                free(buffer);
        }
}

static void call_reach_retire(struct plane_executor *executor, const Railmux__Executor__ReachRetire *m) {
        struct plane_session *session = plane_session_find(executor, m->session);
        struct plane_buffer *buffer = NULL;

        if (session)
                HASH_FIND(hh, session->reached, &m->buffer, sizeof(m->buffer), buffer);
        if (!buffer)
                return;
        executor->ops->reach_retire(executor->plane, m->session, m->buffer);
        HASH_DEL(session->reached, buffer);
        free(buffer);
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */

static bool member_far(const Railmux__Executor__CommAttach *m, uint32_t rank) {
        return m->n_nodes > 1 && m->members[rank]->node != m->node;
}

static void comm_fill(struct plane_executor *executor, struct plane_attached *comm,
                      const Railmux__Executor__CommAttach *m, struct plane_comm_member *members) {
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                const Railmux__Executor__Member *from = m->members[i];
                struct plane_rank *rank = &comm->ranks[i];

                rank->far = member_far(m, i);
                rank->session = from->session;
                rank->here = !rank->far && from->gpu == executor->gpu;
                rank->left = from->left;
                rank->last = from->last_sequence;
                members[i] = (struct plane_comm_member){
                        .session = from->left || !plane_session_find(executor, from->session) ? 0 : from->session,
                        .handle = from->handle,
                        .gpu = from->gpu,
                        .staging = from->staging,
                        .here = rank->here,
                        .far = rank->far,
                };
        }
}

/* What the plane is told; members and choices lie where the caller keeps them. */
static void comm_describe(struct plane_executor *executor, struct plane_attached *comm,
                          const Railmux__Executor__CommAttach *m, struct plane_comm_member *members,
                          struct plan_choice *choices, struct plane_comm *ret_description) {
        comm_fill(executor, comm, m, members);
        for (size_t i = 0; i < m->n_choices; i++)
                choices[i] = (struct plan_choice){
                        .operation = m->choices[i]->operation,
                        .algorithm = m->choices[i]->algorithm,
                        .max_bytes = m->choices[i]->max_bytes,
                };
        *ret_description = (struct plane_comm){
                .id = comm->id,
                .n_ranks = comm->n_ranks,
                .epoch = comm->epoch,
                .code = comm->code,
                .failed_rank = comm->failed_rank,
                .members = members,
                .choices = choices,
                .n_choices = (uint32_t)m->n_choices,
                .first = m->first,
                .lanes = m->lanes,
                .reach_bytes = m->reach_bytes,
                .net = comm->net.net.area ? &comm->net.net : NULL,
        };
}

/* Of one over several nodes: what railmuxd sends beside it. */
static int comm_net(struct plane_attached *comm, const Railmux__Executor__CommAttach *m, const int *fds,
                    unsigned int n_fds, char *error) {
        if (m->n_nodes <= 1)
                return 0;
        if (n_fds < 3 || m->node >= m->n_nodes) {
                snprintf(error, PLANE_TEXT, "comm_attach over nodes needs marks, a net area, a doorbell and a node");
                return -EINVAL;
        }
        for (uint32_t i = 0; i < comm->n_ranks; i++) { /* numbers of sessions mean something on their own node only */
                if (m->members[i]->node < m->n_nodes && (!member_far(m, i) || !m->members[i]->session))
                        continue;
                snprintf(error, PLANE_TEXT, "rank %u: a node beyond the number of nodes, or a session on another node",
                         i);
                return -EINVAL;
        }
        return plane_net_map(&comm->net, fds[1], fds[2], error);
}

static void call_comm(struct plane_executor *executor, const Railmux__Executor__CommAttach *m, const int *fds,
                      unsigned int n_fds, struct dispatch_result *result) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        struct plane_comm_member members[PLAN_RANKS_MAX];
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plane_comm description;
        char error[PLANE_TEXT] = "";
        int r;

        if (comm) {
                result->epoch = comm->epoch;
                return;
        }
        if (!plane_staging_bytes(m->n_ranks) || m->n_members != m->n_ranks || m->n_choices > PLAN_CHOICES_MAX) {
                result_set(result, RMX_E_INVALID, "comm_attach out of bounds");
                return;
        }
        comm = calloc(1, sizeof(*comm) + m->n_ranks * sizeof(comm->ranks[0]));
        if (comm) {
                comm->id = m->comm;
                comm->net = (struct plane_net_map)PLANE_NET_MAP_NULL;
                HASH_ADD(hh, executor->comms, id, sizeof(comm->id), comm);
        }
        if (!comm || !comm->hh.tbl) {
                free(comm);
                result_set(result, RMX_E_NO_MEMORY, "attaching a communicator: out of memory");
                return;
        }
        comm->n_ranks = m->n_ranks;
        comm->epoch = m->epoch ? m->epoch : 1;
        comm->code = m->code;
        comm->failed_rank = m->failed_rank;
        r = comm_net(comm, m, fds, n_fds, error);
        comm_describe(executor, comm, m, members, choices, &description);
        if (!r)
                r = executor->ops->comm_attach(executor->plane, &description, error);
        result_plane(result, r, "attaching a communicator", error);
        if (r == -EBUSY)
                result->code = RMX_E_BUSY;
        result->epoch = comm->epoch;
        if (r) {
                plane_comm_free(executor, comm);
                return;
        }
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if ((comm->ranks[i].here || comm->ranks[i].far) && comm->ranks[i].left)
                        executor->ops->rank_leave(executor->plane, comm->id, i, comm->ranks[i].last);
}

/* ---- planned restarts of another executor ------------------------------------------------------------------------ */

static void call_hold(struct plane_executor *executor, const Railmux__Executor__CommHold *m,
                      struct dispatch_result *result) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        char error[PLANE_TEXT] = "";
        int r;

        if (!comm || comm->code)
                return; /* railmuxd hears of it otherwise */
        r = executor->ops->comm_hold(executor->plane, comm->id, m->has_upto, m->upto, error);
        result_plane(result, r, "holding a communicator", error);
        if (!r && !comm->held)
                for (uint32_t i = 0; i < comm->n_ranks; i++)
                        comm->ranks[i].told = false;
        comm->held = comm->held || !r;
}

static void call_move(struct plane_executor *executor, const Railmux__Executor__CommAttach *m,
                      struct dispatch_result *result) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        struct plane_comm_member members[PLAN_RANKS_MAX];
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plane_comm description;
        char error[PLANE_TEXT] = "";

        if (!comm || m->n_members != comm->n_ranks || m->n_choices > PLAN_CHOICES_MAX) {
                result_set(result, RMX_E_INVALID, "comm_move out of bounds");
                return;
        }
        result->epoch = comm->epoch;
        if (comm->code)
                return;
        comm_describe(executor, comm, m, members, choices, &description);
        result_plane(result, executor->ops->comm_move(executor->plane, &description, error), "moving a communicator",
                     error);
}

static void call_release(struct plane_executor *executor, const Railmux__Executor__CommRelease *m) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);

        if (comm && m->ended)
                plane_comm_thaw(executor, comm);
        if (!comm || !comm->held)
                return;
        executor->ops->comm_release(executor->plane, comm->id);
        comm->held = false;
}

static void call_leave(struct plane_executor *executor, const Railmux__Executor__RankLeave *m) {
        struct plane_attached *comm = plane_comm_find(executor, m->comm);
        struct plane_rank *rank;

        if (!comm || m->rank >= comm->n_ranks)
                return;
        rank = &comm->ranks[m->rank];
        if (rank->left)
                return;
        rank->left = true;
        rank->last = m->last_sequence;
        if (rank->here || rank->far) /* of others on this node, plane_report_stalls knows */
                executor->ops->rank_leave(executor->plane, comm->id, m->rank, m->last_sequence);
}

static void call_peer(struct plane_executor *executor, const Railmux__Executor__PeerAttach *m, const int *fds,
                      unsigned int n_fds, struct dispatch_result *result) {
        char error[PLANE_TEXT] = "";
        struct plane_memory pool;
        int r;

        if (m->gpu >= PLANE_GPUS_MAX || !memory_take(m->pool, n_fds ? fds[0] : -1, &pool)) {
                result_set(result, RMX_E_INVALID, "peer_attach out of bounds");
                return;
        }
        if (m->gpu == executor->gpu || executor->peers[m->gpu] == m->instance)
                return;
        r = executor->ops->peer_add(executor->plane, m->gpu, m->instance, &pool, error);
        result_plane(result, r, "mapping the staging of another GPU", error);
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
        struct plane_attached *comm;

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
                call_buffer(executor, message->buffer_import, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RETIRE:
                call_buffer_retire(executor, message->buffer_retire);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_REACH:
                call_buffer_reach(executor, message->buffer_reach, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_REACH_IMPORT:
                call_reach(executor, message->reach_import, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_REACH_RETIRE:
                call_reach_retire(executor, message->reach_retire);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH:
                call_comm(executor, message->comm_attach, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT:
                comm = plane_comm_find(executor, message->comm_abort->comm);
                if (comm)
                        plane_comm_fail(executor, comm, message->comm_abort->code, message->comm_abort->rank,
                                        "aborted");
                if (comm)
                        comm->unreported = false; /* it is railmuxd that says so */
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH:
                comm = plane_comm_find(executor, message->comm_detach->comm);
                if (comm) {
                        executor->ops->comm_detach(executor->plane, comm->id);
                        plane_comm_free(executor, comm);
                }
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_HOLD:
                call_hold(executor, message->comm_hold, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_MOVE:
                call_move(executor, message->comm_move, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_RELEASE:
                call_release(executor, message->comm_release);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE:
                call_leave(executor, message->rank_leave);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_PEER_ATTACH:
                call_peer(executor, message->peer_attach, fds, n_fds, result);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_PEER_DETACH:
                call_peer_detach(executor, message->peer_detach->gpu);
                break;
        default:
                result_set(result, RMX_E_UNSUPPORTED, "unknown call");
                break;
        }
}
