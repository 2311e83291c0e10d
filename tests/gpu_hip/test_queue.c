/* SPDX-License-Identifier: MIT */
/* A parked plane whose next kernel is queued already, behind the latch. (Most of the other tests run so, too.) */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fixture.h"
#include "gpu/hip/hip.h"

static struct client client;

static void open_with(struct fixture *f) {
        assert_int_equal(setenv("RAILMUX_GPU_QUEUE", "1", 1), 0);
        fake_reset();
        fixture_open(f, PLANE_ADAPTIVE);
        client_init(&client, 5);
        assert_int_equal(client_attach(f, &client), 0);
}

static void close_with(struct fixture *f) {
        fixture_close(f);
        client_deinit(&client);
}

static bool parked(const struct fixture *f) {
        struct plane_info info;

        f->ops->info(f->plane, &info);
        return info.parked;
}

static void ring(uint32_t i) {
        client_ring(&client, i);
        __atomic_store_n(&client.host.wake, i, __ATOMIC_RELAXED);
}

/* Has the client been told so? */
static bool told_parked(const struct client *of) {
        return __atomic_load_n(&client_header(of)->parked, __ATOMIC_ACQUIRE);
}

static bool queued(void) {
        return atomic_load(&fake.queued);
}

/* What a bell kernel does, or its host before it. */
static void lift(const struct fixture *f) {
        __atomic_store_n(&f->latch->lifted, 1, __ATOMIC_RELEASE);
}

static void until_running(void) {
        while (!atomic_load(&fake.running))
                sched_yield();
}

/* Until the executor has had its way with a latch that does not do what it should. */
static void insists(struct fixture *f) {
        while (!atomic_load(&fake.running)) {
                assert_int_equal(f->ops->tick(f->plane, f->error), 0);
                fake_clock_advance_ms(2);
        }
}

/* A wake launches nothing, it lifts the latch. */
static void a_wake_lets_it_go(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        assert_false(queued());
        for (uint32_t i = 1; i < 4; i++) {
                fixture_silence(&f, 400);
                assert_true(parked(&f));
                assert_true(queued());
                assert_false(atomic_load(&fake.running));
                atomic_store(&fake.refuse_launch, true);
                ring(i);
                fixture_tick(&f);
                assert_false(parked(&f));
                fixture_tick_until(&f, atomic_load(&fake.running));
                assert_int_equal(fake.launches, i + 1);
                atomic_store(&fake.refuse_launch, false);
        }
        fixture_silence(&f, 400);
        close_with(&f); /* with one that is queued */
}

/* It begins though nobody here has looked. That is noticed by the wake word, or by the kernel itself. */
static void clients_let_it_go(void **state) {
        struct fixture f;

        (void)state;
        for (uint32_t told = 0; told < 2; told++) {
                open_with(&f);
                for (uint32_t i = 1; i < (told ? 10 : 4); i++) {
                        fixture_silence(&f, 400);
                        assert_true(queued());
                        assert_true(told_parked(&client));
                        atomic_store(&fake.refuse_launch, true);
                        if (told)
                                ring(i);
                        lift(&f);
                        until_running();
                        assert_true(told || parked(&f)); /* a thread looks at wake words */
                        fixture_tick_until(&f, !parked(&f));
                        fixture_tick_until(&f, !told_parked(&client));
                        assert_int_equal(fake.launches, i + 1);
                        atomic_store(&fake.refuse_launch, false);
                }
                fixture_silence(&f, 400);
                lift(&f); /* it runs, or is about to, and nobody has noticed */
                close_with(&f);
        }
}

/* The library lifts it before it launches a bell, and says so; its call may stand behind others for any time. */
static void a_client_that_announces(void **state) {
        const uint64_t one = 1;
        struct fixture f;

        (void)state;
        assert_int_equal(setenv("RAILMUX_GPU_QUEUE", "1", 1), 0);
        fake_reset();
        fixture_open(&f, PLANE_ADAPTIVE);
        client_init(&client, 5);
        client.soon_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_int_equal(client_attach(&f, &client), 0);
        for (uint32_t i = 0; i < 10; i++) {
                fixture_silence(&f, 400);
                assert_true(parked(&f));
                assert_true(queued());
                lift(&f);
                assert_int_equal(write(client.soon_fd, &one, sizeof(one)), sizeof(one));
                while (parked(&f)) /* whoever watches hears of it */
                        sched_yield();
                until_running();
        }
        close_with(&f);
        close(client.soon_fd);
}

/* Lifted between two silences, by who was about to ring but found a kernel: that is forgotten, so the next one stays.
 */
static void a_latch_lifted_early(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        lift(&f);
        fixture_silence(&f, 400);
        assert_true(queued() && parked(&f));
        assert_int_equal(f.latch->lifted, 0);
        fixture_silence(&f, 3000);
        assert_int_equal(fake.launches, 1);
        close_with(&f);
}

static struct fixture *holder;

static void hold_down(void) {
        static uint32_t looks;

        if (++looks % 3) /* between two of which whoever waits may look, too */
                __atomic_store_n(&holder->latch->lifted, 0, __ATOMIC_RELAXED);
        else
                sched_yield();
}

/* Who holds it down keeps us from nothing: we lift it again and again. */
static void a_latch_held_down(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        holder = &f;
        fixture_silence(&f, 400);
        assert_true(queued());
        fake.at_look = hold_down;
        ring(1);
        insists(&f);
        fixture_silence(&f, 400);
        assert_true(queued());
        fake.at_look = NULL;
        close_with(&f);
}

static uint64_t shuns(const struct fixture *f) {
        struct plane_info info;

        f->ops->info(f->plane, &info);
        return info.shuns;
}

/* Who has misused the latch too often: nothing is queued for a minute, and all works as without it. */
static void shunned(struct fixture *f) {
        const uint32_t launches = fake.launches;

        assert_true(parked(f));
        assert_false(queued());
        assert_int_equal(shuns(f), 1);
        ring(100);
        fixture_tick_until(f, !parked(f));
        assert_int_equal(fake.launches, launches + 1);
        fixture_silence(f, 400);
        assert_true(parked(f) && !queued());
        lift(f); /* it has no more to say, and is forgotten */
        fixture_silence(f, 59000);
        assert_false(queued());
        fixture_silence(f, 1000);
        assert_true(parked(f) && queued());
        assert_int_equal(fake.launches, launches + 1);
        assert_int_equal(shuns(f), 1);
}

/* The executor's page is not the GPU's any more, since a client has punched a hole into the file. Whether that finds
 * the latch down: we insist; or lifted: all kernels begin at once. */
static void a_latch_with_a_hole(void **state) {
        _Alignas(BELL_LATCH_BYTES) static struct bell_latch there[BELL_LATCH_BYTES / sizeof(struct bell_latch)];
        struct fixture f;

        (void)state;
        for (uint32_t lifted = 0; lifted < 2; lifted++) {
                assert_int_equal(setenv("RAILMUX_GPU_QUEUE", "1", 1), 0);
                fake_reset();
                fake.elsewhere = there;
                there->lifted = 0;
                fixture_open(&f, PLANE_ADAPTIVE);
                *f.latch = (struct bell_latch){0}; /* a page that is new */
                client_init(&client, 5);
                assert_int_equal(client_attach(&f, &client), 0);
                for (uint32_t i = 1; i < 5; i++) {
                        fixture_silence(&f, 400);
                        assert_true(queued() && parked(&f));
                        if (lifted) {
                                __atomic_store_n(&there->lifted, 1, __ATOMIC_RELEASE);
                                fixture_tick_until(&f, !parked(&f));
                        } else {
                                ring(i);
                                insists(&f);
                        }
                        fixture_tick(&f); /* it has begun, so nobody insists any more */
                        __atomic_store_n(&there->lifted, 0, __ATOMIC_RELAXED); /* who has the hole can */
                }
                fixture_silence(&f, 400);
                shunned(&f);
                close_with(&f); /* with one that is queued */
                fake.elsewhere = NULL;
        }
}

/* A client that writes nothing but zeros. */
static _Atomic bool zeros_end;

static void *zeros(void *page) {
        while (!atomic_load(&zeros_end))
                __atomic_store_n((uint32_t *)page, 0, __ATOMIC_RELAXED);
        return NULL;
}

static void a_latch_that_is_held_down_all_the_time(void **state) {
        struct fixture f;
        pthread_t thread;

        (void)state;
        open_with(&f);
        atomic_store(&zeros_end, false);
        assert_int_equal(pthread_create(&thread, NULL, zeros, f.latch), 0);
        for (uint32_t i = 1; i < 4; i++) {
                fixture_silence(&f, 400);
                assert_true(queued() && parked(&f));
                ring(i);
                insists(&f);
        }
        close_with(&f);
        atomic_store(&zeros_end, true);
        pthread_join(thread, NULL);
}

/* That what is queued ends for a window does not make up for it. */
static void misuse_before_a_window_counts(void **state) {
        struct plane_memory memory;
        struct fixture f;
        void *base;

        (void)state;
        open_with(&f);
        base = fake_client_alloc(8192, &memory);
        assert_int_equal(f.ops->peer_add(f.plane, 5, 1, &memory, f.error), 0);
        fixture_silence(&f, 400);
        assert_true(queued() && parked(&f));
        plane_lock(f.plane);
        f.plane->park.latch.held = true;
        plane_unlock(f.plane);
        f.ops->peer_remove(f.plane, 5);
        fixture_tick_until(&f, queued() && fake.closes == 1);
        plane_lock(f.plane);
        assert_int_equal(f.plane->park.latch.n_misused, 1);
        plane_unlock(f.plane);
        close_with(&f);
        fake_client_free(base);
}

/* Lifted again and again by somebody who does not ring. */
static void a_latch_lifted_in_vain(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        for (uint32_t i = 0; i < 4; i++) {
                fixture_silence(&f, 400);
                assert_true(queued() && parked(&f));
                lift(&f);
                fixture_tick_until(&f, !parked(&f));
        }
        fixture_silence(&f, 400);
        shunned(&f);
        close_with(&f);
}

/* Others' words there mean nothing. */
static void a_latch_with_nonsense(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 400);
        __atomic_store_n(&f.latch->lifted, 0xffffffff, __ATOMIC_RELAXED);
        fixture_silence(&f, 100);
        assert_true(queued());
        ring(1);
        insists(&f);
        close_with(&f);
}

/* It has begun, has taken something, and is to end before anybody has noticed. */
static void work_in_hand_at_the_end(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 400);
        assert_true(queued());
        lift(&f);
        until_running();
        atomic_store(&fake.kept, 1);
        assert_false(f.ops->drain(f.plane)); /* nobody has noticed that it runs, but it is asked to end */
        for (uint32_t i = 0; i < 1000; i++)
                assert_false(f.ops->drain(f.plane)); /* and begins again, for what it has in hand */
        atomic_store(&fake.kept, 0);
        while (!f.ops->drain(f.plane))
                sched_yield();
        close_with(&f);
}

/* What changes in the tables meanwhile is done as if it ran: it may have begun. */
static void tables_change_meanwhile(void **state) {
        struct fixture f;
        struct client other;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 400);
        assert_true(queued());
        client_init(&other, 6);
        assert_int_equal(client_attach(&f, &other), 0); /* which wakes */
        assert_false(parked(&f));
        fixture_tick_until(&f, atomic_load(&fake.version) == __atomic_load_n(&f.table->version, __ATOMIC_RELAXED));
        assert_non_null(fixture_ring(&f, 6));
        fixture_silence(&f, 400);
        assert_true(queued());
        f.ops->ring_detach(f.plane, 6);
        assert_false(queued());
        assert_null(fixture_ring(&f, 6));
        assert_true(parked(&f));
        fixture_tick(&f);
        assert_false(parked(&f));
        fixture_tick_until(&f, atomic_load(&fake.version) == __atomic_load_n(&f.table->version, __ATOMIC_RELAXED));
        fixture_silence(&f, 50);
        assert_int_equal(fake.closes, 1); /* its area's mapping, in a window */
        fixture_silence(&f, 400);
        assert_true(queued() && parked(&f));
        close_with(&f);
        client_deinit(&other);
}

/* What waits for all kernels comes through: what is queued is ended, and queued again. */
static void a_window_ends_it(void **state) {
        struct fixture f;
        struct plane_memory memory, next;
        void *base = fake_client_alloc(8192, &memory);
        uint32_t launches;

        (void)state;
        open_with(&f);
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
        fixture_silence(&f, 400);
        f.ops->buffer_retire(f.plane, 5, 1);
        fixture_tick_until(&f, atomic_load(&fake.running));
        launches = fake.launches;
        fixture_silence(&f, 400); /* a window; then it parks */
        assert_int_equal(fake.closes, 1);
        assert_int_equal(fake.launches, launches + 1);
        assert_true(queued());
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 2, &memory, f.error), 0); /* which needs no worker */
        assert_true(queued());
        fake_client_replace(base, 4096, &next);
        f.ops->buffer_retire(f.plane, 5, 2);
        fixture_tick_until(&f, atomic_load(&fake.running));
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 3, &next, f.error), 0); /* its place is free at once */
        assert_int_equal(fake.closes, 2);
        assert_non_null(fixture_buffer(&f, 5, 3));
        fixture_silence(&f, 400);
        assert_true(queued());
        ring(1);
        fixture_tick(&f);
        fixture_tick_until(&f, atomic_load(&fake.running));
        close_with(&f);
        fake_client_free(base);
}

/* A mapping that no worker knows of goes while it is parked: what is queued ends without anybody's being woken. */
static void a_window_while_parked(void **state) {
        struct fixture f;
        struct plane_memory memory;
        void *base = fake_client_alloc(FIXTURE_POOL, &memory);
        uint32_t launches;

        (void)state;
        for (uint32_t kept = 0; kept < 2; kept++) {
                open_with(&f);
                assert_int_equal(f.ops->peer_add(f.plane, 4, 1, &memory, f.error), 0);
                fixture_silence(&f, 400);
                assert_true(queued());
                launches = fake.launches;
                f.ops->peer_remove(f.plane, 4);
                assert_true(queued());
                atomic_store(&fake.kept, kept); /* somebody has rung, which is seen by what it leaves only */
                fixture_tick_until(&f, kept ? !parked(&f) : fake.closes == 1);
                atomic_store(&fake.kept, 0);
                fixture_silence(&f, kept ? 500 : 100);
                assert_int_equal(fake.closes, 1);
                assert_true(queued() && parked(&f));
                assert_int_equal(f.latch->lifted, 0); /* and it stays so */
                /* Again for what was kept, and perhaps for a window. */
                assert_in_range(fake.launches, launches + (kept ? 2 : 1), launches + (kept ? 3 : 1));
                close_with(&f);
        }
        fake_client_free(base);
}

/* A kernel of which some blocks have found no room is not thought to rest. */
static void half_of_it_begins(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 400);
        atomic_store(&fake.not_begun, true);
        ring(1);
        fixture_tick(&f);
        fixture_silence(&f, 2000);
        assert_false(parked(&f));
        atomic_store(&fake.not_begun, false);
        fixture_silence(&f, 400);
        assert_true(parked(&f));
        close_with(&f);
}

static void time_flies(void) {
        fake_clock_advance_ms(1);
}

/* The same with one that was let go only to end: tables change meanwhile, and it ends when it has room. */
static void half_of_it_is_to_end(void **state) {
        struct fixture f;
        struct plane_memory memory, pool;
        void *base = fake_client_alloc(8192, &memory), *peer = fake_client_alloc(FIXTURE_POOL, &pool);
        struct client other;
        uint32_t launches;

        (void)state;
        for (uint32_t drains = 0; drains < 2; drains++) {
                open_with(&f);
                client_init(&other, 6);
                assert_int_equal(f.ops->peer_add(f.plane, 4, 1, &pool, f.error), 0);
                assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
                fixture_silence(&f, 400);
                assert_true(queued());
                launches = fake.launches;
                atomic_store(&fake.not_begun, true);
                if (drains)
                        assert_false(f.ops->drain(f.plane));
                else
                        f.ops->peer_remove(f.plane, 4); /* which changes no tables */
                fixture_tick_until(&f, atomic_load(&fake.running));
                assert_int_not_equal(f.plane->park.asked, PARK_RUN);
                while (!park_begun(&f.plane->park))
                        sched_yield();
                fake.at_pause = time_flies;
                f.ops->buffer_retire(f.plane, 5, 1);
                fixture_tick(&f);
                assert_null(fixture_buffer(&f, 5, 1));
                assert_int_equal(client_attach(&f, &other), 0);
                f.ops->ring_detach(f.plane, 6);
                fixture_silence(&f, 3000);
                assert_false(drains && f.ops->drain(f.plane));
                assert_int_equal(fake.closes, 0);
                fake.at_pause = NULL;
                atomic_store(&fake.not_begun, false);
                while (drains && !f.ops->drain(f.plane))
                        sched_yield();
                fixture_tick_until(&f, drains || fake.closes == 3);
                assert_true(parked(&f));
                assert_int_equal(fake.launches, launches + 1); /* nobody was woken for it */
                close_with(&f);
                client_deinit(&other);
        }
        fake_client_free(base);
        fake_client_free(peer);
}

/* What is queued cannot end, and what it keeps mapped is in the way. */
static void a_place_without_room(void **state) {
        struct fixture f;
        struct plane_memory memory, next;
        void *base = fake_client_alloc(FIXTURE_POOL, &memory);

        (void)state;
        open_with(&f);
        assert_int_equal(f.ops->peer_add(f.plane, 4, 1, &memory, f.error), 0);
        fixture_silence(&f, 400);
        f.ops->peer_remove(f.plane, 4);
        assert_true(queued());
        fake_client_replace(base, 8192, &next);
        atomic_store(&fake.no_room, true);
        fake.at_pause = time_flies;
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &next, f.error), -EINVAL);
        fake.at_pause = NULL;
        atomic_store(&fake.no_room, false);
        fixture_tick_until(&f, atomic_load(&fake.running));
        assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &next, f.error), 0);
        close_with(&f);
        fake_client_free(base);
}

/* Clients' kernels leave it no room to begin, and so to end: nobody waits for that, whoever rings meanwhile is served
 * when it has come, and memory is given back then. */
static void without_room(void **state) {
        struct fixture f;
        struct plane_memory memory, next;
        void *base = fake_client_alloc(8192, &memory);
        struct client other;

        (void)state;
        for (uint32_t rings = 0; rings < 2; rings++) {
                open_with(&f);
                assert_int_equal(f.ops->buffer_import(f.plane, 5, 1, &memory, f.error), 0);
                fixture_silence(&f, 400);
                assert_true(queued());
                atomic_store(&fake.no_room, true);
                fake.at_pause = time_flies;
                f.ops->buffer_retire(f.plane, 5, 1);
                fixture_silence(&f, 3000);
                assert_int_equal(fake.closes, 0);
                assert_false(told_parked(&client)); /* it is as good as there */
                if (rings)
                        ring(1);
                client_init(&other, 6);
                assert_int_equal(client_attach(&f, &other), 0);
                fake_client_replace(base, 8192, &next); /* the old mapping is in the way, and stays there */
                assert_int_equal(f.ops->buffer_import(f.plane, 5, 2, &next, f.error), -EINVAL);
                fixture_silence(&f, 3000);
                assert_int_equal(fake.closes, 0);
                assert_false(atomic_load(&fake.running));
                fake.at_pause = NULL;
                atomic_store(&fake.no_room, false);
                fixture_tick_until(&f, atomic_load(&fake.running));
                fixture_silence(&f, 3000);
                fixture_tick_until(&f, fake.closes == 1 && queued());
                assert_true(parked(&f));
                close_with(&f);
                client_deinit(&other);
                fake_client_replace(base, 8192, &memory);
        }
        fake_client_free(base);
}

static void a_runtime_without_waits(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        atomic_store(&fake.no_waits, true);
        fixture_silence(&f, 400);
        assert_true(parked(&f));
        assert_false(queued());
        atomic_store(&fake.no_waits, false);
        fixture_silence(&f, 50); /* nor is it tried again */
        assert_false(queued());
        ring(1);
        fixture_tick(&f);
        assert_false(parked(&f));
        assert_true(atomic_load(&fake.running));
        close_with(&f);
}

/* The wait is there, the kernel is not. */
static void a_launch_that_fails(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 190);
        atomic_store(&fake.refuse_launch, true);
        for (uint32_t i = 0; i < 20 && !f.ops->tick(f.plane, f.error); i++)
                fake_clock_advance_ms(10);
        assert_int_equal(f.ops->tick(f.plane, f.error), -EIO);
        assert_string_equal(f.error, "launching the kernel: an illegal address (hipErrorIllegalAddress)");
        assert_false(queued());
        f.ops->close(f.plane);
        client_deinit(&client);
}

/* Switched off, without a latch, or without memory to pin it. */
static void off(void **state) {
        struct fixture f;

        (void)state;
        for (uint32_t i = 0; i < 3; i++) {
                fake_reset();
                assert_int_equal(setenv("RAILMUX_GPU_QUEUE", "0", 1), 0);
                fixture_open(&f, PLANE_ADAPTIVE);
                if (i == 0)
                        assert_int_equal(fixture_latch(&f), 0);
                assert_int_equal(unsetenv("RAILMUX_GPU_QUEUE"), 0);
                fake.refuse_host = i == 1;
                if (i == 1)
                        assert_int_not_equal(fixture_latch(&f), 0);
                assert_int_equal(fake.n_pinned, 0);
                fixture_silence(&f, 400);
                assert_true(parked(&f));
                assert_false(queued());
                fixture_close(&f);
        }
}

/* Unless it is switched off; and the first latch stays. */
static void usual(void **state) {
        struct fixture f;

        (void)state;
        fake_reset();
        assert_int_equal(unsetenv("RAILMUX_GPU_QUEUE"), 0);
        fixture_open(&f, PLANE_ADAPTIVE);
        assert_int_equal(fixture_latch(&f), 0);
        assert_int_equal(fixture_latch(&f), 0);
        assert_int_equal(fake.n_pinned, 1);
        fixture_silence(&f, 400);
        assert_true(queued());
        fixture_close(&f);
}

static void draining(void **state) {
        struct fixture f;

        (void)state;
        open_with(&f);
        fixture_silence(&f, 400);
        assert_true(queued());
        while (!f.ops->drain(f.plane)) /* it may have begun by itself */
                sched_yield();
        assert_false(queued());
        fixture_silence(&f, 400);
        assert_false(queued());
        close_with(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_wake_lets_it_go),
                cmocka_unit_test(clients_let_it_go),
                cmocka_unit_test(a_client_that_announces),
                cmocka_unit_test(a_latch_lifted_early),
                cmocka_unit_test(a_latch_held_down),
                cmocka_unit_test(a_latch_with_a_hole),
                cmocka_unit_test(a_latch_that_is_held_down_all_the_time),
                cmocka_unit_test(misuse_before_a_window_counts),
                cmocka_unit_test(a_latch_lifted_in_vain),
                cmocka_unit_test(a_latch_with_nonsense),
                cmocka_unit_test(work_in_hand_at_the_end),
                cmocka_unit_test(tables_change_meanwhile),
                cmocka_unit_test(a_window_ends_it),
                cmocka_unit_test(a_window_while_parked),
                cmocka_unit_test(half_of_it_begins),
                cmocka_unit_test(half_of_it_is_to_end),
                cmocka_unit_test(a_place_without_room),
                cmocka_unit_test(without_room),
                cmocka_unit_test(a_runtime_without_waits),
                cmocka_unit_test(a_launch_that_fails),
                cmocka_unit_test(off),
                cmocka_unit_test(usual),
                cmocka_unit_test(draining),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
