/* SPDX-License-Identifier: MIT */
/*
 * Numbers of reductions are librailmux's, which begin well above NCCL's own five and end where an int does.
 *
 * What a reduction was made of is kept: for calls that are started when the program may have destroyed it (call.c), and
 * to know which there are, since a call of nothing is looked into as well, and never comes to librailmux.
 *
 * A factor that lies in memory is to be read when the collective runs. On the host backend librailmux does so itself.
 * In a GPU's memory it cannot, so there the library keeps the address, and each call waits for its stream, fetches the
 * factor and takes a reduction with that one for the time of the call.
 */
#include "client/nccl/redop.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/nccl/comm.h"
#include "client/nccl/device.h"
#include "client/nccl/error.h"
#include "client/nccl/export.h"
#include "client/nccl/fallback.h"
#include "client/nccl/group.h"
#include "railmux/railmux.h"

struct scalar {
        struct scalar *next;
        uint32_t redop;
        ncclDataType_t type;
        ncclScalarResidence_t residence;
        const void *address; /* where the factor is to be read; NULL: here */
        uint64_t value;
};

static struct scalar *scalar_find(struct ncclComm *comm, uint32_t redop) {
        struct scalar *scalar;

        LL_SEARCH_SCALAR(comm->scalars, scalar, redop, redop);
        return scalar;
}

void scalars_free(struct ncclComm *comm) {
        struct scalar *scalar, *next;

        LL_FOREACH_SAFE(comm->scalars, scalar, next)
                free(scalar);
        comm->scalars = NULL;
}

ncclResult_t redop_take(struct ncclComm *comm, const char *what, ncclRedOp_t op, ncclDataType_t type,
                        ncclStream_t stream, struct redop_use *ret_use) {
        struct scalar scalar = {.address = NULL}, *found;
        ncclResult_t result;
        uint64_t value;

        *ret_use = (struct redop_use){.redop = (uint32_t)op};
        if ((int)op < ncclNumOps)
                return ncclSuccess;
        comm_lock();
        found = scalar_find(comm, (uint32_t)op);
        if (found)
                scalar = *found;
        comm_unlock();
        if (!found)
                return error_raise(ncclInvalidArgument, "%s: this communicator has no reduction %d", what, (int)op);
        if (comm->host || !scalar.address || scalar.type != type) /* another type is librailmux's to refuse */
                return ncclSuccess;
        result = device_read(what, comm->device, &value, scalar.address, rmx_type_size(type), stream);
        if (!result)
                result = error_adopt(what, rmx_redop_create_premul_sum(comm->rmx, &value, type, RMX_SCALAR_IMMEDIATE,
                                                                       &ret_use->redop));
        ret_use->made = !result;
        return result;
}

void redop_drop(struct ncclComm *comm, const struct redop_use *use) {
        if (use->made)
                (void)rmx_redop_destroy(comm->rmx, use->redop);
}

/* Where librailmux finds a factor, if it can read it. */
static int create_near(struct ncclComm *comm, const void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                       uint32_t *ret_redop) {
        return rmx_redop_create_premul_sum(comm->rmx, scalar, type,
                                           residence == ncclScalarDevice ? RMX_SCALAR_MEMORY : RMX_SCALAR_IMMEDIATE,
                                           ret_redop);
}

ncclResult_t redop_copy(struct ncclComm *comm, const char *what, uint32_t redop, uint32_t *ret_redop) {
        struct scalar scalar = {0}, *found;

        comm_lock();
        found = scalar_find(comm, redop);
        if (found)
                scalar = *found;
        comm_unlock();
        if (!found)
                return error_raise(ncclInvalidArgument, "%s: op %u was destroyed meanwhile", what, redop);
        return error_adopt(what, create_near(comm, scalar.address ? scalar.address : &scalar.value, scalar.type,
                                             scalar.residence, ret_redop));
}

static ncclResult_t create(struct ncclComm *comm, const char *what, const void *scalar, ncclDataType_t type,
                           ncclScalarResidence_t residence, uint32_t *ret_redop) {
        bool far = residence == ncclScalarDevice && !comm->host, here = residence != ncclScalarDevice;
        struct scalar *kept = malloc(sizeof(*kept));
        const uint64_t placeholder = 0;
        int r;

        if (!kept)
                return error_raise(ncclSystemError, "%s: out of memory", what);
        r = far ? create_near(comm, &placeholder, type, ncclScalarHostImmediate, ret_redop)
                : create_near(comm, scalar, type, residence, ret_redop);
        if (r) {
                free(kept);
                return error_adopt(what, r);
        }
        *kept = (struct scalar){
                .redop = *ret_redop, .type = type, .residence = residence, .address = here ? NULL : scalar};
        if (here)
                memcpy(&kept->value, scalar, rmx_type_size(type));
        comm_lock();
        LL_PREPEND(comm->scalars, kept);
        comm_unlock();
        return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
        ncclResult_t result = comm_enter(comm, __func__);
        uint32_t redop;

        if (result)
                return group_note(result);
        if (comm->real)
                result =
                        FALLBACK(comm->fallback, ncclRedOpCreatePreMulSum, op, scalar, datatype, residence, comm->real);
        else if (!op || !scalar)
                result = error_raise(ncclInvalidArgument, "%s: %s is NULL", __func__, op ? "scalar" : "op");
        else if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
                result = error_raise(ncclInvalidArgument, "%s: residence %d is unknown", __func__, (int)residence);
        else
                result = create(comm, __func__, scalar, datatype, residence, &redop);
        if (!result && !comm->real)
                *op = (ncclRedOp_t)redop;
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclRedOpCreatePreMulSum);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
        ncclResult_t result = comm_enter_any(comm, __func__);
        struct scalar *scalar;

        if (result)
                return group_note(result);
        if (comm->real) {
                result = FALLBACK(comm->fallback, ncclRedOpDestroy, op, comm->real);
        } else if ((int)op < ncclNumOps) {
                result = error_raise(ncclInvalidArgument, "%s: op %d is none that ncclRedOpCreatePreMulSum gave",
                                     __func__, (int)op);
        } else {
                comm_lock();
                scalar = scalar_find(comm, (uint32_t)op);
                if (scalar)
                        LL_DELETE(comm->scalars, scalar);
                comm_unlock();
                free(scalar);
                result = error_adopt(__func__, rmx_redop_destroy(comm->rmx, (uint32_t)op));
        }
        comm_exit(comm);
        return group_note(result);
}
TWIN(ncclRedOpDestroy);
