/* SPDX-License-Identifier: MIT */
#pragma once
/* What the files of the plug-in share. Which runtime it is, is decided here. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/gpu.h"
#include "client/hip/bell.h"
#include "railmux/railmux.h"
#ifdef RAILMUX_CUDA
#include "gpu/device/hip_on_cuda.h"
#define MEMORY_ON_DEVICE HIP_ON_CUDA_MEMORY_DEVICE
#define ERROR_OF_SYSTEM  cudaErrorOperatingSystem
#define VISIBLE_DEVICES  "CUDA_VISIBLE_DEVICES"
#define QUEUES                                                                                                         \
        { .variable = "CUDA_DEVICE_MAX_CONNECTIONS", .usual = 8, .max = 32 }
#else
#include <hip/hip_runtime_api.h>
#define MEMORY_ON_DEVICE hipMemoryTypeDevice
#define ERROR_OF_SYSTEM  hipErrorOperatingSystem
#define VISIBLE_DEVICES  "HIP_VISIBLE_DEVICES"
#define QUEUES                                                                                                         \
        { .variable = "GPU_MAX_HW_QUEUES", .usual = 4, .max = 16 } /* more are possible, not sensible */
#endif

#define EXPORT_IPC 1u /* DeviceMemory.kind */

/* Host memory that the device writes and reads: completion of waits, and what is copied into the area. */
struct pinned {
        uint64_t ended[CLIENT_GPU_CELLS];
        uint32_t one;
        uint32_t zero[2 * BELL_RANKS];
        uint32_t sequence;
        struct bell_header header;
        uint32_t released[BELL_DEPTH];
        uint32_t stop[CLIENT_GPU_SLOTS]; /* exchange kernels of this slot give up */
};

/* See exchange_area.c. */
struct exchange_area;
struct exchange_heads;
struct exchange_arguments;
struct exchange_mapping;

/* For captured graphs, see edge.c: */
struct edge {
        pthread_mutex_t mutex;
        unsigned long long capture; /* that the last place is in, */
        void *stream;               /* on which stream, */
        size_t nodes;               /* how many nodes there were, */
        hipGraphNode_t place;       /* and the last one of the stream's */
};

/* How the host knows that a call has ended, see ended.c: */
struct ended {
        hipEvent_t event; /* behind the last call that does not tell its number, */
        uint32_t number;  /* which is this, if it is the slot's last launch and not known to have ended; otherwise 0 */
};

struct client_gpu {
        int device;
        char *area;
        uint64_t *cells;
        struct pinned *pinned, *pinned_there; /* here, and as the device sees it */
        struct bell_host *host, *host_there;
        struct bell_latch *latch;
        hipStream_t stream;
        hipEvent_t event;
        hipEvent_t flag[CLIENT_GPU_FLAGS];
        pthread_mutex_t copies;          /* the stream and the copied words of `pinned` */
        bool exchanges_loaded;           /* exchange kernels are loaded; atomic, see exchange.c */
        pthread_mutex_t exchanges_mutex; /* what follows, see exchange.c, exchange_area.c */
        hipStream_t own_stream[CLIENT_GPU_SLOTS];
        char *own_memory; /* CLIENT_GPU_OWN_BYTES for each slot */
        struct exchange_area *areas;
        struct exchange_heads *heads;
        struct exchange_mapping *mappings; /* of other processes' areas and heads */
        struct edge edge;
        struct ended ended[CLIENT_GPU_SLOTS]; /* as what is counted: one thread at a time */
};

/* Sets the sentence and returns the code. */
int gpu_say(int code, char *error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for a failed call of the runtime. */
int gpu_fail(hipError_t r, const char *call, char *error);

/* What a call changes of the thread's state, and puts back. See scope.c. */
struct scope {
        int device;
        void *context; /* the thread's, NULL: it had none; */
        bool known;    /* false: the driver did not say */
        bool moved;
        bool relaxed;
        hipStreamCaptureMode mode;
};

/* Makes the device current. Whatever is returned, scope_leave follows. */
hipError_t scope_device(struct scope *scope, int device);
/* And declares what follows harmless for captures. */
hipError_t scope_enter(struct scope *scope, int device);
void scope_leave(struct scope *scope);

/* Of edge.c, with the device current: before a captured call is launched on a stream. */
void gpu_edge(struct client_gpu *gpu, void *stream);

/* Of ended.c, with the device current. Before the first call of a slot; at the end. */
hipError_t gpu_ended_open(struct client_gpu *gpu, uint32_t slot);
void gpu_ended_free(struct client_gpu *gpu);
/* Is it for gpu_ended_record() to say when this one has ended? Otherwise its kernel tells its number. */
bool gpu_ended_records(const struct client_gpu *gpu, const struct client_gpu_bell *bell);
/* It has just been put on the stream. */
hipError_t gpu_ended_record(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream);
/* A launch that tells its number has been put there; or another rank begins in the slot. */
void gpu_ended_told(struct client_gpu *gpu, uint32_t slot);
/* What comes on the stream is behind the last call of the slot, if that is of this number and was recorded; *ret_done
 * says so. */
hipError_t gpu_ended_await(struct client_gpu *gpu, uint32_t slot, uint32_t number, void *stream, bool *ret_done);

/* The calls of the table, see client/gpu.h. area.c: */
int gpu_find(const char *pci, int32_t *ret_device, char *error);
int gpu_open(int32_t device, struct client_gpu **ret_gpu, struct client_gpu_export *ret_area, char *error);
int gpu_attach(struct client_gpu *gpu, void *host, size_t bytes, void *latch, size_t latch_bytes, char *error);
void gpu_lift(struct client_gpu *gpu);
void gpu_close(struct client_gpu *gpu);
void gpu_release(struct client_gpu *gpu);
void gpu_comm_end(struct client_gpu *gpu, uint32_t slot);
int gpu_comm_reset(struct client_gpu *gpu, uint32_t slot, char *error);
int gpu_comm_sequence(struct client_gpu *gpu, uint32_t slot, uint32_t *ret_sequence, char *error);
uint32_t gpu_comm_status(const struct client_gpu *gpu, uint32_t slot, bool forget);
/* ended.c: */
uint32_t gpu_comm_finished(struct client_gpu *gpu, uint32_t slot);
/* memory.c: */
int gpu_locate(const void *address, struct client_gpu_memory *ret_memory, char *error);
int gpu_export(const struct client_gpu_memory *memory, struct client_gpu_export *ret_export, char *error);
int gpu_export_chunk(const struct client_gpu_memory *chunk, int *ret_fd, char *error);
int gpu_alloc(struct client_gpu *gpu, size_t bytes, struct client_gpu_memory *ret_memory, char *error);
void gpu_free(struct client_gpu *gpu, const struct client_gpu_memory *memory);
int gpu_copy(struct client_gpu *gpu, void *to, const void *from, size_t bytes, void *stream, char *error);
/* launch.c: */
int gpu_call(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error);
int gpu_start(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error);
int gpu_wait(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error);
int gpu_behind(struct client_gpu *gpu, uint32_t slot, uint32_t number, void *stream, char *error);
int gpu_mark(struct client_gpu *gpu, uint32_t slot, uint32_t number, bool started, void *stream, char *error);
void gpu_handle(struct client_gpu *gpu, const struct client_gpu_bell *bell, struct rmx_device_handle *ret_handle);
/* Puts an exchange kernel there, behind what bell->after names. together: exchange_together(). */
int gpu_launch_exchange(struct client_gpu *gpu, const void *kernel, uint32_t blocks, uint32_t together, void *arguments,
                        const struct client_gpu_bell *bell, void *stream, char *error);
/* One warp of a kernel that only waits, with the arguments of the one that is launched behind it. Also behind what
 * bell->after names. */
int gpu_launch_ahead(struct client_gpu *gpu, const void *kernel, void *arguments, const struct client_gpu_bell *bell,
                     void *stream, char *error);
/* exchange.c: */
int gpu_exchange_open(struct client_gpu *gpu, uint32_t slot, uint32_t handle, uint32_t n_ranks, uint32_t rank,
                      uint32_t max_blocks, struct client_gpu_exchange **ret_exchange, unsigned char *ret_offer,
                      char *error);
int gpu_exchange_connect(struct client_gpu_exchange *exchange, const unsigned char *offers, char *error);
void gpu_exchange_stop(struct client_gpu_exchange *exchange);
/* Where the GPU has the status with which a kernel of the rank has given up. */
uint32_t *gpu_exchange_gate(const struct client_gpu_exchange *exchange);
void gpu_exchange_close(struct client_gpu_exchange *exchange, bool over);
int gpu_exchange_pairs(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bells, uint32_t n,
                       void *stream, char *error);
int gpu_exchange_call(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bell, void *stream,
                      char *error);
void *gpu_own_stream(struct client_gpu *gpu, uint32_t slot);
void *gpu_own_memory(struct client_gpu *gpu, uint32_t slot);
/* Gives areas, mappings, streams and memory back, with the device current; no kernel is about any more. */
void gpu_exchanges_free(struct client_gpu *gpu);
