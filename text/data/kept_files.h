#pragma once
// The files that runs make of texts and token files, and keep for later runs: token files of texts with their
// columns and images, and references of token files. Those of NAME are in the folder .flatshard beside it,
// NAME.HASH.tok and NAME.HASH.reference, where the hash is of all that the content depends on. A run that
// uses one sets its time of modification, so files that no run uses any more can be found.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

// The path of the file that is kept of this one, whose content depends on `inputs`. What is kept of a kept
// file is in the same folder.
std::string kept_path(const std::string& path, const std::string& inputs, const std::string& extension);
bool is_kept(const std::string& path);
// What a kept file of tokens was made of.
std::string text_of_kept(const std::string& path);

// Creates the folder of a kept file if it is missing. An Error if it cannot be written, which ends with
// `remedy`.
void make_kept_folder(const std::string& path, const std::string& remedy);
// Records that a run uses a kept file.
void note_use(const std::string& path);

// What an error about a damaged token file, or a file that belongs to it, advises.
std::string remedy_of(const std::string& token_file);

struct KeptFile {
  std::string path;
  int64_t bytes = 0;
  std::chrono::system_clock::time_point last_use;
  std::string why_unused;  // why no run can use it; "" if one may
};

// The kept files in FOLDER/.flatshard, and those that earlier versions left in FOLDER, by name.
std::vector<KeptFile> kept_files(const std::string& folder);

}  // namespace flatshard
