/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Lane 0 of the usual requests, as check_send() and check_compare() do it for any plan: where everybody sends to
 * everybody, a thread for each peer; where only the root does, its word to all. Of a reduce the root hears from all.
 */
#include "gpu/device/quick_root.h"

/* Tells the peers what is called: all others, or, of ONE, this one. False: no room. */
template <bool ONE>
DEVICE bool quick_tell(const struct worker_shared *s, struct counter_cache *c, uint64_t call, uint32_t one) {
        const uint32_t n = s->rank.n_ranks, me = s->rank.rank, region = STAGING_REGION_CHECK, thread = warp_thread();
        const uint64_t credit = s->rank.peer[me] + staging_credit(&s->layout, STAGING_PACKET, region, 0);
        bool good = true;

        for (uint32_t p = thread; p < n; p += WARP_THREADS)
                if (p != me && (!ONE || p == one) &&
                    (int32_t)(c->pushed[region][p] - c->room[region][p]) >= (int32_t)STAGING_SLOTS) {
                        c->room[region][p] = word_load((const uint32_t *)credit + p);
                        good = good && (int32_t)(c->pushed[region][p] - c->room[region][p]) < (int32_t)STAGING_SLOTS;
                }
        if (!warp_all(good))
                return false;
        for (uint32_t p = thread; p < n; p += WARP_THREADS) {
                const uint32_t pushed = c->pushed[region][p];

                if (p == me || (ONE && p != one))
                        continue;
                packet_store((struct quad *)(s->rank.peer[p] + staging_chunk(&s->layout, STAGING_PACKET, region, 0,
                                                                             pushed % STAGING_SLOTS, me)),
                             call, pushed + 1);
                c->pushed[region][p] = pushed + 1;
        }
        return true;
}

/* Have the peers told (all others, or, of ONE, this one)? Then compares what they called. */
template <bool ONE>
DEVICE bool quick_hear(const struct worker_shared *s, struct counter_cache *c, uint64_t call, uint32_t one,
                       uint32_t spins, uint32_t *ret_status) {
        const uint32_t n = s->rank.n_ranks, me = s->rank.rank, region = STAGING_REGION_CHECK, thread = warp_thread();
        const uint64_t mine = s->rank.peer[me], credit = staging_credit(&s->layout, STAGING_PACKET, region, 0);
        uint32_t differs = n;
        bool good = true;

        for (uint32_t p = thread; p < n; p += WARP_THREADS) {
                const uint32_t taken = c->taken[region][p];
                const struct quad *from = (const struct quad *)(mine + staging_chunk(&s->layout, STAGING_PACKET, region,
                                                                                     0, taken % STAGING_SLOTS, p));
                uint32_t looks = 0;
                struct quad packet;

                if (p == me || (ONE && p != one))
                        continue;
                do
                        packet = quad_load(from);
                while (!packet_is(packet, taken + 1) && ++looks < spins);
                good = good && looks < spins;
                if (packet_payload(packet) != call && differs == n)
                        differs = p;
        }
        if (!warp_all(good))
                return false;
        {
                const uint64_t who = warp_ballot(differs < n);

                if (who)
                        differs = warp_read(differs, first_bit(who));
        }
        warp_sync();
        for (uint32_t p = thread; p < n; p += WARP_THREADS)
                if (p != me && (!ONE || p == one))
                        word_store((uint32_t *)(s->rank.peer[p] + credit) + me, ++c->taken[region][p]);
        warp_sync();
        *ret_status = differs == n ? (uint32_t)RMX_OK : status_of(RMX_E_MISMATCH, (int32_t)differs);
        return true;
}

/* As task_check() where everybody sends to everybody. */
DEVICE bool quick_check(struct worker_shared *s, struct counter_cache *c, uint64_t call, bool *sent, uint32_t spins,
                        uint32_t *ret_status) {
        if (!*sent && !quick_tell<false>(s, c, call, 0))
                return false;
        *sent = true;
        return quick_hear<false>(s, c, call, 0, spins, ret_status);
}

/* ... and where only the root does, or all to the root. Apart, so that what everybody does is as short as it was: bit 0
 * of what comes back says whether it is done, bit 1 what is sent by now; the status is in the upper half. */
DEVICE_OUTLINE uint64_t quick_check_root(struct worker_shared *s, struct counter_cache *c, bool out, uint32_t root,
                                         uint64_t call, bool sent, uint32_t spins) {
        SHARED_POINTER(s);
        SHARED_POINTER(c);
        const bool tells = (root == s->rank.rank) == out;
        uint32_t status = RMX_OK;
        bool done;

        if (tells) {
                if (!sent)
                        sent = out ? quick_tell<false>(s, c, call, 0) : quick_tell<true>(s, c, call, root);
                done = sent;
        } else {
                done = out ? quick_hear<true>(s, c, call, root, spins, &status)
                           : quick_hear<false>(s, c, call, 0, spins, &status);
        }
        return (uint64_t)status << 32 | (uint64_t)sent << 1 | done;
}

/* Either. */
DEVICE bool quick_checks(struct worker_shared *s, struct counter_cache *c, const struct task *k, uint64_t call,
                         bool *sent, uint32_t spins, uint32_t *ret_status) {
        uint64_t came;

        if (!quick_rooted(k->quick))
                return quick_check(s, c, call, sent, spins, ret_status);
        came = quick_check_root(s, c, k->quick == QUICK_BROADCAST, k->root, call, *sent, spins);
        *sent = came >> 1 & 1;
        *ret_status = (uint32_t)(came >> 32);
        return came & 1;
}
