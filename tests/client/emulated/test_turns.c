/* SPDX-License-Identifier: MIT */
/*
 * Ranks of one process on one GPU, and the turns that their bells take: the library decides which of them share a bell
 * area, the functions of railmux_device.h ring on threads of the host, and a stand-in for the executor reads each
 * area's lines in their order, as workers do. A request of communicator X is done when both its ranks have rung.
 */
#include <string.h>

#include <railmux/railmux_device.h>

#include "gpu/device/bell.h"
#include "ring/line.h"
#include "tests/client/device_rig.h"
#include "util/clock.h"

#define AREAS   2u
#define OTHERS  200u /* requests of Y */
#define STOP_NS UINT64_C(20000000000)

enum { RANK_A, RANK_B, RANK_Y, RANKS }; /* A and B of X; another communicator's, whose peers are elsewhere */

struct area {
        const void *of; /* what the library's plug-in calls it; NULL: not used */
        char *memory;
        struct bell_host host;
        uint32_t next; /* ring sequence */
};

struct turns {
        struct area area[AREAS];
        struct rmx_device_handle handle[RANKS];
        /* The stand-in's. */
        pthread_t thread;
        uint32_t stop;
        uint32_t rung[2];     /* requests of A and B that it has seen, by rank */
        uint32_t sequence[2]; /* the one that waits */
        uint32_t place[2];    /* and its area */
};

static uint32_t load(const uint32_t *word) {
        return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint32_t *header(struct area *area, size_t offset) {
        return (uint32_t *)(void *)(area->memory + BELL_OFFSET_HEADER + offset);
}

/* ---- the executor ------------------------------------------------------------------------------------------------ */
static void answer(struct area *area, uint32_t sequence, uint32_t lanes) {
        uint64_t *done = (uint64_t *)(void *)(area->memory + BELL_OFFSET_DONE) + sequence % BELL_DEPTH * BELL_LANES;

        for (uint32_t i = 0; i < lanes; i++)
                __atomic_store_n(&done[i], sequence, __ATOMIC_SEQ_CST);
}

static void take(struct turns *t, uint32_t at, const uint32_t *word) {
        const uint32_t rank = word[RING_W_PEER], lanes = word[RING_W_FLAGS] >> BELL_LANES_SHIFT;

        if (rank == RANK_Y) {
                answer(&t->area[at], t->area[at].next, lanes);
                return;
        }
        t->sequence[rank] = t->area[at].next;
        t->place[rank] = at;
        __atomic_store_n(&t->rung[rank], t->rung[rank] + 1, __ATOMIC_SEQ_CST);
        if (t->rung[RANK_A] == t->rung[RANK_B])
                for (uint32_t i = RANK_A; i <= RANK_B; i++)
                        answer(&t->area[t->place[i]], t->sequence[i], lanes);
}

static void *serve(void *userdata) {
        struct turns *t = userdata;

        while (!load(&t->stop)) {
                for (uint32_t at = 0; at < AREAS && t->area[at].of; at++) {
                        struct area *area = &t->area[at];
                        const uint64_t *line = (const uint64_t *)(void *)(area->memory + BELL_OFFSET_LINES) +
                                               area->next % BELL_DEPTH * RING_WORDS;
                        uint32_t word[RING_WORDS], n = 0;

                        for (uint32_t i = 0; i < RING_WORDS; i++) {
                                const uint64_t cell = __atomic_load_n(&line[i], __ATOMIC_SEQ_CST);

                                word[i] = (uint32_t)cell;
                                n += cell >> 32 == area->next;
                        }
                        if (n < RING_WORDS)
                                continue;
                        take(t, at, word);
                        area->next = bell_sequence_next(area->next);
                }
                sched_yield();
        }
        return NULL;
}

/* ---- the ranks --------------------------------------------------------------------------------------------------- */
/* The area that the library has given this rank. */
static struct area *area_of(struct turns *t, const void *of) {
        uint32_t i = 0;

        while (i < AREAS && t->area[i].of && t->area[i].of != of)
                i++;
        must(i < AREAS);
        if (!t->area[i].of) {
                t->area[i] = (struct area){.of = of, .memory = aligned_alloc(4096, BELL_AREA_BYTES), .next = 1};
                must(t->area[i].memory);
                memset(t->area[i].memory, 0, BELL_AREA_BYTES);
                for (uint32_t k = 0; k < BELL_DEPTH; k++)
                        ((uint32_t *)(void *)(t->area[i].memory + BELL_OFFSET_RELEASED))[k] = bell_released_first(k);
        }
        return &t->area[i];
}

static void prepare(struct turns *t, uint32_t rank, struct rmx_comm *comm) {
        const struct rmx_device_call call = {
                .size = sizeof(call), .version = RMX_DEVICE_VERSION, .operation = RMX_OP_BARRIER};
        struct rmx_device_handle *h = &t->handle[rank];
        struct area *area;

        assert_int_equal(rmx_device_prepare(comm, &call, h), RMX_OK);
        area = area_of(t, h->area);
        h->area = area->memory;
        h->host = &area->host;
        h->counter = (uint32_t *)(void *)(area->memory + BELL_OFFSET_SEQUENCE) + h->slot;
        h->lanes = 2;
        h->payload = RMX_BELL_NONE;
        h->word[RING_W_PEER] = rank; /* for the stand-in */
        h->word[RING_W_FLAGS] = h->lanes << BELL_LANES_SHIFT;
}

struct kernel {
        const struct rmx_device_handle *handle;
        uint32_t n;
        uint32_t ended;  /* the stream has come to its end */
        uint32_t status; /* the first that was not RMX_OK */
        struct rmx_bell_shared shared;
};

/* As a graph with one request that is replayed. (A call of the interface is for one block at a time here.) */
static void kernel_calls(void *userdata) {
        struct kernel *k = userdata;
        uint32_t status = RMX_OK;

        for (uint32_t i = 0; i < k->n && !status; i++) {
                uint32_t sequence =
                        rmx_bell_ring(k->handle, RMX_BELL_NONE, NULL, 0, block_thread(), block_threads(), &k->shared);

                if (sequence)
                        rmx_bell_await(k->handle, RMX_BELL_NONE, sequence, block_thread(), block_threads(), &k->shared);
                status = rmx_bell_shared_load(&k->shared.status);
                if (block_thread() == 0)
                        rmx_bell_finish(k->handle, sequence, status);
                rmx_bell_sync();
        }
        if (block_thread() == 0) {
                k->status = status;
                __atomic_store_n(&k->ended, 1, __ATOMIC_SEQ_CST);
        }
}

static bool reached(const uint32_t *word, uint32_t value, uint64_t until_ns) {
        while (load(word) < value && clock_now_ns() < until_ns)
                sched_yield();
        return load(word) >= value;
}

/* A waits for B, which has yet to ring; Y goes on for as long as it can; then B rings. */
static void check_turns(uint32_t first) {
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
        struct turns *t = calloc(1, sizeof(*t));
        struct kernel kernel[RANKS] = {{.n = 1}, {.n = 1}, {.n = OTHERS}};
        struct block *block = calloc(RANKS, sizeof(*block));
        struct rmx_comm *other;
        struct rmx_id id;
        struct rig rig;
        uint64_t until_ns = clock_now_ns() + STOP_NS;
        bool all = true;

        must(t && block);
        rig_start(&rig, 2);
        assert_int_equal(rmx_get_id(rig.crew.session, &id), RMX_OK);
        assert_int_equal(rmx_comm_create(rig.crew.session, &id, 1, 0, &options, &other), RMX_OK);
        prepare(t, RANK_A, rig.crew.comm[first]);
        prepare(t, RANK_B, rig.crew.comm[!first]);
        prepare(t, RANK_Y, other);
        for (uint32_t i = 0; i < RANKS; i++)
                kernel[i].handle = &t->handle[i];
        must(!pthread_create(&t->thread, NULL, serve, t));

        block_launch(&block[RANK_A], 32, kernel_calls, &kernel[RANK_A]);
        must(reached(&t->rung[RANK_A], 1, until_ns));
        block_launch(&block[RANK_Y], 32, kernel_calls, &kernel[RANK_Y]);
        if (t->handle[RANK_Y].area == t->handle[RANK_A].area) /* it waits for A's place */
                must(reached((uint32_t *)(void *)((char *)t->handle[RANK_A].area + RMX_BELL_COUNTER), 1 + BELL_DEPTH,
                             until_ns));
        else
                must(reached(&kernel[RANK_Y].ended, 1, until_ns));
        block_launch(&block[RANK_B], 32, kernel_calls, &kernel[RANK_B]);
        for (uint32_t i = 0; i < RANKS; i++)
                all = all && reached(&kernel[i].ended, 1, until_ns);
        for (uint32_t i = 0; i < AREAS && t->area[i].of; i++) /* or they would wait for ever */
                __atomic_store_n(header(&t->area[i], offsetof(struct bell_header, closed)), 1, __ATOMIC_SEQ_CST);
        for (uint32_t i = 0; i < RANKS; i++)
                block_join(&block[i]);
        __atomic_store_n(&t->stop, 1, __ATOMIC_SEQ_CST);
        must(!pthread_join(t->thread, NULL));
        assert_true(all);
        for (uint32_t i = 0; i < RANKS; i++)
                assert_int_equal(kernel[i].status, RMX_OK);
        assert_int_equal(rmx_comm_destroy(other), RMX_OK);
        rig_stop(&rig);
        for (uint32_t i = 0; i < AREAS; i++)
                free(t->area[i].memory);
        free(block);
        free(t);
}

/* Whichever of the two has the area that Y is in. */
static void test_first(void **state) {
        (void)state;
        check_turns(0);
}

static void test_second(void **state) {
        (void)state;
        check_turns(1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_first),
                cmocka_unit_test(test_second),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
