/* SPDX-License-Identifier: MIT */
/*
 * Several communicators over the same workers. Each rank rings them in an order of its own, several rings share a GPU,
 * and meanwhile kernels end and start again, tables change and workers stand still. Nobody may hang, and every element
 * has to be right.
 */
#include "tests/device/traffic.h"

#include "ring/line.h"

#define COMMS_MAX 3u

struct layout {
        uint32_t n_gpus, n_workers, n_ranks, n_comms;
        bool together; /* one session for all communicators of a GPU */
        uint32_t window;
        uint64_t max_bytes;
};

static uint64_t random_state;

static uint32_t draw(uint32_t below) {
        random_state = mix(random_state + 0x632be59bd9b4e019u);
        return (uint32_t)((random_state >> 20) % below);
}

static void disturb(struct emulator *e, const struct layout *l, uint32_t *held, uint32_t session) {
        static unsigned char extra[64];
        uint32_t gpu = draw(l->n_gpus);

        switch (draw(3)) {
        case 0:
                emulator_restart(e, gpu);
                break;
        case 1: /* the tables change */
                emulator_buffer(e, session, extra, sizeof(extra));
                break;
        default:
                emulator_hold(e, *held / 64, *held % 64, false);
                *held = gpu * 64 + draw(l->n_workers);
                emulator_hold(e, *held / 64, *held % 64, true);
                break;
        }
}

static void run(const struct layout *l, uint64_t seed, uint64_t requests) {
        struct emulator *e = emulator_new(l->n_gpus, l->n_workers, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        struct traffic *traffic = (struct traffic *)calloc(COMMS_MAX, sizeof(*traffic));
        uint32_t session[COMMS_MAX][EMULATOR_RANKS_MAX], held = 0;
        uint64_t least, last = 0, idle = 0;

        CHECK(traffic, "no memory");
        random_state = seed;
        for (uint32_t k = 0; k < l->n_comms; k++) {
                uint32_t comm;

                for (uint32_t r = 0; r < l->n_ranks; r++)
                        session[k][r] =
                                l->together && k ? session[0][r] : emulator_session(e, r % l->n_gpus, 1 + draw(200));
                comm = emulator_comm(e, l->n_ranks, session[k], k % 2, draw(9), draw(9));
                emulator_choose(e, comm, RING_OP_ALL_REDUCE, k % 2 ? PLAN_ONE_SHOT : PLAN_TWO_SHOT, k % 2);
                traffic_init(&traffic[k], e, comm, l->n_ranks, session[k], l->window, l->max_bytes, seed * 1000 + k);
        }
        do {
                struct traffic *t = &traffic[draw(l->n_comms)];

                /* Bursts, so that orders differ by more than one. */
                for (uint32_t rank = draw(l->n_ranks), burst = 1 + draw(l->window); burst; burst--)
                        traffic_ring(t, rank);
                for (uint32_t turns = draw(8); turns; turns--)
                        emulator_turn(e, "order");
                least = UINT64_MAX;
                for (uint32_t k = 0; k < l->n_comms; k++) {
                        traffic_harvest(&traffic[k]);
                        least = traffic[k].finished < least ? traffic[k].finished : least;
                }
                idle = least > last ? 0 : idle + 1;
                last = least;
                if (idle > 20000)
                        emulator_stuck(e, "a communicator does not go on");
                if (draw(40) == 0)
                        disturb(e, l, &held, session[0][0]);
        } while (least < requests);
        emulator_hold(e, held / 64, held % 64, false);
        for (uint32_t k = 0; k < l->n_comms; k++)
                traffic_drain(&traffic[k]);
        emulator_free(e);
        for (uint32_t k = 0; k < l->n_comms; k++)
                traffic_deinit(&traffic[k]);
        free(traffic);
}

/* Rank 0 has rung what rank 1 has not, and both go on with another communicator for longer than there are places: the
 * ring comes round to the one that is held, and round again, and its number is passed on each time. */
static void held(uint32_t first, uint64_t seed) {
        const uint32_t requests = 5 * BELL_DEPTH;
        struct emulator *e = emulator_new(2, 1 + seed / 8 % 3, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        struct traffic *late = (struct traffic *)calloc(2, sizeof(*late)), *other = late + 1;
        uint32_t session[2], rung, n_passed;

        CHECK(late, "no memory");
        for (uint32_t r = 0; r < 2; r++)
                session[r] = emulator_session(e, r, first);
        for (uint32_t k = 0; k < 2; k++)
                traffic_init(&late[k], e, emulator_comm(e, 2, session, k, 0, 0), 2, session, 4, 2000, seed * 1000 + k);
        for (rung = 0; rung < 1 + seed % 3; rung++)
                CHECK(traffic_ring(late, 0), "no place");
        for (uint32_t done = 0; done < requests; done += BELL_DEPTH) {
                traffic_run(other, BELL_DEPTH);
                emulator_restart(e, (uint32_t)(mix(seed + done) % 2));
        }
        CHECK(!late->finished, "one rank alone has finished");
        n_passed = emulator_next(e, session[0]) - first - requests - rung;
        CHECK(n_passed >= 4 * rung && n_passed <= 5 * rung + 1, "%u numbers passed on", n_passed);
        traffic_run(late, 10);
        /* All places serve again. */
        n_passed = emulator_next(e, session[0]);
        traffic_run(other, 2 * BELL_DEPTH);
        n_passed = emulator_next(e, session[0]) - n_passed - 2 * BELL_DEPTH;
        CHECK(n_passed <= 1, "%u numbers passed on, although all places are free", n_passed);
        emulator_free(e);
        for (uint32_t k = 0; k < 2; k++)
                traffic_deinit(&late[k]);
        free(late);
}

int main(void) {
        static const uint32_t firsts[] = {1, 63, 0u - 1, 0u - 64, 0u - 70, 0u - 200, 0x7ffffff0u};
        static const struct layout layouts[] = {
                {2, 2, 2, 2, true, 4, 3000},   {2, 2, 2, 2, false, 4, 20000},
                {3, 3, 3, 3, true, 3, 2000},   {3, 4, 3, 3, false, 4, 8000},
                {2, 4, 4, 2, false, 3, 3000}, /* two ranks of one communicator on a GPU */
                {8, 2, 8, 2, true, 3, 1500},   {1, 4, 2, 3, false, 2, 1000},
                {2, 1, 2, 1, true, 8, 120000}, /* more lines than a worker has places for */
        };
        uint64_t seed = test_seed();

        for (uint32_t first : firsts)
                held(first, mix(mix(seed) + first) | 1);
        for (uint32_t round = 0; round < (test_full() ? 400 : 20); round++)
                for (const struct layout &l : layouts)
                        run(&l, mix(mix(seed) + round) | 1, 30);
        return 0;
}
