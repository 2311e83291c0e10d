/* SPDX-License-Identifier: MIT */
#pragma once
/* A bell area on the host, a stand-in for the executor, which knows it by gpu/device/bell.h, and requests of kernels
 * that are threads. */
#include <stdlib.h>
#include <string.h>

#include <railmux/railmux_device.h>

#include "gpu/device/bell.h"
#include "ring/line.h"
#include "tests/client/fake.h"
#include "tests/cmocka_all.h"

#define MEMORY 20000u
#define SLOT   77u
#define OTHER  200u

static char *area;
static struct bell_host host;
static unsigned char in[MEMORY], out[MEMORY];

/* ---- the executor ------------------------------------------------------------------------------------------------ */
struct server {
        pthread_t thread;
        uint32_t stop;
        uint32_t next;   /* ring sequence */
        uint32_t served; /* requests */
        uint32_t passed; /* numbers that were passed on */
        uint32_t held;   /* ring sequence that is not answered until .. */
        uint32_t release;
        uint32_t status;           /* what lane 1 answers to all */
        uint32_t word[RING_WORDS]; /* of the last line */
        uint64_t argument[4];
};

static inline uint32_t *header(size_t offset) {
        return (uint32_t *)(void *)(area + BELL_OFFSET_HEADER + offset);
}

static inline uint64_t cell(const char *at) {
        return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_SEQ_CST);
}

static inline void cell_put(char *at, uint64_t value) {
        __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_SEQ_CST);
}

/* Packet `index` of a result; depends on all bytes of the payload's and on the place. */
static inline uint64_t result_of(uint64_t payload, uint32_t index) {
        return ~payload + index * UINT64_C(0x0101010101010101);
}

static inline void serve_inline(const struct server *s, uint32_t in_bytes, uint32_t out_bytes) {
        size_t slot = s->next % BELL_DEPTH;
        char *inbox = area + BELL_OFFSET_INBOX + slot * BELL_INLINE_PACKETS * 16;
        char *outbox = area + BELL_OFFSET_OUTBOX + slot * BELL_INLINE_PACKETS * 16;

        for (uint32_t i = 0; i < (in_bytes + 7) / 8 || i < (out_bytes + 7) / 8; i++) {
                uint64_t low = 0, high = 0, result;

                while (i < (in_bytes + 7) / 8 && ((low = cell(inbox + i * 16)) >> 32 != s->next ||
                                                  (high = cell(inbox + i * 16 + 8)) >> 32 != s->next))
                        sched_yield();
                if (i >= (out_bytes + 7) / 8)
                        continue;
                result = result_of(high << 32 | (uint32_t)low, i);
                cell_put(outbox + i * 16, (uint64_t)s->next << 32 | (uint32_t)result);
                cell_put(outbox + i * 16 + 8, (uint64_t)s->next << 32 | result >> 32);
        }
}

static inline void serve_one(struct server *s) {
        char *done = area + BELL_OFFSET_DONE + (size_t)(s->next % BELL_DEPTH) * BELL_LANES * 8;
        uint32_t lanes = s->word[RING_W_FLAGS] >> BELL_LANES_SHIFT;

        if (s->word[RING_W_ARGUMENT])
                for (uint32_t i = 0; i < 4; i++)
                        s->argument[i] = cell(area + BELL_OFFSET_ARGUMENT + s->word[RING_W_ARGUMENT] + i * 8);
        if ((s->word[RING_W_FLAGS] & BELL_FLAG_INLINE) && !s->status)
                serve_inline(s, s->word[RING_W_COUNT_LO], s->word[RING_W_COUNT_HI]);
        for (uint32_t i = 0; i < lanes; i++)
                cell_put(done + i * 8, (uint64_t)(i == 1 ? s->status : 0) << 32 | s->next);
        s->served++;
        s->next = bell_sequence_next(s->next);
}

static inline void *serve(void *userdata) {
        struct server *s = userdata;

        while (!__atomic_load_n(&s->stop, __ATOMIC_SEQ_CST)) {
                char *done = area + BELL_OFFSET_DONE + (size_t)(s->held % BELL_DEPTH) * BELL_LANES * 8;
                const char *line = area + BELL_OFFSET_LINES + (size_t)(s->next % BELL_LINES) * RING_WORDS * 8;
                uint32_t n = 0;

                if (__atomic_load_n(&s->release, __ATOMIC_SEQ_CST) == 1) {
                        for (uint32_t i = 0; i < BELL_LANES; i++)
                                cell_put(done + i * 8, s->held);
                        __atomic_store_n(&s->release, 2, __ATOMIC_SEQ_CST);
                }
                for (uint32_t i = 0; i < RING_WORDS; i++) {
                        uint64_t word = cell(line + i * 8);

                        s->word[i] = (uint32_t)word;
                        n += word >> 32 == s->next;
                }
                if (n != RING_WORDS) {
                        sched_yield();
                } else if (s->word[RING_W_FLAGS] == BELL_FLAG_PASSED) {
                        __atomic_fetch_add(&s->passed, 1, __ATOMIC_SEQ_CST);
                        s->next = bell_sequence_next(s->next);
                } else if (s->next == s->held) {
                        s->next = bell_sequence_next(s->next);
                } else {
                        serve_one(s);
                }
        }
        return NULL;
}

static inline void server_start_held(struct server *s, uint32_t next, uint32_t held) {
        *s = (struct server){.next = next, .held = held};
        must(!pthread_create(&s->thread, NULL, serve, s));
}

static inline void server_start(struct server *s, uint32_t next, uint32_t status) {
        *s = (struct server){.next = next, .status = status};
        must(!pthread_create(&s->thread, NULL, serve, s));
}

static inline void server_stop(struct server *s) {
        __atomic_store_n(&s->stop, 1, __ATOMIC_SEQ_CST);
        must(!pthread_join(s->thread, NULL));
}

static inline void server_release(struct server *s) {
        __atomic_store_n(&s->release, 1, __ATOMIC_SEQ_CST);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
static inline int setup(void **state) {
        (void)state;
        if (!area)
                area = aligned_alloc(4096, BELL_AREA_BYTES);
        must(area);
        memset(area, 0, BELL_AREA_BYTES);
        memset(&host, 0, sizeof(host));
        for (uint32_t i = 0; i < BELL_DEPTH; i++)
                ((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED))[i] = bell_released_first(i);
        return 0;
}

static inline uint32_t *number_word(uint32_t slot) {
        return (uint32_t *)(void *)(area + BELL_OFFSET_SEQUENCE) + slot;
}

static inline struct rmx_device_handle handle_of(uint32_t in_bytes, uint32_t out_bytes, uint32_t payload) {
        struct rmx_device_handle h = {.area = area,
                                      .host = &host,
                                      .counter = number_word(SLOT),
                                      .lanes = bell_lanes(in_bytes, out_bytes),
                                      .slot = SLOT,
                                      .payload = payload,
                                      .version = RMX_DEVICE_VERSION};

        for (uint32_t i = 0; i < RING_WORDS; i++)
                h.word[i] = 0xabc0 + i;
        h.word[RING_W_COUNT_LO] = in_bytes; /* for the stand-in */
        h.word[RING_W_COUNT_HI] = out_bytes;
        h.word[RING_W_ARGUMENT] = 0;
        h.word[RING_W_FLAGS] = h.lanes << BELL_LANES_SHIFT | (payload ? BELL_FLAG_INLINE : 0);
        if (payload) {
                h.in = in;
                h.out = out;
                h.in_bytes = in_bytes;
                h.out_bytes = out_bytes;
        }
        return h;
}

static inline void fill(uint32_t salt) {
        for (uint32_t i = 0; i < MEMORY; i++)
                in[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + salt);
        memset(out, 0x5a, MEMORY);
}

static inline void check_result(uint32_t in_shift, uint32_t out_shift, uint32_t in_bytes, uint32_t out_bytes) {
        for (uint32_t i = 0; i < MEMORY; i++) {
                unsigned char expected = 0x5a;

                if (i - out_shift < out_bytes) {
                        uint32_t at = i - out_shift, packet = at / 8;
                        uint64_t payload = 0;

                        for (uint32_t k = 0; k < 8; k++)
                                if (packet * 8 + k < in_bytes)
                                        payload |= (uint64_t)in[in_shift + packet * 8 + k] << (8 * k);
                        expected = (unsigned char)(result_of(payload, packet) >> (8 * (at % 8)));
                }
                assert_int_equal(out[i], expected);
        }
}

/* Kernels. Results of all threads, since they must agree. */
struct kernel {
        struct rmx_device_handle handle[3];
        uint32_t n; /* calls, or starts */
        uint32_t ticket[3][BLOCK_THREADS_MAX];
        int result[3][BLOCK_THREADS_MAX];
};

static inline void kernel_call(void *userdata) {
        struct kernel *k = userdata;

        for (uint32_t i = 0; i < k->n; i++)
                k->result[i % 3][block_thread()] = rmx_device_call(&k->handle[i % 3]);
}

static inline void kernel_start(void *userdata) {
        struct kernel *k = userdata;

        for (uint32_t i = 0; i < k->n; i++)
                k->ticket[i][block_thread()] = rmx_device_start(&k->handle[i]);
}

/* In another order. */
static inline void kernel_wait(void *userdata) {
        struct kernel *k = userdata;

        for (uint32_t i = k->n; i-- > 0;)
                k->result[i][block_thread()] = rmx_device_wait(&k->handle[i], k->ticket[i][block_thread()]);
}

static inline void run(struct kernel *k, uint32_t threads, void (*kernel)(void *)) {
        struct block block;

        block_launch(&block, threads, kernel, k);
        block_join(&block);
}

static inline int call(const struct rmx_device_handle *handle, uint32_t threads) {
        struct kernel *k = calloc(1, sizeof(*k));
        int result;

        must(k);
        k->n = 1;
        k->handle[0] = *handle;
        run(k, threads, kernel_call);
        result = k->result[0][0];
        for (uint32_t i = 0; i < threads; i++)
                assert_int_equal(k->result[0][i], result);
        free(k);
        return result;
}

/* Every number up to that one was a request's, which is over. */
static inline void area_used(uint32_t counter) {
        *header(offsetof(struct bell_header, counter)) = counter;
        for (uint32_t number = counter - BELL_LINES + 1; number != counter + 1; number++) {
                ((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED))[number % BELL_DEPTH] = number;
                for (uint32_t w = 0; w < RING_WORDS && counter >= BELL_LINES; w++)
                        cell_put(area + BELL_OFFSET_LINES + ((size_t)(number % BELL_LINES) * RING_WORDS + w) * 8,
                                 (uint64_t)number << 32);
        }
}
