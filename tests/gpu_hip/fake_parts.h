/* SPDX-License-Identifier: MIT */
#pragma once
/* What the parts of fake.c have of each other. */
#include <hip/hip_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct operation;

struct fake_stream {
        struct fake_stream *next; /* what a plane leaves behind after a fault can be found here */
        struct operation *first, **last;
        pthread_t kernel;
        bool launched;
        _Atomic bool ended;
        const uint32_t *word; /* that the next kernel waits for, NULL: none */
        uint32_t value;
};
extern struct fake_stream *fake_streams;

/* A call that waits for all kernels of the context. */
void fake_must_be_parked(void);
/* What calls say that may find the context lost. */
hipError_t fake_context(void);
/* So many bytes of an allocation lie from there on, 0: it is none. */
size_t fake_bytes_at(const void *address);
bool fake_is_pinned(const void *at);
/* Is this the test's thread? */
bool fake_is_control(void);
