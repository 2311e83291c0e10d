/* SPDX-License-Identifier: MIT */
#include "util/options_text.h"

#include <stdarg.h>
#include <stdio.h>

#include "util/parse.h"

int options_refuse(char error[OPTIONS_ERROR_MAX], const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(error, OPTIONS_ERROR_MAX, format, arguments);
        va_end(arguments);
        return OPTIONS_E_USAGE;
}

int options_take_u32(const char *name, const char *text, uint32_t min, uint32_t max, uint32_t *ret_value,
                     char error[OPTIONS_ERROR_MAX]) {
        uint32_t value;

        if (parse_u32(text, &value) != 0 || value < min || value > max)
                return options_refuse(error, "%s: '%.40s' is not allowed; allowed: %u to %u", name, text, min, max);
        *ret_value = value;
        return OPTIONS_OK;
}

int options_take_size(const char *name, const char *text, uint32_t max_gib, uint64_t *ret_value,
                      char error[OPTIONS_ERROR_MAX]) {
        uint64_t value;

        if (parse_size(text, &value) != 0 || value > (uint64_t)max_gib << 30)
                return options_refuse(error, "%s: '%.40s' is no size up to %uG; examples: 8, 64K, 16M", name, text,
                                      max_gib);
        *ret_value = value;
        return OPTIONS_OK;
}
