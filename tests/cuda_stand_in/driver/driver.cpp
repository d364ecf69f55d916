// libcuda.so.1: devices, contexts and names of errors. It shares the state of libcudart.so.13.
#include <cuda.h>
#undef cuDeviceTotalMem
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuDevicePrimaryCtxRelease

#include <cstdint>
#include <cstdio>

#include "tests/cuda_stand_in/driver/driver_call.h"

namespace {

using recoup::stand_in::current_device;
using recoup::stand_in::settings;

CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device + 1));
}

}  // namespace

RECOUP_DRIVER_API CUresult cuInit(unsigned /*flags*/) {
  RECOUP_DRIVER_BEGIN();
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  RECOUP_DRIVER_BEGIN();
  *device = ordinal;
  return ordinal < settings().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

RECOUP_DRIVER_API CUresult cuDeviceGetCount(int* count) {
  RECOUP_DRIVER_BEGIN();
  *count = settings().devices;
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  std::snprintf(name, static_cast<std::size_t>(size), "CUDA stand-in %d", device);
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which,
                                                CUdevice /*device*/) {
  RECOUP_DRIVER_BEGIN();
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_of(current_device());
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  RECOUP_DRIVER_BEGIN();
  if (!recoup::stand_in::is_known(stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *context = context_of(recoup::stand_in::stream_of(stream)->device);
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuCtxSetCurrent(CUcontext /*context*/) { return CUDA_SUCCESS; }
RECOUP_DRIVER_API CUresult cuCtxPushCurrent_v2(CUcontext /*context*/) { return CUDA_SUCCESS; }

RECOUP_DRIVER_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = context_of(current_device());
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuDevicePrimaryCtxGetState(CUdevice /*device*/, unsigned* flags,
                                                      int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuGetErrorString(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS:
      *text = "no error";
      break;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *text = "out of memory";
      break;
    case CUDA_ERROR_INVALID_VALUE:
      *text = "invalid argument";
      break;
    default:
      *text = "an error of the CUDA stand-in";
  }
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuGetErrorName(CUresult error, const char** name) {
  return cuGetErrorString(error, name);
}
