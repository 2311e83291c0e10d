/* SPDX-License-Identifier: MIT */
/*
 * From railmuxd's choices to the kernels' tables
 *
 * railmuxd says which algorithm each size class of an operation uses. Here the plan is built and verified (nothing runs
 * that the verifier refuses), and each class is given a transport: packets, whose flags travel with the data, up to
 * some size, bulk chunks above. A class that crosses that size becomes two. All executors do the same with the same
 * numbers, which they must: both ends of a channel have to agree on the transport.
 *
 * Hierarchical plans become programs for the ranks on this GPU (programs.c), which lie in one array of the table, those
 * of a plan in a row. They go by packets at all sizes.
 *
 * Plans and tables are shared by all communicators that need the same, and stay until their place is needed.
 */
#include "gpu/hip/choices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/hip/error.h"
#include "gpu/hip/programs.h"
#include "plan/nodes.h"
#include "ring/line.h"

/*
 * Packets double the bytes on the wire and in the loads of the receiver, and save a fence and a flag: some microseconds
 * for each hop, whatever the size. What has a way of its own in the kernels (gpu/device/quick.h) does best with them at
 * all sizes that were measured, on four H200s up to 64 MB; so does whatever makes two hops. Everything else moves whole
 * blocks between each two ranks by code that interprets the plan, and bulk chunks mean fewer steps of that.
 */
#define PACKET_BYTES_BLOCK (UINT64_C(128) << 10)

/*
 * What has a root has its own way too (gpu/device/quick_root.h), but there the root's links carry all of it for each of
 * the others, and packets twice: at some 300 GB/s that costs what a fence and a flag do, about 5 us, when the others
 * have as much as this together.
 */
#define PACKET_BYTES_ROOT (UINT64_C(1536) << 10)

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
static bool plan_passes(const struct plan *plan) {
        return plan->phases[0].kind == PLAN_PASS;
}

static bool plan_runs_on_device(const struct plan *plan, uint64_t here) {
        if (plan_passes(plan))
                return programs_size(plan, here) > 0;
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

/* A channel of kernels between nodes has more slots than others (gpu/device/wire.h): nobody gets stuck with more. */
static struct plans_shape plan_shape(const struct plan *plan, uint32_t transport) {
        return (struct plans_shape){.operation = plan->operation,
                                    .algorithm = plan->algorithm,
                                    .n_ranks = plan->n_ranks,
                                    .geometry = {.part_bytes = chunk_bytes[transport], .slots = STAGING_SLOTS},
                                    .nodes = plan->nodes,
                                    .alike = plan_passes(plan)};
}

static int plan_verified(struct choices *choices, struct choices_plan *entry, const struct plan *plan,
                         uint32_t transport, char *error) {
        const struct plans_shape shape = plan_shape(plan, transport);
        struct plan_verdict verdict = {0};
        const struct plan *verified;
        int r;

        if (entry->verified[transport])
                return 0;
        r = plans_get(&choices->verified, &shape, &verified, &verdict);
        if (r < 0)
                return error_set(r, error, "verifying a plan: out of memory");
        if (r)
                return error_set(-EINVAL, error, "plan %s of %s for %u ranks is refused: %s",
                                 plan_algorithm_name(plan->algorithm), plan_operation_name(plan->operation),
                                 plan->n_ranks, verdict.text);
        plans_put(&choices->verified, verified); /* that it is right is all that is needed of it */
        entry->verified[transport] = true;
        return 0;
}

/* Is the entry the plan's? Of those with programs also: for these ranks. */
static bool plan_is(const struct choices_plan *entry, const struct plan *plan, uint64_t here) {
        if (entry->operation != plan->operation || entry->algorithm != plan->algorithm ||
            entry->n_ranks != plan->n_ranks)
                return false;
        return !plan_passes(plan) ||
               (entry->here == here && memcmp(entry->node, plan->nodes->node, plan->n_ranks) == 0);
}

/* The entry of a plan that is there, or an unused one; 0 if there is neither. */
static uint32_t plan_entry(const struct choices *choices, const struct plan *plan, uint64_t here) {
        uint32_t fresh = 0, idle = 0;

        for (uint32_t i = TABLE_PLANS - 1; i > 0; i--) {
                const struct choices_plan *entry = &choices->plans[i];

                if (plan_is(entry, plan, here))
                        return i;
                if (!entry->operation)
                        fresh = i;
                else if (!entry->references)
                        idle = i;
        }
        return fresh ? fresh : idle;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */
/* Where there are so many entries that no plan has; 0: nowhere. */
static uint32_t programs_place(const struct choices *choices, uint32_t n) {
        uint32_t at = 1;

        for (uint32_t i = 0; i < TABLE_PLANS && at + n <= TABLE_PROGRAMS; i++) {
                const struct choices_plan *entry = &choices->plans[i];

                if (entry->n_entries && entry->first < at + n && at < entry->first + entry->n_entries) {
                        at = entry->first + entry->n_entries;
                        i = UINT32_MAX; /* from the beginning */
                }
        }
        return at + n <= TABLE_PROGRAMS ? at : 0;
}

/* Plans that nobody uses any more give up theirs. */
static void programs_sweep(struct choices *choices) {
        for (uint32_t i = 0; i < TABLE_PLANS; i++)
                if (choices->plans[i].n_entries && !choices->plans[i].references)
                        choices->plans[i] = (struct choices_plan){0};
}

static int programs_set(struct choices *choices, struct shadow *shadow, uint32_t index, const struct plan *plan,
                        uint64_t here, char *error) {
        struct choices_plan *entry = &choices->plans[index];
        const uint32_t n = programs_size(plan, here);
        union program_entry *entries;
        struct program_row row;
        uint32_t first;
        int r;

        first = programs_place(choices, n);
        if (!first) {
                programs_sweep(choices);
                first = programs_place(choices, n);
        }
        if (!first)
                return error_set(-ENOSPC, error, "plans over nodes take more than %u steps", TABLE_PROGRAMS - 1);
        entries = calloc(n, sizeof(*entries));
        if (!entries)
                return error_set(-ENOMEM, error, "out of memory");
        programs_fill(plan, here, first, entries, &row);
        r = shadow_programs_set(shadow, index, &row, entries, n);
        free(entries);
        if (r)
                return r;
        entry->here = here;
        entry->first = first;
        entry->n_entries = n;
        memcpy(entry->node, plan->nodes->node, plan->n_ranks);
        return 0;
}

static int plan_set(struct choices *choices, struct shadow *shadow, uint32_t index, const struct plan *plan,
                    uint64_t here, char *error) {
        struct plan alone = *plan;

        alone.nodes = NULL; /* kernels have no use for it */
        if (plan_passes(plan)) {
                int r = programs_set(choices, shadow, index, plan, here, error);

                return r ? r : shadow_plan_set(shadow, index, &alone);
        }
        if (shadow->table->rows[index].first) {
                int r = shadow_programs_set(shadow, index, NULL, NULL, 0);

                if (r)
                        return r;
        }
        return shadow_plan_set(shadow, index, &alone);
}

static int plan_take(struct choices *choices, struct shadow *shadow, const struct plan *plan, uint64_t here,
                     uint32_t transport, uint32_t *ret_index, char *error) {
        uint32_t index = plan_entry(choices, plan, here);
        struct choices_plan *entry = &choices->plans[index];
        int r;

        if (!index)
                return error_set(-ENOSPC, error, "more than %u plans are in use", TABLE_PLANS - 1);
        if (!plan_is(entry, plan, here)) {
                *entry = (struct choices_plan){0};
                r = plan_verified(choices, entry, plan, transport, error);
                if (!r)
                        r = plan_set(choices, shadow, index, plan, here, error);
                if (r) {
                        *entry = (struct choices_plan){0};
                        return r;
                }
                entry->operation = plan->operation;
                entry->algorithm = plan->algorithm;
                entry->n_ranks = plan->n_ranks;
        }
        r = plan_verified(choices, entry, plan, transport, error);
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
        if ((n == 2 || n == 4 || n == 8) && plan->algorithm == PLAN_DIRECT &&
            (plan->operation == RING_OP_BROADCAST || plan->operation == RING_OP_REDUCE))
                return PACKET_BYTES_ROOT / (n - 1);
        return PACKET_BYTES_BLOCK;
}

static int class_add(struct choices *choices, struct shadow *shadow, const struct plan *plan, uint64_t here,
                     uint64_t max_bytes, uint32_t transport, struct table_choices *table, char *error) {
        struct table_choice *classes = table->choice[plan->operation];
        uint32_t n = 0, index = 0;
        int r;

        while (n < TABLE_CHOICES && classes[n].plan)
                n++;
        if (n == TABLE_CHOICES)
                return error_set(-ENOSPC, error, "%s has more than %u size classes",
                                 plan_operation_name(plan->operation), TABLE_CHOICES);
        r = plan_take(choices, shadow, plan, here, transport, &index, error);
        if (!r)
                classes[n] = (struct table_choice){.max_bytes = max_bytes, .plan = index, .transport = transport};
        return r;
}

/* The classes of an operation ascend: what those before cover. */
struct covered {
        uint64_t above[TABLE_OPERATIONS];
        bool seen[TABLE_OPERATIONS];
};

/* What is in order about a choice, of those before it: -EINVAL. */
static int covered_check(const struct covered *covered, const struct plan_choice *wanted, uint32_t i, char *error) {
        const uint32_t operation = wanted[i].operation;

        if (operation < TABLE_OPERATIONS &&
            (!covered->seen[operation] || wanted[i].max_bytes > covered->above[operation]))
                return 0;
        return error_set(-EINVAL, error, "choice %u is out of order or of no operation", i);
}

/* The transports that the class has, a bit each, and the largest of each. It is covered afterwards. */
static uint32_t covered_split(struct covered *covered, const struct plan *plan, bool far, uint64_t max_bytes,
                              uint64_t ret_bytes[STAGING_TRANSPORTS]) {
        const uint64_t limit = packet_bytes(plan, far);
        const bool packets = !covered->seen[plan->operation] || covered->above[plan->operation] < limit;

        ret_bytes[STAGING_PACKET] = max_bytes < limit ? max_bytes : limit;
        ret_bytes[STAGING_BULK] = max_bytes;
        covered->above[plan->operation] = max_bytes;
        covered->seen[plan->operation] = true;
        return (uint32_t)packets << STAGING_PACKET | (uint32_t)(max_bytes > limit) << STAGING_BULK;
}

static bool algorithm_staged(uint32_t algorithm) {
        return algorithm == PLAN_HIERARCHICAL_STAGED || algorithm == PLAN_HIERARCHICAL_STAGED_SCATTER;
}

static int plan_make(const struct choices_where *where, const struct plan_choice *wanted, struct plan *ret_plan) {
        return algorithm_staged(wanted->algorithm) && where->nodes
                       ? plan_build_nodes(wanted->operation, wanted->algorithm, where->n_ranks, where->nodes, ret_plan)
                       : plan_build(wanted->operation, wanted->algorithm, where->n_ranks, ret_plan);
}

/* What railmuxd has chosen for kernels over nodes they must all be able to run: another plan in its place, here only,
 * would be no plan. */
static int plan_missing(const struct choices_where *where, const struct plan_choice *wanted, char *error) {
        if (!algorithm_staged(wanted->algorithm))
                return 0; /* the class above serves these sizes, or nobody does */
        return error_set(-EINVAL, error, "%s of %s is no plan for %u ranks on %u nodes",
                         plan_algorithm_name(wanted->algorithm), plan_operation_name(wanted->operation), where->n_ranks,
                         where->nodes ? where->nodes->n_nodes : 1);
}

static int table_build(struct choices *choices, struct shadow *shadow, const struct choices_where *where,
                       const struct plan_choice *wanted, uint32_t n_wanted, struct table_choices *table, char *error) {
        struct covered covered = {0};
        int r = 0;

        for (uint32_t i = 0; !r && i < n_wanted; i++) {
                uint64_t bytes[STAGING_TRANSPORTS];
                uint32_t transports;
                struct plan plan;

                r = covered_check(&covered, wanted, i, error);
                if (r)
                        return r;
                if (plan_make(where, &wanted[i], &plan) || !plan_runs_on_device(&plan, where->here)) {
                        r = plan_missing(where, &wanted[i], error);
                        continue;
                }
                transports = covered_split(&covered, &plan, where->nodes != NULL, wanted[i].max_bytes, bytes);
                for (uint32_t t = 0; !r && t < STAGING_TRANSPORTS; t++)
                        if (transports >> t & 1)
                                r = class_add(choices, shadow, &plan, where->here, bytes[t], t, table, error);
        }
        return r;
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
void choices_init(struct choices *choices, int told_fd) {
        plans_init(&choices->verified);
        choices->verified.told_fd = told_fd;
}

void choices_deinit(struct choices *choices) {
        plans_deinit(&choices->verified);
}

static bool plan_ready(struct choices *choices, const struct choices_where *where, const struct plan *plan,
                       uint32_t transport) {
        const struct plans_shape shape = plan_shape(plan, transport);
        const uint32_t index = plan_entry(choices, plan, where->here);

        return (plan_is(&choices->plans[index], plan, where->here) && choices->plans[index].verified[transport]) ||
               plans_want(&choices->verified, &shape) != PLANS_E_LATER;
}

/* What is wrong shows again, and is reported, when it is taken. */
bool choices_ready(struct choices *choices, const struct choices_where *where, const struct plan_choice *wanted,
                   uint32_t n_wanted) {
        struct covered covered = {0};
        bool ready = true;

        for (uint32_t i = 0; i < n_wanted; i++) {
                uint64_t bytes[STAGING_TRANSPORTS];
                uint32_t transports;
                struct plan plan;

                if (covered_check(&covered, wanted, i, NULL))
                        return true;
                if (plan_make(where, &wanted[i], &plan))
                        continue;
                /* Programs are not looked at: that takes long, too, and those over nodes are all needed. */
                if (plan_passes(&plan) ? !plan.nodes : !plan_runs_on_device(&plan, where->here))
                        continue;
                transports = covered_split(&covered, &plan, where->nodes != NULL, wanted[i].max_bytes, bytes);
                for (uint32_t t = 0; t < STAGING_TRANSPORTS; t++)
                        if ((transports >> t & 1) && !plan_ready(choices, where, &plan, t))
                                ready = false;
        }
        return ready;
}

void choices_round(struct choices *choices) {
        plans_round(&choices->verified);
}

int choices_take(struct choices *choices, struct shadow *shadow, const struct choices_where *where,
                 const struct plan_choice *wanted, uint32_t n_wanted, uint32_t *ret_index, char *error) {
        struct table_choices table;
        uint32_t unused = CHOICES_TABLES;
        int r;

        memset(&table, 0, sizeof(table));
        r = table_build(choices, shadow, where, wanted, n_wanted, &table, error);
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
