/* SPDX-License-Identifier: MIT */
/* The resident kernel for few blocks; see resident.h. */
#define RESIDENT_DENSE 1 /* half of the registers */
#include "gpu/hip/resident.h"

#if TARGET_AMD || defined(RESIDENT_NO_DENSE) /* RAILMUX_DENSE=OFF */
bool resident_dense(struct resident *ret_resident) {
        (void)ret_resident;
        return false;
}
#else
extern "C" KERNEL void LAUNCH_BOUNDS(RESIDENT_WARPS_DENSE *WARP_THREADS)
        railmux_resident_dense(const struct kernel_arguments a) {
        resident_main<RESIDENT_WARPS_DENSE>(&a);
}

bool resident_dense(struct resident *ret_resident) {
        *ret_resident = {(const void *)railmux_resident_dense, RESIDENT_WARPS_DENSE, sizeof(struct worker_shared)};
        return true;
}
#endif
