/* SPDX-License-Identifier: MIT */
/*
 * nccl_conformance: does a library with NCCL's interface do what it must?
 *
 *     nccl_conformance --library PATH [--memory host|alloc|device] [--only GROUP,...] [--ways ...] [--ranks LIST] [-v]
 *
 * It prints a line for each world (world.h) and the sum; the exit status is 1 if anything was wrong. RAILMUX_FULL=1
 * takes all cases in place of a sample, RAILMUX_SEED picks the sample. With --sockets the ranks are dealt out to the
 * daemons of several nodes. With --memory device it needs as many GPUs as
 * the library wants for the ranks; for the host backend of librailmux a daemon must be there ($RAILMUX_SOCKET).
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/proc.h"
#include "tests/nccl/checks.h"

#define CHECK_MS 20000u
#define CALLS_MS 60000u
#define FULL_MS  3600000u

static const struct {
        const char *name;
        const struct check *checks;
} groups[] = {{"group", checks_group},       {"comm", checks_comm},      {"config", checks_config},
              {"argument", checks_argument}, {"memory", checks_memory},  {"redop", checks_redop},
              {"thread", checks_thread},     {"failure", checks_failure}};

struct options {
        struct world_options world;
        const char *only, *match;
        uint32_t ways, per_op;
        uint32_t patience_ms; /* 0: as usual */
        bool ranks[WORLD_RANKS_MAX + 1];
        uint32_t most_ranks; /* of checks, whose numbers are fixed */
};

static bool is_wanted(const char *list, const char *name) {
        size_t length = strlen(name);

        for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                if (!strncmp(at, name, length) && (at[length] == ',' || at[length] == '\0'))
                        return true;
        return list == NULL;
}

static uint32_t patience(const struct options *o, uint32_t usual_ms) {
        return o->patience_ms ? o->patience_ms : usual_ms;
}

static void add(struct world_result *sum, struct world_result result) {
        sum->cases += result.cases;
        sum->wrong += result.wrong;
}

static uint32_t ranks_most(const struct options *o) {
        uint32_t n = WORLD_RANKS_MAX;

        while (n > 1 && !o->ranks[n])
                n--;
        return n;
}

static void run_calls(const struct options *o, struct world_result *sum) {
        struct call_plan small = {.per_op = o->per_op, .operation = o->match},
                         large = {.operation = o->match, .per_op = o->world.full ? 4 : 1};

        for (uint32_t mode = 0; mode < MODE_COUNT; mode++) {
                for (uint32_t n = 1; n <= WORLD_RANKS_MAX; n++) {
                        struct world world = {.mode = mode,
                                              .n_ranks = n,
                                              .timeout_ms = patience(o, o->world.full ? FULL_MS : CALLS_MS),
                                              .run = checks_call_run};

                        if (!(o->ways >> mode & 1) || !o->ranks[n])
                                continue;
                        world.name = "calls";
                        world.argument = &small;
                        if (is_wanted(o->only, "calls"))
                                add(sum, world_run(&world, &o->world));
                        world.name = "large calls";
                        world.argument = &large;
                        large.large = (size_t)(mode == MODE_PROCESSES ? 8 : 1) << 20;
                        if (is_wanted(o->only, "large") && (o->world.full || n == ranks_most(o)))
                                add(sum, world_run(&world, &o->world));
                }
        }
}

static void run_checks(const struct options *o, const struct check *check, struct world_result *sum) {
        for (; check->name; check++)
                for (uint32_t mode = 0; mode < MODE_COUNT; mode++) {
                        struct world world = {.name = check->name,
                                              .mode = mode,
                                              .n_ranks = check->n_ranks,
                                              .timeout_ms = patience(o, CHECK_MS),
                                              .run = check->run};

                        /* One thread for all ranks: there is one for each node, and they would have to agree. */
                        if (o->world.n_sockets > 1 && (mode == MODE_GROUPED || mode == MODE_ALL))
                                continue;
                        if (check->n_ranks <= o->most_ranks && (check->modes >> mode & o->ways >> mode & 1) &&
                            (!o->match || !strncmp(check->name, o->match, strlen(o->match))))
                                add(sum, world_run(&world, &o->world));
                }
}

static void usage(FILE *file) {
        fprintf(file, "Usage: nccl_conformance --library PATH [OPTION...]\n"
                      "  --memory KIND   host (default), alloc (ncclMemAlloc) or device (the GPU runtime's)\n"
                      "  --only LIST     of: calls large group comm config argument memory redop thread failure\n"
                      "  --ways LIST     of: processes threads grouped all (default: every one)\n"
                      "  --ranks LIST    numbers of ranks for calls (default: 1, 2, 8 and one by chance); checks that\n"
                      "                  need more than the largest are left out\n"
                      "  --cases N       of each operation, 0: all; default 15, all with RAILMUX_FULL=1\n"
                      "  --match S       only operations and checks whose names begin so\n"
                      "  --patience S    seconds that a world may take\n"
                      "  --sockets LIST  of daemons on several nodes, to which the ranks are dealt out in rows\n"
                      "  --all-messages  not just the first few of a world\n"
                      "  -v              also how long it took\n");
}

static uint32_t ways_of(const char *list) {
        static const char *const names[MODE_COUNT] = {"processes", "threads", "grouped", "all"};
        uint32_t ways = 0;

        for (uint32_t i = 0; i < MODE_COUNT; i++)
                ways |= is_wanted(list, names[i]) ? 1u << i : 0;
        return ways;
}

static int ranks_of(struct options *o, const char *list) {
        char *end;

        memset(o->ranks, 0, sizeof(o->ranks));
        do {
                unsigned long n = strtoul(list, &end, 10);

                if (end == list || n < 1 || n > WORLD_RANKS_MAX)
                        return -1;
                o->ranks[n] = true;
                list = end + 1;
        } while (*end == ',');
        return *end ? -1 : 0;
}

static int sockets_of(struct options *o, char *list) {
        char *save = NULL;

        for (char *path = strtok_r(list, ",", &save); path; path = strtok_r(NULL, ",", &save)) {
                if (o->world.n_sockets == WORLD_NODES_MAX)
                        return -1;
                o->world.socket[o->world.n_sockets++] = path;
        }
        return o->world.n_sockets ? 0 : -1;
}

static void defaults(struct options *o) {
        uint64_t random;

        o->world.full = proc_full();
        o->world.seed = proc_seed();
        o->most_ranks = WORLD_RANKS_MAX;
        o->ways = ways_of(NULL);
        random = o->world.seed;
        o->ranks[1] = o->ranks[2] = o->ranks[8] = o->ranks[3 + proc_random(&random) % 5] = true;
        for (uint32_t n = 1; n <= WORLD_RANKS_MAX; n++)
                o->ranks[n] |= o->world.full;
        o->per_op = o->world.full ? 0 : 15;
}

static int parse(struct options *o, int argc, char **argv) {
        static const struct option names[] = {
                {"library", required_argument, NULL, 'l'},  {"memory", required_argument, NULL, 'm'},
                {"only", required_argument, NULL, 'o'},     {"ways", required_argument, NULL, 'w'},
                {"ranks", required_argument, NULL, 'r'},    {"cases", required_argument, NULL, 'c'},
                {"patience", required_argument, NULL, 'p'}, {"match", required_argument, NULL, 'M'},
                {"sockets", required_argument, NULL, 's'},  {"all-messages", no_argument, NULL, 'a'},
                {"help", no_argument, NULL, 'h'},           {0}};
        int letter, kind;

        while ((letter = getopt_long(argc, argv, "vh", names, NULL)) != -1) {
                switch (letter) {
                case 'l':
                        o->world.library = optarg;
                        break;
                case 'm':
                        kind = memory_kind_of(optarg);
                        if (kind < 0)
                                return -1;
                        o->world.memory = (enum memory_kind)kind;
                        break;
                case 'o':
                        o->only = optarg;
                        break;
                case 'w':
                        o->ways = ways_of(optarg);
                        break;
                case 'r':
                        if (ranks_of(o, optarg))
                                return -1;
                        o->most_ranks = ranks_most(o);
                        break;
                case 'c':
                        o->per_op = (uint32_t)strtoul(optarg, NULL, 10);
                        break;
                case 'M':
                        o->match = optarg;
                        break;
                case 's':
                        if (sockets_of(o, optarg))
                                return -1;
                        break;
                case 'a':
                        o->world.all_messages = true;
                        break;
                case 'p':
                        o->patience_ms = (uint32_t)strtoul(optarg, NULL, 10) * 1000u;
                        break;
                case 'v':
                        o->world.verbose = true;
                        break;
                case 'h':
                        usage(stdout);
                        exit(0);
                default:
                        return -1;
                }
        }
        return optind == argc && o->world.library ? 0 : -1;
}

int main(int argc, char **argv) {
        struct world_result sum = {0};
        struct options o = {0};

        setenv("NCCL_CHECK_POINTERS", "1", 0); /* NCCL leaves that out else */
        defaults(&o);
        if (parse(&o, argc, argv)) {
                usage(stderr);
                return 2;
        }
        printf("%s, %s memory\n", o.world.library, memory_kind_name(o.world.memory));
        if (o.world.n_sockets > 1)
                o.ways &= ~(1u << MODE_ALL); /* ncclCommInitAll makes all ranks in one process */
        run_calls(&o, &sum);
        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
                if (is_wanted(o.only, groups[i].name))
                        run_checks(&o, groups[i].checks, &sum);
        printf("%u cases, %u wrong\n", sum.cases, sum.wrong);
        return sum.wrong || sum.cases == 0 ? 1 : 0;
}
