#pragma once
// The file `checksums` of a folder: a line for each block of 4 MiB of each file in it,
//   CRC-64/XZ in 16 hexadecimal digits, first byte, number of bytes, name of the file
//   995dc9bbdf1939fa 0 4194304 model.safetensors
// so that damage is found, and found where it is, and blocks can be checked side by side. A CRC and no
// cryptographic hash: it is to find damage, not forgery, runs at the speed of disks, and, being linear, sums
// a block that several processes write without anybody reading it back.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

// The sums of a file's blocks, from ranges in any order that do not overlap. Bytes never added are zero.
class BlockSums {
 public:
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;

  explicit BlockSums(int64_t file_bytes) : file_bytes_(file_bytes) {}

  void add(int64_t offset, const void* data, int64_t bytes);
  // What other processes have added of the same file: bytes that packed() made.
  void merge(std::string_view packed);
  std::string packed() const;

  int64_t file_bytes() const { return file_bytes_; }
  // Of all blocks in order; they are finished CRCs.
  std::vector<uint64_t> finished() const;

 private:
  int64_t end_of(int64_t block) const;

  int64_t file_bytes_;
  std::map<int64_t, uint64_t> linear_;  // of the blocks that were touched
};

class Checksums {
 public:
  static constexpr const char* kFileName = "checksums";
  struct File {
    int64_t bytes = 0;
    std::vector<uint64_t> blocks;
  };

  Checksums() = default;
  // Reads FOLDER/checksums.
  static Checksums read(const std::string& folder);

  void add(const std::string& name, const BlockSums& sums);
  void add(const std::string& name, std::string_view text);
  std::string text() const;
  const std::map<std::string, File>& files() const { return files_; }

  // The files of a folder are there, and as long as they were. An Error says which is not.
  void check_lengths(const std::string& folder) const;
  // One of them, of which these sums were found, is as it was written. An Error names file and bytes.
  void compare(const std::string& folder, const std::string& name, const std::vector<uint64_t>& found) const;
  // The same, read here.
  void verify(const std::string& folder, const std::string& name) const;

  // All that is not as it was written: a line for each file that is missing or of another length, and for
  // each damaged block. `seen` is told of the bytes that have been read since it was called last.
  std::vector<std::string> damages(const std::string& folder, const std::function<void(int64_t)>& seen) const;
  int64_t bytes() const;  // of all files

 private:
  std::map<std::string, File> files_;
};

}  // namespace flatshard
