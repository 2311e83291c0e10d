/* SPDX-License-Identifier: MIT */
/*
 * A client sends a descriptor for each chunk beside its call, and railmuxd packs them into a bundle (util/bundle.h),
 * which it keeps and passes on.
 *
 * What is no memory of a GPU is refused: an executor would not know what it is about to close, and closing may take as
 * long as a client likes (a socket that lingers). To find out must not take long either. Whatever lies on a file system
 * that a client serves itself answers fstat or fstatfs when he likes; so what is asked is statx for what is known
 * already, which sends no request, and what procfs says by itself: only a dma-buf tells who has exported it. (procfs
 * renders all that there is to say first; a file that is called like a dma-buf can have locks without number. So where
 * NVIDIA's driver is nobody asks, and elsewhere a client may have it asked once: see session_dispatch.c.)
 */
#include "daemon/chunks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/bundle.h"

#define NVIDIA_MAJOR 195u /* devices.txt of Linux */

static bool is_dmabuf(int fd) {
        char path[64], text[512];
        ssize_t n;
        int info;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, text, sizeof(text) - 1); /* "/dmabuf:..", but a file may have that name */
        if (n <= 0 || strncmp(text, "/dmabuf:", 8) != 0)
                return false;
        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
        info = open(path, O_RDONLY | O_CLOEXEC);
        if (info < 0)
                return false;
        n = read(info, text, sizeof(text) - 1);
        close(info);
        text[n > 0 ? n : 0] = '\0';
        return strstr(text, "\nexp_name:\t") != NULL;
}

bool chunks_is_memory(int fd) {
        struct statx status;
        int flags = fcntl(fd, F_GETFL);

        if (flags < 0 || flags & O_PATH) /* the latter says nothing of what it would be to open it */
                return false;
        if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) < 0 ||
            !(status.stx_mask & STATX_TYPE))
                return false;
        if (S_ISCHR(status.stx_mode))
                return status.stx_rdev_major == NVIDIA_MAJOR;
        return access("/dev/nvidiactl", F_OK) < 0 && is_dmabuf(fd);
}

int chunks_pack(const int *fds, uint32_t n, const uint64_t *sizes, size_t n_sizes, uint64_t bytes, int *ret_fd,
                char *text, size_t text_size) {
        struct bundle bundle = {.n = n};
        int r;

        if (!n || n > BUNDLE_FDS_MAX || n != n_sizes) {
                snprintf(text, text_size, "%" PRIu32 " descriptors of memory with %zu sizes; allowed: 1 to %u of each",
                         n, n_sizes, BUNDLE_FDS_MAX);
                return CHUNKS_E_INVALID;
        }
        for (uint32_t i = 0; i < n; i++) {
                if (!sizes[i]) {
                        snprintf(text, text_size, "chunk %" PRIu32 " of %" PRIu32 " has no bytes", i, n);
                        return CHUNKS_E_INVALID;
                }
                if (!chunks_is_memory(fds[i])) {
                        snprintf(text, text_size, "descriptor %" PRIu32 " of %" PRIu32 " is not one of memory on a GPU",
                                 i, n);
                        return CHUNKS_E_STRANGE;
                }
                bundle.fd[i] = fds[i];
                bundle.bytes[i] = sizes[i];
        }
        if (bundle_bytes(&bundle) != bytes) {
                snprintf(text, text_size, "%" PRIu32 " chunks of %" PRIu64 " bytes in all, not %" PRIu64, n,
                         bundle_bytes(&bundle), bytes);
                return CHUNKS_E_INVALID;
        }
        r = bundle_pack(&bundle, ret_fd);
        if (r)
                snprintf(text, text_size, "the memory's descriptors cannot be kept: %s", strerror(-r));
        return r ? CHUNKS_E_RESOURCE : 0;
}

uint32_t chunks_count(int fd) {
        struct bundle bundle;
        uint32_t n;

        if (bundle_peek(fd, &bundle))
                return 0;
        n = bundle.n;
        bundle_close(&bundle);
        return n;
}
