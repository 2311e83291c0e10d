/* SPDX-License-Identifier: MIT */
/* A case as calls of the library. */
#include "tests/nccl/exchange.h"

bool exchange_is_there(const struct nccl_api *api, enum call_op op) {
        switch (op) {
        case CALL_ALL_TO_ALL:
                return api->AlltoAll;
        case CALL_ALL_TO_ALL_RCCL:
                return api->AllToAll;
        case CALL_ALL_TO_ALL_V:
                return api->AlltoAllv;
        case CALL_ALL_TO_ALL_V_RCCL:
                return api->AllToAllv;
        case CALL_GATHER:
                return api->Gather;
        case CALL_SCATTER:
                return api->Scatter;
        default:
                return true;
        }
}

static bool is_root_call(enum call_op op) {
        return op == CALL_REDUCE || op == CALL_BROADCAST || op == CALL_GATHER || op == CALL_SCATTER;
}

/* The first result that is none of the good ones. */
static int worst(int a, int b) {
        return a != NCCL_SUCCESS ? a : b;
}

static int call_point_to_point(const struct exchange *x, uint32_t i, const char *in, char *out) {
        const struct nccl_api *api = x->team->api;
        const struct member *m = &x->member[i];
        size_t count = x->c.count, block = count * x->unit;
        uint32_t n = x->n_ranks, peer = x->c.op == CALL_PAIRS && (m->rank ^ 1u) < n ? m->rank ^ 1u : m->rank;
        int result = api->GroupStart();

        switch (x->c.op) {
        case CALL_RING:
                result = worst(result, api->Send(in, count, x->c.type, (int)((m->rank + 1) % n), m->comm, m->stream));
                result = worst(result,
                               api->Recv(out, count, x->c.type, (int)((m->rank + n - 1) % n), m->comm, m->stream));
                break;
        case CALL_EVERYONE: /* receives first, and in another order on each rank */
                for (uint32_t k = 0; k < n; k++) {
                        peer = (m->rank + k) % n;
                        result = worst(result,
                                       api->Recv(out + peer * block, count, x->c.type, (int)peer, m->comm, m->stream));
                }
                for (peer = n; peer-- > 0;)
                        result = worst(result,
                                       api->Send(in + peer * block, count, x->c.type, (int)peer, m->comm, m->stream));
                break;
        default:
                result = worst(result, api->Send(in, count, x->c.type, (int)peer, m->comm, m->stream));
                result = worst(result, api->Recv(out, count, x->c.type, (int)peer, m->comm, m->stream));
                break;
        }
        return worst(result, api->GroupEnd());
}

/* Ranks of even number send first, the others receive first: nobody waits in a circle. */
static int call_chain(const struct exchange *x, uint32_t i, const char *in, char *out) {
        const struct nccl_api *api = x->team->api;
        const struct member *m = &x->member[i];
        int result = NCCL_SUCCESS;

        for (uint32_t k = 0; k < 2; k++) {
                if (m->rank % 2 == k && m->rank + 1 < x->n_ranks)
                        result = worst(result,
                                       api->Send(in, x->c.count, x->c.type, (int)m->rank + 1, m->comm, m->stream));
                else if (m->rank % 2 != k && m->rank > 0)
                        result = worst(result,
                                       api->Recv(out, x->c.count, x->c.type, (int)m->rank - 1, m->comm, m->stream));
        }
        return result;
}

static int call_fan(const struct exchange *x, uint32_t i, const char *in, char *out) {
        const struct nccl_api *api = x->team->api;
        const struct member *m = &x->member[i];
        size_t count = x->c.count, block = count * x->unit;
        int type = x->c.type, root = (int)x->c.root, result;
        bool out_of_root = x->c.op == CALL_FAN_OUT;

        if (m->rank != x->c.root)
                return out_of_root ? api->Recv(out, count, type, root, m->comm, m->stream)
                                   : api->Send(in, count, type, root, m->comm, m->stream);
        result = api->GroupStart();
        for (uint32_t r = 0; r < x->n_ranks; r++)
                result = worst(result, out_of_root
                                               ? api->Send(in + r * block, count, type, (int)r, m->comm, m->stream)
                                               : api->Recv(out + r * block, count, type, (int)r, m->comm, m->stream));
        /* The root's own block, too. */
        result = worst(result, out_of_root ? api->Recv(out, count, type, root, m->comm, m->stream)
                                           : api->Send(in, count, type, root, m->comm, m->stream));
        return worst(result, api->GroupEnd());
}

static int call_reduction(const struct exchange *x, uint32_t i, const void *in, void *out, int redop) {
        const struct nccl_api *api = x->team->api;
        const struct member *m = &x->member[i];

        switch (x->c.op) {
        case CALL_ALL_REDUCE:
                return api->AllReduce(in, out, x->c.count, x->c.type, redop, m->comm, m->stream);
        case CALL_REDUCE:
                return api->Reduce(in, out, x->c.count, x->c.type, redop, (int)x->c.root, m->comm, m->stream);
        default:
                return api->ReduceScatter(in, out, x->c.count, x->c.type, redop, m->comm, m->stream);
        }
}

/* With a reduction made for this call, and destroyed as soon as it is issued. */
static int call_reduction_premul(const struct exchange *x, uint32_t i, const void *in, void *out) {
        const struct nccl_api *api = x->team->api;
        bool memory = x->c.redop == CALL_PREMUL_MEMORY;
        char immediate[8] = {0};
        int redop, result;

        pattern_factor(&x->pattern, x->member[i].rank, immediate);
        result = api->RedOpCreatePreMulSum(&redop, memory ? x->side[i].factor : immediate, x->c.type,
                                           memory ? NCCL_SCALAR_DEVICE : NCCL_SCALAR_IMMEDIATE, x->member[i].comm);
        if (result != NCCL_SUCCESS)
                return result;
        immediate[0] ^= 0x55; /* it was read already */
        result = call_reduction(x, i, in, out, redop);
        return worst(result, api->RedOpDestroy(redop, x->member[i].comm));
}

int exchange_call(const struct exchange *x, uint32_t i) {
        const struct nccl_api *api = x->team->api;
        const struct member *m = &x->member[i];
        const struct call_case *c = &x->c;
        const char *in = (c->in_place ? x->side[i].out.there : x->side[i].in.there) + x->side[i].in_at;
        char *out = x->side[i].out.there + x->side[i].out_at;
        int root = (int)c->root;

        if (c->null_unused && is_root_call(c->op) && m->rank != c->root) {
                in = c->op == CALL_BROADCAST || c->op == CALL_SCATTER ? NULL : in;
                out = c->op == CALL_REDUCE || c->op == CALL_GATHER ? NULL : out;
        }
        switch (c->op) {
        case CALL_ALL_REDUCE:
        case CALL_REDUCE:
        case CALL_REDUCE_SCATTER:
                return c->redop >= CALL_PREMUL_IMMEDIATE ? call_reduction_premul(x, i, in, out)
                                                         : call_reduction(x, i, in, out, c->redop);
        case CALL_BROADCAST:
                return api->Broadcast(in, out, c->count, c->type, root, m->comm, m->stream);
        case CALL_BCAST:
                return api->Bcast(out, c->count, c->type, root, m->comm, m->stream);
        case CALL_ALL_GATHER:
                return api->AllGather(in, out, c->count, c->type, m->comm, m->stream);
        case CALL_ALL_TO_ALL:
                return api->AlltoAll(in, out, c->count, c->type, m->comm, m->stream);
        case CALL_ALL_TO_ALL_RCCL:
                return api->AllToAll(in, out, c->count, c->type, m->comm, m->stream);
        case CALL_ALL_TO_ALL_V:
        case CALL_ALL_TO_ALL_V_RCCL:
                return (c->op == CALL_ALL_TO_ALL_V ? api->AlltoAllv : api->AllToAllv)(
                        in, x->side[i].send_count, x->side[i].send_at, out, x->side[i].recv_count, x->side[i].recv_at,
                        c->type, m->comm, m->stream);
        case CALL_GATHER:
                return api->Gather(in, out, c->count, c->type, root, m->comm, m->stream);
        case CALL_SCATTER:
                return api->Scatter(in, out, c->count, c->type, root, m->comm, m->stream);
        case CALL_CHAIN:
                return call_chain(x, i, in, out);
        case CALL_FAN_OUT:
        case CALL_FAN_IN:
                return call_fan(x, i, in, out);
        default:
                return call_point_to_point(x, i, in, out);
        }
}
