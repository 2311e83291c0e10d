/* SPDX-License-Identifier: MIT */
#include "executor/report.h"

#include <stdlib.h>
#include <time.h>

#include <utlist.h>

#include "executor/comm.h"
#include "executor/executor.h"
#include "executor/inventory.h"
#include "executor/session.h"
#include "proto/frame.h"
#include "util/clock.h"

_Static_assert(INVENTORY_KEYS *(sizeof(((struct comm *)NULL)->error_text) + 40) <= FRAME_BYTES_MAX,
               "failed communicators fit into a frame");

int report_inventory(struct executor *executor, report_send send, void *userdata) {
        struct inventory *inventory = inventory_new(send, userdata);

        if (!inventory)
                return -1;
        for (struct session *s = executor->sessions; s; s = s->hh.next) {
                struct bell *bell;

                inventory_session(inventory, s->id);
                DL_FOREACH(s->bells, bell) {
                        inventory_ring(inventory, s->id, bell->gpu);
                }
                for (struct buffer *b = s->buffers; b; b = b->hh.next)
                        inventory_buffer(inventory, s->id, b->id);
        }
        for (struct buffer *b = executor->retired; b; b = b->next) {
                inventory_retired(inventory, b->session, b->id);
                b->tell = false; /* until this railmuxd asks for it */
        }
        for (struct comm *c = executor->comms; c; c = c->hh.next) {
                uint32_t error;

                pthread_mutex_lock(&c->mutex);
                error = atomic_load_explicit(&c->error, memory_order_acquire); /* comm_set_error; the text stays */
                c->reported_error = error != 0;
                pthread_mutex_unlock(&c->mutex);
                inventory_comm(inventory, c->id, c->epoch, ring_status_code(error),
                               error ? ring_status_rank(error) : -1, c->told_error ? "" : c->error_text, false);
        }
        return inventory_finish(inventory);
}

/* ---- statistics ---------------------------------------------------------------------------------------------------
 */

static void statistics_row(struct comm *comm, Railmux__Executor__CommStatistics *row, uint32_t rung[PLAN_RANKS_MAX]) {
        struct comm_wait wait;
        uint32_t error;

        pthread_mutex_lock(&comm->mutex);
        error = atomic_load_explicit(&comm->error, memory_order_acquire); /* comm_set_error */
        row->comm = comm->id;
        row->epoch = comm->epoch;
        row->final_sequence = comm->settled;
        row->operations = comm->operations;
        row->bytes = comm->bytes;
        row->lost = comm->lost;
        row->code = ring_status_code(error);
        row->failed_rank = error ? ring_status_rank(error) : -1;
        row->n_rung = comm->n_ranks;
        row->rung = rung;
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                rung[i] = comm->ranks[i].expected - 1;
        if (comm_oldest_wait(comm, &wait)) {
                row->waiting_operation = wait.operation;
                row->waiting_sequence = wait.sequence;
                row->waiting_ns = clock_now_ns() - wait.first_ns;
        }
        pthread_mutex_unlock(&comm->mutex);
}

uint64_t report_cpu_ns(void) {
        struct timespec ts;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
        return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void counters_fill(struct executor *executor, Railmux__Executor__Counters *counters) {
        struct executor_counters *c = &executor->counters;

        /* relaxed: statistics, partners in executor_count */
        counters->operations = atomic_load_explicit(&c->operations, memory_order_relaxed);
        counters->bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed);
        counters->invalid_requests = atomic_load_explicit(&c->invalid_requests, memory_order_relaxed);
        counters->sleeps = atomic_load_explicit(&c->sleeps, memory_order_relaxed);
        counters->wakes = atomic_load_explicit(&c->wakes, memory_order_relaxed);
        counters->lost = atomic_load_explicit(&c->lost, memory_order_relaxed);
        counters->mismatches = atomic_load_explicit(&c->mismatches, memory_order_relaxed);
        counters->plans = plans_verified(&executor->plans);
        counters->uptime_ns = clock_now_ns() - executor->started_ns;
        counters->cpu_ns = report_cpu_ns();
}

static int report_rows_send(struct report_rows *rows, Railmux__Executor__Counters *counters) {
        Railmux__Executor__Statistics statistics = RAILMUX__EXECUTOR__STATISTICS__INIT;
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;

        statistics.comms = rows->pointer;
        statistics.n_comms = rows->n;
        statistics.more = counters == NULL;
        statistics.counters = counters;
        message.id = rows->id;
        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_STATISTICS;
        message.statistics = &statistics;
        rows->n = 0;
        return rows->send(rows->userdata, &message);
}

Railmux__Executor__CommStatistics *report_row(struct report_rows *rows) {
        Railmux__Executor__CommStatistics *row;

        if (rows->n == REPORT_ROWS)
                rows->r = report_rows_send(rows, NULL);
        if (rows->r)
                return NULL;
        row = rows->pointer[rows->n] = &rows->row[rows->n];
        rows->n++;
        railmux__executor__comm_statistics__init(row);
        return row;
}

int report_rows_end(struct report_rows *rows, Railmux__Executor__Counters *counters) {
        return report_rows_send(rows, counters);
}

int report_statistics(struct executor *executor, uint64_t id, report_send send, void *userdata) {
        struct report_rows rows = {.send = send, .userdata = userdata, .id = id};
        uint32_t rung[REPORT_ROWS][PLAN_RANKS_MAX];
        Railmux__Executor__Counters counters = RAILMUX__EXECUTOR__COUNTERS__INIT;

        counters_fill(executor, &counters);
        for (struct comm *comm = executor->comms; comm; comm = comm->hh.next) {
                Railmux__Executor__CommStatistics *row = report_row(&rows);

                if (!row)
                        return rows.r;
                statistics_row(comm, row, rung[rows.n - 1]);
        }
        return report_rows_end(&rows, &counters);
}

/* ---- failures and stalls -------------------------------------------------------------------------------------------
 */

int report_failures(struct executor *executor, report_send send, void *userdata) {
        for (struct comm *comm = executor->comms; comm; comm = comm->hh.next) {
                Railmux__Executor__CommFailed failed = RAILMUX__EXECUTOR__COMM_FAILED__INIT;
                Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
                uint32_t error;
                int r;

                pthread_mutex_lock(&comm->mutex);
                error = comm->reported_error
                                ? 0
                                : atomic_load_explicit(&comm->error, memory_order_acquire); /* comm_set_error */
                comm->reported_error = comm->reported_error || error;
                failed.message = comm->error_text;
                pthread_mutex_unlock(&comm->mutex);
                if (!error)
                        continue;
                failed.comm = comm->id;
                failed.code = ring_status_code(error);
                failed.rank = ring_status_rank(error);
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_COMM_FAILED;
                message.comm_failed = &failed;
                r = send(userdata, &message);
                if (r)
                        return r;
        }
        return 0;
}

void report_released(struct executor *executor, report_send send, void *userdata) {
        Railmux__Executor__BufferReleased released = RAILMUX__EXECUTOR__BUFFER_RELEASED__INIT;
        Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
        bool tell;

        message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_BUFFER_RELEASED;
        message.buffer_released = &released;
        while (session_buffer_released(executor, &released.session, &released.buffer, &tell))
                if (tell)
                        (void)send(userdata, &message);
}

/* What stalls is told once: a sequence of the comm, or a request of sends and receives. Mutex held. */
static bool stall_told(struct comm *comm, const struct comm_wait *wait) {
        bool told;

        if (wait->request) {
                told = wait->request->stall_reported;
                wait->request->stall_reported = true;
        } else {
                told = comm->reported_stall == wait->sequence;
                comm->reported_stall = wait->sequence;
        }
        return told;
}

void report_stalls_again(struct executor *executor) {
        for (struct comm *comm = executor->comms; comm; comm = comm->hh.next) {
                struct comm_wait wait;

                pthread_mutex_lock(&comm->mutex);
                comm->reported_stall = 0; /* no sequence */
                if (comm_oldest_wait(comm, &wait) && wait.request)
                        wait.request->stall_reported = false;
                pthread_mutex_unlock(&comm->mutex);
        }
}

int report_stalls(struct executor *executor, report_send send, void *userdata) {
        for (struct comm *comm = executor->comms; comm; comm = comm->hh.next) {
                Railmux__Executor__Stall stall = RAILMUX__EXECUTOR__STALL__INIT;
                Railmux__Executor__Message message = RAILMUX__EXECUTOR__MESSAGE__INIT;
                uint32_t missing[PLAN_RANKS_MAX];
                struct comm_wait wait;
                bool stalls;
                int r;

                pthread_mutex_lock(&comm->mutex);
                /* The time is taken under the mutex: not before the request's own. */
                stalls = comm_oldest_wait(comm, &wait) && clock_now_ns() - wait.first_ns >= executor->stall_ns &&
                         !stall_told(comm, &wait);
                pthread_mutex_unlock(&comm->mutex);
                if (!stalls)
                        continue;
                stall.comm = comm->id;
                stall.sequence = wait.sequence;
                stall.operation = wait.operation;
                stall.waiting_ns = clock_now_ns() - wait.first_ns;
                for (uint32_t i = 0; i < comm->n_ranks; i++)
                        if (wait.missing >> i & 1)
                                missing[stall.n_missing_ranks++] = i;
                stall.missing_ranks = missing;
                message.body_case = RAILMUX__EXECUTOR__MESSAGE__BODY_STALL;
                message.stall = &stall;
                r = send(userdata, &message);
                if (r)
                        return r;
        }
        return 0;
}
