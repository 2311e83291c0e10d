/* SPDX-License-Identifier: MIT */
#include "areas.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "util/memfd.h"

void areas_init(struct areas *a, uint32_t depth) {
        assert_int_equal(ring_layout_init(&a->layout, depth, 4096), RING_OK);
        assert_int_equal(memfd_new("client", a->layout.client_bytes, &a->client_fd), 0);
        assert_int_equal(memfd_new("executor", a->layout.executor_bytes, &a->executor_fd), 0);
        assert_int_equal(memfd_reopen_readonly(a->executor_fd, &a->executor_readonly_fd), 0);
        assert_int_equal(memfd_map(a->client_fd, a->layout.client_bytes, 1, 1, &a->client_rw), 0);
        assert_int_equal(memfd_map(a->executor_readonly_fd, a->layout.executor_bytes, 0, 1, (void **)&a->executor_ro),
                         0);
        assert_int_equal(memfd_map(a->client_fd, a->layout.client_bytes, 0, 1, (void **)&a->client_ro), 0);
        assert_int_equal(memfd_map(a->executor_fd, a->layout.executor_bytes, 1, 1, &a->executor_rw), 0);
}

void areas_deinit(struct areas *a) {
        memfd_unmap(a->client_rw, a->layout.client_bytes);
        memfd_unmap((void *)a->executor_ro, a->layout.executor_bytes);
        memfd_unmap((void *)a->client_ro, a->layout.client_bytes);
        memfd_unmap(a->executor_rw, a->layout.executor_bytes);
        close(a->client_fd);
        close(a->executor_fd);
        close(a->executor_readonly_fd);
}

_Atomic uint32_t *areas_waiting(const struct areas *a, uint32_t sequence) {
        return (_Atomic uint32_t *)((char *)a->client_rw + a->layout.waiting_offset) +
               (sequence & (a->layout.depth - 1));
}

_Atomic uint64_t *areas_completion(const struct areas *a, uint32_t sequence) {
        return (_Atomic uint64_t *)((char *)a->executor_rw + a->layout.completion_offset) +
               (sequence & (a->layout.depth - 1));
}

struct ring_executor_header *areas_header(const struct areas *a) {
        return a->executor_rw;
}

void areas_await_sleeper(const struct areas *a, uint32_t sequence, int tid) {
        char path[64], line[256], state = 0;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
        /* relaxed: only a hint that the thread is on its way; what counts is the kernel's word after it */
        while (!atomic_load_explicit(areas_waiting(a, sequence), memory_order_relaxed) || state != 'S') {
                sched_yield();
                file = fopen(path, "re");
                assert_non_null(file);
                if (!fgets(line, sizeof(line), file) || sscanf(line, "%*d (%*[^)]) %c", &state) != 1)
                        state = 0;
                fclose(file);
        }
}

struct ring_request areas_request(uint32_t seed) {
        struct ring_request request;

        for (uint32_t i = 0; i < RING_WORDS; i++)
                request.word[i] = seed * 0x9e3779b9u + i * 0x01000193u;
        return request;
}
