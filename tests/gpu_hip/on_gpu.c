/* SPDX-License-Identifier: MIT */
/*
 * The plane on a real GPU: what fake.c only assumes of a runtime. Loads the plug-in as an executor does; a forked
 * client allocates a bell area and a buffer and exports them. Nothing is computed here.
 *
 *   test_gpu_hip_on_gpu PLUG-IN     exit status 77: there is no GPU
 *
 * Shows how long each call took, since most of them are made while a kernel is resident.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/device/bell.h"
#include "gpu/device/staging.h"
#include "gpu/hip/runtime.h"
#include "gpu/plane.h"
#include "ring/line.h"
#include "util/clock.h"

#define BUFFER_BYTES (UINT64_C(8) << 20)
#define SESSION      UINT64_C(42)
#define HANDLE       7u
#define WAIT_NS      UINT64_C(5000000000)
#define SKIP         77

static char error[PLANE_TEXT];

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void fail(const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fprintf(stderr, "\n");
        exit(1);
}

/* ---- the client: what it has, and what it is told to do ------------------------------------------------------------
 */
struct offer {
        struct plane_memory area, buffer;
};
struct client {
        pid_t pid;
        int to, from;
        struct bell_host *host; /* shared with it */
        struct offer offer;
};

static void must(hipError_t result, const char *what) {
        if (result != hipSuccess)
                fail("client: %s: %s", what, hipGetErrorString(result));
}

static struct plane_memory client_export(void *address, uint64_t bytes) {
        struct plane_memory memory = {.kind = PLANE_MEMORY_IPC, .bytes = bytes, .fd = -1};
        hipIpcMemHandle_t handle;

        must(hipIpcGetMemHandle(&handle, address), "exporting");
        memory.n_handle = sizeof(handle);
        memcpy(memory.handle, &handle, sizeof(handle));
        return memory;
}

static void client_main(int in, int out, struct bell_host *host) {
        struct bell_header header = {.magic = BELL_MAGIC, .depth = BELL_DEPTH};
        uint32_t released[BELL_DEPTH];
        struct offer offer;
        char *area, *buffer, command;
        void *address;

        for (uint32_t i = 0; i < BELL_DEPTH; i++)
                released[i] = bell_released_first(i);
        must(hipSetDevice(0), "taking the GPU");
        must(hipMalloc(&address, BELL_AREA_BYTES), "allocating an area");
        area = address;
        must(hipMalloc(&address, BUFFER_BYTES), "allocating a buffer");
        buffer = address;
        must(hipMemset(area, 0, BELL_AREA_BYTES), "clearing the area");
        must(hipMemcpy(area + BELL_OFFSET_HEADER, &header, sizeof(header), hipMemcpyHostToDevice), "a header");
        must(hipMemcpy(area + BELL_OFFSET_RELEASED, released, sizeof(released), hipMemcpyHostToDevice), "slots");
        must(hipDeviceSynchronize(), "waiting");
        offer.area = client_export(area, BELL_AREA_BYTES);
        offer.buffer = client_export(buffer, BUFFER_BYTES);
        if (write(out, &offer, sizeof(offer)) != sizeof(offer))
                exit(1);
        while (read(in, &command, 1) == 1) {
                must(hipMemcpy(&header, area + BELL_OFFSET_HEADER, sizeof(header), hipMemcpyDeviceToHost), "looking");
                if (command == 'w') /* as a bell kernel does that sees `parked` */
                        __atomic_fetch_add(&host->wake, 1, __ATOMIC_RELAXED);
                if (write(out, &header, sizeof(header)) != sizeof(header))
                        exit(1);
        }
        exit(0);
}

static void client_start(struct client *client) {
        int to[2], from[2];

        client->host = mmap(NULL, sizeof(*client->host), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (client->host == MAP_FAILED || pipe(to) || pipe(from))
                fail("no client: %s", strerror(errno));
        client->pid = fork();
        if (client->pid == 0) {
                close(to[1]);
                close(from[0]);
                client_main(to[0], from[1], client->host);
        }
        close(to[0]);
        close(from[1]);
        client->to = to[1];
        client->from = from[0];
}

static struct bell_header client_do(const struct client *client, char command) {
        struct bell_header header;

        if (write(client->to, &command, 1) != 1 || read(client->from, &header, sizeof(header)) != sizeof(header))
                fail("the client has gone");
        return header;
}

/* ---- the executor --------------------------------------------------------------------------------------------------
 */
static uint64_t began;

static void begin(void) {
        began = clock_now_ns();
}

static void done(const char *what, int r, int expected) {
        uint64_t ns = clock_now_ns() - began;

        if (r != expected)
                fail("%s: %d instead of %d: %s", what, r, expected, error);
        printf("%-48s %8.1f us\n", what, (double)ns / 1000);
        error[0] = 0;
}

static void tick_until_parked(const struct plane_ops *ops, struct plane *plane, bool parked) {
        struct plane_info info;
        uint64_t end = clock_now_ns() + WAIT_NS;

        begin();
        for (;;) {
                int r = ops->tick(plane, error);

                if (r)
                        fail("tick: %d: %s", r, error);
                ops->info(plane, &info);
                if (info.parked == parked)
                        break;
                if (clock_now_ns() > end)
                        fail("it is not %s after seconds", parked ? "parked" : "awake");
                sched_yield();
        }
        done(parked ? "parked after" : "awake after", 0, 0);
}

static void attach_comm(const struct plane_ops *ops, struct plane *plane) {
        const struct plan_choice choices[] = {{RING_OP_ALL_REDUCE, PLAN_ONE_SHOT, UINT64_MAX, 0},
                                              {RING_OP_BARRIER, PLAN_DIRECT, UINT64_MAX, 0}};
        const struct plane_comm_member member = {.session = SESSION, .handle = HANDLE, .here = true};
        const struct plane_comm comm = {
                .id = 1, .n_ranks = 1, .failed_rank = -1, .members = &member, .choices = choices, .n_choices = 2};
        struct plane_info info;

        ops->info(plane, &info);
        begin();
        done("peer_add (the own pool)", ops->peer_add(plane, 0, 1, &info.pool, error), 0);
        for (int i = 0; i < 3; i++) {
                begin();
                done("comm_attach", ops->comm_attach(plane, &comm, error), 0);
                begin();
                ops->comm_detach(plane, 1);
                done("comm_detach", ops->tick(plane, error), 0);
        }
}

static void run(const struct plane_ops *ops, struct plane *plane, struct client *client) {
        struct plane_memory half = client->offer.buffer, lie = half;

        begin();
        done("ring_attach", ops->ring_attach(plane, SESSION, &client->offer.area, client->host, -1, error), 0);
        half.offset = half.bytes /= 2;
        begin();
        done("buffer_import", ops->buffer_import(plane, SESSION, 1, &client->offer.buffer, error), 0);
        begin();
        done("buffer_import (same allocation)", ops->buffer_import(plane, SESSION, 2, &half, error), 0);
        lie.bytes += 4096;
        begin();
        done("buffer_import (too long)", ops->buffer_import(plane, SESSION, 3, &lie, error), -EINVAL);
        lie.bytes = 4096;
        memset(lie.handle, 0x77, sizeof(lie.handle)); /* (the first half alone is not looked at by every driver) */
        begin();
        if (ops->buffer_import(plane, SESSION, 3, &lie, error) >= 0)
                fail("a forged handle was opened");
        done("buffer_import (forged)", 0, 0);
        begin();
        done("tick", ops->tick(plane, error), 0);
        attach_comm(ops, plane);
        tick_until_parked(ops, plane, true);
        if (client_do(client, 'p').parked != 1)
                fail("the area does not say that the executor is parked");
        client_do(client, 'w');
        tick_until_parked(ops, plane, false);
        if (client_do(client, 'p').parked != 0)
                fail("the area says that the executor is parked");
        begin();
        ops->buffer_retire(plane, SESSION, 1);
        done("buffer_retire", ops->tick(plane, error), 0);
        begin();
        ops->buffer_retire(plane, SESSION, 2);
        done("buffer_retire", ops->tick(plane, error), 0);
        tick_until_parked(ops, plane, true); /* with a window on the way */
        begin();
        done("buffer_import (parked)", ops->buffer_import(plane, SESSION, 1, &client->offer.buffer, error), 0);
        begin();
        ops->ring_detach(plane, SESSION);
        done("ring_detach", ops->tick(plane, error), 0);
        if (client_do(client, 'p').closed != 1)
                fail("the area does not say that it is closed");
        begin();
        while (!ops->drain(plane))
                ;
        done("drain", ops->tick(plane, error), 0);
}

int main(int argc, char **argv) {
        const struct plane_options options = {.policy = PLANE_ADAPTIVE};
        static struct plane_probe probe;
        const struct plane_ops *ops;
        struct client client = {0};
        struct plane *plane;
        void *module;
        int status;

        if (argc != 2)
                fail("usage: %s PLUG-IN", argv[0]);
        client_start(&client); /* before this process has anything of a GPU */
        module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!module)
                fail("%s", dlerror());
        ops = dlsym(module, PLANE_SYMBOL);
        if (!ops || ops->version != PLANE_VERSION)
                fail("no plane, or one of another version");
        begin();
        status = ops->probe(&probe, error);
        if (status == -ENODEV) {
                kill(client.pid, SIGTERM);
                printf("skipped: %s\n", error);
                return SKIP;
        }
        done("probe", status, 0);
        printf("%s, %u GPUs, the first: %s at %s\n%s\n", probe.runtime, probe.n_gpus, probe.gpu[0].name,
               probe.gpu[0].pci, probe.problem);
        if (read(client.from, &client.offer, sizeof(client.offer)) != sizeof(client.offer))
                fail("no client");
        begin();
        done("open", ops->open(&options, &plane, error), 0);
        run(ops, plane, &client);
        begin();
        ops->close(plane);
        done("close", 0, 0);
        close(client.to);
        if (waitpid(client.pid, &status, 0) != client.pid || status)
                fail("the client ended with %d", status);
        return 0;
}
