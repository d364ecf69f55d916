// Problems for the tests of static layout: random and published ones, and helpers.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "recoup/offline/layout.h"

namespace recoup {

inline LayoutBuffer buffer(std::string name, LayoutTime lower, LayoutTime upper,
                           std::int64_t size) {
  return {.name = std::move(name), .lower = lower, .upper = upper, .size = Bytes(size)};
}

struct RandomLayout {
  int count = 100;
  int steps = 50;  // lifetimes lie in [0, steps)
  int most_width = 20;
  int sizes = 64;  // sizes are multiples of `grain` from 1 to `sizes` times
  int grain = 16;
  int streams = 1;
};

inline LayoutProblem random_layout(std::uint64_t seed, const RandomLayout& shape) {
  std::mt19937_64 random(seed);
  const auto below = [&](int count) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(count));
  };
  LayoutProblem problem;
  for (int i = 0; i < shape.count; ++i) {
    const int lower = below(shape.steps);
    LayoutBuffer& added = problem.buffers.emplace_back(
        buffer("b" + std::to_string(i), lower, lower + 1 + below(shape.most_width),
               std::int64_t{shape.grain} * (1 + below(shape.sizes))));
    added.stream = below(shape.streams);
  }
  return problem;
}

// Example 1 of CANN's graph engine. Its lifetimes include their last step; ours exclude it.
inline LayoutProblem example_1() {
  return {.buffers = {buffer("A", 1, 3, 1024), buffer("B", 2, 5, 2048), buffer("C", 3, 5, 1024),
                      buffer("D", 4, 6, 512), buffer("E", 5, 7, 4096)},
          .ops = {}};
}

// Options under which the results of search never depend on the clock.
inline LayoutOptions without_clock(std::int64_t node_limit = 20'000) {
  LayoutOptions options;
  options.time_limit = std::chrono::hours(24 * 365);
  options.node_limit = node_limit;
  return options;
}

// A published instance. Empty if its data is missing; the test should then be skipped.
inline LayoutProblem published(const std::string& name) {
  const char* folder = std::getenv("RECOUP_SHARED_DATA");
  const std::filesystem::path path =
      std::filesystem::path(folder != nullptr ? folder : RECOUP_SHARED_DATA) / "layouts" / name;
  std::ifstream file(path);
  return file ? read_layout_csv(file, path.string()) : LayoutProblem{};
}

}  // namespace recoup

#define RECOUP_SKIP_WITHOUT(problem)                                                     \
  if ((problem).buffers.empty()) {                                                       \
    GTEST_SKIP() << "the published instances are not in " RECOUP_SHARED_DATA "/layouts;" \
                 << " RECOUP_SHARED_DATA names another folder";                          \
  }
