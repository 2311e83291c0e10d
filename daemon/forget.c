/* SPDX-License-Identifier: MIT */
/*
 * A removal from the fd store is a packet, which the kernel may refuse for want of memory. Nobody would remove the fd
 * then before the next start of this daemon: the store would fill with what dead clients have left. So the name is kept
 * and the removal tried again.
 *
 * A name that waits here must not be stored anew, since the removal would hit the new fd; forget_settle() tells.
 */
#include "daemon/forget.h"

#include "daemon/notify.h"
#include "util/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct forget_entry {
        struct forget_entry *next, *prev;
        char name[FORGET_NAME_MAX];
};

struct forget {
        struct notify *notify;
        struct forget_entry *entries; /* utlist */
        struct event *timer;
};

static const struct timeval forget_retry_time = {.tv_usec = 200000};

static void forget_retry(struct forget *forget) {
        while (forget->entries) {
                struct forget_entry *entry = forget->entries;

                if (notify_remove(forget->notify, entry->name) < 0) {
                        evtimer_add(forget->timer, &forget_retry_time); /* if that fails, the next name tries again */
                        return;
                }
                DL_DELETE(forget->entries, entry);
                free(entry);
        }
}

static void forget_time_over(evutil_socket_t fd, short what, void *data) {
        (void)fd;
        (void)what;
        forget_retry(data);
}

int forget_new(struct event_base *base, struct notify *notify, struct forget **ret_forget) {
        struct forget *forget = calloc(1, sizeof(*forget));

        if (!forget)
                return -ENOMEM;
        forget->notify = notify;
        forget->timer = evtimer_new(base, forget_time_over, forget);
        if (!forget->timer) {
                free(forget);
                return -ENOMEM;
        }
        *ret_forget = forget;
        return 0;
}

struct forget *forget_free(struct forget *forget) {
        if (!forget)
                return NULL;
        while (forget->entries) {
                struct forget_entry *entry = forget->entries;

                DL_DELETE(forget->entries, entry);
                free(entry);
        }
        event_free(forget->timer);
        free(forget);
        return NULL;
}

void forget_name(struct forget *forget, const char *name) {
        struct forget_entry *entry;
        int r = notify_remove(forget->notify, name);

        if (r == 0) {
                if (forget->entries) /* it works again */
                        forget_retry(forget);
                return;
        }
        entry = calloc(1, sizeof(*entry));
        if (!entry) {
                log_warning("fd store: %s stays until the next start: %s", name, strerror(-r));
                return;
        }
        snprintf(entry->name, sizeof(entry->name), "%s", name);
        DL_APPEND(forget->entries, entry);
        evtimer_add(forget->timer, &forget_retry_time);
}

bool forget_settle(struct forget *forget, const char *name) {
        struct forget_entry *entry;

        if (forget->entries)
                forget_retry(forget);
        DL_FOREACH(forget->entries, entry) {
                if (strcmp(entry->name, name) == 0)
                        return false;
        }
        return true;
}
