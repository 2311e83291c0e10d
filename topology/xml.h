/* SPDX-License-Identifier: MIT */
#pragma once
/* Graphs as text and back. See xml_read.c for the format. */
#include <stddef.h>

#include "topology/topology.h"

#define TOPOLOGY_XML_VERSION   1
#define TOPOLOGY_XML_BYTES_MAX (4u << 20)
#define TOPOLOGY_ERROR_MAX     512u

/* `name` is only for messages. 0; TOPOLOGY_E_INVALID and "name:line:column: what is wrong; what would be right";
 * -ENOMEM. */
int topology_xml_read(const char *name, const char *text, size_t size, struct topology **ret_topology,
                      char error[TOPOLOGY_ERROR_MAX]);
/* Text from malloc with a NUL behind it. What it says is read back as the same graph. 0 or -ENOMEM. */
int topology_xml_write(const struct topology *topology, char **ret_text, size_t *ret_size);
/* A file in our format, or one that hwloc has written (lstopo node.xml). 0; TOPOLOGY_E_INVALID or -errno with a
 * sentence. */
int topology_load(const char *path, struct topology **ret_topology, char error[TOPOLOGY_ERROR_MAX]);
