/* SPDX-License-Identifier: MIT */
#pragma once
/* The 128 bytes by which ranks find each other. Stateless: a keyed hash proves that this node made it for this tenant.
 */
#include <stdint.h>

#define COMM_ID_BYTES      128u
#define COMM_ID_KEY_BYTES  32u
#define COMM_ID_NODE_BYTES 16u
#define COMM_ID_VERSION    1u

enum {
        _COMM_ID_E_SUCCESS,
        COMM_ID_E_FORGED, /* not made with this key for this tenant */
};

/* 0 or -errno. */
int comm_id_create(const uint8_t key[COMM_ID_KEY_BYTES], const uint8_t node[COMM_ID_NODE_BYTES], const char *tenant,
                   uint8_t ret_id[COMM_ID_BYTES]);
/* The id of a communicator's `number`: always the same one. 0 or -errno. */
int comm_id_derive(const uint8_t key[COMM_ID_KEY_BYTES], const uint8_t node[COMM_ID_NODE_BYTES], const char *tenant,
                   uint64_t comm, uint64_t number, uint8_t ret_id[COMM_ID_BYTES]);
/* 0, COMM_ID_E_FORGED or -errno. */
int comm_id_check(const uint8_t key[COMM_ID_KEY_BYTES], const char *tenant, const uint8_t id[COMM_ID_BYTES]);
