/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Some fabrics in one process, each with one area, and a stand-in for their executors: channels of slots from every
 * rank to every rank of another node, as gpu/host lays them out in spirit. What is pushed depends on ranks, number and
 * place, all of it is compared where it arrives, and then the slot is poisoned: what comes late or twice is seen.
 */
#include "fabric/fabric.h"
#include "tests/cmocka_all.h"

#define RIG_NODES 4u
#define RIG_RANKS 8u
#define RIG_RAILS 2u
#define RIG_MORE  4u
#define RIG_SLOTS 2u

/* Where the nodes' rails are. */
enum rig_where {
        RIG_LOOPBACK, /* the same addresses for all nodes, and ports that differ */
        RIG_FAKE,     /* adapters of fake_verbs.h: fake_a0 (node a, rail 0) has 127.0.1.1, fake_b0 127.0.1.2 */
        RIG_SOFT,     /* a machine of tests/vm: rxe_a0 on interface a0 has 10.77.0.1, rxe_b0 10.77.0.2 */
};

/* What fabrics take for libibverbs; NULL: itself. */
extern const struct verbs_api *rig_verbs;

struct rig_place {
        char address[16], device[8], hca[16]; /* empty: none */
};

struct rig_options {
        uint32_t n_nodes, n_rails;
        uint32_t ranks[RIG_NODES]; /* on each node */
        uint32_t slot_bytes;
        uint64_t key;
        enum fabric_class class;
        uint32_t chunks;     /* on each channel */
        uint32_t least_data; /* bytes; else any size from 0 to slot_bytes */
        uint64_t rate_bytes, window_bytes;
        uint8_t dscp[FABRIC_N_CLASSES];
        uint16_t udp_port;
        SSL_CTX *tls;
        struct fabric_times times;
        uint64_t tenant;
        uint32_t weight;          /* 0: 100 */
        uint32_t stripe_bytes;    /* of the area; 0: the fabric's */
        const char *const *rails; /* of its ranks; NULL: in turn */
        uint32_t only;            /* of the area: bits of rails; 0: all */
        enum rig_where where;
        const char *kind;                    /* of the rails; NULL: "tcp" */
        const struct fabric_peer_rail *more; /* that nodes say they have, before those that they have */
        size_t n_more;                       /* RIG_MORE at most */
};

struct rig_channel {
        uint32_t source, destination;
        uint64_t offset;           /* of its credit line; the slots follow */
        uint32_t pushed, received; /* chunks so far */
        uint64_t received_bytes;
        bool stopped;
};

struct rig_node {
        struct fabric *fabric;
        struct fabric_node id;
        uint64_t epoch;
        struct net_area *area;
        uint64_t size;
        int wake_fd;
        uint32_t unreachable, cut_off, lost, violations, routes_changed, hung;
        uint32_t areas, refused_areas; /* that rig_dispatch() has been told of; of these, with an error */
        char text[160], why[160];      /* of the last violation, of the last change of a route */
        char unreached[160];           /* of the last time that a peer was unreachable */
};

struct rig {
        struct rig_options options;
        struct rig_node nodes[RIG_NODES];
        uint32_t n_ranks, node_of[RIG_RANKS];
        struct fabric_node rank_nodes[RIG_RANKS];
        struct rig_channel channels[RIG_RANKS * RIG_RANKS];
        uint32_t n_channels;
        uint32_t sleeps, late_wakes;
};

#ifndef RIG_OVER_FAKES
#define RIG_OVER_FAKES 0
#endif
#if RIG_OVER_FAKES
/* Fixtures of a group of tests: adapters for all nodes and rails. Rigs that do not say where they are use them. */
int rig_begin(void **state);
int rig_end(void **state);
#else
#define rig_begin NULL
#define rig_end   NULL
#endif

/* Returns when the adapters know the areas. */
void rig_new(struct rig *rig, const struct rig_options *options);
void rig_free(struct rig *rig);
/* The parts of rig_new(), for tests that put something between: fabrics with rails; then who knows whom; then areas. */
void rig_start(struct rig *rig, const struct rig_options *options);
/* A fabric with rails for a node; rig_start() has done it. */
void rig_fabric(struct rig *rig, uint32_t node);
/* a tells of b: address and port of each rail may be others'. */
void rig_peer(struct rig *rig, uint32_t a, uint32_t b, const uint16_t *ports);
void rig_area(struct rig *rig, uint32_t node);
uint16_t rig_port(struct rig *rig, uint32_t node, uint32_t rail);
/* Areas of their own on the fabrics of another rig, which outlives it; the test takes them down. */
void rig_join(struct rig *rig, const struct rig_options *options, struct rig *host);
/* Its fabric had its area removed, and its peers: a new life with another boot epoch, known to all; channels begin
 * anew. */
void rig_restart_node(struct rig *rig, uint32_t node);
/* Pushes and receives what it can. True if anything happened. */
bool rig_step(struct rig *rig);
bool rig_done(const struct rig *rig);
/* Sleeps as executors do until something arrived; fails the test after `seconds`, which time_scale() makes more here
 * and below. */
void rig_wait(struct rig *rig, unsigned int seconds);
/* Until all is there; then looks for what came late. */
void rig_run(struct rig *rig, unsigned int seconds);
void rig_check_quiet(struct rig *rig);
/* Nothing breaks any more: what dead connections have left is settled, at all nodes. */
void rig_settle(struct rig *rig, unsigned int seconds);
void rig_dispatch(struct rig *rig);
uint64_t rig_random(uint64_t *state);
struct rig_place rig_place(enum rig_where where, uint32_t node, uint32_t rail);
extern const char *const rig_rail_names[RIG_RAILS];
