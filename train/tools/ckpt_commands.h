#pragma once
// What `ckpt` can do, each a function of its command line. A folder is one of those of tensor_sets.h. An
// Error says why a command could not be carried out; nothing is left half-done then.

#include <iosfwd>
#include <optional>
#include <string>

#include "runtime/dtype.h"

namespace flatshard {

struct Console {
  std::ostream& out;
  std::ostream* terminal;  // where somebody watches how far it is; null: nobody does
};

// What a folder holds; of a run's, which checkpoints.
void inspect(const std::string& folder, const Console& console);

// Whether everything is there and as it was written. Prints a line for each damaged block, and for each file
// and tensor that is missing or wrong.
bool verify(const std::string& folder, const Console& console);

// Whether two folders hold the same: tensors bit for bit, and state. Prints what differs, and by how much.
bool diff(const std::string& a, const std::string& b, const Console& console);

// The checkpoint with the lowest evaluation loss, of several the first.
struct BestCheckpoint {
  std::string path;
  int64_t step;
  double loss;
};
BestCheckpoint best_of(const std::string& run);

struct ExportOptions {
  std::string to;              // made; an Error where it is there already
  std::optional<DType> dtype;  // nothing: each tensor keeps its own
  int64_t shard_bytes;         // of tensors in a file
};

// Writes a model folder that Hugging Face transformers opens.
void export_model(const std::string& from, const ExportOptions& options, const Console& console);

// The best checkpoint of a run as a model folder. Where a base is given, a model folder, it is that one with
// the checkpoint's tensors in place of its own: the base's other tensors, dtypes, config.json and tokenizer
// stay.
void merge(const std::string& run, const std::string& base, const ExportOptions& options,
           const Console& console);

}  // namespace flatshard
