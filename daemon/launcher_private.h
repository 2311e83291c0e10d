/* SPDX-License-Identifier: MIT */
#pragma once
/* What the three ways of starting executors have in common. Only launcher*.c include this. */
#include "daemon/launcher.h"

struct launcher_operations {
        const char *kind;
        int (*init)(struct launcher *launcher);
        void (*deinit)(struct launcher *launcher);
        int (*start)(struct launcher *launcher, const char *name);
};

struct launcher {
        const struct launcher_operations *operations;
        struct event_base *base;
        struct notify *notify;
        const struct config *config; /* replaced by a reload only in place */
        void *private;               /* of the operations */
};

extern const struct launcher_operations launcher_child, launcher_keeper, launcher_systemd;
