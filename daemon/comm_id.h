/* SPDX-License-Identifier: MIT */
#pragma once
/* The 128 bytes by which ranks find each other. Stateless: a keyed hash proves that this node made it for this tenant.
 */
#include <stdbool.h>
#include <stdint.h>

#define COMM_ID_BYTES         128u
#define COMM_ID_KEY_BYTES     32u
#define COMM_ID_NODE_BYTES    16u
#define COMM_ID_VERSION       1u
#define COMM_ID_VERSION_BOOT  2u /* of one start of the daemon */
#define COMM_ID_ADDRESS_BYTES 40u

enum {
        _COMM_ID_E_SUCCESS,
        COMM_ID_E_FORGED,  /* not made with this key for this tenant */
        COMM_ID_E_NOWHERE, /* it has no address */
};

/* Who makes ids. */
struct comm_id_maker {
        const uint8_t *key;  /* COMM_ID_KEY_BYTES */
        const uint8_t *node; /* COMM_ID_NODE_BYTES */
        const char *address; /* where other nodes reach this one, "host:port"; "": nowhere */
        uint64_t boot;       /* differs for each start of the daemon; of comm_id_derive_shared alone */
};

/* 0 or -errno. -ENAMETOOLONG: the address has more than COMM_ID_ADDRESS_BYTES - 1 characters. */
int comm_id_create(const struct comm_id_maker *maker, const char *tenant, uint8_t ret_id[COMM_ID_BYTES]);
/* The id of a communicator's `number`: always the same one. 0 or -errno. */
int comm_id_derive(const struct comm_id_maker *maker, const char *tenant, uint64_t comm, uint64_t number,
                   uint8_t ret_id[COMM_ID_BYTES]);
/* The same for a communicator over several nodes, which know it by its key. Good for as long as the daemon runs that
 * made it: when that has been lost, the others make another one. */
int comm_id_derive_shared(const struct comm_id_maker *maker, const char *tenant, uint64_t key, uint64_t number,
                          uint8_t ret_id[COMM_ID_BYTES]);
/* 0, COMM_ID_E_FORGED or -errno. */
int comm_id_check(const uint8_t key[COMM_ID_KEY_BYTES], const char *tenant, const uint8_t id[COMM_ID_BYTES]);
/* Of one that has been checked: is it of another start of the daemon, and over with that? */
bool comm_id_stale(const uint8_t id[COMM_ID_BYTES], uint64_t boot);
#define COMM_ID_STALE_TEXT "the daemon that made the communicator id was started anew since; rmx_comm_id gives another"
/* Does it say that this node made it? */
bool comm_id_of(const uint8_t id[COMM_ID_BYTES], const uint8_t node[COMM_ID_NODE_BYTES]);
/* The address of the node that made it. 0, or COMM_ID_E_NOWHERE. What an unchecked id says may be anybody's word. */
int comm_id_address(const uint8_t id[COMM_ID_BYTES], char ret_address[COMM_ID_ADDRESS_BYTES]);
