/* SPDX-License-Identifier: MIT */
/*
 * Where other daemons connect. A daemon that takes over from another one keeps its sessions, most of which may have
 * nothing to do with other nodes. So what may come right is no reason for it to end: at an address that is not there it
 * listens all the same, and for a port that somebody else has (a program that chose it by chance, a predecessor's
 * child) it waits, dials others meanwhile, and says so.
 */
#include "daemon/peer_private.h"
#include "util/cleanup.h"
#include "util/log.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

static const struct timeval peers_rearm_time = {.tv_usec = 200000};
static const struct timeval peers_again_time = {.tv_sec = 1};

static bool address_is_at(const char *address, const struct in6_addr *host) {
        struct in6_addr at;

        return address[0] && peer_address_host(address, &at) == 0 && IN6_ARE_ADDR_EQUAL(&at, host);
}

/* How many of a list of peers are known at a host. */
static uint32_t peers_at(const struct peer *list, const struct in6_addr *host) {
        const struct peer *peer;
        uint32_t n = 0;

        DL_FOREACH(list, peer)
                n += address_is_at(peer->address, host) || address_is_at(peer->dial_address, host) ||
                     address_is_at(peer->from, host);
        return n;
}

/* For one more from a host with so many peers. Honest ones are done in a moment, so the oldest is the least likely to
 * be one. But that takes several turns of the loop, in which many others can come. So hosts with peers have places of
 * their own: nodes that have lost each other find back whatever comes from elsewhere. */
static void peers_make_place(struct peers *peers, const struct in6_addr *host, uint32_t n_peers) {
        const uint32_t unproven = n_peers * PEERS_UNPROVEN_MAX;
        const uint32_t max = unproven > PEERS_STRANGERS_MAX ? unproven : PEERS_STRANGERS_MAX;
        struct peer_link *link, *oldest = NULL;
        uint32_t n = 0;

        DL_FOREACH(peers->links, link) {
                if (link->dialled || link->state == PEER_LINK_OPEN ||
                    (n_peers ? !address_is_at(link->remote, host) : link->from_peer))
                        continue;
                if (!oldest)
                        oldest = link;
                n++;
        }
        if (n < max)
                return;
        if (oldest->state != PEER_LINK_ENDING)
                peers_tell_refusal(peers, oldest->remote, "too many wait to be let in");
        peer_link_free(oldest);
}

static void peers_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int size,
                         void *data) {
        struct in6_addr host = {0};
        struct peers *peers = data;
        char remote[PEER_ADDRESS_MAX];
        uint32_t n_peers;

        (void)listener;
        (void)size;
        peers->counters.accepted++;
        peer_address_format(address, remote);
        (void)peer_address_host(remote, &host);
        n_peers = peers_at(peers->list, &host) + peers_at(peers->lost, &host);
        peers_make_place(peers, &host, n_peers);
        if (peer_link_accept(peers, fd, remote, n_peers > 0) < 0)
                peers_tell_refusal(peers, remote, "out of memory");
}

/* Out of descriptors, say: it would be tried again at full rate. */
static void peers_accept_failed(struct evconnlistener *listener, void *data) {
        struct peers *peers = data;

        peers_tell_refusal(peers, "?", strerror(EVUTIL_SOCKET_ERROR()));
        if (evtimer_add(peers->rearm, &peers_rearm_time) == 0)
                evconnlistener_disable(listener);
}

/* At an address that is not here: who dials it is heard when it is. */
static int peers_listen_ahead(struct peers *peers) {
        const bool v6 = peers->bound.ss_family == AF_INET6;
        _cleanup_close_ int fd = socket(peers->bound.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int one = 1;

        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
            setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_FREEBIND : IP_FREEBIND, &one, sizeof(one)) < 0 ||
            bind(fd, (struct sockaddr *)&peers->bound, (socklen_t)peers->bound_size) < 0)
                return -errno;
        peers->listener = evconnlistener_new(peers->base, peers_accept, peers,
                                             LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, SOMAXCONN, fd);
        if (!peers->listener)
                return errno ? -errno : -EIO;
        fd = -1;
        return 0;
}

/* Where it was told to. -errno: nobody can connect. */
static int peers_listen_now(struct peers *peers) {
        const unsigned int flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
        int r;

        peers->listener = evconnlistener_new_bind(peers->base, peers_accept, peers, flags, SOMAXCONN,
                                                  (struct sockaddr *)&peers->bound, peers->bound_size);
        r = peers->listener ? 0 : errno ? -errno : -EIO;
        if (r == -EADDRNOTAVAIL && peers->ahead) {
                r = peers_listen_ahead(peers);
                if (r == 0)
                        log_error("the address of %s is not there; until it is, no other node can connect",
                                  peers->listen);
        }
        if (r == 0)
                evconnlistener_set_error_cb(peers->listener, peers_accept_failed);
        return r;
}

static void peers_listen_failed(struct peers *peers, int r) {
        snprintf(peers->deaf, sizeof(peers->deaf), "cannot listen on %.100s: %s", peers->listen, strerror(-r));
}

void peers_rearm(evutil_socket_t fd, short what, void *data) {
        struct peers *peers = data;
        int r;

        (void)fd;
        (void)what;
        if (peers->listener) {
                if (evconnlistener_enable(peers->listener) < 0)
                        evtimer_add(peers->rearm, &peers_rearm_time);
                return;
        }
        r = peers_listen_now(peers);
        if (r < 0) {
                peers_listen_failed(peers, r);
                evtimer_add(peers->rearm, &peers_again_time);
                return;
        }
        peers->deaf[0] = '\0';
        log_notice("listening at %s now: other nodes can connect", peers->listen);
}

/* The address for others: what is advertised, or where it listens, or is to listen. */
static int peers_listen_address(struct peers *peers, const struct peers_options *options, char error[PEER_TEXT_MAX]) {
        struct sockaddr_storage address = peers->bound;
        socklen_t length = sizeof(address);
        char host[PEER_ADDRESS_MAX];
        uint16_t port;

        if (options->advertise && options->advertise[0]) {
                if (peer_address_split(options->advertise, host, &port) < 0 || port == 0)
                        return peers_refuse(error, "peer.advertise", "allowed: HOST:PORT");
                snprintf(peers->address, sizeof(peers->address), "%s", options->advertise);
                return 0;
        }
        if (peers->listener &&
            getsockname(evconnlistener_get_fd(peers->listener), (struct sockaddr *)&address, &length) < 0)
                return -errno;
        peer_address_advertise((struct sockaddr *)&address, peers->address);
        return 0;
}

int peers_listen(struct peers *peers, const struct peers_options *options, char error[PEER_TEXT_MAX]) {
        int r;

        if (!options->listen || strlen(options->listen) >= sizeof(peers->listen) ||
            peer_address_parse(options->listen, &peers->bound, &peers->bound_size) < 0)
                return peers_refuse(error, "peer.listen", "allowed: ADDR:PORT or [ADDR]:PORT with a numeric address");
        snprintf(peers->listen, sizeof(peers->listen), "%s", options->listen);
        peers->ahead = options->ahead;
        r = peers_listen_now(peers);
        if (r < 0)
                peers_listen_failed(peers, r);
        if (r == -EADDRINUSE && peers->ahead) {
                log_error("%s. It is tried again every second; until then no other node can connect", peers->deaf);
                r = evtimer_add(peers->rearm, &peers_again_time) < 0 ? -ENOMEM : 0;
        }
        if (r) {
                snprintf(error, PEER_TEXT_MAX, "%s", peers->deaf);
                return r;
        }
        return peers_listen_address(peers, options, error);
}
