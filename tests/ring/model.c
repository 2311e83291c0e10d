/* SPDX-License-Identifier: MIT */
/*
 * Exhaustive execution of small programs under weak memory.
 *
 * Memory. See model_state.c.
 *
 * Kernel. A futex wait is a full fence, a compare and falling asleep in one step; a wake is a full fence and waking in
 * one step (the kernel promises as much). The eventfd carries no view at all, which is weaker than the real one.
 *
 * Search. A thread is a function that is run again from its start for each of its steps: the answers that its accesses
 * got so far are replayed to it, and the first access without an answer is its next step (longjmp leaves the function).
 * So a state is plain data: messages, views and answers. A depth-first search tries every step of every thread, every
 * message that a load may read, every timeout and every kill, and leaves out states it has met (64-bit hashes). If
 * nobody can go on and somebody is not done, a wake-up was lost.
 */
#include "model_atomics.h"

#include "model.h"
#include "model_state.h"

#include <assert.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/futex.h"

#define PATH_MAX_STEPS 1000

static struct {
        const struct model_scenario *scenario;
        struct {
                const volatile char *base;
                size_t size;
        } range[8];
        uint32_t n_ranges, n_cells;
        const volatile void *cell[CELLS_MAX];
        uint64_t preset[CELLS_MAX];
        bool futex[CELLS_MAX]; /* somebody may sleep on it */
        /* the thread that is being run */
        const struct state *state;
        const struct thread *running;
        uint32_t replayed;
        bool forgets;
        uint64_t summary;
        struct step next;
        jmp_buf out;
        /* search */
        uint64_t *seen, n_seen, seen_size;
        struct state *path[PATH_MAX_STEPS];
        char trace[PATH_MAX_STEPS][96];
        bool found;
} model;

/* ---- what the programs call -------------------------------------------------------------------------------------- */

static bool model_is_shared(const volatile void *address) {
        for (uint32_t i = 0; i < model.n_ranges; i++)
                if ((const volatile char *)address >= model.range[i].base &&
                    (const volatile char *)address < model.range[i].base + model.range[i].size)
                        return true;
        return false;
}

static uint32_t model_cell(const volatile void *address) {
        for (uint32_t i = 0; i < model.n_cells; i++)
                if (model.cell[i] == address)
                        return i;
        assert(model.n_cells < CELLS_MAX);
        model.cell[model.n_cells] = address;
        return model.n_cells++;
}

static uint64_t model_step(struct step step) {
        if (model.replayed < model.running->n_answers)
                return model.running->answer[model.replayed++];
        model.next = step;
        longjmp(model.out, 1);
}

static uint64_t plain_get(const volatile void *address, size_t size) {
        uint64_t value = 0;

        memcpy(&value, (const void *)address, size);
        return value;
}

static uint64_t operate(char operation, uint64_t value, uint64_t operand) {
        switch (operation) {
        case '+':
                return value + operand;
        case '-':
                return value - operand;
        case '|':
                return value | operand;
        default:
                return value & operand;
        }
}

uint64_t model_load(const volatile void *address, size_t size, memory_order order) {
        if (!model_is_shared(address))
                return plain_get(address, size);
        return model_step((struct step){.kind = K_LOAD, .order = order, .cell = model_cell(address)});
}

void model_store(volatile void *address, size_t size, uint64_t value, memory_order order) {
        if (!model_is_shared(address))
                memcpy((void *)address, &value, size);
        else
                model_step((struct step){.kind = K_STORE, .order = order, .cell = model_cell(address), .value = value});
}

uint64_t model_rmw(volatile void *address, size_t size, char operation, uint64_t operand, memory_order order) {
        uint64_t old, value;

        if (model_is_shared(address))
                return model_step((struct step){.kind = K_RMW,
                                                .operation = operation,
                                                .order = order,
                                                .cell = model_cell(address),
                                                .value = operand});
        old = plain_get(address, size);
        value = operate(operation, old, operand);
        memcpy((void *)address, &value, size);
        return old;
}

void model_fence(memory_order order) {
        model_step((struct step){.kind = K_FENCE, .order = order});
}

void model_init(volatile void *address, size_t size, uint64_t value) {
        /* Nothing shared is initialised while threads run. */
        assert(!model_is_shared(address));
        memcpy((void *)address, &value, size);
}

int64_t ring_futex_deadline(int64_t timeout_ns) {
        return timeout_ns;
}

bool ring_futex_wait(const _Atomic uint64_t *word, uint32_t expected, int64_t deadline_ns) {
        assert(model.futex[model_cell(word)]);
        return model_step((struct step){
                .kind = K_FUTEX_WAIT, .cell = model_cell(word), .value = expected, .may_time_out = deadline_ns >= 0});
}

void ring_futex_wake(const _Atomic uint64_t *word) {
        model_step((struct step){.kind = K_FUTEX_WAKE, .cell = model_cell(word)});
}

void model_event_write(void) {
        model_step((struct step){.kind = K_EVENT_WRITE});
}

void model_event_wait(void) {
        model_step((struct step){.kind = K_EVENT_WAIT});
}

void model_check(bool condition, const char *text) {
        if (!condition)
                model_step((struct step){.kind = K_FINDING, .text = text});
}

bool model_was_stored(const volatile void *address, uint64_t value, uint64_t mask) {
        uint32_t cell = model_cell(address);

        /* While old steps are replayed the answer would be of the present: it does not matter then. */
        if (model.replayed < model.running->n_answers)
                return false;
        for (uint32_t i = 0; i < model.state->n_messages; i++)
                if (model.state->message[i].cell == cell && (model.state->message[i].value & mask) == value)
                        return true;
        return false;
}

void model_forget(uint64_t summary) {
        if (model.replayed < model.running->n_answers)
                return;
        model.forgets = true;
        model.summary = summary;
}

void model_share(const volatile void *base, size_t size) {
        assert(model.n_ranges < 8);
        model.range[model.n_ranges].base = base;
        model.range[model.n_ranges++].size = size;
}

void model_preset(const volatile void *address, uint64_t value) {
        model.preset[model_cell(address)] = value;
}

void model_share_futex(const volatile void *address) {
        model.futex[model_cell(address)] = true;
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

/* True if the state is new. */
static bool seen_add(uint64_t hash) {
        if (model.n_seen * 2 >= model.seen_size) {
                uint64_t size = model.seen_size ? model.seen_size * 2 : 1u << 16, *old = model.seen;

                model.seen = calloc(size, sizeof(*model.seen));
                assert(model.seen);
                for (uint64_t i = 0; i < model.seen_size; i++)
                        if (old[i]) {
                                uint64_t at = old[i] >> 8 & (size - 1);

                                while (model.seen[at])
                                        at = (at + 1) & (size - 1);
                                model.seen[at] = old[i];
                        }
                free(old);
                model.seen_size = size;
        }
        for (uint64_t at = hash >> 8 & (model.seen_size - 1);; at = (at + 1) & (model.seen_size - 1)) {
                if (model.seen[at] == hash)
                        return false;
                if (!model.seen[at]) {
                        model.seen[at] = hash;
                        model.n_seen++;
                        return true;
                }
        }
}

/* Runs the thread's program up to its first access without an answer. Fences below the full one concern only the thread
 * itself and are taken at once. */
static void thread_advance(struct state *s, uint32_t index) {
        struct thread *t = &s->thread[index];

        for (;;) {
                model.state = s;
                model.running = t;
                model.replayed = 0;
                model.forgets = false;
                model.next = (struct step){.kind = K_END};
                if (!setjmp(model.out)) {
                        if (t->successor)
                                model.scenario->successor();
                        else
                                model.scenario->program[index]();
                }
                t->next = model.next;
                if (model.forgets)
                        t->hash = mix(1, model.summary);
                if (t->next.kind != K_FENCE || t->next.order == memory_order_seq_cst)
                        return;
                memory_fence(s, t, t->next.order);
                assert(t->n_answers < ANSWERS_MAX);
                t->answer[t->n_answers++] = 0;
        }
}

static void thread_answer(struct state *s, uint32_t index, uint64_t answer) {
        struct thread *t = &s->thread[index];

        assert(t->n_answers < ANSWERS_MAX);
        t->answer[t->n_answers++] = answer;
        t->hash = mix(t->hash + 1, answer);
        t->asleep = false;
        thread_advance(s, index);
}

static void report(uint32_t depth, const char *what) {
        model.found = true;
        printf("%s: %s\n", model.scenario->name, what);
        for (uint32_t i = 0; i < depth; i++)
                printf("  %3u %s\n", i, model.trace[i]);
}

static void search(uint32_t depth);

/* The child state at this depth, to be changed and then searched by go_on. */
static struct state *branch(uint32_t depth) {
        const struct state *s = model.path[depth];
        struct state *child;

        assert(depth + 1 < PATH_MAX_STEPS);
        if (!model.path[depth + 1])
                model.path[depth + 1] = malloc(sizeof(struct state));
        child = model.path[depth + 1];
        assert(child);
        memcpy(child, s, offsetof(struct state, message) + s->n_messages * sizeof(s->message[0]));
        return child;
}

static void go_on(uint32_t depth, uint32_t thread, const char *what, uint64_t value) {
        static const char *const names[] = {"load",       "store",       "rmw",        "fence", "futex wait",
                                            "futex wake", "event write", "event wait", "end",   "finding"};
        const struct step *step = &model.path[depth]->thread[thread].next;

        snprintf(model.trace[depth], sizeof(model.trace[0]), "thread %u: %s %s cell %u value %llx", thread,
                 names[step->kind], what, step->cell, (unsigned long long)value);
        if (seen_add(state_hash(model.path[depth + 1], model.scenario->n_threads)))
                search(depth + 1);
}

static void search_load(uint32_t depth, uint32_t index) {
        const struct state *s = model.path[depth];
        const struct thread *t = &s->thread[index];
        uint32_t cell = t->next.cell;

        for (uint32_t m = s->newest[cell]; !model.found; m = s->message[m - 1].before) {
                uint8_t time = m ? s->message[m - 1].time : 0;
                struct state *child;
                uint64_t value;

                if (time < t->current.time[cell])
                        break;
                child = branch(depth);
                value = memory_load(child, &child->thread[index], cell, m, t->next.order);
                thread_answer(child, index, value);
                go_on(depth, index, m == s->newest[cell] ? "" : "(old)", value);
                if (!m)
                        break;
        }
}

static void search_futex_wait(uint32_t depth, uint32_t index) {
        const struct step *step = &model.path[depth]->thread[index].next;
        struct state *child = branch(depth);
        struct thread *t = &child->thread[index];
        uint64_t value;

        if (t->asleep) { /* a wake-up would have answered; left is the timeout */
                thread_answer(child, index, 0);
                go_on(depth, index, "timeout", 0);
                return;
        }
        memory_fence(child, t, memory_order_seq_cst);
        value = memory_load(child, t, step->cell, child->newest[step->cell], memory_order_relaxed);
        if ((uint32_t)value == step->value)
                t->asleep = true;
        else
                thread_answer(child, index, 1);
        go_on(depth, index, t->asleep ? "asleep" : "not equal", value);
}

static void search_rest(uint32_t depth, uint32_t index) {
        struct state *child = branch(depth);
        struct thread *t = &child->thread[index];
        const struct step step = t->next;
        uint64_t answer = 0;
        uint32_t last;
        struct view inherited = {0};

        switch (step.kind) {
        case K_STORE:
                memory_store(child, t, step.cell, step.value, step.order, NULL);
                break;
        case K_RMW:
                last = child->newest[step.cell];
                if (last)
                        inherited = child->message[last - 1].view;
                answer = memory_load(child, t, step.cell, last, step.order);
                memory_store(child, t, step.cell, operate(step.operation, answer, step.value), step.order, &inherited);
                break;
        case K_FENCE:
                memory_fence(child, t, step.order);
                break;
        case K_FUTEX_WAKE:
                memory_fence(child, t, memory_order_seq_cst);
                for (uint32_t i = 0; i < model.scenario->n_threads; i++)
                        if (child->thread[i].asleep && child->thread[i].next.cell == step.cell)
                                thread_answer(child, i, 1);
                break;
        case K_EVENT_WRITE:
                child->event = child->event_ever = true;
                break;
        default: /* K_EVENT_WAIT */
                child->event = false;
                break;
        }
        thread_answer(child, index, answer);
        go_on(depth, index, "", step.value);
}

static void search_kill(uint32_t depth) {
        struct state *child = branch(depth);
        struct thread *t = &child->thread[0];

        child->kills++;
        /* The successor starts after the predecessor's end: it knows what that one knew and did. */
        t->released = t->current;
        t->acquired = t->current;
        t->n_answers = 0;
        t->hash = 0;
        t->asleep = false;
        t->successor = true;
        child->event = child->event_ever; /* adding a non-empty eventfd to an epoll set is an edge */
        thread_advance(child, 0);
        go_on(depth, 0, "KILLED BEFORE", 0);
}

/* A store may be tried alone, before all other threads' steps: they may still read the older message, and as every cell
 * has one writer there is no order among stores to decide. Not where a futex looks, which reads the newest message; a
 * read-modify-write is not a K_STORE. */
static bool search_store_alone(uint32_t depth) {
        const struct state *s = model.path[depth];

        for (uint32_t i = 0; i < model.scenario->n_threads; i++) {
                const struct thread *t = &s->thread[i];

                if (t->next.kind != K_STORE || model.futex[t->next.cell])
                        continue;
                if (i == 0 && s->kills < model.scenario->n_kills)
                        search_kill(depth);
                if (!model.found)
                        search_rest(depth, i);
                return true;
        }
        return false;
}

static void search(uint32_t depth) {
        const struct state *s = model.path[depth];
        bool can_go_on = false, done = true;

        if (search_store_alone(depth))
                return;
        for (uint32_t i = 0; i < model.scenario->n_threads && !model.found; i++) {
                const struct thread *t = &s->thread[i];

                if (t->next.kind == K_FINDING) {
                        report(depth, t->next.text);
                        return;
                }
                if (t->next.kind == K_END)
                        continue;
                done = false;
                if (i == 0 && s->kills < model.scenario->n_kills)
                        search_kill(depth);
                if (model.found)
                        return;
                if ((t->next.kind == K_EVENT_WAIT && !s->event) || (t->asleep && !t->next.may_time_out))
                        continue;
                can_go_on = true;
                if (t->next.kind == K_LOAD)
                        search_load(depth, i);
                else if (t->next.kind == K_FUTEX_WAIT)
                        search_futex_wait(depth, i);
                else
                        search_rest(depth, i);
        }
        if (!can_go_on && !done && !model.found)
                report(depth, "nobody can go on: a wake-up was lost");
}

int model_run(const struct model_scenario *scenario, uint64_t *ret_states) {
        memset(&model, 0, sizeof(model));
        model.scenario = scenario;
        model.path[0] = calloc(1, sizeof(struct state));
        assert(model.path[0]);
        model.path[0]->preset = model.preset;
        scenario->setup();
        for (uint32_t i = 0; i < scenario->n_threads; i++)
                thread_advance(model.path[0], i);
        seen_add(state_hash(model.path[0], scenario->n_threads));
        search(0);
        for (uint32_t i = 0; i < PATH_MAX_STEPS; i++)
                free(model.path[i]);
        free(model.seen);
        *ret_states = model.n_seen;
        return model.found;
}
