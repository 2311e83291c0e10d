/* SPDX-License-Identifier: MIT */
#pragma once
/* One rank of one communicator. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/device_aside.h"
#include "client/device_streams.h"
#include "client/rpc.h"
#include "railmux/railmux.h"

#define COMM_RANKS_MAX RPC_RANKS_MAX

struct client_gpu_exchange;
struct device;
struct device_nodes;
struct device_region;
struct redop;
struct session_ring;

struct rmx_comm {
        struct rmx_comm *next, *prev; /* session->comms */
        struct rmx_session *session;
        struct session_ring *ring; /* NULL on GPUs */

        /* GPUs. */
        struct device *device;           /* NULL on the host backend */
        uint32_t slot;                   /* of its counters in the bell area */
        void *stream;                    /* that of the last launch with a number; may be gone when that has ended */
        uint32_t number;                 /* of the last launch, see device_call.c; 0: there was none */
        uint32_t tail_cell, tail_turn;   /* the last wait on that stream; turn 0: there is none */
        bool adrift;                     /* something is on a stream, and nothing tells its end */
        struct device_aside aside;       /* where started exchanges are */
        struct device_streams streams;   /* (from `stream` to here: under device->mutex) */
        struct device_region *bounce[2]; /* the largest regions so far, by direction; under device->regions_mutex */
        bool finished;                   /* and nothing of this rank is on the device any more */
        uint64_t exchange_min, exchange_max;  /* bytes of requests that the ranks' own kernels carry out; 0, 0: none */
        struct client_gpu_exchange *exchange; /* set at the end of the join; NULL: there is none */
        bool exchange_pairs;                  /* sends and receives, too */
        uint32_t n_placed; /* ranks of which the daemon has said where they are; 0: all are on one node */
        uint8_t node[COMM_RANKS_MAX];
        /* See device_nodes.c. Changed under rpc.mutex, and at the join and the end only, when nobody makes requests. */
        struct device_nodes *nodes; /* NULL: all requests go as a whole */
        struct rmx_comm *whole;     /* of one that another one is made of: that one; NULL: it is none, or not yet */
        bool spare;                 /* it is one */
        bool spoilt;                /* the whole has failed: others may still exchange with it */
        _Atomic uint64_t vague_ns;  /* of a whole: since when it is known that it has failed, and not why; 0: not */

        uint32_t handle;
        uint32_t n_ranks;
        uint32_t rank;
        uint32_t gpu;

        /* Last sequences: of collectives, of sends to and receives from each rank. Under ring->mutex. */
        uint32_t last_sequence;
        uint32_t sent[COMM_RANKS_MAX];
        uint32_t received[COMM_RANKS_MAX];

        struct rmx_cancel *cancel; /* set by an abort: threads come back that ask the daemon for what a request needs */

        pthread_mutex_t redop_mutex;
        struct redop *redops; /* under redop_mutex */

        _Atomic uint32_t splits; /* rmx_comm_split calls so far */
        _Atomic uint32_t epoch;
        _Atomic uint32_t status; /* sticky error as ring_status(), 0: none */
        _Atomic bool cut;        /* aborted, and nobody answers: requests of this rank end without their executor */
        _Atomic uint32_t end;    /* GPUs: what becomes of kernels that wait, see device_end */
};

static inline uint32_t comm_status(const struct rmx_comm *comm) {
        /* acquire; partner: the release in comm_fail. */
        return atomic_load_explicit(&comm->status, memory_order_acquire);
}
static inline bool comm_is_cut(const struct rmx_comm *comm) {
        /* relaxed; partner: the store in rmx_comm_abort, after that of the status. Only a reason to stop waiting. */
        return atomic_load_explicit(&comm->cut, memory_order_relaxed);
}
static inline uint32_t comm_epoch(const struct rmx_comm *comm) {
        /* relaxed; partner: the store in comm_on_event. The executor takes an old epoch, too. */
        return atomic_load_explicit(&comm->epoch, memory_order_relaxed);
}
/* Sets the sticky error unless there is one. */
void comm_fail(struct rmx_comm *comm, uint32_t status);
/* Sets the error text for a status and returns its code. */
int comm_report(const struct rmx_comm *comm, const char *what, uint32_t status);
/* RMX_E_INVALID unless comm is one and this is its process. */
int comm_check(const struct rmx_comm *comm, const char *what);

/* Events and stray answers; under rpc.mutex. */
void comm_on_event(struct rmx_session *session, const Railmux__Session__Event *event);
void comm_on_stray(struct rmx_session *session, const struct rpc_answer *answer);
/* As rmx_comm_split, with options that were checked; spare: as in the message. */
int comm_split_as(struct rmx_comm *comm, const char *what, int32_t colour, int32_t key, bool spare,
                  const struct rmx_comm_options *options, struct rmx_comm **ret_comm);
/* Waits for what is under way, leaves and frees it. */
int comm_destroy_as(struct rmx_comm *comm, const char *what, uint64_t deadline_ns);
/* rmx_comm_abort. */
int comm_abort_as(struct rmx_comm *comm, const char *what);
/* With rpc.mutex: asks the daemon to end it on all ranks, and does not wait. status: why; the others hear of that if it
 * is a mismatch and a rank, else that this one has aborted it. */
void comm_abort_locked(struct rmx_comm *comm, uint32_t status);
/* Tells the daemon that this rank leaves; after the deadline (0: at once) it does not wait, and the daemon is told when
 * it goes on. RMX_*; text set but at 0. The object stays. */
int comm_leave(struct rmx_comm *comm, const char *what, uint64_t deadline_ns);
/* Unlinks and frees it. */
struct rmx_comm *comm_free(struct rmx_comm *comm);
