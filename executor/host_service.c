/* SPDX-License-Identifier: MIT */
#include "executor/host_service.h"

#include <stdio.h>

#include "executor/comm.h"
#include "executor/dispatch.h"
#include "executor/executor.h"
#include "executor/prepare.h"
#include "executor/report.h"
#include "executor/worker.h"
#include "plan/plan.h"
#include "util/clock.h"

static void host_hello(void *object, Railmux__Executor__Hello *hello) {
        struct host_service *host = object;
        struct executor *executor = host->executor;

        report_stalls_again(executor);
        hello->instance = executor->instance;
        hello->backend = (char *)executor->ops->name;
        hello->workers = worker_pool_size(executor->workers);
        hello->widenings = true;
        hello->algorithms = PLAN_ALGORITHM_COUNT;
        hello->gpus = host->pointers;
        hello->n_gpus = 0;
        for (uint32_t i = 0; i < executor->ops->count(executor->gpu) && i < PLAN_RANKS_MAX; i++) {
                struct gpu_info info;

                executor->ops->info(executor->gpu, i, &info);
                snprintf(host->names[i], sizeof(host->names[i]), "%s", info.name);
                railmux__executor__gpu__init(host->pointers[i] = &host->gpus[i]);
                host->gpus[i].index = info.index;
                host->gpus[i].name = host->names[i];
                host->gpus[i].memory_bytes = info.memory_bytes;
                hello->n_gpus++;
        }
}

static int host_inventory(void *object, report_send send, void *userdata) {
        return report_inventory(((struct host_service *)object)->executor, send, userdata);
}

static int host_statistics(void *object, uint64_t id, report_send send, void *userdata) {
        return report_statistics(((struct host_service *)object)->executor, id, send, userdata);
}

static int host_failures(void *object, report_send send, void *userdata) {
        return report_failures(((struct host_service *)object)->executor, send, userdata);
}

static int host_stalls(void *object, report_send send, void *userdata) {
        return report_stalls(((struct host_service *)object)->executor, send, userdata);
}

static void host_released(void *object, report_send send, void *userdata) {
        report_released(((struct host_service *)object)->executor, send, userdata);
}

static void host_call(void *object, const Railmux__Executor__Message *message, int *fds, unsigned int n_fds,
                      struct dispatch_result *ret_result) {
        dispatch_call(((struct host_service *)object)->executor, message, fds, n_fds, ret_result);
}

static bool host_ready(void *object, const Railmux__Executor__Message *message) {
        return prepare_call(((struct host_service *)object)->executor, message);
}

static void host_round(void *object) {
        plans_round(&((struct host_service *)object)->executor->plans);
}

static void host_check(void *object) {
        struct executor *executor = ((struct host_service *)object)->executor;

        uint64_t now_ns = clock_now_ns(), since_ns = now_ns > executor->stall_ns ? now_ns - executor->stall_ns : 0,
                 ended_ns = now_ns > COMM_ENDED_NS ? now_ns - COMM_ENDED_NS : 0;

        for (struct comm *comm = executor->comms; comm; comm = comm->hh.next) {
                bool mismatch = comm_mismatch_due(comm), ended = comm_nodes_ended(comm, ended_ns);

                if (!mismatch && !ended && !comm_nodes_deserted(comm, since_ns))
                        continue;
                pthread_rwlock_wrlock(&executor->tables);
                if (mismatch)
                        comm_mismatch_settle(comm);
                else if (ended)
                        comm_nodes_end(comm, ended_ns);
                else
                        comm_nodes_desert(comm, since_ns);
                pthread_rwlock_unlock(&executor->tables);
        }
}

static void host_drain(void *object) {
        struct executor *executor = ((struct host_service *)object)->executor;

        pthread_rwlock_wrlock(&executor->tables);
        atomic_store_explicit(&executor->draining, true, memory_order_relaxed); /* the lock orders it for workers */
        pthread_rwlock_unlock(&executor->tables);
}

static bool host_drained(void *object) {
        struct executor *executor = ((struct host_service *)object)->executor;

        if (executor_quiet(executor))
                return true;
        worker_pool_kick(executor->workers); /* while draining, workers sleep over lines on purpose */
        return false;
}

static const struct link_ops host_ops = {
        .hello = host_hello,
        .inventory = host_inventory,
        .statistics = host_statistics,
        .failures = host_failures,
        .stalls = host_stalls,
        .released = host_released,
        .ready = host_ready,
        .round = host_round,
        .call = host_call,
        .check = host_check,
        .drain = host_drain,
        .drained = host_drained,
};

void host_service_init(struct host_service *host, struct executor *executor) {
        *host = (struct host_service){
                .service = {.ops = &host_ops,
                            .object = host,
                            .stall_ns = executor->stall_ns,
                            .attention_fd = executor->attention_fd},
                .executor = executor,
        };
}
