#include "train/run_folder.h"

#include <filesystem>
#include <optional>

#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "train/hf_config.h"
#include "train/shard_files.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error && fs::is_directory(path), path.string(), ": cannot make this folder: ", error.message());
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(path) {
  make_folder(path);
  const fs::path parent = fs::absolute(path).lexically_normal().parent_path();
  write_whole_file((parent / "latest").string(), fs::path(path).string() + "\n");
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  write_whole_file(file(name), text);
}

void save_model(const std::string& folder, Engine& engine, World& world) {
  const ShardFile& weights = kShardFiles.front();
  const std::string path = folder + "/" + weights.name, unfinished = unfinished_name(path);
  const SafetensorsLayout layout = layout_of(weights, engine.model());
  std::optional<SafetensorsWriter> writer;
  if (engine.rank() == 0) {
    make_folder(folder);
    writer.emplace(unfinished, layout, true);
  }
  world.barrier("the model's file");  // it is there
  if (engine.rank() != 0) writer.emplace(unfinished, layout, false);
  write_shards(*writer, layout, weights, engine);
  writer->finish();
  world.barrier("the model's tensors");  // every rank has written
  if (engine.rank() != 0) return;
  finish_file(path);
  write_whole_file(folder + "/config.json", hf_config_json(engine.model().config(), DType::f32));
}

}  // namespace flatshard
