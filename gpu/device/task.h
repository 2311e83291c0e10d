/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What a worker has in hand. A worker is one warp of the resident kernel. It serves the lanes l with
 * l % n_workers == its number, alone: it finds every line by itself, keeps its own copy of what the line says, and
 * shares nothing with other workers but read-only tables. So there is no barrier beyond the warp, and a client that
 * rewrites a line between two looks can make lanes of its own request disagree, but nothing else.
 *
 * A task is one lane's share of one request. Its first few live in shared memory, the others in the worker's scratch.
 * Everything that a task needs to go on later (cursors, what of a part is done) is in it, so that a task can be put
 * aside whenever it has to wait, also across the end of a kernel.
 */
#include "gpu/device/bell.h"
#include "gpu/device/order.h"
#include "gpu/device/tables.h"
#include "plan/span.h"
#include "ring/line.h"

#define TASK_PHASES 4u    /* most that a device plan has */
#define TASK_NEAR   4u    /* tasks of a worker in shared memory */
#ifndef TASK_MAX          /* fewer where it shall happen that there are too few */
#define TASK_MAX     256u /* tasks of a worker, a multiple of 64 */
#define TASK_VECTORS 64u  /* argument blocks of all_to_all_v that a worker has in hand, not more than 64 */
#endif
/* Where some ranks are on other nodes a worker looks up when it comes to a part whose number is a multiple of this, or
 * beyond one: a lane has each 135th. A power of two. */
#ifndef TASK_PARTS_FAR /* fewer where it shall happen that there are more */
#define TASK_PARTS_FAR 8192u
#endif
#define TASK_MASKS       (TASK_MAX / 64u)
#define TASK_ALONE       8u /* so many together are no matter */
#define TASK_THREADS_MAX 64u
#define VECTOR_WORDS     6u /* of each rank in it: four of the block, and the parts' sizes (vector.h) */

/* Ranks of a communicator that a worker has room for. With a half of them, twice as many workers have room in a block
 * (gpu/hip/resident.h), which is launched as long as no communicator has more. */
#if defined(RESIDENT_DENSE) || (TARGET_AMD && !defined(RESIDENT_WIDE))
#define WORKER_RANKS STAGING_RANKS_NARROW
#else
#define WORKER_RANKS STAGING_RANKS_MAX
#endif

struct task {
        uint64_t area; /* the bell area */
        uint64_t in, out;
        uint64_t count;
        uint64_t shard; /* elements of one, as plan_shard_elements() has it; 0: the plan has none */
        uint64_t scalar;
        uint64_t call;   /* lane 0: what is called, for the others to compare with */
        uint64_t vector; /* struct plan_vector's arrays and more, private: VECTOR_WORDS * n_ranks words; 0: none */
        uint64_t in_offset, out_offset; /* of in and out in their buffers */
        uint32_t ring;
        uint32_t ring_sequence;
        uint32_t rank; /* index in table.ranks */
        uint32_t sequence;
        uint32_t lane;
        uint32_t plan;
        uint32_t transport;
        uint32_t elements; /* of a part */
        uint32_t operation;
        uint32_t type;
        uint32_t redop;
        uint32_t root;
        uint32_t peer; /* point to point: the other rank */
        uint32_t role; /* enum plan_role; 0: no point to point */
        uint32_t element_bytes;
        uint32_t inlined;
        uint32_t in_buffer, out_buffer; /* whose memory in and out are; 0: nobody's */
        uint32_t access;                /* enum phase_access */
        uint32_t quick;                 /* enum quick_mode; then also: */
        uint32_t stride, total, part_bytes;
        uint32_t reach;              /* enum reach_mode: the ranks ask each other whether they can reach (reach.h) */
        uint8_t reaches;             /* what this rank answers: 0 or 1 */
        uint8_t through;             /* enum staging_transport if they cannot */
        uint16_t spread;             /* data lanes that the parts are dealt out to; all, unless ranks ask for reach */
        uint32_t reached;            /* units of sixteen bytes that this lane has done; or the burst's number */
        uint32_t key;                /* of the rank's entry when the line came */
        uint32_t part[TASK_PHASES];  /* next part of each phase */
        uint32_t parts[TASK_PHASES]; /* of each phase; the lane does every spread-th */
        uint8_t begun;               /* the part in hand of phase `begun - 1` is partly done, see progress */
        uint8_t cache;               /* which of the counter caches */
        uint8_t stage;               /* enum reach_stage */
        uint8_t burst;               /* enum burst_by: if the ranks can reach, lane 1 has it all done by a burst */
        union {
                uint8_t progress[TASK_THREADS_MAX]; /* units of that part that each thread has done */
                uint8_t step[TASK_PHASES];          /* with a program: the next step of each phase's part (pass.h) */
        };
};

/* The rank whose requests come most; one at a time. What struct table_rank says of it, in the order there. */
struct rank_cache {
        uint64_t peer[WORKER_RANKS];
        uint64_t states;
        uint64_t left;
        uint32_t ring;
        uint32_t handle;
        uint32_t rank;
        uint32_t n_ranks;
        uint32_t epoch;
        uint32_t first;
        uint32_t choices;
        uint32_t abort;
        uint32_t last;
        uint32_t has_last;
        uint32_t lanes;
        uint32_t key;
        uint64_t far;
        uint32_t freeze;
        uint32_t index; /* TABLE_RANKS: nothing cached */
};

struct buffer_cache {
        uint64_t address;
        uint64_t bytes;
        uint32_t ring;
        uint32_t id; /* 0: nothing cached */
};

/* Chunks pushed and taken so far on one lane by one transport, by region and peer. */
struct counter_cache {
        uint32_t pushed[STAGING_REGIONS][WORKER_RANKS];
        uint32_t taken[STAGING_REGIONS][WORKER_RANKS];
        uint32_t room[STAGING_REGIONS][WORKER_RANKS]; /* credit when last looked at */
        uint64_t home;                                /* struct lane_state * of the lane; 0: nothing cached */
        uint32_t transport;
        uint16_t lane;
        uint16_t n_ranks;
};

/* How this part meets each peer: computed by thread p for peer p, read by all. */
struct peer_view {
        uint64_t to[WORKER_RANKS];   /* my chunk in its staging */
        uint64_t from[WORKER_RANKS]; /* its chunk in mine */
        uint64_t data[WORKER_RANKS]; /* where its piece lies in the client's memory (inline: packets) */
        uint32_t to_flag[WORKER_RANKS];
        uint32_t from_flag[WORKER_RANKS];
        uint32_t bytes[WORKER_RANKS]; /* of its piece; 0: nothing in this part */
};

/* A line that was valid is valid again while the tables are the same: what it came to is kept as a task of no lane. */
struct memo {
        struct task task;
        uint32_t line[RING_WORDS];
        uint32_t lanes;
        uint32_t ring;  /* TABLE_RINGS: nothing is kept, which no line can be like */
        uint32_t parts; /* most of a phase */
};

/* Of the cached plan (program.h): places in table.programs, 0: none. */
struct pass_cache {
        uint32_t row;     /* its entries; 0: it has no programs */
        uint32_t name;    /* whose program is cached: 1 + the root, and the rank above; 0: none */
        uint32_t program; /* it, of which there is: */
        struct program_phases phases;
        uint32_t at; /* the step that is cached, of which there is: */
        struct program_work step;
};

struct worker_scratch;

/* What a worker is and has; the same for all of its threads, so it lies in shared memory. */
struct worker {
        struct worker_scratch *scratch;
        struct table *table;
        struct table_report *report;
        uint64_t taken[TASK_MASKS]; /* places of tasks in use, a bit each */
        struct memo *memo;          /* what the next line will probably be */
        uint32_t index;
        uint32_t n_workers;
        uint32_t version; /* of the tables, as taken in */
        uint32_t epoch;   /* of far memos that count */
        uint32_t stop;
        uint32_t n_rings;
        uint32_t n_tasks;
        uint32_t turn;  /* the task in the list that is looked at next when there are many */
        uint32_t spins; /* PHASE_SPINS, or fewer while several rings speak */
};

#define WORKER_BUFFERS  4u
#define WORKER_COUNTERS 5u /* lanes whose counters are at hand: those of a worker, if there are 32 workers */
#define WORKER_MEMOS    4u
struct worker_shared {
        struct worker w; /* first: see shared_of() */
        struct task near[TASK_NEAR];
        struct peer_view view;
        struct counter_cache counter[WORKER_COUNTERS];
        struct rank_cache rank;
        struct buffer_cache buffer[WORKER_BUFFERS];
        struct memo memo[WORKER_MEMOS];
        struct table_choice choice[TABLE_CHOICES];
        struct plan plan;
        struct staging_layout layout;
        uint64_t area[TABLE_RINGS];
        uint32_t next[TABLE_RINGS]; /* ring sequence looked for */
        uint32_t key[TABLE_RINGS];
        uint32_t line[RING_WORDS];
        uint32_t waiting[TASK_MAX]; /* task_name() of each task, in the order of arrival */
        uint8_t order[TASK_MAX];    /* the task's place */
        uint32_t cached_plan;
        struct pass_cache pass;  /* what it does where it has programs */
        uint32_t cached_choices; /* choices << 8 | operation; ~0: none */
        struct {
                uint32_t n[3];              /* parts pushed, reduced, copied */
        } left;                             /* of a direct run */
        uint32_t hot;                       /* ring that spoke last */
        uint32_t full;                      /* rings whose next line has to wait for places, a bit each */
        uint64_t vectors;                   /* of the worker's places those that tasks name, a bit each */
        uint16_t held[TABLE_RINGS];         /* places of tasks that a ring's requests have */
        uint16_t held_vectors[TABLE_RINGS]; /* ... of vectors */
        uint32_t limited;                   /* some ring is */
};

#define WORKER_FAR_MEMOS 64u
struct far_memo {
        struct memo memo;
        uint32_t epoch;
};

/* Where the peers' memory was when the same was asked for by all ranks before (reach.h). */
#define WORKER_REACHES   8u /* a power of two */
#define REACH_RANKS_MAX  8u
#define REACH_NAME_WORDS 5u
struct far_reach {
        uint64_t name[REACH_NAME_WORDS]; /* of what this rank asks for, and of the tables */
        uint64_t word[REACH_RANKS_MAX][4];
        uint64_t in[REACH_RANKS_MAX], out[REACH_RANKS_MAX];
};

/* A worker's scratch in global memory: what outlives a kernel, and the far tasks and memos. Zeroed at first. */
struct worker_scratch {
        uint32_t saved; /* 1: the following were written by the kernel before */
        uint32_t n_tasks;
        uint32_t version;    /* of the tables, when it ended */
        uint32_t last, both; /* which ring had spoken last, and whether others spoke at the same time (worker_share) */
        uint32_t next[TABLE_RINGS];
        uint32_t key[TABLE_RINGS];
        uint32_t waiting[TASK_MAX];
        uint8_t order[TASK_MAX];
        uint64_t taken[TASK_MASKS]; /* places in use, a bit each */
        uint64_t vectors[TASK_VECTORS][VECTOR_WORDS * STAGING_RANKS_MAX];
        struct task tasks[TASK_MAX];
        uint32_t epoch; /* the last one */
        struct far_memo memos[WORKER_FAR_MEMOS];
        struct far_reach reaches[WORKER_REACHES];
};

DEVICE struct worker_shared *shared_of(const struct worker *w) {
        return (struct worker_shared *)(void *)const_cast<struct worker *>(w);
}

DEVICE struct task *worker_task(const struct worker *w, uint32_t place) {
        return place < TASK_NEAR ? &shared_of(w)->near[place] : &w->scratch->tasks[place];
}

/* Tasks of one name run one after another: a rank's on a lane, its sends to and its receives from each peer apart. The
 * ring is in it for those who have to know it of many. */
DEVICE uint32_t task_name(const struct task *t) {
        return t->ring << 24 | (t->role ? t->role << 6 | t->peer : 0u) << 16 | t->rank << 8 | t->lane;
}

DEVICE uint32_t task_name_ring(uint32_t name) {
        return name >> 24;
}

/* Is the task of this name one of the rank's, but for sends and receives? */
DEVICE bool task_name_is(uint32_t name, uint32_t rank) {
        return (name >> 8 & 0xffff) == rank;
}

DEVICE uint32_t status_of(uint32_t code, int32_t rank) {
        return code | (uint32_t)(rank + 1) << 16;
}

DEVICE void report_status(const struct worker *w, uint32_t rank, uint32_t status) {
        if (warp_thread() == 0)
                word_store(&w->report->rank[rank].status, status);
}

/* Tells the bell that this lane has done with the request. */
DEVICE void lane_done(uint64_t area, uint32_t ring_sequence, uint32_t lane, uint32_t status) {
        uint64_t *done = (uint64_t *)(area + BELL_OFFSET_DONE) + (ring_sequence % BELL_DEPTH) * BELL_LANES + lane;

        if (warp_thread() == 0)
                cell_store(done, (uint64_t)status << 32 | ring_sequence);
}
