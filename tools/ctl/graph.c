/* SPDX-License-Identifier: MIT */
/*
 * Graphviz's dot draws. It gets the source as its standard input and leaves the drawing in memory, so nothing of a
 * drawing that failed reaches a file, and no pipe can fill up between us.
 */
#include "tools/ctl/graph.h"

#include "topology/discover.h"
#include "topology/rails.h"
#include "topology/topology.h"
#include "topology/xml.h"
#include "util/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int graph_of_daemon(struct answer *answer, char error[ANSWER_ERROR_MAX]) {
        char text[TOPOLOGY_ERROR_MAX] = "it is not there";
        int r = TOPOLOGY_E_INVALID;

        if (answer->topology)
                r = topology_xml_read("railmuxd", answer->topology, answer->topology_length, &answer->graph, text);
        if (r > 0) {
                snprintf(error, ANSWER_ERROR_MAX, "the graph in railmuxd's answer cannot be read: %.190s", text);
                return -EBADMSG;
        }
        return r ? r : topology_rails_new(answer->graph, &answer->rails);
}

int graph_of_file(struct answer *answer, const char *path, char error[ANSWER_ERROR_MAX]) {
        char text[TOPOLOGY_ERROR_MAX] = "";
        int r = topology_load(path, &answer->graph, text);

        if (r && r != -ENOMEM) {
                snprintf(error, ANSWER_ERROR_MAX, "%.250s", text);
                return -EINVAL;
        }
        return r ? r : topology_rails_new(answer->graph, &answer->rails);
}

int graph_of_here(struct answer *answer, char error[ANSWER_ERROR_MAX]) {
        int r = topology_discover(&(struct discover_options){0}, &answer->graph);

        if (r && r != -ENOMEM) {
                snprintf(error, ANSWER_ERROR_MAX, "cannot look at this machine: %s",
                         r > 0 ? "it has more parts than a graph can have" : strerror(-r));
                return -EIO;
        }
        return r ? r : topology_rails_new(answer->graph, &answer->rails);
}

static int write_whole(int fd, const char *text, size_t length) {
        while (length > 0) {
                ssize_t n = write(fd, text, length);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                text += n;
                length -= (size_t)n;
        }
        return 0;
}

/* Beside the file, then in its place: readers see the old one or the new one. */
static int replace_file(const char *path, const char *text, size_t length) {
        _cleanup_free_ char *beside = NULL;
        _cleanup_close_ int fd = -1;
        mode_t mask = umask(0);
        int r;

        umask(mask);
        if (asprintf(&beside, "%s.XXXXXX", path) < 0) {
                beside = NULL;
                return -ENOMEM;
        }
        fd = mkostemp(beside, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        r = write_whole(fd, text, length);
        if (!r && (fchmod(fd, 0666 & ~mask) < 0 || rename(beside, path) < 0))
                r = -errno;
        if (r)
                unlink(beside);
        return r;
}

static int write_in_place(const char *path, int flags, const char *text, size_t length) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | flags, 0666);

        return fd < 0 ? -errno : write_whole(fd, text, length);
}

/* Only a file can be replaced: a device, a pipe or a link to either is written to, or it would be gone. Of a link to a
 * file the file is replaced. */
static int write_path(const char *path, const char *text, size_t length) {
        _cleanup_free_ char *real = NULL;
        struct stat st;

        if (lstat(path, &st) < 0)
                return errno == ENOENT ? replace_file(path, text, length) : -errno;
        if (stat(path, &st) < 0) /* a link to nothing as yet */
                return errno == ENOENT ? write_in_place(path, O_CREAT, text, length) : -errno;
        if (S_ISREG(st.st_mode))
                real = realpath(path, NULL);
        return real ? replace_file(real, text, length) : write_in_place(path, O_TRUNC, text, length);
}

static int write_to(const char *path, const char *text, size_t length, char error[ANSWER_ERROR_MAX]) {
        int r = strcmp(path, "-") == 0 ? write_whole(STDOUT_FILENO, text, length) : write_path(path, text, length);

        if (r)
                snprintf(error, ANSWER_ERROR_MAX, "cannot write %.150s: %s", path, strerror(-r));
        return r;
}

int graph_to_xml(const struct answer *answer, const char *path, char error[ANSWER_ERROR_MAX]) {
        _cleanup_free_ char *text = NULL;
        size_t length = 0;
        int r = topology_xml_write(answer->graph, &text, &length);

        return r ? r : write_to(path, text, length, error);
}

/* A file in memory, with the source of the drawing in it, to be read from its beginning. */
static int source_new(const struct answer *answer, int *ret_fd) {
        int fd = memfd_create("dot", MFD_CLOEXEC), copy, r = 0;
        FILE *out;

        if (fd < 0)
                return -errno;
        copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        out = copy >= 0 ? fdopen(copy, "w") : NULL;
        if (!out) {
                r = -errno;
                if (copy >= 0)
                        close(copy);
                close(fd);
                return r;
        }
        r = graph_to_dot(answer, out);
        if (fclose(out) != 0 && !r)
                r = -EIO;
        if (!r && lseek(fd, 0, SEEK_SET) < 0)
                r = -errno;
        if (r)
                close(fd);
        else
                *ret_fd = fd;
        return r;
}

/* 0, -ENOPKG, -EPROTO: dot has failed (and said why), -errno. */
static int draw(int source_fd, int drawing_fd) {
        char *const argv[] = {(char *)"dot", (char *)"-Tsvg", NULL};
        posix_spawn_file_actions_t actions;
        int status = 0, r;
        pid_t pid;

        r = -posix_spawn_file_actions_init(&actions);
        if (r)
                return r;
        r = -posix_spawn_file_actions_adddup2(&actions, source_fd, STDIN_FILENO);
        if (!r)
                r = -posix_spawn_file_actions_adddup2(&actions, drawing_fd, STDOUT_FILENO);
        if (!r)
                r = -posix_spawnp(&pid, "dot", &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (r)
                return r == -ENOENT ? -ENOPKG : r;
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPROTO;
}

int graph_to_svg(const struct answer *answer, const char *path, char error[ANSWER_ERROR_MAX]) {
        _cleanup_close_ int source_fd = -1, drawing_fd = -1;
        _cleanup_free_ char *drawing = NULL;
        off_t length = 0;
        ssize_t n;
        int r;

        r = source_new(answer, &source_fd);
        if (!r) {
                drawing_fd = memfd_create("svg", MFD_CLOEXEC);
                r = drawing_fd < 0 ? -errno : draw(source_fd, drawing_fd);
        }
        if (!r) {
                length = lseek(drawing_fd, 0, SEEK_END);
                drawing = length > 0 ? malloc((size_t)length) : NULL;
                n = drawing ? pread(drawing_fd, drawing, (size_t)length, 0) : -1;
                r = length <= 0 ? -EPROTO : !drawing ? -ENOMEM : n != length ? -EIO : 0;
        }
        if (!r)
                return write_to(path, drawing, (size_t)length, error);
        if (r == -ENOPKG)
                snprintf(error, ANSWER_ERROR_MAX,
                         "Graphviz's dot is not installed (package graphviz); --dot prints what it would draw");
        else if (r == -EPROTO)
                snprintf(error, ANSWER_ERROR_MAX, "Graphviz's dot has failed; --dot prints what it was given");
        else
                snprintf(error, ANSWER_ERROR_MAX, "cannot draw: %s", strerror(-r));
        return r;
}
