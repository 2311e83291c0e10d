/* SPDX-License-Identifier: MIT */
/* Any text as a graph: refused with a place and what is allowed, or a graph that is written, read again as the same,
 * and has rails that serve every GPU. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "topology/rails.h"
#include "topology/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition) {
        if (!condition)
                __builtin_trap();
}

static void check_rails(const struct topology *topology) {
        struct topology_rails *rails = NULL;

        check(topology_rails_new(topology, &rails) == 0);
        check(rails->n_gpus == topology_count(topology, TOPOLOGY_GPU));
        check(rails->n_rails <= TOPOLOGY_RAILS_MAX && rails->n_rails <= topology_count(topology, TOPOLOGY_NIC));
        for (uint32_t i = 0; i < rails->n_gpus; i++) {
                check(topology->nodes[rails->map[i].gpu].kind == TOPOLOGY_GPU);
                check((rails->map[i].rail < rails->n_rails) == (rails->n_rails > 0));
        }
        for (uint32_t i = 0; i < rails->n_rails; i++) {
                check(topology->nodes[rails->rails[i].nic].kind == TOPOLOGY_NIC);
                check((rails->rails[i].n_gpus > 0) == (rails->n_gpus > 0));
        }
        free(rails);
}

static void try(const char *data, size_t size) {
        struct topology *topology = NULL, *copy = NULL;
        char error[TOPOLOGY_ERROR_MAX], *text = NULL, *again = NULL;
        size_t text_size, again_size;

        memset(error, 'x', sizeof(error));
        if (topology_xml_read("file", data, size, &topology, error)) {
                check(!topology && memchr(error, '\0', sizeof(error)) != NULL);
                check(strncmp(error, "file:", 5) == 0 && error[5] >= '1' && error[5] <= '9');
                check(strstr(error, "allowed: ") != NULL);
                return;
        }
        check(topology_xml_write(topology, &text, &text_size) == 0);
        check(topology_xml_read("again", text, text_size, &copy, error) == 0);
        check(topology_xml_write(copy, &again, &again_size) == 0);
        check(text_size == again_size && memcmp(text, again, text_size) == 0);
        check_rails(topology);
        topology_free(topology);
        topology_free(copy);
        free(text);
        free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const char head[] = "<railmux-topology version=\"1\"><numa index=\"0\"/>";
        static const char tail[] = "</railmux-topology>";
        char *text = malloc(size + sizeof(head) + sizeof(tail));

        /* As it is, and as what stands inside: the outer element would take long to guess. */
        check(text != NULL);
        try((const char *)data, size);
        memcpy(text, head, sizeof(head) - 1);
        if (size)
                memcpy(text + sizeof(head) - 1, data, size);
        memcpy(text + sizeof(head) - 1 + size, tail, sizeof(tail) - 1);
        try(text, sizeof(head) - 1 + size + sizeof(tail) - 1);
        free(text);
        return 0;
}
