/* SPDX-License-Identifier: MIT */
/* Packets that are none, messages that say nothing true, and messages at the wrong time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

/* Half of the cases break in before HELLO. */
static bool open_somehow(struct attack *attack, struct wire *wire) {
        return attack_draw(attack, 2) ? wire_open(wire, attack->socket) : wire_connect(wire, attack->socket);
}

static enum outcome run_garbage(struct attack *attack) {
        uint32_t n = attack_draw(attack, 4) ? attack_draw(attack, 64) : attack_draw(attack, 65536);
        uint8_t *bytes = malloc(65536);
        struct wire wire;

        if (!bytes || !open_somehow(attack, &wire))
                return attack_wrong(attack, "no session");
        attack_fill(attack, bytes, n);
        for (uint32_t i = attack_draw(attack, 3); i < 3; i++)
                wire_send(&wire, bytes + i * (n / 8), n - i * (n / 4), NULL, 0);
        free(bytes);
        return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
}

/* A valid call with random numbers in it. */
static size_t any_call(struct attack *attack, uint8_t *bytes, uint64_t id) {
        uint8_t comm_id[128];

        switch (attack_draw(attack, 9)) {
        case 0:
                return wire_pack_hello(bytes, id, attack_draw(attack, 3), attack_draw(attack, 3), ~UINT64_C(0),
                                       "again");
        case 1:
                return wire_pack_ring_open(bytes, id, attack_draw(attack, 12));
        case 2:
                return wire_pack_buffer_create(bytes, id, attack_draw(attack, 4), attack_draw(attack, 100000));
        case 3:
                return wire_pack_buffer_destroy(bytes, id, attack_draw(attack, 4));
        case 4:
                attack_fill(attack, comm_id, sizeof(comm_id));
                return wire_pack_comm_create(bytes, id, comm_id, attack_draw(attack, 70), attack_draw(attack, 70),
                                             (int32_t)attack_draw(attack, 12) - 2);
        case 5:
                return wire_pack_comm_split(bytes, id, attack_draw(attack, 4), attack_draw(attack, 40),
                                            (int32_t)attack_draw(attack, 4) - 1, 0);
        case 6:
                return wire_pack_comm_destroy(bytes, id, attack_draw(attack, 4), attack_draw(attack, 5));
        case 7:
                return wire_pack_comm_abort(bytes, id, attack_draw(attack, 4));
        default:
                return wire_pack_id_create(bytes, id);
        }
}

/* Valid calls with some bytes changed. */
static enum outcome run_mutants(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        for (uint32_t i = 1 + attack_draw(attack, 12); i > 0; i--) {
                size_t n = any_call(attack, bytes, wire.next_id++);

                for (uint32_t k = attack_draw(attack, 5) == 0 ? 1 + attack_draw(attack, 3) : 0; k > 0; k--)
                        bytes[attack_draw(attack, (uint32_t)n)] ^= (uint8_t)(1u << attack_draw(attack, 8));
                if (wire_send(&wire, bytes, n, NULL, 0))
                        break;
        }
        return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
}

/* Only a beginning of a message, or a message and more behind it. */
static enum outcome run_truncated(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX * 2];
        struct wire wire;
        size_t n;

        if (!open_somehow(attack, &wire))
                return attack_wrong(attack, "no session");
        n = any_call(attack, bytes, wire.next_id++);
        if (attack_draw(attack, 2)) {
                n = attack_draw(attack, (uint32_t)n);
        } else {
                attack_fill(attack, bytes + n, 32);
                n += 1 + attack_draw(attack, 31);
        }
        wire_send(&wire, bytes, n, NULL, 0);
        return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
}

static enum outcome run_oversized(struct attack *attack) {
        static const uint32_t sizes[] = {FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX + 2, 2 * FRAME_BYTES_MAX, 150000, 200000};
        uint32_t size = sizes[attack->number % 5];
        uint8_t *bytes = calloc(1, size);
        struct wire wire;
        int r;

        if (!bytes || !open_somehow(attack, &wire))
                return attack_wrong(attack, "no session");
        if (attack_draw(attack,
                        2)) /* a message that would be right, followed by an unknown field that fills the rest */
                wire_pack_id_create(bytes, wire.next_id++);
        r = wire_send(&wire, bytes, size, NULL, 0);
        free(bytes);
        if (r == EMSGSIZE || r == ENOBUFS) {
                wire_close(&wire);
                return OUTCOME_BARRED;
        }
        return attack_expect_end(attack, &wire);
}

/* As many elements and as much text as a packet can say. */
static enum outcome run_greedy(struct attack *attack) {
        uint8_t *bytes = malloc(FRAME_BYTES_MAX);
        struct wire wire;
        size_t n = 0;

        if (!bytes || !open_somehow(attack, &wire))
                return attack_wrong(attack, "no session");
        if (attack->number % 2) { /* thousands of unknown fields, each of which is kept while unpacking */
                uint32_t tag = 100 + attack_draw(attack, 1000);

                while (n + 4 < FRAME_BYTES_MAX) {
                        bytes[n++] = (uint8_t)(tag << 3 | 0x80);
                        bytes[n++] = (uint8_t)(tag >> 4 & 0x7f);
                        bytes[n++] = (uint8_t)attack_draw(attack, 128);
                }
        } else { /* a body that says to be longer than the packet */
                wire_pack_id_create(bytes, 1);
                n = 2;
                bytes[n++] = 0x12;
                bytes[n++] = 0xff;
                bytes[n++] = 0xff;
                bytes[n++] = 0x7f;
        }
        wire_send(&wire, bytes, n, NULL, 0);
        free(bytes);
        return attack_expect_end(attack, &wire);
}

static enum outcome run_versions(struct attack *attack) {
        static const struct {
                uint32_t min, max, code; /* 0: served; RMX_E_COUNT: ended without a word */
        } ranges[] = {
                {0, 0, RMX_E_VERSION},
                {2, 9, RMX_E_VERSION},
                {~0u, ~0u, RMX_E_VERSION},
                {2, 1, RMX_E_COUNT},
                {~0u, 0, RMX_E_COUNT},
                {0, ~0u, 0},
                {1, 1, 0},
                {1, 0x80000000u, 0},
                {0x80000000u, ~0u, RMX_E_VERSION},
                {SESSION_PROTOCOL_MAX + 1, SESSION_PROTOCOL_MAX + 1, RMX_E_VERSION},
        };
        uint32_t i = attack->number % (sizeof(ranges) / sizeof(ranges[0]));
        uint64_t features = (uint64_t)attack_draw(attack, ~0u) << 32 | attack_draw(attack, ~0u);
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;
        struct wire wire;

        if (!wire_connect(&wire, attack->socket))
                return attack_wrong(attack, "no connection");
        answer = wire_call(&wire, bytes,
                           wire_pack_hello(bytes, wire.next_id, ranges[i].min, ranges[i].max, features, "\xff\x80\n"));
        if (ranges[i].code == RMX_E_COUNT)
                return answer.body == WIRE_ENDED ? attack_expect_end(attack, &wire)
                                                 : attack_wrong(attack, "an empty range of versions was answered");
        if (ranges[i].code) {
                if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE || answer.code != ranges[i].code)
                        return attack_wrong(attack, "versions %u .. %u: body %d, code %u", ranges[i].min, ranges[i].max,
                                            answer.body, answer.code);
                return attack_expect_end(attack, &wire);
        }
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY || answer.version != SESSION_PROTOCOL_MAX)
                return attack_wrong(attack, "versions %u .. %u: body %d, version %u", ranges[i].min, ranges[i].max,
                                    answer.body, answer.version);
        answer = wire_call(&wire, bytes, wire_pack_hello(bytes, wire.next_id, 7, 9, features, "again"));
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY || answer.version != SESSION_PROTOCOL_MAX)
                return attack_wrong(attack, "a second HELLO changes something");
        return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
}

/* Valid messages that are out of place: in which order, from whom, without an id. */
static enum outcome run_order(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;
        size_t n;

        switch (attack->number % 4) {
        case 0: /* no HELLO */
                if (!wire_connect(&wire, attack->socket))
                        return attack_wrong(attack, "no connection");
                do
                        n = any_call(attack, bytes, wire.next_id);
                while (n >= 3 && bytes[2] == 0x12); /* a HELLO after all */
                break;
        case 1: /* railmuxd's own words */
                if (!open_somehow(attack, &wire))
                        return attack_wrong(attack, "no connection");
                n = wire_pack_foreign(bytes, wire.next_id, attack_draw(attack, 100));
                break;
        case 2: /* no id */
                if (!wire_open(&wire, attack->socket))
                        return attack_wrong(attack, "no session");
                do
                        n = any_call(attack, bytes, 0);
                while (n == 0);
                break;
        default: /* what was asked for twice at the same time, with one id */
                if (!wire_open(&wire, attack->socket))
                        return attack_wrong(attack, "no session");
                for (uint32_t i = 0; i < 8; i++)
                        wire_send(&wire, bytes, wire_pack_ring_open(bytes, 5, attack_draw(attack, 8)), NULL, 0);
                for (uint32_t i = 0; i < 8; i++)
                        wire_send(&wire, bytes, wire_pack_buffer_create(bytes, 5, 3, 4096), NULL, 0);
                return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
        }
        wire_send(&wire, bytes, n, NULL, 0);
        return attack_expect_end(attack, &wire);
}

/* Arguments that name nothing: answered with the code of the law, and the session goes on. */
static enum outcome run_arguments(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX], comm_id[128], good[128];
        uint32_t which = attack->number % 16, code = RMX_E_INVALID;
        struct wire_answer answer;
        struct wire wire;
        uint64_t id;
        size_t n;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        answer = wire_call(&wire, bytes, wire_pack_id_create(bytes, wire.next_id));
        memcpy(good, answer.comm_id, sizeof(good));
        memcpy(comm_id, good, sizeof(comm_id));
        id = wire.next_id;
        switch (which) {
        case 0:
                n = wire_pack_ring_open(bytes, id, 8 + attack_draw(attack, 1000));
                break;
        case 1:
                n = wire_pack_ring_open(bytes, id, ~0u);
                break;
        case 2:
                n = wire_pack_buffer_create(bytes, id, 0, 4096);
                break;
        case 3:
                n = wire_pack_buffer_create(bytes, id, 1, 0);
                break;
        case 4:
                n = wire_pack_buffer_create(bytes, id, 1, ~UINT64_C(0) - attack_draw(attack, 8192));
                code = RMX_E_COUNT; /* too much, or no number of bytes at all */
                break;
        case 5:
                n = wire_pack_buffer_create(bytes, id, 1, UINT64_C(1) << (44 + attack_draw(attack, 19)));
                code = RMX_E_COUNT;
                break;
        case 6: /* a forged id */
                comm_id[attack_draw(attack, 128)] ^= (uint8_t)(1u << attack_draw(attack, 8));
                n = wire_pack_comm_create(bytes, id, comm_id, 2, 0, 0);
                code = RMX_E_DENIED;
                break;
        case 7:
                attack_fill(attack, comm_id, sizeof(comm_id));
                n = wire_pack_comm_create(bytes, id, comm_id, 2, 0, 0);
                code = RMX_E_DENIED;
                break;
        case 8:
                n = wire_pack_comm_create(bytes, id, good, 0, 0, 0);
                break;
        case 9:
                n = wire_pack_comm_create(bytes, id, good, 65 + attack_draw(attack, 1u << 31), 0, 0);
                break;
        case 10:
                n = wire_pack_comm_create(bytes, id, good, 4, 4 + attack_draw(attack, 1u << 31), 0);
                break;
        case 11:
                n = wire_pack_comm_create(bytes, id, good, 4, 0, attack_draw(attack, 2) ? 8 : -2);
                break;
        case 12:
                n = wire_pack_comm_split(bytes, id, 1 + attack_draw(attack, 9), 1, 0, 0);
                break;
        case 13:
                n = wire_pack_comm_destroy(bytes, id, attack_draw(attack, 9), 0);
                break;
        case 14:
                n = wire_pack_comm_abort(bytes, id, attack_draw(attack, 9));
                break;
        default:
                n = wire_pack_buffer_destroy(bytes, id,
                                             attack_draw(attack, 9)); /* had been destroyed, for all we know */
                code = RMX_OK;
                break;
        }
        answer = wire_call(&wire, bytes, n);
        if (code == RMX_OK ? answer.body != RAILMUX__SESSION__MESSAGE__BODY_ACK
                           : answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE)
                return attack_wrong(attack, "argument case %u: body %d, code %u", which, answer.body, answer.code);
        if (code != RMX_E_COUNT && answer.code != code)
                return attack_wrong(attack, "argument case %u: %s instead of %s", which,
                                    rmx_error_name((int)answer.code), rmx_error_name((int)code));
        return attack_expect_sane(attack, &wire, OUTCOME_REFUSED);
}

const struct attack_kind attacks_frame[] = {
        {"random bytes", 40, run_garbage},
        {"changed messages", 40, run_mutants},
        {"cut and lengthened messages", 30, run_truncated},
        {"oversized packets", 15, run_oversized},
        {"much in one packet", 10, run_greedy},
        {"versions", 20, run_versions},
        {"order of messages", 30, run_order},
        {"arguments of calls", 32, run_arguments},
        {NULL, 0, NULL},
};
