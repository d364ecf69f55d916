#include "csrc/torch/compat/generators.h"

#include <dlfcn.h>
#include <pthread.h>

#include <thread>
#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

at::CPUGeneratorImpl* cpu_impl(const at::Generator& generator) {
  return dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
}

const at::Generator& default_cpu() { return at::detail::getDefaultCPUGenerator(); }

bool is_default_cpu(const at::Generator& generator) {
  return generator.unsafeGetGeneratorImpl() == default_cpu().unsafeGetGeneratorImpl();
}

std::mutex& mutex_of(const at::Generator& generator) {
  return generator.unsafeGetGeneratorImpl()->mutex_;
}

bool make_recursive(std::mutex& mutex) {
  pthread_mutexattr_t attributes;
  if (pthread_mutexattr_init(&attributes) != 0) {
    return false;
  }
  const bool made = pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) == 0 &&
                    pthread_mutex_destroy(mutex.native_handle()) == 0 &&
                    pthread_mutex_init(mutex.native_handle(), &attributes) == 0;
  pthread_mutexattr_destroy(&attributes);
  return made;
}

// Whether a mutex serves as the gate: its owner may lock it again, another thread may not.
bool is_recursive(std::mutex& mutex) {
  const std::lock_guard held(mutex);
  const bool again = mutex.try_lock();
  if (again) {
    mutex.unlock();
  }
  bool another = true;
  std::thread([&] {
    another = mutex.try_lock();
    if (another) {
      mutex.unlock();
    }
  }).join();
  return again && !another;
}

// Runs once, when recoup is loaded: before its threads start, and mostly before the program's do.
const bool kMadeRecursive = [] {
  std::mutex& mutex = mutex_of(default_cpu());
  {
    const std::lock_guard wait_for_a_draw(mutex);
  }
  return make_recursive(mutex);
}();

bool equal(const at::mt19937_data_pod& a, const at::mt19937_data_pod& b) {
  return a.seed_ == b.seed_ && a.left_ == b.left_ && a.seeded_ == b.seeded_ && a.next_ == b.next_ &&
         a.state_ == b.state_;
}

// Functions of CUDAGeneratorImpl, which a library built without CUDA cannot link. While a graph is
// captured they access the offset within the graph; get_offset and set_offset throw then. They keep
// the dropout state of cuDNN, which set_offset discards. Null: not found.
struct CudaOffset {
  std::uint64_t (*get)(const void* generator) = nullptr;
  void (*set)(void* generator, std::uint64_t offset) = nullptr;
  [[nodiscard]] bool found() const { return get != nullptr && set != nullptr; }
};

const CudaOffset& cuda_offset() {
  static const CudaOffset functions = [] {
    CudaOffset found;
    if (void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD)) {
      found.get = reinterpret_cast<decltype(found.get)>(
          dlsym(library, "_ZNK2at17CUDAGeneratorImpl24philox_offset_per_threadEv"));
      found.set = reinterpret_cast<decltype(found.set)>(
          dlsym(library, "_ZN2at17CUDAGeneratorImpl28set_philox_offset_per_threadEm"));
    }
    return found;
  }();
  return functions;
}

bool has_cuda_offset(const at::Generator& generator) {
  return generator.device().is_cuda() && cuda_offset().found();
}

std::uint64_t offset_of(const at::Generator& generator) {
  return has_cuda_offset(generator) ? cuda_offset().get(generator.unsafeGetGeneratorImpl())
                                    : generator.get_offset();
}

// Called with the generator's lock held. The last state of the default generator is kept, so that
// equal states are stored once.
GeneratorState save(const at::Generator& generator) {
  auto now = std::make_shared<const SavedGenerator>(generator);
  if (!is_default_cpu(generator)) {
    return now;
  }
  static auto* const last = new GeneratorState;  // never destroyed; guarded by the generator's lock
  if (!*last || !(**last == *now)) {
    *last = std::move(now);
  }
  return *last;
}

}  // namespace

// Tested once, and not while libraries are loaded, since the test starts a thread.
bool gate_works() {
  static const bool works = kMadeRecursive && is_recursive(mutex_of(default_cpu()));
  return works;
}

SavedGenerator::SavedGenerator(const at::Generator& generator) {
  if (at::CPUGeneratorImpl* const impl = cpu_impl(generator)) {
    cpu_ = {.engine = impl->engine(),
            .next_float = impl->next_float_normal_sample(),
            .next_double = impl->next_double_normal_sample()};
  } else {
    counter_ = {generator.current_seed(), offset_of(generator)};
  }
}

void SavedGenerator::put_into(at::Generator& generator) const {
  if (cpu_) {
    at::CPUGeneratorImpl* const impl = cpu_impl(generator);
    RECOUP_CHECK(impl != nullptr);
    impl->set_engine(cpu_->engine);
    impl->set_next_float_normal_sample(cpu_->next_float);
    impl->set_next_double_normal_sample(cpu_->next_double);
    return;
  }
  if (generator.current_seed() != counter_[0]) {  // it cannot be set while a graph is captured
    generator.set_current_seed(counter_[0]);      // first: it sets the offset to 0
  }
  if (has_cuda_offset(generator)) {
    cuda_offset().set(generator.unsafeGetGeneratorImpl(), counter_[1]);
  } else {
    generator.set_offset(counter_[1]);
  }
}

bool operator==(const SavedGenerator& a, const SavedGenerator& b) {
  if (!a.cpu_ || !b.cpu_) {
    return !a.cpu_ && !b.cpu_ && a.counter_ == b.counter_;
  }
  return a.cpu_->next_float == b.cpu_->next_float && a.cpu_->next_double == b.cpu_->next_double &&
         equal(a.cpu_->engine.data(), b.cpu_->engine.data());
}

bool may_draw_in_capture(const at::Generator& generator) { return has_cuda_offset(generator); }

std::optional<at::Generator> generator_of(c10::ArrayRef<c10::IValue> arguments,
                                          at::Generator default_generator) {
  const c10::DeviceType type = default_generator.device().type();
  at::Generator generator = std::move(default_generator);
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined()) {
      generator = argument.toGenerator();
    }
  }
  if (generator.device().type() != type ||
      (is_gated(generator.device().type()) && cpu_impl(generator) == nullptr)) {
    return std::nullopt;
  }
  return generator;
}

at::Generator private_generator(const GeneratorState& state) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  state->put_into(generator);
  return generator;
}

int& GeneratorLock::depth() {
  thread_local int depth = 0;
  return depth;
}

GeneratorLock::GeneratorLock(const at::Generator& generator)
    : generator_(generator), lock_(mutex_of(generator_)) {
  ++depth();
}

GeneratorLock::~GeneratorLock() { --depth(); }

Draw::Draw(at::Generator generator, c10::IValue* slot) : generator_(std::move(generator)) {
  const bool recursive = gate_works();  // asked before the lock is taken
  lock_.emplace(generator_);
  before_ = save(generator_);
  if (!is_gated(generator_.device().type())) {
    lock_.reset();
  } else if (!recursive || !is_default_cpu(generator_)) {
    RECOUP_CHECK(slot != nullptr);
    copy_ = private_generator(before_);
    *slot = copy_;
  }
}

Draw::~Draw() {
  if (copy_.defined()) {
    SavedGenerator(copy_).put_into(generator_);
  }
}

bool Draw::has_advanced() {
  const GeneratorLock lock(generator_);
  return !(SavedGenerator(generator_) == *before_);
}

void Draw::undo() {
  if (!lock_) {
    const GeneratorLock lock(generator_);
    before_->put_into(generator_);
    return;
  }
  before_->put_into(generator_);
  copy_ = at::Generator();
}

GeneratorGuard::GeneratorGuard(at::Generator generator, const GeneratorState& state)
    : generator_(std::move(generator)) {
  lock_.emplace(generator_);
  before_.emplace(generator_);
  state->put_into(generator_);
  if (!is_gated(generator_.device().type())) {
    lock_.reset();
  }
}

GeneratorGuard::~GeneratorGuard() {
  if (!lock_) {
    lock_.emplace(generator_);
  }
  before_->put_into(generator_);
}

void lock_generator_for_fork() { mutex_of(default_cpu()).lock(); }

void unlock_generator_in_parent() { mutex_of(default_cpu()).unlock(); }

// A recursive mutex stores its owner's thread id, which is another one in the child.
void renew_generator_in_child() {
  std::mutex& mutex = mutex_of(default_cpu());
  if (kMadeRecursive) {
    ::new (static_cast<void*>(&mutex)) std::mutex;
    RECOUP_CHECK(make_recursive(mutex));
  } else {
    mutex.unlock();
  }
}

}  // namespace recoup::detail
