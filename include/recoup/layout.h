// Static layout: an address for every buffer of a run whose lifetimes are known beforehand, so that
// buffers that live at the same time do not meet.
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

// The place of a buffer in LayoutProblem::buffers.
using BufferId = Id<struct BufferTag>;

// A moment of the run: a step of a program, a time of a trace. Only the order counts.
using LayoutTime = std::int64_t;

// Live in [lower, upper).
struct LayoutBuffer {
  std::string name;  // for people; unique in what is read from a file
  LayoutTime lower = 0;
  LayoutTime upper = 0;
  Bytes size;               // >= 0
  std::int32_t stream = 0;  // buffers of different streams never share bytes
};

// `output` may be written over `input`: the op reads an element of the input for the last time
// before it writes that element of the output.
struct InPlacePair {
  BufferId output;
  BufferId input;
};

// What runs at a step. Only ops that read an in-place input must be named, but all of those: a pair
// is safe only when its op is the one reader of the input.
struct LayoutOp {
  std::string name;
  LayoutTime step = 0;  // its outputs live from here; what it reads last lives until step + 1
  std::vector<BufferId> reads;
  std::vector<InPlacePair> in_place;
};

struct LayoutProblem {
  std::vector<LayoutBuffer> buffers;
  std::vector<LayoutOp> ops;
};

struct LayoutOptions {
  // Offsets are multiples of it, and sizes are rounded up to it. A power of two.
  Bytes alignment{1};
  // What the layout must fit in. Search then stops as soon as it does; without it, search goes on
  // to the least size.
  std::optional<Bytes> capacity;
  std::chrono::duration<double> time_limit{10.0};  // of search; the others take what they take
  // Search also stops after about so many nodes, the same in equal runs on any machine; 0: no
  // limit.
  std::int64_t node_limit = 0;
  std::vector<std::string> disable_inplace_ops;  // names of ops that are never in place
};

struct Layout {
  std::string planner;
  std::vector<PoolOffset> offsets;  // one a buffer; empty for the planner `bound`
  std::vector<BufferId> in_place;   // whose place each buffer took; invalid: nobody's
  Bytes size;                       // what all of it takes
  Bytes bound;                      // the most live bytes at one moment: no layout takes less
  Bytes sum;                        // what it would take if nothing shared anything
  Bytes least;                      // proved: no layout takes less; the bound, or more by search
  bool optimal = false;             // size == least, and there are offsets
  std::int64_t nodes = 0;           // search: decisions that were tried
};

// No layout was found in the capacity. `needed` is what the planner could do.
class RECOUP_API LayoutDoesNotFit : public std::invalid_argument {
 public:
  LayoutDoesNotFit(const std::string& what, Bytes needed, Bytes bound)
      : std::invalid_argument(what), needed_(needed), bound_(bound) {}
  [[nodiscard]] Bytes needed() const { return needed_; }
  [[nodiscard]] Bytes bound() const { return bound_; }

 private:
  Bytes needed_;
  Bytes bound_;
};

struct PlannerInfo {
  std::string_view name;
  std::string_view summary;  // one line
  bool places = true;        // false: gives a size, no offsets
};

// All planners, in the order in which tables list them.
RECOUP_API std::span<const PlannerInfo> planners();

// Throws std::invalid_argument, naming the planners there are, when `name` is none of them.
RECOUP_API const PlannerInfo& find_planner(std::string_view name);

// The layout that `planner` makes; check_layout is for who wants it proved. Throws
// std::invalid_argument, naming the buffer, the op or the option that makes no sense, and
// LayoutDoesNotFit.
RECOUP_API Layout plan_layout(const LayoutProblem& problem, std::string_view planner,
                              const LayoutOptions& options = {});

// What is wrong with a layout, in a sentence; empty when nothing is. Looks at every pair of buffers
// and shares no code with the planners.
RECOUP_API std::string check_layout(const LayoutProblem& problem, const Layout& layout,
                                    const LayoutOptions& options = {});

// Reads `id,lower,upper,size`, the header first, a buffer a line. Throws std::invalid_argument with
// `name` and the line's number for any other header, a field too few or too many, what is no whole
// number, lower >= upper, a negative size, an id that was there before, and a line that is cut off.
RECOUP_API LayoutProblem read_layout_csv(std::istream& input, std::string_view name);

}  // namespace recoup
