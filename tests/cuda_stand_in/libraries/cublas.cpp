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

// `scale`: the time of a multiplication over that in half precision.
int multiply(const Handle* handle, int m, int n, int k, double scale, int count = 1) {
  stand_in_product(handle->stream, 2.0 * m * n * k * count * scale, handle->workspace,
                   handle->workspace_size, "cuBLAS's workspace");
  return 0;
}

constexpr double kSingle = 8;
constexpr double kDouble = 16;

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

// cuBLAS's further arguments are the operands.
RECOUP_BLAS_API int cublasSgemm_v2(Handle* handle, int /*a*/, int /*b*/, int m, int n, int k) {
  return multiply(handle, m, n, k, kSingle);
}

RECOUP_BLAS_API int cublasDgemm_v2(Handle* handle, int /*a*/, int /*b*/, int m, int n, int k) {
  return multiply(handle, m, n, k, kDouble);
}

RECOUP_BLAS_API int cublasGemmEx(Handle* handle, int /*a*/, int /*b*/, int m, int n, int k) {
  return multiply(handle, m, n, k, 1);
}

RECOUP_BLAS_API int cublasSgemmStridedBatched(Handle* handle, int /*trans_a*/, int /*trans_b*/,
                                              int m, int n, int k, const void* /*alpha*/,
                                              const void* /*a*/, int /*lda*/, long /*stride_a*/,
                                              const void* /*b*/, int /*ldb*/, long /*stride_b*/,
                                              const void* /*beta*/, void* /*c*/, int /*ldc*/,
                                              long /*stride_c*/, int count) {
  return multiply(handle, m, n, k, kSingle, count);
}

RECOUP_BLAS_API int cublasGemmStridedBatchedEx(Handle* handle, int /*trans_a*/, int /*trans_b*/,
                                               int m, int n, int k, const void* /*alpha*/,
                                               const void* /*a*/, int /*type_a*/, int /*lda*/,
                                               long /*stride_a*/, const void* /*b*/, int /*type_b*/,
                                               int /*ldb*/, long /*stride_b*/, const void* /*beta*/,
                                               void* /*c*/, int /*type_c*/, int /*ldc*/,
                                               long /*stride_c*/, int count) {
  return multiply(handle, m, n, k, 1, count);
}
