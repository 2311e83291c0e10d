/* SPDX-License-Identifier: MIT */
/*
 * Which memory a peer may write to, connection by connection.
 *
 * Each end offers its part of every area that the peer has a part of: key, address, rkey. It does so on connections of
 * every class, since by which of them the peer sends is the peer's choice. Chunks with data wait until their area has
 * been offered, and until the adapter here knows it. When an area is removed here, the peer must have stopped before
 * the registration ends, or its next write would break the connection for all who use it: so it is told (REVOKE),
 * writes no more to it, and says so (REVOKED), behind all that it had written. Until then, or until the connection is
 * buried, a reference keeps the registration, and the registration keeps the pages; they are nobody's any more, so what
 * is still written there harms nobody. A peer that does not answer for long loses the connection.
 */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>
#include <utlist.h>

#include "util/clock.h"

#define REVOKED_DEADLINES 10u /* so many of the fabric's */

struct verbs_given {
        UT_hash_handle hh;
        struct verbs_given *prev, *next; /* of link->revoked */
        uint64_t key;
        struct fabric_area *area; /* a reference */
        uint64_t revoked_ns;      /* when they were told; 0: not yet */
};

struct verbs_place *link_place(const struct verbs_link *link, uint64_t key) {
        struct verbs_place *place;

        HASH_FIND(hh, link->places, &key, sizeof(key), place);
        return place && !place->closed ? place : NULL;
}

bool link_ready(struct fabric_conn *conn, const struct fabric_item *item) {
        return item->data_bytes == 0 ||
               (item->area->regions[conn->rail->index] && link_place(link_of(conn), item->area->key));
}

static bool area_is_theirs(const struct fabric_area *area, const struct fabric_peer *peer) {
        for (uint32_t i = 0; i < area->n_ranks; i++)
                if (memcmp(&area->nodes[i], &peer->node, sizeof(peer->node)) == 0)
                        return true;
        return false;
}

/* False: it could not be said, for now. */
static bool link_offer(struct verbs_link *link, struct fabric_area *area) {
        struct fabric_conn *conn = link->conn;
        const struct ibv_mr *mr = area->regions[conn->rail->index];
        struct frame frame = {.kind = FRAME_OFFER};
        struct verbs_given *given;

        given = calloc(1, sizeof(*given));
        if (!given)
                return false;
        frame.key = area->key;
        frame.line_offset = (uintptr_t)mr->addr;
        frame.data_offset = mr->length;
        frame.value = mr->rkey;
        if (!conn_say(conn, &frame)) {
                free(given);
                return false;
        }
        given->key = area->key;
        HASH_ADD(hh, link->given, key, sizeof(given->key), given);
        if (!given->hh.tbl) {
                free(given);
                conn_doom(conn, false, "no memory");
                return false;
        }
        given->area = area_ref(area);
        return true;
}

static void link_check_revoked(struct verbs_link *link) {
        struct fabric *fabric = link->conn->rail->fabric;
        const struct verbs_given *first = link->revoked;

        if (first && clock_now_ns() - first->revoked_ns > REVOKED_DEADLINES * fabric->deadline_ns)
                conn_doom(link->conn, false, "the peer does not leave an area that was revoked");
}

static void link_drop_parked(struct verbs_link *link) {
        struct fabric_conn *conn = link->conn;
        struct fabric *fabric = conn->rail->fabric;
        struct schedule_item *item, *tmp;

        DL_FOREACH_SAFE(conn->parked, item, tmp) {
                if (!item_of(item)->area->gone)
                        continue;
                DL_DELETE(conn->parked, item);
                fabric->counters.dropped++;
                item_free(fabric, item_of(item));
        }
}

/* What has become of an area since this connection looked last. False: it could not be said, for now. */
static bool link_follow(struct verbs_link *link, struct fabric_area *area) {
        struct fabric_conn *conn = link->conn;
        struct verbs_given *given;

        conn->rail->fabric->n_followed++;
        HASH_FIND(hh, link->given, &area->key, sizeof(area->key), given);
        if (!area->gone)
                return given || !area->regions[conn->rail->index] || !area_is_theirs(area, conn->peer) ||
                       link_offer(link, area);
        if (!given || given->area != area || given->revoked_ns)
                return true;
        if (!conn_control(conn, FRAME_REVOKE, given->key, 0, 0))
                return false;
        given->revoked_ns = clock_now_ns();
        DL_APPEND(link->revoked, given);
        return true;
}

/* A node can have many connections and many areas, and this is done with the fabric's lock, so nothing here goes
 * through all of one kind for each of the other. */
static bool link_follow_all(struct verbs_link *link) {
        const struct fabric *fabric = link->conn->rail->fabric;
        struct fabric_area *area = fabric->changed ? fabric->changed->changed_prev : NULL; /* the last one */

        while (area && area->changed > link->areas_version) {
                if (!link_follow(link, area))
                        return false;
                area = area == fabric->changed ? NULL : area->changed_prev;
        }
        return true;
}

static bool link_say_closed(struct verbs_link *link) {
        struct verbs_place *place;

        while ((place = link->closed)) {
                if (!conn_control(link->conn, FRAME_REVOKED, place->key, 0, 0))
                        return false;
                LL_DELETE(link->closed, place);
                HASH_DEL(link->places, place);
                free(place);
        }
        return true;
}

void link_work(struct fabric_conn *conn) {
        struct verbs_link *link = link_of(conn);
        struct fabric *fabric = conn->rail->fabric;
        /* relaxed: changed under the lock, which we have */
        uint64_t version = atomic_load_explicit(&fabric->areas_version, memory_order_relaxed);

        link_check_revoked(link);
        if (conn->doomed || (!link->work && link->areas_version == version))
                return;
        link->work = true; /* unless all of it can be done */
        if (!link_say_closed(link) || !link_follow_all(link))
                return;
        link_drop_parked(link);
        if (link->areas_version != version)
                conn_unpark(conn); /* an adapter may have got to know what they wait for */
        link->work = false;
        link->areas_version = version;
}

static void link_was_offered(struct verbs_link *link, const struct frame *frame) {
        struct verbs_place *place;

        HASH_FIND(hh, link->places, &frame->key, sizeof(frame->key), place);
        if (place || HASH_COUNT(link->places) >= LINK_PLACES) {
                conn_malformed(link->conn, place ? "the peer offers an area twice" : "the peer offers too many areas");
                return;
        }
        place = calloc(1, sizeof(*place));
        if (!place) {
                conn_doom(link->conn, false, "no memory");
                return;
        }
        place->key = frame->key;
        place->address = frame->line_offset;
        place->bytes = frame->data_offset;
        place->rkey = frame->value;
        HASH_ADD(hh, link->places, key, sizeof(place->key), place);
        if (!place->hh.tbl) {
                free(place);
                conn_doom(link->conn, false, "no memory");
                return;
        }
        conn_unpark(link->conn);
}

void link_heard(struct fabric_conn *conn, const struct frame *frame) {
        struct verbs_link *link = link_of(conn);
        struct verbs_given *given;
        struct verbs_place *place;
        struct fabric_area *area;

        if (frame->kind == FRAME_OFFER) {
                link_was_offered(link, frame);
        } else if (frame->kind == FRAME_REVOKE) {
                place = link_place(link, frame->key);
                if (place) {
                        place->closed = true;
                        LL_PREPEND(link->closed, place);
                        link->work = conn->rail->again = true;
                } else {
                        conn_malformed(conn, "the peer revokes what it has not offered");
                }
        } else {
                HASH_FIND(hh, link->given, &frame->key, sizeof(frame->key), given);
                if (!given || !given->revoked_ns) {
                        conn_malformed(conn, "the peer leaves an area that was not revoked");
                        return;
                }
                HASH_DEL(link->given, given);
                DL_DELETE(link->revoked, given);
                area_unref(given->area);
                free(given);
                HASH_FIND(hh, conn->rail->fabric->areas, &frame->key, sizeof(frame->key), area);
                if (area) { /* another one of that key: it could not be offered before */
                        link->areas_version = 0;
                        link->work = conn->rail->again = true;
                }
        }
}

void link_forget_places(struct verbs_link *link) {
        struct verbs_place *place, *place_tmp;
        struct verbs_given *given, *given_tmp;

        link->closed = NULL;
        link->revoked = NULL;
        HASH_ITER(hh, link->places, place, place_tmp) {
                HASH_DEL(link->places, place);
                free(place);
        }
        HASH_ITER(hh, link->given, given, given_tmp) {
                HASH_DEL(link->given, given);
                area_unref(given->area);
                free(given);
        }
}
