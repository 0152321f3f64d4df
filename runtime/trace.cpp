#include "runtime/trace.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include "runtime/check.h"

namespace flatshard {
namespace {

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out << '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out << "\\u" << std::hex << std::setw(4) << std::setfill('0') << static_cast<int>(c) << std::dec;
    else
      out << c;
  }
  out << '"';
  return std::move(out).str();
}

double microseconds(Trace::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// The text of a span besides its name has at most this many bytes, with times of up to 1000 days.
constexpr int64_t kSpanBytes = 100;

}  // namespace

int Trace::add_row(std::string name) {
  const std::lock_guard lock(mutex_);
  rows_.push_back(std::move(name));
  return static_cast<int>(rows_.size()) - 1;
}

void Trace::add_span(int row, std::string_view what, Clock::time_point begin, Clock::time_point end,
                     const OpCall* op) {
  if (!recording_) return;
  const std::lock_guard lock(mutex_);
  auto name = names_.find(what);
  if (name == names_.end()) name = names_.emplace(what).first;
  spans_.push_back({row, &*name, op ? &*ops_.insert(*op).first : nullptr, begin, end - begin});
  name_bytes_ += static_cast<int64_t>(what.size());
}

int64_t Trace::span_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(spans_.size());
}

int64_t Trace::json_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(spans_.size()) * kSpanBytes + name_bytes_;
}

std::vector<std::string> Trace::rows() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

std::string Trace::names_json(const std::string& note) const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "{\"ph\": \"M\", \"pid\": " << process_
      << ", \"name\": \"process_name\", \"args\": {\"name\": \"rank " << process_ << "\"}}";
  if (!note.empty())
    out << ",\n{\"ph\": \"M\", \"pid\": " << process_
        << ", \"name\": \"process_labels\", \"args\": {\"labels\": " << quoted(note) << "}}";
  for (size_t row = 0; row < rows_.size(); ++row)
    out << ",\n{\"ph\": \"M\", \"pid\": " << process_ << ", \"tid\": " << row
        << ", \"name\": \"thread_name\", \"args\": {\"name\": " << quoted(rows_[row]) << "}}";
  return std::move(out).str();
}

std::string Trace::spans_json(int64_t first, int64_t count, Clock::time_point zero) const {
  const std::lock_guard lock(mutex_);
  const int64_t end = std::min(first + count, static_cast<int64_t>(spans_.size()));
  std::ostringstream out;
  out << std::fixed << std::setprecision(3);
  for (int64_t i = first; i < end; ++i) {
    const Span& span = spans_[static_cast<size_t>(i)];
    out << (i > first ? ",\n" : "") << "{\"ph\":\"X\",\"pid\":" << process_ << ",\"tid\":" << span.row
        << ",\"name\":" << quoted(*span.what) << ",\"ts\":" << microseconds(span.begin - zero)
        << ",\"dur\":" << microseconds(span.duration) << "}";
  }
  return std::move(out).str();
}

}  // namespace flatshard
