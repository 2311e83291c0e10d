/* SPDX-License-Identifier: MIT */
/*
 * A machine from a file that hwloc has written
 *
 * hwloc trusts such files: one in which a set is missing makes 2.9 follow a NULL. So a child reads it, and gives back
 * our own XML, which is read with care; a child that is gone without an answer is a file that cannot be read. A child
 * of a program with several threads may call hardly anything, and hwloc needs malloc; the programs that read files,
 * railmuxctl and railmux-sim, have one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/hwloc_private.h"
#include "topology/machine.h"
#include "topology/topology.h"
#include "topology/xml.h"
#include "util/cleanup.h"

/* How the child ends. Other numbers are a sanitizer's. */
enum { CHILD_READ = 0, CHILD_INVALID = 10, CHILD_NO_MEMORY = 11 };

static int read_here(const char *text, size_t size, struct topology **ret_topology) {
        _cleanup_(hwloc_freep) hwloc_topology_t hwloc = NULL;
        _cleanup_(topology_freep) struct topology *topology = NULL;
        int r;

        if (hwloc_topology_init(&hwloc) < 0)
                return -ENOMEM;
        if (hwloc_topology_set_xmlbuffer(hwloc, text, (int)size + 1) < 0 ||
            hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_ALL) < 0 || hwloc_topology_load(hwloc) < 0)
                return TOPOLOGY_E_INVALID;
        r = topology_new(&topology);
        if (!r)
                r = machine_read(hwloc, NULL, 0, topology);
        if (r)
                return r;
        *ret_topology = topology;
        topology = NULL;
        return 0;
}

static _Noreturn void child(int fd, const char *text, size_t size) {
        static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
        struct topology *topology;
        size_t length = 0;
        char *answer = NULL;
        int r;

        prctl(PR_SET_DUMPABLE, 0); /* that it crashes is no news */
        for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
                signal(crashes[i], SIG_DFL); /* the program may have handlers, which would go on in its place */
        r = read_here(text, size, &topology);
        if (!r)
                r = topology_xml_write(topology, &answer, &length);
        while (!r && length > 0) {
                ssize_t n = write(fd, answer, length);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        r = -errno;
                answer += n > 0 ? n : 0;
                length -= n > 0 ? (size_t)n : 0;
        }
        _exit(!r ? CHILD_READ : r == -ENOMEM ? CHILD_NO_MEMORY : CHILD_INVALID);
}

/* All that comes, with a NUL behind it. What is too much for a graph is TOPOLOGY_E_INVALID. */
static int take_answer(int fd, char *answer, size_t *ret_length) {
        size_t length = 0;
        ssize_t n = 1;

        while (n != 0 && length <= TOPOLOGY_XML_BYTES_MAX) {
                n = read(fd, answer + length, TOPOLOGY_XML_BYTES_MAX + 1 - length);
                if (n < 0 && errno != EINTR)
                        return -errno;
                length += n > 0 ? (size_t)n : 0;
        }
        if (length > TOPOLOGY_XML_BYTES_MAX)
                return TOPOLOGY_E_INVALID;
        answer[length] = '\0';
        *ret_length = length;
        return 0;
}

int machine_read_xml(const char *text, size_t size, struct topology **ret_topology) {
        _cleanup_free_ char *answer = malloc(TOPOLOGY_XML_BYTES_MAX + 2);
        char error[TOPOLOGY_ERROR_MAX];
        int fds[2], status = 0, r;
        size_t length = 0;
        pid_t pid;

        if (!answer)
                return -ENOMEM;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        pid = fork();
        if (pid < 0) {
                r = -errno;
                close(fds[0]);
                close(fds[1]);
                return r;
        }
        if (pid == 0)
                child(fds[1], text, size);
        close(fds[1]);
        r = take_answer(fds[0], answer, &length);
        close(fds[0]); /* who still writes ends here */
        while (waitpid(pid, &status, 0) < 0) {
                if (errno == ECHILD) { /* who started us ignores SIGCHLD: what it has said must do */
                        status = length > 0 ? 0 : CHILD_INVALID << 8;
                        break;
                }
                if (errno != EINTR)
                        return -errno;
        }
        if (r)
                return r;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != CHILD_READ)
                return WIFEXITED(status) && WEXITSTATUS(status) == CHILD_NO_MEMORY ? -ENOMEM : TOPOLOGY_E_INVALID;
        return topology_xml_read("hwloc", answer, length, ret_topology, error);
}
