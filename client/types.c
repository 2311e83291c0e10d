/* SPDX-License-Identifier: MIT */
#include "railmux/railmux.h"
#include "util/type.h"

size_t rmx_type_size(uint32_t type) {
        return type_size(type);
}

uint32_t rmx_version(void) {
        return RMX_VERSION_MAJOR << 16 | RMX_VERSION_MINOR << 8 | RMX_VERSION_PATCH;
}
