/* SPDX-License-Identifier: MIT */
/* Imports: shared handles, lies about sizes, and that nothing is unmapped under a kernel's feet. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/rings.h"
#include "util/bundle.h"
#include "util/clock.h"

#define ALLOCATION (UINT64_C(3) << 20)

static int setup(void **state) {
        static struct fixture f;

        fake_reset();
        fixture_open(&f, PLANE_SHARED);
        *state = &f;
        return 0;
}

static struct plane_memory piece(const struct plane_memory *whole, uint64_t offset, uint64_t bytes) {
        struct plane_memory memory = *whole;

        memory.offset = offset;
        memory.bytes = bytes;
        return memory;
}

static void buffers_share_an_allocation(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole, a, b;
        unsigned char *base = fake_client_alloc(ALLOCATION, &whole);

        a = piece(&whole, 512, 4096);
        b = piece(&whole, 1 << 20, 2 << 20);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &a, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &b, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 2, 10, &b, f->error), 0);
        assert_int_equal(fake.opens, 1);
        assert_int_equal(fixture_buffer(f, 1, 10)->address, (uint64_t)(uintptr_t)base + 512);
        assert_int_equal(fixture_buffer(f, 1, 10)->bytes, 4096);
        assert_int_equal(fixture_buffer(f, 2, 10)->address, (uint64_t)(uintptr_t)base + (1 << 20));
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &b, f->error), -EEXIST);

        f->ops->buffer_retire(f->plane, 1, 10);
        f->ops->buffer_retire(f->plane, 1, 10); /* unknown by now: nothing */
        f->ops->buffer_retire(f->plane, 1, 11);
        assert_null(fixture_buffer(f, 1, 11));
        fake_clock_advance_ms(10000);
        for (uint32_t i = 0; i < 10; i++)
                assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        assert_int_equal(fake.n_open, 1); /* session 2 has it */
        f->ops->buffer_retire(f->plane, 2, 10);
        assert_int_equal(fake.closes, 0);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        assert_int_equal(fake.launches, 2);
        assert_true(atomic_load(&fake.running));
        fixture_close(f);
        fake_client_free(base);
}

static void retired_memory_can_come_back(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole;
        void *base = fake_client_alloc(ALLOCATION, &whole);

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &whole, f->error), 0);
        f->ops->buffer_retire(f->plane, 1, 10);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 12, &whole, f->error), 0);
        fake_clock_advance_ms(10000);
        for (uint32_t i = 0; i < 10; i++)
                assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        assert_int_equal(fake.opens, 1);
        assert_int_equal(fake.n_open, 1);
        assert_non_null(fixture_buffer(f, 1, 12));
        fixture_close(f);
        fake_client_free(base);
}

static void lies_are_refused(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole, lie;
        void *base = fake_client_alloc(ALLOCATION, &whole);

        lie = piece(&whole, 0, ALLOCATION + 1);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = piece(&whole, ALLOCATION, 1);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = piece(&whole, UINT64_MAX - 15, 32);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = piece(&whole, 8, 64); /* kernels would read words at odd addresses */
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        assert_non_null(strstr(f->error, "a multiple of 16"));
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = piece(&whole, 16, 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = whole;
        lie.n_handle = 12;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = whole;
        lie.handle[0] ^= 1;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = whole;
        lie.kind = PLANE_MEMORY_NONE;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie.kind = PLANE_MEMORY_BUNDLE;
        lie.fd = -1;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 0, &whole, f->error), -EINVAL);
        assert_int_equal(f->ops->buffer_import(f->plane, 0, 1, &whole, f->error), -EINVAL);
        assert_true(f->error[0]);
        for (uint32_t i = 0; i < TABLE_RINGS; i++) /* nobody keeps a place by lying */
                assert_int_equal(f->plane->rings[i].session, 0);
        assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
}

/* Memfds of 1, 2, .. times ALLOCATION, in whose first words stand 100, 101, .. */
static int pack_chunks(uint32_t n, uint32_t too_small, struct plane_memory *ret_memory) {
        struct bundle bundle = {.n = n};
        int fd;

        *ret_memory = (struct plane_memory){.kind = PLANE_MEMORY_BUNDLE};
        for (uint32_t i = 0; i < n; i++) {
                const uint32_t word = 100 + i;
                const uint64_t bytes = (uint64_t)ALLOCATION * (i + 1);

                bundle.fd[i] = memfd_create("chunk", MFD_CLOEXEC);
                bundle.bytes[i] = bytes;
                assert_int_equal(ftruncate(bundle.fd[i], (off_t)(bytes - (too_small >> i & 1 ? 4096 : 0))), 0);
                assert_int_equal(pwrite(bundle.fd[i], &word, sizeof(word), 0), sizeof(word));
        }
        assert_int_equal(bundle_pack(&bundle, &fd), 0);
        ret_memory->allocation_bytes = ret_memory->bytes = bundle_bytes(&bundle);
        ret_memory->fd = fd;
        bundle_close(&bundle);
        return fd;
}

/* AMD's handles carry an offset, so a client can make one that begins in the middle. Its end is not known. */
static void a_handle_of_the_middle_is_refused_again(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole, middle;
        void *base = fake_client_alloc(ALLOCATION, &whole);
        uint64_t at;

        middle = piece(&whole, 0, ALLOCATION);
        memcpy(&at, middle.handle + FAKE_HANDLE_ADDRESS, sizeof(at));
        at += 2 << 20;
        memcpy(middle.handle + FAKE_HANDLE_ADDRESS, &at, sizeof(at));
        for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &middle, f->error), -EINVAL);
                assert_non_null(strstr(f->error, "does not name the start of an allocation"));
                assert_null(fixture_buffer(f, 1, 10));
        }
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &whole, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
}

static void chunks_are_mapped_side_by_side(void **state) {
        struct fixture *f = *state;
        const struct table_buffer *buffer, *other;
        struct plane_memory memory;
        int fd = pack_chunks(3, 0, &memory);

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), 0);
        assert_int_equal(fake.n_open, 3);
        buffer = fixture_buffer(f, 1, 10);
        assert_int_equal(*(const uint32_t *)(uintptr_t)buffer->address, 100);
        assert_int_equal(*(const uint32_t *)(uintptr_t)(buffer->address + ALLOCATION), 101);
        assert_int_equal(*(const uint32_t *)(uintptr_t)(buffer->address + 3 * ALLOCATION), 102);
        /* Once more, of the same bundle: at other addresses, the same memory. */
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &memory, f->error), 0);
        other = fixture_buffer(f, 1, 11);
        buffer = fixture_buffer(f, 1, 10);
        assert_true(other->address != buffer->address);
        *(uint32_t *)(uintptr_t)(buffer->address + ALLOCATION) = 555;
        assert_int_equal(*(const uint32_t *)(uintptr_t)(other->address + ALLOCATION), 555);
        f->ops->buffer_retire(f->plane, 1, 10);
        f->ops->buffer_retire(f->plane, 1, 11);
        assert_int_equal(fake.n_open, 6);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        fixture_close(f);
        close(fd);
}

static void bad_chunks_are_refused(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory, lie;
        int fd = pack_chunks(3, 0, &memory), ends[2];

        lie = memory;
        lie.allocation_bytes -= ALLOCATION;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie.allocation_bytes = 0;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        lie = memory;
        lie.bytes++;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        lie = memory;
        lie.fd = ends[0];
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        assert_non_null(strstr(f->error, "it is no bundle"));
        close(ends[0]);
        close(ends[1]);
        close(fd);

        fake_clock_advance_ms(10000); /* (one was mapped before it was refused) */
        fixture_tick_until(f, fake.n_open == 0);

        /* Of another kind. */
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        {
                struct bundle bundle = {.n = 1, .fd = {ends[0]}, .bytes = {ALLOCATION}};

                assert_int_equal(bundle_pack(&bundle, &lie.fd), 0);
        }
        lie.allocation_bytes = lie.bytes = ALLOCATION;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
        assert_non_null(strstr(f->error, "not of memory on a GPU"));
        close(lie.fd);
        close(ends[0]);
        close(ends[1]);

        /* More than there is; one of a GPU's whole memory, many times, would take all addresses. */
        fake.free_bytes = 3 * ALLOCATION;
        fd = pack_chunks(3, 0, &memory);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), -EINVAL);
        assert_non_null(strstr(f->error, "more than a GPU has"));
        fake.free_bytes = 100 * ALLOCATION;
        close(fd);

        /* The first is not as large as was said: nothing is left to be closed. */
        fd = pack_chunks(2, 1, &memory);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), -EINVAL);
        assert_int_equal(fake.n_open, 0);
        assert_int_equal(f->plane->memory.n_retired, 0);
        close(fd);

        /* One in the middle is not: what had been mapped is unmapped in a window. */
        fd = pack_chunks(4, 4, &memory);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), -EINVAL);
        assert_int_equal(fake.n_open, 2);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        for (uint32_t i = 0; i < TABLE_RINGS; i++)
                assert_int_equal(f->plane->rings[i].session, 0);
        fixture_close(f);
        close(fd);
}

/* Looks at it would go over the links between GPUs. What is reached, and pools, lie on other GPUs as a rule. */
static void memory_of_another_gpu_is_refused(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        struct client client;
        uint32_t *base = fake_client_alloc(ALLOCATION, &memory), first;
        int fd;

        *base = fake.mark_elsewhere = 101;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), -EINVAL);
        assert_non_null(strstr(f->error, "lies on another GPU"));
        assert_null(fixture_buffer(f, 1, 10));
        assert_int_equal(f->ops->peer_add(f->plane, 5, 1, &memory, f->error), 0);
        f->ops->peer_remove(f->plane, 5);
        assert_int_equal(f->ops->reach_import(f->plane, 1, 10, &memory, f->error), 0);
        f->ops->reach_retire(f->plane, 1, 0);

        client_init(&client, 1);
        first = *(uint32_t *)(void *)client.area;
        *(uint32_t *)(void *)client.area = 101;
        assert_int_equal(client_attach(f, &client), -EINVAL);
        assert_non_null(strstr(f->error, "lies on another GPU"));
        *(uint32_t *)(void *)client.area = first;
        assert_int_equal(client_attach(f, &client), 0);
        f->ops->ring_detach(f->plane, 1);

        fd = pack_chunks(3, 0, &memory); /* the second one */
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), -EINVAL);
        assert_non_null(strstr(f->error, "lies on another GPU"));
        fake.mark_elsewhere = 0;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), 0);
        fixture_close(f);
        close(fd);
        client_deinit(&client);
        fake_client_free(base);
}

/* Those that named it have been answered before it was released. */
static void tasks_in_hand_do_not_keep_buffers(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole;
        void *base = fake_client_alloc(ALLOCATION, &whole);

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &whole, f->error), 0);
        f->ops->buffer_retire(f->plane, 1, 10);
        atomic_store(&fake.kept, 1);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        fixture_close(f);
        fake_client_free(base);
}

static void a_short_silence_is_used(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole;
        void *base = fake_client_alloc(ALLOCATION, &whole);

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &whole, f->error), 0);
        assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        f->ops->buffer_retire(f->plane, 1, 10);
        fake_clock_advance_ms(30);
        fixture_tick_until(f, fake.n_open == 0);
        fixture_close(f);
        fake_client_free(base);
}

static uint32_t ring_of(const struct fixture *f, uint64_t session) {
        uint32_t index = rings_find(f->plane, session);

        assert_in_range(index, 0, TABLE_RINGS - 1);
        return 1u << index;
}

static void ticks(struct fixture *f, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(f->ops->tick(f->plane, f->error), 0);
}

/* Requests of any session may push there. */
static void pools_of_others_stay_while_there_are_tasks(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory, pool;
        void *base = fake_client_alloc(ALLOCATION, &memory), *other = fake_client_alloc(ALLOCATION, &pool);

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), 0);
        assert_int_equal(f->ops->peer_add(f->plane, 5, 1, &pool, f->error), 0);
        atomic_store(&fake.kept_rings, ring_of(f, 1) << 3);
        atomic_store(&fake.kept, 1);
        f->ops->peer_remove(f->plane, 5);
        fake_clock_advance_ms(10000);
        ticks(f, 50);
        assert_int_equal(fake.closes, 0);
        assert_int_equal(fake.launches, 2); /* one try, and the next one not soon */
        atomic_store(&fake.kept, 0);
        fake_clock_advance_ms(2000);
        fixture_tick_until(f, fake.closes == 1);
        assert_int_equal(fake.n_open, 1);
        fixture_close(f);
        fake_client_free(base);
        fake_client_free(other);
}

/* ---- memory in the place of other memory ------------------------------------------------------------------------- */
static void a_place_is_freed_at_once(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        void *base = fake_client_alloc(ALLOCATION, &memory);
        const struct table_buffer *buffer;

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 1, &memory, f->error), 0);
        for (uint32_t i = 2; i < 10; i++) {
                fake_client_replace(base, ALLOCATION >> i, &memory);
                f->ops->buffer_retire(f->plane, 1, i - 1);
                assert_int_equal(f->ops->buffer_import(f->plane, 1, i, &memory, f->error), 0);
                buffer = fixture_buffer(f, 1, i);
                assert_int_equal(buffer->address, (uint64_t)(uintptr_t)base);
                assert_int_equal(buffer->bytes, ALLOCATION >> i);
                assert_int_equal(fake.launches, i);
                assert_int_equal(fake.closes, i - 1);
                assert_int_equal(fake.n_open, 1);
                assert_true(atomic_load(&fake.running));
        }
        assert_int_equal(fake.collisions, 8); /* each was tried twice */
        ticks(f, 10);
        fixture_close(f);
        fake_client_free(base);
}

/* The tables are everybody's: one session does not fill them. */
static void a_session_has_a_share_of_the_tables(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        void *base = fake_client_alloc(ALLOCATION, &memory);
        const uint32_t most = TABLE_BUFFERS / 4;

        for (uint32_t id = 1; id <= most; id++)
                assert_int_equal(f->ops->buffer_import(f->plane, 1, id, &memory, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, most + 1, &memory, f->error), -ENOSPC);
        assert_non_null(strstr(f->error, "at most"));
        assert_int_equal(f->ops->buffer_import(f->plane, 2, 1, &memory, f->error), 0);
        f->ops->buffer_retire(f->plane, 1, 7);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, most + 1, &memory, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
}

/* Each stops everybody's requests for a while. */
static void windows_have_a_limit(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory, other;
        void *base = fake_client_alloc(ALLOCATION, &memory), *others = fake_client_alloc(ALLOCATION, &other);
        uint32_t n = 1;

        assert_int_equal(f->ops->buffer_import(f->plane, 2, 1, &other, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, n, &memory, f->error), 0);
        for (uint32_t k = 0; k < 3; k++) {
                const uint32_t launches = fake.launches;

                for (uint32_t i = 0; i < 8; i++) {
                        fake_client_replace(base, ALLOCATION - n, &memory);
                        f->ops->buffer_retire(f->plane, 1, n);
                        assert_int_equal(f->ops->buffer_import(f->plane, 1, ++n, &memory, f->error), 0);
                }
                fake_client_replace(base, ALLOCATION - n, &memory);
                f->ops->buffer_retire(f->plane, 1, n); /* (nothing of the session is left) */
                for (uint32_t i = 0; i < 3; i++)
                        assert_int_equal(f->ops->buffer_import(f->plane, 1, n + 1, &memory, f->error), -EBUSY);
                assert_non_null(strstr(f->error, "try again"));
                assert_int_equal(fake.launches, launches + 8);
                fake_clock_advance_ms(1000);
                assert_int_equal(f->ops->buffer_import(f->plane, 1, ++n, &memory, f->error), 0);
                fake_clock_advance_ms(1000);
        }
        /* Others have theirs. */
        fake_client_replace(others, 4096, &other);
        f->ops->buffer_retire(f->plane, 2, 1);
        assert_int_equal(f->ops->buffer_import(f->plane, 2, 2, &other, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
        fake_client_free(others);
}

static void a_place_that_tasks_do_not_keep(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory, other;
        void *base = fake_client_alloc(ALLOCATION, &memory), *others = fake_client_alloc(ALLOCATION, &other);

        assert_int_equal(f->ops->buffer_import(f->plane, 2, 10, &other, f->error), 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), 0);
        atomic_store(&fake.kept_rings, ring_of(f, 2) | ring_of(f, 1));
        atomic_store(&fake.kept, 3);
        f->ops->buffer_retire(f->plane, 2, 10);
        f->ops->buffer_retire(f->plane, 1, 10);
        fake_client_replace(base, 4096, &memory);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &memory, f->error), 0);
        assert_int_equal(fake.collisions, 1);
        assert_int_equal(fake.launches, 2);
        assert_int_equal(fake.closes, 2);
        assert_int_equal(fake.n_open, 1);
        fixture_close(f);
        fake_client_free(base);
        fake_client_free(others);
}

static void put_the_clock_forward(void) {
        fake_clock_advance_ms(100);
}

static void finish_the_tasks(void) {
        put_the_clock_forward();
        if (fake.collisions == 4)
                atomic_store(&fake.kept, 0);
}

static uint64_t now_ms(void) {
        return clock_now_ns() / 1000000;
}

/* A pool lay there, and any task may name it. */
static void a_place_that_tasks_keep(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory;
        void *base = fake_client_alloc(ALLOCATION, &memory);
        uint64_t began;

        assert_int_equal(f->ops->peer_add(f->plane, 5, 1, &memory, f->error), 0);
        atomic_store(&fake.kept_rings, 1);
        atomic_store(&fake.kept, 1);
        f->ops->peer_remove(f->plane, 5);
        fake_client_replace(base, 4096, &memory);
        fake.at_collision = finish_the_tasks;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &memory, f->error), 0);
        assert_int_equal(fake.collisions, 4);
        assert_int_equal(fake.launches, 5); /* the kernel worked on them meanwhile */
        assert_int_equal(fake.n_open, 1);

        f->ops->buffer_retire(f->plane, 1, 11);
        fake_client_replace(base, 2048, &memory);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        assert_int_equal(f->ops->peer_add(f->plane, 5, 2, &memory, f->error), 0);
        atomic_store(&fake.kept, 1); /* for ever */
        f->ops->peer_remove(f->plane, 5);
        fake_client_replace(base, 1024, &memory);
        fake.at_collision = put_the_clock_forward;
        began = now_ms();
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 12, &memory, f->error), -EINVAL);
        assert_in_range(now_ms() - began, 1000, 1200);
        assert_non_null(strstr(f->error, "used by a request under way"));
        assert_null(fixture_buffer(f, 1, 12));
        assert_int_equal(rings_find(f->plane, 1), TABLE_RINGS);
        assert_int_equal(fake.closes, 2);
        assert_true(atomic_load(&fake.running));
        assert_int_equal(f->ops->tick(f->plane, f->error), 0);

        fake.at_collision = NULL;
        atomic_store(&fake.kept, 0);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 12, &memory, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
}

static void a_place_that_is_still_registered(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory, other;
        void *base = fake_client_alloc(ALLOCATION, &memory), *others = fake_client_alloc(ALLOCATION, &other);

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), 0);
        fake_client_replace(base, 4096, &memory);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &memory, f->error), -EINVAL);
        assert_non_null(strstr(f->error, "still registered: unregister it first"));
        assert_null(strstr(f->error, "under way"));
        assert_int_equal(fake.collisions, 1);
        assert_int_equal(fake.launches, 1); /* nobody was disturbed */
        assert_null(fixture_buffer(f, 1, 11));

        assert_int_equal(f->ops->buffer_import(f->plane, 2, 12, &other, f->error), 0);
        f->ops->buffer_retire(f->plane, 2, 12); /* that this one is closed is of no use */
        assert_int_equal(f->ops->buffer_import(f->plane, 2, 11, &memory, f->error), -EINVAL);
        assert_null(strstr(f->error, "under way"));
        assert_int_equal(fake.launches, 2);

        f->ops->buffer_retire(f->plane, 1, 10);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &memory, f->error), 0);
        fixture_close(f);
        fake_client_free(base);
        fake_client_free(others);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(buffers_share_an_allocation, setup),
                cmocka_unit_test_setup(retired_memory_can_come_back, setup),
                cmocka_unit_test_setup(lies_are_refused, setup),
                cmocka_unit_test_setup(a_handle_of_the_middle_is_refused_again, setup),
                cmocka_unit_test_setup(chunks_are_mapped_side_by_side, setup),
                cmocka_unit_test_setup(bad_chunks_are_refused, setup),
                cmocka_unit_test_setup(memory_of_another_gpu_is_refused, setup),
                cmocka_unit_test_setup(tasks_in_hand_do_not_keep_buffers, setup),
                cmocka_unit_test_setup(a_short_silence_is_used, setup),
                cmocka_unit_test_setup(pools_of_others_stay_while_there_are_tasks, setup),
                cmocka_unit_test_setup(a_place_is_freed_at_once, setup),
                cmocka_unit_test_setup(a_session_has_a_share_of_the_tables, setup),
                cmocka_unit_test_setup(windows_have_a_limit, setup),
                cmocka_unit_test_setup(a_place_that_tasks_do_not_keep, setup),
                cmocka_unit_test_setup(a_place_that_tasks_keep, setup),
                cmocka_unit_test_setup(a_place_that_is_still_registered, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
