/* SPDX-License-Identifier: MIT */
/*
 * Communicators over several nodes, each a railmuxd of its own on this machine, connected over loopback: every element
 * of every call is right, nothing is left behind, and no order in which ranks use their communicators hangs.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <railmux/railmux.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "tests/e2e/team.h"

#define NODES_MAX   4u
#define COMMS       30u
#define SOCKETS_MAX 64u

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *const ops[] = {"all_reduce",   "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all",
                                  "all_to_all_v", "gather", "scatter",   "sendrecv",   "barrier"};
static const char *const types[] = {"int8", "uint8", "int32", "uint32", "int64",    "uint64",
                                    "fp16", "bf16",  "fp32",  "fp64",   "fp8_e4m3", "fp8_e5m2"};
static const char *const redops[] = {"sum", "prod", "max", "min", "avg", "premul"};
static const char *const memories[] = {"shared", "malloc"};

struct fixture {
        struct node node[NODES_MAX];
        uint32_t n_nodes;
        struct team team;
        uint64_t random, lines;
};

/* ---- railmux-perf ------------------------------------------------------------------------------------------------ */
static const char *pick(struct fixture *f, const char *const *names, size_t n) {
        return names[proc_random(&f->random) % n];
}

struct run {
        uint32_t nodes, ranks;
        const char *op, *type, *redop, *memory, *max, *factor, *check;
};

static void sockets_of(const struct fixture *f, uint32_t n, char text[512]) {
        text[0] = '\0';
        for (uint32_t i = 0; i < n; i++) {
                size_t used = strlen(text);

                snprintf(text + used, 512 - used, "%s%s", i ? "," : "", f->node[i].socket);
        }
}

static void run_perf(struct fixture *f, const struct run *run) {
        char root[16], ranks[16], sockets[512], command[1024] = "", *output = malloc(PROC_OUTPUT_MAX);
        const char *argv[] = {node_program("railmux-perf"),
                              run->op,
                              "--ranks",
                              ranks,
                              "-d",
                              run->type,
                              "-o",
                              run->redop,
                              "--memory",
                              run->memory,
                              "-b",
                              "1",
                              "-e",
                              run->max,
                              "-f",
                              run->factor,
                              "-w",
                              "1",
                              "-n",
                              "2",
                              "-c",
                              run->check,
                              "-r",
                              root,
                              "--odd",
                              "--socket",
                              sockets,
                              NULL};
        int status;

        assert_non_null(output);
        sockets_of(f, run->nodes, sockets);
        snprintf(ranks, sizeof(ranks), "%u", run->ranks);
        snprintf(root, sizeof(root), "%u", (uint32_t)(proc_random(&f->random) % run->ranks));
        for (size_t i = 1; argv[i]; i++) {
                size_t used = strlen(command);

                snprintf(command + used, sizeof(command) - used, " %s", argv[i]);
        }
        status = proc_run(argv, 120000, output);
        if (status != 0) {
                fputs(output, stderr);
                free(output);
                fail_msg("railmux-perf%s: status %d", command, status);
        }
        if (!strstr(output, "Wrong values         : 0 OK") || !strstr(output, "Out of bounds values : 0 OK"))
                fail_msg("railmux-perf%s does not say that all was right", command);
        for (const char *line = output; line; line = strchr(line, '\n')) {
                line += line != output;
                f->lines += *line == ' ';
        }
        free(output);
}

static const struct {
        uint32_t nodes, ranks;
} shapes[] = {{2, 8}, {3, 5}, {4, 4}}; /* equal parts, unequal ones, one rank on each node */

static void run_sample(struct fixture *f) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++)
                for (size_t o = 0; o < COUNT_OF(ops); o++)
                        run_perf(f, &(struct run){shapes[s].nodes, shapes[s].ranks, ops[o],
                                                  pick(f, types, COUNT_OF(types)), pick(f, redops, COUNT_OF(redops)),
                                                  pick(f, memories, COUNT_OF(memories)), "16K", "8", "2"});
        for (size_t o = 0; o < COUNT_OF(ops); o++) { /* several chunks of each channel under way */
                size_t s = proc_random(&f->random) % COUNT_OF(shapes);

                run_perf(f, &(struct run){shapes[s].nodes, shapes[s].ranks, ops[o], pick(f, types, COUNT_OF(types)),
                                          "sum", "shared", "1M", "262144", "1"});
        }
}

static void run_all(struct fixture *f) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++)
                for (size_t o = 0; o < COUNT_OF(ops); o++) {
                        uint64_t before = f->lines;

                        run_perf(f, &(struct run){shapes[s].nodes, shapes[s].ranks, ops[o], "all", "all", "shared",
                                                  "32K", "32", "2"});
                        run_perf(f, &(struct run){shapes[s].nodes, shapes[s].ranks, ops[o], "all", "sum", "malloc",
                                                  "32K", "32", "2"});
                        run_perf(f, &(struct run){shapes[s].nodes, shapes[s].ranks, ops[o], "fp32", "sum", "shared",
                                                  "8M", "32", "2"});
                        printf("%s, %u ranks on %u nodes: %" PRIu64 " lines, 0 wrong\n", ops[o], shapes[s].ranks,
                               shapes[s].nodes, f->lines - before);
                        fflush(stdout);
                }
}

static void matrix(void **state) {
        struct fixture *f = *state;

        if (proc_full())
                run_all(f);
        else
                for (uint32_t i = 0; i < (proc_time_scale() > 1 ? 1 : 2); i++)
                        run_sample(f);
        print_message("%" PRIu64 " lines, 0 wrong\n", f->lines);
        nodes_stop(f->node, f->n_nodes);
}

/* ---- communicators that come and go ------------------------------------------------------------------------------ */
static void come_and_go(struct team_rank *rank) {
        int32_t *memory = team_memory(rank, 2 * sizeof(*memory));
        uint32_t n = rank->shared->kind;

        for (uint32_t i = 0; i < n; i++) {
                struct rmx_comm *comm;

                if (rank->rank == 0)
                        team_must(rank, rmx_get_id(rank->session, &rank->shared->id[0]), "rmx_get_id");
                pthread_barrier_wait(&rank->shared->barrier);
                comm = team_join(rank, 0);
                memory[0] = (int32_t)(rank->rank + i);
                memory[1] = -1;
                team_must(rank, rmx_all_reduce(comm, memory, memory + 1, 1, RMX_INT32, RMX_SUM, NULL),
                          "rmx_all_reduce");
                if (memory[1] != (int32_t)(rank->n_ranks * i + rank->n_ranks * (rank->n_ranks - 1) / 2))
                        team_wrong(rank, "a wrong sum");
                team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
                team_step(rank);
        }
}

/* Does /proc/net/tcp know the socket as a connection? */
static bool is_connection(unsigned long inode) {
        FILE *file = fopen("/proc/net/tcp", "re");
        char line[512];
        bool found = false;

        assert_non_null(file);
        while (!found && fgets(line, sizeof(line), file)) {
                unsigned long number;
                unsigned int state;

                found = sscanf(line, "%*s %*s %*s %x %*s %*s %*s %*s %*s %lu", &state, &number) == 2 && state == 1 &&
                        number == inode;
        }
        fclose(file);
        return found;
}

static int by_number(const void *a, const void *b) {
        const unsigned long *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

/* The connections of a process to other nodes: another one in place of one has another number. */
static uint32_t connections_of(pid_t pid, unsigned long inodes[SOCKETS_MAX]) {
        char path[300], target[64];
        struct dirent *entry;
        uint32_t n = 0;
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        dir = opendir(path);
        assert_non_null(dir);
        while ((entry = readdir(dir))) {
                unsigned long inode;
                ssize_t size;

                snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
                size = readlink(path, target, sizeof(target) - 1);
                target[size > 0 ? size : 0] = '\0';
                if (sscanf(target, "socket:[%lu]", &inode) == 1 && is_connection(inode) && n < SOCKETS_MAX)
                        inodes[n++] = inode;
        }
        closedir(dir);
        qsort(inodes, n, sizeof(inodes[0]), by_number);
        return n;
}

/* One other node, connected, and never lost. */
static void assert_one_peer(const struct node *node) {
        json_t *root = node_query(node, "peers"), *rows = json_object_get(root, "peers"), *peer;

        assert_int_equal(json_array_size(rows), 2); /* itself and the other */
        peer = json_array_get(rows, 1);
        assert_string_equal(json_string_value(json_object_get(peer, "state")), "up");
        assert_int_equal(json_integer_value(json_object_get(peer, "losses")), 0);
        assert_int_equal(json_integer_value(json_object_get(peer, "holds")), 0);
        assert_true(json_integer_value(json_object_get(peer, "protocol")) > 0); /* that of both, as both are alike */
        assert_true(
                json_equal(json_object_get(peer, "protocol"), json_object_get(json_array_get(rows, 0), "protocol")));
        json_decref(root);
}

static void comms_come_and_go(void **state) {
        struct fixture *f = *state;
        unsigned long connections[2][SOCKETS_MAX], now[SOCKETS_MAX];
        uint32_t n_connections[2];
        struct node_snapshot before[2];

        team_init(&f->team, f->node, 2, 6);
        f->team.shared->kind = 1; /* what is kept for later use is there then */
        team_start(&f->team, come_and_go);
        team_end(&f->team, "the first communicator");
        for (uint32_t i = 0; i < 2; i++) {
                before[i] = node_snapshot(&f->node[i]);
                assert_one_peer(&f->node[i]);
                n_connections[i] = connections_of(node_pids(&f->node[i]).daemon, connections[i]);
                assert_true(n_connections[i] >= 2); /* control, and a rail */
        }
        f->team.shared->kind = COMMS;
        team_start(&f->team, come_and_go);
        team_end(&f->team, "more communicators");
        for (uint32_t i = 0; i < 2; i++) {
                node_assert_as_before(&f->node[i], &before[i]);
                assert_one_peer(&f->node[i]);
                assert_int_equal(connections_of(node_pids(&f->node[i]).daemon, now), n_connections[i]);
                assert_memory_equal(now, connections[i], n_connections[i] * sizeof(now[0]));
        }
        nodes_stop(f->node, f->n_nodes);
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */
#define ORDER_COMMS 2u
#define ORDER_LAPS  2u /* rounds in flight */
#define ORDER_COUNT 700u

struct order {
        struct team_rank *rank;
        struct rmx_comm *comm[ORDER_COMMS];
        struct rmx_request request[ORDER_LAPS][ORDER_COMMS];
        int32_t *memory; /* [comm][lap][in, out][ORDER_COUNT] */
};

static int32_t *order_place(const struct order *o, uint32_t comm, uint32_t round, bool out) {
        return o->memory + ((comm * ORDER_LAPS + round % ORDER_LAPS) * 2 + out) * ORDER_COUNT;
}

static uint32_t order_count(uint32_t comm, uint32_t round) {
        uint32_t x = (round * 2654435761u) ^ (comm * 40503u);

        return x % 16 == 0 ? x / 16 % ORDER_COUNT : x % 67;
}

static void order_begin(struct order *o, uint32_t comm, uint32_t round) {
        int32_t *in = order_place(o, comm, round, false), *out = order_place(o, comm, round, true);

        for (uint32_t i = 0; i < order_count(comm, round); i++) {
                in[i] = (int32_t)(round * 31 + comm * 1009 + i * 7 + o->rank->rank * 100003);
                out[i] = -1;
        }
        team_must(o->rank,
                  rmx_all_reduce_start(o->comm[comm], in, out, order_count(comm, round), RMX_INT32, RMX_SUM, NULL,
                                       &o->request[round % ORDER_LAPS][comm]),
                  "start");
}

static void order_finish(struct order *o, uint32_t comm, uint32_t round) {
        const int32_t *out = order_place(o, comm, round, true);
        uint32_t n = o->rank->n_ranks;

        team_must(o->rank, rmx_wait(&o->request[round % ORDER_LAPS][comm], NULL), "wait");
        for (uint32_t i = 0; i < order_count(comm, round); i++)
                if (out[i] != (int32_t)(n * (round * 31 + comm * 1009 + i * 7) + 100003 * (n * (n - 1) / 2)))
                        team_wrong(o->rank, "a wrong element");
        team_step(o->rank);
}

/* Half of the rounds: even ranks begin with one and odd ones with the other, and each ends with what it began first.
 * The other half: at random, with the round before still under way. */
static void use_in_orders(struct team_rank *rank) {
        struct order o = {.rank = rank};
        uint32_t n = rank->shared->kind / 2;

        o.memory = team_memory(rank, sizeof(int32_t) * ORDER_COMMS * ORDER_LAPS * 2 * ORDER_COUNT);
        for (uint32_t i = 0; i < ORDER_COMMS; i++)
                o.comm[i] = team_join(rank, i);
        for (uint32_t round = 0; round < n; round++) {
                order_begin(&o, rank->rank % 2, round);
                order_begin(&o, !(rank->rank % 2), round);
                order_finish(&o, !(rank->rank % 2), round);
                order_finish(&o, rank->rank % 2, round);
        }
        for (uint32_t round = 0; round <= n; round++) {
                uint32_t first = proc_random(&rank->random) % 2;

                for (uint32_t i = 0; round < n && i < ORDER_COMMS; i++)
                        order_begin(&o, i ? !first : first, round);
                first = proc_random(&rank->random) % 2;
                for (uint32_t i = 0; round > 0 && i < ORDER_COMMS; i++)
                        order_finish(&o, i ? !first : first, round - 1);
        }
        for (uint32_t i = 0; i < ORDER_COMMS; i++)
                team_must(rank, rmx_comm_destroy(o.comm[i]), "rmx_comm_destroy");
}

static void orders(void **state) {
        struct fixture *f = *state;
        uint32_t rounds = proc_full() ? 20000 : proc_time_scale() > 1 ? 200 : 1000;

        team_init(&f->team, f->node, 2, 4);
        f->team.shared->kind = rounds;
        team_start(&f->team, use_in_orders);
        /* A hang is: nothing moves for a long time. */
        for (uint32_t step = 0; step < rounds / 2 * 2 * ORDER_COMMS; step += 50)
                team_await_step(&f->team, step, TEAM_ALL, 20000);
        team_end(&f->team, "orders");
        nodes_stop(f->node, f->n_nodes);
}

/* ---- a rank that leaves ------------------------------------------------------------------------------------------ */
#define LEAVER      1u
#define LEFT_ROUNDS 100u
#define LEFT_COUNT  500u

/* The others pass data around among themselves; then they want the one that has left. */
static void leave_early(struct team_rank *rank) {
        int32_t *in = team_memory(rank, 2 * LEFT_COUNT * sizeof(*in)), *out = in + LEFT_COUNT;
        struct rmx_comm *comm = team_join(rank, 0);
        uint32_t n = rank->n_ranks, to = (rank->rank + 1) % n, from = (rank->rank + n - 1) % n;

        to += to == LEAVER;
        from -= from == LEAVER;
        team_must(rank, rmx_barrier(comm, NULL), "rmx_barrier");
        if (rank->rank == LEAVER) {
                team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
                atomic_store(&rank->shared->go, 1); /* partner: team_await_go */
                pthread_barrier_wait(&rank->shared->barrier);
                pthread_barrier_wait(&rank->shared->barrier);
                return;
        }
        for (uint32_t round = 0; round < 2 * LEFT_ROUNDS; round++) {
                if (round == LEFT_ROUNDS) /* half of it surely after the leaving */
                        team_await_go(rank, 1);
                for (uint32_t i = 0; i < LEFT_COUNT; i++) {
                        in[i] = (int32_t)(round * 1000 + rank->rank * 100000 + i);
                        out[i] = -1;
                }
                team_must(rank, rmx_group_start(), "rmx_group_start");
                team_must(rank, rmx_send(comm, in, LEFT_COUNT, RMX_INT32, to, NULL), "rmx_send");
                team_must(rank, rmx_recv(comm, out, LEFT_COUNT, RMX_INT32, from, NULL), "rmx_recv");
                team_must(rank, rmx_group_end(), "an exchange");
                for (uint32_t i = 0; i < LEFT_COUNT; i++)
                        if (out[i] != (int32_t)(round * 1000 + from * 100000 + i))
                                team_wrong(rank, "a wrong element");
                team_step(rank);
        }
        pthread_barrier_wait(&rank->shared->barrier); /* what comes now fails for all */
        if (rank->rank == n - 1)                      /* on the other node, where nobody else would notice */
                team_note(rank, rmx_recv(comm, out, LEFT_COUNT, RMX_INT32, LEAVER, NULL), comm);
        pthread_barrier_wait(&rank->shared->barrier);
        if (rank->rank != n - 1)
                team_note(rank, rmx_all_reduce(comm, in, out, LEFT_COUNT, RMX_INT32, RMX_SUM, NULL), comm);
        team_must(rank, rmx_comm_destroy(comm), "rmx_comm_destroy");
}

static void leaving(void **state) {
        struct fixture *f = *state;

        team_init(&f->team, f->node, 2, 6);
        team_start(&f->team, leave_early);
        team_end(&f->team, "a rank that leaves");
        for (uint32_t r = 0; r < f->team.n_ranks; r++) {
                const struct team_notes *notes = &f->team.shared->notes[r];

                if (r == LEAVER)
                        continue;
                if (notes->code != RMX_E_PEER_LOST || notes->failed_rank != (int32_t)LEAVER)
                        fail_msg("rank %u got %s, rank %d; left has rank %u", r, rmx_error_name(notes->code),
                                 notes->failed_rank, LEAVER);
        }
        nodes_stop(f->node, f->n_nodes);
}

/* ------------------------------------------------------------------------------------------------------------------ */
static int setup(void **state, uint32_t n_nodes) {
        struct fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        *state = f;
        f->random = proc_seed();
        f->n_nodes = n_nodes;
        nodes_start(f->node, n_nodes, "nodes", 0);
        return 0;
}

static int setup_two(void **state) {
        return setup(state, 2);
}

static int setup_four(void **state) {
        return setup(state, NODES_MAX);
}

static int teardown(void **state) {
        struct fixture *f = *state;

        team_cleanup(&f->team);
        nodes_cleanup(f->node, f->n_nodes);
        free(f);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(matrix, setup_four, teardown),
                cmocka_unit_test_setup_teardown(comms_come_and_go, setup_two, teardown),
                cmocka_unit_test_setup_teardown(orders, setup_two, teardown),
                cmocka_unit_test_setup_teardown(leaving, setup_two, teardown),
        };

        return cmocka_run_group_tests_name("nodes", tests, NULL, NULL);
}
