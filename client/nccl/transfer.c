/* SPDX-License-Identifier: MIT */
/*
 * NCCL knows no limit to the calls of a group; on the host backend librailmux has one for the sends and receives of
 * each communicator, and two for all whose rank is on the same GPU: for requests (a collective is one, and so are the
 * sends and receives of a communicator), and for the room that arguments take. So sends and receives of a group are
 * kept here until its end. If there are few, they go into librailmux's group, behind the collectives. If there are
 * many, or the collectives leave no room for them, each communicator's are cut into several requests (run.c), behind
 * the collectives; and if these are too many by themselves, they are started one by one, each communicator's before its
 * sends and receives.
 *
 * On GPUs librailmux does all this by itself.
 */
#include "client/nccl/transfer.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/nccl/call.h"
#include "client/nccl/clock.h"
#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/pending.h"
#include "client/nccl/room.h"
#include "client/nccl/run.h"
#include "client/nccl/waits.h"
#include "railmux/railmux.h"

#define FEW      512u   /* what a group of librailmux takes for one communicator */
#define FEW_ALL  1024u  /* of all that share a ring: arguments of collectives need room, too */
#define PLACES   256u   /* of a ring, unless its daemon is told otherwise: what a group of librailmux takes there */
#define BYTES    64000u /* nearly all that a ring has for arguments */
#define UNIT     64u    /* ... in which they are taken */
#define ENTRY    40u    /* for each send or receive */
#define FITS     16u    /* collectives and communicators that always fit, with FEW transfers */
#define STILL_MS 20000u /* that a group waits for room, whatever moves elsewhere */
#define LOOK_MS  1u

void transfers_free(struct transfers *transfers) {
        free(transfers->list);
        *transfers = (struct transfers){0};
}

ncclResult_t transfers_add(struct transfers *transfers, const char *what, const struct transfer *transfer) {
        size_t size = rmx_type_size(transfer->type), bytes;
        struct transfer *list;

        if (!size)
                return error_raise(ncclInvalidArgument, "%s: type %u is unknown", what, transfer->type);
        if (transfer->peer >= (uint32_t)transfer->comm->n_ranks)
                return error_raise(ncclInvalidArgument, "%s: peer %d is out of range; the communicator has ranks 0..%d",
                                   what, (int)transfer->peer, transfer->comm->n_ranks - 1);
        if (__builtin_mul_overflow(transfer->count, size, &bytes) || bytes > PTRDIFF_MAX)
                return error_raise(ncclInvalidArgument, "%s: count %zu is too large", what, transfer->count);
        if (bytes && !transfer->address)
                return error_raise(ncclInvalidArgument, "%s: the buffer is NULL with count %zu", what, transfer->count);
        if (transfers->n == transfers->capacity) {
                uint32_t capacity = transfers->capacity ? 2 * transfers->capacity : 16;

                list = reallocarray(transfers->list, capacity, sizeof(*list));
                if (!list)
                        return error_raise(ncclSystemError, "%s: out of memory", what);
                transfers->list = list;
                transfers->capacity = capacity;
        }
        transfers->list[transfers->n] = *transfer;
        transfers->list[transfers->n].index = transfers->n;
        transfers->n++;
        return ncclSuccess;
}

/* ---- few --------------------------------------------------------------------------------------------------------- */
int transfer_record(const struct transfer *t) {
        return t->sends ? rmx_send(t->comm->rmx, t->address, t->count, t->type, t->peer, NULL)
                        : rmx_recv(t->comm->rmx, t->address, t->count, t->type, t->peer, NULL);
}

int transfers_issue(const struct transfers *transfers, const struct calls *calls, bool open,
                    struct rmx_request *request) {
        int r = open ? RMX_OK : rmx_group_start(), ended;

        for (uint32_t i = 0; !open && i < calls->n && !r; i++)
                r = call_issue(&calls->list[i], NULL, NULL);
        for (uint32_t i = 0; i < transfers->n && !r; i++)
                r = transfer_record(&transfers->list[i]);
        ended = request ? rmx_group_end_start(request) : rmx_group_end();
        return r ? r : ended;
}

/* The same for room_call. */
struct attempt {
        const struct transfers *transfers;
        const struct calls *calls;
        struct rmx_request *request;
        bool open; /* the first time */
};

static int attempt(void *userdata) {
        struct attempt *a = userdata;
        bool open = a->open;

        a->open = false;
        return transfers_issue(a->transfers, a->calls, open, a->request);
}

uint32_t transfers_count(const struct transfers *transfers, const struct ncclComm *comm) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < transfers->n; i++)
                n += transfers->list[i].comm == comm;
        return n;
}

static bool share_ring(const struct ncclComm *a, const struct ncclComm *b) {
        return a->session == b->session && a->gpu == b->gpu;
}

/* Those of all that share its ring. */
static uint32_t transfers_count_ring(const struct transfers *transfers, const struct ncclComm *comm) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < transfers->n; i++)
                n += share_ring(transfers->list[i].comm, comm);
        return n;
}

/* What requests take of a ring. */
struct need {
        uint32_t places;
        size_t bytes;
};

static bool need_is_met(struct need need) {
        return need.places <= PLACES && need.bytes <= BYTES;
}

static size_t call_bytes(const struct call *call) {
        size_t bytes = 4 * sizeof(uint64_t) * (size_t)call->comm->n_ranks;

        if (call->kind == CALL_ALL_TO_ALL_V)
                return (bytes + UNIT - 1) / UNIT * UNIT;
        return call->redop_made ? UNIT : 0;
}

/* Of the collectives on the ring of this one. */
static struct need calls_need(const struct calls *calls, const struct ncclComm *comm) {
        struct need need = {0};

        for (uint32_t i = 0; i < calls->n; i++) {
                if (!share_ring(calls->list[i].comm, comm))
                        continue;
                need.places++;
                need.bytes += call_bytes(&calls->list[i]);
        }
        return need;
}

/* Can all collectives be under way at once? */
static bool calls_are_few(const struct calls *calls, struct ncclComm *const *comms, uint32_t n_comms) {
        for (uint32_t i = 0; calls->n > FITS && i < n_comms; i++)
                if (!need_is_met(calls_need(calls, comms[i])))
                        return false;
        return true;
}

/* ... and all sends and receives, too? */
static bool all_are_few(const struct transfers *transfers, const struct calls *calls, struct ncclComm *const *comms,
                        uint32_t n_comms) {
        const bool fits = calls->n + n_comms <= FITS && transfers->n <= FEW;

        for (uint32_t i = 0; !fits && i < n_comms; i++) {
                struct need need = calls_need(calls, comms[i]);

                for (uint32_t k = 0; k < n_comms; k++) {
                        uint32_t n = share_ring(comms[k], comms[i]) ? transfers_count(transfers, comms[k]) : 0;

                        need.places += n > 0;
                        need.bytes += n ? n * ENTRY + UNIT : 0;
                }
                if (!need_is_met(need))
                        return false;
        }
        return true;
}

bool transfers_are_few(const struct transfers *transfers, const struct calls *calls, struct ncclComm *const *comms,
                       uint32_t n_comms) {
        for (uint32_t i = 0; transfers->n > FEW && i < n_comms; i++)
                if (transfers_count(transfers, comms[i]) > FEW || transfers_count_ring(transfers, comms[i]) > FEW_ALL)
                        return false;
        return all_are_few(transfers, calls, comms, n_comms);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */
/* A run for each communicator, all of this thread. */
struct leg {
        struct ncclComm *comm;
        struct run *run; /* NULL: it has nothing to start */
        bool over;
        int code; /* RMX_*: how it ended */
};

struct course {
        struct leg *legs;
        uint32_t n;
        struct rmx_request collectives;
        bool grouped;      /* ... which are under way */
        bool begun;        /* something of the group has been started */
        bool stuck;        /* room did not come */
        uint64_t still_ms; /* since when it has been waiting for some; 0: it is not */
        int code;          /* RMX_*: the first failure */
        char text[ROOM_TEXT_BYTES];
};

static void course_note(struct course *course, int code, const char *text) {
        if (!code || course->code)
                return;
        course->code = code;
        snprintf(course->text, sizeof(course->text), "%s", text);
}

/* calls: those that are started one by one, which the runs take; NULL: none. */
static ncclResult_t course_new(struct course *course, const struct transfers *transfers, struct calls *calls,
                               struct ncclComm *const *comms, uint32_t n_comms, const char *what) {
        ncclResult_t result = ncclSuccess;

        course->legs = calloc(n_comms, sizeof(*course->legs));
        if (!course->legs)
                return error_raise(ncclSystemError, "%s: out of memory", what);
        course->n = n_comms;
        for (uint32_t i = 0; i < n_comms && !result; i++) {
                course->legs[i].comm = comms[i];
                if (calls || transfers_count(transfers, comms[i]))
                        result = run_new(comms[i], what, calls, transfers, &course->legs[i].run);
                course->legs[i].over = !course->legs[i].run;
        }
        return result;
}

static void course_free(struct course *course) {
        for (uint32_t i = 0; i < course->n; i++)
                run_free(course->legs[i].run);
        free(course->legs);
}

/* What a communicator is called next would meet, on other ranks, what was not started. That is no matter if nothing
 * was, so that the group may be tried again, nor if the communicator takes no calls any more. */
static void course_tear(const struct course *course) {
        for (uint32_t i = 0; i < course->n && course->begun; i++) {
                const struct leg *leg = &course->legs[i];

                if (leg->run && run_is_torn(leg->run) && !rmx_comm_error(leg->comm->rmx))
                        pending_tear(leg->comm, leg->code ? leg->code : course->code);
        }
}

/* One request of each that has room. True: some were started. */
static bool course_push(struct course *course) {
        bool started = false;

        for (uint32_t i = 0; i < course->n; i++)
                if (!course->legs[i].over)
                        started |= run_push(course->legs[i].run);
        course->begun |= started;
        return started;
}

/* True: one has something under way, for the first of which it waits so long. *ret_ended: for some that is over. */
static bool course_look(struct course *course, uint32_t wait_ms, bool *ret_ended) {
        bool any = false;

        *ret_ended = false;
        for (uint32_t i = 0; i < course->n; i++) {
                struct leg *leg = &course->legs[i];
                bool idle;
                int r;

                if (leg->over)
                        continue;
                idle = run_is_idle(leg->run);
                if (!run_look(leg->run, any ? 0 : wait_ms, &r)) {
                        any |= !run_is_idle(leg->run);
                        *ret_ended |= !idle && run_is_idle(leg->run);
                        continue;
                }
                course_note(course, r, run_text(leg->run));
                leg->code = r;
                leg->over = *ret_ended = true;
        }
        return any;
}

/* For the collectives. If they have failed, what comes behind them is not started. */
static void course_wait(struct course *course) {
        course_note(course, rmx_wait(&course->collectives, NULL), rmx_last_error());
        course->grouped = false;
        for (uint32_t i = 0; i < course->n && course->code; i++)
                if (!course->legs[i].over)
                        run_stop(course->legs[i].run, course->code, course->text);
}

/* Of what is its own, only the collectives of this group can make room. What others have under way can, so it waits
 * for that, longer when a part would be lost, but not for ever: others may move all the time, and never make room here.
 * Then the first is given up; the next may find room, but does not wait. */
static void course_stuck(struct course *course, uint64_t before) {
        if (course->grouped) {
                course_wait(course);
                return;
        }
        if (!course->still_ms)
                course->still_ms = clock_now_ms();
        if (!course->stuck && clock_now_ms() < course->still_ms + STILL_MS && pendings_make_room(before, course->begun))
                return;
        course->stuck = true;
        for (uint32_t i = 0; i < course->n; i++)
                if (!course->legs[i].over && run_give_up(course->legs[i].run))
                        return;
}

static bool course_is_over(const struct course *course) {
        for (uint32_t i = 0; i < course->n; i++)
                if (!course->legs[i].over)
                        return false;
        return true;
}

/* The collectives, which come first. */
static bool course_begin(struct course *course, const struct calls *calls) {
        const struct transfers none = {0};
        struct attempt collectives = {
                .transfers = &none, .calls = calls, .request = &course->collectives, .open = true};
        char text[ROOM_TEXT_BYTES];
        int r = room_call(attempt, &collectives, false, text);

        course_note(course, r, text);
        course->grouped = !r;
        course->begun = !r && calls->n;
        return !r;
}

static bool are_host(struct ncclComm *const *comms, uint32_t n_comms) {
        for (uint32_t i = 0; i < n_comms; i++)
                if (!comms[i]->host)
                        return false;
        return true;
}

static ncclResult_t run_many(const struct transfers *transfers, struct calls *calls, bool open,
                             struct ncclComm *const *comms, uint32_t n_comms, const char *what, int *ret_code) {
        const bool whole = calls_are_few(calls, comms, n_comms) || !are_host(comms, n_comms);
        struct course course = {0};
        ncclResult_t result = course_new(&course, transfers, whole ? NULL : calls, comms, n_comms, what);
        bool started, ended, begun = !result;
        uint64_t before;

        if (open && (result || !whole)) {
                (void)rmx_barrier(NULL, NULL); /* spoils what is recorded */
                (void)rmx_group_end();
        } else if (open) {
                begun = course_begin(&course, calls);
        }
        while (begun && !course_is_over(&course)) {
                before = pendings_moves();
                started = course_push(&course);
                if (!course_look(&course, started ? 0 : LOOK_MS, &ended) && !started && !ended)
                        course_stuck(&course, before);
                if (!started && !ended)
                        continue;
                course.still_ms = 0;
                waits_move();
        }
        if (course.grouped)
                course_wait(&course);
        course_tear(&course);
        course_free(&course);
        *ret_code = course.code;
        return result ? result : error_adopt_text(what, course.code, course.text);
}

ncclResult_t transfers_run(const struct transfers *transfers, struct calls *calls, bool open,
                           struct ncclComm *const *comms, uint32_t n_comms, const char *what, int *ret_code) {
        struct attempt few = {.transfers = transfers, .calls = calls, .open = open};
        char text[ROOM_TEXT_BYTES];

        *ret_code = RMX_OK;
        if (!transfers_are_few(transfers, calls, comms, n_comms))
                return run_many(transfers, calls, open, comms, n_comms, what, ret_code);
        if (!are_host(comms, n_comms)) { /* calls of others are not kept */
                *ret_code = attempt(&few);
                return error_adopt(what, *ret_code);
        }
        *ret_code = room_call(attempt, &few, true, text);
        return error_adopt_text(what, *ret_code, text);
}
