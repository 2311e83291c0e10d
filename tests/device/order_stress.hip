/* SPDX-License-Identifier: MIT */
/*
 * The three ways to hand data over (gpu/device/order.h), for as many rounds as wanted, with every value checked. One
 * warp of each block works. Every wait is bounded: a flag that never comes counts as a timeout and ends the lane.
 */
#include "tests/device/order_stress.h"

#include "gpu/device/order.h"

#define SPINS_MAX (1u << 24)

DEVICE uint32_t stress_value(uint32_t round, uint32_t lane, uint32_t index) {
        uint32_t x = round * 0x9e3779b1u ^ lane * 0x85ebca6bu ^ index * 0xc2b2ae35u;

        x ^= x >> 15;
        x *= 0x2c1b3c6du;
        return x ^ x >> 13;
}

DEVICE bool word_wait(const uint32_t *word, uint32_t value) {
        for (uint32_t spins = 0; (int32_t)(word_load(word) - value) < 0; spins++) {
                if (spins > SPINS_MAX)
                        return false;
                poll_pause();
        }
        return true;
}

/* Long enough for others to see what stands by now (some us). */
DEVICE void hold(uint32_t fences) {
        ROLLED
        for (uint32_t i = 0; i < fences; i++)
                fence_full_system();
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */
DEVICE uint64_t packet_value(uint32_t round, uint32_t lane, uint32_t i) {
        return (uint64_t)stress_value(round, lane, 2 * i + 1) << 32 | stress_value(round, lane, 2 * i);
}

DEVICE void packets_send(const struct stress_side *s, uint32_t lane, uint32_t round) {
        struct quad *to = (struct quad *)s->theirs[lane].data[round % STRESS_SLOTS];

        for (uint32_t i = warp_thread(); i < STRESS_QUADS; i += WARP_THREADS) {
                uint64_t value = packet_value(round, lane, i);

                if (s->weakness == STRESS_EARLY) {
                        packet_store(to + i, 0, round);
                        hold(1);
                }
                if (s->weakness == STRESS_UNFENCED) {
                        uint32_t *word = &to[i].x;

                        word_store(word, (uint32_t)value);
                        word_store(word + 2, (uint32_t)(value >> 32));
                        word_store(word + 1, round);
                        word_store(word + 3, round);
                } else {
                        packet_store(to + i, value, round);
                }
        }
}

DEVICE bool packets_receive(const struct stress_side *s, uint32_t lane, uint32_t round, uint32_t *violations) {
        const struct quad *from = (const struct quad *)s->mine[lane].data[round % STRESS_SLOTS];

        for (uint32_t i = warp_thread(); i < STRESS_QUADS; i += WARP_THREADS) {
                struct quad v = quad_load(from + i);

                for (uint32_t spins = 0; !packet_is(v, round); spins++) {
                        if (spins > SPINS_MAX)
                                return false;
                        v = quad_load(from + i);
                }
                *violations += packet_payload(v) != packet_value(round, lane, i);
        }
        return true;
}

/* ---- bulk data and a flag ---------------------------------------------------------------------------------------- */
DEVICE void bulk_send(const struct stress_side *s, uint32_t lane, uint32_t round) {
        struct stress_lane *to = s->theirs + lane;
        struct quad *data = (struct quad *)to->data[round % STRESS_SLOTS];

        if (s->weakness == STRESS_EARLY && warp_thread() == 0)
                word_store(to->flag[round % STRESS_SLOTS], round);
        for (uint32_t i = warp_thread(); i < STRESS_QUADS; i += WARP_THREADS) {
                uint64_t low = packet_value(round, lane, 2 * i), high = packet_value(round, lane, 2 * i + 1);
                struct quad v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};

                quad_store(data + i, v);
        }
        if (s->weakness == STRESS_RIGHT)
                fence_release_system();
        warp_sync();
        if (s->weakness != STRESS_EARLY && warp_thread() == 0)
                word_store(to->flag[round % STRESS_SLOTS], round);
}

DEVICE bool bulk_receive(const struct stress_side *s, uint32_t lane, uint32_t round, uint32_t *violations) {
        const struct stress_lane *from = s->mine + lane;
        const struct quad *data = (const struct quad *)from->data[round % STRESS_SLOTS];

        if (!word_wait(from->flag[round % STRESS_SLOTS], round))
                return false;
        if (s->weakness == STRESS_RIGHT)
                fence_acquire_system();
        warp_sync();
        for (uint32_t i = warp_thread(); i < STRESS_QUADS; i += WARP_THREADS) {
                uint64_t low = packet_value(round, lane, 2 * i), high = packet_value(round, lane, 2 * i + 1);
                struct quad v = quad_load(data + i);

                *violations += v.x != (uint32_t)low || v.y != (uint32_t)(low >> 32) || v.z != (uint32_t)high ||
                               v.w != (uint32_t)(high >> 32);
        }
        return true;
}

/* ---- one side ---------------------------------------------------------------------------------------------------- */
DEVICE void side_send(const struct stress_side *s, uint32_t lane) {
        for (uint32_t round = 1; round <= s->rounds; round++) {
                /* The slot is free when the round that used it was taken. */
                bool have = round <= STRESS_SLOTS || word_wait(s->mine[lane].credit, round - STRESS_SLOTS);

                if (!warp_all(have))
                        return;
                if (s->kind == STRESS_PACKETS)
                        packets_send(s, lane, round);
                else
                        bulk_send(s, lane, round);
                warp_sync();
        }
}

DEVICE void side_receive(const struct stress_side *s, uint32_t lane) {
        struct stress_result *result = s->results + lane;
        uint32_t violations = 0;

        for (uint32_t round = 1; round <= s->rounds; round++) {
                bool have = s->kind == STRESS_PACKETS ? packets_receive(s, lane, round, &violations)
                                                      : bulk_receive(s, lane, round, &violations);

                if (!warp_all(have)) {
                        if (warp_thread() == 0)
                                result->timeouts = 1;
                        break;
                }
                if (warp_thread() == 0) {
                        result->rounds = round;
                        /* All threads have compared what they loaded: the slot may be used again. */
                        word_store(s->theirs[lane].credit, round);
                }
        }
        for (uint32_t from = 0; from < WARP_THREADS; from++) {
                uint32_t one = warp_read(violations, from);

                if (warp_thread() == 0)
                        result->violations += one;
        }
}

/* Blocks 0 .. n_lanes - 1 send, the others receive. */
extern "C" KERNEL void LAUNCH_BOUNDS(STRESS_THREADS) stress_side_kernel(const struct stress_side s) {
        if (block_thread() >= WARP_THREADS)
                return;
        if (block_index() < s.n_lanes)
                side_send(&s, block_index());
        else
                side_receive(&s, block_index() - s.n_lanes);
}

/* ---- the client's memory ----------------------------------------------------------------------------------------- */
DEVICE uint64_t client_value(uint32_t round, uint32_t i, uint32_t salt) {
        return (uint64_t)stress_value(round, salt, 2 * i + 1) << 32 | stress_value(round, salt, 2 * i);
}

/* Reads the input by words of 8, 4, 2 and 1 bytes in turn, so that every way of loading meets old copies of the line.
 */
DEVICE uint32_t input_check(const struct stress_client *c, uint32_t round) {
        uint32_t violations = 0;

        for (uint32_t i = warp_thread(); i < STRESS_INPUT / 8; i += WARP_THREADS) {
                const uint8_t *at = c->input + 8 * i;
                uint64_t seen = 0;
                uint32_t bytes = 8u >> (i / WARP_THREADS + round) % 4;

                if (c->weakness == STRESS_RIGHT)
                        for (uint32_t k = 0; k < 8; k += bytes)
                                seen |= input_load(at + k, bytes) << (8 * k);
                else
                        seen = *(const uint64_t *)at;
                violations += seen != client_value(round, i, 1);
        }
        return violations;
}

extern "C" KERNEL void LAUNCH_BOUNDS(STRESS_THREADS) stress_resident(const struct stress_client c) {
        uint32_t violations = 0;

        if (block_thread() >= WARP_THREADS)
                return;
        for (uint32_t round = 1; round <= c.rounds; round++) {
                if (c.weakness == STRESS_EARLY)
                        violations += input_check(&c, round);
                if (!warp_all(word_wait(c.bell, round))) {
                        if (warp_thread() == 0)
                                c.results[0].timeouts = 1;
                        break;
                }
                if (c.weakness != STRESS_EARLY)
                        violations += input_check(&c, round);
                if (c.weakness == STRESS_EARLY) {
                        if (warp_thread() == 0)
                                word_store(c.answer, round);
                        hold(16);
                }
                for (uint32_t i = warp_thread(); i < STRESS_INPUT / 8; i += WARP_THREADS)
                        output_store(c.output + 8 * i, client_value(round, i, 2), 8);
                if (c.weakness == STRESS_RIGHT)
                        fence_release_system();
                warp_sync();
                if (warp_thread() == 0) {
                        word_store(c.answer, round);
                        c.results[0].rounds = round;
                }
        }
        for (uint32_t from = 0; from < WARP_THREADS; from++) {
                uint32_t one = warp_read(violations, from);

                if (warp_thread() == 0)
                        c.results[0].violations += one;
        }
}

extern "C" KERNEL void stress_fill(const struct stress_client c, uint32_t round) {
        uint32_t i = block_index() * block_threads() + block_thread();

        if (i < STRESS_INPUT / 8)
                ((uint64_t *)c.input)[i] = client_value(round, i, 1);
}

extern "C" KERNEL void stress_ring(const struct stress_client c, uint32_t round) {
        if (block_thread() != 0)
                return;
        word_store(c.bell, round);
        if (!word_wait(c.answer, round))
                c.results[1].timeouts = 1;
}

extern "C" KERNEL void stress_check(const struct stress_client c, uint32_t round) {
        uint32_t violations = 0;

        if (block_thread() >= WARP_THREADS)
                return;
        for (uint32_t i = warp_thread(); i < STRESS_INPUT / 8; i += WARP_THREADS)
                violations += ((const uint64_t *)c.output)[i] != client_value(round, i, 2);
        for (uint32_t from = 0; from < WARP_THREADS; from++) {
                uint32_t one = warp_read(violations, from);

                if (warp_thread() == 0)
                        c.results[1].violations += one;
        }
        if (warp_thread() == 0)
                c.results[1].rounds = round;
}

/* ---- for the host ------------------------------------------------------------------------------------------------ */
static hipError_t launch(const void *kernel, uint32_t blocks, uint32_t threads, void **parameters, hipStream_t stream) {
        return hipLaunchKernel(kernel, dim3(blocks), dim3(threads), parameters, 0, stream);
}

extern "C" hipError_t stress_launch_side(const struct stress_side *side, hipStream_t stream) {
        void *parameters[] = {(void *)(uintptr_t)side};

        return launch((const void *)stress_side_kernel, 2 * side->n_lanes, STRESS_THREADS, parameters, stream);
}

extern "C" hipError_t stress_launch_resident(const struct stress_client *client, hipStream_t stream) {
        void *parameters[] = {(void *)(uintptr_t)client};

        return launch((const void *)stress_resident, 1, STRESS_THREADS, parameters, stream);
}

extern "C" hipError_t stress_launch_round(const struct stress_client *client, uint32_t round, hipStream_t stream) {
        void *parameters[] = {(void *)(uintptr_t)client, &round};
        hipError_t r = launch((const void *)stress_fill, STRESS_INPUT / 8 / 256, 256, parameters, stream);

        if (r == hipSuccess)
                r = launch((const void *)stress_ring, 1, STRESS_THREADS, parameters, stream);
        if (r == hipSuccess)
                r = launch((const void *)stress_check, 1, STRESS_THREADS, parameters, stream);
        return r;
}
