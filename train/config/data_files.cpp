#include <algorithm>
#include <set>

#include "runtime/check.h"
#include "train/config/config.h"

namespace flatshard {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool is_plain(char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-' || c == '/'; }

std::string without_suffixes(const std::string& path, bool with_folder) {
  const size_t slash = path.rfind('/'), begin = slash == path.npos ? 0 : slash + 1;
  const size_t dot = path.find('.', begin + 1), first = with_folder ? 0 : begin;
  std::string name = path.substr(first, std::min(dot, path.size()) - first);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !is_plain(c); }, '_');
  return name;
}

bool are_distinct(const std::vector<NamedFile>& files) {
  std::set<std::string> names;
  return std::all_of(files.begin(), files.end(),
                     [&](const NamedFile& file) { return names.insert(file.name).second; });
}

std::vector<NamedFile> with_names(const std::vector<std::string>& paths) {
  std::vector<NamedFile> files;
  for (const bool with_folder : {false, true}) {
    files.clear();
    for (const std::string& path : paths) files.push_back({without_suffixes(path, with_folder), path});
    if (are_distinct(files)) return files;
  }
  for (size_t i = 0; i < files.size(); ++i) files[i].name += str('-', i + 1);
  return files;
}

}  // namespace

std::vector<NamedFile> named_files(const DataFiles& files) {
  if (const auto* const named = std::get_if<std::vector<NamedFile>>(&files)) return *named;
  if (const auto* const paths = std::get_if<std::vector<std::string>>(&files)) return with_names(*paths);
  const std::string& path = std::get<std::string>(files);
  return path.empty() ? std::vector<NamedFile>{} : with_names({path});
}

void check_data_files(const char* key, const DataFiles& files) {
  const std::vector<NamedFile> named = named_files(files);
  check(named.size() <= kMostDataFiles, key, " names ", named.size(), " files, must be at most ",
        kMostDataFiles, ": merge some with prepare");
  std::set<std::string> paths;
  for (const NamedFile& file : named) {
    check(!file.path.empty(), key, " names the file \"\": remove it, or give its path");
    check(paths.insert(file.path).second, key, " names ", quoted(file.path), " twice: name it once");
    check(!file.name.empty() && std::all_of(file.name.begin(), file.name.end(), is_plain), key,
          " calls a file ", quoted(file.name),
          ": a name consists of letters, digits and the characters . _ - /");
  }
}

}  // namespace flatshard
