/* SPDX-License-Identifier: MIT */
#include "daemon/device_memory.h"

#include <stdio.h>
#include <string.h>

int device_memory_take(uint32_t kind, const void *handle, size_t n_handle, uint64_t allocation_bytes, uint64_t offset,
                       uint64_t bytes, struct device_memory *ret_memory, char *text, size_t text_size) {
        uint64_t end;

        *ret_memory = (struct device_memory){0};
        if (kind == 0)
                return 0;
        if ((kind != DEVICE_MEMORY_IPC && kind != DEVICE_MEMORY_CHUNKS) || n_handle != DEVICE_MEMORY_HANDLE_BYTES)
                snprintf(text, text_size, "memory of kind %u with a handle of %zu bytes; allowed: kinds %u, %u with %u",
                         kind, n_handle, DEVICE_MEMORY_IPC, DEVICE_MEMORY_CHUNKS, DEVICE_MEMORY_HANDLE_BYTES);
        else if (bytes == 0 || __builtin_add_overflow(offset, bytes, &end))
                snprintf(text, text_size, "memory without bytes, or beyond all addresses");
        else if (allocation_bytes && end > allocation_bytes)
                snprintf(text, text_size, "memory beyond the end of its allocation");
        else if (offset % DEVICE_MEMORY_ALIGNMENT)
                snprintf(text, text_size, "memory at an offset that is no multiple of %u", DEVICE_MEMORY_ALIGNMENT);
        else if (kind == DEVICE_MEMORY_CHUNKS && (offset || bytes != allocation_bytes))
                snprintf(text, text_size, "chunks are meant as a whole");
        else {
                ret_memory->kind = kind;
                ret_memory->n_handle = (uint32_t)n_handle;
                memcpy(ret_memory->handle, handle, n_handle);
                ret_memory->allocation_bytes = allocation_bytes;
                ret_memory->offset = offset;
                ret_memory->bytes = bytes;
                return 0;
        }
        return DEVICE_MEMORY_E_INVALID;
}

uint64_t device_memory_identity(const struct device_memory *memory) {
        const uint8_t *bytes = (const uint8_t *)memory;
        uint64_t hash = UINT64_C(14695981039346656037);

        for (size_t i = 0; i < sizeof(*memory); i++) /* FNV-1a */
                hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
        return hash;
}

bool device_memory_equal(const struct device_memory *a, const struct device_memory *b) {
        return memcmp(a, b, sizeof(*a)) == 0;
}
