/* SPDX-License-Identifier: MIT */
/*
 * Control channel and fabric
 *
 * When two daemons are connected each tells the other its rails; from then on the fabric may make connections of its
 * own, which prove themselves by the secret of this control connection. When that is lost, so is the peer for the
 * fabric, and every communicator that spans it: there is nobody any more who would tell of failures over there.
 *
 * The daemon that made a communicator's id gathers its ranks and treats its own like everybody's: it sends itself
 * messages, which come from the loop like all others. So nothing is called from below itself.
 */
#include "daemon/cluster.h"

#include "daemon/allowance.h"
#include "daemon/cluster_rails.h"
#include "daemon/comm_heard.h"
#include "daemon/comm_id.h"
#include "daemon/comm_remote.h"
#include "daemon/comm_remote_id.h"
#include "daemon/comm_root.h"
#include "daemon/comm_split_far.h"
#include "daemon/comm_split_root.h"
#include "daemon/manager.h"
#include "daemon/state.h"
#include "util/clock.h"
#include "util/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define UNREACHABLE_MS 100u

struct cluster_node {
        struct cluster_node *next, *prev;
        struct peer *peer;
        bool reached;     /* the fabric has it */
        bool cut_off;     /* no rail reaches it, and that has been said */
        uint64_t asks_ns; /* when the ids that it has asked for are made good: CLUSTER_ASKS in a second */
};

struct cluster_self {
        struct cluster_self *next, *prev;
        size_t size;
        uint8_t packed[];
};

static struct cluster_node *cluster_find(const struct cluster *cluster, const struct peer *peer) {
        struct cluster_node *node;

        DL_FOREACH(cluster->nodes, node) {
                if (node->peer == peer)
                        return node;
        }
        return NULL;
}

bool cluster_reaches(const struct cluster *cluster, const struct peer *peer) {
        struct cluster_node *node;

        if (!peer)
                return true;
        node = cluster_find(cluster, peer);
        return node && node->reached;
}

bool cluster_takes_ask(struct cluster *cluster, const struct peer *peer) {
        struct cluster_node *node = cluster_find(cluster, peer);

        return node && allowance_take(&node->asks_ns, CLUSTER_ASKS, clock_now_ns());
}

int cluster_send(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Message *message) {
        size_t size = railmux__peer__message__get_packed_size(message);
        struct cluster_self *self;

        if (peer)
                return peer_send(peer, message);
        self = malloc(sizeof(*self) + size);
        if (!self)
                return -ENOMEM;
        self->size = railmux__peer__message__pack(message, self->packed);
        DL_APPEND(cluster->selves, self);
        event_active(cluster->self_event, EV_TIMEOUT, 0);
        return 0;
}

/* ---- rails ------------------------------------------------------------------------------------------------------- */
static void cluster_tell_rails(struct cluster *cluster, struct peer *peer) {
        Railmux__Peer__Message message = RAILMUX__PEER__MESSAGE__INIT;
        Railmux__Peer__Rails body = RAILMUX__PEER__RAILS__INIT;
        Railmux__Peer__Rail rails[FABRIC_RAILS_MAX], *list[FABRIC_RAILS_MAX];
        struct fabric_rail_row *rows = NULL;
        size_t n = 0;

        if (fabric_rails(cluster->fabric, &rows, &n) < 0) {
                peer_drop(peer, "out of memory");
                return;
        }
        for (size_t i = 0; i < n && i < FABRIC_RAILS_MAX; i++) {
                railmux__peer__rail__init(&rails[i]);
                rails[i].name = rows[i].name;
                rails[i].address = rows[i].address;
                rails[i].port = rows[i].port;
                list[body.n_rails++] = &rails[i];
        }
        body.rails = list;
        message.body_case = RAILMUX__PEER__MESSAGE__BODY_RAILS;
        message.rails = &body;
        if (peer_send(peer, &message))
                peer_drop(peer, "cannot tell the rails");
        free(rows);
}

void cluster_rails_changed(struct cluster *cluster) {
        struct cluster_node *node;

        DL_FOREACH(cluster->nodes, node) {
                cluster_tell_rails(cluster, node->peer);
        }
}

/* The first time, and again whenever it has one more. */
static void cluster_hear_rails(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Rails *body) {
        struct fabric_peer_options options = {.boot_epoch = peer_boot(peer)};
        struct cluster_node *node = cluster_find(cluster, peer);
        struct fabric_peer_rail rails[FABRIC_RAILS_MAX];
        int r;

        if (!node)
                return;
        for (size_t i = 0; i < body->n_rails && i < FABRIC_RAILS_MAX; i++)
                rails[options.n_rails++] = (struct fabric_peer_rail){.name = body->rails[i]->name,
                                                                     .address = body->rails[i]->address,
                                                                     .port = (uint16_t)body->rails[i]->port};
        options.rails = rails;
        memcpy(options.node.id, peer_node_id(peer), sizeof(options.node.id));
        memcpy(options.token, peer_token(peer), sizeof(options.token));
        r = node->reached ? fabric_peer_rails(cluster->fabric, &options.node, rails, options.n_rails)
                          : fabric_peer_add(cluster->fabric, &options);
        if (r) {
                peer_drop(peer, r < 0 ? strerror(-r) : fabric_error(cluster->fabric));
                return;
        }
        if (node->reached)
                return;
        node->reached = true;
        comm_heard_reached(cluster, peer);
}

/* ---- what peers say ---------------------------------------------------------------------------------------------- */
static void cluster_message(struct cluster *cluster, struct peer *peer, const Railmux__Peer__Message *message) {
        switch (message->body_case) {
        case RAILMUX__PEER__MESSAGE__BODY_RAILS:
                if (peer)
                        cluster_hear_rails(cluster, peer, message->rails);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_JOIN:
                comm_root_join(cluster, peer, message->join);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_READY:
                comm_root_ready(cluster, peer, message->ready);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_JOIN_FAILED: /* from the root, or to it */
                if (!comm_root_failed(cluster, peer, message->join_failed))
                        comm_heard_join_failed(cluster, peer, message->join_failed);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_ASSIGN:
                comm_heard_assign(cluster, peer, message->assign);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_GO:
                comm_heard_go(cluster, peer, message->go);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_FAILED:
                comm_heard_failed(cluster, peer, message->failed);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_LEFT:
                comm_heard_left(cluster, peer, message->left);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_ENDED:
                comm_heard_ended(cluster, peer, message->ended);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_SPLIT_JOIN:
                comm_split_root_join(cluster, peer, message->split_join);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_SPLIT_READY:
                comm_split_root_ready(cluster, peer, message->split_ready);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_SPLIT_FORM:
                comm_split_far_form(cluster, peer, message->split_form);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_SPLIT_GO:
                comm_split_far_go(cluster, peer, message->split_go);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_SPLIT_FAILED:
                if (message->split_failed->verdict)
                        comm_split_far_failed(cluster, peer, message->split_failed);
                else
                        comm_split_root_failed(cluster, peer, message->split_failed);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_ID_ASK:
                comm_remote_id_asked(cluster, peer, message->id_ask);
                break;
        case RAILMUX__PEER__MESSAGE__BODY_ID_TOLD:
                comm_remote_id_told(cluster, peer, message->id_told);
                break;
        default:
                log_warning("peer %s: message %d is not known here", peer ? peer_address(peer) : "itself",
                            (int)message->body_case);
                break;
        }
}

static void cluster_on_self(evutil_socket_t fd, short what, void *data) {
        struct cluster *cluster = data;
        struct cluster_self *self, *next, *selves = cluster->selves;
        LOOP_HOLD(&cluster->manager->watch, "messages to itself");

        (void)fd;
        (void)what;
        cluster->selves = NULL; /* what is sent meanwhile comes next time */
        DL_FOREACH_SAFE(selves, self, next) {
                Railmux__Peer__Message *message = railmux__peer__message__unpack(NULL, self->size, self->packed);

                DL_DELETE(selves, self);
                free(self);
                if (!message) {
                        log_error("no memory for a message to itself: a communicator over several nodes may wait for "
                                  "ever");
                        continue;
                }
                cluster_message(cluster, NULL, message);
                railmux__peer__message__free_unpacked(message, NULL);
        }
}

static void cluster_on_up(struct peer *peer, void *data) {
        struct cluster *cluster = data;
        struct cluster_node *node = calloc(1, sizeof(*node));

        if (!node) {
                peer_drop(peer, "out of memory");
                return;
        }
        node->peer = peer;
        DL_APPEND(cluster->nodes, node);
        cluster_tell_rails(cluster, peer);
        last_words_say(&cluster->words, peer);
        comm_remote_up(cluster, peer);
}

static void cluster_on_message(struct peer *peer, const Railmux__Peer__Message *message, void *data) {
        struct cluster *cluster = data;
        LOOP_HOLD(&cluster->manager->watch, "a message of another node");

        cluster_message(cluster, peer, message);
}

static void cluster_on_lost(struct peer *peer, const char *text, void *data) {
        struct cluster *cluster = data;
        struct cluster_node *node = cluster_find(cluster, peer);
        struct fabric_node id;
        LOOP_HOLD(&cluster->manager->watch, "the loss of another node");

        if (node) {
                memcpy(id.id, peer_node_id(peer), sizeof(id.id));
                if (node->reached)
                        (void)fabric_peer_remove(cluster->fabric, &id);
                DL_DELETE(cluster->nodes, node);
                free(node);
        }
        comm_root_lost(cluster, peer, text);
        comm_heard_lost(cluster, peer, text);
}

static void cluster_on_failed(struct peer *peer, const char *text, void *data) {
        struct cluster *cluster = data;

        comm_root_lost(cluster, peer, text);
        comm_heard_lost(cluster, peer, text);
}

static void cluster_on_merged(struct peer *peer, struct peer *into, void *data) {
        struct cluster *cluster = data;

        comm_root_merged(cluster, peer, into);
        comm_heard_merged(cluster, peer, into);
        last_words_merged(&cluster->words, peer, into);
        if (peer_is_up(into)) {
                last_words_say(&cluster->words, into);
                comm_remote_up(cluster, into);
        }
}

/* ---- what the fabric says ---------------------------------------------------------------------------------------- */
static struct cluster_node *cluster_node(const struct cluster *cluster, const struct fabric_node *id) {
        struct cluster_node *node;

        DL_FOREACH(cluster->nodes, node) {
                if (memcmp(peer_node_id(node->peer), id->id, sizeof(id->id)) == 0)
                        return node;
        }
        return NULL;
}

static const char *cluster_name(const struct cluster *cluster, const struct fabric_node *id) {
        const struct cluster_node *node = cluster_node(cluster, id);
        const struct peer *peer = node ? node->peer : NULL;

        return !peer ? "unknown" : peer_name(peer)[0] ? peer_name(peer) : peer_address(peer);
}

static void cluster_on_route(void *data, const struct fabric_node *id, const char *rail, enum fabric_route_state state,
                             const char *why) {
        struct cluster_node *node = cluster_node(data, id);

        if (node && state == FABRIC_UP)
                node->cut_off = false;
        log_notice("route to %s over rail %s: %s%s%s", cluster_name(data, id), rail, fabric_route_state_name(state),
                   why && why[0] ? ": " : "", why ? why : "");
}

/* All routes are gone: whoever waits for that node waits in vain. The control channel is not asked. It is said again
 * while somebody waits: communicators may have been made since. */
static void cluster_on_unreachable(void *data, const struct fabric_node *id, const char *why) {
        struct cluster *cluster = data;
        struct cluster_node *node = cluster_node(cluster, id);

        if (!node || !node->cut_off)
                log_error("no rail reaches %s: %s", cluster_name(cluster, id), why);
        if (!node)
                return;
        node->cut_off = true;
        comm_heard_lost(cluster, node->peer, why);
}

/* It may be reached all the same: who waits for these messages waits in vain. */
static void cluster_on_messages_lost(void *data, const struct fabric_node *id, const char *why) {
        struct cluster *cluster = data;
        struct cluster_node *node = cluster_node(cluster, id);

        log_error("node %s: %s", cluster_name(cluster, id), why);
        if (node)
                comm_heard_messages_lost(cluster, node->peer, why);
}

static void cluster_on_cut_off(void *data, const struct fabric_node *id, uint64_t key, const char *why) {
        struct cluster *cluster = data;
        struct cluster_node *node = cluster_node(cluster, id);

        /* It is said again until what was sent has gone with the communicator, which takes a while. */
        if (node && comm_heard_cut_off(cluster, node->peer, key))
                log_error("communicator key %016llx is cut off from %s: %s", (unsigned long long)key,
                          cluster_name(cluster, id), why);
}

static void cluster_on_violation(void *data, const struct fabric_node *id, uint64_t key, const char *text) {
        struct cluster *cluster = data;

        if (key)
                log_warning("fabric: %s (node %s, communicator key %016llx)", text, cluster_name(cluster, id),
                            (unsigned long long)key);
        else
                log_warning("fabric: %s (node %s)", text, cluster_name(cluster, id));
}

static void cluster_on_area(void *data, uint64_t key, int condition, const char *text) {
        comm_heard_area(data, key, condition, text);
}

static void cluster_on_fabric(evutil_socket_t fd, short what, void *data) {
        struct cluster *cluster = data;
        LOOP_HOLD(&cluster->manager->watch, "what the fabric has to say");

        (void)fd;
        (void)what;
        fabric_dispatch(cluster->fabric);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */
static void cluster_certificates(const struct config *config, struct peers_options *options) {
        options->cluster = config->cluster;
        options->ca = config->peer_ca[0] ? config->peer_ca : NULL;
        options->certificate = config->peer_certificate[0] ? config->peer_certificate : NULL;
        options->key = config->peer_key[0] ? config->peer_key : NULL;
}

int cluster_reload(struct cluster *cluster, const struct config *config, char error[CLUSTER_TEXT_MAX]) {
        struct peers_options options = {0};
        int r;

        cluster_certificates(config, &options);
        options.cluster = peers_cluster(cluster->peers); /* another one is for the next start */
        r = peers_reload(cluster->peers, &options, error);
        if (r)
                return r > 0 ? CLUSTER_E_REFUSED : r;
        if (peers_tls(cluster->peers))
                fabric_set_tls(cluster->fabric, peers_tls(cluster->peers));
        return 0;
}

static int cluster_start(struct cluster *cluster, char error[CLUSTER_TEXT_MAX]) {
        const struct config *config = cluster->manager->config;
        struct peers_options peers = {
                .base = cluster->manager->base,
                .listen = config->listen,
                .ahead = cluster->manager->restarts > 0, /* as rails may wait, see cluster_rails.c */
                .advertise = config->advertise,
                .plain = config->peer_plain != 0,
                .heartbeat_ms = config->peer_heartbeat_ms,
                .deadline_ms = config->peer_lost_ms,
                .events = {.up = cluster_on_up,
                           .message = cluster_on_message,
                           .lost = cluster_on_lost,
                           .failed = cluster_on_failed,
                           .merged = cluster_on_merged},
                .data = cluster,
        };
        struct fabric_options fabric = {
                .cluster = config->cluster,
                .allow_plain = config->peer_plain != 0,
                .stripe_bytes = config->stripe_bytes ? (uint32_t)config->stripe_bytes : UINT32_MAX,
                /* A silence of lost_ms ends a connection; a little longer, in case there is another way, and it is
                   lost (peer.c: later if it answers just then, within the second after lost_ms). */
                .times = {.heartbeat = config->peer_heartbeat_ms,
                          .deadline = config->peer_lost_ms,
                          .unreachable = config->peer_lost_ms + UNREACHABLE_MS},
                .callbacks = {.route = cluster_on_route,
                              .unreachable = cluster_on_unreachable,
                              .lost = cluster_on_messages_lost,
                              .cut_off = cluster_on_cut_off,
                              .violation = cluster_on_violation,
                              .area = cluster_on_area},
                .data = cluster,
        };
        int r;

        cluster_certificates(config, &peers);
        memcpy(peers.node, state_node(cluster->manager->state), sizeof(peers.node));
        r = peers_new(&peers, error, &cluster->peers);
        if (r)
                return r > 0 ? CLUSTER_E_REFUSED : r;
        if (strlen(peers_address(cluster->peers)) >= COMM_ID_ADDRESS_BYTES) {
                snprintf(error, CLUSTER_TEXT_MAX,
                         "the address %s does not fit into communicator ids; peer.advertise has at "
                         "most %u characters",
                         peers_address(cluster->peers), COMM_ID_ADDRESS_BYTES - 1);
                return CLUSTER_E_REFUSED;
        }
        memcpy(fabric.self.id, state_node(cluster->manager->state), sizeof(fabric.self.id));
        fabric.boot_epoch = peers_boot(cluster->peers);
        fabric.tls = peers_tls(cluster->peers);
        r = fabric_new(&fabric, &cluster->fabric);
        if (r) {
                snprintf(error, CLUSTER_TEXT_MAX, "fabric: %s", r < 0 ? strerror(-r) : "its options are refused");
                return r > 0 ? CLUSTER_E_REFUSED : r;
        }
        r = cluster_rails_new(cluster, error);
        if (r)
                return r;
        cluster->fabric_event = event_new(cluster->manager->base, fabric_event_fd(cluster->fabric),
                                          EV_READ | EV_PERSIST, cluster_on_fabric, cluster);
        cluster->self_event = event_new(cluster->manager->base, -1, 0, cluster_on_self, cluster);
        r = comm_turns_init(&cluster->turns, cluster->manager->base, &cluster->manager->watch);
        if (r == 0)
                r = last_words_init(&cluster->words, cluster->manager->base);
        if (r < 0 || !cluster->fabric_event || !cluster->self_event || event_add(cluster->fabric_event, NULL) < 0) {
                snprintf(error, CLUSTER_TEXT_MAX, "no memory for events");
                return -ENOMEM;
        }
        return 0;
}

int cluster_new(struct manager *manager, char error[CLUSTER_TEXT_MAX], struct cluster **ret_cluster) {
        struct cluster *cluster = calloc(1, sizeof(*cluster));
        int r;

        if (!cluster) {
                snprintf(error, CLUSTER_TEXT_MAX, "out of memory");
                return -ENOMEM;
        }
        cluster->manager = manager;
        r = cluster_start(cluster, error);
        if (r) {
                cluster_free(cluster);
                return r;
        }
        if (!peers_deaf(cluster->peers))
                log_info("listening for other nodes of cluster %s at %s", peers_cluster(cluster->peers),
                         peers_address(cluster->peers));
        *ret_cluster = cluster;
        return 0;
}

struct cluster *cluster_free(struct cluster *cluster) {
        struct cluster_node *node, *next_node;
        struct cluster_self *self, *next_self;

        if (!cluster)
                return NULL;
        comm_root_free(cluster);
        comm_turns_deinit(&cluster->turns);
        last_words_deinit(&cluster->words);
        if (cluster->fabric_event)
                event_free(cluster->fabric_event);
        if (cluster->self_event)
                event_free(cluster->self_event);
        cluster_rails_free(cluster);
        fabric_free(cluster->fabric);
        peers_free(cluster->peers);
        DL_FOREACH_SAFE(cluster->nodes, node, next_node) {
                DL_DELETE(cluster->nodes, node);
                free(node);
        }
        DL_FOREACH_SAFE(cluster->selves, self, next_self) {
                DL_DELETE(cluster->selves, self);
                free(self);
        }
        free(cluster);
        return NULL;
}
