/* SPDX-License-Identifier: MIT */
#include "tests/executor/fake_plane.h"

#include "gpu/plane.h"
#include "ring/net.h"
#include "tests/executor/fake_net.h"
#include "util/bundle.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_THINGS 2048u

struct fake_thing {
        uint64_t key;
        uint64_t sub;
        const void *memory;
};

struct fake_set {
        struct fake_thing things[FAKE_THINGS];
        unsigned int n;
};

struct plane {
        struct plane_options options;
        uint32_t workers;
        const int32_t *latch;
        struct fake_set rings, buffers, reached, comms, peers;
        bool reaches;
        bool bursts;
        struct fake_comm {
                uint64_t peers; /* mask of GPUs whose pools it uses */
                uint64_t here;  /* mask of ranks */
                bool held, has_upto;
                uint32_t upto;
                struct fake_net *net; /* it has ranks elsewhere */
        } comm[FAKE_THINGS];          /* by place in comms */
        bool drained;
};

/* ---- the directory ----------------------------------------------------------------------------------------------- */

static FILE *fake_open(const char *name, const char *mode) {
        const char *directory = getenv(FAKE_PLANE_DIRECTORY);
        char path[512];

        snprintf(path, sizeof(path), "%s/%s", directory ? directory : "/nonexistent", name);
        return fopen(path, mode);
}

static FILE *fake_open_of(const struct plane *plane, const char *name, const char *mode) {
        char numbered[64];

        snprintf(numbered, sizeof(numbered), "%u.%s", plane->options.device, name);
        return fake_open(numbered, mode);
}

static bool fake_exists(const struct plane *plane, const char *name) {
        FILE *file = fake_open_of(plane, name, "re");

        if (file)
                fclose(file);
        return file != NULL;
}

/* One write per line: lines of a predecessor that is being killed stay whole. */
static void fake_log(const struct plane *plane, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fake_log(const struct plane *plane, const char *format, ...) {
        FILE *file = fake_open_of(plane, "log", "ae");
        char line[2048];
        va_list args;
        int n;

        if (!file)
                return;
        va_start(args, format);
        n = vsnprintf(line, sizeof(line) - 1, format, args);
        va_end(args);
        line[n++] = '\n';
        (void)!write(fileno(file), line, (size_t)n);
        fclose(file);
}

/* A call that must not have been made: the test that caused it fails. */
static void fake_wrong(const struct plane *plane, const char *what, uint64_t key) {
        fake_log(plane, "WRONG %s %" PRIu64, what, key);
        fprintf(stderr, "fake plane %u: WRONG %s %" PRIu64 "\n", plane->options.device, what, key);
        abort();
}

/* Is this call to fail? */
static int fake_fails(const struct plane *plane, const char *call, char *error) {
        FILE *file = fake_open_of(plane, "fail", "re");
        char name[64] = "";
        int number = 0;

        if (!file)
                return 0;
        if (fscanf(file, "%63s %d", name, &number) != 2 || strcmp(name, call) != 0)
                number = 0;
        fclose(file);
        if (number)
                snprintf(error, PLANE_TEXT, "the test says that %s fails", call);
        return -number;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

static struct fake_thing *fake_find(struct fake_set *set, uint64_t key, uint64_t sub) {
        for (unsigned int i = 0; i < set->n; i++)
                if (set->things[i].key == key && set->things[i].sub == sub)
                        return &set->things[i];
        return NULL;
}

static struct fake_thing *fake_add(const struct plane *plane, struct fake_set *set, const char *what, uint64_t key,
                                   uint64_t sub) {
        struct fake_thing *thing;

        if (fake_find(set, key, sub) || set->n == FAKE_THINGS)
                fake_wrong(plane, what, key);
        thing = &set->things[set->n++];
        *thing = (struct fake_thing){.key = key, .sub = sub};
        return thing;
}

static void fake_remove(const struct plane *plane, struct fake_set *set, const char *what, uint64_t key, uint64_t sub) {
        struct fake_thing *thing = fake_find(set, key, sub);

        if (!thing)
                fake_wrong(plane, what, key);
        else
                *thing = set->things[--set->n];
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void fake_gpu(uint32_t index, struct plane_gpu *gpu) {
        snprintf(gpu->name, sizeof(gpu->name), "Fake %u", index);
        snprintf(gpu->pci, sizeof(gpu->pci), "0000:%02x:00.0", 0x10 + index);
        gpu->memory_bytes = UINT64_C(64) << 30;
        gpu->processors = 100 + index;
}

static int fake_probe(struct plane_probe *ret_probe, char *error) {
        FILE *file = fake_open("gpus", "re");
        unsigned int n = 4;

        *ret_probe = (struct plane_probe){.runtime = "Fake 1.0"};
        if (file) {
                if (fscanf(file, "%u", &n) != 1)
                        n = 0;
                if (fgets(ret_probe->problem, sizeof(ret_probe->problem), file)) {
                        memmove(ret_probe->problem, ret_probe->problem + 1, strlen(ret_probe->problem));
                        ret_probe->problem[strcspn(ret_probe->problem, "\n")] = '\0';
                }
                fclose(file);
        }
        if (n > PLANE_GPUS_MAX) {
                snprintf(error, PLANE_TEXT, "the fake runtime does not start");
                return -EIO;
        }
        for (uint32_t i = 0; i < n; i++)
                fake_gpu(i, &ret_probe->gpu[i]);
        ret_probe->n_gpus = n;
        return 0;
}

static int fake_plane_open(const struct plane_options *options, struct plane **ret_plane, char *error) {
        struct plane *plane = calloc(1, sizeof(*plane));
        FILE *file;
        int r;

        if (!plane)
                return -ENOMEM;
        plane->options = *options;
        plane->workers = FAKE_PLANE_WORKERS;
        file = fake_open_of(plane, "workers", "re");
        if (file) {
                if (fscanf(file, "%u", &plane->workers) != 1)
                        plane->workers = 0;
                fclose(file);
        }
        plane->reaches = fake_exists(plane, "reaches");
        plane->bursts = fake_exists(plane, "bursts");
        r = fake_fails(plane, "open", error);
        if (r) {
                free(plane);
                return r;
        }
        fake_log(plane, "open pid=%d policy=%u blocks=%u", (int)getpid(), options->policy, options->blocks);
        *ret_plane = plane;
        return 0;
}

static void fake_plane_close(struct plane *plane) {
        if (!plane)
                return;
        while (fake_exists(plane, "lingers")) /* its kernels end now at the latest */
                poll(NULL, 0, 2);
        fake_log(plane, "close rings=%u buffers=%u comms=%u", plane->rings.n, plane->buffers.n, plane->comms.n);
        for (unsigned int i = 0; i < plane->comms.n; i++)
                fake_net_free(plane->comm[i].net);
        free(plane);
}

static void fake_info(struct plane *plane, struct plane_info *ret_info) {
        struct plane_memory *pool = &ret_info->pool;
        FILE *file = fake_open("pool", "re");

        *ret_info = (struct plane_info){
                .policy = plane->options.policy,
                .resident_blocks = plane->options.blocks ? plane->options.blocks : 2,
                .threads = 512,
                .n_workers = plane->workers,
                .reaches = plane->reaches,
                .bursts = plane->bursts,
                .pool_bytes = FAKE_PLANE_POOL,
        };
        fake_gpu(plane->options.device, &ret_info->gpu);
        if (file) {
                (void)!fscanf(file, "%" SCNu64, &ret_info->pool_bytes);
                fclose(file);
        }
        file = fake_open_of(plane, "shuns", "re");
        if (file) {
                (void)!fscanf(file, "%" SCNu64, &ret_info->shuns);
                fclose(file);
                fake_log(plane, "shuns %" PRIu64, ret_info->shuns);
        }
        pool->kind = PLANE_MEMORY_IPC;
        pool->n_handle = PLANE_HANDLE_BYTES;
        snprintf((char *)pool->handle, sizeof(pool->handle), "pool of %u", plane->options.device);
        pool->allocation_bytes = pool->bytes = ret_info->pool_bytes;
        pool->fd = -1;
}

static int fake_peer_add(struct plane *plane, uint32_t gpu, uint64_t instance, const struct plane_memory *pool,
                         char *error) {
        struct fake_thing *peer = fake_find(&plane->peers, gpu, 0);
        int r = fake_fails(plane, "peer_add", error);

        fake_log(plane, "peer_add %u bytes=%" PRIu64 " '%s'", gpu, pool->bytes, (const char *)pool->handle);
        if (r)
                return r;
        for (unsigned int i = 0; peer && i < plane->comms.n; i++)
                if (plane->comm[i].peers >> gpu & 1 && !plane->comm[i].held)
                        fake_wrong(plane, "peer_add under a comm", plane->comms.things[i].key);
        if (!peer)
                peer = fake_add(plane, &plane->peers, "peer_add", gpu, 0);
        (void)instance;
        return 0;
}

static void fake_peer_remove(struct plane *plane, uint32_t gpu) {
        fake_log(plane, "peer_remove %u", gpu);
        fake_remove(plane, &plane->peers, "peer_remove", gpu, 0);
}

static int fake_latch(struct plane *plane, void *page, char *error) {
        int r = fake_fails(plane, "latch", error);

        fake_log(plane, "latch");
        if (plane->latch)
                fake_wrong(plane, "latch", 0);
        if (!r)
                plane->latch = page;
        return r;
}

static int fake_ring_attach(struct plane *plane, uint64_t session, const struct plane_memory *area, const void *host,
                            int soon_fd, char *error) {
        int r = fake_fails(plane, "ring_attach", error);
        const uint64_t one = 1;

        fake_log(plane, "ring_attach %" PRIu64 " offset=%" PRIu64 " bytes=%" PRIu64 " '%s' wake=%u%s latch=%d", session,
                 area->offset, area->bytes, (const char *)area->handle, *(const uint32_t *)host,
                 write(soon_fd, &one, sizeof(one)) == sizeof(one) ? " soon" : "", plane->latch ? *plane->latch : -1);
        if (!r)
                fake_add(plane, &plane->rings, "ring_attach", session, 0)->memory = host;
        return r;
}

static void fake_ring_detach(struct plane *plane, uint64_t session) {
        struct fake_thing *ring = fake_find(&plane->rings, session, 0);

        for (uint32_t i = plane->buffers.n; i-- > 0;) {
                if (plane->buffers.things[i].key != session)
                        continue;
                fake_log(plane, "buffer_retire %" PRIu64 ".%" PRIu64 " with all", session,
                         plane->buffers.things[i].sub);
                plane->buffers.things[i] = plane->buffers.things[--plane->buffers.n];
        }
        if (!ring)
                return;
        /* Still mapped: what the executor would fault on. */
        fake_log(plane, "ring_detach %" PRIu64 " wake=%u", session, *(const uint32_t *)ring->memory);
        fake_remove(plane, &plane->rings, "ring_detach", session, 0);
}

static void fake_log_memory(struct plane *plane, const char *call, uint64_t session, uint32_t id,
                            const struct plane_memory *memory) {
        struct bundle bundle;

        if (memory->kind == PLANE_MEMORY_IPC) {
                fake_log(plane, "%s %" PRIu64 ".%u offset=%" PRIu64 " bytes=%" PRIu64 " '%s'", call, session, id,
                         memory->offset, memory->bytes, (const char *)memory->handle);
                return;
        }
        if (bundle_peek(memory->fd, &bundle))
                fake_wrong(plane, call, session);
        fake_log(plane, "%s %" PRIu64 ".%u offset=%" PRIu64 " bytes=%" PRIu64 " chunks=%u of %" PRIu64, call, session,
                 id, memory->offset, memory->bytes, bundle.n, bundle_bytes(&bundle));
        bundle_close(&bundle);
}

static int fake_buffer_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory,
                              char *error) {
        int r = fake_fails(plane, "buffer_import", error);

        fake_log_memory(plane, "buffer_import", session, id, memory);
        if (!r)
                fake_add(plane, &plane->buffers, "buffer_import", session, id);
        return r;
}

/* Like a kernel that is slow to acknowledge. */
static void fake_slow(const struct plane *plane, const char *name) {
        while (fake_exists(plane, name))
                poll(NULL, 0, 1);
}

static void fake_buffer_retire(struct plane *plane, uint64_t session, uint32_t id) {
        fake_log(plane, "buffer_retire %" PRIu64 ".%u", session, id);
        fake_slow(plane, "slow_buffers");
        fake_remove(plane, &plane->buffers, "buffer_retire", session, id);
}

static int fake_buffer_reach(struct plane *plane, uint64_t session, uint32_t id, uint64_t gpus, char *error) {
        fake_log(plane, "buffer_reach %" PRIu64 ".%u gpus=%" PRIx64, session, id, gpus);
        if (!fake_find(&plane->buffers, session, id) || gpus >> plane->options.device & 1 || !plane->reaches)
                fake_wrong(plane, "buffer_reach", session);
        fake_slow(plane, "slow_tell");
        return fake_fails(plane, "buffer_reach", error);
}

static int fake_reach_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory,
                             char *error) {
        int r = fake_fails(plane, "reach_import", error);

        fake_log_memory(plane, "reach_import", session, id, memory);
        if (!plane->reaches)
                fake_wrong(plane, "reach_import", session);
        fake_slow(plane, "slow_import");
        if (!r)
                fake_add(plane, &plane->reached, "reach_import", session, id);
        return r;
}

static void fake_reach_retire(struct plane *plane, uint64_t session, uint32_t id) {
        fake_log(plane, "reach_retire %" PRIu64 ".%u", session, id);
        fake_slow(plane, "slow_reach");
        if (id)
                fake_remove(plane, &plane->reached, "reach_retire", session, id);
        for (unsigned int i = 0; !id && i < plane->reached.n;)
                if (plane->reached.things[i].key == session)
                        plane->reached.things[i] = plane->reached.things[--plane->reached.n];
                else
                        i++;
}

/* Of one over several nodes: its area is there, and of the size that all nodes expect. */
static struct fake_net *fake_net(const struct plane *plane, const struct plane_comm *comm, bool far) {
        struct fake_net *net = NULL;
        uint8_t node[PLAN_RANKS_MAX];
        struct plan_nodes nodes;
        uint64_t memory_bytes;
        uint32_t capacity;

        if (comm->code || (!far && !comm->net))
                return NULL;
        for (uint32_t r = 0; r < comm->n_ranks; r++)
                node[r] = comm->members[r].node;
        if (!far || !comm->net || comm->net->doorbell_fd < 0 || plan_nodes_init(&nodes, comm->n_ranks, node) ||
            plane_net_size(comm->n_ranks, &nodes, &capacity, &memory_bytes) ||
            !net_area_valid(comm->net->area, net_area_bytes(capacity, memory_bytes)) ||
            comm->net->area->capacity != capacity || comm->net->area->memory_bytes != memory_bytes ||
            !(net = fake_net_new(comm)))
                fake_wrong(plane, "comm_attach with another net area", comm->id);
        return net;
}

static int fake_comm_attach(struct plane *plane, const struct plane_comm *comm, char *error) {
        int r = fake_fails(plane, "comm_attach", error);
        bool far = false;
        char members[1024] = "";
        uint64_t peers = 0, here = 0;
        size_t used = 0;

        for (uint32_t i = 0; i < comm->n_ranks; i++) {
                const struct plane_comm_member *member = &comm->members[i];

                far = far || member->far;
                if (member->far || (comm->code && !member->session && !member->here)) {
                        used += (size_t)snprintf(members + used, sizeof(members) - used, " %s",
                                                 member->far ? "far" : "gone");
                        continue;
                }
                used += (size_t)snprintf(members + used, sizeof(members) - used, " %s%u@%" PRIu64,
                                         member->here ? "+" : "", member->gpu, member->staging);
                here |= (uint64_t)member->here << i;
                if (member->here)
                        continue;
                peers |= UINT64_C(1) << member->gpu;
                if (!fake_find(&plane->peers, member->gpu, 0))
                        fake_wrong(plane, "comm_attach without a peer", comm->id);
        }
        fake_log(plane,
                 "comm_attach %" PRIu64 " ranks=%u code=%u rank=%d choices=%u%s lanes=%u reach=%" PRIu64
                 " burst=%" PRIu64,
                 comm->id, comm->n_ranks, comm->code, comm->failed_rank, comm->n_choices, members, comm->lanes,
                 comm->reach_bytes, comm->burst_bytes);
        used = 0;
        for (uint32_t i = 0; comm->net && i < comm->n_ranks; i++)
                used += (size_t)snprintf(members + used, sizeof(members) - used, " %u", comm->members[i].node);
        if (comm->net)
                fake_log(plane, "comm_nodes %" PRIu64 "%s", comm->id, members);
        if (r)
                return r;
        if (comm->first)
                fake_log(plane, "comm_first %" PRIu64 " %u", comm->id, comm->first);
        plane->comm[plane->comms.n] =
                (struct fake_comm){.peers = peers, .here = here, .net = fake_net(plane, comm, far)};
        fake_add(plane, &plane->comms, "comm_attach", comm->id, 0);
        return 0;
}

static struct fake_comm *fake_comm(struct plane *plane, uint64_t comm) {
        struct fake_thing *thing = fake_find(&plane->comms, comm, 0);

        return thing ? &plane->comm[thing - plane->comms.things] : NULL;
}

static int fake_comm_hold(struct plane *plane, uint64_t id, bool has_upto, uint32_t upto, char *error) {
        struct fake_comm *comm = fake_comm(plane, id);
        int r = fake_fails(plane, "comm_hold", error);

        fake_log(plane, "comm_hold %" PRIu64 " upto=%d", id, has_upto ? (int)upto : -1);
        if (!comm)
                fake_wrong(plane, "comm_hold", id);
        if (r)
                return r;
        comm->held = true;
        comm->has_upto = has_upto;
        comm->upto = upto;
        return 0;
}

/* A rank has begun what "taken" says, and what it is told to. */
static uint32_t fake_comm_level(struct plane *plane, uint64_t id, struct plane_level *levels, uint32_t max) {
        const struct fake_comm *comm = fake_comm(plane, id);
        FILE *file = fake_open_of(plane, "taken", "re");
        uint32_t n = 0, taken = 0;

        if (file && fscanf(file, "%u", &taken) != 1)
                taken = 0;
        if (file)
                fclose(file);
        for (uint32_t rank = 0; comm && comm->held && rank < 64 && n < max; rank++)
                if (comm->here >> rank & 1) {
                        levels[n] = (struct plane_level){
                                .rank = rank,
                                .taken = comm->has_upto && (int32_t)(comm->upto - taken) > 0 ? comm->upto : taken,
                                .settled = !fake_exists(plane, "unsettled"),
                        };
                        for (uint32_t p = 0; p < PLAN_RANKS_MAX; p++) { /* any number that fits the others' */
                                levels[n].pushed[p] = 100 * rank + p + fake_exists(plane, "pushed");
                                levels[n].pulled[p] = 100 * p + rank;
                        }
                        n++;
                }
        return n;
}

static int fake_comm_move(struct plane *plane, const struct plane_comm *what, char *error) {
        struct fake_comm *comm = fake_comm(plane, what->id);

        fake_log(plane, "comm_move %" PRIu64 " first=%u lanes=%u reach=%" PRIu64 " burst=%" PRIu64, what->id,
                 what->first, what->lanes, what->reach_bytes, what->burst_bytes);
        if (!comm || !comm->held)
                fake_wrong(plane, "comm_move", what->id);
        return fake_fails(plane, "comm_move", error);
}

static void fake_comm_release(struct plane *plane, uint64_t id) {
        struct fake_comm *comm = fake_comm(plane, id);

        fake_log(plane, "comm_release %" PRIu64, id);
        if (!comm || !comm->held)
                fake_wrong(plane, "comm_release", id);
        else
                comm->held = false;
}

static void fake_comm_abort(struct plane *plane, uint64_t comm, uint32_t status) {
        fake_log(plane, "comm_abort %" PRIu64 " code=%u rank=%d", comm, status & 0xff, (int)(status >> 16) - 1);
        if (!fake_find(&plane->comms, comm, 0))
                fake_wrong(plane, "comm_abort", comm);
        if (fake_comm(plane, comm))
                fake_comm(plane, comm)->held = false;
        while (fake_exists(plane, "hang"))
                poll(NULL, 0, 10);
}

static void fake_comm_thaw(struct plane *plane, uint64_t comm) {
        fake_log(plane, "comm_thaw %" PRIu64, comm);
        if (!fake_find(&plane->comms, comm, 0))
                fake_wrong(plane, "comm_thaw", comm);
}

static void fake_comm_detach(struct plane *plane, uint64_t comm) {
        struct fake_thing *thing = fake_find(&plane->comms, comm, 0);

        fake_log(plane, "comm_detach %" PRIu64, comm);
        fake_slow(plane, "slow_detach");
        if (thing) {
                fake_net_free(plane->comm[thing - plane->comms.things].net);
                plane->comm[thing - plane->comms.things] = plane->comm[plane->comms.n - 1];
        }
        fake_remove(plane, &plane->comms, "comm_detach", comm, 0);
}

static void fake_rank_leave(struct plane *plane, uint64_t comm, uint32_t rank, uint32_t last) {
        fake_log(plane, "rank_leave %" PRIu64 " rank=%u last=%u", comm, rank, last);
        if (!fake_find(&plane->comms, comm, 0))
                fake_wrong(plane, "rank_leave", comm);
}

static int fake_tick(struct plane *plane, char *error) {
        uint32_t rank, peer;

        for (unsigned int i = 0; i < plane->comms.n; i++) {
                if (plane->comm[i].net && fake_exists(plane, "speaks"))
                        fake_net_say(plane->comm[i].net);
                if (plane->comm[i].net && fake_net_step(plane->comm[i].net, &rank, &peer))
                        fake_log(plane, "net %" PRIu64 " rank=%u from=%u", plane->comms.things[i].key, rank, peer);
        }
        if (!fake_exists(plane, "lost"))
                return 0;
        snprintf(error, PLANE_TEXT, "the test has taken the context away");
        return -EIO;
}

static uint32_t fake_report(struct plane *plane, struct plane_rank_report *reports, uint32_t max) {
        FILE *file = fake_open_of(plane, "reports", "re");
        struct plane_rank_report report = {0};
        uint32_t n = 0;

        while (file && n < max &&
               fscanf(file, "%" SCNu64 " %u %u %u %u %u", &report.comm, &report.rank, &report.rung, &report.finished,
                      &report.operation, &report.status) == 6)
                if (fake_find(&plane->comms, report.comm, 0))
                        reports[n++] = report;
        if (file)
                fclose(file);
        return n;
}

static uint32_t fake_pairs(struct plane *plane, struct plane_pair_report *reports, uint32_t max) {
        FILE *file = fake_open_of(plane, "pairs", "re");
        struct plane_pair_report report;
        uint32_t n = 0;
        int sends;

        while (file && n < max &&
               fscanf(file, "%" SCNu64 " %u %u %d %u %u", &report.comm, &report.rank, &report.peer, &sends,
                      &report.rung, &report.finished) == 6) {
                report.sends = sends != 0;
                if (fake_find(&plane->comms, report.comm, 0) && report.rung != report.finished)
                        reports[n++] = report;
        }
        if (file)
                fclose(file);
        return n;
}

static bool fake_drain(struct plane *plane) {
        if (fake_exists(plane, "busy"))
                return false;
        if (!plane->drained)
                fake_log(plane, "drain");
        plane->drained = true;
        return true;
}

__attribute__((visibility("default"))) extern const struct plane_ops railmux_gpu_plane;
const struct plane_ops railmux_gpu_plane = {
        .version = PLANE_VERSION,
        .name = "hip",
        .probe = fake_probe,
        .open = fake_plane_open,
        .close = fake_plane_close,
        .info = fake_info,
        .peer_add = fake_peer_add,
        .peer_remove = fake_peer_remove,
        .latch = fake_latch,
        .ring_attach = fake_ring_attach,
        .ring_detach = fake_ring_detach,
        .buffer_import = fake_buffer_import,
        .buffer_retire = fake_buffer_retire,
        .buffer_reach = fake_buffer_reach,
        .reach_import = fake_reach_import,
        .reach_retire = fake_reach_retire,
        .comm_attach = fake_comm_attach,
        .comm_abort = fake_comm_abort,
        .comm_thaw = fake_comm_thaw,
        .comm_detach = fake_comm_detach,
        .rank_leave = fake_rank_leave,
        .comm_hold = fake_comm_hold,
        .comm_level = fake_comm_level,
        .comm_move = fake_comm_move,
        .comm_release = fake_comm_release,
        .tick = fake_tick,
        .report = fake_report,
        .pairs = fake_pairs,
        .drain = fake_drain,
};
