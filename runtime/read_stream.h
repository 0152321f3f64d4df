#pragma once
// Reads ranges of files one behind the other, some way ahead of who wants them, so that the disk is at what
// comes next while the reader looks at what has come. The bytes go from the disk into memory of this stream
// where the file system can do that, and not through the system's cache: that takes a fifth of the processor
// time, and what is checked is what the disk holds.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/input_file.h"
#include "runtime/memory.h"

namespace flatshard {

class ReadStream {
 public:
  using Take = std::function<void(int64_t at, std::span<const std::byte> piece)>;

  ReadStream();
  ~ReadStream();
  ReadStream(const ReadStream&) = delete;
  ReadStream& operator=(const ReadStream&) = delete;

  // Will be read behind all that was added before; nothing is added once the first was read. The file must
  // outlive this.
  void add(const FileRange& range);
  // The next bytes, which must be these: take(bytes of the range before the piece, the piece) for one piece
  // after the other, which is small enough for a core's own cache.
  void read(const FileRange& range, const Take& take);

 private:
  class Source;
  struct Slot {
    std::byte* memory = nullptr;
    FileRange range;   // that is read into it
    int64_t skip = 0;  // bytes in memory before the range's
    bool full = false;
    std::exception_ptr error;
  };

  void start();
  void fill();
  void fill(Slot& slot);
  FileRange cut_next();
  Slot& next_slot();
  void release_slot();

  std::deque<FileRange> ranges_;  // that are not yet cut
  std::map<const InputFile*, std::unique_ptr<Source>> sources_;
  Memory memory_;
  std::vector<Slot> slots_;  // a ring
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable filled_, emptied_;
  int64_t cut_ = 0, taken_ = 0;  // pieces
  int64_t used_ = 0;             // bytes of the piece that is being taken
  bool stopping_ = false;
};

}  // namespace flatshard
