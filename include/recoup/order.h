// Order: in which order the ops of a trace could run, and what the most live bytes would be then.
//
// An order is legal when every op sees what it saw in the program: what it reads was written by the
// same ops, writes to a storage keep their order, draws of random numbers too, and an op whose
// result the program can see (item(), a write to an escaped storage) comes before all that the
// program did afterwards. Marked steps stay apart.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recoup/api.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup {

struct OrderInfo {
  std::string_view name;
  std::string_view summary;  // one line
};

// How an order is found, and the long-life rules that improve one; in the order of tables. The
// first of each does nothing.
RECOUP_API std::span<const OrderInfo> traversals();
RECOUP_API std::span<const OrderInfo> long_life_rules();

// The lower bound of an order is the most bytes that live at one op: its workspace, and each
// storage from the first op that uses it to the last, both included; to the end of the step where
// the program holds it beyond.
struct OpOrder {
  std::string traversal;
  std::string long_life;
  std::vector<std::uint32_t> ops;  // into Trace::ops; those that failed are left out
  std::int64_t moves = 0;          // that the long-life rule made
  Bytes bound;
  Bytes program_bound;  // of the program's own order
};

// A long-life rule moves an op only where the most live bytes on its way do not rise, so the bound
// is never above that of the traversal alone. `trace` must be valid. Throws std::invalid_argument,
// naming what there is, for an unknown name.
RECOUP_API OpOrder order_ops(const Trace& trace, std::string_view traversal,
                             std::string_view long_life);

// What is wrong with an order, in a sentence; empty when it is legal. Runs the trace in both orders
// and compares what each op sees; shares no code with order_ops.
RECOUP_API std::string check_order(const Trace& trace, std::span<const std::uint32_t> ops);

// The trace of a program that runs the ops in a legal order. In each step what comes from outside
// is there first, and a storage dies behind its last use; ops that failed are left out.
RECOUP_API Trace reorder(const Trace& trace, std::span<const std::uint32_t> ops);

}  // namespace recoup
