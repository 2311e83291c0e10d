/* SPDX-License-Identifier: MIT */
/*
 * Deciding on splits over several nodes. See comm_split_far.c for how they go.
 *
 * A split is here from its first SPLIT_JOIN until it is decided on: SPLIT_GO when all nodes are ready, SPLIT_FAILED
 * when one is not, or a rank leaves. When all ranks have come it waits for its turn to be formed (comm_turn.c). Which
 * ones are decided on stands in a word, as in comm_split.c, so ranks that come late do not begin one anew that has
 * failed. Nothing is decided once the communicator has failed: all nodes hear of that, and it ends all of its splits.
 */
#include "daemon/comm_split_root.h"

#include "daemon/cluster.h"
#include "daemon/comm_plan.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_split.h"
#include "daemon/comm_split_far.h"
#include "daemon/comm_split_private.h"
#include "daemon/manager.h"
#include "daemon/tenant.h"
#include "railmux/railmux.h"
#include "util/charge.h"
#include "util/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <utlist.h>

struct split_root {
        struct split_root *next, *prev; /* remote->split_roots */
        struct comm *parent;
        struct comm_turn turn;
        uint32_t number, n_joined;
        bool formed;
        struct plan_known known; /* to the nodes of all ranks */
        uint64_t ready;          /* bit per node */
        struct charge charge_bytes;
        uint32_t gpus[COMM_RANKS_MAX];
        struct split_place places[COMM_RANKS_MAX];
};

#define CHILDREN_MAX (COMM_RANKS_MAX / 2) /* over several nodes: each has two ranks at least */

static struct split_root *split_root_find(const struct comm *parent, uint32_t number) {
        struct split_root *root;

        DL_SEARCH_SCALAR(parent->remote->split_roots, root, number, number);
        return root;
}

static struct split_root *split_root_drop(struct split_root *root) {
        comm_turn_leave(&root->turn);
        DL_DELETE(root->parent->remote->split_roots, root);
        charge_release(&root->charge_bytes);
        free(root);
        return NULL;
}

void comm_split_root_free(struct comm *comm) {
        while (comm->remote->split_roots)
                split_root_drop(comm->remote->split_roots);
}

/* To a node of it. One that does not hear the decision must not go on. */
static void split_root_send(struct comm *parent, uint32_t node, const Railmux__Peer__Message *message) {
        struct comm_remote *remote = parent->remote;

        if (!cluster_send(remote->cluster, remote->nodes[node].peer, message))
                return;
        if (remote->nodes[node].peer)
                peer_drop(remote->nodes[node].peer, "out of memory");
        else
                comm_abort(parent, RMX_E_NO_MEMORY, -1, "the daemon has no memory to split it", 0);
}

static void split_root_send_failed(struct comm *parent, uint32_t node, uint32_t number, uint32_t code,
                                   const char *text) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitFailed body = RAILMUX__PEER__SPLIT_FAILED__INIT;

        body.key = parent->remote->key;
        body.number = number;
        body.code = code;
        body.text = (char *)text;
        body.verdict = true;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_SPLIT_FAILED;
        message.split_failed = &body;
        split_root_send(parent, node, &message);
}

/* It has failed, for all. */
static void split_root_fail(struct comm *parent, uint32_t number, uint32_t code, const char *text) {
        struct split_root *root = split_root_find(parent, number);
        struct comm_remote *remote = parent->remote;

        comm_split_mark(&remote->split_verdicts, &remote->split_failures, number, true);
        remote->split_code = code;
        snprintf(remote->split_text, sizeof(remote->split_text), "%.150s", text);
        if (root)
                split_root_drop(root);
        for (uint32_t i = 0; i < remote->n_nodes; i++)
                split_root_send_failed(parent, i, number, code, remote->split_text);
}

/* ---- all ranks have said what they want -------------------------------------------------------------------------- */
struct split_answer {
        Railmux__Peer__SplitForm body;
        Railmux__Peer__SplitPlace places[COMM_RANKS_MAX], *place_list[COMM_RANKS_MAX];
        Railmux__Peer__SplitChild children[CHILDREN_MAX], *child_list[CHILDREN_MAX];
        Railmux__Peer__Choice choices[CHILDREN_MAX][PLAN_CHOICES_MAX], *choice_list[CHILDREN_MAX][PLAN_CHOICES_MAX];
};

static bool split_key_used(const struct comm *parent, const struct split_answer *answer, uint64_t key) {
        for (size_t i = 0; i < answer->body.n_children; i++)
                if (answer->children[i].key == key)
                        return true;
        return key == 0 || comm_remote_of_key(parent->remote->cluster, key);
}

/* Nodes in the order in which ranks of the child meet them, as comm_remote_inherit numbers them. */
static void split_child_nodes(const struct comm *parent, const uint32_t *ranks, uint32_t n,
                              uint8_t ret_node[COMM_RANKS_MAX]) {
        uint8_t known[COMM_NODES_MAX];
        uint8_t n_nodes = 0;

        memset(known, 0xff, sizeof(known));
        for (uint32_t i = 0; i < n; i++) {
                uint8_t *node = &known[parent->remote->node[ranks[i]]];

                if (*node == 0xff)
                        *node = n_nodes++;
                ret_node[i] = *node;
        }
}

/* One over several nodes. 0 or -errno. */
static int split_child_add(const struct split_root *root, const uint32_t *ranks, uint32_t n,
                           struct split_answer *answer) {
        const struct comm *parent = root->parent;
        size_t at = answer->body.n_children;
        Railmux__Peer__SplitChild *child = &answer->children[at];
        struct plan_choice choices[PLAN_CHOICES_MAX];
        struct plan_geometry geometry;
        uint8_t node[COMM_RANKS_MAX];
        uint32_t n_choices;
        uint64_t key;
        int r;

        split_child_nodes(parent, ranks, n, node);
        r = comm_plan_nodes(parent->manager, parent->manager->on_device, &root->known, n, node, parent->tenant->rails,
                            &geometry, choices, &n_choices);
        if (r < 0)
                return r;
        do
                if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
                        return -EIO;
        while (split_key_used(parent, answer, key));
        railmux__peer__split_child__init(child);
        child->key = key;
        child->part_bytes = geometry.part_bytes;
        child->slots = geometry.slots;
        child->n_choices = n_choices;
        child->choices = answer->choice_list[at];
        for (uint32_t i = 0; i < n_choices; i++) {
                Railmux__Peer__Choice *choice = &answer->choices[at][i];

                railmux__peer__choice__init(choice);
                choice->operation = choices[i].operation;
                choice->algorithm = choices[i].algorithm;
                choice->max_bytes = choices[i].max_bytes;
                choice->widening = choices[i].widening;
                answer->choice_list[at][i] = choice;
        }
        answer->child_list[at] = child;
        answer->body.n_children++;
        return 0;
}

static int split_answer_fill(struct split_root *root, struct split_answer *answer) {
        const struct comm *parent = root->parent;
        uint32_t ranks[COMM_RANKS_MAX], n;
        int r = 0;

        railmux__peer__split_form__init(&answer->body);
        answer->body.key = parent->remote->key;
        answer->body.number = root->number;
        answer->body.places = answer->place_list;
        answer->body.n_places = parent->n_ranks;
        answer->body.children = answer->child_list;
        for (uint32_t i = 0; i < parent->n_ranks; i++) {
                railmux__peer__split_place__init(&answer->places[i]);
                answer->places[i].colour = root->places[i].colour;
                answer->places[i].order = root->places[i].key;
                answer->places[i].name = root->places[i].name;
                answer->place_list[i] = &answer->places[i];
        }
        for (uint32_t i = 0; i < parent->n_ranks && !r; i++) {
                enum comm_split_where where;

                if (root->places[i].grouped || root->places[i].colour < 0)
                        continue;
                n = comm_split_group(root->places, parent->n_ranks, root->places[i].colour, ranks);
                for (uint32_t k = 0; k < n; k++)
                        answer->places[ranks[k]].gpu = root->places[ranks[k]].gpu < 0
                                                               ? k % root->gpus[ranks[k]]
                                                               : (uint32_t)root->places[ranks[k]].gpu;
                where = comm_split_place(parent, ranks, n);
                if (where == COMM_SPLIT_OVER || where == COMM_SPLIT_WITHOUT)
                        r = split_child_add(root, ranks, n, answer);
        }
        return r;
}

static void split_root_form(struct split_root *root) {
        struct split_answer *answer = calloc(1, sizeof(*answer));
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        struct comm *parent = root->parent;
        uint32_t n_nodes = parent->remote->n_nodes;
        int r = answer ? split_answer_fill(root, answer) : -ENOMEM;
        char text[160];

        root->formed = true;
        if (r < 0) {
                snprintf(text, sizeof(text), "the daemon that decides on the split cannot make it: %s", strerror(-r));
                split_root_fail(parent, root->number, r == -ENOMEM ? RMX_E_NO_MEMORY : RMX_E_INTERNAL, text);
        } else {
                message.body_case = RAILMUX__PEER__MESSAGE__BODY_SPLIT_FORM;
                message.split_form = &answer->body;
                for (uint32_t i = 0; i < n_nodes; i++)
                        split_root_send(parent, i, &message);
        }
        free(answer);
}

static void split_root_take_turn(void *data) {
        struct split_root *root = data;

        if (!root->parent->aborting) /* else it goes in a moment, with the communicator */
                split_root_form(root);
}

/* ---- what nodes say ---------------------------------------------------------------------------------------------- */
/* The communicator of which this is the first node and `peer` one of the others, or this one. */
static struct comm *split_root_parent(const struct cluster *cluster, const struct peer *peer, uint64_t key,
                                      uint32_t *ret_node) {
        struct comm *parent = comm_remote_of_key(cluster, key);

        if (!parent || !comm_split_is_far(parent) || parent->remote->own != 0)
                return NULL;
        *ret_node = comm_remote_index(parent->remote, peer);
        return *ret_node < parent->remote->n_nodes ? parent : NULL;
}

/* What a node says of the wishes of its rank; NULL: it may be so. */
static const char *split_join_problem(const struct comm *parent, uint32_t node, const Railmux__Peer__SplitJoin *body) {
        if (body->rank >= parent->n_ranks || parent->remote->node[body->rank] != node)
                return "the rank is not on that node";
        if (strlen(body->name) >= SESSION_NAME_MAX)
                return "the name has more than 63 bytes";
        if (body->gpus < 1 || body->gpus > MANAGER_GPUS_MAX)
                return "a node has 1 to 64 GPUs";
        if (body->gpu < -1 || body->gpu >= (int32_t)body->gpus)
                return "the GPU is none of that node's";
        return NULL;
}

/* The others would wait for that rank in vain. */
static void split_join_refuse(struct comm *parent, const struct peer *peer, uint32_t node,
                              const Railmux__Peer__SplitJoin *body, const char *problem) {
        char text[160];

        log_warning("peer %s: what it says of rank %u for split %u of a communicator cannot be: %s",
                    peer ? peer_address(peer) : "itself", body->rank, body->number, problem);
        snprintf(text, sizeof(text), "node %.60s: what it says of rank %u cannot be: %s", peer ? peer_name(peer) : "0",
                 body->rank, problem);
        if (comm_split_open(parent->remote->split_verdicts, body->number))
                split_root_fail(parent, body->number, RMX_E_INTERNAL, text);
        else
                split_root_send_failed(parent, node, body->number, RMX_E_INTERNAL, text);
}

/* A rank that is none any more; n_ranks: there is no such. */
static uint32_t split_rank_gone(const struct comm *parent) {
        uint32_t r = 0;

        while (r < parent->n_ranks && !parent->members[r].leaving && !parent->members[r].lost)
                r++;
        return r;
}

/* NULL: it has failed for want of memory, of the daemon or of the tenant. */
static struct split_root *split_root_new(struct comm *parent, uint32_t number) {
        struct charge charge = CHARGE_INIT;
        struct split_root *root;
        char text[160];

        if (tenant_charge(parent->tenant, &charge, CHARGE_BYTES, sizeof(*root), text, sizeof(text))) {
                split_root_fail(parent, number, RMX_E_LIMIT, text);
                return NULL;
        }
        root = calloc(1, sizeof(*root));
        if (!root) {
                charge_release(&charge);
                split_root_fail(parent, number, RMX_E_NO_MEMORY, "the daemon that decides has no memory");
                return NULL;
        }
        root->charge_bytes = charge;
        root->parent = parent;
        root->number = number;
        plan_known_all(&root->known);
        DL_APPEND(parent->remote->split_roots, root);
        return root;
}

void comm_split_root_join(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitJoin *body) {
        uint32_t node, gone;
        struct comm *parent = split_root_parent(cluster, peer, body->key, &node);
        struct comm_remote *remote = parent ? parent->remote : NULL;
        struct split_root *root;
        const char *problem;
        char text[80];

        if (!parent || parent->code || parent->aborting)
                return; /* its end is told, and ends the split */
        problem = split_join_problem(parent, node, body);
        if (!problem && !comm_split_done(remote->split_verdicts, body->number) &&
            !comm_split_open(remote->split_verdicts, body->number))
                problem = "the split comes too early";
        if (problem) {
                split_join_refuse(parent, peer, node, body, problem);
                return;
        }
        if (comm_split_done(remote->split_verdicts, body->number)) {
                if (remote->split_code &&
                    comm_split_failed(remote->split_verdicts, remote->split_failures, body->number))
                        split_root_send_failed(parent, node, body->number, remote->split_code, remote->split_text);
                return; /* (of one that was made it has nothing more to say) */
        }
        gone = split_rank_gone(parent);
        if (gone < parent->n_ranks) {
                snprintf(text, sizeof(text), "rank %u has left the communicator", gone);
                split_root_fail(parent, body->number, RMX_E_PEER_LOST, text);
                return;
        }
        root = split_root_find(parent, body->number);
        if (!root)
                root = split_root_new(parent, body->number);
        if (!root || root->places[body->rank].joined)
                return;
        root->places[body->rank].joined = true;
        root->places[body->rank].colour = body->colour;
        root->places[body->rank].key = body->order;
        root->places[body->rank].gpu = body->gpu;
        snprintf(root->places[body->rank].name, sizeof(root->places[0].name), "%s", body->name);
        root->gpus[body->rank] = body->gpus;
        plan_known_meet(&root->known, body->widenings, body->algorithms);
        if (++root->n_joined == parent->n_ranks)
                comm_turn_wait(&root->turn, &cluster->turns, parent->tenant->name, split_root_take_turn, root);
}

void comm_split_root_ready(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitReady *body) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitGo go = RAILMUX__PEER__SPLIT_GO__INIT;
        uint32_t node, n_nodes;
        struct comm *parent = split_root_parent(cluster, peer, body->key, &node);
        struct split_root *root = parent ? split_root_find(parent, body->number) : NULL;

        if (!root || !root->formed || parent->code || parent->aborting)
                return;
        n_nodes = parent->remote->n_nodes;
        root->ready |= UINT64_C(1) << node;
        if (root->ready != UINT64_MAX >> (64 - n_nodes))
                return;
        go.key = body->key;
        go.number = body->number;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_SPLIT_GO;
        message.split_go = &go;
        comm_split_mark(&parent->remote->split_verdicts, &parent->remote->split_failures, root->number, false);
        split_root_drop(root);
        for (uint32_t i = 0; i < n_nodes; i++)
                split_root_send(parent, i, &message);
}

void comm_split_root_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitFailed *body) {
        uint32_t node;
        struct comm *parent = split_root_parent(cluster, peer, body->key, &node);

        /* (A rank that cannot take part may be the first one to be heard of.) */
        if (parent && !parent->code && !parent->aborting &&
            comm_split_open(parent->remote->split_verdicts, body->number))
                split_root_fail(parent, body->number, comm_remote_code(body->code), body->text);
}

void comm_split_root_left(const struct comm_member *member) {
        struct comm *parent = member->comm;
        char text[80];

        if (!comm_split_is_far(parent) || parent->remote->own != 0)
                return;
        snprintf(text, sizeof(text), "rank %u has left the communicator", member->rank);
        while (parent->remote->split_roots)
                split_root_fail(parent, parent->remote->split_roots->number, RMX_E_PEER_LOST, text);
}
