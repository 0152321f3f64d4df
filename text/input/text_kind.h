#pragma once
// What a file of text is, by its name and its first bytes. Names may end in .gz, .zst or .zstd.

#include <cstdint>
#include <string>
#include <string_view>

namespace flatshard {

// records: JSON, one object per line or one array of objects (.jsonl, .ndjson, .json). text: anything else.
enum class TextKind { text, records };
TextKind text_kind(const std::string& path);

// Whether a run makes the tokens of a file of this name: records, or .txt. Any other name must be that of a
// token file, so that no file becomes training data by mistake.
bool is_text_name(const std::string& path);

enum class Compression { none, gzip, zstd };
// By the name; by the content's first bytes.
Compression named_compression(const std::string& path);
Compression compression_of(std::string_view begin);

// An Error if the name is that of another kind of file, such as .pdf: what it is, and how to get text.
void check_text_name(const std::string& path);

// The bytes at the beginning of a file's content by which check_text_content() judges it.
inline constexpr size_t kJudgedBytes = size_t{64} << 10;
// An Error if the content, of which these are the first bytes, is not text.
void check_text_content(const std::string& path, std::string_view begin);

}  // namespace flatshard
