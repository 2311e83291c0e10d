/* SPDX-License-Identifier: MIT */
/*
 * The library's GPU plug-in without a GPU. Memory is what a test says it is; a launch is written down and takes effect
 * at once: counters count, a scripted status appears where a kernel would leave it. Nothing is computed. A stream is
 * any value, until the test destroys it: whoever touches it then ends the process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "railmux/railmux.h"
#include "ring/line.h"
#include "tests/client/fake_gpu.h"

#define AREA_BYTES 12288u
#define NOT_SET    UINT64_MAX

struct client_gpu {
        int32_t device;
        uint32_t sequence[CLIENT_GPU_SLOTS];
        uint32_t status[CLIENT_GPU_SLOTS];
        uint32_t launched[CLIENT_GPU_SLOTS], finished[CLIENT_GPU_SLOTS]; /* numbers */
        uint32_t stuck_mark[CLIENT_GPU_SLOTS];                           /* the first one */
        uint64_t ended[CLIENT_GPU_CELLS];
        uint64_t flag[CLIENT_GPU_FLAGS]; /* the capture it was set in, NOT_SET, 0: none */
        void *host, *latch;
        bool gathering[CLIENT_GPU_SLOTS];  /* a bootstrap's request waits for other ranks */
        bool exchanging[CLIENT_GPU_SLOTS]; /* an exchange does not end */
        uint64_t own[CLIENT_GPU_SLOTS][CLIENT_GPU_OWN_BYTES / sizeof(uint64_t)];
        bool own_known; /* as a block */
};

struct client_gpu_exchange {
        struct client_gpu *gpu;
        uint32_t slot, n_ranks, rank;
};

/* The requests of the bootstraps that are under way, by fake_gpu.group: who has come. */
#define GATHERS 8u
static struct gather {
        uint32_t n, here; /* bits */
        struct {
                struct client_gpu *gpu;
                uint32_t slot;
                unsigned char *out;
        } part[CLIENT_GPU_EXCHANGE_RANKS];
} gathers[GATHERS];

extern struct fake_gpu fake_gpu;
__attribute__((visibility("default"))) struct fake_gpu fake_gpu = {
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .hidden_device = UINT32_MAX,
};

static int gpu_find(const char *pci, int32_t *ret_device, char *error) {
        unsigned int n;
        char end;

        if (sscanf(pci, "0000:%2x:00.%c", &n, &end) != 2 || n >= FAKE_GPU_DEVICES || n == fake_gpu.hidden_device) {
                snprintf(error, CLIENT_GPU_TEXT, "the GPU at %s is not visible", pci);
                return RMX_E_DENIED;
        }
        *ret_device = (int32_t)(FAKE_GPU_DEVICES - 1 - n);
        return RMX_OK;
}

static int gpu_open(int32_t device, struct client_gpu **ret_gpu, struct client_gpu_export *ret_area, char *error) {
        (void)error;
        *ret_gpu = calloc(1, sizeof(**ret_gpu));
        (*ret_gpu)->device = device;
        memset((*ret_gpu)->flag, 0xff, sizeof((*ret_gpu)->flag));
        *ret_area = (struct client_gpu_export){
                .kind = 1, .n_handle = 8, .handle = "area", .allocation_bytes = AREA_BYTES, .bytes = AREA_BYTES};
        ret_area->handle[6] = (unsigned char)fake_gpu.opened; /* no two areas are the same memory */
        ret_area->handle[7] = (unsigned char)device;
        fake_gpu.opened++;
        return RMX_OK;
}

static int gpu_attach(struct client_gpu *gpu, void *host, size_t bytes, void *latch, size_t latch_bytes, char *error) {
        int r = fake_gpu.fail_attach;

        fake_gpu.fail_attach = 0;
        if (r) {
                snprintf(error, CLIENT_GPU_TEXT, "pinning failed");
                return r;
        }
        if (latch)
                memset(latch, 0, latch_bytes);
        gpu->latch = latch;
        memset(host, 1, bytes < 64 ? bytes : 64); /* it must be writable */
        gpu->host = host;
        return RMX_OK;
}

static void gpu_lift(struct client_gpu *gpu) {
        if (gpu->latch)
                (*(uint32_t *)gpu->latch)++; /* so that tests see how often */
}

static void gpu_close(struct client_gpu *gpu) {
        for (uint32_t i = 0; i < fake_gpu.n_blocks; i++)
                if (fake_gpu.block[i].base == (uintptr_t)gpu->own)
                        fake_gpu.block[i].bytes = 0;
        memset(gathers, 0, sizeof(gathers));
        free(gpu);
        fake_gpu.closed++;
}

/* With the mutex: a kernel that waits for other ranks gives up. */
static void kernel_give_up(struct client_gpu *gpu, uint32_t slot) {
        if (gpu->exchanging[slot] && !gpu->status[slot])
                gpu->status[slot] = RMX_E_DEVICE_LOST;
        gpu->exchanging[slot] = false;
        if (!gpu->gathering[slot])
                return;
        gpu->gathering[slot] = false;
        gpu->status[slot] = gpu->status[slot] ? gpu->status[slot] : RMX_E_DEVICE_LOST;
        for (struct gather *gather = gathers; gather < gathers + GATHERS; gather++)
                for (uint32_t i = 0; i < CLIENT_GPU_EXCHANGE_RANKS; i++)
                        if (gather->part[i].gpu == gpu && gather->part[i].slot == slot)
                                gather->here &= ~(1u << i);
}

static void gpu_release(struct client_gpu *gpu) {
        (void)gpu;
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.released++;
        for (uint32_t i = 0; i < CLIENT_GPU_SLOTS; i++)
                kernel_give_up(gpu, i);
        fake_gpu.stuck = fake_gpu.hold = false;
        fake_gpu.status = RMX_E_DEVICE_LOST;
        pthread_mutex_unlock(&fake_gpu.mutex);
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS; i++) /* waits that were held end so */
                if (gpu->ended[i] >> 32 && (uint32_t)gpu->ended[i] == UINT32_MAX)
                        gpu->ended[i] = gpu->ended[i] >> 32 << 32 | RMX_E_DEVICE_LOST;
}

static void gpu_comm_end(struct client_gpu *gpu, uint32_t slot) {
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.ended++;
        kernel_give_up(gpu, slot);
        fake_gpu.stuck = fake_gpu.hold = false;
        pthread_mutex_unlock(&fake_gpu.mutex);
        for (uint32_t i = 0; i < CLIENT_GPU_CELLS; i++)
                if (gpu->ended[i] >> 32 && (uint32_t)gpu->ended[i] == UINT32_MAX)
                        gpu->ended[i] = gpu->ended[i] >> 32 << 32 | RMX_E_DEVICE_LOST;
}

static int gpu_comm_reset(struct client_gpu *gpu, uint32_t slot, char *error) {
        (void)error;
        gpu->sequence[slot] = gpu->status[slot] = gpu->launched[slot] = gpu->finished[slot] = 0;
        gpu->stuck_mark[slot] = 0;
        return RMX_OK;
}

static int gpu_comm_sequence(struct client_gpu *gpu, uint32_t slot, uint32_t *ret_sequence, char *error) {
        (void)error;
        *ret_sequence = gpu->sequence[slot];
        return RMX_OK;
}

static uint32_t gpu_comm_status(const struct client_gpu *gpu, uint32_t slot, bool forget) {
        uint32_t status;

        pthread_mutex_lock(&fake_gpu.mutex);
        status = gpu->status[slot];
        if (forget)
                ((struct client_gpu *)gpu)->status[slot] = 0;
        pthread_mutex_unlock(&fake_gpu.mutex);
        return status;
}

/* With the mutex: what is not stuck has ended. */
static void settle(struct client_gpu *gpu, uint32_t slot) {
        if (fake_gpu.stuck || gpu->gathering[slot])
                return;
        gpu->finished[slot] =
                fake_gpu.stuck_marks && gpu->stuck_mark[slot] ? gpu->stuck_mark[slot] - 1 : gpu->launched[slot];
}

static uint32_t gpu_comm_finished(struct client_gpu *gpu, uint32_t slot) {
        uint32_t finished;

        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.asked++;
        settle((struct client_gpu *)gpu, slot);
        finished = gpu->finished[slot];
        pthread_mutex_unlock(&fake_gpu.mutex);
        return finished;
}

static int gpu_locate(const void *address, struct client_gpu_memory *ret_memory, char *error) {
        uint64_t at = (uintptr_t)address;

        (void)error;
        *ret_memory = (struct client_gpu_memory){.device = -1};
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.located++;
        for (uint32_t i = 0; i < fake_gpu.n_blocks; i++) {
                const struct fake_gpu_block *block = &fake_gpu.block[i];

                if (at - block->base >= block->bytes)
                        continue;
                ret_memory->residence = block->residence;
                ret_memory->device = block->device;
                if (block->residence == CLIENT_GPU_DEVICE) {
                        ret_memory->chunk = block->chunk;
                        ret_memory->range = block->range;
                        ret_memory->base = block->base;
                        ret_memory->bytes = block->bytes;
                        ret_memory->id = block->id;
                }
        }
        pthread_mutex_unlock(&fake_gpu.mutex);
        return RMX_OK;
}

static int gpu_export(const struct client_gpu_memory *memory, struct client_gpu_export *ret_export, char *error) {
        const struct fake_gpu_handle handle = {memory->base, memory->id};
        bool secret = false;

        if (fake_gpu.at_export_whole)
                fake_gpu.at_export_whole();
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.exports++;
        for (uint32_t i = 0; i < fake_gpu.n_blocks; i++)
                secret |= fake_gpu.block[i].base == memory->base && fake_gpu.block[i].secret;
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (secret) {
                snprintf(error, CLIENT_GPU_TEXT, "no other process can map this memory");
                return RMX_E_UNSUPPORTED;
        }
        *ret_export = (struct client_gpu_export){
                .kind = 1, .n_handle = sizeof(handle), .allocation_bytes = memory->bytes, .bytes = memory->bytes};
        memcpy(ret_export->handle, &handle, sizeof(handle));
        return RMX_OK;
}

/* A file in which the chunk's number stands. */
static int gpu_export_chunk(const struct client_gpu_memory *chunk, int *ret_fd, char *error) {
        uint64_t id = 0;

        pthread_mutex_lock(&fake_gpu.mutex);
        if (fake_gpu.at_export)
                fake_gpu.at_export(&fake_gpu, fake_gpu.exports);
        fake_gpu.exports++;
        for (uint32_t i = 0; i < fake_gpu.n_blocks; i++)
                if (fake_gpu.block[i].base == chunk->base && fake_gpu.block[i].chunk && !fake_gpu.block[i].secret)
                        id = fake_gpu.block[i].id;
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (!id) {
                snprintf(error, CLIENT_GPU_TEXT, "no other process can map this memory");
                return RMX_E_UNSUPPORTED;
        }
        *ret_fd = memfd_create("chunk", MFD_CLOEXEC);
        return *ret_fd >= 0 && pwrite(*ret_fd, &id, sizeof(id), 0) == sizeof(id) ? RMX_OK : RMX_E_INTERNAL;
}

static int gpu_alloc(struct client_gpu *gpu, size_t bytes, struct client_gpu_memory *ret_memory, char *error) {
        void *memory = malloc(bytes);

        if (!memory || fake_gpu.n_blocks == FAKE_GPU_BLOCKS) {
                free(memory);
                snprintf(error, CLIENT_GPU_TEXT, "no memory");
                return RMX_E_NO_MEMORY;
        }
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.block[fake_gpu.n_blocks++] = (struct fake_gpu_block){.base = (uintptr_t)memory,
                                                                      .bytes = bytes,
                                                                      .id = 1000 + fake_gpu.allocated++,
                                                                      .residence = CLIENT_GPU_DEVICE,
                                                                      .device = gpu->device};
        pthread_mutex_unlock(&fake_gpu.mutex);
        return gpu_locate(memory, ret_memory, error);
}

static void gpu_free(struct client_gpu *gpu, const struct client_gpu_memory *memory) {
        (void)gpu;
        fake_gpu.freed++;
        free((void *)(uintptr_t)memory->base);
}

/* With the mutex. */
static void touch(const void *stream) {
        for (uint32_t i = 0; i < fake_gpu.n_gone; i++) {
                if (fake_gpu.gone[i] != stream)
                        continue;
                fprintf(stderr, "stream %p is touched after its end\n", stream);
                abort();
        }
}

/* With the mutex: the stream whose capture it is in. */
static void *origin_of(const void *stream) {
        if (stream && (stream == fake_gpu.capturing || stream == fake_gpu.capturing_too))
                return (void *)(uintptr_t)stream;
        for (uint32_t i = 0; i < fake_gpu.n_pulled; i++) {
                const struct fake_gpu_pulled *pulled = &fake_gpu.pulled[i];

                if (pulled->stream == stream &&
                    (pulled->origin == fake_gpu.capturing || pulled->origin == fake_gpu.capturing_too))
                        return pulled->origin;
        }
        return NULL;
}

/* With the mutex: and its number. */
static uint64_t capture_of(const void *stream) {
        const void *origin = origin_of(stream);

        return !origin ? 0 : UINT64_C(2) * fake_gpu.captures + (origin == fake_gpu.capturing ? 1 : 2);
}

static bool gpu_capturing(struct client_gpu *gpu, void *stream) {
        bool capturing;

        (void)gpu;
        pthread_mutex_lock(&fake_gpu.mutex);
        touch(stream);
        capturing = origin_of(stream);
        pthread_mutex_unlock(&fake_gpu.mutex);
        return capturing;
}

static uint64_t gpu_capture(struct client_gpu *gpu, void *stream) {
        uint64_t capture;

        (void)gpu;
        pthread_mutex_lock(&fake_gpu.mutex);
        touch(stream);
        capture = capture_of(stream);
        pthread_mutex_unlock(&fake_gpu.mutex);
        return capture;
}

/* With the mutex. */
static void capture_mixed(const void *stream) {
        fprintf(stderr, "stream %p: a capture is mixed with what is not in it\n", stream);
        abort();
}

/* With the mutex. */
static struct fake_gpu_launch *note(uint32_t kind, const struct client_gpu_bell *bell, void *stream) {
        struct fake_gpu_launch *launch = &fake_gpu.launch[fake_gpu.n_launches++ % FAKE_GPU_LAUNCHES];

        touch(stream);
        *launch = (struct fake_gpu_launch){.kind = kind, .stream = stream};
        if (bell) {
                launch->bell = *bell;
                for (uint32_t i = 0; i < bell->n_arguments; i++)
                        launch->argument[i] = bell->argument[i];
                launch->bell.argument = launch->argument;
        }
        return launch;
}

static int gpu_order(struct client_gpu *gpu, void *from, void *to, char *error) {
        (void)gpu;
        (void)error;
        pthread_mutex_lock(&fake_gpu.mutex);
        touch(from);
        note(FAKE_GPU_ORDER, NULL, to)->from = from;
        if (origin_of(from) && !origin_of(to) && fake_gpu.n_pulled < FAKE_GPU_PULLED)
                fake_gpu.pulled[fake_gpu.n_pulled++] = (struct fake_gpu_pulled){to, origin_of(from)};
        if (origin_of(from) != origin_of(to))
                capture_mixed(to);
        pthread_mutex_unlock(&fake_gpu.mutex);
        return RMX_OK;
}

static int gpu_set(struct client_gpu *gpu, uint32_t flag, void *stream, char *error) {
        int r;

        pthread_mutex_lock(&fake_gpu.mutex);
        r = fake_gpu.fail_set;
        fake_gpu.fail_set = 0;
        if (!r) {
                note(FAKE_GPU_SET, NULL, stream)->flag = flag;
                gpu->flag[flag] = capture_of(stream);
        }
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (r)
                snprintf(error, CLIENT_GPU_TEXT, "setting failed");
        return r;
}

static int gpu_await(struct client_gpu *gpu, uint32_t flag, void *stream, char *error) {
        int r;

        pthread_mutex_lock(&fake_gpu.mutex);
        r = fake_gpu.fail_await;
        fake_gpu.fail_await = 0;
        if (!r) {
                note(FAKE_GPU_AWAIT, NULL, stream)->flag = flag;
                if (gpu->flag[flag] != capture_of(stream))
                        capture_mixed(stream);
        }
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (r)
                snprintf(error, CLIENT_GPU_TEXT, "awaiting failed");
        return r;
}

static int gpu_copy(struct client_gpu *gpu, void *to, const void *from, size_t bytes, void *stream, char *error) {
        struct fake_gpu_launch *launch;
        int r;

        (void)gpu;
        pthread_mutex_lock(&fake_gpu.mutex);
        r = fake_gpu.fail_copy;
        fake_gpu.fail_copy = 0;
        if (!r) {
                launch = note(FAKE_GPU_COPY, NULL, stream);
                launch->from = from;
                launch->to = to;
                launch->bytes = bytes;
        }
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (r)
                snprintf(error, CLIENT_GPU_TEXT, "copying failed");
        return r;
}

static bool gpu_alive(struct client_gpu *gpu) {
        bool alive;

        (void)gpu;
        pthread_mutex_lock(&fake_gpu.mutex);
        alive = !fake_gpu.lost;
        pthread_mutex_unlock(&fake_gpu.mutex);
        return alive;
}

/* Sends and receives are numbered by pairs. */
static bool is_p2p(const struct client_gpu_bell *bell) {
        uint32_t operation = bell->word[RING_W_HEAD] >> 16 & 0xff;

        return operation == RING_OP_SEND || operation == RING_OP_RECV;
}

/* With the mutex: the part of a rank in an all_gather, in place, of a bootstrap. */
static void gather_join(struct client_gpu *gpu, const struct client_gpu_bell *bell) {
        const size_t bytes = bell->in_bytes;
        unsigned char *out = bell->out;
        const uint32_t rank = (uint32_t)(((const unsigned char *)bell->in - out) / (ptrdiff_t)bytes);
        struct gather *gather = &gathers[fake_gpu.group ? fake_gpu.group(bell->word[RING_W_COMM]) % GATHERS : 0];

        gather->n = (uint32_t)(bell->out_bytes / bytes);
        if (gather->n > CLIENT_GPU_EXCHANGE_RANKS || rank >= gather->n || gather->here >> rank & 1 || !bell->inlined)
                abort();
        if (!fake_gpu.gathers && bytes == 16 && fake_gpu.old_ranks >> rank & 1)
                for (uint32_t i = 0; i < 2; i++)
                        ((uint64_t *)(void *)(out + rank * bytes))[i]--;
        gather->part[rank].gpu = gpu;
        gather->part[rank].slot = bell->slot;
        gather->part[rank].out = out;
        gather->here |= 1u << rank;
        gpu->gathering[bell->slot] = true;
        if (gather->here != (1u << gather->n) - 1 || fake_gpu.gathers + 1 == fake_gpu.stuck_gather)
                return;
        for (uint32_t to = 0; to < gather->n; to++) {
                for (uint32_t from = 0; from < gather->n; from++)
                        if (to != from)
                                memcpy(gather->part[to].out + from * bytes, gather->part[from].out + from * bytes,
                                       bytes);
                gather->part[to].gpu->gathering[gather->part[to].slot] = false;
        }
        gather->here = 0;
        fake_gpu.gathers++;
}

/* With the mutex: what the script says of the next launch. */
static int launch_fails(void) {
        const int r = fake_gpu.fail_after ? 0 : fake_gpu.fail;

        if (fake_gpu.fail_after)
                fake_gpu.fail_after--;
        else
                fake_gpu.fail = 0;
        return r;
}

/* Is it a request of a bootstrap? */
static bool is_bootstrap(const struct client_gpu *gpu, const struct client_gpu_bell *bell) {
        return (uintptr_t)bell->in - (uintptr_t)gpu->own[bell->slot] < sizeof(gpu->own[bell->slot]);
}

/* slot: whose status it is. */
static int put_for(struct client_gpu *gpu, uint32_t kind, const struct client_gpu_bell *bell, uint32_t slot,
                   void *stream, char *error) {
        bool captured, held, untold;
        uint32_t status = 0;
        int r;

        pthread_mutex_lock(&fake_gpu.mutex);
        captured = origin_of(stream);
        r = launch_fails();
        if (r) {
                pthread_mutex_unlock(&fake_gpu.mutex);
                snprintf(error, CLIENT_GPU_TEXT, "launching failed");
                return r;
        }
        (void)note(kind, bell, stream);
        if (captured != bell->captured)
                capture_mixed(stream);
        held = fake_gpu.hold;
        if (is_bootstrap(gpu, bell))
                gather_join(gpu, bell);
        if (kind == FAKE_GPU_EXCHANGE && bell->number)
                gpu->exchanging[bell->slot] = fake_gpu.stuck;
        untold = kind == FAKE_GPU_EXCHANGE && fake_gpu.untold;
        fake_gpu.untold &= !untold;
        if (kind != FAKE_GPU_WAIT && bell->number && !untold) {
                gpu->launched[bell->slot] = bell->number;
                settle(gpu, bell->slot);
        }
        if (!captured && kind != FAKE_GPU_WAIT && kind != FAKE_GPU_EXCHANGE && !is_p2p(bell))
                gpu->sequence[bell->slot]++;
        if (!captured && kind != FAKE_GPU_START && !held && fake_gpu.status_after) {
                fake_gpu.status_after--;
        } else if (!captured && kind != FAKE_GPU_START && !held) {
                status = fake_gpu.status;
                fake_gpu.status = 0;
                if (status && !gpu->status[slot])
                        gpu->status[slot] = status;
        }
        if (kind == FAKE_GPU_WAIT && bell->turn)
                gpu->ended[bell->cell] = (uint64_t)bell->turn << 32 | (held ? UINT32_MAX : status);
        pthread_mutex_unlock(&fake_gpu.mutex);
        return untold ? CLIENT_GPU_UNTOLD : RMX_OK;
}

static int put(struct client_gpu *gpu, uint32_t kind, const struct client_gpu_bell *bell, void *stream, char *error) {
        return put_for(gpu, kind, bell, bell->slot, stream, error);
}

static int gpu_call(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error) {
        return put(gpu, FAKE_GPU_CALL, bell, stream, error);
}
static int gpu_start(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error) {
        return put(gpu, FAKE_GPU_START, bell, stream, error);
}
static int gpu_wait(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error) {
        return put(gpu, FAKE_GPU_WAIT, bell, stream, error);
}

static int gpu_behind(struct client_gpu *gpu, uint32_t slot, uint32_t number, void *stream, char *error) {
        const struct client_gpu_bell bell = {.slot = slot, .after = number};
        int r;

        (void)gpu;
        pthread_mutex_lock(&fake_gpu.mutex);
        r = launch_fails();
        if (!r)
                (void)note(FAKE_GPU_BEHIND, &bell, stream);
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (r)
                snprintf(error, CLIENT_GPU_TEXT, "launching failed");
        return r;
}

static int gpu_mark(struct client_gpu *gpu, uint32_t slot, uint32_t number, bool started, void *stream, char *error) {
        const struct client_gpu_bell bell = {.slot = slot, .number = number, .started = started};
        int r;

        pthread_mutex_lock(&fake_gpu.mutex);
        r = fake_gpu.fail_mark;
        fake_gpu.fail_mark = 0;
        if (!r) {
                (void)note(FAKE_GPU_MARK, &bell, stream);
                gpu->launched[slot] = number;
                if (fake_gpu.stuck_marks && !gpu->stuck_mark[slot])
                        gpu->stuck_mark[slot] = number;
                settle(gpu, slot);
        }
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (r)
                snprintf(error, CLIENT_GPU_TEXT, "launching failed");
        return r;
}

static bool gpu_poll(const struct client_gpu *gpu, uint32_t cell, uint32_t turn, uint32_t *ret_status) {
        uint64_t word;
        bool held;

        pthread_mutex_lock(&fake_gpu.mutex);
        word = gpu->ended[cell];
        held = fake_gpu.hold;
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (word >> 32 != turn || held)
                return false;
        *ret_status = (uint32_t)word == UINT32_MAX ? RMX_OK : (uint32_t)word;
        return true;
}

/* As a launch: what was asked for is written down. The handle has the words, and where the memory is. */
static void gpu_handle(struct client_gpu *gpu, const struct client_gpu_bell *bell,
                       struct rmx_device_handle *ret_handle) {
        pthread_mutex_lock(&fake_gpu.mutex);
        (void)note(FAKE_GPU_HANDLE, bell, NULL);
        pthread_mutex_unlock(&fake_gpu.mutex);
        *ret_handle = (struct rmx_device_handle){.area = gpu,
                                                 .counter = &gpu->sequence[bell->slot],
                                                 .in = bell->in,
                                                 .out = bell->out,
                                                 .slot = bell->slot,
                                                 .version = RMX_DEVICE_VERSION};
        memcpy(ret_handle->word, bell->word, sizeof(ret_handle->word));
}

/* ---- exchange ---------------------------------------------------------------------------------------------------- */
static void offer_write(unsigned char *offer, uint32_t rank) {
        for (uint32_t i = 0; i < CLIENT_GPU_OFFER_BYTES; i++)
                offer[i] = (unsigned char)(1 + rank + i);
}

static int gpu_exchange_open(struct client_gpu *gpu, uint32_t slot, uint32_t handle, uint32_t n_ranks, uint32_t rank,
                             uint32_t max_blocks, struct client_gpu_exchange **ret_exchange, unsigned char *ret_offer,
                             char *error) {
        bool can;

        pthread_mutex_lock(&fake_gpu.mutex);
        can = handle && !(fake_gpu.cannot_open >> rank & 1);
        fake_gpu.exchanges += can;
        fake_gpu.max_blocks = max_blocks;
        pthread_mutex_unlock(&fake_gpu.mutex);
        offer_write(ret_offer, rank); /* also if there is nothing */
        if (!can) {
                snprintf(error, CLIENT_GPU_TEXT, "no exchange here");
                return RMX_E_UNSUPPORTED;
        }
        *ret_exchange = calloc(1, sizeof(**ret_exchange));
        **ret_exchange = (struct client_gpu_exchange){.gpu = gpu, .slot = slot, .n_ranks = n_ranks, .rank = rank};
        return RMX_OK;
}

static int gpu_exchange_connect(struct client_gpu_exchange *exchange, const unsigned char *offers, char *error) {
        bool can;

        pthread_mutex_lock(&fake_gpu.mutex);
        can = !(fake_gpu.cannot_connect >> exchange->rank & 1);
        for (uint32_t rank = 0; rank < exchange->n_ranks; rank++) {
                unsigned char offer[CLIENT_GPU_OFFER_BYTES];

                offer_write(offer, rank);
                can &= !memcmp(offer, offers + (size_t)rank * sizeof(offer), sizeof(offer));
        }
        fake_gpu.connected += can;
        pthread_mutex_unlock(&fake_gpu.mutex);
        if (!can)
                snprintf(error, CLIENT_GPU_TEXT, "an area cannot be mapped");
        return can ? RMX_OK : RMX_E_UNSUPPORTED;
}

static void gpu_exchange_stop(struct client_gpu_exchange *exchange) {
        (void)exchange;
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.stopped++;
        pthread_mutex_unlock(&fake_gpu.mutex);
}

static void gpu_exchange_close(struct client_gpu_exchange *exchange, bool over) {
        if (!exchange)
                return;
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.reusable += over;
        fake_gpu.kept += !over;
        pthread_mutex_unlock(&fake_gpu.mutex);
        free(exchange);
}

static int gpu_exchange_call(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bell, void *stream,
                             char *error) {
        if (bell->slot != exchange->slot && bell->number)
                abort();
        return put_for(exchange->gpu, FAKE_GPU_EXCHANGE, bell, exchange->slot, stream, error);
}

/* One launch, of which the first is written down. */
static int gpu_exchange_pairs(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bells, uint32_t n,
                              void *stream, char *error) {
        if (n < 1 || n > CLIENT_GPU_PAIRS)
                abort();
        for (uint32_t i = 0; i < n; i++)
                if (bells[i].slot != exchange->slot || bells[i].captured != bells[0].captured || !is_p2p(&bells[i]))
                        abort();
        pthread_mutex_lock(&fake_gpu.mutex);
        fake_gpu.n_pairs = n;
        memcpy(fake_gpu.pairs, bells, n * sizeof(bells[0]));
        pthread_mutex_unlock(&fake_gpu.mutex);
        return put(exchange->gpu, FAKE_GPU_EXCHANGE, &bells[0], stream, error);
}

static void *gpu_own_memory(struct client_gpu *gpu, uint32_t slot) {
        pthread_mutex_lock(&fake_gpu.mutex);
        if (!gpu->own_known && fake_gpu.n_blocks < FAKE_GPU_BLOCKS)
                fake_gpu.block[fake_gpu.n_blocks++] = (struct fake_gpu_block){
                        .base = (uintptr_t)gpu->own, .bytes = sizeof(gpu->own), .residence = CLIENT_GPU_HOST};
        gpu->own_known = true;
        pthread_mutex_unlock(&fake_gpu.mutex);
        return gpu->own[slot];
}

/* Any value that is no other stream. */
static void *gpu_own_stream(struct client_gpu *gpu, uint32_t slot) {
        return fake_gpu.no_streams ? NULL : &gpu->own[slot];
}

extern const struct client_gpu_ops railmux_client_gpu;
__attribute__((visibility("default"))) const struct client_gpu_ops railmux_client_gpu = {
        .version = CLIENT_GPU_VERSION,
        .name = "fake",
        .queues = {.variable = FAKE_GPU_QUEUES, .usual = 8, .max = 32},
        .find = gpu_find,
        .open = gpu_open,
        .attach = gpu_attach,
        .lift = gpu_lift,
        .close = gpu_close,
        .release = gpu_release,
        .comm_end = gpu_comm_end,
        .comm_reset = gpu_comm_reset,
        .comm_sequence = gpu_comm_sequence,
        .comm_status = gpu_comm_status,
        .comm_finished = gpu_comm_finished,
        .locate = gpu_locate,
        .export_memory = gpu_export,
        .export_chunk = gpu_export_chunk,
        .alloc = gpu_alloc,
        .free = gpu_free,
        .copy = gpu_copy,
        .capturing = gpu_capturing,
        .capture = gpu_capture,
        .order = gpu_order,
        .set = gpu_set,
        .await = gpu_await,
        .alive = gpu_alive,
        .call = gpu_call,
        .start = gpu_start,
        .wait = gpu_wait,
        .behind = gpu_behind,
        .mark = gpu_mark,
        .poll = gpu_poll,
        .handle = gpu_handle,
        .exchange_open = gpu_exchange_open,
        .exchange_connect = gpu_exchange_connect,
        .exchange_stop = gpu_exchange_stop,
        .exchange_close = gpu_exchange_close,
        .exchange_call = gpu_exchange_call,
        .exchange_pairs = gpu_exchange_pairs,
        .own_stream = gpu_own_stream,
        .own_memory = gpu_own_memory,
};
