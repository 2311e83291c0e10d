/* SPDX-License-Identifier: MIT */
/*
 * Ids in common
 *
 * Ranks that cannot speak to each other any more want to meet anew. Each of them asks for the id of the same number and
 * has to get the same 128 bytes, on whatever node it is. An id is made, and later checked, with the key of one node. So
 * that one has to be the same for all: the first node of the communicator that has not been lost, in the order in which
 * all nodes know them (Assign). That a node was lost the others hear with the failure (Failed), lest one that has not
 * noticed yet asks the dead. If it does in spite of that, it asks the next one as soon as it knows.
 *
 * Who gets an id from a node that is lost right after that tries to meet there. The id is good for that start of its
 * daemon alone (comm_id.c), so when the daemon is back it says so, and does not wait for the others.
 *
 * The node that is asked remembers nothing but how many ids each other one has asked for lately. The id follows from
 * its key, the tenant, the communicator's key, which only its nodes know, and the number; so it need not have the
 * communicator any more, whose ranks there may be dead. Which tenant it is that asks for too many is known to the node
 * that asks, and it lets none ask for so many that others would be refused.
 */
#include "daemon/comm_remote_id.h"

#include "daemon/call.h"
#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_remote.h"
#include "daemon/manager.h"
#include "daemon/session.h"
#include "daemon/session_dispatch.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define ID_WAITS_MAX 64u /* of a communicator; a rank needs one at a time */

struct id_wait {
        struct id_wait *next, *prev; /* remote->id_waits */
        const struct comm_member *member;
        uint64_t number;
        uint32_t node; /* that was asked */
        struct call *calls;
};

/* The first that is there. n_nodes: none is. */
static uint32_t id_node(const struct comm_remote *remote) {
        uint32_t i = 0;

        while (i < remote->n_nodes && remote->nodes[i].lost)
                i++;
        return i;
}

static int id_make(const struct cluster *cluster, const char *tenant, uint64_t key, uint64_t number,
                   uint8_t ret_id[COMM_ID_BYTES]) {
        const struct comm_id_maker maker = {.key = state_key(cluster->manager->state),
                                            .node = state_node(cluster->manager->state),
                                            .address = peers_address(cluster->peers),
                                            .boot = peers_boot(cluster->peers)};

        return comm_id_derive_shared(&maker, tenant, key, number, ret_id);
}

static void id_wait_free(struct comm_remote *remote, struct id_wait *wait) {
        DL_DELETE(remote->id_waits, wait);
        call_drop(&wait->calls, NULL);
        free(wait);
}

static void id_wait_fail(struct comm_remote *remote, struct id_wait *wait, uint32_t code, const char *text) {
        struct session *session;
        uint64_t id;

        while (call_pop(&wait->calls, &session, &id))
                session_send_failure(session, id, code, "%s", text);
        id_wait_free(remote, wait);
}

static void id_wait_answer(struct comm_remote *remote, struct id_wait *wait, const uint8_t bytes[COMM_ID_BYTES]) {
        struct session *session;
        uint64_t id;

        while (call_pop(&wait->calls, &session, &id))
                session_send_comm_id(session, id, bytes);
        id_wait_free(remote, wait);
}

/* Asks the node whose turn it is, or answers. Frees the wait unless it goes on. */
static void id_wait_ask(struct comm *comm, struct id_wait *wait) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__IdAsk body = RAILMUX__PEER__ID_ASK__INIT;
        struct comm_remote *remote = comm->remote;
        uint8_t bytes[COMM_ID_BYTES];

        wait->node = id_node(remote);
        if (wait->node == remote->n_nodes) {
                id_wait_fail(remote, wait, RMX_E_PEER_LOST, "all nodes of the communicator were lost");
                return;
        }
        if (wait->node == remote->own) {
                if (id_make(remote->cluster, comm->tenant->name, remote->key, wait->number, bytes) < 0)
                        id_wait_fail(remote, wait, RMX_E_INTERNAL, "the daemon cannot make an id");
                else
                        id_wait_answer(remote, wait, bytes);
                return;
        }
        body.key = remote->key;
        body.number = wait->number;
        body.tenant = comm->tenant->name;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_ID_ASK;
        message.id_ask = &body;
        if (cluster_send(remote->cluster, remote->nodes[wait->node].peer, &message))
                id_wait_fail(remote, wait, RMX_E_NO_MEMORY, "the node that makes the id cannot be asked");
}

/* Is another node to be asked? */
static bool id_is_far(const struct comm_remote *remote) {
        uint32_t node = id_node(remote);

        return node < remote->n_nodes && node != remote->own;
}

void comm_remote_id_call(struct comm_member *member, struct session *session, uint64_t call, uint64_t number) {
        struct comm_remote *remote = member->comm->remote;
        struct id_wait *wait;
        unsigned int n = 0;

        DL_FOREACH(remote->id_waits, wait) {
                if (wait->member == member && wait->number == number)
                        break;
                n++;
        }
        if (wait) { /* repeated, or by another thread */
                session_wait_for(session, call, &wait->calls);
                return;
        }
        if (id_is_far(remote) && !tenant_takes_id(member->comm->tenant)) {
                session_send_failure(session, call, RMX_E_LIMIT,
                                     "tenant %s has asked for too many ids in a short time; try again",
                                     member->comm->tenant->name);
                return;
        }
        wait = n < ID_WAITS_MAX ? calloc(1, sizeof(*wait)) : NULL;
        if (!wait) {
                session_send_failure(session, call, RMX_E_NO_MEMORY, "too many ids of the communicator are awaited");
                return;
        }
        wait->member = member;
        wait->number = number;
        DL_APPEND(remote->id_waits, wait);
        session_wait_for(session, call, &wait->calls);
        id_wait_ask(member->comm, wait);
}

void comm_remote_id_drop(struct comm_member *member) {
        struct comm_remote *remote = member->comm->remote;
        struct id_wait *wait, *next;

        DL_FOREACH_SAFE(remote->id_waits, wait, next) {
                if (wait->member == member)
                        id_wait_free(remote, wait);
        }
}

void comm_remote_id_lost(struct comm *comm, uint32_t node) {
        struct id_wait *wait, *next;

        DL_FOREACH_SAFE(comm->remote->id_waits, wait, next) {
                if (wait->node == node)
                        id_wait_ask(comm, wait);
        }
}

void comm_remote_id_free(struct comm *comm) {
        while (comm->remote->id_waits)
                id_wait_free(comm->remote, comm->remote->id_waits);
}

/* ---- what peers say ---------------------------------------------------------------------------------------------- */
void comm_remote_id_asked(struct cluster *cluster, struct peer *peer, const Railmux__Peer__IdAsk *body) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__IdTold told = RAILMUX__PEER__ID_TOLD__INIT;
        uint8_t bytes[COMM_ID_BYTES];

        told.code = RMX_E_INTERNAL;
        if (!peer || strlen(body->tenant) >= TENANT_NAME_MAX || !body->key)
                return;
        told.key = body->key;
        told.number = body->number;
        if (!cluster_takes_ask(cluster, peer)) {
                told.code = RMX_E_LIMIT;
        } else if (id_make(cluster, body->tenant, body->key, body->number, bytes) == 0) {
                told.code = RMX_OK;
                told.comm_id.data = bytes;
                told.comm_id.len = sizeof(bytes);
        }
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_ID_TOLD;
        message.id_told = &told;
        if (cluster_send(cluster, peer, &message))
                peer_drop(peer, "out of memory"); /* it would wait for ever */
}

void comm_remote_id_told(struct cluster *cluster, struct peer *peer, const Railmux__Peer__IdTold *body) {
        struct comm *comm = comm_remote_of_key(cluster, body->key);
        struct id_wait *wait, *next;
        uint32_t node;

        if (!comm || !peer)
                return;
        node = comm_remote_index(comm->remote, peer);
        DL_FOREACH_SAFE(comm->remote->id_waits, wait, next) {
                if (wait->node != node || wait->number != body->number)
                        continue;
                if (body->comm_id.len == COMM_ID_BYTES)
                        id_wait_answer(comm->remote, wait, body->comm_id.data);
                else if (body->code == RMX_E_LIMIT)
                        id_wait_fail(comm->remote, wait, RMX_E_LIMIT,
                                     "too many ids were asked for on this node in a short time; try again");
                else
                        id_wait_fail(comm->remote, wait, RMX_E_INTERNAL, "the node that makes the id cannot make it");
        }
}
