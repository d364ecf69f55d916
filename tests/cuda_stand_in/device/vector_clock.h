// The work of each stream that is known to be over.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace recoup::stand_in {

using StreamId = std::uint64_t;  // from 1
using Tick = std::uint64_t;      // the number of a stream's task, from 1

class VectorClock {
 public:
  [[nodiscard]] Tick at(StreamId stream) const {
    const auto found = ticks_.find(stream);
    return found == ticks_.end() ? 0 : found->second;
  }
  void advance(StreamId stream) { ++ticks_[stream]; }
  void merge(const VectorClock& other) {
    for (const auto& [stream, tick] : other.ticks_) {
      ticks_[stream] = std::max(ticks_[stream], tick);
    }
  }

 private:
  std::map<StreamId, Tick> ticks_;
};

}  // namespace recoup::stand_in
