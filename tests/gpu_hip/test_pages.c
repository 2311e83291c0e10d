/* SPDX-License-Identifier: MIT */
/* Pages that are filled ahead (gpu/hip/pages.c): sizes, contents, what is asked for twice, and never taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "gpu/hip/pages.h"

#define PAGE 4096u

/* Is all of it there, and zero? */
static void check(char *memory, size_t bytes) {
        unsigned char *there = calloc(1, bytes / PAGE + 1);

        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % PAGES_ALIGN, 0);
        assert_int_equal(mincore(memory, bytes, there), 0);
        for (size_t i = 0; i < (bytes + PAGE - 1) / PAGE; i++)
                assert_true(there[i] & 1);
        free(there);
        assert_true(memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0);
        memset(memory, 0x77, bytes);
}

static void taken_as_it_was_asked_for(void **state) {
        struct pages *pages = pages_new();
        char *memory[3];

        (void)state;
        assert_non_null(pages);
        pages_prepare(pages, 3 * PAGES_ALIGN);
        memory[0] = pages_take(pages, 3 * PAGES_ALIGN);
        check(memory[0], 3 * PAGES_ALIGN);
        pages_prepare(pages, PAGES_ALIGN); /* zeroes again */
        pages_prepare(pages, PAGES_ALIGN);
        memory[1] = pages_take(pages, PAGES_ALIGN);
        check(memory[1], PAGES_ALIGN);
        memory[2] = pages_take(pages, PAGES_ALIGN); /* which nobody has asked for */
        check(memory[2], PAGES_ALIGN);
        pages_give(memory[0], 3 * PAGES_ALIGN);
        pages_give(memory[1], PAGES_ALIGN);
        pages_give(memory[2], PAGES_ALIGN);
        pages_free(pages);
}

static void of_another_size(void **state) {
        static const size_t sizes[] = {1, PAGE - 1, PAGE, PAGE + 1, PAGES_ALIGN - 1, PAGES_ALIGN + 5, 5 * PAGES_ALIGN};
        struct pages *pages = pages_new();

        (void)state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                char *memory;

                pages_prepare(pages, 7 * PAGES_ALIGN);
                if (i % 2) /* what is ready, or about to be, is something else */
                        pages_prepare(pages, sizes[i]);
                memory = pages_take(pages, sizes[i]);
                check(memory, sizes[i]);
                pages_give(memory, sizes[i]);
        }
        pages_free(pages);
}

static void never_taken(void **state) {
        struct pages *pages;

        (void)state;
        pages_free(NULL);
        pages_give(NULL, 0);
        pages_free(pages_new());
        for (uint32_t i = 0; i < 20; i++) {
                pages = pages_new();
                pages_prepare(pages, (i + 1) * PAGE);
                pages_free(pages);
        }
}

/* More than there can be: the caller hears of it, now and when it was asked for before. */
static void too_much(void **state) {
        struct pages *pages = pages_new();
        char *memory;

        (void)state;
        assert_null(pages_take(pages, SIZE_MAX / 4));
        pages_prepare(pages, SIZE_MAX / 4);
        assert_null(pages_take(pages, SIZE_MAX / 4));
        memory = pages_take(pages, PAGE);
        check(memory, PAGE);
        pages_give(memory, PAGE);
        pages_free(pages);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(taken_as_it_was_asked_for),
                cmocka_unit_test(of_another_size),
                cmocka_unit_test(never_taken),
                cmocka_unit_test(too_much),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
