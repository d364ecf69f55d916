// CopyStreams: the numbered copies of the engine, and which waits for them are needed.
//
// Note [Waits for copies]
// A copy stream executes only copies of the engine, in the order of their numbers:
//
//   copy stream   |copy 7   |copy 8 |copy 9           |
//                           ^ event that was recorded after copy 7
//
// A stream that accesses bytes after copy 7 has taken them waits for that event, and so not for
// copies 8 and 9. Copy 7 has waited for all earlier accesses to the bytes, so work that runs after
// copy 7 runs after those as well. Two waits for copy 7 are not needed:
// 1. The stream has waited for copy 7 or a later one. All work that it was given since then runs
//    after that copy, and so after copy 7.
// 2. The host has observed that copy 7 or a later one is done. All work that any stream is given
//    since then runs after copy 7.
// An event is only ever recorded on one copy stream. So if it was recorded again, that was after a
// later copy of the same stream, and a wait for it includes copy 7. If no event was recorded after
// copy 7, because the driver failed, the event of a later copy or of the end of the stream is used.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

class CopyStreams {
 public:
  // In place of a copy's number: all work that the stream was given.
  static constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

  // A copy, and an event that was recorded after it and before the next one.
  struct End {
    std::int64_t number = 0;
    Event event;
  };

  // Returns the number of the copy that the stream is given next: 1, 2, ... on each stream.
  [[nodiscard]] std::int64_t begin(Stream copy_stream) { return ++streams_[copy_stream].begun; }
  // The event was recorded after that copy, which is the last one. It must outlive this object, and
  // may be recorded again only on the same stream.
  void set_end(Stream copy_stream, std::int64_t number, Event event);
  // The host has observed that the copy is done.
  void set_done(Stream copy_stream, std::int64_t number);
  // `stream` was made to wait for that copy; kAll: for the end of the copy stream.
  void set_waited(Stream copy_stream, std::int64_t number, Stream stream);

  // Whether later work of `stream` runs after that copy without a further wait. False for kAll and
  // for streams without copies.
  [[nodiscard]] bool is_ordered(Stream copy_stream, std::int64_t number, Stream stream) const;
  // The end of the copy, or else the first one after it. None if no event was recorded since.
  [[nodiscard]] std::optional<End> end_of(Stream copy_stream, std::int64_t number) const;
  // Whether the stream may have been given a copy of that number, or is no copy stream and the
  // number is kAll.
  [[nodiscard]] bool is_possible(Stream stream, std::int64_t number) const;
  // Verifies all counts; throws InternalError on the first difference.
  void check() const;

 private:
  struct Copies {
    std::int64_t begun = 0;                 // number of the last copy
    std::int64_t done = 0;                  // number of the last copy that is known to be done
    std::deque<End> ends;                   // of later copies, by ascending number
    std::map<Stream, std::int64_t> waited;  // number of the last copy that a stream waited for
  };

  std::map<Stream, Copies> streams_;
};

}  // namespace recoup::detail::cuda
