#include "csrc/lineage/changes.h"

#include "csrc/lineage/neighbors.h"

namespace recoup::detail {

void ChangeLog::on_return(ValueId id, bool exact) {
  entry(id).least = {};
  if (exact) {
    mark(up_, id, kUp);
  }
  mark(down_, id, kDown);
}

void ChangeLog::on_cut(const Lineage& lineage, ValueId id) {
  if (id.index() < entries_.size() && (entries_[id.index()].marks & kUp) != 0) {
    for_each_parent(lineage, id, [this](ValueId parent) { mark(up_, parent, kUp); });
  }
}

void ChangeLog::cheaper(const Lineage& lineage, ValueId id) {
  entry(id).least = {};
  if (lineage[id].candidate_index != Value::kNotCandidate) {
    on_change(id);
  }
}

void ChangeLog::walk(const Lineage& lineage, std::span<const ValueId> starts, bool up) {
  const std::uint32_t seen = lineage.next_mark();
  const auto visit = [&](ValueId id) {
    const Value& value = lineage[id];
    if (value.mark == seen) {
      return;
    }
    value.mark = seen;
    cheaper(lineage, id);
    if (value.evicted()) {
      stack_.push_back(id);
    }
  };
  for (ValueId start : starts) {
    if (!lineage.contains(start)) {
      continue;
    }
    cheaper(lineage, start);
    stack_.push_back(start);
    while (!stack_.empty()) {
      const ValueId id = stack_.back();
      stack_.pop_back();
      if (up) {
        for_each_parent(lineage, id, visit);
      } else {
        for_each_child(lineage, id, visit);
      }
    }
  }
}

std::span<const ValueId> ChangeLog::collect(const Lineage& lineage) {
  walk(lineage, up_, true);
  walk(lineage, down_, false);
  for (ValueId id : up_) {
    entry(id).marks &= static_cast<std::uint8_t>(~kUp);
  }
  for (ValueId id : down_) {
    entry(id).marks &= static_cast<std::uint8_t>(~kDown);
  }
  for (ValueId id : changed_) {
    entry(id).marks &= static_cast<std::uint8_t>(~kChanged);
  }
  up_.clear();
  down_.clear();
  collected_.clear();
  collected_.swap(changed_);
  return collected_;
}

}  // namespace recoup::detail
