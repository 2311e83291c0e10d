/* SPDX-License-Identifier: MIT */
/* What railmuxd hands out, turned against it: flags and contents of the shared descriptions, sizes and pages of memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "tests/hostile/attack.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* The eventfd's description is shared with the executor: its flags and its counter are everybody's. */
static enum outcome run_eventfd(struct attack *attack) {
        uint64_t value = UINT64_MAX - 1;
        bool works = true;
        struct rig rig;
        int fd;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        fd = rig.ring.event_fd;
        for (uint32_t i = 0; i < 8; i++) {
                switch ((attack->number + i) % 6) {
                case 0: /* full, and blocking: a write of the executor would never return */
                        fcntl(fd, F_SETFL, 0);
                        fcntl(fd, F_SETFL, O_NONBLOCK);
                        (void)!write(fd, &value, sizeof(value));
                        fcntl(fd, F_SETFL, 0);
                        break;
                case 1: /* empty, and blocking: a read of the executor would never return */
                        fcntl(fd, F_SETFL, O_NONBLOCK);
                        (void)!read(fd, &value, sizeof(value));
                        value = UINT64_MAX - 1;
                        fcntl(fd, F_SETFL, 0);
                        break;
                case 2: /* signals for somebody else */
                        fcntl(fd, F_SETOWN, getppid());
                        fcntl(fd, F_SETFL, O_NONBLOCK | O_ASYNC);
                        break;
                case 3:
                        fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND);
                        flock(fd, LOCK_EX | LOCK_NB);
                        break;
                case 4:
                        fcntl(fd, F_SETFL, O_NONBLOCK);
                        for (uint32_t k = 0; k < 2000; k++)
                                wire_ring_wake(&rig.ring);
                        break;
                default:
                        fcntl(fd, F_SETFL, O_NONBLOCK);
                        (void)!read(fd, &value, sizeof(value));
                        value = UINT64_MAX - 1;
                        break;
                }
                /* The counter may be full and the description blocking: so that our own wake-up returns, too. */
                fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
                if ((attack->number + i) % 6 == 0 && read(fd, &value, sizeof(value)) > 0)
                        value = UINT64_MAX - 1;
                works = works && rig_works(&rig);
        }
        rig_close(&rig);
        return works ? OUTCOME_SERVED : attack_wrong(attack, "its own ring does not work any more");
}

/* Waits in a read that blocks on the shared description while the executor uses it. */
static enum outcome run_blocking_peer(struct attack *attack) {
        struct rig rig;
        bool works = true;
        pid_t pid;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        fcntl(rig.ring.event_fd, F_SETFL, 0);
        pid = fork();
        if (pid == 0) {
                uint64_t value;

                while (read(rig.ring.event_fd, &value, sizeof(value)) > 0)
                        ;
                _exit(0);
        }
        for (uint32_t i = 0; i < 20; i++)
                works = works && rig_works(&rig);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        rig_close(&rig);
        return works ? OUTCOME_SERVED : attack_wrong(attack, "its own ring does not work any more");
}

/* Seals, sizes, protections: what must not be possible with the memory. */
static const char *may_not(struct rig *rig, int buffer_fd) {
        const int fds[] = {rig->ring.client_fd, rig->ring.executor_fd, buffer_fd};
        size_t bytes = rig->ring.layout.executor_bytes;

        for (size_t i = 0; i < 3; i++) {
                if (ftruncate(fds[i], 0) == 0 || ftruncate(fds[i], 1 << 30) == 0)
                        return "its size can be changed";
                if (fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE) == 0 ||
                    fcntl(fds[i], F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0)
                        return "it can be sealed by clients";
        }
        if (mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rig->ring.executor_fd, 0) != MAP_FAILED)
                return "the executor's area can be mapped for writing";
        if (mprotect((void *)rig->ring.executor_area, bytes, PROT_READ | PROT_WRITE) == 0)
                return "the executor's area can be made writable";
        if (pwrite(rig->ring.executor_fd, "x", 1, 0) == 1)
                return "the executor's area can be written";
        if (fallocate(rig->ring.executor_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
                return "the executor's area can be punched";
        return NULL;
}

static enum outcome run_seals(struct attack *attack) {
        uint8_t bytes[WIRE_PACKED_MAX];
        struct wire_answer answer;
        const char *broken;
        struct rig rig;
        bool works;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        answer = wire_call(&rig.wire, bytes, wire_pack_buffer_create(bytes, rig.wire.next_id, 2, 1 << 16));
        if (answer.n_fds != 1)
                return attack_wrong(attack, "no buffer");
        broken = may_not(&rig, answer.fds[0]);
        /* Pages of its own memory may go: they come back as zeroes, without a fault. */
        for (uint32_t i = 0; i < 50; i++) {
                fallocate(rig.ring.client_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          (off_t)attack_draw(attack, 8) * 4096, 4096);
                madvise(rig.memory, ATTACK_BUFFER, MADV_REMOVE);
                madvise(rig.ring.client_area, rig.ring.layout.client_bytes, MADV_DONTNEED);
        }
        wire_answer_close(&answer);
        works = rig_works(&rig);
        rig_close(&rig);
        if (broken)
                return attack_wrong(attack, "%s", broken);
        return works ? OUTCOME_SERVED : attack_wrong(attack, "its own ring does not work any more");
}

/* Its buffer goes while requests use it. */
static enum outcome run_destroyed_buffers(struct attack *attack) {
        uint32_t sequences[32], n = 0, status;
        uint8_t bytes[WIRE_PACKED_MAX];
        struct rig rig;

        if (!rig_open(&rig, attack))
                return attack_wrong(attack, "no rig");
        for (uint32_t i = 0; i < 32; i++) {
                struct ring_request line = rig_line(&rig, i % 2);

                ring_request_set_u64(&line, RING_W_COUNT_LO, ATTACK_BUFFER / 16);
                if (i == 31 && attack->number % 2)
                        break; /* one rank never comes: the buffer stays in use */
                if (!wire_ring_put(&rig.ring, &line, &sequences[n++]))
                        return attack_wrong(attack, "the ring is full");
                rig.sequence[i % 2]++;
                if (i == attack_draw(attack, 32))
                        wire_send(&rig.wire, bytes, wire_pack_buffer_destroy(bytes, rig.wire.next_id++, 1), NULL, 0);
        }
        wire_send(&rig.wire, bytes, wire_pack_buffer_destroy(bytes, rig.wire.next_id++, 1), NULL, 0);
        wire_send(&rig.wire, bytes, wire_pack_buffer_create(bytes, rig.wire.next_id++, 1, ATTACK_BUFFER), NULL, 0);
        rig.wire.next_id += 100;
        if (!rig_abort(&rig))
                return attack_wrong(attack, "the comm cannot be ended");
        for (uint32_t i = 0; i < n; i++)
                if (!wire_ring_take(&rig.ring, sequences[i], ATTACK_SILENT_MS, &status))
                        return attack_wrong(attack, "a line has no completion after the comm's end");
        return attack_expect_sane(attack, &rig.wire, OUTCOME_SERVED);
}

/* What a request uses is not given back by destroying it: the number stays taken, and the charge with it. */
static enum outcome run_held_buffers(struct attack *attack) {
        uint64_t destroyed;
        uint8_t bytes[WIRE_PACKED_MAX];
        struct rig_lines lines = {0};
        struct ring_request line;
        struct wire_answer answer;
        struct rig rig;

        if (!rig_open(&rig, attack) || !rig_works(&rig))
                return attack_wrong(attack, "no rig");
        line = rig_line(&rig, 0); /* the other rank never comes */
        if (!rig_put(&rig, &lines, &line) || !rig_read(&rig))
                return attack_wrong(attack, "a line is not read");
        destroyed = rig.wire.next_id++;
        for (uint32_t i = 0; i <= attack->number % 3; i++) /* once is enough */
                wire_send(&rig.wire, bytes, wire_pack_buffer_destroy(bytes, destroyed, 1), NULL, 0);
        answer = wire_call(&rig.wire, bytes, wire_pack_buffer_create(bytes, rig.wire.next_id, 1, ATTACK_BUFFER));
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_FAILURE || answer.code != RMX_E_BUSY)
                return attack_wrong(attack, "a buffer in use was made anew");
        if (attack->number % 2) { /* with the session it goes, too */
                rig_close(&rig);
                return OUTCOME_LEFT;
        }
        wire_send(&rig.wire, bytes, wire_pack_comm_abort(bytes, rig.wire.next_id++, rig.handle[0]), NULL, 0);
        if (wire_await(&rig.wire, destroyed).body != RAILMUX__SESSION__MESSAGE__BODY_ACK)
                return attack_wrong(attack, "a buffer is not destroyed when its last request has ended");
        if (!rig_take(&rig, &lines, ATTACK_SILENT_MS))
                return attack_wrong(attack, "a line has no completion after the comm's end");
        answer = wire_call(&rig.wire, bytes, wire_pack_buffer_create(bytes, rig.wire.next_id, 1, ATTACK_BUFFER));
        if (answer.body != RAILMUX__SESSION__MESSAGE__BODY_BUFFER_REPLY)
                return attack_wrong(attack, "the number is not free again");
        wire_answer_close(&answer);
        rig_close(&rig);
        return OUTCOME_REFUSED;
}

const struct attack_kind attacks_memory[] = {
        {"the wake-up's flags and counter", 24, run_eventfd},
        {"a blocked reader on the wake-up", 6, run_blocking_peer},
        {"seals and pages of the memory", 10, run_seals},
        {"buffers that go while in use", 16, run_destroyed_buffers},
        {"buffers that stay while in use", 16, run_held_buffers},
        {NULL, 0, NULL},
};
