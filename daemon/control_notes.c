/* SPDX-License-Identifier: MIT */
/*
 * Notes. First what the daemon has to say of itself and the node, then what concerns single tenants, each of which has
 * its share of the room: they go into one frame, and none may push out what is said of others.
 */
#include "daemon/control_notes.h"

#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/control_answer.h"
#include "daemon/exchange_report.h"
#include "daemon/executor_link.h"
#include "daemon/executor_report.h"
#include "daemon/manager.h"
#include "daemon/notify.h"
#include "daemon/tenant.h"
#include "plan/plan.h"
#include "util/clock.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#define NOTES_DAEMON      8u     /* at most, beside one for each executor */
#define NOTES_TENANT      16u    /* of one tenant */
#define NOTES_BYTES       32768u /* of all tenants together, half a frame; each has at least one note */
#define NOTES_CLOSES_MANY 16u
#define NOTE_TEXT         512u
#define NOTES_REFUSED_NS  (UINT64_C(600) * 1000000000u) /* so long after it a refusal is worth a look */

struct notes {
        struct control_answer *answer;
        Railmux__Control__Status *status;
        size_t most, tenant_bytes;
};

double control_seconds(uint64_t ns) {
        return (double)ns / 1e9;
}

const char *control_ranks(uint64_t ranks, char out[CONTROL_RANKS_TEXT]) {
        unsigned int n = (unsigned int)__builtin_popcountll(ranks), shown = 0;
        size_t position;

        position = (size_t)snprintf(out, CONTROL_RANKS_TEXT, n == 1 ? "rank " : "ranks ");
        for (unsigned int rank = 0; rank < COMM_RANKS_MAX; rank++) {
                if (!(ranks >> rank & 1))
                        continue;
                if (shown == 16) {
                        snprintf(out + position, CONTROL_RANKS_TEXT - position, " and %u more", n - shown);
                        break;
                }
                position += (size_t)snprintf(out + position, CONTROL_RANKS_TEXT - position, "%s%u", shown ? ", " : "",
                                             rank);
                shown++;
        }
        return out;
}

static void notes_put(struct notes *notes, const char *text) {
        Railmux__Control__Status *status = notes->status;

        if (status->notes && status->n_notes < notes->most)
                status->notes[status->n_notes++] = control_answer_text(notes->answer, "%s", text);
}

/* tenant NULL: of the daemon. */
static void notes_say(struct notes *notes, struct tenant *tenant, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static void notes_say(struct notes *notes, struct tenant *tenant, const char *format, ...) {
        char text[NOTE_TEXT];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        if (tenant) {
                struct tenant_notes *said = &tenant->notes;

                if (said->n > 0 && (said->n == NOTES_TENANT || said->bytes + strlen(text) > notes->tenant_bytes)) {
                        said->more++;
                        return;
                }
                said->n++;
                said->bytes += strlen(text);
        }
        notes_put(notes, text);
}

static void notes_executors(struct notes *notes, struct manager *manager, uint64_t now) {
        const struct executor_link *link;

        DL_FOREACH(manager->links, link) {
                if (link->state == EXECUTOR_READY)
                        continue;
                notes_say(notes, NULL, "executor %s has been %s for %.1f s", link->name, executor_link_state_name(link),
                          control_seconds(now - (link->state == EXECUTOR_GONE && link->gone_ns ? link->gone_ns
                                                 : link->connected_ns                          ? link->connected_ns
                                                                                               : manager->started_ns)));
        }
}

static void notes_daemon(struct notes *notes, struct manager *manager) {
        if (manager->no_gpus[0])
                notes_say(notes, NULL, "GPUs are emulated: %s (gpu.backend: host if that is as it should be)",
                          manager->no_gpus);
        if (!notify_present())
                notes_say(notes, NULL, "no service manager keeps descriptors: when railmuxd ends, all sessions end");
        else if (manager->barrier_failed)
                notes_say(notes, NULL, "the service manager is slow to keep descriptors: a restart may lose sessions");
        if (manager->cluster && peers_deaf(manager->cluster->peers))
                notes_say(notes, NULL, "no other node can connect: %s", peers_deaf(manager->cluster->peers));
}

static void notes_closing(struct notes *notes, struct tenant *tenant) {
        if (tenant_closing(tenant) > NOTES_CLOSES_MANY)
                notes_say(notes, tenant, "tenant %s has sent %" PRIu64 " descriptors that take long to close",
                          tenant->name, tenant_closing(tenant));
}

static void notes_refusals(struct notes *notes, struct tenant *tenant, uint64_t now) {
        for (unsigned int kind = 0; kind < CHARGE_KIND_COUNT; kind++) {
                const struct tenant_refusal *last = &tenant->refusals[kind];

                if (last->at_ns && now - last->at_ns < NOTES_REFUSED_NS)
                        notes_say(notes, tenant,
                                  "tenant %s was refused %s %.0f s ago, %" PRIu64 " times so far (limit %" PRIu64 "%s)",
                                  tenant->name, charge_kind_name(kind), control_seconds(now - last->at_ns),
                                  tenant->account.refused[kind], last->limit,
                                  last->whole ? " of all tenants together" : "");
        }
}

static void notes_pairs(struct notes *notes, const struct comm *comm, uint64_t now) {
        char text[COMM_PAIR_TEXT];

        for (uint32_t i = 0; i < comm->statistics.n_pair_waits && !comm->code; i++) {
                const struct comm_pair_wait *wait = &comm->statistics.pair_waits[i];

                if (!wait->stalled)
                        continue;
                executor_report_pair_text(comm, wait, text);
                notes_say(notes, comm->tenant, "communicator %" PRIu64 "%s%s%s: %s for %.1f s", comm->number,
                          comm->name[0] ? " (" : "", comm->name, comm->name[0] ? ")" : "", text,
                          control_seconds(now - wait->since_ns));
        }
}

static void notes_exchange(struct notes *notes, const struct comm *comm, uint64_t now) {
        char text[EXCHANGE_WAIT_TEXT], ranks[CONTROL_RANKS_TEXT];
        struct exchange_wait wait;

        if (!comm->exchange_stall.stalled || !exchange_waits(comm, &wait))
                return;
        exchange_wait_text(&wait, text);
        notes_say(notes, comm->tenant, "communicator %" PRIu64 "%s%s%s: %s has waited for %s%s for %.1f s",
                  comm->number, comm->name[0] ? " (" : "", comm->name, comm->name[0] ? ")" : "", text,
                  control_ranks(wait.missing, ranks), wait.left ? ", which left the communicator," : "",
                  control_seconds(now - wait.since_ns));
}

static void notes_comm(struct notes *notes, const struct comm *comm, uint64_t now) {
        char ranks[CONTROL_RANKS_TEXT];

        notes_pairs(notes, comm, now);
        notes_exchange(notes, comm, now);
        if (comm->stall.at_ns)
                notes_say(notes, comm->tenant, "communicator %" PRIu64 "%s%s%s: %s %u has waited for %s for %.1f s",
                          comm->number, comm->name[0] ? " (" : "", comm->name, comm->name[0] ? ")" : "",
                          plan_operation_name(comm->stall.operation), comm->stall.sequence,
                          comm->stall.missing_ranks ? control_ranks(comm->stall.missing_ranks, ranks)
                          : comm_spans(comm)        ? "ranks of other nodes"
                                                    : "its executor",
                          control_seconds(now - comm->stall.at_ns + comm->stall.waiting_ns));
        if (comm->code && comm->reason[0])
                notes_say(notes, comm->tenant, "communicator %" PRIu64 "%s%s%s failed: %s", comm->number,
                          comm->name[0] ? " (" : "", comm->name, comm->name[0] ? ")" : "", comm->reason);
}

void control_notes_add(struct control_answer *answer, Railmux__Control__Status *status, struct manager *manager) {
        struct notes notes = {.answer = answer, .status = status};
        const struct executor_link *link;
        const struct comm *comm, *next;
        uint64_t now = clock_now_ns();
        struct tenant *tenant;
        size_t n_tenants, n;
        char text[NOTE_TEXT];

        DL_COUNT(manager->links, link, n);
        DL_COUNT(manager->tenants, tenant, n_tenants);
        notes.most = NOTES_DAEMON + n + n_tenants * (NOTES_TENANT + 1);
        notes.tenant_bytes = NOTES_BYTES / (n_tenants ? n_tenants : 1);
        status->notes = control_answer_array(answer, notes.most);
        notes_executors(&notes, manager, now);
        notes_daemon(&notes, manager);
        DL_FOREACH(manager->tenants, tenant) {
                tenant->notes = (struct tenant_notes){0};
                notes_closing(&notes, tenant);
                notes_refusals(&notes, tenant, now);
        }
        HASH_ITER(hh, manager->comms, comm, next) {
                notes_comm(&notes, comm, now);
        }
        DL_FOREACH(manager->tenants, tenant) {
                if (!tenant->notes.more)
                        continue;
                snprintf(text, sizeof(text), "tenant %s: and %u more, see railmuxctl comms", tenant->name,
                         tenant->notes.more);
                notes_put(&notes, text);
        }
}
