/* SPDX-License-Identifier: MIT */
#pragma once
/* One question to railmuxd and its whole answer. */
#include "proto/control.pb-c.h"
#include <stddef.h>

#define ANSWER_ERROR_MAX 256u

enum {
        _ANSWER_E_SUCCESS,
        ANSWER_E_NO_DAEMON, /* nobody listens, or we may not ask */
        ANSWER_E_BROKEN,    /* no, late or senseless answer */
};

struct topology;
struct topology_rails;

struct answer {
        Railmux__Control__Reply **replies;
        size_t n_replies;
        uint32_t code;       /* RMX_*: what railmuxd says */
        const char *message; /* NULL: nothing */

        /* Rows of all replies, sorted by their number; owned by the replies. */
        Railmux__Control__Status *status;
        Railmux__Control__Version *daemon_version;
        Railmux__Control__Drained *drained;
        Railmux__Control__Tenant **tenants;
        Railmux__Control__Session **sessions;
        Railmux__Control__Comm **comms;
        Railmux__Control__Gpu **gpus;
        Railmux__Control__Metric **metrics; /* in the order they came */
        Railmux__Control__Peer **peers;     /* this daemon first, the others as it came to know them */
        Railmux__Control__Rail **rail_rows;
        Railmux__Control__Route **routes;
        size_t n_tenants, n_sessions, n_comms, n_gpus, n_metrics, n_peers, n_rail_rows, n_routes;

        char *topology; /* text of the graph, from all replies */
        size_t topology_length;
        struct topology *graph; /* what was made of it (graph.c) */
        struct topology_rails *rails;
};
#define ANSWER_INIT                                                                                                    \
        { 0 }

/* 0, ANSWER_E_* and a sentence in error, or -ENOMEM. */
int answer_ask(const char *path, const Railmux__Control__Request *request, int timeout_ms, struct answer *answer,
               char error[ANSWER_ERROR_MAX]);
void answer_deinit(struct answer *answer);
