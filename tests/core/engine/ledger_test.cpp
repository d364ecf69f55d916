// Attribution of memory and time to makers: sums are compared with a recount, spans with the
// charged bytes.
#include "csrc/engine/reports/ledger.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <optional>
#include <random>

#include "csrc/engine/base/observers.h"
#include "csrc/engine/reports/live_timeline.h"
#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

class LedgerTest : public testing::Test {
 protected:
  explicit LedgerTest(Bytes budget = 64_KiB) : p_(plain_options(budget)) {
    p_.engine().set_observer(&both_);
    p_.engine().set_makers(&makers_);
  }
  ~LedgerTest() override {
    ledger_.check();
    p_.check();
    p_.engine().set_observer(nullptr);
    p_.engine().set_makers(nullptr);
  }
  void as(std::uint32_t maker) { p_.engine().set_maker(MakerId(maker)); }
  Bytes held_by(std::uint32_t maker) const {
    Bytes sum{0};
    for (const Holding& holding : ledger_.peak()) {
      sum += holding.maker == MakerId(maker) ? holding.size : Bytes(0);
    }
    return sum;
  }

  Program p_;
  MakerTable makers_;
  Ledger ledger_{p_.engine(), makers_};
  LiveTimeline timeline_{p_.engine(), makers_, /*all=*/true};
  Observers both_{&ledger_, &timeline_};
};

TEST_F(LedgerTest, WorkBelongsToTheMakerOfTheOp) {
  as(0);
  const Tensor x = p_.source(1_KiB);
  as(2);
  const Tensor a = p_.op({x}, 1_KiB);
  as(1);
  p_.evict(a);
  p_.op({a}, 2_KiB);
  ASSERT_EQ(ledger_.work().size(), 3U);
  EXPECT_EQ(ledger_.work()[0].ops, 1);
  EXPECT_EQ(ledger_.work()[1].ops, 1);
  EXPECT_EQ(ledger_.work()[1].replays, 0);
  const MakerWork& work = ledger_.work()[2];
  EXPECT_EQ(work.ops, 1);
  EXPECT_EQ(work.op_ns, 100);
  EXPECT_EQ(work.evictions, 1);
  EXPECT_EQ(work.evicted_bytes, 1024);
  EXPECT_EQ(work.replays, 1);
  EXPECT_EQ(work.replay_ns, 100);
}

TEST_F(LedgerTest, AReplayedValueKeepsItsMaker) {
  as(0);
  const Tensor x = p_.source(1_KiB);
  as(1);
  const Tensor a = p_.op({x}, 4_KiB);
  p_.evict(a);
  as(2);
  p_.op({a}, 8_KiB);
  EXPECT_EQ(ledger_.peak_bytes(), 13_KiB);
  EXPECT_EQ(held_by(0), 1_KiB);
  EXPECT_EQ(held_by(1), 4_KiB);
  EXPECT_EQ(held_by(2), 8_KiB);
}

TEST_F(LedgerTest, AWriteChangesTheMaker) {
  as(0);
  const Tensor x = p_.source(1_KiB);
  as(1);
  p_.update(x);
  p_.source(2_KiB);
  EXPECT_EQ(held_by(0), 0_B);
  EXPECT_EQ(held_by(1), 3_KiB);
}

TEST_F(LedgerTest, WorkspaceBelongsToTheRunningOp) {
  as(3);
  p_.run({.arguments = {}, .fresh = {1_KiB}, .workspace = {4_KiB}});
  Bytes workspace{0};
  for (const Holding& holding : ledger_.peak()) {
    workspace += holding.kind == HoldingKind::kWorkspace ? holding.size : Bytes(0);
  }
  // results of an op count as its workspace until it ends
  EXPECT_EQ(workspace, ledger_.peak_bytes());
  EXPECT_EQ(held_by(3), 5_KiB);
}

TEST_F(LedgerTest, ANameMayBeSetLater) {
  as(0);
  const Tensor x = p_.source(1_KiB);
  p_.source(2_KiB);
  p_.external(1_KiB);
  p_.engine().set_name(p_.id(x), NameId(7));
  ledger_.name(p_.id(x), NameId(7));
  ledger_.name(p_.id(x), NameId(8));  // no effect: it has a name already
  std::map<std::uint32_t, Bytes> named;
  for (const Holding& holding : ledger_.peak()) {
    if (holding.name.valid()) {
      named[holding.name.index()] += holding.size;
    }
  }
  EXPECT_EQ(named, (std::map<std::uint32_t, Bytes>{{7, 1_KiB}}));
  EXPECT_EQ(ledger_.peak_bytes(), 4_KiB);
}

TEST_F(LedgerTest, AStorageDoesNotInheritAName) {
  as(0);
  const Tensor x = p_.source(1_KiB);
  p_.engine().set_name(p_.id(x), NameId(7));
  p_.drop(x);
  p_.source(2_KiB);
  for (const Holding& holding : ledger_.peak()) {
    EXPECT_FALSE(holding.name.valid());
  }
}

TEST_F(LedgerTest, SpansShowTheChargedBytesBetweenOps) {
  as(0);
  const Tensor x = p_.source(1_KiB);
  const Tensor a = p_.op({x}, 2_KiB);
  p_.evict(a);
  p_.source(4_KiB);
  p_.expect(a);
  p_.drop(x);
  timeline_.on_step("one");
  const LiveStep step = timeline_.step();
  EXPECT_EQ(step.name, "one");
  EXPECT_FALSE(step.cut);
  EXPECT_EQ(step.budget, 64_KiB);
  std::map<std::int64_t, int> spans;
  for (const recoup::Span& span : step.spans) {
    EXPECT_GE(span.begin, step.begin);
    EXPECT_LE(span.begin, span.end);
    EXPECT_LE(span.end, step.end);
    ++spans[span.size.count()];
  }
  // `a` was resident, evicted, and resident again at the end.
  EXPECT_EQ(spans, (std::map<std::int64_t, int>{{1024, 1}, {2048, 2}, {4096, 1}}));
  EXPECT_EQ(step.charged.back().bytes, p_.engine().charged());
}

TEST_F(LedgerTest, OnlyTheLastStepHasSpans) {
  as(0);
  p_.source(1_KiB);
  timeline_.on_step("one");
  p_.source(2_KiB);
  timeline_.on_step("two");
  p_.source(4_KiB);
  const LiveStep step = timeline_.step();
  EXPECT_EQ(step.name, "two");
  EXPECT_EQ(step.number, 1U);
  EXPECT_EQ(step.spans.size(), 2U);
  for (const recoup::Span& span : step.spans) {
    EXPECT_GE(span.begin, step.begin);
  }
  EXPECT_EQ(timeline_.moments().size(), 5U);  // three ops and two marks
  EXPECT_EQ(step.moments.size(), 2U);
}

// Checks at each instant of a step that spans <= charged bytes <= budget.
void expect_in_order(const LiveStep& step) {
  std::map<std::int64_t, std::int64_t> changes;  // of the sum of spans
  for (const recoup::Span& span : step.spans) {
    changes[span.begin.count()] += span.size.count();
    changes[span.end.count()] -= span.size.count();
  }
  std::map<std::int64_t, Bytes> charged;
  std::map<std::int64_t, Bytes> budgets;
  for (const BytesAt& each : step.charged) {
    charged[each.at.count()] = each.bytes;  // the last entry of an instant is valid
    changes[each.at.count()] += 0;
  }
  for (const BytesAt& each : step.budgets) {
    budgets[each.at.count()] = each.bytes;
    changes[each.at.count()] += 0;
  }
  const auto at = [](const std::map<std::int64_t, Bytes>& line, std::int64_t instant) {
    const auto after = line.upper_bound(instant);
    return after == line.begin() ? 0_B : std::prev(after)->second;
  };
  std::int64_t stack = 0;
  for (const auto& [instant, change] : changes) {
    stack += change;
    if (instant < step.end.count()) {
      ASSERT_LE(stack, at(charged, instant).count()) << "at " << instant;
      ASSERT_LE(at(charged, instant), at(budgets, instant)) << "at " << instant;
    }
  }
  EXPECT_EQ(stack, 0);
}

TEST_F(LedgerTest, ANewPeakStartsAtWhatIsCharged) {
  as(0);
  const Tensor x = p_.source(16_KiB);
  p_.drop(p_.source(24_KiB));
  ASSERT_GE(ledger_.peak_bytes(), 40_KiB);
  p_.engine().reset_peak();
  EXPECT_EQ(ledger_.peak_bytes(), 16_KiB);
  EXPECT_EQ(p_.stats().peak_bytes, Bytes(16_KiB).count());
  p_.op({x}, 4_KiB);
  EXPECT_EQ(ledger_.peak_bytes(), 20_KiB);
  EXPECT_EQ(p_.stats().peak_bytes, Bytes(20_KiB).count());
}

TEST_F(LedgerTest, ARefusalHasTheHoldingsAtThatTime) {
  as(0);
  const Tensor x = p_.source(16_KiB);
  as(1);
  p_.op({x}, 4_KiB);
  p_.drop(p_.source(24_KiB));  // makes the peak, which is over when memory is refused
  EXPECT_FALSE(ledger_.refusal());
  as(2);
  EXPECT_THROW(p_.op({x}, 60_KiB), OutOfBudget);
  p_.engine().set_name(p_.id(x), NameId(7));
  ledger_.name(p_.id(x), NameId(7));
  const std::optional<Refusal> refusal = ledger_.refusal();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->report.asked, 60_KiB);
  EXPECT_EQ(refusal->maker, MakerId(2));
  Bytes sum{0};
  Bytes named{0};
  for (const Holding& holding : refusal->holdings) {
    sum += holding.size;
    named += holding.name == NameId(7) ? holding.size : 0_B;
  }
  EXPECT_EQ(sum, refusal->charged);
  EXPECT_LT(refusal->charged, ledger_.peak_bytes());
  EXPECT_EQ(named, 16_KiB);
}

TEST_F(LedgerTest, ARefusedStepEndsAtTheRefusal) {
  as(0);
  const Tensor x = p_.source(16_KiB);
  timeline_.on_step("one");
  EXPECT_EQ(timeline_.step().name, "one");
  p_.source(8_KiB);
  EXPECT_THROW(p_.op({x}, 60_KiB), OutOfBudget);
  p_.source(2_KiB);
  EXPECT_EQ(timeline_.step().name, "one");
  ASSERT_TRUE(timeline_.refused_step());
  const LiveStep refused = *timeline_.refused_step();
  EXPECT_EQ(refused.name, "");
  EXPECT_EQ(refused.number, 1U);
  expect_in_order(refused);
  Bytes held{0};
  for (const recoup::Span& span : refused.spans) {
    held += span.end == refused.end ? span.size : 0_B;
  }
  EXPECT_EQ(held, 24_KiB);
  EXPECT_EQ(refused.charged.back().bytes, 24_KiB);
  timeline_.on_step("two");
  EXPECT_FALSE(timeline_.refused_step());
  EXPECT_EQ(timeline_.step().name, "two");
}

TEST_F(LedgerTest, AStepWithTooManyMomentsIsCut) {
  as(0);
  const Tensor x = p_.source(1_KiB);
  const ValueId value = p_.engine().current(p_.id(x));
  for (std::size_t i = 0; i < LiveTimeline::kMostMoments; ++i) {
    timeline_.on_move(value, Bytes(0));
  }
  const Tensor late = p_.source(2_KiB);
  const LiveStep cut = timeline_.step();
  EXPECT_TRUE(cut.cut);
  EXPECT_EQ(cut.moments.size(), LiveTimeline::kMostMoments);
  ASSERT_EQ(cut.spans.size(), 1U);
  EXPECT_EQ(cut.spans[0].end, cut.end);
  timeline_.on_step("one");
  EXPECT_TRUE(timeline_.step().cut);
  timeline_.on_step("two");
  const LiveStep next = timeline_.step();
  EXPECT_FALSE(next.cut);
  EXPECT_EQ(next.spans.size(), 2U);
  expect_in_order(next);
  p_.drop(late);
}

TEST_F(LedgerTest, BudgetChangesAreRecorded) {
  as(0);
  p_.source(16_KiB);
  p_.grow(128_KiB);
  p_.source(80_KiB);
  const LiveStep step = timeline_.step();
  ASSERT_EQ(step.budgets.size(), 2U);
  EXPECT_EQ(step.budgets[0].bytes, 64_KiB);
  EXPECT_EQ(step.budgets[1].bytes, 128_KiB);
  EXPECT_EQ(step.budget, 128_KiB);
  expect_in_order(step);
}

// Random programs that evict and replay all the time: the spans never exceed the charged bytes, and
// the holdings at the peak sum up to the peak.
TEST_F(LedgerTest, RandomPrograms) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Program p(plain_options(12_KiB));
    MakerTable makers;
    Ledger ledger(p.engine(), makers);
    LiveTimeline timeline(p.engine(), makers, /*all=*/false);
    Observers both{&ledger, &timeline};
    p.engine().set_observer(&both);
    p.engine().set_makers(&makers);
    std::mt19937 random(seed);
    std::int64_t ops = 0;
    for (int i = 0; i < 120; ++i) {
      p.engine().set_maker(MakerId(static_cast<std::uint32_t>(random() % 5)));
      try {
        if (p.live().size() < 2 || random() % 4 == 0) {
          p.source(Bytes(256 << (random() % 3)));
        } else {
          const Tensor one = p.live()[random() % p.live().size()];
          switch (random() % 4) {
            case 0:
              p.drop(one);
              continue;
            case 1:
              p.update(one);
              break;
            default:
              p.op({one}, Bytes(256 << (random() % 4)));
          }
        }
        ++ops;
      } catch (const OutOfBudget&) {
        p.drop(p.live()[random() % p.live().size()]);
      }
      ASSERT_NO_THROW(ledger.check()) << "seed " << seed;
      ASSERT_NO_THROW(timeline.check()) << "seed " << seed;
    }
    std::int64_t counted = 0;
    for (const MakerWork& work : ledger.work()) {
      counted += work.ops;
    }
    EXPECT_EQ(counted, ops);
    EXPECT_EQ(p.stats().op_count, ops);
    timeline.on_step("all");
    const LiveStep step = timeline.step();
    expect_in_order(step);
    Bytes at_end{0};
    for (const recoup::Span& span : step.spans) {
      at_end += span.end == step.end ? span.size : Bytes(0);
    }
    // a value that was freed at the very end still has a span
    EXPECT_GE(at_end, p.engine().charged());
    p.check();
    p.engine().set_observer(nullptr);
    p.engine().set_makers(nullptr);
  }
}

}  // namespace
}  // namespace recoup::detail
