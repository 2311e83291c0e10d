/* SPDX-License-Identifier: MIT */
/*
 * One node's part of a communicator over several nodes
 *
 *   JOINING    ranks of this node come; the root, the daemon that made the id, hears of each (JOIN) and counts. Its own
 *              part is one like the others. A communicator of which all ranks come at the root is none of this.
 *   assigned   the root has told where all ranks are. Other nodes are connected to, and when the fabric reaches all:
 *   ATTACHING  the net area is made and executors have the comm; then the root hears READY
 *   READY      the root has heard that of all, and says GO: the ranks are answered
 *
 * From then on the nodes tell each other what happens to the ranks: FAILED when the comm has failed on one, whatever
 * the reason; LEFT when a rank makes no more requests; ENDED when no rank of a node is left. What such a node has sent
 * may still be on its way, so its area stays until all others have ended, or the comm has failed, or they are lost.
 *
 * A node that is lost takes the comm with it, for what was under way can never be completed; and so does a restart of
 * railmuxd, since nobody can tell what the fabric had carried. The state says from the beginning that a successor finds
 * it lost (record_comm_status).
 */
#include "daemon/comm_remote.h"

#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_join.h"
#include "daemon/comm_root.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- finding ----------------------------------------------------------------------------------------------------- */
static struct comm *remote_of_key(const struct cluster *cluster, uint64_t key) {
        for (struct comm *comm = cluster->manager->comms; comm; comm = comm->hh.next)
                if (comm->remote && comm->remote->assigned && comm->remote->key == key)
                        return comm;
        return NULL;
}

/* n_nodes if it is none of them. */
static uint32_t remote_node(const struct comm_remote *remote, const struct peer *peer) {
        uint32_t i = 0;

        while (i < remote->n_nodes && (remote->nodes[i].peer != peer || (i == remote->own) != !peer))
                i++;
        return i;
}

static int32_t remote_first_rank(const struct comm *comm, uint32_t node) {
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                if (comm->remote->node[r] == node)
                        return (int32_t)r;
        return -1;
}

static void remote_tell(struct comm_remote *remote, const Railmux__Peer__Message *message) {
        for (uint32_t i = 0; i < remote->n_nodes; i++)
                if (i != remote->own && cluster_send(remote->cluster, remote->nodes[i].peer, message))
                        peer_drop(remote->nodes[i].peer, "out of memory"); /* who cannot be told must not go on */
}

static void remote_tell_failed(struct comm *comm, uint32_t code, int32_t rank, const char *text) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Failed body = RAILMUX__PEER__FAILED__INIT;

        body.key = comm->remote->key;
        body.code = code;
        body.rank = rank;
        body.text = (char *)text;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_FAILED;
        message.failed = &body;
        remote_tell(comm->remote, &message);
}

/* What another daemon says goes to executors and into the state, where only what is known has a place. */
static uint32_t remote_code(uint32_t code) {
        return code == 0 || code >= RMX_E_COUNT ? (uint32_t)RMX_E_LOST : code;
}

/* comm_settle, but from the loop. */
static void remote_settle_later(const struct comm_remote *remote) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Ended body = RAILMUX__PEER__ENDED__INIT;

        body.key = remote->key;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_ENDED;
        message.ended = &body;
        if (cluster_send(remote->cluster, NULL, &message))
                log_error("no memory for a message to itself: a communicator that has ended stays");
}

static void remote_release_root(struct comm_remote *remote) {
        if (remote->root)
                peer_release(remote->root);
        remote->root = NULL;
        remote->has_root = false;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */
bool comm_remote_is(const struct manager *manager, const uint8_t id[COMM_ID_BYTES]) {
        if (!manager->cluster)
                return false;
        return !comm_id_of(id, state_node(manager->state)) || comm_root_gathers(manager->cluster, id);
}

/* An id says whom to dial, and before that has answered nobody knows whether it is one. So a tenant has only so many of
 * them at a time. */
#define REMOTE_UNREACHED_MAX 16u
static unsigned int remote_unreached(const struct comm *comm) {
        unsigned int n = 0;

        for (const struct comm *c = comm->manager->comms; c; c = c->hh.next)
                n += c->tenant == comm->tenant && c->state == COMM_JOINING && c->remote && c->remote->root &&
                     !peer_is_up(c->remote->root);
        return n;
}

int comm_remote_begin(struct comm *comm, char *text, size_t text_size) {
        struct cluster *cluster = comm->manager->cluster;
        char address[PEER_ADDRESS_MAX];
        struct comm_remote *remote;
        int r = 0;

        remote = calloc(1, sizeof(*remote));
        if (!remote) {
                snprintf(text, text_size, "out of memory");
                return COMM_E_RESOURCE;
        }
        remote->cluster = cluster;
        remote->net = (struct comm_net)COMM_NET_NULL;
        if (remote_unreached(comm) >= REMOTE_UNREACHED_MAX) {
                snprintf(text, text_size, "%u communicators of tenant %s wait for nodes that cannot be reached",
                         REMOTE_UNREACHED_MAX, comm->tenant->name);
                free(remote);
                return COMM_E_RESOURCE;
        }
        if (!comm_id_of(comm->id, state_node(comm->manager->state))) {
                r = comm_id_address(comm->id, address) ? PEER_E_ADDRESS
                                                       : peers_dial(cluster->peers, address, &remote->root);
                if (r)
                        snprintf(text, text_size, "the node that made the communicator id cannot be dialled: %s",
                                 r == PEER_E_ADDRESS ? "the id has no address; does that node listen for others?"
                                 : r == PEER_E_SELF  ? "its address is this node's"
                                                     : "too many nodes are known");
        }
        remote->has_root = !r;
        if (r) {
                free(remote);
                return COMM_E_RESOURCE;
        }
        comm->remote = remote;
        return 0;
}

int comm_remote_join(struct comm_member *member, char *text, size_t text_size) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Join body = RAILMUX__PEER__JOIN__INIT;
        struct comm *comm = member->comm;

        body.comm_id.data = comm->id;
        body.comm_id.len = COMM_ID_BYTES;
        body.tenant = comm->tenant->name;
        body.rank = member->rank;
        body.n_ranks = comm->n_ranks;
        body.gpu = member->gpu;
        body.name = comm->name;
        body.attempt = comm->number;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_JOIN;
        message.join = &body;
        if (!cluster_send(comm->remote->cluster, comm->remote->root, &message))
                return 0;
        snprintf(text, text_size, "the node that made the communicator id cannot be told of rank %u", member->rank);
        return COMM_E_RESOURCE;
}

void comm_remote_here(struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]) {
        struct comm *comm = comm_find_id(cluster->manager, id);
        char text[160];

        if (!comm || comm->remote || comm->state != COMM_JOINING)
                return;
        if (comm_remote_begin(comm, text, sizeof(text))) {
                comm_join_fail(comm, RMX_E_NO_MEMORY, "%s", text);
                return;
        }
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                if (comm->members[r].session && comm_remote_join(&comm->members[r], text, sizeof(text))) {
                        comm_join_fail(comm, RMX_E_NO_MEMORY, "%s", text);
                        return;
                }
}

/* From here, to the root: this part has failed. */
static void remote_tell_root(struct comm *comm, uint32_t rank, uint32_t code, const char *text) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__JoinFailed body = RAILMUX__PEER__JOIN_FAILED__INIT;

        body.comm_id.data = comm->id;
        body.comm_id.len = COMM_ID_BYTES;
        body.rank = rank;
        body.code = code;
        body.text = (char *)text;
        body.attempt = comm->number;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_JOIN_FAILED;
        message.join_failed = &body;
        if (cluster_send(comm->remote->cluster, comm->remote->root, &message) && comm->remote->root)
                peer_drop(comm->remote->root, "out of memory"); /* then it hears that this node is lost */
}

void comm_remote_join_ended(struct comm *comm, uint32_t rank, uint32_t code, const char *text) {
        if (comm->remote->has_root && !comm->remote->over)
                remote_tell_root(comm, rank, code, text);
        /* The root counts on this part since READY, and GO may be out: the others hear it from here. */
        if (comm->remote->attached && !comm->remote->heard)
                remote_tell_failed(comm, code, -1, text);
        comm->remote->over = true;
}

void comm_remote_join_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__JoinFailed *body) {
        struct comm *comm =
                body->comm_id.len == COMM_ID_BYTES ? comm_find_id(cluster->manager, body->comm_id.data) : NULL;

        if (!comm || !comm->remote || !comm->remote->has_root || comm->remote->root != peer ||
            comm->number != body->attempt || comm->state == COMM_READY)
                return;
        comm->remote->over = comm->remote->heard = true; /* it tells all */
        comm_join_fail(comm, remote_code(body->code), "%.150s", body->text);
}

/* ---- assigned ---------------------------------------------------------------------------------------------------- */
/* What a root may say: everything is within bounds, its own ranks are those that have joined here. */
static const char *remote_assign_problem(const struct comm *comm, const Railmux__Peer__Assign *body) {
        const struct plan_geometry geometry = {.part_bytes = body->part_bytes, .slots = body->slots};
        const uint8_t *self = state_node(comm->manager->state);
        uint64_t seen = 0, used = 0;

        if (body->n_ranks != comm->n_ranks || body->n_members != comm->n_ranks || body->n_nodes < 1 ||
            body->n_nodes > COMM_NODES_MAX || body->n_choices < 1 || body->n_choices > PLAN_CHOICES_MAX || !body->key)
                return "its numbers do not fit";
        if (strcmp(body->tenant, comm->tenant->name) != 0)
                return "it is another tenant's";
        if (geometry.part_bytes == 0 || geometry.part_bytes % 64 != 0 || geometry.slots == 0 ||
            plan_staging_bytes(&geometry, comm->n_ranks) >
                    comm->n_ranks * comm_staging_share(comm->manager, comm->n_ranks))
                return "its staging is not what its ranks were charged for";
        for (size_t i = 0; i < body->n_nodes; i++) {
                if (body->nodes[i]->node.len != PEER_NODE_BYTES)
                        return "a node's id is wrong";
                for (size_t k = 0; k < i; k++)
                        if (memcmp(body->nodes[i]->node.data, body->nodes[k]->node.data, PEER_NODE_BYTES) == 0)
                                return "a node is there twice";
        }
        for (size_t i = 0; i < body->n_members; i++) {
                const Railmux__Peer__Member *m = body->members[i];
                bool here;

                if (m->rank >= comm->n_ranks || m->node >= body->n_nodes || seen >> m->rank & 1)
                        return "its ranks are wrong";
                seen |= UINT64_C(1) << m->rank;
                used |= UINT64_C(1) << m->node;
                here = memcmp(body->nodes[m->node]->node.data, self, PEER_NODE_BYTES) == 0;
                if (here != (comm->members[m->rank].session != NULL))
                        return "its ranks are not those that have joined here";
        }
        if (used != UINT64_MAX >> (64 - body->n_nodes))
                return "a node has no rank";
        return NULL;
}

/* Connects to the nodes. 0, or a text. */
static int remote_dial(struct comm *comm, const Railmux__Peer__Assign *body, char *text, size_t text_size) {
        struct comm_remote *remote = comm->remote;
        const uint8_t *self = state_node(comm->manager->state);

        for (size_t i = 0; i < body->n_nodes; i++) {
                struct peer *peer;

                memcpy(remote->nodes[i].id, body->nodes[i]->node.data, PEER_NODE_BYTES);
                remote->n_nodes = (uint32_t)i + 1;
                if (memcmp(remote->nodes[i].id, self, PEER_NODE_BYTES) == 0) {
                        remote->own = (uint32_t)i;
                        continue;
                }
                peer = peer_find(remote->cluster->peers, remote->nodes[i].id);
                if (peer) {
                        peer_hold(peer);
                } else if (peers_dial(remote->cluster->peers, body->nodes[i]->address, &peer)) {
                        remote->n_nodes = (uint32_t)i;
                        snprintf(text, text_size, "node %.60s cannot be dialled", body->nodes[i]->address);
                        return -1;
                }
                remote->nodes[i].peer = peer;
        }
        return 0;
}

/* All nodes are reached: goes on. */
static void remote_check(struct comm *comm) {
        struct comm_remote *remote = comm->remote;
        char text[160];
        int r;

        if (comm->state != COMM_JOINING || !remote->assigned)
                return;
        for (uint32_t i = 0; i < remote->n_nodes; i++) {
                const struct peer *peer = remote->nodes[i].peer;

                if (!cluster_reaches(remote->cluster, peer))
                        return;
                if (peer && memcmp(peer_node_id(peer), remote->nodes[i].id, PEER_NODE_BYTES) != 0) {
                        comm_join_fail(comm, RMX_E_INVALID, "another node than the one meant answers at %.80s",
                                       peer_address(peer));
                        return;
                }
        }
        r = comm_attach(comm, text, sizeof(text));
        if (r)
                comm_join_fail(comm, r == COMM_E_LIMIT ? RMX_E_LIMIT : RMX_E_NO_MEMORY, "%s", text);
}

void comm_remote_assign(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Assign *body) {
        struct comm *comm =
                body->comm_id.len == COMM_ID_BYTES ? comm_find_id(cluster->manager, body->comm_id.data) : NULL;
        struct comm_remote *remote = comm ? comm->remote : NULL;
        const char *problem;
        char text[160];

        /* (A comm that has failed here meanwhile has told the root, which tells the others.) */
        if (!remote || !remote->has_root || remote->root != peer || remote->assigned || comm->state != COMM_JOINING ||
            comm->number != body->attempt)
                return;
        problem = remote_assign_problem(comm, body);
        if (problem) {
                comm_join_fail(comm, RMX_E_INTERNAL, "the root's word on the communicator is not understood: %s",
                               problem);
                return;
        }
        for (size_t i = 0; i < body->n_members; i++) {
                const Railmux__Peer__Member *m = body->members[i];
                struct comm_member *member = &comm->members[m->rank];

                remote->node[m->rank] = (uint8_t)m->node;
                if (member->session)
                        continue;
                member->away = true;
                member->joined = true;
                member->gpu = m->gpu;
        }
        for (size_t i = 0; i < body->n_choices; i++) {
                comm->choices[i].operation = body->choices[i]->operation;
                comm->choices[i].algorithm = body->choices[i]->algorithm;
                comm->choices[i].max_bytes = body->choices[i]->max_bytes;
        }
        comm->n_choices = (uint32_t)body->n_choices;
        comm->geometry.part_bytes = body->part_bytes;
        comm->geometry.slots = body->slots;
        remote->key = body->key;
        remote->assigned = true;
        if (remote_dial(comm, body, text, sizeof(text))) {
                comm_join_fail(comm, RMX_E_NO_MEMORY, "%s", text);
                return;
        }
        remote_check(comm);
}

void comm_remote_reached(struct cluster *cluster, const struct peer *peer) {
        struct comm *comm, *next;

        for (comm = cluster->manager->comms; comm; comm = next) {
                next = comm->hh.next;
                if (comm->remote && remote_node(comm->remote, peer) < comm->remote->n_nodes)
                        remote_check(comm);
        }
}

int comm_remote_attach(struct comm *comm, char *text, size_t text_size) {
        struct comm_remote *remote = comm->remote;
        struct fabric_node nodes[COMM_RANKS_MAX];

        if (remote->n_nodes < 2) /* all ranks are here, with the id of another node */
                return 0;
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                memcpy(nodes[r].id, remote->nodes[remote->node[r]].id, sizeof(nodes[r].id));
        return comm_net_new(&remote->net, comm, remote->cluster->fabric, remote->key, nodes, text, text_size);
}

void comm_remote_attached(struct comm *comm) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Ready body = RAILMUX__PEER__READY__INIT;
        struct comm_remote *remote = comm->remote;

        if (remote->attached)
                return;
        remote->attached = true;
        body.key = remote->key;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_READY;
        message.ready = &body;
        if (cluster_send(remote->cluster, remote->root, &message))
                comm_join_fail(comm, RMX_E_NO_MEMORY, "the root cannot be told that the communicator is ready");
}

void comm_remote_go(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Go *body) {
        struct comm *comm = remote_of_key(cluster, body->key);

        if (!comm || !comm->remote->has_root || comm->remote->root != peer || !comm->remote->attached ||
            comm->state != COMM_ATTACHING)
                return;
        remote_release_root(comm->remote);
        if (record_comm(comm)) { /* others may have begun */
                comm_answer(comm);
                comm_abort(comm, RMX_E_NO_MEMORY, -1, "the daemon cannot record the communicator", 0);
                return;
        }
        record_barrier(comm->manager);
        comm_answer(comm);
        if (comm->code) /* failed while it was attached */
                comm_remote_failed(comm);
}

/* ---- what happens to the ranks ----------------------------------------------------------------------------------- */
void comm_remote_failed(struct comm *comm) {
        struct comm_remote *remote = comm->remote;
        bool here = false;

        if (!remote->assigned || comm->state != COMM_READY)
                return;
        if (!remote->over && !remote->heard)
                remote_tell_failed(comm, comm->code, comm->failed_rank, comm->reason);
        remote->over = true;
        comm_net_stop(&remote->net, remote->cluster->fabric, remote->key);
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                here = here || comm->members[r].session;
        if (!here) /* it was kept for the others */
                remote_settle_later(remote);
}

void comm_remote_hear_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Failed *body) {
        struct comm *comm = remote_of_key(cluster, body->key);

        if (!comm || !peer || remote_node(comm->remote, peer) == comm->remote->n_nodes || comm->code)
                return;
        comm->remote->heard = true;
        if (comm->state != COMM_READY) {
                comm_join_fail(comm, remote_code(body->code), "%.150s", body->text);
                return;
        }
        comm_abort(comm, remote_code(body->code),
                   body->rank >= 0 && (uint32_t)body->rank < comm->n_ranks ? body->rank : -1, body->text, 0);
}

void comm_remote_left(const struct comm_member *member) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Left body = RAILMUX__PEER__LEFT__INIT;
        struct comm_remote *remote = member->comm->remote;

        if (member->away || remote->over || !remote->assigned)
                return;
        body.key = remote->key;
        body.rank = member->rank;
        body.last_sequence = member->last_sequence;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_LEFT;
        message.left = &body;
        remote_tell(remote, &message);
}

void comm_remote_hear_left(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Left *body) {
        struct comm *comm = remote_of_key(cluster, body->key);

        if (!comm || !peer || body->rank >= comm->n_ranks || !comm->members[body->rank].away ||
            comm->remote->node[body->rank] != remote_node(comm->remote, peer) || comm->state == COMM_JOINING)
                return; /* (GO may come later, on another connection) */
        comm_member_leave(&comm->members[body->rank], body->last_sequence);
}

const char *comm_remote_node(const struct comm *comm, uint32_t rank) {
        const struct comm_remote *remote = comm->remote;
        const struct peer *peer = remote->nodes[remote->node[rank]].peer;

        return !peer ? peers_name(remote->cluster->peers) : peer_name(peer)[0] ? peer_name(peer) : peer_address(peer);
}

bool comm_remote_keeps(struct comm *comm) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Ended body = RAILMUX__PEER__ENDED__INIT;
        struct comm_remote *remote = comm->remote;

        if (remote->over || comm->code || comm->state != COMM_READY || comm->manager->stopping)
                return false;
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                if (comm->members[r].lost && !comm->members[r].away)
                        return true; /* its executor is about to fail it, and then the others hear of that */
        if (!remote->ended) {
                remote->ended = true;
                remote->nodes[remote->own].ended = true;
                body.key = remote->key;
                message.body_case = RAILMUX__PEER__MESSAGE__BODY_ENDED;
                message.ended = &body;
                remote_tell(remote, &message);
        }
        for (uint32_t i = 0; i < remote->n_nodes; i++)
                if (!remote->nodes[i].ended)
                        return true;
        return false;
}

void comm_remote_hear_ended(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Ended *body) {
        struct comm *comm = remote_of_key(cluster, body->key);
        uint32_t node = comm && peer ? remote_node(comm->remote, peer) : COMM_NODES_MAX;

        if (!comm || (peer && node == comm->remote->n_nodes))
                return;
        if (peer) /* else remote_settle_later */
                comm->remote->nodes[node].ended = true;
        comm_settle(comm);
}

void comm_remote_lost(struct cluster *cluster, const struct peer *peer, const char *text, bool gone) {
        struct comm *comm, *next;
        char reason[160];

        if (peer_name(peer)[0])
                snprintf(reason, sizeof(reason), "node %s (%.40s) was lost: %.60s", peer_name(peer), peer_address(peer),
                         text);
        else
                /* Clients name addresses by ids, and need not learn what is there. */
                snprintf(reason, sizeof(reason), "the node at %.40s cannot be reached", peer_address(peer));
again:
        for (comm = cluster->manager->comms; comm; comm = next) {
                struct comm_remote *remote = comm->remote;
                uint32_t node;

                next = comm->hh.next;
                if (!remote)
                        continue;
                node = remote_node(remote, peer);
                if (comm->state != COMM_READY) {
                        if (node < remote->n_nodes || (remote->has_root && remote->root == peer)) {
                                /* (What is told a root that is not connected waits behind what it was told before.) */
                                remote->over = gone && remote->has_root && remote->root == peer;
                                comm_join_fail(comm, RMX_E_PEER_LOST, "%s", reason);
                                goto again; /* others may have gone with it */
                        }
                        continue;
                }
                /* What a node that has ended had sent may still have been on its way. */
                if (node == remote->n_nodes || comm->code || (remote->ended && remote->nodes[node].ended))
                        continue;
                remote->nodes[node].ended = true;
                if (remote->ended) { /* nobody here is left to be told */
                        remote_tell_failed(comm, RMX_E_PEER_LOST, remote_first_rank(comm, node), reason);
                        remote->over = true;
                        comm_settle(comm);
                        goto again;
                }
                if (!comm->aborting)
                        comm_abort(comm, RMX_E_PEER_LOST, remote_first_rank(comm, node), reason, 0);
        }
}

void comm_remote_merged(struct cluster *cluster, const struct peer *peer, struct peer *into) {
        for (struct comm *comm = cluster->manager->comms; comm; comm = comm->hh.next) {
                struct comm_remote *remote = comm->remote;

                if (!remote)
                        continue;
                if (remote->root == peer)
                        remote->root = into;
                for (uint32_t i = 0; i < remote->n_nodes; i++)
                        if (remote->nodes[i].peer == peer)
                                remote->nodes[i].peer = into;
        }
        if (cluster_reaches(cluster, into))
                comm_remote_reached(cluster, into);
}

void comm_remote_free(struct comm *comm) {
        struct comm_remote *remote = comm->remote;

        if (!remote)
                return;
        comm_net_deinit(&remote->net, remote->cluster->fabric, remote->key);
        remote_release_root(remote);
        for (uint32_t i = 0; i < remote->n_nodes; i++)
                if (remote->nodes[i].peer)
                        peer_release(remote->nodes[i].peer);
        free(remote);
        comm->remote = NULL;
}
