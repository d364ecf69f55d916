// ById: a table by id, which grows as ids are used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace recoup::detail {

// Ids without a row have the value `T()`, or that of the constructor.
template <typename Id, typename T>
class ById {
 public:
  explicit ById(T initial = T()) : initial_(std::move(initial)) {}

  [[nodiscard]] T& operator[](Id id) {
    if (id.index() >= rows_.size()) {
      rows_.resize(std::max(id.index() + kAtOnce, 2 * rows_.size()), initial_);
    }
    return rows_[id.index()];
  }
  [[nodiscard]] const T& get(Id id) const {
    return id.index() < rows_.size() ? rows_[id.index()] : initial_;
  }
  void clear() { rows_.clear(); }

 private:
  static constexpr std::size_t kAtOnce = 256;

  T initial_;
  std::vector<T> rows_;
};

}  // namespace recoup::detail
