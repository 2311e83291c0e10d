/* SPDX-License-Identifier: MIT */
#pragma once
/*
 * HIP's names for NVIDIA's runtime: the calls that this project makes, and no more. For C and for nvcc.
 *
 * The runtime library is linked statically and finds the driver when it is first used, so what includes this loads on
 * hosts without a driver (calls then fail with hipErrorInsufficientDriver). The virtual memory calls exist in the
 * driver only; they are looked up through the runtime.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

/* ---- errors ------------------------------------------------------------------------------------------------------ */
typedef cudaError_t hipError_t;
#define hipSuccess                       cudaSuccess
#define hipErrorInvalidValue             cudaErrorInvalidValue
#define hipErrorOutOfMemory              cudaErrorMemoryAllocation
#define hipErrorNotInitialized           cudaErrorInitializationError
#define hipErrorInsufficientDriver       cudaErrorInsufficientDriver
#define hipErrorNoDevice                 cudaErrorNoDevice
#define hipErrorInvalidDevice            cudaErrorInvalidDevice
#define hipErrorInvalidContext           cudaErrorDeviceUninitialized
#define hipErrorMapFailed                cudaErrorMapBufferObjectFailed
#define hipErrorAlreadyMapped            cudaErrorAlreadyMapped
#define hipErrorInvalidHandle            cudaErrorInvalidResourceHandle
#define hipErrorNotReady                 cudaErrorNotReady
#define hipErrorNotSupported             cudaErrorNotSupported
#define hipErrorUnknown                  cudaErrorUnknown
#define hipErrorLaunchOutOfResources     cudaErrorLaunchOutOfResources
#define hipErrorStreamCaptureUnsupported cudaErrorStreamCaptureUnsupported
#define hipErrorStreamCaptureInvalidated cudaErrorStreamCaptureInvalidated
#define hipErrorStreamCaptureMerge       cudaErrorStreamCaptureMerge
#define hipErrorStreamCaptureUnmatched   cudaErrorStreamCaptureUnmatched
#define hipErrorStreamCaptureUnjoined    cudaErrorStreamCaptureUnjoined
#define hipErrorStreamCaptureIsolation   cudaErrorStreamCaptureIsolation
#define hipErrorStreamCaptureImplicit    cudaErrorStreamCaptureImplicit
#define hipErrorStreamCaptureWrongThread cudaErrorStreamCaptureWrongThread
#define hipErrorCapturedEvent            cudaErrorCapturedEvent
#define hipGetErrorName                  cudaGetErrorName
#define hipGetErrorString                cudaGetErrorString
#define hipGetLastError                  cudaGetLastError
#define hipPeekAtLastError               cudaPeekAtLastError

/* ---- devices ----------------------------------------------------------------------------------------------------- */
typedef struct cudaDeviceProp hipDeviceProp_t;
#define hipRuntimeGetVersion               cudaRuntimeGetVersion
#define hipGetDeviceCount                  cudaGetDeviceCount
#define hipGetDevice                       cudaGetDevice
#define hipSetDevice                       cudaSetDevice
#define hipGetDeviceProperties             cudaGetDeviceProperties
#define hipDeviceSynchronize               cudaDeviceSynchronize
#define hipDeviceCanAccessPeer             cudaDeviceCanAccessPeer
#define hipDeviceEnablePeerAccess          cudaDeviceEnablePeerAccess
#define hipErrorPeerAccessAlreadyEnabled   cudaErrorPeerAccessAlreadyEnabled
#define hipDeviceGetByPCIBusId             cudaDeviceGetByPCIBusId
#define hipDeviceGetP2PAttribute           cudaDeviceGetP2PAttribute
#define hipDevP2PAttrNativeAtomicSupported cudaDevP2PAttrNativeAtomicSupported

/* ---- memory ------------------------------------------------------------------------------------------------------ */
#define hipMalloc               cudaMalloc
#define hipFree                 cudaFree
#define hipMemGetInfo           cudaMemGetInfo
#define hipHostMalloc           cudaHostAlloc
#define hipHostFree             cudaFreeHost
#define hipHostGetDevicePointer cudaHostGetDevicePointer
#define hipHostRegister         cudaHostRegister
#define hipHostUnregister       cudaHostUnregister
#define hipHostMallocDefault    cudaHostAllocDefault
#define hipHostMallocPortable   cudaHostAllocPortable
#define hipHostMallocMapped     cudaHostAllocMapped
#define hipHostMallocCoherent   0u /* always is */
#define hipHostRegisterMapped   cudaHostRegisterMapped
#define hipHostRegisterPortable cudaHostRegisterPortable
#define hipMemcpy               cudaMemcpy
#define hipMemcpyAsync          cudaMemcpyAsync
#define hipMemset               cudaMemset
#define hipMemsetAsync          cudaMemsetAsync
#define hipMemcpyHostToDevice   cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost   cudaMemcpyDeviceToHost
#define hipMemcpyDeviceToDevice cudaMemcpyDeviceToDevice
#define hipMemcpyDefault        cudaMemcpyDefault

typedef cudaIpcMemHandle_t hipIpcMemHandle_t;
#define hipIpcGetMemHandle            cudaIpcGetMemHandle
#define hipIpcOpenMemHandle           cudaIpcOpenMemHandle
#define hipIpcCloseMemHandle          cudaIpcCloseMemHandle
#define hipIpcMemLazyEnablePeerAccess cudaIpcMemLazyEnablePeerAccess

/* ---- streams and events ------------------------------------------------------------------------------------------ */
typedef cudaStream_t hipStream_t;
typedef cudaEvent_t hipEvent_t;
#define hipStreamDefault                cudaStreamDefault
#define hipStreamNonBlocking            cudaStreamNonBlocking
#define hipStreamCreateWithFlags        cudaStreamCreateWithFlags
#define hipStreamCreateWithPriority     cudaStreamCreateWithPriority
#define hipDeviceGetStreamPriorityRange cudaDeviceGetStreamPriorityRange
#define hipStreamDestroy                cudaStreamDestroy
#define hipStreamQuery                  cudaStreamQuery
#define hipStreamSynchronize            cudaStreamSynchronize
#define hipStreamWaitEvent              cudaStreamWaitEvent
#define hipEventDisableTiming           cudaEventDisableTiming
#define hipEventCreateWithFlags         cudaEventCreateWithFlags
#define hipEventDestroy                 cudaEventDestroy
#define hipEventRecord                  cudaEventRecord
#define hipEventQuery                   cudaEventQuery
#define hipEventSynchronize             cudaEventSynchronize

/* ---- kernels and captures ---------------------------------------------------------------------------------------- */
typedef struct cudaFuncAttributes hipFuncAttributes;
typedef enum cudaStreamCaptureStatus hipStreamCaptureStatus;
typedef enum cudaStreamCaptureMode hipStreamCaptureMode;
#define hipLaunchKernel                            cudaLaunchKernel
#define hipFuncGetAttributes                       cudaFuncGetAttributes
#define hipFuncSetAttribute                        cudaFuncSetAttribute
#define hipFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
#define hipStreamCaptureStatusNone                 cudaStreamCaptureStatusNone
#define hipStreamCaptureStatusActive               cudaStreamCaptureStatusActive
#define hipStreamCaptureModeThreadLocal            cudaStreamCaptureModeThreadLocal
#define hipStreamCaptureModeRelaxed                cudaStreamCaptureModeRelaxed
#define hipStreamPerThread                         cudaStreamPerThread
#define hipStreamIsCapturing                       cudaStreamIsCapturing
#define hipThreadExchangeStreamCaptureMode         cudaThreadExchangeStreamCaptureMode
#define hipStreamBeginCapture                      cudaStreamBeginCapture
#define hipStreamEndCapture                        cudaStreamEndCapture
typedef cudaGraph_t hipGraph_t;
typedef cudaGraphNode_t hipGraphNode_t;
static inline hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status,
                                                    unsigned long long *id, hipGraph_t *graph,
                                                    const hipGraphNode_t **dependencies, size_t *n_dependencies) {
#if CUDART_VERSION >= 13000
        return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, NULL, n_dependencies);
#else
        return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, n_dependencies);
#endif
}
static inline hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus *status,
                                                 unsigned long long *id) {
        return hipStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}
#define hipStreamAddCaptureDependencies cudaStreamAddCaptureDependencies
static inline hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t *nodes, size_t n,
                                                            unsigned int flags) {
#if CUDART_VERSION >= 13000
        return cudaStreamUpdateCaptureDependencies(stream, nodes, NULL, n, flags);
#else
        return cudaStreamUpdateCaptureDependencies(stream, nodes, n, flags);
#endif
}
#define hipGraphGetNodes cudaGraphGetNodes
typedef cudaGraphExec_t hipGraphExec_t;
#define hipGraphInstantiateWithFlags cudaGraphInstantiateWithFlags
#define hipGraphLaunch               cudaGraphLaunch
#define hipGraphExecDestroy          cudaGraphExecDestroy
#define hipGraphDestroy              cudaGraphDestroy
#define hipEventElapsedTime          cudaEventElapsedTime
#define hipEventDefault              cudaEventDefault

/* ---- the driver's own -------------------------------------------------------------------------------------------- */
typedef void *hipDeviceptr_t;
typedef CUmemGenericAllocationHandle hipMemGenericAllocationHandle_t;
typedef CUmemAllocationHandleType hipMemAllocationHandleType;
typedef CUmemAccessDesc hipMemAccessDesc;
typedef CUmemAllocationProp hipMemAllocationProp;
#define hipMemAllocationTypePinned          CU_MEM_ALLOCATION_TYPE_PINNED
#define hipMemHandleTypePosixFileDescriptor CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
typedef CUpointer_attribute hipPointer_attribute;
#define HIP_POINTER_ATTRIBUTE_MEMORY_TYPE               CU_POINTER_ATTRIBUTE_MEMORY_TYPE
#define HIP_POINTER_ATTRIBUTE_IS_MANAGED                CU_POINTER_ATTRIBUTE_IS_MANAGED
#define HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
#define HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR          CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
#define HIP_POINTER_ATTRIBUTE_RANGE_SIZE                CU_POINTER_ATTRIBUTE_RANGE_SIZE
#define HIP_POINTER_ATTRIBUTE_BUFFER_ID                 CU_POINTER_ATTRIBUTE_BUFFER_ID
#define HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
#define HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES      CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
#define HIP_ON_CUDA_MEMORY_DEVICE                       CU_MEMORYTYPE_DEVICE /* not HIP's name: its values changed over time */
#define hipMemLocationTypeDevice                        CU_MEM_LOCATION_TYPE_DEVICE
#define hipMemAccessFlagsProtReadWrite                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE

/* Result codes of runtime and driver are the same numbers. */
static inline hipError_t hip_on_cuda_driver(const char *name, void **ret_function) {
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        cudaError_t r = cudaGetDriverEntryPointByVersion(name, ret_function, 12000, cudaEnableDefault, &found);

        return r == cudaSuccess && found != cudaDriverEntryPointSuccess ? cudaErrorNotSupported : r;
}
#define HIP_ON_CUDA_DRIVER(function, parameters, arguments)                                                            \
        union {                                                                                                        \
                void *address;                                                                                         \
                CUresult(CUDAAPI *call) parameters;                                                                    \
        } driver_ = {NULL};                                                                                            \
        hipError_t looked_ = hip_on_cuda_driver(function, &driver_.address);                                           \
        return looked_ != cudaSuccess ? looked_ : (hipError_t)driver_.call arguments

/* The same for what is on the path of every call: it is looked up once. */
#define HIP_ON_CUDA_DRIVER_ONCE(function, parameters, arguments)                                                       \
        static void *found_;                                                                                           \
        union {                                                                                                        \
                void *address;                                                                                         \
                CUresult(CUDAAPI *call) parameters;                                                                    \
        } driver_ = {__atomic_load_n(&found_, __ATOMIC_RELAXED)};                                                      \
        if (!driver_.address) {                                                                                        \
                hipError_t looked_ = hip_on_cuda_driver(function, &driver_.address);                                   \
                if (looked_ != cudaSuccess)                                                                            \
                        return looked_;                                                                                \
                __atomic_store_n(&found_, driver_.address, __ATOMIC_RELAXED);                                          \
        }                                                                                                              \
        return (hipError_t)driver_.call arguments

typedef CUcontext hipCtx_t;
static inline hipError_t hipCtxGetCurrent(hipCtx_t *context) {
        HIP_ON_CUDA_DRIVER_ONCE("cuCtxGetCurrent", (CUcontext *), (context));
}
static inline hipError_t hipCtxSetCurrent(hipCtx_t context) {
        HIP_ON_CUDA_DRIVER_ONCE("cuCtxSetCurrent", (CUcontext), (context));
}
static inline hipError_t hipDrvPointerGetAttributes(unsigned int n, hipPointer_attribute *attributes, void **data,
                                                    hipDeviceptr_t at) {
        HIP_ON_CUDA_DRIVER_ONCE("cuPointerGetAttributes", (unsigned int, CUpointer_attribute *, void **, CUdeviceptr),
                                (n, attributes, data, (CUdeviceptr)(uintptr_t)at));
}
/* All that was enqueued before is done, and fenced for the system, before the word is there (the flag that would let it
 * pass is not known to this version of the call). */
static inline hipError_t hipStreamWriteValue32(hipStream_t stream, void *at, uint32_t value, unsigned int flags) {
        HIP_ON_CUDA_DRIVER_ONCE("cuStreamWriteValue32", (CUstream, CUdeviceptr, cuuint32_t, unsigned int),
                                (stream, (CUdeviceptr)(uintptr_t)at, value, flags));
}
/* What is put on the stream next begins when the word there is the value. (HIP's call has a mask.) */
#define hipStreamWaitValueEq 1u
static inline hipError_t hipStreamWaitValue32(hipStream_t stream, void *at, uint32_t value, unsigned int flags,
                                              uint32_t mask) {
        if (mask != UINT32_MAX)
                return cudaErrorNotSupported;
        HIP_ON_CUDA_DRIVER_ONCE("cuStreamWaitValue32", (CUstream, CUdeviceptr, cuuint32_t, unsigned int),
                                (stream, (CUdeviceptr)(uintptr_t)at, value, flags));
}
static inline hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *size, hipDeviceptr_t at) {
        HIP_ON_CUDA_DRIVER_ONCE("cuMemGetAddressRange", (CUdeviceptr *, size_t *, CUdeviceptr),
                                ((CUdeviceptr *)(void *)base, size, (CUdeviceptr)(uintptr_t)at));
}
static inline hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *handle, void *os_handle,
                                                         hipMemAllocationHandleType type) {
        HIP_ON_CUDA_DRIVER("cuMemImportFromShareableHandle",
                           (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType),
                           (handle, os_handle, type));
}
static inline hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *handle, void *at) {
        HIP_ON_CUDA_DRIVER("cuMemRetainAllocationHandle", (CUmemGenericAllocationHandle *, void *), (handle, at));
}
static inline hipError_t hipMemExportToShareableHandle(void *os_handle, hipMemGenericAllocationHandle_t handle,
                                                       hipMemAllocationHandleType type, unsigned long long flags) {
        HIP_ON_CUDA_DRIVER("cuMemExportToShareableHandle",
                           (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long),
                           (os_handle, handle, type, flags));
}
static inline hipError_t hipMemAddressReserve(void **address, size_t size, size_t alignment, void *wanted,
                                              unsigned long long flags) {
        HIP_ON_CUDA_DRIVER("cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long),
                           ((CUdeviceptr *)(void *)address, size, alignment, (CUdeviceptr)(uintptr_t)wanted, flags));
}
static inline hipError_t hipMemAddressFree(void *address, size_t size) {
        HIP_ON_CUDA_DRIVER("cuMemAddressFree", (CUdeviceptr, size_t), ((CUdeviceptr)(uintptr_t)address, size));
}
static inline hipError_t hipMemMap(void *address, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle,
                                   unsigned long long flags) {
        HIP_ON_CUDA_DRIVER("cuMemMap", (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long),
                           ((CUdeviceptr)(uintptr_t)address, size, offset, handle, flags));
}
static inline hipError_t hipMemUnmap(void *address, size_t size) {
        HIP_ON_CUDA_DRIVER("cuMemUnmap", (CUdeviceptr, size_t), ((CUdeviceptr)(uintptr_t)address, size));
}
static inline hipError_t hipMemSetAccess(void *address, size_t size, const hipMemAccessDesc *access, size_t count) {
        HIP_ON_CUDA_DRIVER("cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t),
                           ((CUdeviceptr)(uintptr_t)address, size, access, count));
}
static inline hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp *ret,
                                                                 hipMemGenericAllocationHandle_t handle) {
        HIP_ON_CUDA_DRIVER("cuMemGetAllocationPropertiesFromHandle",
                           (CUmemAllocationProp *, CUmemGenericAllocationHandle), (ret, handle));
}
static inline hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle) {
        HIP_ON_CUDA_DRIVER("cuMemRelease", (CUmemGenericAllocationHandle), (handle));
}
