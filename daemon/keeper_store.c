/* SPDX-License-Identifier: MIT */
#include "daemon/keeper_store.h"

#include "daemon/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#define KEEPER_STORE_FIRST_FD 3

/* A kernel without kcmp, or a filter that forbids it, makes every file a different one: then a repeated put is kept
 * twice, which wastes a descriptor but loses nothing. */
static bool keeper_store_same_file(int a, int b) {
        pid_t self = getpid();

        return syscall(SYS_kcmp, self, self, KCMP_FILE, a, b) == 0;
}

static bool keeper_store_name_valid(const char *name) {
        size_t length = strlen(name);

        if (!length || length > KEEPER_STORE_NAME_MAX)
                return false;
        for (const char *p = name; *p; p++)
                if (*p <= ' ' || *p >= 127 || *p == ':')
                        return false;
        return true;
}

int keeper_store_put(struct keeper_store *store, const char *name, int fd) {
        struct keeper_store_entry *entry, *newest;
        size_t length;

        if (!keeper_store_name_valid(name))
                name = "stored";
        length = strlen(name);
        HASH_FIND_STR(store->by_name, name, newest);
        /* systemd compares with everything it keeps. Each of our names has a file of its own, so looking at the same
         * name finds the same repeats, and storing stays cheap with thousands of descriptors. */
        for (entry = newest; entry; entry = entry->same_name) {
                if (keeper_store_same_file(entry->fd, fd)) {
                        close(fd);
                        return KEEPER_STORE_E_DUPLICATE;
                }
        }
        if (store->n_fds >= store->max_fds || store->names_bytes + length + 1 > KEEPER_STORE_NAMES_MAX) {
                close(fd);
                return KEEPER_STORE_E_FULL;
        }
        entry = calloc(1, sizeof(*entry) + length + 1);
        if (!entry) {
                close(fd);
                return -ENOMEM;
        }
        memcpy(entry->name, name, length + 1);
        entry->fd = fd;
        entry->same_name = newest;
        HASH_ADD_STR(store->by_name, name, entry);
        if (!entry->hh.tbl) { /* no memory for the table */
                free(entry);
                close(fd);
                return -ENOMEM;
        }
        if (newest)
                HASH_DEL(store->by_name, newest);
        DL_APPEND(store->all, entry);
        store->n_fds++;
        store->names_bytes += length + 1;
        return 0;
}

void keeper_store_remove(struct keeper_store *store, const char *name) {
        struct keeper_store_entry *entry, *older;

        HASH_FIND_STR(store->by_name, name, entry);
        if (!entry)
                return;
        HASH_DEL(store->by_name, entry);
        for (; entry; entry = older) {
                older = entry->same_name;
                DL_DELETE(store->all, entry);
                store->n_fds--;
                store->names_bytes -= strlen(entry->name) + 1;
                closer_close(store->closer, entry->fd);
                free(entry);
        }
}

void keeper_store_clear(struct keeper_store *store) {
        while (store->all)
                keeper_store_remove(store, store->all->name);
}

/* Does this path lead to this listening socket? Another daemon may have taken the path, if somebody had removed it. Who
 * connects there comes out here, behind those whom nobody will serve any more. */
static bool store_leads_to(const struct sockaddr_un *address, socklen_t size, int listening_fd) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), other;
        bool ours = false;

        if (fd < 0)
                return false;
        if (connect(fd, (const struct sockaddr *)address, size) == 0)
                while (!ours && (other = accept4(listening_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                        struct ucred cred = {0};
                        socklen_t cred_size = sizeof(cred);

                        ours = getsockopt(other, SOL_SOCKET, SO_PEERCRED, &cred, &cred_size) == 0 &&
                               cred.pid == getpid();
                        close(other);
                }
        close(fd);
        return ours;
}

void keeper_store_unlink(const struct keeper_store *store) {
        const struct keeper_store_entry *entry;

        DL_FOREACH(store->all, entry) {
                struct sockaddr_un address = {0};
                socklen_t address_size = sizeof(address) - 1, size = sizeof(int);
                int listens = 0;

                /* Those that were accepted have the name of the one that has accepted them. */
                if (getsockopt(entry->fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
                    getsockname(entry->fd, (struct sockaddr *)&address, &address_size) == 0 &&
                    address.sun_family == AF_UNIX && address.sun_path[0] &&
                    fcntl(entry->fd, F_SETFL, O_NONBLOCK) == 0 && store_leads_to(&address, address_size, entry->fd))
                        unlink(address.sun_path);
        }
}

char *keeper_store_names(const struct keeper_store *store) {
        const struct keeper_store_entry *entry;
        char *names, *p;

        names = malloc(store->names_bytes + 1);
        if (!names)
                return NULL;
        p = names;
        DL_FOREACH(store->all, entry) {
                if (p != names)
                        *p++ = ':';
                memcpy(p, entry->name, strlen(entry->name));
                p += strlen(entry->name);
        }
        *p = '\0';
        return names;
}

/* Two steps, because a descriptor may stand where another has to go: first all above the final range, then down into
 * it. */
int keeper_store_place(const struct keeper_store *store) {
        const int above = KEEPER_STORE_FIRST_FD + (int)store->n_fds;
        const struct keeper_store_entry *entry;
        int i = 0, *fds;

        if (!store->n_fds)
                return 0;
        fds = calloc(store->n_fds, sizeof(*fds));
        if (!fds)
                return -ENOMEM;
        DL_FOREACH(store->all, entry) {
                fds[i] = entry->fd >= above ? entry->fd : fcntl(entry->fd, F_DUPFD_CLOEXEC, above);
                if (fds[i] < 0) {
                        free(fds);
                        return -errno;
                }
                i++;
        }
        for (i = 0; i < (int)store->n_fds; i++)
                if (dup2(fds[i], KEEPER_STORE_FIRST_FD + i) < 0) {
                        free(fds);
                        return -errno;
                }
        free(fds);
        return 0;
}
