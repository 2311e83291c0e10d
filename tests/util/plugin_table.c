/* SPDX-License-Identifier: MIT */
/* A plug-in for test_plugin.c. */
#include <stdint.h>

extern const struct plugin_table { uint32_t version, number; } plugin_table __attribute__((visibility("default")));

const struct plugin_table plugin_table = {7, 42};
