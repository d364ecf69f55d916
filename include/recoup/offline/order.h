// Order: alternative orders of the ops of a trace, and the peak of live bytes in each.
//
// An order is legal if every op sees the same content as in the program. It reads what the same ops
// wrote; writes to a storage keep their order, and so do draws of random numbers. An op with a
// result that the program can see (item(), a write to an escaped storage) precedes everything that
// the program did after it. Ops stay within their marked step.
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

// Description of a traversal or a long-life rule.
struct OrderInfo {
  std::string_view name;     // name, for order_ops()
  std::string_view summary;  // one line, for tables
};

// The ways to find an order, in the order of tables. The first changes nothing.
RECOUP_API std::span<const OrderInfo> traversals();
// The long-life rules that improve an order, in the order of tables. The first changes nothing.
RECOUP_API std::span<const OrderInfo> long_life_rules();

// An order of ops. Its lower bound is the peak of live bytes: at each op, its workspace plus the
// storages whose life spans the op. A storage lives from the first op that uses it to the last one,
// or to the end of the step if the program holds it for longer.
struct OpOrder {
  std::string traversal;           // name of the traversal
  std::string long_life;           // name of the long-life rule
  std::vector<std::uint32_t> ops;  // indices into Trace::ops; ops that failed are left out
  std::int64_t moves = 0;          // number of ops that the long-life rule moved
  Bytes bound;                     // lower bound of this order, in bytes
  Bytes program_bound;             // lower bound of the program's own order, in bytes
};

// Orders the ops of a valid trace. A long-life rule moves an op only if that does not raise the
// peak of live bytes on its way, so the bound never exceeds that of the traversal alone. Throws
// std::invalid_argument, which lists all names, for an unknown name.
RECOUP_API OpOrder order_ops(const Trace& trace, std::string_view traversal,
                             std::string_view long_life);

// Describes in a sentence what is wrong with an order; empty if it is legal. Runs the trace in both
// orders and compares what each op sees. Shares no code with order_ops().
RECOUP_API std::string check_order(const Trace& trace, std::span<const std::uint32_t> ops);

// The trace of a program that runs the ops in the given legal order. In each step, external
// storages appear first, and each storage dies right after its last use. Ops that failed are left
// out.
RECOUP_API Trace reorder(const Trace& trace, std::span<const std::uint32_t> ops);

}  // namespace recoup
