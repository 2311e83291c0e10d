/* SPDX-License-Identifier: MIT */
#include "tools/perf/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <railmux/railmux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/crew.h"
#include "tools/perf/pattern.h"
#include "util/parse.h"

#define GIB_MAX    16u
#define GRAPHS_MAX 10000u

static const char *const op_names[PATTERN_OP_COUNT] = {
        [PATTERN_ALL_REDUCE] = "all_reduce",
        [PATTERN_ALL_GATHER] = "all_gather",
        [PATTERN_REDUCE_SCATTER] = "reduce_scatter",
        [PATTERN_BROADCAST] = "broadcast",
        [PATTERN_BARRIER] = "barrier",
        [PATTERN_REDUCE] = "reduce",
        [PATTERN_ALL_TO_ALL] = "all_to_all",
        [PATTERN_ALL_TO_ALL_V] = "all_to_all_v",
        [PATTERN_GATHER] = "gather",
        [PATTERN_SCATTER] = "scatter",
        [PATTERN_SENDRECV] = "sendrecv",
};

/* The first name of a number is the one that is printed. */
static const struct {
        const char *name;
        uint32_t number;
} type_names[] =
        {
                {"fp32", RMX_FLOAT32},
                {"float32", RMX_FLOAT32},
                {"f32", RMX_FLOAT32},
                {"float", RMX_FLOAT32},
                {"bf16", RMX_BFLOAT16},
                {"bfloat16", RMX_BFLOAT16},
                {"int32", RMX_INT32},
                {"i32", RMX_INT32},
                {"int", RMX_INT32},
                {"fp16", RMX_FLOAT16},
                {"float16", RMX_FLOAT16},
                {"half", RMX_FLOAT16},
                {"fp64", RMX_FLOAT64},
                {"float64", RMX_FLOAT64},
                {"double", RMX_FLOAT64},
                {"int8", RMX_INT8},
                {"uint8", RMX_UINT8},
                {"uint32", RMX_UINT32},
                {"int64", RMX_INT64},
                {"uint64", RMX_UINT64},
                {"fp8_e4m3", RMX_FLOAT8_E4M3},
                {"f8e4m3", RMX_FLOAT8_E4M3},
                {"fp8_e5m2", RMX_FLOAT8_E5M2},
                {"f8e5m2", RMX_FLOAT8_E5M2},
},
  redop_names[] = {{"sum", RMX_SUM}, {"prod", RMX_PROD}, {"max", RMX_MAX},
                   {"min", RMX_MIN}, {"avg", RMX_AVG},   {"premul", RMX_PREMUL_SUM}};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char help_text[] =
        "Usage: railmux-perf OP [option...]\n"
        "Measures and verifies a collective between rank processes that it forks on this node.\n"
        "\n"
        "  OP                    all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, all_to_all_v,\n"
        "                        gather, scatter, sendrecv (a group: to the next rank, from the one before), barrier\n"
        "      --ranks N         rank processes, 1 to 64 (default 8)\n"
        "  -b, --min SIZE        smallest size (default 8); K, M and G are powers of 1024\n"
        "  -e, --max SIZE        largest size (default 16M; 16G at most)\n"
        "  -f, --factor F        each size is F times the one before, 2 or more (default 2)\n"
        "  -d, --type TYPE       int8, uint8, int32, uint32, int64, uint64, fp16, bf16, fp32, fp64, fp8_e4m3, "
        "fp8_e5m2\n"
        "                        or all (default fp32)\n"
        "  -o, --redop REDOP     sum, prod, max, min, avg, premul (pre-multiplied sum) or all (default sum)\n"
        "  -r, --root R          root rank of reduce, broadcast, gather and scatter (default 0)\n"
        "  -w, --warmup N        calls before each measurement (default 5)\n"
        "  -n, --iterations N    calls measured per line (default 20)\n"
        "  -c, --check 0|1|2     0: no verification; 1: the first and the last call of each line (default);\n"
        "                        2: every call (not with -G above 1)\n"
        "  -G, --graphs N        GPU memory: capture N calls in a graph and replay it; -w and -n then count replays\n"
        "                        (default 0: no graphs)\n"
        "  -J, --json FILE       write the results to FILE as JSON\n"
        "      --in-place MODE   0: out of place, 1: in place, both (default)\n"
        "      --odd             add 0 and 1 elements and odd counts around each size, at unaligned offsets\n"
        "      --equal           all_to_all_v: a whole block to each rank, as an all_to_all sends\n"
        "      --memory KIND     gpu: GPU memory, calls on a stream (default if the daemon serves GPUs); host or "
        "shared:\n"
        "                        memory of the daemon, used in place (default otherwise); malloc: ordinary memory\n"
        "      --duration S      measure for about S seconds in all, in rounds of -n calls\n"
        "      --max-blocks N    thread blocks that each rank's own kernels may have at most (default 0: no bound)\n"
        "      --comms N         also time the creation of N further communicators\n"
        "      --socket PATH     the daemon's client socket (default $RAILMUX_SOCKET, /run/railmux/client.sock);\n"
        "                        several, at most 64, with commas between: the ranks are dealt out to them in rows\n"
        "  -h, --help            show this text\n"
        "      --version         show the version\n"
        "\n"
        "Sizes are bytes of the whole buffer: of one rank for all_reduce, reduce, broadcast and sendrecv, of all "
        "ranks'\n"
        "blocks together for the others; they are rounded down to whole elements (per block). all_to_all_v sends "
        "between\n"
        "nothing and a whole block to each rank (see --equal): its lines say what a rank sends in the mean.\n"
        "time is the mean over a line's calls; p50 and p99 are over the calls, each taken at its slowest rank; with\n"
        "graphs, over the replays, divided by their calls. On GPUs times are those between events on the stream.\n"
        "Exit status: 0 all right, 1 a wrong element was found, 2 wrong usage, 3 the run failed.\n";

enum {
        OPT_RANKS = 256,
        OPT_IN_PLACE,
        OPT_ODD,
        OPT_EQUAL,
        OPT_MEMORY,
        OPT_DURATION,
        OPT_COMMS,
        OPT_MAX_BLOCKS,
        OPT_SOCKET,
        OPT_VERSION
};

static const struct option long_options[] = {
        {"ranks", required_argument, NULL, OPT_RANKS},
        {"min", required_argument, NULL, 'b'},
        {"max", required_argument, NULL, 'e'},
        {"factor", required_argument, NULL, 'f'},
        {"type", required_argument, NULL, 'd'},
        {"redop", required_argument, NULL, 'o'},
        {"root", required_argument, NULL, 'r'},
        {"warmup", required_argument, NULL, 'w'},
        {"iterations", required_argument, NULL, 'n'},
        {"check", required_argument, NULL, 'c'},
        {"graphs", required_argument, NULL, 'G'},
        {"json", required_argument, NULL, 'J'},
        {"in-place", required_argument, NULL, OPT_IN_PLACE},
        {"odd", no_argument, NULL, OPT_ODD},
        {"equal", no_argument, NULL, OPT_EQUAL},
        {"memory", required_argument, NULL, OPT_MEMORY},
        {"duration", required_argument, NULL, OPT_DURATION},
        {"comms", required_argument, NULL, OPT_COMMS},
        {"max-blocks", required_argument, NULL, OPT_MAX_BLOCKS},
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, OPT_VERSION},
        {NULL, 0, NULL, 0},
};

const char *options_memory_name(uint32_t memory) {
        static const char *const names[OPTIONS_MEMORIES] = {"auto", "shared", "malloc", "gpu"};

        return memory < OPTIONS_MEMORIES ? names[memory] : "?";
}

const char *options_op_name(uint32_t op) {
        return op < COUNT_OF(op_names) ? op_names[op] : "?";
}

const char *options_type_name(uint32_t type) {
        for (size_t i = 0; i < COUNT_OF(type_names); i++)
                if (type_names[i].number == type)
                        return type_names[i].name;
        return "?";
}

const char *options_redop_name(uint32_t redop) {
        for (size_t i = 0; i < COUNT_OF(redop_names); i++)
                if (redop_names[i].number == redop)
                        return redop_names[i].name;
        return "?";
}

#define OPS                                                                                                            \
        "all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, all_to_all_v, gather, scatter, "       \
        "sendrecv, barrier"
#define TYPES  "int8, uint8, int32, uint32, int64, uint64, fp16, bf16, fp32, fp64, fp8_e4m3, fp8_e5m2, all"
#define REDOPS "sum, prod, max, min, avg, premul, all"

static int take_type(const char *text, struct options *o, char *error) {
        if (strcmp(text, "all") == 0) {
                for (o->n_types = 0; o->n_types < OPTIONS_TYPES_MAX; o->n_types++)
                        o->type[o->n_types] = o->n_types;
                return OPTIONS_OK;
        }
        for (size_t i = 0; i < COUNT_OF(type_names); i++)
                if (strcmp(type_names[i].name, text) == 0) {
                        o->type[0] = type_names[i].number;
                        o->n_types = 1;
                        return OPTIONS_OK;
                }
        return options_refuse(error, "unknown type '%.40s'; use one of: " TYPES, text);
}

static int take_redop(const char *text, struct options *o, char *error) {
        if (strcmp(text, "all") == 0) {
                for (o->n_redops = 0; o->n_redops < OPTIONS_REDOPS_MAX; o->n_redops++)
                        o->redop[o->n_redops] = o->n_redops;
                return OPTIONS_OK;
        }
        for (size_t i = 0; i < COUNT_OF(redop_names); i++)
                if (strcmp(redop_names[i].name, text) == 0) {
                        o->redop[0] = redop_names[i].number;
                        o->n_redops = 1;
                        return OPTIONS_OK;
                }
        return options_refuse(error, "unknown reduction '%.40s'; use one of: " REDOPS, text);
}

static int take_in_place(const char *text, uint32_t *ret_place, char *error) {
        if (strcmp(text, "0") == 0)
                *ret_place = OPTIONS_OUT_OF_PLACE;
        else if (strcmp(text, "1") == 0)
                *ret_place = OPTIONS_IN_PLACE;
        else if (strcmp(text, "both") == 0)
                *ret_place = OPTIONS_BOTH;
        else
                return options_refuse(error, "--in-place: '%.40s' is not allowed; allowed: 0, 1, both", text);
        return OPTIONS_OK;
}

static int take_memory(const char *text, uint32_t *ret_memory, char *error) {
        if (strcmp(text, "host") == 0)
                text = "shared";
        for (uint32_t i = OPTIONS_MEMORY_AUTO + 1; i < OPTIONS_MEMORIES; i++)
                if (strcmp(text, options_memory_name(i)) == 0) {
                        *ret_memory = i;
                        return OPTIONS_OK;
                }
        return options_refuse(error, "--memory: '%.40s' is not allowed; allowed: gpu, host, shared, malloc", text);
}

static int take_sockets(const char *text, struct options *o, char *error) {
        size_t used = strlen(text) + 1, at = 0;

        o->n_sockets = 0;
        if (used <= sizeof(o->sockets))
                memcpy(o->sockets, text, used);
        while (used <= sizeof(o->sockets) && o->n_sockets < OPTIONS_SOCKETS_MAX) {
                size_t length = strcspn(o->sockets + at, ",");
                bool last = at + length + 1 == used;

                if (length == 0)
                        break;
                o->socket_at[o->n_sockets++] = (uint16_t)at;
                o->sockets[at + length] = 0;
                at += length + 1;
                if (last)
                        return OPTIONS_OK;
        }
        snprintf(error, OPTIONS_ERROR_MAX, "--socket: 1 to %u paths with commas between them", OPTIONS_SOCKETS_MAX);
        return OPTIONS_E_USAGE;
}

static int take_duration(const char *text, double *ret_seconds, char *error) {
        char *end;
        double value = strtod(text, &end);

        if (end == text || *end || !isfinite(value) || value <= 0)
                return options_refuse(error, "--duration: '%.40s' is no number of seconds above 0", text);
        *ret_seconds = value;
        return OPTIONS_OK;
}

static int take_op(const char *text, uint32_t *ret_op, char *error) {
        for (uint32_t i = 0; i < COUNT_OF(op_names); i++)
                if (strcmp(op_names[i], text) == 0) {
                        *ret_op = i;
                        return OPTIONS_OK;
                }
        return options_refuse(error, "unknown operation '%.40s'; use one of: " OPS, text);
}

static int take_option(int c, const char *text, struct options *o, char *error) {
        switch (c) {
        case OPT_RANKS:
                return options_take_u32("--ranks", text, 1, CREW_RANKS_MAX, &o->ranks, error);
        case 'b':
                return options_take_size("-b", text, GIB_MAX, &o->min_bytes, error);
        case 'e':
                return options_take_size("-e", text, GIB_MAX, &o->max_bytes, error);
        case 'f':
                return options_take_u32("-f", text, 2, 1u << 30, &o->factor, error);
        case 'd':
                return take_type(text, o, error);
        case 'o':
                return take_redop(text, o, error);
        case 'r':
                return options_take_u32("-r", text, 0, CREW_RANKS_MAX - 1, &o->root, error);
        case 'w':
                return options_take_u32("-w", text, 0, 1000000, &o->warmup, error);
        case 'n':
                return options_take_u32("-n", text, 0, 10000000, &o->iterations, error);
        case 'c':
                return options_take_u32("-c", text, 0, 2, &o->check, error);
        case 'G':
                return options_take_u32("-G", text, 0, GRAPHS_MAX, &o->graphs, error);
        case 'J':
                o->json = text;
                return OPTIONS_OK;
        case OPT_IN_PLACE:
                return take_in_place(text, &o->place, error);
        case OPT_ODD:
                o->odd = true;
                return OPTIONS_OK;
        case OPT_EQUAL:
                o->equal = true;
                return OPTIONS_OK;
        case OPT_MEMORY:
                return take_memory(text, &o->memory, error);
        case OPT_DURATION:
                return take_duration(text, &o->duration_s, error);
        case OPT_COMMS:
                return options_take_u32("--comms", text, 0, 1000000, &o->comms, error);
        case OPT_MAX_BLOCKS:
                return options_take_u32("--max-blocks", text, 0, 1000000, &o->max_blocks, error);
        case OPT_SOCKET:
                return take_sockets(text, o, error);
        case 'h':
                fputs(help_text, stdout);
                return OPTIONS_E_HELP;
        case OPT_VERSION:
                printf("railmux-perf %u.%u.%u\n", rmx_version() >> 16, rmx_version() >> 8 & 0xffu,
                       rmx_version() & 0xffu);
                return OPTIONS_E_HELP;
        default:
                return options_refuse(error, "wrong option; see railmux-perf --help");
        }
}

int options_parse(int argc, char **argv, struct options *ret_options, char ret_error[OPTIONS_ERROR_MAX]) {
        struct options o = {
                .ranks = 8,
                .min_bytes = 8,
                .max_bytes = 16u << 20,
                .factor = 2,
                .type = {RMX_FLOAT32},
                .n_types = 1,
                .redop = {RMX_SUM},
                .n_redops = 1,
                .warmup = 5,
                .iterations = 20,
                .check = OPTIONS_CHECK_ENDS,
                .place = OPTIONS_BOTH,
        };
        int c, r;

        while ((c = getopt_long(argc, argv, "b:e:f:d:o:r:w:n:c:G:J:h", long_options, NULL)) != -1) {
                r = take_option(c, optarg, &o, ret_error);
                if (r)
                        return r;
        }
        if (optind + 1 != argc)
                return options_refuse(ret_error, "exactly one operation is needed; see railmux-perf --help");
        r = take_op(argv[optind], &o.op, ret_error);
        if (r)
                return r;
        if (o.root >= o.ranks)
                return options_refuse(ret_error, "-r %u: the ranks are 0 to %u", o.root, o.ranks - 1);
        if (o.min_bytes > o.max_bytes)
                return options_refuse(ret_error, "-b is larger than -e");
        if (o.duration_s > 0 && o.iterations == 0)
                return options_refuse(ret_error, "--duration needs -n above 0");
        *ret_options = o;
        return OPTIONS_OK;
}

int options_check_memory(const struct options *o, char ret_error[OPTIONS_ERROR_MAX]) {
        if (o->graphs && o->memory != OPTIONS_MEMORY_GPU)
                return options_refuse(ret_error,
                                      "-G: graphs need GPU memory (--memory gpu), and a daemon that serves GPUs");
        if (o->graphs > 1 && o->check == OPTIONS_CHECK_ALL)
                return options_refuse(
                        ret_error, "-c 2 verifies every call, which in a graph of several is not possible; use -G 1");
        return OPTIONS_OK;
}

struct case_list {
        struct perf_case *cases;
        size_t n, room;
};

/* Bytes of a call's whole buffer; of an all_to_all_v, whose ranks send different numbers, in the mean. */
static uint64_t case_bytes(const struct options *o, const struct perf_case *c) {
        struct pattern shape = {.op = o->op, .n_ranks = o->ranks, .equal = o->equal};
        uint64_t unit = rmx_type_size(c->type), sum = 0;

        if (o->op != PATTERN_ALL_TO_ALL_V)
                return c->count * unit * pattern_blocks(o->op, o->ranks);
        for (uint32_t rank = 0; rank < o->ranks; rank++)
                sum += pattern_input_elements(&shape, rank, c->count) * unit;
        return sum / o->ranks;
}

static int append(struct case_list *list, const struct options *o, struct perf_case c) {
        if (list->n == list->room) {
                size_t room = list->room ? 2 * list->room : 64;
                struct perf_case *grown = realloc(list->cases, room * sizeof(*grown));

                if (!grown)
                        return -ENOMEM;
                list->cases = grown;
                list->room = room;
        }
        c.bytes = case_bytes(o, &c);
        list->cases[list->n++] = c;
        return 0;
}

/* The counts for one type and reduction: the sweep, and with --odd what lies around each of its sizes. */
static int append_sweep(struct case_list *list, const struct options *o, struct perf_case c) {
        uint64_t unit = rmx_type_size(c.type), last = UINT64_MAX;
        int r = 0;

        unit *= pattern_blocks(o->op, o->ranks);
        if (o->odd) {
                c.count = 0;
                r = append(list, o, c);
                c.count = 1;
                c.offset = 1;
                r = r ? r : append(list, o, c);
        }
        for (uint64_t bytes = o->min_bytes; r == 0 && bytes <= o->max_bytes;
             bytes = bytes ? bytes * o->factor : rmx_type_size(c.type)) {
                uint64_t count = bytes / unit;

                if (count == last || (o->odd && count < 2))
                        continue;
                last = count;
                c.count = count;
                c.offset = 0;
                r = append(list, o, c);
                if (!o->odd)
                        continue;
                c.count = count - 1;
                c.offset = 1;
                r = r ? r : append(list, o, c);
                c.count = count + 1;
                c.offset = 3;
                if ((count + 1) * unit <= o->max_bytes)
                        r = r ? r : append(list, o, c);
                c.count = count / 3 * 2 + 1; /* not near a power of two */
                c.offset = 5;
                r = r ? r : append(list, o, c);
        }
        return r;
}

int options_cases(const struct options *o, struct perf_case **ret_cases, size_t *ret_n) {
        struct case_list list = {0};
        uint32_t n_redops = pattern_op_reduces(o->op) ? o->n_redops : 1;
        int r = 0;

        if (o->op == PATTERN_BARRIER) {
                r = append(&list, o, (struct perf_case){.type = RMX_FLOAT32});
        } else {
                for (uint32_t t = 0; r == 0 && t < o->n_types; t++)
                        for (uint32_t d = 0; r == 0 && d < n_redops; d++)
                                r = append_sweep(&list, o,
                                                 (struct perf_case){.type = o->type[t],
                                                                    .redop = o->redop[d],
                                                                    .root = pattern_op_rooted(o->op) ? o->root : 0});
        }
        if (r) {
                free(list.cases);
                return r;
        }
        *ret_cases = list.cases;
        *ret_n = list.n;
        return 0;
}
