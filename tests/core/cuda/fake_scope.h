// A budget on a device that hands out its own bytes, one per request.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <set>

#include "csrc/cuda/scopes.h"

namespace recoup::detail::cuda {

class FakeScope final : public Scope {
 public:
  // Accepts requests of up to `largest` bytes.
  explicit FakeScope(Bytes largest) : largest_(largest) {}

  [[nodiscard]] bool wants(Bytes size) const override { return size <= largest_; }
  void* allocate(Bytes /*size*/, Stream stream) override {
    streams_.insert(stream);
    return &memory_[used_++];
  }
  [[nodiscard]] bool owns(const void* memory) const override {
    return memory >= memory_ && memory < memory_ + sizeof memory_;
  }
  [[nodiscard]] bool empty() const override { return used_ == 0; }
  [[nodiscard]] Bytes reserved() const override { return Bytes(sizeof memory_); }
  [[nodiscard]] Bytes used() const override {
    return Bytes(static_cast<std::int64_t>(used_.load()));
  }
  [[nodiscard]] std::optional<OutsideSegment> left_segment() const override {
    return OutsideSegment{
        .base = memory_, .extent = reserved(), .size = reserved(), .in_use = {memory_}};
  }
  [[nodiscard]] bool capturing() const override { return false; }
  void free(void* /*memory*/) override { --used_; }
  void record_stream(void* /*memory*/, Stream stream) override { streams_.insert(stream); }

  void want(Bytes largest) { largest_ = largest; }
  [[nodiscard]] const std::set<Stream>& streams() const { return streams_; }

 private:
  Bytes largest_;
  char memory_[16] = {};
  std::atomic<std::size_t> used_{0};
  std::set<Stream> streams_;
};

}  // namespace recoup::detail::cuda
