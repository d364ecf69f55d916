// Pages: keeps the committed memory of the pool plus the charges outside of it within the budget.
#pragma once

#include "csrc/engine/base/footprint.h"
#include "csrc/engine/state/context.h"

namespace recoup::detail {

class Pages {
 public:
  // The argument must outlive this object.
  explicit Pages(Context& context) : context_(context), footprint_(context.device.page_sizes()) {}

  // A block has been allocated there.
  void touch(PoolOffset from, Bytes size);
  // Bytes outside the pool have been charged.
  void charged_outside();
  // Counts touched pages from now on, before the first allocation.
  void count_from_start();
  // The memory that the pool and the charges outside of it take. An upper bound.
  [[nodiscard]] Bytes committed() const;
  // The budget was reduced, and the end of the pool moved from `to` to `from`.
  void shrunk(PoolOffset from, PoolOffset to);

  [[nodiscard]] const Footprint& footprint() const { return footprint_; }
  // Checks that the blocks of all values count as touched.
  void check() const;

 private:
  void fit();
  void give_back();
  void give_back(PoolOffset from, PoolOffset to, Bytes most);

  Context& context_;
  Footprint footprint_;
  Bytes in_part_pages_{0};  // allowed excess over the budget, in partial pages
};

}  // namespace recoup::detail
