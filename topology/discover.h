/* SPDX-License-Identifier: MIT */
#pragma once
/* The machine that this process runs on, as a graph. */
#include <stdint.h>

struct topology;

struct discover_options {
        const char *root;        /* of sysfs; NULL: "" */
        uint32_t emulated;       /* GPUs; real ones are left out then */
        const char *const *gpus; /* PCI addresses in the order that GPUs are to be numbered in; others follow */
        uint32_t n_gpus;
};

/* Takes milliseconds, and touches no device. TOPOLOGY_E_INVALID: the machine is too large; -errno. */
int topology_discover(const struct discover_options *options, struct topology **ret_topology);
/* Numbers GPUs anew: those with the addresses first, in their order, then the others as they were. Runtimes write
 * addresses with large letters, the kernel with small ones. */
void topology_number_gpus(struct topology *topology, const char *const *pci, uint32_t n);
