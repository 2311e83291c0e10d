/* SPDX-License-Identifier: MIT */
/* The latch by itself, over the runtime of fake.c: what is taken for misuse, and what is not. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>

#include "fixture.h"
#include "gpu/hip/latch.h"

#define MISUSED_MOST 4u
#define MINUTE_MS    60000u

static _Alignas(BELL_LATCH_BYTES) struct bell_latch page[BELL_LATCH_BYTES / sizeof(struct bell_latch)];

struct rig {
        struct latch latch;
        hipStream_t control;
        char error[PLANE_TEXT];
};

static void rig_open(struct rig *rig) {
        *rig = (struct rig){0};
        fake_reset();
        page->lifted = page->token = 7;
        assert_int_equal(unsetenv("RAILMUX_GPU_QUEUE"), 0);
        assert_int_equal(hipStreamCreateWithFlags(&rig->control, hipStreamNonBlocking), hipSuccess);
        assert_int_equal(latch_open(&rig->latch, rig->control, page, rig->error), 0);
        assert_true(latch_usable(&rig->latch));
        rig->latch.alone = true;
        latch_judge(&rig->latch); /* nothing has been queued yet */
        assert_int_equal(rig->latch.n_misused, 0);
        latch_arm(&rig->latch);
        assert_int_equal(page->lifted, 0);
        rig->latch.waited_for = true;
}

static void rig_close(struct rig *rig) {
        latch_close(&rig->latch);
        assert_false(latch_usable(&rig->latch));
        assert_int_equal(hipStreamDestroy(rig->control), hipSuccess);
        fake_assert_clean();
}

/* A kernel that was queued has ended, and the next one is. */
static void next(struct rig *rig) {
        latch_judge(&rig->latch);
        latch_arm(&rig->latch);
        assert_false(rig->latch.waited_for);
        rig->latch.waited_for = true;
}

/* So many that have begun by themselves. */
static void in_vain(struct rig *rig, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
                rig->latch.alone = true;
                latch_lift(&rig->latch);
                next(rig);
        }
}

/* What has been misused is used again after a minute. */
static void shunned(struct rig *rig) {
        assert_false(latch_usable(&rig->latch));
        assert_int_equal(rig->latch.n_shunned, 1);
        fake_clock_advance_ms(MINUTE_MS - 1);
        assert_false(latch_usable(&rig->latch));
        fake_clock_advance_ms(1);
        assert_true(latch_usable(&rig->latch));
        in_vain(rig, MISUSED_MOST - 1);
        assert_true(latch_usable(&rig->latch));
        in_vain(rig, 1);
        assert_false(latch_usable(&rig->latch));
        assert_int_equal(rig->latch.n_shunned, 2);
}

static void begun_alone(void **state) {
        struct rig rig;

        (void)state;
        rig_open(&rig);
        in_vain(&rig, MISUSED_MOST);
        shunned(&rig);
        rig_close(&rig);
}

/* Between those one that somebody had said he would want, or that we let go for whatever reason. */
static void announced(void **state) {
        struct rig rig;

        (void)state;
        rig_open(&rig);
        for (uint32_t i = 0; i < 10; i++) {
                in_vain(&rig, MISUSED_MOST - 1);
                latch_lift(&rig.latch);
                next(&rig);
        }
        assert_true(latch_usable(&rig.latch));
        in_vain(&rig, MISUSED_MOST);
        shunned(&rig);
        rig_close(&rig);
}

/* Early enough nobody insists; then by the word, for which it must have been lifted by us. */
static void insisting(void **state) {
        struct rig rig;

        (void)state;
        rig_open(&rig);
        fake_clock_advance_ms(5);
        latch_insist(&rig.latch);
        assert_int_equal(page->lifted, 0);
        latch_lift(&rig.latch);
        assert_int_equal(page->lifted, 1);
        page->lifted = 0;
        fake_clock_advance_us(999);
        latch_insist(&rig.latch);
        assert_int_equal(page->lifted, 0);
        fake_clock_advance_us(1);
        latch_insist(&rig.latch);
        assert_int_equal(page->lifted, 1);
        assert_int_equal(page->token, rig.latch.token);
        page->lifted = 0;
        latch_insist(&rig.latch); /* not once more at once */
        assert_int_equal(page->lifted, 0);
        rig_close(&rig);
}

/* Insisted on though nobody had put it down: the kernel has had no room. */
static void no_room(void **state) {
        struct rig rig;

        (void)state;
        rig_open(&rig);
        for (uint32_t i = 0; i < 3 * MISUSED_MOST; i++) {
                latch_lift(&rig.latch);
                for (uint32_t k = 0; k < 3; k++) {
                        fake_clock_advance_ms(1);
                        latch_insist(&rig.latch);
                }
                assert_int_equal(rig.latch.token, 3 * i + 3);
                next(&rig);
        }
        assert_true(latch_usable(&rig.latch));
        rig_close(&rig);
}

/* The GPU cannot be told to write, so nothing follows from what is not there. */
static void insisting_without_the_gpu(void **state) {
        struct rig rig;

        (void)state;
        for (uint32_t refused = 1; refused <= 2; refused++) {
                rig_open(&rig);
                page->token = 0;
                for (uint32_t i = 0; i < 2 * MISUSED_MOST; i++) {
                        latch_lift(&rig.latch);
                        fake_clock_advance_ms(1);
                        atomic_store(&fake.refuse_words, refused);
                        latch_insist(&rig.latch);
                        atomic_store(&fake.refuse_words, 0);
                        assert_int_equal(page->lifted, 1);
                        assert_int_equal(page->token, 0);
                        next(&rig);
                }
                assert_true(latch_usable(&rig.latch));
                rig_close(&rig);
        }
}

static void held_down(void **state) {
        struct rig rig;

        (void)state;
        rig_open(&rig);
        for (uint32_t i = 0; i < MISUSED_MOST; i++) {
                assert_true(latch_usable(&rig.latch));
                latch_lift(&rig.latch);
                page->lifted = 0;
                fake_clock_advance_ms(1);
                latch_insist(&rig.latch);
                next(&rig);
        }
        shunned(&rig);
        rig_close(&rig);
}

/* The GPU has another page: what it writes, who insists on it, does not come. */
static void hole(void **state) {
        _Alignas(BELL_LATCH_BYTES) static struct bell_latch there[BELL_LATCH_BYTES / sizeof(struct bell_latch)];
        struct rig rig;

        (void)state;
        rig_open(&rig);
        rig.latch.there = fake.elsewhere = there;
        for (uint32_t i = 0; i < MISUSED_MOST; i++) {
                assert_true(latch_usable(&rig.latch));
                latch_lift(&rig.latch);
                fake_clock_advance_ms(1);
                latch_insist(&rig.latch);
                assert_int_equal(there->lifted, 1);
                assert_int_equal(there->token, i + 1);
                next(&rig);
        }
        shunned(&rig);
        fake.elsewhere = NULL;
        rig_close(&rig);
}

/* One that was held down says nothing of those after it, and neither does one token that has not come. */
static void forgiven(void **state) {
        struct rig rig;

        (void)state;
        rig_open(&rig);
        for (uint32_t token = 0; token < 2; token++) {
                latch_lift(&rig.latch);
                page->lifted = token;
                fake_clock_advance_ms(1);
                latch_insist(&rig.latch);
                page->token -= token;
                next(&rig);
                assert_int_equal(rig.latch.n_misused, 1);
                for (uint32_t i = 0; i < MISUSED_MOST; i++) {
                        latch_lift(&rig.latch);
                        next(&rig);
                        assert_int_equal(rig.latch.n_misused, 0);
                }
        }
        rig_close(&rig);
}

static void closed(void **state) {
        struct rig rig = {0};

        (void)state;
        assert_false(latch_usable(&rig.latch));
        latch_arm(&rig.latch);
        latch_judge(&rig.latch);
        latch_close(&rig.latch);
        rig_open(&rig);
        atomic_store(&fake.no_waits, true);
        assert_false(latch_wait(&rig.latch, rig.control));
        assert_false(latch_usable(&rig.latch));
        rig_close(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(begun_alone),
                cmocka_unit_test(announced),
                cmocka_unit_test(insisting),
                cmocka_unit_test(no_room),
                cmocka_unit_test(insisting_without_the_gpu),
                cmocka_unit_test(held_down),
                cmocka_unit_test(hole),
                cmocka_unit_test(forgiven),
                cmocka_unit_test(closed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
