// Kernels: they are registered and launched, but do nothing. Libraries that nvcc compiled call the
// functions whose names begin with two underscores.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "tests/cuda_stand_in/runtime/call.h"

namespace {

using recoup::stand_in::current_device;
using recoup::stand_in::launches;
using recoup::stand_in::machine;

constexpr std::size_t kMostDevices = 16;

struct Variable {
  std::size_t size = 0;
  void* memory[kMostDevices] = {};
};

struct Variables {
  std::mutex mutex;
  std::unordered_map<const void*, Variable> known;
};

Variables& variables() {
  static Variables* const made = new Variables;
  return *made;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;  // bytes
  void* stream = nullptr;
};
thread_local Configuration configuration;

// Of most kernels, a thread reads and writes about this many bytes.
double modelled_microseconds(dim3 grid, dim3 block) {
  constexpr double kBytesOfThread = 48;
  constexpr double kBytesPerMicrosecond = 3e6;  // 3 TB/s
  const double threads =
      static_cast<double>(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
  return 2 + threads * kBytesOfThread / kBytesPerMicrosecond;
}

void launch(const void* function, dim3 grid, dim3 block, recoup::stand_in::Stream* stream) {
  recoup::stand_in::Task task;
  task.what = launches().count(function);
  task.microseconds = modelled_microseconds(grid, block);
  task.work = [] {};
  if (recoup::stand_in::settings().log > 1) {
    std::fprintf(stderr, "CUDA stand-in: launch of %s\n", task.what);
  }
  {
    const std::lock_guard lock(machine().streams.mutex);
    ++machine().streams.counted.launches;
  }
  machine().streams.push(stream, std::move(task));
}

}  // namespace

RECOUP_CUDA_API void** __cudaRegisterFatBinary(void* data) { return new void*(data); }
RECOUP_CUDA_API void __cudaRegisterFatBinaryEnd(void** /*module*/) {}
RECOUP_CUDA_API void __cudaUnregisterFatBinary(void** /*module*/) {}
RECOUP_CUDA_API char __cudaInitModule(void** /*module*/) { return 1; }

RECOUP_CUDA_API void __cudaRegisterFunction(void** /*module*/, const char* host, char* /*device*/,
                                            const char* name, int /*limit*/, uint3* /*tid*/,
                                            uint3* /*bid*/, dim3* /*block*/, dim3* /*grid*/,
                                            int* /*size*/) {
  launches().add(host, name);
}

RECOUP_CUDA_API void __cudaRegisterVar(void** /*module*/, char* host, char* /*address*/,
                                       const char* /*name*/, int /*external*/, std::size_t size,
                                       int /*constant*/, int /*global*/) {
  const std::lock_guard lock(variables().mutex);
  variables().known[host].size = size;
}

RECOUP_CUDA_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

RECOUP_CUDA_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                                     void* stream) {
  configuration = {.grid = grid, .block = block, .shared = shared, .stream = stream};
  return 0;
}

RECOUP_CUDA_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                                       void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  std::memcpy(stream, &configuration.stream, sizeof configuration.stream);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                             void** /*arguments*/, std::size_t /*shared*/,
                                             cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  launch(function, grid, block, on);
  return recoup::stand_in::work_failure();
}

RECOUP_CUDA_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                               void** arguments, std::size_t shared,
                                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

RECOUP_CUDA_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                        void** arguments, std::size_t shared,
                                                        cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

RECOUP_CUDA_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                                const void* function, void** arguments) {
  return cudaLaunchKernel(function, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream);
}

RECOUP_CUDA_API cudaError_t cudaFuncSetAttribute(const void* /*function*/,
                                                 cudaFuncAttribute /*which*/, int /*value*/) {
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                                  const void* /*function*/) {
  RECOUP_BEGIN();
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = 90;
  attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count,
                                                                          const void* /*function*/,
                                                                          int threads,
                                                                          std::size_t /*shared*/) {
  *count = std::max(1, 2048 / std::max(threads, 64));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* count, const void* function, int threads, std::size_t shared, unsigned /*flags*/) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(count, function, threads, shared);
}

RECOUP_CUDA_API cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  RECOUP_BEGIN();
  const std::lock_guard lock(variables().mutex);
  Variable& variable = variables().known[symbol];
  void*& memory = variable.memory[static_cast<std::size_t>(current_device())];
  if (memory == nullptr) {
    memory = machine().memory.allocate(current_device(), std::max<std::size_t>(variable.size, 1));
  }
  *address = memory;
  return memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from,
                                               std::size_t size, std::size_t offset,
                                               cudaMemcpyKind kind) {
  void* address = nullptr;
  const cudaError_t error = cudaGetSymbolAddress(&address, symbol);
  return error != cudaSuccess ? error
                              : cudaMemcpy(static_cast<char*>(address) + offset, from, size, kind);
}

RECOUP_CUDA_API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t /*kernel*/,
                                                            cudaFuncAttribute /*which*/,
                                                            int /*value*/, int /*device*/) {
  return cudaSuccess;
}
