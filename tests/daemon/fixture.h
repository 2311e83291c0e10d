/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * A real railmuxd in a directory of its own, with everything around it played by the test in one thread: the executor,
 * the clients and, if wanted, the service manager with its fd store. Whoever waits for something turns one poll loop
 * (fixture_turn), which lets the played parts answer. Nothing sleeps; a wait that lasts longer than ten seconds (in
 * builds with a sanitizer more, time_scale.h) fails the test.
 */
#include "daemon/comm_id.h"
#include "plan/cost.h"
#include "proto/executor.pb-c.h"
#include "proto/frame.h"
#include "proto/session.pb-c.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FIXTURE_CLIENTS 80
#define FIXTURE_STORE   512

struct inbox_message {
        struct inbox_message *next, *prev;
        Railmux__Session__Message *message;
        struct frame_arena arena;
        int fds[FRAME_FDS_MAX];
        unsigned int n_fds;
};

struct client {
        struct fixture *fixture;
        int fd; /* -1: unused */
        bool eof;
        bool deaf; /* does not read */
        pid_t pid; /* of the process that connected, 0: this one */
        uint64_t next_id;
        uint64_t session;
        uint32_t gpus;
        uint32_t exchange;           /* that it says it has, when it creates and splits */
        bool spare;                  /* it says so of its splits */
        struct inbox_message *inbox; /* utlist */
};

struct fake_comm {
        uint64_t number;
        uint32_t n_ranks, code, epoch, failed; /* failed, text: as in CommKey */
        const char *text;
        uint64_t sessions[64];
        uint32_t handles[64];
        bool left[64];
        uint32_t n_choices;
        struct {
                uint32_t operation, algorithm, widening;
                uint64_t max_bytes;
        } choices[PLAN_CHOICES_MAX];
};

extern bool fixture_executor_plain;          /* it does not know widenings */
extern uint32_t fixture_executor_algorithms; /* those that it knows; 0: it does not say */
extern uint32_t fixture_executor_gpus;       /* that it serves, at most 8 */
/* The executor: says DONE to everything and remembers it. */
struct fake_executor {
        int fd;
        uint64_t instance;
        bool hold; /* DONE waits until this is false */
        bool deaf; /* it does not read */
        bool welcome;
        bool in_use;         /* buffers that are retired are still used: they go to `retired`, and DONE says so */
        uint32_t rung;       /* by a rank that leaves, says DONE; 0: it does not say */
        uint64_t operations; /* that it counts */
        bool slow_query;     /* it notes what it counted when it was asked, and says it in executor_answer_query() */
        uint64_t query, query_operations; /* that it has noted; 0: none */
        uint32_t refuse;                  /* body case that is answered with RMX_E_UNSUPPORTED */
        bool announce_failures;           /* COMM_FAILED after a session was detached */
        uint64_t held[256];
        uint32_t held_code[256];
        bool held_in_use[256];
        unsigned int n_held;
        uint64_t sessions[256];
        unsigned int n_sessions;
        struct {
                uint64_t session;
                uint32_t gpu;
        } rings[256];
        unsigned int n_rings;
        struct {
                uint64_t session;
                uint32_t buffer;
        } buffers[512];
        unsigned int n_buffers;
        struct {
                uint64_t session;
                uint32_t buffer;
        } retired[512];
        unsigned int n_retired;
        struct fake_comm comms[128];
        unsigned int n_comms;
        unsigned int count[32];    /* messages by body case */
        unsigned int import_count; /* of BUFFER_IMPORT when COMM_ABORT, RANK_LEAVE or SESSION_DETACH came last */
};

struct store_entry {
        char name[64];
        int fd;
        bool of_unit; /* a socket unit's: handed over as the others are, but not in the store */
};

#define FIXTURE_PLANES 9

struct fixture {
        char directory[64];
        char socket[96], exec[108], control[96], config[96], notify[96], idler[96];
        pid_t daemon;
        int told; /* SIGTERM or SIGHUP that the daemon has been sent, until it is seen to have heard; 0: none */
        uint64_t told_again_ns;
        unsigned int told_heard; /* n_stopping or n_reloading when it was sent */
        unsigned int idle_fds;   /* of the daemon, when it was ready and alone */
        uint32_t gpus;           /* that clients are told of */
        const char *tenant;      /* the same; NULL: the default one */
        const char *gpu_option;
        pid_t planes[FIXTURE_PLANES];             /* executors of GPUs, by number (fixture_plane.c); 0: does not run */
        uint64_t planes_again_ns[FIXTURE_PLANES]; /* of those that have been sent SIGTERM; 0: not so */
        uint64_t planes_hang_ns[FIXTURE_PLANES];  /* since when one stands still */
        struct fake_executor executor;
        struct client clients[FIXTURE_CLIENTS];
        bool managed;
        bool busy; /* the service manager does not read */
        int notify_fd;
        unsigned int kill_at; /* > 0: the daemon is killed at the n-th notification from now */
        unsigned int n_notified;
        unsigned int n_ready, n_barriers, n_reloading, n_stopping, n_watchdog;
        struct store_entry store[FIXTURE_STORE];
        unsigned int n_store;
};

extern unsigned int fixture_max_fds;      /* > 0: of daemons started from now on */
extern const char *fixture_preload;       /* a library for daemons started from now on (preload*.c); 0.die, 0.dumps */
extern uint64_t fixture_bursts;           /* ... know bursts */
extern uint64_t fixture_reaches;          /* executors of these GPUs, started from now on, map buffers of others */
extern const char *fixture_planes_config; /* of daemons with real executors, started from now on; NULL: none */
/* config: text of a configuration file or NULL. managed: play the service manager. */
void fixture_setup(struct fixture *fixture, const char *config, bool managed);
/* Real executors, one per GPU, with the plug-in of tests/executor/fake_plane.c, in place of the played one. They are
 * the test's own children and outlive railmuxd. */
void fixture_setup_planes(struct fixture *fixture, uint32_t n, bool managed);
void plane_start(struct fixture *fixture, uint32_t gpu);
void plane_kill(struct fixture *fixture, uint32_t gpu); /* SIGKILL, and wait */
void plane_term(struct fixture *fixture, uint32_t gpu); /* SIGTERM */
int plane_stop(struct fixture *fixture, uint32_t gpu);  /* the same; its exit status */
int plane_end(struct fixture *fixture, uint32_t gpu);   /* it ends by itself; its exit status */
/* An executor stands still: "hang", where it ends a communicator; "slow_detach", where it detaches one; NULL: at once.
 * railmuxd kills one that does not end a communicator within four seconds, however slow the machine is. So what is to
 * be so until then is looked at before plane_go(), and is judged after it has said that this was in time. If not so,
 * the executor has been killed and the test begins anew; plane_go() sees to it that it does not do so for ever. What
 * the executor may never do if it is late is not waited for any longer then. plane_hang() again: time begins anew. */
void plane_hang(struct fixture *fixture, uint32_t gpu, const char *where);
bool plane_go(struct fixture *fixture, uint32_t gpu, const char *where);
bool plane_is_late(const struct fixture *fixture, uint32_t gpu);
/* What railmuxctl prints, with up to two words, until it runs again. It must succeed, whatever it prints. */
const char *fixture_ctl_text(struct fixture *fixture, const char *word, const char *second);
/* Is the text in it? */
bool fixture_ctl_says(struct fixture *fixture, const char *word, const char *second, const char *text);
/* The same where nothing is waited for: it must print it, or must not. If not so, what it printed is shown. */
#define fixture_assert_says(fixture, word, second, text)                                                               \
        fixture_ctl_check(fixture, word, second, text, true, __FILE__, __LINE__)
#define fixture_assert_silent(fixture, word, second, text)                                                             \
        fixture_ctl_check(fixture, word, second, text, false, __FILE__, __LINE__)
void fixture_ctl_check(struct fixture *fixture, const char *word, const char *second, const char *text, bool says,
                       const char *file, int line);
/* The value that it shows of a metric, whose name with all labels this is. */
double fixture_metric(struct fixture *fixture, const char *name);
/* Another text for the configuration file, which is read again if `reload`. */
void fixture_configure(struct fixture *fixture, const char *config, bool reload);
/* Starts `railmuxctl drain NAME`; the test's loop turns until it ends. Its exit status, and what it prints on both. */
pid_t ctl_drain_start(struct fixture *fixture, const char *name);
int ctl_drain_end(struct fixture *fixture, pid_t pid, char *ret_text, size_t size);
void plane_wait_ready(struct fixture *fixture, uint32_t n); /* so many executors are ready */
void plane_write(struct fixture *fixture, uint32_t gpu, const char *name, const char *text); /* NULL: removes it */
/* Lines of its log that begin with the text; where the last of them stands (counted from 1), 0 if none. */
unsigned int plane_count(struct fixture *fixture, uint32_t gpu, const char *begin);
unsigned int plane_line(struct fixture *fixture, uint32_t gpu, const char *begin);
/* The last line of its log that begins with the text, without the text. */
void plane_text(struct fixture *fixture, uint32_t gpu, const char *begin, char *ret_text, size_t size);

void fixture_teardown(struct fixture *fixture); /* stops the daemon with SIGTERM and checks its exit status */
void fixture_start(struct fixture *fixture);    /* a (new) railmuxd, with what the store holds */
void fixture_kill(struct fixture *fixture);     /* SIGKILL, and wait */
void fixture_signal(struct fixture *fixture, int signal_number);
unsigned int fixture_daemon_fds(struct fixture *fixture);
/* Waits until the daemon holds as many fds as when it was alone. */
void fixture_wait_idle(struct fixture *fixture);
int fixture_stored(struct fixture *fixture, const char *name); /* index or -1 */
/* A socket of a socket unit, bound to this file of the directory, which daemons get from now on before what is stored.
 */
void fixture_add_unit(struct fixture *fixture, const char *name, const char *file);

/* One turn of the loop; returns after something happened, or after at most 20 ms. */
void fixture_turn(struct fixture *fixture);
#define fixture_wait(fixture, condition)                                                                               \
        do {                                                                                                           \
                uint64_t end_ = fixture_deadline();                                                                    \
                while (!(condition))                                                                                   \
                        fixture_turn_until(fixture, end_, #condition, __FILE__, __LINE__);                             \
        } while (0)
uint64_t fixture_deadline(void);
void fixture_turn_until(struct fixture *fixture, uint64_t end_ns, const char *what, const char *file, int line);

/* fresh: a new process that holds nothing; else the same one comes back with its inventory. */
void executor_connect(struct fixture *fixture, bool fresh);
/* The same in two steps, between which it has only said who it is. */
void executor_begin(struct fixture *fixture, bool fresh);
void executor_go_on(struct fixture *fixture);
void executor_disconnect(struct fixture *fixture);
void executor_release(struct fixture *fixture);      /* says what it held back */
void executor_answer_query(struct fixture *fixture); /* says what it noted; is not slow from then on */
struct fake_comm *executor_comm(struct fixture *fixture, uint64_t number);
void executor_send_comm_failed(struct fixture *fixture, uint64_t comm, uint32_t code, int32_t rank);
void executor_send(struct fixture *fixture, Railmux__Executor__Message *message);
/* The memory is not used any more. */
void executor_send_released(struct fixture *fixture, uint64_t session, uint32_t buffer);

struct client *client_connect(struct fixture *fixture); /* no HELLO */
struct client *client_open(struct fixture *fixture);    /* with HELLO, must succeed */
/* Connected by a child process that can be killed; the socket is shared with the test. */
struct client *client_open_child(struct fixture *fixture);
void client_close(struct client *client);
uint64_t client_send(struct client *client, Railmux__Session__Message *message); /* gives it an id if it has none */
struct inbox_message *client_answer(struct client *client, uint64_t id);         /* waits; NULL at EOF */
struct inbox_message *client_find(struct client *client, uint64_t id);           /* does not wait */
struct inbox_message *client_event(struct client *client, uint32_t event_case);  /* waits */
bool client_has_event(struct client *client, uint32_t event_case);
void client_drop(struct client *client, struct inbox_message *entry);
void client_wait_eof(struct client *client);

/* Whole calls. The _send ones return the id, the others the code (0 for success). */
uint64_t send_hello(struct client *client);
uint64_t send_ring_open(struct client *client, uint32_t gpu);
uint64_t send_life_open(struct client *client);
struct life_ends {
        int fd[2];
};
/* The ends of the pipes, armed if wanted. */
struct life_ends take_life(struct client *client, uint64_t id, bool arm);
void life_ends_close(struct life_ends *ends);
/* With memory on that GPU; the tag stands at the beginning of the handle. bytes of a ring 0: what it should have. */
uint64_t send_ring_open_device(struct client *client, uint32_t gpu, const char *tag, uint64_t bytes);
/* Opens such a ring, and maps the GPU's latch that comes with it (plane_latch_bytes), which the caller unmaps. */
int32_t *client_latch(struct client *client, uint32_t gpu);
uint64_t send_buffer_create_device(struct client *client, uint32_t buffer, uint64_t bytes, uint32_t gpu,
                                   const char *tag);
uint64_t send_buffer_create(struct client *client, uint32_t buffer, uint64_t bytes);
uint64_t send_buffer_destroy(struct client *client, uint32_t buffer);
uint64_t send_comm_create(struct client *client, const uint8_t id[COMM_ID_BYTES], uint32_t n_ranks, uint32_t rank);
uint64_t send_comm_create_on(struct client *client, const uint8_t id[COMM_ID_BYTES], uint32_t n_ranks, uint32_t rank,
                             int32_t gpu);
uint64_t send_comm_split(struct client *client, uint32_t parent, uint32_t number, int32_t colour, int32_t key);
uint64_t send_comm_split_on(struct client *client, uint32_t parent, uint32_t number, int32_t colour, int32_t key,
                            int32_t gpu);
uint64_t send_comm_destroy(struct client *client, uint32_t handle, uint32_t last_sequence);
uint64_t send_comm_abort(struct client *client, uint32_t handle);
uint64_t send_comm_abort_for(struct client *client, uint32_t handle, uint32_t status);
/* The rank gives up joining, or the split. */
uint64_t send_join_cancel(struct client *client, const uint8_t id[COMM_ID_BYTES], uint32_t rank);
uint64_t send_split_cancel(struct client *client, uint32_t parent, uint32_t number);
void call_id_create(struct client *client, uint8_t ret_id[COMM_ID_BYTES]);

struct comm_answer {
        uint32_t code; /* 0, or of the failure */
        char text[256];
        uint32_t handle, n_ranks, rank, gpu, epoch;
        uint64_t comm;
        uint64_t exchange_min, exchange_max;
        char nodes[65]; /* a digit for each rank; "": it says nothing of them */
};
struct comm_answer take_comm(struct client *client, uint64_t id);
/* The code of the next failure that it hears of, which is of that communicator. */
uint32_t take_failure(struct client *client, uint32_t handle);
/* Code of an answer that is an Ack or a Failure. */
uint32_t take_ack(struct client *client, uint64_t id, char *ret_text, size_t size);
/* It is answered, and not with a Failure. */
void expect_reply(struct client *client, uint64_t id);
/* A comm of n clients (opened already); handles by rank. Returns its number. */
uint64_t make_comm(struct client **clients, uint32_t n, uint32_t *ret_handles);
