/* SPDX-License-Identifier: MIT */
/*
 * What the two ends of a connection say about the connection itself: HELLO, CLAIM and WELCOME, as peers.c explains,
 * then PING, PONG and REFUSE. All else is the holder's.
 */
#include "daemon/peer_private.h"
#include "util/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void peer_agree_open(struct peer_link *link, struct peer *peer) {
        link->state = PEER_LINK_OPEN;
        link->opened_ns = link->heard_ns = clock_now_ns();
        event_del(link->timer);
        bufferevent_setwatermark(link->stream, EV_READ, 0, PEER_FRAME_HEADER + PEER_MESSAGE_MAX);
        if (link->doom[0])
                event_active(link->timer, EV_TIMEOUT, 0);
        peer_adopt(peer, link);
}

/* This end is the higher one: it says which connection it has seen end, and waits. */
static void peer_agree_claim(struct peer_link *link) {
        const struct peer *peer = peer_find(link->peers, link->other.node);
        Railmux__Peer__Claim claim = RAILMUX__PEER__CLAIM__INIT;
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;

        claim.ended = peer && peer->boot == link->other.boot ? peer->ended : 0;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_CLAIM;
        message.claim = &claim;
        peer_link_say(link, &message);
}

static void peer_agree_settle_failed(struct peer_link *link, int r) {
        if (r == PEER_E_FULL)
                peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_FULL, "this daemon knows too many others");
        else
                peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_OTHER, strerror(-r));
}

/* This end is the lower one, and decides. */
static void peer_agree_decide(struct peer_link *link, const Railmux__Peer__Claim *claim) {
        Railmux__Peer__Welcome welcome = RAILMUX__PEER__WELCOME__INIT;
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        struct peer *peer = peer_find(link->peers, link->other.node);
        int r;

        if (peer && peer->link && peer->boot == link->other.boot && peer->link->number > claim->ended) {
                peers_reconcile(link->peers, link);
                peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_DUPLICATE, "there is a connection already");
                return;
        }
        r = peers_settle(link->peers, link, &peer);
        if (r) {
                peer_agree_settle_failed(link, r);
                return;
        }
        link->number = ++link->peers->next_number;
        welcome.number = link->number;
        welcome.version = link->other.version;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_WELCOME;
        message.welcome = &welcome;
        peer_link_say(link, &message); /* before anything that up() sends */
        peer_agree_open(link, peer);
}

static void peer_agree_welcome(struct peer_link *link, const Railmux__Peer__Welcome *welcome) {
        struct peer *peer;
        int r;

        if (welcome->number == 0 || welcome->version != link->other.version) {
                peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_PROTOCOL, "WELCOME is not what was agreed");
                return;
        }
        r = peers_settle(link->peers, link, &peer);
        if (r) {
                peer_agree_settle_failed(link, r);
                return;
        }
        link->number = welcome->number;
        peer_agree_open(link, peer);
}

static void peer_agree_hello(struct peer_link *link, const Railmux__Peer__Hello *hello) {
        char text[PEER_TEXT_MAX];
        int code, r;

        code = peer_hello_check(link, hello, text);
        if (code >= 0) {
                peer_link_refuse(link, (Railmux__Peer__RefuseCode)code, text);
                return;
        }
        r = peer_hello_token(link);
        if (r < 0) {
                peer_link_end(link, strerror(-r));
                return;
        }
        link->state = PEER_LINK_AGREEING;
        if (memcmp(link->peers->node, link->other.node, PEER_NODE_BYTES) > 0)
                peer_agree_claim(link);
}

/* ---- from then on ---- */

static void peer_agree_refused(struct peer_link *link, const Railmux__Peer__Refuse *refuse) {
        bool duplicate = refuse->code == RAILMUX__PEER__REFUSE_CODE__REFUSE_DUPLICATE;
        char text[PEER_TEXT_MAX];

        snprintf(text, sizeof(text), "refused by the other end: %.200s", refuse->text);
        for (char *p = text; *p; p++)
                if (*p < ' ' || *p > '~')
                        *p = '?';
        if (link->state != PEER_LINK_OPEN && !link->dialled && !duplicate)
                peers_tell_refusal(link->peers, link->remote, text);
        if (duplicate && link->state == PEER_LINK_AGREEING)
                peers_reconcile(link->peers, link);
        peer_link_detach(link, text, duplicate);
        peer_link_free(link);
}

static void peer_agree_pong(struct peer_link *link, const Railmux__Peer__Pong *pong) {
        if (pong->number <= link->pong || pong->number > link->ping) {
                peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_PROTOCOL, "PONG without PING");
                return;
        }
        link->pong = pong->number;
        if (pong->number == link->ping)
                link->peer->round_trip_ns = clock_now_ns() - link->pinged_ns;
}

static void peer_agree_answer(struct peer_link *link, uint64_t number) {
        Railmux__Peer__Pong pong = RAILMUX__PEER__PONG__INIT;
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;

        pong.number = number;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_PONG;
        message.pong = &pong;
        /* Who sends and does not read fills this buffer only so far. */
        if (peer_link_queued(link) > PEER_QUEUE_MAX + PEER_MESSAGE_MAX)
                peer_link_doom(link, "it sends and does not read");
        else
                peer_link_say(link, &message);
}

void peer_agree_message(struct peer_link *link, const Railmux__Peer__Message *message) {
        struct peers *peers = link->peers;
        bool lower = memcmp(peers->node, link->other.node, PEER_NODE_BYTES) < 0;

        if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_REFUSE) {
                peer_agree_refused(link, message->refuse);
                return;
        }
        switch (link->state) {
        case PEER_LINK_HELLO:
                if (message->body_case != RAILMUX__PEER__MESSAGE__BODY_HELLO)
                        break;
                peer_agree_hello(link, message->hello);
                return;
        case PEER_LINK_AGREEING:
                if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_CLAIM && lower)
                        peer_agree_decide(link, message->claim);
                else if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_WELCOME && !lower)
                        peer_agree_welcome(link, message->welcome);
                else
                        break;
                return;
        case PEER_LINK_OPEN:
                if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_PING)
                        peer_agree_answer(link, message->ping->number);
                else if (message->body_case == RAILMUX__PEER__MESSAGE__BODY_PONG)
                        peer_agree_pong(link, message->pong);
                else if (message->body_case < RAILMUX__PEER__MESSAGE__BODY_JOIN)
                        break;
                else if (peers->events.message)
                        peers->events.message(link->peer, message, peers->data);
                return;
        default:
                break;
        }
        peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_PROTOCOL, "a message that is not expected now");
}
