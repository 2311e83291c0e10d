/* SPDX-License-Identifier: MIT */
/*
 * The ends of a communicator. Finalize has nothing to flush: what was issued is the daemon's or on streams, and destroy
 * waits for it. Abort and revoke end what is under way on all ranks; the others hear of it as ncclRemoteError.
 */
#include "client/nccl/comm.h"
#include "client/nccl/create.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"
#include "client/nccl/log.h"
#include "railmux/railmux.h"

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
        ncclResult_t result = comm_enter(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real)
                result = FALLBACK(comm->fallback, ncclCommFinalize, comm->real);
        else
                atomic_store(&comm->closed, true);
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommFinalize);

static ncclResult_t end(struct ncclComm *comm, const char *what, bool abort) {
        ncclResult_t result;
        struct job *job;

        if (!comm) /* as with free() */
                return ncclSuccess;
        result = comm_valid(comm, what);
        if (!result && atomic_exchange(&comm->ending, true))
                result = error_raise(ncclInvalidArgument, "%s: this communicator is being destroyed", what);
        if (result)
                return result;
        if (comm->real)
                result = group_enter_fallback(comm->fallback);
        job = result ? NULL : job_new(JOB_END, what);
        if (!job)
                return ncclSystemError;
        job->comm = comm;
        job->abort = abort;
        if (abort && !comm->real) /* not at the end of a group, which may be what waits for it */
                (void)comm_abort(comm);
        return job_submit(job);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
        return group_note(end(comm, __func__, false));
}
TWIN(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm) {
        return group_note(end(comm, __func__, true));
}
TWIN(ncclCommAbort);

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
        ncclResult_t result = comm_enter_any(comm, __func__);

        if (result)
                return group_note(result);
        if (comm->real) {
                result = FALLBACK(comm->fallback, ncclCommRevoke, comm->real, revokeFlags);
        } else if (revokeFlags != NCCL_REVOKE_DEFAULT) {
                result = error_raise(ncclInvalidArgument, "%s: flags 0x%x, must be 0", __func__,
                                     (unsigned int)revokeFlags);
        } else {
                atomic_store(&comm->closed, true);
                atomic_store(&comm->quieted, true);
                result = error_adopt(__func__, comm_abort(comm));
        }
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclCommRevoke);
