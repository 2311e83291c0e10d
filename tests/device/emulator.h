/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The device's interpreter without a device: the sources of the resident kernel compiled for the host (warps of one
 * thread), with staging, bell areas and tables in ordinary memory between guard pages. See emulator.cc.
 *
 * Workers take turns with the caller (fiber.h), who plays the executors' control threads and all clients.
 */
#include <stdbool.h>
#include <stdint.h>

#include "gpu/device/bell.h"
#include "gpu/device/tables.h"

#ifndef EMULATOR_RANKS_MAX /* more where there shall be many */
#define EMULATOR_RANKS_MAX 8u
#endif
#define EMULATOR_GPUS_MAX     8u
#define EMULATOR_WORKERS_MAX  20u
#define EMULATOR_SESSIONS_MAX (EMULATOR_RANKS_MAX > 32u ? EMULATOR_RANKS_MAX : 32u)
#define EMULATOR_COMMS_MAX    16u
#define EMULATOR_HELPERS_MAX  (EMULATOR_RANKS_MAX + 12u)

struct emulator;

/* Scrambles. */
uint64_t mix(uint64_t x);

/* How it runs. */
#define EMULATOR_JITTER 1u /* workers give way at random moments, also between two packets, to anybody */
#define EMULATOR_WATCH  2u /* staging is checked: see watch.h */

struct emulator_request {
        uint32_t operation, type, redop, root; /* root: send, receive: the peer */
        uint64_t count;
        uint32_t in_buffer, out_buffer; /* ids of emulator_buffer */
        uint64_t in_offset, out_offset;
        const void *in; /* inline: what goes into the inbox */
        void *out;      /* inline: where the outbox is copied to */
        uint64_t in_bytes, out_bytes;
        uint64_t scalar;
        const uint64_t *vector; /* all_to_all_v: its argument block, 4 words for each rank */
        bool inlined;
};

struct emulator *emulator_new(uint32_t n_gpus, uint32_t n_workers, uint32_t flags, uint64_t seed);
void emulator_free(struct emulator *e);

/* Zeroed memory that ends at a guard page; lives as long as the emulator. */
void *emulator_memory(struct emulator *e, uint64_t bytes);
/* A client process on a GPU, with a ring whose first request has the number `first` (1, unless wraps are looked for).
 */
uint32_t emulator_session(struct emulator *e, uint32_t gpu, uint32_t first);
uint32_t emulator_buffer(struct emulator *e, uint32_t session, void *memory, uint64_t bytes);
/* The same number stands for other memory from now on, or for none. Nothing may be under way with it. */
void emulator_buffer_move(struct emulator *e, uint32_t session, uint32_t id, void *memory, uint64_t bytes);
/* A communicator whose rank r belongs to session[r]. `sequence` comm sequences and `chunks` chunks of each channel have
 * been counted before. */
uint32_t emulator_comm(struct emulator *e, uint32_t n_ranks, const uint32_t *session, uint32_t transport,
                       uint32_t sequence, uint32_t chunks);
/* Its ranks are taken out of the tables, and whoever comes next has their places there. */
void emulator_detach(struct emulator *e, uint32_t comm);
/* Requests are spread over so many data lanes, 0: all (at first a number that comes from the seed). Nothing may be
 * under way on the communicator. */
void emulator_spread(struct emulator *e, uint32_t comm, uint32_t lanes);
/* Algorithm and transport (in two regions always packets) of an operation. Nothing may be under way on the
 * communicator. */
void emulator_choose(struct emulator *e, uint32_t comm, uint32_t operation, uint32_t algorithm, uint32_t transport);
/* The same with a plan over nodes: node[rank], numbered without gaps. (emulator_wire says which ranks are elsewhere.)
 */
void emulator_choose_nodes(struct emulator *e, uint32_t comm, uint32_t operation, uint32_t algorithm,
                           const uint8_t *node);

/* Rings; the ring sequence, or 0: the slot is not free yet. */
uint32_t emulator_ring(struct emulator *e, uint32_t comm, uint32_t rank, const struct emulator_request *request);
/* Passes on the session's next ring sequence, whose slot is not free. False: it is, or the line of the request that has
 * it would be written over. */
bool emulator_pass(struct emulator *e, uint32_t session);
/* Harvests if the request is finished. */
bool emulator_poll(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t ring_sequence,
                   const struct emulator_request *request, uint32_t *ret_status);
/* The same in the end; ends the program with a list of tasks if that takes too long. */
uint32_t emulator_wait(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t ring_sequence,
                       const struct emulator_request *request);
/* Prints what every worker has in hand, and ends the program. */
[[noreturn]] void emulator_stuck(struct emulator *e, const char *why);
/* Lets workers go on. True: nothing has moved for so long that nothing will. */
bool emulator_rests(struct emulator *e);
/* Lets workers go on. If nothing moves, however often this is called: emulator_stuck. */
void emulator_turn(struct emulator *e, const char *why);

/* Peers of the rank in `far` (a bit each) are on another node: its channels to p are in wire[p] (gpu/device/wire.h).
 * Nothing may be under way. */
void emulator_wire(struct emulator *e, uint32_t comm, uint32_t rank, uint64_t far, void *const *wire);
/* step(data) has turns like a worker, until the emulator is freed; true: it has moved something. */
void emulator_helper(struct emulator *e, bool (*step)(void *data), void *data);

/* For whoever wants to write nonsense. */
unsigned char *emulator_area(struct emulator *e, uint32_t session);
uint32_t emulator_handle(struct emulator *e, uint32_t comm, uint32_t rank);
/* The next ring sequence of a session. */
uint32_t emulator_next(struct emulator *e, uint32_t session);
/* Gives up what the session has outstanding and goes on with the ring sequence `next`, as a client may. */
void emulator_skip(struct emulator *e, uint32_t session, uint32_t next);

/* The communicator's own staging is not watched any more. */
void emulator_distrust(struct emulator *e, uint32_t comm);

/* Puts what `other` calls so (a handle, a buffer) also where a search for the same number of the session begins, as if
 * it had found no place nearer to its own. */
void emulator_mislead(struct emulator *e, uint32_t session, uint32_t other, uint32_t handle, uint32_t buffer);

/* The status that a rank's kernel has reported, 0: none. */
uint32_t emulator_reported(struct emulator *e, uint32_t comm, uint32_t rank);
/* The last collective that a rank has begun, as reported. */
uint32_t emulator_rung(struct emulator *e, uint32_t comm, uint32_t rank);
/* How far a rank's sends to (or receives from) a peer are, as reported. */
void emulator_pair(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t peer, bool sends, uint32_t *ret_rung,
                   uint32_t *ret_finished);
/* Requests that a worker has served without looking for what else there is (hot.h). */
uint64_t emulator_stayed(const struct emulator *e, uint32_t gpu, uint32_t worker);
/* What the worker remembers of lines is of this epoch (memo.h). */
uint32_t emulator_epoch(const struct emulator *e, uint32_t gpu, uint32_t worker);
/* Chunks of other ranks that have been given back so far. */
uint64_t emulator_chunks(struct emulator *e, uint32_t comm, uint32_t transport, uint32_t region);
void emulator_abort(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t status);
/* The rank makes no requests after `last`: later ones are answered with status. */
void emulator_leave(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t last, uint32_t status);
/* The rank hears of others, a bit each, that make no requests any more. */
void emulator_left(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t who);
/* Stops the workers of a GPU and starts them again, with whatever is under way. */
void emulator_restart(struct emulator *e, uint32_t gpu);
/* The two halves of that. */
void emulator_stop(struct emulator *e, uint32_t gpu);
void emulator_start(struct emulator *e, uint32_t gpu);
/* Tells the workers of a GPU to end when they have nothing to do (TABLE_STOP_SERVED). Afterwards emulator_stop, which
 * does nothing to those that have ended, or emulator_restart. */
void emulator_finish(struct emulator *e, uint32_t gpu);
/* Have all ended? */
bool emulator_ended(const struct emulator *e, uint32_t gpu);
/* Did all workers of its GPU report, when they ended, that they had seen all lines of the session? */
bool emulator_seen(const struct emulator *e, uint32_t session);
/* Did a worker of its GPU report at the last stop that it keeps tasks of the session? */
bool emulator_kept(const struct emulator *e, uint32_t session);
/* Lines of the session from `limit` on stay where they are, or none do; ranks of the communicator are held. */
void emulator_limit(struct emulator *e, uint32_t comm, uint32_t session, bool limited, uint32_t limit);
/* Do all workers look for the limit, and have no task of held ranks? */
bool emulator_settled(struct emulator *e, uint32_t session, uint32_t limit);
/* Has all been pulled that was pushed, on all lanes? */
bool emulator_empty(struct emulator *e, uint32_t comm);
/* Staging and channel counters begin anew, as after the restart of an executor. */
void emulator_renew(struct emulator *e, uint32_t comm);
/* Takes the buffer out of the table. */
void emulator_retire(struct emulator *e, uint32_t session, uint32_t buffer);
/* Requests of the communicator, whose ranks are on different GPUs, try to reach from so many bytes on; 0: none do. */
void emulator_reach(struct emulator *e, uint32_t comm, uint64_t bytes);
/* The buffer is mapped on these other GPUs, a bit each, and on no others. With `lie` its own GPU still says that it is.
 */
void emulator_map(struct emulator *e, uint32_t session, uint32_t buffer, uint32_t gpus, bool lie);
/* Of the communicator's requests that reach, those of so many bytes are bursts; 0: none is. */
void emulator_burst(struct emulator *e, uint32_t comm, uint64_t bytes);
/* The GPU launches no burst until it is let. */
void emulator_burst_hold(struct emulator *e, uint32_t gpu, bool hold);
/* How many of the GPU's bursts have moved something, and how many were posted. */
uint32_t emulator_bursts(const struct emulator *e, uint32_t gpu, uint32_t *ret_posted);
/* How often the GPU's blocks look for the word to go, for ever at first. */
void emulator_burst_patience(struct emulator *e, uint32_t gpu, uint32_t looks);
/* Has some block of the GPU's burst begun, and has not each ended? */
bool emulator_burst_runs(const struct emulator *e, uint32_t gpu);
/* On these GPUs, a bit each, bursts of so many bytes that can be copies are; 0: none is. Nothing may be under way. */
void emulator_copies(struct emulator *e, uint32_t gpus, uint64_t bytes);
/* Moments at which the host that copies can be found. It lingers at one of them until what it has seen is taken back,
 * or, with `stays`, until it is told otherwise. */
enum emulator_moment {
        EMULATOR_SEEN = 0,
        EMULATOR_BETWEEN = 1, /* it has said that it begins, and not yet looked whether it may */
        EMULATOR_BEGUN = 2,   /* .. + pieces moved; after the last one it has to say that all is done */
        EMULATOR_NEVER = 1000,
};
void emulator_copies_linger(struct emulator *e, uint32_t gpu, uint32_t moment, bool stays);
bool emulator_copies_lingers(const struct emulator *e, uint32_t gpu);
/* How many of the GPU's bursts were copies that have been moved. */
uint32_t emulator_copied(const struct emulator *e, uint32_t gpu);
/* As emulator_abort; what peers may be reaching is not answered before emulator_settle. */
void emulator_freeze(struct emulator *e, uint32_t comm, uint32_t rank, uint32_t status);
void emulator_settle(struct emulator *e, uint32_t comm, uint32_t rank);
/* A worker stands still until it is let go. */
void emulator_hold(struct emulator *e, uint32_t gpu, uint32_t worker, bool hold);
