// torch.autocast for the device, with CUDA's lists of ops.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

// PyTorch's macros use the name `m` for the library.
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define RECOUP_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(RECOUP_LOWER)
#undef RECOUP_LOWER
#define RECOUP_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(RECOUP_FP32)
#undef RECOUP_FP32
#define RECOUP_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(RECOUP_SET_DTYPE)
#undef RECOUP_SET_DTYPE
#define RECOUP_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(RECOUP_PROMOTE)
#undef RECOUP_PROMOTE
}
