/* SPDX-License-Identifier: MIT */
#pragma once
/* What lies between a request and the other end: addresses, keys, memory. All with the lock. */
#include "tests/fabric/fake_world.h"

/* Memory that a copy reads. */
struct wire_source {
        const uint8_t *at[FAKE_SGES];
        size_t bytes[FAKE_SGES];
        uint32_t n;
};

struct fake_qp *fake_qp_find(const struct fake_device *device, uint32_t qp_num);
/* The other end, if packets get there and it would take them. */
struct fake_qp *fake_qp_other(const struct fake_qp *qp);
/* What is done to packets on the way, by either end's device. */
enum fake_drop fake_qp_drop(const struct fake_qp *qp);
/* How many sequence numbers a request takes. */
uint32_t fake_qp_packets(const struct fake_qp *qp, uint32_t length);
/* The bytes from offset of what is sent; false if the request's keys do not cover all of the request. */
bool fake_wr_source(const struct fake_qp *qp, const struct fake_wr *wr, uint64_t offset, uint64_t bytes,
                    struct wire_source *ret_source);
/* To where wr->offset is of what fake_other_refuses() did not refuse. Lets the lock go while it copies. */
void fake_wire_write(const struct fake_qp *other, const struct wire_source *source, const struct fake_wr *wr,
                     uint64_t bytes);
/* What the other end says to a request with packets of size mtu; IBV_WC_SUCCESS: it takes it. */
enum ibv_wc_status fake_other_refuses(struct fake_qp *other, enum ibv_mtu mtu, const struct fake_wr *wr);
/* It breaks the connection for what it refused. */
void fake_other_fails(struct fake_qp *other);
/* Of a completion with an error only these are valid: the rest is made so that nobody goes by it. */
struct ibv_wc fake_wc_failed(uint64_t wr_id, enum ibv_wc_status status, uint32_t qp_num);
/* A receive of the shared queue. False: there is none. */
bool fake_srq_take(struct fake_srq *srq, uint64_t *ret_id);
/* All data is there: the receive ends with status. False: there is no receive for the immediate. */
bool fake_other_arrived(struct fake_qp *other, const struct fake_wr *wr, enum ibv_wc_status status);
/* FAKE_HOLD: false if nothing could be kept. */
bool fake_packet_keep(struct fake_qp *qp, struct fake_wr *wr);
/* Does something with one that is held and need not be; false if there is none. */
bool fake_wire_packets(void);
