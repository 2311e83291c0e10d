/* SPDX-License-Identifier: MIT */
#pragma once
/* Files that are read whole, and what is wrong with them. Every text begins with the file's name. */
#include <jansson.h>
#include <stddef.h>

/* What the file begins with, white space aside. 0, or -EINVAL with a text: it cannot be read, or is empty. */
int document_first(const char *path, int *ret_first, char *ret_error, size_t error_size);
/* JSON, the caller's to decref. NULL, with a text. */
json_t *document_load(const char *path, char *ret_error, size_t error_size);
