// CUDA graphs. A launch enqueues the tasks of the capture's origin on the given stream, and those
// of streams that had joined the capture on streams of the executable graph.
#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "tests/cuda_stand_in/device/graph.h"
#include "tests/cuda_stand_in/runtime/call.h"

namespace {

using recoup::stand_in::Graph;
using recoup::stand_in::machine;
using recoup::stand_in::Stream;
using recoup::stand_in::StreamId;
using recoup::stand_in::Task;

struct Executable {
  std::shared_ptr<Graph> graph;
  std::map<StreamId, Stream*> streams{};  // by captured stream
};

// Guarded by the mutex of the streams.
struct Graphs {
  std::uint64_t last_id = 0;
  std::vector<std::shared_ptr<Graph>> open;  // being captured
  std::map<cudaGraph_t, std::shared_ptr<Graph>> known;
  std::map<cudaGraphExec_t, std::shared_ptr<Executable>> executable;
};

Graphs& graphs() {
  static Graphs* const made = new Graphs;
  return *made;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
std::atomic<int> open_count = 0;

std::shared_ptr<Graph> find(cudaGraph_t graph) {
  const std::lock_guard lock(machine().streams.mutex);
  const auto found = graphs().known.find(graph);
  return found == graphs().known.end() ? nullptr : found->second;
}

// The stream on which a launch on the stream `on` enqueues a task.
Stream* stream_for(Executable& launched, const Task& task, Stream* on) {
  if (task.captured_on == launched.graph->origin->id) {
    return on;
  }
  Stream*& own = launched.streams[task.captured_on];
  if (own == nullptr) {
    own = machine().streams.create(on->device, 0);
  }
  return own;
}

}  // namespace

namespace recoup::stand_in {

// In global mode the call is forbidden to all threads that have not opted out, in thread-local mode
// to the capturing thread.
bool forbidden_by_capture() {
  if (open_count == 0 || thread_mode == cudaStreamCaptureModeRelaxed) {
    return false;
  }
  const std::lock_guard lock(machine().streams.mutex);
  bool forbidden = false;
  for (const std::shared_ptr<Graph>& graph : graphs().open) {
    if (graph->mode == cudaStreamCaptureModeGlobal ||
        (graph->mode == cudaStreamCaptureModeThreadLocal &&
         graph->thread == std::this_thread::get_id())) {
      graph->broken = true;
      forbidden = true;
    }
  }
  return forbidden;
}

}  // namespace recoup::stand_in

RECOUP_CUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                                   cudaStreamCaptureMode mode) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  if (reinterpret_cast<std::uintptr_t>(stream) <= 1) {
    RECOUP_FAIL(cudaErrorStreamCaptureUnsupported);
  }
  const std::lock_guard lock(machine().streams.mutex);
  if (on->capture != nullptr) {
    RECOUP_FAIL(cudaErrorIllegalState);
  }
  auto graph = std::make_shared<Graph>();
  graph->id = ++graphs().last_id;
  graph->mode = mode;
  graph->thread = std::this_thread::get_id();
  graph->origin = on;
  on->capture = graph;
  graphs().open.push_back(std::move(graph));
  ++open_count;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  const std::lock_guard lock(machine().streams.mutex);
  const std::shared_ptr<Graph> graph = on->capture;
  *out = nullptr;
  if (graph == nullptr || graph->origin != on) {
    RECOUP_FAIL(cudaErrorIllegalState);
  }
  for (Stream* const each : machine().streams.all) {
    if (each->capture == graph) {
      each->capture = nullptr;
    }
  }
  std::erase(graphs().open, graph);
  graph->over = true;
  --open_count;
  if (graph->broken) {
    RECOUP_FAIL(cudaErrorStreamCaptureInvalidated);
  }
  if (!graph->is_joined()) {
    RECOUP_FAIL(cudaErrorStreamCaptureUnjoined);
  }
  *out = reinterpret_cast<cudaGraph_t>(graph.get());
  graphs().known[*out] = graph;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                  cudaStreamCaptureStatus* status) {
  RECOUP_BEGIN();
  RECOUP_STREAM(of, stream);
  const std::lock_guard lock(machine().streams.mutex);
  *status = cudaStreamCaptureStatusNone;
  if (of->capture != nullptr) {
    *status =
        of->capture->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                     cudaStreamCaptureStatus* status,
                                                     unsigned long long* id, cudaGraph_t* graph,
                                                     const cudaGraphNode_t** nodes,
                                                     const cudaGraphEdgeData** edges,
                                                     std::size_t* count) {
  RECOUP_BEGIN();
  RECOUP_STREAM(of, stream);
  const std::lock_guard lock(machine().streams.mutex);
  const std::shared_ptr<Graph>& capture = of->capture;
  *status = capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (capture != nullptr && id != nullptr) {
    *id = capture->id;
  }
  if (capture != nullptr && graph != nullptr) {
    *graph = reinterpret_cast<cudaGraph_t>(capture.get());
    graphs().known[*graph] = capture;
  }
  if (nodes != nullptr) {
    *nodes = nullptr;
  }
  if (edges != nullptr) {
    *edges = nullptr;
  }
  if (count != nullptr) {
    *count = 0;
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t /*stream*/,
                                                                cudaGraphNode_t* /*nodes*/,
                                                                const cudaGraphEdgeData* /*edges*/,
                                                                std::size_t /*count*/,
                                                                unsigned /*flags*/) {
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                                          unsigned long long /*flags*/) {
  RECOUP_BEGIN();
  const std::shared_ptr<Graph> found = find(graph);
  if (found == nullptr) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  }
  *out = reinterpret_cast<cudaGraphExec_t>(new char(0));
  const std::lock_guard lock(machine().streams.mutex);
  graphs().executable[*out] = std::make_shared<Executable>(Executable{.graph = found});
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph,
                                                 unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(out, graph, flags);
}

RECOUP_CUDA_API cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  std::shared_ptr<Executable> launched;
  {
    const std::lock_guard lock(machine().streams.mutex);
    if (on->capture != nullptr) {  // the stand-in has no graphs within graphs
      RECOUP_FAIL(cudaErrorStreamCaptureUnsupported);
    }
    const auto found = graphs().executable.find(executable);
    launched = found == graphs().executable.end() ? nullptr : found->second;
  }
  if (launched == nullptr) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  }
  for (const Task& task : launched->graph->tasks) {
    Stream* const at = stream_for(*launched, task, on);
    switch (task.kind) {
      case Task::Kind::kRecord:
        machine().streams.record(at, task.event);
        break;
      case Task::Kind::kWait:
        machine().streams.wait(at, task.event);
        break;
      case Task::Kind::kWork:
        machine().streams.push(at, task);
        break;
    }
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  RECOUP_BEGIN();
  // destroyed after the lock is released: objects of the graph take the lock
  const std::shared_ptr<Graph> last = find(graph);
  const std::lock_guard lock(machine().streams.mutex);
  graphs().known.erase(graph);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  RECOUP_BEGIN();
  machine().streams.wait_for_device(-1);
  std::shared_ptr<Executable> last;
  {
    const std::lock_guard lock(machine().streams.mutex);
    const auto found = graphs().executable.find(executable);
    if (found != graphs().executable.end()) {
      last = found->second;
      graphs().executable.erase(found);
      delete reinterpret_cast<char*>(executable);
    }
  }
  if (last != nullptr) {
    for (const auto& [captured, own] : last->streams) {
      machine().streams.destroy(own);
    }
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                              std::size_t* count) {
  RECOUP_BEGIN();
  const std::shared_ptr<Graph> of = find(graph);
  if (of == nullptr) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  }
  if (nodes == nullptr) {
    *count = of->tasks.size();
  } else {
    std::fill_n(nodes, *count, nullptr);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t /*node*/,
                                                         cudaGraphNode_t* /*nodes*/,
                                                         cudaGraphEdgeData* /*edges*/,
                                                         std::size_t* count) {
  *count = 0;
  return cudaSuccess;
}

// ---- objects that live as long as a graph ----
namespace {

struct UserObject {
  void* data;
  cudaHostFn_t destroy;
  std::int64_t users;
};

}  // namespace

RECOUP_CUDA_API cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* data,
                                                 cudaHostFn_t destroy, unsigned users,
                                                 unsigned /*flags*/) {
  *out = reinterpret_cast<cudaUserObject_t>(
      new UserObject{.data = data, .destroy = destroy, .users = users});
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned users) {
  auto* const released = reinterpret_cast<UserObject*>(object);
  released->users -= users;
  if (released->users <= 0) {
    released->destroy(released->data);
    delete released;
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                      unsigned users, unsigned flags) {
  const std::shared_ptr<Graph> of = find(graph);
  if (of == nullptr) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  }
  if ((flags & cudaGraphUserObjectMove) == 0) {
    reinterpret_cast<UserObject*>(object)->users += users;
  }
  of->at_end.push_back([object, users] { cudaUserObjectRelease(object, users); });
  return cudaSuccess;
}
