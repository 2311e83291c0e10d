/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The fabric of a node: carries what executors post into net areas (ring/net.h) to the same places on other nodes.
 *
 * It knows rails (own NICs, here addresses for TCP), peers (other nodes' fabrics with their rails), routes (an own rail
 * and the peer's rail of the same name) and areas. It knows nothing of communicators.
 *
 * Threads. All functions here belong to one thread, the owner's loop. They wait for no network. The fabric has threads
 * of its own: one for each rail, one that takes descriptors out of the areas, and one that makes areas known to
 * adapters and unmaps them, so only fabric_free(), and fabric_area_remove() of a mapping that is not the
 * fabric's, take the time that memory takes. What they have to say is kept until
 * fabric_dispatch() is called; fabric_event_fd() becomes readable then. Callbacks run inside of fabric_dispatch() only
 * and may call everything but fabric_dispatch() and fabric_free().
 *
 * Errors. 0; a negative errno is a fault of our own side; a positive FABRIC_E_* is a condition, and fabric_error()
 * then has a text that names what was wrong and what would be right.
 *
 * Units: bytes, nanoseconds (CLOCK_MONOTONIC) unless a name says otherwise.
 */
#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/net.h"

#define FABRIC_NAME_MAX    31u /* of rails and clusters: characters */
#define FABRIC_ADDRESS_MAX 63u
#define FABRIC_RAILS_MAX   16u  /* of one node */
#define FABRIC_RANKS_MAX   256u /* of one area: descriptors have bytes for them */
#define FABRIC_TOKEN       32u

enum {
        _FABRIC_E_SUCCESS,
        FABRIC_E_EXISTS,   /* name, peer or key is there already */
        FABRIC_E_UNKNOWN,  /* no such rail, peer or area */
        FABRIC_E_ARGUMENT, /* cannot be right on any machine */
        FABRIC_E_ADDRESS,  /* this machine has no such address or device, or the port is taken */
        FABRIC_E_PLAIN,    /* a rail without TLS on an address that is not loopback, and not allowed */
        FABRIC_E_FULL,     /* FABRIC_RAILS_MAX; of areas, what an adapter takes */
        FABRIC_E_MEMORY,   /* an area cannot be registered with a rail's adapter: callbacks.area says so */
        FABRIC_E_REFUSED,  /* an adapter, here or there, does not take an area's data: likewise */
};

/* Latency goes before the others, within a bound. The others share by weight. Each has its own connections. */
enum fabric_class { FABRIC_LATENCY, FABRIC_NORMAL, FABRIC_BULK, FABRIC_N_CLASSES };

/* Of a route. What they mean for traffic is told in fabric/route.h. */
enum fabric_route_state { FABRIC_UP, FABRIC_SUSPECT, FABRIC_DOWN, FABRIC_PROBING };

struct fabric;
struct verbs_api;

struct fabric_node {
        uint8_t id[16];
};

/* Milliseconds; 0 means the default. */
struct fabric_times {
        uint32_t heartbeat; /* a silent connection is asked after this time: 200 */
        /* And given up after this: 800; one that nobody answers is begun anew after half of it. A rail whose adapter
         * keeps its thread for as long, in one call or in many, is given no more messages meanwhile. */
        uint32_t deadline;
        /* One on which the peer says something and acknowledges nothing is given up after ten of these, and as long as
         * what is under way would take at a hundredth of the rail's speed. */
        uint32_t handshake; /* of a new connection, all of it: 5000; its route is suspect after a deadline of that */
        uint32_t hold_down; /* of a route that failed, if there are others; doubles for each further failure: 250 */
        uint32_t hold_max;  /* up to this: 30000 */
        uint32_t
                unreachable; /* work waits so long for a peer of which nothing is heard before that is reported: 1000 */
        /* Microseconds for which threads that have had something to do look on before they sleep, unless others compute
         * on their processors: 1000, and with less than eight processors that the process may use 20 for the taking
         * thread, and 0 for those of rails. */
        uint32_t spin_us;
};

/* All optional. Called from fabric_dispatch(). Pointers are valid during the call. */
struct fabric_callbacks {
        /* A route (all classes of it) changed its state. */
        void (*route)(void *data, const struct fabric_node *peer, const char *rail, enum fabric_route_state state,
                      const char *why);
        /* Work waits, and no route has a connection, or what was on connections that ended does not arrive over others
         * either, for as long as one may stand still. Again each time that it has waited as long. It goes on trying. */
        void (*unreachable)(void *data, const struct fabric_node *peer, const char *why);
        /* Messages to it were given up: whoever waits for them waits in vain, though it may be reached. */
        void (*lost)(void *data, const struct fabric_node *peer, const char *why);
        /*
         * A peer or an own executor did what it must not: text says what. key: of the area, 0 if none. Not more than
         * once a second for each peer; the counters have all. What an area's executor posted wrong is lost.
         */
        void (*violation)(void *data, const struct fabric_node *peer, uint64_t key, const char *text);
        /*
         * What came of fabric_area_add(), once for each area unless it is removed before. 0: all rails' adapters know
         * it, but for those that have failed. FABRIC_E_MEMORY, FABRIC_E_FULL or -errno, with a text (it may be empty
         * with -errno): it is of no use, and is there until it is removed. FABRIC_E_REFUSED may come at any later time,
         * once: the same, and what it has is dropped.
         */
        void (*area)(void *data, uint64_t key, int condition, const char *text);
        /* Work of an area that may not take every rail waits, and none that it may take has a connection to the peer,
         * or what is sent over them does not arrive, though others may be well. Again each time that it has waited as
         * long as with unreachable. It goes on trying. */
        void (*cut_off)(void *data, const struct fabric_node *peer, uint64_t key, const char *why);
};

struct fabric_options {
        struct fabric_node self;
        uint64_t boot_epoch; /* of this process; no two lives of a node have the same */
        const char *cluster; /* at most FABRIC_NAME_MAX; copied */
        /*
         * For all rails; the fabric takes a reference: both ends (TLS_method), TLS 1.3, certificates loaded, peers'
         * certificates verified as it says. NULL: plain TCP, which is refused on addresses that are not loopback unless
         * allow_plain. Plain connections have a checksum over everything. On rails of kind verbs TLS guards how
         * connections are made, but what goes over them is RDMA, in clear: their network has to be the cluster's own.
         */
        SSL_CTX *tls;
        bool allow_plain;
        uint32_t stripe_bytes; /* chunks of this size or more may take any rail; 0: 65536 */
        struct fabric_times times;
        struct fabric_callbacks callbacks;
        void *data;                    /* for the callbacks */
        const struct verbs_api *verbs; /* for tests: fabric/verbs/api.h; NULL: libibverbs */
};

int fabric_new(const struct fabric_options *options, struct fabric **ret_fabric);
/* NULL is fine. Areas, peers and rails may still be there. Joins the threads. Returns NULL. */
struct fabric *fabric_free(struct fabric *fabric);
/* Another one for connections that are made from now on; those that stand go on with theirs. Not NULL, and only where
 * there was one (switching TLS on or off would leave connections of both kinds). Takes a reference. */
void fabric_set_tls(struct fabric *fabric, SSL_CTX *tls);
/* After a positive condition: what was wrong. Valid until the next call. */
const char *fabric_error(const struct fabric *fabric);
/* What the kernel said, if the last condition was its doing, else 0. */
int fabric_errno(const struct fabric *fabric);

/* Readable when fabric_dispatch() has something to tell. */
int fabric_event_fd(const struct fabric *fabric);
void fabric_dispatch(struct fabric *fabric);
/* An eventfd for all executors, to be written when net_area_wake_fabric() says so. Owned by the fabric. */
int fabric_doorbell_fd(const struct fabric *fabric);

/* ------------------------------------------------------------------------------------------------------------ rails */

struct fabric_rail_options {
        const char *name;               /* equal on all nodes for rails that reach each other */
        const char *kind;               /* "tcp"; "verbs" if built with it */
        const char *address;            /* numeric, IPv4 or IPv6 (fe80::1%eth0); listens here, connects from here */
        uint16_t port;                  /* 0: any */
        const char *advertise;          /* numeric: where peers connect, if that is not where it listens; NULL: there */
        uint16_t advertise_port;        /* not 0 then */
        const char *device;             /* bound to this interface (SO_BINDTODEVICE); NULL: not */
        uint64_t window_bytes;          /* in flight, unacknowledged, over all connections; 0: 4 MiB */
        uint64_t rate_bytes;            /* sent per second at most; 0: no limit */
        bool drained;                   /* as fabric_rail_drain() */
        uint64_t nominal_bytes;         /* per second, what is believed of it before it was measured; 0: 1.25e9 */
        uint8_t dscp[FABRIC_N_CLASSES]; /* 0 .. 63 for each class */
        uint8_t number;                 /* 0 .. FABRIC_RAILS_MAX - 1, the owner's, for areas that may not take all */
        /* Of kind verbs. The rest is as above: connections are agreed on over TCP between the same addresses. */
        const char *hca;   /* device, with :PORT if you like, as mlx5_0:1; NULL: the one that has the address */
        uint8_t timeout;   /* of queue pairs: 4.096 us * 2^timeout until a packet is sent again, 1 .. 31; 0: 14 */
        uint8_t retries;   /* how often, 1 .. 7, and 7 may be without end; 0: 6 */
        uint16_t udp_port; /* RoCE packets come from this one, 0xc001 .. 0xffff; 0: the adapter chooses */
};

/*
 * Peers that are there and have it are reached over it from now on; they have to be told of it. After FABRIC_E_ADDRESS
 * it may be tried again: links, addresses and ports come and go.
 */
int fabric_rail_add(struct fabric *fabric, const struct fabric_rail_options *options);
/*
 * A drained rail gets no new chunks while another one reaches the peer, and what is queued moves there. Nothing that is
 * on its way is disturbed.
 */
int fabric_rail_drain(struct fabric *fabric, const char *name, bool drain);
/* A rail set down has no connections and makes none: its routes fail, as those of a NIC that is gone do. For tests. */
int fabric_rail_enable(struct fabric *fabric, const char *name, bool enable);

/*
 * What was carried for communicators, each message once, however often it had to be sent: out when it is known to have
 * arrived (a little after it has), in when it was put into its area. Bytes are those of data, without heads and lines;
 * of what lies in a chunk's line (ring/net.h) nothing is known here.
 */
struct fabric_traffic {
        uint64_t chunks_out, credits_out, bytes_out;
        uint64_t chunks_in, credits_in, bytes_in;
};

struct fabric_rail_row {
        char name[FABRIC_NAME_MAX + 1];
        char kind[8];
        char address[FABRIC_ADDRESS_MAX + 1]; /* what peers may connect to: to be published with name and port */
        uint16_t port;
        bool drained, enabled;
        uint64_t bytes_sent, bytes_received;       /* on the wire, frames and all */
        uint64_t messages_sent, messages_received; /* chunks and credits */
        uint64_t queued_bytes, flight_bytes;
        uint64_t bytes_per_second; /* estimate that striping goes by */
        uint32_t connections;
        uint64_t refused;   /* strangers and broken handshakes */
        uint64_t unsettled; /* queue pairs whose adapter did not say that it had given their receives back */
        struct fabric_traffic traffic;
};

/* An array (free() it) of all rails in the order they were added. */
int fabric_rails(struct fabric *fabric, struct fabric_rail_row **ret_rows, size_t *ret_n);

/* ------------------------------------------------------------------------------------------------------------ peers */

struct fabric_peer_rail {
        const char *name;
        const char *address; /* numeric */
        uint16_t port;
};

struct fabric_peer_options {
        struct fabric_node node;
        uint64_t boot_epoch;
        uint8_t token[FABRIC_TOKEN]; /* the same at both ends, secret; a connection has to prove it */
        const struct fabric_peer_rail *rails;
        size_t n_rails;
};

/*
 * Both ends add each other. Connections are made when there is something to carry. One that came back with another
 * boot epoch is removed and added again. Rails of the peer whose name or address cannot be used here are left out, and
 * told as a violation; it is reached over the others.
 */
int fabric_peer_add(struct fabric *fabric, const struct fabric_peer_options *options);
/* What it has now: those that are new to us are used from now on, and no route ends. 0, -ENOMEM, FABRIC_E_UNKNOWN,
 * FABRIC_E_FULL. */
int fabric_peer_rails(struct fabric *fabric, const struct fabric_node *node, const struct fabric_peer_rail *rails,
                      size_t n_rails);
/* What waits for it or is under way is dropped. */
int fabric_peer_remove(struct fabric *fabric, const struct fabric_node *node);
/* How many of our rails (only: as of areas) a peer has as well, whatever state they are in; 0 also if there is no such
 * peer. */
size_t fabric_peer_routes(struct fabric *fabric, const struct fabric_node *node, uint32_t only);

/* ------------------------------------------------------------------------------------------------------------ areas */

struct fabric_area_options {
        uint64_t key;            /* equal on all nodes, never used again */
        struct net_area *memory; /* mapped, initialised; ours to use until fabric_area_remove() returns */
        uint64_t size;
        /*
         * From success on the mapping is the fabric's: it unmaps it, after fabric_area_remove() on a thread of its own,
         * or in fabric_free(). Removal then does not wait for adapters.
         */
        bool unmap;
        int wake_fd;                     /* the executor's eventfd, EFD_NONBLOCK; duplicated */
        const struct fabric_node *nodes; /* of each rank; copied */
        uint32_t n_ranks;                /* 1 .. FABRIC_RANKS_MAX */
        enum fabric_class class;         /* of what is sent from here; the other ends may have other ones */
        uint64_t tenant;
        uint32_t weight; /* of the tenant in this class, 1 .. 1000; of its areas the last one's counts */
        /*
         * By name, for what is not striped and comes from that rank; only those of this node's ranks count. A rank with
         * NULL, and with the name of a rail that there is not (until it comes), takes what it has in turn with those
         * of its node (plan/rails.h); NULL: all do.
         */
        const char *const *rails;
        uint32_t stripe_bytes; /* chunks of this size or more may take any rail; 0: as fabric_options says */
        /* Bits of the numbers of rails that what is sent from here may take; 0: all. What comes may come over any. One
         * that is drained still serves areas that have nothing else. */
        uint32_t only;
};

/*
 * Peers need not be known yet, but what is posted for a node that is unknown then is lost, and reported. The area may
 * be used at once; what adapters have to be told of it is done meanwhile, data wait for that, and callbacks.area says
 * when it is done. Not on failure.
 */
int fabric_area_add(struct fabric *fabric, const struct fabric_area_options *options);
/* By rail, in the order of fabric_rails(); those that are not there are zero. */
int fabric_area_traffic(struct fabric *fabric, uint64_t key, struct fabric_traffic ret_traffic[FABRIC_RAILS_MAX]);
/* After this no thread touches the memory, but to unmap it if that is its own. Waits for threads, not for the network;
 * unless the mapping is the fabric's, for a registration under way, too. What was under way is dropped. */
int fabric_area_remove(struct fabric *fabric, uint64_t key);

/* -------------------------------------------------------------------------------------------------------- operators */

struct fabric_route_row {
        char rail[FABRIC_NAME_MAX + 1]; /* of both ends */
        struct fabric_node peer;
        char address[FABRIC_ADDRESS_MAX + 1]; /* of the peer's rail */
        uint16_t port;
        enum fabric_class class;
        enum fabric_route_state state; /* the same for all classes */
        bool connected;
        uint64_t since_ns;      /* that it has the state */
        uint64_t connections;   /* made so far */
        uint64_t retransmitted; /* messages that were given to it and had to be sent again, by any route */
        uint64_t errors;        /* connections and attempts that failed */
        uint64_t queued_bytes, flight_bytes;
        uint64_t messages_sent, bytes_sent; /* known to have arrived, as fabric_traffic counts */
};

int fabric_routes(struct fabric *fabric, struct fabric_route_row **ret_rows, size_t *ret_n);

/* Since fabric_new(). */
struct fabric_counters {
        uint64_t unknown_area;   /* arrived for a key that is not here; usual at a communicator's end */
        uint64_t out_of_bounds;  /* arrived or posted with offsets outside of the area */
        uint64_t wrong_rank;     /* arrived or posted with ranks that do not belong to these nodes */
        uint64_t unknown_peer;   /* posted for a node that is not a peer */
        uint64_t refused;        /* connections: garbage, wrong cluster, epoch, node, token, too slow */
        uint64_t refused_token;  /* of these: cannot prove the token */
        uint64_t refused_epoch;  /* of these: another boot epoch, of either end */
        uint64_t malformed;      /* frames on good connections, which are closed then */
        uint64_t corrupted;      /* checksums that were wrong; the connection is closed and the rest sent again */
        uint64_t dropped;        /* messages of removed areas and peers */
        uint64_t torn;           /* chunks that a peer could not send to their end, as its area went */
        uint64_t retransmitted;  /* messages */
        uint64_t chunks_arrived; /* stored */
        uint64_t credits_arrived;
        uint64_t taken;  /* descriptors out of areas */
        uint64_t wakes;  /* of executors */
        uint64_t sleeps; /* of the taking thread */
        uint64_t graves; /* now: dead connections that are kept in mind until both ends know all of them (recover.c) */
};

void fabric_counters(struct fabric *fabric, struct fabric_counters *ret_counters);

/* What there is to be done by the thread that makes areas known to adapters and takes them back. Data of an area wait
 * for that, so one at which it hangs shows here. */
struct fabric_registrations {
        uint64_t queued;     /* areas that wait for it */
        uint64_t running;    /* 1: it is at one, 0: at none */
        uint64_t running_ns; /* for how long */
};

void fabric_registrations(struct fabric *fabric, struct fabric_registrations *ret_registrations);

const char *fabric_route_state_name(enum fabric_route_state state); /* "up" */
const char *fabric_class_name(enum fabric_class class);             /* "latency" */
