/* SPDX-License-Identifier: MIT */
#pragma once
/* railmuxd's configuration: defaults, then /etc/railmux/railmuxd.yaml, then conf.d/ *.yaml in name order, then the
 * command line. */
#include "plan/cost.h"
#include "util/charge.h"
#include <stdbool.h>
#include <stdint.h>

#define CONFIG_ERROR_MAX 512u
#define CONFIG_AT_MAX    336u

#define CONFIG_BY_POLICY UINT64_MAX

struct config {
        int log_level;
        char *client_socket;                /* /run/railmux/client.sock; executors use <client_socket>.exec */
        char *control_socket;               /* /run/railmux/control.sock */
        uint32_t client_mode, control_mode; /* 0660 */
        char *backend;                      /* "auto", "hip", "host" */
        uint32_t gpus;                      /* emulated GPUs of the host backend, 1..64; default 8 */
        uint32_t hip_gpus;                  /* GPUs to serve, 0: as many as there are devices; more share devices */
        char *policy;                       /* of resident kernels: "adaptive", "shared", "latency" */
        uint32_t blocks;                    /* resident blocks, 0: as the policy says */
        uint64_t reach_bytes; /* requests of so much of a rank's memory go directly; 0: none do, or CONFIG_BY_POLICY */
        uint64_t burst_bytes; /* of those, requests of so much are bursts; the same */
        /* Requests of so much are exchanged by the ranks' own kernels; 0: none are. */
        uint64_t exchange_bytes;
        uint64_t staging_bytes;            /* of each GPU for all communicators; 0: the executor's default */
        uint32_t devices;                  /* not configured: devices found at the start, 0: emulated GPUs */
        uint32_t workers;                  /* executor worker threads, 0: one per CPU, at most 16 */
        uint32_t stall_ms;                 /* a sequence older than this is reported as stalled; default 500 */
        uint32_t ring_depth;               /* default RING_DEPTH_DEFAULT */
        uint64_t limit[CHARGE_KIND_COUNT]; /* of each tenant; fds and bytes 0: a share (tenants.h) */
        char *tenants;                     /* as tenants.h says; "": the default one only */
        char *listen;                      /* for daemons of other nodes, "ADDR:PORT"; "": there are none */
        char *advertise;                   /* where they dial this one; "": follows from listen */
        char *cluster;                     /* only daemons of one cluster talk to each other */
        char *peer_ca, *peer_certificate, *peer_key; /* PEM files, or names of credentials; all or none are "" */
        uint32_t peer_plain;                         /* 1: without certificates also beyond loopback */
        uint32_t peer_heartbeat_ms, peer_lost_ms;
        char *rails;                     /* as rails.h says; "": one beside `listen` */
        uint64_t stripe_bytes;           /* chunks of so many take any rail; 0: none does */
        char *constants_file;            /* constants of the cost model; NULL: those shipped */
        struct plan_constants constants; /* what that file gives, see plan/constants.h */
        uint32_t rail_phase;             /* over nodes: enum plan_algorithm, PLAN_ALGORITHM_NONE: what is cheapest */
        char *file;                      /* main file in force; without one conf.d, if there are files; NULL: none */
        /* "FILE:LINE:COLUMN: KEY" of the last value read of those that must fit together; "": none */
        char credentials_at[CONFIG_AT_MAX], times_at[CONFIG_AT_MAX], address_at[CONFIG_AT_MAX];
};

void config_init(struct config *config);
/* gpu.reach and gpu.burst, with what they are by default under the policy. 0: off. */
uint64_t config_reach_bytes(const struct config *config);
uint64_t config_burst_bytes(const struct config *config); /* defaults */
void config_deinit(struct config *config);
/* path NULL: /etc/railmux/railmuxd.yaml if it exists. 0, or -errno and a text like
 * "/etc/railmux/railmuxd.yaml:7:3: limits.sessions: 'many' is no number; allowed: 1 .. 100000". */
int config_load(struct config *config, const char *path, char error[CONFIG_ERROR_MAX]);
/* What only a start puts into force, and is another in `next`: a sentence with the keys. false: nothing is. */
bool config_waits(const struct config *config, const struct config *next, char text[CONFIG_ERROR_MAX]);
