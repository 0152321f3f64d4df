#pragma once
// The hashes of large files, kept for later programs, so that each version of a file is read once. They are
// in the user's cache folder, because models and data may be read-only or shared, and a copied folder must
// not contain hashes: $XDG_CACHE_HOME/flatshard/hashes, or ~/.cache/flatshard/hashes. The file may be removed
// at any time. Its lines are
//   CRC-64 of the rest, hash, size, modified, changed, inode, path
// where times are nanoseconds since 1970. A damaged line does not count.

#include <optional>
#include <string>

#include "runtime/file_sums.h"

namespace flatshard {

class HashCache {
 public:
  explicit HashCache(std::string path = default_path()) : path_(std::move(path)) {}

  std::optional<std::string> find(const FileVersion& version) const;
  // Replaces the cache file atomically. If two programs add at the same time, one line may be lost. Nothing
  // is added if the cache cannot be written, or if the hashed file was changed less than two seconds before
  // `now` (in nanoseconds), because another write could leave it with the same times.
  void add(const FileVersion& version, const std::string& hash, int64_t now) const;

  static std::string default_path();  // "" if the environment names no folder
  static int64_t now();

 private:
  std::string path_;
};

}  // namespace flatshard
