/* SPDX-License-Identifier: MIT */
/*
 * Two tenants with weights 1 and 3 keep a rail with a rate limit busy: of what goes over it in any second the one gets
 * a quarter and the other three, within five points. And one whose class is latency is not held up by one whose class
 * is bulk, though that has all the weight. One that may take one rail keeps to it, and ends with an error where that
 * does not reach the other node, while others go on. Tenants are told by users, so this needs root.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <railmux/railmux.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/node.h"
#include "tests/e2e/proc.h"
#include "util/clock.h"

#define NODES       2u
#define TENANTS     2u
#define COMMS       2u /* of each tenant */
#define RANKS       4u /* of each communicator, half of them on each node */
#define PROCESSES   (TENANTS * COMMS * RANKS)
#define BUSY        0.9 /* of the rate: with less, somebody had nothing to send, and it says nothing */
#define SAMPLE_MS   100u
#define SAMPLES_MAX 2000u
#define WINDOW_NS   UINT64_C(1000000000)
#define WINDOWS     30u /* to be seen, and with RAILMUX_FULL */
#define WINDOWS_ALL 600u
#define LOOK_NS     UINT64_C(240000000000)
#define LOOK_MS     60000u
#define READY_MS    20000u
#define END_MS      20000u

#define OPERATIONS 16u /* of the tenant in a hurry, to be seen */
#define HELD_UP    100u

static const uid_t uids[TENANTS] = {64101, 64102};

struct kind {
        const char *name[TENANTS], *options[TENANTS];
        uint32_t count[TENANTS]; /* elements of each request */
        uint32_t rate;           /* bytes per second */
        const char *second;      /* what it says of a second rail, if anything with a port; NULL: there is none */
};
static const struct kind by_weight = {
        .name = {"one", "three"}, .options = {"", ",weight=3"}, .count = {1u << 20, 1u << 20}, .rate = 10u << 20};
/* Of one class, the first one would get a thousandth. */
static const struct kind by_class = {.name = {"quick", "large"},
                                     .options = {",class=latency,rails=r0", ",weight=1000,rails=r0,class=bulk"},
                                     .count = {1u << 16, 1u << 19},
                                     .rate = 4u << 20,
                                     .second = ""};
/* Nobody listens where r1 says it does. */
static const struct kind by_rail = {.name = {"pinned", "free"},
                                    .options = {",rails=r1", ""},
                                    .count = {1u << 10, 1u << 10},
                                    .rate = 10u << 20,
                                    .second = ",advertise=127.0.0.1:1"};

struct shared {
        pthread_barrier_t barrier[TENANTS * COMMS];
        struct rmx_id id[TENANTS * COMMS];
        _Atomic uint32_t stop; /* by the parent, for rank 0 of each */
        _Atomic uint32_t done[TENANTS * COMMS];
        char error[PROCESSES][256];
};

struct sample {
        uint64_t at_ns, bytes[TENANTS];
};

struct world {
        const struct kind *kind;
        pid_t parent; /* of the ranks */
        struct node node[NODES];
        struct shared *shared;
        pid_t pid[PROCESSES];
        struct sample samples[SAMPLES_MAX];
        uint32_t n_samples;
};

/* ---- the ranks --------------------------------------------------------------------------------------------------- */
static void must(struct world *world, uint32_t process, int code, const char *what) {
        if (code == RMX_OK)
                return;
        snprintf(world->shared->error[process], sizeof(world->shared->error[process]), "%s: %s: %.180s", what,
                 rmx_error_name(code), rmx_last_error());
        _exit(1);
}

/* To be this user, who ends with the test: the kernel forgets that of who changes. */
static bool become(const struct world *world, uid_t uid) {
        return setgid(uid) == 0 && setuid(uid) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
               getppid() == world->parent;
}

/* Sums over and over, until rank 0 says in the first element that it was the last time. */
static void run_rank(struct world *world, uint32_t process) {
        uint32_t number = process / RANKS, rank = process % RANKS, count = world->kind->count[number / COMMS];
        struct rmx_session_options options = {.size = sizeof(options),
                                              .socket = world->node[rank * NODES / RANKS].socket,
                                              .name = world->kind->name[number / COMMS]};
        struct rmx_session *session;
        struct rmx_comm *comm;
        void *memory[2];
        int32_t *in, *out;

        if (!become(world, uids[number / COMMS]))
                must(world, process, RMX_E_INVALID, "setuid");
        must(world, process, rmx_session_open(&options, &session), "rmx_session_open");
        if (rank == 0)
                must(world, process, rmx_get_id(session, &world->shared->id[number]), "rmx_get_id");
        pthread_barrier_wait(&world->shared->barrier[number]);
        must(world, process, rmx_comm_create(session, &world->shared->id[number], RANKS, rank, NULL, &comm),
             "rmx_comm_create");
        for (size_t i = 0; i < 2; i++)
                must(world, process, rmx_mem_alloc(session, count * sizeof(*in), &memory[i]), "rmx_mem_alloc");
        in = memory[0];
        out = memory[1];
        memset(in, 0, count * sizeof(*in));
        do {
                /* relaxed: sooner or later will do */
                in[0] = rank == 0 && atomic_load_explicit(&world->shared->stop, memory_order_relaxed);
                must(world, process, rmx_all_reduce(comm, in, out, count, RMX_INT32, RMX_SUM, NULL), "rmx_all_reduce");
                if (rank == 0) /* relaxed: see quick_done */
                        atomic_fetch_add_explicit(&world->shared->done[number], 1, memory_order_relaxed);
        } while (out[0] == 0);
        must(world, process, rmx_comm_destroy(comm), "rmx_comm_destroy");
        rmx_session_close(session);
        _exit(0);
}

static void ranks_start(struct world *world) {
        pthread_barrierattr_t attributes;

        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        for (uint32_t i = 0; i < TENANTS * COMMS; i++)
                pthread_barrier_init(&world->shared->barrier[i], &attributes, RANKS);
        pthread_barrierattr_destroy(&attributes);
        fflush(NULL);
        for (uint32_t i = 0; i < PROCESSES; i++) {
                world->pid[i] = fork();
                assert_true(world->pid[i] >= 0);
                if (world->pid[i] == 0)
                        run_rank(world, i);
        }
}

/* From this process on; those before have ended. */
static void ranks_end(struct world *world, uint32_t first) {
        /* relaxed: see run_rank */
        atomic_store_explicit(&world->shared->stop, 1, memory_order_relaxed);
        for (uint32_t i = first; i < PROCESSES; i++) {
                int status;

                if (proc_wait(world->pid[i], END_MS, &status) != 0)
                        fail_msg("rank %u of communicator %u hangs", i % RANKS, i / RANKS);
                if (status != 0)
                        fail_msg("rank %u of communicator %u: status 0x%x, %s", i % RANKS, i / RANKS,
                                 (unsigned int)status, world->shared->error[i]);
        }
}

/* ---- what is another tenant's -------------------------------------------------------------------------------------
 */
/* Joins a communicator on the second node with an id that the other tenant made on the first; its exit status is what
 * that gave. */
static void run_stranger(struct world *world) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = world->node[1].socket};
        struct rmx_session *session;
        struct rmx_comm *comm;

        if (!become(world, uids[1]) || rmx_session_open(&options, &session) != RMX_OK)
                _exit(255);
        _exit(rmx_comm_create(session, &world->shared->id[0], 2, 1, NULL, &comm));
}

static void run_maker(struct world *world) {
        struct rmx_session_options options = {.size = sizeof(options), .socket = world->node[0].socket};
        struct rmx_session *session;

        if (!become(world, uids[0]) || rmx_session_open(&options, &session) != RMX_OK)
                _exit(255);
        _exit(rmx_get_id(session, &world->shared->id[0]));
}

static int status_of(struct world *world, void (*run)(struct world *world)) {
        pid_t pid;
        int status;

        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                run(world);
        assert_int_equal(proc_wait(pid, END_MS, &status), 0);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static unsigned int n_skipped;

static void require_root(const struct world *world) {
        if (world->shared)
                return;
        n_skipped++;
        skip();
}

static void strangers(void **state) {
        struct world *world = *state;

        require_root(world);
        assert_int_equal(status_of(world, run_maker), RMX_OK);
        assert_int_equal(status_of(world, run_stranger), RMX_E_DENIED);
        nodes_stop(world->node, NODES);
}

/* ---- what they get ----------------------------------------------------------------------------------------------- */
/* What each tenant has sent from the first node so far. */
static struct sample sample_take(const struct world *world) {
        json_t *root = node_query(&world->node[0], "comms"), *comm, *rail;
        struct sample sample = {.at_ns = clock_now_ns()};
        size_t i, k;

        assert_non_null(root);
        json_array_foreach(json_object_get(root, "comms"), i, comm) {
                const char *tenant = json_string_value(json_object_get(comm, "tenant"));

                json_array_foreach(json_object_get(comm, "carried"), k, rail) {
                        for (uint32_t t = 0; t < TENANTS; t++)
                                if (strcmp(tenant, world->kind->name[t]) == 0)
                                        sample.bytes[t] +=
                                                (uint64_t)json_integer_value(json_object_get(rail, "data_sent"));
                }
        }
        json_decref(root);
        return sample;
}

/* All communicators are at work. */
static bool all_send(void *argument) {
        const struct world *world = argument;
        json_t *root = node_query(&world->node[0], "comms"), *comm;
        uint32_t n = 0;
        size_t i;

        json_array_foreach(json_object_get(root, "comms"), i, comm) {
                json_t *carried = json_array_get(json_object_get(comm, "carried"), 0);

                n += json_integer_value(json_object_get(carried, "data_sent")) > 0;
        }
        json_decref(root);
        return n == TENANTS * COMMS;
}

struct result {
        uint32_t n_busy, n_idle;
        double least, most; /* share of weight 3 */
};

/* Windows of a second, from every sample on, in which the rail was kept busy. */
static struct result look(const struct world *world) {
        struct result result = {.least = 1};

        for (uint32_t i = 0, k = 0; i < world->n_samples; i++) {
                const struct sample *a = &world->samples[i], *b;
                double bytes[TENANTS], seconds, share;

                while (k < world->n_samples && world->samples[k].at_ns - a->at_ns < WINDOW_NS)
                        k++;
                if (k == world->n_samples)
                        break;
                b = &world->samples[k];
                for (uint32_t t = 0; t < TENANTS; t++)
                        bytes[t] = (double)(b->bytes[t] - a->bytes[t]);
                seconds = (double)(b->at_ns - a->at_ns) / 1e9;
                if (bytes[0] + bytes[1] < BUSY * world->kind->rate * seconds) {
                        result.n_idle++;
                        continue;
                }
                share = bytes[1] / (bytes[0] + bytes[1]);
                result.least = share < result.least ? share : result.least;
                result.most = share > result.most ? share : result.most;
                result.n_busy++;
        }
        return result;
}

static void ranks_begin(struct world *world) {
        ranks_start(world);
        if (proc_await(all_send, world, READY_MS))
                return;
        for (uint32_t i = 0; i < PROCESSES; i++)
                if (world->shared->error[i][0])
                        fprintf(stderr, "%s\n", world->shared->error[i]);
        fail_msg("not all communicators are at work");
}

static void shares(void **state) {
        uint32_t windows = proc_full() ? WINDOWS_ALL : WINDOWS;
        struct world *world = *state;
        struct result result = {0};
        uint64_t end_ns;

        require_root(world);
        ranks_begin(world);
        end_ns = clock_now_ns() + LOOK_NS;
        do {
                if (clock_now_ns() > end_ns || world->n_samples == SAMPLES_MAX)
                        fail_msg("the rail is not kept busy: %u windows of %u", result.n_busy, windows);
                world->samples[world->n_samples++] = sample_take(world);
                proc_measure_for(SAMPLE_MS);
                result = look(world);
        } while (result.n_busy < windows);
        ranks_end(world, 0);
        print_message(
                "%u windows of a second (and %u in which the rail was not kept busy): share of weight 3 from %.1f "
                "%% to %.1f %%\n",
                result.n_busy, result.n_idle, 100 * result.least, 100 * result.most);
        if (result.least < 0.70 || result.most > 0.80)
                fail_msg("the tenant of weight 3 got from %.1f %% to %.1f %%; from 70 %% to 80 %% would be right",
                         100 * result.least, 100 * result.most);
        nodes_stop(world->node, NODES);
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */
struct hurry {
        struct world *world;
        uint32_t until;
        struct sample before, after;
};

static uint32_t quick_done(const struct world *world) {
        uint32_t n = 0;

        /* relaxed: one more or less will do */
        for (uint32_t i = 0; i < COMMS; i++)
                n += atomic_load_explicit(&world->shared->done[i], memory_order_relaxed);
        return n;
}

/* The one tenant has done so much, and the other one had something to send meanwhile. */
static bool quick_is_through(void *argument) {
        struct hurry *hurry = argument;

        if (quick_done(hurry->world) < hurry->until)
                return false;
        hurry->after = sample_take(hurry->world);
        return hurry->after.bytes[1] > hurry->before.bytes[1];
}

static const char *text_of(const json_t *row, const char *key) {
        const char *text = json_string_value(json_object_get(row, key));

        return text ? text : "";
}

/* What operators see of it. */
static void check_shown(const struct world *world) {
        json_t *routes = node_query(&world->node[0], "routes"), *comms = node_query(&world->node[0], "comms"),
               *tenants = node_query(&world->node[0], "tenants"), *row;
        uint32_t n[4] = {0};
        size_t i;

        json_array_foreach(json_object_get(routes, "routes"), i, row) {
                const bool idle =
                        strcmp(text_of(row, "class"), "normal") == 0 || strcmp(text_of(row, "rail"), "r0") != 0;
                const json_int_t messages = json_integer_value(json_object_get(row, "messages_sent")),
                                 data = json_integer_value(json_object_get(row, "data_sent"));

                if (idle ? messages > 0 || data > 0 : messages == 0 || data == 0)
                        fail_msg("%s, %s, carried %lld messages and %lld bytes", text_of(row, "rail"),
                                 text_of(row, "class"), (long long)messages, (long long)data);
                n[0]++;
        }
        json_array_foreach(json_object_get(comms, "comms"), i, row) {
                assert_string_equal(text_of(row, "class"),
                                    strcmp(text_of(row, "tenant"), "quick") == 0 ? "latency" : "bulk");
                n[1]++;
        }
        json_array_foreach(json_object_get(tenants, "tenants"), i, row) {
                n[2] += strcmp(text_of(row, "name"), "quick") == 0 && strcmp(text_of(row, "class"), "latency") == 0 &&
                        strcmp(text_of(row, "rails"), "r0") == 0;
                n[3] += strcmp(text_of(row, "name"), "large") == 0 && strcmp(text_of(row, "class"), "bulk") == 0;
        }
        json_decref(routes);
        json_decref(comms);
        json_decref(tenants);
        assert_int_equal(n[0], 6);
        assert_int_equal(n[1], TENANTS * COMMS);
        assert_int_equal(n[2], 1);
        assert_int_equal(n[3], 1);
}

static void classes(void **state) {
        struct world *world = *state;
        struct hurry hurry = {.world = world};
        uint64_t quick, large;

        require_root(world);
        ranks_begin(world);
        hurry.until = quick_done(world) + OPERATIONS;
        hurry.before = sample_take(world);
        if (!proc_await(quick_is_through, &hurry, LOOK_MS))
                fail_msg("of %u operations of class latency %u have ended, while the others sent %" PRIu64 " bytes",
                         OPERATIONS, quick_done(world) + OPERATIONS - hurry.until,
                         sample_take(world).bytes[1] - hurry.before.bytes[1]);
        check_shown(world);
        ranks_end(world, 0);
        quick = hurry.after.bytes[0] - hurry.before.bytes[0];
        large = hurry.after.bytes[1] - hurry.before.bytes[1];
        print_message("class latency: %" PRIu64 " bytes, class bulk with a thousand times the weight: %" PRIu64 "\n",
                      quick, large);
        if (large > HELD_UP * quick)
                fail_msg("%u operations of class latency took as long as %" PRIu64 " bytes of class bulk", OPERATIONS,
                         large);
        nodes_stop(world->node, NODES);
}

/* ---- rails ------------------------------------------------------------------------------------------------------- */
static bool free_sends(void *argument) {
        return sample_take(argument).bytes[1] > 0;
}

static void rails(void **state) {
        const uint32_t first_free = COMMS * RANKS;
        struct world *world = *state;

        require_root(world);
        ranks_start(world);
        for (uint32_t i = 0; i < first_free; i++) {
                int status;

                if (proc_wait(world->pid[i], READY_MS, &status) != 0)
                        fail_msg("rank %u of communicator %u waits for ever", i % RANKS, i / RANKS);
                if (!strstr(world->shared->error[i], "rmx_all_reduce: RMX_E_PEER_LOST"))
                        fail_msg("status 0x%x, %s", (unsigned int)status, world->shared->error[i]);
        }
        assert_true(proc_await(free_sends, world, READY_MS));
        ranks_end(world, first_free);
        nodes_stop(world->node, NODES);
}

/* ------------------------------------------------------------------------------------------------------------------ */
/* Nobody has it now. */
static uint16_t port_free(const char *text) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t size = sizeof(address);

        assert_true(fd >= 0);
        assert_int_equal(inet_pton(AF_INET, text, &address.sin_addr), 1);
        assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
        close(fd);
        return ntohs(address.sin_port);
}

static void config_write(const struct kind *kind, uint32_t node, char path[64]) {
        char second[INET_ADDRSTRLEN];
        FILE *config;
        int fd;

        snprintf(second, sizeof(second), "127.0.77.%u", node + 1);
        snprintf(path, 64, "/tmp/railmux-e2e-shares-XXXXXX");
        fd = mkstemp(path);
        assert_true(fd >= 0);
        config = fdopen(fd, "w");
        assert_non_null(config);
        fprintf(config, "client:\n  mode: '0666'\npeer:\n  rails: r0=127.0.0.1,rate=%u,dscp=46/26/10", kind->rate);
        if (kind->second)
                fprintf(config, " r1=%s", second);
        if (kind->second && kind->second[0])
                fprintf(config, ",port=%u%s", port_free(second), kind->second);
        fprintf(config, "\ntenants:\n  by_uid: %s=%u%s %s=%u%s\n", kind->name[0], uids[0], kind->options[0],
                kind->name[1], uids[1], kind->options[1]);
        fclose(config);
}

static int setup(void **state, const struct kind *kind) {
        char path[64], name[32];
        const char *more[] = {"--config", path, NULL};
        struct world *world = calloc(1, sizeof(*world));
        void *memory;

        assert_non_null(world);
        *state = world;
        world->kind = kind;
        world->parent = getpid();
        if (geteuid() != 0)
                return 0;
        memory = mmap(NULL, sizeof(*world->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(memory != MAP_FAILED);
        world->shared = memory;
        for (uint32_t i = 0; i < NODES; i++) {
                world->node[i].gpus = 4;
                world->node[i].listens = true;
                world->node[i].more = more;
                config_write(kind, i, path);
                snprintf(name, sizeof(name), "nodes-shares-%c", (int)('a' + i));
                node_start(&world->node[i], name, false);
                world->node[i].more = NULL;
                unlink(path);
                assert_int_equal(chmod(world->node[i].dir, 0755), 0); /* for other users */
        }
        return 0;
}

static int setup_weight(void **state) {
        return setup(state, &by_weight);
}

static int setup_class(void **state) {
        return setup(state, &by_class);
}

static int setup_rail(void **state) {
        return setup(state, &by_rail);
}

static int teardown(void **state) {
        struct world *world = *state;

        if (world->shared) {
                nodes_cleanup(world->node, NODES); /* with the ranks that are left */
                munmap(world->shared, sizeof(*world->shared));
        }
        free(world);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(shares, setup_weight, teardown),
                cmocka_unit_test_setup_teardown(strangers, setup_weight, teardown),
                cmocka_unit_test_setup_teardown(classes, setup_class, teardown),
                cmocka_unit_test_setup_teardown(rails, setup_rail, teardown),
        };
        int failed = cmocka_run_group_tests_name("shares", tests, NULL, NULL);

        return tests_status(sizeof(tests) / sizeof(tests[0]), n_skipped, failed);
}
