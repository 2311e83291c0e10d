/* SPDX-License-Identifier: MIT */
/*
 * One other daemon, over all its connections and attempts.
 *
 * It is dialled while somebody holds it and it has no connection, at the address by which it became known and at the
 * one that it advertises in turns, with a pause that doubles from 50 ms to 5 s as long as nothing comes of it; a
 * connection that did not last for two seconds counts as nothing. The pause is spread by a quarter, so that the daemons
 * of a cluster that comes back do not knock all at once.
 *
 * Every event of the holder comes from the loop. What a holder calls does no more than note a wish and wake a timer:
 * peers_dial() and peer_hold() wake `timer`, peer_drop() the link's. So nobody is called back while he is still
 * calling, and nothing is freed under the feet of a caller: peers that nobody needs go in peers_reap().
 */
#include "daemon/comm_id.h"
#include "daemon/peer_private.h"
#include "util/clock.h"
#include "util/log.h"
#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/util.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define PEER_PAUSE_MIN_MS   50u
#define PEER_PAUSE_MAX_MS   5000u
#define PEER_LASTED_NS      UINT64_C(2000000000)
#define PEER_FAILURES_SHIFT 8u

_Static_assert(PEER_NODE_BYTES == COMM_ID_NODE_BYTES, "the same ids");

/* As it was dialled and as it advertises itself in turns: either may lead nowhere. */
static const char *peer_dial_target(const struct peer *peer) {
        bool advertised = peer->attempts & 1;

        if (!peer->dial_address[0] || (advertised && peer->address[0]))
                return peer->address;
        return peer->dial_address;
}

static const char *peer_label(const struct peer *peer) {
        return peer->name[0] ? peer->name : "?";
}

static void peer_fail(struct peer *peer, const char *text) {
        bool news = strcmp(peer->error, text) != 0;

        snprintf(peer->error, sizeof(peer->error), "%s", text);
        if (peer->failures < PEER_FAILURES_SHIFT)
                peer->failures++;
        /* The same for the hundredth time is no news. */
        log_fields(news ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG, (const char *const[]){"PEER", peer_address(peer), NULL},
                   "peer %s (%s) cannot be reached: %s", peer_address(peer), peer_label(peer), text);
        if (peer->peers->events.failed)
                peer->peers->events.failed(peer, text, peer->peers->data);
}

static void peer_time(evutil_socket_t fd, short what, void *data) {
        struct peer *peer = data;
        char text[PEER_TEXT_MAX];
        int r;

        (void)fd;
        (void)what;
        if (peer->link || peer->dial)
                return;
        if (!peer->holds) {
                event_active(peer->peers->reap, EV_TIMEOUT, 0);
                return;
        }
        if (!peer_dial_target(peer)[0]) {
                peer_fail(peer, "its address is not known any more");
                peer_redial(peer); /* whoever begins to wait for it later hears that, too */
                return;
        }
        r = peer_link_dial(peer, peer_dial_target(peer), text);
        peer->attempts++;
        if (r < 0) {
                peer_fail(peer, text);
                peer_redial(peer);
        }
}

void peer_redial(struct peer *peer) {
        uint32_t pause_ms = PEER_PAUSE_MIN_MS << peer->failures, spread;
        struct timeval pause;

        if (peer->link || peer->dial)
                return;
        if (!peer->holds) {
                event_active(peer->peers->reap, EV_TIMEOUT, 0);
                return;
        }
        if (pause_ms > PEER_PAUSE_MAX_MS)
                pause_ms = PEER_PAUSE_MAX_MS;
        evutil_secure_rng_get_bytes(&spread, sizeof(spread));
        pause_ms += spread % (pause_ms / 4 + 1);
        pause = (struct timeval){.tv_sec = pause_ms / 1000, .tv_usec = (suseconds_t)(pause_ms % 1000) * 1000};
        if (evtimer_add(peer->timer, &pause) < 0)
                event_active(peer->timer, EV_TIMEOUT, 0);
}

void peer_hold(struct peer *peer) {
        peer->holds++;
        if (peer->holds == 1 && !peer->link && !peer->dial && !evtimer_pending(peer->timer, NULL))
                event_active(peer->timer, EV_TIMEOUT, 0);
}

void peer_release(struct peer *peer) {
        if (peer->holds > 0 && --peer->holds == 0 && !peer->link)
                event_active(peer->peers->reap, EV_TIMEOUT, 0);
}

/* Ends an attempt of which nothing has come. */
static void peer_stop_dial(struct peer *peer) {
        struct peer_link *dial = peer->dial;

        peer->dial = NULL;
        dial->peer = NULL;
        peer_link_free(dial);
}

void peer_moved(struct peer *peer, const char *address) {
        char host[PEER_ADDRESS_MAX];
        uint16_t port;

        if (peer->link || strcmp(peer->peers->address, address) == 0 || peer_address_split(address, host, &port) < 0 ||
            port == 0 || (strcmp(peer->dial_address, address) == 0 && strcmp(peer_dial_target(peer), address) == 0))
                return;
        if (peer->dial && (peer->dial->state >= PEER_LINK_AGREEING || strcmp(peer->dial->remote, address) == 0))
                return; /* that one answers, or is the right one */
        if (peer->dial)
                peer_stop_dial(peer);
        /* What it had said before is as old as what was dialled. */
        snprintf(peer->dial_address, sizeof(peer->dial_address), "%s", address);
        snprintf(peer->address, sizeof(peer->address), "%s", address);
        peer->failures = 0;
        if (peer->holds)
                event_active(peer->timer, EV_TIMEOUT, 0);
}

int peer_identify(struct peer *peer, const uint8_t node[PEER_NODE_BYTES]) {
        struct peers *peers = peer->peers;
        struct peer *added;

        memcpy(peer->node, node, PEER_NODE_BYTES);
        HASH_ADD(hh, peers->by_node, node, PEER_NODE_BYTES, peer);
        HASH_FIND(hh, peers->by_node, node, PEER_NODE_BYTES, added);
        if (added != peer)
                return -ENOMEM;
        peer->identified = true;
        return 0;
}

static void peer_flush(struct peer *peer) {
        /* Moves the queue without a copy. */
        if (evbuffer_add_buffer(bufferevent_get_output(peer->link->stream), peer->queue) < 0)
                peer_link_doom(peer->link, "out of memory");
}

void peer_adopt(struct peer *peer, struct peer_link *link) {
        struct peers *peers = peer->peers;

        if (peer->boot != link->other.boot)
                peer->ended = 0; /* numbers of another incarnation */
        peer->boot = link->other.boot;
        snprintf(peer->name, sizeof(peer->name), "%s", link->other.name);
        if (link->other.address[0])
                snprintf(peer->address, sizeof(peer->address), "%s", link->other.address);
        snprintf(peer->from, sizeof(peer->from), "%s", link->remote);
        peer_recall(peer);
        link->peer = peer;
        peer->link = link;
        if (peer->dial)
                peer_stop_dial(peer);
        evtimer_del(peer->timer);
        peer->since_ns = link->opened_ns;
        peer->error[0] = '\0';
        peers->counters.connects++;
        peers_count_open(peers, 1);
        peer_flush(peer);
        log_fields(LOG_LEVEL_INFO, (const char *const[]){"PEER", peer_address(peer), NULL},
                   "peer %s (%s) is connected%s", peer_address(peer), peer_label(peer),
                   link->tls ? "" : ", without TLS");
        if (peers->events.up)
                peers->events.up(peer, peers->data);
}

void peer_lose(struct peer *peer, const char *text) {
        struct peers *peers = peer->peers;
        struct peer_link *link = peer->link;
        uint64_t now_ns = clock_now_ns();

        peer->link = NULL;
        link->peer = NULL;
        if (link->number > peer->ended)
                peer->ended = link->number;
        if (now_ns - link->opened_ns >= PEER_LASTED_NS)
                peer->failures = 0;
        else if (peer->failures < PEER_FAILURES_SHIFT)
                peer->failures++;
        peer->since_ns = now_ns;
        peer->losses++;
        peers->counters.losses++;
        peers_count_open(peers, -1);
        snprintf(peer->error, sizeof(peer->error), "%s", text);
        log_fields(LOG_LEVEL_WARNING, (const char *const[]){"PEER", peer_address(peer), NULL},
                   "peer %s (%s) is lost: %s", peer_address(peer), peer_label(peer), text);
        evbuffer_drain(peer->queue, evbuffer_get_length(peer->queue));
        if (peers->events.lost)
                peers->events.lost(peer, text, peers->data);
        peer_redial(peer);
}

void peer_attempt_over(struct peer *peer, const char *text, bool quiet) {
        peer->dial = NULL;
        if (!quiet)
                peer_fail(peer, text);
        peer_redial(peer);
}

int peer_send(struct peer *peer, const Railmux__Peer__Message *message) {
        size_t size, queued = peer->link ? peer_link_queued(peer->link) : evbuffer_get_length(peer->queue);
        uint8_t *data;
        int r;

        assert(message->body_case >= RAILMUX__PEER__MESSAGE__BODY_JOIN); /* the rest is the connection's own */
        r = peer_frame_pack(message, PEER_MESSAGE_MAX, &data, &size);
        if (r)
                return r < 0 ? r : PEER_E_LARGE;
        if (size > PEER_QUEUE_MAX || queued > PEER_QUEUE_MAX - size) {
                free(data);
                return PEER_E_FULL;
        }
        if (peer->link)
                r = peer_link_send(peer->link, data, size);
        else
                r = evbuffer_add(peer->queue, data, size) < 0 ? -ENOMEM : 0;
        free(data);
        if (r == 0) {
                peer->sent_messages++;
                peer->sent_bytes += size;
        }
        return r;
}

void peer_drop(struct peer *peer, const char *text) {
        if (peer->link)
                peer_link_doom(peer->link, text);
}

/* ---- life ---- */

int peer_new(struct peers *peers, struct peer **ret_peer) {
        struct peer *peer;

        if (peers->n_peers >= PEERS_MAX)
                return PEER_E_FULL;
        peer = calloc(1, sizeof(*peer));
        if (!peer)
                return -ENOMEM;
        peer->peers = peers;
        DL_APPEND(peers->list, peer);
        peers->n_peers++;
        peer->queue = evbuffer_new();
        peer->timer = evtimer_new(peers->base, peer_time, peer);
        if (!peer->queue || !peer->timer) {
                peer_free(peer);
                return -ENOMEM;
        }
        *ret_peer = peer;
        return 0;
}

void peer_unlink(struct peer *peer) {
        if (peer->dial)
                peer_stop_dial(peer);
        if (peer->identified)
                HASH_DEL(peer->peers->by_node, peer);
        DL_DELETE(peer->peers->list, peer);
        peer->peers->n_peers--;
        if (peer->timer)
                event_free(peer->timer);
        if (peer->queue)
                evbuffer_free(peer->queue);
        peer->timer = NULL;
        peer->queue = NULL;
}

struct peer *peer_free(struct peer *peer) {
        if (!peer)
                return NULL;
        peer_unlink(peer);
        free(peer);
        return NULL;
}

/* ---- what is known ---- */

bool peer_is_up(const struct peer *peer) {
        return peer->link != NULL;
}

const uint8_t *peer_node_id(const struct peer *peer) {
        return peer->identified ? peer->node : NULL;
}

uint64_t peer_boot(const struct peer *peer) {
        return peer->boot;
}

const char *peer_address(const struct peer *peer) {
        return peer->address[0] ? peer->address : peer->dial_address;
}

const char *peer_name(const struct peer *peer) {
        return peer->name;
}

const uint8_t *peer_token(const struct peer *peer) {
        return peer->link ? peer->link->token : NULL;
}

uint32_t peer_version(const struct peer *peer) {
        return peer->link ? peer->link->other.version : 0;
}

bool peer_takes_classes(const struct peer *peer) {
        return peer->link && peer->link->other.classes;
}

const char *peer_error(const struct peer *peer) {
        return peer->error;
}
