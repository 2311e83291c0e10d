/* SPDX-License-Identifier: MIT */
/*
 * Which peer a connection belongs to.
 *
 * A peer is found by address before anybody knows whose address it is. When HELLO tells, it may turn out that this
 * daemon is known already, by another address or because it has dialled us; then the two are merged. It may also be
 * that another node has got the address; then the one that had it keeps its identity and loses the address.
 */
#include "daemon/peer_private.h"
#include <event2/buffer.h>
#include <string.h>
#include <utlist.h>

struct peer *peers_find_address(struct peers *peers, const char *address) {
        struct peer *peer;

        DL_FOREACH(peers->list, peer) {
                if (strcmp(peer->dial_address, address) == 0 || strcmp(peer->address, address) == 0)
                        return peer;
        }
        return NULL;
}

/* Two objects have turned out to be one daemon. */
static void peers_merge(struct peers *peers, struct peer *peer, struct peer *into) {
        struct evbuffer *target = into->link ? bufferevent_get_output(into->link->stream) : into->queue;

        into->holds += peer->holds;
        peer->holds = 0;
        if (!into->dial_address[0])
                memcpy(into->dial_address, peer->dial_address, sizeof(into->dial_address));
        into->sent_messages += peer->sent_messages;
        into->sent_bytes += peer->sent_bytes;
        evbuffer_add_buffer(target, peer->queue);
        if (peers->events.merged)
                peers->events.merged(peer, into, peers->data);
        peer_free(peer);
}

/* Another node has got the address of one that is known: that one keeps its identity and is dialled there no more. */
static void peers_move_address(struct peer *from, const struct peer_link *link, char ret_address[PEER_ADDRESS_MAX]) {
        memcpy(ret_address, from->dial_address, PEER_ADDRESS_MAX);
        from->dial_address[0] = '\0';
        if (strcmp(from->address, link->other.address) == 0 || strcmp(from->address, ret_address) == 0)
                from->address[0] = '\0';
        peer_attempt_over(from, "another node answers at its address", false);
}

void peers_reconcile(struct peers *peers, struct peer_link *link) {
        struct peer *known = peer_find(peers, link->other.node), *dialled = link->peer;
        char address[PEER_ADDRESS_MAX];

        if (!known || !dialled || known == dialled)
                return;
        dialled->dial = NULL;
        link->peer = NULL;
        if (dialled->identified)
                peers_move_address(dialled, link, address);
        else
                peers_merge(peers, dialled, known);
}

/* The peer of a link's node, which is not known yet. */
static int peers_make(struct peers *peers, struct peer_link *link, struct peer **ret_peer) {
        struct peer *peer = link->peer, *moved = NULL;
        char address[PEER_ADDRESS_MAX] = "";
        int r = 0;

        if (peer) {
                peer->dial = NULL;
                link->peer = NULL;
                if (peer->identified)
                        moved = peer;
        } else if (link->other.address[0]) {
                peer = peers_find_address(peers, link->other.address);
        }
        if (!peer || peer->identified) {
                r = peer_new(peers, &peer);
                if (moved)
                        peers_move_address(moved, link, address);
                if (r)
                        return r;
                memcpy(peer->dial_address, address, sizeof(address));
        }
        r = peer_identify(peer, link->other.node);
        if (r) {
                event_active(peers->reap, EV_TIMEOUT, 0);
                return r;
        }
        *ret_peer = peer;
        return 0;
}

int peers_settle(struct peers *peers, struct peer_link *link, struct peer **ret_peer) {
        struct peer *peer;
        int r;

        peers_reconcile(peers, link);
        peer = peer_find(peers, link->other.node);
        if (!peer) {
                r = peers_make(peers, link, &peer);
                if (r)
                        return r;
        }
        if (peer->dial == link) {
                peer->dial = NULL;
                link->peer = NULL;
        }
        if (peer->link) {
                struct peer_link *old = peer->link;

                peer_lose(peer, peer->boot == link->other.boot ? "it has connected anew" : "it was started anew");
                peer_link_free(old);
        }
        *ret_peer = peer;
        return 0;
}
