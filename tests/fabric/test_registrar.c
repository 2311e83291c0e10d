/* SPDX-License-Identifier: MIT */
/*
 * Adapters that take their time to register an area, and those that refuse: nobody but the area waits for them. The
 * adapters are those of fake_verbs.h behind a gate, which stops registrations of areas, and not those of connections.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/fabric/fake_rig.h"
#include "tests/fabric/rig.h"
#include "util/clock.h"

#define AREA_LEAST 65536u /* staging of this size or more is an area's; a connection's rings have less */
#define LIMIT_NS   UINT64_C(30000000000)

static struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool closed;
        uint32_t waiting;   /* registrations that are held up */
        uint32_t n_refuse;  /* so many of the next ones pass, and one after them is refused; 0: none */
        bool forbids;       /* nobody else may write to what is registered, */
        const char *device; /* with this one; NULL: with any */
        _Atomic bool taken; /* the memory was taken away; written by the test, read by the registering thread */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct ibv_mr *gate_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
        bool refuse;

        if (bytes < AREA_LEAST)
                return fake_verbs()->reg_mr(pd, address, bytes, access);
        pthread_mutex_lock(&gate.lock);
        gate.waiting++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.closed)
                pthread_cond_wait(&gate.changed, &gate.lock);
        gate.waiting--;
        refuse = gate.n_refuse > 0 && --gate.n_refuse == 0;
        if (gate.forbids && (!gate.device || strcmp(pd->context->device->name, gate.device) == 0))
                access &= ~IBV_ACCESS_REMOTE_WRITE;
        pthread_mutex_unlock(&gate.lock);
        assert_false(gate.taken);
        (void)*(volatile uint8_t *)address; /* as the kernel would, and ends the process if it has gone */
        if (refuse) {
                errno = ENOMEM;
                return NULL;
        }
        return fake_verbs()->reg_mr(pd, address, bytes, access);
}

static void gate_set(bool closed) {
        pthread_mutex_lock(&gate.lock);
        gate.closed = closed;
        pthread_cond_broadcast(&gate.changed);
        pthread_mutex_unlock(&gate.lock);
}

static void gate_await(uint32_t waiting) {
        pthread_mutex_lock(&gate.lock);
        while (gate.waiting < waiting)
                pthread_cond_wait(&gate.changed, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
}

static int begin(void **state) {
        static struct verbs_api api;

        (void)state;
        fake_rig_begin(NULL);
        api = *fake_verbs();
        api.reg_mr = gate_reg_mr;
        rig_verbs = &api;
        gate.taken = gate.forbids = false;
        gate.device = NULL;
        return 0;
}

/* Whatever was registered is not any more, or the adapters count it. */
static int end(void **state) {
        (void)state;
        fake_rig_end();
        return 0;
}

static const struct rig_options usual = {
        .n_nodes = 2, .n_rails = 2, .ranks = {1, 1}, .slot_bytes = 60000, .least_data = 1, .key = 1, .chunks = 1000000};

/* Until so many areas of the rig's nodes have been told of, together. */
static void await_told(struct rig *rig, uint32_t told) {
        uint64_t end_ns = clock_now_ns() + LIMIT_NS;

        while (rig->nodes[0].areas + rig->nodes[1].areas < told) {
                rig_dispatch(rig);
                assert_true(clock_now_ns() < end_ns);
        }
}

static struct fabric_registrations registrations(const struct rig *rig, uint32_t node) {
        struct fabric_registrations now;

        fabric_registrations(rig->nodes[node].fabric, &now);
        return now;
}

static void go(struct rig *rig, struct rig *other, uint32_t chunks) {
        uint64_t end_ns = clock_now_ns() + LIMIT_NS;
        uint32_t until = rig->channels[0].received + chunks;

        while (rig->channels[0].received < until) {
                rig_step(rig);
                if (other)
                        rig_step(other);
                assert_true(clock_now_ns() < end_ns);
        }
}

static void leave(struct rig *passing) {
        for (uint32_t i = 0; i < passing->options.n_nodes; i++) {
                struct rig_node *node = &passing->nodes[i];

                assert_int_equal(fabric_area_remove(node->fabric, passing->options.key), 0);
                munmap(node->area, node->size);
                close(node->wake_fd);
        }
}

/* Others' chunks go on, its own wait, and all of them arrive. */
static void test_slow(void **state) {
        struct rig_options options = usual;
        static struct rig steady, slow;

        (void)state;
        rig_new(&steady, &usual);
        go(&steady, NULL, 20);
        gate_set(true);
        options.key = 2;
        options.chunks = 100;
        rig_join(&slow, &options, &steady); /* returns */
        gate_await(2);
        go(&steady, &slow, 100);
        rig_dispatch(&steady);
        assert_int_equal(steady.nodes[0].areas + steady.nodes[1].areas, 2);
        for (uint32_t i = 0; i < slow.n_channels; i++) {
                assert_true(slow.channels[i].pushed > 0);
                assert_int_equal(slow.channels[i].received, 0);
        }
        gate_set(false);
        rig_run(&slow, 30);
        await_told(&steady, 4);
        assert_int_equal(steady.nodes[0].refused_areas + steady.nodes[1].refused_areas, 0);
        leave(&slow);
        rig_free(&steady);
}

/* One end is ready long before the other: what it has been offered it uses, and what it offers waits. */
static void test_one_end(void **state) {
        struct rig_options options = usual;
        static struct rig rig;

        (void)state;
        options.chunks = 100;
        options.n_rails = 1;
        rig_start(&rig, &options);
        rig_peer(&rig, 0, 1, NULL);
        rig_peer(&rig, 1, 0, NULL);
        rig_area(&rig, 0);
        await_told(&rig, 1);
        gate_set(true);
        rig_area(&rig, 1);
        gate_await(1);
        for (uint32_t i = 0; i < 1000; i++)
                rig_step(&rig);
        for (uint32_t i = 0; i < rig.n_channels; i++)
                assert_int_equal(rig.channels[i].received, 0);
        gate_set(false);
        rig_run(&rig, 30);
        rig_free(&rig);
}

struct opener {
        pthread_t thread;
        struct rig *rig;
};

/* When the area has gone from the table, which is what fabric_area_remove() begins with. */
static void *open_later(void *data) {
        struct opener *opener = data;
        struct fabric_traffic traffic[FABRIC_RAILS_MAX];

        while (fabric_area_traffic(opener->rig->nodes[0].fabric, opener->rig->options.key, traffic) == 0)
                ;
        gate_set(false);
        return NULL;
}

/* The memory is the owner's: it gets it back when no adapter is at it. */
static void test_removed_meanwhile(void **state) {
        static struct rig rig;
        struct opener opener = {.rig = &rig};

        (void)state;
        for (uint32_t round = 0; round < 20; round++) {
                gate_set(true);
                gate.taken = false;
                rig_start(&rig, &usual);
                rig_area(&rig, 0);
                gate_await(1);
                assert_int_equal(pthread_create(&opener.thread, NULL, open_later, &opener), 0);
                assert_int_equal(fabric_area_remove(rig.nodes[0].fabric, usual.key), 0);
                gate.taken = true;
                assert_int_equal(mprotect(rig.nodes[0].area, rig.nodes[0].size, PROT_NONE), 0);
                pthread_join(opener.thread, NULL);
                rig_dispatch(&rig);
                assert_int_equal(rig.nodes[0].areas, 0);
                rig_free(&rig);
        }
}

static bool is_mapped(void *address) {
        return msync(address, 4096, MS_ASYNC) == 0;
}

/* The memory is the fabric's: removal waits for nothing, and it stays until no adapter is at it. */
static void test_unmapped_later(void **state) {
        const uint64_t bytes = net_area_bytes(64, 4 * AREA_LEAST);
        uint64_t end_ns = clock_now_ns() + LIMIT_NS;
        struct fabric_area_options area;
        static struct rig rig;

        (void)state;
        rig_start(&rig, &usual);
        area = (struct fabric_area_options){.key = 7,
                                            .size = bytes,
                                            .unmap = true,
                                            .wake_fd = rig.nodes[0].wake_fd,
                                            .nodes = rig.rank_nodes,
                                            .n_ranks = rig.n_ranks,
                                            .weight = 1};
        area.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(area.memory, MAP_FAILED);
        net_area_init(area.memory, 64, 4 * AREA_LEAST);
        gate_set(true);
        assert_int_equal(fabric_area_add(rig.nodes[0].fabric, &area), 0);
        assert_int_equal(fabric_area_add(rig.nodes[0].fabric, &area), FABRIC_E_EXISTS); /* and it stays the caller's */
        gate_await(1);
        assert_int_equal(fabric_area_remove(rig.nodes[0].fabric, area.key), 0);
        assert_true(is_mapped(area.memory));
        gate_set(false);
        while (is_mapped(area.memory))
                assert_true(clock_now_ns() < end_ns);
        rig_dispatch(&rig);
        assert_int_equal(rig.nodes[0].areas, 0);
        rig_free(&rig);
}

/* The second rail's adapter refuses: the owner hears why, nothing of the first one's stays, others do not notice. */
static void test_refused(void **state) {
        struct rig_options options = usual;
        static struct rig steady, refused;

        (void)state;
        rig_new(&steady, &usual);
        gate.n_refuse = 2;
        options.key = 2;
        rig_join(&refused, &options, &steady);
        await_told(&steady, 4);
        assert_int_equal(steady.nodes[0].refused_areas + steady.nodes[1].refused_areas, 1);
        for (uint32_t i = 0; i < 2; i++)
                if (steady.nodes[i].refused_areas)
                        assert_non_null(strstr(steady.nodes[i].text, "cannot register"));
        go(&steady, NULL, 20);
        leave(&refused);
        rig_free(&steady);
}

static uint64_t connections(struct rig *rig) {
        struct fabric_route_row *rows;
        uint64_t made = 0;
        size_t n;

        for (uint32_t node = 0; node < rig->options.n_nodes; node++) {
                assert_int_equal(fabric_routes(rig->nodes[node].fabric, &rows, &n), 0);
                for (size_t i = 0; i < n; i++)
                        made += rows[i].connections;
                free(rows);
        }
        return made;
}

/* An area to which the other end may not write, whatever it was offered: it fails at both ends, and then the connection
 * lives that others share with it. */
static void test_forbidden(void **state) {
        struct rig_options options = usual;
        static struct rig steady, forbidden;
        uint64_t end_ns, made;

        (void)state;
        options.times = (struct fabric_times){.heartbeat = 5000, .deadline = 60000, .hold_down = 5, .hold_max = 20};
        rig_new(&steady, &options);
        go(&steady, NULL, 20);
        pthread_mutex_lock(&gate.lock);
        gate.forbids = true;
        pthread_mutex_unlock(&gate.lock);
        options.key = 2;
        rig_join(&forbidden, &options, &steady);
        end_ns = clock_now_ns() + LIMIT_NS;
        while (steady.nodes[0].refused_areas + steady.nodes[1].refused_areas < 2) {
                go(&steady, &forbidden, 1);
                rig_dispatch(&steady);
                assert_true(clock_now_ns() < end_ns);
        }
        end_ns = clock_now_ns() + LIMIT_NS;
        do { /* some of it may be under way still, and routes come back */
                assert_true(clock_now_ns() < end_ns);
                made = connections(&steady);
                go(&steady, &forbidden, 100);
        } while (connections(&steady) > made);
        rig_dispatch(&steady);
        assert_int_equal(steady.nodes[0].refused_areas + steady.nodes[1].refused_areas, 2); /* once each */
        leave(&forbidden);
        rig_free(&steady);
}

/* One adapter refuses what the others take: its rail is what is wrong, and no area ends for that. */
static void test_refused_by_one(void **state) {
        const struct rig_place place = rig_place(RIG_FAKE, 1, 0);
        struct rig_options options = usual;
        uint64_t end_ns;
        static struct rig rig;

        (void)state;
        options.times =
                (struct fabric_times){.heartbeat = 5000, .deadline = 60000, .hold_down = 600000, .hold_max = 600000};
        gate.forbids = true;
        gate.device = place.hca;
        rig_new(&rig, &options);
        end_ns = clock_now_ns() + LIMIT_NS;
        for (uint32_t more = 100; more > 0; more -= rig.nodes[0].routes_changed > 0) {
                go(&rig, NULL, 1);
                rig_dispatch(&rig);
                for (uint32_t node = 0; node < 2; node++)
                        if (rig.nodes[node].refused_areas > 0)
                                fail_msg("an area has failed: %s", rig.nodes[node].text);
                assert_true(clock_now_ns() < end_ns);
        }
        rig_free(&rig);
}

/* Rails that register nothing say so as well. */
static void test_nothing_to_do(void **state) {
        struct rig_options options = usual;
        static struct rig rig;

        (void)state;
        options.kind = "tcp";
        options.chunks = 10;
        rig_new(&rig, &options);
        await_told(&rig, 2);
        assert_int_equal(rig.nodes[0].refused_areas + rig.nodes[1].refused_areas, 0);
        rig_run(&rig, 30);
        rig_free(&rig);
        /* Removed before anybody has asked: nobody is told of what has gone. */
        rig_start(&rig, &options);
        rig_area(&rig, 0);
        assert_int_equal(fabric_area_remove(rig.nodes[0].fabric, options.key), 0);
        rig_dispatch(&rig);
        assert_int_equal(rig.nodes[0].areas, 0);
        rig_free(&rig);
}

/* The end of a fabric while its adapter is at it, and while others wait. */
static void test_end_meanwhile(void **state) {
        struct rig_options options = usual;
        static struct rig first, second;
        struct opener opener = {.rig = &first};

        (void)state;
        gate_set(true);
        rig_start(&first, &options);
        rig_area(&first, 0);
        gate_await(1);
        options.key = 2;
        rig_join(&second, &options, &first);
        assert_int_equal(pthread_create(&opener.thread, NULL, open_later, &opener), 0);
        assert_int_equal(fabric_area_remove(first.nodes[0].fabric, 1), 0);
        rig_free(&first);
        pthread_join(opener.thread, NULL);
        for (uint32_t i = 0; i < 2; i++) {
                munmap(second.nodes[i].area, second.nodes[i].size);
                close(second.nodes[i].wake_fd);
        }
}

/* What is held up shows: how many wait, and for how long the one has been under way. */
static void test_shows(void **state) {
        static struct rig first, second;
        struct rig_options options = usual;
        uint64_t began_ns, end_ns, before_ns;
        struct fabric_registrations now;

        (void)state;
        rig_start(&first, &options);
        now = registrations(&first, 0);
        assert_true(now.queued == 0 && now.running == 0 && now.running_ns == 0);
        gate_set(true);
        before_ns = clock_now_ns();
        rig_area(&first, 0);
        gate_await(1);
        began_ns = clock_now_ns();
        now = registrations(&first, 0);
        assert_true(now.queued == 0 && now.running == 1);
        options.key = 2;
        rig_join(&second, &options, &first);
        gate_await(2); /* that of the other node */
        now = registrations(&first, 0);
        assert_true(now.queued == 1 && now.running == 1);
        for (end_ns = began_ns + 20000000; clock_now_ns() < end_ns;)
                rig_step(&second);
        now = registrations(&first, 0);
        assert_true(now.running_ns >= end_ns - began_ns && now.running_ns <= clock_now_ns() - before_ns);
        gate_set(false);
        await_told(&first, 3);
        for (end_ns = clock_now_ns() + LIMIT_NS; registrations(&first, 0).running;)
                assert_true(clock_now_ns() < end_ns);
        now = registrations(&first, 0);
        assert_true(now.queued == 0 && now.running_ns == 0);
        leave(&second);
        rig_free(&first);
}

#define MOST 2048u /* areas that a rail takes */

/* Areas that come while another one waits take none of its room: only those beyond what a rail takes are refused. */
static void test_full(void **state) {
        const uint64_t bytes = net_area_bytes(64, 4096);
        struct fabric_area_options area;
        struct rlimit files;
        struct net_area *memory;
        static struct rig rig;

        (void)state;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
        files.rlim_cur = files.rlim_max;
        assert_true(files.rlim_max > MOST + 256); /* each area has one */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
        rig_start(&rig, &usual);
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        net_area_init(memory, 64, 4096);
        area = (struct fabric_area_options){.size = bytes,
                                            .memory = memory, /* nothing is posted in it */
                                            .wake_fd = rig.nodes[0].wake_fd,
                                            .nodes = rig.rank_nodes,
                                            .n_ranks = rig.n_ranks,
                                            .weight = 1};
        gate_set(true);
        rig_area(&rig, 0);
        gate_await(1);
        for (area.key = 10; area.key < 10 + MOST + 2; area.key++)
                assert_int_equal(fabric_area_add(rig.nodes[0].fabric, &area), 0);
        assert_true(registrations(&rig, 0).queued == MOST + 2);
        gate_set(false);
        await_told(&rig, 1 + MOST + 2);
        assert_int_equal(rig.nodes[0].refused_areas, 3);
        assert_non_null(strstr(rig.nodes[0].text, "there are 2048 already"));
        for (area.key = 10; area.key < 10 + MOST + 2; area.key++)
                assert_int_equal(fabric_area_remove(rig.nodes[0].fabric, area.key), 0);
        rig_free(&rig);
        munmap(memory, bytes);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_slow, begin, end),
                cmocka_unit_test_setup_teardown(test_one_end, begin, end),
                cmocka_unit_test_setup_teardown(test_removed_meanwhile, begin, end),
                cmocka_unit_test_setup_teardown(test_unmapped_later, begin, end),
                cmocka_unit_test_setup_teardown(test_refused, begin, end),
                cmocka_unit_test_setup_teardown(test_forbidden, begin, end),
                cmocka_unit_test_setup_teardown(test_refused_by_one, begin, end),
                cmocka_unit_test_setup_teardown(test_nothing_to_do, begin, end),
                cmocka_unit_test_setup_teardown(test_end_meanwhile, begin, end),
                cmocka_unit_test_setup_teardown(test_shows, begin, end),
                cmocka_unit_test_setup_teardown(test_full, begin, end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
