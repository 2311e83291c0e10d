/* SPDX-License-Identifier: MIT */
/*
 * What a program may ask: whether a communicator is made, at rest or failed, and the three questions about a rank. It
 * may ask at any time and in any thread, also while the handle ends.
 */
#include "client/nccl/comm.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/pending.h"
#include "client/nccl/session.h"
#include "railmux/railmux.h"

/* Its program has revoked it, and wants to hear when it is at rest, to go on with what is left; whoever ended it, and
 * whoever died, is the reason. */
static bool is_quieted(struct ncclComm *comm, int code) {
        return (code == RMX_E_ABORTED || code == RMX_E_PEER_LOST) && atomic_load(&comm->quieted);
}

/* Is nothing under way any more? True of one that is not finalized, or has waited. */
static bool comm_is_settled(struct ncclComm *comm) {
        if (!atomic_load(&comm->finalizing))
                return true;
        if (atomic_exchange(&comm->looking, true)) /* one at a time may */
                return false;
        if (rmx_comm_finish(comm->rmx, 0) != RMX_E_TIMEOUT)
                atomic_store(&comm->finalizing, false);
        atomic_store(&comm->looking, false);
        return !atomic_load(&comm->finalizing);
}

/* Of one that is ready and has no error yet. */
static ncclResult_t comm_look(struct ncclComm *comm, const char *what) {
        ncclResult_t result = ncclSuccess;
        bool progresses;
        int call, r;

        progresses = pendings_look(comm, &call);
        progresses |= !comm_is_settled(comm);             /* before the error, which may be what ends it */
        progresses |= atomic_load(&comm->n_revokes) != 0; /* executors may be at work in its memory yet */
        r = rmx_comm_error(comm->rmx);
        r = is_quieted(comm, r) ? RMX_OK : r;
        call = is_quieted(comm, call) ? RMX_OK : call;
        if (r)
                result = error_adopt(what, r);
        else if (call) /* its text was kept when it failed */
                result = error_of_code(call);
        else if (atomic_load(&comm->session->lost))
                result = error_raise(ncclSystemError, "%s: the daemon is gone", what);
        if (result)
                atomic_store(&comm->error, result);
        return !result && progresses ? ncclInProgress : result;
}

/* Of one that is ready. */
static ncclResult_t comm_state(struct ncclComm *comm, const char *what) {
        ncclResult_t result = (ncclResult_t)atomic_load(&comm->error);

        if (result == ncclRemoteError && atomic_load(&comm->quieted)) /* heard before that */
                result = ncclSuccess;
        return result ? result : comm_look(comm, what);
}

ncclResult_t comm_finalize(struct ncclComm *comm, const char *what) {
        if (comm->config.blocking)
                comm_settle(comm);
        else
                atomic_store(&comm->finalizing, true);
        return comm_state(comm, what);
}

/* Of one that the other library has not made, has not made yet, or has taken back. What it comes from is in progress
 * meanwhile, if that is still there. */
static ncclResult_t ask_origin(struct ncclComm *comm, ncclResult_t *ret_error) {
        struct ncclComm *origin = comm->origin;
        ncclResult_t result = ncclSuccess;

        *ret_error = comm->begun && !origin ? ncclInProgress : ncclSuccess;
        /* An abort is told to that library at once, and closes the handle later, perhaps at the end of a group. */
        if (origin && !(atomic_fetch_add(&origin->users, 1) & COMM_CLOSING) && !atomic_load(&origin->aborted) &&
            origin->real == comm->real_origin)
                result = FALLBACK(comm->fallback, ncclCommGetAsyncError, comm->real_origin, ret_error);
        if (origin)
                comm_exit(origin);
        if (result || *ret_error == ncclInProgress)
                return result;
        if (comm->real) /* it came meanwhile */
                return FALLBACK(comm->fallback, ncclCommGetAsyncError, comm->real, ret_error);
        *ret_error = ncclInvalidUsage;
        return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
        ncclResult_t result = comm_valid(comm, __func__);

        if (result)
                return result;
        if (!asyncError)
                return error_raise(ncclInvalidArgument, "%s: asyncError is NULL", __func__);
        if (comm->fallback)
                comm_sweep(); /* programs ask now and then */
        if (comm->real)
                return FALLBACK(comm->fallback, ncclCommGetAsyncError, comm->real, asyncError);
        if (comm->fallback)
                return ask_origin(comm, asyncError);
        if (atomic_fetch_add(&comm->users, 1) & COMM_CLOSING) {
                comm_exit(comm);
                *asyncError = ncclSuccess;
                return ncclSuccess;
        }
        comm_lock();
        result = comm->n_pending ? ncclInProgress : (ncclResult_t)atomic_load(&comm->state);
        comm_unlock();
        if (!result)
                result = comm_state(comm, __func__);
        comm_exit(comm);
        *asyncError = result;
        return ncclSuccess;
}
TWIN(ncclCommGetAsyncError);

/* The three questions about a rank. */
static ncclResult_t ask(struct ncclComm *comm, const char *what, const int *answer, int *ret_value) {
        ncclResult_t result;

        if (!ret_value)
                return error_raise(ncclInvalidArgument, "%s: the pointer for the answer is NULL", what);
        result = comm_enter_any(comm, what);
        if (result)
                return result;
        *ret_value = *answer;
        comm_exit(comm);
        return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
        if (comm && comm->magic == COMM_MAGIC && comm->real)
                return FALLBACK(comm->fallback, ncclCommCount, comm->real, count);
        return ask(comm, __func__, comm ? &comm->n_ranks : NULL, count);
}
TWIN(ncclCommCount);

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
        if (comm && comm->magic == COMM_MAGIC && comm->real)
                return FALLBACK(comm->fallback, ncclCommCuDevice, comm->real, device);
        return ask(comm, __func__, comm ? &comm->device : NULL, device);
}
TWIN(ncclCommCuDevice);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
        if (comm && comm->magic == COMM_MAGIC && comm->real)
                return FALLBACK(comm->fallback, ncclCommUserRank, comm->real, rank);
        return ask(comm, __func__, comm ? &comm->rank : NULL, rank);
}
TWIN(ncclCommUserRank);
