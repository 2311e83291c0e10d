/* SPDX-License-Identifier: MIT */
/*
 * A group on GPUs
 *
 * Each request is rung by a kernel of its own before any is waited for: starts first, then the waits, all on one
 * stream. The executor keeps sends and receives of different pairs apart, so all that is rung makes progress together.
 * The last request needs no two kernels: it is rung and waited for in one. So a single one is as a call alone is, also
 * where its memory has to be copied (device_bounce.c), which goes with no other request of a group.
 *
 * One that the ranks' own kernels carry out (device_exchange.c) is a whole call at its place: what comes after it on
 * the stream waits for it. So the collectives of a communicator keep the order that all ranks have them in, and its
 * transfers come behind them anyway. Other communicators must not wait for it, for other ranks may have them in another
 * order. Sends and receives that are exchanged go together, all of a communicator as one such call (as many as one
 * takes). So where several have one stream, those with such requests have all of the group on their own streams
 * (device_aside.c) instead, if these can be had: nothing of one is then behind anything of another. In a group that is
 * started each such request goes there by itself, and what its communicator rings after it comes behind it on the
 * stream of the call, with what follows there.
 *
 * Streams. The requests of one communicator go on the stream of its first call in the group, or on its own one. The
 * other streams that the calls name come before it, and after it, so that each call is behind what its stream had to
 * do, and before what comes. Under capture they have to be the same one.
 *
 * Rounds. Only so many requests may be rung and not waited for on a GPU; and an executor may take fewer at a time. So a
 * large group is rung in rounds: as many starts as there is room for, their waits, the next. What counts is not only
 * what this thread has begun: kernels run when they can, and groups of other ranks, in other threads, have theirs in
 * the same area, whose places are taken in turn, each when the request before in it is over. Say a rank's request waits
 * for another rank here that has still to ring its half. Until then that one, and whoever it waits for, ring all that
 * comes before, each as much as a round of the first rank has. If that is more than the area has places, the next place
 * is the one of the request that waits. So with n ranks here a round has an n-th of what may be started. (That is
 * enough where these ranks take part in one exchange. Ranks that have nothing to do with it, in other threads, may go
 * on ringing meanwhile, and come round to the place of the request that waits: docs/gpu.md, "What is not there".)
 *
 * Now a rank waits in one round for a peer whose half is in a later one of its own, and may do so for ever: unless all
 * ranks come to their halves in the same order. They do. A transfer's place is (k, d, sender): the k-th one of its
 * sender and receiver in this group, and how far the receiver is behind the sender. Both ranks compute the same place,
 * no two transfers of a communicator have the same one, and each rank begins its halves in the order of their places.
 * Of all that is unfinished take the transfer with the first place: both its ranks have finished all they have before
 * it, so both have rung it. (Both halves of what a rank sends to itself go into one round. d comes before the sender so
 * that in each round every rank sends and receives. Where groups of the two ranks differ, and are too large for one
 * round, order is theirs to see to.)
 */
#include <stdlib.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_aside.h"
#include "client/device_call.h"
#include "client/device_group.h"
#include "client/device_streams.h"
#include "client/error.h"
#include "client/operation.h"

struct device_member {
        struct operation *o;
        struct device_launch launch;
        struct device_handle handle;
        void *stream; /* the communicator's in this group */
        bool called;  /* with an earlier one */
        /* Its place. */
        uint32_t p2p;  /* 0: a collective; those come first, as they were called */
        uint32_t turn; /* k */
        uint32_t distance, sender;
        uint32_t first; /* to oneself: index of the communicator's first, which keeps the halves of two apart */
        uint32_t index;
};

static bool member_sends(const struct device_member *m) {
        return m->o->op == RING_OP_SEND;
}

static void member_place(struct device_member *m, const struct device_group *group) {
        const struct rmx_comm *comm = m->o->comm;
        uint32_t receiver;

        if (!operation_is_p2p(m->o))
                return;
        m->p2p = 1;
        m->sender = member_sends(m) ? comm->rank : m->o->peer;
        receiver = member_sends(m) ? m->o->peer : comm->rank;
        m->distance = (receiver + comm->n_ranks - m->sender) % comm->n_ranks;
        for (const struct device_member *other = group->members; other < m; other++)
                m->turn += other->o->comm == comm && other->o->op == m->o->op && other->o->peer == m->o->peer;
}

static int compare(uint32_t a, uint32_t b) {
        return a < b ? -1 : a > b;
}

static int member_compare(const void *x, const void *y) {
        const struct device_member *a = x, *b = y;
        int r = compare(a->p2p, b->p2p);

        if (!r)
                r = compare(a->turn, b->turn);
        if (!r)
                r = compare(a->distance, b->distance);
        if (!r)
                r = compare(a->sender, b->sender);
        if (!r)
                r = compare(a->first, b->first);
        return r ? r : compare(a->index, b->index);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */
static int check_self(const struct device_group *group, const struct rmx_comm *comm) {
        uint32_t to_self = 0, from_self = 0;

        for (uint32_t i = 0; i < group->n_members; i++) {
                const struct operation *o = group->members[i].o;

                to_self += o->comm == comm && o->peer == comm->rank && o->op == RING_OP_SEND;
                from_self += o->comm == comm && o->peer == comm->rank && o->op == RING_OP_RECV;
        }
        if (to_self != from_self)
                return error_set(RMX_E_INVALID,
                                 "%s: rank %u has %u sends to itself and %u receives from itself; a group must have "
                                 "as many of the one as of the other",
                                 group->what, comm->rank, to_self, from_self);
        return RMX_OK;
}

static int check_streams(const struct device_group *group, const struct device_member *m, bool capturing) {
        if (m->stream != m->o->stream && (capturing || m->launch.bell.captured))
                return error_set(RMX_E_INVALID,
                                 "%s: the calls of a group on one communicator must be on one stream when a stream is "
                                 "being captured",
                                 group->what);
        return RMX_OK;
}

static struct device_member *first_of(const struct device_group *group, const struct rmx_comm *comm) {
        struct device_member *m = group->members;

        while (m->o->comm != comm)
                m++;
        return m;
}

static bool member_is_copied(const struct device_member *m) {
        return m->launch.region[DEVICE_BOUNCE_IN] || m->launch.region[DEVICE_BOUNCE_OUT];
}

static int member_prepare(struct device_group *group, struct device_member *m) {
        struct device *device = m->o->comm->device;
        struct device_member *first = first_of(group, m->o->comm);
        int r;

        r = device_prepare(m->o, device->ops->capturing(device->handle, m->o->stream), &m->launch);
        if (r)
                return r;
        m->stream = first->o->stream;
        if (group->n_members > 1 && member_is_copied(m))
                return error_set(RMX_E_UNSUPPORTED,
                                 "%s: this memory has to be copied, for no other process can map it, and that goes "
                                 "with calls outside of groups only, or alone in one",
                                 m->o->what);
        r = check_streams(group, m, first->launch.bell.captured);
        member_place(m, group);
        if (m->p2p && m->distance == 0)
                m->first = first->index;
        return r ? r : m == first ? check_self(group, m->o->comm) : RMX_OK;
}

int device_group_prepare(struct device_group *group, struct operation *operations, uint32_t n) {
        int r = RMX_OK;

        for (uint32_t i = 0; i < n; i++)
                group->n_members += operations[i].comm->device != NULL;
        if (!group->n_members)
                return RMX_OK;
        group->members = calloc(group->n_members, sizeof(*group->members));
        if (!group->members)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", group->what);
        for (uint32_t i = 0, k = 0; i < n; i++) {
                if (!operations[i].comm->device)
                        continue;
                operations[i].issued = true;
                group->members[k] = (struct device_member){.o = &operations[i], .index = k};
                k++;
        }
        for (uint32_t i = 0; i < group->n_members && !r; i++)
                r = member_prepare(group, &group->members[i]);
        if (r)
                return r;
        qsort(group->members, group->n_members, sizeof(*group->members), member_compare);
        for (uint32_t i = 0; i < group->n_members; i++) /* it has moved */
                if (group->members[i].launch.bell.n_arguments == 1 && !group->members[i].o->vector)
                        group->members[i].launch.bell.argument = &group->members[i].launch.factor;
        return RMX_OK;
}

/* Transfers that are exchanged go together or wait for each other, and each start would go by itself. Copies come
 * behind a wait. */
static int check_started(const struct device_group *group) {
        for (uint32_t i = 0; i < group->n_members; i++) {
                if (group->members[i].p2p && group->members[i].launch.exchanged)
                        return error_set(RMX_E_UNSUPPORTED,
                                         "%s: sends and receives of a communicator with RMX_COMM_ORDERED_TRANSFERS "
                                         "cannot be in a group that is started; end it with rmx_group_end",
                                         group->what);
                if (member_is_copied(&group->members[i]))
                        return error_set(RMX_E_UNSUPPORTED,
                                         "%s: this memory has to be copied, for no other process can map it, and that "
                                         "goes with calls that wait only",
                                         group->members[i].o->what);
        }
        return RMX_OK;
}

int device_group_room(const struct device_group *group) {
        for (uint32_t i = 0; i < group->n_members; i++) {
                struct device *device = group->members[i].o->comm->device;
                uint32_t n = 0, started;

                for (uint32_t k = 0; k < group->n_members; k++)
                        n += group->members[k].o->comm->device == device && !group->members[k].launch.exchanged;
                pthread_mutex_lock(&device->mutex);
                started = device->n_started;
                pthread_mutex_unlock(&device->mutex);
                if (n > CLIENT_GPU_STARTED - started)
                        return error_set(RMX_E_BUSY,
                                         "%s: %u requests on GPU %u, of which %u of %u may still be started; rmx_wait "
                                         "for the oldest ones first, or end the group with rmx_group_end",
                                         group->what, n, device->gpu, CLIENT_GPU_STARTED - started, CLIENT_GPU_STARTED);
        }
        return check_started(group);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */
/* Has an earlier member of the communicator brought this stream? */
static bool stream_seen(const struct device_group *group, const struct device_member *m) {
        for (const struct device_member *other = group->members; other < m; other++)
                if (other->o->comm == m->o->comm && other->o->stream == m->o->stream)
                        return true;
        return m->o->stream == m->stream;
}

/* Puts the streams of the calls before those of their communicators, or behind them. */
static int group_order(const struct device_group *group, bool before) {
        for (uint32_t i = 0; i < group->n_members; i++) {
                const struct device_member *m = &group->members[i];
                struct device *device = m->o->comm->device;
                char error[CLIENT_GPU_TEXT] = "";
                int r;

                if (stream_seen(group, m))
                        continue;
                pthread_mutex_lock(&device->mutex);
                device_streams_note(m->o->comm, m->o->stream);
                r = device->ops->order(device->handle, before ? m->o->stream : m->stream,
                                       before ? m->stream : m->o->stream, error);
                pthread_mutex_unlock(&device->mutex);
                if (r)
                        return error_set(r, "%s: %s", group->what, error);
        }
        return RMX_OK;
}

/* Does a communicator of which a request is exchanged share its stream with another one? */
static bool stream_is_crowded(const struct device_group *group, const struct device_member *m) {
        bool exchanged = false, crowded = false;

        for (const struct device_member *other = group->members; other < group->members + group->n_members; other++) {
                exchanged |= other->o->comm == m->o->comm && other->launch.exchanged;
                crowded |= other->o->comm != m->o->comm && other->o->comm->device == m->o->comm->device &&
                           other->stream == m->stream;
        }
        return exchanged && crowded;
}

/* Moves all of a communicator's. */
static void stream_move(const struct device_group *group, const struct device_member *first) {
        struct rmx_comm *comm = first->o->comm;
        bool can;

        pthread_mutex_lock(&comm->device->mutex);
        can = device_aside_can(comm, first->launch.bell.captured, first->stream);
        comm->aside.taken |= can;
        pthread_mutex_unlock(&comm->device->mutex);
        for (uint32_t i = 0; i < group->n_members && can; i++)
                if (group->members[i].o->comm == comm)
                        group->members[i].stream = comm->aside.stream;
}

/* Gives communicators their own streams where they are in each other's way. (Who has moved is in nobody's.) */
static void streams_part(const struct device_group *group) {
        bool exchanged = false, several = false;

        for (uint32_t i = 0; i < group->n_members; i++) {
                exchanged |= group->members[i].launch.exchanged;
                several |= group->members[i].o->comm != group->members[0].o->comm;
        }
        for (uint32_t i = 0; i < group->n_members && exchanged && several; i++)
                if (first_of(group, group->members[i].o->comm) == &group->members[i] &&
                    stream_is_crowded(group, &group->members[i]))
                        stream_move(group, &group->members[i]);
}

/* Gives the streams back. failed: they are not joined yet, and what is there has to be, if only for a capture. */
static void streams_give(const struct device_group *group, bool failed) {
        for (uint32_t i = 0; i < group->n_members; i++) {
                const struct device_member *m = &group->members[i];
                struct rmx_comm *comm = m->o->comm;
                struct device *device = comm->device;
                char ignored[CLIENT_GPU_TEXT];

                if (m->stream == m->o->stream || m->stream != comm->aside.stream || first_of(group, comm) != m)
                        continue;
                pthread_mutex_lock(&device->mutex);
                if (failed && device->ops->capturing(device->handle, m->stream) == m->launch.bell.captured)
                        (void)device->ops->order(device->handle, m->stream, m->o->stream, ignored);
                comm->aside.taken = false;
                pthread_mutex_unlock(&device->mutex);
        }
}

/* ---- launching --------------------------------------------------------------------------------------------------- */
/* Is the next member the other half of this one, which a rank sends to itself? Then both go into one round. */
static bool has_other_half(const struct device_group *group, uint32_t i) {
        const struct device_member *m = &group->members[i];

        return i + 1 < group->n_members && m->p2p && m->distance == 0 && m[1].p2p && m[1].distance == 0 &&
               m[1].o->comm == m->o->comm && m[1].turn == m->turn;
}

static bool has_room(struct device *device, uint32_t n) {
        bool room;

        pthread_mutex_lock(&device->mutex);
        room = device->n_started + n <= CLIENT_GPU_STARTED;
        pthread_mutex_unlock(&device->mutex);
        return room;
}

/* May one more, or two, of member i's communicator be started in the round that began with `first`? At least two may:
 * both halves of what a rank sends to itself. */
static bool round_goes_on(const struct device_group *group, uint32_t first, uint32_t i, uint32_t n) {
        const struct rmx_comm *comm = group->members[i].o->comm;
        const uint32_t ranks = device_ranks(comm->device), share = CLIENT_GPU_STARTED / (ranks ? ranks : 1);
        const uint32_t most = share > CLIENT_GPU_ROUND ? CLIENT_GPU_ROUND : share > 2 ? share : 2;

        for (uint32_t k = first; k < i; k++)
                n += group->members[k].o->comm == comm && !group->members[k].launch.exchanged;
        return n <= most;
}

/* Member i and its communicator's other transfers behind it, as one. Those are in one order on all ranks, so it does
 * not matter that there may be too many for one. */
static int call_pairs(struct device_group *group, uint32_t i) {
        struct device_member *m = &group->members[i];
        struct device_launch *launches[CLIENT_GPU_PAIRS];
        struct operation *operations[CLIENT_GPU_PAIRS];
        uint32_t n = 0;

        for (struct device_member *other = m; other < group->members + group->n_members; other++) {
                if (other->o->comm != m->o->comm || !other->p2p || !other->launch.exchanged || n == CLIENT_GPU_PAIRS)
                        continue;
                other->called = true;
                operations[n] = other->o;
                launches[n++] = &other->launch;
        }
        return device_call_pairs(operations, launches, n, m->stream);
}

/* Member i, whole. */
static int call_member(struct device_group *group, uint32_t i) {
        struct device_member *m = &group->members[i];

        if (m->called)
                return RMX_OK;
        return m->p2p && m->launch.exchanged ? call_pairs(group, i) : device_call(m->o, &m->launch, m->stream);
}

/* Starts members from `first` on until there is no room. *ret_end: the first that is not started; *ret_waits: the first
 * that needs no wait. */
static int round_start(struct device_group *group, uint32_t first, uint32_t *ret_end, uint32_t *ret_waits) {
        uint32_t i = first;
        int r = RMX_OK;

        for (; i + 1 < group->n_members && !r; i += !r) {
                struct device_member *m = &group->members[i];
                const bool both = has_other_half(group, i);

                if (m->launch.exchanged) {
                        r = call_member(group, i);
                        continue;
                }
                if (!round_goes_on(group, first, i, both ? 2 : 1) || (both && !has_room(m->o->comm->device, 2)))
                        break;
                r = device_start(m->o, &m->launch, true, m->stream, &m->handle);
        }
        if (i + 1 < group->n_members && !r)
                r = i > first ? RMX_E_BUSY
                              : error_set(RMX_E_BUSY,
                                          "%s: a transfer from rank %u to itself needs two of the %u requests that "
                                          "may be started on GPU %u; rmx_wait for the oldest ones first",
                                          group->what, group->members[i].o->comm->rank, CLIENT_GPU_STARTED,
                                          group->members[i].o->comm->device->gpu);
        *ret_end = *ret_waits = i;
        if (r)
                return r == RMX_E_BUSY && i > first ? RMX_OK : r;
        r = call_member(group, i);
        *ret_end = i + 1;
        return r;
}

int device_group_run(struct device_group *group) {
        uint32_t first = 0, end, waits;
        int r;

        streams_part(group);
        r = group_order(group, true);

        while (first < group->n_members && !r) {
                r = round_start(group, first, &end, &waits);
                for (uint32_t i = first; i < waits; i++) {
                        struct device_member *m = &group->members[i];
                        int waited = m->launch.exchanged ? RMX_OK
                                                         : device_request_enqueue(&m->handle, group->what, m->stream);

                        r = r ? r : waited;
                }
                first = end;
        }
        if (!r)
                r = group_order(group, false);
        streams_give(group, r);
        return r;
}

int device_group_begin(struct device_group *group, struct device_handle *ret_handles) {
        int r = group_order(group, true);

        for (uint32_t i = 0; i < group->n_members && !r; i++) {
                struct device_member *m = &group->members[i];

                r = device_start(m->o, &m->launch, false, m->stream, &m->handle);
                if (r) /* what was started is waited for on its stream */
                        for (uint32_t k = 0; k < i; k++)
                                (void)device_request_enqueue(&ret_handles[k], group->what, group->members[k].stream);
                else
                        ret_handles[i] = m->handle;
        }
        return r ? r : group_order(group, false);
}

void device_group_free(struct device_group *group) {
        free(group->members);
}
