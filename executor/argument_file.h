/* SPDX-License-Identifier: MIT */
#pragma once
/* The file that railmuxd writes for the unit of an executor: one line, NAME=arguments with blanks between. */

#define ARGUMENT_FILE_BYTES 4096u
#define ARGUMENT_FILE_WORDS 64u

struct argument_file {
        char text[ARGUMENT_FILE_BYTES];
        char *argv[ARGUMENT_FILE_WORDS + 2]; /* as main() gets them; they point into text */
        int argc;
};

/* 0, also if there is no such file (no arguments then), or -errno. */
int argument_file_read(struct argument_file *file, const char *path);
