#pragma once
// Files that end with checksums of their content. Behind the content, little-endian:
//   0   n u64    the CRC-64/XZ of each block of 4 MiB of the content
//   ..  u64      bytes of the content
//   ..  u64      the CRC-64/XZ of the two above
//   ..  8 bytes  "FLATSUM1"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/input_file.h"
#include "runtime/whole_file.h"

namespace flatshard {

// The number of bytes before the checksums, or the size of a file that has none. Nothing is checked.
int64_t content_bytes(const InputFile& file);

struct CheckedContent {
  int64_t bytes = 0;
  bool has_sums = false;  // a file without checksums is not checked
};
// Checks all of the content, with the sums of sums_of() (file_sums.h). An Error names the damaged bytes and
// ends with `remedy`.
CheckedContent check_content(const InputFile& file, const std::string& remedy);

// A NewFile to which checksums are added.
class CheckedNewFile {
 public:
  explicit CheckedNewFile(const std::string& path) : file_(path) {}

  void write(std::string_view bytes);
  void overwrite(std::string_view bytes);  // replaces the first bytes, which were written as zeros
  void complete();                         // adds the checksums
  void finish() { file_.finish(); }
  int64_t size() const { return file_.size(); }

 private:
  NewFile file_;
  std::vector<uint64_t> sums_;  // sums of the blocks so far, in the linear form of crc64.h
};

}  // namespace flatshard
