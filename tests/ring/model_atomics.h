/* SPDX-License-Identifier: MIT */
#pragma once
/* Included before everything else (-include) when the sources of ring/ are compiled for the model checker: their atomic
 * operations become steps of the model. The sources themselves are not changed. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

uint64_t model_load(const volatile void *address, size_t size, memory_order order);
void model_store(volatile void *address, size_t size, uint64_t value, memory_order order);
uint64_t model_rmw(volatile void *address, size_t size, char operation, uint64_t operand, memory_order order);
void model_fence(memory_order order);
void model_init(volatile void *address, size_t size, uint64_t value);

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_thread_fence
#undef atomic_signal_fence
#undef atomic_init
#define atomic_load_explicit(p, o)         model_load((p), sizeof(*(p)), (o))
#define atomic_store_explicit(p, v, o)     model_store((p), sizeof(*(p)), (v), (o))
#define atomic_fetch_add_explicit(p, v, o) model_rmw((p), sizeof(*(p)), '+', (v), (o))
#define atomic_fetch_sub_explicit(p, v, o) model_rmw((p), sizeof(*(p)), '-', (v), (o))
#define atomic_fetch_or_explicit(p, v, o)  model_rmw((p), sizeof(*(p)), '|', (v), (o))
#define atomic_fetch_and_explicit(p, v, o) model_rmw((p), sizeof(*(p)), '&', (v), (o))
#define atomic_thread_fence(o)             model_fence(o)
#define atomic_signal_fence(o)             ((void)0) /* a kill keeps program order in the model */
#define atomic_init(p, v)                  model_init((p), sizeof(*(p)), (v))
