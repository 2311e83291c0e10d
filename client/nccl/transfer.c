/* SPDX-License-Identifier: MIT */
/*
 * NCCL knows no limit to the sends and receives of a group; on the host backend librailmux has one for each
 * communicator. So those of a group are kept here until its end. If there are few, they go into librailmux's group,
 * behind the collectives. If there are many, each communicator's are cut into several requests (transfer_many.c).
 *
 * On GPUs librailmux does all this by itself.
 */
#include "client/nccl/transfer.h"

#include <stdlib.h>

#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/transfer_many.h"
#include "railmux/railmux.h"

#define FEW     512u /* what a group of librailmux takes for one communicator */
#define LOOK_MS 1u

void transfers_free(struct transfers *transfers) {
        free(transfers->list);
        *transfers = (struct transfers){0};
}

ncclResult_t transfers_add(struct transfers *transfers, const char *what, const struct transfer *transfer) {
        size_t size = rmx_type_size(transfer->type), bytes;
        struct transfer *list;

        if (!size)
                return error_raise(ncclInvalidArgument, "%s: type %u is unknown", what, transfer->type);
        if (transfer->peer >= (uint32_t)transfer->comm->n_ranks)
                return error_raise(ncclInvalidArgument, "%s: peer %d is out of range; the communicator has ranks 0..%d",
                                   what, (int)transfer->peer, transfer->comm->n_ranks - 1);
        if (__builtin_mul_overflow(transfer->count, size, &bytes) || bytes > PTRDIFF_MAX)
                return error_raise(ncclInvalidArgument, "%s: count %zu is too large", what, transfer->count);
        if (bytes && !transfer->address)
                return error_raise(ncclInvalidArgument, "%s: the buffer is NULL with count %zu", what, transfer->count);
        if (transfers->n == transfers->capacity) {
                uint32_t capacity = transfers->capacity ? 2 * transfers->capacity : 16;

                list = reallocarray(transfers->list, capacity, sizeof(*list));
                if (!list)
                        return error_raise(ncclSystemError, "%s: out of memory", what);
                transfers->list = list;
                transfers->capacity = capacity;
        }
        transfers->list[transfers->n] = *transfer;
        transfers->list[transfers->n].index = transfers->n;
        transfers->n++;
        return ncclSuccess;
}

/* ---- few --------------------------------------------------------------------------------------------------------- */
int transfer_record(const struct transfer *t) {
        return t->sends ? rmx_send(t->comm->rmx, t->address, t->count, t->type, t->peer, NULL)
                        : rmx_recv(t->comm->rmx, t->address, t->count, t->type, t->peer, NULL);
}

int transfers_record(const struct transfers *transfers, bool grouped) {
        int r = grouped ? RMX_OK : rmx_group_start();

        for (uint32_t i = 0; i < transfers->n && !r; i++)
                r = transfer_record(&transfers->list[i]);
        return r;
}

static int run_few(const struct transfers *transfers, bool grouped) {
        int r = transfers_record(transfers, grouped), end = rmx_group_end();

        return r ? r : end;
}

/* ---- few or many ------------------------------------------------------------------------------------------------- */
/* Of the same communicator, in the order of the calls. */
static int index_compare(const void *x, const void *y) {
        const struct transfer *a = x, *b = y;
        int r = a->comm == b->comm ? 0 : (uintptr_t)a->comm < (uintptr_t)b->comm ? -1 : 1;

        if (!r)
                r = a->index < b->index ? -1 : 1; /* no two have the same */
        return r;
}

uint32_t transfers_next_comm(const struct transfers *transfers, uint32_t first) {
        uint32_t end = first;

        while (end < transfers->n && transfers->list[end].comm == transfers->list[first].comm)
                end++;
        return end;
}

/* Sorts by communicator and finds out how many one of them has. */
static uint32_t most_of_one(struct transfers *transfers) {
        uint32_t most = 0, end;

        if (transfers->n)
                qsort(transfers->list, transfers->n, sizeof(*transfers->list), index_compare);
        for (uint32_t first = 0; first < transfers->n; first = end) {
                end = transfers_next_comm(transfers, first);
                if (end - first > most)
                        most = end - first;
        }
        return most;
}

static ncclResult_t run_many(struct transfers *transfers, const char *what, bool grouped, int *ret_code) {
        struct transfer_run *run;
        ncclResult_t result;

        *ret_code = RMX_OK;
        result = transfer_run_new(transfers, what, grouped, &run);
        if (result)
                return result;
        while (!transfer_run_step(run, TRANSFER_START, LOOK_MS, ret_code))
                ;
        transfer_run_free(run);
        return error_adopt(what, *ret_code);
}

bool transfers_are_few(struct transfers *transfers) {
        /* Sorting by communicator keeps the order within each, and there is none between them. */
        return most_of_one(transfers) <= FEW;
}

ncclResult_t transfers_run(struct transfers *transfers, const char *what, bool grouped, int *ret_code) {
        if (!transfers_are_few(transfers))
                return run_many(transfers, what, grouped, ret_code);
        *ret_code = run_few(transfers, grouped);
        return error_adopt(what, *ret_code);
}
