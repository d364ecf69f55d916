#include "csrc/engine/reports/holdings.h"

#include "csrc/base/check.h"

namespace recoup::detail {

void Holdings::take(const Engine& engine, const MakerTable& makers) {
  const Context& context = engine.context();
  rows_.clear();
  nameless_known_ = false;
  charged_ = context.charged();
  Bytes rest = charged_;
  context.lineage.for_each_value([&](ValueId id, const Value& value) {
    if (!has_charged_bytes(value)) {
      return;
    }
    Holding row{.kind = !value.recomputable() || value.flags.from_nothing ? HoldingKind::kSource
                                                                          : HoldingKind::kValue,
                .size = value.size,
                .maker = makers.of(id)};
    if (value.storage.valid()) {
      const HeldStorage& storage = engine.values()[value.storage];
      row.name = storage.name;
      row.birth = storage.birth;
    }
    rows_.push_back(row);
    rest -= value.size;
  });
  const auto add_rest = [&](HoldingKind kind, Bytes size) {
    if (size > Bytes(0)) {
      rows_.push_back({.kind = kind, .size = size, .maker = makers.running()});
      rest -= size;
    }
  };
  add_rest(HoldingKind::kOutside, context.outside);
  add_rest(HoldingKind::kAhead, context.charges.ahead);
  add_rest(HoldingKind::kWorkspace, rest);  // blocks that no value owns yet
}

void Holdings::name(std::uint64_t birth, NameId name) {
  if (!nameless_known_) {
    nameless_.clear();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].birth != 0 && !rows_[i].name.valid()) {
        nameless_.emplace(rows_[i].birth, i);
      }
    }
    nameless_known_ = true;
  }
  if (const auto found = nameless_.find(birth); found != nameless_.end()) {
    rows_[found->second].name = name;
    nameless_.erase(found);
  }
}

void Holdings::check() const {
  Bytes sum{0};
  for (const Holding& row : rows_) {
    RECOUP_CHECK(row.size > Bytes(0));
    sum += row.size;
  }
  RECOUP_CHECK(sum == charged_, sum.count(), " in ", rows_.size(), " holdings of ",
               charged_.count());
}

}  // namespace recoup::detail
