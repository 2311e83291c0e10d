/* SPDX-License-Identifier: MIT */
#pragma once
/* The request ring of one (session, GPU), with a record per slot of what is to be done when its request completes. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/ring.h"

struct bounce_region;
struct rmx_comm;
struct rmx_session;

/* What a request leaves behind for its harvest. Under ring->mutex. */
struct session_slot {
        struct rmx_comm *comm; /* NULL: nobody will wait for it (an orphan) */
        const char *what;      /* public function, for error texts */
        void *copy_to;         /* NULL: nothing to copy out */
        const void *copy_from;
        size_t copy_bytes;
        struct bounce_region *regions[2];
        uint32_t sequence;
        bool busy;     /* published and not harvested */
        bool attended; /* a thread sleeps on it now, or will in a moment: it comes free without our doing */
};

struct session_ring {
        struct rmx_session *session;
        uint32_t gpu;
        pthread_mutex_t mutex; /* producer and slots */
        pthread_cond_t released;
        struct ring_producer producer;
        struct session_slot *slots; /* [depth] */
        int wake_fd;
        void *client_area;
        void *executor_area;
};

enum {
        _SESSION_RING_E_SUCCESS,
        SESSION_RING_E_FULL,    /* the next slot's earlier request was not waited for */
        SESSION_RING_E_FAILED,  /* the comm has a sticky error */
        SESSION_RING_E_UNKNOWN, /* no such request is outstanding */
};

/* The session's ring of that GPU; opened on first use. RMX_*; text set. */
int session_ring_get(struct rmx_session *session, const char *what, uint32_t gpu, struct session_ring **ret_ring);
struct session_ring *session_ring_free(struct session_ring *ring); /* returns NULL */

/* Gives the request the comm's next sequence and publishes it. attended: the calling thread waits for it at once. 0 or
 * SESSION_RING_E_FULL, _FAILED (nothing happened then). */
int session_ring_publish(struct session_ring *ring, struct ring_request *request, const struct session_slot *slot,
                         uint32_t *ret_sequence);
/* Is the request outstanding and somebody's? Notes whether a thread sleeps on it from now on. 0 or
 * SESSION_RING_E_UNKNOWN. */
int session_ring_attend(struct session_ring *ring, uint32_t sequence, bool attended);
/* Takes the record of a completed request and frees its slot. 0 or SESSION_RING_E_UNKNOWN. */
int session_ring_harvest(struct session_ring *ring, uint32_t sequence, struct session_slot *ret_slot);
/* Nobody will wait for this request any more; its slot and regions come free when it completes, if it does. */
void session_ring_abandon(struct session_ring *ring, uint32_t sequence);
/* The oldest outstanding request of a comm. False if there is none. */
bool session_ring_oldest(struct session_ring *ring, const struct rmx_comm *comm, uint32_t *ret_sequence);
