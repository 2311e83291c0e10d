/* SPDX-License-Identifier: MIT */
#pragma once
/* Ordinary memory whose pages are all there, made ready ahead by a thread. One thread at a time calls these. See
 * pages.c. */
#include <stddef.h>
#include <stdint.h>

#define PAGES_MOST 8u

struct pages;

/* NULL: out of memory. */
struct pages *pages_new(void);
/* And what is ready. NULL is allowed. */
void pages_free(struct pages *pages);
/* Has n pieces (PAGES_MOST at most) of so many bytes each made ready, and does not wait for that; what was ready of
 * another size is given back. 0 bytes: nothing. */
void pages_prepare(struct pages *pages, size_t bytes, uint32_t n);
/* A piece, at least a byte, zeroes, aligned to PAGES_ALIGN, which is the caller's: at once if one of this size is
 * ready, else when it is. If not more are ready than were wanted, one less is then. NULL: out of memory. */
void *pages_take(struct pages *pages, size_t bytes);
void pages_give(void *memory, size_t bytes);

#define PAGES_ALIGN ((size_t)2 << 20)
