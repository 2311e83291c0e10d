/* SPDX-License-Identifier: MIT */
/*
 * A waiting thread sleeps on its completion word, which the executor writes. Nothing wakes it when daemon and executor
 * are both gone, so it sleeps in slices and looks at the session's socket between them, reading what is there for
 * whoever needs it.
 *
 * The death of railmuxd alone shows nowhere: the service manager keeps the socket open. End of file means that railmuxd
 * ended for good, and its executors as a rule with it. They may be a moment later, or (under another service manager)
 * go on; so a request is given up only when a full slice has passed since the end of file, and since its own start,
 * without a completion. From then on the session counts as dead, and further requests fail at once.
 *
 * In the same slices a thread finds out that its rank was cut off (see comm.c), and gives its request up; or that
 * another thread, which waited for the same one, has taken its result. The completion word may be a later request's
 * then.
 *
 * What the user holds names a request (ring and sequence) or a set of them (session and number). Either way it may be a
 * copy of one that was waited for already; it holds no pointer to anything that goes away before its session.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/comm.h"
#include "client/device.h"
#include "client/error.h"
#include "client/request.h"
#include "client/session.h"
#include "ring/line.h"
#include "util/clock.h"

enum {
        HANDLE_REQUEST = 0x72657131,
        HANDLE_SET = 0x72657173,
        HANDLE_DONE = 0x72657164,
        HANDLE_DEVICE = 0x72657167,
};

/* What is inside struct rmx_request. */
struct handle {
        uint64_t kind; /* HANDLE_*, 0: over */
        union {
                struct request request;
                struct device_handle device;
                struct {
                        struct rmx_session *session;
                        uint64_t number;
                } set;
        };
};
_Static_assert(sizeof(struct handle) <= sizeof(struct rmx_request), "a request fits the user's storage");

static int request_lost(const char *what) {
        return error_set(RMX_E_DAEMON_LOST, "%s: the daemon and its executor are gone; open a new session", what);
}

static int requests_refused(int condition, const struct session_item *item) {
        const char *what = item->slot.what;

        switch (condition) {
        case SESSION_RING_E_FAILED:
                return comm_report(item->slot.comm, what, comm_status(item->slot.comm));
        case SESSION_RING_E_ARGUMENT:
                return error_set(
                        RMX_E_BUSY,
                        "%s: the %u bytes for arguments on GPU %u are taken; rmx_wait for the oldest requests first",
                        what, argument_space_largest(&item->ring->arguments), item->ring->gpu);
        default:
                return error_set(
                        RMX_E_BUSY,
                        "%s: all %u places for requests on GPU %u are taken; rmx_wait for the oldest ones first", what,
                        item->ring->producer.layout.depth, item->ring->gpu);
        }
}

int requests_start(struct session_item *items, uint32_t n_items, struct request *ret_requests) {
        const struct session_item *item;
        int r;

        for (uint32_t i = 0; i < n_items; i++) {
                struct rmx_session *session = items[i].ring->session;

                /* relaxed; partner: the store in request_lose. */
                if (atomic_load_explicit(&session->dead, memory_order_relaxed))
                        return request_lost(items[i].slot.what);
                ret_requests[i] = (struct request){
                        .ring = items[i].ring,
                        .what = items[i].slot.what,
                        .started_ns = rpc_lost(&session->rpc) ? clock_now_ns() : 0,
                };
        }
        r = session_ring_publish(items, n_items, &item);
        if (r)
                return requests_refused(r, item);
        for (uint32_t i = 0; i < n_items; i++)
                ret_requests[i].sequence = items[i].sequence;
        return RMX_OK;
}

static int request_unknown(const char *what) {
        return error_set(RMX_E_INVALID, "%s: this request was waited for already, or its comm destroyed", what);
}

static void copy_out(const struct session_copy *copy) {
        if (copy->bytes)
                memcpy(copy->to, copy->from, copy->bytes);
}

/* Harvests, copies out and translates the status. */
static int request_finish(const struct request *request, uint32_t status) {
        struct session_ring *ring = request->ring;
        uint32_t code = ring_status_code(status);
        struct session_slot slot;

        if (session_ring_harvest(ring, request->sequence, &slot))
                return request_unknown(request->what);
        if (code == RMX_OK) {
                copy_out(&slot.copy);
                for (uint32_t i = 0; i < slot.n_copies; i++)
                        copy_out(&slot.copies[i]);
        }
        session_slot_drop(ring->session, &slot);
        if (code == RMX_OK)
                return RMX_OK;
        if (ring_status_is_kept(code))
                comm_fail(slot.comm, status);
        return comm_report(slot.comm, slot.what, status);
}

static int request_lose(const struct request *request) {
        struct session_ring *ring = request->ring;

        /* relaxed; partners: the loads in requests_start and session_ring_publish. */
        atomic_store_explicit(&ring->session->dead, true, memory_order_relaxed);
        session_ring_abandon(ring, request->sequence);
        return request_lost(request->what);
}

/* Has the request no hope left? See the file comment. */
static bool request_is_hopeless(const struct request *request, uint64_t now_ns) {
        uint64_t since_ns = rpc_lost_ns(&request->ring->session->rpc);

        if (!since_ns)
                return false;
        if (request->started_ns > since_ns)
                since_ns = request->started_ns;
        return now_ns >= since_ns + SESSION_LOOK_NS;
}

enum { AWAIT_DONE, AWAIT_TIMEOUT, AWAIT_HOPELESS, AWAIT_CUT, AWAIT_UNKNOWN };

static int request_cut(const char *what) {
        return error_set(RMX_E_ABORTED, "%s: this rank has aborted the communicator", what);
}

static int request_await(const struct request *request, uint64_t deadline_ns, uint32_t *ret_status) {
        struct session_ring *ring = request->ring;

        for (;;) {
                uint64_t now = clock_now_ns(), slice = SESSION_LOOK_NS;
                bool hopeless;

                if (deadline_ns < now + slice)
                        slice = deadline_ns > now ? deadline_ns - now : 0;
                if (slice &&
                    ring_producer_wait(&ring->producer, request->sequence, (int64_t)slice, ret_status) == RING_OK)
                        return AWAIT_DONE;
                session_look_seldom(ring->session);
                now = clock_now_ns();
                hopeless = request_is_hopeless(request, now);
                if (ring_producer_poll(&ring->producer, request->sequence, ret_status) == RING_OK)
                        return AWAIT_DONE;
                switch (session_ring_check(ring, request->sequence)) {
                case SESSION_RING_E_CUT:
                        return AWAIT_CUT;
                case SESSION_RING_E_UNKNOWN:
                        return AWAIT_UNKNOWN;
                }
                if (hopeless || now >= deadline_ns)
                        return hopeless ? AWAIT_HOPELESS : AWAIT_TIMEOUT;
        }
}

int request_complete(struct request *request) {
        uint32_t status;
        int r = AWAIT_DONE;

        if (ring_producer_poll(&request->ring->producer, request->sequence, &status) != RING_OK)
                r = request_await(request, RPC_NO_DEADLINE, &status);
        if (r == AWAIT_HOPELESS)
                return request_lose(request);
        if (r == AWAIT_UNKNOWN)
                return request_unknown(request->what);
        return r == AWAIT_CUT ? request_cut(request->what) : request_finish(request, status);
}

int requests_complete(struct request *requests, uint32_t n_requests) {
        char text[ERROR_TEXT_BYTES] = "";
        int result = RMX_OK;

        for (uint32_t i = 0; i < n_requests; i++) {
                int r = request_complete(&requests[i]);

                if (r && !result) {
                        result = r;
                        snprintf(text, sizeof(text), "%s", rmx_last_error());
                }
        }
        return result ? error_set(result, "%s", text) : RMX_OK;
}

void requests_finish(struct rmx_comm *comm) {
        struct request request = {.ring = comm->ring};
        struct session_slot slot;
        uint32_t status;

        while (session_ring_oldest(comm->ring, comm, &request.sequence)) {
                int r;

                do
                        r = request_await(&request, comm_status(comm) ? 0 : clock_now_ns() + SESSION_LOOK_NS, &status);
                while (r == AWAIT_TIMEOUT && !comm_status(comm));
                if (r != AWAIT_DONE)
                        session_ring_abandon(comm->ring, request.sequence);
                else if (!session_ring_harvest(comm->ring, request.sequence, &slot))
                        session_slot_drop(comm->session, &slot);
        }
}

/* Waits for one request until the deadline (0: does not wait), unless it is over: *ret_done. RMX_* of the request then.
 */
static int request_wait(const struct request *request, const char *what, uint64_t deadline_ns, bool *ret_done) {
        uint32_t status;
        int r;

        *ret_done = true;
        if (ring_producer_poll(&request->ring->producer, request->sequence, &status) == RING_OK)
                return request_finish(request, status);
        if (session_ring_attend(request->ring, request->sequence, deadline_ns == RPC_NO_DEADLINE))
                return request_unknown(what);
        r = request_await(request, deadline_ns, &status);
        if (r == AWAIT_DONE)
                return request_finish(request, status);
        if (r == AWAIT_HOPELESS)
                return request_lose(request);
        if (r == AWAIT_CUT)
                return request_cut(what);
        if (r == AWAIT_UNKNOWN)
                return request_unknown(what);
        *ret_done = false;
        return RMX_OK;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */
struct request_set *request_set_new(uint32_t n_requests, uint32_t n_devices) {
        struct request_set *set =
                calloc(1, sizeof(*set) + n_requests * sizeof(set->request[0]) + n_devices * sizeof(set->device[0]));

        if (!set)
                return NULL;
        set->n_requests = n_requests;
        set->n_devices = n_devices;
        set->device = (struct device_handle *)(void *)&set->request[n_requests];
        return set;
}

static void set_put(struct request_set *set) {
        pthread_mutex_lock(&set->session->sets_mutex);
        DL_APPEND(set->session->sets, set);
        pthread_mutex_unlock(&set->session->sets_mutex);
}

/* Takes it out of the session's list: this thread's until set_put. NULL: it is not there. */
static struct request_set *set_get(struct rmx_session *session, uint64_t number) {
        struct request_set *set;

        pthread_mutex_lock(&session->sets_mutex);
        DL_SEARCH_SCALAR(session->sets, set, number, number);
        if (set)
                DL_DELETE(session->sets, set);
        pthread_mutex_unlock(&session->sets_mutex);
        return set;
}

static int stream_refused(const char *what) {
        return error_set(RMX_E_INVALID, "%s: stream must be NULL for host memory", what);
}

/* One of them is over, with this result. */
static void set_note(struct request_set *set, int r) {
        if (!r || set->result)
                return;
        set->result = r;
        snprintf(set->text, sizeof(set->text), "%s", rmx_last_error());
}

/* All are. Frees it. */
static int set_end(struct request_set *set) {
        int r = set->result ? error_set(set->result, "%s", set->text) : RMX_OK;

        free(set);
        return r;
}

/* As request_wait, for all of a set one by one. The set is gone when it is done. */
static int set_wait(struct rmx_session *session, uint64_t number, const char *what, void *stream, uint64_t deadline_ns,
                    bool *ret_done) {
        struct request_set *set = set_get(session, number);
        int r;

        *ret_done = true;
        if (!set)
                return request_unknown(what);
        if (stream && !set->n_devices) {
                *ret_done = false;
                set_put(set);
                return stream_refused(what);
        }
        for (uint32_t i = set->n_done; deadline_ns == RPC_NO_DEADLINE && i < set->n_requests; i++)
                (void)session_ring_attend(set->request[i].ring, set->request[i].sequence, true);
        while (set->n_done < set->n_requests + set->n_devices) {
                r = set->n_done < set->n_requests
                            ? request_wait(&set->request[set->n_done], what, deadline_ns, ret_done)
                            : device_request_wait(&set->device[set->n_done - set->n_requests], what, stream,
                                                  deadline_ns, ret_done);
                if (!*ret_done) {
                        bool here = set->n_done < set->n_requests;

                        set_put(set);
                        return here ? RMX_OK : r;
                }
                set->n_done++;
                set_note(set, r);
        }
        return set_end(set);
}

/* ---- what the user holds ----------------------------------------------------------------------------------------- */
static void handle_give(const struct handle *handle, struct rmx_request *ret_request) {
        memcpy(ret_request->opaque, handle, sizeof(*handle));
}

void request_give(const struct request *request, struct rmx_request *ret_request) {
        const struct handle handle = {.kind = HANDLE_REQUEST, .request = *request};

        handle_give(&handle, ret_request);
}

void request_give_set(struct request_set *set, struct rmx_request *ret_request) {
        struct handle handle = {.kind = HANDLE_SET};

        set->session = set->n_requests ? set->request[0].ring->session : set->device[0].device->session;
        /* relaxed; partner: itself, in other threads. Only uniqueness counts. */
        set->number = atomic_fetch_add_explicit(&set->session->last_set, 1, memory_order_relaxed) + 1;
        handle.set.session = set->session;
        handle.set.number = set->number;
        set_put(set);
        handle_give(&handle, ret_request);
}

void request_give_device(const struct device_handle *device, struct rmx_request *ret_request) {
        const struct handle handle = {.kind = HANDLE_DEVICE, .device = *device};

        handle_give(&handle, ret_request);
}

void request_give_done(struct rmx_request *ret_request) {
        const struct handle handle = {.kind = HANDLE_DONE};

        handle_give(&handle, ret_request);
}

/* Waits until the deadline. *ret_done: the request is over, and what is returned is its result. */
static int handle_wait(struct rmx_request *user, const char *what, void *stream, uint64_t deadline_ns, bool *ret_done) {
        struct handle handle;
        int r;

        *ret_done = false;
        if (!user)
                return error_set(RMX_E_INVALID, "%s: request is NULL", what);
        memcpy(&handle, user->opaque, sizeof(handle));
        if (stream && handle.kind != HANDLE_DEVICE && handle.kind != HANDLE_SET)
                return stream_refused(what);
        switch (handle.kind) {
        case HANDLE_DEVICE:
                r = session_check(handle.device.device->session, what);
                if (!r)
                        r = device_request_wait(&handle.device, what, stream, deadline_ns, ret_done);
                break;
        case HANDLE_REQUEST:
                r = session_check(handle.request.ring->session, what);
                if (!r)
                        r = request_wait(&handle.request, what, deadline_ns, ret_done);
                break;
        case HANDLE_SET:
                r = session_check(handle.set.session, what);
                if (!r)
                        r = set_wait(handle.set.session, handle.set.number, what, stream, deadline_ns, ret_done);
                break;
        case HANDLE_DONE:
                *ret_done = true;
                r = RMX_OK;
                break;
        default:
                return error_set(RMX_E_INVALID, "%s: this is no outstanding request; each is waited for once", what);
        }
        if (*ret_done)
                user->opaque[0] = 0; /* a second wait on the same storage is told so */
        return r;
}

int rmx_wait(struct rmx_request *request, void *stream) {
        bool done;

        return handle_wait(request, __func__, stream, RPC_NO_DEADLINE, &done);
}

/* Puts the waiting for all of a set on the stream. *ret_left: what is not on GPUs, and has to be waited for here. */
static int set_enqueue(struct rmx_session *session, uint64_t number, const char *what, void *stream, bool *ret_left) {
        struct request_set *set = set_get(session, number);
        int r = RMX_OK;

        *ret_left = true;
        if (!set)
                return request_unknown(what);
        if (stream && !set->n_devices)
                r = stream_refused(what);
        while (set->n_requests + set->n_devices > set->n_done && set->n_devices && !r) {
                const struct device_handle *device = &set->device[set->n_devices - 1];

                r = device_request_enqueue(device, what, stream);
                /* Its comm was destroyed, or its GPU is lost: the others are there. */
                if (r && (!device_request_known(device) || device_is_lost(device->device, r))) {
                        set_note(set, r);
                        r = RMX_OK;
                }
                if (!r)
                        set->n_devices--;
        }
        *ret_left = r || set->n_done < set->n_requests;
        if (!*ret_left)
                return set_end(set);
        set_put(set);
        return r;
}

int rmx_wait_stream(struct rmx_request *request, void *stream) {
        struct handle handle;
        bool done;
        int r;

        if (!request)
                return error_set(RMX_E_INVALID, "%s: request is NULL", __func__);
        memcpy(&handle, request->opaque, sizeof(handle));
        if (handle.kind == HANDLE_SET) {
                bool left = true;

                r = session_check(handle.set.session, __func__);
                if (!r)
                        r = set_enqueue(handle.set.session, handle.set.number, __func__, stream, &left);
                if (!left)
                        request->opaque[0] = 0;
                return r || !left ? r : handle_wait(request, __func__, NULL, RPC_NO_DEADLINE, &done);
        }
        if (handle.kind != HANDLE_DEVICE)
                return handle_wait(request, __func__, stream, RPC_NO_DEADLINE, &done);
        r = session_check(handle.device.device->session, __func__);
        if (!r)
                r = device_request_enqueue(&handle.device, __func__, stream);
        if (!r)
                request->opaque[0] = 0;
        return r;
}

int rmx_wait_for(struct rmx_request *request, uint32_t timeout_ms) {
        bool done;
        int r;

        r = handle_wait(request, __func__, NULL, clock_now_ns() + (uint64_t)timeout_ms * 1000000u, &done);
        if (!r && !done)
                return error_set(RMX_E_TIMEOUT, "%s: not done within %u ms; the request goes on", __func__, timeout_ms);
        return r;
}

int rmx_test(struct rmx_request *request, int *ret_done) {
        bool done;
        int r;

        if (!ret_done)
                return error_set(RMX_E_INVALID, "%s: ret_done is NULL", __func__);
        r = handle_wait(request, __func__, NULL, 0, &done);
        if (!r || done)
                *ret_done = done;
        return r;
}
