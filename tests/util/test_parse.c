/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "tests/cmocka_all.h"
#include "util/parse.h"

#define UNTOUCHED 0x5a5a5a5au

static const char *const not_numbers[] = {"", " ", "+1", "-1", " 1", "1 ", "0x10", "1.5", "1e3", "a", "1,000", "1\n"};

static void test_u32(void **state) {
        uint32_t value = UNTOUCHED;

        (void)state;
        for (size_t i = 0; i < sizeof(not_numbers) / sizeof(not_numbers[0]); ++i)
                assert_int_equal(parse_u32(not_numbers[i], &value), -EINVAL);
        assert_int_equal(parse_u32(NULL, &value), -EINVAL);
        assert_int_equal(parse_u32("4294967296", &value), -ERANGE);
        assert_int_equal(parse_u32("99999999999999999999999", &value), -ERANGE);
        assert_int_equal(value, UNTOUCHED);
        assert_int_equal(parse_u32("4294967295", &value), 0);
        assert_int_equal(value, UINT32_MAX);
        assert_int_equal(parse_u32("0", &value), 0);
        assert_int_equal(value, 0);
        assert_int_equal(parse_u32("007", &value), 0);
        assert_int_equal(value, 7);
}

static void test_u64(void **state) {
        uint64_t value = UNTOUCHED;

        (void)state;
        assert_int_equal(parse_u64("18446744073709551616", &value), -ERANGE);
        assert_int_equal(parse_u64("18446744073709551610x", &value), -EINVAL);
        assert_int_equal(parse_u64("20000000000000000000", &value), -ERANGE);
        assert_int_equal(value, UNTOUCHED);
        assert_int_equal(parse_u64("18446744073709551615", &value), 0);
        assert_true(value == UINT64_MAX);
}

static void test_size(void **state) {
        static const struct {
                const char *text;
                uint64_t bytes;
        } good[] = {
                {"0", 0},
                {"8", 8},
                {"8B", 8},
                {"8b", 8},
                {"64K", 65536},
                {"64k", 65536},
                {"64KB", 65536},
                {"64KiB", 65536},
                {"16M", 16777216},
                {"2G", UINT64_C(2) << 30},
                {"2GiB", UINT64_C(2) << 30},
                {"3T", UINT64_C(3) << 40},
                {"1P", UINT64_C(1) << 50},
                {"15E", UINT64_C(15) << 60},
        };
        static const char *const bad[] = {"",    "K",   "8X",  "8KK", "8Ki", "8KiBB",
                                          "8BB", "8iB", "8 K", "-8K", "8K ", "1.5M"};
        uint64_t bytes = UNTOUCHED;

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
                assert_int_equal(parse_size(bad[i], &bytes), -EINVAL);
        assert_int_equal(parse_size("16E", &bytes), -ERANGE);
        assert_int_equal(parse_size("18446744073709551615K", &bytes), -ERANGE);
        assert_int_equal(bytes, UNTOUCHED);
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
                assert_int_equal(parse_size(good[i].text, &bytes), 0);
                assert_true(bytes == good[i].bytes);
        }
}

static void test_format(void **state) {
        static const struct {
                uint64_t bytes;
                const char *text;
        } cases[] = {
                {0, "0 B"},
                {1023, "1023 B"},
                {1024, "1 KiB"},
                {1536, "1.5 KiB"},
                {1048575, "1 MiB"}, /* rounds up across the unit */
                {1048576, "1 MiB"},
                {1572864, "1.5 MiB"},
                {UINT64_C(1) << 40, "1 TiB"},
                {UINT64_MAX, "16 EiB"},
        };
        char out[16];

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i)
                assert_string_equal(format_size(cases[i].bytes, out, sizeof(out)), cases[i].text);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_u32),
                cmocka_unit_test(test_u64),
                cmocka_unit_test(test_size),
                cmocka_unit_test(test_format),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
