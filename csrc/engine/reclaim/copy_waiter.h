// CopyWaiter: waits for the copies under way. Their blocks can be evicted and moved afterwards.
#pragma once

#include <optional>
#include <variant>

#include "csrc/engine/base/reclaimer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {

class CopyWaiter final : public Reclaimer {
 public:
  explicit CopyWaiter(Context& context) : context_(context) {}  // must outlive this object

  // The price is the time that is left of the copies. nullopt, too: no copy is under way.
  std::optional<Offer> offer(const RoomRequest& /*request*/, Nanoseconds lost,
                             std::optional<Nanoseconds> limit) override {
    if (!context_.copies->any()) {
      return std::nullopt;
    }
    const Nanoseconds left = context_.copies->time_left();
    if (limit && left > *limit) {
      return std::nullopt;
    }
    return Offer{.price = left, .lost = lost, .plan = std::monostate{}};
  }
  void take(const Offer& /*offer*/) override { context_.copies->wait_for_all(); }

 private:
  Context& context_;
};

}  // namespace recoup::detail
