// cuBLASLt: like cublas.cpp. The contents of other descriptors than layouts are never read.
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_stand_in/device/test_interface.h"

#define RECOUP_BLAS_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr std::size_t kDescriptor = 256;  // bytes
constexpr std::size_t kHeuristic = 96;    // bytes of a cublasLtMatmulHeuristicResult_t

int create(void** descriptor) {
  *descriptor = std::calloc(1, kDescriptor);
  return 0;
}

int destroy(void* descriptor) {
  std::free(descriptor);
  return 0;
}

}  // namespace

RECOUP_BLAS_API int cublasLtCreate(void** handle) { return create(handle); }
RECOUP_BLAS_API int cublasLtDestroy(void* handle) { return destroy(handle); }
RECOUP_BLAS_API std::size_t cublasLtGetVersion() { return 130100; }

RECOUP_BLAS_API int cublasLtMatmulDescCreate(void** made, int /*compute*/, int /*scale*/) {
  return create(made);
}

RECOUP_BLAS_API int cublasLtMatmulDescDestroy(void* gone) { return destroy(gone); }
RECOUP_BLAS_API int cublasLtMatmulPreferenceCreate(void** made) { return create(made); }
RECOUP_BLAS_API int cublasLtMatmulPreferenceDestroy(void* gone) { return destroy(gone); }

// A layout holds the number of elements.
RECOUP_BLAS_API int cublasLtMatrixLayoutCreate(void** made, int /*type*/, unsigned long rows,
                                               unsigned long columns, long /*stride*/) {
  create(made);
  *static_cast<double*>(*made) = static_cast<double>(rows) * static_cast<double>(columns);
  return 0;
}

RECOUP_BLAS_API int cublasLtMatrixLayoutDestroy(void* gone) { return destroy(gone); }

RECOUP_BLAS_API int cublasLtMatmulAlgoGetHeuristic(void* /*handle*/, void* /*product*/, void* /*a*/,
                                                   void* /*b*/, void* /*c*/, void* /*d*/,
                                                   void* /*preference*/, int /*wanted*/,
                                                   void* results, int* count) {
  std::memset(results, 0, kHeuristic);
  *count = 1;
  return 0;
}

RECOUP_BLAS_API int cublasLtMatmul(void* /*handle*/, void* /*product*/, const void* /*alpha*/,
                                   const void* /*a*/, void* a_layout, const void* /*b*/,
                                   void* b_layout, const void* /*beta*/, const void* /*c*/,
                                   void* /*c_layout*/, void* /*d*/, void* d_layout,
                                   const void* /*algorithm*/, void* workspace, std::size_t size,
                                   void* stream) {
  // The sizes of the three matrices are m k, k n and m n.
  const double sizes = *static_cast<double*>(a_layout) * *static_cast<double*>(b_layout) *
                       *static_cast<double*>(d_layout);
  stand_in_product(stream, 2 * std::sqrt(sizes), workspace, size, "cuBLASLt's workspace");
  return 0;
}
