// Note [Stream order]
// The order in which streams may access the bytes of an arena.
//
//   bytes      |  a         |  b      |  c            |
//   taken by   |  s1        |  s2     |  s2           |   last access by the engine: allocation,
//                                                          replay or move
//   users      |  s2        |         |  s1, s3       |   streams that have waited for it
//
// Between its own ops the program orders its streams, as it does without recoup. It cannot do so
// for actions of the engine: giving a block of one stream to another, writing a value again on the
// stream that needed it, moving. So each range has the stream on which the engine took it last, and
// the streams that used it since. An event is recorded when another stream needs one, not when a
// block is freed, so a program with one stream has no overhead.
//
// An allocation counts as an access of the engine for the sake of programs that request a block on
// one stream and fill it on another after synchronizing both: until then the block belonged to
// another value.
#pragma once

#include <boost/icl/interval_map.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "csrc/cuda/copy_streams.h"
#include "csrc/cuda/runtime.h"
#include "recoup/types.h"

namespace recoup::detail::cuda {

// A range of an arena.
struct Range {
  PoolOffset offset;
  Bytes size;
};

// Every method with a stream throws CudaError if the driver fails, or if only one of the stream
// that must wait and the one that it must wait for is being captured. Then it has changed nothing
// and may be called again. Streams must outlive the order: PyTorch's own streams do, but an
// ExternalStream may not.
class StreamOrder {
 public:
  // The runtime must outlive it.
  explicit StreamOrder(Runtime& runtime) : runtime_(runtime) {}
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // The program's work on `stream` will access the bytes: an op's inputs and outputs,
  // record_stream. It waits, once per stream, for the engine's last access.
  void use(Range range, Stream stream);
  // The engine gives the bytes away, writes or reads them on `stream`. It waits for all earlier
  // accesses; later users on other streams wait for it.
  void take(Range range, Stream stream);

  // Takes bytes for a copy, which the caller gives to the copy stream before it calls any other
  // method. Returns the copy's number. A copy stream is not passed to take() or use().
  [[nodiscard]] std::int64_t take_for_copy(Range range, Stream copy_stream);
  // The event was recorded on the copy stream after that copy: see CopyStreams::set_end().
  void set_copy_end(Stream copy_stream, std::int64_t number, Event event) {
    copies_.set_end(copy_stream, number, event);
  }
  // The host has observed that the copy is done.
  void set_copy_done(Stream copy_stream, std::int64_t number) {
    copies_.set_done(copy_stream, number);
  }
  // Later work of `stream` runs after the copy.
  void wait_for_copy(Stream copy_stream, std::int64_t number, Stream stream) {
    wait_for({.stream = copy_stream, .number = number}, stream);
  }

  // All work of all streams so far is done, and the host has waited for it. `next`: the stream that
  // uses the arena next.
  void restart(Stream next) {
    ranges_.clear();
    streams_ = {next};
  }

  // All streams so far, in the order of first use.
  [[nodiscard]] const std::vector<Stream>& streams() const { return streams_; }
  // Number of times that one stream was made to wait for another.
  [[nodiscard]] std::int64_t waits() const { return waits_; }
  // Verifies all counts; throws InternalError on the first difference.
  void check() const;

 private:
  // What a stream was given up to a point.
  struct Work {
    Stream stream;
    std::int64_t number = CopyStreams::kAll;  // of the last copy, on a copy stream
    friend bool operator==(const Work&, const Work&) = default;
  };
  struct State {
    std::optional<Work> taker;
    std::vector<Stream> users;  // sorted, without the taker
    friend bool operator==(const State&, const State&) = default;
  };
  using Interval = boost::icl::right_open_interval<std::int64_t>;
  using Map =
      boost::icl::interval_map<std::int64_t, State, boost::icl::partial_enricher, std::less,
                               boost::icl::inplace_plus, boost::icl::inter_section, Interval>;

  // Adds the stream if none is known yet. Returns whether no other one is known.
  [[nodiscard]] bool add_only(Stream stream) {
    if (streams_.empty()) {
      streams_.push_back(stream);
    }
    return streams_.size() == 1 && streams_.front() == stream;
  }
  // Adds a stream to the known ones.
  void add_stream(Stream stream);
  void take_as(Range range, const Work& taker);
  // Adds work to that of other streams, or extends the work of its stream.
  static void add_work(std::vector<Work>& all, const Work& work);
  void wait_for(const Work& work, Stream stream);
  // Records an event after all work that the stream was given.
  [[nodiscard]] Event record_end(Stream stream);
  [[nodiscard]] static Interval interval(Range range);

  Runtime& runtime_;
  std::vector<Stream> streams_;  // in the order of first use
  Map ranges_;                   // empty while there is only one stream
  // By the device of the stream that is waited for. A wait refers to the last record before it, so
  // one event is enough.
  std::map<int, Event> events_;
  CopyStreams copies_;
  std::int64_t waits_ = 0;
};

}  // namespace recoup::detail::cuda
