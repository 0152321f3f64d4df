#pragma once
// Documents out of files, in the order in which they stand there. A file whose name ends in .jsonl holds one
// JSON object a line, and the text field of each is a document. Any other file is text, taken byte by byte
// whatever its encoding: one document, or those that its blank lines separate. Lines are read one at a time;
// what must fit into memory is one document. Tokens are the bytes.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

// none: a text file is one document. blank_lines: its documents are the runs of lines that are not blank,
// each line with its newline; a line of spaces, tabs and carriage returns is blank.
enum class TextSplit { none, blank_lines };

struct CorpusOptions {
  std::string text_field = "text";  // of the objects in .jsonl files
  TextSplit split = TextSplit::none;
};

using TakeDocument = std::function<void(std::string_view)>;

// Hands every document of the file to `take` and returns the bytes read. Empty documents are handed over too,
// and a text file without a document counts as an empty one, so that the caller can say what is missing. An
// Error names file, line and what is wrong there.
int64_t read_documents(const std::string& path, const CorpusOptions& options, const TakeDocument& take);

inline constexpr int64_t kByteVocab = 256;

// One token for every byte.
std::vector<int32_t> byte_tokens(std::string_view text);

// Whether the document with this index belongs to the evaluation, which takes `share` of all, evenly spread:
// floor(share n) of the first n. A function of the index alone, so that documents added at the end move none.
bool is_eval_document(int64_t index, double share);

}  // namespace flatshard
