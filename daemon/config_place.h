/* SPDX-License-Identifier: MIT */
#pragma once
/* Where keys and values stand in a YAML text. */
#include <stddef.h>

#define CONFIG_PATH_MAX   128u
#define CONFIG_PLACES_MAX 256u

enum {
        _CONFIG_PLACE_E_SUCCESS,
        CONFIG_PLACE_E_REFUSED, /* the text is no single document of plain mappings; line, column and text say why */
};

struct config_mark {
        size_t line, column; /* from 1 */
};

struct config_place {
        char path[CONFIG_PATH_MAX]; /* "limits.sessions" */
        struct config_mark key, value;
};

struct config_places {
        struct config_place places[CONFIG_PLACES_MAX];
        size_t n_places;
        struct config_mark refused; /* on CONFIG_PLACE_E_REFUSED */
        char text[160];
};

/* 0, CONFIG_PLACE_E_REFUSED, -ENOMEM. */
int config_places_read(struct config_places *places, const char *text, size_t length);
/* NULL if there is no such key. */
const struct config_place *config_places_find(const struct config_places *places, const char *path);
