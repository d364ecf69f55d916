// ById: a table by id, which grows as ids are used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace recoup::detail {

// Ids without a row have the value `T()`.
template <typename Id, typename T>
class ById {
 public:
  [[nodiscard]] T& operator[](Id id) {
    if (id.index() >= rows_.size()) {
      rows_.resize(std::max(id.index() + kAtOnce, 2 * rows_.size()));
    }
    return rows_[id.index()];
  }
  [[nodiscard]] const T& get(Id id) const {
    return id.index() < rows_.size() ? rows_[id.index()] : none_;
  }
  void clear() { rows_.clear(); }

 private:
  static constexpr std::size_t kAtOnce = 256;

  T none_{};
  std::vector<T> rows_;
};

}  // namespace recoup::detail
