// Few: a vector that needs no allocation while it is small.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>

namespace recoup::detail {

// Up to kInside elements are inside the object. Converts to a span; GCC 12's does not accept
// Boost's vectors directly.
template <class T, std::size_t kInside = 8>
class Few {
 public:
  void reserve(std::size_t count) { elements_.reserve(count); }
  void push_back(const T& element) { elements_.push_back(element); }
  // Removes the last element and returns it. There must be one.
  T take_last() {
    const T last = elements_.back();
    elements_.pop_back();
    return last;
  }
  [[nodiscard]] bool empty() const { return elements_.empty(); }
  [[nodiscard]] const T* begin() const { return elements_.data(); }
  [[nodiscard]] const T* end() const { return elements_.data() + elements_.size(); }

 private:
  boost::container::small_vector<T, kInside> elements_;
};

}  // namespace recoup::detail
