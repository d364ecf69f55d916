#include <algorithm>
#include <stdexcept>
#include <utility>

#include "csrc/base/strings.h"
#include "recoup/offline/dtr.h"

namespace recoup {
namespace {

using detail::str_cat;

void add_once(std::vector<DtrNeighbor>& neighbors, DtrNeighbor added) {
  const auto same = [&](DtrNeighbor other) { return other.storage == added.storage; };
  if (std::none_of(neighbors.begin(), neighbors.end(), same)) {
    neighbors.push_back(added);
  }
}

// Throws std::invalid_argument if no op can have this output.
void check_output(const DtrOp& op, const DtrOutput& output) {
  const auto arguments = static_cast<std::int64_t>(op.arguments.size());
  if (output.alias < -1 || output.alias >= arguments) {
    throw std::invalid_argument(str_cat(op.name, " returns a view of argument ", output.alias,
                                        " and has ", arguments, " arguments"));
  }
  if (output.size < Bytes(0) || (output.alias >= 0 && output.size != Bytes(0))) {
    throw std::invalid_argument(str_cat(op.name, " returns a ",
                                        output.alias < 0 ? "storage" : "view", " of ",
                                        output.size.count(), " bytes"));
  }
}

}  // namespace

void DtrProgram::check(DtrTensorId tensor) const {
  if (!tensor.valid() || tensor.index() >= tensors_.size()) {
    throw std::invalid_argument(
        str_cat("tensor ", tensor.index(), " does not exist; the program has ", tensors_.size()));
  }
}

void DtrProgram::check_held(DtrTensorId tensor) const {
  check(tensor);
  if (holders_[(*this)[tensor].storage.index()] == 0) {
    throw std::invalid_argument(
        str_cat("tensor ", tensor.index(), " has no holder left to release"));
  }
}

DtrStorageId DtrProgram::add_storage(Bytes size, bool constant) {
  storages_.push_back(
      {.size = size, .constant = constant, .tensors = {}, .parents = {}, .children = {}});
  holders_.push_back(0);
  return DtrStorageId(static_cast<std::uint32_t>(storages_.size() - 1));
}

DtrTensorId DtrProgram::add_tensor(DtrOpId op, DtrStorageId storage, Bytes size) {
  const DtrTensorId id(static_cast<std::uint32_t>(tensors_.size()));
  std::vector<DtrTensorId>& others = storages_[storage.index()].tensors;
  const bool added = !others.empty() && (*this)[others.back()].op == op;
  tensors_.push_back({.op = op,
                      .storage = storage,
                      .size = size,
                      .cost = added ? Nanoseconds(0) : (*this)[op].cost});
  others.push_back(id);
  ++holders_[storage.index()];
  return id;
}

DtrOpId DtrProgram::add(DtrStep::Kind kind, DtrOp op) {
  held_ += op.size;
  peak_ = std::max(peak_, held_);
  const DtrOpId id(static_cast<std::uint32_t>(ops_.size()));
  ops_.push_back(std::move(op));
  steps_.push_back({.kind = kind, .index = id.index()});
  return id;
}

// Every output of an op depends on all of its arguments.
void DtrProgram::connect(DtrOpId id) {
  const DtrOp& op = (*this)[id];
  for (const DtrTensorId argument : op.arguments) {
    for (const DtrTensorId output : op.outputs) {
      const DtrStorageId parent = (*this)[argument].storage;
      const DtrStorageId child = (*this)[output].storage;
      if (parent != child && !(*this)[parent].constant && !(*this)[child].constant) {
        add_once(storages_[parent.index()].children, {.op = id, .storage = child});
        add_once(storages_[child.index()].parents, {.op = id, .storage = parent});
      }
    }
  }
}

DtrTensorId DtrProgram::add_constant(Bytes size) {
  if (size < Bytes(0)) {
    throw std::invalid_argument(str_cat("a constant cannot have ", size.count(), " bytes"));
  }
  const DtrOpId op =
      add(DtrStep::Kind::kConstant,
          {.name = "a constant", .cost = {}, .size = size, .arguments = {}, .outputs = {}});
  const DtrTensorId tensor = add_tensor(op, add_storage(size, true), size);
  ops_.back().outputs = {tensor};
  return tensor;
}

std::vector<DtrTensorId> DtrProgram::add_op(std::string name, Nanoseconds cost,
                                            std::vector<DtrTensorId> arguments,
                                            std::span<const DtrOutput> outputs) {
  DtrOp op{.name = std::move(name),
           .cost = cost,
           .size = {},
           .arguments = std::move(arguments),
           .outputs = {}};
  if (cost < Nanoseconds(0) || outputs.empty()) {
    throw std::invalid_argument(
        str_cat(op.name, " costs ", cost.count(), " ns and has ", outputs.size(), " results"));
  }
  for (const DtrTensorId argument : op.arguments) {
    check(argument);
  }
  for (const DtrOutput& output : outputs) {
    check_output(op, output);
    op.size += output.size;
  }
  const DtrOpId id = add(DtrStep::Kind::kOp, std::move(op));
  for (const DtrOutput& output : outputs) {
    const DtrStorageId storage =
        output.alias < 0
            ? add_storage(output.size, false)
            : (*this)[(*this)[id].arguments[static_cast<std::size_t>(output.alias)]].storage;
    ops_.back().outputs.push_back(add_tensor(id, storage, output.size));
  }
  connect(id);
  ++op_count_;
  cost_ += cost;
  return (*this)[id].outputs;
}

void DtrProgram::hold(DtrTensorId tensor) {
  check_held(tensor);
  ++holders_[(*this)[tensor].storage.index()];
  steps_.push_back({.kind = DtrStep::Kind::kHold, .index = tensor.index()});
}

void DtrProgram::release(DtrTensorId tensor) {
  check_held(tensor);
  const DtrStorageId storage = (*this)[tensor].storage;
  if (--holders_[storage.index()] == 0) {
    held_ -= (*this)[storage].size;
  }
  steps_.push_back({.kind = DtrStep::Kind::kRelease, .index = tensor.index()});
}

void DtrProgram::keep(DtrTensorId tensor) {
  check_held(tensor);
  steps_.push_back({.kind = DtrStep::Kind::kKeep, .index = tensor.index()});
}

}  // namespace recoup
