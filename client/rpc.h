/* SPDX-License-Identifier: MIT */
#pragma once
/* Calls to railmuxd over the session socket. See rpc.c for who reads the socket when. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/session.pb-c.h"

#define RPC_NO_DEADLINE UINT64_MAX
#define RPC_GPUS_MAX    64u /* of which an answer keeps the PCI addresses */
#define RPC_PCI_BYTES   32u
#define RPC_RANKS_MAX   64u /* of a communicator */

/* An answer, copied out of its message: callers never hold memory of the protobuf library. */
struct rpc_answer {
        uint32_t body;  /* body case of the answer */
        uint32_t code;  /* RMX_*; set for FAILURE, else RMX_OK */
        bool truncated; /* FAILURE made here: the daemon may have answered well, but its descriptors were cut off */
        char text[256]; /* FAILURE: the daemon's sentence */
        union {
                struct {
                        uint32_t version;
                        uint32_t gpus;
                        uint64_t session;
                        uint64_t features;
                        char backend[16];
                        uint32_t n_pci;
                        char pci[RPC_GPUS_MAX][RPC_PCI_BYTES];
                } hello;
                struct {
                        uint32_t gpu;
                        uint32_t depth;
                        uint32_t argument_bytes;
                } ring;
                struct {
                        uint32_t buffer;
                        uint64_t bytes;
                } buffer;
                struct {
                        unsigned char bytes[128];
                } id;
                struct {
                        uint32_t handle;
                        uint32_t n_ranks;
                        uint32_t rank;
                        uint32_t gpu;
                        uint32_t epoch;
                        uint64_t exchange_min, exchange_max; /* bytes; 0, 0: none */
                        uint32_t n_placed;                   /* ranks of which the node follows; 0: there is one node */
                        uint8_t node[RPC_RANKS_MAX];
                } comm;
        };
        int fds[FRAME_FDS_MAX]; /* the call's owner closes them */
        unsigned int n_fds;
};

enum {
        _RPC_E_SUCCESS,
        RPC_E_LOST,    /* the connection is closed */
        RPC_E_TIMEOUT, /* the call's deadline has passed; an answer that still comes is a stray */
        RPC_E_TOO_LARGE,
        RPC_E_CANCELLED, /* another thread has given it up; as with RPC_E_TIMEOUT */
};

/* One call; lives on its caller's stack and begins as zeroes. The message must stay unchanged until rpc_call returns:
 * it may be sent again.
 */
struct rpc_call {
        Railmux__Session__Message *message;
        unsigned int n_fds;  /* how many descriptors a good answer carries */
        const int *send_fds; /* descriptors that go with the message */
        unsigned int n_send_fds;
        void (*on_answer)(struct rpc_call *call); /* may be NULL; runs in the reading thread under rpc->mutex */
        void *userdata;
        struct rpc_answer answer;

        /* private to rpc.c */
        struct rpc_call *next, *prev;
        pthread_cond_t changed;
        uint64_t id;
        bool sent; /* since the daemon was last replaced; others may read this and the next when the call is over */
        bool ever_sent; /* to this one or another before it */
        bool done;
        bool polling;   /* its thread sleeps in poll(2) */
        bool called;    /* ... and finds one in wake_fd that is its own */
        bool cancelled; /* also before it is made */
        int condition;  /* RPC_E_* when done without an answer */
};

/* A message for whose answer nobody waits: one that waits for room in the socket, or is to be sent again. */
struct rpc_post {
        struct rpc_post *next, *prev;
        Railmux__Session__Message *message;
        bool sure; /* kept until it is answered */
        bool sent;
};

struct rpc {
        pthread_mutex_t mutex; /* guards everything here; never held while blocking */
        int fd;
        int wake_fd;  /* a semaphore: one for each thread that is called back from poll(2), taken by itself */
        void *packet; /* the one that is being sent or was received */
        uint64_t next_id;
        struct rpc_call *calls; /* unanswered, oldest first */
        struct rpc_post *posts; /* those that are unsent go before any call; oldest first */
        bool polling;           /* some thread sleeps in poll(2) and will read for all */
        bool no_memory;         /* the kernel had none for what was sent last */
        bool initialised;
        _Atomic uint64_t lost_ns; /* when end of file, or a broken stream, was seen; 0: not */
        /* Both run in the reading thread under mutex. A stray is an answer that nobody waits for (any more). */
        void (*on_event)(void *userdata, const Railmux__Session__Event *event);
        void (*on_stray)(void *userdata, const struct rpc_answer *answer);
        void *userdata;
};
#define RPC_INIT                                                                                                       \
        { .fd = -1, .wake_fd = -1 }

/* Takes over fd. 0 or negative errno (then fd stays the caller's). */
int rpc_init(struct rpc *rpc, int fd);
void rpc_deinit(struct rpc *rpc);
/* Sends the call and waits for its answer. 0 or RPC_E_*; 0 includes answers of kind FAILURE. */
int rpc_call(struct rpc *rpc, struct rpc_call *call, uint64_t deadline_ns);
/* Ends a call that waits in another thread, or that it is about to make, with RPC_E_CANCELLED. Never blocks. */
void rpc_cancel(struct rpc *rpc, struct rpc_call *call);
/* Sends without waiting: for tidying up what nobody waits for. If the socket has no room, a copy goes as soon as there
 * is some if a thread waits for an answer, or when one calls, waits or looks; before all that is called later. Caller
 * holds mutex. */
void rpc_post_locked(struct rpc *rpc, Railmux__Session__Message *message);
/* The same, but kept until it is answered: a daemon that takes over gets it again. For messages that may be said twice
 * whatever was called since. Caller holds mutex. */
void rpc_post_sure_locked(struct rpc *rpc, Railmux__Session__Message *message);
/* Reads what is there, without blocking. */
void rpc_pump(struct rpc *rpc);
/* When the connection was found closed; 0: it is open as far as we know. */
uint64_t rpc_lost_ns(struct rpc *rpc);
static inline bool rpc_lost(struct rpc *rpc) {
        return rpc_lost_ns(rpc) != 0;
}
