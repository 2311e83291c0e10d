/* SPDX-License-Identifier: MIT */
/* The keeper is asked with a notification; it knows the program, we tell the arguments. */
#include "daemon/launcher_command.h"
#include "daemon/launcher_private.h"
#include "daemon/notify.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAUNCHER_MESSAGE_MAX 4096u

static int launcher_keeper_init(struct launcher *launcher) {
        (void)launcher;
        return 0;
}

static void launcher_keeper_deinit(struct launcher *launcher) {
        (void)launcher;
}

static int launcher_keeper_start(struct launcher *launcher, const char *name) {
        char text[LAUNCHER_MESSAGE_MAX], **argv;
        size_t length;
        int r;

        r = launcher_command_arguments(launcher->config, name, false, &argv);
        if (r < 0)
                return r;
        length = (size_t)snprintf(text, sizeof(text), "X_RAILMUX_EXECUTOR=%s", name);
        for (char **p = argv + 1; *p && !r; p++) {
                int n = snprintf(text + length, sizeof(text) - length, "\nX_RAILMUX_ARGUMENT=%s", *p);

                if (strchr(*p, '\n'))
                        r = -EINVAL; /* would end the line */
                else if (n < 0 || (size_t)n >= sizeof(text) - length)
                        r = -ENAMETOOLONG;
                else
                        length += (size_t)n;
        }
        launcher_command_free(argv);
        if (!r)
                r = notify_say(launcher->notify, "%s", text);
        return r;
}

const struct launcher_operations launcher_keeper = {
        .kind = "keeper",
        .init = launcher_keeper_init,
        .deinit = launcher_keeper_deinit,
        .start = launcher_keeper_start,
};
