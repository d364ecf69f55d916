// Handle: owns one thing that another object has lent, such as a pin or a block, and gives it back.
#pragma once

#include <utility>

namespace recoup::detail {

// `kRelease` is the function of the lender that takes the thing back. Move-only; an assignment
// swaps, so the other handle gives back what this one had.
template <class Lender, class Id, void (Lender::*kRelease)(Id)>
class Handle {
 public:
  // Owns nothing.
  Handle() = default;
  // Owns what `id` identifies from now on. The lender must outlive this object.
  Handle(Lender& lender, Id id) : lender_(&lender), id_(id) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept
      : lender_(std::exchange(other.lender_, nullptr)), id_(other.id_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(lender_, other.lender_);
    std::swap(id_, other.id_);
    return *this;
  }

  // Whether it owns anything.
  explicit operator bool() const { return lender_ != nullptr; }
  [[nodiscard]] Id id() const { return id_; }
  // Gives it back now.
  void reset() noexcept {
    if (Lender* const lender = std::exchange(lender_, nullptr)) {
      (lender->*kRelease)(id_);
    }
  }
  // Hands it over: the caller has to give it back.
  Id release() {
    lender_ = nullptr;
    return id_;
  }

 private:
  Lender* lender_ = nullptr;
  Id id_{};
};

}  // namespace recoup::detail
