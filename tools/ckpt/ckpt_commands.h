#pragma once
// The commands of `ckpt`. tensor_sets.h lists the folders that they accept. A command that fails throws an
// Error and leaves no partial output.

#include <iosfwd>
#include <optional>
#include <string>

#include "hub/gguf/ggml_type.h"
#include "kernels/four_bit.h"
#include "runtime/dtype.h"
#include "tools/inference/find_model.h"

namespace flatshard {

struct Console {
  std::ostream& out;
  std::ostream* terminal;  // shows progress; null: no progress is shown
};

// Prints the contents of a folder, or the checkpoints of a run folder; with `all`, every tensor.
void inspect(const std::string& folder, bool all, const Console& console);

// Returns whether the folder is complete and undamaged. Prints a line for each damaged block and for each
// missing or wrong file or tensor.
bool verify(const std::string& folder, const Console& console);

// Returns whether two folders have bit-identical tensors and equal state. Prints the number of different
// tensors, the largest difference, and the differences between the states; with `all`, every difference and
// its size.
bool diff(const std::string& a, const std::string& b, bool all, const Console& console);

// Prints the best checkpoint of a run, and whether the run had a lower evaluation loss without a checkpoint.
void print_best(const std::string& run, const Console& console);

struct ExportOptions {
  std::string to;              // new folder, which must not exist
  std::optional<DType> dtype;  // empty: each tensor keeps its dtype
  int64_t shard_bytes;         // maximum tensor bytes per file
};

// Writes a model folder for Hugging Face transformers. 4-bit weights are copied, unless options.dtype is
// given.
void export_model(const std::string& from, const ExportOptions& options, const Console& console);

struct GgufOptions {
  std::string to;       // created or replaced
  GgmlType type;        // type of matrices; other tensors are fp32
  std::string pattern;  // see gguf_tokenizer.h
  bool modelfile;       // writes a Modelfile for Ollama beside it
};

// Writes a GGUF file for llama.cpp, with a model or with LoRA adapters.
void export_gguf(const std::string& from, const GgufOptions& options, const Console& console);

// Writes the best checkpoint of a run as a model folder. If a model folder `base` is given, the checkpoint's
// tensors replace those of the base; the base's other tensors, dtypes, config.json and tokenizer are kept.
// Adapters are merged into their base, as in merge_adapter().
void merge(const std::string& run, const std::optional<std::string>& base, bool other_base,
           const ExportOptions& options, const Console& console);

struct Requantization {
  bool wanted = false;  // 4-bit weights keep their formats, which rounds them again
  bool forced = false;  // allows any change by the rounding
};

// Adds an adapter to the weights of its base, in fp32, and writes the result as a model folder. Dtypes,
// config.json and tokenizer are the base's, except that the adapter may replace tokenizer and vocabulary.
// 4-bit weights are dequantized, or quantized again. Throws an Error, unless forced, if quantizing changes
// them by more than half of the adapter's update.
void merge_adapter(const ModelSource& source, const Requantization& requantization,
                   const ExportOptions& options, const Console& console);

struct QuantizeOptions {
  FourBitFormat format;
  DType storage;                  // declared dtype of the tensors of codes
  std::vector<std::string> skip;  // layers, or modules that contain them; matched by path components
  bool experts = false;           // also layers of experts, which transformers 5 does not read
};

// Writes a model folder whose linear layers, except the output head, have 4-bit weights, for transformers and
// bitsandbytes. With options.dtype, all weights are first rounded to this dtype.
void quantize(const std::string& from, const QuantizeOptions& quantization, const ExportOptions& options,
              const Console& console);

}  // namespace flatshard
