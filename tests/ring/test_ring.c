/* SPDX-License-Identifier: MIT */
/* One thread: layout, lines, lies, and what a successor finds after a death at any step. */
#include <stdlib.h>
#include <string.h>

#include "areas.h"
#include "ring/marks.h"
#include "tests/cmocka_all.h"

static void test_abi(void **state) {
        (void)state;
        assert_int_equal(RING_ABI, 1);
        assert_int_equal(sizeof(struct ring_line), 128);
        assert_int_equal(_Alignof(struct ring_line), 128);
        assert_int_equal(sizeof(struct ring_request), 64);
        assert_int_equal(offsetof(struct ring_executor_header, need_wake), 0);
        assert_int_equal(offsetof(struct ring_executor_header, next), 64);
        assert_int_equal(offsetof(struct ring_executor_header, epoch_hint), 68);
        assert_int_equal(sizeof(struct ring_executor_header), 128);
        assert_int_equal(offsetof(struct marks, version), 0);
        assert_int_equal(offsetof(struct marks, epoch), 4);
        assert_int_equal(offsetof(struct marks, final), 8);
        assert_int_equal(offsetof(struct marks, error), 12);
        assert_int_equal(offsetof(struct marks, lost), 16);
        assert_int_equal(offsetof(struct marks, rung), 64);
        assert_int_equal(offsetof(struct marks, published), 320);
        assert_int_equal(RING_W_COMM, 1);
        assert_int_equal(RING_W_IN_BUFFER, 4);
        assert_int_equal(RING_W_OUT_BUFFER, 7);
        assert_int_equal(RING_W_EPOCH, 12);
        assert_int_equal(RING_W_SEQUENCE, 14);
        assert_int_equal(RING_W_ZERO, 15);
        assert_int_equal(RING_OP_ALL_REDUCE, 1);
        assert_int_equal(RING_OP_BARRIER, 12);
        assert_int_equal(RING_FIRST_SEQUENCE, 1);
}

static void test_fields(void **state) {
        struct ring_request r = {0};

        (void)state;
        ring_request_set_head(&r, RING_OP_BROADCAST, 9, 3);
        assert_int_equal(r.word[RING_W_HEAD], 0x01030903);
        assert_int_equal(ring_request_abi(&r), RING_ABI);
        assert_int_equal(ring_request_op(&r), RING_OP_BROADCAST);
        assert_int_equal(ring_request_type(&r), 9);
        assert_int_equal(ring_request_redop(&r), 3);
        ring_request_set_u64(&r, RING_W_IN_LO, UINT64_C(0x123456789abcdef0));
        assert_int_equal(r.word[RING_W_IN_LO], 0x9abcdef0);
        assert_true(ring_request_u64(&r, RING_W_IN_LO) == UINT64_C(0x123456789abcdef0));
        assert_int_equal(ring_status_code(ring_status(10, 63)), 10);
        assert_int_equal(ring_status_rank(ring_status(10, 63)), 63);
        assert_int_equal(ring_status_rank(ring_status(10, -1)), -1);
        assert_int_equal(ring_status(0, -1), 0);
        assert_true(ring_sequence_before(0xffffffff, 1));
        assert_false(ring_sequence_before(1, 0xffffffff));
        assert_false(ring_sequence_before(7, 7));
        assert_int_equal(ring_sequence_next(0xffffffff), 1);
        assert_int_equal(ring_sequence_next(1), 2);
}

static void test_layout(void **state) {
        static const uint32_t wrong[] = {0, 1, 2, 3, 5, 6, 7, 12, 255, 257, 4095, 4097, 8192, 1u << 31, UINT32_MAX};
        struct ring_layout l = {.depth = 77};

        (void)state;
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                assert_int_equal(ring_layout_init(&l, wrong[i], 0), RING_E_DEPTH);
        assert_int_equal(ring_layout_init(&l, 4, RING_ARGUMENT_BYTES_MAX + 1), RING_E_ARGUMENT);
        assert_int_equal(ring_layout_init(&l, 4, UINT32_MAX), RING_E_ARGUMENT);
        assert_int_equal(l.depth, 77); /* outputs only on success */

        assert_int_equal(ring_layout_init(&l, 256, RING_ARGUMENT_BYTES_DEFAULT), RING_OK);
        assert_int_equal(l.waiting_offset, 32768);
        assert_int_equal(l.argument_offset, 36864);
        assert_int_equal(l.client_bytes, 36864 + 65536);
        assert_int_equal(l.completion_offset, 128);
        assert_int_equal(l.executor_bytes, 4096);
        assert_int_equal(ring_layout_init(&l, 4, RING_ARGUMENT_BYTES_MAX), RING_OK);
        assert_int_equal(l.argument_bytes, RING_ARGUMENT_BYTES_MAX);
        for (uint32_t depth = RING_DEPTH_MIN; depth <= RING_DEPTH_MAX; depth *= 2) {
                assert_int_equal(ring_layout_init(&l, depth, 1), RING_OK);
                assert_int_equal(l.argument_bytes, 4096);
                assert_true(l.waiting_offset >= depth * sizeof(struct ring_line));
                assert_true(l.argument_offset >= l.waiting_offset + depth * 4);
                assert_int_equal(l.client_bytes, l.argument_offset + 4096);
                assert_true(l.executor_bytes >= l.completion_offset + depth * 8);
                assert_int_equal(l.client_bytes % 4096 + l.executor_bytes % 4096 + l.argument_offset % 4096, 0);
        }
}

struct pair {
        struct areas areas;
        struct ring_producer producer;
        struct ring_consumer consumer;
};

static void pair_init(struct pair *p, uint32_t depth, uint32_t first) {
        areas_init(&p->areas, depth);
        ring_producer_init(&p->producer, &p->areas.layout, p->areas.client_rw, p->areas.executor_ro, first);
        ring_consumer_init(&p->consumer, &p->areas.layout, p->areas.client_ro, p->areas.executor_rw, first);
}

static void test_full_and_empty(void **state) {
        static struct pair p;

        (void)state;
        for (uint32_t depth = RING_DEPTH_MIN; depth <= RING_DEPTH_MAX; depth *= 4) {
                struct ring_request sent, got;
                uint32_t s, q, status;

                pair_init(&p, depth, RING_FIRST_SEQUENCE);
                assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_E_EMPTY);
                assert_int_equal(ring_consumer_peek(&p.consumer, &got), RING_E_EMPTY);
                for (uint32_t i = 1; i <= depth; i++) {
                        sent = areas_request(i);
                        assert_int_equal(ring_producer_publish(&p.producer, &sent, &s), RING_OK);
                        assert_int_equal(s, i);
                        assert_int_equal(ring_producer_poll(&p.producer, s, &status), RING_E_AGAIN);
                }
                s = 0x5555;
                assert_int_equal(ring_producer_publish(&p.producer, &sent, &s), RING_E_FULL);
                assert_int_equal(s, 0x5555);
                for (uint32_t i = 1; i <= depth; i++) {
                        sent = areas_request(i);
                        assert_int_equal(ring_consumer_peek(&p.consumer, &got), RING_OK);
                        assert_memory_equal(&sent, &got, sizeof(got));
                        memset(&got, 0, sizeof(got));
                        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
                        assert_int_equal(q, i);
                        assert_memory_equal(&sent, &got, sizeof(got));
                }
                assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_E_EMPTY);
                /* the second request completes first; its slot is not the one that publish needs */
                ring_consumer_complete(&p.consumer, 2, ring_status(11, 5));
                assert_int_equal(ring_producer_poll(&p.producer, 1, &status), RING_E_AGAIN);
                assert_int_equal(ring_producer_poll(&p.producer, 2, &status), RING_OK);
                assert_int_equal(status, ring_status(11, 5));
                assert_int_equal(ring_producer_poll(&p.producer, 2 + depth, &status), RING_E_AGAIN);
                ring_producer_release(&p.producer, 2);
                assert_int_equal(ring_producer_publish(&p.producer, &sent, &s), RING_E_FULL);
                ring_consumer_complete(&p.consumer, 1, 0);
                ring_producer_release(&p.producer, 1);
                assert_int_equal(ring_producer_publish(&p.producer, &sent, &s), RING_OK);
                assert_int_equal(s, depth + 1);
                assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
                assert_int_equal(q, depth + 1);
                areas_deinit(&p.areas);
        }
}

static void test_wrap(void **state) {
        static struct pair p;
        uint32_t before = 0xfffffff5, s, q, status;

        (void)state;
        pair_init(&p, 8, before);
        for (uint32_t i = 0; i < 100; i++) {
                struct ring_request sent = areas_request(i), got;

                assert_int_equal(ring_producer_publish(&p.producer, &sent, &s), RING_OK);
                assert_int_not_equal(s, 0);
                assert_true(!i || ring_sequence_before(before, s));
                before = s;
                assert_int_equal(ring_producer_poll(&p.producer, s, &status), RING_E_AGAIN);
                assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
                assert_int_equal(q, s);
                assert_memory_equal(&sent, &got, sizeof(got));
                ring_consumer_complete(&p.consumer, q, i);
                assert_int_equal(ring_producer_poll(&p.producer, s, &status), RING_OK);
                assert_int_equal(status, i);
                ring_producer_release(&p.producer, s);
        }
        assert_int_equal(before, 100 - 11);
        areas_deinit(&p.areas);
}

/* Zeroed memory says nothing, wherever the sequences start. */
static void test_zeroed(void **state) {
        static const uint32_t first[] = {0, 1, 4, 0xfffffffc, 0xffffffff};
        static struct pair p;
        struct ring_request got;
        uint32_t q, status, cursor;

        (void)state;
        for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
                pair_init(&p, 4, first[i]);
                cursor = 0;
                assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_E_EMPTY);
                assert_int_equal(ring_consumer_relatch(&p.consumer, &cursor, &got, &q), RING_E_EMPTY);
                assert_int_equal(ring_producer_poll(&p.producer, p.producer.next, &status), RING_E_AGAIN);
                assert_int_not_equal(p.producer.next, 0);
                assert_int_equal(p.producer.next, p.consumer.next);
                areas_deinit(&p.areas);
        }
}

/* Every cell in turn missing, of an older lap, of a later lap, or of the next sequence. */
static void test_torn_lines(void **state) {
        static struct pair p;
        struct ring_line *line;
        struct ring_request got;
        uint32_t q;

        (void)state;
        pair_init(&p, 4, 0x80000009);
        line = &((struct ring_line *)p.areas.client_rw)[0x80000009 & 3];
        for (uint32_t i = 0; i < RING_WORDS; i++) {
                const uint32_t wrong[] = {0, 9, 0x80000005, 0x8000000d, 0x8000000a, 0x80000008, 0x00000009, 0x80000109};

                for (size_t w = 0; w < sizeof(wrong) / sizeof(wrong[0]); w++) {
                        for (uint32_t k = 0; k < RING_WORDS; k++)
                                line->cell[k] = (uint64_t)(k == i ? wrong[w] : 0x80000009) << 32 | k;
                        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_E_EMPTY);
                        assert_int_equal(ring_consumer_peek(&p.consumer, &got), RING_E_EMPTY);
                        assert_false(ring_consumer_sleep(&p.consumer));
                }
        }
        for (uint32_t k = 0; k < RING_WORDS; k++)
                line->cell[k] = UINT64_C(0x80000009) << 32 | k;
        assert_true(ring_consumer_sleep(&p.consumer));
        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
        /* the copy is ours */
        for (uint32_t k = 0; k < RING_WORDS; k++)
                line->cell[k] = ~UINT64_C(0);
        assert_int_equal(got.word[7], 7);
        areas_deinit(&p.areas);
}

/* A client that does not wait for its completions: the slot's request stays alone until it is answered. */
static void test_early_line(void **state) {
        static struct pair p;
        struct ring_line *lines;
        struct ring_request got;
        uint32_t q, s;

        (void)state;
        pair_init(&p, 4, 1);
        lines = p.areas.client_rw;
        for (uint32_t i = 0; i < 4; i++) {
                struct ring_request r = areas_request(i);

                assert_int_equal(ring_producer_publish(&p.producer, &r, &s), RING_OK);
                assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
        }
        for (uint32_t k = 0; k < RING_WORDS; k++)
                lines[1].cell[k] = UINT64_C(5) << 32 | k;
        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_E_EMPTY);
        assert_int_equal(ring_consumer_peek(&p.consumer, &got), RING_E_EMPTY);
        assert_false(ring_consumer_sleep(&p.consumer)); /* no reason to stay awake either */
        ring_consumer_complete(&p.consumer, 2, 0);
        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_E_EMPTY);
        ring_consumer_complete(&p.consumer, 1, 0);
        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
        assert_int_equal(q, 5);
        areas_deinit(&p.areas);
}

static void test_need_wake(void **state) {
        static struct pair p;
        struct ring_request r = areas_request(1), got;
        uint32_t s, q;

        (void)state;
        pair_init(&p, 4, 1);
        assert_false(ring_producer_must_wake(&p.producer));
        assert_false(ring_consumer_sleep(&p.consumer));
        assert_true(ring_producer_must_wake(&p.producer));
        assert_int_equal(ring_producer_publish(&p.producer, &r, &s), RING_OK);
        assert_true(ring_consumer_sleep(&p.consumer));
        ring_consumer_awake(&p.consumer);
        assert_false(ring_producer_must_wake(&p.producer));
        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
        assert_false(ring_consumer_sleep(&p.consumer));
        areas_deinit(&p.areas);
}

/* ---- death of the executor ------------------------------------------------------------------------------------------
 */

#define TRACKED 4096

struct life {
        struct pair pair;
        uint32_t sequence[TRACKED]; /* of the n-th request */
        bool completed[TRACKED], harvested[TRACKED];
        uint32_t n_published, n_latched;
};

/* What a successor must find now; the ring goes on unchanged. */
static void life_check_successor(struct life *l, uint32_t first, uint32_t relatched_before_another_death) {
        static struct ring_consumer successor;
        struct ring_request got, sent;
        uint32_t cursor = 0, q, n = 0;
        uint32_t next_word = areas_header(&l->pair.areas)->next;

        ring_consumer_init(&successor, &l->pair.areas.layout, l->pair.areas.client_ro, l->pair.areas.executor_rw,
                           first);
        for (uint32_t i = 0; i < relatched_before_another_death; i++)
                ring_consumer_relatch(&successor, &cursor, &got, &q);
        cursor = 0;
        ring_consumer_init(&successor, &l->pair.areas.layout, l->pair.areas.client_ro, l->pair.areas.executor_rw,
                           first);
        for (uint32_t i = l->n_latched > 64 ? l->n_latched - 64 : 0; i < l->n_latched; i++) {
                if (l->completed[i])
                        continue;
                assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_OK);
                assert_int_equal(q, l->sequence[i]);
                sent = areas_request(i);
                assert_memory_equal(&sent, &got, sizeof(got));
                n++;
        }
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_E_EMPTY);
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_E_EMPTY);
        /* new lines follow, each once */
        for (uint32_t i = l->n_latched; i < l->n_published; i++) {
                assert_int_equal(ring_consumer_latch(&successor, &got, &q), RING_OK);
                assert_int_equal(q, l->sequence[i]);
                n++;
        }
        assert_int_equal(ring_consumer_latch(&successor, &got, &q), RING_E_EMPTY);
        for (uint32_t i = 0; i < RING_DEPTH_MAX / 64; i++)
                n -= (uint32_t)__builtin_popcountll(successor.busy[i]);
        assert_int_equal(n, 0);
        areas_header(&l->pair.areas)->next = next_word; /* undo the latches of this trial */
}

static void life_step(struct life *l, unsigned int *seed) {
        struct ring_request request, got;
        uint32_t q, status, i;

        switch (rand_r(seed) % 4) {
        case 0:
                request = areas_request(l->n_published);
                if (l->n_published < TRACKED &&
                    ring_producer_publish(&l->pair.producer, &request, &l->sequence[l->n_published]) == RING_OK)
                        l->n_published++;
                return;
        case 1:
                if (ring_consumer_latch(&l->pair.consumer, &got, &q) == RING_OK)
                        assert_int_equal(q, l->sequence[l->n_latched++]);
                else
                        assert_int_equal(l->n_latched, l->n_published);
                return;
        default:
                break;
        }
        /* any request of the last laps, in no order: completed if it is in flight, harvested if it is completed */
        if (!l->n_latched)
                return;
        i = 2 * l->pair.areas.layout.depth; /* as far back as a request in flight can be, just after the wrap */
        i = l->n_latched - 1 - (uint32_t)rand_r(seed) % (l->n_latched < i ? l->n_latched : i);
        if (!l->completed[i]) {
                ring_consumer_complete(&l->pair.consumer, l->sequence[i], i);
                l->completed[i] = true;
        } else if (!l->harvested[i]) {
                assert_int_equal(ring_producer_poll(&l->pair.producer, l->sequence[i], &status), RING_OK);
                assert_int_equal(status, i);
                ring_producer_release(&l->pair.producer, l->sequence[i]);
                l->harvested[i] = true;
        }
}

/* After each step of long random lives that start just before the wrap (and elsewhere), a successor takes over. */
static void test_takeover(void **state) {
        static const uint32_t first[] = {1,          2,          3,          1000,       0x7ffffffa,
                                         0xffffffd0, 0xfffffff8, 0xfffffff9, 0xfffffffc, 0xffffffff};
        static struct life l;

        (void)state;
        for (uint32_t depth = 4; depth <= 8; depth *= 2)
                for (size_t f = 0; f < sizeof(first) / sizeof(first[0]); f++)
                        for (unsigned int round = 0; round < 40; round++) {
                                unsigned int seed = round * 7919 + (unsigned int)f;

                                memset(&l, 0, sizeof(l));
                                pair_init(&l.pair, depth, first[f]);
                                for (int step = 0; step < 300; step++) {
                                        life_step(&l, &seed);
                                        life_check_successor(&l, first[f], (uint32_t)rand_r(&seed) % 3);
                                }
                                assert_true(l.n_latched > depth); /* the life went on */
                                areas_deinit(&l.pair.areas);
                        }
}

/* The points of a request's life at which memory differs: what was done before the kill is there, the rest is not. */
static void test_death_points(void **state) {
        static struct pair p;
        static struct ring_consumer successor;
        struct ring_request r = areas_request(1), got;
        uint32_t s, q, cursor, status;

        (void)state;
        /* in latch, before next was stored: the line is new to the successor */
        pair_init(&p, 4, 1);
        assert_int_equal(ring_producer_publish(&p.producer, &r, &s), RING_OK);
        assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
        areas_header(&p.areas)->next = 0;
        cursor = 0;
        ring_consumer_init(&successor, &p.areas.layout, p.areas.client_ro, p.areas.executor_rw, 1);
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_E_EMPTY);
        assert_int_equal(ring_consumer_latch(&successor, &got, &q), RING_OK);
        assert_int_equal(q, 1);
        /* after it: in flight, and never again as new */
        cursor = 0;
        ring_consumer_init(&successor, &p.areas.layout, p.areas.client_ro, p.areas.executor_rw, 1);
        assert_int_equal(ring_consumer_latch(&successor, &got, &q), RING_E_EMPTY);
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_OK);
        assert_int_equal(q, 1);
        assert_memory_equal(&r, &got, sizeof(got));
        /* completed by the successor; the next one finds nothing to do */
        ring_consumer_complete(&successor, 1, 9);
        assert_int_equal(ring_producer_poll(&p.producer, 1, &status), RING_OK);
        assert_int_equal(status, 9);
        cursor = 0;
        ring_consumer_init(&successor, &p.areas.layout, p.areas.client_ro, p.areas.executor_rw, 1);
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_E_EMPTY);
        assert_int_equal(areas_header(&p.areas)->epoch_hint, 4);
        areas_deinit(&p.areas);
}

/* A client that destroys its line after it was latched gets no answer from a successor, and nothing else happens. */
static void test_destroyed_line(void **state) {
        static struct pair p;
        static struct ring_consumer successor;
        struct ring_line *lines;
        struct ring_request r, got;
        uint32_t s, q, cursor = 0;

        (void)state;
        pair_init(&p, 4, 1);
        lines = p.areas.client_rw;
        for (uint32_t i = 0; i < 3; i++) {
                r = areas_request(i);
                assert_int_equal(ring_producer_publish(&p.producer, &r, &s), RING_OK);
                assert_int_equal(ring_consumer_latch(&p.consumer, &got, &q), RING_OK);
        }
        lines[2].cell[11] = 0;
        ring_consumer_init(&successor, &p.areas.layout, p.areas.client_ro, p.areas.executor_rw, 1);
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_OK);
        assert_int_equal(q, 1);
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_OK);
        assert_int_equal(q, 3);
        assert_int_equal(ring_consumer_relatch(&successor, &cursor, &got, &q), RING_E_EMPTY);
        areas_deinit(&p.areas);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_abi),          cmocka_unit_test(test_fields),
                cmocka_unit_test(test_layout),       cmocka_unit_test(test_full_and_empty),
                cmocka_unit_test(test_wrap),         cmocka_unit_test(test_zeroed),
                cmocka_unit_test(test_torn_lines),   cmocka_unit_test(test_early_line),
                cmocka_unit_test(test_need_wake),    cmocka_unit_test(test_takeover),
                cmocka_unit_test(test_death_points), cmocka_unit_test(test_destroyed_line),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
