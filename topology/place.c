/* SPDX-License-Identifier: MIT */
/*
 * hwloc takes several milliseconds to look at a host, which an executor that takes over from a dead one does not have.
 * A host with one NUMA node, which a file of the kernel says at once, is not asked any further.
 */
#include "topology/place.h"

#include <errno.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/hwloc_private.h"

#define NODES_ONLINE "/sys/devices/system/node/online"

struct topology_place {
        hwloc_topology_t hwloc; /* NULL: one node, nothing to place */
        uint32_t n_numa;
};

/* One number in the kernel's list, and nobody wants hwloc to see another host. */
static bool one_node_only(void) {
        char text[32] = "";
        FILE *file;

        if (getenv("HWLOC_SYNTHETIC") || getenv("HWLOC_XMLFILE"))
                return false;
        file = fopen(NODES_ONLINE, "re");
        if (!file)
                return false;
        if (!fgets(text, sizeof(text), file))
                text[0] = '\0';
        fclose(file);
        return text[0] && strspn(text, "0123456789") == strcspn(text, "\n");
}

int topology_place_new(struct topology_place **ret_place) {
        struct topology_place *place = calloc(1, sizeof(*place));
        int n;

        if (!place)
                return -ENOMEM;
        if (one_node_only()) {
                place->n_numa = 1;
                *ret_place = place;
                return 0;
        }
        errno = 0;
        if (hwloc_topology_init(&place->hwloc) < 0) {
                free(place);
                return hwloc_failed();
        }
        if (hwloc_topology_load(place->hwloc) < 0) {
                topology_place_free(place);
                return hwloc_failed();
        }
        n = hwloc_get_nbobjs_by_type(place->hwloc, HWLOC_OBJ_NUMANODE);
        place->n_numa = n > 0 ? (uint32_t)n : 1;
        *ret_place = place;
        return 0;
}

struct topology_place *topology_place_free(struct topology_place *place) {
        if (place && place->hwloc)
                hwloc_topology_destroy(place->hwloc);
        free(place);
        return NULL;
}

uint32_t topology_place_count(const struct topology_place *place) {
        return place ? place->n_numa : 1;
}

uint32_t topology_place_of_gpu(const struct topology_place *place, uint32_t gpu) {
        return gpu % topology_place_count(place);
}

static hwloc_obj_t place_node(const struct topology_place *place, uint32_t numa) {
        return numa < place->n_numa && place->hwloc ? hwloc_get_obj_by_type(place->hwloc, HWLOC_OBJ_NUMANODE, numa)
                                                    : NULL;
}

int topology_place_thread(const struct topology_place *place, uint32_t numa) {
        hwloc_obj_t node = place_node(place, numa);

        if (numa < place->n_numa && !place->hwloc)
                return 0;
        if (!node)
                return -ERANGE;
        errno = 0;
        return hwloc_set_cpubind(place->hwloc, node->cpuset, HWLOC_CPUBIND_THREAD) < 0 ? hwloc_failed() : 0;
}
