/* SPDX-License-Identifier: MIT */
#include "tools/ctl/table.h"

#include "util/parse.h"
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_NOTE '\001' /* first byte of a cell that is a note; cleaned text cannot begin with it */

char *table_clean(char *text) {
        for (char *p = text; *p; p++)
                if ((unsigned char)*p < ' ' || *p == 0x7f)
                        *p = '?';
        return text;
}

void table_init(struct table *table, const char *const *headers) {
        *table = (struct table){.headers = headers};
        while (headers[table->n_columns])
                table->n_columns++;
        assert(table->n_columns <= TABLE_COLUMNS_MAX);
}

void table_deinit(struct table *table) {
        for (size_t i = 0; i < table->n_cells; i++)
                free(table->cells[i]);
        free(table->cells);
        table->cells = NULL;
        table->n_cells = 0;
}

/* Takes text over. */
static void table_add(struct table *table, char *text) {
        char **cells = NULL;

        if (!table->error && text)
                cells = realloc(table->cells, (table->n_cells + 1) * sizeof(*cells));
        if (!cells) {
                table->error = -ENOMEM;
                free(text);
                return;
        }
        table->cells = cells;
        cells[table->n_cells++] = text;
}

void table_cell(struct table *table, const char *format, ...) {
        char *text = NULL;
        va_list args;

        va_start(args, format);
        if (vasprintf(&text, format, args) < 0)
                text = NULL;
        va_end(args);
        if (text)
                table_clean(text);
        if (text && !*text) {
                free(text);
                text = strdup("-");
        }
        table_add(table, text);
}

void table_size(struct table *table, unsigned long long bytes) {
        char text[32];

        table_cell(table, "%s", format_size(bytes, text, sizeof(text)));
}

const char *table_age_text(unsigned long long ns, char out[32]) {
        double seconds = (double)ns / 1e9;

        if (seconds < 120)
                snprintf(out, 32, "%.1f s", seconds);
        else if (seconds < 2 * 3600)
                snprintf(out, 32, "%.1f min", seconds / 60);
        else if (seconds < 2 * 86400)
                snprintf(out, 32, "%.1f h", seconds / 3600);
        else
                snprintf(out, 32, "%.1f d", seconds / 86400);
        return out;
}

void table_age(struct table *table, unsigned long long ns) {
        char text[32];

        table_cell(table, "%s", table_age_text(ns, text));
}

void table_note(struct table *table, const char *format, ...) {
        char *text = NULL, *marked = NULL;
        va_list args;

        va_start(args, format);
        if (vasprintf(&text, format, args) < 0)
                text = NULL;
        va_end(args);
        if (text && asprintf(&marked, "%c%s", TABLE_NOTE, table_clean(text)) < 0)
                marked = NULL;
        free(text);
        table_add(table, marked);
}

static void table_print_cell(const struct table *table, unsigned int column, const char *text, size_t width,
                             FILE *out) {
        bool right = table->headers[column][0] == '>', last = column + 1 == table->n_columns;

        if (right)
                fprintf(out, "%*s", (int)width, text);
        else if (last)
                fputs(text, out);
        else
                fprintf(out, "%-*s", (int)width, text);
        fputs(last ? "\n" : "  ", out);
}

int table_print(const struct table *table, FILE *out) {
        size_t widths[TABLE_COLUMNS_MAX] = {0};
        unsigned int column = 0;

        if (table->error)
                return table->error;
        for (unsigned int i = 0; i < table->n_columns; i++)
                widths[i] = strlen(table->headers[i]) - (table->headers[i][0] == '>');
        for (size_t i = 0; i < table->n_cells; i++) {
                size_t length = strlen(table->cells[i]);

                if (table->cells[i][0] == TABLE_NOTE)
                        continue;
                if (length > widths[column])
                        widths[column] = length;
                column = (column + 1) % table->n_columns;
        }
        assert(!column); /* rows are complete */
        for (unsigned int i = 0; i < table->n_columns; i++)
                table_print_cell(table, i, table->headers[i] + (table->headers[i][0] == '>'), widths[i], out);
        for (size_t i = 0; i < table->n_cells; i++) {
                if (table->cells[i][0] == TABLE_NOTE) {
                        fprintf(out, "    %s\n", table->cells[i] + 1);
                        continue;
                }
                table_print_cell(table, column, table->cells[i], widths[column], out);
                column = (column + 1) % table->n_columns;
        }
        return 0;
}
