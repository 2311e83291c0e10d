/* SPDX-License-Identifier: MIT */
/*
 * Kernels that end when they have nothing to do (TABLE_STOP_SERVED): not before, whatever is late; and no line is left
 * behind without a word.
 */
#include "tests/device/traffic.h"

#include "ring/line.h"

#define RANKS 2u
#define COMMS 3u

struct world {
        struct emulator *e;
        struct traffic *t[COMMS];
        uint32_t session[COMMS][RANKS];
};

/* Each communicator has sessions of its own, so a GPU looks at as many rings. */
static struct world world_new(uint32_t workers, uint64_t seed) {
        struct world w = {};

        w.e = emulator_new(RANKS, workers, EMULATOR_JITTER | EMULATOR_WATCH, seed);
        for (uint32_t k = 0; k < COMMS; k++) {
                w.t[k] = (struct traffic *)calloc(1, sizeof(*w.t[k]));
                CHECK(w.t[k], "no memory");
                for (uint32_t r = 0; r < RANKS; r++)
                        w.session[k][r] = emulator_session(w.e, r, 1 + (uint32_t)(mix(seed + k) % 200));
                traffic_init(w.t[k], w.e, emulator_comm(w.e, RANKS, w.session[k], k % 2, 0, 0), RANKS, w.session[k], 4,
                             5000, seed + 10 * k);
        }
        return w;
}

static void world_free(struct world *w) {
        emulator_free(w->e);
        for (uint32_t k = 0; k < COMMS; k++) {
                traffic_deinit(w->t[k]);
                free(w->t[k]);
        }
}

static bool seen(const struct world *w, uint32_t gpu) {
        for (uint32_t k = 0; k < COMMS; k++)
                if (!emulator_seen(w->e, w->session[k][gpu]))
                        return false;
        return true;
}

static bool kept(const struct world *w, uint32_t gpu) {
        for (uint32_t k = 0; k < COMMS; k++)
                if (emulator_kept(w->e, w->session[k][gpu]))
                        return true;
        return false;
}

static void wait_for_end(struct world *w, uint32_t gpu) {
        while (!emulator_ended(w->e, gpu))
                emulator_turn(w->e, "a kernel does not end");
}

/* Nothing to do: it ends, and says that it has seen all; so does one that has had something. */
static void idle(uint32_t workers, uint64_t seed) {
        struct world w = world_new(workers, seed);

        for (uint32_t round = 0; round < 4; round++) {
                emulator_finish(w.e, 0);
                wait_for_end(&w, 0);
                CHECK(seen(&w, 0) && !kept(&w, 0), "round %u: lines left behind", round);
                emulator_start(w.e, 0);
                for (uint32_t k = 0; k < COMMS; k++)
                        traffic_run(w.t[k], 2);
        }
        world_free(&w);
}

/* Nobody can finish it alone. */
static struct collective_case all_reduce(uint32_t n, uint64_t random, uint64_t max_bytes) {
        struct collective_case c = case_random(n, random, max_bytes);

        c.operation = RING_OP_ALL_REDUCE;
        c.type = RMX_INT32;
        c.redop = RMX_SUM;
        c.root = 0;
        c.count = 1 + mix(random + 9) % (max_bytes / 4 / n - 1);
        c.shift = c.inlined = c.in_place = false;
        return c;
}

/* The other rank comes late. Lines that came meanwhile, also of other rings, are served first. */
static void late(uint32_t workers, uint64_t seed) {
        struct world w = world_new(workers, seed);

        for (uint32_t k = 0; k < COMMS; k++) {
                w.t[k]->choose = all_reduce;
                CHECK(traffic_ring(w.t[k], 0), "no slot");
        }
        while (emulator_rung(w.e, w.t[0]->comm, 0) != 1)
                emulator_turn(w.e, "nobody begins");
        emulator_finish(w.e, 0);
        for (uint32_t turn = 0; turn < 2000; turn++) {
                traffic_harvest(w.t[0]);
                (void)emulator_rests(w.e);
                CHECK(!emulator_ended(w.e, 0), "it ended before its request did");
        }
        for (uint32_t k = 0; k < COMMS; k++)
                CHECK(traffic_ring(w.t[k], 1), "no slot");
        wait_for_end(&w, 0);
        CHECK(seen(&w, 0) && !kept(&w, 0), "lines left behind");
        for (uint32_t k = 0; k < COMMS; k++) {
                traffic_drain(w.t[k]);
                CHECK(w.t[k]->finished == 1, "communicator %u: %llu", k, (unsigned long long)w.t[k]->finished);
        }
        world_free(&w);
}

/* One worker stands still while the others serve and end. It has not seen the line, and the next kernel does its share;
 * or it says that it has, and there is nothing more to do. */
static void unseen(uint32_t workers, uint64_t seed) {
        struct world w = world_new(workers, seed);
        uint32_t held = (uint32_t)(mix(seed) % workers);

        emulator_hold(w.e, 0, held, true);
        emulator_finish(w.e, 0);
        for (uint32_t turn = mix(seed + 1) % 64; turn; turn--)
                emulator_turn(w.e, "standing still");
        for (uint32_t r = 0; r < RANKS; r++)
                CHECK(traffic_ring(w.t[1], r), "no slot");
        emulator_hold(w.e, 0, held, false);
        wait_for_end(&w, 0);
        if (!seen(&w, 0))
                emulator_start(w.e, 0);
        traffic_drain(w.t[1]);
        world_free(&w);
}

/* As the control thread does it: whatever has ended stays so until there is a line that has not been seen. And where
 * some workers have ended others may wait for them, by way of another GPU: whoever does not end soon is told to. */
static void random_moments(uint32_t workers, uint64_t seed) {
        struct world w = world_new(workers, seed);
        uint64_t random = mix(seed), ends = 0, idle_turns = 0, before = 0, sum;
        bool away[RANKS] = {};
        uint32_t since[RANKS] = {};

        do {
                const uint32_t gpu = (uint32_t)(random >> 8) % RANKS;
                struct traffic *t = w.t[(random >> 16) % COMMS];

                random = mix(random);
                for (uint32_t n = random >> 4 & 3; n; n--)
                        (void)traffic_ring(t, (uint32_t)(random >> 12) % RANKS);
                for (uint32_t turns = random >> 40 & 7; turns; turns--)
                        emulator_turn(w.e, "random moments");
                if (!away[gpu] && (random >> 24) % 4 == 0) {
                        emulator_finish(w.e, gpu);
                        away[gpu] = true;
                        since[gpu] = 0;
                }
                for (uint32_t g = 0; g < RANKS; g++) {
                        if (!away[g])
                                continue;
                        if (!emulator_ended(w.e, g)) {
                                if (++since[g] < 200)
                                        continue;
                                emulator_stop(w.e, g);
                        } else {
                                CHECK(!kept(&w, g), "a kernel ended with tasks in hand");
                        }
                        if (kept(&w, g) || !seen(&w, g)) {
                                emulator_start(w.e, g);
                                away[g] = false;
                                ends++;
                        }
                }
                sum = 0;
                for (uint32_t k = 0; k < COMMS; k++) {
                        traffic_harvest(w.t[k]);
                        sum += w.t[k]->finished;
                }
                idle_turns = sum > before ? 0 : idle_turns + 1;
                before = sum;
                if (idle_turns > 20000)
                        emulator_stuck(w.e, "a line that nobody will look at");
        } while (sum < 400);
        CHECK(ends > 3, "kernels ended %llu times", (unsigned long long)ends);
        for (uint32_t g = 0; g < RANKS; g++)
                emulator_restart(w.e, g);
        for (uint32_t k = 0; k < COMMS; k++)
                traffic_drain(w.t[k]);
        world_free(&w);
}

int main(void) {
        const uint64_t seed = test_seed();

        for (uint32_t round = 0; round < (test_full() ? 200 : 10); round++)
                for (uint32_t workers = 1; workers <= 4; workers++) {
                        const uint64_t own = mix(mix(seed) + 4 * round + workers);

                        idle(workers, own);
                        late(workers, own);
                        unseen(workers, own);
                        random_moments(workers, own);
                }
        return 0;
}
