/* SPDX-License-Identifier: MIT */
/* Bundles of descriptors: the first byte says how many descriptors lie beside the rest. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * 253)];
        } control = {0};
        struct iovec io = {.iov_base = (void *)(data + 1), .iov_len = size - 1};
        struct msghdr header = {.msg_iov = &io, .msg_iovlen = 1};
        struct bundle bundle;
        uint32_t n;
        int ends[2];

        if (!size || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends))
                return 0;
        n = data[0] > 253 ? 253 : data[0];
        if (n) {
                struct cmsghdr *rights;

                header.msg_control = &control;
                header.msg_controllen = CMSG_SPACE(sizeof(int) * n);
                rights = CMSG_FIRSTHDR(&header);
                rights->cmsg_level = SOL_SOCKET;
                rights->cmsg_type = SCM_RIGHTS;
                rights->cmsg_len = CMSG_LEN(sizeof(int) * n);
                for (uint32_t i = 0; i < n; i++)
                        memcpy(CMSG_DATA(rights) + i * sizeof(int), &ends[0], sizeof(int));
        }
        if (sendmsg(ends[0], &header, MSG_DONTWAIT) >= 0) {
                if (!bundle_peek(ends[1], &bundle)) {
                        if (bundle.n != n || !bundle.n || bundle.n > BUNDLE_FDS_MAX)
                                abort();
                        for (uint32_t i = 0; i < n; i++)
                                if (!bundle.bytes[i])
                                        abort();
                        bundle_close(&bundle);
                }
        }
        close(ends[0]);
        close(ends[1]);
        return 0;
}
