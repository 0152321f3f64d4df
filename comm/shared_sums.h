#pragma once
// The checksums of large files (runtime/file_sums.h), which ranks compute together: ranks that have the same
// version of a file, on one host or through a shared file system, divide its blocks. Each version is read
// once, at the speed of the disk, instead of once by every rank.

#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "runtime/file_sums.h"

namespace flatshard {

class SharedSums {
 public:
  explicit SharedSums(World& world);
  // Exchanges texts through gather(), which returns the texts of all ranks, by rank.
  using Gather = std::function<std::vector<std::string>(const std::string& text)>;
  SharedSums(size_t rank, Gather gather) : rank_(rank), gather_(std::move(gather)) {}

  // Computes the sums of these files, which sums_of() then knows while the object lives. Collective, without
  // a time limit. Files of a single block, and files that cannot be opened, are left to the code that needs
  // them.
  void sum(const std::vector<std::string>& paths) { add(paths, false); }
  // Like sum(), for fingerprint(): files whose hashes are kept are not read.
  void hash(const std::vector<std::string>& paths) { add(paths, true); }

  // Collective. Returns whether all ranks read the same versions of these files, so that there is nothing to
  // compare.
  bool are_same(const std::vector<std::string>& paths) const;

  int64_t blocks_read() const { return blocks_read_; }  // number of blocks that this rank has read

 private:
  void add(const std::vector<std::string>& paths, bool unless_kept);

  size_t rank_;
  Gather gather_;
  KnownSums known_;
  int64_t blocks_read_ = 0;
};

}  // namespace flatshard
