/* SPDX-License-Identifier: MIT */
/*
 * Programs for the model checker (model.c): the code of ring/ between a client and an executor, in every interleaving
 * under weak memory, with kills of the executor at every step.
 *
 *   model_ring [SCENARIO...]      exit status 0: nothing found, 1: a finding was printed
 */
#include "model_atomics.h"

#include <stdio.h>
#include <string.h>

#include "model.h"
#include "ring/futex.h"
#include "ring/ring.h"

#define N_MAX 4

static struct { uint32_t depth, first, n; } shape;

static struct {
        struct ring_line lines[2];
        _Atomic uint32_t waiting[2];
} client_area;
static struct {
        struct ring_executor_header header;
        _Atomic uint64_t completion[2];
} executor_area;
static struct {
        _Atomic uint64_t input[N_MAX], output[N_MAX]; /* what requests are about: plain data in real life */
        _Atomic uint64_t handoff[N_MAX];              /* between two threads of the executor */
} data;
static struct ring_consumer shared_consumer;

static struct ring_layout layout(void) {
        return (struct ring_layout){
                .depth = shape.depth,
                .waiting_offset = (size_t)((char *)client_area.waiting - (char *)&client_area),
                .completion_offset = (size_t)((char *)executor_area.completion - (char *)&executor_area),
        };
}

static uint32_t nth(uint32_t k) {
        uint32_t sequence = shape.first;

        while (k--)
                sequence = ring_sequence_next(sequence);
        return sequence;
}

static uint32_t index_of(uint32_t sequence) {
        for (uint32_t k = 0; k < shape.n; k++)
                if (nth(k) == sequence)
                        return k;
        model_check(false, "a sequence that was never published");
        return 0;
}

static void setup(void) {
        model_share(&client_area, sizeof(client_area));
        model_share(&executor_area, sizeof(executor_area));
        model_share(&data, sizeof(data));
        for (uint32_t i = 0; i < 2; i++)
                model_share_futex(&executor_area.completion[i]);
        for (uint32_t i = 0; i < N_MAX; i++)
                model_share_futex(&data.handoff[i]);
}

/* ---- client ------------------------------------------------------------------------------------------------------ */

static void client_init(struct ring_producer *p) {
        struct ring_layout l = layout();

        ring_producer_init(p, &l, &client_area, &executor_area, shape.first);
}

static bool client_publish(struct ring_producer *p, uint32_t k) {
        struct ring_request request;
        uint32_t sequence = 0;

        for (uint32_t i = 0; i < RING_WORDS; i++)
                request.word[i] = 0x100 * (k + 1) + i;
        atomic_store_explicit(&data.input[k], k + 0x1000, memory_order_relaxed);
        if (ring_producer_publish(p, &request, &sequence) != RING_OK)
                return false;
        model_check(sequence == nth(k), "publish: wrong sequence");
        if (ring_producer_must_wake(p))
                model_event_write();
        return true;
}

static void client_harvest(struct ring_producer *p, uint32_t k, bool for_ever) {
        uint32_t status = 0;

        if (ring_producer_wait(p, nth(k), for_ever ? -1 : 1, &status) != RING_OK) {
                model_check(!for_ever, "wait: given up without a timeout");
                return;
        }
        model_check(status == k + 0x40, "wait: wrong status");
        model_check(atomic_load_explicit(&data.output[k], memory_order_relaxed) == k + 0x2000,
                    "the output is not visible after completion");
        if (for_ever)
                ring_producer_release(p, nth(k));
}

static void client_run(uint32_t held) {
        static struct ring_producer p;
        uint32_t harvested = held, k = 0;

        client_init(&p);
        while (harvested < shape.n) {
                model_forget(k * 16 + harvested); /* what is in flight follows from them */
                if (k < shape.n && client_publish(&p, k))
                        k++;
                else
                        client_harvest(&p, harvested++, true);
        }
        model_forget(0x100);
        if (held)
                client_harvest(&p, 0, true);
}

/* In order, as fast as the ring lets it. */
static void client(void) {
        client_run(0);
}

/* Waits for the first request last. */
static void client_holding(void) {
        client_run(1);
}

/* A second thread that waits for the first request too, and may lose patience. */
static void bystander(void) {
        static struct ring_producer p;

        client_init(&p);
        client_harvest(&p, 0, false);
}

/* ---- executor ---------------------------------------------------------------------------------------------------- */

static void executor_init(struct ring_consumer *c) {
        struct ring_layout l = layout();

        ring_consumer_init(c, &l, &client_area, &executor_area, shape.first);
}

static uint32_t executor_take(const struct ring_request *request, uint32_t sequence) {
        uint32_t k = index_of(sequence);

        for (uint32_t i = 0; i < RING_WORDS; i++)
                model_check(request->word[i] == 0x100 * (k + 1) + i, "latch: wrong or torn line");
        model_check(!model_was_stored(&executor_area.completion[sequence & (shape.depth - 1)], sequence, UINT32_MAX),
                    "a completed request was latched again");
        model_check(atomic_load_explicit(&data.input[k], memory_order_relaxed) == k + 0x1000,
                    "the input is not visible after latch");
        return k;
}

static void executor_finish(struct ring_consumer *c, uint32_t k) {
        atomic_store_explicit(&data.output[k], k + 0x2000, memory_order_relaxed);
        ring_consumer_complete(c, nth(k), k + 0x40);
}

static void executor_idle(struct ring_consumer *c) {
        if (!ring_consumer_sleep(c))
                model_event_wait();
        ring_consumer_awake(c);
}

/* Completes at once. */
static void executor(void) {
        static struct ring_consumer c;
        struct ring_request request;
        uint32_t cursor = 0, sequence = 0;

        executor_init(&c);
        while (ring_consumer_relatch(&c, &cursor, &request, &sequence) == RING_OK)
                executor_finish(&c, executor_take(&request, sequence));
        while (c.next != nth(shape.n)) {
                model_forget(c.next); /* nothing is busy here */
                if (ring_consumer_latch(&c, &request, &sequence) == RING_OK)
                        executor_finish(&c, executor_take(&request, sequence));
                else
                        executor_idle(&c);
        }
}

/* Holds the first request back until all others are complete. */
static void executor_holding(void) {
        static struct ring_consumer c;
        struct ring_request request;
        uint32_t cursor = 0, sequence = 0, k, before = 0;
        bool held = false, any = false;

        executor_init(&c);
        while (ring_consumer_relatch(&c, &cursor, &request, &sequence) == RING_OK) {
                k = executor_take(&request, sequence);
                model_check(!any || before < k, "relatch: not in order of age");
                any = true;
                before = k;
                if (k == 0)
                        held = true;
                else
                        executor_finish(&c, k);
        }
        while (c.next != nth(shape.n)) {
                model_forget((uint64_t)c.next << 1 | held); /* nothing else is busy here */
                if (ring_consumer_latch(&c, &request, &sequence) != RING_OK) {
                        executor_idle(&c);
                        continue;
                }
                k = executor_take(&request, sequence);
                if (k == 0)
                        held = true;
                else
                        executor_finish(&c, k);
        }
        model_forget(held);
        if (held)
                executor_finish(&c, 0);
}

/* Two threads: one latches, the other completes. */
static void setup_two_threads(void) {
        struct ring_layout l = layout();

        setup();
        /* by hand, since nothing runs yet: what ring_consumer_init does for a fresh ring */
        memset(&shared_consumer, 0, sizeof(shared_consumer));
        shared_consumer.layout = l;
        shared_consumer.lines = client_area.lines;
        shared_consumer.waiting = client_area.waiting;
        shared_consumer.header = &executor_area.header;
        shared_consumer.completion = executor_area.completion;
        model_share(&shared_consumer.busy[0], sizeof(shared_consumer.busy[0]));
        model_share(&shared_consumer.next, sizeof(shared_consumer.next));
        model_preset(&shared_consumer.next, shape.first);
}

static void executor_latching(void) {
        struct ring_request request;
        uint32_t sequence = 0;

        for (uint32_t k = 0; k < shape.n; k++) {
                for (;;) {
                        model_forget(k);
                        if (ring_consumer_latch(&shared_consumer, &request, &sequence) == RING_OK)
                                break;
                        executor_idle(&shared_consumer);
                }
                model_check(executor_take(&request, sequence) == k, "latch: not in order");
                atomic_store_explicit(&data.handoff[k], 1, memory_order_release);
                ring_futex_wake(&data.handoff[k]);
        }
}

static void executor_completing(void) {
        for (uint32_t k = 0; k < shape.n; k++) {
                model_forget(k);
                while (!atomic_load_explicit(&data.handoff[k], memory_order_acquire))
                        ring_futex_wait(&data.handoff[k], 0, -1);
                executor_finish(&shared_consumer, k);
        }
}

/* ---- scenarios ----------------------------------------------------------------------------------------------------
 */

static const struct {
        uint32_t depth, first, n;
        struct model_scenario scenario;
} scenarios[] = {
        {2, 1, 4, {"in_order", 2, {executor, client}, setup, NULL, 0}},
        {2, 0xfffffffe, 4, {"wrap", 2, {executor, client}, setup, NULL, 0}},
        {2, 1, 3, {"kill", 2, {executor, client}, setup, executor, 1}},
        {2, 1, 3, {"kill_twice", 2, {executor, client}, setup, executor, 2}},
        {2, 5, 2, {"kill_held", 2, {executor_holding, client_holding}, setup, executor_holding, 1}},
        {2, 0xfffffffe, 3, {"kill_wrap", 2, {executor_holding, client_holding}, setup, executor_holding, 1}},
        {1, 1, 2, {"two_threads", 3, {executor_latching, client, executor_completing}, setup_two_threads, NULL, 0}},
        {2, 1, 1, {"two_waiters", 3, {executor, client, bystander}, setup, NULL, 0}},
};

int main(int argc, char **argv) {
        int found = 0;

        for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
                bool wanted = argc < 2;
                uint64_t states;

                for (int a = 1; a < argc; a++)
                        wanted |= !strcmp(argv[a], scenarios[i].scenario.name);
                if (!wanted)
                        continue;
                shape.depth = scenarios[i].depth;
                shape.first = scenarios[i].first;
                shape.n = scenarios[i].n;
                found |= model_run(&scenarios[i].scenario, &states);
                printf("%s: %llu states%s\n", scenarios[i].scenario.name, (unsigned long long)states,
                       found ? ", FOUND" : "");
                if (found)
                        break;
        }
        return found;
}
