/* SPDX-License-Identifier: MIT */
/* Pages that are filled ahead (gpu/hip/pages.c): sizes, contents, what is asked for twice, and never taken. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "gpu/hip/pages.h"

#define PAGE 4096u

/* ---- what is mapped by pages.c, and by which thread -------------------------------------------------------------- */
static _Atomic size_t mapped; /* bytes that have not been given back */
static _Atomic uint32_t here; /* mappings that the test's own thread has made */
static _Atomic int refused;   /* errno of who asks for pages; 0: there are some */
static _Atomic uint32_t idle; /* how often others have had nothing to do */
static pthread_t self;

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __real_madvise(void *at, size_t bytes, int advice);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_madvise(void *at, size_t bytes, int advice);

int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
        if (!pthread_equal(pthread_self(), self))
                atomic_fetch_add(&idle, 1);
        return __real_pthread_cond_wait(cond, mutex);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
        void *memory = __real_mmap(at, bytes, protection, flags, fd, offset);

        if (memory != MAP_FAILED) {
                atomic_fetch_add(&mapped, bytes);
                atomic_fetch_add(&here, pthread_equal(pthread_self(), self) != 0);
        }
        return memory;
}

int __wrap_munmap(void *at, size_t bytes) {
        const int r = __real_munmap(at, bytes);

        assert_int_equal(r, 0);
        atomic_fetch_sub(&mapped, (bytes + PAGE - 1) / PAGE * PAGE);
        return r;
}

int __wrap_madvise(void *at, size_t bytes, int advice) {
        if (advice != MADV_HUGEPAGE && atomic_load(&refused)) {
                errno = atomic_load(&refused);
                return -1;
        }
        return __real_madvise(at, bytes, advice);
}

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

/* It is asked for, of a size that is not ready yet, and is ready. */
static void ready(struct pages *pages, size_t bytes) {
        const uint32_t before = atomic_load(&idle);

        pages_prepare(pages, bytes, 1);
        while (atomic_load(&idle) == before)
                sched_yield();
}

static void taken_as_it_was_asked_for(void **state) {
        struct pages *pages = pages_new();
        char *memory[3];

        (void)state;
        assert_non_null(pages);
        pages_prepare(pages, 3 * PAGES_ALIGN, 1);
        memory[0] = pages_take(pages, 3 * PAGES_ALIGN);
        check(memory[0], 3 * PAGES_ALIGN);
        pages_prepare(pages, PAGES_ALIGN, 1); /* zeroes again */
        pages_prepare(pages, PAGES_ALIGN, 1);
        memory[1] = pages_take(pages, PAGES_ALIGN);
        check(memory[1], PAGES_ALIGN);
        assert_int_equal(here, 0);                  /* others have done it */
        memory[2] = pages_take(pages, PAGES_ALIGN); /* which nobody has asked for */
        check(memory[2], PAGES_ALIGN);
        assert_int_equal(here, 1);
        pages_give(memory[0], 3 * PAGES_ALIGN);
        pages_give(memory[1], PAGES_ALIGN);
        pages_give(memory[2], PAGES_ALIGN);
        pages_free(pages);
}

/* Several of one size: as many as were asked for are there, or come; and who asks again has the rest filled up. */
static void several(void **state) {
        struct pages *pages = pages_new();
        char *memory[PAGES_MOST + 3];

        (void)state;
        atomic_store(&here, 0);
        for (uint32_t round = 0; round < 4; round++) {
                const uint32_t n = round < 3 ? round + 1 : PAGES_MOST + 3;
                const uint32_t others = n < PAGES_MOST ? n : PAGES_MOST;
                const size_t bytes = round % 2 ? PAGE : 3 * PAGE;

                if (round == 1) /* one of them is ready */
                        ready(pages, bytes);
                pages_prepare(pages, bytes, n);
                for (uint32_t i = 0; i < n; i++) {
                        memory[i] = pages_take(pages, bytes);
                        check(memory[i], bytes);
                }
                assert_int_equal(here, n - others);
                for (uint32_t i = 0; i < n; i++)
                        for (uint32_t k = 0; k < i; k++)
                                assert_ptr_not_equal(memory[i], memory[k]);
                for (uint32_t i = 0; i < n; i++)
                        pages_give(memory[i], bytes);
        }
        atomic_store(&here, 0);
        pages_prepare(pages, PAGE, 4);
        memory[0] = pages_take(pages, PAGE);
        pages_prepare(pages, PAGE, 2); /* fewer than there may be by now */
        pages_give(memory[0], PAGE);
        for (uint32_t i = 0; i < 2; i++) {
                memory[0] = pages_take(pages, PAGE);
                check(memory[0], PAGE);
                pages_give(memory[0], PAGE);
        }
        assert_int_equal(here, 0);
        pages_prepare(pages, PAGE, 4);
        pages_prepare(pages, PAGE, 0); /* what is ready may be taken, none comes */
        pages_free(pages);
}

static void of_another_size(void **state) {
        static const size_t sizes[] = {1, PAGE - 1, PAGE, PAGE + 1, PAGES_ALIGN - 1, PAGES_ALIGN + 5, 5 * PAGES_ALIGN};
        struct pages *pages = pages_new();

        (void)state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                char *memory;

                if (i / 3 % 2)
                        ready(pages, 7 * PAGES_ALIGN + i);
                else
                        pages_prepare(pages, 7 * PAGES_ALIGN, 1);
                if (i % 3 == 1) /* what is ready, or about to be, is something else */
                        pages_prepare(pages, sizes[i], 1);
                else if (i % 3 == 2) /* or nothing */
                        pages_prepare(pages, 0, 1);
                memory = pages_take(pages, sizes[i]);
                check(memory, sizes[i]);
                assert_int_equal(here, i % 3 != 1);
                atomic_store(&here, 0);
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
                if (i % 2)
                        ready(pages, (i + 1) * PAGE);
                else
                        pages_prepare(pages, (i + 1) * PAGE, 1);
                pages_free(pages);
        }
}

/* A system that is older than the advice. */
static void touched(void **state) {
        struct pages *pages = pages_new();
        char *memory;

        (void)state;
        atomic_store(&refused, EINVAL);
        pages_prepare(pages, 2 * PAGES_ALIGN + 1, 1);
        memory = pages_take(pages, 2 * PAGES_ALIGN + 1);
        atomic_store(&refused, 0);
        check(memory, 2 * PAGES_ALIGN + 1);
        pages_give(memory, 2 * PAGES_ALIGN + 1);
        pages_free(pages);
}

/* More than there can be: the caller hears of it, now and when it was asked for before. */
static void too_much(void **state) {
        struct pages *pages = pages_new();
        char *memory;

        (void)state;
        assert_null(pages_take(pages, SIZE_MAX / 4));
        pages_prepare(pages, SIZE_MAX / 4, 1);
        assert_null(pages_take(pages, SIZE_MAX / 4));
        memory = pages_take(pages, PAGE);
        check(memory, PAGE);
        pages_give(memory, PAGE);
        atomic_store(&refused, ENOMEM); /* addresses, but nothing behind them */
        pages_prepare(pages, PAGES_ALIGN + PAGE, 1);
        assert_null(pages_take(pages, PAGES_ALIGN + PAGE));
        atomic_store(&refused, 0);
        pages_free(pages);
}

static int setup(void **state) {
        (void)state;
        self = pthread_self();
        atomic_store(&mapped, 0);
        atomic_store(&here, 0);
        return 0;
}

/* Everything was given back. */
static int teardown(void **state) {
        (void)state;
        assert_int_equal(mapped, 0);
        return 0;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                TEST(taken_as_it_was_asked_for),
                TEST(several),
                TEST(of_another_size),
                TEST(never_taken),
                TEST(touched),
                TEST(too_much),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
