/* SPDX-License-Identifier: MIT */
/* Imports: shared handles, lies about sizes, and that nothing is unmapped under a kernel's feet. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"
#include "gpu/hip/hip.h"

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
        lie = piece(&whole, UINT64_MAX - 7, 16);
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &lie, f->error), -EINVAL);
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
        lie.kind = PLANE_MEMORY_FD;
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

static void descriptors_are_mapped(void **state) {
        struct fixture *f = *state;
        struct plane_memory memory = {.kind = PLANE_MEMORY_FD, .allocation_bytes = ALLOCATION, .offset = 4096};
        const struct table_buffer *buffer;
        uint32_t word = 0x12345678;

        memory.fd = memfd_create("allocation", MFD_CLOEXEC);
        memory.bytes = 8192;
        assert_int_equal(ftruncate(memory.fd, ALLOCATION), 0);
        assert_int_equal(pwrite(memory.fd, &word, sizeof(word), 4096), sizeof(word));
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &memory, f->error), 0);
        buffer = fixture_buffer(f, 1, 10);
        assert_int_equal(*(const uint32_t *)(uintptr_t)buffer->address, word);
        memory.allocation_bytes = 2 * ALLOCATION; /* a lie */
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &memory, f->error), -EINVAL);
        memory.allocation_bytes = 0;
        assert_int_equal(f->ops->buffer_import(f->plane, 1, 11, &memory, f->error), -EINVAL);
        f->ops->buffer_retire(f->plane, 1, 10);
        assert_int_equal(fake.n_open, 1);
        fake_clock_advance_ms(10000);
        fixture_tick_until(f, fake.n_open == 0);
        fixture_close(f);
        close(memory.fd);
}

static void tasks_in_hand_keep_memory(void **state) {
        struct fixture *f = *state;
        struct plane_memory whole;
        void *base = fake_client_alloc(ALLOCATION, &whole);
        uint32_t launches;

        assert_int_equal(f->ops->buffer_import(f->plane, 1, 10, &whole, f->error), 0);
        f->ops->buffer_retire(f->plane, 1, 10);
        atomic_store(&fake.kept, 1);
        fake_clock_advance_ms(10000);
        for (uint32_t i = 0; i < 50; i++)
                assert_int_equal(f->ops->tick(f->plane, f->error), 0);
        launches = fake.launches;
        assert_int_equal(launches, 2); /* one try, and the next one not soon */
        assert_int_equal(fake.n_open, 1);
        atomic_store(&fake.kept, 0);
        fake_clock_advance_ms(2000);
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

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(buffers_share_an_allocation, setup),
                cmocka_unit_test_setup(retired_memory_can_come_back, setup),
                cmocka_unit_test_setup(lies_are_refused, setup),
                cmocka_unit_test_setup(descriptors_are_mapped, setup),
                cmocka_unit_test_setup(tasks_in_hand_keep_memory, setup),
                cmocka_unit_test_setup(a_short_silence_is_used, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
