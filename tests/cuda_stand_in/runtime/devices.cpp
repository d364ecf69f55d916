// Devices, their properties, and access to driver functions.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "tests/cuda_stand_in/runtime/call.h"

namespace {

using recoup::stand_in::current_device;
using recoup::stand_in::machine;
using recoup::stand_in::settings;

constexpr int kVersion = 13000;  // of runtime and driver: CUDA 13.0

bool exists(int device) { return device >= 0 && device < settings().devices; }

// Values of an H100.
int attribute(cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return 227 << 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return 228 << 10;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return 132;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrL2CacheSize:
      return 50 << 20;
    case cudaDevAttrClockRate:
      return 1980000;
    case cudaDevAttrMemoryClockRate:
      return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth:
      return 5120;
    case cudaDevAttrTextureAlignment:
      return 512;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrManagedMemory:
      return 1;
    default:
      return 0;
  }
}

void describe(int device, cudaDeviceProp& properties) {
  std::memset(&properties, 0, sizeof properties);
  std::snprintf(properties.name, sizeof properties.name, "CUDA stand-in %d", device);
  properties.uuid.bytes[0] = static_cast<char>(device + 1);
  properties.totalGlobalMem = settings().memory;
  properties.sharedMemPerBlock =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlock));
  properties.sharedMemPerBlockOptin =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  properties.sharedMemPerMultiprocessor =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  properties.reservedSharedMemPerBlock = 1024;
  properties.regsPerBlock = 65536;
  properties.regsPerMultiprocessor = 65536;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiProcessor = 2048;
  properties.maxBlocksPerMultiProcessor = 32;
  properties.maxThreadsDim[0] = 1024;
  properties.maxThreadsDim[1] = 1024;
  properties.maxThreadsDim[2] = 64;
  properties.maxGridSize[0] = 0x7fffffff;
  properties.maxGridSize[1] = 65535;
  properties.maxGridSize[2] = 65535;
  properties.major = 9;
  properties.multiProcessorCount = 132;
  properties.l2CacheSize = 50 << 20;
  properties.memoryBusWidth = 5120;
  properties.unifiedAddressing = 1;
  properties.managedMemory = 1;
  properties.concurrentKernels = 1;
  properties.canMapHostMemory = 1;
  properties.asyncEngineCount = 3;
  properties.textureAlignment = 512;
  properties.memoryPoolsSupported = 1;
  properties.pciBusID = device + 1;
  properties.cooperativeLaunch = 1;
}

}  // namespace

RECOUP_CUDA_API cudaError_t cudaGetDeviceCount(int* count) {
  RECOUP_BEGIN();
  *count = settings().devices;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaSetDevice(int device) {
  RECOUP_BEGIN();
  if (!exists(device)) {
    RECOUP_FAIL(cudaErrorInvalidDevice);
  }
  recoup::stand_in::set_current_device(device);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  RECOUP_BEGIN();
  if (!exists(device)) {
    RECOUP_FAIL(cudaErrorInvalidDevice);
  }
  describe(device, *properties);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  RECOUP_BEGIN();
  if (!exists(device)) {
    RECOUP_FAIL(cudaErrorInvalidDevice);
  }
  *value = attribute(which);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  RECOUP_BEGIN();
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceEnablePeerAccess(int /*peer*/, unsigned /*flags*/) {
  RECOUP_BEGIN();
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  RECOUP_BEGIN();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceSynchronize() {
  RECOUP_BEGIN();
  RECOUP_REQUIRE_NO_CAPTURE();
  if (machine().sites.drops(__func__)) {
    return cudaSuccess;
  }
  machine().streams.wait_for_device(current_device());
  return recoup::stand_in::work_failure();
}

RECOUP_CUDA_API cudaError_t cudaProfilerStart() { return cudaSuccess; }
RECOUP_CUDA_API cudaError_t cudaProfilerStop() { return cudaSuccess; }

RECOUP_CUDA_API cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned /*version*/, unsigned long long /*flags*/,
    cudaDriverEntryPointQueryResult* result) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  *function = nullptr;
  if (driver != nullptr) {
    *function = dlsym(driver, (std::string(name) + "_v2").c_str());
    if (*function == nullptr) {
      *function = dlsym(driver, name);
    }
  }
  const bool found = *function != nullptr;
  if (result != nullptr) {
    *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  if (!found) {
    RECOUP_FAIL(cudaErrorSymbolNotFound);
  }
  return cudaSuccess;
}
