/* SPDX-License-Identifier: MIT */
#include "daemon/config_keys.h"

#include "daemon/comm_id.h"
#include "daemon/config_file.h"
#include "daemon/peer_address.h"
#include "daemon/rails.h"
#include "daemon/tenants.h"
#include "fabric/fabric.h"
#include "plan/constants.h"
#include "ring/ring.h"
#include "util/cleanup.h"
#include "util/log.h"
#include "util/parse.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Executors listen beside the client socket, under its name and this ending; both must fit a socket address. */
#define CONFIG_SOCKET_MAX (108u - sizeof(".exec"))
/* What has a meaning in the file that tells units their arguments (launcher_systemd.c), where it has to be one word. */
#define CONFIG_SOCKET_SPECIAL " \t\n\"'\\$%#"

static void *config_key_target(const struct config_key *key, struct config *config) {
        return (char *)config + key->offset;
}

static int config_key_string(const struct config_key *key, struct config *config, const char *value) {
        char **target = config_key_target(key, config);
        char *copy = strdup(value);

        if (!copy)
                return -ENOMEM;
        free(*target);
        *target = copy;
        return 0;
}

static int config_key_range(const struct config_key *key, int r, uint64_t number, const char *value, const char *what,
                            char why[CONFIG_WHY_MAX]) {
        if (r == -EINVAL) {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is no %s", value, what);
                return -EINVAL;
        }
        if (r < 0 || number < key->minimum || number > key->maximum) {
                snprintf(why, CONFIG_WHY_MAX, "%.40s is out of range", value);
                return -EINVAL;
        }
        return 0;
}

/* Checked against the key's range; the output is written only on success. */
static int config_key_number(const struct config_key *key, const char *value, const char *what,
                             char why[CONFIG_WHY_MAX], uint64_t *ret_number) {
        uint64_t number = 0;
        int r;

        r = what[0] == 's' ? parse_size(value, &number) : parse_u64(value, &number);
        r = config_key_range(key, r, number, value, what, why);
        if (!r)
                *ret_number = number;
        return r;
}

static int config_key_u32(const struct config_key *key, struct config *config, const char *value,
                          char why[CONFIG_WHY_MAX]) {
        uint64_t number;
        int r;

        r = config_key_number(key, value, "number", why, &number);
        if (!r)
                *(uint32_t *)config_key_target(key, config) = (uint32_t)number;
        return r;
}

static int config_key_u64(const struct config_key *key, struct config *config, const char *value,
                          char why[CONFIG_WHY_MAX]) {
        return config_key_number(key, value, "number", why, config_key_target(key, config));
}

static int config_key_size(const struct config_key *key, struct config *config, const char *value,
                           char why[CONFIG_WHY_MAX]) {
        return config_key_number(key, value, "size", why, config_key_target(key, config));
}

static int config_key_version(const struct config_key *key, struct config *config, const char *value,
                              char why[CONFIG_WHY_MAX]) {
        uint64_t number;

        (void)config;
        return config_key_number(key, value, "number", why, &number);
}

static int config_key_level(const struct config_key *key, struct config *config, const char *value,
                            char why[CONFIG_WHY_MAX]) {
        int level = log_level_parse(value);

        if (level < 0) {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is no log level", value);
                return -EINVAL;
        }
        *(int *)config_key_target(key, config) = level;
        return 0;
}

int config_key_check_socket(const char *value, char why[CONFIG_WHY_MAX]) {
        if (!*value) {
                snprintf(why, CONFIG_WHY_MAX, "no path is given");
                return -EINVAL;
        }
        if (strlen(value) > CONFIG_SOCKET_MAX) {
                snprintf(why, CONFIG_WHY_MAX, "the path has %zu bytes", strlen(value));
                return -EINVAL;
        }
        if (strpbrk(value, CONFIG_SOCKET_SPECIAL)) {
                snprintf(why, CONFIG_WHY_MAX, "'%.120s' cannot be told to a unit", value);
                return -EINVAL;
        }
        return 0;
}

static int config_key_socket(const struct config_key *key, struct config *config, const char *value,
                             char why[CONFIG_WHY_MAX]) {
        int r;

        if (value[0] != '/') {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is no absolute path", value);
                return -EINVAL;
        }
        r = config_key_check_socket(value, why);
        return r < 0 ? r : config_key_string(key, config, value);
}

static int config_key_mode(const struct config_key *key, struct config *config, const char *value,
                           char why[CONFIG_WHY_MAX]) {
        size_t length = strlen(value);
        unsigned long mode = strtoul(value, NULL, 8);

        /* Read and write for the owner is what we ourselves need; execute means nothing on a socket. */
        if (length < 3 || length > 4 || strspn(value, "01234567") != length || (mode & ~0666ul) ||
            (mode & 0600) != 0600) {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is no mode of a socket", value);
                return -EINVAL;
        }
        *(uint32_t *)config_key_target(key, config) = (uint32_t)mode;
        return 0;
}

static int config_key_backend(const struct config_key *key, struct config *config, const char *value,
                              char why[CONFIG_WHY_MAX]) {
        if (strcmp(value, "auto") != 0 && strcmp(value, "hip") != 0 && strcmp(value, "host") != 0) {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is no backend", value);
                return -EINVAL;
        }
        return config_key_string(key, config, value);
}

static int config_key_policy(const struct config_key *key, struct config *config, const char *value,
                             char why[CONFIG_WHY_MAX]) {
        if (strcmp(value, "adaptive") != 0 && strcmp(value, "shared") != 0 && strcmp(value, "latency") != 0) {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is no policy", value);
                return -EINVAL;
        }
        return config_key_string(key, config, value);
}

/* Or the word that is allowed first, which stands for 0. */
static int config_key_size_or_word(const struct config_key *key, struct config *config, const char *value,
                                   char why[CONFIG_WHY_MAX]) {
        const size_t n = strcspn(key->allowed, ",");

        if (strlen(value) == n && strncmp(value, key->allowed, n) == 0) {
                *(uint64_t *)config_key_target(key, config) = 0;
                return 0;
        }
        return config_key_size(key, config, value, why);
}

static int config_key_size_by_policy(const struct config_key *key, struct config *config, const char *value,
                                     char why[CONFIG_WHY_MAX]) {
        if (strcmp(value, "default") == 0) {
                *(uint64_t *)config_key_target(key, config) = CONFIG_BY_POLICY;
                return 0;
        }
        return config_key_size_or_word(key, config, value, why);
}

static int config_key_depth(const struct config_key *key, struct config *config, const char *value,
                            char why[CONFIG_WHY_MAX]) {
        uint64_t number = 0;
        int r;

        r = parse_u64(value, &number);
        r = config_key_range(key, r, number, value, "number", why);
        if (r < 0)
                return r;
        if (number & (number - 1)) {
                snprintf(why, CONFIG_WHY_MAX, "%.40s is no power of two", value);
                return -EINVAL;
        }
        *(uint32_t *)config_key_target(key, config) = (uint32_t)number;
        return 0;
}

/* Read at once, so that a file that cannot be used is refused like any other value. */
static int config_key_constants(const struct config_key *key, struct config *config, const char *value,
                                char why[CONFIG_WHY_MAX]) {
        char **target = config_key_target(key, config), error[112];
        _cleanup_free_ char *text = NULL;
        struct plan_constants constants;
        size_t length;
        int r;

        constants_clear(&constants);
        if (!value[0]) {
                free(*target);
                *target = NULL;
                config->constants = constants;
                return 0;
        }
        if (value[0] != '/') {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is no absolute path", value);
                return -EINVAL;
        }
        r = config_file_read(value, &text, &length);
        if (r == -ENOMEM)
                return r;
        if (r < 0) {
                snprintf(why, CONFIG_WHY_MAX, "%.128s cannot be read: %s", value,
                         r == -EBADF ? "not a regular file" : strerror(-r));
                return -EINVAL;
        }
        r = constants_parse(text, length, &constants, error, sizeof(error));
        if (r == -EINVAL)
                snprintf(why, CONFIG_WHY_MAX, "%.128s: %s", value, error);
        if (!r)
                r = config_key_string(key, config, value);
        if (!r)
                config->constants = constants;
        return r;
}

/* What ranks of different nodes do, by the word in the names of hierarchical plans. */
static int config_key_rail_phase(const struct config_key *key, struct config *config, const char *value,
                                 char why[CONFIG_WHY_MAX]) {
        static const struct {
                const char *word;
                uint32_t algorithm;
        } phases[] = {
                {"auto", PLAN_ALGORITHM_NONE},
                {"direct", PLAN_HIERARCHICAL},
                {"scatter", PLAN_HIERARCHICAL_SCATTER},
                {"doubling", PLAN_HIERARCHICAL_DOUBLING},
                {"ring", PLAN_HIERARCHICAL_RING},
                {"tree", PLAN_HIERARCHICAL_TREE},
                {"double_tree", PLAN_HIERARCHICAL_DOUBLE_TREE},
        };

        for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
                if (strcmp(value, phases[i].word) == 0) {
                        *(uint32_t *)config_key_target(key, config) = phases[i].algorithm;
                        return 0;
                }
        snprintf(why, CONFIG_WHY_MAX, "'%.40s' is none of them", value);
        return -EINVAL;
}

static int config_key_listen(const struct config_key *key, struct config *config, const char *value,
                             char why[CONFIG_WHY_MAX]) {
        struct sockaddr_storage address;
        int size;

        if (value[0] && peer_address_parse(value, &address, &size) < 0) {
                snprintf(why, CONFIG_WHY_MAX, "'%.60s' is no numeric address with a port", value);
                return -EINVAL;
        }
        return config_key_string(key, config, value);
}

/* It goes into ids of communicators. */
static int config_key_advertise(const struct config_key *key, struct config *config, const char *value,
                                char why[CONFIG_WHY_MAX]) {
        char host[PEER_ADDRESS_MAX];
        uint16_t port;

        if (value[0] && (peer_address_split(value, host, &port) < 0 || port == 0)) {
                snprintf(why, CONFIG_WHY_MAX, "'%.60s' is no address with a port", value);
                return -EINVAL;
        }
        if (strlen(value) >= COMM_ID_ADDRESS_BYTES) {
                snprintf(why, CONFIG_WHY_MAX, "'%.127s' has %zu characters", value, strlen(value));
                return -EINVAL;
        }
        return config_key_string(key, config, value);
}

static int config_key_cluster(const struct config_key *key, struct config *config, const char *value,
                              char why[CONFIG_WHY_MAX]) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

        if (strspn(value, letters) != strlen(value) || strlen(value) > FABRIC_NAME_MAX) {
                snprintf(why, CONFIG_WHY_MAX, "'%.64s' is no name of a cluster", value);
                return -EINVAL;
        }
        return config_key_string(key, config, value);
}

/* An absolute path, or the name of a credential of the service. The file is read when it is used. */
static int config_key_credential(const struct config_key *key, struct config *config, const char *value,
                                 char why[CONFIG_WHY_MAX]) {
        if (value[0] != '/' && strchr(value, '/')) {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is neither", value);
                return -EINVAL;
        }
        return config_key_string(key, config, value);
}

/* What has a parser of its own, which has said `text` if it is wrong. It is parsed again where it is used. */
static int config_key_parsed(const struct config_key *key, struct config *config, const char *value, int r,
                             const char *text, char why[CONFIG_WHY_MAX]) {
        if (r < 0) {
                snprintf(why, CONFIG_WHY_MAX, "%s", text);
                return -EINVAL;
        }
        return config_key_string(key, config, value);
}

static int config_key_rails(const struct config_key *key, struct config *config, const char *value,
                            char why[CONFIG_WHY_MAX]) {
        struct rail_spec specs[RAILS_MAX];
        char text[RAILS_WHY_MAX] = "";
        uint32_t n;

        return config_key_parsed(key, config, value, rail_specs_parse(value, specs, &n, text), text, why);
}

static int config_key_tenants(const struct config_key *key, struct config *config, const char *value,
                              char why[CONFIG_WHY_MAX]) {
        struct tenant_spec specs[TENANT_SPECS_MAX];
        char text[TENANTS_WHY_MAX] = "";
        uint32_t n;

        return config_key_parsed(key, config, value, tenant_specs_parse(value, specs, &n, text), text, why);
}

static int config_key_yes(const struct config_key *key, struct config *config, const char *value,
                          char why[CONFIG_WHY_MAX]) {
        if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0) {
                snprintf(why, CONFIG_WHY_MAX, "'%.40s' is neither", value);
                return -EINVAL;
        }
        *(uint32_t *)config_key_target(key, config) = value[0] == 'y';
        return 0;
}

_Static_assert(RING_DEPTH_MIN == 4 && RING_DEPTH_MAX == 4096, "the text below names them");

#define SOCKET_ALLOWED "an absolute path " CONFIG_SOCKET_ALLOWED
_Static_assert(CONFIG_SOCKET_MAX == 102, "the text above names it");
#define CREDENTIAL_ALLOWED "an absolute path, the name of a credential, or nothing"
#define ADVERTISE_ALLOWED  "HOST:PORT of at most 39 characters, or nothing"
_Static_assert(COMM_ID_ADDRESS_BYTES == 40, "the text above names it");
#define MODE_ALLOWED     "an octal number between 0600 and 0666, like \"0660\""
#define LIMIT(k)         offsetof(struct config, limit[k])
#define SIZE_MAX_ALLOWED (UINT64_C(1) << 50)

const struct config_key config_keys[] = {
        {"version", "1", config_key_version, 1, 1, 0, false},
        {"log.level", "error, warning, notice, info, debug", config_key_level, 0, 0, offsetof(struct config, log_level),
         false},
        {"client.socket", SOCKET_ALLOWED, config_key_socket, 0, 0, offsetof(struct config, client_socket), false},
        {"client.mode", MODE_ALLOWED, config_key_mode, 0, 0, offsetof(struct config, client_mode), false},
        {"control.socket", SOCKET_ALLOWED, config_key_socket, 0, 0, offsetof(struct config, control_socket), false},
        {"control.mode", MODE_ALLOWED, config_key_mode, 0, 0, offsetof(struct config, control_mode), false},
        {"gpu.backend", "auto, hip, host", config_key_backend, 0, 0, offsetof(struct config, backend), false},
        {"gpu.host_gpus", "1 .. 64", config_key_u32, 1, 64, offsetof(struct config, gpus), false},
        {"gpu.hip_gpus", "0 .. 64", config_key_u32, 0, 64, offsetof(struct config, hip_gpus), false},
        {"gpu.policy", "adaptive, shared, latency", config_key_policy, 0, 0, offsetof(struct config, policy), false},
        {"gpu.blocks", "0 .. 1024", config_key_u32, 0, 1024, offsetof(struct config, blocks), false},
        {"gpu.reach", "off, default, or 4KiB .. 1GiB, as a number of bytes or with K, M, G", config_key_size_by_policy,
         4096, 1u << 30, offsetof(struct config, reach_bytes), false},
        {"gpu.burst", "off, default, or 64KiB .. 1GiB, as a number of bytes or with K, M, G", config_key_size_by_policy,
         65536, 1u << 30, offsetof(struct config, burst_bytes), false},
        {"gpu.exchange", "off, or 1 .. 4MiB, as a number of bytes or with K, M", config_key_size_or_word, 1, 4u << 20,
         offsetof(struct config, exchange_bytes), false},
        {"gpu.staging", "default, or 16MiB .. 64GiB, as a number of bytes or with K, M, G", config_key_size_or_word,
         16u << 20, UINT64_C(64) << 30, offsetof(struct config, staging_bytes), false},
        {"executor.workers", "0 .. 64", config_key_u32, 0, 64, offsetof(struct config, workers), false},
        {"executor.stall_ms", "1 .. 3600000", config_key_u32, 1, 3600000, offsetof(struct config, stall_ms), false},
        {"session.ring_depth", "a power of two in 4 .. 4096", config_key_depth, RING_DEPTH_MIN, RING_DEPTH_MAX,
         offsetof(struct config, ring_depth), false},
        {"plans.constants", "an absolute path of a file of railmux-sim fit, or nothing", config_key_constants, 0, 0,
         offsetof(struct config, constants_file), true},
        {"plans.rail_phase", "auto, direct, scatter, doubling, ring, tree, double_tree", config_key_rail_phase, 0, 0,
         offsetof(struct config, rail_phase), false},
        {"peer.listen", "ADDR:PORT or [ADDR]:PORT, or nothing", config_key_listen, 0, 0,
         offsetof(struct config, listen), true},
        {"peer.advertise", ADVERTISE_ALLOWED, config_key_advertise, 0, 0, offsetof(struct config, advertise), true},
        {"peer.cluster", "1 to 31 letters, digits, '.', '_' and '-'", config_key_cluster, 0, 0,
         offsetof(struct config, cluster), false},
        {"peer.ca", CREDENTIAL_ALLOWED, config_key_credential, 0, 0, offsetof(struct config, peer_ca), true},
        {"peer.certificate", CREDENTIAL_ALLOWED, config_key_credential, 0, 0, offsetof(struct config, peer_certificate),
         true},
        {"peer.key", CREDENTIAL_ALLOWED, config_key_credential, 0, 0, offsetof(struct config, peer_key), true},
        {"peer.plain", "yes, no", config_key_yes, 0, 0, offsetof(struct config, peer_plain), false},
        {"peer.heartbeat_ms", "10 .. 60000", config_key_u32, 10, 60000, offsetof(struct config, peer_heartbeat_ms),
         false},
        {"peer.lost_ms", "50 .. 600000", config_key_u32, 50, 600000, offsetof(struct config, peer_lost_ms), false},
        {"peer.rails",
         "NAME=ADDRESS[,port=N][,device=IF][,rate=BYTES][,window=BYTES][,dscp=N[/N/N]][,kind=tcp|verbs], blanks "
         "between several",
         config_key_rails, 0, 0, offsetof(struct config, rails), true},
        {"peer.stripe", "off, or 4KiB .. 1GiB, as a number of bytes or with K, M, G", config_key_size_or_word, 4096,
         1u << 30, offsetof(struct config, stripe_bytes), false},
        {"tenants.by_uid",
         "NAME=UID[-UID][,weight=N][,class=latency|normal|bulk][,rails=RAIL[/RAIL ...]], blanks between several",
         config_key_tenants, 0, 0, offsetof(struct config, tenants), true},
        {"limits.sessions", "1 .. 100000", config_key_u64, 1, 100000, LIMIT(CHARGE_SESSIONS), false},
        {"limits.comms", "1 .. 1000000", config_key_u64, 1, 1000000, LIMIT(CHARGE_COMMS), false},
        {"limits.buffers", "1 .. 1000000", config_key_u64, 1, 1000000, LIMIT(CHARGE_BUFFERS), false},
        {"limits.bytes", "1MiB .. 1PiB, as a number of bytes or with K, M, G, T", config_key_size, 1u << 20,
         SIZE_MAX_ALLOWED, LIMIT(CHARGE_BYTES), false},
        {"limits.rings", "1 .. 100000", config_key_u64, 1, 100000, LIMIT(CHARGE_RINGS), false},
        {"limits.fds", "16 .. 5000", config_key_u64, 16, 5000, LIMIT(CHARGE_FDS), false},
        {NULL, NULL, NULL, 0, 0, 0, false},
};

const struct config_key *config_key_find(const char *path) {
        for (const struct config_key *key = config_keys; key->path; key++)
                if (strcmp(key->path, path) == 0)
                        return key;
        return NULL;
}

const char *config_key_text(const struct config_key *key, const struct config_texts *t) {
        const struct {
                const char *path, *text;
        } table[] = {
                {"version", t->version},
                {"log.level", t->log ? t->log->level : NULL},
                {"client.socket", t->client ? t->client->socket : NULL},
                {"client.mode", t->client ? t->client->mode : NULL},
                {"control.socket", t->control ? t->control->socket : NULL},
                {"control.mode", t->control ? t->control->mode : NULL},
                {"gpu.backend", t->gpu ? t->gpu->backend : NULL},
                {"gpu.host_gpus", t->gpu ? t->gpu->host_gpus : NULL},
                {"gpu.hip_gpus", t->gpu ? t->gpu->hip_gpus : NULL},
                {"gpu.policy", t->gpu ? t->gpu->policy : NULL},
                {"gpu.blocks", t->gpu ? t->gpu->blocks : NULL},
                {"gpu.reach", t->gpu ? t->gpu->reach : NULL},
                {"gpu.burst", t->gpu ? t->gpu->burst : NULL},
                {"gpu.exchange", t->gpu ? t->gpu->exchange : NULL},
                {"gpu.staging", t->gpu ? t->gpu->staging : NULL},
                {"executor.workers", t->executor ? t->executor->workers : NULL},
                {"executor.stall_ms", t->executor ? t->executor->stall_ms : NULL},
                {"session.ring_depth", t->session ? t->session->ring_depth : NULL},
                {"plans.constants", t->plans ? t->plans->constants : NULL},
                {"plans.rail_phase", t->plans ? t->plans->rail_phase : NULL},
                {"peer.listen", t->peer ? t->peer->listen : NULL},
                {"peer.advertise", t->peer ? t->peer->advertise : NULL},
                {"peer.cluster", t->peer ? t->peer->cluster : NULL},
                {"peer.ca", t->peer ? t->peer->ca : NULL},
                {"peer.certificate", t->peer ? t->peer->certificate : NULL},
                {"peer.key", t->peer ? t->peer->key : NULL},
                {"peer.plain", t->peer ? t->peer->plain : NULL},
                {"peer.heartbeat_ms", t->peer ? t->peer->heartbeat_ms : NULL},
                {"peer.lost_ms", t->peer ? t->peer->lost_ms : NULL},
                {"peer.rails", t->peer ? t->peer->rails : NULL},
                {"peer.stripe", t->peer ? t->peer->stripe : NULL},
                {"tenants.by_uid", t->tenants ? t->tenants->by_uid : NULL},
                {"limits.sessions", t->limits ? t->limits->sessions : NULL},
                {"limits.comms", t->limits ? t->limits->comms : NULL},
                {"limits.buffers", t->limits ? t->limits->buffers : NULL},
                {"limits.bytes", t->limits ? t->limits->bytes : NULL},
                {"limits.rings", t->limits ? t->limits->rings : NULL},
                {"limits.fds", t->limits ? t->limits->fds : NULL},
        };

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                if (strcmp(table[i].path, key->path) == 0)
                        return table[i].text;
        return NULL;
}

void config_key_list(const char *section, char *out, size_t out_size) {
        size_t section_length = strlen(section), position = 0, last_length = 0;
        const char *last = "";

        out[0] = '\0';
        for (const struct config_key *key = config_keys; key->path; key++) {
                const char *name = key->path;
                size_t length;
                int n;

                if (section_length) {
                        if (strncmp(name, section, section_length) != 0 || name[section_length] != '.')
                                continue;
                        name += section_length + 1;
                }
                length = strcspn(name, ".");
                if (length == last_length && strncmp(name, last, length) == 0)
                        continue; /* one more key of the same section */
                last = name;
                last_length = length;
                n = snprintf(out + position, out_size - position, "%s%.*s", position ? ", " : "", (int)length, name);
                if (n < 0 || (size_t)n >= out_size - position)
                        return;
                position += (size_t)n;
        }
}
