/* SPDX-License-Identifier: MIT */
#include "gpu/plane.h"

#include "gpu/device/bell.h"
#include "gpu/device/staging.h"

uint64_t plane_staging_bytes(uint32_t n_ranks) {
        struct staging_layout layout;

        if (n_ranks < 1 || n_ranks > STAGING_RANKS_MAX)
                return 0;
        staging_layout_init(&layout, n_ranks);
        return layout.bytes;
}

uint32_t plane_lanes(uint32_t n_workers) {
        if (n_workers < 2) /* not told, or one worker, which has whatever there is */
                return n_workers;
        return n_workers - 1 < STAGING_DATA_LANES ? n_workers - 1 : STAGING_DATA_LANES;
}

uint64_t plane_bell_bytes(void) {
        return BELL_AREA_BYTES;
}

uint64_t plane_bell_host_bytes(void) {
        return sizeof(struct bell_host);
}
