/* SPDX-License-Identifier: MIT */
/*
 * Daemons that were lost and that nobody here wants any more.
 *
 * Operators look after the event, and whoever asks how many nodes are down must not hear of those alone that are up. So
 * such a daemon stays as a row, with what was counted and why it went, and is nothing else: nobody finds it, and an
 * address that is dialled is dialled as one that was never heard of. For a daemon that is started anew may have another
 * node id at the same address, or the same one at another.
 *
 * It goes with the daemon that comes back as that node, which goes on counting where it stopped, or at that address,
 * when its time is over, and when there are too many.
 */
#include "daemon/peer_private.h"
#include "util/clock.h"
#include <event2/buffer.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

bool peer_lost_in_time(const struct peer *peer, uint64_t now_ns) {
        return now_ns - peer->since_ns < peer->peers->keep_ms * UINT64_C(1000000);
}

static void lost_free(struct peer *peer) {
        DL_DELETE(peer->peers->lost, peer);
        peer->peers->n_lost--;
        free(peer);
}

void peers_lost_free(struct peers *peers) {
        while (peers->lost)
                lost_free(peers->lost);
}

static bool same_place(const struct peer *a, const struct peer *b) {
        return strcmp(peer_address(a), peer_address(b)) == 0;
}

/* Nobody has come in its place. (One without an address has lost it to another.) */
static bool lost_for_good(const struct peer *peer) {
        const struct peer *other;

        if (!peer->identified || !peer->losses || !peer_address(peer)[0])
                return false;
        DL_FOREACH(peer->peers->list, other) {
                if (other != peer && other->link && same_place(other, peer))
                        return false;
        }
        return true;
}

void peer_retire(struct peer *peer) {
        struct peers *peers = peer->peers;
        uint64_t now_ns = clock_now_ns();
        struct peer *other, *next;

        DL_FOREACH_SAFE(peers->lost, other, next) {
                if (!peer_lost_in_time(other, now_ns))
                        lost_free(other);
        }
        if (!lost_for_good(peer) || !peer_lost_in_time(peer, now_ns)) {
                peer_free(peer);
                return;
        }
        if (peers->n_lost >= PEERS_LOST_MAX)
                lost_free(peers->lost);
        peer_unlink(peer);
        DL_APPEND(peers->lost, peer);
        peers->n_lost++;
}

void peer_recall(struct peer *peer) {
        struct peer *other, *next;

        DL_FOREACH_SAFE(peer->peers->lost, other, next) {
                if (memcmp(other->node, peer->node, PEER_NODE_BYTES) == 0) {
                        peer->losses += other->losses;
                        peer->attempts += other->attempts;
                        peer->sent_messages += other->sent_messages;
                        peer->sent_bytes += other->sent_bytes;
                        peer->received_messages += other->received_messages;
                        peer->received_bytes += other->received_bytes;
                        lost_free(other);
                } else if (same_place(other, peer)) {
                        lost_free(other);
                }
        }
}
