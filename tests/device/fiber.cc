/* SPDX-License-Identifier: MIT */
/*
 * A fiber begins with a context and goes on by long jumps, which ask nothing of the kernel. AddressSanitizer is told of
 * each change of stacks.
 */
#include "tests/device/fiber.h"

#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#ifdef FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES (512u << 10)
#define GUARD_BYTES 4096u

struct fiber {
        void (*main)(void *);
        void *data;
        unsigned char *mapping;
        const void *bottom;
        size_t bytes;
        void *fake;
        bool begun, finished;
        ucontext_t start;
        jmp_buf at;
};

static struct {
        struct fiber fiber[FIBERS_MAX];
        uint32_t n, current, left;
        uint64_t random;
} set;

/* The first thing on a stack that has just been changed to. */
static void arrive(void) {
#ifdef FIBER_ASAN
        struct fiber *from = &set.fiber[set.left];

        __sanitizer_finish_switch_fiber(set.fiber[set.current].fake, &from->bottom, &from->bytes);
#endif
}

static void change_to(uint32_t next) {
        struct fiber *from = &set.fiber[set.current], *to = &set.fiber[next];

        if (from == to)
                return;
        set.left = set.current;
        set.current = next;
#ifdef FIBER_ASAN
        __sanitizer_start_switch_fiber(from->finished ? NULL : &from->fake, to->bottom, to->bytes);
#endif
        if (!_setjmp(from->at)) {
                if (to->begun)
                        _longjmp(to->at, 1);
                to->begun = true;
                setcontext(&to->start);
                abort();
        }
        arrive();
}

static uint32_t draw(void) {
        uint32_t next = set.current;

        if (set.random) {
                set.random ^= set.random << 13;
                set.random ^= set.random >> 7;
                set.random ^= set.random << 17;
                next = (uint32_t)((set.random >> 24) % set.n);
        }
        do
                next = next + 1 < set.n ? next + 1 : 0;
        while (set.fiber[next].finished);
        return next;
}

static void run(void) {
        struct fiber *self = &set.fiber[set.current];

        arrive();
        self->main(self->data);
        self->finished = true;
        change_to(draw());
        abort();
}

static void prepare(struct fiber *f) {
        if (getcontext(&f->start))
                abort();
        f->start.uc_stack.ss_sp = f->mapping + GUARD_BYTES;
        f->start.uc_stack.ss_size = STACK_BYTES;
        f->start.uc_link = NULL;
        makecontext(&f->start, run, 0);
}

void fiber_init(uint64_t seed) {
        set.n = 1;
        set.current = 0;
        set.random = seed;
        set.fiber[0].begun = true;
        set.fiber[0].finished = false;
}

void fiber_deinit(void) {
        for (uint32_t i = 1; i < FIBERS_MAX; i++)
                if (set.fiber[i].mapping) {
                        munmap(set.fiber[i].mapping, GUARD_BYTES + STACK_BYTES);
                        set.fiber[i].mapping = NULL;
                }
}

uint32_t fiber_new(void (*main)(void *), void *data) {
        struct fiber *f;
        uint32_t i = 1;

        while (i < set.n && !set.fiber[i].finished)
                i++;
        if (i == FIBERS_MAX)
                abort();
        f = &set.fiber[i];
        if (i == set.n)
                set.n++;
        if (!f->mapping) {
                void *p = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

                if (p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE))
                        abort();
                f->mapping = (unsigned char *)p;
        }
        f->main = main;
        f->data = data;
        f->bottom = f->mapping + GUARD_BYTES;
        f->bytes = STACK_BYTES;
        f->fake = NULL;
        f->begun = f->finished = false;
        prepare(f);
        return i;
}

bool fiber_finished(uint32_t fiber) {
        return set.fiber[fiber].finished;
}

void fiber_yield(void) {
        change_to(draw());
}
