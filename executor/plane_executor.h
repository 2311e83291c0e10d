/* SPDX-License-Identifier: MIT */
#pragma once
/* An executor whose GPU serves the rings by itself (gpu/plane.h): what has been attached to it. Control thread only. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <uthash.h>

#include "executor/link.h"
#include "executor/plane_exchanges.h"
#include "executor/plane_net.h"
#include "executor/plane_pairs.h"
#include "gpu/plane.h"

#define PLANE_REPORTS_MAX 1024u /* ranks on one GPU */

struct plane_buffer {
        uint32_t id;
        uint64_t identity; /* of a buffer on another GPU: railmuxd's name of its memory */
        UT_hash_handle hh;
};

/* One client process. */
struct plane_session {
        uint64_t id;
        uint32_t pid;
        bool ring;  /* its bell area is attached */
        void *host; /* ... with this: what the client writes and we read */
        size_t host_bytes;
        struct plane_exchanges *exchanges; /* NULL: no rank of it has exchanged anything */
        struct plane_buffer *buffers;      /* uthash by id */
        struct plane_buffer *reached;      /* the same for those on other GPUs that are mapped here */
        UT_hash_handle hh;
};

struct plane_rank {
        uint64_t session;
        uint32_t handle; /* the session's name of it; what comes first is the key in plane_executor.ranks */
        bool here;       /* on this GPU */
        bool far;        /* on another node */
        bool left;       /* it makes no requests after `last` */
        uint32_t last;
        uint64_t ended_ns; /* its process ended then, and the comm goes on for a while: plane_call_comm.c; 0: no */
        uint32_t rung, finished; /* as last reported; ranks elsewhere: 0 */
        uint32_t operation;      /* of the request rung */
        bool told;               /* railmuxd knows of the next two */
        bool settled;            /* while held */
        uint32_t taken;
        uint64_t since_ns; /* when that was first seen */
        struct plane_attached *comm;
        UT_hash_handle hh;
};

#define PLANE_RANK_KEY (offsetof(struct plane_rank, handle) + sizeof(uint32_t))

struct plane_attached {
        uint64_t id;
        uint32_t n_ranks;
        uint32_t epoch;
        uint32_t code; /* sticky error, 0: none */
        int32_t failed_rank;
        char text[160];      /* a sentence on `code` */
        bool unreported;     /* railmuxd does not know of `code` */
        bool told;           /* it has said so itself, and knows why */
        uint32_t stall_told; /* the last sequence that railmuxd was told of as stalled */
        bool any_stall_told;
        bool held;                /* its requests stand still */
        bool frozen;              /* requests that peers could reach wait for plane_comm_thaw */
        struct plane_pair *pairs; /* sends and receives that wait */
        size_t n_pairs;
        struct plane_net_map net; /* over several nodes */
        UT_hash_handle hh;
        struct plane_rank ranks[]; /* n_ranks */
};

struct plane_executor {
        /* identity */
        uint64_t instance;
        uint64_t started_ns;
        uint64_t stall_ns;
        uint32_t gpu; /* railmuxd's number of it */

        /* owned */
        const struct plane_ops *ops;
        struct plane *plane;
        struct plane_session *sessions; /* uthash by id */
        struct plane_attached *comms;   /* uthash by id */
        struct plane_rank *ranks;       /* those that make requests here, in the comms: uthash by session and handle */

        /* state */
        void *latch; /* shared with the sessions; NULL: no ring has come yet */
        ino_t latch_file;
        uint64_t peers[PLANE_GPUS_MAX]; /* instance of the executor whose pool is known; 0: none */
        bool any_pairs;                 /* at the last look */
        int attention_fd;               /* an eventfd of the plane's: there is more for comm_ready */
        bool draining;
        bool go;                      /* railmuxd has no use for it any more */
        uint64_t invalid, mismatches; /* counters */
        uint64_t shuns;               /* of the plane, which have been told */

        /* what messages point to */
        struct link_service service;
        struct plane_info info;
        Railmux__Executor__Gpu gpu_message, *gpu_pointer;
        Railmux__Executor__DeviceMemory pool_message;
        struct plane_rank_report reports[PLANE_REPORTS_MAX];
};

/* Takes the GPU into service. 0 or -errno, with a sentence. */
int plane_executor_init(struct plane_executor *executor, const struct plane_ops *ops, uint32_t gpu,
                        const struct plane_options *options, uint64_t stall_ns, char error[PLANE_TEXT]);
void plane_executor_deinit(struct plane_executor *executor);

struct plane_session *plane_session_find(struct plane_executor *executor, uint64_t id);
struct plane_attached *plane_comm_find(struct plane_executor *executor, uint64_t id);
/* Forgets it; the plane has let go of it before. */
void plane_session_free(struct plane_executor *executor, struct plane_session *session);
void plane_comm_free(struct plane_executor *executor, struct plane_attached *comm);
/* A comm ends here: its requests are answered with the error, and no kernel touches its ranks' memory any more. The
 * first error stays. */
void plane_comm_fail(struct plane_executor *executor, struct plane_attached *comm, uint32_t code, int32_t rank,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));
/* It has ended on all its executors. */
void plane_comm_thaw(struct plane_executor *executor, struct plane_attached *comm);
/* Comms over several nodes fail of which a rank's process ended then or earlier, with nothing under way. */
void plane_comms_ended(struct plane_executor *executor, uint64_t since_ns);
/* Takes over what the kernels have reported; comms with errors fail. */
void plane_executor_look(struct plane_executor *executor);

/* ---- for the link (plane_service.c, plane_call.c, plane_report.c) ------------------------------------------------ */
void plane_call(struct plane_executor *executor, const Railmux__Executor__Message *message, int *fds,
                unsigned int n_fds, struct dispatch_result *ret_result);
void plane_report_hello(struct plane_executor *executor, Railmux__Executor__Hello *hello);
int plane_report_inventory(struct plane_executor *executor, report_send send, void *userdata);
int plane_report_statistics(struct plane_executor *executor, uint64_t id, report_send send, void *userdata);
/* ... and how far held comms have come. */
int plane_report_failures(struct plane_executor *executor, report_send send, void *userdata);
/* railmuxd may have begun anew: whatever stalls is told once more. */
void plane_report_stalls_again(struct plane_executor *executor);
int plane_report_stalls(struct plane_executor *executor, report_send send, void *userdata);
