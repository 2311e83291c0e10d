/* SPDX-License-Identifier: MIT */
#include "tools/sim/document.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The first character that is no white space; else EOF, and what is wrong. */
static int first_of(FILE *file, const char *path, char *ret_error, size_t error_size) {
        int first;

        do
                first = fgetc(file);
        while (first == ' ' || first == '\n' || first == '\r' || first == '\t');
        if (first == EOF)
                snprintf(ret_error, error_size, "%.120s: %s", path, ferror(file) ? strerror(errno) : "it is empty");
        return first;
}

static FILE *document_open(const char *path, char *ret_error, size_t error_size) {
        FILE *file = fopen(path, "re");

        if (!file)
                snprintf(ret_error, error_size, "%.120s: %s", path, strerror(errno));
        return file;
}

int document_first(const char *path, int *ret_first, char *ret_error, size_t error_size) {
        struct stat status;
        FILE *file;
        int first;

        /* It is read once more, which a pipe cannot be. */
        if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
                snprintf(ret_error, error_size, "%.120s: it is no regular file", path);
                return -EINVAL;
        }
        file = document_open(path, ret_error, error_size);
        if (!file)
                return -EINVAL;
        first = first_of(file, path, ret_error, error_size);
        fclose(file);
        if (first == EOF)
                return -EINVAL;
        *ret_first = first;
        return 0;
}

json_t *document_load(const char *path, char *ret_error, size_t error_size) {
        FILE *file = document_open(path, ret_error, error_size);
        json_t *document = NULL;
        json_error_t error;
        int first = file ? first_of(file, path, ret_error, error_size) : EOF;

        if (first != EOF) {
                if (fseek(file, 0, SEEK_SET)) /* a pipe */
                        (void)ungetc(first, file);
                document = json_loadf(file, 0, &error);
                if (!document)
                        snprintf(ret_error, error_size, "%.120s: %.100s (line %d)", path, error.text, error.line);
        }
        if (file)
                fclose(file);
        return document;
}
