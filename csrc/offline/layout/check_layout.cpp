// check_layout: verifies every promise of a layout in the simplest way. It shares no code with the
// planners, so that it cannot share their mistakes.
#include "csrc/base/strings.h"
#include "recoup/offline/layout.h"

namespace recoup {
namespace {

using detail::str_cat;

std::string label(const LayoutProblem& problem, std::size_t i) {
  return str_cat("'", problem.buffers[i].name, "' (buffer ", i, ")");
}

// Returns what is wrong with the address of buffer i, or an empty string.
std::string check_address(const LayoutProblem& problem, const Layout& layout, std::size_t i,
                          const LayoutOptions& options) {
  const std::int64_t offset = layout.offsets[i].count();
  if (offset < 0) {
    return str_cat(label(problem, i), " has the negative address ", offset);
  }
  if (offset % options.alignment.count() != 0) {
    return str_cat(label(problem, i), " at ", offset, " is not aligned to ",
                   options.alignment.count());
  }
  if (layout.offsets[i] + problem.buffers[i].size > layout.size) {
    return str_cat(label(problem, i), " at ", offset, " ends above the layout's size of ",
                   layout.size.count());
  }
  return {};
}

// Returns why buffer i may not be in place of the buffer that the layout names, or an empty string.
std::string check_in_place(const LayoutProblem& problem, const Layout& layout, std::size_t i,
                           const LayoutOptions& options) {
  const std::size_t of = layout.in_place[i].index();
  if (of >= problem.buffers.size()) {
    return str_cat(label(problem, i), " takes the place of a buffer that does not exist");
  }
  const LayoutBuffer& output = problem.buffers[i];
  const LayoutBuffer& input = problem.buffers[of];
  const auto refuse = [&](const char* why) {
    return str_cat(label(problem, i), " may not take the place of ", label(problem, of), ": ", why);
  };
  const LayoutOp* writer = nullptr;
  int readers = 0;
  for (const LayoutOp& op : problem.ops) {
    bool reads = false;
    for (const BufferId id : op.reads) {
      reads |= id.index() == of;
    }
    readers += reads ? 1 : 0;
    for (const InPlacePair& pair : op.in_place) {
      if (pair.output.index() == i && pair.input.index() == of) {
        writer = &op;
      }
    }
  }
  if (writer == nullptr) {
    return refuse("no op allows it");
  }
  for (const std::string& disabled : options.disable_inplace_ops) {
    if (disabled == writer->name) {
      return refuse("in-place results of its op are disabled");
    }
  }
  if (readers != 1) {
    return refuse("another op also reads that buffer");
  }
  if (input.upper > writer->step + 1 || output.lower < writer->step) {
    return refuse("that buffer is used later");
  }
  if (output.size > input.size || output.stream != input.stream) {
    return refuse("it is larger, or belongs to another stream");
  }
  if (layout.offsets[i] != layout.offsets[of]) {
    return refuse("they have different addresses");
  }
  return {};
}

bool overlap(std::int64_t a_begin, std::int64_t a_end, std::int64_t b_begin, std::int64_t b_end) {
  return a_begin < b_end && b_begin < a_end;
}

std::string check_pairs(const LayoutProblem& problem, const Layout& layout) {
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    const LayoutBuffer& a = problem.buffers[i];
    const std::int64_t a_begin = layout.offsets[i].count();
    const std::int64_t a_end = a_begin + a.size.count();
    for (std::size_t j = 0; j < i; ++j) {
      const LayoutBuffer& b = problem.buffers[j];
      const std::int64_t b_begin = layout.offsets[j].count();
      // Addresses first: most pairs share no bytes.
      if (!overlap(a_begin, a_end, b_begin, b_begin + b.size.count()) || a.size.count() == 0 ||
          b.size.count() == 0) {
        continue;
      }
      const bool together = overlap(a.lower, a.upper, b.lower, b.upper);
      const bool in_place = layout.in_place[i] == BufferId(static_cast<std::uint32_t>(j)) ||
                            layout.in_place[j] == BufferId(static_cast<std::uint32_t>(i));
      if (a.stream != b.stream || (together && !in_place)) {
        return str_cat(label(problem, j), " and ", label(problem, i), " share bytes, but ",
                       together ? "live at the same time" : "belong to different streams");
      }
    }
  }
  return {};
}

}  // namespace

std::string check_layout(const LayoutProblem& problem, const Layout& layout,
                         const LayoutOptions& options) {
  if (layout.offsets.size() != problem.buffers.size() ||
      layout.in_place.size() != problem.buffers.size()) {
    return str_cat("the layout has ", layout.offsets.size(), " offsets for ",
                   problem.buffers.size(), " buffers");
  }
  if (options.capacity && layout.size > *options.capacity) {
    return str_cat("the layout takes ", layout.size.count(), " bytes, more than the capacity of ",
                   options.capacity->count());
  }
  std::vector<int> takers(problem.buffers.size());
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    std::string fault = check_address(problem, layout, i, options);
    if (fault.empty() && layout.in_place[i].valid()) {
      fault = check_in_place(problem, layout, i, options);
      if (fault.empty() && ++takers[layout.in_place[i].index()] > 1) {
        fault = str_cat(label(problem, layout.in_place[i].index()), "'s place is taken twice");
      }
    }
    if (!fault.empty()) {
      return fault;
    }
  }
  return check_pairs(problem, layout);
}

}  // namespace recoup
