/* SPDX-License-Identifier: MIT */
/*
 * Where the configuration comes from: defaults, then the main file, then conf.d/ *.yaml beside it in the order of their
 * names. A later value replaces an earlier one key by key. Everything is read into a copy first, so a refused file
 * changes nothing.
 *
 * The default limits keep one node's daemon within what its host has: bytes are a tenant's share of three quarters of
 * the memory, and fds of a number so far below FileDescriptorStoreMax= that the names of all stored fds fit the one
 * environment variable (128 KiB) by which a service manager hands them to a successor. Both are found where the tenants
 * are (tenants.c). Whatever is configured, all tenants together get no more fds than that.
 */
#include "daemon/config.h"

#include "daemon/config_file.h"
#include "daemon/config_keys.h"
#include "plan/constants.h"
#include "ring/ring.h"
#include "util/cleanup.h"
#include "util/log.h"
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_DEFAULT_PATH "/etc/railmux/railmuxd.yaml"

/* Two H200s, all_reduce (docs/benchmarks.md). With 17 blocks staging is faster up to 512 KB (11 us, in place 15), and
 * the same blocks move what goes in place faster than a burst up to 16 MB (73 us, 78). With two blocks 64 KB take 16 us
 * through staging and 21 in place; a burst takes 36 us from 256 KB to 1 MB, where they would take 93 and more. */
#define REACH_LATENCY (UINT64_C(1) << 20)
#define REACH_FEW     (UINT64_C(128) << 10)
#define BURST_LATENCY (UINT64_C(32) << 20)
#define BURST_FEW     (UINT64_C(512) << 10)

/* All that is anything: two H100s, all_reduce, in graphs (docs/benchmarks.md): 8 bytes to 1 KB take 3.0 us, by resident
 * kernels 4.2, and 64 KB 3.5 and 16. */
#define EXCHANGE_FROM UINT64_C(1)

static uint64_t config_by_policy(const struct config *config, uint64_t bytes, uint64_t latency, uint64_t few) {
        return bytes != CONFIG_BY_POLICY ? bytes : strcmp(config->policy, "latency") == 0 ? latency : few;
}

uint64_t config_reach_bytes(const struct config *config) {
        return config_by_policy(config, config->reach_bytes, REACH_LATENCY, REACH_FEW);
}

uint64_t config_burst_bytes(const struct config *config) {
        return config_by_policy(config, config->burst_bytes, BURST_LATENCY, BURST_FEW);
}

void config_init(struct config *config) {
        *config = (struct config){
                .log_level = LOG_LEVEL_INFO,
                .client_socket = strdup("/run/railmux/client.sock"),
                .control_socket = strdup("/run/railmux/control.sock"),
                .client_mode = 0660,
                .control_mode = 0660,
                .backend = strdup("auto"),
                .gpus = 8,
                .policy = strdup("adaptive"),
                .reach_bytes = CONFIG_BY_POLICY,
                .burst_bytes = CONFIG_BY_POLICY,
                .exchange_bytes = EXCHANGE_FROM,
                .workers = 0,
                .stall_ms = 500,
                .ring_depth = RING_DEPTH_DEFAULT,
                .listen = strdup(""),
                .advertise = strdup(""),
                .cluster = strdup("railmux"),
                .peer_ca = strdup(""),
                .peer_certificate = strdup(""),
                .peer_key = strdup(""),
                .rails = strdup(""),
                .tenants = strdup(""),
                .stripe_bytes = 65536,
                .peer_heartbeat_ms = 200,
                .peer_lost_ms = 800,
                .limit =
                        {
                                [CHARGE_SESSIONS] = 1024,
                                [CHARGE_COMMS] = 16384,
                                [CHARGE_BUFFERS] = 16384,
                                [CHARGE_RINGS] = 4096,
                        },
        };
        constants_clear(&config->constants);
}

/* The texts that are always there. */
#define CONFIG_TEXTS 12u
static char **config_text(struct config *config, size_t i) {
        char **const texts[CONFIG_TEXTS] = {
                &config->client_socket,    &config->control_socket, &config->backend, &config->policy,
                &config->listen,           &config->advertise,      &config->cluster, &config->peer_ca,
                &config->peer_certificate, &config->peer_key,       &config->rails,   &config->tenants,
        };

        return texts[i];
}

void config_deinit(struct config *config) {
        for (size_t i = 0; i < CONFIG_TEXTS; i++)
                free(*config_text(config, i));
        free(config->constants_file);
        free(config->file);
        *config = (struct config){0};
}

static int config_copy(struct config *config, struct config *ret_copy) {
        struct config copy = *config;
        bool whole = true;

        for (size_t i = 0; i < CONFIG_TEXTS; i++) {
                char *text = *config_text(config, i);

                *config_text(&copy, i) = text ? strdup(text) : NULL;
                whole = whole && *config_text(&copy, i);
        }
        copy.constants_file = config->constants_file ? strdup(config->constants_file) : NULL;
        copy.file = NULL; /* of an earlier load */
        if (!whole || (config->constants_file && !copy.constants_file)) {
                config_deinit(&copy);
                return -ENOMEM; /* also for defaults that could not be made */
        }
        *ret_copy = copy;
        return 0;
}

static int config_is_yaml(const struct dirent *entry) {
        size_t length = strlen(entry->d_name);

        return entry->d_name[0] != '.' && length > 5 && strcmp(entry->d_name + length - 5, ".yaml") == 0;
}

/* Byte order, whatever the locale. */
static int config_by_name(const struct dirent **a, const struct dirent **b) {
        return strcmp((*a)->d_name, (*b)->d_name);
}

static int config_apply_directory(struct config *config, const char *directory, char error[CONFIG_ERROR_MAX]) {
        struct dirent **entries = NULL;
        int n, r = 0;

        n = scandir(directory, &entries, config_is_yaml, config_by_name);
        if (n < 0) {
                if (errno == ENOENT || errno == ENOTDIR)
                        return 0;
                r = -errno;
                snprintf(error, CONFIG_ERROR_MAX, "%.256s: cannot be read: %s", directory, strerror(-r));
                return r;
        }
        for (int i = 0; i < n; i++) {
                _cleanup_free_ char *path = NULL;

                if (!r && asprintf(&path, "%s/%s", directory, entries[i]->d_name) < 0) {
                        path = NULL;
                        r = -ENOMEM;
                        snprintf(error, CONFIG_ERROR_MAX, "out of memory");
                }
                if (!r)
                        r = config_file_apply(config, path, error);
                free(entries[i]);
        }
        free(entries);
        if (!r && n > 0 && !config->file) {
                config->file = strdup(directory);
                if (!config->file) {
                        r = -ENOMEM;
                        snprintf(error, CONFIG_ERROR_MAX, "out of memory");
                }
        }
        return r;
}

int config_load(struct config *config, const char *path, char error[CONFIG_ERROR_MAX]) {
        const char *main_path = path ? path : CONFIG_DEFAULT_PATH, *slash;
        _cleanup_free_ char *directory = NULL;
        struct config loaded;
        int r;

        r = config_copy(config, &loaded);
        if (r < 0) {
                snprintf(error, CONFIG_ERROR_MAX, "out of memory");
                return r;
        }
        r = config_file_apply(&loaded, main_path, error);
        if (!r) {
                loaded.file = strdup(main_path);
                if (!loaded.file)
                        r = -ENOMEM;
        } else if (r == -ENOENT && !path) {
                r = 0; /* nobody asked for this file */
        }
        if (!r) {
                slash = strrchr(main_path, '/');
                if (asprintf(&directory, "%.*sconf.d", slash ? (int)(slash - main_path + 1) : 0, main_path) < 0) {
                        directory = NULL;
                        r = -ENOMEM;
                }
        }
        if (r == -ENOMEM)
                snprintf(error, CONFIG_ERROR_MAX, "out of memory");
        if (!r)
                r = config_apply_directory(&loaded, directory, error);
        if (!r)
                r = config_file_check(&loaded, error);
        if (r < 0) {
                config_deinit(&loaded);
                return r;
        }
        config_deinit(config);
        *config = loaded;
        return 0;
}

/* Keys without a * in railmuxd.yaml(5), but for the version of the format. */
static const struct {
        enum { START_TEXT, START_U32, START_U64 } kind;
        const char *path;
} config_start_keys[] = {
        {START_TEXT, "client.socket"}, {START_U32, "client.mode"},       {START_TEXT, "control.socket"},
        {START_U32, "control.mode"},   {START_TEXT, "gpu.backend"},      {START_U32, "gpu.host_gpus"},
        {START_U32, "gpu.hip_gpus"},   {START_TEXT, "gpu.policy"},       {START_U32, "gpu.blocks"},
        {START_U64, "gpu.staging"},    {START_U32, "executor.workers"},  {START_U32, "session.ring_depth"},
        {START_TEXT, "peer.listen"},   {START_TEXT, "peer.advertise"},   {START_TEXT, "peer.cluster"},
        {START_U32, "peer.plain"},     {START_U32, "peer.heartbeat_ms"}, {START_U32, "peer.lost_ms"},
        {START_TEXT, "peer.rails"},    {START_U64, "peer.stripe"},       {START_TEXT, "tenants.by_uid"},
};

static bool config_start_key_differs(size_t i, const struct config *a, const struct config *b) {
        const size_t offset = config_key_find(config_start_keys[i].path)->offset;
        const void *x = (const char *)a + offset, *y = (const char *)b + offset;

        if (config_start_keys[i].kind == START_TEXT)
                return strcmp(*(char *const *)x, *(char *const *)y) != 0;
        return memcmp(x, y, config_start_keys[i].kind == START_U32 ? sizeof(uint32_t) : sizeof(uint64_t)) != 0;
}

bool config_waits(const struct config *config, const struct config *next, char text[CONFIG_ERROR_MAX]) {
        size_t length = 0;

        for (size_t i = 0; i < sizeof(config_start_keys) / sizeof(config_start_keys[0]); i++)
                if (config_start_key_differs(i, config, next) && length < CONFIG_ERROR_MAX)
                        length += (size_t)snprintf(
                                text + length, CONFIG_ERROR_MAX - length, "%s%s",
                                length ? ", " : "changed, and in force from the next start of railmuxd on: ",
                                config_start_keys[i].path);
        return length > 0;
}
