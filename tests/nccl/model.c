/* SPDX-License-Identifier: MIT */
/*
 * The model: as much of NCCL's interface as the suite's calls need, for ranks of one process, in host memory.
 *
 * It is there to show that the suite finds what it looks for, without a daemon: as it is, nothing may be reported, and
 * with each of its defects something must be.
 *
 * Everything happens under one lock. A thread posts what its group holds, or its one call, and waits until all of it is
 * done. A collective is run by the rank that comes last; a send or receive by the one of the two that comes later.
 */
#include "tests/nccl/model.h"

#include <pthread.h>
#include <railmux/railmux.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/abi.h"

#define EXPORT    __attribute__((visibility("default")))
#define WORLDS    64
#define SLOTS     256 /* collectives of a communicator that are not complete */
#define GROUP_MAX 1024
#define REDOPS    64

struct slot {
        struct model_call *calls[MODEL_RANKS_MAX];
        int arrived;
        uint64_t number; /* how often it was run */
};

struct post {
        struct model_call call;
        struct ncclComm *comm;
        struct post *next; /* of those that wait between the same two ranks */
        bool done;
        uint64_t sequence;
};

struct model_world {
        struct nccl_id id;
        int n_ranks, joined, left;
        struct slot slots[SLOTS];
        struct post *waiting[2][MODEL_RANKS_MAX][MODEL_RANKS_MAX]; /* sends, receives; from, to */
};

struct ncclComm {
        struct model_world *world;
        int rank;
        uint64_t sequence;
        struct {
                const void *memory; /* NULL: immediate */
                uint64_t bits;
                bool used;
        } redops[REDOPS];
};

static struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct model_world *worlds[WORLDS];
        uint64_t ids, calls;
} model = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local struct {
        int depth, n;
        struct post *posts[GROUP_MAX];
} group;

static enum model_defect defect_now(void) {
        return model_defect_named(getenv("NCCL_MODEL_DEFECT"));
}

/* ---- posting ----------------------------------------------------------------------------------------------------- */
static void post_collective(struct post *p) {
        struct model_world *w = p->comm->world;
        struct slot *slot = &w->slots[p->sequence % SLOTS];

        slot->calls[p->comm->rank] = &p->call;
        if (++slot->arrived < w->n_ranks)
                return;
        model_run(slot->calls, w->n_ranks, defect_now(), p->sequence);
        slot->arrived = 0;
        slot->number++;
}

static void post_transfer(struct post *p) {
        bool sends = p->call.kind == MODEL_SEND;
        int from = sends ? p->comm->rank : p->call.peer, to = sends ? p->call.peer : p->comm->rank;
        struct post **other = &p->comm->world->waiting[sends][from][to], *peer = *other;
        struct post **own = &p->comm->world->waiting[!sends][from][to];

        if (peer) { /* waiting[0] holds sends, waiting[1] receives */
                struct post *s = sends ? p : peer, *r = sends ? peer : p;

                *other = peer->next;
                memcpy(r->call.out, s->call.in, s->call.count * rmx_type_size((uint32_t)s->call.type));
                p->done = peer->done = true;
                return;
        }
        while (*own)
                own = &(*own)->next;
        *own = p;
}

static void post(struct post *p) {
        if (p->call.kind == MODEL_JOIN) {
                p->comm->world->joined++;
        } else if (p->call.kind == MODEL_SEND || p->call.kind == MODEL_RECV) {
                post_transfer(p);
        } else {
                p->sequence = p->comm->sequence++;
                post_collective(p);
        }
}

static bool is_done(const struct post *p) {
        if (p->call.kind == MODEL_JOIN)
                return p->comm->world->joined == p->comm->world->n_ranks;
        if (p->call.kind == MODEL_SEND || p->call.kind == MODEL_RECV)
                return p->done;
        return p->comm->world->slots[p->sequence % SLOTS].number > p->sequence / SLOTS;
}

static int issue(void) {
        pthread_mutex_lock(&model.lock);
        for (int i = 0; i < group.n; i++)
                post(group.posts[i]);
        pthread_cond_broadcast(&model.changed);
        for (int i = 0; i < group.n; i++) {
                while (!is_done(group.posts[i]))
                        pthread_cond_wait(&model.changed, &model.lock);
        }
        pthread_mutex_unlock(&model.lock);
        for (int i = 0; i < group.n; i++)
                free(group.posts[i]);
        group.n = 0;
        return NCCL_SUCCESS;
}

static int submit(struct ncclComm *comm, const struct model_call *call) {
        struct post *p = calloc(1, sizeof(*p));
        enum model_defect defect = defect_now();
        int result;

        if (!p || group.n == GROUP_MAX) {
                free(p);
                return NCCL_SYSTEM_ERROR;
        }
        p->call = *call;
        p->comm = comm;
        if (call->kind != MODEL_JOIN && __atomic_add_fetch(&model.calls, 1, __ATOMIC_RELAXED) == 50) {
                if (defect == DEFECT_ERROR) {
                        free(p);
                        return NCCL_INTERNAL_ERROR;
                }
                if (defect == DEFECT_CRASH)
                        raise(SIGSEGV);
                while (defect == DEFECT_HANG) {
                        pthread_mutex_lock(&model.lock);
                        pthread_cond_wait(&model.changed, &model.lock);
                        pthread_mutex_unlock(&model.lock);
                }
        }
        group.posts[group.n++] = p;
        result = group.depth == 0 ? issue() : NCCL_SUCCESS;
        return result;
}

EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupStart(void) {
        group.depth++;
        return NCCL_SUCCESS;
}

EXPORT int ncclGroupEnd(void);
EXPORT int ncclGroupEnd(void) {
        if (group.depth == 0)
                return NCCL_INVALID_USAGE;
        return --group.depth ? NCCL_SUCCESS : issue();
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
EXPORT int ncclGetUniqueId(struct nccl_id *id);
EXPORT int ncclGetUniqueId(struct nccl_id *id) {
        *id = (struct nccl_id){0};
        pthread_mutex_lock(&model.lock);
        model.ids++;
        memcpy(id->bytes, &model.ids, sizeof(model.ids));
        pthread_mutex_unlock(&model.lock);
        return NCCL_SUCCESS;
}

static struct model_world *world_find(const struct nccl_id *id, int n_ranks) {
        int i;

        for (i = 0; i < WORLDS && model.worlds[i]; i++)
                if (!memcmp(&model.worlds[i]->id, id, sizeof(*id)))
                        return model.worlds[i];
        if (i == WORLDS)
                return NULL;
        model.worlds[i] = calloc(1, sizeof(*model.worlds[i]));
        if (model.worlds[i]) {
                model.worlds[i]->id = *id;
                model.worlds[i]->n_ranks = n_ranks;
        }
        return model.worlds[i];
}

EXPORT int ncclCommInitRank(struct ncclComm **ret_comm, int n_ranks, struct nccl_id id, int rank);
EXPORT int ncclCommInitRank(struct ncclComm **ret_comm, int n_ranks, struct nccl_id id, int rank) {
        struct ncclComm *comm = calloc(1, sizeof(*comm));

        pthread_mutex_lock(&model.lock);
        if (comm)
                comm->world = world_find(&id, n_ranks);
        pthread_mutex_unlock(&model.lock);
        if (!comm || !comm->world) {
                free(comm);
                return NCCL_SYSTEM_ERROR;
        }
        comm->rank = rank;
        *ret_comm = comm;
        return submit(comm, &(struct model_call){.kind = MODEL_JOIN});
}

EXPORT int ncclCommInitAll(struct ncclComm **ret_comms, int n, const int *devices);
EXPORT int ncclCommInitAll(struct ncclComm **ret_comms, int n, const int *devices) {
        struct nccl_id id;
        int result = NCCL_SUCCESS;

        (void)devices;
        ncclGetUniqueId(&id);
        ncclGroupStart();
        for (int i = 0; i < n && result == NCCL_SUCCESS; i++)
                result = ncclCommInitRank(&ret_comms[i], n, id, i);
        ncclGroupEnd();
        return result;
}

EXPORT int ncclCommDestroy(struct ncclComm *comm);
EXPORT int ncclCommDestroy(struct ncclComm *comm) {
        pthread_mutex_lock(&model.lock);
        if (++comm->world->left == comm->world->n_ranks)
                for (int i = 0; i < WORLDS; i++)
                        if (model.worlds[i] == comm->world) {
                                int last = WORLDS - 1;

                                while (!model.worlds[last])
                                        last--;
                                free(model.worlds[i]);
                                model.worlds[i] = model.worlds[last];
                                model.worlds[last] = NULL;
                                break;
                        }
        pthread_mutex_unlock(&model.lock);
        free(comm);
        return NCCL_SUCCESS;
}

EXPORT int ncclCommGetAsyncError(struct ncclComm *comm, int *ret_error);
EXPORT int ncclCommGetAsyncError(struct ncclComm *comm, int *ret_error) {
        (void)comm;
        *ret_error = NCCL_SUCCESS;
        return NCCL_SUCCESS;
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */
EXPORT int ncclRedOpCreatePreMulSum(int *ret_op, void *scalar, int type, int residence, struct ncclComm *comm);
EXPORT int ncclRedOpCreatePreMulSum(int *ret_op, void *scalar, int type, int residence, struct ncclComm *comm) {
        for (int i = 0; i < REDOPS; i++) {
                if (comm->redops[i].used)
                        continue;
                comm->redops[i].used = true;
                comm->redops[i].bits = 0;
                comm->redops[i].memory =
                        residence == NCCL_SCALAR_DEVICE || defect_now() == DEFECT_FACTOR ? scalar : NULL;
                memcpy(&comm->redops[i].bits, scalar, rmx_type_size((uint32_t)type));
                *ret_op = NCCL_REDOP_BUILTIN + i;
                return NCCL_SUCCESS;
        }
        return NCCL_SYSTEM_ERROR;
}

EXPORT int ncclRedOpDestroy(int op, struct ncclComm *comm);
EXPORT int ncclRedOpDestroy(int op, struct ncclComm *comm) {
        comm->redops[op - NCCL_REDOP_BUILTIN].used = false;
        return NCCL_SUCCESS;
}

static int submit_reduction(struct ncclComm *comm, struct model_call *call, int redop) {
        call->redop = redop;
        if (redop >= NCCL_REDOP_BUILTIN) {
                int i = redop - NCCL_REDOP_BUILTIN;

                call->redop = NCCL_SUM;
                call->has_factor = true;
                call->factor = comm->redops[i].bits;
                if (comm->redops[i].memory)
                        memcpy(&call->factor, comm->redops[i].memory, rmx_type_size((uint32_t)call->type));
        }
        return submit(comm, call);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */
#define REDUCTION(name, model_kind)                                                                                    \
        EXPORT int name(const void *in, void *out, size_t count, int type, int redop, struct ncclComm *comm,           \
                        void *stream);                                                                                 \
        EXPORT int name(const void *in, void *out, size_t count, int type, int redop, struct ncclComm *comm,           \
                        void *stream) {                                                                                \
                struct model_call call = {.kind = model_kind, .in = in, .out = out, .count = count, .type = type};     \
                                                                                                                       \
                (void)stream;                                                                                          \
                return submit_reduction(comm, &call, redop);                                                           \
        }
REDUCTION(ncclAllReduce, MODEL_ALL_REDUCE)
REDUCTION(ncclReduceScatter, MODEL_REDUCE_SCATTER)

EXPORT int ncclReduce(const void *in, void *out, size_t count, int type, int redop, int root, struct ncclComm *comm,
                      void *stream);
EXPORT int ncclReduce(const void *in, void *out, size_t count, int type, int redop, int root, struct ncclComm *comm,
                      void *stream) {
        struct model_call call = {
                .kind = MODEL_REDUCE, .in = in, .out = out, .count = count, .type = type, .peer = root};

        (void)stream;
        return submit_reduction(comm, &call, redop);
}

#define MOVE(name, model_kind)                                                                                         \
        EXPORT int name(const void *in, void *out, size_t count, int type, struct ncclComm *comm, void *stream);       \
        EXPORT int name(const void *in, void *out, size_t count, int type, struct ncclComm *comm, void *stream) {      \
                struct model_call call = {.kind = model_kind, .in = in, .out = out, .count = count, .type = type};     \
                                                                                                                       \
                (void)stream;                                                                                          \
                return submit(comm, &call);                                                                            \
        }
MOVE(ncclAllGather, MODEL_ALL_GATHER)
MOVE(ncclAlltoAll, MODEL_ALL_TO_ALL)
MOVE(ncclAllToAll, MODEL_ALL_TO_ALL)

#define ROOTED(name, model_kind)                                                                                       \
        EXPORT int name(const void *in, void *out, size_t count, int type, int root, struct ncclComm *comm,            \
                        void *stream);                                                                                 \
        EXPORT int name(const void *in, void *out, size_t count, int type, int root, struct ncclComm *comm,            \
                        void *stream) {                                                                                \
                struct model_call call = {                                                                             \
                        .kind = model_kind, .in = in, .out = out, .count = count, .type = type, .peer = root};         \
                                                                                                                       \
                (void)stream;                                                                                          \
                return submit(comm, &call);                                                                            \
        }
ROOTED(ncclBroadcast, MODEL_BROADCAST)
ROOTED(ncclGather, MODEL_GATHER)
ROOTED(ncclScatter, MODEL_SCATTER)

EXPORT int ncclBcast(void *buffer, size_t count, int type, int root, struct ncclComm *comm, void *stream);
EXPORT int ncclBcast(void *buffer, size_t count, int type, int root, struct ncclComm *comm, void *stream) {
        return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

EXPORT int ncclAllToAllv(const void *in, const size_t *send_count, const size_t *send_at, void *out,
                         const size_t *recv_count, const size_t *recv_at, int type, struct ncclComm *comm,
                         void *stream);
EXPORT int ncclAllToAllv(const void *in, const size_t *send_count, const size_t *send_at, void *out,
                         const size_t *recv_count, const size_t *recv_at, int type, struct ncclComm *comm,
                         void *stream) {
        struct model_call call = {.kind = MODEL_ALL_TO_ALL_V, .in = in, .out = out, .type = type};
        size_t bytes = (size_t)comm->world->n_ranks * sizeof(size_t);

        (void)stream;
        memcpy(call.send_count, send_count, bytes);
        memcpy(call.send_at, send_at, bytes);
        memcpy(call.recv_count, recv_count, bytes);
        memcpy(call.recv_at, recv_at, bytes);
        return submit(comm, &call);
}

EXPORT int ncclSend(const void *in, size_t count, int type, int peer, struct ncclComm *comm, void *stream);
EXPORT int ncclSend(const void *in, size_t count, int type, int peer, struct ncclComm *comm, void *stream) {
        (void)stream;
        return submit(comm,
                      &(struct model_call){.kind = MODEL_SEND, .in = in, .count = count, .type = type, .peer = peer});
}

EXPORT int ncclRecv(void *out, size_t count, int type, int peer, struct ncclComm *comm, void *stream);
EXPORT int ncclRecv(void *out, size_t count, int type, int peer, struct ncclComm *comm, void *stream) {
        (void)stream;
        return submit(comm,
                      &(struct model_call){.kind = MODEL_RECV, .out = out, .count = count, .type = type, .peer = peer});
}
