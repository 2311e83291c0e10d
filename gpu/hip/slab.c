/* SPDX-License-Identifier: MIT */
#include "gpu/hip/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "gpu/device/wire.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"

#define STOP_MS 500u

struct slab {
        struct slab *prev, *next;
        struct wire *wires;
        uint64_t device; /* the same for the kernel */
        uint32_t n;
        bool used[]; /* n */
};

static int slab_make(struct plane *plane, uint32_t n, char *error) {
        struct slab *slab = calloc(1, sizeof(*slab) + n * sizeof(slab->used[0]));
        void *memory = NULL, *device = NULL;
        int r;

        if (!slab)
                return error_set(-ENOMEM, error, "out of memory");
        r = runtime_check(hipHostMalloc(&memory, n * sizeof(struct wire),
                                        hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent),
                          "allocating memory for other nodes", error);
        if (!r) {
                r = runtime_check(hipHostGetDevicePointer(&device, memory, 0), "mapping memory for other nodes", error);
                if (r)
                        (void)hipHostFree(memory);
        }
        if (r) {
                free(slab);
                return r;
        }
        slab->wires = memory;
        slab->device = (uint64_t)(uintptr_t)device;
        slab->n = n;
        DL_APPEND(plane->slabs.slabs, slab);
        plane->slabs.n_free += n;
        return 0;
}

int slabs_reserve(struct plane *plane, uint32_t n, char *error) {
        const bool running = plane->park.running;
        char text[PLANE_TEXT];
        int r, r2 = 0;

        if (n <= plane->slabs.n_free)
                return 0;
        r = park_stop(&plane->park, &plane->tables, PARK_AT_ONCE, STOP_MS, text);
        if (r)
                return error_set(plane_fault(plane, r, text), error, "%s", text);
        r = slab_make(plane, n - plane->slabs.n_free, error);
        if (running)
                r2 = park_launch(&plane->park, &plane->tables, text);
        return r2 ? error_set(plane_fault(plane, r2, text), error, "%s", text) : r;
}

struct wire *slabs_take(struct plane *plane, uint64_t *ret_device) {
        struct slab *slab;

        DL_FOREACH(plane->slabs.slabs, slab) {
                for (uint32_t i = 0; i < slab->n; i++) {
                        if (slab->used[i])
                                continue;
                        slab->used[i] = true;
                        plane->slabs.n_free--;
                        memset(&slab->wires[i], 0, sizeof(slab->wires[i]));
                        *ret_device = slab->device + i * sizeof(struct wire);
                        return &slab->wires[i];
                }
        }
        return NULL;
}

void slabs_give(struct plane *plane, struct wire *wire) {
        struct slab *slab;

        DL_FOREACH(plane->slabs.slabs, slab) {
                if (wire >= slab->wires && wire < slab->wires + slab->n) {
                        slab->used[wire - slab->wires] = false;
                        plane->slabs.n_free++;
                }
        }
}

void slabs_close(struct plane *plane, bool abandon) {
        struct slab *slab, *next;

        DL_FOREACH_SAFE(plane->slabs.slabs, slab, next) {
                DL_DELETE(plane->slabs.slabs, slab);
                if (!abandon)
                        (void)hipHostFree(slab->wires);
                free(slab);
        }
        plane->slabs = (struct slabs){0};
}
