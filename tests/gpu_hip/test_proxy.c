/* SPDX-License-Identifier: MIT */
/* The proxies between the wires of a communicator over several nodes and its net area. */
#include "tests/cmocka_all.h"

#include <poll.h>
#include <sched.h>
#include <string.h>

#include "gpu/hip/hip.h"
#include "net_world.h"
#include "railmux/railmux.h"
#include "ring/line.h"

#define wait_until(condition)                                                                                          \
        do {                                                                                                           \
                while (!(condition))                                                                                   \
                        sched_yield(); /* the test's time limit ends it */                                             \
        } while (0)

/* What comes in dozens waits for its time (wires.c), and here time stands still: so it goes on with each of them. */
static struct net_descriptor posted(struct world *w) {
        struct net_descriptor d = {0};

        fake_clock_advance_us(10);
        wait_until(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        return d;
}

static void *at(const struct world *w, uint64_t offset) {
        return (unsigned char *)w->net.area + offset;
}

static uint64_t offset_of(const struct world *w, const void *place) {
        return (uint64_t)((const unsigned char *)place - (const unsigned char *)w->net.area);
}

static void proxy_hold(struct world *w) {
        for (uint32_t k = 0; k < WIRE_STRANDS; k++) {
                struct proxy *proxy = &w->f.plane->proxy[k];

                atomic_fetch_add(&proxy->waiting, 1); /* it does not look any more, */
                pthread_mutex_lock(&proxy->lock);     /* when it has finished this look */
                pthread_mutex_unlock(&proxy->lock);
        }
}

static void proxy_go(struct world *w) {
        for (uint32_t k = 0; k < WIRE_STRANDS; k++)
                atomic_fetch_sub(&w->f.plane->proxy[k].waiting, 1);
}

static uint32_t strand_of(const struct world *w, const struct net_descriptor *d) {
        return (uint32_t)((d->line_offset - w->net.area->memory_offset) / (N * N * sizeof(struct wire_mirror)));
}

/* ---- the proxy --------------------------------------------------------------------------------------------------- */
/* What a kernel does: n packets, the number, then its word. */
static void push_packets(struct wire *wire, uint32_t channel, uint32_t number, uint32_t n) {
        uint32_t *words = (uint32_t *)(void *)wire->out[channel][(number - 1) % WIRE_SLOTS];

        for (uint32_t i = 0; i < 2 * n; i++) {
                words[2 * i] = 100 * number + i;
                words[2 * i + 1] = number;
        }
        __atomic_store_n(&wire->pushed[channel], number, __ATOMIC_RELEASE);
}

/* The proxy has looked at everything since: it has found, and found again, what rank 3 pushed. */
static void await_look(struct world *w, uint32_t number) {
        for (uint32_t i = 0; i < 2; i++) {
                push_packets(world_wire(w, 6), PACK, number + i, 1);
                assert_int_equal(posted(w).source, 3);
        }
}

/* The one entry of the next batch, and its data. */
static struct wire_entry entry_posted(struct world *w, uint32_t source, uint32_t batch,
                                      const unsigned char **ret_data) {
        const struct wire_mirror *mirror = &w->mirror[source * N + FAR];
        struct net_descriptor d = posted(w);
        const struct wire_line *line = at(w, d.line_offset);
        const unsigned char *data = d.data_bytes ? at(w, d.data_offset) : line->data;
        struct wire_entry entry;

        assert_int_equal(d.kind, NET_CHUNK);
        assert_int_equal(d.source, source);
        assert_int_equal(d.destination, FAR);
        assert_int_equal(d.value, batch);
        assert_ptr_equal(line, &mirror->line[(batch - 1) % WIRE_BATCHES]);
        assert_int_equal(d.data_bytes, line->bytes > WIRE_LINE_BYTES ? line->bytes : 0);
        memcpy(&entry, data, sizeof(entry));
        assert_int_equal(line->bytes, 8 + (entry.bytes == WIRE_CREDIT ? 0u : (entry.bytes + 7u) / 8 * 8));
        *ret_data = data + sizeof(entry);
        return entry;
}

/* The fabric has brought a word. */
static void arrive(struct world *w, const void *line, uint32_t kind, uint32_t value) {
        net_area_arrive(w->net.area, kind, offset_of(w, line), value);
}

/* The other side has taken so many of this rank's batches. */
static void strand_taken(struct world *w, uint32_t strand, uint32_t source, uint32_t n) {
        arrive(w, &w->mirror[(strand * N + source) * N + FAR].taken, NET_CREDIT, n);
}
static void batches_taken(struct world *w, uint32_t source, uint32_t n) {
        strand_taken(w, 0, source, n);
}

static void packets_go_without_flags(void **state) {
        struct world *w = *state;
        struct wire *wire;

        world_attach(w);
        wire = world_wire(w, 6); /* rank 3 */
        for (uint32_t number = 1; number < 20; number++) {
                const uint32_t n = number % 2 ? 128 : 3;
                const unsigned char *data;
                struct wire_entry entry;

                push_packets(wire, PACK, number, n);
                entry = entry_posted(w, 3, number, &data);
                assert_int_equal(entry.channel, PACK);
                assert_int_equal(entry.number, number);
                assert_int_equal(entry.bytes, 8 * n);
                for (uint32_t i = 0; i < 2 * n; i++)
                        assert_int_equal(((const uint32_t *)(const void *)data)[i], 100 * number + i);
                batches_taken(w, 3, number);
        }
}

static void bulk_goes_as_long_as_it_is(void **state) {
        static const uint32_t sizes[] = {2048, 777, 48, 49, 0, 5000};
        struct world *w = *state;
        struct wire *wire;

        world_attach(w);
        wire = world_wire(w, 5); /* rank 0 */
        for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                const uint32_t slot = i % WIRE_SLOTS, bytes = sizes[i] < 2048 ? sizes[i] : 2048;
                const unsigned char *data;
                struct wire_entry entry;

                memset(wire->out[BULK][slot], 0x30 + (int)i, WIRE_CHUNK);
                wire->bytes[BULK][slot] = sizes[i];
                __atomic_store_n(&wire->pushed[BULK], i + 1, __ATOMIC_RELEASE);
                entry = entry_posted(w, 0, i + 1, &data);
                assert_int_equal(entry.channel, BULK);
                assert_int_equal(entry.number, i + 1);
                assert_int_equal(entry.bytes, bytes);
                if (bytes)
                        assert_int_equal(data[bytes - 1], 0x30 + i);
        }
}

/* While batches are on their way more comes together, and nothing is lost. */
static void what_is_there_goes_together(void **state) {
        struct world *w = *state;
        uint32_t n[WIRE_STRANDS] = {0}, chunks = 0, most = 0, seen[STAGING_LANES] = {0};
        struct net_descriptor d;
        struct wire *wire;

        world_attach(w);
        wire = world_wire(w, 5);
        proxy_hold(w);
        for (uint32_t lane = 1; lane < STAGING_LANES; lane++)
                for (uint32_t number = 1; number <= WIRE_SLOTS; number++)
                        push_packets(wire, staging_channel(STAGING_PACKET, 0, lane), number, 128);
        proxy_go(w);
        while (chunks < WIRE_SLOTS * (STAGING_LANES - 1)) {
                const unsigned char *data;
                struct wire_line *line;
                uint32_t strand;

                d = posted(w);
                strand = strand_of(w, &d);
                line = at(w, d.line_offset);
                assert_int_equal(d.value, ++n[strand]);
                assert_in_range(line->bytes, 1, WIRE_BATCH_BYTES);
                most = line->bytes > most ? line->bytes : most;
                data = at(w, d.data_offset);
                for (uint32_t place = 0; place < line->bytes; place += 8 + 1024) {
                        struct wire_entry entry;

                        memcpy(&entry, data + place, sizeof(entry));
                        assert_int_equal(entry.bytes, 1024);
                        assert_int_equal(wire_strand(entry.channel), strand);
                        assert_int_equal(entry.number, ++seen[entry.channel]);
                        chunks++;
                }
                if (n[strand] % 8 == 0) /* rings are smaller than all of it */
                        strand_taken(w, strand, 0, n[strand]);
        }
        assert_int_equal(chunks, WIRE_SLOTS * (STAGING_LANES - 1));
        assert_true(chunks * 1032 > WIRE_RING_BYTES);
        assert_true(most > WIRE_BATCH_BYTES / 2);
}

static void no_more_than_there_is_room_for(void **state) {
        struct world *w = *state;
        struct net_descriptor d;
        const unsigned char *data;
        struct wire *wire;

        world_attach(w);
        wire = world_wire(w, 5);
        for (uint32_t i = 1; i <= WIRE_BATCHES; i++) {
                push_packets(wire, PACK, i, 1);
                assert_int_equal(entry_posted(w, 0, i, &data).number, i);
        }
        push_packets(wire, PACK, WIRE_BATCHES + 1, 1);
        await_look(w, 1);
        assert_false(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        batches_taken(w, 0, 1);
        assert_int_equal(entry_posted(w, 0, WIRE_BATCHES + 1, &data).number, WIRE_BATCHES + 1);
}

static void a_sleeping_fabric_is_woken(void **state) {
        struct world *w = *state;
        struct pollfd door = {.fd = w->net.doorbell_fd, .events = POLLIN};

        world_attach(w);
        atomic_store(&w->net.area->fabric_asleep, 1);
        push_packets(world_wire(w, 5), PACK, 1, 1);
        assert_int_equal(poll(&door, 1, 10000), 1);
        assert_int_equal(posted(w).value, 1);
}

/* A batch of one entry lies in the area, and has arrived. */
static void bring(struct world *w, uint32_t batch, uint32_t channel, uint32_t bytes, uint32_t number, const void *data,
                  uint32_t length) {
        struct wire_mirror *mirror = &w->mirror[FAR * N];
        const struct wire_entry entry = {.channel = (uint16_t)channel, .bytes = (uint16_t)bytes, .number = number};
        const uint32_t slot = (batch - 1) % WIRE_BATCHES;
        unsigned char *to;

        mirror->line[slot].bytes = (uint32_t)sizeof(entry) + length;
        mirror->line[slot].at = slot % 8 * (WIRE_RING_BYTES / 8);
        to = mirror->line[slot].bytes <= WIRE_LINE_BYTES ? mirror->line[slot].data
                                                         : mirror->ring + mirror->line[slot].at;
        memcpy(to, &entry, sizeof(entry));
        if (length > 0 && length <= WIRE_BATCH_BYTES - sizeof(entry))
                memcpy(to + sizeof(entry), data, length);
        arrive(w, &mirror->line[slot], NET_CHUNK, batch);
}

static void what_comes_is_brought_in_order(void **state) {
        static const uint32_t words[] = {11, 12, 13, 14};
        static unsigned char ones[16], twos[2048];
        struct world *w = *state;
        struct wire *wire;
        const uint64_t *half;

        memset(ones, 1, sizeof(ones));
        memset(twos, 2, sizeof(twos));
        world_attach(w);
        wire = world_wire(w, 5); /* rank 0 */
        /* The second one first: nothing is to be seen of it. */
        bring(w, 2, BULK, 2048, 2, twos, 2048);
        await_look(w, 1);
        assert_int_equal(__atomic_load_n(&wire->come[BULK][1], __ATOMIC_ACQUIRE), 0);
        bring(w, 1, BULK, 10, 1, ones, 16);
        wait_until(__atomic_load_n(&wire->come[BULK][1], __ATOMIC_ACQUIRE) == 2);
        assert_int_equal(__atomic_load_n(&wire->come[BULK][0], __ATOMIC_ACQUIRE), 1);
        assert_int_equal(wire->in[BULK][0][9], 1);
        assert_int_equal(wire->in[BULK][0][10], 0);
        assert_int_equal(wire->in[BULK][1][2047], 2);
        bring(w, 3, PACK, 16, 1, words, 16);
        half = (const uint64_t *)(const void *)wire->in[PACK][0];
        for (uint32_t i = 0; i < 4; i++) /* each says by itself that it is there, as the kernel reads it */
                wait_until(__atomic_load_n(&half[i], __ATOMIC_RELAXED) == (UINT64_C(1) << 32 | words[i]));
        assert_int_equal(__atomic_load_n(&half[4], __ATOMIC_RELAXED), 0);
}

/* What no proxy sends ends the wire: what comes after it, though right, is not taken. */
static void nonsense_ends_the_wire(void **state) {
        const struct {
                uint32_t channel, bytes, number, length;
        } wrong[] = {
                {STAGING_CHANNELS, 8, 1, 8},
                {BULK, 2049, 1, 2056},
                {PACK, 1025, 1, 1032},
                {BULK, 2048, 1, 2040},
                {BULK, 8, 2, 8},
                {BULK, 8, 0, 8},
                {BULK, 0, 1, 4},
                {BULK, 8, 1, WIRE_BATCH_BYTES},
                {STAGING_CHANNELS, WIRE_CREDIT, 5, 0},
        };
        static unsigned char data[WIRE_BATCH_BYTES];
        struct world *w = *state;

        for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                static const uint32_t none[WIRE_WORDS];
                struct wire *wire;

                memset(w->mirror, 0, N * N * sizeof(*w->mirror));
                world_attach(w);
                wire = world_wire(w, 5);
                bring(w, 1, wrong[i].channel, wrong[i].bytes, wrong[i].number, data, wrong[i].length);
                bring(w, 2, BULK, 8, 2, data, 8);
                await_look(w, 1);
                assert_int_equal(__atomic_load_n(&wire->come[BULK][1], __ATOMIC_ACQUIRE), 0);
                assert_memory_equal(wire->room, none, sizeof(none));
                w->f.ops->comm_detach(w->f.plane, 77);
        }
}

static void credit_goes_both_ways(void **state) {
        struct world *w = *state;
        const unsigned char *data;
        struct net_descriptor d;
        struct wire_entry entry;
        struct wire *wire;
        uint32_t n;

        world_attach(w);
        wire = world_wire(w, 5);
        bring(w, 1, PACK, WIRE_CREDIT, 1, NULL, 0);
        wait_until(__atomic_load_n(&wire->room[PACK], __ATOMIC_ACQUIRE) == 1);
        /* The kernel gives back three of which two have come: the other side hears of two. */
        __atomic_store_n(&wire->given[PACK], 3, __ATOMIC_RELEASE);
        bring(w, 2, PACK, 0, 1, NULL, 0);
        bring(w, 3, PACK, 0, 2, NULL, 0);
        entry = entry_posted(w, 0, 1, &data);
        assert_int_equal(entry.channel, PACK);
        assert_int_equal(entry.bytes, WIRE_CREDIT);
        assert_int_equal(entry.number, 2);
        assert_in_range(w->mirror[FAR].line[0].taken, 2, 3); /* it says how many batches have been taken, too */
        n = w->mirror[FAR].line[0].taken;
        /* When there is nothing to send that says so, a message of its own does. */
        for (uint32_t batch = 4; batch <= n + WIRE_BATCHES / 4; batch++)
                bring(w, batch, PACK, WIRE_CREDIT, 1, NULL, 0);
        d = posted(w);
        assert_int_equal(d.kind, NET_CREDIT);
        assert_int_equal(d.value, n + WIRE_BATCHES / 4);
        assert_int_equal(d.source, 0);
        assert_int_equal(d.destination, FAR);
        assert_int_equal(d.line_offset, offset_of(w, &w->mirror[FAR * N].taken));
}

static void nobody_carries_for_one_that_is_gone(void **state) {
        struct world *w = *state;
        struct net_descriptor d;
        struct wire *wire;

        world_attach(w);
        wire = world_wire(w, 5);
        push_packets(wire, PACK, 1, 1);
        assert_int_equal(posted(w).value, 1);
        w->f.ops->comm_abort(w->f.plane, 77, ring_status(RMX_E_LOST, -1));
        w->f.ops->comm_detach(w->f.plane, 77);
        push_packets(wire, PACK, 2, 1); /* the thread has been told, and waited for */
        assert_false(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        w->comm.id = 78;
        world_attach(w); /* beside it: the thread goes on with others */
        push_packets(world_wire(w, 6), PACK, 1, 2);
        assert_int_equal(posted(w).source, 3);
}

/* A request that is finished may have chunks that the proxy has not seen yet; others wait for them. */
static void what_was_pushed_goes_before_the_end(void **state) {
        struct world *w = *state;
        struct net_descriptor d;

        world_attach(w);
        proxy_hold(w);
        push_packets(world_wire(w, 5), PACK, 1, 1);
        w->f.ops->comm_detach(w->f.plane, 77);
        assert_true(net_area_take(w->net.area, w->net.area->capacity, &w->position, &d));
        assert_int_equal(d.value, 1);
        proxy_go(w);
}

/* The other side takes batches, and says so, whenever the control thread pauses. */
static struct world *taken_of;
static uint32_t chunks_taken;

static void take_batches(void) {
        struct world *w = taken_of;
        struct net_descriptor d;

        while (net_area_take(w->net.area, w->net.area->capacity, &w->position, &d)) {
                const struct wire_line *line = at(w, d.line_offset);

                chunks_taken += line->bytes / (8 + 1024);
                strand_taken(w, strand_of(w, &d), d.source, d.value);
        }
}

/* All that the channels of a wire hold, before the proxy looks. */
static void push_all(struct world *w) {
        world_attach(w);
        proxy_hold(w);
        for (uint32_t lane = 1; lane < STAGING_LANES; lane++)
                for (uint32_t number = 1; number <= WIRE_SLOTS; number++)
                        push_packets(world_wire(w, 5), staging_channel(STAGING_PACKET, 0, lane), number, 128);
}

/* More than may be on its way at a time; all of it, as long as somebody takes it. */
static void all_that_was_pushed_goes_before_the_end(void **state) {
        struct world *w = *state;

        push_all(w);
        taken_of = w;
        chunks_taken = 0;
        fake.at_pause = take_batches;
        w->f.ops->comm_detach(w->f.plane, 77);
        fake.at_pause = NULL;
        proxy_go(w);
        take_batches();
        assert_int_equal(chunks_taken, WIRE_SLOTS * (STAGING_LANES - 1));
}

/* If nobody does, the control thread has others to look after. */
static void nobody_waits_for_one_that_takes_nothing(void **state) {
        struct world *w = *state;

        push_all(w);
        w->f.ops->comm_detach(w->f.plane, 77);
        proxy_go(w);
}

/* The system's habit would double the proxy's naps. */
static void naps_are_as_long_as_they_are_meant(void **state) {
        struct world *w = *state;

        world_attach(w);
        await_look(w, 1);
        assert_in_range(atomic_load(&fake.slack_ns), 1, 5000);
}

int main(void) {
#define WORLD(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)
        const struct CMUnitTest tests[] = {
                WORLD(packets_go_without_flags),
                WORLD(bulk_goes_as_long_as_it_is),
                WORLD(what_is_there_goes_together),
                WORLD(no_more_than_there_is_room_for),
                WORLD(a_sleeping_fabric_is_woken),
                WORLD(what_comes_is_brought_in_order),
                WORLD(nonsense_ends_the_wire),
                WORLD(credit_goes_both_ways),
                WORLD(nobody_carries_for_one_that_is_gone),
                WORLD(what_was_pushed_goes_before_the_end),
                WORLD(all_that_was_pushed_goes_before_the_end),
                WORLD(nobody_waits_for_one_that_takes_nothing),
                WORLD(naps_are_as_long_as_they_are_meant),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
