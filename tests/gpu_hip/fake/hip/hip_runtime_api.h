/* SPDX-License-Identifier: MIT */
#pragma once
/* A GPU runtime in the process's own memory, for tests of gpu/hip/ on machines without one: the calls that the runtime
 * part makes, under their names. See fake.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Has pinned memory to wait for the kernel's end? As tests say. */
extern bool fake_pins_running;
#define SLAB_STOPS (!fake_pins_running)

typedef enum hipError_t {
        hipSuccess = 0,
        hipErrorInvalidValue = 1,
        hipErrorOutOfMemory = 2,
        hipErrorNotInitialized = 3,
        hipErrorInsufficientDriver = 35,
        hipErrorNoDevice = 100,
        hipErrorInvalidDevice = 101,
        hipErrorInvalidContext = 201,
        hipErrorMapFailed = 205,
        hipErrorAlreadyMapped = 208,
        hipErrorInvalidHandle = 400,
        hipErrorNotReady = 600,
        hipErrorIllegalAddress = 700,
        hipErrorNotSupported = 801,
} hipError_t;

typedef struct fake_stream *hipStream_t;
typedef void *hipDeviceptr_t;
typedef struct hipDeviceProp_t {
        char name[256];
        size_t totalGlobalMem;
        int multiProcessorCount;
        int pciDomainID, pciBusID, pciDeviceID;
} hipDeviceProp_t;
typedef struct hipIpcMemHandle_t {
        char reserved[64];
} hipIpcMemHandle_t;
typedef enum hipMemcpyKind {
        hipMemcpyHostToDevice = 1,
        hipMemcpyDeviceToHost = 2,
        hipMemcpyDeviceToDevice = 3,
} hipMemcpyKind;
typedef int hipMemGenericAllocationHandle_t;
typedef enum { hipMemHandleTypePosixFileDescriptor = 1 } hipMemAllocationHandleType;
typedef struct hipMemAccessDesc {
        struct {
                int type;
                int id;
        } location;
        int flags;
} hipMemAccessDesc;
typedef struct hipMemAllocationProp {
        int type;
        struct {
                int type;
                int id;
        } location;
} hipMemAllocationProp;
enum { hipMemAllocationTypePinned = 1 };
enum { hipMemLocationTypeDevice = 1, hipMemAccessFlagsProtReadWrite = 3 };
#define hipHostMallocPortable         1u
#define hipHostMallocMapped           2u
#define hipHostMallocCoherent         0x40000000u
#define hipHostRegisterPortable       1u
#define hipHostRegisterMapped         2u
#define hipStreamNonBlocking          1u
#define hipIpcMemLazyEnablePeerAccess 1u
#define hipDeviceMallocFinegrained    1u

hipError_t hipGetLastError(void);
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);
hipError_t hipRuntimeGetVersion(int *version);
hipError_t hipGetDeviceCount(int *count);
hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceSynchronize(void);
hipError_t hipExtMallocWithFlags(void **address, size_t bytes, unsigned int flags);
hipError_t hipFree(void *address);
hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total);
hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *bytes, hipDeviceptr_t at);
typedef enum { HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9 } hipPointer_attribute;
hipError_t hipDrvPointerGetAttributes(unsigned int n, hipPointer_attribute *attributes, void **data, hipDeviceptr_t at);
hipError_t hipHostMalloc(void **address, size_t bytes, unsigned int flags);
hipError_t hipHostFree(void *address);
hipError_t hipHostRegister(void *address, size_t bytes, unsigned int flags);
hipError_t hipHostUnregister(void *address);
hipError_t hipHostGetDevicePointer(void **device, void *host, unsigned int flags);
hipError_t hipMemset(void *to, int value, size_t bytes);
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipStreamWriteValue32(hipStream_t stream, void *to, uint32_t value, unsigned int flags);
#define hipStreamWaitValueEq 1u
hipError_t hipStreamWaitValue32(hipStream_t stream, void *at, uint32_t value, unsigned int flags, uint32_t mask);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *address);
hipError_t hipIpcOpenMemHandle(void **address, hipIpcMemHandle_t handle, unsigned int flags);
hipError_t hipIpcCloseMemHandle(void *address);
hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest);
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags);
hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *handle, void *os_handle,
                                           hipMemAllocationHandleType type);
hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle);
hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp *ret, hipMemGenericAllocationHandle_t handle);
hipError_t hipMemAddressReserve(void **address, size_t bytes, size_t alignment, void *wanted, unsigned long long flags);
hipError_t hipMemAddressFree(void *address, size_t bytes);
hipError_t hipMemMap(void *address, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long flags);
hipError_t hipMemUnmap(void *address, size_t bytes);
hipError_t hipMemSetAccess(void *address, size_t bytes, const hipMemAccessDesc *access, size_t n);
