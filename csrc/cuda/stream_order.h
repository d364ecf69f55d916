// Note [Stream order]
// Who may touch which bytes of an arena before whom, across streams.
//
//   bytes      |  a         |  b      |  c            |
//   write      |  s1        |  none   |  s2           |   the engine's last: a replay, a move
//   users      |  s1, s2    |  s1     |  s2           |   ran or will run after that
//
// Between ops of the program the program says itself what waits for what, as without us. It cannot
// for what only the engine does: giving a block of one stream to another, writing a value again on
// the stream that needed it, moving. So each range has the stream of the last write by the engine
// and the streams that were given work on it since. An event is recorded when another stream needs
// one, not when a block is freed: a program on one stream pays for none.
#pragma once

#include <boost/icl/interval_map.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "csrc/cuda/runtime.h"
#include "recoup/types.h"

namespace recoup::detail::cuda {

// A range of an arena.
struct Range {
  PoolOffset offset;
  Bytes size;
};

class StreamOrder {
 public:
  // The runtime must outlive it. Events are of that device.
  StreamOrder(Runtime& runtime, int device);
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // The program's work on `stream` will touch the bytes, which stay what they are: an op's inputs,
  // record_stream. It waits for the engine's last write, once a stream.
  void use(Range range, Stream stream);
  // The bytes become something else on `stream`: an allocation. It waits for all who touched them.
  void take(Range range, Stream stream);
  // The engine writes them on `stream`: a replay's result, the target of a move or of a copy. It
  // waits for all who touched them; who uses them on another stream will wait for it.
  void write(Range range, Stream stream);
  // The engine reads them on `stream`, of which the program knows nothing: it waits for all who
  // touched them, one of whom may have written.
  void read(Range range, Stream stream);

  // Events recorded and waited for so far.
  [[nodiscard]] std::int64_t waits() const { return waits_; }
  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  struct State {
    std::optional<Stream> writer;
    std::vector<Stream> users;  // sorted; the writer is not among them
    friend bool operator==(const State&, const State&) = default;
  };
  using Interval = boost::icl::right_open_interval<std::int64_t>;
  using Map =
      boost::icl::interval_map<std::int64_t, State, boost::icl::partial_enricher, std::less,
                               boost::icl::inplace_plus, boost::icl::inter_section, Interval>;

  // Whether there is more than one stream to tell apart; `stream` is known from now on.
  bool several(Stream stream);
  void wait_for(Stream other, Stream stream);
  void wait_for_all(Range range, Stream stream);
  void add_user(Range range, Stream stream);
  [[nodiscard]] static Interval interval(Range range);

  Runtime& runtime_;
  int device_;
  std::vector<Stream> streams_;  // seen so far, the first one first
  Map ranges_;                   // empty while that is the only one
  std::optional<Event>
      event_;  // a wait keeps what was recorded when it was asked for: one is enough
  std::int64_t waits_ = 0;
};

}  // namespace recoup::detail::cuda
