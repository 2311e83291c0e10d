/* SPDX-License-Identifier: MIT */
#pragma once
/* The command line of railmux-perf and the cases that follow from it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/options_text.h"

#define OPTIONS_TYPES_MAX  12u
#define OPTIONS_REDOPS_MAX 6u

enum options_place { OPTIONS_OUT_OF_PLACE = 1, OPTIONS_IN_PLACE = 2, OPTIONS_BOTH = 3 };
enum options_memory {
        OPTIONS_MEMORY_AUTO,
        OPTIONS_MEMORY_SHARED,
        OPTIONS_MEMORY_MALLOC,
        OPTIONS_MEMORY_GPU,
        OPTIONS_MEMORIES,
};
enum options_check { OPTIONS_CHECK_NONE = 0, OPTIONS_CHECK_ENDS = 1, OPTIONS_CHECK_ALL = 2 };

#define OPTIONS_SOCKETS_MAX   64u
#define OPTIONS_SOCKETS_BYTES 8192u

struct options {
        uint32_t op; /* enum pattern_op */
        uint32_t ranks;
        uint64_t min_bytes, max_bytes;
        uint32_t factor;
        uint32_t type[OPTIONS_TYPES_MAX], n_types;
        uint32_t redop[OPTIONS_REDOPS_MAX], n_redops;
        uint32_t root;
        uint32_t warmup, iterations;
        uint32_t check; /* enum options_check */
        uint32_t place; /* enum options_place */
        bool odd;
        bool equal;        /* all_to_all_v: whole blocks */
        uint32_t memory;   /* enum options_memory */
        uint32_t graphs;   /* calls per captured graph; 0: no graphs */
        double duration_s; /* 0: by iterations */
        uint32_t comms;
        uint32_t max_blocks;                     /* of rmx_comm_options */
        char sockets[OPTIONS_SOCKETS_BYTES];     /* paths of daemons' sockets, each with its zero; ranks go in rows */
        uint16_t socket_at[OPTIONS_SOCKETS_MAX]; /* where each begins */
        uint32_t n_sockets;                      /* 0: the library's default */
        const char *json;                        /* NULL: none */
};

/* One line of the table. */
struct perf_case {
        uint32_t type, redop, root;
        uint64_t count;  /* argument of the call */
        uint64_t bytes;  /* as in the size column */
        uint32_t offset; /* elements between the buffer's alignment and its first element */
};

/* The daemon of a rank; NULL: the library's default. */
static inline const char *options_socket(const struct options *options, uint32_t rank) {
        return options->n_sockets ? options->sockets + options->socket_at[rank * options->n_sockets / options->ranks]
                                  : NULL;
}

int options_parse(int argc, char **argv, struct options *ret_options, char ret_error[OPTIONS_ERROR_MAX]);
/* What can only be said when the memory is no longer AUTO. As options_parse. */
int options_check_memory(const struct options *options, char ret_error[OPTIONS_ERROR_MAX]);
const char *options_memory_name(uint32_t memory);
const char *options_op_name(uint32_t op);
const char *options_type_name(uint32_t type);
const char *options_redop_name(uint32_t redop);
/* The cases in order of the table. 0 or -ENOMEM. */
int options_cases(const struct options *options, struct perf_case **ret_cases, size_t *ret_n);
