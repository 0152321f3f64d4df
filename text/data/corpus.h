#pragma once
// Reads records from files, in order. A file of JSON (text_kind.h) has one object per line, or is an array of
// objects, each of which is a record. Any other file is text: one record, or several separated by blank
// lines. Files may be compressed with gzip or zstd. The rows of a table (table_input.h) are records, too.
// Only one record, or a few rows, are in memory at a time.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

// none: a text file is one document. blank_lines: each run of non-blank lines, with its newlines, is a
// document; a line of spaces, tabs and carriage returns is blank.
enum class TextSplit { none, blank_lines };

struct Record {
  std::string text;  // the document, or the object as JSON
  bool is_json = false;
  std::string where;       // "stories.jsonl:12", for errors
  std::string folder{};    // folder of the file: paths in the record are relative to it
  int64_t file_bytes = 0;  // bytes of the file read since the previous record
};

// Calls `take` for every record of the file and returns the number of bytes of text read. Empty records
// count, and a text file without any document counts as one empty document, so that the caller can report it.
// Reads only `columns` of a table, or all columns if there are none.
int64_t read_records(const std::string& path, TextSplit split, const std::function<void(Record)>& take,
                     const std::vector<std::string>& columns = {});
// Throws the Error, if any, that read_records() would throw before the first record.
void check_records(const std::string& path, const std::vector<std::string>& columns);

// Returns the text of this field of a JSON object. An Error begins with `where`.
std::string text_field(const std::string& json, const std::string& field, const std::string& where);
// Whether a JSON object has a member of these names that is not null. Throws an Error if `json` is no object
// or has a key twice.
bool has_member(const std::string& json, std::initializer_list<const char*> names, const std::string& where);

inline constexpr int64_t kByteVocab = 256;

// Returns one token per byte.
std::vector<int32_t> byte_tokens(std::string_view text);

// The number of copies of the document with this index: the first n documents have floor(share * n) copies in
// total, evenly spread. It depends only on the index, so documents appended later change nothing.
int64_t copies_of_document(int64_t index, double share);

}  // namespace flatshard
