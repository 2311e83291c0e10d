/* SPDX-License-Identifier: MIT */
#pragma once
/* Aligned columns for people. */
#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 16u

struct table {
        const char *const *headers; /* NULL-terminated; one that begins with '>' is aligned to the right */
        unsigned int n_columns;
        char **cells; /* row by row */
        size_t n_cells;
        int error; /* -ENOMEM once memory was short; everything after is a no-op */
};

void table_init(struct table *table, const char *const *headers);
void table_deinit(struct table *table);
/* The next cell. Control characters become '?'; empty becomes "-". */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_size(struct table *table, unsigned long long bytes);
void table_age(struct table *table, unsigned long long ns);
/* A line of its own between two rows, behind the row that is complete now. */
void table_note(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
int table_print(const struct table *table, FILE *out);

/* Makes text safe for a terminal, in place. */
char *table_clean(char *text);
/* "1.5 h" and the like. */
const char *table_age_text(unsigned long long ns, char out[32]);
