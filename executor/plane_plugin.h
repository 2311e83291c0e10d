/* SPDX-License-Identifier: MIT */
#pragma once
/* The plug-in that serves a kind of GPUs: where it lies, and loading it. */
#include "gpu/plane.h"

struct plane_plugin {
        void *handle;
        const struct plane_ops *ops;
};

enum {
        _PLANE_PLUGIN_E_SUCCESS,
        PLANE_PLUGIN_E_ABSENT,   /* there is none; the sentence says where it was looked for */
        PLANE_PLUGIN_E_UNUSABLE, /* there is one, and it does not fit or does not load */
};

/* backend: a name ("hip") or a path, which has a '/'. $RAILMUX_GPU_PLUGIN is a path that comes first. 0, or a condition
 * and a sentence. It stays loaded. */
int plane_plugin_load(const char *backend, struct plane_plugin *ret_plugin, char error[PLANE_TEXT]);
