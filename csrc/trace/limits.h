// What no recorded run goes beyond, so that a file cannot ask for more than its length is worth.
#pragma once

#include <cstdint>
#include <string_view>

#include "recoup/types.h"

namespace recoup::detail {

// Note [Bounds of a trace]
// Sums of what a file says must not overflow in the engine, which counts in 64 bits and replays
// each op several times. All bounds lie far beyond what a machine can do while it is recorded:
//   bytes at once      an address space of 47 bits
//   cost of all ops    104 days
//   bytes that all ops read and make    2^58: 80 days of 40 GB a second
inline constexpr Bytes kMostBytes{std::int64_t{1} << 47};
inline constexpr Bytes kMostAlignment{std::int64_t{1} << 21};
inline constexpr Nanoseconds kMostCost{std::int64_t{1} << 53};
inline constexpr Bytes kMostTraffic{std::int64_t{1} << 58};
inline constexpr Bytes kMostRecordBytes{std::int64_t{1} << 32};
// Of a name; the recorder cuts what is longer.
inline constexpr std::size_t kMostNameBytes = 4096;
// Operands of an op, results of an op, steps of a kernel, parts of an op on lists together with all
// their operands: what is being read takes 64 MiB at most.
inline constexpr std::size_t kMostElements = std::size_t{1} << 21;
// Storages, blocks, names, ops, operands, ...: they are numbered in 32 bits.
inline constexpr std::uint64_t kMostNumbered = 0xfffffffe;
// A scope is left once, and tried again when what is alive did not fit.
inline constexpr std::uint32_t kMostScopeExits = 1000;
// Of a step that is planned.
inline constexpr std::uint32_t kMostPlannedOps = 1U << 16;
// Kernel steps that all ops of a file run. One byte can name an op, and an op a kernel of any
// length, so a small file could ask for years. The first figure takes seconds; the second is more
// than 100 times what a trace of the longest kernels known has (an LSTM over 1,000 places). Before
// an op on lists runs in parts the engine looks at all that lives, so each storage is a step there.
inline constexpr std::uint64_t kFreeKernelSteps = std::uint64_t{1} << 26;
inline constexpr std::uint64_t kKernelStepsAByte = 4096;

// The longest beginning of `name` that a trace can hold: UTF-8, and not too long.
[[nodiscard]] std::string_view recordable_name(std::string_view name);

}  // namespace recoup::detail
