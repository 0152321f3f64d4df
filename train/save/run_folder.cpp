#include "train/save/run_folder.h"

#include <filesystem>
#include <optional>

#include "comm/agreement.h"
#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "train/save/shard_files.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error && fs::is_directory(path), path.string(), ": cannot make this folder: ", error.message());
}

}  // namespace

void RunFolder::hold(World& world) {
  succeed_together(world, [&] {
    if (world.rank() == 0) lock_.take();
  });
}

void RunFolder::make() {
  make_folder(path_);
  lock_.take();
  const fs::path parent = fs::absolute(path_).lexically_normal().parent_path();
  write_whole_file((parent / "latest").string(), fs::path(path_).string() + "\n");
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  write_whole_file(file(name), text);
}

void save_model(const std::string& folder, const ModelDocuments& documents, int64_t shard_bytes,
                Engine& engine, World& world) {
  const ShardFiles& weights = kShardFiles.front();
  const TensorFolderLayout layout = layout_of(weights, engine.model(), shard_bytes);
  std::optional<TensorFolderWriter> writer;
  const auto open_files = [&](bool create) {
    writer.emplace(folder, layout, create, nullptr, TensorFolderWriter::Names::unfinished);
  };
  if (engine.rank() == 0) {
    make_folder(folder);
    open_files(true);
  }
  world.barrier("the model's files");  // they are there
  if (engine.rank() != 0) open_files(false);
  write_shards(*writer, weights, owned_shards(engine), engine.compute());
  writer->finish();
  world.barrier("the model's tensors");  // every rank has written
  if (engine.rank() != 0) return;
  finish_tensor_files(folder, weights.stem, layout);
  replace_companions(folder, documents.companions);
  write_whole_file(folder + "/config.json", documents.config_json);
}

}  // namespace flatshard
