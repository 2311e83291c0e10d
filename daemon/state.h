/* SPDX-License-Identifier: MIT */
#pragma once
/* What a successor of this process needs to know, in a memfd that the service manager keeps. See state.c. */
#include "daemon/comm_id.h"
#include "daemon/device_memory.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATE_VERSION      5u
#define STATE_VERSION_MIN  1u /* versions 2 to 5 add fields at the end of bodies and header, which are 0 before */
#define STATE_MAGIC        UINT64_C(0x31657461742d7872) /* "rx-tate1", little endian */
#define STATE_HEADER_BYTES 4096u
#define STATE_RECORD_BYTES 512u
#define STATE_BODY_BYTES   (STATE_RECORD_BYTES - 8u)
#define STATE_SLOTS_STEP   512u
#define STATE_SLOTS_MAX    (1u << 20)
#define STATE_SLOT_NONE    UINT32_MAX
#define STATE_CHOICES      30u /* plan choices in one record */
#define STATE_DRAINED      16u /* rails, as many as a node has (FABRIC_RAILS_MAX) */
#define STATE_RAIL_BYTES   32u /* FABRIC_NAME_MAX and its end */
#define STATE_HOST_BYTES   64u

enum {
        _STATE_E_SUCCESS,
        STATE_E_UNUSABLE, /* not a state memfd, or one of a version this program cannot read */
        STATE_E_FULL,     /* STATE_SLOTS_MAX records are in use */
        STATE_E_END,      /* no further record */
};

enum state_kind {
        STATE_NONE,
        STATE_SESSION,
        STATE_RING,
        STATE_BUFFER,
        STATE_COMM,
        STATE_MEMBER,
        STATE_CHOICE,
        STATE_EXECUTOR,
        STATE_KIND_COUNT,
};

/* Bodies. Words that change in place are the atomic ones: one store each, so a reader never sees half of a change. */
struct state_session {
        uint64_t session;
        uint32_t pid, uid, gid, version;
        uint64_t features;
        _Atomic uint64_t next_handle;
        char name[64];
        char tenant[64];
        uint64_t opened_ns; /* CLOCK_MONOTONIC; 0 where version 5 did not know it yet */
};
struct state_ring {
        uint64_t session;
        uint32_t gpu, depth, argument_bytes;
        struct device_memory area; /* version 2 */
};
struct state_buffer {
        uint64_t session;
        uint64_t bytes;
        uint32_t buffer;
        uint32_t gpu; /* version 2, as the next; of `memory` */
        struct device_memory memory;
};
struct state_comm {
        uint64_t comm;
        uint64_t parent;
        uint32_t n_ranks, split_number, n_choices, by_id;
        uint32_t part_bytes, slots, ring_depth, reserved;
        _Atomic uint64_t status; /* ring_status(), in the upper half 1 + the GPU whose executor died (version 2) */
        _Atomic uint64_t epoch;
        _Atomic uint64_t lost;
        _Atomic uint64_t splits_done; /* the commit word of splits: children of later numbers do not count */
        uint8_t id[COMM_ID_BYTES];
        char name[64];
        char tenant[64];
        _Atomic uint64_t stand; /* version 3: STATE_STANDS | last sequence that all have finished, see handover.c */
        uint32_t lanes;         /* version 4, as the next */
        uint32_t reach_bytes;   /* 0 as well where it was not known yet */
        uint32_t n_nodes;       /* version 5, as the next: that its ranks are on; 0: not known */
        uint32_t burst_bytes;   /* as reach_bytes (version 5 had a zero here at first) */
        _Atomic uint64_t splits_failed; /* which of those that are over have failed, see comm_split.c */
        uint32_t exchange_min;          /* as the next, 0 where version 5 did not know it yet */
        uint32_t exchange_max;
};
#define STATE_STANDS (UINT64_C(1) << 32)
struct state_member {
        uint64_t comm;
        uint64_t session;
        uint32_t rank, handle, gpu, parent_rank, pid;
        _Atomic uint64_t leave; /* STATE_LEAVING | last sequence, or STATE_LOST */
        uint64_t staging;       /* version 2: offset in its GPU's pool */
};
#define STATE_LEAVING (UINT64_C(1) << 32)
#define STATE_LOST    (UINT64_C(1) << 33)
struct state_choice {
        uint64_t comm;
        uint32_t first, n;
        struct {
                uint64_t max_bytes;
                uint32_t operation; /* in the upper half its widening (version 5 had a zero there at first) */
                uint32_t algorithm;
        } choice[STATE_CHOICES];
};
struct state_executor {
        _Atomic uint64_t instance;
        _Atomic uint64_t losses;
        char name[64];
        char pci[32];             /* version 2 */
        _Atomic uint64_t leaving; /* version 3: the instance that may end; the commit word of its comms' stands */
};

struct state_record {
        _Atomic uint32_t valid; /* STATE_VALID, written last; 0: free */
        uint32_t kind;
        union {
                struct state_session session;
                struct state_ring ring;
                struct state_buffer buffer;
                struct state_comm comm;
                struct state_member member;
                struct state_choice choice;
                struct state_executor executor;
                uint8_t bytes[STATE_BODY_BYTES];
        };
};
#define STATE_VALID 0x1eaf600du
_Static_assert(sizeof(struct state_record) == STATE_RECORD_BYTES, "a record is one slot");

/* A rail that an operator has drained. */
struct state_drained {
        _Atomic uint32_t valid; /* STATE_VALID, written last; 0: free */
        char rail[STATE_RAIL_BYTES];
};

/* Where the rail was that nobody named. */
struct state_host {
        _Atomic uint32_t valid; /* as above */
        char host[STATE_HOST_BYTES];
};

struct state_header {
        _Atomic uint64_t magic; /* written last */
        uint32_t version;
        uint32_t record_bytes;
        uint8_t key[COMM_ID_KEY_BYTES];
        uint8_t node[COMM_ID_NODE_BYTES];
        _Atomic uint64_t next_session;
        _Atomic uint64_t next_comm;
        _Atomic uint64_t restarts;
        _Atomic uint64_t devices;                    /* version 2: found by the first process, 0: GPUs are emulated */
        struct state_drained drained[STATE_DRAINED]; /* free where version 5 did not have it yet, as the next */
        struct state_host rail_host;
};

_Static_assert(sizeof(struct state_header) <= STATE_HEADER_BYTES, "the header has room for it");

struct state;

int state_new(struct state **ret_state);
/* Takes over a predecessor's memfd; fd stays the caller's unless 0 is returned. STATE_E_UNUSABLE. */
int state_adopt(int fd, struct state **ret_state);
struct state *state_free(struct state *state);

int state_fd(const struct state *state);
const uint8_t *state_key(const struct state *state);
const uint8_t *state_node(const struct state *state);
uint64_t state_restarts(const struct state *state);
void state_count_restart(struct state *state);
uint32_t state_devices(const struct state *state);
void state_set_devices(struct state *state, uint32_t devices);
/* Rails that an operator has drained. The first is a name, at most STATE_RAIL_BYTES - 1 long, NULL where `i`, below
 * STATE_DRAINED, is free. To note twice, or to forget what is not noted, is nothing. STATE_E_FULL. */
const char *state_drained_rail(const struct state *state, uint32_t i);
int state_drained_note(struct state *state, const char *rail);
void state_drained_forget(struct state *state, const char *rail);
/* NULL: none was noted. One that is too long is not. */
const char *state_rail_host(const struct state *state);
void state_note_rail_host(struct state *state, const char *host);
/* Numbers are never given twice, also not after a crash. */
uint64_t state_take_session(struct state *state);
uint64_t state_take_comm(struct state *state);

/* Copies the body of `record` (its kind set) into a free slot. 0, STATE_E_FULL or -errno. */
int state_add(struct state *state, const struct state_record *record, uint32_t *ret_slot);
/* STATE_SLOT_NONE is fine. */
void state_remove(struct state *state, uint32_t slot);
/* For in-place changes; valid until the next state_add. NULL for STATE_SLOT_NONE. */
struct state_record *state_at(struct state *state, uint32_t slot);
/* The next valid record at or after *cursor, which moves past it. 0 or STATE_E_END. */
int state_next(struct state *state, uint32_t *cursor, uint32_t *ret_slot);
uint32_t state_count(const struct state *state);
bool state_has(struct state *state, enum state_kind kind); /* a valid record of it */
