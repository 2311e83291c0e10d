/* SPDX-License-Identifier: MIT */
/*
 * Acknowledgements
 *
 * tables_commit raises the version and waits until every worker has written that version into its word of host memory,
 * or the kernel has ended. One case is special: a worker whose block the GPU has not begun yet, because others occupy
 * it. It has touched nothing, and will read the tables as they are then; but it may stay in that state for as long as
 * somebody else's kernel runs. Its word is still 0 (launches clear them, no version is 0). A worker that began just
 * before the new version was there, with the old one, writes its word in its first microseconds; so a word that is
 * still 0 BEGIN_NS after the version arrived belongs to a worker that will read the new one. Tasks that it goes on
 * with, of the kernel before, it compares with that first (gpu/device/update.h): another rank may have their rank's
 * place by then, or other memory their buffer's number.
 *
 * Nor does one acknowledge that has been told to end, and has; but then all have begun (park.c), so all end soon.
 */
#include "gpu/hip/table.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "gpu/device/pairs.h"
#include "gpu/hip/error.h"
#include "gpu/hip/park.h"
#include "util/clock.h"

#define BEGIN_NS    UINT64_C(20000000)
#define ENDED_EVERY 64u /* looks between two questions whether the kernel has ended */

static int tables_put(void *context, size_t offset, size_t bytes) {
        struct tables *tables = context;

        return runtime_check(hipMemcpyAsync((char *)tables->device + offset,
                                            (const char *)tables->shadow.table + offset, bytes, hipMemcpyHostToDevice,
                                            tables->stream),
                             "writing tables", tables->text);
}

static int tables_settle(void *context) {
        struct tables *tables = context;

        return runtime_wait(tables->stream, "writing tables", tables->text);
}

static int tables_fault(struct tables *tables, int r, char *error) {
        return r ? error_set(r, error, "%s", tables->text) : 0;
}

int tables_open(struct tables *tables, hipStream_t stream, char *error) {
        void *table = NULL, *report = NULL, *device = NULL, *report_device = NULL;
        int r;

        *tables = (struct tables){.stream = stream};
        r = runtime_check(hipHostMalloc(&table, sizeof(struct table), hipHostMallocPortable), "allocating tables",
                          error);
        if (!r) {
                shadow_init(&tables->shadow, table);
                tables->shadow.put = tables_put;
                tables->shadow.settle = tables_settle;
                tables->shadow.context = tables;
                r = runtime_check(hipHostMalloc(&report, sizeof(struct table_report) + sizeof(struct table_pairs),
                                                hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent),
                                  "allocating a report", error);
        }
        if (!r) {
                memset(report, 0, sizeof(struct table_report) + sizeof(struct table_pairs));
                tables->report = report;
                r = runtime_check(hipHostGetDevicePointer(&report_device, report, 0), "mapping a report", error);
        }
        if (!r)
                r = runtime_alloc_shared(sizeof(struct table), &device, "allocating tables", error);
        if (!r) {
                tables->report_device = report_device;
                tables->device = device;
                r = tables_put(tables, 0, sizeof(struct table));
                if (!r)
                        r = tables_settle(tables);
                (void)tables_fault(tables, r, error);
        }
        if (r)
                tables_close(tables);
        return r;
}

void tables_close(struct tables *tables) {
        if (tables->device)
                (void)hipFree(tables->device);
        if (tables->report)
                (void)hipHostFree(tables->report);
        if (tables->shadow.table)
                (void)hipHostFree(tables->shadow.table);
        *tables = (struct tables){0};
}

static bool all_acknowledged(const struct tables *tables, uint32_t n_workers, uint32_t version, bool begun) {
        for (uint32_t i = 0; i < n_workers; i++) {
                /* Partner: the worker's store after its fence. What it did before is done. */
                uint32_t word = __atomic_load_n(&tables->report->acknowledged[i], __ATOMIC_ACQUIRE);

                if (word != version && (word || !begun))
                        return false;
        }
        return true;
}

int tables_commit(struct tables *tables, struct park *park, char *error) {
        uint64_t start, now;
        bool ended;
        int r = tables_fault(tables, shadow_publish(&tables->shadow), error);

        if (!r)
                park_let_go(park); /* it may have begun, with the tables as they were */
        ended = !park->running;
        if (!r && park->asked == PARK_WHEN_SERVED) /* some workers have ended, and others may wait for them */
                r = park_ask(park, tables, PARK_AT_ONCE, error);
        start = now = clock_now_ns();
        for (uint32_t k = 0; !r && !ended; k++) {
                if (all_acknowledged(tables, park->n_workers, tables->shadow.table->version, now - start > BEGIN_NS))
                        return 0;
                now = clock_now_ns();
                if (now - start > RUNTIME_LOST_MS * UINT64_C(1000000))
                        return error_set(-ETIMEDOUT, error, "the resident kernel does not look at its tables");
                if (k % ENDED_EVERY == ENDED_EVERY - 1)
                        r = park_ended(park, &ended, error);
                if (k >= ENDED_EVERY)
                        runtime_pause();
        }
        return r;
}

int tables_bursts(struct tables *tables, const void *queue, uint64_t copies, char *error) {
        int r;

        tables->shadow.table->bursts = (uint64_t)(uintptr_t)queue;
        tables->shadow.table->copies = copies;
        r = tables_put(tables, offsetof(struct table, bursts), 2 * sizeof(uint64_t));
        if (!r)
                r = tables_settle(tables);
        return tables_fault(tables, r, error);
}

int tables_stop(struct tables *tables, uint32_t stop, char *error) {
        return tables_fault(tables, shadow_stop(&tables->shadow, stop), error);
}

void tables_forget(struct tables *tables) {
        for (uint32_t i = 0; i < TABLE_WORKERS_MAX; i++) { /* nobody else writes: no kernel runs */
                __atomic_store_n(&tables->report->acknowledged[i], 0, __ATOMIC_RELAXED);
                __atomic_store_n(&tables->report->kept[i], 0, __ATOMIC_RELAXED);
        }
}

void tables_forget_rank(struct tables *tables, uint32_t index, uint32_t done) {
        struct table_pairs *pairs = table_pairs(tables->report);

        memset(&tables->report->rank[index], 0, sizeof(tables->report->rank[index]));
        memset(pairs->pair[index], 0, sizeof(pairs->pair[index]));
        tables->report->rank[index].rung = tables->report->rank[index].finished = done;
}
