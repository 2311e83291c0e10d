/* SPDX-License-Identifier: MIT */
#pragma once
/* What the files of the control channel between daemons know of each other; the rest of the daemon sees peer.h. Loop
 * thread. */
#include "daemon/peer.h"
#include "daemon/peer_address.h"
#include "daemon/peer_frame.h"
#include <event2/bufferevent.h>
#include <event2/dns.h>
#include <event2/listener.h>
#include <uthash.h>

/* Accepted connections before HELLO is done, of which the oldest makes room: those from all hosts at which no peer is
 * known, or from one where some are. There are more of these if there are so many for each of the peers. */
#define PEERS_STRANGERS_MAX 64u
#define PEERS_UNPROVEN_MAX  16u
#define PEERS_TELL_MAX      8u  /* refusals in the log, in a while */
#define PEERS_TELL_HOST_MAX 4u  /* ... of one host */
#define PEERS_LOST_MAX      64u /* that operators are still shown; the oldest makes room */

enum peer_link_state {
        PEER_LINK_CONNECTING, /* TCP, then TLS */
        PEER_LINK_HELLO,      /* ours is sent, theirs is awaited */
        PEER_LINK_AGREEING,   /* CLAIM or WELCOME is awaited */
        PEER_LINK_OPEN,       /* the connection of the pair */
        PEER_LINK_ENDING,     /* REFUSE is on its way; what comes in is thrown away */
};

/* What the other end says of itself. */
struct peer_greeting {
        uint8_t node[PEER_NODE_BYTES];
        uint8_t nonce[PEER_NONCE_BYTES];
        uint64_t boot;
        uint32_t version; /* agreed */
        bool classes;     /* its rails take messages of any class */
        char address[PEER_ADDRESS_MAX];
        char name[PEER_NAME_MAX];
};

/* One connection. */
struct peer_link {
        struct peer_link *next, *prev; /* peers->links, the oldest first */
        struct peers *peers;
        struct peer *peer; /* whose dial or link this is, NULL: nobody's yet */

        /* links */
        struct bufferevent *stream;
        struct event *timer;           /* end of patience before OPEN and while ENDING; afterwards see `doom` */
        char remote[PEER_ADDRESS_MAX]; /* for the log */

        /* state */
        enum peer_link_state state;
        bool dialled, tls;
        bool from_peer;           /* it was accepted from a host at which a peer is known */
        bool *gone;               /* set when the link is freed below who set it */
        char doom[PEER_TEXT_MAX]; /* it ends from the loop for this reason */
        uint8_t nonce[PEER_NONCE_BYTES];
        struct peer_greeting other; /* from AGREEING on */
        uint8_t token[PEER_TOKEN_BYTES];
        uint64_t number; /* of WELCOME */
        uint64_t opened_ns, heard_ns, pinged_ns, ping, pong;
};

/* One other daemon. */
struct peer {
        struct peer *next, *prev; /* peers->list, or ->lost */
        UT_hash_handle hh;        /* by node, once identified */
        struct peers *peers;
        uint32_t holds;

        /* identity */
        bool identified;
        uint8_t node[PEER_NODE_BYTES];
        uint64_t boot;
        char dial_address[PEER_ADDRESS_MAX]; /* as dialled; "": never, or it is somebody else's now */
        char address[PEER_ADDRESS_MAX];      /* as advertised; "": not known yet */
        char from[PEER_ADDRESS_MAX];         /* that its last connection had; a name if it was dialled by one */
        char name[PEER_NAME_MAX];

        /* links */
        struct peer_link *link; /* OPEN */
        struct peer_link *dial; /* an attempt */
        struct event *timer;    /* the next attempt */
        struct evbuffer *queue; /* frames for the next connection */

        /* state */
        uint32_t failures; /* attempts and short connections in a row */
        uint64_t ended;    /* number of the last connection with `boot` that has ended */
        uint64_t since_ns;
        uint64_t sent_messages, sent_bytes, received_messages, received_bytes, round_trip_ns, losses, attempts;
        char error[PEER_TEXT_MAX];
};

struct peers {
        /* owner */
        struct event_base *base;
        struct peer_events events;
        void *data;

        /* identity */
        uint8_t node[PEER_NODE_BYTES];
        uint64_t boot;
        char cluster[PEER_CLUSTER_MAX];
        char name[PEER_NAME_MAX];
        char address[PEER_ADDRESS_MAX];
        char listen[PEER_ADDRESS_MAX]; /* as it was told */
        struct sockaddr_storage bound; /* the same */
        int bound_size;
        bool ahead;

        /* parts */
        SSL_CTX *tls; /* NULL: plain */
        struct evconnlistener *listener;
        struct evdns_base *dns;  /* made for the first name that is dialled */
        struct event *rearm;     /* the listener, after running out of descriptors, or when there is none */
        struct event *tick;      /* heartbeats; pending while a connection is open */
        struct event *reap;      /* of peers that nobody needs */
        struct peer *list;       /* utlist */
        struct peer *lost;       /* utlist, the first one first: see peer_lost.c */
        struct peer *by_node;    /* uthash */
        struct peer_link *links; /* utlist */

        /* state */
        bool plain;
        char deaf[PEER_TEXT_MAX]; /* why it does not listen; "" if it does */
        uint32_t heartbeat_ms, deadline_ms, handshake_ms, keep_ms;
        uint32_t n_peers, n_lost, n_open;
        uint64_t ticked_ns;
        uint64_t next_number;
        uint64_t told_ns, n_told, n_untold; /* refusals in the log, and what they said: */
        char told[PEERS_TELL_MAX][PEER_ADDRESS_MAX + PEER_TEXT_MAX];
        struct peers_counters counters;
};

/* ---- peers.c ---- */
/* One line in the log for a refusal, or for many of them. */
void peers_tell_refusal(struct peers *peers, const char *remote, const char *text);
/* An OPEN link more or less. */
void peers_count_open(struct peers *peers, int change);
struct evdns_base *peers_dns(struct peers *peers);
/* PEER_E_REFUSED, with a text that names what is wrong. */
int peers_refuse(char error[PEER_TEXT_MAX], const char *key, const char *text);

/* ---- peer_listen.c ---- */
/* Sets peers->address, too. 0, -errno, PEER_E_REFUSED, with a text. */
int peers_listen(struct peers *peers, const struct peers_options *options, char error[PEER_TEXT_MAX]);
void peers_rearm(evutil_socket_t fd, short what, void *data);

/* ---- peer_settle.c ---- */
/* Dialled under this address, or advertising it; NULL if there is none. */
struct peer *peers_find_address(struct peers *peers, const char *address);
/* The peer that the other end of a link is from now on; made if there is none, merged if two are one. The link is
 * nobody's afterwards. 0, -ENOMEM, PEER_E_FULL. */
int peers_settle(struct peers *peers, struct peer_link *link, struct peer **ret_peer);
/* The peer that a link dials may have turned out to be one that is known already: then it is merged into that one. The
 * link may be nobody's afterwards. */
void peers_reconcile(struct peers *peers, struct peer_link *link);

/* ---- peer.c ---- */
int peer_new(struct peers *peers, struct peer **ret_peer);
struct peer *peer_free(struct peer *peer);
/* Out of peers->list and peers->by_node, and without what it needs to connect. */
void peer_unlink(struct peer *peer);
int peer_identify(struct peer *peer, const uint8_t node[PEER_NODE_BYTES]);
/* The link is the peer's connection from now on; one that it has is lost first. */
void peer_adopt(struct peer *peer, struct peer_link *link);
/* Its connection is over; the link is the caller's to free. */
void peer_lose(struct peer *peer, const char *text);
/* Its attempt is over; `quiet` if that is no failure. The link is the caller's to free. */
void peer_attempt_over(struct peer *peer, const char *text, bool quiet);
/* Dials after a while, if that is wanted. */
void peer_redial(struct peer *peer);

/* ---- peer_lost.c ---- */
/* Nobody needs it any more: it is freed, or shown for a while if it was lost. */
void peer_retire(struct peer *peer);
/* It has come back, or another one at its address: what was shown in its place goes. */
void peer_recall(struct peer *peer);
/* It is still to be shown. */
bool peer_lost_in_time(const struct peer *peer, uint64_t now_ns);
void peers_lost_free(struct peers *peers);

/* ---- peer_link.c ---- */
int peer_link_dial(struct peer *peer, const char *address, char text[PEER_TEXT_MAX]);
/* Takes fd over. */
int peer_link_accept(struct peers *peers, int fd, const char *remote, bool from_peer);
struct peer_link *peer_link_free(struct peer_link *link);
/* Sends what has been packed; -ENOMEM. */
int peer_link_send(struct peer_link *link, const uint8_t *data, size_t size);
/* A message of the connection itself. Without memory the link ends, from the loop. */
void peer_link_say(struct peer_link *link, const Railmux__Peer__Message *message);
/* Whatever the link was for its peer is over; `quiet` if an attempt that ends is no failure. */
void peer_link_detach(struct peer_link *link, const char *text, bool quiet);
/* The end without a word; frees the link. */
void peer_link_end(struct peer_link *link, const char *text);
/* Tells the other end why, then ends. What the link was for its peer is over at once. */
void peer_link_refuse(struct peer_link *link, Railmux__Peer__RefuseCode code, const char *text);
/* Ends it from the loop. */
void peer_link_doom(struct peer_link *link, const char *text);
/* Heartbeat of one link; may end it. */
void peer_link_tick(struct peer_link *link, uint64_t now_ns, uint64_t late_ns);
size_t peer_link_queued(const struct peer_link *link);

/* ---- peer_agree.c ---- */
/* What the other end says. The link may be gone afterwards. */
void peer_agree_message(struct peer_link *link, const Railmux__Peer__Message *message);

/* ---- peer_hello.c ---- */
int peer_hello_send(struct peer_link *link);
/* REFUSE_* with a text, or -1: all is well, and link->other is set. */
int peer_hello_check(struct peer_link *link, const Railmux__Peer__Hello *hello, char text[PEER_TEXT_MAX]);
/* Who may speak without TLS, and whose certificate counts: before HELLO. REFUSE_* with a text, or -1. */
int peer_hello_entry(struct peer_link *link, char text[PEER_TEXT_MAX]);
/* The secret that both ends compute. 0 or -errno. */
int peer_hello_token(struct peer_link *link);
