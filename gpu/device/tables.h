/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What the control thread of an executor tells its kernels, in memory of the executor on that GPU. C and device code.
 *
 * The control thread writes entries with copies on a stream of its own while the kernels run, so each entry has a key
 * word that is written after the rest of it (0: empty). `version` is raised afterwards. A worker (one warp) that sees a
 * new version drops what it has cached and writes the version into its acknowledgement word in host memory; what was
 * taken out of the tables before version v is no longer touched once every worker has acknowledged v, or the kernel has
 * ended. Requests under way of a rank whose `abort` is set are answered with that status before the acknowledgement.
 * Those that a kernel has kept for the next one may find another rank in their rank's place, or other memory under
 * their buffer's number: then they are answered, too.
 *
 * What is new under a name that was unused is found without a version. And `changes` tells of the last versions if they
 * did no more than take out one buffer: then a worker keeps what has nothing to do with it, and memory may come and go
 * without anybody else's requests becoming slower.
 */
#include "gpu/device/program.h"
#include "gpu/device/staging.h"
#include "plan/plan.h"

#define TABLE_RINGS       32u   /* sessions served on one GPU; a word has a bit for each */
#define TABLE_RANKS       256u  /* ranks of communicators on one GPU */
#define TABLE_HANDLES     512u  /* hash of (ring, handle) */
#define TABLE_BUFFERS     8192u /* hash of (ring, buffer id) */
#define TABLE_PLANS       256u  /* (operation, algorithm, ranks); index 0: none */
#define TABLE_WORKERS_MAX 1024u
#define TABLE_PROBES      16u /* longest search in a hash */
#define TABLE_SETS        64u /* of choices; over nodes each place of a rank among them may have its own */
#define TABLE_CHOICES     8u  /* size classes of one operation */
#define TABLE_OPERATIONS  16u
#define TABLE_CHANGES     16u    /* versions that are told of */
#define TABLE_REACH       16384u /* hash of (session, buffer id) */
#define TABLE_PROGRAMS    32768u /* programs and their steps; the first is none */
#ifndef TABLE_BURSTS             /* fewer where it shall happen that there are too few */
#define TABLE_BURSTS 16u         /* at once; a power of two */
#endif
#define TABLE_COPIES 8u /* pieces that the copy engines move for one burst */

#define TABLE_STOP_SERVED 3u /* table.stop; the control thread's others are in gpu/hip/park.h */

struct table_ring {
        uint64_t area;    /* the bell area as mapped here */
        uint64_t session; /* for the control thread's reports */
        uint32_t first;   /* ring sequence to begin with */
        uint32_t limited; /* 1: lines from `limit` on are left where they are */
        uint32_t limit;
        uint32_t key; /* 0: empty; else counts up with each use of the entry */
};

/* A rank of a communicator that lives on this GPU. */
struct table_rank {
        uint64_t peer[STAGING_RANKS_MAX]; /* staging of each rank as mapped here; [rank]: the own; far: struct wire */
        uint64_t states;                  /* struct lane_states */
        uint64_t left;                    /* a bit for each rank that makes no requests any more */
        uint32_t ring;                    /* index of its session's ring */
        uint32_t handle;
        uint32_t rank;
        uint32_t n_ranks;
        uint32_t epoch;
        uint32_t first;    /* comm sequence to begin with */
        uint32_t choices;  /* index in table.choices */
        uint32_t abort;    /* status (ring_status) or 0; may change at any time */
        uint32_t last;     /* with has_last: only requests above it are answered with abort */
        uint32_t has_last; /* 0 or 1 */
        uint32_t lanes;    /* data lanes that requests are spread over, the same on all ranks; 0: all */
        uint32_t key;      /* 0: empty; else counts up with each use of the entry */
        /* reach.h; the same on all ranks, but for `gpus`. */
        uint64_t session[STAGING_RANKS_MAX]; /* of each rank; only with reach_bytes */
        uint64_t reach_bytes; /* requests that read or write so much of a rank's memory try to reach; 0: none does */
        uint64_t gpus;        /* a bit for each GPU that the other ranks are on */
        uint64_t far;         /* a bit for each rank of another node (wire.h) */
        uint32_t freeze;      /* 1: with `abort`, what peers may be reaching is not answered yet */
        uint32_t held;        /* 1: its tasks are counted while its ring is limited */
        uint64_t burst_bytes; /* of requests that reach, those of so many are bursts (burst.h); 0: none is */
};

struct table_handle {
        uint32_t ring;
        uint32_t handle;
        uint32_t rank; /* index in ranks */
        uint32_t key;  /* 0: empty, 1: taken out (search goes on), 2: valid */
};

struct table_buffer {
        uint64_t address; /* as mapped here */
        uint64_t bytes;
        uint64_t gpus; /* a bit for each other GPU whose executor has it mapped; a change is a version (changes) */
        uint32_t ring;
        uint32_t id;
        uint32_t zero;
        uint32_t key; /* as above */
};

/* Memory of sessions on other GPUs, as mapped here. A buffer is entered before its own GPU's `gpus` says so, and taken
 * out by a version of its own. */
struct table_reach {
        uint64_t address;
        uint64_t bytes;
        uint64_t session;
        uint32_t id;
        uint32_t key; /* as above */
};

/* Plan of an operation by request bytes: the first whose max_bytes is not exceeded. */
struct table_choice {
        uint64_t max_bytes;
        uint32_t plan;      /* index in plans; 0: none */
        uint32_t transport; /* enum staging_transport */
};

struct table_choices {
        struct table_choice choice[TABLE_OPERATIONS][TABLE_CHOICES];
};

/* What a version changed, at [version % TABLE_CHANGES]. */
struct table_change {
        uint32_t version; /* not this version's: it changed more than can be said here */
        uint32_t ring;    /* of the buffer that it took out or changed; TABLE_RINGS: something in `reach` went */
        uint32_t id;
        uint32_t again; /* as version: the entry is whole, though read in halves */
};

struct table {
        uint32_t version; /* polled by every worker */
        uint32_t stop;    /* TABLE_STOP_SERVED: each worker ends when it has nothing to do; others than 0: at once */
        uint32_t n_rings; /* entries that may be in use */
        uint32_t zero;
        uint64_t bursts; /* struct burst_queue of this GPU, which no copy of the control thread's touches */
        uint64_t copies; /* bursts of so many bytes that add nothing up are copies (copies.h); 0: none is */
        struct table_change changes[TABLE_CHANGES];
        struct table_ring rings[TABLE_RINGS];
        struct table_rank ranks[TABLE_RANKS];
        struct table_handle handles[TABLE_HANDLES];
        struct table_choices choices[TABLE_SETS];
        struct plan
                plans[TABLE_PLANS]; /* verified; phases PUSH, REDUCE, COPY, SIGNAL and WAIT, or with programs PASS */
        struct table_buffer buffers[TABLE_BUFFERS];
        struct table_reach reach[TABLE_REACH];
        struct program_row rows[TABLE_PLANS]; /* of each plan */
        union program_entry programs[TABLE_PROGRAMS];
};

static inline
#if defined(__HIP__) || defined(__CUDACC__)
        __attribute__((host)) __attribute__((device))
#endif
        uint32_t
        table_hash(uint32_t ring, uint32_t id) {
        return (ring * 0x9e3779b1u) ^ (id * 0x85ebca6bu) ^ (id >> 15);
}

static inline
#if defined(__HIP__) || defined(__CUDACC__)
        __attribute__((host)) __attribute__((device))
#endif
        uint32_t
        table_reach_hash(uint64_t session, uint32_t id) {
        return table_hash((uint32_t)session ^ (uint32_t)(session >> 32), id);
}

/* What a lane of a rank has come to. Private to the executor. */
struct lane_state {
        uint32_t sequence; /* lane 0: last comm sequence it has taken */
        uint32_t broken;   /* lane 0: status of the first mismatch; nothing succeeds after it. 0: none */
        uint64_t
                verdict; /* of the request whose sequence % STAGING_LANES is this lane (burst.h): sequence << 32 | .. */
        uint32_t zero[28];
};

/* Chunks of one channel pushed and taken so far, by peer. */
struct channel_state {
        uint32_t pushed[STAGING_RANKS_MAX];
        uint32_t taken[STAGING_RANKS_MAX];
};

/* All of one rank. */
struct lane_states {
        struct lane_state lane[STAGING_LANES];
        struct channel_state channel[STAGING_CHANNELS]; /* staging_channel() */
};

/* What the copy engines are to move for one burst (copies.h). */
struct table_copies {
        uint32_t withdrawn; /* the last number at this place that was taken back, or one before the present one */
        uint32_t n;         /* pieces, in the order in which they are to be moved */
        struct {
                uint64_t from, to, bytes; /* as mapped here; 0 bytes: none */
        } piece[TABLE_COPIES];
};

/* What the thread that launches bursts answers: number << 32 | .. */
enum table_begun {
        TABLE_BEGUN_YES = 1,    /* it moves them, unless it finds them taken back */
        TABLE_BEGUN_PASSED = 2, /* it found them taken back, and does nothing */
};

/* Host memory that the GPU writes and the control thread polls (but for `begun`, which is the other way round). */
struct table_report {
        uint32_t acknowledged[TABLE_WORKERS_MAX]; /* version, by worker */
        uint32_t zero[16];
        struct {
                uint32_t rung;     /* comm sequence that lane 0 has begun */
                uint32_t finished; /* ... and finished */
                uint32_t status;   /* first error that a lane found (ring_status), 0: none */
                uint32_t operation;
        } rank[TABLE_RANKS];
        uint32_t kept[TABLE_WORKERS_MAX];       /* tasks that a worker put aside when its kernel ended */
        uint32_t kept_rings[TABLE_WORKERS_MAX]; /* whose they are: a bit for each ring */
        /* Of limited rings, with each acknowledgement: tasks of held ranks << 32 | next ring sequence to be taken. */
        uint64_t level[TABLE_WORKERS_MAX][TABLE_RINGS];
        /* Of each ring, when its kernel ended: the next ring sequence that a worker would have looked for. */
        uint32_t next[TABLE_WORKERS_MAX][TABLE_RINGS];
        /* Of bursts to be launched, at [number % TABLE_BURSTS]: number << 32 | TABLE_BURST_COPIES | KiB of the request.
         */
        uint64_t burst[TABLE_BURSTS];
        struct table_copies copies[TABLE_BURSTS]; /* of those with TABLE_BURST_COPIES */
        uint64_t zero_before[8];                  /* lines of its own for what the host writes */
        uint64_t begun[TABLE_BURSTS];
        uint64_t zero_after[8];
};

#define TABLE_BURST_COPIES (UINT32_C(1) << 31)
