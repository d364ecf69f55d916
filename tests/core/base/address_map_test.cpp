#include "csrc/base/address_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {
namespace {

AddressRange range(std::uintptr_t from, std::size_t size) {
  return {reinterpret_cast<const void*>(from), size};
}

bool overlap(AddressRange a, AddressRange b) {
  return std::max(a.from, b.from) < std::min(a.to, b.to);
}

struct Owned {
  AddressRange range;
  StorageId owner;
};

// Adds and removes random owners and views, and compares every answer with a scan of plain lists.
void compare_with_lists(std::mt19937_64& random) {
  const std::uint64_t space = 4 + random() % 60;
  const auto draw = [&] { return range(random() % space, random() % 9); };
  AddressMap<StorageId> map;
  std::vector<Owned> owners;
  std::vector<AddressRange> views;
  for (std::uint32_t step = 0; step < 120; ++step) {
    const AddressRange one = draw();
    switch (random() % 4) {
      case 0:
        std::erase_if(owners, [&](const Owned& each) { return overlap(each.range, one); });
        owners.push_back({one, StorageId(step)});
        map.add_owner(one, StorageId(step));
        break;
      case 1:
        views.push_back(one);
        map.add_view(one);
        break;
      case 2:
        if (!owners.empty()) {
          const auto gone = owners.begin() + static_cast<std::ptrdiff_t>(random() % owners.size());
          map.remove_owner(gone->range, StorageId(step + 1000));  // another owner: no effect
          map.remove_owner(gone->range, gone->owner);
          owners.erase(gone);
        }
        break;
      default:
        if (!views.empty()) {
          const auto gone = views.begin() + static_cast<std::ptrdiff_t>(random() % views.size());
          map.remove_view(*gone);
          views.erase(gone);
        }
    }
    const AddressRange asked = draw();
    const StorageId found = map.owner_in(asked);
    bool owned = false;
    bool right = !found.valid();
    for (const Owned& each : owners) {
      owned |= overlap(each.range, asked);
      right |= each.owner == found && overlap(each.range, asked);
    }
    ASSERT_EQ(found.valid(), owned);
    ASSERT_TRUE(right);
    bool viewed = false;
    for (const AddressRange& each : views) {
      viewed |= overlap(each, asked);
    }
    ASSERT_TRUE(map.has_view_in(asked) || !viewed);
    ASSERT_FALSE(map.has_view_in(asked) && views.empty());
  }
}

TEST(AddressMap, AgreesWithAFullScan) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    compare_with_lists(random);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed;
  }
}

TEST(AddressMap, AdjacentRangesDoNotOverlap) {
  AddressMap<StorageId> map;
  map.add_owner(range(100, 50), StorageId(1));
  map.add_view(range(200, 50));
  EXPECT_FALSE(map.owner_in(range(150, 10)).valid());
  EXPECT_FALSE(map.owner_in(range(90, 10)).valid());
  EXPECT_FALSE(map.has_view_in(range(250, 10)));
  EXPECT_FALSE(map.has_view_in(range(190, 10)));
  EXPECT_EQ(map.owner_in(range(149, 1)), StorageId(1));
  EXPECT_TRUE(map.has_view_in(range(249, 1)));
}

TEST(AddressMap, AnEmptyRangeOverlapsNothing) {
  AddressMap<StorageId> map;
  map.add_owner(range(100, 0), StorageId(1));
  map.add_view(range(100, 0));
  EXPECT_FALSE(map.owner_in(range(90, 50)).valid());
  EXPECT_FALSE(map.has_view_in(range(90, 50)));
  map.add_owner(range(90, 50), StorageId(2));
  EXPECT_FALSE(map.owner_in(range(100, 0)).valid());
  map.remove_view(range(100, 0));
  map.remove_owner(range(100, 0), StorageId(1));
  EXPECT_EQ(map.owner_in(range(91, 1)), StorageId(2));
}

TEST(AddressMap, ViewsAreRemovedOneByOne) {
  AddressMap<StorageId> map;
  map.add_view(range(0, 10));
  map.add_view(range(5, 10));
  map.add_view(range(5, 10));
  map.remove_view(range(0, 10));
  map.remove_view(range(5, 10));
  EXPECT_TRUE(map.has_view_in(range(12, 1)));
  map.remove_view(range(5, 10));
  EXPECT_FALSE(map.has_view_in(range(0, 15)));
}

}  // namespace
}  // namespace recoup::detail
