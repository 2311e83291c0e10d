/* SPDX-License-Identifier: MIT */
/*
 * The daemons of a scenario. Their control channels are on loopback, as a network for management would be, and so are
 * not touched by what happens to rails. Two GPUs and one worker thread for each node: the guest has two slow processors
 * for all of them.
 */
#include "tests/vm/fleet.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define LINK_MS 20000u
#define CERT_MS 60000u
#define TRIPS   5u

/* ---- starting and ending ----------------------------------------------------------------------------------------- */
static void add(struct fleet *fleet, uint32_t node, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(struct fleet *fleet, uint32_t node, const char *format, ...) {
        va_list values;
        uint32_t n = 0;

        while (fleet->arguments[node][n])
                n++;
        assert_true(n < FLEET_ARGUMENTS_MAX);
        va_start(values, format);
        vsnprintf(fleet->text[node][n], sizeof(fleet->text[node][n]), format, values);
        va_end(values);
        fleet->arguments[node][n] = fleet->text[node][n];
}

/* What has no option goes into a file. */
static void add_config(struct fleet *fleet, uint32_t node, enum fleet_security security) {
        const char *folder = getenv("RAILMUX_VM_CERTIFICATES"), *name = security == FLEET_TLS ? "cluster" : "others";
        char path[128];
        FILE *file;

        snprintf(path, sizeof(path), "/tmp/railmux-vm-%c.yaml", (int)('a' + node));
        file = fopen(path, "we");
        assert_non_null(file);
        fprintf(file, "peer:\n  plain: %s\n", security == FLEET_PLAIN ? "yes" : "no");
        if (fleet->lost_ms)
                fprintf(file, "  heartbeat_ms: %u\n  lost_ms: %u\n", fleet->lost_ms / 4, fleet->lost_ms);
        if (security != FLEET_PLAIN) {
                assert_non_null(folder); /* tests/vm/run makes it */
                fprintf(file, "  ca: %s/%s/ca.crt\n  certificate: %s/%s/node%u.crt\n  key: %s/%s/node%u.key\n", folder,
                        name, folder, name, node + 1, folder, name, node + 1);
        }
        assert_int_equal(fclose(file), 0);
        add(fleet, node, "--config");
        add(fleet, node, "%s", path);
}

void fleet_start_node(struct fleet *fleet, uint32_t node, enum fleet_security security) {
        char name[128];

        assert_true(node < FLEET_NODES_MAX && fleet->n_rails <= FLEET_RAILS_MAX);
        fleet->arguments[node][0] = NULL;
        memset(fleet->arguments[node], 0, sizeof(fleet->arguments[node]));
        add(fleet, node, "--workers");
        add(fleet, node, "1");
        add_config(fleet, node, security);
        for (uint32_t rail = 0; rail < fleet->n_rails; rail++) {
                bool plain_kind = strcmp(fleet->transport, "tcp") == 0;
                char timeout[32] = "";

                if (!plain_kind && fleet->timeout)
                        snprintf(timeout, sizeof(timeout), ",timeout=%u", fleet->timeout);
                add(fleet, node, "--rail");
                add(fleet, node, "rail%u=10.77.%u.%u,device=%c%u%s%s%s", rail, rail, node + 1, (int)('a' + node), rail,
                    plain_kind ? "" : ",kind=", plain_kind ? "" : fleet->transport, timeout);
        }
        fleet->node[node].gpus = 2;
        fleet->node[node].listens = true;
        fleet->node[node].more = fleet->arguments[node];
        snprintf(name, sizeof(name), "vm-%s-%s-%c", fleet->transport, fleet->name, (int)('a' + node));
        node_start(&fleet->node[node], name, false);
}

void fleet_start(struct fleet *fleet) {
        print_message("%s between daemons\n", fleet->security == FLEET_TLS ? "TLS" : "no TLS");
        for (uint32_t node = 0; node < fleet->n_nodes; node++)
                fleet_start_node(fleet, node, fleet->security);
}

void fleet_stop(struct fleet *fleet) {
        nodes_stop(fleet->node, FLEET_NODES_MAX);
}

void fleet_cleanup(struct fleet *fleet) {
        team_cleanup(&fleet->team);
        nodes_cleanup(fleet->node, FLEET_NODES_MAX);
        for (uint32_t node = 0; node < fleet->n_nodes; node++)
                for (uint32_t rail = 0; rail < fleet->n_rails; rail++) {
                        (void)fleet_link(fleet, node, rail, "ok", NULL);
                        (void)fleet_link(fleet, node, rail, "up", NULL);
                }
}

void fleet_sockets(const struct fleet *fleet, uint32_t nodes, char text[1024]) {
        size_t used = 0;

        text[0] = '\0';
        for (uint32_t node = 0; node < FLEET_NODES_MAX; node++)
                if (nodes >> node & 1)
                        used += (size_t)snprintf(text + used, 1024 - used, "%s%s", used ? "," : "",
                                                 fleet->node[node].socket);
}

void fleet_log_mark(struct fleet *fleet) {
        for (uint32_t node = 0; node < fleet->n_nodes; node++) {
                struct stat st;

                assert_int_equal(stat(fleet->node[node].log, &st), 0);
                fleet->log_from[node] = (long)st.st_size;
        }
}

bool fleet_log_has(const struct fleet *fleet, uint32_t node, const char *word) {
        char line[1024];
        FILE *file = fopen(fleet->node[node].log, "re");
        bool found = false;

        if (file)
                assert_int_equal(fseek(file, fleet->log_from[node], SEEK_SET), 0);
        while (file && !found && fgets(line, sizeof(line), file))
                found = strstr(line, word) != NULL;
        if (file)
                fclose(file);
        return found;
}

struct log_wait {
        const struct fleet *fleet;
        uint32_t node;
        const char *word;
};

static bool log_has(void *argument) {
        const struct log_wait *w = argument;

        return fleet_log_has(w->fleet, w->node, w->word);
}

bool fleet_await_log(const struct fleet *fleet, uint32_t node, const char *word, uint32_t timeout_ms) {
        struct log_wait w = {fleet, node, word};

        return proc_await(log_has, &w, (uint32_t)(timeout_ms * proc_time_scale()));
}

/* ---- cables ------------------------------------------------------------------------------------------------------ */
/* What vm-link does, but for the time that it takes to start it and ip(8), a tenth of a second in the guest. */
static uint64_t cable_pull(const char *port) {
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = {.ifr_flags = 0};
        uint64_t at_ns;

        assert_true(fd >= 0);
        snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", port);
        if (ioctl(fd, SIOCGIFFLAGS, &request) != 0)
                fail_msg("there is no port %s", port);
        request.ifr_flags &= ~IFF_UP;
        at_ns = clock_now_ns();
        if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
                fail_msg("port %s cannot be pulled", port);
        close(fd);
        return at_ns;
}

uint64_t fleet_link(const struct fleet *fleet, uint32_t node, uint32_t rail, const char *action, const char *value) {
        char port[4], *output;
        const char *argv[] = {VM_LINK, port, action, value, NULL};
        double at_s;

        assert_true(node < fleet->n_nodes && rail < fleet->n_rails);
        snprintf(port, sizeof(port), "%c%u", (int)('a' + node), rail);
        if (strcmp(action, "down") == 0)
                return cable_pull(port);
        output = malloc(PROC_OUTPUT_MAX);
        assert_non_null(output);
        if (proc_run(argv, LINK_MS, output) != 0)
                fail_msg("vm-link %s %s failed", port, action);
        at_s = strtod(output, NULL);
        free(output);
        return (uint64_t)(at_s * 1e9);
}

void fleet_link_counts(uint32_t node, uint32_t rail, uint64_t *ret_packets, uint64_t *ret_dropped) {
        char port[4], *output = malloc(PROC_OUTPUT_MAX);
        const char *argv[] = {VM_LINK, port, "counts", NULL};

        assert_non_null(output);
        snprintf(port, sizeof(port), "%c%u", (int)('a' + node), rail);
        if (proc_run(argv, LINK_MS, output) != 0 ||
            sscanf(output, "%" SCNu64 " %" SCNu64, ret_packets, ret_dropped) != 2)
                fail_msg("vm-link %s counts says: %.100s", port, output);
        free(output);
}

/* Bound to the node's port, as sockets of its rail are: what it sends goes over the cable. */
static int port_socket(uint32_t node, uint32_t rail, struct sockaddr_in *ret_address) {
        const struct timeval patience = {.tv_sec = LINK_MS / 1000};
        socklen_t size = sizeof(*ret_address);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char text[32];

        assert_true(fd >= 0);
        snprintf(text, sizeof(text), "%c%u", (int)('a' + node), rail);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, text, (socklen_t)strlen(text)), 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
        snprintf(text, sizeof(text), "10.77.%u.%u", rail, node + 1);
        *ret_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(text)};
        assert_int_equal(bind(fd, (const struct sockaddr *)ret_address, size), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)ret_address, &size), 0);
        return fd;
}

double fleet_round_trip_ms(const struct fleet *fleet, uint32_t from, uint32_t to, uint32_t rail) {
        struct sockaddr_in here, there;
        int listener = port_socket(to, rail, &there);
        double least_ms = 0, ms;

        assert_true(from < fleet->n_nodes && to < fleet->n_nodes && rail < fleet->n_rails);
        assert_int_equal(listen(listener, TRIPS), 0);
        for (uint32_t i = 0; i < TRIPS; i++) {
                int fd = port_socket(from, rail, &here);
                uint64_t at_ns = clock_now_ns();

                /* It returns when the other end has answered. */
                assert_int_equal(connect(fd, (const struct sockaddr *)&there, sizeof(there)), 0);
                ms = (double)(clock_now_ns() - at_ns) / 1e6;
                least_ms = i == 0 || ms < least_ms ? ms : least_ms;
                close(fd);
        }
        close(listener);
        return least_ms;
}

/* ---- what operators see ------------------------------------------------------------------------------------------ */
static uint64_t number(const json_t *row, const char *key) {
        return (uint64_t)json_integer_value(json_object_get(row, key));
}

static bool is_of_rail(const json_t *row, const char *key, uint32_t rail) {
        const char *text = json_string_value(json_object_get(row, key));
        char name[16];

        snprintf(name, sizeof(name), "rail%u", rail);
        return text && strcmp(text, name) == 0;
}

struct fleet_routes fleet_routes(const struct fleet *fleet, uint32_t node, uint32_t rail) {
        json_t *root = node_query(&fleet->node[node], "routes"), *row;
        struct fleet_routes routes = {0};
        size_t i;

        if (!root)
                fail_msg("node %c does not answer railmuxctl routes", (int)('a' + node));
        json_array_foreach(json_object_get(root, "routes"), i, row) {
                const char *state = json_string_value(json_object_get(row, "state"));

                if (!is_of_rail(row, "rail", rail))
                        continue;
                routes.n++;
                routes.n_up += state && strcmp(state, "up") == 0;
                routes.n_connected += json_is_true(json_object_get(row, "connected"));
                routes.errors += number(row, "errors");
                routes.retransmitted += number(row, "retransmitted");
        }
        json_decref(root);
        return routes;
}

struct routes_wait {
        const struct fleet *fleet;
        uint32_t node, rail;
        bool up;
        struct fleet_routes now;
};

static bool routes_are(void *argument) {
        struct routes_wait *w = argument;

        w->now = fleet_routes(w->fleet, w->node, w->rail);
        return w->now.n > 0 && w->now.n_up == (w->up ? w->now.n : 0);
}

void fleet_await_routes(const struct fleet *fleet, uint32_t node, uint32_t rail, bool up, uint32_t timeout_ms) {
        struct routes_wait w = {.fleet = fleet, .node = node, .rail = rail, .up = up};

        if (!proc_await(routes_are, &w, (uint32_t)(timeout_ms * proc_time_scale())))
                fail_msg("node %c, rail %u: %u of %u routes are up, not %s", (int)('a' + node), rail, w.now.n_up,
                         w.now.n, up ? "all" : "none");
}

uint64_t fleet_rail_number(const struct fleet *fleet, uint32_t node, uint32_t rail, const char *key) {
        json_t *root = node_query(&fleet->node[node], "rails"), *row;
        uint64_t value = 0;
        bool found = false;
        size_t i;

        if (!root)
                fail_msg("node %c does not answer railmuxctl rails", (int)('a' + node));
        json_array_foreach(json_object_get(root, "rails"), i, row) {
                if (!is_of_rail(row, "name", rail) || !json_is_integer(json_object_get(row, key)))
                        continue;
                value = number(row, key);
                found = true;
        }
        json_decref(root);
        if (!found)
                fail_msg("node %c has no rail %u with a number %s", (int)('a' + node), rail, key);
        return value;
}

struct bytes_wait {
        const struct fleet *fleet;
        uint32_t node, rail;
        uint64_t wanted, now;
};

static bool has_sent(void *argument) {
        struct bytes_wait *w = argument;

        w->now = fleet_rail_number(w->fleet, w->node, w->rail, "bytes_sent");
        return w->now >= w->wanted;
}

void fleet_await_bytes(const struct fleet *fleet, uint32_t node, uint32_t rail, uint64_t more, uint32_t timeout_ms) {
        struct bytes_wait w = {.fleet = fleet,
                               .node = node,
                               .rail = rail,
                               .wanted = fleet_rail_number(fleet, node, rail, "bytes_sent") + more};

        if (proc_await(has_sent, &w, (uint32_t)(timeout_ms * proc_time_scale())))
                return;
        for (uint32_t k = 0; k < fleet->n_rails; k++)
                print_error("rail %u has sent %" PRIu64 " bytes, and is believed to carry %" PRIu64 " a second\n", k,
                            fleet_rail_number(fleet, node, k, "bytes_sent"),
                            fleet_rail_number(fleet, node, k, "bytes_per_second"));
        fail_msg("node %c sends too little over rail %u: %" PRIu64 " bytes, not %" PRIu64, (int)('a' + node), rail,
                 w.now, w.wanted);
}
