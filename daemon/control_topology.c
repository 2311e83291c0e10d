/* SPDX-License-Identifier: MIT */
/*
 * Looking at a machine takes milliseconds, on large ones a tenth of a second, in which the loop does nothing else. So
 * it is done when somebody asks for the first time, and again after the configuration was read anew.
 *
 * GPUs have the numbers that railmuxd gives them: it knows the PCI addresses from the executors. Emulated GPUs take the
 * place of real ones.
 */
#include "daemon/control_topology.h"

#include "daemon/manager.h"
#include "topology/discover.h"
#include "topology/topology.h"
#include "topology/xml.h"
#include "util/cleanup.h"
#include "util/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int control_topology_look(struct control_topology *topology, struct manager *manager) {
        _cleanup_(topology_freep) struct topology *graph = NULL;
        const char *pci[TOPOLOGY_GPUS_MAX];
        struct discover_options options = {.gpus = pci};
        int r;

        if (topology->text)
                return 0;
        if (!manager->on_device)
                options.emulated = manager->n_gpus;
        for (uint32_t gpu = 0; gpu < manager->n_gpus && gpu < TOPOLOGY_GPUS_MAX; gpu++)
                pci[options.n_gpus++] = manager_gpu_pci(manager, gpu);
        r = topology_discover(&options, &graph);
        if (!r)
                r = topology_xml_write(graph, &topology->text, &topology->length);
        if (r)
                log_error("cannot look at the topology of this machine: %s",
                          r > 0 ? "it has more parts than a graph can have" : strerror(-r));
        return r > 0 ? -E2BIG : r;
}

void control_topology_deinit(struct control_topology *topology) {
        free(topology->text);
        *topology = (struct control_topology){0};
}
