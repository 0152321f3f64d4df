#pragma once
// The folder of a run. One run at a time holds it. A run writes only into a folder that has none of the files
// that runs write, or that a run has marked as its own; the mark is the first line of its config.toml.

#include <filesystem>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/save/folder_lock.h"
#include "train/save/initial_weights.h"
#include "train/step/engine.h"

namespace flatshard {

class RunFolder {
 public:
  explicit RunFolder(const std::string& path) : path_(path), lock_(path) {}
  // Removes the folders that hold() made, unless begin() has made them a run's.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // On rank 0: makes the folder where there is none, and keeps other runs out of it. Whatever is looked for
  // in the folder is looked for after this, so of two runs that start together the second finds what the
  // first has written. An Error on all ranks when another run holds the folder, when it cannot be written, or
  // when it has files that a run would replace but no run wrote.
  void hold(World& world);
  // Writes the resolved config, with the mark of a run's folder. From now on the run replaces the files of an
  // earlier run.
  void begin(const std::string& config);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file under an unfinished name and then gives it its own.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
  std::vector<std::filesystem::path> made_;  // innermost first
  FolderLock lock_;
};

// Writes a model folder: these documents, and model.safetensors with the fp32 masters, cut into files of
// `shard_bytes` where it is larger. Every rank writes what it owns; to be called by all ranks between steps.
void save_model(const std::string& folder, const ModelDocuments& documents, int64_t shard_bytes,
                Engine& engine, World& world);

}  // namespace flatshard
