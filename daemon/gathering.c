/* SPDX-License-Identifier: MIT */
/*
 * What is gathered, and what was. How it goes on is in comm_root.c.
 *
 * A gathering that has FAILED is kept to tell nodes that come late, and so that what was on its way to it is known.
 * There are bounds for each tenant, since all share the place: a tenant's failures push out its own only. A node that
 * takes ids without end begins no more than a part of them.
 */
#include "daemon/gathering.h"

#include "daemon/session_dispatch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAILED_TENANT_MAX     256u
#define FAILED_MAX            2048u
#define GATHERINGS_TENANT_MAX 1024u /* these three: of those that have not failed */
#define GATHERINGS_PEER_MAX   2048u /* that another node has begun */
#define GATHERINGS_MAX        4096u

struct gathering *gathering_find(const struct cluster *cluster, const uint8_t id[COMM_ID_BYTES]) {
        struct gathering *gathering;

        HASH_FIND(hh, cluster->gatherings, id, COMM_ID_BYTES, gathering);
        return gathering;
}

struct gathering *gathering_of_key(const struct cluster *cluster, uint64_t key) {
        for (struct gathering *g = cluster->gatherings; g; g = g->hh.next)
                if (g->state == GATHERING_ASSIGNED && g->key == key)
                        return g;
        return NULL;
}

static void gathering_release(struct gathering *gathering) {
        comm_turn_leave(&gathering->turn);
        for (uint32_t i = 0; i < gathering->n_nodes; i++)
                if (gathering->nodes[i].peer)
                        peer_release(gathering->nodes[i].peer);
        gathering->n_nodes = 0;
}

void gathering_free(struct gathering *gathering) {
        struct cluster *cluster = gathering->cluster;

        gathering_release(gathering);
        HASH_DELETE(hh, cluster->gatherings, gathering);
        free(gathering);
}

uint32_t gathering_node(const struct gathering *gathering, const struct peer *peer) {
        uint32_t i = 0;

        while (i < gathering->n_nodes && gathering->nodes[i].peer != peer)
                i++;
        return i;
}

const uint8_t *gathering_node_id(const struct cluster *cluster, const struct peer *peer) {
        return peer ? peer_node_id(peer) : peers_node(cluster->peers);
}

static uint64_t gathering_boot(const struct cluster *cluster, const struct peer *peer) {
        return peer ? peer_boot(peer) : peers_boot(cluster->peers);
}

/* Its place in what was told; n_told: it has none. */
static uint32_t gathering_told_place(const struct gathering *gathering, const struct peer *peer) {
        uint32_t i = 0;

        while (i < gathering->n_told &&
               memcmp(gathering->told[i].node, gathering_node_id(gathering->cluster, peer), PEER_NODE_BYTES) != 0)
                i++;
        return i;
}

const uint64_t *gathering_told(const struct gathering *gathering, const struct peer *peer) {
        uint32_t i = gathering_told_place(gathering, peer);

        return i < gathering->n_told && gathering->told[i].boot == gathering_boot(gathering->cluster, peer)
                       ? &gathering->told[i].attempt
                       : NULL;
}

void gathering_note_told(struct gathering *gathering, const struct peer *peer, uint64_t attempt) {
        uint32_t i = gathering_told_place(gathering, peer);

        if (i == COMM_RANKS_MAX)
                return; /* more nodes than it can have: they are told each time */
        if (i == gathering->n_told)
                gathering->n_told++;
        memcpy(gathering->told[i].node, gathering_node_id(gathering->cluster, peer), PEER_NODE_BYTES);
        gathering->told[i].boot = gathering_boot(gathering->cluster, peer);
        gathering->told[i].attempt = attempt;
}

/* Of those that have FAILED, how many a tenant (NULL: all together) has, and the oldest. */
static unsigned int gatherings_failed(const struct cluster *cluster, const char *tenant, struct gathering **ret_first) {
        unsigned int n = 0;

        *ret_first = NULL;
        for (struct gathering *g = cluster->gatherings; g; g = g->hh.next) {
                if (g->state != GATHERING_FAILED || (tenant && strcmp(g->tenant, tenant) != 0))
                        continue;
                if (n++ == 0)
                        *ret_first = g;
        }
        return n;
}

void gathering_bury(struct gathering *gathering, uint32_t code) {
        struct gathering *first;

        gathering->code = code;
        gathering->state = GATHERING_FAILED;
        gathering_release(gathering);
        if (gatherings_failed(gathering->cluster, gathering->tenant, &first) > FAILED_TENANT_MAX ||
            gatherings_failed(gathering->cluster, NULL, &first) > FAILED_MAX)
                gathering_free(first);
}

bool gatherings_have_room(const struct cluster *cluster, const struct peer *peer, const char *tenant) {
        unsigned int n = 0, n_tenant = 0, n_peer = 0;
        const struct gathering *g;

        for (g = cluster->gatherings; g; g = g->hh.next) {
                if (g->state == GATHERING_FAILED)
                        continue;
                n++;
                n_tenant += strcmp(g->tenant, tenant) == 0;
                n_peer += memcmp(g->begun_by, gathering_node_id(cluster, peer), PEER_NODE_BYTES) == 0;
        }
        return n < GATHERINGS_MAX && n_tenant < GATHERINGS_TENANT_MAX && (!peer || n_peer < GATHERINGS_PEER_MAX);
}

struct gathering *gathering_new(struct cluster *cluster, const struct peer *peer, const Railmux__Peer__Join *body) {
        struct gathering *gathering = calloc(1, sizeof(*gathering));

        if (!gathering)
                return NULL;
        gathering->cluster = cluster;
        memcpy(gathering->id, body->comm_id.data, COMM_ID_BYTES);
        memcpy(gathering->begun_by, gathering_node_id(cluster, peer), PEER_NODE_BYTES);
        snprintf(gathering->tenant, sizeof(gathering->tenant), "%s", body->tenant);
        session_clean_name(gathering->name, body->name);
        gathering->n_ranks = body->n_ranks;
        gathering->device = body->device;
        plan_known_all(&gathering->known);
        HASH_ADD(hh, cluster->gatherings, id, COMM_ID_BYTES, gathering);
        if (!gathering->hh.tbl) {
                free(gathering);
                return NULL;
        }
        return gathering;
}

struct gathering *gathering_again(struct gathering *gathering, const struct peer *peer,
                                  const Railmux__Peer__Join *body) {
        struct cluster *cluster = gathering->cluster;
        const struct gathering before = *gathering;

        gathering_free(gathering);
        gathering = gathering_new(cluster, peer, body);
        if (gathering) {
                memcpy(gathering->told, before.told, sizeof(gathering->told));
                gathering->n_told = before.n_told;
        }
        return gathering;
}
