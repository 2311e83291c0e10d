/* SPDX-License-Identifier: MIT */
/* Files with graphs, told apart by the name of their first element. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/machine.h"
#include "topology/xml.h"
#include "util/cleanup.h"

static int load_text(const char *path, char **ret_text, size_t *ret_size) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        struct stat st;
        ssize_t n;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EBADF;
        text = malloc(TOPOLOGY_XML_BYTES_MAX + 2);
        if (!text)
                return -ENOMEM;
        while (size <= TOPOLOGY_XML_BYTES_MAX) {
                n = read(fd, text + size, TOPOLOGY_XML_BYTES_MAX + 1 - size);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                size += (size_t)n;
        }
        if (size > TOPOLOGY_XML_BYTES_MAX)
                return -EFBIG;
        text[size] = '\0';
        *ret_text = text;
        *ret_size = size;
        text = NULL;
        return 0;
}

/* The first tag that is neither a declaration nor a comment; the end of the text if there is none. */
static const char *first_element(const char *text) {
        static const struct { const char *open, *close; } skipped[] = {{"<!--", "-->"}, {"<?", "?>"}, {"<!", ">"}};

        for (;;) {
                const char *end = NULL;

                text += strspn(text, " \t\r\n");
                for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]) && !end; i++)
                        if (strncmp(text, skipped[i].open, strlen(skipped[i].open)) == 0) {
                                end = strstr(text, skipped[i].close);
                                end = end ? end + strlen(skipped[i].close) : text + strlen(text);
                        }
                if (!end)
                        return text;
                text = end;
        }
}

int topology_load(const char *path, struct topology **ret_topology, char error[TOPOLOGY_ERROR_MAX]) {
        _cleanup_free_ char *text = NULL;
        const char *element;
        size_t size = 0;
        int r = load_text(path, &text, &size);

        if (r == -EBADF || r == -EFBIG) {
                snprintf(error, TOPOLOGY_ERROR_MAX, "%.200s: %s", path,
                         r == -EBADF ? "it is no regular file" : "it is larger than 4 MiB");
                return TOPOLOGY_E_INVALID;
        }
        if (r) {
                snprintf(error, TOPOLOGY_ERROR_MAX, "%.200s: %s", path, strerror(-r));
                return r;
        }
        element = first_element(text);
        if (strncmp(element, "<topology", 9) != 0)
                return topology_xml_read(path, text, size, ret_topology, error);
        r = machine_read_xml(text, size, ret_topology);
        if (r)
                snprintf(error, TOPOLOGY_ERROR_MAX, "%.200s: %s", path,
                         r > 0 ? "hwloc cannot read it; allowed: what lstopo writes" : strerror(-r));
        return r;
}
