#include "runtime/file_sums.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <mutex>
#include <sys/stat.h>

#include "runtime/check.h"
#include "runtime/crc64.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 18;  // bytes per read; they stay in the cache until summed

std::mutex known_lock;
std::vector<const KnownSums*> known;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

uint64_t sum_block(const InputFile& file, int64_t block, std::vector<std::byte>& piece) {
  const int64_t begin = block * kSumBlockBytes, bytes = std::min(kSumBlockBytes, file.size() - begin);
  piece.resize(static_cast<size_t>(std::min(kPieceBytes, bytes)));
  uint64_t sum = 0;
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - at);
    file.read(begin + at, count, piece.data());
    sum = crc64_add(sum, {piece.data(), static_cast<size_t>(count)});
  }
  return crc64_finish(sum, static_cast<uint64_t>(bytes));
}

}  // namespace

FileVersion version_of(const InputFile& file) {
  struct stat status {};
  check(fstat(file.descriptor(), &status) == 0, file.path(), ": cannot read its status");
  std::error_code none;
  const std::string path = std::filesystem::canonical(file.path(), none).string();
  return {.path = none ? std::filesystem::absolute(file.path()).string() : path,
          .size = status.st_size,
          .modified = nanoseconds(status.st_mtim),
          .changed = nanoseconds(status.st_ctim),
          .inode = status.st_ino};
}

FileSums sum_blocks(const InputFile& file, int64_t first, int64_t every) {
  const int64_t blocks = (file.size() + kSumBlockBytes - 1) / kSumBlockBytes;
  FileSums sums(static_cast<size_t>(std::max<int64_t>(0, (blocks - first + every - 1) / every)));
  std::vector<std::vector<std::byte>> pieces(static_cast<size_t>(thread_count()));
  std::mutex lock;
  std::exception_ptr failed;
  parallel_for(std::ssize(sums), [&](int64_t i, int worker) {
    try {
      sums[static_cast<size_t>(i)] = sum_block(file, first + i * every, pieces[static_cast<size_t>(worker)]);
    } catch (...) {
      const std::lock_guard guard(lock);
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
  return sums;
}

std::optional<FileSums> known_sums(const FileVersion& version) {
  const std::lock_guard guard(known_lock);
  for (const KnownSums* of : known)
    for (const auto& [of_version, sums] : of->all_)
      if (of_version == version) return sums;
  return {};
}

FileSums sums_of(const InputFile& file) {
  std::optional<FileSums> sums = known_sums(version_of(file));
  return sums ? *std::move(sums) : sum_blocks(file);
}

KnownSums::KnownSums() {
  const std::lock_guard guard(known_lock);
  known.push_back(this);
}

KnownSums::~KnownSums() {
  const std::lock_guard guard(known_lock);
  std::erase(known, this);
}

void KnownSums::add(FileVersion version, FileSums sums) {
  const std::lock_guard guard(known_lock);
  all_.emplace_back(std::move(version), std::move(sums));
}

}  // namespace flatshard
