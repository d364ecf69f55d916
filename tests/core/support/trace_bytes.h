// Builds trace files from arbitrary records, also invalid ones, with correct checksums.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "csrc/trace/format.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {

// A record of a trace file as numbers. Lengths of lists are derived when the record is written.
struct Record {
  std::uint64_t tag = 0;
  std::string text = {};                     // of a name
  std::vector<std::uint64_t> numbers = {};   // of an op: the six numbers before its operands
  std::vector<std::uint64_t> operands = {};  // of an op
  std::vector<std::uint64_t> results = {};   // of an op: allocation, bytes, allocation, bytes, ...
};

inline void put_number(std::string& raw, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) {
    raw.push_back(static_cast<char>(number | 0x80));
  }
  raw.push_back(static_cast<char>(number));
}

inline void put_record(std::string& raw, const Record& record) {
  const auto put_all = [&raw](const std::vector<std::uint64_t>& numbers) {
    for (const std::uint64_t number : numbers) {
      put_number(raw, number);
    }
  };
  put_number(raw, record.tag);
  if (record.tag == static_cast<std::uint64_t>(RecordTag::kName)) {
    put_number(raw, record.text.size());
    raw += record.text;
  } else if (record.tag == static_cast<std::uint64_t>(RecordTag::kKernel)) {
    put_number(raw, record.numbers.size());
    put_all(record.numbers);
  } else if (record.tag == static_cast<std::uint64_t>(RecordTag::kOp)) {
    put_all(record.numbers);
    put_number(raw, record.operands.size());
    put_all(record.operands);
    put_number(raw, record.results.size() / 2);
    put_all(record.results);
  } else {
    put_all(record.numbers);
  }
}

// Collects the records that the writer would write.
class RecordSink final : public TraceSink {
 public:
  void set_device(const TraceDevice& device) override {
    records_.push_back({.tag = 6,
                        .numbers = {static_cast<std::uint64_t>(device.alignment.count()),
                                    static_cast<std::uint64_t>(device.unit.count()),
                                    static_cast<std::uint64_t>(device.outside.count()),
                                    static_cast<std::uint64_t>(device.window.count()),
                                    (device.bounces ? kDeviceBounces : 0) |
                                        (device.compares ? kDeviceCompares : 0)}});
  }
  void add_name(std::string_view name) override {
    records_.push_back({.tag = 1, .text = std::string(name)});
  }
  void add_kernel(std::span<const KernelStep> steps) override {
    Record record{.tag = 2};
    for (const KernelStep& step : steps) {
      const bool frees = step.kind == KernelStep::Kind::kFree;
      record.numbers.push_back(frees ? std::uint64_t{step.index} << 1 | 1
                                     : static_cast<std::uint64_t>(step.size.count()) << 1);
    }
    records_.push_back(std::move(record));
  }
  void add_op(const TraceOp& op, std::span<const TraceOperand> operands,
              std::span<const TraceFresh> fresh) override {
    const std::uint64_t flags = (op.repeatable ? kOpRepeatable : 0) | (op.random ? kOpRandom : 0) |
                                (op.verifiable ? kOpVerifiable : 0) | (op.failed ? kOpFailed : 0) |
                                (op.may_overflow ? kOpMayOverflow : 0) | (op.once ? kOpOnce : 0) |
                                std::uint64_t{op.copies} << kOpBits;
    Record record{
        .tag = 3,
        .numbers = {op.name, op.kernel, flags, static_cast<std::uint64_t>(op.cost.count()),
                    static_cast<std::uint64_t>(op.workspace.count()),
                    static_cast<std::uint64_t>(op.record_bytes.count())}};
    for (const TraceOperand& operand : operands) {
      record.operands.push_back(distance(operand.storage) << kOperandBits |
                                (operand.reads ? kOperandReads : 0) |
                                (operand.written ? kOperandWritten : 0) |
                                (operand.overwritten ? kOperandOverwritten : 0) |
                                (operand.left_out ? kOperandLeftOut : 0) |
                                (operand.overwritable ? kOperandOverwritable : 0));
    }
    for (const TraceFresh& each : fresh) {
      record.results.push_back(each.allocation);
      record.results.push_back(static_cast<std::uint64_t>(each.nbytes.count()));
    }
    storages_ += fresh.size();
    records_.push_back(std::move(record));
  }
  static std::uint64_t code_of(std::uint32_t op) {
    return op == TraceEviction::kMoves     ? 0
           : op == TraceEviction::kStorage ? 1
                                           : op + std::uint64_t{2};
  }
  void add_plan(const TracePlan& plan, const TracePlanLists& lists) override {
    Record record{
        .tag = 4,
        .numbers = {plan.step, plan.listed ? kPlanListed : 0,
                    static_cast<std::uint64_t>(plan.budget.count()),
                    static_cast<std::uint64_t>(plan.expected.count()), lists.evictions.size()}};
    for (const TraceEviction& each : lists.evictions) {
      record.numbers.insert(record.numbers.end(),
                            {each.ops, code_of(each.op), each.slot, each.spills ? 1U : 0U});
    }
    record.numbers.push_back(lists.blocks.size());
    for (const TraceBlock& each : lists.blocks) {
      record.numbers.insert(
          record.numbers.end(),
          {each.ops, each.evictions, static_cast<std::uint64_t>(each.size.count()),
           static_cast<std::uint64_t>(each.at.count()),
           static_cast<std::uint64_t>(each.other.count()), code_of(each.op), each.slot});
    }
    record.numbers.push_back(lists.starts.size());
    for (const TraceStart& each : lists.starts) {
      record.numbers.insert(record.numbers.end(),
                            {static_cast<std::uint64_t>(each.size.count()), each.op, each.slot,
                             each.storage, static_cast<std::uint64_t>(each.at.count()),
                             static_cast<std::uint64_t>(each.other.count())});
    }
    records_.push_back(std::move(record));
  }
  void add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                   std::span<const TracePartOperand> operands) override {
    Record record{.tag = 5, .numbers = {op.name, parts.size()}};
    for (const TracePart& part : parts) {
      record.numbers.push_back(static_cast<std::uint64_t>(part.workspace.count()));
      record.numbers.push_back(part.operand_count);
      for (const TracePartOperand& each : operands.first(part.operand_count)) {
        record.numbers.push_back(distance(each.storage) << kPartOperandBits |
                                 (each.written ? kPartOperandWritten : 0));
      }
      operands = operands.subspan(part.operand_count);
    }
    records_.push_back(std::move(record));
  }
  void add_event(const TraceEvent& event) override {
    using Kind = TraceEvent::Kind;
    Record record{.tag = 16 + static_cast<std::uint64_t>(event.kind)};
    const auto bytes = static_cast<std::uint64_t>(event.size.count());
    switch (event.kind) {
      case Kind::kExternal:
        ++storages_;
        record.tag = event.index == 0 ? record.tag : 7;
        [[fallthrough]];
      case Kind::kAllocate:
        record.numbers = {bytes};
        if (event.kind == Kind::kAllocate && event.index > 0) {
          record.tag = 8;
          record.numbers.push_back(event.index - 1);
        }
        break;
      case Kind::kAdopt:
        ++storages_;
        record.numbers = {event.index, bytes};
        break;
      case Kind::kRule:
        record.numbers = {distance(event.index), bytes};
        break;
      case Kind::kFree:
      case Kind::kStep:
        record.numbers = {event.index};
        break;
      case Kind::kScopeExit:
      case Kind::kPartsEnd:
      case Kind::kPlan:
      case Kind::kParts:
        break;
      default:
        record.numbers = {distance(event.index)};
        break;
    }
    records_.push_back(std::move(record));
  }
  [[nodiscard]] std::vector<Record> take() { return std::move(records_); }

 private:
  [[nodiscard]] std::uint64_t distance(std::uint32_t storage) const {
    return storages_ - 1 - storage;
  }

  std::vector<Record> records_;
  std::uint64_t storages_ = 0;
};

inline void put_u32(std::string& bytes, std::uint64_t number) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes.push_back(static_cast<char>(number >> shift));
  }
}

inline std::string frame_of(const std::string& raw) {
  std::string packed(compressBound(raw.size()), '\0');
  uLongf size = packed.size();
  compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
            reinterpret_cast<const Bytef*>(raw.data()), raw.size(), 1);
  packed.resize(size);
  std::string frame;
  put_u32(frame, raw.size());
  put_u32(frame, packed.size());
  put_u32(frame, crc32(0, reinterpret_cast<const Bytef*>(packed.data()),
                       static_cast<uInt>(packed.size())));
  return frame + packed;
}

inline std::string file_of_frames(const std::vector<std::string>& frames) {
  std::string file(kTraceMagic.begin(), kTraceMagic.end());
  put_u32(file, kTraceVersion);
  for (const std::string& frame : frames) {
    file += frame;
  }
  return file + std::string(kFrameHeader, '\0');
}

inline std::string file_of(const std::vector<Record>& records) {
  std::string raw;
  for (const Record& record : records) {
    put_record(raw, record);
  }
  return file_of_frames(raw.empty() ? std::vector<std::string>() : std::vector{frame_of(raw)});
}

inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace recoup::detail
