/* SPDX-License-Identifier: MIT */
/*
 * Exchange
 *
 * Requests from some size on may do without the executors: each rank's own kernel, on its caller's stream, pushes data
 * into memory of the others and takes what they push. What that takes of the GPU is the caller's, and it bypasses what
 * executors share out among all; so it is the operator who allows it (gpu.exchange), and railmuxd that says where. The
 * ranks are told in CommReply, as bytes of the larger of a rank's input and output: exchange_min .. exchange_max, both
 * ends included, or 0, 0 for none.
 *
 * A rank that took another way than the others would wait for them in vain. So all are told the same, whenever they
 * ask: it is decided when the last one has joined, before anybody is answered, it stands in the communicator's record
 * for railmuxd's successors, and a configuration that is read again counts for communicators that are made from then
 * on. A communicator that comes of a split is one like any other here.
 *
 * Ranks say which version of exchange their library's kernels are, and areas and rounds of different ones do not go
 * together. A rank that says none has an older library, or a program whose kernels make calls by themselves, which only
 * executors can answer. Either way the communicator has no exchange.
 *
 * Where: on GPUs, with all ranks on this node, at least two of them, since one has nobody to exchange with, and each on
 * a GPU of its own, since kernels that wait for each other must all be on a device at the same time. GPUs that share a
 * device (more gpu.hip_gpus than devices) count as GPUs of their own, as they do for everything else.
 */
#include "daemon/exchange.h"

#include "daemon/comm.h"
#include "daemon/config.h"
#include "daemon/manager.h"
#include "util/log.h"

/* Beyond, it does not matter who moves the data; a communicator's record has 32 bits for it. */
#define EXCHANGE_MAX (UINT64_C(1) << 30)

static bool exchange_possible(const struct comm *comm) {
        _Static_assert(MANAGER_LINKS_MAX <= 64, "a bit for each GPU");
        uint64_t gpus = 0;

        if (!comm->manager->on_device || comm_spans(comm) || comm->n_ranks < 2 || comm->n_ranks > EXCHANGE_RANKS_MAX)
                return false;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const uint64_t gpu = UINT64_C(1) << comm->members[r].gpu;

                if (gpus & gpu)
                        return false;
                gpus |= gpu;
        }
        return true;
}

static bool exchange_agreed(const struct comm *comm) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].exchange && comm->members[r].exchange == comm->members[0].exchange)
                        continue;
                comm_log(comm, LOG_LEVEL_DEBUG, "no exchange: its ranks' libraries do not have or want it alike");
                return false;
        }
        return true;
}

void exchange_settle(struct comm *comm) {
        const uint64_t from = comm->manager->config->exchange_bytes;

        if (!from || !exchange_possible(comm) || !exchange_agreed(comm))
                return;
        comm->exchange_min = from;
        comm->exchange_max = EXCHANGE_MAX;
}
