#include "train/save/new_folder.h"

#include <filesystem>

#include "checkpoint/durable.h"
#include "runtime/check.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

std::string without_slash(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

}  // namespace

NewFolder::NewFolder(const std::string& path)
    : path_(without_slash(path)), unfinished_(unfinished_name(path_)) {
  check(!path.empty(), "the folder to write has no name");
  check(!fs::exists(path_), path_, ": is there already: choose another name, or remove it");
  std::error_code error;
  fs::remove_all(unfinished_, error);
  if (const fs::path parent = fs::path(path_).parent_path(); !parent.empty() && !error)
    fs::create_directories(parent, error);
  if (!error) fs::create_directory(unfinished_, error);
  check(!error, unfinished_, ": cannot make this folder: ", error.message());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!finished_) fs::remove_all(unfinished_, ignored);
}

void NewFolder::write(const std::string& name, std::string_view text) const {
  write_durable(unfinished_ + "/" + name, text);
}

void NewFolder::finish() {
  sync_folder(unfinished_);
  rename_durable(unfinished_, path_);
  finished_ = true;
}

}  // namespace flatshard
