#pragma once
// The tensors of a folder under one stem, such as "model": one file STEM.safetensors, or several files with
// an index, the form in which Hugging Face splits large models:
//   STEM-00001-of-00003.safetensors ...
//   STEM.safetensors.index.json   {"metadata":{"total_size":BYTES},"weight_map":{"tensor":"file", ...}}
// where total_size is the bytes of all tensors.
//
// The reader does not trust the index. A file name that leads out of the folder, a missing file, a tensor
// missing from its file or present in two files, or a wrong total_size causes an Error that names it. If both
// forms exist, the single file is used.
//
// The file and offset of a tensor depend only on names, dtypes and shapes, so many processes can write one
// set of files (safetensors.h).

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "runtime/read_stream.h"

namespace flatshard {

// A tensor of a file that is several tensors of a model, which follow one another in its memory and together
// have all of it. Readers and writers name its parts.
struct JoinedTensor {
  struct Part {
    std::string name;
    std::vector<int64_t> shape;

    int64_t elements() const {
      return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    }
  };
  std::string name;
  std::vector<int64_t> shape;
  std::vector<Part> parts;
};

class TensorFolder {
 public:
  // Tensors of the files that have the name and shape of a joined one are replaced by its parts.
  TensorFolder(const std::string& folder, const std::string& stem,
               const std::vector<JoinedTensor>& joined = {});

  // The path of the single file, or of the index.
  const std::string& path() const { return path_; }
  // All tensors, by name.
  const std::map<std::string, const SafetensorsEntry*>& entries() const { return entries_; }
  const SafetensorsEntry* find(const std::string& name) const;  // null if there is none
  // Whether a tensor of a file is one of the folder's, or all of its parts are.
  bool has(const SafetensorsEntry& of_file) const;
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  // The names of all files of the tensors, without the folder; the index, or the single file, is last.
  const std::vector<std::string>& file_names() const { return file_names_; }

 private:
  void open_single();
  void open_shards(const std::string& folder);
  void cut(const JoinedTensor& joined);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, const SafetensorsEntry*> entries_;
  std::vector<std::unique_ptr<SafetensorsEntry>> parts_;  // made by cut()
  std::set<const SafetensorsEntry*> wholes_;              // cut into parts
};

// Reads one process's ranges of the files of a TensorFolder, and sums the bytes while they are in cache. If
// the processes together read every byte of a file once, their merged sums are its checksums. The folder must
// outlive the reader.
class TensorFolderReader {
 public:
  explicit TensorFolderReader(const TensorFolder& folder);

  const TensorFolder& folder() const { return folder_; }
  FileRange range(const std::string& tensor, int64_t first, int64_t count) const;
  // Reads bytes [first, first + count) of a tensor, which must be next in the stream. With `sum`, adds the
  // bytes to the sums.
  void read(ReadStream& stream, const std::string& tensor, int64_t first, int64_t count, void* to, bool sum);
  // Reads and adds all bytes outside of the folder's tensors: headers, and tensors that are not in the index.
  void sum_rest();
  BlockSums& sums(const SafetensorsFile& file) { return sums_.at(&file.input()); }

 private:
  const TensorFolder& folder_;
  std::map<const InputFile*, BlockSums> sums_;
};

// Returns whether this is a possible file name of a set with this stem.
bool is_tensor_file(const std::string& name, const std::string& stem);

// Splits tensors into files in the order given. A new file begins when the next tensor would bring the
// current one above `most_bytes` of tensor data. A larger tensor has a file of its own. A joined tensor is
// where the first of its parts is given; all of them must be.
class TensorFolderLayout {
 public:
  struct File {
    std::string name;  // file name, without the folder
    SafetensorsLayout layout;
  };
  struct Place {
    size_t file, index;  // index into files(), and index in that file's layout
    int64_t first = 0;   // where a part begins in the joined tensor, in elements
  };

  TensorFolderLayout(const std::string& stem, std::vector<SafetensorsSpec> specs, int64_t most_bytes,
                     const std::vector<JoinedTensor>& joined = {});

  const std::vector<SafetensorsSpec>& specs() const { return specs_; }  // the order is the constructor's
  const std::vector<File>& files() const { return files_; }
  Place place(const std::string& tensor) const { return places_.at(tensor); }
  int64_t file_bytes() const;  // total size of all files
  // The index; name and text are empty if there is only one file.
  const std::string& index_name() const { return index_name_; }
  const std::string& index_text() const { return index_text_; }

 private:
  std::vector<SafetensorsSpec> specs_;
  std::vector<File> files_;
  std::map<std::string, Place> places_;
  std::string index_name_, index_text_;
};

// Writes one process's ranges of the files of a layout. The caller writes the index. The layout must outlive
// the writer.
class TensorFolderWriter {
 public:
  enum class Names { final, unfinished };  // unfinished: names by unfinished_name() of durable.h

  // The arguments are as for SafetensorsWriter; `sums` are in the order of the layout's files.
  TensorFolderWriter(const std::string& folder, const TensorFolderLayout& layout, bool create,
                     std::vector<BlockSums>* sums = nullptr, Names names = Names::final);
  TensorFolderWriter(TensorFolderWriter&&) = default;
  ~TensorFolderWriter();  // removes created files that still have unfinished names

  void write(const std::string& tensor, int64_t first, const void* data, int64_t elements);
  // Syncs: everything this process wrote is on disk when it returns.
  void finish();

 private:
  explicit TensorFolderWriter(const TensorFolderLayout& layout) : layout_(layout) {}

  const TensorFolderLayout& layout_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  std::vector<std::string> unfinished_;
};

// Renames the files, writes the index, and removes the files of an earlier set with this stem. To be called
// when all processes have finished their files, which have unfinished names.
void finish_tensor_files(const std::string& folder, const std::string& stem,
                         const TensorFolderLayout& layout);

}  // namespace flatshard
