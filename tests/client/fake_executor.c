/* SPDX-License-Identifier: MIT */
/* The data plane of the fake: latches lines, runs a collective when all ranks are there, completes. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "tests/client/fake.h"
#include "util/type.h"

static struct fake_member *find_member(struct fake *fake, struct fake_session *session, uint32_t handle,
                                       struct fake_comm **ret_comm) {
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next) {
                for (uint32_t i = 0; i < comm->n_ranks; i++) {
                        if (comm->member[i].session == session && comm->member[i].handle == handle) {
                                *ret_comm = comm;
                                return &comm->member[i];
                        }
                }
        }
        return NULL;
}

static void *resolve(const struct fake_session *session, const struct ring_request *request, unsigned int word,
                     size_t bytes) {
        uint64_t offset = ring_request_u64(request, word + 1);

        for (struct fake_buffer *buffer = session->buffers; buffer; buffer = buffer->next) {
                if (buffer->id == request->word[word] && offset <= buffer->bytes && bytes <= buffer->bytes - offset)
                        return buffer->address + offset;
        }
        return NULL;
}

static void complete_all(struct fake_comm *comm, uint32_t status) {
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct fake_member *member = &comm->member[i];
                struct fake_bell *bell = &member->queue[member->head++ % FAKE_QUEUE];

                ring_consumer_complete(&bell->ring->consumer, bell->ring_sequence, status);
        }
}

void fake_comm_end(struct fake_comm *comm, uint32_t status) {
        if (!comm->status)
                comm->status = status;
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                struct fake_member *member = &comm->member[i];

                while (member->head != member->tail) {
                        struct fake_bell *bell = &member->queue[member->head++ % FAKE_QUEUE];

                        ring_consumer_complete(&bell->ring->consumer, bell->ring_sequence, comm->status);
                }
        }
}

/* The result goes to private memory first, for operations may be in place. */
static uint32_t run(struct fake_comm *comm) {
        static int32_t sum[1 << 20];
        static unsigned char gathered[4 << 20];
        const struct ring_request *first = &comm->member[0].queue[comm->member[0].head % FAKE_QUEUE].request;
        uint32_t op = ring_request_op(first), n = comm->n_ranks, root = first->word[RING_W_PEER];
        uint64_t count = ring_request_u64(first, RING_W_COUNT_LO);
        size_t bytes = (size_t)count * type_size(ring_request_type(first));
        size_t in_bytes = op == RING_OP_REDUCE_SCATTER ? n * bytes : bytes;
        size_t out_bytes = op == RING_OP_ALL_GATHER ? n * bytes : bytes;
        unsigned char *in[FAKE_RANKS_MAX], *out[FAKE_RANKS_MAX];

        for (uint32_t i = 0; i < n; i++) {
                const struct fake_member *member = &comm->member[i];
                const struct ring_request *request = &member->queue[member->head % FAKE_QUEUE].request;

                if (request->word[RING_W_HEAD] != first->word[RING_W_HEAD] || request->word[RING_W_PEER] != root ||
                    ring_request_u64(request, RING_W_COUNT_LO) != count)
                        return ring_status(RMX_E_MISMATCH, (int32_t)i);
                if (op == RING_OP_BARRIER || !count)
                        continue;
                in[i] = op == RING_OP_BROADCAST && i != root
                                ? NULL
                                : resolve(member->session, request, RING_W_IN_BUFFER, in_bytes);
                out[i] = resolve(member->session, request, RING_W_OUT_BUFFER, out_bytes);
                if ((!in[i] && !(op == RING_OP_BROADCAST && i != root)) || !out[i])
                        return ring_status(RMX_E_INVALID, (int32_t)i);
        }
        if (op == RING_OP_BARRIER || !count)
                return RMX_OK;
        must(in_bytes <= sizeof(sum) && out_bytes <= sizeof(gathered));
        switch (op) {
        case RING_OP_ALL_REDUCE:
        case RING_OP_REDUCE_SCATTER:
                if (ring_request_type(first) != RMX_INT32 || ring_request_redop(first) != RMX_SUM)
                        return RMX_E_UNSUPPORTED;
                memset(sum, 0, in_bytes);
                for (uint32_t i = 0; i < n; i++) {
                        for (size_t k = 0; k < in_bytes / 4; k++)
                                sum[k] += ((const int32_t *)(const void *)in[i])[k];
                }
                for (uint32_t i = 0; i < n; i++)
                        memcpy(out[i], sum + (op == RING_OP_REDUCE_SCATTER ? i * count : 0), out_bytes);
                return RMX_OK;
        case RING_OP_ALL_GATHER:
                for (uint32_t i = 0; i < n; i++)
                        memcpy(gathered + i * bytes, in[i], bytes);
                for (uint32_t i = 0; i < n; i++)
                        memcpy(out[i], gathered, out_bytes);
                return RMX_OK;
        case RING_OP_BROADCAST:
                for (uint32_t i = 0; i < n; i++)
                        memmove(out[i], in[root], bytes);
                return RMX_OK;
        default:
                return RMX_E_UNSUPPORTED;
        }
}

static bool all_there(const struct fake_comm *comm) {
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                if (comm->member[i].head == comm->member[i].tail)
                        return false;
        }
        return comm->n_ranks > 0;
}

static void latch(struct fake *fake, struct fake_session *session, struct fake_ring *ring) {
        struct ring_request request;
        uint32_t sequence;

        while (ring_consumer_latch(&ring->consumer, &request, &sequence) == RING_OK) {
                struct fake_comm *comm;
                struct fake_member *member = find_member(fake, session, request.word[RING_W_COMM], &comm);

                fake->last_epoch = request.word[RING_W_EPOCH];
                if (!member || request.word[RING_W_SEQUENCE] != member->sequence + 1 || request.word[RING_W_ZERO] ||
                    request.word[RING_W_FLAGS] || ring_request_abi(&request) != RING_ABI) {
                        ring_consumer_complete(&ring->consumer, sequence, RMX_E_INVALID);
                        continue;
                }
                member->sequence++;
                if (comm->status) {
                        ring_consumer_complete(&ring->consumer, sequence, comm->status);
                        continue;
                }
                must(member->tail - member->head < FAKE_QUEUE);
                member->queue[member->tail++ % FAKE_QUEUE] =
                        (struct fake_bell){.request = request, .ring = ring, .ring_sequence = sequence};
        }
}

void fake_work(struct fake *fake) {
        if (fake->paused)
                return;
        for (struct fake_session *session = fake->sessions; session; session = session->next) {
                for (uint32_t i = 0; i < FAKE_GPUS; i++) {
                        if (session->rings[i].open)
                                latch(fake, session, &session->rings[i]);
                }
        }
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next) {
                while (!comm->status && all_there(comm)) {
                        uint32_t status = fake->force_status ? fake->force_status : run(comm);

                        fake->force_status = 0;
                        complete_all(comm, status);
                        if (ring_status_code(status) == RMX_E_MISMATCH || ring_status_code(status) == RMX_E_PEER_LOST)
                                comm->status = status;
                }
        }
}

/* True if a line came in before all rings were told that we sleep. */
static bool fall_asleep(struct fake *fake, bool asleep) {
        bool again = false;

        for (struct fake_session *session = fake->sessions; session; session = session->next) {
                for (uint32_t i = 0; i < FAKE_GPUS; i++) {
                        struct fake_ring *ring = &session->rings[i];

                        if (!ring->open)
                                continue;
                        if (!asleep)
                                ring_consumer_awake(&ring->consumer);
                        else if (ring_consumer_sleep(&ring->consumer))
                                again = true;
                }
        }
        return again;
}

void *fake_executor_main(void *userdata) {
        struct fake *fake = userdata;

        pthread_mutex_lock(&fake->mutex);
        while (!fake->stop) {
                struct epoll_event events[8];
                bool again;

                fake_work(fake);
                again = fall_asleep(fake, true) && !fake->paused;
                pthread_mutex_unlock(&fake->mutex);
                if (!again)
                        (void)epoll_wait(fake->epoll_fd, events, 8, -1); /* edge-triggered: eventfds are never read */
                pthread_mutex_lock(&fake->mutex);
                fall_asleep(fake, false);
        }
        pthread_mutex_unlock(&fake->mutex);
        return NULL;
}
