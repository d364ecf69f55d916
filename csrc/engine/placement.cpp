#include "csrc/engine/placement.h"

namespace recoup::detail {

void Placer::begin(std::string_view op) {
  if (kind_ == Placement::kBestFit) {
    return;
  }
  const auto known = kinds_.find(op);
  expensive_ = known != kinds_.end() && known->second.above(all_);
}

void Placer::begin_replay(Nanoseconds cost, Bytes made) {
  if (kind_ == Placement::kBestFit) {
    return;
  }
  const Density density{static_cast<double>(cost.count()), static_cast<double>(made.count())};
  expensive_ = density.above(all_);
}

void Placer::learn(std::string_view op, Nanoseconds cost, Bytes made) {
  if (kind_ == Placement::kBestFit || made == Bytes(0)) {
    return;
  }
  auto known = kinds_.find(op);
  if (known == kinds_.end()) {
    known = kinds_.emplace(op, Density()).first;
  }
  for (Density* const density : {&known->second, &all_}) {
    density->cost += static_cast<double>(cost.count());
    density->bytes += static_cast<double>(made.count());
  }
}

}  // namespace recoup::detail
