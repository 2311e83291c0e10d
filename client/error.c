/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "client/error.h"
#include "railmux/railmux.h"

static _Thread_local char last_error[512] = "no error";

static const char *const names[RMX_E_COUNT] = {
        [RMX_OK] = "RMX_OK",
        [RMX_E_INVALID] = "RMX_E_INVALID",
        [RMX_E_NO_DAEMON] = "RMX_E_NO_DAEMON",
        [RMX_E_DAEMON_LOST] = "RMX_E_DAEMON_LOST",
        [RMX_E_VERSION] = "RMX_E_VERSION",
        [RMX_E_NO_MEMORY] = "RMX_E_NO_MEMORY",
        [RMX_E_LIMIT] = "RMX_E_LIMIT",
        [RMX_E_DENIED] = "RMX_E_DENIED",
        [RMX_E_BUSY] = "RMX_E_BUSY",
        [RMX_E_MISMATCH] = "RMX_E_MISMATCH",
        [RMX_E_PEER_LOST] = "RMX_E_PEER_LOST",
        [RMX_E_LOST] = "RMX_E_LOST",
        [RMX_E_DEVICE_LOST] = "RMX_E_DEVICE_LOST",
        [RMX_E_ABORTED] = "RMX_E_ABORTED",
        [RMX_E_TIMEOUT] = "RMX_E_TIMEOUT",
        [RMX_E_INTERNAL] = "RMX_E_INTERNAL",
        [RMX_E_UNSUPPORTED] = "RMX_E_UNSUPPORTED",
};

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
        return code >= 0 && code < RMX_E_COUNT && names[code] ? names[code] : "RMX_E_?";
}

const char *rmx_last_error(void) {
        return last_error;
}
