/* SPDX-License-Identifier: MIT */
/*
 * From railmuxd's choices to the kernels' tables
 *
 * railmuxd says which algorithm each size class of an operation uses. Here the plan is built and verified (nothing runs
 * that the verifier refuses), and each class is given a transport: packets, whose flags travel with the data, up to
 * some size, bulk chunks above. A class that crosses that size becomes two. All executors do the same with the same
 * numbers, which they must: both ends of a channel have to agree on the transport.
 *
 * Plans and tables are shared by all communicators that need the same, and stay until their place is needed.
 */
#include "gpu/hip/choices.h"

#include <errno.h>
#include <string.h>

#include "gpu/hip/error.h"
#include "plan/verify.h"
#include "ring/line.h"

/*
 * Packets double the bytes on the wire and in the loads of the receiver, and save a fence and a flag: some microseconds
 * for each hop, whatever the size. What has a way of its own in the kernels (gpu/device/quick.h) does best with them at
 * all sizes that were measured, on four H200s up to 64 MB; so does whatever makes two hops. Everything else moves whole
 * blocks between each two ranks by code that interprets the plan, and bulk chunks mean fewer steps of that.
 */
#define PACKET_BYTES_BLOCK (UINT64_C(128) << 10)

/*
 * Over several nodes none of that holds. There is no other way than the interpreter; a fence is due for packets too,
 * since the proxy is told of them; a word says that they have come, as with bulk chunks; and their twice as many bytes
 * go over the bus, on both sides. What is left for packets is that they need no fence on arrival, which is worth
 * something as long as there are few of them: a microsecond is about 25 KB on the bus. (Not measured.)
 */
#define PACKET_BYTES_FAR (UINT64_C(32) << 10)

#define DEVICE_PHASES 4u /* that a task has cursors for (gpu/device/task.h) */

static const uint32_t chunk_bytes[STAGING_TRANSPORTS] = {
        [STAGING_PACKET] = STAGING_PACKET_CHUNK, [STAGING_BULK] = STAGING_BULK_CHUNK};

/* ---- plans ------------------------------------------------------------------------------------------------------- */
static bool plan_runs_on_device(const struct plan *plan) {
        if (plan->partials || plan->n_phases > DEVICE_PHASES || plan->n_regions > STAGING_REGIONS)
                return false;
        for (uint32_t p = 0; p < plan->n_phases; p++)
                switch (plan->phases[p].kind) {
                case PLAN_PUSH:
                case PLAN_REDUCE:
                case PLAN_COPY:
                case PLAN_SIGNAL:
                case PLAN_WAIT:
                        break;
                default:
                        return false;
                }
        return true;
}

static int plan_verified(struct choices_plan *entry, const struct plan *plan, uint32_t transport, char *error) {
        struct plan_geometry geometry = {.part_bytes = chunk_bytes[transport], .slots = STAGING_SLOTS};
        struct plan_verdict verdict = {0};
        int r;

        if (entry->verified[transport])
                return 0;
        r = plan_verify_all(plan, &geometry, NULL, 0, &verdict);
        if (r < 0)
                return error_set(r, error, "verifying a plan: out of memory");
        if (r)
                return error_set(-EINVAL, error, "plan %s of %s for %u ranks is refused: %s",
                                 plan_algorithm_name(plan->algorithm), plan_operation_name(plan->operation),
                                 plan->n_ranks, verdict.text);
        entry->verified[transport] = true;
        return 0;
}

/* The entry of a plan that is there, or an unused one; 0 if there is neither. */
static uint32_t plan_entry(const struct choices *choices, const struct plan *plan) {
        uint32_t fresh = 0, idle = 0;

        for (uint32_t i = TABLE_PLANS - 1; i > 0; i--) {
                const struct choices_plan *entry = &choices->plans[i];

                if (entry->operation == plan->operation && entry->algorithm == plan->algorithm &&
                    entry->n_ranks == plan->n_ranks)
                        return i;
                if (!entry->operation)
                        fresh = i;
                else if (!entry->references)
                        idle = i;
        }
        return fresh ? fresh : idle;
}

static int plan_take(struct choices *choices, struct shadow *shadow, const struct plan *plan, uint32_t transport,
                     uint32_t *ret_index, char *error) {
        uint32_t index = plan_entry(choices, plan);
        struct choices_plan *entry = &choices->plans[index];
        int r;

        if (!index)
                return error_set(-ENOSPC, error, "more than %u plans are in use", TABLE_PLANS - 1);
        if (entry->operation != plan->operation || entry->algorithm != plan->algorithm ||
            entry->n_ranks != plan->n_ranks) {
                *entry = (struct choices_plan){0};
                r = plan_verified(entry, plan, transport, error);
                if (!r)
                        r = shadow_plan_set(shadow, index, plan);
                if (r) {
                        *entry = (struct choices_plan){0};
                        return r;
                }
                entry->operation = plan->operation;
                entry->algorithm = plan->algorithm;
                entry->n_ranks = plan->n_ranks;
        }
        r = plan_verified(entry, plan, transport, error);
        if (r)
                return r;
        entry->references++;
        *ret_index = index;
        return 0;
}

static void plans_drop(struct choices *choices, const struct table_choices *table) {
        for (uint32_t o = 0; o < TABLE_OPERATIONS; o++)
                for (uint32_t i = 0; i < TABLE_CHOICES; i++)
                        if (table->choice[o][i].plan)
                                choices->plans[table->choice[o][i].plan].references--;
}

/* Is a reduced chunk sent on? Kernels count on its being packets: there are no bulk chunks in a second region, and of
 * bulk chunks to other nodes only PUSH says how long they are. */
static bool plan_forwards(const struct plan *plan) {
        bool forwards = plan->n_regions > 1;

        for (uint32_t p = 0; p < plan->n_phases; p++)
                forwards = forwards || plan->phases[p].forward;
        return forwards;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */
static uint64_t packet_bytes(const struct plan *plan, bool far) {
        const uint32_t n = plan->n_ranks;

        if (plan_forwards(plan))
                return UINT64_MAX;
        if (far)
                return PACKET_BYTES_FAR;
        if ((n == 2 || n == 4 || n == 8) &&
            (plan->operation == RING_OP_ALL_REDUCE || plan->operation == RING_OP_REDUCE_SCATTER ||
             plan->operation == RING_OP_ALL_GATHER || plan->operation == RING_OP_ALL_TO_ALL))
                return UINT64_MAX;
        return PACKET_BYTES_BLOCK;
}

static int class_add(struct choices *choices, struct shadow *shadow, const struct plan *plan, uint64_t max_bytes,
                     uint32_t transport, struct table_choices *table, char *error) {
        struct table_choice *classes = table->choice[plan->operation];
        uint32_t n = 0, index;
        int r;

        while (n < TABLE_CHOICES && classes[n].plan)
                n++;
        if (n == TABLE_CHOICES)
                return error_set(-ENOSPC, error, "%s has more than %u size classes",
                                 plan_operation_name(plan->operation), TABLE_CHOICES);
        r = plan_take(choices, shadow, plan, transport, &index, error);
        if (!r)
                classes[n] = (struct table_choice){.max_bytes = max_bytes, .plan = index, .transport = transport};
        return r;
}

/* limit: of packets; above: what the class before covers; the classes of an operation ascend. */
static int class_split(struct choices *choices, struct shadow *shadow, const struct plan *plan, uint64_t limit,
                       uint64_t above, bool first, uint64_t max_bytes, struct table_choices *table, char *error) {
        int r = 0;

        if (first || above < limit)
                r = class_add(choices, shadow, plan, max_bytes < limit ? max_bytes : limit, STAGING_PACKET, table,
                              error);
        if (!r && max_bytes > limit)
                r = class_add(choices, shadow, plan, max_bytes, STAGING_BULK, table, error);
        return r;
}

static int table_build(struct choices *choices, struct shadow *shadow, uint32_t n_ranks, bool far,
                       const struct plan_choice *wanted, uint32_t n_wanted, struct table_choices *table, char *error) {
        uint64_t above[TABLE_OPERATIONS] = {0};
        bool seen[TABLE_OPERATIONS] = {false};
        int r = 0;

        for (uint32_t i = 0; !r && i < n_wanted; i++) {
                uint32_t operation = wanted[i].operation;
                struct plan plan;

                if (operation >= TABLE_OPERATIONS || (seen[operation] && wanted[i].max_bytes <= above[operation]))
                        return error_set(-EINVAL, error, "choice %u is out of order or of no operation", i);
                if (plan_build(operation, wanted[i].algorithm, n_ranks, &plan) || !plan_runs_on_device(&plan))
                        continue; /* the class above serves these sizes, or nobody does */
                r = class_split(choices, shadow, &plan, packet_bytes(&plan, far), above[operation], !seen[operation],
                                wanted[i].max_bytes, table, error);
                above[operation] = wanted[i].max_bytes;
                seen[operation] = true;
        }
        return r;
}

int choices_take(struct choices *choices, struct shadow *shadow, uint32_t n_ranks, bool far,
                 const struct plan_choice *wanted, uint32_t n_wanted, uint32_t *ret_index, char *error) {
        struct table_choices table;
        uint32_t unused = CHOICES_TABLES;
        int r;

        memset(&table, 0, sizeof(table));
        r = table_build(choices, shadow, n_ranks, far, wanted, n_wanted, &table, error);
        for (uint32_t i = 0; !r && i < CHOICES_TABLES; i++) {
                if (!choices->references[i]) {
                        unused = i;
                } else if (memcmp(&shadow->table->choices[i], &table, sizeof(table)) == 0) {
                        plans_drop(choices, &table);
                        choices->references[i]++;
                        *ret_index = i;
                        return 0;
                }
        }
        if (!r && unused == CHOICES_TABLES)
                r = error_set(-ENOSPC, error, "communicators with more than %zu different sets of choices",
                              CHOICES_TABLES);
        if (!r)
                r = shadow_choices_set(shadow, unused, &table);
        if (r) {
                plans_drop(choices, &table);
                return r;
        }
        choices->references[unused] = 1;
        *ret_index = unused;
        return 0;
}

void choices_drop(struct choices *choices, const struct shadow *shadow, uint32_t index) {
        if (--choices->references[index] == 0)
                plans_drop(choices, &shadow->table->choices[index]);
}
