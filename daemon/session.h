/* SPDX-License-Identifier: MIT */
#pragma once
/* One connected client process. Owned by the manager (loop thread). */
#include "daemon/attachment.h"
#include "daemon/reach.h"
#include "daemon/session_life.h"
#include "proto/frame.h"
#include "proto/session.pb-c.h"
#include "util/charge.h"
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

struct buffer;
struct comm_member;
struct manager;
struct session_message;
struct session_ring;
struct tenant;
struct tenant_identity;

#define SESSION_NAME_MAX           64u
#define SESSION_QUEUE_MESSAGES_MAX 256u
#define SESSION_QUEUE_BYTES_MAX    (1u << 20)
#define SESSION_CALLS_MAX          1024u
#define SESSION_MESSAGES_PER_TURN  32u
/* Descriptors that processes of a tenant sent and that are not closed yet: with more than few none of its new sessions
 * may send any, with many none may. */
#define SESSION_CLOSES_FEW   512u
#define SESSION_CLOSES_MANY  2048u
#define SESSION_FEATURES     (SESSION_FEATURE_CHUNKS | SESSION_FEATURE_LIFE)
#define SESSION_FEATURES_GPU SESSION_FEATURE_CHUNKS /* of which these are for GPUs only */

struct session {
        UT_hash_handle hh;           /* manager->sessions */
        struct session *next, *prev; /* manager->greetings until HELLO */
        struct manager *manager;
        struct tenant *tenant;

        /* identity */
        uint64_t id; /* 0 until HELLO */
        pid_t pid;
        uid_t uid;
        gid_t gid;
        char name[SESSION_NAME_MAX];
        uint32_t version;
        uint64_t features;
        uint64_t opened_ns;

        /* links */
        int fd;
        int pidfd; /* -1 if it could not be had */
        struct event *read_event, *write_event, *pidfd_event, *timer_event;
        struct session_life life[SESSION_LIVES]; /* end with the process, before the socket does */
        struct session_ring *rings;              /* utlist */
        struct buffer *buffers;                  /* uthash by id */
        struct comm_member *members; /* utlist: ranks of comms held by this session, joining ones included */
        struct attachment attachment;

        /* state */
        bool refused; /* a limit was hit at accept: HELLO is answered with that failure */
        char refusal[160];
        bool ending;   /* about to be freed; no answers go out any more */
        int end_level; /* how loudly end_reason is logged */
        char end_reason[160];
        uint32_t next_handle;
        uint32_t n_calls; /* waiting in struct call lists */
        uint32_t n_life_calls;
        uint64_t look_at; /* session_life_look(): not before the manager's look of that number */
        uint32_t state_slot;
        uint32_t n_rings, n_buffers, n_members;
        uint64_t bytes;     /* shared memory of rings and buffers */
        uint64_t lost_gpus; /* mask: a new executor could not take its memory there over */
        bool reach_work;    /* other executors may have to be asked to map its buffers */
        struct reach_budget reach_budget;
        struct session_message *queue; /* utlist: answers that did not fit the socket */
        uint32_t n_queue;
        size_t queue_bytes;
        uint32_t fds_unread; /* at most so many descriptors are under way to it; zeroed when it has read all */
        bool events_owed;    /* events were left out while it did not read; CommFailed is made up for */
        struct frame_arena arena;
        const int *sent_fds; /* came with the message that is dispatched, and are closed after that */
        uint32_t n_sent_fds;
        bool sent_kept; /* there are copies of them: closing is quick */

        struct charge charge_session, charge_fds;
};

/* Takes over fd in any case. The session is a greeting until HELLO. 0 or -errno (of this connection only). */
int session_new(struct manager *manager, int fd, const struct tenant_identity *identity, struct session **ret_session);
/* Detaches it from executors and comms, frees everything it holds; removes it from fd store and state unless the
 * manager is stopping. Returns NULL. */
struct session *session_free(struct session *session);
/* Logs why and schedules the end for the next turn of the loop; safe from any depth below a dispatch. */
void session_end(struct session *session, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Sending never fails for the caller: what the peer does not take is queued, and beyond the bounds the session ends.
 * The fds of RingReply, BufferReply and LifeReply are looked up here when the message really goes out. */
void session_send(struct session *session, Railmux__Session__Message *message);
void session_flush(struct session *session);
void session_queue_free(struct session *session);
void session_send_ack(struct session *session, uint64_t id);
void session_send_failure(struct session *session, uint64_t id, uint32_t code, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
/* May an event be sent? If not, it is owed: comm_tell_again() follows when the session has read. */
bool session_takes_events(struct session *session);
void session_send_event(struct session *session, Railmux__Session__Event *event);

/* From greeting to session: under a fresh number, or, in adoption, its own. 0 or -errno: it stays a greeting. */
int session_register(struct session *session, uint64_t id);
/* Begins to read and to watch the process. 0 or -errno: then the caller frees it. */
int session_start(struct session *session);
void session_log_opened(const struct session *session);
