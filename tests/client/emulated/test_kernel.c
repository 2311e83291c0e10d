/* SPDX-License-Identifier: MIT */
/*
 * The functions of railmux_device.h, which our own bell kernels are made of, on threads of the host and against a
 * stand-in for the executor, which knows the area by gpu/device/bell.h.
 */
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

static uint32_t *header(size_t offset) {
        return (uint32_t *)(void *)(area + BELL_OFFSET_HEADER + offset);
}

static uint64_t cell(const char *at) {
        return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_SEQ_CST);
}

static void cell_put(char *at, uint64_t value) {
        __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_SEQ_CST);
}

/* Packet `index` of a result; depends on all bytes of the payload's and on the place. */
static uint64_t result_of(uint64_t payload, uint32_t index) {
        return ~payload + index * UINT64_C(0x0101010101010101);
}

static void serve_inline(const struct server *s, uint32_t in_bytes, uint32_t out_bytes) {
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

static void serve_one(struct server *s) {
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

static void *serve(void *userdata) {
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

static void server_start_held(struct server *s, uint32_t next, uint32_t held) {
        *s = (struct server){.next = next, .held = held};
        must(!pthread_create(&s->thread, NULL, serve, s));
}

static void server_start(struct server *s, uint32_t next, uint32_t status) {
        *s = (struct server){.next = next, .status = status};
        must(!pthread_create(&s->thread, NULL, serve, s));
}

static void server_stop(struct server *s) {
        __atomic_store_n(&s->stop, 1, __ATOMIC_SEQ_CST);
        must(!pthread_join(s->thread, NULL));
}

static void server_release(struct server *s) {
        __atomic_store_n(&s->release, 1, __ATOMIC_SEQ_CST);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
static int setup(void **state) {
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

static uint32_t *number_word(uint32_t slot) {
        return (uint32_t *)(void *)(area + BELL_OFFSET_SEQUENCE) + slot;
}

static struct rmx_device_handle handle_of(uint32_t in_bytes, uint32_t out_bytes, uint32_t payload) {
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

static void fill(uint32_t salt) {
        for (uint32_t i = 0; i < MEMORY; i++)
                in[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + salt);
        memset(out, 0x5a, MEMORY);
}

static void check_result(uint32_t in_shift, uint32_t out_shift, uint32_t in_bytes, uint32_t out_bytes) {
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

static void kernel_call(void *userdata) {
        struct kernel *k = userdata;

        for (uint32_t i = 0; i < k->n; i++)
                k->result[i % 3][block_thread()] = rmx_device_call(&k->handle[i % 3]);
}

static void kernel_start(void *userdata) {
        struct kernel *k = userdata;

        for (uint32_t i = 0; i < k->n; i++)
                k->ticket[i][block_thread()] = rmx_device_start(&k->handle[i]);
}

/* In another order. */
static void kernel_wait(void *userdata) {
        struct kernel *k = userdata;

        for (uint32_t i = k->n; i-- > 0;)
                k->result[i][block_thread()] = rmx_device_wait(&k->handle[i], k->ticket[i][block_thread()]);
}

static void run(struct kernel *k, uint32_t threads, void (*kernel)(void *)) {
        struct block block;

        block_launch(&block, threads, kernel, k);
        block_join(&block);
}

static int call(const struct rmx_device_handle *handle, uint32_t threads) {
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

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_payload(void **state) {
        static const uint32_t sizes[] = {0, 1, 3, 8, 9, 250, 256, 1000, 1024, 4099, 8192, 8193, 16383, 16384};
        uint32_t n = sizeof(sizes) / sizeof(sizes[0]);
        struct server server;

        (void)state;
        server_start(&server, 1, 0);
        for (uint32_t i = 0; i < 3 * n; i++) {
                uint32_t in_bytes = sizes[i % n], out_bytes = i < n ? in_bytes : sizes[(i * 5 + 3) % n];
                uint32_t in_shift = i < 2 * n ? 0 : i % 9, out_shift = i < 2 * n ? 0 : i * 3 % 13;
                bool aligned = (in_bytes | out_bytes | in_shift | out_shift) % 8 == 0;
                struct rmx_device_handle h =
                        handle_of(in_bytes, out_bytes, aligned ? RMX_BELL_ALIGNED : RMX_BELL_BYTES);

                fill(i);
                h.in = in + in_shift;
                h.out = out + out_shift;
                assert_int_equal(call(&h, i % 3 == 2 ? 64 : 32), RMX_OK);
                check_result(in_shift, out_shift, in_bytes, out_bytes);
        }
        server_stop(&server);
        assert_int_equal(server.served, 3 * n);
        assert_int_equal(*number_word(SLOT), 3 * n);
        assert_int_equal(host.wake, 0);
}

/* More lanes than threads and fewer; all places again and again; what the line says. */
static void test_line(void **state) {
        struct server server;

        (void)state;
        server_start(&server, 1, 0);
        for (uint32_t i = 0; i < 150; i++) {
                struct rmx_device_handle h = handle_of(i * 400, i * 300, RMX_BELL_NONE);

                assert_int_equal(call(&h, i % 50 ? 32 : 160), RMX_OK);
                assert_int_equal(*header(offsetof(struct bell_header, counter)), i + 1);
        }
        server_stop(&server);
        for (uint32_t w = 0; w < RING_WORDS; w++) {
                const char *line = area + BELL_OFFSET_LINES + (size_t)(150 % BELL_LINES) * RING_WORDS * 8;
                struct rmx_device_handle h = handle_of(149 * 400, 149 * 300, RMX_BELL_NONE);

                assert_int_equal(cell(line + w * 8) >> 32, 150);
                assert_int_equal((uint32_t)cell(line + w * 8), w == RING_W_SEQUENCE ? 150 : h.word[w]);
        }
        for (uint32_t i = 0; i < BELL_DEPTH; i++)
                assert_true(150 - ((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED))[i] < BELL_DEPTH);
}

/* What the block has written is released before the line stands, and the result is acquired; packets need neither. */
static void test_fences(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        server_start(&server, 1, 0);
        k->n = 1;
        k->handle[0] = handle_of(100000, 100000, RMX_BELL_NONE);
        block_launch(&block, 64, kernel_call, k);
        block_join(&block);
        assert_int_equal(block.counts[BLOCK_RELEASES], 32); /* the warp that rings */
        assert_int_equal(block.counts[BLOCK_ACQUIRES], 64);
        assert_int_equal(block.counts[BLOCK_FENCES], 0);
        k->handle[0] = handle_of(64, 64, RMX_BELL_ALIGNED);
        block_launch(&block, 64, kernel_call, k);
        block_join(&block);
        assert_int_equal(block.counts[BLOCK_RELEASES] + block.counts[BLOCK_ACQUIRES], 0);
        block_launch(&block, 64, kernel_start, k);
        block_join(&block);
        assert_int_equal(block.counts[BLOCK_FENCES], 1);
        server_stop(&server);
        free(k);
}

static void test_start_wait(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;

        (void)state;
        must(k);
        k->n = 3;
        fill(9);
        for (uint32_t i = 0; i < 3; i++) {
                k->handle[i] = handle_of(256u << i, 256u << i, RMX_BELL_ALIGNED);
                k->handle[i].out = out + 4096 * i;
        }
        run(k, 64, kernel_start);
        for (uint32_t i = 0; i < 3; i++)
                for (uint32_t t = 0; t < 64; t++)
                        assert_int_equal(k->ticket[i][t], i + 1);
        assert_int_equal(*number_word(SLOT), 3);
        assert_int_equal(host.wake, 0);
        server_start(&server, 1, 0);
        run(k, 64, kernel_wait); /* another kernel */
        server_stop(&server);
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(k->result[i][0], RMX_OK);
                assert_int_equal(k->result[i][63], RMX_OK);
                assert_int_equal(out[4096 * i], (unsigned char)~in[0]);
                assert_true(out[4096 * i + (256 << i) - 1] != 0x5a || i == 3);
                assert_int_equal(out[4096 * i + (256 << i)], 0x5a);
        }
        free(k);
}

/* Several calls of one block, one after the other. */
static void test_many(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;

        (void)state;
        must(k);
        server_start(&server, 1, 0);
        k->n = 100;
        k->handle[0] = handle_of(512, 512, RMX_BELL_ALIGNED);
        k->handle[1] = handle_of(50000, 50000, RMX_BELL_NONE);
        k->handle[2] = handle_of(13, 13, RMX_BELL_BYTES);
        fill(1);
        run(k, 32, kernel_call);
        server_stop(&server);
        assert_int_equal(server.served, 100);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(k->result[i][31], RMX_OK);
        free(k);
}

static void test_failed(void **state) {
        struct server server;

        (void)state;
        for (uint32_t payload = 0; payload < 3; payload++) {
                struct rmx_device_handle h = handle_of(4096, 4096, payload);

                (void)setup(NULL);
                fill(payload);
                server_start(&server, 1, ring_status(RMX_E_PEER_LOST, 3));
                assert_int_equal(call(&h, 32), RMX_E_PEER_LOST);
                server_stop(&server);
                server_start(&server, 2, ring_status(RMX_E_ABORTED, 1));
                assert_int_equal(call(&h, 32), RMX_E_ABORTED);
                server_stop(&server);
                assert_int_equal(host.status[SLOT], ring_status(RMX_E_PEER_LOST, 3)); /* the first stays */
                assert_int_equal(host.status[OTHER], 0);
                check_result(0, 0, 4096, 0);
                server_start(&server, 3, 0);
                assert_int_equal(call(&h, 32), RMX_OK); /* the places are free again, and the next one is right */
                server_stop(&server);
        }
}

/* Nobody serves. */
static void test_over(void **state) {
        struct rmx_device_handle h = handle_of(256, 256, RMX_BELL_ALIGNED);
        struct kernel *k = calloc(1, sizeof(*k));
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        k->handle[0] = h;
        block_launch(&block, 64, kernel_call, k); /* waits */
        while (__atomic_load_n(number_word(SLOT), __ATOMIC_SEQ_CST) != 1)
                sched_yield();
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_ENDED) + OTHER, 1, __ATOMIC_SEQ_CST);
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_ENDED) + SLOT, 1, __ATOMIC_SEQ_CST);
        block_join(&block);
        for (uint32_t i = 0; i < 64; i++)
                assert_int_equal(k->result[0][i], RMX_E_DEVICE_LOST);
        assert_int_equal(host.status[SLOT], RMX_E_DEVICE_LOST);
        assert_int_equal(call(&h, 32), RMX_E_DEVICE_LOST);

        ((uint32_t *)(void *)(area + BELL_OFFSET_ENDED))[SLOT] = 0;
        *header(offsetof(struct bell_header, closed)) = 1;
        assert_int_equal(call(&h, 32), RMX_E_DEVICE_LOST);
        /* The place is taken for ever: nothing is rung. */
        memset(area + BELL_OFFSET_RELEASED, 0x77, BELL_DEPTH * 4);
        run(k, 32, kernel_start);
        assert_int_equal(k->ticket[0][31], 0);
        assert_int_equal(*number_word(SLOT), 3);
        run(k, 32, kernel_wait);
        assert_int_equal(k->result[0][31], RMX_E_DEVICE_LOST);
        free(k);
}

/* A start wakes, a call does after a while, and again. */
static void test_parked(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        k->handle[0] = handle_of(256, 256, RMX_BELL_ALIGNED);
        *header(offsetof(struct bell_header, parked)) = 1;
        run(k, 64, kernel_start);
        assert_int_equal(host.wake, 1);
        block_launch(&block, 64, kernel_call, k);
        while (__atomic_load_n(&host.wake, __ATOMIC_SEQ_CST) != 2)
                sched_yield();
        while (__atomic_load_n(&host.wake, __ATOMIC_SEQ_CST) < 4) /* now and then again */
                sched_yield();
        __atomic_store_n(header(offsetof(struct bell_header, parked)), 0, __ATOMIC_SEQ_CST);
        server_start(&server, 1, 0);
        block_join(&block);
        assert_int_equal(k->result[0][63], RMX_OK);
        run(k, 64, kernel_wait);
        assert_int_equal(k->result[0][63], RMX_OK);
        server_stop(&server);
        assert_in_range(host.wake, 4, 1000);
        free(k);
}

/* A place that the request before has not given back yet. */
static void test_taken(void **state) {
        uint32_t *released = (uint32_t *)(void *)(area + BELL_OFFSET_RELEASED);
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        k->handle[0] = handle_of(64, 64, RMX_BELL_ALIGNED);
        for (uint32_t place = 1; place < BELL_DEPTH; place += 31) {
                uint32_t free_again = released[place];

                released[place] = free_again - BELL_DEPTH;
                *header(offsetof(struct bell_header, counter)) = place - 1;
                server_start(&server, place, 0);
                block_launch(&block, 32, kernel_call, k);
                while (__atomic_load_n(header(offsetof(struct bell_header, counter)), __ATOMIC_SEQ_CST) != place)
                        sched_yield();
                for (uint32_t i = 0; i < 100; i++) {
                        sched_yield();
                        assert_int_equal(cell(area + BELL_OFFSET_LINES + place * RING_WORDS * 8), 0);
                }
                __atomic_store_n(&released[place], free_again, __ATOMIC_SEQ_CST);
                block_join(&block);
                assert_int_equal(k->result[0][0], RMX_OK);
                server_stop(&server);
                assert_int_equal(released[place], place);
        }
        free(k);
}

/* Every number up to that one was a request's, which is over. */
static void area_used(uint32_t counter) {
        *header(offsetof(struct bell_header, counter)) = counter;
        for (uint32_t number = counter - BELL_LINES + 1; number != counter + 1; number++) {
                ((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED))[number % BELL_DEPTH] = number;
                for (uint32_t w = 0; w < RING_WORDS && counter >= BELL_LINES; w++)
                        cell_put(area + BELL_OFFSET_LINES + ((size_t)(number % BELL_LINES) * RING_WORDS + w) * 8,
                                 (uint64_t)number << 32);
        }
}

/* A request waits for another rank, and all others go on: where they come round to its place, they pass on the number,
 * also when that is 0. */
static void test_held(void **state) {
        static const uint32_t before[] = {0, 63, UINT32_MAX - 1, UINT32_MAX - 128};
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));

        (void)state;
        must(k && held);
        held->n = 1;
        k->n = 4 * BELL_DEPTH;
        for (uint32_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
                uint32_t number, passed, *released;
                struct server server;

                (void)setup(NULL);
                if (before[i])
                        area_used(before[i]);
                held->handle[0] = handle_of(100000, 100000, RMX_BELL_NONE);
                run(held, 32, kernel_start);
                number = held->ticket[0][0];
                assert_int_equal(number, before[i] + 1);
                released = (uint32_t *)(void *)(area + BELL_OFFSET_RELEASED) + number % BELL_DEPTH;
                server_start_held(&server, number, number);
                for (uint32_t c = 0; c < 3; c++)
                        k->handle[c] = handle_of(64 << c, 64 << c, c ? RMX_BELL_ALIGNED : RMX_BELL_NONE);
                run(k, 32, kernel_call);
                assert_int_equal(k->result[0][0], RMX_OK);
                assert_int_equal(*number_word(SLOT), 4 * BELL_DEPTH + 1);
                assert_int_equal(server.passed, number % BELL_DEPTH ? 4 : before[i] > UINT32_MAX / 2 ? 3 : 4);
                assert_int_not_equal(*released, number);
                /* It is answered, and its place serves again at once. */
                passed = server.passed;
                server_release(&server);
                run(held, 32, kernel_wait);
                assert_int_equal(held->result[0][31], RMX_OK);
                assert_int_equal(*released, number);
                run(k, 32, kernel_call);
                server_stop(&server);
                assert_int_equal(server.served, 8 * BELL_DEPTH);
                assert_int_equal(server.passed, passed);
        }
        free(held);
        free(k);
}

/* As if all numbers after `held` up to that one had been drawn, by requests that are over, or passed on where that is
 * not. */
static void area_goes_on(uint32_t held, uint32_t counter) {
        for (uint32_t number = held + 1; number != counter + 1; number++) {
                const bool passed = number % BELL_DEPTH == held % BELL_DEPTH;

                if (!number)
                        continue;
                if (!passed)
                        ((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED))[number % BELL_DEPTH] = number;
                for (uint32_t w = 0; w < RING_WORDS; w++)
                        cell_put(area + BELL_OFFSET_LINES + ((size_t)(number % BELL_LINES) * RING_WORDS + w) * 8,
                                 (uint64_t)number << 32 | (!passed             ? 0
                                                           : w == RING_W_FLAGS ? BELL_FLAG_PASSED
                                                           : w == BELL_W_LAST  ? held
                                                                               : 0));
        }
        *header(offsetof(struct bell_header, counter)) = counter;
}

/* The line of what is held is not overwritten: one round of all lines later, who comes to the place waits. If that
 * number is 0, which has no line, it is another round later. */
static void test_held_for_long(void **state) {
        static const struct {
                uint32_t before; /* the number that is held */
                uint32_t next;   /* the first other one whose line has that place */
        } cases[] = {
                {1, 2 + BELL_LINES},
                {UINT32_MAX - BELL_LINES, BELL_LINES}, /* not 0 */
                {UINT32_MAX - BELL_LINES + 1, 1},
        };
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));

        (void)state;
        must(k && held);
        for (uint32_t i = 0; i < 3; i++)
                k->handle[i] = held->handle[i] = handle_of(64, 64, RMX_BELL_NONE);
        for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                const uint32_t number = cases[i].before + 1, next = cases[i].next;
                const char *line = area + BELL_OFFSET_LINES + (size_t)(number % BELL_LINES) * RING_WORDS * 8;
                uint32_t passed, from = next - 2 * BELL_DEPTH - 5;
                struct server server;
                struct block block;

                (void)setup(NULL);
                area_used(cases[i].before);
                held->n = 1;
                run(held, 32, kernel_start);
                assert_int_equal(held->ticket[0][0], number);
                area_goes_on(number, from);
                server_start_held(&server, from + 1, number);
                k->n = 0;
                for (uint32_t between = from + 1; between != next; between++)
                        k->n += between && between % BELL_DEPTH != number % BELL_DEPTH;
                run(k, 32, kernel_call);
                assert_int_equal(k->result[0][0], RMX_OK);
                assert_int_equal(*header(offsetof(struct bell_header, counter)), next - (next == 1 ? 2 : 1)); /* (0) */
                assert_int_equal(cell(line) >> 32, number);
                k->n = 1;
                block_launch(&block, 32, kernel_call, k);
                while (__atomic_load_n(header(offsetof(struct bell_header, counter)), __ATOMIC_SEQ_CST) != next)
                        sched_yield();
                for (uint32_t turn = 0; turn < 3000; turn++) {
                        sched_yield();
                        assert_int_equal(cell(line) >> 32, number);
                }
                passed = __atomic_load_n(&server.passed, __ATOMIC_SEQ_CST);
                assert_int_equal(passed, 2);
                if (i == 2) { /* its answers are enough */
                        server_release(&server);
                        block_join(&block);
                        assert_int_equal(__atomic_load_n(&server.passed, __ATOMIC_SEQ_CST), passed + 1);
                        run(held, 32, kernel_wait);
                        assert_int_equal(held->result[0][31], RMX_OK);
                } else { /* As its wait does, which would be a second block here, with the shared memory of the first.
                          */
                        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED) + number % BELL_DEPTH,
                                         number, __ATOMIC_SEQ_CST);
                        block_join(&block);
                        assert_int_equal(__atomic_load_n(&server.passed, __ATOMIC_SEQ_CST), passed);
                }
                assert_int_equal(k->result[0][31], RMX_OK);
                assert_int_equal(cell(line) >> 32, next);
                run(k, 32, kernel_call);
                assert_int_equal(k->result[0][31], RMX_OK);
                server_stop(&server);
        }
        free(held);
        free(k);
}

/* A request that has been answered and not been waited for keeps its place, and nobody needs its line. */
static void test_not_waited_for(void **state) {
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));
        struct server server;

        (void)state;
        must(k && held);
        held->n = 1;
        held->handle[0] = handle_of(100000, 100000, RMX_BELL_NONE);
        run(held, 32, kernel_start);
        assert_int_equal(held->ticket[0][0], 1);
        server_start_held(&server, 1, 1);
        server_release(&server);
        while (__atomic_load_n(&server.release, __ATOMIC_SEQ_CST) == 1)
                sched_yield();
        server_stop(&server);
        area_goes_on(1, BELL_LINES - BELL_DEPTH);
        server_start(&server, BELL_LINES - BELL_DEPTH + 1, RMX_OK);
        for (uint32_t i = 0; i < 3; i++)
                k->handle[i] = handle_of(64, 64, RMX_BELL_NONE);
        k->n = 4 * BELL_DEPTH;
        run(k, 32, kernel_call);
        assert_int_equal(k->result[0][31], RMX_OK);
        run(held, 32, kernel_wait);
        assert_int_equal(held->result[0][31], RMX_OK);
        server_stop(&server);
        assert_int_equal(server.passed, 5);
        free(held);
        free(k);
}

/* Of a communicator that has ended, a kernel that comes to a held place gives up, but the ring goes on. */
static void test_held_and_ended(void **state) {
        struct kernel *k = calloc(1, sizeof(*k)), *held = calloc(1, sizeof(*held));
        struct rmx_device_handle h = handle_of(64, 64, RMX_BELL_NONE);
        struct server server;

        (void)state;
        must(k && held);
        server_start_held(&server, 1, 1);
        held->n = 1;
        held->handle[0] = h;
        run(held, 32, kernel_start);
        k->handle[0] = k->handle[1] = k->handle[2] = h;
        k->n = BELL_DEPTH - 1;
        run(k, 32, kernel_call);
        h.slot = OTHER;
        h.counter = number_word(OTHER);
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_ENDED) + OTHER, 1, __ATOMIC_SEQ_CST);
        assert_int_equal(call(&h, 32), RMX_E_DEVICE_LOST);
        assert_int_equal(*header(offsetof(struct bell_header, counter)), 1 + BELL_DEPTH);
        assert_int_equal(*number_word(OTHER), 0);
        k->n = 2 * BELL_DEPTH;
        run(k, 32, kernel_call);
        assert_int_equal(k->result[0][31], RMX_OK);
        server_release(&server);
        run(held, 32, kernel_wait);
        assert_int_equal(held->result[0][31], RMX_OK);
        server_stop(&server);
        assert_int_equal(server.served, BELL_DEPTH - 1 + 2 * BELL_DEPTH);
        free(held);
        free(k);
}

/* All places are held: who comes waits, without using up the numbers, for whichever is given back. */
static void test_all_held(void **state) {
        struct kernel *k = calloc(1, sizeof(*k));
        struct server server;
        struct block block;

        (void)state;
        must(k);
        k->n = 1;
        for (uint32_t i = 0; i < BELL_DEPTH; i++) { /* whose waits never come */
                k->handle[0] = handle_of(64, 64, RMX_BELL_NONE);
                run(k, 32, kernel_start);
        }
        server_start(&server, 1, RMX_OK);
        block_launch(&block, 32, kernel_call, k);
        while (__atomic_load_n(header(offsetof(struct bell_header, counter)), __ATOMIC_SEQ_CST) < 6 * BELL_DEPTH)
                sched_yield();
        __atomic_store_n((uint32_t *)(void *)(area + BELL_OFFSET_RELEASED) + 40, 40, __ATOMIC_SEQ_CST);
        block_join(&block);
        assert_int_equal(k->result[0][31], RMX_OK);
        server_stop(&server);
        assert_int_equal(*header(offsetof(struct bell_header, counter)) % BELL_DEPTH, 40);
        assert_in_range(*header(offsetof(struct bell_header, counter)), 6 * BELL_DEPTH, 12 * BELL_DEPTH);
        free(k);
}

/* Numbers go through 0, which the ring leaves out. */
static void test_wrap(void **state) {
        struct rmx_device_handle h = handle_of(64, 64, RMX_BELL_ALIGNED);
        uint32_t counter = UINT32_MAX - 70;
        struct server server;

        (void)state;
        area_used(counter);
        *number_word(SLOT) = UINT32_MAX - 20;
        server_start(&server, counter + 1, 0);
        for (uint32_t i = 0; i < 140; i++) {
                fill(i);
                assert_int_equal(call(&h, 32), RMX_OK);
                check_result(0, 0, 64, 64);
        }
        server_stop(&server);
        assert_int_equal(server.served, 140);
        assert_int_equal(*header(offsetof(struct bell_header, counter)), 70);
        assert_int_equal(*number_word(SLOT), 140 - 21);
}

/* Two blocks at once, of two communicators, as two streams; with argument blocks, as our own kernels have. */
struct ringer {
        struct rmx_device_handle handle;
        struct rmx_bell_shared shared;
        uint64_t argument[40];
};

static void kernel_ring(void *userdata) {
        struct ringer *r = userdata;

        for (uint32_t i = 0; i < 40; i++) {
                uint32_t sequence = rmx_bell_ring(&r->handle, RMX_BELL_NONE, r->argument, 40, block_thread(),
                                                  block_threads(), &r->shared);

                rmx_bell_await(&r->handle, RMX_BELL_NONE, sequence, block_thread(), block_threads(), &r->shared);
                if (block_thread() == 0)
                        rmx_bell_finish(&r->handle, sequence, r->shared.status);
                rmx_bell_sync();
        }
}

static void test_two(void **state) {
        struct ringer ringer[2];
        struct block block[2];
        struct server server;

        (void)state;
        for (uint32_t i = 0; i < 2; i++) {
                ringer[i] = (struct ringer){.handle = handle_of(300, 300, RMX_BELL_NONE)};
                ringer[i].handle.slot = i ? OTHER : SLOT;
                ringer[i].handle.counter = number_word(ringer[i].handle.slot);
                for (uint32_t w = 0; w < 40; w++)
                        ringer[i].argument[w] = UINT64_C(0x100000001) * (w + 1);
        }
        server_start(&server, 1, 0);
        for (uint32_t i = 0; i < 2; i++)
                block_launch(&block[i], 32 + 32 * i, kernel_ring, &ringer[i]);
        for (uint32_t i = 0; i < 2; i++)
                block_join(&block[i]);
        server_stop(&server);
        assert_int_equal(server.served, 80);
        assert_int_equal(*number_word(SLOT), 40);
        assert_int_equal(*number_word(OTHER), 40);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(server.argument[i], UINT64_C(0x100000001) * (i + 1));
        assert_int_equal(host.status[SLOT] | host.status[OTHER], 0);
}

static void test_version(void **state) {
        struct rmx_device_handle h = handle_of(64, 64, RMX_BELL_ALIGNED);
        struct kernel *k = calloc(1, sizeof(*k));

        (void)state;
        must(k);
        h.version++;
        assert_int_equal(call(&h, 32), RMX_E_VERSION);
        k->n = 1;
        k->handle[0] = h;
        run(k, 32, kernel_start);
        assert_int_equal(k->ticket[0][0], 0);
        run(k, 32, kernel_wait);
        assert_int_equal(k->result[0][0], RMX_E_VERSION);
        assert_int_equal(*header(offsetof(struct bell_header, counter)), 0);
        free(k);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_payload, setup),        cmocka_unit_test_setup(test_line, setup),
                cmocka_unit_test_setup(test_fences, setup),         cmocka_unit_test_setup(test_start_wait, setup),
                cmocka_unit_test_setup(test_many, setup),           cmocka_unit_test_setup(test_failed, setup),
                cmocka_unit_test_setup(test_over, setup),           cmocka_unit_test_setup(test_parked, setup),
                cmocka_unit_test_setup(test_taken, setup),          cmocka_unit_test_setup(test_wrap, setup),
                cmocka_unit_test_setup(test_held, setup),           cmocka_unit_test_setup(test_held_for_long, setup),
                cmocka_unit_test_setup(test_not_waited_for, setup), cmocka_unit_test_setup(test_held_and_ended, setup),
                cmocka_unit_test_setup(test_all_held, setup),       cmocka_unit_test_setup(test_two, setup),
                cmocka_unit_test_setup(test_version, setup),
        };
        int r = cmocka_run_group_tests(tests, NULL, NULL);

        free(area);
        return r;
}
