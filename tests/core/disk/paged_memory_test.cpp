#include "csrc/paging/paged_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace recoup::detail {
namespace {

constexpr std::int64_t kBlock = 4096;  // bytes, in the least window
constexpr std::int64_t kWindow = PagedMemory::kLeastWindow.count() / kBlock;  // blocks
constexpr std::int64_t kWords = kBlock / 8;                                   // of a block

class Paged : public testing::Test {
 protected:
  void SetUp() override {
    // A forked child, not a new process: the child of a death test must have the parent's memory.
    GTEST_FLAG_SET(death_test_style, "fast");
    memory().set_window(PagedMemory::kLeastWindow);
  }
  void TearDown() override {
    memory().check();
    EXPECT_EQ(memory().counters().allocated_bytes, 0);
  }
  static PagedMemory& memory() { return PagedMemory::in(""); }
};

struct Array {
  explicit Array(std::int64_t blocks)
      : words(static_cast<std::uint64_t*>(PagedMemory::in("").allocate(Bytes(blocks * kBlock)))),
        size(blocks * kWords) {}
  ~Array() { PagedMemory::in("").release(words); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  std::uint64_t* words;
  std::int64_t size;
};

TEST_F(Paged, MemoryOfManyWindowsKeepsItsContent) {
  const Array array(6 * kWindow);
  const auto before = memory().counters();
  EXPECT_TRUE(
      std::all_of(array.words, array.words + array.size, [](auto word) { return word == 0; }));
  std::iota(array.words, array.words + array.size, std::uint64_t{7});
  for (int pass = 0; pass < 2; ++pass) {
    std::int64_t wrong = 0;
    for (std::int64_t i = array.size - 1; i >= 0; --i) {
      wrong += array.words[i] == static_cast<std::uint64_t>(i) + 7 ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_LE(memory().counters().resident_bytes, PagedMemory::kLeastWindow.count());
  }
  const auto after = memory().counters();
  EXPECT_GE(after.written_bytes - before.written_bytes, 5 * kWindow * kBlock);
  EXPECT_GE(after.read_bytes - before.read_bytes, 10 * kWindow * kBlock);
}

TEST_F(Paged, BlocksThatAreOnlyReadAreWrittenOnce) {
  const Array array(2 * kWindow);
  std::iota(array.words, array.words + array.size, std::uint64_t{0});
  const auto sum = [&] {
    return std::accumulate(array.words, array.words + array.size, std::uint64_t{0});
  };
  const std::uint64_t first = sum();
  const std::int64_t writes = memory().counters().written_bytes;
  EXPECT_EQ(sum(), first);
  EXPECT_EQ(memory().counters().written_bytes, writes);
}

TEST_F(Paged, APassOverATensorMissesFewTimes) {
  const Array array(3 * kWindow);
  const auto misses = [&array](std::uint64_t add) {
    const std::int64_t before = memory().counters().misses;
    for (std::int64_t i = 0; i < array.size; ++i) {
      array.words[i] += add;
    }
    return memory().counters().misses - before;
  };
  EXPECT_LE(misses(1), 3 * kWindow / 100);
  // Reads come before the writes, until the blocks are expected to be written.
  EXPECT_LE(misses(1), 3 * kWindow / 40);
  EXPECT_TRUE(
      std::all_of(array.words, array.words + array.size, [](auto word) { return word == 2; }));
}

TEST_F(Paged, ColumnsOfAMatrixAreReadOnce) {
  // A block of each row fits in the window.
  constexpr std::int64_t kRows = 2500;
  constexpr std::int64_t kColumns = 16 * kWords + 64;
  const Array matrix(kRows * kColumns / kWords + 1);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    matrix.words[i] = static_cast<std::uint64_t>(i);
  }
  const auto before = memory().counters();
  std::int64_t wrong = 0;
  for (std::int64_t column = 0; column < kColumns; column += 32) {
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t i = row * kColumns + column; i < row * kColumns + column + 32; ++i) {
        wrong += matrix.words[i] == static_cast<std::uint64_t>(i) ? 0 : 1;
      }
    }
  }
  const auto after = memory().counters();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(after.read_bytes - before.read_bytes, matrix.size * 8 * 3 / 2);
  EXPECT_LE(after.misses - before.misses, matrix.size / kWords / 3);
}

// Compares with ordinary memory, in windows with blocks of several sizes.
TEST_F(Paged, RandomProgramsOfPassesKeepTheContent) {
  for (const std::int64_t mib : {16, 21, 96, 200}) {
    memory().set_window(Bytes(mib << 20));
    const std::int64_t size = (mib + mib / 3) << 17;  // words
    const Array array(size / kWords);
    std::vector<std::uint64_t> plain(static_cast<std::size_t>(size));
    std::mt19937_64 random(static_cast<std::uint64_t>(mib));
    const auto below = [&random](std::int64_t end) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
    };
    for (int pass = 0; pass < 25; ++pass) {
      const std::int64_t step = pass % 3 == 0 ? 1 : below(20'000) + 1;
      const std::int64_t count = std::min(below(2'000'000), size / step);
      const std::int64_t first = below(size - (count - 1) * step);
      const bool backward = random() % 2 == 0;
      const bool anywhere = random() % 4 == 0;
      std::int64_t wrong = 0;
      for (std::int64_t k = 0; k < (anywhere ? count / 100 : count); ++k) {
        const std::int64_t i =
            anywhere ? below(size) : first + (backward ? count - 1 - k : k) * step;
        std::uint64_t& word = plain[static_cast<std::size_t>(i)];
        wrong += array.words[i] == word ? 0 : 1;
        if (pass % 2 == 0) {
          array.words[i] = word = static_cast<std::uint64_t>(k + pass);
        }
      }
      EXPECT_EQ(wrong, 0) << mib << " " << pass;
    }
    memory().check();
    EXPECT_LE(memory().counters().resident_bytes, mib << 20);
    EXPECT_TRUE(std::equal(plain.begin(), plain.end(), array.words));
  }
}

TEST_F(Paged, BlocksKeepTheirSizeWhileMemoryIsAllocated) {
  EXPECT_EQ(PagedMemory::block_for(PagedMemory::kLeastWindow), kBlock);
  EXPECT_EQ(PagedMemory::block_for(Bytes(200 << 20)), 16 << 10);
  EXPECT_EQ(PagedMemory::block_for(PagedMemory::kMostWindow), PagedMemory::kLargestBlock);
  {
    const Array array(1);
    memory().set_window(PagedMemory::kMostWindow);
    EXPECT_EQ(memory().window(), PagedMemory::kMostWindow);
    EXPECT_EQ(memory().counters().allocated_bytes, kBlock);
  }
  memory().set_window(PagedMemory::kMostWindow);
  const Array array(1);
  EXPECT_EQ(memory().counters().allocated_bytes, PagedMemory::kLargestBlock);
}

TEST_F(Paged, ReleasedMemoryIsZeroWhenItIsUsedAgain) {
  {
    const Array array(30);
    std::fill(array.words, array.words + array.size, ~std::uint64_t{0});
  }
  const Array array(30);
  EXPECT_TRUE(
      std::all_of(array.words, array.words + array.size, [](auto word) { return word == 0; }));
}

TEST_F(Paged, ThreadsThatAccessTheSameBlocks) {
  const Array array(4 * kWindow);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&array, thread] {
      std::mt19937_64 random(static_cast<std::uint64_t>(thread));
      for (int i = 0; i < 300; ++i) {
        // Each thread has words of its own in every block.
        const auto block = static_cast<std::int64_t>(random() % (4 * kWindow));
        ++array.words[block * kWords + static_cast<std::int64_t>(random() % 100) * 4 + thread];
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  memory().check();
  EXPECT_EQ(std::accumulate(array.words, array.words + array.size, std::uint64_t{0}), 4 * 300);
}

TEST_F(Paged, RandomAllocationsOverlapNowhere) {
  std::mt19937_64 random(5);
  std::vector<std::unique_ptr<Array>> arrays;
  for (std::uint64_t step = 0; step < 150; ++step) {
    if (arrays.size() > 6 || (!arrays.empty() && random() % 3 == 0)) {
      std::swap(arrays[random() % arrays.size()], arrays.back());
      const Array& last = *arrays.back();
      EXPECT_EQ(last.words[0], last.words[last.size - 1]);
      arrays.pop_back();
    } else {
      arrays.push_back(std::make_unique<Array>(static_cast<std::int64_t>(1 + random() % 2000)));
      arrays.back()->words[0] = arrays.back()->words[arrays.back()->size - 1] = step + 1;
    }
    memory().set_window(Bytes(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(kWindow) + random() % 900) * kBlock));
    memory().check();
  }
}

TEST_F(Paged, SystemCallsFailInsteadOfReadingOtherBytes) {
  const Array array(2 * kWindow);
  std::fill(array.words, array.words + array.size, std::uint64_t{1});
  const int null = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(read(null, array.words, 4096), -1);  // the first block is not resident any more
  EXPECT_EQ(errno, EFAULT);
  close(null);
  EXPECT_EQ(array.words[0], 1);
}

TEST_F(Paged, AChildHasNoAccess) {
  const Array array(2);
  array.words[0] = 3;
  EXPECT_DEATH(array.words[0] = 4, "a forked child has no access to it");
  EXPECT_EQ(array.words[0], 3);
}

TEST_F(Paged, AChildPagesInFilesOfItsOwn) {
  memory().set_window(Bytes(64 << 20));
  const Array array(6 * kWindow);
  std::fill(array.words, array.words + array.size, std::uint64_t{7});
  const pid_t child = fork();
  if (child == 0) {
    memory().set_window(PagedMemory::kLeastWindow);
    std::uint64_t wrong = 0;
    {
      const Array own(2 * kWindow);
      std::iota(own.words, own.words + own.size, std::uint64_t{0});
      for (std::int64_t i = 0; i < own.size; ++i) {
        wrong += own.words[i] == static_cast<std::uint64_t>(i) ? 0 : 1;
      }
    }
    memory().release(array.words);  // as at the end of the child
    // A grandchild.
    const pid_t next = fork();
    if (next == 0) {
      const Array own(2);
      own.words[0] = 1;
      memory().release(array.words);  // of its parent's parent
      _exit(wrong == 0 ? 3 : 4);
    }
    int status = 0;
    waitpid(next, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_TRUE(
      std::all_of(array.words, array.words + array.size, [](auto word) { return word == 7; }));
}

char* barrier = nullptr;

// Another library's handler repairs the same access again and again.
TEST_F(Paged, AWriteBarrierOfAnotherLibraryGoesOn) {
  EXPECT_EXIT(
      {
        barrier =
            static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        std::signal(SIGSEGV, [](int) { mprotect(barrier, 4096, PROT_READ | PROT_WRITE); });
        const Array array(2);
        for (int i = 0; i < 50; ++i) {
          *const_cast<volatile char*>(barrier) = 1;
          mprotect(barrier, 4096, PROT_NONE);
        }
        array.words[0] = 1;
        _exit(6);
      },
      testing::ExitedWithCode(6), "");
}

TEST_F(Paged, OtherFaultsEndTheProcessAsBefore) {
  EXPECT_DEATH(*reinterpret_cast<volatile int*>(16) = 1, "");
}

volatile std::sig_atomic_t others = 0;

TEST_F(Paged, TheSignalIsTakenBackFromAnotherLibrary) {
  const Array array(2);
  std::signal(SIGSEGV, [](int) {
    others = 1;
    _exit(7);
  });
  const Array more(2);  // an allocation looks at the handler
  array.words[0] = 1;
  EXPECT_EQ(others, 0);
  EXPECT_EXIT(*reinterpret_cast<volatile int*>(16) = 1, testing::ExitedWithCode(7), "");
}

// Python's faulthandler and other runtimes give signals a small stack.
TEST_F(Paged, TheHandlerNeedsLittleOfTheStack) {
  constexpr char kUnused = 0x5a;
  std::vector<char> bytes(std::size_t{1} << 17, kUnused);
  std::thread([&bytes] {
    stack_t stack{};
    stack.ss_sp = bytes.data();
    stack.ss_size = bytes.size();
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
    const Array array(2 * kWindow);
    std::mt19937_64 random(5);
    for (std::int64_t i = 0; i < array.size; i += kWords) {
      array.words[i] = 1;
    }
    for (int i = 0; i < 2000; ++i) {
      ++array.words[random() % static_cast<std::uint64_t>(array.size)];
    }
    stack.ss_flags = SS_DISABLE;
    ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
  }).join();
  const auto used = std::count_if(
      std::find_if(bytes.begin(), bytes.end(), [](char byte) { return byte != kUnused; }),
      bytes.end(), [](char) { return true; });
  EXPECT_GT(used, 0);
#ifdef __SANITIZE_ADDRESS__
  constexpr std::int64_t kCalls = 16 << 10;
#else
  constexpr std::int64_t kCalls = 8 << 10;
#endif
  // The frame of the signal, and those of the calls.
  EXPECT_LE(used, sysconf(_SC_MINSIGSTKSZ) + kCalls);
}

TEST_F(Paged, ADirectoryInMemoryIsRefused) {
  struct statfs found{};
  if (statfs("/dev/shm", &found) != 0 || found.f_type != TMPFS_MAGIC) {
    GTEST_SKIP() << "/dev/shm is not in memory";
  }
  EXPECT_EXIT(
      {
        try {
          PagedMemory::in("/dev/shm");
        } catch (const std::invalid_argument&) {
          _exit(3);
        }
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace recoup::detail
