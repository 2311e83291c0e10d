/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"
#include "util/charge.h"

static struct charge_account account_of(uint64_t limit) {
        struct charge_account account = {0};

        for (unsigned int i = 0; i < CHARGE_KIND_COUNT; ++i)
                account.limit[i] = limit;
        return account;
}

static void test_take_and_release(void **state) {
        struct charge_account account = account_of(10);
        struct charge a = CHARGE_INIT, b = CHARGE_INIT;

        (void)state;
        assert_int_equal(charge_take(&a, &account, CHARGE_BYTES, 7), 0);
        assert_int_equal(account.used[CHARGE_BYTES], 7);
        assert_int_equal(account.used[CHARGE_FDS], 0);
        assert_int_equal(charge_take(&b, &account, CHARGE_BYTES, 3), 0);
        assert_int_equal(account.used[CHARGE_BYTES], 10);
        charge_release(&a);
        assert_null(a.account);
        assert_int_equal(account.used[CHARGE_BYTES], 3);
        charge_release(&a);
        assert_int_equal(account.used[CHARGE_BYTES], 3);
        charge_release(&b);
        assert_int_equal(account.used[CHARGE_BYTES], 0);
        assert_int_equal(account.refused[CHARGE_BYTES], 0);
}

static void test_limit(void **state) {
        struct charge_account account = account_of(10);
        struct charge a = CHARGE_INIT, b = CHARGE_INIT;

        (void)state;
        assert_int_equal(charge_take(&a, &account, CHARGE_RINGS, 11), CHARGE_E_LIMIT);
        assert_null(a.account);
        assert_int_equal(account.used[CHARGE_RINGS], 0);
        assert_int_equal(charge_take(&a, &account, CHARGE_RINGS, 10), 0);
        assert_int_equal(charge_take(&b, &account, CHARGE_RINGS, 1), CHARGE_E_LIMIT);
        assert_int_equal(charge_take(&b, &account, CHARGE_FDS, 1), 0);
        assert_int_equal(account.refused[CHARGE_RINGS], 2);
        assert_int_equal(account.refused[CHARGE_FDS], 0);
        charge_release(&a);
        charge_release(&b);
}

static void test_overflow(void **state) {
        struct charge_account account = account_of(UINT64_MAX);
        struct charge a = CHARGE_INIT, b = CHARGE_INIT;

        (void)state;
        assert_int_equal(charge_take(&a, &account, CHARGE_BYTES, UINT64_MAX - 1), 0);
        assert_int_equal(charge_take(&b, &account, CHARGE_BYTES, 2), CHARGE_E_LIMIT);
        assert_int_equal(charge_take(&b, &account, CHARGE_BYTES, UINT64_MAX), CHARGE_E_LIMIT);
        assert_int_equal(account.used[CHARGE_BYTES], UINT64_MAX - 1);
        assert_int_equal(charge_take(&b, &account, CHARGE_BYTES, 1), 0);
        assert_int_equal(account.used[CHARGE_BYTES], UINT64_MAX);
        charge_release(&b);
        charge_release(&a);
        assert_int_equal(account.used[CHARGE_BYTES], 0);
}

static void test_zero_amount(void **state) {
        struct charge_account account = account_of(0);
        struct charge a = CHARGE_INIT;

        (void)state;
        assert_int_equal(charge_take(&a, &account, CHARGE_COMMS, 0), 0);
        assert_ptr_equal(a.account, &account);
        charge_release(&a);
}

/* A reload may put a limit below what is in use. */
static void test_lowered_limit(void **state) {
        struct charge_account account = account_of(10);
        struct charge a = CHARGE_INIT, b = CHARGE_INIT;

        (void)state;
        assert_int_equal(charge_take(&a, &account, CHARGE_SESSIONS, 8), 0);
        account.limit[CHARGE_SESSIONS] = 3;
        assert_int_equal(charge_take(&b, &account, CHARGE_SESSIONS, 0), CHARGE_E_LIMIT);
        assert_int_equal(charge_take(&b, &account, CHARGE_SESSIONS, 1), CHARGE_E_LIMIT);
        charge_release(&a);
        assert_int_equal(charge_take(&b, &account, CHARGE_SESSIONS, 3), 0);
        charge_release(&b);
        assert_int_equal(account.used[CHARGE_SESSIONS], 0);
}

static void test_names(void **state) {
        (void)state;
        assert_string_equal(charge_kind_name(CHARGE_SESSIONS), "sessions");
        assert_string_equal(charge_kind_name(CHARGE_COMMS), "comms");
        assert_string_equal(charge_kind_name(CHARGE_BUFFERS), "buffers");
        assert_string_equal(charge_kind_name(CHARGE_BYTES), "bytes");
        assert_string_equal(charge_kind_name(CHARGE_RINGS), "rings");
        assert_string_equal(charge_kind_name(CHARGE_FDS), "fds");
        assert_string_equal(charge_kind_name(CHARGE_KIND_COUNT), "unknown");
}

/* Accounts of one whole: each has its own limits, and all together those of the whole. */
static void test_whole(void **state) {
        struct charge_account whole = account_of(10), a = account_of(8), b = account_of(8);
        struct charge x = CHARGE_INIT, y = CHARGE_INIT, z = CHARGE_INIT;

        (void)state;
        a.whole = b.whole = &whole;
        assert_int_equal(charge_take(&x, &a, CHARGE_FDS, 9), CHARGE_E_LIMIT);
        assert_true(a.refused[CHARGE_FDS] == 1 && whole.refused[CHARGE_FDS] == 0 && whole.used[CHARGE_FDS] == 0);
        assert_int_equal(charge_take(&x, &a, CHARGE_FDS, 8), 0);
        assert_int_equal(charge_take(&y, &b, CHARGE_FDS, 3), CHARGE_E_WHOLE);
        assert_true(b.refused[CHARGE_FDS] == 1 && whole.refused[CHARGE_FDS] == 1);
        assert_true(b.used[CHARGE_FDS] == 0 && whole.used[CHARGE_FDS] == 8);
        assert_int_equal(charge_take(&y, &b, CHARGE_FDS, 2), 0);
        assert_int_equal(charge_take(&z, &b, CHARGE_BYTES, 8), 0); /* kinds are apart */
        charge_release(&x);
        assert_true(a.used[CHARGE_FDS] == 0 && whole.used[CHARGE_FDS] == 2);
        whole.limit[CHARGE_FDS] = 1; /* lowered below what is in use */
        assert_int_equal(charge_take(&x, &a, CHARGE_FDS, 1), CHARGE_E_WHOLE);
        charge_release(&y);
        assert_int_equal(charge_take(&x, &a, CHARGE_FDS, 1), 0);
        charge_release(&x);
        charge_release(&z);
        for (unsigned int i = 0; i < CHARGE_KIND_COUNT; i++)
                assert_int_equal(whole.used[i], 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_take_and_release),
                cmocka_unit_test(test_limit),
                cmocka_unit_test(test_overflow),
                cmocka_unit_test(test_zero_amount),
                cmocka_unit_test(test_lowered_limit),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_whole),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
