/* SPDX-License-Identifier: MIT */
#pragma once
/* An end of a connection over fake adapters, for tests of the adapters themselves. */
#include "tests/fabric/fake_verbs.h"

#define END_BYTES 65536u
#define END_SLOTS 16u /* of the send queue */

struct fake_end {
        struct fake_device *device; /* the test's */
        struct ibv_context *context;
        struct ibv_pd *pd;
        struct ibv_comp_channel *channel;
        struct ibv_cq *cq;
        struct ibv_srq *srq;
        struct ibv_mr *mr;
        struct ibv_qp *qp;
        uint8_t *memory; /* END_BYTES, registered for all */
        uint32_t psn, inline_bytes;
        uint8_t gid_index;
        union ibv_gid gid;
};

/* How the ends of a connection are made, where it is not as usual (0). */
struct fake_usage {
        uint32_t n_cqe, n_receives; /* 0: 256, 64 */
        uint8_t rnr_retry_less;     /* than 7 */
        uint8_t gid_index_less;     /* of the first end, than the one that is right */
        uint32_t psn_more;          /* what the second expects */
        unsigned int no_access;     /* taken away from the second's queue pair */
};

/* Opens the device of that name and everything but the queue pair. */
void fake_end_open(struct fake_end *end, const char *name, const struct fake_usage *usage);
void fake_end_qp(struct fake_end *end);
/* Each returns what modify_qp() does. */
int fake_end_init(struct fake_end *end, unsigned int access);
int fake_end_rtr(struct fake_end *end, const struct fake_end *other, uint32_t psn);
int fake_end_rts(struct fake_end *end, uint8_t rnr_retry);
int fake_end_err(struct fake_end *end);
/* A new queue pair at each of them, ready to send. */
void fake_ends_connect(struct fake_end ends[2], const struct fake_usage *usage);
void fake_end_disconnect(struct fake_end *end);
void fake_end_close(struct fake_end *end);

/* A write from the same offset of its memory, which counts as its id: of bytes 0 only an immediate. */
struct ibv_send_wr fake_end_wr(const struct fake_end *end, const struct fake_end *other, struct ibv_sge *sge,
                               uint32_t offset, uint32_t bytes);
int fake_end_post(struct fake_end *end, struct ibv_send_wr *wr);
/* Signalled, with an immediate: id as above. Returns what post_send() does. */
int fake_end_send(struct fake_end *end, const struct fake_end *other, uint32_t offset, uint32_t bytes);
void fake_end_receives(struct fake_end *end, uint32_t n);
/* The next completion, however long it takes. */
struct ibv_wc fake_end_wait(struct fake_end *end);
/* What is there, at most one. */
int fake_end_poll(struct fake_end *end, struct ibv_wc *ret_wc);
/* The next event; its type is acknowledged. */
enum ibv_event_type fake_end_event(struct fake_end *end);
