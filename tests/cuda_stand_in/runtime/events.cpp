// Events.
#include <map>
#include <mutex>
#include <utility>

#include "tests/cuda_stand_in/device/graph.h"
#include "tests/cuda_stand_in/runtime/call.h"

namespace {

using recoup::stand_in::current_device;
using recoup::stand_in::Event;
using recoup::stand_in::machine;

struct Events {
  std::mutex mutex;
  std::map<cudaEvent_t, std::shared_ptr<Event>> known;
};

// Never destroyed, because libraries call it during process exit.
Events& events() {
  static Events* const made = new Events;
  return *made;
}

void create(cudaEvent_t* out, unsigned flags) {
  auto event = std::make_shared<Event>();
  event->device = current_device();
  event->timed = (flags & cudaEventDisableTiming) == 0;
  *out = reinterpret_cast<cudaEvent_t>(event.get());
  const std::lock_guard lock(events().mutex);
  events().known[*out] = std::move(event);
}

}  // namespace

namespace recoup::stand_in {

std::shared_ptr<Event> event_of(cudaEvent_t event) {
  const std::lock_guard lock(events().mutex);
  const auto found = events().known.find(event);
  return found == events().known.end() ? nullptr : found->second;
}

}  // namespace recoup::stand_in

RECOUP_CUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  RECOUP_BEGIN();
  create(event, flags);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  RECOUP_BEGIN();
  create(event, 0);
  return cudaSuccess;
}

// Streams that wait for the event still do.
RECOUP_CUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  RECOUP_BEGIN();
  RECOUP_EVENT(gone, event);
  const std::lock_guard lock(events().mutex);
  events().known.erase(event);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                                     unsigned flags) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  RECOUP_EVENT(recorded, event);
  if (recorded->device != on->device) {
    RECOUP_FAIL(cudaErrorInvalidResourceHandle);
  }
  if (machine().sites.drops("cudaEventRecord")) {
    return cudaSuccess;
  }
  {
    const std::lock_guard lock(machine().streams.mutex);
    const bool is_part = on->capture != nullptr && (flags & cudaEventRecordExternal) == 0;
    recorded->capture = is_part ? on->capture : nullptr;
    recorded->within = is_part ? on->capture->record(*on) : nullptr;
    if (is_part) {
      return cudaSuccess;
    }
  }
  machine().streams.record(on, recorded);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

RECOUP_CUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                                unsigned /*flags*/) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  RECOUP_EVENT(awaited, event);
  if (machine().sites.drops(__func__)) {
    return cudaSuccess;
  }
  {
    const std::lock_guard lock(machine().streams.mutex);
    ++machine().streams.counted.stream_waits;
    if (awaited->capture != nullptr) {
      if (awaited->capture->over) {
        RECOUP_FAIL(cudaErrorCapturedEvent);
      }
      if (on->capture == nullptr) {
        on->capture = awaited->capture;
      }
      if (on->capture != awaited->capture) {
        RECOUP_FAIL(cudaErrorStreamCaptureMerge);
      }
      on->capture->wait(*on, awaited->within);
      return cudaSuccess;
    }
    if (on->capture != nullptr) {
      RECOUP_FAIL(cudaErrorStreamCaptureIsolation);
    }
  }
  machine().streams.wait(on, awaited);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  RECOUP_BEGIN();
  RECOUP_EVENT(asked, event);
  RECOUP_REQUIRE_NO_CAPTURE();
  if (asked->capture != nullptr && !asked->capture->over) {
    RECOUP_FAIL(cudaErrorCapturedEvent);
  }
  if (!machine().streams.is_done(*asked)) {
    RECOUP_FAIL(cudaErrorNotReady);
  }
  return recoup::stand_in::work_failure();
}

RECOUP_CUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  RECOUP_BEGIN();
  RECOUP_EVENT(awaited, event);
  RECOUP_REQUIRE_NO_CAPTURE();
  if (machine().sites.drops(__func__)) {
    return cudaSuccess;
  }
  machine().streams.wait_for_event(*awaited);
  return recoup::stand_in::work_failure();
}

RECOUP_CUDA_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from,
                                                 cudaEvent_t to) {
  RECOUP_BEGIN();
  RECOUP_EVENT(begin, from);
  RECOUP_EVENT(end, to);
  const std::lock_guard lock(machine().streams.mutex);
  if (!begin->timed || !end->timed || begin->recorded == 0 || end->recorded == 0) {
    RECOUP_FAIL(cudaErrorInvalidResourceHandle);
  }
  if (!begin->is_done(begin->recorded) || !end->is_done(end->recorded)) {
    RECOUP_FAIL(cudaErrorNotReady);
  }
  *milliseconds =
      static_cast<float>((end->times[end->recorded] - begin->times[begin->recorded]) / 1000);
  return cudaSuccess;
}
