#pragma once
// Log lines on stderr, such as "[rank 2] text". Only rank 0 prints info lines; every rank prints warnings.
// Errors are thrown, not logged.

#include <functional>
#include <string>

#include "runtime/check.h"

namespace flatshard {

enum class LogLevel { quiet, warning, info };

// Configures the log; to be called once at startup. With a single rank, lines carry no rank prefix.
void configure_log(LogLevel level, int rank = 0, int rank_count = 1);

void log_line(LogLevel level, const std::string& text);

template <class... Parts>
void log_info(const Parts&... parts) {
  log_line(LogLevel::info, str(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log_line(LogLevel::warning, str("warning: ", parts...));
}

// Runs optional work, such as writing a report, and logs an Error as a warning.
void warn_on_error(const std::function<void()>& work);

}  // namespace flatshard
