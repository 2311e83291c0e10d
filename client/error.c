/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "client/error.h"
#include "railmux/railmux.h"
#include "util/result.h"

static _Thread_local char last_error[ERROR_TEXT_BYTES] = "no error";

int error_set(int code, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(last_error, sizeof(last_error), format, arguments);
        va_end(arguments);
        return code;
}

int error_sanitise(uint32_t code) {
        return code > RMX_OK && code < RMX_E_COUNT ? (int)code : RMX_E_INTERNAL;
}

const char *rmx_error_name(int code) {
        return result_name(code < 0 ? UINT32_MAX : (uint32_t)code);
}

const char *rmx_last_error(void) {
        return last_error;
}
