// Note [Stream order]
// Who may touch which bytes of an arena before whom, across streams.
//
//   bytes      |  a         |  b      |  c            |
//   taken by   |  s1        |  s2     |  s2           |   the engine's last: an allocation, a
//   users      |  s2        |         |  s1, s3       |   replay, a move; and who waited for that
//
// Between ops of the program the program says itself what waits for what, as without us. It cannot
// for what only the engine does: giving a block of one stream to another, writing a value again on
// the stream that needed it, moving. So each range has the stream on which the engine took it last
// and the streams that used it since. An event is recorded when another stream needs one, not when
// a block is freed: a program on one stream pays for none.
//
// That an allocation counts too is for a program that fills a fresh block on another stream than
// the one that it asked on, after both have met: the block was somebody else's until a moment ago.
#pragma once

#include <boost/icl/interval_map.hpp>
#include <cstdint>
#include <functional>
#include <map>
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

// Every method that takes a stream throws CudaError when the driver fails, or when a stream that
// must wait or be waited for is being captured; then it has changed nothing, and may be called
// again. A stream that was ever given must not be destroyed before the order is: PyTorch's own
// never are, but an ExternalStream can be.
class StreamOrder {
 public:
  // The runtime must outlive it.
  explicit StreamOrder(Runtime& runtime) : runtime_(runtime) {}
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // The program's work on `stream` will touch the bytes: an op's inputs and outputs, record_stream.
  // It waits for the engine's last, once a stream.
  void use(Range range, Stream stream);
  // The engine gives the bytes away, writes or reads them on `stream`. It waits for all who touched
  // them; who uses them on another stream will wait for it.
  void take(Range range, Stream stream);

  // All that there has been, the first one first.
  [[nodiscard]] const std::vector<Stream>& streams() const { return streams_; }
  // Events recorded and waited for so far.
  [[nodiscard]] std::int64_t waits() const { return waits_; }
  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  struct State {
    std::optional<Stream> taker;
    std::vector<Stream> users;  // sorted; the taker is not among them
    friend bool operator==(const State&, const State&) = default;
  };
  using Interval = boost::icl::right_open_interval<std::int64_t>;
  using Map =
      boost::icl::interval_map<std::int64_t, State, boost::icl::partial_enricher, std::less,
                               boost::icl::inplace_plus, boost::icl::inter_section, Interval>;

  // Whether there is no other stream to tell it apart from.
  [[nodiscard]] bool is_only(Stream stream) const;
  // It is known from now on.
  void add_stream(Stream stream);
  void wait_for(Stream other, Stream stream);
  [[nodiscard]] static Interval interval(Range range);

  Runtime& runtime_;
  std::vector<Stream> streams_;  // seen so far, the first one first
  Map ranges_;                   // empty while that is the only one
  // By the device of the stream that is waited for. A wait keeps what was recorded when it was
  // asked for, so one is enough.
  std::map<int, Event> events_;
  std::int64_t waits_ = 0;
};

}  // namespace recoup::detail::cuda
