// TraitsTable: the traits of each op that was seen, computed once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/base/fork_mutex.h"
#include "csrc/torch/ops/overrides.h"
#include "csrc/torch/ops/traits.h"

namespace recoup::detail {

// Note [Ops that go]
// An op is identified by the address of its schema. A library of the program may be unregistered,
// and a later op may get the same address. So the dispatcher reports each op that is unregistered.
// Its traits stay for the records of its results, which cannot be replayed any more, and the next
// op at the address gets new traits.
//
// Thread safe.
class TraitsTable {
 public:
  const OpTraits& of(const c10::OperatorHandle& op, Reach reach) {
    // Perf only: traits never move once made, so each thread caches their addresses.
    struct Recent {
      std::uint32_t gone = 0;
      std::array<std::pair<std::uintptr_t, const OpTraits*>, 256> slots{};
    };
    thread_local Recent recent;
    if (const std::uint32_t gone = gone_.load(std::memory_order_acquire); recent.gone != gone) {
      recent = {.gone = gone, .slots = {}};
    }
    // A schema's address is even, so the lowest bit can hold the reach.
    const auto key =
        reinterpret_cast<std::uintptr_t>(&op.schema()) | static_cast<std::uintptr_t>(reach);
    auto& slot = recent.slots[(key >> 6) % recent.slots.size()];
    if (slot.first != key) {
      slot = {key, &look_up(op, reach)};
    }
    return *slot.second;
  }
  // The user guarantees that ops of this name ("ns::op", any overload) can be repeated.
  void allow_replay(const std::string& name);
  // Updates traits, since kernels may have been registered or removed since ops were looked up. To
  // be called while no session is in force.
  void look_for_overrides();
  // Called when the op is about to be unregistered.
  void forget(const c10::FunctionSchema& schema);
  static TraitsTable& instance();

 private:
  TraitsTable() = default;
  const OpTraits& look_up(const c10::OperatorHandle& op, Reach reach);

  ForkMutex mutex_;
  // Indexed by reach; null if not looked up yet.
  using PerReach = std::array<std::unique_ptr<OpTraits>, 2>;
  std::unordered_map<const c10::FunctionSchema*, PerReach> table_;
  std::vector<std::unique_ptr<OpTraits>> unregistered_;  // records refer to them
  std::atomic<std::uint32_t> gone_{0};                   // number of unregistered ops
  std::unordered_set<std::string> allowed_;
};

}  // namespace recoup::detail
