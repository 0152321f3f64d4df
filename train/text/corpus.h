#pragma once
// Reads documents from files, in order. A .jsonl file has one JSON object per line, whose text field is a
// document. Any other file is text of any encoding, taken as bytes: one document, or several separated by
// blank lines. Only one document at a time is in memory. Tokens are bytes.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

// none: a text file is one document. blank_lines: its documents are the runs of non-blank lines, including
// their newlines; a line of spaces, tabs and carriage returns is blank.
enum class TextSplit { none, blank_lines };

struct CorpusOptions {
  std::string text_field = "text";  // of the objects in .jsonl files
  TextSplit split = TextSplit::none;
};

using TakeDocument = std::function<void(std::string_view)>;

// Calls `take` for every document of the file and returns the bytes read. Includes empty documents; a text
// file without any document counts as one empty document, so that the caller can report it. An Error names
// file and line.
int64_t read_documents(const std::string& path, const CorpusOptions& options, const TakeDocument& take);

inline constexpr int64_t kByteVocab = 256;

// One token per byte.
std::vector<int32_t> byte_tokens(std::string_view text);

// Whether the document with this index belongs to the evaluation set, an evenly spread fraction of the
// documents: floor(share * n) of the first n. It depends only on the index, so documents appended later
// change nothing.
bool is_eval_document(int64_t index, double share);

}  // namespace flatshard
