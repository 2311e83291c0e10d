/* SPDX-License-Identifier: MIT */
#include "daemon/control_rows.h"

#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/control_answer.h"
#include "daemon/control_notes.h"
#include "daemon/control_rails.h"
#include "daemon/exchange_report.h"
#include "daemon/executor_link.h"
#include "daemon/executor_report.h"
#include "daemon/manager.h"
#include "daemon/reach.h"
#include "daemon/session.h"
#include "daemon/session_ring.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "gpu/plane.h"
#include "plan/plan.h"
#include "proto/frame.h"
#include "railmux/railmux.h"
#include "ring/ring.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

#define CONTROL_WAITING_MIN_NS UINT64_C(1000000)

static Railmux__Control__Executor *control_executor(struct control_answer *answer, const struct executor_link *link) {
        Railmux__Control__Executor *row = control_answer_message(answer, &railmux__control__executor__descriptor);

        if (!row)
                return NULL;
        row->name = control_answer_text(answer, "%s", link->name);
        row->backend = control_answer_text(answer, "%s", link->backend);
        row->state = control_answer_text(answer, "%s", executor_link_state_name(link));
        row->pid = executor_link_connected(link) ? (uint32_t)link->pid : 0;
        row->gpus = link->n_gpus;
        row->workers = link->workers;
        row->losses = link->losses;
        if (executor_link_connected(link) && link->counters.at_ns)
                row->uptime_ns = link->counters.uptime_ns;
        return row;
}

void control_rows_status(struct control_answer *answer, struct manager *manager) {
        Railmux__Control__Reply *reply = control_answer_first(answer);
        const struct executor_link *link;
        Railmux__Control__Status *status;
        const struct tenant *tenant;
        unsigned int n = 0;

        status = control_answer_message(answer, &railmux__control__status__descriptor);
        if (!reply || !status) {
                free(status);
                return;
        }
        reply->status = status;
        status->state = control_answer_text(answer, "%s", manager_state_name(manager));
        status->pid = (uint32_t)getpid();
        status->uptime_ns = clock_now_ns() - manager->started_ns;
        status->restarts = manager->restarts;
        status->sessions = HASH_COUNT(manager->sessions);
        status->comms = HASH_COUNT(manager->comms);
        DL_COUNT(manager->tenants, tenant, status->tenants);
        status->client_socket = control_answer_text(answer, "%s", manager->config->client_socket);
        status->config = control_answer_text(answer, "%s", manager->config->file ? manager->config->file : "");
        status->version =
                control_answer_text(answer, "%d.%d.%d", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
        DL_COUNT(manager->links, link, n);
        status->executors = control_answer_array(answer, n);
        DL_FOREACH(manager->links, link) {
                Railmux__Control__Executor *row = control_executor(answer, link);

                if (row && status->executors)
                        status->executors[status->n_executors++] = row;
                else if (row)
                        railmux__control__executor__free_unpacked(row, NULL);
        }
        control_notes_add(answer, status, manager);
}

void control_rows_tenants(struct control_answer *answer, struct manager *manager) {
        const struct tenant *tenant;

        DL_FOREACH(manager->tenants, tenant) {
                Railmux__Control__Tenant *row = control_answer_message(answer, &railmux__control__tenant__descriptor);

                if (!row)
                        return;
                row->name = control_answer_text(answer, "%s", tenant->name);
                row->weight = tenant->weight;
                row->traffic_class = control_answer_text(answer, "%s", fabric_class_name(tenant->class));
                row->rails = control_answer_text(answer, "%s", tenant->rails);
                row->usage = control_answer_array(answer, CHARGE_KIND_COUNT);
                for (unsigned int kind = 0; row->usage && kind < CHARGE_KIND_COUNT; kind++) {
                        Railmux__Control__Usage *usage =
                                control_answer_message(answer, &railmux__control__usage__descriptor);

                        if (!usage)
                                break;
                        usage->what = control_answer_text(answer, "%s", charge_kind_name(kind));
                        usage->used = tenant->account.used[kind];
                        usage->limit = tenant->account.limit[kind];
                        usage->refused = tenant->account.refused[kind];
                        row->usage[row->n_usage++] = usage;
                }
                control_answer_add(answer, CONTROL_TENANTS, &row->base);
        }
}

void control_rows_sessions(struct control_answer *answer, struct manager *manager) {
        const struct session *session, *next;
        uint64_t now = clock_now_ns();

        HASH_ITER(hh, manager->sessions, session, next) {
                Railmux__Control__Session *row = control_answer_message(answer, &railmux__control__session__descriptor);

                if (!row)
                        return;
                row->session = session->id;
                row->pid = (uint32_t)session->pid;
                row->uid = session->uid;
                row->name = control_answer_text(answer, "%s", session->name);
                row->tenant = control_answer_text(answer, "%s", session->tenant->name);
                row->rings = session->n_rings;
                row->buffers = session->n_buffers;
                row->bytes = session->bytes;
                row->comms = session->n_members;
                row->age_ns = now - session->opened_ns;
                control_answer_add(answer, CONTROL_SESSIONS, &row->base);
        }
}

/* The send or receive that waits longest. NULL: none, or the collective waits longer. */
static const struct comm_pair_wait *control_pair(const struct comm *comm, uint64_t now) {
        const struct comm_statistics *statistics = &comm->statistics;
        const struct comm_pair_wait *longest = NULL;

        for (uint32_t i = 0; i < statistics->n_pair_waits; i++)
                if (!longest || statistics->pair_waits[i].since_ns < longest->since_ns)
                        longest = &statistics->pair_waits[i];
        if (!longest || comm->state != COMM_READY || comm->code || now - longest->since_ns < CONTROL_WAITING_MIN_NS)
                return NULL;
        return statistics->waiting_operation && statistics->at_ns - statistics->waiting_ns < longest->since_ns
                       ? NULL
                       : longest;
}

static char *control_waiting_pair(struct control_answer *answer, const struct comm *comm,
                                  const struct comm_pair_wait *wait, uint64_t now) {
        const char *operation = wait->sends ? "send" : "recv", *preposition = wait->sends ? "to" : "from";
        double seconds = control_seconds(now - wait->since_ns);

        if (executor_report_pair_called(comm, wait))
                return control_answer_text(answer, "%s %u of rank %u %s rank %u is running since %.3f s", operation,
                                           wait->sequence, wait->rank, preposition, wait->peer, seconds);
        return control_answer_text(answer, "rank %u waits in %s %u %s rank %u since %.3f s", wait->rank, operation,
                                   wait->sequence, preposition, wait->peer, seconds);
}

/* What a comm waits for, from the executors' last statistics: the oldest sequence that is not final, and who has not
 * rung it. */
static char *control_waiting_rung(struct control_answer *answer, const struct comm *comm, uint64_t now) {
        const struct comm_statistics *statistics = &comm->statistics;
        uint32_t sequence = statistics->final_sequence + 1;
        const char *operation = plan_operation_name(statistics->waiting_operation);
        char ranks[CONTROL_RANKS_TEXT];
        uint64_t missing = 0, waited_ns = statistics->waiting_ns + (now - statistics->at_ns);
        const struct comm_pair_wait *pair = control_pair(comm, now);

        if (pair)
                return control_waiting_pair(answer, comm, pair, now);
        /* What is as young as this is work, not waiting. */
        if (waited_ns < CONTROL_WAITING_MIN_NS || comm->state != COMM_READY || comm->code || !statistics->at_ns ||
            !statistics->waiting_operation)
                return control_answer_text(answer, "%s", "");
        for (uint32_t rank = 0; rank < comm->n_ranks; rank++)
                if ((int32_t)(statistics->rung[rank] - sequence) < 0)
                        missing |= UINT64_C(1) << rank;
        if (missing)
                return control_answer_text(answer, "%s %u for %s since %.3f s", operation, sequence,
                                           control_ranks(missing, ranks), control_seconds(waited_ns));
        return control_answer_text(answer, "%s %u is running since %.3f s", operation, sequence,
                                   control_seconds(waited_ns));
}

/* That, or an exchange that has waited longer. */
static char *control_waiting(struct control_answer *answer, const struct comm *comm, uint64_t now) {
        const struct comm_statistics *statistics = &comm->statistics;
        const struct comm_pair_wait *pair = control_pair(comm, now);
        char text[EXCHANGE_WAIT_TEXT], ranks[CONTROL_RANKS_TEXT];
        struct exchange_wait wait;

        if (!exchange_waits(comm, &wait) || now - wait.since_ns < CONTROL_WAITING_MIN_NS ||
            (pair && pair->since_ns < wait.since_ns) ||
            (statistics->waiting_operation && statistics->at_ns - statistics->waiting_ns < wait.since_ns))
                return control_waiting_rung(answer, comm, now);
        exchange_wait_text(&wait, text);
        return control_answer_text(answer, "%s for %s%s since %.3f s", text, control_ranks(wait.missing, ranks),
                                   wait.left ? ", which left the communicator," : "",
                                   control_seconds(now - wait.since_ns));
}

static void control_members(struct control_answer *answer, Railmux__Control__Comm *row, const struct comm *comm) {
        struct exchange_wait wait;
        const uint64_t missing = exchange_waits(comm, &wait) ? wait.missing : 0;

        row->members = control_answer_array(answer, comm->n_ranks);
        for (uint32_t rank = 0; row->members && rank < comm->n_ranks; rank++) {
                const struct comm_member *member = &comm->members[rank];
                Railmux__Control__Member *m;

                if (!member->joined)
                        continue;
                m = control_answer_message(answer, &railmux__control__member__descriptor);
                if (!m)
                        return;
                m->rank = rank;
                m->session = member->session_id;
                m->pid = (uint32_t)member->pid;
                m->gpu = member->gpu;
                m->rung = comm->statistics.rung[rank];
                if (rank < EXCHANGE_RANKS_MAX) {
                        m->exchanged = comm->statistics.exchanged[rank].calls;
                        m->awaited = missing >> rank & 1;
                }
                m->left = member->left || member->lost;
                m->node = control_answer_text(answer, "%s", member->away ? comm_remote_node(comm, rank) : "");
                row->members[row->n_members++] = m;
        }
}

void control_rows_comms(struct control_answer *answer, struct manager *manager) {
        const struct comm *comm, *next;
        uint64_t now = clock_now_ns();

        HASH_ITER(hh, manager->comms, comm, next) {
                Railmux__Control__Comm *row = control_answer_message(answer, &railmux__control__comm__descriptor);

                if (!row)
                        return;
                row->comm = comm->number;
                row->name = control_answer_text(answer, "%s", comm->name);
                row->tenant = control_answer_text(answer, "%s", comm->tenant->name);
                row->n_ranks = comm->n_ranks;
                row->state = control_answer_text(answer, "%s", comm_state_name(comm));
                row->joined = comm->n_joined;
                row->nodes = comm->remote ? comm->remote->n_nodes : 1;
                for (uint32_t r = 0; r < comm->n_ranks; r++)
                        row->joined += comm->members[r].away;
                row->epoch = comm->epoch;
                row->final_sequence = comm->statistics.final_sequence;
                row->operations = comm->statistics.operations;
                row->exchanged = exchange_calls(comm);
                row->bytes = comm->statistics.bytes;
                row->lost = comm->statistics.lost > comm->lost ? comm->statistics.lost : comm->lost;
                row->error = comm->code;
                row->failed_rank = comm->failed_rank;
                row->reason = control_answer_text(answer, "%s", comm->reason);
                row->waiting = control_waiting(answer, comm, now);
                row->traffic_class = control_answer_text(
                        answer, "%s",
                        comm->remote && comm->remote->net.in_fabric ? fabric_class_name(comm->remote->net.class) : "");
                row->staging_bytes = comm->staging_bytes;
                control_members(answer, row, comm);
                control_comm_carried(answer, row, comm);
                control_answer_add(answer, CONTROL_COMMS, &row->base);
        }
}

static uint32_t control_comms_on(struct manager *manager, uint32_t gpu) {
        const struct comm *comm, *next;
        uint32_t n = 0;

        HASH_ITER(hh, manager->comms, comm, next) {
                for (uint32_t r = 0; r < comm->n_ranks; r++) {
                        if (comm->members[r].joined && !comm->members[r].away && comm->members[r].gpu == gpu) {
                                n++;
                                break;
                        }
                }
        }
        return n;
}

static uint32_t control_rings_on(struct manager *manager, uint32_t gpu) {
        const struct session *session, *next;
        const struct session_ring *ring;
        uint32_t n = 0;

        HASH_ITER(hh, manager->sessions, session, next) {
                DL_FOREACH(session->rings, ring) {
                        n += ring->gpu == gpu;
                }
        }
        return n;
}

/* What real GPUs have beyond emulated ones. */
static void control_gpu_device(struct control_answer *answer, Railmux__Control__Gpu *row,
                               const struct executor_link *link, const struct executor_gpu *info) {
        static const char *const policies[] = {
                [PLANE_ADAPTIVE] = "adaptive", [PLANE_SHARED] = "shared", [PLANE_LATENCY] = "latency"};
        bool known = info && info->policy < sizeof(policies) / sizeof(policies[0]);

        row->pci = control_answer_text(answer, "%s", link->manager->on_device ? link->pci : "");
        row->policy =
                control_answer_text(answer, "%s", link->manager->on_device && known ? policies[info->policy] : "");
        if (!link->manager->on_device || !info)
                return;
        if (executor_link_connected(link)) {
                row->resident_blocks = info->resident_blocks;
                row->parked = info->parked;
        }
        row->staging_bytes = link->pool.bytes;
        row->staging_used = link->pool.used;
        reach_count(link, &row->buffers_mapped, &row->buffers_reached);
}

void control_rows_gpus(struct control_answer *answer, struct manager *manager) {
        const struct executor_link *link;

        DL_FOREACH(manager->links, link) {
                for (uint32_t i = 0; i < link->n_gpus; i++) {
                        Railmux__Control__Gpu *row = control_answer_message(answer, &railmux__control__gpu__descriptor);
                        const struct executor_gpu *info = NULL;

                        if (!row)
                                return;
                        row->index = link->first_gpu + i;
                        for (uint32_t k = 0; k < link->n_gpu_infos; k++)
                                if (link->gpus[k].index == row->index)
                                        info = &link->gpus[k];
                        row->name = control_answer_text(answer, "%s", info ? info->name : "");
                        row->memory_bytes = info ? info->memory_bytes : 0;
                        row->executor = control_answer_text(answer, "%s", link->name);
                        row->rings = control_rings_on(manager, row->index);
                        row->state = control_answer_text(answer, "%s", executor_link_state_name(link));
                        row->comms = control_comms_on(manager, row->index);
                        control_gpu_device(answer, row, link, info);
                        control_answer_add(answer, CONTROL_GPUS, &row->base);
                }
        }
}

void control_rows_version(struct control_answer *answer) {
        Railmux__Control__Reply *reply = control_answer_first(answer);
        Railmux__Control__Version *version = control_answer_message(answer, &railmux__control__version__descriptor);

        if (!reply || !version) {
                free(version);
                return;
        }
        reply->daemon_version = version;
        version->version =
                control_answer_text(answer, "%d.%d.%d", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
        version->session_protocol = SESSION_PROTOCOL_MAX;
        version->executor_protocol = EXECUTOR_PROTOCOL_MAX;
        version->control_protocol = CONTROL_PROTOCOL;
        version->ring_abi = RING_ABI;
        version->state_version = STATE_VERSION;
}
