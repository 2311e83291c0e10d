/* SPDX-License-Identifier: MIT */
/*
 * To pin memory takes time, mostly the operating system's for giving pages. So it is done for several wires at once,
 * which are used again, in pages that are there already; and those of the next piece are filled meanwhile (pages.c).
 * How much of it a tenant may cause is railmuxd's business (plane_wire_bytes); here is a limit for all of them
 * together.
 *
 * NVIDIA's driver pins memory while kernels run, and a kernel that runs finds what was pinned since (seen with CUDA 13,
 * with MPS and without). Of AMD's that is not known: there it comes at the price of a moment without a kernel, which
 * everybody on the GPU pays.
 */
#include "gpu/hip/slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "gpu/device/wire.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/pages.h"

#define LEAST 8u   /* wires that are taken at a time where the kernel is stopped, 60 MiB, and */
#define MOST  64u  /* then as many again as there are, up to these */
#define PIECE 2u   /* wires that are taken at a time where it is not, 15 MiB: who waits for pages */
#define AHEAD 4u   /* waits for few of them; so many pieces are filled ahead */
#ifndef SLAB_STOPS /* tests */
#if defined(RAILMUX_CUDA)
#define SLAB_STOPS false
#else
#define SLAB_STOPS true
#endif
#endif

struct slab {
        struct slab *prev, *next;
        struct wire *wires;
        uint64_t device; /* the same for the kernel */
        uint32_t n;
        struct {
                bool used, dirty; /* not zeroes */
        } wire[];                 /* n */
};

/* Of filled pages, which it keeps unless it fails. */
static int slab_make(struct plane *plane, void *pages, uint32_t n, char *error) {
        struct slab *slab = calloc(1, sizeof(*slab) + n * sizeof(slab->wire[0]));
        void *device = NULL;
        int r;

        if (!slab)
                return error_set(-ENOMEM, error, "out of memory");
        r = runtime_check(
                hipHostRegister(pages, n * sizeof(struct wire), hipHostRegisterPortable | hipHostRegisterMapped),
                "pinning memory for other nodes", error);
        if (!r) {
                r = runtime_check(hipHostGetDevicePointer(&device, pages, 0), "mapping memory for other nodes", error);
                if (r)
                        (void)hipHostUnregister(pages);
        } else if (r == -EINVAL) { /* what AMD's runtime says when the system does not pin more */
                r = -ENOMEM;
        }
        if (r) {
                free(slab);
                return r;
        }
        slab->wires = pages;
        slab->device = (uint64_t)(uintptr_t)device;
        slab->n = n;
        DL_APPEND(plane->slabs.slabs, slab);
        plane->slabs.n_free += n;
        plane->slabs.n += n;
        return 0;
}

/* How many to take if `more` are missing. */
static uint32_t slabs_step(const struct slabs *slabs, uint32_t more) {
        uint32_t n = !SLAB_STOPS ? PIECE : slabs->n > LEAST ? slabs->n : LEAST;

        if (n > MOST)
                n = MOST;
        if (n < more)
                n = more;
        return n < SLABS_WIRES_MAX - slabs->n ? n : SLABS_WIRES_MAX - slabs->n;
}

/* Pieces to be filled ahead: as many as will be taken. */
static uint32_t slabs_ahead(const struct slabs *slabs) {
        const uint32_t n = (SLABS_WIRES_MAX - slabs->n + PIECE - 1) / PIECE;

        return SLAB_STOPS ? 1 : n < AHEAD ? n : AHEAD;
}

/* Pages for so many. */
static int slabs_fill(struct slabs *slabs, uint32_t n, void **ret_pages, char *error) {
        slabs->pages = slabs->pages ? slabs->pages : pages_new();
        *ret_pages = slabs->pages ? pages_take(slabs->pages, n * sizeof(struct wire)) : NULL;
        return *ret_pages ? 0 : error_set(-ENOMEM, error, "out of memory for other nodes");
}

/* One more piece, of filled pages, and the next one is asked for. No kernel is resident, if it has to be stopped. */
static int slabs_grow(struct plane *plane, void *pages, uint32_t n, char *error) {
        struct slabs *slabs = &plane->slabs;
        int r;

        r = slab_make(plane, pages, n, error);
        if (r) {
                pages_give(pages, n * sizeof(struct wire));
                return r;
        }
        pages_prepare(slabs->pages, slabs_step(slabs, 0) * sizeof(struct wire), slabs_ahead(slabs));
        return 0;
}

/* The same with the kernel running, until so many are free. */
static int slabs_grow_running(struct plane *plane, uint32_t n, char *error) {
        struct slabs *slabs = &plane->slabs;
        int r = 0;

        while (slabs->n_free < n && !r) {
                const uint32_t piece = slabs_step(slabs, 0);
                void *pages;

                r = slabs_fill(slabs, piece, &pages, error);
                r = r ? r : slabs_grow(plane, pages, piece, error);
        }
        return r;
}

int slabs_reserve(struct plane *plane, uint32_t n, char *error) {
        struct slabs *slabs = &plane->slabs;
        void *pages;
        int r, r2;

        if (n <= slabs->n_free)
                return 0;
        if (n - slabs->n_free > SLABS_WIRES_MAX - slabs->n)
                return error_set(-ENOSPC, error,
                                 "there is no room for %u wires to other nodes: of %u that a GPU may have, %u are free",
                                 n, SLABS_WIRES_MAX, slabs->n_free + SLABS_WIRES_MAX - slabs->n);
        if (!SLAB_STOPS)
                return slabs_grow_running(plane, n, error);
        n = slabs_step(slabs, n - slabs->n_free);
        r = slabs_fill(slabs, n, &pages, error);
        if (r)
                return r;
        r = moment_begin(plane, "memory for other nodes", error);
        if (r) {
                pages_give(pages, n * sizeof(struct wire));
                if (r == -EBUSY) {
                        slabs->n_wanted = n;
                        pages_prepare(slabs->pages, n * sizeof(struct wire), 1); /* while the kernel ends */
                }
                return r;
        }
        slabs->n_wanted = 0;
        r = slabs_grow(plane, pages, n, error);
        r2 = moment_end(plane, r ? NULL : error);
        return r2 ? r2 : r;
}

void slabs_moment(struct plane *plane) {
        const uint32_t n = plane->slabs.n_wanted;
        void *pages;

        plane->slabs.n_wanted = 0;
        if (n && !slabs_fill(&plane->slabs, n, &pages, NULL))
                (void)slabs_grow(plane, pages, n, NULL); /* who asks again hears why */
}

struct wire *slabs_take(struct plane *plane, uint64_t *ret_device) {
        struct slab *slab;

        DL_FOREACH(plane->slabs.slabs, slab) {
                for (uint32_t i = 0; i < slab->n; i++) {
                        if (slab->wire[i].used)
                                continue;
                        slab->wire[i].used = true;
                        plane->slabs.n_free--;
                        if (slab->wire[i].dirty) /* it takes a millisecond */
                                memset(&slab->wires[i], 0, sizeof(slab->wires[i]));
                        slab->wire[i].dirty = true;
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
                        slab->wire[wire - slab->wires].used = false;
                        plane->slabs.n_free++;
                }
        }
}

void slabs_close(struct plane *plane, bool abandon) {
        struct slab *slab, *next;

        DL_FOREACH_SAFE(plane->slabs.slabs, slab, next) {
                DL_DELETE(plane->slabs.slabs, slab);
                if (!abandon) {
                        (void)hipHostUnregister(slab->wires);
                        pages_give(slab->wires, slab->n * sizeof(struct wire));
                }
                free(slab);
        }
        pages_free(plane->slabs.pages);
        plane->slabs = (struct slabs){0};
}
