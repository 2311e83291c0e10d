/* SPDX-License-Identifier: MIT */
#pragma once
/* Which requests over several nodes are made of others, and of what. See device_nodes_put.c. */
#include <stdbool.h>

struct device_launch;
struct operation;

/* Is this checked operation made of others? The same on all ranks. */
bool device_nodes_takes(const struct operation *o);
/* What the executors have to do with it: an operation between nodes, on a part of the memory, or on memory of the
 * library's own, which is made if need be. RMX_*; text set. */
int device_nodes_between(const struct operation *o, struct operation *ret_between);
/* Puts all of it on the stream. launch: prepared, of what device_nodes_between gives. With device->mutex. RMX_*, text
 * in `error`, or CLIENT_GPU_UNTOLD as client_gpu_ops.exchange_call. */
int device_nodes_put(const struct operation *o, const struct device_launch *launch, void *stream, char *error);
