#include "csrc/offline/layout/prepare.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

// The limit of the sum of all sizes, which keeps sums far from 64-bit overflow.
constexpr Bytes kMostMemory{std::int64_t{1} << 62};

Units units_of(Bytes size, Bytes alignment) {
  return (size.count() + alignment.count() - 1) / alignment.count();
}

// A buffer, or a sequence of buffers in one place (see Note [In place]).
struct Chain {
  LayoutTime lower = 0;
  LayoutTime upper = 0;
  Units size = 0;
  std::vector<BufferId> buffers;
};

// `first` must be the first buffer of its chain. `taker` maps a buffer to the one that takes its
// place.
Chain chain_from(const LayoutProblem& problem, const std::vector<BufferId>& taker, BufferId first,
                 Bytes alignment) {
  Chain chain;
  chain.lower = problem.buffers[first.index()].lower;
  chain.size = units_of(problem.buffers[first.index()].size, alignment);
  for (BufferId id = first; id.valid(); id = taker[id.index()]) {
    chain.upper = std::max(chain.upper, problem.buffers[id.index()].upper);
    chain.buffers.push_back(id);
  }
  return chain;
}

// Converts times to sections, see LayoutItem. A section is complete at the first death after a
// birth.
LayoutInput to_sections(const std::vector<Chain>& chains) {
  LayoutInput input;
  input.items.resize(chains.size());
  std::vector<std::uint32_t> by_upper(chains.size());
  std::iota(by_upper.begin(), by_upper.end(), 0U);
  std::sort(by_upper.begin(), by_upper.end(),
            [&](std::uint32_t a, std::uint32_t b) { return chains[a].upper < chains[b].upper; });
  Units live = 0;
  bool is_born = false;
  std::size_t dead = 0;
  const auto bury_until = [&](LayoutTime now) {
    for (; dead < by_upper.size() && chains[by_upper[dead]].upper <= now; ++dead) {
      input.sections += is_born ? 1 : 0;
      is_born = false;
      input.items[by_upper[dead]].upper = input.sections;
      live -= chains[by_upper[dead]].size;
    }
  };
  for (std::size_t i = 0; i < chains.size(); ++i) {  // in the order of birth
    bury_until(chains[i].lower);
    is_born = true;
    live += chains[i].size;
    input.bound = std::max(input.bound, live);
    input.items[i] = {.lower = input.sections, .upper = 0, .size = chains[i].size};
  }
  bury_until(std::numeric_limits<LayoutTime>::max());
  return input;
}

}  // namespace

std::string describe(const LayoutProblem& problem, BufferId buffer) {
  return str_cat("'", problem.buffers[buffer.index()].name, "' (buffer ", buffer.index(), ")");
}

void check_problem(const LayoutProblem& problem, const LayoutOptions& options) {
  const auto refuse = [](const auto&... parts) { throw std::invalid_argument(str_cat(parts...)); };
  const std::int64_t alignment = options.alignment.count();
  if (alignment < 1 || !std::has_single_bit(static_cast<std::uint64_t>(alignment)) ||
      options.alignment > kMostMemory) {
    refuse("alignment must be a power of two, such as 512; got ", alignment);
  }
  if (options.capacity && options.capacity->count() < 0) {
    refuse("capacity must be 0 bytes or more; got ", options.capacity->count());
  }
  if (!(options.time_limit.count() >= 0)) {
    refuse("time_limit must be 0 seconds or more; got ", options.time_limit.count());
  }
  if (options.node_limit < 0) {
    refuse("node_limit must be 0 (none) or more; got ", options.node_limit);
  }
  if (problem.buffers.size() >= std::size_t{1} << 31) {
    refuse("at most 2^31 buffers can be laid out; got ", problem.buffers.size());
  }
  Bytes left = kMostMemory;
  for (std::uint32_t i = 0; i < problem.buffers.size(); ++i) {
    const LayoutBuffer& buffer = problem.buffers[i];
    const auto name = [&] { return describe(problem, BufferId(i)); };
    if (buffer.lower >= buffer.upper) {
      refuse(name(), ": lower must be below upper; got [", buffer.lower, ", ", buffer.upper, ")");
    }
    if (buffer.size.count() < 0) {
      refuse(name(), ": size must be 0 bytes or more; got ", buffer.size.count());
    }
    if (buffer.size > left - options.alignment) {  // without a sum, which could overflow
      refuse(name(), ": all sizes together must stay below 2^62 bytes; got ", buffer.size.count(),
             " here");
    }
    left -= Bytes(units_of(buffer.size, options.alignment) * alignment);
  }
}

std::vector<StreamInput> prepare(const LayoutProblem& problem,
                                 const std::vector<BufferId>& in_place,
                                 const LayoutOptions& options) {
  const auto count = static_cast<std::uint32_t>(problem.buffers.size());
  std::vector<BufferId> taker(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (in_place[i].valid()) {
      taker[in_place[i].index()] = BufferId(i);
    }
  }
  std::map<std::int32_t, std::vector<Chain>> streams;
  for (std::uint32_t i = 0; i < count; ++i) {
    const LayoutBuffer& buffer = problem.buffers[i];
    if (buffer.size.count() > 0 && !in_place[i].valid()) {
      streams[buffer.stream].push_back(chain_from(problem, taker, BufferId(i), options.alignment));
    }
  }
  std::vector<StreamInput> result;
  for (auto& [stream, chains] : streams) {
    std::stable_sort(chains.begin(), chains.end(),
                     [](const Chain& a, const Chain& b) { return a.lower < b.lower; });
    StreamInput& added = result.emplace_back();
    added.input = to_sections(chains);
    for (Chain& chain : chains) {
      added.buffers.push_back(std::move(chain.buffers));
    }
  }
  return result;
}

}  // namespace recoup::detail
