/* SPDX-License-Identifier: MIT */
/* A GPU runtime that comes late, and that only who loads it sees. One device, which is the second of the driver's. */
#include <stdio.h>

#define CALL(name, ...)                                                                                                \
        __attribute__((visibility("default"))) int cuda##name(__VA_ARGS__);                                            \
        __attribute__((visibility("default"))) int cuda##name(__VA_ARGS__)

CALL(GetDeviceCount, int *ret_n) {
        *ret_n = 1;
        return 0;
}

CALL(GetDevice, int *ret_device) {
        *ret_device = 0;
        return 0;
}

CALL(SetDevice, int device) {
        return device == 0 ? 0 : 101;
}

CALL(DeviceGetPCIBusId, char *pci, int size, int device) {
        snprintf(pci, (size_t)size, "0000:%02x:00.0", 0xa1 + device);
        return 0;
}
