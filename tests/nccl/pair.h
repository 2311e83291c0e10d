/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Communicators of two ranks before a daemon in this process, whose executor leaves requests where they are until the
 * other rank has called. One thread drives both ranks, and so decides what is called when. What these find wrong fails
 * the running cmocka test.
 */
#include <stdbool.h>
#include <stdint.h>

#include "client/nccl/nccl.h"
#include "proto/session.pb-c.h"
#include "tests/client/fake.h"
#include "tests/cmocka_all.h"

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

enum { MANY = 3000 }; /* sends, or receives, of a group: more than are started at once */

extern struct fake fake;

void pair_new(ncclComm_t comms[2], bool blocking);
void pair_destroy(ncclComm_t comms[2]);

/* The communicator's state. */
int ask(ncclComm_t comm);
/* Asks until it is done, or should have been long ago. */
int settled(ncclComm_t comm);
/* Asks until the daemon has seen so many lines. */
void await_lines(ncclComm_t comm, uint32_t n);

/* n of them with the other rank, in one group if there is more than one. */
ncclResult_t transfers(ncclComm_t comm, bool sends, int32_t *values, int n);
/* The same, which must go well. */
void receive_or_send(ncclComm_t comm, bool sends, int32_t *values, int n);
void receive(ncclComm_t comm, int32_t *values, int n);
/* A result: it is begun, or done. */
void in_progress(ncclResult_t result);

void fill(int32_t *values, int n);
void assert_filled(const int32_t *values, int n);

/* Around the tests: the daemon. */
int pair_start(void **state);
int pair_stop(void **state);
