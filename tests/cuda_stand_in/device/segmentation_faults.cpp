#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>

#include "tests/cuda_stand_in/device/machine.h"

namespace recoup::stand_in {
namespace {

struct sigaction previous_handler;

const char* explanation(Address at) {
  if (at >= kFirst && at < kFirst + kSpan) {
    return "the host used memory of the device";
  }
  if (at >= kFirst + kSpan && at < kFirst + 2 * kSpan) {
    return "work on a stream used memory that is not mapped";
  }
  return nullptr;
}

void explain(Address at) {
  std::array<char, 400> text{};
  const int length = std::snprintf(
      text.data(), text.size(), "\n*** CUDA stand-in: %s: device address %#lx%s%s\n",
      explanation(at), static_cast<unsigned long>(at < kFirst + kSpan ? at : at - kSpan),
      on_device() ? ", work: " : "", on_device() ? work_on_device() : "");
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text.data(), static_cast<std::size_t>(length));
  std::array<void*, 64> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), STDERR_FILENO);
}

// Also calls the previously installed handler.
void handle(int signal_number, siginfo_t* info, void* context) {
  const Address at = address_of(info->si_addr);
  if (explanation(at) != nullptr) {
    explain(at);
  }
  if ((previous_handler.sa_flags & SA_SIGINFO) != 0 && previous_handler.sa_sigaction != nullptr) {
    previous_handler.sa_sigaction(signal_number, info, context);
  } else if (previous_handler.sa_handler != SIG_DFL && previous_handler.sa_handler != SIG_IGN) {
    previous_handler.sa_handler(signal_number);
  } else {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

}  // namespace

void explain_segmentation_faults() {
  struct sigaction action{};
  action.sa_sigaction = &handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &previous_handler);
}

}  // namespace recoup::stand_in
