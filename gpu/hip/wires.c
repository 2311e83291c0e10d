/* SPDX-License-Identifier: MIT */
/*
 * The proxy's work
 *
 * What a kernel pushes to a rank of another node has to become a descriptor in the net area's queue. Kernels do not
 * post it themselves. A queue with many producers needs a fetch-and-add, which over the bus is slow where it exists at
 * all; one queue for each warp would be a thousand queues; and the fabric has to be woken when it sleeps, which takes a
 * system call. So threads of the executor, the proxies, look at counters in host memory and post. A kernel only
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
 * slower than the kernels more comes together in one; when it is not, nothing waits for anything. A message costs some
 * microseconds on each side, whatever is in it, and a chunk has a kilobyte or two, so this is what the throughput lives
 * on. It does not live on messages that are longer than WIRE_BATCH_BYTES: from there on copies are what counts, and
 * those of several messages go on at once, on several rails and at both ends. That is also why the first ones are half
 * as long, when little is on its way. A pair has a FIFO of WIRE_BATCHES batches and, for their data, a ring, so that
 * many short ones may be on their way as well as a few long ones.
 *
 * Pace. A look takes less than a message does, so when a kernel's chunks come one after another each look finds a few,
 * and all messages are short. So an end has a measure of looks that send all there is: three at once, and then no more
 * than one each PACE_NS, in which the next one grows. What is alone, or goes to and fro, is never late; what comes in
 * dozens is by PACE_NS at most, where a message is on its way for ten times that. (To wait until there is enough for a
 * long batch would need somebody to know that there will be.)
 *
 * Strands. All below is of one of them (gpu/mirror.h): so a pair has as many FIFOs and measures of looks as there are
 * strands. Copies are what a proxy's time goes into, 0.4 ms for a megabyte out and one in on two H200: the data come
 * from one processor's cache, or the bus, and go to another's. So each GPU has a proxy for each strand, which has its
 * own channels, mirrors and counts, and looks at its own words only.
 *
 * Credit. Nobody waits for credit as long as he has some, so none is worth a message of its own before half of a
 * channel's slots, or a quarter of the batches or of the ring, are owed. All that is owed goes along with whatever is
 * sent in that direction. In a request in which ranks exchange as much as they get, no message is for credit alone.
 * (So there seem to be a slot less than there are; still as many as plans were proved with, which are those of
 * staging.)
 *
 * Order, out: the kernel's counter is read with acquire, so the chunk is whole; copy into the batch; the descriptor's
 * number is stored with release (net_area_post). The batch's place is free: all batches that lay there have been taken
 * by the other side, hence carried. In: the line's number is read with acquire; copy into the wire; packets with their
 * flags, as the kernel wants them (wire_packets.h); the chunk's number after the data, with release. The wire's slot is
 * free: the kernel has given back its last chunk, or the other side's could not have pushed this one.
 *
 * Batches may arrive out of order: only the next one is looked at, when the area's count of arrivals has changed.
 *
 * A look. Most words are what they were, so they are compared by lines of sixteen. Ends have their turns batch by
 * batch, and each look begins with another one. Within an end credits go first, which are small; chunks fill up the
 * batch, and what had no room in it is what the next look begins with. So nobody waits for all that comes before him.
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
 * strand: it carries nothing more, and the plane ends the communicator (comm_far.c).
 */
#include "gpu/hip/wires.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/hip/error.h"
#include "gpu/hip/wire_packets.h"
#include "ring/net.h"

#define LINE         16u /* words that are compared at once */
#define LINES        (WIRE_WORDS / LINE)
#define ALIGN        64u /* of batches in the ring */
#define LEAST_ROOM   (sizeof(struct wire_entry) + STAGING_BULK_CHUNK)
#define FEW_BYTES    (2 * WIRE_BATCH_BYTES)
#define PACE_NS      UINT64_C(3000)
#define AT_ONCE      UINT64_MAX    /* a time at which nothing is too early */
#define PACE_AHEAD   (2 * PACE_NS) /* so three go at once */
#define TELL_CHUNKS  (WIRE_SLOTS / 2)
#define TELL_BATCHES (WIRE_BATCHES / 4)
#define TELL_BYTES   (WIRE_RING_BYTES / 4)
_Static_assert(WIRE_SLOTS - (TELL_CHUNKS - 1) >= STAGING_SLOTS, "plans do not wait for credit that is not told");
_Static_assert(LINE == 16, "as many channels side by side belong to a strand (wire_strand)");
_Static_assert(WIRE_BATCH_BYTES / 2 >= 2 * LEAST_ROOM && WIRE_BATCH_BYTES <= UINT16_MAX, "batches have room");

enum carried { CARRIED_NOTHING, CARRIED_ALL, CARRIED_SOME /* there may be more */ };

int wires_new(const struct plane_net *net, uint32_t n_ranks, const struct plan_nodes *nodes, uint32_t n_ends,
              uint32_t strand, struct wires **ret_wires, char *error) {
        const struct net_area *area = net->area;
        uint64_t memory_bytes;
        uint32_t capacity;
        struct wires *wires;
        int r = plane_net_size(n_ranks, nodes, &capacity, &memory_bytes);

        if (r)
                return error_set(r, error, "a communicator over nodes has 2 to %u ranks on GPUs", STAGING_RANKS_MAX);
        if (!net_area_valid(area, net->bytes) || net_area_bytes(capacity, memory_bytes) > net->bytes ||
            area->capacity != capacity || area->memory_bytes != memory_bytes)
                return error_set(
                        -EINVAL, error,
                        "the net area is not one for %u ranks on GPUs; are daemon and executor of the same version?",
                        n_ranks);
        wires = calloc(1, sizeof(*wires) + n_ends * sizeof(wires->end[0]));
        if (!wires)
                return error_set(-ENOMEM, error, "out of memory");
        wires->area = net->area;
        wires->mirror = (struct wire_mirror *)(void *)((unsigned char *)net->area + NET_QUEUE +
                                                       (size_t)capacity * sizeof(struct net_descriptor)) +
                        (size_t)strand * wire_mirrors(nodes, n_ranks);
        wires->strand = strand;
        wires->doorbell_fd = net->doorbell_fd;
        wires->n_ranks = n_ranks;
        wires->nodes = *nodes;
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
        return &wires->mirror[wire_mirror_of(&wires->nodes, wires->n_ranks, source, destination)];
}

static uint64_t area_offset(const struct wires *wires, const void *place) {
        return (uint64_t)((const unsigned char *)place - (const unsigned char *)wires->area);
}

/* ---- out --------------------------------------------------------------------------------------------------------- */
/* A batch in the making. */
struct batch {
        uint64_t start; /* in the ring, counted as head is */
        unsigned char *data;
        uint32_t bytes, most;
};

/* The other side has taken so many batches; false: more than there are. */
static bool end_acked(struct wire_end *end, uint32_t taken) {
        if ((int32_t)(taken - end->acked) <= 0)
                return true; /* an older word */
        if (taken - end->acked > end->sent - end->acked)
                return false;
        end->acked = taken;
        end->tail = end->after[(taken - 1) % WIRE_BATCHES];
        return true;
}

/* A place in the ring, in one piece. False: there is none at the moment. */
static bool batch_begin(struct batch *batch, const struct wire_end *end, struct wire_mirror *mirror) {
        const uint64_t left = WIRE_RING_BYTES - end->head % WIRE_RING_BYTES; /* to its end */
        /* With little on its way, half of that: so several rails, and both ends, have something to do at once. */
        const uint64_t most = end->head - end->tail < FEW_BYTES ? WIRE_BATCH_BYTES / 2 : WIRE_BATCH_BYTES;
        uint64_t room;

        if (end->sent - end->acked >= WIRE_BATCHES)
                return false;
        batch->start = end->head + (left < WIRE_BATCH_BYTES ? left : 0);
        if (batch->start + LEAST_ROOM > end->tail + WIRE_RING_BYTES)
                return false;
        room = end->tail + WIRE_RING_BYTES - batch->start;
        batch->data = mirror->ring + batch->start % WIRE_RING_BYTES;
        batch->bytes = 0;
        batch->most = (uint32_t)(room < most ? room : most);
        return true;
}

/* Is there room for an entry with the longest chunk? */
static bool batch_has_room(const struct batch *batch) {
        return batch->bytes + LEAST_ROOM <= batch->most;
}

static void batch_entry(struct batch *batch, uint32_t channel, uint32_t bytes, uint32_t number) {
        const struct wire_entry entry = {.channel = (uint16_t)channel, .bytes = (uint16_t)bytes, .number = number};

        memcpy(batch->data + batch->bytes, &entry, sizeof(entry));
        batch->bytes += (uint32_t)sizeof(entry) + (bytes == WIRE_CREDIT ? 0 : (bytes + 7) / 8 * 8);
}

static void batch_chunk(struct batch *batch, const struct wire_end *end, uint32_t channel, uint32_t number) {
        const uint32_t slot = (number - 1) % WIRE_SLOTS;
        const unsigned char *from = end->wire->out[channel][slot];
        unsigned char *to = batch->data + batch->bytes + sizeof(struct wire_entry);
        uint32_t bytes;

        if (channel < STAGING_PACKET_CHANNELS) {
                bytes = wire_packets_open(from, number, to);
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

/* Is one of a line's words not what it was? Most never are, and nothing that the proxy does is done as often as this.
 * So they are read sixteen bytes at a time; what is found is read again, one word at a time, as it should be. */
__attribute__((no_sanitize_thread)) static bool line_moved(const uint32_t *words, const uint32_t *seen, uint32_t line) {
        const volatile words_vector *now = (const volatile words_vector *)(const void *)(words + (size_t)line * LINE);
        const words_vector *then = (const words_vector *)(const void *)(seen + (size_t)line * LINE);
        words_vector differ = {0};

        for (uint32_t i = 0; i < LINE / 4; i++)
                differ |= now[i] ^ then[i];
        return (differ[0] | differ[1]) != 0;
}

/* One of the strand's. */
static bool lines_moved(const struct wires *wires, const uint32_t *words, const uint32_t *seen) {
        for (uint32_t line = wires->strand; line < LINES; line += WIRE_STRANDS)
                if (line_moved(words, seen, line))
                        return true;
        return false;
}

/* What the kernel has given back; of what has come. */
static uint32_t channel_given(const struct wire_end *end, uint32_t channel) {
        /* relaxed: the kernel has read what it gives back, and we write nothing there until the other side has pushed
         */
        const uint32_t given = __atomic_load_n(&end->wire->given[channel], __ATOMIC_RELAXED);

        return (int32_t)(given - end->come[channel]) > 0 ? end->come[channel] : given;
}

static void channel_credit(struct batch *batch, struct wire_end *end, uint32_t channel) {
        const uint32_t given = channel_given(end, channel);

        if (given == end->given[channel] || !batch_has_room(batch))
                return;
        end->given[channel] = given;
        batch_entry(batch, channel, WIRE_CREDIT, given);
}

/* False: there was no room for all of them. */
static bool channel_chunks(struct wires *wires, struct batch *batch, struct wire_end *end, uint32_t channel) {
        /* Acquire; partner: the kernel's store after its release (channel_push). */
        const uint32_t pushed = __atomic_load_n(&end->wire->pushed[channel], __ATOMIC_ACQUIRE);

        if (pushed - end->pushed[channel] > WIRE_SLOTS) {
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

        if (!lines_moved(wires, end->wire->pushed, end->pushed))
                return true;
        for (uint32_t i = 0; i <= LINES; i++) { /* the line that it begins in, at both ends */
                const uint32_t line = (first / LINE + i) % LINES;

                if (line % WIRE_STRANDS != wires->strand || !line_moved(end->wire->pushed, end->pushed, line))
                        continue;
                for (uint32_t c = i ? 0 : first % LINE; c < (i == LINES ? first % LINE : LINE); c++)
                        if (!channel_chunks(wires, batch, end, line * LINE + c)) {
                                end->first = line * LINE + c;
                                return false;
                        }
        }
        return true;
}

static void batch_credits(const struct wires *wires, struct batch *batch, struct wire_end *end) {
        for (uint32_t line = wires->strand; line < LINES; line += WIRE_STRANDS)
                if (line_moved(end->wire->given, end->given, line))
                        for (uint32_t c = 0; c < LINE; c++)
                                channel_credit(batch, end, line * LINE + c);
}

/* Is there enough to give back to be worth a message of its own? */
static bool end_owes(const struct wires *wires, const struct wire_end *end) {
        for (uint32_t line = wires->strand; line < LINES; line += WIRE_STRANDS)
                for (uint32_t c = 0; c < LINE && line_moved(end->wire->given, end->given, line); c++)
                        if (channel_given(end, line * LINE + c) - end->given[line * LINE + c] >= TELL_CHUNKS)
                                return true;
        return false;
}

static void batch_post(struct wires *wires, struct wire_end *end, const struct batch *batch) {
        struct wire_mirror *mirror = mirror_of(wires, end->rank, end->peer);
        struct wire_line *line = &mirror->line[end->sent % WIRE_BATCHES];
        struct net_descriptor what = {.kind = NET_CHUNK,
                                      .source = (uint8_t)end->rank,
                                      .destination = (uint8_t)end->peer,
                                      .value = end->sent + 1,
                                      .line_offset = area_offset(wires, line)};

        line->bytes = batch->bytes;
        line->at = (uint32_t)(batch->start % WIRE_RING_BYTES);
        line->taken = end->taken;
        if (batch->bytes <= WIRE_LINE_BYTES) {
                memcpy(line->data, batch->data, batch->bytes);
        } else {
                what.data_bytes = batch->bytes;
                what.data_offset = area_offset(wires, batch->data);
                end->head = batch->start + (batch->bytes + ALIGN - 1) / ALIGN * ALIGN;
        }
        end->after[end->sent++ % WIRE_BATCHES] = end->head;
        end->told = end->taken;
        end->untold_bytes = 0;
        net_area_post(wires->area, &what);
}

/* Of batches, when there is none to send that says it, and before the other side runs out of room. */
static enum carried end_tell(struct wires *wires, struct wire_end *end) {
        const struct net_descriptor what = {.kind = NET_CREDIT,
                                            .source = (uint8_t)end->rank, /* of the message */
                                            .destination = (uint8_t)end->peer,
                                            .value = end->taken,
                                            .line_offset =
                                                    area_offset(wires, &mirror_of(wires, end->peer, end->rank)->taken)};

        if (end->broken || (end->taken - end->told < TELL_BATCHES && end->untold_bytes < TELL_BYTES))
                return CARRIED_NOTHING;
        end->told = end->taken;
        end->untold_bytes = 0;
        net_area_post(wires->area, &what);
        return CARRIED_ALL;
}

/* Has it had its measure of looks? */
static bool end_early(const struct wire_end *end, uint64_t now_ns) {
        return end->paced_ns > now_ns && end->paced_ns - now_ns > PACE_AHEAD;
}

static void end_pace(struct wire_end *end, uint64_t now_ns) {
        if (now_ns != AT_ONCE)
                end->paced_ns = (end->paced_ns > now_ns ? end->paced_ns : now_ns) + PACE_NS;
}

/* One batch of what there is. */
static enum carried end_batch(struct wires *wires, struct wire_end *end) {
        struct wire_mirror *mirror = mirror_of(wires, end->rank, end->peer);
        struct batch batch;
        bool all;

        /* Acquire; partner: the fabric's store in net_area_arrive. It has read what it carried. */
        if (!end_acked(end, __atomic_load_n(&mirror->taken, __ATOMIC_ACQUIRE)))
                end_break(wires, end, "what came from it acknowledges more than was sent");
        if (end->broken || !batch_begin(&batch, end, mirror) ||
            (!lines_moved(wires, end->wire->pushed, end->pushed) && !end_owes(wires, end)))
                return CARRIED_NOTHING;
        if (end_early(end, wires->now_ns)) {
                wires->waits = true;
                return CARRIED_NOTHING;
        }
        batch_credits(wires, &batch, end);
        all = batch_chunks(wires, &batch, end);
        if (!batch.bytes || end->broken)
                return CARRIED_NOTHING;
        batch_post(wires, end, &batch);
        if (all)
                end_pace(end, wires->now_ns);
        return all ? CARRIED_ALL : CARRIED_SOME;
}

static enum carried end_out(struct wires *wires, struct wire_end *end) {
        const enum carried carried = end_batch(wires, end);

        return carried == CARRIED_NOTHING ? end_tell(wires, end) : carried;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */
/* False: no proxy has sent this. */
static bool entry_in(struct wire_end *end, const struct wire_entry *entry, const unsigned char *from) {
        const uint32_t c = entry->channel, slot = (entry->number - 1) % WIRE_SLOTS;

        if (entry->bytes == WIRE_CREDIT) {
                /* Release: who may push again does so after what was taken has been. */
                __atomic_store_n(&end->wire->room[c], entry->number, __ATOMIC_RELEASE);
                return true;
        }
        if (entry->number != end->come[c] + 1)
                return false;
        if (c < STAGING_PACKET_CHANNELS)
                wire_packets_close(end->wire->in[c][slot], entry->number, from, entry->bytes);
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

static bool batch_in(const struct wires *wires, struct wire_end *end, const unsigned char *data, uint32_t bytes) {
        for (uint32_t at = 0; at < bytes;) {
                struct wire_entry entry;
                uint32_t length;

                if (bytes - at < sizeof(entry))
                        return false;
                entry = entry_read(data + at);
                at += (uint32_t)sizeof(entry);
                if (entry.channel >= STAGING_CHANNELS || wire_strand(entry.channel) != wires->strand)
                        return false;
                length = entry.bytes == WIRE_CREDIT ? 0 : (entry.bytes + 7u) / 8 * 8;
                if (length > (entry.channel < STAGING_PACKET_CHANNELS ? STAGING_PACKET_CHUNK : STAGING_BULK_CHUNK) ||
                    length > bytes - at || !entry_in(end, &entry, data + at))
                        return false;
                at += length;
        }
        return true;
}

/* The batch that the line tells of. False: no proxy has sent this. */
static bool line_in(const struct wires *wires, struct wire_end *end, const struct wire_mirror *mirror,
                    const struct wire_line *line) {
        /* relaxed: before the number that was acquired. Once: they may change. */
        const uint32_t bytes = __atomic_load_n(&line->bytes, __ATOMIC_RELAXED);
        const uint32_t at = __atomic_load_n(&line->at, __ATOMIC_RELAXED);

        if (!end_acked(end, __atomic_load_n(&line->taken, __ATOMIC_RELAXED)))
                return false;
        if (bytes <= WIRE_LINE_BYTES)
                return batch_in(wires, end, line->data, bytes);
        if (bytes > WIRE_BATCH_BYTES || at % ALIGN != 0 || at > WIRE_RING_BYTES - bytes)
                return false;
        end->untold_bytes += bytes;
        return batch_in(wires, end, mirror->ring + at, bytes);
}

/* The next batch. */
static enum carried end_in(struct wires *wires, struct wire_end *end) {
        const struct wire_mirror *mirror = mirror_of(wires, end->peer, end->rank);
        const struct wire_line *line = &mirror->line[end->taken % WIRE_BATCHES];

        /* Acquire; partner: the fabric's store in net_area_arrive. */
        if (end->broken || __atomic_load_n(&line->number, __ATOMIC_ACQUIRE) != end->taken + 1)
                return CARRIED_NOTHING;
        if (!line_in(wires, end, mirror, line))
                end_break(wires, end, "what came from it is nothing that an executor sends");
        end->taken++;
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

bool wires_pending(const struct wires *wires) {
        for (uint32_t i = 0; i < wires->n_ends; i++)
                if (!wires->end[i].broken && lines_moved(wires, wires->end[i].wire->pushed, wires->end[i].pushed))
                        return true;
        return false;
}

bool wires_step_at(struct wires *wires, uint64_t now_ns) {
        const uint64_t one = 1;
        bool moved = false;
        uint32_t arrivals;

        wires->turn++;
        wires->now_ns = now_ns;
        wires->waits = false;
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
        return moved || wires->waits;
}

bool wires_step(struct wires *wires) {
        return wires_step_at(wires, AT_ONCE);
}
