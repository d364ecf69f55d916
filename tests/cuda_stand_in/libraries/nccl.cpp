// NCCL for groups of one process: a collective returns its input. It is a copy on the stream, or a
// use of the bytes if it is in place. Larger groups are refused.
#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/cuda_stand_in/device/test_interface.h"

#define RECOUP_NCCL_API extern "C" __attribute__((visibility("default")))

namespace {

enum Result { kSuccess = 0, kCudaFailed = 1, kInvalidArgument = 4 };

struct Communicator {
  int rank = 0;
};

struct UniqueId {
  char bytes[128];
};

void nothing(void* /*argument*/) {}

// The size of a value of a ncclDataType_t; 0 for an unknown type.
std::size_t size_of_type(int type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  constexpr int kCount = sizeof kSizes / sizeof kSizes[0];
  return type >= 0 && type < kCount ? kSizes[type] : 0;
}

int give_back(const void* from, void* to, std::size_t count, int type, const char* what,
              cudaStream_t stream) {
  const std::size_t size = count * size_of_type(type);
  if (size_of_type(type) == 0) {
    return kInvalidArgument;
  }
  if (size == 0) {
    return kSuccess;
  }
  if (from != to) {
    const cudaError_t error = cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
    return error == cudaSuccess ? kSuccess : kCudaFailed;
  }
  if (stand_in_accessible(to, size) == 0) {
    return kInvalidArgument;
  }
  const StandInUse use{.memory = to, .size = size, .write = 1};
  stand_in_launch(stream, &nothing, nullptr, &nothing, what, &use, 1);
  return kSuccess;
}

int create(Communicator** made, int count, int rank) {
  *made = nullptr;
  if (count != 1 || rank != 0) {
    return kInvalidArgument;
  }
  *made = new Communicator;
  return kSuccess;
}

}  // namespace

// ---- groups ----
RECOUP_NCCL_API int ncclGetVersion(int* version) {
  *version = 23007;  // 2.30.7
  return kSuccess;
}

RECOUP_NCCL_API int ncclGetUniqueId(UniqueId* id) {
  *id = {};
  return kSuccess;
}

RECOUP_NCCL_API int ncclCommInitRank(Communicator** made, int count, UniqueId /*id*/, int rank) {
  return create(made, count, rank);
}

RECOUP_NCCL_API int ncclCommInitRankConfig(Communicator** made, int count, UniqueId /*id*/,
                                           int rank, void* /*settings*/) {
  return create(made, count, rank);
}

RECOUP_NCCL_API int ncclCommSplit(Communicator* of, int /*color*/, int /*key*/, Communicator** made,
                                  void* /*settings*/) {
  return create(made, 1, of->rank);
}

RECOUP_NCCL_API int ncclCommFinalize(Communicator* /*group*/) { return kSuccess; }

RECOUP_NCCL_API int ncclCommDestroy(Communicator* group) {
  delete group;
  return kSuccess;
}

RECOUP_NCCL_API int ncclCommAbort(Communicator* group) {
  delete group;
  return kSuccess;
}

RECOUP_NCCL_API int ncclCommCount(Communicator* /*group*/, int* count) {
  *count = 1;
  return kSuccess;
}

RECOUP_NCCL_API int ncclCommUserRank(Communicator* group, int* rank) {
  *rank = group->rank;
  return kSuccess;
}

RECOUP_NCCL_API int ncclCommGetAsyncError(Communicator* /*group*/, int* error) {
  *error = kSuccess;
  return kSuccess;
}

// PyTorch 2.15 and later register their allocator's memory with each group.
RECOUP_NCCL_API int ncclCommRegister(Communicator* /*group*/, void* memory, std::size_t size,
                                     void** handle) {
  *handle = memory;
  return stand_in_accessible(memory, size) != 0 ? kSuccess : kInvalidArgument;
}

RECOUP_NCCL_API int ncclCommDeregister(Communicator* /*group*/, void* /*handle*/) {
  return kSuccess;
}

RECOUP_NCCL_API const char* ncclGetErrorString(int error) {
  return error == kSuccess ? "no error" : "an error of the CUDA stand-in's NCCL";
}

RECOUP_NCCL_API const char* ncclGetLastError(Communicator* /*group*/) {
  return "the CUDA stand-in's NCCL knows groups of one process";
}

RECOUP_NCCL_API int ncclGroupStart() { return kSuccess; }
RECOUP_NCCL_API int ncclGroupEnd() { return kSuccess; }

// ---- collectives ----
RECOUP_NCCL_API int ncclAllReduce(const void* from, void* to, std::size_t count, int type,
                                  int /*reduction*/, Communicator* /*group*/, cudaStream_t stream) {
  return give_back(from, to, count, type, __func__, stream);
}

RECOUP_NCCL_API int ncclReduce(const void* from, void* to, std::size_t count, int type,
                               int /*reduction*/, int /*root*/, Communicator* /*group*/,
                               cudaStream_t stream) {
  return give_back(from, to, count, type, __func__, stream);
}

RECOUP_NCCL_API int ncclReduceScatter(const void* from, void* to, std::size_t count, int type,
                                      int /*reduction*/, Communicator* /*group*/,
                                      cudaStream_t stream) {
  return give_back(from, to, count, type, __func__, stream);
}

RECOUP_NCCL_API int ncclAllGather(const void* from, void* to, std::size_t count, int type,
                                  Communicator* /*group*/, cudaStream_t stream) {
  return give_back(from, to, count, type, __func__, stream);
}

RECOUP_NCCL_API int ncclBroadcast(const void* from, void* to, std::size_t count, int type,
                                  int /*root*/, Communicator* /*group*/, cudaStream_t stream) {
  return give_back(from, to, count, type, __func__, stream);
}

RECOUP_NCCL_API int ncclBcast(void* bytes, std::size_t count, int type, int /*root*/,
                              Communicator* /*group*/, cudaStream_t stream) {
  return give_back(bytes, bytes, count, type, __func__, stream);
}
