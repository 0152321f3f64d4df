#include "runtime/log.h"

#include <cstdio>

#include "runtime/text.h"

namespace flatshard {
namespace {

struct {
  LogLevel level = LogLevel::info;
  int rank = 0, rank_count = 1;
} config;

}  // namespace

void configure_log(LogLevel level, int rank, int rank_count) { config = {level, rank, rank_count}; }

void log_line(LogLevel level, const std::string& text) {
  if (level > config.level || (level == LogLevel::info && config.rank != 0)) return;
  const std::string shown = printable(text);
  // One write per line, so that lines of different ranks do not interleave.
  const std::string line =
      config.rank_count > 1 ? str("[rank ", config.rank, "] ", shown, '\n') : shown + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void warn_on_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

}  // namespace flatshard
