/* SPDX-License-Identifier: MIT */
#pragma once
/* Legal lines with argument blocks, sends and receives of a rig's two ranks, for cases that spoil them. */
#include "tests/hostile/attack.h"

enum legal_what {
        LEGAL_VECTOR, /* all_to_all_v */
        LEGAL_PREMUL, /* a pre-multiplied sum */
        LEGAL_PAIR,   /* rank 0 sends, rank 1 receives */
        LEGAL_GROUP,  /* everybody to everybody, itself included */
        LEGAL_COUNT,
};

#define LEGAL_ELEMENTS_MAX 1000u /* makes pieces from staged ones to those that are copied where they lie */
#define LEGAL_GROUP_SIZE   4u    /* entries of a LEGAL_GROUP */

struct legal {
        struct rig rig;
        uint32_t pair[2][2][2]; /* sequences of the pairs' last good entries: [receives][rank][peer] */
};

bool legal_open(struct legal *legal, struct attack *attack);
/* A new comm. */
bool legal_comm(struct legal *legal);
/* The memory of an argument block: 64-bit words, that a thread may change meanwhile. */
_Atomic uint64_t *legal_block(struct legal *legal, uint32_t block);
/* The next entry of a pair. */
struct ring_group_entry legal_entry(struct legal *legal, uint32_t rank, bool sends, uint32_t peer, uint64_t count,
                                    uint64_t offset);
/* Writes the entries to the block; the line that names them. */
struct ring_request legal_group(struct legal *legal, uint32_t rank, uint32_t block,
                                const struct ring_group_entry *entries, uint32_t n);
/* A line of each rank, its block written, of pieces of about `elements`. Sequences are counted on. */
void legal_round(struct legal *legal, enum legal_what what, uint32_t elements, const uint32_t block[2],
                 struct ring_request ret_line[2]);
/* Rings both lines: rank `first` first. */
bool legal_put(struct legal *legal, uint32_t first, const struct ring_request line[2], uint32_t ret_sequence[2]);
/* A round of every sort is served, each rank's memory as it has to be. */
bool legal_works(struct legal *legal);
