/* SPDX-License-Identifier: MIT */
/* The resident kernel for few blocks; see resident.h. */
#define RESIDENT_DENSE 1 /* half of the registers */
#include "gpu/hip/resident.h"

#if TARGET_AMD || defined(RESIDENT_NO_DENSE) /* RAILMUX_DENSE=OFF */
const void *resident_dense(void) {
        return NULL;
}
#else
extern "C" KERNEL void LAUNCH_BOUNDS(RESIDENT_WARPS_DENSE *WARP_THREADS)
        railmux_resident_dense(const struct kernel_arguments a) {
        resident_main<RESIDENT_WARPS_DENSE>(&a);
}

const void *resident_dense(void) {
        return (const void *)railmux_resident_dense;
}
#endif
