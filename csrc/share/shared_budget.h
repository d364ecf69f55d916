// SharedBudget: a file in memory that divides one budget among processes of a machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/engine/state/more_memory.h"
#include "csrc/share/share_file.h"
#include "recoup/share.h"

namespace recoup::detail {

// Note [Shared budgets]
// The file has a row for each process: the bytes of the budget that it may use. The sum of all
// rows, with the memory of workers, is at most the total, except when workers grow, or after
// force(). A process enters its bytes before it uses them, and uses less before it enters less. So
// at no time do the processes together use more than the total, and a process that is killed at any
// moment leaves a file that is right: each change is one store. Each access holds a mutex in the
// file, which another thread gets when its holder dies. (A lock of the file itself would last as
// long as the forked children of its holder.) Such a lock is used only to make and to remove the
// file. The row of a dead process counts as free.
//
// Free bytes belong to the process that first asks. Where none are free, an op waits in wait_for
// before it fails, and the other processes see its row and give what they can evict. While a
// process waits, only waiting processes take free bytes. A process with set_limit() takes no more
// than that unless its op would fail: its other memory is for processes that have less than a fair
// part.
class SharedBudget final : public MoreMemory {
 public:
  struct Settings {
    // An op that waits fails after this time in which no more bytes became free, and no other
    // waiting process got any; and after six times as long in any case.
    Nanoseconds patience = std::chrono::seconds(10);
  };
  // Joins the processes that share `file`, which is made if it does not exist, and takes a first
  // part. Throws std::invalid_argument if they share another total, std::system_error if the file
  // cannot be used, and std::runtime_error if no memory or row is left.
  SharedBudget(const std::string& file, Bytes total, const Settings& settings);
  SharedBudget(const std::string& file, Bytes total) : SharedBudget(file, total, Settings{}) {}
  // Leaves. The last process removes the file.
  ~SharedBudget() override;
  SharedBudget(const SharedBudget&) = delete;
  SharedBudget& operator=(const SharedBudget&) = delete;

  // In the child of a fork, no method has an effect or result.
  [[nodiscard]] Bytes take(Bytes wanted) override;
  [[nodiscard]] Bytes wait_for(Bytes least) override;
  [[nodiscard]] Bytes total() const override { return total_; }
  [[nodiscard]] std::string reason() const override;
  // The part of this process becomes smaller by `bytes`, which its scope no longer uses.
  void give(Bytes bytes);
  // The part of this process becomes `part`, even if the sum then exceeds the total: the user has
  // allowed it.
  void force(Bytes part);
  // What the other processes see. `demand`: a budget that the scope could use.
  void publish(Bytes demand, Bytes workers);
  // The largest part that take() takes.
  void set_limit(Bytes limit);

  [[nodiscard]] Bytes part() const;
  // False in the child of a fork.
  [[nodiscard]] bool is_of_this_process() const;
  // All living processes, this one included.
  [[nodiscard]] std::vector<SharePart> parts() const;
  [[nodiscard]] ShareCounters counters() const;

 private:
  void open();
  void make_mutex();
  [[nodiscard]] bool is_in_place() const;
  void join();
  void close() noexcept;
  [[nodiscard]] static bool has_died(const ShareRow& row);
  [[nodiscard]] bool anyone_lives() const;
  [[nodiscard]] bool others_live() const;
  [[nodiscard]] Bytes free_bytes() const;
  [[nodiscard]] bool others_come_first(bool waits) const;
  [[nodiscard]] static bool is_waiting(const ShareRow& row, Nanoseconds time);
  enum class Turn : std::uint8_t {
    kInOrder,  // after processes that wait
    kAtOnce,   // even if other processes wait
  };
  Bytes take_now(Bytes wanted, bool waits, Turn turn);
  void bury_dead(bool at_once);

  const std::string path_;
  const Bytes total_;
  const Settings settings_;
  const std::int64_t process_;
  int file_descriptor_ = -1;
  ShareFile* file_ = nullptr;  // mapped
  ShareRow* row_ = nullptr;    // of this process
  Nanoseconds next_burial_{0};
  Bytes most_{0};
  std::int64_t waits_ = 0;
  Nanoseconds wait_time_{0};
  // The last wait in vain: when it ended, and for how many bytes it was.
  Nanoseconds vain_end_{0};
  Bytes vain_least_{0};
};

}  // namespace recoup::detail
