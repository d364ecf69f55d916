// Hidden: excludes values from the candidates during its lifetime, so that a policy names others.
#pragma once

#include <vector>

#include "csrc/engine/state/values.h"

namespace recoup::detail {

class Hidden {
 public:
  // The argument must outlive this object.
  explicit Hidden(Values& values) : values_(values) {}
  ~Hidden() {
    for (const ValueId id : ids_) {
      values_.soft_unpin(id);
    }
  }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

  void hide(ValueId id) {
    ids_.push_back(id);
    values_.soft_pin(id);
  }
  [[nodiscard]] std::size_t count() const { return ids_.size(); }

 private:
  Values& values_;
  std::vector<ValueId> ids_;
};

}  // namespace recoup::detail
