/* SPDX-License-Identifier: MIT */
/* The pipes that tell a client's end (daemon/session_life.h), in the hands of one who does with them what he likes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

#define LIVES 2u
#define CALLS 16u /* that are answered */

static bool life_session(struct wire *wire, const char *socket, uint64_t features) {
        uint8_t bytes[WIRE_PACKED_MAX];
        size_t n = wire_pack_hello(bytes, 1, SESSION_PROTOCOL_MIN, SESSION_PROTOCOL_MAX, features, "pipes");

        return wire_connect(wire, socket) &&
               wire_call(wire, bytes, n).body == RAILMUX__SESSION__MESSAGE__BODY_HELLO_REPLY;
}

/* Asks for pipes. False: there are none. */
static bool life_open(struct wire *wire, int ret_ends[LIVES]) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer = wire_call(wire, bytes, wire_pack_life_open(bytes, wire->next_id));

        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_LIFE_REPLY || answer.n_fds != LIVES) {
                wire_answer_close(&answer);
                return false;
        }
        memcpy(ret_ends, answer.fds, LIVES * sizeof(int));
        return true;
}

static void ends_close(const int ends[LIVES]) {
        for (uint32_t i = 0; i < LIVES; i++)
                close(ends[i]);
}

/* A session that has not said that it knows them. */
static enum outcome run_unagreed(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;

        if (!life_session(&wire, attack->socket, attack->number % 2 ? ~SESSION_FEATURE_LIFE : 0))
                return attack_wrong(attack, "no session");
        wire_send(&wire, bytes, wire_pack_life_open(bytes, wire.next_id), NULL, 0);
        return attack_expect_end(attack, &wire);
}

/* One byte arms a pipe; more than that nobody writes. */
static enum outcome run_bytes(struct attack *attack) {
        static const size_t sizes[] = {2, 3, 4096, 1};
        char bytes[4096] = {1};
        struct wire wire;
        int ends[LIVES];

        if (!life_session(&wire, attack->socket, SESSION_FEATURE_LIFE) || !life_open(&wire, ends))
                return attack_wrong(attack, "no pipes");
        if (write(ends[attack->number % LIVES], bytes, sizes[attack->number % 4]) < 1)
                return attack_wrong(attack, "nothing can be written: %s", strerror(errno));
        if (sizes[attack->number % 4] == 1 &&
            (!wire_serves(&wire) || write(ends[attack->number % LIVES], bytes, 1) != 1))
                return attack_wrong(attack, "one byte is too many");
        return attack_expect_end(attack, &wire);
}

/* An end that goes before it counts means nothing; one that counts is the session's. */
static enum outcome run_closed(struct attack *attack) {
        struct wire wire;
        int ends[LIVES];

        if (!life_session(&wire, attack->socket, SESSION_FEATURE_LIFE) || !life_open(&wire, ends))
                return attack_wrong(attack, "no pipes");
        if (attack->number % 2 && (write(ends[attack->number / 2 % LIVES], "", 1) != 1 || !wire_serves(&wire)))
                return attack_wrong(attack, "it cannot be armed");
        ends_close(ends);
        if (attack->number % 2)
                return attack_expect_end(attack, &wire);
        return wire_serves(&wire) ? attack_expect_sane(attack, &wire, OUTCOME_SERVED)
                                  : attack_wrong(attack, "pipes that did not count have ended the session");
}

/* Again and again, in all states. */
static enum outcome run_again(struct attack *attack) {
        struct wire_answer answer;
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;
        int ends[LIVES], before[LIVES];

        if (!life_session(&wire, attack->socket, SESSION_FEATURE_LIFE))
                return attack_wrong(attack, "no session");
        for (uint32_t i = 0; i < CALLS; i++) {
                if (!life_open(&wire, ends))
                        return attack_wrong(attack, "call %u has no pipes", i);
                if (i > 0 && attack_draw(attack, 2)) /* those that came before these do not count any more */
                        ends_close(before);
                memcpy(before, ends, sizeof(ends));
                if (attack_draw(attack, 2))
                        (void)!write(ends[attack_draw(attack, LIVES)], "", 1);
                if (attack_draw(attack, 2) && !wire_serves(&wire)) /* it may have been seen by then, or not */
                        return attack_wrong(attack, "call %u has ended the session", i);
        }
        answer = wire_call(&wire, bytes, wire_pack_life_open(bytes, wire.next_id));
        wire_answer_close(&answer);
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE || answer.code != RMX_E_LIMIT)
                return attack_wrong(attack, "call %u: body %d, code %u", CALLS, answer.body, answer.code);
        return attack_expect_sane(attack, &wire, OUTCOME_REFUSED);
}

/* Without waiting for one answer, and without ever reading one. */
static enum outcome run_unread(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;
        int r = 0;

        if (!life_session(&wire, attack->socket, SESSION_FEATURE_LIFE))
                return attack_wrong(attack, "no session");
        for (uint32_t i = 0; i < (attack->number % 2 ? CALLS : 200000u) && !r; i++)
                r = wire_send(&wire, bytes, wire_pack_life_open(bytes, wire.next_id++), NULL, 0);
        if (attack->number % 2) {
                wire_close(&wire);
                return OUTCOME_LEFT;
        }
        return r ? attack_expect_end(attack, &wire) : attack_wrong(attack, "railmuxd answers one who does not read");
}

/* The other side of the pipe is in /proc: it can be read, held open, made as large or as small as can be. */
static enum outcome run_reopened(struct attack *attack) {
        struct wire wire;
        int ends[LIVES], other;
        char path[64], byte;

        if (!life_session(&wire, attack->socket, SESSION_FEATURE_LIFE) || !life_open(&wire, ends))
                return attack_wrong(attack, "no pipes");
        snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
        other = open(path, (attack->number % 2 ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
        if (other < 0) {
                wire_close(&wire);
                return OUTCOME_BARRED;
        }
        (void)fcntl(ends[0], F_SETPIPE_SZ, attack->number % 3 ? 4096 : 1 << 20);
        /* Whoever reads first has it; a second byte that railmuxd reads ends the session. */
        for (uint32_t i = 0; i < 200; i++) {
                struct pollfd poller = {.fd = other, .events = POLLIN};

                (void)!write(ends[0], "", 1);
                (void)poll(&poller, 1, 0);
                (void)!read(other, &byte, 1);
        }
        if (attack->number % 4 < 2)
                ends_close(ends);
        return attack_expect_sane(attack, &wire, OUTCOME_SERVED);
}

/* Rank 1 of three, of which the third never comes. Tells which descriptors its ends are, and waits for its death. */
static void be_the_victim(const char *socket, const uint8_t comm_id[128], int told) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire wire;
        int ends[LIVES];

        if (!life_session(&wire, socket, SESSION_FEATURE_LIFE) || !life_open(&wire, ends))
                _exit(1);
        for (uint32_t i = 0; i < LIVES; i++)
                if (write(ends[i], "", 1) != 1)
                        _exit(1);
        wire_send(&wire, bytes, wire_pack_comm_create(bytes, wire.next_id++, comm_id, 3, 1, 0), NULL, 0);
        if (!wire_serves(&wire) || write(told, ends, sizeof(ends)) != sizeof(ends))
                _exit(1);
        for (;;)
                pause();
}

/* Somebody else keeps the ends of one who dies: then it is the socket that tells. */
static enum outcome run_kept(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX], comm_id[128];
        int ends[LIVES], kept[LIVES], told[2];
        struct wire_answer answer;
        struct wire wire;
        uint64_t call;
        char path[64];
        pid_t pid;

        if (!wire_open(&wire, attack->socket) || pipe2(told, O_CLOEXEC) < 0)
                return attack_wrong(attack, "no session");
        answer = wire_call(&wire, bytes, wire_pack_id_create(bytes, wire.next_id));
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_ID_REPLY)
                return attack_wrong(attack, "no id");
        memcpy(comm_id, answer.comm_id, sizeof(comm_id));
        call = wire.next_id++;
        wire_send(&wire, bytes, wire_pack_comm_create(bytes, call, comm_id, 3, 0, 0), NULL, 0);
        pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(wire.fd);
                be_the_victim(attack->socket, comm_id, told[1]);
        }
        close(told[1]);
        if (read(told[0], ends, sizeof(ends)) != sizeof(ends))
                return attack_wrong(attack, "rank 1 has no pipes");
        for (uint32_t i = 0; i < LIVES; i++) {
                snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, ends[i]);
                kept[i] = open(path, O_WRONLY | O_CLOEXEC);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        answer = wire_await(&wire, call);
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE || answer.code != RMX_E_PEER_LOST)
                return attack_wrong(attack, "body %d, code %u", answer.body, answer.code);
        if (kept[0] < 0 || kept[1] < 0) {
                wire_close(&wire);
                return OUTCOME_BARRED;
        }
        return attack_expect_sane(attack, &wire, OUTCOME_REFUSED);
}

const struct attack_kind attacks_life[] = {
        {"pipes that were not agreed on", 4, run_unagreed}, {"bytes in pipes that tell an end", 8, run_bytes},
        {"pipes that are closed", 8, run_closed},           {"pipes again and again", 8, run_again},
        {"pipes that nobody takes", 4, run_unread},         {"both sides of a pipe", 12, run_reopened},
        {"pipes that somebody else keeps", 4, run_kept},    {NULL, 0, NULL},
};
