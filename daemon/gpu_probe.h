/* SPDX-License-Identifier: MIT */
#pragma once
/* Which GPUs this node has, as the executor's program says. Start-up only: it waits. */
#include <stddef.h>
#include <stdint.h>

#define GPU_PROBE_MAX  64u
#define GPU_PROBE_TEXT 320u

enum {
        _GPU_PROBE_E_SUCCESS,
        GPU_PROBE_E_NONE,    /* no runtime or no GPU; text says which */
        GPU_PROBE_E_PROBLEM, /* GPUs that cannot be served, or no answer; text says why */
};

struct gpu_probe {
        uint32_t n_gpus;
        char runtime[64];
        struct {
                char name[64];
                char pci[32];
        } gpu[GPU_PROBE_MAX];
};

/* Runs `railmux-executor --probe`, or reads $RAILMUX_PROBE, a file with what it printed: under systemd this process may
 * not touch GPUs. Bounded by 20 s. 0, a condition with a text, or -errno. */
int gpu_probe_run(struct gpu_probe *ret_probe, char text[GPU_PROBE_TEXT]);
/* A document of `railmux-executor --probe`. 0 or a condition with a text. */
int gpu_probe_parse(const char *document, size_t length, struct gpu_probe *ret_probe, char text[GPU_PROBE_TEXT]);
