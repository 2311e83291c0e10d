/* SPDX-License-Identifier: MIT */
#include "daemon/session_ring.h"

#include "daemon/call.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/log.h"
#include "util/memfd.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

static struct session_ring *session_ring_alloc(struct session *session, uint32_t gpu) {
        struct session_ring *ring = calloc(1, sizeof(*ring));

        if (!ring)
                return NULL;
        ring->session = session;
        ring->gpu = gpu;
        ring->client_fd = ring->executor_fd = ring->event_fd = -1;
        ring->state_slot = STATE_SLOT_NONE;
        DL_APPEND(session->rings, ring);
        session->n_rings++;
        return ring;
}

static uint64_t session_ring_bytes(const struct ring_layout *layout, const struct device_memory *area) {
        return layout->client_bytes + (area->kind ? 0 : layout->executor_bytes);
}

int session_ring_executor_fd(const struct session_ring *ring) {
        const struct executor_link *link;

        if (!ring->area.kind)
                return ring->executor_fd;
        link = manager_link_of_gpu(ring->session->manager, ring->gpu);
        return link ? link->latch_fd : -1;
}

static int session_ring_charge(struct session_ring *ring, char *text, size_t text_size) {
        struct tenant *tenant = ring->session->tenant;

        if (tenant_charge(tenant, &ring->charge_ring, CHARGE_RINGS, 1, text, text_size) ||
            tenant_charge(tenant, &ring->charge_fds, CHARGE_FDS, ring->area.kind ? 2 : 3, text, text_size) ||
            tenant_charge(tenant, &ring->charge_bytes, CHARGE_BYTES, ring->bytes, text, text_size))
                return SESSION_RING_E_LIMIT;
        ring->session->bytes += ring->bytes;
        return 0;
}

int session_ring_new(struct session *session, uint32_t gpu, const struct device_memory *area, char *text,
                     size_t text_size, struct session_ring **ret_ring) {
        struct session_ring *ring;
        struct ring_layout layout;
        int r;

        ring = session_ring_alloc(session, gpu);
        if (!ring) {
                snprintf(text, text_size, "out of memory");
                return SESSION_RING_E_RESOURCE;
        }
        if (ring_layout_init(&layout, session->manager->config->ring_depth, RING_ARGUMENT_BYTES_DEFAULT)) {
                snprintf(text, text_size, "the configured ring depth is no power of two");
                session_ring_free(ring);
                return SESSION_RING_E_RESOURCE;
        }
        ring->depth = layout.depth;
        ring->argument_bytes = layout.argument_bytes;
        ring->area = *area;
        ring->bytes = session_ring_bytes(&layout, area);
        r = session_ring_charge(ring, text, text_size);
        if (r) {
                session_ring_free(ring);
                return r;
        }
        r = memfd_new("railmux-ring-client", layout.client_bytes, &ring->client_fd);
        if (r >= 0)
                r = area->kind ? 0 : memfd_new("railmux-ring-executor", layout.executor_bytes, &ring->executor_fd);
        if (r >= 0) {
                ring->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
                r = ring->event_fd < 0 ? -errno : 0;
        }
        if (r >= 0 && record_ring(ring))
                r = -ENOMEM;
        if (r < 0) {
                snprintf(text, text_size, "the daemon cannot make a ring: %s", strerror(-r));
                session_ring_free(ring);
                return SESSION_RING_E_RESOURCE;
        }
        *ret_ring = ring;
        return 0;
}

int session_ring_adopt(struct session *session, uint32_t gpu, uint32_t depth, uint32_t argument_bytes,
                       const struct device_memory *area, int client_fd, int executor_fd, int event_fd,
                       uint32_t state_slot, struct session_ring **ret_ring) {
        struct session_ring *ring;
        struct ring_layout layout;
        char text[160];

        if (ring_layout_init(&layout, depth, argument_bytes))
                return -EINVAL;
        ring = session_ring_alloc(session, gpu);
        if (!ring)
                return -ENOMEM;
        ring->depth = layout.depth;
        ring->argument_bytes = layout.argument_bytes;
        ring->area = *area;
        ring->bytes = session_ring_bytes(&layout, area);
        if (session_ring_charge(ring, text, sizeof(text))) {
                session_ring_free(ring);
                return -EDQUOT;
        }
        ring->client_fd = client_fd;
        ring->executor_fd = executor_fd;
        ring->event_fd = event_fd;
        ring->state_slot = state_slot;
        *ret_ring = ring;
        return 0;
}

struct session_ring *session_ring_free(struct session_ring *ring) {
        if (!ring)
                return NULL;
        record_drop_ring(ring);
        call_drop(&ring->calls, NULL);
        if (ring->client_fd >= 0)
                close(ring->client_fd);
        if (ring->executor_fd >= 0)
                close(ring->executor_fd);
        if (ring->event_fd >= 0)
                close(ring->event_fd);
        if (ring->charge_bytes.account)
                ring->session->bytes -= ring->bytes;
        charge_release(&ring->charge_bytes);
        charge_release(&ring->charge_fds);
        charge_release(&ring->charge_ring);
        DL_DELETE(ring->session->rings, ring);
        ring->session->n_rings--;
        free(ring);
        return NULL;
}

struct session_ring *session_ring_find(struct session *session, uint32_t gpu) {
        struct session_ring *ring;

        DL_FOREACH(session->rings, ring) {
                if (ring->gpu == gpu)
                        return ring;
        }
        return NULL;
}

uint64_t session_ring_needed(const struct session_ring *ring) {
        struct executor_link *link = manager_link_of_gpu(ring->session->manager, ring->gpu);

        return link ? executor_link_mask(link) : 0;
}

void session_ring_reply(struct session_ring *ring, uint64_t id) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
        Railmux__Session__RingReply reply = RAILMUX__SESSION__RING_REPLY__INIT;

        reply.gpu = ring->gpu;
        reply.depth = ring->depth;
        reply.argument_bytes = ring->argument_bytes;
        message.id = id;
        message.body_case = RAILMUX__SESSION__MESSAGE__BODY_RING_REPLY;
        message.ring_reply = &reply;
        session_send(ring->session, &message);
}

/* The client's memory went with the executor that had it: its ranks there are lost, and the session goes on without.
 * The client may open another ring. */
static void session_ring_lost(struct session_ring *ring, const char *message) {
        struct session *session = ring->session;

        log_warning("session %" PRIu64 ": its ring on GPU %u cannot be taken over: %s", session->id, ring->gpu,
                    message);
        session->lost_gpus |= UINT64_C(1) << ring->gpu;
        session_ring_free(ring);
}

void session_ring_attached(struct session_ring *ring, uint64_t mask, uint32_t code, const char *message) {
        struct session *session;
        uint64_t id;

        if (code) {
                bool asked = ring->calls != NULL;

                while (call_pop(&ring->calls, &session, &id))
                        session_send_failure(session, id, code, "%s", message);
                if (asked)
                        session_ring_free(ring);
                else if (ring->area.kind)
                        session_ring_lost(ring, message);
                else
                        session_end(ring->session, LOG_LEVEL_ERROR, "an executor refused its ring on GPU %u: %s",
                                    ring->gpu, message);
                return;
        }
        ring->attachment.acked |= mask;
        ring->session->lost_gpus &= ~(UINT64_C(1) << ring->gpu);
        if (!ring->calls || !attachment_complete(&ring->attachment, session_ring_needed(ring)))
                return;
        record_barrier(ring->session->manager);
        while (call_pop(&ring->calls, &session, &id))
                session_ring_reply(ring, id);
}
