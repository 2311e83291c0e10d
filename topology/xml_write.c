/* SPDX-License-Identifier: MIT */
#include "topology/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Texts in graphs are printable ASCII (topology_add_node). */
static void write_text(FILE *out, const char *name, const char *text) {
        if (!text[0])
                return;
        fprintf(out, " %s=\"", name);
        for (const char *p = text; *p; p++) {
                switch (*p) {
                case '&':
                        fputs("&amp;", out);
                        break;
                case '<':
                        fputs("&lt;", out);
                        break;
                case '>':
                        fputs("&gt;", out);
                        break;
                case '"':
                        fputs("&quot;", out);
                        break;
                default:
                        fputc(*p, out);
                }
        }
        fputc('"', out);
}

static void write_number(FILE *out, const char *name, uint64_t value) {
        if (value)
                fprintf(out, " %s=\"%" PRIu64 "\"", name, value);
}

static void write_node(FILE *out, const struct topology *topology, const struct topology_node *node) {
        fprintf(out, "  <%s index=\"%u\"", topology_node_kind_name(node->kind), node->index);
        if (node->numa != TOPOLOGY_NONE)
                fprintf(out, " numa=\"%u\"", topology->nodes[node->numa].index);
        write_text(out, "name", node->name);
        write_text(out, "pci", node->pci);
        if (node->vendor)
                fprintf(out, " vendor=\"%04x\"", node->vendor);
        write_text(out, "netdev", node->netdev);
        write_text(out, "rdma", node->rdma);
        write_number(out, "cpus", node->n_cpus);
        write_number(out, "memory", node->memory_bytes);
        fputs("/>\n", out);
}

static void write_link(FILE *out, const struct topology *topology, const struct topology_link *link) {
        const struct topology_node *a = &topology->nodes[link->a], *b = &topology->nodes[link->b];

        fprintf(out, "  <link a=\"%s%u\" b=\"%s%u\" kind=\"%s\"", topology_node_kind_name(a->kind), a->index,
                topology_node_kind_name(b->kind), b->index, topology_link_kind_name(link->kind));
        write_number(out, "bytes_per_second", link->bytes_per_second);
        write_number(out, "latency_ns", link->latency_ns);
        write_number(out, "width", link->width);
        write_number(out, "generation", link->generation);
        fputs("/>\n", out);
}

int topology_xml_write(const struct topology *topology, char **ret_text, size_t *ret_size) {
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        bool failed;

        if (!out)
                return -ENOMEM;
        fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<railmux-topology version=\"%d\"",
                TOPOLOGY_XML_VERSION);
        write_number(out, "cpus", topology->n_cpus);
        fputs(">\n", out);
        for (uint32_t i = 0; i < topology->n_nodes; i++)
                write_node(out, topology, &topology->nodes[i]);
        for (uint32_t i = 0; i < topology->n_links; i++)
                write_link(out, topology, &topology->links[i]);
        fputs("</railmux-topology>\n", out);
        failed = ferror(out) != 0;
        failed = fclose(out) != 0 || failed;
        if (failed) {
                free(text);
                return -ENOMEM;
        }
        *ret_text = text;
        *ret_size = size;
        return 0;
}
