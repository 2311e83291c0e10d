/* SPDX-License-Identifier: MIT */
#pragma once
/* The tasks that a worker has in hand, in the order in which their lines came. */
#include "gpu/device/task_run.h"

/* Puts a task that has been filled into `place` at the end of the list. */
DEVICE void list_append(struct worker *w, uint32_t place, const struct task *t) {
        warp_sync();
        if (warp_thread() == 0) {
                shared_of(w)->order[w->n_tasks] = (uint8_t)place;
                shared_of(w)->waiting[w->n_tasks] = task_name(t);
                w->taken |= UINT64_C(1) << place;
                w->n_tasks++;
        }
        warp_sync();
}

DEVICE void list_remove(struct worker *w, uint32_t i) {
        struct worker_shared *s = shared_of(w);

        warp_sync();
        if (warp_thread() == 0) {
                w->taken &= ~(UINT64_C(1) << s->order[i]);
                w->n_tasks--;
                for (uint32_t k = i; k < w->n_tasks; k++) {
                        s->order[k] = s->order[k + 1];
                        s->waiting[k] = s->waiting[k + 1];
                }
        }
        warp_sync();
}

/* Is an earlier task of the same name in the list? */
DEVICE bool list_behind(const struct worker *w, uint32_t i) {
        const uint32_t *waiting = shared_of(w)->waiting;
        bool behind = false;

        for (uint32_t k = warp_thread(); k < i; k += WARP_THREADS)
                behind = behind || waiting[k] == waiting[i];
        return warp_any(behind);
}

DEVICE void list_run(struct worker *w) {
        for (uint32_t i = 0; i < w->n_tasks;) {
                if (!list_behind(w, i) && task_run(w, worker_task(w, shared_of(w)->order[i])))
                        list_remove(w, i);
                else
                        i++;
        }
}
