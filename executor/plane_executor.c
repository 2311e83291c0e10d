/* SPDX-License-Identifier: MIT */
/*
 * The control thread of a GPU's executor.
 *
 * A planned end is railmuxd's business as well: the comms here are brought to a stand on all their executors first, and
 * only when railmuxd says go, nothing of them is under way. Without it, because it is away or some rank does not come
 * to a stand, the link's bound ends the waiting, and the comms are lost.
 *
 * Requests never come by here: kernels find, check and run them. What is left is to tell the plane what exists, to look
 * every few milliseconds at what the kernels have reported, and to tell railmuxd what it has to know.
 *
 * An error ends a comm on this GPU at once, and railmuxd carries it to the executors of the comm's other ranks. The
 * order of an end matters: first the plane (no kernel touches the memory of the comm any more), then whoever waits for
 * that. So each function here calls the plane before it forgets anything, in the order comms, buffers, ring, mapping.
 *
 * Not every hang is an error that a kernel could see: a rank that waits for one that has left waits for ever. Whoever
 * stalls is therefore looked at again, with what railmuxd said about the other ranks (plane_report_stalls).
 */
#include "executor/plane_executor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "executor/comm.h"
#include "executor/plane_call.h"
#include "railmux/railmux.h"
#include "ring/line.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/memfd.h"
#include "util/result.h"

#define PLANE_TICK_MS 2u
#define PLANE_REST_MS 20u /* with no kernel there; who wants one is heard by a thread of the plane's */

struct plane_session *plane_session_find(struct plane_executor *executor, uint64_t id) {
        struct plane_session *session;

        HASH_FIND(hh, executor->sessions, &id, sizeof(id), session);
        return session;
}

struct plane_attached *plane_comm_find(struct plane_executor *executor, uint64_t id) {
        struct plane_attached *comm;

        HASH_FIND(hh, executor->comms, &id, sizeof(id), comm);
        return comm;
}

void plane_session_free(struct plane_executor *executor, struct plane_session *session) {
        struct plane_buffer *buffer, *next;

        HASH_ITER(hh, session->buffers, buffer, next) {
                HASH_DEL(session->buffers, buffer);
                free(buffer);
        }
        HASH_ITER(hh, session->reached, buffer, next) {
                HASH_DEL(session->reached, buffer);
                free(buffer);
        }
        free(session->exchanges);
        memfd_unmap(session->host, session->host_bytes);
        HASH_DEL(executor->sessions, session);
        free(session);
}

void plane_comm_free(struct plane_executor *executor, struct plane_attached *comm) {
        HASH_DEL(executor->comms, comm);
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].hh.tbl)
                        HASH_DEL(executor->ranks, &comm->ranks[i]);
        plane_pairs_free(comm);
        plane_net_unmap(&comm->net);
        free(comm);
}

void plane_comm_fail(struct plane_executor *executor, struct plane_attached *comm, uint32_t code, int32_t rank,
                     const char *format, ...) {
        va_list args;

        if (comm->code)
                return;
        comm->code = code;
        comm->failed_rank = rank;
        comm->unreported = true;
        comm->held = false;
        va_start(args, format);
        vsnprintf(comm->text, sizeof(comm->text), format, args);
        va_end(args);
        executor->ops->comm_abort(executor->plane, comm->id, ring_status(code, rank));
        comm->frozen = executor->ops->comm_thaw != NULL;
}

void plane_comm_thaw(struct plane_executor *executor, struct plane_attached *comm) {
        if (!comm->frozen)
                return;
        comm->frozen = false;
        executor->ops->comm_thaw(executor->plane, comm->id);
}

static const char *detail_text(uint32_t status) {
        static const char *const names[] = {
                [RING_DETAIL_OPERATION] = " (another operation)", [RING_DETAIL_TYPE] = " (another type)",
                [RING_DETAIL_REDOP] = " (another reduction)",     [RING_DETAIL_COUNT] = " (another count)",
                [RING_DETAIL_ROOT] = " (another root)",
        };
        uint32_t detail = ring_status_detail(status);

        return detail < sizeof(names) / sizeof(names[0]) && names[detail] ? names[detail] : "";
}

static void plane_look_at(struct plane_executor *executor, const struct plane_rank_report *report, uint64_t now_ns) {
        struct plane_attached *comm = plane_comm_find(executor, report->comm);
        struct plane_rank *rank;
        int32_t blamed;

        if (!comm || report->rank >= comm->n_ranks)
                return;
        rank = &comm->ranks[report->rank];
        if (report->rung != rank->rung || !rank->since_ns)
                rank->since_ns = now_ns;
        rank->rung = report->rung;
        rank->finished = report->finished;
        rank->operation = report->operation;
        if (!report->status || comm->code)
                return;
        blamed = ring_status_rank(report->status);
        if (report->why) {
                log_error("GPU %u: communicator %" PRIu64 " ends, rank %d: %s", executor->gpu, comm->id, blamed,
                          report->why);
                plane_comm_fail(executor, comm, ring_status_code(report->status), blamed, "%s", report->why);
                return;
        }
        if (rank->ended_ns) { /* its memory went with its process */
                plane_comm_fail(executor, comm, RMX_E_PEER_LOST, (int32_t)report->rank,
                                "%s %u: the process of rank %u ended", plan_operation_name(report->operation),
                                report->rung, report->rank);
                return;
        }
        executor->invalid += ring_status_code(report->status) == RMX_E_INVALID;
        executor->mismatches += ring_status_code(report->status) == RMX_E_MISMATCH;
        plane_comm_fail(executor, comm, ring_status_code(report->status), blamed, "%s %u of rank %u: %s%s",
                        plan_operation_name(report->operation), report->rung, report->rank,
                        result_name(ring_status_code(report->status)), detail_text(report->status));
}

void plane_executor_look(struct plane_executor *executor) {
        uint32_t n = executor->ops->report(executor->plane, executor->reports, PLANE_REPORTS_MAX);
        uint64_t now_ns = clock_now_ns();

        for (uint32_t i = 0; i < n && i < PLANE_REPORTS_MAX; i++)
                plane_look_at(executor, &executor->reports[i], now_ns);
        plane_exchanges_look(executor);
        plane_pairs_look(executor);
}

/* ---- the link's view --------------------------------------------------------------------------------------------- */

static void service_hello(void *object, Railmux__Executor__Hello *hello) {
        plane_report_hello(object, hello);
        plane_report_stalls_again(object);
}

static int service_inventory(void *object, report_send send, void *userdata) {
        return plane_report_inventory(object, send, userdata);
}

static int service_statistics(void *object, uint64_t id, report_send send, void *userdata) {
        return plane_report_statistics(object, id, send, userdata);
}

static int service_failures(void *object, report_send send, void *userdata) {
        return plane_report_failures(object, send, userdata);
}

static int service_stalls(void *object, report_send send, void *userdata) {
        return plane_report_stalls(object, send, userdata);
}

static void service_call(void *object, const Railmux__Executor__Message *message, int *fds, unsigned int n_fds,
                         struct dispatch_result *ret_result) {
        plane_call(object, message, fds, n_fds, ret_result);
}

static bool service_ready(void *object, const Railmux__Executor__Message *message) {
        return message->body_case != RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_ATTACH ||
               plane_call_ready(object, message->comm_attach);
}

static void service_round(void *object) {
        struct plane_executor *executor = object;

        if (executor->ops->comm_round)
                executor->ops->comm_round(executor->plane);
}

static void tell_shuns(struct plane_executor *executor, const struct plane_info *info) {
        if (info->shuns == executor->shuns)
                return;
        executor->shuns = info->shuns;
        log_warning("GPU %u: a session misuses the page by which clients begin the next kernel of a parked GPU; for a "
                    "minute it is launched as before that",
                    executor->gpu);
}

static int service_tick(void *object) {
        struct plane_executor *executor = object;
        uint64_t now_ns = clock_now_ns();
        struct plane_info info;
        char error[PLANE_TEXT] = "";
        int r;

        r = executor->ops->tick(executor->plane, error);
        if (r < 0) {
                log_error("GPU %u: %s", executor->gpu, error[0] ? error : strerror(-r));
                return r;
        }
        plane_executor_look(executor);
        if (now_ns > COMM_ENDED_NS)
                plane_comms_ended(executor, now_ns - COMM_ENDED_NS);
        executor->ops->info(executor->plane, &info);
        tell_shuns(executor, &info);
        return info.parked && !info.resident_blocks && !executor->draining ? PLANE_REST_MS : PLANE_TICK_MS;
}

static void service_drain(void *object) {
        ((struct plane_executor *)object)->draining = true;
}

/* Is there a comm that its end would break? */
static bool service_needed(const struct plane_executor *executor) {
        for (const struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next)
                if (!comm->code)
                        return true;
        return false;
}

static bool service_drained(void *object) {
        struct plane_executor *executor = object;

        if (!executor->go && service_needed(executor))
                return false;
        return executor->ops->drain(executor->plane);
}

static void service_go(void *object) {
        ((struct plane_executor *)object)->go = true;
}

static const struct link_ops plane_link_ops = {
        .hello = service_hello,
        .inventory = service_inventory,
        .statistics = service_statistics,
        .failures = service_failures,
        .stalls = service_stalls,
        .ready = service_ready,
        .round = service_round,
        .call = service_call,
        .tick = service_tick,
        .drain = service_drain,
        .drained = service_drained,
        .go = service_go,
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

int plane_executor_init(struct plane_executor *executor, const struct plane_ops *ops, uint32_t gpu,
                        const struct plane_options *options, uint64_t stall_ns, char error[PLANE_TEXT]) {
        struct plane_options wanted = *options;
        int r;

        *executor = (struct plane_executor){
                .ops = ops,
                .gpu = gpu,
                .stall_ns = stall_ns,
                .started_ns = clock_now_ns(),
                .service = {.ops = &plane_link_ops,
                            .object = executor,
                            .stall_ns = stall_ns,
                            .tick_ms = PLANE_TICK_MS,
                            .tells_drain = true},
        };
        executor->attention_fd = executor->service.attention_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (executor->attention_fd < 0) {
                snprintf(error, PLANE_TEXT, "no descriptor to be told by: %s", strerror(errno));
                return -errno;
        }
        wanted.told_fd = executor->attention_fd;
        if (getrandom(&executor->instance, sizeof(executor->instance), 0) != sizeof(executor->instance)) {
                snprintf(error, PLANE_TEXT, "no random numbers");
                return -EIO;
        }
        if (!wanted.left_ns)
                wanted.left_ns = stall_ns; /* as on the host */
        r = ops->open(&wanted, &executor->plane, error);
        if (r < 0)
                return r;
        ops->info(executor->plane, &executor->info);
        /* The own pool is a peer's like any other. */
        return ops->peer_add(executor->plane, executor->gpu, executor->instance, &executor->info.pool, error);
}

void plane_executor_deinit(struct plane_executor *executor) {
        struct plane_session *session, *next_session;
        struct plane_attached *comm, *next_comm;

        if (!executor->ops)
                return;
        executor->ops->close(executor->plane); /* ends the kernels, before what they look at is unmapped */
        if (executor->attention_fd >= 0)
                close(executor->attention_fd);
        HASH_ITER(hh, executor->comms, comm, next_comm) {
                plane_comm_free(executor, comm);
        }
        HASH_ITER(hh, executor->sessions, session, next_session) {
                plane_session_free(executor, session);
        }
}
