/* SPDX-License-Identifier: MIT */
/* What tests tell the fake to do, and ask it. */
#include <sys/socket.h>

#include "proto/session.pb-c.h"
#include "tests/client/fake.h"

#include "tests/cmocka_all.h"
#include <poll.h>
#include <sched.h>

#define BODY(name) RAILMUX__SESSION__MESSAGE__BODY_##name

struct rmx_session *fake_session(struct fake *fake) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = fake->path};
        struct rmx_session *session = NULL;

        assert_int_equal(rmx_session_open(&options, &session), RMX_OK);
        return session;
}

void fake_pause(struct fake *fake, bool paused) {
        pthread_mutex_lock(&fake->mutex);
        fake->paused = paused;
        pthread_mutex_unlock(&fake->mutex);
        fake_kick(fake);
}

void fake_deafen(struct fake *fake, bool deaf) {
        pthread_mutex_lock(&fake->mutex);
        fake->deaf = deaf;
        pthread_mutex_unlock(&fake->mutex);
        fake_kick(fake);
}

void fake_wait_unread(struct fake *fake) {
        bool unread = false;

        while (!unread) {
                pthread_mutex_lock(&fake->mutex);
                for (struct fake_session *session = fake->sessions; session; session = session->next) {
                        struct pollfd p = {.fd = session->fd, .events = POLLIN};

                        unread |= session->fd >= 0 && poll(&p, 1, 0) == 1;
                }
                pthread_mutex_unlock(&fake->mutex);
                sched_yield();
        }
}

void fake_mute(struct fake *fake, bool mute) {
        pthread_mutex_lock(&fake->mutex);
        fake->mute = mute;
        pthread_mutex_unlock(&fake->mutex);
}

void fake_cut_rings(struct fake *fake, uint32_t n) {
        pthread_mutex_lock(&fake->mutex);
        fake->cut_rings = n;
        pthread_mutex_unlock(&fake->mutex);
}

void fake_force(struct fake *fake, uint32_t status) {
        pthread_mutex_lock(&fake->mutex);
        fake->force_status = status;
        pthread_mutex_unlock(&fake->mutex);
}

void fake_drop(struct fake *fake, uint32_t body, uint32_t count) {
        pthread_mutex_lock(&fake->mutex);
        fake->drop_body = body;
        fake->drop_count = count;
        pthread_mutex_unlock(&fake->mutex);
}

void fake_hang_up(struct fake *fake) {
        pthread_mutex_lock(&fake->mutex);
        fake->gone = true;
        for (struct fake_session *session = fake->sessions; session; session = session->next) {
                if (session->fd >= 0)
                        shutdown(session->fd, SHUT_RDWR); /* the control thread may be polling it: it closes it */
        }
        pthread_mutex_unlock(&fake->mutex);
}

void fake_wait_calls(struct fake *fake, uint32_t body, uint32_t n) {
        pthread_mutex_lock(&fake->mutex);
        while (fake->calls[body] < n)
                pthread_cond_wait(&fake->changed, &fake->mutex);
        pthread_mutex_unlock(&fake->mutex);
}

void fake_wait_taken_back(struct fake *fake, uint32_t n) {
        pthread_mutex_lock(&fake->mutex);
        while (fake->taken_back < n)
                pthread_cond_wait(&fake->changed, &fake->mutex);
        pthread_mutex_unlock(&fake->mutex);
}

uint32_t fake_taken_back(struct fake *fake) {
        uint32_t n;

        pthread_mutex_lock(&fake->mutex);
        n = fake->taken_back;
        pthread_mutex_unlock(&fake->mutex);
        return n;
}

const struct fake_comm *fake_newest(struct fake *fake) {
        const struct fake_comm *comm;

        pthread_mutex_lock(&fake->mutex);
        comm = fake->comms;
        pthread_mutex_unlock(&fake->mutex);
        return comm;
}

void fake_wait_left(struct fake *fake, const struct fake_comm *comm, uint32_t rank) {
        pthread_mutex_lock(&fake->mutex);
        while (!comm->member[rank].left)
                pthread_cond_wait(&fake->changed, &fake->mutex);
        pthread_mutex_unlock(&fake->mutex);
}

int fake_life(struct fake *fake, unsigned int i) {
        int fd;

        pthread_mutex_lock(&fake->mutex);
        fd = fake->life_fd[i];
        pthread_mutex_unlock(&fake->mutex);
        return fd;
}

uint32_t fake_calls(struct fake *fake, uint32_t body) {
        uint32_t n;

        pthread_mutex_lock(&fake->mutex);
        n = fake->calls[body];
        pthread_mutex_unlock(&fake->mutex);
        return n;
}

const struct fake_seen *fake_line(struct fake *fake, uint32_t i) {
        const struct fake_seen *seen;

        pthread_mutex_lock(&fake->mutex);
        while (fake->n_seen <= i)
                pthread_cond_wait(&fake->changed, &fake->mutex);
        seen = fake->seen[i];
        pthread_mutex_unlock(&fake->mutex);
        return seen;
}

uint32_t fake_lines(struct fake *fake) {
        uint32_t n;

        pthread_mutex_lock(&fake->mutex);
        n = fake->n_seen;
        pthread_mutex_unlock(&fake->mutex);
        return n;
}

uint32_t fake_last_epoch(struct fake *fake) {
        uint32_t epoch;

        pthread_mutex_lock(&fake->mutex);
        epoch = fake->last_epoch;
        pthread_mutex_unlock(&fake->mutex);
        return epoch;
}

static bool ring_has_sleeper(const struct fake_ring *ring) {
        bool any = false;

        for (uint32_t i = 0; ring->open && i < ring->consumer.layout.depth; i++)
                any |= atomic_load_explicit(&ring->consumer.waiting[i], memory_order_relaxed); /* no partner: a hint */
        return any;
}

void fake_wait_sleeper(struct fake *fake, uint32_t gpu) {
        bool any = false;

        while (!any) {
                pthread_mutex_lock(&fake->mutex);
                for (const struct fake_session *session = fake->sessions; session; session = session->next)
                        any |= ring_has_sleeper(&session->rings[gpu]);
                pthread_mutex_unlock(&fake->mutex);
        }
}

void fake_forget(struct fake *fake) {
        pthread_mutex_lock(&fake->mutex);
        for (uint32_t i = 0; i < fake->n_seen; i++) {
                free(fake->seen[i]->argument);
                free(fake->seen[i]);
        }
        free(fake->seen);
        fake->seen = NULL;
        fake->n_seen = 0;
        pthread_mutex_unlock(&fake->mutex);
}

static void send_event(struct fake *fake, struct fake_member *member, Railmux__Session__Event *event) {
        Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;

        message.body_case = BODY(EVENT);
        message.event = event;
        fake_reply(fake, member->session, &message, 0, NULL, 0);
}

void fake_comm_tell(struct fake *fake, struct fake_comm *comm, uint32_t code, int32_t rank) {
        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                Railmux__Session__Event event = RAILMUX__SESSION__EVENT__INIT;
                Railmux__Session__CommFailed body = RAILMUX__SESSION__COMM_FAILED__INIT;

                body.handle = comm->member[i].handle;
                body.code = code;
                body.rank = rank;
                event.body_case = RAILMUX__SESSION__EVENT__BODY_COMM_FAILED;
                event.comm_failed = &body;
                send_event(fake, &comm->member[i], &event);
        }
}

/* The first one that was made is the last one of the list. */
static uint32_t comm_number(const struct fake_comm *comm) {
        uint32_t number = 0;

        while ((comm = comm->next))
                number++;
        return number;
}

uint32_t fake_comm_of(struct fake *fake, uint32_t handle) {
        uint32_t number = UINT32_MAX;

        pthread_mutex_lock(&fake->mutex);
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next)
                for (uint32_t i = 0; i < comm->n_ranks; i++)
                        if (comm->member[i].handle == handle)
                                number = comm_number(comm);
        pthread_mutex_unlock(&fake->mutex);
        must(number != UINT32_MAX);
        return number;
}

void fake_comm_failed_one(struct fake *fake, uint32_t number, uint32_t code, int32_t rank) {
        pthread_mutex_lock(&fake->mutex);
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next)
                if (comm_number(comm) == number)
                        fake_comm_tell(fake, comm, code, rank);
        pthread_mutex_unlock(&fake->mutex);
}

void fake_comm_failed(struct fake *fake, uint32_t code, int32_t rank) {
        pthread_mutex_lock(&fake->mutex);
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next)
                fake_comm_tell(fake, comm, code, rank);
        pthread_mutex_unlock(&fake->mutex);
}

void fake_epoch_changed(struct fake *fake, uint32_t epoch) {
        pthread_mutex_lock(&fake->mutex);
        for (struct fake_comm *comm = fake->comms; comm; comm = comm->next) {
                for (uint32_t i = 0; i < comm->n_ranks; i++) {
                        Railmux__Session__Event event = RAILMUX__SESSION__EVENT__INIT;
                        Railmux__Session__EpochChanged body = RAILMUX__SESSION__EPOCH_CHANGED__INIT;

                        body.handle = comm->member[i].handle;
                        body.epoch = epoch;
                        event.body_case = RAILMUX__SESSION__EVENT__BODY_EPOCH_CHANGED;
                        event.epoch_changed = &body;
                        send_event(fake, &comm->member[i], &event);
                }
        }
        pthread_mutex_unlock(&fake->mutex);
}

void fake_resume(struct fake *fake) {
        pthread_mutex_lock(&fake->mutex);
        for (struct fake_session *session = fake->sessions; session; session = session->next) {
                Railmux__Session__Message message = RAILMUX__SESSION__MESSAGE__INIT;
                Railmux__Session__Event event = RAILMUX__SESSION__EVENT__INIT;
                Railmux__Session__Resumed body = RAILMUX__SESSION__RESUMED__INIT;

                body.version = 1;
                event.body_case = RAILMUX__SESSION__EVENT__BODY_RESUMED;
                event.resumed = &body;
                message.body_case = BODY(EVENT);
                message.event = &event;
                fake_reply(fake, session, &message, 0, NULL, 0);
        }
        pthread_mutex_unlock(&fake->mutex);
}
