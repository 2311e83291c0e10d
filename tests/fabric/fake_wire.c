/* SPDX-License-Identifier: MIT */
/*
 * The thread that carries data. One turn looks at one queue pair: it flushes one request of one in ERR, or it carries
 * one piece of the first request that has not been sent, or finds out that it cannot. Nothing is tried again by time:
 * a queue pair that is stuck is looked at when something changed (world_kick) and when its time is over.
 */
#include "tests/fabric/fake_wire.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fabric/fake_path.h"
#include "tests/fabric/fake_queue.h"
#include "util/clock.h"

enum wire_turn {
        TURN_SENT,  /* the request is over, or under way */
        TURN_PIECE, /* more to do at once */
        TURN_STUCK, /* no answer */
        TURN_EMPTY, /* the other end has no receive */
        TURN_ERROR, /* with a status */
};

void fake_qp_schedule(struct fake_qp *qp) {
        uint64_t due_ns = clock_now_ns();

        if (qp->device->delay_us > 0)
                due_ns += fake_random(&qp->random) % qp->device->delay_us * 1000u;
        if (due_ns < qp->due_ns)
                qp->due_ns = due_ns;
        pthread_cond_signal(&world.wire);
}

/* With a shared receive queue it is told that nothing will come any more. */
static void qp_end_last(struct fake_qp *qp) {
        struct fake_cqe entry = {.receive = true};

        if (qp->has_last) {
                entry.wc = fake_wc_failed(qp->last_id, IBV_WC_WR_FLUSH_ERR, qp->ibv.qp_num);
                fake_cq_push((struct fake_cq *)(void *)qp->ibv.recv_cq, &entry);
        }
        qp->has_last = false;
        qp->last_ns = FAKE_NEVER;
        fake_context_event(fake_context_of(qp->ibv.context), IBV_EVENT_QP_LAST_WQE_REACHED, qp);
}

static void qp_begin_last(struct fake_qp *qp) {
        uint32_t after_us = qp->device->last_us;

        if (after_us == 0)
                qp_end_last(qp);
        if (after_us == 0 || after_us == FAKE_MUTE)
                return;
        qp->has_last = fake_srq_take((struct fake_srq *)(void *)qp->ibv.srq, &qp->last_id);
        qp->last_ns = clock_now_ns() + (uint64_t)after_us * 1000u;
}

void fake_qp_error(struct fake_qp *qp) {
        if (qp->state == IBV_QPS_ERR)
                return;
        if (qp->ibv.srq && (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS))
                qp_begin_last(qp);
        qp->state = IBV_QPS_ERR;
        qp->due_ns = 0;
        pthread_cond_signal(&world.wire);
}

/* --------------------------------------------------------------------------------------------------- completions */

/* The oldest request is over. */
static void qp_complete(struct fake_qp *qp, enum ibv_wc_status status) {
        struct fake_wr *wr = fake_qp_wr(qp, qp->done);
        struct fake_cqe entry = {.qp = qp, .slots = ++qp->done};

        if (qp->sent < qp->done)
                qp->sent = qp->done;
        if (status == IBV_WC_SUCCESS) {
                if (!wr->signalled)
                        return;
                entry.wc = (struct ibv_wc){.wr_id = wr->wr_id,
                                           .opcode = IBV_WC_RDMA_WRITE,
                                           .byte_len = UINT32_C(0x55555555), /* of receives only */
                                           .qp_num = qp->ibv.qp_num};
        } else {
                entry.wc = fake_wc_failed(wr->wr_id, status, qp->ibv.qp_num);
                world.counters.flushed += status == IBV_WC_WR_FLUSH_ERR;
                world.counters.failed += status != IBV_WC_WR_FLUSH_ERR;
                world.counters.lost_answers += wr->arrived;
                world.counters.torn += !wr->arrived && wr->offset > 0;
        }
        fake_cq_push((struct fake_cq *)(void *)qp->ibv.send_cq, &entry);
}

/* --------------------------------------------------------------------------------------------------------- sending */

static void wr_begin(struct fake_qp *qp, struct fake_wr *wr) {
        struct fake_device *device = qp->device;

        wr->begun = true;
        if (device->error_in > 0 && fake_random(&qp->random) % device->error_in == 0)
                wr->fail_at = fake_random(&qp->random) % ((uint64_t)wr->length + 2);
}

static enum ibv_wc_status qp_planted(struct fake_qp *qp) {
        enum ibv_wc_status *from = qp->next_error ? &qp->next_error : &qp->device->next_error, status = *from;

        *from = IBV_WC_SUCCESS;
        return status;
}

static enum wire_turn qp_send(struct fake_qp *qp, enum ibv_wc_status *ret_status) {
        struct fake_wr *wr = fake_qp_wr(qp, qp->sent);
        enum fake_drop drop = fake_qp_drop(qp);
        struct fake_qp *other;
        struct wire_source source;
        uint64_t end, n;

        if (!wr->begun)
                wr_begin(qp, wr);
        *ret_status = qp_planted(qp);
        if (*ret_status != IBV_WC_SUCCESS)
                return TURN_ERROR;
        *ret_status = IBV_WC_LOC_PROT_ERR;
        if (!fake_wr_source(qp, wr, 0, 0, &source))
                return TURN_ERROR;
        if (qp->device->down && qp->device->down_status) {
                *ret_status = qp->device->down_status;
                return TURN_ERROR;
        }
        other = fake_qp_other(qp);
        if (!other || drop == FAKE_LOSE)
                return TURN_STUCK;
        if (drop == FAKE_HOLD) {
                if (!fake_packet_keep(qp, wr))
                        return TURN_STUCK;
                qp->attr.sq_psn = (qp->attr.sq_psn + fake_qp_packets(qp, wr->length)) & FAKE_PSN_MASK;
                qp->sent++;
                return TURN_SENT;
        }
        if (qp->attr.sq_psn != other->attr.rq_psn)
                return TURN_STUCK;
        *ret_status = fake_other_refuses(other, qp->attr.path_mtu, wr);
        if (*ret_status != IBV_WC_SUCCESS) {
                fake_other_fails(other);
                return TURN_ERROR;
        }
        end = wr->fail_at < wr->length ? wr->fail_at : wr->length;
        n = end - wr->offset < world.options.piece_bytes ? end - wr->offset : world.options.piece_bytes;
        if (n > 0) {
                fake_wr_source(qp, wr, wr->offset, n, &source);
                fake_wire_write(other, &source, wr, n);
                wr->offset += (uint32_t)n;
        }
        if (wr->offset < end)
                return TURN_PIECE;
        *ret_status = qp->device->error_status;
        if (wr->fail_at <= wr->length)
                return TURN_ERROR;
        if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && other->device->next_receive_error) {
                enum ibv_wc_status status = other->device->next_receive_error;

                if (!fake_other_arrived(other, wr, status))
                        return TURN_EMPTY;
                other->device->next_receive_error = IBV_WC_SUCCESS;
                fake_qp_error(other);
                *ret_status = IBV_WC_REM_OP_ERR;
                return TURN_ERROR;
        }
        if (!fake_other_arrived(other, wr, IBV_WC_SUCCESS))
                return TURN_EMPTY;
        qp->attr.sq_psn = (qp->attr.sq_psn + fake_qp_packets(qp, wr->length)) & FAKE_PSN_MASK;
        wr->arrived = true;
        if (wr->fail_at != FAKE_NEVER)
                return TURN_ERROR;
        qp->sent++;
        return TURN_SENT;
}

/* Has waited since *since_ns (0: not yet) for too long; else when it has. */
static bool qp_over(struct fake_qp *qp, uint64_t *since_ns, uint64_t now_ns) {
        uint64_t end_ns;

        if (*since_ns == 0)
                *since_ns = now_ns;
        end_ns = *since_ns + (uint64_t)world.options.timeout_ms * 1000000u;
        if (now_ns >= end_ns)
                return true;
        if (qp->due_ns > end_ns)
                qp->due_ns = end_ns;
        return false;
}

static void qp_fail(struct fake_qp *qp, enum ibv_wc_status status) {
        qp_complete(qp, status);
        fake_qp_error(qp);
}

static void qp_turn(struct fake_qp *qp, uint64_t now_ns) {
        enum ibv_wc_status status;
        enum wire_turn turn = TURN_SENT;
        bool answers = fake_qp_drop(qp) == FAKE_CARRY && fake_qp_other(qp);

        qp->due_ns = FAKE_NEVER;
        if (qp->state == IBV_QPS_ERR && qp->done < qp->posted) {
                qp_complete(qp, IBV_WC_WR_FLUSH_ERR);
                qp->due_ns = qp->done < qp->posted ? 0 : FAKE_NEVER;
        }
        if (qp->state == IBV_QPS_ERR && qp->last_ns <= now_ns)
                qp_end_last(qp);
        if (qp->state == IBV_QPS_ERR && qp->last_ns < qp->due_ns)
                qp->due_ns = qp->last_ns;
        if (qp->state != IBV_QPS_RTS)
                return;
        if (qp->sent < qp->posted)
                turn = qp_send(qp, &status);
        if (turn == TURN_ERROR) {
                qp_fail(qp, status);
                return;
        }
        while (qp->done < qp->sent && fake_qp_wr(qp, qp->done)->arrived && answers) {
                qp_complete(qp, IBV_WC_SUCCESS);
                qp->stuck_ns = qp->empty_ns = 0;
        }
        if (turn == TURN_PIECE || (turn == TURN_SENT && qp->sent < qp->posted))
                fake_qp_schedule(qp);
        if (turn == TURN_EMPTY && qp->attr.rnr_retry < 7 && qp_over(qp, &qp->empty_ns, now_ns)) {
                qp_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
                return;
        }
        if ((turn == TURN_STUCK || qp->done < qp->sent) && qp->attr.timeout > 0 && qp_over(qp, &qp->stuck_ns, now_ns))
                qp_fail(qp, IBV_WC_RETRY_EXC_ERR);
}

/* Any of those that are due, or when the first will be. */
static struct fake_qp *wire_next(uint64_t now_ns, uint64_t *ret_due_ns) {
        struct fake_qp *qp;
        uint64_t n = 0;

        *ret_due_ns = FAKE_NEVER;
        LIST_FOREACH(qp, &world.qps, link) {
                n += qp->due_ns <= now_ns;
                if (qp->due_ns < *ret_due_ns)
                        *ret_due_ns = qp->due_ns;
        }
        if (n == 0)
                return NULL;
        n = fake_random(&world.random) % n;
        LIST_FOREACH(qp, &world.qps, link) {
                if (qp->due_ns <= now_ns && n-- == 0)
                        break;
        }
        return qp;
}

void *fake_wire_run(void *unused) {
        (void)unused;
        world_lock();
        while (!world.stopping) {
                uint64_t now_ns = clock_now_ns(), due_ns;
                struct fake_qp *qp;

                if (world.n_waiting > 0) {
                        pthread_cond_wait(&world.wire, &world.lock);
                        continue;
                }
                if (fake_wire_packets())
                        continue;
                qp = wire_next(now_ns, &due_ns);
                if (qp) {
                        qp_turn(qp, now_ns);
                } else if (due_ns == FAKE_NEVER) {
                        pthread_cond_wait(&world.wire, &world.lock);
                } else {
                        const struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000u),
                                                     .tv_nsec = (long)(due_ns % 1000000000u)};

                        pthread_cond_timedwait(&world.wire, &world.lock, &due);
                }
        }
        world_unlock();
        return NULL;
}
