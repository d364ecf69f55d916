#include "tests/torch/test_device/fallback.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <algorithm>

#include "recoup/torch.h"
#include "tests/torch/test_device/device.h"
#include "tests/torch/test_device/generator.h"

namespace recoup::test_device {
namespace {

bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// A tensor like `like` over another storage.
at::Tensor over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(key), like.dtype());
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  impl->_set_conj(like.is_conj());
  impl->_set_neg(like.is_neg());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return tensor;
}

std::size_t count_of(const c10::FunctionSchema& schema) { return schema.arguments().size(); }

// Returns the index of the generator argument, or the number of arguments.
std::size_t generator_argument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto is_generator = [](const c10::Argument& argument) {
    const c10::TypePtr& type = argument.type();
    if (const auto optional = type->cast<c10::OptionalType>()) {
      return optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
    }
    return type->kind() == c10::TypeKind::GeneratorType;
  };
  return static_cast<std::size_t>(std::find_if(arguments.begin(), arguments.end(), is_generator) -
                                  arguments.begin());
}

bool is_view(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// Sets the seed of the CPU's default generator for its lifetime: some ops use no other generator.
class SeededCpu {
 public:
  explicit SeededCpu(std::uint64_t seed) : one_at_a_time_(mutex()) {
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(cpu.mutex());
    before_ = cpu.get_state();
    cpu.set_current_seed(seed);
  }
  SeededCpu(const SeededCpu&) = delete;
  SeededCpu& operator=(const SeededCpu&) = delete;
  ~SeededCpu() {
    at::Generator cpu = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(cpu.mutex());
    cpu.set_state(before_);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }

  std::lock_guard<std::mutex> one_at_a_time_;
  at::Tensor before_;
};

// Detaches the thread from its CPU scope. Otherwise recoup's CPU budget would be charged for memory
// that the kernels use, although it is not the program's.
class OutOfBudgets {
 public:
  OutOfBudgets() : before_(carry(false)) {}
  OutOfBudgets(const OutOfBudgets&) = delete;
  OutOfBudgets& operator=(const OutOfBudgets&) = delete;
  ~OutOfBudgets() { (void)carry(before_); }

 private:
  const bool before_;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OutOfBudgets out;
  if (const CpuKernel kernel = kernel_of_devices_only(op)) {
    kernel(*stack);
  } else {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
}

void run_random_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t index = generator_argument(op.schema());
  if (index == count_of(op.schema())) {
    const SeededCpu seeded(next_seed(default_generator(current_device())));
    run_on_cpu(op, stack);
    return;
  }
  c10::IValue& argument = torch::jit::peek(*stack, index, count_of(op.schema()));
  const at::Generator generator =
      argument.isNone() ? default_generator(current_device()) : argument.toGenerator();
  argument = at::make_generator<at::CPUGeneratorImpl>(next_seed(generator));
  run_on_cpu(op, stack);
}

void register_one(const c10::OperatorHandle& op) {
  // Never destroyed: the destructor would unregister the kernel.
  static auto* const kept = new std::vector<c10::RegistrationHandleRAII>;
  kept->push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), c10::DispatchKey::PrivateUse1,
      c10::KernelFunction::makeFromBoxedFunction<&fallback>(), std::nullopt, nullptr,
      "test device"));
}

}  // namespace

Unseen::Unseen()
    : guard_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
             c10::DispatchKeySet(c10::DispatchKey::Fake)) {}

at::Tensor Twins::lower(const at::Tensor& tensor) {
  if (!on_device(tensor)) {
    if (tensor.defined() && tensor.has_storage()) {
      of_cpu_arguments_.insert(tensor.storage().unsafeGetStorageImpl());
    }
    return tensor;
  }
  const auto found = by_tensor_.find(tensor.unsafeGetTensorImpl());
  if (found != by_tensor_.end()) {
    return tensors_[found->second].second;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided,
                              "the test device has strided tensors only");
  devices_.insert(tensor.device().index());
  at::Tensor twin = over(lower(tensor.storage()), c10::DispatchKey::CPU, tensor);
  by_tensor_[tensor.unsafeGetTensorImpl()] = tensors_.size();
  by_tensor_[twin.unsafeGetTensorImpl()] = tensors_.size();
  tensors_.emplace_back(tensor, twin);
  return twin;
}

c10::Storage Twins::lower(const c10::Storage& storage) {
  const auto found = by_storage_.find(storage.unsafeGetStorageImpl());
  if (found != by_storage_.end()) {
    return storages_[found->second].cpu;
  }
  // Views are also made of storages whose bytes were evicted.
  void* const data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
  c10::Storage cpu(c10::Storage::use_byte_size_t(), storage.sym_nbytes(),
                   c10::DataPtr(data, c10::Device(c10::DeviceType::CPU)),
                   c10::GetDefaultCPUAllocator(), /*resizable=*/true);
  by_storage_[storage.unsafeGetStorageImpl()] = storages_.size();
  by_storage_[cpu.unsafeGetStorageImpl()] = storages_.size();
  storages_.push_back({storage, cpu, data});
  return cpu;
}

c10::IValue Twins::lower(const c10::IValue& value) {
  if (value.isTensor()) {
    return lower(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(lower(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(lower(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

void Twins::wait() const {
  for (const StoragePair& pair : storages_) {
    TORCH_CHECK(pair.data != nullptr || pair.device.nbytes() == 0,
                "a kernel of the test device got a storage without its bytes");
  }
  for (const c10::DeviceIndex device : devices_) {
    wait_for(current_stream(device));
  }
}

void Twins::write_back() const {
  for (const StoragePair& pair : storages_) {
    if (pair.cpu.data() != pair.data || pair.cpu.nbytes() != pair.device.nbytes()) {
      resize_storage(*pair.device.unsafeGetStorageImpl(), pair.cpu.nbytes());
      write_late(pair.device.device().index(), pair.device.mutable_data(), pair.cpu.data(),
                 pair.cpu.nbytes());
    }
  }
  for (const auto& [tensor, twin] : tensors_) {
    if (tensor.sizes() != twin.sizes() || tensor.strides() != twin.strides() ||
        tensor.storage_offset() != twin.storage_offset()) {
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(twin.sizes(), twin.strides(),
                                                          twin.storage_offset());
    }
  }
}

c10::Storage Twins::raise(const c10::Storage& storage) {
  const auto found = by_storage_.find(storage.unsafeGetStorageImpl());
  if (found != by_storage_.end()) {
    return storages_[found->second].device;
  }
  c10::Storage& raised = raised_[storage.unsafeGetStorageImpl()];
  if (!raised) {
    raised = c10::Storage(c10::Storage::use_byte_size_t(), storage.sym_nbytes(), allocator(),
                          /*resizable=*/true);
    write_late(current_device(), raised.mutable_data(), storage.data(), storage.nbytes());
  }
  return raised;
}

at::Tensor Twins::raise(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu()) {
    return tensor;
  }
  const auto found = by_tensor_.find(tensor.unsafeGetTensorImpl());
  if (found != by_tensor_.end()) {
    return tensors_[found->second].first;
  }
  if (tensor._is_zerotensor()) {
    return at::zeros(tensor.sizes(), tensor.options().device(c10::Device(kType, current_device())));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided,
                              "the test device has strided tensors only");
  if (of_cpu_arguments_.contains(tensor.storage().unsafeGetStorageImpl())) {
    return tensor;
  }
  return over(raise(tensor.storage()), c10::DispatchKey::PrivateUse1, tensor);
}

c10::IValue Twins::raise(const c10::IValue& value) {
  if (value.isTensor()) {
    return raise(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(raise(tensor));
    }
    return list;
  }
  return value;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Unseen unseen;
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t count = count_of(schema);
  Twins twins;
  std::optional<c10::Device> device;
  for (std::size_t i = 0; i < count; ++i) {
    c10::IValue& argument = torch::jit::peek(*stack, i, count);
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (argument.isTensor() && on_device(argument.toTensor()) && alias != nullptr &&
        alias->isWrite()) {
      (void)argument.toTensor().storage().mutable_data();  // triggers a pending copy on write
    }
    if (argument.isDevice()) {
      device = argument.toDevice();
      argument = c10::Device(c10::DeviceType::CPU);
    } else {
      argument = twins.lower(argument);
    }
  }
  TORCH_CHECK(twins.devices().size() <= 1,
              "Expected all tensors to be on the same device, but found at least two devices");
  if (!device && !twins.devices().empty()) {
    device = c10::Device(kType, *twins.devices().begin());
  }
  const c10::DeviceGuard guard(
      device && device->type() == kType ? *device : c10::Device(kType, current_device()));
  if (!is_view(schema)) {
    twins.wait();
  }
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    run_random_on_cpu(op, stack);
  } else {
    run_on_cpu(op, stack);
  }
  twins.write_back();
  if (device && device->is_cpu()) {
    return;
  }
  const std::size_t results = schema.returns().size();
  for (std::size_t i = 0; i < results; ++i) {
    c10::IValue& result = torch::jit::peek(*stack, i, results);
    if (!stays_on_cpu(op, i)) {
      result = twins.raise(result);
    }
  }
}

void register_fallback() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op && op->hasSchema() && name.getNamespace() == "aten" &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      register_one(*op);
    }
  }
  for (const char* const name : ops_of_devices_only()) {
    register_one(dispatcher.findSchemaOrThrow(name, ""));
  }
}

}  // namespace recoup::test_device

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&recoup::test_device::fallback>());
}
