/* SPDX-License-Identifier: MIT */
/*
 * A graph as a tree: below each NUMA node what hangs on it, then what hangs on nothing; then links by kind, then NICs
 * that may be rails.
 * Graphs from files may have loops and long chains, so everything is shown once and depth is bounded.
 */
#include "tools/ctl/json.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"
#include "topology/rails.h"
#include "topology/topology.h"
#include "util/cleanup.h"
#include "util/parse.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 24u
#define ID_MAX    32u
#define LIST_MAX  512u /* bytes */

struct tree {
        const struct topology *graph;
        const struct topology_rails *rails;
        bool *shown; /* by position */
        FILE *out;
};

static const char *node_id(const struct topology *graph, uint32_t position, char out[ID_MAX]) {
        snprintf(out, ID_MAX, "%s%u", topology_node_kind_name(graph->nodes[position].kind),
                 graph->nodes[position].index);
        return out;
}

static double gigabytes(uint64_t bytes) {
        return (double)bytes / 1e9;
}

/* ---- text ---- */

static void show_word(struct tree *tree, const char *word, const char *separator) {
        if (*word)
                fprintf(tree->out, "%s%s", separator, word);
}

/* "PCIe 5.0 x16, 63.0 GB/s" */
static void show_speed(struct tree *tree, const struct topology_link *link) {
        if (link->kind == TOPOLOGY_LINK_PCI && link->generation && link->width)
                fprintf(tree->out, ", PCIe %u.0 x%u", link->generation, link->width);
        else
                fprintf(tree->out, ", %s", topology_link_kind_name(link->kind));
        if (link->bytes_per_second)
                fprintf(tree->out, " %.1f GB/s", gigabytes(link->bytes_per_second));
}

static void show_node(struct tree *tree, uint32_t position, const struct topology_link *link, unsigned int depth) {
        const struct topology_node *node = &tree->graph->nodes[position];
        uint32_t rail = topology_rail_of(tree->rails, position);
        char id[ID_MAX], size[32];

        tree->shown[position] = true;
        fprintf(tree->out, "%*s%s", (int)(2 * depth), "", node_id(tree->graph, position, id));
        show_word(tree, strcmp(node->name, id) != 0 ? node->name : "", "  ");
        if (strcmp(node->pci, node->name) != 0)
                show_word(tree, node->pci, ", ");
        show_word(tree, topology_vendor_name(node->vendor), ", ");
        if (strcmp(node->netdev, node->name) != 0)
                show_word(tree, node->netdev, ", ");
        if (node->kind == TOPOLOGY_NUMA)
                fprintf(tree->out, "%s%u CPUs", strcmp(node->name, id) != 0 ? ", " : "  ", node->n_cpus);
        if (node->memory_bytes)
                fprintf(tree->out, ", %s", format_size(node->memory_bytes, size, sizeof(size)));
        if (link)
                show_speed(tree, link);
        if (rail != TOPOLOGY_NONE)
                fprintf(tree->out, ", nearest %s", node_id(tree->graph, tree->rails->rails[rail].nic, id));
        fputc('\n', tree->out);
}

/* What hangs on what: PCI and the like, and GPUs on the fabric of their CPU. */
static bool hangs(const struct topology *graph, const struct topology_link *link) {
        return link->kind == TOPOLOGY_LINK_PCI || link->kind == TOPOLOGY_LINK_LOCAL ||
               (link->kind == TOPOLOGY_LINK_XGMI && graph->nodes[link->a].kind == TOPOLOGY_NUMA);
}

static void show_below(struct tree *tree, uint32_t position, unsigned int depth) {
        for (uint32_t i = 0; depth < DEPTH_MAX && i < tree->graph->n_links; i++) {
                const struct topology_link *link = &tree->graph->links[i];
                uint32_t other = link->a == position ? link->b : link->a;

                if ((link->a != position && link->b != position) || !hangs(tree->graph, link) || tree->shown[other] ||
                    tree->graph->nodes[other].kind == TOPOLOGY_NUMA)
                        continue;
                show_node(tree, other, link, depth);
                show_below(tree, other, depth + 1);
        }
}

static void show_tree(struct tree *tree) {
        const struct topology *graph = tree->graph;
        bool first = true;

        for (uint32_t i = 0; i < graph->n_nodes; i++) {
                if (graph->nodes[i].kind != TOPOLOGY_NUMA)
                        continue;
                show_node(tree, i, NULL, 0);
                show_below(tree, i, 1);
        }
        for (uint32_t i = 0; i < graph->n_nodes; i++) {
                if (tree->shown[i] || graph->nodes[i].kind == TOPOLOGY_NETWORK)
                        continue;
                if (first)
                        fputs("elsewhere, or nobody knows where\n", tree->out);
                first = false;
                show_node(tree, i, NULL, 1);
                show_below(tree, i, 2);
        }
}

static bool same_sort(const struct topology_link *a, const struct topology_link *b) {
        return a->kind == b->kind && a->bytes_per_second == b->bytes_per_second && a->width == b->width &&
               a->generation == b->generation;
}

/* What n links of a sort carry together. Those of NVLink go through a switch, and each may have all that its GPU has:
 * so GPUs count, not links. */
static double together(const struct topology *graph, const struct topology_link *link, uint32_t n) {
        uint32_t n_gpus = 0;

        if (link->kind != TOPOLOGY_LINK_NVLINK)
                return n * gigabytes(link->bytes_per_second);
        for (uint32_t i = 0; i < graph->n_nodes; i++) {
                bool has = false;

                for (uint32_t k = 0; k < graph->n_links; k++)
                        has = has ||
                              (same_sort(link, &graph->links[k]) && (graph->links[k].a == i || graph->links[k].b == i));
                n_gpus += has && graph->nodes[i].kind == TOPOLOGY_GPU;
        }
        return n_gpus * gigabytes(link->bytes_per_second);
}

/* How many there are of each sort, in the order of kinds. */
static int show_links(const struct topology *graph, FILE *out) {
        static const char *const headers[] = {"LINKS", ">NUMBER", ">GB/s EACH", ">TOGETHER", NULL};
        struct table table;
        int r;

        table_init(&table, headers);
        for (uint32_t kind = TOPOLOGY_LINK_LOCAL; kind < TOPOLOGY_LINK_KIND_COUNT; kind++) {
                for (uint32_t i = 0; i < graph->n_links; i++) {
                        const struct topology_link *link = &graph->links[i];
                        uint32_t n = 0, first = i;

                        for (uint32_t k = 0; link->kind == kind && k < graph->n_links; k++)
                                if (same_sort(link, &graph->links[k])) {
                                        first = k < first ? k : first;
                                        n++;
                                }
                        if (n == 0 || first < i)
                                continue;
                        if (kind == TOPOLOGY_LINK_PCI && link->generation && link->width)
                                table_cell(&table, "pci %u.0 x%u", link->generation, link->width);
                        else
                                table_cell(&table, "%s", topology_link_kind_name(kind));
                        table_cell(&table, "%u", n);
                        if (link->bytes_per_second) {
                                table_cell(&table, "%.1f", gigabytes(link->bytes_per_second));
                                table_cell(&table, "%.1f", together(graph, link, n));
                        } else {
                                table_cell(&table, "?");
                                table_cell(&table, "?");
                        }
                }
        }
        r = table_print(&table, out);
        table_deinit(&table);
        return r;
}

/* "0-3, 6" */
static const char *list_gpus(const struct topology *graph, const struct topology_rail *rail, char out[LIST_MAX]) {
        size_t length = 0;

        out[0] = '\0';
        for (uint32_t i = 0; i < rail->n_gpus && length < LIST_MAX - 32; i++) {
                uint32_t first = graph->nodes[rail->gpus[i]].index, last = first;

                while (i + 1 < rail->n_gpus && graph->nodes[rail->gpus[i + 1]].index == last + 1) {
                        last++;
                        i++;
                }
                length += (size_t)snprintf(out + length, LIST_MAX - length, "%s%u", length ? ", " : "", first);
                if (last > first)
                        length += (size_t)snprintf(out + length, LIST_MAX - length, "-%u", last);
        }
        return out;
}

static int show_graph_rails(const struct topology *graph, const struct topology_rails *rails, FILE *out) {
        static const char *const headers[] = {"NIC", "RDMA", "NETDEV", "NUMA", ">GB/s", "NEAREST GPUS", NULL};
        char id[ID_MAX], list[LIST_MAX];
        struct table table;
        int r;

        table_init(&table, headers);
        for (uint32_t i = 0; i < rails->n_rails; i++) {
                const struct topology_rail *rail = &rails->rails[i];
                const struct topology_node *nic = &graph->nodes[rail->nic];

                table_cell(&table, "%s", node_id(graph, rail->nic, id));
                table_cell(&table, "%s", nic->rdma);
                table_cell(&table, "%s", nic->netdev);
                table_cell(&table, "%s", nic->numa == TOPOLOGY_NONE ? "" : node_id(graph, nic->numa, id));
                if (rail->bytes_per_second)
                        table_cell(&table, "%.1f", gigabytes(rail->bytes_per_second));
                else
                        table_cell(&table, "?");
                table_cell(&table, "%s", list_gpus(graph, rail, list));
        }
        r = table_print(&table, out);
        table_deinit(&table);
        return r;
}

/* What to write into the configuration, but for addresses, which a graph does not have. */
static void show_order(const struct topology *graph, const struct topology_rails *rails, FILE *out) {
        uint32_t order[TOPOLOGY_RAILS_MAX];
        char id[ID_MAX];

        if (rails->n_gpus == 0)
                return;
        fputs("\nGPUs have the rails of peer.rails in turn; nothing goes by this table.\n", out);
        if (!topology_rails_in_turn(rails, order)) {
                fputs("No order of these NICs gives GPUs 0, 1, 2 and so on those that are nearest.\n", out);
                return;
        }
        fputs("In this order GPUs 0, 1, 2 and so on have those that are nearest:\n  peer.rails:", out);
        for (uint32_t i = 0; i < rails->n_rails; i++) {
                const struct topology_node *nic = &graph->nodes[rails->rails[order[i]].nic];

                fprintf(out, " rail%u=ADDRESS_OF_%s%s", i,
                        *nic->netdev ? nic->netdev : node_id(graph, rails->rails[order[i]].nic, id),
                        *nic->rdma ? ",kind=verbs" : "");
        }
        fputc('\n', out);
}

int show_topology(const struct answer *answer, const struct show_options *options, FILE *out) {
        const struct topology *graph = answer->graph;
        _cleanup_free_ bool *shown = NULL;
        struct tree tree = {.graph = graph, .rails = answer->rails, .out = out};
        int r = 0;

        (void)options;
        if (!graph || !answer->rails)
                return -EBADMSG;
        shown = calloc(graph->n_nodes + 1, sizeof(*shown));
        if (!shown)
                return -ENOMEM;
        tree.shown = shown;
        fprintf(out, "%u CPUs, %u NUMA nodes, %u GPUs, %u NICs, %u of them to be rails\n\n", graph->n_cpus,
                topology_count(graph, TOPOLOGY_NUMA), topology_count(graph, TOPOLOGY_GPU),
                topology_count(graph, TOPOLOGY_NIC), answer->rails->n_rails);
        show_tree(&tree);
        if (graph->n_links > 0) {
                fputc('\n', out);
                r = show_links(graph, out);
        }
        if (!r && answer->rails->n_rails > 0) {
                fputc('\n', out);
                r = show_graph_rails(graph, answer->rails, out);
                show_order(graph, answer->rails, out);
        }
        return r;
}

/* ---- JSON ---- */

static json_t *json_id(const struct topology *graph, uint32_t position) {
        char id[ID_MAX];

        return position == TOPOLOGY_NONE ? json_null() : json_string(node_id(graph, position, id));
}

static json_t *json_known(uint64_t value) {
        return value ? json_number(value) : json_null();
}

static json_t *json_word(const char *text) {
        return *text ? json_text(text) : json_null();
}

static json_t *json_node(const struct topology *graph, uint32_t position) {
        const struct topology_node *node = &graph->nodes[position];
        json_t *o = json_object();

        o = json_with(o, "id", json_id(graph, position));
        o = json_with(o, "kind", json_text(topology_node_kind_name(node->kind)));
        o = json_with(o, "index", json_number(node->index));
        o = json_with(o, "name", json_text(node->name));
        o = json_with(o, "numa", json_id(graph, node->numa));
        o = json_with(o, "pci", json_word(node->pci));
        o = json_with(o, "vendor", node->vendor ? json_sprintf("%04x", node->vendor) : json_null());
        o = json_with(o, "netdev", json_word(node->netdev));
        o = json_with(o, "rdma", json_word(node->rdma));
        o = json_with(o, "cpus", json_known(node->n_cpus));
        o = json_with(o, "memory_bytes", json_known(node->memory_bytes));
        return o;
}

static json_t *json_link(const struct topology *graph, const struct topology_link *link) {
        json_t *o = json_object();

        o = json_with(o, "a", json_id(graph, link->a));
        o = json_with(o, "b", json_id(graph, link->b));
        o = json_with(o, "kind", json_text(topology_link_kind_name(link->kind)));
        o = json_with(o, "bytes_per_second", json_known(link->bytes_per_second));
        o = json_with(o, "latency_ns", json_known(link->latency_ns));
        o = json_with(o, "width", json_known(link->width));
        o = json_with(o, "generation", json_known(link->generation));
        return o;
}

static json_t *json_rail(const struct topology *graph, const struct topology_rails *rails, uint32_t i) {
        json_t *o = json_object(), *gpus = json_array();

        for (uint32_t k = 0; k < rails->rails[i].n_gpus; k++)
                gpus = json_with_row(gpus, json_id(graph, rails->rails[i].gpus[k]));
        o = json_with(o, "rail", json_number(i));
        o = json_with(o, "nic", json_id(graph, rails->rails[i].nic));
        o = json_with(o, "bytes_per_second", json_known(rails->rails[i].bytes_per_second));
        o = json_with(o, "gpus", gpus);
        return o;
}

static json_t *json_map(const struct topology *graph, const struct topology_rails *rails, uint32_t i) {
        json_t *o = json_object();

        o = json_with(o, "gpu", json_id(graph, rails->map[i].gpu));
        o = json_with(o, "rail", rails->map[i].rail == TOPOLOGY_NONE ? json_null() : json_number(rails->map[i].rail));
        return o;
}

json_t *json_topology(const struct answer *answer) {
        json_t *o = json_object(), *nodes = json_array(), *links = json_array(), *rails = json_array(),
               *map = json_array();
        const struct topology *graph = answer->graph;

        for (uint32_t i = 0; graph && i < graph->n_nodes; i++)
                nodes = json_with_row(nodes, json_node(graph, i));
        for (uint32_t i = 0; graph && i < graph->n_links; i++)
                links = json_with_row(links, json_link(graph, &graph->links[i]));
        for (uint32_t i = 0; graph && i < answer->rails->n_rails; i++)
                rails = json_with_row(rails, json_rail(graph, answer->rails, i));
        for (uint32_t i = 0; graph && i < answer->rails->n_gpus; i++)
                map = json_with_row(map, json_map(graph, answer->rails, i));
        o = json_with(o, "cpus", json_number(graph ? graph->n_cpus : 0));
        o = json_with(o, "nodes", nodes);
        o = json_with(o, "links", links);
        o = json_with(o, "rails", rails);
        o = json_with(o, "gpu_rails", map);
        return o;
}
