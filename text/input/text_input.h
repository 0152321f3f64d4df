#pragma once
// A file or pipe of text, read once from the beginning. Content in the format of gzip or zstd is
// decompressed. Throws an Error if the content is not text (text_kind.h). Memory is bounded, however far the
// content expands.

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/input/decompressor.h"

namespace flatshard {

class TextInput {
 public:
  explicit TextInput(const std::string& path);

  const std::string& path() const { return path_; }
  // Returns the next bytes of the text; empty only at the end.
  std::string_view next();
  // Skips the first `bytes` of them.
  void skip(size_t bytes);
  int64_t bytes() const { return bytes_; }            // bytes of text skipped
  int64_t file_bytes() const { return file_bytes_; }  // bytes read from the file

 private:
  void open_decompressor();
  void fill_raw();
  // Appends text to the buffer, and returns whether there was any.
  bool read_more();

  std::string path_;
  std::ifstream file_;
  std::unique_ptr<Decompressor> decompressor_;  // null: the file is not compressed
  std::vector<char> raw_, text_;                // raw_: compressed bytes
  size_t raw_begin_ = 0, raw_end_ = 0, begin_ = 0, end_ = 0;
  bool ended_ = false;  // the end of the file has been reached
  int64_t bytes_ = 0, file_bytes_ = 0;
};

// The longest record: a line or an element of JSON, or a whole document. A file that expands to more in one
// piece is refused before it fills the memory.
inline constexpr int64_t kMostJsonBytes = int64_t{256} << 20, kMostDocumentBytes = int64_t{1} << 30;

// Reads the next line, without its line break, which the last line may lack. Returns false at the end. Throws
// an Error if the line is longer than `most`.
bool next_line(TextInput& input, std::string& line, bool& has_break, int64_t most);

// Whether the text begins like an array of JSON.
bool is_json_array(TextInput& input);

// Cuts a file that is one JSON array into its elements: calls take(element, line, number) for each text, with
// the line where it begins and its number from 1. Checks only the separators of elements; the parser of an
// element checks the rest.
void each_element(TextInput& input,
                  const std::function<void(std::string element, int64_t line, int64_t number)>& take);

}  // namespace flatshard
