/* SPDX-License-Identifier: MIT */
#pragma once
/* The connection to one executor, and what it is owed. One object per executor that should exist. Loop thread. */
#include "daemon/device_memory.h"
#include "daemon/pool.h"
#include "plan/cost.h"
#include "proto/executor.pb-c.h"
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct comm;
struct executor_op;
struct manager;

#define EXECUTOR_NAME_MAX 64u
#define EXECUTOR_GPUS_MAX 64u
#define EXECUTOR_WINDOW   64u /* calls sent and not answered: bounds the fds in flight */
#define EXECUTOR_ATTACHES 48u /* ... of which comms, if GPUs are emulated */

enum executor_link_state {
        EXECUTOR_GONE,      /* not connected */
        EXECUTOR_HELLO,     /* connected, HELLO not yet received (strangers) */
        EXECUTOR_INVENTORY, /* HELLO received, READY not yet */
        EXECUTOR_ATTACHING, /* WELCOME sent, what it lacked is on its way */
        EXECUTOR_READY,     /* everything is attached */
};

struct executor_gpu {
        uint32_t index;
        char name[64];
        char pci[32]; /* empty: emulated */
        uint64_t memory_bytes;
        uint32_t policy; /* enum plane_policy; as last told, like the next */
        uint32_t resident_blocks;
        bool parked;
        uint32_t workers; /* of its kernels, from HELLO; 0: not told */
        bool reaches;     /* knows of reach.c, from HELLO */
        bool bursts;      /* the same, of bursts */
};

struct executor_counters {
        uint64_t at_ns; /* when they arrived, 0: never */
        uint64_t operations, bytes, invalid_requests, sleeps, wakes, plans, lost, mismatches, uptime_ns, cpu_ns;
        uint64_t parks;
};

struct executor_link {
        struct executor_link *next, *prev; /* manager->links or ->strangers */
        struct manager *manager;

        /* identity */
        char name[EXECUTOR_NAME_MAX];
        uint32_t index;             /* its bit in attachments */
        uint32_t first_gpu, n_gpus; /* GPUs it should serve */
        char backend[16];
        uint64_t instance; /* of the process that is or was last connected, 0: none yet */
        pid_t pid;
        uint32_t version;
        uint32_t workers;
        struct plan_known known; /* which choices it knows */
        struct executor_gpu gpus[EXECUTOR_GPUS_MAX];
        uint32_t n_gpu_infos;
        char pci[32]; /* of its one GPU, as far as is known before it says so */
        int latch_fd; /* which it shares with all sessions on that GPU (gpu/device/bell.h); -1: emulated GPUs */

        /* staging on its GPU, see comm_device.c */
        struct device_memory pool_memory;
        struct pool pool;
        uint64_t peers[EXECUTOR_GPUS_MAX]; /* by link index: whose pool it has been told of in this connection */

        /* links */
        int fd;
        int pidfd; /* of the process that is or was last connected; -1: it has ended, or cannot be watched */
        struct event *read_event, *write_event, *retry_event, *pidfd_event, *stand_event;

        /* state */
        enum executor_link_state state;
        uint64_t connected_ns, gone_ns;
        uint64_t heard_ns;    /* when it last answered a call */
        uint64_t progress_ns; /* when it last got further on its way to READY, or was lost from there */
        uint64_t losses;      /* unplanned deaths */
        bool fresh;           /* another process than before, which has not said READY yet */
        bool dead;            /* the process of `instance` has ended, and its communicators know */
        bool adopted;         /* known from a predecessor, and not seen since */
        bool dismissed;       /* a stranger that was told to end, of the GPU first_gpu */
        bool draining;        /* it has said that its end is planned */
        bool told_go;         /* ... and has our leave */
        uint64_t leaving;     /* the last instance that was given leave; 0: and nobody waits for its successor */
        bool launch_failed;   /* logged once */
        struct executor_op *outgoing; /* utlist, not sent yet */
        struct executor_op *pending;  /* utlist, sent and not answered */
        uint32_t n_pending;
        uint32_t n_reaching; /* REACH_IMPORTs queued or not answered */
        bool reach_told;     /* one that it refused is in the log */
        uint32_t n_owed;     /* attach calls since READY that are not answered; 0 makes it READY */
        uint64_t next_id;
        uint64_t query_id; /* 0: none outstanding */
        struct executor_counters counters;
        uint32_t state_slot;
};

/* The place of an executor that should exist. */
int executor_link_new(struct manager *manager, const char *name, uint32_t first_gpu, uint32_t n_gpus,
                      struct executor_link **ret_link);
/* A connection of which nothing is known yet; takes fd over. */
int executor_link_accept(struct manager *manager, int fd, pid_t pid);
/* A stranger has said who it is: the connection goes over to the executor's place, the stranger goes away. */
void executor_link_hello(struct executor_link *stranger, const Railmux__Executor__Hello *hello);
/* Serves the connection from now on; takes fd over. 0 or -ENOMEM. */
int executor_link_open(struct executor_link *link, int fd);
/* Writes what a successor of this daemon has to know of it. */
void executor_link_record(struct executor_link *link);
/* Its process is watched no more. */
void executor_link_unwatch(struct executor_link *link);
/* The process of a dismissed one has ended. Frees it. */
void executor_link_dismissed(struct executor_link *link);
struct executor_link *executor_link_free(struct executor_link *link);
static inline uint64_t executor_link_mask(const struct executor_link *link) {
        return UINT64_C(1) << link->index;
}
static inline bool executor_link_connected(const struct executor_link *link) {
        return link->state >= EXECUTOR_ATTACHING;
}
/* Which choices do all of them know? */
void executor_links_known(const struct manager *manager, struct plan_known *ret_known);
const char *executor_link_state_name(const struct executor_link *link); /* "ready", "attaching", "draining", "gone" */
/* Closes the connection, forgets what was acknowledged; the executor may come back. */
void executor_link_disconnect(struct executor_link *link, const char *reason);
/* Has it been sent a query that it has not answered? */
bool executor_link_queried(const struct executor_link *link);
/* Asks for statistics unless a query is outstanding. */
void executor_link_query(struct executor_link *link);
/* Sends what the window and the socket allow. */
void executor_link_flush(struct executor_link *link);
