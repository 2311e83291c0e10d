/* SPDX-License-Identifier: MIT */
#pragma once
/* A rig over fake adapters: one for each rail of each node, under the names that rig_place(RIG_FAKE) gives them. */
#include "tests/fabric/fake_verbs.h"

/* What fabrics that are made from now on use. NULL: as fake_begin(). */
void fake_rig_begin(const struct fake_options *options);
/* After the fabrics. As fake_end(). */
void fake_rig_end(void);
struct fake_device *fake_rig_device(uint32_t node, uint32_t rail);
