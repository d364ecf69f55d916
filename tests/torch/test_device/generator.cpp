#include "tests/torch/test_device/generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <map>

#include "tests/torch/test_device/device.h"

namespace recoup::test_device {
namespace {

constexpr std::uint64_t kOffsetOfOneOp = 4;
constexpr std::size_t kStateBytes = 2 * sizeof(std::uint64_t);

// One step of SplitMix64.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(c10::DeviceIndex device)
      : GeneratorImpl(c10::Device(kType, device),
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(std::uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }

  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK_TYPE(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                     "RNG state must be a torch.ByteTensor");
    TORCH_CHECK(static_cast<std::size_t>(state.numel()) == kStateBytes, "RNG state is wrong size");
    const auto* const bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, sizeof seed_);
    std::memcpy(&offset_, bytes + sizeof seed_, sizeof offset_);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::TensorBase state = at::detail::empty_cpu({kStateBytes}, at::kByte);
    auto* const bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, sizeof seed_);
    std::memcpy(bytes + sizeof seed_, &offset_, sizeof offset_);
    return state.getIntrusivePtr();
  }

  std::uint64_t next_seed() {
    const std::uint64_t seed = mix(seed_ ^ mix(offset_));
    offset_ += kOffsetOfOneOp;
    return seed;
  }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* const copy = new DeviceGenerator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

}  // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<DeviceGenerator>(device);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* const generators = new std::map<c10::DeviceIndex, at::Generator>;
  const std::lock_guard lock(mutex);
  const auto found = generators->find(device);
  return found != generators->end()
             ? found->second
             : generators->emplace(device, new_generator(device)).first->second;
}

std::uint64_t next_seed(at::Generator generator) {
  TORCH_CHECK(generator.device().type() == kType, "Expected a 'fakegpu' device type for generator ",
              "but found '", generator.device().type(), "'");
  const std::lock_guard lock(generator.mutex());
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->next_seed();
}

}  // namespace recoup::test_device
