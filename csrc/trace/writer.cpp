#include "csrc/trace/writer.h"

#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "csrc/base/check.h"
#include "csrc/trace/event_traits.h"
#include "csrc/trace/format.h"

namespace recoup::detail {
namespace {

constexpr std::size_t kFrame = 256U << 10;

void put_u32(std::vector<unsigned char>& out, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) {
    out.push_back(static_cast<unsigned char>(number >> shift));
  }
}

// The last variant whose indices begin at or below the event's; null if there is none.
const EventVariant* variant_of(const TraceEvent& event) {
  const EventVariant* found = nullptr;
  for (const EventVariant& variant : kEventVariants) {
    if (variant.kind == event.kind && variant.first <= event.index) {
      found = &variant;
    }
  }
  return found;
}

std::uint64_t natural(std::int64_t number) {
  RECOUP_CHECK(number >= 0);
  return static_cast<std::uint64_t>(number);
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path)
    : path_(path), file_(std::fopen((path + ".partial").c_str(), "wb")) {
  if (file_ == nullptr) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  raw_.reserve(kFrame + 4096);
  std::vector<unsigned char> head(kTraceMagic.begin(), kTraceMagic.end());
  put_u32(head, kTraceVersion);
  write(head.data(), head.size());
}

TraceWriter::~TraceWriter() {
  if (file_ != nullptr) {
    file_.reset();
    std::remove((path_ + ".partial").c_str());
  }
}

void TraceWriter::write(const void* data, std::size_t size) {
  if (error_ == 0 && std::fwrite(data, 1, size, file_.get()) != size) {
    error_ = errno;
  }
}

void TraceWriter::put(std::uint64_t number) {
  while (number >= 0x80) {
    raw_.push_back(static_cast<unsigned char>(number | 0x80));
    number >>= 7;
  }
  raw_.push_back(static_cast<unsigned char>(number));
}

void TraceWriter::end_record() {
  if (raw_.size() >= kFrame) {
    flush();
  }
}

void TraceWriter::flush() {
  packed_.resize(compressBound(raw_.size()));
  uLongf packed_size = packed_.size();
  // Level 1: recording must not slow down the program.
  const int result = compress2(packed_.data(), &packed_size, raw_.data(), raw_.size(), 1);
  RECOUP_CHECK(result == Z_OK);
  std::vector<unsigned char> header;
  put_u32(header, static_cast<std::uint32_t>(raw_.size()));
  put_u32(header, static_cast<std::uint32_t>(packed_size));
  put_u32(header,
          static_cast<std::uint32_t>(crc32(0, packed_.data(), static_cast<uInt>(packed_size))));
  write(header.data(), header.size());
  write(packed_.data(), packed_size);
  raw_.clear();
}

void TraceWriter::close() {
  if (!raw_.empty()) {
    flush();
  }
  const std::array<unsigned char, kFrameHeader> end{};
  write(end.data(), end.size());
  if (std::fclose(file_.release()) != 0 && error_ == 0) {
    error_ = errno;
  }
  const std::string partial = path_ + ".partial";
  if (error_ == 0 && std::rename(partial.c_str(), path_.c_str()) != 0) {
    error_ = errno;
  }
  if (error_ != 0) {
    std::remove(partial.c_str());
    throw std::system_error(error_, std::generic_category(), path_);
  }
}

void TraceWriter::set_device(const TraceDevice& device) {
  put(static_cast<std::uint64_t>(RecordTag::kDevice));
  put(natural(device.alignment.count()));
  put(natural(device.unit.count()));
  put(natural(device.outside.count()));
  put(natural(device.window.count()));
  put((device.bounces ? kDeviceBounces : 0) | (device.compares ? kDeviceCompares : 0));
  end_record();
}

void TraceWriter::add_name(std::string_view name) {
  put(static_cast<std::uint64_t>(RecordTag::kName));
  put(name.size());
  raw_.insert(raw_.end(), name.begin(), name.end());
  end_record();
}

void TraceWriter::add_kernel(std::span<const KernelStep> steps) {
  put(static_cast<std::uint64_t>(RecordTag::kKernel));
  put(steps.size());
  for (const KernelStep& step : steps) {
    const bool frees = step.kind == KernelStep::Kind::kFree;
    put((frees ? std::uint64_t{step.index} : natural(step.size.count())) << 1 | (frees ? 1 : 0));
  }
  end_record();
}

void TraceWriter::add_op(const TraceOp& op, std::span<const TraceOperand> operands,
                         std::span<const TraceFresh> fresh) {
  put(static_cast<std::uint64_t>(RecordTag::kOp));
  put(op.name);
  put(op.kernel);
  put((op.repeatable ? kOpRepeatable : 0) | (op.random ? kOpRandom : 0) |
      (op.verifiable ? kOpVerifiable : 0) | (op.failed ? kOpFailed : 0) |
      (op.may_overflow ? kOpMayOverflow : 0) | (op.once ? kOpOnce : 0) |
      std::uint64_t{op.copies} << kOpBits);
  put(natural(op.cost.count()));
  put(natural(op.workspace.count()));
  put(natural(op.record_bytes.count()));
  put(operands.size());
  for (const TraceOperand& operand : operands) {
    put(distance(operand.storage) << kOperandBits | (operand.reads ? kOperandReads : 0) |
        (operand.written ? kOperandWritten : 0) | (operand.overwritten ? kOperandOverwritten : 0) |
        (operand.left_out ? kOperandLeftOut : 0) |
        (operand.overwritable ? kOperandOverwritable : 0));
  }
  put(fresh.size());
  for (const TraceFresh& each : fresh) {
    put(each.allocation);
    put(natural(each.nbytes.count()));
  }
  storages_ += fresh.size();
  end_record();
}

void TraceWriter::add_plan(const TracePlan& plan, const TracePlanLists& lists) {
  put(static_cast<std::uint64_t>(RecordTag::kPlan));
  put(plan.step);
  put(plan.listed ? kPlanListed : 0);
  put(natural(plan.budget.count()));
  put(natural(plan.expected.count()));
  put(lists.evictions.size());
  for (const TraceEviction& eviction : lists.evictions) {
    put(eviction.ops);
    put(planned_op_code(eviction.op));
    put(eviction.slot);
    put(eviction.spills ? 1 : 0);
  }
  put(lists.blocks.size());
  for (const TraceBlock& block : lists.blocks) {
    put(block.ops);
    put(block.evictions);
    put(natural(block.size.count()));
    put(natural(block.at.count()));
    put(natural(block.other.count()));
    put(planned_op_code(block.op));
    put(block.slot);
  }
  put(lists.starts.size());
  for (const TraceStart& start : lists.starts) {
    put(natural(start.size.count()));
    put(start.op);
    put(start.slot);
    put(start.storage);
    put(natural(start.at.count()));
    put(natural(start.other.count()));
  }
  end_record();
}

void TraceWriter::add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                              std::span<const TracePartOperand> operands) {
  put(static_cast<std::uint64_t>(RecordTag::kListOp));
  put(op.name);
  put(parts.size());
  for (const TracePart& part : parts) {
    put(natural(part.workspace.count()));
    put(part.operand_count);
    for (const TracePartOperand& operand : operands.first(part.operand_count)) {
      put(distance(operand.storage) << kPartOperandBits |
          (operand.written ? kPartOperandWritten : 0));
    }
    operands = operands.subspan(part.operand_count);
  }
  end_record();
}

void TraceWriter::add_event(const TraceEvent& event) {
  const EventTraits& traits = traits_of(event.kind);
  RECOUP_CHECK(traits.index != EventIndex::kOwnRecord);
  const EventVariant* const variant = variant_of(event);
  put(variant != nullptr ? static_cast<std::uint64_t>(variant->tag) : tag_of(event.kind));
  if (traits.index == EventIndex::kNumber) {
    put(event.index);
  } else if (traits.index == EventIndex::kStorage) {
    put(distance(event.index));
  }
  if (traits.has_size) {
    put(natural(event.size.count()));
  }
  if (variant != nullptr && variant->has_number) {
    put(event.index - variant->first);
  }
  storages_ += traits.makes_storage ? 1 : 0;
  end_record();
}

}  // namespace recoup::detail

namespace recoup {

void write_trace(const Trace& trace, const std::string& path) {
  validate(trace);
  detail::TraceWriter writer(path);
  detail::tell(trace, writer);
  writer.close();
}

}  // namespace recoup
