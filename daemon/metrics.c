/* SPDX-License-Identifier: MIT */
/*
 * Names and labels are an interface: alert rules and dashboards name them. Nothing here is labelled by communicator or
 * session, whose number clients choose; those are found with railmuxctl. Counters of executors start again with their
 * process, which rate() and increase() know how to handle.
 */
#include "daemon/metrics.h"

#include "daemon/closer.h"
#include "daemon/comm.h"
#include "daemon/control_answer.h"
#include "daemon/executor_link.h"
#include "daemon/executor_report.h"
#include "daemon/manager.h"
#include "daemon/metrics_private.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <utlist.h>

#define METRIC_LABELS_MAX 3u

void metrics_add(struct control_answer *answer, const char *name, const char *help, const char *kind, double value,
                 const char *const *labels) {
        Railmux__Control__Metric *row = control_answer_message(answer, &railmux__control__metric__descriptor);

        if (!row)
                return;
        row->name = control_answer_text(answer, "railmux_%s", name);
        row->help = control_answer_text(answer, "%s", help);
        row->kind = control_answer_text(answer, "%s", kind);
        row->value = value;
        if (labels)
                row->labels = control_answer_array(answer, METRIC_LABELS_MAX);
        for (; row->labels && labels[0] && row->n_labels < METRIC_LABELS_MAX; labels += 2) {
                Railmux__Control__Label *label = control_answer_message(answer, &railmux__control__label__descriptor);

                if (!label)
                        break;
                label->name = control_answer_text(answer, "%s", labels[0]);
                label->value = control_answer_text(answer, "%s", labels[1]);
                row->labels[row->n_labels++] = label;
        }
        control_answer_add(answer, CONTROL_METRICS, &row->base);
}

static void metrics_daemon(struct control_answer *answer, struct manager *manager) {
        const struct manager_counters *c = &manager->counters;
        const struct {
                const char *name, *help;
                uint64_t value;
        } counters[] = {
                {"restarts_total", "Times that a railmuxd took over a predecessor's sessions", manager->restarts},
                {"sessions_opened_total", "Client processes that connected", c->sessions_opened},
                {"sessions_closed_total", "Client processes that left", c->sessions_closed},
                {"sessions_dropped_total", "Sessions ended for breaking the protocol or its bounds",
                 c->sessions_dropped},
                {"sessions_refused_total", "Sessions refused by a limit", c->sessions_refused},
                {"sessions_adopted_total", "Sessions taken over from a predecessor", c->sessions_adopted},
                {"comms_created_total", "Communicators made", c->comms_created},
                {"comms_failed_total", "Communicators that got a lasting error", c->comms_failed},
                {"comms_freed_total", "Communicators that are gone", c->comms_freed},
                {"plans_chosen_total", "Times that the plans of a communicator had to be worked out", c->plans_chosen},
                {"calls_total", "Calls of clients to railmuxd", c->calls},
                {"protocol_errors_total", "Messages of clients that broke the protocol", c->protocol_errors},
                {"accept_errors_total", "Connections that could not be accepted", c->accept_errors},
                {"executor_connects_total", "Times that an executor connected", c->executor_connects},
                {"executor_losses_total", "Unplanned deaths of executors", c->executor_losses},
                {"loop_held_total", "Times that something held the event loop for a quarter of peer.lost_ms",
                 manager->watch.n_held},
        };
        char version[32];

        snprintf(version, sizeof(version), "%d.%d.%d", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
        metrics_add(answer, "build_info", "Version of railmuxd; always 1", "gauge", 1,
                    (const char *const[]){"version", version, NULL});
        metrics_add(answer, "uptime_seconds", "Age of this railmuxd process", "gauge",
                    (double)(clock_now_ns() - manager->started_ns) / 1e9, NULL);
        metrics_add(answer, "sessions", "Connected client processes", "gauge", HASH_COUNT(manager->sessions), NULL);
        metrics_add(answer, "loop_longest_seconds", "Longest of the times that railmux_loop_held_total counts", "gauge",
                    (double)manager->watch.longest_ns / 1e9, NULL);
        metrics_add(answer, "closes_waiting", "Descriptors of clients and operators that are not closed yet", "gauge",
                    closer_waiting(manager->closer), NULL);
        metrics_add(answer, "state_records", "Records in the state that a successor takes over", "gauge",
                    manager->state ? state_count(manager->state) : 0, NULL);
        for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
                metrics_add(answer, counters[i].name, counters[i].help, "counter", (double)counters[i].value, NULL);
}

static void metrics_comms(struct control_answer *answer, struct manager *manager) {
        static const char *const states[] = {"joining", "ready", "failed", "leaving"};
        uint64_t counts[4] = {0}, stalled = 0, staging = 0;
        const struct comm *comm, *next;

        HASH_ITER(hh, manager->comms, comm, next) {
                for (size_t i = 0; i < 4; i++)
                        counts[i] += strcmp(comm_state_name(comm), states[i]) == 0;
                stalled += executor_report_stalled(comm);
                staging += comm->staging_bytes;
        }
        for (size_t i = 0; i < 4; i++)
                metrics_add(answer, "comms", "Communicators by state", "gauge", (double)counts[i],
                            (const char *const[]){"state", states[i], NULL});
        metrics_add(answer, "comms_stalled", "Communicators that wait for a rank longer than the stall bound", "gauge",
                    (double)stalled, NULL);
        metrics_add(answer, "staging_bytes", "Staging memory of all communicators", "gauge", (double)staging, NULL);
}

static const struct metrics_counter {
        const char *name, *help;
        size_t offset; /* in struct executor_counters */
        double divisor;
} metrics_counters[] = {
        {"executor_operations_total", "Collectives completed", offsetof(struct executor_counters, operations), 1},
        {"executor_bytes_total", "Bytes of completed collectives; without those that ranks on GPUs exchange",
         offsetof(struct executor_counters, bytes), 1},
        {"executor_invalid_requests_total", "Requests refused by validation",
         offsetof(struct executor_counters, invalid_requests), 1},
        {"executor_sleeps_total", "Times that a worker went to sleep", offsetof(struct executor_counters, sleeps), 1},
        {"executor_wakes_total", "Times that a client was woken", offsetof(struct executor_counters, wakes), 1},
        {"executor_plans_total", "Plans expanded and verified", offsetof(struct executor_counters, plans), 1},
        {"executor_lost_total", "Requests that were lost with a predecessor", offsetof(struct executor_counters, lost),
         1},
        {"executor_mismatches_total",
         "Requests on which the ranks did not agree; without those that ranks on GPUs exchange",
         offsetof(struct executor_counters, mismatches), 1},
        {"executor_parks_total",
         "Times that the resident kernels of a GPU ended for want of requests, or between large ones, including those "
         "that came back at once",
         offsetof(struct executor_counters, parks), 1},
        {"executor_cpu_seconds_total", "Processor time used", offsetof(struct executor_counters, cpu_ns), 1e9},
};

static void metrics_executors(struct control_answer *answer, struct manager *manager) {
        const struct executor_link *link;

        DL_FOREACH(manager->links, link)
                metrics_add(answer, "executor_up", "1 if the executor is ready", "gauge", link->state == EXECUTOR_READY,
                            (const char *const[]){"executor", link->name, NULL});
        DL_FOREACH(manager->links, link)
                metrics_add(answer, "executor_workers", "Worker threads", "gauge", link->workers,
                            (const char *const[]){"executor", link->name, NULL});
        for (size_t i = 0; i < sizeof(metrics_counters) / sizeof(metrics_counters[0]); i++) {
                const struct metrics_counter *counter = &metrics_counters[i];

                DL_FOREACH(manager->links, link) {
                        uint64_t value;

                        if (!link->counters.at_ns)
                                continue;
                        memcpy(&value, (const char *)&link->counters + counter->offset, sizeof(value));
                        metrics_add(answer, counter->name, counter->help, "counter", (double)value / counter->divisor,
                                    (const char *const[]){"executor", link->name, NULL});
                }
        }
}

static void metrics_tenants(struct control_answer *answer, struct manager *manager) {
        static const struct {
                const char *name, *help, *kind;
                size_t offset; /* in struct charge_account */
        } columns[] = {
                {"tenant_used", "What a tenant holds", "gauge", offsetof(struct charge_account, used)},
                {"tenant_limit", "What a tenant may hold", "gauge", offsetof(struct charge_account, limit)},
                {"tenant_refused_total", "Refusals because of a limit", "counter",
                 offsetof(struct charge_account, refused)},
        };
        const struct tenant *tenant;

        for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
                DL_FOREACH(manager->tenants, tenant) {
                        uint64_t values[CHARGE_KIND_COUNT];

                        memcpy(values, (const char *)&tenant->account + columns[i].offset, sizeof(values));
                        for (unsigned int kind = 0; kind < CHARGE_KIND_COUNT; kind++)
                                metrics_add(answer, columns[i].name, columns[i].help, columns[i].kind,
                                            (double)values[kind],
                                            (const char *const[]){"tenant", tenant->name, "resource",
                                                                  charge_kind_name(kind), NULL});
                }
        }
}

void metrics_rows(struct control_answer *answer, struct manager *manager) {
        metrics_daemon(answer, manager);
        metrics_comms(answer, manager);
        metrics_executors(answer, manager);
        metrics_tenants(answer, manager);
        metrics_fabric(answer, manager);
}
