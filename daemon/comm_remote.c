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
 * the reason, and from there on to those that have not said it, as the first one may be cut off from some of them;
 * LEFT when a rank makes no more requests; ENDED when no rank of a node is left. What such a node has sent may still be
 * on its way, so its area stays until all others have ended, or the comm has failed, or they are lost.
 *
 * A node that is lost takes the comm with it, for what was under way can never be completed; and so does a restart of
 * railmuxd, since nobody can tell what the fabric had carried. The state says from the beginning that a successor finds
 * it lost (record_comm_status).
 */
#include "daemon/comm_remote.h"

#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_join.h"
#include "daemon/comm_remote_id.h"
#include "daemon/comm_root.h"
#include "daemon/comm_split_root.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
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
int comm_remote_assign(struct comm *comm, uint64_t key) {
        struct comm_remote *remote = comm->remote;

        remote->key = key;
        HASH_ADD_KEYPTR(hh_key, remote->cluster->comms_by_key, &remote->key, sizeof(remote->key), comm);
        remote->assigned = comm->hh_key.tbl != NULL;
        return remote->assigned ? 0 : -ENOMEM;
}

/* The loss of a node brings messages for each communicator that it was part of, so there is no time to look at all of
 * them for each. Two may have one key, as nobody asks other roots before he gives one; then it is the older one's. They
 * are in the same bucket, in no order. */
struct comm *comm_remote_of_key(const struct cluster *cluster, uint64_t key) {
        const struct UT_hash_handle *handle;
        struct comm *found;

        HASH_FIND(hh_key, cluster->comms_by_key, &key, sizeof(key), found);
        for (handle = found ? found->hh_key.hh_next : NULL; handle; handle = handle->hh_next) {
                struct comm *other = ELMT_FROM_HH(cluster->comms_by_key->hh_key.tbl, handle);

                if (other->remote->key == key && other->number < found->number)
                        found = other;
        }
        return found;
}

uint32_t comm_remote_index(const struct comm_remote *remote, const struct peer *peer) {
        uint32_t i = 0;

        while (i < remote->n_nodes && (remote->nodes[i].peer != peer || (i == remote->own) != !peer))
                i++;
        return i;
}

/* but: a bit for each node that is passed over. One that is not connected was lost, or is about to be, and what waited
 * for the next connection would be about a communicator that is over there. */
static void remote_tell_but(struct comm_remote *remote, const Railmux__Peer__Message *message, uint64_t but) {
        for (uint32_t i = 0; i < remote->n_nodes; i++) {
                struct peer *peer = remote->nodes[i].peer;

                if (i != remote->own && !(but >> i & 1) && peer_is_up(peer) &&
                    cluster_send(remote->cluster, peer, message))
                        peer_drop(peer, "out of memory"); /* who cannot be told must not go on */
        }
}

void comm_remote_tell(struct comm_remote *remote, const Railmux__Peer__Message *message) {
        remote_tell_but(remote, message, 0);
}

void comm_remote_tell_failed(struct comm *comm, uint32_t code, int32_t rank, const char *text, int32_t lost) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Failed body = RAILMUX__PEER__FAILED__INIT;

        body.key = comm->remote->key;
        body.code = code;
        body.rank = rank;
        body.text = (char *)text;
        body.lost = (uint32_t)(lost + 1);
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_FAILED;
        message.failed = &body;
        remote_tell_but(comm->remote, &message, lost < 0 ? comm->remote->told : 0);
}

uint32_t comm_remote_code(uint32_t code) {
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

void comm_remote_release_root(struct comm_remote *remote) {
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

/* An id says whom to dial, and before that has answered nobody knows whether it is one. So a tenant waits for only so
 * many of them at a time, each with any number of communicators. */
#define REMOTE_UNREACHED_MAX 16u
struct unreached {
        const struct peer *peers[REMOTE_UNREACHED_MAX];
        unsigned int n;
};

/* false: there is no place for one more. */
static bool unreached_add(struct unreached *unreached, const struct peer *peer) {
        if (peer_node_id(peer))
                return true; /* it was */
        for (unsigned int i = 0; i < unreached->n; i++)
                if (unreached->peers[i] == peer)
                        return true;
        if (unreached->n == REMOTE_UNREACHED_MAX)
                return false;
        unreached->peers[unreached->n++] = peer;
        return true;
}

static bool remote_reaches_out(const struct comm *comm) {
        struct unreached unreached = {.n = 0};
        const struct last_word *word;

        for (const struct comm *c = comm->manager->comms; c; c = c->hh.next)
                if (c->tenant == comm->tenant && c->state == COMM_JOINING && c->remote && c->remote->root &&
                    !unreached_add(&unreached, c->remote->root))
                        return false;
        DL_FOREACH(comm->remote->cluster->words.first, word) {
                if (strcmp(word->tenant, comm->tenant->name) == 0 && !unreached_add(&unreached, word->peer))
                        return false;
        }
        return true;
}

static int remote_dial(struct comm *comm, struct peer **ret_root, char *text, size_t text_size) {
        char address[PEER_ADDRESS_MAX];
        const char *why = NULL;
        int r;

        r = comm_id_address(comm->id, address) ? PEER_E_ADDRESS
                                               : peers_dial(comm->manager->cluster->peers, address, ret_root);
        if (!r && remote_reaches_out(comm))
                return 0;
        if (!r) {
                peer_release(*ret_root);
                *ret_root = NULL;
                snprintf(text, text_size, "tenant %s waits for %u nodes that nobody has reached yet",
                         comm->tenant->name, REMOTE_UNREACHED_MAX);
                return COMM_E_LIMIT;
        }
        why = r == PEER_E_ADDRESS ? "the id has no address; does that node listen for others?"
              : r == PEER_E_SELF  ? "its address is this node's"
              : r == PEER_E_FULL  ? "too many nodes are known"
                                  : "out of memory";
        snprintf(text, text_size, "the node that made the communicator id cannot be dialled: %s", why);
        return r == PEER_E_ADDRESS || r == PEER_E_SELF ? COMM_E_INVALID : COMM_E_RESOURCE;
}

int comm_remote_begin(struct comm *comm, char *text, size_t text_size) {
        struct comm_remote *remote = calloc(1, sizeof(*remote));
        int r = 0;

        if (!remote) {
                snprintf(text, text_size, "out of memory");
                return COMM_E_RESOURCE;
        }
        remote->cluster = comm->manager->cluster;
        remote->net = (struct comm_net)COMM_NET_NULL;
        comm->remote = remote; /* it counts itself */
        if (!comm_id_of(comm->id, state_node(comm->manager->state)))
                r = remote_dial(comm, &remote->root, text, text_size);
        remote->has_root = !r;
        if (r) {
                free(remote);
                comm->remote = NULL;
        }
        return r;
}

static void remote_join_body(const struct comm_member *member, Railmux__Peer__Join *ret_body) {
        struct comm *comm = member->comm;
        struct plan_known known;

        railmux__peer__join__init(ret_body);
        ret_body->comm_id.data = comm->id;
        ret_body->comm_id.len = COMM_ID_BYTES;
        ret_body->tenant = comm->tenant->name;
        ret_body->rank = member->rank;
        ret_body->n_ranks = comm->n_ranks;
        ret_body->gpu = member->gpu;
        ret_body->name = comm->name;
        ret_body->attempt = comm->number;
        ret_body->device = comm->manager->on_device;
        executor_links_known(comm->manager, &known);
        ret_body->widenings = known.widenings;
        ret_body->algorithms = known.algorithms;
}

int comm_remote_join(struct comm_member *member, char *text, size_t text_size) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        struct comm_remote *remote = member->comm->remote;
        Railmux__Peer__Join body;

        if (remote->root && !peer_is_up(remote->root))
                return 0; /* comm_remote_up */
        remote_join_body(member, &body);
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_JOIN;
        message.join = &body;
        if (!cluster_send(remote->cluster, remote->root, &message))
                return 0;
        snprintf(text, text_size, "the node that made the communicator id cannot be told of rank %u", member->rank);
        return COMM_E_RESOURCE;
}

static bool remote_join_all(struct comm *comm) {
        char text[160];

        for (uint32_t r = 0; r < comm->n_ranks; r++)
                if (comm->members[r].session && comm_remote_join(&comm->members[r], text, sizeof(text))) {
                        comm_join_fail(comm, RMX_E_NO_MEMORY, "%s", text);
                        return false;
                }
        return true;
}

void comm_remote_up(struct cluster *cluster, const struct peer *peer) {
        struct comm *comm, *next;

        for (comm = cluster->manager->comms; comm; comm = next) {
                next = comm->hh.next; /* (one that joins has no splits, which would go with it) */
                if (comm->remote && comm->remote->root == peer && comm->state == COMM_JOINING)
                        (void)remote_join_all(comm);
        }
}

bool comm_remote_here(struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]) {
        struct comm *comm = comm_find_id(cluster->manager, id);
        char text[160];

        if (!comm || comm->remote || comm->state != COMM_JOINING)
                return true;
        if (comm_remote_begin(comm, text, sizeof(text))) {
                comm_join_fail(comm, RMX_E_NO_MEMORY, "%s", text);
                return false;
        }
        return remote_join_all(comm);
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

/* The root is away. Of one rank here it is told before that it has failed: else it would not listen. */
static void remote_tell_root_later(struct comm *comm, uint32_t code, const char *text) {
        struct comm_remote *remote = comm->remote;
        Railmux__Peer__Join body;
        uint32_t r = 0;

        while (r + 1 < comm->n_ranks && (!comm->members[r].joined || comm->members[r].away))
                r++;
        remote_join_body(&comm->members[r], &body);
        last_word_keep(&remote->cluster->words, remote->root, &body, code, text);
}

void comm_remote_join_ended(struct comm *comm, uint32_t rank, uint32_t code, const char *text) {
        struct comm_remote *remote = comm->remote;

        if (remote->has_root && !remote->over && remote->root && !peer_is_up(remote->root))
                remote_tell_root_later(comm, code, text);
        else if (remote->has_root && !remote->over)
                remote_tell_root(comm, rank, code, text);
        /* The root counts on this part since READY, and GO may be out: the others hear it from here. */
        if (comm->remote->attached && !comm->remote->heard)
                comm_remote_tell_failed(comm, code, -1, text, -1);
        comm->remote->over = true;
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

/* ---- what happens to the ranks ----------------------------------------------------------------------------------- */
/* It has failed, here or on another node, which may not have been able to tell all others. Which nodes were lost is
 * said as far as this one has noticed it; what it was told, others are told as well. */
static void remote_tell_end(struct comm *comm, uint32_t code, int32_t rank, const char *text) {
        struct comm_remote *remote = comm->remote;
        bool said = remote->over;

        for (uint32_t i = 0; i < remote->n_nodes && !remote->over; i++) {
                if (!remote->nodes[i].gone)
                        continue;
                comm_remote_tell_failed(comm, code, rank, text, (int32_t)i);
                said = true;
        }
        if (!said)
                comm_remote_tell_failed(comm, code, rank, text, -1);
        remote->over = true;
}

void comm_remote_failing(struct comm *comm) {
        if (comm->remote->assigned && comm->state == COMM_READY)
                remote_tell_end(comm, comm->abort_code, comm->abort_rank, comm->abort_text);
}

void comm_remote_failed(struct comm *comm) {
        struct comm_remote *remote = comm->remote;
        bool here = false;

        if (!remote->assigned || comm->state != COMM_READY)
                return;
        remote_tell_end(comm, comm->code, comm->failed_rank, comm->reason);
        comm_net_stop(&remote->net, remote->cluster->fabric, remote->key);
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                here = here || comm->members[r].session;
        if (!here) /* it was kept for the others */
                remote_settle_later(remote);
}

void comm_remote_catch_up(struct comm *comm) {
        if (comm->code)
                comm_remote_failed(comm);
        else if (comm->aborting)
                comm_remote_failing(comm);
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
        comm_remote_tell(remote, &message);
}

const char *comm_remote_node(const struct comm *comm, uint32_t rank) {
        const struct comm_remote *remote = comm->remote;
        const struct peer *peer;

        if (!remote) /* a predecessor knew */
                return "another node";
        peer = remote->nodes[remote->node[rank]].peer;
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
                comm_remote_tell(remote, &message);
        }
        for (uint32_t i = 0; i < remote->n_nodes; i++)
                if (!remote->nodes[i].ended)
                        return true;
        return false;
}

int comm_remote_inherit(struct comm *child, const struct comm *parent, const uint32_t *ranks, uint64_t key) {
        const struct comm_remote *from = parent->remote;
        struct comm_remote *remote = calloc(1, sizeof(*remote));
        uint8_t known[COMM_NODES_MAX]; /* which of the child's nodes one of the parent is */

        if (!remote)
                return -ENOMEM;
        remote->cluster = from->cluster;
        remote->net = (struct comm_net)COMM_NET_NULL;
        memset(known, 0xff, sizeof(known));
        for (uint32_t r = 0; r < child->n_ranks; r++) {
                uint32_t node = from->node[ranks[r]], n = remote->n_nodes;

                if (known[node] == 0xff) {
                        known[node] = (uint8_t)n;
                        memcpy(remote->nodes[n].id, from->nodes[node].id, sizeof(remote->nodes[n].id));
                        remote->nodes[n].peer = from->nodes[node].peer;
                        if (remote->nodes[n].peer)
                                peer_hold(remote->nodes[n].peer);
                        if (node == from->own)
                                remote->own = n;
                        remote->n_nodes++;
                }
                remote->node[r] = known[node];
        }
        child->remote = remote;
        return comm_remote_assign(child, key);
}

void comm_remote_free(struct comm *comm) {
        struct comm_remote *remote = comm->remote;

        if (!remote)
                return;
        if (remote->assigned)
                HASH_DELETE(hh_key, remote->cluster->comms_by_key, comm);
        comm_remote_id_free(comm);
        comm_split_root_free(comm);
        comm_net_deinit(&remote->net, remote->cluster->fabric, remote->key);
        comm_remote_release_root(remote);
        for (uint32_t i = 0; i < remote->n_nodes; i++)
                if (remote->nodes[i].peer)
                        peer_release(remote->nodes[i].peer);
        free(remote);
        comm->remote = NULL;
}
