/* SPDX-License-Identifier: MIT */
/* SIGKILL at every step of a client's life, and what the other ranks hear of it. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

/* ---- alone: the process dies after step N of its life ---------------------------------------------------------------
 */

enum step {
        STEP_CONNECTED,
        STEP_HELLO_SENT,
        STEP_HELLO,
        STEP_RING_SENT,
        STEP_RING,
        STEP_BUFFER_SENT,
        STEP_BUFFER,
        STEP_JOIN_HALF,
        STEP_JOIN_SENT,
        STEP_JOINED,
        STEP_LINE_HALF,
        STEP_LINES,
        STEP_SPLIT_HALF,
        STEP_SPLIT_SENT,
        STEP_ABORT_SENT,
        STEP_DESTROY_SENT,
        STEP_BUFFER_DESTROY_SENT,
        STEP_COUNT,
};

static void reached(struct attack *attack, enum step step) {
        if (attack->number % STEP_COUNT == step)
                attack_kill_self(attack);
}

static void send(struct wire *wire, const uint8_t *bytes, size_t n) {
        wire->next_id++;
        wire_send(wire, bytes, n, NULL, 0);
}

static void ring(struct rig *rig, uint32_t rank) {
        struct ring_request line = rig_line(rig, rank);
        uint32_t sequence;

        ring_request_set_u64(&line, RING_W_COUNT_LO, ATTACK_BUFFER / 16);
        if (wire_ring_put(&rig->ring, &line, &sequence))
                rig->sequence[rank]++;
}

static enum outcome run_alone(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX], comm_id[128] = {0};
        struct wire_answer answer;
        struct wire wire;
        struct rig rig;

        if (!wire_connect(&wire, attack->socket))
                return attack_wrong(attack, "no connection");
        reached(attack, STEP_CONNECTED);
        send(&wire, bytes, wire_pack_hello(bytes, wire.next_id, 1, 1, 0, "to be killed"));
        reached(attack, STEP_HELLO_SENT);
        wire_await(&wire, wire.next_id - 1);
        reached(attack, STEP_HELLO);
        send(&wire, bytes, wire_pack_ring_open(bytes, wire.next_id, 1));
        reached(attack, STEP_RING_SENT);
        wire_await(&wire, wire.next_id - 1);
        reached(attack, STEP_RING);
        send(&wire, bytes, wire_pack_buffer_create(bytes, wire.next_id, 1, ATTACK_BUFFER));
        reached(attack, STEP_BUFFER_SENT);
        wire_await(&wire, wire.next_id - 1);
        reached(attack, STEP_BUFFER);
        answer = wire_call(&wire, bytes, wire_pack_id_create(bytes, wire.next_id));
        memcpy(comm_id, answer.comm_id, sizeof(comm_id));
        send(&wire, bytes, wire_pack_comm_create(bytes, wire.next_id, comm_id, 2, 0, 0));
        reached(attack, STEP_JOIN_HALF);
        send(&wire, bytes, wire_pack_comm_create(bytes, wire.next_id, comm_id, 2, 1, 0));
        reached(attack, STEP_JOIN_SENT);
        wire_close(&wire);
        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        reached(attack, STEP_JOINED);
        ring(&rig, 0);
        reached(attack, STEP_LINE_HALF);
        for (uint32_t i = 0; i < 40; i++)
                ring(&rig, 1 - i % 2);
        reached(attack, STEP_LINES);
        send(&rig.wire, bytes, wire_pack_comm_split(bytes, rig.wire.next_id, rig.handle[0], 1, 0, 0));
        reached(attack, STEP_SPLIT_HALF);
        send(&rig.wire, bytes, wire_pack_comm_split(bytes, rig.wire.next_id, rig.handle[1], 1, 0, 0));
        reached(attack, STEP_SPLIT_SENT);
        ring(&rig, 0);
        send(&rig.wire, bytes, wire_pack_comm_abort(bytes, rig.wire.next_id, rig.handle[0]));
        reached(attack, STEP_ABORT_SENT);
        send(&rig.wire, bytes, wire_pack_comm_destroy(bytes, rig.wire.next_id, rig.handle[1], rig.sequence[1]));
        reached(attack, STEP_DESTROY_SENT);
        send(&rig.wire, bytes, wire_pack_buffer_destroy(bytes, rig.wire.next_id, 1));
        attack_kill_self(attack);
}

/* ---- in company: rank 1 dies, and rank 0 is told -------------------------------------------------------------------
 */

/* Rank 1's part. Says on the pipe when it has come to the place where it waits for its death. */
static void be_the_victim(struct attack *attack, const uint8_t comm_id[128], uint32_t where, int ready) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;
        struct wire_ring ring_1;
        struct wire wire;

        if (!wire_open(&wire, attack->socket) || !wire_ring_open(&wire, 1, &ring_1))
                _exit(1);
        send(&wire, bytes, wire_pack_comm_create(bytes, wire.next_id, comm_id, where == 0 ? 3 : 2, 1, 1));
        if (where > 0) {
                answer = wire_await(&wire, wire.next_id - 1);
                if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY)
                        _exit(1);
                if (where == 2)
                        send(&wire, bytes, wire_pack_comm_split(bytes, wire.next_id, answer.handle, 1, 0, 0));
                if (where == 3) { /* rings a barrier and waits in it, as rank 0 is not there */
                        struct ring_request line = {0};
                        uint32_t sequence, status;

                        ring_request_set_head(&line, RING_OP_BARRIER, 0, 0);
                        line.word[RING_W_COMM] = answer.handle;
                        line.word[RING_W_SEQUENCE] = 1;
                        wire_ring_put(&ring_1, &line, &sequence);
                        if (write(ready, "x", 1) != 1)
                                _exit(1);
                        ring_producer_wait(&ring_1.producer, sequence, -1, &status);
                        _exit(1);
                }
        }
        if (where < 3 && (!wire_serves(&wire) || write(ready, "x", 1) != 1))
                _exit(1);
        for (;;)
                pause();
}

/* Rank 0, after rank 1 has died in a comm that was there. */
static enum outcome see_the_loss(struct attack *attack, struct wire *wire, uint32_t handle, uint32_t where) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct ring_request line = {0};
        struct wire_ring ring_0;
        uint32_t sequence, status = 0;
        struct wire_answer answer;

        if (!wire_ring_open(wire, 0, &ring_0))
                return attack_wrong(attack, "no ring");
        if (where == 2) {
                answer = wire_call(wire, bytes, wire_pack_comm_split(bytes, wire->next_id, handle, 1, 0, 0));
                if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE || answer.code != RMX_E_PEER_LOST)
                        return attack_wrong(attack, "split: body %d, code %u", answer.body, answer.code);
        }
        ring_request_set_head(&line, RING_OP_BARRIER, 0, 0);
        line.word[RING_W_COMM] = handle;
        line.word[RING_W_SEQUENCE] = 1;
        wire_ring_put(&ring_0, &line, &sequence);
        if (!wire_ring_take(&ring_0, sequence, ATTACK_SILENT_MS, &status))
                return attack_wrong(attack, "a barrier waits for a dead rank");
        if (where == 3 && status == 0) /* both had rung before the death was known: it is a result like any other */
                return OUTCOME_REFUSED;
        if (ring_status_code(status) != RMX_E_PEER_LOST || ring_status_rank(status) != 1)
                return attack_wrong(attack, "%s, rank %d", rmx_error_name((int)ring_status_code(status)),
                                    ring_status_rank(status));
        return OUTCOME_REFUSED;
}

static enum outcome run_company(struct attack *attack) {
        uint32_t where = attack->number % 4; /* gathering, idle in a comm, in a split, waiting in a barrier */
        uint8_t bytes[WIRE_PACKED_MAX], comm_id[128];
        enum outcome outcome = OUTCOME_REFUSED;
        struct wire_answer answer;
        struct wire wire;
        int ready[2];
        char byte;
        pid_t pid;

        if (!wire_open(&wire, attack->socket) || pipe(ready) != 0)
                return attack_wrong(attack, "no session");
        memcpy(comm_id, wire_call(&wire, bytes, wire_pack_id_create(bytes, wire.next_id)).comm_id, sizeof(comm_id));
        send(&wire, bytes, wire_pack_comm_create(bytes, wire.next_id, comm_id, where == 0 ? 3 : 2, 0, 0));
        pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(wire.fd);
                close(ready[0]);
                be_the_victim(attack, comm_id, where, ready[1]);
        }
        close(ready[1]);
        if (read(ready[0], &byte, 1) != 1)
                return attack_wrong(attack, "rank 1 did not get there");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        answer = wire_await(&wire, wire.next_id - 1);
        if (where == 0 && (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE || answer.code != RMX_E_PEER_LOST))
                outcome = attack_wrong(attack, "gathering: body %d, code %u", answer.body, answer.code);
        else if (where > 0 && answer.body != RAILMUX__SESSION__MESSAGE__BODY_COMM_REPLY)
                outcome = attack_wrong(attack, "no comm: body %d, code %u", answer.body, answer.code);
        else if (where > 0)
                outcome = see_the_loss(attack, &wire, answer.handle, where);
        return outcome == OUTCOME_REFUSED ? attack_expect_sane(attack, &wire, outcome) : outcome;
}

const struct attack_kind attacks_kill[] = {
        {"SIGKILL at every step", 3 * STEP_COUNT, run_alone},
        {"SIGKILL of one of several ranks", 20, run_company},
        {NULL, 0, NULL},
};
