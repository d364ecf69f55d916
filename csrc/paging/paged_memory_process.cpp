// The paged memory of a process: its signal handler, and forks.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>
#include <system_error>

#include "csrc/base/check.h"
#include "csrc/paging/handler_calls.h"
#include "csrc/paging/page_lock.h"
#include "csrc/paging/paged_memory.h"

namespace recoup::detail {
namespace {

std::atomic<PagedMemory*> of_this_process{nullptr};
// In a forked child: the memory of its nearest ancestor that has some.
std::atomic<const PagedMemory*> of_parent{nullptr};
// Held while the memory of the process is made, and while the process forks.
std::mutex making;
// The action that SIGSEGV had before.
struct sigaction previous_action{};
// Number of the action that is installed; kept in its mask.
unsigned generation = 0;
sigset_t mask_before_fork;

// Signals that say by their absence from an action's mask which of them it is.
constexpr unsigned kGenerationBits = 6;
constexpr unsigned kGenerations = 1U << kGenerationBits;

sigset_t mask_of(unsigned number) {
  sigset_t mask;
  sigfillset(&mask);
  for (unsigned bit = 0; bit < kGenerationBits; ++bit) {
    if ((number >> bit & 1) != 0) {
      sigdelset(&mask, SIGRTMAX - static_cast<int>(bit));
    }
  }
  return mask;
}

unsigned generation_of(const sigset_t& mask) {
  unsigned number = 0;
  for (unsigned bit = 0; bit < kGenerationBits; ++bit) {
    number |= sigismember(&mask, SIGRTMAX - static_cast<int>(bit)) == 0 ? 1U << bit : 0U;
  }
  return number;
}

}  // namespace

PagedMemory& PagedMemory::in(const std::string& directory) {
  watch_forks();
  const std::lock_guard lock(making);
  PagedMemory* memory = of_process();
  if (memory == nullptr) {
    // Never destroyed: tensors may live as long as the process.
    memory = new PagedMemory(directory, of_parent.load());
    of_this_process.store(memory, std::memory_order_release);
  } else {
    memory->use(directory);
  }
  memory->install();
  return *memory;
}

PagedMemory* PagedMemory::of_process() noexcept {
  return of_this_process.load(std::memory_order_acquire);
}

// ---- fork ----

// Handlers that run before a fork do so in the reverse of the order in which they are registered.
// So this class takes its lock last, after the locks of others that were registered later: a thread
// with one of those may be in a kernel, and wait for this lock in the handler of the signal.
void PagedMemory::watch_forks() {
  static const int registered = pthread_atfork(&PagedMemory::before_fork, &PagedMemory::after_fork,
                                               &PagedMemory::after_fork_in_child);
  RECOUP_CHECK(registered == 0);
}

// The tables of a child must be whole: it looks there for the tensors that it has no access to.
void PagedMemory::before_fork() noexcept {
  making.lock();
  PagedMemory* const memory = of_process();
  if (memory != nullptr) {
    const sigset_t before = PageLock::block_signals();
    PageLock::take(memory->holder_);
    mask_before_fork = before;
  }
}

void PagedMemory::after_fork() noexcept {
  PagedMemory* const memory = of_process();
  if (memory != nullptr) {
    const sigset_t before = mask_before_fork;
    PageLock::release(memory->holder_);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  making.unlock();
}

// Not MADV_DONTFORK: other memory of the child could get the addresses.
void PagedMemory::after_fork_in_child() noexcept {
  if (const PagedMemory* const memory = of_process()) {
    for (const auto& [address, tensor] : memory->tensors_) {
      if (mmap(tensor.address, static_cast<std::size_t>(tensor.size), PROT_NONE,
               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
        give_up("a forked child has no access to it");
      }
    }
    of_parent.store(memory);
  }
  after_fork();
  of_this_process.store(nullptr);
}

bool PagedMemory::is_of_ancestor(const void* address) noexcept {
  for (const PagedMemory* memory = of_parent.load(); memory != nullptr; memory = memory->parent_) {
    if (memory->find(address) != nullptr) {
      return true;
    }
  }
  return false;
}

// ---- the signal ----

// Other libraries, such as Python's faulthandler, may have taken the signal since the last
// installation. The mask of the action stores the number of the installation.
void PagedMemory::install() {
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &PagedMemory::handle &&
      generation_of(now.sa_mask) == generation) {
    return;
  }
  if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != &PagedMemory::handle) {
    previous_action = now;
  }
  generation = (generation + 1) % kGenerations;
  struct sigaction ours{};
  ours.sa_sigaction = &PagedMemory::handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ours.sa_mask = mask_of(generation);
  if (sigaction(SIGSEGV, &ours, nullptr) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            "recoup: the signal handler of paged memory cannot be installed");
  }
}

// Passes a signal that is not for paged memory to the action from before. If that has installed the
// action again that it found, which may be an earlier one of this class, it will not handle the
// signal any more. (Python's faulthandler does so when it has written its report.)
void PagedMemory::pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = previous_action;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler != SIG_DFL &&
             before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    std::signal(signal, SIG_DFL);
    if (info->si_code <= 0) {
      raise(signal);  // it was sent, and no access is repeated; delivered when this handler returns
    }
    return;
  }
  struct sigaction now{};
  sigaction(signal, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &PagedMemory::handle &&
      generation_of(now.sa_mask) != generation) {
    std::signal(signal, SIG_DFL);
  }
}

void PagedMemory::handle(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  PagedMemory* const memory = of_process();
  bool found = false;
  // A signal that was sent has no address. A fault in paged memory's own code is none of a kernel.
  const bool is_access = info->si_code > 0;
  if (is_access && memory != nullptr && !PageLock::is_held_here(memory->holder_)) {
    const PageLock locked(memory->holder_);
    const Tensor* const tensor = memory->find(info->si_addr);
    found = tensor != nullptr;
    if (found) {
      memory->enter(const_cast<Tensor&>(*tensor),
                    static_cast<char*>(info->si_addr) - tensor->address);
    }
  }
  if (is_access && !found && is_of_ancestor(info->si_addr)) {
    give_up("a forked child has no access to it");
  }
  if (!found) {
    pass_on(signal, info, context);
  }
  errno = error;
}

}  // namespace recoup::detail
