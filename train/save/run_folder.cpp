#include "train/save/run_folder.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <unistd.h>

#include "comm/agreement.h"
#include "hub/adapter_base.h"
#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "train/save/checkpoint_names.h"
#include "train/save/shard_files.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig = "config.toml";
constexpr std::string_view kMark = "# The config of the run in this folder, as train resolved it.";
// The names that a run writes in its folder, besides checkpoints.
constexpr const char* kWritten[] = {kConfig,        "run.log",          "metrics.jsonl",   "step1.txt",
                                    "trace.json",   "overlap.svg",      "report.html",     "samples.jsonl",
                                    "starts.jsonl", "tensorboard",      kLatestName,       kResults[0],
                                    kResults[1],    kEarlierResults[0], kEarlierResults[1]};

// Creates the folder and its missing parents. Adds the folders that it created to `made`, innermost first.
void make_folders(const fs::path& path, std::vector<fs::path>& made) {
  std::error_code error;
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::vector<fs::path> missing;
    for (fs::path at = path; !at.empty() && !fs::exists(at, error); at = at.parent_path())
      missing.push_back(at);
    error.clear();
    for (auto at = missing.rbegin(); at != missing.rend() && !error; ++at)
      if (fs::create_directory(*at, error)) made.insert(made.begin(), *at);
    // A refused run may have removed a parent in the meantime.
    if (error != std::errc::no_such_file_or_directory) break;
  }
  std::error_code none;
  check(!fs::is_symlink(path, none) || fs::exists(path, none), path.string(),
        ": links to a folder that does not exist: create that folder, or remove the link");
  check(!error, path.string(), ": cannot create this folder: ", error.message());
  // The folder may be gone again; lock_.take() notices that.
  const fs::file_type type = fs::status(path, none).type();
  check(type == fs::file_type::directory || type == fs::file_type::not_found, path.string(),
        ": is not a folder: choose another run.dir");
}

void check_usable(const std::string& path) {
  const bool usable = faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) == 0;
  check(usable, path, ": cannot write into this folder: ", std::strerror(errno), ": choose another run.dir");
}

bool is_marked(const fs::path& folder) {
  std::string line(kMark.size(), ' ');
  return fs::is_regular_file(folder / kConfig) &&
         std::ifstream(folder / kConfig).read(line.data(), std::ssize(line)) && line == kMark;
}

void check_replaceable(const fs::path& folder) {
  if (is_marked(folder)) return;
  for (const char* name : kWritten)
    check(!fs::exists(fs::symlink_status(folder / name)), (folder / name).string(),
          ": was not written by a run, and this run would replace it: choose another run.dir, or move it "
          "away");
}

}  // namespace

RunFolder::~RunFolder() {
  std::error_code ignored;
  for (const fs::path& folder : made_) fs::remove(folder, ignored);  // fails unless it is empty
}

void RunFolder::hold(World& world) {
  succeed_together(world, [&] {
    if (world.rank() != 0) return;
    do make_folders(path_, made_);
    while (!lock_.take());
    check_usable(path_);
    check_replaceable(path_);
  });
}

void RunFolder::begin(const std::string& config) {
  write(kConfig, str(kMark, '\n', config));
  made_.clear();
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  write_whole_file(file(name), text);
}

void save_model(const std::string& folder, const ModelDocuments& documents, int64_t shard_bytes,
                Engine& engine, World& world) {
  const ShardFiles weights = shard_files(engine, documents.vocab_has_grown).front();
  const TensorFolderLayout layout = layout_of(weights, engine.model(), shard_bytes);
  std::optional<TensorFolderWriter> writer;
  const auto open_files = [&](bool create) {
    writer.emplace(folder, layout, create, nullptr, TensorFolderWriter::Names::unfinished);
  };
  if (engine.rank() == 0) {
    std::vector<fs::path> made;
    make_folders(folder, made);
    open_files(true);
  }
  world.barrier("the model's files");  // rank 0 has created them
  if (engine.rank() != 0) open_files(false);
  write_shards(*writer, weights, owned_shards(engine), engine.compute());
  writer->finish();
  world.barrier("the model's tensors");  // every rank has written
  if (engine.rank() != 0) return;
  finish_tensor_files(folder, weights.stem, layout);
  replace_tokenizer_files(folder, documents.tokenizer_files);
  if (!documents.adapter_config_json.empty())
    write_whole_file(folder + '/' + kAdapterConfigName, documents.adapter_config_json);
  if (!documents.adapter_base_json.empty())
    write_whole_file(folder + '/' + kAdapterBaseName, documents.adapter_base_json);
  else
    fs::remove(folder + '/' + kAdapterBaseName);
  write_whole_file(folder + "/config.json", documents.config_json);
}

}  // namespace flatshard
