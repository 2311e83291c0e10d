/* SPDX-License-Identifier: MIT */
#define REDUCE_KERNELS reduce_kernels_base
#define REDUCE_NAME    "base"
#include "gpu/host/reduce_kernels.h"
