/* SPDX-License-Identifier: MIT */
#define REDUCE_KERNELS reduce_kernels_avx512
#define REDUCE_NAME    "avx512"
#include "gpu/host/reduce_kernels.h"
