/* SPDX-License-Identifier: MIT */
#pragma once
/* A small stateless model checker for the code of ring/. See model.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_THREADS_MAX 3

struct model_scenario {
        const char *name;
        uint32_t n_threads;
        void (*program[MODEL_THREADS_MAX])(void);
        void (*setup)(void); /* once, before the threads: may call model_preset */
        /* Thread 0 may be killed at each of its steps, up to n_kills times; a successor then runs this program. */
        void (*successor)(void);
        uint32_t n_kills;
};

/* Memory in [base, base + size) is shared: accesses to it are steps. All else belongs to one thread. */
void model_share(const volatile void *base, size_t size);
void model_share_futex(const volatile void *address); /* somebody may sleep on this word */
void model_preset(const volatile void *address, uint64_t value);
/* Edge-triggered eventfd, watched by thread 0. */
void model_event_write(void);
void model_event_wait(void);
/* What the thread has read so far matters only by this number: states that differ in nothing else are one. It must
 * stand for all local state on which the rest of the program depends, and for the place in the program. */
void model_forget(uint64_t summary);
/* Ends the run as a finding if the condition does not hold. */
void model_check(bool condition, const char *text);
/* True if any thread has ever stored this value there: for checks only, not a step. */
bool model_was_stored(const volatile void *address, uint64_t value, uint64_t mask);

/* 0: every execution ends with all threads done and all checks true; 1: a finding was printed. */
int model_run(const struct model_scenario *scenario, uint64_t *ret_states);
