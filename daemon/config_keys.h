/* SPDX-License-Identifier: MIT */
#pragma once
/* The keys of the configuration: name, what is allowed, and where the value goes. */
#include "daemon/config.h"
#include <stdbool.h>
#include <stddef.h>

#define CONFIG_WHY_MAX 256u

/* What libcyaml makes of a file: texts as they stand there, NULL where nothing was given. */
struct config_texts {
        char *version;
        struct config_texts_log {
                char *level;
        } * log;
        struct config_texts_socket {
                char *socket, *mode;
        } * client, *control;
        struct config_texts_gpu {
                char *backend, *host_gpus, *hip_gpus, *policy, *blocks, *reach, *burst, *exchange, *staging;
        } * gpu;
        struct config_texts_executor {
                char *workers, *stall_ms;
        } * executor;
        struct config_texts_session {
                char *ring_depth;
        } * session;
        struct config_texts_plans {
                char *constants, *rail_phase;
        } * plans;
        struct config_texts_peer {
                char *listen, *advertise, *cluster, *ca, *certificate, *key, *plain, *heartbeat_ms, *lost_ms, *rails,
                        *stripe;
        } * peer;
        struct config_texts_tenants {
                char *by_uid;
        } * tenants;
        struct config_texts_limits {
                char *sessions, *comms, *buffers, *bytes, *rings, *fds;
        } * limits;
};

struct config_key {
        const char *path;    /* "limits.sessions" */
        const char *allowed; /* for messages */
        /* 0, -EINVAL and why ("'x' is no number"), -ENOMEM. */
        int (*apply)(const struct config_key *key, struct config *config, const char *value, char why[CONFIG_WHY_MAX]);
        uint64_t minimum, maximum; /* of numbers and sizes */
        size_t offset;             /* in struct config */
        bool may_be_empty;
};

extern const struct config_key config_keys[]; /* ends with path NULL */
/* What holds for paths of sockets wherever they are given. 0, or -EINVAL and why. */
#define CONFIG_SOCKET_ALLOWED "of at most 102 bytes, without blanks, quotes and \\$%#"
int config_key_check_socket(const char *value, char why[CONFIG_WHY_MAX]);
/* The text given for a key, NULL if none. */
const char *config_key_text(const struct config_key *key, const struct config_texts *texts);
/* NULL if unknown. */
const struct config_key *config_key_find(const char *path);
/* "sessions, comms, ..." of a section, or of the top level with "". Cut at the end of out. */
void config_key_list(const char *section, char *out, size_t out_size);
