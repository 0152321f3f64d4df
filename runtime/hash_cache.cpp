#include "runtime/hash_cache.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <span>
#include <sstream>
#include <vector>

#include "runtime/check.h"
#include "runtime/crc64.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr size_t kMostLines = 2000;
constexpr int64_t kTimesMayRepeat = 2'000'000'000;  // ns; some file systems store whole seconds

std::string version_text(const FileVersion& v) {
  return str(v.size, ' ', v.modified, ' ', v.changed, ' ', v.inode, ' ', v.path);
}

std::string line_of(const std::string& hash, const FileVersion& version) {
  const std::string text = str(hash, ' ', version_text(version));
  std::ostringstream line;
  line << std::hex << std::setw(16) << std::setfill('0') << crc64(std::as_bytes(std::span(text))) << ' '
       << text;
  return std::move(line).str();
}

// The lines of the file, unchecked; none if it is missing or cannot be read.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::error_code none;
  if (path.empty() || !fs::is_regular_file(path, none)) return lines;
  try {
    std::istringstream in(read_whole_file(path, kMostBytes));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  } catch (const Error&) {
    lines.clear();  // the hashes are computed again
  }
  return lines;
}

}  // namespace

std::string HashCache::default_path() {
  for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", "/.cache"}})
    if (const char* const folder = std::getenv(variable); folder && fs::path(folder).is_absolute())
      return str(folder, below, "/flatshard/hashes");
  return "";
}

int64_t HashCache::now() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<std::string> HashCache::find(const FileVersion& version) const {
  const std::string wanted = version_text(version);
  for (const std::string& line : lines_of(path_)) {
    if (!line.ends_with(' ' + wanted)) continue;
    const size_t begin = line.find(' ') + 1, end = line.find(' ', begin);
    const std::string hash = line.substr(begin, end - begin);
    if (line == line_of(hash, version)) return hash;
  }
  return {};
}

void HashCache::add(const FileVersion& version, const std::string& hash, int64_t now) const {
  if (path_.empty() || version.changed > now - kTimesMayRepeat) return;
  if (version.path.find('\n') != std::string::npos) return;
  std::vector<std::string> lines = lines_of(path_);
  const std::string of_path = ' ' + version.path;
  // Removes the line of an earlier version.
  std::erase_if(lines, [&](const std::string& line) { return line.ends_with(of_path); });
  lines.push_back(line_of(hash, version));
  std::string text;
  for (size_t i = lines.size() > kMostLines ? lines.size() - kMostLines : 0; i < lines.size(); ++i)
    text += lines[i] + '\n';
  try {
    fs::create_directories(fs::path(path_).parent_path());
    write_whole_file(path_, text);
  } catch (const std::exception&) {
    return;  // a later program computes the hash again
  }
}

}  // namespace flatshard
