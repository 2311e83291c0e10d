/* SPDX-License-Identifier: MIT */
/*
 * Reaching
 *
 * Large requests go from GPU to GPU in one step if the executor of each has the others' buffers mapped; otherwise they
 * take the way through staging. So this is for speed alone. It follows whatever else happens at its own pace: no client
 * waits for it, nothing fails because of it, and each buffer may be reached by some, by all or by nobody at any time.
 *
 * Who should have a buffer: the executors of the other GPUs of the communicators in which its session has a rank on its
 * GPU. They are asked (REACH_IMPORT) when the buffer's own executor has it; those that have taken it are told to that
 * one (BUFFER_REACH), whose kernels offer it to requests that begin then. A buffer that is needed no more goes the
 * other way round. What holds at any time:
 *
 *   Nobody is told to let go (REACH_RETIRE) while the buffer's own executor may count on him (`believed`).
 *
 * It counts on nobody when it has answered so, when it has let go of the buffer itself (BUFFER_RETIRE), or when it has
 * ended. The client's BufferDestroy is answered when all have let go. That is bounded by what bounds it for the own
 * executor: one that is away answers when it is back, and one that has ended has let go. When a session ends, each
 * executor hears so by itself and ends the session's communicators before it forgets the memory.
 *
 * A request that has begun with somebody else's memory fails if that is taken away. So it is taken away only when the
 * client does so itself, or when none of the communicators is left that requests could come from.
 *
 * A communicator that fails while its ranks reach each other: each executor ends what it does for it, and freezes the
 * requests here that have let others in. When all have done so, nobody touches that memory, and they are answered.
 *
 * Executors that come back. A broken connection, or a restart of this daemon, changes nothing of what they have: the
 * inventory lists it, with the identity of the memory. Other memory under that number has to go before it is asked for
 * anew. An executor that has ended has nothing; the others are told in the same turn, and so before they hear of any
 * communicator that its successor is in.
 *
 * What one session may cause. Each executor has few imports in hand (REACH_WINDOW), and sessions take turns; so
 * whatever else it is told waits for a handful of mappings at most. A session has REACH_BUFFERS at a time, of the
 * places in the tables of all (TABLE_REACH), and begins with REACH_BURST and REACH_RATE a second: buffers that come and
 * go faster are not worth it. What is needed no more stays until the next tick, which spares those who make
 * communicators in a row the way back and forth.
 */
#include "daemon/reach.h"

#include "daemon/buffer.h"
#include "daemon/comm.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"
#include "daemon/session.h"
#include "railmux/railmux.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <utlist.h>

#define REACH_WINDOW  8u    /* imports of one executor that are not answered */
#define REACH_BUFFERS 1024u /* of a session: a sixteenth of TABLE_REACH, as eight ranks and as many strangers need */
#define REACH_BURST   1024u
#define REACH_RATE    64u /* buffers a second */
#define REACH_TRIES   8u  /* at a place that is still taken: for as many ticks, which is longer than windows take */

static const struct timeval reach_wait_time = {.tv_usec = 100000};

static uint64_t reach_gpu(uint32_t gpu) {
        return gpu < MANAGER_LINKS_MAX ? UINT64_C(1) << gpu : 0;
}

static struct executor_link *reach_owner(const struct buffer *buffer) {
        return manager_link_of_gpu(buffer->session->manager, buffer->gpu);
}

/* Does it know what this is about, and will it be there for a while? */
static bool reach_able(const struct executor_link *link) {
        return link && executor_link_connected(link) && link->n_gpu_infos == 1 && link->gpus[0].reaches &&
               !link->draining;
}

static void reach_later(struct manager *manager) {
        if (manager->on_device && manager->reach_event && !manager->stopping)
                event_active(manager->reach_event, EV_TIMEOUT, 0);
}

void reach_adopt(struct buffer *buffer) {
        const struct executor_link *link;
        uint64_t there = 0;

        DL_FOREACH(buffer->session->manager->links, link)
                there |= link->adopted && link != reach_owner(buffer) ? executor_link_mask(link) : 0;
        buffer->reach = (struct reach){.present = there, .unsure = there, .believed = UINT64_MAX};
}

/* ---- who should have what ---------------------------------------------------------------------------------------- */

/* From how many bytes on its requests could reach; 0: not at all. *ret_bursts: .. and be bursts. */
static uint64_t reach_bytes(const struct comm *comm, uint64_t *ret_bursts) {
        uint64_t gpus = 0;
        bool bursts = false;

        *ret_bursts = 0;
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                const struct comm_member *member = &comm->members[r];
                const struct executor_link *link = manager_link_of_gpu(comm->manager, member->gpu);

                if (!link || link->n_gpu_infos != 1 || !link->gpus[0].reaches || gpus & reach_gpu(member->gpu) ||
                    !member->session || member->leaving)
                        return 0;
                if (r && link->gpus[0].bursts != bursts) /* versions that do not share the work out alike */
                        return 0;
                gpus |= reach_gpu(member->gpu);
                bursts = link->gpus[0].bursts;
        }
        if (comm->n_ranks < 2 || comm->code || comm->aborting || !config_reach_bytes(comm->manager->config))
                return 0;
        *ret_bursts = bursts ? config_burst_bytes(comm->manager->config) : 0;
        return config_reach_bytes(comm->manager->config);
}

/* All have to be told the same. So it is decided before the first is; and once more where all begin anew after one was
 * replaced, perhaps by one that does not know of this. */
void reach_settle(struct comm *comm) {
        const struct handover *handover = &comm->handover;
        uint64_t bursts, bytes = reach_bytes(comm, &bursts);

        if (!comm->attachment.known) {
                comm->reach_bytes = bytes;
                comm->burst_bytes = bursts;
        } else if (handover->state == HANDOVER_HANDED && !handover->asked && !handover->moved &&
                   !(comm->attachment.sent & handover->away)) {
                comm->reach_bytes = bytes ? comm->reach_bytes : 0;
                comm->burst_bytes = bursts ? comm->burst_bytes : 0;
        }
}

/* The other GPUs of the comms that the session is in with a rank on this one, and in which so many bytes are enough for
 * a request that reaches; those of ranks that have left, too, since what they rang before may be under way. */
static uint64_t reach_peers(const struct session *session, uint32_t gpu, uint64_t bytes) {
        const struct comm_member *member;
        uint64_t mask = 0;

        DL_FOREACH(session->members, member) {
                const struct comm *comm = member->comm;

                if (member->gpu != gpu || !comm->reach_bytes || bytes < comm->reach_bytes ||
                    comm->state == COMM_JOINING || comm->code || comm->aborting)
                        continue;
                for (uint32_t r = 0; r < comm->n_ranks; r++)
                        mask |= reach_gpu(comm->members[r].gpu);
        }
        return mask & ~reach_gpu(gpu);
}

static uint64_t reach_wanted(const struct buffer *buffer) {
        return buffer->retiring ? 0 : reach_peers(buffer->session, buffer->gpu, buffer->bytes);
}

/* ---- telling and taking back ------------------------------------------------------------------------------------- */

/* Withdrawn is at once; what is new may wait until it is complete, since requests want all of it. */
static void reach_tell(struct buffer *buffer, uint64_t wanted) {
        struct reach *reach = &buffer->reach;
        struct executor_link *owner = reach_owner(buffer);
        const uint64_t say = reach->mapped & wanted & ~reach->leaving & ~reach->stale;
        const uint64_t said = reach->n_telling ? reach->told : reach->believed;

        if (!owner || !executor_link_connected(owner) || !owner->gpus[0].reaches || reach->mute || buffer->retiring ||
            !(buffer->attachment.acked & executor_link_mask(owner)))
                return;
        if (!(said & ~say) && (reach->n_telling || (reach->sure && (said == say || reach->asked))))
                return;
        reach->told = say;
        reach->believed |= say;
        reach->sure = false;
        reach->n_telling++;
        executor_op_push(owner, EXECUTOR_OP_BUFFER_REACH, buffer->session->id, buffer->id);
}

static void reach_take_back(struct buffer *buffer, uint64_t wanted) {
        struct manager *manager = buffer->session->manager;
        struct reach *reach = &buffer->reach;
        struct executor_link *link;

        DL_FOREACH(manager->links, link) {
                const uint64_t mask = executor_link_mask(link);

                if (!(reach->present & mask) || (wanted & ~reach->stale & mask) || !executor_link_connected(link) ||
                    (reach->believed | reach->leaving | reach->unsure) & mask)
                        continue;
                reach->leaving |= mask;
                executor_op_push(link, EXECUTOR_OP_REACH_RETIRE, buffer->session->id, buffer->id);
        }
}

/* What follows from what is known now, but for imports. */
static void reach_step(struct buffer *buffer) {
        const uint64_t wanted = reach_wanted(buffer);

        reach_tell(buffer, wanted);
        if (buffer->reach.present)
                reach_take_back(buffer, wanted);
}

bool reach_end(struct buffer *buffer) {
        buffer->reach.believed = buffer->reach.told = 0;
        buffer->reach.n_telling = 0;
        buffer->reach.sure = true;
        reach_step(buffer);
        return buffer->reach.present == 0;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static bool reach_afford(struct session *session) {
        struct reach_budget *budget = &session->reach_budget;
        uint64_t now_ns = clock_now_ns(), earned;

        if (!budget->since_ns)
                *budget = (struct reach_budget){now_ns, REACH_BURST};
        earned = (now_ns - budget->since_ns) * REACH_RATE / 1000000000u;
        if (earned) {
                budget->left = budget->left + earned < REACH_BURST ? budget->left + (uint32_t)earned : REACH_BURST;
                budget->since_ns = now_ns;
        }
        return budget->left > 0;
}

/* Executors that this buffer should go to next. */
static uint64_t reach_missing(const struct buffer *buffer) {
        const struct executor_link *owner = reach_owner(buffer);

        if (!buffer_on_device(buffer) || buffer->retiring || buffer->reach.mute || !reach_able(owner) ||
            !(buffer->attachment.acked & executor_link_mask(owner)))
                return 0;
        return reach_wanted(buffer) & ~buffer->reach.present & ~buffer->reach.refused;
}

/* One import. false: none can be made now; *ret_wait: for want of time alone. */
static bool reach_serve(struct session *session, bool *ret_wait) {
        struct manager *manager = session->manager;
        struct buffer *buffer;
        uint32_t n = 0;
        bool more = false;

        for (buffer = session->buffers; buffer; buffer = buffer->hh.next)
                n += buffer->reach.present != 0;
        for (buffer = session->buffers; buffer; buffer = buffer->hh.next) {
                const uint64_t missing = reach_missing(buffer);
                const bool begins = !buffer->reach.present;
                struct executor_link *link;

                if (!missing || (begins && n >= REACH_BUFFERS))
                        continue;
                if (begins && !reach_afford(session)) {
                        *ret_wait = more = true;
                        continue;
                }
                DL_FOREACH(manager->links, link) {
                        const uint64_t mask = executor_link_mask(link);

                        if (!(missing & mask) || !reach_able(link))
                                continue; /* a new executor finds all of them (reach_sync) */
                        more = true;
                        if (link->n_reaching >= REACH_WINDOW)
                                continue;
                        session->reach_budget.left -= begins;
                        link->n_reaching++;
                        buffer->reach.present |= mask;
                        buffer->reach.asked |= mask;
                        executor_op_push(link, EXECUTOR_OP_REACH_IMPORT, session->id, buffer->id);
                        return true;
                }
        }
        session->reach_work = more;
        return false;
}

/* Sessions take turns, beginning after the one that had the last. */
static void reach_turn(evutil_socket_t fd, short what, void *data) {
        struct manager *manager = data;
        bool progress, wait = false;
        LOOP_HOLD(&manager->watch, "memory that GPUs are to reach");

        (void)fd;
        (void)what;
        do {
                const uint64_t last = manager->reach_last;
                struct session *session;

                progress = false;
                for (unsigned int round = 0; round < 2; round++)
                        for (session = manager->sessions; session; session = session->hh.next) {
                                if (!session->reach_work || session->ending || (session->id > last) == (round > 0) ||
                                    !reach_serve(session, &wait))
                                        continue;
                                manager->reach_last = session->id;
                                progress = true;
                        }
        } while (progress);
        if (wait && !evtimer_pending(manager->reach_event, NULL))
                evtimer_add(manager->reach_event, &reach_wait_time); /* if that fails, reach_tick does it */
}

int reach_new(struct manager *manager) {
        manager->reach_event = evtimer_new(manager->base, reach_turn, manager);
        return manager->reach_event ? 0 : -ENOMEM;
}

static void reach_work(struct session *session) {
        session->reach_work = session->buffers && session->members;
        if (session->reach_work)
                reach_later(session->manager);
}

void reach_comm(struct comm *comm) {
        for (uint32_t r = 0; comm->reach_bytes && r < comm->n_ranks; r++)
                if (comm->members[r].session)
                        reach_work(comm->members[r].session);
}

void reach_attached(struct buffer *buffer) {
        if (buffer_on_device(buffer))
                reach_work(buffer->session);
}

void reach_thaw(const struct comm *comm, uint64_t mask) {
        struct executor_link *link;

        DL_FOREACH(comm->manager->links, link) {
                if (comm->reach_bytes && comm->code && !comm->aborting &&
                    comm_needed(comm) & mask & executor_link_mask(link))
                        executor_op_push(link, EXECUTOR_OP_COMM_RELEASE, comm->number, 0);
        }
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void reach_failed(struct executor_link *link, uint64_t session, const char *message) {
        link->manager->counters.reaches_refused++;
        if (link->reach_told)
                return;
        link->reach_told = true;
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"EXECUTOR", link->name, NULL},
                   "executor %s does not reach a buffer of session %" PRIu64
                   ", and perhaps others; their requests go through staging: %s",
                   link->name, session, message);
}

static void reach_imported(struct executor_link *link, struct buffer *buffer, const Railmux__Executor__Done *done) {
        const uint64_t mask = executor_link_mask(link);
        struct reach *reach = &buffer->reach;

        if (!(reach->asked & mask))
                return;
        reach->asked &= ~mask;
        if (!done->code) {
                reach->mapped |= mask;
        } else {
                if (!(reach->leaving & mask))
                        reach->present &= ~mask;
                reach->refused |= mask;
                if (done->code == RMX_E_BUSY)
                        reach->later |= mask;
                else
                        reach_failed(link, buffer->session->id, done->message);
        }
        reach_step(buffer);
}

static void reach_retired(struct executor_link *link, struct buffer *buffer) {
        const uint64_t mask = executor_link_mask(link);
        struct reach *reach = &buffer->reach;

        if (!(reach->leaving & mask))
                return;
        reach->leaving &= ~mask;
        reach->present &= ~mask;
        reach->mapped &= ~mask;
        reach->stale &= ~mask;
        reach->asked &= ~mask;
        reach_work(buffer->session); /* it may be wanted again, or there is room for another one */
        if (buffer->retiring && !reach->present)
                buffer_retired(buffer, 0);
}

static void reach_heard(struct executor_link *link, struct buffer *buffer, const Railmux__Executor__Done *done) {
        struct reach *reach = &buffer->reach;

        if (link != reach_owner(buffer) || !reach->n_telling)
                return;
        reach->n_telling--;
        if (done->code) {
                reach->mute = true;
                reach_failed(link, buffer->session->id, done->message);
        } else if (!reach->n_telling) {
                reach->believed = reach->told;
                reach->sure = true;
        }
        reach_step(buffer);
}

void reach_done(struct executor_link *link, const struct executor_op *op, const Railmux__Executor__Done *done) {
        struct session *session = manager_session(link->manager, op->object);
        struct buffer *buffer = session ? buffer_find(session, op->sub) : NULL;

        if (op->kind == EXECUTOR_OP_REACH_IMPORT)
                reach_dropped(link, op);
        if (!buffer)
                return;
        if (op->kind == EXECUTOR_OP_REACH_IMPORT)
                reach_imported(link, buffer, done);
        else if (op->kind == EXECUTOR_OP_REACH_RETIRE)
                reach_retired(link, buffer);
        else if (op->kind == EXECUTOR_OP_BUFFER_REACH)
                reach_heard(link, buffer, done);
}

void reach_dropped(struct executor_link *link, const struct executor_op *op) {
        if (op->kind != EXECUTOR_OP_REACH_IMPORT)
                return;
        link->n_reaching--;
        reach_later(link->manager);
}

/* ---- executors come and go --------------------------------------------------------------------------------------- */

void reach_inventory(struct executor_link *link, const Railmux__Executor__Inventory *inventory) {
        const uint64_t mask = executor_link_mask(link);

        for (size_t i = 0; i < inventory->n_reached; i++) {
                const Railmux__Executor__ReachKey *key = inventory->reached[i];
                struct session *session = manager_session(link->manager, key->session);
                struct buffer *buffer = session ? buffer_find(session, key->buffer) : NULL;

                if (!session)
                        continue; /* it is detached as a whole */
                if (!buffer) {
                        executor_op_push(link, EXECUTOR_OP_REACH_FORGET, key->session, key->buffer);
                } else {
                        const bool same = key->identity == device_memory_identity(&buffer->memory);

                        buffer->reach.present |= mask;
                        buffer->reach.unsure &= ~mask;
                        *(same ? &buffer->reach.mapped : &buffer->reach.stale) |= mask;
                }
        }
}

/* This executor does not have it. */
static void reach_absent(struct reach *reach, uint64_t mask) {
        uint64_t *const masks[] = {&reach->present, &reach->asked,  &reach->mapped,  &reach->leaving,
                                   &reach->stale,   &reach->unsure, &reach->refused, &reach->later};

        for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
                *masks[i] &= ~mask;
}

void reach_sync(struct executor_link *link) {
        const uint64_t mask = executor_link_mask(link);
        struct session *session, *next;

        for (session = link->manager->sessions; session; session = next) {
                struct buffer *buffer, *next_buffer;

                next = session->hh.next;
                for (buffer = session->buffers; buffer; buffer = next_buffer) {
                        next_buffer = buffer->hh.next;
                        if (buffer->reach.unsure & mask)
                                reach_absent(&buffer->reach, mask);
                        reach_step(buffer);
                        if (buffer->retiring && !buffer->reach.present)
                                buffer_retired(buffer, 0);
                }
                reach_work(session);
        }
}

void reach_forget(struct executor_link *link) {
        const uint64_t mask = executor_link_mask(link);
        struct session *session;
        struct buffer *buffer;

        link->n_reaching = 0;
        for (session = link->manager->sessions; session; session = session->hh.next)
                for (buffer = session->buffers; buffer; buffer = buffer->hh.next) {
                        struct reach *reach = &buffer->reach;

                        reach->asked &= ~mask;
                        reach->leaving &= ~mask;
                        reach->unsure |= reach->present & mask;
                        if (link != reach_owner(buffer))
                                continue;
                        reach->n_telling = 0;
                        reach->sure = reach->mute = false;
                }
}

void reach_lost(struct executor_link *link) {
        const uint64_t mask = executor_link_mask(link);
        struct session *session, *next;

        link->reach_told = false;
        for (session = link->manager->sessions; session; session = next) {
                struct buffer *buffer, *next_buffer;

                next = session->hh.next;
                for (buffer = session->buffers; buffer; buffer = next_buffer) {
                        next_buffer = buffer->hh.next;
                        reach_absent(&buffer->reach, mask);
                        buffer->reach.tries = 0;
                        if (link == reach_owner(buffer)) {
                                buffer->reach.believed = buffer->reach.told = 0;
                                buffer->reach.n_telling = 0;
                                buffer->reach.sure = true;
                                buffer->reach.mute = false;
                        }
                        reach_step(buffer);
                        if (buffer->retiring && !buffer->reach.present)
                                buffer_retired(buffer, 0);
                }
        }
}

void reach_tick(struct manager *manager) {
        struct session *session;
        struct buffer *buffer;

        for (session = manager->sessions; session; session = session->hh.next) {
                for (buffer = session->buffers; buffer; buffer = buffer->hh.next) {
                        struct reach *reach = &buffer->reach;

                        if (reach->later && reach->tries < REACH_TRIES) {
                                reach->tries++;
                                reach->refused &= ~reach->later;
                                reach->later = 0;
                        }
                        if (reach->present)
                                reach_step(buffer);
                }
                reach_work(session);
        }
}

void reach_count(const struct executor_link *link, uint32_t *ret_mapped, uint32_t *ret_reached) {
        const uint64_t mask = executor_link_mask(link);
        const struct session *session;
        const struct buffer *buffer;

        *ret_mapped = *ret_reached = 0;
        for (session = link->manager->sessions; session; session = session->hh.next)
                for (buffer = session->buffers; buffer; buffer = buffer->hh.next) {
                        const struct reach *reach = &buffer->reach;

                        *ret_mapped += (reach->mapped & mask) != 0;
                        *ret_reached += buffer->gpu - link->first_gpu < link->n_gpus && reach->sure && reach->believed;
                }
}
