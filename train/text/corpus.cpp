#include "train/text/corpus.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

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
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    fail(str(where, ": is not valid JSON (at byte ", error.byte, " of the line)"));
  } catch (const Json::out_of_range&) {
    fail(where + ": contains a number that is too large");
  }
}

std::string text_of(const std::string& line, const std::string& field, const std::string& where) {
  const Json object = parse_line(line, where);
  check(object.is_object(), where, ": is JSON of type ", object.type_name(), ", must be an object");
  const auto found = object.find(field);
  if (found == object.end())
    fail(str(where, ": has no field \"", field, "\"; its fields: ", keys_of(object)));
  check(found->is_string(), where, ": the field \"", field, "\" is of type ", found->type_name(),
        ", must be a string");
  return found->get<std::string>();
}

void read_jsonl(Lines& lines, const std::string& field, const TakeDocument& take) {
  for (std::string line; lines.next(line);) take(text_of(line, field, lines.where()));
}

void read_whole(Lines& lines, const TakeDocument& take) {
  std::string document;
  for (std::string line; lines.next(line);) {
    document += line;
    if (lines.ended_by_newline()) document += '\n';
  }
  take(document);
}

void read_runs_of_lines(Lines& lines, const TakeDocument& take) {
  std::string document;
  bool found = false;
  const auto end_document = [&] {
    if (document.empty()) return;
    take(document);
    document.clear();
    found = true;
  };
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      end_document();
      continue;
    }
    document += line;
    if (lines.ended_by_newline()) document += '\n';
  }
  end_document();
  if (!found) take("");
}

}  // namespace

int64_t read_documents(const std::string& path, const CorpusOptions& options, const TakeDocument& take) {
  Lines lines(path);
  if (path.ends_with(".jsonl"))
    read_jsonl(lines, options.text_field, take);
  else if (options.split == TextSplit::blank_lines)
    read_runs_of_lines(lines, take);
  else
    read_whole(lines, take);
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
