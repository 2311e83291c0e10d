/* SPDX-License-Identifier: MIT */
#include "plan/constants.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CONSTANTS_NOT_GIVEN (-1.0) /* all that are given are >= 0 */

static const struct {
        const char *name;
        size_t offset;
} members[CONSTANTS_N] = {
        {"request_ns", offsetof(struct plan_constants, request_ns)},
        {"hop_ns", offsetof(struct plan_constants, hop_ns)},
        {"ns_per_phase", offsetof(struct plan_constants, ns_per_phase)},
        {"ns_per_chunk", offsetof(struct plan_constants, ns_per_chunk)},
        {"ns_per_signal", offsetof(struct plan_constants, ns_per_signal)},
        {"ns_per_byte_copy", offsetof(struct plan_constants, ns_per_byte_copy)},
        {"ns_per_byte_reduce", offsetof(struct plan_constants, ns_per_byte_reduce)},
        {"ns_per_byte_fold", offsetof(struct plan_constants, ns_per_byte_fold)},
        {"ns_per_turn", offsetof(struct plan_constants, ns_per_turn)},
};

const char *constants_name(uint32_t i) {
        return members[i].name;
}

double *constants_at(struct plan_constants *constants, uint32_t i) {
        return (double *)((char *)constants + members[i].offset);
}

static int take_all(const json_t *object, struct plan_constants *constants, char *ret_error, size_t error_size) {
        struct plan_constants read = *constants;
        size_t n_known = 0;

        for (uint32_t i = 0; i < CONSTANTS_N; i++) {
                const json_t *value = json_object_get(object, members[i].name);

                if (!value)
                        continue;
                if (!json_is_number(value) || !(json_number_value(value) >= 0 && json_number_value(value) <= 1e12)) {
                        snprintf(ret_error, error_size, "%s is no number from 0 to 1e12", members[i].name);
                        return -EINVAL;
                }
                *constants_at(&read, i) = json_number_value(value);
                n_known++;
        }
        if (n_known == 0 || n_known != json_object_size(object)) {
                snprintf(ret_error, error_size,
                         n_known ? "there is a constant of a name that is not known" : "there are no constants in it");
                return -EINVAL;
        }
        *constants = read;
        return 0;
}

static int take_root(json_t *root, const json_error_t *error, struct plan_constants *constants, char *ret_error,
                     size_t error_size) {
        int r = -EINVAL;

        if (!root && json_error_code(error) == json_error_out_of_memory)
                r = -ENOMEM;
        if (!root)
                snprintf(ret_error, error_size, "%s (line %d)", error->text, error->line);
        else if (json_integer_value(json_object_get(root, "version")) != CONSTANTS_VERSION)
                snprintf(ret_error, error_size, "its version is not %d", CONSTANTS_VERSION);
        else
                r = take_all(json_object_get(root, "constants"), constants, ret_error, error_size);
        json_decref(root);
        return r;
}

int constants_load(const char *path, struct plan_constants *constants, char *ret_error, size_t error_size) {
        FILE *file = fopen(path, "re");
        json_error_t error;
        json_t *root;

        if (!file) {
                snprintf(ret_error, error_size, "%s", strerror(errno));
                return -EINVAL;
        }
        root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
        fclose(file);
        return take_root(root, &error, constants, ret_error, error_size);
}

int constants_parse(const char *text, size_t length, struct plan_constants *constants, char *ret_error,
                    size_t error_size) {
        json_error_t error;
        json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);

        return take_root(root, &error, constants, ret_error, error_size);
}

void constants_clear(struct plan_constants *given) {
        *given = (struct plan_constants){0};
        for (uint32_t i = 0; i < CONSTANTS_N; i++)
                *constants_at(given, i) = CONSTANTS_NOT_GIVEN;
}

void constants_merge(struct plan_constants *constants, const struct plan_constants *given) {
        struct plan_constants copy = *given;

        for (uint32_t i = 0; i < CONSTANTS_N; i++) {
                if (*constants_at(&copy, i) >= 0)
                        *constants_at(constants, i) = *constants_at(&copy, i);
        }
}

json_t *constants_json(const struct plan_constants *constants) {
        struct plan_constants copy = *constants;
        json_t *object = json_object();

        for (uint32_t i = 0; i < CONSTANTS_N; i++)
                json_object_set_new(object, members[i].name, json_real(*constants_at(&copy, i)));
        return json_pack("{s:i, s:o}", "version", CONSTANTS_VERSION, "constants", object);
}
