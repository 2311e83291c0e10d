/* SPDX-License-Identifier: MIT */
#ifndef RAILMUX_H
#define RAILMUX_H
/*
 * railmux host API.
 *
 * A process opens one *session* with the node's daemon, joins *communicators* and calls collectives on them.
 * The daemon's executors do the work; the library only puts a 128-byte request line into shared memory and waits.
 *
 * Errors.   Every call that can fail returns an int: RMX_OK (0) or one of the positive RMX_E_* codes below. Outputs
 *           (parameters called ret_*) are written only on RMX_OK. rmx_last_error() gives the calling thread a sentence
 *           that says what was wrong and what would be right.
 * Threads.  A session and everything below it may be used from any thread. Requests of one (communicator, rank) are
 *           ordered as they are issued; issuing them from several threads at once is allowed, but then their order is
 *           the caller's business, and it must be the same on all ranks. A communicator handle stands for one rank; a
 *           process may hold several ranks of one communicator (one thread each, or _start/rmx_wait from one thread).
 *           rmx_session_close, rmx_comm_destroy and rmx_mem_free must not run while another thread uses that object.
 * Fork.     A session does not survive fork(): the child opens its own. In the child every call on the parent's session
 *           or below it is RMX_E_INVALID, and rmx_session_close only drops the child's copy. So does rmx_cancel_free,
 *           and rmx_cancel_set on a parent's object does nothing.
 * Sizes.    Counts are in elements, sizes in bytes. A count of 0 is valid: the call takes its place in the order of
 *           requests, so all ranks make it, and moves nothing; in and out may be NULL then.
 * Memory.   Memory from rmx_mem_alloc is shared with the executor and used in place (zero-copy). Any other host
 *           pointer works too; the library then copies through a bounce buffer that it keeps for later calls. Making
 *           one needs the daemon; rmx_buffer_register makes it ahead of time, so that no collective ever waits for it.
 * Streams.  The last argument of a collective is the GPU stream it is ordered on; for host memory it must be NULL and
 *           the call returns when the result is final.
 * GPUs.     A daemon that serves GPUs (rmx_session_backend) takes memory of the rank's GPU only, and the caller brings
 *           it: rmx_mem_alloc, and rmx_buffer_register of host memory, are RMX_E_UNSUPPORTED there. Calls put a small
 *           kernel on the stream (NULL: the default stream) and return; the result is there when the stream has come
 *           past it. Errors that a kernel meets are the communicator's: later calls on it return them, and so does
 *           rmx_comm_error, which a program that waits for streams only should call now and then. After an error the
 *           output is undefined. Calls on one communicator from different streams are put in the order of the calls; a
 *           thread's default stream (hipStreamPerThread), which has the same name in all threads, is taken for one
 *           stream, and order on it is the caller's business. A stream may be destroyed when what the calls put on it
 *           has run. (If it is destroyed before, the communicator must not be used on another stream until then.) That
 *           of a _start must exist until the request's waiting is on a stream, or the communicator is destroyed.
 * Graphs.   Calls may be captured. Where one of a communicator's streams is being captured its calls are not put in
 *           order: order between graphs, and between a graph and other work, is the caller's business. No replay may be
 *           under way when a communicator is destroyed. An allocation that is freed, or unmapped and mapped anew, must
 *           not be used by a captured graph any more.
 * Queues.   A waiting request holds one of the few hardware queues that the runtime puts all streams of a process on.
 *           With several communicators on several streams there should be twice as many queues as such streams, or
 *           requests may block each other for ever: CUDA_DEVICE_MAX_CONNECTIONS=32 (8 if not set) on NVIDIA,
 *           GPU_MAX_HW_QUEUES (4 if not set) on AMD, in the environment before the program starts. With fewer the
 *           library warns on stderr, once for each GPU.
 * Sharing.  Requests that the ranks' own kernels exchange (gpu.exchange of railmuxd: by default most of those of 2 to 8
 *           ranks on one node, each on a GPU of its own) use memory as it is. For those that executors carry out,
 *           allocations become known to the daemon at the first call on them that is not small, and whole, and what no
 *           other process can map (memory of stream-ordered allocators, virtual memory that is not exportable, managed
 *           memory) is copied through a region of the library beyond 16 KiB; _start calls and groups refuse it.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RMX_API __attribute__((visibility("default")))
#else
#define RMX_API
#endif

#define RMX_VERSION_MAJOR 0
#define RMX_VERSION_MINOR 1
#define RMX_VERSION_PATCH 0

/* ---- results -------------------------------------------------------------------------------------------------- */
/* RMX_E_LOST is sticky on GPUs, and where a communicator spans nodes. There RMX_E_MISMATCH between ranks of different
 * nodes is noticed by the data that a rank gets from another node: one that gets none (the root of a broadcast) may
 * only hear it at a later call. */
#define RMX_OK            0 /* done, result final */
#define RMX_E_INVALID     1 /* an argument is wrong; rmx_last_error() names it. Nothing was sent. */
#define RMX_E_NO_DAEMON   2 /* no daemon listens at the socket, or it did not answer in time */
#define RMX_E_DAEMON_LOST 3 /* the daemon and its executor are gone for good; open a new session */
#define RMX_E_VERSION     4 /* library and daemon share no protocol version */
#define RMX_E_NO_MEMORY   5 /* out of memory, here or in the daemon */
#define RMX_E_LIMIT       6 /* the tenant's limit, what all share or a GPU's staging is used up; the text names it */
#define RMX_E_DENIED      7 /* forged id, other tenant, no permission on the socket, a GPU that is not visible here */
#define RMX_E_BUSY        8 /* no room for a request on this rank's GPU: rmx_wait() for the oldest first */
#define RMX_E_MISMATCH    9 /* the ranks called different operations, types, reductions, counts or roots. Sticky. */
#define RMX_E_PEER_LOST                                                                                                \
        10 /* another rank's process died or left, or its node or messages to it were lost. Sticky.                    \
              rmx_comm_failed_rank() names it */
#define RMX_E_LOST                                                                                                     \
        11                   /* the executor died with this request in flight; the output is undefined. All ranks see  \
                                the same outcome for the same request, and on the host, on one node, later requests    \
                                work again. On GPUs the communicator is over, and ranks on that executor's GPU get     \
                                RMX_E_DEVICE_LOST. */
#define RMX_E_DEVICE_LOST 12 /* this rank's GPU context was lost, or the executor of its GPU. Sticky. */
#define RMX_E_ABORTED     13 /* rmx_comm_abort() was called by some rank. Sticky. */
#define RMX_E_TIMEOUT     14 /* the time given has passed; the request goes on */
#define RMX_E_INTERNAL    15 /* a defect of railmux; the daemon's log says more */
#define RMX_E_UNSUPPORTED 16 /* valid, but this daemon or backend cannot do it. Sticky if an executor says so. */
#define RMX_E_COUNT       17 /* number of codes; not a result */

/* Static name of a code ("RMX_E_LOST"), "RMX_E_?" for an unknown one. Never NULL. */
RMX_API const char *rmx_error_name(int code);
/* The calling thread's last error as a sentence; valid until its next failing call. Never NULL. */
RMX_API const char *rmx_last_error(void);

/* ---- types and reductions (numbers as in NCCL's interface, so that tables carry over) --------------------------- */
#define RMX_INT8        0
#define RMX_UINT8       1
#define RMX_INT32       2
#define RMX_UINT32      3
#define RMX_INT64       4
#define RMX_UINT64      5
#define RMX_FLOAT16     6
#define RMX_FLOAT32     7
#define RMX_FLOAT64     8
#define RMX_BFLOAT16    9
#define RMX_FLOAT8_E4M3 10
#define RMX_FLOAT8_E5M2 11
#define RMX_TYPE_COUNT  12

#define RMX_SUM         0
#define RMX_PROD        1
#define RMX_MAX         2
#define RMX_MIN         3
#define RMX_AVG         4
#define RMX_PREMUL_SUM  5 /* not for calls: see rmx_redop_create_premul_sum */
#define RMX_REDOP_COUNT 6

/* Bytes of one element of a type, 0 for an unknown type. */
RMX_API size_t rmx_type_size(uint32_t type);

/* ---- sessions --------------------------------------------------------------------------------------------------- */
struct rmx_session;
struct rmx_comm;
struct rmx_cancel;

struct rmx_session_options {
        size_t size;         /* sizeof(struct rmx_session_options): lets the struct grow */
        const char *socket;  /* daemon's client socket; NULL: $RAILMUX_SOCKET, else /run/railmux/client.sock */
        const char *name;    /* shown to operators (at most 63 bytes); NULL: the program's name */
        uint32_t timeout_ms; /* how long to wait for the daemon at open; 0: 5000 */
        uint32_t reserved;   /* 0 */
};

/* Connects to the daemon. opt may be NULL. A session has two threads (rmx-life, all signals blocked) that sleep until
 * the session is closed: their end tells the daemon at once that the process is ending. RMX_E_NO_DAEMON (nobody
 * listens, or answers within timeout_ms), RMX_E_VERSION, RMX_E_LIMIT (also of this process: no file descriptor is
 * left), RMX_E_DENIED, RMX_E_NO_MEMORY, RMX_E_INVALID, RMX_E_UNSUPPORTED (options that this library does not know). */
RMX_API int rmx_session_open(const struct rmx_session_options *opt, struct rmx_session **ret_session);
/* Leaves all communicators and frees them, frees all memory of rmx_mem_alloc. Requests that were not waited for are
 * given up: the other ranks see RMX_E_PEER_LOST for them. A process that just exits leaves in the same way. NULL is
 * allowed. */
RMX_API void rmx_session_close(struct rmx_session *session);
/* Number of GPUs (emulated ones on the host backend) that the daemon serves to this session. */
RMX_API uint32_t rmx_session_gpu_count(const struct rmx_session *session);
/* "host", or the name of the GPU runtime whose devices the daemon serves ("hip", also for NVIDIA's). Never NULL. */
RMX_API const char *rmx_session_backend(const struct rmx_session *session);
/* PCI address of one of them ("0000:1a:00.0"), which tells the process's own device; "" on the host backend and beyond
 * the last GPU. Never NULL. */
RMX_API const char *rmx_session_gpu_pci(const struct rmx_session *session, uint32_t gpu);

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* Shared, page-aligned, zeroed memory of `size` bytes (> 0), charged to the tenant. RMX_E_LIMIT, RMX_E_NO_MEMORY;
 * RMX_E_UNSUPPORTED where the daemon serves GPUs. */
RMX_API int rmx_mem_alloc(struct rmx_session *session, size_t size, void **ret_ptr);
/* Frees it; no request may be using it. RMX_E_INVALID for a pointer that rmx_mem_alloc did not return. */
RMX_API int rmx_mem_free(struct rmx_session *session, void *ptr);
/* Tells the library about [ptr, ptr+size) so that the first collective on it needs no call to the daemon. Optional.
 * For ordinary host memory this reserves a bounce buffer of that size, for one call at a time whose input or output
 * begins inside; calls on other memory do not take it. Of GPU memory the daemon learns the whole allocation, until it
 * is unregistered, when no request may be using it. Where the daemon serves GPUs, host memory is RMX_E_UNSUPPORTED. */
RMX_API int rmx_buffer_register(struct rmx_session *session, void *ptr, size_t size);
/* Takes that back; ptr is the one that was given. RMX_E_INVALID: nothing is registered there. */
RMX_API int rmx_buffer_unregister(struct rmx_session *session, void *ptr);

/* ---- communicators ----------------------------------------------------------------------------------------------- */
struct rmx_id {
        unsigned char bytes[128]; /* opaque; carries a secret. Hand it to the ranks, and to nobody else. */
};

struct rmx_comm_options {
        size_t size;               /* sizeof(struct rmx_comm_options) */
        int32_t gpu;               /* GPU of this rank, as the daemon counts; -1: rank modulo the number of GPUs */
        uint32_t timeout_ms;       /* how long to wait for the other ranks; 0: for ever */
        const char *name;          /* shown to operators (at most 63 bytes), NULL: none */
        struct rmx_cancel *cancel; /* by which another thread can end the waiting, see below; NULL: none */
        uint32_t flags;            /* RMX_COMM_*, 0: none; a split does not have its parent's */
        uint32_t max_blocks;       /* see below, 0: no bound; nor does a split have this one */
};

/* Kernels of this rank's program make calls on the communicator (rmx_device_prepare). Where the daemon lets the ranks'
 * own kernels exchange (gpu.exchange), it does not for a communicator of which a rank says this: all requests go
 * through the daemon's executors, as kernels' calls do. Nor is a request made of several then, over several nodes. */
#define RMX_COMM_DEVICE_CALLS 1u

/* Sends and receives of this communicator wait for each other as NCCL's do: on a GPU they are carried out one after
 * another, in the order in which the rank calls them, and a send, unless it is small, ends when its receive has come.
 * Those of a group go together. If all ranks say this, and the daemon lets the ranks' own kernels exchange all sizes
 * (gpu.exchange), these do, at the links' speed; else executors do, which keep transfers of different pairs apart
 * whatever their order. Groups with transfers that are exchanged cannot be started (rmx_group_end_start:
 * RMX_E_UNSUPPORTED). Without effect on the host. */
#define RMX_COMM_ORDERED_TRANSFERS 2u

/*
 * max_blocks: thread blocks that the ranks' own kernels have, each, at most (gpu.exchange), but for one that transfers
 * have at least for each other rank and direction; the smallest number that a rank says is all ranks'. A block keeps a
 * processor of the GPU, or half of one, from other work, so this is for requests that run beside kernels which leave as
 * many processors free; beside kernels that take all there are it makes things worse (docs/gpu.md). Large requests take
 * longer with fewer; results are the same, bit for bit. Without effect on the host, and on requests that the daemon's
 * executors carry out, whose blocks are what the daemon's policy says.
 */

/* A fresh id; one rank gets it and hands it to the others by any means. They may be on other nodes if the daemons
 * listen for each other (railmuxd --listen); then the daemon of the rank that got it has to be reached by theirs.
 * RMX_E_INVALID, RMX_E_DAEMON_LOST. */
RMX_API int rmx_get_id(struct rmx_session *session, struct rmx_id *ret_id);
/* Joins as `rank` of `n_ranks` (1..64); returns when all ranks have joined. Collective. opt may be NULL.
 * RMX_E_INVALID (rank taken, differing n_ranks, some ranks on GPUs and some not, an id whose node has no address),
 * RMX_E_DENIED (forged id, other tenant), RMX_E_TIMEOUT, RMX_E_LIMIT (also: the tenant waits for 16 other nodes that
 * nobody has reached yet), RMX_E_PEER_LOST (a joining process or its node was lost), RMX_E_ABORTED (a joining rank
 * gave up), RMX_E_UNSUPPORTED (two of its nodes have no rail in common, or a GPU no room for more than 32 ranks). A
 * rank that gives up, by its timeout or by rmx_cancel_set, ends the joining for all: those that wait are told, and
 * each that comes later once; after that the id may be tried again. */
RMX_API int rmx_comm_create(struct rmx_session *session, const struct rmx_id *id, uint32_t n_ranks, uint32_t rank,
                            const struct rmx_comm_options *opt, struct rmx_comm **ret_comm);
/* An id that every rank of comm gets alike for the same number, without a word among them, also when the communicator
 * has failed and others are gone: the ones that are left may meet with it, and new ones to whom they hand it. Each
 * number is for one communicator. Over several nodes the id names one that has not been lost; when rmx_comm_create
 * returns RMX_E_PEER_LOST with it, that may have gone just then, or its daemon was started anew, and there is another
 * id to ask for. RMX_E_LOST: the communicator was lost with this node's daemon. RMX_E_LIMIT: too many ids were asked
 * for in a short time. */
RMX_API int rmx_comm_id(struct rmx_comm *comm, uint64_t number, struct rmx_id *ret_id);
/* Ranks of equal colour form a new communicator, ordered by (key, rank). Collective. A negative colour takes part but
 * gets *ret_comm = NULL. opt is as in rmx_comm_create; gpu -1, also without opt, goes by the rank in the new
 * communicator and not by the GPU of before. A rank that gives up (timeout_ms, rmx_cancel_set) ends the split for all.
 * Errors are those of rmx_comm_create, but for what is about an id, and comm's sticky error; RMX_E_PEER_LOST also if a
 * rank has left comm, and RMX_E_LOST if the split failed and railmuxd was restarted after that. */
RMX_API int rmx_comm_split(struct rmx_comm *comm, int32_t colour, int32_t key, const struct rmx_comm_options *opt,
                           struct rmx_comm **ret_comm);
/*
 * Gives up joining from another thread. One object is for any number of rmx_comm_create and rmx_comm_split that name it
 * in their options, in any sessions and threads.
 */
RMX_API int rmx_cancel_new(struct rmx_cancel **ret_cancel);
/* All that wait with it return RMX_E_ABORTED at once, whether the daemon answers or not; so do those that name it
 * later. Never blocks. One that has joined already is not concerned. */
RMX_API void rmx_cancel_set(struct rmx_cancel *cancel);
/* Nobody may be waiting with it. NULL is allowed. */
RMX_API void rmx_cancel_free(struct rmx_cancel *cancel);

/* Leaves the communicator; first waits until this rank's outstanding requests, sends and receives included, have
 * completed, unless the communicator has a sticky error. Their results are dropped and a later rmx_wait for them is
 * RMX_E_INVALID; memory of rmx_mem_alloc may have been written, other memory is not. Others see RMX_E_PEER_LOST for
 * requests that need this rank and that it never made. The object is gone whatever the result (RMX_E_DAEMON_LOST:
 * nobody was there to be told), but for RMX_E_INVALID inside a group. NULL is allowed. */
RMX_API int rmx_comm_destroy(struct rmx_comm *comm);
/* On GPUs: waits for what a destroy would wait for, timeout_ms at most (0: looks). RMX_OK when that is over, or a
 * sticky error ends it; else RMX_E_TIMEOUT, and it may be called again. Another thread may abort the communicator
 * meanwhile, which it may not during a destroy. From here on nothing may be called on it but this, rmx_comm_abort,
 * rmx_comm_error and then rmx_comm_destroy. On the host RMX_OK at once. Inside a group that has no calls of it one may
 * look (0); else RMX_E_INVALID there. */
RMX_API int rmx_comm_finish(struct rmx_comm *comm, uint32_t timeout_ms);
/* Ends all outstanding and later requests of the communicator on all ranks with RMX_E_ABORTED, and returns when no
 * executor touches their memory any more. If railmuxd does not answer within 300 ms, this rank's requests on the host
 * end all the same, in other threads, and only memory of rmx_mem_alloc may still be written; this call goes on until
 * railmuxd answers or its connection ends (RMX_E_DAEMON_LOST), since the other ranks have to hear of it. Still needs
 * destroy. */
RMX_API int rmx_comm_abort(struct rmx_comm *comm);
/* The sticky error, or RMX_OK. Does not block, but for a second at most on GPUs over several nodes, when a request has
 * failed and the daemon has not said why. Also hears of failures while this rank has nothing outstanding. On GPUs
 * it gives RMX_E_LOST, too, once after requests were lost. RMX_E_DAEMON_LOST, about a second after daemon and executor
 * have gone for good (on GPUs at once, and sticky; not while the ring is full and the next place in it is that of a
 * request that is over and was not waited for); a daemon or executor that is replaced is no error. */
RMX_API int rmx_comm_error(const struct rmx_comm *comm);
/* Rank that caused the sticky error, -1 if none or unknown. */
RMX_API int32_t rmx_comm_failed_rank(const struct rmx_comm *comm);
RMX_API uint32_t rmx_comm_rank(const struct rmx_comm *comm);
RMX_API uint32_t rmx_comm_size(const struct rmx_comm *comm);

/* ---- collectives ------------------------------------------------------------------------------------------------- */
/*
 * Every rank of the communicator makes the same call. in and out hold as many elements as the table says, on the root
 * only where it says so; elsewhere that argument is not looked at. They may be equal where the table says "in place";
 * other overlaps are undefined, unless the table says that they are refused. Memory of rmx_mem_alloc must be aligned to
 * the type's size.
 *   all_reduce      in: count, out: count                             in place: out == in
 *   reduce          in: count, out: count on the root                 in place: out == in on the root
 *   broadcast       in: count on the root, out: count                 in place: out == in
 *   all_gather      in: count, out: n_ranks * count                   in place: in == out + rank * count
 *   reduce_scatter  in: n_ranks * count, out: count                   in place: out == in + rank * count
 *   gather          in: count, out: n_ranks * count on the root       in place: in == out + root * count on the root
 *   scatter         in: n_ranks * count on the root, out: count       in place: out == in + root * count on the root
 *   all_to_all      in: n_ranks * count, out: n_ranks * count: count elements from each rank to each rank. Overlap is
 *                   RMX_E_INVALID, unless there is only one rank
 *   barrier         returns when all ranks have called it; on GPUs, what is behind it on a stream comes after what was
 *                   before it on each rank's, and finds what that has written
 */
RMX_API int rmx_all_reduce(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                           uint32_t redop, void *stream);
RMX_API int rmx_reduce(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t redop,
                       uint32_t root, void *stream);
RMX_API int rmx_broadcast(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                          void *stream);
RMX_API int rmx_all_gather(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream);
RMX_API int rmx_reduce_scatter(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                               uint32_t redop, void *stream);
RMX_API int rmx_gather(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                       void *stream);
RMX_API int rmx_scatter(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, uint32_t root,
                        void *stream);
RMX_API int rmx_all_to_all(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type, void *stream);
/*
 * all_to_all with a count for each pair. The arrays hold n_ranks numbers each, in elements: what goes to rank i is
 * send_counts[i] elements at in + send_offsets[i], what comes from it recv_counts[i] elements at out + recv_offsets[i].
 * They are copied before the call returns. send_counts[b] of rank a and recv_counts[a] of rank b must be equal, else
 * RMX_E_MISMATCH on all ranks. What is received must overlap neither what is sent (RMX_E_INVALID, unless there is only
 * one rank) nor each other (undefined).
 */
RMX_API int rmx_all_to_all_v(struct rmx_comm *comm, const void *in, const size_t *send_counts,
                             const size_t *send_offsets, void *out, const size_t *recv_counts,
                             const size_t *recv_offsets, uint32_t type, void *stream);
RMX_API int rmx_barrier(struct rmx_comm *comm, void *stream);

/* ---- sends and receives ------------------------------------------------------------------------------------------ */
/*
 * count elements from one rank to another. Sends from a to b and receives at b from a are matched in the order of their
 * requests; count and type of the two must be equal, else RMX_E_MISMATCH for the communicator. A send is done when the
 * receiver has the data; on GPUs, when the receive has begun and the data is on its way, or, of a communicator with
 * RMX_COMM_ORDERED_TRANSFERS, when there is room for what is left of it. A rank's requests run one after another,
 * collectives included: two ranks that both send first and receive then wait for each other for ever, also with _start.
 * Calls that must progress together belong in a group. peer may be the rank itself in a group only.
 */
RMX_API int rmx_send(struct rmx_comm *comm, const void *in, size_t count, uint32_t type, uint32_t peer, void *stream);
RMX_API int rmx_recv(struct rmx_comm *comm, void *out, size_t count, uint32_t type, uint32_t peer, void *stream);

/* ---- outstanding requests ---------------------------------------------------------------------------------------- */
/* An outstanding request. The caller owns the storage, and keeps it unmoved until rmx_wait or a successful rmx_test. */
struct rmx_request {
        uint64_t opaque[12];
};

RMX_API int rmx_all_reduce_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                                 uint32_t redop, void *stream, struct rmx_request *ret_request);
RMX_API int rmx_reduce_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                             uint32_t redop, uint32_t root, void *stream, struct rmx_request *ret_request);
RMX_API int rmx_broadcast_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                                uint32_t root, void *stream, struct rmx_request *ret_request);
RMX_API int rmx_all_gather_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                                 void *stream, struct rmx_request *ret_request);
RMX_API int rmx_reduce_scatter_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                                     uint32_t redop, void *stream, struct rmx_request *ret_request);
RMX_API int rmx_gather_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                             uint32_t root, void *stream, struct rmx_request *ret_request);
RMX_API int rmx_scatter_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                              uint32_t root, void *stream, struct rmx_request *ret_request);
RMX_API int rmx_all_to_all_start(struct rmx_comm *comm, const void *in, void *out, size_t count, uint32_t type,
                                 void *stream, struct rmx_request *ret_request);
RMX_API int rmx_all_to_all_v_start(struct rmx_comm *comm, const void *in, const size_t *send_counts,
                                   const size_t *send_offsets, void *out, const size_t *recv_counts,
                                   const size_t *recv_offsets, uint32_t type, void *stream,
                                   struct rmx_request *ret_request);
RMX_API int rmx_barrier_start(struct rmx_comm *comm, void *stream, struct rmx_request *ret_request);
RMX_API int rmx_send_start(struct rmx_comm *comm, const void *in, size_t count, uint32_t type, uint32_t peer,
                           void *stream, struct rmx_request *ret_request);
RMX_API int rmx_recv_start(struct rmx_comm *comm, void *out, size_t count, uint32_t type, uint32_t peer, void *stream,
                           struct rmx_request *ret_request);
/* Waits until the request is done and returns its result. Requests may be waited for in any order, each once. */
RMX_API int rmx_wait(struct rmx_request *request, void *stream);
/*
 * On GPUs a start puts only the ringing on its stream, and what follows there runs meanwhile. rmx_wait_stream puts the
 * waiting on `stream` and returns: what follows on that stream finds the result, and the request is over for the host;
 * errors are the communicator's. A request that was captured must be waited for so, in the same capture. The other
 * calls put the waiting on the stream at their first call for the request (rmx_wait: on `stream`, NULL: that of the
 * start) and the host waits. At most 48 requests of a process may be started and not waited for on one GPU
 * (RMX_E_BUSY), besides collectives that the ranks exchange (gpu.exchange). For host memory stream must be NULL, and
 * rmx_wait_stream is rmx_wait.
 *
 * On emulated GPUs all requests of a process on one GPU, blocking calls included, take places in turn, of which there
 * are as many as session.ring_depth says (256 by default), and each keeps its place until it has been waited for. So a
 * request can be in the way of the 256th call after it, though all between are over. A start is RMX_E_BUSY then, at
 * once. A blocking call waits, a second at most, while it is another thread's to wait for that request, and is
 * RMX_E_BUSY after that; at once, if this thread itself is still to wait for it. Nothing has been issued in these
 * cases.
 */
RMX_API int rmx_wait_stream(struct rmx_request *request, void *stream);
/* The same, for at most timeout_ms: RMX_E_TIMEOUT leaves the request outstanding. */
RMX_API int rmx_wait_for(struct rmx_request *request, uint32_t timeout_ms);
/* *ret_done = 1 and the request's result, or *ret_done = 0 and RMX_OK. Never blocks. */
RMX_API int rmx_test(struct rmx_request *request, int *ret_done);

/* ---- groups ------------------------------------------------------------------------------------------------------ */
/*
 * Between rmx_group_start and rmx_group_end the blocking collectives, sends and receives of this thread, on any
 * communicators, check their arguments, are recorded and return RMX_OK; memory is read and written from the end on.
 * Groups nest: only the outermost end does anything. It issues all or nothing, per communicator first the collectives
 * in their order, then all sends and receives (at most 512) as one request in which they progress together, whatever
 * their order here and on the other ranks; then it waits for all and returns the first error.
 *
 * A collective, send or receive that fails inside a group spoils it: the outermost end then issues nothing and returns
 * that error. So do the _start calls, which are RMX_E_INVALID there. rmx_comm_create, rmx_comm_split and
 * rmx_comm_destroy are RMX_E_INVALID inside a group, too, but spoil nothing. All other calls do what they always do.
 * For each send to the rank itself a group must have a receive from the rank itself, and the other way round.
 *
 * On GPUs rmx_group_end puts the group on streams and returns, as the calls do: each communicator's requests on the
 * stream of its first call in the group; its other calls' streams come before that, and what follows on them after it.
 * They must be one and the same while one of them is being captured. At most 48 requests of a process are rung and not
 * waited for on one GPU. A larger group goes in rounds; if one of them is to end, groups of two ranks that exchange
 * data must hold the same transfers between them. rmx_group_end_start refuses a larger one (RMX_E_BUSY).
 */
RMX_API int rmx_group_start(void);
/* RMX_E_INVALID without a start, or beyond a limit that the message names; RMX_E_BUSY if there is no room for all of it
 * at the moment; else the first error of the group in the order of issue. */
RMX_API int rmx_group_end(void);
/* The outermost end, without waiting: the request stands for the whole group, whose communicators must be of one
 * session (RMX_E_INVALID). If it fails, nothing was issued, and the group is over, except that it stays open if
 * ret_request is NULL or the group is not the outermost (RMX_E_INVALID). */
RMX_API int rmx_group_end_start(struct rmx_request *ret_request);

/* ---- reductions with a factor ------------------------------------------------------------------------------------ */
#define RMX_SCALAR_MEMORY    0 /* *scalar is read whenever a collective is issued, and must stay there until destroy */
#define RMX_SCALAR_IMMEDIATE 1 /* *scalar is read once, at creation */

/* A reduction that multiplies this rank's elements by *scalar (one element of `type`) and sums. Each rank may have
 * another factor; all ranks must use a reduction made so. *ret_redop is no more than INT_MAX, and valid for this rank
 * of this communicator, for this type, in all_reduce, reduce and reduce_scatter, until it or the communicator is
 * destroyed. Local: no other rank hears of it. RMX_PREMUL_SUM itself is no reduction to call with. RMX_E_INVALID,
 * RMX_E_NO_MEMORY. */
RMX_API int rmx_redop_create_premul_sum(struct rmx_comm *comm, const void *scalar, uint32_t type, uint32_t residence,
                                        uint32_t *ret_redop);
/* Outstanding requests and what a group has recorded are not affected. RMX_E_INVALID if it is none of comm's. */
RMX_API int rmx_redop_destroy(struct rmx_comm *comm, uint32_t redop);

/* ---- calls from kernels ------------------------------------------------------------------------------------------ */
/*
 * On GPUs a kernel of the program may make a call by itself, at the end of a fused GEMM for instance: the host prepares
 * the call once, passes what it got to the kernel as a parameter, and one block of the kernel makes it with the
 * functions of railmux_device.h, as often as it likes, also in captured graphs.
 */
#define RMX_DEVICE_VERSION 2u /* of struct rmx_device_handle, the area that it leads to, and the functions for both */

#define RMX_OP_ALL_REDUCE     1
#define RMX_OP_REDUCE         2
#define RMX_OP_BROADCAST      3
#define RMX_OP_ALL_GATHER     4
#define RMX_OP_REDUCE_SCATTER 5
#define RMX_OP_ALL_TO_ALL     6
#define RMX_OP_GATHER         8
#define RMX_OP_SCATTER        9
#define RMX_OP_BARRIER        12

/* Arguments as those of the collective; what it does not have is 0. */
struct rmx_device_call {
        size_t size;        /* sizeof(struct rmx_device_call) */
        uint32_t version;   /* RMX_DEVICE_VERSION, as the kernel is compiled with */
        uint32_t operation; /* RMX_OP_* */
        const void *in;
        void *out;
        size_t count;
        uint32_t type;
        uint32_t redop;
        uint32_t root;
        uint32_t reserved; /* 0 */
};

/* A call of this rank, ready to be made by a kernel; a parameter of that kernel. Made by rmx_device_prepare and read by
 * the functions of railmux_device.h, for nobody else. */
struct rmx_device_handle {
        void *area;     /* the session's, on the GPU */
        void *host;     /* words for the library, in host memory */
        void *counter;  /* of the communicator's requests */
        const void *in; /* of small requests, whose payload goes through the area */
        void *out;
        uint32_t in_bytes, out_bytes; /* of these */
        uint32_t lanes;               /* answers that a request gets */
        uint32_t slot;                /* of the communicator */
        uint32_t payload;             /* how it goes */
        uint32_t version;
        uint32_t word[16]; /* the request */
        uint32_t reserved[4];
};

/*
 * Checks a call like the collective itself does, makes its memory known to the daemon and gives the handle. Nothing is
 * rung. The handle is good for any number of calls, one at a time, by kernels on this rank's GPU, until the
 * communicator is destroyed or the session closed (no such kernel may be under way then), and as long as the memory is
 * neither freed nor unregistered. Copies of it are as good. The caller orders such calls among themselves and with the
 * calls of the host on the same communicator: the kernel of the one must have rung, or come before the other's on its
 * stream. The library does not see the program's kernels, and waits for none of them.
 * RMX_E_UNSUPPORTED: the communicator is not on GPUs; its ranks' kernels exchange requests of this size, or such a
 * request is made of several over its nodes, since no rank made it with RMX_COMM_DEVICE_CALLS; another operation
 * (sends, receives, all_to_all_v); a reduction with a factor; memory that no other process can map, beyond 16 KiB.
 * RMX_E_VERSION: the kernel is of another version than the library. RMX_E_INVALID, RMX_E_LIMIT, RMX_E_NO_MEMORY, and
 * the communicator's error. None is sticky.
 */
RMX_API int rmx_device_prepare(struct rmx_comm *comm, const struct rmx_device_call *call,
                               struct rmx_device_handle *ret_handle);

/* Library version as (major << 16 | minor << 8 | patch). */
RMX_API uint32_t rmx_version(void);

#ifdef __cplusplus
}
#endif
#endif
