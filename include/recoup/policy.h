// Eviction policies: how victims are chosen. A policy only plans. It sees candidates and blocks,
// and never changes the state of the engine.
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

// Random number generator of policies.
using Rng = std::mt19937_64;

// Which evicted values count towards the cost of restoring a value (DTR, section 4.1 and C.2).
enum class Neighborhood : std::uint8_t {
  kExact,  // e*: evicted ancestors and descendants that are reached through evicted values only
  kEquivalence,  // e~*: one undirected component, maintained by union-find and never split
  kAncestors,    // evicted ancestors only: what a replay would run (MSPS)
};

// What the engine must maintain for a policy. Data that is not requested costs nothing and must not
// be used.
struct PolicyNeeds {
  // Costs for Neighborhood::kEquivalence, Candidate::equivalence_at_least.
  bool equivalence = false;
  bool future = false;       // Candidate::until_use
  bool priority = false;     // Candidate::priority
  bool free_around = false;  // Candidate::free_around
  bool blocks = false;       // PolicyView::blocks()
  bool inputs = false;       // PolicyView::inputs()
  bool moves = false;        // PoolBlock::move_cost
  bool copies = false;       // Candidate::copy_cost
  bool changes = false;      // PolicyView::changes() and index_of()
  // Candidate::walked_at_least for kExact or kAncestors. Requires `changes`.
  std::optional<Neighborhood> walks = {};
};

// A resident, unpinned value that can be restored, so it may be evicted. A copy that is valid
// during one plan.
struct Candidate {
  // Value of a time or cost that does not exist.
  static constexpr Nanoseconds kNever = Nanoseconds::max();

  ValueId id;              // the value
  Bytes size;              // size of its block in bytes, > 0
  PoolOffset offset;       // offset of its block
  Nanoseconds own_cost{};  // cost of the op that made it, or of its copies if it is a source; >= 0
  Tick last_access = 0;    // time of its last use; <= PolicyView::now()
  // Lower bound of its neighborhood cost for Neighborhood::kEquivalence, >= 0. Often makes the
  // exact cost unnecessary.
  Nanoseconds equivalence_at_least{};
  // Lower bound of its neighborhood cost for PolicyNeeds::walks, >= 0.
  Nanoseconds walked_at_least{};
  // Cost of the program's ops until the next use of the value, or of an evicted value that is
  // computed from it. kNever: no use. Known in simulations only.
  Nanoseconds until_use{};
  // Time to write it to the spill tier, unless a valid copy is there, and to read it back. kNever:
  // it must be replayed.
  Nanoseconds copy_cost = kNever;
  // Bytes of the free blocks next to its block, >= 0.
  Bytes free_around{0};
  std::uint32_t recomputes = 0;  // how often a replay has restored it
  // Below 0: evicted before all values of priority 0. Above 0: evicted after them. In simulations
  // only.
  std::int8_t priority = 0;
};

// A block of the pool: free, owned by a candidate, or owned by anything else. In the last case it
// cannot be evicted, but it may be possible to move it.
struct PoolBlock {
  Bytes size;  // size in bytes, > 0
  // Index of the candidate that owns it; kNone if it has no such owner.
  std::uint32_t candidate = kNone;
  bool free = false;            // whether it is free
  bool starts_segment = false;  // no allocation may extend across its start
  // Time to move it to another place. kNever: it is immovable. Only if PolicyNeeds::moves is set.
  Nanoseconds move_cost = Candidate::kNever;

  // No candidate.
  static constexpr std::uint32_t kNone = 0xffffffff;
};

// What a policy may look at. Implemented by the engine and by tests.
class PolicyView {
 public:
  virtual ~PolicyView() = default;
  // Number of candidates. Indices start at 0; their order is arbitrary, but the same in equal runs.
  [[nodiscard]] virtual std::size_t candidate_count() const = 0;
  // The candidate with this index.
  [[nodiscard]] virtual Candidate candidate(std::size_t index) const = 0;
  // Mean size of all candidates in bytes; 0 if there are none.
  [[nodiscard]] virtual Bytes mean_candidate_size() const = 0;
  // Cost of the evicted neighborhood of a resident value, without the cost of the value itself.
  [[nodiscard]] virtual Nanoseconds neighborhood_cost(ValueId id, Neighborhood kind) const = 0;
  // Current time of the logical clock.
  [[nodiscard]] virtual Tick now() const = 0;
  // All blocks of the pool in address order; valid during the plan. Only if PolicyNeeds::blocks is
  // set.
  [[nodiscard]] virtual std::span<const PoolBlock> blocks() const = 0;
  // Indices of the candidates that the op of candidate `index` reads; valid until the next call.
  // Only if PolicyNeeds::inputs is set.
  [[nodiscard]] virtual std::span<const std::uint32_t> inputs(std::size_t index) const = 0;

  // For policies that keep their own order of candidates between plans; both only if
  // PolicyNeeds::changes is set.
  // The values that, since the last call, became candidates, ceased to be candidates even if only
  // for a while, were used, or have a Candidate::*_at_least that is no longer a lower bound. For
  // all other values the bounds still hold. The first call returns all candidates. Values are
  // distinct; valid until the next call.
  [[nodiscard]] virtual std::span<const ValueId> changes() const = 0;
  // Index of the candidate; nullopt if the value is not a candidate.
  [[nodiscard]] virtual std::optional<std::size_t> index_of(ValueId id) const = 0;
};

// A request to free memory.
struct RoomRequest {
  Bytes size;       // bytes needed in one block; 0: contiguity does not matter
  Bytes shortfall;  // bytes that must be freed to stay within the budget
};

// Counts of a policy's work: the same in equal runs on any machine.
struct SearchWork {
  std::int64_t plans = 0;     // number of plans
  std::int64_t visited = 0;   // number of candidates that were looked at
  std::int64_t scored = 0;    // number of candidates whose score was computed
  std::int64_t filtered = 0;  // number of candidates that the small-value filter skipped
};

// How victims are to be restored, if there is a spill tier. A victim that cannot be restored in the
// chosen way is restored in the other one.
enum class GetBack : std::uint8_t {
  kCheapest,  // in the cheaper way
  kCopy,      // spilled, and fetched from the spill tier
  kReplay,    // evicted, and replayed
};

// The victims of one decision of a policy.
struct Victims {
  std::vector<ValueId> victims;     // distinct candidates, in the order of eviction
  GetBack by = GetBack::kCheapest;  // how they are to be restored
};

// Exponents and weights of the score of policy "oracle": cost^a / (size^b * distance^c * age^d),
// where cost = own cost + w * cost of evicted ancestors.
struct OracleOptions {
  double cost = 1.0;       // a
  double size = 1.0;       // b
  double distance = 1.0;   // c, for the time until the next use
  double ancestors = 1.0;  // w
  double age = 0.0;        // d, for the time since the last use
  bool ahead = true;       // evict values that are never used again first
  double copies = 0.0;     // weight of the time of copies; the cost is at most this. 0: no limit
  // Compares all members.
  bool operator==(const OracleOptions& other) const = default;
};

// Options of a policy.
struct PolicyOptions {
  // Skip values smaller than 1 % of the mean candidate size (DTR, E.2), unless there is no other.
  bool small_filter = true;
  // Score only about 2 sqrt(N) randomly drawn candidates of N (DTR, E.2).
  bool sampling = true;
  // Keep the candidates sorted by score between plans. The victims are those of a full search, so
  // `sampling` has no effect. Only if PolicyInfo::has_order is set.
  bool kinetic = false;
  // For `coop`: add the cost of a victim's inputs that are evicted with it.
  bool chain_cost = false;
  std::uint64_t seed = 0x9e3779b97f4a7c15ULL;  // seed of random choices
  OracleOptions oracle = {};                   // parameters of policy "oracle"
};

// Base class of policies.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // Name of the policy.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  // What the engine must maintain for it. Constant for the lifetime of the policy.
  [[nodiscard]] virtual PolicyNeeds needs() const noexcept { return {}; }
  // Whether the engine spares a victim that later victims make unnecessary, see Note [Spared
  // victims] in evictor.cpp. For policies that name one victim at a time.
  [[nodiscard]] virtual bool spares() const noexcept { return false; }

  // Chooses what to evict next towards `request`, without evicting it. The engine evicts the
  // victims and asks again while the request does not fit. The plan is empty only if there is no
  // candidate. Throws InternalError if the policy's plan is invalid.
  Victims plan(const PolicyView& view, const RoomRequest& request);

  // Totals over all plans.
  [[nodiscard]] const SearchWork& work() const noexcept { return work_; }

 protected:
  SearchWork work_;  // do_plan() counts `scored` and `filtered`, plan() the rest

 private:
  // The policy's own choice; plan() checks it.
  virtual Victims do_plan(const PolicyView& view, const RoomRequest& request) = 0;
};

// Schedules: what a training step keeps, planned from the step before it. While a schedule is
// followed, the policy evicts only what the budget requires in addition.
enum class ScheduleKind : std::uint8_t {
  kNone,                // no schedule
  kSqrtN,               // Chen et al.: a checkpoint for each of sqrt(n) segments
  kRecursive,           // Chen et al.: nested segments with log(n) checkpoints
  kBudgeted,            // memonger: greedy segments of the best size for the budget
  kRotor,               // Beaumont et al.: optimal for a chain and the budget
  kMirror,              // MXNet: results of convolutions and products are kept
  kSuperneuronsSpeed,   // SuperNeurons: the same; the rest is restored by segment
  kSuperneuronsMemory,  // SuperNeurons: the same; the rest is restored for each use
};

// Description of a policy.
struct PolicyInfo {
  std::string_view name;     // name, as in Options::policy
  std::string_view summary;  // one line, for `recoup policies`
  PolicyOptions defaults;    // options as in the policy's paper, or as measured to be better
  // Makes a policy.
  std::unique_ptr<EvictionPolicy> (*make)(const PolicyOptions& options);
  bool simulated_only = false;                  // needs knowledge that a live run does not have
  ScheduleKind schedule = ScheduleKind::kNone;  // schedule that drives training steps
  bool foresees = false;  // lists of evictions are planned for steps that repeat:
                          // docs/maintainers/foresight.md
  // Whether the score is cost / (size * staleness) or cost / (size * sqrt(staleness)), so that
  // PolicyOptions::kinetic is possible.
  bool has_order = false;
};

// All policies, in the order of tables.
RECOUP_API std::span<const PolicyInfo> policies();

// The policy with this name. Throws std::invalid_argument, which lists all names, if there is none.
RECOUP_API const PolicyInfo& find_policy(std::string_view name);

}  // namespace recoup
