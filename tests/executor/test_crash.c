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

/* ---- sends and receives ------------------------------------------------------------------------------------------ */
#define GROUP   4u /* entries of a request: to and from each of the two other ranks */
#define REGIONS 4u

struct exchange {
        uint32_t q;     /* ring sequence */
        uint32_t round; /* pair sequence of its entries */
};

static int32_t *exchange_place(struct fixture *f, uint32_t rank, uint32_t peer, uint32_t round, bool receives) {
        return (int32_t *)(f->ranks[rank].buffer + (receives ? f->buffer_bytes / 2 : 0)) +
               ((round % REGIONS) * N + peer) * COUNT;
}

/* Round k of a rank: sends to and receives from both others. */
static uint32_t ring_exchange(struct fixture *f, uint32_t r, uint32_t round) {
        struct ring_group_entry entries[GROUP];
        const struct ring_layout *layout = &f->ranks[r].producer.layout;
        uint32_t offset = RING_ARGUMENT_ALIGN * (1 + 4 * (round % REGIONS)), n = 0;
        struct ring_request request = {0};

        for (uint32_t peer = 0; peer < N; peer++)
                for (uint32_t receives = 0; peer != r && receives < 2; receives++) {
                        int32_t *place = exchange_place(f, r, peer, round, receives);

                        for (uint32_t i = 0; i < COUNT; i++)
                                place[i] = receives ? -1 : (int32_t)(round * 7 + i * 3 + r * 11 + peer * 101);
                        entries[n++] = (struct ring_group_entry){
                                .operation = receives ? RING_OP_RECV : RING_OP_SEND,
                                .type = RMX_INT32,
                                .peer = peer,
                                .sequence = round,
                                .count = COUNT,
                                .offset = (uint64_t)((char *)place - f->ranks[r].buffer),
                                .buffer = FIXTURE_BUFFER,
                        };
                }
        memcpy((char *)f->ranks[r].client_area + layout->argument_offset + offset, entries, sizeof(entries));
        ring_request_set_head(&request, RING_OP_GROUP, 0, 0);
        request.word[RING_W_COMM] = FIXTURE_HANDLE + r;
        ring_request_set_u64(&request, RING_W_COUNT_LO, GROUP);
        request.word[RING_W_ARGUMENT] = offset;
        request.word[RING_W_EPOCH] = 1;
        return fixture_ring(f, r, &request);
}

static void check_exchange(struct fixture *f, uint32_t r, uint32_t round) {
        for (uint32_t peer = 0; peer < N; peer++) {
                const int32_t *got = exchange_place(f, r, peer, round, true);

                for (uint32_t i = 0; peer != r && i < COUNT; i++)
                        assert_int_equal(got[i], (int32_t)(round * 7 + i * 3 + peer * 11 + r * 101));
        }
}

/* Groups of sends and receives over the same kills: every request ends, what is said to be right is right, and after
 * the last kill everything is. */
static void crash_groups(void **state) {
        uint32_t done[N] = {0}, rung[N] = {0}, kills = 0, lost = 0, at_kill = 0, last;
        struct exchange open[N][REGIONS];
        unsigned int seed = (unsigned int)clock_now_ns();
        struct fixture f;
        uint64_t next_kill;

        (void)state;
        print_message("seed %u\n", seed);
        srand(seed);
        fixture_init(&f, N, 2 * REGIONS * N * COUNT * sizeof(int32_t));
        fixture_spawn(&f);
        next_kill = clock_now_ns() + 2000000;
        do {
                uint32_t r = (uint32_t)rand() % N, status;

                if (kills < KILLS && clock_now_ns() > next_kill) {
                        fixture_kill(&f);
                        kills++;
                        for (uint32_t i = 0; i < N; i++)
                                at_kill = rung[i] > at_kill ? rung[i] : at_kill;
                        fixture_spawn(&f);
                        next_kill = clock_now_ns() + (uint64_t)(rand() % 20000000);
                }
                if (rung[r] - done[r] < REGIONS - 1 && rand() % 2) {
                        uint32_t round = ++rung[r];

                        open[r][round % REGIONS] = (struct exchange){ring_exchange(&f, r, round), round};
                } else if (done[r] < rung[r]) {
                        struct exchange *e = &open[r][(done[r] + 1) % REGIONS];

                        if (ring_producer_wait(&f.ranks[r].producer, e->q, 100000, &status))
                                continue;
                        ring_producer_release(&f.ranks[r].producer, e->q);
                        done[r]++;
                        lost += ring_status_code(status) == RMX_E_LOST;
                        if (ring_status_code(status) == RMX_OK)
                                check_exchange(&f, r, e->round);
                        else
                                assert_int_equal(ring_status_code(status), RMX_E_LOST);
                        if (kills == KILLS && e->round > at_kill)
                                assert_int_equal(ring_status_code(status), RMX_OK);
                }
                last = done[0];
                for (uint32_t i = 1; i < N; i++)
                        last = done[i] < last ? done[i] : last;
        } while (kills < KILLS || last < at_kill + 1000);
        print_message("%u kills, %u of %u groups lost\n", kills, lost, done[0] + done[1] + done[2]);
        assert_true(lost <= kills * N * REGIONS);
        fixture_deinit(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(crash), cmocka_unit_test(crash_groups)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
