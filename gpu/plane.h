/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What an executor needs from a backend that serves its clients by itself: resident kernels that poll the bells, check
 * the lines and run the plans (gpu/hip/). The executor's control thread only tells it what exists. (The host backend is
 * the other kind, gpu/gpu.h: there the executor's own workers do all that.)
 *
 * The table is exported by a plug-in (librailmux-gpu-hip.so) under the name PLANE_SYMBOL, so that one package runs on
 * hosts with and without a GPU runtime.
 *
 * Threads: the control thread only. Every call returns within PLANE_CALL_MS; what takes work out of the kernels (abort,
 * detach, retire) returns when no kernel touches it any more.
 * Errors: 0, or negative errno with a sentence in `error` (PLANE_TEXT bytes).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/cost.h"
#include "plan/nodes.h"
#include "plan/plan.h"

#define PLANE_VERSION      14u
#define PLANE_SYMBOL       "railmux_gpu_plane"
#define PLANE_TEXT         256u
#define PLANE_CALL_MS      2000u
#define PLANE_HANDLE_BYTES 64u
#define PLANE_GPUS_MAX     64u

struct net_area; /* ring/net.h */
struct plane;    /* one GPU in service */

/* Memory on a GPU as another process exported it. */
enum plane_memory_kind {
        PLANE_MEMORY_NONE = 0,
        PLANE_MEMORY_IPC = 1, /* an IPC handle of the allocation; offset and bytes are inside of it */
        PLANE_MEMORY_BUNDLE =
                2, /* chunks side by side, a bundle of their descriptors (util/bundle.h) beside the message */
};
struct plane_memory {
        uint32_t kind;
        uint32_t n_handle;
        unsigned char handle[PLANE_HANDLE_BYTES];
        uint64_t allocation_bytes; /* of the whole allocation; of a bundle: of all its chunks */
        uint64_t offset;
        uint64_t bytes;
        int fd; /* stays the caller's; -1: none */
};

struct plane_gpu {
        char name[64];
        char pci[32]; /* "0000:1a:00.0": which device it is, the same in every process */
        uint64_t memory_bytes;
        uint32_t processors; /* SMs, CUs */
};

/* What there is, without taking it into service. */
struct plane_probe {
        uint32_t n_gpus;
        struct plane_gpu gpu[PLANE_GPUS_MAX];
        char runtime[64];         /* "CUDA 13.0", "HIP 6.2" */
        char problem[PLANE_TEXT]; /* empty, or why these GPUs cannot be served and what to do (no MPS on NVIDIA) */
};

enum plane_policy { PLANE_ADAPTIVE = 0, PLANE_SHARED = 1, PLANE_LATENCY = 2 };

struct plane_options {
        uint32_t device;     /* of the runtime */
        uint32_t policy;     /* enum plane_policy */
        uint32_t blocks;     /* resident blocks; 0: as the policy says */
        uint64_t pool_bytes; /* staging to begin with; 0: a default */
        uint64_t left_ns;    /* ranks of other nodes that have left are believed after so long; 0: a default */
        int told_fd;         /* an eventfd that is written when comm_ready may say more; the caller's. 0: none */
};

struct plane_info {
        struct plane_gpu gpu;
        uint32_t policy;
        uint32_t resident_blocks; /* now; 0: parked */
        uint32_t threads;         /* of a block */
        uint32_t n_workers;       /* each has its share of the lanes; the same while it is parked. 0: not told */
        bool parked;
        bool reaches; /* it can map buffers of other GPUs' sessions for its kernels (reach_import) */
        bool bursts;  /* it knows plane_comm.burst_bytes */
        uint64_t parks, wakes;
        uint64_t shuns; /* of the latch, which somebody misused, for a minute each */
        uint64_t pool_bytes, table_bytes;
        struct plane_memory pool; /* for the other executors */
};

struct plane_comm_member {
        uint64_t session; /* 0: gone */
        uint32_t handle;
        uint32_t gpu;     /* whose pool its staging is in */
        uint64_t staging; /* offset in that pool */
        bool here;        /* this plane serves it */
        bool far;         /* on another node: not `here`, no session, and the rest means nothing but: */
        uint8_t node;     /* number of the rank's node among the communicator's; 0 if there is only one */
};
/* What the planes of a communicator over several nodes have in common with the fabric. Several processes may attach to
 * one area, each for its own GPU's ranks. */
struct plane_net {
        struct net_area
                *area;   /* mapped writable, of plane_net_size(); zeroed before the first of them; outlives the comm */
        size_t bytes;    /* that are mapped */
        int doorbell_fd; /* eventfd of the fabric, written when it sleeps; outlives the comm. -1: none */
};
struct plane_comm {
        uint64_t id;
        uint32_t n_ranks;
        uint32_t epoch;
        uint32_t code; /* sticky error in force, 0: none */
        int32_t failed_rank;
        const struct plane_comm_member *members;
        const struct plan_choice *choices;
        uint32_t n_choices;
        uint32_t first; /* comm sequence that its ranks begin with; 0: the first of all */
        uint32_t lanes; /* data lanes that requests are spread over, as all its planes are told; 0: all */
        /* Requests that read or write so much of a rank's memory try to do so directly; 0: none does. The same on all
         * its planes. */
        uint64_t reach_bytes;
        uint64_t burst_bytes; /* of those, requests of so many have their data moved by bursts; 0: none; as above */
        const struct plane_net *net; /* some members are far; NULL: none is */
};

/* A rank's view, for reports. */
struct plane_rank_report {
        uint64_t comm;
        uint32_t rank;
        uint32_t rung;      /* last comm sequence begun */
        uint32_t finished;  /* last one finished */
        uint32_t operation; /* RING_OP_* of the last begun */
        uint32_t status;    /* error found by the kernel (ring_status), 0: none; reported until the comm is aborted */
        const char *why;    /* static: what is wrong with the rank that `status` names; NULL: with the request */
};

/* Sends to or receives from one peer, of which some are begun and not finished; by sequences of the pair. */
struct plane_pair_report {
        uint64_t comm;
        uint32_t rank; /* here */
        uint32_t peer;
        bool sends; /* rank to peer; else it receives from it */
        uint32_t rung, finished;
};

/* How far a rank of a communicator that is held has come. */
struct plane_level {
        uint32_t rank;
        uint32_t taken; /* last comm sequence that was begun */
        bool settled;   /* that is finished here, and nothing after it is begun */
        /* Once it is settled: chunks pushed to each rank, and taken of each, so far. */
        uint32_t pushed[PLAN_RANKS_MAX], pulled[PLAN_RANKS_MAX];
};

struct plane_ops {
        uint32_t version; /* PLANE_VERSION */
        const char *name; /* "hip" */
        int (*probe)(struct plane_probe *ret_probe, char *error);
        int (*open)(const struct plane_options *options, struct plane **ret_plane, char *error);
        void (*close)(struct plane *plane); /* ends the kernels; NULL is allowed */
        void (*info)(struct plane *plane, struct plane_info *ret_info);

        /* The staging pool of the executor that serves `gpu`, the own one included (a no-op). Again with another
         * instance: the old mapping is dropped first; comms that used it must have been detached, or are held. */
        int (*peer_add)(struct plane *plane, uint32_t gpu, uint64_t instance, const struct plane_memory *pool,
                        char *error);
        void (*peer_remove)(struct plane *plane, uint32_t gpu);

        /* The page (struct bell_latch, gpu/device/bell.h) that all sessions on this GPU may write, too. It stays mapped
         * until close. Before the first ring; later ones count for nothing. NULL in a plane that has no use for it. */
        int (*latch)(struct plane *plane, void *page, char *error);
        /* A session's bell area (gpu/device/bell.h). host: the client-written host memory (struct bell_host), mapped by
         * the caller until ring_detach. soon_fd: an eventfd that the client may write, and nobody reads, when it is
         * about to ring after a silence; it stays the caller's; -1: none. */
        int (*ring_attach)(struct plane *plane, uint64_t session, const struct plane_memory *area, const void *host,
                           int soon_fd, char *error);
        /* Takes the session's buffers along, also of one that has no area. Its ranks have been detached or aborted, or
         * have left. */
        void (*ring_detach)(struct plane *plane, uint64_t session);
        int (*buffer_import)(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory,
                             char *error);
        void (*buffer_retire)(struct plane *plane, uint64_t session, uint32_t id);
        /* GPUs (a bit each) whose planes have this buffer by reach_import, all of them. When it returns, no request
         * begins that counts on others. -ENOENT: no such buffer. NULL, as the next two, in a plane that does not
         * reach. */
        int (*buffer_reach)(struct plane *plane, uint64_t session, uint32_t id, uint64_t gpus, char *error);
        /* A buffer of a session on another GPU, for requests of communicators that both are in. -ENOSPC: no room.
         * -EBUSY: perhaps later, what lay in its place before is still mapped. */
        int (*reach_import)(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory,
                            char *error);
        void (*reach_retire)(struct plane *plane, uint64_t session, uint32_t id); /* 0: all of the session */

        /* May comm_attach be called with this without its taking long? If not, what it lacks is made beside, and
         * told_fd is written when there is more of it. Only members' `here` and `node`, choices, and whether there is a
         * `net`, are looked at. After comm_round all who still wait ask again, and what nobody asks for in that round
         * or the next is not kept for him. Both NULL: it never takes long. */
        bool (*comm_ready)(struct plane *plane, const struct plane_comm *comm);
        void (*comm_round)(struct plane *plane);
        /* Staging of its members is clean on return. -EINVAL also if the net area is not one for so many ranks. Of one
         * over several nodes: -ENOSPC: no more pinned memory for it; -EBUSY: not now, but soon. */
        int (*comm_attach)(struct plane *plane, const struct plane_comm *comm, char *error);
        void (*comm_abort)(struct plane *plane, uint64_t comm, uint32_t status);
        /* All its planes have aborted it: requests are answered, too, whose memory others could reach. NULL: they have
         * been. */
        void (*comm_thaw)(struct plane *plane, uint64_t comm);
        void (*comm_detach)(struct plane *plane, uint64_t comm);
        /* The rank, wherever it is, makes no requests after `last`; nothing to do but to answer later ones, and what
         * waits for its sends and receives: in the end if it is on another node. */
        void (*rank_leave)(struct plane *plane, uint64_t comm, uint32_t rank, uint32_t last);

        /* Another executor of the comm is going to be replaced: its ranks here begin no request that no rank has begun
         * yet, and those of the same sessions wait with them. Again with the last request that some rank has begun.
         * -EOPNOTSUPP, also of comm_move: it has ranks on other nodes, and does not survive that. */
        int (*comm_hold)(struct plane *plane, uint64_t comm, bool has_upto, uint32_t upto, char *error);
        uint32_t (*comm_level)(struct plane *plane, uint64_t comm, struct plane_level *levels, uint32_t max);
        /* All ranks are settled at the same request, and pools have been replaced: begins anew with clean staging, from
         * `first` on. -EBUSY: not settled here. */
        int (*comm_move)(struct plane *plane, const struct plane_comm *comm, char *error);
        void (*comm_release)(struct plane *plane, uint64_t comm);

        /* Called every few milliseconds: parks, wakes, closes retired mappings. -errno: the GPU context is lost and the
         * executor should end. */
        int (*tick)(struct plane *plane, char *error);
        /* Reports of all ranks on this GPU; the number, at most `max`. */
        uint32_t (*report)(struct plane *plane, struct plane_rank_report *reports, uint32_t max);
        /* Pairs that wait; the number, at most `max`. NULL: it cannot tell. */
        uint32_t (*pairs)(struct plane *plane, struct plane_pair_report *reports, uint32_t max);
        /* No new request is begun; true when none is under way and the kernels have ended. Call until true. */
        bool (*drain)(struct plane *plane);
};

/* Staging bytes of one rank of n. Known to railmuxd too, which deals the pools out. 0: more ranks than a comm may have.
 */
uint64_t plane_staging_bytes(uint32_t n_ranks);
/* How large the net area of a communicator of n ranks over several nodes is, which railmuxd makes (ring/net.h):
 * descriptors, a power of two that is enough on each node, and bytes of staging. The same on all nodes. Pages are
 * touched where chunks pass, so a sparse file stays small. 0, or -EINVAL: more ranks than a comm may have. */
int plane_net_size(uint32_t n_ranks, const struct plan_nodes *nodes, uint32_t *ret_capacity,
                   uint64_t *ret_memory_bytes);
/* Pinned host memory that executors of a node take for a communicator with so many ranks on that node and so many on
 * others, by the end of it at the latest; the same for every pair. Not part of the net area. railmuxd charges it to the
 * tenant before comm_attach, as it charges staging; plane_wire_bytes(1, n_far) is one rank's share. */
uint64_t plane_wire_bytes(uint32_t n_here, uint32_t n_far);
/* Data lanes over which requests are spread so that each of so many workers has one part, but for the one that has
 * lane 0; 0: as many as there are. */
uint32_t plane_lanes(uint32_t n_workers);
/* Bytes of a bell area, and of the host memory that goes with it (gpu/device/bell.h). */
uint64_t plane_bell_bytes(void);
uint64_t plane_bell_host_bytes(void);
uint64_t plane_latch_bytes(void);
/* How far ranks are with requests that their own kernels exchange, in a session's host memory: one rank at each of
 * PLANE_EXCHANGED places, or none. False: none. */
struct plane_exchanged {
        uint32_t handle;
        uint32_t calls;     /* begun, of which all but the last one are over; comes round */
        uint32_t operation; /* of the last one */
        /* It was not what another rank called: that one; -1: nothing is known of that. */
        int32_t differs;
        uint32_t type, redop, root; /* of the call that differs, whose operation is that above, too */
        uint64_t count;
        /* A send to, or receive from, another rank that has waited for it for some milliseconds at least. */
        bool waits, sends;
        uint32_t peer, turn; /* number among those of the two ranks and this direction */
};
#define PLANE_EXCHANGED 256u
bool plane_exchanged(const void *host, uint32_t place, struct plane_exchanged *ret_exchanged);
