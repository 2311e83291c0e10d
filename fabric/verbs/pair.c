/* SPDX-License-Identifier: MIT */
/*
 *   0 "rmx-pair"   8 u32 version   12 u8 answer, u8 mtu, u16 lid   16 gid (16)   32 u32 queue_pair   36 u32 psn
 *  40 u32 slots   44 u32 slot_bytes   48 u64 ring_address   56 u32 ring_rkey   60 u32 0   64 nonce (16)   80 u64 number
 *  88 proof (32): HMAC-SHA-256 of all before it
 */
#include "fabric/verbs/pair.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "fabric/bytes.h"

#define PAIR_VERSION 1u
#define PAIR_PROVEN  88u

static const uint8_t pair_magic[8] = {'r', 'm', 'x', '-', 'p', 'a', 'i', 'r'};

static bool pair_proof(const uint8_t *bytes, const uint8_t *token, uint8_t ret_proof[EVP_MAX_MD_SIZE]) {
        unsigned int size = 0;

        return HMAC(EVP_sha256(), token, FABRIC_TOKEN, bytes, PAIR_PROVEN, ret_proof, &size) && size == 32;
}

int pair_pack(const struct pair *pair, const uint8_t nonce[16], uint64_t number, bool answer, const uint8_t *token,
              uint8_t ret_bytes[PAIR_BYTES]) {
        uint8_t proof[EVP_MAX_MD_SIZE];
        uint8_t *p = ret_bytes;

        memset(p, 0, PAIR_BYTES);
        memcpy(p, pair_magic, 8);
        put_u32(p + 8, PAIR_VERSION);
        p[12] = answer;
        p[13] = pair->mtu;
        p[14] = (uint8_t)pair->lid;
        p[15] = (uint8_t)(pair->lid >> 8);
        memcpy(p + 16, pair->gid, 16);
        put_u32(p + 32, pair->queue_pair);
        put_u32(p + 36, pair->psn);
        put_u32(p + 40, pair->slots);
        put_u32(p + 44, pair->slot_bytes);
        put_u64(p + 48, pair->ring_address);
        put_u32(p + 56, pair->ring_rkey);
        memcpy(p + 64, nonce, 16);
        put_u64(p + 80, number);
        if (!pair_proof(p, token, proof))
                return -EIO;
        memcpy(p + PAIR_PROVEN, proof, 32);
        return 0;
}

int pair_unpack(const uint8_t bytes[PAIR_BYTES], const uint8_t nonce[16], uint64_t number, bool answer,
                const uint8_t *token, struct pair *ret_pair) {
        struct pair pair = {.mtu = bytes[13], .lid = (uint16_t)(bytes[14] | bytes[15] << 8)};
        uint8_t proof[EVP_MAX_MD_SIZE];

        if (memcmp(bytes, pair_magic, 8) != 0 || get_u32(bytes + 8) != PAIR_VERSION || bytes[12] != answer ||
            get_u32(bytes + 60) != 0)
                return PAIR_E_MALFORMED;
        memcpy(pair.gid, bytes + 16, 16);
        pair.queue_pair = get_u32(bytes + 32);
        pair.psn = get_u32(bytes + 36);
        pair.slots = get_u32(bytes + 40);
        pair.slot_bytes = get_u32(bytes + 44);
        pair.ring_address = get_u64(bytes + 48);
        pair.ring_rkey = get_u32(bytes + 56);
        if (pair.queue_pair > 0xffffff || pair.psn > 0xffffff)
                return PAIR_E_MALFORMED;
        if (!pair_proof(bytes, token, proof) || CRYPTO_memcmp(proof, bytes + PAIR_PROVEN, 32) != 0 ||
            memcmp(bytes + 64, nonce, 16) != 0 || get_u64(bytes + 80) != number)
                return PAIR_E_TOKEN;
        *ret_pair = pair;
        return 0;
}
