/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The control channel between the daemons of a cluster: one connection for each pair of them, mutual TLS 1.3, typed
 * messages (proto/peer.proto). See peers.c for how two daemons agree on one connection, peer_link.c for what strangers
 * can do. Loop thread only, all of it.
 *
 * What a connection promises: between up() and lost() messages arrive whole, in order and once. What was sent before
 * lost() may or may not have arrived; what was still queued is dropped then, and never reaches another incarnation.
 */
#include "daemon/peer_address.h"
#include "proto/peer.pb-c.h"
#include <event2/event.h>
#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peer;
struct peers;

#define PEER_NODE_BYTES  16u /* of a node id: COMM_ID_NODE_BYTES */
#define PEER_TOKEN_BYTES 32u
#define PEER_CLUSTER_MAX 64u
#define PEER_NAME_MAX    64u
#define PEER_TEXT_MAX    256u
#define PEER_MESSAGE_MAX (1u << 20)  /* bytes of one packed message */
#define PEER_QUEUE_MAX   (16u << 20) /* bytes that wait for one peer, framing included */
#define PEERS_MAX        4096u       /* daemons known at a time */
/* docs/PROTOCOL.md says what a version is. 2, 3 and 4: executors on GPUs lay out net areas in another way
 * (gpu/mirror.h), which they cannot notice by themselves; so those before are refused. */
#define PEER_PROTOCOL_MIN 4u
#define PEER_PROTOCOL_MAX 4u

/* Positive conditions. */
enum {
        _PEER_E_SUCCESS,
        PEER_E_FULL,    /* PEER_QUEUE_MAX bytes wait already, or PEERS_MAX peers are known */
        PEER_E_LARGE,   /* the packed message has more than PEER_MESSAGE_MAX bytes, or a field beyond its bound */
        PEER_E_ADDRESS, /* no "host:port" */
        PEER_E_SELF,    /* this daemon's own address */
        PEER_E_REFUSED, /* options that cannot work; the text says why */
};

/*
 * What the holder hears. All of them are called from the loop and never from below a function of this header, except
 * that peers_free() is silent. Within each of them peer_*() and peers_dial() may be called, peers_free() may not.
 * A peer that nobody holds stays valid until lost() or failed() for it returns. NULL: not interested.
 */
struct peer_events {
        /* The connection is there: node id, boot, address and token are known. */
        void (*up)(struct peer *peer, void *data);
        /* The message is freed after the return. Its sizes are checked (peer_frame_check), its meaning is not. */
        void (*message)(struct peer *peer, const Railmux__Peer__Message *message, void *data);
        /* Once for each up(). boot, name and node id are still those of the incarnation that is lost. */
        void (*lost)(struct peer *peer, const char *text, void *data);
        /* An attempt to connect failed. It is repeated for as long as the peer is held. */
        void (*failed)(struct peer *peer, const char *text, void *data);
        /* Two addresses were dialled that are one daemon's: `peer` goes away after the return, its holds and what it
         * had queued belong to `into` now. Whoever keeps pointers replaces them. */
        void (*merged)(struct peer *peer, struct peer *into, void *data);
};

struct peers_options {
        struct event_base *base;       /* borrowed */
        const char *cluster;           /* only daemons of the same cluster talk to each other */
        const char *name;              /* of this node, for people; NULL: the host's, or the certificate's */
        const char *listen;            /* "addr:port", "[v6]:port"; port 0: any */
        bool ahead;                    /* also where it cannot be yet: no such address here, a port that is taken */
        const char *advertise;         /* where others can dial this one; NULL or "": follows from listen */
        uint8_t node[PEER_NODE_BYTES]; /* state_node() */
        uint64_t boot;                 /* differs for each process start of this node; 0: made here */
        const char *ca, *certificate, *key; /* PEM; a name without '/' lies in $CREDENTIALS_DIRECTORY. All or none. */
        bool plain;                         /* without certificates also beyond loopback */
        uint32_t heartbeat_ms, deadline_ms; /* 0: 200, 800. Nothing heard for deadline_ms: lost */
        uint32_t handshake_ms;              /* 0: 10000. Until HELLO is done */
        uint32_t keep_ms;                   /* 0: 600000. So long a lost one that nobody wants is among peers_rows() */
        struct peer_events events;
        void *data; /* handed to events */
};

/* Listens from now on; strings are copied. 0, -errno, or PEER_E_REFUSED; error has a text whenever it is not 0. */
int peers_new(const struct peers_options *options, char error[PEER_TEXT_MAX], struct peers **ret_peers);
/* Closes everything without any callback. All struct peer are gone then. NULL is fine. */
struct peers *peers_free(struct peers *peers);
/* Certificates are read again, for connections from now on; those that stand, and who has a reference to what
 * peers_tls() gave, keep theirs. 0, -errno or PEER_E_REFUSED; then the old ones stay, and there is a text. */
int peers_reload(struct peers *peers, const struct peers_options *options, char error[PEER_TEXT_MAX]);

const uint8_t *peers_node(const struct peers *peers);
uint64_t peers_boot(const struct peers *peers);
/* "host:port" under which other nodes dial this one. */
const char *peers_address(const struct peers *peers);
/* Why no other node can connect; NULL: they can. */
const char *peers_deaf(const struct peers *peers);
const char *peers_name(const struct peers *peers);
const char *peers_cluster(const struct peers *peers);
/* For rails, which use the same certificates; NULL: plain. The caller takes a reference (SSL_CTX_up_ref) if it keeps
 * it. */
SSL_CTX *peers_tls(const struct peers *peers);

/*
 * Finds or makes the peer of an address and holds it for the caller: it is connected to from now on, until
 * peer_release(). An address that a connected daemon advertises finds that one. 0, -ENOMEM, PEER_E_ADDRESS,
 * PEER_E_SELF, PEER_E_FULL.
 */
int peers_dial(struct peers *peers, const char *address, struct peer **ret_peer);
/* The peer of a node id; not held. NULL if no daemon of that id has been connected (or all have gone and nobody held).
 */
struct peer *peer_find(struct peers *peers, const uint8_t node[PEER_NODE_BYTES]);
/* While held, it is dialled again whenever the connection is lost, and the pointer stays valid. */
void peer_hold(struct peer *peer);
/* The connection stays while it lasts: the other end may hold it. */
void peer_release(struct peer *peer);
/* Somebody who knows says that it is there now. While it is not connected it is dialled there. */
void peer_moved(struct peer *peer, const char *address);

/*
 * Copies the message. Queued until the connection is there (also one that is dialled just now). 0, -ENOMEM,
 * PEER_E_FULL, PEER_E_LARGE. After lost() has begun it is for the next connection.
 */
int peer_send(struct peer *peer, const Railmux__Peer__Message *message);
/* Ends the connection now, for a reason that the other end is told (a violation of the protocol above, say). lost()
 * comes from the loop. */
void peer_drop(struct peer *peer, const char *text);

bool peer_is_up(const struct peer *peer);
/* NULL while no daemon has been connected under this address. */
const uint8_t *peer_node_id(const struct peer *peer);
/* Of the incarnation that is or was last connected, 0: none yet. */
uint64_t peer_boot(const struct peer *peer);
/* What it advertises, else the address dialled. Never NULL. */
const char *peer_address(const struct peer *peer);
/* For people: the node's name, "" while unknown. */
const char *peer_name(const struct peer *peer);
/*
 * A secret of 32 bytes that both ends of this connection know, and nobody else (without TLS: nobody who does not see
 * the traffic). Made anew for each connection: valid from up() until lost() is called. NULL else.
 */
const uint8_t *peer_token(const struct peer *peer);
/* The version of the protocol agreed on, 0: not connected. */
uint32_t peer_version(const struct peer *peer);
/* Whether its rails take messages of any class for any area; false: not connected, or it is too old, and then over RDMA
 * they take the normal class only. */
bool peer_takes_classes(const struct peer *peer);
/* Why the last connection or attempt ended; "" if none has. */
const char *peer_error(const struct peer *peer);

/* For operators. */
struct peer_row {
        const struct peer *peer;
        const char *state; /* "up", "connecting", "waiting" (to dial again), "gone" (not held: lost, or about to go) */
        uint64_t since_ns; /* CLOCK_MONOTONIC of the last change of up and not up; 0: never was up */
        bool dialled;      /* the connection was dialled from here */
        bool tls;
        uint32_t holds;
        uint64_t sent_messages, sent_bytes, received_messages, received_bytes, queued_bytes;
        uint64_t round_trip_ns; /* of the last heartbeat, 0: none yet */
        uint64_t losses, attempts;
};
struct peers_counters {
        uint64_t accepted, refused, handshakes_failed, losses, connects;
};
const struct peers_counters *peers_counters(const struct peers *peers);
/* Calls row() for each peer, in the order in which they became known, and then for those that were lost lately and are
 * not held: these are known to no other function, but those that say what is known of row->peer. */
void peers_rows(const struct peers *peers, void (*row)(const struct peer_row *row, void *data), void *data);
