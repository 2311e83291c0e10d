/* SPDX-License-Identifier: MIT */
/*
 * The last error is the process's and not the thread's: programs ask for it in a thread that watches, and
 * communicators are made in threads of ours. A reader gets a copy of its own.
 */
#include "client/nccl/error.h"
#include "client/nccl/session.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "client/nccl/export.h"
#include "client/nccl/log.h"
#include "railmux/railmux.h"

#define TEXT_BYTES 512u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char last[TEXT_BYTES]; /* under mutex */

FORKED void error_forked(void) {
        mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

ncclResult_t error_raise(ncclResult_t result, const char *format, ...) {
        char text[TEXT_BYTES];
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        pthread_mutex_lock(&mutex);
        snprintf(last, sizeof(last), "%s", text);
        pthread_mutex_unlock(&mutex);
        log_line(LOG_WARN, "%s", text);
        return result;
}

ncclResult_t error_of_code(int code) {
        switch (code) {
        case RMX_OK:
                return ncclSuccess;
        case RMX_E_INVALID:
                return ncclInvalidArgument;
        case RMX_E_MISMATCH:
        case RMX_E_UNSUPPORTED:
                return ncclInvalidUsage;
        case RMX_E_PEER_LOST:
        case RMX_E_ABORTED:
        case RMX_E_TIMEOUT:
                return ncclRemoteError;
        case RMX_E_DEVICE_LOST:
                return ncclUnhandledCudaError;
        case RMX_E_NO_DAEMON:
        case RMX_E_DAEMON_LOST:
        case RMX_E_VERSION:
        case RMX_E_NO_MEMORY:
        case RMX_E_LIMIT:
        case RMX_E_DENIED:
        case RMX_E_BUSY:
        case RMX_E_LOST:
                return ncclSystemError;
        default:
                return ncclInternalError;
        }
}

ncclResult_t error_adopt_text(const char *what, int code, const char *text) {
        if (code == RMX_OK)
                return ncclSuccess;
        return error_raise(error_of_code(code), "%s: %s (%s)", what, text, rmx_error_name(code));
}

ncclResult_t error_adopt(const char *what, int code) {
        return error_adopt_text(what, code, rmx_last_error());
}

void ncclResetDebugInit(void) {}
TWIN(ncclResetDebugInit);

const char *ncclGetErrorString(ncclResult_t result) {
        switch (result) {
        case ncclSuccess:
                return "no error";
        case ncclUnhandledCudaError:
                return "unhandled error of the GPU or its runtime (NCCL_DEBUG=INFO says more)";
        case ncclSystemError:
                return "system error, or the daemon is missing (NCCL_DEBUG=INFO says more)";
        case ncclInternalError:
                return "internal error: a defect of railmux";
        case ncclInvalidArgument:
                return "invalid argument (NCCL_DEBUG=WARN says more)";
        case ncclInvalidUsage:
                return "invalid usage (NCCL_DEBUG=WARN says more)";
        case ncclRemoteError:
                return "remote process exited, aborted, or failed";
        case ncclInProgress:
                return "operation in progress";
        case ncclTimeout:
                return "operation timed out";
        default:
                return "unknown result code";
        }
}
TWIN(ncclGetErrorString);

const char *ncclGetLastError(ncclComm_t comm) {
        static _Thread_local char copy[TEXT_BYTES];

        (void)comm;
        pthread_mutex_lock(&mutex);
        snprintf(copy, sizeof(copy), "%s", last);
        pthread_mutex_unlock(&mutex);
        return copy;
}
TWIN(ncclGetLastError);
