/* SPDX-License-Identifier: MIT */
#pragma once
/* A listening SOCK_SEQPACKET socket. */
#include <event2/event.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

struct listener;
struct manager;

struct listener_peer {
        pid_t pid;
        uid_t uid;
        gid_t gid;
};

/* accepted() takes fd over. It returns a negative errno for trouble of this connection only. */
typedef int (*listener_accepted)(struct manager *manager, int fd, const struct listener_peer *peer);

/* Takes the socket `name` from the fd store if it is bound to path, else makes it and stores it. */
const char *listener_error(int r); /* what listener_new() says */
int listener_new(struct manager *manager, const char *name, const char *path, unsigned int mode,
                 listener_accepted accepted, struct listener **ret_listener);
struct listener *listener_free(struct listener *listener);
