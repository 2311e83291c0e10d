/* SPDX-License-Identifier: MIT */
#include "tools/sim/document.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int document_first(const char *path, int *ret_first, char *ret_error, size_t error_size) {
        FILE *file = fopen(path, "re");
        const char *wrong = NULL;
        int first = EOF;

        if (file)
                do
                        first = fgetc(file);
                while (first == ' ' || first == '\n' || first == '\r' || first == '\t');
        if (first == EOF)
                wrong = !file || ferror(file) ? strerror(errno) : "it is empty";
        if (file)
                fclose(file);
        if (wrong) {
                snprintf(ret_error, error_size, "%.120s: %s", path, wrong);
                return -EINVAL;
        }
        *ret_first = first;
        return 0;
}

json_t *document_load(const char *path, char *ret_error, size_t error_size) {
        json_error_t error;
        json_t *document;
        int first;

        if (document_first(path, &first, ret_error, error_size))
                return NULL;
        document = json_load_file(path, 0, &error);
        if (!document)
                snprintf(ret_error, error_size, "%.120s: %.100s (line %d)", path, error.text, error.line);
        return document;
}
