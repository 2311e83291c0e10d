/* SPDX-License-Identifier: MIT */
/* One look of the proxy at a time: who has his turn when there is more than goes at once, and what ends a wire. */
#include "tests/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/hip/wires.h"
#include "ring/net.h"
#include "util/clock.h"

#define N    4u
#define LAST last_channel()

/* All tests are run for each. */
static uint32_t strand;

static bool is_mine(uint32_t channel) {
        return wire_strand(channel) == strand;
}

/* The k-th channel of the strand from this one on. */
static uint32_t mine_from(uint32_t channel, uint32_t k) {
        for (;; channel++)
                if (is_mine(channel) && k-- == 0)
                        return channel;
}
static uint32_t mine(uint32_t k) {
        return mine_from(0, k);
}

static uint32_t last_channel(void) {
        uint32_t channel = STAGING_CHANNELS - 1;

        while (!is_mine(channel))
                channel--;
        return channel;
}

/* Rank 0 is here, 2 and 3 are elsewhere. */
struct world {
        struct plane_net net;
        struct wires *wires;
        struct wire_mirror *mirror;
        uint32_t position;
        char error[PLANE_TEXT];
};

static void *zeroes(size_t bytes) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        assert_true(memory != MAP_FAILED);
        return memory;
}

static int setup(void **state) {
        static const uint8_t node[N] = {0, 0, 1, 1};
        struct world *w = calloc(1, sizeof(*w));
        struct plan_nodes nodes;
        uint64_t memory_bytes;
        uint32_t capacity;

        assert_non_null(w);
        assert_int_equal(plan_nodes_init(&nodes, N, node), 0);
        assert_int_equal(plane_net_size(N, &nodes, &capacity, &memory_bytes), 0);
        w->net = (struct plane_net){.bytes = net_area_bytes(capacity, memory_bytes), .doorbell_fd = -1};
        w->net.area = zeroes(w->net.bytes);
        net_area_init(w->net.area, capacity, memory_bytes);
        assert_int_equal(wires_new(&w->net, N, &nodes, 2, strand, &w->wires, w->error), 0);
        for (uint32_t i = 0; i < 2; i++) {
                w->wires->end[i].peer = 2 + i;
                w->wires->end[i].wire = zeroes(sizeof(struct wire));
        }
        w->mirror = (struct wire_mirror *)(void *)((unsigned char *)w->net.area + w->net.area->memory_offset);
        w->mirror += (size_t)strand * N * N;
        assert_ptr_equal(w->mirror, w->wires->mirror);
        *state = w;
        return 0;
}

static int teardown(void **state) {
        struct world *w = *state;

        for (uint32_t i = 0; i < 2; i++)
                munmap(w->wires->end[i].wire, sizeof(struct wire));
        assert_null(wires_free(w->wires));
        munmap(w->net.area, w->net.bytes);
        free(w);
        return 0;
}

/* What a kernel does: another bulk chunk, or a whole one of packets. */
static void push(struct wire *wire, uint32_t channel) {
        const uint32_t number = wire->pushed[channel] + 1, slot = (number - 1) % WIRE_SLOTS;

        if (channel < STAGING_PACKET_CHANNELS)
                for (uint32_t i = 0; i < WIRE_CHUNK / 8; i++)
                        ((uint64_t *)(void *)wire->out[channel][slot])[i] = (uint64_t)number << 32 | i;
        else
                wire->bytes[channel][slot] = STAGING_BULK_CHUNK;
        __atomic_store_n(&wire->pushed[channel], number, __ATOMIC_RELEASE);
}

/* The next batch that was posted, if it is to `peer`; then its entries are counted by channel. */
static bool batch_posted(struct world *w, uint32_t *ret_peer, uint32_t seen[STAGING_CHANNELS]) {
        const struct wire_line *line;
        const unsigned char *data;
        struct net_descriptor d;

        if (!net_area_take(w->net.area, w->net.area->capacity, &w->position, &d))
                return false;
        assert_int_equal(d.kind, NET_CHUNK);
        *ret_peer = d.destination;
        line = (const struct wire_line *)(const void *)((const unsigned char *)w->net.area + d.line_offset);
        data = d.data_bytes ? (const unsigned char *)w->net.area + d.data_offset : line->data;
        for (uint32_t at = 0; at < line->bytes;) {
                struct wire_entry entry;

                memcpy(&entry, data + at, sizeof(entry));
                assert_in_range(entry.channel, 0, STAGING_CHANNELS - 1);
                seen[entry.channel]++;
                at += (uint32_t)sizeof(entry) + (entry.bytes == WIRE_CREDIT ? 0 : (entry.bytes + 7u) / 8 * 8);
        }
        return true;
}

/* The other side has taken all batches. */
static void all_taken(struct world *w, uint32_t peer) {
        w->mirror[peer].taken = w->wires->end[peer - 2].sent; /* mirror of rank 0 and the peer */
        net_area_arrive(w->net.area, NET_CREDIT,
                        (uint64_t)((unsigned char *)&w->mirror[peer].taken - (unsigned char *)w->net.area),
                        w->mirror[peer].taken);
}

/* All channels push again as soon as they can, and the network takes a batch at a time: each gets its share. */
static void every_channel_has_its_turn(void **state) {
        struct world *w = *state;
        struct wire *wire = w->wires->end[0].wire;
        uint32_t least = UINT32_MAX, most = 0, seen[STAGING_CHANNELS] = {0};

        for (uint32_t round = 0; round < 400; round++) {
                struct wire_end *end = &w->wires->end[0];
                uint32_t peer;

                end->acked = end->sent;
                end->head = 0;
                end->tail = (uint64_t)WIRE_BATCH_BYTES - WIRE_RING_BYTES; /* room for one batch */

                for (uint32_t c = 0; c < STAGING_CHANNELS; c++)
                        while (is_mine(c) && wire->pushed[c] - w->wires->end[0].pushed[c] < WIRE_SLOTS)
                                push(wire, c);
                assert_true(wires_step(w->wires));
                assert_true(batch_posted(w, &peer, seen));
                assert_false(batch_posted(w, &peer, seen));
        }
        for (uint32_t c = 0; c < STAGING_CHANNELS; c++) {
                if (is_mine(c)) {
                        least = seen[c] < least ? seen[c] : least;
                        most = seen[c] > most ? seen[c] : most;
                }
        }
        assert_in_range(least, 8, most);
        assert_in_range(most, least, 2 * least); /* a cut-off channel may have one more at its turn */
        assert_null(wires_broken(w->wires));
}

/* One with a great deal to send, and one with a little, which does not wait for all of that. */
static void every_peer_has_its_turn(void **state) {
        struct world *w = *state;

        for (uint32_t i = 0; i < 4; i++) {
                uint32_t seen[STAGING_CHANNELS] = {0}, peer, n = 0, much = i % 2;

                if (i == 2) /* looks begin with the one and the other in turn */
                        assert_false(wires_step(w->wires));
                for (uint32_t c = 0; c < STAGING_CHANNELS; c++)
                        if (is_mine(c))
                                push(w->wires->end[much].wire, c);
                push(w->wires->end[1 - much].wire, LAST);
                assert_true(wires_step(w->wires));
                do {
                        assert_true(batch_posted(w, &peer, seen));
                        n++;
                } while (peer == 2 + much);
                assert_in_range(n, 1, 2);
                while (batch_posted(w, &peer, seen))
                        n++;
                assert_true(n > 4);
                all_taken(w, 2);
                all_taken(w, 3);
                while (wires_step(w->wires)) {
                }
                while (batch_posted(w, &peer, seen)) {
                }
                all_taken(w, 2);
                all_taken(w, 3);
                assert_int_equal(seen[mine(0)], 1);
                assert_int_equal(seen[LAST], 2);
        }
}

/* Credits are never left behind by chunks. */
static void credits_go_first(void **state) {
        struct world *w = *state;
        struct wire_end *end = &w->wires->end[0];
        uint32_t seen[STAGING_CHANNELS] = {0}, peer;

        for (uint32_t c = 0; c < STAGING_CHANNELS; c++) {
                end->come[c] = 1;
                end->wire->given[c] = 1;
                if (is_mine(c) && c != LAST)
                        push(end->wire, c);
        }
        assert_true(wires_step(w->wires));
        assert_true(batch_posted(w, &peer, seen));
        for (uint32_t c = 0; c < STAGING_CHANNELS; c++)
                assert_true(is_mine(c) ? seen[c] >= 1 : !seen[c]);
}

static void bring(struct world *w, uint32_t peer, uint32_t batch, struct wire_entry entry, uint32_t length) {
        struct wire_mirror *mirror = &w->mirror[peer * N];
        struct wire_line *line = &mirror->line[(batch - 1) % WIRE_BATCHES];

        line->bytes = (uint32_t)sizeof(entry) + length;
        memcpy(line->data, &entry, sizeof(entry));
        net_area_arrive(w->net.area, NET_CHUNK, (uint64_t)((unsigned char *)line - (unsigned char *)w->net.area),
                        batch);
}

/* Of packets, too, a word says that they have come. */
static void a_word_tells_of_each_chunk(void **state) {
        static const uint32_t transports[] = {STAGING_PACKET, STAGING_BULK};
        struct world *w = *state;

        for (uint32_t i = 0; i < 2; i++) {
                const uint32_t channel = mine_from(staging_channel(transports[i], 0, 3), 0);
                const struct wire *wire = w->wires->end[1].wire;

                for (uint32_t number = 1; number < 4; number++) {
                        bring(w, 3, 3 * i + number, (struct wire_entry){(uint16_t)channel, 8, number}, 8);
                        assert_true(wires_step(w->wires));
                        assert_int_equal(wire->come[channel][(number - 1) % WIRE_SLOTS], number);
                }
        }
        assert_null(wires_broken(w->wires));
}

/* Each strand has its own channels, and is told of no others. */
static void strands_do_not_meet(void **state) {
        struct world *w = *state;
        struct wire_end *end = &w->wires->end[0];
        uint32_t peer, seen[STAGING_CHANNELS] = {0}, n = 0;

        for (uint32_t c = 0; c < STAGING_CHANNELS; c++) {
                push(end->wire, c);
                end->come[c] = end->wire->given[c] = WIRE_SLOTS;
        }
        while (wires_step(w->wires)) {
                while (batch_posted(w, &peer, seen)) {
                }
                all_taken(w, 2);
        }
        for (uint32_t c = 0; c < STAGING_CHANNELS; c++) {
                assert_int_equal(seen[c], is_mine(c) ? 2 : 0);
                n += is_mine(c);
        }
        assert_in_range(n, STAGING_CHANNELS / WIRE_STRANDS - 16, STAGING_CHANNELS / WIRE_STRANDS + 16);
        assert_false(wires_pending(w->wires));
        bring(w, 2, 1, (struct wire_entry){(uint16_t)(mine(0) ? 0 : 16), 8, 1 + WIRE_SLOTS}, 8);
        assert_true(wires_step(w->wires));
        assert_ptr_equal(wires_broken(w->wires), end);
}

/* Whoever asks hears which wire it is, and why; nothing is carried over it any more, either way. */
static void a_broken_wire_says_so(void **state) {
        struct world *w = *state;
        const struct wire_end *broken;
        struct net_descriptor d;

        bring(w, 3, 1, (struct wire_entry){STAGING_CHANNELS, 8, 1}, 8);
        assert_true(wires_step(w->wires));
        broken = wires_broken(w->wires);
        assert_ptr_equal(broken, &w->wires->end[1]);
        assert_int_equal(broken->peer, 3);
        assert_non_null(strstr(broken->broken, "nothing that an executor sends"));
        push(w->wires->end[1].wire, LAST);
        assert_false(wires_step(w->wires));
        push(w->wires->end[0].wire, LAST); /* the other one goes on, as long as there is anybody */
        assert_true(wires_step(w->wires));
        assert_true(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        assert_int_equal(d.destination, 2);
        assert_false(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        /* The first one counts. */
        w->wires->end[0].wire->pushed[mine(7)] = 3;
        (void)wires_step(w->wires);
        assert_ptr_equal(wires_broken(w->wires), &w->wires->end[1]);
}

static void a_kernel_that_miscounts_breaks_its_wire(void **state) {
        static const uint32_t wrong[] = {WIRE_SLOTS + 1, 0u - 1, 0x80000000u};
        struct world *w = *state;
        struct net_descriptor d;

        for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                struct wire_end *end = &w->wires->end[0];

                end->wire->pushed[mine(7)] = wrong[i];
                assert_false(wires_step(w->wires));
                assert_ptr_equal(wires_broken(w->wires), end);
                assert_non_null(strstr(end->broken, "count of chunks"));
                assert_false(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
                end->broken = NULL;
                w->wires->n_broken = 0;
        }
        w->wires->end[0].wire->pushed[mine(7)] = 0;
        push(w->wires->end[0].wire, mine(7));
        push(w->wires->end[0].wire, mine(7));
        assert_true(wires_step(w->wires));
        assert_null(wires_broken(w->wires));
}

/* ---- credit ------------------------------------------------------------------------------------------------------ */
/* The kernel of end 0 has taken one more of a channel's chunks, which had come. */
static void give(struct world *w, uint32_t channel) {
        struct wire_end *end = &w->wires->end[0];

        end->come[channel]++;
        __atomic_store_n(&end->wire->given[channel], end->come[channel], __ATOMIC_RELEASE);
}

/* One chunk is not worth a message, as long as others have room; half of the slots are. */
static void credit_waits_for_company(void **state) {
        struct world *w = *state;
        uint32_t seen[STAGING_CHANNELS] = {0}, peer;

        for (uint32_t c = 0; c < 40; c++)
                give(w, mine(c));
        assert_false(wires_step(w->wires));
        assert_false(batch_posted(w, &peer, seen));
        push(w->wires->end[0].wire, LAST); /* with this one they go */
        assert_true(wires_step(w->wires));
        assert_true(batch_posted(w, &peer, seen));
        for (uint32_t c = 0; c < 40; c++)
                assert_int_equal(seen[mine(c)], 1);
        assert_int_equal(seen[LAST], 1);
        for (uint32_t i = 1; i < WIRE_SLOTS / 2; i++)
                give(w, mine(7));
        assert_false(wires_step(w->wires));
        give(w, mine(7));
        assert_true(wires_step(w->wires));
        assert_true(batch_posted(w, &peer, seen));
        assert_int_equal(seen[mine(7)], 2);
        assert_false(batch_posted(w, &peer, seen));
}

/* A batch of whole chunks from the peer of end 0, at this place of the ring. */
static void bring_chunks(struct world *w, uint32_t batch, uint32_t at, uint32_t n, uint32_t taken) {
        struct wire_mirror *mirror = &w->mirror[2 * N];
        struct wire_line *line = &mirror->line[(batch - 1) % WIRE_BATCHES];
        unsigned char *to = mirror->ring + at;

        for (uint32_t i = 0; i < n; i++) {
                const uint32_t channel = mine_from(STAGING_PACKET_CHANNELS, i);
                const struct wire_entry entry = {(uint16_t)channel, STAGING_BULK_CHUNK,
                                                 w->wires->end[0].come[channel] + 1};

                memcpy(to, &entry, sizeof(entry));
                to += sizeof(entry) + STAGING_BULK_CHUNK;
        }
        line->bytes = n * (uint32_t)(sizeof(struct wire_entry) + STAGING_BULK_CHUNK);
        line->at = at;
        line->taken = taken;
        net_area_arrive(w->net.area, NET_CHUNK, (uint64_t)((unsigned char *)line - (unsigned char *)w->net.area),
                        batch);
}

/* The next descriptor; it must be a word that so many batches have been taken. */
static void told(struct world *w, uint32_t taken) {
        struct net_descriptor d;

        assert_true(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        assert_int_equal(d.kind, NET_CREDIT);
        assert_int_equal(d.value, taken);
        assert_int_equal(d.source, 0);
        assert_int_equal(d.destination, 2);
        assert_int_equal(d.line_offset, (unsigned char *)&w->mirror[2 * N].taken - (unsigned char *)w->net.area);
}

/* Batches that have been taken: by a word of their own when there is nothing to send, early enough. */
static void taken_batches_are_told(void **state) {
        struct world *w = *state;
        uint32_t batch = 0, seen[STAGING_CHANNELS] = {0}, peer;
        struct net_descriptor d;

        /* Long ones: when a quarter of the ring has been taken. */
        for (uint32_t bytes = 0; bytes < WIRE_RING_BYTES / 4; bytes += 16 * (STAGING_BULK_CHUNK + 8)) {
                assert_false(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
                batch++;
                bring_chunks(w, batch, batch % 8 * (WIRE_RING_BYTES / 8), 16, 0);
                assert_true(wires_step(w->wires));
        }
        assert_in_range(batch, 2, WIRE_BATCHES / 4 - 1);
        told(w, batch);
        /* Short ones: when a quarter of them has. */
        for (uint32_t i = 0; i < WIRE_BATCHES / 4; i++) {
                assert_false(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
                bring_chunks(w, ++batch, 0, 0, 0);
                assert_true(wires_step(w->wires));
        }
        told(w, batch);
        /* With something to send: that says it. */
        for (uint32_t i = 0; i < WIRE_BATCHES / 4; i++) {
                bring_chunks(w, ++batch, 0, 0, 0);
                push(w->wires->end[0].wire, LAST);
                assert_true(wires_step(w->wires));
                assert_true(batch_posted(w, &peer, seen));
                assert_int_equal(w->mirror[2].line[(w->wires->end[0].sent - 1) % WIRE_BATCHES].taken, batch);
                bring_chunks(w, ++batch, 0, 0, w->wires->end[0].sent);
                assert_true(wires_step(w->wires));
                assert_int_equal(w->wires->end[0].acked, w->wires->end[0].sent);
        }
        assert_false(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        assert_null(wires_broken(w->wires));
}

/* ---- pace -------------------------------------------------------------------------------------------------------- */
#define PACE_NS 3000u /* as wires.c has it */

static uint32_t n_posted(struct world *w) {
        uint32_t n = 0, peer, seen[STAGING_CHANNELS] = {0};

        while (batch_posted(w, &peer, seen))
                n++;
        return n;
}

/* Three go at once. Then what comes waits until one more may go, with all that has come meanwhile; of one peer. */
static void short_ones_wait_for_company(void **state) {
        struct world *w = *state;
        const uint64_t begun_ns = 1000000;
        uint64_t now_ns = begun_ns;

        for (uint32_t round = 0; round < 3;
             round++, now_ns += 100 * PACE_NS) { /* after a silence as in the beginning */
                uint32_t n = 0, seen[STAGING_CHANNELS] = {0}, peer;

                for (uint32_t i = 0; i < 3; i++) {
                        push(w->wires->end[0].wire, LAST);
                        assert_true(wires_step_at(w->wires, now_ns));
                        assert_int_equal(n_posted(w), 1);
                        assert_false(wires_step_at(w->wires, now_ns));
                }
                all_taken(w, 2);
                for (uint32_t c = 0; c < 5; c++) {
                        push(w->wires->end[0].wire, mine(c));
                        assert_true(wires_step_at(w->wires, now_ns + PACE_NS - 1)); /* it waits, which is not nothing */
                        assert_int_equal(n_posted(w), 0);
                }
                push(w->wires->end[1].wire, LAST);
                assert_true(wires_step_at(w->wires, now_ns + PACE_NS - 1));
                assert_true(batch_posted(w, &peer, seen));
                assert_int_equal(peer, 3);
                assert_int_equal(n_posted(w), 0);
                all_taken(w, 3);
                assert_true(wires_step_at(w->wires, now_ns + PACE_NS));
                memset(seen, 0, sizeof(seen));
                assert_true(batch_posted(w, &peer, seen));
                for (uint32_t c = 0; c < 5; c++)
                        n += seen[mine(c)];
                assert_int_equal(n, 5);
                assert_int_equal(n_posted(w), 0);
                all_taken(w, 2);
                assert_false(wires_step_at(w->wires, now_ns + PACE_NS));
        }
}

/* Whoever wants everything gone does not wait, and nothing is counted for it. */
static void at_once_is_at_once(void **state) {
        struct world *w = *state;

        for (uint32_t i = 0; i < 12; i++) {
                push(w->wires->end[0].wire, LAST);
                assert_true(wires_step(w->wires));
                assert_int_equal(n_posted(w), 1);
                all_taken(w, 2);
        }
        for (uint32_t i = 0; i < 3; i++) {
                push(w->wires->end[0].wire, LAST);
                assert_true(wires_step_at(w->wires, PACE_NS));
                assert_int_equal(n_posted(w), 1);
                all_taken(w, 2);
        }
        push(w->wires->end[0].wire, LAST);
        assert_true(wires_step_at(w->wires, PACE_NS));
        assert_int_equal(n_posted(w), 0);
        assert_true(wires_pending(w->wires));
        assert_true(wires_step(w->wires));
        assert_int_equal(n_posted(w), 1);
        assert_false(wires_pending(w->wires));
        push(w->wires->end[0].wire, LAST); /* and nothing is forgotten */
        assert_true(wires_step_at(w->wires, PACE_NS));
        assert_int_equal(n_posted(w), 0);
}

/* The measure is one of looks: what is more than a message goes at once, however long it is. */
static void long_ones_do_not_wait(void **state) {
        struct world *w = *state;

        for (uint32_t round = 0; round < 20; round++) {
                for (uint32_t c = 0; c < 40; c++) /* 80 KB */
                        push(w->wires->end[0].wire, mine_from(STAGING_PACKET_CHANNELS, c));
                assert_true(wires_step_at(w->wires, 1000000 + round * PACE_NS));
                assert_in_range(n_posted(w), 3, 5);
                assert_false(wires_pending(w->wires));
                all_taken(w, 2);
        }
}

/* A kernel that has a chunk ready every so often, and looks in between: what the measure is for. */
static void a_trickle_goes_in_few(void **state) {
        struct world *w = *state;
        uint32_t n[2] = {0};

        for (uint32_t paced = 0; paced < 2; paced++)
                for (uint32_t c = 0; c < 128; c++) { /* 128 KB in 26 us, a look at each 0.2 */
                        const uint64_t now_ns = 1000000 + c * UINT64_C(200);

                        push(w->wires->end[0].wire, mine(c % 32));
                        all_taken(w, 2);
                        assert_true(paced ? wires_step_at(w->wires, c < 127 ? now_ns : now_ns + PACE_NS)
                                          : wires_step(w->wires));
                        n[paced] += n_posted(w);
                }
        assert_false(wires_pending(w->wires));
        assert_int_equal(n[0], 128);
        assert_in_range(n[1], 8, 13);
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */
/* Batches of all lengths, taken late: those that have not been never meet, and lie in the ring. */
static void batches_do_not_meet(void **state) {
        static uint8_t used[WIRE_RING_BYTES];
        static struct { uint32_t at, bytes; } all[4000];
        struct world *w = *state;
        struct wire_end *end = &w->wires->end[0];
        const char *seed = getenv("RAILMUX_SEED");
        uint64_t random = seed ? strtoull(seed, NULL, 0) : clock_now_ns();
        uint32_t n = 0, acked = 0, full = 0;

        end->sent = end->acked = 0u - 100; /* numbers wrap */
        w->mirror[2].taken = 0u - 100;
        memset(used, 0, sizeof(used));
        print_message("RAILMUX_SEED=%llu\n", (unsigned long long)random);
        while (n < 3000) {
                struct net_descriptor d;
                uint32_t channels;

                random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
                channels = 1 + (uint32_t)(random >> 40) % 60;
                for (uint32_t i = 0; i < channels; i++) {
                        const uint32_t c = (uint32_t)((random >> 33) + i) % STAGING_CHANNELS;

                        if (is_mine(c) && end->wire->pushed[c] - end->pushed[c] < WIRE_SLOTS)
                                push(end->wire, c);
                }
                full += !wires_step(w->wires);
                while (net_area_take(w->net.area, w->net.area->capacity, &w->position, &d)) {
                        const uint32_t at = (uint32_t)(d.data_offset -
                                                       (uint64_t)(w->mirror[2].ring - (unsigned char *)w->net.area));

                        if (d.data_bytes > 0) {
                                assert_in_range(at, 0, WIRE_RING_BYTES - d.data_bytes);
                                assert_int_equal(at % 64, 0);
                                for (uint32_t i = 0; i < d.data_bytes; i++)
                                        assert_int_equal(used[at + i]++, 0);
                        }
                        all[n].at = at;
                        all[n++].bytes = d.data_bytes;
                        assert_in_range(n - acked, 1, WIRE_BATCHES);
                }
                if (random >> 62 == 0 && acked < n) { /* some have been taken */
                        for (uint32_t k = 1 + (uint32_t)(random >> 20) % (n - acked); k > 0; k--, acked++)
                                if (all[acked].bytes > 0)
                                        memset(used + all[acked].at, 0, all[acked].bytes);
                        __atomic_store_n(&w->mirror[2].taken, 0u - 100 + acked, __ATOMIC_RELEASE);
                }
        }
        assert_true(full > 10); /* it has been full */
        assert_null(wires_broken(w->wires));
}

/* What is no batch of a proxy's breaks the wire, and nothing else. */
static void a_line_that_is_wrong(void **state) {
        static const struct {
                uint32_t at, bytes, taken;
                bool fine;
        } lines[] = {
                {0, 2056, 0, true},
                {WIRE_RING_BYTES - 2112, 2056, 1, true},
                {32, 2056, 0, false},
                {WIRE_RING_BYTES - 2048, 2056, 0, false},
                {WIRE_RING_BYTES, 2056, 0, false},
                {0u - 64, 2056, 0, false},
                {0, 17 * 2056, 0, false},   /* longer than batches are */
                {0, 0, 2, false},           /* one has been sent */
                {0, 0, 0x70000000u, false}, /* also as a number that is later */
        };
        struct world *w = *state;

        for (uint32_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                struct wire_end *end = &w->wires->end[0];
                struct wire_line *line = &w->mirror[2 * N].line[0];

                end->taken = end->come[mine_from(STAGING_PACKET_CHANNELS, 0)] = end->acked = 0;
                end->sent = 1;
                end->broken = NULL;
                w->wires->n_broken = 0;
                bring_chunks(w, 1, lines[i].at < WIRE_RING_BYTES - 2056 ? lines[i].at : 0, lines[i].bytes / 2056,
                             lines[i].taken);
                line->at = lines[i].at;
                line->bytes = lines[i].bytes;
                assert_true(wires_step(w->wires));
                assert_true(lines[i].fine ? !wires_broken(w->wires) : wires_broken(w->wires) == end);
        }
}

static void an_answer_to_what_was_not_sent(void **state) {
        struct world *w = *state;

        push(w->wires->end[0].wire, LAST);
        assert_true(wires_step(w->wires));
        w->mirror[2].taken = 2;
        (void)wires_step(w->wires);
        assert_ptr_equal(wires_broken(w->wires), &w->wires->end[0]);
        assert_non_null(strstr(w->wires->end[0].broken, "more than was sent"));
}

static void an_area_that_is_too_short(void **state) {
        struct world *w = *state;
        struct wires *wires = NULL;

        w->net.bytes--;
        assert_int_equal(wires_new(&w->net, N, &w->wires->nodes, 2, strand, &wires, w->error), -EINVAL);
        assert_null(wires);
        w->net.bytes++;
        w->net.area->memory_bytes -= 64;
        w->net.area->memory_offset += 64;
        assert_int_equal(wires_new(&w->net, N, &w->wires->nodes, 2, strand, &wires, w->error), -EINVAL);
        w->net.area->memory_bytes += 64;
        w->net.area->memory_offset -= 64;
}

int main(void) {
#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        const struct CMUnitTest tests[] = {
                WORLD(every_channel_has_its_turn),
                WORLD(every_peer_has_its_turn),
                WORLD(credits_go_first),
                WORLD(a_word_tells_of_each_chunk),
                WORLD(strands_do_not_meet),
                WORLD(a_broken_wire_says_so),
                WORLD(a_kernel_that_miscounts_breaks_its_wire),
                WORLD(an_area_that_is_too_short),
                WORLD(credit_waits_for_company),
                WORLD(taken_batches_are_told),
                WORLD(batches_do_not_meet),
                WORLD(a_line_that_is_wrong),
                WORLD(an_answer_to_what_was_not_sent),
                WORLD(short_ones_wait_for_company),
                WORLD(at_once_is_at_once),
                WORLD(long_ones_do_not_wait),
                WORLD(a_trickle_goes_in_few),
        };

        int failed = 0;

        for (; strand < WIRE_STRANDS; strand++)
                failed += cmocka_run_group_tests(tests, NULL, NULL);
        return failed;
}
