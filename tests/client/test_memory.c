/* SPDX-License-Identifier: MIT */
/* The table of shared memory, rmx_mem_alloc, registration, the bounce pool. */
#include <stdlib.h>
#include <string.h>

#include "client/session.h"
#include "proto/session.pb-c.h"
#include "tests/client/crew.h"
#include "util/memfd.h"

#define BODY(name)              RAILMUX__SESSION__MESSAGE__BODY_##name
#define assert_error_says(text) assert_non_null(strstr(rmx_last_error(), text))

/* ---- the table: mapped is 0 here, so nothing is unmapped
 * --------------------------------------------------------------- */
#define SLOTS      512u
#define SLOT_BYTES 0x1000u

static struct buffer slot_buffer(uint32_t slot) {
        return (struct buffer){.id = slot + 1, .address = (void *)(uintptr_t)((slot + 1) * SLOT_BYTES)};
}

/* Random insertions and removals against a plain array. */
static void test_table_random(void **state) {
        static size_t size[SLOTS]; /* 0: absent */
        struct buffer_table table = {0};
        struct buffer buffer;
        unsigned int seed = 1;

        (void)state;
        assert_int_equal(buffer_table_init(&table), 0);
        memset(size, 0, sizeof(size));
        for (int round = 0; round < 20000; round++) {
                uint32_t slot = (uint32_t)rand_r(&seed) % SLOTS, id = 0;
                uintptr_t base = (slot + 1) * SLOT_BYTES;
                uint64_t offset = 0;
                size_t at, bytes;
                int expected;

                buffer = slot_buffer(slot);
                if (rand_r(&seed) % 2) {
                        if (size[slot])
                                continue;
                        size[slot] = 1 + (size_t)rand_r(&seed) % SLOT_BYTES;
                        assert_int_equal(buffer_table_insert(&table, &buffer, size[slot]), 0);
                } else {
                        expected = size[slot] ? 0 : BUFFER_E_UNKNOWN;
                        assert_int_equal(buffer_table_remove(&table, buffer.address, &buffer), expected);
                        size[slot] = 0;
                }
                slot = (uint32_t)rand_r(&seed) % SLOTS;
                base = (slot + 1) * SLOT_BYTES;
                at = (size_t)rand_r(&seed) % SLOT_BYTES;
                bytes = (size_t)rand_r(&seed) % SLOT_BYTES;
                expected = at >= size[slot] ? BUFFER_E_UNKNOWN : at + bytes > size[slot] ? BUFFER_E_RANGE : 0;
                assert_int_equal(buffer_table_find(&table, (void *)(base + at), bytes, &id, &offset), expected);
                if (!expected) {
                        assert_int_equal(id, slot + 1);
                        assert_int_equal(offset, at);
                }
        }
        assert_int_equal(buffer_table_find(&table, NULL, 1, &(uint32_t){0}, &(uint64_t){0}), BUFFER_E_UNKNOWN);
        while (table.count)
                assert_int_equal(
                        buffer_table_remove(&table,
                                            (void *)(uintptr_t)atomic_load(&atomic_load(&table.array)->entry[0].base),
                                            &buffer),
                        0);
        buffer_table_deinit(&table);
}

struct search {
        struct buffer_table table;
        _Atomic bool stop;
        _Atomic uint32_t wrong;
};

static void *search_main(void *userdata) {
        struct search *search = userdata;

        while (!atomic_load(&search->stop)) {
                /* Even slots are always there, odd ones come and go. */
                for (uint32_t slot = 0; slot < SLOTS; slot += 2) {
                        uintptr_t at = (slot + 1) * SLOT_BYTES + 5;
                        uint64_t offset = 0;
                        uint32_t id = 0;

                        if (buffer_table_find(&search->table, (void *)at, 7, &id, &offset) || id != slot + 1 ||
                            offset != 5)
                                atomic_fetch_add(&search->wrong, 1);
                }
        }
        return NULL;
}

/* Readers never miss what is there, while a writer shifts and enlarges the array. */
static void test_table_threads(void **state) {
        struct search search = {0};
        struct buffer buffer;
        pthread_t threads[2];

        (void)state;
        assert_int_equal(buffer_table_init(&search.table), 0);
        for (uint32_t slot = 0; slot < SLOTS; slot += 2) {
                buffer = slot_buffer(slot);
                assert_int_equal(buffer_table_insert(&search.table, &buffer, SLOT_BYTES), 0);
        }
        for (int i = 0; i < 2; i++)
                must(!pthread_create(&threads[i], NULL, search_main, &search));
        for (int round = 0; round < 20; round++) {
                for (uint32_t slot = 1; slot < SLOTS; slot += 2) {
                        buffer = slot_buffer(slot);
                        must(!buffer_table_insert(&search.table, &buffer, SLOT_BYTES));
                }
                for (uint32_t slot = 1; slot < SLOTS; slot += 2)
                        must(!buffer_table_remove(&search.table, slot_buffer(slot).address, &buffer));
        }
        atomic_store(&search.stop, true);
        for (int i = 0; i < 2; i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&search.wrong), 0);
        for (uint32_t slot = 0; slot < SLOTS; slot += 2)
                assert_int_equal(buffer_table_remove(&search.table, slot_buffer(slot).address, &buffer), 0);
        buffer_table_deinit(&search.table);
}

/* ---- rmx_mem_alloc ----------------------------------------------------------------------------------------------- */
static void test_alloc(void **state) {
        unsigned char *memory[3];
        struct crew crew;
        unsigned int fds;
        void *none = NULL;

        (void)state;
        crew_start(&crew, 1, 64);
        fds = count_fds();
        for (int i = 0; i < 3; i++) {
                void *p;

                assert_int_equal(rmx_mem_alloc(crew.session, 10000, &p), RMX_OK);
                memory[i] = p;
                assert_int_equal((uintptr_t)p % 4096, 0);
                for (int k = 0; k < 10000; k++)
                        assert_int_equal(memory[i][k], 0);
                memset(p, i + 1, 10000);
        }
        assert_int_equal(count_fds(), fds + 3); /* the fake's; the library keeps none */
        assert_int_equal(rmx_mem_free(crew.session, memory[1] + 1), RMX_E_INVALID);
        assert_error_says("is not what rmx_mem_alloc returned");
        assert_int_equal(rmx_mem_free(crew.session, memory[1]), RMX_OK);
        assert_int_equal(rmx_mem_free(crew.session, memory[1]), RMX_E_INVALID);
        assert_int_equal(memory[0][9999] + memory[2][9999], 4);
        assert_int_equal(rmx_mem_free(crew.session, NULL), RMX_E_INVALID);
        assert_int_equal(rmx_mem_alloc(crew.session, 0, &none), RMX_E_INVALID);
        assert_int_equal(rmx_mem_alloc(crew.session, SIZE_MAX, &none), RMX_E_INVALID);
        assert_int_equal(rmx_mem_alloc(crew.session, 1, NULL), RMX_E_INVALID);
        pthread_mutex_lock(&crew.fake.mutex);
        crew.fake.max_bytes = 1 << 20;
        pthread_mutex_unlock(&crew.fake.mutex);
        assert_int_equal(rmx_mem_alloc(crew.session, 2 << 20, &none), RMX_E_LIMIT);
        assert_error_says("limit of bytes");
        assert_null(none);
        crew_stop(&crew);
}

/* A range that runs over the end of shared memory is refused: behind it may lie anything. */
static void test_over_the_end(void **state) {
        struct crew crew;
        void *p;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_mem_alloc(crew.session, 400, &p), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew.comm[0], p, p, 100, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(rmx_all_reduce(crew.comm[0], p, p, 101, RMX_INT32, RMX_SUM, NULL), RMX_E_INVALID);
        assert_error_says("in: 404 bytes");
        assert_error_says("run over the end");
        assert_int_equal(rmx_buffer_register(crew.session, p, 401), RMX_E_INVALID);
        assert_int_equal(rmx_barrier(crew.comm[0], NULL), RMX_OK);
        crew_stop(&crew);
}

/* ---- bounce ------------------------------------------------------------------------------------------------------ */
static void test_bounce_reuse(void **state) {
        struct crew crew;
        int32_t in[1000], out[1000];

        (void)state;
        crew_start(&crew, 1, 64);
        for (int round = 0; round < 100; round++) {
                for (int i = 0; i < 1000; i++)
                        in[i] = i * round;
                assert_int_equal(rmx_all_reduce(crew.comm[0], in, out, 1000, RMX_INT32, RMX_SUM, NULL), RMX_OK);
                assert_memory_equal(in, out, sizeof(in));
        }
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 2);
        /* In place one region does. */
        assert_int_equal(rmx_all_reduce(crew.comm[0], out, out, 1000, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 2);
        crew_stop(&crew);
}

/* A block of the other memory is copied with it. */
static int blocks_thread(struct crew *crew, uint32_t rank) {
        struct rmx_comm *comm = crew->comm[rank];
        int32_t memory[300];
        int r;

        for (int32_t i = 0; i < 300; i++)
                memory[i] = i / 100 == (int32_t)rank ? i : -1;
        r = rmx_all_gather(comm, memory + 100 * rank, memory, 100, RMX_INT32, NULL);
        for (int32_t i = 0; i < 300 && !r; i++)
                r = memory[i] == i ? 0 : -1;
        if (!r)
                r = rmx_reduce_scatter(comm, memory, memory + 100 * rank, 100, RMX_INT32, RMX_SUM, NULL);
        for (int32_t i = 0; i < 300 && !r; i++)
                r = memory[i] == (i / 100 == (int32_t)rank ? 3 * i : i) ? 0 : -1;
        return r;
}

static void test_bounce_blocks(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 3, 64);
        crew_run(&crew, blocks_thread);
        assert_true(fake_calls(&crew.fake, BODY(BUFFER_CREATE)) <= 3); /* one for each rank at a time */
        crew_stop(&crew);
}

static void test_register(void **state) {
        struct crew crew;
        int32_t *memory = calloc(1 << 16, sizeof(*memory));
        struct bounce_region *region[3];
        void *shared;

        (void)state;
        assert_non_null(memory);
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_buffer_register(crew.session, memory, 4 << 16), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 1);
        assert_int_equal(rmx_buffer_register(crew.session, memory, 4), RMX_E_INVALID);
        assert_error_says("registered already");
        assert_int_equal(rmx_all_reduce(crew.comm[0], memory, memory, 1 << 16, RMX_INT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 2); /* the second was the refused one's */
        /* That one is to spare, and then none is: each registration has its own. */
        assert_int_equal(rmx_buffer_register(crew.session, memory + 1, 4), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 2);
        assert_int_equal(rmx_buffer_register(crew.session, memory + 2, 4), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 3);
        for (int i = 0; i < 3; i++)
                assert_int_equal(bounce_acquire(crew.session, "test", memory + i, 4, NULL, &region[i]), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 3);
        assert_int_equal(rmx_buffer_unregister(crew.session, memory + 2), RMX_OK); /* its region is under way */
        assert_int_equal(rmx_buffer_register(crew.session, memory + 2, 4), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 4);
        for (int i = 0; i < 3; i++)
                bounce_release(&crew.session->bounce, region[i]);
        assert_int_equal(rmx_buffer_unregister(crew.session, memory + 1), RMX_OK);
        assert_int_equal(rmx_buffer_unregister(crew.session, memory + 2), RMX_OK);
        assert_int_equal(rmx_buffer_unregister(crew.session, memory), RMX_OK);
        assert_int_equal(rmx_buffer_unregister(crew.session, memory), RMX_E_INVALID);
        assert_int_equal(rmx_buffer_register(crew.session, NULL, 4), RMX_E_INVALID);
        assert_int_equal(rmx_buffer_register(crew.session, memory, 0), RMX_E_INVALID);
        assert_int_equal(rmx_mem_alloc(crew.session, 4096, &shared), RMX_OK);
        assert_int_equal(rmx_buffer_register(crew.session, shared, 4096), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 5); /* shared memory needs no region */
        assert_int_equal(rmx_buffer_unregister(crew.session, shared), RMX_OK);
        free(memory);
        crew_stop(&crew);
}

/* What is registered finds a region whatever others do, as long as they are not inside of it. */
static void test_reserved(void **state) {
        struct bounce_region *own, *second, *other[2];
        int32_t memory[300] = {0}, elsewhere[10] = {0};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        assert_int_equal(rmx_buffer_register(crew.session, memory + 100, 400), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 1);
        assert_int_equal(bounce_acquire(crew.session, "test", elsewhere, 4, NULL, &other[0]), RMX_OK);
        assert_int_equal(bounce_acquire(crew.session, "test", memory + 99, 4, NULL, &other[1]), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 3);
        assert_int_equal(bounce_acquire(crew.session, "test", memory + 199, 4, NULL, &own), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 3);
        /* It has one at a time. */
        assert_int_equal(bounce_acquire(crew.session, "test", memory + 100, 4, NULL, &second), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 4);
        bounce_release(&crew.session->bounce, own);
        bounce_release(&crew.session->bounce, second);
        /* Of these two, one is to spare. */
        bounce_release(&crew.session->bounce, other[0]);
        bounce_release(&crew.session->bounce, other[1]);
        for (int i = 0; i < 2; i++)
                assert_int_equal(bounce_acquire(crew.session, "test", NULL, 4, NULL, &other[i]), RMX_OK);
        assert_int_equal(bounce_acquire(crew.session, "test", memory + 200, 4, NULL, &second), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 4);
        assert_int_equal(bounce_acquire(crew.session, "test", memory + 150, 64, NULL, &own), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 4);
        /* More than was registered is not inside. */
        bounce_release(&crew.session->bounce, own);
        assert_int_equal(bounce_acquire(crew.session, "test", memory + 150, 65537, NULL, &own), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 5);
        /* It ends while its region is out; another one begins. */
        bounce_release(&crew.session->bounce, own);
        assert_int_equal(bounce_acquire(crew.session, "test", memory + 150, 64, NULL, &own), RMX_OK);
        assert_int_equal(rmx_buffer_unregister(crew.session, memory + 100), RMX_OK);
        bounce_release(&crew.session->bounce, own);
        assert_int_equal(bounce_acquire(crew.session, "test", NULL, 64, NULL, &own), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 5);
        bounce_release(&crew.session->bounce, own);
        bounce_release(&crew.session->bounce, second);
        for (int i = 0; i < 2; i++)
                bounce_release(&crew.session->bounce, other[i]);
        crew_stop(&crew);
}

/* Among many, each finds its own. */
static void test_reserved_many(void **state) {
        struct bounce_region *region[100];
        static int32_t memory[1000];
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        for (int i = 0; i < 100; i++) /* in no order */
                assert_int_equal(rmx_buffer_register(crew.session, memory + i * 37 % 100 * 10, 20), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 100);
        for (int i = 0; i < 100; i++)
                assert_int_equal(bounce_acquire(crew.session, "test", memory + i * 10 + 4, 4, NULL, &region[i]),
                                 RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 100);
        for (int i = 0; i < 100; i += 2)
                assert_int_equal(rmx_buffer_unregister(crew.session, memory + i * 10), RMX_OK);
        for (int i = 0; i < 100; i++)
                bounce_release(&crew.session->bounce, region[i]);
        for (int i = 0; i < 50; i++) /* of those that are registered no more */
                assert_int_equal(bounce_acquire(crew.session, "test", memory + i * 20, 4, NULL, &region[i]), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 100);
        assert_int_equal(bounce_acquire(crew.session, "test", memory, 4, NULL, &region[50]), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_CREATE)), 101);
        for (int i = 0; i <= 50; i++)
                bounce_release(&crew.session->bounce, region[i]);
        crew_stop(&crew);
}

/* Free regions stand in the way of the tenant's limit: they go, except what is reserved. */
static void test_bounce_trim(void **state) {
        struct bounce_region *small[5], *large;
        int32_t reserved[100] = {0};
        struct crew crew;

        (void)state;
        crew_start(&crew, 1, 64);
        pthread_mutex_lock(&crew.fake.mutex);
        crew.fake.max_bytes = 512 << 10;
        pthread_mutex_unlock(&crew.fake.mutex);
        assert_int_equal(rmx_buffer_register(crew.session, reserved, sizeof(reserved)), RMX_OK);
        for (int i = 0; i < 5; i++)
                assert_int_equal(bounce_acquire(crew.session, "test", NULL, 40000, NULL, &small[i]), RMX_OK);
        assert_int_equal(bounce_acquire(crew.session, "test", NULL, 256 << 10, NULL, &large), RMX_E_LIMIT);
        for (int i = 0; i < 5; i++)
                bounce_release(&crew.session->bounce, small[i]);
        assert_int_equal(bounce_acquire(crew.session, "test", NULL, 256 << 10, NULL, &large), RMX_OK);
        assert_int_equal(fake_calls(&crew.fake, BODY(BUFFER_DESTROY)), 5); /* all 64 KiB ones but the reserved one */
        /* A region larger than needed serves as well. */
        assert_int_equal(bounce_acquire(crew.session, "test", NULL, 1, NULL, &small[0]), RMX_OK);
        bounce_release(&crew.session->bounce, large);
        assert_int_equal(bounce_acquire(crew.session, "test", NULL, 1, NULL, &small[1]), RMX_OK);
        assert_ptr_equal(small[1], large);
        bounce_release(&crew.session->bounce, small[0]);
        bounce_release(&crew.session->bounce, small[1]);
        bounce_release(&crew.session->bounce, NULL);
        crew_stop(&crew);
}

static int bounce_thread(struct crew *crew, uint32_t rank) {
        for (int i = 0; i < 200; i++) {
                struct bounce_region *region[2];
                int r;

                r = bounce_acquire(crew->session, "test", NULL, 1000, NULL, &region[0]);
                if (!r)
                        r = bounce_acquire(crew->session, "test", NULL, 1u << (16 + rank % 3), NULL, &region[1]);
                if (r)
                        return r;
                memset(region[0]->buffer.address, (int)rank, 1000);
                memset(region[1]->buffer.address, (int)rank, 1000);
                for (int k = 0; k < 2; k++) {
                        if (((unsigned char *)region[k]->buffer.address)[i] != rank)
                                return -1;
                        bounce_release(&crew->session->bounce, region[k]);
                }
        }
        return 0;
}

static void test_bounce_threads(void **state) {
        struct crew crew;

        (void)state;
        crew_start(&crew, 8, 64);
        crew_run(&crew, bounce_thread);
        for (uint32_t i = 0; i < crew.n; i++)
                assert_int_equal(crew.result[i], 0);
        assert_true(fake_calls(&crew.fake, BODY(BUFFER_CREATE)) <= 16);
        crew_stop(&crew);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table_random),   cmocka_unit_test(test_table_threads),
                cmocka_unit_test(test_alloc),          cmocka_unit_test(test_over_the_end),
                cmocka_unit_test(test_bounce_reuse),   cmocka_unit_test(test_register),
                cmocka_unit_test(test_bounce_blocks),  cmocka_unit_test(test_reserved),
                cmocka_unit_test(test_reserved_many),  cmocka_unit_test(test_bounce_trim),
                cmocka_unit_test(test_bounce_threads),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
