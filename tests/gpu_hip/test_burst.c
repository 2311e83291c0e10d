/* SPDX-License-Identifier: MIT */
/* Who launches bursts, and when. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "gpu/hip/copies.h"
#include "gpu/hip/hip.h"

#define wait_until(condition)                                                                                          \
        do {                                                                                                           \
                while (!(condition))                                                                                   \
                        sched_yield(); /* the test's time limit ends it */                                             \
        } while (0)

static int setup(void **state) {
        static struct fixture fixture;

        fake_reset();
        fixture_open(&fixture, PLANE_SHARED);
        *state = &fixture;
        return 0;
}

static int teardown(void **state) {
        fixture_close(*state);
        return 0;
}

/* What a worker does when it has posted a burst. */
static void post(const struct fixture *f, uint32_t number, uint32_t kib) {
        uint64_t *cell = (uint64_t *)(uintptr_t)&f->plane->tables.report->burst[number % TABLE_BURSTS];

        __atomic_store_n(cell, (uint64_t)number << 32 | kib, __ATOMIC_RELEASE);
}

static uint32_t launched(void) {
        return atomic_load(&fake.bursts.n);
}

static void kernels_know_where_to_post(void **state) {
        const struct fixture *f = *state;
        struct plane_info info;

        assert_int_equal(f->table->bursts, (uintptr_t)f->plane->burst.queue);
        assert_int_not_equal(f->table->bursts, 0);
        f->ops->info(f->plane, &info);
        assert_int_equal(info.bursts, info.reaches);
}

/* Each once, in order, also round the ring of numbers; larger requests have more blocks. */
static void each_is_launched(void **state) {
        static const struct {
                uint32_t kib, slices;
        } sizes[] = {{0, 1}, {1023, 1}, {1024, 2}, {8191, 2}, {8192, 4}, {1u << 22, 4}};
        const struct fixture *f = *state;

        assert_int_equal(launched(), 0);
        for (uint32_t i = 0; i < 2 * TABLE_BURSTS + 3; i++) {
                post(f, i + 1, sizes[i % 6].kib);
                wait_until(launched() == i + 1);
                assert_int_equal(fake.bursts.launch[i].number, i + 1);
                assert_int_equal(fake.bursts.launch[i].n_blocks, FAKE_BURST_BLOCKS * sizes[i % 6].slices);
        }
        /* Several at once: they may run side by side. */
        for (uint32_t i = launched(), end = i + TABLE_BURSTS - 1; i < end; i++)
                post(f, i + 1, 4);
        wait_until(launched() == 3 * TABLE_BURSTS + 2);
        for (uint32_t i = 1; i < launched(); i++) {
                assert_int_equal(fake.bursts.launch[i].number, i + 1);
                assert_ptr_not_equal(fake.bursts.launch[i].stream, fake.bursts.launch[i - 1].stream);
        }
        assert_int_equal(atomic_load(&f->plane->burst.launched), launched());
}

/* What comes too early is not launched: the one before it is missing. */
static void none_is_skipped(void **state) {
        const struct fixture *f = *state;

        post(f, 2, 4);
        post(f, 1, 4);
        wait_until(launched() == 2);
        assert_int_equal(fake.bursts.launch[0].number, 1);
        assert_int_equal(fake.bursts.launch[1].number, 2);
}

/* Places are used again, where what was posted has been taken back, before this thread has looked. */
static void places_used_again_are_passed_over(void **state) {
        const struct fixture *f = *state;

        for (uint32_t i = 0; i < 5; i++) /* the others are there already, and later ones in the first places */
                post(f, TABLE_BURSTS + 1 + i, 4);
        for (uint32_t i = 5; i < TABLE_BURSTS; i++)
                post(f, 1 + i, 4);
        wait_until(launched() == TABLE_BURSTS);
        for (uint32_t i = 0; i < TABLE_BURSTS; i++)
                assert_int_equal(fake.bursts.launch[i].number, 6 + i);
        post(f, TABLE_BURSTS + 6, 4);
        wait_until(launched() == TABLE_BURSTS + 1);
        assert_int_equal(fake.bursts.launch[TABLE_BURSTS].number, TABLE_BURSTS + 6);
}

static void parking_changes_nothing(void **state) {
        struct fixture *f = *state;
        char error[PLANE_TEXT];

        assert_int_equal(park_stop(&f->plane->park, &f->plane->tables, PARK_AT_ONCE, 1000, error), 0);
        assert_int_equal(park_launch(&f->plane->park, &f->plane->tables, error), 0);
        assert_int_equal(f->table->bursts, (uintptr_t)f->plane->burst.queue);
        post(f, 1, 4);
        wait_until(launched() == 1);
}

/* What has a fault leaves its kernel behind. */
static void close_faulty(struct fixture *f) {
        f->ops->close(f->plane);
        atomic_store(&fake.dies, true);
        fake_reap();
}

static void a_failure_is_a_fault(void **state) {
        struct fixture *f = *state;
        int r = 0;

        atomic_store(&fake.bursts.refuse, true);
        post(f, 1, 4);
        while (!r)
                r = f->ops->tick(f->plane, f->error);
        assert_int_equal(r, -EIO);
        assert_non_null(strstr(f->error, "launching a burst"));
        assert_int_equal(launched(), 0);
        close_faulty(f);
}

/* For measurements. */
static void blocks_have_a_bound(void **state) {
        static struct fixture fixture;

        fake_reset();
        assert_int_equal(setenv("RAILMUX_GPU_BURST_BLOCKS", "40", 1), 0);
        fixture_open(&fixture, PLANE_SHARED);
        assert_int_equal(unsetenv("RAILMUX_GPU_BURST_BLOCKS"), 0);
        *state = &fixture;
        post(&fixture, 1, 1u << 20);
        wait_until(launched() == 1);
        assert_int_equal(fake.bursts.launch[0].n_blocks, 2 * FAKE_BURST_BLOCKS);
        fixture_close(&fixture);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */
#define PIECE 4096u

static unsigned char *client_memory;

static int setup_copies(void **state) {
        static struct fixture fixture;
        struct plane_memory memory;

        fake_reset();
        client_memory = fake_client_alloc((size_t)16 * PIECE, &memory);
        assert_int_equal(setenv("RAILMUX_GPU_COPIES", "4M", 1), 0);
        fixture_open(&fixture, PLANE_SHARED);
        assert_int_equal(unsetenv("RAILMUX_GPU_COPIES"), 0);
        *state = &fixture;
        return 0;
}

static int teardown_copies(void **state) {
        fixture_close(*state);
        fake_client_free(client_memory);
        return 0;
}

static uint32_t enqueued(void) {
        return atomic_load(&fake.copies.n);
}

static struct table_report *report_of(const struct fixture *f) {
        return (struct table_report *)(uintptr_t)f->plane->tables.report;
}

/* What a worker does; piece i is of i + 1 units, but for every third one, which is none. */
static void post_copies(const struct fixture *f, uint32_t number, uint32_t n) {
        struct table_report *report = report_of(f);
        struct table_copies *copies = &report->copies[number % TABLE_BURSTS];

        for (uint32_t i = 0; i < n; i++) {
                copies->piece[i].from = (uintptr_t)client_memory + (uintptr_t)i * PIECE;
                copies->piece[i].to = (uintptr_t)client_memory + (uintptr_t)(8 + i) * PIECE;
                copies->piece[i].bytes = i % 3 == 2 ? 0 : 16 * (i + 1);
        }
        copies->n = n;
        __atomic_store_n(&copies->withdrawn, number - 1, __ATOMIC_RELAXED);
        __atomic_store_n(&report->burst[number % TABLE_BURSTS], (uint64_t)number << 32 | TABLE_BURST_COPIES | 4096,
                         __ATOMIC_RELEASE);
}

/* The pieces of such a number and the word behind them are there, from `at` on; what follows them is at the result. */
static uint32_t expect_copies(const struct fixture *f, uint32_t number, uint32_t n, uint32_t at) {
        const void *stream = f->plane->burst.streams[number % BURST_STREAMS];
        const struct fake_copy *copy = &fake.copies.copy[at];

        for (uint32_t i = 0; i < n; i++) {
                if (i % 3 == 2)
                        continue;
                assert_ptr_equal(copy->stream, stream);
                assert_ptr_equal(copy->from, client_memory + (size_t)i * PIECE);
                assert_ptr_equal(copy->to, client_memory + (size_t)(8 + i) * PIECE);
                assert_int_equal(copy++->bytes, 16 * (i + 1));
        }
        assert_ptr_equal(copy->stream, stream);
        assert_int_equal(copy->bytes, 0);
        assert_ptr_equal(copy->to, kernel_burst_state(f->plane->burst.queue, number));
        assert_int_equal(copy->value, kernel_burst_done(number));
        return (uint32_t)(copy + 1 - fake.copies.copy);
}

static uint64_t begun(const struct fixture *f, uint32_t number) {
        return __atomic_load_n(&report_of(f)->begun[number % TABLE_BURSTS], __ATOMIC_ACQUIRE);
}

static uint64_t looked_at(const struct fixture *f) {
        return atomic_load(&f->plane->burst.launched);
}

/* Each stream has had a copy and a word before the first kernel, within the queue, which stays as it is. */
static void streams_have_been_tried(void **state) {
        const struct fixture *f = *state;
        const char *queue = f->plane->burst.queue;

        assert_int_equal(f->table->copies, 4 << 20);
        assert_int_equal(enqueued(), 2 * BURST_STREAMS);
        for (uint32_t i = 0; i < BURST_STREAMS; i++) {
                const struct fake_copy *copy = &fake.copies.copy[2 * i];

                assert_ptr_equal(copy[0].stream, f->plane->burst.streams[i]);
                assert_ptr_equal(copy[1].stream, f->plane->burst.streams[i]);
                assert_true(copy[0].bytes && (const char *)copy[0].from >= queue && (char *)copy[0].to >= queue &&
                            (const char *)copy[0].from + copy[0].bytes <= queue + kernel_burst_bytes() &&
                            (const char *)copy[0].to + copy[0].bytes <= (const char *)copy[0].from);
                assert_ptr_equal(copy[1].to, kernel_burst_state(f->plane->burst.queue, 0));
                assert_int_equal(copy[1].value, 0);
        }
}

static void nothing_is_copied_unless_asked_for(void **state) {
        const struct fixture *f = *state;

        assert_int_equal(f->table->copies, 0);
        assert_int_equal(enqueued(), 0);
}

/* The pieces and the word behind them, on the streams by turns, and kernels for what is none. */
static void pieces_are_enqueued(void **state) {
        const struct fixture *f = *state;
        uint32_t at = enqueued();

        for (uint32_t number = 1; number <= TABLE_BURSTS + 3; number++) {
                if (number % 4 == 0) {
                        post(f, number, 4);
                        wait_until(looked_at(f) == number);
                        assert_int_equal(fake.bursts.launch[number / 4 - 1].number, number);
                        assert_int_equal(enqueued(), at);
                } else {
                        post_copies(f, number, number % 9);
                        wait_until(looked_at(f) == number);
                        at = expect_copies(f, number, number % 9, at);
                        assert_int_equal(begun(f, number), (uint64_t)number << 32 | TABLE_BEGUN_YES);
                }
                assert_int_equal(enqueued(), at);
        }
}

/* leave.c wants to know it, whatever moves it. */
static void the_size_is_told(void **state) {
        const struct fixture *f = *state;
        struct table_report *report = calloc(1, sizeof(*report));
        struct burst burst = {.report = report, .queue = f->plane->burst.queue, .next = 3};
        uint32_t kib = 0;

        assert_non_null(report);
        memcpy(burst.streams, f->plane->burst.streams, sizeof(burst.streams));
        report->burst[3] = (uint64_t)3 << 32 | TABLE_BURST_COPIES | 16385;
        report->copies[3].withdrawn = 2;
        assert_true(burst_look(&burst, &kib));
        assert_int_equal(kib, 16385);
        assert_int_equal(enqueued(), expect_copies(f, 3, 0, 2 * BURST_STREAMS));
        kib = 0;
        assert_false(burst_look(&burst, &kib));
        assert_int_equal(kib, 0);
        free(report);
}

/* Taken back before the thread has looked, or by a later number at its place. */
static void withdrawn_pieces_are_not_looked_at(void **state) {
        static const uint32_t later[] = {0, TABLE_BURSTS - 1, TABLE_BURSTS, 5 * TABLE_BURSTS - 1};
        const struct fixture *f = *state;
        const uint32_t at = enqueued();
        uint32_t number = 0;

        for (uint32_t i = 0; i < sizeof(later) / sizeof(*later); i++) {
                struct table_copies *copies = &report_of(f)->copies[++number % TABLE_BURSTS];

                copies->n = TABLE_COPIES;
                copies->piece[0].bytes = 1; /* of nobody */
                __atomic_store_n(&copies->withdrawn, number + later[i], __ATOMIC_RELAXED);
                __atomic_store_n(&report_of(f)->burst[number % TABLE_BURSTS],
                                 (uint64_t)number << 32 | TABLE_BURST_COPIES | 4096, __ATOMIC_RELEASE);
                wait_until(looked_at(f) == number);
                assert_int_equal(begun(f, number), (uint64_t)number << 32 | TABLE_BEGUN_PASSED);
                assert_int_equal(enqueued(), at);
        }
        post_copies(f, ++number, 2);
        wait_until(looked_at(f) == number);
        assert_int_equal(enqueued(), expect_copies(f, number, 2, at));
        assert_int_equal(launched(), 0);
}

/* Both halves at the same time, on processors that let a load pass a store: what the host is to move the worker waits
 * for, whoever comes first. */
#define DUELS 60000u

struct duel {
        struct table_report *report;
        _Atomic uint32_t arrived; /* twice a round, both */
        bool saw;                 /* the worker: the host has begun */
};

static void duel_meet(struct duel *duel, uint32_t times) {
        atomic_fetch_add(&duel->arrived, 1);
        for (uint32_t looks = 0; atomic_load(&duel->arrived) < 2 * times; looks++)
                if (looks % 1024 == 1023) /* there may be but one processor */
                        sched_yield();
}

static void *duel_worker(void *data) {
        struct duel *duel = data;

        for (uint32_t number = 1; number <= DUELS; number++) {
                struct table_copies *copies = &duel->report->copies[number % TABLE_BURSTS];
                const uint64_t *cell = &duel->report->begun[number % TABLE_BURSTS];

                __atomic_store_n(&copies->withdrawn, number - 1, __ATOMIC_RELAXED);
                duel_meet(duel, 2 * number - 1);
                for (uint32_t i = 0; i < number % 16; i++)
                        atomic_load_explicit(&duel->arrived, memory_order_relaxed);
                __atomic_store_n(&copies->withdrawn, number, __ATOMIC_RELAXED); /* as copies_quiet() */
                __atomic_thread_fence(__ATOMIC_SEQ_CST);
                duel->saw = __atomic_load_n(cell, __ATOMIC_RELAXED) >> 32 == number;
                duel_meet(duel, 2 * number);
        }
        return NULL;
}

static void who_comes_second_sees_the_other(void **state) {
        struct duel duel = {.report = calloc(1, sizeof(*duel.report))};
        pthread_t worker;

        (void)state;
        assert_non_null(duel.report);
        assert_int_equal(pthread_create(&worker, NULL, duel_worker, &duel), 0);
        for (uint32_t number = 1; number <= DUELS; number++) {
                const uint64_t *cell = &duel.report->begun[number % TABLE_BURSTS];
                bool moves;

                duel_meet(&duel, 2 * number - 1);
                moves = copies_begin(duel.report, number);
                duel_meet(&duel, 2 * number);
                assert_true(!moves || duel.saw);
                assert_int_equal(*cell, (uint64_t)number << 32 | (moves ? TABLE_BEGUN_YES : TABLE_BEGUN_PASSED));
        }
        pthread_join(worker, NULL);
        free(duel.report);
}

/* A piece, or the word behind the last one, is refused: what waits for it does so for ever, and the plane says why. */
static void a_failed_copy_is_a_fault(void **state) {
        for (uint32_t taken = 0; taken < 3; taken++) {
                struct fixture *f;
                uint32_t at;
                int r = 0;

                if (taken)
                        assert_int_equal(setup_copies(state), 0);
                f = *state;
                at = enqueued();
                atomic_store(&fake.copies.refuse, 1 + at + taken);
                post_copies(f, 1, 2);
                while (!r)
                        r = f->ops->tick(f->plane, f->error);
                assert_int_equal(r, -EIO);
                assert_non_null(strstr(f->error, "launching a burst"));
                assert_int_equal(enqueued(), at + taken); /* nothing behind it, least of all that it is done */
                close_faulty(f);
                fake_client_free(client_memory);
        }
}

static void refuse_open(const char *wish, int want, const char *text) {
        const struct plane_options options = {.pool_bytes = FIXTURE_POOL, .policy = PLANE_SHARED};
        struct plane *plane;
        char error[PLANE_TEXT];

        assert_int_equal(setenv("RAILMUX_GPU_COPIES", wish, 1), 0);
        assert_int_equal(railmux_gpu_plane.open(&options, &plane, error), want);
        assert_int_equal(unsetenv("RAILMUX_GPU_COPIES"), 0);
        assert_non_null(strstr(error, text));
        fake_assert_clean();
}

static void what_cannot_be_is_refused(void **state) {
        (void)state;
        fake_reset();
        refuse_open("much", -EINVAL, "RAILMUX_GPU_COPIES");
        atomic_store(&fake.copies.no_words, true);
        refuse_open("4M", -ENOTSUP, "trying writes behind copies");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(kernels_know_where_to_post, setup, teardown),
                cmocka_unit_test_setup_teardown(each_is_launched, setup, teardown),
                cmocka_unit_test_setup_teardown(none_is_skipped, setup, teardown),
                cmocka_unit_test_setup_teardown(places_used_again_are_passed_over, setup, teardown),
                cmocka_unit_test_setup_teardown(parking_changes_nothing, setup, teardown),
                cmocka_unit_test(blocks_have_a_bound),
                cmocka_unit_test_setup(a_failure_is_a_fault, setup),
                cmocka_unit_test_setup_teardown(nothing_is_copied_unless_asked_for, setup, teardown),
                cmocka_unit_test_setup_teardown(streams_have_been_tried, setup_copies, teardown_copies),
                cmocka_unit_test_setup_teardown(pieces_are_enqueued, setup_copies, teardown_copies),
                cmocka_unit_test_setup_teardown(the_size_is_told, setup_copies, teardown_copies),
                cmocka_unit_test_setup_teardown(withdrawn_pieces_are_not_looked_at, setup_copies, teardown_copies),
                cmocka_unit_test(who_comes_second_sees_the_other),
                cmocka_unit_test_setup(a_failed_copy_is_a_fault, setup_copies),
                cmocka_unit_test(what_cannot_be_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
