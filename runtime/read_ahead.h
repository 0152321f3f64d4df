#pragma once
// Tells the system what will be read, some way ahead of the reader, so that the disk is at it while the
// reader looks at what has come. Bytes that are skipped or read in another order cost time and nothing else.

#include <cstdint>
#include <vector>

#include "runtime/input_file.h"

namespace flatshard {

class ReadAhead {
 public:
  static constexpr int64_t kAhead = int64_t{16} << 20;  // bytes

  // Will be read behind all that was added before. The file must outlive this.
  void add(const FileRange& range);
  // The next `bytes` bytes are read now.
  void reading(int64_t bytes);
  int64_t announced() const { return announced_; }  // bytes, of all that was added

 private:
  std::vector<FileRange> ranges_;
  size_t next_ = 0;                   // the range of which a part is not yet announced
  int64_t from_ = 0;                  // that part's begin
  int64_t announced_ = 0, read_ = 0;  // of all bytes
};

}  // namespace flatshard
