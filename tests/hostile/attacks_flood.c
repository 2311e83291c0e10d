/* SPDX-License-Identifier: MIT */
/* Too much of everything: calls without reading, connections, objects up to the limit, lines, wake-ups. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

#define CONNECTIONS_MAX 1300u /* more than a tenant's sessions by default */

/* It asks and never reads. */
static enum outcome run_deaf(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;
        int r = 0;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        for (uint32_t i = 0; i < 200000 && r == 0; i++) {
                uint64_t id = wire.next_id++;
                size_t n;

                switch (attack->number % 4) {
                case 0:
                        n = wire_pack_id_create(bytes, id);
                        break;
                case 1: /* answers with descriptors */
                        n = wire_pack_ring_open(bytes, id, i % 8);
                        break;
                case 2:
                        n = wire_pack_buffer_create(bytes, id, 1 + i % 100, 4096);
                        break;
                default:
                        n = wire_pack_hello(bytes, id, 1, 1, 0, "deaf");
                        break;
                }
                r = wire_send(&wire, bytes, n, NULL, 0);
        }
        if (r == 0)
                return attack_wrong(attack, "railmuxd answers for ever to one who does not read");
        return attack_expect_end(attack, &wire);
}

/* Comms that can never be complete, more than a session may wait for. */
static enum outcome run_calls(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;
        struct wire wire;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        answer = wire_call(&wire, bytes, wire_pack_id_create(bytes, wire.next_id));
        for (uint32_t i = 0; i < 1100; i++) /* the same rank, waiting again and again */
                wire_send(&wire, bytes, wire_pack_comm_create(bytes, wire.next_id++, answer.comm_id, 2, 0, 0), NULL, 0);
        return attack_expect_end(attack, &wire);
}

static enum outcome run_connections(struct attack *attack) {
        uint32_t n, refused = 0, wanted = attack->number % 4 == 3 ? CONNECTIONS_MAX : 300;
        static struct wire wires[CONNECTIONS_MAX];
        uint8_t bytes[WIRE_PACKED_MAX];
        struct rlimit limit;

        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        for (n = 0; n < wanted; n++) {
                if (!wire_connect(&wires[n], attack->socket))
                        break;
                if (attack->number % 2)
                        wire_send(&wires[n], bytes, wire_pack_hello(bytes, 1, 1, 1, 0, "flood"), NULL, 0);
        }
        for (uint32_t i = 0; attack->number % 4 == 3 && i < n; i++) {
                struct wire_answer answer = wire_receive(&wires[i], ATTACK_SILENT_MS);

                refused += answer.body == RAILMUX__SESSION__MESSAGE__BODY_FAILURE && answer.code == RMX_E_LIMIT;
                if (answer.body == WIRE_SILENT)
                        return attack_wrong(attack, "connection %u of %u hears nothing", i, n);
        }
        while (n > 0)
                wire_close(&wires[--n]);
        return refused ? OUTCOME_REFUSED : OUTCOME_LEFT;
}

/* Memory up to the tenant's limit; what is refused costs nothing, and what was given can be given back. */
static enum outcome run_limit(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;
        struct wire wire;
        uint32_t n = 0;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        do {
                n++;
                answer = wire_call(&wire, bytes,
                                   wire_pack_buffer_create(bytes, wire.next_id, n, UINT64_C(1) << (28 + n % 3)));
                wire_answer_close(&answer);
        } while (answer.body == RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY && n < 5000);
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE ||
            (answer.code != RMX_E_LIMIT && answer.code != RMX_E_NO_MEMORY))
                return attack_wrong(attack, "buffer %u: body %d, code %u", n, answer.body, answer.code);
        for (uint32_t i = 1; attack->number % 2 == 0 && i < n; i++) {
                answer = wire_call(&wire, bytes, wire_pack_buffer_destroy(bytes, wire.next_id, i));
                if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_ACK)
                        return attack_wrong(attack, "buffer %u cannot be destroyed", i);
        }
        return attack_expect_sane(attack, &wire, OUTCOME_REFUSED);
}

/* Full rings on every GPU, never harvested, and wake-ups without end. */
static enum outcome run_rings(struct attack *attack) {
        struct wire_ring rings[8];
        struct wire wire;
        uint32_t sequence;

        if (!wire_open(&wire, attack->socket))
                return attack_wrong(attack, "no session");
        for (uint32_t gpu = 0; gpu < 8; gpu++)
                if (!wire_ring_open(&wire, gpu, &rings[gpu]))
                        return attack_wrong(attack, "no ring");
        for (uint32_t i = 0; i < 8 * 300; i++) {
                struct ring_request line = {0};

                line.word[RING_W_HEAD] = attack_draw(attack, ~0u);
                line.word[RING_W_COMM] = attack_draw(attack, 4);
                wire_ring_put(&rings[i % 8], &line, &sequence);
                if (i % 4 == 0)
                        wire_ring_wake(&rings[attack_draw(attack, 8)]);
        }
        for (uint32_t i = 0; i < 20000; i++)
                wire_ring_wake(&rings[i % 8]);
        return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
}

/* Rings as fast as it is answered, for a while: others get their turn. */
static enum outcome run_ringing(struct attack *attack) {
        uint32_t status, sequence[200], n = 0;
        struct rig rig;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        for (uint32_t round = 0; round < 40; round++) {
                for (n = 0; n < 200; n++) {
                        struct ring_request line = rig_line(&rig, n % 2);

                        ring_request_set_u64(&line, RING_W_COUNT_LO, n % 8 < 2 ? 8192 : 1);
                        if (!wire_ring_put(&rig.ring, &line, &sequence[n]))
                                return attack_wrong(attack, "the ring is full");
                        rig.sequence[n % 2]++;
                }
                for (uint32_t i = 0; i < n; i++)
                        if (!wire_ring_take(&rig.ring, sequence[i], ATTACK_SILENT_MS, &status) || status)
                                return attack_wrong(attack, "status %u", status);
        }
        rig_close(&rig);
        return OUTCOME_SERVED;
}

/* The operators' socket, for whoever may open it. */
static enum outcome run_control(struct attack *attack) {
        char path[108];
        uint8_t bytes[4096];
        size_t n = attack_draw(attack, sizeof(bytes));
        struct wire wire;

        snprintf(path, sizeof(path), "%.*s/control.sock", (int)(strrchr(attack->socket, '/') - attack->socket),
                 attack->socket);
        if (!wire_connect(&wire, path))
                return attack_wrong(attack, "no connection");
        attack_fill(attack, bytes, n);
        wire_send(&wire, bytes, attack->number % 8 ? n : 0, NULL, 0);
        if (attack->number % 4 == 0) {
                struct pollfd poller = {.fd = wire.fd, .events = POLLIN};

                poll(&poller, 1, 100);
        }
        wire_close(&wire);
        return OUTCOME_LEFT;
}

const struct attack_kind attacks_flood[] = {
        {"answers that nobody reads", 8, run_deaf},       {"more calls than may wait", 6, run_calls},
        {"floods of connections", 16, run_connections},   {"memory up to the limit", 6, run_limit},
        {"full rings, floods of wake-ups", 8, run_rings}, {"rings without a pause", 6, run_ringing},
        {"the operators' socket", 16, run_control},       {NULL, 0, NULL},
};
