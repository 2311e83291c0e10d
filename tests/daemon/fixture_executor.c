/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"
#include "tests/daemon/fixture.h"
#include "tests/daemon/fixture_parts.h"

#include "railmux/railmux.h"
#include "ring/marks.h"
#include "util/memfd.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FAKE_GPUS 8u

bool fixture_executor_plain;
uint32_t fixture_executor_algorithms;
uint32_t fixture_executor_gpus = FAKE_GPUS;

void executor_send(struct fixture *fixture, Railmux__Executor__Message *message) {
        int r = frame_send(fixture->executor.fd, &message->base, NULL, 0);

        assert_true(r == FRAME_OK || r == FRAME_E_EOF); /* being turned away is part of a test */
}

static void executor_done(struct fixture *fixture, uint64_t id, uint32_t code, bool in_use) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Done done = RAILMUX__EXECUTOR__DONE__INIT;

        done.code = code;
        done.message = (char *)(code ? "the test says no" : "");
        done.epoch = 1;
        done.in_use = in_use;
        done.has_rung = fixture->executor.rung > 0; /* read of a RANK_LEAVE only */
        done.rung = fixture->executor.rung;
        message.id = id;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_DONE;
        message.done = &done;
        executor_send(fixture, &message);
}

void executor_send_comm_failed(struct fixture *fixture, uint64_t comm, uint32_t code, int32_t rank) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__CommFailed failed = RAILMUX__EXECUTOR__COMM_FAILED__INIT;
        struct fake_comm *fake = executor_comm(fixture, comm);

        if (fake)
                fake->code = code;
        failed.comm = comm;
        failed.code = code;
        failed.rank = rank;
        failed.message = (char *)"aborted"; /* as the host's says it */
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_FAILED;
        message.comm_failed = &failed;
        executor_send(fixture, &message);
}

static void executor_hello(struct fixture *fixture) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Hello hello = RAILMUX__EXECUTOR__HELLO__INIT;
        Railmux__Executor__Gpu gpus[FAKE_GPUS], *gpu_list[FAKE_GPUS];

        for (uint32_t i = 0; i < FAKE_GPUS; i++) {
                railmux__executor__gpu__init(&gpus[i]);
                gpus[i].index = i;
                gpus[i].name = (char *)"played";
                gpu_list[i] = &gpus[i];
        }
        hello.version_min = EXECUTOR_PROTOCOL_MIN;
        hello.version_max = EXECUTOR_PROTOCOL_MAX + 1; /* a newer one talks down */
        hello.name = (char *)"host";
        hello.instance = fixture->executor.instance;
        hello.pid = (uint32_t)getpid();
        hello.backend = (char *)"host";
        hello.n_gpus = fixture_executor_gpus;
        hello.gpus = gpu_list;
        hello.workers = 2;
        hello.widenings = !fixture_executor_plain;
        hello.algorithms = fixture_executor_algorithms;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        executor_send(fixture, &message);
}

static void executor_inventory(struct fixture *fixture) {
        struct fake_executor *executor = &fixture->executor;
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Inventory inventory = RAILMUX__EXECUTOR__INVENTORY__INIT;
        Railmux__Executor__Ready ready = RAILMUX__EXECUTOR__READY__INIT;
        Railmux__Executor__RingKey rings[256], *ring_list[256];
        Railmux__Executor__BufferKey buffers[512], *buffer_list[512];
        Railmux__Executor__CommKey comms[128], *comm_list[128];
        Railmux__Executor__BufferKey retired[512], *retired_list[512];

        for (unsigned int i = 0; i < executor->n_rings; i++) {
                railmux__executor__ring_key__init(ring_list[i] = &rings[i]);
                rings[i].session = executor->rings[i].session;
                rings[i].gpu = executor->rings[i].gpu;
        }
        for (unsigned int i = 0; i < executor->n_buffers; i++) {
                railmux__executor__buffer_key__init(buffer_list[i] = &buffers[i]);
                buffers[i].session = executor->buffers[i].session;
                buffers[i].buffer = executor->buffers[i].buffer;
        }
        for (unsigned int i = 0; i < executor->n_retired; i++) {
                railmux__executor__buffer_key__init(retired_list[i] = &retired[i]);
                retired[i].session = executor->retired[i].session;
                retired[i].buffer = executor->retired[i].buffer;
        }
        for (unsigned int i = 0; i < executor->n_comms; i++) {
                railmux__executor__comm_key__init(comm_list[i] = &comms[i]);
                comms[i].comm = executor->comms[i].number;
                comms[i].epoch = 1;
                comms[i].code = executor->comms[i].code;
                comms[i].failed = executor->comms[i].failed;
                if (executor->comms[i].text)
                        comms[i].message = (char *)executor->comms[i].text;
        }
        inventory.sessions = executor->sessions;
        inventory.n_sessions = executor->n_sessions;
        inventory.rings = ring_list;
        inventory.n_rings = executor->n_rings;
        inventory.buffers = buffer_list;
        inventory.n_buffers = executor->n_buffers;
        inventory.retired = retired_list;
        inventory.n_retired = executor->n_retired;
        inventory.comms = comm_list;
        inventory.n_comms = executor->n_comms;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_INVENTORY;
        message.inventory = &inventory;
        executor_send(fixture, &message);
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_READY;
        message.ready = &ready;
        executor_send(fixture, &message);
}

void executor_begin(struct fixture *fixture, bool fresh) {
        struct fake_executor *executor = &fixture->executor;

        executor_disconnect(fixture);
        if (fresh) {
                executor->instance += 1000;
                executor->n_sessions = executor->n_rings = executor->n_buffers = executor->n_comms = 0;
                executor->n_retired = 0;
        }
        fixture_wait(fixture, (executor->fd = frame_connect(fixture->exec)) >= 0);
        executor->welcome = false;
        executor->n_held = 0;
        executor->query = 0;
        executor_hello(fixture);
}

void executor_go_on(struct fixture *fixture) {
        executor_inventory(fixture);
}

void executor_connect(struct fixture *fixture, bool fresh) {
        executor_begin(fixture, fresh);
        executor_go_on(fixture);
}

void executor_disconnect(struct fixture *fixture) {
        if (fixture->executor.fd >= 0)
                close(fixture->executor.fd);
        fixture->executor.fd = -1;
}

void executor_release(struct fixture *fixture) {
        struct fake_executor *executor = &fixture->executor;

        executor->hold = false;
        for (unsigned int i = 0; i < executor->n_held; i++)
                executor_done(fixture, executor->held[i], executor->held_code[i], executor->held_in_use[i]);
        executor->n_held = 0;
}

struct fake_comm *executor_comm(struct fixture *fixture, uint64_t number) {
        for (unsigned int i = 0; i < fixture->executor.n_comms; i++) {
                if (fixture->executor.comms[i].number == number)
                        return &fixture->executor.comms[i];
        }
        return NULL;
}

static bool executor_uses_retired(const struct fake_executor *executor, uint64_t session, uint32_t buffer) {
        for (unsigned int i = 0; i < executor->n_retired; i++) {
                if (executor->retired[i].session == session && executor->retired[i].buffer == buffer)
                        return true;
        }
        return false;
}

static void executor_forget_retired(struct fake_executor *executor, uint64_t session, uint32_t buffer) {
        for (unsigned int i = 0; i < executor->n_retired; i++) {
                if (executor->retired[i].session == session && executor->retired[i].buffer == buffer) {
                        executor->retired[i] = executor->retired[--executor->n_retired];
                        return;
                }
        }
}

void executor_send_released(struct fixture *fixture, uint64_t session, uint32_t buffer) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__BufferReleased released = RAILMUX__EXECUTOR__BUFFER_RELEASED__INIT;

        executor_forget_retired(&fixture->executor, session, buffer);
        released.session = session;
        released.buffer = buffer;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RELEASED;
        message.buffer_released = &released;
        executor_send(fixture, &message);
}

static void executor_detach_session(struct fixture *fixture, uint64_t session) {
        struct fake_executor *executor = &fixture->executor;
        unsigned int n;

        for (unsigned int i = 0; i < executor->n_comms; i++) {
                struct fake_comm *comm = &executor->comms[i];

                for (uint32_t r = 0; r < comm->n_ranks; r++) {
                        if (comm->sessions[r] == session && !comm->left[r] && comm->code == 0 &&
                            executor->announce_failures)
                                executor_send_comm_failed(fixture, comm->number, RMX_E_PEER_LOST, (int32_t)r);
                }
        }
        n = 0;
        for (unsigned int i = 0; i < executor->n_sessions; i++) {
                if (executor->sessions[i] != session)
                        executor->sessions[n++] = executor->sessions[i];
        }
        executor->n_sessions = n;
        n = 0;
        for (unsigned int i = 0; i < executor->n_rings; i++) {
                if (executor->rings[i].session != session)
                        executor->rings[n++] = executor->rings[i];
        }
        executor->n_rings = n;
        n = 0;
        for (unsigned int i = 0; i < executor->n_buffers; i++) {
                if (executor->buffers[i].session != session)
                        executor->buffers[n++] = executor->buffers[i];
        }
        executor->n_buffers = n;
        n = 0;
        for (unsigned int i = 0; i < executor->n_retired; i++) {
                if (executor->retired[i].session != session)
                        executor->retired[n++] = executor->retired[i];
        }
        executor->n_retired = n;
}

static bool executor_has_session(const struct fake_executor *executor, uint64_t session) {
        for (unsigned int i = 0; i < executor->n_sessions; i++) {
                if (executor->sessions[i] == session)
                        return true;
        }
        return false;
}

static void executor_comm_attach(struct fixture *fixture, const Railmux__Executor__CommAttach *attach, int fd) {
        struct fake_executor *executor = &fixture->executor;
        struct fake_comm *comm;
        void *marks;

        assert_null(executor_comm(fixture, attach->comm));
        assert_true(executor->n_comms < 128);
        assert_int_equal(memfd_map(fd, marks_bytes(attach->n_ranks), 1, 1, &marks), 0);
        memfd_unmap(marks, marks_bytes(attach->n_ranks));
        assert_true(attach->n_choices > 0 && attach->part_bytes > 0 && attach->slots > 0);
        assert_int_equal(attach->n_members, attach->n_ranks);
        comm = &executor->comms[executor->n_comms++];
        memset(comm, 0, sizeof(*comm));
        comm->number = attach->comm;
        comm->n_ranks = attach->n_ranks;
        comm->code = attach->code;
        comm->n_choices = (uint32_t)attach->n_choices;
        assert_true(attach->n_choices <= sizeof(comm->choices) / sizeof(comm->choices[0]));
        for (uint32_t i = 0; i < comm->n_choices; i++) {
                comm->choices[i].operation = attach->choices[i]->operation;
                comm->choices[i].algorithm = attach->choices[i]->algorithm;
                comm->choices[i].max_bytes = attach->choices[i]->max_bytes;
                comm->choices[i].widening = attach->choices[i]->widening;
        }
        for (uint32_t r = 0; r < attach->n_ranks; r++) {
                comm->sessions[r] = attach->members[r]->session;
                comm->handles[r] = attach->members[r]->handle;
                comm->left[r] = attach->members[r]->left;
                /* sessions come before comms */
                if (!comm->left[r] && comm->code == 0 && attach->members[r]->node == attach->node)
                        assert_true(executor_has_session(executor, comm->sessions[r]));
        }
}

static void executor_send_statistics(struct fixture *fixture, uint64_t id, uint64_t operations) {
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        Railmux__Executor__Statistics statistics = RAILMUX__EXECUTOR__STATISTICS__INIT;
        Railmux__Executor__Counters counters = RAILMUX__EXECUTOR__COUNTERS__INIT;

        counters.operations = operations;
        statistics.counters = &counters;
        message.id = id;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_STATISTICS;
        message.statistics = &statistics;
        executor_send(fixture, &message);
}

static void executor_statistics(struct fixture *fixture, uint64_t id) {
        struct fake_executor *executor = &fixture->executor;

        if (!executor->slow_query) {
                executor_send_statistics(fixture, id, executor->operations);
                return;
        }
        assert_int_equal(executor->query, 0);
        executor->query = id;
        executor->query_operations = executor->operations;
}

void executor_answer_query(struct fixture *fixture) {
        const uint64_t id = fixture->executor.query;

        fixture->executor.slow_query = false;
        fixture->executor.query = 0;
        executor_send_statistics(fixture, id, fixture->executor.query_operations);
}

static void executor_message(struct fixture *fixture, const Railmux__Executor__Message *m, const int *fds,
                             unsigned int n_fds) {
        struct fake_executor *executor = &fixture->executor;
        uint32_t code = m->body_case == executor->refuse ? RMX_E_UNSUPPORTED : 0;
        bool in_use = false;
        struct fake_comm *comm;
        void *memory;

        executor->count[m->body_case]++;
        if (m->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT ||
            m->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE ||
            m->body_case == RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH)
                executor->import_count = executor->count[RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_IMPORT];
        switch (code ? RAILMUX__EXECUTOR__MESSAGE__BODY__NOT_SET : m->body_case) {
        case RAILMUX__EXECUTOR__MESSAGE__BODY_WELCOME:
                assert_int_equal(m->welcome->version, EXECUTOR_PROTOCOL_MAX);
                executor->welcome = true;
                return;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_QUERY:
                executor_statistics(fixture, m->id);
                return;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_ATTACH:
                assert_false(executor_has_session(executor, m->session_attach->session));
                executor->sessions[executor->n_sessions++] = m->session_attach->session;
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_SESSION_DETACH:
                executor_detach_session(fixture, m->session_detach->session);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RING_ATTACH:
                assert_int_equal(n_fds, 3);
                assert_true(executor_has_session(executor, m->ring_attach->session));
                executor->rings[executor->n_rings].session = m->ring_attach->session;
                executor->rings[executor->n_rings++].gpu = m->ring_attach->gpu;
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_IMPORT:
                assert_int_equal(n_fds, 1);
                assert_true(executor_has_session(executor, m->buffer_import->session));
                assert_int_equal(memfd_map(fds[0], m->buffer_import->bytes, 1, 1, &memory), 0);
                *(uint32_t *)memory = m->buffer_import->buffer;
                memfd_unmap(memory, m->buffer_import->bytes);
                executor->buffers[executor->n_buffers].session = m->buffer_import->session;
                executor->buffers[executor->n_buffers++].buffer = m->buffer_import->buffer;
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RETIRE:
                assert_true(m->buffer_retire->tell);
                for (unsigned int i = 0; i < executor->n_buffers; i++) {
                        if (executor->buffers[i].session == m->buffer_retire->session &&
                            executor->buffers[i].buffer == m->buffer_retire->buffer) {
                                executor->buffers[i] = executor->buffers[--executor->n_buffers];
                                if (executor->in_use) {
                                        executor->retired[executor->n_retired].session = m->buffer_retire->session;
                                        executor->retired[executor->n_retired++].buffer = m->buffer_retire->buffer;
                                }
                                break;
                        }
                }
                in_use = executor_uses_retired(executor, m->buffer_retire->session, m->buffer_retire->buffer);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH:
                assert_int_equal(n_fds, m->comm_attach->n_nodes > 1 ? 4 : 1);
                executor_comm_attach(fixture, m->comm_attach, fds[0]);
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ABORT:
                comm = executor_comm(fixture, m->comm_abort->comm);
                if (comm && comm->code == 0) /* and railmuxd knows why */
                        comm->code = m->comm_abort->code;
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_DETACH:
                comm = executor_comm(fixture, m->comm_detach->comm);
                if (comm)
                        *comm = executor->comms[--executor->n_comms];
                break;
        case RAILMUX__EXECUTOR__MESSAGE__BODY_RANK_LEAVE:
                comm = executor_comm(fixture, m->rank_leave->comm);
                if (comm) /* COMM_ATTACH says it, too, and may come after this */
                        comm->left[m->rank_leave->rank] = true;
                break;
        default:
                break;
        }
        if (executor->hold) {
                executor->held[executor->n_held] = m->id;
                executor->held_in_use[executor->n_held] = in_use;
                executor->held_code[executor->n_held++] = code;
        } else {
                executor_done(fixture, m->id, code, in_use);
        }
}

void executor_readable(struct fixture *fixture) {
        for (;;) {
                struct frame_arena arena;
                ProtobufCMessage *message;
                int fds[FRAME_FDS_MAX];
                unsigned int n_fds = 0;
                int r;

                frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
                r = frame_receive(fixture->executor.fd, &railmux__executor__message__descriptor, &arena, &message, fds,
                                  &n_fds);
                if (r == FRAME_E_AGAIN)
                        return;
                if (r != FRAME_OK) {
                        executor_disconnect(fixture);
                        return;
                }
                executor_message(fixture, (const Railmux__Executor__Message *)message, fds, n_fds);
                frame_close_fds(fds, n_fds);
                protobuf_c_message_free_unpacked(message, &arena.allocator);
        }
}
