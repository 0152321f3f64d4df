#include "text/data/kept_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/json.h"
#include "runtime/sha256.h"
#include "text/data/dataset.h"
#include "text/data/token_column.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = ".flatshard";
constexpr size_t kHashDigits = 16;

// A name such as "chats.jsonl.0123456789abcdef.tok.logprobs", taken apart.
struct KeptName {
  std::string of, token_file;  // "chats.jsonl", "chats.jsonl.0123456789abcdef.tok"
  bool is_reference = false;   // true: the reference was made of token_file
};

bool is_hash(const std::string& text) {
  return text.size() == kHashDigits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Whether `name` is the name of a kept file. If so, fills in `parsed`.
bool parse_name(const std::string& name, KeptName& parsed) {
  fs::path rest = name;
  parsed.is_reference = rest.extension() == ".reference";
  for (const char* const of_tokens : {".images", ".advantages", ".logprobs"})
    if (rest.extension() == of_tokens) rest = rest.stem();
  if (!parsed.is_reference && rest.extension() != ".tok") return false;
  const fs::path hashed = rest.stem();
  parsed.of = hashed.stem().string();
  parsed.token_file = parsed.is_reference ? parsed.of : rest.string();
  return hashed.has_extension() && is_hash(hashed.extension().string().substr(1));
}

// The reason why no run uses a token file; "" if a run may use it.
std::string why_tokens_unused(const std::string& tokens, const fs::path& text) {
  const std::string manifest = manifest_of(tokens);
  for (const std::string& input : inputs_of_manifest(manifest)) {
    if (!fs::exists(input)) return input + " is gone";
    if (fs::path(input).filename() == text.filename() && !fs::equivalent(input, text))
      return "it was made of " + input;
  }
  const std::string stale = why_stale(manifest, "");
  return stale.empty() ? "" : "its text has changed";
}

// The reason why no run uses a reference; "" if a run may use it.
std::string why_reference_unused(const std::string& path, const fs::path& tokens) {
  if (!fs::exists(tokens)) return tokens.string() + " is gone";
  const auto identity = parse_json_or_discard<nlohmann::json>(identity_of_column(path));
  if (!identity.is_object() || !identity.contains("tokens") || !identity["tokens"].is_string())
    return "it is damaged";
  return fingerprint({tokens.string()}) == identity["tokens"].get<std::string>() ? ""
                                                                                 : "its tokens have changed";
}

std::string why_unused(const fs::path& path, const KeptName& name, const fs::path& folder) {
  if (path.parent_path() == folder) return "an earlier version made it";
  const fs::path beside = path.parent_path() / name.token_file;
  try {
    if (name.is_reference)
      return why_reference_unused(path.string(), fs::exists(beside) ? beside : folder / name.token_file);
    return fs::exists(beside) ? why_tokens_unused(beside.string(), folder / name.of) : "its tokens are gone";
  } catch (const Error& error) {
    return error.what();
  }
}

std::chrono::system_clock::time_point time_of(const fs::path& path) {
  const auto since = fs::last_write_time(path) - fs::file_time_type::clock::now();
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(since);
}

void add_files_of(const fs::path& where, const fs::path& folder, std::vector<KeptFile>& found) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(where, none)) {
    KeptName name;
    if (!entry.is_regular_file(none) || !parse_name(entry.path().filename().string(), name)) continue;
    // The user may have other files with such names beside a text.
    if (where == folder && !fs::exists(folder / name.of)) continue;
    found.push_back({.path = entry.path().string(),
                     .bytes = static_cast<int64_t>(entry.file_size()),
                     .last_use = time_of(entry.path()),
                     .why_unused = why_unused(entry.path(), name, folder)});
  }
}

}  // namespace

std::string kept_path(const std::string& path, const std::string& inputs, const std::string& extension) {
  Sha256 sha;
  sha.add(inputs.data(), inputs.size());
  const fs::path of(path);
  const fs::path folder = is_kept(path) ? of.parent_path() : of.parent_path() / kFolder;
  return (folder / str(of.filename().string(), '.', sha.hex().substr(0, kHashDigits), extension)).string();
}

bool is_kept(const std::string& path) { return fs::path(path).parent_path().filename() == kFolder; }

std::string text_of_kept(const std::string& path) {
  return (fs::path(path).parent_path().parent_path() / fs::path(path).stem().stem()).string();
}

void make_kept_folder(const std::string& path, const std::string& remedy) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK) != 0) error = std::error_code(errno, std::generic_category());
  check(!error, folder.string(), ": cannot be written: ", error.message(), ": ", remedy);
}

void note_use(const std::string& path) {
  std::error_code none;  // ignored: the folder may be read-only
  if (is_kept(path)) fs::last_write_time(path, fs::file_time_type::clock::now(), none);
}

std::string remedy_of(const std::string& token_file) {
  return is_kept(token_file) ? str("remove ", token_file, ": the next run makes it again")
                             : "make it again with prepare";
}

std::vector<KeptFile> kept_files(const std::string& folder) {
  check(fs::is_directory(folder), folder, ": is not a folder");
  std::vector<KeptFile> found;
  const fs::path at = fs::path(folder) / "";
  add_files_of(at.parent_path(), at.parent_path(), found);
  add_files_of(at.parent_path() / kFolder, at.parent_path(), found);
  std::sort(found.begin(), found.end(), [](const KeptFile& a, const KeptFile& b) { return a.path < b.path; });
  return found;
}

}  // namespace flatshard
