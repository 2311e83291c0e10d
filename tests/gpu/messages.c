/* SPDX-License-Identifier: MIT */
/*
 * Sends and receives between random pairs
 *
 * Messages have one order, in which each rank works off what it sends and receives: some of it in a group, then some
 * more, with cuts wherever chance has it. Since all ranks cut the same order, they cannot wait for each other in a
 * circle. Within a group a rank lists its requests in any order, except that those of a pair and direction keep theirs:
 * that is how a send finds its receive. A message to oneself is never cut in two.
 */
#include "tests/cmocka_all.h"

#include "messages.h"

#include <stdlib.h>
#include <string.h>

#include "ring/ring.h"
#include "util/type.h"

#define MESSAGES_MAX 600u
#define ELEMENTS_MAX 20000u /* of all messages */

struct message {
        uint32_t from, to;
        uint64_t count;
        uint64_t in, out; /* elements from the beginning of the buffers */
};

static void messages_random(struct job *job, struct random *random, struct message *messages) {
        for (uint32_t i = 0; i < job->n_messages; i++) {
                struct message *m = &messages[i];
                struct job_rank *from, *to;

                m->from = random_below(random, job->n_ranks);
                m->to = random_below(random, 4) ? random_below(random, job->n_ranks) : (m->from + 1) % job->n_ranks;
                m->count = random_below(random, 5) ? random_next(random) % (job->count + 1) : job->count;
                from = &job->ranks[m->from];
                to = &job->ranks[m->to];
                m->in = from->n_in + random_below(random, 2);
                from->n_in = m->in + m->count;
                m->out = to->n_out + random_below(random, 2);
                to->n_out = m->out + m->count;
        }
}

static void rank_add(struct job *job, uint32_t rank, const struct message *m, uint32_t role) {
        struct job_rank *r = &job->ranks[rank];
        size_t size = type_size(job->type);
        bool sends = role == PLAN_ROLE_SENDER;

        r->requests[r->n_requests++] = (struct gpu_request){
                .plan = &job->plan,
                .in = sends ? r->block + r->in + m->in * size : NULL,
                .out = sends ? NULL : r->block + r->out + m->out * size,
                .shape = {.count = m->count,
                          .element_bytes = (uint32_t)size,
                          .partial_bytes = (uint32_t)size,
                          .root = m->from,
                          .peer = m->to,
                          .role = role},
                .type = job->type,
                .done = true, /* to be cleared */
        };
}

static bool same_lane(const struct gpu_request *a, const struct gpu_request *b) {
        return a->shape.role == b->shape.role && a->shape.root == b->shape.root && a->shape.peer == b->shape.peer;
}

/* Moves each request to a random place, but not past one of its lane. */
static void shuffle(struct random *random, struct gpu_request *requests, uint32_t n) {
        for (uint32_t i = 0; i + 1 < n; i++) {
                uint32_t steps = random_below(random, n);

                for (uint32_t k = n - 1 - i; steps > 0 && k + 1 < n && !same_lane(&requests[k], &requests[k + 1]);
                     k++, steps--) {
                        struct gpu_request other = requests[k];

                        requests[k] = requests[k + 1];
                        requests[k + 1] = other;
                }
        }
}

static void rank_cut(struct job_rank *r, struct random *random) {
        uint32_t first = r->n_starts > 0 ? r->start_end[r->n_starts - 1] : 0;

        if (r->n_requests == first)
                return;
        shuffle(random, &r->requests[first], r->n_requests - first);
        r->start_end[r->n_starts++] = r->n_requests;
}

static void rank_requests(struct job *job, uint32_t rank, struct random *random, const struct message *messages) {
        static const uint32_t cuts[] = {1, 2, 5, 1000000};
        uint32_t cut = cuts[random_below(random, 4)];
        struct job_rank *r = &job->ranks[rank];

        r->requests = malloc(2 * MESSAGES_MAX * sizeof(*r->requests));
        r->start_end = malloc(2 * MESSAGES_MAX * sizeof(*r->start_end));
        assert_true(r->requests && r->start_end);
        for (uint32_t i = 0; i < job->n_messages; i++) {
                const struct message *m = &messages[i];

                if (m->from == rank)
                        rank_add(job, rank, m, PLAN_ROLE_SENDER);
                if (m->to == rank)
                        rank_add(job, rank, m, PLAN_ROLE_RECEIVER);
                if (random_below(random, cut) == 0)
                        rank_cut(r, random);
        }
        rank_cut(r, random);
}

void messages_prepare(struct job *job) {
        struct message *messages = calloc(MESSAGES_MAX, sizeof(*messages));
        struct random random = {job->seed};
        size_t size = type_size(job->type);

        assert_non_null(messages);
        job->n_messages = random_below(&random, random_below(&random, 8) ? 4 * job->n_ranks + 1 : MESSAGES_MAX / 4);
        if (job->n_messages * job->count > ELEMENTS_MAX)
                job->count = ELEMENTS_MAX / job->n_messages;
        messages_random(job, &random, messages);
        for (uint32_t rank = 0; rank < job->n_ranks; rank++) {
                job_rank_memory(job, rank);
                rank_requests(job, rank, &random, messages);
        }
        for (uint32_t i = 0; i < job->n_messages; i++) {
                const struct message *m = &messages[i];
                const struct job_rank *from = &job->ranks[m->from], *to = &job->ranks[m->to];

                memcpy(to->want + to->out + m->out * size, from->image + from->in + m->in * size, m->count * size);
        }
        free(messages);
}
