#include <array>
#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "checkpoint/durable.h"
#include "checkpoint/tensor_folder.h"
#include "runtime/check.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// The number of files is limited because every writing process keeps all of them open.
constexpr size_t kMostFiles = 300;

std::string shard_name(const std::string& stem, size_t number, size_t count) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "-%05zu-of-%05zu.safetensors", number, count);
  return stem + text.data();
}

// The size of one tensor.
int64_t bytes_of(const SafetensorsSpec& spec) {
  return SafetensorsLayout({spec}).elements(0) * size_of(spec.dtype);
}

// The tensors of files: joined ones in place of the first of their parts.
std::vector<SafetensorsSpec> joined_specs(const std::vector<SafetensorsSpec>& specs,
                                          const std::vector<JoinedTensor>& joined) {
  std::map<std::string, const JoinedTensor*> wholes;
  for (const JoinedTensor& tensor : joined)
    for (const JoinedTensor::Part& part : tensor.parts) wholes[part.name] = &tensor;
  std::vector<SafetensorsSpec> result;
  std::set<const JoinedTensor*> begun;
  for (const SafetensorsSpec& spec : specs) {
    const auto whole = wholes.find(spec.name);
    if (whole == wholes.end())
      result.push_back(spec);
    else if (begun.insert(whole->second).second)
      result.push_back({.name = whole->second->name, .dtype = spec.dtype, .shape = whole->second->shape});
  }
  return result;
}

}  // namespace

bool is_tensor_file(const std::string& name, const std::string& stem) {
  if (!name.starts_with(stem)) return false;
  const std::string rest = name.substr(stem.size());
  size_t number = 0, count = 0;
  const bool shard = std::sscanf(rest.c_str(), "-%5zu-of-%5zu", &number, &count) == 2 &&
                     name == shard_name(stem, number, count);
  return shard || rest == ".safetensors" || rest == ".safetensors.index.json";
}

TensorFolderLayout::TensorFolderLayout(const std::string& stem, std::vector<SafetensorsSpec> specs,
                                       int64_t most_bytes, const std::vector<JoinedTensor>& joined)
    : specs_(std::move(specs)) {
  std::vector<std::vector<SafetensorsSpec>> cuts(1);
  int64_t in_last = 0;
  uint64_t total = 0;
  for (const SafetensorsSpec& spec : joined_specs(specs_, joined)) {
    const int64_t bytes = bytes_of(spec);
    if (!cuts.back().empty() && bytes > most_bytes - in_last) {
      cuts.emplace_back();
      in_last = 0;
    }
    cuts.back().push_back(spec);
    in_last += bytes;
    total += static_cast<uint64_t>(bytes);
  }
  check(cuts.size() <= kMostFiles, stem, ": splitting the tensors at ", most_bytes, " bytes makes ",
        cuts.size(), " files, must be at most ", kMostFiles, ": raise the file size");
  SafetensorsIndex index{.total_size = total, .weight_map = {}};
  for (size_t f = 0; f < cuts.size(); ++f) {
    const std::string name = cuts.size() == 1 ? stem + ".safetensors" : shard_name(stem, f + 1, cuts.size());
    for (size_t i = 0; i < cuts[f].size(); ++i) {
      const bool is_new = places_.emplace(cuts[f][i].name, Place{f, i}).second;
      check(is_new, "safetensors: the name \"", cuts[f][i].name, "\" appears twice");
      index.weight_map[cuts[f][i].name] = name;
    }
    files_.push_back({.name = name, .layout = SafetensorsLayout(std::move(cuts[f]))});
  }
  for (const JoinedTensor& tensor : joined) {
    Place part = places_.at(tensor.name);
    for (const JoinedTensor::Part& of : tensor.parts) {
      places_.emplace(of.name, part);
      part.first += of.elements();
    }
  }
  if (files_.size() == 1) return;
  index_name_ = stem + ".safetensors.index.json";
  index_text_ = to_json(index);
}

int64_t TensorFolderLayout::file_bytes() const {
  int64_t bytes = 0;
  for (const File& file : files_) bytes += file.layout.file_bytes();
  return bytes;
}

TensorFolderWriter::TensorFolderWriter(const std::string& folder, const TensorFolderLayout& layout,
                                       bool create, std::vector<BlockSums>* sums, Names names)
    : TensorFolderWriter(layout) {
  for (size_t i = 0; i < layout.files().size(); ++i) {
    const TensorFolderLayout::File& file = layout.files()[i];
    const std::string own_name = folder + "/" + file.name;
    const std::string path = names == Names::final ? own_name : unfinished_name(own_name);
    if (create && names == Names::unfinished) unfinished_.push_back(path);
    writers_.push_back(
        std::make_unique<SafetensorsWriter>(path, file.layout, create, sums ? &(*sums)[i] : nullptr));
  }
}

TensorFolderWriter::~TensorFolderWriter() {
  std::error_code ignored;
  for (const std::string& path : unfinished_) fs::remove(path, ignored);
}

void TensorFolderWriter::write(const std::string& tensor, int64_t first, const void* data, int64_t elements) {
  const TensorFolderLayout::Place place = layout_.place(tensor);
  writers_[place.file]->write(place.index, place.first + first, data, elements);
}

void TensorFolderWriter::finish() {
  for (const auto& writer : writers_) writer->finish();
}

void finish_tensor_files(const std::string& folder, const std::string& stem,
                         const TensorFolderLayout& layout) {
  std::set<std::string> wanted{layout.index_name()};
  for (const TensorFolderLayout::File& file : layout.files()) {
    const std::string path = folder + "/" + file.name;
    rename_durable(unfinished_name(path), path);
    wanted.insert(file.name);
  }
  if (!layout.index_name().empty()) write_whole_file(folder + "/" + layout.index_name(), layout.index_text());
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_tensor_file(name, stem) && !wanted.contains(name)) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove(path);
}

}  // namespace flatshard
