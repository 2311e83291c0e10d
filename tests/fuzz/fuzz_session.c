/* SPDX-License-Identifier: MIT */
#include "proto/session.pb-c.h"
#include "tests/fuzz/fuzz_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        fuzz_frame(data, size, &railmux__session__message__descriptor);
        return 0;
}
