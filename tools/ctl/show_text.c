/* SPDX-License-Identifier: MIT */
#include "railmux/railmux.h"
#include "tools/ctl/ranks.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"
#include "util/cleanup.h"
#include "util/parse.h"
#include "util/result.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHOW_RANKS_MAX 1024u

static int show_end(struct table *table, FILE *out) {
        int r = table_print(table, out);

        table_deinit(table);
        return r;
}

static void show_line(FILE *out, const char *label, const char *text) {
        _cleanup_free_ char *copy = strdup(text);

        fprintf(out, "%-14s %s\n", label, copy ? table_clean(copy) : "");
}

int show_status(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const headers[] = {"EXECUTOR", "BACKEND", "STATE", ">PID", ">GPUS",
                                              ">WORKERS", ">LOSSES", ">UP",   NULL};
        const Railmux__Control__Status *status = answer->status;
        struct table table;
        char age[32];
        int r;

        (void)options;
        if (!status)
                return -EBADMSG;
        show_line(out, "state", status->state);
        fprintf(out, "%-14s %s, pid %u, up %s, %" PRIu64 " restarts survived\n", "railmuxd", status->version,
                status->pid, table_age_text(status->uptime_ns, age), status->restarts);
        show_line(out, "socket", status->client_socket);
        show_line(out, "configuration", *status->config ? status->config : "defaults (no file)");
        fprintf(out, "%-14s %u sessions, %u communicators, %u tenants\n\n", "serving", status->sessions, status->comms,
                status->tenants);
        table_init(&table, headers);
        for (size_t i = 0; i < status->n_executors; i++) {
                const Railmux__Control__Executor *e = status->executors[i];

                table_cell(&table, "%s", e->name);
                table_cell(&table, "%s", e->backend);
                table_cell(&table, "%s", e->state);
                if (e->pid)
                        table_cell(&table, "%u", e->pid);
                else
                        table_cell(&table, "-");
                table_cell(&table, "%u", e->gpus);
                table_cell(&table, "%u", e->workers);
                table_cell(&table, "%" PRIu64, e->losses);
                table_age(&table, e->uptime_ns);
        }
        r = show_end(&table, out);
        for (size_t i = 0; !r && i < status->n_notes; i++) {
                if (!i)
                        fputc('\n', out);
                show_line(out, "note", status->notes[i]);
        }
        return r;
}

int show_tenants(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const headers[] = {"TENANT", ">WEIGHT", "CLASS",    "RAILS", "RESOURCE",
                                              ">USED",  ">LIMIT",  ">REFUSED", NULL};
        struct table table;

        (void)options;
        table_init(&table, headers);
        for (size_t i = 0; i < answer->n_tenants; i++) {
                for (size_t k = 0; k < answer->tenants[i]->n_usage; k++) {
                        const Railmux__Control__Usage *usage = answer->tenants[i]->usage[k];

                        table_cell(&table, "%s", answer->tenants[i]->name);
                        if (answer->tenants[i]->weight)
                                table_cell(&table, "%" PRIu32, answer->tenants[i]->weight);
                        else
                                table_cell(&table, "-"); /* an older railmuxd, as the next */
                        table_cell(&table, "%s", answer->tenants[i]->traffic_class);
                        table_cell(&table, "%s", *answer->tenants[i]->rails ? answer->tenants[i]->rails : "all");
                        table_cell(&table, "%s", usage->what);
                        if (strcmp(usage->what, "bytes") == 0) {
                                table_size(&table, usage->used);
                                table_size(&table, usage->limit);
                        } else {
                                table_cell(&table, "%" PRIu64, usage->used);
                                table_cell(&table, "%" PRIu64, usage->limit);
                        }
                        table_cell(&table, "%" PRIu64, usage->refused);
                }
        }
        return show_end(&table, out);
}

int show_sessions(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const headers[] = {">SESSION", ">PID",    ">UID",   "NAME", "TENANT", ">RINGS",
                                              ">BUFFERS", ">MEMORY", ">COMMS", ">AGE", NULL};
        struct table table;

        (void)options;
        table_init(&table, headers);
        for (size_t i = 0; i < answer->n_sessions; i++) {
                const Railmux__Control__Session *s = answer->sessions[i];

                table_cell(&table, "%" PRIu64, s->session);
                table_cell(&table, "%u", s->pid);
                table_cell(&table, "%u", s->uid);
                table_cell(&table, "%s", s->name);
                table_cell(&table, "%s", s->tenant);
                table_cell(&table, "%u", s->rings);
                table_cell(&table, "%u", s->buffers);
                table_size(&table, s->bytes);
                table_cell(&table, "%u", s->comms);
                table_age(&table, s->age_ns);
        }
        return show_end(&table, out);
}

static void show_comm_members(struct table *table, const Railmux__Control__Comm *comm) {
        for (size_t i = 0; i < comm->n_members; i++) {
                const Railmux__Control__Member *m = comm->members[i];
                char exchanged[32] = "";

                if (*m->node) {
                        table_note(table, "rank %-2u  GPU %-2u  on node %s%s", m->rank, m->gpu, m->node,
                                   m->left ? "  left" : "");
                        continue;
                }
                if (comm->exchanged || m->exchanged)
                        snprintf(exchanged, sizeof(exchanged), "  exchanged %u", m->exchanged);
                table_note(table, "rank %-2u  GPU %-2u  pid %-7u  session %-5" PRIu64 "  last %u%s%s%s", m->rank,
                           m->gpu, m->pid, m->session, m->rung, exchanged, m->left ? "  left" : "",
                           ranks_awaited(comm, m) ? "  <- waited for" : "");
        }
}

int show_comms(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const headers[] = {">COMM",    "NAME",        "TENANT",      ">RANKS", "STATE",
                                              ">EPOCH",   ">FINAL",      ">OPERATIONS", ">BYTES", ">LOST",
                                              ">STAGING", "WAITING FOR", NULL};
        char text[SHOW_RANKS_MAX];
        struct table table;

        table_init(&table, headers);
        for (size_t i = 0; i < answer->n_comms; i++) {
                const Railmux__Control__Comm *c = answer->comms[i];

                table_cell(&table, "%" PRIu64, c->comm);
                table_cell(&table, "%s", c->name);
                table_cell(&table, "%s", c->tenant);
                table_cell(&table, "%u/%u", c->joined, c->n_ranks);
                table_cell(&table, "%s", c->state);
                table_cell(&table, "%u", c->epoch);
                table_cell(&table, "%u", c->final_sequence);
                table_cell(&table, "%" PRIu64, c->operations);
                table_size(&table, c->bytes);
                table_cell(&table, "%" PRIu64, c->lost);
                table_size(&table, c->staging_bytes);
                table_cell(&table, "%s", c->waiting);
                if (c->error && c->failed_rank >= 0)
                        table_note(&table, "error: %s, caused by rank %d%s%s", result_name(c->error), c->failed_rank,
                                   *c->reason ? ": " : "", c->reason);
                else if (c->error)
                        table_note(&table, "error: %s%s%s", result_name(c->error), *c->reason ? ": " : "", c->reason);
                if (c->nodes > 1)
                        table_note(&table, "over %u nodes; ranks here:", c->nodes);
                if (options->ranks)
                        show_comm_members(&table, c);
                else if (*ranks_text(c, text, sizeof(text)))
                        table_note(&table, "last sequence %s", text);
        }
        return show_end(&table, out);
}

/* What only real GPUs have. */
static void show_gpu_device(struct table *table, const Railmux__Control__Gpu *g) {
        char used[16], whole[16];

        table_cell(table, "%s", *g->pci ? g->pci : "-");
        table_cell(table, "%s", *g->policy ? g->policy : "-");
        if (!*g->policy)
                table_cell(table, "-");
        else if (g->parked)
                table_cell(table, "parked");
        else
                table_cell(table, "%u", g->resident_blocks);
        table_cell(table, "%s/%s", format_size(g->staging_used, used, sizeof(used)),
                   format_size(g->staging_bytes, whole, sizeof(whole)));
        table_cell(table, "%u", g->buffers_reached);
}

int show_peers(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const headers[] = {"NODE",      "ID",      "ADDRESS", "STATE", ">SINCE",
                                              ">PROTOCOL", "TLS",     "DIALLED", ">RTT",  ">SENT",
                                              ">RECEIVED", ">QUEUED", ">LOSSES", "ERROR", NULL};
        struct table table;

        (void)options;
        table_init(&table, headers);
        for (size_t i = 0; i < answer->n_peers; i++) {
                const Railmux__Control__Peer *p = answer->peers[i];
                bool self = strcmp(p->state, "self") == 0, up = strcmp(p->state, "up") == 0;

                table_cell(&table, "%s", p->name);
                table_cell(&table, "%.8s", p->node);
                table_cell(&table, "%s", p->address);
                table_cell(&table, "%s", p->state);
                if (p->since_ns)
                        table_age(&table, p->since_ns);
                else
                        table_cell(&table, "%s", "");
                if (p->protocol)
                        table_cell(&table, "%u", p->protocol);
                else
                        table_cell(&table, "%s", "");
                table_cell(&table, "%s", !self && !up ? "" : p->tls ? "yes" : "no");
                table_cell(&table, "%s", !up ? "" : p->dialled ? "here" : "there");
                if (p->round_trip_ns)
                        table_cell(&table, "%.0f us", (double)p->round_trip_ns / 1e3);
                else
                        table_cell(&table, "%s", "");
                table_cell(&table, "%" PRIu64, p->sent_messages);
                table_cell(&table, "%" PRIu64, p->received_messages);
                table_size(&table, p->queued_bytes);
                table_cell(&table, "%" PRIu64, p->losses);
                table_cell(&table, "%s", p->error);
        }
        return show_end(&table, out);
}

int show_gpus(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const emulated[] = {">GPU",   "NAME",   "EXECUTOR", ">MEMORY",
                                               ">RINGS", ">COMMS", "STATE",    NULL};
        static const char *const real[] = {">GPU", "NAME",   "EXECUTOR", ">MEMORY",  ">RINGS",   ">COMMS", "STATE",
                                           "PCI",  "POLICY", ">BLOCKS",  ">STAGING", ">REACHED", NULL};
        struct table table;
        bool device = false;

        (void)options;
        for (size_t i = 0; i < answer->n_gpus; i++)
                device = device || *answer->gpus[i]->pci || answer->gpus[i]->staging_bytes;
        table_init(&table, device ? real : emulated);
        for (size_t i = 0; i < answer->n_gpus; i++) {
                const Railmux__Control__Gpu *g = answer->gpus[i];

                table_cell(&table, "%u", g->index);
                table_cell(&table, "%s", g->name);
                table_cell(&table, "%s", g->executor);
                table_size(&table, g->memory_bytes);
                table_cell(&table, "%u", g->rings);
                table_cell(&table, "%u", g->comms);
                table_cell(&table, "%s", g->state);
                if (device)
                        show_gpu_device(&table, g);
        }
        return show_end(&table, out);
}

int show_drain(const struct answer *answer, const struct show_options *options, FILE *out) {
        const Railmux__Control__Drained *d = answer->drained;

        (void)options;
        if (!d)
                return -EBADMSG;
        fprintf(out, "executor %s: pid %u has taken the place of pid %u after %.1f s; %u of %u communicators go on\n",
                d->executor, d->pid, d->old_pid, (double)d->duration_ns / 1e9, d->comms - d->lost, d->comms);
        return 0;
}

int show_reload(const struct answer *answer, const struct show_options *options, FILE *out) {
        (void)options;
        if (answer->message)
                show_line(out, "note", answer->message);
        return 0;
}

int show_version(const struct answer *answer, const struct show_options *options, FILE *out) {
        const Railmux__Control__Version *v = answer->daemon_version;

        (void)options;
        if (!v)
                return -EBADMSG;
        fprintf(out, "railmuxctl  %d.%d.%d\n", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH);
        fprintf(out, "railmuxd    %s\n", v->version);
        fprintf(out, "protocols   session %u, executor %u, control %u; ring ABI %u; state %u\n", v->session_protocol,
                v->executor_protocol, v->control_protocol, v->ring_abi, v->state_version);
        return 0;
}

/* quote: label values are in quotes, help texts are not. */
static void show_escaped(const char *text, bool quote, FILE *out) {
        for (; *text; text++) {
                if (*text == '\\' || (quote && *text == '"'))
                        fputc('\\', out);
                if (*text == '\n')
                        fputs("\\n", out);
                else
                        fputc(*text, out);
        }
}

/* The shortest text that reads back as the same number. */
static void show_number(double value, FILE *out) {
        char text[40];

        for (int digits = 15; digits <= 17; digits++) {
                snprintf(text, sizeof(text), "%.*g", digits, value);
                if (strtod(text, NULL) == value)
                        break;
        }
        fputs(text, out);
}

int show_metrics(const struct answer *answer, const struct show_options *options, FILE *out) {
        const char *last = "";

        (void)options;
        for (size_t i = 0; i < answer->n_metrics; i++) {
                const Railmux__Control__Metric *m = answer->metrics[i];

                if (strcmp(m->name, last) != 0) {
                        fprintf(out, "# HELP %s ", m->name);
                        show_escaped(m->help, false, out);
                        fprintf(out, "\n# TYPE %s %s\n", m->name, m->kind);
                        last = m->name;
                }
                fputs(m->name, out);
                for (size_t k = 0; k < m->n_labels; k++) {
                        fprintf(out, "%s%s=\"", k ? "," : "{", m->labels[k]->name);
                        show_escaped(m->labels[k]->value, true, out);
                        fputc('"', out);
                }
                fputs(m->n_labels ? "} " : " ", out);
                show_number(m->value, out);
                fputc('\n', out);
        }
        return 0;
}
