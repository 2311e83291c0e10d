/* SPDX-License-Identifier: MIT */
/*
 * The plane's table (gpu/plane.h), and what is made when a GPU is taken into service.
 *
 * Order of a plane's life: the device's context; streams, tables, pools, scratch, with everything cleared once, so that
 * the runtime's own kernels for that are loaded; then the resident kernel. From then on nothing is allocated or freed
 * on the device. What fails later and leaves the tables in doubt is a fault: calls return it, tick reports it, and the
 * executor ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/buffers.h"
#include "gpu/hip/comms.h"
#include "gpu/hip/device.h"
#include "gpu/hip/error.h"
#include "gpu/hip/hip.h"
#include "gpu/hip/hold.h"
#include "gpu/hip/reach.h"
#include "gpu/hip/rings.h"
#include "util/clock.h"
#include "util/parse.h"

/* On an H200, all-reduces of half a megabyte take 10 us with sixteen resident blocks and 28 us with two; but with eight
 * the clients' small GEMMs already lose a tenth to a quarter of their speed, with two a percent at most. */
#define BLOCKS_LATENCY 17u /* of 8 warps: a worker for each lane */
#define BLOCKS_SHARED  2u
#define STOP_LEAST_MS  1000u
#define LEFT_NS        UINT64_C(500000000) /* if nothing is said */
#define ASK_NS         UINT64_C(1000000000)

/* ---- faults ------------------------------------------------------------------------------------------------------ */
int plane_fault(struct plane *plane, int r, const char *text) {
        if (r < 0 && !plane->fault) {
                plane->fault = -EIO;
                error_set(0, plane->fault_text, "%s", text);
        }
        return r;
}

void plane_lock(struct plane *plane) {
        atomic_fetch_add_explicit(&plane->n_wanting, 1, memory_order_relaxed); /* a hint */
        pthread_mutex_lock(&plane->lock);
        atomic_fetch_sub_explicit(&plane->n_wanting, 1, memory_order_relaxed);
}

void plane_unlock(struct plane *plane) {
        pthread_mutex_unlock(&plane->lock);
}

bool plane_try_lock(struct plane *plane) {
        return !atomic_load_explicit(&plane->n_wanting, memory_order_relaxed) && !pthread_mutex_trylock(&plane->lock);
}

int plane_check(const struct plane *plane, char *error) {
        return plane->fault ? error_set(plane->fault, error, "%s", plane->fault_text) : 0;
}

int plane_changed(struct plane *plane, int r, const char *what, char *error) {
        if (!r)
                return 0;
        if (r == -ENOSPC)
                return error_set(r, error, "there is no room for %s in the kernels' tables", what);
        if (r == -EEXIST)
                return error_set(r, error, "%s of that name exists", what);
        plane_fault(plane, r, plane->tables.text);
        return error_set(r, error, "%s", plane->tables.text);
}

int plane_commit(struct plane *plane, char *error) {
        char text[PLANE_TEXT];
        int r = tables_commit(&plane->tables, &plane->park, text);

        return r ? error_set(plane_fault(plane, r, text), error, "%s", text) : 0;
}

/* Other calls report an error of their own for a context that is lost, or one that may also be a client's mistake; so
 * the context itself is asked. */
static int context_check(struct plane *plane, char *error) {
        bool done;

        plane->asked_ns = clock_now_ns();
        return runtime_done(plane->control, &done, "the GPU's context", error);
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */
static uint32_t blocks_of(const struct plane_options *options) {
        if (options->blocks)
                return options->blocks;
        return options->policy == PLANE_LATENCY ? BLOCKS_LATENCY : BLOCKS_SHARED;
}

/* For measurements: at most so many blocks of one burst. */
static uint32_t burst_blocks(void) {
        const char *wish = getenv("RAILMUX_GPU_BURST_BLOCKS");

        return wish ? (uint32_t)strtoul(wish, NULL, 10) : 0;
}

/* Bursts of so many bytes that add nothing up are moved by copy engines; none are if nothing is said. */
static int burst_copies(uint64_t *ret_bytes, char *error) {
        const char *wish = getenv("RAILMUX_GPU_COPIES");

        *ret_bytes = 0;
        if (wish && parse_size(wish, ret_bytes))
                return error_set(-EINVAL, error, "RAILMUX_GPU_COPIES is no size: %s", wish);
        return 0;
}

static int words_open(struct plane *plane, char *error) {
        void *words = NULL;
        int r = runtime_check(hipHostMalloc(&words, sizeof(*plane->words), hipHostMallocPortable),
                              "allocating pinned memory", error);

        if (r)
                return r;
        plane->words = words;
        memset(plane->words, 0, sizeof(*plane->words));
        plane->words->value[1] = 1;
        return 0;
}

/* To go with a kernel that still runs ends the contexts of others on some systems, so it is waited for as long as it
 * may take, however long the copies to the areas have taken. (Who stops executors gives them more time than that.) */
static int stop_at_last(struct plane *plane, char *error) {
        const uint64_t began_ns = clock_now_ns();
        uint64_t gone_ms;
        int r = rings_tell_parked(plane, error);

        if (r)
                return r;
        gone_ms = (clock_now_ns() - began_ns) / 1000000;
        return park_stop(
                &plane->park, &plane->tables, PARK_AT_ONCE,
                gone_ms < RUNTIME_LOST_MS - STOP_LEAST_MS ? RUNTIME_LOST_MS - (uint32_t)gone_ms : STOP_LEAST_MS, error);
}

static void hip_close(struct plane *plane) {
        char text[PLANE_TEXT];
        int r = 0;

        if (!plane)
                return;
        watch_close(&plane->watch);
        if ((plane->park.running || plane->park.queued || plane->leave.asked_ns) && !plane->fault) {
                plane->parked = true; /* a successor may serve the areas; until then, wake words tell who waits */
                r = stop_at_last(plane, text);
                plane_fault(plane, r, text);
        }
        burst_close(&plane->burst, plane->fault != 0);
        comms_close(plane);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                proxy_deinit(&plane->proxy[k]);
        slabs_close(plane, plane->fault != 0);
        rings_close(plane);
        reach_close(plane);
        for (uint32_t i = 0; i < PLANE_GPUS_MAX; i++)
                comms_peer_remove(plane, i);
        memory_deinit(&plane->memory, plane->fault != 0);
        if (!plane->fault) { /* else the context is gone or a kernel still runs, and the process ends anyway */
                park_close(&plane->park);
                pool_close(&plane->states);
                pool_close(&plane->pool);
                tables_close(&plane->tables);
                if (plane->words)
                        (void)hipHostFree(plane->words);
                if (plane->control)
                        (void)hipStreamDestroy(plane->control);
        }
        choices_deinit(&plane->choices);
        pthread_mutex_destroy(&plane->lock);
        free(plane);
}

static int plane_make(struct plane *plane, const struct plane_options *options, char *error) {
        uint64_t copies;
        int r = burst_copies(&copies, error);

        if (!r)
                r = device_select(plane->device, &plane->gpu, error);
        if (!r)
                r = runtime_check(hipStreamCreateWithFlags(&plane->control, hipStreamNonBlocking), "making a stream",
                                  error);
        if (!r)
                r = words_open(plane, error);
        if (!r)
                r = tables_open(&plane->tables, plane->control, error);
        if (!r)
                r = park_open(&plane->park, blocks_of(options), &plane->tables, error);
        if (!r)
                r = pool_open(&plane->states, (uint64_t)TABLE_RANKS * sizeof(struct lane_states), plane->control,
                              "allocating lane states", error);
        if (!r)
                r = pool_open_staging(&plane->pool, options->pool_bytes, plane->control, error);
        if (!r)
                r = burst_open(&plane->burst, plane, burst_blocks(), copies, error);
        if (!r)
                r = park_launch(&plane->park, &plane->tables, error);
        return r ? r : watch_open(&plane->watch, plane, error);
}

static int hip_open(const struct plane_options *options, struct plane **ret_plane, char *error) {
        struct plane *plane;
        int r;

        if (options->policy > PLANE_LATENCY)
                return error_set(-EINVAL, error, "there is no policy %u", options->policy);
        plane = calloc(1, sizeof(*plane));
        if (!plane)
                return error_set(-ENOMEM, error, "out of memory");
        pthread_mutex_init(&plane->lock, NULL);
        leave_init(&plane->leave);
        choices_init(&plane->choices, options->told_fd > 0 ? options->told_fd : -1);
        plane->device = options->device;
        plane->policy = options->policy;
        plane->left_ns = options->left_ns ? options->left_ns : LEFT_NS;
        memory_init(&plane->memory, options->device);
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                proxy_init(&plane->proxy[k]);
        r = plane_make(plane, options, error);
        if (r) {
                hip_close(plane);
                return r;
        }
        *ret_plane = plane;
        return 0;
}

static void hip_info(struct plane *plane, struct plane_info *ret_info) {
        struct kernel_shape shape;

        plane_lock(plane);
        kernel_shape(plane->park.n_blocks, plane->park.launched_wide, &shape);
        *ret_info = (struct plane_info){
                .gpu = plane->gpu,
                .policy = plane->policy,
                .resident_blocks = plane->park.running ? shape.blocks : 0,
                .threads = shape.threads,
                .n_workers = plane->park.n_workers,
                .parked = plane->parked,
                .reaches = reach_able(),
                .bursts = reach_able(),
                .parks = plane->parks,
                .wakes = plane->wakes,
                .shuns = plane->park.latch.n_shunned,
                .pool_bytes = plane->pool.bytes,
                .table_bytes = sizeof(struct table) + plane->states.bytes + kernel_scratch_bytes(plane->park.n_blocks),
                .pool = plane->pool.exported,
        };
        plane_unlock(plane);
}

/* What all calls that return something begin and end with. */
static int enter(struct plane *plane, char *error) {
        plane_lock(plane);
        return plane_check(plane, error);
}

static int leave(struct plane *plane, int r) {
        char text[PLANE_TEXT];

        if ((r == -EIO || r == -ETIMEDOUT) && !plane->fault)
                plane_fault(plane, context_check(plane, text), text);
        plane_unlock(plane);
        return r;
}

/* ---- the table's calls ------------------------------------------------------------------------------------------- */
static int hip_peer_add(struct plane *plane, uint32_t gpu, uint64_t instance, const struct plane_memory *pool,
                        char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : comms_peer_add(plane, gpu, instance, pool, error));
}

static void hip_peer_remove(struct plane *plane, uint32_t gpu) {
        plane_lock(plane);
        comms_peer_remove(plane, gpu);
        plane_unlock(plane);
}

static int hip_latch(struct plane *plane, void *page, char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : latch_open(&plane->park.latch, plane->control, page, error));
}

static int hip_ring_attach(struct plane *plane, uint64_t session, const struct plane_memory *area, const void *host,
                           int soon_fd, char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : rings_attach(plane, session, area, host, soon_fd, error));
}

static void hip_ring_detach(struct plane *plane, uint64_t session) {
        plane_lock(plane);
        if (!plane->fault)
                rings_detach(plane, session);
        plane_unlock(plane);
}

static int hip_buffer_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory,
                             char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : buffers_import(plane, session, id, memory, error));
}

static void hip_buffer_retire(struct plane *plane, uint64_t session, uint32_t id) {
        plane_lock(plane);
        if (!plane->fault)
                buffers_retire(plane, session, id);
        plane_unlock(plane);
}

static int hip_buffer_reach(struct plane *plane, uint64_t session, uint32_t id, uint64_t gpus, char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : reach_tell(plane, session, id, gpus, error));
}

static int hip_reach_import(struct plane *plane, uint64_t session, uint32_t id, const struct plane_memory *memory,
                            char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : reach_import(plane, session, id, memory, error));
}

static void hip_reach_retire(struct plane *plane, uint64_t session, uint32_t id) {
        plane_lock(plane);
        if (!plane->fault)
                reach_retire(plane, session, id);
        plane_unlock(plane);
}

/* Nobody else looks at what is known of plans, so other threads need not wait meanwhile. */
static bool hip_comm_ready(struct plane *plane, const struct plane_comm *comm) {
        return comms_ready(plane, comm);
}

static void hip_comm_round(struct plane *plane) {
        choices_round(&plane->choices);
}

static int hip_comm_attach(struct plane *plane, const struct plane_comm *comm, char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : comms_attach(plane, comm, error));
}

static void hip_comm_abort(struct plane *plane, uint64_t comm, uint32_t status) {
        plane_lock(plane);
        if (!plane->fault)
                comms_abort(plane, comm, status);
        plane_unlock(plane);
}

static void hip_comm_thaw(struct plane *plane, uint64_t comm) {
        plane_lock(plane);
        if (!plane->fault)
                comms_thaw(plane, comm);
        plane_unlock(plane);
}

/* After a fault, too: the caller is about to unmap what the proxy works on. */
static void hip_comm_detach(struct plane *plane, uint64_t comm) {
        plane_lock(plane);
        comms_detach(plane, comm);
        plane_unlock(plane);
}

static void hip_rank_leave(struct plane *plane, uint64_t comm, uint32_t rank, uint32_t last) {
        plane_lock(plane);
        if (!plane->fault)
                comms_leave(plane, comm, rank, last);
        plane_unlock(plane);
}

static int hip_comm_hold(struct plane *plane, uint64_t comm, bool has_upto, uint32_t upto, char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : hold_begin(plane, comm, has_upto, upto, error));
}

static uint32_t hip_comm_level(struct plane *plane, uint64_t comm, struct plane_level *levels, uint32_t max) {
        uint32_t n;

        plane_lock(plane);
        n = hold_level(plane, comm, levels, max);
        plane_unlock(plane);
        return n;
}

static int hip_comm_move(struct plane *plane, const struct plane_comm *comm, char *error) {
        int r = enter(plane, error);

        return leave(plane, r ? r : comms_move(plane, comm, error));
}

static void hip_comm_release(struct plane *plane, uint64_t comm) {
        plane_lock(plane);
        if (!plane->fault)
                (void)hold_end(plane, comm, NULL); /* a failure is a fault, which tick reports */
        plane_unlock(plane);
}

static uint32_t hip_pairs(struct plane *plane, struct plane_pair_report *reports, uint32_t max) {
        uint32_t n;

        plane_lock(plane);
        n = comms_pairs(plane, reports, max);
        plane_unlock(plane);
        return n;
}

static uint32_t hip_report(struct plane *plane, struct plane_rank_report *reports, uint32_t max) {
        uint32_t n;

        plane_lock(plane);
        n = comms_report(plane, reports, max);
        plane_unlock(plane);
        return n;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */
static int hip_tick(struct plane *plane, char *error) {
        char text[PLANE_TEXT] = "telling kernels of a rank that has left";
        bool ended, busy = false;
        int r;

        plane_lock(plane);
        if (!plane->fault) {
                r = park_ended(&plane->park, &ended, text);
                if (!r && !plane->park.running && clock_now_ns() - plane->asked_ns >= ASK_NS) /* nothing else would */
                        r = context_check(plane, text);
                if (!r)
                        r = burst_check(&plane->burst, text);
                if (!r)
                        r = watch_check(&plane->watch, text);
                if (!r)
                        r = moment_tick(plane, &busy, text);
                if (!r && !busy)
                        r = comms_tick(plane);
                if (!r && !busy && !plane->draining)
                        r = hold_tick(plane, text);
                if (!r && !busy && !plane->draining)
                        r = adaptive_tick(plane, text);
                plane_fault(plane, r, text);
        }
        return leave(plane, plane_check(plane, error));
}

/* Ends the kernels when they find nothing more to do; if some tasks were left, which wait for other ranks, they get
 * another round until the next call. */
static bool drain(struct plane *plane) {
        char text[PLANE_TEXT];
        bool ended = false;
        int r;

        if (plane->fault)
                return true;
        if (!plane->draining && !plane->park.running && !plane->park.queued && !plane->leave.asked_ns &&
            !plane->moment.asked) {
                plane->draining = true;
                return true;
        }
        plane->draining = true;
        r = park_ask(&plane->park, &plane->tables, PARK_WHEN_IDLE, text);
        if (!r)
                r = park_ended(&plane->park, &ended, text);
        if (!r && ended && park_kept(&plane->park, &plane->tables)) {
                r = park_launch(&plane->park, &plane->tables, text);
                ended = false;
        }
        if (!r && ended && !plane->parked) {
                plane->parked = true;
                r = rings_tell_parked(plane, text);
        }
        plane_fault(plane, r, text);
        return ended || plane->fault;
}

static bool hip_drain(struct plane *plane) {
        bool ended;

        plane_lock(plane);
        ended = drain(plane);
        plane_unlock(plane);
        return ended;
}

__attribute__((visibility("default"))) extern const struct plane_ops railmux_gpu_plane;
const struct plane_ops railmux_gpu_plane = {
        .version = PLANE_VERSION,
        .name = "hip",
        .probe = device_probe,
        .open = hip_open,
        .close = hip_close,
        .info = hip_info,
        .peer_add = hip_peer_add,
        .peer_remove = hip_peer_remove,
        .latch = hip_latch,
        .ring_attach = hip_ring_attach,
        .ring_detach = hip_ring_detach,
        .buffer_import = hip_buffer_import,
        .buffer_retire = hip_buffer_retire,
        .buffer_reach = hip_buffer_reach,
        .reach_import = hip_reach_import,
        .reach_retire = hip_reach_retire,
        .comm_ready = hip_comm_ready,
        .comm_round = hip_comm_round,
        .comm_attach = hip_comm_attach,
        .comm_abort = hip_comm_abort,
        .comm_thaw = hip_comm_thaw,
        .comm_detach = hip_comm_detach,
        .rank_leave = hip_rank_leave,
        .comm_hold = hip_comm_hold,
        .comm_level = hip_comm_level,
        .comm_move = hip_comm_move,
        .comm_release = hip_comm_release,
        .tick = hip_tick,
        .report = hip_report,
        .pairs = hip_pairs,
        .drain = hip_drain,
};
