#pragma once
// The folder of a run, and the note beside it that says which run was the last.

#include <string>

#include "comm/world.h"
#include "train/save/folder_lock.h"
#include "train/save/initial_weights.h"
#include "train/step/engine.h"

namespace flatshard {

class RunFolder {
 public:
  explicit RunFolder(const std::string& path) : path_(path), lock_(path) {}

  // Keeps other runs out of the folder, where it is there already; rank 0 does. An Error on all ranks where
  // another is at work in it.
  void hold(World& world);
  // Makes the folder, holds it, and names it the last run (the file "latest" in its parent). Files of an
  // earlier run in it are replaced.
  void make();

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file under an unfinished name and then gives it its own.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
  FolderLock lock_;
};

// Writes a model folder: these documents, and model.safetensors with the fp32 masters, cut into files of
// `shard_bytes` where it is larger. Every rank writes what it owns; to be called by all ranks between steps.
void save_model(const std::string& folder, const ModelDocuments& documents, int64_t shard_bytes,
                Engine& engine, World& world);

}  // namespace flatshard
