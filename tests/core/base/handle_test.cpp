#include "csrc/base/handle.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "csrc/base/at_end.h"

namespace recoup::detail {
namespace {

class Lender {
 public:
  void give_back(int id) { given_back.push_back(id); }
  std::vector<int> given_back;
};
using Lent = Handle<Lender, int, &Lender::give_back>;

TEST(Handle, GivesBackOnce) {
  Lender lender;
  {
    Lent first(lender, 1);
    Lent moved = std::move(first);
    EXPECT_FALSE(first);
    EXPECT_TRUE(moved);
    EXPECT_EQ(moved.id(), 1);
    EXPECT_TRUE(lender.given_back.empty());
  }
  EXPECT_EQ(lender.given_back, std::vector{1});
}

TEST(Handle, GivesBackWhatIsReplaced) {
  Lender lender;
  Lent one(lender, 1);
  one = Lent(lender, 2);
  EXPECT_EQ(lender.given_back, std::vector{1});
  one.reset();
  one.reset();
  EXPECT_EQ(lender.given_back, (std::vector{1, 2}));
}

TEST(Handle, HandsOver) {
  Lender lender;
  {
    Lent one(lender, 1);
    EXPECT_EQ(one.release(), 1);
  }
  EXPECT_TRUE(lender.given_back.empty());
}

// The order in which pins end is part of the engine's decisions.
TEST(Handle, AVectorGivesBackInItsOrder) {
  Lender lender;
  {
    std::vector<Lent> all;
    for (int id = 0; id < 5; ++id) {
      all.emplace_back(lender, id);
    }
  }
  EXPECT_EQ(lender.given_back, (std::vector{0, 1, 2, 3, 4}));
}

TEST(AtEnd, CallsUnlessCancelled) {
  int calls = 0;
  {
    const AtEnd at_end([&] { ++calls; });
  }
  EXPECT_EQ(calls, 1);
  {
    AtEnd at_end([&] { ++calls; });
    at_end.cancel();
  }
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(
      {
        const AtEnd at_end([&] { ++calls; });
        throw std::runtime_error("");
      },
      std::runtime_error);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace recoup::detail
