/* SPDX-License-Identifier: MIT */
/*
 * A peer that has proven its token, has a queue pair to us, and then writes what it likes into our ring, with the
 * immediate data that it likes.
 *
 * The adapter is one that does as it is told: what we post is noted and completes when the input says so, what the peer
 * writes is what the input says. Whatever comes: our count of frames that the peer may have taken is never above what
 * we posted, nothing is posted that reads outside of the area or our ring, or writes anywhere but to what the peer has
 * offered, and at the end nothing is left.
 */
#undef NDEBUG /* the asserts are the test */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "fabric/verbs/verbs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STAGING  8192u
#define CAPACITY 16u
#define POSTS    4096u

static struct {
        struct fabric *fabric;
        struct fabric_rail rail;
        struct fabric_peer peer;
        struct verbs_nic nic;
        struct net_area *memory;
        uint64_t bytes;
        struct ibv_mr region, ring_in, ring_out;
        struct ibv_qp qp;
        struct verbs_link *link;
        /* Signalled ones that were posted and have not completed. */
        uint64_t posted[POSTS];
        uint32_t first, n_posted;
        uint32_t n_arriving, n_missing;
        struct ibv_wc arriving[8];
        bool registered; /* the adapter knows the area */
} fuzz;

static const uint8_t *input, *input_end;

static uint64_t take(unsigned int bytes) {
        uint64_t value = 0;

        while (bytes-- && input < input_end)
                value = value << 8 | *input++;
        return value;
}

static int fuzz_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *ret_wc) {
        int i = 0;

        (void)cq;
        for (; i < n && fuzz.n_arriving > 0; i++) {
                ret_wc[i] = fuzz.arriving[0];
                memmove(fuzz.arriving, fuzz.arriving + 1, --fuzz.n_arriving * sizeof(fuzz.arriving[0]));
        }
        return i;
}

static int fuzz_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad) {
        (void)srq;
        (void)wr;
        (void)ret_bad;
        return 0;
}

static bool inside(uint64_t address, uint64_t size, const void *start, uint64_t bytes) {
        uint64_t from = (uintptr_t)start;

        return address >= from && size <= bytes && address - from <= bytes - size;
}

static int fuzz_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad) {
        const uint8_t *staging = (const uint8_t *)fuzz.memory + fuzz.memory->memory_offset;

        (void)ret_bad;
        assert(qp == &fuzz.qp);
        for (; wr; wr = wr->next) {
                const struct ibv_sge *sge = wr->num_sge ? wr->sg_list : NULL;
                const struct verbs_place *place;

                if (wr->opcode == IBV_WR_RDMA_WRITE) {
                        /* The only area is offered with this key, and nothing else can have it. */
                        assert(wr->wr.rdma.rkey == 77 && sge->lkey == fuzz.region.lkey);
                        assert(inside(sge->addr, sge->length, staging, STAGING));
                        place = link_place(fuzz.link, 7);
                        assert(place && wr->wr.rdma.remote_addr - place->address <= place->bytes - sge->length &&
                               sge->length <= place->bytes);
                } else {
                        assert(wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && wr->wr.rdma.rkey == 9);
                        assert(!sge || (sge->lkey == fuzz.ring_out.lkey && sge->length <= FRAME_HEAD_MAX));
                }
                if (!(wr->send_flags & IBV_SEND_SIGNALED))
                        continue;
                assert(fuzz.n_posted < POSTS);
                fuzz.posted[(fuzz.first + fuzz.n_posted++) % POSTS] = wr->wr_id;
        }
        return 0;
}

static int fuzz_destroy_qp(struct ibv_qp *qp) {
        assert(qp == &fuzz.qp);
        return 0;
}

static int fuzz_dereg_mr(struct ibv_mr *mr) {
        (void)mr;
        return 0;
}

static struct ibv_mr *fuzz_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
        (void)pd;
        (void)access;
        fuzz.region.addr = address;
        fuzz.region.length = bytes;
        return &fuzz.region;
}

/* It cannot be stopped before it is destroyed: nothing more of it is waited for. */
static int fuzz_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
        (void)qp;
        (void)attr;
        (void)mask;
        return EIO;
}

static const struct verbs_api fuzz_api = {
        .poll_cq = fuzz_poll_cq,
        .post_srq_recv = fuzz_post_recv,
        .post_send = fuzz_post_send,
        .modify_qp = fuzz_modify_qp,
        .destroy_qp = fuzz_destroy_qp,
        .reg_mr = fuzz_reg_mr,
        .dereg_mr = fuzz_dereg_mr,
};

static void fuzz_registered(void *data, uint64_t key, int condition, const char *text) {
        (void)key;
        (void)text;
        assert(condition == 0);
        *(bool *)data = true;
}

/* Returns when the adapter knows it, so that all runs are alike. */
static void fuzz_area(uint64_t key) {
        const struct fabric_node nodes[2] = {{{1}}, {{2}}};
        struct fabric_area_options area = {.key = key, .nodes = nodes, .n_ranks = 2, .weight = 1};

        area.memory = fuzz.memory;
        area.size = fuzz.bytes;
        area.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert(area.wake_fd >= 0);
        fuzz.registered = false;
        assert(fabric_area_add(fuzz.fabric, &area) == 0);
        close(area.wake_fd);
        while (!fuzz.registered) {
                struct pollfd told = {.fd = fabric_event_fd(fuzz.fabric), .events = POLLIN};

                (void)poll(&told, 1, -1);
                fabric_dispatch(fuzz.fabric);
        }
}

static void fuzz_setup(void) {
        const struct fabric_options options = {.self = {{1}},
                                               .boot_epoch = 1,
                                               .cluster = "fuzz",
                                               .callbacks = {.area = fuzz_registered},
                                               .data = &fuzz.registered};
        struct sockaddr_storage address = {.ss_family = AF_INET};

        if (fuzz.fabric)
                return;
        assert(fabric_new(&options, &fuzz.fabric) == 0);
        fuzz.bytes = net_area_bytes(CAPACITY, STAGING);
        fuzz.memory = mmap(NULL, fuzz.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(fuzz.memory != MAP_FAILED);
        net_area_init(fuzz.memory, CAPACITY, STAGING);
        fuzz.region = (struct ibv_mr){.lkey = 1, .rkey = 1};
        fuzz.ring_in = (struct ibv_mr){.lkey = 2, .rkey = 2};
        fuzz.ring_out = (struct ibv_mr){.lkey = 3, .rkey = 3};
        fuzz.rail.fabric = fuzz.fabric;
        fuzz.rail.transport = &transport_verbs;
        fuzz.rail.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        fuzz.rail.wake_fd = fuzz.rail.listen_fd = -1;
        fuzz.rail.window = 1 << 20;
        fuzz.rail.nominal = fuzz.rail.estimate = 1000000000;
        fuzz.rail.enabled = true;
        fuzz.rail.nic = &fuzz.nic;
        fuzz.nic.rail = &fuzz.rail;
        fuzz.nic.api = &fuzz_api;
        fuzz.nic.max_message = 512;
        fuzz.nic.max_links = 4;
        snprintf(fuzz.nic.device, sizeof(fuzz.nic.device), "fuzz0");
        schedule_init(&fuzz.rail.schedule, 512, 1 << 20);
        fuzz.fabric->rails[fuzz.fabric->n_rails++] = &fuzz.rail;
        fuzz_area(7);
        fuzz.peer.node = (struct fabric_node){{2}};
        assert(route_new(fuzz.fabric, &fuzz.peer, &fuzz.rail, &address, &fuzz.peer.routes[0]) == 0);
        fuzz.peer.n_routes = 1;
}

static void arrives(const struct verbs_link *link, uint32_t imm, uint32_t bytes, enum ibv_wc_status status) {
        if (fuzz.n_arriving == sizeof(fuzz.arriving) / sizeof(fuzz.arriving[0]))
                return;
        fuzz.arriving[fuzz.n_arriving++] = (struct ibv_wc){.wr_id = COMPLETION_RECEIVE,
                                                           .status = status,
                                                           .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                                           .qp_num = link->number,
                                                           .wc_flags = IBV_WC_WITH_IMM,
                                                           .imm_data = htonl(imm),
                                                           .byte_len = bytes};
}

/* The oldest that was signalled, as adapters do. */
static void completes(const struct verbs_link *link, enum ibv_wc_status status) {
        if (fuzz.n_posted == 0 || fuzz.n_arriving == sizeof(fuzz.arriving) / sizeof(fuzz.arriving[0]))
                return;
        fuzz.arriving[fuzz.n_arriving++] = (struct ibv_wc){.wr_id = fuzz.posted[fuzz.first],
                                                           .status = status,
                                                           .opcode = IBV_WC_RDMA_WRITE,
                                                           .qp_num = link->number};
        fuzz.first = (fuzz.first + 1) % POSTS;
        fuzz.n_posted--;
}

/* A frame that is right but for what the input makes of it, into the slot where the next one belongs. */
static void fuzz_frame(struct verbs_link *link, uint64_t *sequence) {
        uint8_t kind = (uint8_t)(1 + take(1) % (FRAME_KIND_COUNT - 1)), flags = (uint8_t)take(1);
        uint8_t *slot = link->rings + (size_t)(link->taken % LINK_SLOTS) * LINK_SLOT, line[FRAME_LINE] = {0};
        struct frame frame = {.kind = kind,
                              .source = (uint8_t)(flags & 1 ? take(1) % 3 : 1),
                              .destination = (uint8_t)(flags & 1 ? take(1) % 3 : 0),
                              .value = kind == FRAME_OFFER ? 77 : (uint32_t)take(2),
                              .connection = 5,
                              .key = flags & 2 ? take(8) : 7,
                              .line_offset = flags & 4 ? take(8) : take(1) * 64,
                              .data_offset = kind == FRAME_OFFER && !(flags & 8) ? STAGING : take(2),
                              .ack = flags & 16 ? take(2) : 0};
        uint32_t bytes;

        if (kind == FRAME_CHUNK)
                frame.data_bytes = (uint32_t)take(2);
        if (kind <= FRAME_SKIP)
                frame.sequence = ++*sequence;
        bytes = frame_pack(&frame, line, slot);
        if (flags & 32)
                slot[take(1) % LINK_SLOT] ^= (uint8_t)take(1);
        arrives(link, imm_of(5, link->taken + (flags & 64 ? (uint32_t)take(1) : 0), false),
                flags & 128 ? (uint32_t)take(2) : bytes, IBV_WC_SUCCESS);
}

/* Something of ours to send. */
static void fuzz_item(struct fabric_conn *conn) {
        struct fabric_item *item = item_new(fuzz.fabric, fuzz.fabric->areas, &fuzz.peer, 1);

        assert(item);
        item->kind = take(1) % 4 ? NET_CHUNK : NET_CREDIT;
        item->line_offset = fuzz.memory->memory_offset;
        item->data_offset = fuzz.memory->memory_offset + take(1) * 8;
        item->data_bytes = item->kind == NET_CHUNK ? (uint32_t)take(2) % (STAGING / 2) : 0;
        item->schedule.bytes = (uint32_t)frame_bytes(item->kind, item->data_bytes);
        item->port = conn->port;
        if (!link_ready(conn, item)) {
                DL_APPEND(conn->parked, &item->schedule);
        } else if (conn->n_frames < CONN_FRAMES_DATA) {
                conn_assign(conn, item);
        } else {
                item_free(fuzz.fabric, item);
        }
}

static struct fabric_conn *fuzz_conn(int fd) {
        struct verbs_link *link = calloc(1, sizeof(*link));
        struct fabric_conn *conn;

        assert(link && conn_new(&fuzz.rail, fd, true, 1, &conn) == 0);
        conn->peer = &fuzz.peer;
        conn->port = &fuzz.peer.routes[0]->ports[FABRIC_LATENCY];
        conn->port->conn = conn;
        conn->number = 5;
        conn->state = CONN_UP;
        conn->link = link;
        fuzz.peer.n_up++;
        fuzz.rail.n_up++;
        link->nic = &fuzz.nic;
        link->conn = conn;
        link->qp = &fuzz.qp;
        link->number = 1;
        link->max_inline = (uint32_t)take(1);
        link->in = &fuzz.ring_in;
        link->out = &fuzz.ring_out;
        link->theirs.ring_rkey = 9;
        link->connected = link->work = true;
        link->rings = mmap(NULL, (size_t)2 * LINK_SLOTS * LINK_SLOT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);
        assert(link->rings != MAP_FAILED);
        HASH_ADD(hh, fuzz.nic.links, number, sizeof(link->number), link);
        fuzz.nic.n_links++;
        return conn;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const uint8_t token[FABRIC_TOKEN], nonce[16];
        uint64_t sequence = 0;
        struct fabric_conn *conn;
        struct verbs_link *link;
        struct pair pair;
        int fds[2];

        fuzz_setup();
        if (size >= PAIR_BYTES)
                (void)pair_unpack(data, nonce, 0, false, token, &pair);
        input = data;
        input_end = data + size;
        assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        pthread_mutex_lock(&fuzz.fabric->lock);
        fuzz.n_arriving = fuzz.n_posted = 0;
        conn = fuzz_conn(fds[0]);
        fuzz.link = link = link_of(conn);
        while (input < input_end && !conn->doomed) {
                switch (take(1) % 8) {
                case 0:
                        arrives(link, (uint32_t)take(4), (uint32_t)take(2), IBV_WC_SUCCESS);
                        break;
                case 1:
                        arrives(link, imm_of(5, link->taken_there + (uint32_t)take(1), true), 0, IBV_WC_SUCCESS);
                        break;
                case 2:
                        completes(link, take(1) == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
                        break;
                case 3:
                case 4:
                        fuzz_item(conn);
                        break;
                default:
                        fuzz_frame(link, &sequence);
                        break;
                }
                nic_poll(&fuzz.rail, 1);
                assert(link->posted - link->taken_there <= LINK_SLOTS && link->posted - link->done <= LINK_SLOTS);
                assert(link->n_wrs <= LINK_WRS && link->taken - link->told <= LINK_SLOTS + LINK_TELL);
                if (conn->doomed)
                        break;
                recover_send(fuzz.fabric, conn);
                link_work(conn);
                conn_send(conn);
        }
        conn_doom(conn, false, "the end");
        fuzz.n_arriving = 0;
        conn_bury(conn, 1);
        /* What was parked went back to a queue. */
        pthread_mutex_unlock(&fuzz.fabric->lock);
        assert(fabric_area_remove(fuzz.fabric, 7) == 0);
        pthread_mutex_lock(&fuzz.fabric->lock);
        while (fuzz.rail.schedule.queued_bytes > 0) {
                schedule_shut(&fuzz.rail.schedule, &fuzz.peer.routes[0]->ports[FABRIC_LATENCY].schedule, false);
                item_free(fuzz.fabric, item_of(schedule_pop(&fuzz.rail.schedule)));
        }
        graves_free(fuzz.fabric, &fuzz.peer);
        fuzz.peer.grave_work = false;
        assert(!fuzz.rail.conns && fuzz.peer.n_up == 0 && fuzz.rail.flight_bytes == 0 && fuzz.peer.n_items == 0);
        assert(fuzz.nic.n_links == 0 && !fuzz.nic.links);
        pthread_mutex_unlock(&fuzz.fabric->lock);
        fuzz_area(7);
        fabric_dispatch(fuzz.fabric);
        close(fds[1]);
        return 0;
}
