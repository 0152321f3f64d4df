#pragma once
// The file `checksums` of a folder has a line for each block of 4 MiB of each file in it,
//   CRC-64/XZ in 16 hexadecimal digits, first byte, number of bytes, name of the file
//   995dc9bbdf1939fa 0 4194304 model.safetensors
// so that a check locates damage and blocks can be checked in parallel. The sums are CRCs, not cryptographic
// hashes: they detect damage, not forgery, keep up with disks and, being linear, can sum a block that several
// processes write without reading it back.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

// The CRCs of a file's blocks, computed from non-overlapping ranges in any order. Bytes that are never added
// count as zero.
class BlockSums {
 public:
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;

  explicit BlockSums(int64_t file_bytes) : file_bytes_(file_bytes) {}

  void add(int64_t offset, const void* data, int64_t bytes);
  // Adds the sums of another process for the same file, as packed() returns them.
  void merge(std::string_view packed);
  std::string packed() const;

  int64_t file_bytes() const { return file_bytes_; }
  // The finished CRCs of all blocks, in order.
  std::vector<uint64_t> finished() const;

 private:
  int64_t end_of(int64_t block) const;

  int64_t file_bytes_;
  std::map<int64_t, uint64_t> linear_;  // linear sum of each block with added bytes
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

  // Checks that every file exists and has its recorded length. Throws an Error that names the first one that
  // does not.
  void check_lengths(const std::string& folder) const;
  // Compares the CRCs computed for a file with the recorded ones. Throws an Error that names the file and the
  // damaged bytes.
  void compare(const std::string& folder, const std::string& name, const std::vector<uint64_t>& found) const;
  // Reads a file and compares its length and CRCs.
  void verify(const std::string& folder, const std::string& name) const;

  // Checks all files and returns a line for each missing file, wrong length and damaged block. Calls `seen`
  // with the number of bytes read since its last call.
  std::vector<std::string> damages(const std::string& folder, const std::function<void(int64_t)>& seen) const;
  int64_t bytes() const;  // total size of all files

 private:
  std::map<std::string, File> files_;
};

}  // namespace flatshard
