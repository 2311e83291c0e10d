/* SPDX-License-Identifier: MIT */
/*
 * Handles come from one counter of the process, so a handle of another communicator is noticed and not taken for one of
 * its own. The counter comes round when a program has made two thousand million, and passes over what the communicator
 * still has. They are few and looked up in a list; only calls with such a handle pay for that.
 *
 * Small floats travel as fp32, which holds each of their values: exponents are moved, subnormals normalised by an
 * exact multiplication. e4m3 has no infinity, and NaN with all bits set only.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/comm.h"
#include "client/error.h"
#include "client/redop.h"
#include "util/type.h"

struct redop {
        struct redop *next, *prev; /* comm->redops */
        uint32_t handle;
        uint32_t type;
        struct redop_factor factor;
};

/* ---- encoding ---------------------------------------------------------------------------------------------------- */
static uint32_t float_bits(float x) {
        uint32_t bits;

        memcpy(&bits, &x, sizeof(bits));
        return bits;
}

/* A float of this format without the special values, as bits of fp32. */
static uint32_t small_float(uint32_t x, unsigned int exponent_bits, unsigned int mantissa_bits) {
        uint32_t sign = x >> (exponent_bits + mantissa_bits) << 31;
        uint32_t magnitude = x & ((1u << (exponent_bits + mantissa_bits)) - 1);
        uint32_t bias = (1u << (exponent_bits - 1)) - 1;

        if (magnitude >> mantissa_bits)
                return sign | ((magnitude << (23 - mantissa_bits)) + ((127 - bias) << 23));
        /* magnitude * 2^(1 - bias - mantissa_bits); the power is a float of its own. */
        return sign | float_bits((float)magnitude * 1.0f / (float)(UINT64_C(1) << (bias + mantissa_bits - 1)));
}

static uint32_t encode_fp16(uint32_t x) {
        if ((x & 0x7c00) == 0x7c00)
                return (x & 0x8000) << 16 | 0x7f800000 | (x & 0x3ff) << 13;
        return small_float(x, 5, 10);
}

static uint32_t encode_e4m3(uint32_t x) {
        if ((x & 0x7f) == 0x7f)
                return (x & 0x80) << 24 | 0x7fc00000;
        return small_float(x, 4, 3);
}

uint64_t redop_encode(const void *scalar, uint32_t type) {
        uint8_t u8;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        uint64_t u64;

        switch (type_size(type)) {
        case 1:
                memcpy(&u8, scalar, sizeof(u8));
                if (type == RMX_INT8)
                        return (uint64_t)(int64_t)(int8_t)u8;
                if (type == RMX_FLOAT8_E4M3)
                        return encode_e4m3(u8);
                return type == RMX_FLOAT8_E5M2 ? encode_fp16((uint32_t)u8 << 8) : u8; /* e5m2 is half an fp16 */
        case 2:
                memcpy(&u16, scalar, sizeof(u16));
                return type == RMX_FLOAT16 ? encode_fp16(u16) : (uint32_t)u16 << 16;
        case 4:
                if (type == RMX_INT32) {
                        memcpy(&i32, scalar, sizeof(i32));
                        return (uint64_t)(int64_t)i32;
                }
                memcpy(&u32, scalar, sizeof(u32));
                return u32;
        default:
                memcpy(&u64, scalar, sizeof(u64));
                return u64;
        }
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */
_Atomic uint32_t redop_last = REDOP_FIRST - 1;

static struct redop *redop_search(struct rmx_comm *comm, uint32_t handle) {
        struct redop *redop;

        DL_SEARCH_SCALAR(comm->redops, redop, handle, handle);
        return redop;
}

/* Under the mutex of the communicator, which has none with this handle. */
static uint32_t handle_new(struct rmx_comm *comm) {
        uint32_t last, handle;

        do {
                /* Both relaxed; partner: themselves, in other threads. Only uniqueness counts. */
                last = atomic_load_explicit(&redop_last, memory_order_relaxed);
                do
                        handle = last < REDOP_LAST ? last + 1 : REDOP_FIRST;
                while (!atomic_compare_exchange_weak_explicit(&redop_last, &last, handle, memory_order_relaxed,
                                                              memory_order_relaxed));
        } while (redop_search(comm, handle));
        return handle;
}

int redop_find(struct rmx_comm *comm, const char *what, uint32_t handle, uint32_t type,
               struct redop_factor *ret_factor) {
        const struct redop *redop;
        uint32_t its_type = type;

        pthread_mutex_lock(&comm->redop_mutex);
        redop = redop_search(comm, handle);
        if (redop) {
                its_type = redop->type;
                if (its_type == type)
                        *ret_factor = redop->factor;
        }
        pthread_mutex_unlock(&comm->redop_mutex);
        if (!redop)
                return error_set(RMX_E_INVALID,
                                 "%s: redop %u is none that rmx_redop_create_premul_sum gave for this communicator",
                                 what, handle);
        if (its_type != type)
                return error_set(RMX_E_INVALID, "%s: redop %u was created for type %u, this call has type %u", what,
                                 handle, its_type, type);
        return RMX_OK;
}

void redops_free(struct rmx_comm *comm) {
        while (comm->redops) {
                struct redop *redop = comm->redops;

                DL_DELETE(comm->redops, redop);
                free(redop);
        }
        pthread_mutex_destroy(&comm->redop_mutex);
}

/* ---- public ------------------------------------------------------------------------------------------------------ */
int rmx_redop_create_premul_sum(struct rmx_comm *comm, const void *scalar, uint32_t type, uint32_t residence,
                                uint32_t *ret_redop) {
        struct redop *redop;
        int r;

        r = comm_check(comm, __func__);
        if (r)
                return r;
        if (!scalar || !ret_redop)
                return error_set(RMX_E_INVALID, "%s: %s is NULL", __func__, scalar ? "ret_redop" : "scalar");
        if (!type_size(type))
                return error_set(RMX_E_INVALID, "%s: type %u is unknown; types are 0..%u", __func__, type,
                                 RMX_TYPE_COUNT - 1);
        if (residence != RMX_SCALAR_MEMORY && residence != RMX_SCALAR_IMMEDIATE)
                return error_set(RMX_E_INVALID,
                                 "%s: residence %u is neither RMX_SCALAR_MEMORY (%u) nor RMX_SCALAR_IMMEDIATE (%u)",
                                 __func__, residence, RMX_SCALAR_MEMORY, RMX_SCALAR_IMMEDIATE);
        redop = calloc(1, sizeof(*redop));
        if (!redop)
                return error_set(RMX_E_NO_MEMORY, "%s: out of memory", __func__);
        redop->type = type;
        if (residence == RMX_SCALAR_MEMORY)
                redop->factor.memory = scalar;
        else
                redop->factor.bits = redop_encode(scalar, type);
        pthread_mutex_lock(&comm->redop_mutex);
        *ret_redop = redop->handle = handle_new(comm);
        DL_APPEND(comm->redops, redop);
        pthread_mutex_unlock(&comm->redop_mutex);
        return RMX_OK;
}

int rmx_redop_destroy(struct rmx_comm *comm, uint32_t handle) {
        struct redop *redop;
        int r;

        r = comm_check(comm, __func__);
        if (r)
                return r;
        pthread_mutex_lock(&comm->redop_mutex);
        redop = redop_search(comm, handle);
        if (redop)
                DL_DELETE(comm->redops, redop);
        pthread_mutex_unlock(&comm->redop_mutex);
        if (!redop)
                return error_set(RMX_E_INVALID,
                                 "%s: redop %u is none that rmx_redop_create_premul_sum gave for this communicator",
                                 __func__, handle);
        free(redop);
        return RMX_OK;
}
