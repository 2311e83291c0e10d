/* SPDX-License-Identifier: MIT */
/*
 * Nodes from files
 *
 * XML, ours and hwloc's, is read by topology/. A node that exists on paper only is written in JSON:
 *
 *   {"version": 1,
 *    "nodes": [{"kind": "numa", "index": 0}, {"kind": "gpu", "index": 0, "numa": 0}, {"kind": "gpu", "index": 1}],
 *    "links": [{"a": "numa0", "b": "gpu0", "kind": "local", "gb_per_second": 32},
 *              {"a": "gpu0", "b": "gpu1", "kind": "direct", "gb_per_second": 64, "latency_ns": 700}]}
 *
 * Links work both ways and name nodes by kind and index.
 */
#include "tools/sim/node.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/sim/document.h"
#include "topology/xml.h"
#include "util/cleanup.h"

#define NODE_VERSION 1

struct reader {
        struct topology *topology;
        const char *path;
        char *error;
        size_t error_size;
};

static int complain(struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int complain(struct reader *reader, const char *format, ...) {
        size_t n = (size_t)snprintf(reader->error, reader->error_size, "%.120s: ", reader->path);
        va_list arguments;

        va_start(arguments, format);
        if (n < reader->error_size)
                vsnprintf(reader->error + n, reader->error_size - n, format, arguments);
        va_end(arguments);
        return -EINVAL;
}

static int read_node(struct reader *reader, const json_t *object, size_t i) {
        const json_t *index = json_object_get(object, "index"), *numa = json_object_get(object, "numa");
        const char *kind = json_string_value(json_object_get(object, "kind"));
        struct topology_node node = {.numa = TOPOLOGY_NONE};
        uint32_t position;
        int r;

        node.kind = kind ? topology_node_kind_find(kind, strlen(kind)) : 0;
        if (node.kind == 0 || !json_is_integer(index) || json_integer_value(index) < 0 ||
            json_integer_value(index) > INT32_MAX)
                return complain(reader, "node %zu: it needs a kind, such as numa or gpu, and an index", i);
        if (node.kind == TOPOLOGY_GPU && topology_count(reader->topology, TOPOLOGY_GPU) >= TOPOLOGY_GPUS_MAX)
                return complain(reader, "node %zu: too many GPUs; allowed: %u", i, TOPOLOGY_GPUS_MAX);
        if (reader->topology->n_nodes >= TOPOLOGY_NODES_MAX)
                return complain(reader, "node %zu: too many nodes; allowed: %u", i, TOPOLOGY_NODES_MAX);
        node.index = (uint32_t)json_integer_value(index);
        if (numa) {
                node.numa = topology_find(reader->topology, TOPOLOGY_NUMA, (uint32_t)json_integer_value(numa));
                if (!json_is_integer(numa) || node.numa == TOPOLOGY_NONE)
                        return complain(reader, "node %zu: its NUMA node does not stand before it", i);
        }
        snprintf(node.name, sizeof(node.name), "%s%u", kind, node.index);
        r = topology_add_node(reader->topology, &node, &position);
        if (r == TOPOLOGY_E_EXISTS)
                return complain(reader, "node %zu: %s is there already", i, node.name);
        return r > 0 ? complain(reader, "node %zu is not allowed", i) : r;
}

/* "gpu3" -> position */
static uint32_t end_find(const struct reader *reader, const json_t *value) {
        const char *name = json_string_value(value);

        for (uint32_t i = 0; name && i < reader->topology->n_nodes; i++)
                if (strcmp(reader->topology->nodes[i].name, name) == 0)
                        return i;
        return TOPOLOGY_NONE;
}

static int read_link(struct reader *reader, const json_t *object, size_t i) {
        const json_t *speed = json_object_get(object, "gb_per_second"),
                     *latency = json_object_get(object, "latency_ns");
        const char *kind = json_string_value(json_object_get(object, "kind"));
        struct topology_link link = {.a = end_find(reader, json_object_get(object, "a")),
                                     .b = end_find(reader, json_object_get(object, "b"))};
        int r;

        if (reader->topology->n_links >= TOPOLOGY_LINKS_MAX)
                return complain(reader, "link %zu: too many links; allowed: %u", i, TOPOLOGY_LINKS_MAX);
        if (link.a == TOPOLOGY_NONE || link.b == TOPOLOGY_NONE)
                return complain(reader, "link %zu: a or b is no node; nodes are called numa0, gpu0 and so on", i);
        for (uint32_t k = TOPOLOGY_LINK_LOCAL; kind && k < TOPOLOGY_LINK_KIND_COUNT; k++)
                if (strcmp(topology_link_kind_name(k), kind) == 0)
                        link.kind = k;
        if (link.kind == 0)
                return complain(
                        reader,
                        "link %zu: its kind must be one of local, memory, direct, numa, pci, xgmi, nvlink, port", i);
        if ((speed && !(json_is_number(speed) && json_number_value(speed) >= 0 && json_number_value(speed) <= 1e6)) ||
            (latency && !(json_is_integer(latency) && json_integer_value(latency) >= 0 &&
                          json_integer_value(latency) <= INT32_MAX)))
                return complain(reader, "link %zu: gb_per_second or latency_ns is out of bounds", i);
        link.bytes_per_second = (uint64_t)(json_number_value(speed) * 1e9);
        link.latency_ns = (uint32_t)json_integer_value(latency);
        r = topology_add_link(reader->topology, &link);
        if (r == TOPOLOGY_E_EXISTS)
                return complain(reader, "link %zu is there already", i);
        return r > 0 ? complain(reader, "link %zu is not allowed", i) : r;
}

static int read_json(struct reader *reader, const json_t *root) {
        const json_t *nodes = json_object_get(root, "nodes"), *links = json_object_get(root, "links"), *item;
        size_t i;
        int r = 0;

        if (json_integer_value(json_object_get(root, "version")) != NODE_VERSION)
                return complain(reader, "its version is not %d", NODE_VERSION);
        if (!json_is_array(nodes) || (links && !json_is_array(links)))
                return complain(reader, "it needs lists of nodes and links");
        json_array_foreach(nodes, i, item) {
                r = r ? r : read_node(reader, item, i);
        }
        json_array_foreach(links, i, item) {
                r = r ? r : read_link(reader, item, i);
        }
        return r;
}

static int load_json(const char *path, struct topology **ret_topology, char *ret_error, size_t error_size) {
        _cleanup_(topology_freep) struct topology *topology = NULL;
        struct reader reader = {.path = path, .error = ret_error, .error_size = error_size};
        json_t *root;
        int r;

        r = topology_new(&topology);
        if (r)
                return r;
        reader.topology = topology;
        root = document_load(path, ret_error, error_size);
        r = root ? read_json(&reader, root) : -EINVAL;
        json_decref(root);
        if (r)
                return r;
        *ret_topology = topology;
        topology = NULL;
        return 0;
}

int node_load(const char *path, struct topology **ret_topology, char *ret_error, size_t error_size) {
        char text[TOPOLOGY_ERROR_MAX];
        int first, r;

        r = document_first(path, &first, ret_error, error_size);
        if (r)
                return r;
        if (first != '<')
                return load_json(path, ret_topology, ret_error, error_size);
        r = topology_load(path, ret_topology, text);
        if (r > 0) {
                snprintf(ret_error, error_size, "%s", text);
                return -EINVAL;
        }
        return r;
}

int node_ways(const struct topology *topology, uint32_t n_ranks, struct node_way **ret_ways) {
        uint32_t *ends = calloc(n_ranks + 1u, sizeof(*ends)), *lengths = calloc(n_ranks + 1u, sizeof(*lengths));
        uint32_t *links = calloc((size_t)n_ranks * NODE_PATH_MAX + 1u, sizeof(*links));
        struct node_way *ways = calloc((size_t)n_ranks * n_ranks + 1u, sizeof(*ways));
        int r = ends && lengths && links && ways ? 0 : -ENOMEM;

        for (uint32_t i = 0; !r && i < n_ranks; i++)
                ends[i] = topology_find(topology, TOPOLOGY_GPU, i);
        for (uint32_t from = 0; !r && from < n_ranks; from++) {
                r = topology_paths(topology, ends[from], ends, n_ranks, links, NODE_PATH_MAX, lengths);
                for (uint32_t to = 0; !r && to < n_ranks; to++) {
                        struct node_way *way = &ways[from * n_ranks + to];

                        way->n_links = lengths[to];
                        memcpy(way->links, &links[to * NODE_PATH_MAX], sizeof(way->links));
                }
        }
        free(ends);
        free(lengths);
        free(links);
        if (r)
                free(ways);
        else
                *ret_ways = ways;
        return r;
}

const char *node_label(const struct topology *topology, uint32_t position, char out[NODE_LABEL_MAX]) {
        const struct topology_node *node = &topology->nodes[position];

        if (node->name[0])
                snprintf(out, NODE_LABEL_MAX, "%s", node->name);
        else
                snprintf(out, NODE_LABEL_MAX, "%s%u", topology_node_kind_name(node->kind), node->index);
        return out;
}

bool node_has_devices(const struct topology *topology) {
        for (uint32_t i = 0; i < topology->n_nodes; i++)
                if (topology->nodes[i].kind == TOPOLOGY_GPU && topology->nodes[i].pci[0])
                        return true;
        for (uint32_t i = 0; i < topology->n_links; i++) { /* files for people need not have addresses */
                const struct topology_link *link = &topology->links[i];

                if (link->kind != TOPOLOGY_LINK_LOCAL && link->kind != TOPOLOGY_LINK_MEMORY &&
                    (topology->nodes[link->a].kind == TOPOLOGY_GPU || topology->nodes[link->b].kind == TOPOLOGY_GPU))
                        return true;
        }
        return false;
}

static bool is_nvlink(const struct topology *topology, const struct topology_link *link) {
        return link->kind == TOPOLOGY_LINK_NVLINK && topology->nodes[link->a].kind == TOPOLOGY_GPU &&
               topology->nodes[link->b].kind == TOPOLOGY_GPU;
}

struct nvlinks {        /* of a GPU */
        uint32_t first; /* of those that NVLink joins with it, directly or not */
        uint32_t n;
        uint64_t most;  /* the speed of its fastest */
        uint32_t n_all; /* in the first one: how many these are */
        bool direct;    /* the same: no switch is between them */
};

static void count_nvlinks(const struct topology *topology, struct nvlinks *of) {
        bool more = true;

        for (uint32_t i = 0; i < topology->n_nodes; i++)
                of[i].first = i;
        for (uint32_t i = 0; i < topology->n_links; i++)
                for (uint32_t end = 0; end < 2 && is_nvlink(topology, &topology->links[i]); end++) {
                        struct nvlinks *gpu = &of[end ? topology->links[i].b : topology->links[i].a];

                        gpu->n++;
                        if (topology->links[i].bytes_per_second > gpu->most)
                                gpu->most = topology->links[i].bytes_per_second;
                }
        while (more) {
                more = false;
                for (uint32_t i = 0; i < topology->n_links; i++) {
                        struct nvlinks *a = &of[topology->links[i].a], *b = &of[topology->links[i].b];

                        if (!is_nvlink(topology, &topology->links[i]) || a->first == b->first)
                                continue;
                        a->first = b->first = a->first < b->first ? a->first : b->first;
                        more = true;
                }
        }
        for (uint32_t i = 0; i < topology->n_nodes; i++)
                of[of[i].first].n_all++;
}

/* A file does not say whether there is a switch. Where there is one, it joins each with each, and a pair has what the
 * slower one of the two has. */
int node_links_shared(const struct topology *topology, bool **ret_shared) {
        struct nvlinks *of = calloc(topology->n_nodes + 1u, sizeof(*of));
        bool *shared = calloc(topology->n_links + 1u, sizeof(*shared));

        if (!of || !shared) {
                free(of);
                free(shared);
                return -ENOMEM;
        }
        count_nvlinks(topology, of);
        for (uint32_t i = 0; i < topology->n_links; i++) {
                const struct topology_link *link = &topology->links[i];
                const struct nvlinks *a = &of[link->a], *b = &of[link->b];
                uint64_t speed = a->most < b->most ? a->most : b->most;

                if (is_nvlink(topology, link) && (a->n + 1 < of[a->first].n_all || b->n + 1 < of[a->first].n_all ||
                                                  (link->bytes_per_second > 0 && link->bytes_per_second < speed)))
                        of[a->first].direct = true;
        }
        for (uint32_t i = 0; i < topology->n_links; i++)
                shared[i] = is_nvlink(topology, &topology->links[i]) && !of[of[topology->links[i].a].first].direct;
        free(of);
        *ret_shared = shared;
        return 0;
}
