/* SPDX-License-Identifier: MIT */
#include "tests/daemon/peers_fixture.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- certificates ------------------------------------------------------------------------------------------------ */
struct authority {
        EVP_PKEY *key;
        X509 *certificate;
};

static void certificate_extend(X509 *certificate, X509 *issuer, int nid, const char *value) {
        X509V3_CTX context;
        X509_EXTENSION *extension;

        X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
        extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
        assert_non_null(extension);
        assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
        X509_EXTENSION_free(extension);
}

static X509 *certificate_new(EVP_PKEY *key, const char *name, int from_days, int to_days) {
        static long serial = 1;
        X509 *certificate = X509_new();

        assert_non_null(certificate);
        assert_int_equal(X509_set_version(certificate, 2), 1);
        assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++), 1);
        assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), from_days * 86400L));
        assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), to_days * 86400L));
        assert_int_equal(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                                                    (const unsigned char *)name, -1, -1, 0),
                         1);
        assert_int_equal(X509_set_pubkey(certificate, key), 1);
        return certificate;
}

struct authority *authority_new(const char *name) {
        struct authority *authority = calloc(1, sizeof(*authority));

        assert_non_null(authority);
        authority->key = EVP_EC_gen("P-256");
        assert_non_null(authority->key);
        authority->certificate = certificate_new(authority->key, name, -1, 10);
        assert_int_equal(X509_set_issuer_name(authority->certificate, X509_get_subject_name(authority->certificate)),
                         1);
        certificate_extend(authority->certificate, authority->certificate, NID_basic_constraints, "critical,CA:TRUE");
        certificate_extend(authority->certificate, authority->certificate, NID_key_usage, "critical,keyCertSign");
        certificate_extend(authority->certificate, authority->certificate, NID_subject_key_identifier, "hash");
        assert_true(X509_sign(authority->certificate, authority->key, EVP_sha256()) > 0);
        return authority;
}

struct authority *authority_free(struct authority *authority) {
        if (!authority)
                return NULL;
        EVP_PKEY_free(authority->key);
        X509_free(authority->certificate);
        free(authority);
        return NULL;
}

static FILE *certificate_file(struct world *world, const char *name, const char *ending, mode_t mode) {
        char path[PATH_BYTES];
        FILE *file;
        int fd;

        snprintf(path, sizeof(path), "%s/%s.%s", world->dir, name, ending);
        unlink(path);
        fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
        assert_true(fd >= 0);
        file = fdopen(fd, "w");
        assert_non_null(file);
        return file;
}

void certificate_write(struct world *world, struct authority *authority, const char *name,
                       const struct certificate_request *request) {
        EVP_PKEY *key = EVP_EC_gen("P-256");
        X509 *certificate = certificate_new(key, name, request->from_days, request->to_days);
        char text[256];
        FILE *file;

        assert_int_equal(X509_set_issuer_name(certificate, X509_get_subject_name(authority->certificate)), 1);
        certificate_extend(certificate, authority->certificate, NID_basic_constraints, "critical,CA:FALSE");
        certificate_extend(certificate, authority->certificate, NID_authority_key_identifier, "keyid");
        if (request->usage)
                certificate_extend(certificate, authority->certificate, NID_ext_key_usage, request->usage);
        if (request->uri) {
                snprintf(text, sizeof(text), "DNS:host.example,URI:%s", request->uri);
                certificate_extend(certificate, authority->certificate, NID_subject_alt_name, text);
        }
        assert_true(X509_sign(certificate, authority->key, EVP_sha256()) > 0);
        file = certificate_file(world, name, "crt", 0644);
        assert_int_equal(PEM_write_X509(file, certificate), 1);
        fclose(file);
        file = certificate_file(world, name, "key", 0600);
        assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
        fclose(file);
        file = certificate_file(world, name, "ca", 0644);
        assert_int_equal(PEM_write_X509(file, authority->certificate), 1);
        fclose(file);
        X509_free(certificate);
        EVP_PKEY_free(key);
}

void node_use_certificate(struct world *world, struct peers_options *options, const char *name) {
        char(*paths)[PATH_BYTES] = world->paths[world->n_paths++];

        assert_true(world->n_paths <= PATHS_MAX);
        snprintf(paths[0], PATH_BYTES, "%s/%s.ca", world->dir, name);
        snprintf(paths[1], PATH_BYTES, "%s/%s.crt", world->dir, name);
        snprintf(paths[2], PATH_BYTES, "%s/%s.key", world->dir, name);
        options->ca = paths[0];
        options->certificate = paths[1];
        options->key = paths[2];
}

/* ---- a line between two daemons that can fall silent --------------------------------------------------------------
 */
struct proxy {
        struct world *world;
        struct evconnlistener *listener;
        char target[PEER_ADDRESS_MAX], address[PEER_ADDRESS_MAX];
        struct bufferevent *ends[2];
        bool silent;
};

static void proxy_read(struct bufferevent *from, void *data) {
        struct proxy *proxy = data;
        struct bufferevent *to = proxy->ends[from == proxy->ends[0]];

        if (!proxy->silent && to)
                bufferevent_write_buffer(to, bufferevent_get_input(from));
}

static void proxy_event(struct bufferevent *stream, short what, void *data) {
        struct proxy *proxy = data;

        (void)stream;
        if (proxy->silent || !(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)))
                return;
        for (unsigned int i = 0; i < 2; i++) {
                if (proxy->ends[i])
                        bufferevent_free(proxy->ends[i]);
                proxy->ends[i] = NULL;
        }
}

static void proxy_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int from_size,
                         void *data) {
        struct proxy *proxy = data;
        struct sockaddr_storage to;
        int size;

        (void)listener;
        (void)from;
        (void)from_size;
        if (proxy->silent || proxy->ends[0]) {
                close(fd);
                return;
        }
        assert_int_equal(peer_address_parse(proxy->target, &to, &size), 0);
        proxy->ends[0] = bufferevent_socket_new(proxy->world->base, fd, BEV_OPT_CLOSE_ON_FREE);
        proxy->ends[1] = bufferevent_socket_new(proxy->world->base, -1, BEV_OPT_CLOSE_ON_FREE);
        for (unsigned int i = 0; i < 2; i++) {
                bufferevent_setcb(proxy->ends[i], proxy_read, NULL, proxy_event, proxy);
                bufferevent_enable(proxy->ends[i], EV_READ | EV_WRITE);
        }
        assert_int_equal(bufferevent_socket_connect(proxy->ends[1], (struct sockaddr *)&to, size), 0);
}

struct proxy *proxy_new(struct world *world, const char *target) {
        struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct proxy *proxy = calloc(1, sizeof(*proxy));
        socklen_t size = sizeof(here);

        assert_non_null(proxy);
        proxy->world = world;
        snprintf(proxy->target, sizeof(proxy->target), "%s", target);
        proxy->listener = evconnlistener_new_bind(world->base, proxy_accept, proxy, LEV_OPT_CLOSE_ON_FREE, 16,
                                                  (struct sockaddr *)&here, sizeof(here));
        assert_non_null(proxy->listener);
        assert_int_equal(getsockname(evconnlistener_get_fd(proxy->listener), (struct sockaddr *)&here, &size), 0);
        peer_address_format((struct sockaddr *)&here, proxy->address);
        return proxy;
}

const char *proxy_address(const struct proxy *proxy) {
        return proxy->address;
}

void proxy_silence(struct proxy *proxy) {
        proxy->silent = true;
        for (unsigned int i = 0; i < 2; i++)
                if (proxy->ends[i])
                        bufferevent_disable(proxy->ends[i], EV_READ);
}

struct proxy *proxy_free(struct proxy *proxy) {
        if (!proxy)
                return NULL;
        evconnlistener_free(proxy->listener);
        for (unsigned int i = 0; i < 2; i++)
                if (proxy->ends[i])
                        bufferevent_free(proxy->ends[i]);
        free(proxy);
        return NULL;
}
