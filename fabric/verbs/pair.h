/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What the ends of an RDMA connection tell each other over its socket after the hello: each PAIR_BYTES, then, when its
 * queue pair can receive, PAIR_READY. Under TLS nobody else can say it; on plain sockets the proof says who did.
 */
#include "fabric/hello.h"

#define PAIR_BYTES 120u
#define PAIR_READY 0x52u

struct pair {
        uint8_t gid[16];
        uint32_t queue_pair, psn; /* 24 bits each */
        uint16_t lid;
        uint8_t mtu; /* enum ibv_mtu */
        uint32_t slots, slot_bytes;
        uint64_t ring_address; /* where the other end writes frames to */
        uint32_t ring_rkey;
};

enum {
        _PAIR_E_SUCCESS,
        PAIR_E_MALFORMED,
        PAIR_E_TOKEN, /* the proof is wrong */
};

/* nonce, number: of the connection. answer: said by the end that was dialled. -EIO if the library fails. */
int pair_pack(const struct pair *pair, const uint8_t nonce[16], uint64_t number, bool answer, const uint8_t *token,
              uint8_t ret_bytes[PAIR_BYTES]);
int pair_unpack(const uint8_t bytes[PAIR_BYTES], const uint8_t nonce[16], uint64_t number, bool answer,
                const uint8_t *token, struct pair *ret_pair);
