#include "hub/last_run.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "runtime/check.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

constexpr const char* kName = "latest";
constexpr size_t kMostBytes = 8192;  // twice the longest path of Linux

// The first kMostBytes of the file; nothing unless it is a regular text file.
std::optional<std::string> read_note(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return {};
  std::ifstream in(path, std::ios::binary);
  if (!in.good()) return {};
  std::string text(kMostBytes, ' ');
  in.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.find('\0') != text.npos) return {};  // no path contains a zero byte
  return text;
}

// Whether a run has written this file: one line that names a folder beside it.
bool is_note(const fs::path& path) {
  if (fs::is_symlink(path)) return false;
  const std::string text = read_note(path).value_or("");
  return !text.empty() && text.find('\n') == text.size() - 1 &&
         fs::path(text).parent_path().filename() == path.parent_path().filename();
}

// An absolute path whose last two components are real names, not "." or "..".
fs::path with_names(const fs::path& run) {
  const fs::path absolute = fs::absolute(run);
  const bool has_dots = std::any_of(absolute.begin(), absolute.end(),
                                    [](const auto& part) { return part == "." || part == ".."; });
  return has_dots ? fs::canonical(run) : absolute;
}

void write_note(const fs::path& run) {
  const fs::path note = run.parent_path() / kName;
  check(!fs::exists(fs::symlink_status(note)) || is_note(note), note.string(), ": was not written by a run");
  const std::string line = (run.parent_path().filename() / run.filename()).string();
  check(line.find('\n') == line.npos, note.string(),
        ": cannot record a path with a line break: ", printable(line));
  write_whole_file(note.string(), line + '\n');
}

}  // namespace

fs::path last_run(const std::string& start) {
  for (fs::path folder = fs::absolute(start).lexically_normal();; folder = folder.parent_path()) {
    const fs::path note = folder / "runs" / kName;
    if (const std::optional<std::string> text = read_note(note)) {
      const std::string line = text->substr(0, text->find('\n'));
      check(!line.empty(), note.string(), ": is empty, must contain the path of a run folder");
      const fs::path beside = note.parent_path() / fs::path(line).filename();  // correct if runs/ is a link
      return !fs::is_directory(folder / line) && fs::is_directory(beside) ? beside : folder / line;
    }
    check(folder.has_relative_path(), "no folder is given, and there is no runs/latest in ",
          fs::absolute(start).lexically_normal().string(),
          " or above it: train a model first, or give its folder");
  }
}

void note_last_run(const std::string& run) {
  try {
    write_note(with_names(run));
  } catch (const std::exception& error) {
    log_info(error.what(), "; this run is not recorded as the last one");
  }
}

}  // namespace flatshard
