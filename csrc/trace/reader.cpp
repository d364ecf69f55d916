// Reads a trace file. Everything in it is checked, and errors name the offset.
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/trace/event_traits.h"
#include "csrc/trace/format.h"
#include "csrc/trace/frames.h"
#include "csrc/trace/limits.h"
#include "csrc/trace/validator.h"

namespace recoup::detail {
namespace {

// Note [Memory of a reader]
// A small file may claim a very large content. So no memory is allocated for data that have not
// been read: a frame is unpacked while its records are read, a list grows by its elements, and a
// record is kept only if it is valid. The reader needs the memory of the kept records, at most 64
// MiB for the current record, and the buffers of the frame.
class TraceReader {
 public:
  explicit TraceReader(const std::string& path) : frames_(path) {}

  Trace read() {
    while (frames_.next()) {
      while (frames_.left() > 0) {
        read_record();
      }
    }
    return builder_.take();
  }

 private:
  [[noreturn]] void fail(const std::string& what) { frames_.fail(what); }

  std::uint64_t number() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = frames_.byte();
      if (shift == 63 && byte > 1) {
        break;
      }
      result |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80U) == 0) {
        return result;
      }
    }
    fail("a number has more than 64 bits");
  }
  std::uint32_t index(std::uint64_t most = kMostNumbered) {
    const std::uint64_t result = number();
    if (result > most) {
      fail(str_cat("index ", result, " is out of range"));
    }
    return static_cast<std::uint32_t>(result);
  }
  std::int64_t natural() { return positive(number()); }
  std::int64_t positive(std::uint64_t number) {
    if (number > std::uint64_t{1} << 62) {
      fail(str_cat("a size of ", number, " is negative or out of range"));
    }
    return static_cast<std::int64_t>(number);
  }
  // Each element takes at least one byte, so a count cannot exceed the bytes that are left.
  std::size_t count() {
    const std::uint64_t result = number();
    if (result > frames_.left()) {
      fail(str_cat("a list of ", result, " elements extends beyond its frame"));
    }
    if (result > kMostElements) {
      fail(str_cat("a list of ", result, " is longer than ", kMostElements));
    }
    return static_cast<std::size_t>(result);
  }
  std::uint32_t storage(std::uint64_t distance) {
    if (distance >= validator_.storages()) {
      fail("it refers to a storage that does not exist yet");
    }
    return static_cast<std::uint32_t>(validator_.storages() - 1 - distance);
  }

  void check_work() {
    if (validator_.kernel_steps() > kFreeKernelSteps + kKernelStepsAByte * frames_.offset()) {
      fail(str_cat("so far its ops run ", validator_.kernel_steps(),
                   " kernel steps, more than a trace of this length can have"));
    }
  }

  // Passes a record on if it is valid.
  template <class Tell>
  void keep(Tell&& tell) {
    try {
      tell(static_cast<TraceSink&>(validator_));
    } catch (const BadTrace& error) {
      fail(error.what());
    }
    check_work();
    tell(static_cast<TraceSink&>(builder_));
  }

  void read_record() {
    const std::uint64_t tag = number();
    if (tag == static_cast<std::uint64_t>(RecordTag::kName)) {
      read_name();
    } else if (tag == static_cast<std::uint64_t>(RecordTag::kKernel)) {
      read_kernel();
    } else if (tag == static_cast<std::uint64_t>(RecordTag::kOp)) {
      read_op();
    } else if (tag == static_cast<std::uint64_t>(RecordTag::kPlan)) {
      read_plan();
    } else if (tag == static_cast<std::uint64_t>(RecordTag::kListOp)) {
      read_list_op();
    } else if (tag == static_cast<std::uint64_t>(RecordTag::kDevice)) {
      read_device();
    } else {
      read_event(tag);
    }
  }

  void read_device() {
    TraceDevice device;
    device.alignment = Bytes(natural());
    device.unit = Bytes(natural());
    device.outside = Bytes(natural());
    device.window = Bytes(natural());
    const std::uint64_t flags = number();
    if (flags > kMostDeviceFlags) {
      fail(str_cat("a device has flags ", flags, ", which are unknown"));
    }
    device.bounces = (flags & kDeviceBounces) != 0;
    device.compares = (flags & kDeviceCompares) != 0;
    keep([&](TraceSink& sink) { sink.set_device(device); });
  }

  void read_name() {
    const std::size_t size = count();
    if (size > kMostNameBytes) {
      fail(str_cat("a name of ", size, " bytes is longer than ", kMostNameBytes));
    }
    std::string name;
    while (name.size() < size) {
      name.push_back(static_cast<char>(frames_.byte()));
    }
    keep([&](TraceSink& sink) { sink.add_name(name); });
  }

  void read_kernel() {
    steps_.clear();
    for (std::size_t left = count(); left > 0; --left) {
      const std::uint64_t packed = number();
      KernelStep& step = steps_.emplace_back();
      if ((packed & 1U) == 0) {
        step.size = Bytes(positive(packed >> 1));
      } else if (packed >> 1 > kMostNumbered) {
        fail(str_cat("it frees allocation ", packed >> 1, ", which is out of range"));
      } else {
        step.kind = KernelStep::Kind::kFree;
        step.index = static_cast<std::uint32_t>(packed >> 1);
      }
    }
    keep([&](TraceSink& sink) { sink.add_kernel(steps_); });
  }

  void read_op() {
    TraceOp op;
    op.name = index();
    op.kernel = index();
    const std::uint64_t flags = number();
    if (flags >> kOpBits > kMostNumbered) {
      fail(str_cat("an op makes ", flags >> kOpBits, " copies, which is out of range"));
    }
    op.copies = static_cast<std::uint32_t>(flags >> kOpBits);
    op.repeatable = (flags & kOpRepeatable) != 0;
    op.random = (flags & kOpRandom) != 0;
    op.verifiable = (flags & kOpVerifiable) != 0;
    op.failed = (flags & kOpFailed) != 0;
    op.may_overflow = (flags & kOpMayOverflow) != 0;
    op.once = (flags & kOpOnce) != 0;
    op.cost = Nanoseconds(natural());
    op.workspace = Bytes(natural());
    op.record_bytes = Bytes(natural());
    operands_.clear();
    for (std::size_t left = count(); left > 0; --left) {
      const std::uint64_t packed = number();
      operands_.push_back({.storage = storage(packed >> kOperandBits),
                           .reads = (packed & kOperandReads) != 0,
                           .written = (packed & kOperandWritten) != 0,
                           .overwritten = (packed & kOperandOverwritten) != 0,
                           .left_out = (packed & kOperandLeftOut) != 0,
                           .overwritable = (packed & kOperandOverwritable) != 0});
    }
    fresh_.clear();
    for (std::size_t left = count(); left > 0; --left) {
      const std::uint32_t allocation = index();
      fresh_.push_back({.allocation = allocation, .nbytes = Bytes(natural())});
    }
    keep([&](TraceSink& sink) { sink.add_op(op, operands_, fresh_); });
  }

  void read_list_op() {
    TraceListOp op;
    op.name = index();
    parts_.clear();
    part_operands_.clear();
    for (std::size_t left = count(); left > 0; --left) {
      const Bytes workspace(natural());
      const std::size_t operands = count();
      if (parts_.size() + part_operands_.size() + operands >= kMostElements) {
        fail(str_cat("an op on lists has more than ", kMostElements, " parts and operands"));
      }
      parts_.push_back({.first_operand = 0,
                        .operand_count = static_cast<std::uint32_t>(operands),
                        .workspace = workspace});
      for (std::size_t more = operands; more > 0; --more) {
        const std::uint64_t packed = number();
        part_operands_.push_back({.storage = storage(packed >> kPartOperandBits),
                                  .written = (packed & kPartOperandWritten) != 0});
      }
    }
    keep([&](TraceSink& sink) { sink.add_list_op(op, parts_, part_operands_); });
  }

  void read_plan() {
    TracePlan plan;
    plan.step = number();
    const std::uint64_t flags = number();
    if (flags > kPlanListed) {
      fail(str_cat("a plan has flags ", flags, ", which are unknown"));
    }
    plan.listed = (flags & kPlanListed) != 0;
    plan.budget = Bytes(natural());
    plan.expected = Nanoseconds(natural());
    evictions_.clear();
    for (std::size_t left = count(); left > 0; --left) {
      TraceEviction& eviction = evictions_.emplace_back();
      eviction.ops = index();
      eviction.op = planned_op(index());
      eviction.slot = index();
      eviction.spills = index(1) != 0;
    }
    blocks_.clear();
    for (std::size_t left = count(); left > 0; --left) {
      TraceBlock& block = blocks_.emplace_back();
      block.ops = index();
      block.evictions = index();
      block.size = Bytes(natural());
      block.at = Bytes(natural());
      block.other = Bytes(natural());
      block.op = planned_op(index());
      block.slot = index();
    }
    starts_.clear();
    for (std::size_t left = count(); left > 0; --left) {
      TraceStart& start = starts_.emplace_back();
      start.size = Bytes(natural());
      start.op = index();
      start.slot = index();
      start.storage = index();
      start.at = Bytes(natural());
      start.other = Bytes(natural());
    }
    const TracePlanLists lists{.evictions = evictions_, .blocks = blocks_, .starts = starts_};
    keep([&](TraceSink& sink) { sink.add_plan(plan, lists); });
  }

  void read_event(std::uint64_t tag) {
    for (const EventVariant& variant : kEventVariants) {
      if (tag == static_cast<std::uint64_t>(variant.tag)) {
        return read_event(traits_of(variant.kind), &variant);
      }
    }
    for (const EventTraits& traits : kEventTraits) {
      if (tag == tag_of(traits.kind) && traits.index != EventIndex::kOwnRecord) {
        return read_event(traits);
      }
    }
    fail(str_cat("unknown record tag ", tag));
  }

  void read_event(const EventTraits& traits, const EventVariant* variant = nullptr) {
    TraceEvent event{.kind = traits.kind, .index = 0, .size = Bytes(0)};
    if (traits.index == EventIndex::kNumber) {
      event.index = index();
    } else if (traits.index == EventIndex::kStorage) {
      event.index = storage(number());
    }
    if (traits.has_size) {
      event.size = Bytes(natural());
    }
    if (variant != nullptr) {
      event.index =
          variant->first + (variant->has_number ? index(kMostNumbered - variant->first) : 0);
    }
    keep([&](TraceSink& sink) { sink.add_event(event); });
  }

  FrameReader frames_;
  TraceValidator validator_;
  TraceBuilder builder_;
  // Buffers for the current record; kept to reuse their memory.
  std::vector<KernelStep> steps_;
  std::vector<TraceOperand> operands_;
  std::vector<TraceFresh> fresh_;
  std::vector<TraceEviction> evictions_;
  std::vector<TraceBlock> blocks_;
  std::vector<TraceStart> starts_;
  std::vector<TracePart> parts_;
  std::vector<TracePartOperand> part_operands_;
};

}  // namespace
}  // namespace recoup::detail

namespace recoup {

Trace read_trace(const std::string& path) { return detail::TraceReader(path).read(); }

}  // namespace recoup
