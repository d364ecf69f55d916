// What an order must respect, and what lives when: the ops of a trace, the storages that they use.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "recoup/trace.h"

namespace recoup::detail {

struct OrderNode {
  std::uint32_t op = 0;               // into Trace::ops
  std::vector<std::uint32_t> before;  // nodes of its step that must come earlier, ascending
  std::vector<std::uint32_t> after;   // and later
  std::vector<std::uint32_t> uses;    // storages, distinct: what it reads, writes, makes
  std::vector<std::uint32_t> makes;
  Bytes workspace;
};

struct OrderStorage {
  static constexpr std::uint32_t kForever = std::numeric_limits<std::uint32_t>::max();

  Bytes size;
  std::uint32_t first_step = 0;  // in which it is made
  // In which the program lets go of it: there it lives to its last use, before that to the end.
  std::uint32_t last_step = kForever;
  bool is_made = false;              // by an op
  std::vector<std::uint32_t> users;  // nodes, ascending
};

// Nodes [begin, end); nothing moves from one step to another.
struct OrderStep {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  Bytes idle;  // of storages that live throughout and that no node of it uses
};

struct OrderGraph {
  std::vector<OrderNode> nodes;  // in the order of the program
  std::vector<OrderStorage> storages;
  std::vector<OrderStep> steps;
};

OrderGraph build_order_graph(const Trace& trace);

}  // namespace recoup::detail
