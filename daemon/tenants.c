/* SPDX-License-Identifier: MIT */
#include "daemon/tenants.h"

#include "daemon/manager.h"
#include "daemon/tenant.h"
#include "util/log.h"
#include "util/parse.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#define SPEC_TEXT_MAX  RAIL_NAMES_MAX
#define TENANT_OPTIONS "weight=N, class=latency|normal|bulk and rails=RAIL[/RAIL ...] behind the user"
#define UID_LAST       (UINT32_MAX - 1) /* the last one means none */

#define FDS_ROOM_MAX   UINT64_C(5000) /* with their names in 128 KiB */
#define FDS_ROOM_MIN   UINT64_C(64)
#define FDS_OWN        UINT64_C(512)
#define FDS_SHARE_MIN  UINT64_C(16) /* what limits.fds may be */
#define FDS_SHARE_MAX  UINT64_C(4096)
#define BYTES_ROOM_MIN (UINT64_C(1) << 30)

static int tenants_wrong(char why[TENANTS_WHY_MAX], const char *part, const char *right) {
        snprintf(why, TENANTS_WHY_MAX, "'%.40s' is wrong in a tenant; allowed: %s", part, right);
        return -EINVAL;
}

static bool tenant_name_right(const char *name) {
        size_t n = strlen(name);

        for (const char *c = name; *c; c++)
                if (!isalnum((unsigned char)*c) && *c != '.' && *c != '_' && *c != '-')
                        return false;
        return n >= 1 && n <= TENANT_SPEC_NAME && strcmp(name, TENANT_DEFAULT) != 0;
}

static int tenant_uids_parse(char *text, struct tenant_spec *spec, char why[TENANTS_WHY_MAX]) {
        char *last = strchr(text, '-');
        uint64_t first_uid, last_uid;

        if (last)
                *last++ = '\0';
        if (parse_u64(text, &first_uid) < 0 || first_uid > UID_LAST)
                return tenants_wrong(why, text, "the number of a user, or two with '-' between them");
        last_uid = first_uid;
        if (last && (parse_u64(last, &last_uid) < 0 || last_uid > UID_LAST || last_uid < first_uid))
                return tenants_wrong(why, last, "the number of a user that is not below the first one");
        spec->first_uid = (uid_t)first_uid;
        spec->last_uid = (uid_t)last_uid;
        return 0;
}

static int tenant_class_parse(const char *value, enum fabric_class *ret_class, char why[TENANTS_WHY_MAX]) {
        for (unsigned int class = 0; class < FABRIC_N_CLASSES; class ++)
                if (strcmp(value, fabric_class_name(class)) == 0) {
                        *ret_class = class;
                        return 0;
                }
        return tenants_wrong(why, value, "a class: latency, normal or bulk");
}

static int tenant_option_parse(char *text, struct tenant_spec *spec, char why[TENANTS_WHY_MAX]) {
        char *value = strchr(text, '=');
        uint64_t weight;

        if (value)
                *value++ = '\0';
        if (value && strcmp(text, "class") == 0)
                return tenant_class_parse(value, &spec->class, why);
        if (value && strcmp(text, "rails") == 0) {
                if (!rail_names_right(value))
                        return tenants_wrong(why, value, "names of rails with '/' between them");
                snprintf(spec->rails, sizeof(spec->rails), "%s", value);
                return 0;
        }
        if (!value || strcmp(text, "weight") != 0)
                return tenants_wrong(why, text, TENANT_OPTIONS);
        if (parse_u64(value, &weight) < 0 || weight < 1 || weight > TENANT_WEIGHT_MAX)
                return tenants_wrong(why, value, "a weight, 1 .. 1000");
        spec->weight = (uint32_t)weight;
        return 0;
}

static int tenant_spec_parse(char *text, struct tenant_spec *spec, char why[TENANTS_WHY_MAX]) {
        char *uids = strchr(text, '='), *option, *next;
        int r = 0;

        if (!uids)
                return tenants_wrong(why, text, "NAME=UID[-UID] and, if you like, " TENANT_OPTIONS);
        *uids++ = '\0';
        if (!tenant_name_right(text))
                return tenants_wrong(why, text,
                                     "a name of 1 to 31 letters, digits, '.', '_' and '-', other than default");
        snprintf(spec->name, sizeof(spec->name), "%.31s", text);
        spec->weight = 1;
        spec->class = FABRIC_NORMAL;
        next = strchr(uids, ',');
        while (next && !r) {
                option = next;
                *option++ = '\0';
                next = strchr(option, ',');
                if (next)
                        *next = '\0';
                r = tenant_option_parse(option, spec, why);
        }
        return r ? r : tenant_uids_parse(uids, spec, why);
}

static int tenant_spec_compare(const struct tenant_spec *spec, const struct tenant_spec *others, uint32_t n,
                               char why[TENANTS_WHY_MAX]) {
        for (uint32_t i = 0; i < n; i++) {
                if (strcmp(others[i].name, spec->name) == 0)
                        return tenants_wrong(why, spec->name, "a name that no other tenant has");
                if (others[i].first_uid <= spec->last_uid && spec->first_uid <= others[i].last_uid)
                        return tenants_wrong(why, spec->name, "users that are no other tenant's");
        }
        return 0;
}

int tenant_specs_parse(const char *text, struct tenant_spec specs[TENANT_SPECS_MAX], uint32_t *ret_n,
                       char why[TENANTS_WHY_MAX]) {
        struct tenant_spec all[TENANT_SPECS_MAX] = {0};
        uint32_t n = 0;

        while (*(text += strspn(text, " \t\n"))) {
                size_t length = strcspn(text, " \t\n");
                char one[SPEC_TEXT_MAX];
                int r;

                if (length >= sizeof(one))
                        return tenants_wrong(why, text, "at most 255 characters for each");
                if (n == TENANT_SPECS_MAX)
                        return tenants_wrong(why, text, "at most 64 tenants");
                snprintf(one, sizeof(one), "%.*s", (int)length, text);
                r = tenant_spec_parse(one, &all[n], why);
                if (!r)
                        r = tenant_spec_compare(&all[n], all, n, why);
                if (r)
                        return r;
                n++;
                text += length;
        }
        memcpy(specs, all, n * sizeof(all[0]));
        *ret_n = n;
        return 0;
}

/* The first one that is none of these; n 0: of the one that there is then. */
static const char *tenant_unknown_rail(const struct tenant_spec *spec, const struct rail_spec *rails, uint32_t n,
                                       char name[RAILS_NAME_MAX + 1]) {
        const char *at = spec->rails;

        while (*at) {
                size_t length = strcspn(at, "/");
                bool there = false;

                snprintf(name, RAILS_NAME_MAX + 1, "%.*s", (int)length, at);
                for (uint32_t i = 0; i < n; i++)
                        there |= strcmp(rails[i].name, name) == 0;
                if (!there && (n > 0 || strcmp(name, RAIL_ONLY) != 0))
                        return name;
                at += length + (at[length] == '/');
        }
        return NULL;
}

int tenants_check_rails(const char *text, const char *rails, char why[TENANTS_WHY_MAX]) {
        struct tenant_spec specs[TENANT_SPECS_MAX];
        char rails_why[RAILS_WHY_MAX], name[RAILS_NAME_MAX + 1];
        struct rail_spec rail_specs[RAILS_MAX];
        uint32_t n_tenants, n_rails;
        int r;

        r = tenant_specs_parse(text, specs, &n_tenants, why);
        if (!r)
                r = rail_specs_parse(rails, rail_specs, &n_rails, rails_why);
        for (uint32_t i = 0; !r && i < n_tenants; i++) {
                if (!tenant_unknown_rail(&specs[i], rail_specs, n_rails, name))
                        continue;
                snprintf(why, TENANTS_WHY_MAX, "tenant %s may take rail %s, which there is not", specs[i].name, name);
                r = -EINVAL;
        }
        return r;
}

int tenants_make(struct manager *manager, const char *text, const uint64_t limits[CHARGE_KIND_COUNT]) {
        struct tenant_spec specs[TENANT_SPECS_MAX];
        char why[TENANTS_WHY_MAX];
        struct tenant *tenant;
        uint32_t n;
        int r;

        r = tenant_specs_parse(text, specs, &n, why);
        if (!r)
                r = tenant_new(TENANT_DEFAULT, limits, &tenant);
        if (r)
                return r;
        tenant->account.whole = &manager->whole;
        DL_APPEND(manager->tenants, tenant);
        for (uint32_t i = 0; i < n; i++) {
                r = tenant_new(specs[i].name, limits, &tenant);
                if (r)
                        return r;
                tenant->account.whole = &manager->whole;
                tenant->by_uid = true;
                tenant->first_uid = specs[i].first_uid;
                tenant->last_uid = specs[i].last_uid;
                tenant->weight = specs[i].weight;
                tenant->class = specs[i].class;
                memcpy(tenant->rails, specs[i].rails, sizeof(tenant->rails));
                DL_APPEND(manager->tenants, tenant);
        }
        tenants_set_limits(manager, limits);
        return 0;
}

uint64_t tenants_room_fds(void) {
        struct rlimit limit;
        uint64_t room = FDS_ROOM_MAX;

        /* Who keeps descriptors for the next railmuxd has as many, and takes each once more while it hands it over; and
         * there are other nodes, executors and operators. (The limit is raised to what is allowed.) */
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max / 2 < FDS_ROOM_MAX + FDS_OWN)
                room = limit.rlim_max / 2 > 2 * FDS_OWN ? limit.rlim_max / 2 - FDS_OWN : limit.rlim_max / 4;
        if (room < FDS_ROOM_MIN)
                room = FDS_ROOM_MIN;
        return room;
}

uint64_t tenants_room_bytes(void) {
        long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 4 * 3 : 0;

        return bytes > BYTES_ROOM_MIN ? bytes : BYTES_ROOM_MIN;
}

uint64_t tenants_share_fds(uint32_t n_tenants) {
        uint64_t share = tenants_room_fds() / n_tenants;

        return share < FDS_SHARE_MIN ? FDS_SHARE_MIN : share < FDS_SHARE_MAX ? share : FDS_SHARE_MAX;
}

uint64_t tenants_share_bytes(uint32_t n_tenants) {
        uint64_t share = tenants_room_bytes() / n_tenants;

        return share < BYTES_ROOM_MIN ? BYTES_ROOM_MIN : share;
}

static void tenants_limit(struct manager *manager, const uint64_t limits[CHARGE_KIND_COUNT]) {
        struct tenant *tenant;

        DL_FOREACH(manager->tenants, tenant)
                tenant_set_limits(tenant, limits);
        for (unsigned int i = 0; i < CHARGE_KIND_COUNT; i++)
                manager->whole.limit[i] = UINT64_MAX;
}

void tenants_set_unlimited(struct manager *manager) {
        uint64_t limits[CHARGE_KIND_COUNT];

        for (unsigned int i = 0; i < CHARGE_KIND_COUNT; i++)
                limits[i] = UINT64_MAX;
        tenants_limit(manager, limits);
}

/* Those that are configured, the default one included. */
static uint32_t tenants_count(const struct manager *manager) {
        const struct tenant *tenant;
        uint32_t n = 0;

        DL_FOREACH(manager->tenants, tenant)
                n += tenant->by_uid || tenant == manager->tenants;
        return n;
}

void tenants_set_limits(struct manager *manager, const uint64_t configured[CHARGE_KIND_COUNT]) {
        uint64_t bytes = tenants_room_bytes(), limits[CHARGE_KIND_COUNT];

        memcpy(limits, configured, sizeof(limits));
        if (!limits[CHARGE_FDS])
                limits[CHARGE_FDS] = tenants_share_fds(tenants_count(manager));
        if (!limits[CHARGE_BYTES])
                limits[CHARGE_BYTES] = tenants_share_bytes(tenants_count(manager));
        tenants_limit(manager, limits);
        manager->whole.limit[CHARGE_FDS] = tenants_room_fds();
        /* Who configures more bytes than that knows why. */
        manager->whole.limit[CHARGE_BYTES] = bytes > limits[CHARGE_BYTES] ? bytes : limits[CHARGE_BYTES];
}

void tenants_check_room(struct manager *manager) {
        static const enum charge_kind kinds[] = {CHARGE_FDS, CHARGE_BYTES};
        const uint64_t n = tenants_count(manager);

        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                const uint64_t limit = manager->tenants->account.limit[kinds[i]], room = manager->whole.limit[kinds[i]];

                if (limit > room / n)
                        log_warning("limits.%s: each of %" PRIu64 " tenants may hold %" PRIu64
                                    ", but there are %" PRIu64
                                    " for all of them; so one may get none below its own limit",
                                    charge_kind_name(kinds[i]), n, limit, room);
        }
}

int tenants_keep(struct manager *manager, const char *name, const uint64_t limits[CHARGE_KIND_COUNT]) {
        struct tenant *tenant;
        int r;

        if (tenant_find(manager, name))
                return 0;
        r = tenant_new(name, limits, &tenant);
        if (r < 0)
                return r;
        tenant->account.whole = &manager->whole;
        DL_APPEND(manager->tenants, tenant);
        log_fields(LOG_LEVEL_NOTICE, (const char *const[]){"TENANT", name, NULL},
                   "tenant %s is not configured any more; the processes that have it keep it until they end", name);
        return 0;
}
