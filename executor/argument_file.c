/* SPDX-License-Identifier: MIT */
/*
 * Who may write the file may not bring code into this process, which has all tenants' memory: nothing in it becomes a
 * part of the environment, where runtimes look for the names of libraries.
 */
#include "executor/argument_file.h"

#include "util/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char argument_file_name[] = "RAILMUX_EXECUTOR_ARGUMENTS=";

int argument_file_read(struct argument_file *file, const char *path) {
        _cleanup_close_ int fd = -1;
        char *word, *rest = file->text;
        struct stat st;
        ssize_t n;

        *file = (struct argument_file){.argv = {(char *)"railmux-executor"}, .argc = 1};
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EBADF;
        n = read(fd, file->text, sizeof(file->text)); /* it is replaced in one step, and short */
        if (n < 0)
                return -errno;
        if ((size_t)n == sizeof(file->text))
                return -EFBIG;
        file->text[n] = '\0';
        file->text[strcspn(file->text, "\n")] = '\0';
        if (strncmp(rest, argument_file_name, sizeof(argument_file_name) - 1) != 0)
                return -EINVAL;
        rest += sizeof(argument_file_name) - 1;
        while ((word = strsep(&rest, " "))) {
                if (!*word)
                        continue;
                if (file->argc == ARGUMENT_FILE_WORDS + 1)
                        return -E2BIG;
                file->argv[file->argc++] = word;
        }
        return 0;
}
