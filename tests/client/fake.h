/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A scripted daemon and executor in two threads of the test: speaks session.proto, consumes the rings, and runs the
 * collectives, sends and receives on one node in plain C (int32 sums). See fake.c.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/session.pb-c.h"
#include "railmux/railmux.h"
#include "ring/ring.h"

/* For threads other than the test's, where cmocka's assertions do not work. */
#define must(condition)                                                                                                \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "%s:%d: fake: %s\n", __FILE__, __LINE__, #condition);                          \
                        abort();                                                                                       \
                }                                                                                                      \
        } while (0)

#define FAKE_GPUS      4u
#define FAKE_RANKS_MAX 16u
#define FAKE_BODIES    32u
#define FAKE_QUEUE     64u
#define FAKE_BUFFERS   64u

struct fake_buffer {
        struct fake_buffer *next;
        uint32_t id;
        size_t bytes;
        int fd;
        unsigned char *address;
};

/* Memory of a client's own, on a GPU. */
#define FAKE_CHUNKS 128u
struct fake_device_buffer {
        uint32_t n_chunks;           /* descriptors that came with it */
        uint64_t chunk[FAKE_CHUNKS]; /* the words that stand in them */
        uint64_t chunk_bytes[FAKE_CHUNKS];
        uint32_t id; /* 0: none */
        uint32_t gpu;
        uint64_t bytes;
        unsigned char handle[64];
};

struct fake_ring {
        bool open;
        unsigned char area[64]; /* on a GPU: the handle */
        int client_fd, executor_fd, readonly_fd, wake_fd;
        void *client_area, *executor_area;
        struct ring_consumer consumer;
};

struct fake_session {
        struct fake_session *next;
        int fd; /* -1: closed */
        uint32_t next_handle;
        struct fake_ring rings[FAKE_GPUS];
        struct fake_buffer *buffers;
};

struct fake_bell {
        struct ring_request request;
        struct fake_ring *ring;
        uint32_t ring_sequence;
        void *argument; /* copy of the block, or NULL */
        /* Sends and receives. */
        struct ring_group_entry *entries;
        uint32_t n_entries;
        uint32_t n_done;
        bool *done;
};

/* A line as it was latched, with its argument block. */
struct fake_seen {
        struct ring_request request;
        size_t argument_bytes;
        unsigned char *argument;
};

struct fake_member {
        struct fake_session *session;
        uint32_t handle;
        uint32_t gpu;
        uint64_t call; /* id of the join call */
        bool joined;
        bool left;
        uint32_t exchange; /* version that it has said */
        uint32_t sequence; /* last latched */
        uint32_t sent[FAKE_RANKS_MAX], received[FAKE_RANKS_MAX];
        struct fake_bell queue[FAKE_QUEUE];
        uint32_t head, tail;
        uint8_t node;
        bool split;
        uint64_t split_call;
        int32_t split_colour, split_key, split_gpu;
        uint32_t split_exchange;
};

struct fake_comm {
        struct fake_comm *next;
        unsigned char id[128];
        uint32_t n_ranks;
        uint32_t status; /* sticky */
        struct fake_member member[FAKE_RANKS_MAX];
};

struct fake {
        char directory[64];
        char path[96];
        int listen_fd, control_fd, executor_fd, epoll_fd; /* two eventfds, that of the executor is never read */
        pthread_t control, executor;
        pthread_mutex_t mutex;
        pthread_cond_t changed;
        bool stop;
        uint64_t turn_ns, pause_ns; /* of the executor: its last turn, and the longest time between two */
        bool gone;                  /* hung up: the end of a session means nothing */
        struct fake_session *sessions;
        struct fake_comm *comms;
        uint32_t ids;

        /* script; change under mutex or before the first session */
        uint32_t depth; /* of rings */
        uint32_t argument_bytes;
        uint32_t hello_version; /* to answer with */
        uint32_t hello_failure; /* code to answer HELLO with, 0: none */
        uint64_t no_features;   /* that the daemon does not have */
        bool deaf;              /* does not read calls */
        bool mute;              /* does not answer calls */
        bool paused;            /* latches nothing */
        bool tells_aborts;      /* to all ranks */
        bool cancels;           /* knows ranks that give up joining; an old daemon does not */
        uint32_t drop_body;     /* forget the next call of this kind, then say RESUMED */
        uint32_t drop_count;
        uint32_t force_status; /* give this status instead of running, once for each rank of one request */
        uint32_t force_later;  /* the next force_status */
        uint64_t max_bytes;    /* of all buffers of one session */
        bool no_latch;         /* as a daemon that knows none: GPUs' rings come with what cannot be written */
        uint32_t cut_rings;    /* the next so many answers to RING_OPEN lose their descriptors on the way */
        const char *backend;   /* NULL: the host's; else GPUs with PCI addresses "0000:0N:00.0" */
        uint64_t exchange_min, exchange_max; /* of communicators on one node */
        uint64_t exchange_more;              /* so much more is exchange_min on each next node */
        uint8_t node[FAKE_RANKS_MAX];        /* of the ranks of a communicator that is not from a split */
        bool exchange_for_all;               /* as a daemon that asks no rank */
        bool twice_life;                     /* LIFE_OPEN is answered twice */
        uint32_t refuse_life;                /* code to answer LIFE_OPEN with, 0: none */
        uint32_t refuse_splits;              /* code to answer COMM_SPLIT with, 0: none */
        uint32_t refuse_memory;              /* code to answer the next BUFFER_CREATE of GPU memory with, 0: none */

        /* what was seen */
        uint32_t calls[FAKE_BODIES];
        uint32_t taken_back;     /* joins and splits: COMM_ABORTs without a handle */
        uint32_t last_sequence;  /* of the last COMM_DESTROY */
        uint32_t last_epoch;     /* word of the last request */
        struct fake_seen **seen; /* all lines */
        uint32_t n_seen;
        char name[64];       /* of the last HELLO */
        char split_name[64]; /* of the last COMM_SPLIT */
        uint32_t n_spare;    /* COMM_SPLITs of which the ranks can do without */
        int life_fd[2]; /* end with who has the other ends of what the last LIFE_OPEN was answered with; -1: none was */
        uint32_t areas; /* bell areas that came with RING_OPEN, and were taken */
        struct fake_device_buffer device_buffers[FAKE_BUFFERS];
};

void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);
/* How long it took at most from one turn of the executor to the next since this was asked last. */
uint64_t fake_executor_pause_ns(struct fake *fake);
struct rmx_session *fake_session(struct fake *fake); /* opens one */
void fake_pause(struct fake *fake, bool paused);
void fake_deafen(struct fake *fake, bool deaf);
/* Waits until there is a call that it does not read. */
void fake_wait_unread(struct fake *fake);
void fake_mute(struct fake *fake, bool mute);
void fake_cut_rings(struct fake *fake, uint32_t n);
void fake_force(struct fake *fake, uint32_t status);
void fake_drop(struct fake *fake, uint32_t body, uint32_t count);
/* Closes all connections, as when the daemon ends; the executor goes on unless it is paused. */
void fake_hang_up(struct fake *fake);
/* Waits until n calls of this kind have come. */
void fake_wait_calls(struct fake *fake, uint32_t body, uint32_t n);
uint32_t fake_calls(struct fake *fake, uint32_t body);
/* The same of joins and splits that ranks have taken back. */
void fake_wait_taken_back(struct fake *fake, uint32_t n);
uint32_t fake_taken_back(struct fake *fake);
/* The communicator that was made last. It stays if all of its ranks have joined. */
const struct fake_comm *fake_newest(struct fake *fake);
/* Waits until this rank has left it. */
void fake_wait_left(struct fake *fake, const struct fake_comm *comm, uint32_t rank);
int fake_life(struct fake *fake, unsigned int i); /* life_fd[i] */
/* Which of the comms is it in which this is a rank's handle? From 0. */
uint32_t fake_comm_of(struct fake *fake, uint32_t handle);
/* Sends the event to every member of that one. */
void fake_comm_failed_one(struct fake *fake, uint32_t number, uint32_t code, int32_t rank);
/* Sends the event to every member of every comm. */
void fake_comm_failed(struct fake *fake, uint32_t code, int32_t rank);
void fake_epoch_changed(struct fake *fake, uint32_t epoch);
/* Says RESUMED to all sessions, as a daemon that has taken over. */
void fake_resume(struct fake *fake);

/* Waits for that line, counted from 0; it stays as it is until fake_forget. */
const struct fake_seen *fake_line(struct fake *fake, uint32_t i);
/* How many lines were latched. */
uint32_t fake_lines(struct fake *fake);
/* That the last one carried. */
uint32_t fake_last_epoch(struct fake *fake);
/* Waits until a thread sleeps on a request of this GPU's rings. */
void fake_wait_sleeper(struct fake *fake, uint32_t gpu);
/* The lines from now on count from 0. */
void fake_forget(struct fake *fake);

/* private to fake*.c */
void fake_comm_tell(struct fake *fake, struct fake_comm *comm, uint32_t code, int32_t rank); /* that it has failed */
void *fake_resolve(const struct fake_session *session, uint32_t buffer, uint64_t offset, size_t bytes);
uint32_t fake_run(struct fake_comm *comm);
bool fake_is_p2p(const struct ring_request *request);
/* Takes the entries of a send, a receive or a group. False: they are not as they must be. */
bool fake_p2p_take(struct fake_comm *comm, struct fake_member *member, struct fake_bell *bell);
/* True if something has moved. */
bool fake_p2p_work(struct fake *fake, struct fake_comm *comm);
void fake_bell_complete(struct fake_member *member, uint32_t status);
void fake_reply(struct fake *fake, struct fake_session *session, Railmux__Session__Message *message, uint64_t id,
                const int *fds, unsigned int n_fds);
void fake_kick(struct fake *fake);
void fake_work(struct fake *fake);
void fake_comm_end(struct fake_comm *comm, uint32_t status);
void *fake_executor_main(void *userdata);
