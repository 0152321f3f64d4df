#include "train/report/event_file.h"

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFilePrefix = "events.out.tfevents.";  // prefix that TensorBoard recognises

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

std::string masked_crc(std::string_view bytes) {
  return little_endian(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

std::string framed(const std::string& event) {
  const std::string size = little_endian(uint64_t{event.size()});
  return size + masked_crc(size) + event + masked_crc(event);
}

// Fields of protocol buffers: a tag, that is a number and the kind of encoding, and the value.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string integer_field(int number, int64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(static_cast<uint64_t>(value));
}
std::string double_field(int number, double value) {
  return varint(static_cast<uint64_t>(number) << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string bytes_field(int number, std::string_view value) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(value.size()) + std::string(value);
}
std::string float_field(int number, float value) {
  return varint(static_cast<uint64_t>(number) << 3 | 5) + little_endian(std::bit_cast<uint32_t>(value));
}

std::string event(double time, int64_t step) {
  return double_field(1, time) + (step == 0 ? "" : integer_field(2, step));
}

bool is_position(std::string_view key) {
  return key == "step" || key == "data_step" || key == "time" || key == "elapsed_seconds";
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_event_file(const fs::path& path) { return path.filename().string().starts_with(kFilePrefix); }

bool has_event_files(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_event_file(entry.path())) return true;
  return false;
}

// events.out.tfevents.SECONDS.HOST.PROCESS, so that names sort by time and no two runs share one.
std::string new_path(const std::string& folder, double time) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  return str(folder, '/', kFilePrefix, static_cast<int64_t>(time), '.', host.data(), '.', getpid());
}

// Prepares the folder; returns the records that a new file begins with.
std::string first_records(const std::string& folder, const std::vector<StepMetrics>& lines, double time) {
  try {
    fs::create_directories(folder);
    if (lines.empty())
      for (const auto& entry : std::vector(fs::directory_iterator(folder), fs::directory_iterator()))
        if (is_event_file(entry.path())) fs::remove(entry.path());
    std::string records = version_record(time);
    if (lines.empty()) return records;
    if (has_event_files(folder)) return records + start_record(time, lines.back().step + 1);
    for (const StepMetrics& m : lines) records += scalars_record(m.time.value_or(time), m);
    return records;
  } catch (const fs::filesystem_error& error) {
    fail(str(folder, ": cannot write event files: ", error.code().message()));
  }
}

}  // namespace

std::string version_record(double time) { return framed(event(time, 0) + bytes_field(3, "brain.Event:2")); }

std::string start_record(double time, int64_t step) {
  return framed(event(time, step) + bytes_field(7, integer_field(1, 1)));
}

std::string scalars_record(double time, const StepMetrics& m) {
  std::string values;
  for (const auto& [key, value] : numbers_of(m))
    if (!is_position(key) && (!m.skipped || key == std::string_view("skipped")))
      values += bytes_field(1, bytes_field(1, key) + float_field(2, static_cast<float>(value)));
  return framed(event(time, m.step) + bytes_field(5, values));
}

EventFile::EventFile(const std::string& folder, const std::vector<StepMetrics>& lines_before)
    : file_(new_path(folder, now()), first_records(folder, lines_before, now())) {}

void EventFile::write(const StepMetrics& m) { file_.append(scalars_record(m.time.value_or(now()), m)); }

}  // namespace flatshard
