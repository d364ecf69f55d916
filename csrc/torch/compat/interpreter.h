// The lock of the interpreter that runs the program.
#pragma once

#include <cstdint>

namespace recoup::detail {

// Note [The interpreter's lock]
// Some ops run on threads that hold Python's interpreter lock: a number becomes a tensor, or a
// tensor dies with its last Python object. Other ops need that lock to end: an argument dies, and
// with it its Python object. So a thread that waits for another thread's op releases the lock
// meanwhile. Otherwise each thread could wait for the other. The destructor may wait for the
// interpreter's lock.
class WithoutInterpreter {
 public:
  WithoutInterpreter();
  ~WithoutInterpreter();
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  void* state_;  // null: this thread did not hold the lock
};

// Note [Settings of the process]
// Other threads read the settings of the process, too. While a replay has restored the settings of
// its op's first run, no Python thread may read them, so the replay holds the interpreter's lock.
// To be created while the thread holds no lock of recoup's.
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

// Tells the program that this thread, outside of the scope, accesses an evicted tensor, and waits
// for that at most a second. The thread may hold a lock that the holder of the interpreter's lock
// waits for, so another thread takes the interpreter's lock. No effect without an interpreter.
void tell_program_of_outside_access();

// The interpreter's reference count of a live Python object; it may have changed on return. 0
// without an interpreter. Waits for no lock, so it may be called under recoup's locks.
[[nodiscard]] std::int64_t references_to(const void* object);

}  // namespace recoup::detail
