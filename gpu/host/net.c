/* SPDX-License-Identifier: MIT */
/*
 * Channels between nodes
 *
 * The staging of a communicator over several nodes exists once on each node, with the same offsets, and a channel
 * between ranks of two nodes lies in both. Its source works on the copy of its node, its destination on that of the
 * other, and each does there what it would do to a rank beside it: writes the slot and its flag, or raises `released`.
 * It then posts what it did, and the fabric does the same to the other copy: data, line, flag, in this order; or the
 * credit. What each end reads was therefore written by its node's fabric instead of by the other end, later, and
 * nothing else is different. In particular the source may overwrite its copy of a slot when the credit has come: that
 * was given after the chunk had been carried, so nobody reads the copy any more. Chunks of different slots may overtake
 * one another, since a destination looks at the one slot that is next; and so may credits, since the later count
 * contains the earlier one.
 *
 * The queue. A chunk is posted when its slot was free, which it is again only after its credit has come, and a credit
 * for a chunk that came after the former credit of its slot had gone. So no more than `slots` of each stand in the
 * queue for a channel between this node and others, and these are at most floor(n/2) * ceil(n/2) in each direction and
 * region.
 *
 * What both sides called. Ranks of one node are compared by the executor before anything is told to anybody. Between
 * nodes each chunk says what call it belongs to: 32 bits mixed from the operation, algorithm, type, reduction, count,
 * root and sequence, beside the flag. Who takes a chunk compares them with its own call before it uses anything of it.
 * Different calls that look alike by chance, one in 2^32, are beyond that. Calls that differ so that no chunk passes
 * (none is sent for a count of 0) are not noticed before the next chunk on that channel; until then the side that
 * expects one waits, and no wrong data is seen.
 *
 * Sends and receives. On one node the receiver reads the sender's memory where it lies. Between nodes the data goes
 * through the channel, in a region whose slots are as large as those of collectives (channel.h): PUSH and COPY, and a
 * signal back when the receiver has everything, as on one node: no send is done before its receive. Each pair of ranks
 * uses either the one way or the other, always, so its channels carry what their ends expect.
 */
#include "gpu/host/net.h"

#include <errno.h>
#include <unistd.h>

#include "ring/ring.h"

int host_net_size(uint32_t n_ranks, const struct plan_geometry *geometry, uint32_t *ret_capacity,
                  uint64_t *ret_memory_bytes) {
        uint64_t bound, capacity = 1;
        size_t size;
        int r;

        r = channel_set_net_bytes(n_ranks, geometry, &size);
        if (r < 0)
                return r;
        bound = UINT64_C(2) * PLAN_REGIONS_MAX * (n_ranks / 2) * (n_ranks - n_ranks / 2) *
                plan_channel_slots(geometry, n_ranks, false);
        while (capacity < bound)
                capacity *= 2;
        if (capacity > UINT32_MAX / 2 || net_area_bytes((uint32_t)capacity, size) == 0)
                return -EOVERFLOW;
        *ret_capacity = (uint32_t)capacity;
        *ret_memory_bytes = size;
        return 0;
}

/* ---- sends and receives ------------------------------------------------------------------------------------------ */
enum { SEND_PUSH, SEND_COPY, SEND_SIGNAL, SEND_WAIT, SEND_PHASES };

static void send_plan(uint32_t n_ranks, struct plan *ret_plan) {
        const uint32_t data = CHANNEL_REGION_SENDS, back = data + 1;
        struct plan plan = {.operation = RING_OP_SEND,
                            .algorithm = PLAN_DIRECT,
                            .n_ranks = n_ranks,
                            .n_shards = n_ranks,
                            .n_regions = back + 1,
                            .n_phases = SEND_PHASES};

        plan.phases[SEND_PUSH] = (struct plan_phase){.kind = PLAN_PUSH,
                                                     .who = PLAN_WHO_ROOT,
                                                     .peers = PLAN_PEERS_PEER,
                                                     .in_range = PLAN_RANGE_WHOLE,
                                                     .region_out = data,
                                                     .after = -1};
        plan.phases[SEND_COPY] = (struct plan_phase){.kind = PLAN_COPY,
                                                     .who = PLAN_WHO_PEER,
                                                     .peers = PLAN_PEERS_ROOT,
                                                     .out_range = PLAN_RANGE_WHOLE,
                                                     .region_in = data,
                                                     .after = -1};
        plan.phases[SEND_SIGNAL] = (struct plan_phase){.kind = PLAN_SIGNAL,
                                                       .who = PLAN_WHO_PEER,
                                                       .peers = PLAN_PEERS_ROOT,
                                                       .region_out = back,
                                                       .after = SEND_COPY,
                                                       .after_whole = 1};
        plan.phases[SEND_WAIT] = (struct plan_phase){
                .kind = PLAN_WAIT, .who = PLAN_WHO_ROOT, .peers = PLAN_PEERS_PEER, .region_in = back, .after = -1};
        *ret_plan = plan;
}

int host_net_init(struct host_net *net, uint32_t n_ranks, const struct plan_geometry *geometry,
                  const struct gpu_net *where) {
        uint64_t memory_bytes;
        uint32_t capacity;
        int r;

        r = host_net_size(n_ranks, geometry, &capacity, &memory_bytes);
        if (r < 0)
                return r;
        if (where->area->capacity != capacity || where->area->memory_bytes != memory_bytes ||
            where->area->memory_offset % CHANNEL_LINE != 0)
                return -EINVAL;
        *net = (struct host_net){.area = where->area, .doorbell_fd = where->doorbell_fd};
        for (uint32_t rank = 0; rank < n_ranks; rank++)
                if (where->node[rank] != where->own)
                        net->away |= UINT64_C(1) << rank;
        send_plan(n_ranks, &net->send_plan);
        return 0;
}

/* ---- what both sides called -------------------------------------------------------------------------------------- */
static uint64_t mix(uint64_t h, uint64_t word) {
        h = (h ^ word) * UINT64_C(0xd6e8feb86659fd93);
        return h ^ h >> 32;
}

uint32_t host_net_signature(const struct plan *plan, const struct gpu_request *request, uint64_t count) {
        uint64_t h =
                mix(0, (uint64_t)plan->operation << 32 | plan->algorithm << 16 | request->type << 8 | request->redop);

        h = mix(h, (uint64_t)request->shape.root << 32 | request->sequence);
        return (uint32_t)mix(h, count);
}

/* ---- asking the fabric ------------------------------------------------------------------------------------------- */
static uint64_t area_offset(const struct host_net *net, const struct channel_set *set, const void *place) {
        return net->area->memory_offset + (uint64_t)((const unsigned char *)place - set->memory);
}

void host_net_push(const struct host_net *net, const struct channel_set *set, struct channel_id id,
                   struct channel_end *end, uint32_t signature, const void *data, uint64_t data_bytes) {
        struct channel_slot *slot = channel_slot(set, id, end->slot);
        struct net_descriptor what = {
                .kind = NET_CHUNK,
                .source = (uint8_t)id.source,
                .destination = (uint8_t)id.destination,
                .data_bytes = (uint32_t)data_bytes,
                .line_offset = area_offset(net, set, slot),
                .data_offset = data_bytes > 0 ? area_offset(net, set, data) : 0,
        };

        slot->signature = signature;
        channel_push(set, id, end);
        what.value = end->count;
        net_area_post(net->area, &what);
}

void host_net_release(const struct host_net *net, const struct channel_set *set, struct channel_id id,
                      struct channel_end *end) {
        struct net_descriptor what = {
                .kind = NET_CREDIT,
                .source = (uint8_t)id.destination, /* of the message */
                .destination = (uint8_t)id.source,
                .line_offset = area_offset(net, set, channel_credit(set, id)),
        };

        channel_release(set, id, end);
        what.value = end->count;
        net_area_post(net->area, &what);
}

bool host_net_wake(const struct host_net *net) {
        const uint64_t one = 1;

        if (!net_area_wake_fabric(net->area))
                return false;
        if (net->doorbell_fd >= 0)
                (void)!write(net->doorbell_fd, &one, sizeof(one)); /* full means that it will wake anyway */
        return true;
}
