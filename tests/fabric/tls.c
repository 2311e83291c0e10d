/* SPDX-License-Identifier: MIT */
#include "tests/fabric/tls.h"

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "tests/cmocka_all.h"

SSL_CTX *tls_context(void) {
        SSL_CTX *context = SSL_CTX_new(TLS_method());
        EVP_PKEY *key = EVP_EC_gen("P-256");
        X509 *certificate = X509_new();
        X509_NAME *name;

        assert_non_null(context);
        assert_non_null(key);
        assert_non_null(certificate);
        assert_int_equal(X509_set_version(certificate, X509_VERSION_3), 1);
        ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
        X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
        X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
        assert_int_equal(X509_set_pubkey(certificate, key), 1);
        name = X509_get_subject_name(certificate);
        assert_int_equal(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0),
                         1);
        assert_int_equal(X509_set_issuer_name(certificate, name), 1);
        assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);

        assert_int_equal(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION), 1);
        assert_int_equal(SSL_CTX_use_certificate(context, certificate), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
        assert_int_equal(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate), 1);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        X509_free(certificate);
        EVP_PKEY_free(key);
        return context;
}
