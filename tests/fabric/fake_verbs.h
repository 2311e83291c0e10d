/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * RDMA adapters that are not there: the calls of fabric/verbs/api.h over memory, with a network between them that a
 * test can break in every way. As strict as hardware, where a soft adapter is often lenient: an attribute that is
 * missing, a key that does not fit, a queue that is full or an event that nobody acknowledged is seen here.
 *
 * A world begins with fake_begin() and ends with fake_end(), which fails the test for what is still open and for every
 * problem that was noted: what hardware would answer by hanging, by overwriting or by nothing at all. In between the
 * calls of the table may come from any thread; one thread of the fake carries the data, reads the memory of who sends
 * and writes that of who receives without any lock, as DMA does.
 *
 * What is there: RC queue pairs with a shared receive queue, RDMA_WRITE and RDMA_WRITE_WITH_IMM, inline or not, in
 * chains, signalled or not; receives without memory; RoCE with one port, number 1. Retries are no packets but time:
 * what does not get through within timeout_ms ends as the adapter's would after its last retry.
 *
 * Faults may be set from any thread at any time. Those that concern a device count from now on, for all queue pairs.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/verbs/api.h"

#define FAKE_MUTE UINT32_MAX

struct fake_device;

struct fake_options {
        uint64_t seed;        /* of delays and random faults; the same for the same work in each queue pair's order */
        uint32_t timeout_ms;  /* until a send that gets no answer has failed; 0: 50 */
        uint32_t delay_us;    /* before each piece of each send at most, random; 0: none */
        uint32_t piece_bytes; /* what is written at once, other queue pairs come between; 0: 16384 */
        uint32_t hang_ms; /* how long destroying waits for events to be acknowledged before it is a problem; 0: 2000 */
        bool stale;       /* completions of a destroyed queue pair stay to be polled, as some adapters have it */
};

/* What happens to what a device sends and to what is sent to it. */
enum fake_drop {
        FAKE_CARRY,
        FAKE_LOSE,      /* gone, and sent again when this ends in time */
        FAKE_LOSE_ACKS, /* arrives, and who sent it never learns; not so when this ends in time */
        FAKE_HOLD,      /* is held on the way, and arrives when this ends, also after the sender gave it up */
};

enum fake_call {
        FAKE_GET_DEVICE_LIST,
        FAKE_OPEN_DEVICE,
        FAKE_QUERY_DEVICE,
        FAKE_QUERY_PORT,
        FAKE_QUERY_GID_TABLE,
        FAKE_ALLOC_PD,
        FAKE_REG_MR,
        FAKE_CREATE_COMP_CHANNEL,
        FAKE_CREATE_CQ,
        FAKE_REQ_NOTIFY_CQ,
        FAKE_POLL_CQ,
        FAKE_CREATE_SRQ,
        FAKE_POST_SRQ_RECV,
        FAKE_CREATE_QP,
        FAKE_MODIFY_QP,
        FAKE_POST_SEND,
        FAKE_N_CALLS,
};

struct fake_counters {
        uint64_t sends;                      /* requests that were given to it */
        uint64_t arrived;                    /* of these: wholly written, with their immediate if they have one */
        uint64_t held_arrived;               /* of these: after FAKE_HOLD */
        uint64_t torn;                       /* partly written when they failed */
        uint64_t lost_answers;               /* arrived, and yet ended as an error at the sender */
        uint64_t bytes;                      /* written */
        uint64_t failed;                     /* completions with an error that is not WR_FLUSH_ERR */
        uint64_t flushed;                    /* completions with WR_FLUSH_ERR */
        uint64_t empty;                      /* times an immediate found no receive */
        uint64_t twice;                      /* immediates that took two, by fake_twice() */
        uint64_t ghosts;                     /* writes to a destroyed queue pair: 0, or the fake itself is wrong */
        uint64_t queue_pairs;                /* made */
        uint64_t calls_failed[FAKE_N_CALLS]; /* by fake_fail_next() */
};

/* The calls. They know no device before fake_begin(). */
const struct verbs_api *fake_verbs(void);

/* NULL: all as 0 says. Makes the thread. One world at a time. */
void fake_begin(const struct fake_options *options);
/* Ends all, whatever is open. Fails the (cmocka) test if something was, or for problems that nobody took. */
void fake_end(void);
/*
 * The same, but only prints the problems and returns how many there are. used: threads may still use what is open, so
 * it stays where it is, as with fake_end(); else it is freed.
 */
uint32_t fake_finish(bool used);
/*
 * Problems are sentences. Takes one that contains text out; false if there is none. fake_open() is the number of
 * contexts, domains, regions, channels, queues and queue pairs, and of device lists.
 */
bool fake_take_problem(const char *text);
size_t fake_open(void);
void fake_counters(struct fake_counters *ret_counters);

/*
 * A device whose port 1 is ACTIVE. Its GIDs: 0 is a RoCEv2 one of a link-local address, 1 is the RoCEv1 one and 2 the
 * RoCEv2 one of address (numeric, IPv4 or IPv6). Only the last gets anywhere, from every device to every other and to
 * itself. Valid until fake_end().
 */
struct fake_device *fake_device_add(const char *name, const char *address);
/* Grants queue pairs at most so many inline bytes, whatever they ask; without this: 512. */
void fake_max_inline(struct fake_device *device, uint32_t bytes);
/* The link. Event PORT_ERR or PORT_ACTIVE. While it is down, sends from it end as status (0: RETRY_EXC_ERR) says. */
void fake_port(struct fake_device *device, bool up, enum ibv_wc_status status);
/* Silent: there is no event. */
void fake_drop(struct fake_device *device, enum fake_drop drop);
/* The routable RoCEv2 GID moves to another index, with event GID_CHANGE; queue pairs that use the old one are cut. */
void fake_gid_change(struct fake_device *device, uint8_t index);
/*
 * Event DEVICE_FATAL; what is open on it is dead: queue pairs are in ERR, calls that make or change something give EIO.
 * So do its fds when all events are read, and they are ready for ever, as those of a driver that was taken away are.
 * The device is not listed until fake_device_back(), and what was opened before stays dead then.
 */
void fake_device_fatal(struct fake_device *device);
void fake_device_back(struct fake_device *device);
/* Event QP_FATAL; the queue pair is in ERR. False if there is no such one. */
bool fake_qp_fatal(uint32_t qp_num);
/*
 * This memory is about to be unmapped. What is registered of it stays with the adapters until it is deregistered, as
 * pinned pages do: what still goes there harms nobody. A test whose code under test relies on that is linked with
 * --wrap=munmap and calls this (fake_rig.c).
 */
void fake_unmap(const void *address, size_t bytes);
/* The number of any queue pair of the device that can send, for those; 0 if there is none. */
uint32_t fake_qp_any(struct fake_device *device);
/* How its packets are addressed. False if there is no such one. */
bool fake_qp_path(uint32_t qp_num, struct ibv_ah_attr *ret_path);
/* Receives of the device: posted, or taken by something that has not been polled yet. */
uint32_t fake_receives(struct fake_device *device);
/* NULL if there is no such device. */
struct fake_device *fake_device_named(const char *name);

/* The call fails once with errno value error, after so many good ones. */
void fake_fail_next(enum fake_call call, int error, uint32_t after);
/* The next send from the device (qp_num 0) or from the queue pair (device NULL) ends like this, nothing of it arrives.
 */
void fake_wc_error(struct fake_device *device, uint32_t qp_num, enum ibv_wc_status status);
/* The next receive of the device ends like this; the sender gets REM_OP_ERR. */
void fake_receive_error(struct fake_device *device, enum ibv_wc_status status);
/*
 * Queue pairs of the device that come to ERR are in the midst of a message. The receive that it has taken is flushed,
 * and event QP_LAST_WQE_REACHED comes, after_us later; it is lost if the queue pair is destroyed before. 0, as without
 * this: there is no such message, and the event comes at once. FAKE_MUTE: nor does an event come.
 */
void fake_last(struct fake_device *device, uint32_t after_us);
/* The next immediate that comes to the device is told twice, as no adapter may do it and soft ones have done. */
void fake_twice(struct fake_device *device);
/*
 * One of n sends from the device, at random, fails with status (0: RETRY_EXC_ERR): after any number of its bytes were
 * written, or after all of it had arrived. n 0: none.
 */
void fake_random_errors(struct fake_device *device, uint32_t n, enum ibv_wc_status status);
/* Before each piece of a send from it at most, instead of the options' delay_us. */
void fake_delay(struct fake_device *device, uint32_t delay_us);
