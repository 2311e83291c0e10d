/* SPDX-License-Identifier: MIT */
/*
 * Lines as NVIDIA's GPUs have them (client/hip/exchange_line_form.h), a warp's threads one after another: they exchange
 * nothing, so nothing is missed by that. Everything else of lines the emulator tries (test_exchange.cc).
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/hip/exchange_unit.h"

/* Of blocks, which there are none of here. */
[[maybe_unused]] DEVICE void exchange_meet(struct exchange_shared *) {}
[[maybe_unused]] DEVICE bool exchange_any(struct exchange_shared *, bool predicate) {
        return predicate;
}
DEVICE uint32_t exchange_block(const struct exchange_shared *) {
        return 0;
}
DEVICE uint32_t exchange_thread(uint32_t thread) {
        return thread;
}

#undef WARP_THREADS
#define WARP_THREADS  32u
#define LINE_ONE_FLAG 1
#include "client/hip/exchange_line_form.h"

#define CHECK(condition)                                                                                               \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "%s:%d: %u units: %s\n", __FILE__, __LINE__, U, #condition);                   \
                        exit(1);                                                                                       \
                }                                                                                                      \
        } while (0)

#define LINES_OF(units) ((units)*WARP_THREADS / LINE_THREADS)

/* Fifteen units for each two lines, of 120 bytes each. */
static constexpr uint32_t tile_bytes(uint32_t units) {
        return LINES_OF(units) * 120;
}

static unsigned char pattern(uint32_t at) {
        return (unsigned char)(at * 7 + at / 251 + 1);
}

/* Each sixteen bytes of a tile belong to one thread's one unit, and those of a unit for all threads lie together. */
template <uint32_t U> static void units_are_a_tile() {
        static uint32_t owners[tile_bytes(U) / 16];

        memset(owners, 0, sizeof(owners));
        for (uint32_t t = 0; t < WARP_THREADS; t++)
                for (uint32_t k = 0; k < U; k++) {
                        const uint32_t at = line_offset(t, k);

                        CHECK(at % 16 == 0 && at + 16 <= tile_bytes(U));
                        owners[at / 16] += line_has(t, k);
                        CHECK(line_has(t, k) || at == line_offset(t, k - 1)); /* what is loaded all the same is there */
                }
        for (uint32_t i = 0; i < tile_bytes(U) / 16; i++)
                CHECK(owners[i] == 1);
}

/* From memory through lines and back, and no line is taken for one that it is not. */
template <uint32_t U> static void tiles_come_back() {
        alignas(16) static unsigned char from[tile_bytes(U)], to[tile_bytes(U)];
        alignas(128) static struct quad lines[U * WARP_THREADS];
        const uint32_t number = 0x80000001u;

        for (uint32_t i = 0; i < sizeof(from); i++)
                from[i] = pattern(i);
        memset(to, 0xee, sizeof(to));
        memset((void *)lines, 0xee, sizeof(lines));
        for (uint32_t t = 0; t < WARP_THREADS; t++) {
                struct quad x[U];

                for (uint32_t k = 0; k < U; k++)
                        memcpy((void *)&x[k], from + line_offset(t, k), 16);
                line_part(t, x);
                line_put(lines + t, t, number, x);
        }
        for (uint32_t i = 0; i < LINES_OF(U); i++) { /* the flag is the last eight bytes of each line, and only there */
                const struct quad *last = &lines[(i + 1) * LINE_THREADS - 1];

                CHECK(last->z == number && last->w == number);
        }
        for (uint32_t t = 0; t < WARP_THREADS; t++) {
                struct quad raw[U], y[U];

                line_get(lines + t, raw);
                CHECK(line_is(t, number, raw));
                CHECK(line_is(t, number + 1, raw) == !line_is_last(t));
                for (uint32_t k = 0; k < U; k++)
                        y[k] = line_data(raw, k);
                for (uint32_t k = 0; k < U; k++) {
                        const struct quad v = line_join(t, k, y);

                        if (line_has(t, k))
                                memcpy(to + line_offset(t, k), (const void *)&v, 16);
                }
        }
        CHECK(memcmp(from, to, sizeof(from)) == 0);
        /* Half a flag, or that of one line only, is none: an eighth thread sees it, of whichever line. */
        for (uint32_t i = 0; i < LINES_OF(U); i++)
                for (uint32_t half = 0; half < 2; half++) {
                        struct quad *last = &lines[(i + 1) * LINE_THREADS - 1], kept = *last, raw[U];
                        const uint32_t t = ((i + 1) * LINE_THREADS - 1) % WARP_THREADS;

                        (half ? last->w : last->z) = number - 2;
                        line_get(lines + t, raw);
                        CHECK(!line_is(t, number, raw));
                        *last = kept;
                }
}

/* What a thread adds up in the form in which it goes is what it adds up in memory: threads' units stand side by side.
 */
template <uint32_t U> static void sums_may_be_of_parts() {
        for (uint32_t t = 0; t < WARP_THREADS; t++) {
                struct quad a[U], b[U], whole[U];

                for (uint32_t k = 0; k < U; k++) {
                        a[k] = {t + k, 2 * t + k, 3 * t + k, 5 * t + k};
                        b[k] = {t * k, 7 + t, k, 11 * t};
                        if (!line_has(t, k))
                                a[k] = a[k - 1], b[k] = b[k - 1];
                        whole[k] = {a[k].x + b[k].x, a[k].y + b[k].y, a[k].z + b[k].z, a[k].w + b[k].w};
                }
                line_part(t, a);
                line_part(t, b);
                for (uint32_t k = 0; k < U; k++)
                        a[k] = {a[k].x + b[k].x, a[k].y + b[k].y, a[k].z + b[k].z, a[k].w + b[k].w};
                for (uint32_t k = 0; k < U; k++) {
                        const struct quad v = line_join(t, k, a);

                        if (line_has(t, k))
                                CHECK(memcmp((const void *)&v, (const void *)&whole[k], 16) == 0);
                }
        }
}

template <uint32_t U> static void all_of() {
        units_are_a_tile<U>();
        tiles_come_back<U>();
        sums_may_be_of_parts<U>();
}

int main() {
        (void)unit_store_part, (void)exchange_load_part; /* lines are of whole tiles here */
        all_of<2>();
        all_of<4>();
        all_of<8>();
        return 0;
}
