#pragma once
// Reads the weights of a model folder: any range of any parameter, by the model's names, converted to fp32
// from F32, BF16 or F16.
//
// Names and shapes must match the model exactly, except for adapters, which such a folder lacks; an Error
// lists the tensors that are missing, unexpected or have a wrong shape. Peculiarities of older files are
// accepted: buffers that are not parameters, a tied head equal to the embedding, and GPT-2 names without
// "transformer.".
//
// The model may have a larger vocabulary than the folder. The new rows, in embedding and head, are the mean
// of the existing rows.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/sharded_unit.h"
#include "train/models/model_folder.h"
#include "train/quantized/read_values.h"

namespace flatshard {

// A folder's tensors by the model's names, without the ignored ones.
std::map<std::string, const SafetensorsEntry*> model_tensors(const TensorFolder& tensors,
                                                             const ModelConfig& config);

class PublishedWeights {
 public:
  // `vocab` is the vocabulary size of the folder.
  PublishedWeights(const std::string& folder, const Model& model, int64_t vocab);

  // Elements [first, first + count) of a parameter.
  void read(const std::string& name, int64_t first, int64_t count, float* to);
  // "model.safetensors, F32"
  std::string describe() const;

 private:
  void check_match(const Model& model, int64_t vocab) const;
  const std::vector<float>& mean_row(const std::string& name);

  TensorFolder tensors_;
  std::map<std::string, const SafetensorsEntry*> entries_;
  std::map<std::string, std::vector<float>> mean_rows_;  // of the matrices that grow, computed on first use
};

// Initial values that `read` supplies.
InitialValues initial_values(ReadValues read);
// Initial values from these weights, which must outlive it. `weights` may be null if this rank never reads
// values.
InitialValues initial_values(PublishedWeights* weights);

}  // namespace flatshard
