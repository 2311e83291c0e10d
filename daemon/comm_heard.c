/* SPDX-License-Identifier: MIT */
/*
 * What other nodes say of communicators over several nodes, and what follows from it here. See comm_remote.c for the
 * states of a part. Splits have a file of their own, comm_split_far.c.
 */
#include "daemon/comm_heard.h"

#include "daemon/cluster.h"
#include "daemon/cluster_rails.h"
#include "daemon/comm.h"
#include "daemon/comm_join.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_remote_id.h"
#include "daemon/executor_link.h"
#include "daemon/executor_op.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

static int32_t heard_first_rank(const struct comm *comm, uint32_t node) {
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                if (comm->remote->node[r] == node)
                        return (int32_t)r;
        return -1;
}

/* ---- made -------------------------------------------------------------------------------------------------------- */
void comm_heard_join_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__JoinFailed *body) {
        struct comm *comm =
                body->comm_id.len == COMM_ID_BYTES ? comm_find_id(cluster->manager, body->comm_id.data) : NULL;

        if (!comm || !comm->remote || !comm->remote->has_root || comm->remote->root != peer ||
            comm->number != body->attempt || comm->state == COMM_READY)
                return;
        comm->remote->over = comm->remote->heard = true; /* it tells all */
        comm_join_fail(comm, comm_remote_code(body->code), "%.150s", body->text);
}

/* What a root may say: everything is within bounds, its own ranks are those that have joined here. */
static const char *heard_assign_problem(const struct comm *comm, const Railmux__Peer__Assign *body) {
        const struct plan_geometry geometry = {.part_bytes = body->part_bytes, .slots = body->slots};
        const uint8_t *self = state_node(comm->manager->state);
        uint64_t seen = 0, used = 0;

        if (body->n_ranks != comm->n_ranks || body->n_members != comm->n_ranks || body->n_nodes < 1 ||
            body->n_nodes > COMM_NODES_MAX || body->n_choices < 1 || body->n_choices > PLAN_CHOICES_MAX || !body->key)
                return "its numbers do not fit";
        if (strcmp(body->tenant, comm->tenant->name) != 0)
                return "it is another tenant's";
        if (!comm_net_geometry_right(comm->manager, comm->n_ranks, (uint32_t)body->n_nodes, &geometry))
                return "its staging is more than its ranks are charged for";
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
static int heard_dial(struct comm *comm, const Railmux__Peer__Assign *body, char *text, size_t text_size) {
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
                        peer_moved(peer, body->nodes[i]->address);
                } else if (peers_dial(remote->cluster->peers, body->nodes[i]->address, &peer)) {
                        remote->n_nodes = (uint32_t)i;
                        snprintf(text, text_size, "node %.60s cannot be dialled", body->nodes[i]->address);
                        return -1;
                }
                remote->nodes[i].peer = peer;
        }
        return 0;
}

static bool heard_has_rail(const struct comm_remote *remote, uint32_t node, uint32_t only) {
        struct fabric_node id;

        memcpy(id.id, remote->nodes[node].id, sizeof(id.id));
        return fabric_peer_routes(remote->cluster->fabric, &id, only) > 0;
}

/* One that its tenant may take, and that cannot be opened so far. NULL: none. */
static const char *heard_waiting_rail(const struct comm *comm) {
        const char *names = comm->tenant->rails;
        const struct cluster_rail *rail;

        DL_FOREACH(comm->remote->cluster->waiting, rail) {
                if (!names[0] || rail_names_have(names, rail->spec.name))
                        return rail->spec.name;
        }
        return NULL;
}

/* Nothing could be carried between this node and that one: better now than at the first call. Of rails that wait there
 * this one does not know, so whoever reads it is to look at both. */
static void heard_no_rail(struct comm *comm, const struct peer *peer) {
        const char *self = peers_name(comm->remote->cluster->peers), *waiting = heard_waiting_rail(comm),
                   *name = peer_name(peer)[0] ? peer_name(peer) : peer_address(peer);

        if (waiting)
                comm_join_fail(
                        comm, RMX_E_UNSUPPORTED,
                        "no rail to node %.25s while %.25s of node %.25s waits; see peer.rails and railmuxctl rails",
                        name, waiting, self);
        else if (comm->tenant->rails[0])
                comm_join_fail(
                        comm, RMX_E_UNSUPPORTED,
                        "nodes %.25s and %.25s have no rail in common that tenant %.25s may take; see railmuxctl rails",
                        self, name, comm->tenant->name);
        else
                comm_join_fail(comm, RMX_E_UNSUPPORTED,
                               "nodes %.35s and %.35s have no rail in common; see peer.rails and railmuxctl rails",
                               self, name);
}

/* All nodes are reached: goes on. */
static void heard_check(struct comm *comm) {
        struct comm_remote *remote = comm->remote;
        const uint32_t only = cluster_rails_only(remote->cluster, comm->tenant->rails);
        char text[160];
        int r;

        /* A child of a split is attached by the split, once. */
        if (comm->state != COMM_JOINING || !remote->assigned || comm->split)
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
                if (peer && !heard_has_rail(remote, i, only)) {
                        heard_no_rail(comm, peer);
                        return;
                }
        }
        r = comm_attach(comm, text, sizeof(text));
        if (r)
                comm_join_fail(comm, r == COMM_E_LIMIT ? RMX_E_LIMIT : RMX_E_NO_MEMORY, "%s", text);
}

void comm_heard_assign(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Assign *body) {
        struct comm *comm =
                body->comm_id.len == COMM_ID_BYTES ? comm_find_id(cluster->manager, body->comm_id.data) : NULL;
        struct comm_remote *remote = comm ? comm->remote : NULL;
        const char *problem;
        char text[160];

        /* (A comm that has failed here meanwhile has told the root, which tells the others.) */
        if (!remote || !remote->has_root || remote->root != peer || remote->assigned || comm->state != COMM_JOINING ||
            comm->number != body->attempt)
                return;
        problem = heard_assign_problem(comm, body);
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
                comm->choices[i].widening = body->choices[i]->widening;
        }
        comm->n_choices = (uint32_t)body->n_choices;
        comm->geometry.part_bytes = body->part_bytes;
        comm->geometry.slots = body->slots;
        if (comm_remote_assign(comm, body->key) < 0) {
                comm_join_fail(comm, RMX_E_NO_MEMORY, "out of memory");
                return;
        }
        if (heard_dial(comm, body, text, sizeof(text))) {
                comm_join_fail(comm, RMX_E_NO_MEMORY, "%s", text);
                return;
        }
        heard_check(comm);
}

void comm_heard_reached(struct cluster *cluster, const struct peer *peer) {
        struct comm *comm, *next;

        for (comm = cluster->manager->comms; comm; comm = next) {
                next = comm->hh.next;
                if (comm->remote && comm_remote_index(comm->remote, peer) < comm->remote->n_nodes)
                        heard_check(comm);
        }
}

void comm_heard_area(struct cluster *cluster, uint64_t key, int condition, const char *text) {
        struct comm *comm = comm_remote_of_key(cluster, key);

        if (!comm || !comm->remote->net.in_fabric)
                return;
        if (comm->state != COMM_ATTACHING) {
                if (condition && comm->state == COMM_READY && !comm->code)
                        comm_abort(comm, RMX_E_INTERNAL, -1, text, 0);
                return;
        }
        if (condition) {
                comm_join_fail(comm, RMX_E_NO_MEMORY, "the fabric refuses the communicator: %s",
                               text[0] ? text : strerror(condition < 0 ? -condition : EIO));
                return;
        }
        comm->remote->net.ready = true;
        comm_attached(comm, 0, 0, "", comm->epoch, 0);
}

void comm_heard_go(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Go *body) {
        struct comm *comm = comm_remote_of_key(cluster, body->key);

        if (!comm || !comm->remote->has_root || comm->remote->root != peer || !comm->remote->attached ||
            comm->state != COMM_ATTACHING)
                return;
        comm_remote_release_root(comm->remote);
        if (record_comm(comm)) { /* others may have begun */
                comm_answer(comm);
                comm_abort(comm, RMX_E_NO_MEMORY, -1, "the daemon cannot record the communicator", 0);
                return;
        }
        record_barrier(comm->manager);
        comm_answer(comm);
        comm_remote_catch_up(comm);
}

/* ---- what happens to the ranks ----------------------------------------------------------------------------------- */
/* A node of it is gone, whatever else has happened. */
static void heard_note_lost(struct comm *comm, uint32_t node) {
        if (comm->remote->nodes[node].lost)
                return;
        comm->remote->nodes[node].lost = true;
        comm_remote_id_lost(comm, node);
}

/* What a node says of another one, as in Failed: does it count? After a cable's cut each side says that the other was
 * lost. Who is lost here sees the other side; and this node is not lost to itself, whatever others see of it. */
static bool heard_believes_lost(const struct comm_remote *remote, uint32_t from, uint32_t lost) {
        return lost >= 1 && lost <= remote->n_nodes && lost - 1 != remote->own && !remote->nodes[from].lost;
}

void comm_heard_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Failed *body) {
        struct comm *comm = comm_remote_of_key(cluster, body->key);
        int32_t rank = comm && body->rank >= 0 && (uint32_t)body->rank < comm->n_ranks ? body->rank : -1;
        uint32_t node = comm && peer ? comm_remote_index(comm->remote, peer) : COMM_NODES_MAX;

        if (!comm || !peer || node == comm->remote->n_nodes)
                return;
        if (heard_believes_lost(comm->remote, node, body->lost))
                heard_note_lost(comm, body->lost - 1);
        comm->remote->told |= UINT64_C(1) << node;
        if (comm->code)
                return;
        if (comm->state != COMM_READY && !comm->split)
                comm_join_fail(comm, comm_remote_code(body->code), "%.150s", body->text);
        else /* (of a split: if its ranks are to have it, they get it failed) */
                comm_abort(comm, comm_remote_code(body->code), rank, body->text, 0);
}

void comm_heard_left(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Left *body) {
        struct comm *comm = comm_remote_of_key(cluster, body->key);

        if (!comm || !peer || body->rank >= comm->n_ranks || !comm->members[body->rank].away ||
            comm->remote->node[body->rank] != comm_remote_index(comm->remote, peer) || comm->state == COMM_JOINING)
                return; /* (GO may come later, on another connection) */
        comm_member_leave(&comm->members[body->rank], body->last_sequence);
}

void comm_heard_ended(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Ended *body) {
        struct comm *comm = comm_remote_of_key(cluster, body->key);
        uint32_t node = comm && peer ? comm_remote_index(comm->remote, peer) : COMM_NODES_MAX;

        if (!comm || (peer && node == comm->remote->n_nodes))
                return;
        if (peer) /* else remote_settle_later */
                comm->remote->nodes[node].ended = true;
        comm_settle(comm);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */
/* This node has lost another one. If the others have been told that the communicator has failed, they need that still,
 * for ids; else they hear of it with the failure. */
static void heard_tell_lost(struct comm *comm, uint32_t node) {
        struct comm_remote *remote = comm->remote;
        bool failed = comm->code != 0; /* else it is about to */

        if (remote->over && !remote->nodes[node].gone)
                comm_remote_tell_failed(comm, failed ? comm->code : comm->abort_code,
                                        failed ? comm->failed_rank : comm->abort_rank,
                                        failed ? comm->reason : comm->abort_text, (int32_t)node);
        remote->nodes[node].gone = true;
}

/* joining: communicators that are only being made go as well. */
static void heard_lost(struct cluster *cluster, const struct peer *peer, const char *text, bool joining) {
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
                node = comm_remote_index(remote, peer);
                if (comm->split) /* it goes with the one that is split */
                        continue;
                if (comm->state == COMM_JOINING && !joining)
                        continue;
                if (comm->state != COMM_READY) {
                        if (node < remote->n_nodes || (remote->has_root && remote->root == peer)) {
                                comm_join_fail(comm, RMX_E_PEER_LOST, "%s", reason);
                                goto again; /* others may have gone with it */
                        }
                        continue;
                }
                if (node == remote->n_nodes)
                        continue;
                heard_tell_lost(comm, node);
                heard_note_lost(comm, node);
                /* What a node that has ended had sent may still have been on its way. */
                if (comm->code || (remote->ended && remote->nodes[node].ended))
                        continue;
                remote->nodes[node].ended = true;
                if (remote->ended) { /* nobody here is left to be told */
                        comm_remote_tell_failed(comm, RMX_E_PEER_LOST, heard_first_rank(comm, node), reason,
                                                (int32_t)node);
                        remote->over = true;
                        comm_settle(comm);
                        goto again;
                }
                if (!comm->aborting)
                        comm_abort(comm, RMX_E_PEER_LOST, heard_first_rank(comm, node), reason, 0);
        }
}

void comm_heard_lost(struct cluster *cluster, const struct peer *peer, const char *text) {
        heard_lost(cluster, peer, text, true);
}

void comm_heard_messages_lost(struct cluster *cluster, const struct peer *peer, const char *text) {
        heard_lost(cluster, peer, text, false);
}

bool comm_heard_cut_off(struct cluster *cluster, const struct peer *peer, uint64_t key) {
        struct comm *comm = comm_remote_of_key(cluster, key);
        const char *name = peer_name(peer);
        char reason[160];
        uint32_t node;

        node = comm ? comm_remote_index(comm->remote, peer) : 0;
        if (!comm || node == comm->remote->n_nodes || comm->code || comm->aborting ||
            (comm->remote->ended && comm->remote->over))
                return false;
        /* Nobody is left there who needs what is for that node; what it had sent it watches itself. */
        if (comm->remote->nodes[node].ended)
                return false;
        snprintf(reason, sizeof(reason), "no rail that tenant %.31s may take reaches node %.60s", comm->tenant->name,
                 name[0] ? name : peer_address(peer));
        if (comm->state != COMM_READY && !comm->split) {
                comm_join_fail(comm, RMX_E_PEER_LOST, "%s", reason);
        } else if (comm->remote->ended) { /* nobody here is left to be told; what they had sent does not arrive */
                comm_remote_tell_failed(comm, RMX_E_PEER_LOST, heard_first_rank(comm, node), reason, -1);
                comm->remote->over = true;
                comm_settle(comm);
        } else {
                comm_abort(comm, RMX_E_PEER_LOST, heard_first_rank(comm, node), reason, 0);
        }
        return true;
}

void comm_heard_merged(struct cluster *cluster, const struct peer *peer, struct peer *into) {
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
                comm_heard_reached(cluster, into);
}
