// Trace files: a reader returns what was written, and refuses everything else.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "csrc/trace/sink.h"
#include "csrc/trace/writer.h"
#include "recoup/trace.h"
#include "tests/core/support/recorded_trace.h"
#include "tests/core/support/trace_bytes.h"

namespace recoup::detail {
namespace {

using Kind = TraceEvent::Kind;

std::string path_in_temp(const std::string& name) {
  return testing::TempDir() + "recoup_" + name + "_" +
         testing::UnitTest::GetInstance()->current_test_info()->name();
}

Trace random_trace(std::uint64_t seed, int events) { return RandomTrace(seed, 30).make(events); }

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
std::string complaint_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const BadTrace& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(TraceFormat, ReadsWhatWasWritten) {
  const std::string path = path_in_temp("trace");
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Trace trace = random_trace(seed, seed == 0 ? 0 : 400);
    write_trace(trace, path);
    EXPECT_EQ(read_trace(path), trace) << seed;
  }
  const Trace large = random_trace(99, 60000);  // more than one frame
  write_trace(large, path);
  EXPECT_EQ(read_trace(path), large);
  std::filesystem::remove(path);
}

TEST(TraceFormat, AFileIsCompleteOrAbsent) {
  const std::string path = path_in_temp("partial");
  std::filesystem::remove(path);
  {
    TraceWriter writer(path);
    writer.add_name("half a trace");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_THROW(TraceWriter("/no such folder/trace"), std::system_error);
  EXPECT_THROW((void)read_trace(path), std::system_error);
}

TEST(TraceFormat, TruncationIsReportedWithItsOffset) {
  const std::string path = path_in_temp("cut");
  write_trace(random_trace(3, 60), path);
  const std::string whole = bytes_of(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put_bytes(path, whole.substr(0, size));
    const std::string complaint = complaint_of([&] { (void)read_trace(path); });
    if (size < 8) {
      EXPECT_NE(complaint.find("not a recoup trace"), std::string::npos) << complaint;
    } else {
      EXPECT_NE(complaint.find("offset " + std::to_string(size)), std::string::npos) << complaint;
    }
  }
  put_bytes(path, whole + "x");
  EXPECT_NE(complaint_of([&] { (void)read_trace(path); }).find("after the end"), std::string::npos);
  std::filesystem::remove(path);
}

TEST(TraceFormat, EveryChangedByteIsDetected) {
  const std::string path = path_in_temp("flip");
  write_trace(random_trace(4, 60), path);
  const std::string whole = bytes_of(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    put_bytes(path, changed);
    EXPECT_NE(complaint_of([&] { (void)read_trace(path); }), "no complaint") << "byte " << at;
  }
  std::filesystem::remove(path);
}

TEST(TraceFormat, AnotherVersionIsRefused) {
  const std::string path = path_in_temp("version");
  write_trace(random_trace(5, 5), path);
  std::string bytes = bytes_of(path);
  for (const int version : {0, 14, 16}) {
    bytes[8] = static_cast<char>(version);
    put_bytes(path, bytes);
    EXPECT_NE(complaint_of([&] {
                (void)read_trace(path);
              }).find("version " + std::to_string(version) + "; this recoup reads version 15"),
              std::string::npos);
  }
  std::filesystem::remove(path);
}

// ---- validate ----

// A trace of two storages: 0 is external, and op 0 makes 1 from 0.
Trace small_trace() {
  TraceBuilder builder;
  builder.add_name("test::op");
  const KernelStep steps[] = {{.kind = KernelStep::Kind::kAllocate, .index = 0, .size = 64_B}};
  builder.add_kernel(steps);
  builder.add_event({.kind = Kind::kExternal, .index = 0, .size = 64_B});
  const TraceOperand operands[] = {{.storage = 0, .reads = true}};
  const TraceFresh fresh[] = {{.allocation = 0, .nbytes = 64_B}};
  builder.add_op({}, operands, fresh);
  return builder.take();
}

std::string complaint_after(const std::function<void(Trace&)>& change) {
  Trace trace = small_trace();
  change(trace);
  return complaint_of([&] { validate(trace); });
}

void expect_complaint(const std::function<void(Trace&)>& change, const std::string& part) {
  const std::string complaint = complaint_after(change);
  EXPECT_NE(complaint.find(part), std::string::npos) << complaint;
}

TEST(TraceValidate, RefusesUnknownSegments) {
  const auto segment = [](std::uint32_t index) {
    return TraceEvent{.kind = Kind::kSegment, .index = index, .size = 2_MiB};
  };
  const auto inside = [](std::uint32_t index) {
    return TraceEvent{.kind = Kind::kExternal, .index = index + 2, .size = 64_B};
  };
  EXPECT_EQ(complaint_after([&](Trace& t) {
              t.events.insert(t.events.end(), {segment(0), inside(0), segment(1), segment(0)});
            }),
            "no complaint");
  expect_complaint([&](Trace& t) { t.events.push_back(inside(0)); }, "unknown segment 0");
  expect_complaint([&](Trace& t) { t.events.push_back(segment(1)); },
                   "segment 1 appears before segment 0");
  expect_complaint(
      [&](Trace& t) {
        t.events.push_back({.kind = Kind::kSegment, .index = 0, .size = Bytes(-1)});
      },
      "a size of -1 bytes");
}

TEST(TraceValidate, RefusesInvalidReferences) {
  EXPECT_EQ(complaint_after([](Trace&) {}), "no complaint");
  expect_complaint([](Trace& t) { t.operands[0].storage = 1; },
                   "event 1 (op 0, test::op): storage 1 does not exist yet");
  expect_complaint([](Trace& t) { t.events.push_back({.kind = Kind::kDie, .index = 7}); },
                   "event 2: storage 7 does not exist yet");
  expect_complaint(
      [](Trace& t) {
        t.events.push_back({.kind = Kind::kDie, .index = 1});
        t.events.push_back({.kind = Kind::kEscape, .index = 1});
      },
      "event 3: storage 1 no longer exists");
  expect_complaint([](Trace& t) { t.events[1].index = 5; }, "unknown op 5");
  expect_complaint([](Trace& t) { t.ops[0].name = 2; }, "op 0 has no name");
  expect_complaint([](Trace& t) { t.ops[0].kernel = 2; }, "no kernel");
  expect_complaint([](Trace& t) { t.fresh[0].allocation = 1; }, "returns allocation 1");
  expect_complaint([](Trace& t) { t.fresh[0].nbytes = 65_B; }, "returns 65 bytes");
  expect_complaint([](Trace& t) { t.events.push_back({.kind = Kind::kFree, .index = 0}); },
                   "block 0 is not held");
  expect_complaint(
      [](Trace& t) { t.kernels[0].push_back({.kind = KernelStep::Kind::kFree, .index = 3}); },
      "kernel 0: it frees allocation 3");
}

TEST(TraceValidate, RefusesInvalidPlans) {
  const auto with_plan = [](const TracePlan& plan, const std::vector<TraceEviction>& evictions,
                            const std::vector<TraceBlock>& blocks = {},
                            const std::vector<TraceStart>& starts = {}) {
    return [=](Trace& trace) {
      TraceBuilder builder;
      tell(trace, builder);
      builder.add_plan(plan, {.evictions = evictions, .blocks = blocks, .starts = starts});
      trace = builder.take();
    };
  };
  const TracePlan plan{.step = 1, .budget = 64_B, .listed = true};
  EXPECT_EQ(complaint_after(with_plan(plan, {{.ops = 1}, {.ops = 1, .op = 7}})), "no complaint");
  expect_complaint(with_plan(plan, {{.ops = 2}, {.ops = 1}}), "not in the order of ops");
  expect_complaint(with_plan(plan, {{.ops = 1U << 17}}), "more than 65536 ops");
  expect_complaint(with_plan({.budget = Bytes(-1)}, {}), "a size of -1 bytes");
  expect_complaint(with_plan({.expected = Nanoseconds(-1)}, {}), "a plan expects a cost of -1 ns");
  expect_complaint(with_plan({.listed = false}, {{.ops = 1}}),
                   "a plan without a list of evictions");
  EXPECT_EQ(complaint_after(with_plan(plan, {}, {{.ops = 3, .size = 64_B, .at = 128_B}},
                                      {{.size = 64_B, .storage = 1, .at = 0_B}})),
            "no complaint");
  expect_complaint(with_plan({.listed = false}, {}, {{.size = 64_B}}),
                   "a plan without a list of evictions");
  expect_complaint(with_plan(plan, {}, {{.ops = 2, .size = 64_B}, {.ops = 1, .size = 64_B}}),
                   "names blocks that are not in the order of ops");
  expect_complaint(with_plan(plan, {}, {{.ops = 1U << 17, .size = 64_B}}), "more than 65536 ops");
  expect_complaint(with_plan(plan, {}, {{.size = 0_B}}), "a block of 0 bytes at 0");
  expect_complaint(with_plan(plan, {}, {{.size = 64_B, .at = 32_B}}), "not aligned to 64");
  expect_complaint(with_plan(plan, {}, {{.size = 64_B, .at = Bytes(-64)}}), "a size of -64 bytes");
  expect_complaint(with_plan(plan, {}, {}, {{.size = 64_B, .storage = 99}}),
                   "a plan names storage 98, which does not exist yet");
  expect_complaint(with_plan(plan, {{.op = TraceEviction::kStorage, .slot = 98}}),
                   "a plan names storage 98, which does not exist yet");
  expect_complaint(with_plan(plan, {}, {{.size = 64_B, .op = TraceEviction::kStorage, .slot = 98}}),
                   "a plan names storage 98, which does not exist yet");
  expect_complaint([](Trace& t) { t.blocks.push_back({}); }, "take effect");
  expect_complaint([](Trace& t) { t.events.push_back({.kind = Kind::kPlan, .index = 0}); },
                   "event 2: plan 0 does not exist");
  expect_complaint([](Trace& t) { t.plans.push_back({}); }, "take effect");
}

TEST(TraceValidate, RefusesInvalidParts) {
  const auto with_list = [](const std::function<void(Trace&)>& change) {
    return [change](Trace& trace) {
      TraceBuilder builder;
      tell(trace, builder);
      const TracePart parts[] = {{.operand_count = 1}, {.operand_count = 2}};
      const TracePartOperand operands[] = {{.storage = 0}, {.storage = 1}, {.storage = 0}};
      builder.add_list_op({.name = 0}, parts, operands);
      trace = builder.take();
      change(trace);
    };
  };
  EXPECT_EQ(complaint_after(with_list([](Trace&) {})), "no complaint");
  expect_complaint(with_list([](Trace& t) { t.list_ops[0].name = 1; }), "unknown name 1");
  expect_complaint(with_list([](Trace& t) { t.list_ops[0].part_count = 3; }), "do not follow");
  expect_complaint(with_list([](Trace& t) { t.parts[1].first_operand = 0; }), "do not follow");
  expect_complaint(with_list([](Trace& t) { t.parts[1].operand_count = 3; }), "do not follow");
  expect_complaint(with_list([](Trace& t) { t.part_operands.push_back({}); }), "only the first 1");
  expect_complaint(with_list([](Trace& t) { t.events.back().index = 1; }),
                   "event 2: op on lists 1 does not exist");
  expect_complaint(with_list([](Trace& t) { t.parts[0].workspace = Bytes(-1); }),
                   "a size of -1 bytes");
  expect_complaint([](Trace& t) { t.events.push_back({.kind = Kind::kParts, .index = 0}); },
                   "event 2: op on lists 0 does not exist");
}

TEST(TraceValidate, RefusesNegativeSizes) {
  expect_complaint([](Trace& t) { t.events[0].size = Bytes(-1); }, "event 0: a size of -1 bytes");
  expect_complaint([](Trace& t) { t.ops[0].workspace = Bytes(-2); }, "op 0, test::op");
  expect_complaint([](Trace& t) { t.kernels[0][0].size = Bytes(-3); }, "kernel 0");
  expect_complaint([](Trace& t) { t.fresh[0].nbytes = Bytes(-4); }, "a size of -4 bytes");
}

}  // namespace
}  // namespace recoup::detail
