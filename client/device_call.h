/* SPDX-License-Identifier: MIT */
#pragma once
/* Checked operations of communicators on GPUs. RMX_*; text set. */
#include "client/device_request.h"

struct operation;

/* Puts the request on the stream: it is done, and its result there, when the stream has come past it. */
int device_run(const struct operation *o, void *stream);
/* Puts only its ringing on the stream. */
int device_begin(const struct operation *o, void *stream, struct device_handle *ret_handle);
