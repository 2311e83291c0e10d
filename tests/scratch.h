/* SPDX-License-Identifier: MIT */
#pragma once
/* A directory of a test's own under $TMPDIR, and its removal. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static inline int scratch_remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        (void)st;
        (void)type;
        (void)ftw;
        return remove(path);
}

/* Removes a directory with all that is in it; 0 if it is gone. */
static inline int scratch_remove(const char *dir) {
        return nftw(dir, scratch_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
