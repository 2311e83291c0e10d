/* SPDX-License-Identifier: MIT */
/*
 * Sends and receives
 *
 * They are no steps of the whole comm but of pairs: number k of a's sends to b belongs to number k of b's receives from
 * a, wherever both stand in their ranks' requests. A rank runs its requests one after another; a group is one request,
 * whose entries the backend runs together.
 *
 * One outcome per sequence holds for a pair as it does for a comm. A pair's sequence is final when the receiver's
 * memory is, that is when the backend has set `done` for the receive; the mark is written then, entry by entry and not
 * when the whole group is through, since the sender may go on by then and others may wait for what it does next. A
 * request is answered when the backend is through with it and all its entries are final. The backend tells the sender
 * before we have seen the receive's `done`; then the request waits here until whoever runs the receiver comes back,
 * which it does without waiting for anybody.
 *
 * Between nodes there is the entry of this node's side only, and it is final when the backend is done with it: that of
 * a send comes after that of its receive, as on one node, but each executor marks its own.
 *
 * After a takeover each entry has its own outcome. A group with a lost entry is answered as lost, but its other entries
 * are run first (the dead executor may have stopped between two of them), so that nobody waits for them in vain.
 * Meanwhile later sequences of its pairs may become final, and another executor may die; the answer must still be the
 * same. So a pair's lost range stays until a sequence is final that neither side has in a lost request. That is enough,
 * because a rank begins nothing behind a lost request before it is answered (comm_run.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include <utlist.h>

#include "executor/comm_private.h"
#include "executor/executor.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/clock.h"

enum { SIDE_SENDER = 0, SIDE_RECEIVER = 1 };

struct comm_pair {
        struct p2p_entry *head[2], *tail[2]; /* open entries by side, in sequence order */
        struct p2p_entry *found[2];          /* NULL, or the one that was looked up last */
        uint32_t expected[2];
        uint32_t settled, lost_after, lost_until;
        uint32_t taken_over; /* everything up to here was settled by a takeover */
        bool resync[2];      /* after it: the first sequence may be any up to the next one */
        bool behind[2];      /* after it: some of these may still come */
};

static uint32_t pair_index(const struct comm *comm, uint32_t rank, uint32_t peer, bool sends) {
        return sends ? rank * comm->n_ranks + peer : peer * comm->n_ranks + rank;
}

static uint32_t entry_side(const struct p2p_entry *entry) {
        return entry->sends ? SIDE_SENDER : SIDE_RECEIVER;
}

int comm_p2p_init(struct comm *comm) {
        uint32_t n_pairs = comm->n_ranks * comm->n_ranks;

        comm->pairs = calloc(n_pairs, sizeof(*comm->pairs));
        if (!comm->pairs)
                return -ENOMEM;
        for (uint32_t i = 0; i < n_pairs; i++)
                comm->pairs[i].expected[SIDE_SENDER] = comm->pairs[i].expected[SIDE_RECEIVER] = 1;
        return 0;
}

void comm_p2p_deinit(struct comm *comm) {
        free(comm->pairs);
        comm->pairs = NULL;
}

uint32_t comm_p2p_take_over(struct comm *comm, bool used) {
        /* relaxed: a dead writer's */
        bool failed = atomic_load_explicit(&comm->marks->error, memory_order_relaxed) != 0;
        uint32_t n_lost = 0;

        for (uint32_t i = 0; i < comm->n_ranks * comm->n_ranks; i++) {
                struct takeover_range range = takeover_read_pair(&comm->marks->pair[i], failed);
                struct comm_pair *pair = &comm->pairs[i];

                pair->settled = pair->taken_over = range.settled;
                pair->lost_after = range.lost_after;
                pair->lost_until = range.lost_until;
                pair->resync[SIDE_SENDER] = pair->resync[SIDE_RECEIVER] = used;
                pair->behind[SIDE_SENDER] = pair->behind[SIDE_RECEIVER] = used;
                n_lost += range.n_lost;
        }
        return n_lost;
}

/* ---- ringing ----------------------------------------------------------------------------------------------------- */
/* Requests are answered out of ring order, so after a takeover some of those that it has settled may be missing. */
static bool pair_sequence_right(const struct comm *comm, uint32_t index, uint32_t side, uint32_t sequence) {
        const struct comm_pair *pair = &comm->pairs[index];

        if (pair->resync[side])
                return pair->taken_over + 1 - sequence <= comm->window * RING_GROUP_MAX;
        return sequence == pair->expected[side] ||
               (pair->behind[side] && !ring_sequence_before(sequence, pair->expected[side]) &&
                !ring_sequence_before(pair->taken_over + 1, sequence));
}

/* Are all the request's sequences those that are due? Several entries of one pair follow one another. */
static bool sequences_right(struct comm_rank *rank, const struct request *request) {
        struct comm *comm = rank->comm;
        uint32_t last[2][PLAN_RANKS_MAX];
        uint64_t seen[2] = {0};

        for (uint32_t i = 0; i < request->n_gpu; i++) {
                const struct p2p_entry *entry = &request->entries[i];
                uint32_t index = pair_index(comm, rank->index, entry->peer, entry->sends), side = entry_side(entry);
                bool right = seen[side] >> entry->peer & 1 ? entry->sequence == last[side][entry->peer] + 1
                                                           : pair_sequence_right(comm, index, side, entry->sequence);

                if (!right)
                        return false;
                seen[side] |= UINT64_C(1) << entry->peer;
                last[side][entry->peer] = entry->sequence;
        }
        return true;
}

static void pair_append(struct comm_pair *pair, struct p2p_entry *entry) {
        uint32_t side = entry_side(entry);

        entry->next = NULL;
        if (pair->tail[side])
                pair->tail[side]->next = entry;
        else
                pair->head[side] = entry;
        pair->tail[side] = entry;
}

/* Mutex held. A group's entries are looked up one after another, so each look goes on where the last one ended: others
 * wait meanwhile, and there may be hundreds on each side. */
static const struct p2p_entry *pair_other(struct comm_pair *pair, uint32_t side, uint32_t sequence) {
        struct p2p_entry *entry = pair->found[!side];

        if (!pair->tail[!side] || ring_sequence_before(pair->tail[!side]->sequence, sequence))
                return NULL;
        if (!entry || ring_sequence_before(sequence, entry->sequence))
                entry = pair->head[!side];
        while (entry && entry->sequence != sequence)
                entry = entry->next;
        if (entry)
                pair->found[!side] = entry;
        return entry;
}

static const struct gpu_request *entry_gpu(const struct p2p_entry *entry) {
        return &entry->request->gpu[entry - entry->request->entries];
}

/* Do both sides of a pair mean the same? 0 or the status that ends the comm, which is then set. */
static uint32_t entry_differs(struct comm_rank *rank, const struct p2p_entry *entry, const struct p2p_entry *other) {
        const struct gpu_request *mine = entry_gpu(entry), *theirs = entry_gpu(other);
        const char *what = "count";
        uint64_t a = mine->shape.count, b = theirs->shape.count;
        uint32_t detail = RING_DETAIL_COUNT, status;

        if (mine->type != theirs->type)
                what = "type", a = mine->type, b = theirs->type, detail = RING_DETAIL_TYPE;
        else if (a == b)
                return 0;
        executor_count(rank->comm->executor, mismatches, 1);
        status = ring_status_mismatch(RMX_E_MISMATCH, detail, (int32_t)rank->index);
        comm_set_error(rank->comm, status, "%s %u: rank %u %s rank %u with %s %" PRIu64 ", rank %u gave %" PRIu64,
                       entry->sends ? "send" : "recv", entry->sequence, rank->index,
                       entry->sends ? "sends to" : "receives from", entry->peer, what, a, entry->peer, b);
        return status;
}

/* What is left of a dead executor's decision about the entry. */
static enum takeover_outcome entry_outcome(const struct comm_pair *pair, const struct p2p_entry *entry) {
        return takeover_outcome(entry->sequence, pair->settled, pair->lost_after, pair->lost_until);
}

/* Marks the entries as rung and finds out which of them are still to be run. */
static void entries_enter(struct comm_rank *rank, struct request *request) {
        struct comm *comm = rank->comm;

        for (uint32_t i = 0; i < request->n_gpu; i++) {
                struct p2p_entry *entry = &request->entries[i];
                uint32_t index = pair_index(comm, rank->index, entry->peer, entry->sends), side = entry_side(entry);
                enum takeover_outcome outcome = entry_outcome(&comm->pairs[index], entry);

                comm->pairs[index].resync[side] = false;
                comm->pairs[index].expected[side] = entry->sequence + 1;
                if (ring_sequence_before(comm->pairs[index].taken_over, entry->sequence))
                        comm->pairs[index].behind[side] = false;
                comm_mark(comm->marks->pair[index].rung[side], entry->sequence); /* before it can start */
                entry->open = outcome == TAKEOVER_RUN;
                request->n_open += entry->open;
                if (outcome == TAKEOVER_LOST)
                        request->result = ring_status(RMX_E_LOST, -1);
        }
}

/* The backend gets the open entries only: those with an outcome change places with later ones. */
static void entries_compact(struct request *request) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < request->n_gpu; i++) {
                struct p2p_entry entry = request->entries[i];
                struct gpu_request gpu = request->gpu[i];

                if (!entry.open)
                        continue;
                request->entries[i] = request->entries[n];
                request->gpu[i] = request->gpu[n];
                request->entries[n] = entry;
                request->gpu[n++] = gpu;
        }
        request->n_run = n;
}

static void entries_match(struct comm_rank *rank, struct request *request) {
        struct comm *comm = rank->comm;

        for (uint32_t i = 0; i < request->n_run; i++) {
                struct p2p_entry *entry = &request->entries[i];
                struct comm_pair *pair = &comm->pairs[pair_index(comm, rank->index, entry->peer, entry->sends)];
                const struct p2p_entry *other;
                const struct comm_rank *peer = &comm->ranks[entry->peer];

                request->gpu[i].plan = comm->send_plan;
                pair_append(pair, entry);
                other = pair_other(pair, entry_side(entry), entry->sequence);
                if (other && entry_differs(rank, entry, other))
                        return;
                if (!other && entry->sends && !peer->here && entry_gpu(entry)->shape.count == 0)
                        continue; /* to receive nothing takes no word of ours: it may have done so, and left */
                if (!other && peer->left) {
                        comm_set_error(comm, ring_status(RMX_E_PEER_LOST, (int32_t)entry->peer),
                                       "rank %u left before the others", entry->peer);
                        return;
                }
        }
        if (!comm->send_plan)
                comm_set_error(comm, ring_status(RMX_E_UNSUPPORTED, (int32_t)rank->index),
                               "this comm has no plan for sends");
}

bool comm_p2p_settled(struct comm_rank *rank, const struct request *request) {
        if (!sequences_right(rank, request))
                return false;
        for (uint32_t i = 0; i < request->n_gpu; i++) {
                const struct p2p_entry *entry = &request->entries[i];
                uint32_t index = pair_index(rank->comm, rank->index, entry->peer, entry->sends);

                if (entry_outcome(&rank->comm->pairs[index], entry) == TAKEOVER_RUN)
                        return false;
        }
        return true;
}

void comm_p2p_ring(struct comm_rank *rank, struct request *request) {
        if (!sequences_right(rank, request)) {
                executor_count(rank->comm->executor, invalid_requests, 1);
                bell_complete(request, ring_status(RMX_E_INVALID, (int32_t)rank->index));
                return;
        }
        request->first_ns = clock_now_ns();
        comm_enqueue(rank, request);
        entries_enter(rank, request);
        if (!request->n_open) {
                comm_answer(rank, request, request->result);
                return;
        }
        entries_compact(request);
        entries_match(rank, request);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */
static void request_answer_if_done(struct comm_rank *rank, struct request *request) {
        if (request->ran && !request->n_open)
                comm_answer(rank, request, request->result);
}

static struct p2p_entry *pair_pop(struct comm_pair *pair, uint32_t side) {
        struct p2p_entry *entry = pair->head[side];

        pair->head[side] = entry->next;
        if (!entry->next)
                pair->tail[side] = NULL;
        if (pair->found[side] == entry)
                pair->found[side] = NULL;
        entry->open = false;
        entry->request->n_open--;
        return entry;
}

static void pair_count(struct comm *comm, const struct p2p_entry *entry) {
        const struct gpu_request *gpu = entry_gpu(entry);
        uint64_t bytes = gpu->shape.count * gpu->shape.element_bytes;

        comm->operations++;
        comm->bytes += bytes;
        executor_count(comm->executor, operations, 1);
        executor_count(comm->executor, bytes, bytes);
}

/* What is at the head of a pair whose other side is on another node is done. There is no lost range: nothing is taken
 * over. */
static void pair_settle_away(struct comm *comm, uint32_t index, uint32_t side) {
        const struct p2p_entry *entry = pair_pop(&comm->pairs[index], side);

        comm->pairs[index].settled = entry->sequence;
        comm_mark(comm->marks->pair[index].final, entry->sequence);
        pair_count(comm, entry);
}

/* The receive at the head of its pair is done: its sequence is final on both sides. */
static void pair_settle(struct comm *comm, uint32_t sender, uint32_t receiver) {
        uint32_t index = sender * comm->n_ranks + receiver;
        struct comm_pair *pair = &comm->pairs[index];
        const struct p2p_entry *received = pair_pop(pair, SIDE_RECEIVER);
        struct p2p_entry *sent = pair_pop(pair, SIDE_SENDER);

        pair->settled = received->sequence;
        if (pair->lost_after != pair->lost_until && !sent->request->result && !received->request->result) {
                /* both ranks were told of the lost range */
                pair->lost_after = pair->lost_until = received->sequence;
                comm_mark(comm->marks->pair[index].lost, (uint64_t)pair->settled << 32 | pair->settled);
        }
        comm_mark(comm->marks->pair[index].final, received->sequence); /* after the range: takeover.c */
        pair_count(comm, received);
        if (sent->request != received->request)
                request_answer_if_done(&comm->ranks[sender], sent->request);
}

void comm_p2p_moved(struct comm_rank *rank, struct request *request, bool done) {
        for (uint32_t i = 0; i < request->n_run; i++) {
                const struct p2p_entry *entry = &request->entries[i];
                struct comm *comm = rank->comm;

                if (!entry->open || !request->gpu[i].done)
                        continue;
                if (!comm->ranks[entry->peer].here)
                        pair_settle_away(comm, pair_index(comm, rank->index, entry->peer, entry->sends),
                                         entry_side(entry));
                else if (!entry->sends)
                        pair_settle(comm, entry->peer, rank->index);
        }
        request->ran = done;
        request_answer_if_done(rank, request);
}

void comm_p2p_clear(struct comm *comm) {
        for (uint32_t i = 0; i < comm->n_ranks * comm->n_ranks; i++)
                for (uint32_t side = 0; side < 2; side++)
                        comm->pairs[i].head[side] = comm->pairs[i].tail[side] = comm->pairs[i].found[side] = NULL;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */
/* The first entry of a request whose other side has not come; NULL: all have. */
static const struct p2p_entry *request_missing(const struct comm *comm, uint32_t rank, const struct request *request) {
        for (uint32_t i = 0; i < request->n_run; i++) {
                const struct p2p_entry *entry = &request->entries[i];
                uint32_t index = pair_index(comm, rank, entry->peer, entry->sends);

                if (entry->open && !pair_other(&comm->pairs[index], entry_side(entry), entry->sequence))
                        return entry;
        }
        return NULL;
}

/* Has the other side of the last open entry not come? Then that one's rank waits. */
static bool pair_waits(struct comm_pair *pair, uint32_t side) {
        return pair->tail[side] && !pair_other(pair, side, pair->tail[side]->sequence);
}

bool comm_p2p_awaits(const struct comm *comm, uint32_t rank) {
        for (uint32_t other = 0; other < comm->n_ranks; other++)
                if (pair_waits(&comm->pairs[other * comm->n_ranks + rank], SIDE_SENDER) ||
                    pair_waits(&comm->pairs[rank * comm->n_ranks + other], SIDE_RECEIVER))
                        return true;
        return false;
}

const struct p2p_entry *comm_p2p_deserted(const struct comm *comm, uint64_t since_ns) {
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct request *request;

                DL_FOREACH(comm->ranks[r].requests, request)
                        for (uint32_t i = 0; request_p2p(request) && i < request->n_run; i++) {
                                const struct p2p_entry *entry = &request->entries[i];
                                const struct comm_rank *peer = &comm->ranks[entry->peer];

                                if (entry->open && peer->left && !peer->here && peer->left_ns <= since_ns)
                                        return entry;
                        }
        }
        return NULL;
}

bool comm_p2p_oldest_wait(struct comm *comm, struct comm_wait *ret_wait) {
        const struct p2p_entry *entry;
        struct request *oldest = NULL;
        uint32_t rank = 0;

        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                struct request *request;

                DL_FOREACH(comm->ranks[r].requests, request)
                        if (request_p2p(request) && (!oldest || request->first_ns < oldest->first_ns)) {
                                oldest = request;
                                rank = r;
                        }
        }
        if (!oldest)
                return false;
        entry = request_missing(comm, rank, oldest);
        *ret_wait = (struct comm_wait){.request = oldest, .first_ns = oldest->first_ns};
        ret_wait->missing = entry ? UINT64_C(1) << entry->peer : 0;
        entry = entry ? entry : &oldest->entries[0];
        ret_wait->operation = entry->sends ? RING_OP_SEND : RING_OP_RECV;
        ret_wait->sequence = entry->sequence;
        return true;
}
