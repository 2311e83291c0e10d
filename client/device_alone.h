/* SPDX-License-Identifier: MIT */
#pragma once
/* Requests of communicators of one rank. See device_alone.c. */
#include <stdbool.h>

struct device_launch;
struct operation;

/* Is this checked operation one that the rank carries out alone? */
bool device_alone_takes(const struct operation *o);
/* Puts it on the stream, and its number if the launch has one. With device->mutex. RMX_*, text in `error`, or
 * CLIENT_GPU_UNTOLD as client_gpu_ops.exchange_call. */
int device_alone_put(const struct operation *o, const struct device_launch *launch, void *stream, char *error);
