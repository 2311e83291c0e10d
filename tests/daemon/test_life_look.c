/* SPDX-License-Identifier: MIT */
/* Looks at processes that may dump core: whatever the kernel takes for some of them, none holds the loop. Kernel and
 * clock are the test's. */
#include "tests/cmocka_all.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/manager.h"
#include "daemon/session.h"
#include "daemon/session_life.h"
#include "daemon/tenant.h"

#define SESSIONS 200
#define TENANTS  20
#define FAST_NS  20000u
#define SLOW_NS  25000000u
#define BOUND_NS (SLOW_NS + 2000000u) /* of a look: one slow process, beside what it may take */

static struct {
        bool slow, dumps;
        unsigned int n; /* times that it was looked at */
} processes[SESSIONS + 1];
static unsigned int looking_at;
static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
        (void)clock;
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u), .tv_nsec = (long)(now_ns % 1000000000u)};
        return 0;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
        assert_int_equal(sscanf(path, "/proc/%u/status", &looking_at), 1);
        return __real_open("/dev/null", flags);
}

ssize_t __wrap_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes) {
        (void)fd;
        assert_in_range(looking_at, 1, SESSIONS);
        processes[looking_at].n++;
        now_ns += processes[looking_at].slow ? SLOW_NS : FAST_NS;
        return snprintf(to, bytes, "Name:\tx\nCoreDumping:\t%d\n", processes[looking_at].dumps);
}

struct world {
        struct manager manager;
        struct tenant tenants[TENANTS];
        struct comm_member *member; /* that they are in a communicator is all that counts */
        struct session *sessions[SESSIONS + 1];
        unsigned int n;
};

static void world_init(struct world *world) {
        memset(world, 0, sizeof(*world));
        memset(processes, 0, sizeof(processes));
        world->member = (struct comm_member *)world;
        now_ns = 1;
}

/* The number of its process, which is that of the session, too. */
static unsigned int world_add(struct world *world, unsigned int tenant, bool slow) {
        struct session *session = calloc(1, sizeof(*session));

        assert_non_null(session);
        session->manager = &world->manager;
        session->tenant = &world->tenants[tenant];
        session->id = ++world->n;
        session->pid = (pid_t)world->n;
        session->fd = session->pidfd = -1;
        session->members = world->member;
        HASH_ADD(hh, world->manager.sessions, id, sizeof(session->id), session);
        world->sessions[world->n] = session;
        processes[world->n].slow = slow;
        return world->n;
}

static void world_free(struct world *world) {
        HASH_CLEAR(hh, world->manager.sessions);
        for (unsigned int i = 1; i <= world->n; i++)
                free(world->sessions[i]);
}

/* How long it took. */
static uint64_t look(struct world *world) {
        uint64_t began_ns = now_ns;

        session_life_look(&world->manager);
        return now_ns - began_ns;
}

static void all_of_some(void **unused) {
        struct world world;

        (void)unused;
        world_init(&world);
        for (unsigned int i = 0; i < 64; i++)
                world_add(&world, 0, false);
        processes[64].dumps = true;
        for (unsigned int k = 1; k <= 3; k++) {
                look(&world);
                for (unsigned int i = 1; i < 64; i++)
                        assert_int_equal(processes[i].n, k);
        }
        assert_true(world.sessions[64]->ending);
        assert_false(world.sessions[63]->ending);
        assert_int_equal(processes[64].n, 1); /* once is enough */
        world_free(&world);
}

/* A tenant's slow processes before everybody else's: a look stays short, and the others are looked at nearly as often
 * as without them. */
static void slow_ones(void **unused) {
        struct world world;
        unsigned int other;

        (void)unused;
        world_init(&world);
        for (unsigned int i = 0; i < 60; i++)
                world_add(&world, 0, true);
        other = world_add(&world, 1, false);
        for (unsigned int k = 0; k < 40; k++)
                assert_true(look(&world) <= BOUND_NS);
        assert_in_range(processes[other].n, 18, 40); /* a look ends with a slow one, the next is for others */
        for (unsigned int k = 0; k < 1000; k++)
                look(&world);
        for (unsigned int i = 1; i < other; i++)
                assert_true(processes[i].n > 0);
        processes[other].dumps = true;
        for (unsigned int k = 0; k < 2; k++)
                look(&world);
        assert_true(world.sessions[other]->ending);
        world_free(&world);
}

/* Several tenants that have such: the bound is one for all. */
static void slow_tenants(void **unused) {
        struct world world;
        unsigned int other;

        (void)unused;
        world_init(&world);
        for (unsigned int i = 0; i < TENANTS; i++)
                world_add(&world, i, i > 0);
        other = 1;
        for (unsigned int k = 0; k < 100; k++)
                assert_true(look(&world) <= BOUND_NS);
        assert_true(processes[other].n >= 5);
        for (unsigned int i = 1; i <= world.n; i++)
                assert_true(processes[i].n > 1);
        world_free(&world);
}

/* Others of the same tenant have their turn, too, also those behind a slow one. */
static void slow_among_fast(void **unused) {
        struct world world;
        unsigned int slow, fast;

        (void)unused;
        world_init(&world);
        slow = world_add(&world, 0, true);
        fast = world_add(&world, 0, false);
        for (unsigned int k = 0; k < 50; k++)
                look(&world);
        assert_in_range(processes[slow].n, 5, 10);
        assert_in_range(processes[fast].n, 30, 50);
        world_free(&world);
}

/* More than fit in a look, all fast. */
static void many(void **unused) {
        struct world world;

        (void)unused;
        world_init(&world);
        for (unsigned int i = 0; i < SESSIONS; i++)
                world_add(&world, 0, false);
        for (unsigned int k = 0; k < 4; k++)
                look(&world);
        for (unsigned int i = 1; i <= SESSIONS; i++)
                assert_in_range(processes[i].n, 1, 2);
        world_free(&world);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(all_of_some), cmocka_unit_test(slow_ones),
                                           cmocka_unit_test(slow_tenants), cmocka_unit_test(slow_among_fast),
                                           cmocka_unit_test(many)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
