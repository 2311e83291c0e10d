/* SPDX-License-Identifier: MIT */
#pragma once
/* A GPU plug-in of the library that is made of host memory, and what tests see and script of it. See fake_gpu.c. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/gpu.h"

#define FAKE_GPU_SYMBOL   "fake_gpu"
#define FAKE_GPU_QUEUES   "FAKE_GPU_MAX_QUEUES" /* 8 unless it is set */
#define FAKE_GPU_BLOCKS   256u
#define FAKE_GPU_LAUNCHES 512u
#define FAKE_GPU_GONE     64u
#define FAKE_GPU_PULLED   8u
#define FAKE_GPU_DEVICES  4u /* PCI "0000:0N:00.0", N from 0; their numbers are 3 - N */

enum fake_gpu_kind {
        FAKE_GPU_CALL,
        FAKE_GPU_START,
        FAKE_GPU_WAIT,
        FAKE_GPU_ORDER,
        FAKE_GPU_COPY,
        FAKE_GPU_MARK,
        FAKE_GPU_BEHIND,   /* what bell.after is the number of */
        FAKE_GPU_HANDLE,   /* of no stream */
        FAKE_GPU_EXCHANGE, /* exchange_call */
        FAKE_GPU_SET,      /* a flag */
        FAKE_GPU_AWAIT,
};

/* Memory that the plug-in says is there. */
struct fake_gpu_block {
        uint64_t base, bytes, id;
        uint32_t residence;
        int32_t device;
        bool secret; /* cannot be exported */
        bool chunk;
        uint64_t range;
};

/* Whatever was put on a stream. */
struct fake_gpu_launch {
        uint32_t kind;
        void *stream;
        const void *from; /* order, copy */
        void *to;         /* copy */
        size_t bytes;
        uint32_t flag;               /* set, await */
        struct client_gpu_bell bell; /* argument points to the next member; of a mark: slot and number */
        uint64_t argument[CLIENT_GPU_ARGUMENTS];
};

/* What an exported handle holds. */
struct fake_gpu_handle {
        uint64_t base, id;
};

struct fake_gpu {
        pthread_mutex_t mutex; /* guards everything; tests may also look while nobody calls */
        struct fake_gpu_block block[FAKE_GPU_BLOCKS];
        uint32_t n_blocks;
        struct fake_gpu_launch launch[FAKE_GPU_LAUNCHES];
        uint32_t n_launches;
        uint32_t opened, closed, released, ended, hidden_device;
        uint32_t exports;
        uint32_t located;
        void (*at_export)(struct fake_gpu *gpu, uint32_t n); /* of a chunk, before the n-th */
        void (*at_export_whole)(void);                       /* of an allocation; without the mutex */
        uint32_t allocated, freed;
        void *gone[FAKE_GPU_GONE]; /* streams; see fake_gpu_stream_destroy */
        uint32_t n_gone;
        uint32_t asked;      /* how often it was asked how far a communicator has come */
        uint32_t exchanges;  /* opened */
        uint32_t max_blocks; /* of the last one */
        uint32_t n_pairs;    /* of the last exchange_pairs, and */
        struct client_gpu_bell pairs[CLIENT_GPU_PAIRS];
        uint32_t connected; /* and all areas mapped */
        uint32_t stopped;   /* calls of exchange_stop */
        uint32_t reusable;  /* closed with `over` */
        uint32_t kept;      /* closed without */
        uint32_t gathers;   /* of bootstraps, that have ended */

        uint32_t captures; /* begun with fake_gpu_capture */
        struct fake_gpu_pulled {
                void *stream, *origin;
        } pulled[FAKE_GPU_PULLED]; /* streams that came into the captures of others, by order */
        uint32_t n_pulled;

        /* script */
        void *capturing, *capturing_too;      /* these streams are; see fake_gpu_capture */
        int fail_set, fail_await;             /* what the next one returns */
        uint32_t status;                      /* of the next request that is waited for, */
        uint32_t status_after;                /* but for so many before it */
        bool hold;                            /* waits do not end */
        bool stuck;                           /* calls, starts and marks do not end */
        bool stuck_marks;                     /* marks, and what is behind them */
        int fail_attach;                      /* what the next attach returns */
        int fail_mark;                        /* what the next mark returns */
        int fail_copy;                        /* what the next copy returns */
        int fail;                             /* what the next launch returns, */
        uint32_t fail_after;                  /* but for so many before it */
        bool lost;                            /* the context is */
        uint32_t cannot_open, cannot_connect; /* a bit for each rank: an exchange */
        uint32_t old_ranks;                   /* bits: whose library has other requests that are made of others */
        uint32_t stuck_gather;                /* the bootstrap's gather, counted from 1, that does not end; 0: none */
        uint32_t (*group)(uint32_t handle);   /* of the ranks of one communicator; NULL: there is one at a time */
        bool no_streams;                      /* own_stream has none */
        bool untold;                          /* nothing tells the end of the next exchange */
};

/* In the tests: the plug-in that $RAILMUX_CLIENT_PLUGIN names, as at first. */
struct fake_gpu *fake_gpu_load(void);
/* Says that there is memory at this address. */
struct fake_gpu_block *fake_gpu_add(struct fake_gpu *gpu, const void *base, size_t bytes, uint64_t id);
/* From now on these streams are being captured, NULL: none. As with a runtime, what is behind a captured stream is in
 * the same capture; and the process dies if one capture is mixed with another one, or with what runs at once. */
void fake_gpu_capture(struct fake_gpu *gpu, void *stream, void *too);
/* From now on the process dies if the stream is touched, as with a runtime. */
void fake_gpu_stream_destroy(struct fake_gpu *gpu, void *stream);
/* Launch i, counted from 0. */
const struct fake_gpu_launch *fake_gpu_launched(struct fake_gpu *gpu, uint32_t i);
