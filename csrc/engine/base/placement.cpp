#include "csrc/engine/base/placement.h"

#include <cstdint>

namespace recoup::detail {

Placer::Kind* Placer::find(std::string_view op) {
  Kind*& recent = recent_[reinterpret_cast<std::uintptr_t>(op.data()) / 16 % recent_.size()];
  if (recent == nullptr || recent->first != op) {
    const auto known = kinds_.find(op);
    recent = known == kinds_.end() ? nullptr : &*known;
  }
  return recent;
}

void Placer::begin(std::string_view op) {
  if (kind_ == Placement::kBestFit) {
    return;
  }
  const Kind* const known = find(op);
  expensive_ = known != nullptr && known->second.above(all_);
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
  Kind* known = find(op);
  if (known == nullptr) {
    known = &*kinds_.emplace(op, Density()).first;
  }
  for (Density* const density : {&known->second, &all_}) {
    density->cost += static_cast<double>(cost.count());
    density->bytes += static_cast<double>(made.count());
  }
}

}  // namespace recoup::detail
