// Hidden: excludes values from the candidates during its lifetime, so that a policy names others.
#pragma once

#include <vector>

#include "csrc/engine/state/values.h"

namespace recoup::detail {

class Hidden {
 public:
  // The argument must outlive this object.
  explicit Hidden(Values& values) : values_(values) {}

  void hide(ValueId id) { pins_.push_back(values_.pin_softly(id)); }
  [[nodiscard]] std::size_t count() const { return pins_.size(); }

 private:
  Values& values_;
  std::vector<Values::SoftPin> pins_;
};

}  // namespace recoup::detail
