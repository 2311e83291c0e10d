/* SPDX-License-Identifier: MIT */
/*
 * The documents are described in docs/schema/. Members are never removed or given another meaning within one "version";
 * programs must bear new ones. Times are nanoseconds and sizes bytes, both integers.
 *
 * jansson's "new" functions accept NULL and then fail, so building needs one check, at the end: a document that lacks
 * something because memory was short must not go out. That is why every step reports.
 */
#include "railmux/railmux.h"
#include "tools/ctl/json.h"
#include "tools/ctl/ranks.h"
#include "tools/ctl/show.h"
#include "util/result.h"

static json_t *json_executor(const Railmux__Control__Executor *e) {
        json_t *o = json_object();

        o = json_with(o, "name", json_text(e->name));
        o = json_with(o, "backend", json_text(e->backend));
        o = json_with(o, "state", json_text(e->state));
        o = json_with(o, "pid", json_number(e->pid));
        o = json_with(o, "gpus", json_number(e->gpus));
        o = json_with(o, "workers", json_number(e->workers));
        o = json_with(o, "losses", json_number(e->losses));
        o = json_with(o, "uptime_ns", json_number(e->uptime_ns));
        return o;
}

json_t *json_status(const struct answer *answer) {
        const Railmux__Control__Status *s = answer->status;
        json_t *o = json_object(), *executors = json_array(), *notes = json_array();

        for (size_t i = 0; s && i < s->n_executors; i++)
                executors = json_with_row(executors, json_executor(s->executors[i]));
        for (size_t i = 0; s && i < s->n_notes; i++)
                notes = json_with_row(notes, json_text(s->notes[i]));
        if (s) {
                o = json_with(o, "state", json_text(s->state));
                o = json_with(o, "pid", json_number(s->pid));
                o = json_with(o, "daemon_version", json_text(s->version));
                o = json_with(o, "uptime_ns", json_number(s->uptime_ns));
                o = json_with(o, "restarts", json_number(s->restarts));
                o = json_with(o, "sessions", json_number(s->sessions));
                o = json_with(o, "comms", json_number(s->comms));
                o = json_with(o, "tenants", json_number(s->tenants));
                o = json_with(o, "client_socket", json_text(s->client_socket));
                o = json_with(o, "config", *s->config ? json_text(s->config) : json_null());
        }
        o = json_with(o, "executors", executors);
        o = json_with(o, "notes", notes);
        return o;
}

json_t *json_tenants(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_tenants; i++) {
                const Railmux__Control__Tenant *t = answer->tenants[i];
                json_t *o = json_object(), *usage = json_array();

                for (size_t k = 0; k < t->n_usage; k++) {
                        json_t *u = json_object();

                        u = json_with(u, "resource", json_text(t->usage[k]->what));
                        u = json_with(u, "used", json_number(t->usage[k]->used));
                        u = json_with(u, "limit", json_number(t->usage[k]->limit));
                        u = json_with(u, "refused", json_number(t->usage[k]->refused));
                        usage = json_with_row(usage, u);
                }
                o = json_with(o, "name", json_text(t->name));
                /* An older railmuxd may not say what these are. */
                o = json_with(o, "weight", t->weight ? json_number(t->weight) : json_null());
                o = json_with(o, "class", *t->traffic_class ? json_text(t->traffic_class) : json_null());
                o = json_with(o, "rails", *t->rails ? json_text(t->rails) : json_null());
                o = json_with(o, "usage", usage);
                rows = json_with_row(rows, o);
        }
        return rows;
}

json_t *json_sessions(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_sessions; i++) {
                const Railmux__Control__Session *s = answer->sessions[i];
                json_t *o = json_object();

                o = json_with(o, "session", json_number(s->session));
                o = json_with(o, "pid", json_number(s->pid));
                o = json_with(o, "uid", json_number(s->uid));
                o = json_with(o, "name", json_text(s->name));
                o = json_with(o, "tenant", json_text(s->tenant));
                o = json_with(o, "rings", json_number(s->rings));
                o = json_with(o, "buffers", json_number(s->buffers));
                o = json_with(o, "bytes", json_number(s->bytes));
                o = json_with(o, "comms", json_number(s->comms));
                o = json_with(o, "age_ns", json_number(s->age_ns));
                rows = json_with_row(rows, o);
        }
        return rows;
}

static json_t *json_members(const Railmux__Control__Comm *c) {
        json_t *rows = json_array();

        for (size_t i = 0; i < c->n_members; i++) {
                const Railmux__Control__Member *m = c->members[i];
                json_t *o = json_object();

                o = json_with(o, "rank", json_number(m->rank));
                o = json_with(o, "session", json_number(m->session));
                o = json_with(o, "pid", json_number(m->pid));
                o = json_with(o, "gpu", json_number(m->gpu));
                o = json_with(o, "last_sequence", json_number(m->rung));
                o = json_with(o, "left", json_boolean(m->left));
                o = json_with(o, "exchanged", json_number(m->exchanged));
                o = json_with(o, "awaited", json_boolean(ranks_awaited(c, m)));
                o = json_with(o, "node", *m->node ? json_text(m->node) : json_null());
                rows = json_with_row(rows, o);
        }
        return rows;
}

static json_t *json_comm_carried(const Railmux__Control__Comm *c) {
        json_t *rows = json_array();

        for (size_t i = 0; i < c->n_carried; i++)
                rows = json_with_row(rows, json_carried(c->carried[i]));
        return rows;
}

json_t *json_comms(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_comms; i++) {
                const Railmux__Control__Comm *c = answer->comms[i];
                json_t *o = json_object();

                o = json_with(o, "comm", json_number(c->comm));
                o = json_with(o, "name", json_text(c->name));
                o = json_with(o, "tenant", json_text(c->tenant));
                o = json_with(o, "n_ranks", json_number(c->n_ranks));
                o = json_with(o, "joined", json_number(c->joined));
                o = json_with(o, "state", json_text(c->state));
                o = json_with(o, "epoch", json_number(c->epoch));
                o = json_with(o, "final_sequence", json_number(c->final_sequence));
                o = json_with(o, "operations", json_number(c->operations));
                o = json_with(o, "exchanged", json_number(c->exchanged));
                o = json_with(o, "bytes", json_number(c->bytes));
                o = json_with(o, "lost", json_number(c->lost));
                o = json_with(o, "staging_bytes", json_number(c->staging_bytes));
                o = json_with(o, "error", c->error ? json_text(result_name(c->error)) : json_null());
                o = json_with(o, "failed_rank",
                              c->error && c->failed_rank >= 0 ? json_integer(c->failed_rank) : json_null());
                o = json_with(o, "reason", *c->reason ? json_text(c->reason) : json_null());
                o = json_with(o, "waiting", *c->waiting ? json_text(c->waiting) : json_null());
                o = json_with(o, "nodes", json_number(c->nodes));
                o = json_with(o, "class", *c->traffic_class ? json_text(c->traffic_class) : json_null());
                o = json_with(o, "members", json_members(c));
                o = json_with(o, "carried", json_comm_carried(c));
                rows = json_with_row(rows, o);
        }
        return rows;
}

json_t *json_peers(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_peers; i++) {
                const Railmux__Control__Peer *p = answer->peers[i];
                json_t *o = json_object();

                o = json_with(o, "name", json_text(p->name));
                o = json_with(o, "node", *p->node ? json_text(p->node) : json_null());
                o = json_with(o, "address", json_text(p->address));
                o = json_with(o, "state", json_text(p->state));
                o = json_with(o, "boot", json_number(p->boot));
                o = json_with(o, "protocol", json_number(p->protocol));
                o = json_with(o, "since_ns", json_number(p->since_ns));
                o = json_with(o, "tls", json_boolean(p->tls));
                o = json_with(o, "dialled", json_boolean(p->dialled));
                o = json_with(o, "holds", json_number(p->holds));
                o = json_with(o, "sent_messages", json_number(p->sent_messages));
                o = json_with(o, "sent_bytes", json_number(p->sent_bytes));
                o = json_with(o, "received_messages", json_number(p->received_messages));
                o = json_with(o, "received_bytes", json_number(p->received_bytes));
                o = json_with(o, "queued_bytes", json_number(p->queued_bytes));
                o = json_with(o, "round_trip_ns", json_number(p->round_trip_ns));
                o = json_with(o, "losses", json_number(p->losses));
                o = json_with(o, "attempts", json_number(p->attempts));
                o = json_with(o, "error", *p->error ? json_text(p->error) : json_null());
                o = json_with(o, "cluster", *p->cluster ? json_text(p->cluster) : json_null());
                rows = json_with_row(rows, o);
        }
        return rows;
}

json_t *json_gpus(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_gpus; i++) {
                const Railmux__Control__Gpu *g = answer->gpus[i];
                json_t *o = json_object();

                o = json_with(o, "gpu", json_number(g->index));
                o = json_with(o, "name", json_text(g->name));
                o = json_with(o, "executor", json_text(g->executor));
                o = json_with(o, "memory_bytes", json_number(g->memory_bytes));
                o = json_with(o, "rings", json_number(g->rings));
                o = json_with(o, "comms", json_number(g->comms));
                o = json_with(o, "state", json_text(g->state));
                o = json_with(o, "pci", *g->pci ? json_text(g->pci) : json_null());
                o = json_with(o, "policy", *g->policy ? json_text(g->policy) : json_null());
                o = json_with(o, "resident_blocks", json_number(g->resident_blocks));
                o = json_with(o, "parked", json_boolean(g->parked));
                o = json_with(o, "staging_bytes", json_number(g->staging_bytes));
                o = json_with(o, "staging_used_bytes", json_number(g->staging_used));
                o = json_with(o, "buffers_mapped", json_number(g->buffers_mapped));
                o = json_with(o, "buffers_reached", json_number(g->buffers_reached));
                rows = json_with_row(rows, o);
        }
        return rows;
}

json_t *json_metrics(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_metrics; i++) {
                const Railmux__Control__Metric *m = answer->metrics[i];
                json_t *o = json_object(), *labels = json_object();

                for (size_t k = 0; k < m->n_labels; k++)
                        labels = json_with(labels, m->labels[k]->name, json_text(m->labels[k]->value));
                o = json_with(o, "name", json_text(m->name));
                o = json_with(o, "help", json_text(m->help));
                o = json_with(o, "kind", json_text(m->kind));
                o = json_with(o, "labels", labels);
                o = json_with(o, "value", json_real(m->value));
                rows = json_with_row(rows, o);
        }
        return rows;
}

json_t *json_drain(const struct answer *answer) {
        const Railmux__Control__Drained *d = answer->drained;
        json_t *o = json_object();

        if (d) {
                o = json_with(o, "executor", json_text(d->executor));
                o = json_with(o, "old_pid", json_number(d->old_pid));
                o = json_with(o, "pid", json_number(d->pid));
                o = json_with(o, "comms", json_number(d->comms));
                o = json_with(o, "lost", json_number(d->lost));
                o = json_with(o, "duration_ns", json_number(d->duration_ns));
        }
        return o;
}

json_t *json_reload(const struct answer *answer) {
        json_t *o = json_object();

        o = json_with(o, "done", json_boolean(true));
        o = json_with(o, "note", answer->message ? json_text(answer->message) : json_null());
        return o;
}

json_t *json_version(const struct answer *answer) {
        const Railmux__Control__Version *v = answer->daemon_version;
        json_t *o = json_object();

        o = json_with(o, "railmuxctl",
                      json_sprintf("%d.%d.%d", RMX_VERSION_MAJOR, RMX_VERSION_MINOR, RMX_VERSION_PATCH));
        if (v) {
                o = json_with(o, "railmuxd", json_text(v->version));
                o = json_with(o, "session_protocol", json_number(v->session_protocol));
                o = json_with(o, "executor_protocol", json_number(v->executor_protocol));
                o = json_with(o, "control_protocol", json_number(v->control_protocol));
                o = json_with(o, "ring_abi", json_number(v->ring_abi));
                o = json_with(o, "state_version", json_number(v->state_version));
        }
        return o;
}
