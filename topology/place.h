/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Where threads and memory of this process lie on the host. Emulated GPUs are dealt out to the NUMA nodes as in
 * topology_host(). Everything here is a hint: a refusal (a container, a system call filter) costs speed, nothing else.
 */
#include <stddef.h>
#include <stdint.h>

struct topology_place;

/* 0 or -errno. Thread-safe after that. */
int topology_place_new(struct topology_place **ret_place);
/* NULL is fine; returns NULL. */
struct topology_place *topology_place_free(struct topology_place *place);
/* NUMA nodes that this process may use, at least 1 (also for NULL). */
uint32_t topology_place_count(const struct topology_place *place);
/* Which of them, 0 .. count - 1, an emulated GPU belongs to. */
uint32_t topology_place_of_gpu(const struct topology_place *place, uint32_t gpu);
/* Keeps the calling thread on the CPUs of a node. 0, -ERANGE or -errno. */
int topology_place_thread(const struct topology_place *place, uint32_t numa);
