/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Many descriptors in one: what would need a list of descriptors in every message and store needs one then. Each has a
 * size beside it. See bundle.c for how.
 *
 * Threads: any, on bundles of their own. No call blocks. Errors: 0 or negative errno.
 */
#include <stdint.h>

#define BUNDLE_FDS_MAX 128u /* one message takes 253 (SCM_MAX_FD of Linux) */

struct bundle {
        uint32_t n;
        uint64_t bytes[BUNDLE_FDS_MAX]; /* what each stands for; never 0 */
        int fd[BUNDLE_FDS_MAX];
};

/* A descriptor that stands for all of them, which stay the caller's. -EINVAL: none, too many, or one without bytes.
 * -ETOOMANYREFS: this user has too many descriptors packed away (as many as RLIMIT_NOFILE). */
int bundle_pack(const struct bundle *bundle, int *ret_fd);
/* Copies of those that are in there. Only of a bundle that this process has packed or got from one that it trusts: see
 * bundle.c. -EINVAL: it is no bundle. -EMFILE: not all of them could be opened. */
int bundle_peek(int fd, struct bundle *ret_bundle);
/* Sum of the sizes; 0: more than 64 bits have. */
uint64_t bundle_bytes(const struct bundle *bundle);
/* Closes those that are in the struct. */
void bundle_close(struct bundle *bundle);
