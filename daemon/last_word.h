/* SPDX-License-Identifier: MIT */
#pragma once
/* What daemons of other nodes are told when they are back: that a communicator whose id they made has failed here while
 * it was made. Owned by the cluster, loop thread. See last_word.c. */
#include "daemon/comm_id.h"
#include "daemon/peer.h"
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#define LAST_WORD_SECONDS  30
#define LAST_WORD_TEXT_MAX 160u
#define LAST_WORDS_TENANT  64u /* of one tenant */
#define LAST_WORDS_MAX     1024u

struct last_word {
        struct last_word *next, *prev; /* words->first: the one that goes first */
        struct peer *peer;             /* held: it is dialled */
        uint64_t until_ns, attempt;
        char tenant[PEER_NAME_MAX];
        uint8_t id[COMM_ID_BYTES];
        uint32_t rank, n_ranks, gpu, code;
        bool device;
        char text[LAST_WORD_TEXT_MAX];
};

struct last_words {
        struct event *timer;
        struct last_word *first; /* utlist */
};

/* 0 or -ENOMEM. */
int last_words_init(struct last_words *words, struct event_base *base);
/* All zero is fine. */
void last_words_deinit(struct last_words *words);

/* The communicator of which `join` brings a rank has failed. The peer is not connected; it is dialled for
 * LAST_WORD_SECONDS from now on, and told when it is. In the place of what it was to be told of the same id. */
void last_word_keep(struct last_words *words, struct peer *peer, const Railmux__Peer__Join *join, uint32_t code,
                    const char *text);
/* It is connected: says all that is for it. */
void last_words_say(struct last_words *words, struct peer *peer);
/* What is said of `peer` belongs to `into` now (struct peer_events). */
void last_words_merged(struct last_words *words, const struct peer *peer, struct peer *into);
