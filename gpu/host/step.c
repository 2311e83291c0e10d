/* SPDX-License-Identifier: MIT */
/*
 * Steps on host memory
 *
 * What a step does is said by plan_step(). Two ways lead there:
 *
 *   PUSH, COPY, SIGNAL, WAIT and READ have one source or one target. They are most of all steps and often carry nothing
 *   but a few bytes, so they are written out here. Their peer follows from the step's number, their span from numbers
 *   that were computed when the request began (span_of, which must agree with plan_span; debug builds compare).
 *
 *   REDUCE, FOLD and PASS are planned by plan_step() once, when their turn comes, and kept until they are done. A step
 *   that is not ready remembers how many of its conditions held. They stay true: nobody else takes our chunks, and
 *   nobody else fills our slots.
 *
 * Data. One source that nothing is done to is copied; everything else is one call of a kernel, which writes all outputs
 * and all slots at once. A contribution is multiplied by its rank's scalar wherever it is read from an input, also by a
 * PUSH, so elements in chunks are never multiplied. Chunks of a few elements lie beside their flag: both ends know the
 * size. Accumulators do not, as kernels want them aligned. Outputs that are too large for the caches anyway are written
 * past them; chunks never are, since somebody reads them next.
 *
 * Memory of other ranks. READ and FOLD take addresses from the peer's `shared`, and its vector from there. That is no
 * race: the peer fills it in before it begins its request, hence before its signal, which our plan has waited for
 * (acquire) before the first such step; and it does not begin another request before it has had our last signal
 * (release) behind our last access. The plan's verifier proves that order for the buffers; it is the same for their
 * addresses. With sends and receives a rank has several requests at once. So there the signal itself says where the
 * data lies, in the chunk, and the receiver keeps it with its request.
 *
 * Other nodes. Chunks to and from ranks of other nodes are pushed, looked for and released by functions that know the
 * difference (step_chunk.h); no step touches the memory of these ranks.
 *
 * Pieces. The work of FOLD and READ is bounded by neither slot nor peer, so these steps are done in pieces, which
 * nobody else can see: only the end of the step orders anything.
 */
#include "gpu/host/step.h"

#include <assert.h>
#include <string.h>

#include "gpu/host/step_chunk.h"

/* Bytes read and written by a piece of FOLD or READ. Measured for 8 ranks: a quarter of it costs a fifth of the speed,
 * twice as much gains a twentieth, and keeps a worker from other ranks for longer. */
#define PIECE_BYTES    262144u
#define PIECE_ELEMENTS 64u /* a multiple of them, so that a piece ends where a vector does */

static void cursor_advance(struct step *step) {
        struct interpret_cursor *cursor = step->cursor;

        cursor->planned = false;
        cursor->ready = 0;
        cursor->done = 0;
        if (++cursor->k < cursor->n_steps)
                return;
        cursor->k = 0;
        if (++cursor->part == cursor->n_parts)
                step->work->n_left--;
}

/* ---- where things are -------------------------------------------------------------------------------------------- */
/* plan_span() without divisions. */
static struct plan_span span_of(const struct step *step, uint32_t range, const struct plan_vector *vector,
                                uint32_t rank, uint32_t index) {
        const struct interpret_work *work = step->work;
        uint64_t count = work->request->shape.count, skip = work->part_elements * step->cursor->part;
        struct plan_span span = {.length = count};

        switch (range) {
        case PLAN_RANGE_WHOLE:
                break;
        case PLAN_RANGE_SHARD_ME:
        case PLAN_RANGE_SHARD_PEER:
                span.offset = work->shard_elements * (range == PLAN_RANGE_SHARD_ME ? rank : index);
                span.offset = span.offset < count ? span.offset : count;
                span.length = count - span.offset < work->shard_elements ? count - span.offset : work->shard_elements;
                break;
        case PLAN_RANGE_BLOCK_ME:
        case PLAN_RANGE_BLOCK_PEER:
                span.offset = count * (range == PLAN_RANGE_BLOCK_ME ? rank : index);
                break;
        case PLAN_RANGE_VECTOR_SEND:
                span = (struct plan_span){vector->send_offset[index], vector->send_count[index]};
                break;
        case PLAN_RANGE_VECTOR_RECV:
                span = (struct plan_span){vector->recv_offset[index], vector->recv_count[index]};
                break;
        default:
                span.length = 0;
                break;
        }
        skip = skip < span.length ? skip : span.length;
        span.offset += skip;
        span.length -= skip;
        if (span.length > work->part_elements)
                span.length = work->part_elements;
        return span;
}

static struct plan_span span_checked(const struct step *step, uint32_t range, const struct plan_vector *vector,
                                     uint32_t rank, uint32_t index) {
        struct plan_span span = span_of(step, range, vector, rank, index);

#ifndef NDEBUG
        struct plan_shape shape = step->work->request->shape;
        struct plan_span want;

        shape.vector = vector;
        want = plan_span(range, step->plan, step->rank->geometry, &shape, rank, index, step->cursor->part);
        assert(span.offset == want.offset && span.length == want.length);
#endif
        return span;
}

static struct plan_span own_span(const struct step *step, uint32_t range, uint32_t index) {
        return span_checked(step, range, step->work->request->shape.vector, step->rank->me, index);
}

/* A buffer that is not used may have no address, to which not even 0 may be added. */
static unsigned char *place(void *base, uint64_t offset, uint32_t unit) {
        return offset > 0 ? (unsigned char *)base + offset * unit : base;
}

static const unsigned char *const_place(const void *base, uint64_t offset, uint32_t unit) {
        return offset > 0 ? (const unsigned char *)base + offset * unit : base;
}

/* What another rank shows of the same collective. */
static const struct interpret_shared *peer_shared(const struct step *step, uint32_t rank) {
        assert(!(step->rank->away >> rank & 1));
        return &step->rank->ranks[rank].shared;
}

static const unsigned char *input_at(const struct step *step, uint32_t rank, uint32_t index) {
        const struct interpret_shared *shared = peer_shared(step, rank);
        struct plan_span span = span_checked(step, step->phase->in_range, shared->vector, rank, index);

        return const_place(shared->in, span.offset, step->work->element_bytes);
}

static unsigned char *output_at(const struct step *step, uint32_t rank, uint32_t index) {
        const struct interpret_shared *shared = peer_shared(step, rank);
        struct plan_span span = span_checked(step, step->phase->out_range, shared->vector, rank, index);

        return place(shared->out, span.offset, step->work->element_bytes);
}

static const unsigned char *own_in(const struct step *step, struct plan_span span) {
        return const_place(step->work->request->in, span.offset, step->work->element_bytes);
}

static unsigned char *own_out(const struct step *step, struct plan_span span) {
        return place(step->work->request->out, span.offset, step->work->element_bytes);
}

/* ---- one source, one target -------------------------------------------------------------------------------------- */
/* The peer of step k, see phase_peer() in plan/step.c. */
static uint32_t peer_of(const struct step *step) {
        uint32_t n = step->plan->n_ranks, me = step->rank->me, k = step->cursor->k;
        uint32_t peer;

        switch (step->phase->peers) {
        case PLAN_PEERS_OTHERS:
                if (step->phase->kind == PLAN_PUSH || step->phase->kind == PLAN_SIGNAL)
                        peer = me + 1 + k;
                else
                        peer = me + n - 1 - k;
                return peer < n ? peer : peer - n;
        case PLAN_PEERS_ROOT:
                return step->work->request->shape.root;
        case PLAN_PEERS_PEER:
                return step->work->request->shape.peer;
        default:
                return me;
        }
}

/* Pairs that exchange nothing (any more) have no chunk for it. */
static bool skipped(struct step *step, uint32_t range, uint64_t length) {
        if (length > 0 || (range != PLAN_RANGE_VECTOR_SEND && range != PLAN_RANGE_VECTOR_RECV))
                return false;
        cursor_advance(step);
        return true;
}

/* A client's buffers may overlap against the rules: then its data is undefined, our behaviour is not. */
static void copy(void *out, const void *in, uint64_t size) {
        if (size > 0 && out != in)
                memmove(out, in, size);
}

/* Into an output. Past the caches a kernel does it: the sum of one array of bytes. */
static void copy_out(const struct step *step, void *out, const void *in, uint64_t size) {
        struct reduce_call call = {
                .out = &out, .n_out = 1, .source = &in, .n = 1, .n_ranks = 1, .stream = true, .length = size};

        if (!step->work->stream)
                copy(out, in, size);
        else if (size > 0 && out != in)
                step->rank->kernels->fn[RMX_UINT8][RMX_SUM](&call);
}

/* An own contribution, as it goes into a chunk. */
static void contribute(const struct step *step, void *out, const void *in, uint64_t length) {
        const struct interpret_work *work = step->work;
        struct reduce_call call = {
                .out = &out,
                .n_out = 1,
                .source = &in,
                .n = 1,
                .scalar = &work->request->scalar,
                .scaled = 1,
                .n_ranks = step->plan->n_ranks,
                .length = length,
        };

        if (!work->scaled)
                copy(out, in, length * work->element_bytes);
        else if (length > 0)
                work->reduce(&call);
}

static bool run_push(struct step *step, uint64_t *bytes) {
        uint32_t peer = peer_of(step);
        struct plan_span span = own_span(step, step->phase->in_range, peer);
        uint64_t size = span.length * step->work->element_bytes;

        if (skipped(step, step->phase->in_range, span.length))
                return true;
        if (!chunk_may_push(step, peer))
                return false;
        if (size > 0)
                contribute(step, chunk_to(step, peer, size, false), own_in(step, span), span.length);
        chunk_push(step, peer, size, false);
        *bytes += size;
        cursor_advance(step);
        return true;
}

static bool run_signal(struct step *step) {
        const struct gpu_request *request = step->work->request;
        uint32_t peer = peer_of(step);

        if (!chunk_may_push(step, peer))
                return false;
        if (request->shape.role == PLAN_ROLE_SENDER) {
                struct interpret_offer offer = {request->in, request->shape.count * step->work->element_bytes};

                memcpy(chunk_to(step, peer, sizeof(offer), false), &offer, sizeof(offer));
        }
        chunk_push(step, peer, 0, false);
        cursor_advance(step);
        return true;
}

static bool run_wait(struct step *step) {
        struct interpret_work *work = step->work;
        uint32_t peer = peer_of(step);

        if (!chunk_arrived(step, peer))
                return false;
        if (work->request->shape.role == PLAN_ROLE_RECEIVER)
                memcpy(&work->offer, chunk_from(step, peer, sizeof(work->offer), false), sizeof(work->offer));
        chunk_release(step, peer);
        cursor_advance(step);
        return true;
}

static bool run_copy(struct step *step, uint64_t *bytes) {
        uint32_t peer = peer_of(step);
        struct plan_span span = own_span(step, step->phase->out_range, peer);
        uint64_t size = span.length * step->work->element_bytes;

        if (skipped(step, step->phase->out_range, span.length))
                return true;
        if (!chunk_arrived(step, peer))
                return false;
        if (size > 0)
                copy_out(step, own_out(step, span), chunk_from(step, peer, size, false), size);
        chunk_release(step, peer);
        *bytes += size;
        cursor_advance(step);
        return true;
}

/* Copies a piece of the step's `size` bytes; the cursor's `done` counts bytes here. */
static void run_piece(struct step *step, unsigned char *out, const unsigned char *in, uint64_t size, uint64_t *bytes) {
        struct interpret_cursor *cursor = step->cursor;
        uint64_t piece = size - cursor->done;

        if (out != in) {
                if (piece > PIECE_BYTES / 2)
                        piece = PIECE_BYTES / 2;
                copy_out(step, place(out, cursor->done, 1), const_place(in, cursor->done, 1), piece);
                *bytes += piece;
        }
        cursor->done += piece;
        if (cursor->done == size)
                cursor_advance(step);
}

static void run_copy_self(struct step *step, uint64_t *bytes) {
        struct plan_span in = own_span(step, step->phase->in_range, step->rank->me);
        struct plan_span out = own_span(step, step->phase->out_range, step->rank->me);
        uint64_t length = in.length < out.length ? in.length : out.length;

        run_piece(step, own_out(step, out), own_in(step, in), length * step->work->element_bytes, bytes);
}

static void run_read(struct step *step, uint64_t *bytes) {
        const struct interpret_work *work = step->work;
        uint32_t peer = peer_of(step), me = step->rank->me;
        struct plan_span to = own_span(step, step->phase->out_range, peer), from;
        uint64_t size = to.length * work->element_bytes, most;
        const unsigned char *in;

        if (work->request->shape.role == PLAN_ROLE_RECEIVER) {
                uint64_t offset = to.offset * work->element_bytes;

                in = const_place(work->offer.in, offset, 1);
                most = work->offer.bytes > offset ? work->offer.bytes - offset : 0;
        } else {
                const struct interpret_shared *shared = peer_shared(step, peer);

                from = span_checked(step, step->phase->in_range, shared->vector, peer, me);
                in = const_place(shared->in, from.offset, work->element_bytes);
                most = from.length * work->element_bytes;
        }
        /* Whoever starts requests sees to it that both sides say the same. If they do not, at least nothing is read
         * that was not offered. */
        run_piece(step, own_out(step, to), in, size < most ? size : most, bytes);
}

/* ---- any sources and targets ------------------------------------------------------------------------------------- */
static bool is_ready(struct step *step, const struct plan_step *plan) {
        struct interpret_cursor *cursor = step->cursor;

        for (; cursor->ready < plan->n_sources; cursor->ready++) {
                uint32_t peer = plan->source[cursor->ready].rank;

                if (plan->source[cursor->ready].kind == PLAN_SOURCE_CHUNK && !chunk_arrived(step, peer))
                        return false;
        }
        for (; cursor->ready < plan->n_sources + plan->n_targets; cursor->ready++) {
                if (!chunk_may_push(step, plan->target[cursor->ready - plan->n_sources]))
                        return false;
        }
        return true;
}

/* The arguments of a kernel. */
struct operands {
        struct reduce_call call;
        void *out[2 * PLAN_RANKS_MAX];
        const void *source[PLAN_RANKS_MAX];
        uint64_t scalar[PLAN_RANKS_MAX];
};

static void add_source(const struct step *step, const struct plan_step *plan, uint32_t i, struct operands *o) {
        const struct interpret_work *work = step->work;
        const struct plan_source *source = &plan->source[i];
        uint32_t unit = plan->partial_in ? work->partial_bytes : work->element_bytes;

        switch (source->kind) {
        case PLAN_SOURCE_INPUT:
                o->source[i] = input_at(step, source->rank, source->index);
                if (work->scaled) {
                        o->call.scaled |= UINT64_C(1) << i;
                        o->scalar[i] = peer_shared(step, source->rank)->scalar;
                }
                break;
        case PLAN_SOURCE_OUTPUT:
                o->source[i] = output_at(step, step->rank->me, source->index);
                break;
        default:
                o->source[i] = chunk_from(step, source->rank, plan->length * unit, plan->partial_in);
                if (plan->partial_in)
                        o->call.partials |= UINT64_C(1) << i;
                break;
        }
}

static void add_outputs(const struct step *step, const struct plan_step *plan, struct operands *o) {
        uint32_t unit = plan->partial_out ? step->work->partial_bytes : step->work->element_bytes;

        assert(!plan->partial_out || plan->n_outputs == 0);
        for (uint32_t i = 0; i < plan->n_outputs; i++)
                o->out[o->call.n_out++] = output_at(step, plan->output[i].rank, plan->output[i].index);
        for (uint32_t i = 0; i < plan->n_targets; i++)
                o->out[o->call.n_out++] = chunk_to(step, plan->target[i], plan->length * unit, plan->partial_out);
}

/* From element `done`; the length is set. */
static void combine(const struct step *step, const struct plan_step *plan, struct operands *o, uint64_t done) {
        const struct interpret_work *work = step->work;
        struct reduce_call *call = &o->call;
        uint32_t in_bytes = plan->partial_in ? work->partial_bytes : work->element_bytes;
        uint32_t out_bytes = plan->partial_out ? work->partial_bytes : work->element_bytes;

        if (done > 0) { /* FOLD: all are elements */
                for (uint32_t i = 0; i < call->n; i++)
                        o->source[i] = (const unsigned char *)o->source[i] + done * in_bytes;
                for (uint32_t i = 0; i < call->n_out; i++)
                        o->out[i] = (unsigned char *)o->out[i] + done * out_bytes;
        }
        if (call->n == 1 && !call->scaled && !call->finish && (call->partials & 1) == call->out_partial) {
                for (uint32_t i = 0; i < call->n_out; i++)
                        copy(o->out[i], o->source[0], call->length * out_bytes);
                return;
        }
        assert(plan->reduce);
        work->reduce(call);
}

/* Returns whether the step is complete. */
static bool move_data(struct step *step, const struct plan_step *plan, uint64_t *bytes) {
        struct interpret_cursor *cursor = step->cursor;
        const struct interpret_work *work = step->work;
        struct operands o;
        uint64_t length = plan->length, piece, streams;

        o.call = (struct reduce_call){
                .out = o.out,
                .source = o.source,
                .n = plan->n_sources,
                .scalar = o.scalar,
                .n_ranks = step->plan->n_ranks,
                .out_partial = plan->partial_out,
                .finish = plan->finish,
                .stream = work->stream && plan->n_targets == 0,
        };
        for (uint32_t i = 0; i < plan->n_sources; i++)
                add_source(step, plan, i, &o);
        add_outputs(step, plan, &o);
        streams = o.call.n + o.call.n_out;
        if (step->phase->kind == PLAN_FOLD) {
                piece = PIECE_BYTES / (streams * work->element_bytes) / PIECE_ELEMENTS * PIECE_ELEMENTS;
                length = length - cursor->done < piece ? length - cursor->done : piece;
        }
        o.call.length = length;
        combine(step, plan, &o, cursor->done);
        cursor->done += length;
        *bytes += length * work->element_bytes * (streams - 1);
        return cursor->done == plan->length;
}

static bool run_planned(struct step *step, uint64_t *bytes) {
        struct plan_step *plan = &step->rank->step[step->p];
        struct interpret_cursor *cursor = step->cursor;
        struct interpret_rank *rank = step->rank;
        uint64_t size;

        if (!cursor->planned) {
                if (!plan_step(step->plan, step->phase, rank->geometry, &step->work->request->shape, rank->me,
                               cursor->part, cursor->k, plan)) {
                        cursor_advance(step);
                        return true;
                }
                cursor->planned = true;
        }
        if (!is_ready(step, plan))
                return false;
        if (plan->length > 0 && !move_data(step, plan, bytes))
                return true;
        size = plan->length * (plan->partial_out ? step->work->partial_bytes : step->work->element_bytes);
        for (uint32_t i = 0; i < plan->n_targets; i++)
                chunk_push(step, plan->target[i], plan->data ? size : 0, plan->partial_out);
        for (uint32_t i = 0; i < plan->n_sources; i++)
                if (plan->source[i].kind == PLAN_SOURCE_CHUNK)
                        chunk_release(step, plan->source[i].rank);
        cursor_advance(step);
        return true;
}

bool step_run(struct interpret_rank *rank, struct interpret_work *work, uint32_t p, uint64_t *bytes) {
        const struct plan *plan = work->plan;
        struct step step = {rank, work, plan, &plan->phases[p], &work->cursor[p], p};

        switch (step.phase->kind) {
        case PLAN_PUSH:
                return run_push(&step, bytes);
        case PLAN_SIGNAL:
                return run_signal(&step);
        case PLAN_WAIT:
                return run_wait(&step);
        case PLAN_COPY:
                if (step.phase->peers != PLAN_PEERS_SELF)
                        return run_copy(&step, bytes);
                run_copy_self(&step, bytes);
                return true;
        case PLAN_READ:
                run_read(&step, bytes);
                return true;
        default:
                assert(step.phase->kind == PLAN_REDUCE || step.phase->kind == PLAN_FOLD ||
                       step.phase->kind == PLAN_PASS);
                return run_planned(&step, bytes);
        }
}
