/* SPDX-License-Identifier: MIT */
/*
 * Boxes, cards, switch domains and root ports
 *
 * A box is a node of the graph, so is each switch domain (a switch, or a partition of one), so is the host. A card is a
 * link of a box into a domain, a root port one of a domain to the host; all are x16 and equally fast. What a collective
 * can move between boxes is bounded by the smallest cut between them, counted in links: whatever rings or trees it
 * uses, all their hops across the cut share these. The cut is found as a flow (Ford and Fulkerson 1956); there are few
 * links, so one unit at a time will do.
 */
#include "tools/sim/cut.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/sim/document.h"

#define VERTICES_MAX (CUT_BOXES_MAX + CUT_DOMAINS_MAX + 2) /* boxes, domains, host, and a sink for all other boxes */
#define BOXES        2u                                    /* that names stand for */

static int complain(char *ret_error, size_t error_size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int complain(char *ret_error, size_t error_size, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(ret_error, error_size, format, arguments);
        va_end(arguments);
        return -EINVAL;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */
int cut_parse(const char *name, struct cut_fabric *ret_fabric, char *ret_error, size_t error_size) {
        struct cut_fabric f = {.n_boxes = BOXES};
        uint32_t switches, ports, cards;
        char spread[8], kind[8];
        int end = 0;

        if (sscanf(name, "%2us-%2urp-%7[a-z]-%7[a-z]%n", &switches, &ports, spread, kind, &end) != 4 || name[end] ||
            (strcmp(spread, "std") != 0 && strcmp(spread, "split") != 0) ||
            (strcmp(kind, "cascade") != 0 && strcmp(kind, "flat") != 0))
                return complain(ret_error, error_size,
                                "'%.40s' is no PCIe fabric; write 2s-2rp-split-flat: switches, root ports, std or "
                                "split, cascade or flat",
                                name);
        f.n_domains = switches > ports ? switches : ports;
        cards = strcmp(kind, "flat") == 0 ? 4 : 2;
        if (switches < 1 || ports < 1 || f.n_domains > CUT_DOMAINS_MAX || ports % f.n_domains != 0)
                return complain(ret_error, error_size, "'%.40s': every domain needs a root port, and as many as others",
                                name);
        if (strcmp(spread, "split") == 0 && cards % f.n_domains != 0)
                return complain(ret_error, error_size, "'%.40s': %u cards cannot be spread evenly over %u domains",
                                name, cards, f.n_domains);
        for (uint32_t d = 0; d < f.n_domains; d++)
                f.ports[d] = ports / f.n_domains;
        for (uint32_t box = 0; box < f.n_boxes; box++)
                for (uint32_t d = 0; d < f.n_domains; d++)
                        if (strcmp(spread, "split") == 0)
                                f.cards[box][d] = cards / f.n_domains;
                        else
                                f.cards[box][d] = d == box % f.n_domains ? cards : 0;
        *ret_fabric = f;
        return 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */
static int take_domain(const json_t *domain, struct cut_fabric *f) {
        const json_t *cards = json_object_get(domain, "kumas"), *card;
        size_t ports = json_array_size(json_object_get(domain, "root_ports")), i;

        if (f->n_domains == CUT_DOMAINS_MAX || !json_is_array(cards) || ports > 64)
                return -EINVAL;
        f->ports[f->n_domains] = (uint32_t)ports;
        json_array_foreach(cards, i, card) {
                const char *text = json_string_value(card);
                uint32_t box, number;

                if (!text || sscanf(text, "apa%2u.k%2u", &box, &number) != 2 || box >= CUT_BOXES_MAX)
                        return -EINVAL;
                f->cards[box][f->n_domains]++;
                f->n_boxes = box + 1 > f->n_boxes ? box + 1 : f->n_boxes;
        }
        f->n_domains++;
        return 0;
}

int cut_load(const char *path, const char *name, struct cut_fabric *ret_fabric, char *ret_error, size_t error_size) {
        json_t *document = document_load(path, ret_error, error_size);
        const json_t *topology, *domain;
        struct cut_fabric f = {0};
        int r = -ENOENT;
        size_t i, k;

        if (!document)
                return -EINVAL;
        json_array_foreach(json_object_get(document, "topologies"), i, topology) {
                const char *text = json_string_value(json_object_get(topology, "name"));

                if (!text || strcmp(text, name) != 0)
                        continue;
                r = 0;
                json_array_foreach(json_object_get(topology, "domains"), k, domain) {
                        if (!r)
                                r = take_domain(domain, &f);
                }
                break;
        }
        json_decref(document);
        if (r == -ENOENT)
                return complain(ret_error, error_size, "%s has no topology '%.40s'", path, name);
        if (r || f.n_boxes < 2)
                return complain(ret_error, error_size,
                                "%s: '%.40s' needs domains with root_ports and kumas of two boxes or more, written "
                                "apa0.k0",
                                path, name);
        *ret_fabric = f;
        return 0;
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */
struct graph {
        uint32_t n;
        uint32_t left[VERTICES_MAX][VERTICES_MAX]; /* capacity that is not used yet */
};

static void graph_link(struct graph *g, uint32_t a, uint32_t b, uint32_t links) {
        g->left[a][b] += links;
        g->left[b][a] += links;
}

/* One more unit from `at` to `to`? */
static bool graph_push(struct graph *g, uint32_t at, uint32_t to, bool seen[VERTICES_MAX]) {
        if (at == to)
                return true;
        seen[at] = true;
        for (uint32_t next = 0; next < g->n; next++)
                if (g->left[at][next] > 0 && !seen[next] && graph_push(g, next, to, seen)) {
                        g->left[at][next]--;
                        g->left[next][at]++;
                        return true;
                }
        return false;
}

/* From one box to all others: those have a link to the sink that is as wide as can be. */
static uint32_t cut_of(const struct cut_fabric *f, uint32_t from) {
        uint32_t host = f->n_boxes + f->n_domains, sink = host + 1, flow = 0;
        bool seen[VERTICES_MAX] = {false};
        struct graph g = {.n = sink + 1};

        for (uint32_t d = 0; d < f->n_domains; d++) {
                graph_link(&g, f->n_boxes + d, host, f->ports[d]);
                for (uint32_t box = 0; box < f->n_boxes; box++)
                        graph_link(&g, box, f->n_boxes + d, f->cards[box][d]);
        }
        for (uint32_t box = 0; box < f->n_boxes; box++)
                g.left[box][sink] = box == from ? 0 : UINT32_MAX / 2;
        while (graph_push(&g, from, sink, seen)) {
                memset(seen, 0, sizeof(seen));
                flow++;
        }
        return flow;
}

uint32_t cut_links(const struct cut_fabric *fabric) {
        uint32_t least = UINT32_MAX;

        for (uint32_t box = 0; box < fabric->n_boxes; box++) {
                uint32_t cut = cut_of(fabric, box);

                least = cut < least ? cut : least;
        }
        return least;
}
