/* SPDX-License-Identifier: MIT */
/* Streams of the runtime in fake.c, and what is put on them. */
#include "tests/cmocka_all.h"

#include "fake.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "fake_parts.h"
#include "gpu/device/tables.h"

struct operation {
        struct operation *next;
        char *to;
        const char *from; /* NULL: set to value */
        size_t bytes;
        int value;
};

struct fake_stream *fake_streams;

/* Tables by words, as the kernel's thread looks at them meanwhile. */
static void operation_run(const struct operation *o) {
        size_t i = 0;

        if (o->bytes <= sizeof(struct table) && ((uintptr_t)o->to | (uintptr_t)o->from | o->bytes) % 4 == 0)
                for (; i < o->bytes; i += 4) {
                        uint32_t word = (uint32_t)(uint8_t)o->value * 0x01010101u;

                        if (o->from)
                                memcpy(&word, o->from + i, 4);
                        __atomic_store_n((uint32_t *)(void *)(o->to + i), word, __ATOMIC_RELEASE);
                }
        else if (o->from)
                memcpy(o->to, o->from, o->bytes);
        else
                memset(o->to, o->value, o->bytes);
}

static hipError_t enqueue(hipStream_t stream, void *to, const void *from, int value, size_t bytes) {
        struct operation *o = calloc(1, sizeof(*o));

        assert_non_null(o);
        *o = (struct operation){.to = to, .from = from, .value = value, .bytes = bytes};
        *stream->last = o;
        stream->last = &o->next;
        return fake_context();
}

static hipError_t enqueue_copy(struct fake_copy copy) {
        const uint32_t n = atomic_load(&fake.copies.n);

        if (atomic_fetch_add(&fake.copies.asked, 1) + 1 == atomic_load(&fake.copies.refuse))
                return hipErrorIllegalAddress;
        assert_in_range(n, 0, FAKE_COPIES - 1);
        fake.copies.copy[n] = copy;
        atomic_store(&fake.copies.n, n + 1);
        return fake_context();
}

hipError_t hipStreamWriteValue32(hipStream_t stream, void *to, uint32_t value, unsigned int flags) {
        assert_int_equal(flags, 0);
        assert_int_equal((uintptr_t)to % 4, 0);
        if (fake_is_pinned(to)) { /* whoever waits for it waits long enough */
                const uint32_t left = atomic_load(&fake.refuse_words);

                if (left == 1)
                        return hipErrorNotSupported;
                if (left)
                        atomic_store(&fake.refuse_words, left - 1);
                __atomic_store_n((uint32_t *)to, value, __ATOMIC_RELEASE);
                return hipSuccess;
        }
        assert_int_not_equal(fake_bytes_at(to), 0);
        if (atomic_load(&fake.copies.no_words))
                return hipErrorNotSupported;
        return enqueue_copy((struct fake_copy){.stream = stream, .to = to, .value = value});
}

hipError_t hipStreamWaitValue32(hipStream_t stream, void *at, uint32_t value, unsigned int flags, uint32_t mask) {
        assert_int_equal(flags, hipStreamWaitValueEq);
        assert_int_equal(mask, UINT32_MAX);
        assert_true(fake_is_pinned(at));
        assert_false(stream->launched || stream->word);
        if (atomic_load(&fake.no_waits))
                return hipErrorNotSupported;
        stream->word = at;
        stream->value = value;
        return fake_context();
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
        assert_int_not_equal(fake_bytes_at(kind == hipMemcpyHostToDevice ? to : from), 0);
        if (kind == hipMemcpyDeviceToDevice) {
                assert_int_not_equal(fake_bytes_at(to), 0);
                assert_int_not_equal(bytes, 0);
                return enqueue_copy((struct fake_copy){stream, to, from, bytes, 0});
        }
        return enqueue(stream, to, from, 0, bytes);
}

hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream) {
        assert_true(bytes && bytes <= fake_bytes_at(to));
        return enqueue(stream, to, NULL, value, bytes);
}

hipError_t hipMemset(void *to, int value, size_t bytes) {
        memset(to, value, bytes);
        return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags) {
        struct fake_stream *s = calloc(1, sizeof(*s));

        assert_non_null(s);
        assert_int_equal(flags, hipStreamNonBlocking);
        s->last = &s->first;
        s->next = fake_streams;
        fake_streams = s;
        *stream = s;
        fake.n_allocations++;
        return hipSuccess;
}

hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority) {
        assert_int_equal(priority, -1);
        return hipStreamCreateWithFlags(stream, flags);
}

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
        *least = 0;
        *greatest = -1;
        return hipSuccess;
}

hipError_t hipStreamQuery(hipStream_t stream) {
        struct operation *o = stream->first;

        if (fake.at_look)
                fake.at_look();
        if (fake.lost)
                return hipErrorIllegalAddress;
        if (o) {
                operation_run(o);
                stream->first = o->next;
                if (!stream->first)
                        stream->last = &stream->first;
                free(o);
                return hipErrorNotReady;
        }
        if (stream->launched) {
                if (!atomic_load(&stream->ended)) {
                        sched_yield();
                        return hipErrorNotReady;
                }
                pthread_join(stream->kernel, NULL);
                stream->launched = false;
                atomic_store(&fake.running, false);
        }
        return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
        struct fake_stream **at = &fake_streams;

        fake.violations += stream->launched || stream->first;
        if (stream->word) /* without a kernel behind it */
                fake.violations += __atomic_load_n(stream->word, __ATOMIC_ACQUIRE) != stream->value;
        while (*at != stream)
                at = &(*at)->next;
        *at = stream->next;
        free(stream);
        fake.n_allocations--;
        return hipSuccess;
}

hipError_t hipDeviceSynchronize(void) {
        fake_must_be_parked();
        return fake_context();
}
