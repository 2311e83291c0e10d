/* SPDX-License-Identifier: MIT */
/* Preloaded into railmuxd: memfds count as memory of a GPU. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

__attribute__((visibility("default"))) int statx(int fd, const char *path, int flags, unsigned int mask,
                                                 struct statx *ret) {
        static int (*next)(int fd, const char *path, int flags, unsigned int mask, struct statx *ret);
        int r;

        if (!next)
                next = (int (*)(int, const char *, int, unsigned int, struct statx *))dlsym(RTLD_NEXT, "statx");
        r = next(fd, path, flags, mask, ret);
        if (r == 0 && fcntl(fd, F_GET_SEALS) >= 0) {
                ret->stx_mode = S_IFCHR;
                ret->stx_rdev_major = 195;
        }
        return r;
}
