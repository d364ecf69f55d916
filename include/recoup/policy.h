// How victims are chosen. A policy plans and never acts; it sees rows, never the engine.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recoup/api.h"
#include "recoup/types.h"

namespace recoup {

using Rng = std::mt19937_64;

// Which evicted values count towards the cost of getting one back (DTR, section 4.1 and C.2).
enum class Neighborhood : std::uint8_t {
  kExact,        // e*: evicted ancestors and evicted descendants, through evicted values only
  kEquivalence,  // e~*: one undirected component, kept by union-find, never split
  kAncestors,    // evicted ancestors only: what a replay would really run (MSPS)
};

// What a policy asks the engine to maintain for it; what is not asked for costs nothing.
struct PolicyNeeds {
  bool equivalence = false;  // Neighborhood::kEquivalence will be asked for
  bool future = false;       // Candidate::until_use will be looked at
  bool priority = false;     // Candidate::priority will be looked at
  bool free_around = false;  // Candidate::free_around will be looked at
  bool blocks = false;       // blocks() will be asked for
  bool inputs = false;       // inputs() will be asked for
  bool moves = false;        // PoolBlock::move_cost will be looked at
  bool copies = false;       // Candidate::copy_cost will be looked at
  bool changes = false;      // changes() will be asked for
  // kExact or kAncestors: Candidate::walked_at_least will be looked at; with changes only.
  std::optional<Neighborhood> walks = {};
};

// A resident, unpinned value with lineage: one that may be evicted. A copy, valid during a plan.
struct Candidate {
  static constexpr Nanoseconds kNever = Nanoseconds::max();

  ValueId id;
  Bytes size;              // of its block, > 0
  PoolOffset offset;       // where its block is
  Nanoseconds own_cost{};  // of the op that made it, >= 0
  Tick last_access = 0;    // <= PolicyView::now()
  // Its Neighborhood::kEquivalence costs no less, >= 0. Saves the question where that is enough.
  Nanoseconds equivalence_at_least{};
  // The same of PolicyNeeds::walks. Only if that asks for it.
  Nanoseconds walked_at_least{};
  // Plain cost of the program's ops until it, or an evicted value that is made from it, is used
  // next; kNever. Known in simulations only, and only if PolicyNeeds asks for it.
  Nanoseconds until_use{};
  // Of writing it to the spill tier and reading it once; kNever: it has to be replayed. Only if
  // PolicyNeeds asks for it.
  Nanoseconds copy_cost = kNever;
  // Of the free blocks that touch its own, >= 0. Only if PolicyNeeds asks for it.
  Bytes free_around{0};
  std::uint32_t recomputes = 0;  // how often a replay brought it back
  // Below 0: it goes before all others; above 0: after them. In simulations only, and only if
  // PolicyNeeds asks for it.
  std::int8_t priority = 0;
};

// A block of the pool: free, a candidate's, or neither. Nothing can evict what is in the last, but
// it may be possible to move it.
struct PoolBlock {
  Bytes size;                       // > 0
  std::uint32_t candidate = kNone;  // index of the candidate whose bytes it holds
  bool free = false;
  bool starts_segment = false;  // no allocation goes across its start
  // Of moving it elsewhere; kNever: it has to stay where it is. Only if PolicyNeeds asks for it.
  Nanoseconds move_cost = Candidate::kNever;

  static constexpr std::uint32_t kNone = 0xffffffff;
};

// What a policy may look at. Implemented by the engine and by tests.
class PolicyView {
 public:
  virtual ~PolicyView() = default;
  // Candidates are numbered from 0; the order is arbitrary but the same in equal runs.
  [[nodiscard]] virtual std::size_t candidate_count() const = 0;
  [[nodiscard]] virtual Candidate candidate(std::size_t index) const = 0;
  // Mean size of all candidates, 0 when there are none.
  [[nodiscard]] virtual Bytes mean_candidate_size() const = 0;
  // Cost of the evicted neighbourhood of a resident value, its own cost excluded.
  [[nodiscard]] virtual Nanoseconds neighborhood_cost(ValueId id, Neighborhood kind) const = 0;
  [[nodiscard]] virtual Tick now() const = 0;
  // All blocks of the pool in address order; valid during the plan. Only if PolicyNeeds asks.
  [[nodiscard]] virtual std::span<const PoolBlock> blocks() const = 0;
  // Indices of the candidates that the op of a candidate reads; valid until the next call. Only if
  // PolicyNeeds asks.
  [[nodiscard]] virtual std::span<const std::uint32_t> inputs(std::size_t index) const = 0;

  // For policies that keep candidates from plan to plan; both only if PolicyNeeds asks.
  // Values that since the last call became candidates, were none for a while or are none any more,
  // were accessed, or whose Candidate::*_at_least do not hold any more; they hold until then. The
  // first call has all candidates. Distinct; valid until the next call.
  [[nodiscard]] virtual std::span<const ValueId> changes() const = 0;
  // None: it is no candidate.
  [[nodiscard]] virtual std::optional<std::size_t> index_of(ValueId id) const = 0;
};

// Bytes that are wanted.
struct RoomRequest {
  Bytes size;       // in one piece; 0: it does not matter where they are
  Bytes shortfall;  // how many more must be given up to stay in the budget
};

// Work done, for statistics: the same in equal runs, whatever the machine.
struct SearchWork {
  std::int64_t plans = 0;
  std::int64_t visited = 0;   // candidates looked at
  std::int64_t scored = 0;    // candidates whose score was computed
  std::int64_t filtered = 0;  // candidates skipped by the small-value filter
};

// Where there is a spill tier. What cannot be got back like that is in the other way.
enum class GetBack : std::uint8_t {
  kCheapest,  // what costs less
  kCopy,      // from the spill tier
  kReplay,    // by its op
};

struct EvictionPlan {
  std::vector<ValueId> victims;  // distinct candidates, in the order of their eviction
  GetBack by = GetBack::kCheapest;
};

// Score of `oracle`: cost^a / (size^b * distance^c * age^d), where cost = own + w * evicted
// ancestors.
struct OracleOptions {
  double cost = 1.0;       // a
  double size = 1.0;       // b
  double distance = 1.0;   // c: of the time until it is used
  double ancestors = 1.0;  // w
  double age = 0.0;        // d: of the time since it was used
  bool ahead = true;       // what is never used again goes first
};

struct PolicyOptions {
  // Values smaller than 1 % of the mean candidate size are not candidates (DTR, E.2), unless there
  // is nothing else.
  bool small_filter = true;
  // Only about 2 sqrt(N) randomly drawn candidates are scored (DTR, E.2).
  bool sampling = true;
  // Candidates are kept in the order of their scores from plan to plan. The victims are those of a
  // search through all of them, so there is no sampling. Only where PolicyInfo::has_order.
  bool kinetic = false;
  // Of `coop`: what is evicted together with what it is made from costs that too.
  bool chain_cost = false;
  std::uint64_t seed = 0x9e3779b97f4a7c15ULL;
  OracleOptions oracle = {};
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual PolicyNeeds needs() const noexcept { return {}; }

  // Says what to evict next towards `request`; evicts nothing. The engine evicts the victims and
  // asks again while the request does not fit. Empty only if there is no candidate. Throws
  // InternalError when a policy plans nonsense: checked here, once for all policies.
  EvictionPlan plan(const PolicyView& view, const RoomRequest& request);

  [[nodiscard]] const SearchWork& work() const noexcept { return work_; }

 protected:
  SearchWork work_;

 private:
  virtual EvictionPlan do_plan(const PolicyView& view, const RoomRequest& request) = 0;
};

// A plan of what a training step keeps, made of the step before. While it drives a step, the policy
// beside it evicts only what the budget asks for on top.
enum class ScheduleKind : std::uint8_t {
  kNone,
  kSqrtN,
  kRecursive,
  kBudgeted,
  kRotor,
  kMirror,
  kSuperneuronsSpeed,
  kSuperneuronsMemory,
};

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line, for `recoup policies`
  PolicyOptions defaults;    // as the paper has them
  std::unique_ptr<EvictionPolicy> (*make)(const PolicyOptions& options);
  bool simulated_only = false;  // it knows what no running program knows
  ScheduleKind schedule = ScheduleKind::kNone;
  bool foresees = false;  // a list of evictions is made for steps that repeat
  // Its score is cost / (size * staleness or its root): see PolicyOptions::kinetic.
  bool has_order = false;
};

// All policies, in the order in which tables list them.
RECOUP_API std::span<const PolicyInfo> policies();

// Throws std::invalid_argument, naming the policies there are, when `name` is none of them.
RECOUP_API const PolicyInfo& find_policy(std::string_view name);

}  // namespace recoup
