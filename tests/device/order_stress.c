/* SPDX-License-Identifier: MIT */
/*
 * Tries the ordering layer on hardware: two sides send to each other by packets and by bulk data with a flag, on one
 * GPU or two, in one process or two; and a resident kernel reads memory that a stream writes. Every value is checked.
 *
 *     order_stress [--gpus A,B] [--processes] [--lanes N] [--rounds N]
 *
 * Each way runs right and weakened. Exit status 0: nothing was ever wrong when done right, and what is wrong in program
 * order was noticed every time, so that the checks would have noticed more. What is wrong by the memory model only is
 * reported and not judged. Two processes on one GPU of NVIDIA need MPS.
 */
#include "tests/device/order_stress.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LANES_MAX   64u
#define CHECK(call) check((call), #call)

struct options {
        int gpu[2];
        bool processes;
        uint32_t lanes;
        uint32_t rounds;
};

/* Totals of one run, in memory that both processes see. */
struct totals {
        struct stress_result of[2]; /* by receiving side */
};

struct side {
        int gpu;
        uint32_t me;
        struct stress_lane *mine;
        struct stress_lane *theirs;
        bool mapped; /* theirs: from another process */
        struct stress_result *results;
        hipStream_t stream;
        int peer_fd; /* -1: the other side is in this process */
};

static const char *const kinds[] = {"packets", "bulk and flag"};
static const char *const weaknesses[] = {"right", "unfenced", "early"};
static int failures;

static void check(hipError_t result, const char *what) {
        if (result != hipSuccess) {
                fprintf(stderr, "%s: %s\n", what, hipGetErrorString(result));
                exit(2);
        }
}

static void die(const char *what) {
        perror(what);
        exit(2);
}

/* Device memory that others look at while kernels run. */
static void *alloc_shared(size_t bytes) {
        void *memory = NULL;

#if defined(RAILMUX_CUDA)
        CHECK(hipMalloc(&memory, bytes));
#elif defined(hipDeviceMallocUncached)
        CHECK(hipExtMallocWithFlags(&memory, bytes, hipDeviceMallocUncached));
#else
        CHECK(hipExtMallocWithFlags(&memory, bytes, hipDeviceMallocFinegrained));
#endif
        return memory;
}

static void side_meet(const struct side *side) {
        char byte = 0;

        if (side->peer_fd >= 0 && (write(side->peer_fd, &byte, 1) != 1 || read(side->peer_fd, &byte, 1) != 1))
                die("the other process is gone");
}

static void side_open(struct side *side, const struct options *o) {
        CHECK(hipSetDevice(side->gpu));
        CHECK(hipStreamCreateWithFlags(&side->stream, hipStreamNonBlocking));
        side->mine = alloc_shared(o->lanes * sizeof(*side->mine));
        CHECK(hipMalloc((void **)&side->results, o->lanes * sizeof(*side->results)));
}

/* The other side's lanes, as seen from this process and GPU. */
static void side_connect(struct side *side, const struct side *other) {
        hipIpcMemHandle_t handle;

        CHECK(hipSetDevice(side->gpu));
        if (other) {
                if (side->gpu != other->gpu)
                        CHECK(hipDeviceEnablePeerAccess(other->gpu, 0));
                side->theirs = other->mine;
                return;
        }
        CHECK(hipIpcGetMemHandle(&handle, side->mine));
        if (write(side->peer_fd, &handle, sizeof(handle)) != sizeof(handle) ||
            recv(side->peer_fd, &handle, sizeof(handle), MSG_WAITALL) != sizeof(handle))
                die("handles");
        CHECK(hipIpcOpenMemHandle((void **)&side->theirs, handle, hipIpcMemLazyEnablePeerAccess));
        side->mapped = true;
}

static void side_close(struct side *side) {
        CHECK(hipSetDevice(side->gpu));
        if (side->mapped)
                CHECK(hipIpcCloseMemHandle(side->theirs));
        side_meet(side); /* freed when nobody has it mapped */
        CHECK(hipFree(side->mine));
        CHECK(hipFree(side->results));
        CHECK(hipStreamDestroy(side->stream));
}

static void side_reset(struct side *side, const struct options *o) {
        CHECK(hipSetDevice(side->gpu));
        CHECK(hipMemset(side->mine, 0, o->lanes * sizeof(*side->mine)));
        CHECK(hipMemset(side->results, 0, o->lanes * sizeof(*side->results)));
        CHECK(hipDeviceSynchronize());
}

static void side_launch(struct side *side, const struct options *o, uint32_t kind, uint32_t weakness) {
        const struct stress_side arguments = {
                .mine = side->mine,
                .theirs = side->theirs,
                .results = side->results,
                .n_lanes = o->lanes,
                .rounds = o->rounds,
                .kind = kind,
                .weakness = weakness,
                .me = side->me,
        };

        CHECK(hipSetDevice(side->gpu));
        CHECK(stress_launch_side(&arguments, side->stream));
}

static void side_collect(struct side *side, const struct options *o, struct totals *totals) {
        struct stress_result results[LANES_MAX], *sum = &totals->of[side->me];

        CHECK(hipSetDevice(side->gpu));
        CHECK(hipStreamSynchronize(side->stream)); /* every wait in the kernels is bounded */
        CHECK(hipMemcpy(results, side->results, o->lanes * sizeof(*results), hipMemcpyDeviceToHost));
        memset(sum, 0, sizeof(*sum));
        for (uint32_t l = 0; l < o->lanes; l++) {
                sum->rounds += results[l].rounds;
                sum->violations += results[l].violations;
                sum->timeouts += results[l].timeouts;
        }
}

/* One line for what was seen, and the judgement. */
static void report(const char *what, uint32_t weakness, struct stress_result sum, uint64_t rounds) {
        const char *verdict = "";

        if (weakness == STRESS_RIGHT && (sum.violations || sum.timeouts || sum.rounds != rounds))
                verdict = "  WRONG";
        else if (weakness == STRESS_EARLY && !sum.violations)
                verdict = "  UNNOTICED";
        failures += verdict[0] != '\0';
        printf("%-24s %-9s %12" PRIu64 " rounds %12" PRIu64 " violations %4" PRIu64 " timeouts%s\n", what,
               weaknesses[weakness], sum.rounds, sum.violations, sum.timeouts, verdict);
        fflush(stdout);
}

static void report_sides(const struct options *o, uint32_t kind, uint32_t weakness, const struct totals *t) {
        struct stress_result sum = {
                .rounds = t->of[0].rounds + t->of[1].rounds,
                .violations = t->of[0].violations + t->of[1].violations,
                .timeouts = t->of[0].timeouts + t->of[1].timeouts,
        };

        report(kinds[kind], weakness, sum, 2ull * o->lanes * o->rounds);
}

/* All ways between two sides, of which `n` are in this process. */
static void sides_run(struct side *side, uint32_t n, const struct options *o, struct totals *totals) {
        for (uint32_t i = 0; i < n; i++)
                side_open(&side[i], o);
        for (uint32_t i = 0; i < n; i++)
                side_connect(&side[i], n == 2 ? &side[1 - i] : NULL);
        for (uint32_t kind = 0; kind < STRESS_KINDS; kind++) {
                for (uint32_t weakness = 0; weakness < STRESS_WEAKNESSES; weakness++) {
                        for (uint32_t i = 0; i < n; i++)
                                side_reset(&side[i], o);
                        side_meet(&side[0]);
                        for (uint32_t i = 0; i < n; i++)
                                side_launch(&side[i], o, kind, weakness);
                        for (uint32_t i = 0; i < n; i++)
                                side_collect(&side[i], o, totals);
                        side_meet(&side[0]);
                        if (side[0].me == 0)
                                report_sides(o, kind, weakness, totals);
                }
        }
        for (uint32_t i = 0; i < n; i++)
                side_close(&side[i]);
}

/* ---- a resident kernel and a stream ------------------------------------------------------------------------------ */
static void client_run(int gpu, const struct options *o) {
        struct stress_client c = {.rounds = o->rounds < 20000 ? o->rounds : 20000};
        struct stress_result results[2];
        hipStream_t resident, stream;
        uint32_t *words;

        CHECK(hipSetDevice(gpu));
        CHECK(hipStreamCreateWithFlags(&resident, hipStreamNonBlocking));
        CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
        CHECK(hipMalloc((void **)&c.input, STRESS_INPUT)); /* ordinary memory, as a client's is */
        CHECK(hipMalloc((void **)&c.output, STRESS_INPUT));
        CHECK(hipMalloc((void **)&c.results, sizeof(results)));
        words = alloc_shared(1024);
        c.bell = words;
        c.answer = words + 128;
        for (uint32_t weakness = 0; weakness < STRESS_WEAKNESSES; weakness++) {
                c.weakness = weakness;
                CHECK(hipMemset(words, 0, 1024));
                CHECK(hipMemset(c.results, 0, sizeof(results)));
                CHECK(hipDeviceSynchronize());
                CHECK(stress_launch_resident(&c, resident));
                for (uint32_t round = 1; round <= c.rounds; round++)
                        CHECK(stress_launch_round(&c, round, stream));
                CHECK(hipStreamSynchronize(stream));
                CHECK(hipStreamSynchronize(resident));
                CHECK(hipMemcpy(results, c.results, sizeof(results), hipMemcpyDeviceToHost));
                report("client's input", weakness, results[0], c.rounds);
                report("client's output", weakness, results[1], c.rounds);
        }
        CHECK(hipFree(c.input));
        CHECK(hipFree(c.output));
        CHECK(hipFree(c.results));
        CHECK(hipFree(words));
        CHECK(hipStreamDestroy(resident));
        CHECK(hipStreamDestroy(stream));
}

/* ---- program ----------------------------------------------------------------------------------------------------- */
static void in_processes(const struct options *o) {
        struct totals *totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int fds[2], status = 0;
        pid_t child;

        if (totals == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
                die("shared memory");
        /* Before the runtime is touched: it does not survive a fork. */
        child = fork();
        if (child < 0)
                die("fork");
        struct side side = {.gpu = o->gpu[child == 0], .me = child == 0, .peer_fd = fds[child == 0]};

        close(fds[child != 0]);
        sides_run(&side, 1, o, totals);
        if (child == 0)
                _exit(0);
        if (waitpid(child, &status, 0) != child || status != 0)
                failures++;
        munmap(totals, sizeof(*totals));
        close(side.peer_fd);
}

static void in_one_process(const struct options *o) {
        struct side sides[2] = {{.gpu = o->gpu[0], .me = 0, .peer_fd = -1}, {.gpu = o->gpu[1], .me = 1, .peer_fd = -1}};
        struct totals totals;

        sides_run(sides, 2, o, &totals);
}

int main(int argc, char **argv) {
        static const struct option names[] = {{"gpus", required_argument, NULL, 'g'},
                                              {"processes", no_argument, NULL, 'p'},
                                              {"lanes", required_argument, NULL, 'l'},
                                              {"rounds", required_argument, NULL, 'r'},
                                              {NULL, 0, NULL, 0}};
        struct options o = {.lanes = 8, .rounds = 100000};
        int c;

        /* A kernel that is loaded at its first launch would wait for the resident one. */
        setenv("CUDA_MODULE_LOADING", "EAGER", 1);
        while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
                if (c == 'p')
                        o.processes = true;
                else if (c == 'l')
                        o.lanes = (uint32_t)strtoul(optarg, NULL, 10);
                else if (c == 'r')
                        o.rounds = (uint32_t)strtoul(optarg, NULL, 10);
                else if (c != 'g' || sscanf(optarg, "%d,%d", &o.gpu[0], &o.gpu[1]) != 2)
                        return 2;
        }
        if (o.lanes < 1 || o.lanes > LANES_MAX || o.rounds < 1)
                return 2;
        printf("GPUs %d and %d, %s, %u lanes\n", o.gpu[0], o.gpu[1], o.processes ? "two processes" : "one process",
               o.lanes);
        fflush(stdout);
        if (o.processes)
                in_processes(&o);
        else
                in_one_process(&o);
        client_run(o.gpu[0], &o);
        printf("%d failures\n", failures);
        return failures ? 1 : 0;
}
