/* SPDX-License-Identifier: MIT */
#pragma once
/* For the files that make metrics. */
struct control_answer;
struct manager;

/* name: behind "railmux_". kind: "gauge", "counter". labels: name, value, ..., NULL; NULL: none. */
void metrics_add(struct control_answer *answer, const char *name, const char *help, const char *kind, double value,
                 const char *const *labels);

/* metrics_fabric.c */
void metrics_fabric(struct control_answer *answer, struct manager *manager);
