/* SPDX-License-Identifier: MIT */
/*
 * The two futex calls of the ring.
 *
 * They are the shared kind: waiter and waker are different processes with different mappings of one memfd, so the
 * kernel has to find the sleeper by file and offset. FUTEX_WAIT only reads the word, and the kernel takes a read-only
 * mapping of a descriptor that was opened read-only; that is all a client has of the executor's area.
 *
 * The waker is an executor's worker that serves everybody, and who sleeps is the client's business: it could have any
 * number of threads sleep on one word. So a wake-up is for a bounded number of them. One request has one thread that
 * waits for it, as a rule; of more than the bound the others find out when they look by themselves.
 *
 * The word is the sequence half of a completion word. A futex is 32 bits wide; the sequence is the half that is sure to
 * change when the slot's request completes.
 */
#include "ring/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC INT64_C(1000000000)
/* How long to sleep where the kernel refuses to wait (memory pressure, a filter): then this is a slow poll, not a busy
 * one. */
#define FUTEX_REFUSED_NS 1000000

static const uint32_t *futex_low_half(const _Atomic uint64_t *word) {
        const uint32_t *half = (const uint32_t *)(const void *)word; /* never dereferenced here: for the kernel only */

        return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? half : half + 1;
}

static int64_t futex_now(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

int64_t ring_futex_deadline(int64_t timeout_ns) {
        int64_t deadline;

        if (timeout_ns < 0 || __builtin_add_overflow(futex_now(), timeout_ns, &deadline))
                return -1;
        return deadline;
}

bool ring_futex_wait(const _Atomic uint64_t *word, uint32_t expected, int64_t deadline_ns) {
        struct timespec deadline = {.tv_sec = deadline_ns / NSEC_PER_SEC, .tv_nsec = deadline_ns % NSEC_PER_SEC};

        /* The bitset form takes an absolute time, so a wait that is interrupted again and again still ends. */
        if (!syscall(SYS_futex, futex_low_half(word), FUTEX_WAIT_BITSET, expected, deadline_ns < 0 ? NULL : &deadline,
                     NULL, FUTEX_BITSET_MATCH_ANY))
                return true;
        if (errno == ETIMEDOUT)
                return false;
        if (errno != EAGAIN && errno != EINTR) {
                nanosleep(&(struct timespec){.tv_nsec = FUTEX_REFUSED_NS}, NULL);
                return deadline_ns < 0 || futex_now() < deadline_ns;
        }
        return true;
}

void ring_futex_wake(const _Atomic uint64_t *word) {
        syscall(SYS_futex, futex_low_half(word), FUTEX_WAKE, RING_FUTEX_WAKES, NULL, NULL, 0);
}
