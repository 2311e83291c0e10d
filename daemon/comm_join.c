/* SPDX-License-Identifier: MIT */
/*
 * Gathering. The ranks of a comm come one by one with the same id; the comm stands in COMM_JOINING until the last one
 * is there. A rank that comes twice (its call was repeated after a restart of the daemon) just waits on, or gets the
 * same answer again.
 *
 * A rank may give up: its process has aborted the making, or has waited long enough. Then the gathering fails, as with
 * a rank that dies, for the others would wait for it in vain. Its call and the answer may have passed each other on the
 * way, and then it is a rank of a comm that nobody there knows of; so it is taken out of that here.
 *
 * When a gathering fails, ranks that have not come yet would wait for ever if the next one began anew. So a tombstone
 * under the id keeps the reason until every rank has been told, a rank tries again after it was told, or too many pile
 * up.
 */
#include "daemon/comm_join.h"

#include "daemon/call.h"
#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_split.h"
#include "daemon/manager.h"
#include "daemon/session_dispatch.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define TOMBSTONES_MAX 256u /* per tenant */

static void tombstone_drop(struct manager *manager, struct tombstone *tombstone) {
        DL_DELETE(manager->tombstones, tombstone);
        free(tombstone);
}

void tombstones_free(struct manager *manager) {
        while (manager->tombstones)
                tombstone_drop(manager, manager->tombstones);
}

static void tombstone_new(struct comm *comm, uint64_t told, uint32_t code, const char *text) {
        struct manager *manager = comm->manager;
        struct tombstone *tombstone, *other, *oldest = NULL;
        unsigned int n = 0;

        DL_FOREACH(manager->tombstones, other) {
                if (other->tenant != comm->tenant)
                        continue;
                if (!oldest)
                        oldest = other;
                n++;
        }
        if (n >= TOMBSTONES_MAX)
                tombstone_drop(manager, oldest);
        tombstone = calloc(1, sizeof(*tombstone));
        if (!tombstone)
                return; /* late ranks wait until their own time is up */
        tombstone->tenant = comm->tenant;
        memcpy(tombstone->id, comm->id, COMM_ID_BYTES);
        tombstone->n_ranks = comm->n_ranks;
        tombstone->told = told;
        tombstone->code = code;
        snprintf(tombstone->text, sizeof(tombstone->text), "%s", text);
        DL_APPEND(manager->tombstones, tombstone);
}

const struct tombstone *tombstone_find(const struct manager *manager, const uint8_t id[COMM_ID_BYTES]) {
        const struct tombstone *tombstone;

        DL_FOREACH(manager->tombstones, tombstone) {
                if (memcmp(tombstone->id, id, COMM_ID_BYTES) == 0)
                        break;
        }
        return tombstone;
}

/* true: the rank was told. */
static bool tombstone_answer(struct session *session, uint64_t call, const Railmux__Session__CommCreate *body) {
        struct manager *manager = session->manager;
        uint64_t bit = UINT64_C(1) << body->rank;
        struct tombstone *tombstone;
        uint64_t all;

        DL_FOREACH(manager->tombstones, tombstone) {
                if (memcmp(tombstone->id, body->comm_id.data, COMM_ID_BYTES) == 0)
                        break;
        }
        /* (With another n_ranks it was meant for that gathering, too; nobody else would come to another.) */
        if (!tombstone || tombstone->tenant != session->tenant)
                return false;
        if (tombstone->told & bit) { /* it knows, and tries again */
                tombstone_drop(manager, tombstone);
                return false;
        }
        tombstone->told |= bit;
        session_send_failure(session, call, tombstone->code, "%s", tombstone->text);
        all = tombstone->n_ranks == 64 ? UINT64_MAX : (UINT64_C(1) << tombstone->n_ranks) - 1;
        if ((tombstone->told & all) == all)
                tombstone_drop(manager, tombstone);
        return true;
}

void comm_join_fail(struct comm *comm, uint32_t code, const char *format, ...) {
        struct session *session;
        char text[160], number[24];
        uint64_t told = 0, id;
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        if (comm->split) {
                comm_split_fail(comm->split, code, text);
                return;
        }
        snprintf(number, sizeof(number), "%" PRIu64, comm->number);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"COMM", number, "TENANT", comm->tenant->name, NULL},
                   "comm %s (%s) not created, %u of %u ranks had joined: %s", number,
                   comm->name[0] ? comm->name : "unnamed", comm->n_joined, comm->n_ranks, text);
        for (uint32_t r = 0; r < comm->n_ranks; r++) {
                if (comm->members[r].joined)
                        told |= UINT64_C(1) << r;
                while (call_pop(&comm->members[r].calls, &session, &id))
                        session_send_failure(session, id, code, "%s", text);
        }
        if (comm->by_id)
                tombstone_new(comm, told, code, text);
        if (comm->remote)
                comm_remote_join_ended(comm, 0, code, text);
        comm_free(comm);
}

/* The id is known already: the same rank again, a rank that is missing (returns true: join), or a mistake. */
static bool comm_join_known(struct session *session, uint64_t call, struct comm *comm, uint32_t rank) {
        struct comm_member *member = &comm->members[rank];

        if (comm->state == COMM_JOINING && !member->joined)
                return true;
        if (member->session == session && !member->leaving) {
                if (comm->state == COMM_READY)
                        comm_reply(member, session, call);
                else
                        session_wait_for(session, call, &member->calls);
        } else if (member->session == session) {
                session_send_failure(session, call, RMX_E_INVALID, "rank %u has left the communicator", rank);
        } else {
                session_send_failure(session, call, RMX_E_INVALID, "rank %u is taken by pid %d", rank,
                                     (int)member->pid);
        }
        return false;
}

static uint32_t comm_join_gpu(const struct session *session, const Railmux__Session__CommCreate *body) {
        return body->gpu < 0 ? body->rank % session->manager->n_gpus : (uint32_t)body->gpu;
}

/* Of another start of this daemon, and not of a communicator that is here: its ranks may call again. */
static bool comm_join_stale(struct manager *manager, const uint8_t id[COMM_ID_BYTES]) {
        return comm_id_stale(id, manager->cluster ? peers_boot(manager->cluster->peers) : 0) &&
               !comm_find_id(manager, id);
}

static bool comm_join_valid(struct session *session, uint64_t call, const Railmux__Session__CommCreate *body) {
        struct manager *manager = session->manager;
        int r;

        if (body->comm_id.len != COMM_ID_BYTES)
                session_send_failure(session, call, RMX_E_INVALID, "a communicator id has %u bytes, not %zu",
                                     COMM_ID_BYTES, body->comm_id.len);
        else if (body->n_ranks < 1 || body->n_ranks > COMM_RANKS_MAX)
                session_send_failure(session, call, RMX_E_INVALID, "n_ranks is %u; allowed: 1 .. %u", body->n_ranks,
                                     COMM_RANKS_MAX);
        else if (body->rank >= body->n_ranks)
                session_send_failure(session, call, RMX_E_INVALID, "rank is %u; allowed: 0 .. %u", body->rank,
                                     body->n_ranks - 1);
        else if (body->gpu < -1 || body->gpu >= (int32_t)manager->n_gpus)
                session_send_failure(session, call, RMX_E_INVALID, "gpu is %d; allowed: -1 .. %u", body->gpu,
                                     manager->n_gpus - 1);
        else if (session->lost_gpus >> comm_join_gpu(session, body) & 1)
                session_send_failure(session, call, RMX_E_DEVICE_LOST,
                                     "what this process had on GPU %u was lost with its executor",
                                     comm_join_gpu(session, body));
        else if (comm_remote_is(manager, body->comm_id.data))
                return true; /* the node that made it checks it */
        else {
                r = comm_id_check(state_key(manager->state), session->tenant->name, body->comm_id.data);
                if (!r && !comm_join_stale(manager, body->comm_id.data))
                        return true;
                if (!r)
                        session_send_failure(session, call, RMX_E_PEER_LOST, "%s", COMM_ID_STALE_TEXT);
                else if (r > 0 && !manager->cluster && !comm_id_of(body->comm_id.data, state_node(manager->state)))
                        session_send_failure(session, call, RMX_E_DENIED,
                                             "the communicator id was made by another node, and this one does not "
                                             "listen for others (railmuxd --listen)");
                else if (r > 0)
                        session_send_failure(session, call, RMX_E_DENIED,
                                             "the communicator id was not made by this node for tenant %s",
                                             session->tenant->name);
                else
                        session_send_failure(session, call, RMX_E_INTERNAL, "the daemon cannot check the id");
        }
        return false;
}

static uint32_t comm_join_code(int condition) {
        return condition == COMM_E_LIMIT ? RMX_E_LIMIT : condition == COMM_E_INVALID ? RMX_E_INVALID : RMX_E_NO_MEMORY;
}

/* It is told, and so are the others. On other nodes they hear of it from the root, which listens to those only that
 * have brought a rank. */
static void comm_join_refuse(struct session *session, uint64_t call, struct comm *comm, uint32_t rank, uint32_t gpu,
                             uint32_t code, const char *text) {
        char ignored[160];

        session_send_failure(session, call, code, "%s", text);
        if (comm->remote && comm->n_joined == 0) {
                comm->members[rank].gpu = gpu;
                (void)comm_remote_join(&comm->members[rank], ignored, sizeof(ignored));
        }
        comm->members[rank].joined = true; /* it is told here */
        comm_join_fail(comm, code, "rank %u: %s", rank, text);
}

void comm_join(struct session *session, uint64_t call, const Railmux__Session__CommCreate *body) {
        struct manager *manager = session->manager;
        char name[SESSION_NAME_MAX], text[160];
        uint32_t gpu;
        struct comm *comm;
        int r;

        if (!comm_join_valid(session, call, body))
                return;
        comm = comm_find_id(manager, body->comm_id.data);
        if (comm &&
            comm->tenant != session->tenant) { /* an id of another node is checked there, for the first tenant */
                session_send_failure(session, call, RMX_E_DENIED, "the communicator is not tenant %s's",
                                     session->tenant->name);
                return;
        }
        if (comm && comm->n_ranks != body->n_ranks) {
                session_send_failure(session, call, RMX_E_INVALID, "n_ranks is %u, but other ranks said %u",
                                     body->n_ranks, comm->n_ranks);
                return;
        }
        if (comm && !comm_join_known(session, call, comm, body->rank))
                return;
        if (!comm && tombstone_answer(session, call, body))
                return;
        if (!comm) {
                session_clean_name(name, body->name);
                if (comm_new(manager, session->tenant, body->n_ranks, name, text, sizeof(text), &comm)) {
                        session_send_failure(session, call, RMX_E_NO_MEMORY, "%s", text);
                        return;
                }
                if (comm_index(comm, body->comm_id.data) < 0) {
                        session_send_failure(session, call, RMX_E_NO_MEMORY, "out of memory");
                        comm_free(comm);
                        return;
                }
                r = comm_remote_is(manager, body->comm_id.data) ? comm_remote_begin(comm, text, sizeof(text)) : 0;
                if (r) {
                        session_send_failure(session, call, comm_join_code(r), "%s", text);
                        comm_free(comm);
                        return;
                }
        }
        gpu = comm_join_gpu(session, body);
        r = comm_member_join(comm, body->rank, session, gpu, text, sizeof(text));
        if (r) {
                comm_join_refuse(session, call, comm, body->rank, gpu, comm_join_code(r), text);
                return;
        }
        comm->members[body->rank].exchange = body->exchange;
        session_wait_for(session, call, &comm->members[body->rank].calls);
        if (comm->remote) {
                if (comm_remote_join(&comm->members[body->rank], text, sizeof(text)))
                        comm_join_fail(comm, RMX_E_NO_MEMORY, "%s", text);
                return;
        }
        if (comm->n_joined < comm->n_ranks)
                return;
        r = comm_attach(comm, text, sizeof(text));
        if (r)
                comm_join_fail(comm, comm_join_code(r), "%s", text);
}

void comm_member_give_up(struct comm_member *member) {
        if (member->leaving)
                return;
        comm_abort(member->comm, RMX_E_ABORTED, (int32_t)member->rank, "it gave up joining", 0);
        comm_member_leave(member, 0);
}

void comm_join_cancel(struct session *session, uint64_t call, const Railmux__Session__CommAbort *body) {
        struct comm *comm = NULL;

        if (body->comm_id.len == COMM_ID_BYTES)
                comm = comm_find_id(session->manager, body->comm_id.data);
        if (!comm || body->rank >= comm->n_ranks || comm->members[body->rank].session != session)
                ; /* it never came here, or has been told already */
        else if (comm->state == COMM_READY)
                comm_member_give_up(&comm->members[body->rank]);
        else
                comm_join_fail(comm, RMX_E_ABORTED, "rank %u (pid %d) gave up before all ranks had joined", body->rank,
                               (int)session->pid);
        session_send_ack(session, call);
}
