/* SPDX-License-Identifier: MIT */
/*
 * One connection, from TCP to its end.
 *
 *   CONNECTING ──> HELLO ──> AGREEING ──> OPEN ──> gone
 *        └───────────┴───────────┴─────────┴──> ENDING (REFUSE is sent) ──> gone
 *
 * Until it is OPEN the other end is a stranger, and may cost one descriptor, a buffer of PEER_HELLO_MAX bytes and
 * handshake_ms, which is one time for everything together: whoever sends a byte now and then is no better off. How many
 * of them there are is bounded in peers.c.
 *
 * With TLS the certificates are exchanged before anything else, so a refusal for a certificate that the CA has not
 * signed is an alert of TLS, and all other refusals are a message. A message that is followed by close() may be lost: a
 * socket that is closed with bytes unread answers with a reset, which overtakes what was sent. So ENDING shuts down the
 * sending side only, once all is written, and reads and throws away until the other end closes too or a second is over.
 *
 * Heartbeats. Each end sends a PING in every period, which the other answers; any byte that arrives is a sign of life.
 * TCP by itself notices a host that is gone only when something was sent and only after minutes, therefore also
 * TCP_USER_TIMEOUT. A process that is stopped has a kernel that goes on acknowledging; only silence tells. One that is
 * heard but answers no PING for eight deadlines does not read, and is lost too. If this process itself did not get to
 * its loop in time, the silence was its own: it grants the others the time that it missed.
 */
#include "daemon/peer_private.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <utlist.h>

#define LINK_MESSAGES_PER_TURN 64u
#define LINK_UNANSWERED        8u /* deadlines without a PONG */

static const struct timeval link_linger_time = {.tv_sec = 1};

size_t peer_link_queued(const struct peer_link *link) {
        return evbuffer_get_length(bufferevent_get_output(link->stream));
}

int peer_link_send(struct peer_link *link, const uint8_t *data, size_t size) {
        return bufferevent_write(link->stream, data, size) < 0 ? -ENOMEM : 0;
}

void peer_link_say(struct peer_link *link, const Railmux__Peer__Message *message) {
        uint8_t *data;
        size_t size;

        if (peer_frame_pack(message, PEER_HELLO_MAX, &data, &size) != 0) {
                peer_link_doom(link, "out of memory");
                return;
        }
        if (peer_link_send(link, data, size) < 0)
                peer_link_doom(link, "out of memory");
        free(data);
}

void peer_link_doom(struct peer_link *link, const char *text) {
        if (link->doom[0])
                return;
        snprintf(link->doom, sizeof(link->doom), "%s", text);
        event_active(link->timer, EV_TIMEOUT, 0);
}

void peer_link_detach(struct peer_link *link, const char *text, bool quiet) {
        struct peer *peer = link->peer;

        link->peer = NULL;
        if (!peer)
                return;
        if (peer->link == link)
                peer_lose(peer, text);
        else if (peer->dial == link)
                peer_attempt_over(peer, text, quiet);
}

struct peer_link *peer_link_free(struct peer_link *link) {
        struct peers *peers;

        if (!link)
                return NULL;
        peers = link->peers;
        if (link->gone)
                *link->gone = true;
        DL_DELETE(peers->links, link);
        if (link->timer)
                event_free(link->timer);
        if (link->stream)
                bufferevent_free(link->stream); /* closes the socket */
        free(link);
        return NULL;
}

void peer_link_end(struct peer_link *link, const char *text) {
        bool stranger = link->state < PEER_LINK_OPEN && !link->dialled;
        struct peers *peers = link->peers;

        /* Who has said HELLO and closes again has found another connection of the pair: no news. */
        if (stranger && link->state < PEER_LINK_AGREEING) {
                peers->counters.handshakes_failed++;
                peers_tell_refusal(peers, link->remote, text);
        }
        peer_link_detach(link, text, false);
        peer_link_free(link);
}

void peer_link_refuse(struct peer_link *link, Railmux__Peer__RefuseCode code, const char *text) {
        Railmux__Peer__Refuse refuse = RAILMUX__PEER__REFUSE__INIT;
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        bool duplicate = code == RAILMUX__PEER__REFUSE_CODE__REFUSE_DUPLICATE, was_open = link->state == PEER_LINK_OPEN;
        char reason[PEER_TEXT_MAX];

        snprintf(reason, sizeof(reason), "%s", text); /* it may be the link's own */
        if (!duplicate && !was_open) {
                link->peers->counters.refused++;
                peers_tell_refusal(link->peers, link->remote, reason);
        }
        refuse.code = code;
        refuse.text = reason;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_REFUSE;
        message.refuse = &refuse;
        link->doom[0] = '\0';
        peer_link_say(link, &message);
        link->state = PEER_LINK_ENDING;
        if (event_add(link->timer, &link_linger_time) < 0)
                peer_link_doom(link, "out of memory");
        /* A full buffer stops reading. */
        evbuffer_drain(bufferevent_get_input(link->stream), evbuffer_get_length(bufferevent_get_input(link->stream)));
        peer_link_detach(link, reason, duplicate);
}

/* ---- receiving ---- */

/* Why a frame cannot be taken. TLS and other protocols are recognised where this is the usual mistake. */
static void peer_link_malformed(struct peer_link *link, int condition, const char *field, const uint8_t *data) {
        char text[PEER_TEXT_MAX];

        if (condition == PEER_FRAME_E_LARGE && link->state == PEER_LINK_HELLO && data[0] == 0x16 && data[1] == 3)
                snprintf(text, sizeof(text), "it speaks TLS, and here are no peer.ca, peer.certificate and peer.key");
        else if (condition == PEER_FRAME_E_LARGE)
                snprintf(text, sizeof(text), "a message of %" PRIu32 " bytes, or no railmuxd",
                         (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                                 (uint32_t)data[3] << 24);
        else if (condition == PEER_FRAME_E_BOUNDS)
                snprintf(text, sizeof(text), "a message with a bad size of %s", field);
        else
                snprintf(text, sizeof(text), "a message that cannot be unpacked");
        peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_PROTOCOL, text);
}

/* Takes one frame off the input. Returns false when there is none, or nothing is to be read any more. */
static bool peer_link_take(struct peer_link *link, struct evbuffer *input, struct frame_arena *arena,
                           Railmux__Peer__Message **ret_message) {
        size_t length, limit = link->state == PEER_LINK_OPEN ? PEER_MESSAGE_MAX : PEER_HELLO_MAX;
        const char *field = NULL;
        uint8_t header[PEER_FRAME_HEADER];
        uint8_t *data;
        int r;

        if (evbuffer_copyout(input, header, sizeof(header)) < (ssize_t)sizeof(header))
                return false;
        r = peer_frame_length(header, sizeof(header), limit, &length);
        if (r) {
                peer_link_malformed(link, r, NULL, header);
                return false;
        }
        if (evbuffer_get_length(input) < PEER_FRAME_HEADER + length)
                return false;
        data = evbuffer_pullup(input, (ssize_t)(PEER_FRAME_HEADER + length));
        if (!data) {
                peer_link_doom(link, "out of memory");
                return false;
        }
        r = peer_frame_unpack(data + PEER_FRAME_HEADER, length, arena, &field, ret_message);
        if (r) {
                peer_link_malformed(link, r, field, header);
                return false;
        }
        evbuffer_drain(input, PEER_FRAME_HEADER + length);
        if (link->state == PEER_LINK_OPEN) {
                link->peer->received_messages++;
                link->peer->received_bytes += PEER_FRAME_HEADER + length;
        }
        return true;
}

static void peer_link_readable(struct bufferevent *stream, void *data) {
        struct peer_link *link = data;
        struct evbuffer *input = bufferevent_get_input(stream);
        bool gone = false;

        link->heard_ns = clock_now_ns();
        for (unsigned int i = 0; i < LINK_MESSAGES_PER_TURN; i++) {
                struct frame_arena arena;
                Railmux__Peer__Message *message;

                if (link->state == PEER_LINK_ENDING) {
                        evbuffer_drain(input, evbuffer_get_length(input));
                        return;
                }
                if (link->doom[0] || !peer_link_take(link, input, &arena, &message))
                        return;
                link->gone = &gone; /* whatever the message leads to may end the link */
                peer_agree_message(link, message);
                railmux__peer__message__free_unpacked(message, &arena.allocator);
                if (gone)
                        return;
                link->gone = NULL;
        }
        bufferevent_trigger(stream, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
}

/* ---- the connection as such ---- */

/* The last word is out. */
static void peer_link_written(struct bufferevent *stream, void *data) {
        struct peer_link *link = data;

        /* This may still be about what was written before. */
        if (link->state != PEER_LINK_ENDING || peer_link_queued(link) > 0)
                return;
        if (link->tls)
                SSL_shutdown(bufferevent_openssl_get_ssl(stream));
        ERR_clear_error();
        shutdown(bufferevent_getfd(stream), SHUT_WR);
}

static void peer_link_connected(struct peer_link *link) {
        unsigned int patience_ms = link->peers->deadline_ms;
        int fd = bufferevent_getfd(link->stream), code;
        char text[PEER_TEXT_MAX];

        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
        link->state = PEER_LINK_HELLO;
        code = peer_hello_entry(link, text);
        if (code >= 0)
                peer_link_refuse(link, (Railmux__Peer__RefuseCode)code, text);
        else if (peer_hello_send(link) < 0)
                peer_link_doom(link, "out of memory");
}

/* Nothing was heard from one that was dialled without TLS: all that TLS does with our HELLO is to close the connection.
 */
static const char *peer_link_hint(const struct peer_link *link) {
        return link->dialled && !link->tls && link->state == PEER_LINK_HELLO
                       ? "; it may want TLS, and no certificates are configured here (peer.ca)"
                       : "";
}

/* What OpenSSL or the socket says of the end of a connection. */
static void peer_link_error_text(const struct peer_link *link, int error, short what, char text[PEER_TEXT_MAX]) {
        unsigned long code = link->tls ? bufferevent_get_openssl_error(link->stream) : 0;
        int dns = bufferevent_socket_get_dns_error(link->stream);
        const char *reason = code ? ERR_reason_error_string(code) : NULL;
        long verdict = X509_V_OK;

        if (link->tls)
                verdict = SSL_get_verify_result(bufferevent_openssl_get_ssl(link->stream));
        if (dns)
                snprintf(text, PEER_TEXT_MAX, "the name is not known: %s", evutil_gai_strerror(dns));
        else if (verdict != X509_V_OK && link->state == PEER_LINK_CONNECTING)
                snprintf(text, PEER_TEXT_MAX, "its certificate is refused: %s", X509_verify_cert_error_string(verdict));
        else if (code && ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
                snprintf(text, PEER_TEXT_MAX, "it speaks no TLS 1.3");
        else if (reason && ERR_GET_REASON(code) != SSL_R_UNEXPECTED_EOF_WHILE_READING)
                snprintf(text, PEER_TEXT_MAX, "TLS: %s", reason);
        else if ((what & BEV_EVENT_ERROR) && error && !reason)
                snprintf(text, PEER_TEXT_MAX, "%s%s", strerror(error), peer_link_hint(link));
        else
                snprintf(text, PEER_TEXT_MAX, "the connection was closed%s%s",
                         link->state < PEER_LINK_OPEN ? " before it was agreed on" : "", peer_link_hint(link));
}

static void peer_link_event(struct bufferevent *stream, short what, void *data) {
        int error = EVUTIL_SOCKET_ERROR();
        struct peer_link *link = data;
        char text[PEER_TEXT_MAX];

        (void)stream;
        if (what & BEV_EVENT_CONNECTED) {
                if (link->state == PEER_LINK_CONNECTING)
                        peer_link_connected(link);
                return;
        }
        if (link->state == PEER_LINK_ENDING) {
                peer_link_free(link);
                return;
        }
        peer_link_error_text(link, error, what, text);
        ERR_clear_error();
        peer_link_end(link, text);
}

static void peer_link_time_over(evutil_socket_t fd, short what, void *data) {
        struct peer_link *link = data;
        char text[PEER_TEXT_MAX];

        (void)fd;
        (void)what;
        if (link->state == PEER_LINK_ENDING) {
                peer_link_free(link);
                return;
        }
        if (link->doom[0]) {
                if (link->state == PEER_LINK_OPEN) {
                        peer_link_refuse(link, RAILMUX__PEER__REFUSE_CODE__REFUSE_OTHER, link->doom);
                        return;
                }
                snprintf(text, sizeof(text), "%s", link->doom);
        } else {
                snprintf(text, sizeof(text), "nothing was agreed on within %" PRIu32 " ms", link->peers->handshake_ms);
        }
        peer_link_end(link, text);
}

void peer_link_tick(struct peer_link *link, uint64_t now_ns, uint64_t late_ns) {
        uint64_t deadline_ns = link->peers->deadline_ms * UINT64_C(1000000),
                 period_ns = link->peers->heartbeat_ms * UINT64_C(1000000);
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Ping ping = RAILMUX__PEER__PING__INIT;
        char text[PEER_TEXT_MAX];

        if (late_ns) {
                link->heard_ns += late_ns;
                if (link->heard_ns > now_ns)
                        link->heard_ns = now_ns;
        }
        if (now_ns - link->heard_ns > deadline_ns) {
                snprintf(text, sizeof(text), "nothing was heard for %" PRIu32 " ms", link->peers->deadline_ms);
                peer_link_end(link, text);
                return;
        }
        if ((link->ping - link->pong) * period_ns > deadline_ns * LINK_UNANSWERED) {
                peer_link_end(link, "it sends and does not read");
                return;
        }
        /* A tick is half a period. */
        if (now_ns - link->pinged_ns < period_ns - period_ns / 4)
                return;
        link->pinged_ns = now_ns;
        ping.number = ++link->ping;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_PING;
        message.ping = &ping;
        peer_link_say(link, &message);
}

/* ---- life ---- */

static int peer_link_new(struct peers *peers, int fd, struct peer_link **ret_link) {
        const enum bufferevent_options options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
        struct timeval patience = {.tv_sec = peers->handshake_ms / 1000,
                                   .tv_usec = (suseconds_t)(peers->handshake_ms % 1000) * 1000};
        struct peer_link *link = calloc(1, sizeof(*link));
        bool dialled = fd < 0;

        if (!link)
                return -ENOMEM;
        link->peers = peers;
        link->dialled = dialled;
        link->tls = peers->tls != NULL;
        DL_APPEND(peers->links, link);
        if (link->tls) {
                SSL *ssl = SSL_new(peers->tls);

                if (ssl)
                        link->stream = bufferevent_openssl_socket_new(
                                peers->base, fd, ssl, dialled ? BUFFEREVENT_SSL_CONNECTING : BUFFEREVENT_SSL_ACCEPTING,
                                (int)options);
                if (ssl && !link->stream)
                        SSL_free(ssl);
                if (link->stream)
                        bufferevent_openssl_set_allow_dirty_shutdown(link->stream, 1);
        } else {
                link->stream = bufferevent_socket_new(peers->base, fd, (int)options);
        }
        link->timer = evtimer_new(peers->base, peer_link_time_over, link);
        if (!link->stream || !link->timer || event_add(link->timer, &patience) < 0 ||
            getrandom(link->nonce, sizeof(link->nonce), 0) != (ssize_t)sizeof(link->nonce)) {
                if (!link->stream && fd >= 0)
                        evutil_closesocket(fd);
                peer_link_free(link);
                return -ENOMEM;
        }
        bufferevent_setcb(link->stream, peer_link_readable, peer_link_written, peer_link_event, link);
        bufferevent_setwatermark(link->stream, EV_READ, 0, PEER_FRAME_HEADER + PEER_HELLO_MAX);
        *ret_link = link;
        return 0;
}

int peer_link_accept(struct peers *peers, int fd, const char *remote, bool from_peer) {
        struct peer_link *link;
        int r;

        r = peer_link_new(peers, fd, &link);
        if (r < 0)
                return r;
        snprintf(link->remote, sizeof(link->remote), "%s", remote);
        link->from_peer = from_peer;
        if (bufferevent_enable(link->stream, EV_READ | EV_WRITE) < 0)
                peer_link_doom(link, "out of memory");
        else if (!link->tls)
                peer_link_connected(link); /* with TLS it tells when the handshake is done */
        return 0;
}

int peer_link_dial(struct peer *peer, const char *address, char text[PEER_TEXT_MAX]) {
        struct peers *peers = peer->peers;
        struct sockaddr_storage there;
        char host[PEER_ADDRESS_MAX];
        struct peer_link *link;
        uint16_t port;
        int r, size;

        r = peer_link_new(peers, -1, &link);
        if (r < 0) {
                snprintf(text, PEER_TEXT_MAX, "%s", strerror(-r));
                return r;
        }
        snprintf(link->remote, sizeof(link->remote), "%s", address);
        bufferevent_enable(link->stream, EV_READ | EV_WRITE);
        if (peer_address_parse(address, &there, &size) == 0)
                r = bufferevent_socket_connect(link->stream, (struct sockaddr *)&there, size);
        else if (peer_address_split(address, host, &port) == 0 && peers_dns(peers))
                r = bufferevent_socket_connect_hostname(link->stream, peers_dns(peers), AF_UNSPEC, host, port);
        else
                r = -1;
        if (r < 0) {
                snprintf(text, PEER_TEXT_MAX, "cannot connect: %s", strerror(errno ? errno : EINVAL));
                peer_link_free(link);
                return -EINVAL;
        }
        link->peer = peer;
        peer->dial = link;
        return 0;
}
