#include "runtime/read_stream.h"

#include <algorithm>
#include <fcntl.h>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // bytes per read; pieces end at multiples of it
constexpr int64_t kTake = int64_t{1} << 18;   // maximum bytes per call of Take
constexpr int64_t kSector = 4096;             // a multiple of the sector size of any disk
constexpr int kThreads = 2;                   // two reads in flight keep the disk busy
constexpr int kSlots = 8;

}  // namespace

// A file that is read with direct I/O if the file system supports it.
class ReadStream::Source {
 public:
  explicit Source(const InputFile& file)
      : file_(file),
        direct_(open(str("/proc/self/fd/", file.descriptor()).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)) {}
  ~Source() {
    if (direct_ >= 0) close(direct_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Reads bytes [begin, begin + count) into `to`, which has space for whole sectors. Returns the offset of
  // the first byte in `to`.
  int64_t read(int64_t begin, int64_t count, std::byte* to) const {
    if (direct_ >= 0) {
      const int64_t first = begin / kSector * kSector, skip = begin - first;
      const int64_t sectors = (skip + count + kSector - 1) / kSector * kSector;
      if (pread(direct_, to, static_cast<size_t>(sectors), first) >= skip + count) return skip;
    }
    file_.read(begin, count, to);  // throws if this fails too
    return 0;
  }

 private:
  const InputFile& file_;
  int direct_;  // negative: the file system does not support direct I/O
};

ReadStream::ReadStream() = default;

ReadStream::~ReadStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  emptied_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadStream::add(const FileRange& range) {
  check(threads_.empty(), range.file->path(), ": added to a read stream after its first read");
  if (range.size == 0) return;
  if (!ranges_.empty()) {
    FileRange& last = ranges_.back();
    if (last.file == range.file && last.begin + last.size == range.begin) {
      last.size += range.size;
      return;
    }
  }
  ranges_.push_back(range);
}

void ReadStream::read(const FileRange& range, const Take& take) {
  if (threads_.empty()) start();
  for (int64_t at = 0; at < range.size;) {
    const Slot& slot = next_slot();
    check(slot.range.file == range.file && slot.range.begin + used_ == range.begin + at, range.file->path(),
          ": byte ", range.begin + at, " is read out of order; the next byte of the stream is ",
          slot.range.begin + used_, " of ", slot.range.file->path());
    const int64_t n = std::min({kTake, range.size - at, slot.range.size - used_});
    take(at, {slot.memory + slot.skip + used_, static_cast<size_t>(n)});
    at += n;
    used_ += n;
    if (used_ == slot.range.size) release_slot();
  }
}

void ReadStream::start() {
  memory_ = Memory(Device::cpu(), kSlots * kPiece);
  slots_.resize(kSlots);
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i].memory = static_cast<std::byte*>(memory_.data()) + static_cast<int64_t>(i) * kPiece;
  for (const FileRange& range : ranges_)
    if (!sources_.contains(range.file)) sources_[range.file] = std::make_unique<Source>(*range.file);
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { fill(); });
}

// The loop of a reader thread: cuts the next piece as soon as a slot is free, and reads it.
void ReadStream::fill() {
  std::unique_lock lock(mutex_);
  for (;;) {
    emptied_.wait(lock, [&] { return stopping_ || ranges_.empty() || cut_ - taken_ < kSlots; });
    if (stopping_ || ranges_.empty()) return;
    Slot& slot = slots_[static_cast<size_t>(cut_++ % kSlots)];
    slot.range = cut_next();
    lock.unlock();
    fill(slot);
    lock.lock();
    slot.full = true;
    filled_.notify_one();
  }
}

void ReadStream::fill(Slot& slot) {
  try {
    slot.skip = sources_.at(slot.range.file)->read(slot.range.begin, slot.range.size, slot.memory);
  } catch (...) {
    slot.error = std::current_exception();
  }
}

// The next piece ends at a multiple of kPiece, so that its sectors fit into a slot.
FileRange ReadStream::cut_next() {
  FileRange& left = ranges_.front();
  const FileRange piece = {
      .file = left.file, .begin = left.begin, .size = std::min(left.size, kPiece - left.begin % kPiece)};
  left.begin += piece.size;
  left.size -= piece.size;
  if (left.size == 0) ranges_.pop_front();
  return piece;
}

ReadStream::Slot& ReadStream::next_slot() {
  Slot& slot = slots_[static_cast<size_t>(taken_ % kSlots)];
  if (used_ > 0) return slot;
  std::unique_lock lock(mutex_);
  check(taken_ < cut_ || !ranges_.empty(), "a read stream is read beyond the last range that was added");
  filled_.wait(lock, [&] { return slot.full; });
  if (slot.error) std::rethrow_exception(slot.error);
  return slot;
}

void ReadStream::release_slot() {
  {
    const std::lock_guard lock(mutex_);
    slots_[static_cast<size_t>(taken_ % kSlots)].full = false;
    ++taken_;
    used_ = 0;
  }
  emptied_.notify_one();
}

}  // namespace flatshard
