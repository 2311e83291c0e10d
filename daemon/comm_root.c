/* SPDX-License-Identifier: MIT */
/*
 * Gathering
 *
 *   OPEN      ranks come (JOIN), each from the daemon that it is a client of. When all have come it waits for its
 *             turn (comm_turn.c), and may fail until then like one that misses ranks
 *   ASSIGNED  every node with ranks was told who is where, and which plans there are (ASSIGN). Each makes its part,
 *             connects to the others and says READY
 *   (gone)    all are ready and were told to GO. What happens to the communicator from now on, the nodes tell each
 *             other
 *   FAILED    a rank gave up, a daemon was lost or could not make its part: all nodes that take part were told, and
 *             the gathering stays for a while to tell nodes that come late. Each node tells its own ranks, late ones
 *             too, and one that was told begins anew there (comm_join.c). Its daemon then brings another part, with
 *             another number, and so the gathering begins anew here; what is still on the way of the old part is
 *             known by its number, at both ends.
 *
 * The id proves by a keyed hash that it was made here for the tenant (comm_id.c); so who has it may bring a rank, and
 * nobody else can.
 */
#include "daemon/comm_root.h"

#include "daemon/cluster.h"
#include "daemon/comm.h"
#include "daemon/comm_join.h"
#include "daemon/comm_plan.h"
#include "daemon/comm_remote.h"
#include "daemon/gathering.h"
#include "daemon/manager.h"
#include "daemon/session_dispatch.h"
#include "daemon/state.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* What another daemon says goes on to sessions. */
static uint32_t root_code(uint32_t code) {
        return code == 0 || code >= RMX_E_COUNT ? (uint32_t)RMX_E_INTERNAL : code;
}

/* A node that cannot be told is lost, and hears that. */
static void root_tell_failed(struct cluster *cluster, struct peer *peer, const uint8_t *id, uint64_t attempt,
                             uint32_t rank, uint32_t code, const char *text) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__JoinFailed body = RAILMUX__PEER__JOIN_FAILED__INIT;

        body.comm_id.data = (uint8_t *)id;
        body.comm_id.len = COMM_ID_BYTES;
        body.rank = rank;
        body.code = code;
        body.text = (char *)text;
        body.attempt = attempt;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_JOIN_FAILED;
        message.join_failed = &body;
        if (cluster_send(cluster, peer, &message) && peer)
                peer_drop(peer, "out of memory");
}

static void gathering_fail(struct gathering *gathering, const struct peer *knows, bool somebody_knows, uint32_t rank,
                           uint32_t code, const char *format, ...) __attribute__((format(printf, 6, 7)));
/* knows: this node has said so, and needs not be told (somebody_knows). */
static void gathering_fail(struct gathering *gathering, const struct peer *knows, bool somebody_knows, uint32_t rank,
                           uint32_t code, const char *format, ...) {
        struct cluster *cluster = gathering->cluster;
        va_list args;

        va_start(args, format);
        vsnprintf(gathering->text, sizeof(gathering->text), format, args);
        va_end(args);
        log_notice("communicator over several nodes (%s, tenant %s) not created, %u of %u ranks had joined: %s",
                   gathering->name[0] ? gathering->name : "unnamed", gathering->tenant, gathering->n_joined,
                   gathering->n_ranks, gathering->text);
        for (uint32_t i = 0; i < gathering->n_nodes; i++) {
                struct peer *peer = gathering->nodes[i].peer;

                gathering_note_told(gathering, peer, gathering->nodes[i].attempt);
                if (!somebody_knows || peer != knows)
                        root_tell_failed(cluster, peer, gathering->id, gathering->nodes[i].attempt, rank, code,
                                         gathering->text);
        }
        gathering_bury(gathering, code);
}

/* ---- all are there ----------------------------------------------------------------------------------------------- */
/* Nodes have come in any order. What follows from their numbers, the bits of a sum say, shall not depend on that: they
 * are numbered anew, as their first ranks lie. */
static void gathering_number_nodes(struct gathering *gathering) {
        const struct gathering before = *gathering;
        uint8_t number[COMM_RANKS_MAX];
        uint32_t n = 0;

        memset(number, 0xff, sizeof(number));
        for (uint32_t r = 0; r < gathering->n_ranks; r++) {
                uint8_t node = before.ranks[r].node;

                if (number[node] == 0xff) {
                        gathering->nodes[n] = before.nodes[node];
                        number[node] = (uint8_t)n++;
                }
                gathering->ranks[r].node = number[node];
        }
}

static int gathering_assign(struct gathering *gathering) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Assign body = RAILMUX__PEER__ASSIGN__INIT;
        Railmux__Peer__Member members[COMM_RANKS_MAX], *member_list[COMM_RANKS_MAX];
        Railmux__Peer__Node nodes[COMM_RANKS_MAX], *node_list[COMM_RANKS_MAX];
        Railmux__Peer__Choice wire[PLAN_CHOICES_MAX], *choice_list[PLAN_CHOICES_MAX];
        struct cluster *cluster = gathering->cluster;
        const struct tenant *tenant = tenant_find(cluster->manager, gathering->tenant);
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan_geometry geometry;
        uint8_t node[COMM_RANKS_MAX];
        uint32_t n_choices;
        int r;

        gathering_number_nodes(gathering);
        for (uint32_t i = 0; i < gathering->n_ranks; i++)
                node[i] = gathering->ranks[i].node;
        r = comm_plan_nodes(cluster->manager, gathering->device, &gathering->known, gathering->n_ranks, node,
                            tenant ? tenant->rails : "", &geometry, choices, &n_choices);
        if (r)
                return r;
        do
                if (getrandom(&gathering->key, sizeof(gathering->key), 0) != (ssize_t)sizeof(gathering->key))
                        return -EIO;
        while (!gathering->key || gathering_of_key(cluster, gathering->key));
        gathering->state = GATHERING_ASSIGNED;
        for (uint32_t i = 0; i < gathering->n_ranks; i++) {
                railmux__peer__member__init(&members[i]);
                members[i].rank = i;
                members[i].node = gathering->ranks[i].node;
                members[i].gpu = gathering->ranks[i].gpu;
                member_list[i] = &members[i];
        }
        for (uint32_t i = 0; i < gathering->n_nodes; i++) {
                struct peer *peer = gathering->nodes[i].peer;

                railmux__peer__node__init(&nodes[i]);
                nodes[i].node.data = (uint8_t *)gathering_node_id(cluster, peer);
                nodes[i].node.len = PEER_NODE_BYTES;
                nodes[i].address = (char *)(peer ? peer_address(peer) : peers_address(cluster->peers));
                node_list[i] = &nodes[i];
        }
        for (uint32_t i = 0; i < n_choices; i++) {
                railmux__peer__choice__init(&wire[i]);
                wire[i].operation = choices[i].operation;
                wire[i].algorithm = choices[i].algorithm;
                wire[i].max_bytes = choices[i].max_bytes;
                wire[i].widening = choices[i].widening;
                choice_list[i] = &wire[i];
        }
        body.key = gathering->key;
        body.comm_id.data = gathering->id;
        body.comm_id.len = COMM_ID_BYTES;
        body.name = gathering->name;
        body.tenant = gathering->tenant;
        body.n_ranks = gathering->n_ranks;
        body.n_members = gathering->n_ranks;
        body.members = member_list;
        body.n_nodes = gathering->n_nodes;
        body.nodes = node_list;
        body.n_choices = n_choices;
        body.choices = choice_list;
        body.part_bytes = geometry.part_bytes;
        body.slots = geometry.slots;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_ASSIGN;
        message.assign = &body;
        for (uint32_t i = 0; i < gathering->n_nodes && !r; i++) {
                body.attempt = gathering->nodes[i].attempt;
                r = cluster_send(cluster, gathering->nodes[i].peer, &message);
        }
        return r > 0 ? -EBUSY : r;
}

static void gathering_take_turn(void *data) {
        struct gathering *gathering = data;
        int r = gathering_assign(gathering);

        if (r < 0)
                gathering_fail(gathering, NULL, false, 0, r == -ENOMEM ? RMX_E_NO_MEMORY : RMX_E_INTERNAL,
                               "the daemon that gathers the communicator cannot make it: %s", strerror(-r));
}

void comm_root_ready(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Ready *body) {
        struct gathering *gathering = gathering_of_key(cluster, body->key);
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Go go = RAILMUX__PEER__GO__INIT;
        uint32_t node = gathering ? gathering_node(gathering, peer) : 0;

        if (!gathering || node == gathering->n_nodes)
                return;
        if (body->code) {
                gathering_fail(gathering, NULL, false, 0, root_code(body->code), "node %s: %s",
                               peer ? peer_address(peer) : "root", body->text);
                return;
        }
        gathering->nodes[node].ready = true;
        for (uint32_t i = 0; i < gathering->n_nodes; i++)
                if (!gathering->nodes[i].ready)
                        return;
        go.key = gathering->key;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_GO;
        message.go = &go;
        for (uint32_t i = 0; i < gathering->n_nodes; i++) {
                if (!cluster_send(cluster, gathering->nodes[i].peer, &message))
                        continue;
                /* Some have begun, perhaps: the one that has not heard must not wait for ever, and is not heard any
                 * more, so the others lose it. */
                log_error("cannot tell all nodes of a communicator to begin");
                if (gathering->nodes[i].peer)
                        peer_drop(gathering->nodes[i].peer, "out of memory");
        }
        gathering_free(gathering);
}

/* ---- ranks come -------------------------------------------------------------------------------------------------- */
static bool root_join_valid(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Join *body) {
        struct state *state = cluster->manager->state;
        uint8_t none[COMM_ID_BYTES] = {0};
        const char *text = NULL;
        uint32_t code = RMX_E_INVALID;

        if (body->comm_id.len != COMM_ID_BYTES)
                text = "a communicator id has 128 bytes";
        else if (body->n_ranks < 1 || body->n_ranks > COMM_RANKS_MAX || body->rank >= body->n_ranks)
                text = "a communicator over several nodes has 1 to 64 ranks";
        else if (strlen(body->tenant) >= PEER_NAME_MAX || strlen(body->name) >= PEER_NAME_MAX)
                text = "the name of the tenant or communicator is too long";
        else if (comm_id_check(state_key(state), body->tenant, body->comm_id.data)) {
                code = RMX_E_DENIED;
                text = "the communicator id was not made by the node that it names for this tenant";
        } else if (comm_id_stale(body->comm_id.data, peers_boot(cluster->peers))) {
                code = RMX_E_PEER_LOST;
                text = COMM_ID_STALE_TEXT;
        }
        if (!text)
                return true;
        root_tell_failed(cluster, peer, body->comm_id.len == COMM_ID_BYTES ? body->comm_id.data : none, body->attempt,
                         body->rank, code, text);
        return false;
}

/* A gathering that has failed: true if that is the answer to the join. */
static bool root_join_late(struct cluster *cluster, struct peer *peer, struct gathering *gathering,
                           const Railmux__Peer__Join *body) {
        if (gathering_told(gathering, peer))
                return false; /* it knows, and tries again */
        gathering_note_told(gathering, peer, body->attempt);
        root_tell_failed(cluster, peer, gathering->id, body->attempt, body->rank, gathering->code, gathering->text);
        return true;
}

/* Nobody gathers it. The ranks here may have given up before any other node came. */
static struct gathering *root_join_first(struct cluster *cluster, const struct peer *peer,
                                         const Railmux__Peer__Join *body) {
        const struct tombstone *tombstone = peer ? tombstone_find(cluster->manager, body->comm_id.data) : NULL;
        struct gathering *gathering = gathering_new(cluster, peer, body);

        if (!gathering || !tombstone)
                return gathering;
        gathering_note_told(gathering, NULL, 0);
        snprintf(gathering->text, sizeof(gathering->text), "%s", tombstone->text);
        gathering_bury(gathering, tombstone->code);
        return gathering;
}

/* No place is left for one more: it has failed before it began, for all ranks. */
static void root_join_no_room(struct cluster *cluster, struct peer *peer, struct gathering *gathering,
                              const Railmux__Peer__Join *body) {
        if (gathering->state != GATHERING_FAILED)
                gathering_bury(gathering, RMX_E_LIMIT);
        gathering->code = RMX_E_LIMIT;
        snprintf(gathering->text, sizeof(gathering->text),
                 "the daemon that gathers the communicator has no room for another of this tenant or node");
        gathering_note_told(gathering, peer, body->attempt);
        root_tell_failed(cluster, peer, gathering->id, body->attempt, body->rank, gathering->code, gathering->text);
        (void)comm_remote_here(cluster, body->comm_id.data);
}

/* What the rank belongs to, known (may be NULL) or new. NULL: the node has been told that there is nothing. */
static struct gathering *root_join_known(struct cluster *cluster, struct peer *peer, struct gathering *gathering,
                                         const Railmux__Peer__Join *body) {
        const bool goes_on = gathering && gathering->state != GATHERING_FAILED;
        const bool room = goes_on || gatherings_have_room(cluster, peer, body->tenant);

        if (!gathering)
                gathering = root_join_first(cluster, peer, body);
        if (gathering && gathering->state == GATHERING_FAILED && root_join_late(cluster, peer, gathering, body))
                return NULL;
        if (gathering && !room) {
                root_join_no_room(cluster, peer, gathering, body);
                return NULL;
        }
        if (gathering && gathering->state == GATHERING_FAILED)
                gathering = gathering_again(gathering, peer, body);
        if (!gathering)
                root_tell_failed(cluster, peer, body->comm_id.data, body->attempt, body->rank, RMX_E_NO_MEMORY,
                                 "the daemon that gathers the communicator has no memory for another");
        return gathering;
}

static const char *root_gpus(bool device) {
        return device ? "GPUs" : "emulated GPUs";
}

/* It does not fit to what others have said: the gathering fails, and the node is told what is wrong with its rank. */
static void root_join_refuse(struct peer *peer, struct gathering *gathering, const Railmux__Peer__Join *body,
                             const char *text, const char *others) {
        struct cluster *cluster = gathering->cluster;

        gathering_note_told(gathering, peer, body->attempt);
        root_tell_failed(cluster, peer, gathering->id, body->attempt, body->rank, RMX_E_INVALID, text);
        gathering_fail(gathering, peer, true, body->rank, RMX_E_INVALID, "%s", others);
}

void comm_root_join(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Join *body) {
        struct gathering *gathering;
        const struct comm *here;
        const uint64_t *told;
        char text[160], others[160];
        uint32_t node;

        if (!root_join_valid(cluster, peer, body))
                return;
        here = comm_find_id(cluster->manager, body->comm_id.data);
        if (peer && here && !here->remote && here->state != COMM_JOINING) {
                root_tell_failed(cluster, peer, body->comm_id.data, body->attempt, body->rank, RMX_E_INVALID,
                                 "all ranks have joined on the node that made the communicator id");
                return;
        }
        gathering = gathering_find(cluster, body->comm_id.data);
        if (gathering && gathering->state != GATHERING_FAILED) {
                node = gathering_node(gathering, peer);
                if (node < gathering->n_nodes && gathering->nodes[node].attempt != body->attempt)
                        gathering_fail(gathering, peer, true, body->rank, RMX_E_ABORTED,
                                       "a node has given its part up and begun another");
                gathering = gathering_find(cluster, body->comm_id.data);
        }
        told = gathering ? gathering_told(gathering, peer) : NULL;
        if (told && *told == body->attempt)
                return; /* they have passed each other on the way */
        gathering = root_join_known(cluster, peer, gathering, body);
        if (!gathering)
                return;
        if (gathering->n_ranks != body->n_ranks) {
                snprintf(text, sizeof(text), "n_ranks is %u, but other ranks said %u", body->n_ranks,
                         gathering->n_ranks);
                snprintf(others, sizeof(others), "rank %u: %.100s", body->rank, text);
                root_join_refuse(peer, gathering, body, text, others);
                return;
        }
        if (gathering->device != (bool)body->device) {
                snprintf(text, sizeof(text), "this node serves %s, but other ranks are on %s", root_gpus(body->device),
                         root_gpus(gathering->device));
                snprintf(others, sizeof(others), "rank %u is on %s, the others are not", body->rank,
                         root_gpus(body->device));
                root_join_refuse(peer, gathering, body, text, others);
                return;
        }
        node = gathering_node(gathering, peer);
        if (gathering->ranks[body->rank].joined) {
                if (gathering->ranks[body->rank].node == node)
                        return; /* the same again */
                snprintf(text, sizeof(text), "rank %u was taken on another node", body->rank);
                snprintf(others, sizeof(others), "two nodes bring rank %u", body->rank);
                root_join_refuse(peer, gathering, body, text, others);
                return;
        }
        if (node == gathering->n_nodes) {
                if (peer)
                        peer_hold(peer);
                gathering->nodes[node].peer = peer;
                gathering->nodes[node].attempt = body->attempt;
                gathering->nodes[node].ready = false;
                gathering->n_nodes++;
        }
        gathering->ranks[body->rank].joined = true;
        gathering->ranks[body->rank].node = (uint8_t)node;
        gathering->ranks[body->rank].gpu = body->gpu;
        plan_known_meet(&gathering->known, body->widenings, body->algorithms);
        if (++gathering->n_joined < gathering->n_ranks) {
                /* Ranks of this node may have come before it was known that there are others. */
                if (peer && !comm_remote_here(cluster, body->comm_id.data)) {
                        gathering = gathering_find(cluster, body->comm_id.data);
                        if (gathering && gathering->state == GATHERING_OPEN)
                                gathering_fail(gathering, NULL, true, 0, RMX_E_NO_MEMORY,
                                               "the daemon that gathers the communicator has no memory for its part");
                }
                return;
        }
        comm_turn_wait(&gathering->turn, &cluster->turns, gathering->tenant, gathering_take_turn, gathering);
}

bool comm_root_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__JoinFailed *body) {
        struct gathering *gathering =
                body->comm_id.len == COMM_ID_BYTES ? gathering_find(cluster, body->comm_id.data) : NULL;
        uint32_t node;

        if (!gathering || gathering->state == GATHERING_FAILED)
                return false;
        node = gathering_node(gathering, peer);
        if (node == gathering->n_nodes || gathering->nodes[node].attempt != body->attempt)
                return false;
        gathering_fail(gathering, peer, true, body->rank, root_code(body->code), "%.120s", body->text);
        return true;
}

void comm_root_lost(struct cluster *cluster, struct peer *peer, const char *text) {
        struct gathering *gathering, *next;

        for (gathering = cluster->gatherings; gathering; gathering = next) {
                next = gathering->hh.next;
                if (gathering->state != GATHERING_FAILED && gathering_node(gathering, peer) < gathering->n_nodes)
                        gathering_fail(gathering, peer, true, 0, RMX_E_PEER_LOST, "the daemon at %s was lost: %.80s",
                                       peer_address(peer), text);
        }
}

void comm_root_merged(struct cluster *cluster, struct peer *peer, struct peer *into) {
        for (struct gathering *g = cluster->gatherings; g; g = g->hh.next)
                for (uint32_t i = 0; i < g->n_nodes; i++)
                        if (g->nodes[i].peer == peer)
                                g->nodes[i].peer = into;
}

bool comm_root_gathers(const struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]) {
        const struct gathering *gathering = gathering_find(cluster, id);

        return gathering && gathering->state != GATHERING_ASSIGNED;
}

void comm_root_free(struct cluster *cluster) {
        while (cluster->gatherings)
                gathering_free(cluster->gatherings);
}
