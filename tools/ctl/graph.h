/* SPDX-License-Identifier: MIT */
#pragma once
/* The graph behind `railmuxctl topology`: where it comes from and where it goes. */
#include "tools/ctl/answer.h"
#include <stdio.h>

/* Makes a graph of what railmuxd has said, with rails. 0, -EBADMSG with a sentence in error, -ENOMEM. */
int graph_of_daemon(struct answer *answer, char error[ANSWER_ERROR_MAX]);
/* The same from a file, ours or hwloc's; nobody is asked. 0, -EINVAL with a sentence, -ENOMEM. */
int graph_of_file(struct answer *answer, const char *path, char error[ANSWER_ERROR_MAX]);
/* The same of the machine that this program runs on, as this user sees it. 0, -EIO with a sentence, -ENOMEM. */
int graph_of_here(struct answer *answer, char error[ANSWER_ERROR_MAX]);
/* Both write a file, "-": standard output. A file stays as it is until the new one is whole; a device or a pipe is
 * written to. 0, or -errno and a sentence; -ENOPKG: Graphviz is not there. */
int graph_to_xml(const struct answer *answer, const char *path, char error[ANSWER_ERROR_MAX]);
int graph_to_svg(const struct answer *answer, const char *path, char error[ANSWER_ERROR_MAX]);
/* What Graphviz draws from. 0 or -EIO. */
int graph_to_dot(const struct answer *answer, FILE *out);
