#include "csrc/cuda/copy_streams.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace recoup::detail::cuda {

void CopyStreams::set_end(Stream copy_stream, std::int64_t number, Event event) {
  Copies& copies = streams_.at(copy_stream);
  RECOUP_CHECK(number == copies.begun, number, " is not the last copy");
  copies.ends.push_back({.number = number, .event = event});
}

void CopyStreams::set_done(Stream copy_stream, std::int64_t number) {
  Copies& copies = streams_.at(copy_stream);
  copies.done = std::max(copies.done, number);
  while (!copies.ends.empty() && copies.ends.front().number <= copies.done) {
    copies.ends.pop_front();
  }
}

void CopyStreams::set_waited(Stream copy_stream, std::int64_t number, Stream stream) {
  if (const auto found = streams_.find(copy_stream); found != streams_.end()) {
    std::int64_t& waited = found->second.waited[stream];
    waited = std::max(waited, std::min(number, found->second.begun));
  }
}

bool CopyStreams::is_ordered(Stream copy_stream, std::int64_t number, Stream stream) const {
  const auto found = streams_.find(copy_stream);
  if (found == streams_.end()) {
    return false;
  }
  const Copies& copies = found->second;
  const auto waited = copies.waited.find(stream);
  return number <= copies.done || (waited != copies.waited.end() && number <= waited->second);
}

std::optional<CopyStreams::End> CopyStreams::end_of(Stream copy_stream, std::int64_t number) const {
  const auto found = streams_.find(copy_stream);
  if (found == streams_.end()) {
    return std::nullopt;
  }
  const std::deque<End>& ends = found->second.ends;
  const auto end =
      std::lower_bound(ends.begin(), ends.end(), number,
                       [](const End& each, std::int64_t least) { return each.number < least; });
  return end == ends.end() ? std::nullopt : std::optional(*end);
}

bool CopyStreams::is_possible(Stream stream, std::int64_t number) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? number == kAll : number > 0 && number <= found->second.begun;
}

void CopyStreams::check() const {
  for (const auto& [stream, copies] : streams_) {
    std::int64_t last = copies.done;
    for (const End& end : copies.ends) {
      RECOUP_CHECK(last < end.number && end.event.handle != nullptr, last, " before ", end.number);
      last = end.number;
    }
    RECOUP_CHECK(copies.done >= 0 && last <= copies.begun);
    for (const auto& [waiting, number] : copies.waited) {
      RECOUP_CHECK(waiting != stream && number > 0 && number <= copies.begun);
    }
  }
}

}  // namespace recoup::detail::cuda
