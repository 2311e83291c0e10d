/* SPDX-License-Identifier: MIT */
#pragma once
/* Command line of railmux-sim. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/options_text.h"

#define OPTIONS_ALGORITHM_ALL UINT32_MAX

enum options_command { OPTIONS_RUN = 0, OPTIONS_CHOICES, OPTIONS_VERIFY, OPTIONS_FIT };

struct options {
        uint32_t command;   /* enum options_command */
        uint32_t operation; /* RING_OP_* by its number */
        uint32_t ranks;
        bool ranks_given;
        bool host;
        const char *topology;
        uint32_t workers; /* 0: not given */
        uint64_t min_bytes, max_bytes;
        uint32_t factor;
        uint32_t type;
        uint32_t root;
        uint32_t algorithm; /* 0: the one that is chosen */
        const char *constants;
        /* choices: so many nodes with so many ranks each, on GPUs, or of the host with `workers`; 0: one host */
        uint32_t nodes, gpus;
        uint32_t rails;
        const char *output;
        bool json;
        char *const *files; /* fit: what to fit to */
        uint32_t n_files;
};

/* OPTIONS_E_HELP: --help or --version was answered; OPTIONS_E_USAGE: ret_error says what is wrong. */
int options_parse(int argc, char **argv, struct options *ret_options, char ret_error[OPTIONS_ERROR_MAX]);
/* UINT32_MAX if there is none of that name. */
uint32_t options_type_find(const char *name);
uint32_t options_operation_find(const char *name);
uint32_t options_algorithm_find(const char *name);
