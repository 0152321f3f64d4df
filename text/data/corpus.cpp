#include "text/data/corpus.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/check.h"

namespace flatshard {
namespace {

using Json = nlohmann::json;

// Reads a file line by line and counts lines and bytes.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), in_(path, std::ios::binary) {
    check(in_.is_open(), path, ": cannot open: ", std::strerror(errno));
    check(!std::filesystem::is_directory(path), path, ": is a folder, must be a file: name the files in it");
  }

  bool next(std::string& line) {
    const bool found = static_cast<bool>(std::getline(in_, line));
    check(!in_.bad(), path_, ": cannot read: ", std::strerror(errno));
    if (!found) return false;
    ++number_;
    bytes_ += static_cast<int64_t>(line.size()) + (ended_by_newline() ? 1 : 0);
    return true;
  }
  bool ended_by_newline() const { return !in_.eof(); }
  std::string where() const { return str(path_, ':', number_); }
  int64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  std::ifstream in_;
  int64_t number_ = 0, bytes_ = 0;
};

// The first keys of an object, for an error.
std::string keys_of(const Json& object) {
  constexpr int kMost = 8;
  std::string keys;
  int count = 0;
  for (const auto& [key, value] : object.items()) {
    if (++count > kMost) return keys + " ...";
    keys += (keys.empty() ? "" : ", ") + Json(key).dump();
  }
  return keys.empty() ? "none" : keys;
}

Json parse_line(const std::string& line, const std::string& where) {
  const size_t zero = line.find('\0');  // where the parser would stop
  check(zero == line.npos, where, ": is not valid JSON (at byte ", zero + 1, " of the line)");
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    fail(str(where, ": is not valid JSON (at byte ", error.byte, " of the line)"));
  } catch (const Json::out_of_range&) {
    fail(where + ": contains a number that is too large");
  }
}

Json parse_object(const std::string& line, const std::string& where) {
  Json object = parse_line(line, where);
  check(object.is_object(), where, ": is JSON of type ", object.type_name(), ", must be an object");
  return object;
}

void read_jsonl(Lines& lines, const std::function<void(Record)>& take) {
  for (std::string line; lines.next(line);) take({line, true, lines.where()});
}

void read_whole(Lines& lines, const std::string& path, const std::function<void(Record)>& take) {
  std::string document;
  for (std::string line; lines.next(line);) {
    document += line;
    if (lines.ended_by_newline()) document += '\n';
  }
  take({std::move(document), false, path});
}

void read_runs_of_lines(Lines& lines, const std::string& path, const std::function<void(Record)>& take) {
  std::string document, where = path;
  bool found = false;
  const auto end_document = [&] {
    if (document.empty()) return;
    take({std::exchange(document, {}), false, where});
    found = true;
  };
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      end_document();
      continue;
    }
    if (document.empty()) where = lines.where();
    document += line;
    if (lines.ended_by_newline()) document += '\n';
  }
  end_document();
  if (!found) take({"", false, path});
}

}  // namespace

std::string text_field(const std::string& line, const std::string& field, const std::string& where) {
  const Json object = parse_object(line, where);
  const auto found = object.find(field);
  if (found == object.end())
    fail(str(where, ": has no field \"", field, "\"; its fields: ", keys_of(object)));
  check(found->is_string(), where, ": the field \"", field, "\" is of type ", found->type_name(),
        ", must be a string");
  return found->get<std::string>();
}

bool has_member(const std::string& line, std::initializer_list<const char*> names, const std::string& where) {
  const Json object = parse_object(line, where);
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return object.contains(name); });
}

int64_t read_records(const std::string& path, TextSplit split, const std::function<void(Record)>& take) {
  Lines lines(path);
  if (path.ends_with(".jsonl"))
    read_jsonl(lines, take);
  else if (split == TextSplit::blank_lines)
    read_runs_of_lines(lines, path, take);
  else
    read_whole(lines, path, take);
  return lines.bytes();
}

std::vector<int32_t> byte_tokens(std::string_view text) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

bool is_eval_document(int64_t index, double share) {
  const auto among_first = [share](int64_t count) { return std::floor(static_cast<double>(count) * share); };
  return among_first(index + 1) > among_first(index);
}

}  // namespace flatshard
