/* SPDX-License-Identifier: MIT */
/*
 * Channels and their slots. Nothing about a slot is taken for granted: its flag is a number of so many bits as in an
 * executor, and writes and reads of its data carry clocks, so a wait that is missing, ends early or is deceived by an
 * old flag shows up as a race.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan/verify_machine.h"

static size_t channel_index(const struct verify_machine *m, struct verify_channel_id id) {
        return ((size_t)id.region * m->n_ranks + id.source) * m->n_ranks + id.destination;
}

static uint32_t channel_slots(const struct verify_machine *m, struct verify_channel_id id) {
        return id.source == id.destination ? m->self_slots : m->slots;
}

/* Where chunk number `chunk` of a channel lies, and the clocks beside it. */
static struct verify_slot *slot_of(const struct verify_machine *m, struct verify_channel_id id, uint32_t chunk) {
        return &m->channels[channel_index(m, id)].slot[chunk % channel_slots(m, id)];
}

static int16_t *flag_clock(const struct verify_machine *m, struct verify_channel_id id, uint32_t chunk) {
        return m->channels[channel_index(m, id)].clocks + (size_t)(chunk % channel_slots(m, id)) * 2 * m->width;
}

static int16_t *credit_clock(const struct verify_machine *m, struct verify_channel_id id, uint32_t chunk) {
        return flag_clock(m, id, chunk) + m->width;
}

int verify_channel_init(struct verify_machine *m) {
        m->channels = calloc((size_t)m->n_regions * m->n_ranks * m->n_ranks, sizeof(*m->channels));
        return m->channels ? 0 : -ENOMEM;
}

void verify_channel_deinit(struct verify_machine *m) {
        for (size_t i = 0; m->channels && i < (size_t)m->n_regions * m->n_ranks * m->n_ranks; i++) {
                free(m->channels[i].slot);
                free(m->channels[i].clocks);
        }
        free(m->channels);
}

/* Most channels of most plans are never used: those get no slots. */
static int channel_open(struct verify_machine *m, struct verify_channel_id id) {
        struct verify_channel *channel = &m->channels[channel_index(m, id)];
        uint32_t slots = channel_slots(m, id);
        size_t clock_bytes = (size_t)slots * 2 * m->width * sizeof(*channel->clocks);

        if (channel->slot)
                return 0;
        m->channel_bytes += slots * sizeof(*channel->slot) + clock_bytes;
        if (m->channel_bytes > VERIFY_BYTES_MAX)
                return verify_fault(m->verdict, PLAN_FAULT_MALFORMED, NULL, "the case is too large to verify");
        /* Of the clocks, only what `pushed` and `taken` say was written is ever read. */
        channel->clocks = malloc(clock_bytes);
        channel->slot = calloc(slots, sizeof(*channel->slot));
        if (!channel->clocks || !channel->slot)
                return -ENOMEM;
        for (uint32_t i = 0; i < slots; i++)
                channel->slot[i].flag = m->options->counter_first & m->counter_mask;
        return 0;
}

bool verify_channel_has_room(const struct verify_machine *m, struct verify_channel_id id,
                             const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];

        if (machine_mutated(m, VERIFY_MUTATION_NO_CREDIT, at->rank, at->phase))
                return true;
        return ((channel->pushed - channel->taken) & m->counter_mask) < channel_slots(m, id);
}

/* Does this step take whatever is in the slot? */
static bool blind(const struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at) {
        return machine_mutated(m, VERIFY_MUTATION_NO_CHUNK, at->rank, at->phase) ||
               (machine_mutated(m, VERIFY_MUTATION_STALE_CHUNK, at->rank, at->phase) &&
                m->channels[channel_index(m, id)].taken >= channel_slots(m, id));
}

bool verify_channel_has_chunk(const struct verify_machine *m, struct verify_channel_id id,
                              const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];
        uint32_t number = m->options->counter_first + channel->taken + 1;

        if (blind(m, id, at))
                return true;
        return channel->slot && slot_of(m, id, channel->taken)->flag == (number & m->counter_mask);
}

int verify_channel_room_seen(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];

        if (channel->pushed - channel->taken >= channel_slots(m, id))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phase %u of rank %u writes a slot that rank %u has not read", at->phase, at->rank,
                                    id.destination);
        if (channel->pushed >= channel_slots(m, id) &&
            !machine_mutated(m, VERIFY_MUTATION_NO_CREDIT, at->rank, at->phase))
                clock_join(machine_clock(m, at->rank, at->phase), credit_clock(m, id, channel->pushed), m->width);
        return 0;
}

int verify_channel_chunk_seen(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];

        if (channel->pushed == channel->taken)
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phase %u of rank %u reads a slot that rank %u has not written", at->phase,
                                    at->rank, id.source);
        if (!blind(m, id, at))
                clock_join(machine_clock(m, at->rank, at->phase), flag_clock(m, id, channel->taken), m->width);
        return 0;
}

/* May somebody else be at this end of a channel? Within a request an end belongs to one phase: what orders two of them
 * may be nothing but the channel's own credit, and then it is accident who comes first. */
static bool end_contested(const struct verify_machine *m, const struct verify_place *at, const int16_t *clock,
                          const uint32_t *n_in_request, uint32_t n, uint32_t phase, int16_t last) {
        if (n_in_request[m->current[at->rank]] > 0)
                return phase != at->phase;
        return n > 0 && !clock_covers(m, clock, at->rank, phase, last);
}

int verify_channel_push(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                        const struct verify_value *value, bool partial, const int16_t *posted) {
        struct verify_channel *channel = &m->channels[channel_index(m, id)];
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        int16_t now = machine_now(m, at->rank, at->phase);
        struct verify_slot *slot;
        int r = channel_open(m, id);

        if (r)
                return r;
        slot = slot_of(m, id, channel->pushed);
        if (end_contested(m, at, clock, channel->n_pushed, channel->pushed, channel->push_phase, channel->push_clock))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phases %u and %u of rank %u write to the same channel in any order",
                                    channel->push_phase, at->phase, at->rank);
        if (channel->pushed >= channel_slots(m, id) &&
            !clock_covers(m, clock, id.destination, slot->read_phase, slot->read_clock))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phase %u of rank %u may write a slot before rank %u has read it", at->phase,
                                    at->rank, id.destination);
        slot->value = *value;
        slot->partial = partial;
        slot->request = m->current[at->rank];
        slot->write_clock = now;
        slot->write_phase = (uint8_t)at->phase;
        memcpy(flag_clock(m, id, channel->pushed), posted, m->width * sizeof(*posted));
        channel->n_pushed[m->current[at->rank]]++;
        channel->push_clock = now;
        channel->push_phase = (uint8_t)at->phase;
        channel->pushed++;
        slot->flag = (m->options->counter_first + channel->pushed) & m->counter_mask;
        return 0;
}

int verify_channel_read(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                        struct verify_value *ret_value, bool *ret_partial) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        const struct verify_slot *slot = slot_of(m, id, channel->taken);

        if (end_contested(m, at, clock, channel->n_taken, channel->taken, channel->take_phase, channel->take_clock))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phases %u and %u of rank %u read from the same channel in any order",
                                    channel->take_phase, at->phase, at->rank);
        if (!clock_covers(m, clock, id.source, slot->write_phase, slot->write_clock))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phase %u of rank %u may read a slot before rank %u has written it", at->phase,
                                    at->rank, id.source);
        if (slot->request != m->current[at->rank])
                return verify_fault(m->verdict, PLAN_FAULT_VALUE, at,
                                    "phase %u of rank %u takes a chunk of another request", at->phase, at->rank);
        *ret_value = slot->value;
        *ret_partial = slot->partial;
        return 0;
}

void verify_channel_release(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                            const int16_t *posted) {
        struct verify_channel *channel = &m->channels[channel_index(m, id)];
        int16_t now = machine_now(m, at->rank, at->phase);
        struct verify_slot *slot = slot_of(m, id, channel->taken);

        slot->read_clock = now;
        slot->read_phase = (uint8_t)at->phase;
        memcpy(credit_clock(m, id, channel->taken), posted, m->width * sizeof(*posted));
        channel->n_taken[m->current[at->rank]]++;
        channel->take_clock = now;
        channel->take_phase = (uint8_t)at->phase;
        channel->taken++;
}

/* After the last request: each took what it put. */
int verify_channel_check(struct verify_machine *m) {
        struct verify_channel_id id;

        for (id.region = 0; id.region < m->n_regions; id.region++)
                for (id.source = 0; id.source < m->n_ranks; id.source++)
                        for (id.destination = 0; id.destination < m->n_ranks; id.destination++) {
                                const struct verify_channel *channel = &m->channels[channel_index(m, id)];
                                struct verify_place at = {.rank = id.source};

                                for (uint32_t i = 0; i < m->n_requests; i++)
                                        if (channel->n_pushed[i] != channel->n_taken[i])
                                                return verify_fault(
                                                        m->verdict, PLAN_FAULT_UNCONSUMED, &at,
                                                        "rank %u pushes %u chunks to rank %u, which takes %u",
                                                        id.source, channel->n_pushed[i], id.destination,
                                                        channel->n_taken[i]);
                        }
        return 0;
}
