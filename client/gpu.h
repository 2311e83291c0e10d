/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * What the library needs of a GPU runtime, so that it links none: a table that a plug-in (client/hip/) exports under
 * CLIENT_GPU_SYMBOL. The library decides what is asked for; the plug-in knows the bell area and its kernels.
 *
 * Threads: any; calls on one struct client_gpu that change it (comm_reset, order, set, await, close) come one at a
 * time. Errors: RMX_*, with a sentence in `error` (CLIENT_GPU_TEXT bytes). A call leaves the thread's current device
 * and the runtime's last error as they were. No call is a stream operation, or is refused while some stream is being
 * captured, but those that take a stream.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLIENT_GPU_VERSION 18u
#define CLIENT_GPU_SYMBOL  "railmux_client_gpu"
#define CLIENT_GPU_TEXT    256u
#define CLIENT_GPU_UNTOLD  (-1) /* no RMX_*: see exchange_call */

/* Of the bell area (gpu/device/bell.h, which only the plug-in sees and compares). */
#define CLIENT_GPU_SLOTS        256u   /* ranks of one session on one GPU */
#define CLIENT_GPU_STARTED      48u    /* requests rung and not waited for, well below the depth of the area */
#define CLIENT_GPU_ROUND        20u    /* at most, what a group has of one rank between its starts and waits */
#define CLIENT_GPU_INLINE_BYTES 16384u /* larger ones name memory in their lines */
#define CLIENT_GPU_RANKS        64u
#define CLIENT_GPU_ARGUMENTS    (4u * CLIENT_GPU_RANKS) /* words of an argument block */
#define CLIENT_GPU_CELLS        4096u                   /* that starts and waits may use */
#define CLIENT_GPU_FLAGS        64u                     /* that streams may be put behind */
#define CLIENT_GPU_HANDLE_BYTES 64u

/* Exchange: collectives that the ranks' own kernels execute, see device_exchange.c and client/hip/exchange.c. */
#define CLIENT_GPU_EXCHANGE_RANKS 8u
/* Goes up with the layout of areas and offers, the kernels' rounds, and which requests take which way. */
#define CLIENT_GPU_EXCHANGE_VERSION 18u
#define CLIENT_GPU_PAIRS            64u
#define CLIENT_GPU_OFFER_BYTES      224u  /* what a rank tells the others of its area */
#define CLIENT_GPU_OWN_BYTES        2048u /* own_memory, of each slot */

struct client_gpu;          /* a device in a session's use: its bell area */
struct client_gpu_exchange; /* one rank's part in a communicator's exchange */
struct rmx_device_handle;

/* An allocation for other processes, as in DeviceMemory of proto/session.proto. */
struct client_gpu_export {
        uint32_t kind;
        uint32_t n_handle;
        unsigned char handle[CLIENT_GPU_HANDLE_BYTES];
        uint64_t allocation_bytes;
        uint64_t offset;
        uint64_t bytes;
};

/* What a pointer points into. */
enum client_gpu_residence {
        CLIENT_GPU_ORDINARY, /* no memory of the runtime */
        CLIENT_GPU_HOST,     /* host memory that GPUs can reach */
        CLIENT_GPU_MANAGED,
        CLIENT_GPU_DEVICE,
};
struct client_gpu_memory {
        uint32_t residence;
        int32_t device; /* of the runtime */
        uint64_t base;  /* of the allocation; DEVICE only, as all that follows */
        uint64_t bytes;
        uint64_t id; /* of the allocation, never given twice in a process; 0: the runtime has none */
        /* It is a chunk: of virtual memory, mapped by the program. Others may lie beside it in the same range of
         * reserved addresses, and be used together with it. */
        bool chunk;
        uint64_t range; /* a chunk's: where its range begins */
};

struct client_gpu_exchange;

/* A request for the device. */
struct client_gpu_bell {
        uint32_t word[16]; /* template of the line; argument, flags and sequence are the plug-in's */
        uint32_t slot;     /* of the comm */
        bool captured;     /* the stream is being captured */
        bool inlined; /* payload and result travel in the area: in and out are any memory that the device reaches */
        const void *in;
        void *out;
        uint64_t in_bytes, out_bytes; /* not more than CLIENT_GPU_INLINE_BYTES if inlined */
        uint32_t n_arguments;         /* words of the argument block, 0: none */
        const uint64_t *argument;
        uint32_t cell; /* start and wait: where the one leaves for the other what it rang */
        uint32_t turn; /* wait: of the cell; 0: nobody polls */
        /* Calls and starts. */
        uint32_t number; /* what comm_finished tells when it has ended, 0: nothing */
        bool started;    /* which may be asked for when it is not the last launch any more; that of a call is not */
        uint32_t after;  /* it begins when comm_finished tells this, 0: at once */
        /* Calls that are part of a request with exchanges before or behind: nothing is done once a kernel of that
         * exchange has given up, and when this one fails that one has. NULL: it is a request of its own. */
        const struct client_gpu_exchange *gate;
};

/* Hardware queues that the runtime puts a process's streams on. */
struct client_gpu_queues {
        const char *variable; /* of the environment, which says how many; NULL: no such limit */
        uint32_t usual;       /* if it does not */
        uint32_t max;
};

struct client_gpu_ops {
        uint32_t version; /* CLIENT_GPU_VERSION */
        const char *name;
        struct client_gpu_queues queues;

        /* The process's device with this PCI address. RMX_E_DENIED: it cannot see it. */
        int (*find)(const char *pci, int32_t *ret_device, char *error);
        /* A zeroed bell area there. */
        int (*open)(int32_t device, struct client_gpu **ret_gpu, struct client_gpu_export *ret_area, char *error);
        /* host: memory that the executor reads (struct bell_host lies there). latch: memory that it shares with all
         * sessions on the GPU (struct bell_latch), NULL: there is none. Both stay mapped until close. */
        int (*attach)(struct client_gpu *gpu, void *host, size_t bytes, void *latch, size_t latch_bytes, char *error);
        /* Something is about to be rung after a silence: a kernel that a parked executor has queued may begin now. */
        void (*lift)(struct client_gpu *gpu);
        /* Ends what still waits on the device with RMX_E_DEVICE_LOST, then gives everything back. NULL is allowed. */
        void (*close)(struct client_gpu *gpu);
        /* Ends what waits now and later with RMX_E_DEVICE_LOST. */
        void (*release)(struct client_gpu *gpu);

        /* Ends what waits of this slot's rank, now and later, with RMX_E_DEVICE_LOST. No executor may touch it any
         * more. */
        void (*comm_end)(struct client_gpu *gpu, uint32_t slot);
        /* A rank begins in this slot: its counters, status and finished included, are 0. */
        int (*comm_reset)(struct client_gpu *gpu, uint32_t slot, char *error);
        /* Last sequence of the rank's collectives. */
        int (*comm_sequence)(struct client_gpu *gpu, uint32_t slot, uint32_t *ret_sequence, char *error);
        /* First status other than RMX_OK that a kernel met, 0: none; the next one counts as first after `forget`. Never
         * blocks. */
        uint32_t (*comm_status)(const struct client_gpu *gpu, uint32_t slot, bool forget);
        /* Number of the call, start or mark that ended last, 0: none. (Of an exchange or a mark that was called, and is
         * not the last launch any more, it may be told only with the next one.) Never blocks, and touches no stream.
         * One thread at a time, and none that puts something on a stream for this slot meanwhile. */
        uint32_t (*comm_finished)(struct client_gpu *gpu, uint32_t slot);

        int (*locate)(const void *address, struct client_gpu_memory *ret_memory, char *error);
        /* RMX_E_UNSUPPORTED: this kind of memory cannot be handed to another process. */
        int (*export_memory)(const struct client_gpu_memory *memory, struct client_gpu_export *ret_export, char *error);
        /* The same of a chunk: a descriptor that stands for it, which is the caller's. */
        int (*export_chunk)(const struct client_gpu_memory *chunk, int *ret_fd, char *error);

        /* Memory that export_memory takes, of at least so many bytes; free waits for all kernels of the process. */
        int (*alloc)(struct client_gpu *gpu, size_t bytes, struct client_gpu_memory *ret_memory, char *error);
        void (*free)(struct client_gpu *gpu, const struct client_gpu_memory *memory);
        /* Puts a copy on the stream, from and to memory that the device reaches. */
        int (*copy)(struct client_gpu *gpu, void *to, const void *from, size_t bytes, void *stream, char *error);

        bool (*capturing)(struct client_gpu *gpu, void *stream);
        /* Which capture the stream is in, 0: none. No two captures of a process have the same number. */
        uint64_t (*capture)(struct client_gpu *gpu, void *stream);
        /* What is put on `to` from now on comes after what is on `from` now. */
        int (*order)(struct client_gpu *gpu, void *from, void *to, char *error);
        /* The same in two steps, with what is on the stream at the first: a flag may be awaited on several streams, and
         * set anew at once. Both in one capture, or neither in any. Nothing is allocated. */
        int (*set)(struct client_gpu *gpu, uint32_t flag, void *stream, char *error);
        int (*await)(struct client_gpu *gpu, uint32_t flag, void *stream, char *error);
        /* False: the context is lost. Never blocks, and touches no stream of the caller. */
        bool (*alive)(struct client_gpu *gpu);

        /* Put a kernel on the stream: one that rings and waits, one that rings, one that waits for what the cell's
         * start rang. A wait leaves its status for poll unless `turn` is 0. */
        int (*call)(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error);
        int (*start)(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error);
        int (*wait)(struct client_gpu *gpu, const struct client_gpu_bell *bell, void *stream, char *error);
        /* What comes on the stream from now on begins when comm_finished tells this number: as client_gpu_bell.after,
         * for copies. Not where the stream is being captured. */
        int (*behind)(struct client_gpu *gpu, uint32_t slot, uint32_t number, void *stream, char *error);
        /* comm_finished tells the number when what is on the stream has ended, as that of a call or, with `started`, of
         * a start. */
        int (*mark)(struct client_gpu *gpu, uint32_t slot, uint32_t number, bool started, void *stream, char *error);
        /* Has the wait of this turn ended? Never blocks. */
        bool (*poll)(const struct client_gpu *gpu, uint32_t cell, uint32_t turn, uint32_t *ret_status);
        /* What a kernel of the caller's needs to make this call, which has no argument block. */
        void (*handle)(struct client_gpu *gpu, const struct client_gpu_bell *bell,
                       struct rmx_device_handle *ret_handle);

        /* An exchange area for the rank of this slot, zeroed, and what the others need to map it:
         * CLIENT_GPU_OFFER_BYTES at ret_offer. handle: the daemon's name of the rank, under which it will see how far
         * the rank is. max_blocks: of each kernel, 0: no bound; the ranks' smallest is all ranks'. RMX_E_UNSUPPORTED:
         * not for so many ranks. */
        int (*exchange_open)(struct client_gpu *gpu, uint32_t slot, uint32_t handle, uint32_t n_ranks, uint32_t rank,
                             uint32_t max_blocks, struct client_gpu_exchange **ret_exchange, unsigned char *ret_offer,
                             char *error);
        /* Maps the others'. offers: n_ranks * CLIENT_GPU_OFFER_BYTES, by rank, the own one included, zeros of a rank
         * that has none. An error means that there will be no exchange, and nothing worse. Once, and not after an
         * error. Several slots may be opened and connected at a time, each by a thread of its own. */
        int (*exchange_connect)(struct client_gpu_exchange *exchange, const unsigned char *offers, char *error);
        /* Ends the kernels of this rank's exchanges, now and later, with RMX_E_DEVICE_LOST. Never blocks, and calls
         * nothing of the runtime. */
        void (*exchange_stop)(struct client_gpu_exchange *exchange);
        /* over: no kernel of the communicator is on the device any more, here, and none was given up; so the area may
         * serve another one, when all that was sent has been taken. Else it is kept until the device is closed. NULL is
         * allowed. Waits for no kernel, and touches no stream of the caller's. */
        void (*exchange_close)(struct client_gpu_exchange *exchange, bool over);
        /* Puts the kernel of a request on the stream, whole: it ends when the result is there. Of `bell`: word
         * (operation, type, reduction, count), in, out, in_bytes, out_bytes, argument (the factor), captured, number,
         * started, after and gate, as for `call`; slot is that of the numbers, which need not be the one of the
         * exchange. Its status is told by comm_status of that one, and comm_end and release end it, as with a bell. The
         * memory is any that the device reaches, aligned to the type. CLIENT_GPU_UNTOLD: it is there, as with RMX_OK,
         * but nothing will tell when it has ended. */
        int (*exchange_call)(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bell, void *stream,
                             char *error);
        /* The same of up to CLIENT_GPU_PAIRS sends and receives, each with another rank, in one kernel: those of a pair
         * and direction one after the other, all others at the same time. captured, number, started and after are those
         * of the first. A send ends before its receive has come if what is under way between the two is little. */
        int (*exchange_pairs)(struct client_gpu_exchange *exchange, const struct client_gpu_bell *bells, uint32_t n,
                              void *stream, char *error);
        /* A stream, and pinned memory of CLIENT_GPU_OWN_BYTES that the device reaches at this address, aligned to 8
         * bytes: for setting up what is in this slot, the same each time; and for its started exchanges. No two slots
         * share one, and nothing of the plug-in's own goes on the stream: kernels wait on it for other ranks, which may
         * set up their slots in another order, and comm_end and comm_reset must get through meanwhile. NULL: there is
         * none. Any thread. */
        void *(*own_stream)(struct client_gpu *gpu, uint32_t slot);
        void *(*own_memory)(struct client_gpu *gpu, uint32_t slot);
};
