// Untrusted trace files: errors name the position, and reading takes little memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "recoup/offline/traces.h"
#include "recoup/trace.h"
#include "tests/core/support/memory_growth.h"
#include "tests/core/support/trace_bytes.h"

namespace recoup::detail {
namespace {

constexpr std::uint64_t kNameTag = 1;
constexpr std::uint64_t kKernelTag = 2;
constexpr std::uint64_t kOpTag = 3;
constexpr std::uint64_t kListOpTag = 5;
constexpr std::uint64_t kDeviceTag = 6;
constexpr std::uint64_t kHoldTag = 8;
constexpr std::uint64_t tag(TraceEvent::Kind kind) { return 16 + static_cast<std::uint64_t>(kind); }
using Kind = TraceEvent::Kind;

class UntrustedTrace : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "recoup_untrusted_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Trace read(const std::string& bytes) {
    put_bytes(path_, bytes);
    return read_trace(path_);
  }
  std::string complaint(const std::string& bytes) {
    try {
      (void)read(bytes);
    } catch (const BadTrace& error) {
      return error.what();
    }
    return "no complaint";
  }
  // The file must be refused with an error that contains `part` and the position.
  void expect_refused(const std::vector<Record>& records, const std::string& part) {
    const std::string text = complaint(file_of(records));
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(text.find("offset 12, byte "), std::string::npos) << text;
  }
  // Checks that reading takes little memory in addition to `kept` bytes.
  void expect_little_memory(const std::string& bytes, Bytes kept = Bytes(0)) {
    put_bytes(path_, bytes);
    std::string text = "no complaint";
    const Bytes grown = memory_growth([&] {
      try {
        (void)read_trace(path_);
      } catch (const BadTrace& error) {
        text = error.what();
      }
    });
#if defined(__SANITIZE_ADDRESS__)
    const Bytes most = 192_MiB;  // it delays the reuse of freed memory
#else
    const Bytes most = 64_MiB;
#endif
    EXPECT_LE(grown.count(), (most + kept).count()) << text;
  }

  std::string path_;
};

// An op without operands: name 0, a kernel, flags, cost, workspace and record bytes.
Record op(std::uint64_t kernel, std::vector<std::uint64_t> results, std::uint64_t flags = 5) {
  return {.tag = kOpTag, .numbers = {0, kernel, flags, 1, 0, 0}, .results = std::move(results)};
}
const Record kName{.tag = kNameTag, .text = "a"};
Record event(Kind kind, std::vector<std::uint64_t> numbers = {}) {
  return {.tag = tag(kind), .numbers = std::move(numbers)};
}
Record kernel(std::vector<std::uint64_t> steps) {
  return {.tag = kKernelTag, .numbers = std::move(steps)};
}
constexpr std::uint64_t allocates(std::uint64_t bytes) { return bytes << 1; }
constexpr std::uint64_t frees(std::uint64_t number) { return number << 1 | 1; }

Record device(std::vector<std::uint64_t> numbers) {
  return {.tag = kDeviceTag, .numbers = std::move(numbers)};
}

TEST_F(UntrustedTrace, ADeviceMustBeFirst) {
  expect_refused({kName, device({64, 1, 0, 0, 0})}, "it is not the first record");
  expect_refused({event(Kind::kExternal, {8}), device({64, 1, 0, 0, 0})},
                 "it is not the first record");
  expect_refused({device({64, 1, 0, 0, 0}), device({64, 1, 0, 0, 0})},
                 "it is not the first record");
}

TEST_F(UntrustedTrace, ADeviceMustBePossible) {
  for (const std::uint64_t alignment : {0U, 3U, 1U << 22U}) {
    expect_refused({device({alignment, 1, 0, 0, 0})}, "not a power of two");
  }
  expect_refused({device({64, 0, 0, 0, 0})}, "an allocation has 0 bytes");
  expect_refused({device({64, std::uint64_t{1} << 48, 0, 0, 0})},
                 "a size of 281474976710656 bytes");
  expect_refused({device({64, 1, std::uint64_t{1} << 48, 0, 0})},
                 "a size of 281474976710656 bytes");
  expect_refused({device({64, 1, 0, std::uint64_t{1} << 48, 0})},
                 "a size of 281474976710656 bytes");
  expect_refused({device({64, 1, 0, 0, 4})}, "flags 4");
}

TEST_F(UntrustedTrace, AFailedOpMustReturnNothing) {
  expect_refused({kName, kernel({allocates(64)}), op(0, {0, 64}, 8), event(Kind::kDie, {0})},
                 "event 0 (op 0, a): it failed but returns a result");
}

TEST_F(UntrustedTrace, AKernelMustReturnItsAllocations) {
  expect_refused({kName, kernel({allocates(64), allocates(64)}), op(0, {0, 64})},
                 "its kernel keeps an allocation that it does not return");
  expect_refused({kName, kernel({allocates(64)}), op(0, {0, 64, 0, 64})},
                 "it returns allocation 0");
  expect_refused({kName, kernel({allocates(64), frees(0)}), op(0, {0, 64})},
                 "it returns allocation 0");
  expect_refused({kName, kernel({allocates(64), frees(0), frees(0)})}, "frees allocation 0");
  expect_refused({kName, kernel({frees((std::uint64_t{1} << 32) + 1)})}, "out of range");
}

// A name, a kernel with a result and a workspace, and an op that returns the result; then `more`.
std::vector<Record> then(std::vector<Record> more) {
  std::vector<Record> records{kName, kernel({allocates(64), allocates(80), frees(1)}),
                              op(0, {0, 64})};
  records.insert(records.end(), more.begin(), more.end());
  return records;
}
Record held(std::uint64_t bytes, std::uint64_t allocation) {
  return {.tag = kHoldTag, .numbers = {bytes, allocation}};
}

TEST_F(UntrustedTrace, AKernelMayKeepAllocations) {
  EXPECT_EQ(read(file_of(then({held(80, 1), event(Kind::kFree, {0})}))).events.size(), 3U);
  expect_refused({kName, held(80, 1)}, "no op right before it");
  expect_refused(then({event(Kind::kDie, {0}), held(80, 1)}), "no op right before it");
  expect_refused(then({held(64, 0)}), "does not hold allocation 0, or returns it");
  expect_refused(then({held(80, 2)}), "does not hold allocation 2");
  expect_refused(then({held(80, 1), held(80, 1)}), "does not hold allocation 1");
  expect_refused(then({held(79, 1)}), "a block of 79 bytes in an allocation of 80");
}

// A linear search for each allocation would take minutes.
TEST_F(UntrustedTrace, AKernelMayKeepManyAllocations) {
  constexpr std::uint64_t kMany = 200'000;
  std::vector<std::uint64_t> steps(kMany, allocates(64));
  std::vector<Record> records{kName};
  for (std::uint64_t i = 0; i < kMany; ++i) {
    steps.push_back(frees(i));
  }
  records.push_back(kernel(steps));
  records.push_back(op(0, {}));
  for (std::uint64_t i = 0; i < kMany; ++i) {
    records.push_back(held(64, i));
  }
  Options options;
  options.budget = 1_GiB;
  options.policy = "lru";
  const SimulationResult result = simulate(read(file_of(records)), {.engine = options});
  EXPECT_EQ(result.status, SimulationResult::Status::kOk);
  EXPECT_EQ(result.stats.peak_bytes, static_cast<std::int64_t>(kMany * 64));
}

TEST_F(UntrustedTrace, ABlockMustHaveBytes) {
  expect_refused({kName, kernel({allocates(0)})}, "kernel 0: an allocation has 0 bytes");
  expect_refused({event(Kind::kAllocate, {0})}, "event 0: an allocation has 0 bytes");
  expect_refused({event(Kind::kAllocate, {8}), event(Kind::kAdopt, {0, 0})},
                 "an allocation has 0 bytes");
  expect_refused({event(Kind::kAllocate, {8}), event(Kind::kAdopt, {0, 9})}, "it adopts 9 bytes");
}

TEST_F(UntrustedTrace, SumsMustNotOverflow) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  expect_refused({event(Kind::kExternal, {huge})}, "a size of 4611686018427387904 bytes");
  const std::uint64_t half = std::uint64_t{1} << 46;
  expect_refused(
      {event(Kind::kExternal, {half}), event(Kind::kExternal, {half}), event(Kind::kExternal, {1})},
      "alive at once");
  Record slow = op(0, {});
  slow.numbers[3] = std::uint64_t{1} << 53;
  expect_refused({kName, kernel({}), slow, op(0, {})}, "with all previous ops");
  std::vector<std::uint64_t> steps;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    steps.push_back(allocates(2 * half - 1));
    steps.push_back(frees(i));
  }
  expect_refused({kName, kernel(steps)}, "is not from 0 to 288230376151711744");
}

TEST_F(UntrustedTrace, OperandsMustBeLive) {
  const Record external = event(Kind::kExternal, {64});
  expect_refused({external, event(Kind::kUnpin, {0})}, "storage 0 is not pinned");
  expect_refused({external, event(Kind::kEscapeEnd, {0})}, "storage 0 has not escaped");
  expect_refused(
      {event(Kind::kAllocate, {64}), event(Kind::kAdopt, {0, 64}), event(Kind::kDisown, {0})},
      "storage 0 is disowned but was not made outside the scope");
  expect_refused({external, event(Kind::kDie, {0}), event(Kind::kDie, {0})}, "no longer exists");
  Record twice = op(0, {});
  twice.operands = {kOperandReads, kOperandReads | kOperandWritten};
  expect_refused({kName, kernel({}), external, twice}, "storage 0 is an operand twice");
  twice.operands = {kOperandOverwritten};
  expect_refused({kName, kernel({}), external, twice}, "overwritten, but also read or not written");
  twice.operands = {kOperandReads | kOperandWritten | kOperandOverwritten};
  expect_refused({kName, kernel({}), external, twice}, "overwritten, but also read or not written");
  twice.operands = {kOperandWritten};
  expect_refused({kName, kernel({}), external, twice}, "written in part but not read");
  expect_refused({kName, kernel({}), op(0, {}, std::uint64_t{1} << kOpBits)},
                 "it makes 1 copies, but its kernel has 0 allocations");
}

// Name 0; then the workspace, the number of operands and the operands of each part.
Record list_op(std::vector<std::uint64_t> parts, std::uint64_t count = 1) {
  Record record{.tag = kListOpTag, .numbers = {0, count}};
  record.numbers.insert(record.numbers.end(), parts.begin(), parts.end());
  return record;
}

TEST_F(UntrustedTrace, OperandsOfPartsMustBeLive) {
  const Record external = event(Kind::kExternal, {64});
  EXPECT_EQ(complaint(file_of({kName, external, list_op({0, 1, 1}), event(Kind::kPartsEnd)})),
            "no complaint");
  expect_refused({external, list_op({0, 1, 1})}, "event 1: unknown name 0");
  expect_refused({kName, list_op({0, 1, 1})}, "a storage that does not exist yet");
  expect_refused({kName, external, event(Kind::kDie, {0}), list_op({0, 1, 1})}, "no longer exists");
  expect_refused({kName, external, list_op({0, 2, 0, 1})},
                 "storage 0 is an operand of a part twice");
  expect_refused({kName, external, list_op({0, 0}), list_op({0, 0})}, "have ended");
  expect_refused({event(Kind::kPartsEnd)}, "without having begun");
  expect_refused({kName, external, list_op({0, 0}), event(Kind::kPartsEnd), event(Kind::kPartsEnd)},
                 "without having begun");
}

TEST_F(UntrustedTrace, PartsMustFitAMachine) {
  const Record external = event(Kind::kExternal, {64});
  const std::uint64_t half = std::uint64_t{1} << 46;
  EXPECT_EQ(complaint(file_of({kName, external, list_op({half, 1, 0})})), "no complaint");
  expect_refused({kName, external, list_op({half + 1, 1, 0})}, "a size of 70368744177665 bytes");
  expect_refused({kName, external, list_op({std::uint64_t{1} << 62, 0})}, "a size of");
  expect_refused({kName, external, list_op({}, 1000)}, "extends beyond its frame");
  expect_refused({kName, external, list_op({0, 1000})}, "extends beyond its frame");
  std::vector<std::uint64_t> many;
  for (int part = 0; part < 2; ++part) {
    many.insert(many.end(), {0, std::uint64_t{1} << 20});
    many.resize(many.size() + (std::size_t{1} << 20), 0);
  }
  expect_little_memory(file_of({kName, external, list_op(many, 2)}));
  expect_refused({kName, external, list_op(many, 2)}, "more than 2097152 parts and operands");
}

// Before each op on lists the engine visits all live values.
TEST_F(UntrustedTrace, RepeatedListOpsAreLimited) {
  std::vector<Record> records(20'000, event(Kind::kExternal, {64}));
  records.push_back(kName);
  for (int i = 0; i < 20'000; ++i) {
    records.push_back(list_op({}, 0));
    records.push_back(event(Kind::kPartsEnd));
  }
  expect_refused(records, "more than a trace of this length can have");
}

TEST_F(UntrustedTrace, NamesMustBeDistinctText) {
  expect_refused({kName, kName}, "name 1: 'a' occurs twice");
  expect_refused({{.tag = kNameTag, .text = "\xff"}}, "UTF-8");
  expect_refused({{.tag = kNameTag, .text = "a\xc3"}}, "from byte 1 on");
  expect_refused({{.tag = kNameTag, .text = std::string(5000, 'x')}}, "longer than 4096");
}

TEST_F(UntrustedTrace, NumbersHave64Bits) {
  std::string raw(1, static_cast<char>(tag(Kind::kExternal)));
  raw += std::string(9, '\xff') + '\x7f';
  EXPECT_NE(complaint(file_of_frames({frame_of(raw)})).find("more than 64 bits"),
            std::string::npos);
}

TEST_F(UntrustedTrace, ARunWithoutBytesIsSimulated) {
  for (const std::vector<Record>& records :
       {std::vector<Record>{}, {kName}, {event(Kind::kExternal, {0}), event(Kind::kDie, {0})}}) {
    const Trace trace = read(file_of(records));
    EXPECT_EQ(unbudgeted_peak(trace, {}).count(), 0);
  }
}

TEST_F(UntrustedTrace, TheSizeInAFrameHeaderIsChecked) {
  const std::string raw(1000, static_cast<char>(tag(Kind::kScopeExit)));
  std::string frame = frame_of(raw.substr(0, 100));
  frame[0] = static_cast<char>(101);  // claims one byte more than it has
  EXPECT_NE(complaint(file_of_frames({frame})).find("damaged"), std::string::npos);
  frame[0] = static_cast<char>(99);
  EXPECT_NE(complaint(file_of_frames({frame})).find("damaged"), std::string::npos);
  // The header claims 64 MiB, and the record a list of that length.
  std::string list;
  put_number(list, kKernelTag);
  put_number(list, 60 << 20);
  list += std::string(100, '\2');
  frame = frame_of(list);
  frame[2] = '\0';
  frame[3] = '\4';
  expect_little_memory(file_of_frames({frame}));
}

TEST_F(UntrustedTrace, EmptyRecordsTakeLittleMemory) {
  std::string exits(kMaxFrame, static_cast<char>(tag(Kind::kScopeExit)));
  const std::string frame = frame_of(exits);
  expect_little_memory(file_of_frames({frame, frame, frame, frame}));
  EXPECT_NE(complaint(file_of_frames({frame})).find("left more than 1000 times"),
            std::string::npos);
}

TEST_F(UntrustedTrace, OneLongRecordTakesLittleMemory) {
  std::string raw;
  put_number(raw, kKernelTag);
  const std::size_t steps = kMaxFrame - 16;
  put_number(raw, steps);
  raw += std::string(steps, '\2');  // one byte each
  expect_little_memory(file_of_frames({frame_of(raw)}));
}

// An event takes 16 bytes in memory; a vector that grows has up to three times that.
TEST_F(UntrustedTrace, MemoryIsProportionalToTheKeptEvents) {
  std::string raw;
  put_record(raw, kName);
  const std::size_t events = 2'000'000;
  for (std::size_t i = 0; i < events; ++i) {
    put_record(raw, event(Kind::kStep, {0}));
  }
  expect_little_memory(file_of_frames({frame_of(raw)}),
                       Bytes(static_cast<std::int64_t>(3 * sizeof(TraceEvent) * events)));
}

TEST_F(UntrustedTrace, TheWorkIsLimitedByTheFileSize) {
  std::vector<std::uint64_t> steps;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    steps.push_back(allocates(64));
    steps.push_back(frees(i));
  }
  std::vector<Record> records{kName, kernel(steps)};
  records.resize(records.size() + 100'000, op(0, {}));
  expect_refused(records, "more than a trace of this length can have");
}

// A chain that must be replayed again and again, at a cost of 0.
TEST_F(UntrustedTrace, ReplaysWithoutCostEnd) {
  std::vector<Record> records{kName, kernel({allocates(4096)}), event(Kind::kExternal, {64})};
  constexpr std::uint64_t kLength = 40;
  for (std::uint64_t i = 0; i < kLength; ++i) {
    Record made = op(0, {0, 4096});
    made.numbers[3] = 0;
    made.operands = {kOperandReads};
    records.push_back(made);
  }
  for (std::uint64_t round = 0; round < 2000; ++round) {
    Record reads = op(1, {});
    reads.numbers[3] = 0;
    reads.operands = {((round * 7) % kLength) << kOperandBits | kOperandReads};
    records.push_back(reads);
  }
  records.insert(records.begin() + 2, kernel({}));
  const Trace trace = read(file_of(records));
  for (const std::string_view policy : {"recoup", "dtr", "lru"}) {
    SimulationOptions options;
    options.engine.policy = policy;
    options.engine.budget = Bytes(3 * 4096 + 64);
    options.engine.small_result_bytes = Bytes(64);
    options.max_time_ratio = 0.01;  // one replay per op
    EXPECT_EQ(simulate(trace, options).status, SimulationResult::Status::kTooSlow) << policy;
    options.max_time_ratio = 10;
    EXPECT_NE(simulate(trace, options).status, SimulationResult::Status::kOutOfBudget) << policy;
  }
}

// The program replaced the memory of a storage after another value was computed from it.
TEST_F(UntrustedTrace, ADisownedSourceOfAnEvictedValueMustFit) {
  Record made = op(0, {0, 4096});
  made.operands = {kOperandReads};
  Record other = op(0, {0, 4096});
  const Trace trace = read(file_of({kName, kernel({allocates(4096)}), event(Kind::kExternal, {64}),
                                    made, other, event(Kind::kDisown, {2})}));
  SimulationOptions options;
  options.engine.budget = Bytes(4096 + 64);
  const SimulationResult result = simulate(trace, options);
  EXPECT_EQ(result.status, SimulationResult::Status::kOutOfBudget);
  EXPECT_NE(result.reason.find("recomputed from its old content"), std::string::npos)
      << result.reason;
  options.engine.budget = Bytes(2 * 4096 + 64);
  EXPECT_EQ(simulate(trace, options).status, SimulationResult::Status::kOk);
}

}  // namespace
}  // namespace recoup::detail
