/* SPDX-License-Identifier: MIT */
/*
 * Our format of a graph
 *
 *   <railmux-topology version="1" cpus="192">
 *     <numa index="0" cpus="96" memory="811748818944"/>
 *     <switch index="0" numa="0" pci="0000:02:00.0"/>
 *     <gpu index="0" numa="0" pci="0000:05:00.0" vendor="1002" memory="206158430208"/>
 *     <nic index="0" numa="0" pci="0000:06:00.0" netdev="enp6s0" rdma="ionic_0"/>
 *     <network index="0"/>
 *     <link a="numa0" b="switch0" kind="pci" generation="5" width="16" bytes_per_second="63015384615"/>
 *     <link a="nic0" b="network0" kind="port" bytes_per_second="50000000000"/>
 *   </railmux-topology>
 *
 * There is an element for each node, named after its kind, and one for each link. Everything that is unknown is left
 * out. Links work both ways and name nodes by kind and index; "numa" is the index of a NUMA node. What is named stands
 * before. Positions follow the order of the elements, so a graph that was written and read again is the same.
 *
 * A reader of a later version may know more attributes; one that meets an attribute that it does not know refuses the
 * file, because a word spelled wrongly must not go unnoticed.
 *
 * Texts from outside: the size is bounded, and so are nodes and links; a DOCTYPE is refused, so there are no entities
 * that grow. The parser is expat's, which stops at the first thing that is wrong.
 */
#include "topology/xml.h"

#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"

#define ROOT_NAME   "railmux-topology"
#define BIT(kind)   (1u << (kind))
#define ANY         (BIT(TOPOLOGY_NODE_KIND_COUNT) - 1)
#define ALLOWED_MAX 256u

struct reader {
        XML_Parser parser;
        struct topology *topology;
        const char *name;
        char *error;
        unsigned int depth; /* of open elements */
        int r;              /* what went wrong first */
};

static void complain(struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(struct reader *reader, const char *format, ...) {
        char text[TOPOLOGY_ERROR_MAX - 128];
        va_list arguments;

        if (reader->r)
                return;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        for (char *p = text; *p; p++) /* it quotes what it was given */
                if (*p < ' ' || *p > '~')
                        *p = '?';
        snprintf(reader->error, TOPOLOGY_ERROR_MAX, "%.80s:%lu:%lu: %s", reader->name,
                 XML_GetCurrentLineNumber(reader->parser), XML_GetCurrentColumnNumber(reader->parser) + 1, text);
        reader->r = TOPOLOGY_E_INVALID;
        XML_StopParser(reader->parser, XML_FALSE);
}

static void fail(struct reader *reader, int r) {
        if (!reader->r)
                reader->r = r;
        XML_StopParser(reader->parser, XML_FALSE);
}

/* ---- attributes ---- */

enum form { FORM_NUMBER, FORM_HEX, FORM_TEXT, FORM_NUMA, FORM_END, FORM_LINK };

struct attribute {
        const char *name;
        uint32_t kinds; /* of nodes that may have it; 0: not looked at */
        enum form form;
        size_t offset, size;
        uint64_t max; /* of a number */
        bool needed;
};

#define FIELD(type, member) offsetof(struct type, member), sizeof(((struct type *)NULL)->member)

static const struct attribute node_attributes[] = {
        {"index", ANY, FORM_NUMBER, FIELD(topology_node, index), UINT32_MAX, true},
        {"numa", ANY & ~BIT(TOPOLOGY_NUMA), FORM_NUMA, FIELD(topology_node, numa), 0, false},
        {"name", ANY, FORM_TEXT, FIELD(topology_node, name), 0, false},
        {"pci", BIT(TOPOLOGY_GPU) | BIT(TOPOLOGY_NIC) | BIT(TOPOLOGY_SWITCH) | BIT(TOPOLOGY_ROOT), FORM_TEXT,
         FIELD(topology_node, pci), 0, false},
        {"vendor", BIT(TOPOLOGY_GPU) | BIT(TOPOLOGY_NIC) | BIT(TOPOLOGY_SWITCH) | BIT(TOPOLOGY_ROOT), FORM_HEX,
         FIELD(topology_node, vendor), UINT16_MAX, false},
        {"netdev", BIT(TOPOLOGY_NIC), FORM_TEXT, FIELD(topology_node, netdev), 0, false},
        {"rdma", BIT(TOPOLOGY_NIC), FORM_TEXT, FIELD(topology_node, rdma), 0, false},
        {"cpus", BIT(TOPOLOGY_NUMA), FORM_NUMBER, FIELD(topology_node, n_cpus), UINT32_MAX, false},
        {"memory", BIT(TOPOLOGY_NUMA) | BIT(TOPOLOGY_GPU), FORM_NUMBER, FIELD(topology_node, memory_bytes), UINT64_MAX,
         false},
        {.name = NULL},
};

static const struct attribute link_attributes[] = {
        {"a", ANY, FORM_END, FIELD(topology_link, a), 0, true},
        {"b", ANY, FORM_END, FIELD(topology_link, b), 0, true},
        {"kind", ANY, FORM_LINK, FIELD(topology_link, kind), 0, true},
        {"bytes_per_second", ANY, FORM_NUMBER, FIELD(topology_link, bytes_per_second), TOPOLOGY_RATE_MAX, false},
        {"latency_ns", ANY, FORM_NUMBER, FIELD(topology_link, latency_ns), UINT32_MAX, false},
        {"width", ANY, FORM_NUMBER, FIELD(topology_link, width), UINT16_MAX, false},
        {"generation", ANY, FORM_NUMBER, FIELD(topology_link, generation), UINT16_MAX, false},
        {.name = NULL},
};

/* Digits and nothing else. */
static bool read_number(const char *text, unsigned int base, uint64_t max, uint64_t *ret_value) {
        static const char digits[] = "0123456789abcdef";
        uint64_t value = 0;

        for (const char *p = text; *p; p++) {
                const char *digit = memchr(digits, *p, base);

                if (!digit || value > (max - (uint64_t)(digit - digits)) / base)
                        return false;
                value = value * base + (uint64_t)(digit - digits);
        }
        *ret_value = value;
        return text[0] != '\0';
}

/* "gpu3" -> position */
static uint32_t find_end(const struct topology *topology, const char *text) {
        size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyz");
        uint32_t kind = topology_node_kind_find(text, letters);
        uint64_t index;

        if (!kind || !read_number(text + letters, 10, UINT32_MAX, &index))
                return TOPOLOGY_NONE;
        return topology_find(topology, kind, (uint32_t)index);
}

static void store(void *object, const struct attribute *attribute, uint64_t value) {
        char *at = (char *)object + attribute->offset;

        if (attribute->size == sizeof(uint16_t))
                memcpy(at, &(uint16_t){(uint16_t)value}, sizeof(uint16_t));
        else if (attribute->size == sizeof(uint32_t))
                memcpy(at, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
        else
                memcpy(at, &value, sizeof(value));
}

static void link_kinds(char out[ALLOWED_MAX]) {
        size_t length = 0;

        for (uint32_t kind = TOPOLOGY_LINK_LOCAL; kind < TOPOLOGY_LINK_KIND_COUNT; kind++)
                length += (size_t)snprintf(out + length, ALLOWED_MAX - length, "%s%s", length ? ", " : "",
                                           topology_link_kind_name(kind));
}

static void read_value(struct reader *reader, void *object, const struct attribute *attribute, const char *text) {
        const char *name = attribute->name;
        char allowed[ALLOWED_MAX];
        uint64_t value = 0;

        switch (attribute->form) {
        case FORM_NUMBER:
                if (!read_number(text, 10, attribute->max, &value))
                        complain(reader, "%s=\"%.40s\"; allowed: a number from 0 to %llu", name, text,
                                 (unsigned long long)attribute->max);
                break;
        case FORM_HEX:
                if (!read_number(text, 16, attribute->max, &value))
                        complain(reader, "%s=\"%.40s\"; allowed: four digits of PCI, such as 1002", name, text);
                break;
        case FORM_NUMA:
                value = read_number(text, 10, UINT32_MAX, &value)
                                ? topology_find(reader->topology, TOPOLOGY_NUMA, (uint32_t)value)
                                : TOPOLOGY_NONE;
                if (value == TOPOLOGY_NONE)
                        complain(reader, "%s=\"%.40s\"; allowed: the index of a <numa> that stands before", name, text);
                break;
        case FORM_END:
                value = find_end(reader->topology, text);
                if (value == TOPOLOGY_NONE)
                        complain(reader,
                                 "%s=\"%.40s\"; allowed: a node that stands before, by kind and index, such as gpu0",
                                 name, text);
                break;
        case FORM_LINK:
                value = topology_link_kind_find(text);
                link_kinds(allowed);
                if (!value)
                        complain(reader, "%s=\"%.40s\"; allowed: %s", name, text, allowed);
                break;
        case FORM_TEXT:
                if (strlen(text) >= attribute->size)
                        complain(reader, "%s=\"%.40s...\"; allowed: up to %zu bytes", name, text, attribute->size - 1);
                else
                        snprintf((char *)object + attribute->offset, attribute->size, "%s", text);
                return;
        }
        if (!reader->r)
                store(object, attribute, value);
}

/* Fills object; expat has made sure that no name comes twice. */
static void read_attributes(struct reader *reader, const char *element, uint32_t kind,
                            const struct attribute *attributes, void *object, const char **given) {
        char allowed[ALLOWED_MAX] = "";
        uint32_t seen = 0;
        size_t length = 0;

        for (const struct attribute *a = attributes; a->name; a++)
                if (a->kinds & BIT(kind))
                        length += (size_t)snprintf(allowed + length, sizeof(allowed) - length, "%s%s",
                                                   length ? ", " : "", a->name);
        for (; !reader->r && given[0]; given += 2) {
                const struct attribute *a = attributes;

                while (a->name && !((a->kinds & BIT(kind)) && strcmp(a->name, given[0]) == 0))
                        a++;
                if (!a->name) {
                        complain(reader, "<%s> has no attribute %.40s; allowed: %s", element, given[0], allowed);
                        return;
                }
                seen |= 1u << (a - attributes);
                read_value(reader, object, a, given[1]);
        }
        for (const struct attribute *a = attributes; !reader->r && a->name; a++)
                if (a->needed && !(seen & 1u << (a - attributes)))
                        complain(reader, "<%s> lacks %s; needed or allowed: %s", element, a->name, allowed);
}

/* ---- elements ---- */

static void read_root(struct reader *reader, const char *element, const char **given) {
        bool version = false;
        uint64_t value;

        if (strcmp(element, ROOT_NAME) != 0) {
                complain(reader, "<%.40s>; allowed: <" ROOT_NAME " version=\"%d\">", element, TOPOLOGY_XML_VERSION);
                return;
        }
        for (; !reader->r && given[0]; given += 2) {
                if (strcmp(given[0], "version") == 0) {
                        version = true;
                        if (!read_number(given[1], 10, INT32_MAX, &value) || value != TOPOLOGY_XML_VERSION)
                                complain(reader, "version=\"%.40s\"; allowed: %d", given[1], TOPOLOGY_XML_VERSION);
                } else if (strcmp(given[0], "cpus") == 0) {
                        if (!read_number(given[1], 10, UINT32_MAX, &value))
                                complain(reader, "cpus=\"%.40s\"; allowed: a number from 0 to %u", given[1],
                                         UINT32_MAX);
                        else
                                reader->topology->n_cpus = (uint32_t)value;
                } else {
                        complain(reader, "<" ROOT_NAME "> has no attribute %.40s; allowed: version, cpus", given[0]);
                }
        }
        if (!version)
                complain(reader, "<" ROOT_NAME "> lacks version; allowed: %d", TOPOLOGY_XML_VERSION);
}

static void read_node(struct reader *reader, uint32_t kind, const char *element, const char **given) {
        struct topology_node node = {.kind = kind, .numa = TOPOLOGY_NONE};
        uint32_t position;
        int r;

        read_attributes(reader, element, kind, node_attributes, &node, given);
        if (reader->r)
                return;
        if (kind == TOPOLOGY_GPU && topology_count(reader->topology, kind) >= TOPOLOGY_GPUS_MAX) {
                complain(reader, "too many GPUs; allowed: %u", TOPOLOGY_GPUS_MAX);
                return;
        }
        r = topology_add_node(reader->topology, &node, &position);
        if (r == TOPOLOGY_E_EXISTS)
                complain(reader, "<%s index=\"%u\"> is there already; allowed: another index", element, node.index);
        else if (r == TOPOLOGY_E_INVALID)
                complain(reader, "too many nodes; allowed: %u", TOPOLOGY_NODES_MAX);
        else if (r)
                fail(reader, r);
}

static void read_link(struct reader *reader, const char **given) {
        struct topology_link link = {0};
        int r;

        read_attributes(reader, "link", TOPOLOGY_NUMA, link_attributes, &link, given);
        if (reader->r)
                return;
        r = topology_add_link(reader->topology, &link);
        if (r == TOPOLOGY_E_EXISTS)
                complain(reader, "these two have a link of kind %s already; allowed: one of each kind",
                         topology_link_kind_name(link.kind));
        else if (r == TOPOLOGY_E_INVALID && link.a == link.b)
                complain(reader, "a link to itself; allowed: two nodes");
        else if (r == TOPOLOGY_E_INVALID)
                complain(reader, "too many links; allowed: %u", TOPOLOGY_LINKS_MAX);
        else if (r)
                fail(reader, r);
}

static void XMLCALL on_start(void *data, const XML_Char *element, const XML_Char **given) {
        struct reader *reader = data;
        uint32_t kind = topology_node_kind_find(element, strlen(element));

        if (reader->r)
                return;
        if (reader->depth == 0)
                read_root(reader, element, given);
        else if (reader->depth > 1)
                complain(reader, "<%.40s> stands inside another element; allowed: side by side in <" ROOT_NAME ">",
                         element);
        else if (kind)
                read_node(reader, kind, element, given);
        else if (strcmp(element, "link") == 0)
                read_link(reader, given);
        else
                complain(reader, "<%.40s>; allowed: numa, gpu, nic, switch, root, network, link", element);
        reader->depth++;
}

static void XMLCALL on_end(void *data, const XML_Char *element) {
        struct reader *reader = data;

        (void)element;
        reader->depth--;
}

static void XMLCALL on_text(void *data, const XML_Char *text, int length) {
        struct reader *reader = data;

        for (int i = 0; i < length && !reader->r; i++)
                if (!strchr(" \t\r\n", text[i]) || !text[i])
                        complain(reader, "text between elements; allowed: elements and comments");
}

static void XMLCALL on_doctype(void *data, const XML_Char *name, const XML_Char *system, const XML_Char *public,
                               int internal) {
        (void)name;
        (void)system;
        (void)public;
        (void)internal;
        complain(data, "a DOCTYPE; allowed: none");
}

static void parser_freep(XML_Parser *parser) {
        if (*parser)
                XML_ParserFree(*parser);
}

int topology_xml_read(const char *name, const char *text, size_t size, struct topology **ret_topology,
                      char error[TOPOLOGY_ERROR_MAX]) {
        _cleanup_(topology_freep) struct topology *topology = NULL;
        _cleanup_(parser_freep) XML_Parser parser = NULL;
        struct reader reader = {.name = name, .error = error};
        int r;

        if (size > TOPOLOGY_XML_BYTES_MAX) {
                snprintf(error, TOPOLOGY_ERROR_MAX, "%.80s:1:1: %zu bytes; allowed: %u", name, size,
                         TOPOLOGY_XML_BYTES_MAX);
                return TOPOLOGY_E_INVALID;
        }
        r = topology_new(&topology);
        if (r)
                return r;
        parser = XML_ParserCreate(NULL);
        if (!parser)
                return -ENOMEM;
        reader.parser = parser;
        reader.topology = topology;
        XML_SetUserData(parser, &reader);
        XML_SetElementHandler(parser, on_start, on_end);
        XML_SetCharacterDataHandler(parser, on_text);
        XML_SetStartDoctypeDeclHandler(parser, on_doctype);
        if (XML_Parse(parser, text, (int)size, XML_TRUE) != XML_STATUS_OK && !reader.r) {
                if (XML_GetErrorCode(parser) == XML_ERROR_NO_MEMORY)
                        return -ENOMEM;
                complain(&reader, "%s; allowed: well-formed XML with one <" ROOT_NAME ">",
                         XML_ErrorString(XML_GetErrorCode(parser)));
        }
        if (reader.r)
                return reader.r;
        *ret_topology = topology;
        topology = NULL;
        return 0;
}
