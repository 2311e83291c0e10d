/* SPDX-License-Identifier: MIT */
#pragma once
/* A thread that works on one strand of wires (wires.h). Everything here is the control thread's to call. See proxy.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct wires;

struct proxy {
        pthread_t thread;
        pthread_mutex_t lock; /* all below but `waiting` */
        pthread_cond_t some;  /* there is work again, or no more ever */
        bool running;         /* the thread has been made; control thread's own */
        bool stop;
        _Atomic uint32_t waiting; /* the control thread wants the lock */
        uint32_t turn;            /* the wires that the next look begins with */
        struct wires **wires;
        uint32_t n_wires, max_wires;
};

void proxy_init(struct proxy *proxy);
/* Ends the thread; all wires have been removed, or nobody looks at them any more. */
void proxy_deinit(struct proxy *proxy);
/* From now on the thread works on them; it is made with the first. They stay the caller's. -errno, with a sentence. */
int proxy_add(struct proxy *proxy, struct wires *wires, char *error);
/* When it returns the thread touches them no more. False: they were not there. */
bool proxy_remove(struct proxy *proxy, const struct wires *wires);
