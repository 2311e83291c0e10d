/* SPDX-License-Identifier: MIT */
#pragma once
/* Ordinary memory whose pages are all there, made ready ahead by a thread. One thread at a time calls these. See
 * pages.c. */
#include <stddef.h>

struct pages;

/* NULL: out of memory. */
struct pages *pages_new(void);
/* And what is ready. NULL is allowed. */
void pages_free(struct pages *pages);
/* Has so many bytes made ready, and does not wait for that; what was ready of another size is given back. 0: nothing.
 */
void pages_prepare(struct pages *pages, size_t bytes);
/* So many bytes, at least one, zeroes, aligned to PAGES_ALIGN, which are the caller's: at once if they are ready, else
 * when they are. NULL: out of memory. */
void *pages_take(struct pages *pages, size_t bytes);
void pages_give(void *memory, size_t bytes);

#define PAGES_ALIGN ((size_t)2 << 20)
