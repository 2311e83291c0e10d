/* SPDX-License-Identifier: MIT */
/* An executor process is killed at random moments under load, over and over: every sequence has one outcome on all
 * ranks, every success is right, and only sequences that were in flight at a kill are lost. */
#include "tests/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fixture.h"
#include "railmux/railmux.h"
#include "util/clock.h"

#define N           3u
#define OUTSTANDING 4u
#define COUNT       3000u
#define SEQUENCES   40000u
#define KILLS       40u

static uint8_t outcomes[N][SEQUENCES + 1];

/* Each outstanding request uses its own part of the buffer. */
static int32_t *part(struct fixture *f, uint32_t rank, uint32_t sequence, bool out) {
        return (int32_t *)(f->ranks[rank].buffer + (out ? f->buffer_bytes / 2 : 0)) + sequence % OUTSTANDING * COUNT;
}

static uint32_t ring_one(struct fixture *f, uint32_t r) {
        uint32_t s = f->ranks[r].sequence + 1;
        struct ring_request request = fixture_request(f, r, RING_OP_ALL_REDUCE, RMX_INT32, RMX_SUM, COUNT, 0);
        int32_t *in = part(f, r, s, false), *out = part(f, r, s, true);

        for (uint32_t i = 0; i < COUNT; i++)
                in[i] = (int32_t)(s * 7 + i * 3 + r * 11);
        memset(out, 0xee, COUNT * sizeof(*out));
        ring_request_set_u64(&request, RING_W_IN_LO, (uint64_t)((char *)in - f->ranks[r].buffer));
        ring_request_set_u64(&request, RING_W_OUT_LO, (uint64_t)((char *)out - f->ranks[r].buffer));
        return fixture_ring(f, r, &request);
}

static void check_one(struct fixture *f, uint32_t r, uint32_t s) {
        int32_t *out = part(f, r, s, true);

        for (uint32_t i = 0; i < COUNT; i++)
                assert_int_equal(out[i], (int32_t)(N * (s * 7 + i * 3) + 11 * (N * (N - 1) / 2)));
}

static void crash(void **state) {
        uint32_t q[N][OUTSTANDING], done[N] = {0}, kills = 0, lost = 0, at_kill[KILLS] = {0};
        unsigned int seed = (unsigned int)clock_now_ns();
        struct fixture f;
        uint64_t next_kill;

        (void)state;
        print_message("seed %u\n", seed);
        srand(seed);
        fixture_init(&f, N, 2 * OUTSTANDING * COUNT * sizeof(int32_t));
        fixture_spawn(&f);
        next_kill = clock_now_ns() + 2000000;
        while (done[0] < SEQUENCES || done[1] < SEQUENCES || done[2] < SEQUENCES) {
                uint32_t r = (uint32_t)rand() % N;
                struct fixture_rank *rank = &f.ranks[r];

                if (kills < KILLS && clock_now_ns() > next_kill) {
                        for (uint32_t i = 0; i < N; i++)
                                if (at_kill[kills] < f.ranks[i].sequence)
                                        at_kill[kills] = f.ranks[i].sequence;
                        kills++;
                        fixture_kill(&f);
                        fixture_spawn(&f);
                        next_kill = clock_now_ns() + (uint64_t)(rand() % 20000000);
                }
                if (rank->sequence < SEQUENCES && rank->sequence - done[r] < OUTSTANDING &&
                    (kills < KILLS || rand() % 8)) {
                        uint32_t next = (rank->sequence + 1) % OUTSTANDING; /* ring_one moves the sequence on */

                        q[r][next] = ring_one(&f, r);
                } else if (done[r] < rank->sequence) {
                        uint32_t s = done[r] + 1, ring_sequence = q[r][s % OUTSTANDING], status;

                        if (ring_producer_wait(&rank->producer, ring_sequence, 100000, &status))
                                continue;
                        ring_producer_release(&rank->producer, ring_sequence);
                        done[r] = s;
                        outcomes[r][s] = (uint8_t)(ring_status_code(status) + 1);
                        if (ring_status_code(status) == RMX_OK)
                                check_one(&f, r, s);
                        else
                                assert_int_equal(ring_status_code(status), RMX_E_LOST);
                }
                if (kills == KILLS && done[0] > at_kill[KILLS - 1] + 1000 && done[1] > at_kill[KILLS - 1] + 1000 &&
                    done[2] > at_kill[KILLS - 1] + 1000)
                        break;
        }
        assert_int_equal(kills, KILLS);
        for (uint32_t s = 1; s <= SEQUENCES; s++) {
                bool near = false;

                for (uint32_t r = 1; r < N; r++)
                        if (outcomes[r][s] && outcomes[0][s])
                                assert_int_equal(outcomes[r][s], outcomes[0][s]);
                if (outcomes[0][s] != RMX_E_LOST + 1)
                        continue;
                lost++;
                for (uint32_t k = 0; k < kills; k++)
                        near = near || (s <= at_kill[k] && s + 2 * OUTSTANDING > at_kill[k]);
                assert_true(near);
        }
        print_message("%u kills, %u sequences lost, %u done\n", kills, lost, done[0]);
        fixture_deinit(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(crash)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
