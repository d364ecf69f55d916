// Kinetic order of candidates: after any changes between two plans, the victim is the one that a
// search through all candidates finds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "csrc/policy/tournament.h"
#include "tests/core/policy/policy_fake_view.h"

namespace recoup {
namespace {

using detail::Contender;
using detail::Tournament;

std::unique_ptr<EvictionPolicy> make(std::string_view name, bool kinetic, bool small_filter) {
  return find_policy(name).make(
      {.small_filter = small_filter, .sampling = false, .kinetic = kinetic});
}

// A view that changes over time: values are added, removed and used, and become more or less
// expensive.
class LivingView {
 public:
  LivingView(std::uint64_t seed, RowKind kind)
      : rng_(seed), kind_(kind), view_(random_view(rng_, 20, kind)) {
    for (std::size_t i = 0; i < view_.candidate_count(); ++i) {
      tidy(view_.change_secretly(i));
    }
  }

  [[nodiscard]] FakeView& view() { return view_; }

  void live() {
    for (std::int64_t i = draw(rng_, 0, 6); i > 0; --i) {
      if (view_.candidate_count() < 3 || draw(rng_, 0, 2) == 0) {
        add_one();
      } else {
        change_one(static_cast<std::size_t>(
            draw(rng_, 0, static_cast<std::int64_t>(view_.candidate_count()) - 1)));
      }
    }
    view_.advance(draw(rng_, 0, 1) == 0 ? draw(rng_, 0, 2)
                                        : draw(rng_, 0, std::int64_t{1} << draw(rng_, 1, 50)));
  }

 private:
  // Adds a value with a distinct id; some ids are reused.
  void add_one() {
    Row row = random_view(rng_, 1, kind_).rows().front();
    do {
      row.candidate.id = ValueId(static_cast<std::uint32_t>(draw(rng_, 0, 200)));
    } while (view_.contains(row.candidate.id));
    row.candidate.last_access = view_.now();
    tidy(row);
    view_.add(row);
  }
  void tidy(Row& row) {
    row.ancestors = row.exact;  // so that a bound of one is a bound of the other
    row.candidate.walked_at_least = Nanoseconds(draw(rng_, 0, row.exact.count()));
  }

  void change_one(std::size_t index) {
    const Nanoseconds more(draw(rng_, 0, 3) * draw(rng_, 0, 1000));
    switch (draw(rng_, 0, 4)) {
      case 0:
        view_.change(index).candidate.last_access = view_.now();
        break;
      case 1:  // neighbors were evicted
        view_.change_secretly(index).exact += more;
        view_.change_secretly(index).ancestors += more;
        view_.change_secretly(index).equivalence += more;
        break;
      case 2: {  // an evicted ancestor was restored
        Row& row = view_.change(index);
        row.exact = row.ancestors = row.candidate.walked_at_least =
            Nanoseconds(draw(rng_, 0, row.exact.count()));
        row.equivalence = row.candidate.equivalence_at_least =
            Nanoseconds(draw(rng_, 0, row.equivalence.count()));
        break;
      }
      default:
        view_.evict(view_.rows().at(index).candidate.id);
        break;
    }
  }

  Rng rng_;
  RowKind kind_;
  FakeView view_;
};

TEST(PolicyKinetic, ChoosesTheVictimOfAFullSearch) {
  constexpr std::uint64_t kLives = 400;
  constexpr int kPlans = 60;
  for (std::string_view name : {"recoup", "dtr", "dtr-eq", "dtr-local"}) {
    for (std::uint64_t seed = 0; seed < kLives; ++seed) {
      const bool filter = seed % 2 == 0;
      const auto order = make(name, true, filter);
      const auto all = make(name, false, filter);
      LivingView living(seed, row_kinds()[seed % 3]);
      for (int plan = 0; plan < kPlans; ++plan) {
        const std::vector<ValueId> want = all->plan(living.view(), kRequest).victims;
        ASSERT_EQ(order->plan(living.view(), kRequest).victims, want)
            << name << ", seed " << seed << ", plan " << plan;
        if (!want.empty() && plan % 3 != 0) {
          living.view().evict(want.front());
        }
        living.live();
      }
    }
  }
}

Row sized_row(std::uint32_t id, std::int64_t size, std::int64_t cost, Tick last_access) {
  return {.candidate = {.id = ValueId(id),
                        .size = Bytes(size),
                        .offset = Bytes(0),
                        .own_cost = Nanoseconds(cost),
                        .last_access = last_access}};
}

// Plans until no candidate is left, with `ticks` between two plans.
std::vector<std::uint32_t> drain(std::string_view name, FakeView view, Tick ticks, bool kinetic) {
  const auto policy = make(name, kinetic, false);
  std::vector<std::uint32_t> order;
  while (view.candidate_count() > 0) {
    const ValueId victim = policy->plan(view, kRequest).victims.at(0);
    order.push_back(victim.index());
    view.evict(victim);
    view.advance(ticks);
  }
  return order;
}

TEST(PolicyKinetic, TiesAreBrokenAsInASearch) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  std::vector<Row> rows;
  for (std::uint32_t id = 0; id < 40; ++id) {
    switch (id % 5) {
      case 0:  // all equal
        rows.push_back(sized_row(id, 64, 10, 100));
        break;
      case 1:  // cost 0, of three sizes
        rows.push_back(sized_row(id, 64 << (id % 3), 0, 100));
        break;
      case 2:  // equal scores of different sizes
        rows.push_back(sized_row(id, 64 << (id % 3), 10 << (id % 3), 100));
        break;
      case 3:  // used at this tick and the previous one: equal age now, but not later
        rows.push_back(sized_row(id, 64, 10, 1000 - id % 2));
        break;
      default:
        rows.push_back(sized_row(id, kHuge, kHuge, id % 2));
        break;
    }
  }
  for (const Tick ticks : {Tick{0}, Tick{1}, Tick{1000}, Tick{1} << 50}) {
    const FakeView view(rows, 1000);
    for (std::string_view name : {"recoup", "dtr-local"}) {
      EXPECT_EQ(drain(name, view, ticks, true), drain(name, view, ticks, false))
          << name << ", " << ticks;
    }
  }
}

TEST(PolicyKinetic, ScoresThatDifferInTheLastBitAreOrderedAsInASearch) {
  // Equal except for differences near the precision of a double.
  for (const Tick now : {Tick{1} << 30, Tick{1} << 53, Tick{1} << 61}) {
    std::vector<Row> rows;
    for (std::uint32_t id = 0; id < 60; ++id) {
      rows.push_back(sized_row(id, (std::int64_t{1} << 40) + id % 3,
                               (std::int64_t{1} << 55) + id % 4, id % 7));
    }
    for (const Tick ticks : {Tick{0}, Tick{1}, Tick{1} << 20}) {
      const FakeView view(rows, now);
      for (std::string_view name : {"recoup", "dtr-local"}) {
        EXPECT_EQ(drain(name, view, ticks, true), drain(name, view, ticks, false))
            << name << ", " << now << ", " << ticks;
      }
    }
  }
}

TEST(Tournament, WinnerHasTheLowestScoreAtEveryTick) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    Tournament tournament;
    std::vector<Contender> all;
    Tick now = 1;
    for (int round = 0; round < 100; ++round) {
      const auto id = static_cast<std::uint32_t>(draw(rng, 0, 30));
      std::erase_if(all, [id](const Contender& c) { return c.id == ValueId(id); });
      if (draw(rng, 0, 2) > 0) {
        const Bytes size(draw(rng, 1, std::int64_t{1} << draw(rng, 0, 62)));
        const std::uint64_t cost = rng() >> draw(rng, 0, 63);
        const double price = static_cast<double>(cost) / static_cast<double>(size.count());
        all.push_back({.id = ValueId(id),
                       .size = size,
                       .price = seed % 2 == 0 ? price : price * price,
                       .last_access = now - draw(rng, 0, now)});
        tournament.enter(all.back());
      } else {
        tournament.leave(ValueId(id));
      }
      tournament.play(now);
      double lowest = std::numeric_limits<double>::infinity();
      for (const Contender& contender : all) {
        lowest = std::min(lowest, contender.score(now));
      }
      const Contender* const winner = tournament.winner(Tournament::kRoot);
      ASSERT_EQ(winner == nullptr, all.empty());
      if (winner != nullptr) {
        ASSERT_LE(winner->score(now), lowest * (1 + Tournament::kError));
      }
      now += draw(rng, 0, std::int64_t{1} << draw(rng, 0, 50));
    }
  }
}

// Between two plans three values are used and time passes; no other value should be visited.
double visits_a_plan(std::string_view name, std::uint32_t count) {
  Rng rng(1);
  std::vector<Row> rows;
  for (std::uint32_t id = 0; id < count; ++id) {
    rows.push_back(sized_row(id, draw(rng, 1000, 9000), draw(rng, 1000, 9000), id));
  }
  FakeView view(rows, count);
  const auto policy = make(name, true, true);
  static_cast<void>(policy->plan(view, kRequest));
  const std::int64_t before = policy->work().visited;
  constexpr int kPlans = 300;
  for (int plan = 0; plan < kPlans; ++plan) {
    for (int used = 0; used < 3; ++used) {
      view.change(static_cast<std::size_t>(draw(rng, 0, count - 1))).candidate.last_access =
          view.now();
      view.advance(1);
    }
    static_cast<void>(policy->plan(view, kRequest));
  }
  return static_cast<double>(policy->work().visited - before) / kPlans;
}

TEST(PolicyKinetic, VisitsFewOfManyCandidates) {
  for (std::string_view name : {"recoup", "dtr"}) {
    const double few = visits_a_plan(name, 100);
    const double many = visits_a_plan(name, 10'000);
    EXPECT_LT(many, 10'000 / 20.0) << name;
    EXPECT_LT(many, 4 * few) << name << ": their roots grow tenfold";
  }
}

}  // namespace
}  // namespace recoup
