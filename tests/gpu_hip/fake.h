/* SPDX-License-Identifier: MIT */
#pragma once
/* What tests want of the runtime in fake.c, and of the kernel in it. One at a time; not thread-safe but where said. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/plane.h"

#define FAKE_WORKERS      4u /* of a block */
#define FAKE_BURSTS       64u
#define FAKE_BURST_BLOCKS 17u /* of a slice */

#define FAKE_COPIES 64u
#define FAKE_PINNED 64u

struct fake_burst {
        uint32_t number, n_blocks;
        const void *stream;
};

/* What a stream was given: a copy, or, with bytes == 0, a word that is to be written. */
struct fake_copy {
        const void *stream;
        void *to;
        const void *from;
        size_t bytes;
        uint32_t value;
};

struct fake {
        /* for tests to set */
        int n_devices;              /* < 0: no driver */
        size_t free_bytes;          /* of GPU memory */
        size_t refuse_above;        /* larger allocations fail; 0: none does */
        bool refuse_host;           /* pinned memory cannot be had */
        uint32_t mark_elsewhere;    /* memory that begins with this word lies on another GPU; 0: none does */
        void *elsewhere;            /* what is pinned next the device sees here: a client has punched a hole */
        _Atomic bool refuse_launch; /* kernels cannot be launched */
        bool lost;                  /* the context is */
        _Atomic bool no_waits;      /* the runtime knows no waits for words */
        /* Of writes of words to pinned memory, counted from here, this one and those after it fail; 0: none does. */
        _Atomic uint32_t refuse_words;
        _Atomic bool no_room;          /* what has waited for a word does not begin */
        _Atomic bool deaf;             /* workers do not acknowledge */
        _Atomic bool not_begun;        /* the first block is there, the others wait for room, and so does the end */
        _Atomic bool deaf_to_stop;     /* the kernel does not end */
        _Atomic bool has_work;         /* it does not end when it is to do so after its work */
        _Atomic bool dies;             /* the kernel ends by itself */
        _Atomic uint32_t kept;         /* tasks put aside by the last worker when it ends */
        _Atomic uint32_t kept_rings;   /* whose they are, a bit each; 0: of all */
        void (*at_look)(void);         /* runs at each look at a stream */
        void (*at_pause)(void);        /* whenever the control thread pauses */
        void (*at_collision)(void);    /* runs when memory cannot be mapped in the place of other memory */
        void (*_Atomic at_stop)(void); /* runs in the kernel's thread before it ends */
        /* Runs there too: what a worker says of a limited ring. */
        uint64_t (*_Atomic at_level)(uint32_t worker, uint32_t ring, uint32_t limit);

        /* for tests to look at */
        uint32_t violations; /* calls that would have waited for the kernel's end while it ran, and misuse */
        uint32_t n_open;     /* IPC handles and mapped descriptors open now */
        uint32_t opens, closes, collisions;
        _Atomic uint32_t launches; /* kernels that have begun */
        _Atomic bool wide;         /* the last that was launched has room for many ranks */
        uint32_t n_allocations;
        uint32_t n_pinned; /* pieces of the program's own memory */
        struct {
                void *address;
                size_t bytes;
        } pinned[FAKE_PINNED];
        _Atomic bool running;
        _Atomic bool queued;            /* a kernel is there that waits for a word */
        _Atomic bool ended;             /* its thread has, and nobody has looked at its stream yet */
        _Atomic uint32_t version;       /* that the kernel has seen */
        _Atomic unsigned long slack_ns; /* that a thread has asked for; 0: none has */
        struct {
                _Atomic bool refuse; /* for tests to set */
                _Atomic uint32_t n;
                struct fake_burst launch[FAKE_BURSTS]; /* the first n */
        } bursts;
        struct { /* from device to device, and words; nobody executes them */
                _Atomic uint32_t
                        refuse;        /* for tests to set: which is refused; the first, with words, is 1, 0: none is */
                _Atomic bool no_words; /* for tests to set: the runtime knows no writes of words */
                _Atomic uint32_t asked; /* so many were asked for, the refused one too */
                _Atomic uint32_t n;
                struct fake_copy copy[FAKE_COPIES]; /* the first n */
        } copies;
};
extern struct fake fake;

void fake_reset(void);
/* Everything has been given back, nothing was misused. */
void fake_assert_clean(void);
/* The monotonic clock, which else goes only when the control thread pauses. */
void fake_clock_advance_ms(uint64_t ms);
void fake_clock_advance_us(uint64_t us);

/* Waits for the kernel's thread, which ends by itself (dies). */
void fake_reap(void);

#define FAKE_HANDLE_ADDRESS 8u /* where an IPC handle has its address */
/* Memory of a "client", zeroed; memory->handle names it. */
void *fake_client_alloc(size_t bytes, struct plane_memory *ret_memory);
void fake_client_free(void *address);
/* Frees it, though the executor may have it mapped, and allocates not more bytes, which come to lie in the same place.
 */
void fake_client_replace(void *address, size_t bytes, struct plane_memory *ret_memory);
