// Static layout: assigns an address to every buffer of a run whose lifetimes are known in advance,
// such that buffers that live at the same time do not overlap.
//
//   address
//     ^        +-----------+
//     |  +-----|     c     |      a and c may share bytes, b and c may not
//     |  |     +-----------+
//     |  |  b        |
//     |  +-----------+
//     |  |  a  |
//     +--+-----+-----------> time
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "recoup/api.h"
#include "recoup/types.h"

namespace recoup {

// Index of a buffer in LayoutProblem::buffers.
using BufferId = Id<struct BufferTag>;

// A time of the run, such as the step of a program or the time of a trace. Only the order matters.
using LayoutTime = std::int64_t;

// A buffer that lives in [lower, upper).
struct LayoutBuffer {
  std::string name;         // for messages; unique within a file
  LayoutTime lower = 0;     // first time at which it lives
  LayoutTime upper = 0;     // first time at which it lives no longer
  Bytes size;               // bytes, >= 0
  std::int32_t stream = 0;  // buffers of different streams never share bytes
};

// The op may write `output` over `input`: it reads each element of the input for the last time
// before it writes that element of the output.
struct InPlacePair {
  BufferId output;  // buffer that is written
  BufferId input;   // buffer that may be overwritten
};

// The op that runs at a step. Only ops that read an in-place input must be listed, but all of these
// must: an output may replace an input only if no other op reads the input.
struct LayoutOp {
  std::string name;     // for LayoutOptions::disable_inplace_ops
  LayoutTime step = 0;  // its outputs live from this time; its last inputs live until step + 1
  std::vector<BufferId> reads;        // buffers that it reads
  std::vector<InPlacePair> in_place;  // in-place choices
};

// The buffers and ops to plan for.
struct LayoutProblem {
  std::vector<LayoutBuffer> buffers;  // buffers; BufferId is an index into them
  std::vector<LayoutOp> ops;          // ops, see LayoutOp
};

// Options of a planner.
struct LayoutOptions {
  // Offsets are multiples of this power of two, and sizes are rounded up to it.
  Bytes alignment{1};
  // Size in bytes that the layout must fit in. With a capacity, search stops at the first layout
  // that fits; without one, it looks for the least size.
  std::optional<Bytes> capacity;
  std::chrono::duration<double> time_limit{10.0};  // time limit of search; other planners have none
  // Approximate limit for the number of decisions that search tries, which gives equal results on
  // any machine. 0: no limit.
  std::int64_t node_limit = 0;
  std::vector<std::string> disable_inplace_ops;  // names of ops whose in-place choices are ignored
};

// A layout.
struct Layout {
  std::string planner;              // name of the planner
  std::vector<PoolOffset> offsets;  // offset of each buffer; empty for the planner `bound`
  // For each buffer, the input whose bytes it takes over; invalid if none.
  std::vector<BufferId> in_place;
  Bytes size;              // total size in bytes
  Bytes bound;             // peak of live bytes: a lower bound for every layout
  Bytes sum;               // size if no buffers shared bytes
  Bytes least;             // proven lower bound: `bound`, or more if search proved more
  bool optimal = false;    // size == least, and there are offsets
  std::int64_t nodes = 0;  // decisions that search tried
};

// The planner found no layout that fits in the capacity.
class RECOUP_API LayoutDoesNotFit : public std::invalid_argument {
 public:
  // Makes the error with its text and the results of the functions below.
  LayoutDoesNotFit(const std::string& what, Bytes needed, Bytes bound)
      : std::invalid_argument(what), needed_(needed), bound_(bound) {}
  // Size of the layout that the planner found, in bytes.
  [[nodiscard]] Bytes needed() const { return needed_; }
  // Peak of live bytes: a lower bound for every layout.
  [[nodiscard]] Bytes bound() const { return bound_; }

 private:
  Bytes needed_;
  Bytes bound_;
};

// Description of a planner.
struct PlannerInfo {
  std::string_view name;     // name, for plan_layout()
  std::string_view summary;  // one line, for tables
  bool places = true;        // false: it computes a size, but no offsets
};

// All planners, in the order of tables.
RECOUP_API std::span<const PlannerInfo> planners();

// The planner with this name. Throws std::invalid_argument, which lists all names, if there is
// none.
RECOUP_API const PlannerInfo& find_planner(std::string_view name);

// Plans a layout. The result is not checked, see check_layout(). Throws std::invalid_argument,
// which names the invalid buffer, op or option, and LayoutDoesNotFit.
RECOUP_API Layout plan_layout(const LayoutProblem& problem, std::string_view planner,
                              const LayoutOptions& options = {});

// Describes in a sentence what is wrong with a layout; empty if it is correct. Compares every pair
// of buffers and shares no code with the planners.
RECOUP_API std::string check_layout(const LayoutProblem& problem, const Layout& layout,
                                    const LayoutOptions& options = {});

// Reads a CSV file with the header `id,lower,upper,size` and one buffer per line. Throws
// std::invalid_argument, with `name` and the line number, for another header, a wrong number of
// fields, a field that is not a whole number, lower >= upper, a negative size, a repeated id, or a
// truncated line.
RECOUP_API LayoutProblem read_layout_csv(std::istream& input, std::string_view name);

}  // namespace recoup
