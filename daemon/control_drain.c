/* SPDX-License-Identifier: MIT */
/*
 * The executor is told to end; what follows is what follows when it gets SIGTERM: its communicators are brought to a
 * stand (handover.c), it goes, whoever supervises executors starts the next one, and the communicators go on. The
 * operator wants to know how that went, so the answer comes when the new process is ready and none of the communicators
 * stands still for it any more, or after DRAIN_BOUND_NS. Those that have failed meanwhile, for whatever reason, count
 * as lost. Their ranks may have gone by then, and they with them, so it is noted when they fail. One whose ranks have
 * left it in good health counts as going on: the drain has cost it nothing.
 *
 * On the host backend there is no stand: begun requests are finished, and the successor reads the marks.
 */
#include "daemon/control_drain.h"

#include "daemon/comm.h"
#include "daemon/control_answer.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/handover.h"
#include "daemon/manager.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define DRAIN_BOUND_NS (UINT64_C(30) * 1000000000u)

static bool in_force(const struct comm *comm, const struct executor_link *link) {
        return comm->state == COMM_READY && !comm->code && !comm->aborting &&
               comm_needed(comm) & executor_link_mask(link);
}

uint32_t control_drain_begin(struct manager *manager, const char *name, struct control_drain *ret_drain, char *text,
                             size_t text_size) {
        struct control_drain drain = CONTROL_DRAIN_INIT;
        struct executor_link *link;
        struct comm *comm;

        DL_FOREACH(manager->links, link) {
                if (strcmp(link->name, name) == 0)
                        break;
        }
        if (!link) {
                snprintf(text, text_size, "there is no executor '%.32s'; status shows their names", name);
                return RMX_E_INVALID;
        }
        if (!executor_link_connected(link)) {
                snprintf(text, text_size, "executor %s is not there", link->name);
                return RMX_E_BUSY;
        }
        drain = (struct control_drain){
                .link = link, .instance = link->instance, .pid = (uint32_t)link->pid, .started_ns = clock_now_ns()};
        drain.comms = calloc(HASH_COUNT(manager->comms) + 1, sizeof(*drain.comms));
        if (!drain.comms) {
                snprintf(text, text_size, "railmuxd is out of memory");
                return RMX_E_NO_MEMORY;
        }
        for (comm = manager->comms; comm; comm = comm->hh.next)
                if (in_force(comm, link))
                        drain.comms[drain.n_comms++].number = comm->number;
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"EXECUTOR", link->name, NULL},
                   "executor %s (pid %u): an operator replaces it; %zu communicators are on it", link->name, drain.pid,
                   drain.n_comms);
        *ret_drain = drain;
        DL_APPEND(manager->drains, ret_drain); /* before it fails any of them */
        handover_ask(link);
        return RMX_OK;
}

void control_drains_note(const struct comm *comm) {
        struct control_drain *drain;

        DL_FOREACH(comm->manager->drains, drain) {
                for (size_t i = 0; i < drain->n_comms; i++)
                        if (drain->comms[i].number == comm->number)
                                drain->comms[i].lost = true;
        }
}

/* Communicators of then that have failed, and whether one of them still stands. */
static size_t count_lost(const struct control_drain *drain, struct manager *manager, bool *ret_stands) {
        size_t n = 0;

        *ret_stands = false;
        for (size_t i = 0; i < drain->n_comms; i++) {
                const struct comm *comm = manager_comm(manager, drain->comms[i].number);

                n += drain->comms[i].lost;
                *ret_stands = *ret_stands || (comm && comm->handover.state != HANDOVER_NONE);
        }
        return n;
}

static void say(const struct control_drain *drain, size_t n_lost, struct control_answer *answer) {
        Railmux__Control__Reply *reply = control_answer_first(answer);
        Railmux__Control__Drained *drained = control_answer_message(answer, &railmux__control__drained__descriptor);

        if (!reply || !drained)
                return;
        drained->executor = control_answer_text(answer, "%s", drain->link->name);
        drained->old_pid = drain->pid;
        drained->pid = (uint32_t)drain->link->pid;
        drained->comms = (uint32_t)drain->n_comms;
        drained->lost = (uint32_t)n_lost;
        drained->duration_ns = clock_now_ns() - drain->started_ns;
        reply->drained = drained;
}

bool control_drain_over(const struct control_drain *drain, struct manager *manager, struct control_answer *answer) {
        const struct executor_link *link = drain->link;
        bool there = link->state == EXECUTOR_READY && link->instance != drain->instance, stands;
        size_t n_lost = count_lost(drain, manager, &stands);
        char text[200];

        if (there && !stands) {
                say(drain, n_lost, answer);
                return true;
        }
        if (clock_now_ns() - drain->started_ns < DRAIN_BOUND_NS)
                return false;
        if (there)
                snprintf(text, sizeof(text), "executor %s was replaced, but communicators still stand for others",
                         link->name);
        else if (link->instance == drain->instance && executor_link_connected(link))
                snprintf(text, sizeof(text), "executor %s (pid %u) does not end", link->name, drain->pid);
        else
                snprintf(text, sizeof(text), "executor %s has ended, and no new one is ready", link->name);
        control_answer_fail(answer, RMX_E_TIMEOUT, text);
        return true;
}

void control_drain_deinit(struct control_drain *drain) {
        if (drain->link)
                DL_DELETE(drain->link->manager->drains, drain);
        free(drain->comms);
        *drain = (struct control_drain)CONTROL_DRAIN_INIT;
}
