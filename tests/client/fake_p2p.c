/* SPDX-License-Identifier: MIT */
/*
 * Sends and receives of the fake. A rank's requests run one after another, so only the entries of the oldest request of
 * each rank can move, those of a group all together. Number k of a's sends to b meets number k of b's receives from a.
 */
#include <string.h>

#include "tests/client/fake.h"
#include "util/type.h"

bool fake_is_p2p(const struct ring_request *request) {
        uint32_t op = ring_request_op(request);

        return op == RING_OP_SEND || op == RING_OP_RECV || op == RING_OP_GROUP;
}

static bool entry_take(struct fake_comm *comm, struct fake_member *member, const struct ring_group_entry *entry) {
        uint32_t *last;

        if ((entry->operation != RING_OP_SEND && entry->operation != RING_OP_RECV) || entry->zero ||
            !type_size(entry->type) || entry->peer >= comm->n_ranks)
                return false;
        last = entry->operation == RING_OP_SEND ? &member->sent[entry->peer] : &member->received[entry->peer];
        if (entry->sequence != *last + 1)
                return false;
        ++*last;
        if (!entry->count)
                return !entry->buffer && !entry->offset;
        return fake_resolve(member->session, entry->buffer, entry->offset, entry->count * type_size(entry->type));
}

bool fake_p2p_take(struct fake_comm *comm, struct fake_member *member, struct fake_bell *bell) {
        const struct ring_request *line = &bell->request;
        bool group = ring_request_op(line) == RING_OP_GROUP, sends = ring_request_op(line) == RING_OP_SEND;

        bell->n_entries = group ? line->word[RING_W_COUNT_LO] : 1;
        if (ring_request_redop(line) || !bell->n_entries || bell->n_entries > RING_GROUP_MAX ||
            group != !!bell->argument)
                return false;
        must((bell->entries = calloc(bell->n_entries, sizeof(*bell->entries))));
        must((bell->done = calloc(bell->n_entries, sizeof(*bell->done))));
        if (group) {
                if (ring_request_type(line) || line->word[RING_W_PEER] || line->word[RING_W_SEQUENCE] ||
                    line->word[RING_W_IN_BUFFER] || line->word[RING_W_OUT_BUFFER])
                        return false;
                memcpy(bell->entries, bell->argument, bell->n_entries * sizeof(*bell->entries));
        } else {
                uint32_t mine = sends ? RING_W_IN_BUFFER : RING_W_OUT_BUFFER;

                if (line->word[sends ? RING_W_OUT_BUFFER : RING_W_IN_BUFFER])
                        return false;
                bell->entries[0] = (struct ring_group_entry){.operation = ring_request_op(line),
                                                             .type = ring_request_type(line),
                                                             .peer = line->word[RING_W_PEER],
                                                             .sequence = line->word[RING_W_SEQUENCE],
                                                             .count = ring_request_u64(line, RING_W_COUNT_LO),
                                                             .offset = ring_request_u64(line, mine + 1),
                                                             .buffer = line->word[mine]};
        }
        for (uint32_t i = 0; i < bell->n_entries; i++) {
                if (!entry_take(comm, member, &bell->entries[i]))
                        return false;
        }
        return true;
}

static struct fake_bell *active(struct fake_member *member) {
        struct fake_bell *bell = &member->queue[member->head % FAKE_QUEUE];

        return member->head != member->tail && fake_is_p2p(&bell->request) ? bell : NULL;
}

/* The receive at `to` that this send meets. */
static struct ring_group_entry *partner(struct fake_bell *bell, uint32_t from, uint32_t sequence, bool **ret_done) {
        for (uint32_t i = 0; bell && i < bell->n_entries; i++) {
                struct ring_group_entry *entry = &bell->entries[i];

                if (entry->operation == RING_OP_RECV && entry->peer == from && entry->sequence == sequence) {
                        *ret_done = &bell->done[i];
                        return entry;
                }
        }
        return NULL;
}

static void *entry_memory(const struct fake_member *member, const struct ring_group_entry *entry) {
        return fake_resolve(member->session, entry->buffer, entry->offset, entry->count * type_size(entry->type));
}

/* Moves one send if its receive is there. */
static bool move(struct fake_comm *comm, uint32_t rank, struct fake_bell *bell, uint32_t i) {
        struct ring_group_entry *send = &bell->entries[i], *recv;
        struct fake_member *to = &comm->member[send->peer];
        struct fake_bell *other = active(to);
        bool *done;

        recv = partner(other, rank, send->sequence, &done);
        if (!recv)
                return false;
        if (recv->count != send->count || recv->type != send->type) {
                fake_comm_end(comm, ring_status_mismatch(RMX_E_MISMATCH, RING_DETAIL_COUNT, (int32_t)send->peer));
                return true;
        }
        if (send->count)
                memmove(entry_memory(to, recv), entry_memory(&comm->member[rank], send),
                        send->count * type_size(send->type));
        bell->done[i] = *done = true;
        bell->n_done++;
        other->n_done++;
        return true;
}

bool fake_p2p_work(struct fake *fake, struct fake_comm *comm) {
        bool moved = false;

        for (uint32_t rank = 0; rank < comm->n_ranks; rank++) {
                struct fake_bell *bell = active(&comm->member[rank]);

                for (uint32_t i = 0; bell && i < bell->n_entries && !comm->status; i++) {
                        if (bell->entries[i].operation == RING_OP_SEND && !bell->done[i])
                                moved |= move(comm, rank, bell, i);
                }
        }
        for (uint32_t rank = 0; rank < comm->n_ranks && !comm->status; rank++) {
                struct fake_member *member = &comm->member[rank];
                struct fake_bell *bell = active(member);

                if (!bell || bell->n_done < bell->n_entries)
                        continue;
                fake_bell_complete(member, fake->force_status);
                fake->force_status = fake->force_later;
                fake->force_later = 0;
                moved = true;
        }
        return moved;
}
