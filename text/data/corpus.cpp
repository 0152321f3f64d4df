#include "text/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/text.h"
#include "text/input/table_input.h"
#include "text/input/text_input.h"
#include "text/input/text_kind.h"

namespace flatshard {
namespace {

using Json = nlohmann::json;

// Reads a file line by line and counts lines.
class Lines {
 public:
  explicit Lines(TextInput& input, int64_t most_bytes) : input_(input), most_bytes_(most_bytes) {}

  bool next(std::string& line) {
    const bool found = next_line(input_, line, has_break_, most_bytes_);
    number_ += found ? 1 : 0;
    return found;
  }
  bool ended_by_newline() const { return has_break_; }
  std::string where() const { return str(input_.path(), ':', number_); }

 private:
  TextInput& input_;
  int64_t most_bytes_, number_ = 0;
  bool has_break_ = false;
};

// Scans a JSON value once: checks it, and keeps the keys of the object and the text of one field. A parsed
// value would not reveal a repeated key.
class ObjectScan : public nlohmann::json_sax<Json> {
 public:
  ObjectScan(const std::string& text, std::string_view field, const std::string& where)
      : field_(field),
        where_(where),
        opens_only_(text.find_first_not_of(" \t\r") == text.find_last_not_of(" \t\r") &&
                    text.find('{') != text.npos) {
    const size_t zero = text.find('\0');  // the parser would stop here
    check(zero == text.npos, where, ": is not valid JSON (at byte ", zero + 1, " of the line)");
    scan_json(text, *this);
    check(kind_ == std::string_view("object"), where, ": is JSON of type ", kind_, ", must be an object");
  }

  const std::vector<std::string>& keys() const { return keys_; }  // keys of members that are not null
  // The type of the field; "" if the field is missing.
  std::string_view field_kind() const { return field_kind_; }
  std::string field_text() { return std::move(field_text_); }

  bool null() override {
    if (depth_ == 1 && !keys_.empty()) keys_.pop_back();  // an array, which has no keys, is refused later
    return value("null");
  }
  bool boolean(bool) override { return value("boolean"); }
  bool number_integer(number_integer_t) override { return value("number"); }
  bool number_unsigned(number_unsigned_t) override { return value("number"); }
  bool number_float(number_float_t, const std::string&) override { return value("number"); }
  bool binary(binary_t&) override { return true; }
  bool string(std::string& text) override {
    if (depth_ == 1 && at_field_) field_text_ = std::move(text);
    return value("string");
  }
  bool start_array(size_t) override {
    value("array");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool start_object(size_t) override {
    value("object");
    ++depth_;
    check(names_.size() < kMostObjects, where_, ": nests more than ", kMostObjects, " objects");
    names_.emplace_back();
    return true;
  }
  bool end_object() override {
    --depth_;
    names_.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    if (!names_.back().insert(name).second)
      fail(str(where_, ": has the key ", json_text(Json(name)), " twice"));
    if (depth_ != 1) return true;
    keys_.push_back(name);
    at_field_ = name == field_;
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const Json::exception& error) override {
    constexpr int kNumberTooLarge = 406;
    if (error.id == kNumberTooLarge) fail(where_ + ": contains a number that is too large");
    fail(str(where_, ": is not valid JSON (at byte ", byte, " of the line)",
             opens_only_
                 ? "; an object must be on one line, or be an element of an array that is the whole file"
                 : ""));
  }

 private:
  static constexpr size_t kMostObjects = 4096;

  bool value(const char* kind) {
    if (depth_ == 0) kind_ = kind;
    if (depth_ == 1 && at_field_) field_kind_ = kind;
    return true;
  }

  std::string_view field_;
  const std::string& where_;
  bool opens_only_;                                     // the line is a { alone
  std::vector<std::unordered_set<std::string>> names_;  // names in each open object
  int64_t depth_ = 0;                                   // nesting of objects and arrays
  const char* kind_ = "";
  std::vector<std::string> keys_;
  bool at_field_ = false;  // the next value at depth 1 is the field's
  std::string_view field_kind_;
  std::string field_text_;
};

// The first keys of an object, for an error.
std::string first_of(const std::vector<std::string>& keys) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(keys.size(), kMost); ++i)
    text += (i > 0 ? ", " : "") + json_text(Json(keys[i]));
  return keys.empty() ? "none" : text + (keys.size() > kMost ? " ..." : "");
}

using TakeRecord = std::function<void(Record)>;

void read_objects(TextInput& input, const TakeRecord& take) {
  if (is_json_array(input)) {
    each_element(input, [&](std::string element, int64_t line, int64_t number) {
      take({std::move(element), true, str(input.path(), ':', line, " (record ", number, ')')});
    });
    return;
  }
  Lines lines(input, kMostJsonBytes);
  for (std::string line; lines.next(line);) take({line, true, lines.where()});
}

void append_line(std::string& document, const std::string& line, const Lines& lines,
                 const std::string& where) {
  document += line;
  if (lines.ended_by_newline()) document += '\n';
  if (std::ssize(document) > kMostDocumentBytes)
    fail(str(where, ": is a document of more than ", human_bytes(kMostDocumentBytes),
             ", must be shorter: write its parts as documents, such as lines of a .jsonl file"));
}

void read_whole(TextInput& input, const TakeRecord& take) {
  Lines lines(input, kMostDocumentBytes);
  std::string document;
  for (std::string line; lines.next(line);) append_line(document, line, lines, input.path());
  take({std::move(document), false, input.path()});
}

void read_runs_of_lines(TextInput& input, const TakeRecord& take) {
  Lines lines(input, kMostDocumentBytes);
  std::string document, where = input.path();
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
    append_line(document, line, lines, where);
  }
  end_document();
  if (!found) take({"", false, input.path()});
}

// Returns the bytes of the rows as JSON.
int64_t read_rows(const std::string& path, const std::vector<std::string>& columns, const TakeRecord& take) {
  const std::unique_ptr<TableInput> table = open_table(path, columns);
  int64_t bytes = 0, file_bytes = 0, number = 0;
  for (std::string json; table->next(json);) {
    bytes += std::ssize(json);
    const int64_t read = table->file_bytes();
    take({.text = json,
          .is_json = true,
          .where = str(path, " (row ", ++number, ')'),
          .file_bytes = read - std::exchange(file_bytes, read)});
  }
  return bytes;
}

}  // namespace

std::string text_field(const std::string& json, const std::string& field, const std::string& where) {
  ObjectScan object(json, field, where);
  if (object.field_kind().empty())
    fail(str(where, ": has no field \"", field, "\"; its fields: ", first_of(object.keys()),
             "; a conversation has \"messages\", \"conversations\", \"prompt\" or \"instruction\""));
  check(object.field_kind() == "string", where, ": the field \"", field, "\" is of type ",
        object.field_kind(), ", must be a string");
  return object.field_text();
}

bool has_member(const std::string& json, std::initializer_list<const char*> names, const std::string& where) {
  const ObjectScan object(json, "", where);
  return std::any_of(object.keys().begin(), object.keys().end(), [&](const std::string& key) {
    return std::find(names.begin(), names.end(), key) != names.end();
  });
}

int64_t read_records(const std::string& path, TextSplit split, const TakeRecord& take_record,
                     const std::vector<std::string>& columns) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const TakeRecord take = [&](Record record) {
    record.folder = folder;
    take_record(std::move(record));
  };
  if (table_kind_of(path) != TableKind::none) return read_rows(path, columns, take);
  TextInput input(path);
  int64_t file_bytes = 0;
  const TakeRecord take_counted = [&](Record record) {
    record.file_bytes = input.file_bytes() - std::exchange(file_bytes, input.file_bytes());
    take(std::move(record));
  };
  if (text_kind(path) == TextKind::records)
    read_objects(input, take_counted);
  else if (split == TextSplit::blank_lines)
    read_runs_of_lines(input, take_counted);
  else
    read_whole(input, take_counted);
  return input.bytes();
}

void check_records(const std::string& path, const std::vector<std::string>& columns) {
  if (table_kind_of(path) != TableKind::none)
    open_table(path, columns);
  else
    const TextInput readable(path);
}

std::vector<int32_t> byte_tokens(std::string_view text) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

int64_t copies_of_document(int64_t index, double share) {
  const auto among_first = [share](int64_t n) {
    return static_cast<int64_t>(std::floor(share * static_cast<double>(n)));
  };
  return among_first(index + 1) - among_first(index);
}

}  // namespace flatshard
