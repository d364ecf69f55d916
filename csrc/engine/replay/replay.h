// Replay: one try to get evicted values back, with an explicit stack of frames and no recursion.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "csrc/engine/reclaim/disturber.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/state/verifier.h"

namespace recoup::detail {

// Note [Replay order]
// One frame per op that is waiting to run, the outermost being the program's own op:
//
//   frame 0   program's op     needs a, b, c      a: pinned   b: being made   c: softly pinned
//   frame 1   op that made b   needs d, e                     d: being made   e: softly pinned
//   frame 2   op that made d   ...
//
// Each frame secures its inputs one after the other: a resident one is pinned hard, an evicted one
// pushes its producer's frame first. Inputs whose replay needs the most room beyond their own size
// go first, because less is held by then; resident ones go last. Until its turn an input is only
// softly pinned: when nothing else can be evicted it goes too, the outermost frame's first, and is
// replayed when its turn comes. An input is secured once, so this ends. One that is spilled is
// fetched when its turn comes.
//
// Note [Other tries]
// What is resident when a replay begins goes last in its frame, so it may lie there, pinned hard by
// one frame or softly by many, while another input is made that needs the room. From leaves alone
// the order is mostly the one with the least room. So when a replay does not fit, all that may be
// evicted is, and it begins again. It costs more; that is why it is not the first try. Where inputs
// share ancestors, what each of them needs alone does not tell what they need together: the last
// try takes them as the op has them.
class Replay final : public WaitingReplay {
 public:
  struct Parts {
    Context& context;
    Values& values;
    Room& room;
    Evictor& evictor;
    Verifier& verifier;
    Disturber& disturber;
    const OutOfBudgetReporter& reporter;
  };
  enum class Order : std::uint8_t {
    kHeaviestFirst,  // Note [Replay order]
    kAsGiven,        // Note [Other tries]
    kPinned,         // as given, and all that is resident is pinned hard: DTR's recursion
  };
  // Adds to `dead_sources` those that were read: Note [Dead sources] may let them go afterwards.
  // What it costs is bounded by `most` and by Options::max_replay_ratio.
  Replay(const Parts& parts, std::vector<ValueId>& dead_sources, Order order, Nanoseconds most);
  ~Replay() override;
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Makes `values` resident and hard-pins each once. On an exception nothing stays pinned.
  void run(std::span<const ValueId> values);

  // Softly pinned, of the outermost frame that has one, the largest of it.
  [[nodiscard]] ValueId soft_victim() const override;

 private:
  struct Input {
    ValueId value;
    Bytes key;             // room of its replay - its size
    bool evicted = false;  // when the frame was pushed
    bool soft = false;     // holds a soft pin
    bool secured = false;  // holds a hard pin
  };
  struct Frame {
    OpId op;         // invalid for the outermost
    ValueId target;  // of its outputs, the input that the frame below waits for
    std::vector<Input> inputs;
    std::size_t next = 0;
  };

  void push(OpId op, ValueId target, std::span<const ValueId> values);
  void secure(Frame& frame);
  void fetch(ValueId id);
  void run_top();
  void pop();
  void drop_passed(const Input& input);
  // A block that stands for a written storage in a replay.
  struct Buffer {
    BlockId block;
    ValueId from;  // whose block it is, handed over; none: a fresh one
  };
  void execute(OpId op);
  void place(OpId op);
  void execute_until_it_fits(OpId op);
  void execute_once(OpId op);
  void drop_handed_over(OpId op);
  void learn_cost(const Measurement& measured);
  void charge_cost(OpId op);
  void fill_buffers(OpId op, std::vector<Buffer>& buffers);
  void put_back(OpId op, std::span<const BlockId> fresh);
  [[nodiscard]] bool may_hand_over(OpId op, ValueId before) const;
  // Room that a replay of `op` needs: Note [Replay order]. Memoized.
  Bytes room_of(OpId op);
  Bytes room_of_one(OpId op) const;

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Room& room_;
  Evictor& evictor_;
  Verifier& verifier_;
  Disturber& disturber_;
  const OutOfBudgetReporter& reporter_;
  Order order_;
  Nanoseconds most_;
  std::vector<Frame> frames_;
  std::unordered_map<OpId, Bytes> rooms_;
  std::vector<ValueId>& dead_sources_;
  Nanoseconds spent_{0};
};

}  // namespace recoup::detail
