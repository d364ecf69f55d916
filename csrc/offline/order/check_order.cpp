// check_order: runs the trace in both orders with ids of writers in place of bytes. It shares no
// code with the orderers, so that it cannot share their mistakes.
#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/base/strings.h"
#include "recoup/offline/order.h"

namespace recoup {
namespace {

using detail::str_cat;

constexpr std::uint32_t kNoTraceOp = std::numeric_limits<std::uint32_t>::max();

// What an op observes. Ops are named by their index in Trace::ops.
struct View {
  bool operands_exist = true;          // every storage that it uses has been made
  std::vector<std::uint32_t> bytes;    // the last writer of each operand that it reads or adds to
  std::uint32_t drawn = kNoTraceOp;    // the previous op that drew random numbers, if it draws
  std::uint32_t effects = kNoTraceOp;  // the previous op of unknown effects, if it has them
};

// Facts about a trace that do not depend on the order.
struct Facts {
  std::vector<std::uint32_t> program;             // ops that ran, in program order
  std::vector<std::uint32_t> step;                // by op
  std::vector<std::vector<std::uint32_t>> fresh;  // by op: the storages that it makes
  std::vector<std::uint32_t> maker;               // by storage; kNoTraceOp: made outside
  std::vector<std::uint32_t> visible;             // ops whose results became known to the program
  std::vector<std::size_t> knows;                 // by op: the size of `visible` when it ran
};

bool reads_or_writes(const Trace& trace, const TraceOp& op) {
  const auto operands = trace.operands_of(op);
  return std::any_of(operands.begin(), operands.end(),
                     [](const auto& use) { return use.reads || use.written; });
}

class FactFinder {
 public:
  explicit FactFinder(const Trace& trace) : trace_(trace) {
    facts_.step.resize(trace.ops.size());
    facts_.fresh.resize(trace.ops.size());
    facts_.knows.resize(trace.ops.size());
  }

  Facts run() {
    for (const TraceEvent& event : trace_.events) {
      switch (event.kind) {
        case TraceEvent::Kind::kStep:
          ++step_;
          break;
        case TraceEvent::Kind::kExternal:
        case TraceEvent::Kind::kAdopt:
          add_storage(kNoTraceOp);
          break;
        case TraceEvent::Kind::kEscape:
          escaped_[event.index] = true;
          if (writer_[event.index] != kNoTraceOp) {
            facts_.visible.push_back(writer_[event.index]);
          }
          break;
        case TraceEvent::Kind::kOp:
          if (!trace_.ops[event.index].failed) {
            add_op(event.index);
          }
          break;
        default:
          break;
      }
    }
    return std::move(facts_);
  }

 private:
  void add_storage(std::uint32_t maker) {
    facts_.maker.push_back(maker);
    writer_.push_back(maker);
    escaped_.push_back(false);
  }

  void add_op(std::uint32_t index) {
    const TraceOp& op = trace_.ops[index];
    facts_.program.push_back(index);
    facts_.step[index] = step_;
    facts_.knows[index] = facts_.visible.size();
    bool writes = false;
    bool is_seen = false;
    for (const TraceOperand& use : trace_.operands_of(op)) {
      if (use.written) {
        writes = true;
        is_seen = is_seen || escaped_[use.storage];
        writer_[use.storage] = index;
      }
    }
    if (is_seen || (!writes && op.fresh_count == 0 && reads_or_writes(trace_, op))) {
      facts_.visible.push_back(index);
    }
    for (std::uint32_t i = 0; i < op.fresh_count; ++i) {
      facts_.fresh[index].push_back(static_cast<std::uint32_t>(facts_.maker.size()));
      add_storage(index);
    }
  }

  const Trace& trace_;
  Facts facts_;
  std::vector<std::uint32_t> writer_;  // by storage
  std::vector<bool> escaped_;
  std::uint32_t step_ = 0;
};

// One run of all ops in a given order.
class Run {
 public:
  Run(const Trace& trace, const Facts& facts)
      : trace_(trace),
        facts_(facts),
        writer_(facts.maker.size(), kNoTraceOp),
        made_(facts.maker.size()),
        has_run_(trace.ops.size()) {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      made_[i] = facts.maker[i] == kNoTraceOp;
    }
  }

  View step(std::uint32_t index) {
    const TraceOp& op = trace_.ops[index];
    View view;
    for (const TraceOperand& use : trace_.operands_of(op)) {
      view.operands_exist = view.operands_exist && made_[use.storage];
      if (use.reads || (use.written && !use.overwritten)) {
        view.bytes.push_back(writer_[use.storage]);
      }
    }
    for (const TraceOperand& use : trace_.operands_of(op)) {
      writer_[use.storage] = use.written ? index : writer_[use.storage];
    }
    for (const std::uint32_t storage : facts_.fresh[index]) {
      made_[storage] = true;
      writer_[storage] = index;
    }
    if (op.random) {
      view.drawn = std::exchange(drawn_, index);
    }
    if (!op.repeatable && reads_or_writes(trace_, op)) {
      view.effects = std::exchange(effects_, index);
    }
    has_run_[index] = true;
    return view;
  }

  // Whether the program knows all results that it knew when `index` ran.
  bool knows_enough_for(std::uint32_t index) {
    while (known_ < facts_.visible.size() && has_run_[facts_.visible[known_]]) {
      ++known_;
    }
    return facts_.knows[index] <= known_;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& writer() const { return writer_; }

 private:
  const Trace& trace_;
  const Facts& facts_;
  std::vector<std::uint32_t> writer_;  // by storage: its last writer
  std::vector<bool> made_;
  std::vector<bool> has_run_;  // by op
  std::size_t known_ = 0;      // length of the prefix of Facts::visible that has run
  std::uint32_t drawn_ = kNoTraceOp;
  std::uint32_t effects_ = kNoTraceOp;
};

}  // namespace

std::string check_order(const Trace& trace, std::span<const std::uint32_t> ops) {
  const Facts facts = FactFinder(trace).run();
  std::vector<std::uint32_t> sorted(ops.begin(), ops.end());
  std::vector<std::uint32_t> all = facts.program;
  std::sort(sorted.begin(), sorted.end());
  std::sort(all.begin(), all.end());
  if (sorted != all) {
    return str_cat("the order has ", ops.size(), " ops, which differ from the ", all.size(),
                   " ops of the trace");
  }
  std::vector<View> expected(trace.ops.size());
  Run program(trace, facts);
  for (const std::uint32_t op : facts.program) {
    expected[op] = program.step(op);
  }
  Run run(trace, facts);
  std::uint32_t step = 0;
  for (const std::uint32_t op : ops) {
    const auto wrong = [&](std::string_view what) {
      return str_cat("op ", op, " (", trace.names[trace.ops[op].name], ") ", what);
    };
    if (facts.step[op] < step) {
      return wrong("is in another step than in the program");
    }
    step = facts.step[op];
    if (!run.knows_enough_for(op)) {
      return wrong("runs before the program has read a value that decides whether it runs");
    }
    const View view = run.step(op);
    const View& was = expected[op];
    if (!view.operands_exist) {
      return wrong("uses a value that has not been computed yet");
    }
    if (view.bytes != was.bytes) {
      return wrong("reads other content than in the program");
    }
    if (view.drawn != was.drawn || view.effects != was.effects) {
      return wrong("draws random numbers or has side effects in another order than in the program");
    }
  }
  return run.writer() == program.writer() ? "" : "a storage has other content at the end";
}

}  // namespace recoup
