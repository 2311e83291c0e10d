/* SPDX-License-Identifier: MIT */
#pragma once
/* Where the objects meet the state memfd and the fd store: one function per object writes all that a successor needs.
 */
#include <stdint.h>

struct buffer;
struct comm;
struct manager;
struct session;
struct session_life;
struct session_ring;

enum {
        _RECORD_E_SUCCESS,
        RECORD_E_RESOURCE, /* it cannot be recorded; nothing was left behind */
};

int record_session(struct session *session);
void record_life(struct session_life *life); /* no part of it: one that is lost only costs time */
int record_ring(struct session_ring *ring);
int record_buffer(struct buffer *buffer);
void record_buffer_fd(struct buffer *buffer); /* part of it */
/* The marks go to the store when they are made, the records when all executors have the comm. */
int record_marks(struct comm *comm);
int record_comm(struct comm *comm);

/* All of these leave things as they are while the manager is stopping. */
void record_drop_session(struct session *session);
void record_drop_life(struct session_life *life);
void record_drop_ring(struct session_ring *ring);
void record_drop_buffer(struct buffer *buffer);
void record_drop_comm(struct comm *comm);

/* In-place changes. */
void record_next_handle(struct session *session);
void record_comm_status(struct comm *comm); /* sticky error, epoch, lost */
void record_comm_stand(struct comm *comm);  /* does it stand still while an executor is replaced */
void record_splits_done(struct comm *comm);
struct comm_member;
void record_leave(struct comm_member *member);

/* Waits until the service manager has everything stored so far. Trouble is logged once. */
void record_barrier(struct manager *manager);
