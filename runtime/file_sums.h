#pragma once
// The checksums of a file: the CRC-64 of each of its blocks of 4 MiB. Blocks are independent, so threads, and
// ranks that read the same file (comm/shared_sums.h), divide them.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/input_file.h"

namespace flatshard {

inline constexpr int64_t kSumBlockBytes = int64_t{4} << 20;
using FileSums = std::vector<uint64_t>;  // one sum for each block

// The current version of a file. Every write changes `changed`, which programs, unlike `modified`, cannot
// set.
struct FileVersion {
  std::string path;                             // absolute, without symbolic links
  int64_t size = 0, modified = 0, changed = 0;  // size in bytes, times in nanoseconds since 1970
  uint64_t inode = 0;
  bool operator==(const FileVersion&) const = default;
};
FileVersion version_of(const InputFile& file);

// The sums of blocks `first`, `first + every`, ..., by all threads of this process.
FileSums sum_blocks(const InputFile& file, int64_t first = 0, int64_t every = 1);

// The sums that a KnownSums holds for this version of a file.
std::optional<FileSums> known_sums(const FileVersion& version);
// The sums of all blocks: known sums, or newly computed ones.
FileSums sums_of(const InputFile& file);

// Sums that this process need not compute again while the object lives.
class KnownSums {
 public:
  KnownSums();
  ~KnownSums();
  KnownSums(const KnownSums&) = delete;
  KnownSums& operator=(const KnownSums&) = delete;

  void add(FileVersion version, FileSums sums);

 private:
  friend std::optional<FileSums> known_sums(const FileVersion& version);
  std::vector<std::pair<FileVersion, FileSums>> all_;
};

}  // namespace flatshard
