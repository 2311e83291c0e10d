/* SPDX-License-Identifier: MIT */
/*
 * The control plane of the fake. One thread polls the listening socket and all connections; the other is the executor.
 * One mutex guards everything. Assertions inside these threads end the process: a fake that is confused proves nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"
#include "proto/session.pb-c.h"
#include "tests/client/fake.h"
#include "tests/cmocka_all.h"
#include "util/memfd.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

void fake_reply(struct fake *fake, struct fake_session *session, Railmux__Session__Message *message, uint64_t id,
                const int *fds, unsigned int n_fds) {
        message->id = id;
        if (session->fd >= 0 && (!fake->mute || message->body_case == BODY(EVENT)))
                (void)frame_send(session->fd, &message->base, fds, n_fds);
}

static void reply_failure(struct fake *fake, struct fake_session *session, uint64_t id, uint32_t code,
                          const char *text) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Failure body = RAILMUX__SESSION__FAILURE__INIT;

        body.code = code;
        body.message = (char *)text;
        message.body_case = BODY(FAILURE);
        message.failure = &body;
        fake_reply(fake, session, &message, id, NULL, 0);
}

static void reply_ack(struct fake *fake, struct fake_session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Ack body = RAILMUX__SESSION__ACK__INIT;

        message.body_case = BODY(ACK);
        message.ack = &body;
        fake_reply(fake, session, &message, id, NULL, 0);
}

/* Do all ranks have the same exchange? */
static bool exchanges(const struct fake *fake, const struct fake_comm *comm) {
        for (uint32_t i = 0; i < comm->n_ranks && !fake->exchange_for_all; i++) {
                if (!comm->member[i].exchange || comm->member[i].exchange != comm->member[0].exchange)
                        return false;
        }
        return true;
}

/* Numbers of the ranks' nodes, without gaps; how many there are. */
static uint32_t comm_nodes(const struct fake_comm *comm, uint8_t *ret_node) {
        uint8_t number[UINT8_MAX + 1];
        uint32_t n = 0;

        memset(number, 0xff, sizeof(number));
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                if (number[comm->member[i].node] == 0xff)
                        number[comm->member[i].node] = (uint8_t)n++;
                ret_node[i] = number[comm->member[i].node];
        }
        return n;
}

static void reply_comm(struct fake *fake, struct fake_comm *comm, uint32_t rank, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__CommReply body = RAILMUX__SESSION__COMM_REPLY__INIT;
        struct fake_member *member = &comm->member[rank];
        uint8_t node[FAKE_RANKS_MAX];
        const bool spans = comm_nodes(comm, node) > 1;

        body.handle = member->handle;
        body.n_ranks = comm->n_ranks;
        body.rank = rank;
        body.gpu = member->gpu;
        body.epoch = 1;
        body.exchange_min =
                !spans && exchanges(fake, comm) ? fake->exchange_min + member->node * fake->exchange_more : 0;
        body.exchange_max = !spans && exchanges(fake, comm) ? fake->exchange_max : 0;
        if (spans) {
                body.node.data = node;
                body.node.len = comm->n_ranks;
        }
        message.body_case = BODY(COMM_REPLY);
        message.comm_reply = &body;
        fake_reply(fake, member->session, &message, id, NULL, 0);
}

static void say_resumed(struct fake *fake, struct fake_session *session) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__Event event = RAILMUX__SESSION__EVENT__INIT;
        Railmux__Session__Resumed body = RAILMUX__SESSION__RESUMED__INIT;

        body.version = 1;
        event.body_case = RAILMUX__SESSION__EVENT__BODY_RESUMED;
        event.resumed = &body;
        message.body_case = BODY(EVENT);
        message.event = &event;
        fake_reply(fake, session, &message, 0, NULL, 0);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */
static void on_hello(struct fake *fake, struct fake_session *session, uint64_t id,
                     const Railmux__Session__Hello *hello) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__HelloReply body = RAILMUX__SESSION__HELLO_REPLY__INIT;
        char pci[FAKE_GPUS][16], *pcis[FAKE_GPUS];

        snprintf(fake->name, sizeof(fake->name), "%s", hello->name);
        if (fake->hello_failure) {
                reply_failure(fake, session, id, fake->hello_failure, "not today");
                return;
        }
        body.version = fake->hello_version;
        body.features = hello->features & ~fake->no_features;
        if (!fake->backend)
                body.features &= SESSION_FEATURE_LIFE;
        body.session = 7;
        body.gpus = FAKE_GPUS;
        for (unsigned int i = 0; i < FAKE_GPUS; i++) {
                snprintf(pci[i], sizeof(pci[i]), "0000:%02x:00.0", i);
                pcis[i] = pci[i];
        }
        body.backend = (char *)(fake->backend ? fake->backend : "host");
        if (fake->backend) {
                body.gpu_pci = pcis;
                body.n_gpu_pci = FAKE_GPUS;
        }
        message.body_case = BODY(HELLO_REPLY);
        message.hello_reply = &body;
        fake_reply(fake, session, &message, id, NULL, 0);
}

static void on_life_open(struct fake *fake, struct fake_session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__LifeReply body = RAILMUX__SESSION__LIFE_REPLY__INIT;
        int ends[2];

        must(!(fake->no_features & SESSION_FEATURE_LIFE));
        if (fake->refuse_life) {
                reply_failure(fake, session, id, fake->refuse_life, "no descriptors are left");
                return;
        }
        for (unsigned int i = 0; i < 2; i++) {
                int fds[2];

                must(!pipe2(fds, O_CLOEXEC | O_NONBLOCK));
                if (fake->life_fd[i] >= 0)
                        close(fake->life_fd[i]);
                fake->life_fd[i] = fds[0];
                ends[i] = fds[1];
        }
        message.body_case = BODY(LIFE_REPLY);
        message.life_reply = &body;
        fake_reply(fake, session, &message, id, ends, 2);
        close(ends[0]);
        close(ends[1]);
}

/* A GPU's area is for good. */
static bool ring_takes(struct fake *fake, struct fake_ring *ring, const Railmux__Session__DeviceMemory *area) {
        unsigned char handle[sizeof(ring->area)] = {0};

        must(!fake->backend == !area && (!area || area->handle.len <= sizeof(handle)));
        if (!area)
                return true;
        memcpy(handle, area->handle.data, area->handle.len);
        if (ring->open)
                return !memcmp(ring->area, handle, sizeof(handle));
        memcpy(ring->area, handle, sizeof(handle));
        fake->areas++;
        return true;
}

static void on_ring_open(struct fake *fake, struct fake_session *session, uint64_t id,
                         const Railmux__Session__RingOpen *call) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__RingReply body = RAILMUX__SESSION__RING_REPLY__INIT;
        struct fake_ring *ring = &session->rings[call->gpu];
        int fds[FRAME_FDS_MAX + 1];
        struct ring_layout layout;

        must(call->gpu < FAKE_GPUS);
        if (!ring_takes(fake, ring, call->area)) {
                reply_failure(fake, session, id, RMX_E_INVALID, "the ring lies in other memory");
                return;
        }
        must(ring_layout_init(&layout, fake->depth, fake->argument_bytes) == RING_OK);
        if (!ring->open) {
                struct epoll_event event = {.events = EPOLLIN | EPOLLET};

                must(!memfd_new("client", layout.client_bytes, &ring->client_fd));
                must(!memfd_new("executor", layout.executor_bytes, &ring->executor_fd));
                if (fake->backend && !fake->no_latch)
                        must(!memfd_new("latch", 4096, &ring->readonly_fd)); /* which is not, either */
                else
                        must(!memfd_reopen_readonly(ring->executor_fd, &ring->readonly_fd));
                ring->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
                must(!memfd_map(ring->client_fd, layout.client_bytes, 0, 1, &ring->client_area));
                must(!memfd_map(ring->executor_fd, layout.executor_bytes, 1, 1, &ring->executor_area));
                ring_consumer_init(&ring->consumer, &layout, ring->client_area, ring->executor_area,
                                   RING_FIRST_SEQUENCE);
                must(!epoll_ctl(fake->epoll_fd, EPOLL_CTL_ADD, ring->wake_fd, &event));
                ring->open = true;
                fake_kick(fake); /* the executor has not said on this ring that it sleeps */
        }
        body.gpu = call->gpu;
        body.depth = fake->depth;
        body.argument_bytes = fake->argument_bytes;
        message.body_case = BODY(RING_REPLY);
        message.ring_reply = &body;
        for (uint32_t i = 0; i < FRAME_FDS_MAX + 1; i++)
                fds[i] = ring->wake_fd;
        fds[0] = ring->client_fd;
        fds[1] = ring->readonly_fd;
        fake_reply(fake, session, &message, id, fds,
                   fake->cut_rings ? FRAME_FDS_MAX + 1 : 3); /* too many are cut off */
        fake->cut_rings -= fake->cut_rings > 0;
}

static void on_buffer_create(struct fake *fake, struct fake_session *session, uint64_t id, uint32_t buffer_id,
                             uint64_t bytes) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferReply body = RAILMUX__SESSION__BUFFER_REPLY__INIT;
        uint64_t held = 0;
        struct fake_buffer *buffer, *found = NULL;

        bytes = (bytes + 4095) & ~(uint64_t)4095;
        for (buffer = session->buffers; buffer; buffer = buffer->next) {
                held += buffer->bytes;
                if (buffer->id == buffer_id)
                        found = buffer;
        }
        if (!found && held + bytes > fake->max_bytes) {
                reply_failure(fake, session, id, RMX_E_LIMIT, "the tenant's limit of bytes would be exceeded");
                return;
        }
        if (!found) {
                void *address;

                found = calloc(1, sizeof(*found));
                found->id = buffer_id;
                found->bytes = bytes;
                must(!memfd_new("buffer", bytes, &found->fd));
                must(!memfd_map(found->fd, bytes, 1, 1, &address));
                found->address = address;
                found->next = session->buffers;
                session->buffers = found;
        }
        must(found->bytes == bytes);
        body.buffer = buffer_id;
        body.bytes = bytes;
        message.body_case = BODY(BUFFER_REPLY);
        message.buffer_reply = &body;
        fake_reply(fake, session, &message, id, &found->fd, 1);
}

/* GPU memory is only written down. */
/* What the test's plug-in has put into each descriptor. */
static void look_at_chunks(struct fake_device_buffer *buffer, const Railmux__Session__DeviceMemory *memory,
                           const int *fds, unsigned int n_fds) {
        uint64_t sum = 0;

        must(memory->n_chunk_bytes == n_fds && n_fds <= FAKE_CHUNKS);
        buffer->n_chunks = n_fds;
        for (uint32_t i = 0; i < n_fds; i++) {
                buffer->chunk_bytes[i] = memory->chunk_bytes[i];
                sum += memory->chunk_bytes[i];
                must(pread(fds[i], &buffer->chunk[i], sizeof(buffer->chunk[i]), 0) == sizeof(buffer->chunk[i]));
        }
        must(sum == memory->bytes);
}

static void on_device_buffer(struct fake *fake, struct fake_session *session, uint64_t id,
                             const Railmux__Session__BufferCreate *create, const int *fds, unsigned int n_fds) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__BufferReply body = RAILMUX__SESSION__BUFFER_REPLY__INIT;
        struct fake_device_buffer *buffer = fake->device_buffers;

        must(fake->backend && create->buffer && create->memory->bytes == create->bytes);
        must(create->memory->kind == (n_fds ? 2 : 1) && create->memory->handle.len <= sizeof(buffer->handle));
        must(!n_fds || !(fake->no_features & SESSION_FEATURE_CHUNKS));
        if (fake->refuse_memory) {
                const uint32_t code = fake->refuse_memory;

                fake->refuse_memory = 0; /* before the test can go on */
                reply_failure(fake, session, id, code, "the executor cannot map it");
                return;
        }
        while (buffer->id && buffer->id != create->buffer)
                must(++buffer < fake->device_buffers + FAKE_BUFFERS);
        *buffer = (struct fake_device_buffer){.id = create->buffer, .gpu = create->gpu, .bytes = create->bytes};
        memcpy(buffer->handle, create->memory->handle.data, create->memory->handle.len);
        if (n_fds)
                look_at_chunks(buffer, create->memory, fds, n_fds);
        body.buffer = create->buffer;
        body.bytes = create->bytes;
        message.body_case = BODY(BUFFER_REPLY);
        message.buffer_reply = &body;
        fake_reply(fake, session, &message, id, NULL, 0);
}

static void buffer_free(struct fake_buffer *buffer) {
        memfd_unmap(buffer->address, buffer->bytes);
        close(buffer->fd);
        free(buffer);
}

static void on_buffer_destroy(struct fake *fake, struct fake_session *session, uint64_t id, uint32_t buffer_id) {
        for (uint32_t i = 0; i < FAKE_BUFFERS; i++) {
                if (fake->device_buffers[i].id == buffer_id)
                        fake->device_buffers[i].id = 0;
        }
        for (struct fake_buffer **at = &session->buffers; *at; at = &(*at)->next) {
                if ((*at)->id == buffer_id) {
                        struct fake_buffer *buffer = *at;

                        *at = buffer->next;
                        buffer_free(buffer);
                        break;
                }
        }
        reply_ack(fake, session, id);
}

static void on_id_create(struct fake *fake, struct fake_session *session, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__IdReply body = RAILMUX__SESSION__ID_REPLY__INIT;
        uint8_t bytes[128] = {0};

        fake->ids++;
        memcpy(bytes, &fake->ids, sizeof(fake->ids));
        body.id.data = bytes;
        body.id.len = sizeof(bytes);
        message.body_case = BODY(ID_REPLY);
        message.id_reply = &body;
        fake_reply(fake, session, &message, id, NULL, 0);
}

static struct fake_comm *comm_new(struct fake *fake, const void *id, uint32_t n_ranks) {
        struct fake_comm *comm = calloc(1, sizeof(*comm));

        if (id)
                memcpy(comm->id, id, sizeof(comm->id));
        comm->n_ranks = n_ranks;
        comm->next = fake->comms;
        fake->comms = comm;
        return comm;
}

static void on_comm_create(struct fake *fake, struct fake_session *session, uint64_t id,
                           const Railmux__Session__CommCreate *body) {
        struct fake_comm *comm;
        struct fake_member *member;
        bool was_complete = true, complete = true;

        must(body->comm_id.len == 128 && body->n_ranks <= FAKE_RANKS_MAX && body->rank < body->n_ranks);
        for (comm = fake->comms; comm; comm = comm->next) {
                if (!memcmp(comm->id, body->comm_id.data, 128))
                        break;
        }
        if (!comm)
                comm = comm_new(fake, body->comm_id.data, body->n_ranks);
        if (comm->n_ranks != body->n_ranks) {
                reply_failure(fake, session, id, RMX_E_INVALID, "n_ranks differs between ranks");
                return;
        }
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                was_complete &= comm->member[i].joined;
        member = &comm->member[body->rank];
        if (!member->joined)
                member->handle = ++session->next_handle;
        member->joined = true;
        member->session = session;
        member->gpu = body->gpu < 0 ? body->rank % FAKE_GPUS : (uint32_t)body->gpu;
        member->exchange = body->exchange;
        member->node = fake->node[body->rank];
        member->call = id;
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                complete &= comm->member[i].joined;
        if (was_complete)
                reply_comm(fake, comm, body->rank, id);
        else if (complete) {
                for (uint32_t i = 0; i < comm->n_ranks; i++)
                        reply_comm(fake, comm, i, comm->member[i].call);
        }
}

static struct fake_member *member_of(struct fake *fake, struct fake_session *session, uint32_t handle,
                                     struct fake_comm **ret_comm, uint32_t *ret_rank) {
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next) {
                for (uint32_t i = 0; i < comm->n_ranks; i++) {
                        if (comm->member[i].session == session && comm->member[i].handle == handle) {
                                *ret_comm = comm;
                                *ret_rank = i;
                                return &comm->member[i];
                        }
                }
        }
        return NULL;
}

/* All ranks have called: makes one comm per colour. */
static void split_done(struct fake *fake, struct fake_comm *parent) {
        for (uint32_t i = 0; i < parent->n_ranks; i++) {
                int32_t colour = parent->member[i].split_colour;
                struct fake_comm *comm;
                uint32_t order[FAKE_RANKS_MAX], n = 0;

                if (!parent->member[i].split)
                        continue;
                for (uint32_t k = i; k < parent->n_ranks; k++) {
                        if (parent->member[k].split && parent->member[k].split_colour == colour)
                                order[n++] = k;
                }
                for (uint32_t a = 1; a < n; a++) { /* insertion sort by key keeps the order of ranks */
                        for (uint32_t b = a;
                             b && parent->member[order[b - 1]].split_key > parent->member[order[b]].split_key; b--) {
                                uint32_t t = order[b];

                                order[b] = order[b - 1];
                                order[b - 1] = t;
                        }
                }
                comm = colour < 0 ? NULL : comm_new(fake, NULL, n);
                for (uint32_t k = 0; k < n; k++) {
                        struct fake_member *from = &parent->member[order[k]];

                        from->split = false;
                        if (comm) {
                                struct fake_member *to = &comm->member[k];

                                to->session = from->session;
                                to->handle = ++from->session->next_handle;
                                to->gpu = from->split_gpu < 0 ? k % FAKE_GPUS : (uint32_t)from->split_gpu;
                                to->exchange = from->split_exchange;
                                to->node = from->node;
                                to->joined = true;
                                to->call = from->split_call;
                        } else {
                                Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
                                Railmux__Session__CommReply none = RAILMUX__SESSION__COMM_REPLY__INIT;

                                message.body_case = BODY(COMM_REPLY);
                                message.comm_reply = &none;
                                fake_reply(fake, from->session, &message, from->split_call, NULL, 0);
                        }
                }
                for (uint32_t k = 0; comm && k < n; k++)
                        reply_comm(fake, comm, k, comm->member[k].call);
        }
}

static void on_comm_split(struct fake *fake, struct fake_session *session, uint64_t id,
                          const Railmux__Session__CommSplit *body) {
        struct fake_comm *comm;
        struct fake_member *member;
        uint32_t rank;

        member = member_of(fake, session, body->parent, &comm, &rank);
        must(member && !member->split);
        member->split = true;
        member->split_call = id;
        member->split_colour = body->colour;
        member->split_key = body->key;
        member->split_gpu = body->gpu;
        member->split_exchange = body->exchange;
        snprintf(fake->split_name, sizeof(fake->split_name), "%s", body->name);
        fake->n_spare += body->spare;
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                if (!comm->member[i].split)
                        return;
        }
        if (fake->refuse_splits) {
                for (uint32_t i = 0; i < comm->n_ranks; i++) {
                        comm->member[i].split = false;
                        reply_failure(fake, comm->member[i].session, comm->member[i].split_call, fake->refuse_splits,
                                      "the split is refused");
                }
                return;
        }
        split_done(fake, comm);
}

/* A rank gives up joining: it and those that wait for it are told, and the id is as new. */
static void on_join_cancel(struct fake *fake, struct fake_session *session, const Railmux__Session__CommAbort *body) {
        for (struct fake_comm **at = &fake->comms; *at; at = &(*at)->next) {
                struct fake_comm *comm = *at;

                if (memcmp(comm->id, body->comm_id.data, 128) || comm->member[body->rank].session != session)
                        continue;
                for (uint32_t i = 0; i < comm->n_ranks; i++) {
                        if (comm->member[i].joined)
                                reply_failure(fake, comm->member[i].session, comm->member[i].call, RMX_E_ABORTED,
                                              "a rank gave up");
                }
                *at = comm->next;
                free(comm);
                return;
        }
}

static void on_split_cancel(struct fake *fake, struct fake_session *session, const Railmux__Session__CommAbort *body) {
        struct fake_comm *comm;
        uint32_t rank;

        if (!member_of(fake, session, body->parent, &comm, &rank) || !comm->member[rank].split)
                return;
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                if (comm->member[i].split)
                        reply_failure(fake, comm->member[i].session, comm->member[i].split_call, RMX_E_ABORTED,
                                      "a rank gave up");
                comm->member[i].split = false;
        }
}

static void on_comm_abort(struct fake *fake, struct fake_session *session, uint64_t id,
                          const Railmux__Session__CommAbort *body) {
        struct fake_comm *comm;
        uint32_t rank, status;

        fake->taken_back += !body->handle;
        if (!body->handle && !fake->cancels) {
                reply_failure(fake, session, id, RMX_E_INVALID, "handle 0 names no communicator");
                return;
        }
        if (body->handle) {
                must(member_of(fake, session, body->handle, &comm, &rank));
                fake_work(fake);
                status = body->status ? body->status : ring_status(RMX_E_ABORTED, (int32_t)rank);
                must(!body->status || ring_status_code(status) == RMX_E_MISMATCH);
                fake_comm_end(comm, status);
                if (fake->tells_aborts)
                        fake_comm_tell(fake, comm, ring_status_code(status), ring_status_rank(status));
        } else if (body->comm_id.len) {
                on_join_cancel(fake, session, body);
        } else {
                on_split_cancel(fake, session, body);
        }
        reply_ack(fake, session, id);
}

static void on_call(struct fake *fake, struct fake_session *session, const Railmux__Session__Message *m, const int *fds,
                    unsigned int n_fds) {
        struct fake_comm *comm;
        uint32_t rank;

        must(m->id && m->body_case < FAKE_BODIES);
        fake->calls[m->body_case]++;
        pthread_cond_broadcast(&fake->changed);
        if (fake->drop_count && fake->drop_body == m->body_case) {
                if (!--fake->drop_count)
                        say_resumed(fake, session);
                return;
        }
        switch (m->body_case) {
        case BODY(HELLO):
                on_hello(fake, session, m->id, m->hello);
                break;
        case BODY(LIFE_OPEN):
                on_life_open(fake, session, m->id);
                if (fake->twice_life)
                        on_life_open(fake, session, m->id);
                break;
        case BODY(RING_OPEN):
                on_ring_open(fake, session, m->id, m->ring_open);
                break;
        case BODY(BUFFER_CREATE):
                if (m->buffer_create->memory)
                        on_device_buffer(fake, session, m->id, m->buffer_create, fds, n_fds);
                else if (fake->backend)
                        reply_failure(fake, session, m->id, RMX_E_UNSUPPORTED,
                                      "this daemon serves memory on GPUs only");
                else
                        on_buffer_create(fake, session, m->id, m->buffer_create->buffer, m->buffer_create->bytes);
                break;
        case BODY(BUFFER_DESTROY):
                on_buffer_destroy(fake, session, m->id, m->buffer_destroy->buffer);
                break;
        case BODY(ID_CREATE):
                on_id_create(fake, session, m->id);
                break;
        case BODY(COMM_CREATE):
                on_comm_create(fake, session, m->id, m->comm_create);
                break;
        case BODY(COMM_SPLIT):
                on_comm_split(fake, session, m->id, m->comm_split);
                break;
        case BODY(COMM_DESTROY):
                fake->last_sequence = m->comm_destroy->last_sequence;
                if (member_of(fake, session, m->comm_destroy->handle, &comm, &rank))
                        comm->member[rank].left = true;
                reply_ack(fake, session, m->id);
                break;
        case BODY(COMM_ABORT):
                on_comm_abort(fake, session, m->id, m->comm_abort);
                break;
        default:
                must(false);
        }
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */
static void session_end(struct fake *fake, struct fake_session *session) {
        close(session->fd);
        session->fd = -1;
        if (fake->gone)
                return;
        fake_work(fake);
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next) {
                for (uint32_t i = 0; i < comm->n_ranks; i++) {
                        if (comm->member[i].session == session && !comm->member[i].left)
                                fake_comm_end(comm, ring_status(RMX_E_PEER_LOST, (int32_t)i));
                }
        }
}

static void session_read(struct fake *fake, struct fake_session *session) {
        while (session->fd >= 0 && !fake->deaf) {
                struct frame_arena arena;
                ProtobufCMessage *message;
                int fds[FRAME_FDS_PACKET];
                unsigned int n_fds;
                int r;

                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive_packet(session->fd, &railmux__session__message__descriptor, &arena, &message, fds,
                                         &n_fds);
                if (r == FRAME_E_AGAIN)
                        return;
                if (r) {
                        must(r == FRAME_E_EOF);
                        session_end(fake, session);
                        return;
                }
                must(!n_fds || ((const Railmux__Session__Message *)message)->body_case == BODY(BUFFER_CREATE));
                on_call(fake, session, (const Railmux__Session__Message *)message, fds, n_fds);
                frame_close_fds(fds, n_fds);
                protobuf_c_message_free_unpacked(message, &arena.allocator);
        }
}

static void accept_all(struct fake *fake) {
        int fd;

        while ((fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
                struct fake_session *session = calloc(1, sizeof(*session));

                session->fd = fd;
                session->next = fake->sessions;
                fake->sessions = session;
        }
}

static void *control_main(void *userdata) {
        struct fake *fake = userdata;

        pthread_mutex_lock(&fake->mutex);
        while (!fake->stop) {
                struct pollfd p[64] = {{.fd = fake->listen_fd, .events = POLLIN},
                                       {.fd = fake->control_fd, .events = POLLIN}};
                nfds_t n = 2;
                uint64_t kicks;

                for (struct fake_session *session = fake->sessions; session && !fake->deaf; session = session->next) {
                        must(n < 64);
                        if (session->fd >= 0)
                                p[n++] = (struct pollfd){.fd = session->fd, .events = POLLIN};
                }
                pthread_mutex_unlock(&fake->mutex);
                (void)poll(p, n, -1);
                pthread_mutex_lock(&fake->mutex);
                (void)!read(fake->control_fd, &kicks, sizeof(kicks));
                accept_all(fake);
                for (struct fake_session *session = fake->sessions; session; session = session->next)
                        session_read(fake, session);
        }
        pthread_mutex_unlock(&fake->mutex);
        return NULL;
}

void fake_kick(struct fake *fake) {
        static const uint64_t one = 1;

        must(write(fake->control_fd, &one, sizeof(one)) == sizeof(one));
        must(write(fake->executor_fd, &one, sizeof(one)) == sizeof(one));
}

void fake_start(struct fake *fake) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};

        *fake = (struct fake){.life_fd = {-1, -1},
                              .depth = 64,
                              .argument_bytes = RING_ARGUMENT_BYTES_DEFAULT,
                              .hello_version = 1,
                              .max_bytes = UINT64_MAX};
        snprintf(fake->directory, sizeof(fake->directory), "/tmp/railmux-fake-XXXXXX");
        must(mkdtemp(fake->directory));
        snprintf(fake->path, sizeof(fake->path), "%s/client.sock", fake->directory);
        fake->listen_fd = frame_listen(fake->path, 0600);
        must(fake->listen_fd >= 0);
        fake->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        fake->executor_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        fake->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        must(!epoll_ctl(fake->epoll_fd, EPOLL_CTL_ADD, fake->executor_fd, &event));
        pthread_mutex_init(&fake->mutex, NULL);
        pthread_cond_init(&fake->changed, NULL);
        must(!pthread_create(&fake->control, NULL, control_main, fake));
        must(!pthread_create(&fake->executor, NULL, fake_executor_main, fake));
}

static void session_free(struct fake_session *session) {
        struct fake_buffer *buffer;

        if (session->fd >= 0)
                close(session->fd);
        for (uint32_t i = 0; i < FAKE_GPUS; i++) {
                struct fake_ring *ring = &session->rings[i];

                if (!ring->open)
                        continue;
                memfd_unmap(ring->client_area, ring->consumer.layout.client_bytes);
                memfd_unmap(ring->executor_area, ring->consumer.layout.executor_bytes);
                close(ring->client_fd);
                close(ring->executor_fd);
                close(ring->readonly_fd);
                close(ring->wake_fd);
        }
        while ((buffer = session->buffers)) {
                session->buffers = buffer->next;
                buffer_free(buffer);
        }
        free(session);
}

void fake_stop(struct fake *fake) {
        struct fake_session *session;
        struct fake_comm *comm;

        pthread_mutex_lock(&fake->mutex);
        fake->stop = true;
        pthread_mutex_unlock(&fake->mutex);
        fake_kick(fake);
        pthread_join(fake->executor, NULL);
        pthread_join(fake->control, NULL);
        fake_forget(fake);
        while ((comm = fake->comms)) {
                fake->comms = comm->next;
                fake_comm_end(comm, RMX_E_ABORTED); /* what was left lying */
                free(comm);
        }
        while ((session = fake->sessions)) {
                fake->sessions = session->next;
                session_free(session);
        }
        for (unsigned int i = 0; i < 2; i++)
                if (fake->life_fd[i] >= 0)
                        close(fake->life_fd[i]);
        close(fake->listen_fd);
        close(fake->control_fd);
        close(fake->executor_fd);
        close(fake->epoll_fd);
        unlink(fake->path);
        rmdir(fake->directory);
        pthread_cond_destroy(&fake->changed);
        pthread_mutex_destroy(&fake->mutex);
}
