// The first statement of every driver function.
#pragma once

#include <cuda.h>

#include "tests/cuda_stand_in/runtime/call.h"

#define RECOUP_DRIVER_API extern "C" __attribute__((visibility("default")))

#define RECOUP_DRIVER_BEGIN()                                                            \
  if (const int error_ = ::recoup::stand_in::begin_driver_call(__func__); error_ != 0) { \
    return static_cast<CUresult>(error_);                                                \
  }                                                                                      \
  static_cast<void>(0)
