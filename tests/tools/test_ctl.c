/* SPDX-License-Identifier: MIT */
/*
 * The program railmuxctl against a server that this test plays: command line, exit status, answers in several frames,
 * bad servers, and that every JSON document is what its schema in docs/schema/ says.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "railmux/railmux.h"
#include "tests/scratch.h"

#define OUTPUT_MAX 65536
#define WAIT_MS    15000

extern char **environ;

typedef Railmux__Control__Reply Reply;
typedef Railmux__Control__Request Request;

struct fixture {
        char dir[64], path[96];
        int listen_fd;
        char out[OUTPUT_MAX], err[OUTPUT_MAX];
        Request *request; /* as the program sent it */
};

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-ctl-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        snprintf(f->path, sizeof(f->path), "%s/control.sock", f->dir);
        f->listen_fd = frame_listen(f->path, 0600);
        assert_true(f->listen_fd >= 0);
        unsetenv("RAILMUX_CONTROL");
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        if (f->request)
                railmux__control__request__free_unpacked(f->request, NULL);
        if (f->listen_fd >= 0)
                close(f->listen_fd);
        assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

static void wait_readable(int fd) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        if (poll(&poll_fd, 1, WAIT_MS) != 1)
                fail_msg("nothing comes");
}

static void slurp(int fd, char *out) {
        size_t length = 0;
        ssize_t n;

        while (length < OUTPUT_MAX - 1 && (n = read(fd, out + length, OUTPUT_MAX - 1 - length)) > 0)
                length += (size_t)n;
        out[length] = '\0';
        close(fd);
}

/* Answers one connection with these replies; NULL in the list hangs up. */
static void serve(struct fixture *f, Reply *const *replies, size_t n_replies) {
        ProtobufCMessage *message;
        struct frame_arena arena;
        int fds[FRAME_FDS_MAX], fd;
        unsigned int n_fds;

        wait_readable(f->listen_fd);
        fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert_true(fd >= 0);
        wait_readable(fd);
        frame_arena_init(&arena, FRAME_UNPACK_BYTES_MAX);
        assert_int_equal(frame_receive(fd, &railmux__control__request__descriptor, &arena, &message, fds, &n_fds),
                         FRAME_OK);
        if (f->request)
                railmux__control__request__free_unpacked(f->request, NULL);
        f->request = (Request *)message;
        for (size_t i = 0; i < n_replies && replies[i]; i++)
                assert_int_equal(frame_send(fd, &replies[i]->base, NULL, 0), FRAME_OK);
        close(fd);
}

/* Runs railmuxctl, with its output in `path`, NULL: in f->out. replies NULL: nobody is asked. Returns its exit status.
 */
static int run_into(struct fixture *f, const char *path, const char *const *arguments, Reply *const *replies,
                    size_t n_replies) {
        const char *argv[12] = {"railmuxctl"};
        posix_spawn_file_actions_t actions;
        int out[2], err[2], status;
        pid_t pid;

        for (size_t i = 0; arguments[i]; i++)
                argv[i + 1] = arguments[i];
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        assert_int_equal(pipe2(err, O_CLOEXEC), 0);
        posix_spawn_file_actions_init(&actions);
        if (path)
                posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY, 0);
        else
                posix_spawn_file_actions_adddup2(&actions, out[1], 1);
        posix_spawn_file_actions_adddup2(&actions, err[1], 2);
        assert_int_equal(posix_spawn(&pid, RAILMUXCTL, &actions, NULL, (char *const *)argv, environ), 0);
        posix_spawn_file_actions_destroy(&actions);
        close(out[1]);
        close(err[1]);
        if (replies)
                serve(f, replies, n_replies);
        slurp(out[0], f->out); /* well below what a pipe holds, so the other one cannot block it */
        slurp(err[0], f->err);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static int run(struct fixture *f, const char *const *arguments, Reply *const *replies, size_t n_replies) {
        return run_into(f, NULL, arguments, replies, n_replies);
}

#define RUN(f, replies, n, ...) run(f, (const char *const[]){__VA_ARGS__, NULL}, replies, n)

/* ---- a schema checker for the words our schemas use ---- */

static bool is_type(const json_t *value, const char *type) {
        return (strcmp(type, "object") == 0 && json_is_object(value)) ||
               (strcmp(type, "array") == 0 && json_is_array(value)) ||
               (strcmp(type, "string") == 0 && json_is_string(value)) ||
               (strcmp(type, "integer") == 0 && json_is_integer(value)) ||
               (strcmp(type, "number") == 0 && json_is_number(value)) ||
               (strcmp(type, "boolean") == 0 && json_is_boolean(value)) ||
               (strcmp(type, "null") == 0 && json_is_null(value));
}

static void check(const json_t *value, const json_t *schema, const char *where) {
        const json_t *type = json_object_get(schema, "type"), *allowed = json_object_get(schema, "enum"), *item;
        const json_t *constant = json_object_get(schema, "const"), *properties = json_object_get(schema, "properties");
        bool fits = !type;
        const char *key;
        size_t i;

        if (json_is_string(type))
                fits = is_type(value, json_string_value(type));
        json_array_foreach(type, i, item)
                fits = fits || is_type(value, json_string_value(item));
        if (!fits)
                fail_msg("%s has the wrong type", where);
        if (constant && !json_equal(value, constant))
                fail_msg("%s is not the constant", where);
        fits = !allowed;
        json_array_foreach(allowed, i, item)
                fits = fits || json_equal(value, item);
        if (!fits)
                fail_msg("%s is not one of the values", where);
        if (json_is_null(value))
                return; /* has no members */
        if (json_object_get(schema, "minimum") && json_is_integer(value))
                assert_true(json_integer_value(value) >= json_integer_value(json_object_get(schema, "minimum")));
        json_array_foreach(json_object_get(schema, "required"), i, item)
                if (!json_object_get(value, json_string_value(item)))
                        fail_msg("%s lacks %s", where, json_string_value(item));
        if (properties) {
                const json_t *member;

                /* The schemas would allow more, but what we write they should describe. */
                json_object_foreach((json_t *)value, key, member) {
                        if (!json_object_get(properties, key))
                                fail_msg("%s: %s is not described", where, key);
                        check(member, json_object_get(properties, key), key);
                }
        }
        if (json_object_get(schema, "items"))
                json_array_foreach(value, i, item)
                        check(item, json_object_get(schema, "items"), where);
}

static json_t *checked_document(const struct fixture *f, const char *name) {
        json_t *document = json_loads(f->out, 0, NULL), *schema;
        char path[512];

        if (!document)
                fail_msg("no JSON: %s", f->out);
        snprintf(path, sizeof(path), "%s/railmuxctl-%s.json", SCHEMA_DIR, name);
        schema = json_load_file(path, 0, NULL);
        assert_non_null(schema);
        check(document, schema, name);
        json_decref(schema);
        return document;
}

/* ---- replies ---- */

static Railmux__Control__Executor executor = {.base = PROTOBUF_C_MESSAGE_INIT(&railmux__control__executor__descriptor),
                                              .name = (char *)"host",
                                              .backend = (char *)"host",
                                              .state = (char *)"ready",
                                              .pid = 12,
                                              .gpus = 8,
                                              .workers = 2};

static Reply new_reply(void) {
        Reply reply = RAILMUX__CONTROL__REPLY__INIT;

        reply.version = CONTROL_PROTOCOL;
        return reply;
}

static void test_usage(void **state) {
        static const char *const wrong[][4] = {
                {NULL},
                {"frob", NULL},
                {"--frob", "status", NULL},
                {"status", "now", NULL},
                {"log-level", NULL},
                {"--control", NULL},
        };
        static const char *const belongs[] = {"status", "sessions", "topology", "reload"};
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                assert_int_equal(run(f, wrong[i], NULL, 0), 2);
                assert_string_equal(f->out, "");
                assert_non_null(strstr(f->err, "--help"));
        }
        for (size_t i = 0; i < sizeof(belongs) / sizeof(belongs[0]); i++) {
                assert_int_equal(RUN(f, NULL, 0, "--ranks", belongs[i]), 2);
                assert_non_null(strstr(f->err, "--ranks belongs to comms"));
        }
        assert_int_equal(RUN(f, NULL, 0, "--help"), 0);
        assert_non_null(strstr(f->out, "log-level LEVEL"));
        assert_int_equal(RUN(f, NULL, 0, "--version"), 0);
        assert_true(strncmp(f->out, "railmuxctl ", 11) == 0);
}

/* Failures are documents as well, whatever is wrong, and whatever bytes it is named by. */
static void test_usage_documents(void **state) {
        static const char *const wrong[][4] = {
                {"--json", NULL},
                {"frob", "--json", NULL},
                {"--frob", "--json", "status", NULL},
                {"--json", "topology", "--dot", NULL},
                {"--json", "log-level", NULL},
                {"--json", "\xff\xfe", NULL},
        };
        struct fixture *f = *state;
        json_t *document;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                assert_int_equal(run(f, wrong[i], NULL, 0), 2);
                json_decref(checked_document(f, "error"));
                assert_non_null(strstr(f->err, "--help"));
        }
        assert_int_equal(RUN(f, NULL, 0, "--control", "/tmp/\xff\xfe.sock", "--json", "status"), 3);
        document = checked_document(f, "error");
        assert_non_null(strstr(json_string_value(json_object_get(json_object_get(document, "error"), "message")),
                               "/tmp/?"
                               "?.sock"));
        json_decref(document);
}

static void test_no_daemon(void **state) {
        struct fixture *f = *state;
        json_t *document;

        close(f->listen_fd);
        f->listen_fd = -1;
        assert_int_equal(RUN(f, NULL, 0, "--control", f->path, "status"), 3);
        assert_non_null(strstr(f->err, "is railmuxd running?"));
        assert_string_equal(f->out, "");
        assert_int_equal(RUN(f, NULL, 0, "--control", f->path, "--json", "status"), 3);
        document = checked_document(f, "error");
        json_decref(document);
}

static void test_bad_servers(void **state) {
        struct fixture *f = *state;
        Reply partial = new_reply(), silent = RAILMUX__CONTROL__REPLY__INIT;
        Reply *const hangup[] = {NULL}, *const half[] = {&partial}, *const foreign[] = {&silent};

        assert_int_equal(RUN(f, hangup, 1, "--control", f->path, "sessions"), 3);
        assert_non_null(strstr(f->err, "no whole answer from railmuxd at "));
        assert_non_null(strstr(f->err, "; is this its control socket?"));
        silent.message = (char *)"no common protocol version"; /* as a client socket answers */
        assert_int_equal(RUN(f, foreign, 1, "--control", f->path, "status"), 3);
        assert_non_null(strstr(f->err, f->path));
        assert_non_null(strstr(f->err, " is no control socket: "));
        assert_int_equal(RUN(f, foreign, 1, "--control", f->path, "--json", "status"), 3);
        json_decref(checked_document(f, "error"));
        partial.more = true;
        assert_int_equal(RUN(f, half, 1, "--control", f->path, "sessions"), 3);
        assert_string_equal(f->out, ""); /* half an answer is none */
        partial.more = false;            /* an answer without what was asked for */
        assert_int_equal(RUN(f, half, 1, "--control", f->path, "status"), 3);
}

static void test_status(void **state) {
        Railmux__Control__Status status = RAILMUX__CONTROL__STATUS__INIT;
        Railmux__Control__Executor *executors[] = {&executor};
        struct fixture *f = *state;
        char *notes[] = {(char *)"something"};
        Reply reply = new_reply(), *const replies[] = {&reply};
        json_t *document, *body;

        status.state = (char *)"running";
        status.version = (char *)"0.1.0";
        status.pid = 99;
        status.executors = executors;
        status.n_executors = 1;
        status.notes = notes;
        status.n_notes = 1;
        reply.status = &status;
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "status"), 0);
        assert_int_equal(f->request->body_case, RAILMUX__CONTROL__REQUEST__BODY_STATUS);
        assert_int_equal(f->request->version, CONTROL_PROTOCOL);
        assert_non_null(strstr(f->out, "host      host     ready   12     8        2"));

        /* The environment names the socket too. */
        setenv("RAILMUX_CONTROL", f->path, 1);
        assert_int_equal(RUN(f, replies, 1, "status", "--json"), 0);
        document = checked_document(f, "status");
        body = json_object_get(document, "status");
        assert_int_equal(json_integer_value(json_object_get(body, "pid")), 99);
        assert_string_equal(
                json_string_value(json_object_get(json_array_get(json_object_get(body, "executors"), 0), "name")),
                "host");
        json_decref(document);
}

/* railmuxctl is new at once, railmuxd when it is restarted: what it does not say is left open. */
static void test_older_daemon(void **state) {
        Railmux__Control__Usage usage = RAILMUX__CONTROL__USAGE__INIT, *usages[] = {&usage};
        Railmux__Control__Tenant tenant = RAILMUX__CONTROL__TENANT__INIT, *tenants[] = {&tenant};
        Railmux__Control__Route route = RAILMUX__CONTROL__ROUTE__INIT, *routes[] = {&route};
        Reply reply = new_reply(), *const replies[] = {&reply};
        struct fixture *f = *state;
        json_t *document, *row;

        usage.what = (char *)"comms";
        tenant.name = (char *)"default";
        tenant.usage = usages;
        tenant.n_usage = 1;
        reply.tenants = tenants;
        reply.n_tenants = 1;
        route.state = (char *)"up";
        reply.routes = routes;
        reply.n_routes = 1;
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "tenants"), 0);
        document = checked_document(f, "tenants");
        row = json_array_get(json_object_get(document, "tenants"), 0);
        assert_true(json_is_null(json_object_get(row, "weight")));
        assert_true(json_is_null(json_object_get(row, "class")));
        json_decref(document);
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "routes"), 0);
        document = checked_document(f, "routes");
        assert_true(json_is_null(json_object_get(json_array_get(json_object_get(document, "routes"), 0), "class")));
        json_decref(document);
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "tenants"), 0);
        assert_non_null(strstr(f->out, "\ndefault       -  -      all    comms"));
}

/* Rows of several frames are one table, sorted. */
static void test_several_frames(void **state) {
        Railmux__Control__Session sessions[3], *first[] = {&sessions[2], &sessions[0]}, *second[] = {&sessions[1]};
        Reply a = new_reply(), b = new_reply(), *const replies[] = {&a, &b};
        struct fixture *f = *state;
        json_t *document, *rows;

        for (unsigned int i = 0; i < 3; i++) {
                sessions[i] = (Railmux__Control__Session)RAILMUX__CONTROL__SESSION__INIT;
                sessions[i].session = i + 1;
                sessions[i].name = (char *)"railmux-perf";
        }
        a.more = true;
        a.sessions = first;
        a.n_sessions = 2;
        b.sessions = second;
        b.n_sessions = 1;
        assert_int_equal(RUN(f, replies, 2, "--control", f->path, "--json", "sessions"), 0);
        document = checked_document(f, "sessions");
        rows = json_object_get(document, "sessions");
        assert_int_equal(json_array_size(rows), 3);
        for (size_t i = 0; i < 3; i++)
                assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, i), "session")), i + 1);
        json_decref(document);
}

static void test_documents(void **state) {
        Railmux__Control__Usage usage = RAILMUX__CONTROL__USAGE__INIT, *usages[] = {&usage};
        uint32_t rail_gpus[] = {1, 3, 4, 8};
        Railmux__Control__Tenant tenant = RAILMUX__CONTROL__TENANT__INIT, *tenants[] = {&tenant};
        Railmux__Control__Member member = RAILMUX__CONTROL__MEMBER__INIT, *members[] = {&member};
        Railmux__Control__Comm comm = RAILMUX__CONTROL__COMM__INIT, *comms[] = {&comm};
        Railmux__Control__Gpu gpu = RAILMUX__CONTROL__GPU__INIT, *gpus[] = {&gpu};
        Railmux__Control__Label label = RAILMUX__CONTROL__LABEL__INIT, *labels[] = {&label};
        Railmux__Control__Metric metric = RAILMUX__CONTROL__METRIC__INIT, *metrics[] = {&metric};
        Railmux__Control__Peer peer = RAILMUX__CONTROL__PEER__INIT, *peers[] = {&peer};
        Railmux__Control__Carried carried = RAILMUX__CONTROL__CARRIED__INIT, *all_carried[] = {&carried};
        Railmux__Control__Rail rail = RAILMUX__CONTROL__RAIL__INIT, *rails[] = {&rail};
        Railmux__Control__Route route = RAILMUX__CONTROL__ROUTE__INIT, *routes[] = {&route};
        Railmux__Control__Version version = RAILMUX__CONTROL__VERSION__INIT;
        Railmux__Control__Drained drained = RAILMUX__CONTROL__DRAINED__INIT;
        static const struct {
                const char *command;
                Railmux__Control__Request__BodyCase body;
        } cases[] = {
                {"tenants", RAILMUX__CONTROL__REQUEST__BODY_TENANTS},
                {"comms", RAILMUX__CONTROL__REQUEST__BODY_COMMS},
                {"gpus", RAILMUX__CONTROL__REQUEST__BODY_GPUS},
                {"peers", RAILMUX__CONTROL__REQUEST__BODY_PEERS},
                {"rails", RAILMUX__CONTROL__REQUEST__BODY_RAILS},
                {"routes", RAILMUX__CONTROL__REQUEST__BODY_ROUTES},
                {"metrics", RAILMUX__CONTROL__REQUEST__BODY_METRICS},
                {"version", RAILMUX__CONTROL__REQUEST__BODY_GET_VERSION},
                {"reload", RAILMUX__CONTROL__REQUEST__BODY_RELOAD},
        };
        Reply reply = new_reply(), *const replies[] = {&reply};
        struct fixture *f = *state;
        json_t *document, *row;

        usage.what = (char *)"bytes";
        tenant.usage = usages;
        tenant.n_usage = 1;
        tenant.weight = 3;
        tenant.traffic_class = (char *)"latency";
        tenant.rails = (char *)"r0/r1";
        comm.state = (char *)"failed";
        comm.error = RMX_E_PEER_LOST;
        comm.failed_rank = 2;
        comm.members = members;
        comm.n_members = 1;
        comm.traffic_class = (char *)"bulk";
        gpu.state = (char *)"ready";
        gpu.pci = (char *)"0000:1a:00.0";
        gpu.policy = (char *)"shared";
        gpu.resident_blocks = 2;
        gpu.staging_bytes = 1 << 30;
        gpu.staging_used = 1 << 20;
        label.name = (char *)"executor";
        label.value = (char *)"host";
        metric.kind = (char *)"counter";
        metric.labels = labels;
        metric.n_labels = 1;
        /* One reply with everything serves all questions. */
        reply.tenants = tenants;
        reply.comms = comms;
        reply.gpus = gpus;
        reply.metrics = metrics;
        peer.state = (char *)"up";
        peer.name = (char *)"node7";
        peer.node = (char *)"0123456789abcdef0123456789abcdef";
        peer.since_ns = 1500000000;
        reply.peers = peers;
        reply.n_peers = 1;
        carried.rail = (char *)"r0";
        carried.data_sent = 77;
        comm.carried = all_carried;
        comm.n_carried = 1;
        rail.kind = (char *)"tcp";
        rail.state = (char *)"up";
        rail.carried = &carried;
        rail.gpus = rail_gpus;
        rail.n_gpus = sizeof(rail_gpus) / sizeof(rail_gpus[0]);
        reply.rail_rows = rails;
        route.traffic_class = (char *)"normal";
        route.state = (char *)"up";
        route.node = peer.node;
        reply.routes = routes;
        reply.n_rail_rows = reply.n_routes = 1;
        reply.n_tenants = reply.n_comms = reply.n_gpus = reply.n_metrics = 1;
        reply.daemon_version = &version;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", cases[i].command), 0);
                assert_int_equal(f->request->body_case, cases[i].body);
                json_decref(checked_document(f, cases[i].command));
                assert_int_equal(RUN(f, replies, 1, "--control", f->path, cases[i].command), 0);
                assert_string_equal(f->err, "");
                assert_int_equal(f->out[0] == '\0', strcmp(cases[i].command, "reload") == 0);
        }
        reply.message = (char *)"changed: tenants.by_uid";
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "reload"), 0);
        assert_string_equal(f->out, "note           changed: tenants.by_uid\n");
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "reload"), 0);
        document = checked_document(f, "reload");
        row = json_object_get(json_object_get(document, "reload"), "note");
        assert_string_equal(json_string_value(row), reply.message);
        json_decref(document);
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "rails"), 0);
        document = checked_document(f, "rails");
        row = json_object_get(json_array_get(json_object_get(document, "rails"), 0), "carried");
        assert_int_equal(json_integer_value(json_object_get(row, "data_sent")), 77);
        row = json_object_get(json_array_get(json_object_get(document, "rails"), 0), "gpus");
        assert_int_equal(json_array_size(row), rail.n_gpus);
        assert_int_equal(json_integer_value(json_array_get(row, 3)), rail_gpus[3]);
        json_decref(document);
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "rails"), 0);
        assert_non_null(strstr(f->out, " 1, 3-4, 8"));
        rail.carried = NULL; /* an older railmuxd */
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "rails"), 0);
        json_decref(checked_document(f, "rails"));
        reply.drained = &drained;
        drained.executor = (char *)"3";
        drained.comms = 2;
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "drain", "3"), 0);
        assert_int_equal(f->request->body_case, RAILMUX__CONTROL__REQUEST__BODY_DRAIN);
        assert_string_equal(f->request->drain->executor, "3");
        json_decref(checked_document(f, "drain"));
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "drain", "3"), 0);
        assert_non_null(strstr(f->out, "2 of 2 communicators go on"));
        drained.lost = 1;
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "drain", "3"), 1);
        assert_non_null(strstr(f->out, "1 of 2 communicators go on"));
        assert_int_equal(RUN(f, NULL, 0, "--control", f->path, "drain"), 2);
        reply.drained = NULL;
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "log-level", "debug"), 0);
        assert_int_equal(f->request->body_case, RAILMUX__CONTROL__REQUEST__BODY_LOG_LEVEL);
        assert_string_equal(f->request->log_level->level, "debug");
        json_decref(checked_document(f, "log_level"));
}

static void test_refused(void **state) {
        Reply reply = new_reply(), *const replies[] = {&reply};
        struct fixture *f = *state;
        json_t *document;

        reply.code = RMX_E_INVALID;
        reply.message = (char *)"/etc/x.yaml:1:1: no";
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "reload"), 1);
        assert_string_equal(f->err, "railmuxctl: /etc/x.yaml:1:1: no\n");
        assert_int_equal(RUN(f, replies, 1, "--control", f->path, "--json", "reload"), 1);
        document = checked_document(f, "error");
        assert_string_equal(json_string_value(json_object_get(json_object_get(document, "error"), "code")),
                            "RMX_E_INVALID");
        json_decref(document);
}

/* ---- topology ---- */

static void write_file(const struct fixture *f, const char *name, const char *text, mode_t mode, char path[256]) {
        FILE *file;

        snprintf(path, 256, "%s/%s", f->dir, name);
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fchmod(fileno(file), mode), 0);
        assert_int_equal(fclose(file), 0);
}

static char *read_file(const char *path) {
        char *text = calloc(1, OUTPUT_MAX);
        FILE *file = fopen(path, "re");

        assert_non_null(text);
        assert_non_null(file);
        assert_true(fread(text, 1, OUTPUT_MAX - 1, file) > 0);
        fclose(file);
        return text;
}

/* The daemon's text comes in two pieces; the document is what the schema says. */
static void test_topology(void **state) {
        Reply a = new_reply(), b = new_reply(), *const replies[] = {&a, &b}, *const half[] = {&b};
        char *text = read_file(FIXTURES_DIR "/mi300x-8x4.xml"), *second = strdup(text + 1000);
        struct fixture *f = *state;
        json_t *document, *body;

        text[1000] = '\0';
        a.more = true;
        a.topology = text;
        b.topology = second;
        assert_int_equal(RUN(f, replies, 2, "--control", f->path, "topology"), 0);
        assert_int_equal(f->request->body_case, RAILMUX__CONTROL__REQUEST__BODY_TOPOLOGY);
        assert_non_null(strstr(f->out, "192 CPUs, 2 NUMA nodes, 8 GPUs, 4 NICs, 4 of them to be rails\n"));
        assert_non_null(strstr(f->out, "\nnic3  ionic_3  enp98s0  numa1  50.0  6-7\n"));
        assert_non_null(strstr(f->out, "\nNo order of these NICs gives GPUs 0, 1, 2 and so on those "));
        assert_int_equal(RUN(f, replies, 2, "--control", f->path, "--json", "topology"), 0);
        document = checked_document(f, "topology");
        body = json_object_get(document, "topology");
        assert_int_equal(json_array_size(json_object_get(body, "links")), 49);
        assert_int_equal(json_array_size(json_object_get(body, "gpu_rails")), 8);
        json_decref(document);
        assert_int_equal(RUN(f, half, 1, "--control", f->path, "topology"), 3);
        assert_non_null(strstr(f->err, "the graph in railmuxd's answer cannot be read: railmuxd:1:"));
        free(text);
        free(second);
}

/* Every fixture as a document; nobody listens. */
static void test_topology_files(void **state) {
        static const char *const names[] = {"mi300x-8x8", "mi300x-8x0",           "h200-8x8", "soft-roce", "more-nics",
                                            "hwloc",      "pci-2s-2rp-split-flat"};
        struct fixture *f = *state;
        char path[256], xml[256], *text;

        close(f->listen_fd);
        f->listen_fd = -1;
        snprintf(xml, sizeof(xml), "%s/out.xml", f->dir);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                snprintf(path, sizeof(path), "%s/%s.xml", FIXTURES_DIR, names[i]);
                assert_int_equal(RUN(f, NULL, 0, "topology", "--from", path, "--json"), 0);
                json_decref(checked_document(f, "topology"));
                assert_int_equal(RUN(f, NULL, 0, "topology", "--from", path), 0);
                assert_non_null(strstr(f->out, " GPUs, "));
                /* Written to a file and to the output it is the same, and as a graph of its own too. */
                assert_int_equal(RUN(f, NULL, 0, "topology", "--from", path, "--xml", xml), 0);
                assert_string_equal(f->out, "");
                text = read_file(xml);
                assert_int_equal(RUN(f, NULL, 0, "topology", "--from", xml, "--xml", "-"), 0);
                assert_string_equal(f->out, text);
                free(text);
        }
        assert_int_equal(RUN(f, NULL, 0, "topology", "--here", "--json"), 0);
        json_decref(checked_document(f, "topology"));
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", path, "--dot"), 0);
        assert_int_equal(strncmp(f->out, "graph topology {", 16), 0);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", path, "--xml", "/nowhere/x"), 1);
        assert_non_null(strstr(f->err, "cannot write /nowhere/x: No such file"));
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", "/nowhere/x"), 1);
        assert_non_null(strstr(f->err, "/nowhere/x: No such file"));
        write_file(f, "bad.xml", "<railmux-topology version=\"1\">\n <gpu index=\"one\"/>\n</railmux-topology>\n", 0600,
                   path);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--json", "--from", path), 1);
        assert_non_null(strstr(f->err, "bad.xml:2:2: index=\"one\"; allowed: a number from 0"));
        json_decref(checked_document(f, "error"));
}

/* Into what is always full every form of output fails, and says so. And NVLink is no more than its GPUs have. */
static void test_topology_output(void **state) {
        static const char *const lines[][6] = {
                {"topology", "--from", FIXTURES_DIR "/h200-8x8.xml", NULL},
                {"topology", "--from", FIXTURES_DIR "/h200-8x8.xml", "--json", NULL},
                {"topology", "--from", FIXTURES_DIR "/h200-8x8.xml", "--dot", NULL},
                {"--help", NULL},
                {"--version", NULL},
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                assert_int_equal(run_into(f, "/dev/full", lines[i], NULL, 0), 1);
                assert_string_equal(f->err, "railmuxctl: cannot write to standard output: No space left on device\n");
        }
        assert_int_equal(run(f, lines[0], NULL, 0), 0);
        assert_non_null(strstr(f->out, "nvlink           28      450.0    3600.0\n"));
}

/* A link's file is replaced, and the link stays; what is no file is written to, and is there afterwards. */
static void test_topology_places(void **state) {
        struct fixture *f = *state;
        char from[256], file[256], link[256], pipe_path[256], device[256], *whole, *text;
        struct stat before, after;
        int fd;

        snprintf(from, sizeof(from), "%s/soft-roce.xml", FIXTURES_DIR);
        snprintf(link, sizeof(link), "%s/link", f->dir);
        snprintf(pipe_path, sizeof(pipe_path), "%s/pipe", f->dir);
        snprintf(device, sizeof(device), "%s/device", f->dir);
        write_file(f, "file", "old", 0600, file);
        assert_int_equal(symlink("file", link), 0);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--xml", link), 0);
        assert_int_equal(lstat(link, &after), 0);
        assert_true(S_ISLNK(after.st_mode));
        whole = read_file(file);
        assert_int_equal(strncmp(whole, "<?xml", 5), 0);
        assert_int_equal(unlink(file), 0); /* and one to nothing makes its file */
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--xml", link), 0);
        text = read_file(file);
        assert_string_equal(text, whole);

        assert_int_equal(mkfifo(pipe_path, 0600), 0);
        assert_int_equal(lstat(pipe_path, &before), 0);
        fd = open(pipe_path, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* it holds all of the text */
        assert_true(fd >= 0);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--xml", pipe_path), 0);
        memset(text, 0, strlen(whole));
        assert_int_equal(read(fd, text, OUTPUT_MAX - 1), strlen(whole));
        assert_string_equal(text, whole);
        close(fd);
        assert_int_equal(lstat(pipe_path, &after), 0);
        assert_true(S_ISFIFO(after.st_mode) && after.st_ino == before.st_ino);

        /* One that is always full, as /dev/full. Only root makes such nodes, and only root could lose them. */
        if (mknod(device, S_IFCHR | 0600, makedev(1, 7)) == 0) {
                assert_int_equal(lstat(device, &before), 0);
                assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--xml", device), 1);
                assert_int_equal(lstat(device, &after), 0);
                assert_true(S_ISCHR(after.st_mode) && after.st_ino == before.st_ino);
        }
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--xml", f->dir), 1);
        assert_non_null(strstr(f->err, "Is a directory"));
        free(text);
        free(whole);
}

static void test_topology_usage(void **state) {
        static const char *const wrong[][6] = {
                {"topology", "--xml", "-", "--svg", "-", NULL},
                {"topology", "--from", "x", "--here", NULL},
                {"gpus", "--here", NULL},
                {"topology", "--from", NULL},
                {"status", "--dot", NULL},
                {"gpus", "--from", "x", NULL},
                {"topology", "x", NULL},
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                assert_int_equal(run(f, wrong[i], NULL, 0), 2);
                assert_string_equal(f->out, "");
                assert_non_null(strstr(f->err, "--help"));
        }
}

/* A program named dot that shows what it got; one that fails; one that draws nothing; none. */
static void test_topology_svg(void **state) {
        struct fixture *f = *state;
        char dot[256], svg[256], from[256], *text, *path = strdup(getenv("PATH"));

        snprintf(from, sizeof(from), "%s/soft-roce.xml", FIXTURES_DIR);
        snprintf(svg, sizeof(svg), "%s/out.svg", f->dir);
        write_file(f, "dot",
                   "#!/bin/sh\n[ \"$*\" = -Tsvg ] && echo '<svg>' && while read -r line; do echo \"$line\"; done\n",
                   0755, dot);
        assert_int_equal(setenv("PATH", f->dir, 1), 0);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--svg", svg), 0);
        assert_string_equal(f->out, "");
        text = read_file(svg);
        assert_int_equal(strncmp(text, "<svg>\ngraph topology {\n", 23), 0);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--svg", "-"), 0);
        assert_string_equal(f->out, text);

        write_file(f, "dot", "#!/bin/sh\necho '<svg'\nexit 1\n", 0755, dot);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--svg", svg), 1);
        assert_non_null(strstr(f->err, "dot has failed"));
        write_file(f, "dot", "#!/bin/sh\n", 0755, dot);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--svg", svg), 1);
        assert_non_null(strstr(f->err, "dot has failed"));
        assert_int_equal(unlink(dot), 0);
        assert_int_equal(RUN(f, NULL, 0, "topology", "--from", from, "--svg", svg), 1);
        assert_non_null(strstr(f->err, "dot is not installed (package graphviz)"));
        assert_int_equal(setenv("PATH", path, 1), 0);
        free(path);
        path = read_file(svg); /* what was there is there */
        assert_string_equal(path, text);
        free(path);
        free(text);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_usage, setup, teardown),
                cmocka_unit_test_setup_teardown(test_usage_documents, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_daemon, setup, teardown),
                cmocka_unit_test_setup_teardown(test_bad_servers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_older_daemon, setup, teardown),
                cmocka_unit_test_setup_teardown(test_status, setup, teardown),
                cmocka_unit_test_setup_teardown(test_several_frames, setup, teardown),
                cmocka_unit_test_setup_teardown(test_documents, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology_files, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology_output, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology_places, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology_usage, setup, teardown),
                cmocka_unit_test_setup_teardown(test_topology_svg, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
