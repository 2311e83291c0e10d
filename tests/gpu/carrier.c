/* SPDX-License-Identifier: MIT */
#include "tests/cmocka_all.h"

#include "carrier.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/host/net.h"
#include "util/memfd.h"

void carrier_init(struct carrier *c, uint32_t n_ranks, const uint8_t *node, const struct plan_geometry *geometry,
                  uint64_t seed) {
        uint64_t memory_bytes;
        uint32_t capacity;

        *c = (struct carrier){.n_ranks = n_ranks, .random = {seed}};
        assert_int_equal(host_net_size(n_ranks, geometry, &capacity, &memory_bytes), 0);
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
                c->node[rank] = node[rank];
                c->n_nodes = node[rank] >= c->n_nodes ? node[rank] + 1u : c->n_nodes;
        }
        assert_true(c->n_nodes <= CARRIER_NODES_MAX);
        for (uint32_t i = 0; i < c->n_nodes; i++) {
                struct carrier_node *n = &c->nodes[i];

                n->bytes = (net_area_bytes(capacity, memory_bytes) + 4095) & ~UINT64_C(4095);
                n->wake_fd = -1;
                assert_int_equal(memfd_new("area", n->bytes, &n->fd), 0);
                assert_int_equal(memfd_map(n->fd, n->bytes, 1, 1, (void **)&n->area), 0);
                net_area_init(n->area, capacity, memory_bytes);
        }
}

void carrier_deinit(struct carrier *c) {
        for (uint32_t i = 0; i < c->n_nodes; i++) {
                memfd_unmap(c->nodes[i].area, c->nodes[i].bytes);
                close(c->nodes[i].fd);
        }
        for (uint32_t i = 0; i < c->n_pending; i++)
                free(c->pending[i].data);
        free(c->pending);
}

static void add(struct carrier *c, const struct carrier_message *message) {
        if (c->n_pending == c->capacity) {
                uint32_t capacity = c->capacity ? 2 * c->capacity : 64;
                struct carrier_message *grown = aligned_alloc(64, capacity * sizeof(*grown));

                assert_non_null(grown);
                if (c->n_pending > 0)
                        memcpy(grown, c->pending, c->n_pending * sizeof(*grown));
                free(c->pending);
                c->pending = grown;
                c->capacity = capacity;
        }
        c->pending[c->n_pending++] = *message;
}

static void count(struct carrier *c, const struct net_descriptor *d) {
        struct plan_load *out = &c->posted[d->source], *in = &c->posted[d->destination];

        out->chunks_out += d->kind == NET_CHUNK;
        out->credits_out += d->kind == NET_CREDIT;
        out->bytes_out += d->data_bytes;
        in->chunks_in += d->kind == NET_CHUNK;
        in->credits_in += d->kind == NET_CREDIT;
        in->bytes_in += d->data_bytes;
}

bool carrier_take(struct carrier *c) {
        bool any = false;

        for (uint32_t i = 0; i < c->n_nodes; i++) {
                struct carrier_node *n = &c->nodes[i];
                struct carrier_message message = {0};

                while (net_area_take(n->area, n->area->capacity, &n->position, &message.what)) {
                        const struct net_descriptor *d = &message.what;

                        assert_true(net_descriptor_valid(d, n->area->memory_offset, n->area->memory_bytes));
                        assert_true(d->source < c->n_ranks && d->destination < c->n_ranks);
                        assert_int_equal(c->node[d->source], i);
                        assert_int_not_equal(c->node[d->destination], i);
                        count(c, d);
                        add(c, &message);
                        any = true;
                }
        }
        return any;
}

static unsigned char *at(const struct carrier_node *n, uint64_t offset) {
        return (unsigned char *)n->area + offset;
}

static void arrive(struct carrier_node *to, const struct net_descriptor *d) {
        const uint64_t one = 1;

        net_area_arrive(to->area, d->kind, d->line_offset, d->value);
        if (net_area_wake_executor(to->area) && to->wake_fd >= 0)
                assert_int_equal(write(to->wake_fd, &one, sizeof(one)), sizeof(one));
}

/* The chunk once more, as it is now, some time after everything that is under way. */
static void repeat_later(struct carrier *c, const struct carrier_node *from, const struct carrier_message *message) {
        struct carrier_message again = *message;

        again.late = true;
        memcpy(again.line, at(from, again.what.line_offset), NET_LINE);
        again.data = malloc(again.what.data_bytes + 1);
        assert_non_null(again.data);
        memcpy(again.data, at(from, again.what.data_offset), again.what.data_bytes);
        add(c, &again);
}

/* Returns whether the message is done with, and as it should not be. */
static bool mutate(struct carrier *c, const struct carrier_message *message) {
        struct carrier_node *from = &c->nodes[c->node[message->what.source]];
        struct carrier_node *to = &c->nodes[c->node[message->what.destination]];
        struct carrier_message rest = *message;
        const struct net_descriptor *d = &message->what;
        bool chunk = d->kind == NET_CHUNK;

        if (c->mutation == CARRIER_RIGHT || c->n_carried < c->mutate_after || c->mutated || message->late)
                return false;
        switch (c->mutation) {
        case CARRIER_FLAG_FIRST: /* always: once might hit a chunk that nobody reads at that time */
                if (!chunk || d->data_bytes == 0 || message->data_only)
                        return false;
                arrive(to, d);
                rest.data_only = true;
                add(c, &rest);
                return true;
        case CARRIER_DROP:
                c->mutated = chunk;
                return chunk;
        case CARRIER_DROP_CREDIT:
                return !chunk; /* all from now on: the next one would make up for it */
        case CARRIER_REPEAT:
                if (chunk && !message->late)
                        repeat_later(c, from, message);
                return false;
        case CARRIER_SHORT:
                if (!chunk || d->data_bytes == 0)
                        return false;
                memcpy(at(to, d->line_offset) + 4, at(from, d->line_offset) + 4, NET_LINE - 4);
                memcpy(at(to, d->data_offset), at(from, d->data_offset), d->data_bytes - 1);
                arrive(to, d);
                return true;
        case CARRIER_OLD_LINE:
                if (!chunk || d->data_bytes > 0)
                        return false;
                arrive(to, d);
                return true;
        case CARRIER_EARLY:
                if (chunk)
                        return false;
                rest.what.value++;
                arrive(to, &rest.what);
                return true;
        default:
                return false;
        }
}

static void carry(struct carrier *c, const struct carrier_message *message) {
        struct carrier_node *from = &c->nodes[c->node[message->what.source]];
        struct carrier_node *to = &c->nodes[c->node[message->what.destination]];
        const struct net_descriptor *d = &message->what;
        const unsigned char *line = message->late ? message->line : at(from, d->line_offset);
        const unsigned char *data = message->late ? message->data : at(from, d->data_offset);

        if (d->kind == NET_CHUNK) {
                memcpy(at(to, d->line_offset) + 4, line + 4, NET_LINE - 4);
                if (d->data_bytes > 0)
                        memcpy(at(to, d->data_offset), data, d->data_bytes);
        }
        if (!message->data_only)
                arrive(to, d);
}

bool carrier_carry(struct carrier *c) {
        struct carrier_message message;
        uint32_t i;

        if (c->n_pending == 0)
                return false;
        i = random_below(&c->random, c->n_pending);
        message = c->pending[i];
        c->pending[i] = c->pending[--c->n_pending];
        if (!mutate(c, &message))
                carry(c, &message);
        free(message.data);
        c->n_carried++;
        return true;
}

bool carrier_sleep(struct carrier *c) {
        for (uint32_t i = 0; i < c->n_nodes; i++)
                atomic_store_explicit(&c->nodes[i].area->fabric_asleep, 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst); /* partner: that in net_area_wake_fabric */
        if (!carrier_take(c) && c->n_pending == 0)
                return false;
        carrier_awake(c);
        return true;
}

void carrier_awake(struct carrier *c) {
        for (uint32_t i = 0; i < c->n_nodes; i++)
                atomic_store_explicit(&c->nodes[i].area->fabric_asleep, 0, memory_order_relaxed); /* a hint by now */
}
