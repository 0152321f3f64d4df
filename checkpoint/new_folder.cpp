#include "checkpoint/new_folder.h"

#include <filesystem>
#include <sys/stat.h>

#include "checkpoint/durable.h"
#include "runtime/check.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// The path without a trailing slash. Checks that nothing exists there, and creates the parent.
std::string place_for(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  const fs::path place = normal.has_filename() ? normal : normal.parent_path();
  check(!path.empty(), "the name of the folder to write is empty");
  std::error_code error;
  check(!fs::exists(fs::symlink_status(place, error)), place.string(),
        ": already exists: choose another name, or remove it");
  if (place.has_parent_path()) fs::create_directories(place.parent_path(), error);
  return place.string();
}

}  // namespace

NewFolder::NewFolder(const std::string& path)
    : path_(place_for(path)), temporary_(path_, [](const char* name) { return mkdir(name, 0777) == 0; }) {}

void NewFolder::write(const std::string& name, std::string_view text) const {
  write_durable(unfinished() + "/" + name, text);
}

void NewFolder::finish() {
  sync_folder(unfinished());
  rename_durable(unfinished(), path_);
  temporary_.renamed();
}

}  // namespace flatshard
