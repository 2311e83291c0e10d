/* SPDX-License-Identifier: MIT */
#pragma once
/* The plane: one GPU with its resident kernel. The device writes nothing but tables.report. Two threads, with the lock:
 * the control thread, and that of watch.c, which launches the kernel and tells it to end (and bursts, without the
 * lock). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/device/bell.h"
#include "gpu/hip/adaptive.h"
#include "gpu/hip/burst.h"
#include "gpu/hip/choices.h"
#include "gpu/hip/leave.h"
#include "gpu/hip/memory.h"
#include "gpu/hip/moment.h"
#include "gpu/hip/park.h"
#include "gpu/hip/pool.h"
#include "gpu/hip/proxy.h"
#include "gpu/hip/slab.h"
#include "gpu/hip/table.h"
#include "gpu/hip/watch.h"
#include "gpu/mirror.h"
#include "gpu/plane.h"

struct comm;

/* A session on this GPU. There may be buffers and ranks before there is an area. */
struct ring {
        uint64_t session; /* 0: unused */
        uint32_t n_buffers, n_ranks;
        struct memory_mapping *mapping; /* NULL: no area yet */
        uint64_t area;
        const struct bell_host *host; /* the client writes it at any time */
        uint32_t wake;                /* host->wake as last seen */
        int soon_fd;                  /* with host: what the thread that watches listens to; -1: nothing */
        uint32_t missed;              /* where a worker was when the counter was beyond all lines, */
        uint32_t n_missed;            /* so many times in a row */
        uint32_t n_held;              /* ranks; see hold.c for this and the rest */
        uint32_t limit;
        bool limited;
        bool settled; /* when last looked at */
};

/* A rank of a communicator on this GPU. Its staging states lie at its index. */
struct plane_rank {
        struct comm *comm; /* NULL: unused */
        uint32_t rank;
        uint32_t ring;
        uint32_t handle;
        bool held, has_upto;
        uint32_t upto;                                                 /* comm sequence that it is to come to */
        uint32_t pushed[STAGING_RANKS_MAX], pulled[STAGING_RANKS_MAX]; /* chunks, when its ring was settled last */
};

/* The pool of another executor. */
struct plane_peer {
        uint64_t address; /* 0: not there */
        uint64_t bytes;
        uint64_t instance;
        struct memory_mapping *mapping; /* NULL: the own pool */
};

/* Pinned memory for words that go to the areas and come from there. */
struct plane_words {
        uint32_t value[2]; /* 0, 1 */
        uint32_t counter[TABLE_RINGS];
        uint32_t sequence; /* of a rank that begins */
        struct lane_states state;
        struct {
                struct bell_header header;
                uint32_t released[BELL_DEPTH];
                uint64_t lines[BELL_LINES][16];
                uint64_t done[BELL_DEPTH][BELL_LANES];
        } area;
};

/* What sessions have cost the others lately. */
struct turns {
        uint64_t since_ns;
        uint32_t n; /* windows, since then */
};

struct plane {
        /* identity */
        uint32_t device;
        uint32_t policy;
        uint64_t left_ns; /* see plane_options */
        struct plane_gpu gpu;

        /* owned */
        hipStream_t control; /* all copies; never the kernel's */
        struct plane_words *words;
        struct tables tables;
        struct pool pool;   /* staging */
        struct pool states; /* struct lane_states [TABLE_RANKS] */
        struct memory memory;
        struct park park;
        struct choices choices;
        struct ring rings[TABLE_RINGS];
        struct plane_rank ranks[TABLE_RANKS];
        uint32_t ranks_end;                            /* those from here on have never been used */
        struct memory_mapping *buffers[TABLE_BUFFERS]; /* at the index of the tables' entry */
        struct memory_mapping *reached[TABLE_REACH];   /* the same for table.reach, */
        uint32_t n_reached;                            /* of which so many are in use */
        struct plane_peer peers[PLANE_GPUS_MAX];
        struct comm *comms; /* uthash by id */
        struct slabs slabs; /* what communicators with other nodes use */
        struct moment moment;
        struct proxy proxy[WIRE_STRANDS];
        struct burst burst;
        struct watch watch;

        pthread_mutex_t lock;
        _Atomic uint32_t n_wanting; /* of it: threads that wait for it, or are about to */

        /* state */
        struct adaptive adaptive;
        struct leave leave;
        uint64_t parks, wakes;
        uint32_t n_held;                 /* ranks that stand still */
        uint64_t window_ns;              /* not before: the next try to close mappings */
        struct turns turns[TABLE_RINGS]; /* at the rings' index, and left for who comes to have it next */
        uint64_t asked_ns;               /* when the context was asked last whether it is lost */
        bool parked;
        bool draining;
        bool wide_wanted; /* park.wide, when the kernel has ended, which has been told to */
        int fault;        /* negative errno: the context is lost or no longer trusted */
        char fault_text[PLANE_TEXT];
};

/* The control thread's; whoever calls the plane from elsewhere must not hold it. */
void plane_lock(struct plane *plane);
void plane_unlock(struct plane *plane);
/* False: somebody has it, or waits for it. */
bool plane_try_lock(struct plane *plane);

/* Remembers the first fault, which tick reports. Returns r. */
int plane_fault(struct plane *plane, int r, const char *text);
/* What changing the tables returned: anything but "no room" is a fault. */
int plane_changed(struct plane *plane, int r, const char *what, char *error);
/* tables_commit, which must not fail. */
int plane_commit(struct plane *plane, char *error);
/* -EIO with the fault's text if there is one. */
int plane_check(const struct plane *plane, char *error);
