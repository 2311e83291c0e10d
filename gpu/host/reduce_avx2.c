/* SPDX-License-Identifier: MIT */
#define REDUCE_KERNELS reduce_kernels_avx2
#define REDUCE_NAME    "avx2"
#include "gpu/host/reduce_kernels.h"
