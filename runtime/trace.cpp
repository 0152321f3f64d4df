#include "runtime/trace.h"

#include <iomanip>
#include <sstream>
#include <utility>

#include "runtime/check.h"
#include "runtime/whole_file.h"

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

}  // namespace

int Trace::add_row(std::string name) {
  const std::lock_guard lock(mutex_);
  rows_.push_back(std::move(name));
  return static_cast<int>(rows_.size()) - 1;
}

void Trace::add_span(int row, const char* what, Clock::time_point begin, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  spans_.push_back({row, what, microseconds(begin - start_), microseconds(end - begin)});
}

int64_t Trace::span_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(spans_.size());
}

std::string Trace::json() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << "{\"traceEvents\": [\n"
      << "{\"ph\": \"M\", \"pid\": " << process_
      << ", \"name\": \"process_name\", \"args\": {\"name\": \"rank " << process_ << "\"}}";
  for (size_t row = 0; row < rows_.size(); ++row)
    out << ",\n{\"ph\": \"M\", \"pid\": " << process_ << ", \"tid\": " << row
        << ", \"name\": \"thread_name\", \"args\": {\"name\": " << quoted(rows_[row]) << "}}";
  for (const Span& span : spans_)
    out << ",\n{\"ph\": \"X\", \"pid\": " << process_ << ", \"tid\": " << span.row
        << ", \"name\": " << quoted(span.what) << ", \"ts\": " << span.begin_us
        << ", \"dur\": " << span.duration_us << "}";
  out << "\n]}\n";
  return std::move(out).str();
}

void Trace::write(const std::string& path) const { write_whole_file(path, json()); }

}  // namespace flatshard
