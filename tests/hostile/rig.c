/* SPDX-License-Identifier: MIT */
/* Lines with argument blocks, sends and receives, and what comes back for them. */
#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

#define PROMPT_MS 200u /* for requests that may wait for ever */

/* A ring's lines are taken one after another, and this one names nobody: it is answered when it has been read. */
bool rig_read(struct rig *rig) {
        struct ring_request line = {0};
        uint32_t sequence, status;

        ring_request_set_head(&line, RING_OP_BARRIER, 0, 0);
        return wire_ring_put(&rig->ring, &line, &sequence) &&
               wire_ring_take(&rig->ring, sequence, ATTACK_SILENT_MS, &status) &&
               ring_status_code(status) == RMX_E_INVALID;
}

uint32_t rig_place(struct rig *rig, size_t bytes) {
        uint32_t n = (uint32_t)((rig->ring.layout.argument_bytes - bytes) / RING_ARGUMENT_ALIGN);

        return RING_ARGUMENT_ALIGN * (1 + attack_draw(rig->attack, n)); /* place 0 means that there is no block */
}

void *rig_block(struct rig *rig, uint32_t place) {
        return (char *)rig->ring.client_area + rig->ring.layout.argument_offset + place;
}

struct ring_request rig_pair_line(struct rig *rig, uint32_t rank, const struct ring_group_entry *entry) {
        bool sends = entry->operation == RING_OP_SEND;
        struct ring_request line = {0};

        ring_request_set_head(&line, entry->operation, entry->type, 0);
        line.word[RING_W_COMM] = rig->handle[rank];
        ring_request_set_u64(&line, RING_W_COUNT_LO, entry->count);
        line.word[sends ? RING_W_IN_BUFFER : RING_W_OUT_BUFFER] = entry->buffer;
        ring_request_set_u64(&line, sends ? RING_W_IN_LO : RING_W_OUT_LO, entry->offset);
        line.word[RING_W_PEER] = entry->peer;
        line.word[RING_W_SEQUENCE] = entry->sequence;
        return line;
}

struct ring_request rig_group_line(struct rig *rig, uint32_t rank, uint32_t place, uint32_t n) {
        struct ring_request line = {0};

        ring_request_set_head(&line, RING_OP_GROUP, 0, 0);
        line.word[RING_W_COMM] = rig->handle[rank];
        ring_request_set_u64(&line, RING_W_COUNT_LO, n);
        line.word[RING_W_ARGUMENT] = place;
        return line;
}

struct ring_group_entry rig_entry(bool sends, uint32_t peer, uint32_t sequence, uint32_t quarter, uint64_t count) {
        return (struct ring_group_entry){
                .operation = sends ? RING_OP_SEND : RING_OP_RECV,
                .type = RMX_FLOAT32,
                .peer = peer,
                .sequence = sequence,
                .count = count,
                .offset = (uint64_t)quarter * (ATTACK_BUFFER / 4),
                .buffer = 1,
        };
}

bool rig_put(struct rig *rig, struct rig_lines *lines, const struct ring_request *line) {
        return lines->n < RIG_LINES_MAX && wire_ring_put(&rig->ring, line, &lines->sequence[lines->n++]);
}

bool rig_take(struct rig *rig, struct rig_lines *lines, uint32_t timeout_ms) {
        for (uint32_t i = 0; i < lines->n; i++) {
                if (lines->done[i])
                        continue;
                if (!wire_ring_take(&rig->ring, lines->sequence[i], timeout_ms, &lines->status[i])) {
                        timeout_ms = 0; /* only what is there already */
                        continue;
                }
                lines->done[i] = true;
                lines->n_done++;
        }
        return lines->n_done == lines->n;
}

enum outcome rig_settle(struct rig *rig, struct rig_lines *lines, uint64_t allowed) {
        enum outcome outcome = OUTCOME_SERVED;

        if (!rig_take(rig, lines, PROMPT_MS)) {
                if (!rig_abort(rig))
                        return attack_wrong(rig->attack, "the comm cannot be ended");
                allowed |= RIG_CODE(RMX_E_ABORTED);
        }
        if (!rig_take(rig, lines, ATTACK_SILENT_MS))
                return attack_wrong(rig->attack, "%u of %u lines have no completion after the comm's end",
                                    lines->n - lines->n_done, lines->n);
        for (uint32_t i = 0; i < lines->n; i++) {
                uint32_t code = ring_status_code(lines->status[i]);

                if (code >= RMX_E_COUNT || !(allowed & RIG_CODE(code)))
                        return attack_wrong(rig->attack, "line %u: %s, rank %d", i, rmx_error_name((int)code),
                                            ring_status_rank(lines->status[i]));
                if (code)
                        outcome = OUTCOME_REFUSED;
        }
        return outcome;
}

enum outcome rig_expect(struct rig *rig, struct rig_lines *lines, uint32_t code, int32_t rank) {
        if (!rig_take(rig, lines, ATTACK_SILENT_MS))
                return attack_wrong(rig->attack, "%u of %u lines have no completion", lines->n - lines->n_done,
                                    lines->n);
        for (uint32_t i = 0; i < lines->n; i++)
                if (ring_status_code(lines->status[i]) != code || ring_status_rank(lines->status[i]) != rank)
                        return attack_wrong(rig->attack, "line %u: %s, rank %d instead of %s, rank %d", i,
                                            rmx_error_name((int)ring_status_code(lines->status[i])),
                                            ring_status_rank(lines->status[i]), rmx_error_name((int)code), rank);
        return code ? OUTCOME_REFUSED : OUTCOME_SERVED;
}
