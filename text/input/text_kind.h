#pragma once
// The kind of a text file, by its name and its first bytes. Names may end in .gz, .zst or .zstd.

#include <cstdint>
#include <string>
#include <string_view>

namespace flatshard {

// records: JSON, one object per line or one array of objects (.jsonl, .ndjson, .json). text: anything else.
enum class TextKind { text, records };
TextKind text_kind(const std::string& path);

// Whether a run tokenizes a file with this name: records, or .txt. Any other name must belong to a token
// file, so that no file becomes training data by mistake.
bool is_text_name(const std::string& path);

enum class Compression { none, gzip, zstd };
// The compression by the name, and by the first bytes of the content.
Compression named_compression(const std::string& path);
Compression compression_of(std::string_view begin);

// Throws an Error if the name belongs to another kind of file, such as .pdf. It names the kind and a way to
// get text.
void check_text_name(const std::string& path);

// The number of first bytes of the content by which check_text_content() judges it.
inline constexpr size_t kJudgedBytes = size_t{64} << 10;
// Throws an Error if the content, which begins with `begin`, is not text.
void check_text_content(const std::string& path, std::string_view begin);

}  // namespace flatshard
