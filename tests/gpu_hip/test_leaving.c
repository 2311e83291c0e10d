/* SPDX-License-Identifier: MIT */
/* Kernels that go between large requests, and what cannot wait for a tick. */
#include "tests/cmocka_all.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fixture.h"
#include "gpu/device/pairs.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/rings.h"
#include "ring/line.h"

#define LARGE 16384u /* KiB */
#define GPU   3u

#define wait_until(condition)                                                                                          \
        do {                                                                                                           \
                while (!(condition))                                                                                   \
                        sched_yield(); /* the test's time limit ends it */                                             \
        } while (0)

/* A rank of a communicator whose other rank is elsewhere. */
struct rig {
        struct fixture f;
        struct client client;
        struct plane_memory memory;
        void *pool;
        uint32_t burst, index;
};

static void rig_init(struct rig *rig, uint32_t policy) {
        static const struct plan_choice choices[] = {{.operation = RING_OP_ALL_REDUCE, .max_bytes = UINT64_MAX}};
        struct plane_comm_member members[] = {
                {.session = 5, .handle = 30, .gpu = GPU, .staging = 0, .here = true},
                {.session = 7, .handle = 30, .gpu = GPU + 1, .staging = 65536},
        };
        const struct plane_comm comm = {
                .id = 77, .n_ranks = 2, .failed_rank = -1, .members = members, .choices = choices, .n_choices = 1};
        struct plane_info info;

        *rig = (struct rig){0};
        fake_reset();
        fixture_open(&rig->f, policy);
        rig->f.ops->info(rig->f.plane, &info);
        rig->pool = fake_client_alloc(FIXTURE_POOL, &rig->memory);
        client_init(&rig->client, 5);
        assert_int_equal(client_attach(&rig->f, &rig->client), 0);
        assert_int_equal(rig->f.ops->peer_add(rig->f.plane, GPU, 1, &info.pool, rig->f.error), 0);
        assert_int_equal(rig->f.ops->peer_add(rig->f.plane, GPU + 1, 1, &rig->memory, rig->f.error), 0);
        assert_int_equal(rig->f.ops->comm_attach(rig->f.plane, &comm, rig->f.error), 0);
        while (!rig->f.plane->ranks[rig->index].comm)
                rig->index++;
}

static void rig_deinit(struct rig *rig) {
        fixture_close(&rig->f);
        client_deinit(&rig->client);
        fake_client_free(rig->pool);
}

static struct plane_info info_of(const struct rig *rig) {
        struct plane_info info;

        rig->f.ops->info(rig->f.plane, &info);
        return info;
}

static bool parked(const struct rig *rig) {
        return info_of(rig).parked;
}

static struct leave leave_of(const struct rig *rig) {
        struct leave leave;

        plane_lock(rig->f.plane);
        leave = rig->f.plane->leave;
        plane_unlock(rig->f.plane);
        return leave;
}

static uint32_t *word_of(const struct rig *rig, bool finished) {
        struct table_report *report = (struct table_report *)(uintptr_t)rig->f.plane->tables.report;

        return finished ? &report->rank[rig->index].finished : &report->rank[rig->index].rung;
}

static void count(const struct rig *rig, bool finished) {
        __atomic_fetch_add(word_of(rig, finished), 1, __ATOMIC_RELAXED);
}

/* What a worker does that wants a burst; and it has been launched. */
static void post(struct rig *rig, uint32_t kib) {
        const uint32_t number = ++rig->burst;
        struct table_report *report = (struct table_report *)(uintptr_t)rig->f.plane->tables.report;

        __atomic_store_n(&report->burst[number % TABLE_BURSTS], (uint64_t)number << 32 | kib, __ATOMIC_RELEASE);
        wait_until(atomic_load(&fake.bursts.n) == number);
}

/* One whose blocks have not all begun is not told to end. One that is queued begins when it is let go. */
static bool is_there(const struct rig *rig) {
        const struct park *park = &rig->f.plane->park;
        bool there;

        plane_lock(rig->f.plane);
        there = !park->running || park->queued || park_has_room(park);
        plane_unlock(rig->f.plane);
        return there;
}

/* What a kernel does with a request: it begins, asks for a burst; and ends. */
static void begin(struct rig *rig, uint32_t kib) {
        wait_until(is_there(rig));
        client_ring(&rig->client, client_header(&rig->client)->counter + 1);
        count(rig, false);
        post(rig, kib);
        if (kib >= LARGE && rig->f.plane->policy == PLANE_ADAPTIVE)
                wait_until(leave_of(rig).open);
}

/* When it has been seen to have ended. */
static void end(struct rig *rig) {
        count(rig, true);
        wait_until(!leave_of(rig).open);
}

/* The same request asks for a burst once more. That it was launched does not say that leave.c has heard of it. */
static void again(struct rig *rig, uint32_t kib) {
        const uint64_t opened_ns = leave_of(rig).opened_ns;

        fake_clock_advance_us(10);
        post(rig, kib);
        wait_until(leave_of(rig).opened_ns != opened_ns);
}

static void request(struct rig *rig, uint32_t kib) {
        begin(rig, kib);
        end(rig);
}

/* A client's kernel that finds `parked`. */
static void wake(struct rig *rig) {
        __atomic_fetch_add(&rig->client.host.wake, 1, __ATOMIC_RELAXED);
}

static void settle(const struct rig *rig) {
        wait_until(!leave_of(rig).asked_ns);
}

static void pauses_between_large_requests(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        request(&rig, LARGE);
        assert_false(parked(&rig));
        for (uint32_t i = 1; i < 4; i++) {
                fake_clock_advance_ms(1);
                begin(&rig, LARGE + i);
                assert_false(parked(&rig));
                end(&rig);
                wait_until(parked(&rig)); /* nobody ticks */
                assert_int_equal(client_header(&rig.client)->parked, 1);
                assert_int_equal(info_of(&rig).resident_blocks, 0);
                assert_int_equal(fake.launches, i);
                fake_clock_advance_ms(1);
                assert_true(parked(&rig));
                wake(&rig);
                wait_until(!parked(&rig));
                wait_until(!__atomic_load_n(&client_header(&rig.client)->parked, __ATOMIC_RELAXED));
                wait_until(fake.launches == i + 1);
                assert_int_equal(info_of(&rig).wakes, i);
        }
        rig_deinit(&rig);
}

/* Each of these, with a second request after it that would be left after. */
static void what_is_no_such_traffic(void **state) {
        static const struct {
                uint32_t kib, pause_ms, others, policy;
        } cases[] = {
                {LARGE - 1, 1, 0, PLANE_ADAPTIVE}, /* small */
                {LARGE, 0, 0, PLANE_ADAPTIVE},     /* one after the other */
                {LARGE, 100, 0, PLANE_ADAPTIVE},   /* after a while */
                {LARGE, 1, 3, PLANE_ADAPTIVE},     /* small ones between */
                {LARGE, 1, 0, PLANE_SHARED},       {LARGE, 1, 0, PLANE_LATENCY},
        };
        struct rig rig;

        (void)state;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                rig_init(&rig, cases[i].policy);
                for (uint32_t round = 0; round < 3; round++) {
                        request(&rig, cases[i].kib);
                        assert_int_equal(leave_of(&rig).asked_ns, 0);
                        for (uint32_t k = 0; k < cases[i].others; k++) {
                                count(&rig, false);
                                count(&rig, true);
                        }
                        fake_clock_advance_ms(cases[i].pause_ms);
                }
                request(&rig, 1); /* whoever watches has been round by then */
                assert_false(parked(&rig));
                assert_int_equal(fake.launches, 1);
                rig_deinit(&rig);
        }
}

/* For measurements. */
static void a_kernel_that_is_told_to_stay(void **state) {
        struct rig rig;

        (void)state;
        assert_int_equal(setenv("RAILMUX_GPU_STAY", "1", 1), 0);
        rig_init(&rig, PLANE_ADAPTIVE);
        assert_int_equal(unsetenv("RAILMUX_GPU_STAY"), 0);
        for (uint32_t i = 0; i < 4; i++) {
                request(&rig, LARGE);
                assert_int_equal(leave_of(&rig).asked_ns, 0);
                fake_clock_advance_ms(1);
        }
        rig_deinit(&rig);
}

/* Its blocks had given up waiting for the other rank. */
static void a_burst_launched_again(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        begin(&rig, LARGE);
        again(&rig, LARGE);
        again(&rig, LARGE);
        end(&rig);
        wait_until(parked(&rig));
        rig_deinit(&rig);
}

/* Sends and receives count like the others, and who waits for one keeps the kernel. */
static void sends_and_receives(void **state) {
        struct table_pair *pair;
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        pair = (struct table_pair *)(uintptr_t)&table_pairs(rig.f.plane->tables.report)->pair[rig.index][1][1];
        for (uint32_t i = 0; i < 4; i++) {
                request(&rig, LARGE);
                assert_int_equal(leave_of(&rig).asked_ns, 0);
                fake_clock_advance_ms(1);
                __atomic_fetch_add(&pair->rung, 3, __ATOMIC_RELAXED);
                __atomic_fetch_add(&pair->finished, 3, __ATOMIC_RELAXED);
        }
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        __atomic_fetch_add(&pair->rung, 1, __ATOMIC_RELAXED);
        begin(&rig, LARGE);
        count(&rig, true);
        post(&rig, 1); /* whoever watches has been round by then */
        post(&rig, 1);
        assert_true(leave_of(&rig).open);
        assert_false(parked(&rig));
        __atomic_fetch_add(&pair->finished, 1, __ATOMIC_RELAXED);
        wait_until(parked(&rig));
        rig_deinit(&rig);
}

/* Windows do not fall into pauses. */
static void memory_given_back_in_a_pause(void **state) {
        struct plane_memory memory;
        void *base;
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        base = fake_client_alloc(8192, &memory);
        assert_int_equal(rig.f.ops->buffer_import(rig.f.plane, 5, 1, &memory, rig.f.error), 0);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        request(&rig, LARGE);
        wait_until(parked(&rig));
        rig.f.ops->buffer_retire(rig.f.plane, 5, 1);
        for (uint32_t i = 0; i < 5; i++) {
                assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0);
                assert_int_equal(fake.closes, 0);
                fake_clock_advance_ms(1);
        }
        fake_clock_advance_ms(100);
        assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0);
        if (fixture_queues()) /* what is queued ends first */
                fixture_tick_until(&rig.f, fake.closes == 1);
        assert_int_equal(fake.closes, 1);
        rig_deinit(&rig);
        fake_client_free(base);
}

/* A session comes in the place of another one, whose lines had the same numbers. */
static void a_place_used_again(void **state) {
        struct rig rig;
        struct client former, other;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        client_init(&former, 6);
        assert_int_equal(client_attach(&rig.f, &former), 0);
        client_ring(&former, 1);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        request(&rig, LARGE);
        wait_until(parked(&rig)); /* all has been seen */
        rig.f.ops->ring_detach(rig.f.plane, 6);
        client_init(&other, 8);
        client_ring(&other, 1);
        assert_int_equal(client_attach(&rig.f, &other), 0);
        assert_int_equal(client_header(&other)->parked, 0);
        plane_lock(rig.f.plane);
        assert_int_equal(rings_counters(rig.f.plane, &(bool){false}, rig.f.error), 0);
        assert_false(rings_seen(rig.f.plane));
        plane_unlock(rig.f.plane);
        rig.f.ops->ring_detach(rig.f.plane, 8);
        rig_deinit(&rig);
        client_deinit(&former);
        client_deinit(&other);
}

static struct rig *ringing;

static void ring_unseen(void) {
        client_ring(&ringing->client, client_header(&ringing->client)->counter + 1);
        atomic_store(&fake.at_stop, NULL);
}

/* Workers say that they have not seen it. It is not tried again for a while. */
static void a_line_that_nobody_has_seen(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        ringing = &rig;
        atomic_store(&fake.at_stop, ring_unseen);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        request(&rig, LARGE);
        wait_until(info_of(&rig).wakes == 1);
        assert_false(parked(&rig));
        wait_until(!__atomic_load_n(&client_header(&rig.client)->parked, __ATOMIC_RELAXED));
        wait_until(fake.launches == 2);
        for (uint32_t i = 0; i < 3; i++) {
                fake_clock_advance_ms(1);
                request(&rig, LARGE);
                assert_int_equal(leave_of(&rig).asked_ns, 0);
                assert_false(parked(&rig));
        }
        fake_clock_advance_ms(250);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        request(&rig, LARGE);
        wait_until(parked(&rig));
        rig_deinit(&rig);
}

/* Workers find no line there. */
static void count_without_lines(void) {
        struct table_report *report = (struct table_report *)(uintptr_t)ringing->f.plane->tables.report;
        const uint32_t ring = rings_find(ringing->f.plane, 5);

        for (uint32_t i = 0; i < TABLE_WORKERS_MAX; i++)
                __atomic_store_n(&report->next[i][ring], 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&client_header(&ringing->client)->counter, 1000, __ATOMIC_RELAXED);
}

/* One whose blocks have not all begun is not told to end. */
static bool begun(const struct rig *rig) {
        bool has_room;

        plane_lock(rig->f.plane);
        has_room = rig->f.plane->park.running && park_has_room(&rig->f.plane->park);
        plane_unlock(rig->f.plane);
        return has_room;
}

static void leave_in_vain(struct rig *rig, uint32_t n) {
        for (uint32_t i = 0; i < n; i++) {
                const uint64_t wakes = info_of(rig).wakes;

                wait_until(begun(rig));
                fake_clock_advance_ms(250);
                request(rig, LARGE);
                fake_clock_advance_ms(1);
                request(rig, LARGE);
                wait_until(info_of(rig).wakes == wakes + 1);
                wait_until(!__atomic_load_n(&client_header(&rig->client)->parked, __ATOMIC_RELAXED));
        }
}

static void leave_at_last(struct rig *rig) {
        wait_until(begun(rig));
        fake_clock_advance_ms(250);
        request(rig, LARGE);
        fake_clock_advance_ms(1);
        request(rig, LARGE);
        wait_until(parked(rig));
        fake_clock_advance_ms(1);
        assert_true(parked(rig));
        wake(rig);
        wait_until(!parked(rig));
        wait_until(!__atomic_load_n(&client_header(&rig->client)->parked, __ATOMIC_RELAXED));
}

/* Whoever writes there does not keep the others' kernel for ever; but again when lines have come. */
static void a_counter_without_lines(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        ringing = &rig;
        atomic_store(&fake.at_stop, count_without_lines);
        leave_in_vain(&rig, 3);
        leave_at_last(&rig);
        leave_at_last(&rig);
        atomic_store(&fake.at_stop, NULL);
        leave_at_last(&rig);
        atomic_store(&fake.at_stop, count_without_lines);
        leave_in_vain(&rig, 3);
        leave_at_last(&rig);
        rig_deinit(&rig);
}

/* How it had begun is looked at, as when it is parked. */
static void a_latch_held_down_before(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        request(&rig, LARGE);
        plane_lock(rig.f.plane);
        rig.f.plane->park.latch.waited_for = rig.f.plane->park.latch.held = true;
        plane_unlock(rig.f.plane);
        fake_clock_advance_ms(1);
        request(&rig, LARGE);
        wait_until(parked(&rig));
        plane_lock(rig.f.plane);
        assert_int_equal(rig.f.plane->park.latch.n_misused, 1);
        plane_unlock(rig.f.plane);
        rig_deinit(&rig);
}

/* Some workers have ended, another has a task that needs them. */
static void a_kernel_that_does_not_come_to_an_end(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        atomic_store(&fake.has_work, true);
        atomic_store(&fake.kept, 1);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        request(&rig, LARGE);
        assert_int_not_equal(leave_of(&rig).asked_ns, 0);
        assert_int_equal(fake.launches, 1);
        fake_clock_advance_ms(1);
        wait_until(info_of(&rig).wakes == 1);
        assert_false(parked(&rig));
        wait_until(fake.launches == 2);
        atomic_store(&fake.kept, 0);
        rig_deinit(&rig);
}

/* Whoever watches is kept away until what follows has been done. */
static void keep_away(const struct rig *rig, bool away) {
        atomic_fetch_add(&rig->f.plane->n_wanting, away ? 1u : -1u);
        plane_lock(rig->f.plane);
        plane_unlock(rig->f.plane);
}

/* The kernel has ended, and nobody has noticed. */
static void leave_unnoticed(struct rig *rig) {
        rig_init(rig, PLANE_ADAPTIVE);
        atomic_store(&fake.has_work, true);
        request(rig, LARGE);
        fake_clock_advance_ms(1);
        request(rig, LARGE);
        keep_away(rig, true);
        atomic_store(&fake.has_work, false);
        wait_until(atomic_load(&fake.ended));
        assert_int_not_equal(rig->f.plane->leave.asked_ns, 0);
}

/* What has ended does not acknowledge, and what has not may wait for it. */
static void tables_that_change_before_it_has_ended(void **state) {
        struct client other;
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        atomic_store(&fake.has_work, true);
        atomic_store(&fake.kept, 1);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        request(&rig, LARGE);
        assert_int_not_equal(leave_of(&rig).asked_ns, 0);
        client_init(&other, 6);
        assert_int_equal(client_attach(&rig.f, &other), 0);
        wait_until(info_of(&rig).wakes == 1);
        atomic_store(&fake.kept, 0);
        rig.f.ops->ring_detach(rig.f.plane, 6);
        rig_deinit(&rig);
        client_deinit(&other);
}

static void tables_that_change_meanwhile(void **state) {
        struct client other;
        struct rig rig;

        (void)state;
        leave_unnoticed(&rig);
        client_init(&other, 6);
        assert_int_equal(client_attach(&rig.f, &other), 0); /* needs an answer of the kernel, or its end */
        assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0);
        keep_away(&rig, false);
        settle(&rig);
        wake(&rig);
        wait_until(!parked(&rig));
        wait_until(!__atomic_load_n(&client_header(&other)->parked, __ATOMIC_RELAXED));
        rig.f.ops->ring_detach(rig.f.plane, 6);
        rig_deinit(&rig);
        client_deinit(&other);
}

static void windows_meanwhile(void **state) {
        struct rig rig;
        bool closed;

        (void)state;
        leave_unnoticed(&rig);
        plane_lock(rig.f.plane); /* as all calls do */
        assert_int_equal(adaptive_window(rig.f.plane, &closed, rig.f.error), 0);
        plane_unlock(rig.f.plane);
        keep_away(&rig, false);
        settle(&rig);
        wait_until(fake.launches == 2);
        assert_false(parked(&rig));
        rig_deinit(&rig);
}

static void draining_meanwhile(void **state) {
        struct rig rig;

        (void)state;
        leave_unnoticed(&rig);
        assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0); /* sees the end */
        while (!rig.f.ops->drain(rig.f.plane))
                ;
        assert_true(parked(&rig));
        assert_int_equal(client_header(&rig.client)->parked, 1);
        keep_away(&rig, false);
        wake(&rig); /* for the successor */
        settle(&rig);
        assert_true(parked(&rig));
        assert_int_equal(fake.launches, 1);
        rig_deinit(&rig);
}

static void closing_meanwhile(void **state) {
        struct rig rig;

        (void)state;
        leave_unnoticed(&rig);
        assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0); /* sees the end */
        fixture_close(&rig.f);
        assert_int_equal(client_header(&rig.client)->parked, 1); /* a successor may serve it */
        client_deinit(&rig.client);
        fake_client_free(rig.pool);
}

/* Ranks that stand still need the kernel to bring them there. */
static void holding_meanwhile(void **state) {
        struct rig rig;

        (void)state;
        leave_unnoticed(&rig);
        assert_int_equal(rig.f.ops->comm_hold(rig.f.plane, 77, false, 0, rig.f.error), 0);
        keep_away(&rig, false);
        settle(&rig);
        assert_false(parked(&rig));
        rig.f.ops->comm_release(rig.f.plane, 77);
        rig_deinit(&rig);
}

/* Parked by silence, and the client rings. */
static void a_wake_word_is_seen_without_a_tick(void **state) {
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        for (uint32_t t = 0; !parked(&rig); t++) {
                assert_in_range(t, 0, 100);
                assert_int_equal(rig.f.ops->tick(rig.f.plane, rig.f.error), 0);
                fake_clock_advance_ms(10);
        }
        wake(&rig);
        wait_until(!parked(&rig));
        rig_deinit(&rig);
}

static uint32_t open_files(void) {
        DIR *directory = opendir("/proc/self/fd");
        uint32_t n = 0;

        assert_non_null(directory);
        while (readdir(directory))
                n++;
        closedir(directory);
        return n;
}

/* The same, before it rings; it is heard each time. */
static void a_client_that_is_about_to_ring(void **state) {
        const uint32_t files = open_files();
        const uint64_t one = 1;
        struct client other;
        struct rig rig;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        client_init(&other, 9);
        other.soon_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_int_equal(client_attach(&rig.f, &other), 0);
        for (uint32_t i = 0; i < 3; i++) {
                for (uint32_t t = 0; !parked(&rig); t++) {
                        assert_in_range(t, 0, 100);
                        fixture_tick(&rig.f);
                        fake_clock_advance_ms(10);
                }
                assert_int_equal(write(other.soon_fd, &one, sizeof(one)), sizeof(one));
                wait_until(!parked(&rig));
                assert_int_equal(other.host.wake, 0);
        }
        rig.f.ops->ring_detach(rig.f.plane, other.session);
        close(other.soon_fd);
        rig_deinit(&rig);
        client_deinit(&other);
        assert_int_equal(open_files(), files);
}

static void a_failure_is_a_fault(void **state) {
        struct rig rig;
        int r = 0;

        (void)state;
        rig_init(&rig, PLANE_ADAPTIVE);
        request(&rig, LARGE);
        fake_clock_advance_ms(1);
        atomic_store(&fake.refuse_launch, fixture_queues()); /* then it is launched already */
        request(&rig, LARGE);
        wait_until(parked(&rig));
        atomic_store(&fake.refuse_launch, true);
        wake(&rig);
        while (!r)
                r = rig.f.ops->tick(rig.f.plane, rig.f.error);
        assert_int_equal(r, -EIO);
        assert_non_null(strstr(rig.f.error, "launching the kernel"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(pauses_between_large_requests),
                cmocka_unit_test(what_is_no_such_traffic),
                cmocka_unit_test(a_kernel_that_is_told_to_stay),
                cmocka_unit_test(a_burst_launched_again),
                cmocka_unit_test(sends_and_receives),
                cmocka_unit_test(memory_given_back_in_a_pause),
                cmocka_unit_test(a_place_used_again),
                cmocka_unit_test(tables_that_change_before_it_has_ended),
                cmocka_unit_test(a_line_that_nobody_has_seen),
                cmocka_unit_test(a_latch_held_down_before),
                cmocka_unit_test(a_counter_without_lines),
                cmocka_unit_test(a_kernel_that_does_not_come_to_an_end),
                cmocka_unit_test(tables_that_change_meanwhile),
                cmocka_unit_test(windows_meanwhile),
                cmocka_unit_test(draining_meanwhile),
                cmocka_unit_test(closing_meanwhile),
                cmocka_unit_test(holding_meanwhile),
                cmocka_unit_test(a_wake_word_is_seen_without_a_tick),
                cmocka_unit_test(a_client_that_is_about_to_ring),
                cmocka_unit_test(a_failure_is_a_fault),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
