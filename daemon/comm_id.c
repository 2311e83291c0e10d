/* SPDX-License-Identifier: MIT */
/*
 * Comm ids. Layout of the 128 bytes:
 *   0   version (u32, little endian), 1 or 2, and four zero bytes
 *   8   node id (16)
 *   24  nonce (32): random, or for a derived id a keyed hash of the communicator and a number
 *       version 2: 24 bytes of that, and the boot number of the daemon (u64, little endian)
 *   56  address of the node's daemon (40), "host:port" and zeros; all zero: other nodes cannot reach it
 *   96  HMAC-SHA256 (32) over bytes 0..95 and the tenant name, keyed with a secret of the node's state memfd
 * Nothing is remembered about an id: whoever presents a valid one of its tenant may join. The key lives as long as the
 * state memfd, so ids survive a restart of the daemon; but for those that ranks on several nodes derive (version 2).
 * For these the daemon was lost with its restart, and the next node makes the id. Who had got the earlier one before
 * that would wait with it for others who do not come, so it is told that it is over.
 */
#include "daemon/comm_id.h"

#include <endian.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define COMM_ID_NODE        8u
#define COMM_ID_NONCE       24u
#define COMM_ID_NONCE_BYTES 32u
#define COMM_ID_BOOT        48u
#define COMM_ID_ADDRESS     56u
#define COMM_ID_MAC         96u
#define COMM_ID_MAC_BYTES   32u
#define COMM_ID_TENANT_MAX  64u

static int comm_id_mac(const uint8_t key[COMM_ID_KEY_BYTES], const char *tenant, const uint8_t *id,
                       uint8_t ret_mac[COMM_ID_MAC_BYTES]) {
        uint8_t text[COMM_ID_MAC + COMM_ID_TENANT_MAX] = {0};
        unsigned int size = 0;
        size_t n = strnlen(tenant, COMM_ID_TENANT_MAX);

        memcpy(text, id, COMM_ID_MAC);
        memcpy(text + COMM_ID_MAC, tenant, n);
        if (!HMAC(EVP_sha256(), key, COMM_ID_KEY_BYTES, text, sizeof(text), ret_mac, &size) ||
            size != COMM_ID_MAC_BYTES)
                return -EIO;
        return 0;
}

/* Completes an id that has its nonce. */
static int comm_id_seal(const struct comm_id_maker *maker, const char *tenant, uint8_t id[COMM_ID_BYTES],
                        uint8_t ret_id[COMM_ID_BYTES]) {
        size_t n = strlen(maker->address);
        int r;

        if (n >= COMM_ID_ADDRESS_BYTES)
                return -ENAMETOOLONG;
        memcpy(id + COMM_ID_NODE, maker->node, COMM_ID_NODE_BYTES);
        memcpy(id + COMM_ID_ADDRESS, maker->address, n);
        r = comm_id_mac(maker->key, tenant, id, id + COMM_ID_MAC);
        if (r < 0)
                return r;
        memcpy(ret_id, id, COMM_ID_BYTES);
        return 0;
}

int comm_id_create(const struct comm_id_maker *maker, const char *tenant, uint8_t ret_id[COMM_ID_BYTES]) {
        uint8_t id[COMM_ID_BYTES] = {COMM_ID_VERSION};

        if (getrandom(id + COMM_ID_NONCE, COMM_ID_NONCE_BYTES, 0) != (ssize_t)COMM_ID_NONCE_BYTES)
                return -EIO;
        return comm_id_seal(maker, tenant, id, ret_id);
}

/* purpose: the numbers of the one kind are not those of the other. */
static int comm_id_hash(const struct comm_id_maker *maker, const char *purpose, uint64_t comm, uint64_t number,
                        uint8_t ret_nonce[COMM_ID_NONCE_BYTES]) {
        struct {
                char purpose[16];
                uint64_t comm, number;
        } text = {"", comm, number};
        unsigned int size = 0;

        snprintf(text.purpose, sizeof(text.purpose), "%s", purpose);
        if (!HMAC(EVP_sha256(), maker->key, COMM_ID_KEY_BYTES, (const uint8_t *)&text, sizeof(text), ret_nonce,
                  &size) ||
            size != COMM_ID_NONCE_BYTES)
                return -EIO;
        return 0;
}

int comm_id_derive(const struct comm_id_maker *maker, const char *tenant, uint64_t comm, uint64_t number,
                   uint8_t ret_id[COMM_ID_BYTES]) {
        uint8_t id[COMM_ID_BYTES] = {COMM_ID_VERSION};
        int r = comm_id_hash(maker, "derived comm id", comm, number, id + COMM_ID_NONCE);

        return r < 0 ? r : comm_id_seal(maker, tenant, id, ret_id);
}

int comm_id_derive_shared(const struct comm_id_maker *maker, const char *tenant, uint64_t key, uint64_t number,
                          uint8_t ret_id[COMM_ID_BYTES]) {
        uint8_t id[COMM_ID_BYTES] = {COMM_ID_VERSION_BOOT};
        uint64_t boot = htole64(maker->boot);
        int r = comm_id_hash(maker, "shared comm id", key, number, id + COMM_ID_NONCE);

        memcpy(id + COMM_ID_BOOT, &boot, sizeof(boot));
        return r < 0 ? r : comm_id_seal(maker, tenant, id, ret_id);
}

bool comm_id_stale(const uint8_t id[COMM_ID_BYTES], uint64_t boot) {
        uint64_t of;

        memcpy(&of, id + COMM_ID_BOOT, sizeof(of));
        return id[0] == COMM_ID_VERSION_BOOT && le64toh(of) != boot;
}

bool comm_id_of(const uint8_t id[COMM_ID_BYTES], const uint8_t node[COMM_ID_NODE_BYTES]) {
        return memcmp(id + COMM_ID_NODE, node, COMM_ID_NODE_BYTES) == 0;
}

int comm_id_address(const uint8_t id[COMM_ID_BYTES], char ret_address[COMM_ID_ADDRESS_BYTES]) {
        if (id[COMM_ID_ADDRESS] == 0 || id[COMM_ID_ADDRESS + COMM_ID_ADDRESS_BYTES - 1] != 0)
                return COMM_ID_E_NOWHERE;
        memcpy(ret_address, id + COMM_ID_ADDRESS, COMM_ID_ADDRESS_BYTES);
        return 0;
}

int comm_id_check(const uint8_t key[COMM_ID_KEY_BYTES], const char *tenant, const uint8_t id[COMM_ID_BYTES]) {
        uint8_t mac[COMM_ID_MAC_BYTES];
        int r;

        r = comm_id_mac(key, tenant, id, mac);
        if (r < 0)
                return r;
        /* One comparison for everything, in constant time: a forger learns nothing about which part was wrong. */
        if (CRYPTO_memcmp(mac, id + COMM_ID_MAC, COMM_ID_MAC_BYTES) != 0 || id[0] < COMM_ID_VERSION ||
            id[0] > COMM_ID_VERSION_BOOT)
                return COMM_ID_E_FORGED;
        return 0;
}
