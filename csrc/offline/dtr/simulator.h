// One run of a program under the rules of the DTR authors' simulator.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "csrc/offline/dtr/neighborhood.h"
#include "csrc/offline/dtr/state.h"

namespace recoup::detail {

class DtrSimulator {
 public:
  // `program` must outlive this.
  DtrSimulator(const DtrProgram& program, DtrScore score, Bytes budget, double max_time_ratio);
  SimulationResult run();

 private:
  // A pending op that will define `tensor`. It holds locks on those of its arguments that are
  // defined.
  struct Frame {
    DtrTensorId tensor;
    bool replay = false;
    std::vector<DtrTensorId> missing;  // undefined arguments, in call order
    std::size_t next = 0;              // index into `missing`
  };

  // These return false if the run ends here; the status is then set.
  bool apply(const DtrStep& step);
  bool run_op(DtrOpId id);
  bool keep(DtrTensorId tensor);
  bool define(DtrTensorId tensor, bool replay);
  bool finish(const Frame& frame);
  bool make_room(const DtrOp& op);

  void open(DtrTensorId tensor, bool replay);
  void compute(DtrTensorId tensor);
  void release(DtrTensorId tensor);
  [[nodiscard]] DtrStorageId choose();
  [[nodiscard]] double score(DtrStorageId id);
  void evict(DtrStorageId id);
  void lock(DtrStorageId id);
  void unlock(DtrStorageId id);
  void remove_candidate(DtrStorageId id);

  const DtrProgram& program_;
  const DtrScore score_;
  const Bytes budget_;
  double replay_limit_ns_ = std::numeric_limits<double>::infinity();
  DtrState state_;
  std::unique_ptr<DtrNeighborhood> neighborhood_;
  // resident and unlocked, in the order in which they became so
  std::vector<DtrStorageId> candidates_;
  std::vector<Frame> frames_;
  Bytes used_{0};
  Tick now_ = 1;  // logical clock: 1 plus the cost of the ops that ran
  SimulationResult result_;
};

}  // namespace recoup::detail
