/* SPDX-License-Identifier: MIT */
#pragma once
/* The keeper's fd store: descriptors under names, in the order they came. */
#include <stddef.h>
#include <uthash.h>

#define KEEPER_STORE_FDS_MAX 16384u
/* All names together become one environment variable, and the kernel takes at most 128 KiB for one. */
#define KEEPER_STORE_NAMES_MAX (120u << 10)
#define KEEPER_STORE_NAME_MAX  255u

enum {
        _KEEPER_STORE_E_SUCCESS,
        KEEPER_STORE_E_DUPLICATE, /* this open file is there under this name already */
        KEEPER_STORE_E_FULL,
};

struct closer;

struct keeper_store_entry {
        struct keeper_store_entry *next, *prev; /* utlist, all, oldest first */
        struct keeper_store_entry *same_name;   /* older one of the same name */
        UT_hash_handle hh;                      /* newest of its name */
        int fd;
        char name[];
};

struct keeper_store {
        struct keeper_store_entry *all;
        struct keeper_store_entry *by_name;
        unsigned int n_fds;
        size_t names_bytes;    /* of all names with a ':' each */
        unsigned int max_fds;  /* beyond it, a child could not be given them all */
        struct closer *closer; /* of what is removed; NULL: it is closed here */
};
#define KEEPER_STORE_INIT                                                                                              \
        { .max_fds = KEEPER_STORE_FDS_MAX }

/* Keeps fd (taken over in any case) under the name; a bad name becomes "stored", as with systemd. 0, E_*, -errno. */
int keeper_store_put(struct keeper_store *store, const char *name, int fd);
void keeper_store_remove(struct keeper_store *store, const char *name);
/* At the orderly end: takes the paths of listening sockets away. */
void keeper_store_unlink(const struct keeper_store *store);
void keeper_store_clear(struct keeper_store *store);
/* "a:b:c" for LISTEN_FDNAMES; to be freed. NULL: no memory. */
char *keeper_store_names(const struct keeper_store *store);
/* For a child between fork and exec: puts the fds at 3, 4, ... without FD_CLOEXEC. 0 or -errno. */
int keeper_store_place(const struct keeper_store *store);
