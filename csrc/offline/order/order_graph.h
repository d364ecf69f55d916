// The constraints on the order of a trace's ops, and the lifetimes of the storages that they use.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "recoup/trace.h"

namespace recoup::detail {

struct OrderNode {
  std::uint32_t op = 0;               // index into Trace::ops
  std::vector<std::uint32_t> before;  // nodes of its step that must run earlier, ascending
  std::vector<std::uint32_t> after;   // nodes of its step that must run later
  std::vector<std::uint32_t> uses;    // distinct storages that it reads, writes or makes
  std::vector<std::uint32_t> makes;
  Bytes workspace;
};

struct OrderStorage {
  static constexpr std::uint32_t kForever = std::numeric_limits<std::uint32_t>::max();

  Bytes size;
  std::uint32_t first_step = 0;  // the step in which it is made
  // The step in which the program releases it. In that step it lives until its last use, in earlier
  // ones to the end.
  std::uint32_t last_step = kForever;
  bool is_made = false;              // by an op; false: it comes from outside
  std::vector<std::uint32_t> users;  // nodes, ascending
};

// Nodes [begin, end). No node moves to another step.
struct OrderStep {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  Bytes idle;  // of storages that live throughout and that none of its nodes uses
};

struct OrderGraph {
  std::vector<OrderNode> nodes;  // in program order
  std::vector<OrderStorage> storages;
  std::vector<OrderStep> steps;
};

OrderGraph build_order_graph(const Trace& trace);

}  // namespace recoup::detail
