// Recorder cases that random programs do not cover: concurrent threads, blocks that outlive their
// kernel, and names that a trace cannot hold.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "csrc/trace/recorder.h"

namespace recoup::detail {
namespace {

std::vector<std::string> kinds_of(const Trace& trace) {
  std::vector<std::string> kinds;
  for (const TraceEvent& event : trace.events) {
    switch (event.kind) {
      case TraceEvent::Kind::kAllocate:
        kinds.emplace_back("allocate");
        break;
      case TraceEvent::Kind::kAdopt:
        kinds.emplace_back("adopt");
        break;
      case TraceEvent::Kind::kFree:
        kinds.emplace_back("free");
        break;
      case TraceEvent::Kind::kDie:
        kinds.emplace_back("die");
        break;
      case TraceEvent::Kind::kParts:
        kinds.emplace_back("parts");
        break;
      case TraceEvent::Kind::kPartsEnd:
        kinds.emplace_back("end of parts");
        break;
      case TraceEvent::Kind::kOp:
        kinds.push_back(trace.names[trace.ops[event.index].name]);
        break;
      default:
        kinds.emplace_back("other");
        break;
    }
  }
  return kinds;
}

class Recorded : public testing::Test {
 protected:
  void begin(std::string_view name, std::initializer_list<std::uint32_t> storages) {
    std::vector<Operand> operands;
    for (std::uint32_t storage : storages) {
      operands.push_back({.storage = StorageId(storage), .value = {}, .reads = true});
    }
    recorder_.on_op_begin(name, operands);
  }
  void end(std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> blocks_and_storages) {
    std::vector<FreshStorage> fresh;
    std::vector<StorageId> storages;
    for (const auto& [block, storage] : blocks_and_storages) {
      fresh.push_back({.block = BlockId(block), .nbytes = 64_B});
      storages.emplace_back(storage);
    }
    OpRecord record;
    record.fresh = fresh;
    recorder_.on_op_end(record, {}, storages);
  }
  void allocate(std::uint32_t block) { recorder_.on_allocate(BlockId(block), 64_B); }
  static void on_another_thread(const std::function<void()>& act) { std::thread(act).join(); }

  TraceBuilder builder_;
  TraceRecorder recorder_{builder_};
};

TEST_F(Recorded, ConcurrentOpsOfTwoThreads) {
  recorder_.on_external(StorageId(7), {.nbytes = 64_B});
  begin("first", {7});
  allocate(1);
  on_another_thread([this] {
    begin("second", {7});
    allocate(2);
    end({{2, 8}});
  });
  recorder_.on_death(StorageId(8));  // recorded after both: the first still runs
  recorder_.on_death(StorageId(7));
  end({{1, 9}});
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()),
            (std::vector<std::string>{"other", "second", "first", "die", "die"}));
}

TEST_F(Recorded, PartsDuringAnOpOfAnotherThread) {
  recorder_.on_parts_end();  // of parts that began before the recorder was attached
  recorder_.on_external(StorageId(7), {.nbytes = 64_B});
  begin("first", {7});
  on_another_thread([this] {
    const Part parts[] = {{.operands = {{.storage = StorageId(7), .written = true}}}};
    recorder_.on_parts_begin("list", parts);
    begin("part", {7});
    end({});
    recorder_.on_parts_end();
  });
  recorder_.on_death(StorageId(7));
  end({});
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()),
            (std::vector<std::string>{"other", "part", "first", "parts", "end of parts", "die"}));
}

TEST_F(Recorded, ABlockThatOutlivesItsKernel) {
  begin("keeps", {});
  allocate(1);
  allocate(2);
  end({{2, 5}});
  recorder_.on_free(BlockId(1));
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()), (std::vector<std::string>{"keeps", "allocate", "free"}));
}

TEST_F(Recorded, AResultThatExistedBefore) {
  allocate(3);
  begin("hands out", {});
  allocate(4);
  end({{3, 1}, {4, 2}});
  begin("reads both", {1, 2});
  end({});
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()),
            (std::vector<std::string>{"allocate", "hands out", "adopt", "reads both"}));
  EXPECT_EQ(builder_.trace().operands.front().storage, 1U);  // adopted after the fresh one
}

// A thread without an op allocates; its block is attributed to the running op.
TEST_F(Recorded, ABlockThatAnotherThreadAdopts) {
  begin("runs", {});
  allocate(1);
  on_another_thread([this] {
    allocate(2);
    recorder_.on_adopt({.block = BlockId(2), .nbytes = 64_B}, StorageId(4));
  });
  end({{1, 5}});
  begin("reads both", {4, 5});
  end({});
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()),
            (std::vector<std::string>{"allocate", "adopt", "runs", "reads both"}));
}

// Paged memory is recorded like blocks of the pool.
TEST_F(Recorded, PagedMemory) {
  recorder_.on_external(StorageId(9), {.nbytes = 64_B, .window = true});
  recorder_.on_pin(StorageId(9));
  begin("pages", {});
  recorder_.on_overflow(OverflowKey(1000), 32_B);
  recorder_.on_op_retry();
  recorder_.on_overflow(OverflowKey(1000), 64_B);
  allocate(1);
  recorder_.on_overflow(OverflowKey(2000), 128_B);
  recorder_.on_overflow(OverflowKey(3000), 192_B);
  recorder_.on_overflow_free(OverflowKey(1000));
  recorder_.on_free(BlockId(1));
  const FreshStorage fresh[] = {
      {.block = {}, .nbytes = 100_B, .overflow = OverflowKey(2000)},
      {.block = {}, .nbytes = 50_B, .overflow = OverflowKey(7)}};  // older than the op
  const StorageId storages[] = {StorageId(1), StorageId(2)};
  OpRecord record;
  record.fresh = fresh;
  record.limits = {.may_overflow = true, .once = true};
  recorder_.on_op_end(record, {}, storages);
  recorder_.on_death(StorageId(9));
  recorder_.on_disown(StorageId(1));
  const Trace& trace = builder_.trace();
  ASSERT_NO_THROW(validate(trace));
  EXPECT_EQ(kinds_of(trace), (std::vector<std::string>{"pages", "other", "other"}));
  EXPECT_TRUE(trace.ops.front().may_overflow && trace.ops.front().once);
  EXPECT_EQ(trace.fresh, (std::vector<TraceFresh>{{.allocation = 2, .nbytes = 100_B}}));
  using Does = KernelStep::Kind;
  EXPECT_EQ(trace.kernels.front(),
            (std::vector<KernelStep>{{.kind = Does::kAllocate, .index = 0, .size = 64_B},
                                     {.kind = Does::kAllocate, .index = 0, .size = 64_B},
                                     {.kind = Does::kAllocate, .index = 0, .size = 128_B},
                                     {.kind = Does::kAllocate, .index = 0, .size = 192_B},
                                     {.kind = Does::kFree, .index = 0, .size = Bytes(0)},
                                     {.kind = Does::kFree, .index = 1, .size = Bytes(0)},
                                     {.kind = Does::kFree, .index = 3, .size = Bytes(0)}}));
}

TEST_F(Recorded, LongAndInvalidNamesAreCut) {
  recorder_.on_step(std::string(5000, 'x'));
  recorder_.on_step("a\xff");
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(builder_.trace().names, (std::vector<std::string>{std::string(4096, 'x'), "a"}));
}

}  // namespace
}  // namespace recoup::detail
