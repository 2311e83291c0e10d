/* SPDX-License-Identifier: MIT */
#pragma once
/* Which executors have been sent an object, and which have acknowledged it. One bit per executor_link->index. */
#include <stdbool.h>
#include <stdint.h>

struct attachment {
        uint64_t sent;
        uint64_t acked;
        uint64_t known; /* may have it at all: this process sent it, or a predecessor may have */
};

static inline bool attachment_complete(const struct attachment *attachment, uint64_t needed) {
        return (attachment->acked & needed) == needed;
}
static inline void attachment_forget(struct attachment *attachment, uint64_t mask) {
        attachment->sent &= ~mask;
        attachment->acked &= ~mask;
}
