/* SPDX-License-Identifier: MIT */
#pragma once
/* The plug-in that serves a kind of GPUs. */
#include "gpu/plane.h"

/* backend: a name ("hip") or a path, which has a '/'. $RAILMUX_GPU_PLUGIN is a path that comes first. As plugin_load
 * (util/plugin.h). */
int plane_plugin_load(const char *backend, const struct plane_ops **ret_ops, char error[PLANE_TEXT]);
