/* SPDX-License-Identifier: MIT */
#include "tests/hostile/attack.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/e2e/proc.h"

#define ELEMENTS 256u

uint32_t attack_draw(struct attack *attack, uint32_t bound) {
        return (uint32_t)(proc_random(&attack->random) % bound);
}

void attack_fill(struct attack *attack, void *bytes, size_t size) {
        for (size_t i = 0; i < size; i++)
                ((uint8_t *)bytes)[i] = (uint8_t)proc_random(&attack->random);
}

enum outcome attack_wrong(struct attack *attack, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(attack->result->text, ATTACK_TEXT_MAX, format, arguments);
        va_end(arguments);
        return OUTCOME_WRONG;
}

enum outcome attack_expect_end(struct attack *attack, struct wire *wire) {
        bool ended = wire_drain(wire);

        wire_close(wire);
        return ended ? OUTCOME_ENDED : attack_wrong(attack, "railmuxd keeps a connection that it has to end");
}

enum outcome attack_expect_sane(struct attack *attack, struct wire *wire, enum outcome otherwise) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer = {.body = WIRE_ENDED};
        int r;

        wire->next_id |= UINT64_C(1) << 40; /* what the case has sent may have used any small one */
        r = wire_send(wire, bytes, wire_pack_id_create(bytes, wire->next_id), NULL, 0);
        if (!r)
                answer = wire_await(wire, wire->next_id);
        wire_close(wire);
        if (answer.body == WIRE_ENDED)
                return OUTCOME_ENDED;
        if (answer.body == RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY)
                return otherwise;
        return attack_wrong(attack, "the session neither ends nor serves (body %d)", answer.body);
}

void attack_kill_self(struct attack *attack) {
        attack->result->own_kill = true;
        raise(SIGKILL);
        _exit(1);
}

bool rig_comm(struct rig *rig) {
        struct wire *w = &rig->wire;
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer = wire_call(w, bytes, wire_pack_id_create(bytes, w->next_id));
        uint64_t first = w->next_id;

        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY)
                return false;
        memcpy(rig->comm_id, answer.comm_id, sizeof(rig->comm_id));
        w->next_id += 2;
        for (uint32_t i = 0; i < 2; i++)
                if (wire_send(w, bytes, wire_pack_comm_create(bytes, first + i, rig->comm_id, 2, i, 0), NULL, 0))
                        return false;
        for (uint32_t i = 0; i < 2; i++) {
                do
                        answer = wire_receive(w, ATTACK_SILENT_MS);
                while (answer.body >= 0 && answer.id - first > 1); /* about other calls and comms */
                if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY)
                        return false;
                rig->handle[answer.id - first] = answer.handle;
        }
        rig->sequence[0] = rig->sequence[1] = 0;
        return true;
}

bool rig_open(struct rig *rig, struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;
        struct wire *w = &rig->wire;

        *rig = (struct rig){.attack = attack};
        if (!wire_open(w, attack->socket) || !wire_ring_open(w, 0, &rig->ring))
                return false;
        answer = wire_call(w, bytes, wire_pack_buffer_create(bytes, w->next_id, 1, ATTACK_BUFFER));
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY || answer.n_fds != 1)
                return false;
        rig->memory = mmap(NULL, ATTACK_BUFFER, PROT_READ | PROT_WRITE, MAP_SHARED, answer.fds[0], 0);
        wire_answer_close(&answer);
        return rig->memory != MAP_FAILED && rig_comm(rig);
}

void rig_close(struct rig *rig) {
        wire_close(&rig->wire);
        wire_ring_close(&rig->ring);
        munmap(rig->memory, ATTACK_BUFFER);
}

/* Rank r reads the quarter r of the memory and writes the quarter 2 + r. */
struct ring_request rig_line(struct rig *rig, uint32_t rank) {
        struct ring_request line = {0};

        ring_request_set_head(&line, RING_OP_ALL_REDUCE, RMX_FLOAT32, RMX_SUM);
        line.word[RING_W_COMM] = rig->handle[rank];
        ring_request_set_u64(&line, RING_W_COUNT_LO, ELEMENTS);
        line.word[RING_W_IN_BUFFER] = line.word[RING_W_OUT_BUFFER] = 1;
        ring_request_set_u64(&line, RING_W_IN_LO, rank * (ATTACK_BUFFER / 4));
        ring_request_set_u64(&line, RING_W_OUT_LO, (2 + rank) * (ATTACK_BUFFER / 4));
        line.word[RING_W_SEQUENCE] = rig->sequence[rank] + 1;
        return line;
}

bool rig_works(struct rig *rig) {
        uint32_t sequence[2], status = 0;
        float *quarter[4];
        bool right = true;

        for (uint32_t i = 0; i < 4; i++)
                quarter[i] = rig->memory + i * (ATTACK_BUFFER / 4 / sizeof(float));
        for (uint32_t i = 0; i < ELEMENTS; i++) {
                quarter[0][i] = (float)i;
                quarter[1][i] = 1000;
                quarter[2][i] = quarter[3][i] = -1;
        }
        for (uint32_t r = 0; r < 2; r++) {
                struct ring_request line = rig_line(rig, r);

                if (!wire_ring_put(&rig->ring, &line, &sequence[r])) {
                        fprintf(stderr, "the ring is full\n");
                        return false;
                }
                rig->sequence[r]++;
        }
        for (uint32_t r = 0; r < 2; r++) {
                if (!wire_ring_take(&rig->ring, sequence[r], ATTACK_SILENT_MS, &status)) {
                        fprintf(stderr, "rank %u has no completion\n", r);
                        return false;
                }
                if (ring_status_code(status)) {
                        fprintf(stderr, "rank %u: %s, rank %d\n", r, rmx_error_name((int)ring_status_code(status)),
                                ring_status_rank(status));
                        return false;
                }
        }
        for (uint32_t i = 0; i < 2 * ELEMENTS && right; i++) {
                float value = quarter[2 + i % 2][i / 2];

                right = value == 1000 + (float)(i / 2);
                if (!right)
                        fprintf(stderr, "rank %u: element %u is %g\n", i % 2, i / 2, (double)value);
        }
        return right;
}

bool rig_abort(struct rig *rig) {
        uint8_t bytes[WIRE_PACKED_MAX];
        size_t n = wire_pack_comm_abort(bytes, rig->wire.next_id, rig->handle[0]);

        return wire_call(&rig->wire, bytes, n).body == RAILMUX__SESSION__MESSAGE__BODY_ACK;
}
