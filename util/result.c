/* SPDX-License-Identifier: MIT */
#include "util/result.h"

#include "railmux/railmux.h"

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

const char *result_name(uint32_t code) {
        return code < RMX_E_COUNT && names[code] ? names[code] : "RMX_E_?";
}
