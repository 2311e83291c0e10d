/* SPDX-License-Identifier: MIT */
/* Which GPUs this daemon serves, and the executors that should exist for them. */
#include "daemon/executor_link.h"
#include "daemon/fdstore.h"
#include "daemon/gpu_probe.h"
#include "daemon/manager.h"
#include "daemon/notify.h"
#include "daemon/state.h"
#include "gpu/plane.h"
#include "util/log.h"
#include "util/memfd.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sessions of emulated GPUs have nothing that a real one could use, and the other way round. */
bool manager_state_fits(const struct manager *manager) {
        const char *backend = manager->config->backend;

        return strcmp(backend, state_devices(manager->state) ? "host" : "hip") != 0;
}

/* A successor goes by what its predecessor found, since that is what sessions know. Without sessions it looks again, as
 * the first look may have come before the driver. That takes seconds where no file says what there is, which is not
 * worth it for GPUs that are served already. */
static bool manager_looks(const struct manager *manager) {
        const char *file = getenv("RAILMUX_PROBE");

        if (manager->restarts == 0)
                return true;
        return !state_has(manager->state, STATE_SESSION) && (!state_devices(manager->state) || (file && *file));
}

/* What is said of GPUs that were there, and are not seen any more, is left to their executors. */
static int manager_keep_devices(struct manager *manager, const char *text) {
        struct config *config = manager->config;

        config->devices = state_devices(manager->state);
        if (config->devices && text[0])
                log_warning("GPUs are not seen any more, and still served: %s", text);
        if (!config->devices)
                snprintf(manager->no_gpus, sizeof(manager->no_gpus), "%s",
                         "the first start found none; one without sessions looks again");
        return 0;
}

/* How many devices there are; 0: GPUs are emulated. */
static int manager_find_devices(struct manager *manager, struct gpu_probe *probe) {
        struct config *config = manager->config;
        char text[GPU_PROBE_TEXT] = "";
        int r;

        config->devices = 0;
        if (strcmp(config->backend, "host") == 0)
                return 0;
        if (!manager_looks(manager))
                return manager_keep_devices(manager, "");
        r = gpu_probe_run(probe, text);
        if (r < 0)
                return r;
        if (r && state_devices(manager->state))
                return manager_keep_devices(manager, text);
        if (r && strcmp(config->backend, "hip") == 0) {
                log_error("no GPU can be served: %s", text);
                return -ENODEV;
        }
        if (r == GPU_PROBE_E_NONE)
                log_notice("no GPU runtime: %s; emulating GPUs", text);
        else if (r)
                log_warning("the GPUs of this node cannot be served: %s; emulating GPUs", text);
        if (r) {
                memcpy(manager->no_gpus, text, sizeof(manager->no_gpus));
                return 0;
        }
        config->devices = probe->n_gpus;
        state_set_devices(manager->state, config->devices);
        log_notice("%s: %u GPUs, the first is %s (%s)", probe->runtime, probe->n_gpus, probe->gpu[0].name,
                   probe->gpu[0].pci);
        return 0;
}

/* The latch of a GPU is as old as its executor may be, so it is kept with what a successor gets. */
static int manager_new_latch(struct manager *manager, struct executor_link *link) {
        char name[16];
        int r;

        snprintf(name, sizeof(name), "w%u", link->first_gpu);
        link->latch_fd = fdstore_take(manager->fdstore, name);
        if (link->latch_fd >= 0)
                return 0;
        r = memfd_new("railmux-latch", plane_latch_bytes(), &link->latch_fd);
        if (r < 0)
                return r;
        r = notify_put(manager->notify, name, link->latch_fd);
        if (r < 0)
                log_warning("fd store: %s is not kept over a restart: %s", name, strerror(-r));
        return 0;
}

/* The executors that should exist: one for all emulated GPUs, or one for each GPU, named by its number. */
int manager_new_links(struct manager *manager) {
        const struct config *config = manager->config;
        struct gpu_probe probe = {0};
        struct executor_link *link;
        char name[16];
        int r;

        r = manager_find_devices(manager, &probe);
        if (r < 0)
                return r;
        manager->on_device = config->devices > 0;
        if (!manager->on_device) {
                manager->n_gpus = config->gpus;
                return executor_link_new(manager, "host", 0, manager->n_gpus, &link);
        }
        manager->n_gpus = config->hip_gpus ? config->hip_gpus : config->devices;
        for (uint32_t gpu = 0; gpu < manager->n_gpus && !r; gpu++) {
                snprintf(name, sizeof(name), "%u", gpu);
                r = executor_link_new(manager, name, gpu, 1, &link);
                if (!r)
                        memcpy(link->pci, probe.gpu[gpu % config->devices].pci, sizeof(link->pci));
                if (!r)
                        r = manager_new_latch(manager, link);
        }
        return r;
}

const char *manager_backend(const struct manager *manager) {
        return manager->on_device ? "hip" : "host";
}

const char *manager_gpu_pci(struct manager *manager, uint32_t gpu) {
        const struct executor_link *link = manager_link_of_gpu(manager, gpu);

        return manager->on_device && link ? link->pci : "";
}
