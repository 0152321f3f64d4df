#pragma once
// The weights of a folder as a model's parameters: under the names that the model gives them, in fp32
// whatever the file holds (F32, BF16 or F16), any range of any parameter.
//
// Names and shapes must be exactly the model's; an Error lists what is missing, unexpected or of another
// shape. What older files hold besides is passed over: buffers that are no parameters, a tied head that
// equals the embedding, and GPT-2's names without "transformer.".
//
// The model may have more tokens than the folder. The rows of new ones, in embedding and head, are the mean
// of the rows that are there.

#include <map>
#include <string>
#include <vector>

#include "comm/sharded_unit.h"
#include "train/models/model_folder.h"

namespace flatshard {

// A folder's tensors under the names of the model, without what is passed over.
std::map<std::string, const SafetensorsEntry*> model_tensors(const TensorFolder& tensors,
                                                             const ModelConfig& config);

class PublishedWeights {
 public:
  // `vocab` tokens are in the folder.
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
  std::map<std::string, std::vector<float>> mean_rows_;  // of the matrices that grow, once they are asked for
};

// Made of weights that outlive it; null where nobody will ask for values here.
InitialValues initial_values(PublishedWeights* weights);

// Reads a folder's weights into the parameters, converted to their dtype.
void read_model_weights(const std::string& folder, const Model& model, const ParamTensors& parameters,
                        Stream& stream);

}  // namespace flatshard
