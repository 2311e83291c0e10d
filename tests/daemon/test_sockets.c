/* SPDX-License-Identifier: MIT */
/*
 * Listening sockets that a service manager hands over: those of socket units, and those that a predecessor made.
 */
#include "tests/cmocka_all.h"

#include "tests/daemon/fixture.h"
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the file that the client socket is. */
static ino_t socket_inode(const struct fixture *f) {
        struct stat st;

        assert_int_equal(stat(f->socket, &st), 0);
        return st.st_ino;
}

static void again(struct fixture *f) {
        fixture_kill(f);
        executor_disconnect(f);
        fixture_start(f);
        executor_connect(f, true);
        fixture_wait(f, f->executor.welcome);
}

static void test_path_of_our_own(void **state) {
        struct fixture f;
        ino_t inode;

        (void)state;
        fixture_setup(&f, NULL, true);
        fixture_wait(&f, f.n_store == 4);
        inode = socket_inode(&f);
        fixture_add_unit(&f, "client", "unit.sock");
        for (unsigned int i = 0; i < 2; i++) { /* it is stored again, so the next one has it as well */
                again(&f);
                assert_true(socket_inode(&f) == inode);
                fixture_wait(&f, f.n_store == 5 && fixture_stored(&f, "client") >= 0);
                client_close(client_open(&f));
        }
        fixture_teardown(&f);
}

static void test_path_of_the_unit_again(void **state) {
        struct fixture f;

        (void)state;
        fixture_setup(&f, NULL, true);
        fixture_wait(&f, f.n_store == 4);
        snprintf(f.socket, sizeof(f.socket), "%s/unit.sock", f.directory);
        snprintf(f.exec, sizeof(f.exec), "%s.exec", f.socket);
        fixture_add_unit(&f, "client", "unit.sock");
        again(&f);
        client_close(client_open(&f));
        fixture_wait(&f, fixture_stored(&f, "client") < 0); /* nobody serves it: who connects is refused */
        fixture_teardown(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_path_of_our_own),
                cmocka_unit_test(test_path_of_the_unit_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
