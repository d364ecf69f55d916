#include "tests/cuda_stand_in/device/graph.h"

#include <algorithm>
#include <utility>

namespace recoup::stand_in {

Graph::~Graph() {
  for (const auto& function : at_end) {
    function();
  }
}

void Graph::add(const Stream& stream, Task task) {
  clocks_[stream.id].advance(stream.id);
  task.captured_on = stream.id;
  tasks.push_back(std::move(task));
}

std::shared_ptr<Event> Graph::record(const Stream& stream) {
  auto within = std::make_shared<Event>();
  within->device = stream.device;
  recorded_[within.get()] = clocks_[stream.id];
  tasks.push_back({.kind = Task::Kind::kRecord,
                   .microseconds = 0,
                   .event = within,
                   .what = "the record of an event in a graph",
                   .captured_on = stream.id});
  return within;
}

void Graph::wait(const Stream& stream, const std::shared_ptr<Event>& within) {
  clocks_[stream.id].merge(recorded_[within.get()]);
  tasks.push_back({.kind = Task::Kind::kWait,
                   .microseconds = 0,
                   .event = within,
                   .what = "a wait for an event in a graph",
                   .captured_on = stream.id});
}

bool Graph::is_joined() const {
  const auto of_origin = clocks_.find(origin->id);
  return std::all_of(clocks_.begin(), clocks_.end(), [&](const auto& row) {
    const Tick known = of_origin == clocks_.end() ? 0 : of_origin->second.at(row.first);
    return known == row.second.at(row.first);
  });
}

}  // namespace recoup::stand_in
