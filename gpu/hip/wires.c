/* SPDX-License-Identifier: MIT */
/*
 * The proxy's work
 *
 * What a kernel pushes to a rank of another node has to become a descriptor in the net area's queue. Kernels do not
 * post it themselves. A queue with many producers needs a fetch-and-add, which over the bus is slow where it exists at
 * all; one queue for each warp would be a thousand queues; and the fabric has to be woken when it sleeps, which takes a
 * system call. So a thread of the executor, the proxy, looks at counters in host memory and posts. A kernel only
 * stores: the chunk, a fence, the counter. Nothing can overflow, nothing is lost when the kernel is stopped and
 * launched again, and looking twice does no harm.
 *
 * The same thread brings in what the fabric has delivered. It could be left where it is, and kernels look into the net
 * area. But that has a line for each word, since the fabric writes whole lines, where the kernels' loads want words of
 * all ranks side by side or flags inside of the data; and every executor would have to register the whole area with its
 * runtime, which pins it. Wires are a few megabytes for each pair, pinned once and used again. The price is one copy
 * more on each side, of a few hundred nanoseconds for a chunk. And flags of packets stay at home: half of the bytes on
 * the network.
 *
 * Kernels look at wires over the bus, a microsecond or two for each look. To put what comes into memory of the GPU
 * instead would need its memory mapped into this process, which not every machine has, or a copy engine, whose start
 * takes longer than the look.
 *
 * Batches. All that a look finds for one peer, chunks of all channels and credits, is one message. When the network is
 * slower than the kernels more comes together in one; when it is not, nothing waits for anything. A message costs about
 * a microsecond on each side, whatever is in it, and a chunk has a kilobyte or two, so this is what the throughput
 * lives on. A pair has a FIFO of WIRE_BATCHES batches; credit for them goes back when half of them have been taken.
 *
 * Order, out: the kernel's counter is read with acquire, so the chunk is whole; copy into the batch; the descriptor's
 * number is stored with release (net_area_post). The batch's slot is free: its last batch has been taken by the other
 * side, hence carried. In: the line's number is read with acquire; copy into the wire; packets with their flags, 8
 * bytes at a time, as the kernel wants them; the chunk's number after the data, with release. The wire's slot is free:
 * the kernel has given back its last chunk, or the other side's could not have pushed this one.
 *
 * Batches may arrive out of order: only the next one is looked at, when the area's count of arrivals has changed.
 *
 * A look. Most words are what they were, so they are compared all at once, and where they differ by lines of sixteen.
 * Ends have their turns batch by batch, and each look begins with another one. Within an end credits go first, which
 * are small; chunks fill up the batch, and what had no room in it is what the next look begins with. So nobody waits
 * for all that comes before him.
 *
 * No more is given back than has come, whatever the kernel's word says. (On one node kernels do not wait for chunks of
 * packets that they know to be empty.) The other side would use the slot again while the chunk is still on its way.
 *
 * How many packets a chunk has nobody says: they are those at its beginning that carry its number, since all of them
 * were stored before the counter. (Those behind are of an earlier chunk. After 2^32 chunks one may be taken for one of
 * this chunk; it is carried and never read.)
 *
 * What comes from the net area was written by railmuxd, for another railmuxd that this one trusts. It is held to its
 * bounds all the same: each word is read once, and the copy is what counts (of the area's head nothing is used: its
 * size follows from the number of ranks). What no proxy sends, or a kernel's count that no kernel comes to, breaks the
 * wire: it carries nothing more, and the plane ends the communicator (comm_far.c).
 */
#include "gpu/hip/wires.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/hip/error.h"
#include "ring/net.h"

#define PACKETS (STAGING_PACKET_CHUNK / 8u)
#define LINE    16u /* words that are compared at once */
#define LINES   (WIRE_WORDS / LINE)

enum carried { CARRIED_NOTHING, CARRIED_ALL, CARRIED_SOME /* there may be more */ };

int wires_new(const struct plane_net *net, uint32_t n_ranks, uint32_t n_ends, struct wires **ret_wires, char *error) {
        const struct net_area *area = net->area;
        uint64_t memory_bytes;
        uint32_t capacity;
        struct wires *wires;
        int r = plane_net_size(n_ranks, &capacity, &memory_bytes);

        if (r)
                return error_set(r, error, "a communicator over nodes has 2 to %u ranks on GPUs", STAGING_RANKS_MAX);
        if (!net_area_valid(area, net->bytes) || net_area_bytes(capacity, memory_bytes) > net->bytes ||
            area->capacity != capacity || area->memory_bytes != memory_bytes)
                return error_set(-EINVAL, error, "the net area is not one for %u ranks on GPUs", n_ranks);
        wires = calloc(1, sizeof(*wires) + n_ends * sizeof(wires->end[0]));
        if (!wires)
                return error_set(-ENOMEM, error, "out of memory");
        wires->area = net->area;
        wires->mirror = (struct wire_mirror *)(void *)((unsigned char *)net->area + NET_QUEUE +
                                                       (size_t)capacity * sizeof(struct net_descriptor));
        wires->doorbell_fd = net->doorbell_fd;
        wires->n_ranks = n_ranks;
        wires->n_ends = n_ends;
        *ret_wires = wires;
        return 0;
}

struct wires *wires_free(struct wires *wires) {
        free(wires);
        return NULL;
}

struct wire_end *wires_end(struct wires *wires, uint32_t rank, uint32_t peer) {
        for (uint32_t i = 0; i < wires->n_ends; i++)
                if (wires->end[i].rank == rank && wires->end[i].peer == peer)
                        return &wires->end[i];
        return NULL;
}

const struct wire_end *wires_broken(const struct wires *wires) {
        /* Acquire; partner: the release in end_break. */
        const uint32_t n = atomic_load_explicit(&wires->n_broken, memory_order_acquire);

        return n ? &wires->end[n - 1] : NULL;
}

static void end_break(struct wires *wires, struct wire_end *end, const char *why) {
        if (end->broken)
                return;
        end->broken = why;
        /* relaxed: nobody else writes it */
        if (!atomic_load_explicit(&wires->n_broken, memory_order_relaxed))
                /* Release; partner: the acquire in wires_broken, which then reads why. */
                atomic_store_explicit(&wires->n_broken, (uint32_t)(end - wires->end) + 1, memory_order_release);
}

static struct wire_mirror *mirror_of(const struct wires *wires, uint32_t source, uint32_t destination) {
        return &wires->mirror[source * wires->n_ranks + destination];
}

static uint64_t area_offset(const struct wires *wires, const void *place) {
        return (uint64_t)((const unsigned char *)place - (const unsigned char *)wires->area);
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */
/* The payload of a chunk's packets; its bytes. */
static uint32_t packets_open(const unsigned char *from, uint32_t number, unsigned char *to) {
        const uint64_t *half = (const uint64_t *)(const void *)from;
        uint32_t n = 0;

        for (; n < PACKETS; n++) {
                /* relaxed: all of the chunk was there before the counter that was acquired */
                uint64_t low = __atomic_load_n(&half[2 * n], __ATOMIC_RELAXED);
                uint64_t high = __atomic_load_n(&half[2 * n + 1], __ATOMIC_RELAXED), payload;

                if ((uint32_t)(low >> 32) != number || (uint32_t)(high >> 32) != number)
                        break;
                payload = high << 32 | (uint32_t)low;
                memcpy(to + 8 * (size_t)n, &payload, 8);
        }
        return 8 * n;
}

static void packets_close(unsigned char *to, uint32_t number, const unsigned char *from, uint32_t bytes) {
        uint64_t *half = (uint64_t *)(void *)to;

        for (uint32_t n = 0; n < bytes / 8; n++) {
                uint64_t payload;

                memcpy(&payload, from + 8 * (size_t)n, 8);
                /* relaxed: each half is whole, and says so itself; the kernel waits for both */
                __atomic_store_n(&half[2 * n], (uint64_t)number << 32 | (uint32_t)payload, __ATOMIC_RELAXED);
                __atomic_store_n(&half[2 * n + 1], (uint64_t)number << 32 | payload >> 32, __ATOMIC_RELAXED);
        }
}

/* ---- out --------------------------------------------------------------------------------------------------------- */
/* A batch in the making. */
struct batch {
        unsigned char *data;
        uint32_t bytes;
};

/* Is there room for an entry with the longest chunk? */
static bool batch_has_room(const struct batch *batch) {
        return batch->bytes + sizeof(struct wire_entry) + STAGING_BULK_CHUNK <= WIRE_BATCH_BYTES;
}

static void batch_entry(struct batch *batch, uint32_t channel, uint32_t bytes, uint32_t number) {
        const struct wire_entry entry = {.channel = (uint16_t)channel, .bytes = (uint16_t)bytes, .number = number};

        memcpy(batch->data + batch->bytes, &entry, sizeof(entry));
        batch->bytes += (uint32_t)sizeof(entry) + (bytes == WIRE_CREDIT ? 0 : (bytes + 7) / 8 * 8);
}

static void batch_chunk(struct batch *batch, const struct wire_end *end, uint32_t channel, uint32_t number) {
        const uint32_t slot = (number - 1) % STAGING_SLOTS;
        const unsigned char *from = end->wire->out[channel][slot];
        unsigned char *to = batch->data + batch->bytes + sizeof(struct wire_entry);
        uint32_t bytes;

        if (channel < WIRE_PACKET_CHANNELS) {
                bytes = packets_open(from, number, to);
        } else {
                /* relaxed: before the counter that was acquired */
                bytes = __atomic_load_n(&end->wire->bytes[channel][slot], __ATOMIC_RELAXED);
                if (bytes > STAGING_BULK_CHUNK)
                        bytes = STAGING_BULK_CHUNK;
                memcpy(to, from, bytes);
        }
        batch_entry(batch, channel, bytes, number);
}

typedef uint64_t words_vector __attribute__((vector_size(16), may_alias));

/* Is one of n words not what it was? Most never are, and nothing that the proxy does is done as often as this. So they
 * are read sixteen bytes at a time; what is found is read again, one word at a time, as it should be. */
__attribute__((no_sanitize_thread)) static bool words_moved(const uint32_t *words, const uint32_t *seen, uint32_t n) {
        const volatile words_vector *now = (const volatile words_vector *)(const void *)words;
        const words_vector *then = (const words_vector *)(const void *)seen;
        words_vector differ = {0};

        for (uint32_t i = 0; i < n / 4; i++)
                differ |= now[i] ^ then[i];
        return (differ[0] | differ[1]) != 0;
}

static bool line_moved(const uint32_t *words, const uint32_t *seen, uint32_t line) {
        return words_moved(words + (size_t)line * LINE, seen + (size_t)line * LINE, LINE);
}

static void channel_credit(struct batch *batch, struct wire_end *end, uint32_t channel) {
        /* relaxed: the kernel has read what it gives back, and we write nothing there until the other side has pushed
         */
        uint32_t given = __atomic_load_n(&end->wire->given[channel], __ATOMIC_RELAXED);

        if ((int32_t)(given - end->come[channel]) > 0)
                given = end->come[channel];
        if (given == end->given[channel] || !batch_has_room(batch))
                return;
        end->given[channel] = given;
        batch_entry(batch, channel, WIRE_CREDIT, given);
}

/* False: there was no room for all of them. */
static bool channel_chunks(struct wires *wires, struct batch *batch, struct wire_end *end, uint32_t channel) {
        /* Acquire; partner: the kernel's store after its release (channel_push). */
        const uint32_t pushed = __atomic_load_n(&end->wire->pushed[channel], __ATOMIC_ACQUIRE);

        if (pushed - end->pushed[channel] > STAGING_SLOTS) {
                end_break(wires, end, "the kernel's count of chunks to it has gone wrong");
                return true;
        }
        while (end->pushed[channel] != pushed) {
                if (!batch_has_room(batch))
                        return false;
                batch_chunk(batch, end, channel, ++end->pushed[channel]);
        }
        return true;
}

/* Chunks of all channels, from the end's first on and round to it. False: there was no room for all of them. */
static bool batch_chunks(struct wires *wires, struct batch *batch, struct wire_end *end) {
        const uint32_t first = end->first;

        if (!words_moved(end->wire->pushed, end->pushed, WIRE_WORDS))
                return true;
        for (uint32_t i = 0; i <= LINES; i++) { /* the line that it begins in, at both ends */
                const uint32_t line = (first / LINE + i) % LINES;

                if (!line_moved(end->wire->pushed, end->pushed, line))
                        continue;
                for (uint32_t c = i ? 0 : first % LINE; c < (i == LINES ? first % LINE : LINE); c++)
                        if (!channel_chunks(wires, batch, end, line * LINE + c)) {
                                end->first = line * LINE + c;
                                return false;
                        }
        }
        return true;
}

static void batch_credits(struct batch *batch, struct wire_end *end) {
        if (!words_moved(end->wire->given, end->given, WIRE_WORDS))
                return;
        for (uint32_t line = 0; line < LINES; line++)
                if (line_moved(end->wire->given, end->given, line))
                        for (uint32_t c = 0; c < LINE; c++)
                                channel_credit(batch, end, line * LINE + c);
}

static void batch_post(const struct wires *wires, const struct wire_end *end, const struct batch *batch) {
        struct wire_mirror *mirror = mirror_of(wires, end->rank, end->peer);
        struct wire_line *line = &mirror->line[(end->sent - 1) % WIRE_BATCHES];
        struct net_descriptor what = {.kind = NET_CHUNK,
                                      .source = (uint8_t)end->rank,
                                      .destination = (uint8_t)end->peer,
                                      .value = end->sent,
                                      .line_offset = area_offset(wires, line)};

        line->bytes = batch->bytes;
        if (batch->bytes <= WIRE_LINE_BYTES) {
                memcpy(line->data, batch->data, batch->bytes);
        } else {
                what.data_bytes = batch->bytes;
                what.data_offset = area_offset(wires, batch->data);
        }
        net_area_post(wires->area, &what);
}

/* One batch of what there is. */
static enum carried end_out(struct wires *wires, struct wire_end *end) {
        struct wire_mirror *mirror = mirror_of(wires, end->rank, end->peer);
        struct batch batch = {.data = mirror->data[end->sent % WIRE_BATCHES]};
        bool all;

        /* Acquire; partner: the fabric's store in net_area_arrive. It has read what it carried. */
        if (end->sent - __atomic_load_n(&mirror->taken, __ATOMIC_ACQUIRE) >= WIRE_BATCHES)
                return CARRIED_NOTHING;
        batch_credits(&batch, end);
        all = batch_chunks(wires, &batch, end);
        if (!batch.bytes || end->broken) /* before, or just now */
                return CARRIED_NOTHING;
        end->sent++;
        batch_post(wires, end, &batch);
        return all ? CARRIED_ALL : CARRIED_SOME;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */
/* False: no proxy has sent this. */
static bool entry_in(struct wire_end *end, const struct wire_entry *entry, const unsigned char *from) {
        const uint32_t c = entry->channel, slot = (entry->number - 1) % STAGING_SLOTS;

        if (entry->bytes == WIRE_CREDIT) {
                /* Release: who may push again does so after what was taken has been. */
                __atomic_store_n(&end->wire->room[c], entry->number, __ATOMIC_RELEASE);
                return true;
        }
        if (entry->number != end->come[c] + 1)
                return false;
        if (c < WIRE_PACKET_CHANNELS)
                packets_close(end->wire->in[c][slot], entry->number, from, entry->bytes);
        else
                memcpy(end->wire->in[c][slot], from, entry->bytes);
        /* Release; partner: the kernel's acquire after it has seen the number (channel_come). Of packets it only says
         * that a look pays. */
        __atomic_store_n(&end->wire->come[c][slot], entry->number, __ATOMIC_RELEASE);
        end->come[c] = entry->number;
        return true;
}

/* A copy; what lies there may change. */
static struct wire_entry entry_read(const unsigned char *at) {
        /* relaxed: it was there before the batch's number, which was acquired */
        const uint64_t word = __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
        struct wire_entry entry;

        _Static_assert(sizeof(entry) == sizeof(word), "an entry is read at once");
        memcpy(&entry, &word, sizeof(entry));
        return entry;
}

static bool batch_in(struct wire_end *end, const unsigned char *data, uint32_t bytes) {
        for (uint32_t at = 0; at < bytes;) {
                struct wire_entry entry;
                uint32_t length;

                if (bytes - at < sizeof(entry))
                        return false;
                entry = entry_read(data + at);
                at += (uint32_t)sizeof(entry);
                if (entry.channel >= WIRE_CHANNELS)
                        return false;
                length = entry.bytes == WIRE_CREDIT ? 0 : (entry.bytes + 7u) / 8 * 8;
                if (length > (entry.channel < WIRE_PACKET_CHANNELS ? STAGING_PACKET_CHUNK : STAGING_BULK_CHUNK) ||
                    length > bytes - at || !entry_in(end, &entry, data + at))
                        return false;
                at += length;
        }
        return true;
}

/* The next batch. */
static enum carried end_in(struct wires *wires, struct wire_end *end) {
        struct wire_mirror *mirror = mirror_of(wires, end->peer, end->rank);
        const struct wire_line *line = &mirror->line[end->taken % WIRE_BATCHES];
        const struct net_descriptor what = {.kind = NET_CREDIT,
                                            .source = (uint8_t)end->rank, /* of the message */
                                            .destination = (uint8_t)end->peer,
                                            .value = end->taken + 1,
                                            .line_offset = area_offset(wires, &mirror->taken)};
        uint32_t bytes;

        /* Acquire; partner: the fabric's store in net_area_arrive. */
        if (end->broken || __atomic_load_n(&line->number, __ATOMIC_ACQUIRE) != end->taken + 1)
                return CARRIED_NOTHING;
        bytes = __atomic_load_n(&line->bytes, __ATOMIC_RELAXED); /* once: it may change */
        if (bytes > WIRE_BATCH_BYTES ||
            !batch_in(end, bytes <= WIRE_LINE_BYTES ? line->data : mirror->data[end->taken % WIRE_BATCHES], bytes))
                end_break(wires, end, "what came from it is nothing that an executor sends");
        end->taken++;
        if (end->taken - end->credited >= WIRE_BATCHES / 2) {
                end->credited = end->taken;
                net_area_post(wires->area, &what);
        }
        return CARRIED_SOME;
}

/* Turn by turn, as long as one has more; not for ever. */
static bool wires_turns(struct wires *wires, enum carried (*carry)(struct wires *wires, struct wire_end *end)) {
        bool any = false, more = true;

        for (uint32_t round = 0; more && round < 2 * WIRE_BATCHES; round++) {
                more = false;
                for (uint32_t i = 0; i < wires->n_ends; i++) {
                        const enum carried carried = carry(wires, &wires->end[(wires->turn + i) % wires->n_ends]);

                        any = any || carried != CARRIED_NOTHING;
                        more = more || carried == CARRIED_SOME;
                }
        }
        return any;
}

bool wires_step(struct wires *wires) {
        const uint64_t one = 1;
        bool moved = false;
        uint32_t arrivals;

        wires->turn++;
        /* Acquire; partner: the release in net_area_arrive, after the word that arrived. */
        arrivals = atomic_load_explicit(&wires->area->arrivals, memory_order_acquire);
        if (!wires->looked || arrivals != wires->arrivals) {
                moved = wires_turns(wires, end_in);
                wires->looked = !moved; /* or is there more? */
                wires->arrivals = arrivals;
        }
        moved = wires_turns(wires, end_out) || moved;
        if (moved && net_area_wake_fabric(wires->area) && wires->doorbell_fd >= 0)
                (void)!write(wires->doorbell_fd, &one, sizeof(one)); /* EAGAIN: it is being woken anyway */
        return moved;
}
