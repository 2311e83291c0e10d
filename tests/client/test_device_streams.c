/* SPDX-License-Identifier: MIT */
/* On GPUs: more streams than the runtime has queues for are warned of, once for each GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/crew.h"
#include "tests/client/fake_gpu.h"

#define STREAM(n) ((void *)(uintptr_t)(0x1000 + (n)))

struct rig {
        struct crew crew;
        struct fake_gpu *gpu;
        int log; /* what stderr is */
        char text[4096];
};

static void call(struct rmx_comm *comm, uint32_t stream) {
        must(rmx_barrier(comm, STREAM(stream)) == RMX_OK);
}

/* The same for a rank that is alone: of what it calls only reductions with a factor are rung. */
static void call_alone(struct rmx_comm *comm, uint32_t stream) {
        const float one = 1;
        uint32_t redop;

        must(rmx_redop_create_premul_sum(comm, &one, RMX_FLOAT32, RMX_SCALAR_IMMEDIATE, &redop) == RMX_OK);
        must(rmx_all_reduce(comm, NULL, NULL, 0, RMX_FLOAT32, redop, STREAM(stream)) == RMX_OK);
}

/* What has been said so far. */
static const char *said(struct rig *rig) {
        ssize_t n = pread(rig->log, rig->text, sizeof(rig->text) - 1, 0);

        must(n >= 0);
        rig->text[n] = '\0';
        return rig->text;
}

/* The library warns once in a process, so each case has one of its own. */
static void in_child(void (*body)(struct rig *rig), const char *queues, uint32_t ranks) {
        int status = 0;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                static struct rig rig;
                int real = dup(STDERR_FILENO);

                rig.log = memfd_create("stderr", 0);
                must(rig.log >= 0 && dup2(rig.log, STDERR_FILENO) >= 0);
                must(queues ? !setenv(FAKE_GPU_QUEUES, queues, 1) : !unsetenv(FAKE_GPU_QUEUES));
                rig.gpu = fake_gpu_load();
                crew_start_gpus(&rig.crew, ranks);
                body(&rig);
                crew_stop(&rig.crew);
                must(dup2(real, STDERR_FILENO) >= 0);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void expect(bool condition, struct rig *rig, const char *what) {
        if (condition)
                return;
        printf("%s; said: %s\n", what, said(rig));
        fflush(stdout);
        _exit(1);
}
#define EXPECT(rig, condition) expect(condition, rig, #condition)

static void few_then_many(struct rig *rig) {
        char before[4096];

        for (uint32_t i = 0; i < 8; i++) /* the same four again and again */
                call(rig->crew.comm[i % 2], i % 4);
        EXPECT(rig, *said(rig) == '\0');
        call(rig->crew.comm[0], 4);
        EXPECT(rig, strstr(said(rig),
                           "2 communicators are used on 5 streams of GPU 0, and the runtime has 8 hardware queues"));
        EXPECT(rig,
               strstr(said(rig), getenv(FAKE_GPU_QUEUES) ? FAKE_GPU_QUEUES " is 8x" : FAKE_GPU_QUEUES " is not set"));
        EXPECT(rig, strstr(said(rig), "Set " FAKE_GPU_QUEUES "=32 before"));
        EXPECT(rig, strchr(said(rig), '\n') == said(rig) + strlen(said(rig)) - 1);
        snprintf(before, sizeof(before), "%s", said(rig));
        for (uint32_t i = 0; i < 40; i++)
                call(rig->crew.comm[i % 2], i);
        EXPECT(rig, !strcmp(said(rig), before));
}

static void test_unset(void **state) {
        (void)state;
        in_child(few_then_many, NULL, 2);
}

/* The most that there is: what is left is to use fewer. */
static void seventeen(struct rig *rig) {
        for (uint32_t i = 0; i < 16; i++)
                call(rig->crew.comm[i % 2], i);
        EXPECT(rig, *said(rig) == '\0');
        call(rig->crew.comm[1], 16);
        EXPECT(rig, strstr(said(rig), "17 streams of GPU 0, and the runtime has 32 hardware queues"));
        EXPECT(rig, strstr(said(rig), "Use fewer streams") && !strstr(said(rig), "Set "));
}

static void test_most(void **state) {
        (void)state;
        in_child(seventeen, "32", 2);
        in_child(seventeen, "400", 2); /* cannot be */
}

static void test_nonsense(void **state) {
        (void)state;
        in_child(few_then_many, "8x", 2);
}

/* One communicator's requests are in order, whatever streams they are on. */
static void one(struct rig *rig) {
        for (uint32_t i = 0; i < 40; i++)
                call(rig->crew.comm[0], i);
        EXPECT(rig, *said(rig) == '\0');
}

static void test_one(void **state) {
        (void)state;
        in_child(one, NULL, 2);
}

/* What was destroyed counts no more. */
static void destroyed(struct rig *rig) {
        call_alone(rig->crew.comm[0], 0);
        for (uint32_t i = 0; i < 8; i++) {
                struct rmx_comm_options options = {.size = sizeof(options), .gpu = 0};
                struct rmx_comm *comm;
                struct rmx_id id;

                must(rmx_get_id(rig->crew.session, &id) == RMX_OK);
                must(rmx_comm_create(rig->crew.session, &id, 1, 0, &options, &comm) == RMX_OK);
                for (uint32_t k = 0; k < 3; k++)
                        call_alone(comm, 10 * i + k + 1);
                must(rmx_comm_destroy(comm) == RMX_OK);
        }
        EXPECT(rig, *said(rig) == '\0');
}

static void test_destroyed(void **state) {
        (void)state;
        in_child(destroyed, NULL, 1);
}

/* Kernels that only wait, and captured ones, hold queues as well. */
static void waits(struct rig *rig) {
        struct rmx_request request;

        for (uint32_t i = 0; i < 3; i++)
                call(rig->crew.comm[i % 2], i);
        rig->gpu->capturing = STREAM(3);
        call(rig->crew.comm[0], 3);
        rig->gpu->capturing = NULL;
        must(rmx_barrier_start(rig->crew.comm[1], STREAM(2), &request) == RMX_OK);
        EXPECT(rig, *said(rig) == '\0');
        must(rmx_wait_stream(&request, STREAM(4)) == RMX_OK);
        EXPECT(rig, strstr(said(rig), "on 5 streams of GPU 0"));
}

static void test_waits(void **state) {
        (void)state;
        in_child(waits, NULL, 2);
}

/* The calls of a group wait for each other's streams. */
static void group(struct rig *rig) {
        for (uint32_t round = 0; round < 3; round++) {
                must(rmx_group_start() == RMX_OK);
                for (uint32_t i = 0; i < 2; i++)
                        call(rig->crew.comm[i], 2 * round + i);
                if (round == 2)
                        call(rig->crew.comm[0], 6);
                EXPECT(rig, *said(rig) == '\0');
                must(rmx_group_end() == RMX_OK);
                if (round < 2)
                        EXPECT(rig, *said(rig) == '\0');
        }
        EXPECT(rig, strstr(said(rig), "hardware queues"));
}

static void test_group(void **state) {
        (void)state;
        in_child(group, NULL, 2);
}

/* Each GPU has queues of its own, and is warned of. */
static void gpus(struct rig *rig) {
        struct rmx_comm *comm[2];

        for (uint32_t i = 0; i < 2; i++) {
                struct rmx_comm_options options = {.size = sizeof(options), .gpu = 1};
                struct rmx_id id;

                must(rmx_get_id(rig->crew.session, &id) == RMX_OK);
                must(rmx_comm_create(rig->crew.session, &id, 1, 0, &options, &comm[i]) == RMX_OK);
        }
        for (uint32_t i = 0; i < 4; i++) {
                call(rig->crew.comm[i % 2], i);
                call_alone(comm[i % 2], 4 + i);
        }
        EXPECT(rig, *said(rig) == '\0');
        call(rig->crew.comm[0], 8);
        EXPECT(rig, strstr(said(rig), "GPU 0") && !strstr(said(rig), "GPU 1"));
        call_alone(comm[0], 8);
        EXPECT(rig, strstr(said(rig), "5 streams of GPU 1"));
        for (uint32_t i = 0; i < 2; i++)
                must(rmx_comm_destroy(comm[i]) == RMX_OK);
}

static void test_gpus(void **state) {
        (void)state;
        in_child(gpus, NULL, 2);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_unset), cmocka_unit_test(test_most),      cmocka_unit_test(test_nonsense),
                cmocka_unit_test(test_one),   cmocka_unit_test(test_destroyed), cmocka_unit_test(test_waits),
                cmocka_unit_test(test_group), cmocka_unit_test(test_gpus),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
