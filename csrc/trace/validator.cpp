#include "csrc/trace/validator.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/trace/event_traits.h"

namespace recoup::detail {

void TraceValidator::fail(const std::string& what) const {
  std::string place = str_cat(place_.noun, " ", place_.number);
  if (place_.op != nullptr && place_.op->name < names_.size()) {
    place += str_cat(" (op ", ops_, ", ", *names_[place_.op->name], ")");
  }
  throw BadTrace(str_cat(place, ": ", what));
}

void TraceValidator::check_size(Bytes size, Bytes most) const {
  if (size < Bytes(0) || size > most) {
    fail(str_cat("a size of ", size.count(), " bytes is not from 0 to ", most.count()));
  }
}

// The pool never gets a request for 0 bytes.
void TraceValidator::check_block_size(Bytes size) const {
  check_size(size);
  if (size == Bytes(0)) {
    fail("an allocation has 0 bytes");
  }
}

void TraceValidator::check_count(std::uint64_t count, const char* what) const {
  if (count > kMostNumbered) {
    fail(str_cat("more than ", kMostNumbered, " ", what));
  }
}

void TraceValidator::check_part(Bytes part, Bytes whole, const char* what) const {
  check_block_size(part);
  if (part > whole) {
    fail(str_cat(what, " ", part.count(), " bytes of an allocation of ", whole.count()));
  }
}

bool TraceValidator::Once::add(std::size_t index) {
  if (index >= seen_.size()) {
    seen_.resize(std::max(index + 1, 2 * seen_.size()));
  }
  return std::exchange(seen_[index], round_) != round_;
}

void TraceValidator::set_device(const TraceDevice& device) {
  place_ = {.noun = "device", .number = 0};
  if (std::exchange(has_device_, true) || !names_.empty() || !kernels_.empty() || events_ > 0) {
    fail("it is not the first record");
  }
  check_size(device.outside);
  check_size(device.window);
  check_block_size(device.unit);
  if (device.alignment > kMostAlignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(device.alignment.count()))) {
    fail(str_cat("an alignment of ", device.alignment.count(),
                 " bytes is not a power of two up to ", kMostAlignment.count()));
  }
  alignment_ = device.alignment;
}

// ---- names and kernels ----

void TraceValidator::add_name(std::string_view name) {
  place_ = {.noun = "name", .number = names_.size()};
  check_count(names_.size() + 1, "names");
  if (const std::size_t good = recordable_name(name).size(); good < name.size()) {
    fail(str_cat("not UTF-8 of at most ", kMostNameBytes, " bytes: invalid from byte ", good,
                 " on"));
  }
  const auto [added, is_new] = name_set_.emplace(name);
  if (!is_new) {
    fail(str_cat("'", name, "' occurs twice"));
  }
  names_.push_back(&*added);
}

void TraceValidator::add_kernel(std::span<const KernelStep> steps) {
  place_ = {.noun = "kernel", .number = kernels_.size()};
  check_count(kernels_.size() + 1, "kernels");
  if (steps.size() > kMostElements) {
    fail(str_cat("it has more than ", kMostElements, " steps"));
  }
  Kernel kernel{.first = allocations_.size(), .steps = static_cast<std::uint32_t>(steps.size())};
  Bytes held{0};
  for (const KernelStep& step : steps) {
    if (step.kind == KernelStep::Kind::kAllocate) {
      check_block_size(step.size);
      held += step.size;
      kernel.total += step.size;
      check_size(held);
      check_size(kernel.total, kMostTraffic);
      kernel.peak = std::max(kernel.peak, held);
      ++kernel.made;
      ++kernel.kept;
      allocations_.push_back(step.size);
      sizes_.push_back(step.size);
    } else if (step.index >= kernel.made || allocations_[kernel.first + step.index] == kFreed) {
      fail(str_cat("it frees allocation ", step.index, ", which it does not hold"));
    } else {
      held -= std::exchange(allocations_[kernel.first + step.index], kFreed);
      --kernel.kept;
    }
  }
  kernels_.push_back(kernel);
}

// ---- ops ----

void TraceValidator::add_op(const TraceOp& op, std::span<const TraceOperand> operands,
                            std::span<const TraceFresh> fresh) {
  place_ = {.noun = "event", .number = events_, .op = &op};
  if (op.name >= names_.size() || op.kernel >= kernels_.size()) {
    fail(str_cat("op ", ops_, " has no name or no kernel"));
  }
  if (std::max(operands.size(), fresh.size()) > kMostElements) {
    fail(str_cat("it has more than ", kMostElements, " operands or results"));
  }
  check_count(ops_ + 1, "ops");
  check_count(operands_ += operands.size(), "operands");
  check_count(results_ += fresh.size(), "results");
  check_operands(operands);
  check_costs(op);
  const Kernel& kernel = kernels_[op.kernel];
  take(kernel.peak);  // while it runs
  live_ -= kernel.peak;
  check_results(op, kernel, fresh);
  add_traffic(kernel.total);
  kernel_steps_ += kernel.steps;
  ++ops_;
  ++events_;
  after_op_ = events_;
  kernel_before_ = op.kernel;
  held_once_.begin();
}

void TraceValidator::check_operands(std::span<const TraceOperand> operands) {
  operands_once_.begin();
  for (const TraceOperand& operand : operands) {
    const Storage& storage = living(operand.storage);
    const auto refuse_if = [&](bool wrong, const char* what) {
      return wrong ? fail(str_cat("storage ", operand.storage, what)) : void();
    };
    refuse_if(!operands_once_.add(operand.storage), " is an operand twice");
    refuse_if(operand.overwritten && (!operand.written || operand.reads),
              " is overwritten, but also read or not written");
    refuse_if(operand.written && !operand.reads && !operand.overwritten && !operand.left_out,
              " is written in part but not read");
    refuse_if(operand.overwritable && (operand.written || !operand.reads),
              " is overwritable, but written or not read");
    add_traffic(storage.size);
  }
}

void TraceValidator::check_costs(const TraceOp& op) {
  check_size(op.workspace);
  check_size(op.record_bytes, kMostRecordBytes);
  if (op.cost < Nanoseconds(0) || op.cost > kMostCost - cost_) {
    fail(str_cat("it takes ", op.cost.count(), " ns, which is negative, or with all previous ops",
                 " more than ", kMostCost.count()));
  }
  cost_ += op.cost;
}

void TraceValidator::check_results(const TraceOp& op, const Kernel& kernel,
                                   std::span<const TraceFresh> fresh) {
  if (op.failed && !fresh.empty()) {
    fail("it failed but returns a result");
  }
  if (op.copies > kernel.made) {
    fail(str_cat("it makes ", op.copies, " copies, but its kernel has ", kernel.made,
                 " allocations"));
  }
  results_once_.begin();
  for (const TraceFresh& each : fresh) {
    const bool made = each.allocation < kernel.made;
    const Bytes size = made ? allocations_[kernel.first + each.allocation] : kFreed;
    if (size == kFreed || each.allocation < op.copies || !results_once_.add(each.allocation)) {
      fail(str_cat("it returns allocation ", each.allocation, ", which its kernel does not hold"));
    }
    check_part(each.nbytes, size, "it returns");
  }
  if (fresh.size() < kernel.kept) {
    fail("its kernel keeps an allocation that it does not return");
  }
  for (const TraceFresh& each : fresh) {
    add_storage(allocations_[kernel.first + each.allocation], op.may_overflow);
  }
}

// ---- ops on lists ----

void TraceValidator::add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                                 std::span<const TracePartOperand> operands) {
  place_ = {.noun = "event", .number = events_};
  if (in_parts_) {
    fail("an op on lists begins before the parts of the previous one have ended");
  }
  if (op.name >= names_.size()) {
    fail(str_cat("unknown name ", op.name));
  }
  if (parts.size() + operands.size() > kMostElements) {
    fail(str_cat("an op on lists has more than ", kMostElements, " parts and operands"));
  }
  check_count(++list_ops_, "ops on lists");
  check_count(parts_ += parts.size(), "parts");
  check_count(part_operands_ += operands.size(), "operands of parts");
  for (const TracePart& part : parts) {
    if (part.operand_count > operands.size()) {
      fail("its parts have other operands than the op on lists");
    }
    check_part_of_list(part, operands.first(part.operand_count));
    operands = operands.subspan(part.operand_count);
  }
  if (!operands.empty()) {
    fail("its parts have other operands than the op on lists");
  }
  kernel_steps_ += alive_;
  in_parts_ = true;
  ++events_;
}

// Its kernel may hold its workspace once more than it has operands, see InParts::need_of.
void TraceValidator::check_part_of_list(const TracePart& part,
                                        std::span<const TracePartOperand> operands) {
  const auto pieces = static_cast<std::int64_t>(operands.size()) + 1;
  check_size(part.workspace, Bytes(kMostBytes.count() / pieces));
  operands_once_.begin();
  for (const TracePartOperand& operand : operands) {
    const Storage& storage = living(operand.storage);
    if (!operands_once_.add(operand.storage)) {
      fail(str_cat("storage ", operand.storage, " is an operand of a part twice"));
    }
    add_traffic(storage.size);
  }
}

void TraceValidator::end_parts() {
  if (!in_parts_) {
    fail("parts of an op on lists end without having begun");
  }
  in_parts_ = false;
}

// ---- storages and blocks ----

TraceValidator::Storage& TraceValidator::living(std::uint32_t storage) {
  if (storage >= storages_.size()) {
    fail(str_cat("storage ", storage, " does not exist yet"));
  }
  if (!storages_[storage].alive) {
    fail(str_cat("storage ", storage, " no longer exists"));
  }
  return storages_[storage];
}

void TraceValidator::take(Bytes size) {
  live_ += size;
  if (live_ > kMostBytes) {
    fail(str_cat("at this point more than ", kMostBytes.count(), " bytes are alive at once"));
  }
}

void TraceValidator::add_traffic(Bytes size) {
  traffic_ += size;
  if (traffic_ > kMostTraffic) {
    fail(str_cat("up to this point the ops use more than ", kMostTraffic.count(), " bytes"));
  }
}

void TraceValidator::add_storage(Bytes size, bool external) {
  check_count(storages_.size() + 1, "storages");
  take(size);
  storages_.push_back({.size = size, .external = external});
  ++alive_;
}

void TraceValidator::end_storage(Storage& storage) {
  storage.alive = false;
  --alive_;
  live_ -= storage.size;
}

void TraceValidator::check_held(std::uint32_t allocation, Bytes size) {
  if (events_ != after_op_) {
    fail("no op right before it could hold a block");
  }
  after_op_ = events_ + 1;
  const Kernel& kernel = kernels_[kernel_before_];
  if (allocation >= kernel.made || allocations_[kernel.first + allocation] != kFreed ||
      !held_once_.add(allocation)) {
    fail(str_cat("its kernel does not hold allocation ", allocation, ", or returns it"));
  }
  if (size != sizes_[kernel.first + allocation]) {
    fail(str_cat("a block of ", size.count(), " bytes in an allocation of ",
                 sizes_[kernel.first + allocation].count()));
  }
}

Bytes TraceValidator::let_go_of_block(std::uint32_t block) {
  if (block >= blocks_.size() || blocks_[block] == kFreed) {
    fail(str_cat("block ", block, " is not held"));
  }
  live_ -= blocks_[block];
  return std::exchange(blocks_[block], kFreed);
}

void TraceValidator::add_block(const TraceEvent& event) {
  check_block_size(event.size);
  check_count(blocks_.size() + 1, "blocks");
  if (event.index > 0) {
    check_held(event.index - 1, event.size);
  }
  take(event.size);
  blocks_.push_back(event.size);
}

void TraceValidator::add_segment(const TraceEvent& event) {
  check_size(event.size);
  if (event.index > segments_) {
    fail(str_cat("segment ", event.index, " appears before segment ", segments_));
  }
  segments_ += event.index == segments_ ? 1 : 0;
  kernel_steps_ += alive_;
  check_count(segments_, "segments");
}

// ---- events ----

void TraceValidator::check_storage_event(const TraceEvent& event, Storage& storage) {
  const auto refuse_if = [&](bool wrong, const char* what) {
    return wrong ? fail(str_cat("storage ", event.index, what)) : void();
  };
  switch (event.kind) {
    case Kind::kDisown:
      refuse_if(!storage.external, " is disowned but was not made outside the scope");
      end_storage(storage);
      break;
    case Kind::kDie:
      end_storage(storage);
      break;
    case Kind::kLeave:
      refuse_if(!storage.escaped, " leaves the pool without having escaped");
      storage.external = true;
      break;
    case Kind::kEscape:
      storage.escaped = true;
      break;
    case Kind::kEscapeEnd:
      refuse_if(!std::exchange(storage.escaped, false), " has not escaped");
      break;
    case Kind::kRule:
      if (event.size >= Bytes(kStorageRules)) {
        fail(str_cat("unknown rule ", event.size.count()));
      }
      break;
    case Kind::kPin:
      check_count(std::uint64_t{++storage.pins} << 1, "pins of a storage");
      break;
    case Kind::kUnpin:
      refuse_if(storage.pins-- == 0, " is not pinned");
      break;
    default:  // being alive is enough
      break;
  }
}

void TraceValidator::check_other_event(const TraceEvent& event) {
  switch (event.kind) {
    case Kind::kExternal:
      check_size(event.size);
      if (event.index > 1 && event.index - 2 >= segments_) {
        fail(str_cat("unknown segment ", event.index - 2));
      }
      add_storage(event.size, true);
      break;
    case Kind::kSegment:
      add_segment(event);
      break;
    case Kind::kAllocate:
      add_block(event);
      break;
    case Kind::kFree:
      let_go_of_block(event.index);
      break;
    case Kind::kAdopt: {
      const Bytes size = let_go_of_block(event.index);
      check_part(event.size, size, "it adopts");
      add_storage(size, false);
      break;
    }
    case Kind::kStep:
      if (event.index >= names_.size()) {
        fail(str_cat("unknown name ", event.index));
      }
      break;
    case Kind::kScopeExit:
      if (++scope_exits_ > kMostScopeExits) {
        fail(str_cat("the scope is left more than ", kMostScopeExits, " times"));
      }
      break;
    case Kind::kPartsEnd:
      end_parts();
      break;
    default:  // any number is valid
      break;
  }
}

void TraceValidator::add_event(const TraceEvent& event) {
  place_ = {.noun = "event", .number = events_};
  const EventTraits& traits = traits_of(event.kind);
  if (traits.index == EventIndex::kOwnRecord) {
    fail(str_cat("unknown ", traits.name, " ", event.index));
  }
  if (traits.index == EventIndex::kStorage) {
    check_storage_event(event, living(event.index));
  } else {
    check_other_event(event);
  }
  ++events_;
}

}  // namespace recoup::detail
