/* SPDX-License-Identifier: MIT */
/* The resident kernel for communicators of many ranks, where the others have no room for them; see resident.h. */
#define RESIDENT_WIDE 1
#include "gpu/hip/resident.h"

#if TARGET_AMD
extern "C" KERNEL void LAUNCH_BOUNDS(RESIDENT_WARPS_WIDE *WARP_THREADS)
        railmux_resident_wide(const struct kernel_arguments a) {
        resident_main<RESIDENT_WARPS_WIDE>(&a);
}

bool resident_wide(struct resident *ret_resident) {
        *ret_resident = {(const void *)railmux_resident_wide, RESIDENT_WARPS_WIDE, sizeof(struct worker_shared)};
        return true;
}
#else
bool resident_wide(struct resident *ret_resident) {
        (void)ret_resident;
        return false;
}
#endif
