/* SPDX-License-Identifier: MIT */
/* The data plane of the fake: latches lines, runs a collective when all ranks are there, completes. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "tests/client/fake.h"
#include "util/clock.h"

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

void *fake_resolve(const struct fake_session *session, uint32_t id, uint64_t offset, size_t bytes) {
        for (struct fake_buffer *buffer = session->buffers; buffer; buffer = buffer->next) {
                if (buffer->id == id && offset <= buffer->bytes && bytes <= buffer->bytes - offset)
                        return buffer->address + offset;
        }
        return NULL;
}

void fake_bell_complete(struct fake_member *member, uint32_t status) {
        struct fake_bell *bell = &member->queue[member->head++ % FAKE_QUEUE];

        ring_consumer_complete(&bell->ring->consumer, bell->ring_sequence, status);
        free(bell->argument);
        free(bell->entries);
        free(bell->done);
        *bell = (struct fake_bell){0};
}

static void complete_all(struct fake_comm *comm, uint32_t status) {
        for (uint32_t i = 0; i < comm->n_ranks; i++)
                fake_bell_complete(&comm->member[i], status);
}

void fake_comm_end(struct fake_comm *comm, uint32_t status) {
        if (!comm->status)
                comm->status = status;
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                while (comm->member[i].head != comm->member[i].tail)
                        fake_bell_complete(&comm->member[i], comm->status);
        }
}

/* The oldest requests of all ranks are a collective. */
static bool all_there(const struct fake_comm *comm) {
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                const struct fake_member *member = &comm->member[i];

                if (member->head == member->tail || fake_is_p2p(&member->queue[member->head % FAKE_QUEUE].request))
                        return false;
        }
        return comm->n_ranks > 0;
}

static size_t argument_bytes(const struct fake_comm *comm, const struct ring_request *line) {
        switch (ring_request_op(line)) {
        case RING_OP_ALL_TO_ALL_V:
                return 4 * sizeof(uint64_t) * comm->n_ranks;
        case RING_OP_GROUP:
                return line->word[RING_W_COUNT_LO] * sizeof(struct ring_group_entry);
        default:
                return ring_request_redop(line) == RMX_PREMUL_SUM ? sizeof(uint64_t) : 0;
        }
}

/* Copies the argument block. False: there is one that must not be, or the other way round. */
static bool take_argument(const struct fake_comm *comm, struct fake_bell *bell) {
        const struct ring_layout *layout = &bell->ring->consumer.layout;
        uint32_t offset = bell->request.word[RING_W_ARGUMENT];
        size_t bytes = argument_bytes(comm, &bell->request);

        if (!bytes)
                return !offset;
        if (!offset || offset % RING_ARGUMENT_ALIGN || offset > layout->argument_bytes ||
            bytes > layout->argument_bytes - offset)
                return false;
        must((bell->argument = malloc(bytes)));
        memcpy(bell->argument, (const char *)bell->ring->client_area + layout->argument_offset + offset, bytes);
        return true;
}

static void remember(struct fake *fake, const struct fake_comm *comm, const struct fake_bell *bell) {
        size_t bytes = bell->argument ? argument_bytes(comm, &bell->request) : 0;
        struct fake_seen *seen;

        must((seen = calloc(1, sizeof(*seen))));
        *seen = (struct fake_seen){.request = bell->request, .argument_bytes = bytes};
        if (bytes) {
                must((seen->argument = malloc(bytes)));
                memcpy(seen->argument, bell->argument, bytes);
        }
        must((fake->seen = realloc(fake->seen, (fake->n_seen + 1) * sizeof(struct fake_seen *))));
        fake->seen[fake->n_seen++] = seen;
        pthread_cond_broadcast(&fake->changed);
}

static bool bell_take(struct fake_comm *comm, struct fake_member *member, struct fake_bell *bell) {
        const struct ring_request *line = &bell->request;

        if (line->word[RING_W_ZERO] || line->word[RING_W_FLAGS] || ring_request_abi(line) != RING_ABI ||
            !take_argument(comm, bell))
                return false;
        if (fake_is_p2p(line))
                return fake_p2p_take(comm, member, bell);
        return line->word[RING_W_SEQUENCE] == ++member->sequence;
}

static void latch(struct fake *fake, struct fake_session *session, struct fake_ring *ring) {
        struct ring_request request;
        uint32_t sequence;

        while (ring_consumer_latch(&ring->consumer, &request, &sequence) == RING_OK) {
                struct fake_comm *comm;
                struct fake_member *member = find_member(fake, session, request.word[RING_W_COMM], &comm);
                struct fake_bell *bell;
                bool good;

                fake->last_epoch = request.word[RING_W_EPOCH];
                if (!member) {
                        ring_consumer_complete(&ring->consumer, sequence, RMX_E_INVALID);
                        continue;
                }
                must(member->tail - member->head < FAKE_QUEUE);
                bell = &member->queue[member->tail++ % FAKE_QUEUE];
                *bell = (struct fake_bell){.request = request, .ring = ring, .ring_sequence = sequence};
                good = bell_take(comm, member, bell);
                remember(fake, comm, bell);
                if (!good) /* a confused client ends the comm, so that no test misses it */
                        fake_comm_end(comm, RMX_E_INVALID);
                else if (comm->status)
                        fake_comm_end(comm, comm->status);
        }
}

static void comm_work(struct fake *fake, struct fake_comm *comm) {
        bool moved = true;

        while (moved && !comm->status) {
                moved = fake_p2p_work(fake, comm);
                while (!comm->status && all_there(comm)) {
                        uint32_t status = fake->force_status ? fake->force_status : fake_run(comm);

                        fake->force_status = fake->force_later;
                        fake->force_later = 0;
                        complete_all(comm, status);
                        if (ring_status_code(status) == RMX_E_MISMATCH || ring_status_code(status) == RMX_E_PEER_LOST)
                                comm->status = status;
                        moved = true;
                }
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
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next)
                comm_work(fake, comm);
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

static void note_turn(struct fake *fake) {
        const uint64_t now = clock_now_ns();

        if (fake->turn_ns && now - fake->turn_ns > fake->pause_ns)
                fake->pause_ns = now - fake->turn_ns;
        fake->turn_ns = now;
}

uint64_t fake_executor_pause_ns(struct fake *fake) {
        uint64_t pause_ns;

        pthread_mutex_lock(&fake->mutex);
        note_turn(fake); /* it may stand still yet */
        pause_ns = fake->pause_ns;
        fake->pause_ns = 0;
        pthread_mutex_unlock(&fake->mutex);
        return pause_ns;
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
                note_turn(fake);
        }
        pthread_mutex_unlock(&fake->mutex);
        return NULL;
}
