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
 */
#include <string.h>

#include "client/comm.h"
#include "client/error.h"
#include "client/request.h"
#include "client/session.h"
#include "util/clock.h"

#define REQUEST_MAGIC 0x726d782d72657131u

static int request_lost(const char *what) {
        return error_set(RMX_E_DAEMON_LOST, "%s: the daemon and its executor are gone; open a new session", what);
}

int request_start(struct session_ring *ring, struct ring_request *line, const struct session_slot *slot,
                  struct request *ret_request) {
        struct rmx_session *session = ring->session;
        struct request request = {.magic = REQUEST_MAGIC, .ring = ring, .what = slot->what};
        int r;

        /* relaxed; partner: the store in request_lose. */
        if (atomic_load_explicit(&session->dead, memory_order_relaxed))
                return request_lost(slot->what);
        if (rpc_lost(&session->rpc))
                request.started_ns = clock_now_ns();
        r = session_ring_publish(ring, line, slot, &request.sequence);
        if (r == SESSION_RING_E_FAILED)
                return comm_report(slot->comm, slot->what, comm_status(slot->comm));
        if (r)
                return error_set(
                        RMX_E_BUSY,
                        "%s: all %u places for requests on GPU %u are taken; rmx_wait for the oldest ones first",
                        slot->what, ring->producer.layout.depth, ring->gpu);
        *ret_request = request;
        return RMX_OK;
}

/* Harvests, copies out and translates the status. */
static int request_finish(struct request *request, uint32_t status) {
        struct session_ring *ring = request->ring;
        uint32_t code = ring_status_code(status);
        struct session_slot slot;

        request->magic = 0;
        if (session_ring_harvest(ring, request->sequence, &slot))
                return error_set(RMX_E_INVALID, "%s: this request was waited for already, or its comm destroyed",
                                 request->what);
        if (code == RMX_OK && slot.copy_to)
                memcpy(slot.copy_to, slot.copy_from, slot.copy_bytes);
        bounce_release(&ring->session->bounce, slot.regions[0]);
        bounce_release(&ring->session->bounce, slot.regions[1]);
        if (code == RMX_OK)
                return RMX_OK;
        if (comm_code_is_sticky(code))
                comm_fail(slot.comm, status);
        return comm_report(slot.comm, slot.what, status);
}

static int request_lose(struct request *request) {
        struct session_ring *ring = request->ring;

        request->magic = 0;
        /* relaxed; partners: the loads in request_start and session_ring_publish. */
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

enum { AWAIT_DONE, AWAIT_TIMEOUT, AWAIT_HOPELESS };

static int request_await(const struct request *request, uint64_t deadline_ns, uint32_t *ret_status) {
        struct session_ring *ring = request->ring;

        for (;;) {
                uint64_t now = clock_now_ns(), slice = SESSION_LOOK_NS;
                bool hopeless;

                if (deadline_ns < now + slice)
                        slice = deadline_ns > now ? deadline_ns - now : 0;
                if (ring_producer_wait(&ring->producer, request->sequence, (int64_t)slice, ret_status) == RING_OK)
                        return AWAIT_DONE;
                session_look_seldom(ring->session);
                now = clock_now_ns();
                hopeless = request_is_hopeless(request, now);
                if (!hopeless && now < deadline_ns)
                        continue;
                /* The last look: it may have completed since. */
                if (ring_producer_poll(&ring->producer, request->sequence, ret_status) == RING_OK)
                        return AWAIT_DONE;
                return hopeless ? AWAIT_HOPELESS : AWAIT_TIMEOUT;
        }
}

int request_complete(struct request *request) {
        uint32_t status;

        if (ring_producer_poll(&request->ring->producer, request->sequence, &status) != RING_OK &&
            request_await(request, RPC_NO_DEADLINE, &status) == AWAIT_HOPELESS)
                return request_lose(request);
        return request_finish(request, status);
}

void requests_finish(struct rmx_comm *comm) {
        struct request request = {.magic = REQUEST_MAGIC, .ring = comm->ring};
        struct session_slot slot;
        uint32_t status;

        while (session_ring_oldest(comm->ring, comm, &request.sequence)) {
                int r;

                do
                        r = request_await(&request, clock_now_ns() + SESSION_LOOK_NS, &status);
                while (r == AWAIT_TIMEOUT && !comm_status(comm));
                if (r != AWAIT_DONE)
                        session_ring_abandon(comm->ring, request.sequence);
                else if (!session_ring_harvest(comm->ring, request.sequence, &slot)) {
                        bounce_release(&comm->session->bounce, slot.regions[0]);
                        bounce_release(&comm->session->bounce, slot.regions[1]);
                }
        }
}

/* ---- public ---------------------------------------------------------------------------------------------------------
 */
static int request_open(struct rmx_request *user, const char *what, struct request *request) {
        if (!user)
                return error_set(RMX_E_INVALID, "%s: request is NULL", what);
        memcpy(request, user->opaque, sizeof(*request));
        if (request->magic != REQUEST_MAGIC)
                return error_set(RMX_E_INVALID, "%s: this is no outstanding request; each is waited for once", what);
        return session_check(request->ring->session, what);
}

/* The request is over: a second wait on the same storage is told so. */
static int request_close(struct rmx_request *user, int result) {
        user->opaque[0] = 0;
        return result;
}

static int request_wait(struct rmx_request *user, const char *what, uint32_t timeout_ms, uint64_t deadline_ns) {
        struct request request;
        uint32_t status;
        int r;

        r = request_open(user, what, &request);
        if (r)
                return r;
        if (ring_producer_poll(&request.ring->producer, request.sequence, &status) == RING_OK)
                return request_close(user, request_finish(&request, status));
        if (session_ring_attend(request.ring, request.sequence, deadline_ns == RPC_NO_DEADLINE))
                return request_close(user,
                                     error_set(RMX_E_INVALID,
                                               "%s: this request was waited for already, or its comm destroyed", what));
        switch (request_await(&request, deadline_ns, &status)) {
        case AWAIT_DONE:
                return request_close(user, request_finish(&request, status));
        case AWAIT_HOPELESS:
                return request_close(user, request_lose(&request));
        default:
                return error_set(RMX_E_TIMEOUT, "%s: not done within %u ms; the request goes on", what, timeout_ms);
        }
}

int rmx_wait(struct rmx_request *request, void *stream) {
        if (stream)
                return error_set(RMX_E_INVALID, "%s: stream must be NULL for host memory", __func__);
        return request_wait(request, __func__, 0, RPC_NO_DEADLINE);
}

int rmx_wait_for(struct rmx_request *request, uint32_t timeout_ms) {
        return request_wait(request, __func__, timeout_ms, clock_now_ns() + (uint64_t)timeout_ms * 1000000u);
}

int rmx_test(struct rmx_request *user, int *ret_done) {
        struct request request;
        uint32_t status;
        int r;

        if (!ret_done)
                return error_set(RMX_E_INVALID, "%s: ret_done is NULL", __func__);
        r = request_open(user, __func__, &request);
        if (r)
                return r;
        if (ring_producer_poll(&request.ring->producer, request.sequence, &status) != RING_OK) {
                if (session_ring_attend(request.ring, request.sequence, false))
                        return request_close(user,
                                             error_set(RMX_E_INVALID,
                                                       "%s: this request was waited for already, or its comm destroyed",
                                                       __func__));
                session_look_seldom(request.ring->session);
                if (!request_is_hopeless(&request, clock_now_ns())) {
                        *ret_done = 0;
                        return RMX_OK;
                }
                if (ring_producer_poll(&request.ring->producer, request.sequence, &status) != RING_OK) {
                        *ret_done = 1;
                        return request_close(user, request_lose(&request));
                }
        }
        *ret_done = 1;
        return request_close(user, request_finish(&request, status));
}
