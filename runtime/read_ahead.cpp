#include "runtime/read_ahead.h"

#include <algorithm>
#include <fcntl.h>

namespace flatshard {
namespace {

constexpr int64_t kAtOnce = int64_t{512} << 10;  // bytes; of a longer piece systems take only the beginning

}  // namespace

void ReadAhead::add(const FileRange& range) {
  if (range.size > 0) ranges_.push_back(range);
}

void ReadAhead::reading(int64_t bytes) {
  read_ += bytes;
  while (next_ < ranges_.size() && announced_ < read_ + kAhead) {
    const FileRange& range = ranges_[next_];
    const int64_t n = std::min(kAtOnce, range.size - from_);
    posix_fadvise(range.file->descriptor(), range.begin + from_, n, POSIX_FADV_WILLNEED);  // a hint: may fail
    announced_ += n;
    from_ += n;
    if (from_ < range.size) continue;
    from_ = 0;
    ++next_;
  }
}

}  // namespace flatshard
