/* SPDX-License-Identifier: MIT */
/* Results as text. What is equal for many ranks or links is said once. */
#include "tools/sim/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/sim/words.h"
#include "util/parse.h"
#include "util/type.h"

#define MATRIX_RANKS_MAX 12u

static const char *size_text(uint64_t bytes, char out[32]) {
        return format_size(bytes, out, 32);
}

static void print_us(double ns) {
        printf(" %11.2f", ns / 1000);
}

void report_begin(const struct sim *sim) {
        const struct options *o = sim->options;
        char part[32], staging[32];

        if (o->nodes > 1 && o->workers) {
                printf("# %u nodes of %u rank%s, %u at once on each, %u rail%s; between nodes %.0f us a hop, %.2f ns a "
                       "byte on each rail\n",
                       o->nodes, o->gpus, o->gpus == 1 ? "" : "s", sim->constants.parallel, o->rails,
                       o->rails == 1 ? "" : "s", sim->net.hop_ns / 1000, sim->net.ns_per_byte);
                return;
        }
        if (o->nodes == 1 && !o->workers) {
                printf("# 1 node of %u GPU%s\n", o->gpus, o->gpus == 1 ? "" : "s");
                return;
        }
        if (o->nodes > 1) {
                printf("# %u nodes of %u GPU%s, %u rail%s; between nodes %.0f us a hop, %.2f ns a byte on each rail\n",
                       o->nodes, o->gpus, o->gpus == 1 ? "" : "s", o->rails, o->rails == 1 ? "" : "s",
                       sim->net.hop_ns / 1000, sim->net.ns_per_byte);
                return;
        }
        printf("# %u ranks%s, %u at once, parts of %s, %u slots, staging %s\n", sim->n_ranks,
               sim->device ? " on GPUs" : "", sim->constants.parallel, size_text(sim->geometry.part_bytes, part),
               sim->geometry.slots, size_text(plan_staging_bytes(&sim->geometry, sim->n_ranks), staging));
        if (sim->hops_and_links && sim->source)
                printf("# predicted: %.2f us a hop and %.2f times what the busiest link takes (%s)\n",
                       sim->constants.hop_ns / 1000, sim->link_factor, sim->source);
        else if (sim->hops_and_links)
                puts("# times are not predicted, as nothing is known of such GPUs; they are what links take at least");
}

static const struct sim_candidate *chosen_of(const struct sim_result *result) {
        for (uint32_t i = 0; i < result->n_candidates; i++)
                if (result->candidates[i].chosen)
                        return &result->candidates[i];
        return NULL;
}

/* The fastest but the chosen one, of those that may be chosen or of the others. */
static const struct sim_candidate *fastest_of(const struct sim_result *result, bool may) {
        const struct sim_candidate *best = NULL;

        for (uint32_t i = 0; i < result->n_candidates; i++) {
                const struct sim_candidate *c = &result->candidates[i];

                if (!c->chosen && c->may == may && (!best || c->ns < best->ns))
                        best = c;
        }
        return best;
}

static void print_faster(const struct sim_candidate *chosen, const struct sim_candidate *other, const char *why) {
        printf("; %s is predicted faster by %.0f %%, %s", plan_algorithm_name(other->plan.algorithm),
               100 * (1 - other->ns / chosen->ns), why);
}

static void print_why(const struct sim *sim, const struct sim_result *result) {
        const struct sim_candidate *chosen = chosen_of(result), *next, *never;
        const char *limit;

        if (!chosen)
                return;
        next = fastest_of(result, true);
        never = fastest_of(result, false);
        limit = sim_limit(chosen);
        printf("Chosen: %s; ", plan_algorithm_name(chosen->plan.algorithm));
        if (strcmp(limit, "path") == 0)
                printf("its time is that of a chain of %d hops", chosen->hops);
        else if (strcmp(limit, "rank") == 0)
                printf("its time is the work of the busiest rank");
        else if (strcmp(limit, "workers") == 0)
                printf("its time is the work of all ranks, done by %u at once", sim->constants.parallel);
        else
                printf("its time is that of the busiest link");
        if (next && next->ns < chosen->ns)
                print_faster(chosen, next,
                             sim->device                       ? "but the table for GPUs goes by size alone"
                             : next->cost.ns < chosen->cost.ns ? "which is too little, or for too few sizes, to change"
                                                               : "which only the topology knows");
        else if (next && chosen->ns > 0)
                printf("; the next best, %s, takes %.2f times as long", plan_algorithm_name(next->plan.algorithm),
                       next->ns / chosen->ns);
        else if (next)
                printf("; %s is as good", plan_algorithm_name(next->plan.algorithm));
        if (never && never->ns < chosen->ns)
                print_faster(chosen, never,
                             never->plan.tree > PLAN_TREE_RANK_ORDER ? "but adds in another order"
                                                                     : "but kernels of GPUs cannot run it");
        puts(next ? "" : never ? "; nothing else may be chosen" : "; nothing else exists");
}

static void print_candidates(const struct sim *sim, const struct sim_result *result) {
        printf("  %-20s %11s %11s %11s %11s %11s", "algorithm", "predicted", "bus", "path", "rank", "workers");
        if (sim->topology)
                printf(" %11s", "link");
        printf(" %5s  %s\n", "hops", "tree");
        printf("  %-20s %11s %11s %11s %11s %11s%s\n", "", "(us)", "(GB/s)", "(us)", "(us)", "(us)",
               sim->topology ? "        (us)" : "");
        for (uint32_t i = 0; i < result->n_candidates; i++) {
                const struct sim_candidate *c = &result->candidates[i];

                printf("%c %-20s", c->chosen ? '*' : ' ', plan_algorithm_name(c->plan.algorithm));
                print_us(c->ns);
                printf(" %11.2f", sim_bus_gbs(sim, result, c->ns));
                print_us(c->cost.critical_ns);
                print_us(c->cost.busiest_ns);
                print_us(c->cost.shared_ns);
                if (sim->topology)
                        print_us(c->link_ns);
                printf(" %5d  %s\n", c->hops, plan_tree_name(c->plan.tree));
        }
}

/* What nothing can beat. */
static void print_bound(const struct sim *sim, const struct sim_result *result) {
        const struct node_bound *bound = &result->bound;
        char whose[64];

        if (!sim->topology || bound->ns <= 0)
                return;
        if (bound->n_part == 0)
                snprintf(whose, sizeof(whose), "what all ranks can send together is");
        else if (bound->n_part == 1 || bound->n_part + 1 == sim->n_ranks)
                snprintf(whose, sizeof(whose), "the smallest cut, around one rank, is");
        else
                snprintf(whose, sizeof(whose), "the smallest cut, of %u ranks from %u, is", bound->n_part,
                         sim->n_ranks - bound->n_part);
        printf("At least %.2f us, whatever the algorithm: %s %.1f GB/s; bus %.2f GB/s at most\n", bound->ns / 1000,
               whose, (double)bound->bytes_per_second / 1e9, sim_bus_gbs(sim, result, bound->ns));
}

static void print_ranks(const struct traffic *t) {
        printf("  %-7s %9s %17s %17s %12s %12s %12s %12s\n", "ranks", "steps", "chunks out/in", "signals out/in",
               "copied (B)", "reduced (B)", "output (B)", "far (B)");
        for (uint32_t first = 0, last; first < t->n_ranks; first = last + 1) {
                const struct traffic_rank *r = &t->rank[first];
                char who[16];

                for (last = first; last + 1 < t->n_ranks && memcmp(r, &t->rank[last + 1], sizeof(*r)) == 0; last++)
                        ;
                snprintf(who, sizeof(who), last > first ? "%u-%u" : "%u", first, last);
                printf("  %-7s %9" PRIu64 " %8" PRIu64 "/%-8" PRIu64 " %8" PRIu64 "/%-8" PRIu64 " %12" PRIu64
                       " %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "\n",
                       who, r->steps, r->chunks_sent, r->chunks_taken, r->signals_sent, r->signals_taken,
                       r->bytes_copied, r->bytes_reduced, r->bytes_output, r->bytes_far);
        }
}

static void print_matrix(const struct traffic *t) {
        const struct traffic_link *first = NULL;
        uint32_t n = t->n_ranks, used = 0;
        bool equal = true;

        for (uint32_t a = 0; a < n; a++)
                for (uint32_t b = 0; b < n; b++) {
                        const struct traffic_link *link = &t->link[a][b];

                        if (a == b || link->bytes + link->chunks + link->signals == 0)
                                continue;
                        used++;
                        first = first ? first : link;
                        equal = equal && memcmp(first, link, sizeof(*link)) == 0;
                }
        if (used == 0)
                return;
        if (equal) {
                printf("  %u of %u pairs are used, each: %" PRIu64 " bytes, %" PRIu64 " chunks, %" PRIu64 " signals\n",
                       used, n * (n - 1), first->bytes, first->chunks, first->signals);
                if (used == n * (n - 1))
                        return;
        }
        if (n > MATRIX_RANKS_MAX) {
                if (!equal)
                        printf("  %u of %u pairs are used, unequally; --json has them all\n", used, n * (n - 1));
                return;
        }
        printf("  bytes from (row) to (column)\n  %4s", "");
        for (uint32_t b = 0; b < n; b++)
                printf(" %11u", b);
        for (uint32_t a = 0; a < n; a++) {
                printf("\n  %4u", a);
                for (uint32_t b = 0; b < n; b++)
                        if (a == b)
                                printf(" %11s", "-");
                        else
                                printf(" %11" PRIu64, t->link[a][b].bytes);
        }
        putchar('\n');
}

/* Of each GPU, what goes over links that share what it has. */
static void print_sums(const struct sim *sim, const struct sim_candidate *c) {
        const struct topology *topology = sim->topology;

        for (uint32_t rank = 0; rank < sim->n_ranks; rank++) {
                const struct sim_sum *sum = &c->sums[rank];
                uint64_t bytes = sum->out > sum->in ? sum->out : sum->in;
                char name[100], gpu[NODE_LABEL_MAX];

                if (bytes == 0)
                        continue;
                snprintf(name, sizeof(name), "%s - all",
                         node_label(topology, topology_find(topology, TOPOLOGY_GPU, rank), gpu));
                printf("  %-24s %-7s %14" PRIu64 " %14" PRIu64, name,
                       topology_link_kind_name(topology->links[sum->link].kind), sum->out, sum->in);
                if (sum->bytes_per_second > 0)
                        print_us((double)bytes * 1e9 / (double)sum->bytes_per_second);
                putchar('\n');
        }
}

void report_links(const struct sim *sim, const struct sim_candidate *c) {
        const struct topology *topology = sim->topology;

        printf("  %-24s %-7s %14s %14s %11s\n", "link", "kind", "forth (B)", "back (B)", "at least (us)");
        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];
                const struct sim_link *load = &c->links[i];
                uint64_t bytes = load->forth > load->back ? load->forth : load->back;
                char name[2 * NODE_LABEL_MAX + 4], a[NODE_LABEL_MAX], b[NODE_LABEL_MAX];

                if (bytes == 0)
                        continue;
                snprintf(name, sizeof(name), "%s - %s", node_label(topology, link->a, a),
                         node_label(topology, link->b, b));
                printf("  %-24s %-7s %14" PRIu64 " %14" PRIu64, name, topology_link_kind_name(link->kind), load->forth,
                       load->back);
                if (link->bytes_per_second > 0)
                        print_us((double)bytes * 1e9 / (double)link->bytes_per_second);
                putchar('\n');
        }
        print_sums(sim, c);
}

static void print_details(const struct sim *sim, const struct sim_candidate *c) {
        char text[WORDS_TREE_MAX], phase[WORDS_PHASE_MAX];

        printf("\nPlan %s %s\n", plan_operation_name(c->plan.operation), plan_algorithm_name(c->plan.algorithm));
        for (uint32_t p = 0; p < c->plan.n_phases; p++)
                printf("  %u %-7s %s\n", p, plan_kind_name(c->plan.phases[p].kind), words_phase(&c->plan, p, phase));
        if (c->plan.tree != PLAN_TREE_NONE)
                printf("  reduction: %s%s\n", words_tree(&c->plan, sim->options->root, text),
                       c->plan.tree == PLAN_TREE_ROTATED && !plan_operation_rooted(c->plan.operation)
                               ? " for the first shard, and so on around"
                               : "");
        print_ranks(c->traffic);
        print_matrix(c->traffic);
        if (sim->topology)
                report_links(sim, c);
}

void report_result(const struct sim *sim, const struct sim_result *result) {
        char size[32];

        printf("\n%s, %s, %" PRIu64 " elements of %s\n", plan_operation_name(sim->options->operation),
               size_text(result->bytes, size), result->count, type_name(sim->options->type));
        print_candidates(sim, result);
        print_bound(sim, result);
        print_why(sim, result);
        for (uint32_t i = 0; i < result->n_candidates; i++)
                if (result->candidates[i].shown)
                        print_details(sim, &result->candidates[i]);
}

static const char *widening_text(uint32_t widening, char out[48]) {
        if (widening > 1)
                snprintf(out, 48, ", sums %u times as long as elements", widening);
        return widening > 1 ? out : widening ? ", sums as long as elements" : "";
}

void report_choices(const struct sim *sim) {
        uint64_t from = 0;
        char size[32], widening[48];

        for (uint32_t i = 0; i < sim->n_choices; i++) {
                const struct plan_choice *c = &sim->choices[i];
                bool first = i == 0 || sim->choices[i - 1].max_bytes == UINT64_MAX; /* of its widening */
                bool named = i > 0 && sim->choices[i - 1].operation == c->operation;

                printf("%-15s %-*s ", named ? "" : plan_operation_name(c->operation), sim->options->nodes ? 27 : 20,
                       plan_algorithm_name(c->algorithm));
                if (c->max_bytes < UINT64_MAX)
                        printf("up to %s", size_text(c->max_bytes, size));
                else
                        printf("%s%s", first ? "all sizes" : "above ", first ? "" : size_text(from, size));
                printf("%s\n", widening_text(c->widening, widening));
                from = c->max_bytes;
        }
}
