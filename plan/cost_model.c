/* SPDX-License-Identifier: MIT */
/*
 * From a plan to a model that predicts any size
 *
 * A plan's steps are the same for every part, so they are listed once (compile), with what they take and put and what
 * they cost: so much, and so much per element. From that follows, exactly, the work of each rank: fixed + parts * part
 * + elements * element.
 *
 * The critical path is found by running the steps against clocks (simulate). A step begins when its cursor has ended
 * the step before, `after` is met, its chunks have come and its slots have been given back; it ends after its own cost;
 * chunks and credits are seen a hop later by other ranks, at once by the own one. Every phase of every rank has an
 * engine of its own here: that they share engines is what the work counts for. Since no step asks what time it is, the
 * order in which they are run does not matter, and several clocks can run at once: the lanes are the same plan without
 * data and with one full part, with as many as a channel has slots (two at least: L), and with twice as many. A lane's
 * clock stands still in parts that it does not have. Further lanes count nothing but hops. Where workers serve several
 * ranks, each hop of the chain means that the workers look once at every rank that has nothing to do, which is work as
 * well.
 *
 * Over nodes a hop takes longer, and rails are shared: what all chunks of a request take on each rail, out and in, is
 * added up like work. It does not run beside the chain but behind it: what crosses has to be there first.
 *
 * Between these points the path is interpolated; for a single part it is a maximum of straight lines and a chord lies
 * above it, for few parts it is nearly straight. Beyond 2 L parts it goes on as from L to 2 L: from then on each part
 * adds the same, once slots are the limit or nothing is.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cost.h"
#include "plan/cost_rails.h"
#include "util/cleanup.h"

#define TIMES    PLAN_MODEL_LANES           /* lanes that count time */
#define LANES    (2 * PLAN_MODEL_LANES - 1) /* the others count hops */
#define LAPS_MAX 32u

/* Parts of a lane: so many, times what fills the slots. */
static const struct { uint8_t parts, laps; } lanes[LANES] = {{1, 0}, {1, 0}, {0, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 2}};

struct clocks {
        double ns[LANES];
};

struct step {
        uint32_t first_end; /* in ends[]: takes, then puts */
        uint8_t n_takes, n_puts;
        double ns, ns_per_element;
};

struct channel {
        uint8_t source, destination;
        double hop_ns;
        uint32_t slots;
        uint32_t first_clock; /* in clocks[]: when each slot's chunk was put, then when each slot was given back */
        uint32_t n_put, n_taken;
};

struct cursor {
        uint32_t first_step, n_steps;
        uint32_t n_parts, part, step;
        struct clocks now;
        struct clocks *part_done; /* [n_parts] */
};

struct machine {
        const struct plan *plan;
        const struct plan_constants *constants;
        const struct plan_net *net; /* NULL: all on one node */
        struct plan_geometry geometry;
        struct plan_shape shape;
        uint64_t part_elements;
        uint32_t laps; /* see lanes */
        struct step *steps;
        uint32_t n_steps;
        uint32_t *ends; /* channels */
        size_t n_ends, max_ends;
        struct channel *channels;
        uint32_t n_channels, max_channels;
        uint32_t *channel_of;   /* [region][source][destination]: 1 + channel, 0: not used */
        struct cursor *cursors; /* [rank][phase] */
        struct clocks *done;    /* all cursors' part_done */
        struct clocks *clocks;
        uint32_t n_clocks;
        struct cost_rails rails; /* with net */
};

static void machine_deinit(struct machine *m) {
        free(m->steps);
        free(m->ends);
        free(m->channels);
        free(m->channel_of);
        free(m->cursors);
        free(m->done);
        free(m->clocks);
        cost_rails_deinit(&m->rails);
}

/* ---- compile ----------------------------------------------------------------------------------------------------- */
static bool machine_together(const struct machine *m, uint32_t a, uint32_t b) {
        return !m->net || plan_nodes_together(m->plan->nodes, a, b);
}

static int machine_end(struct machine *m, uint32_t region, uint32_t source, uint32_t destination) {
        uint32_t n = m->plan->n_ranks, *channel_of = &m->channel_of[(region * n + source) * n + destination];

        if (*channel_of == 0) {
                uint32_t slots = plan_channel_slots(&m->geometry, n, source == destination);

                if (m->n_channels == m->max_channels) {
                        struct channel *channels =
                                reallocarray(m->channels, 2 * (size_t)m->max_channels + 64, sizeof(*channels));

                        if (!channels)
                                return -ENOMEM;
                        m->channels = channels;
                        m->max_channels = 2 * m->max_channels + 64;
                }
                m->channels[m->n_channels++] = (struct channel){
                        .source = (uint8_t)source,
                        .destination = (uint8_t)destination,
                        .hop_ns = source == destination                      ? 0
                                  : machine_together(m, source, destination) ? m->constants->hop_ns
                                                                             : m->net->hop_ns,
                        .slots = slots,
                        .first_clock = m->n_clocks,
                };
                m->n_clocks += 2 * slots;
                *channel_of = m->n_channels;
        }
        if (m->n_ends == m->max_ends) {
                uint32_t *ends = reallocarray(m->ends, 2 * m->max_ends + 256, sizeof(*ends));

                if (!ends)
                        return -ENOMEM;
                m->ends = ends;
                m->max_ends = 2 * m->max_ends + 256;
        }
        m->ends[m->n_ends++] = *channel_of - 1;
        return 0;
}

static void step_price(const struct machine *m, const struct plan_phase *phase, const struct plan_step *from,
                       struct step *step) {
        const struct plan_constants *k = m->constants;
        double in = 0, out = from->n_outputs * (double)m->shape.element_bytes;

        step->ns = (step->n_takes + step->n_puts) * (from->data ? k->ns_per_chunk : k->ns_per_signal);
        if (!from->data)
                return;
        for (uint32_t i = 0; i < from->n_sources; i++)
                in += from->source[i].kind == PLAN_SOURCE_CHUNK && from->partial_in ? m->shape.partial_bytes
                                                                                    : m->shape.element_bytes;
        out += from->n_targets * (double)(from->partial_out ? m->shape.partial_bytes : m->shape.element_bytes);
        if (from->n_sources < 2) { /* all that is written is a copy */
                step->ns_per_element = out * k->ns_per_byte_copy;
                return;
        }
        /* Writing the result once belongs to the reduction. */
        step->ns_per_element = in * (phase->kind == PLAN_FOLD ? k->ns_per_byte_fold : k->ns_per_byte_reduce) +
                               out * (1 - 1.0 / (from->n_outputs + from->n_targets)) * k->ns_per_byte_copy;
}

static int compile_step(struct machine *m, const struct plan_phase *phase, uint32_t me, const struct plan_step *from,
                        struct step *step) {
        int r = 0;

        step->first_end = (uint32_t)m->n_ends;
        for (uint32_t i = 0; !r && i < from->n_sources; i++)
                if (from->source[i].kind == PLAN_SOURCE_CHUNK) {
                        r = machine_end(m, phase->region_in, from->source[i].rank, me);
                        step->n_takes++;
                }
        for (uint32_t i = 0; !r && i < from->n_targets; i++) {
                r = machine_end(m, phase->region_out, me, from->target[i]);
                step->n_puts++;
        }
        if (!r)
                step_price(m, phase, from, step);
        return r;
}

static void rail_price(struct machine *m, uint32_t me, const struct plan_step *from, bool parts) {
        double bytes = from->data ? from->partial_out ? m->shape.partial_bytes : m->shape.element_bytes : 0;

        for (uint32_t i = 0; i < from->n_targets; i++)
                if (!machine_together(m, me, from->target[i]))
                        cost_rails_add(&m->rails, me, from->target[i], parts, bytes);
}

static bool phase_has_data(const struct plan_phase *phase) {
        return phase->in_range != PLAN_RANGE_NONE || phase->out_range != PLAN_RANGE_NONE;
}

static int compile_cursor(struct machine *m, uint32_t me, uint32_t p, struct plan_model *model) {
        const struct plan_phase *phase = &m->plan->phases[p];
        struct cursor *cursor = &m->cursors[me * m->plan->n_phases + p];
        struct plan_work *work = &model->work[me];
        struct plan_step from;
        int r;

        if (!plan_phase_mine(phase, &m->shape, me))
                return 0;
        work->fixed += m->constants->ns_per_phase;
        cursor->first_step = m->n_steps;
        cursor->n_steps = plan_phase_steps(m->plan, phase, &m->shape, me);
        cursor->n_parts = phase_has_data(phase) ? 2 * m->laps : 1;
        cursor->part_done = &m->done[(me * m->plan->n_phases + p) * 2 * m->laps];
        for (uint32_t i = 0; i < TIMES; i++)
                cursor->now.ns[i] = m->constants->ns_per_phase;
        for (uint32_t k = 0; k < cursor->n_steps; k++) {
                struct step *step = &m->steps[m->n_steps++];

                if (!plan_step(m->plan, phase, &m->geometry, &m->shape, me, 0, k, &from))
                        from = (struct plan_step){0};
                r = compile_step(m, phase, me, &from, step);
                if (r)
                        return r;
                *(cursor->n_parts > 1 ? &work->part : &work->fixed) += step->ns;
                work->element += step->ns_per_element;
                if (m->net)
                        rail_price(m, me, &from, cursor->n_parts > 1);
        }
        return 0;
}

static int machine_compile(struct machine *m, struct plan_model *model) {
        const struct plan *plan = m->plan;
        uint32_t n = plan->n_ranks;
        size_t n_steps = 0;
        int r = 0;

        for (uint32_t me = 0; me < n; me++)
                for (uint32_t p = 0; p < plan->n_phases; p++)
                        n_steps += plan_phase_steps(plan, &plan->phases[p], &m->shape, me);
        m->steps = calloc(n_steps + 1, sizeof(*m->steps));
        m->channel_of = calloc((size_t)PLAN_REGIONS_MAX * n * n, sizeof(*m->channel_of));
        m->cursors = calloc((size_t)n * plan->n_phases + 1, sizeof(*m->cursors));
        m->done = calloc((size_t)n * plan->n_phases * 2 * m->laps + 1, sizeof(*m->done));
        if (!m->steps || !m->channel_of || !m->cursors || !m->done)
                return -ENOMEM;
        for (uint32_t me = 0; !r && me < n; me++)
                for (uint32_t p = 0; !r && p < plan->n_phases; p++)
                        r = compile_cursor(m, me, p, model);
        if (r)
                return r;
        m->clocks = calloc(m->n_clocks + 1, sizeof(*m->clocks));
        return m->clocks ? 0 : -ENOMEM;
}

/* ---- simulate ---------------------------------------------------------------------------------------------------- */
static struct clocks *chunk_clock(struct machine *m, const struct channel *c, uint32_t number) {
        return &m->clocks[c->first_clock + number % c->slots];
}

static struct clocks *credit_clock(struct machine *m, const struct channel *c, uint32_t number) {
        return &m->clocks[c->first_clock + c->slots + number % c->slots];
}

static void clocks_later(struct clocks *clocks, const struct clocks *than) {
        for (uint32_t i = 0; i < LANES; i++)
                clocks->ns[i] = than->ns[i] > clocks->ns[i] ? than->ns[i] : clocks->ns[i];
}

/* What is seen at `clocks` plus a hop. */
static void clocks_hop(const struct channel *c, const struct clocks *clocks, struct clocks *ret_seen) {
        bool own = c->source == c->destination;

        for (uint32_t i = 0; i < LANES; i++)
                ret_seen->ns[i] = clocks->ns[i] + (own ? 0 : i < TIMES ? c->hop_ns : 1);
}

/* False: not met yet. */
static bool after_met(const struct machine *m, const struct plan_phase *phase, uint32_t me, const struct cursor *cursor,
                      struct clocks *begin) {
        const struct cursor *before;

        if (phase->after < 0)
                return true;
        before = &m->cursors[me * m->plan->n_phases + (uint32_t)phase->after];
        if (before->n_steps == 0)
                return true;
        if (phase->after_whole || before->n_parts <= cursor->part) {
                if (before->part < before->n_parts)
                        return false;
                clocks_later(begin, &before->now);
                return true;
        }
        if (before->part <= cursor->part)
                return false;
        clocks_later(begin, &before->part_done[cursor->part]);
        return true;
}

static bool step_run(struct machine *m, uint32_t me, uint32_t p, struct cursor *cursor) {
        const struct step *step = &m->steps[cursor->first_step + cursor->step];
        const uint32_t *takes = &m->ends[step->first_end], *puts = takes + step->n_takes;
        struct clocks begin = cursor->now;

        if (!after_met(m, &m->plan->phases[p], me, cursor, &begin))
                return false;
        for (uint32_t i = 0; i < step->n_takes; i++) {
                struct channel *c = &m->channels[takes[i]];

                if (c->n_put == c->n_taken)
                        return false;
                clocks_later(&begin, chunk_clock(m, c, c->n_taken));
        }
        for (uint32_t i = 0; i < step->n_puts; i++) {
                struct channel *c = &m->channels[puts[i]];

                if (c->n_put - c->n_taken == c->slots)
                        return false;
                clocks_later(&begin, credit_clock(m, c, c->n_put));
        }
        for (uint32_t i = 0; i < LANES; i++)
                if (cursor->part < lanes[i].parts + lanes[i].laps * m->laps)
                        cursor->now.ns[i] = begin.ns[i] + (i < TIMES ? step->ns : 0) +
                                            (i > 0 && i < TIMES ? step->ns_per_element * (double)m->part_elements : 0);
        for (uint32_t i = 0; i < step->n_takes; i++) {
                struct channel *c = &m->channels[takes[i]];

                clocks_hop(c, &cursor->now, credit_clock(m, c, c->n_taken++));
        }
        for (uint32_t i = 0; i < step->n_puts; i++) {
                struct channel *c = &m->channels[puts[i]];

                clocks_hop(c, &cursor->now, chunk_clock(m, c, c->n_put++));
        }
        return true;
}

/* As far as it gets; did it move? */
static bool cursor_run(struct machine *m, uint32_t me, uint32_t p) {
        struct cursor *cursor = &m->cursors[me * m->plan->n_phases + p];
        bool moved = false;

        if (cursor->n_steps == 0)
                return false;
        while (cursor->part < cursor->n_parts && step_run(m, me, p, cursor)) {
                moved = true;
                if (++cursor->step == cursor->n_steps) {
                        cursor->step = 0;
                        cursor->part_done[cursor->part++] = cursor->now;
                }
        }
        return moved;
}

static int machine_simulate(struct machine *m, struct clocks *ret_last) {
        uint32_t n_cursors = m->plan->n_ranks * m->plan->n_phases;
        bool moved = true;

        while (moved) {
                moved = false;
                for (uint32_t me = 0; me < m->plan->n_ranks; me++)
                        for (uint32_t p = 0; p < m->plan->n_phases; p++)
                                moved |= cursor_run(m, me, p);
        }
        for (uint32_t i = 0; i < n_cursors; i++) {
                const struct cursor *cursor = &m->cursors[i];

                if (cursor->n_steps > 0 && cursor->part < cursor->n_parts)
                        return PLAN_E_INVALID;
                clocks_later(ret_last, &cursor->now);
        }
        return 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */
static bool plan_sharded(const struct plan *plan) {
        for (uint32_t p = 0; p < plan->n_phases; p++)
                if (plan->phases[p].in_range == PLAN_RANGE_SHARD_ME ||
                    plan->phases[p].in_range == PLAN_RANGE_SHARD_PEER)
                        return true;
        return false;
}

int plan_model_init(struct plan_model *model, const struct plan *plan, const struct plan_constants *constants,
                    const struct plan_geometry *geometry, uint32_t element_bytes, uint32_t partial_bytes) {
        return plan_model_init_net(model, plan, constants, NULL, geometry, element_bytes, partial_bytes);
}

int plan_model_init_net(struct plan_model *model, const struct plan *plan, const struct plan_constants *constants,
                        const struct plan_net *net, const struct plan_geometry *geometry, uint32_t element_bytes,
                        uint32_t partial_bytes) {
        /* Each exchanges something with each: no step is left out. */
        uint64_t ones[PLAN_RANKS_MAX], zeros[PLAN_RANKS_MAX] = {0};
        struct plan_vector vector = {ones, zeros, ones, zeros};
        _cleanup_(machine_deinit) struct machine m = {
                .plan = plan, .constants = constants, .net = plan->nodes ? net : NULL};
        struct plan_model made = {
                .n_ranks = plan->n_ranks,
                .n_shards = plan_sharded(plan) ? plan->n_shards : 1,
                .element_bytes = element_bytes,
                .parallel = constants->parallel > 0 ? constants->parallel : 1,
                .request_ns = constants->request_ns,
                .ns_per_turn = constants->ns_per_turn,
                .n_nodes = plan->nodes && net ? plan->nodes->n_nodes : 1,
        };
        struct clocks last = {0};
        int r;

        if (plan->n_ranks < 1 || plan->n_ranks > PLAN_RANKS_MAX || element_bytes < 1 || (net && net->n_rails < 1))
                return PLAN_E_INVALID;
        if (made.n_nodes > 1)
                memcpy(made.node, plan->nodes->node, sizeof(made.node));
        for (uint32_t i = 0; i < PLAN_RANKS_MAX; i++)
                ones[i] = 1;
        m.shape = (struct plan_shape){
                .count = 1,
                .element_bytes = element_bytes,
                .partial_bytes = partial_bytes > 0 ? partial_bytes : element_bytes,
                .peer = plan_operation_p2p(plan->operation) && plan->n_ranks > 1 ? 1 : 0,
                .vector = &vector,
        };
        if (geometry)
                m.geometry = *geometry;
        else if (plan->nodes)
                plan_geometry_choose_nodes(plan->n_ranks, &m.geometry);
        else
                plan_geometry_choose(plan->n_ranks, &m.geometry);
        m.laps = m.geometry.slots < 2 ? 2 : m.geometry.slots > LAPS_MAX ? LAPS_MAX : m.geometry.slots;
        made.laps = m.laps;
        m.part_elements = made.part_elements = plan_part_elements(plan, &m.geometry, &m.shape);
        r = m.net ? cost_rails_init(&m.rails, m.net, plan->nodes) : 0;
        if (!r)
                r = machine_compile(&m, &made);
        if (!r && m.net)
                cost_rails_busiest(&m.rails, &made);
        if (!r)
                r = machine_simulate(&m, &last);
        if (r)
                return r;
        memcpy(made.critical_ns, last.ns, sizeof(made.critical_ns));
        memcpy(made.hops, last.ns + TIMES, sizeof(made.hops));
        *model = made;
        return 0;
}

/* A line through what was found for 0 (or one, if `lowest` is), one, L and 2 L parts. */
static double path_at(double lowest, const double found[PLAN_MODEL_LANES - 1], double laps, double n_parts) {
        if (n_parts <= 1)
                return lowest + (found[0] - lowest) * n_parts;
        if (n_parts <= laps)
                return found[0] + (found[1] - found[0]) * (n_parts - 1) / (laps - 1);
        return found[1] + (found[2] - found[1]) * (n_parts - laps) / laps;
}

/* All work of the node that has most of it. */
static double shared_ns(const struct plan_model *model, const double ns[PLAN_RANKS_MAX], double hops) {
        double most = 0;

        for (uint32_t node = 0; node < model->n_nodes; node++) {
                uint32_t n = 0;
                double total = 0, waiting;

                for (uint32_t r = 0; r < model->n_ranks; r++)
                        if (model->node[r] == node) {
                                total += ns[r];
                                n++;
                        }
                waiting = n > model->parallel ? n - model->parallel : 0;
                most = fmax(most, (total + hops * waiting * model->ns_per_turn) / model->parallel);
        }
        return most;
}

static double work_ns(const struct plan_work *work, double parts, double elements) {
        return work->fixed + parts * work->part + elements * work->element;
}

void plan_model_predict(const struct plan_model *model, uint64_t count, struct plan_cost *ret_cost) {
        uint64_t elements = plan_shard_elements(count, model->n_shards, model->element_bytes);
        double n_parts, parts, ns[PLAN_RANKS_MAX], first = 0;
        struct plan_cost cost = {0};

        elements = elements < count ? elements : count;
        n_parts =
                (double)elements / (double)model->part_elements; /* a last one that is not full counts as what it is */
        parts = (double)(elements / model->part_elements + (elements % model->part_elements != 0));
        for (uint32_t r = 0; r < model->n_ranks; r++) {
                ns[r] = work_ns(&model->work[r], parts, (double)elements);
                cost.busiest_ns = fmax(cost.busiest_ns, ns[r]);
        }
        cost.critical_ns = path_at(model->critical_ns[0], model->critical_ns + 1, model->laps, n_parts);
        cost.hops = path_at(model->hops[0], model->hops, model->laps, n_parts);
        cost.shared_ns = shared_ns(model, ns, cost.hops);
        for (uint32_t i = 0; i < model->n_rails; i++) {
                const struct plan_work *rail = &model->rail[i];

                cost.wire_ns = fmax(cost.wire_ns, work_ns(rail, parts, (double)elements));
                first = fmax(first, work_ns(rail, fmin(parts, 1), fmin(n_parts, 1) * (double)model->part_elements));
        }
        /* The first part crosses when the chain has come to it; from then on the busiest rail has always something to
         * do. What is on the way in the other parts overlaps with it. */
        cost.wire_ns = model->n_nodes > 1 ? fmax(cost.critical_ns + first, model->critical_ns[0] + cost.wire_ns) : 0;
        cost.ns = model->request_ns + fmax(fmax(cost.critical_ns, cost.wire_ns), fmax(cost.busiest_ns, cost.shared_ns));
        *ret_cost = cost;
}
