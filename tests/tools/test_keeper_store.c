/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"

#include "daemon/keeper_notify.h"
#include "daemon/keeper_store.h"
#include "tests/scratch.h"

static int new_fd(void) {
        int fd = memfd_create("t", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static ino_t inode(int fd) {
        struct stat st;

        return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static void assert_names(const struct keeper_store *store, const char *expected) {
        char *names = keeper_store_names(store);

        assert_non_null(names);
        assert_string_equal(names, expected);
        assert_int_equal(store->names_bytes, strlen(expected) + (*expected != '\0'));
        free(names);
}

static void test_put_remove(void **state) {
        struct keeper_store store = KEEPER_STORE_INIT;
        int fd = new_fd();

        (void)state;
        assert_names(&store, "");
        assert_int_equal(keeper_store_put(&store, "a", dup(fd)), 0);
        assert_int_equal(keeper_store_put(&store, "b", new_fd()), 0);
        /* The same open file again under its name is dropped; another one under that name is kept. */
        assert_int_equal(keeper_store_put(&store, "a", dup(fd)), KEEPER_STORE_E_DUPLICATE);
        assert_int_equal(keeper_store_put(&store, "a", new_fd()), 0);
        assert_names(&store, "a:b:a");
        assert_int_equal(keeper_store_put(&store, "a", dup(fd)), KEEPER_STORE_E_DUPLICATE);
        assert_int_equal(store.n_fds, 3);
        keeper_store_remove(&store, "c");
        keeper_store_remove(&store, "a");
        assert_names(&store, "b");
        assert_int_equal(keeper_store_put(&store, "a", fd), 0);
        assert_names(&store, "b:a");
        keeper_store_clear(&store);
        assert_int_equal(store.n_fds, 0);
        assert_null(store.all);
        assert_null(store.by_name);
        assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed */
}

static void test_names(void **state) {
        struct keeper_store store = KEEPER_STORE_INIT;
        char name[300];

        (void)state;
        memset(name, 'n', sizeof(name));
        name[255] = '\0';
        assert_int_equal(keeper_store_put(&store, "a:b", new_fd()), 0);
        assert_int_equal(keeper_store_put(&store, "", new_fd()), 0);
        assert_int_equal(keeper_store_put(&store, "a b", new_fd()), 0);
        assert_names(&store, "stored:stored:stored");
        keeper_store_clear(&store);
        assert_int_equal(keeper_store_put(&store, name, new_fd()), 0);
        assert_names(&store, name);
        keeper_store_clear(&store);
}

/* All names must fit one environment variable. */
static void test_full(void **state) {
        struct keeper_store store = KEEPER_STORE_INIT;
        int r = 0, event_fd = eventfd(0, EFD_CLOEXEC);
        unsigned int n = 0;
        char name[256];
        struct keeper_store_entry *entry;

        (void)state;
        memset(name, 'n', sizeof(name));
        name[250] = '\0';
        while (!r) {
                char number[16];

                snprintf(number, sizeof(number), "%05u", n);
                memcpy(name, number, 5);
                r = keeper_store_put(&store, name, dup(event_fd));
                n += !r;
        }
        assert_int_equal(r, KEEPER_STORE_E_FULL);
        assert_int_equal(n, KEEPER_STORE_NAMES_MAX / 251);
        assert_true(store.names_bytes <= KEEPER_STORE_NAMES_MAX);
        entry = store.all;
        keeper_store_remove(&store, entry->name);
        assert_int_equal(keeper_store_put(&store, "short", event_fd), 0);
        keeper_store_clear(&store);
}

/* Descriptors that already stand in the target range, in every order. */
static void test_place(void **state) {
        struct keeper_store store = KEEPER_STORE_INIT;
        ino_t inodes[8];
        int status;
        pid_t pid;

        (void)state;
        for (int i = 0; i < 8; i++) {
                char name[8];
                int fd = new_fd(), low = 3 + (i * 5 + 1) % 9; /* scattered over the range */

                inodes[i] = inode(fd);
                if (fcntl(low, F_GETFD) < 0) {
                        assert_int_equal(dup3(fd, low, O_CLOEXEC), low);
                        close(fd);
                        fd = low;
                }
                snprintf(name, sizeof(name), "f%d", i);
                assert_int_equal(keeper_store_put(&store, name, fd), 0);
        }
        assert_names(&store, "f0:f1:f2:f3:f4:f5:f6:f7");
        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (keeper_store_place(&store) != 0)
                        _exit(100);
                for (int i = 0; i < 8; i++)
                        if (inode(3 + i) != inodes[i] || fcntl(3 + i, F_GETFD) != 0)
                                _exit(1 + i);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        keeper_store_clear(&store);
}

static void test_parse(void **state) {
        static struct keeper_message m;

        (void)state;
        snprintf(m.text, sizeof(m.text), "%s",
                 "READY=1\nSTATUS=all well\nFDSTORE=1\nFDNAME=s12\nFDPOLL=0\nX_RAILMUX_EXECUTOR=host\n"
                 "X_RAILMUX_ARGUMENT=--gpus\nX_RAILMUX_ARGUMENT=8\nBARRIER=1\nWATCHDOG=1");
        keeper_message_parse(&m);
        assert_true(m.ready && m.fdstore && m.barrier && m.watchdog);
        assert_false(m.fdstore_remove || m.stopping || m.reloading || m.watchdog_trigger);
        assert_string_equal(m.fd_name, "s12");
        assert_string_equal(m.executor, "host");
        assert_int_equal(m.n_arguments, 2);
        assert_string_equal(m.arguments[0], "--gpus");
        assert_string_equal(m.arguments[1], "8");
        assert_null(m.arguments[2]);
}

static int unix_socket(const struct sockaddr_un *address, bool listens) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        if (listens)
                assert_true(bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 && listen(fd, 1) == 0);
        else
                assert_int_equal(connect(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
        return fd;
}

/* Only the sockets to which somebody could connect: what they have accepted goes by the same name. */
static void test_unlink(void **state) {
        struct keeper_store store = KEEPER_STORE_INIT;
        struct sockaddr_un kept = {.sun_family = AF_UNIX}, gone = {.sun_family = AF_UNIX},
                           taken = {.sun_family = AF_UNIX};
        char dir[] = "/tmp/railmux-store-XXXXXX";
        int listener, client, other;

        (void)state;
        assert_non_null(mkdtemp(dir));
        snprintf(taken.sun_path, sizeof(taken.sun_path), "%s/taken", dir);
        snprintf(kept.sun_path, sizeof(kept.sun_path), "%s/kept", dir);
        snprintf(gone.sun_path, sizeof(gone.sun_path), "%s/gone", dir);
        listener = unix_socket(&kept, true);
        client = unix_socket(&kept, false);
        assert_int_equal(keeper_store_put(&store, "s1", accept4(listener, NULL, NULL, SOCK_CLOEXEC)), 0);
        assert_int_equal(keeper_store_put(&store, "client", unix_socket(&gone, true)), 0);
        assert_int_equal(keeper_store_put(&store, "state", new_fd()), 0);
        /* Somebody has removed one, and another daemon has taken the path. */
        assert_int_equal(keeper_store_put(&store, "control", unix_socket(&taken, true)), 0);
        assert_int_equal(unlink(taken.sun_path), 0);
        other = unix_socket(&taken, true);
        keeper_store_unlink(&store);
        assert_int_equal(access(taken.sun_path, F_OK), 0);
        assert_int_equal(access(kept.sun_path, F_OK), 0);
        assert_int_equal(access(gone.sun_path, F_OK), -1);
        keeper_store_clear(&store);
        close(listener);
        close(client);
        close(other);
        assert_int_equal(scratch_remove(dir), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_put_remove), cmocka_unit_test(test_names), cmocka_unit_test(test_full),
                cmocka_unit_test(test_place),      cmocka_unit_test(test_parse), cmocka_unit_test(test_unlink),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
