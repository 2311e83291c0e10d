/* SPDX-License-Identifier: MIT */
/* What the environment says. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/nccl/config.h"

static uint32_t timeout_of(const char *text) {
        setenv("RAILMUX_JOIN_TIMEOUT", text, 1);
        return config_timeout_ms();
}

static void test_timeout(void **state) {
        (void)state;
        unsetenv("RAILMUX_JOIN_TIMEOUT");
        assert_int_equal(config_timeout_ms(), 0);
        assert_int_equal(timeout_of("30"), 30000);
        assert_int_equal(timeout_of("0.5"), 500);
        assert_int_equal(timeout_of("0.0001"), 1);
        assert_int_equal(timeout_of("0"), 0);
        assert_int_equal(timeout_of(""), 0);
        assert_int_equal(timeout_of("-1"), 0);
        assert_int_equal(timeout_of("5 s"), 0);
        assert_int_equal(timeout_of("0,5"), 0);
        assert_int_equal(timeout_of("1e30"), 0);
        assert_int_equal(timeout_of("inf"), 0);
        assert_int_equal(timeout_of("nan"), 0);
}

/* The program's language does not matter, if the machine has one that could. */
static void test_comma(void **state) {
        static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "es_ES.UTF-8", "ru_RU.UTF-8"};
        bool comma = false;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !comma; i++)
                comma = setlocale(LC_ALL, names[i]) && localeconv()->decimal_point[0] == ',';
        if (!comma)
                skip();
        test_timeout(state);
        setlocale(LC_ALL, "C");
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_timeout), cmocka_unit_test(test_comma)};

        return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
