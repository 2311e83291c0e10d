/* SPDX-License-Identifier: MIT */
/*
 * One file: its places are noted (config_place.c), libcyaml turns it into texts and refuses what the schema does not
 * know, and the table of keys (config_keys.c) turns the texts into values. Every refusal is one line:
 *
 *   FILE:LINE:COLUMN: KEY: what is wrong; allowed: what would be right
 *
 * libcyaml says what it refused only through its log: the innermost line of its backtrace names the key. We take the
 * name from there and the place from our own notes.
 */
#include "daemon/config_file.h"

#include "daemon/config_keys.h"
#include "daemon/config_place.h"
#include "util/cleanup.h"
#include <cyaml/cyaml.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT(structure, member)                                                                                        \
        CYAML_FIELD_STRING_PTR(#member, CYAML_FLAG_POINTER_NULL | CYAML_FLAG_OPTIONAL, struct structure, member, 0,    \
                               CYAML_UNLIMITED)
#define SECTION(member, fields)                                                                                        \
        CYAML_FIELD_MAPPING_PTR(#member, CYAML_FLAG_POINTER_NULL_STR | CYAML_FLAG_OPTIONAL, struct config_texts,       \
                                member, fields)

static const cyaml_schema_field_t log_fields_schema[] = {TEXT(config_texts_log, level), CYAML_FIELD_END};
static const cyaml_schema_field_t socket_fields_schema[] = {
        TEXT(config_texts_socket, socket),
        TEXT(config_texts_socket, mode),
        CYAML_FIELD_END,
};
static const cyaml_schema_field_t gpu_fields_schema[] = {
        TEXT(config_texts_gpu, backend),  TEXT(config_texts_gpu, host_gpus),
        TEXT(config_texts_gpu, hip_gpus), TEXT(config_texts_gpu, policy),
        TEXT(config_texts_gpu, blocks),   TEXT(config_texts_gpu, reach),
        TEXT(config_texts_gpu, staging),  TEXT(config_texts_gpu, burst),
        TEXT(config_texts_gpu, exchange), CYAML_FIELD_END,
};
static const cyaml_schema_field_t executor_fields_schema[] = {
        TEXT(config_texts_executor, workers),
        TEXT(config_texts_executor, stall_ms),
        CYAML_FIELD_END,
};
static const cyaml_schema_field_t session_fields_schema[] = {TEXT(config_texts_session, ring_depth), CYAML_FIELD_END};
static const cyaml_schema_field_t plans_fields_schema[] = {
        TEXT(config_texts_plans, constants),
        TEXT(config_texts_plans, rail_phase),
        CYAML_FIELD_END,
};
static const cyaml_schema_field_t peer_fields_schema[] = {
        TEXT(config_texts_peer, listen), TEXT(config_texts_peer, advertise),    TEXT(config_texts_peer, cluster),
        TEXT(config_texts_peer, ca),     TEXT(config_texts_peer, certificate),  TEXT(config_texts_peer, key),
        TEXT(config_texts_peer, plain),  TEXT(config_texts_peer, heartbeat_ms), TEXT(config_texts_peer, lost_ms),
        TEXT(config_texts_peer, rails),  TEXT(config_texts_peer, stripe),       CYAML_FIELD_END,
};
static const cyaml_schema_field_t tenants_fields_schema[] = {TEXT(config_texts_tenants, by_uid), CYAML_FIELD_END};
static const cyaml_schema_field_t limits_fields_schema[] = {
        TEXT(config_texts_limits, sessions),
        TEXT(config_texts_limits, comms),
        TEXT(config_texts_limits, buffers),
        TEXT(config_texts_limits, bytes),
        TEXT(config_texts_limits, rings),
        TEXT(config_texts_limits, fds),
        CYAML_FIELD_END,
};
static const cyaml_schema_field_t top_fields_schema[] = {
        TEXT(config_texts, version),
        SECTION(log, log_fields_schema),
        SECTION(client, socket_fields_schema),
        SECTION(control, socket_fields_schema),
        SECTION(gpu, gpu_fields_schema),
        SECTION(executor, executor_fields_schema),
        SECTION(session, session_fields_schema),
        SECTION(plans, plans_fields_schema),
        SECTION(peer, peer_fields_schema),
        SECTION(tenants, tenants_fields_schema),
        SECTION(limits, limits_fields_schema),
        CYAML_FIELD_END,
};
static const cyaml_schema_value_t top_schema = {
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct config_texts, top_fields_schema)};

/* What libcyaml's log says of a refusal. */
struct refusal {
        char message[128]; /* the first line */
        char path[CONFIG_PATH_MAX];
        struct config_mark mark; /* as libcyaml has it */
};

static void refusal_log(cyaml_log_t level, void *data, const char *format, va_list args)
        __attribute__((format(printf, 3, 0)));
static void refusal_log(cyaml_log_t level, void *data, const char *format, va_list args) {
        struct refusal *refusal = data;
        char line[256], field[CONFIG_PATH_MAX], path[2 * CONFIG_PATH_MAX + 2];
        size_t row, column;

        if (level < CYAML_LOG_ERROR)
                return;
        vsnprintf(line, sizeof(line), format, args);
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, " in mapping field '%127[^']' (line: %zu, column: %zu)", field, &row, &column) == 3) {
                /* From the inside out. */
                if ((size_t)snprintf(path, sizeof(path), "%s%s%s", field, refusal->path[0] ? "." : "", refusal->path) <
                    sizeof(refusal->path))
                        memcpy(refusal->path, path, sizeof(refusal->path));
        } else if (sscanf(line, " in mapping (line: %zu, column: %zu)", &row, &column) != 2) {
                if (!refusal->message[0])
                        snprintf(refusal->message, sizeof(refusal->message), "%.120s", line);
                return;
        }
        if (!refusal->mark.line)
                refusal->mark = (struct config_mark){.line = row, .column = column};
}

/* An error at a place; -EINVAL. */
static int config_refuse(const char *file, struct config_mark mark, char error[CONFIG_ERROR_MAX], const char *format,
                         ...) __attribute__((format(printf, 4, 5)));
static int config_refuse(const char *file, struct config_mark mark, char error[CONFIG_ERROR_MAX], const char *format,
                         ...) {
        va_list args;
        int n;

        n = snprintf(error, CONFIG_ERROR_MAX, "%.256s:%zu:%zu: ", file, mark.line ? mark.line : 1,
                     mark.column ? mark.column : 1);
        va_start(args, format);
        vsnprintf(error + n, CONFIG_ERROR_MAX - (size_t)n, format, args);
        va_end(args);
        return -EINVAL;
}

static int config_refuse_cyaml(const char *file, cyaml_err_t err, const struct refusal *refusal,
                               const struct config_places *places, char error[CONFIG_ERROR_MAX]) {
        const char *message = refusal->message, *unknown;
        const struct config_place *place;
        const struct config_key *key;
        char path[2 * CONFIG_PATH_MAX], allowed[CONFIG_WHY_MAX];

        if (strncmp(message, "Load: ", 6) == 0)
                message += 6;
        unknown = strstr(message, "Unexpected key: ");
        if (err == CYAML_ERR_INVALID_KEY && unknown) {
                unknown += strlen("Unexpected key: ");
                snprintf(path, sizeof(path), "%s%s%s", refusal->path, refusal->path[0] ? "." : "", unknown);
                place = config_places_find(places, path);
                config_key_list(refusal->path, allowed, sizeof(allowed));
                return config_refuse(file, place ? place->key : refusal->mark, error,
                                     "%.100s: unknown key; allowed: %s", path, allowed);
        }
        place = config_places_find(places, refusal->path);
        key = config_key_find(refusal->path);
        if (key)
                return config_refuse(file, place ? place->value : refusal->mark, error,
                                     "%s: a section stands where a single value should; allowed: %s", refusal->path,
                                     key->allowed);
        config_key_list(refusal->path, allowed, sizeof(allowed));
        if (refusal->path[0] && err == CYAML_ERR_INVALID_VALUE)
                return config_refuse(file, place ? place->value : refusal->mark, error,
                                     "%s: a single value stands where a section should; allowed: the keys %s",
                                     refusal->path, allowed);
        return config_refuse(file, refusal->mark, error, "%s; allowed: the keys %s", message, allowed);
}

static void config_note_place(struct config *config, const char *file, const char *key, struct config_mark mark) {
        static const char *const credentials[] = {"peer.ca", "peer.certificate", "peer.key"};
        static const char *const times[] = {"peer.heartbeat_ms", "peer.lost_ms"};
        static const char *const addresses[] = {"peer.listen", "peer.advertise"};
        char *at = NULL;

        for (size_t i = 0; i < sizeof(credentials) / sizeof(credentials[0]); i++)
                if (strcmp(key, credentials[i]) == 0)
                        at = config->credentials_at;
        for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
                if (strcmp(key, times[i]) == 0)
                        at = config->times_at;
        for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
                if (strcmp(key, addresses[i]) == 0)
                        at = config->address_at;
        if (at)
                snprintf(at, CONFIG_AT_MAX, "%.256s:%zu:%zu: %s", file, mark.line, mark.column, key);
}

int config_file_check(const struct config *config, char error[CONFIG_ERROR_MAX]) {
        int given =
                (config->peer_ca[0] != '\0') + (config->peer_certificate[0] != '\0') + (config->peer_key[0] != '\0');

        if (given != 0 && given != 3) {
                snprintf(error, CONFIG_ERROR_MAX,
                         "%s: %d of peer.ca, peer.certificate and peer.key are given; allowed: all three, or none",
                         config->credentials_at, given);
                return -EINVAL;
        }
        if (config->peer_lost_ms < 2 * config->peer_heartbeat_ms) {
                snprintf(error, CONFIG_ERROR_MAX,
                         "%s: peer.heartbeat_ms is %" PRIu32 " and peer.lost_ms %" PRIu32
                         "; allowed: a peer.lost_ms of twice the other at least",
                         config->times_at, config->peer_heartbeat_ms, config->peer_lost_ms);
                return -EINVAL;
        }
        return 0;
}

static int config_apply_texts(struct config *config, const char *file, const struct config_texts *texts,
                              const struct config_places *places, char error[CONFIG_ERROR_MAX]) {
        for (const struct config_key *key = config_keys; key->path; key++) {
                const struct config_place *place = config_places_find(places, key->path);
                const char *value = config_key_text(key, texts);
                struct config_mark mark = place ? place->value : (struct config_mark){0};
                char why[CONFIG_WHY_MAX] = "";
                int r;

                if (!place)
                        continue;
                if ((!value || !*value) && !key->may_be_empty)
                        return config_refuse(file, mark, error, "%s: no value is given; allowed: %s", key->path,
                                             key->allowed);
                r = key->apply(key, config, value ? value : "", why);
                if (r == -ENOMEM)
                        snprintf(error, CONFIG_ERROR_MAX, "out of memory");
                else if (r < 0)
                        config_refuse(file, mark, error, "%s: %s; allowed: %s", key->path, why, key->allowed);
                if (r < 0)
                        return r;
                config_note_place(config, file, key->path, mark);
        }
        return 0;
}

int config_text_apply(struct config *config, const char *path, const char *text, size_t length,
                      char error[CONFIG_ERROR_MAX]) {
        _cleanup_free_ struct config_places *places = NULL;
        struct config_texts *texts = NULL;
        struct refusal refusal = {0};
        const cyaml_config_t cyaml = {
                .log_fn = refusal_log,
                .log_ctx = &refusal,
                .log_level = CYAML_LOG_ERROR,
                .mem_fn = cyaml_mem,
                .flags = CYAML_CFG_NO_ALIAS,
        };
        cyaml_err_t err;
        int r;

        places = calloc(1, sizeof(*places));
        r = places ? config_places_read(places, text, length) : -ENOMEM;
        if (r == CONFIG_PLACE_E_REFUSED)
                return config_refuse(path, places->refused, error, "%s", places->text);
        if (r < 0) {
                snprintf(error, CONFIG_ERROR_MAX, "out of memory");
                return r;
        }
        if (!places->n_places)
                return 0; /* comments only */

        err = cyaml_load_data((const uint8_t *)text, length, &cyaml, &top_schema, (cyaml_data_t **)&texts, NULL);
        if (err == CYAML_ERR_OOM) {
                snprintf(error, CONFIG_ERROR_MAX, "out of memory");
                return -ENOMEM;
        }
        if (err != CYAML_OK)
                return config_refuse_cyaml(path, err, &refusal, places, error);
        r = texts ? config_apply_texts(config, path, texts, places, error) : 0;
        cyaml_free(&cyaml, &top_schema, texts, 0);
        return r;
}

int config_file_read(const char *path, char **ret_text, size_t *ret_length) {
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int fd = -1;
        size_t length = 0;
        struct stat st;

        /* Non-blocking, so that somebody's fifo cannot stop a reload. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode))
                return -EISDIR;
        if (!S_ISREG(st.st_mode))
                return -EBADF;
        text = malloc(CONFIG_FILE_BYTES_MAX + 1);
        if (!text)
                return -ENOMEM;
        for (;;) {
                ssize_t n = read(fd, text + length, CONFIG_FILE_BYTES_MAX + 1 - length);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                length += (size_t)n;
                if (length > CONFIG_FILE_BYTES_MAX)
                        return -EFBIG;
        }
        *ret_text = text;
        *ret_length = length;
        text = NULL;
        return 0;
}

int config_file_apply(struct config *config, const char *path, char error[CONFIG_ERROR_MAX]) {
        _cleanup_free_ char *text = NULL;
        size_t length = 0;
        int r;

        r = config_file_read(path, &text, &length);
        if (r == -EFBIG)
                snprintf(error, CONFIG_ERROR_MAX, "%.256s: is too large; allowed: %u KiB", path,
                         CONFIG_FILE_BYTES_MAX >> 10);
        else if (r < 0)
                snprintf(error, CONFIG_ERROR_MAX, "%.256s: cannot be read: %s", path,
                         r == -EBADF ? "not a regular file" : strerror(-r));
        if (r < 0)
                return r;
        return config_text_apply(config, path, text, length, error);
}
