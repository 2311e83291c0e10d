/* SPDX-License-Identifier: MIT */
#pragma once
/* The kernels' tables on the device, with their shadow here, and what workers report. Control thread only. */
#include "gpu/device/tables.h"
#include "gpu/hip/runtime.h"
#include "gpu/hip/shadow.h"
#include "gpu/plane.h"

struct park;

struct tables {
        struct shadow shadow;
        struct table *device;
        struct table_report *report; /* written by the device */
        struct table_report *report_device;
        hipStream_t stream;
        char text[PLANE_TEXT]; /* why a put or settle failed */
};

/* stream: for all copies, not the kernel's. */
int tables_open(struct tables *tables, hipStream_t stream, char *error);
/* No kernel may be resident. */
void tables_close(struct tables *tables);

/* Makes what was changed in the shadow known, and waits until no worker uses what it has replaced. */
int tables_commit(struct tables *tables, struct park *park, char *error);
/* Where workers post bursts, and from how many bytes on as copies; before the first kernel. */
int tables_bursts(struct tables *tables, const void *queue, uint64_t copies, char *error);
int tables_stop(struct tables *tables, uint32_t stop, char *error);
/* Before a launch: no worker has acknowledged anything. */
void tables_forget(struct tables *tables);
/* Before an entry is used for another rank, which has finished everything up to `done`. */
void tables_forget_rank(struct tables *tables, uint32_t index, uint32_t done);
