#pragma once
// The tensors of a folder under one stem, such as "model": STEM.safetensors alone, or as many files
//   STEM-00001-of-00003.safetensors ...
//   STEM.safetensors.index.json   {"metadata":{"total_size":BYTES},"weight_map":{"tensor":"file", ...}}
// with total_size the bytes of all tensors. That is how Hugging Face cuts large models.
//
// The reader trusts the index no more than the files: a name that is not that of a file in the folder, a file
// that is missing, a tensor that its file has not or that two files have, or another sum of bytes is an Error
// that names it. Where both forms are there, the single file counts.
//
// Which tensor lies in which file, and where, is a function of names, dtypes and shapes, so many processes
// can write one set of files (safetensors.h).

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "runtime/read_stream.h"

namespace flatshard {

class TensorFolder {
 public:
  TensorFolder(const std::string& folder, const std::string& stem);

  // The single file, or the index.
  const std::string& path() const { return path_; }
  // By the names of the tensors.
  const std::map<std::string, const SafetensorsEntry*>& entries() const { return entries_; }
  const SafetensorsEntry* find(const std::string& name) const;  // null where there is none
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  // All of the folder that belongs to it, without the folder's path, the index last.
  const std::vector<std::string>& file_names() const { return file_names_; }

 private:
  void open_single();
  void open_shards(const std::string& folder);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, const SafetensorsEntry*> entries_;
};

// One process's hand on such files while they are read. It sums what it reads block by block, while that is
// in the processor's cache: all bytes of a file once, whichever process reads which, make the file's
// checksums. The folder must outlive it.
class TensorFolderReader {
 public:
  explicit TensorFolderReader(const TensorFolder& folder);

  const TensorFolder& folder() const { return folder_; }
  FileRange range(const std::string& tensor, int64_t first, int64_t count) const;
  // Bytes [first, first + count) of a tensor, which are the next of the stream. They are added to the sums if
  // this process is the one that sums them.
  void read(ReadStream& stream, const std::string& tensor, int64_t first, int64_t count, void* to, bool sum);
  // Adds what belongs to none of the folder's tensors: headers, and tensors that the index passes over.
  void sum_rest();
  BlockSums& sums(const SafetensorsFile& file) { return sums_.at(&file.input()); }

 private:
  const TensorFolder& folder_;
  std::map<const InputFile*, BlockSums> sums_;
};

// Whether a set of files of this stem may have one of this name.
bool is_tensor_file(const std::string& name, const std::string& stem);

// How tensors are cut into files: in the order given, a new file where the next tensor would make the last
// one hold more than `most_bytes` of tensors. One that is larger has a file to itself.
class TensorFolderLayout {
 public:
  struct File {
    std::string name;  // in the folder
    SafetensorsLayout layout;
  };
  struct Place {
    size_t file, index;  // of files(), and of that one's layout
  };

  TensorFolderLayout(const std::string& stem, std::vector<SafetensorsSpec> specs, int64_t most_bytes);

  const std::vector<SafetensorsSpec>& specs() const { return specs_; }  // in the order given
  const std::vector<File>& files() const { return files_; }
  Place place(const std::string& tensor) const { return places_.at(tensor); }
  int64_t file_bytes() const;  // of all files
  // The index, where there are several files; its name and text are empty where there is one.
  const std::string& index_name() const { return index_name_; }
  const std::string& index_text() const { return index_text_; }

 private:
  std::vector<SafetensorsSpec> specs_;
  std::vector<File> files_;
  std::map<std::string, Place> places_;
  std::string index_name_, index_text_;
};

// One process's hand on such files while they are written; the index is for the caller to write. The layout
// must outlive it.
class TensorFolderWriter {
 public:
  enum class Names { final, unfinished };  // unfinished: as durable.h has it

  // As SafetensorsWriter; `sums` are of the layout's files in order.
  TensorFolderWriter(const std::string& folder, const TensorFolderLayout& layout, bool create,
                     std::vector<BlockSums>* sums = nullptr, Names names = Names::final);

  void write(const std::string& tensor, int64_t first, const void* data, int64_t elements);
  // All of what this process wrote is on disk when it returns.
  void finish();

 private:
  const TensorFolderLayout& layout_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
};

// When all processes are through with files of unfinished names: gives them their own, and the folder their
// index; then removes what an earlier set of files of this stem has left there.
void finish_tensor_files(const std::string& folder, const std::string& stem,
                         const TensorFolderLayout& layout);

}  // namespace flatshard
