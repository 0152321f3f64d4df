#include "train/report/failure_note.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace flatshard {
namespace {

constexpr std::string_view kBegin = "failed: ";

// The ranks take turns, but none waits for long.
void take_turn(int file) {
  constexpr int kTries = 50;
  constexpr std::chrono::milliseconds kBetweenTries{2};
  for (int i = 0; i < kTries && flock(file, LOCK_EX | LOCK_NB) != 0; ++i)
    std::this_thread::sleep_for(kBetweenTries);
}

// Whether the last line that does not begin with a space is a note.
bool ends_with_note(int file) {
  std::array<char, 1 << 14> buffer;
  const off_t size = lseek(file, 0, SEEK_END), begin = std::max<off_t>(0, size - std::ssize(buffer));
  const ssize_t count = pread(file, buffer.data(), buffer.size(), begin);
  std::string_view text(buffer.data(), static_cast<size_t>(std::max<ssize_t>(0, count)));
  while (text.ends_with('\n')) {
    text.remove_suffix(1);
    const size_t line = text.rfind('\n') + 1;  // 0 after npos
    if (!text.substr(line).starts_with(' ')) return text.substr(line).starts_with(kBegin);
    text = text.substr(0, line);
  }
  return false;
}

}  // namespace

void note_failure(const std::string& log, const std::string& reason) {
  const int file = open(log.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  take_turn(file);
  if (!ends_with_note(file)) {
    std::string note(kBegin);
    for (const char c : reason) note += c == '\n' ? "\n  " : std::string(1, c);
    note += '\n';
    const ssize_t ignored = write(file, note.data(), note.size());
    static_cast<void>(ignored);
  }
  close(file);
}

}  // namespace flatshard
