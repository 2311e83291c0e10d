/* SPDX-License-Identifier: MIT */
/* On GPUs: memory that the program has mapped chunk by chunk. */
#include "client/comm.h"
#include "client/device.h"
#include "client/device_chunks.h"
#include "client/session.h"
#include "tests/client/device_rig.h"

#define CHUNK  ((size_t)64 << 10)
#define CHUNKS 160u
#define BYTES  ((size_t)32 << 10) /* of a request that is not inlined */

static char range[CHUNKS * CHUNK] __attribute__((aligned(256)));

/* Maps chunks [from, until) of the range; their numbers are `id` + place. */
static void map(struct rig *rig, uint32_t from, uint32_t until, uint64_t id) {
        for (uint32_t i = from; i < until; i++) {
                struct fake_gpu_block *block = fake_gpu_add(rig->gpu, range + i * CHUNK, CHUNK, id + i);

                block->chunk = true;
                block->range = (uintptr_t)range;
        }
}

static struct fake_gpu_block *chunk_at(struct fake_gpu *gpu, uint32_t i) {
        for (uint32_t k = 0; k < gpu->n_blocks; k++)
                if (gpu->block[k].bytes && gpu->block[k].base == (uintptr_t)range + i * CHUNK)
                        return &gpu->block[k];
        return NULL;
}

static void unmap(struct rig *rig, uint32_t from, uint32_t until) {
        for (uint32_t i = from; i < until; i++)
                chunk_at(rig->gpu, i)->bytes = 0;
}

static void start(struct rig *rig) {
        rig_start(rig, 2);
        assert_int_equal(rmx_all_reduce(rig->comm, rig->a, rig->a, BYTES / 4, RMX_FLOAT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(creations(rig), 1); /* of the rig's own memory */
}

static int reduce(struct rig *rig, uint32_t chunk, size_t offset, size_t bytes) {
        char *at = range + chunk * CHUNK + offset;

        return rmx_all_reduce(rig->comm, at, at, bytes / 4, RMX_FLOAT32, RMX_SUM, NULL);
}

/* A request there names a buffer of chunks [from, until), with these numbers. */
static uint32_t check_span(struct rig *rig, uint32_t chunk, size_t offset, size_t bytes, uint32_t from, uint32_t until,
                           uint64_t id) {
        const struct fake_device_buffer *buffer;
        const struct client_gpu_bell *bell;

        assert_int_equal(reduce(rig, chunk, offset, bytes), RMX_OK);
        bell = &last(rig)->bell;
        assert_int_equal(last(rig)->kind, FAKE_GPU_CALL); /* nothing is copied */
        buffer = buffer_of(rig, bell->word[RING_W_IN_BUFFER]);
        assert_non_null(buffer);
        assert_int_equal(bell->word[RING_W_OUT_BUFFER], buffer->id);
        assert_int_equal(offset_of(bell, RING_W_IN_BUFFER), (chunk - from) * CHUNK + offset);
        assert_int_equal(offset_of(bell, RING_W_OUT_BUFFER), (chunk - from) * CHUNK + offset);
        assert_int_equal(buffer->bytes, (until - from) * CHUNK);
        assert_int_equal(buffer->n_chunks, until - from);
        for (uint32_t i = from; i < until; i++) {
                assert_int_equal(buffer->chunk[i - from], id + i);
                assert_int_equal(buffer->chunk_bytes[i - from], CHUNK);
        }
        return buffer->id;
}

static uint32_t destroyed(struct rig *rig) {
        return fake_calls(&rig->crew.fake, BODY(BUFFER_DESTROY));
}

static void test_windows(void **state) {
        uint32_t first, second;
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 12, 100);
        first = check_span(&rig, 3, 256, BYTES, 0, 8, 100);
        assert_int_equal(creations(&rig), 2);
        assert_int_equal(check_span(&rig, 7, CHUNK - BYTES, BYTES, 0, 8, 100), first);
        assert_int_equal(check_span(&rig, 0, 0, 8 * CHUNK, 0, 8, 100), first); /* all of it */
        assert_int_equal(check_span(&rig, 4, CHUNK - 4, CHUNK, 0, 8, 100), first);
        assert_int_equal(creations(&rig), 2);
        second = check_span(&rig, 8, 0, BYTES, 8, 12, 100);
        assert_int_equal(check_span(&rig, 11, CHUNK - BYTES, BYTES, 8, 12, 100), second);
        assert_int_equal(creations(&rig), 3);
        check_span(&rig, 7, CHUNK - 1024, BYTES, 0, 12, 100); /* across both */
        check_span(&rig, 2, 0, 10 * CHUNK, 0, 12, 100);
        assert_int_equal(creations(&rig), 4);
        assert_int_equal(destroyed(&rig), 0);
        rig_stop(&rig);
}

/* What a graph has been captured with stays. */
static void test_growth(void **state) {
        uint32_t first, second, third;
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 1, 4, 100);
        first = check_span(&rig, 2, 0, BYTES, 1, 4, 100);
        map(&rig, 4, 6, 100);
        assert_int_equal(check_span(&rig, 2, 0, BYTES, 1, 4, 100), first);
        second = check_span(&rig, 5, 0, BYTES, 1, 6, 100);
        assert_int_not_equal(first, second);
        assert_non_null(buffer_of(&rig, first));
        /* Another chunk in the place of one. */
        unmap(&rig, 5, 6);
        map(&rig, 5, 6, 200);
        assert_int_equal(check_span(&rig, 4, 0, BYTES, 1, 6, 100), second); /* still right for the others */
        assert_int_equal(reduce(&rig, 5, 0, BYTES), RMX_OK);
        third = last(&rig)->bell.word[RING_W_IN_BUFFER];
        assert_int_not_equal(third, second);
        assert_int_equal(buffer_of(&rig, third)->chunk[4], 205);
        assert_int_equal(buffer_of(&rig, third)->chunk[3], 104);
        assert_int_equal(creations(&rig), 4);
        assert_int_equal(destroyed(&rig), 0);

        /* All are gone: so are the buffers, when something else is met. */
        unmap(&rig, 1, 6);
        map(&rig, 1, 4, 300); /* others in their place do not count */
        map(&rig, 20, 22, 100);
        check_span(&rig, 20, 0, BYTES, 20, 22, 100);
        assert_int_equal(destroyed(&rig), 3);
        assert_null(buffer_of(&rig, first));
        assert_null(buffer_of(&rig, second));
        assert_null(buffer_of(&rig, third));
        check_span(&rig, 2, 0, BYTES, 1, 4, 300);
        rig_stop(&rig);
}

static void test_beyond(void **state) {
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 3, 100);
        assert_int_equal(reduce(&rig, 2, CHUNK - BYTES + 4, BYTES), RMX_E_INVALID);
        assert_error_says("run over the end of what is mapped there");
        assert_int_equal(reduce(&rig, 0, 0, 3 * CHUNK + 4), RMX_E_INVALID);
        map(&rig, 3, 4, 100);
        chunk_at(rig.gpu, 3)->range += 1; /* of another range, as it happens beside it */
        assert_int_equal(reduce(&rig, 2, 0, CHUNK + 4), RMX_E_INVALID);
        assert_int_equal(reduce(&rig, 2, CHUNK - 8, 16), RMX_E_INVALID); /* also of what is inlined */
        check_span(&rig, 1, 0, 2 * CHUNK, 0, 3, 100);
        chunk_at(rig.gpu, 1)->device = 1;
        assert_int_equal(reduce(&rig, 0, 0, 2 * CHUNK), RMX_E_INVALID);
        assert_int_equal(reduce(&rig, 1, 0, CHUNK), RMX_E_INVALID);
        assert_error_says("is memory of device 1");
        rig_stop(&rig);
}

/* A request that is copied through a region, to it and back. */
static void check_copied(struct rig *rig, uint32_t chunk, size_t offset, size_t bytes) {
        uint32_t n = rig->gpu->n_launches;

        assert_int_equal(reduce(rig, chunk, offset, bytes), RMX_OK);
        assert_int_equal(rig->gpu->n_launches, n + 4); /* the last is a mark */
        assert_ptr_equal(at(rig, n, FAKE_GPU_COPY)->from, range + chunk * CHUNK + offset);
        assert_int_equal(buffer_of(rig, at(rig, n + 1, FAKE_GPU_CALL)->bell.word[RING_W_IN_BUFFER])->n_chunks, 0);
        assert_ptr_equal(at(rig, n + 2, FAKE_GPU_COPY)->to, range + chunk * CHUNK + offset);
}

/* The same, where the regions are not there yet. */
static void check_copied_first(struct rig *rig, uint32_t chunk) {
        assert_int_equal(reduce(rig, chunk, 0, BYTES), RMX_OK);
        check_copied(rig, chunk, 0, BYTES);
}

/* What was remembered last. */
static struct device_span *spans(struct rig *rig) {
        return rig->comm->device->memory.spans;
}

static void test_secret(void **state) {
        uint32_t exports;
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 4, 100);
        for (uint32_t i = 0; i < 4; i++)
                chunk_at(rig.gpu, i)->secret = true;
        check_copied(&rig, 1, 0, BYTES);
        exports = rig.gpu->exports;
        check_copied(&rig, 1, 0, BYTES); /* it is not tried again */
        assert_int_equal(rig.gpu->exports, exports);
        /* One of them is: requests without it go directly, whichever was met first. */
        map(&rig, 8, 12, 100);
        chunk_at(rig.gpu, 10)->secret = true;
        check_copied(&rig, 10, 0, BYTES);
        check_span(&rig, 9, 0, BYTES, 9, 10, 100);
        check_copied(&rig, 9, 0, 2 * CHUNK);
        check_copied(&rig, 9, 4096, 2 * CHUNK);
        check_span(&rig, 9, 0, BYTES, 9, 10, 100);
        check_span(&rig, 11, 0, BYTES, 11, 12, 100);
        exports = rig.gpu->exports;
        check_copied(&rig, 10, 0, CHUNK + 4); /* nor is more with it */
        assert_int_equal(rig.gpu->exports, exports);
        rig_stop(&rig);
}

static void test_refused(void **state) {
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 4, 100);
        map(&rig, 8, 9, 100);
        check_span(&rig, 8, 0, BYTES, 8, 9, 100);
        assert_int_equal(reduce(&rig, 8, 0, BYTES), RMX_OK);
        chunk_at(rig.gpu, 0)->secret = true; /* so that the region is there before */
        check_copied(&rig, 0, 0, BYTES);
        rig.crew.fake.refuse_memory = RMX_E_LIMIT;
        check_copied(&rig, 1, 0, BYTES);
        assert_int_equal(rig.crew.fake.refuse_memory, 0);
        check_copied(&rig, 1, 4096, BYTES);
        /* A limit may not be met any more, later. */
        spans(&rig)->until_ns = 1;
        check_span(&rig, 1, 0, BYTES, 1, 2, 100);
        assert_int_equal(rig.comm->device->memory.n_spans, 3); /* it has gone */
        rig_stop(&rig);
}

/* An executor refuses a neighbour, of which there is none without it. */
static void test_refused_neighbour(void **state) {
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 4, 100);
        rig.crew.fake.refuse_memory = RMX_E_INVALID;
        check_span(&rig, 1, 0, 2 * CHUNK, 1, 3, 100);
        assert_int_equal(creations(&rig), 3);
        /* What is in the nature of the needed ones is for ever, all else for a while. */
        map(&rig, 8, 9, 100);
        rig.crew.fake.refuse_memory = RMX_E_UNSUPPORTED;
        check_copied_first(&rig, 8);
        assert_int_equal(spans(&rig)->until_ns, 0);
        assert_int_equal(spans(&rig)->buffer, 0);
        map(&rig, 16, 17, 100);
        rig.crew.fake.refuse_memory = RMX_E_INTERNAL;
        check_copied(&rig, 16, 0, BYTES);
        assert_true(spans(&rig)->until_ns > 0);
        rig_stop(&rig);
}

static void test_too_many(void **state) {
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, CHUNKS, 1000);
        check_span(&rig, 0, 0, 128 * CHUNK, 0, 128, 1000);
        check_copied(&rig, 0, 0, 128 * CHUNK + 4);
        check_span(&rig, 131, CHUNK - 4, BYTES, 128, 136, 1000);
        rig_stop(&rig);
}

/* The daemon of another version takes no descriptors. */
static void test_without_feature(void **state) {
        struct rig rig;

        (void)state;
        rig_start(&rig, 2);
        assert_true(rig.crew.session->features & SESSION_FEATURE_CHUNKS);
        rig.crew.session->features = 0;
        rig.crew.fake.no_features = UINT64_MAX;
        map(&rig, 0, 4, 100);
        check_copied(&rig, 1, 0, BYTES);
        assert_int_equal(rig.gpu->exports, 2); /* of the regions */
        rig_stop(&rig);
}

static void vanish(struct fake_gpu *gpu, uint32_t n) {
        struct fake_gpu_block *neighbour = chunk_at(gpu, 3);

        (void)n;
        if (neighbour)
                neighbour->bytes = neighbour->base = 0;
}

/* Another thread unmaps a neighbour between the look and the export. */
static void test_neighbour_vanishes(void **state) {
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 4, 100);
        rig.gpu->at_export = vanish;
        check_span(&rig, 1, 0, 2 * CHUNK, 1, 3, 100);
        assert_int_equal(creations(&rig), 2);
        rig_stop(&rig);
}

/* A daemon that takes over gets the descriptors with the call. */
static void test_resumed(void **state) {
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 2, 100);
        fake_drop(&rig.crew.fake, BODY(BUFFER_CREATE), 1);
        check_span(&rig, 0, 0, BYTES, 0, 2, 100);
        assert_int_equal(creations(&rig), 3);
        rig_stop(&rig);
}

static void test_registered(void **state) {
        struct rig rig;

        (void)state;
        start(&rig);
        map(&rig, 0, 3, 100);
        assert_int_equal(rmx_buffer_register(rig.crew.session, range + CHUNK, 2 * CHUNK + 1), RMX_E_INVALID);
        assert_int_equal(rmx_buffer_register(rig.crew.session, range + CHUNK, 2 * CHUNK), RMX_OK);
        assert_int_equal(creations(&rig), 2);
        check_span(&rig, 2, 0, BYTES, 0, 3, 100);
        assert_int_equal(creations(&rig), 2);
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, range + CHUNK), RMX_OK);
        assert_int_equal(destroyed(&rig), 0); /* others may lie in it */
        assert_int_equal(rmx_buffer_register(rig.crew.session, range + CHUNK, CHUNK), RMX_OK);
        unmap(&rig, 0, 3);
        assert_int_equal(rmx_buffer_unregister(rig.crew.session, range + CHUNK), RMX_OK);
        assert_int_equal(destroyed(&rig), 1);
        rig_stop(&rig);
}

/* Plain allocations that were freed are given back when others become known. */
static void test_freed(void **state) {
        static char other[3 * BYTES];
        uint32_t buffer;
        struct rig rig;

        (void)state;
        start(&rig);
        buffer = last(&rig)->bell.word[RING_W_IN_BUFFER];
        rig.gpu->block[0].bytes = 0;
        fake_gpu_add(rig.gpu, other, sizeof(other), 55);
        assert_int_equal(rmx_all_reduce(rig.comm, other, other, BYTES / 4, RMX_FLOAT32, RMX_SUM, NULL), RMX_OK);
        assert_int_equal(destroyed(&rig), 1);
        assert_null(buffer_of(&rig, buffer));
        check_buffer(&rig, last(&rig)->bell.word[RING_W_IN_BUFFER], other, sizeof(other), 55);
        rig_stop(&rig);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_windows),
                cmocka_unit_test(test_growth),
                cmocka_unit_test(test_beyond),
                cmocka_unit_test(test_secret),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_refused_neighbour),
                cmocka_unit_test(test_too_many),
                cmocka_unit_test(test_without_feature),
                cmocka_unit_test(test_neighbour_vanishes),
                cmocka_unit_test(test_resumed),
                cmocka_unit_test(test_registered),
                cmocka_unit_test(test_freed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
