/* SPDX-License-Identifier: MIT */
/*
 * Each function of the ordering layer in a kernel of its own, so that the code a compiler makes of it can be looked at
 * without anything around it (check_code.py, kernels.txt). Never run.
 */
#include "gpu/device/order.h"

extern "C" KERNEL void probe_word_poll(const uint32_t *flag, uint32_t value, uint32_t *out) {
        uint32_t seen;

        while ((seen = word_load(flag)) < value)
                poll_pause();
        out[warp_thread()] = seen;
}

extern "C" KERNEL void probe_cell_poll(const uint64_t *cell, uint32_t flag, uint32_t *out) {
        uint64_t seen;

        while ((uint32_t)((seen = cell_load(cell + warp_thread())) >> 32) != flag)
                poll_pause();
        out[warp_thread()] = (uint32_t)seen;
}

/* Flag in the data: no fence, and none may appear. */
extern "C" KERNEL void probe_packet_poll(const struct quad *from, uint32_t flag, uint64_t *out) {
        struct quad v = quad_load(from + warp_thread());

        while (!warp_all(packet_is(v, flag))) {
                poll_pause();
                v = quad_load(from + warp_thread());
        }
        out[warp_thread()] = packet_payload(v);
}

extern "C" KERNEL void probe_packet_push(struct quad *to, const uint64_t *payload, uint32_t flag) {
        packet_store(to + warp_thread(), input_load(payload + warp_thread(), 8), flag);
}

/* Bulk data and a flag beside it. */
extern "C" KERNEL void probe_handover(struct quad *to, uint32_t *flag, uint32_t value) {
        struct quad v = {value, value + 1, value + 2, value + 3};

        bulk_store(to + warp_thread(), v);
        fence_release_system();
        warp_sync();
        if (warp_thread() == 0)
                word_store(flag, value);
}

extern "C" KERNEL void probe_take(const struct quad *from, const uint32_t *flag, uint32_t value, uint32_t *out) {
        struct quad v;

        while (word_load(flag) != value)
                poll_pause();
        fence_acquire_system();
        warp_sync();
        v = bulk_load(from + warp_thread());
        out[warp_thread()] = v.x + v.y + v.z + v.w;
}

extern "C" KERNEL void probe_input(const uint8_t *from, uint64_t *out) {
        const uint8_t *mine = from + 32 * warp_thread();
        uint64_t sum = input_load(mine, 8);

        sum += input_load(mine + 8, 4);
        sum += input_load(mine + 12, 2);
        sum += input_load(mine + 14, 1);
        output_store(out + warp_thread(), sum, 8);
}

extern "C" KERNEL void probe_counter(uint32_t *counter, uint32_t *out) {
        if (warp_thread() == 0)
                word_store(out, counter_next(counter));
}
