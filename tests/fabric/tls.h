/* SPDX-License-Identifier: MIT */
#pragma once
/* A context for both ends, TLS 1.3, with a key and a certificate of its own that only its own kind accepts. */
#include <openssl/types.h>

SSL_CTX *tls_context(void);
