/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * Tenants as the configuration names them:
 *
 *   NAME=UID[-UID][,weight=N][,class=latency|normal|bulk][,rails=RAIL[/RAIL ...]]
 *
 * Processes of these users, the last one included, are the tenant's. weight (1 .. 1000, default 1) is its share of
 * rails that it uses together with others. class (default normal) is that of what its communicators send from this
 * node, whatever it is on others; rails are those that this may take (default: all). Users that are nobody's are the
 * default tenant's, which has what is default.
 *
 * A process has its tenant for life. Other tenants are for processes that come after the start of a railmuxd that they
 * are configured for.
 */
#include <stdint.h>
#include <sys/types.h>

#include "daemon/rails.h"
#include "fabric/fabric.h"
#include "util/charge.h"

struct manager;

#define TENANT_SPECS_MAX  64u
#define TENANTS_WHY_MAX   240u
#define TENANT_SPEC_NAME  31u
#define TENANT_WEIGHT_MAX 1000u /* what the fabric takes */

struct tenant_spec {
        char name[TENANT_SPEC_NAME + 1];
        uid_t first_uid, last_uid;
        uint32_t weight;
        enum fabric_class class;
        char rails[RAIL_NAMES_MAX]; /* "": all */
};

/* Several with blanks between them, with different names and users. 0, or -EINVAL with a sentence that says what is
 * wrong and what would be right; nothing is written then. */
int tenant_specs_parse(const char *text, struct tenant_spec specs[TENANT_SPECS_MAX], uint32_t *ret_n,
                       char why[TENANTS_WHY_MAX]);
/* Are there the rails that they name? rails: as peer.rails says. 0, or -EINVAL with a sentence. Both texts have been
 * parsed before. */
int tenants_check_rails(const char *text, const char *rails, char why[TENANTS_WHY_MAX]);
/* Makes the manager's tenants, the default one first. The text has been parsed before. 0 or -errno; what was made is in
 * the list. */
int tenants_make(struct manager *manager, const char *text, const uint64_t limits[CHARGE_KIND_COUNT]);
/* The descriptors and bytes that all tenants together may hold here: what a successor can be handed, by names in one
 * environment variable, within half of this process's limit of open files; three quarters of the machine's memory. */
uint64_t tenants_room_fds(void);
uint64_t tenants_room_bytes(void);
/* What each of so many tenants may hold, where nothing is configured. */
uint64_t tenants_share_fds(uint32_t n_tenants);
uint64_t tenants_share_bytes(uint32_t n_tenants);
/* Gives all tenants these limits (fds, bytes: 0 for a share among those that are configured), and the whole of them
 * what there is room for. */
void tenants_set_limits(struct manager *manager, const uint64_t configured[CHARGE_KIND_COUNT]);
/* While what a predecessor left is taken over: nothing is refused. */
void tenants_set_unlimited(struct manager *manager);
/* Says in the log if tenants may hold more, each and together, than there is. */
void tenants_check_room(struct manager *manager);
/* Makes one that is configured no more, if there is none of that name: processes that a predecessor of this daemon
 * served have it, and keep it until they end. No new process gets it; it has what is default. 0 or -ENOMEM. */
int tenants_keep(struct manager *manager, const char *name, const uint64_t limits[CHARGE_KIND_COUNT]);
