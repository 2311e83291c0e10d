/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Mutual TLS 1.3 between the daemons of a cluster. A daemon's certificate names its cluster and node in a URI:
 *
 *   subjectAltName = URI:railmux:CLUSTER/NODE
 *
 * and, if it has extended key usages, both serverAuth and clientAuth: who dials is a matter of chance.
 * A context may be used by several threads at once; nothing here keeps any state.
 */
#include <openssl/types.h>
#include <stddef.h>

#define TLS_NODE_MAX 64u /* bytes of NODE with the final zero byte */

/* Positive conditions, all caused by what somebody else wrote. */
enum {
        _TLS_E_SUCCESS,
        TLS_E_FILE,        /* a file cannot be used; the text says which and why */
        TLS_E_CERTIFICATE, /* no certificate, or it names no cluster */
        TLS_E_CLUSTER,     /* a certificate of another cluster */
};

struct tls_files {
        const char *ca, *certificate, *key; /* PEM; a name without '/' is one in $CREDENTIALS_DIRECTORY */
};

/*
 * Loads and checks the three files: the key belongs to the certificate and is nobody else's to read, the certificate is
 * signed by the CA, in force, and of `cluster`. Contexts serve both ends. ret_node gets the certificate's NODE.
 * 0; TLS_E_*, -ENOMEM with a text. The caller owns *ret_context (SSL_CTX_free).
 */
int tls_context_new(const struct tls_files *files, const char *cluster, char *error, size_t error_size,
                    SSL_CTX **ret_context, char ret_node[TLS_NODE_MAX]);

/* Who is at the other end, once the handshake is done. 0, TLS_E_CERTIFICATE, TLS_E_CLUSTER with a text. */
int tls_peer_check(const SSL *ssl, const char *cluster, char *error, size_t error_size, char ret_node[TLS_NODE_MAX]);

/* The first error of this thread's queue as a text, which empties the queue; `fallback` if there is none. */
const char *tls_error_text(const char *fallback, char *out, size_t out_size);
