/* SPDX-License-Identifier: MIT */
/*
 * Calls of clients. Each is idempotent by its own keys, because a client repeats unanswered calls when a successor of
 * this daemon says RESUMED, while the first copy may still lie in the socket. A call with a wrong argument is answered
 * with a failure; only what no correct library sends (a message out of order, of the wrong direction, without id) ends
 * the session.
 */
#include "daemon/session_dispatch.h"

#include "daemon/attachment.h"
#include "daemon/buffer.h"
#include "daemon/call.h"
#include "daemon/chunks.h"
#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_id.h"
#include "daemon/comm_join.h"
#include "daemon/comm_remote_id.h"
#include "daemon/comm_split.h"
#include "daemon/executor_op.h"
#include "daemon/listener.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session_life.h"
#include "daemon/session_ring.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "gpu/plane.h"
#include "railmux/railmux.h"
#include "ring/line.h"
#include "ring/ring.h"
#include "util/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void session_wait_for(struct session *session, uint64_t id, struct call **list) {
        int r = call_add(list, session, id);

        if (r > 0)
                session_end(session, LOG_LEVEL_WARNING, "protocol error: more than %u calls at once",
                            SESSION_CALLS_MAX);
        else if (r < 0)
                session_end(session, LOG_LEVEL_ERROR, "out of memory");
}

void session_clean_name(char ret_name[SESSION_NAME_MAX], const char *name) {
        size_t i;

        for (i = 0; name && name[i] && i < SESSION_NAME_MAX - 1; i++)
                ret_name[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
        ret_name[i] = 0;
}

static void session_breach(struct session *session, const char *what) {
        session->manager->counters.protocol_errors++;
        session_end(session, LOG_LEVEL_WARNING, "protocol error: %s", what);
}

static void session_hello_reply(struct session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__HelloReply reply = RAILMUX__SESSION__HELLO_REPLY__INIT;
        struct manager *manager = session->manager;
        char *pci[MANAGER_GPUS_MAX];

        for (uint32_t gpu = 0; gpu < manager->n_gpus; gpu++)
                pci[gpu] = (char *)manager_gpu_pci(manager, gpu);
        reply.gpu_pci = pci;
        reply.n_gpu_pci = manager->n_gpus;
        reply.version = session->version;
        reply.features = session->features;
        reply.session = session->id;
        reply.gpus = manager->n_gpus;
        reply.backend = (char *)manager_backend(manager);
        reply.ring_depth = manager->config->ring_depth;
        reply.ring_argument_bytes = RING_ARGUMENT_BYTES_DEFAULT;
        reply.tenant = session->tenant->name;
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY;
        message.hello_reply = &reply;
        session_send(session, &message);
}

static void session_hello(struct session *session, uint64_t id, const Railmux__Session__Hello *hello) {
        uint32_t version = hello->version_max < SESSION_PROTOCOL_MAX ? hello->version_max : SESSION_PROTOCOL_MAX;
        uint64_t number;

        if (session->id != 0) { /* repeated, because a predecessor died before it answered */
                session_hello_reply(session, id);
                return;
        }
        session_clean_name(session->name, hello->name);
        if (hello->version_min > hello->version_max) {
                session_breach(session, "HELLO with an empty version range");
                return;
        }
        if (version < hello->version_min || version < SESSION_PROTOCOL_MIN) {
                session_send_failure(session, id, RMX_E_VERSION,
                                     "the client speaks protocol versions %u .. %u, this daemon %u .. %u",
                                     hello->version_min, hello->version_max, SESSION_PROTOCOL_MIN,
                                     SESSION_PROTOCOL_MAX);
                session_end(session, LOG_LEVEL_NOTICE, "no common protocol version (client: %u .. %u)",
                            hello->version_min, hello->version_max);
                return;
        }
        if (session->refused) {
                session_send_failure(session, id, RMX_E_LIMIT, "%s", session->refusal);
                session_end(session, LOG_LEVEL_INFO, "%s", session->refusal);
                return;
        }
        session->version = version;
        session->features = hello->features & SESSION_FEATURES;
        if (!session->manager->on_device)
                session->features &= ~SESSION_FEATURES_GPU;
        if (tenant_closing(session->tenant) > SESSION_CLOSES_FEW)
                session->features &= ~SESSION_FEATURE_CHUNKS;
        if (session->features & SESSION_FEATURE_CHUNKS) /* the listener's sockets take no descriptors */
                (void)setsockopt(session->fd, SOL_SOCKET, SO_PASSRIGHTS, &(int){1}, sizeof(int));
        number = state_take_session(session->manager->state);
        if (session_register(session, number) < 0) { /* a fresh number is never taken */
                session_send_failure(session, id, RMX_E_NO_MEMORY, "out of memory");
                session_end(session, LOG_LEVEL_ERROR, "out of memory");
                return;
        }
        if (record_session(session)) {
                session_send_failure(session, id, RMX_E_NO_MEMORY, "the daemon cannot record the session");
                session_end(session, LOG_LEVEL_ERROR, "it cannot be recorded");
                return;
        }
        session->manager->counters.sessions_opened++;
        session_log_opened(session);
        executor_attach_session(session);
        record_barrier(session->manager);
        session_hello_reply(session, id);
}

static void session_life(struct session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__LifeReply reply = RAILMUX__SESSION__LIFE_REPLY__INIT;
        char text[160];
        int r;

        if (!(session->features & SESSION_FEATURE_LIFE)) {
                session_breach(session, "a pipe is asked for that was not agreed on");
                return;
        }
        r = session_life_open(session, text, sizeof(text));
        if (r) {
                session_send_failure(session, id, r == SESSION_LIFE_E_LIMIT ? RMX_E_LIMIT : RMX_E_NO_MEMORY, "%s",
                                     text);
                return;
        }
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_LIFE_REPLY;
        message.life_reply = &reply;
        session_send(session, &message);
}

/* Memory that the client brings. Tells the client if it cannot be. */
static bool session_memory(struct session *session, uint64_t id, const Railmux__Session__DeviceMemory *from,
                           uint32_t gpu, struct device_memory *ret_memory) {
        char text[160];

        *ret_memory = (struct device_memory){0};
        if (gpu >= session->manager->n_gpus)
                session_send_failure(session, id, RMX_E_INVALID, "gpu is %u; allowed: 0 .. %u", gpu,
                                     session->manager->n_gpus - 1);
        else if (from && device_memory_take(from->kind, from->handle.data, from->handle.len, from->allocation_bytes,
                                            from->offset, from->bytes, ret_memory, text, sizeof(text)))
                session_send_failure(session, id, RMX_E_INVALID, "%s", text);
        else if (ret_memory->kind && !session->manager->on_device)
                session_send_failure(session, id, RMX_E_UNSUPPORTED, "the GPUs of this daemon are emulated");
        else
                return true;
        return false;
}

static void session_ring_open(struct session *session, uint64_t id, const Railmux__Session__RingOpen *body) {
        struct session_ring *ring = session_ring_find(session, body->gpu);
        struct device_memory area;
        char text[160];
        int r;

        if (!session_memory(session, id, body->area, body->gpu, &area))
                return;
        if (area.kind == DEVICE_MEMORY_CHUNKS) {
                session_send_failure(session, id, RMX_E_INVALID, "a ring is memory with an IPC handle");
                return;
        }
        if (session->manager->on_device && area.bytes != plane_bell_bytes()) {
                session_send_failure(session, id, RMX_E_INVALID,
                                     "a ring on a GPU is %" PRIu64 " bytes of its memory, not %" PRIu64,
                                     plane_bell_bytes(), area.bytes);
                return;
        }
        if (ring && !device_memory_equal(&ring->area, &area)) {
                session_send_failure(session, id, RMX_E_INVALID, "the ring on GPU %u lies in other memory", body->gpu);
                return;
        }
        if (ring && attachment_complete(&ring->attachment, session_ring_needed(ring))) {
                session_ring_reply(ring, id);
                return;
        }
        if (!ring) {
                r = session_ring_new(session, body->gpu, &area, text, sizeof(text), &ring);
                if (r) {
                        session_send_failure(session, id, r == SESSION_RING_E_LIMIT ? RMX_E_LIMIT : RMX_E_NO_MEMORY,
                                             "%s", text);
                        return;
                }
        }
        session_wait_for(session, id, &ring->calls);
        executor_attach_ring(ring);
}

static bool session_buffer_same(const struct buffer *buffer, const Railmux__Session__BufferCreate *body,
                                const struct device_memory *memory) {
        if (!device_memory_equal(&buffer->memory, memory))
                return false;
        if (buffer_on_device(buffer))
                return buffer->bytes == body->bytes && buffer->gpu == body->gpu;
        return buffer->bytes == buffer_round(body->bytes);
}

/* What came with the call, packed; *ret_fd is -1 where nothing goes with such memory. Tells the client if it cannot be.
 */
static bool session_chunks(struct session *session, uint64_t id, const Railmux__Session__DeviceMemory *memory,
                           int *ret_fd) {
        char text[160];
        int r;

        *ret_fd = -1;
        if (!memory || memory->kind != DEVICE_MEMORY_CHUNKS)
                return true;
        if (session->manager->n_packed + session->n_sent_fds > session->manager->packed_max) {
                session_send_failure(session, id, RMX_E_LIMIT, "the daemon keeps %u descriptors of memory already",
                                     session->manager->n_packed);
                return false;
        }
        r = chunks_pack(session->sent_fds, session->n_sent_fds, memory->chunk_bytes, memory->n_chunk_bytes,
                        memory->bytes, ret_fd, text, sizeof(text));
        if (r == CHUNKS_E_STRANGE) /* no library does that */
                session_breach(session, text);
        else if (r)
                session_send_failure(session, id, r == CHUNKS_E_INVALID ? RMX_E_INVALID : RMX_E_LIMIT, "%s", text);
        else
                session->sent_kept = true;
        return !r;
}

static void session_buffer_create(struct session *session, uint64_t id, const Railmux__Session__BufferCreate *body) {
        struct buffer *buffer = buffer_find(session, body->buffer);
        struct device_memory memory;
        char text[160];
        int r, fd;

        if (body->buffer == 0) {
                session_send_failure(session, id, RMX_E_INVALID, "buffer numbers begin at 1");
                return;
        }
        if (!session_memory(session, id, body->memory, body->memory ? body->gpu : 0, &memory))
                return;
        if (session->manager->on_device && !memory.kind) {
                session_send_failure(session, id, RMX_E_UNSUPPORTED, "this daemon serves memory on GPUs only");
                return;
        }
        if ((session->n_sent_fds > 0) != (memory.kind == DEVICE_MEMORY_CHUNKS)) {
                session_send_failure(session, id, RMX_E_INVALID, "memory of kind %u with%s descriptors", memory.kind,
                                     session->n_sent_fds ? "" : "out");
                return;
        }
        if (buffer && buffer->retiring) {
                session_send_failure(session, id, RMX_E_BUSY, "buffer %u is being destroyed", body->buffer);
                return;
        }
        if (buffer && !session_buffer_same(buffer, body, &memory)) {
                session_send_failure(session, id, RMX_E_INVALID, "buffer %u exists with another size%s", body->buffer,
                                     memory.kind ? " or other memory" : "");
                return;
        }
        if (buffer && memory.kind == DEVICE_MEMORY_CHUNKS && buffer->fd < 0) { /* a predecessor died just then */
                if (!session_chunks(session, id, body->memory, &fd))
                        return;
                if (buffer_supply(buffer, fd, session->n_sent_fds, text, sizeof(text))) {
                        session_send_failure(session, id, RMX_E_LIMIT, "%s", text);
                        return;
                }
        }
        if (buffer && attachment_complete(&buffer->attachment, buffer_needed(buffer))) {
                buffer_reply(buffer, id);
                return;
        }
        if (!buffer) {
                if (!session_chunks(session, id, body->memory, &fd))
                        return;
                if (memory.kind)
                        r = buffer_new_device(session, body->buffer, body->bytes, &memory, body->gpu, fd,
                                              session->n_sent_fds, text, sizeof(text), &buffer);
                else
                        r = buffer_new(session, body->buffer, body->bytes, text, sizeof(text), &buffer);
                if (r) {
                        session_send_failure(session, id,
                                             r == BUFFER_E_LIMIT     ? RMX_E_LIMIT
                                             : r == BUFFER_E_INVALID ? RMX_E_INVALID
                                                                     : RMX_E_NO_MEMORY,
                                             "%s", text);
                        return;
                }
        }
        session_wait_for(session, id, &buffer->calls);
        executor_attach_buffer(buffer);
}

static void session_buffer_destroy(struct session *session, uint64_t id, const Railmux__Session__BufferDestroy *body) {
        struct buffer *buffer = buffer_find(session, body->buffer);
        struct session *waiting;
        uint64_t waiting_id;

        if (!buffer) { /* an earlier copy of this call may have destroyed it */
                session_send_ack(session, id);
                return;
        }
        while (!buffer->retiring && call_pop(&buffer->calls, &waiting, &waiting_id))
                session_send_failure(waiting, waiting_id, RMX_E_INVALID, "the buffer was destroyed");
        session_wait_for(session, id, &buffer->calls);
        buffer_retire(buffer);
}

void session_send_comm_id(struct session *session, uint64_t id, const uint8_t bytes[COMM_ID_BYTES]) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__IdReply reply = RAILMUX__SESSION__ID_REPLY__INIT;

        reply.id.data = (uint8_t *)bytes;
        reply.id.len = COMM_ID_BYTES;
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY;
        message.id_reply = &reply;
        session_send(session, &message);
}

/* Derived ids need no record: they follow from the communicator, for as long as a rank of it is there to ask. It may
 * have failed; that is what they are for. */
static void session_id_create(struct session *session, uint64_t id, const Railmux__Session__IdCreate *body) {
        const struct manager *manager = session->manager;
        struct comm_id_maker maker = {.key = state_key(manager->state),
                                      .node = state_node(manager->state),
                                      .address = manager->cluster ? peers_address(manager->cluster->peers) : ""};
        struct comm_member *member = body->comm ? comm_member_of_handle(session, body->comm) : NULL;
        uint8_t bytes[COMM_ID_BYTES];
        int r;

        if (body->comm && !member) {
                session_send_failure(session, id, RMX_E_INVALID, "no communicator has handle %u", body->comm);
                return;
        }
        if (member && member->comm->forsaken) { /* its ranks elsewhere would get another one */
                session_send_failure(session, id, RMX_E_LOST,
                                     "the communicator was lost with the daemon that served it, and its ids too");
                return;
        }
        if (member && member->comm->remote) {
                comm_remote_id_call(member, session, id, body->number);
                return;
        }
        r = member ? comm_id_derive(&maker, session->tenant->name, member->comm->number, body->number, bytes)
                   : comm_id_create(&maker, session->tenant->name, bytes);
        if (r < 0) {
                session_send_failure(session, id, RMX_E_INTERNAL, "the daemon cannot make an id");
                return;
        }
        session_send_comm_id(session, id, bytes);
}

/* The member that a handle names. If it names none but did once, the call was answered by doing it. */
static struct comm_member *session_member(struct session *session, uint64_t id, uint32_t handle) {
        struct comm_member *member = comm_member_of_handle(session, handle);

        if (member && member->comm->state == COMM_READY)
                return member;
        if (!member && handle != 0 && handle < session->next_handle)
                session_send_ack(session, id);
        else
                session_send_failure(session, id, RMX_E_INVALID, "handle %u names no communicator", handle);
        return NULL;
}

static void session_comm_destroy(struct session *session, uint64_t id, const Railmux__Session__CommDestroy *body) {
        struct comm_member *member = session_member(session, id, body->handle);

        if (!member)
                return;
        session_wait_for(session, id, &member->calls);
        comm_member_leave(member, body->last_sequence);
}

/* Why a rank ends its comm, by what the ranks of a node have found out among themselves: it is about the comm's own
 * ranks, so it need not be believed. */
static void session_comm_mismatch(struct session *session, uint64_t id, struct comm_member *member, uint32_t status) {
        const int32_t rank = ring_status_rank(status);
        char text[96];

        if (ring_status_code(status) != RMX_E_MISMATCH || rank < 0 || (uint32_t)rank >= member->comm->n_ranks) {
                session_send_failure(session, id, RMX_E_INVALID,
                                     "status %#x is no mismatch with a rank of the communicator", status);
                return;
        }
        session_wait_for(session, id, &member->abort_calls);
        snprintf(text, sizeof(text), "rank %" PRId32 " called something else, as rank %u has found", rank,
                 member->rank);
        comm_abort(member->comm, RMX_E_MISMATCH, rank, text, 0);
}

static void session_comm_abort(struct session *session, uint64_t id, const Railmux__Session__CommAbort *body) {
        struct comm_member *member;

        if (!body->handle && body->comm_id.len) {
                comm_join_cancel(session, id, body);
                return;
        }
        if (!body->handle && body->parent) {
                comm_split_cancel(session, id, body);
                return;
        }
        member = session_member(session, id, body->handle);
        if (!member)
                return;
        if (body->status) {
                session_comm_mismatch(session, id, member, body->status);
                return;
        }
        session_wait_for(session, id, &member->abort_calls);
        comm_abort(member->comm, RMX_E_ABORTED, (int32_t)member->rank, "", 0);
}

void session_dispatch(struct session *session, const Railmux__Session__Message *message) {
        if (message->id == 0) {
                session_breach(session, "a call without id");
                return;
        }
        if (session->id == 0 && message->body_case != RAILMUX__SESSION__MESSAGE__BODY_HELLO) {
                session_breach(session, "the first message is no HELLO");
                return;
        }
        if (session->n_sent_fds && message->body_case != RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE) {
                session_breach(session, "file descriptors with a call that takes none");
                return;
        }
        switch (message->body_case) {
        case RAILMUX__SESSION__MESSAGE__BODY_HELLO:
                session_hello(session, message->id, message->hello);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_RING_OPEN:
                session_ring_open(session, message->id, message->ring_open);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_LIFE_OPEN:
                session_life(session, message->id);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_BUFFER_CREATE:
                session_buffer_create(session, message->id, message->buffer_create);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_BUFFER_DESTROY:
                session_buffer_destroy(session, message->id, message->buffer_destroy);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_ID_CREATE:
                session_id_create(session, message->id, message->id_create);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_COMM_CREATE:
                comm_join(session, message->id, message->comm_create);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_COMM_SPLIT:
                comm_split_call(session, message->id, message->comm_split);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_COMM_DESTROY:
                session_comm_destroy(session, message->id, message->comm_destroy);
                break;
        case RAILMUX__SESSION__MESSAGE__BODY_COMM_ABORT:
                session_comm_abort(session, message->id, message->comm_abort);
                break;
        default:
                session_breach(session, "a message that clients do not send");
                break;
        }
}
