#include "csrc/torch/ops/traits_table.h"

#include "csrc/torch/ops/overrides.h"

namespace recoup::detail {
namespace {

class TraitsListener final : public c10::OpRegistrationListener {
 public:
  explicit TraitsListener(TraitsTable& table) : table_(table) {}
  void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    table_.forget(op.schema());
  }

 private:
  TraitsTable& table_;
};

}  // namespace

TraitsTable& TraitsTable::instance() {
  static auto* const table = [] {
    auto* const made = new TraitsTable;
    // Never destroyed: the handle's destructor would remove the listener.
    static auto* const listening =
        new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(
            std::make_unique<TraitsListener>(*made)));
    (void)listening;
    return made;
  }();
  return *table;
}

// Called under the dispatcher's lock, so no thread may wait for that lock while it holds mutex_.
void TraitsTable::forget(const c10::FunctionSchema& schema) {
  const std::lock_guard lock(mutex_);
  const auto found = table_.find(&schema);
  if (found != table_.end()) {
    for (std::unique_ptr<OpTraits>& traits : found->second) {
      if (traits) {
        traits->unregistered.set();
        unregistered_.push_back(std::move(traits));
      }
    }
    table_.erase(found);
    gone_.fetch_add(1, std::memory_order_release);
  }
}

void TraitsTable::allow_replay(const std::string& name) {
  const std::lock_guard lock(mutex_);
  allowed_.insert(name);
  for (const auto& [schema, per_reach] : table_) {
    for (const std::unique_ptr<OpTraits>& traits : per_reach) {
      if (traits && schema->name() == name) {  // changed in place: payloads refer to them
        traits->repeatable = true;
        traits->foreign = false;
        traits->kind = traits->kind == OpKind::kOpaque ? OpKind::kRecorded : traits->kind;
      }
    }
  }
}

void TraitsTable::look_for_overrides() {
  const std::lock_guard lock(mutex_);
  for (const auto& [schema, per_reach] : table_) {
    const auto op = c10::Dispatcher::singleton().findOp(schema->operator_name());
    for (const Reach reach : {Reach::kHost, Reach::kAll}) {
      const auto& traits = per_reach[static_cast<std::size_t>(reach)];
      if (traits && op && is_atens(schema->name()) &&
          is_overridden(*op, reach) != traits->overridden) {
        *traits = traits_of(*op, allowed_.contains(schema->name()), reach);
      }
    }
  }
}

const OpTraits& TraitsTable::look_up(const c10::OperatorHandle& op, Reach reach) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<OpTraits>& found = table_[&op.schema()][static_cast<std::size_t>(reach)];
  if (!found) {
    found = std::make_unique<OpTraits>(traits_of(op, allowed_.contains(op.schema().name()), reach));
  }
  return *found;
}

}  // namespace recoup::detail
