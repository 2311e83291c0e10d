/* SPDX-License-Identifier: MIT */
/*
 * The fd store, over systemd's notify protocol (our keeper speaks the same).
 *
 * What was handed over at the start; notify.c puts and removes. Which fds count is decided by the state memfd alone;
 * what a successor does not take it removes. FDSTOREREMOVE works by name, so names are unique, and an untaken fd whose
 * name was taken is only closed here. Listening sockets alone may share a name, with those of socket units; listener.c
 * takes all of them.
 */
#include "daemon/fdstore.h"

#include "daemon/notify.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

struct fdstore_entry {
        char *name;
        int fd; /* -1: taken */
        bool taken;
};

struct fdstore {
        struct notify *notify;
        struct fdstore_entry *entries;
        unsigned int n_entries;
};

int fdstore_new(struct notify *notify, struct fdstore **ret_store) {
        struct fdstore *store;
        char **names = NULL;
        int n;

        store = calloc(1, sizeof(*store));
        if (!store)
                return -ENOMEM;
        store->notify = notify;
        n = sd_listen_fds_with_names(1, &names);
        if (n < 0) {
                free(store);
                return n;
        }
        store->entries = calloc((size_t)n + 1, sizeof(*store->entries));
        if (!store->entries) {
                for (int i = 0; i < n; i++)
                        free(names[i]);
                free(names);
                free(store);
                return -ENOMEM;
        }
        for (int i = 0; i < n; i++) {
                store->entries[i].name = names[i];
                store->entries[i].fd = SD_LISTEN_FDS_START + i;
                fcntl(SD_LISTEN_FDS_START + i, F_SETFD, FD_CLOEXEC);
        }
        store->n_entries = (unsigned int)n;
        free(names);
        *ret_store = store;
        return 0;
}

static bool fdstore_name_taken(const struct fdstore *store, const char *name) {
        for (unsigned int i = 0; i < store->n_entries; i++) {
                if (store->entries[i].taken && strcmp(store->entries[i].name, name) == 0)
                        return true;
        }
        return false;
}

static void fdstore_close(struct fdstore *store, bool remove) {
        for (unsigned int i = 0; i < store->n_entries; i++) {
                struct fdstore_entry *entry = &store->entries[i];

                if (entry->taken)
                        continue;
                close(entry->fd);
                if (remove && !fdstore_name_taken(store, entry->name))
                        (void)notify_remove(store->notify, entry->name);
        }
        for (unsigned int i = 0; i < store->n_entries; i++)
                free(store->entries[i].name);
        free(store->entries);
        free(store);
}

struct fdstore *fdstore_free(struct fdstore *store) {
        if (store)
                fdstore_close(store, true);
        return NULL;
}

struct fdstore *fdstore_abandon(struct fdstore *store) {
        if (store)
                fdstore_close(store, false);
        return NULL;
}

int fdstore_take(struct fdstore *store, const char *name) {
        for (unsigned int i = 0; store && i < store->n_entries; i++) {
                struct fdstore_entry *entry = &store->entries[i];
                int fd = entry->fd;

                if (entry->taken || strcmp(entry->name, name) != 0)
                        continue;
                entry->taken = true;
                entry->fd = -1;
                return fd;
        }
        return -ENOENT;
}
