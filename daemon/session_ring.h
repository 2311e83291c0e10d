/* SPDX-License-Identifier: MIT */
#pragma once
/* The request ring of one session on one GPU: two memfds and an eventfd, all made here. */
#include "daemon/attachment.h"
#include "daemon/device_memory.h"
#include "util/charge.h"
#include <stddef.h>
#include <stdint.h>

struct call;
struct session;

enum {
        _SESSION_RING_E_SUCCESS,
        SESSION_RING_E_LIMIT,    /* text says which */
        SESSION_RING_E_RESOURCE, /* no fd or memory is left; text says what */
};

struct session_ring {
        struct session_ring *next, *prev;
        struct session *session;

        uint32_t gpu;
        uint32_t depth;
        uint32_t argument_bytes;
        uint64_t bytes;            /* of both areas */
        struct device_memory area; /* on a GPU: the client's bell area; the client area here only goes with it */

        int client_fd, executor_fd, event_fd; /* executor_fd: -1 on a GPU, see session_ring_executor_fd */
        struct attachment attachment;
        struct call *calls; /* RingOpen calls that wait for the executor */
        uint32_t state_slot;

        struct charge charge_ring, charge_fds, charge_bytes;
};

int session_ring_new(struct session *session, uint32_t gpu, const struct device_memory *area, char *text,
                     size_t text_size, struct session_ring **ret_ring);
/* From the state: the fds are taken over on success (executor_fd -1 on a GPU). */
int session_ring_adopt(struct session *session, uint32_t gpu, uint32_t depth, uint32_t argument_bytes,
                       const struct device_memory *area, int client_fd, int executor_fd, int event_fd,
                       uint32_t state_slot, struct session_ring **ret_ring);
/* What its executor writes: the executor area, or the GPU's latch, which all its rings share. The owner keeps it. */
int session_ring_executor_fd(const struct session_ring *ring);
struct session_ring *session_ring_free(struct session_ring *ring);
struct session_ring *session_ring_find(struct session *session, uint32_t gpu);
/* Mask of the executors that must have it. */
uint64_t session_ring_needed(const struct session_ring *ring);
/* An executor acknowledged it (code 0) or refused it. Answers waiting calls when all have. */
void session_ring_attached(struct session_ring *ring, uint64_t mask, uint32_t code, const char *message);
void session_ring_reply(struct session_ring *ring, uint64_t id);
