// The lock of the language that the program is written in.
#pragma once

#include <cstdint>

namespace recoup::detail {

// Note [The interpreter's lock]
// Some ops come from threads that hold Python's interpreter lock: a number becomes a tensor, a
// tensor dies with the last object that has it. Others need it to end: an argument goes, and with
// it its object. So a thread that waits for another one's op gives the lock up meanwhile; else each
// could wait for the other. When it ends it may wait for the interpreter's lock.
class WithoutInterpreter {
 public:
  WithoutInterpreter();
  ~WithoutInterpreter();
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  void* state_;  // null: this thread did not hold it
};

// Note [Settings of the process]
// What belongs to the process, other threads read too. While a replay has put back what they were
// when its op ran, nobody of Python's may look: it holds the interpreter's lock. To be created with
// no lock of ours held.
class WithInterpreter {
 public:
  explicit WithInterpreter(bool wanted);
  ~WithInterpreter();
  WithInterpreter(const WithInterpreter&) = delete;
  WithInterpreter& operator=(const WithInterpreter&) = delete;

 private:
  bool held_;
  int state_ = 0;  // the interpreter's
};

// How many references the interpreter counts to an object of its own that is alive; it may have
// changed since. Waits for no lock, so it may be asked under ours.
[[nodiscard]] std::int64_t references_to(const void* object);

}  // namespace recoup::detail
