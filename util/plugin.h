/* SPDX-License-Identifier: MIT */
#pragma once
/* Plug-ins of programs: where they lie, and loading them. See plugin.c. */
#include <stddef.h>
#include <stdint.h>

struct plugin {
        const char *name;     /* of its file, "librailmux-gpu-hip.so" */
        const char *variable; /* of the environment: a path that is taken instead */
        const char *path;     /* another one, if that says nothing; NULL: none */
        const char *symbol;   /* its table, which begins with its version, a uint32_t */
        uint32_t version;     /* that it must have */
};

enum {
        _PLUGIN_E_SUCCESS,
        PLUGIN_E_UNUSABLE, /* there is none, or it does not load or fit */
};

/* 0 and the table, or PLUGIN_E_UNUSABLE and a sentence. It stays loaded: runtimes may have threads of their own. */
int plugin_load(const struct plugin *plugin, const void **ret_table, char *error, size_t size);
