/* SPDX-License-Identifier: MIT */
/*
 * Closed forms
 *
 * N equal nodes with G GPUs each: every carrier does the same, so what one of them moves says it all, and a thousand
 * nodes take no longer than two. The forms are those of the plans (tests count the plans' steps for as many ranks as
 * plans can have, and compare): S bytes of count, c = S / G a carrier's shard.
 *
 *   time = base + hops * hop + messages beyond hops * message + factor * (rail bytes / rail + local bytes / GPU)
 *
 * A channel between two GPUs takes so many bytes; each time that it is full the next ones wait for a credit and then
 * cross, two hops later than they might. What comes behind follows in step, so that counts once, not once a phase.
 *
 * One node alone is another matter: no message leaves it, base is mostly what exchanges between nodes begin with, and
 * whether flags travel with the data depends on the size. There it is
 *
 *   time = hops * hop + factor * local bytes / GPU
 *
 * with constants of its own, where something has been measured that they can be from (tools/sim/one_node.c).
 *
 * Inside a node everything is read and written in place: a node's sum of a shard is read from G - 1 others, and a
 * result written to them.
 *
 * Boxes on one fabric share links that none of them has alone: what pairs of boxes exchange with other pairs may have
 * fewer links than each box has. So what an algorithm sends between any k boxes and the others is held against the
 * smallest cut between so many, and the worst k counts.
 *
 * Rings. Libraries lay one ring for each way between nodes through all n GPUs, and each ring carries its part of the
 * data over each of its hops; inside and between nodes at once. They are here to be compared with: what is measured on
 * fabrics without rails for each GPU was measured with them. The plan "ring" is one such ring. What goes around passes
 * every GPU, so hops inside nodes count, too: most of them are there.
 */
#include "plan/closed.h"

#include <math.h>

#include "plan/cost.h"
#include "ring/ring.h"

struct sizes {
        double n_nodes, n_gpus, n, bytes, shard;
        double levels; /* of 2^levels <= nodes */
        bool more;     /* nodes beyond that, */
        bool crowded;  /*   more than half as many: two that serve some wait for each other */
        double depth;  /* of a binary tree of nodes */
};

static struct sizes sizes_of(const struct cluster *c, double bytes) {
        struct sizes s = {.n_nodes = c->n_nodes, .n_gpus = c->n_gpus, .bytes = bytes};

        s.n = s.n_nodes * s.n_gpus;
        s.shard = bytes / s.n_gpus;
        s.levels = floor(log2(s.n_nodes));
        s.more = exp2(s.levels) < s.n_nodes;
        s.crowded = 2 * (s.n_nodes - exp2(s.levels)) > exp2(s.levels);
        s.depth = s.levels;
        return s;
}

static struct plan_geometry geometry_of(const struct cluster *c) {
        struct plan_geometry geometry = {.part_bytes = UINT32_MAX, .slots = 2};

        if (c->staged)
                plan_geometry_choose_nodes(c->n_nodes * c->n_gpus, &geometry);
        return geometry;
}

/* How many children the node has that has most to send in a tree, its parent counted when `up` also goes there. */
static double tree_fan(uint32_t n_nodes, bool both) {
        if (n_nodes < 3)
                return 1;
        return both && n_nodes > 4 ? 3 : 2;
}

/* How many halves the node sends, and gets, that has most of them in two trees. */
static double double_halves(uint32_t n_nodes) {
        return n_nodes < 3 ? 2 : n_nodes < 5 ? 3 : 4;
}

/* Hops, messages and bytes between nodes of a carrier. */
static void set(struct cluster_load *l, double hops, double messages, double bytes, double local) {
        l->hops = hops;
        l->messages = messages;
        l->gpu_bytes = bytes;
        l->local_bytes = local;
}

static bool all_reduce(const struct cluster *c, const struct sizes *s, uint32_t algorithm, struct cluster_load *l) {
        double others = s->n_nodes - 1, local = 2 * (s->n_gpus - 1) * s->shard, far = s->n - s->n_gpus;

        switch (algorithm) {
        case PLAN_HIERARCHICAL:
                set(l, 1, others, others * s->shard, local);
                return true;
        case PLAN_HIERARCHICAL_SCATTER:
                set(l, 2, 2 * others, 2 * others / s->n_nodes * s->shard, local);
                return true;
        case PLAN_HIERARCHICAL_RING:
                set(l, 2 * others, 2 * others, 2 * others / s->n_nodes * s->shard, local);
                return true;
        case PLAN_HIERARCHICAL_DOUBLING:
                set(l, s->levels + s->more + s->crowded, s->levels + s->more, (s->levels + s->more) * s->shard, local);
                return true;
        case PLAN_HIERARCHICAL_TREE:
                set(l, 2 * s->depth, tree_fan(c->n_nodes, true), tree_fan(c->n_nodes, true) * s->shard, local);
                return true;
        case PLAN_HIERARCHICAL_DOUBLE_TREE:
                set(l, 2 * s->depth, double_halves(c->n_nodes), double_halves(c->n_nodes) / 2 * s->shard, local);
                return true;
        case PLAN_ONE_SHOT:
                set(l, 1, far, far * s->bytes, (s->n_gpus - 1) * s->bytes);
                return true;
        case PLAN_TWO_SHOT:
                set(l, 2, 2 * far, 2 * far / s->n * s->bytes, 2 * (s->n_gpus - 1) / s->n * s->bytes);
                return true;
        default:
                return false;
        }
}

static bool rooted(const struct cluster *c, const struct sizes *s, uint32_t operation, uint32_t algorithm,
                   struct cluster_load *l) {
        double others = s->n_nodes - 1, local = 2 * (s->n_gpus - 1) * s->shard;
        bool blocks = operation == RING_OP_GATHER || operation == RING_OP_SCATTER;

        switch (algorithm) {
        case PLAN_HIERARCHICAL:
                if (blocks) /* all of it goes through the root's memory */
                        set(l, 1, others, others * s->bytes, s->n_nodes * (s->n_gpus - 1) * s->bytes);
                else
                        set(l, 1, others, others * s->shard, local);
                return true;
        case PLAN_HIERARCHICAL_RING: /* in parts, one behind the other */
                set(l, others, 1, s->shard, local);
                return !blocks;
        case PLAN_HIERARCHICAL_TREE:
                set(l, s->depth, tree_fan(c->n_nodes, false), tree_fan(c->n_nodes, false) * s->shard, local);
                return !blocks;
        case PLAN_HIERARCHICAL_DOUBLE_TREE: /* the root, and then two trees of all others */
                set(l, 1 + floor(log2(fmax(others, 1))), 2, s->shard, local);
                return !blocks;
        case PLAN_DIRECT: /* by the root alone; see plan_rail_bytes() */
                set(l, 1, s->n - s->n_gpus, (s->n - s->n_gpus) * s->bytes, (s->n_gpus - 1) * s->bytes);
                return true;
        default:
                return false;
        }
}

static bool of_all(const struct cluster *c, const struct sizes *s, uint32_t operation, uint32_t algorithm,
                   struct cluster_load *l) {
        double others = s->n_nodes - 1, peers = s->n_gpus - 1, far = s->n - s->n_gpus;
        bool exchange = operation == RING_OP_ALL_TO_ALL || operation == RING_OP_ALL_TO_ALL_V;

        switch (algorithm) {
        case PLAN_HIERARCHICAL:
                if (exchange)
                        set(l, 1, far, far * s->bytes, peers * s->bytes);
                else
                        set(l, 1, others, others * s->bytes, s->n_nodes * peers * s->bytes);
                return true;
        case PLAN_HIERARCHICAL_RAIL: /* all through one channel: who finds it full waits for a credit, and so on */
                set(l, 1 + 2 * floor(peers / geometry_of(c).slots), far, far * s->bytes, s->n_nodes * peers * s->bytes);
                return operation == RING_OP_ALL_TO_ALL;
        case PLAN_DIRECT:
                set(l, 1, far, far * s->bytes, peers * s->bytes);
                return true;
        default:
                return false;
        }
}

static bool barrier(const struct sizes *s, uint32_t algorithm, struct cluster_load *l) {
        set(l, ceil(log2(s->n_nodes)), ceil(log2(s->n_nodes)), 0, 0);
        return algorithm == PLAN_HIERARCHICAL;
}

/* ---- rails ------------------------------------------------------------------------------------------------------- */
static bool boxes(const struct cluster *c) {
        return c->cuts[1] > 0;
}

/* Rails between `part` nodes and all others; 0: each brings its own ones, so one node alone says it all. */
static double rails_between(const struct cluster *c, uint32_t part) {
        return boxes(c) ? c->cuts[part] : part == 1 ? c->n_rails : 0;
}

/* Node at place u of tree 0 or 1; see pass_double.c. The root is node 0. */
static uint32_t double_node(uint32_t n_nodes, bool root, uint32_t tree, uint32_t u) {
        uint32_t places = root ? n_nodes - 1 : n_nodes;

        return (tree == 0 ? u : places - 1 - u) + root;
}

/* Halves that go one way between the first `part` nodes and the others in two trees. */
static double double_crossing(uint32_t n_nodes, bool root, uint32_t part) {
        uint32_t down = 0, up = 0; /* from the first ones to others, and back */

        for (uint32_t k = 0; k < 2 * (root ? n_nodes - 1 : n_nodes); k++) {
                uint32_t tree = k % 2, u = k / 2, node = double_node(n_nodes, root, tree, u);
                uint32_t parent = u > 0 ? double_node(n_nodes, root, tree, (u - 1) / 2) : root ? 0 : node;

                down += parent < part && node >= part;
                up += parent >= part && node < part;
        }
        return root ? fmax(down, up) : down + up;
}

/* Of what the busiest box sends or gets, how many times as much goes one way between `part` boxes and the others. */
static double crossing(const struct sizes *s, uint32_t operation, uint32_t algorithm, double part) {
        double others = s->n_nodes - part, halves;
        bool root = plan_operation_rooted(operation);

        switch (algorithm) {
        case CLUSTER_RINGS:
        case PLAN_HIERARCHICAL_RING: /* as long as boxes that stand together follow one another */
        case PLAN_HIERARCHICAL_TREE: /* no more than what the node with most children has */
                return 1;
        case PLAN_HIERARCHICAL_DOUBLE_TREE: /* as long as the first boxes stand together */
                halves = root ? 2 : double_halves((uint32_t)s->n_nodes);
                return fmax(1, double_crossing((uint32_t)s->n_nodes, root, (uint32_t)part) / halves);
        case PLAN_HIERARCHICAL_DOUBLING: /* in one of its exchanges all of them */
                return fmax(1, fmin(part, others) / (s->levels + s->more));
        default: /* each with each; or one with all, wherever that one is */
                return (root ? fmax(part, others) : part * others) / (s->n_nodes - 1);
        }
}

/* Of the cut that takes longest, for each of its rails. */
static double boxes_rail_bytes(const struct cluster *c, const struct sizes *s, uint32_t operation, uint32_t algorithm,
                               double box_bytes) {
        double most = 0;

        for (uint32_t part = 1; part < c->n_nodes; part++)
                most = fmax(most, box_bytes * crossing(s, operation, algorithm, part) / c->cuts[part]);
        return most;
}

/* One ring through all GPUs for each rail: each hop carries its part of the data. */
static bool rings(const struct cluster *c, const struct sizes *s, uint32_t operation, struct cluster_load *l) {
        double hops = s->n_nodes - 1, near_hops = s->n - s->n_nodes, data;

        switch (operation) {
        case RING_OP_ALL_REDUCE:
                data = 2 * (s->n - 1) / s->n * s->bytes;
                hops *= 2;
                near_hops *= 2;
                break;
        case RING_OP_ALL_GATHER:
        case RING_OP_REDUCE_SCATTER:
                data = (s->n - 1) * s->bytes;
                break;
        case RING_OP_BROADCAST:
        case RING_OP_REDUCE:
                data = s->bytes;
                break;
        default:
                return false;
        }
        set(l, hops, hops, data / c->n_rails, data);
        l->rail_bytes = boxes(c) ? boxes_rail_bytes(c, s, operation, CLUSTER_RINGS, data) : data / c->n_rails;
        l->near_hops = near_hops;
        l->overlapped = true;
        return true;
}

/* Of our own plans. A message takes its sender's rail at both ends: what one rank alone sends goes over its own one,
 * and what others send it over all that they have. */
static double plan_rail_bytes(const struct cluster *c, const struct sizes *s, uint32_t operation, uint32_t algorithm,
                              double gpu_bytes) {
        bool alone = algorithm == PLAN_DIRECT && plan_operation_rooted(operation);
        bool gathers = operation == RING_OP_GATHER || operation == RING_OP_REDUCE;
        double on_a_rail = fmin(ceil(s->n_gpus / c->n_rails), s->n_gpus);

        if (boxes(c)) /* which way leads over which link is nobody's choice */
                return boxes_rail_bytes(c, s, operation, algorithm, alone ? gpu_bytes : gpu_bytes * s->n_gpus);
        if (alone)
                return gathers ? gpu_bytes * on_a_rail / s->n_gpus : gpu_bytes;
        return gpu_bytes * on_a_rail;
}

/* One node alone: what kernels of GPUs run there, and rings. False: there is no such plan. */
static bool one_node(uint32_t algorithm, struct cluster_load *l) {
        l->hops = l->messages = l->gpu_bytes = l->rail_bytes = 0;
        if (algorithm == PLAN_ONE_SHOT || algorithm == PLAN_DIRECT)
                l->near_hops = 1;
        else if (algorithm == PLAN_TWO_SHOT)
                l->near_hops = 2;
        else
                return algorithm == CLUSTER_RINGS;
        return true;
}

/* Hops in which somebody waits for a credit. */
static double waits(const struct cluster *cluster, uint32_t operation, uint32_t algorithm,
                    const struct cluster_load *l) {
        const struct plan_geometry geometry = geometry_of(cluster);
        bool counted = algorithm == CLUSTER_RINGS || algorithm == PLAN_HIERARCHICAL_RAIL; /* not ours; see of_all() */
        bool both = algorithm == PLAN_HIERARCHICAL_DOUBLE_TREE && cluster->n_nodes == 2 &&
                    plan_operation_rooted(operation); /* both trees have the same edge */
        double channels = l->messages;

        if (!cluster->staged || counted || l->messages <= 0 || l->gpu_bytes <= 0)
                return 0;
        if (both)
                channels /= 2;
        return 2 * (ceil(l->gpu_bytes / channels / geometry.part_bytes / geometry.slots) - 1);
}

int cluster_load_of(const struct cluster *cluster, uint32_t operation, uint32_t algorithm, double bytes,
                    struct cluster_load *ret_load) {
        struct sizes s = sizes_of(cluster, bytes);
        struct cluster_load l = {0};
        bool there = false;

        if (algorithm == CLUSTER_RINGS)
                there = rings(cluster, &s, operation, &l);
        else if (operation == RING_OP_ALL_REDUCE)
                there = all_reduce(cluster, &s, algorithm, &l);
        else if (plan_operation_rooted(operation))
                there = rooted(cluster, &s, operation, algorithm, &l);
        else if (operation == RING_OP_BARRIER)
                there = barrier(&s, algorithm, &l);
        else if (operation == RING_OP_ALL_GATHER || operation == RING_OP_REDUCE_SCATTER ||
                 operation == RING_OP_ALL_TO_ALL || operation == RING_OP_ALL_TO_ALL_V)
                there = of_all(cluster, &s, operation, algorithm, &l);
        if (!there)
                return PLAN_E_UNSUPPORTED;
        l.hops += waits(cluster, operation, algorithm, &l);
        if (cluster->n_nodes == 1 && !one_node(algorithm, &l))
                return PLAN_E_UNSUPPORTED;
        if (cluster->n_nodes > 1 && algorithm != CLUSTER_RINGS)
                l.rail_bytes = plan_rail_bytes(cluster, &s, operation, algorithm, l.gpu_bytes);
        *ret_load = l;
        return PLAN_OK;
}

double cluster_ns(const struct cluster *cluster, const struct cluster_load *l) {
        double rail = cluster->factor * l->rail_bytes / cluster->rail_gbs;
        double local = cluster->factor * l->local_bytes / cluster->gpu_gbs;

        if (cluster->n_nodes == 1)
                return l->near_hops * (l->overlapped ? cluster->near_ns : cluster->one.hop_ns) +
                       cluster->one.factor * l->local_bytes / cluster->gpu_gbs;
        return cluster->base_ns + l->hops * cluster->hop_ns + l->near_hops * cluster->near_ns +
               fmax(l->messages - l->hops, 0) * cluster->message_ns +
               (l->overlapped ? fmax(rail, local) : rail + local);
}

/* What has to go one way at least between any `part` nodes and the others; the root is where that is most. */
static double bound_bytes(const struct cluster *c, const struct sizes *s, uint32_t operation, double part) {
        double others = s->n_nodes - part;

        switch (operation) {
        case RING_OP_ALL_REDUCE: /* a sum or a result goes each way; and on the average of nodes that are alike: */
                return boxes(c) ? s->bytes : 2 * others / s->n_nodes * s->bytes;
        case RING_OP_REDUCE:
        case RING_OP_BROADCAST:
                return s->bytes;
        case RING_OP_ALL_TO_ALL:
        case RING_OP_ALL_TO_ALL_V:
                return part * others * s->n_gpus * s->n_gpus * s->bytes;
        case RING_OP_BARRIER:
                return 0;
        default: /* a block of each rank of one side goes to the other */
                return fmax(part, others) * s->n_gpus * s->bytes;
        }
}

double cluster_bound_ns(const struct cluster *cluster, uint32_t operation, double bytes, uint32_t *ret_part) {
        const struct cluster gpus = {.n_nodes = cluster->n_gpus,
                                     .n_gpus = 1,
                                     .n_rails = 1,
                                     .rail_gbs = cluster->gpu_gbs * cluster->one.nominal};
        struct sizes s = sizes_of(cluster, bytes);
        double most = 0;
        uint32_t tightest = 1;

        if (cluster->n_nodes == 1 && cluster->n_gpus > 1 && gpus.rail_gbs > 0)
                return cluster_bound_ns(&gpus, operation, bytes, ret_part);
        for (uint32_t part = 1; part < cluster->n_nodes; part++) {
                double rails = rails_between(cluster, part), ns;

                if (rails <= 0)
                        break;
                ns = bound_bytes(cluster, &s, operation, part) / (rails * cluster->rail_gbs);
                if (ns > most) {
                        most = ns;
                        tightest = part;
                }
        }
        if (ret_part)
                *ret_part = tightest;
        return most;
}

double ranks_cut_bytes(uint32_t operation, double k, double n, double bytes) {
        switch (operation) {
        case RING_OP_ALL_REDUCE:
        case RING_OP_REDUCE:
        case RING_OP_BROADCAST:
                return bytes;
        case RING_OP_ALL_TO_ALL:
        case RING_OP_ALL_TO_ALL_V:
                return k * (n - k) * bytes;
        case RING_OP_GATHER:
        case RING_OP_SCATTER:
                return (n - k) * bytes;
        case RING_OP_SEND: /* to one rank, which may be on either side */
                return k == 1 ? bytes : 0;
        case RING_OP_BARRIER:
                return 0;
        default: /* a block of each rank of one side goes to the other */
                return fmax(k, n - k) * bytes;
        }
}

/* An all_reduce has to move as much each way only once between two sets of ranks, but 2 (n - 1) times by all ranks
 * together, as no switch adds up (Patarasuk and Yuan 2009). */
double ranks_sent_bytes(uint32_t operation, double n, double bytes) {
        return operation == RING_OP_ALL_REDUCE ? 2 * (n - 1) * bytes : 0;
}

double cluster_bus_gbs(const struct cluster *cluster, uint32_t operation, double bytes, double ns) {
        double n = (double)cluster->n_nodes * cluster->n_gpus;

        if (!(ns > 0))
                return 0; /* nothing has to move */
        switch (operation) {
        case RING_OP_ALL_REDUCE:
                return 2 * (n - 1) / n * bytes / ns;
        case RING_OP_REDUCE:
        case RING_OP_BROADCAST:
        case RING_OP_SEND:
                return bytes / ns;
        case RING_OP_BARRIER:
                return 0;
        default:
                return (n - 1) * bytes / ns;
        }
}

bool cluster_algorithm_ordered(uint32_t operation, uint32_t algorithm) {
        if (algorithm == CLUSTER_RINGS)
                return false; /* no plan of ours */
        return !plan_operation_reduces(operation) || algorithm == PLAN_HIERARCHICAL ||
               algorithm == PLAN_HIERARCHICAL_SCATTER;
}

const char *cluster_algorithm_name(uint32_t algorithm) {
        return algorithm == CLUSTER_RINGS ? "rings" : plan_algorithm_name(algorithm);
}
