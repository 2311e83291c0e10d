/* SPDX-License-Identifier: MIT */
#pragma once
/* The GPUs of this host as the runtime numbers them. */
#include "gpu/plane.h"

/* As plane_ops.probe. Makes no context. */
int device_probe(struct plane_probe *ret_probe, char *error);
/* Makes the device the thread's current one, with its context. */
int device_select(uint32_t device, struct plane_gpu *ret_gpu, char *error);
