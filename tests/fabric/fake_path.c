/* SPDX-License-Identifier: MIT */
#include "tests/fabric/fake_path.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/fake_queue.h"
#include "tests/fabric/fake_wire.h"

/* ------------------------------------------------------------------------------------------------------- the path */

struct fake_qp *fake_qp_find(const struct fake_device *device, uint32_t qp_num) {
        struct fake_qp *qp;

        LIST_FOREACH(qp, &world.qps, link) {
                if (qp->device == device && qp->ibv.qp_num == qp_num)
                        return qp;
        }
        return NULL;
}

/* The one GID of a device that gets through the network, as a queue pair names it. */
static const union ibv_gid *qp_gid(const struct fake_qp *qp) {
        uint8_t index = qp->attr.ah_attr.grh.sgid_index;

        return index == qp->device->index ? &qp->device->gids[index].gid : NULL;
}

static bool gid_equal(const union ibv_gid *a, const union ibv_gid *b) {
        return a && b && memcmp(a, b, sizeof(*a)) == 0;
}

/* The other end, if a packet gets there and it would take it. */
struct fake_qp *fake_qp_other(const struct fake_qp *qp) {
        const union ibv_gid *to = &qp->attr.ah_attr.grh.dgid;
        struct fake_device *device;
        struct fake_qp *other;

        LIST_FOREACH(device, &world.devices, link) {
                if (gid_equal(&device->gids[device->index].gid, to))
                        break;
        }
        if (!device || device->gone || device->down || qp->device->down)
                return NULL;
        other = fake_qp_find(device, qp->attr.dest_qp_num);
        if (!other || (other->state != IBV_QPS_RTR && other->state != IBV_QPS_RTS) ||
            other->attr.dest_qp_num != qp->ibv.qp_num)
                return NULL;
        /* Each end's address is the one that the other end sends to. */
        if (!gid_equal(qp_gid(other), to) || !gid_equal(qp_gid(qp), &other->attr.ah_attr.grh.dgid))
                return NULL;
        return other;
}

enum fake_drop fake_qp_drop(const struct fake_qp *qp) {
        const union ibv_gid *to = &qp->attr.ah_attr.grh.dgid;
        enum fake_drop drop = qp->device->drop;
        struct fake_device *device;

        LIST_FOREACH(device, &world.devices, link) {
                if (drop == FAKE_CARRY && gid_equal(&device->gids[device->index].gid, to))
                        drop = device->drop;
        }
        return drop;
}

uint32_t fake_qp_packets(const struct fake_qp *qp, uint32_t length) {
        uint32_t mtu = UINT32_C(128) << qp->attr.path_mtu;

        return length > mtu ? (length + mtu - 1) / mtu : 1;
}

/* --------------------------------------------------------------------------------------------------------- memory */

static struct fake_mr *mr_covers(uint32_t key, uint64_t address, uint64_t length) {
        struct fake_mr *mr;

        LIST_FOREACH(mr, &world.mrs, link) {
                if (mr->ibv.lkey == key || mr->ibv.rkey == key) {
                        uint64_t start = (uintptr_t)mr->ibv.addr;

                        if (address < start || length > mr->ibv.length || address - start > mr->ibv.length - length)
                                return NULL;
                        return mr;
                }
        }
        return NULL;
}

static uint8_t *mr_at(const struct fake_mr *mr, uint64_t address) {
        return mr->kept ? mr->kept + (address - (uintptr_t)mr->ibv.addr) : (uint8_t *)(uintptr_t)address;
}

/* The part of what is sent that begins at offset; false if the keys do not cover all of it. */
bool fake_wr_source(const struct fake_qp *qp, const struct fake_wr *wr, uint64_t offset, uint64_t bytes,
                    struct wire_source *ret_source) {
        uint64_t passed = 0;

        ret_source->n = 0;
        for (uint32_t i = 0; i < wr->n_sge; i++) {
                const struct ibv_sge *sge = &wr->sges[i];
                uint64_t from = offset > passed ? offset - passed : 0;
                uint64_t to = offset + bytes > passed ? offset + bytes - passed : 0;
                const uint8_t *at;

                passed += sge->length;
                at = (const uint8_t *)(uintptr_t)sge->addr;
                if (!wr->is_inline && sge->length > 0) {
                        struct fake_mr *mr = mr_covers(sge->lkey, sge->addr, sge->length);

                        if (!mr || mr->ibv.lkey != sge->lkey || mr->ibv.pd != qp->ibv.pd)
                                return false;
                        at = mr_at(mr, sge->addr);
                }
                if (to > sge->length)
                        to = sge->length;
                if (from >= to)
                        continue;
                ret_source->at[ret_source->n] = at + from;
                ret_source->bytes[ret_source->n++] = to - from;
        }
        return true;
}

/* Without the lock, as an adapter writes. What it takes stays: see world_quiet(). */
static void wire_copy(const struct wire_source *source, uint8_t *to) {
        world.copying = true;
        world_unlock();
        for (uint32_t i = 0; i < source->n; i++) {
                memcpy(to, source->at[i], source->bytes[i]);
                to += source->bytes[i];
        }
        world_lock();
        world.copying = false;
        if (world.n_waiting > 0)
                pthread_cond_broadcast(&world.calm);
}

void fake_wire_write(const struct fake_qp *other, const struct wire_source *source, const struct fake_wr *wr,
                     uint64_t bytes) {
        const struct fake_mr *mr = mr_covers(wr->rkey, wr->remote_addr, wr->length);
        struct fake_device *device = other->device;
        uint32_t qp_num = other->ibv.qp_num;

        wire_copy(source, mr_at(mr, wr->remote_addr + wr->offset));
        world.counters.bytes += bytes;
        /* Who destroys it waits for the copy; were it not so, this is how one would see it. */
        if (fake_qp_find(device, qp_num) != other)
                world.counters.ghosts++;
        assert(world.counters.ghosts == 0);
}

struct ibv_wc fake_wc_failed(uint64_t wr_id, enum ibv_wc_status status, uint32_t qp_num) {
        struct ibv_wc wc;

        memset(&wc, 0x55, sizeof(wc));
        wc.wr_id = wr_id;
        wc.status = status;
        wc.qp_num = qp_num;
        wc.vendor_err = 0x81;
        return wc;
}

/* ------------------------------------------------------------------------------------------------- the other end */

/* What it says to the request; 0: it takes it. */
enum ibv_wc_status fake_other_refuses(struct fake_qp *other, enum ibv_mtu mtu, const struct fake_wr *wr) {
        const struct fake_mr *mr;

        if (!(other->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
                return IBV_WC_REM_INV_REQ_ERR;
        if (other->attr.path_mtu != mtu && wr->length > 256)
                return IBV_WC_REM_INV_REQ_ERR; /* packets of another size than it expects */
        if (wr->length == 0)
                return IBV_WC_SUCCESS; /* nothing is written: no key is looked at */
        mr = mr_covers(wr->rkey, wr->remote_addr, wr->length);
        if (!mr || mr->ibv.rkey != wr->rkey || mr->ibv.pd != other->ibv.pd || !(mr->access & IBV_ACCESS_REMOTE_WRITE))
                return IBV_WC_REM_ACCESS_ERR;
        return IBV_WC_SUCCESS;
}

void fake_other_fails(struct fake_qp *other) {
        fake_context_event(fake_context_of(other->ibv.context), IBV_EVENT_QP_ACCESS_ERR, other);
        fake_qp_error(other);
}

bool fake_srq_take(struct fake_srq *srq, uint64_t *ret_id) {
        if (!srq || srq->n == 0)
                return false;
        *ret_id = srq->ids[srq->first];
        srq->first = (srq->first + 1) % srq->max_wr;
        srq->n--;
        return true;
}

/* The immediate takes a receive. False: there is none. */
static bool other_told(struct fake_qp *other, const struct fake_wr *wr, enum ibv_wc_status status) {
        struct fake_srq *srq = (struct fake_srq *)(void *)other->ibv.srq;
        struct fake_cqe entry = {.receive = true};
        uint64_t wr_id;

        if (!fake_srq_take(srq, &wr_id))
                return false;
        if (status != IBV_WC_SUCCESS)
                entry.wc = fake_wc_failed(wr_id, status, other->ibv.qp_num);
        else
                entry.wc = (struct ibv_wc){.wr_id = wr_id,
                                           .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                           .byte_len = wr->length,
                                           .imm_data = wr->imm_data,
                                           .qp_num = other->ibv.qp_num,
                                           .wc_flags = IBV_WC_WITH_IMM};
        fake_cq_push((struct fake_cq *)(void *)other->ibv.recv_cq, &entry);
        return true;
}

/* All data is there. False: no receive for the immediate. */
bool fake_other_arrived(struct fake_qp *other, const struct fake_wr *wr, enum ibv_wc_status status) {
        bool tells = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

        if (tells && !other_told(other, wr, status)) {
                world.counters.empty++;
                return false;
        }
        if (status != IBV_WC_SUCCESS)
                return true;
        if (tells && other->device->twice && other_told(other, wr, status)) {
                other->device->twice = false;
                world.counters.twice++;
        }
        other->attr.rq_psn = (other->attr.rq_psn + fake_qp_packets(other, wr->length)) & FAKE_PSN_MASK;
        world.counters.arrived++;
        return true;
}

/* -------------------------------------------------------------------------------------------------- held packets */

bool fake_packet_keep(struct fake_qp *qp, struct fake_wr *wr) {
        const union ibv_gid *to = &qp->attr.ah_attr.grh.dgid;
        struct fake_packet *packet = malloc(sizeof(*packet) + wr->length);
        struct wire_source source;
        struct fake_device *device;

        LIST_FOREACH(device, &world.devices, link) {
                if (gid_equal(&device->gids[device->index].gid, to))
                        break;
        }
        if (!packet || !device || !fake_wr_source(qp, wr, 0, wr->length, &source)) {
                free(packet);
                return false;
        }
        *packet = (struct fake_packet){.from = qp->device,
                                       .to = device,
                                       .qp_num = qp->ibv.qp_num,
                                       .dest_qp_num = qp->attr.dest_qp_num,
                                       .number = qp->sent,
                                       .wr = *wr};
        packet->wr.psn = qp->attr.sq_psn;
        packet->wr.offset = 0;
        wire_copy(&source, packet->bytes);
        STAILQ_INSERT_TAIL(&world.packets, packet, link);
        return true;
}

/* Something was done with it; else it stays for later. */
static bool packet_turn(struct fake_packet *packet) {
        struct fake_qp *other, *qp;

        if (packet->from->drop == FAKE_HOLD || packet->to->drop == FAKE_HOLD)
                return false;
        qp = fake_qp_find(packet->from, packet->qp_num);
        other = fake_qp_find(packet->to, packet->dest_qp_num);
        if (!packet->to->down && !packet->from->drop && !packet->to->drop && other &&
            (other->state == IBV_QPS_RTR || other->state == IBV_QPS_RTS) && other->attr.dest_qp_num == packet->qp_num &&
            other->attr.rq_psn == packet->wr.psn &&
            fake_other_refuses(other, other->attr.path_mtu, &packet->wr) == IBV_WC_SUCCESS) {
                const struct wire_source source = {.at = {packet->bytes}, .bytes = {packet->wr.length}, .n = 1};

                if (packet->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM &&
                    (!other->ibv.srq || ((struct fake_srq *)(void *)other->ibv.srq)->n == 0))
                        return false;
                if (packet->wr.length > 0)
                        fake_wire_write(other, &source, &packet->wr, packet->wr.length);
                fake_other_arrived(other, &packet->wr, IBV_WC_SUCCESS);
                world.counters.held_arrived++;
                if (qp && qp->state == IBV_QPS_RTS && packet->number >= qp->done)
                        fake_qp_wr(qp, packet->number)->arrived = true;
                else
                        world.counters.lost_answers++;
                world_kick();
        }
        STAILQ_REMOVE(&world.packets, packet, fake_packet, link);
        free(packet);
        return true;
}

bool fake_wire_packets(void) {
        struct fake_packet *packet;

        STAILQ_FOREACH(packet, &world.packets, link) {
                if (packet_turn(packet))
                        return true;
        }
        return false;
}

void fake_wire_drop_packets(const struct fake_device *device) {
        struct fake_packet *packet = STAILQ_FIRST(&world.packets), *next;

        for (; packet; packet = next) {
                next = STAILQ_NEXT(packet, link);
                if (device && packet->from != device && packet->to != device)
                        continue;
                STAILQ_REMOVE(&world.packets, packet, fake_packet, link);
                free(packet);
        }
}
