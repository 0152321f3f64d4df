#pragma once
// The files that runs derive from texts and token files, and keep for later runs: token files of texts with
// their columns and images, and references of token files. The kept files of NAME are NAME.HASH.tok and
// NAME.HASH.reference in the folder .flatshard beside NAME; HASH covers everything that the content depends
// on. A run that uses a kept file sets its modification time, so unused files can be found.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

// The path of a file that is derived from `path` and `inputs`, and kept. Files derived from a kept file are
// in its folder.
std::string kept_path(const std::string& path, const std::string& inputs, const std::string& extension);
bool is_kept(const std::string& path);
// The text that a kept token file was made of.
std::string text_of_kept(const std::string& path);

// Creates the folder of a kept file if it is missing. If the folder cannot be written, throws an Error that
// ends with `remedy`.
void make_kept_folder(const std::string& path, const std::string& remedy);
// Records that a run uses a kept file.
void note_use(const std::string& path);

// The advice in an error about a damaged token file, or a file that belongs to it.
std::string remedy_of(const std::string& token_file);

struct KeptFile {
  std::string path;
  int64_t bytes = 0;
  std::chrono::system_clock::time_point last_use;
  std::string why_unused;  // the reason why no run can use it; "" if one may
};

// The kept files in FOLDER/.flatshard and the ones that earlier versions left in FOLDER, sorted by name.
std::vector<KeptFile> kept_files(const std::string& folder);

}  // namespace flatshard
