/* SPDX-License-Identifier: MIT */
#pragma once
/* A latched request: lives in the slot of its ring line until its status is published. */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "plan/plan.h"

struct bell;
struct buffer;
struct comm_rank;
struct request;

/* One send or receive of a request. */
struct p2p_entry {
        struct request *request;
        struct p2p_entry *next; /* among its pair's on this side, in sequence order; comm's mutex */
        struct buffer *buffer;
        uint32_t sequence; /* of the pair */
        uint32_t peer;
        bool sends;
        bool open; /* not final yet; comm's mutex */
};

struct request {
        struct bell *bell;
        struct request *prev, *next; /* its rank's requests; guarded by the comm's mutex */
        struct buffer *in_buffer;    /* collectives only */
        struct buffer *out_buffer;
        uint32_t ring_sequence;
        uint32_t sequence; /* of the comm; collectives only */
        uint32_t operation;
        bool p2p; /* SEND, RECV, GROUP */

        void *memory; /* copy of the argument block, and what is made from it */
        uint32_t argument_bytes;
        struct plan_vector vector; /* all_to_all_v; points into `memory` */

        struct gpu_request *gpu; /* n_gpu of them: &one, or in `memory`. Plans are filled in by the comm */
        uint32_t n_gpu;
        uint32_t n_run; /* the first n_run of them are for the backend */
        struct gpu_request one;

        /* sends and receives; guarded by the comm's mutex */
        struct p2p_entry *entries; /* n_gpu of them: &one_entry, or in `memory` */
        struct p2p_entry one_entry;
        uint32_t n_open;
        uint32_t result; /* status, if nothing else goes wrong */
        bool ran;        /* the backend has finished it */
        bool stall_reported;
        uint64_t first_ns;
};

static inline bool request_p2p(const struct request *request) {
        return request->p2p;
}
static inline uint64_t request_bytes(const struct request *request) {
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < request->n_gpu; i++)
                bytes += request->gpu[i].shape.count * request->gpu[i].shape.element_bytes;
        for (uint32_t i = 0; request->vector.send_count && i < request->argument_bytes / (4 * sizeof(uint64_t)); i++)
                bytes += request->vector.send_count[i] * request->one.shape.element_bytes;
        return bytes;
}

/* Takes a reference on every buffer that the request names. */
void request_hold(struct request *request);
/* Gives the references and the memory back. */
void request_release(struct request *request);
