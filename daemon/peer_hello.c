/* SPDX-License-Identifier: MIT */
/*
 * Who is at the other end. With TLS the certificate has proved membership of the cluster before a byte of HELLO is
 * looked at, and the node's name is the one of the certificate. What HELLO adds is what no certificate can know: the
 * node id of the state memfd and the start of the process. Members of a cluster are trusted not to claim another's id,
 * but a mistake (a state that was copied) must not mix two nodes, so an id belongs to one name while it is connected.
 *
 * The token: both ends' nonces, ids and the cluster through SHA-256, and with TLS 32 bytes of keying material that only
 * the two ends of this connection can export. It opens rails, so it must not be one that anybody can choose alone.
 */
#include "daemon/peer_private.h"
#include "util/tls.h"
#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HELLO_TOKEN_LABEL "EXPORTER-railmux-token"

int peer_hello_send(struct peer_link *link) {
        struct peers *peers = link->peers;
        Railmux__Peer__Hello hello = RAILMUX__PEER__HELLO__INIT;
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        uint8_t *data;
        size_t size;
        int r;

        hello.version_min = PEER_PROTOCOL_MIN;
        hello.version_max = PEER_PROTOCOL_MAX;
        hello.cluster = peers->cluster;
        hello.node = (ProtobufCBinaryData){.len = PEER_NODE_BYTES, .data = peers->node};
        hello.boot = peers->boot;
        hello.address = peers->address;
        hello.nonce = (ProtobufCBinaryData){.len = PEER_NONCE_BYTES, .data = link->nonce};
        hello.name = peers->name;
        hello.classes = true;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_HELLO;
        message.hello = &hello;
        r = peer_frame_pack(&message, PEER_HELLO_MAX, &data, &size);
        if (r)
                return r < 0 ? r : -EINVAL;
        r = peer_link_send(link, data, size);
        free(data);
        return r;
}

int peer_hello_entry(struct peer_link *link, char text[PEER_TEXT_MAX]) {
        struct sockaddr_storage here, there;
        socklen_t here_size = sizeof(here), there_size = sizeof(there);
        int fd = bufferevent_getfd(link->stream);

        if (link->tls) {
                const SSL *ssl = bufferevent_openssl_get_ssl(link->stream);

                if (tls_peer_check(ssl, link->peers->cluster, text, PEER_TEXT_MAX, link->other.name))
                        return RAILMUX__PEER__REFUSE_CODE__REFUSE_CERTIFICATE;
                return -1;
        }
        if (link->peers->plain)
                return -1;
        if (getsockname(fd, (struct sockaddr *)&here, &here_size) == 0 &&
            getpeername(fd, (struct sockaddr *)&there, &there_size) == 0 &&
            peer_address_is_loopback((struct sockaddr *)&here) && peer_address_is_loopback((struct sockaddr *)&there))
                return -1;
        snprintf(text, PEER_TEXT_MAX,
                 "no TLS beyond loopback; needed are peer.ca, peer.certificate and peer.key, or peer.plain: yes");
        return RAILMUX__PEER__REFUSE_CODE__REFUSE_PLAIN;
}

/* A text of the other end for logs and tables. */
static bool hello_is_plain_text(const char *text, size_t size) {
        size_t length = strnlen(text, size);

        if (length == size)
                return false;
        for (size_t i = 0; i < length; i++)
                if (text[i] <= ' ' || text[i] >= 0x7f)
                        return false;
        return true;
}

static int hello_check_identity(const struct peer_link *link, const Railmux__Peer__Hello *hello,
                                char text[PEER_TEXT_MAX]) {
        struct peers *peers = link->peers;
        const char *name = link->tls ? link->other.name : hello->name;
        char host[PEER_ADDRESS_MAX];
        const struct peer *known;
        uint16_t port;

        if (hello->node.len != PEER_NODE_BYTES || hello->nonce.len != PEER_NONCE_BYTES || hello->boot == 0 ||
            !hello_is_plain_text(hello->name, PEER_NAME_MAX) ||
            !hello_is_plain_text(hello->address, PEER_ADDRESS_MAX) ||
            (hello->address[0] && peer_address_split(hello->address, host, &port) < 0)) {
                snprintf(text, PEER_TEXT_MAX, "HELLO is malformed");
                return RAILMUX__PEER__REFUSE_CODE__REFUSE_PROTOCOL;
        }
        if (memcmp(hello->node.data, peers->node, PEER_NODE_BYTES) == 0) {
                snprintf(text, PEER_TEXT_MAX, "this is the same node: daemon and peer have one node id");
                return RAILMUX__PEER__REFUSE_CODE__REFUSE_SELF;
        }
        known = peer_find(peers, hello->node.data);
        if (known && known->link && strcmp(known->name, name) != 0) {
                snprintf(text, PEER_TEXT_MAX, "node %.63s has the node id of %.63s, which is connected", name,
                         known->name);
                return RAILMUX__PEER__REFUSE_CODE__REFUSE_SELF;
        }
        return -1;
}

int peer_hello_check(struct peer_link *link, const Railmux__Peer__Hello *hello, char text[PEER_TEXT_MAX]) {
        struct peer_greeting *other = &link->other;
        int code;

        /* The order of the layout: what a later version may not change comes first. */
        if (hello->version_min > PEER_PROTOCOL_MAX || hello->version_max < PEER_PROTOCOL_MIN ||
            hello->version_min > hello->version_max) {
                snprintf(text, PEER_TEXT_MAX, "protocol %u to %u meets protocol %u to %u", PEER_PROTOCOL_MIN,
                         PEER_PROTOCOL_MAX, hello->version_min, hello->version_max);
                return RAILMUX__PEER__REFUSE_CODE__REFUSE_VERSION;
        }
        if (strcmp(hello->cluster, link->peers->cluster) != 0) {
                snprintf(text, PEER_TEXT_MAX, "cluster %.63s meets cluster %.63s", link->peers->cluster,
                         hello_is_plain_text(hello->cluster, PEER_CLUSTER_MAX) ? hello->cluster : "?");
                return RAILMUX__PEER__REFUSE_CODE__REFUSE_CLUSTER;
        }
        code = hello_check_identity(link, hello, text);
        if (code >= 0)
                return code;
        memcpy(other->node, hello->node.data, PEER_NODE_BYTES);
        memcpy(other->nonce, hello->nonce.data, PEER_NONCE_BYTES);
        other->boot = hello->boot;
        other->version = hello->version_max < PEER_PROTOCOL_MAX ? hello->version_max : PEER_PROTOCOL_MAX;
        other->classes = hello->classes;
        snprintf(other->address, sizeof(other->address), "%s", hello->address);
        if (!link->tls) /* else it has the certificate's */
                snprintf(other->name, sizeof(other->name), "%s", hello->name);
        return -1;
}

int peer_hello_token(struct peer_link *link) {
        const struct peers *peers = link->peers;
        const struct peer_greeting *other = &link->other;
        bool lower = memcmp(peers->node, other->node, PEER_NODE_BYTES) < 0;
        uint8_t text[sizeof(HELLO_TOKEN_LABEL) + 32 + 2 * (PEER_NODE_BYTES + PEER_NONCE_BYTES) + PEER_CLUSTER_MAX] = {
                HELLO_TOKEN_LABEL};
        uint8_t *p = text + sizeof(HELLO_TOKEN_LABEL);

        if (link->tls) {
                SSL *ssl = bufferevent_openssl_get_ssl(link->stream);

                if (SSL_export_keying_material(ssl, p, 32, HELLO_TOKEN_LABEL, strlen(HELLO_TOKEN_LABEL), NULL, 0, 0) !=
                    1)
                        return -EIO;
        }
        p += 32;
        memcpy(p, lower ? peers->node : other->node, PEER_NODE_BYTES);
        p += PEER_NODE_BYTES;
        memcpy(p, lower ? other->node : peers->node, PEER_NODE_BYTES);
        p += PEER_NODE_BYTES;
        memcpy(p, lower ? link->nonce : other->nonce, PEER_NONCE_BYTES);
        p += PEER_NONCE_BYTES;
        memcpy(p, lower ? other->nonce : link->nonce, PEER_NONCE_BYTES);
        p += PEER_NONCE_BYTES;
        memcpy(p, peers->cluster, strlen(peers->cluster));
        if (!EVP_Digest(text, sizeof(text), link->token, NULL, EVP_sha256(), NULL))
                return -EIO;
        return 0;
}
