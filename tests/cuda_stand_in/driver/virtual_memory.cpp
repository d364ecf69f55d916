// The driver's virtual memory: addresses that are separate from the memory mapped to them.
#include <cuda.h>
#undef cuMemGetAddressRange

#include <cstring>

#include "tests/cuda_stand_in/driver/driver_call.h"

namespace {

using recoup::stand_in::current_device;
using recoup::stand_in::kGranularity;
using recoup::stand_in::machine;
using recoup::stand_in::Outcome;

CUresult result_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return CUDA_SUCCESS;
    case Outcome::kInvalid:
      return CUDA_ERROR_INVALID_VALUE;
    case Outcome::kNoMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

RECOUP_DRIVER_API CUresult
cuMemGetAllocationGranularity(std::size_t* size, const CUmemAllocationProp* /*memory*/,
                              CUmemAllocationGranularity_flags /*which*/) {
  RECOUP_DRIVER_BEGIN();
  *size = kGranularity;
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t size,
                                               std::size_t /*alignment*/, CUdeviceptr /*wish*/,
                                               unsigned long long /*flags*/) {
  RECOUP_DRIVER_BEGIN();
  recoup::stand_in::Address found = 0;
  const CUresult result = result_of(machine().memory.reserve(current_device(), size, found));
  *at = found;
  return result;
}

RECOUP_DRIVER_API CUresult cuMemAddressFree(CUdeviceptr at, std::size_t size) {
  RECOUP_DRIVER_BEGIN();
  return result_of(machine().memory.unreserve(at, size));
}

RECOUP_DRIVER_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                                       const CUmemAllocationProp* memory,
                                       unsigned long long /*flags*/) {
  RECOUP_DRIVER_BEGIN();
  std::uint64_t made = 0;
  const CUresult result = result_of(machine().memory.create(memory->location.id, size, made));
  *handle = made;
  return result;
}

RECOUP_DRIVER_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  RECOUP_DRIVER_BEGIN();
  return result_of(machine().memory.release_handle(handle));
}

RECOUP_DRIVER_API CUresult cuMemMap(CUdeviceptr at, std::size_t size, std::size_t /*offset*/,
                                    CUmemGenericAllocationHandle handle,
                                    unsigned long long /*flags*/) {
  RECOUP_DRIVER_BEGIN();
  return result_of(machine().memory.map(at, size, handle));
}

// As the driver does, this does not wait for work that uses the memory.
RECOUP_DRIVER_API CUresult cuMemUnmap(CUdeviceptr at, std::size_t size) {
  RECOUP_DRIVER_BEGIN();
  machine().streams.forget(reinterpret_cast<void*>(at), size, __func__);
  return result_of(machine().memory.unmap(at, size));
}

RECOUP_DRIVER_API CUresult cuMemSetAccess(CUdeviceptr at, std::size_t size,
                                          const CUmemAccessDesc* /*accesses*/,
                                          std::size_t /*count*/) {
  RECOUP_DRIVER_BEGIN();
  return machine().memory.accessible(reinterpret_cast<void*>(at), size) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

RECOUP_DRIVER_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                       void* memory) {
  RECOUP_DRIVER_BEGIN();
  std::uint64_t found = 0;
  const CUresult result = result_of(machine().memory.retain(memory, found));
  *handle = found;
  return result;
}

RECOUP_DRIVER_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, std::size_t* size,
                                                   CUdeviceptr at) {
  RECOUP_DRIVER_BEGIN();
  const auto mapping = machine().memory.mapping_at(reinterpret_cast<void*>(at));
  if (!mapping) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (begin != nullptr) {
    *begin = mapping->begin;
  }
  if (size != nullptr) {
    *size = mapping->size;
  }
  return CUDA_SUCCESS;
}

RECOUP_DRIVER_API CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* memory, CUmemGenericAllocationHandle handle) {
  RECOUP_DRIVER_BEGIN();
  const auto device = machine().memory.device_of_handle(handle);
  if (!device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memset(memory, 0, sizeof *memory);
  memory->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory->location.id = *device;
  return CUDA_SUCCESS;
}
