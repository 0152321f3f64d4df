#include "text/input/text_kind.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "runtime/check.h"
#include "runtime/utf8.h"

namespace flatshard {
namespace {

using namespace std::string_view_literals;

// Kinds of files by the ends of their names, separated by spaces. PATH in the remedy stands for the file.
struct OtherKind {
  std::string_view endings;
  const char *is, *remedy;
};
constexpr char kExtractText[] = "extract its text first, for example with pdftotext or pandoc --to plain";
constexpr char kUnpack[] = "unpack it, and name the files in it";
constexpr char kUnpackTable[] = "write it to a file that is neither compressed nor a pipe, and name that";
constexpr OtherKind kOtherKinds[] = {
    {" csv ", "is a table (CSV)",
     "convert it: python3 -c \"import csv, json; [print(json.dumps(row)) for row in "
     "csv.DictReader(open('PATH', newline=''))]\" >'PATH.jsonl', or, to train on its characters, name it "
     ".txt"},
    {" tsv ", "is a table (TSV)",
     "convert it: python3 -c \"import csv, json; [print(json.dumps(row)) for row in "
     "csv.DictReader(open('PATH', newline=''), delimiter=chr(9))]\" >'PATH.jsonl', or, to train on its "
     "characters, name it .txt"},
    {" xlsx xls ods ", "is a spreadsheet", "export it as CSV, and convert that to JSON lines"},
    {" pdf doc docx odt rtf epub ppt pptx ", "is a formatted document", kExtractText},
    {" zip tar tgz tbz2 txz 7z rar ", "is an archive", kUnpack},
    {" bz2 xz lzma lz4 br ", "is compressed, but neither with gzip nor with zstd", "decompress it first"},
    {" safetensors bin pt pth ckpt gguf npy npz pkl pickle h5 hdf5 onnx ", "holds tensors or objects",
     "name a file of text"},
    {" db sqlite sqlite3 ", "is a database", "export its texts as JSON lines"},
    {" png jpg jpeg gif webp bmp tif tiff ico mp3 wav flac ogg m4a mp4 mkv mov avi webm ",
     "holds pictures, sound or video", "name a file of text"},
    {" exe dll so o a class jar pyc wasm ", "is a program", "name a file of text"},
};

// Kinds of files by their first bytes, for files with other names.
struct Magic {
  std::string_view bytes;
  const char *is, *remedy;
};
constexpr Magic kMagics[] = {
    {"FLATTOK"sv, "is a token file already", "name it in data.train, or name the text it was made from"},
    {"PAR1"sv, "is Parquet", kUnpackTable},
    {"ARROW1"sv, "is an Arrow table", kUnpackTable},
    {"FEA1"sv, "is a Feather table of version 1, which has been replaced by Arrow files",
     "convert it: python3 -c \"import pandas; pandas.read_feather('PATH').to_json('PATH.jsonl', "
     "orient='records', lines=True)\""},
    {"\xff\xff\xff\xff"sv, "is an Arrow stream", kUnpackTable},
    {"PK\x03\x04"sv, "is an archive (zip), or a document or table in one", kUnpack},
    {"%PDF-"sv, "is a formatted document", kExtractText},
    {"\xfd\x37zXZ\0"sv, "is compressed with xz", "decompress it first"},
    {"7z\xbc\xaf\x27\x1c"sv, "is an archive (7z)", kUnpack},
    {"SQLite format 3\0"sv, "is a database", "export its texts as JSON lines"},
    {"\x7f"
     "ELF"sv,
     "is a program", "name a file of text"},
    {"\x89PNG"sv, "is a picture", "name a file of text"},
    {"\xff\xd8\xff"sv, "is a picture", "name a file of text"},
    {"\x1f\x8b"sv, "is compressed twice", "decompress it once"},
    {"\x28\xb5\x2f\xfd"sv, "is compressed twice", "decompress it once"},
    {"\xff\xfe"sv, "is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 'PATH' >'PATH.txt'"},
    {"\xfe\xff"sv, "is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 'PATH' >'PATH.txt'"},
};

// Content with a larger share of invalid bytes is not a text with a few errors.
constexpr double kMostInvalidShare = 0.1;

std::string lowercase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The part of a name after its last dot; "" without a dot.
std::string ending_of(const std::string& path) {
  const size_t dot = path.find_last_of("./");
  return dot == path.npos || path[dot] == '/' ? "" : lowercase(path.substr(dot + 1));
}

bool is_one_of(const std::string& ending, std::string_view endings) {
  return !ending.empty() && endings.find(" " + ending + " ") != endings.npos;
}

// The ending of a name without the ending of its compression.
std::string kind_of_name(const std::string& path) {
  if (named_compression(path) == Compression::none) return ending_of(path);
  return ending_of(path.substr(0, path.rfind('.')));
}

[[noreturn]] void refuse(const std::string& path, const char* is, std::string remedy) {
  for (size_t at = 0; (at = remedy.find("PATH", at)) != remedy.npos; at += path.size())
    remedy.replace(at, 4, path);
  fail(str(path, ": ", is, ", not text: ", remedy));
}

// The share of bytes that belong to no character. A character cut off at the end is valid.
double invalid_share(std::string_view text) {
  size_t invalid = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t valid = valid_utf8_prefix(rest);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Front front = utf8_front(rest);
    if (front.cut_off) break;
    invalid += front.length;
    rest.remove_prefix(front.length);
  }
  return text.empty() ? 0 : static_cast<double>(invalid) / static_cast<double>(text.size());
}

}  // namespace

Compression named_compression(const std::string& path) {
  const std::string ending = ending_of(path);
  return ending == "gz"                        ? Compression::gzip
         : ending == "zst" || ending == "zstd" ? Compression::zstd
                                               : Compression::none;
}

Compression compression_of(std::string_view begin) {
  if (begin.starts_with("\x1f\x8b"sv)) return Compression::gzip;
  const bool skippable =
      begin.size() >= 4 && (begin[0] & 0xf0) == 0x50 && begin.substr(1).starts_with("*M\x18"sv);
  return begin.starts_with("\x28\xb5\x2f\xfd"sv) || skippable ? Compression::zstd : Compression::none;
}

TextKind text_kind(const std::string& path) {
  return is_one_of(kind_of_name(path), " jsonl ndjson json ") ? TextKind::records : TextKind::text;
}

bool is_text_name(const std::string& path) {
  return text_kind(path) == TextKind::records || kind_of_name(path) == "txt";
}

void check_text_name(const std::string& path) {
  const std::string ending = kind_of_name(path);
  check(!is_one_of(ending, " parquet arrow "), path,
        ": is named like a table (Parquet, Arrow), but its content is none: fetch it again, or rename it");
  for (const OtherKind& kind : kOtherKinds)
    if (is_one_of(ending, kind.endings)) refuse(path, kind.is, kind.remedy);
}

void check_text_content(const std::string& path, std::string_view begin) {
  for (const Magic& magic : kMagics)
    if (begin.starts_with(magic.bytes)) refuse(path, magic.is, magic.remedy);
  if (text_kind(path) == TextKind::records) return;  // every line must be JSON
  begin = begin.substr(0, kJudgedBytes);
  const size_t zero = begin.find('\0');
  check(zero == begin.npos, path, ": is not text: byte ", zero, " is zero; name a file of text");
  const double invalid = invalid_share(begin);
  check(invalid <= kMostInvalidShare, path, ": is not UTF-8 text: ", static_cast<int>(100 * invalid + 0.5),
        "% of its first ", begin.size(), " bytes belong to no character, must be at most ",
        static_cast<int>(100 * kMostInvalidShare),
        "%; if it has another encoding, convert it with iconv -f ENCODING -t UTF-8");
}

}  // namespace flatshard
