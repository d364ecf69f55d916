// Which budget serves a request, and which owns an address.
#include "csrc/cuda/scopes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/core/cuda/fake_scope.h"

namespace recoup::detail::cuda {
namespace {

TEST(CudaScopes, WithoutAScopeNothingIsWantedOrOwned) {
  Scopes scopes;
  char memory = 0;
  EXPECT_TRUE(scopes.empty());
  EXPECT_EQ(scopes.wanting(0, 1_B), nullptr);
  EXPECT_FALSE(scopes.owns(&memory) || scopes.owns(nullptr));
  EXPECT_FALSE(scopes.free(&memory));
  EXPECT_FALSE(scopes.record_stream(&memory, nullptr));
  EXPECT_EQ(scopes.usage(0).reserved, 0_B);
  scopes.check();
}

TEST(CudaScopes, AScopeServesItsDeviceOnly) {
  Scopes scopes;
  const auto scope = std::make_shared<FakeScope>(100_B);
  scopes.enter(1, scope);
  EXPECT_THROW(scopes.enter(1, std::make_shared<FakeScope>(1_B)), std::logic_error);
  EXPECT_EQ(scopes.wanting(1, 100_B), scope);
  EXPECT_EQ(scopes.wanting(1, 101_B), nullptr);
  EXPECT_EQ(scopes.wanting(0, 1_B), nullptr);
  scopes.leave(1);
  EXPECT_EQ(scopes.wanting(1, 1_B), nullptr);
  EXPECT_TRUE(scopes.empty());
}

// Memory that PyTorch frees or records after a scope ended is still routed to its owner.
TEST(CudaScopes, AnAddressHasItsOwnerAfterTheScopeToo) {
  Scopes scopes;
  auto first = std::make_shared<FakeScope>(100_B);
  const std::weak_ptr<FakeScope> watched = first;
  scopes.enter(0, std::move(first));
  void* const memory = scopes.wanting(0, 1_B)->allocate(1_B, {});
  EXPECT_TRUE(scopes.owns(memory) && !scopes.owns_left(memory));
  scopes.leave(0);
  EXPECT_FALSE(scopes.empty());
  EXPECT_TRUE(scopes.owns(memory) && scopes.owns_left(memory));
  EXPECT_GT(scopes.usage(0).left, 0_B);
  ASSERT_EQ(scopes.left_segments(0).size(), 1U);
  EXPECT_EQ(scopes.left_segments(0).front().base, memory);
  EXPECT_TRUE(scopes.left_segments(1).empty());
  int stream = 0;
  EXPECT_TRUE(scopes.record_stream(memory, &stream));
  EXPECT_TRUE(watched.lock()->streams().contains({.handle = &stream, .device = 0}));
  const auto second = std::make_shared<FakeScope>(100_B);
  scopes.enter(0, second);
  EXPECT_TRUE(scopes.free(memory));
  EXPECT_TRUE(watched.expired());
  EXPECT_FALSE(scopes.free(memory));
  EXPECT_FALSE(scopes.empty());
  EXPECT_TRUE(scopes.left_segments(0).empty()) << "the second scope is in force";
  scopes.leave(0);
  EXPECT_TRUE(scopes.empty());
  scopes.check();
}

// A scope is left and entered again while memory of it is in use.
TEST(CudaScopes, AScopeThatIsEnteredAgainCountsOnce) {
  Scopes scopes;
  const auto scope = std::make_shared<FakeScope>(100_B);
  scopes.enter(0, scope);
  void* const memory = scope->allocate(100_B, {});
  const Bytes reserved = scopes.usage(0).reserved;
  scopes.leave(0);
  const Bytes left = scopes.usage(0).left;
  scopes.enter(0, scope);
  EXPECT_EQ(scopes.usage(0).reserved, reserved);
  EXPECT_EQ(scopes.usage(0).left, 0_B);
  scopes.check();
  scopes.leave(0);
  scopes.check();
  EXPECT_EQ(scopes.usage(0).left, left);
  EXPECT_TRUE(scopes.free(memory));
  EXPECT_TRUE(scopes.empty());
  scopes.check();
}

TEST(CudaScopes, NoMemoryIsUnmappedWhileAGraphIsCaptured) {
  Scopes scopes;
  auto left = std::make_shared<FakeScope>(100_B);
  auto current = std::make_shared<FakeScope>(100_B);
  const std::weak_ptr<FakeScope> of_left = left;
  const std::weak_ptr<FakeScope> of_current = current;
  scopes.enter(0, std::move(left));
  void* const memory = scopes.wanting(0, 1_B)->allocate(1_B, {});
  scopes.leave(0);
  scopes.enter(1, std::move(current));
  scopes.begin_capture();
  scopes.begin_capture();
  EXPECT_TRUE(scopes.free(memory));
  scopes.leave(1);
  scopes.end_capture();
  EXPECT_FALSE(of_left.expired() || of_current.expired());
  scopes.check();
  scopes.end_capture();
  EXPECT_TRUE(of_left.expired() && of_current.expired());
  EXPECT_TRUE(scopes.empty());
  scopes.end_capture();  // it began before the first scope
  scopes.enter(0, std::make_shared<FakeScope>(100_B));
  scopes.leave(0);
  EXPECT_TRUE(scopes.empty());
  scopes.check();
}

TEST(CudaScopes, AScopeEndsWithTheLastOfItsFreesAndItsLeave) {
  Scopes scopes;
  for (int i = 0; i < 1000; ++i) {
    const auto scope = std::make_shared<FakeScope>(100_B);
    scopes.enter(0, scope);
    void* const memory = scope->allocate(1_B, {});
    std::atomic<bool> begun{false};
    std::thread other([&] {
      begun = true;
      EXPECT_TRUE(scopes.free(memory));
    });
    while (!begun) {
    }
    scopes.leave(0);
    other.join();
    ASSERT_TRUE(scopes.empty());
    scopes.check();
  }
}

}  // namespace
}  // namespace recoup::detail::cuda
