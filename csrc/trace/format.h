// The format of a trace file. docs/maintainers/trace-format.md defines the meaning of the records.
//
//   file    magic, frame, frame, ..., end frame
//   magic   89 'r' 't' 'r' 'a' 'c' 'e' '\n', version (u32)
//   frame   raw size (u32), packed size (u32), CRC-32 of the packed bytes (u32), packed bytes
//           (zlib)
//   raw     records, each a tag and unsigned LEB128 numbers; none extends beyond its frame
//   end     twelve zeros
//
// All u32 are little-endian. Storages are written as their distance from the newest one, so that
// numbers stay small in a long trace.
#pragma once

#include <array>
#include <cstdint>

#include "recoup/trace.h"

namespace recoup::detail {

inline constexpr std::array<unsigned char, 8> kTraceMagic{0x89, 'r', 't', 'r', 'a', 'c', 'e', '\n'};
inline constexpr std::uint32_t kTraceVersion = 15;
inline constexpr std::size_t kFrameHeader = 12;
inline constexpr std::uint32_t kMaxFrame = 64U << 20;

enum class RecordTag : std::uint8_t {
  kName = 1,
  kKernel = 2,
  kOp = 3,
  kPlan = 4,
  kListOp = 5,
  kDevice = 6,
  kOutside = 7,    // a kExternal with index 1
  kHold = 8,       // a kAllocate with an index above 0
  kInSegment = 9,  // a kExternal with an index above 1
  kEvent = 16,     // plus the number of the event's kind
};

// Flags of an operand, below its storage's distance.
inline constexpr std::uint64_t kOperandReads = 1;
inline constexpr std::uint64_t kOperandWritten = 2;
inline constexpr std::uint64_t kOperandOverwritten = 4;
inline constexpr std::uint64_t kOperandLeftOut = 8;
inline constexpr std::uint64_t kOperandOverwritable = 16;
inline constexpr int kOperandBits = 5;

// Flags of an operand of a part, below its storage's distance.
inline constexpr std::uint64_t kPartOperandWritten = 1;
inline constexpr int kPartOperandBits = 1;

// Flags of a device.
inline constexpr std::uint64_t kDeviceBounces = 1;
inline constexpr std::uint64_t kDeviceCompares = 2;
inline constexpr std::uint64_t kMostDeviceFlags = 3;

// Flags of a plan.
inline constexpr std::uint64_t kPlanListed = 1;

// The op that made a value which a plan names. The largest u32 stands for no value.
inline constexpr std::uint64_t planned_op_code(std::uint32_t op) {
  return op == 0xffffffff ? 0 : op == TraceEviction::kStorage ? 1 : op + std::uint64_t{2};
}
inline constexpr std::uint32_t planned_op(std::uint32_t code) {
  return code == 0 ? 0xffffffff : code == 1 ? TraceEviction::kStorage : code - 2;
}

// Flags of an op, below the number of its copies.
inline constexpr std::uint64_t kOpRepeatable = 1;
inline constexpr std::uint64_t kOpRandom = 2;
inline constexpr std::uint64_t kOpVerifiable = 4;
inline constexpr std::uint64_t kOpFailed = 8;
inline constexpr std::uint64_t kOpMayOverflow = 16;
inline constexpr std::uint64_t kOpOnce = 32;
inline constexpr int kOpBits = 6;

}  // namespace recoup::detail
