#include "csrc/offline/order/order_graph.h"

#include <algorithm>

namespace recoup::detail {
namespace {

using EventKind = TraceEvent::Kind;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

class Builder {
 public:
  explicit Builder(const Trace& trace) : trace_(trace) {}

  OrderGraph build() {
    for (const TraceEvent& event : trace_.events) {
      apply(event);
    }
    end_step();
    add_idle_bytes();
    return std::move(graph_);
  }

 private:
  // Accesses to one storage in the current step.
  struct Access {
    std::uint32_t writer = kNone;        // the last writer
    std::vector<std::uint32_t> readers;  // since the last write
  };

  // The number of the step being read. Marks with no op between them do not end a step.
  [[nodiscard]] std::uint32_t step() const {
    return static_cast<std::uint32_t>(graph_.steps.size());
  }

  void apply(const TraceEvent& event) {
    switch (event.kind) {
      case EventKind::kExternal:
      case EventKind::kAdopt:
        add_storage(event.size, false);
        break;
      case EventKind::kEscape:
        escape(event.index);
        break;
      case EventKind::kPin:
        kept_[event.index] = true;
        break;
      case EventKind::kDie:
      case EventKind::kDisown:
        graph_.storages[event.index].last_step = step() + (kept_[event.index] ? 1 : 0);
        break;
      case EventKind::kOp:
        if (!trace_.ops[event.index].failed) {
          add_node(event.index);
        }
        break;
      case EventKind::kStep:
        end_step();
        break;
      default:
        break;
    }
  }

  void end_step() {
    const auto end = static_cast<std::uint32_t>(graph_.nodes.size());
    if (end > begin_) {
      graph_.steps.push_back({.begin = begin_, .end = end, .idle = Bytes(0)});
      begin_ = end;
      accesses_.assign(graph_.storages.size(), {});
      visible_.clear();
      last_random_ = last_unknown_ = kNone;
    }
  }

  // From now on the program can read the storage at any time.
  void escape(std::uint32_t storage) {
    kept_[storage] = escaped_[storage] = true;
    if (accesses_[storage].writer != kNone) {
      visible_.push_back(accesses_[storage].writer);
    }
  }

  std::uint32_t add_storage(Bytes size, bool is_made) {
    graph_.storages.push_back({.size = size,
                               .first_step = step(),
                               .last_step = OrderStorage::kForever,
                               .is_made = is_made,
                               .users = {}});
    kept_.push_back(false);
    escaped_.push_back(false);
    accesses_.emplace_back();
    return static_cast<std::uint32_t>(graph_.storages.size() - 1);
  }

  void add_node(std::uint32_t index) {
    const TraceOp& op = trace_.ops[index];
    const auto number = static_cast<std::uint32_t>(graph_.nodes.size());
    graph_.nodes.push_back({.op = index,
                            .before = {},
                            .after = {},
                            .uses = {},
                            .makes = {},
                            .workspace = op.workspace});
    bool reads = false;
    bool writes = false;
    bool is_seen = false;  // a storage that it writes has escaped
    for (const TraceOperand& operand : trace_.operands_of(op)) {
      reads = reads || operand.reads;
      writes = writes || operand.written;
      is_seen = is_seen || (operand.written && escaped_[operand.storage]);
      use(number, operand.storage, operand.written);
    }
    for (const TraceFresh& fresh : trace_.fresh_of(op)) {
      const std::uint32_t storage = add_storage(fresh.nbytes, true);
      graph_.nodes[number].makes.push_back(storage);
      use(number, storage, true);
    }
    for (const std::uint32_t visible : visible_) {
      run_after(number, visible);
    }
    if (op.random) {
      run_after(number, last_random_);
      last_random_ = number;
    }
    if (!op.repeatable && (reads || writes)) {  // it may have any other effect
      run_after(number, last_unknown_);
      last_unknown_ = number;
    }
    if (is_seen || (reads && !writes && op.fresh_count == 0)) {
      visible_ = {number};  // ordered after all earlier entries, so it replaces them
    }
    std::vector<std::uint32_t>& before = graph_.nodes[number].before;
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const std::uint32_t node : before) {
      graph_.nodes[node].after.push_back(number);
    }
  }

  // An operand that is neither read nor written must exist, so it counts as read.
  void use(std::uint32_t number, std::uint32_t storage, bool writes) {
    OrderNode& node = graph_.nodes[number];
    Access& access = accesses_[storage];
    run_after(number, access.writer);
    if (writes) {
      node.before.insert(node.before.end(), access.readers.begin(), access.readers.end());
      access = {.writer = number, .readers = {}};
    } else {
      access.readers.push_back(number);
    }
    node.uses.push_back(storage);
    graph_.storages[storage].users.push_back(number);
  }

  void run_after(std::uint32_t number, std::uint32_t before) {
    if (before != kNone) {
      graph_.nodes[number].before.push_back(before);
    }
  }

  void add_idle_bytes() {
    for (const OrderStorage& storage : graph_.storages) {
      for (std::uint32_t s = storage.first_step; s < std::min(storage.last_step, step()); ++s) {
        OrderStep& idle = graph_.steps[s];
        const auto used = std::lower_bound(storage.users.begin(), storage.users.end(), idle.begin);
        if (used == storage.users.end() || *used >= idle.end) {
          idle.idle += storage.size;
        }
      }
    }
  }

  const Trace& trace_;
  OrderGraph graph_;
  std::vector<Access> accesses_;  // by storage
  std::vector<bool> kept_;        // by storage: pinned or escaped
  std::vector<bool> escaped_;
  std::uint32_t begin_ = 0;  // the first node of the current step
  // Ops whose results the program knows. All later actions of the program may depend on them.
  std::vector<std::uint32_t> visible_;
  std::uint32_t last_random_ = kNone;
  std::uint32_t last_unknown_ = kNone;
};

}  // namespace

OrderGraph build_order_graph(const Trace& trace) { return Builder(trace).build(); }

}  // namespace recoup::detail
