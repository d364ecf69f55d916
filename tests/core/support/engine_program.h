// Program: runs ops on an engine, as csrc/torch/calls/op_call.cpp does, and in parallel on a plain
// interpreter without budget or engine, whose results are the expected contents of all storages.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "csrc/engine/program/program_kernel.h"
#include "tests/core/support/numeric_device.h"

namespace recoup::detail {

using Tensor = std::size_t;

// The options of most programs of these tests: few results count as small, and all candidates are
// scored.
inline Options plain_options(Bytes budget, const std::string& policy = "lru") {
  return {.budget = budget,
          .policy = policy,
          .small_filter = false,
          .sampling = false,
          .small_result_bytes = 64_B};
}

// With a spill tier whose copies take 10 ns each and 0.5 ns per byte.
inline Options tiered_options(Bytes budget, Bytes tier, Bytes unit) {
  Options options = plain_options(budget);
  options.spill = tier;
  options.spill_unit = unit;
  options.spill_request_ns = 10;
  options.spill_write_ns_per_byte = options.spill_read_ns_per_byte = 0.5;
  return options;
}

struct Argument {
  Tensor tensor;
  Access access = Access::kRead;
};

struct Call {
  std::vector<Argument> arguments;  // distinct storages
  std::vector<Bytes> fresh;
  std::vector<Bytes> workspace = {};
  Bytes keeps{0};  // bytes that the kernel allocates in its first run and keeps allocated
  Nanoseconds cost{100};
  CostKey cost_key = 0;
  bool repeatable = true;
  bool stops_half_way = false;
  bool overwritable = false;  // only if it writes no operand and keeps nothing
  std::string name = "test::op";
};

// Whether the results of the call may overwrite operands.
inline bool may_be_in_place(const Call& call) {
  return call.keeps == Bytes(0) &&
         std::all_of(call.arguments.begin(), call.arguments.end(),
                     [](const Argument& each) { return each.access == Access::kRead; });
}

class Program {
 public:
  explicit Program(const Options& options, const PageSizes& pages = {})
      : device_(std::max(options.budget, options.addresses), pages),
        engine_(std::make_unique<Engine>(options, device_)) {
    device_.bind(*engine_);
  }
  ~Program() {
    engine_.reset();
    EXPECT_EQ(device_.payloads(), 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] NumericDevice& device() { return device_; }

  // Runs an op and returns its results. Passes on exceptions of the kernel and of the engine.
  std::vector<Tensor> run(const Call& call) {
    Kernel kernel{.seed = ++next_seed_,
                  .operands = {},
                  .fresh = call.fresh,
                  .workspace = call.workspace,
                  .keeps = call.keeps,
                  .stops_half_way = call.stops_half_way,
                  .overwritable = call.overwritable};
    operands_.clear();
    for (const Argument& argument : call.arguments) {
      kernel.operands.push_back(argument.access);
      operands_.push_back({.storage = id(argument.tensor),
                           .value = {},
                           .reads = reads(argument.access),
                           .written = writes(argument.access),
                           .overwritten = argument.access == Access::kOverwrite,
                           .overwritable = call.overwritable});
    }
    std::vector<BlockId> blocks(call.fresh.size());
    try {
      engine_->op().begin(call.name, operands_);
    } catch (...) {
      operands_.clear();
      throw;
    }
    try {
      execute_in_budget(call, kernel, blocks);
    } catch (const KernelFailed&) {
      kernel.stops_half_way = true;  // the device may have injected the failure
      expect_run(call, kernel);
      abort();
      throw;
    } catch (...) {
      abort();
      throw;
    }
    return finish(call, std::move(kernel), blocks);
  }

  // Shorthands for ops with one result.
  Tensor op(const std::vector<Tensor>& inputs, Bytes size) {
    return run(call_of(inputs, size)).front();
  }
  Tensor source(Bytes size) {
    Call call = call_of({}, size);
    call.repeatable = false;
    return run(call).front();
  }
  void update(Tensor target, const std::vector<Tensor>& inputs = {}) {
    write(target, Access::kUpdate, inputs);
  }
  void overwrite(Tensor target, const std::vector<Tensor>& inputs = {}) {
    write(target, Access::kOverwrite, inputs);
  }
  // A storage among Options::outside, in a segment.
  Tensor in_segment(std::uint32_t segment, Bytes nbytes) {
    return external(nbytes, Engine::Charge::kAmongOutside, SegmentId(segment));
  }
  void set_segment(std::uint32_t segment, Bytes returnable) {
    engine_->set_segment({.segment = SegmentId(segment), .returnable = returnable});
  }
  Tensor external(Bytes nbytes, Engine::Charge charge = Engine::Charge::kNow,
                  SegmentId segment = {}) {
    auto storage = std::make_unique<NumericStorage>();
    storage->nbytes = nbytes;
    storage->external = true;
    storage->outside.resize(static_cast<std::size_t>(nbytes.count()));
    const std::uint64_t seed = ++next_seed_;
    for (std::size_t at = 0; at < storage->outside.size(); ++at) {
      storage->outside[at] = pattern(seed, at);
    }
    storage->id = engine_->add_external(storage.get(), nbytes, charge, segment);
    device_.externals.push_back(storage.get());
    std::vector<std::uint8_t> content = storage->outside;
    return add(std::move(storage), std::move(content));
  }
  // The user releases the tensor.
  void drop(Tensor tensor) {
    forget_live(tensor);
    storage(tensor).dead = true;
    engine_->storage_died(id(tensor));
  }
  // The user releases an external tensor; the engine learns this when the device sweeps.
  void abandon(Tensor tensor) {
    forget_live(tensor);
    storage(tensor).abandoned = true;
  }
  // The address is given to code outside, until the tensor is dropped.
  void escape(Tensor tensor) {
    engine_->user().escape(id(tensor));
    tensors_[tensor].escaped = true;
  }
  // Escapes after its bytes have left the pool if they can.
  void escape_and_leave(Tensor tensor) {
    engine_->user().escape_and_leave(id(tensor));
    tensors_[tensor].escaped = true;
  }
  [[nodiscard]] bool escaped(Tensor tensor) const { return tensors_[tensor].escaped; }
  // Code outside writes through an address from an earlier escape.
  void foreign_write(Tensor tensor) {
    const Span bytes = device_.bytes_of(storage(tensor));
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
      tensors_[tensor].content[at] = bytes[at] = static_cast<std::uint8_t>(bytes[at] + 1);
    }
  }
  void pin(Tensor tensor) { tensors_[tensor].pins.push_back(engine_->user().pin(id(tensor))); }
  void unpin(Tensor tensor) {
    engine_->user().unpin(tensors_[tensor].pins.back());
    tensors_[tensor].pins.pop_back();
  }
  void set_rule(Tensor tensor, StorageRule rule) {
    engine_->user().set_rule(id(tensor), rule);
    tensors_[tensor].rules.insert(rule);
  }
  void grow(Bytes budget) {
    device_.grow(budget);
    engine_->grow(budget);
  }

  void shrink(Bytes budget) { engine_->shrink(budget); }

  [[nodiscard]] std::int32_t pins(Tensor tensor) const {
    return static_cast<std::int32_t>(tensors_[tensor].pins.size());
  }
  [[nodiscard]] StorageId id(Tensor tensor) const { return tensors_[tensor].storage->id; }
  [[nodiscard]] NumericStorage& storage(Tensor tensor) { return *tensors_[tensor].storage; }
  [[nodiscard]] const Value& value(Tensor tensor) const {
    return engine_->value(engine_->current(id(tensor)));
  }
  [[nodiscard]] bool resident(Tensor tensor) const { return value(tensor).resident(); }
  [[nodiscard]] bool non_recomputable(Tensor tensor) const { return !value(tensor).recomputable(); }
  [[nodiscard]] Stats stats() const { return engine_->stats(); }
  [[nodiscard]] const std::vector<Tensor>& live() const { return live_; }
  bool evict(Tensor tensor) { return engine_->user().evict(id(tensor)); }

  // Restores a storage and compares it with its expected content.
  void expect(Tensor tensor) {
    engine_->restore(engine_->current(id(tensor)));
    expect_resident(tensor);
  }
  void expect_all() {
    const std::vector<Tensor> all = live_;
    for (Tensor tensor : all) {
      expect(tensor);
    }
  }
  // Checks all invariants between ops, and the content of every live storage that is resident.
  // Changes nothing.
  void check() {
    ASSERT_NO_THROW(engine_->check());
    device_.scrub();
    for (Tensor tensor : live_) {
      ASSERT_EQ(storage(tensor).external || storage(tensor).offset.has_value(), resident(tensor));
      if (operands_.empty()) {
        ASSERT_EQ(value(tensor).hard_pins, pins(tensor) + (value(tensor).copying ? 1 : 0));
      }
      if (resident(tensor)) {
        expect_resident(tensor);
      }
      ASSERT_TRUE(resident(tensor) || !tensors_[tensor].rules.contains(StorageRule::kStays));
      ASSERT_TRUE(!value(tensor).slot.valid() ||
                  !tensors_[tensor].rules.contains(StorageRule::kOffTier));
    }
    ASSERT_LE(engine_->stats().peak_bytes, engine_->budget().count());
  }

 private:
  struct Entry {
    std::unique_ptr<NumericStorage> storage;
    std::vector<std::uint8_t> content;  // expected content
    std::size_t place = 0;              // index in live_
    std::vector<PinTicket> pins;        // of the user
    bool escaped = false;
    std::set<StorageRule> rules;
  };

  static Call call_of(const std::vector<Tensor>& inputs, Bytes size) {
    Call call{.arguments = {}, .fresh = {size}};
    for (Tensor input : inputs) {
      call.arguments.push_back({.tensor = input});
    }
    return call;
  }
  void write(Tensor target, Access access, const std::vector<Tensor>& inputs) {
    Call call{.arguments = {{.tensor = target, .access = access}}, .fresh = {}};
    for (Tensor input : inputs) {
      call.arguments.push_back({.tensor = input});
    }
    run(call);
  }
  class NumericKernel final : public ProgramKernel {
   public:
    NumericKernel(Program& program, const Call& call, const Kernel& kernel,
                  std::span<BlockId> blocks)
        : program_(program), call_(call), kernel_(kernel), blocks_(blocks) {}

    std::optional<OutOfBudgetReport> run(const Attempt& attempt) override {
      try {
        program_.device_.execute(kernel_, program_.operand_bytes(call_), blocks_);
      } catch (const OutOfBudget& error) {
        return error.report();
      }
      Engine& engine = *program_.engine_;
      if (!attempt.in_place || engine.op().handover().is_among(blocks_)) {
        return std::nullopt;
      }
      for (const BlockId block : blocks_) {  // the results may be wrong
        engine.free(block);
      }
      OutOfBudgetReport report;
      report.reason = Handover::kNotTaken;
      return report;
    }
    [[nodiscard]] KernelLimits limits() const override { return {}; }
    bool prepare(const Attempt& /*next*/, const std::function<bool()>& measure) override {
      return begin_again(measure, program_.engine_->op());
    }

   private:
    [[nodiscard]] std::span<const Operand> operands() const override { return program_.operands_; }

    Program& program_;
    const Call& call_;
    const Kernel& kernel_;
    std::span<BlockId> blocks_;
  };
  void execute_in_budget(const Call& call, const Kernel& kernel, std::span<BlockId> blocks) {
    NumericKernel attempted(*this, call, kernel, blocks);
    if (std::optional<OutOfBudgetReport> failure = engine_->attempts().run(attempted)) {
      throw OutOfBudget(std::move(*failure));
    }
  }
  std::vector<Span> operand_bytes(const Call& call) {
    std::vector<Span> operands;
    const Handover& handover = engine_->op().handover();
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      NumericStorage& each = storage(call.arguments[i].tensor);
      if (handover.value().valid() && operands_[i].value == handover.value()) {
        operands.push_back(
            device_.at({.external = nullptr, .offset = handover.offset()}, each.nbytes));
      } else {
        operands.push_back(device_.bytes_of(each));
      }
    }
    return operands;
  }
  void abort() {
    engine_->op().abort(operands_);
    operands_.clear();
  }

  // The plain interpreter.
  std::vector<std::vector<std::uint8_t>> expect_run(const Call& call, const Kernel& kernel) {
    std::vector<Span> operands;
    for (const Argument& argument : call.arguments) {
      operands.emplace_back(tensors_[argument.tensor].content);
    }
    std::vector<std::vector<std::uint8_t>> made;
    for (Bytes size : call.fresh) {
      made.emplace_back(static_cast<std::size_t>(size.count()));
    }
    const std::vector<Span> fresh(made.begin(), made.end());
    try {
      compute(kernel, operands, fresh);
    } catch (const KernelFailed&) {
      made.clear();
    }
    return made;
  }

  std::vector<Tensor> finish(const Call& call, Kernel kernel, std::span<const BlockId> blocks) {
    std::vector<std::vector<std::uint8_t>> contents = expect_run(call, kernel);
    std::vector<Bytes> operand_sizes;
    for (const Argument& argument : call.arguments) {
      operand_sizes.push_back(storage(argument.tensor).nbytes);
    }
    std::vector<FreshStorage> fresh;
    std::vector<std::unique_ptr<NumericStorage>> made;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      made.push_back(std::make_unique<NumericStorage>());
      made.back()->nbytes = call.fresh[i];
      made.back()->offset = engine_->pool().offset(blocks[i]);
      fresh.push_back({.block = blocks[i], .nbytes = call.fresh[i], .handle = made.back().get()});
    }
    Bytes workspace{0};
    for (Bytes size : call.workspace) {
      workspace += size;
    }
    workspace += std::exchange(kernel.keeps, Bytes(0));
    void* const payload = call.repeatable
                              ? device_.make_payload({.kernel = std::move(kernel),
                                                      .operand_bytes = std::move(operand_sizes),
                                                      .name = call.name,
                                                      .cost_key = call.cost_key})
                              : nullptr;
    std::vector<StorageId> storages(fresh.size());
    const OpUses uses(operands_);
    OpRecord record{.inputs = uses.inputs,
                    .written = uses.written,
                    .fresh = fresh,
                    .cost = call.cost,
                    .workspace = workspace,
                    .payload = payload};
    record.repeatable = call.repeatable;
    record.cost_key = call.cost_key;
    engine_->op().end(record, uses, operands_, storages);
    operands_.clear();
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i]->id = storages[i];
      result.push_back(add(std::move(made[i]), std::move(contents[i])));
    }
    return result;
  }

  Tensor add(std::unique_ptr<NumericStorage> storage, std::vector<std::uint8_t> content) {
    Entry& entry = tensors_.emplace_back();
    entry.storage = std::move(storage);
    entry.content = std::move(content);
    entry.place = live_.size();
    live_.push_back(tensors_.size() - 1);
    return tensors_.size() - 1;
  }
  void forget_live(Tensor tensor) {
    const std::size_t place = tensors_[tensor].place;
    live_[place] = live_.back();
    tensors_[live_[place]].place = place;
    live_.pop_back();
    tensors_[tensor].content = {};
  }
  void expect_resident(Tensor tensor) {
    const Span bytes = device_.bytes_of(storage(tensor));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensors_[tensor].content.begin(),
                           tensors_[tensor].content.end()))
        << "tensor " << tensor << " has wrong content";
  }

  NumericDevice device_;
  std::unique_ptr<Engine> engine_;
  std::vector<Entry> tensors_;
  std::vector<Tensor> live_;
  std::vector<Operand> operands_;
  std::uint64_t next_seed_ = 0;
};

}  // namespace recoup::detail
