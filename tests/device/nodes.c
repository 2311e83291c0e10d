/* SPDX-License-Identifier: MIT */
#include "tests/device/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/wires.h"
#include "ring/net.h"

#define DELAY_MAX 12u /* looks */

#define CHECK(condition, what)                                                                                         \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, what);                                      \
                        fflush(NULL);                                                                                  \
                        _Exit(1);                                                                                      \
                }                                                                                                      \
        } while (0)

struct nodes_message {
        struct net_descriptor what;
        uint32_t delay; /* looks until it is carried */
        bool flagged;   /* its number has been */
};

struct nodes {
        uint32_t n_ranks, n_nodes;
        uint8_t node[NODES_RANKS_MAX];
        struct net_area *area[NODES_RANKS_MAX];
        uint32_t position[NODES_RANKS_MAX];
        struct wires *wires[NODES_RANKS_MAX][WIRE_STRANDS]; /* by rank; NULL: it has nobody elsewhere */
        struct nodes_message *message;
        uint32_t n_messages, capacity;
        uint64_t random, n_chunks, n_bytes;
        uint64_t look_ns, now_ns[NODES_RANKS_MAX]; /* of proxies; look_ns 0: time does not count */
        /* by the rank that sends it */
        uint64_t data[NODES_RANKS_MAX], told[NODES_RANKS_MAX], messages[NODES_RANKS_MAX], chunks[NODES_RANKS_MAX];
        enum nodes_fault fault;
        uint64_t fault_at;
};

static uint64_t draw(struct nodes *n) {
        n->random ^= n->random << 13;
        n->random ^= n->random >> 7;
        n->random ^= n->random << 17;
        return n->random >> 16;
}

static unsigned char *at(struct net_area *area, uint64_t offset) {
        return (unsigned char *)area + offset;
}

/* ---- the fabric -------------------------------------------------------------------------------------------------- */
static void check(const struct nodes *n, uint32_t node, const struct net_descriptor *d) {
        const struct net_area *area = n->area[node];

        CHECK(net_descriptor_valid(d, area->memory_offset, area->memory_bytes), "a descriptor out of bounds");
        CHECK(d->source < n->n_ranks && d->destination < n->n_ranks && n->node[d->source] == node &&
                      n->node[d->destination] != node,
              "a descriptor of other ranks than from here to elsewhere");
        CHECK(d->kind == NET_CHUNK || !d->data_bytes, "a credit with data");
}

/* Descriptors have a line of their own, which realloc() does not know. */
static void grow(struct nodes *n) {
        uint32_t capacity = n->capacity ? 2 * n->capacity : 64;
        struct nodes_message *message = aligned_alloc(_Alignof(struct nodes_message), capacity * sizeof(*message));

        CHECK(message, "out of memory");
        if (n->n_messages > 0)
                memcpy(message, n->message, n->n_messages * sizeof(*message));
        free(n->message);
        n->message = message;
        n->capacity = capacity;
}

static bool take(struct nodes *n) {
        struct net_descriptor d;
        bool any = false;

        for (uint32_t i = 0; i < n->n_nodes; i++)
                while (net_area_take(n->area[i], n->area[i]->capacity, &n->position[i], &d)) {
                        check(n, i, &d);
                        if (n->n_messages == n->capacity)
                                grow(n);
                        n->message[n->n_messages++] =
                                (struct nodes_message){.what = d, .delay = (uint32_t)(draw(n) % (DELAY_MAX + 1))};
                        any = true;
                }
        return any;
}

/* What is in a batch. */
static void count(struct nodes *n, const struct net_descriptor *d, struct net_area *from) {
        const struct wire_line *line = (const void *)at(from, d->line_offset);
        const unsigned char *data = d->data_bytes ? at(from, d->data_offset) : line->data;
        struct wire_entry entry;

        for (uint32_t i = 0; i + sizeof(entry) <= line->bytes; i += sizeof(entry)) {
                memcpy(&entry, data + i, sizeof(entry));
                if (entry.bytes == WIRE_CREDIT)
                        continue;
                i += (entry.bytes + 7u) / 8 * 8;
                n->chunks[d->source]++;
                if (entry.channel == STAGING_PACKET_CHANNELS - 1)
                        n->told[d->source]++;
                else
                        n->data[d->source] += entry.bytes;
        }
}

static void chunk_data(struct nodes *n, const struct net_descriptor *d, struct net_area *from, struct net_area *to,
                       enum nodes_fault fault) {
        if (fault != NODES_LATE_LINE)
                memcpy(at(to, d->line_offset) + 4, at(from, d->line_offset) + 4, NET_LINE - 4);
        if (fault == NODES_DROP_CREDITS)
                ((struct wire_line *)(void *)at(to, d->line_offset))->taken = 0;
        if (d->data_bytes)
                memcpy(at(to, d->data_offset), at(from, d->data_offset), d->data_bytes - (fault == NODES_SHORT) * 8u);
        else if (fault == NODES_SHORT)
                memset(at(to, d->line_offset) + 8, 0xee, 8);
        n->n_bytes += d->data_bytes;
}

/* What goes wrong with a message; once, but for credits. */
static enum nodes_fault fault_of(struct nodes *n, bool chunk) {
        const enum nodes_fault fault = n->fault;

        if (!fault || n->n_chunks < n->fault_at || (!chunk && fault != NODES_DROP_CREDITS))
                return NODES_RIGHT;
        if (fault != NODES_DROP_CREDITS)
                n->fault = NODES_RIGHT;
        return fault;
}

/* True: it has been carried, and is to be forgotten. */
static bool carry(struct nodes *n, struct nodes_message *m) {
        const struct net_descriptor *d = &m->what;
        struct net_area *from = n->area[n->node[d->source]], *to = n->area[n->node[d->destination]];
        const bool chunk = d->kind == NET_CHUNK;
        enum nodes_fault fault;

        if (m->flagged) {
                chunk_data(n, d, from, to, NODES_RIGHT);
                return true;
        }
        n->n_chunks += chunk;
        n->messages[d->source]++;
        if (chunk)
                count(n, d, from);
        fault = fault_of(n, chunk);
        if (fault == NODES_DROP || (fault == NODES_DROP_CREDITS && !chunk))
                return true;
        if (fault == NODES_FLAG_FIRST) {
                net_area_arrive(to, d->kind, d->line_offset, d->value);
                m->flagged = true;
                m->delay = 50;
                return false;
        }
        if (chunk)
                chunk_data(n, d, from, to, fault);
        net_area_arrive(to, d->kind, d->line_offset, d->value);
        return true;
}

bool nodes_fabric(struct nodes *n) {
        bool moved = take(n);

        for (uint32_t i = 0; i < n->n_messages; i++) {
                struct nodes_message *m = &n->message[i];

                moved = true; /* it will be */
                if (m->delay) {
                        m->delay--;
                } else if (carry(n, m)) {
                        *m = n->message[--n->n_messages];
                        i--;
                }
        }
        return moved;
}

void nodes_break(struct nodes *n, enum nodes_fault fault, uint64_t fault_at) {
        n->fault = fault;
        n->fault_at = fault_at;
}

bool nodes_quiet(const struct nodes *n) {
        for (uint32_t i = 0; i < n->n_nodes; i++)
                if (atomic_load_explicit(&n->area[i]->tail, memory_order_relaxed) != n->position[i])
                        return false;
        return n->n_messages == 0;
}

uint64_t nodes_data(const struct nodes *n, uint32_t rank, uint64_t *ret_told) {
        *ret_told = n->told[rank];
        return n->data[rank];
}

uint64_t nodes_messages(const struct nodes *n, uint32_t rank, uint64_t *ret_chunks) {
        *ret_chunks = n->chunks[rank];
        return n->messages[rank];
}

uint64_t nodes_chunks(const struct nodes *n, uint64_t *ret_bytes) {
        *ret_bytes = n->n_bytes;
        return n->n_chunks;
}

/* ---- what exists ------------------------------------------------------------------------------------------------- */
/* As if so many chunks had passed through each channel. */
static void preset(struct wires *wires, struct wire_end *end, uint32_t chunks) {
        struct wire_mirror *out = &wires->mirror[wire_mirror_of(&wires->nodes, wires->n_ranks, end->rank, end->peer)];
        struct wire *w = end->wire;

        /* Batches wrap, too, a little later. */
        end->sent = end->acked = end->taken = end->told = out->taken = chunks ? chunks - 2 * WIRE_BATCHES : 0;
        for (uint32_t c = 0; c < STAGING_CHANNELS; c++) {
                end->pushed[c] = end->given[c] = end->come[c] = chunks;
                w->pushed[c] = w->given[c] = w->room[c] = chunks;
                for (uint32_t back = 0; chunks && back < WIRE_SLOTS; back++) {
                        const uint32_t number = chunks - back, slot = (number - 1) % WIRE_SLOTS;

                        w->come[c][slot] = number;
                        for (uint32_t i = 0; i < WIRE_CHUNK / 8; i++) {
                                ((uint64_t *)(void *)w->out[c][slot])[i] = (uint64_t)number << 32 | 0x0badu;
                                ((uint64_t *)(void *)w->in[c][slot])[i] = (uint64_t)number << 32 | 0x0badu;
                        }
                }
        }
}

uint64_t nodes_wires(const struct nodes *n, uint32_t rank, void *ret_wire[NODES_RANKS_MAX]) {
        uint64_t far = 0;

        for (uint32_t p = 0; p < n->n_ranks; p++) {
                ret_wire[p] = NULL;
                if (n->node[p] == n->node[rank])
                        continue;
                far |= UINT64_C(1) << p;
                ret_wire[p] = wires_end(n->wires[rank][0], rank, p)->wire;
        }
        return far;
}

bool nodes_proxy(struct nodes *n, uint32_t rank) {
        bool moved = false;

        n->now_ns[rank] += n->look_ns;
        for (uint32_t k = 0; k < WIRE_STRANDS; k++) {
                struct wires *wires = n->wires[rank][k];

                moved = (n->look_ns ? wires_step_at(wires, n->now_ns[rank]) : wires_step(wires)) || moved;
        }
        return moved;
}

void nodes_look(struct nodes *n, uint64_t look_ns) {
        n->look_ns = look_ns;
}

static void rank_init(struct nodes *n, uint32_t rank, uint32_t chunks, void *(*memory)(void *, uint64_t),
                      void *context) {
        const struct net_area *area = n->area[n->node[rank]];
        const struct plane_net net = {.area = n->area[n->node[rank]],
                                      .bytes = net_area_bytes(area->capacity, area->memory_bytes),
                                      .doorbell_fd = -1};
        char error[PLANE_TEXT] = "";
        uint32_t n_far = 0, i = 0;
        struct plan_nodes nodes;

        CHECK(plan_nodes_init(&nodes, n->n_ranks, n->node) == 0, "no such nodes");

        for (uint32_t p = 0; p < n->n_ranks; p++)
                n_far += n->node[p] != n->node[rank];
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                CHECK(wires_new(&net, n->n_ranks, &nodes, n_far, k, &n->wires[rank][k], error) == 0, error);
        for (uint32_t p = 0; p < n->n_ranks; p++) {
                struct wire *wire;

                if (n->node[p] == n->node[rank])
                        continue;
                wire = memory(context, sizeof(struct wire));
                for (uint32_t k = 0; k < WIRE_STRANDS; k++) {
                        struct wire_end *end = &n->wires[rank][k]->end[i];

                        end->rank = rank;
                        end->peer = p;
                        end->wire = wire;
                        preset(n->wires[rank][k], end, chunks);
                }
                i++;
        }
}

struct nodes *nodes_new(uint32_t n_ranks, const uint8_t *node, uint32_t chunks, uint64_t seed,
                        void *(*memory)(void *, uint64_t), void *context) {
        struct nodes *n = calloc(1, sizeof(*n));
        struct plan_nodes nodes;
        uint64_t memory_bytes;
        uint32_t capacity;

        CHECK(n && plan_nodes_init(&nodes, n_ranks, node) == 0 &&
                      plane_net_size(n_ranks, &nodes, &capacity, &memory_bytes) == 0,
              "no memory, or no net area for so many");
        n->n_ranks = n_ranks;
        n->random = seed | 1;
        n->look_ns = seed % 3 * 500;
        for (uint32_t r = 0; r < n_ranks; r++) {
                n->node[r] = node[r];
                n->n_nodes = n->n_nodes > node[r] + 1u ? n->n_nodes : node[r] + 1u;
        }
        for (uint32_t i = 0; i < n->n_nodes; i++) {
                n->area[i] = memory(context, net_area_bytes(capacity, memory_bytes));
                net_area_init(n->area[i], capacity, memory_bytes);
        }
        for (uint32_t r = 0; r < n_ranks; r++)
                rank_init(n, r, chunks, memory, context);
        return n;
}

void nodes_free(struct nodes *n) {
        for (uint32_t r = 0; r < n->n_ranks; r++)
                for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                        n->wires[r][k] = wires_free(n->wires[r][k]);
        free(n->message);
        free(n);
}
