/* SPDX-License-Identifier: MIT */
/*
 * What a start has rung is known on the device only, since a graph may repeat it; it leaves it in a cell of device
 * memory, from which the wait takes it. Cells are dealt out here. A cell is free again when its wait has ended, which a
 * word in host memory shows; one that was captured stays with its graph, which may be replayed at any time, so it is
 * never given out again.
 *
 * A request that was rung and is not waited for holds a place of the bell area. The kernels of later requests wait for
 * places, perhaps on the very stream on which the wait would come; so only so many may be started, and a few places are
 * always left.
 */
#include <stdio.h>
#include <string.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/device_aside.h"
#include "client/device_nodes.h"
#include "client/device_request.h"
#include "client/device_streams.h"
#include "client/error.h"
#include "client/session.h"
#include "ring/line.h"
#include "util/clock.h"

/* Nobody will ask for it, and nothing of it is to come. */
static void request_free(struct device *device, struct device_request *request) {
        if (request->aside)
                device_flag_give(device, request->flag);
        request->aside = false;
        request->state = request->grouped && request->captured ? DEVICE_REQUEST_SPARE : DEVICE_REQUEST_FREE;
}

/* Has the kernel that waits for this request ended? Then the cell is free, if nobody will ask. */
static bool request_ended(struct device *device, uint32_t cell, uint32_t *ret_status) {
        struct device_request *request = &device->requests[cell];

        if (!device->ops->poll(device->handle, cell, request->turn, ret_status))
                return false;
        if (request->state == DEVICE_REQUEST_ENDING)
                request->state = DEVICE_REQUEST_FREE;
        return true;
}

/*
 * A graph has its cells for ever, since nobody says when it is gone. What a captured group starts it waits for before
 * the comm does anything else on any stream of the capture, and graphs with requests of one comm are not replayed at
 * the same time (rmx_all_reduce(3)). So one group's cells will do for all captured groups of the comm; else a program
 * that captures many graphs of many layers would run out of them. Those of a comm that is gone are another one's. comm:
 * or NULL.
 */
static struct device_request *request_spare(struct device *device, const struct rmx_comm *comm) {
        for (uint32_t cell = 0; cell < CLIENT_GPU_CELLS; cell++) {
                struct device_request *request = &device->requests[cell];

                if (request->state == DEVICE_REQUEST_SPARE && request->comm == comm)
                        return request;
        }
        return NULL;
}

int device_request_take(struct device *device, struct rmx_comm *comm, const char *what, uint32_t state, bool grouped,
                        struct client_gpu_bell *bell, void *stream, struct device_handle *ret_handle) {
        struct device_request *request = NULL;
        uint32_t cell = device->next_cell, status;

        if (state == DEVICE_REQUEST_STARTED && device->n_started == CLIENT_GPU_STARTED)
                return error_set(RMX_E_BUSY,
                                 "%s: %u requests on GPU %u were started and not waited for; rmx_wait for the oldest "
                                 "ones first",
                                 what, device->n_started, device->gpu);
        if (grouped && bell->captured) {
                request = request_spare(device, comm);
                request = request ? request : request_spare(device, NULL);
        }
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS && !request; i++) {
                cell = (device->next_cell + i) % CLIENT_GPU_CELLS;
                if (device->requests[cell].state == DEVICE_REQUEST_ENDING)
                        (void)request_ended(device, cell, &status);
                if (device->requests[cell].state == DEVICE_REQUEST_FREE)
                        request = &device->requests[cell];
        }
        if (!request)
                return error_set(RMX_E_BUSY, "%s: captured graphs and outstanding requests hold all %u cells of GPU %u",
                                 what, CLIENT_GPU_CELLS, device->gpu);
        cell = (uint32_t)(request - device->requests);
        if (request->state == DEVICE_REQUEST_FREE)
                device->next_cell = (cell + 1) % CLIENT_GPU_CELLS;
        device->n_started += state == DEVICE_REQUEST_STARTED;
        bell->cell = cell;
        *request = (struct device_request){.comm = comm,
                                           .what = what,
                                           .stream = stream,
                                           .bell = *bell,
                                           .state = state,
                                           .turn = request->turn + 1 ? request->turn + 1 : 1,
                                           .captured = bell->captured,
                                           .grouped = grouped};
        *ret_handle = (struct device_handle){.device = device, .cell = cell, .turn = request->turn};
        return RMX_OK;
}

void device_request_drop(struct device *device, const struct device_handle *handle) {
        struct device_request *request = &device->requests[handle->cell];

        device->n_started -= request->state == DEVICE_REQUEST_STARTED;
        request_free(device, request);
}

bool device_request_aside(struct device *device, const struct device_handle *handle) {
        struct device_request *request = &device->requests[handle->cell];
        struct rmx_comm *comm = request->comm;

        if (!device_aside_can(comm, request->captured, request->stream) || !device_flag_take(device, &request->flag))
                return false;
        request->aside = true;
        request->capture = request->captured ? device->ops->capture(device->handle, request->stream) : 0;
        return true;
}

void device_request_number(struct device *device, const struct device_handle *handle, uint32_t number) {
        device->requests[handle->cell].number = number;
}

/* NULL: it is over. With device->mutex. */
static struct device_request *request_find(const struct device_handle *handle) {
        struct device_request *request = &handle->device->requests[handle->cell];

        return request->turn == handle->turn && request->comm &&
                               (request->state == DEVICE_REQUEST_STARTED || request->state == DEVICE_REQUEST_WHOLE ||
                                request->state == DEVICE_REQUEST_WAITING)
                       ? request
                       : NULL;
}

static int request_unknown(const char *what) {
        return error_set(RMX_E_INVALID, "%s: this request was waited for already, or its comm destroyed", what);
}

/* With device->mutex. */
static int request_launch(struct device *device, struct device_request *request, const char *what, void *stream,
                          uint32_t state) {
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        /* Else the kernel that waits would become a part of that graph, and nobody would be waited for. */
        if (!request->captured && device->ops->capturing(device->handle, stream))
                return error_set(
                        RMX_E_INVALID,
                        "%s: the request was started at once, and the stream to wait on is being captured; name "
                        "another stream, or wait before",
                        what);
        device_streams_note(request->comm, stream);
        request->bell.turn = request->captured ? 0 : request->turn;
        r = device->ops->wait(device->handle, &request->bell, stream, error);
        if (r)
                return error_set(r, "%s: %s", what, error);
        if (request->captured)
                state = request->grouped ? DEVICE_REQUEST_SPARE : DEVICE_REQUEST_KEPT;
        request->state = state;
        request->stream = stream;
        device->n_started--;
        if (!request->captured && stream == request->comm->stream) {
                request->comm->tail_cell = request->bell.cell;
                request->comm->tail_turn = request->turn;
        }
        return RMX_OK;
}

/* Has the kernel of a WHOLE request ended? With device->mutex. */
static bool request_passed(struct device *device, const struct device_request *request) {
        const struct rmx_comm *comm = request->comm;
        const uint32_t told = device->ops->comm_finished(device->handle, comm->slot);

        /* Numbers are told in their order, and go round: what counts is how far each is behind the last. */
        return comm->number - told <= comm->number - request->number;
}

/* The same of one aside: the stream is put behind its flag. */
static int request_join(struct device *device, struct device_request *request, const char *what, void *stream) {
        struct rmx_comm *comm = request->comm;
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        if (!request->captured && request_passed(device, request)) {
                request_free(device, request);
                return RMX_OK;
        }
        if (request->captured && device->ops->capture(device->handle, stream) != request->capture)
                return error_set(RMX_E_INVALID,
                                 "%s: the request was captured, and the stream is in another capture; wait in the same "
                                 "capture",
                                 what);
        device_streams_note(comm, stream);
        r = device->ops->await(device->handle, request->flag, stream, error);
        if (r)
                return error_set(r, "%s: %s", what, error);
        /* What comes there next need not be put behind the own stream once more. */
        if (request->captured)
                device_aside_joined(comm, request->bell.cell, stream);
        else
                comm->aside.last &= comm->number != request->number || comm->stream != stream;
        request_free(device, request);
        return RMX_OK;
}

/* With device->mutex: what is put on the stream from now on comes after a WHOLE request. */
static int request_order(struct device *device, struct device_request *request, const char *what, void *stream) {
        char error[CLIENT_GPU_TEXT] = "";
        int r;

        if (request->aside)
                return request_join(device, request, what, stream);
        /* Its stream may be gone if it has ended. (What is captured has a number that tells nothing.) */
        if (stream == request->stream || (!request->captured && request_passed(device, request))) {
                request->state = DEVICE_REQUEST_FREE;
                return RMX_OK;
        }
        if (device->ops->capturing(device->handle, request->stream) != request->captured)
                return error_set(RMX_E_INVALID,
                                 request->captured
                                         ? "%s: the stream that the request was captured on is not being captured any "
                                           "more; wait in the same capture"
                                         : "%s: the stream that the request was started on is being captured, so no "
                                           "other one can be put behind it; wait before, or with rmx_wait",
                                 what);
        device_streams_note(request->comm, stream);
        r = device->ops->order(device->handle, request->stream, stream, error);
        if (r)
                return error_set(r, "%s: %s", what, error);
        request->state = DEVICE_REQUEST_FREE;
        return RMX_OK;
}

bool device_request_tail(struct device *device, const struct rmx_comm *comm) {
        uint32_t status;

        /* (A cell is not given out again before its wait has ended.) */
        return comm->tail_turn && device->requests[comm->tail_cell].turn == comm->tail_turn &&
               !device->ops->poll(device->handle, comm->tail_cell, comm->tail_turn, &status);
}

bool device_request_known(const struct device_handle *handle) {
        bool known;

        pthread_mutex_lock(&handle->device->mutex);
        known = request_find(handle) != NULL;
        pthread_mutex_unlock(&handle->device->mutex);
        return known;
}

int device_request_enqueue(const struct device_handle *handle, const char *what, void *stream) {
        struct device *device = handle->device;
        bool capturing = device->ops->capturing(device->handle, stream);
        struct device_request *request;
        int r;

        pthread_mutex_lock(&device->mutex);
        request = request_find(handle);
        if (!request)
                r = request_unknown(what);
        else if (request->state == DEVICE_REQUEST_WAITING)
                r = error_set(RMX_E_INVALID, "%s: rmx_wait_for or rmx_test waits for this request already", what);
        else if (request->captured != capturing)
                r = error_set(RMX_E_INVALID,
                              "%s: the request was %s, and the stream is %s; both belong in the same capture", what,
                              request->captured ? "captured" : "started at once",
                              capturing ? "being captured" : "not being captured");
        else if (request->state == DEVICE_REQUEST_WHOLE)
                r = request_order(device, request, what, stream);
        else
                r = request_launch(device, request, what, stream, DEVICE_REQUEST_ENDING);
        pthread_mutex_unlock(&device->mutex);
        return r;
}

/* With device->mutex: makes sure that a kernel waits. */
static int request_attend(const struct device_handle *handle, const char *what, void *stream,
                          struct device_request **ret_request) {
        struct device_request *request = request_find(handle);

        if (!request)
                return request_unknown(what);
        *ret_request = request;
        if (request->captured)
                return error_set(RMX_E_INVALID, "%s: a captured request is waited for in its graph: rmx_wait_stream",
                                 what);
        if (request->state != DEVICE_REQUEST_STARTED)
                return RMX_OK;
        return request_launch(handle->device, request, what, stream ? stream : request->stream, DEVICE_REQUEST_WAITING);
}

/* The same of a WHOLE one, whose status is among those of calls, or of the communicators that its parts are made in:
 * the first that went wrong has left it. */
static bool request_whole_ended(struct device *device, const struct device_request *request, uint32_t *ret_status) {
        if (!request_passed(device, request))
                return false;
        *ret_status = device->ops->comm_status(device->handle, request->comm->slot, false);
        if (request->comm->nodes)
                return device_nodes_result(request->comm, ret_status);
        if (!ring_status_is_kept(*ret_status))
                *ret_status = RMX_OK;
        return true;
}

/* The result of a request whose kernel has ended. With device->mutex. */
static int request_harvest(struct device *device, struct device_request *request, uint32_t status) {
        uint32_t code = ring_status_code(status);
        struct rmx_comm *comm = request->comm;

        request_free(device, request);
        if (code == RMX_OK)
                return RMX_OK;
        device_lost(comm);
        if (ring_status_is_kept(code) && !(comm->nodes && comm->nodes->local)) /* of these device_nodes_found does it */
                comm_fail(comm, status);
        /* A kernel that was told to give up knows less than the comm does. */
        return comm_report(comm, request->what,
                           code == RMX_E_DEVICE_LOST && comm_status(comm) ? comm_status(comm) : status);
}

int device_request_wait(const struct device_handle *handle, const char *what, void *stream, uint64_t deadline_ns,
                        bool *ret_done) {
        struct device *device = handle->device;
        uint64_t started_ns = clock_now_ns();
        uint32_t status;
        int r;

        *ret_done = false;
        for (;;) {
                struct device_request *request = NULL;
                struct rmx_comm *comm = NULL, *made = NULL;
                bool ended = false;

                pthread_mutex_lock(&device->mutex);
                r = request_attend(handle, what, stream, &request);
                if (request)
                        comm = request->comm;
                else /* nobody can wait for it any more */
                        *ret_done = true;
                if (!r && request->state == DEVICE_REQUEST_WHOLE)
                        ended = request_whole_ended(device, request, &status);
                else if (!r)
                        ended = request_ended(device, handle->cell, &status);
                if (!r && request->state == DEVICE_REQUEST_WHOLE && comm->nodes)
                        made = comm;
                if (ended) {
                        *ret_done = true;
                        r = request_harvest(device, request, status);
                }
                pthread_mutex_unlock(&device->mutex);
                if (made && ended && status)
                        (void)device_nodes_found(made, status);
                if (r && !ended && comm &&
                    device_is_lost(device, device_judge(comm, r))) /* the waiting kernel met it */
                        *ret_done = true;
                if (r || ended)
                        return r;
                /* Before the deadline, for who asks again and again, gives no time, and does nothing else. */
                session_look_seldom(device->session);
                device_end(comm);
                /* A context that is gone never says so in the word. */
                if (!device_alive(device)) {
                        *ret_done = true;
                        comm_fail(comm, ring_status(RMX_E_DEVICE_LOST, (int32_t)comm->rank));
                        return error_set(RMX_E_DEVICE_LOST, "%s: the context of GPU %u is lost", what, device->gpu);
                }
                if (clock_now_ns() >= deadline_ns)
                        return RMX_OK;
                device_pause(device, started_ns);
        }
}

void device_requests_wait(struct device *device, const struct rmx_comm *comm) {
        pthread_mutex_lock(&device->mutex);
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS && device->n_started; i++) {
                struct device_request *request = &device->requests[i];

                if (request->comm == comm && request->state == DEVICE_REQUEST_STARTED && !request->captured)
                        (void)request_launch(device, request, request->what, request->stream, DEVICE_REQUEST_ENDING);
                else if (request->comm == comm && request->state == DEVICE_REQUEST_WAITING)
                        request->state = DEVICE_REQUEST_ENDING;
        }
        pthread_mutex_unlock(&device->mutex);
}

bool device_requests_any(struct device *device, const struct rmx_comm *comm) {
        uint32_t status;
        bool any = false;

        for (uint32_t i = 0; i < CLIENT_GPU_CELLS; i++) {
                struct device_request *request = &device->requests[i];

                if (request->state != DEVICE_REQUEST_FREE && request->state != DEVICE_REQUEST_KEPT &&
                    request->state != DEVICE_REQUEST_SPARE && request->state != DEVICE_REQUEST_WHOLE &&
                    request->comm == comm && !request->captured)
                        any |= !request_ended(device, i, &status);
        }
        return any;
}

void device_requests_orphan(struct device *device, const struct rmx_comm *comm, bool over) {
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS; i++) {
                struct device_request *request = &device->requests[i];

                if (request->comm != comm)
                        continue;
                request->comm = NULL;
                if (request->state == DEVICE_REQUEST_WAITING)
                        request->state = DEVICE_REQUEST_ENDING;
                if (request->state == DEVICE_REQUEST_WHOLE)
                        request_free(device, request);
                if (request->state == DEVICE_REQUEST_STARTED)
                        device->n_started--;
                if (request->state == DEVICE_REQUEST_STARTED || (request->state == DEVICE_REQUEST_SPARE && !over))
                        request->state = DEVICE_REQUEST_KEPT;
        }
}
