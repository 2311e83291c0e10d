/* SPDX-License-Identifier: MIT */
/*
 * The calls of a GPU runtime that memory.c needs, with the host's memory in place of a GPU's: so that this way of the
 * suite is tried where there is no GPU. Memory of another device than the thread's, and streams that are in use too
 * long, do not exist here. With $FAKE_RUNTIME_BROKEN no device can be used.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 8
#define CALL(name, ...)                                                                                                \
        __attribute__((visibility("default"))) int cuda##name(__VA_ARGS__);                                            \
        __attribute__((visibility("default"))) int cuda##name(__VA_ARGS__)

CALL(GetDeviceCount, int *ret_n) {
        *ret_n = DEVICES;
        return 0;
}

CALL(SetDevice, int device) {
        return device >= 0 && device < DEVICES && !getenv("FAKE_RUNTIME_BROKEN") ? 0 : 101;
}

CALL(Malloc, void **ret_memory, size_t bytes) {
        *ret_memory = malloc(bytes);
        return *ret_memory ? 0 : 2;
}

CALL(Free, void *memory) {
        free(memory);
        return 0;
}

CALL(Memcpy, void *to, const void *from, size_t bytes, int kind) {
        memcpy(to, from, bytes);
        return kind == 1 || kind == 2 ? 0 : 21;
}

CALL(StreamCreateWithFlags, void **ret_stream, unsigned int flags) {
        *ret_stream = calloc(1, 1);
        return *ret_stream && flags == 1 ? 0 : 1;
}

CALL(StreamDestroy, void *stream) {
        free(stream);
        return 0;
}

/* The first question is always too early. */
CALL(StreamQuery, void *stream) {
        char *asked = stream;

        *asked ^= 1;
        return *asked ? 600 : 0;
}

CALL(StreamSynchronize, void *stream) {
        (void)stream;
        return 0;
}
