/* SPDX-License-Identifier: MIT */
#pragma once
/* What tools say of words on their command lines that they do not take. */
#include <stdint.h>

#define OPTIONS_ERROR_MAX 384u

enum {
        OPTIONS_OK = 0,
        OPTIONS_E_HELP = 1,  /* help or version was printed */
        OPTIONS_E_USAGE = 2, /* error says what is wrong and what is allowed */
};

/* OPTIONS_E_USAGE, always. */
int options_refuse(char error[OPTIONS_ERROR_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* name: the option's. The value is written only if it is taken. */
int options_take_u32(const char *name, const char *text, uint32_t min, uint32_t max, uint32_t *ret_value,
                     char error[OPTIONS_ERROR_MAX]);
int options_take_size(const char *name, const char *text, uint32_t max_gib, uint64_t *ret_value,
                      char error[OPTIONS_ERROR_MAX]);
