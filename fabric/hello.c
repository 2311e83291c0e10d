/* SPDX-License-Identifier: MIT */
/*
 *   0 "railmux" 1   8 u8 kind, class, status, missed   12 u32 0   16 from   32 to   48 u64 from_epoch   56 u64 to_epoch
 *  64 u64 number   72 nonce (16)   88 cluster (32)   120 rail (32)   152 zero (64)   216 proof (32)
 *
 * The proof is the HMAC-SHA-256 of all before it. Kind, both nodes, both epochs and the dialler's nonce are under it,
 * so an answer cannot be made from a question, nor used for another connection.
 */
#include "fabric/hello.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "fabric/bytes.h"

#define HELLO_PROVEN 216u

static const uint8_t hello_magic[8] = {'r', 'a', 'i', 'l', 'm', 'u', 'x', 1};

static bool hello_proof(const uint8_t *bytes, const uint8_t *token, uint8_t ret_proof[EVP_MAX_MD_SIZE]) {
        unsigned int size = 0;

        return HMAC(EVP_sha256(), token, FABRIC_TOKEN, bytes, HELLO_PROVEN, ret_proof, &size) && size == 32;
}

int hello_pack(const struct hello *hello, const uint8_t *token, uint8_t ret_bytes[HELLO_BYTES]) {
        uint8_t proof[EVP_MAX_MD_SIZE] = {0};
        uint8_t *p = ret_bytes;

        memset(p, 0, HELLO_BYTES);
        memcpy(p, hello_magic, 8);
        p[8] = hello->kind;
        p[9] = hello->class;
        p[10] = hello->status;
        p[11] = hello->missed;
        memcpy(p + 16, hello->from.id, 16);
        memcpy(p + 32, hello->to.id, 16);
        put_u64(p + 48, hello->from_epoch);
        put_u64(p + 56, hello->to_epoch);
        put_u64(p + 64, hello->number);
        memcpy(p + 72, hello->nonce, 16);
        memcpy(p + 88, hello->cluster, strnlen(hello->cluster, FABRIC_NAME_MAX));
        memcpy(p + 120, hello->rail, strnlen(hello->rail, FABRIC_NAME_MAX));
        if (token && !hello_proof(p, token, proof))
                return -EIO;
        memcpy(p + HELLO_PROVEN, proof, 32);
        return 0;
}

bool hello_begins(const uint8_t *bytes, size_t size) {
        return memcmp(bytes, hello_magic, size < sizeof(hello_magic) ? size : sizeof(hello_magic)) == 0;
}

int hello_unpack(const uint8_t bytes[HELLO_BYTES], struct hello *ret_hello) {
        struct hello hello = {.kind = bytes[8], .class = bytes[9], .status = bytes[10], .missed = bytes[11] != 0};

        if (memcmp(bytes, hello_magic, 8) != 0 || hello.kind < HELLO_DIAL || hello.kind > HELLO_ANSWER ||
            hello.class >= FABRIC_N_CLASSES || hello.status >= HELLO_STATUS_COUNT || bytes[88 + FABRIC_NAME_MAX] != 0 ||
            bytes[120 + FABRIC_NAME_MAX] != 0)
                return HELLO_E_MALFORMED;
        for (unsigned int i = 152; i < HELLO_PROVEN; i++)
                if (bytes[i])
                        return HELLO_E_MALFORMED;
        memcpy(hello.from.id, bytes + 16, 16);
        memcpy(hello.to.id, bytes + 32, 16);
        hello.from_epoch = get_u64(bytes + 48);
        hello.to_epoch = get_u64(bytes + 56);
        hello.number = get_u64(bytes + 64);
        memcpy(hello.nonce, bytes + 72, 16);
        memcpy(hello.cluster, bytes + 88, sizeof(hello.cluster));
        memcpy(hello.rail, bytes + 120, sizeof(hello.rail));
        *ret_hello = hello;
        return 0;
}

bool hello_proven(const uint8_t bytes[HELLO_BYTES], const uint8_t *token) {
        uint8_t proof[EVP_MAX_MD_SIZE];

        return hello_proof(bytes, token, proof) && CRYPTO_memcmp(proof, bytes + HELLO_PROVEN, 32) == 0;
}

const char *hello_status_name(enum hello_status status) {
        static const char *const names[HELLO_STATUS_COUNT] = {
                [HELLO_OK] = "accepted",
                [HELLO_E_CLUSTER] = "another cluster",
                [HELLO_E_NODE] = "another node lives here",
                [HELLO_E_PEER] = "it does not know us",
                [HELLO_E_EPOCH] = "another life of one of us",
                [HELLO_E_TOKEN] = "the token is wrong",
                [HELLO_E_RAIL] = "no such rail there",
                [HELLO_E_NUMBER] = "no such connection may be made",
        };

        return status < HELLO_STATUS_COUNT ? names[status] : "?";
}
