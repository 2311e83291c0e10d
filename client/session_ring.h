/* SPDX-License-Identifier: MIT */
#pragma once
/* The request ring of one (session, GPU), with a record per slot of what is to be done when its request completes. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/argument.h"
#include "ring/ring.h"

struct bounce_region;
struct rmx_comm;
struct rmx_session;

/* What is copied from a region to the user's memory when a request is done. */
struct session_copy {
        void *to;
        const void *from;
        size_t bytes;
};

/* What a request leaves behind for its harvest. Under ring->mutex. */
struct session_slot {
        struct rmx_comm *comm;       /* NULL: nobody will wait for it (an orphan) */
        const char *what;            /* public function, for error texts */
        struct session_copy copy;    /* bytes 0: nothing */
        struct session_copy *copies; /* n_copies more; the slot's own */
        uint32_t n_copies;
        struct bounce_region *regions[2];
        uint32_t argument_offset; /* its block in the argument space; 0: none */
        uint32_t argument_bytes;
        uint32_t sequence;
        pthread_t caller; /* the thread that published it */
        bool busy;        /* published and not harvested */
        bool attended;    /* a thread sleeps on it now, or will in a moment: it comes free without our doing */
};

struct session_ring {
        struct rmx_session *session;
        uint32_t gpu;
        pthread_mutex_t mutex; /* producer, slots, arguments */
        pthread_cond_t released;
        struct ring_producer producer;
        struct session_slot *slots; /* [depth] */
        struct argument_space arguments;
        int wake_fd;
        void *client_area;
        void *executor_area;
};

/* A request to be published. */
struct session_item {
        struct session_ring *ring;
        struct ring_request line;
        struct session_slot slot; /* comm, what, copies, regions, attended */
        void *argument;           /* the block in private memory; the sequences of a group are written here */
        uint32_t argument_bytes;
        uint32_t sequence; /* set by session_ring_publish */
};

enum {
        _SESSION_RING_E_SUCCESS,
        SESSION_RING_E_FULL,     /* the next slot's earlier request was not waited for */
        SESSION_RING_E_ARGUMENT, /* the argument space is taken by requests that were not waited for */
        SESSION_RING_E_FAILED,   /* the comm has a sticky error */
        SESSION_RING_E_UNKNOWN,  /* no such request is outstanding */
        SESSION_RING_E_CUT,      /* its comm is cut off; the request was abandoned */
};

/* The session's ring of that GPU; opened on first use, for which the daemon has until the deadline, or until the cancel
 * (NULL: none) is set. RMX_*; text set. */
int session_ring_get(struct rmx_session *session, const char *what, uint32_t gpu, struct rmx_cancel *cancel,
                     uint64_t deadline_ns, struct session_ring **ret_ring);
struct session_ring *session_ring_free(struct session_ring *ring); /* returns NULL */

/* Gives the requests their sequences and publishes all of them in their order, or none. attended: the calling thread
 * waits for them at once. 0 or SESSION_RING_E_FULL, _ARGUMENT, _FAILED; then *ret_item is the item that it is about.
 * No ring may be asked for more than its depth at once. */
int session_ring_publish(struct session_item *items, uint32_t n_items, const struct session_item **ret_item);
/* Is the request outstanding and somebody's? Notes whether a thread sleeps on it from now on. 0 or
 * SESSION_RING_E_UNKNOWN. */
int session_ring_attend(struct session_ring *ring, uint32_t sequence, bool attended);
/* Takes the record of a completed request and frees its slot. 0 or SESSION_RING_E_UNKNOWN. */
int session_ring_harvest(struct session_ring *ring, uint32_t sequence, struct session_slot *ret_slot);
/* Gives back what a slot holds but its place in the ring: regions and list of copies. */
void session_slot_drop(struct rmx_session *session, struct session_slot *slot);
/* Nobody will wait for this request any more; its slot and regions come free when it completes, if it does. */
void session_ring_abandon(struct session_ring *ring, uint32_t sequence);
/* For a thread that waits: 0, SESSION_RING_E_UNKNOWN, or SESSION_RING_E_CUT. */
int session_ring_check(struct session_ring *ring, uint32_t sequence);
/* Publishes a line that concerns no comm: an executor that serves the ring answers it at once, and nobody else notices.
 * If the ring is full, the request in the way of it stands for it. Returns the sequence. */
uint32_t session_ring_ask(struct session_ring *ring);
/* Was it answered? */
bool session_ring_answered(struct session_ring *ring, uint32_t sequence);
/* The oldest outstanding request of a comm. False if there is none. */
bool session_ring_oldest(struct session_ring *ring, const struct rmx_comm *comm, uint32_t *ret_sequence);
