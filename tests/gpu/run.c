/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "run.h"

#include <string.h>

#include "ring/ring.h"

struct gpu *run_gpu;

int run_setup(void **state) {
        (void)state;
        return gpu_host_ops.open(8, &run_gpu);
}

int run_teardown(void **state) {
        (void)state;
        gpu_host_ops.close(run_gpu);
        return 0;
}

void run_open(struct run *run, uint32_t n_ranks, const struct plan_geometry *geometry, uint32_t start) {
        run->n_ranks = n_ranks;
        if (start == 0)
                assert_int_equal(gpu_host_ops.comm_new(run_gpu, n_ranks, geometry, &run->comm), 0);
        else
                assert_int_equal(host_comm_new_at(run_gpu, n_ranks, geometry, NULL, start, &run->comm), 0);
}

void run_open_nodes(struct run *run, struct carrier *carrier, const struct plan_geometry *geometry, uint32_t start) {
        run->n_ranks = carrier->n_ranks;
        run->carrier = carrier;
        for (uint32_t i = 0; i < carrier->n_nodes; i++) {
                struct gpu_net net = {.area = carrier->nodes[i].area, .doorbell_fd = -1, .own = i};

                memcpy(net.node, carrier->node, sizeof(net.node));
                assert_int_equal(host_comm_new_at(run_gpu, run->n_ranks, geometry, &net, start, &run->comms[i]), 0);
        }
}

void run_close(struct run *run) {
        assert_null(gpu_host_ops.comm_free(run->comm));
        for (uint32_t i = 0; run->carrier && i < run->carrier->n_nodes; i++)
                assert_null(gpu_host_ops.comm_free(run->comms[i]));
        if (run->carrier)
                carrier_deinit(run->carrier);
}

static struct gpu_comm *run_comm(const struct run *run, uint32_t rank) {
        return run->carrier ? run->comms[run->carrier->node[rank]] : run->comm;
}

/* A barrier is done on no rank before it was started on all. */
static void run_check_barrier(const struct run *run, const struct progress *mine) {
        if (run->jobs[mine->job].operation == RING_OP_BARRIER)
                for (uint32_t r = 0; r < run->n_ranks; r++)
                        assert_true(run->ranks[r].job > mine->job ||
                                    (run->ranks[r].job == mine->job && run->ranks[r].running));
}

static bool rank_finished(const struct run *run, uint32_t rank) {
        return run->ranks[rank].job == run->n_jobs;
}

int run_call(struct run *run, uint32_t rank) {
        uint64_t max_bytes = run->max_bytes > 0 ? run->max_bytes : random_below(&run->random, 1000);
        struct progress *p = &run->ranks[rank];
        int r;

        while (!rank_finished(run, rank) && p->start == run->jobs[p->job].ranks[rank].n_starts) {
                p->job++;
                p->start = 0;
        }
        if (rank_finished(run, rank)) {
                assert_int_equal(gpu_host_ops.progress(run_comm(run, rank), rank, max_bytes),
                                 GPU_IDLE); /* done was said once */
                return GPU_IDLE;
        }
        if (!p->running) {
                uint32_t n;
                struct gpu_request *requests = job_start(&run->jobs[p->job], rank, p->start, &n);

                for (uint32_t i = 0; i < n; i++)
                        requests[i].sequence = p->job + 1 + (run->differs == rank + 1);
                gpu_host_ops.start(run_comm(run, rank), rank, requests, n);
                p->running = true;
        }
        r = gpu_host_ops.progress(run_comm(run, rank), rank, max_bytes);
        if (r == GPU_MISMATCH) {
                assert_true(run->tolerant);
                run->n_mismatches += !run->blamed[rank];
                run->blamed[rank] = 1 + gpu_host_ops.blamed(run_comm(run, rank), rank);
                return GPU_IDLE;
        }
        if (r == GPU_DONE) {
                if (run->tolerant) {
                        run->wrong |= !job_end_right(&run->jobs[p->job], rank, p->start++);
                } else {
                        run_check_barrier(run, p);
                        job_end(&run->jobs[p->job], rank, p->start++);
                }
                p->running = false;
                if (p->start == run->jobs[p->job].ranks[rank].n_starts) {
                        p->job++;
                        p->start = 0;
                }
        }
        return r;
}

static uint32_t run_choose(struct run *run, bool last_moved) {
        uint32_t n = run->n_ranks;

        switch (run->schedule) {
        case SCHEDULE_FORWARD:
                return (run->last + 1) % n;
        case SCHEDULE_BACKWARD:
                return (run->last + n - 1) % n;
        case SCHEDULE_STARVE:
                return n > 1 ? 1 + random_below(&run->random, n - 1) : 0;
        case SCHEDULE_GREEDY:
                return last_moved ? run->last : random_below(&run->random, n);
        default:
                return random_below(&run->random, n);
        }
}

static bool run_finished(const struct run *run) {
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
                if (!rank_finished(run, rank))
                        return false;
        return true;
}

static void run_fail_stuck(const struct run *run) {
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
                if (!rank_finished(run, rank)) {
                        const struct job *job = &run->jobs[run->ranks[rank].job];

                        fail_msg("no rank of %u can move; rank %u in %s/%s count %llu root %u, job %u", run->n_ranks,
                                 rank, plan_operation_name(job->operation), plan_algorithm_name(job->algorithm),
                                 (unsigned long long)job->count, job->root, run->ranks[rank].job);
                }
}

/* Several nodes: carries a message now and then. */
static bool run_carry(struct run *run) {
        if (!run->carrier || random_below(&run->random, run->reluctance + 1) > 0)
                return false;
        carrier_take(run->carrier);
        return carrier_carry(run->carrier);
}

/* Everyone in turn. Returns whether anything moves at all, messages included. */
static bool run_everyone(struct run *run) {
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
                if (run_call(run, rank) != GPU_IDLE)
                        return true;
        if (!run->carrier)
                return false;
        carrier_take(run->carrier);
        return carrier_carry(run->carrier);
}

/* If the schedule finds nobody to move for a while, everyone is tried in turn; if none moves then, none ever will. */
void run_all(struct run *run) {
        uint32_t n_idle = 0;
        bool moved = false;

        while (!run_finished(run)) {
                uint32_t rank = run_choose(run, moved);

                moved = run_call(run, rank) != GPU_IDLE;
                run->last = rank;
                n_idle = run_carry(run) || moved ? 0 : n_idle + 1;
                if (n_idle <= 2 * run->n_ranks)
                        continue;
                n_idle = 0;
                if (run_everyone(run) || run_finished(run))
                        continue;
                if (!run->tolerant)
                        run_fail_stuck(run);
                run->stuck = true;
                return;
        }
        for (uint32_t rank = 0; rank < run->n_ranks; rank++)
                run_call(run, rank);
}
