/* SPDX-License-Identifier: MIT */
/*
 * The table of choices
 *
 * For every operation all algorithms that exist are priced at powers of two of bytes, and the cheapest one wins. Points
 * that follow one another with the same winner are a class. Models are smooth but not exact, and two that run side by
 * side would take turns; so the winner of the size below keeps a size unless another one is clearly better, and a class
 * narrower than two powers of two goes to the neighbour that costs less there. A table that still has too many classes
 * loses the narrowest ones. Where between two powers of two the winner below would keep a size for the last time is
 * then looked for, to a sixteenth of the distance: just above the lower one its follower may take half as long again.
 * For GPUs it is not, since prices are rough there.
 *
 * Over nodes partial sums travel as accumulators, while inputs and results are elements. So what is cheapest depends on
 * how many times as long accumulators are: fp16 and bf16 twice, fp8 four times, integers once but for averages, whose
 * accumulators have eight bytes. Sums have classes for each of these; where all are alike, one stands for all. On one
 * node nothing that is a candidate sends partial sums.
 *
 * Only plans that reduce in rank order (over nodes: node by node) are candidates, unless one is asked for by name: so
 * the bits of a result depend neither on its size nor on what the machine is good at.
 *
 * Over nodes, what goes by channels alone inside a node as well is for GPUs, which can do nothing else; executors of
 * the host read and write what lies in the memory of their node. On GPUs elements of two bytes are priced, as models
 * exchange them: sums of those are twice as long on their way, which decides between sending all of a node's sums to
 * all nodes, once, and sending each piece to the node that adds it up and the result back. Where no node has two ranks
 * there is nothing to add up before, and the plans are those of one node, in rank order; but where one shot ends and
 * two begin is priced, since a hop between nodes takes sixty times as long. (Of two ranks two shots send no less.)
 */
#include <math.h>

#include "plan/cost.h"
#include "ring/ring.h"

#define SHIFT_MIN     4u
#define SHIFT_MAX     30u
#define N_POINTS      (SHIFT_MAX - SHIFT_MIN + 1)
#define PARTIAL_BYTES 4u /* at least */
#define CLEARLY       0.97
#define WIDTH_MIN     2u
#define CLASSES_MAX   5u
#define BORDER_STEPS  4u

/* Of whoever does not say which ones it knows. */
#define ALGORITHMS_UNSAID 17u

/* Two shots move fewer bytes, which executors with few workers feel first: with 31 on each of four H200s 32 KB took 16
 * us in one shot, and 64 KB took 12 in two. */
#define DEVICE_ONE_SHOT_BYTES 16384u

/* Over nodes: all lanes of a kernel together, and their slots in wires (gpu/device/wire.h). */
#define DEVICE_WIDENING 2u
static const struct plan_geometry device_geometry = {.part_bytes = 135 * 1024, .slots = 4};

static const uint32_t operations[] = {
        RING_OP_ALL_REDUCE,     RING_OP_REDUCE,     RING_OP_BROADCAST,    RING_OP_ALL_GATHER,
        RING_OP_REDUCE_SCATTER, RING_OP_ALL_TO_ALL, RING_OP_ALL_TO_ALL_V, RING_OP_GATHER,
        RING_OP_SCATTER,        RING_OP_SEND,       RING_OP_BARRIER,
};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))
#define N_REDUCING   3u

static const uint32_t widenings[] = {1, 2, 4, PLAN_WIDENING_MAX};
#define N_WIDENINGS (sizeof(widenings) / sizeof(widenings[0]))
_Static_assert((N_OPERATIONS - N_REDUCING + N_REDUCING * N_WIDENINGS) * CLASSES_MAX <= PLAN_CHOICES_MAX,
               "every operation gets its classes into the table");

struct prices {
        uint32_t n;
        uint32_t algorithm[PLAN_ALGORITHM_COUNT];
        struct plan_model model[PLAN_ALGORITHM_COUNT];
        double ns[PLAN_ALGORITHM_COUNT][N_POINTS];
};

struct class {
        uint32_t who; /* position in prices */
        uint32_t first, n;
};

/* What a table is made for. */
struct asked {
        const struct plan_constants *constants;
        uint32_t n_ranks;
        const struct plan_over *over; /* NULL: one node */
        bool device;                  /* over nodes: they are on GPUs */
        bool alone;                   /* each on a node of its own */
};

static uint32_t algorithm_at(const struct asked *asked, uint32_t operation, uint32_t k) {
        return asked->over ? plan_algorithm_at_nodes(operation, asked->n_ranks, asked->over->nodes, k)
                           : plan_algorithm_at(operation, asked->n_ranks, k);
}

static int build(const struct asked *asked, uint32_t operation, uint32_t algorithm, struct plan *ret_plan) {
        return asked->over ? plan_build_nodes(operation, algorithm, asked->n_ranks, asked->over->nodes, ret_plan)
                           : plan_build(operation, algorithm, asked->n_ranks, ret_plan);
}

static bool algorithm_staged(uint32_t algorithm) {
        return algorithm == PLAN_HIERARCHICAL_STAGED || algorithm == PLAN_HIERARCHICAL_STAGED_SCATTER;
}

/* Is it for those who execute it? */
static bool algorithm_fits(const struct asked *asked, uint32_t algorithm) {
        if (asked->over && asked->over->algorithms && algorithm >= asked->over->algorithms)
                return false;
        if (!asked->device)
                return !algorithm_staged(algorithm);
        return algorithm_staged(algorithm) || algorithm == PLAN_DIRECT || algorithm == PLAN_ONE_SHOT ||
               algorithm == PLAN_TWO_SHOT;
}

/* May it be chosen without being asked for? */
static bool tree_fits(const struct asked *asked, const struct plan *plan) {
        if (!asked->over || asked->alone)
                return plan->tree <= PLAN_TREE_RANK_ORDER;
        return asked->over->any_tree || plan->tree == PLAN_TREE_NONE || plan->tree == PLAN_TREE_NODE_ORDER;
}

static double price_at(const struct prices *prices, uint32_t who, uint64_t bytes) {
        const struct plan_model *model = &prices->model[who];
        struct plan_cost cost;

        plan_model_predict(model, bytes / model->element_bytes, &cost);
        return cost.ns;
}

static int price(const struct asked *asked, uint32_t operation, uint32_t only, uint32_t widening,
                 struct prices *prices) {
        const uint32_t element_bytes = widening < PARTIAL_BYTES ? PARTIAL_BYTES / widening : 1;
        struct plan plan;
        uint32_t algorithm;

        prices->n = 0;
        for (uint32_t k = 0; (algorithm = algorithm_at(asked, operation, k)) != PLAN_ALGORITHM_NONE; k++) {
                int r;

                if (only != PLAN_ALGORITHM_NONE ? algorithm != only : !algorithm_fits(asked, algorithm))
                        continue;
                r = build(asked, operation, algorithm, &plan);
                if (!r && only == PLAN_ALGORITHM_NONE && !tree_fits(asked, &plan))
                        continue;
                if (!r)
                        r = plan_model_init_net(&prices->model[prices->n], &plan, asked->constants,
                                                asked->over ? asked->over->net : NULL,
                                                asked->device ? &device_geometry : NULL, element_bytes,
                                                element_bytes * widening);
                if (r)
                        return r;
                prices->algorithm[prices->n] = algorithm;
                for (uint32_t i = 0; i < N_POINTS; i++)
                        prices->ns[prices->n][i] = price_at(prices, prices->n, UINT64_C(1) << (SHIFT_MIN + i));
                prices->n++;
        }
        return 0;
}

static uint32_t cheapest(const struct prices *prices, uint32_t point, uint32_t incumbent) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < prices->n; i++)
                if (prices->ns[i][point] < prices->ns[best][point])
                        best = i;
        if (incumbent < prices->n && prices->ns[best][point] >= CLEARLY * prices->ns[incumbent][point])
                return incumbent;
        return best;
}

/* Class i goes to its neighbours, each point to who is cheaper there. Returns how many classes are left. */
static uint32_t class_drop(const struct prices *prices, struct class *classes, uint32_t n, uint32_t i) {
        struct class *gone = &classes[i], *low = i > 0 ? gone - 1 : NULL, *high = i + 1 < n ? gone + 1 : NULL;
        uint32_t kept = 0;

        while (low && gone->n > 0 &&
               (!high || prices->ns[low->who][gone->first] <= prices->ns[high->who][gone->first])) {
                low->n++;
                gone->first++;
                gone->n--;
        }
        if (high) {
                high->first -= gone->n;
                high->n += gone->n;
        }
        gone->n = 0;
        for (uint32_t k = 0; k < n; k++) {
                if (classes[k].n == 0)
                        continue;
                if (kept > 0 && classes[kept - 1].who == classes[k].who)
                        classes[kept - 1].n += classes[k].n;
                else
                        classes[kept++] = classes[k];
        }
        return kept;
}

/* The largest size that the class below keeps; at the next power of two the one above has won. */
static uint64_t border(const struct prices *prices, const struct class *low, const struct class *high) {
        uint64_t bytes = UINT64_C(1) << (SHIFT_MIN + high->first - 1), step = bytes;

        for (uint32_t i = 0; i < BORDER_STEPS; i++) {
                step /= 2;
                if (price_at(prices, high->who, bytes + step) >= CLEARLY * price_at(prices, low->who, bytes + step))
                        bytes += step;
        }
        return bytes;
}

static uint32_t choose(const struct asked *asked, const struct prices *prices, uint32_t operation,
                       struct plan_choice *choices) {
        struct class classes[N_POINTS];
        uint32_t n = 0, who = UINT32_MAX;
        uint64_t max_bytes = UINT64_MAX;

        for (uint32_t i = 0; i < N_POINTS; i++) {
                uint32_t winner = cheapest(prices, i, who);

                if (winner != who)
                        classes[n++] = (struct class){.who = winner, .first = i};
                classes[n - 1].n++;
                who = winner;
        }
        for (;;) {
                uint32_t narrowest = 0;

                for (uint32_t i = 1; i < n; i++)
                        if (classes[i].n < classes[narrowest].n)
                                narrowest = i;
                if (n < 2 || (classes[narrowest].n >= WIDTH_MIN && n <= CLASSES_MAX))
                        break;
                n = class_drop(prices, classes, n, narrowest);
        }
        /* Over nodes nobody knows how much the ranks of other nodes send in an all_to_all_v, so it has one class. */
        if (operation == RING_OP_ALL_TO_ALL_V && asked->over && !asked->device) {
                classes[0] = classes[n - 1];
                n = 1;
        }
        for (uint32_t i = n; i-- > 0;) {
                uint64_t bytes;

                choices[i] = (struct plan_choice){
                        .operation = operation,
                        .algorithm = prices->algorithm[classes[i].who],
                        .max_bytes = max_bytes,
                };
                if (i == 0)
                        break;
                bytes = asked->device ? UINT64_C(1) << (SHIFT_MIN + classes[i].first - 1)
                                      : border(prices, &classes[i - 1], &classes[i]);
                /* This class stays as wide as one has to be. */
                max_bytes = bytes < max_bytes >> WIDTH_MIN ? bytes : max_bytes >> WIDTH_MIN;
        }
        return n;
}

static bool choices_alike(const struct plan_choice *a, uint32_t n_a, const struct plan_choice *b, uint32_t n_b) {
        for (uint32_t i = 0; i < n_a && n_a == n_b; i++)
                if (a[i].algorithm != b[i].algorithm || a[i].max_bytes != b[i].max_bytes)
                        return false;
        return n_a == n_b;
}

/* How many; -1: memory is short. */
static int choose_operation(const struct asked *asked, uint32_t operation, uint32_t only, struct plan_choice *choices) {
        bool widens = asked->over && !asked->device && !asked->over->any_widening && plan_operation_reduces(operation);
        uint32_t n = 0, n_first = 0;
        struct prices prices;
        bool alike = true;

        for (size_t w = 0; w < (widens ? N_WIDENINGS : 1); w++) {
                struct plan_choice *made = choices + n;
                uint32_t n_made;

                if (price(asked, operation, only, asked->device ? DEVICE_WIDENING : widenings[w], &prices))
                        return -1;
                n_made = prices.n > 0 ? choose(asked, &prices, operation, made) : 0;
                for (uint32_t i = 0; i < n_made; i++)
                        made[i].widening = widenings[w];
                if (w == 0)
                        n_first = n_made;
                alike = alike && choices_alike(choices, n_first, made, n_made);
                n += n_made;
                if (prices.n < 2) /* there is nothing to choose */
                        break;
        }
        for (uint32_t i = 0; alike && i < n_first; i++)
                choices[i].widening = 0;
        return (int)(alike ? n_first : n);
}

static uint32_t choose_all(const struct asked *asked, uint32_t operation, uint32_t algorithm,
                           struct plan_choice choices[PLAN_CHOICES_MAX]) {
        struct plan plan;
        uint32_t n = 0;

        if (asked->n_ranks < 1 || asked->n_ranks > PLAN_RANKS_MAX)
                return 0;
        for (size_t i = 0; i < N_OPERATIONS; i++) {
                bool forced = (operation == RING_OP_NONE || operation == operations[i]) &&
                              build(asked, operations[i], algorithm, &plan) == PLAN_OK;
                int made =
                        choose_operation(asked, operations[i], forced ? algorithm : PLAN_ALGORITHM_NONE, choices + n);

                if (made < 0)
                        return 0;
                n += (uint32_t)made;
        }
        return n;
}

uint32_t plan_choose_restricted(const struct plan_constants *constants, uint32_t n_ranks, uint32_t operation,
                                uint32_t algorithm, struct plan_choice choices[PLAN_CHOICES_MAX]) {
        const struct asked asked = {.constants = constants, .n_ranks = n_ranks};

        return choose_all(&asked, operation, algorithm, choices);
}

uint32_t plan_choose_nodes(const struct plan_over *over, struct plan_choice choices[PLAN_CHOICES_MAX]) {
        const struct asked asked = {.constants = over->constants, .n_ranks = over->n_ranks, .over = over};

        if (over->nodes->n_nodes < 2 || !plan_nodes_valid(over->nodes, over->n_ranks) || over->net->n_rails < 1)
                return 0;
        return choose_all(&asked, over->operation, over->algorithm, choices);
}

uint32_t plan_choose_device_nodes(const struct plan_nodes *nodes, uint32_t n_ranks, const struct plan_net *net,
                                  struct plan_choice choices[PLAN_CHOICES_MAX]) {
        struct plan_constants constants;
        const struct plan_over over = {.constants = &constants, .net = net, .nodes = nodes, .n_ranks = n_ranks};
        struct asked asked = {.constants = &constants, .n_ranks = n_ranks, .over = &over, .device = true};

        if (!plan_nodes_valid(nodes, n_ranks) || net->n_rails < 1)
                return 0;
        if (nodes->n_nodes < 2)
                return plan_choose_device(n_ranks, choices);
        asked.alone = plan_nodes_largest(nodes) == 1; /* there is nothing to add up inside a node */
        plan_constants_device(&constants);
        return choose_all(&asked, RING_OP_NONE, PLAN_ALGORITHM_NONE, choices);
}

uint32_t plan_choose(const struct plan_constants *constants, uint32_t n_ranks,
                     struct plan_choice choices[PLAN_CHOICES_MAX]) {
        return plan_choose_restricted(constants, n_ranks, RING_OP_NONE, PLAN_ALGORITHM_NONE, choices);
}

uint32_t plan_choose_device(uint32_t n_ranks, struct plan_choice choices[PLAN_CHOICES_MAX]) {
        static const struct plan_choice all_reduce[] = {
                {RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, DEVICE_ONE_SHOT_BYTES, 0},
                {RING_OP_ALL_REDUCE, PLAN_TWO_SHOT, UINT64_MAX, 0},
        };
        struct plan plan;
        uint32_t n = 0;

        if (n_ranks < 1 || n_ranks > PLAN_RANKS_MAX)
                return 0;
        for (size_t i = 0; i < sizeof(all_reduce) / sizeof(all_reduce[0]); i++)
                choices[n++] = all_reduce[i];
        for (size_t i = 0; i < N_OPERATIONS; i++)
                if (plan_build(operations[i], PLAN_DIRECT, n_ranks, &plan) == PLAN_OK)
                        choices[n++] = (struct plan_choice){operations[i], PLAN_DIRECT, UINT64_MAX, 0};
        return n;
}

void plan_known_all(struct plan_known *ret_known) {
        *ret_known = (struct plan_known){.widenings = true, .algorithms = PLAN_ALGORITHM_COUNT};
}

void plan_known_meet(struct plan_known *known, bool widens, uint32_t algorithms) {
        if (algorithms == 0)
                algorithms = ALGORITHMS_UNSAID;
        known->widenings = known->widenings && widens;
        if (algorithms < known->algorithms)
                known->algorithms = algorithms;
}

uint32_t plan_widening(uint32_t element_bytes, uint32_t partial_bytes) {
        uint32_t times = partial_bytes / element_bytes;

        return times < 1 ? 1 : times > PLAN_WIDENING_MAX ? PLAN_WIDENING_MAX : times;
}

const struct plan_choice *plan_choice_find(const struct plan_choice *choices, uint32_t n_choices, uint32_t operation,
                                           uint32_t widening, uint64_t bytes) {
        for (uint32_t i = 0; i < n_choices; i++)
                if (choices[i].operation == operation && bytes <= choices[i].max_bytes &&
                    (choices[i].widening == 0 || choices[i].widening == widening))
                        return &choices[i];
        return NULL;
}
