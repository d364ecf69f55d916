// Devices, streams, events and pinned memory.
#include "tests/torch/test_device/device.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <optional>

#include "csrc/torch/gpu/install_gpus.h"
#include "tests/torch/test_device/generator.h"
#include "tests/torch/test_device/memory.h"

namespace recoup::test_device {
namespace {

using detail::cuda::Event;
using detail::cuda::FakeCuda;

constexpr int kPoolStreams = 4;

FakeCuda* the_fake = nullptr;
std::atomic<int> device_count = 0;
std::atomic<std::int64_t> synchronizations = 0;

struct ThreadState {
  c10::DeviceIndex device = 0;
  std::map<c10::DeviceIndex, c10::StreamId> streams;
};
thread_local ThreadState thread_state;

// The streams of all devices. Stream 0 is every device's default stream.
class Streams {
 public:
  c10::Stream make(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    return make_locked(device);
  }
  c10::Stream from_pool(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    auto& [next, pool] = pools_[device];
    if (pool.size() < kPoolStreams) {
      pool.push_back(make_locked(device));
      return pool.back();
    }
    return pool[next++ % kPoolStreams];
  }
  detail::cuda::Stream native(const c10::Stream& stream) {
    if (stream.id() == 0) {
      return {.handle = nullptr, .device = stream.device_index()};
    }
    const std::lock_guard lock(mutex_);
    return made_.at(static_cast<std::size_t>(stream.id() - 1));
  }

 private:
  c10::Stream make_locked(c10::DeviceIndex device) {
    made_.push_back(fake().new_stream(device));
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device),
                       static_cast<c10::StreamId>(made_.size()));
  }

  std::mutex mutex_;
  std::vector<detail::cuda::Stream> made_;
  std::map<c10::DeviceIndex, std::pair<std::size_t, std::vector<c10::Stream>>> pools_;
};

Streams& streams() {
  static auto* const streams = new Streams;
  return *streams;
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device()}; }
  void setDevice(c10::Device device) const override { set_current_device(index_of(device)); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    thread_state.device = index_of(device);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count.load());
  }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override { fake().synchronize_all(); }

  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = index_of(device);
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), thread_state.streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return streams().from_pool(index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return streams().make(index_of(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    thread_state.streams[stream.device_index()] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return native_stream(stream).handle;
  }
  bool queryStream(const c10::Stream& stream) const override {
    const detail::cuda::Stream native = native_stream(stream);
    const Event event = fake().create_event(native.device, false);
    fake().record(event, native);
    const bool done = fake().done(event);
    fake().destroy_event(event);
    return done;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    fake().synchronize(native_stream(stream));
  }
  // Without `override`, because PyTorch 2.11 does not have it.
  bool isStreamCapturing(const c10::Stream& stream) const {
    return fake().capturing(native_stream(stream));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device,
              c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "an event of another device");
    if (*event == nullptr) {
      *event = fake()
                   .create_event(stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT)
                   .handle;
    }
    fake().record({*event}, native_stream(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      fake().wait(native_stream(stream), {event});
    }
  }
  bool queryEvent(void* event) const override { return event == nullptr || fake().done({event}); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      fake().synchronize(Event{event});
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) {
      fake().destroy_event({event});
    }
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex /*device*/) const override {
    return static_cast<double>(fake().elapsed({from}, {to}).count()) / 1e6;
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    slot().load()->recordStream(data, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

// Allocates the host memory that non-blocking copies need.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = size == 0 ? nullptr : fake().allocate_pinned(to_bytes(size));
    if (memory != nullptr) {
      const std::lock_guard lock(mutex_);
      ends_[memory] = static_cast<char*>(memory) + size;
    }
    return {memory, memory, &raw_delete, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &raw_delete; }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    default_copy_data(to, from, size);
  }
  bool owns(const void* memory) {
    const std::lock_guard lock(mutex_);
    const auto after = ends_.upper_bound(const_cast<void*>(memory));
    return after != ends_.begin() && memory < std::prev(after)->second;
  }

 private:
  static Bytes to_bytes(std::size_t size) { return Bytes(static_cast<std::int64_t>(size)); }
  static void raw_delete(void* memory);

  std::mutex mutex_;
  std::map<void*, const void*> ends_;
};

PinnedAllocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

void PinnedAllocator::raw_delete(void* memory) {
  // Copies from it may still be pending.
  fake().synchronize_all();
  {
    const std::lock_guard lock(pinned_allocator().mutex_);
    pinned_allocator().ends_.erase(memory);
  }
  fake().release_pinned(memory);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count > 0; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count.load());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = current_device();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device < 0 ? current_device() : device);
  }
  at::Device getDeviceFromPtr(void* memory) const override {
    const std::optional<int> device = fake().device_of(memory);
    TORCH_CHECK(device.has_value(), "not memory of the device");
    return {kType, static_cast<c10::DeviceIndex>(*device)};
  }
  bool isPinnedPtr(const void* memory) const override { return pinned_allocator().owns(memory); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t size) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), size);
  }
};

}  // namespace

void install(const FakeCuda::Options& options, const std::string& allocator) {
  TORCH_CHECK(the_fake == nullptr, "the test device is installed already");
  auto runtime = std::make_unique<FakeCuda>(options);
  the_fake = runtime.get();
  detail::Gpus& gpus = detail::install_gpus(kType, std::move(runtime));
  TORCH_CHECK_VALUE(allocator == "native" || allocator == "expandable", "no such allocator");
  use_caching_allocator(gpus, allocator == "expandable");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  device_count = options.devices;
}

FakeCuda& fake() {
  TORCH_CHECK(the_fake != nullptr, "the test device is not installed");
  return *the_fake;
}

c10::DeviceIndex current_device() { return thread_state.device; }

void set_current_device(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count, "there is no device ", int{device});
  thread_state.device = device;
}

detail::cuda::Stream current_stream(c10::DeviceIndex device) {
  const c10::StreamId id = thread_state.streams[device];
  return native_stream(c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id));
}

detail::cuda::Stream native_stream(const c10::Stream& stream) { return streams().native(stream); }

void wait_for(detail::cuda::Stream stream) {
  ++synchronizations;
  fake().synchronize(stream);
}

std::int64_t own_synchronizations() { return synchronizations; }

c10::Allocator* allocator() { return slot(); }

void resize_storage(c10::StorageImpl& storage, std::size_t size) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  // As on CUDA: from the storage's allocator, not from the one in the slot.
  c10::DataPtr data = storage.allocator()->allocate(size);
  const std::size_t kept = std::min(size, storage.nbytes());
  if (kept > 0) {
    const c10::DeviceIndex device = storage.device().index();
    wait_for(current_stream(device));
    write_late(device, data.get(), storage.data(), kept);
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(size);
}

void write_late(c10::DeviceIndex device, void* to, const void* from, std::size_t size) {
  if (size == 0) {
    return;
  }
  // A plain buffer: it is freed when the stream has run, where no tensor allocator may be called.
  const std::shared_ptr<char[]> bytes(new char[size]);
  std::memcpy(bytes.get(), from, size);
  fake().launch(current_stream(device), [=] { std::memcpy(to, bytes.get(), size); });
}

}  // namespace recoup::test_device
