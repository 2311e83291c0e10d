/* SPDX-License-Identifier: MIT */
#pragma once
/* railmux-executor --probe: which GPUs a plug-in could serve, as JSON on stdout. */

/* Exit statuses. */
enum {
        PROBE_SERVED = 0,
        PROBE_NONE = 3,    /* no plug-in, no runtime or no GPU; "problem" says which */
        PROBE_PROBLEM = 4, /* there are GPUs, and they cannot be served; "problem" says why and what to do */
};

/* Prints and returns the exit status. */
int probe_run(const char *backend);
