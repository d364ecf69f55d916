// Bounds that no recorded run exceeds, so that a small file cannot demand excessive time or memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "recoup/types.h"

namespace recoup::detail {

// Note [Bounds of a trace]
// Sums over a file must not overflow in the engine, which counts in 64 bits and replays each op
// several times. All bounds are far beyond what a machine can do while it is recorded:
//   bytes at once      an address space of 47 bits
//   cost of all ops    104 days
//   bytes that all ops read and make    2^58: 80 days of 40 GB per second
inline constexpr Bytes kMostBytes{std::int64_t{1} << 47};
inline constexpr Bytes kMostAlignment{std::int64_t{1} << 21};
inline constexpr Nanoseconds kMostCost{std::int64_t{1} << 53};
inline constexpr Bytes kMostTraffic{std::int64_t{1} << 58};
inline constexpr Bytes kMostRecordBytes{std::int64_t{1} << 32};
// Length of a name; the recorder truncates longer ones.
inline constexpr std::size_t kMostNameBytes = 4096;
// Operands of an op, results of an op, steps of a kernel, parts of an op on lists together with
// their operands. A record takes at most 64 MiB of memory while it is read.
inline constexpr std::size_t kMostElements = std::size_t{1} << 21;
// Number of storages, blocks, names, ops, operands, ...: they are numbered in 32 bits.
inline constexpr std::uint64_t kMostNumbered = 0xfffffffe;
// Number of scope exits: an exit is repeated if the live values did not fit.
inline constexpr std::uint32_t kMostScopeExits = 1000;
// Number of ops of a step with a plan.
inline constexpr std::uint32_t kMostPlannedOps = 1U << 16;
// Kernel steps that all ops of a file run. One byte can name an op, and an op can name a kernel of
// any length, so a small file could require years. The first bound takes seconds. The second is
// more than 100 times what a trace of the longest known kernels has (an LSTM over 1,000 positions).
// Before an op on lists runs in parts, the engine looks at all live storages, so each of them
// counts as a step.
inline constexpr std::uint64_t kFreeKernelSteps = std::uint64_t{1} << 26;
inline constexpr std::uint64_t kKernelStepsAByte = 4096;

// The longest prefix of `name` that a trace can hold: valid UTF-8 of limited length.
[[nodiscard]] std::string_view recordable_name(std::string_view name);

}  // namespace recoup::detail
