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

/* Where chunk number `chunk` of a channel lies. */
static size_t slot_index(const struct verify_machine *m, struct verify_channel_id id, uint32_t chunk) {
        return channel_index(m, id) * m->n_slots + chunk % m->slots;
}

int verify_channel_init(struct verify_machine *m) {
        size_t n_channels = (size_t)m->n_regions * m->n_ranks * m->n_ranks, n_slots = n_channels * m->n_slots;

        if (n_slots * m->width * sizeof(*m->flag_clocks) > VERIFY_BYTES_MAX / 2)
                return verify_fault(m->verdict, PLAN_FAULT_MALFORMED, NULL, "the case is too large to verify");
        m->channels = calloc(n_channels, sizeof(*m->channels));
        m->slot = calloc(n_slots + 1, sizeof(*m->slot));
        /* Only what `pushed` and `taken` say was written is ever read. */
        m->flag_clocks = malloc((n_slots * m->width + 1) * sizeof(*m->flag_clocks));
        m->credit_clocks = malloc((n_slots * m->width + 1) * sizeof(*m->credit_clocks));
        if (!m->channels || !m->slot || !m->flag_clocks || !m->credit_clocks)
                return -ENOMEM;
        for (size_t i = 0; i < n_slots; i++)
                m->slot[i].flag = m->options->counter_first & m->counter_mask;
        return 0;
}

void verify_channel_deinit(struct verify_machine *m) {
        free(m->channels);
        free(m->slot);
        free(m->flag_clocks);
        free(m->credit_clocks);
}

bool verify_channel_has_room(const struct verify_machine *m, struct verify_channel_id id,
                             const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];

        if (machine_mutated(m, VERIFY_MUTATION_NO_CREDIT, at->rank, at->phase))
                return true;
        return ((channel->pushed - channel->taken) & m->counter_mask) < m->slots;
}

/* Does this step take whatever is in the slot? */
static bool blind(const struct verify_machine *m, const struct verify_channel *channel, const struct verify_place *at) {
        return machine_mutated(m, VERIFY_MUTATION_NO_CHUNK, at->rank, at->phase) ||
               (machine_mutated(m, VERIFY_MUTATION_STALE_CHUNK, at->rank, at->phase) && channel->taken >= m->slots);
}

bool verify_channel_has_chunk(const struct verify_machine *m, struct verify_channel_id id,
                              const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];
        uint32_t number = m->options->counter_first + channel->taken + 1;

        if (blind(m, channel, at))
                return true;
        /* The first chunk of a slot that no push will ever reach has no slot here either. */
        if (channel->taken % m->slots >= m->n_slots)
                return false;
        return m->slot[slot_index(m, id, channel->taken)].flag == (number & m->counter_mask);
}

int verify_channel_room_seen(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];

        if (channel->pushed - channel->taken >= m->slots)
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phase %u of rank %u writes a slot that rank %u has not read", at->phase, at->rank,
                                    id.destination);
        if (channel->pushed >= m->slots && !machine_mutated(m, VERIFY_MUTATION_NO_CREDIT, at->rank, at->phase))
                clock_join(machine_clock(m, at->rank, at->phase),
                           m->credit_clocks + slot_index(m, id, channel->pushed) * m->width, m->width);
        return 0;
}

int verify_channel_chunk_seen(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];

        if (channel->pushed == channel->taken)
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phase %u of rank %u reads a slot that rank %u has not written", at->phase,
                                    at->rank, id.source);
        if (!blind(m, channel, at))
                clock_join(machine_clock(m, at->rank, at->phase),
                           m->flag_clocks + slot_index(m, id, channel->taken) * m->width, m->width);
        return 0;
}

int verify_channel_push(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                        const struct verify_value *value, const int16_t *posted) {
        struct verify_channel *channel = &m->channels[channel_index(m, id)];
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        int16_t now = clock[at->rank * m->n_phases + at->phase];
        size_t index = slot_index(m, id, channel->pushed);
        struct verify_slot *slot = &m->slot[index];

        if (channel->pushed > 0 && !clock_covers(m, clock, at->rank, channel->push_phase, channel->push_clock))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phases %u and %u of rank %u write to the same channel in any order",
                                    channel->push_phase, at->phase, at->rank);
        if (channel->pushed >= m->slots && !clock_covers(m, clock, id.destination, slot->read_phase, slot->read_clock))
                return verify_fault(m->verdict, PLAN_FAULT_RACE, at,
                                    "phase %u of rank %u may write a slot before rank %u has read it", at->phase,
                                    at->rank, id.destination);
        slot->value = *value;
        slot->request = m->current[at->rank];
        slot->write_clock = now;
        slot->write_phase = (uint8_t)at->phase;
        memcpy(m->flag_clocks + index * m->width, posted, m->width * sizeof(*posted));
        channel->n_pushed[m->current[at->rank]]++;
        channel->push_clock = now;
        channel->push_phase = (uint8_t)at->phase;
        channel->pushed++;
        slot->flag = (m->options->counter_first + channel->pushed) & m->counter_mask;
        return 0;
}

int verify_channel_read(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                        struct verify_value *ret_value) {
        const struct verify_channel *channel = &m->channels[channel_index(m, id)];
        const int16_t *clock = machine_clock(m, at->rank, at->phase);
        const struct verify_slot *slot = &m->slot[slot_index(m, id, channel->taken)];

        if (channel->taken > 0 && !clock_covers(m, clock, at->rank, channel->take_phase, channel->take_clock))
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
        return 0;
}

int verify_channel_release(struct verify_machine *m, struct verify_channel_id id, const struct verify_place *at,
                           const int16_t *posted) {
        struct verify_channel *channel = &m->channels[channel_index(m, id)];
        int16_t now = machine_clock(m, at->rank, at->phase)[at->rank * m->n_phases + at->phase];
        size_t index = slot_index(m, id, channel->taken);

        m->slot[index].read_clock = now;
        m->slot[index].read_phase = (uint8_t)at->phase;
        memcpy(m->credit_clocks + index * m->width, posted, m->width * sizeof(*posted));
        channel->n_taken[m->current[at->rank]]++;
        channel->take_clock = now;
        channel->take_phase = (uint8_t)at->phase;
        channel->taken++;
        return 0;
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
