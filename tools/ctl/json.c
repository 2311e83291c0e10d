/* SPDX-License-Identifier: MIT */
#include "tools/ctl/json.h"

#include "util/cleanup.h"
#include <stdlib.h>
#include <string.h>

json_t *json_number(uint64_t value) {
        return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

json_t *json_text(const char *text) {
        _cleanup_free_ char *copy = NULL;
        json_t *value = json_string(text);

        if (value)
                return value;
        copy = strdup(text);
        for (char *p = copy; p && *p; p++)
                if ((unsigned char)*p >= 0x80)
                        *p = '?';
        return copy ? json_string(copy) : NULL;
}

json_t *json_with(json_t *object, const char *key, json_t *value) {
        if (object && value && json_object_set_new(object, key, value) == 0)
                return object;
        if (!object)
                json_decref(value);
        json_decref(object);
        return NULL;
}

json_t *json_with_row(json_t *array, json_t *row) {
        if (array && row && json_array_append_new(array, row) == 0)
                return array;
        if (!array)
                json_decref(row);
        json_decref(array);
        return NULL;
}
