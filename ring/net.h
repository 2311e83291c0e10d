/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * The net area of a communicator that spans nodes: its staging memory, and the queue by which an executor asks for what
 * it put there to be carried to the same place on another node.
 *
 * railmuxd makes one memfd for each such communicator and node, sealed, mapped by railmuxd and by executors only. The
 * areas of all nodes have the same size and layout, so a place has the same offset everywhere:
 *
 *   0              struct net_area
 *   NET_QUEUE      struct net_descriptor [capacity]
 *   memory         staging: channels as the backend lays them out (gpu/host/channel.h)
 *
 * An executor that has pushed a chunk into a channel to a rank of another node, or has given back a slot to one, posts
 * a descriptor. railmuxd's fabric takes it, and on the other node it does there what was done here: data first, then
 * one word with release. Words of chunks are stored, words of credits only ever rise (by signed difference), so credits
 * may overtake each other.
 *
 * The queue is never full: a chunk is posted once for each time that its slot was free, a credit once for each chunk,
 * so at most slots * channels of each stand in it. Many producers, one consumer; the consumer's position is its own.
 *
 * Sleeping, both ways alike: who goes to sleep stores 1 in its word, fences (seq_cst) and looks once more; who has
 * posted fences (seq_cst), reads the word and, if it is set, writes the eventfd that it was given beside the area.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_MAGIC   UINT32_C(0x724e6574)
#define NET_VERSION 1u
#define NET_LINE    64u /* of a slot: flag (4 bytes), signature (4 bytes), small data (56 bytes) */
#define NET_QUEUE   256u

enum net_kind {
        NET_CHUNK = 1,  /* line[4..63] and the data, then line[0..3] = value */
        NET_CREDIT = 2, /* line[0..3] = value, if that is later */
};

struct net_descriptor {
        _Alignas(64) _Atomic uint32_t turn; /* position + 1 when it is filled; release / acquire */
        uint8_t kind;                       /* enum net_kind */
        uint8_t source;                     /* ranks of the communicator: whose node it comes from */
        uint8_t destination;                /* and goes to */
        uint8_t reserved;
        uint32_t value;
        uint32_t data_bytes;  /* chunks: 0 if all lies in the line */
        uint64_t line_offset; /* from the area's start, multiple of NET_LINE */
        uint64_t data_offset; /* the same; meaningless if data_bytes is 0 */
};
_Static_assert(sizeof(struct net_descriptor) == 64, "a descriptor is a line");

struct net_area {
        uint32_t magic, version;
        uint32_t capacity; /* of the queue, a power of two */
        uint32_t reserved;
        uint64_t memory_offset, memory_bytes;
        _Alignas(64) _Atomic uint32_t tail;            /* next position; producers */
        _Alignas(64) _Atomic uint32_t fabric_asleep;   /* seq_cst, see above */
        _Alignas(64) _Atomic uint32_t executor_asleep; /* seq_cst */
        _Atomic uint32_t arrivals;                     /* words stored by the fabric so far; release / acquire */
};
_Static_assert(sizeof(struct net_area) <= NET_QUEUE, "the queue begins behind the header");

/* Bytes of an area with so many descriptors and bytes of staging; 0 on overflow. capacity: a power of two. */
static inline uint64_t net_area_bytes(uint32_t capacity, uint64_t memory_bytes) {
        uint64_t offset = NET_QUEUE + (uint64_t)capacity * sizeof(struct net_descriptor);

        return memory_bytes > UINT64_MAX - offset ? 0 : offset + memory_bytes;
}

/* Zeroed memory of net_area_bytes() becomes an area. */
static inline void net_area_init(struct net_area *area, uint32_t capacity, uint64_t memory_bytes) {
        area->magic = NET_MAGIC;
        area->version = NET_VERSION;
        area->capacity = capacity;
        area->memory_offset = NET_QUEUE + (uint64_t)capacity * sizeof(struct net_descriptor);
        area->memory_bytes = memory_bytes;
}

/* Is what lies in `size` bytes an area, whole? */
static inline bool net_area_valid(const struct net_area *area, uint64_t size) {
        uint64_t bytes;

        if (size < NET_QUEUE || area->magic != NET_MAGIC || area->version != NET_VERSION || area->capacity == 0 ||
            (area->capacity & (area->capacity - 1)) != 0)
                return false;
        bytes = net_area_bytes(area->capacity, area->memory_bytes);
        return bytes != 0 && bytes <= size && area->memory_offset == bytes - area->memory_bytes;
}

/* capacity: of the header for who made it and for executors; the fabric's own copy for the fabric, since executors can
 * write to the header. */
static inline struct net_descriptor *net_area_descriptor(struct net_area *area, uint32_t capacity, uint32_t position) {
        return (struct net_descriptor *)(void *)((unsigned char *)area + NET_QUEUE) + (position & (capacity - 1));
}

/* Any thread of the executor. The caller then wakes the fabric if net_area_wake_fabric() says so; once for several. */
static inline void net_area_post(struct net_area *area, const struct net_descriptor *what) {
        /* acq_rel, with itself. By the bound, some slot was posted twice within the last `capacity` descriptors, hence
         * its credit came in between, hence the fabric had read the descriptor that lay in our place; this brings that
         * order from the producer who saw the credit to us. */
        uint32_t position = atomic_fetch_add_explicit(&area->tail, 1, memory_order_acq_rel);
        struct net_descriptor *d = net_area_descriptor(area, area->capacity, position);

        d->kind = what->kind;
        d->source = what->source;
        d->destination = what->destination;
        d->reserved = 0;
        d->value = what->value;
        d->data_bytes = what->data_bytes;
        d->line_offset = what->line_offset;
        d->data_offset = what->data_offset;
        /* Release; partner: the acquire load in net_area_take. What is to be carried is there when the number is. */
        atomic_store_explicit(&d->turn, position + 1, memory_order_release);
}

static inline bool net_area_wake_fabric(struct net_area *area) {
        atomic_thread_fence(memory_order_seq_cst); /* partner: the fence of the fabric that goes to sleep */
        return atomic_load_explicit(&area->fabric_asleep, memory_order_relaxed) != 0;
}

/* The fabric, one thread at a time. capacity: its copy. *position is its own count, 0 at first. False: nothing there.
 */
static inline bool net_area_take(struct net_area *area, uint32_t capacity, uint32_t *position,
                                 struct net_descriptor *ret) {
        struct net_descriptor *d = net_area_descriptor(area, capacity, *position);

        /* Acquire; partner: the release store in net_area_post. */
        if (atomic_load_explicit(&d->turn, memory_order_acquire) != *position + 1)
                return false;
        ret->kind = d->kind;
        ret->source = d->source;
        ret->destination = d->destination;
        ret->value = d->value;
        ret->data_bytes = d->data_bytes;
        ret->line_offset = d->line_offset;
        ret->data_offset = d->data_offset;
        (*position)++;
        return true;
}

/* Does a descriptor stay inside the staging of its area? What comes from another node is checked with the same. */
static inline bool net_descriptor_valid(const struct net_descriptor *d, uint64_t memory_offset, uint64_t memory_bytes) {
        uint64_t end = memory_offset + memory_bytes;

        if ((d->kind != NET_CHUNK && d->kind != NET_CREDIT) || d->line_offset % NET_LINE != 0 ||
            d->line_offset < memory_offset || d->line_offset > end || end - d->line_offset < NET_LINE)
                return false;
        if (d->data_bytes == 0)
                return true;
        return d->kind == NET_CHUNK && d->data_offset >= memory_offset && d->data_offset <= end &&
               end - d->data_offset >= d->data_bytes;
}

/* The fabric has carried something in: the word at line_offset, after what belongs to it. */
static inline void net_area_arrive(struct net_area *area, uint32_t kind, uint64_t line_offset, uint32_t value) {
        _Atomic uint32_t *word = (_Atomic uint32_t *)(void *)((unsigned char *)area + line_offset);

        /* relaxed: nobody else writes a credit; several rails may bring credits of one channel, under a lock */
        if (kind == NET_CHUNK || (int32_t)(value - atomic_load_explicit(word, memory_order_relaxed)) > 0)
                /* Release; partners: channel_has_chunk and channel_may_push. */
                atomic_store_explicit(word, value, memory_order_release);
        /* Release; partner: the acquire load of who goes to sleep, which then looks at the word. */
        atomic_fetch_add_explicit(&area->arrivals, 1, memory_order_release);
}

static inline bool net_area_wake_executor(struct net_area *area) {
        atomic_thread_fence(memory_order_seq_cst); /* partner: the fence of the executor that goes to sleep */
        return atomic_load_explicit(&area->executor_asleep, memory_order_relaxed) != 0;
}
