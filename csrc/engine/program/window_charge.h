// WindowCharge: the bytes that a scope is charged for overflow memory: the part that is resident.
#pragma once

#include <utility>

#include "recoup/types.h"

namespace recoup::detail {

class WindowCharge {
 public:
  // Zero: nothing is charged.
  [[nodiscard]] Bytes size() const { return size_; }
  // Charges another size. `reserve` charges bytes and returns a storage that stands for them;
  // `release` ends that. If `reserve` throws, the former size is charged again.
  template <class Reserve, class Release>
  void change(Bytes size, Reserve&& reserve, Release&& release) {
    if (size == size_) {
      return;
    }
    const Bytes before = std::exchange(size_, Bytes(0));
    if (before > Bytes(0)) {
      release(std::exchange(storage_, StorageId()));
    }
    try {
      set(size, reserve);
    } catch (...) {
      if (before > Bytes(0)) {
        set(before, reserve);
      }
      throw;
    }
  }

 private:
  template <class Reserve>
  void set(Bytes size, Reserve& reserve) {
    storage_ = reserve(size);
    size_ = size;
  }

  StorageId storage_;
  Bytes size_{0};
};

}  // namespace recoup::detail
