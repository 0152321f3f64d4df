#include "checkpoint/tensor_folder.h"

#include <filesystem>
#include <set>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/log.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

constexpr char kExtension[] = ".safetensors", kIndexExtension[] = ".safetensors.index.json";

SafetensorsIndex read_index(const std::string& path) {
  const std::string text = read_whole_file(path, static_cast<int64_t>(SafetensorsFile::kMaxHeaderBytes));
  return with_place(path, [&] { return parse_safetensors_index(text); });
}

// Returns whether this is the name of a file in the folder itself.
bool is_plain_name(const std::string& name) {
  return name.ends_with(kExtension) && name.find('/') == name.npos && name.find('\0') == name.npos;
}

}  // namespace

TensorFolder::TensorFolder(const std::string& folder, const std::string& stem,
                           const std::vector<JoinedTensor>& joined) {
  const fs::path single = fs::path(folder) / (stem + kExtension),
                 index = fs::path(folder) / (stem + kIndexExtension);
  const bool has_index = !fs::exists(single) && fs::exists(index);
  path_ = (has_index ? index : single).string();
  has_index ? open_shards(folder) : open_single();
  file_names_.push_back(fs::path(path_).filename().string());
  for (const JoinedTensor& tensor : joined)
    if (const SafetensorsEntry* const entry = find(tensor.name); entry && entry->shape == tensor.shape)
      cut(tensor);
}

void TensorFolder::open_single() {
  files_.push_back(std::make_unique<SafetensorsFile>(path_));
  for (const SafetensorsEntry& entry : files_.back()->entries()) entries_[entry.name] = &entry;
}

void TensorFolder::open_shards(const std::string& folder) {
  const SafetensorsIndex index = read_index(path_);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.weight_map) {
    check(is_plain_name(file), path_, ": \"", tensor, "\" must be in a ", kExtension,
          " file of this folder, not in \"", file, '"');
    names.insert(file);
  }
  std::map<std::string, std::string> owners;  // tensor -> file
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    const auto& file =
        files_.emplace_back(std::make_unique<SafetensorsFile>((fs::path(folder) / name).string()));
    file_names_.push_back(name);
    for (const SafetensorsEntry& entry : file->entries()) {
      const auto [other, is_new] = owners.emplace(entry.name, name);
      check(is_new, path_, ": \"", entry.name, "\" is in both ", other->second, " and ", name);
      const auto mapped = index.weight_map.find(entry.name);
      if (mapped == index.weight_map.end()) {
        log_warning(file->path(), ": \"", entry.name, "\" is not in the index: ignored");
      } else if (mapped->second == name) {
        entries_[entry.name] = &entry;
        bytes += static_cast<uint64_t>(entry.bytes.size);
      }
    }
  }
  for (const auto& [tensor, file] : index.weight_map)
    check(entries_.contains(tensor), path_, ": \"", tensor, "\" is not in ", file);
  check(!index.total_size || *index.total_size == bytes, path_, ": total_size is ",
        index.total_size.value_or(0), ", but the tensors have ", bytes, " bytes");
}

const SafetensorsEntry* TensorFolder::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

bool TensorFolder::has(const SafetensorsEntry& of_file) const {
  return find(of_file.name) == &of_file || wholes_.contains(&of_file);
}

void TensorFolder::cut(const JoinedTensor& joined) {
  const SafetensorsEntry& whole = *entries_.at(joined.name);
  wholes_.insert(&whole);
  int64_t begin = whole.bytes.begin, elements = 0;
  for (const JoinedTensor::Part& part : joined.parts) elements += part.elements();
  entries_.erase(joined.name);
  for (const JoinedTensor::Part& part : joined.parts) {
    const int64_t bytes = whole.bytes.size / elements * part.elements();
    parts_.push_back(std::make_unique<SafetensorsEntry>(
        SafetensorsEntry{part.name, whole.dtype, part.shape, {whole.bytes.file, begin, bytes}}));
    check(entries_.emplace(part.name, parts_.back().get()).second, path_, ": has both \"", joined.name,
          "\" and \"", part.name, "\", which is a part of it");
    begin += bytes;
  }
}

}  // namespace flatshard
