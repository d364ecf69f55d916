// The first calls of vectorized math functions.
#pragma once

#include <string>
#include <vector>

namespace recoup::detail {

// Note [First calls]
// oneMKL chooses the kernel of each vector-math function at the function's first call. Before
// oneMKL 2025 that choice is not safe for threads: if several threads make the first call at a
// time, one of them may run a kernel of low accuracy (PyTorch issue 188792). Kernels of PyTorch
// call these functions from parallel regions. So the first large `tanh` of a process may have other
// bits than all later ones, its replay included.
//
// Calls each of ATen's ops that may use such a function on one element of each floating-point type
// that oneMKL has, on one thread. The ops are found by their schemas and tags. Returns their
// names; none if PyTorch is built without oneMKL. Only the first call in a process has an effect,
// in milliseconds; other threads that call it meanwhile wait.
const std::vector<std::string>& choose_math_kernels();

}  // namespace recoup::detail
