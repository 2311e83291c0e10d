/* SPDX-License-Identifier: MIT */
#pragma once
/* Buffers that executors of other GPUs have mapped besides their own, so that requests read and write them in place.
 * Loop thread. See reach.c. */
#include "proto/executor.pb-c.h"
#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct comm;
struct config;
struct executor_link;
struct executor_op;
struct manager;

/* Of one buffer. Masks of executors, which are of GPUs too: where there is one for each GPU, its index is the number.
 */
struct reach {
        uint64_t present; /* may have it: asked for, and not known to be gone */
        uint64_t asked;   /* REACH_IMPORT is not answered */
        uint64_t mapped;  /* has it */
        uint64_t leaving; /* REACH_RETIRE is not answered */
        uint64_t stale;   /* has other memory under its number, and has to let go of that first */
        uint64_t unsure;  /* was there when the connection broke: the inventory will tell */
        uint64_t refused; /* did not take it, and is not asked again, */
        uint64_t later;   /* but for these, after a while */
        uint32_t tries;

        /* What its own executor counts on (BUFFER_REACH). */
        uint64_t told;     /* was told last, perhaps not heard yet */
        uint64_t believed; /* no more than these */
        uint32_t n_telling;
        bool sure; /* exactly these */
        bool mute; /* it failed at it */
};

/* How many buffers a session may still begin with. */
struct reach_budget {
        uint64_t since_ns; /* 0: not used yet */
        uint32_t left;
};

int reach_new(struct manager *manager); /* its event; 0 or -ENOMEM */
/* The buffer is a predecessor's: its executor may count on any, and each that was there may have it. */
void reach_adopt(struct buffer *buffer);

/* From how many bytes on requests of this comm reach is decided now if none of its executors has been told. All of them
 * are connected. */
void reach_settle(struct comm *comm);
/* If it has ended on all its executors: these may answer requests that were frozen meanwhile. */
void reach_thaw(const struct comm *comm, uint64_t mask);
/* Its executors are being told of the comm. */
void reach_comm(struct comm *comm);
/* Its own executor has the buffer. */
void reach_attached(struct buffer *buffer);
/* Its own executor has let go of it. false: others have not yet; buffer_retired() follows. */
bool reach_end(struct buffer *buffer);

/* Answers; an import that was not sent, since its buffer has gone. */
void reach_done(struct executor_link *link, const struct executor_op *op, const Railmux__Executor__Done *done);
void reach_dropped(struct executor_link *link, const struct executor_op *op);

void reach_inventory(struct executor_link *link, const Railmux__Executor__Inventory *inventory);
/* Its inventory is complete. Before it hears of comms. */
void reach_sync(struct executor_link *link);
void reach_forget(struct executor_link *link); /* the connection is gone */
void reach_lost(struct executor_link *link);   /* the process is */

/* Every now and then: takes back what no comm needs any more, tries again what may go well now. */
void reach_tick(struct manager *manager);
/* For operators: buffers of other GPUs that this executor has, and its own that others have. */
void reach_count(const struct executor_link *link, uint32_t *ret_mapped, uint32_t *ret_reached);
