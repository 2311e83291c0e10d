/* SPDX-License-Identifier: MIT */
/*
 * Tenants. Everything that a client holds is charged to its tenant before it is made, through tenant_charge(), so a
 * refusal has one text and is logged in one place. Which tenant a peer belongs to is decided in tenant_choose() alone:
 * so far by the user, and more ways of telling (listening socket, cgroup, gid) go there.
 */
#include "daemon/tenant.h"

#include "daemon/allowance.h"
#include "daemon/manager.h"
#include "util/clock.h"
#include "util/log.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

int tenant_new(const char *name, const uint64_t limits[CHARGE_KIND_COUNT], struct tenant **ret_tenant) {
        struct tenant *tenant;

        if (strlen(name) >= sizeof(tenant->name))
                return -EINVAL;
        tenant = calloc(1, sizeof(*tenant));
        if (!tenant)
                return -ENOMEM;
        snprintf(tenant->name, sizeof(tenant->name), "%s", name);
        tenant->weight = 1;
        tenant->class = FABRIC_NORMAL;
        tenant_set_limits(tenant, limits);
        tenant->closing.limit[CHARGE_FDS] = UINT64_MAX;
        *ret_tenant = tenant;
        return 0;
}

struct tenant *tenant_free(struct tenant *tenant) {
        if (!tenant)
                return NULL;
        for (unsigned int i = 0; i < CHARGE_KIND_COUNT; i++)
                assert(tenant->account.used[i] == 0 && tenant->closing.used[i] == 0);
        free(tenant);
        return NULL;
}

struct tenant *tenant_choose(struct manager *manager, const struct tenant_identity *identity) {
        struct tenant *tenant = identity->kept ? tenant_find(manager, identity->kept) : NULL;

        if (tenant)
                return tenant; /* as its communicators do */
        DL_FOREACH(manager->tenants, tenant) {
                if (tenant->by_uid && identity->uid >= tenant->first_uid && identity->uid <= tenant->last_uid)
                        return tenant;
        }
        return manager->tenants; /* the default one */
}

struct tenant *tenant_find(struct manager *manager, const char *name) {
        struct tenant *tenant;

        DL_FOREACH(manager->tenants, tenant) {
                if (strcmp(tenant->name, name) == 0)
                        return tenant;
        }
        return NULL;
}

void tenant_set_limits(struct tenant *tenant, const uint64_t limits[CHARGE_KIND_COUNT]) {
        memcpy(tenant->account.limit, limits, sizeof(tenant->account.limit));
}

/* It has been counted. */
static void tenant_refused(struct tenant *tenant, enum charge_kind kind, uint64_t limit, bool whole, uint64_t amount,
                           const char *text) {
        tenant->refusals[kind] = (struct tenant_refusal){.at_ns = clock_now_ns(), .limit = limit, .whole = whole};
        if (tenant->account.refused[kind] == 1)
                log_fields(LOG_LEVEL_WARNING, (const char *const[]){"TENANT", tenant->name, NULL},
                           "%s; %" PRIu64 " more asked for (further refusals are counted, not logged)", text, amount);
}

int tenant_charge(struct tenant *tenant, struct charge *charge, enum charge_kind kind, uint64_t amount, char *text,
                  size_t text_size) {
        int r = charge_take(charge, &tenant->account, kind, amount);
        bool whole = r == CHARGE_E_WHOLE;
        uint64_t limit;

        if (!r)
                return 0;
        limit = whole ? tenant->account.whole->limit[kind] : tenant->account.limit[kind];
        if (whole)
                snprintf(text, text_size, "tenant %s: all tenants together hold the %" PRIu64 " %s that there are",
                         tenant->name, limit, charge_kind_name(kind));
        else
                snprintf(text, text_size, "tenant %s: %s limit %" PRIu64 " reached", tenant->name,
                         charge_kind_name(kind), limit);
        tenant_refused(tenant, kind, limit, whole, amount, text);
        return TENANT_E_LIMIT;
}

uint64_t tenant_closing(const struct tenant *tenant) {
        return tenant->closing.used[CHARGE_FDS];
}

bool tenant_closes_slowly(const struct tenant *tenant, char *text, size_t text_size) {
        const uint64_t closing = tenant_closing(tenant), used = tenant->account.used[CHARGE_FDS],
                       limit = tenant->account.limit[CHARGE_FDS];

        if (!closing || (closing <= limit && used <= limit - closing))
                return false;
        snprintf(text, text_size,
                 "tenant %s: fds limit %" PRIu64 " reached, with %" PRIu64
                 " descriptors of its processes that take long to close",
                 tenant->name, limit, closing);
        return true;
}

void tenant_refused_slow(struct tenant *tenant, const char *text) {
        tenant->account.refused[CHARGE_FDS]++;
        tenant_refused(tenant, CHARGE_FDS, tenant->account.limit[CHARGE_FDS], false, 1, text);
}

bool tenant_takes_id(struct tenant *tenant) {
        return allowance_take(&tenant->ids_ns, TENANT_IDS, clock_now_ns());
}
