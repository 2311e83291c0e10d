/* SPDX-License-Identifier: MIT */
/* The adapters of a rig's nodes. */
#include "tests/fabric/fake_rig.h"

#include "tests/fabric/rig.h"

/* --wrap=munmap */
int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes) {
        fake_unmap(address, bytes);
        return __real_munmap(address, bytes);
}

int rig_begin(void **state) {
        (void)state;
        fake_rig_begin(NULL);
        return 0;
}

int rig_end(void **state) {
        (void)state;
        rig_verbs = NULL;
        return fake_finish(true) > 0 ? -1 : 0;
}

void fake_rig_begin(const struct fake_options *options) {
        fake_begin(options);
        for (uint32_t node = 0; node < RIG_NODES; node++) {
                for (uint32_t rail = 0; rail < RIG_RAILS; rail++) {
                        struct rig_place place = rig_place(RIG_FAKE, node, rail);

                        fake_device_add(place.hca, place.address);
                }
        }
        rig_verbs = fake_verbs();
}

void fake_rig_end(void) {
        rig_verbs = NULL;
        fake_end();
}

struct fake_device *fake_rig_device(uint32_t node, uint32_t rail) {
        return fake_device_named(rig_place(RIG_FAKE, node, rail).hca);
}
