/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The parts of a fabric. Everything here is guarded by fabric->lock unless a comment says whose it is; see fabric.c for
 * what is done without it.
 */
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <uthash.h>

#include "fabric/bucket.h"
#include "fabric/fabric.h"
#include "fabric/frame.h"
#include "fabric/hello.h"
#include "fabric/route.h"
#include "fabric/schedule.h"
#include "util/yield.h"

#define FABRIC_TEXT      160u
#define FABRIC_GRAVES    256u /* dead connections remembered for each peer */
#define STUCK_DEADLINES  10u  /* see rail_stuck_ns() */
#define STUCK_SLOWNESS   100u
#define CONN_FORGETS     8u     /* said on a connection and not heard yet */
#define FABRIC_STRANGERS 64u    /* unproven connections of each rail, from where no peer is */
#define FABRIC_UNPROVEN  8u     /* for each peer, from where it is: of three classes, and some that are ending */
#define CONN_FRAMES      32u    /* being sent on a connection */
#define CONN_FRAMES_DATA 24u    /* of these, for chunks and credits */
#define CONN_IN          16384u /* read ahead */
#define CONN_OUT         16384u

/* A message from when it was taken until it is known to have arrived. */
struct fabric_item {
        struct schedule_item schedule; /* first; its prev and next also serve the lists below */
        struct fabric_area *area;      /* a reference */
        struct fabric_peer *peer;
        struct fabric_port *port; /* that it was given to last */
        uint64_t sequence;        /* on its connection */
        uint8_t kind, source, destination;
        uint8_t again;   /* was on a connection that died: 1 + which of its watch's n_again it is in; 0: never */
        uint8_t refused; /* times that an adapter did not take its data */
        uint32_t value, data_bytes;
        uint64_t line_offset, data_offset;
};

/* Messages that were on a connection that died: those that are watched, and those that came since. Of areas that may
 * not take every rail each rank has its own, for others may go where they may not; the rest is the peer's. */
struct fabric_watch {
        uint32_t n_again[2];
        uint8_t watched;               /* which of them */
        uint64_t watched_ns, watch_ns; /* for how long, with a connection; when that was looked at last */
};

struct fabric_area {
        UT_hash_handle hh;
        struct fabric *fabric;
        struct fabric_area *prev, *next;                 /* of fabric->jobs or fabric->told */
        struct fabric_area *changed_prev, *changed_next; /* of fabric->changed */
        uint64_t changed;                                /* areas_version with it; 0: it is not in the list */
        uint64_t key;
        struct net_area *memory;
        uint64_t size, memory_offset, memory_bytes; /* private copies of what was validated */
        uint32_t capacity;                          /* likewise, of the queue */
        int wake_fd;
        struct fabric_node nodes[FABRIC_RANKS_MAX];
        uint32_t n_ranks;
        enum fabric_class class;
        uint64_t tenant;
        uint32_t weight, stripe_bytes;
        uint32_t only;                     /* bits of rails' numbers, 0: all */
        uint32_t n_to[FABRIC_RANKS_MAX];   /* items under way to each rank */
        uint64_t cut_ns[FABRIC_RANKS_MAX]; /* since when none of its rails takes these there; 0: one does */
        struct fabric_watch watches[FABRIC_RANKS_MAX];
        uint8_t rails[FABRIC_RANKS_MAX];     /* that the messages of each rank take, if they are not striped */
        char (*wanted)[FABRIC_NAME_MAX + 1]; /* those that are to take them, "": any; NULL: all any */
        struct fabric_traffic traffic[FABRIC_RAILS_MAX];
        uint32_t n_refs;          /* table, taker, items, frames */
        uint32_t n_users;         /* threads that touch the memory without the lock */
        _Atomic uint32_t n_items; /* relaxed; written under the lock, the taker looks without */
        uint32_t max_items;
        bool gone;
        const char *failed;             /* what it has is dropped, for this reason; NULL: it is not */
        bool failed_told;               /* to the owner */
        uint32_t n_refused, refused_on; /* times that an adapter did not take its data; rails', bits of their indices */
        bool registering;               /* the registrar is at it, without the lock */
        uint32_t nth;                   /* so many areas there were with it, when it was added */
        void *mapping;                  /* to be unmapped with it; NULL: it is the owner's */
        int condition;                  /* what came of registering it, for the owner, with a text */
        char text[FABRIC_TEXT];
        uint32_t position;               /* taker's: in the queue */
        void *regions[FABRIC_RAILS_MAX]; /* what rails' transports have made of it, by the rail's index */
};

/* What became of a dead connection. See recover.c. */
struct fabric_grave {
        struct fabric_grave *prev, *next;
        uint64_t number;
        struct schedule_item *items; /* ours, of which we do not know whether they arrived; by sequence */
        uint64_t received;           /* theirs that we took */
        uint64_t asked_on;           /* the connection that carries our question, 0: none */
        uint64_t answer_on;          /* that carried theirs, and is to carry the answer, 0: none */
        uint64_t forget_on;          /* that carries our FORGET, which they have not heard yet; 0: none */
        uint64_t heard_on;           /* that carried theirs, and is to say that we heard; 0: none */
        bool ask, forget;            /* to be sent */
        bool unknown;                /* we know nothing of it, and say so */
        bool strange;                /* likewise, to who will not ask */
        bool forgotten;              /* they will not ask any more */
};

struct fabric_port { /* one class of a route */
        struct schedule_port schedule;
        struct fabric_route *route;
        enum fabric_class class;
        struct fabric_conn *conn;  /* up, or being made by us */
        struct fabric_conn *knock; /* being made, to ask for one */
        uint64_t knock_ns;         /* the next knock not before */
        uint64_t knocked_ns;       /* when one was answered first, and no connection has come; 0: none was */
        bool wanted;               /* the peer has knocked */
        bool missed;               /* and has no other way for what waits there, while we held the route down */
        uint64_t rest_ns;      /* what is of this class goes over others' connections, and one is tried then; 0: no */
        bool tried;            /* now, though nothing is queued */
        uint32_t n_renumbered; /* dialled again at once with a later number, since a connection was up */
        uint64_t n_connections, n_retransmitted, n_errors, flight_bytes;
        uint64_t messages_sent, bytes_sent; /* traffic_out() */
};

struct fabric_route {
        struct fabric_route *prev, *next; /* of the rail */
        struct fabric_rail *rail;
        struct fabric_peer *peer;
        struct sockaddr_storage address;
        struct in6_addr from; /* of the last connection on which they have proven who they are; "::": none yet */
        struct route health;
        enum fabric_class probe; /* the class whose connection failed last */
        uint64_t last_dead;      /* connection */
        struct fabric_port ports[FABRIC_N_CLASSES];
};

struct peer_rail {
        char name[FABRIC_NAME_MAX + 1];
        struct sockaddr_storage address;
};

struct fabric_peer {
        UT_hash_handle hh;
        struct fabric_node node;
        uint64_t boot_epoch;
        uint8_t token[FABRIC_TOKEN];
        struct peer_rail rails[FABRIC_RAILS_MAX]; /* that it has, whether we have them or not */
        size_t n_rails;
        struct fabric_route *routes[FABRIC_RAILS_MAX];
        size_t n_routes;
        bool dials;       /* we dial: our id is the lower one */
        uint32_t cut_off; /* rails of areas that may take no other, and have no way; when that was looked at last */
        struct schedule_item *waiting; /* no route or no memory for them yet */
        struct fabric_grave *graves;
        uint32_t n_graves;
        struct fabric_watch watch;
        uint64_t strange_number; /* of connections that they dial: this one and those before may not begin any more */
        bool grave_work;         /* a grave has something to send */
        uint32_t n_items, n_up;
        uint64_t heard_ns; /* on any connection that is up */
        uint64_t down_ns;  /* since when it has work and nothing is heard of it; 0: it has not */
        uint64_t told_ns;  /* when the owner was told that, last; 0: not yet */
        uint64_t violation_ns;
        const char *lost; /* why messages to it are, which the owner has yet to hear; NULL: they are not */
};

struct fabric_rail {
        struct fabric *fabric;
        const struct transport *transport;
        void *nic;      /* the transport's */
        char nic_event; /* its address marks the transport's fds in epoll */
        uint8_t index;  /* of the fabric's */
        char name[FABRIC_NAME_MAX + 1];
        char device[16];
        struct sockaddr_storage address, advertised; /* where it listens; where peers connect */
        uint64_t window, nominal;
        uint8_t dscp[FABRIC_N_CLASSES];
        uint8_t number; /* the owner's */
        bool drained, enabled;
        struct schedule schedule;
        struct bucket bucket;
        struct fabric_route *routes;
        /* The thread's. */
        pthread_t thread;
        bool running;
        bool asleep;          /* in epoll_wait */
        bool waking;          /* was, has been called, and is not back yet */
        bool again;           /* something is left to do at once */
        _Atomic bool called;  /* another thread says so; it may be looked at without the lock */
        struct yielder looks; /* of its thread; without the lock: whether it may look on */
        int epoll_fd, listen_fd, wake_fd;
        bool listen_paused;
        struct fabric_conn *conns;
        uint32_t n_strangers, n_up;
        uint64_t tick_ns, ack_ns;
        uint64_t spent_ns; /* in calls of its adapter, in this turn of its thread */
        uint64_t away_ns;  /* since when it is in one, without the lock, less the time spent before; 0: it is not */
        bool stuck;        /* for so long in all that it is given nothing; see rail_give_up() */
        uint8_t *scratch;
        /* Estimate of the bandwidth. */
        uint64_t flight_bytes, estimate, measure_ns, measure_bytes;
        uint64_t believed_ns; /* when the estimate was made, or last got old */
        bool starved;
        uint64_t bytes_sent, bytes_received, messages_sent, messages_received, n_refused, n_unsettled;
        struct fabric_traffic traffic;
};

struct fabric_event;
struct transport;

struct fabric {
        struct fabric_options options;
        char cluster[FABRIC_NAME_MAX + 1];
        struct route_limits limits;
        uint64_t heartbeat_ns, deadline_ns, handshake_ns, unreachable_ns, spin_ns, rail_spin_ns;
        pthread_mutex_t lock;
        uint32_t lock_looks;  /* before a thread sleeps for it */
        struct yielder looks; /* of the taking thread; without the lock: whether it may look on */
        pthread_cond_t quiet; /* an area has lost a user, or the taker has looked */
        bool stop;
        struct fabric_rail *rails[FABRIC_RAILS_MAX];
        size_t n_rails;
        struct fabric_peer *peers;
        uint64_t checked_ns; /* when a rail's thread has looked at them last */
        struct fabric_area *areas;
        /* utlist: those, and those that are gone and somebody still has, by when they changed: were added, registered
         * or removed. Who has seen a version goes from the end to where it was. */
        struct fabric_area *changed;
        uint64_t n_followed; /* how many were looked at in this way */
        uint64_t next_number;
        struct schedule_item *spare;
        uint32_t n_spare;
        /* The taking thread. */
        pthread_t taker;
        bool taker_running, taker_joinable;
        int doorbell_fd, taker_fd;
        _Atomic uint64_t areas_version; /* of the table; relaxed: a hint, the lock has the truth */
        uint64_t taker_version;         /* that the taker goes by */
        bool throttled;
        /* The registering thread. */
        pthread_t registrar;
        bool registrar_joinable;
        pthread_cond_t jobs_wait;
        struct fabric_area *jobs; /* utlist: to be made known (with a reference), or without references to be freed */
        uint64_t job_ns;          /* since when it has been at the one that it took off last; 0: at none */
        /* For the owner. */
        int event_fd;
        struct fabric_area *told; /* utlist, with references: what came of registering them is to be said */
        bool areas_failed;        /* some have, and that is to be said */
        uint64_t violation_ns;    /* told last, of no peer */
        struct fabric_event *events;
        uint32_t n_events;
        struct fabric_counters counters;
        char error[FABRIC_TEXT];
        int error_number;
};

enum conn_state { CONN_CONNECTING, CONN_TLS, CONN_HELLO, CONN_PAIR, CONN_UP };

struct conn_frame {
        uint8_t head[FRAME_HEAD_MAX];
        uint8_t trailer[FRAME_TRAILER];
        uint32_t head_bytes, data_bytes;
        uint64_t done, data_offset;
        struct fabric_area *area; /* a reference if there are data */
        uint64_t sequence;        /* 0: of no item */
        bool checked;             /* the trailer is made */
        bool torn;
};

/* Of its rail's thread, which alone makes, uses and ends it; what others look at is under the lock all the same. */
struct fabric_conn {
        struct fabric_conn *prev, *next;
        struct fabric_rail *rail;
        struct fabric_peer *peer; /* NULL: a stranger yet, or the peer was removed */
        struct fabric_port *port;
        int fd;
        SSL *ssl;
        enum conn_state state;
        bool dialled, knock;
        bool wanted;          /* its port was, when it was dialled */
        bool from_peer;       /* a peer's rail was there when it came */
        struct in6_addr from; /* IPv4 as IPv6 has it; of who dialled us */
        bool doomed;          /* to be buried by its thread; any thread may doom it */
        bool failed;          /* that is the route's fault */
        bool heard_us;        /* they have: else it may be up at this end alone */
        bool closing;         /* when all is written */
        bool ready_in, ready_out;
        uint32_t epoll_events;
        uint64_t number, started_ns, heard_ns, asked_ns;
        uint64_t question_on;  /* another one, on which they asked for this one; when it is buried they are answered */
        uint64_t forgotten_on; /* another one, on which they said that they will not */
        uint32_t n_forgets;    /* FORGETs on their way */
        char why[FABRIC_TEXT];
        uint8_t nonce[16];
        /* Out. */
        uint64_t sequence; /* given last */
        uint64_t acked;
        uint64_t whole; /* sequence of the last that was written whole */
        struct schedule_item *unacked;
        struct schedule_item *parked; /* ours to send, not given to the connection yet */
        uint64_t flight_bytes;
        uint64_t moved_ns;   /* when what they have to take was seen to move; see conn_is_stuck() */
        bool moved;          /* since then */
        uint64_t came_bytes; /* data that came, since the other end acknowledged something */
        struct conn_frame *frames;
        uint32_t first_frame, n_frames;
        uint8_t *out; /* handshake, or TLS records from small pieces */
        uint32_t out_start, out_end;
        bool direct; /* a TLS record was offered out of an area and is to be offered again */
        /* In. */
        uint8_t *in;
        uint32_t in_start, in_end;
        uint64_t received, told; /* sequences: taken, acknowledged */
        uint64_t untold_bytes;
        enum { IN_HEAD, IN_DATA, IN_TRAILER } stage;
        struct frame frame;
        uint8_t line[FRAME_LINE];
        uint32_t data_done, crc;
        struct fabric_area *target; /* a reference; NULL: not to be stored */
        bool pong;
        void *link; /* the transport's */
};

/* About a microsecond. */
static inline void fabric_pause(void) {
        for (uint32_t i = 0; i < 16; i++)
#if defined(__x86_64__)
                __builtin_ia32_pause();
#else
                atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* With so much under way it is not slow any more, but stuck: it is many deadlines, and longer the more there is, by a
 * hundredth of what the rail is said to have. */
static inline uint64_t rail_stuck_ns(const struct fabric_rail *rail, uint64_t bytes) {
        const uint64_t slowest = rail->nominal / STUCK_SLOWNESS + 1;

        return STUCK_DEADLINES * rail->fabric->deadline_ns +
               (uint64_t)((unsigned __int128)bytes * 1000000000u / slowest);
}

/* For threads on the path of messages, where there are processors enough: to look again is cheaper than to sleep. */
static inline void fabric_lock(struct fabric *fabric) {
        for (uint32_t i = 0; i < fabric->lock_looks; i++) {
                if (pthread_mutex_trylock(&fabric->lock) == 0)
                        return;
                fabric_pause();
        }
        pthread_mutex_lock(&fabric->lock);
}

/* only: as of areas. */
static inline bool rail_is_among(const struct fabric_rail *rail, uint32_t only) {
        return only == 0 || only >> rail->number & 1;
}

static inline struct fabric_watch *item_watch(const struct fabric_item *item) {
        return item->area->only ? &item->area->watches[item->destination] : &item->peer->watch;
}

static inline struct fabric_item *item_of(struct schedule_item *schedule) {
        return (struct fabric_item *)(void *)schedule;
}

/* fabric.c */
int fabric_refuse(struct fabric *fabric, int condition, const char *format, ...) __attribute__((format(printf, 3, 4)));
void fabric_tell_route(struct fabric *fabric, const struct fabric_route *route, const char *why);
bool fabric_tell_unreachable(struct fabric *fabric, const struct fabric_peer *peer, const char *why);
bool fabric_tell_lost(struct fabric *fabric, const struct fabric_peer *peer);
bool fabric_tell_cut_off(struct fabric *fabric, const struct fabric_peer *peer, uint64_t key, const char *why);
void fabric_tell_violation(struct fabric *fabric, struct fabric_peer *peer, uint64_t key, const char *text);
int fabric_thread(pthread_t *thread, void *(*run)(void *), void *data, const char *name);
void fabric_ring(int fd); /* an eventfd */
void fabric_unring(int fd);

/* socket.c */
/* -EINVAL, -ENODEV: a link-local one of an interface that is not there. */
int socket_address(const char *text, uint16_t port, struct sockaddr_storage *ret_address);
void socket_text(const struct sockaddr_storage *address, char ret_text[FABRIC_ADDRESS_MAX + 1], uint16_t *ret_port);
bool socket_is_loopback(const struct sockaddr_storage *address);
socklen_t socket_length(const struct sockaddr_storage *address);
int socket_listen(const struct fabric_rail *rail, struct sockaddr_storage *ret_address, int *ret_fd);
int socket_dial(const struct fabric_rail *rail, const struct sockaddr_storage *to, int *ret_fd);
void socket_tune(int fd, uint64_t deadline_ns);
void socket_class(const struct fabric_rail *rail, int fd, enum fabric_class class);

/* area.c */
struct fabric_area *area_ref(struct fabric_area *area);
void area_unref(struct fabric_area *area);
void area_leave(struct fabric *fabric, struct fabric_area *area); /* after n_users++ */
void area_changed(struct fabric_area *area);                      /* the taker and rails are to look at the table */
void area_fail(struct fabric_area *area, const char *why);        /* a text that stays; the owner will remove it */
void areas_take_rail(struct fabric *fabric, const struct fabric_rail *rail); /* it has come, and may be wanted */
/* Whether those that may not take every rail reach the peers that they have work for. */
void areas_check_ways(struct fabric *fabric, uint64_t now_ns);
void areas_free(struct fabric *fabric); /* when all threads have ended */
/* registrar.c; with the lock unless it is said */
void *registrar_run(void *data);
void registrar_take(struct fabric *fabric, struct fabric_area *area);                /* see fabric->jobs */
void registrar_tell(struct fabric *fabric, struct fabric_area *area, int condition); /* takes a reference over */
/* Without the lock; `told` was fabric->told. */
void registrar_dispatch(struct fabric *fabric, struct fabric_area *told);
void registrar_free(struct fabric *fabric);
void area_free(struct fabric_area *area); /* without the lock; takes long */
/* taker.c */
void *taker_run(void *data);

/* traffic.c */
void traffic_out(const struct fabric_item *item); /* it has arrived */
void traffic_in(struct fabric_rail *rail, struct fabric_area *area, const struct frame *frame);

/* place.c */
struct fabric_item *item_new(struct fabric *fabric, struct fabric_area *area, struct fabric_peer *peer,
                             uint8_t destination);
void item_free(struct fabric *fabric, struct fabric_item *item);
/* To the rail that it is to take. It belongs to nobody at the moment. */
void item_place(struct fabric *fabric, struct fabric_item *item);
/* Out of a list: what is of areas that have gone. */
void items_drop_gone(struct fabric *fabric, struct schedule_item **list);
/* All of one that has gone, but for what is on connections that live. */
void area_drop(struct fabric *fabric, const struct fabric_area *area);
/* All that is queued for a route, once more. */
void route_replace(struct fabric *fabric, struct fabric_route *route);
/* After the health changed. */
void route_changed(struct fabric *fabric, struct fabric_route *route, const char *why);
void peer_place_waiting(struct fabric *fabric, struct fabric_peer *peer);

/* peer.c */
struct fabric_peer *peer_of_node(struct fabric *fabric, const struct fabric_node *node);
int route_new(struct fabric *fabric, struct fabric_peer *peer, struct fabric_rail *rail,
              const struct sockaddr_storage *address, struct fabric_route **ret_route);
struct fabric_route *peer_route(const struct fabric_peer *peer, const struct fabric_rail *rail); /* NULL: none */
/* A rail that comes when peers are there: routes to those that have it, which are used when its thread runs, or taken
 * back, which is all right after an error, too. */
int peers_take_rail(struct fabric *fabric, struct fabric_rail *rail);
void peers_use_rail(struct fabric *fabric, struct fabric_rail *rail);
void peers_leave_rail(struct fabric *fabric, struct fabric_rail *rail);
void peers_drop(struct fabric *fabric);
void peer_check_reachable(struct fabric *fabric, struct fabric_peer *peer, uint64_t now_ns);
/* Over one of these rails (only: as of areas). */
bool peer_has_way(const struct fabric_peer *peer, uint32_t only);
/* Also what may come back in a moment: connections there, though nothing goes over them just now. */
uint32_t peer_count_up(const struct fabric *fabric, const struct fabric_peer *peer, uint32_t only, uint64_t now_ns);
/* Has what is watched not arrived for too long? Only rails of these are looked at. */
bool peer_watch_ends(const struct fabric *fabric, const struct fabric_peer *peer, uint32_t only,
                     struct fabric_watch *watch, uint64_t now_ns);
/* Is somebody answering who has been waited for since then, on these rails, for no longer than most_ns? */
bool peer_shakes_hands(const struct fabric *fabric, const struct fabric_peer *peer, uint32_t only, uint64_t since_ns,
                       uint64_t most_ns, uint64_t now_ns);
/* Somebody waits for any route of that peer at all: here, or at the other end, which has knocked. */
bool route_is_missed(const struct fabric_route *route);

/* recover.c */
void grave_dig(struct fabric *fabric, struct fabric_conn *conn);
struct fabric_grave *grave_find(struct fabric_peer *peer, uint64_t number);
void graves_drop_gone(struct fabric *fabric, struct fabric_peer *peer); /* messages of areas that have gone */
void graves_free(struct fabric *fabric, struct fabric_peer *peer);
void recover_begin(struct fabric_peer *peer); /* it has one more connection */
void recover_send(struct fabric *fabric, struct fabric_conn *conn);
void recover_question(struct fabric *fabric, struct fabric_conn *conn, uint64_t number);
/* It is not watched any more (peer_watch_ends). */
void item_unwatch(struct fabric_item *item);
void recover_answer(struct fabric *fabric, struct fabric_conn *conn, const struct frame *frame);
void recover_forget(struct fabric *fabric, struct fabric_conn *conn, const struct frame *frame);

/* rail.c */
void *rail_run(void *data);
void rail_wake(struct fabric_rail *rail);
void rail_free(struct fabric_rail *rail);
void rails_free(struct fabric *fabric);
/* Something has been acknowledged. Returns whether the estimate is another one. */
bool rail_measure(struct fabric_rail *rail, uint64_t now_ns);
/* The estimate gets old; once in a while. */
void rail_age(struct fabric_rail *rail, uint64_t now_ns);
/* By the taking thread, which is in no adapter: all rails' threads may be in theirs, and nobody looks after peers then.
 * Returns for how many milliseconds it may sleep, -1 for ever. */
int rails_watch(struct fabric *fabric, uint64_t now_ns);
/* dial.c */
void route_dial(struct fabric *fabric, struct fabric_route *route, uint64_t now_ns);
void route_check_knocks(struct fabric *fabric, struct fabric_route *route, uint64_t now_ns);
void rail_accept(struct fabric_rail *rail, uint64_t now_ns);

/* conn.c */
int conn_new(struct fabric_rail *rail, int fd, bool server, uint64_t now_ns, struct fabric_conn **ret_conn);
void conn_doom(struct fabric_conn *conn, bool failed, const char *format, ...) __attribute__((format(printf, 3, 4)));
void conn_bury(struct fabric_conn *conn, uint64_t now_ns);
void conn_watch(struct fabric_conn *conn, uint32_t events);
void conn_assign(struct fabric_conn *conn, struct fabric_item *item);
void conn_send(struct fabric_conn *conn); /* gives the lock away meanwhile */
void conn_unpark(struct fabric_conn *conn);
/* No connection comes, or it takes long, of this class alone: another one's, which lives, takes what is of it. False:
 * none does, so it is the route's. */
bool port_rests(struct fabric_port *port, uint64_t now_ns);
bool conn_control(struct fabric_conn *conn, uint8_t kind, uint64_t key, uint64_t offset, uint32_t value);
/* The same, of a frame whose connection and acknowledgement are filled in. False: there is no room at the moment. */
bool conn_say(struct fabric_conn *conn, struct frame *frame);
/* What we say on it gets there: its class need not rest. */
static inline void conn_is_heard(struct fabric_conn *conn) {
        conn->heard_us = true;
        if (conn->port)
                conn->port->rest_ns = 0;
}
static inline void conn_heard_at(struct fabric_conn *conn, uint64_t now_ns) {
        if (conn->state == CONN_UP && !conn->heard_us) /* nothing is sent there before our answer has come */
                conn_is_heard(conn);
        conn->heard_ns = now_ns;
        if (conn->peer)
                conn->peer->heard_ns = now_ns;
}
/* By the transport: bytes of a frame have gone, or it has. */
static inline void conn_has_sent(struct fabric_conn *conn, const struct conn_frame *frame) {
        if (frame->sequence || !conn->unacked) /* else pings would hide that messages do not move */
                conn->moved = true;
}
/* Likewise: data of a message have come. */
void conn_came(struct fabric_conn *conn, uint32_t bytes);
void conn_shut(struct fabric_conn *conn); /* or open: its port, as windows are */
void conn_acked(struct fabric_conn *conn, uint64_t ack, uint64_t now_ns);
void conn_tick(struct fabric_conn *conn, uint64_t now_ns);
/* handshake.c */
int conn_say_hello(struct fabric_conn *conn);
void conn_shake(struct fabric_conn *conn, uint64_t now_ns); /* until it is up */
void conn_up(struct fabric_conn *conn, uint64_t now_ns);    /* by the transport */
/* stream.c */
/* Bytes; 0: none for now; -1: it has ended, and is doomed. Gives the lock away meanwhile. */
ssize_t conn_read(struct fabric_conn *conn, const struct iovec *to, int n_to);
/* message.c */
/*
 * A head, checked, its acknowledgement taken, and obeyed if it is none of a message. Returns how long it is; 0: more
 * bytes are needed, or the connection is doomed. conn->frame and conn->line have it.
 */
uint32_t conn_head(struct fabric_conn *conn, const uint8_t *bytes, uint32_t size, uint64_t now_ns);
/* Where a message is to be stored; NULL if nowhere. */
struct fabric_area *conn_target(struct fabric_conn *conn, const struct frame *frame);
/* All of the message in conn->frame is here: it counts as received, whether or not it is stored. */
void conn_apply(struct fabric_conn *conn, struct fabric_area *area);
/* What was received, soon or now. */
void conn_tell(struct fabric_conn *conn, uint64_t now_ns);
void conn_malformed(struct fabric_conn *conn, const char *what);
void conn_corrupted(struct fabric_conn *conn);
