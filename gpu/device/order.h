/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Loads, stores and fences on memory that somebody else looks at meanwhile: another GPU, another process, the host.
 * Every access of the device code to shared memory goes through here.
 *
 * Three ways to hand data over:
 *
 * 1. Flag in the data (packets, cells): data and flag are one access that the hardware does not tear, so no fence is
 *    needed. NVIDIA stores 16 bytes whole (st.v4, aligned); AMD guarantees 8, so a packet carries a flag in each half
 *    and the reader checks both. Both architectures have the same layout. (The library's exchange
 *    kernels rely on more where NVLink is: 128 bytes that eight threads store in one instruction arrive as one.)
 * 2. Bulk data and a flag beside it: each thread stores its data, executes fence_release_system(), the warp meets, one
 *    thread stores the flag. The reader polls the flag (relaxed: an acquire in every round would drop the caches each
 *    time), then executes fence_acquire_system() once and reads the data past its L1.
 * 3. Memory of the client: what a stream wrote before its bell kernel is in memory when the bell line is seen (the
 *    kernel boundary and the line's flags); but a resident kernel starts once and gets no invalidation afterwards, so
 *    it may hold an older copy in its own caches. input_load_* therefore read past them.
 *
 * NVIDIA (sm_70 and later, PTX memory model): .relaxed.sys accesses are served by the L2 of the memory's home, which is
 * the point of coherence for SMs, peers and the host. fence.acq_rel.sys orders them for everybody, .gpu for this GPU.
 *
 * AMD (gfx90a, gfx942): system scope is spelled sc0 sc1 (gfx942) or glc (gfx90a) on the instruction. A release writes
 * dirty lines of the L2 back (buffer_wbl2 sc0 sc1) and waits (s_waitcnt vmcnt(0)); an acquire drops stale lines
 * (buffer_inv sc0 sc1). On gfx942 eight chiplets have an L2 each, which are coherent with each other only through
 * these; a device-scope poll can spin for ever on a line of its own L2, so polls are system scope always.
 */
#include "gpu/device/target.h"

/* ---- words and cells --------------------------------------------------------------------------------------------- */
DEVICE uint32_t word_load(const uint32_t *from) {
#if TARGET_NVIDIA
        uint32_t value;
        asm volatile("ld.relaxed.sys.global.u32 %0,[%1];" : "=r"(value) : "l"(from));
        return value;
#elif TARGET_AMD
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        return __atomic_load_n(from, __ATOMIC_RELAXED);
#endif
}

DEVICE void word_store(uint32_t *to, uint32_t value) {
#if TARGET_NVIDIA
        asm volatile("st.relaxed.sys.global.u32 [%0],%1;" ::"l"(to), "r"(value) : "memory");
#elif TARGET_AMD
        __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}

DEVICE uint64_t cell_load(const uint64_t *from) {
#if TARGET_NVIDIA
        uint64_t value;
        asm volatile("ld.relaxed.sys.global.u64 %0,[%1];" : "=l"(value) : "l"(from));
        return value;
#elif TARGET_AMD
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        return __atomic_load_n(from, __ATOMIC_RELAXED);
#endif
}

DEVICE void cell_store(uint64_t *to, uint64_t value) {
#if TARGET_NVIDIA
        asm volatile("st.relaxed.sys.global.u64 [%0],%1;" ::"l"(to), "l"(value) : "memory");
#elif TARGET_AMD
        __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        __atomic_store_n(to, value, __ATOMIC_RELAXED);
#endif
}

/* What was there; if it was `expected`, `value` is there now. For workers and bursts of one GPU. */
DEVICE uint32_t word_exchange(uint32_t *at, uint32_t expected, uint32_t value) {
#if TARGET_NVIDIA
        uint32_t was;
        asm volatile("atom.relaxed.sys.global.cas.b32 %0,[%1],%2,%3;"
                     : "=r"(was)
                     : "l"(at), "r"(expected), "r"(value)
                     : "memory");
        return was;
#else
#if TARGET_AMD
        __hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                             __HIP_MEMORY_SCOPE_SYSTEM);
#else
        __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
        return expected;
#endif
}

/* What was there before `value` was added; the same. */
DEVICE uint32_t word_add(uint32_t *at, uint32_t value) {
#if TARGET_NVIDIA
        uint32_t was;
        asm volatile("atom.relaxed.sys.global.add.u32 %0,[%1],%2;" : "=r"(was) : "l"(at), "r"(value) : "memory");
        return was;
#elif TARGET_AMD
        return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
#endif
}

/* ---- fences ------------------------------------------------------------------------------------------------------ */
/* What this thread has stored (and seen) comes before what the warp stores after it meets, for every observer. */
DEVICE void fence_release_system(void) {
#if TARGET_NVIDIA
        asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif TARGET_AMD
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
        /* It waits for the write-back by itself, but clang (19) takes that wait out where the thread has no store of
         * its own under way. */
        asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#else
        __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/* What this thread has stored is included where another one of the block, after all have met, releases. On NVIDIA it is
 * by itself. On AMD a release waits for what its own wave has under way, and meeting (block_sync()) for nothing in
 * global memory, so that the write-back could come before another wave's stores are where it looks. */
DEVICE void fence_settle(void) {
#if TARGET_AMD
        asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
}

DEVICE void fence_acquire_system(void) {
#if TARGET_NVIDIA
        asm volatile("fence.acq_rel.sys;" ::: "memory");
#elif TARGET_AMD
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
#else
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/* The same for a thread that has just seen a flag here, and has stored to other GPUs: a fence would wait for those
 * stores to arrive. `flag` still says what was seen. */
DEVICE void flag_acquire(const uint32_t *flag) {
#if TARGET_NVIDIA
        [[maybe_unused]] uint32_t value;
        asm volatile("ld.acquire.sys.global.u32 %0,[%1];" : "=r"(value) : "l"(flag) : "memory");
#else
        (void)flag;
        fence_acquire_system();
#endif
}

/* The same where one warp of a processor polls, and the others wait for it: then it does no harm on NVIDIA that every
 * look acquires, and saves a trip to memory after the last one. flag_looked(): when all flags have been seen. */
DEVICE uint32_t flag_look(const uint32_t *flag) {
#if TARGET_NVIDIA
        uint32_t value;
        asm volatile("ld.acquire.sys.global.u32 %0,[%1];" : "=r"(value) : "l"(flag) : "memory");
        return value;
#else
        return word_load(flag);
#endif
}

DEVICE void flag_looked(void) {
#if !TARGET_NVIDIA
        fence_acquire_system();
#endif
}

/* The same for observers on this GPU, and for whoever they tell. AMD: other chiplets have their own L2, and peers read
 * the memory itself, so nothing less than the system will do. */
DEVICE void fence_release_device(void) {
#if TARGET_NVIDIA
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
        fence_release_system();
#endif
}
/* The same for what others on this GPU have handed over. */
DEVICE void fence_acquire_device(void) {
#if TARGET_NVIDIA
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
        fence_acquire_system();
#endif
}

/* Between a store and a load that must not pass it. */
DEVICE void fence_full_system(void) {
#if TARGET_NVIDIA
        asm volatile("fence.sc.sys;" ::: "memory");
#elif TARGET_AMD
        __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
#else
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* ---- sixteen bytes ----------------------------------------------------------------------------------------------- */
struct alignas(16) quad {
        uint32_t x, y, z, w;
};

/* Bulk data in staging, and packets: past the L1, no order by itself. No "memory" clobber on the load: several may be
 * under way at once. */
DEVICE struct quad quad_load(const struct quad *from) {
        struct quad v;
#if TARGET_NVIDIA
        asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3},[%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from));
#else
        const uint64_t *half = (const uint64_t *)(const void *)from;
        uint64_t low = cell_load(half), high = cell_load(half + 1);
        v.x = (uint32_t)low, v.y = (uint32_t)(low >> 32), v.z = (uint32_t)high, v.w = (uint32_t)(high >> 32);
#endif
        return v;
}

DEVICE void quad_store(struct quad *to, struct quad v) {
#if TARGET_NVIDIA
        asm volatile("st.relaxed.sys.global.v4.u32 [%0],{%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                     "r"(v.w)
                     : "memory");
#else
        uint64_t *half = (uint64_t *)(void *)to;
        cell_store(half, (uint64_t)v.y << 32 | v.x);
        cell_store(half + 1, (uint64_t)v.w << 32 | v.z);
#endif
}

/* Bulk data whose flag stands behind a release, and is followed by an acquire before the data is read: nobody sees half
 * of it. So on AMD it is an ordinary access of sixteen bytes in place of two atomic ones: the memory that others map is
 * uncached, and where it is not the release writes it back. (Written as assembly it could have sc0 sc1 in any case; but
 * the compiler would not know that it counts, and wait for stores where it means loads.) */
DEVICE void bulk_store(struct quad *to, struct quad v) {
#if TARGET_AMD
        *to = v;
#else
        quad_store(to, v);
#endif
}

DEVICE struct quad bulk_load(const struct quad *from) {
#if TARGET_AMD
        return *from;
#else
        return quad_load(from);
#endif
}

/* A packet: eight bytes of payload, {payload, flag, payload, flag}. */
#define PACKET_BYTES 8u

DEVICE void packet_store(struct quad *to, uint64_t payload, uint32_t flag) {
        struct quad v = {(uint32_t)payload, flag, (uint32_t)(payload >> 32), flag};
        quad_store(to, v);
}
DEVICE bool packet_is(struct quad v, uint32_t flag) {
        return v.y == flag && v.w == flag;
}
DEVICE uint64_t packet_payload(struct quad v) {
        return (uint64_t)v.z << 32 | v.x;
}

/* ---- the client's memory ----------------------------------------------------------------------------------------- */
/* Of `bytes` = 1, 2, 4, 8, aligned to that. */
DEVICE uint64_t input_load(const void *from, uint32_t bytes) {
#if TARGET_NVIDIA
        uint32_t value;
        uint16_t half;
        switch (bytes) {
        case 8:
                return cell_load((const uint64_t *)from);
        case 4:
                return word_load((const uint32_t *)from);
        case 2:
                asm volatile("ld.relaxed.sys.global.u16 %0,[%1];" : "=h"(half) : "l"(from));
                return half;
        default:
                asm volatile("ld.relaxed.sys.global.u8 %0,[%1];" : "=r"(value) : "l"(from));
                return value;
        }
#elif TARGET_AMD
        switch (bytes) {
        case 8:
                return cell_load((const uint64_t *)from);
        case 4:
                return word_load((const uint32_t *)from);
        case 2:
                return __hip_atomic_load((const uint16_t *)from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
        default:
                return __hip_atomic_load((const uint8_t *)from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
        }
#else
        switch (bytes) {
        case 8:
                return __atomic_load_n((const uint64_t *)from, __ATOMIC_RELAXED);
        case 4:
                return __atomic_load_n((const uint32_t *)from, __ATOMIC_RELAXED);
        case 2:
                return __atomic_load_n((const uint16_t *)from, __ATOMIC_RELAXED);
        default:
                return __atomic_load_n((const uint8_t *)from, __ATOMIC_RELAXED);
        }
#endif
}

/* Output: plain stores; a fence and the completion word follow. */
DEVICE void output_store(void *to, uint64_t value, uint32_t bytes) {
        switch (bytes) {
        case 8:
                *(uint64_t *)to = value;
                break;
        case 4:
                *(uint32_t *)to = (uint32_t)value;
                break;
        case 2:
                *(uint16_t *)to = (uint16_t)value;
                break;
        default:
                *(uint8_t *)to = (uint8_t)value;
                break;
        }
}

/* ---- counters of the own GPU --------------------------------------------------------------------------------------
 */
DEVICE uint32_t counter_add(uint32_t *counter, uint32_t value) { /* returns the new value */
#if TARGET_NVIDIA
        return atomicAdd(counter, value) + value;
#elif TARGET_AMD
        return __hip_atomic_fetch_add(counter, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) + value;
#else
        return __atomic_add_fetch(counter, value, __ATOMIC_RELAXED);
#endif
}
DEVICE uint32_t counter_next(uint32_t *counter) { /* the same */
        return counter_add(counter, 1);
}
DEVICE uint64_t counter_add_cell(uint64_t *counter, uint64_t value) {
#if TARGET_NVIDIA
        return atomicAdd((unsigned long long *)counter, (unsigned long long)value) + value;
#elif TARGET_AMD
        return __hip_atomic_fetch_add(counter, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) + value;
#else
        return __atomic_add_fetch(counter, value, __ATOMIC_RELAXED);
#endif
}

/* ---- polling ----------------------------------------------------------------------------------------------------- */
/* Between two looks that found nothing, when nothing urgent is expected: lets other warps of the processor issue. */
DEVICE void poll_pause(void) {
#if TARGET_NVIDIA
        __nanosleep(32);
#elif TARGET_AMD
        __builtin_amdgcn_s_sleep(1);
#else
        sched_yield();
#endif
}
