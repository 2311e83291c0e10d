/* SPDX-License-Identifier: MIT */
#pragma once
/* Accounting: what a client holds is charged to its tenant before it is allocated. Not thread-safe (loop thread). */
#include <stdint.h>

enum charge_kind {
        CHARGE_SESSIONS,
        CHARGE_COMMS, /* ranks joined */
        CHARGE_BUFFERS,
        CHARGE_BYTES, /* shared memory (rings, buffers, staging), and what splits take while they are under way */
        CHARGE_RINGS,
        CHARGE_FDS,
        CHARGE_KIND_COUNT,
};

struct charge_account {
        struct charge_account *whole; /* NULL, or what it and others hold together, which has limits, too */
        uint64_t used[CHARGE_KIND_COUNT];
        uint64_t limit[CHARGE_KIND_COUNT];
        uint64_t refused[CHARGE_KIND_COUNT]; /* refusals so far, for metrics and for logging the first one only */
};

/* Embedded in the object that holds the resource. */
struct charge {
        struct charge_account *account;
        uint64_t amount;
        enum charge_kind kind;
};
#define CHARGE_INIT                                                                                                    \
        { 0 }

enum {
        _CHARGE_E_SUCCESS,
        CHARGE_E_LIMIT,
        CHARGE_E_WHOLE, /* the limit of the whole */
};

const char *charge_kind_name(enum charge_kind kind); /* "sessions" */
/* 0, CHARGE_E_LIMIT or CHARGE_E_WHOLE (nothing charged; counted as refused where the limit is, and by the account).
 * charge must be CHARGE_INIT. amount 0 is fine. */
int charge_take(struct charge *charge, struct charge_account *account, enum charge_kind kind, uint64_t amount);
/* Gives it back; a CHARGE_INIT charge is a no-op; leaves CHARGE_INIT. */
void charge_release(struct charge *charge);
