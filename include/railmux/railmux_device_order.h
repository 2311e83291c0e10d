/* SPDX-License-Identifier: MIT */
#ifndef RAILMUX_DEVICE_ORDER_H
#define RAILMUX_DEVICE_ORDER_H
/*
 * What railmux_device.h needs of the hardware: loads and stores that another process sees, fences, barriers. No
 * interface: use the functions of railmux_device.h.
 *
 * NVIDIA (sm_70 and later): relaxed accesses of system scope are served by the L2 cache of the memory's home; a fence
 * orders them. AMD (gfx90a, gfx942): the same at system scope, which is past the caches of a chiplet; nothing less will
 * do, since each chiplet has an L2 of its own. No header of a runtime is needed, and no function of a device library.
 */
#include <stdint.h>

#if defined(__HIP__) || defined(__CUDACC__)
#if defined(__HIP__)
#define RMX_BELL_AMD  1
#define RMX_BELL_WARP 64u /* threads that run together */
#else
#define RMX_BELL_AMD  0
#define RMX_BELL_WARP 32u
#endif

#define RMX_BELL_FUNCTION static inline __attribute__((device)) __attribute__((always_inline))
#define RMX_BELL_SHARED   __attribute__((shared))
/* Keeps what hardly ever happens out of the way of what always does. NVIDIA's compiler leaves it where it is, unless it
 * is a function; AMD's puts it behind the end, and a function would need a stack there. */
#define RMX_BELL_RARELY(condition) (__builtin_expect(!!(condition), 0))
#if RMX_BELL_AMD
#define RMX_BELL_ASIDE RMX_BELL_FUNCTION
#else
#define RMX_BELL_ASIDE static __attribute__((device)) __attribute__((noinline)) __attribute__((unused))
#endif

/* ---- words and cells --------------------------------------------------------------------------------------------- */
RMX_BELL_FUNCTION uint32_t rmx_bell_word_load(const uint32_t *from) {
#if RMX_BELL_AMD
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        uint32_t value;
        asm volatile("ld.relaxed.sys.global.u32 %0,[%1];" : "=r"(value) : "l"(from));
        return value;
#endif
}

RMX_BELL_FUNCTION void rmx_bell_word_store(uint32_t *to, uint32_t value) {
#if RMX_BELL_AMD
        __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        asm volatile("st.relaxed.sys.global.u32 [%0],%1;" ::"l"(to), "r"(value) : "memory");
#endif
}

RMX_BELL_FUNCTION uint64_t rmx_bell_cell_load(const uint64_t *from) {
#if RMX_BELL_AMD
        return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        uint64_t value;
        asm volatile("ld.relaxed.sys.global.u64 %0,[%1];" : "=l"(value) : "l"(from));
        return value;
#endif
}

RMX_BELL_FUNCTION void rmx_bell_cell_store(uint64_t *to, uint64_t value) {
#if RMX_BELL_AMD
        __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
        asm volatile("st.relaxed.sys.global.u64 [%0],%1;" ::"l"(to), "l"(value) : "memory");
#endif
}

/* The same where it holds, without a jump; 0 elsewhere. */
RMX_BELL_FUNCTION uint64_t rmx_bell_cell_load_if(int holds, const uint64_t *from) {
        uint64_t value = 0;
#if RMX_BELL_AMD
        if (holds)
                value = rmx_bell_cell_load(from);
#else
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p,%2,0;\n@p ld.relaxed.sys.global.u64 %0,[%1];\n}"
                     : "+l"(value)
                     : "l"(from), "r"(holds));
#endif
        return value;
}

RMX_BELL_FUNCTION void rmx_bell_cell_store_if(int holds, uint64_t *to, uint64_t value) {
#if RMX_BELL_AMD
        if (holds)
                rmx_bell_cell_store(to, value);
#else
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p,%0,0;\n@p st.relaxed.sys.global.u64 [%1],%2;\n}" ::"r"(holds),
                     "l"(to), "l"(value)
                     : "memory");
#endif
}

/* Counts up among all kernels of this GPU; the value before. */
RMX_BELL_FUNCTION uint32_t rmx_bell_counter_take(uint32_t *counter) {
#if RMX_BELL_AMD
        return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
        uint32_t old;
        asm volatile("atom.relaxed.gpu.global.add.u32 %0,[%1],1;" : "=r"(old) : "l"(counter) : "memory");
        return old;
#endif
}

/* ---- packets: eight bytes of payload with the sequence in each half, {payload, sequence, payload, sequence} -------
 */
struct rmx_bell_packet {
        uint64_t half[2];
};

/* NVIDIA does not tear sixteen bytes, AMD not eight; who looks at both halves is right on either. */
RMX_BELL_FUNCTION struct rmx_bell_packet rmx_bell_packet_load_if(int holds, const struct rmx_bell_packet *from) {
        struct rmx_bell_packet packet = {{0, 0}};
#if RMX_BELL_AMD
        if (holds) {
                packet.half[0] = rmx_bell_cell_load(&from->half[0]);
                packet.half[1] = rmx_bell_cell_load(&from->half[1]);
        }
#else
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p,%3,0;\n@p ld.relaxed.sys.global.v2.u64 {%0,%1},[%2];\n}"
                     : "+l"(packet.half[0]), "+l"(packet.half[1])
                     : "l"(from), "r"(holds));
#endif
        return packet;
}

RMX_BELL_FUNCTION void rmx_bell_packet_store(struct rmx_bell_packet *to, uint64_t payload, uint32_t sequence) {
        uint64_t low = (uint64_t)sequence << 32 | (uint32_t)payload;
        uint64_t high = (uint64_t)sequence << 32 | payload >> 32;
#if RMX_BELL_AMD
        rmx_bell_cell_store(&to->half[0], low);
        rmx_bell_cell_store(&to->half[1], high);
#else
        asm volatile("st.relaxed.sys.global.v2.u64 [%0],{%1,%2};" ::"l"(to), "l"(low), "l"(high) : "memory");
#endif
}

/* ---- fences ------------------------------------------------------------------------------------------------------ */
/* What this thread has stored, and seen of others, comes before what it stores next, for everybody. */
RMX_BELL_FUNCTION void rmx_bell_release(void) {
#if RMX_BELL_AMD
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
#else
        asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}

/* What another process on this GPU stored before the word that this thread has loaded comes before what is loaded
 * next. */
RMX_BELL_FUNCTION void rmx_bell_acquire(void) {
#if RMX_BELL_AMD
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
#else
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

/* Between a store and a load that must not pass it. */
RMX_BELL_FUNCTION void rmx_bell_fence(void) {
#if RMX_BELL_AMD
        __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
#else
        asm volatile("fence.sc.sys;" ::: "memory");
#endif
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */
/* Of a block of any shape. */
RMX_BELL_FUNCTION uint32_t rmx_bell_threads(void) {
#if RMX_BELL_AMD
        return (uint32_t)__builtin_amdgcn_workgroup_size_x() * __builtin_amdgcn_workgroup_size_y() *
               __builtin_amdgcn_workgroup_size_z();
#else
        return blockDim.x * blockDim.y * blockDim.z;
#endif
}
RMX_BELL_FUNCTION uint32_t rmx_bell_thread(void) {
#if RMX_BELL_AMD
        return (uint32_t)__builtin_amdgcn_workitem_id_x() +
               (uint32_t)__builtin_amdgcn_workgroup_size_x() *
                       ((uint32_t)__builtin_amdgcn_workitem_id_y() +
                        (uint32_t)__builtin_amdgcn_workgroup_size_y() * (uint32_t)__builtin_amdgcn_workitem_id_z());
#else
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
#endif
}

/* All threads of the block arrive before any goes on; what they stored before is there for all of them. */
RMX_BELL_FUNCTION void rmx_bell_sync(void) {
#if RMX_BELL_AMD
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
        __builtin_amdgcn_s_barrier();
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
        __syncthreads();
#endif
}

/* A word in shared memory that other threads of the block may write meanwhile. */
RMX_BELL_FUNCTION uint32_t rmx_bell_shared_load(const uint32_t *from) {
        return *(const volatile uint32_t *)from;
}
RMX_BELL_FUNCTION void rmx_bell_shared_store(uint32_t *to, uint32_t value) {
        *(volatile uint32_t *)to = value;
}

/* The value of thread `from` of the warp, which all of its threads agree on. */
RMX_BELL_FUNCTION uint32_t rmx_bell_read(uint32_t value, uint32_t from) {
#if RMX_BELL_AMD
        return (uint32_t)__builtin_amdgcn_readlane((int)value, (int)from);
#else
        return __shfl_sync(0xffffffffu, value, (int)from);
#endif
}

RMX_BELL_FUNCTION void rmx_bell_warp_sync(void) {
#if RMX_BELL_AMD
        __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
        __builtin_amdgcn_wave_barrier();
#else
        __syncwarp();
#endif
}

/* Between two looks that found nothing, when nothing urgent is expected. */
RMX_BELL_FUNCTION void rmx_bell_pause(void) {
#if RMX_BELL_AMD
        __builtin_amdgcn_s_sleep(1);
#else
        __nanosleep(32);
#endif
}
#endif
#endif
