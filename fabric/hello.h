/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The first HELLO_BYTES of each direction of a connection: who, to whom, and a proof that both know the pair's token,
 * which itself is never sent. Little endian, fixed size.
 */
#include "fabric/fabric.h"

#define HELLO_BYTES 248u

enum hello_kind {
        HELLO_DIAL = 1, /* from the lower node id */
        HELLO_KNOCK,    /* from the higher one: there is something to carry, please dial. The connection ends here */
        HELLO_ANSWER,
};

enum hello_status {
        HELLO_OK,
        HELLO_E_CLUSTER,
        HELLO_E_NODE,  /* meant for somebody else */
        HELLO_E_PEER,  /* not a peer (yet) */
        HELLO_E_EPOCH, /* of either end */
        HELLO_E_TOKEN,
        HELLO_E_RAIL,   /* no rail of that name on this address, or set down */
        HELLO_E_NUMBER, /* a connection of that number was there, or the wrong end dials */
        HELLO_STATUS_COUNT,
};

enum { _HELLO_E_SUCCESS, HELLO_E_MALFORMED };

struct hello {
        uint8_t kind, class, status;
        bool missed; /* a knock: who waits there has no other way, so a hold-down is not to be waited for */
        struct fabric_node from, to;
        uint64_t from_epoch, to_epoch;
        uint64_t number; /* of the connection; the dialler counts. A knock: the last one that it knows to be dead */
        uint8_t nonce[16];
        char cluster[FABRIC_NAME_MAX + 1];
        char rail[FABRIC_NAME_MAX + 1];
};

/* token NULL: without proof, for refusals. -EIO if the library fails. */
int hello_pack(const struct hello *hello, const uint8_t *token, uint8_t ret_bytes[HELLO_BYTES]);
/* Can these first bytes (at least one) become a hello? */
bool hello_begins(const uint8_t *bytes, size_t size);
/* Zero-terminated names, known kind, class and status. */
int hello_unpack(const uint8_t bytes[HELLO_BYTES], struct hello *ret_hello);
/* Does the proof in the bytes fit the token? */
bool hello_proven(const uint8_t bytes[HELLO_BYTES], const uint8_t *token);
const char *hello_status_name(enum hello_status status);
