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
        uint64_t parked_ns; /* since when */
        atomic_bool stop;   /* set by the control thread */
        _Atomic int failed; /* negative errno: the device cannot be used from the thread */
        uint32_t kib;       /* of the largest burst that adaptive.c has not heard of; 0: none */
};

/* Control thread only, without the plane's lock. Last of all that is made, first of all that ends. */
int watch_open(struct watch *watch, struct plane *plane, char *error);
void watch_close(struct watch *watch);
/* -EIO: it could not begin. */
int watch_check(const struct watch *watch, char *error);
