/* SPDX-License-Identifier: MIT */
/* Rails and routes, as tables and as JSON. */
#include "tools/ctl/show.h"

#include "tools/ctl/answer.h"
#include "tools/ctl/json.h"
#include "tools/ctl/table.h"
#include <inttypes.h>

#define LIST_MAX  512u
#define LIST_ITEM 32u

static int show_rails_end(struct table *table, FILE *out) {
        int r = table_print(table, out);

        table_deinit(table);
        return r;
}

/* "0-3, 6", of numbers that grow. */
static const char *list_numbers(const uint32_t *numbers, size_t n, char out[LIST_MAX]) {
        size_t length = 0;

        out[0] = '\0';
        for (size_t i = 0; i < n && length + LIST_ITEM < LIST_MAX; i++) {
                size_t first = i;

                while (i + 1 < n && numbers[i + 1] == numbers[i] + 1)
                        i++;
                length += (size_t)snprintf(out + length, LIST_ITEM, "%s%" PRIu32, length ? ", " : "", numbers[first]);
                if (i > first)
                        length += (size_t)snprintf(out + length, LIST_ITEM, "-%" PRIu32, numbers[i]);
        }
        return out;
}

int show_rails(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const headers[] = {"RAIL",      "KIND",      "ADDRESS",      "STATE",   ">SENT",
                                              ">RECEIVED", ">MESSAGES", ">CONNECTIONS", ">QUEUED", ">IN FLIGHT",
                                              ">RATE",     ">REFUSED",  "GPUS",         "ERROR",   NULL};
        char list[LIST_MAX];
        struct table table;

        (void)options;
        table_init(&table, headers);
        for (size_t i = 0; i < answer->n_rail_rows; i++) {
                const Railmux__Control__Rail *r = answer->rail_rows[i];

                table_cell(&table, "%s", r->name);
                table_cell(&table, "%s", r->kind);
                table_cell(&table, "%s", r->address);
                table_cell(&table, "%s", r->state);
                table_size(&table, r->bytes_sent);
                table_size(&table, r->bytes_received);
                table_cell(&table, "%" PRIu64, r->messages_sent + r->messages_received);
                table_cell(&table, "%u", r->connections);
                table_size(&table, r->queued_bytes);
                table_size(&table, r->flight_bytes);
                table_cell(&table, "%.2f GB/s", (double)r->bytes_per_second / 1e9);
                table_cell(&table, "%" PRIu64, r->refused);
                table_cell(&table, "%s", list_numbers(r->gpus, r->n_gpus, list));
                table_cell(&table, "%s", r->error);
        }
        return show_rails_end(&table, out);
}

int show_routes(const struct answer *answer, const struct show_options *options, FILE *out) {
        static const char *const headers[] = {"RAIL",    "NODE",         "ADDRESS",    "CLASS", "STATE",
                                              ">SINCE",  ">CONNECTIONS", ">MESSAGES",  ">DATA", ">RESENT",
                                              ">ERRORS", ">QUEUED",      ">IN FLIGHT", NULL};
        struct table table;

        (void)options;
        table_init(&table, headers);
        for (size_t i = 0; i < answer->n_routes; i++) {
                const Railmux__Control__Route *r = answer->routes[i];

                table_cell(&table, "%s", r->rail);
                table_cell(&table, "%s (%.8s)", r->peer, r->node);
                table_cell(&table, "%s", r->address);
                table_cell(&table, "%s", r->traffic_class);
                table_cell(&table, "%s", r->state);
                table_age(&table, r->since_ns);
                table_cell(&table, "%" PRIu64 "%s", r->connections, r->connected ? "" : ", none now");
                table_cell(&table, "%" PRIu64, r->messages_sent);
                table_size(&table, r->data_sent);
                table_cell(&table, "%" PRIu64, r->retransmitted);
                table_cell(&table, "%" PRIu64, r->errors);
                table_size(&table, r->queued_bytes);
                table_size(&table, r->flight_bytes);
        }
        return show_rails_end(&table, out);
}

json_t *json_carried(const Railmux__Control__Carried *carried) {
        json_t *o = json_object();

        o = json_with(o, "rail", json_text(carried->rail));
        o = json_with(o, "chunks_sent", json_number(carried->chunks_sent));
        o = json_with(o, "credits_sent", json_number(carried->credits_sent));
        o = json_with(o, "data_sent", json_number(carried->data_sent));
        o = json_with(o, "chunks_received", json_number(carried->chunks_received));
        o = json_with(o, "credits_received", json_number(carried->credits_received));
        o = json_with(o, "data_received", json_number(carried->data_received));
        return o;
}

static json_t *json_gpu_list(const Railmux__Control__Rail *rail) {
        json_t *list = json_array();

        for (size_t i = 0; i < rail->n_gpus; i++)
                list = json_with_row(list, json_number(rail->gpus[i]));
        return list;
}

json_t *json_rails(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_rail_rows; i++) {
                const Railmux__Control__Rail *r = answer->rail_rows[i];
                json_t *o = json_object();

                o = json_with(o, "name", json_text(r->name));
                o = json_with(o, "kind", json_text(r->kind));
                o = json_with(o, "address", json_text(r->address));
                o = json_with(o, "state", json_text(r->state));
                o = json_with(o, "bytes_sent", json_number(r->bytes_sent));
                o = json_with(o, "bytes_received", json_number(r->bytes_received));
                o = json_with(o, "messages_sent", json_number(r->messages_sent));
                o = json_with(o, "messages_received", json_number(r->messages_received));
                o = json_with(o, "queued_bytes", json_number(r->queued_bytes));
                o = json_with(o, "flight_bytes", json_number(r->flight_bytes));
                o = json_with(o, "bytes_per_second", json_number(r->bytes_per_second));
                o = json_with(o, "connections", json_number(r->connections));
                o = json_with(o, "refused", json_number(r->refused));
                o = json_with(o, "error", json_text(r->error));
                o = json_with(o, "carried", r->carried ? json_carried(r->carried) : json_null());
                o = json_with(o, "gpus", json_gpu_list(r));
                rows = json_with_row(rows, o);
        }
        return rows;
}

json_t *json_routes(const struct answer *answer) {
        json_t *rows = json_array();

        for (size_t i = 0; i < answer->n_routes; i++) {
                const Railmux__Control__Route *r = answer->routes[i];
                json_t *o = json_object();

                o = json_with(o, "rail", json_text(r->rail));
                o = json_with(o, "peer", json_text(r->peer));
                o = json_with(o, "node", json_text(r->node));
                o = json_with(o, "address", json_text(r->address));
                o = json_with(o, "class", *r->traffic_class ? json_text(r->traffic_class) : json_null());
                o = json_with(o, "state", json_text(r->state));
                o = json_with(o, "connected", json_boolean(r->connected));
                o = json_with(o, "since_ns", json_number(r->since_ns));
                o = json_with(o, "connections", json_number(r->connections));
                o = json_with(o, "retransmitted", json_number(r->retransmitted));
                o = json_with(o, "errors", json_number(r->errors));
                o = json_with(o, "queued_bytes", json_number(r->queued_bytes));
                o = json_with(o, "flight_bytes", json_number(r->flight_bytes));
                o = json_with(o, "messages_sent", json_number(r->messages_sent));
                o = json_with(o, "data_sent", json_number(r->data_sent));
                rows = json_with_row(rows, o);
        }
        return rows;
}
