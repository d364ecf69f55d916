// libnvidia-ml.so.1: the functions that PyTorch calls before it allocates expandable segments, and
// for the text of out-of-memory errors.
#include <cuda_runtime_api.h>

#define RECOUP_NVML_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;

int no_processes(unsigned* count) {
  *count = 0;
  return kSuccess;
}

}  // namespace

RECOUP_NVML_API int nvmlInit_v2() { return kSuccess; }
RECOUP_NVML_API int nvmlShutdown() { return kSuccess; }

RECOUP_NVML_API int nvmlDeviceGetCount_v2(unsigned* count) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  *count = static_cast<unsigned>(devices);
  return error == cudaSuccess ? kSuccess : kNotSupported;
}

RECOUP_NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char* id, const void** device) {
  *device = id;
  return kSuccess;
}

// The caller has initialized `info` to the values for no fabric.
RECOUP_NVML_API int nvmlDeviceGetGpuFabricInfoV(void* /*device*/, void* /*info*/) {
  return kSuccess;
}

RECOUP_NVML_API int nvmlDeviceGetComputeRunningProcesses(void* /*device*/, unsigned* count,
                                                         void* /*processes*/) {
  return no_processes(count);
}

RECOUP_NVML_API int nvmlDeviceGetComputeRunningProcesses_v3(void* /*device*/, unsigned* count,
                                                            void* /*processes*/) {
  return no_processes(count);
}

RECOUP_NVML_API int nvmlDeviceGetNvLinkRemoteDeviceType(void* /*device*/, unsigned /*link*/,
                                                        int* /*type*/) {
  return kNotSupported;
}

RECOUP_NVML_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* /*device*/, unsigned /*link*/,
                                                        void* /*info*/) {
  return kNotSupported;
}

RECOUP_NVML_API int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return cudaDriverGetVersion(version) == cudaSuccess ? kSuccess : kNotSupported;
}
