/* SPDX-License-Identifier: MIT */
#pragma once
/* What files of client/hip call of a GPU runtime, which the tests of these have. */
#include <stddef.h>

typedef enum hipError_t {
        hipSuccess = 0,
        hipErrorInvalidValue = 1,
        hipErrorOutOfMemory = 2,
        hipErrorInvalidDevice = 101,
        hipErrorNotReady = 600,
        hipErrorPeerAccessAlreadyEnabled = 704,
} hipError_t;

typedef struct fake_stream *hipStream_t;
typedef struct fake_event *hipEvent_t;
typedef struct fake_graph *hipGraph_t;
typedef struct fake_node *hipGraphNode_t;
typedef enum hipStreamCaptureMode {
        hipStreamCaptureModeGlobal = 0,
        hipStreamCaptureModeRelaxed = 2
} hipStreamCaptureMode;
typedef enum hipStreamCaptureStatus {
        hipStreamCaptureStatusNone = 0,
        hipStreamCaptureStatusActive = 1,
        hipStreamCaptureStatusInvalidated = 2,
} hipStreamCaptureStatus;
typedef enum hipMemcpyKind { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost } hipMemcpyKind;
typedef struct hipIpcMemHandle_t {
        char reserved[64];
} hipIpcMemHandle_t;
typedef void *hipDeviceptr_t;
typedef struct hipFuncAttributes {
        int registers;
} hipFuncAttributes;
#define hipHostMallocMapped           2u
#define hipStreamNonBlocking          1u
#define hipEventDisableTiming         2u
#define hipStreamPerThread            ((hipStream_t)2)
#define hipIpcMemLazyEnablePeerAccess 1u
#define hipDeviceMallocFinegrained    1u

typedef struct dim3 {
        unsigned int x, y, z;
} dim3;

typedef struct fake_context *hipCtx_t;

hipError_t hipGetLastError(void);
hipError_t hipGetDevice(int *device);
hipError_t hipSetDevice(int device);
hipError_t hipCtxGetCurrent(hipCtx_t *context);
hipError_t hipCtxSetCurrent(hipCtx_t context);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode);
hipError_t hipLaunchKernel(const void *kernel, dim3 blocks, dim3 threads, void **parameters, size_t shared,
                           hipStream_t stream);
hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags);
hipError_t hipExtMallocWithFlags(void **address, size_t bytes, unsigned int flags);
hipError_t hipFree(void *address);
hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t at);
hipError_t hipHostMalloc(void **address, size_t bytes, unsigned int flags);
hipError_t hipHostFree(void *address);
hipError_t hipHostGetDevicePointer(void **there, void *address, unsigned int flags);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *address);
hipError_t hipIpcOpenMemHandle(void **address, hipIpcMemHandle_t handle, unsigned int flags);
hipError_t hipIpcCloseMemHandle(void *address);
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest);
hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipFuncGetAttributes(hipFuncAttributes *attributes, const void *function);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id,
                                      hipGraph_t *graph, const hipGraphNode_t **dependencies, size_t *n_dependencies);
#define hipStreamAddCaptureDependencies 0u
hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t *nodes, size_t n, unsigned int flags);
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *n_nodes);
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags);
