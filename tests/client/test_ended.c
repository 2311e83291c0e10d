/* SPDX-License-Identifier: MIT */
/* Which launches have ended (client/hip/ended.c), by events and by words of kernels, against a runtime of this file's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ENDED_EVENTS true
#include "client/hip/ended.c"

#define SLOT 3u

/* What is on a stream: launches up to this one; and which of them are over. */
struct fake_stream {
        uint32_t put, over;
        const struct fake_event *behind;
};

struct fake_event {
        const struct fake_stream *stream;
        uint32_t at; /* it is over when the stream's launch of this number is */
};

static struct {
        struct fake_stream stream[2];
        struct fake_event event[4];
        struct bell_host host;
        uint32_t events, destroyed, asked, scopes, errors;
        hipError_t answer; /* of making and recording */
} fake;

static struct client_gpu gpu;

/* ---- the runtime ------------------------------------------------------------------------------------------------- */
hipError_t hipGetLastError(void) {
        fake.errors++;
        return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags) {
        assert_int_equal(flags, hipEventDisableTiming);
        if (fake.answer == hipSuccess)
                *event = &fake.event[fake.events++];
        return fake.answer;
}

hipError_t hipEventDestroy(hipEvent_t event) {
        assert_true(event >= fake.event && event < fake.event + fake.events);
        fake.destroyed++;
        return hipSuccess;
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
        if (fake.answer == hipSuccess)
                *event = (struct fake_event){.stream = stream, .at = stream->put};
        return fake.answer;
}

hipError_t hipEventQuery(hipEvent_t event) {
        assert_int_equal(fake.scopes, 1); /* harmless for captures */
        fake.asked++;
        return event->stream->over >= event->at ? hipSuccess : hipErrorNotReady;
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags) {
        assert_int_equal(flags, 0);
        stream->behind = event;
        return hipSuccess;
}

hipError_t scope_enter(struct scope *scope, int device) {
        (void)scope;
        assert_int_equal(device, 5);
        fake.scopes++;
        return hipSuccess;
}

void scope_leave(struct scope *scope) {
        (void)scope;
        fake.scopes--;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */
/* An exchange, called. */
static void call(struct fake_stream *stream, uint32_t number) {
        const struct client_gpu_bell bell = {.slot = SLOT, .number = number};

        assert_true(gpu_ended_records(&gpu, &bell));
        stream->put++;
        assert_int_equal(gpu_ended_record(&gpu, &bell, stream), hipSuccess);
}

/* A bell, or an exchange that was started, which tells its number itself, now or later. */
static void other(void) {
        gpu_ended_told(&gpu, SLOT);
}

static void kernel_tells(uint32_t number) {
        fake.host.finished[SLOT] = number;
}

static uint32_t finished(void) {
        return gpu_comm_finished(&gpu, SLOT);
}

static int setup(void **state) {
        (void)state;
        memset(&fake, 0, sizeof(fake));
        memset(&gpu, 0, sizeof(gpu));
        gpu.device = 5;
        gpu.host = &fake.host;
        return gpu_ended_open(&gpu, SLOT) == hipSuccess ? 0 : -1;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_who_records(void **state) {
        struct client_gpu_bell bell = {.slot = SLOT, .number = 1, .started = true};
        uint32_t tells = 0;

        (void)state;
        assert_false(gpu_ended_records(&gpu, &bell));
        bell = (struct client_gpu_bell){.slot = SLOT + 1, .number = 1}; /* which has no event */
        assert_false(gpu_ended_records(&gpu, &bell));
        bell = (struct client_gpu_bell){.slot = SLOT, .captured = true};
        assert_false(gpu_ended_records(&gpu, &bell));
        bell.captured = false;
        for (bell.number = 1; bell.number < 1000000; bell.number++) /* calls are not asked for, so some tell */
                tells += !gpu_ended_records(&gpu, &bell);
        assert_in_range(tells, 10, 1000);
}

static void test_calls(void **state) {
        struct fake_stream *stream = &fake.stream[0];

        (void)state;
        assert_int_equal(finished(), 0);
        for (uint32_t n = 1; n <= 5; n++) {
                call(stream, n);
                assert_int_equal(finished(), n - 1);
                assert_int_equal(finished(), n - 1);
                stream->over++;
                assert_int_equal(finished(), n);
                assert_int_equal(fake.host.finished[SLOT], n);
        }
        fake.asked = 0;
        assert_int_equal(finished(), 5); /* what is known is not asked for again */
        assert_int_equal(fake.asked, 0);
        assert_true(fake.errors > 0); /* "not ready" stays nobody's last error */
        for (uint32_t n = 6; n <= 8; n++)
                call(stream, n);
        stream->over += 2;
        assert_int_equal(finished(), 5); /* of several only the last counts */
        stream->over++;
        assert_int_equal(finished(), 8);
}

/* Calls, and kernels that tell by themselves, one behind the other. */
static void test_mixed(void **state) {
        struct fake_stream *stream = &fake.stream[0];

        (void)state;
        other();
        kernel_tells(1);
        call(stream, 2);
        assert_int_equal(finished(), 1);
        stream->over++; /* nobody asks for that one */
        other();
        fake.asked = 0;
        assert_int_equal(finished(), 1);
        kernel_tells(3);
        assert_int_equal(finished(), 3);
        assert_int_equal(fake.asked, 0);
        call(stream, 4);
        assert_int_equal(finished(), 3);
        stream->over++;
        assert_int_equal(finished(), 4);
        other();
        kernel_tells(5);
        assert_int_equal(finished(), 5);
}

/* However long nobody has asked, and round: numbers leave out 0. */
static void test_far(void **state) {
        static const uint32_t jumps[] = {1, 5, 0x7fffffff, 0x80000001, 0xfffffffe, UINT32_MAX};
        struct fake_stream *stream = &fake.stream[0];

        (void)state;
        for (uint32_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
                const uint32_t before = fake.host.finished[SLOT], number = before + jumps[i] ? before + jumps[i] : 1;

                call(stream, number);
                assert_int_equal(finished(), before);
                stream->over++;
                assert_int_equal(finished(), number);
                call(stream, 77); /* which nobody asks for, and a kernel tells a number far from it */
                stream->over++;
                other();
                kernel_tells(number);
                assert_int_equal(finished(), number);
        }
}

static void test_await(void **state) {
        struct fake_stream *stream = &fake.stream[0], *other = &fake.stream[1];
        bool done;

        (void)state;
        call(stream, 1);
        assert_int_equal(gpu_ended_await(&gpu, SLOT, 1, other, &done), hipSuccess);
        assert_true(done);
        assert_ptr_equal(other->behind, gpu.ended[SLOT].event);
        other->behind = NULL;
        assert_int_equal(gpu_ended_await(&gpu, SLOT, 2, other, &done), hipSuccess); /* a bell's, told by its kernel */
        assert_false(done);
        stream->over++;
        assert_int_equal(finished(), 1);
        assert_int_equal(gpu_ended_await(&gpu, SLOT, 1, other, &done), hipSuccess); /* told by now */
        assert_false(done);
        assert_int_equal(gpu_ended_await(&gpu, SLOT, 0, other, &done), hipSuccess);
        assert_false(done);
        assert_null(other->behind);
}

/* A slot's next rank has nothing of the one before, but its event. */
static void test_reset(void **state) {
        struct fake_stream *stream = &fake.stream[0];

        (void)state;
        call(stream, 7);
        stream->over++;
        fake.host.finished[SLOT] = 0;
        gpu_ended_told(&gpu, SLOT);
        assert_int_equal(finished(), 0);
        assert_int_equal(gpu_ended_open(&gpu, SLOT), hipSuccess);
        assert_int_equal(fake.events, 1);
        gpu_ended_free(&gpu);
        assert_int_equal(fake.destroyed, 1);
}

static void test_no_memory(void **state) {
        const struct client_gpu_bell bell = {.slot = SLOT, .number = 2};
        struct fake_stream *stream = &fake.stream[0];

        (void)state;
        fake.answer = hipErrorOutOfMemory;
        assert_int_equal(gpu_ended_open(&gpu, SLOT + 1), hipErrorOutOfMemory);
        assert_null(gpu.ended[SLOT + 1].event);
        fake.answer = hipSuccess;
        call(stream, 1);
        stream->put++;
        stream->over++;
        fake.answer = hipErrorOutOfMemory;
        assert_int_equal(gpu_ended_record(&gpu, &bell, stream), hipErrorOutOfMemory);
        assert_int_equal(finished(), 1); /* what is known of the one before stays */
        gpu_ended_free(&gpu);
        assert_int_equal(fake.destroyed, 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_who_records, setup), cmocka_unit_test_setup(test_calls, setup),
                cmocka_unit_test_setup(test_mixed, setup),       cmocka_unit_test_setup(test_far, setup),
                cmocka_unit_test_setup(test_await, setup),       cmocka_unit_test_setup(test_reset, setup),
                cmocka_unit_test_setup(test_no_memory, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
