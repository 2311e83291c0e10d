/* SPDX-License-Identifier: MIT */
/*
 * What it costs to bring chunks from the wires of one node's GPUs to those of another's: two fabrics in this process
 * over TCP on the loopback, a proxy thread for each strand of each GPU, and threads that play its kernel. No GPU is
 * needed.
 *
 *     bench_wires [bytes [rails [GPUs of a node [rounds [partner|all [packets|bulk [stripe bytes [us]]]]]]]]
 *
 * In each round every rank sends so many bytes to its partner on the other node, or to all ranks there, and takes as
 * many; what comes is compared. The fabrics' threads look on for so many microseconds (default: as the fabric's).
 * Printed are the time of a round, and what each kind of thread did in it: processor time (a proxy's: of looks at which
 * something moved), system calls, context switches. Where there are fewer processors than threads the time of a round
 * says little; processor time says where the limit is when each thread has its own.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "gpu/hip/wires.h"
#include "util/clock.h"

#define NODES    2u
#define GPUS_MAX 8u
#define WARM     20u
#define WORDS(n) ((n) / 8)
#define CHECK(x)                                                                                                       \
        do {                                                                                                           \
                if (!(x)) {                                                                                            \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                        \
                        exit(1);                                                                                       \
                }                                                                                                      \
        } while (0)

enum kind { KIND_KERNEL, KIND_PROXY, KIND_TAKER, KIND_RAIL, KINDS };
static const char *const kind_names[KINDS] = {"kernel", "proxy", "taker", "rail"};

/* ---- system calls ------------------------------------------------------------------------------------------------ */
static _Atomic uint64_t n_calls[KINDS];
static __thread enum kind call_kind = KINDS;

static void called(void) {
        char name[16] = "";

        if (call_kind == KINDS) {
                (void)pthread_getname_np(pthread_self(), name, sizeof(name));
                call_kind = strcmp(name, "fabric-taker") == 0 ? KIND_TAKER
                            : strncmp(name, "fab-", 4) == 0   ? KIND_RAIL
                            : strcmp(name, "proxy") == 0      ? KIND_PROXY
                                                              : KIND_KERNEL;
        }
        atomic_fetch_add_explicit(&n_calls[call_kind], 1, memory_order_relaxed);
}

#define COUNTED(type, name, parameters, arguments)                                                                     \
        type __real_##name parameters;                                                                                 \
        type __wrap_##name parameters;                                                                                 \
        type __wrap_##name parameters {                                                                                \
                called();                                                                                              \
                return __real_##name arguments;                                                                        \
        }
struct epoll_event;
struct pollfd;
COUNTED(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
COUNTED(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n))
COUNTED(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
COUNTED(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
COUNTED(int, epoll_wait, (int fd, struct epoll_event *e, int n, int t), (fd, e, n, t))
COUNTED(int, poll, (struct pollfd * p, unsigned long n, int t), (p, n, t))

/* ---- what threads have done -------------------------------------------------------------------------------------- */
struct usage {
        uint64_t ns[KINDS], switches[KINDS], calls[KINDS];
};

static enum kind kind_of(const char *name) {
        return strncmp(name, "fabric-taker", 12) == 0 ? KIND_TAKER
               : strncmp(name, "fab-", 4) == 0        ? KIND_RAIL
               : strncmp(name, "kernel", 6) == 0      ? KIND_KERNEL
                                                      : KINDS;
}

static uint64_t number_in(const char *path, const char *key) {
        FILE *file = fopen(path, "r");
        unsigned long long found = 0, value;
        char line[256];

        while (file && fgets(line, sizeof(line), file))
                if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &value) == 1)
                        found += value;
        if (file)
                fclose(file);
        return found;
}

static _Atomic uint64_t proxy_ns;

static void usage_take(struct usage *u) {
        DIR *tasks = opendir("/proc/self/task");
        struct dirent *entry;

        memset(u, 0, sizeof(*u));
        CHECK(tasks);
        while ((entry = readdir(tasks))) {
                char path[300], name[32] = "";
                FILE *file;
                enum kind kind;

                snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", entry->d_name);
                file = fopen(path, "r");
                if (!file)
                        continue;
                CHECK(fgets(name, sizeof(name), file));
                fclose(file);
                kind = kind_of(name);
                if (kind == KINDS)
                        continue;
                snprintf(path, sizeof(path), "/proc/self/task/%.20s/schedstat", entry->d_name);
                u->ns[kind] += number_in(path, "");
                snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", entry->d_name);
                u->switches[kind] += number_in(path, "voluntary_ctxt_switches:");
        }
        closedir(tasks);
        u->ns[KIND_PROXY] = proxy_ns;
        for (uint32_t k = 0; k < KINDS; k++)
                u->calls[k] = n_calls[k];
}

/* ---- the two nodes ----------------------------------------------------------------------------------------------- */
struct lane {
        uint32_t pushed, taken; /* chunks */
};

struct gpu {
        struct bench *bench;
        uint32_t rank;
        struct strand {
                struct gpu *gpu;
                struct wires *wires;
                pthread_t proxy;
        } strands[WIRE_STRANDS];
        pthread_t kernel;
        uint32_t n_far;
        struct lane lanes[GPUS_MAX][STAGING_LANES];
};

struct node {
        struct fabric_node id;
        struct fabric *fabric;
        struct net_area *area;
        uint64_t area_bytes;
        int wake_fd;
};

struct bench {
        uint32_t bytes, n_rails, n_gpus, n_rounds, transport, stripe_bytes, spin_us;
        bool all;
        struct node nodes[NODES];
        struct gpu gpus[NODES * GPUS_MAX];
        _Atomic uint32_t round, n_done;
        _Atomic bool stop;
};

static void *proxy_main(void *data) {
        struct strand *strand = data;
        struct timespec before, after;

        (void)pthread_setname_np(pthread_self(), "proxy");
        while (!strand->gpu->bench->stop) {
                bool moved;

                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
                moved = wires_step_at(strand->wires, clock_now_ns());
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
                if (moved)
                        proxy_ns += (uint64_t)((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec -
                                               before.tv_nsec);
                else
                        sched_yield();
                CHECK(!wires_broken(strand->wires));
        }
        return NULL;
}

static uint32_t part_bytes(const struct bench *b) {
        return b->transport == STAGING_BULK ? STAGING_BULK_CHUNK : STAGING_PACKET_CHUNK;
}

static bool lane_push(const struct bench *b, struct wire *wire, struct lane *lane, uint32_t channel) {
        const uint32_t number = lane->pushed + 1, slot = (number - 1) % WIRE_SLOTS, n = WORDS(part_bytes(b));
        uint64_t *to = (uint64_t *)(void *)wire->out[channel][slot];

        if (lane->pushed - __atomic_load_n(&wire->room[channel], __ATOMIC_ACQUIRE) >= WIRE_SLOTS)
                return false;
        if (b->transport == STAGING_BULK) {
                for (uint32_t i = 0; i < n; i++)
                        to[i] = (uint64_t)number << 32 | i;
                __atomic_store_n(&wire->bytes[channel][slot], part_bytes(b), __ATOMIC_RELAXED);
        } else {
                for (uint32_t i = 0; i < 2 * n; i++)
                        to[i] = (uint64_t)number << 32 | i;
        }
        lane->pushed = number;
        __atomic_store_n(&wire->pushed[channel], number, __ATOMIC_RELEASE);
        return true;
}

static bool lane_take(const struct bench *b, struct wire *wire, struct lane *lane, uint32_t channel) {
        const uint32_t number = lane->taken + 1, slot = (number - 1) % WIRE_SLOTS, n = WORDS(part_bytes(b));
        const uint64_t *from = (const uint64_t *)(const void *)wire->in[channel][slot];
        uint64_t wrong = 0;

        if (__atomic_load_n(&wire->come[channel][slot], __ATOMIC_ACQUIRE) != number)
                return false;
        for (uint32_t i = 0; i < (b->transport == STAGING_BULK ? n : 2 * n); i++)
                wrong |= from[i] ^ ((uint64_t)number << 32 | i);
        CHECK(!wrong);
        lane->taken = number;
        __atomic_store_n(&wire->given[channel], number, __ATOMIC_RELEASE);
        return true;
}

/* Until lane 1 + k has pushed and taken what parts of all rounds there are for it. */
static bool wire_step(const struct bench *b, uint32_t round, struct wire_end *end, struct lane *lanes, bool *ret_done) {
        const uint32_t parts = (b->bytes + part_bytes(b) - 1) / part_bytes(b);
        bool moved = false;

        for (uint32_t k = 0; k < STAGING_DATA_LANES && k < parts; k++) {
                const uint32_t due = round * ((parts - k + STAGING_DATA_LANES - 1) / STAGING_DATA_LANES);
                const uint32_t channel = staging_channel(b->transport, 0, 1 + k);

                if (lanes[k].pushed < due)
                        moved = lane_push(b, end->wire, &lanes[k], channel) || moved;
                if (lanes[k].taken < due)
                        moved = lane_take(b, end->wire, &lanes[k], channel) || moved;
                *ret_done = *ret_done && lanes[k].pushed == due && lanes[k].taken == due;
        }
        return moved;
}

static void *kernel_main(void *data) {
        struct gpu *gpu = data;
        struct bench *b = gpu->bench;
        uint32_t finished = 0;

        (void)pthread_setname_np(pthread_self(), "kernel");
        while (!b->stop) {
                const uint32_t round = b->round;
                bool done = true, moved = false;

                for (uint32_t i = 0; i < gpu->n_far && round > finished; i++)
                        moved = wire_step(b, round, &gpu->strands[0].wires->end[i], gpu->lanes[i], &done) || moved;
                if (round > finished && done) {
                        finished = round;
                        b->n_done++;
                }
                if (!moved)
                        sched_yield();
        }
        return NULL;
}

static void *zeroes(size_t bytes) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        CHECK(memory != MAP_FAILED);
        return memory;
}

static void rail_name(uint32_t i, char ret_name[16]) {
        snprintf(ret_name, 16, "rail%u", i);
}

/* The first half of the ranks is on the first node. */
static void bench_nodes(const struct bench *b, struct plan_nodes *ret_nodes) {
        uint8_t node[NODES * GPUS_MAX];

        for (uint32_t r = 0; r < NODES * b->n_gpus; r++)
                node[r] = (uint8_t)(r / b->n_gpus);
        CHECK(plan_nodes_init(ret_nodes, NODES * b->n_gpus, node) == 0);
}

static void node_start(struct bench *b, uint32_t i) {
        struct node *node = &b->nodes[i];
        struct fabric_options options = {.boot_epoch = 1 + i, .cluster = "bench"};
        struct plan_nodes nodes;
        uint64_t memory_bytes;
        uint32_t capacity;

        memset(node->id.id, (int)i + 1, sizeof(node->id.id));
        options.self = node->id;
        options.stripe_bytes = b->stripe_bytes;
        options.times.spin_us = b->spin_us;
        CHECK(fabric_new(&options, &node->fabric) == 0);
        for (uint32_t rail = 0; rail < b->n_rails; rail++) {
                struct fabric_rail_options rail_options = {.kind = "tcp"};
                char name[16], address[32];

                rail_name(rail, name);
                snprintf(address, sizeof(address), "127.0.%u.%u", 10 + rail, i + 1);
                rail_options.name = name;
                rail_options.address = address;
                CHECK(fabric_rail_add(node->fabric, &rail_options) == 0);
        }
        bench_nodes(b, &nodes);
        CHECK(plane_net_size(NODES * b->n_gpus, &nodes, &capacity, &memory_bytes) == 0);
        node->area_bytes = net_area_bytes(capacity, memory_bytes);
        node->area = zeroes(node->area_bytes);
        net_area_init(node->area, capacity, memory_bytes);
        node->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

static void node_meet(struct bench *b, uint32_t i) {
        struct node *node = &b->nodes[i], *other = &b->nodes[1 - i];
        struct fabric_peer_options options = {.node = other->id, .boot_epoch = 2 - i, .n_rails = b->n_rails};
        struct fabric_peer_rail rails[FABRIC_RAILS_MAX];
        char names[FABRIC_RAILS_MAX][16];
        struct fabric_rail_row *rows;
        size_t n;

        CHECK(fabric_rails(other->fabric, &rows, &n) == 0 && n == b->n_rails);
        for (uint32_t rail = 0; rail < b->n_rails; rail++) {
                rail_name(rail, names[rail]);
                rails[rail] = (struct fabric_peer_rail){names[rail], rows[rail].address, rows[rail].port};
        }
        options.rails = rails;
        CHECK(fabric_peer_add(node->fabric, &options) == 0);
        free(rows);
}

static void node_share(struct bench *b, uint32_t i) {
        struct node *node = &b->nodes[i];
        struct fabric_node nodes[NODES * GPUS_MAX];
        struct fabric_area_options options = {.key = 7,
                                              .memory = node->area,
                                              .size = node->area_bytes,
                                              .wake_fd = node->wake_fd,
                                              .nodes = nodes,
                                              .n_ranks = NODES * b->n_gpus,
                                              .class = FABRIC_NORMAL,
                                              .tenant = 1,
                                              .weight = 100};

        for (uint32_t r = 0; r < NODES * b->n_gpus; r++)
                nodes[r] = b->nodes[r / b->n_gpus].id;
        CHECK(fabric_area_add(node->fabric, &options) == 0);
}

static void gpu_start(struct bench *b, uint32_t rank) {
        struct plan_nodes nodes;
        struct node *node = &b->nodes[rank / b->n_gpus];
        const struct plane_net net = {
                .area = node->area, .bytes = node->area_bytes, .doorbell_fd = fabric_doorbell_fd(node->fabric)};
        const uint32_t first = (1 - rank / b->n_gpus) * b->n_gpus;
        struct gpu *gpu = &b->gpus[rank];
        char error[PLANE_TEXT];

        gpu->bench = b;
        gpu->rank = rank;
        gpu->n_far = b->all ? b->n_gpus : 1;
        bench_nodes(b, &nodes);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++) {
                struct strand *strand = &gpu->strands[k];

                strand->gpu = gpu;
                CHECK(wires_new(&net, NODES * b->n_gpus, &nodes, gpu->n_far, k, &strand->wires, error) == 0);
                for (uint32_t i = 0; i < gpu->n_far; i++) {
                        struct wire_end *end = &strand->wires->end[i];

                        end->rank = rank;
                        end->peer = b->all ? first + i : first + rank % b->n_gpus;
                        end->wire = k ? gpu->strands[0].wires->end[i].wire : zeroes(sizeof(struct wire));
                }
                CHECK(pthread_create(&strand->proxy, NULL, proxy_main, strand) == 0);
        }
        CHECK(pthread_create(&gpu->kernel, NULL, kernel_main, gpu) == 0);
}

static int by_value(const void *a, const void *b) {
        const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return x < y ? -1 : x > y;
}

/* Of each node: what was least in any round, and in half of them. */
static void report_kind(const struct bench *b, const struct usage *usage, enum kind kind) {
        uint64_t *ns = calloc(b->n_rounds, sizeof(*ns));
        const struct usage *last = &usage[b->n_rounds];

        CHECK(ns);
        for (uint32_t i = 0; i < b->n_rounds; i++)
                ns[i] = usage[i + 1].ns[kind] - usage[i].ns[kind];
        qsort(ns, b->n_rounds, sizeof(*ns), by_value);
        printf("  %-7s %8.1f %8.1f us, %6.1f calls, %6.1f sleeps\n", kind_names[kind], (double)ns[0] / 1e3 / NODES,
               (double)ns[b->n_rounds / 2] / 1e3 / NODES,
               (double)(last->calls[kind] - usage->calls[kind]) / NODES / b->n_rounds,
               (double)(last->switches[kind] - usage->switches[kind]) / NODES / b->n_rounds);
        free(ns);
}

static void report(const struct bench *b, const uint64_t *ns, const struct usage *usage) {
        struct fabric_counters c;
        struct fabric_rail_row *rows;
        size_t n;

        fabric_counters(b->nodes[0].fabric, &c);
        CHECK(fabric_rails(b->nodes[0].fabric, &rows, &n) == 0);
        printf("%u bytes, %u rails, 2x%u, %s, %s: least %.1f us, half %.1f us\n", b->bytes, b->n_rails, b->n_gpus,
               b->all ? "all" : "partners", b->transport == STAGING_BULK ? "bulk" : "packets", (double)ns[0] / 1e3,
               (double)ns[b->n_rounds / 2] / 1e3);
        printf("of each node and round: %.1f messages, KB by rail:", (double)c.taken / (b->n_rounds + WARM));
        for (size_t i = 0; i < n; i++)
                printf(" %.0f", (double)rows[i].bytes_sent / 1e3 / (b->n_rounds + WARM));
        printf("\n");
        free(rows);
        for (uint32_t k = 0; k < KINDS; k++)
                report_kind(b, usage, k);
}

int main(int argc, char **argv) {
        static struct bench b;
        struct usage *usage;
        uint64_t *ns;

        b.bytes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1u << 20;
        b.n_rails = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 2;
        b.n_gpus = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 1;
        b.n_rounds = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 0) : 200;
        b.all = argc > 5 && strcmp(argv[5], "all") == 0;
        b.transport = argc > 6 && strcmp(argv[6], "bulk") == 0 ? STAGING_BULK : STAGING_PACKET;
        b.stripe_bytes = argc > 7 ? (uint32_t)strtoul(argv[7], NULL, 0) : 0;
        b.spin_us = argc > 8 ? (uint32_t)strtoul(argv[8], NULL, 0) : 0;
        if (!b.bytes || b.n_rails < 1 || b.n_rails > FABRIC_RAILS_MAX || b.n_gpus < 1 || b.n_gpus > GPUS_MAX ||
            !b.n_rounds) {
                fprintf(stderr,
                        "usage: bench_wires [bytes [rails [GPUs of a node, to %u [rounds [partner|all "
                        "[packets|bulk [stripe bytes [us]]]]]]]]\n",
                        GPUS_MAX);
                return 2;
        }
        ns = calloc(b.n_rounds, sizeof(*ns));
        usage = calloc(b.n_rounds + 1, sizeof(*usage));
        CHECK(ns && usage);
        for (uint32_t i = 0; i < NODES; i++)
                node_start(&b, i);
        for (uint32_t i = 0; i < NODES; i++)
                node_meet(&b, i);
        for (uint32_t i = 0; i < NODES; i++)
                node_share(&b, i);
        for (uint32_t r = 0; r < NODES * b.n_gpus; r++)
                gpu_start(&b, r);
        for (uint32_t round = 0; round < WARM + b.n_rounds; round++) {
                uint64_t start;

                if (round >= WARM)
                        usage_take(&usage[round - WARM]);
                start = clock_now_ns();
                b.n_done = 0;
                b.round = round + 1;
                while (b.n_done < NODES * b.n_gpus)
                        sched_yield();
                if (round >= WARM)
                        ns[round - WARM] = clock_now_ns() - start;
        }
        usage_take(&usage[b.n_rounds]);
        b.stop = true;
        for (uint32_t r = 0; r < NODES * b.n_gpus; r++) {
                for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                        pthread_join(b.gpus[r].strands[k].proxy, NULL);
                pthread_join(b.gpus[r].kernel, NULL);
        }
        qsort(ns, b.n_rounds, sizeof(*ns), by_value);
        report(&b, ns, usage);
        for (uint32_t i = 0; i < NODES; i++)
                b.nodes[i].fabric = fabric_free(b.nodes[i].fabric);
        free(ns);
        free(usage);
        return 0;
}
