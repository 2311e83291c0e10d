/* SPDX-License-Identifier: MIT */
#pragma once
/* A plane over the runtime of fake.c, and clients of it. */
#include "fake.h"
#include "gpu/device/bell.h"
#include "gpu/device/tables.h"
#include "gpu/plane.h"

#define FIXTURE_POOL (UINT64_C(32) << 20)

struct client { /* a session */
        uint64_t session;
        struct plane_memory memory;
        unsigned char *area;
        struct bell_host host;
        int soon_fd; /* an eventfd; -1: none */
};

struct fixture {
        const struct plane_ops *ops;
        struct plane *plane;
        const struct table *table; /* on the "device" */
        struct bell_latch *latch;  /* a page */
        char error[PLANE_TEXT];
};

extern const struct plane_ops railmux_gpu_plane;

/* After fake_reset. With RAILMUX_GPU_QUEUE=1 in the environment the plane has the latch, so kernels are queued. */
extern uint64_t fixture_pool_bytes; /* of the next one */
void fixture_open(struct fixture *f, uint32_t policy);
bool fixture_queues(void);
/* Gives it the latch. */
int fixture_latch(struct fixture *f);
/* Closes, and asserts that all has been given back. */
void fixture_close(struct fixture *f);

void client_init(struct client *client, uint64_t session);
void client_deinit(struct client *client); /* the plane must have closed its mapping */
int client_attach(struct fixture *f, struct client *client);
struct bell_header *client_header(const struct client *client);
/* What a bell kernel does for a request of one lane, and what the executor's kernel would answer. */
void client_ring(struct client *client, uint32_t sequence);
void client_answer(struct client *client, uint32_t sequence);
void client_release(struct client *client, uint32_t sequence);

void fixture_tick(struct fixture *f);
/* What a silence of this length leads to, looked at every ten milliseconds. */
void fixture_silence(struct fixture *f, uint32_t ms);
/* Calls tick until the condition holds; fails if a tick does, or if it takes for ever. */
#define fixture_tick_until(f, condition)                                                                               \
        for (uint32_t tick_ = 0; !(condition); tick_++) {                                                              \
                assert_int_equal((f)->ops->tick((f)->plane, (f)->error), 0);                                           \
                assert_in_range(tick_, 0, 100000);                                                                     \
        }

/* The entry with this session, NULL if there is none. */
const struct table_ring *fixture_ring(const struct fixture *f, uint64_t session);
/* What the kernel's search finds. */
const struct table_buffer *fixture_buffer(const struct fixture *f, uint64_t session, uint32_t id);
const struct table_rank *fixture_rank(const struct fixture *f, uint64_t session, uint32_t handle);
