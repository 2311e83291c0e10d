/* SPDX-License-Identifier: MIT */
#pragma once
/* One call on all ranks of a communicator: its buffers, the call, and whether it has done what it must. See exchange.c.
 */
#include "tests/nccl/cases.h"
#include "tests/nccl/world.h"
#include "tools/perf/pattern.h"

struct exchange_buffer {
        char *there; /* what the call gets */
        char *image; /* what must be there */
        char *seen;  /* what is there, if the host cannot look itself */
        size_t capacity, used;
};

struct exchange {
        struct team *team;
        uint32_t n_ranks, n_members; /* of the communicator; whom this team drives */
        struct member member[WORLD_RANKS_MAX];
        struct call_case c;
        uint64_t iteration;
        size_t unit;
        struct {
                struct exchange_buffer in, out; /* in place only out */
                size_t in_at, out_at;           /* bytes */
                size_t n_in, n_out;             /* elements */
                void *factor;                   /* of a pre-multiplied sum, where calls find it */
                size_t send_count[WORLD_RANKS_MAX], send_at[WORLD_RANKS_MAX];
                size_t recv_count[WORLD_RANKS_MAX], recv_at[WORLD_RANKS_MAX];
        } side[WORLD_RANKS_MAX];
        char *packed; /* data of the pattern on its way to an image */
        size_t packed_capacity;
        struct pattern pattern;
};

/* On communicators of the team's members, or of some of them. Errors are noted with the team's case. */
struct exchange *exchange_new(struct team *team);
struct exchange *exchange_new_on(struct team *team, uint32_t n_ranks, const struct member *members, uint32_t n_members);
void exchange_free(struct exchange *x);

/* Fills the inputs with what follows from rank, position and iteration, and poisons all else. */
bool exchange_prepare(struct exchange *x, const struct call_case *c, uint64_t iteration);
/* Makes the call, for all members. */
bool exchange_issue(struct exchange *x);
/* Until the streams have come past it. */
static inline bool exchange_wait(const struct exchange *x) {
        return team_wait_for(x->team, x->member, x->n_members);
}
/* Has nothing been written yet? For calls out of place in host memory. */
bool exchange_is_untouched(struct exchange *x);
/* Compares every byte of all buffers, when the streams have come past the call. */
bool exchange_verify(struct exchange *x);
/* The whole of it. */
bool exchange_run(struct exchange *x, const struct call_case *c, uint64_t iteration);
/* Does the library have this call? */
bool exchange_is_there(const struct nccl_api *api, enum call_op op);
/* Without a check of the result: for calls that are to fail. Returns an ncclResult. */
int exchange_call(const struct exchange *x, uint32_t member);
