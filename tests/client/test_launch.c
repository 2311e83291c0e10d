/* SPDX-License-Identifier: MIT */
/* What client/hip/launch.c puts on a stream, in which order, and who will know of its end; against a runtime of this
 * file's that lists it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ENDED_EVENTS true
#include "client/hip/ended.c"
#include "client/hip/launch.c"

#define SLOT 3u

static char kernels[BELL_KERNELS], exchange, ahead;

static struct {
        char list[256]; /* a word for each thing on the stream */
        uint32_t number;
        bool no_event, no_mark, over;
        struct bell_host host;
        struct pinned pinned;
        char area[1];
} fake;

static struct client_gpu gpu;
static uint32_t gate; /* of an exchange */

static void note(const char *word, uint32_t number) {
        const size_t n = strlen(fake.list);

        (void)snprintf(fake.list + n, sizeof(fake.list) - n, "%s%s %u", n ? ", " : "", word, number);
}

static void assert_list(const char *expected) {
        assert_string_equal(fake.list, expected);
        fake.list[0] = '\0';
}

/* ---- the runtime, and the other files ---------------------------------------------------------------------------- */
hipError_t hipGetLastError(void) {
        return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags) {
        (void)flags;
        *event = (hipEvent_t)&fake;
        return hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t event) {
        (void)event;
        return hipSuccess;
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
        (void)event;
        (void)stream;
        if (fake.no_event)
                return hipErrorOutOfMemory;
        note("event", 0);
        return hipSuccess;
}

hipError_t hipEventQuery(hipEvent_t event) {
        (void)event;
        return fake.over ? hipSuccess : hipErrorNotReady;
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags) {
        (void)stream;
        (void)event;
        (void)flags;
        note("wait", 0);
        return hipSuccess;
}

hipError_t hipLaunchKernel(const void *kernel, dim3 blocks, dim3 threads, void **parameters, size_t shared,
                           hipStream_t stream) {
        const struct bell_arguments *bell = parameters[0];

        (void)blocks;
        (void)threads;
        (void)shared;
        (void)stream;
        if (kernel == &exchange) {
                note("exchange", ((const struct exchange_arguments *)parameters[0])->number);
                return hipSuccess;
        }
        if (kernel == &ahead) {
                assert_int_equal(blocks.x, 1);
                note("ahead", 0);
                return hipSuccess;
        }
        if (kernel == &kernels[BELL_MARK] && fake.no_mark)
                return hipErrorOutOfMemory;
        if ((const char *)kernel >= &kernels[BELL_GATE] && (const char *)kernel < &kernels[BELL_KERNELS]) {
                assert_ptr_equal(bell->gate, &gate);
                note("gated", (uint32_t)((const char *)kernel - &kernels[BELL_GATE]));
                return hipSuccess;
        }
        assert_null(bell->gate);
        note(kernel == &kernels[BELL_MARK] ? "mark" : kernel == &kernels[BELL_AWAIT] ? "await" : "bell", bell->number);
        return hipSuccess;
}

hipError_t scope_device(struct scope *scope, int device) {
        (void)scope;
        (void)device;
        return hipSuccess;
}

hipError_t scope_enter(struct scope *scope, int device) {
        return scope_device(scope, device);
}

void scope_leave(struct scope *scope) {
        (void)scope;
}

int gpu_fail(hipError_t r, const char *call, char *error) {
        (void)r;
        (void)snprintf(error, CLIENT_GPU_TEXT, "%s", call);
        return RMX_E_NO_MEMORY;
}

void gpu_edge(struct client_gpu *of, void *stream) {
        (void)of;
        (void)stream;
        note("edge", 0);
}

uint32_t *gpu_exchange_gate(const struct client_gpu_exchange *of) {
        assert_ptr_equal(of, &exchange);
        return &gate;
}

const void *bell_kernel(uint32_t kernel) {
        return &kernels[kernel];
}

uint32_t bell_threads(const struct bell_arguments *arguments, uint32_t kernel) {
        (void)arguments;
        (void)kernel;
        return 32;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */
static int exchange_with(const struct client_gpu_bell *bell) {
        struct exchange_arguments arguments = {.blocks = 1, .number = gpu_ended_records(&gpu, bell) ? 0 : bell->number};
        char error[CLIENT_GPU_TEXT];

        return gpu_launch_exchange(&gpu, &exchange, arguments.blocks, 1, &arguments, bell, NULL, error);
}

static int call(uint32_t number) {
        return exchange_with(&(struct client_gpu_bell){.slot = SLOT, .number = number});
}

static int bell(struct client_gpu_bell request) {
        char error[CLIENT_GPU_TEXT];

        request.slot = SLOT;
        return gpu_call(&gpu, &request, NULL, error);
}

static int setup(void **state) {
        (void)state;
        memset(&fake, 0, sizeof(fake));
        memset(&gpu, 0, sizeof(gpu));
        gpu.host = gpu.host_there = &fake.host;
        gpu.pinned = gpu.pinned_there = &fake.pinned;
        gpu.area = fake.area;
        return gpu_ended_open(&gpu, SLOT) == hipSuccess ? 0 : -1;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void test_exchanges(void **state) {
        (void)state;
        assert_int_equal(call(1), RMX_OK);
        assert_list("exchange 0, event 0");
        assert_int_equal(exchange_with(&(struct client_gpu_bell){.slot = SLOT, .number = 2, .started = true}), RMX_OK);
        assert_list("exchange 2");
        fake.over = true; /* the call's; the other one has not told its number */
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 0);
        assert_int_equal(exchange_with(&(struct client_gpu_bell){.slot = SLOT, .captured = true}), RMX_OK);
        assert_list("edge 0, exchange 0");
}

/* Behind a call on a stream that is being captured by now: its event; behind what tells its number: a kernel. */
static void test_after(void **state) {
        struct client_gpu_bell request = {.slot = SLOT, .number = 2, .after = 1};

        (void)state;
        assert_int_equal(call(1), RMX_OK);
        assert_list("exchange 0, event 0");
        assert_int_equal(bell(request), RMX_OK);
        assert_list("wait 0, bell 2");
        request.number = 3;
        request.after = 2;
        assert_int_equal(exchange_with(&request), RMX_OK);
        assert_list("await 2, exchange 0, event 0");
        request.number = 4;
        request.after = 3;
        assert_int_equal(exchange_with(&request), RMX_OK);
        assert_list("wait 0, exchange 0, event 0");
}

/* What is waited for ahead of a kernel stands behind the call before, and the kernel behind it. */
static void test_ahead(void **state) {
        struct client_gpu_bell request = {.slot = SLOT, .number = 2, .after = 1};
        char error[CLIENT_GPU_TEXT];

        (void)state;
        assert_int_equal(call(1), RMX_OK);
        assert_list("exchange 0, event 0");
        assert_int_equal(gpu_launch_ahead(&gpu, &ahead, &request, &request, NULL, error), RMX_OK);
        request.after = 0;
        assert_int_equal(exchange_with(&request), RMX_OK);
        assert_list("wait 0, ahead 0, exchange 0, event 0");
        request.captured = true;
        request.number = 0;
        assert_int_equal(gpu_launch_ahead(&gpu, &ahead, &request, &request, NULL, error), RMX_OK);
        assert_list("edge 0, ahead 0");
}

/* The same for copies. */
static void test_behind(void **state) {
        char error[CLIENT_GPU_TEXT];

        (void)state;
        assert_int_equal(call(1), RMX_OK);
        assert_list("exchange 0, event 0");
        assert_int_equal(gpu_behind(&gpu, SLOT, 1, NULL, error), RMX_OK);
        assert_list("wait 0");
        assert_int_equal(bell((struct client_gpu_bell){.number = 2}), RMX_OK);
        assert_list("bell 2");
        assert_int_equal(gpu_behind(&gpu, SLOT, 2, NULL, error), RMX_OK);
        assert_list("await 2");
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 0);
}

/* A bell, or a mark, is the last launch then, and what the event says is no news. */
static void test_bells(void **state) {
        char error[CLIENT_GPU_TEXT];

        (void)state;
        fake.over = true;
        assert_int_equal(call(7), RMX_OK);
        assert_int_equal(bell((struct client_gpu_bell){.number = 8}), RMX_OK);
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 0);
        assert_int_equal(call(9), RMX_OK);
        assert_int_equal(gpu_mark(&gpu, SLOT, 10, true, NULL, error), RMX_OK);
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 0);
        assert_int_equal(call(11), RMX_OK);
        assert_int_equal(bell((struct client_gpu_bell){.captured = true}), RMX_OK); /* without a number */
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 11);
}

/* Behind copies: an event, if nobody asks for it when it is not the last any more. */
static void test_marks(void **state) {
        char error[CLIENT_GPU_TEXT];

        (void)state;
        assert_int_equal(gpu_mark(&gpu, SLOT, 1, false, NULL, error), RMX_OK);
        assert_list("event 0");
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 0);
        fake.over = true;
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 1);
        fake.list[0] = '\0';
        assert_int_equal(gpu_mark(&gpu, SLOT, 2, true, NULL, error), RMX_OK);
        assert_list("mark 2");
        assert_int_equal(gpu_mark(&gpu, SLOT + 1, 1, false, NULL, error), RMX_OK); /* it has none */
        assert_list("mark 1");
        fake.no_event = true;
        assert_int_equal(gpu_mark(&gpu, SLOT, 3, false, NULL, error), RMX_OK);
        assert_list("mark 3");
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 1); /* the kernel has not told yet */
        fake.no_mark = true;
        assert_int_not_equal(gpu_mark(&gpu, SLOT, 4, false, NULL, error), RMX_OK);
}

/* The kernel is there: a kernel behind it says when it has ended. */
static void test_no_event(void **state) {
        (void)state;
        assert_int_equal(call(1), RMX_OK);
        fake.list[0] = '\0';
        fake.no_event = true;
        assert_int_equal(call(2), RMX_OK);
        assert_list("exchange 0, mark 2");
        fake.over = true;
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 0);
        fake.no_mark = true;
        assert_int_equal(call(3), CLIENT_GPU_UNTOLD);
        assert_list("exchange 0");
        assert_int_equal(gpu_comm_finished(&gpu, SLOT), 0);
}

/* Parts of a request: a kernel of their own for each kind of payload. */
static void test_gated(void **state) {
        static uint64_t payload[4];
        struct client_gpu_bell bell = {
                .slot = SLOT, .gate = (const struct client_gpu_exchange *)(const void *)&exchange, .after = 4};
        char error[CLIENT_GPU_TEXT];

        (void)state;
        assert_int_equal(gpu_call(&gpu, &bell, NULL, error), RMX_OK);
        assert_list("await 4, gated 0");
        bell.after = 0;
        bell.inlined = true;
        bell.in = bell.out = payload;
        bell.in_bytes = bell.out_bytes = 16;
        assert_int_equal(gpu_call(&gpu, &bell, NULL, error), RMX_OK);
        bell.in_bytes = bell.out_bytes = 15;
        assert_int_equal(gpu_call(&gpu, &bell, NULL, error), RMX_OK);
        assert_list("gated 1, gated 2");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_exchanges, setup), cmocka_unit_test_setup(test_after, setup),
                cmocka_unit_test_setup(test_ahead, setup),     cmocka_unit_test_setup(test_behind, setup),
                cmocka_unit_test_setup(test_bells, setup),     cmocka_unit_test_setup(test_marks, setup),
                cmocka_unit_test_setup(test_no_event, setup),  cmocka_unit_test_setup(test_gated, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
