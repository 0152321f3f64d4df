#include "hub/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "hub/gguf/gguf_tokenizer.h"
#include "runtime/check.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

constexpr const char* kNames[] = {"generation_config.json",
                                  "preprocessor_config.json",
                                  "processor_config.json",
                                  "tokenizer.json",
                                  "tokenizer_config.json",
                                  "tokenizer.model",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "chat_template.jinja",
                                  "chat_template.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "encoder.json",
                                  "vocab.bpe"};
constexpr int64_t kMostBytes = int64_t{64} << 20;

// The folder blobs/ of a Hugging Face cache, if `folder` is a folder snapshots/REVISION/ of it; otherwise
// `folder`.
fs::path blobs_of(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" ? snapshots.parent_path() / "blobs" : folder;
}

std::string read_tokenizer_file(const fs::path& folder, const std::string& path) {
  std::error_code error;
  const fs::path here = fs::canonical(folder, error), file = fs::canonical(path, error);
  check(!error, path, ": cannot open: ", error.message());
  check(file.parent_path() == here || file.parent_path() == blobs_of(here), path, ": links to ",
        file.string(), ", outside of the folder: replace the link by the file, or remove it");
  return read_whole_file(path, kMostBytes);
}

}  // namespace

bool is_tokenizer_file(const std::string& name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

TokenizerFiles read_tokenizer_files(const std::string& folder) {
  TokenizerFiles found;
  if (folder.empty()) return found;
  if (is_gguf(folder)) return tokenizer_files_of(GgufFile(folder));
  for (const std::string name : kNames) {
    const std::string path = folder + "/" + name;
    std::error_code none;
    if (fs::exists(fs::symlink_status(path, none))) found[name] = read_tokenizer_file(folder, path);
  }
  return found;
}

void replace_tokenizer_files(const std::string& folder, const TokenizerFiles& tokenizer_files) {
  for (const std::string name : kNames) {
    const std::string path = folder + "/" + name;
    if (const auto found = tokenizer_files.find(name); found != tokenizer_files.end())
      write_whole_file(path, found->second);
    else
      fs::remove(path);
  }
}

}  // namespace flatshard
