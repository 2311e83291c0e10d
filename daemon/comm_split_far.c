/* SPDX-License-Identifier: MIT */
/*
 * Splits over several nodes
 *
 * The first node of the communicator (in the order of Assign) gathers what the ranks want (SPLIT_JOIN) and tells every
 * node the wishes of all (SPLIT_FORM). From these each node works out by itself which communicators there will be, and
 * makes those in which it has ranks: one whose ranks are all here is one like any other of this node, and no other node
 * knows of it; for one over several nodes the first node has chosen key and plans. When the executors have them it says
 * so (SPLIT_READY), and when all nodes have, the first one lets them answer their ranks (SPLIT_GO).
 *
 * What goes wrong on a node in between is told the first one (SPLIT_FAILED), which decides once and for all, so all
 * ranks get the same answer: nobody gives up a split on its own. There is one exception. When the communicator itself
 * has failed, or a node is lost, no decision may ever come, and all of its splits are over with it, with its error, on
 * every node. The first node may have let others go on just before; so who gives up communicators that it has said to
 * be ready tells the other nodes of each that it has failed.
 */
#include "daemon/comm_split_far.h"

#include "daemon/cluster.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_split.h"
#include "daemon/comm_split_private.h"
#include "daemon/executor_link.h"
#include "daemon/manager.h"
#include "daemon/record.h"
#include "daemon/session.h"
#include "daemon/session_dispatch.h"
#include "railmux/railmux.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

bool comm_split_is_far(const struct comm *parent) {
        return parent->remote && parent->remote->n_nodes > 1;
}

enum comm_split_where comm_split_place(const struct comm *parent, const uint32_t *ranks, uint32_t n) {
        bool here = false, several = false;

        if (!comm_split_is_far(parent))
                return COMM_SPLIT_HERE;
        for (uint32_t i = 0; i < n; i++) {
                here = here || parent->remote->node[ranks[i]] == parent->remote->own;
                several = several || parent->remote->node[ranks[i]] != parent->remote->node[ranks[0]];
        }
        if (several)
                return here ? COMM_SPLIT_OVER : COMM_SPLIT_WITHOUT;
        return here ? COMM_SPLIT_HERE : COMM_SPLIT_ELSEWHERE;
}

/* ---- to the first node ------------------------------------------------------------------------------------------- */
static void far_tell_first(struct comm *parent, const Railmux__Peer__Message *message) {
        struct comm_remote *remote = parent->remote;

        if (!cluster_send(remote->cluster, remote->nodes[0].peer, message))
                return;
        /* It would wait for ever, and with it all others. */
        if (remote->nodes[0].peer)
                peer_drop(remote->nodes[0].peer, "out of memory");
        else
                comm_abort(parent, RMX_E_NO_MEMORY, -1, "the daemon has no memory to split it", 0);
}

void comm_split_far_join(struct comm_split *split, uint32_t rank) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitJoin body = RAILMUX__PEER__SPLIT_JOIN__INIT;
        struct plan_known known;
        struct split_place *place = &split->places[rank];

        body.key = split->parent->remote->key;
        body.number = split->number;
        body.rank = rank;
        body.colour = place->colour;
        body.order = place->key;
        body.gpu = place->gpu;
        body.gpus = split->parent->manager->n_gpus;
        body.name = place->name;
        executor_links_known(split->parent->manager, &known);
        body.widenings = known.widenings;
        body.algorithms = known.algorithms;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_SPLIT_JOIN;
        message.split_join = &body;
        far_tell_first(split->parent, &message);
}

void comm_split_far_refuse(struct comm *parent, uint32_t number, uint32_t code, const char *text) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitFailed body = RAILMUX__PEER__SPLIT_FAILED__INIT;

        body.key = parent->remote->key;
        body.number = number;
        body.code = code;
        body.text = (char *)text;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_SPLIT_FAILED;
        message.split_failed = &body;
        far_tell_first(parent, &message);
}

void comm_split_far_complain(struct comm_split *split, uint32_t code, const char *text) {
        if (split->complained)
                return;
        split->complained = true;
        comm_split_far_refuse(split->parent, split->number, code, text);
}

void comm_split_far_ready(struct comm_split *split) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__SplitReady body = RAILMUX__PEER__SPLIT_READY__INIT;

        if (split->ready || split->complained)
                return;
        split->ready = true;
        body.key = split->parent->remote->key;
        body.number = split->number;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_SPLIT_READY;
        message.split_ready = &body;
        far_tell_first(split->parent, &message);
}

/* ---- children ---------------------------------------------------------------------------------------------------- */
int comm_split_far_child(struct comm *child, const struct comm *parent, const uint32_t *ranks,
                         const Railmux__Peer__SplitChild *over, char *text, size_t text_size) {
        if (comm_remote_inherit(child, parent, ranks, over->key) < 0) {
                snprintf(text, text_size, "out of memory");
                return COMM_E_RESOURCE;
        }
        for (size_t i = 0; i < over->n_choices; i++) {
                child->choices[i].operation = over->choices[i]->operation;
                child->choices[i].algorithm = over->choices[i]->algorithm;
                child->choices[i].max_bytes = over->choices[i]->max_bytes;
                child->choices[i].widening = over->choices[i]->widening;
        }
        child->n_choices = (uint32_t)over->n_choices;
        child->geometry.part_bytes = over->part_bytes;
        child->geometry.slots = over->slots;
        return 0;
}

void comm_split_far_drop(const struct comm_split *split, struct comm *child) {
        const struct comm *parent = split->parent;

        if (child->remote && split->ready && !split->decided && !child->manager->stopping)
                comm_remote_tell_failed(child, parent->code ? parent->code : RMX_E_PEER_LOST, -1,
                                        "the communicator that it was split from has failed", -1);
}

/* ---- what the first node says ------------------------------------------------------------------------------------ */
/* The communicator, if the message is the first node's. */
static struct comm *far_parent(const struct cluster *cluster, const struct peer *peer, uint64_t key) {
        struct comm *parent = comm_remote_of_key(cluster, key);

        if (!parent || !comm_split_is_far(parent) || comm_remote_index(parent->remote, peer) != 0)
                return NULL;
        return parent;
}

static const char *far_child_problem(const struct comm *parent, uint32_t n, const Railmux__Peer__SplitForm *body,
                                     size_t at) {
        const Railmux__Peer__SplitChild *child = body->children[at];
        const struct plan_geometry geometry = {.part_bytes = child->part_bytes, .slots = child->slots};

        if (!child->key || comm_remote_of_key(parent->remote->cluster, child->key))
                return "the key of a communicator";
        for (size_t i = 0; i < at; i++)
                if (body->children[i]->key == child->key)
                        return "the key of two communicators";
        if (child->n_choices < 1 || child->n_choices > PLAN_CHOICES_MAX)
                return "the number of plans";
        if (!comm_net_geometry_right(parent->manager, n, 2, &geometry)) /* two or more: it is all one */
                return "the staging, which is more than ranks are charged for";
        return NULL;
}

/* Of what all want; own ranks' wishes are those that they have told here. */
static const char *far_places_problem(const struct comm_split *split, const Railmux__Peer__SplitForm *body) {
        const struct comm *parent = split->parent;

        if (body->n_places != parent->n_ranks)
                return "the number of ranks";
        for (uint32_t r = 0; r < parent->n_ranks; r++) {
                const Railmux__Peer__SplitPlace *said = body->places[r];
                const struct split_place *place = &split->places[r];

                if (!parent->members[r].away && (!place->joined || place->session == NULL))
                        return "a rank of this node, which has not joined";
                if (!parent->members[r].away && (said->colour != place->colour || said->order != place->key))
                        return "what a rank of this node wants";
                if (strlen(said->name) >= SESSION_NAME_MAX)
                        return "a name";
        }
        return NULL;
}

/* Of the children over several nodes, all places being filled in. */
static const char *far_children_problem(struct comm_split *split, const Railmux__Peer__SplitForm *body) {
        uint32_t ranks[COMM_RANKS_MAX], n;
        const char *problem = NULL;
        size_t n_over = 0;

        for (uint32_t r = 0; r < split->parent->n_ranks && !problem; r++) {
                enum comm_split_where where;

                if (split->places[r].grouped || split->places[r].colour < 0)
                        continue;
                n = comm_split_group(split->places, split->parent->n_ranks, split->places[r].colour, ranks);
                where = comm_split_place(split->parent, ranks, n);
                if (where == COMM_SPLIT_HERE || where == COMM_SPLIT_ELSEWHERE)
                        continue;
                problem = n_over < body->n_children ? far_child_problem(split->parent, n, body, n_over) : "a plan";
                n_over++;
        }
        for (uint32_t r = 0; r < split->parent->n_ranks; r++)
                split->places[r].grouped = false;
        return problem || n_over == body->n_children ? problem : "the number of communicators";
}

static void far_fill_in(struct comm_split *split, const Railmux__Peer__SplitForm *body) {
        for (uint32_t r = 0; r < split->parent->n_ranks; r++) {
                struct split_place *place = &split->places[r];

                if (!split->parent->members[r].away)
                        continue;
                place->joined = true;
                place->colour = body->places[r]->colour;
                place->key = body->places[r]->order;
                place->gpu = (int32_t)(body->places[r]->gpu % MANAGER_GPUS_MAX);
                session_clean_name(place->name, body->places[r]->name);
        }
}

void comm_split_far_form(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitForm *body) {
        struct comm *parent = far_parent(cluster, peer, body->key);
        struct comm_split *split = parent ? comm_split_find(parent, body->number) : NULL;
        const char *problem;
        char text[160];

        if (!split || split->formed || split->complained)
                return; /* (it is over, and the first node knows or is about to) */
        problem = far_places_problem(split, body);
        if (!problem) {
                far_fill_in(split, body);
                problem = far_children_problem(split, body);
        }
        if (problem) {
                snprintf(text, sizeof(text), "what the first node says of a split cannot be: %s", problem);
                comm_split_far_complain(split, RMX_E_INTERNAL, text);
                return;
        }
        comm_split_form(split, body);
}

void comm_split_far_go(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitGo *body) {
        struct comm *parent = far_parent(cluster, peer, body->key), *child;
        struct comm_split *split = parent ? comm_split_find(parent, body->number) : NULL;

        if (!split || !split->ready || parent->aborting)
                return; /* an abort ends it as well, in a moment */
        split->decided = true;
        DL_FOREACH(split->children, child) {
                if (record_comm(child)) /* others have begun */
                        comm_abort(child, RMX_E_NO_MEMORY, -1, "the daemon cannot record the communicator", 0);
        }
        comm_split_finish(split);
}

void comm_split_far_failed(struct cluster *cluster, struct peer *peer, const Railmux__Peer__SplitFailed *body) {
        struct comm *parent = far_parent(cluster, peer, body->key);
        struct comm_split *split = parent ? comm_split_find(parent, body->number) : NULL;
        char text[160];

        if (!parent)
                return;
        snprintf(text, sizeof(text), "%.150s", body->text);
        if (split) {
                split->decided = true;
                comm_split_end(split, comm_remote_code(body->code), text);
        } else if (comm_split_open(parent->splits_done, body->number)) {
                comm_split_end_unknown(parent, body->number, comm_remote_code(body->code), text);
        }
}
