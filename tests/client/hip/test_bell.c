/* SPDX-License-Identifier: MIT */
/*
 * The bell kernels on a GPU, against a stand-in for the executor (serve.hip). Without a GPU it says so and is skipped.
 * With the argument "time" it also measures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "client/hip/private.h"
#include "ring/line.h"
#include "tests/client/hip/serve.h"

extern const struct client_gpu_ops railmux_client_gpu;

#define SKIPPED 77
#define MEMORY  65536u

#define LINES_AT_ONCE (MEMORY / (RING_WORDS * 8u))

#define must(condition)                                                                                                \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, error);                    \
                        exit(1);                                                                                       \
                }                                                                                                      \
        } while (0)

/* Whoever waits for ever is the one behind the last that is named. */
#define TRY(test)                                                                                                      \
        do {                                                                                                           \
                test();                                                                                                \
                printf("%s\n", #test);                                                                                 \
        } while (0)

static char error[CLIENT_GPU_TEXT];
static const struct client_gpu_ops *ops = &railmux_client_gpu;
static struct client_gpu *gpu;
static struct serve_shared *shared;
static hipStream_t serving, stream, other;
static unsigned char *in, *out; /* on the device */
static unsigned char here[MEMORY], there[MEMORY];
static uint32_t calls; /* of slot 0 */

static void serve_begin(void) {
        char *area = gpu->area;
        void *parameters[] = {&area, &shared};

        shared->stop = 0;
        must(hipLaunchKernel(serve_kernel(), (dim3){1, 1, 1}, (dim3){serve_threads(), 1, 1}, parameters, 0, serving) ==
             hipSuccess);
}

static void serve_end(void) {
        __atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
        must(hipStreamSynchronize(serving) == hipSuccess);
}

/* Ring sequence drawn last. */
static uint32_t gpu_sequence(void) {
        uint32_t sequence;

        must(hipMemcpyAsync(&sequence, gpu->area + offsetof(struct bell_header, counter), sizeof(sequence),
                            hipMemcpyDeviceToHost, gpu->stream) == hipSuccess);
        must(hipStreamSynchronize(gpu->stream) == hipSuccess);
        return sequence;
}

static void setup(void) {
        struct client_gpu_export area;
        void *host, *latch;

        must(!ops->open(0, &gpu, &area, error));
        must(area.kind == EXPORT_IPC && area.bytes == BELL_AREA_BYTES);
        host = mmap(NULL, sizeof(struct bell_host), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        latch = mmap(NULL, BELL_LATCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        must(host != MAP_FAILED && latch != MAP_FAILED);
        must(!ops->attach(gpu, host, sizeof(struct bell_host), latch, BELL_LATCH_BYTES, error));
        must(hipStreamCreateWithFlags(&serving, hipStreamNonBlocking) == hipSuccess);
        must(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess);
        must(hipStreamCreateWithFlags(&other, hipStreamNonBlocking) == hipSuccess);
        must(hipMalloc((void **)&in, MEMORY) == hipSuccess && hipMalloc((void **)&out, MEMORY) == hipSuccess);
        must(hipHostMalloc((void **)&shared, sizeof(*shared), hipHostMallocMapped) == hipSuccess);
        memset(shared, 0, sizeof(*shared));
        shared->next = 1;
        must(!ops->comm_reset(gpu, 0, error) && !ops->comm_reset(gpu, 255, error));
}

static struct client_gpu_bell request(uint32_t in_bytes, uint32_t out_bytes, bool inlined) {
        struct client_gpu_bell bell = {
                .inlined = inlined, .in = in, .out = out, .in_bytes = in_bytes, .out_bytes = out_bytes};

        for (uint32_t i = 0; i < 16; i++)
                bell.word[i] = 0xabc0 + i;
        bell.word[SERVE_W_IN] = in_bytes;
        bell.word[SERVE_W_OUT] = out_bytes;
        bell.word[SERVE_W_STATUS] = bell.word[SERVE_W_DELAY] = 0;
        bell.word[RING_W_ARGUMENT] = 0;
        return bell;
}

static void copy(void *to, const void *from, size_t bytes) {
        must(hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, stream) == hipSuccess);
        must(hipStreamSynchronize(stream) == hipSuccess);
}

static void settle(void) {
        must(hipStreamSynchronize(stream) == hipSuccess);
}

/* Poisons the output and fills the input, which depends on the position and the salt. */
static void fill(uint32_t salt) {
        for (uint32_t i = 0; i < MEMORY; i++)
                here[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + salt);
        memset(there, 0x5a, MEMORY);
        copy(in, here, MEMORY);
        copy(out, there, MEMORY);
}

static void check_result(uint32_t in_shift, uint32_t out_shift, uint32_t in_bytes, uint32_t out_bytes) {
        copy(there, out, MEMORY);
        for (uint32_t i = 0; i < MEMORY; i++) {
                unsigned char expected = 0x5a;

                if (i >= out_shift && i < out_shift + out_bytes) {
                        uint32_t at = i - out_shift, packet = at / 8;
                        uint64_t payload = 0;

                        for (uint32_t k = 0; k < 8; k++)
                                if (packet * 8 + k < in_bytes)
                                        payload |= (uint64_t)here[in_shift + packet * 8 + k] << (8 * k);
                        expected = (unsigned char)(serve_result(payload, packet) >> (8 * (at % 8)));
                }
                if (there[i] != expected) {
                        fprintf(stderr, "byte %u of %u: %02x, must be %02x\n", i, out_bytes, there[i], expected);
                        exit(1);
                }
        }
}

static const struct serve_entry *last_entry(void) {
        return &shared->log[gpu_sequence() % SERVE_LOG];
}

static void test_inline(void) {
        static const uint32_t sizes[] = {0, 1, 3, 8, 9, 16, 250, 256, 1000, 1024, 4099, 8192, 8193, 16383, 16384};
        uint32_t n = sizeof(sizes) / sizeof(sizes[0]);

        for (uint32_t i = 0; i < n * 4; i++) {
                uint32_t in_bytes = sizes[i % n], out_bytes = i / n % 2 ? sizes[(i * 5 + 3) % n] : in_bytes;
                uint32_t in_shift = i < 2 * n ? 0 : i % 9, out_shift = i < 2 * n ? 0 : i * 3 % 13;
                struct client_gpu_bell bell = request(in_bytes, out_bytes, true);

                fill(i);
                bell.in = in + in_shift;
                bell.out = out + out_shift;
                must(!ops->call(gpu, &bell, stream, error));
                settle();
                calls++;
                check_result(in_shift, out_shift, in_bytes, out_bytes);
        }
}

/* A call comes after what is before on its stream, also on the default stream. */
static void test_stream(void) {
        struct client_gpu_bell bell = request(1024, 1024, true);

        for (uint32_t i = 0; i < 50; i++) {
                hipStream_t on = i % 2 ? stream : NULL;
                void *parameters[] = {&in};

                fill(i);
                must(hipStreamSynchronize(on) == hipSuccess);
                for (uint32_t k = 0; k < 4; k++)
                        must(hipLaunchKernel(work_kernel(), (dim3){1, 1, 1}, (dim3){256, 1, 1}, parameters, 0, on) ==
                             hipSuccess);
                must(!ops->call(gpu, &bell, on, error));
                must(hipMemcpyAsync(there, out, MEMORY, hipMemcpyDefault, on) == hipSuccess);
                must(hipStreamSynchronize(on) == hipSuccess);
                calls++;
                for (uint32_t k = 0; k < 256; k++) {
                        uint32_t word;

                        memcpy(&word, here + 4 * k, sizeof(word));
                        word += 4; /* what the kernels before added */
                        memcpy(here + 4 * k, &word, sizeof(word));
                }
                check_result(0, 0, 1024, 1024);
        }
}

static void test_line(void) {
        uint64_t argument[CLIENT_GPU_ARGUMENTS];
        const struct serve_entry *entry;

        for (uint32_t i = 0; i < CLIENT_GPU_ARGUMENTS; i++)
                argument[i] = UINT64_C(0x100000001) * (i + 1);
        for (uint32_t i = 0; i < 200; i++) { /* beyond the depth: all slots are used again */
                struct client_gpu_bell bell = request(i * 400, i * 300, i % 3 == 1 && i * 400 <= BELL_INLINE_BYTES);

                bell.n_arguments = i % 2 ? (i % 4 == 1 ? 1 : CLIENT_GPU_ARGUMENTS) : 0;
                bell.argument = argument;
                must(!ops->call(gpu, &bell, stream, error));
                settle();
                calls++;
                entry = last_entry();
                for (uint32_t w = 0; w < 16; w++) {
                        uint32_t expected = bell.word[w];

                        if (w == RING_W_SEQUENCE)
                                expected = calls;
                        if (w == RING_W_FLAGS)
                                expected = bell_lanes(bell.in_bytes, bell.out_bytes) << BELL_LANES_SHIFT |
                                           (bell.inlined ? BELL_FLAG_INLINE : 0);
                        if (w == RING_W_ARGUMENT && bell.n_arguments)
                                expected = gpu_sequence() % BELL_DEPTH * BELL_ARGUMENT_BYTES + RING_ARGUMENT_ALIGN;
                        must(entry->word[w] == expected);
                }
                for (uint32_t k = 0; k < 4 && k < bell.n_arguments; k++)
                        must(entry->argument[k] == argument[k]);
        }
}

/* The sequences of a comm are its own, and a new one begins anew. */
static void test_slots(void) {
        struct client_gpu_bell bell = request(64, 64, true);
        uint32_t sequence;

        bell.slot = 255;
        for (uint32_t i = 1; i <= 5; i++) {
                must(!ops->call(gpu, &bell, stream, error));
                settle();
                must(last_entry()->word[RING_W_SEQUENCE] == i);
        }
        must(!ops->comm_sequence(gpu, 255, &sequence, error) && sequence == 5);
        must(!ops->comm_sequence(gpu, 0, &sequence, error) && sequence == calls);
        must(!ops->comm_reset(gpu, 255, error));
        must(!ops->comm_sequence(gpu, 255, &sequence, error) && sequence == 0);
}

static void test_status(void) {
        for (uint32_t inlined = 0; inlined < 2; inlined++) {
                struct client_gpu_bell bell = request(4096, 4096, inlined);

                fill(inlined);
                bell.word[SERVE_W_STATUS] = ring_status(RMX_E_PEER_LOST, 3);
                must(!ops->call(gpu, &bell, stream, error));
                bell.word[SERVE_W_STATUS] = ring_status(RMX_E_ABORTED, 1);
                must(!ops->call(gpu, &bell, stream, error));
                settle();
                calls += 2;
                must(ops->comm_status(gpu, 0, false) == ring_status(RMX_E_PEER_LOST, 3)); /* the first stays */
                must(ops->comm_status(gpu, 255, false) == 0);
                must(ops->comm_status(gpu, 0, true) == ring_status(RMX_E_PEER_LOST, 3));
                must(ops->comm_status(gpu, 0, false) == 0);
                check_result(0, 0, 4096, 0);
        }
}

static void test_start_wait(void) {
        struct client_gpu_bell bell[3];
        uint32_t status;

        for (uint32_t i = 0; i < 3; i++) {
                bell[i] = request(1024u << i, 1024u << i, true);
                bell[i].out = out + 16384 * i;
                bell[i].cell = i + 5;
                bell[i].turn = 7;
        }
        bell[1].word[SERVE_W_STATUS] = ring_status(RMX_E_LOST, -1);
        fill(99);
        /* The waits in another order, and the first of them on another stream before the start. */
        must(!ops->wait(gpu, &bell[2], other, error));
        for (uint32_t i = 0; i < 3; i++)
                must(!ops->start(gpu, &bell[i], stream, error));
        must(!ops->poll(gpu, bell[0].cell, 7, &status));
        must(!ops->wait(gpu, &bell[1], stream, error));
        must(!ops->wait(gpu, &bell[0], stream, error));
        settle();
        must(hipStreamSynchronize(other) == hipSuccess);
        calls += 3;
        for (uint32_t i = 0; i < 3; i++) {
                must(!ops->poll(gpu, bell[i].cell, 8, &status));
                must(ops->poll(gpu, bell[i].cell, 7, &status));
                must(status == (i == 1 ? ring_status(RMX_E_LOST, -1) : 0));
        }
        must(ops->comm_status(gpu, 0, true) == ring_status(RMX_E_LOST, -1));
        copy(there, out, MEMORY);
        for (uint32_t i = 0; i < 3; i += 2)
                must(there[16384 * i] == (unsigned char)~here[0] && there[16384 * i + (1024 << i)] == 0x5a);
        must(there[16384] == 0x5a);
}

/* A rank that has ended, and whose wait comes before the start: the start is waited for, so its place comes back, and
 * the cell is as it was. */
static void test_late_start(void) {
        struct client_gpu_bell bell = request(2048, 2048, true), call = request(512, 512, true);
        char *ended = gpu->area + BELL_OFFSET_ENDED;
        const uint32_t one = 1, zero = 0;
        uint32_t number, status;

        bell.cell = 12;
        for (bell.turn = 1; bell.turn <= 3; bell.turn++) {
                fill(bell.turn);
                copy(ended, bell.turn < 3 ? &one : &zero, sizeof(one));
                must(!ops->wait(gpu, &bell, other, error));
                call.slot = 255;
                for (uint32_t i = 0; i < 100; i++) { /* long enough for a wait that looks around to give up */
                        must(!ops->call(gpu, &call, stream, error));
                        settle();
                }
                must(!ops->poll(gpu, bell.cell, bell.turn, &status));
                must(!ops->start(gpu, &bell, stream, error));
                settle();
                must(hipStreamSynchronize(other) == hipSuccess);
                must(ops->poll(gpu, bell.cell, bell.turn, &status));
        }
        must(!status); /* the last one is whole */
        check_result(0, 0, 2048, 2048);
        (void)ops->comm_status(gpu, 0, true);
        number = gpu_sequence();
        call.slot = 0;
        for (uint32_t i = 0; i < 3 * BELL_DEPTH; i++)
                must(!ops->call(gpu, &call, stream, error));
        settle();
        must(gpu_sequence() == number + 3 * BELL_DEPTH); /* none is passed on: no place is held */
        calls += 3 + 3 * BELL_DEPTH;
}

/* A request that waits for others keeps its place; those that come round to it pass on their numbers. */
static void test_held(void) {
        struct client_gpu_bell held = request(100000, 100000, false), bell = request(512, 512, true);
        const uint32_t number = gpu_sequence() + 1;
        uint64_t *done = (uint64_t *)(void *)there;
        uint32_t status;

        held.word[SERVE_W_STATUS] = SERVE_NEVER;
        held.cell = 9;
        held.turn = 3;
        must(!ops->start(gpu, &held, stream, error));
        for (uint32_t i = 0; i < 10 * BELL_DEPTH; i++) {
                fill(i);
                must(!ops->call(gpu, &bell, stream, error));
                settle();
                check_result(0, 0, 512, 512);
        }
        calls += 10 * BELL_DEPTH + 1;
        must(gpu_sequence() == number + 10 * BELL_DEPTH + 10); /* once in each round of 63 */
        must(!ops->poll(gpu, held.cell, 3, &status));
        for (uint32_t i = 0; i < BELL_LANES; i++)
                done[i] = number;
        must(hipMemcpyAsync(gpu->area + BELL_OFFSET_DONE + (size_t)(number % BELL_DEPTH) * BELL_LANES * 8, done,
                            BELL_LANES * 8, hipMemcpyHostToDevice, other) == hipSuccess);
        must(hipStreamSynchronize(other) == hipSuccess);
        must(!ops->wait(gpu, &held, stream, error));
        settle();
        must(ops->poll(gpu, held.cell, 3, &status) && !status);
        for (uint32_t i = 0; i < 2 * BELL_DEPTH; i++)
                must(!ops->call(gpu, &bell, stream, error));
        settle();
        calls += 2 * BELL_DEPTH;
        must(gpu_sequence() == number + 12 * BELL_DEPTH + 10); /* none is passed on any more */
}

/* What ends tells its number, and what comes after a number waits for it. */
static void test_numbers(void) {
        struct client_gpu_bell bell = request(256, 256, true), plain = request(30000, 30000, false);
        uint32_t before = gpu_sequence();

        must(ops->comm_finished(gpu, 0) == 0 && ops->comm_finished(gpu, 255) == 0);
        fill(11);
        bell.number = 6;
        plain.number = 7;
        plain.after = 6;
        must(!ops->call(gpu, &plain, other, error)); /* though launched first */
        for (uint32_t i = 0; i < 100; i++)
                must(gpu_sequence() == before && ops->comm_finished(gpu, 0) == 0);
        must(!ops->call(gpu, &bell, stream, error));
        settle();
        must(hipStreamSynchronize(other) == hipSuccess && ops->comm_finished(gpu, 0) == 7);
        must(gpu_sequence() == before + 2 && last_entry()->word[SERVE_W_IN] == 30000);

        bell.number = UINT32_MAX;
        bell.cell = 40;
        must(!ops->start(gpu, &bell, stream, error));
        settle();
        must(ops->comm_finished(gpu, 0) == UINT32_MAX);
        bell.number = 0; /* of a wait, and of what is captured */
        must(!ops->wait(gpu, &bell, stream, error) && !ops->call(gpu, &bell, stream, error));
        settle();
        must(ops->comm_finished(gpu, 0) == UINT32_MAX);
        must(hipMemcpyAsync(there, out, MEMORY, hipMemcpyDefault, stream) == hipSuccess);
        must(!ops->mark(gpu, 0, 1, true, stream, error) && !ops->mark(gpu, 255, 3, false, stream, error));
        settle();
        must(ops->comm_finished(gpu, 0) == 1 && ops->comm_finished(gpu, 255) == 3);
        must(!ops->comm_reset(gpu, 255, error));
        must(ops->comm_finished(gpu, 0) == 1 && ops->comm_finished(gpu, 255) == 0);
        calls += 4;
}

/* Replays of a graph go on counting, also with starts and waits in it. */
static void test_graph(void) {
        struct client_gpu_bell bell = request(2048, 2048, true), plain = request(100000, 100000, false);
        struct client_gpu_bell started = request(512, 512, true);
        uint32_t before = gpu_sequence(), sequence;
        hipGraphExec_t exec;
        hipGraph_t graph;

        fill(5);
        started.out = out + 32768;
        started.cell = 17;
        plain.after = ops->comm_finished(gpu, 0); /* a node more, that has nothing to wait for */
        must(plain.after);
        must(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
        must(ops->capturing(gpu, stream) && !ops->capturing(gpu, other));
        for (uint32_t i = 0; i < 10; i++) {
                must(!ops->call(gpu, &bell, stream, error));
                must(!ops->start(gpu, &started, stream, error));
                must(!ops->call(gpu, &plain, stream, error));
                must(!ops->wait(gpu, &started, stream, error));
        }
        must(hipStreamEndCapture(stream, &graph) == hipSuccess && !ops->capturing(gpu, stream));
        must(hipGraphInstantiateWithFlags(&exec, graph, 0) == hipSuccess);
        for (uint32_t i = 0; i < 20; i++)
                must(hipGraphLaunch(exec, stream) == hipSuccess);
        settle();
        calls += 600;
        must(gpu_sequence() == before + 600);
        must(!ops->comm_sequence(gpu, 0, &sequence, error) && sequence == calls);
        copy(there, out, 32768);
        must(there[0] == (unsigned char)~here[0] && there[2047] != 0x5a && there[2048] == 0x5a);
        must(hipGraphExecDestroy(exec) == hipSuccess && hipGraphDestroy(graph) == hipSuccess);
}

/* 0 is left out of the ring sequences, by several streams that draw at once. */
static void test_wrap(void) {
        struct client_gpu_bell bell = request(256, 256, true);
        uint32_t counter = UINT32_MAX - 130;

        serve_end();
        copy(gpu->area + offsetof(struct bell_header, counter), &counter, sizeof(counter));
        for (uint32_t place = 0; place < BELL_LINES; place++) { /* each line's last up to the counter */
                uint64_t *line = (uint64_t *)(void *)there + place % LINES_AT_ONCE * RING_WORDS;

                for (uint32_t i = 0; i < RING_WORDS; i++)
                        line[i] = (uint64_t)(counter - (counter - place) % BELL_LINES) << 32;
                if (place % LINES_AT_ONCE == LINES_AT_ONCE - 1)
                        copy(gpu->area + BELL_OFFSET_LINES + (place - place % LINES_AT_ONCE) * RING_WORDS * 8, there,
                             MEMORY);
        }
        for (uint32_t i = 0; i < BELL_DEPTH; i++) {
                uint32_t sequence = counter - (counter - i) % BELL_DEPTH; /* the slot's last up to the counter */

                must(sequence % BELL_DEPTH == i);
                copy(gpu->area + BELL_OFFSET_RELEASED + i * 4, &sequence, sizeof(sequence));
        }
        shared->next = counter + 1;
        serve_begin();
        for (uint32_t i = 0; i < 300; i++) {
                bell.slot = i % 2 ? 255 : 0;
                must(!ops->call(gpu, &bell, i % 2 ? other : stream, error));
        }
        settle();
        must(hipStreamSynchronize(other) == hipSuccess);
        calls += 150;
        must(gpu_sequence() == 170);
}

/* Nobody polls: who rings, counts the wake word up. Nobody will: it gives up. */
static void test_parked_and_closed(void) {
        struct client_gpu_bell bell = request(256, 256, true), plain = request(50000, 0, false), late = bell;
        uint32_t one = 1, zero = 0, wake = gpu->host->wake, status;

        serve_end();
        copy(gpu->area + offsetof(struct bell_header, parked), &one, sizeof(one));
        must(gpu->host->wake == wake);
        fill(3);
        must(!ops->call(gpu, &bell, stream, error));
        while (__atomic_load_n(&gpu->host->wake, __ATOMIC_RELAXED) == wake) {
        }
        must(hipMemcpyAsync(gpu->area + offsetof(struct bell_header, parked), &zero, 4, hipMemcpyHostToDevice,
                            gpu->stream) == hipSuccess);
        must(hipStreamSynchronize(gpu->stream) == hipSuccess && hipStreamQuery(stream) == hipErrorNotReady);
        serve_begin();
        settle();
        calls++;
        check_result(0, 0, 256, 256);

        serve_end();
        bell.cell = plain.cell = 30;
        bell.turn = 3;
        must(!ops->call(gpu, &plain, stream, error));
        must(!ops->start(gpu, &bell, other, error) && !ops->wait(gpu, &bell, other, error));
        late.cell = 31; /* which nobody starts */
        late.turn = 1;
        must(!ops->wait(gpu, &late, other, error));
        plain.after = 999; /* which nobody tells */
        plain.number = 1000;
        must(!ops->call(gpu, &plain, stream, error));
        plain.after = 0;
        must(hipStreamQuery(stream) == hipErrorNotReady && !ops->poll(gpu, bell.cell, 3, &status));
        must(ops->comm_finished(gpu, 0) != 1000 && ops->alive(gpu));
        ops->release(gpu);
        settle();
        must(ops->comm_finished(gpu, 0) == 1000);
        must(hipStreamSynchronize(other) == hipSuccess);
        must(ops->comm_status(gpu, 0, true) == RMX_E_DEVICE_LOST);
        must(ops->poll(gpu, bell.cell, 3, &status) && status == RMX_E_DEVICE_LOST);
        must(ops->poll(gpu, late.cell, 1, &status) && status == RMX_E_DEVICE_LOST);
        must(!ops->call(gpu, &plain, stream, error)); /* and later ones at once */
        settle();
        must(ops->comm_status(gpu, 0, true) == RMX_E_DEVICE_LOST);
}

static void test_locate(void) {
        struct client_gpu_memory memory, again;
        struct client_gpu_export export;
        void *block;

        must(!ops->locate(here, &memory, error) && memory.residence == CLIENT_GPU_ORDINARY);
        must(!ops->locate(shared, &memory, error) && memory.residence == CLIENT_GPU_HOST);
        must(!ops->locate(in + 100, &memory, error) && memory.residence == CLIENT_GPU_DEVICE);
        must(memory.base == (uintptr_t)in && memory.bytes >= MEMORY && memory.device == gpu->device);
        must(!ops->export_memory(&memory, &export, error) && export.n_handle && export.bytes == memory.bytes);
        must(hipMalloc(&block, 8u << 20) == hipSuccess && !ops->locate(block, &memory, error));
        must(hipFree(block) == hipSuccess && hipMalloc(&block, 8u << 20) == hipSuccess);
        must(!ops->locate(block, &again, error) && again.id && again.id != memory.id);
        must(hipFree(block) == hipSuccess);
}

static double now_us(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Microseconds of a round: a call, some work, or one after the other. bell NULL: no call. */
#define SWEEP_BYTES ((size_t)256 << 20)
static void *swept;

enum work { NO_WORK, LITTLE_WORK, SWEEP };

/* Before each bell: nothing, a kernel of one block, or one that reads so much that nothing of ours is left in the L2.
 */
static double measure_round(const struct client_gpu_bell *bell, enum work work) {
        uint32_t n_quads = (uint32_t)(SWEEP_BYTES / 16);
        void *parameters[] = {&in}, *sweep[] = {&swept, &n_quads, &in};
        hipEvent_t begin, end;
        hipGraphExec_t exec;
        hipGraph_t graph;
        float ms, best = 1e9f;

        must(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
        for (uint32_t i = 0; i < 20; i++) {
                if (work == LITTLE_WORK)
                        must(hipLaunchKernel(work_kernel(), (dim3){1, 1, 1}, (dim3){256, 1, 1}, parameters, 0,
                                             stream) == hipSuccess);
                if (work == SWEEP)
                        must(hipLaunchKernel(sweep_kernel(), (dim3){264, 1, 1}, (dim3){512, 1, 1}, sweep, 0, stream) ==
                             hipSuccess);
                if (bell)
                        must(!ops->call(gpu, bell, stream, error));
        }
        must(hipStreamEndCapture(stream, &graph) == hipSuccess);
        must(hipGraphInstantiateWithFlags(&exec, graph, 0) == hipSuccess);
        must(hipEventCreateWithFlags(&begin, hipEventDefault) == hipSuccess);
        must(hipEventCreateWithFlags(&end, hipEventDefault) == hipSuccess);
        for (uint32_t i = 0; i < 50; i++) {
                must(hipEventRecord(begin, stream) == hipSuccess && hipGraphLaunch(exec, stream) == hipSuccess);
                must(hipEventRecord(end, stream) == hipSuccess);
                settle();
                must(hipEventElapsedTime(&ms, begin, end) == hipSuccess);
                best = ms < best ? ms : best;
        }
        return best * 1000 / 20;
}

static void measure(void) {
        static const uint32_t sizes[] = {8, 256, 1024, 4096, 16384, 0};
        double work, cold;

        must(hipMalloc(&swept, SWEEP_BYTES) == hipSuccess && hipMemset(swept, 0, SWEEP_BYTES) == hipSuccess);
        work = measure_round(NULL, LITTLE_WORK);
        cold = measure_round(NULL, SWEEP);

        serve_end();
        shared->quick = 1;
        serve_begin();
        printf("      work alone: %.2f us in a graph, a sweep %.2f\n", work, cold);
        for (uint32_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                uint32_t bytes = sizes[s];
                struct client_gpu_bell bell = bytes ? request(bytes, bytes, true) : request(65536, 65536, false);
                double before = now_us(), call, eager;

                bell.number = 1;
                for (uint32_t i = 0; i < 1000; i++)
                        must(!ops->call(gpu, &bell, stream, error));
                call = now_us() - before;
                settle();
                eager = now_us() - before;
                printf("%6u bytes: %.2f us in a graph, %.2f us after work, %.2f us after a sweep of the L2, %.2f us "
                       "eager, "
                       "of which %.2f in the call\n",
                       bytes, measure_round(&bell, NO_WORK), measure_round(&bell, LITTLE_WORK) - work,
                       measure_round(&bell, SWEEP) - cold, eager / 1000, call / 1000);
        }
        serve_end();
        shared->quick = 0;
        serve_begin();
}

int main(int argc, char **argv) {
        int n = 0;

        setvbuf(stdout, NULL, _IOLBF, 0);
        setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* nothing is loaded while the server is resident */
        if (hipGetDeviceCount(&n) != hipSuccess || !n) {
                printf("no GPU: skipped\n");
                return SKIPPED;
        }
        must(hipSetDevice(0) == hipSuccess);
        setup();
        TRY(test_locate);
        serve_begin();
        TRY(test_inline);
        TRY(test_stream);
        TRY(test_line);
        TRY(test_slots);
        TRY(test_status);
        TRY(test_start_wait);
        TRY(test_late_start);
        TRY(test_held);
        TRY(test_numbers);
        TRY(test_graph);
        if (argc > 1 && !strcmp(argv[1], "time"))
                TRY(measure);
        TRY(test_wrap);
        TRY(test_parked_and_closed);
        ops->close(gpu);
        printf("all right\n");
        return 0;
}
