#pragma once
// Reads the weights of a published model: any range of any parameter, by the model's names, converted to fp32
// from F32, BF16 or F16, or dequantized from 4 bits (hub/quantized/quantized_tensors.h, mxfp4_tensors.h). A
// published model is a model folder, or a GGUF file, whose blocks are dequantized.
//
// A model that keeps 4-bit weights can also read their parts unchanged.
//
// Names and shapes must match the model exactly, except for adapters, which a published model lacks. An Error
// lists the tensors that are missing, unexpected or have a wrong shape. Peculiarities of older files are
// accepted: buffers that are not parameters, a tied head equal to the embedding, and GPT-2 names without
// "transformer.".
//
// The model may have a larger vocabulary than the folder. The new rows, in embedding and head, are the mean
// of the existing rows.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hub/gguf/gguf_model.h"
#include "hub/model_folder.h"
#include "hub/quantized/mxfp4_tensors.h"
#include "hub/quantized/quantized_tensors.h"

namespace flatshard {

// The file that describes a published model: its config.json, or the GGUF file.
std::string published_config_path(const std::string& model);
// The config of a published model.
ModelConfig read_published_config(const std::string& model);
// The model's quantization_config, if its config.json has one.
std::optional<QuantizationConfig> read_published_quantization(const std::string& model);

// A folder's tensors by the model's names, without ignored tensors.
TensorEntries model_tensors(const TensorFolder& tensors, const ModelConfig& config);

// The formats of a folder's 4-bit weights, for ModelConfig::quantized, with the dtype of products in its
// config.json. `config` is the folder's config. Throws an Error if config.json names 4-bit weights that the
// folder lacks.
std::map<std::string, FourBitFormat> four_bit_layers(const std::string& folder, const ModelConfig& config);

class PublishedWeights {
 public:
  // `vocab` is the vocabulary size of the published model. `model` must have no 4-bit weights; a folder's
  // 4-bit weights are checked against the weights that they represent.
  PublishedWeights(const std::string& published, const Model& model, int64_t vocab);

  // Reads elements [first, first + count) of a parameter, which must not be a part of a 4-bit weight.
  void read(const std::string& name, int64_t first, int64_t count, float* to);
  // Reads bytes [first, first + count) of a part of a 4-bit weight (hub/quantized/quantized_part.h).
  void read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to) const;
  const QuantizedTensors& quantized() const { return quantized_; }
  // The dtype of a parameter's values in a GGUF file; bf16 if the file has them quantized.
  DType gguf_dtype(const std::string& name) const;
  // A description: "model.safetensors, BF16, 4-bit nf4".
  std::string describe() const;

 private:
  void check_match(const Model& model, int64_t vocab) const;
  std::vector<int64_t> shape_of(const std::string& name) const;
  void read_stored(const std::string& name, int64_t first, int64_t count, float* to);
  const std::vector<float>& mean_row(const std::string& name);

  // Exactly one of the two is set.
  std::optional<TensorFolder> tensors_;
  std::optional<GgufFile> gguf_;
  std::string path_;
  TensorEntries entries_;
  int64_t left_out_ = 0;                                       // tensors of blocks behind the last
  std::map<std::string, std::vector<GgufParameter>> of_gguf_;  // keyed by name of the parameter
  QuantizedTensors quantized_;
  Mxfp4Tensors mxfp4_;
  bool transposed_;                                      // the model's linear weights are (in, out)
  std::map<std::string, std::vector<float>> mean_rows_;  // mean rows, computed on first use
};

}  // namespace flatshard
