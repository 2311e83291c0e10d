/* SPDX-License-Identifier: MIT */
/* Communicators: half joined, joined by strangers, split wildly, destroyed and aborted at every moment. */
#include <string.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

static bool new_id(struct wire *wire, uint8_t comm_id[128]) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer = wire_call(wire, bytes, wire_pack_id_create(bytes, wire->next_id));

        memcpy(comm_id, answer.comm_id, sizeof(answer.comm_id));
        return answer.body == RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY;
}

/* Leaves comms behind in which ranks are missing. */
static enum outcome run_half_joined(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX], comm_id[128];
        struct wire wire;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        for (uint32_t i = 1 + attack_draw(attack, 40); i > 0; i--) {
                uint32_t n_ranks = 2 + attack_draw(attack, 63);

                if (!new_id(&wire, comm_id))
                        return attack_wrong(attack, "no id");
                for (uint32_t rank = attack_draw(attack, n_ranks); rank < n_ranks; rank += 1 + attack_draw(attack, 9))
                        if (rank > 0)
                                wire_send(&wire, bytes,
                                          wire_pack_comm_create(bytes, wire.next_id++, comm_id, n_ranks, rank, -1),
                                          NULL, 0);
        }
        if (attack_draw(attack, 2))
                return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
        wire_close(&wire);
        return OUTCOME_LEFT;
}

/* A rank that is taken, another number of ranks, a rank that joins twice: the others' comm comes about all the same. */
static enum outcome run_intruders(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;
        struct wire intruder;
        struct rig rig;

        if (!rig_open(&rig, attack) || !wire_open(&intruder, attack->socket))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < 6; i++) {
                uint64_t id = intruder.next_id;
                size_t n;

                switch ((attack->number + i) % 6) {
                case 0:
                        n = wire_pack_comm_create(bytes, id, rig.comm_id, 2, attack_draw(attack, 2), 0);
                        break;
                case 1:
                        n = wire_pack_comm_create(bytes, id, rig.comm_id, 3, 2, 0);
                        break;
                case 2:
                        n = wire_pack_comm_destroy(bytes, id, rig.handle[0], 0);
                        break;
                case 3:
                        n = wire_pack_comm_abort(bytes, id, rig.handle[1]);
                        break;
                case 4:
                        n = wire_pack_comm_split(bytes, id, rig.handle[0], 1, 0, 0);
                        break;
                default:
                        n = wire_pack_comm_split(bytes, id, rig.handle[1], 0, -1, 0);
                        break;
                }
                answer = wire_call(&intruder, bytes, n);
                if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE || answer.code != RMX_E_INVALID)
                        return attack_wrong(attack, "intrusion %u: body %d, code %u", (attack->number + i) % 6,
                                            answer.body, answer.code);
                if (!rig_works(&rig))
                        return attack_wrong(attack, "intrusion %u: the comm noticed", (attack->number + i) % 6);
        }
        wire_close(&intruder);
        rig_close(&rig);
        return OUTCOME_REFUSED;
}

/* Another session's buffer number and handle in a line of one's own. */
static enum outcome run_borrowers(struct attack *attack) {
        uint32_t sequence, status;
        uint8_t bytes[WIRE_PACKED_MAX];
        struct rig owner, borrower;
        struct ring_request line;

        if (!rig_open(&owner, attack) || !rig_open(&borrower, attack) || !rig_comm(&owner))
                return attack_wrong(attack, "no rigs");
        line = rig_line(&owner, 1); /* owner's second comm: a handle that borrower has not */
        wire_ring_put(&borrower.ring, &line, &sequence);
        if (!wire_ring_take(&borrower.ring, sequence, ATTACK_SILENT_MS, &status) ||
            ring_status_code(status) != RMX_E_INVALID)
                return attack_wrong(attack, "another session's handle: status %u", status);
        if (!rig_works(&owner) || !rig_works(&borrower))
                return attack_wrong(attack, "a comm noticed");
        if (wire_call(&borrower.wire, bytes, wire_pack_buffer_destroy(bytes, borrower.wire.next_id, 1)).body !=
            RAILMUX__SESSION__MESSAGE__BODY_ACK)
                return attack_wrong(attack, "its buffer cannot be destroyed");
        line = rig_line(&borrower, 0);
        wire_ring_put(&borrower.ring, &line, &sequence);
        if (!wire_ring_take(&borrower.ring, sequence, ATTACK_SILENT_MS, &status) ||
            ring_status_code(status) != RMX_E_INVALID)
                return attack_wrong(attack, "another session's buffer: status %u", status);
        if (!rig_works(&owner))
                return attack_wrong(attack, "the owner noticed");
        rig_close(&borrower);
        rig_close(&owner);
        return OUTCOME_REFUSED;
}

/* Everything that can be said about a comm, in any order, with and without requests in flight. */
static enum outcome run_storm(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct ring_request line;
        uint32_t sequence;
        struct rig rig;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < 60; i++) {
                uint32_t rank = attack_draw(attack, 2), handle = rig.handle[rank] + (attack_draw(attack, 8) == 0);
                uint64_t id = rig.wire.next_id++;
                size_t n = 0;

                switch (attack_draw(attack, 6)) {
                case 0:
                        n = wire_pack_comm_destroy(bytes, id, handle,
                                                   attack_draw(attack, 4) ? rig.sequence[rank]
                                                                          : attack_draw(attack, ~0u));
                        break;
                case 1:
                        n = wire_pack_comm_abort(bytes, id, handle);
                        break;
                case 2: /* any number of a split: far ahead, passed, again */
                        n = wire_pack_comm_split(
                                bytes, id, handle,
                                attack_draw(attack, 4) ? attack_draw(attack, 5) : attack_draw(attack, ~0u),
                                (int32_t)attack_draw(attack, 4) - 1, (int32_t)attack_draw(attack, ~0u));
                        break;
                case 3:
                        n = wire_pack_comm_create(bytes, id, rig.comm_id, 2, rank, 0);
                        break;
                default:
                        line = rig_line(&rig, rank);
                        if (wire_ring_put(&rig.ring, &line, &sequence))
                                rig.sequence[rank]++;
                        break;
                }
                if (n > 0)
                        wire_send(&rig.wire, bytes, n, NULL, 0);
                if (attack_draw(attack, 20) == 0 && attack->number % 2 == 0) {
                        if (!wire_serves(&rig.wire) || !rig_comm(&rig))
                                return attack_wrong(attack, "no further comm");
                }
        }
        return attack_expect_sane(attack, &rig.wire, OUTCOME_SERVED);
}

const struct attack_kind attacks_comm[] = {
        {"comms half joined", 20, run_half_joined},
        {"intruders in comms", 18, run_intruders},
        {"others' handles and buffers", 10, run_borrowers},
        {"storms of destroy, abort and split", 30, run_storm},
        {NULL, 0, NULL},
};
