/* SPDX-License-Identifier: MIT */
#pragma once
/* Building documents without a check at each step: what gets NULL gives NULL. */
#include <jansson.h>
#include <stdint.h>

/* json_t integers are signed; what is larger becomes the largest. */
json_t *json_number(uint64_t value);
/* Names come from clients and need not be UTF-8, which JSON demands. */
json_t *json_text(const char *text);
/* Steals value; frees object and returns NULL if that fails, so calls can be chained. */
json_t *json_with(json_t *object, const char *key, json_t *value);
json_t *json_with_row(json_t *array, json_t *row);
