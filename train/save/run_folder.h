#pragma once
// The folder of a run, held by one run at a time. A run writes only into a folder without any files that runs
// write, or into one that a run has marked; the mark is the first line of config.toml.

#include <filesystem>
#include <string>
#include <vector>

#include "comm/world.h"
#include "runtime/folder_lock.h"
#include "train/save/initial_weights.h"
#include "train/step/engine.h"

namespace flatshard {

class RunFolder {
 public:
  explicit RunFolder(const std::string& path)
      : path_(path),
        lock_(path, "another run is using this folder: wait until it ends, or choose another run.dir") {}
  // Removes the folders that hold() created, unless begin() was called.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Creates the folder if needed and locks it, on rank 0. Call before reading anything in the folder: of two
  // runs that start together, the second then finds what the first has written. An Error on all ranks if
  // another run holds the folder, if it is not writable, or if this run would replace files that no run
  // wrote.
  void hold(World& world);
  // Writes the resolved config with the mark. From now on the run replaces the files of an earlier run.
  void begin(const std::string& config);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file under a temporary name, then renames it.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
  std::vector<std::filesystem::path> made_;  // folders that hold() created, innermost first
  FolderLock lock_;
};

// Writes a model folder: these documents, and model.safetensors with the fp32 masters, split at
// `shard_bytes`. Call on all ranks between steps; every rank writes its shards.
void save_model(const std::string& folder, const ModelDocuments& documents, int64_t shard_bytes,
                Engine& engine, World& world);

}  // namespace flatshard
