/* SPDX-License-Identifier: MIT */
/* The configuration: what is accepted, and the exact words of every kind of refusal. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "daemon/config.h"
#include "daemon/config_file.h"
#include "daemon/config_keys.h"
#include "daemon/options.h"
#include "ring/ring.h"
#include "tests/scratch.h"
#include "util/log.h"

struct fixture {
        char dir[64];
        struct config config;
        char error[CONFIG_ERROR_MAX];
};

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        snprintf(f->dir, sizeof(f->dir), "%s", "/tmp/railmux-config-XXXXXX");
        assert_non_null(mkdtemp(f->dir));
        config_init(&f->config);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        config_deinit(&f->config);
        assert_int_equal(scratch_remove(f->dir), 0);
        free(f);
        return 0;
}

static void write_file(const struct fixture *f, const char *name, const char *text) {
        char path[160];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", f->dir, name);
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static int load(struct fixture *f, const char *name) {
        char path[160];

        snprintf(path, sizeof(path), "%s/%s", f->dir, name);
        f->error[0] = '\0';
        return config_load(&f->config, path, f->error);
}

/* gpu.reach and gpu.burst: as said, or as the policy has it. */
static void test_by_policy(void **state) {
        static const struct {
                const char *text;
                uint64_t reach, burst;
        } cases[] = {{"gpu:\n  policy: latency\n", 1 << 20, 32 << 20},
                     {"gpu:\n  policy: shared\n", 128 << 10, 512 << 10},
                     {"gpu:\n  policy: latency\n  reach: off\n  burst: default\n", 0, 32 << 20},
                     {"gpu:\n  reach: default\n  burst: off\n", 128 << 10, 0},
                     {"gpu:\n  policy: latency\n  reach: 2M\n  burst: 64K\n", 2 << 20, 64 << 10}};
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                f->error[0] = '\0';
                if (config_text_apply(&f->config, "text", cases[i].text, strlen(cases[i].text), f->error) != 0)
                        fail_msg("%s in:\n%s", f->error, cases[i].text);
                assert_int_equal(config_reach_bytes(&f->config), cases[i].reach);
                assert_int_equal(config_burst_bytes(&f->config), cases[i].burst);
                config_deinit(&f->config);
                config_init(&f->config);
        }
}

static void test_defaults(void **state) {
        struct fixture *f = *state;

        assert_string_equal(f->config.client_socket, "/run/railmux/client.sock");
        assert_string_equal(f->config.control_socket, "/run/railmux/control.sock");
        assert_string_equal(f->config.backend, "auto");
        assert_int_equal(f->config.client_mode, 0660);
        assert_int_equal(f->config.control_mode, 0660);
        assert_int_equal(f->config.gpus, 8);
        assert_int_equal(config_reach_bytes(&f->config), 128 << 10); /* adaptive */
        assert_int_equal(config_burst_bytes(&f->config), 512 << 10);
        assert_int_equal(f->config.exchange_bytes, 1);
        assert_int_equal(f->config.stall_ms, 500);
        assert_int_equal(f->config.ring_depth, RING_DEPTH_DEFAULT);
        assert_int_equal(f->config.rail_phase, PLAN_ALGORITHM_NONE);
        assert_null(f->config.file);
        for (unsigned int kind = 0; kind < CHARGE_KIND_COUNT; kind++)
                assert_int_equal(f->config.limit[kind] > 0, kind != CHARGE_FDS && kind != CHARGE_BYTES);
}

static void test_everything(void **state) {
        struct fixture *f = *state;

        write_file(f, "a.yaml",
                   "# all keys\n"
                   "version: 1\n"
                   "log: {level: debug}\n"
                   "client:\n"
                   "  socket: /tmp/c.sock\n"
                   "  mode: \"0666\"\n"
                   "control:\n"
                   "  socket: '/tmp/o.sock'\n"
                   "  mode: 600\n"
                   "gpu:\n"
                   "  backend: host\n"
                   "  host_gpus: 64\n"
                   "  reach: 1MiB\n"
                   "  burst: 2MiB\n"
                   "  exchange: 4MiB\n"
                   "  staging: 1GiB\n"
                   "executor:\n"
                   "  workers: 3\n"
                   "  stall_ms: 250\n"
                   "session:\n"
                   "  ring_depth: 4096\n"
                   "plans:\n"
                   "  rail_phase: double_tree\n"
                   "peer:\n"
                   "  listen: '[::1]:7600'\n"
                   "  advertise: node7:7600\n"
                   "  cluster: c-1\n"
                   "  ca: ca.crt\n"
                   "  certificate: /etc/railmux/c.crt\n"
                   "  key: node.key\n"
                   "  plain: yes\n"
                   "  heartbeat_ms: 10\n"
                   "  lost_ms: 50\n"
                   "  stripe: off\n"
                   "tenants:\n"
                   "  by_uid: a=5 b=6-9,weight=3\n"
                   "limits:\n"
                   "  sessions: 1\n"
                   "  comms: 2\n"
                   "  buffers: 3\n"
                   "  bytes: 4GiB\n"
                   "  rings: 5\n"
                   "  fds: 16\n");
        assert_int_equal(load(f, "a.yaml"), 0);
        assert_int_equal(f->config.log_level, LOG_LEVEL_DEBUG);
        assert_string_equal(f->config.client_socket, "/tmp/c.sock");
        assert_int_equal(f->config.client_mode, 0666);
        assert_string_equal(f->config.control_socket, "/tmp/o.sock");
        assert_int_equal(f->config.control_mode, 0600);
        assert_string_equal(f->config.backend, "host");
        assert_int_equal(f->config.gpus, 64);
        assert_int_equal(f->config.reach_bytes, 1 << 20);
        assert_int_equal(f->config.burst_bytes, 2 << 20);
        assert_int_equal(f->config.exchange_bytes, 4 << 20);
        assert_int_equal(f->config.staging_bytes, 1 << 30);
        assert_int_equal(f->config.workers, 3);
        assert_int_equal(f->config.stall_ms, 250);
        assert_int_equal(f->config.ring_depth, 4096);
        assert_int_equal(f->config.rail_phase, PLAN_HIERARCHICAL_DOUBLE_TREE);
        assert_string_equal(f->config.listen, "[::1]:7600");
        assert_string_equal(f->config.advertise, "node7:7600");
        assert_string_equal(f->config.cluster, "c-1");
        assert_string_equal(f->config.peer_ca, "ca.crt");
        assert_string_equal(f->config.peer_certificate, "/etc/railmux/c.crt");
        assert_string_equal(f->config.peer_key, "node.key");
        assert_int_equal(f->config.peer_plain, 1);
        assert_int_equal(f->config.peer_heartbeat_ms, 10);
        assert_int_equal(f->config.peer_lost_ms, 50);
        assert_int_equal(f->config.stripe_bytes, 0);
        assert_string_equal(f->config.tenants, "a=5 b=6-9,weight=3");
        assert_int_equal(f->config.limit[CHARGE_SESSIONS], 1);
        assert_int_equal(f->config.limit[CHARGE_COMMS], 2);
        assert_int_equal(f->config.limit[CHARGE_BUFFERS], 3);
        assert_int_equal(f->config.limit[CHARGE_BYTES], UINT64_C(4) << 30);
        assert_int_equal(f->config.limit[CHARGE_RINGS], 5);
        assert_int_equal(f->config.limit[CHARGE_FDS], 16);
        assert_non_null(strstr(f->config.file, "/a.yaml"));
}

static void test_empty(void **state) {
        static const char *const texts[] = {"", "# nothing\n", "---\n", "limits:\n", "limits: ~\nversion: 1\n", "{}\n"};
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                write_file(f, "a.yaml", texts[i]);
                if (load(f, "a.yaml") != 0)
                        fail_msg("text %zu: %s", i, f->error);
                assert_int_equal(f->config.gpus, 8);
        }
}

/* The default file, as it is and with every comment sign of a key taken away. */
static void test_default_file(void **state) {
        struct fixture *f = *state;
        char line[256], text[16384] = "";
        FILE *file = fopen(DEFAULT_FILE, "re");
        unsigned int n = 0;
        struct config defaults;

        assert_non_null(file);
        while (fgets(line, sizeof(line), file)) {
                if (line[0] == '#' && line[1] != ' ' && line[1] != '\n') {
                        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", line + 1);
                        n++;
                } else if (line[0] == '#' && line[1] == ' ' && line[2] == ' ') {
                        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", line + 1);
                        n += strchr(line + 3, '#') == NULL;
                }
        }
        fclose(file);
        assert_true(n > 15);
        f->error[0] = '\0';
        assert_int_equal(config_file_apply(&f->config, DEFAULT_FILE, f->error), 0);
        if (config_text_apply(&f->config, "default", text, strlen(text), f->error) != 0)
                fail_msg("%s in:\n%s", f->error, text);
        /* What it shows as defaults are the defaults (fds and bytes depend on the machine). */
        config_init(&defaults);
        f->config.limit[CHARGE_FDS] = defaults.limit[CHARGE_FDS];
        f->config.limit[CHARGE_BYTES] = defaults.limit[CHARGE_BYTES];
        assert_memory_equal(f->config.limit, defaults.limit, sizeof(defaults.limit));
        assert_string_equal(f->config.client_socket, defaults.client_socket);
        assert_string_equal(f->config.control_socket, defaults.control_socket);
        assert_int_equal(f->config.client_mode, defaults.client_mode);
        assert_int_equal(f->config.control_mode, defaults.control_mode);
        assert_string_equal(f->config.backend, defaults.backend);
        assert_int_equal(f->config.gpus, defaults.gpus);
        assert_int_equal(f->config.reach_bytes, defaults.reach_bytes);
        assert_int_equal(f->config.burst_bytes, defaults.burst_bytes);
        assert_int_equal(f->config.exchange_bytes, defaults.exchange_bytes);
        assert_int_equal(f->config.workers, defaults.workers);
        assert_int_equal(f->config.stall_ms, defaults.stall_ms);
        assert_string_equal(f->config.listen, "");
        assert_string_equal(f->config.advertise, "");
        assert_string_equal(f->config.cluster, defaults.cluster);
        assert_string_equal(f->config.peer_ca, "");
        assert_string_equal(f->config.peer_certificate, "");
        assert_string_equal(f->config.peer_key, "");
        assert_int_equal(f->config.peer_plain, 0);
        assert_int_equal(f->config.peer_heartbeat_ms, defaults.peer_heartbeat_ms);
        assert_int_equal(f->config.peer_lost_ms, defaults.peer_lost_ms);
        assert_int_equal(f->config.stripe_bytes, defaults.stripe_bytes);
        assert_string_equal(f->config.tenants, "");
        assert_null(f->config.constants_file);
        assert_int_equal(f->config.rail_phase, defaults.rail_phase);
        assert_int_equal(f->config.ring_depth, defaults.ring_depth);
        assert_int_equal(f->config.log_level, defaults.log_level);
        /* And it names every key there is. */
        for (const struct config_key *key = config_keys; key->path; key++) {
                const char *dot = strchr(key->path, '.');
                char word[64];

                snprintf(word, sizeof(word), "%s:", dot ? dot + 1 : key->path);
                if (!strstr(text, word))
                        fail_msg("%s is not in the default file", key->path);
        }
        config_deinit(&defaults);
}

/* What a reload leaves as it was is named, and nothing else is. */
static void test_waits(void **state) {
        static const char *const waiting[][2] = {
                {"client: {socket: /tmp/a}", "client.socket"},
                {"client: {mode: '0600'}", "client.mode"},
                {"control: {socket: /tmp/a}", "control.socket"},
                {"control: {mode: '0600'}", "control.mode"},
                {"gpu: {backend: host}", "gpu.backend"},
                {"gpu: {host_gpus: 9}", "gpu.host_gpus"},
                {"gpu: {hip_gpus: 9}", "gpu.hip_gpus"},
                {"gpu: {policy: shared}", "gpu.policy"},
                {"gpu: {blocks: 9}", "gpu.blocks"},
                {"gpu: {staging: 1G}", "gpu.staging"},
                {"executor: {workers: 9}", "executor.workers"},
                {"session: {ring_depth: 4}", "session.ring_depth"},
                {"peer: {listen: '127.0.0.1:7'}", "peer.listen"},
                {"peer: {listen: '127.0.0.1:7', advertise: 'a:7'}", "peer.listen, peer.advertise"},
                {"peer: {cluster: a}", "peer.cluster"},
                {"peer: {plain: yes}", "peer.plain"},
                {"peer: {heartbeat_ms: 199}", "peer.heartbeat_ms"},
                {"peer: {lost_ms: 801}", "peer.lost_ms"},
                {"peer: {rails: 'a=127.0.0.1'}", "peer.rails"},
                {"peer: {stripe: off}", "peer.stripe"},
                {"tenants: {by_uid: 'a=7'}", "tenants.by_uid"},
        };
        static const char others[] = "log: {level: debug}\ngpu: {reach: off, burst: off, exchange: off}\n"
                                     "executor: {stall_ms: 9}\nplans: {rail_phase: ring}\n"
                                     "peer: {ca: a, certificate: a, key: a}\n"
                                     "limits: {sessions: 1, comms: 1, buffers: 1, bytes: 1M, rings: 1, fds: 16}\n";
        const size_t n_waiting = sizeof(waiting) / sizeof(waiting[0]);
        char text[CONFIG_ERROR_MAX];
        struct fixture *f = *state;
        struct config defaults;
        size_t n = 0;

        config_init(&defaults);
        for (size_t i = 0; i <= n_waiting; i++) {
                const char *changed = i < n_waiting ? waiting[i][0] : others;

                if (config_text_apply(&f->config, "text", changed, strlen(changed), f->error) != 0)
                        fail_msg("%s in:\n%s", f->error, changed);
                assert_int_equal(config_waits(&defaults, &f->config, text), i < n_waiting);
                if (i < n_waiting)
                        assert_string_equal(strchr(text, ':') + 2, waiting[i][1]);
                config_deinit(&f->config);
                config_init(&f->config);
        }
        for (const struct config_key *key = config_keys; key->path; key++)
                n++;
        assert_int_equal(n, n_waiting + 17); /* the others, plans.constants and version: or one is missing above */
        config_deinit(&defaults);
}

static void test_refusals(void **state) {
        static const struct {
                const char *text, *error; /* without the file name */
        } cases[] = {
                /* unknown keys */
                {"limit:\n  sessions: 3\n", "1:1: limit: unknown key; allowed: version, log, client, control, gpu, "
                                            "executor, session, plans, peer, tenants, limits"},
                {"version: 1\nlimits:\n  sesions: 3\n",
                 "3:3: limits.sesions: unknown key; allowed: sessions, comms, buffers, bytes, rings, fds"},
                {"log: {level: info, colour: 1}\n", "1:20: log.colour: unknown key; allowed: level"},
                /* values */
                {"limits:\n  sessions: many\n", "2:13: limits.sessions: 'many' is no number; allowed: 1 .. 100000"},
                {"limits:\n  sessions: -1\n", "2:13: limits.sessions: '-1' is no number; allowed: 1 .. 100000"},
                {"limits:\n  sessions: 0\n", "2:13: limits.sessions: 0 is out of range; allowed: 1 .. 100000"},
                {"limits:\n  sessions: 100001\n",
                 "2:13: limits.sessions: 100001 is out of range; allowed: 1 .. 100000"},
                {"limits:\n  fds: 99999999999999999999999\n",
                 "2:8: limits.fds: 99999999999999999999999 is out of range; allowed: 16 .. 5000"},
                {"limits:\n  bytes:   4 Gigs\n", "2:12: limits.bytes: '4 Gigs' is no size; allowed: 1MiB .. 1PiB, as a "
                                                 "number of bytes or with K, M, G, T"},
                {"limits:\n  bytes: 1K\n", "2:10: limits.bytes: 1K is out of range; allowed: 1MiB .. 1PiB, as a number "
                                           "of bytes or with K, M, G, T"},
                {"version: 2\n", "1:10: version: 2 is out of range; allowed: 1"},
                {"log:\n  level: loud\n",
                 "2:10: log.level: 'loud' is no log level; allowed: error, warning, notice, info, debug"},
                {"gpu:\n  backend: cuda\n", "2:12: gpu.backend: 'cuda' is no backend; allowed: auto, hip, host"},
                {"gpu:\n  policy: fast\n", "2:11: gpu.policy: 'fast' is no policy; allowed: adaptive, shared, latency"},
                {"plans:\n  rail_phase: Ring\n",
                 "2:15: plans.rail_phase: 'Ring' is none of them; allowed: auto, direct, "
                 "scatter, doubling, ring, tree, double_tree"},
                {"gpu:\n  hip_gpus: 65\n", "2:13: gpu.hip_gpus: 65 is out of range; allowed: 0 .. 64"},
                {"gpu:\n  blocks: 2000\n", "2:11: gpu.blocks: 2000 is out of range; allowed: 0 .. 1024"},
                {"gpu:\n  reach: no\n",
                 "2:10: gpu.reach: 'no' is no size; allowed: off, default, or 4KiB .. 1GiB, as a number of "
                 "bytes or with K, M, G"},
                {"gpu:\n  reach: 2G\n",
                 "2:10: gpu.reach: 2G is out of range; allowed: off, default, or 4KiB .. 1GiB, as a "
                 "number of bytes or with K, M, G"},
                {"gpu:\n  exchange: default\n", "2:13: gpu.exchange: 'default' is no size; allowed: off, or 1 .. 4MiB, "
                                                "as a number of bytes or with K, M"},
                {"gpu:\n  exchange: 0\n", "2:13: gpu.exchange: 0 is out of range; allowed: off, or 1 .. 4MiB, "
                                          "as a number of bytes or with K, M"},
                {"gpu:\n  exchange: 5M\n", "2:13: gpu.exchange: 5M is out of range; allowed: off, or 1 .. 4MiB, as a "
                                           "number of bytes or with K, M"},
                {"gpu:\n  staging: off\n", "2:12: gpu.staging: 'off' is no size; allowed: default, or 16MiB .. 64GiB, "
                                           "as a number of bytes or with K, M, G"},
                {"gpu:\n  staging: 8M\n", "2:12: gpu.staging: 8M is out of range; allowed: default, or 16MiB .. 64GiB, "
                                          "as a number of bytes or with K, M, G"},
                {"gpu:\n  host_gpus: 65\n", "2:14: gpu.host_gpus: 65 is out of range; allowed: 1 .. 64"},
                {"session:\n  ring_depth: 100\n",
                 "2:15: session.ring_depth: 100 is no power of two; allowed: a power of two in 4 .. 4096"},
                {"session:\n  ring_depth: 8192\n",
                 "2:15: session.ring_depth: 8192 is out of range; allowed: a power of two in 4 .. 4096"},
                {"client:\n  socket: c.sock\n",
                 "2:11: client.socket: 'c.sock' is no absolute path; allowed: an absolute path of at most 102 bytes, "
                 "without blanks, quotes and \\$%#"},
                {"client:\n  socket: '/tmp/a b'\n", "2:11: client.socket: '/tmp/a b' cannot be told to a unit; "
                                                    "allowed: an absolute path of at most 102 bytes, "
                                                    "without blanks, quotes and \\$%#"},
                {"control:\n  socket: /tmp/$x\n", "2:11: control.socket: '/tmp/$x' cannot be told to a unit; allowed: "
                                                  "an absolute path of at most 102 bytes, "
                                                  "without blanks, quotes and \\$%#"},
                {"client:\n  mode: 0777\n",
                 "2:9: client.mode: '0777' is no mode of a socket; allowed: an octal number between "
                 "0600 and 0666, like \"0660\""},
                {"control:\n  mode: 0460\n",
                 "2:9: control.mode: '0460' is no mode of a socket; allowed: an octal number "
                 "between 0600 and 0666, like \"0660\""},
                {"peer:\n  listen: node7:7600\n", "2:11: peer.listen: 'node7:7600' is no numeric address with a port; "
                                                  "allowed: ADDR:PORT or [ADDR]:PORT, or nothing"},
                {"peer:\n  advertise: 10.0.0.1\n", "2:14: peer.advertise: '10.0.0.1' is no address with a port; "
                                                   "allowed: HOST:PORT of at most 39 characters, or nothing"},
                {"peer:\n  advertise: gpu-node-00017.cluster.internal.org:7600\n",
                 "2:14: peer.advertise: 'gpu-node-00017.cluster.internal.org:7600' has 40 characters; "
                 "allowed: HOST:PORT of at most 39 characters, or nothing"},
                {"peer:\n  cluster: a/b\n", "2:12: peer.cluster: 'a/b' is no name of a cluster; allowed: 1 to 31 "
                                            "letters, digits, '.', '_' and '-'"},
                {"peer:\n  key: ../k.pem\n", "2:8: peer.key: '../k.pem' is neither; allowed: an absolute path, the "
                                             "name of a credential, or nothing"},
                {"peer:\n  plain: true\n", "2:10: peer.plain: 'true' is neither; allowed: yes, no"},
                {"peer:\n  lost_ms: 10\n", "2:12: peer.lost_ms: 10 is out of range; allowed: 50 .. 600000"},
                {"peer:\n  stripe: 1K\n", "2:11: peer.stripe: 1K is out of range; allowed: off, or 4KiB .. 1GiB, as a "
                                          "number of bytes or with K, M, G"},
                {"tenants:\n  by_uid: a=5,weight=0\n",
                 "2:11: tenants.by_uid: '0' is wrong in a tenant; allowed: a weight, 1 .. 1000; allowed: "
                 "NAME=UID[-UID][,weight=N][,class=latency|normal|bulk][,rails=RAIL[/RAIL ...]], blanks between "
                 "several"},
                {"executor:\n  stall_ms:\n", "2:12: executor.stall_ms: no value is given; allowed: 1 .. 3600000"},
                /* shape */
                {"limits: 7\n",
                 "1:9: limits: a single value stands where a section should; allowed: the keys sessions, comms, "
                 "buffers, bytes, rings, fds"},
                {"gpu:\n  host_gpus: {a: 1}\n",
                 "2:14: gpu.host_gpus: a section stands where a single value should; allowed: 1 .. 64"},
                {"gpu:\n  host_gpus: [1, 2]\n", "2:14: gpu.host_gpus: a list; allowed: a single value or a section"},
                {"- a\n", "1:1: a list; allowed: keys with values"},
                {"just text\n", "1:1: a single value; allowed: keys with values"},
                {"gpu:\n  host_gpus: 3\n  host_gpus: 4\n", "3:3: gpu.host_gpus: given twice; allowed: once in a file"},
                {"version: &v 1\ngpu:\n  host_gpus: *v\n", "3:14: an alias; allowed: plain values"},
                {"version: 1\n---\nversion: 1\n", "2:1: a second document begins; allowed: one in a file"},
                /* no YAML */
                {"limits:\n\tsessions: 3\n",
                 "2:1: no YAML: found character that cannot start any token; allowed: keys with values"},
                {"limits: {sessions: 3\n", "2:1: no YAML: did not find expected ',' or '}'; allowed: keys with values"},
                {"version: \"1\n", "2:1: no YAML: found unexpected end of stream; allowed: keys with values"},
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                char expected[CONFIG_ERROR_MAX];

                write_file(f, "bad.yaml", cases[i].text);
                snprintf(expected, sizeof(expected), "%s/bad.yaml:%s", f->dir, cases[i].error);
                assert_int_equal(load(f, "bad.yaml"), -EINVAL);
                assert_string_equal(f->error, expected);
        }
        /* Nothing of all this left a trace. */
        assert_int_equal(f->config.gpus, 8);
        assert_null(f->config.file);
}

static void test_long_socket(void **state) {
        struct fixture *f = *state;
        char text[256] = "client:\n  socket: /";

        memset(text + strlen(text), 'a', 101);
        write_file(f, "a.yaml", text);
        assert_int_equal(load(f, "a.yaml"), 0);
        text[strlen(text)] = 'a';
        write_file(f, "a.yaml", text);
        assert_int_equal(load(f, "a.yaml"), -EINVAL);
        assert_non_null(strstr(f->error, ":2:11: client.socket: the path has 103 bytes; allowed: "));
}

/* The command line is not let through what a start cannot use. */
static void test_sockets(void **state) {
        static const struct {
                const char *main, *socket, *control, *error; /* NULL: it fits */
        } cases[] = {
#define LONG "/234567891123456789212345678931234567894123456789512345678961234567897123456789812345678991234567890"
                {"", LONG "12", "o.sock", NULL},
                {"", LONG "123", NULL, "--socket: the path has 103 bytes; allowed: a path of at most 102 bytes, "},
                {"", NULL, LONG "123", "--control: the path has 103 bytes; allowed: "},
                {"", "", NULL, "--socket: no path is given; allowed: "},
                {"", "/run/a b.sock", NULL, "--socket: '/run/a b.sock' cannot be told to a unit; allowed: "},
                {"", "/run/a.sock", "/run/a.sock", "client.socket is /run/a.sock and control.socket /run/a.sock; "},
                {"", "/run/a.sock", "/run/a.sock.exec", "control.socket /run/a.sock.exec; allowed: "},
                {"", "/run/a.sock.exec", "/run/a.sock", NULL},
                {"", "/run/a.sock", "/run/a.sock.control", NULL},
                {"control: {socket: /run/a}\nclient: {socket: /run/a}\n", NULL, NULL, "control.socket /run/a; "},
                {"control: {socket: /run/a}\nclient: {socket: /run/a}\n", NULL, "/run/b", NULL},
#undef LONG
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const struct options options = {.socket = cases[i].socket, .control = cases[i].control};

                config_deinit(&f->config);
                config_init(&f->config);
                write_file(f, "a.yaml", cases[i].main);
                assert_int_equal(load(f, "a.yaml"), 0);
                assert_int_equal(options_apply(&options, &f->config, f->error), cases[i].error ? -EINVAL : 0);
                if (cases[i].error && !strstr(f->error, cases[i].error))
                        fail_msg("%s", f->error);
        }
}

/* Tenants may take rails that there are, wherever these come from. */
static void test_tenants_rails(void **state) {
        static const struct {
                const char *main, *rails, *error;
        } cases[] = {
                {"peer: {rails: r0=127.0.0.1 r1=127.0.0.1}\ntenants: {by_uid: 'a=5,rails=r1'}\n", "", NULL},
                {"tenants: {by_uid: 'a=5,rails=r1'}\n", "r1=127.0.0.1", NULL},
                {"tenants: {by_uid: 'a=5,rails=tcp0'}\n", "", NULL},
                {"peer: {rails: r0=127.0.0.1}\ntenants: {by_uid: 'a=5 b=6,rails=r0/r1'}\n", "",
                 "tenants.by_uid: tenant b may take rail r1, which there is not; allowed: those of peer.rails"},
                {"peer: {rails: r1=127.0.0.1}\ntenants: {by_uid: 'a=5,rails=r1'}\n", "r0=127.0.0.1",
                 "tenant a may take rail r1, which there is not"},
                {"tenants: {by_uid: 'a=5,rails=r1'}\n", "", "which is tcp0 alone where it is empty"},
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct options options = {.gpu = NULL};

                snprintf(options.rails, sizeof(options.rails), "%s", cases[i].rails);
                config_deinit(&f->config);
                config_init(&f->config);
                write_file(f, "a.yaml", cases[i].main);
                assert_int_equal(load(f, "a.yaml"), 0);
                assert_int_equal(options_apply(&options, &f->config, f->error), cases[i].error ? -EINVAL : 0);
                if (cases[i].error && !strstr(f->error, cases[i].error))
                        fail_msg("%s", f->error);
        }
}

/* A later file wins; order is by name; other names do not count. */
static void test_directory(void **state) {
        struct fixture *f = *state;
        char path[160];

        write_file(f, "main.yaml", "gpu:\n  host_gpus: 1\nexecutor:\n  workers: 1\n  stall_ms: 11\n");
        snprintf(path, sizeof(path), "%s/conf.d", f->dir);
        assert_int_equal(mkdir(path, 0700), 0);
        write_file(f, "conf.d/20-b.yaml", "gpu:\n  host_gpus: 3\n");
        write_file(f, "conf.d/10-a.yaml", "gpu:\n  host_gpus: 2\nexecutor:\n  workers: 2\n");
        write_file(f, "conf.d/Z.yaml", "limits:\n  rings: 77\n");
        write_file(f, "conf.d/99.yaml.bak", "gpu:\n  host_gpus: 9\n");
        write_file(f, "conf.d/.hidden.yaml", "nonsense\n");
        assert_int_equal(load(f, "main.yaml"), 0);
        assert_int_equal(f->config.gpus, 3);
        assert_int_equal(f->config.workers, 2);
        assert_int_equal(f->config.stall_ms, 11);
        assert_int_equal(f->config.limit[CHARGE_RINGS], 77);

        /* A bad file there is named, and the whole load has no effect. */
        write_file(f, "conf.d/30-c.yaml", "gpu:\n  host_gpus: x\n");
        write_file(f, "conf.d/10-a.yaml", "gpu:\n  host_gpus: 2\nexecutor:\n  workers: 5\n");
        assert_int_equal(load(f, "main.yaml"), -EINVAL);
        assert_non_null(strstr(f->error, "conf.d/30-c.yaml:2:14: gpu.host_gpus: 'x' is no number"));
        assert_int_equal(f->config.workers, 2);
}

/* What must fit together is looked at when all files are read, also where this node is alone. */
static void test_pairs(void **state) {
        static const struct {
                const char *main, *later, *error; /* NULL: it fits */
        } cases[] = {
                {"peer:\n  ca: /a\n", "",
                 "main.yaml:2:7: peer.ca: 1 of peer.ca, peer.certificate and peer.key are given; "
                 "allowed: all three, or none"},
                {"peer:\n  ca: /a\n", "peer:\n  key: /k\n", "conf.d/a.yaml:2:8: peer.key: 2 of peer.ca, "},
                {"peer:\n  ca: /a\n", "peer:\n  key: /k\n  certificate: /c\n", NULL},
                {"peer:\n  ca: /a\n", "peer:\n  ca: \"\"\n", NULL},
                {"peer:\n  heartbeat_ms: 500\n", "",
                 "main.yaml:2:17: peer.heartbeat_ms: peer.heartbeat_ms is 500 and "
                 "peer.lost_ms 800; allowed: a peer.lost_ms of twice the other at "
                 "least"},
                {"peer:\n  lost_ms: 399\n", "", "main.yaml:2:12: peer.lost_ms: peer.heartbeat_ms is 200 and "},
                {"peer:\n  heartbeat_ms: 500\n", "peer:\n  lost_ms: 1000\n", NULL},
        };
        struct fixture *f = *state;
        char path[96];

        snprintf(path, sizeof(path), "%s/conf.d", f->dir);
        assert_int_equal(mkdir(path, 0700), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                config_deinit(&f->config);
                config_init(&f->config);
                write_file(f, "main.yaml", cases[i].main);
                write_file(f, "conf.d/a.yaml", cases[i].later);
                assert_int_equal(load(f, "main.yaml"), cases[i].error ? -EINVAL : 0);
                if (cases[i].error && !strstr(f->error, cases[i].error))
                        fail_msg("%s", f->error);
        }
}

/* What others dial goes into ids of communicators, in the way in which we write numbers. Files and the command line
 * together tell what it is. */
static void test_addresses(void **state) {
#define LONG "[2001:db8:1111:2222:3333:444:555:666]:76"
        static const struct {
                const char *main, *later, *listen, *error; /* NULL: it fits */
        } cases[] = {
                {"peer:\n  listen: '" LONG "'\n", "", NULL,
                 "main.yaml:2:11: peer.listen: other nodes would dial " LONG
                 ", which has 40 characters; allowed: 39 at most, or a peer.advertise"},
                {"peer:\n  listen: '" LONG "'\n  advertise: node7:7600\n", "peer:\n  advertise: \"\"\n", NULL,
                 "conf.d/a.yaml:2:14: peer.advertise: other nodes would dial " LONG ", "},
                {"peer:\n  listen: '" LONG "'\n", "peer:\n  advertise: node7:7600\n", NULL, NULL},
                {"peer:\n  listen: '" LONG "'\n", "", "10.0.0.7:7600", NULL},
                {"peer:\n  listen: 10.0.0.7:7600\n", "", LONG, "--listen: other nodes would dial " LONG ", "},
                {"peer:\n  listen: '[2001:db8:1111:2222:3333:444:555:666]:7'\n", "", NULL, NULL},
                {"peer:\n  listen: '[2001:0db8:0000:0000:0000:0000:0000:0007]:7600'\n", "", NULL, NULL},
                {"peer:\n  listen: '[0000:0000:0000:0000:0000:0000:0000:0000]:7600'\n", "", NULL, NULL},
                {"peer:\n  advertise: gpu-node-0017.cluster.internal.org:7600\n", "", LONG, NULL},
        };
#undef LONG
        struct fixture *f = *state;
        char path[96];

        snprintf(path, sizeof(path), "%s/conf.d", f->dir);
        assert_int_equal(mkdir(path, 0700), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const struct options options = {.listen = cases[i].listen};

                config_deinit(&f->config);
                config_init(&f->config);
                write_file(f, "main.yaml", cases[i].main);
                write_file(f, "conf.d/a.yaml", cases[i].later);
                assert_int_equal(load(f, "main.yaml"), 0);
                assert_int_equal(options_apply(&options, &f->config, f->error), cases[i].error ? -EINVAL : 0);
                if (cases[i].error && !strstr(f->error, cases[i].error))
                        fail_msg("%s", f->error);
        }
}

static void test_rail_phase(void **state) {
        static const struct {
                const char *word;
                uint32_t algorithm;
        } phases[] = {
                {"direct", PLAN_HIERARCHICAL},
                {"scatter", PLAN_HIERARCHICAL_SCATTER},
                {"doubling", PLAN_HIERARCHICAL_DOUBLING},
                {"ring", PLAN_HIERARCHICAL_RING},
                {"tree", PLAN_HIERARCHICAL_TREE},
                {"double_tree", PLAN_HIERARCHICAL_DOUBLE_TREE},
                {"auto", PLAN_ALGORITHM_NONE},
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
                char text[64];

                snprintf(text, sizeof(text), "plans: {rail_phase: %s}\n", phases[i].word);
                write_file(f, "a.yaml", text);
                assert_int_equal(load(f, "a.yaml"), 0);
                assert_int_equal(f->config.rail_phase, phases[i].algorithm);
        }
}

static void test_constants(void **state) {
        static const struct {
                const char *text, *error; /* NULL: there is no such file */
        } bad[] = {
                {NULL, " cannot be read: No such file or directory"},
                {"{\"version\": 2, \"constants\": {\"hop_ns\": 1}}", ": its version is not 1"},
                {"{\"version\": 1, \"constants\": {\"hop_ns\": -1}}", ": hop_ns is no number from 0 to 1e12"},
                {"{\"version\": 1, \"constants\": {\"hop\": 1}}", ": there are no constants in it"},
                {"{\"version\": 1,\n", ": string or '}' expected near end of file (line 2)"},
        };
        struct fixture *f = *state;
        char text[256], expected[CONFIG_ERROR_MAX], path[96];

        assert_null(f->config.constants_file);
        assert_true(f->config.constants.hop_ns < 0); /* not given */
        snprintf(path, sizeof(path), "%s/constants.json", f->dir);
        snprintf(text, sizeof(text), "plans:\n  constants: %s\n", path);
        write_file(f, "a.yaml", text);
        write_file(f, "constants.json", "{\"version\": 1, \"constants\": {\"hop_ns\": 12.5}}");
        assert_int_equal(load(f, "a.yaml"), 0);
        assert_string_equal(f->config.constants_file, path);
        assert_true(f->config.constants.hop_ns == 12.5 && f->config.constants.ns_per_turn < 0);

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                if (bad[i].text)
                        write_file(f, "constants.json", bad[i].text);
                else
                        assert_int_equal(unlink(path), 0);
                snprintf(expected, sizeof(expected),
                         "%s/a.yaml:2:14: plans.constants: %s%s; allowed: an absolute path of a file of railmux-sim "
                         "fit, or nothing",
                         f->dir, path, bad[i].error);
                assert_int_equal(load(f, "a.yaml"), -EINVAL);
                assert_string_equal(f->error, expected);
                assert_string_equal(f->config.constants_file, path);
                assert_true(f->config.constants.hop_ns == 12.5);
        }
        write_file(f, "a.yaml", "plans:\n  constants: /tmp\n");
        assert_int_equal(load(f, "a.yaml"), -EINVAL);
        assert_non_null(strstr(f->error, ": plans.constants: /tmp cannot be read: Is a directory;"));
        write_file(f, "a.yaml", "plans: {constants: c.json}\n");
        assert_int_equal(load(f, "a.yaml"), -EINVAL);
        assert_non_null(strstr(f->error, ":1:20: plans.constants: 'c.json' is no absolute path;"));

        /* A later file that says nothing takes an earlier one's away. */
        write_file(f, "constants.json", "{\"version\": 1, \"constants\": {\"hop_ns\": 12.5}}");
        write_file(f, "a.yaml", text);
        snprintf(path, sizeof(path), "%s/conf.d", f->dir);
        assert_int_equal(mkdir(path, 0700), 0);
        write_file(f, "conf.d/a.yaml", "plans:\n  constants: \"\"\n");
        assert_int_equal(load(f, "a.yaml"), 0);
        assert_null(f->config.constants_file);
        assert_true(f->config.constants.hop_ns < 0);
        write_file(f, "conf.d/a.yaml", "plans:\n  constants:\n");
        assert_int_equal(load(f, "a.yaml"), 0);
        assert_null(f->config.constants_file);
}

static void test_missing(void **state) {
        struct fixture *f = *state;
        char expected[CONFIG_ERROR_MAX], big[] = "# 0123456789012345678901234567890123456789012345678901234567890\n",
                                         path[160];
        FILE *file;

        snprintf(expected, sizeof(expected), "%s/none.yaml: cannot be read: No such file or directory", f->dir);
        assert_int_equal(load(f, "none.yaml"), -ENOENT);
        assert_string_equal(f->error, expected);
        assert_int_equal(load(f, "."), -EISDIR);

        snprintf(path, sizeof(path), "%s/big.yaml", f->dir);
        file = fopen(path, "we");
        assert_non_null(file);
        for (unsigned int i = 0; i <= CONFIG_FILE_BYTES_MAX / (sizeof(big) - 1); i++)
                assert_true(fputs(big, file) >= 0);
        fclose(file);
        assert_int_equal(load(f, "big.yaml"), -EFBIG);
        assert_non_null(strstr(f->error, "is too large; allowed: 256 KiB"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_by_policy, setup, teardown),
                cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
                cmocka_unit_test_setup_teardown(test_everything, setup, teardown),
                cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
                cmocka_unit_test_setup_teardown(test_default_file, setup, teardown),
                cmocka_unit_test_setup_teardown(test_waits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
                cmocka_unit_test_setup_teardown(test_long_socket, setup, teardown),
                cmocka_unit_test_setup_teardown(test_sockets, setup, teardown),
                cmocka_unit_test_setup_teardown(test_tenants_rails, setup, teardown),
                cmocka_unit_test_setup_teardown(test_directory, setup, teardown),
                cmocka_unit_test_setup_teardown(test_pairs, setup, teardown),
                cmocka_unit_test_setup_teardown(test_addresses, setup, teardown),
                cmocka_unit_test_setup_teardown(test_rail_phase, setup, teardown),
                cmocka_unit_test_setup_teardown(test_constants, setup, teardown),
                cmocka_unit_test_setup_teardown(test_missing, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
