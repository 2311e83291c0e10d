/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Rails whose frames and data go over RDMA: one reliable connected queue pair for each connection.
 *
 * All of this belongs to the rail's thread, under the fabric's lock unless a comment says otherwise.
 */
#include "fabric/private.h"
#include "fabric/transport.h"
#include "fabric/verbs/api.h"
#include "fabric/verbs/pair.h"

#define LINK_SLOTS      64u  /* of the ring of frames of each direction */
#define LINK_SLOT       192u /* bytes; a frame is at most FRAME_HEAD_MAX */
#define LINK_TELL       16u  /* slots taken before the sender is told */
#define LINK_SIGNAL     8u   /* frames; at least one of so many asks for its completion */
#define LINK_WRS        (4u * LINK_SLOTS)
#define LINK_PLACES     4096u
#define NIC_RECEIVES    4096u
#define NIC_COMPLETIONS 65536u
/* Completions that a link may cause at the sending end: if it fails, all that it has in its queue. */
#define LINK_COMPLETIONS (LINK_WRS + LINK_SLOTS / LINK_TELL + 2u)

/* Work request ids: of frames their count when they are posted, and of the data before them, with COMPLETION_DATA; else
 * one of the others. */
#define COMPLETION_CREDIT  (UINT64_C(1) << 32)
#define COMPLETION_RECEIVE (UINT64_C(1) << 33)
#define COMPLETION_DATA    (UINT64_C(1) << 34)

_Static_assert(LINK_SLOT >= FRAME_HEAD_MAX && LINK_SLOT % 64 == 0, "a frame fits");

struct verbs_link {
        UT_hash_handle hh; /* of its NIC, by number */
        struct verbs_nic *nic;
        struct fabric_conn *conn;
        struct ibv_qp *qp;
        uint32_t number; /* of the queue pair */
        uint32_t psn, max_inline;
        uint8_t *rings; /* theirs to write, then ours to read from; one mapping */
        struct ibv_mr *in, *out;
        struct pair theirs;
        bool connected, said_ready; /* the queue pair is; they may send */
        bool receives, last;        /* it may have taken some of the shared queue; all of these have come back */
        /* Out. Counts of frames: posted, of those completed here, of those taken there. */
        uint32_t posted, done, taken_there;
        uint32_t n_wrs, unsignalled; /* in the send queue; frames since the last signalled one */
        struct {
                struct fabric_area *area; /* a reference, until the frame is done */
                uint64_t sequence;        /* of its message */
                uint32_t n_wrs;
        } slots[LINK_SLOTS];
        uint32_t n_credits; /* words of credit in the send queue */
        /* In. */
        uint32_t taken, told;
        /* Memory: theirs that we may write to, and ours that they may. See places.c. */
        struct verbs_place *places;
        struct verbs_place *closed; /* utlist, of the places */
        struct verbs_given *given;
        struct verbs_given *revoked; /* utlist, of what is given, told and not answered; the first one first */
        bool heard;                  /* something has come in this turn */
        uint64_t areas_version;      /* up to which `given` is right */
        bool work;                   /* something could not be said yet */
};

struct verbs_nic {
        struct fabric_rail *rail;
        const struct verbs_api *api;
        struct ibv_context *context;
        struct ibv_pd *pd;
        struct ibv_comp_channel *channel;
        struct ibv_cq *cq;
        struct ibv_srq *srq;
        uint32_t n_receives; /* the SRQ's size */
        uint32_t n_missing;  /* of these, not posted */
        uint32_t n_mute;     /* ends of links in a row without a word of their last receive */
        uint32_t max_links, n_links;
        char device[64];
        uint8_t port;
        union ibv_gid gid;
        uint32_t gid_index;
        uint16_t lid;
        enum ibv_mtu mtu;
        uint32_t max_message; /* bytes */
        uint8_t timeout, retries;
        uint32_t flow_label;
        bool active; /* the port is, and has the GID */
        bool look;   /* at port and GIDs again */
        bool fatal;
        bool armed;
        uint32_t n_unarmed; /* times in a row that it could not be */
        uint64_t busy_ns;   /* a completion was there */
        uint64_t carried;   /* the rail's messages then, */
        uint64_t work_ns;   /* and when there were more; heartbeats and credit are none */
        struct verbs_link *links;
        struct verbs_link *ending; /* not one of them any more */
};

/* An address that may be written to on this connection. */
struct verbs_place {
        UT_hash_handle hh;
        uint64_t key, address, bytes;
        uint32_t rkey;
        bool closed;              /* revoked, which is to be answered */
        struct verbs_place *next; /* of link->closed */
};

/* nic.c */
int nic_open(struct fabric_rail *rail, const struct fabric_rail_options *options);
void nic_close(struct fabric_rail *rail);
/* Port and GID as they are now. Without the lock. */
void nic_look(struct verbs_nic *nic);
/* Of the registrar's thread, without the lock. */
int nic_region_add(struct fabric_rail *rail, const struct fabric_area *area, void *staging, void **ret_region,
                   char ret_text[FABRIC_TEXT]);
void nic_region_free(struct fabric_rail *rail, void *region);
/* nic_event.c */
void nic_event(struct fabric_rail *rail, uint64_t now_ns);
/* It will not come back. */
void nic_failed(struct verbs_nic *nic, const char *why);
/* failed unless it has lived for a while: what fails at once again and again is to rest as routes do. */
void link_doom(struct verbs_link *link, bool failed, uint64_t now_ns, const char *why);

/* link.c */
void link_begin(struct fabric_conn *conn, uint64_t now_ns);
void link_pair(struct fabric_conn *conn, uint64_t now_ns);
void link_end(struct fabric_conn *conn);
/* The socket of a connection that is up: only its end may come. */
void link_receive(struct fabric_conn *conn, uint64_t now_ns);
void link_up(struct verbs_link *link, uint64_t now_ns);

/* post.c */
void link_send(struct fabric_conn *conn);

/* complete.c */
void nic_poll(struct fabric_rail *rail, uint64_t now_ns);
bool nic_sleep(struct fabric_rail *rail, uint64_t now_ns);
void nic_drain(struct verbs_nic *nic, uint64_t now_ns); /* all that is in the completion queue */
int nic_refill(struct verbs_nic *nic);

/* places.c */
bool link_ready(struct fabric_conn *conn, const struct fabric_item *item);
void link_work(struct fabric_conn *conn);
void link_heard(struct fabric_conn *conn, const struct frame *frame);
struct verbs_place *link_place(const struct verbs_link *link, uint64_t key);
void link_forget_places(struct verbs_link *link);

static inline struct verbs_nic *nic_of(const struct fabric_rail *rail) {
        return rail->nic;
}

static inline struct verbs_link *link_of(const struct fabric_conn *conn) {
        return conn->link;
}

static inline uint8_t *link_slot_out(const struct verbs_link *link, uint32_t position) {
        return link->rings + (size_t)(LINK_SLOTS + position % LINK_SLOTS) * LINK_SLOT;
}

/*
 * Immediate data: 24 bits of a count, 7 bits of the connection's number (its epoch), and whether the count is of frames
 * that were taken or that of the frame that has been written.
 */
#define IMM_CREDIT (UINT32_C(1) << 31)
#define IMM_COUNT  UINT32_C(0xffffff)

static inline uint32_t imm_of(uint64_t connection, uint32_t count, bool credit) {
        return (credit ? IMM_CREDIT : 0) | (uint32_t)(connection & 0x7f) << 24 | (count & IMM_COUNT);
}
