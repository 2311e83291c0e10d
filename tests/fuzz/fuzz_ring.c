/* SPDX-License-Identifier: MIT */
/*
 * A client that writes what it likes into its area, between and in all calls of the executor's side of a ring.
 *
 * The input is a list of commands: bytes into the client area, a well-formed line for some sequence (so that the fuzzer
 * gets past the sequence check), latch, complete one of the outstanding, sleep, a kill with takeover. Checked after
 * each: only well-formed sequences are yielded, none twice while in flight, never more than depth, the executor's own
 * words say what it did and nothing else, and no byte of the client area is written (its mapping is read-only: a write
 * is a crash).
 */
#undef NDEBUG /* the asserts are the test */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEPTH 4u

static struct {
        struct ring_layout layout;
        char *client_rw, *client_ro, *executor;
        struct ring_consumer consumer;
        uint32_t first;
        uint32_t in_flight[DEPTH]; /* sequence by slot, 0: none */
} fuzz;

static const uint8_t *input, *input_end;

static uint32_t take(unsigned int bytes) {
        uint32_t value = 0;

        while (bytes-- && input < input_end)
                value = value << 8 | *input++;
        return value;
}

static void fuzz_setup(void) {
        int fd;

        if (fuzz.client_rw)
                return;
        assert(ring_layout_init(&fuzz.layout, DEPTH, 0) == RING_OK);
        fd = memfd_create("client", MFD_CLOEXEC);
        assert(fd >= 0 && ftruncate(fd, (off_t)fuzz.layout.client_bytes) == 0);
        fuzz.client_rw = mmap(NULL, fuzz.layout.client_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        fuzz.client_ro = mmap(NULL, fuzz.layout.client_bytes, PROT_READ, MAP_SHARED, fd, 0);
        assert(fuzz.client_rw != MAP_FAILED && fuzz.client_ro != MAP_FAILED);
        close(fd);
        fuzz.executor = aligned_alloc(4096, fuzz.layout.executor_bytes);
        assert(fuzz.executor);
}

static uint64_t completion(uint32_t slot) {
        return ((const uint64_t *)(const void *)(fuzz.executor + fuzz.layout.completion_offset))[slot];
}

static void took(const struct ring_request *request, uint32_t sequence) {
        (void)request;
        assert(sequence);
        assert(!fuzz.in_flight[sequence % DEPTH]);
        fuzz.in_flight[sequence % DEPTH] = sequence;
}

static void check(void) {
        uint64_t busy = 0;

        for (uint32_t s = 0; s < DEPTH; s++)
                busy |= (uint64_t) !!fuzz.in_flight[s] << s;
        assert(fuzz.consumer.busy[0] == busy);
        assert(!fuzz.consumer.header->next || fuzz.consumer.header->next == fuzz.consumer.next);
        assert(fuzz.consumer.next);
}

/* Once for each input: nothing beyond the words of this depth was ever written. */
static void check_end(void) {
        for (uint32_t i = 1; i < RING_DEPTH_MAX / 64; i++)
                assert(!fuzz.consumer.busy[i]);
        for (size_t i = fuzz.layout.completion_offset + DEPTH * 8; i < fuzz.layout.executor_bytes; i++)
                assert(!fuzz.executor[i]);
}

static void command_takeover(void) {
        uint32_t before[DEPTH], n = 0, cursor = 0, sequence;
        struct ring_request request;

        memcpy(before, fuzz.in_flight, sizeof(before));
        memset(fuzz.in_flight, 0, sizeof(fuzz.in_flight));
        ring_consumer_init(&fuzz.consumer, &fuzz.layout, fuzz.client_ro, fuzz.executor, fuzz.first);
        while (ring_consumer_relatch(&fuzz.consumer, &cursor, &request, &sequence) == RING_OK) {
                /* nothing that is completed, nothing in place of a request in flight, nothing older than the last lap
                 */
                assert((uint32_t)completion(sequence % DEPTH) != sequence);
                assert(!before[sequence % DEPTH] || before[sequence % DEPTH] == sequence);
                assert(ring_sequence_before(sequence, fuzz.consumer.next));
                assert(fuzz.consumer.next - sequence <= 2 * DEPTH);
                took(&request, sequence);
                assert(++n <= DEPTH);
        }
}

static void command(void) {
        uint32_t kind = take(1), sequence, slot;
        struct ring_request request;
        uint64_t *cell;

        switch (kind % 7) {
        case 0: /* any bytes anywhere */
                for (uint32_t at = take(2), n = take(1) % 64; n && input < input_end; n--, at++)
                        fuzz.client_rw[at % fuzz.layout.client_bytes] = (char)take(1);
                break;
        case 1: /* a line, or all but one cell of it */
                sequence = fuzz.consumer.next + take(1) % 16 - 8;
                cell = (uint64_t *)(void *)(fuzz.client_rw + sequence % DEPTH * sizeof(struct ring_line));
                for (uint32_t i = 0, skip = take(1); i < RING_WORDS; i++)
                        if (i != skip)
                                cell[i] = (uint64_t)sequence << 32 | (i * 0x01010101u ^ kind);
                break;
        case 2:
                if (ring_consumer_latch(&fuzz.consumer, &request, &sequence) == RING_OK)
                        took(&request, sequence);
                break;
        case 3:
                slot = take(1) % DEPTH;
                sequence = fuzz.in_flight[slot];
                if (sequence) {
                        fuzz.in_flight[slot] = 0;
                        ring_consumer_complete(&fuzz.consumer, sequence, kind);
                        assert(completion(slot) == ((uint64_t)kind << 32 | sequence));
                }
                break;
        case 4:
                if (ring_consumer_sleep(&fuzz.consumer)) /* then there really is one */
                        assert(ring_consumer_peek(&fuzz.consumer, &request) == RING_OK);
                break;
        case 5:
                ring_consumer_awake(&fuzz.consumer);
                assert(!fuzz.consumer.header->need_wake);
                break;
        default:
                command_takeover();
                break;
        }
        check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const uint32_t firsts[] = {1, 0xfffffffe, 0x7ffffffe, 0xfffffff8};

        fuzz_setup();
        input = data;
        input_end = data + size;
        memset(fuzz.client_rw, 0, fuzz.layout.client_bytes);
        memset(fuzz.executor, 0, fuzz.layout.executor_bytes);
        memset(fuzz.in_flight, 0, sizeof(fuzz.in_flight));
        fuzz.first = firsts[take(1) % 4];
        ring_consumer_init(&fuzz.consumer, &fuzz.layout, fuzz.client_ro, fuzz.executor, fuzz.first);
        while (input < input_end)
                command();
        check_end();
        return 0;
}
