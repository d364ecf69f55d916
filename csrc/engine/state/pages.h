// Pages: keeps the memory behind the pool, and what is charged outside of it, within the budget.
#pragma once

#include "csrc/engine/base/footprint.h"
#include "csrc/engine/state/context.h"

namespace recoup::detail {

class Pages {
 public:
  // It must outlive this.
  explicit Pages(Context& context) : context_(context), footprint_(context.device.page_sizes()) {}

  // A block is there now.
  void touch(PoolOffset from, Bytes size);
  // Bytes outside the pool have been charged.
  void charged_outside();
  // The budget is smaller, and the pool, which ended at `to`, ends at `from`.
  void shrunk(PoolOffset from, PoolOffset to);

  [[nodiscard]] const Footprint& footprint() const { return footprint_; }
  // That whatever owns bytes counts as touched.
  void check() const;

 private:
  void fit();
  void give_back();
  void give_back(const BlockView& free, Bytes most);

  Context& context_;
  Footprint footprint_;
  Bytes in_part_pages_{0};  // how far pages and charges may be over the budget: parts of pages
};

}  // namespace recoup::detail
