/* SPDX-License-Identifier: MIT */
#pragma once
/* A client of railmuxd without the library and without its manners. For forked children: no call fails a cmocka test.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/frame.h"
#include "proto/session.pb-c.h"
#include "ring/ring.h"

/* What came, beyond the numbers of a message's body. */
enum {
        WIRE_ENDED = -1,  /* railmuxd closed the connection */
        WIRE_SILENT = -2, /* nothing came in time */
};

struct wire {
        int fd; /* -1: not connected */
        uint64_t next_id;
        uint64_t session;
        uint32_t gpus;
};

/* A message taken apart. */
struct wire_answer {
        int body; /* RAILMUX__SESSION__MESSAGE__BODY_* or WIRE_* */
        uint64_t id;
        uint32_t code; /* of a Failure */
        uint32_t version, depth, argument_bytes, handle, epoch;
        uint64_t bytes;
        uint8_t comm_id[128];
        int fds[FRAME_FDS_MAX]; /* the receiver's to close: wire_answer_close */
        unsigned int n_fds;
};

struct wire_ring {
        int client_fd, executor_fd, event_fd;
        struct ring_layout layout;
        void *client_area;
        const void *executor_area;
        struct ring_producer producer;
};

/* Room for any message of this file, packed. */
#define WIRE_PACKED_MAX 512u

/* Packed messages: the number of bytes. */
size_t wire_pack_hello(uint8_t *out, uint64_t id, uint32_t min, uint32_t max, uint64_t features, const char *name);
size_t wire_pack_ring_open(uint8_t *out, uint64_t id, uint32_t gpu);
size_t wire_pack_buffer_create(uint8_t *out, uint64_t id, uint32_t buffer, uint64_t bytes);
size_t wire_pack_buffer_destroy(uint8_t *out, uint64_t id, uint32_t buffer);
size_t wire_pack_id_create(uint8_t *out, uint64_t id);
size_t wire_pack_comm_create(uint8_t *out, uint64_t id, const uint8_t comm_id[128], uint32_t n_ranks, uint32_t rank,
                             int32_t gpu);
size_t wire_pack_comm_split(uint8_t *out, uint64_t id, uint32_t parent, uint32_t number, int32_t colour, int32_t key);
size_t wire_pack_comm_destroy(uint8_t *out, uint64_t id, uint32_t handle, uint32_t last_sequence);
size_t wire_pack_life_open(uint8_t *out, uint64_t id);
size_t wire_pack_comm_abort(uint8_t *out, uint64_t id, uint32_t handle);
/* A message of railmuxd's part, or one without a body: which is any number. */
size_t wire_pack_foreign(uint8_t *out, uint64_t id, unsigned int which);

/* Tries again while the listener's queue is full. false: no connection. */
bool wire_connect(struct wire *wire, const char *socket);
/* Connects and says HELLO. false if it was refused or nothing came. */
bool wire_open(struct wire *wire, const char *socket);
void wire_close(struct wire *wire);
/* Waits for room. 0 or the errno of sendmsg; fds may be NULL. */
int wire_send(struct wire *wire, const void *data, size_t size, const int *fds, unsigned int n_fds);
/* The same without waiting: EAGAIN. */
int wire_try_send(struct wire *wire, const void *data, size_t size, const int *fds, unsigned int n_fds);
/* The next message, or WIRE_ENDED, or WIRE_SILENT after timeout_ms (times the time scale). */
struct wire_answer wire_receive(struct wire *wire, uint32_t timeout_ms);
/* Drops other messages until the answer to id comes, within the time that every call gets. */
struct wire_answer wire_await(struct wire *wire, uint64_t id);
/* Sends and awaits. The message must carry *next_id; which is counted on. */
struct wire_answer wire_call(struct wire *wire, const void *data, size_t size);
void wire_answer_close(struct wire_answer *answer);
/* Reads to the end of the connection. false: it does not end. */
bool wire_drain(struct wire *wire);
/* A call that cannot be wrong is answered. */
bool wire_serves(struct wire *wire);

bool wire_ring_open(struct wire *wire, uint32_t gpu, struct wire_ring *ring);
void wire_ring_close(struct wire_ring *ring);
/* Publishes and wakes the executor. false if the slot is taken. */
bool wire_ring_put(struct wire_ring *ring, const struct ring_request *line, uint32_t *ret_sequence);
/* The completion of that line and its slot freed; false after timeout_ms. */
bool wire_ring_take(struct wire_ring *ring, uint32_t sequence, uint32_t timeout_ms, uint32_t *ret_status);
void wire_ring_wake(const struct wire_ring *ring);
