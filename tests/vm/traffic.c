/* SPDX-License-Identifier: MIT */
/*
 * A verified load. All values follow from round, sender, receiver and position, so what an element has to be is known
 * in closed form, also of sums, which wrap; and an element of a round before is never right. Rank 0 decides when the
 * load ends, and says so in a word of an all_reduce: so all ranks make the same calls.
 */
#include "tests/vm/traffic.h"

#include <stdio.h>
#include <string.h>

#include "tests/cmocka_all.h"
#include "tests/e2e/proc.h"
#include "tests/vm/fleet.h"
#include "util/clock.h"

#define ELEMENTS_MAX 140000u /* of in and out: what the largest call of 8 ranks takes */
#define LARGE        70001u  /* beyond what takes one rail only */
#define START_MS     30000u

static uint32_t value(uint32_t round, uint32_t from, uint32_t to, uint32_t i) {
        return round * 2654435761u + from * 40503u + to * 9176u + i * 7919u;
}

struct load {
        struct team_rank *rank;
        struct rmx_comm *comm;
        uint32_t *in, *out;
        uint32_t round;
        uint64_t last_ns;
};

static void fill(struct load *l, uint32_t to, uint32_t at, uint32_t count) {
        for (uint32_t i = 0; i < count; i++)
                l->in[at + i] = value(l->round, l->rank->rank, to, i);
}

static void wrong(struct load *l, const char *op, uint32_t i, uint32_t is, uint32_t right) {
        char text[160];

        snprintf(text, sizeof(text), "round %u: element %u of %s is %u, not %u", l->round, i, op, is, right);
        team_wrong(l->rank, text);
}

static void check_from(struct load *l, const char *op, uint32_t from, uint32_t to, uint32_t at, uint32_t count) {
        for (uint32_t i = 0; i < count; i++)
                if (l->out[at + i] != value(l->round, from, to, i))
                        wrong(l, op, at + i, l->out[at + i], value(l->round, from, to, i));
}

static void check_sum(struct load *l, const char *op, uint32_t to, uint32_t count) {
        uint32_t n = l->rank->n_ranks;

        for (uint32_t i = 0; i < count; i++) {
                uint32_t right = n * value(l->round, 0, to, i) + 40503u * (n * (n - 1) / 2);

                if (l->out[i] != right)
                        wrong(l, op, i, l->out[i], right);
        }
}

/* An operation has ended well. */
static void step(struct load *l, int code, const char *op) {
        uint64_t now_ns = clock_now_ns(), gap_ns = now_ns - l->last_ns;

        team_must(l->rank, code, op);
        if (gap_ns > atomic_load(&l->rank->notes->longest_ns)) /* partner: traffic_longest_ms, which sets it to 0 */
                atomic_store(&l->rank->notes->longest_ns, gap_ns);
        l->last_ns = now_ns;
        team_step(l->rank);
}

static void sum(struct load *l, uint32_t count) {
        fill(l, 0, 0, count);
        step(l, rmx_all_reduce(l->comm, l->in, l->out, count, RMX_UINT32, RMX_SUM, NULL), "all_reduce");
        check_sum(l, "all_reduce", 0, count);
}

static void gather(struct load *l, uint32_t count) {
        fill(l, 0, 0, count);
        step(l, rmx_all_gather(l->comm, l->in, l->out, count, RMX_UINT32, NULL), "all_gather");
        for (uint32_t r = 0; r < l->rank->n_ranks; r++)
                check_from(l, "all_gather", r, 0, r * count, count);
}

static void exchange(struct load *l, uint32_t count) {
        for (uint32_t r = 0; r < l->rank->n_ranks; r++)
                fill(l, r, r * count, count);
        step(l, rmx_all_to_all(l->comm, l->in, l->out, count, RMX_UINT32, NULL), "all_to_all");
        for (uint32_t r = 0; r < l->rank->n_ranks; r++)
                check_from(l, "all_to_all", r, l->rank->rank, r * count, count);
}

static void scatter_sums(struct load *l, uint32_t count) {
        for (uint32_t r = 0; r < l->rank->n_ranks; r++)
                fill(l, r, r * count, count);
        step(l, rmx_reduce_scatter(l->comm, l->in, l->out, count, RMX_UINT32, RMX_SUM, NULL), "reduce_scatter");
        check_sum(l, "reduce_scatter", l->rank->rank, count);
}

static void broadcast(struct load *l, uint32_t count) {
        uint32_t root = l->round % l->rank->n_ranks;

        fill(l, 0, 0, count);
        step(l, rmx_broadcast(l->comm, l->in, l->out, count, RMX_UINT32, root, NULL), "broadcast");
        check_from(l, "broadcast", root, 0, 0, count);
}

static void shift(struct load *l, uint32_t count) {
        uint32_t n = l->rank->n_ranks, next = (l->rank->rank + 1) % n, before = (l->rank->rank + n - 1) % n;

        fill(l, next, 0, count);
        team_must(l->rank, rmx_group_start(), "rmx_group_start");
        team_must(l->rank, rmx_send(l->comm, l->in, count, RMX_UINT32, next, NULL), "send");
        team_must(l->rank, rmx_recv(l->comm, l->out, count, RMX_UINT32, before, NULL), "recv");
        step(l, rmx_group_end(), "send and recv");
        check_from(l, "recv", before, l->rank->rank, 0, count);
}

/* Does rank 0 say that this was the last round? */
static bool is_over(struct load *l) {
        l->in[0] = l->rank->rank == 0 && atomic_load(&l->rank->shared->go) > 0; /* partner: traffic_end */
        step(l, rmx_all_reduce(l->comm, l->in, l->out, 1, RMX_UINT32, RMX_MAX, NULL), "all_reduce");
        return l->out[0] != 0;
}

void traffic_script(struct team_rank *rank) {
        struct load l = {.rank = rank, .last_ns = clock_now_ns()};

        l.in = team_memory(rank, 2 * sizeof(uint32_t) * ELEMENTS_MAX);
        l.out = l.in + ELEMENTS_MAX;
        l.comm = team_join(rank, 0);
        do {
                l.round++;
                sum(&l, 1 + l.round % 97);
                sum(&l, LARGE);
                gather(&l, 10007);
                exchange(&l, 9001);
                scatter_sums(&l, 12345);
                broadcast(&l, 33333);
                shift(&l, 50001);
        } while (!is_over(&l));
        team_must(rank, rmx_comm_destroy(l.comm), "rmx_comm_destroy");
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */
static uint32_t foremost(const struct fleet *fleet) {
        uint32_t most = 0;

        for (uint32_t r = 0; r < fleet->team.n_ranks; r++) {
                uint32_t step = atomic_load(&fleet->team.shared->notes[r].step); /* partner: team_step */

                most = step > most ? step : most;
        }
        return most;
}

void traffic_await(struct fleet *fleet, uint32_t more, uint32_t timeout_ms) {
        team_await_step(&fleet->team, foremost(fleet) + more, TEAM_ALL, (uint32_t)(timeout_ms * proc_time_scale()));
}

double traffic_longest_ms(struct fleet *fleet) {
        uint64_t longest_ns = 0;

        for (uint32_t r = 0; r < fleet->team.n_ranks; r++) {
                uint64_t ns = atomic_exchange(&fleet->team.shared->notes[r].longest_ns, 0); /* partner: step */

                longest_ns = ns > longest_ns ? ns : longest_ns;
        }
        return (double)longest_ns / 1e6;
}

void traffic_start(struct fleet *fleet, uint32_t n_ranks) {
        team_init(&fleet->team, fleet->node, fleet->n_nodes, n_ranks);
        team_start(&fleet->team, traffic_script);
        traffic_await(fleet, 10, START_MS);
        (void)traffic_longest_ms(fleet);
}

uint32_t traffic_end(struct fleet *fleet) {
        atomic_store(&fleet->team.shared->go, 1); /* partner: is_over */
        team_end(&fleet->team, fleet->name);
        for (uint32_t r = 0; r < fleet->team.n_ranks; r++)
                if (atomic_load(&fleet->team.shared->notes[r].step) != foremost(fleet))
                        fail_msg("rank %u has done %u operations, another %u", r,
                                 atomic_load(&fleet->team.shared->notes[r].step), foremost(fleet));
        return foremost(fleet);
}
