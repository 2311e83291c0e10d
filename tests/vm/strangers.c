/* SPDX-License-Identifier: MIT */
/*
 * Nodes a and b are a cluster with certificates. c has a certificate with the right name, of another CA; d has none and
 * speaks plainly. Neither gets into a communicator, a program that connects to a rail gets nowhere, and who has a
 * communicator's id with one wrong bit in its secret is refused. a and b work on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "tests/vm/fleet.h"
#include "tests/vm/scenario.h"

#define PERF_MS     20000u
#define REFUSED_MS  20000u
#define PATIENT_MS  10000u
#define KNOCK_MS    20000u
#define SECRET_BYTE 127u /* of an id */

static int perf(const struct fleet *fleet, uint32_t nodes) {
        char sockets[1024];
        const char *argv[] = {node_program("railmux-perf"),
                              "all_reduce",
                              "--ranks",
                              "2",
                              "-e",
                              "64K",
                              "-f",
                              "8192",
                              "-n",
                              "2",
                              "-c",
                              "2",
                              "--socket",
                              sockets,
                              NULL};

        fleet_sockets(fleet, nodes, sockets);
        return proc_run_quiet(argv, (uint32_t)(PERF_MS * proc_time_scale()), NULL);
}

static void assert_not_let_in(const struct fleet *fleet, uint32_t insider, uint32_t stranger) {
        int status = perf(fleet, 1u << insider | 1u << stranger);
        json_t *root, *peer;
        size_t i;

        if (status == 0 || status < 0)
                fail_msg("a communicator of nodes %c and %c: status %d", (int)('a' + insider), (int)('a' + stranger),
                         status);
        root = node_query(&fleet->node[insider], "peers");
        assert_non_null(root);
        json_array_foreach(json_object_get(root, "peers"), i, peer) {
                const char *state = json_string_value(json_object_get(peer, "state"));

                if (state && strcmp(state, "up") == 0 && i > 1)
                        fail_msg("node %c has a stranger among its peers", (int)('a' + insider));
        }
        json_decref(root);
        assert_int_equal(perf(fleet, 3), 0);
}

/* ---- a program that is no daemon ----------------------------------------------------------------------------------
 */
/* Like nodes it proves who it is before it learns anything; unlike them it would talk to anybody. */
static void knock(const struct fleet *fleet, const char *certificate, const char *word) {
        json_t *root = node_query(&fleet->node[0], "peers"), *self;
        char command[600];
        const char *argv[] = {"/bin/bash", "-c", command, NULL};

        assert_non_null(root);
        self = json_array_get(json_object_get(root, "peers"), 0);
        snprintf(command, sizeof(command), "openssl s_client -connect %s %s </dev/null",
                 json_string_value(json_object_get(self, "address")), certificate);
        json_decref(root);
        assert_false(fleet_log_has(fleet, 0, word));
        (void)proc_run_quiet(argv, KNOCK_MS, NULL); /* its status says little: TLS 1.3 is refused after the handshake */
        if (!fleet_await_log(fleet, 0, word, KNOCK_MS))
                fail_msg("node a does not say '%s'", word);
}

static void refuses_others(struct fleet *fleet) {
        const char *folder = getenv("RAILMUX_VM_CERTIFICATES");
        char certificate[256];

        knock(fleet, "", "peer did not return a certificate");
        snprintf(certificate, sizeof(certificate), "-cert %s/others/node2.crt -key %s/others/node2.key", folder,
                 folder);
        knock(fleet, certificate, "certificate is refused");
}

/* ---- a secret with one wrong bit --------------------------------------------------------------------------------- */
static void join_with_given_id(struct team_rank *rank) {
        struct rmx_id id = rank->shared->id[0];
        struct rmx_comm_options options = {.size = sizeof(options), .gpu = -1, .timeout_ms = 10000};
        struct rmx_comm *comm;

        id.bytes[SECRET_BYTE] ^= (unsigned char)(rank->rank == rank->shared->subject);
        team_note(rank, rmx_comm_create(rank->session, &id, rank->n_ranks, rank->rank, &options, &comm), NULL);
}

static void secret(struct fleet *fleet) {
        const struct team_notes *notes;

        team_init(&fleet->team, fleet->node, 2, 2);
        fleet->team.shared->subject = 1; /* on node b, of an id that node a made */
        team_start(&fleet->team, join_with_given_id);
        team_end(&fleet->team, "an id with one wrong bit");
        notes = &fleet->team.shared->notes[1];
        print_message("who has an id with one wrong bit gets %s: %s\n", rmx_error_name(notes->code), notes->text);
        if (notes->code != RMX_E_DENIED)
                fail_msg("an id with one wrong bit: %s", rmx_error_name(notes->code));
        assert_true(fleet->team.shared->notes[0].code != RMX_OK);
        team_cleanup(&fleet->team);
}

/* ---- a program that connects to a rail --------------------------------------------------------------------------- */
static void rail_address(const struct fleet *fleet, struct sockaddr_in *ret_address) {
        json_t *root = node_query(&fleet->node[0], "rails"), *row;
        char address[64] = "";
        unsigned int port = 0;

        assert_non_null(root);
        row = json_array_get(json_object_get(root, "rails"), 0);
        if (sscanf(json_string_value(json_object_get(row, "address")), "%63[^:]:%u", address, &port) != 2)
                fail_msg("no ADDRESS:PORT: %s", json_string_value(json_object_get(row, "address")));
        json_decref(root);
        *ret_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        assert_int_equal(inet_pton(AF_INET, address, &ret_address->sin_addr), 1);
}

struct refused_wait {
        const struct fleet *fleet;
        uint64_t before;
};

static bool is_refused(void *argument) {
        const struct refused_wait *w = argument;

        return fleet_rail_number(w->fleet, 0, 0, "refused") > w->before;
}

/* From node c's port: nothing is said to it but TLS's alert, and the connection is closed. */
static void connect_to_rail(const struct fleet *fleet) {
        static const char words[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        struct refused_wait w = {fleet, fleet_rail_number(fleet, 0, 0, "refused")};
        struct timeval patience = {.tv_sec = REFUSED_MS / 1000};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in address;
        char answer[256];
        ssize_t n, all = 0;

        rail_address(fleet, &address);
        assert_true(fd >= 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "c0", 2), 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
        assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(write(fd, words, sizeof(words)), sizeof(words));
        while ((n = read(fd, answer, sizeof(answer))) > 0)
                all += n;
        if (n < 0 && errno != ECONNRESET)
                fail_msg("the rail keeps a stranger's connection: %s", strerror(errno));
        assert_true(all < 64);
        close(fd);
        if (!proc_await(is_refused, &w, (uint32_t)(REFUSED_MS * proc_time_scale())))
                fail_msg("no stranger is counted");
}

void strangers_run(struct fleet *fleet, const struct scenario *scenario) {
        (void)scenario;
        fleet->lost_ms = PATIENT_MS;
        fleet_start_node(fleet, 0, FLEET_TLS);
        fleet_start_node(fleet, 1, FLEET_TLS);
        assert_int_equal(perf(fleet, 3), 0);
        fleet_start_node(fleet, 2, FLEET_OTHER_TLS);
        fleet_start_node(fleet, 3, FLEET_PLAIN);
        for (uint32_t stranger = 2; stranger < 4; stranger++) {
                assert_not_let_in(fleet, 0, stranger);
                assert_not_let_in(fleet, 1, stranger);
        }
        if (!fleet_log_has(fleet, 0, "unknown ca") || !fleet_log_has(fleet, 0, "speaks no TLS 1.3"))
                fail_msg("node a does not say whom it has sent away");
        refuses_others(fleet);
        secret(fleet);
        if (strcmp(fleet->transport, "tcp") == 0) /* others have no port that anybody could connect to */
                connect_to_rail(fleet);
#ifdef HAVE_VERBS
        if (strcmp(fleet->transport, "verbs") == 0)
                rkeys_try(fleet);
#endif
        assert_int_equal(perf(fleet, 3), 0);
        fleet_stop(fleet);
}
