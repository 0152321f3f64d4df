#pragma once
// Reads ranges of files sequentially with read-ahead on background threads, so that the disk works while the
// caller processes. Where the file system supports direct I/O, reads bypass the page cache: this takes a
// fifth of the CPU time, and a checksum verifies the bytes on the disk rather than a cached copy.

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

  // Appends a range to the sequence. All ranges must be added before the first read(). The file must outlive
  // this object.
  void add(const FileRange& range);
  // Reads `range`, which must be the next bytes of the sequence. Calls take(offset in the range, piece) for
  // each piece in order; a piece fits into a core's private cache.
  void read(const FileRange& range, const Take& take);

 private:
  class Source;
  struct Slot {
    std::byte* memory = nullptr;
    FileRange range;   // the bytes of the file in `memory`
    int64_t skip = 0;  // bytes in `memory` before the range, read for alignment
    bool full = false;
    std::exception_ptr error;
  };

  void start();
  void fill();
  void fill(Slot& slot);
  FileRange cut_next();
  Slot& next_slot();
  void release_slot();

  std::deque<FileRange> ranges_;  // ranges that are not cut into pieces yet
  std::map<const InputFile*, std::unique_ptr<Source>> sources_;
  Memory memory_;
  std::vector<Slot> slots_;  // ring buffer
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable filled_, emptied_;
  int64_t cut_ = 0, taken_ = 0;  // number of pieces whose reading has started, and of consumed pieces
  int64_t used_ = 0;             // bytes consumed of the current piece
  bool stopping_ = false;
};

}  // namespace flatshard
