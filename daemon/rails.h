/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Rails as the configuration and the command line name them:
 *
 *   NAME=ADDRESS[,port=N][,advertise=ADDRESS:PORT][,device=IF][,rate=BYTES][,window=BYTES][,dscp=N[/N/N]]
 *               [,kind=tcp|verbs][,hca=DEVICE[:PORT]][,timeout=N][,retries=N][,udp_port=N]
 *
 * Rails of the same name on different nodes reach each other. ADDRESS is numeric and this node's; advertise is where
 * others reach it, if that is not where it listens (behind a translator of addresses), and needs a port; device binds
 * the rail's connections to an interface; rate (bytes per second) and window (bytes under way at a time) bound it, with
 * K, M and G (of 1024) behind the number; dscp (0 .. 63) marks its packets, all of them or those of class latency,
 * normal and bulk. Rails of kind verbs carry data over RDMA and agree on that over TCP between the same addresses; what
 * only they have is told in fabric/fabric.h.
 */
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

#define RAILS_MAX      16u
#define RAILS_WHY_MAX  240u
#define RAILS_NAME_MAX 31u
#define RAIL_NAMES_MAX 256u /* a list of their names with '/' between them */

struct rail_spec {
        char name[RAILS_NAME_MAX + 1];
        char address[64];
        char advertise[64];                /* "": address */
        uint16_t advertise_port;           /* not 0 then */
        char device[16];                   /* "": any */
        uint16_t port;                     /* 0: any */
        uint64_t rate_bytes, window_bytes; /* 0: no bound; the fabric's */
        uint8_t dscp[FABRIC_N_CLASSES];
        bool verbs;
        char hca[72];             /* "": the adapter that has the address */
        uint8_t timeout, retries; /* 0: the fabric's */
        uint16_t udp_port;        /* 0: the adapter chooses */
};

/* One of them. 0, or -EINVAL with a sentence that says what is wrong and what would be right. */
int rail_spec_parse(const char *text, struct rail_spec *ret_spec, char why[RAILS_WHY_MAX]);
/* Is the name one of a list with '/' between them? */
bool rail_names_have(const char *names, const char *name);
/* Are all of them names that rails could have? */
bool rail_names_right(const char *names);
/* The rail that there is where none is named. */
#define RAIL_ONLY "tcp0"
/* Several with blanks between them, with different names. */
int rail_specs_parse(const char *text, struct rail_spec specs[RAILS_MAX], uint32_t *ret_n, char why[RAILS_WHY_MAX]);
