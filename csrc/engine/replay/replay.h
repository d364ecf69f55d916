// Replay: one attempt to restore evicted values, with an explicit stack of frames instead of
// recursion.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "csrc/engine/attempt/attempts.h"
#include "csrc/engine/reclaim/disturber.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/handover.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/state/verifier.h"

namespace recoup::detail {

// Note [Replay order]
// There is one frame per op that waits to run. The outermost frame is the program's own op:
//
//   frame 0   program's op     needs a, b, c      a: pinned   b: being made   c: softly pinned
//   frame 1   op that made b   needs d, e                     d: being made   e: softly pinned
//   frame 2   op that made d   ...
//
// Each frame secures its inputs in turn: a resident input is pinned hard; for an evicted one the
// frame of its producer is pushed first. Inputs whose replay needs the most room beyond their own
// size come first, because fewer bytes are held by then; resident ones come last. Until its turn an
// input is only softly pinned: when nothing else can be evicted it is evicted too, the outermost
// frame's inputs first, and is replayed when its turn comes. An input is secured once, so this
// ends. A spilled input is fetched when its turn comes.
//
// Note [Other tries]
// Inputs that are resident when a replay begins come last in their frame. So they may stay, pinned
// hard by one frame or softly by many, while another input is made that needs their room. Starting
// from sources alone, the order is mostly the one that needs the least room. So when a replay does
// not fit, everything evictable is evicted, and the replay begins again. That costs more, so it is
// not the first try. If inputs share ancestors, the room that each needs alone does not tell what
// they need together: the last try takes them in the op's order.
class Replay final : public WaitingReplay {
 public:
  struct Parts {
    Context& context;
    Values& values;
    Room& room;
    Evictor& evictor;
    Verifier& verifier;
    Disturber& disturber;
    Handover& handover;
    const Attempts& attempts;
    const OutOfBudgetReporter& reporter;
  };
  enum class Order : std::uint8_t {
    kHeaviestFirst,  // Note [Replay order]
    kAsGiven,        // Note [Other tries]
    kPinned,         // as given, with all resident inputs pinned hard: DTR's recursion
  };
  // The parts must outlive this object. Adds the dead sources that were read to `dead_sources`:
  // Note [Dead sources] may free them afterwards. The cost is bounded by `most` and by
  // Options::max_replay_ratio.
  Replay(const Parts& parts, std::vector<ValueId>& dead_sources, Order order, Nanoseconds most);
  ~Replay() override;
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Makes `values` resident and hard-pins each once. After an exception nothing stays pinned.
  void run(std::span<const ValueId> values);

  // The largest softly pinned input of the outermost frame that has one.
  [[nodiscard]] ValueId soft_victim() const override;

 private:
  struct Input {
    ValueId value;
    Bytes key;               // room that its replay needs - its size
    bool evicted = false;    // not resident when the frame was pushed
    Values::SoftPin soft{};  // until it is secured
    Values::HardPin hard{};  // from then on
  };
  struct Frame {
    OpId op;         // invalid for the outermost
    ValueId target;  // the output of `op` that the previous frame waits for
    std::vector<Input> inputs;
    std::size_t next = 0;
  };

  void push(OpId op, ValueId target, std::span<const ValueId> values);
  void secure(Frame& frame);
  void fetch(ValueId id);
  void run_top();
  void pop();
  void drop_passed(const Input& input);
  void execute(OpId op);
  void charge_cost(OpId op);
  // The room that a replay of `op` needs, memoized: Note [Replay order].
  Bytes room_of(OpId op);
  Bytes room_of_one(OpId op) const;

  const Parts& parts_;
  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Room& room_;
  Order order_;
  Nanoseconds most_;
  std::vector<Frame> frames_;
  std::unordered_map<OpId, Bytes> rooms_;
  std::vector<ValueId>& dead_sources_;
  Nanoseconds spent_{0};
};

}  // namespace recoup::detail
