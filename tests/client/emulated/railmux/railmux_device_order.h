/* SPDX-License-Identifier: MIT */
#pragma once
/* In the place of the installed header of this name: a block is made of threads of the host (block.h), and its first
 * warp of 32 of them. Every access is as strong as it gets; what is tested is what is done, not its order. */
#include <sched.h>
#include <stdint.h>

#include "tests/client/emulated/block.h"

#define RMX_BELL_WARP              BLOCK_WARP
#define RMX_BELL_FUNCTION          static inline
#define RMX_BELL_ASIDE             static inline
#define RMX_BELL_SHARED            /* one block at a time */
#define RMX_BELL_RARELY(condition) (condition)

RMX_BELL_FUNCTION uint32_t rmx_bell_word_load(const uint32_t *from) {
        return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
RMX_BELL_FUNCTION void rmx_bell_word_store(uint32_t *to, uint32_t value) {
        __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}
RMX_BELL_FUNCTION uint64_t rmx_bell_cell_load(const uint64_t *from) {
        return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
RMX_BELL_FUNCTION void rmx_bell_cell_store(uint64_t *to, uint64_t value) {
        __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}
RMX_BELL_FUNCTION uint64_t rmx_bell_cell_load_if(int holds, const uint64_t *from) {
        (void)sched_yield(); /* who polls lets others run */
        return holds ? rmx_bell_cell_load(from) : 0;
}
RMX_BELL_FUNCTION void rmx_bell_cell_store_if(int holds, uint64_t *to, uint64_t value) {
        if (holds)
                rmx_bell_cell_store(to, value);
}
RMX_BELL_FUNCTION uint32_t rmx_bell_counter_take(uint32_t *counter) {
        return __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
}

struct rmx_bell_packet {
        uint64_t half[2];
};

RMX_BELL_FUNCTION struct rmx_bell_packet rmx_bell_packet_load_if(int holds, const struct rmx_bell_packet *from) {
        return (struct rmx_bell_packet){
                {holds ? rmx_bell_cell_load(&from->half[0]) : 0, holds ? rmx_bell_cell_load(&from->half[1]) : 0}};
}
RMX_BELL_FUNCTION void rmx_bell_packet_store(struct rmx_bell_packet *to, uint64_t payload, uint32_t sequence) {
        rmx_bell_cell_store(&to->half[0], (uint64_t)sequence << 32 | (uint32_t)payload);
        rmx_bell_cell_store(&to->half[1], (uint64_t)sequence << 32 | payload >> 32);
}

RMX_BELL_FUNCTION void rmx_bell_release(void) {
        block_count(BLOCK_RELEASES);
}
RMX_BELL_FUNCTION void rmx_bell_acquire(void) {
        block_count(BLOCK_ACQUIRES);
}
RMX_BELL_FUNCTION void rmx_bell_fence(void) {
        block_count(BLOCK_FENCES);
}
RMX_BELL_FUNCTION uint32_t rmx_bell_threads(void) {
        return block_threads();
}
RMX_BELL_FUNCTION uint32_t rmx_bell_thread(void) {
        return block_thread();
}
RMX_BELL_FUNCTION void rmx_bell_sync(void) {
        block_sync();
}
RMX_BELL_FUNCTION uint32_t rmx_bell_shared_load(const uint32_t *from) {
        return __atomic_load_n(from, __ATOMIC_RELAXED);
}
RMX_BELL_FUNCTION void rmx_bell_shared_store(uint32_t *to, uint32_t value) {
        __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
RMX_BELL_FUNCTION uint32_t rmx_bell_read(uint32_t value, uint32_t from) {
        return block_warp_read(value, from);
}
RMX_BELL_FUNCTION void rmx_bell_warp_sync(void) {
        block_warp_sync();
}
RMX_BELL_FUNCTION void rmx_bell_pause(void) {
        (void)sched_yield();
}
