/* SPDX-License-Identifier: MIT */
/*
 * Executors should outlive railmuxd, so somebody else has to be their parent: systemd if it is what runs us, else our
 * keeper. If neither is there, they are our own children and end with us.
 */
#include "daemon/launcher.h"

#include "daemon/launcher_command.h"
#include "daemon/launcher_private.h"
#include "util/cleanup.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-login.h>

static bool launcher_environment(const char *name) {
        const char *value = getenv(name);

        return value && *value;
}

static const struct launcher_operations *launcher_choose(void) {
        _cleanup_free_ char *unit = NULL;

        if (!launcher_environment("NOTIFY_SOCKET"))
                return &launcher_child;
        if (launcher_environment("RAILMUX_KEEPER"))
                return &launcher_keeper;
        /* A system unit with a notify socket of its own. Inherited variables in somebody's shell are not enough. */
        if (launcher_environment("INVOCATION_ID") && sd_pid_get_unit(0, &unit) >= 0 &&
            strncmp(unit, "railmuxd", strlen("railmuxd")) == 0)
                return &launcher_systemd;
        return &launcher_child;
}

int launcher_new(struct event_base *base, struct notify *notify, const struct config *config,
                 struct launcher **ret_launcher) {
        struct launcher *launcher;
        int r;

        launcher = calloc(1, sizeof(*launcher));
        if (!launcher)
                return -ENOMEM;
        launcher->operations = launcher_choose();
        launcher->base = base;
        launcher->notify = notify;
        launcher->config = config;
        r = launcher->operations->init(launcher);
        if (r < 0) {
                launcher_free(launcher);
                return r;
        }
        *ret_launcher = launcher;
        return 0;
}

struct launcher *launcher_free(struct launcher *launcher) {
        if (!launcher)
                return NULL;
        launcher->operations->deinit(launcher);
        free(launcher);
        return NULL;
}

int launcher_start(struct launcher *launcher, const char *name) {
        if (!launcher_command_name_valid(name))
                return -EINVAL;
        return launcher->operations->start(launcher, name);
}

const char *launcher_kind(const struct launcher *launcher) {
        return launcher->operations->kind;
}
