/* SPDX-License-Identifier: MIT */
#pragma once
/* The thread that sees to what cannot wait for a tick: bursts, wake words, kernels that end. See watch.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct plane;

struct watch {
        struct plane *plane;
        pthread_t thread;
        bool running;       /* the thread */
        bool parked, left;  /* the plane, when last looked at */
        bool queued;        /* ... with a kernel that clients let go by themselves, */
        bool vacant;        /* ... or without communicators */
        uint64_t parked_ns; /* since when */
        atomic_bool stop;   /* set by the control thread */
        _Atomic int failed; /* negative errno: the device cannot be used from the thread */
        int epoll_fd;       /* of what clients write before they ring after a silence */
        bool soon;          /* one has, since leave.c heard of it last */
        uint64_t soon_ns;   /* when one did last */
        uint32_t kib;       /* of the largest burst that adaptive.c has not heard of; 0: none */
};

/* Control thread only, without the plane's lock. Last of all that is made, first of all that ends. */
int watch_open(struct watch *watch, struct plane *plane, char *error);
void watch_close(struct watch *watch);
/* -EIO: it could not begin. */
int watch_check(const struct watch *watch, char *error);
/* Listens to an eventfd that a client writes (plane.h, ring_attach), by a descriptor of its own, which is returned; -1:
 * not at all, which only makes that client's wakes later. Until watch_close. */
int watch_listen(struct watch *watch, int fd);
/* Takes what watch_listen returned. */
void watch_unlisten(struct watch *watch, int fd);
