/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The insides of the fake adapters: all objects, one lock over them, and the thread that carries data.
 *
 * Everything here is under world.lock, but for the copying itself: the thread lets the lock go while it copies a piece
 * and sets world.copying. Who takes away what a copy may use (destroys, deregisters, changes a queue pair's state)
 * calls world_quiet() first.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

#include "tests/fabric/fake_verbs.h"

#define FAKE_GIDS     8u
#define FAKE_SGES     4u
#define FAKE_MAX_WR   16384u
#define FAKE_MAX_CQE  65536
#define FAKE_MAX_MTU  IBV_MTU_4096
#define FAKE_NEVER    UINT64_MAX
#define FAKE_PSN_MASK 0xffffffu
#define FAKE_PROBLEMS 32u

/* Of QPs, CQs: events that were read, and acknowledged. Destroying waits until both are equal. */
struct fake_acks {
        uint64_t read, acked;
};

/* Tokens in a pair of sockets, one for each thing that waits: readable, blocking or not as its owner sets the fd. */
struct fake_bell {
        int fds[2]; /* the reader's, ours */
        bool over;
};

struct fake_event {
        struct ibv_async_event event;
        STAILQ_ENTRY(fake_event) link;
};

struct fake_device {
        struct ibv_device ibv;
        LIST_ENTRY(fake_device) link;
        struct ibv_gid_entry gids[FAKE_GIDS]; /* gid all 0: none */
        uint8_t index;                        /* of the routable one */
        bool down, gone, twice;
        enum ibv_wc_status down_status;
        enum fake_drop drop;
        enum ibv_wc_status next_error, next_receive_error; /* 0: none */
        uint32_t error_in;                                 /* one of so many sends fails; 0: none */
        enum ibv_wc_status error_status;
        uint32_t max_inline, delay_us;
        uint32_t last_us; /* see fake_last() */
};

struct fake_context {
        struct ibv_context ibv;
        LIST_ENTRY(fake_context) link;
        struct fake_device *device;
        struct fake_bell bell;
        STAILQ_HEAD(, fake_event) events;
        uint32_t n_children;
        bool dead;
};

struct fake_pd {
        struct ibv_pd ibv;
        LIST_ENTRY(fake_pd) link;
        uint32_t n_children;
};

struct fake_mr {
        struct ibv_mr ibv;
        LIST_ENTRY(fake_mr) link;
        int access;
        uint8_t *kept; /* its pages, when they are not mapped any more */
};

struct fake_ring { /* of events of a channel: a CQ for each */
        struct fake_cq *cq;
        STAILQ_ENTRY(fake_ring) link;
};

struct fake_channel {
        struct ibv_comp_channel ibv;
        LIST_ENTRY(fake_channel) link;
        struct fake_bell bell;
        STAILQ_HEAD(, fake_ring) rings;
};

struct fake_cqe {
        struct ibv_wc wc;
        struct fake_qp *qp; /* of a send; NULL when it was destroyed, and of receives */
        uint64_t slots;     /* sends of it that are over when this was polled */
        bool receive;
};

struct fake_cq {
        struct ibv_cq ibv;
        LIST_ENTRY(fake_cq) link;
        struct fake_cqe *entries; /* ibv.cqe of them */
        uint32_t first, n;
        uint32_t n_users;
        bool armed, overrun;
        struct fake_acks rings, acks;
};

struct fake_srq {
        struct ibv_srq ibv;
        LIST_ENTRY(fake_srq) link;
        uint64_t *ids; /* of posted receives, a ring */
        uint32_t max_wr, max_sge, first, n;
        uint32_t n_users;
};

struct fake_wr {
        uint64_t wr_id, remote_addr;
        enum ibv_wr_opcode opcode;
        uint32_t rkey, length, psn, n_sge;
        __be32 imm_data;
        bool signalled, is_inline;
        bool begun, arrived;
        uint32_t offset;  /* written so far */
        uint64_t fail_at; /* bytes after which it fails; length + 1: after all; FAKE_NEVER */
        struct ibv_sge sges[FAKE_SGES];
};

/* Sends are numbered from 0: done <= sent <= posted; freed, below which slots are free, is at most done. */
struct fake_qp {
        struct ibv_qp ibv;
        LIST_ENTRY(fake_qp) link;
        struct fake_device *device;
        struct ibv_qp_cap cap;
        bool signal_all;
        enum ibv_qp_state state;
        struct ibv_qp_attr attr;
        struct fake_wr *wrs; /* cap.max_send_wr of them */
        uint8_t *inline_bytes;
        uint64_t posted, sent, done, freed;
        uint64_t due_ns;   /* when the thread looks at it, FAKE_NEVER */
        uint64_t stuck_ns; /* since when there was no answer, 0: there was */
        uint64_t empty_ns; /* since when the other end has no receive */
        uint64_t last_ns;  /* when it is done with its last receive, FAKE_NEVER */
        uint64_t last_id;  /* this one */
        bool has_last;
        uint64_t random;
        enum ibv_wc_status next_error;
        struct fake_acks acks;
};

/* What FAKE_HOLD keeps. */
struct fake_packet {
        STAILQ_ENTRY(fake_packet) link;
        struct fake_device *from, *to;
        uint32_t qp_num, dest_qp_num;
        uint64_t number; /* of the send */
        struct fake_wr wr;
        uint8_t bytes[];
};

struct fake_failure {
        bool armed;
        int error;
        uint32_t after;
};

struct fake_world {
        pthread_mutex_t
                turnstile; /* held by who waits for the lock: nobody passes, so the thread cannot keep others out */
        pthread_mutex_t lock;
        pthread_cond_t wire; /* the thread waits here */
        pthread_cond_t calm; /* others wait here: for a copy's end, for acknowledgements */
        pthread_t thread;
        bool running, stopping, copying;
        uint32_t n_waiting;
        struct fake_options options;
        uint32_t next_qp_num, next_key, n_lists;
        uint64_t random;
        struct fake_counters counters;
        struct fake_acks acks; /* of events of ports and devices: they do not say of which context */
        struct fake_failure failures[FAKE_N_CALLS];
        char *problems[FAKE_PROBLEMS];
        uint32_t n_problems;
        LIST_HEAD(, fake_device) devices;
        LIST_HEAD(, fake_context) contexts;
        LIST_HEAD(, fake_pd) pds;
        LIST_HEAD(, fake_mr) mrs;
        LIST_HEAD(, fake_channel) channels;
        LIST_HEAD(, fake_cq) cqs;
        LIST_HEAD(, fake_srq) srqs;
        LIST_HEAD(, fake_qp) qps;
        STAILQ_HEAD(, fake_packet) packets;
};

extern struct fake_world world;

uint64_t fake_random(uint64_t *state);
void world_lock(void);
void world_unlock(void);
/* With the lock, as all that follows. */
void world_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether fake_fail_next() wants this call to fail; then with *ret_error. */
bool world_fails(enum fake_call call, int *ret_error);
/* Until nothing is being copied; the thread begins nothing before the caller lets the lock go. */
void world_quiet(void);
/* Something changed that sends may wait for. */
void world_kick(void);
/* Until all that was read is acknowledged, or it is a problem: hardware would hang. */
void world_acked(const struct fake_acks *acks, const char *what);

bool fake_bell_new(struct fake_bell *bell);
void fake_bell_free(struct fake_bell *bell);
bool fake_bell_ring(struct fake_bell *bell);
/* Takes one token as its owner would: waits, or EAGAIN, as the fd is set. Not with the lock. */
int fake_bell_take(const struct fake_bell *bell);
/* Takes one token back, if it is there. */
void fake_bell_undo(struct fake_bell *bell);
/* Nothing comes any more: the reader's fd is ready for ever, and when all tokens are taken there is EIO. */
void fake_bell_end(struct fake_bell *bell);

/* Asynchronous events: queued for the context of the object, or for all of the device's. */
void fake_context_event(struct fake_context *context, enum ibv_event_type type, void *object);
void fake_device_event(struct fake_device *device, enum ibv_event_type type);
/* An object goes: what nobody has read of it. */
void fake_context_forget(struct fake_context *context, const void *object);
/* Frees it with whatever it has. */
void fake_context_free(struct fake_context *context);

static inline struct fake_context *fake_context_of(struct ibv_context *context) {
        return (struct fake_context *)(void *)context;
}

static inline bool fake_gid_is_set(const struct ibv_gid_entry *entry) {
        static const union ibv_gid none;

        return memcmp(&entry->gid, &none, sizeof(none)) != 0;
}
