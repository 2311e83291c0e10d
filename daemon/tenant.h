/* SPDX-License-Identifier: MIT */
#pragma once
/* Who is accounted: a name, an account of charges and the limits on them. Owned by the manager (loop thread). */
#include "daemon/rails.h"
#include "fabric/fabric.h"
#include "util/charge.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct manager;

#define TENANT_NAME_MAX 64u
#define TENANT_DEFAULT  "default"

enum {
        _TENANT_E_SUCCESS,
        TENANT_E_LIMIT, /* the charge would exceed a limit; nothing was charged */
};

/* What is known of a peer when its tenant is chosen. */
struct tenant_identity {
        const char *listener; /* name of the listening socket it came in through */
        const char *kept;     /* tenant that it had with a predecessor, and keeps; NULL: none */
        uid_t uid;
        gid_t gid;
        pid_t pid;
};

struct tenant_refusal {
        uint64_t at_ns; /* of the last one, 0: none so far */
        uint64_t limit; /* that refused */
        bool whole;     /* of all tenants together */
};

/* Of control_notes.c, while it makes notes. */
struct tenant_notes {
        unsigned int n, more;
        size_t bytes;
};

struct tenant {
        struct tenant *next, *prev;

        char name[TENANT_NAME_MAX];
        bool by_uid; /* processes of these users are its */
        uid_t first_uid, last_uid;

        uint32_t weight;            /* of rails that it shares with others */
        enum fabric_class class;    /* of what its communicators send from here */
        char rails[RAIL_NAMES_MAX]; /* that these may take, with '/' between them; "": all */
        struct charge_account account;
        struct charge_account closing; /* descriptors that closer.c has for it; without a limit, see tenant_closing() */
        uint64_t ids_ns;               /* of tenant_takes_id, see allowance.h */
        uint64_t look_at;              /* session_life_look(): not before the look of that number */
        struct tenant_refusal refusals[CHARGE_KIND_COUNT];
        struct tenant_notes notes;
};

int tenant_new(const char *name, const uint64_t limits[CHARGE_KIND_COUNT], struct tenant **ret_tenant);
struct tenant *tenant_free(struct tenant *tenant); /* asserts that nothing is charged any more */

/* The one place where a peer is mapped to its tenant. Never NULL. */
struct tenant *tenant_choose(struct manager *manager, const struct tenant_identity *identity);
/* The tenant of that name or NULL. */
struct tenant *tenant_find(struct manager *manager, const char *name);

void tenant_set_limits(struct tenant *tenant, const uint64_t limits[CHARGE_KIND_COUNT]);
/* 0, or TENANT_E_LIMIT and a sentence for the client in text. The first refusal of a kind is logged here. */
int tenant_charge(struct tenant *tenant, struct charge *charge, enum charge_kind kind, uint64_t amount, char *text,
                  size_t text_size);
/* Descriptors that its processes sent, or that sockets of theirs may carry, and that are not closed yet. */
uint64_t tenant_closing(const struct tenant *tenant);
/* Would it hold more descriptors than it may with those? Text if so. */
bool tenant_closes_slowly(const struct tenant *tenant, char *text, size_t text_size);
/* It has been refused something for that: counted, and logged once. */
void tenant_refused_slow(struct tenant *tenant, const char *text);
/* Takes one of the ids that it may ask other nodes for, which have room for so many of all tenants of this one
 * (CLUSTER_ASKS). false: it has asked for too many in a short time. */
bool tenant_takes_id(struct tenant *tenant);
#define TENANT_IDS 256u /* at once, and in each second after that */
