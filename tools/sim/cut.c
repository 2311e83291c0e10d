/* SPDX-License-Identifier: MIT */
/*
 * Boxes, cards, switch domains and root ports
 *
 * A box is a node of the graph, so is each switch domain (a switch, or a partition of one), so is the host. A card is a
 * link of a box into a domain, a root port one of a domain to the host; all are x16 and equally fast. What a collective
 * can move between some boxes and the others is bounded by the smallest cut between them, counted in links: whatever
 * rings or trees it uses, all their hops across the cut share these. See cut_flow.c for how cuts are found.
 */
#include "tools/sim/cut.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/sim/cut_flow.h"
#include "tools/sim/document.h"
#include "util/cleanup.h"

#define BOXES 2u /* that names stand for */

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
int cut_links(const struct cut_fabric *fabric, uint32_t ret_links[CUT_BOXES_MAX]) {
        const uint32_t n_boxes = fabric->n_boxes, host = n_boxes + fabric->n_domains;
        _cleanup_(cut_net_deinit) struct cut_net net = {0};
        uint64_t least[CUT_BOXES_MAX] = {0};
        int r = cut_net_init(&net, host + 1, n_boxes, fabric->n_domains * (n_boxes + 1));

        for (uint32_t d = 0; !r && d < fabric->n_domains; d++) {
                cut_net_join(&net, n_boxes + d, host, fabric->ports[d]);
                for (uint32_t box = 0; box < n_boxes; box++)
                        cut_net_join(&net, box, n_boxes + d, fabric->cards[box][d]);
        }
        r = r ? r : cut_net_parts(&net, least);
        for (uint32_t k = 0; !r && k < CUT_BOXES_MAX; k++)
                ret_links[k] = (uint32_t)least[k];
        return r;
}
