/* SPDX-License-Identifier: MIT */
/*
 * Too many streams.
 *
 * A runtime puts the streams of a process on a few hardware queues. What is behind a kernel that waits, on the same
 * queue, does not run, also if it belongs to another stream. So with several communicators on several streams a bell
 * may stand behind one that waits for a rank whose own bell stands behind..., and all wait for ever. One communicator
 * alone cannot do that: its requests are in one order on all ranks.
 *
 * The library sees neither the queues nor the program's other streams, which take places on them too. It counts the
 * streams on which it was asked to wait, and warns once for each GPU, on stderr, when they are more than half of the
 * queues that the environment grants. Half, since six streams on eight queues did stand still. Of a communicator the
 * last DEVICE_STREAMS streams count, whether they exist still or not; of one that is destroyed none.
 *
 * Queues belong to the process, so this is one list for the process, whatever its sessions.
 */
#include "client/device_streams.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/session.h"

#define WARN_GPUS 64u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_streams *all; /* utlist; those with a stream */
static uint64_t warned;            /* a bit for each device of the runtime */

static bool has(const struct device_streams *streams, const void *stream) {
        for (uint32_t i = 0; i < streams->n; i++)
                if (streams->stream[i] == stream)
                        return true;
        return false;
}

/* Distinct streams of all communicators on this device, and how many communicators these are. */
static uint32_t count(int32_t number, uint32_t *ret_comms) {
        const struct device_streams *streams, *other;
        uint32_t n = 0;

        *ret_comms = 0;
        DL_FOREACH(all, streams) {
                if (streams->number != number)
                        continue;
                ++*ret_comms;
                for (uint32_t i = 0; i < streams->n; i++) {
                        for (other = all; other != streams; other = other->next)
                                if (other->number == number && has(other, streams->stream[i]))
                                        break;
                        n += other == streams;
                }
        }
        return n;
}

/* What the environment grants. Runtimes ignore what they cannot make sense of. */
static uint32_t queues(const struct client_gpu_queues *of, const char **ret_value) {
        const char *value = getenv(of->variable);
        char *end = NULL;
        unsigned long n = value ? strtoul(value, &end, 10) : 0;

        *ret_value = value && *value ? value : NULL;
        if (n == 0 || *end)
                return of->usual;
        return n < of->max ? (uint32_t)n : of->max;
}

/* With the lock. */
static void check(const struct device *device) {
        const struct client_gpu_queues *of = &device->ops->queues;
        uint64_t bit = (uint32_t)device->number < WARN_GPUS ? UINT64_C(1) << device->number : 0;
        uint32_t n_comms, n_streams, n_queues;
        const char *value;

        if (!of->variable || !bit || warned & bit)
                return;
        n_streams = count(device->number, &n_comms);
        n_queues = queues(of, &value);
        if (n_comms < 2 || n_streams <= n_queues / 2)
                return;
        warned |= bit;
        fprintf(stderr,
                "railmux: %u communicators are used on %u streams of GPU %u, and the runtime has %u hardware queues "
                "for "
                "all streams of this process (%s is %s): requests may block each other for ever. ",
                n_comms, n_streams, device->gpu, n_queues, of->variable, value ? value : "not set");
        if (n_queues < of->max)
                fprintf(stderr, "Set %s=%u before the program starts, or use fewer streams.\n", of->variable, of->max);
        else
                fprintf(stderr, "Use fewer streams.\n");
}

void device_streams_note(struct rmx_comm *comm, void *stream) {
        struct device_streams *streams = &comm->streams;

        if (has(streams, stream)) /* only written with device->mutex, too */
                return;
        pthread_mutex_lock(&lock);
        if (streams->n == 0) {
                streams->number = comm->device->number;
                DL_APPEND(all, streams);
        }
        if (streams->n < DEVICE_STREAMS)
                streams->stream[streams->n++] = stream;
        else
                streams->stream[streams->oldest++ % DEVICE_STREAMS] = stream;
        check(comm->device);
        pthread_mutex_unlock(&lock);
}

void device_streams_forget(struct rmx_comm *comm) {
        if (comm->streams.n == 0 || !session_is_ours(comm->session)) /* a child has the list, but no lock to trust */
                return;
        pthread_mutex_lock(&lock);
        DL_DELETE(all, &comm->streams);
        comm->streams.n = 0;
        pthread_mutex_unlock(&lock);
}
