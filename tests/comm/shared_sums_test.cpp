#include "comm/shared_sums.h"

#include <barrier>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kBlocks = 5;

std::string written(const std::string& path, int64_t bytes, char byte) {
  std::ofstream(path, std::ios::binary) << std::string(static_cast<size_t>(bytes), byte);
  return path;
}

// Threads that act as ranks.
class Ranks {
 public:
  explicit Ranks(size_t count) : texts_(count), barrier_(static_cast<ptrdiff_t>(count)) {}

  // Calls work(sums, rank) on each.
  void run(const std::function<void(SharedSums& sums, size_t rank)>& work) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < texts_.size(); ++rank)
      threads.emplace_back([this, rank, &work] {
        SharedSums sums(rank, [this, rank](const std::string& text) {
          texts_[rank] = text;
          barrier_.arrive_and_wait();
          std::vector<std::string> all = texts_;
          barrier_.arrive_and_wait();
          return all;
        });
        work(sums, rank);
        barrier_.arrive_and_wait();
      });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

}  // namespace

TEST_CASE("ranks with the same version of a file divide its blocks; a copy is read by its own readers") {
  const int64_t bytes = (kBlocks - 1) * kSumBlockBytes + 10;
  const std::string file = written("shared_sums_file", bytes, 'a'),
                    copy = written("shared_sums_copy", bytes, 'b'),
                    small = written("shared_sums_small", 100, 'c');
  const FileSums of_file = sum_blocks(InputFile(file)), of_copy = sum_blocks(InputFile(copy));
  for (const size_t count : {1, 2, 3, 7}) {
    CAPTURE(count);
    std::vector<int64_t> read(count);
    std::vector<char> right(count), same(count);
    Ranks(count).run([&](SharedSums& sums, size_t rank) {
      const std::string& mine = rank == 2 ? copy : file;
      sums.sum({small, mine, "shared_sums_none", mine});
      read[rank] = sums.blocks_read();
      right[rank] = sums_of(InputFile(mine)) == (rank == 2 ? of_copy : of_file);
      same[rank] = sums.are_same({mine});
    });
    const int64_t versions = count > 2 ? 2 : 1;
    CHECK(std::accumulate(read.begin(), read.end(), int64_t{0}) == versions * kBlocks);
    if (count > 2) CHECK(read[2] == kBlocks);
    CHECK(read[0] <= (kBlocks + 1) / 2 + (count == 1 ? kBlocks : 0));
    CHECK(std::count(right.begin(), right.end(), 1) == std::ssize(right));
    CHECK(std::count(same.begin(), same.end(), versions == 1) == std::ssize(same));
  }
}

TEST_CASE("what a rank cannot read ends all ranks with its reason") {
  const std::string file = written("shared_sums_cut", 3 * kSumBlockBytes, 'a');
  const auto error_of = [&](size_t rank, const std::string& of_other) {
    int calls = 0;
    SharedSums sums(rank, [&](const std::string& text) -> std::vector<std::string> {
      const std::string& other = calls == 0 ? "" : of_other;
      if (calls++ == 0 && rank == 0) std::filesystem::resize_file(file, 100);
      return rank == 0 ? std::vector{text, other} : std::vector{other, text};
    });
    return test::error_of([&] { sums.sum({file}); });
  };
  CHECK(error_of(1, "!the disk is broken") == "the disk is broken");
  CHECK(error_of(0, "=").find("shared_sums_cut: ") != std::string::npos);
}
