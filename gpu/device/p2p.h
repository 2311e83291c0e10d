/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Sends and receives.
 *
 * They are no steps of the whole communicator but of a pair: number k of a's sends to b belongs to number k of b's
 * receives from a. Channels of a region of their own carry them, since any chunk of the other regions may be waiting
 * for a third rank; and tasks of one lane stand behind each other only if they are of one pair and direction
 * (task_name). So the order of the lines in the ring decides, pair by pair, and nothing else does. The peer may be the
 * rank itself: its staging is one like the others.
 *
 * Part p is lane 1 + p % P2P_DATA_LANES's. How a request is cut and which way it goes follows from its bytes, which
 * both sides have in common.
 *
 * Lane 0 makes both sides meet: the sender tells what it sends, the receiver answers with what it receives, each in a
 * channel of its own (a rank may send to and receive from a peer in any order). Both compare. So a send is done when
 * its receive has been rung, and a mismatch is known to both before either is told that it is done. Data does not wait
 * for that. So it may be out of step after a mismatch, when sides have put in or taken out another number of chunks;
 * until the control thread aborts the rank nothing of it succeeds any more, as with collectives (task_check).
 *
 * A rank that has left has finished all its requests: whatever it had to tell is in staging. What does not find all it
 * needs there will wait for ever, and is answered with RMX_E_PEER_LOST.
 */
#include "gpu/device/phase.h"

#define P2P_LANES        (STAGING_P2P_LANES < STAGING_LANES ? STAGING_P2P_LANES : STAGING_LANES)
#define P2P_DATA_LANES   (P2P_LANES - 1u)
#define P2P_PACKET_BYTES (UINT64_C(64) << 10) /* larger ones go in bulk chunks */
#define P2P_ANSWER       1u                   /* region whose lane 0, where no data is, carries the answers */

DEVICE uint32_t p2p_transport(uint64_t bytes) {
        return bytes <= P2P_PACKET_BYTES ? STAGING_PACKET : STAGING_BULK;
}

/* Bytes of a part: as in task_part_bytes() of collectives, with the lanes that there are here. */
DEVICE uint32_t p2p_part_bytes(uint64_t bytes) {
        const uint32_t bulk = p2p_transport(bytes) == STAGING_BULK;
        const uint32_t granule = bulk ? 512u : 256u, most = bulk ? STAGING_BULK_CHUNK : STAGING_PACKET_CHUNK;
        const uint64_t part = (divide_up(bytes, P2P_DATA_LANES) + granule - 1) & ~(uint64_t)(granule - 1);

        return part < granule ? granule : part > most ? most : (uint32_t)part;
}

/* ---- one channel ---------------------------------------------------------------------------------------------------
 */
DEVICE bool p2p_room(const struct run *r, uint32_t transport, uint32_t region) {
        const uint32_t peer = r->task->peer, pushed = r->counter->pushed[region][peer],
                       slots = channel_slots(r->s, peer);
        uint32_t given;

        if ((int32_t)(pushed - r->counter->room[region][peer]) < (int32_t)slots)
                return true;
        given = word_load(channel_room(r->s, transport, region, r->lane, peer));
        given = warp_read(given, 0);
        warp_sync();
        if (r->thread == 0)
                r->counter->room[region][peer] = given;
        warp_sync();
        return (int32_t)(pushed - given) < (int32_t)slots;
}

/* The next chunk to the peer, and from it. */
DEVICE uint64_t p2p_to(const struct run *r, uint32_t transport, uint32_t region) {
        const uint32_t peer = r->task->peer;

        return channel_to(r->s, transport, region, r->lane, r->counter->pushed[region][peer], peer);
}
DEVICE uint64_t p2p_from(const struct run *r, uint32_t transport, uint32_t region) {
        const uint32_t peer = r->task->peer;

        return channel_from(r->s, transport, region, r->lane, r->counter->taken[region][peer], peer);
}

/* Counts a chunk, and sets the flag of a bulk one, which is so long; the proxy is told of both. */
DEVICE void p2p_pushed(const struct run *r, uint32_t transport, uint32_t region, uint32_t bytes) {
        const uint32_t peer = r->task->peer, number = r->counter->pushed[region][peer] + 1;
        const bool far = channel_far(r->s) >> peer & 1;

        if (far && transport == STAGING_BULK && r->thread == 0)
                channel_size(r->s, region, r->lane, peer, number, bytes);
        if (far || transport == STAGING_BULK)
                fence_release_system();
        warp_sync();
        if (r->thread == 0) {
                r->counter->pushed[region][peer] = number;
                channel_push(r->s, transport, region, r->lane, peer, number);
        }
        warp_sync();
}

/* Gives a chunk back. */
DEVICE void p2p_taken(const struct run *r, uint32_t transport, uint32_t region) {
        const uint32_t peer = r->task->peer, taken = r->counter->taken[region][peer];

        warp_sync();
        if (r->thread == 0) {
                r->counter->taken[region][peer] = taken + 1;
                channel_give(r->s, transport, region, r->lane, peer, taken + 1);
        }
        warp_sync();
}

/* ---- data ----------------------------------------------------------------------------------------------------------
 */
/* False: the inbox is not filled yet. */
template <uint32_t ACCESS>
DEVICE bool p2p_push_packets(const struct run *r, uint64_t in, uint32_t bytes, uint64_t to, uint32_t flag) {
        const uint32_t units = (bytes + 7) / 8;

        ROLLED
        for (uint32_t base = r->thread; warp_any(base < units); base += PHASE_PACKETS * WARP_THREADS) {
                uint64_t value[PHASE_PACKETS] = {0};
                bool ready = true;

                UNROLL
                for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                        if (base + k * WARP_THREADS < units)
                                ready = unit_fetch<ACCESS>(r, in, base + k * WARP_THREADS, bytes, &value[k]) && ready;
                if (!warp_all(ready))
                        return false;
                UNROLL
                for (uint32_t k = 0; k < PHASE_PACKETS; k++)
                        if (base + k * WARP_THREADS < units)
                                packet_store((struct quad *)to + base + k * WARP_THREADS, value[k], flag);
        }
        return true;
}

template <uint32_t ACCESS> DEVICE void p2p_push_bulk(const struct run *r, uint64_t in, uint32_t bytes, uint64_t to) {
        const uint32_t quads = (bytes + 15) / 16;

        ROLLED
        for (uint32_t base = r->thread; base < quads; base += PHASE_QUADS * WARP_THREADS) {
                struct quad value[PHASE_QUADS];

                UNROLL
                for (uint32_t k = 0; k < PHASE_QUADS; k++)
                        if (base + k * WARP_THREADS < quads)
                                value[k] = quad_fetch<ACCESS>(r, in, base + k * WARP_THREADS, bytes);
                UNROLL
                for (uint32_t k = 0; k < PHASE_QUADS; k++)
                        if (base + k * WARP_THREADS < quads)
                                quad_store((struct quad *)to + base + k * WARP_THREADS, value[k]);
        }
}

template <uint32_t ACCESS> DEVICE bool p2p_push(const struct run *r, uint64_t in, uint32_t bytes) {
        const uint32_t transport = ACCESS == ACCESS_INLINE ? (uint32_t)STAGING_PACKET : r->task->transport;
        uint64_t to;

        if (!p2p_room(r, transport, STAGING_REGION_P2P))
                return false;
        to = p2p_to(r, transport, STAGING_REGION_P2P);
        if (transport == STAGING_BULK)
                p2p_push_bulk<ACCESS>(r, in, bytes, to);
        else if (!p2p_push_packets<ACCESS>(r, in, bytes, to, r->counter->pushed[STAGING_REGION_P2P][r->task->peer] + 1))
                return false;
        p2p_pushed(r, transport, STAGING_REGION_P2P, bytes);
        return true;
}

template <uint32_t ACCESS>
DEVICE bool p2p_copy_packets(const struct run *r, uint64_t out, uint32_t bytes, uint64_t from, uint32_t flag) {
        const uint32_t units = (bytes + 7) / 8;
        uint32_t done = run_resume(r, 0);
        bool ready = true;

        ROLLED
        for (uint32_t u = r->thread + done * WARP_THREADS; u < units; u += WARP_THREADS) {
                struct quad packet;
                uint32_t spins = 0;

                do
                        packet = quad_load((const struct quad *)from + u);
                while (!packet_is(packet, flag) && ++spins < r->spins);
                ready = packet_is(packet, flag);
                if (!ready)
                        break;
                unit_deliver<ACCESS>(r, out, u, bytes, packet_payload(packet));
                done++;
        }
        if (!warp_all(ready)) {
                run_suspend(r, 0, done);
                return false;
        }
        run_complete(r, 0);
        return true;
}

/* Has the chunk come, if there is a word that says so? */
DEVICE bool p2p_arrived(const struct run *r, uint32_t transport, uint32_t region) {
        const uint32_t peer = r->task->peer, taken = r->counter->taken[region][peer];
        const uint32_t *flag;
        uint32_t spins = 0;

        if (transport == STAGING_PACKET && !(channel_far(r->s) >> peer & 1))
                return true;
        flag = channel_come(r->s, transport, region, r->lane, taken, peer);

        while (word_load(flag) != taken + 1)
                if (++spins >= r->spins)
                        break;
        if (!warp_all(spins < r->spins))
                return false;
        if (transport == STAGING_BULK)
                fence_acquire_system();
        return true;
}

template <uint32_t ACCESS> DEVICE void p2p_copy_bulk(const struct run *r, uint64_t out, uint32_t bytes, uint64_t from) {
        const uint32_t quads = (bytes + 15) / 16;

        ROLLED
        for (uint32_t base = r->thread; base < quads; base += PHASE_QUADS * WARP_THREADS) {
                struct quad value[PHASE_QUADS];

                UNROLL
                for (uint32_t k = 0; k < PHASE_QUADS; k++)
                        if (base + k * WARP_THREADS < quads)
                                value[k] = quad_load((const struct quad *)from + base + k * WARP_THREADS);
                UNROLL
                for (uint32_t k = 0; k < PHASE_QUADS; k++)
                        if (base + k * WARP_THREADS < quads)
                                quad_deliver<ACCESS>(r, out, base + k * WARP_THREADS, bytes, value[k]);
        }
}

template <uint32_t ACCESS> DEVICE bool p2p_copy(const struct run *r, uint64_t out, uint32_t bytes) {
        const uint32_t transport = ACCESS == ACCESS_INLINE ? (uint32_t)STAGING_PACKET : r->task->transport;
        const uint64_t from = p2p_from(r, transport, STAGING_REGION_P2P);

        if (!p2p_arrived(r, transport, STAGING_REGION_P2P))
                return false;
        if (transport == STAGING_BULK) {
                p2p_copy_bulk<ACCESS>(r, out, bytes, from);
        } else if (!p2p_copy_packets<ACCESS>(r, out, bytes, from,
                                             r->counter->taken[STAGING_REGION_P2P][r->task->peer] + 1)) {
                return false;
        }
        p2p_taken(r, transport, STAGING_REGION_P2P);
        return true;
}

/* A lane's share, until it is done (true) or has to wait, or looks up (TASK_PARTS_FAR). */
template <uint32_t ACCESS>
DEVICE bool p2p_move(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins) {
        const struct run r = {t, s, c, s->rank.n_ranks, s->rank.rank, t->lane, warp_thread(), spins};
        const bool sends = t->role == PLAN_ROLE_SENDER;

        while (t->part[0] < t->parts[0]) {
                const uint32_t part = t->part[0];
                const struct plan_span all = {0, t->count}, span = span_part(all, t->elements, t->part[0]);
                const uint64_t at = run_address<ACCESS>(&r, sends ? t->in : t->out, span.offset);
                const uint32_t bytes = (uint32_t)span.length * t->element_bytes;

                if (!(sends ? p2p_push<ACCESS>(&r, at, bytes) : p2p_copy<ACCESS>(&r, at, bytes)))
                        return false;
                warp_sync();
                if (r.thread == 0)
                        t->part[0] = part + P2P_DATA_LANES;
                warp_sync();
                /* What there is of a peer that has left is taken at once, and is not much. */
                if (run_looks_up(&r, part, P2P_DATA_LANES) && !(s->rank.left >> t->peer & 1))
                        return t->part[0] >= t->parts[0];
        }
        return true;
}

/* ---- lane 0
 * ------------------------------------------------------------------------------------------------------------ */
/* False: the peer has not told yet. *ret_status: RMX_OK, or the mismatch, this one or the rank's first. */
DEVICE bool p2p_meet(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins,
                     uint32_t *ret_status) {
        const struct run r = {t, s, c, s->rank.n_ranks, s->rank.rank, 0, warp_thread(), spins};
        const bool sends = t->role == PLAN_ROLE_SENDER;
        const uint32_t tell = sends ? STAGING_REGION_P2P : P2P_ANSWER, hear = sends ? P2P_ANSWER : STAGING_REGION_P2P;
        const uint64_t word = t->call | (t->sequence & 0xffffu);
        const struct quad *from;
        struct lane_state *state;
        struct quad packet;
        uint32_t looks = 0;

        if (!t->part[0]) {
                if (!p2p_room(&r, STAGING_PACKET, tell))
                        return false;
                if (r.thread == 0)
                        packet_store((struct quad *)p2p_to(&r, STAGING_PACKET, tell), word,
                                     c->pushed[tell][t->peer] + 1);
                p2p_pushed(&r, STAGING_PACKET, tell, 8);
                if (r.thread == 0)
                        t->part[0] = 1;
                warp_sync();
        }
        from = (const struct quad *)p2p_from(&r, STAGING_PACKET, hear);
        do
                packet = quad_load(from);
        while (!packet_is(packet, c->taken[hear][t->peer] + 1) && ++looks < spins);
        if (!warp_all(looks < spins))
                return false;
        state = (struct lane_state *)s->rank.states;
        *ret_status = state->broken;
        if (!*ret_status && packet_payload(packet) != word)
                *ret_status = status_of(RMX_E_MISMATCH, (int32_t)t->peer);
        p2p_taken(&r, STAGING_PACKET, hear);
        if (r.thread == 0 && *ret_status)
                state->broken = *ret_status;
        return true;
}

/* ---- a task --------------------------------------------------------------------------------------------------------
 */
/* Works on it until it is finished or has failed (true: *ret_status) or waits for the peer. One function, called in one
 * place: what it needs of registers is not the collectives' business. */
DEVICE_OUTLINE bool p2p_work(struct worker_shared *s, struct counter_cache *c, struct task *t, uint32_t spins,
                             uint32_t *ret_status) {
        bool finished;

        if (t->lane == 0)
                finished = p2p_meet(s, c, t, spins, ret_status);
        else if (t->access == ACCESS_INLINE)
                finished = p2p_move<ACCESS_INLINE>(s, c, t, spins);
        else if (t->access == ACCESS_WHOLE)
                finished = p2p_move<ACCESS_WHOLE>(s, c, t, spins);
        else
                finished = p2p_move<ACCESS_ANY>(s, c, t, spins);
        if (!finished && (s->rank.left >> t->peer & 1)) {
                *ret_status = status_of(RMX_E_PEER_LOST, (int32_t)t->peer);
                finished = true;
        }
        if (finished && !t->inlined)
                fence_release_device();
        warp_sync();
        return finished;
}
