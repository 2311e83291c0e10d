/* SPDX-License-Identifier: MIT */
/*
 * All other daemons, and how two of them agree on one connection.
 *
 * Any daemon may dial any other, so two may dial each other at the same time, and one may dial again while the other
 * has not noticed yet that the last connection is dead. If both chose, they could choose differently, and a message
 * that one has sent on a connection that the other gives up would be lost without anybody knowing. So one of them
 * decides, the one with the lower node id, whoever dialled:
 *
 *        lower id                       higher id
 *           HELLO  ───────────────────>
 *                  <───────────────────  HELLO
 *                  <───────────────────  CLAIM(ended)   the last connection that has ended here
 *           WELCOME(number)  ─────────>                 it is this one
 *       or  REFUSE(duplicate)  ───────>                 there is one that you cannot have seen end
 *
 * The lower one numbers the connections, with numbers that it never gives twice in its life. `ended` tells two cases
 * apart that look the same otherwise: a second connection because both have dialled (the first one's number is above
 * `ended`: it is refused), and one because the higher end has seen the first one die (it is not: it is taken, and the
 * first one is lost here as well). The higher end believes WELCOME in the same way: what it had is over. Nothing but
 * these messages flows before WELCOME, so nothing is lost with a connection that is not chosen. When both dial at once
 * the one that gets to the lower end's decision first stays.
 *
 * A daemon that has started anew has another boot number. It takes its place at the decision, not at HELLO: a HELLO
 * that a dead process has left in a socket buffer is never followed by a CLAIM.
 */
#include "daemon/peer_private.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/tls.h"
#include <errno.h>
#include <event2/buffer.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <utlist.h>

#define PEERS_TELL_NS UINT64_C(10000000000) /* within which PEERS_TELL_MAX refusals are told one by one */

/* ---- the log ---- */

/* Whether the same was said of the same host, or so much that it must not have more of the log: the other end chooses
 * some of the text. Who comes again and again must not keep others out. what begins with the host and a blank. */
static bool refusal_is_told(const struct peers *peers, const char *what) {
        size_t host = strcspn(what, " ") + 1;
        uint64_t n = 0;

        for (uint64_t i = 0; i < peers->n_told; i++) {
                if (strcmp(peers->told[i], what) == 0)
                        return true;
                n += strncmp(peers->told[i], what, host) == 0;
        }
        return n >= PEERS_TELL_HOST_MAX;
}

void peers_tell_refusal(struct peers *peers, const char *remote, const char *text) {
        const char *port = strrchr(remote, ':');
        int host = port ? (int)(port - remote) : (int)strlen(remote);
        char what[sizeof(peers->told[0])];
        uint64_t now_ns = clock_now_ns();

        if (now_ns - peers->told_ns > PEERS_TELL_NS) {
                if (peers->n_untold)
                        log_warning("%" PRIu64 " more connections of daemons were refused since then", peers->n_untold);
                peers->told_ns = now_ns;
                peers->n_told = peers->n_untold = 0;
        }
        snprintf(what, sizeof(what), "%.*s %s", host, remote, text);
        if (peers->n_told < PEERS_TELL_MAX && !refusal_is_told(peers, what)) {
                memcpy(peers->told[peers->n_told++], what, sizeof(what));
                log_fields(LOG_LEVEL_WARNING, (const char *const[]){"PEER", remote, NULL},
                           "connection of daemon %s: %s", remote, text);
        } else {
                peers->n_untold++;
        }
}

/* ---- heartbeats ---- */

static void peers_tick(evutil_socket_t fd, short what, void *data) {
        struct peers *peers = data;
        uint64_t now_ns = clock_now_ns(), period_ns = peers->heartbeat_ms * UINT64_C(500000),
                 passed_ns = now_ns - peers->ticked_ns, late_ns = 0;
        struct peer_link *link, *next;

        (void)fd;
        (void)what;
        peers->ticked_ns = now_ns;
        if (passed_ns > 2 * period_ns)
                late_ns = passed_ns - period_ns;
        /* A tick ends no other link than its own: events of holders free nothing at once. */
        DL_FOREACH_SAFE(peers->links, link, next) {
                if (link->state == PEER_LINK_OPEN)
                        peer_link_tick(link, now_ns, late_ns);
        }
}

void peers_count_open(struct peers *peers, int change) {
        uint64_t half_us = (uint64_t)peers->heartbeat_ms * 500;
        struct timeval half = {.tv_sec = (time_t)(half_us / 1000000), .tv_usec = (suseconds_t)(half_us % 1000000)};

        peers->n_open += (uint32_t)change;
        if (peers->n_open == 0) {
                event_del(peers->tick);
        } else if (change > 0 && peers->n_open == 1) {
                peers->ticked_ns = clock_now_ns();
                if (event_add(peers->tick, &half) < 0)
                        log_error("no memory for heartbeats to other daemons: a silent one is not noticed");
        }
}

struct peer *peer_find(struct peers *peers, const uint8_t node[PEER_NODE_BYTES]) {
        struct peer *peer;

        HASH_FIND(hh, peers->by_node, node, PEER_NODE_BYTES, peer);
        return peer;
}

static void peers_reap(evutil_socket_t fd, short what, void *data) {
        struct peers *peers = data;
        struct peer *peer, *next;

        (void)fd;
        (void)what;
        DL_FOREACH_SAFE(peers->list, peer, next) {
                if (!peer->holds && !peer->link)
                        peer_retire(peer);
        }
}

int peers_dial(struct peers *peers, const char *address, struct peer **ret_peer) {
        char host[PEER_ADDRESS_MAX];
        struct peer *peer;
        uint16_t port;
        int r;

        if (peer_address_split(address, host, &port) < 0 || port == 0)
                return PEER_E_ADDRESS;
        if (strcmp(address, peers->address) == 0)
                return PEER_E_SELF;
        peer = peers_find_address(peers, address);
        if (!peer) {
                r = peer_new(peers, &peer);
                if (r)
                        return r;
                snprintf(peer->dial_address, sizeof(peer->dial_address), "%s", address);
        }
        peer_hold(peer);
        *ret_peer = peer;
        return 0;
}

struct evdns_base *peers_dns(struct peers *peers) {
        if (!peers->dns)
                peers->dns = evdns_base_new(peers->base,
                                            EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
        return peers->dns;
}

/* ---- life ---- */

int peers_refuse(char error[PEER_TEXT_MAX], const char *key, const char *text) {
        snprintf(error, PEER_TEXT_MAX, "%s: %s", key, text);
        return PEER_E_REFUSED;
}

static bool peers_is_name(const char *text, size_t size) {
        size_t length = strlen(text);

        return length > 0 && length < size &&
               strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

static int peers_new_tls(const struct peers_options *options, char error[PEER_TEXT_MAX], SSL_CTX **ret_tls,
                         char name[TLS_NODE_MAX]) {
        const struct tls_files files = {options->ca, options->certificate, options->key};
        int n = (files.ca && files.ca[0]) + (files.certificate && files.certificate[0]) + (files.key && files.key[0]);
        int r;

        *ret_tls = NULL;
        if (n == 0)
                return 0;
        if (n < 3)
                return peers_refuse(error, "peer.ca, peer.certificate, peer.key", "all three are needed, or none");
        r = tls_context_new(&files, options->cluster, error, PEER_TEXT_MAX, ret_tls, name);
        return r > 0 ? PEER_E_REFUSED : r;
}

static int peers_setup(struct peers *peers, const struct peers_options *options, char error[PEER_TEXT_MAX]) {
        char name[TLS_NODE_MAX > PEER_NAME_MAX ? TLS_NODE_MAX : PEER_NAME_MAX] = "";
        struct timespec now;
        int r;

        if (!options->cluster || !peers_is_name(options->cluster, PEER_CLUSTER_MAX))
                return peers_refuse(error, "peer.cluster", "allowed: 1 to 63 letters, digits, '.', '_' and '-'");
        if (peers->deadline_ms < 2 * peers->heartbeat_ms)
                return peers_refuse(error, "peer.lost_ms", "it must be twice peer.heartbeat_ms at least");
        r = peers_new_tls(options, error, &peers->tls, name);
        if (r)
                return r;
        if (!peers->tls) {
                if (options->name)
                        snprintf(name, sizeof(name), "%s", options->name);
                else
                        gethostname(name, sizeof(name) - 1);
                for (char *p = name; *p; p++)
                        if (*p <= ' ' || *p >= 0x7f)
                                *p = '?';
        }
        snprintf(peers->name, sizeof(peers->name), "%s", name[0] ? name : "?");
        snprintf(peers->cluster, sizeof(peers->cluster), "%s", options->cluster);
        clock_gettime(CLOCK_REALTIME, &now);
        peers->boot =
                options->boot ? options->boot : (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
        peers->tick = event_new(peers->base, -1, EV_PERSIST, peers_tick, peers);
        peers->reap = evtimer_new(peers->base, peers_reap, peers);
        peers->rearm = evtimer_new(peers->base, peers_rearm, peers);
        if (!peers->tick || !peers->reap || !peers->rearm)
                return -ENOMEM;
        return peers_listen(peers, options, error);
}

static void peers_tell_plain(const struct peers *peers) {
        if (!peers->tls && peers->plain)
                log_warning("no certificates and peer.plain: whoever reaches %s is a member of cluster %s",
                            peers->address, peers->cluster);
        else if (!peers->tls)
                log_notice("no certificates: only daemons on this machine are let in at %s", peers->address);
}

int peers_new(const struct peers_options *options, char error[PEER_TEXT_MAX], struct peers **ret_peers) {
        struct peers *peers = calloc(1, sizeof(*peers));
        int r;

        error[0] = '\0';
        if (!peers) {
                snprintf(error, PEER_TEXT_MAX, "out of memory");
                return -ENOMEM;
        }
        peers->base = options->base;
        peers->events = options->events;
        peers->data = options->data;
        peers->plain = options->plain;
        memcpy(peers->node, options->node, PEER_NODE_BYTES);
        peers->heartbeat_ms = options->heartbeat_ms ? options->heartbeat_ms : 200;
        peers->deadline_ms = options->deadline_ms ? options->deadline_ms : 800;
        peers->handshake_ms = options->handshake_ms ? options->handshake_ms : 10000;
        peers->keep_ms = options->keep_ms ? options->keep_ms : 600000;
        r = peers_setup(peers, options, error);
        if (r) {
                if (!error[0])
                        snprintf(error, PEER_TEXT_MAX, "%s", strerror(-r));
                peers_free(peers);
                return r;
        }
        peers_tell_plain(peers);
        *ret_peers = peers;
        return 0;
}

struct peers *peers_free(struct peers *peers) {
        struct event *events[3];

        if (!peers)
                return NULL;
        memcpy(events, (struct event *[]){peers->rearm, peers->reap, peers->tick}, sizeof(events));
        if (peers->listener)
                evconnlistener_free(peers->listener);
        while (peers->links) {
                if (peers->links->peer && peers->links->peer->dial == peers->links)
                        peers->links->peer->dial = NULL;
                peer_link_free(peers->links);
        }
        while (peers->list)
                peer_free(peers->list);
        peers_lost_free(peers);
        if (peers->dns)
                evdns_base_free(peers->dns, 0);
        for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
                if (events[i])
                        event_free(events[i]);
        SSL_CTX_free(peers->tls);
        free(peers);
        return NULL;
}

int peers_reload(struct peers *peers, const struct peers_options *options, char error[PEER_TEXT_MAX]) {
        char name[TLS_NODE_MAX] = "";
        SSL_CTX *tls;
        int r;

        r = peers_new_tls(options, error, &tls, name);
        if (r)
                return r;
        if (!tls != !peers->tls) {
                SSL_CTX_free(tls);
                return peers_refuse(error, "peer.ca, peer.certificate, peer.key",
                                    "TLS is switched on and off by a restart only");
        }
        SSL_CTX_free(peers->tls);
        peers->tls = tls;
        if (tls)
                snprintf(peers->name, sizeof(peers->name), "%s", name);
        return 0;
}

/* ---- what is known ---- */

const uint8_t *peers_node(const struct peers *peers) {
        return peers->node;
}

uint64_t peers_boot(const struct peers *peers) {
        return peers->boot;
}

const char *peers_address(const struct peers *peers) {
        return peers->address;
}

const char *peers_deaf(const struct peers *peers) {
        return peers->deaf[0] ? peers->deaf : NULL;
}

const char *peers_name(const struct peers *peers) {
        return peers->name;
}

const char *peers_cluster(const struct peers *peers) {
        return peers->cluster;
}

SSL_CTX *peers_tls(const struct peers *peers) {
        return peers->tls;
}

const struct peers_counters *peers_counters(const struct peers *peers) {
        return &peers->counters;
}

static struct peer_row peers_row(const struct peer *peer) {
        const struct peer_link *link = peer->link;

        return (struct peer_row){
                .peer = peer,
                .state = link          ? "up"
                         : peer->dial  ? "connecting"
                         : peer->holds ? "waiting"
                                       : "gone",
                .since_ns = peer->since_ns,
                .dialled = link && link->dialled,
                .tls = link && link->tls,
                .holds = peer->holds,
                .sent_messages = peer->sent_messages,
                .sent_bytes = peer->sent_bytes,
                .received_messages = peer->received_messages,
                .received_bytes = peer->received_bytes,
                .queued_bytes = link          ? peer_link_queued(link)
                                : peer->queue ? evbuffer_get_length(peer->queue)
                                              : 0,
                .round_trip_ns = peer->round_trip_ns,
                .losses = peer->losses,
                .attempts = peer->attempts,
        };
}

void peers_rows(const struct peers *peers, void (*row)(const struct peer_row *row, void *data), void *data) {
        const uint64_t now_ns = clock_now_ns();
        const struct peer *peer;
        struct peer_row one;

        DL_FOREACH(peers->list, peer) {
                one = peers_row(peer);
                row(&one, data);
        }
        DL_FOREACH(peers->lost, peer) {
                if (!peer_lost_in_time(peer, now_ns))
                        continue;
                one = peers_row(peer);
                row(&one, data);
        }
}
