/* SPDX-License-Identifier: MIT */
#pragma once
/* A communicator: an ordered set of ranks of one tenant. Owned by the manager (loop thread). */
#include "daemon/attachment.h"
#include "daemon/comm_id.h"
#include "daemon/exchange.h"
#include "daemon/handover.h"
#include "daemon/session.h"
#include "plan/cost.h"
#include "util/charge.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

struct call;
struct comm_remote;
struct comm_split;
struct executor_link;
struct manager;
struct tenant;

#define COMM_RANKS_MAX 64u

enum comm_state {
        COMM_JOINING,   /* ranks are missing */
        COMM_ATTACHING, /* all are there; executors have not all acknowledged, or the split it is part of is not
                           complete */
        COMM_READY,     /* answered */
};

enum {
        _COMM_E_SUCCESS,
        COMM_E_LIMIT,    /* text says which */
        COMM_E_RESOURCE, /* no fd or memory is left; text says what */
        COMM_E_WAIT,     /* executors are missing: it goes on when they are there */
        COMM_E_INVALID,  /* what was asked for cannot be; text says why */
};

struct comm_member {
        struct comm_member *next, *prev; /* session->members */
        struct comm *comm;
        struct session *session; /* NULL: not joined, left, or its process is gone */

        uint32_t rank;
        uint64_t session_id; /* kept after the session has gone, for executors and operators */
        pid_t pid;
        uint32_t handle;
        uint32_t gpu;
        uint32_t parent_rank;   /* of a split: rank in the parent */
        uint32_t exchange;      /* version of its library's exchange kernels, while it joins; 0: none */
        bool spare;             /* it can do without this comm, while it joins */
        uint32_t last_sequence; /* when left */
        uint64_t staging;       /* on a GPU: offset in its pool, once the comm is placed */
        bool level_known;       /* while the comm is held: the next two were heard */
        bool settled;           /* what is begun is finished */
        uint32_t taken;         /* last sequence begun */
        uint32_t *chunks;       /* [2 * n_ranks]: pushed to and pulled from each rank so far */
        bool joined;
        bool away;                /* on another node: no session, and no executor of ours serves it */
        bool leaving;             /* CommDestroy came */
        bool left;                /* and every executor knows */
        bool lost;                /* its session ended without leaving */
        uint64_t leave_acked;     /* executors that acknowledged RankLeave */
        struct call *calls;       /* create/split before READY, destroy while leaving */
        struct call *abort_calls; /* waiting for the end of an abort */
        uint32_t state_slot;

        struct charge charge_comm, charge_bytes;
};

/* A send or receive of which the other half is missing, or being served. GPUs only. */
struct comm_pair_wait {
        uint32_t link; /* index of the executor that said so */
        uint32_t rank, peer;
        bool sends;        /* rank to peer */
        uint32_t sequence; /* of the pair */
        uint32_t rung;     /* the youngest that the rank has called */
        uint64_t since_ns;
        bool stalled; /* it was reported as a stall */
        bool told;    /* ... and is in the log */
};
#define COMM_PAIR_WAITS 64u

/* A rank whose own kernels exchange. */
struct comm_exchanged {
        bool known;
        uint32_t calls;     /* begun */
        uint32_t operation; /* of the last one */
        uint64_t since_ns;
};

/* Last known from an executor's STATISTICS; control asks for fresh ones with manager_refresh. */
struct comm_statistics {
        uint64_t at_ns; /* when it arrived, 0: never */
        uint32_t final_sequence;
        uint64_t operations, bytes, lost;
        uint32_t waiting_operation;
        uint64_t waiting_ns;
        uint32_t waiting_link; /* index of the executor that said so */
        uint32_t rung[COMM_RANKS_MAX];
        uint32_t finished[COMM_RANKS_MAX]; /* GPUs only */
        uint32_t n_pair_waits;
        struct comm_pair_wait pair_waits[COMM_PAIR_WAITS];
        struct comm_exchanged exchanged[EXCHANGE_RANKS_MAX]; /* GPUs only */
};

/* The last STALL an executor reported; valid while at_ns != 0, cleared when the sequence is final or the comm fails. */
struct comm_stall {
        uint64_t at_ns;
        uint32_t sequence;
        uint32_t operation;
        uint64_t waiting_ns;
        uint64_t missing_ranks; /* bit per rank */
        bool told;              /* in the log */
};

/* A rank has not gone on exchanging for the stall bound. */
struct comm_exchange_stall {
        bool asked;   /* whether it waits for others */
        bool stalled; /* it does; cleared when it goes on */
};

struct comm {
        UT_hash_handle hh;        /* manager->comms */
        UT_hash_handle hh_id;     /* manager->comms_by_id */
        UT_hash_handle hh_key;    /* cluster->comms_by_key, while remote->assigned */
        struct comm *next, *prev; /* split->children until that is complete */
        struct manager *manager;
        struct tenant *tenant;

        /* identity */
        uint64_t number;
        uint8_t id[COMM_ID_BYTES]; /* zero for a split */
        bool by_id;                /* it is in comms_by_id */
        char name[SESSION_NAME_MAX];
        uint32_t n_ranks;
        uint64_t parent;       /* of a split: the parent's number, else 0 */
        uint32_t split_number; /* of a split */
        uint64_t created_ns;

        /* links */
        struct comm_split *split;   /* not complete yet: the split that makes this comm */
        struct comm_split *splits;  /* utlist: splits of this comm that are not complete */
        struct comm_remote *remote; /* NULL: all ranks are on this node, or: */
        bool forsaken;              /* it was over several ones, and lost with a predecessor of this daemon */
        int marks_fd;
        struct attachment attachment;

        /* state */
        enum comm_state state;
        uint32_t n_joined;
        uint32_t epoch;
        uint32_t code; /* sticky RMX_* or 0 */
        int32_t failed_rank;
        int32_t lost_gpu; /* code is RMX_E_LOST, and RMX_E_DEVICE_LOST for the ranks on this GPU; -1: no such */
        char reason[320]; /* a sentence on `code`; not kept over a restart */
        uint64_t lost;    /* sequences that executors declared lost when taking over */
        uint64_t splits_done, splits_failed; /* see comm_split.c */
        uint32_t split_code;                 /* why the last failed split failed */
        char split_text[160];
        uint64_t again; /* executors that are to let go of it, and have it again with its error, when it has ended */
        uint64_t abort_acked;
        bool aborting; /* executors end it; then it fails with: */
        uint32_t abort_code;
        int32_t abort_rank;
        char abort_text[320];
        uint64_t abort_ns;    /* since when */
        bool placed;          /* on GPUs: it has staging in the pools of all, and: */
        uint32_t lanes;       /* data lanes that its requests are spread over; 0: all. Never changed */
        uint64_t reach_bytes; /* on GPUs: requests that read or write so much of a rank do it in place; 0: none */
        uint64_t burst_bytes; /* of those, requests of so much are bursts; 0: none */
        /* Bytes of requests that the ranks' own kernels exchange; 0, 0: none. Never changed, see exchange.c */
        uint64_t exchange_min, exchange_max;
        struct handover handover;
        struct plan_geometry geometry;
        uint32_t ring_depth; /* of its ranks' rings: bounds how far one can run ahead */
        struct plan_choice choices[PLAN_CHOICES_MAX];
        uint32_t n_choices;
        uint64_t staging_bytes;
        struct comm_statistics statistics;
        struct comm_stall stall;
        struct comm_exchange_stall exchange_stall;
        uint32_t state_slot;
        uint32_t choice_slots[4];
        uint32_t n_choice_slots;

        struct charge charge_marks_fd, charge_marks_bytes;

        struct comm_member members[]; /* n_ranks, by rank */
};

/* A comm without ranks; staging and marks are charged as ranks join and when it is attached. */
int comm_new(struct manager *manager, struct tenant *tenant, uint32_t n_ranks, const char *name, char *text,
             size_t text_size, struct comm **ret_comm);
/* Unlinks it everywhere, detaches it from executors; removes it from fd store and state unless the manager is stopping.
 */
/* Adoption: the same under a number of the state. */
int comm_new_numbered(struct manager *manager, struct tenant *tenant, uint64_t number, uint32_t n_ranks,
                      const char *name, struct comm **ret_comm);
struct comm *comm_free(struct comm *comm);
/* Makes it findable by id. 0 or -ENOMEM. */
int comm_index(struct comm *comm, const uint8_t id[COMM_ID_BYTES]);
struct comm *comm_find_id(struct manager *manager, const uint8_t id[COMM_ID_BYTES]);
struct comm_member *comm_member_of_handle(struct session *session, uint32_t handle);

/* A rank joins: charges it, links it to the session and gives it a handle. */
int comm_member_join(struct comm *comm, uint32_t rank, struct session *session, uint32_t gpu, char *text,
                     size_t text_size);
/* Has it ranks on other nodes, or had it under a predecessor of this daemon? */
bool comm_spans(const struct comm *comm);
/* Its staging on this node, its geometry being known; share of one rank of n. */
uint64_t comm_staging_bytes(const struct comm *comm);
uint64_t comm_staging_share(const struct manager *manager, uint32_t n_ranks);

/* The memory that the comm as a whole takes; part of comm_attach, and of adoption. */
int comm_charge_marks(struct comm *comm, char *text, size_t text_size);
/* All ranks are there: makes the marks, chooses plans, goes to the executors. COMM_E_*. */
int comm_attach(struct comm *comm, char *text, size_t text_size);
/* The executors have it: answers its ranks. comm_split.c does this for all comms of a split at once. */
void comm_answer(struct comm *comm);
uint64_t comm_needed(const struct comm *comm); /* mask of the executors that serve its GPUs */
/* They have it, and if it is over several nodes, this one's rails can carry it. */
bool comm_is_attached(const struct comm *comm);
/* Executors (mask) have said so, or a failure; mask 0: something else of it may have become true. */
void comm_attached(struct comm *comm, uint64_t mask, uint32_t code, const char *message, uint32_t epoch, uint32_t lost);
void comm_reply(struct comm_member *member, struct session *session, uint64_t id);

/* A rank calls CommDestroy. */
void comm_member_leave(struct comm_member *member, uint32_t last_sequence);
void comm_member_left(struct comm_member *member, uint64_t mask); /* may free the comm */
/* The rank's session ends; may free the comm. */
void comm_member_lost(struct comm_member *member);

/* Executors are told to end it, and it fails when all have done so. acked: mask of those that have already. */
void comm_abort(struct comm *comm, uint32_t code, int32_t rank, const char *message, uint64_t acked);
void comm_aborted(struct comm *comm, uint64_t mask);
/* Sticky error: recorded once, told to all members. */
void comm_fail(struct comm *comm, uint32_t code, int32_t rank, const char *message);
/* An executor (its mask; 0: nobody yet) has ended it. With one executor it fails at once, with several when all have
 * ended it. */
void comm_broken(struct comm *comm, uint64_t mask, uint32_t code, int32_t rank, const char *message);
/* The error for a rank. */
uint32_t comm_member_code(const struct comm_member *member);
void comm_set_epoch(struct comm *comm, uint32_t epoch);
/* Adoption: puts a rank of the state into its place, with its charges. COMM_E_LIMIT. */
int comm_member_adopt(struct comm *comm, uint32_t rank, struct session *session);
/* One over several nodes, which is lost with a predecessor of this daemon: its executors are to answer its ranks with
 * that. Emulated GPUs do so as it is, and make plans for one node; GPUs have to end it first, and its ranks are told
 * when they have. */
void comm_forsake(struct comm *comm);
/* Frees the comm if no rank is left in it. */
struct comm *comm_settle(struct comm *comm);
/* "joining", "ready", "failed", "leaving". */
const char *comm_state_name(const struct comm *comm);
/* In the log, with its name and fields. */
void comm_log(const struct comm *comm, int level, const char *text);
/* Tells all members that take events: of its failure, or else of its epoch. */
void comm_tell(struct comm *comm, bool failed);
/* The session reads again: the failures of its comms that it was not told. */
void comm_tell_again(struct session *session);
