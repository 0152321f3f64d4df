#pragma once
// The commands of `ckpt`. Folders are those of tensor_sets.h. A command that fails throws an Error and leaves
// no partial output.

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
  std::ostream* terminal;  // for progress; null: no progress is shown
};

// Prints the contents of a folder, or the checkpoints of a run folder; with `all`, every tensor.
void inspect(const std::string& folder, bool all, const Console& console);

// Returns whether the folder is complete and undamaged. Prints a line for each damaged block and for each
// missing or wrong file or tensor.
bool verify(const std::string& folder, const Console& console);

// Returns whether two folders have bit-identical tensors and equal state. Prints the number and the largest
// of the differences between tensors, and those of the state; with `all`, every one and its size.
bool diff(const std::string& a, const std::string& b, bool all, const Console& console);

// Prints the best checkpoint of a run, and whether the run had a lower evaluation loss that no checkpoint
// has.
void print_best(const std::string& run, const Console& console);

struct ExportOptions {
  std::string to;              // created; an Error if it exists
  std::optional<DType> dtype;  // empty: each tensor keeps its own
  int64_t shard_bytes;         // maximum tensor bytes per file
};

// Writes a model folder for Hugging Face transformers. 4-bit weights stay so, unless options.dtype is given.
void export_model(const std::string& from, const ExportOptions& options, const Console& console);

struct GgufOptions {
  std::string to;       // created or replaced
  GgmlType type;        // of matrices; others are fp32
  std::string pattern;  // gguf_tokenizer.h
  bool modelfile;       // writes a Modelfile for Ollama beside it
};

// Writes a GGUF file for llama.cpp, of a model or of LoRA adapters.
void export_gguf(const std::string& from, const GgufOptions& options, const Console& console);

// Writes the best checkpoint of a run as a model folder. If a `base`, a model folder, is given, the result
// is the base with the checkpoint's tensors in place of its own; the base's other tensors, dtypes,
// config.json and tokenizer are kept. Adapters are merged into their base, as merge_adapter() does.
void merge(const std::string& run, const std::optional<std::string>& base, bool other_base,
           const ExportOptions& options, const Console& console);

struct Requantization {
  bool wanted = false;  // 4-bit weights keep their formats, which rounds them again
  bool forced = false;  // however much this changes them
};

// Adds an adapter to the weights of its base, in fp32, and writes the result as a model folder. Dtypes,
// config.json and tokenizer are the base's, except that the adapter may replace tokenizer and vocabulary.
// 4-bit weights are dequantized, or rounded again; an Error, unless forced, if that changes them by more than
// half of what the adapter adds.
void merge_adapter(const ModelSource& source, const Requantization& requantization,
                   const ExportOptions& options, const Console& console);

struct QuantizeOptions {
  FourBitFormat format;
  DType storage;                  // declared for the tensors of codes
  std::vector<std::string> skip;  // layers, or modules that contain them, by whole components of a path
};

// Writes a model folder whose linear layers, except the output head, have 4-bit weights, for transformers and
// bitsandbytes. With options.dtype, all weights are rounded to it first.
void quantize(const std::string& from, const QuantizeOptions& quantization, const ExportOptions& options,
              const Console& console);

}  // namespace flatshard
