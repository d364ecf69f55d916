// Traces for the tests of orders: written op by op, or random.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "recoup/trace.h"

namespace recoup {

class OrderTrace {
 public:
  struct Op {
    std::vector<std::uint32_t> reads;
    std::vector<std::uint32_t> writes = {};  // also reads them, unless `overwrites`
    std::vector<Bytes> makes = {};
    bool random = false;
    bool repeatable = true;
    bool overwrites = false;  // all bytes of `writes`
    Bytes workspace{0};
  };

  OrderTrace() { trace_.names = {"op", "step"}; }

  std::uint32_t external(Bytes size) {
    trace_.events.push_back({TraceEvent::Kind::kExternal, 0, size});
    return storages_++;
  }
  // Returns the id of the first storage that the op makes.
  std::uint32_t op(const Op& row) {
    TraceOp op;
    op.kernel = static_cast<std::uint32_t>(trace_.kernels.size());
    op.first_operand = static_cast<std::uint32_t>(trace_.operands.size());
    op.first_fresh = static_cast<std::uint32_t>(trace_.fresh.size());
    op.fresh_count = static_cast<std::uint32_t>(row.makes.size());
    op.random = row.random;
    op.repeatable = row.repeatable;
    op.workspace = row.workspace;
    for (const std::uint32_t storage : row.reads) {
      trace_.operands.push_back({.storage = storage, .reads = true});
    }
    for (const std::uint32_t storage : row.writes) {
      trace_.operands.push_back({.storage = storage,
                                 .reads = !row.overwrites,
                                 .written = true,
                                 .overwritten = row.overwrites});
    }
    op.operand_count = static_cast<std::uint32_t>(row.reads.size() + row.writes.size());
    trace_.kernels.emplace_back();
    for (const Bytes size : row.makes) {
      trace_.fresh.push_back({static_cast<std::uint32_t>(trace_.kernels.back().size()), size});
      trace_.kernels.back().push_back({KernelStep::Kind::kAllocate, 0, size});
    }
    trace_.events.push_back(
        {TraceEvent::Kind::kOp, static_cast<std::uint32_t>(trace_.ops.size()), Bytes(0)});
    trace_.ops.push_back(op);
    const std::uint32_t first = storages_;
    storages_ += op.fresh_count;
    return first;
  }
  void escape(std::uint32_t storage) {
    trace_.events.push_back({TraceEvent::Kind::kEscape, storage, Bytes(0)});
  }
  void die(std::uint32_t storage) {
    trace_.events.push_back({TraceEvent::Kind::kDie, storage, Bytes(0)});
  }
  void step() { trace_.events.push_back({TraceEvent::Kind::kStep, 1, Bytes(0)}); }

  Trace take() {
    validate(trace_);
    return std::move(trace_);
  }

 private:
  Trace trace_;
  std::uint32_t storages_ = 0;
};

// A random trace with all features: steps, in-place writes, random numbers, results that the
// program reads, storages from outside, escapes, and storages that never die.
inline Trace random_trace(std::uint64_t seed, int ops) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t count) { return random() % count; };
  OrderTrace trace;
  std::vector<std::uint32_t> live;
  const auto pick = [&] { return live[below(live.size())]; };
  for (int i = 0; i < 3; ++i) {
    live.push_back(trace.external(Bytes(1 + static_cast<int>(below(50)))));
  }
  for (int i = 0; i < ops; ++i) {
    OrderTrace::Op row;
    row.workspace = Bytes(below(4) == 0 ? static_cast<int>(below(60)) : 0);
    row.random = below(12) == 0;
    row.repeatable = below(15) != 0;
    const std::size_t reads = below(3);
    for (std::size_t k = 0; k < reads; ++k) {
      const std::uint32_t storage = pick();
      if (std::find(row.reads.begin(), row.reads.end(), storage) == row.reads.end()) {
        row.reads.push_back(storage);
      }
    }
    const std::size_t kind = below(10);
    const std::uint32_t target = pick();
    if (kind < 2 && std::find(row.reads.begin(), row.reads.end(), target) == row.reads.end()) {
      row.writes.push_back(target);
      row.overwrites = kind == 0;
    } else if (kind < 9 || row.reads.empty()) {
      const std::size_t makes = 1 + below(2);
      for (std::size_t k = 0; k < makes; ++k) {
        row.makes.emplace_back(1 + static_cast<int>(below(100)));
      }
    }  // otherwise the op only returns a result to the program
    const std::uint32_t first = trace.op(row);
    for (std::uint32_t k = 0; k < row.makes.size(); ++k) {
      live.push_back(first + k);
    }
    while (live.size() > 4 && below(3) != 0) {
      const std::size_t which = below(live.size());
      trace.die(live[which]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (below(50) == 0) {
      trace.escape(pick());
    }
    if (below(40) == 0) {
      trace.step();
    }
    if (below(30) == 0) {
      live.push_back(trace.external(Bytes(5)));
    }
  }
  return trace.take();
}

}  // namespace recoup
