#include "train/run_folder.h"

#include <filesystem>
#include <map>
#include <optional>

#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "train/model_folder.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error && fs::is_directory(path), path.string(), ": cannot make this folder: ", error.message());
}

// What a rank owns of the tensors of a unit, written as fp32.
void write_unit(SafetensorsWriter& writer, const ShardedUnit& unit,
                const std::map<std::string, size_t>& index_by_name) {
  const auto index_of = [&](ParamId id) { return index_by_name.at(unit.params()[id].name); };
  if (unit.has_gradients()) {
    const float* masters = unit.shard().p.as<float>();
    for (const FlatLayout::Piece& piece : unit.trainable().pieces(unit.place()))
      writer.write(index_of(piece.param), piece.in_param, masters + piece.in_shard, piece.size);
  }
  std::vector<float> widened;
  for (const FlatLayout::Piece& piece : unit.frozen().pieces(unit.place())) {
    widened.resize(static_cast<size_t>(piece.size));
    visit_float(unit.frozen_shard().dtype, [&]<class T>() {
      const T* values = unit.frozen_shard().as<T>() + piece.in_shard;
      for (int64_t i = 0; i < piece.size; ++i)
        widened[static_cast<size_t>(i)] = static_cast<float>(values[i]);
    });
    writer.write(index_of(piece.param), piece.in_param, widened.data(), piece.size);
  }
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
  const std::string path = folder + "/model.safetensors", unfinished = unfinished_name(path);
  const SafetensorsLayout layout(weight_specs(engine.model(), DType::f32));
  std::optional<SafetensorsWriter> writer;
  if (engine.rank() == 0) {
    make_folder(folder);
    writer.emplace(unfinished, layout, true);
  }
  world.barrier("the model's file");  // it is there
  if (engine.rank() != 0) writer.emplace(unfinished, layout, false);
  std::map<std::string, size_t> index_by_name;
  for (const SafetensorsSpec& spec : layout.specs()) index_by_name.emplace(spec.name, index_by_name.size());
  if (engine.owns_first_replica())
    for (const ShardedUnit& unit : engine.units()) write_unit(*writer, unit, index_by_name);
  writer->finish();
  world.barrier("the model's tensors");  // every rank has written
  if (engine.rank() != 0) return;
  finish_file(path);
  write_whole_file(folder + "/config.json", hf_config_json(engine.model().config(), DType::f32));
}

}  // namespace flatshard
