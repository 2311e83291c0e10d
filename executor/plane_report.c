/* SPDX-License-Identifier: MIT */
/*
 * What the executor of a GPU tells railmuxd.
 *
 * It knows the ranks on its own GPU only. So its statistics give numbers for these alone, a stall names no missing
 * ranks, and railmuxd puts the whole together.
 *
 * A rank that stalls on a collective which a rank that has left will never call is no stall but an error, which no
 * kernel can see: it is waiting for staging to fill. It ends with PEER_LOST after the stall bound; the wait gives
 * slower ranks time to finish what came before.
 */
#include "executor/plane_executor.h"

#include <stdlib.h>

#include "executor/inventory.h"
#include "railmux/railmux.h"
#include "ring/line.h"
#include "util/clock.h"

static void gpu_fill(struct plane_executor *executor) {
        struct plane_info *info = &executor->info;
        Railmux__Executor__Gpu *gpu = &executor->gpu_message;

        executor->ops->info(executor->plane, info);
        railmux__executor__gpu__init(gpu);
        gpu->index = executor->gpu;
        gpu->name = info->gpu.name;
        gpu->memory_bytes = info->gpu.memory_bytes;
        gpu->pci = info->gpu.pci;
        gpu->policy = info->policy;
        gpu->resident_blocks = info->resident_blocks;
        gpu->parked = info->parked;
        gpu->workers = info->n_workers;
        gpu->reaches = info->reaches && executor->ops->reach_import;
        gpu->bursts = gpu->reaches && info->bursts;
        executor->gpu_pointer = gpu;
}

void plane_report_hello(struct plane_executor *executor, Railmux__Executor__Hello *hello) {
        Railmux__Executor__DeviceMemory *pool = &executor->pool_message;
        const struct plane_memory *memory = &executor->info.pool;

        gpu_fill(executor);
        railmux__executor__device_memory__init(pool);
        pool->kind = memory->kind;
        pool->handle.data = executor->info.pool.handle;
        pool->handle.len = memory->n_handle;
        pool->allocation_bytes = memory->allocation_bytes;
        pool->offset = memory->offset;
        pool->bytes = memory->bytes;
        hello->instance = executor->instance;
        hello->backend = (char *)executor->ops->name;
        hello->gpus = &executor->gpu_pointer;
        hello->n_gpus = 1;
        hello->pool = pool;
}

int plane_report_inventory(struct plane_executor *executor, report_send send, void *userdata) {
        struct inventory *inventory = inventory_new(send, userdata);

        if (!inventory)
                return -1;
        for (struct plane_session *s = executor->sessions; s; s = s->hh.next) {
                inventory_session(inventory, s->id);
                if (s->ring)
                        inventory_ring(inventory, s->id, executor->gpu);
                for (struct plane_buffer *b = s->buffers; b; b = b->hh.next)
                        inventory_buffer(inventory, s->id, b->id);
                for (struct plane_buffer *b = s->reached; b; b = b->hh.next)
                        inventory_reached(inventory, s->id, b->id, b->identity);
        }
        for (struct plane_attached *c = executor->comms; c; c = c->hh.next) {
                inventory_comm(inventory, c->id, c->epoch, c->code, c->failed_rank, c->told ? "" : c->text, c->held);
                c->unreported = false;
                for (uint32_t i = 0; i < c->n_ranks; i++)
                        c->ranks[i].told = false;
        }
        return inventory_finish(inventory);
}

/* The rank here that has waited longest; NULL: none waits. */
static const struct plane_rank *longest_wait(const struct plane_attached *comm) {
        const struct plane_rank *longest = NULL;

        for (uint32_t i = 0; i < comm->n_ranks && !comm->code; i++) {
                const struct plane_rank *rank = &comm->ranks[i];

                if (rank->here && rank->rung != rank->finished && (!longest || rank->since_ns < longest->since_ns))
                        longest = rank;
        }
        return longest;
}

struct row_numbers {
        uint32_t rung[PLAN_RANKS_MAX], finished[PLAN_RANKS_MAX];
        Railmux__Executor__PairWait pairs[PLANE_PAIRS_ROWS], *pair_pointers[PLANE_PAIRS_ROWS];
        Railmux__Executor__Exchanged exchanged[PLANE_EXCHANGES_ROWS], *exchanged_pointers[PLANE_EXCHANGES_ROWS];
};

static void statistics_row(struct plane_executor *executor, const struct plane_attached *comm,
                           Railmux__Executor__CommStatistics *row, struct row_numbers *numbers) {
        const struct plane_rank *wait = longest_wait(comm);
        bool any = false;

        row->comm = comm->id;
        row->epoch = comm->epoch;
        row->code = comm->code;
        row->failed_rank = comm->code ? comm->failed_rank : -1;
        row->n_rung = row->n_finished = comm->n_ranks;
        row->rung = numbers->rung;
        row->finished = numbers->finished;
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                const struct plane_rank *rank = &comm->ranks[i];

                numbers->rung[i] = rank->rung;
                numbers->finished[i] = rank->finished;
                if (!rank->here)
                        continue;
                if (!any || ring_sequence_before(rank->finished, row->final_sequence))
                        row->final_sequence = rank->finished;
                any = true;
        }
        row->operations = row->final_sequence;
        plane_pairs_rows(comm, numbers->pairs, numbers->pair_pointers, &row->n_pairs);
        row->pairs = numbers->pair_pointers;
        plane_exchanges_rows(executor, comm, numbers->exchanged, numbers->exchanged_pointers, &row->n_exchanged);
        row->exchanged = numbers->exchanged_pointers;
        if (wait) {
                row->waiting_operation = wait->operation;
                row->waiting_sequence = wait->rung;
                row->waiting_ns = clock_now_ns() - wait->since_ns;
        }
}

static void counters_fill(struct plane_executor *executor, Railmux__Executor__Counters *counters) {
        gpu_fill(executor);
        counters->gpus = &executor->gpu_pointer;
        counters->n_gpus = 1;
        counters->parks = executor->info.parks;
        counters->wakes = executor->info.wakes;
        counters->staging_bytes = executor->info.pool_bytes;
        counters->invalid_requests = executor->invalid;
        counters->mismatches = executor->mismatches;
        counters->uptime_ns = clock_now_ns() - executor->started_ns;
        counters->cpu_ns = report_cpu_ns();
}

int plane_report_statistics(struct plane_executor *executor, uint64_t id, report_send send, void *userdata) {
        struct report_rows rows = {.send = send, .userdata = userdata, .id = id};
        struct row_numbers numbers[REPORT_ROWS];
        Railmux__Executor__Counters counters = RAILMUX__EXECUTOR__COUNTERS__INIT;

        plane_executor_look(executor);
        counters_fill(executor, &counters);
        for (struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next) {
                Railmux__Executor__CommStatistics *row = report_row(&rows);

                if (!row)
                        return rows.r;
                statistics_row(executor, comm, row, &numbers[rows.n - 1]);
        }
        return report_rows_end(&rows, &counters);
}

/* Of one comm, if anything has changed. All its ranks at once: what one message says was true at one time. */
static int report_level(struct plane_executor *executor, struct plane_attached *comm, report_send send,
                        void *userdata) {
        Railmux__Executor__RankLevel levels[PLAN_RANKS_MAX], *pointers[PLAN_RANKS_MAX];
        Railmux__Executor__CommLevel level = RAILMUX__EXECUTOR__COMM_LEVEL__INIT;
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        static struct plane_level now[PLAN_RANKS_MAX]; /* too large for a stack; control thread only */
        uint32_t n = executor->ops->comm_level(executor->plane, comm->id, now, PLAN_RANKS_MAX);
        bool changed = false;
        int r;

        for (uint32_t i = 0; i < n; i++) {
                struct plane_rank *rank = &comm->ranks[now[i].rank];

                changed = changed || !rank->told || rank->settled != now[i].settled || rank->taken != now[i].taken;
                railmux__executor__rank_level__init(pointers[i] = &levels[i]);
                levels[i].rank = now[i].rank;
                levels[i].taken = now[i].taken;
                levels[i].settled = now[i].settled;
                levels[i].pushed = now[i].pushed;
                levels[i].pulled = now[i].pulled;
                levels[i].n_pushed = levels[i].n_pulled = now[i].settled ? comm->n_ranks : 0;
        }
        if (!changed)
                return 0;
        level.comm = comm->id;
        level.levels = pointers;
        level.n_levels = n;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_LEVEL;
        message.comm_level = &level;
        r = send(userdata, &message);
        for (uint32_t i = 0; !r && i < n; i++) {
                comm->ranks[now[i].rank].told = true;
                comm->ranks[now[i].rank].settled = now[i].settled;
                comm->ranks[now[i].rank].taken = now[i].taken;
        }
        return r;
}

int plane_report_failures(struct plane_executor *executor, report_send send, void *userdata) {
        for (struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next) {
                Railmux__Executor__CommFailed failed = RAILMUX__EXECUTOR__COMM_FAILED__INIT;
                Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
                int r;

                if (!comm->unreported)
                        continue;
                failed.comm = comm->id;
                failed.code = comm->code;
                failed.rank = comm->failed_rank;
                failed.message = comm->text;
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_FAILED;
                message.comm_failed = &failed;
                r = send(userdata, &message);
                if (r)
                        return r;
                comm->unreported = false;
        }
        for (struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next) {
                int r = comm->held ? report_level(executor, comm, send, userdata) : 0;

                if (r)
                        return r;
        }
        return 0;
}

/* The rank that has left and will never call what `waits` has rung; -1: none. */
static int32_t left_before(const struct plane_attached *comm, const struct plane_rank *waits) {
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                if (comm->ranks[i].left && ring_sequence_before(comm->ranks[i].last, waits->rung))
                        return (int32_t)i;
        return -1;
}

void plane_report_stalls_again(struct plane_executor *executor) {
        for (struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next) {
                comm->any_stall_told = false;
                for (uint32_t i = 0; i < comm->n_pairs; i++)
                        comm->pairs[i].told = false;
        }
        plane_exchanges_stalls_again(executor);
}

int plane_report_stalls(struct plane_executor *executor, report_send send, void *userdata) {
        uint64_t now_ns = clock_now_ns();

        for (struct plane_attached *comm = executor->comms; comm; comm = comm->hh.next) {
                const struct plane_rank *wait = longest_wait(comm);
                Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
                Railmux__Executor__Stall stall = RAILMUX__EXECUTOR__STALL__INIT;
                int32_t left;
                int r;

                r = plane_pairs_stalls(executor, comm, send, userdata);
                if (!r)
                        r = plane_exchanges_stalls(executor, comm, send, userdata);
                if (r)
                        return r;
                if (!wait || now_ns < wait->since_ns + executor->stall_ns)
                        continue;
                left = left_before(comm, wait);
                if (left >= 0) {
                        plane_comm_fail(executor, comm, RMX_E_PEER_LOST, left, "it has left the communicator");
                        continue;
                }
                if (comm->any_stall_told && comm->stall_told == wait->rung)
                        continue;
                comm->any_stall_told = true;
                comm->stall_told = wait->rung;
                stall.comm = comm->id;
                stall.sequence = wait->rung;
                stall.operation = wait->operation;
                stall.waiting_ns = now_ns - wait->since_ns;
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_STALL;
                message.stall = &stall;
                r = send(userdata, &message);
                if (r)
                        return r;
        }
        return plane_report_failures(executor, send, userdata);
}
