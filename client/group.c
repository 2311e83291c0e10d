/* SPDX-License-Identifier: MIT */
/*
 * A group is a list of checked operations of one thread. Its end makes items of it, per communicator in the order in
 * which they were first used: a line for each collective, then one line for all sends and receives. All items are
 * published together or not at all (session_ring.c), so that nothing has to be taken back.
 *
 * Sends and receives of one communicator are one request because a rank's requests run one after another: two ranks
 * that exchange data would wait for each other's receive. Those among them in ordinary memory share one region, each in
 * a place of its own; receives are copied out when the request is done.
 *
 * Calls on GPUs go another way: device_group.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bounce.h"
#include "client/comm.h"
#include "client/device_group.h"
#include "client/error.h"
#include "client/group.h"
#include "client/operation.h"
#include "client/request.h"
#include "client/session.h"
#include "util/type.h"

#define PLACE_ALIGN 64u /* of a place in a region: a cache line, so no two entries share one */

struct group {
        uint32_t depth;
        uint32_t n_operations;
        uint32_t capacity;
        struct operation *operations;
        int spoiled; /* RMX_* of the first call that failed, and its text */
        char text[ERROR_TEXT_BYTES];
};

static _Thread_local struct group group;

bool group_is_open(void) {
        return group.depth != 0;
}

int group_refuse(const char *what) {
        return group.depth ? error_set(RMX_E_INVALID, "%s: not possible inside a group; call rmx_group_end first", what)
                           : RMX_OK;
}

bool group_has(const struct rmx_comm *comm) {
        for (uint32_t i = 0; i < group.n_operations; i++)
                if (group.operations[i].comm == comm)
                        return true;
        return false;
}

int group_spoil(int code) {
        if (!group.spoiled) {
                group.spoiled = code;
                snprintf(group.text, sizeof(group.text), "%s", rmx_last_error());
        }
        return code;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */
static int group_out_of_memory(const char *what) {
        return error_set(RMX_E_NO_MEMORY, "%s: out of memory", what);
}

int group_record(const struct operation *o) {
        struct operation *copy;

        if (group.n_operations == group.capacity) {
                uint32_t capacity = group.capacity ? 2 * group.capacity : 16;

                copy = reallocarray(group.operations, capacity, sizeof(*copy));
                if (!copy)
                        return group_spoil(group_out_of_memory(o->what));
                group.operations = copy;
                group.capacity = capacity;
        }
        copy = &group.operations[group.n_operations];
        *copy = *o;
        if (o->vector) {
                size_t bytes = 4 * o->comm->n_ranks * sizeof(*o->vector);

                copy->vector = malloc(bytes);
                if (!copy->vector)
                        return group_spoil(group_out_of_memory(o->what));
                memcpy(copy->vector, o->vector, bytes);
        }
        group.n_operations++;
        return RMX_OK;
}

void group_forget(const struct rmx_session *session) {
        uint32_t kept = 0;

        for (uint32_t i = 0; i < group.n_operations; i++) {
                struct operation *o = &group.operations[i];

                if (o->comm->session == session)
                        free(o->vector);
                else
                        group.operations[kept++] = *o;
        }
        if (kept < group.n_operations)
                group_spoil(error_set(RMX_E_INVALID, "rmx_session_close: a group has calls of this session"));
        group.n_operations = kept;
}

/* Takes the list away from the thread, whose group is over. */
static struct group group_take(void) {
        struct group taken = group;

        group = (struct group){0};
        return taken;
}

static void group_free(struct group *g) {
        for (uint32_t i = 0; i < g->n_operations; i++)
                free(g->operations[i].vector);
        free(g->operations);
}

/* ---- from the list to items -------------------------------------------------------------------------------------- */
struct batch {
        const char *what; /* the public call that ends the group */
        struct session_item *items;
        uint64_t *factors; /* argument blocks of reductions with a factor, one per item */
        uint32_t n_items;
        bool attended;
};

/* The sends and receives of one communicator among the operations from `first` on. */
struct p2p {
        const char *what;
        struct operation *first;
        struct operation *end;
        uint32_t n_entries;
        uint32_t n_receives;
        size_t region_bytes;
};

static struct operation *p2p_next(const struct p2p *p, struct operation *o) {
        while (o < p->end && (o->comm != p->first->comm || !operation_is_p2p(o)))
                o++;
        return o < p->end ? o : NULL;
}

#define P2P_FOREACH(p, o) for (struct operation *o = p2p_next((p), (p)->first); o; o = p2p_next((p), o + 1))

static size_t p2p_bytes(const struct operation *o) {
        return o->op == RING_OP_SEND ? o->in_bytes : o->out_bytes;
}

static const void *p2p_address(const struct operation *o) {
        return o->op == RING_OP_SEND ? o->in : o->out;
}

static int p2p_check(const struct p2p *p) {
        uint32_t to_self = 0, from_self = 0;

        if (p->n_entries > RING_GROUP_MAX)
                return error_set(RMX_E_INVALID,
                                 "%s: %u sends and receives on one communicator are more than the %u that a "
                                 "group may have",
                                 p->what, p->n_entries, RING_GROUP_MAX);
        P2P_FOREACH(p, o) {
                to_self += o->peer == o->comm->rank && o->op == RING_OP_SEND;
                from_self += o->peer == o->comm->rank && o->op == RING_OP_RECV;
        }
        if (to_self != from_self)
                return error_set(RMX_E_INVALID,
                                 "%s: rank %u has %u sends to itself and %u receives from itself; a group "
                                 "must have as many of the one as of the other",
                                 p->what, p->first->comm->rank, to_self, from_self);
        return RMX_OK;
}

/* Writes the entries; those in ordinary memory get their places, one after another, in a region that is still to come.
 */
static int p2p_locate(struct p2p *p, struct ring_group_entry *entries) {
        int r;

        P2P_FOREACH(p, o) {
                struct ring_group_entry *entry = entries++;
                size_t bytes = p2p_bytes(o);

                *entry = (struct ring_group_entry){
                        .operation = o->op, .type = o->type, .peer = o->peer, .count = o->count};
                if (!bytes)
                        continue;
                r = operation_locate(o, o->op == RING_OP_SEND ? "in" : "out", p2p_address(o), bytes, &entry->buffer,
                                     &entry->offset);
                if (r)
                        return r;
                if (entry->buffer)
                        continue;
                entry->offset = p->region_bytes;
                if (__builtin_add_overflow(p->region_bytes, bytes, &p->region_bytes) ||
                    p->region_bytes > PTRDIFF_MAX - PLACE_ALIGN)
                        return error_set(RMX_E_INVALID, "%s: the counts of this group together overflow", o->what);
                p->region_bytes = (p->region_bytes + PLACE_ALIGN - 1) & ~(size_t)(PLACE_ALIGN - 1);
                p->n_receives += o->op == RING_OP_RECV;
        }
        return RMX_OK;
}

/* Copies what is sent, and notes what is to be copied when it has come. */
static int p2p_copy(const struct p2p *p, struct ring_group_entry *entries, struct session_slot *slot) {
        struct rmx_session *session = p->first->comm->session;
        char *region;
        int r;

        if (!p->region_bytes)
                return RMX_OK;
        r = bounce_acquire(session, p->what, NULL, p->region_bytes, p->first->comm->cancel, &slot->regions[0]);
        if (r)
                return r;
        region = slot->regions[0]->buffer.address;
        if (p->n_receives) {
                slot->copies = calloc(p->n_receives, sizeof(*slot->copies));
                if (!slot->copies)
                        return group_out_of_memory(p->what);
        }
        P2P_FOREACH(p, o) {
                struct ring_group_entry *entry = entries++;

                if (entry->buffer || !p2p_bytes(o))
                        continue;
                entry->buffer = slot->regions[0]->buffer.id;
                if (o->op == RING_OP_SEND)
                        memcpy(region + entry->offset, o->in, o->in_bytes);
                else
                        slot->copies[slot->n_copies++] =
                                (struct session_copy){o->out, region + entry->offset, o->out_bytes};
        }
        return RMX_OK;
}

static int p2p_prepare(struct p2p *p, bool attended, struct session_item *item) {
        struct rmx_comm *comm = p->first->comm;
        struct ring_group_entry *entries;
        uint32_t bytes = p->n_entries * (uint32_t)sizeof(*entries);
        uint32_t largest = argument_space_largest(&comm->ring->arguments);
        int r;

        *item = (struct session_item){.ring = comm->ring,
                                      .slot = {.comm = comm, .what = p->what, .attended = attended}};
        if (bytes > largest)
                return error_set(RMX_E_INVALID,
                                 "%s: %u sends and receives on one communicator need %u bytes for arguments; "
                                 "the daemon gives %u",
                                 p->what, p->n_entries, bytes, largest);
        entries = calloc(p->n_entries, sizeof(*entries));
        if (!entries)
                return group_out_of_memory(p->what);
        item->argument = entries; /* batch_free frees it */
        item->argument_bytes = bytes;
        ring_request_set_head(&item->line, RING_OP_GROUP, 0, 0);
        item->line.word[RING_W_COMM] = comm->handle;
        ring_request_set_u64(&item->line, RING_W_COUNT_LO, p->n_entries);
        item->line.word[RING_W_EPOCH] = comm_epoch(comm);
        r = p2p_locate(p, entries);
        return r ? r : p2p_copy(p, entries, &item->slot);
}

static int batch_add_p2p(struct batch *batch, struct operation *first, struct operation *end) {
        struct p2p p = {.what = batch->what, .first = first, .end = end};
        struct operation *only = NULL;
        int r;

        P2P_FOREACH(&p, o) {
                only = o;
                o->issued = true;
                p.n_entries++;
        }
        if (!p.n_entries)
                return RMX_OK;
        r = p2p_check(&p);
        if (r)
                return r;
        batch->n_items++;
        if (p.n_entries == 1)
                return operation_prepare(only, batch->attended, &batch->items[batch->n_items - 1], NULL);
        return p2p_prepare(&p, batch->attended, &batch->items[batch->n_items - 1]);
}

/* Everything of the communicator of `first`. */
static int batch_add_comm(struct batch *batch, struct operation *first, struct operation *end) {
        const struct rmx_comm *comm = first->comm;
        int r;

        if (comm_status(comm))
                return comm_report(comm, batch->what, comm_status(comm));
        for (struct operation *o = first; o < end; o++) {
                if (o->comm != comm || operation_is_p2p(o))
                        continue;
                o->issued = true;
                r = operation_prepare(o, batch->attended, &batch->items[batch->n_items],
                                      &batch->factors[batch->n_items]);
                batch->n_items++; /* failed or not: batch_free copes with both */
                if (r)
                        return r;
        }
        return batch_add_p2p(batch, first, end);
}

/* No ring can take more than its depth at once, no argument space more than its size. */
static int batch_check_room(const struct batch *batch) {
        for (uint32_t i = 0; i < batch->n_items; i++) {
                const struct session_ring *ring = batch->items[i].ring;
                uint64_t n = 0, bytes = 0;

                for (uint32_t k = 0; k < batch->n_items && ring != (i ? batch->items[i - 1].ring : NULL); k++) {
                        if (batch->items[k].ring != ring)
                                continue;
                        n++;
                        bytes += (batch->items[k].argument_bytes + RING_ARGUMENT_ALIGN - 1) & -RING_ARGUMENT_ALIGN;
                }
                if (n > ring->producer.layout.depth)
                        return error_set(RMX_E_INVALID,
                                         "%s: a group may have %u requests on one GPU, this one has %ju on "
                                         "GPU %u",
                                         batch->what, ring->producer.layout.depth, (uintmax_t)n, ring->gpu);
                if (bytes > argument_space_largest(&ring->arguments))
                        return error_set(RMX_E_INVALID,
                                         "%s: the requests of a group may need %u bytes for arguments on "
                                         "one GPU, these need %ju on GPU %u",
                                         batch->what, argument_space_largest(&ring->arguments), (uintmax_t)bytes,
                                         ring->gpu);
        }
        return RMX_OK;
}

static int batch_fill(struct batch *batch, struct group *g) {
        struct operation *end = g->operations + g->n_operations;
        int r;

        batch->items = calloc(g->n_operations, sizeof(*batch->items));
        batch->factors = calloc(g->n_operations, sizeof(*batch->factors));
        if (!batch->items || !batch->factors)
                return group_out_of_memory(batch->what);
        for (struct operation *o = g->operations; o < end; o++) {
                r = o->issued ? RMX_OK : batch_add_comm(batch, o, end);
                if (r)
                        return r;
        }
        return batch_check_room(batch);
}

/* published: the slots belong to the rings now. */
static void batch_free(struct batch *batch, bool published) {
        for (uint32_t i = 0; i < batch->n_items; i++) {
                struct session_item *item = &batch->items[i];

                if (!published)
                        session_slot_drop(item->ring->session, &item->slot);
                if (ring_request_op(&item->line) == RING_OP_GROUP)
                        free(item->argument);
        }
        free(batch->factors);
        free(batch->items);
}

/* A child of fork() has what its parent had recorded. A request stands in one session, and goes with it. */
static int group_check(const struct group *g, const char *what, bool attended) {
        int r = RMX_OK;

        for (uint32_t i = 0; i < g->n_operations && !r; i++) {
                const struct rmx_session *session = g->operations[i].comm->session;

                r = session_check(session, what);
                if (!r && !attended && session != g->operations[0].comm->session)
                        r = error_set(RMX_E_INVALID,
                                      "%s: the calls of a group that is started must be on communicators of one "
                                      "session; end it with rmx_group_end",
                                      what);
        }
        return r;
}

/* Issues everything, or nothing. *ret_set stays NULL for a group without calls, or if all are on streams and nobody is
 * to wait for them (attended). */
static int group_issue(struct group *g, const char *what, bool attended, struct request_set **ret_set) {
        struct batch batch = {.what = what, .attended = attended};
        struct device_group devices = {.what = what};
        struct request_set *set = NULL;
        bool published = false;
        int r;

        if (g->spoiled)
                return error_set(g->spoiled, "%s", g->text);
        if (!g->n_operations)
                return RMX_OK;
        r = group_check(g, what, attended);
        if (!r)
                r = device_group_prepare(&devices, g->operations, g->n_operations);
        if (!r && devices.n_members < g->n_operations)
                r = batch_fill(&batch, g);
        if (!r && (batch.n_items || !attended)) {
                set = request_set_new(batch.n_items, attended ? 0 : devices.n_members);
                r = set ? RMX_OK : group_out_of_memory(what);
        }
        if (!r && devices.n_members && !attended)
                r = device_group_room(&devices);
        if (!r && batch.n_items) {
                r = requests_start(batch.items, batch.n_items, set->request);
                published = !r;
        }
        batch_free(&batch, published);
        if (!r && devices.n_members)
                r = attended ? device_group_run(&devices) : device_group_begin(&devices, set->device);
        device_group_free(&devices);
        if (r && !published) {
                free(set);
                return r;
        }
        *ret_set = set;
        return r;
}

/* ---- public ------------------------------------------------------------------------------------------------------ */
int rmx_group_start(void) {
        if (group.depth == UINT32_MAX)
                return error_set(RMX_E_INVALID, "%s: groups are nested too deeply", __func__);
        group.depth++;
        return RMX_OK;
}

/* Waits for what is in rings. The first error: `r`, which was met while the rest was issued, or one of theirs. */
static int group_complete(struct request_set *set, int r) {
        char text[ERROR_TEXT_BYTES];
        int waited;

        snprintf(text, sizeof(text), "%s", rmx_last_error());
        waited = requests_complete(set->request, set->n_requests);
        return r ? error_set(r, "%s", text) : waited;
}

int rmx_group_end(void) {
        struct request_set *set = NULL;
        struct group g;
        int r;

        if (!group.depth)
                return error_set(RMX_E_INVALID, "%s: this thread has no group; rmx_group_start comes first", __func__);
        if (--group.depth)
                return RMX_OK;
        g = group_take();
        r = group_issue(&g, __func__, true, &set);
        group_free(&g);
        if (!set)
                return r;
        r = group_complete(set, r);
        free(set);
        return r;
}

int rmx_group_end_start(struct rmx_request *ret_request) {
        struct request_set *set = NULL;
        struct group g;
        int r;

        if (!group.depth)
                return error_set(RMX_E_INVALID, "%s: this thread has no group; rmx_group_start comes first", __func__);
        if (!ret_request)
                return error_set(RMX_E_INVALID, "%s: ret_request is NULL", __func__);
        if (group.depth > 1)
                return error_set(RMX_E_INVALID, "%s: this is an inner group; end it with rmx_group_end", __func__);
        g = group_take();
        r = group_issue(&g, __func__, false, &set);
        group_free(&g);
        if (r) {
                if (set)
                        (void)group_complete(set, r);
                free(set);
                return r;
        }
        if (!set) {
                request_give_done(ret_request);
        } else if (set->n_requests + set->n_devices == 1) {
                if (set->n_devices)
                        request_give_device(&set->device[0], ret_request);
                else
                        request_give(&set->request[0], ret_request);
                free(set);
        } else {
                request_give_set(set, ret_request);
        }
        return RMX_OK;
}
