// cuBLAS: products do nothing, because CPU kernels compute the numbers. A product may use its whole
// workspace, so this checks that the workspace is mapped and that no other work uses it at the same
// time.
#include <cstddef>

#include "tests/cuda_stand_in/device/test_interface.h"

#define RECOUP_BLAS_API extern "C" __attribute__((visibility("default")))

namespace {

struct Handle {
  int math_mode = 0;
  int pointer_mode = 0;
  void* stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_size = 0;  // bytes
};

void nothing(void* /*argument*/) {}

int multiply(const Handle* handle) {
  if (handle->workspace == nullptr || handle->workspace_size == 0) {
    return 0;
  }
  constexpr char kWhat[] = "cuBLAS's workspace";
  if (stand_in_accessible(handle->workspace, handle->workspace_size) == 0) {
    stand_in_illegal(kWhat, handle->workspace, handle->workspace_size);
  }
  const StandInUse use{.memory = handle->workspace, .size = handle->workspace_size, .write = 1};
  stand_in_launch(handle->stream, &nothing, nullptr, &nothing, kWhat, &use, 1);
  return 0;
}

}  // namespace

RECOUP_BLAS_API int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  return 0;
}

RECOUP_BLAS_API int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return 0;
}

RECOUP_BLAS_API int cublasGetMathMode(Handle* handle, int* mode) {
  *mode = handle->math_mode;
  return 0;
}

RECOUP_BLAS_API int cublasSetMathMode(Handle* handle, int mode) {
  handle->math_mode = mode;
  return 0;
}

RECOUP_BLAS_API int cublasGetPointerMode_v2(Handle* handle, int* mode) {
  *mode = handle->pointer_mode;
  return 0;
}

RECOUP_BLAS_API int cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}

// As cuBLAS does, this resets the workspace.
RECOUP_BLAS_API int cublasSetStream_v2(Handle* handle, void* stream) {
  handle->stream = stream;
  handle->workspace = nullptr;
  return 0;
}

RECOUP_BLAS_API int cublasSetWorkspace_v2(Handle* handle, void* workspace, std::size_t size) {
  handle->workspace = workspace;
  handle->workspace_size = size;
  return 0;
}

RECOUP_BLAS_API int cublasSgemm_v2(Handle* handle) { return multiply(handle); }
RECOUP_BLAS_API int cublasDgemm_v2(Handle* handle) { return multiply(handle); }
RECOUP_BLAS_API int cublasGemmEx(Handle* handle) { return multiply(handle); }
RECOUP_BLAS_API int cublasSgemmStridedBatched(Handle* handle) { return multiply(handle); }
RECOUP_BLAS_API int cublasGemmStridedBatchedEx(Handle* handle) { return multiply(handle); }
