/* SPDX-License-Identifier: MIT */
#include "proto/control.pb-c.h"
#include "tests/fuzz/fuzz_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        fuzz_frame(data, size, &railmux__control__request__descriptor);
        fuzz_frame(data, size, &railmux__control__reply__descriptor);
        return 0;
}
