/* SPDX-License-Identifier: MIT */
/* The control socket of a whole manager whose sessions and comms are made by hand: rows, frames, refusals, bad readers.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/manager.h"
#include "daemon/options.h"
#include "daemon/session.h"
#include "daemon/tenant.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "tests/scratch.h"
#include "topology/topology.h"
#include "topology/xml.h"
#include "util/clock.h"
#include "util/log.h"
#include <utlist.h>

typedef Railmux__Control__Reply Reply;
typedef Railmux__Control__Request Request;

struct fixture {
        char dir[64], path[96], config_path[96];
        struct manager *manager;
        struct config config;
        struct options options;
        struct tenant *tenant;
        Railmux__Control__Empty empty;
};

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-control-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        snprintf(f->path, sizeof(f->path), "%s/control.sock", f->dir);
        snprintf(f->config_path, sizeof(f->config_path), "%s/r.yaml", f->dir);
        config_init(&f->config);
        free(f->config.control_socket);
        f->config.control_socket = strdup(f->path);
        free(f->config.client_socket);
        assert_true(asprintf(&f->config.client_socket, "%s/client.sock", f->dir) > 0);
        free(f->config.backend);
        f->config.backend = strdup("host");
        f->config.gpus = 3;
        f->config.log_level = LOG_LEVEL_ERROR;
        f->options.config_path = f->config_path;
        assert_int_equal(manager_new(&f->config, &f->options, &f->manager), 0);
        f->tenant = f->manager->tenants;
        f->empty = (Railmux__Control__Empty)RAILMUX__CONTROL__EMPTY__INIT;
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;
        struct session *session, *next_session;
        struct comm *comm, *next_comm;

        HASH_ITER(hh, f->manager->sessions, session, next_session) {
                HASH_DEL(f->manager->sessions, session);
                free(session);
        }
        HASH_ITER(hh, f->manager->comms, comm, next_comm) {
                HASH_DEL(f->manager->comms, comm);
                free(comm);
        }
        manager_free(f->manager);
        config_deinit(&f->config);
        assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

static void spin(struct fixture *f) {
        /* Everything happens in this process: when nothing is active any more, nothing will be. */
        for (int i = 0; i < 8; i++)
                event_base_loop(f->manager->base, EVLOOP_NONBLOCK);
}

static int dial(struct fixture *f) {
        int fd = frame_connect(f->path);

        assert_true(fd >= 0);
        spin(f);
        return fd;
}

static void ask(struct fixture *f, int fd, Railmux__Control__Request__BodyCase body) {
        Request request = RAILMUX__CONTROL__REQUEST__INIT;

        request.version = CONTROL_PROTOCOL;
        request.body_case = body;
        request.status = &f->empty;
        assert_int_equal(frame_send(fd, &request.base, NULL, 0), FRAME_OK);
}

static Reply *receive(struct fixture *f, int fd) {
        ProtobufCMessage *message;
        struct frame_arena arena;
        int fds[FRAME_FDS_MAX];
        unsigned int n_fds;
        int r;

        spin(f);
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        r = frame_receive(fd, &railmux__control__reply__descriptor, &arena, &message, fds, &n_fds);
        if (r != FRAME_OK)
                fail_msg("no reply: %s", frame_error_text(r));
        assert_int_equal(n_fds, 0);
        assert_int_equal(((Reply *)message)->version, CONTROL_PROTOCOL);
        return (Reply *)message;
}

static void forget(Reply *reply) {
        railmux__control__reply__free_unpacked(reply, NULL);
}

static Reply *query(struct fixture *f, Railmux__Control__Request__BodyCase body) {
        int fd = dial(f);
        Reply *reply;

        ask(f, fd, body);
        reply = receive(f, fd);
        assert_false(reply->more);
        close(fd);
        spin(f);
        return reply;
}

static int receive_condition(struct fixture *f, int fd) {
        ProtobufCMessage *message;
        struct frame_arena arena;
        int fds[FRAME_FDS_MAX];
        unsigned int n_fds;

        spin(f);
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        return frame_receive(fd, &railmux__control__reply__descriptor, &arena, &message, fds, &n_fds);
}

static void add_session(struct fixture *f, uint64_t id, const char *name) {
        struct session *session = calloc(1, sizeof(*session));

        assert_non_null(session);
        session->id = id;
        session->pid = 4711;
        session->tenant = f->tenant;
        session->opened_ns = clock_now_ns();
        snprintf(session->name, sizeof(session->name), "%s", name);
        HASH_ADD(hh, f->manager->sessions, id, sizeof(session->id), session);
}

static struct comm *add_comm(struct fixture *f, uint64_t number, uint32_t n_ranks) {
        struct comm *comm = calloc(1, sizeof(*comm) + n_ranks * sizeof(comm->members[0]));

        assert_non_null(comm);
        comm->number = number;
        comm->tenant = f->tenant;
        comm->n_ranks = comm->n_joined = n_ranks;
        comm->state = COMM_READY;
        comm->failed_rank = -1;
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
                comm->members[rank] = (struct comm_member){
                        .rank = rank, .session_id = 100 + rank, .pid = 1000, .gpu = rank, .joined = true};
        }
        HASH_ADD(hh, f->manager->comms, number, sizeof(comm->number), comm);
        return comm;
}

static void test_status(void **state) {
        struct fixture *f = *state;
        Reply *reply;

        f->manager->restarts = 7;
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_int_equal(reply->code, 0);
        assert_non_null(reply->status);
        assert_string_equal(reply->status->state, "degraded");
        assert_int_equal(reply->status->pid, getpid());
        assert_int_equal(reply->status->restarts, 7);
        assert_int_equal(reply->status->tenants, 1);
        assert_int_equal(reply->status->n_executors, 1);
        assert_string_equal(reply->status->executors[0]->name, "host");
        assert_string_equal(reply->status->executors[0]->state, "gone");
        assert_int_equal(reply->status->executors[0]->gpus, 3);
        assert_int_equal(reply->status->n_notes, 2); /* the executor is gone, and nobody keeps fds */
        forget(reply);
}

/* Behind `begin` there are the seconds that a wait of 1.2 s at `at_ns` has lasted. */
static void check_seconds(const char *text, const char *begin, uint64_t at_ns) {
        const char *at = strstr(text, begin);
        double seconds = at ? strtod(at + strlen(begin), NULL) : 0;

        if (seconds < 1.15 || seconds > 1.25 + (double)(clock_now_ns() - at_ns) / 1e9)
                fail_msg("%s", text);
}

static void test_comms(void **state) {
        struct fixture *f = *state;
        struct comm *comm = add_comm(f, 5, 4), *idle = add_comm(f, 6, 2), *bad = add_comm(f, 7, 2);
        Railmux__Control__Comm *row;
        Reply *reply;

        comm->statistics = (struct comm_statistics){
                .at_ns = clock_now_ns(),
                .final_sequence = 16,
                .waiting_operation = RING_OP_ALL_REDUCE,
                .waiting_ns = 1200000000,
                .rung = {17, 16, 17, 15},
        };
        comm->stall = (struct comm_stall){.at_ns = clock_now_ns(),
                                          .sequence = 17,
                                          .operation = RING_OP_ALL_REDUCE,
                                          .waiting_ns = 1200000000,
                                          .missing_ranks = 0xa};
        idle->statistics.at_ns = clock_now_ns();
        bad->code = RMX_E_PEER_LOST;
        bad->failed_rank = 1;
        bad->members[1].lost = true;

        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_COMMS);
        assert_int_equal(reply->n_comms, 3);
        row = reply->comms[0];
        assert_int_equal(row->comm, 5);
        assert_string_equal(row->state, "ready");
        check_seconds(row->waiting, "all_reduce 17 for ranks 1, 3 since ", comm->statistics.at_ns);
        assert_int_equal(row->n_members, 4);
        assert_int_equal(row->members[3]->rung, 15);
        assert_int_equal(row->members[3]->session, 103);
        assert_string_equal(reply->comms[1]->waiting, "");
        assert_string_equal(reply->comms[2]->state, "failed");
        assert_int_equal(reply->comms[2]->error, RMX_E_PEER_LOST);
        assert_int_equal(reply->comms[2]->failed_rank, 1);
        assert_true(reply->comms[2]->members[1]->left);
        forget(reply);

        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_int_equal(reply->status->n_notes, 3);
        check_seconds(reply->status->notes[2], "communicator 5: all_reduce 17 has waited for ranks 1, 3 for ",
                      comm->stall.at_ns);
        forget(reply);
}

static unsigned int count_notes(const Reply *reply, const char *text) {
        unsigned int n = 0;

        for (size_t i = 0; i < reply->status->n_notes; i++)
                n += strstr(reply->status->notes[i], text) != NULL;
        return n;
}

/* However many notes there are of one tenant, those of the daemon and of others are there, and all fit a frame. */
static void test_notes_of_tenants(void **state) {
        struct tenant *others[64], *tenant;
        struct fixture *f = *state;
        Reply *reply;

        for (unsigned int i = 0; i < 64; i++) {
                char name[TENANT_NAME_MAX];

                memset(name, 'x', sizeof(name));
                snprintf(name, sizeof(name), "%u", i);
                if (i) /* of full length */
                        name[strlen(name)] = '-', name[sizeof(name) - 1] = '\0';
                assert_int_equal(tenant_new(name, f->config.limit, &others[i]), 0);
                DL_APPEND(f->manager->tenants, others[i]);
        }
        for (uint64_t number = 1; number <= 200; number++) {
                struct comm *comm = add_comm(f, number, 2);

                comm->code = RMX_E_PEER_LOST;
                memset(comm->reason, 'r', sizeof(comm->reason) - 1);
                comm->tenant = number <= 100 ? f->tenant : others[number % 64];
        }
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_int_equal(reply->code, 0);
        assert_int_equal(count_notes(reply, "executor host has been gone"), 1);
        assert_int_equal(count_notes(reply, "no service manager"), 1);
        assert_int_equal(count_notes(reply, "tenant default: and "), 1);
        assert_int_equal(count_notes(reply, "tenant 0: and "), 1);
        for (unsigned int i = 0; i < 64; i++) {
                char text[64];

                snprintf(text, sizeof(text), "communicator %u failed: r", 101 + i);
                assert_int_equal(count_notes(reply, text), 1);
        }
        forget(reply);
        for (unsigned int i = 0; i < 64; i++) {
                tenant = others[i];
                DL_DELETE(f->manager->tenants, tenant);
                tenant_free(tenant);
        }
}

/* A refusal is named with the limit that refused, for some minutes. */
static void test_notes_of_refusals(void **state) {
        struct charge charge = CHARGE_INIT, other = CHARGE_INIT;
        struct fixture *f = *state;
        char text[256];
        Reply *reply;

        f->tenant->account.limit[CHARGE_COMMS] = 3;
        f->manager->whole.limit[CHARGE_FDS] = 5;
        assert_int_equal(tenant_charge(f->tenant, &charge, CHARGE_COMMS, 4, text, sizeof(text)), TENANT_E_LIMIT);
        assert_int_equal(tenant_charge(f->tenant, &other, CHARGE_FDS, 6, text, sizeof(text)), TENANT_E_LIMIT);
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_int_equal(count_notes(reply, "was refused"), 2);
        assert_int_equal(count_notes(reply, "tenant default was refused comms 0 s ago, 1 times so far (limit 3)"), 1);
        assert_int_equal(count_notes(reply, "fds 0 s ago, 1 times so far (limit 5 of all tenants together)"), 1);
        forget(reply);
        f->tenant->refusals[CHARGE_COMMS].at_ns -= UINT64_C(601) * 1000000000u;
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_int_equal(count_notes(reply, "was refused"), 1);
        forget(reply);
}

static void test_others(void **state) {
        struct fixture *f = *state;
        bool found = false;
        Reply *reply;

        f->tenant->account.used[CHARGE_BYTES] = 12345;
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_TENANTS);
        assert_int_equal(reply->n_tenants, 1);
        assert_int_equal(reply->tenants[0]->weight, 1);
        assert_string_equal(reply->tenants[0]->traffic_class, "normal");
        assert_int_equal(reply->tenants[0]->n_usage, CHARGE_KIND_COUNT);
        assert_string_equal(reply->tenants[0]->usage[CHARGE_BYTES]->what, "bytes");
        assert_int_equal(reply->tenants[0]->usage[CHARGE_BYTES]->used, 12345);
        f->tenant->account.used[CHARGE_BYTES] = 0;
        forget(reply);

        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_GPUS);
        assert_int_equal(reply->n_gpus, 3);
        assert_int_equal(reply->gpus[2]->index, 2);
        forget(reply);

        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_GET_VERSION);
        assert_int_equal(reply->daemon_version->control_protocol, CONTROL_PROTOCOL);
        assert_int_equal(reply->daemon_version->ring_abi, RING_ABI);
        forget(reply);

        f->manager->counters.calls = 99;
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_METRICS);
        for (size_t i = 0; i < reply->n_metrics; i++) {
                const Railmux__Control__Metric *m = reply->metrics[i];

                assert_true(strncmp(m->name, "railmux_", 8) == 0 && *m->help);
                assert_true(strcmp(m->kind, "gauge") == 0 || strcmp(m->kind, "counter") == 0);
                /* Counters end so, and rows of a name stand together. */
                assert_int_equal(strcmp(m->kind, "counter") == 0, strcmp(m->name + strlen(m->name) - 6, "_total") == 0);
                for (size_t k = i + 1; k < reply->n_metrics; k++)
                        if (strcmp(reply->metrics[k]->name, m->name) == 0)
                                assert_string_equal(reply->metrics[k - 1]->name, m->name);
                if (strcmp(m->name, "railmux_calls_total") == 0) {
                        assert_true(m->value == 99);
                        found = true;
                }
        }
        assert_true(found);
        forget(reply);
}

/* Far more rows than one frame takes, for a reader that is slow at first. */
static void test_many_rows(void **state) {
        struct fixture *f = *state;
        unsigned int n_replies = 0;
        uint64_t n_rows = 0, sum = 0;
        bool more = true;
        int fd;

        for (uint64_t id = 1; id <= 20000; id++)
                add_session(f, id, "a client with a name of some length, to fill the frame");
        fd = dial(f);
        ask(f, fd, RAILMUX__CONTROL__REQUEST__BODY_SESSIONS);
        spin(f); /* fills the socket, and no more than that */
        while (more) {
                Reply *reply = receive(f, fd);

                n_replies++;
                n_rows += reply->n_sessions;
                for (size_t i = 0; i < reply->n_sessions; i++)
                        sum += reply->sessions[i]->session;
                more = reply->more;
                forget(reply);
        }
        assert_true(n_replies > 10);
        assert_int_equal(n_rows, 20000);
        assert_int_equal(sum, UINT64_C(20000) * 20001 / 2);
        /* The connection is good for the next question. */
        ask(f, fd, RAILMUX__CONTROL__REQUEST__BODY_TENANTS);
        forget(receive(f, fd));

        /* A reader that goes away in the middle. */
        ask(f, fd, RAILMUX__CONTROL__REQUEST__BODY_SESSIONS);
        spin(f);
        close(fd);
        spin(f);
}

static void test_refusals(void **state) {
        struct fixture *f = *state;
        Request request = RAILMUX__CONTROL__REQUEST__INIT;
        const unsigned char junk[] = {0xff, 0xff, 0xff};
        Reply *reply;
        int fd = dial(f);

        request.version = 99;
        request.body_case = RAILMUX__CONTROL__REQUEST__BODY_STATUS;
        request.status = &f->empty;
        assert_int_equal(frame_send(fd, &request.base, NULL, 0), FRAME_OK);
        reply = receive(f, fd);
        assert_int_equal(reply->code, RMX_E_VERSION);
        forget(reply);

        request.version = CONTROL_PROTOCOL;
        request.body_case = RAILMUX__CONTROL__REQUEST__BODY__NOT_SET;
        assert_int_equal(frame_send(fd, &request.base, NULL, 0), FRAME_OK);
        reply = receive(f, fd);
        assert_int_equal(reply->code, RMX_E_UNSUPPORTED);
        forget(reply);

        assert_int_equal(send(fd, junk, sizeof(junk), 0), sizeof(junk));
        assert_int_equal(receive_condition(f, fd), FRAME_E_EOF);
        close(fd);
}

static void test_places(void **state) {
        struct fixture *f = *state;
        int fds[40], served = 0;

        for (int i = 0; i < 40; i++)
                fds[i] = dial(f);
        for (int i = 0; i < 40; i++) {
                int r = receive_condition(f, fds[i]);

                assert_true(r == FRAME_E_AGAIN || r == FRAME_E_EOF);
                served += r == FRAME_E_AGAIN;
        }
        assert_int_equal(served, 32);
        for (int i = 0; i < 40; i++)
                close(fds[i]);
        spin(f);
        forget(query(f, RAILMUX__CONTROL__REQUEST__BODY_TENANTS));
}

static void write_config(const struct fixture *f, const char *text) {
        FILE *file = fopen(f->config_path, "we");

        assert_non_null(file);
        fputs(text, file);
        fclose(file);
}

static void test_reload(void **state) {
        struct fixture *f = *state;
        char expected[256];
        Reply *reply;

        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_string_equal(reply->status->config, "");
        forget(reply);
        write_config(f, "limits: {rings: 55}\n");
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_RELOAD);
        assert_int_equal(reply->code, 0);
        assert_int_equal(f->tenant->account.limit[CHARGE_RINGS], 55);
        assert_null(strstr(reply->message, "limits"));
        assert_null(strstr(reply->message, "tenants"));
        forget(reply);
        write_config(f, "limits: {rings: 55}\ntenants: {by_uid: 'a=7'}\n");
        for (unsigned int i = 0; i < 2; i++) { /* until the next start */
                reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_RELOAD);
                assert_int_equal(reply->code, 0);
                assert_non_null(strstr(reply->message, "in force from the next start of railmuxd on: "));
                assert_non_null(strstr(reply->message, "tenants.by_uid"));
                forget(reply);
        }
        write_config(f, "limits: {rings: 55}\n");
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_RELOAD);
        assert_null(strstr(reply->message, "tenants"));
        forget(reply);
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_string_equal(reply->status->config, f->config_path);
        forget(reply);

        write_config(f, "limits: {rings: x, comms: 3}\n");
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_RELOAD);
        assert_int_equal(reply->code, RMX_E_INVALID);
        snprintf(expected, sizeof(expected), "%s:1:17: limits.rings: 'x' is no number; allowed: 1 .. 100000",
                 f->config_path);
        assert_string_equal(reply->message, expected);
        assert_int_equal(f->tenant->account.limit[CHARGE_RINGS], 55);
        assert_true(f->tenant->account.limit[CHARGE_COMMS] > 3);
        forget(reply);
}

static bool short_of_memory;
int __real_manager_reload(struct manager *manager, char error[CONFIG_ERROR_MAX]);
int __wrap_manager_reload(struct manager *manager, char error[CONFIG_ERROR_MAX]);

int __wrap_manager_reload(struct manager *manager, char error[CONFIG_ERROR_MAX]) {
        if (!short_of_memory)
                return __real_manager_reload(manager, error);
        snprintf(error, CONFIG_ERROR_MAX, "out of memory");
        return -ENOMEM;
}

/* It may be tried again, which a wrong configuration need not be. */
static void test_reload_without_memory(void **state) {
        struct fixture *f = *state;
        Reply *reply;

        short_of_memory = true;
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_RELOAD);
        short_of_memory = false;
        assert_int_equal(reply->code, RMX_E_NO_MEMORY);
        assert_string_equal(reply->message, "out of memory");
        forget(reply);
}

/* The text of all replies to one question. */
static char *topology_text(struct fixture *f, unsigned int *ret_replies) {
        int fd = dial(f);
        char *text = strdup("");
        bool more = true;

        *ret_replies = 0;
        ask(f, fd, RAILMUX__CONTROL__REQUEST__BODY_TOPOLOGY);
        while (more) {
                Reply *reply = receive(f, fd);
                char *longer = NULL;

                assert_int_equal(reply->code, 0);
                assert_true(asprintf(&longer, "%s%s", text, reply->topology) >= 0);
                free(text);
                text = longer;
                more = reply->more;
                forget(reply);
                ++*ret_replies;
        }
        close(fd);
        spin(f);
        return text;
}

/* The graph has as many emulated GPUs as are served; it is looked at once, and again after a reload. */
static void test_topology(void **state) {
        struct fixture *f = *state;
        char *text, error[TOPOLOGY_ERROR_MAX] = "";
        struct topology *graph = NULL;
        unsigned int n;

        text = topology_text(f, &n);
        assert_int_equal(n, 1);
        if (topology_xml_read("text", text, strlen(text), &graph, error))
                fail_msg("%s", error);
        assert_int_equal(topology_count(graph, TOPOLOGY_GPU), 3);
        assert_true(topology_count(graph, TOPOLOGY_NUMA) >= 1);
        assert_true(topology_full_mesh(graph));
        graph = topology_free(graph);
        free(text);

        f->manager->n_gpus = 50; /* more links than fit into one packet */
        text = topology_text(f, &n);
        assert_int_equal(n, 1); /* looked at already */
        free(text);
        write_config(f, "log: {level: error}\n");
        forget(query(f, RAILMUX__CONTROL__REQUEST__BODY_RELOAD));
        text = topology_text(f, &n);
        assert_true(n > 1);
        if (topology_xml_read("text", text, strlen(text), &graph, error))
                fail_msg("%s", error);
        assert_int_equal(topology_count(graph, TOPOLOGY_GPU), 50);
        assert_true(topology_full_mesh(graph));
        graph = topology_free(graph);
        free(text);
        f->manager->n_gpus = 3;
        assert_int_equal(raise(SIGHUP), 0); /* the other way to reload */
        spin(f);
        text = topology_text(f, &n);
        assert_int_equal(n, 1);
        free(text);
}

/* A machine that cannot be looked at is a refusal. */
static void test_topology_refused(void **state) {
        struct fixture *f = *state;
        Reply *reply;

        f->manager->n_gpus = TOPOLOGY_GPUS_MAX + 1;
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_TOPOLOGY);
        assert_int_equal(reply->code, RMX_E_INTERNAL);
        assert_non_null(strstr(reply->message, "see its log"));
        forget(reply);
        f->manager->n_gpus = 3;
}

static void test_log_level(void **state) {
        struct fixture *f = *state;
        Request request = RAILMUX__CONTROL__REQUEST__INIT;
        Railmux__Control__LogLevel level = RAILMUX__CONTROL__LOG_LEVEL__INIT;
        Reply *reply;
        int fd = dial(f);

        request.version = CONTROL_PROTOCOL;
        request.body_case = RAILMUX__CONTROL__REQUEST__BODY_LOG_LEVEL;
        request.log_level = &level;
        level.level = (char *)"error";
        assert_int_equal(frame_send(fd, &request.base, NULL, 0), FRAME_OK);
        reply = receive(f, fd);
        assert_int_equal(reply->code, 0);
        forget(reply);
        level.level = (char *)"loud";
        assert_int_equal(frame_send(fd, &request.base, NULL, 0), FRAME_OK);
        reply = receive(f, fd);
        assert_int_equal(reply->code, RMX_E_INVALID);
        forget(reply);
        close(fd);
}

static void test_peers(void **state) {
        struct fixture *f = *state;
        struct peers_options options = {
                .base = f->manager->base, .cluster = "c", .name = "here", .listen = "127.0.0.1:0"};
        struct cluster cluster = {0};
        char error[PEER_TEXT_MAX];
        struct peer *peer;
        Reply *reply;

        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_PEERS);
        assert_int_equal(reply->n_peers, 0); /* this node is alone */
        forget(reply);
        options.node[0] = 0xab;
        if (peers_new(&options, error, &cluster.peers))
                fail_msg("%s", error);
        assert_int_equal(fabric_new(&(struct fabric_options){.boot_epoch = 1, .cluster = "c"}, &cluster.fabric), 0);
        f->manager->cluster = &cluster;
        assert_int_equal(peers_dial(cluster.peers, "127.0.0.1:1", &peer), 0);
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_PEERS);
        assert_int_equal(reply->n_peers, 2);
        assert_string_equal(reply->peers[0]->state, "self");
        assert_string_equal(reply->peers[0]->name, "here");
        assert_string_equal(reply->peers[0]->cluster, "c");
        assert_string_equal(reply->peers[0]->node, "ab000000000000000000000000000000");
        assert_string_equal(reply->peers[0]->address, peers_address(cluster.peers));
        assert_true(reply->peers[0]->boot == peers_boot(cluster.peers));
        assert_int_equal(reply->peers[0]->protocol, PEER_PROTOCOL_MAX);
        assert_string_equal(reply->peers[1]->address, "127.0.0.1:1");
        assert_string_equal(reply->peers[1]->node, "");
        assert_int_equal(reply->peers[1]->holds, 1);
        assert_int_equal(reply->peers[1]->protocol, 0); /* not connected */
        forget(reply);
        reply = query(f, RAILMUX__CONTROL__REQUEST__BODY_METRICS);
        {
                bool found = false;

                for (size_t i = 0; i < reply->n_metrics; i++)
                        found = found || strcmp(reply->metrics[i]->name, "railmux_peers_up") == 0;
                assert_true(found);
        }
        forget(reply);
        f->manager->cluster = NULL;
        fabric_free(cluster.fabric);
        peers_free(cluster.peers);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_status, setup, teardown),
                cmocka_unit_test_setup_teardown(test_notes_of_tenants, setup, teardown),
                cmocka_unit_test_setup_teardown(test_notes_of_refusals, setup, teardown),
                cmocka_unit_test_setup_teardown(test_comms, setup, teardown),
                cmocka_unit_test_setup_teardown(test_others, setup, teardown),
                cmocka_unit_test_setup_teardown(test_peers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_many_rows, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
                cmocka_unit_test_setup_teardown(test_places, setup, teardown),
                cmocka_unit_test_setup_teardown(test_reload, setup, teardown),
                cmocka_unit_test_setup_teardown(test_reload_without_memory, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_log_level, setup, teardown),
        };

        unsetenv("NOTIFY_SOCKET");
        setenv("RAILMUX_EXECUTOR", "/nonexistent", 1); /* none is to start */
        log_init("control", 0);                        /* what is refused here on purpose needs no line */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
