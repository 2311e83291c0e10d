/* SPDX-License-Identifier: MIT */
/* Numbers are plain decimal: no sign, no blanks, no base prefix, nothing after them. strtoul() allows all of these. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "util/parse.h"

/* The digits at text; *ret_rest is the first character after them. */
static int parse_digits(const char *text, uint64_t *ret_value, const char **ret_rest) {
        uint64_t value = 0;
        const char *p = text;

        if (!text || *p < '0' || *p > '9')
                return -EINVAL;
        for (; *p >= '0' && *p <= '9'; ++p)
                if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
                    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
                        return -ERANGE;
        *ret_value = value;
        *ret_rest = p;
        return 0;
}

int parse_u64(const char *text, uint64_t *ret_value) {
        const char *rest;
        uint64_t value;
        int r;

        r = parse_digits(text, &value, &rest);
        if (r < 0)
                return r;
        if (*rest)
                return -EINVAL;
        *ret_value = value;
        return 0;
}

int parse_u32(const char *text, uint32_t *ret_value) {
        uint64_t value;
        int r;

        r = parse_u64(text, &value);
        if (r < 0)
                return r;
        if (value > UINT32_MAX)
                return -ERANGE;
        *ret_value = (uint32_t)value;
        return 0;
}

int parse_size(const char *text, uint64_t *ret_bytes) {
        static const char units[] = "KMGTPE";
        const char *rest, *unit;
        unsigned int shift = 0;
        uint64_t value;
        int r;

        r = parse_digits(text, &value, &rest);
        if (r < 0)
                return r;
        if (*rest) {
                /* Case does not matter: "64k" is what people type. */
                unit = strchr(units, *rest & ~0x20);
                if (unit && *unit) {
                        shift = 10u * (unsigned int)(unit - units + 1);
                        ++rest;
                        if (!strcasecmp(rest, "ib"))
                                rest += 2;
                }
                if (!strcasecmp(rest, "b"))
                        ++rest;
                if (*rest)
                        return -EINVAL;
        }
        if (shift && value > UINT64_MAX >> shift)
                return -ERANGE;
        *ret_bytes = value << shift;
        return 0;
}

const char *format_size(uint64_t bytes, char *out, unsigned long out_size) {
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        unsigned int i = 0, tenth;
        uint64_t whole = bytes, rest = 0;

        while (whole >= 1024 && i < 6) {
                rest = whole % 1024;
                whole /= 1024;
                ++i;
        }
        tenth = (unsigned int)((rest * 10 + 512) / 1024);
        if (tenth == 10) {
                ++whole;
                tenth = 0;
                if (whole == 1024 && i < 6) {
                        whole = 1;
                        ++i;
                }
        }
        if (tenth)
                snprintf(out, out_size, "%" PRIu64 ".%u %s", whole, tenth, units[i]);
        else
                snprintf(out, out_size, "%" PRIu64 " %s", whole, units[i]);
        return out;
}
