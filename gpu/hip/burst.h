/* SPDX-License-Identifier: MIT */
#pragma once
/* Launches bursts (gpu/device/burst.h) when workers ask for them. See burst.c. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/hip/runtime.h"

struct plane;
struct table_report;

#define BURST_STREAMS 3u /* with the resident kernel's four of this priority, for which AMD has as many queues */

struct burst {
        hipStream_t streams[BURST_STREAMS];
        void *queue;                 /* struct burst_queue, memory of the GPU */
        struct table_report *report; /* of which it writes `begun` */
        uint32_t most;               /* slices */
        uint32_t next;               /* number */
        _Atomic int failed;          /* of a launch: the runtime's error; 0: none */
        _Atomic uint64_t launched;
};

/* Control thread only. Before the first resident kernel: memory, streams, module. `most_blocks` of one burst, 0: as
 * many as are good. Those of so many bytes that can be `copies` are; 0: none is. */
int burst_open(struct burst *burst, struct plane *plane, uint32_t most_blocks, uint64_t copies, char *error);
/* Launches the next one, if a worker has asked for it. One thread only, whose device it is; without the plane's lock.
 * True: there was one, or one that has been taken back. *ret_kib: of the request, if it was launched. */
bool burst_look(struct burst *burst, uint32_t *ret_kib);
/* No resident kernel may run, and nobody look. */
void burst_close(struct burst *burst, bool lost);
/* -EIO: a burst could not be launched, which somebody waits for for ever. */
int burst_check(const struct burst *burst, char *error);
