/* SPDX-License-Identifier: MIT */
/*
 * Which certificates count. All of a cluster's are signed by one CA, and nothing else that the machine trusts is looked
 * at. Since a CA may serve more than one cluster, a certificate also says which one it is for: in a URI of the
 * subject's alternative names, because the common name is for people and host names would tie a daemon to a name
 * service.
 *
 * There is no resumption: a resumed session would skip the certificates, and daemons connect seldom. There is no
 * renegotiation in TLS 1.3. What was loaded is checked as a peer would check it, so that a mistake is found when the
 * daemon starts, and not as an alert in somebody else's log.
 */
#include "util/tls.h"

#include "util/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TLS_SCHEME "railmux:"

const char *tls_error_text(const char *fallback, char *out, size_t out_size) {
        unsigned long code = ERR_get_error();
        const char *reason = code ? ERR_reason_error_string(code) : NULL;

        ERR_clear_error();
        snprintf(out, out_size, "%s", reason ? reason : fallback);
        return out;
}

/* A URI of the certificate that is of ours; NODE must be plain text that fits. */
static int tls_uri_check(const GENERAL_NAME *name, const char *cluster, char ret_node[TLS_NODE_MAX]) {
        const char *text, *node;
        size_t length, cluster_length = strlen(cluster), prefix = strlen(TLS_SCHEME);

        if (name->type != GEN_URI)
                return TLS_E_CERTIFICATE;
        text = (const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier);
        length = (size_t)ASN1_STRING_length(name->d.uniformResourceIdentifier);
        if (length <= prefix || memcmp(text, TLS_SCHEME, prefix) != 0)
                return TLS_E_CERTIFICATE;
        text += prefix;
        length -= prefix;
        node = memchr(text, '/', length);
        if (!node || (size_t)(node - text) != cluster_length || memcmp(text, cluster, cluster_length) != 0)
                return TLS_E_CLUSTER;
        node++;
        length -= cluster_length + 1;
        if (length == 0 || length >= TLS_NODE_MAX)
                return TLS_E_CERTIFICATE;
        for (size_t i = 0; i < length; i++)
                if (node[i] <= ' ' || node[i] >= 0x7f || node[i] == '/')
                        return TLS_E_CERTIFICATE;
        memcpy(ret_node, node, length);
        ret_node[length] = '\0';
        return 0;
}

static int tls_certificate_check(const X509 *certificate, const char *cluster, char *error, size_t error_size,
                                 char ret_node[TLS_NODE_MAX]) {
        GENERAL_NAMES *names;
        int r = TLS_E_CERTIFICATE;

        names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
        for (int i = 0; names && i < sk_GENERAL_NAME_num(names) && r; i++) {
                int verdict = tls_uri_check(sk_GENERAL_NAME_value(names, i), cluster, ret_node);

                if (verdict != TLS_E_CERTIFICATE)
                        r = verdict;
        }
        GENERAL_NAMES_free(names);
        ERR_clear_error();
        if (r == TLS_E_CERTIFICATE)
                snprintf(error, error_size, "the certificate has no name URI:" TLS_SCHEME "%s/NODE", cluster);
        if (r == TLS_E_CLUSTER)
                snprintf(error, error_size, "the certificate is of another cluster; it needs URI:" TLS_SCHEME "%s/NODE",
                         cluster);
        return r;
}

int tls_peer_check(const SSL *ssl, const char *cluster, char *error, size_t error_size, char ret_node[TLS_NODE_MAX]) {
        const X509 *certificate = SSL_get0_peer_certificate(ssl);

        if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK) {
                snprintf(error, error_size, "no certificate that this cluster's CA has signed");
                return TLS_E_CERTIFICATE;
        }
        return tls_certificate_check(certificate, cluster, error, error_size, ret_node);
}

/* The path of a file; NULL without memory. */
static char *tls_path(const char *name) {
        const char *directory = getenv("CREDENTIALS_DIRECTORY");
        char *path;

        if (strchr(name, '/') || !directory)
                return strdup(name);
        return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

/* OpenSSL does not say why a file could not be opened. */
static int tls_file_check(const char *path, char *error, size_t error_size, struct stat *ret_stat) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), number = fd < 0 ? errno : 0;
        struct stat st;

        if (fd >= 0) {
                number = fstat(fd, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;
                close(fd);
        }
        if (number == 0) {
                *ret_stat = st;
                return 0;
        }
        snprintf(error, error_size, "%.160s: cannot be read: %s", path, strerror(number));
        return TLS_E_FILE;
}

static int tls_refuse(const char *path, const char *what, char *error, size_t error_size) {
        char reason[160];

        tls_error_text("it cannot be used", reason, sizeof(reason));
        snprintf(error, error_size, "%.160s: %s: %s", path, what, reason);
        return TLS_E_FILE;
}

/* A key that everybody can read proves nothing. */
static int tls_key_check(const char *path, char *error, size_t error_size) {
        struct stat st;
        int r = tls_file_check(path, error, error_size, &st);

        if (r)
                return r;
        if (st.st_mode & 0027) {
                snprintf(error, error_size, "%.160s: mode %04o; a key may be read by its owner and group at most", path,
                         (unsigned int)st.st_mode & 07777);
                return TLS_E_FILE;
        }
        return 0;
}

/* As a peer would see it. */
static int tls_chain_check(SSL_CTX *context, const char *path, char *error, size_t error_size) {
        X509 *certificate = SSL_CTX_get0_certificate(context);
        static const int purposes[] = {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT};
        STACK_OF(X509) *chain = NULL;
        int r = 0;

        SSL_CTX_get0_chain_certs(context, &chain);
        for (size_t i = 0; i < sizeof(purposes) / sizeof(purposes[0]) && !r; i++) {
                X509_STORE_CTX *verify = X509_STORE_CTX_new();

                if (!verify || !X509_STORE_CTX_init(verify, SSL_CTX_get_cert_store(context), certificate, chain) ||
                    !X509_STORE_CTX_set_purpose(verify, purposes[i])) {
                        r = -ENOMEM;
                        snprintf(error, error_size, "out of memory");
                } else if (X509_verify_cert(verify) != 1) {
                        r = TLS_E_FILE;
                        snprintf(error, error_size, "%.160s: other daemons would refuse it as a %s's: %s", path,
                                 i ? "client" : "server",
                                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(verify)));
                }
                X509_STORE_CTX_free(verify);
        }
        ERR_clear_error();
        return r;
}

static int tls_context_load(SSL_CTX *context, const struct tls_files *files, const char *cluster, char *error,
                            size_t error_size, char ret_node[TLS_NODE_MAX]) {
        _cleanup_free_ char *ca = tls_path(files->ca), *certificate = tls_path(files->certificate),
                            *key = tls_path(files->key);
        char text[192];
        struct stat st;
        int r;

        if (!ca || !certificate || !key) {
                snprintf(error, error_size, "out of memory");
                return -ENOMEM;
        }
        r = tls_key_check(key, error, error_size);
        if (!r)
                r = tls_file_check(ca, error, error_size, &st);
        if (!r)
                r = tls_file_check(certificate, error, error_size, &st);
        if (r)
                return r;
        if (SSL_CTX_load_verify_file(context, ca) != 1)
                return tls_refuse(ca, "no CA certificates", error, error_size);
        if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
                return tls_refuse(certificate, "no certificate", error, error_size);
        if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(context) != 1)
                return tls_refuse(key, "no key of the certificate", error, error_size);
        r = tls_certificate_check(SSL_CTX_get0_certificate(context), cluster, text, sizeof(text), ret_node);
        if (r) {
                snprintf(error, error_size, "%.160s: %s", certificate, text);
                return r;
        }
        return tls_chain_check(context, certificate, error, error_size);
}

/* Nobody is there to type a passphrase. */
static int tls_no_passphrase(char *out, int size, int writing, void *data) {
        (void)out;
        (void)size;
        (void)writing;
        (void)data;
        return -1;
}

int tls_context_new(const struct tls_files *files, const char *cluster, char *error, size_t error_size,
                    SSL_CTX **ret_context, char ret_node[TLS_NODE_MAX]) {
        char node[TLS_NODE_MAX] = "";
        SSL_CTX *context;
        int r;

        ERR_clear_error();
        context = SSL_CTX_new(TLS_method());
        if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
            SSL_CTX_set_num_tickets(context, 0) != 1) {
                SSL_CTX_free(context);
                tls_error_text("out of memory", error, error_size);
                return -ENOMEM;
        }
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_default_passwd_cb(context, tls_no_passphrase);
        r = tls_context_load(context, files, cluster, error, error_size, node);
        if (r) {
                SSL_CTX_free(context);
                return r;
        }
        memcpy(ret_node, node, TLS_NODE_MAX);
        *ret_context = context;
        return 0;
}
