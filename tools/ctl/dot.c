/* SPDX-License-Identifier: MIT */
/*
 * A box for each NUMA node with what belongs to it, one below for what has no place. Links within PCI and to the
 * network carry their speed; those among GPUs are too many for words and have a colour, which the legend explains.
 */
#include "tools/ctl/graph.h"
#include "topology/rails.h"
#include "topology/topology.h"
#include "util/parse.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>

static const char *const colours[TOPOLOGY_LINK_KIND_COUNT] = {
        [TOPOLOGY_LINK_LOCAL] = "gray50",       [TOPOLOGY_LINK_MEMORY] = "gray80",  [TOPOLOGY_LINK_DIRECT] = "orange",
        [TOPOLOGY_LINK_NUMA] = "gray50",        [TOPOLOGY_LINK_PCI] = "black",      [TOPOLOGY_LINK_XGMI] = "firebrick",
        [TOPOLOGY_LINK_NVLINK] = "forestgreen", [TOPOLOGY_LINK_PORT] = "royalblue",
};

/* Texts of graphs are printable ASCII. */
static void dot_text(const char *text, FILE *out) {
        for (; *text; text++) {
                if (*text == '"' || *text == '\\')
                        fputc('\\', out);
                fputc(*text, out);
        }
}

static void dot_line(const char *text, FILE *out) {
        if (!*text)
                return;
        fputs("\\n", out);
        dot_text(text, out);
}

static void dot_node(const struct answer *answer, uint32_t position, FILE *out) {
        static const char *const shapes[TOPOLOGY_NODE_KIND_COUNT] = {
                [TOPOLOGY_NUMA] = "shape=house",
                [TOPOLOGY_GPU] = "shape=box,style=filled,fillcolor=lightgoldenrod",
                [TOPOLOGY_NIC] = "shape=box,style=filled,fillcolor=lightblue",
                [TOPOLOGY_SWITCH] = "shape=octagon",
                [TOPOLOGY_ROOT] = "shape=trapezium",
                [TOPOLOGY_NETWORK] = "shape=ellipse,style=dashed",
        };
        const struct topology_node *node = &answer->graph->nodes[position];
        uint32_t rail = topology_rail_of(answer->rails, position);
        char size[32], id[32];

        snprintf(id, sizeof(id), "%s%u", topology_node_kind_name(node->kind), node->index);
        fprintf(out, "    %s [%s,label=\"%s", id, shapes[node->kind], id);
        if (strcmp(node->name, node->pci) != 0 && strcmp(node->name, node->rdma) != 0 &&
            strcmp(node->name, node->netdev) != 0 && strcmp(node->name, id) != 0)
                dot_line(node->name, out);
        dot_line(topology_vendor_name(node->vendor), out);
        dot_line(node->pci, out);
        dot_line(node->rdma, out);
        dot_line(node->netdev, out);
        if (node->memory_bytes)
                fprintf(out, "\\n%s", format_size(node->memory_bytes, size, sizeof(size)));
        if (rail != TOPOLOGY_NONE)
                fprintf(out, "\\nnearest nic%u", answer->graph->nodes[answer->rails->rails[rail].nic].index);
        fputs("\"];\n", out);
}

static void dot_nodes(const struct answer *answer, uint32_t numa, FILE *out) {
        const struct topology *graph = answer->graph;

        for (uint32_t i = 0; i < graph->n_nodes; i++)
                if (graph->nodes[i].kind != TOPOLOGY_NUMA && graph->nodes[i].numa == numa)
                        dot_node(answer, i, out);
}

static void dot_link(const struct topology *graph, const struct topology_link *link, FILE *out) {
        const struct topology_node *a = &graph->nodes[link->a], *b = &graph->nodes[link->b];

        fprintf(out, "  %s%u -- %s%u [color=%s", topology_node_kind_name(a->kind), a->index,
                topology_node_kind_name(b->kind), b->index, colours[link->kind]);
        if (a->kind == b->kind && (a->kind == TOPOLOGY_GPU || a->kind == TOPOLOGY_NUMA))
                fputs(",constraint=false", out);
        else if (link->bytes_per_second)
                fprintf(out, ",label=\"%.4g\"", (double)link->bytes_per_second / 1e9);
        fputs("];\n", out);
}

static void dot_legend(const struct topology *graph, FILE *out) {
        bool there[TOPOLOGY_LINK_KIND_COUNT] = {false};

        for (uint32_t i = 0; i < graph->n_links; i++)
                there[graph->links[i].kind] = true;
        fputs("  label=\"GB/s each way", out);
        for (uint32_t kind = TOPOLOGY_LINK_LOCAL; kind < TOPOLOGY_LINK_KIND_COUNT; kind++)
                if (there[kind])
                        fprintf(out, "; %s %s", topology_link_kind_name(kind), colours[kind]);
        fputs("\";\n", out);
}

int graph_to_dot(const struct answer *answer, FILE *out) {
        const struct topology *graph = answer->graph;

        fputs("graph topology {\n  node [fontname=\"sans-serif\",fontsize=10];\n"
              "  edge [fontname=\"sans-serif\",fontsize=8];\n  fontname=\"sans-serif\";\n",
              out);
        dot_legend(graph, out);
        for (uint32_t i = 0; i < graph->n_nodes; i++) {
                if (graph->nodes[i].kind != TOPOLOGY_NUMA)
                        continue;
                fprintf(out, "  subgraph cluster_numa%u {\n    label=\"\";\n", graph->nodes[i].index);
                dot_node(answer, i, out);
                dot_nodes(answer, i, out);
                fputs("  }\n", out);
        }
        dot_nodes(answer, TOPOLOGY_NONE, out);
        for (uint32_t i = 0; i < graph->n_links; i++)
                dot_link(graph, &graph->links[i], out);
        fputs("}\n", out);
        return ferror(out) ? -EIO : 0;
}
