// MakerTable: the module (maker) that each value and each op is attributed to.
#pragma once

#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// Kept apart from the lineage, so that its records stay small while attribution is off.
class MakerTable {
 public:
  // Attributes what is made from now on to `maker`, until the next call.
  void run(MakerId maker) { running_ = maker; }
  [[nodiscard]] MakerId running() const { return running_; }

  void made(ValueId value) { set(values_, value.index(), running_); }
  // Attributes a value that was made outside the scope to no maker.
  void came(ValueId value) { set(values_, value.index(), MakerId()); }
  void ran(OpId op) { set(ops_, op.index(), running_); }

  [[nodiscard]] MakerId of(ValueId value) const { return get(values_, value.index()); }
  [[nodiscard]] MakerId of(OpId op) const { return get(ops_, op.index()); }

 private:
  static void set(std::vector<MakerId>& table, std::size_t at, MakerId maker) {
    if (at >= table.size()) {
      table.resize(at + 1);
    }
    table[at] = maker;
  }
  static MakerId get(const std::vector<MakerId>& table, std::size_t at) {
    return at < table.size() ? table[at] : MakerId();
  }

  MakerId running_;
  std::vector<MakerId> values_;
  std::vector<MakerId> ops_;
};

}  // namespace recoup::detail
