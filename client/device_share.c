/* SPDX-License-Identifier: MIT */
/*
 * A bell area for each rank
 *
 * Who takes places. The bell kernels, on the GPU: each draws the area's next number, and the number says which place it
 * has. (So nothing of it is in a captured graph, which draws new numbers at each replay; the area's address is.) The
 * place is free when the request that had it 64 numbers ago is over, and workers read an area's lines in the order of
 * their numbers. So a request that waits for long is in the way of the 64th after it, and of all that come later,
 * whoever they are, however few requests are outstanding.
 *
 * Between processes that harms nobody who is waited for: each has an area of its own. But where ranks of one
 * communicator are threads of one process on one GPU, the request of rank A may wait for rank B, others ring 63 more,
 * the next one waits for A's place, and B's bell comes behind it. Then all of them wait for ever. To give each rank a
 * part of the 64 places would not do: what is scarce is not places but turns, so parts would need a counter, a line to
 * look at and an order of their own, as areas have. Nor can the host see to it, since graphs are replayed without it.
 *
 * So they get areas of their own. An area is to a rank what it is to a process: bell kernels are told where it is, and
 * neither they nor the workers do anything that they did not do before; processes with one rank on a GPU have the one
 * area that they always had, with all its places. Since to the daemon and to executors an area is that of a session,
 * those ranks join in another session, an annex, which this one opens and closes. It has its own connection and its own
 * names of memory; the program sees nothing of it.
 *
 * Which rank has which area. The first rank of a communicator in this session and on its GPU takes the session's own
 * area, the second one that of the first annex, and so on. They all are joining at the same time, because none returns
 * before all have called; so it is enough to count those, and communicators that come and go leave nothing behind. All
 * communicators share the annexes, so their number is that of the ranks of the largest one, not that of the
 * communicators. A rank stays where it is; what is split off it stays there too, since the daemon knows the parent by
 * its session.
 *
 * An area is made when the first rank needs it, and a runtime may wait for the process's kernels then, as it does when
 * it allocates and pins. So a program with ranks in threads does well to begin with the communicator of all of them,
 * before anything waits.
 *
 * Limits. There are DEVICE_SHARES areas; ranks beyond share them evenly, as do all ranks here if an annex cannot be
 * opened (the tenant's sessions, the executor's areas): that is no error, since most programs run well so. What is not
 * mended is what processes have too: if A's area is full behind a request that waits for something behind a request
 * that waits for what comes later in A's area, which takes two communicators, used in different orders, and 63 others
 * after each.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/device.h"
#include "client/device_share.h"
#include "client/session.h"

void device_shares_init(struct device_shares *shares) {
        *shares = (struct device_shares){0};
        pthread_mutex_init(&shares->mutex, NULL);
        pthread_mutex_init(&shares->opening, NULL);
}

void device_shares_deinit(struct device_shares *shares) {
        pthread_mutex_destroy(&shares->mutex);
        pthread_mutex_destroy(&shares->opening);
}

struct rmx_session *device_share_annex(struct rmx_session *session, uint32_t i) {
        struct rmx_session *annex;

        pthread_mutex_lock(&session->shares.mutex);
        annex = session->shares.annex[i];
        pthread_mutex_unlock(&session->shares.mutex);
        return annex;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */
/* With the mutex: the area that has the fewest of the id's ranks on this GPU. */
static uint32_t share_choose(const struct device_shares *shares, const struct rmx_id *id, uint32_t gpu) {
        uint32_t ranks[DEVICE_SHARES] = {0}, least = 0;
        const struct device_share *other;

        DL_FOREACH(shares->joining, other) {
                if (other->gpu == gpu && !memcmp(&other->id, id, sizeof(*id)))
                        ranks[other->number]++;
        }
        for (uint32_t i = 1; i < DEVICE_SHARES; i++)
                least = ranks[i] < ranks[least] ? i : least;
        return least;
}

/* The annex, with its area on the GPU. NULL: it cannot be had. */
static struct rmx_session *annex_open(struct rmx_session *session, uint32_t i, uint32_t gpu,
                                      struct rmx_cancel *cancel) {
        struct device_shares *shares = &session->shares;
        struct rmx_session *annex;
        struct device *device;

        pthread_mutex_lock(&shares->opening);
        annex = device_share_annex(session, i);
        if (!annex && !session_open_annex(session, cancel, &annex)) {
                pthread_mutex_lock(&shares->mutex);
                shares->annex[i] = annex;
                pthread_mutex_unlock(&shares->mutex);
        }
        pthread_mutex_unlock(&shares->opening);
        if (!annex || rpc_lost(&annex->rpc))
                return NULL;
        return device_get(annex, __func__, gpu, cancel, &device) ? NULL : annex;
}

struct rmx_session *device_share_enter(struct rmx_session *session, const struct rmx_id *id, uint32_t gpu,
                                       struct rmx_cancel *cancel, struct device_share *share) {
        struct device_shares *shares = &session->shares;
        struct rmx_session *annex;

        *share = (struct device_share){.id = *id, .gpu = gpu};
        pthread_mutex_lock(&shares->mutex);
        share->number = share_choose(shares, id, gpu);
        DL_APPEND(shares->joining, share);
        pthread_mutex_unlock(&shares->mutex);
        if (!share->number || gpu >= session->n_gpus)
                return session;
        annex = annex_open(session, share->number - 1, gpu, cancel);
        return annex ? annex : session;
}

void device_share_leave(struct rmx_session *session, struct device_share *share) {
        pthread_mutex_lock(&session->shares.mutex);
        DL_DELETE(session->shares.joining, share);
        pthread_mutex_unlock(&session->shares.mutex);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* The annex's half of the device, if it has been opened. */
static struct device *annex_device(const struct device *device, uint32_t i) {
        struct rmx_session *annex = device_share_annex(device->session, i);

        /* acquire; partner: the release in device_get. */
        return annex ? atomic_load_explicit(&annex->devices[device->gpu], memory_order_acquire) : NULL;
}

int device_shares_name(struct device *device, const char *what, const struct client_gpu_memory *memory) {
        int r = RMX_OK;

        for (uint32_t i = 0; i < DEVICE_SHARES - 1 && !r; i++) {
                struct device *other = annex_device(device, i);
                uint32_t buffer;

                if (other)
                        r = device_memory_name(other, what, memory, &buffer);
        }
        return r;
}

int device_shares_forget(struct device *device, const char *what, const void *address) {
        int r = RMX_OK;

        for (uint32_t i = 0; i < DEVICE_SHARES - 1; i++) {
                struct device *other = annex_device(device, i);
                int forgotten = other ? device_memory_forget(other, what, address) : RMX_OK;

                r = r ? r : forgotten;
        }
        return r;
}
