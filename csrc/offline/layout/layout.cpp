// plan_layout: converts a problem into planner inputs, and placements into a checked layout.
#include <algorithm>
#include <numeric>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/offline/layout/planner.h"
#include "csrc/offline/layout/prepare.h"

namespace recoup {
namespace detail {
namespace {

// Sets the deadline, the node limit and the target of each stream.
void set_limits(std::vector<StreamInput>& streams, const LayoutOptions& options) {
  using Clock = std::chrono::steady_clock;
  // Longer limits are treated as none, because adding them to now() could overflow.
  constexpr std::chrono::duration<double> kLongest = std::chrono::hours(24 * 31);
  const auto now = Clock::now();
  double share = 0;
  for (StreamInput& stream : streams) {
    LayoutInput& input = stream.input;
    // Streams are planned one after the other, and each gets an equal share of the time.
    share += 1.0 / static_cast<double>(streams.size());
    if (options.time_limit < kLongest) {
      input.deadline =
          now + std::chrono::duration_cast<Clock::duration>(options.time_limit * share);
    }
    input.node_limit = options.node_limit;
    input.target = input.bound;
    if (options.capacity && streams.size() == 1) {
      input.target = std::max(input.bound, options.capacity->count() / options.alignment.count());
      input.target_is_given = true;
    }
  }
}

// Lays the streams out one after the other. No layout is smaller, because streams share no
// addresses: the addresses of each could always be moved together.
void place_streams(const LayoutProblem& problem, const Planner& planner,
                   const std::vector<StreamInput>& streams, Bytes alignment, Layout& layout) {
  layout.offsets.resize(problem.buffers.size());
  Units start = 0;
  for (const StreamInput& stream : streams) {
    const LayoutPlacement placement = planner.place(stream.input);
    const std::vector<LayoutItem>& items = stream.input.items;
    RECOUP_CHECK(placement.offsets.size() == items.size(), planner.info.name);
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (const BufferId buffer : stream.buffers[i]) {
        const Units offset = start + placement.offsets[i];
        layout.offsets[buffer.index()] = PoolOffset(offset * alignment.count());
      }
    }
    start += placement.size;
    layout.least += Bytes(std::max(placement.least, stream.input.bound) * alignment.count());
    layout.nodes += placement.nodes;
  }
  layout.size = Bytes(start * alignment.count());
  layout.optimal = layout.size == layout.least;
}

void check_fits(const Layout& layout, const LayoutOptions& options) {
  if (!options.capacity || layout.size <= *options.capacity) {
    return;
  }
  std::string help;
  if (layout.bound > *options.capacity) {
    help = str_cat(to_string(layout.bound), " are live at one moment, so no planner can need less");
  } else if (layout.least > *options.capacity) {
    help = str_cat("no layout can take less than ", to_string(layout.least));
  } else if (layout.planner == "search") {
    help = "a longer time limit may find a smaller layout";
  } else {
    help = "the planner 'search' may find a smaller layout";
  }
  throw LayoutDoesNotFit(
      str_cat("the layout of '", layout.planner, "' does not fit in the capacity of ",
              to_string(*options.capacity), ": it needs ", to_string(layout.size), "; ", help),
      layout.size, layout.bound);
}

}  // namespace
}  // namespace detail

Layout plan_layout(const LayoutProblem& problem, std::string_view name,
                   const LayoutOptions& options) {
  const detail::Planner& planner = detail::planner_named(name);
  detail::check_problem(problem, options);
  Layout layout;
  layout.planner = name;
  layout.in_place = detail::choose_in_place(problem, options);
  std::vector<detail::StreamInput> streams = detail::prepare(problem, layout.in_place, options);
  detail::set_limits(streams, options);
  detail::Units bound = 0;
  for (const detail::StreamInput& stream : streams) {
    bound += stream.input.bound;
  }
  const std::int64_t alignment = options.alignment.count();
  layout.bound = Bytes(bound * alignment);
  for (const LayoutBuffer& buffer : problem.buffers) {
    layout.sum += Bytes((buffer.size.count() + alignment - 1) / alignment * alignment);
  }
  if (planner.info.places) {
    detail::place_streams(problem, planner, streams, options.alignment, layout);
    RECOUP_CHECK(layout.size >= layout.bound, name);
  } else {
    layout.size = layout.least = layout.bound;
  }
  detail::check_fits(layout, options);
  return layout;
}

}  // namespace recoup
