#include "runtime/byte_progress.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr int64_t kWidth = 20;
constexpr auto kBetween = std::chrono::milliseconds(100);

std::string bar(double share) {
  const auto filled = static_cast<size_t>(share * kWidth);
  std::string text(filled, '=');
  if (filled < kWidth) text += '>';
  text.resize(kWidth, ' ');
  return '[' + text + ']';
}

}  // namespace

ByteProgress::ByteProgress(int64_t total, std::ostream* terminal) : total_(total) {
  if (terminal) line_.emplace(*terminal);
}

void ByteProgress::add(int64_t bytes) {
  done_ += bytes;
  const Clock::time_point now = Clock::now();
  if (!line_ || (now - shown_ < kBetween && done_ < total_)) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double share =
      total_ > 0 ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 1;
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  const std::string percent = str(static_cast<int>(100 * share));
  line_->show(str(bar(share), std::string(5 - percent.size(), ' '), percent, "%  ", human_bytes(done_),
                  " of ", human_bytes(total_), "  ", human_bytes(static_cast<int64_t>(rate)), "/s  ETA ",
                  human_duration(static_cast<double>(total_ - done_) / rate)));
}

}  // namespace flatshard
