/* SPDX-License-Identifier: MIT */
/*
 * Shared memory that a hostile peer cannot turn into a fault.
 *
 * Size.     The daemon makes the file, sizes it and seals SHRINK|GROW|SEAL before anybody else sees it. A mapping of it
 * can therefore never end in SIGBUS, whoever holds the other descriptors (but for a kernel that has been told to refuse
 * pages beyond a limit, vm.overcommit_memory=2; see railmuxd(8)). Writing.  Words that only the daemon's side
 * writes are given to clients through a second open file description that was opened read-only: such a descriptor
 * cannot be mapped writable, nor can a read-only mapping be upgraded. What is left is opening the file anew through
 * /proc, which the inode's mode decides; hence 0600 before anything else. F_SEAL_FUTURE_WRITE would be shorter, but
 * would also lock out a successor of the daemon, which has to map the same file writable again.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "util/cleanup.h"
#include "util/memfd.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

static int memfd_create_plain(const char *name) {
        int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

        /* Kernels before 6.3 do not know NOEXEC_SEAL. */
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        return fd < 0 ? -errno : fd;
}

int memfd_new(const char *name, size_t size, int *ret_fd) {
        _cleanup_close_ int fd = -1;

        if (!size || size > (size_t)INT64_MAX)
                return -EINVAL;
        fd = memfd_create_plain(name);
        if (fd < 0)
                return fd;
        if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)size) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return -errno;
        *ret_fd = fd;
        fd = -1;
        return 0;
}

int memfd_reopen_readonly(int fd, int *ret_fd) {
        char path[32];
        int copy;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        copy = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (copy < 0)
                return -errno;
        *ret_fd = copy;
        return 0;
}

int memfd_map(int fd, size_t size, int writable, int must_seal, void **ret_address) {
        struct stat st;
        void *address;
        int seals;

        if (!size)
                return -EINVAL;
        if (must_seal) {
                seals = fcntl(fd, F_GET_SEALS);
                if (seals < 0)
                        return -errno;
                if (!(seals & F_SEAL_SHRINK))
                        return -EPERM;
        }
        /* After the seal check: only then is the size a lasting fact. */
        if (fstat(fd, &st) < 0)
                return -errno;
        if (st.st_size < 0 || (uint64_t)st.st_size < size)
                return -ERANGE;
        address = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (address == MAP_FAILED)
                return -errno;
        *ret_address = address;
        return 0;
}

void memfd_unmap(void *address, size_t size) {
        if (address)
                munmap(address, size);
}
